// Properties in several processes at once: rapidcheck and the arena of buffers are one per process.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace attncheck::properties {

/// Forked processes that answer numbered questions, one at a time each. The processes are forked
/// when this is constructed and when one that ended is replaced, so the program must have a single
/// thread and no mapped arena.
class Processes {
public:
    /// `serve` runs in a child: question in, answer out, and before it as much as it wants to tell.
    /// Its process starts with what the parent had at the fork; what it throws ends it.
    using Tell = std::function<void(const std::string& news)>;
    using Serve = std::function<std::string(const std::string& question, const Tell& tell)>;

    /// A process that others stopped (SIGSTOP) for `patience` seconds is ended.
    Processes(int count, const std::function<Serve()>& start, double patience = 10);
    ~Processes();
    Processes(const Processes&) = delete;
    Processes& operator=(const Processes&) = delete;

    struct Answer {
        std::size_t number = 0;
        int process = 0;
        std::string text;
        bool is_final = true;  ///< not only news on the way to it
        bool lost = false;     ///< the process ended without an answer
        std::string why;       ///< it was lost
    };

    /// Passes a question to an idle process; there must be one.
    void ask(std::size_t number, const std::string& question);
    void ask(std::size_t number, const std::string& question, int process);
    /// Replaces processes that ended, unless too many did one after the other.
    bool any_idle() { return !idle().empty(); }
    /// The idle ones. A process that replaces another has a new number.
    std::vector<int> idle();
    bool any_busy() const;

    /// Waits until one of the processes has started or ended, or `is_over` says so.
    void wait_for_first(const std::function<bool()>& is_over) const;

    /// Waits for an answer or news, at most `seconds`. Returns false when none came.
    bool wait(double seconds, Answer& answer);

    /// Passes a signal on to all processes.
    void signal(int number) const;

    /// Kills the busy ones: their answers are lost.
    void give_up() const;

private:
    struct Child;
    bool start_one(Child& child);
    void end_stopped();

    std::function<Serve()> start_;
    int most_looks_;  ///< at a stopped process, a second apart
    double looked_ = 0;
    int started_ = 0;
    int replacements_left_;
    std::vector<Child> children_;
};

}  // namespace attncheck::properties
