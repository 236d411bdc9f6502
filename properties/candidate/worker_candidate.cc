#include "properties/candidate/worker_candidate.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "properties/candidate/arena.h"
#include "properties/candidate/call_words.h"
#include "properties/candidate/fork_server.h"
#include "properties/candidate/installation.h"
#include "properties/candidate/placed_calls.h"
#include "properties/candidate/process_family.h"
#include "properties/candidate/worker_hello.h"
#include "properties/candidate/worker_limits.h"
#include "properties/candidate/worker_process.h"

namespace attncheck::properties {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kShareOfRepetitions = 0.25;  ///< of the limit: repetitions begin in this time

/// Changes when a file is replaced, written to or removed.
std::string identity_of(const std::string& path) {
    struct stat file{};
    if (stat(path.c_str(), &file) != 0) return "none";
    return fmt::format("{} {} {} {}.{:09}", file.st_dev, file.st_ino, file.st_size,
                       file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
}

/// Whether this process, of the same user, gets so many threads at once.
bool has_threads(std::size_t count) {
    std::vector<std::thread> threads;
    std::atomic_flag is_over;
    try {
        for (std::size_t k = 0; k < count; ++k)
            threads.emplace_back([&] { is_over.wait(false); });
    } catch (const std::exception&) {  // no thread, or no memory for one
    }
    is_over.test_and_set();
    is_over.notify_all();
    for (std::thread& thread : threads) thread.join();
    return threads.size() == count;
}

class WorkerCandidate final : public Candidate {
public:
    explicit WorkerCandidate(const WorkerOptions& options) : options_(options) {
        if (options_.worker.empty()) options_.worker = find_worker();
        limit_s_ = options_.timeout_s;
        load_limit_s_ = options_.load_limit_s > 0
                            ? options_.load_limit_s
                            : std::max(load_limit_s_, options_.timeout_s);  // some are built when loaded
        start();
    }

    const CandidateInfo& info() const override { return info_; }

    CallResult run(const Call& call, const RunOptions& options) override {
        const Call* one[] = {&call};
        return run_placed(one, options, 1).front();
    }

    std::vector<CallResult> run_together(std::span<const Call* const> calls,
                                         int repetitions) override {
        return run_placed(calls, {}, repetitions);
    }

    void restart() override { process_.reset(); }

    std::string written_during(const std::function<void()>& calls) override {
        std::ostringstream text;
        process_.reset();
        std::ostream* const usual = std::exchange(options_.messages, &text);
        const auto stop = [&] {
            process_.reset();  // all that it wrote is read then
            options_.messages = usual;
        };
        try {
            calls();
        } catch (...) {
            stop();
            throw;
        }
        stop();
        return text.str();
    }

    void limit_time(std::chrono::duration<double> limit) override {
        limit_s_ =
            limit.count() > 0 ? std::min(limit.count(), options_.timeout_s) : options_.timeout_s;
    }

private:
    std::vector<CallResult> run_placed(std::span<const Call* const> calls,
                                       const RunOptions& options, int repetitions) {
        std::vector<CallResult> results = run_once(calls, options, repetitions);
        if (std::exchange(copy_crashed_, false)) {
            const std::string how = words_of_end(results.front());
            if (!is_trusted_end(how)) look_whether_copies_do(how, calls, options, repetitions);
        }
        return results;
    }

    /// A copy must not be to blame: a program that crashes in the same calls says that copies die as it does. Else all
    /// workers are programs from now on. What calls before these did is not done again, and the result stays what it was.
    void look_whether_copies_do(const std::string& how, std::span<const Call* const> calls, const RunOptions& options,
                                int repetitions) {
        std::ostream* const usual = std::exchange(options_.messages, nullptr);
        options_.can_fork = false;
        const auto restore = [&] {
            options_.messages = usual, options_.can_fork = true;
            process_.reset();
        };
        std::vector<CallResult> again;
        try {
            again = run_once(calls, options, repetitions);
        } catch (...) {
            restore();
            throw;
        }
        restore();
        if (again.front().kind == CallResult::Kind::crashed && words_of_end(again.front()) == how)
            trust_end(how);
        else
            distrust_fork_server();
    }

    /// "crashed: SIGSEGV", without the address.
    static std::string words_of_end(const CallResult& result) { return result.detail.substr(0, result.detail.find(" (")); }

    std::vector<CallResult> run_once(std::span<const Call* const> calls,
                                     const RunOptions& options, int repetitions) {
        if (options_.stopped()) throw Stopped();
        std::vector<CallResult> results(calls.size());
        if (!process_ && left_by_load_ == 0) start();
        if (left_by_load_ > 0) {
            for (CallResult& result : results) {
                result.kind = CallResult::Kind::left_processes;
                result.detail = left_text(left_by_load_) + " when it was loaded";
            }
            return results;
        }
        if (arena_->was_written_late(this)) {
            end_with(results.front(), CallResult::Kind::broke_rules,
                     "wrote to an output after the call had returned");
            std::ranges::fill(results, CallResult(results.front()));
            return results;
        }
        PlacedCalls placed({calls.begin(), calls.end()}, options, repetitions, arena_->bytes());
        const double limit_s = limit_s_ * options.patience;
        placed.number(++requests_);
        placed.stop_repeating_after(limit_s * kShareOfRepetitions);
        arena_mib_ = arena_->resident_mib();
        Reply reply{};
        // Calls at once may have one core to share, and each of them may take the limit.
        const double all_s =
            calls.size() > 1 ? limit_s * (static_cast<double>(calls.size()) + kShareOfRepetitions)
                             : limit_s;
        bool returned = false;
        const auto start = Clock::now();
        try {
            returned = exchange(placed.request(), all_s, options, reply, results.front());
        } catch (...) {  // its reply, if one comes yet, must not be taken for that of another call
            process_.reset();
            throw;
        }
        const std::chrono::duration<double> took = Clock::now() - start;
        if (returned) {
            if (reply.kind == Reply::not_run) {
                if (calls.size() == 1 || has_threads(calls.size())) {
                    note_broken(results, "takes the threads that calls at once need");
                    return results;
                }
                throw std::runtime_error(
                    "the system has no threads left for calls at once (see `ulimit -u`)");
            }
            const bool is_late = placed.output_hash() != reply.output_hash;
            for (std::size_t k = 0; k < calls.size(); ++k) {
                results[k].status = reply.status[k];
                results[k].seconds = reply.seconds >= 0 ? std::min(reply.seconds, took.count()) : 0;
                reply.message[k][kMessageBytes - 1] = '\0';
                results[k].detail = message_text(reply.message[k]);
                placed.collect(k, results[k]);
            }
            if (reply.has_children) note_left_processes(results);
            if (is_late) note_broken(results, "wrote to an output after the call had returned");
            if (const std::string left = text_of_changes(reply.changes); !left.empty())
                note_broken(results, "leaves " + left);
        } else {
            if (reply.kind == Reply::fault) describe_fault(reply, placed, results.front());
            for (std::size_t k = 1; k < calls.size(); ++k) results[k] = results.front();
        }
        arena_->give_back(placed.bytes_used(), arena_mib_);
        if (process_) arena_->watch(this, placed.beginnings_of_outputs());
        return results;
    }

    /// Sends a request and waits. False when the worker did not return; `result` then says what
    /// happened.
    bool exchange(const Request& request, double limit_s, const RunOptions& options, Reply& reply,
                  CallResult& result) {
        const std::int64_t limit_mib = options_.memory_mib + options.more_memory_mib;
        if (process_->has_unread()) {
            const bool is_whole = process_->receive(reinterpret_cast<char*>(&reply), sizeof reply) == sizeof reply;
            return is_whole && is_late_fault(reply, request) ? crashed_late(reply, result) : broke_protocol(result);
        }
        if (!process_->send(request)) return crashed(result);
        const auto start = Clock::now();
        const auto deadline = start + std::chrono::duration<double>(limit_s);
        std::size_t got = 0;
        while (got < sizeof reply) {
            const bool is_short = got == 0 && Clock::now() - start < std::chrono::milliseconds(5);
            const WorkerProcess::News news = process_->wait(is_short ? 5 : 20);
            if (news == WorkerProcess::News::ended) return crashed(result);
            if (news == WorkerProcess::News::silence && options_.stopped()) {
                process_.reset();
                throw Stopped();
            }
            if (news == WorkerProcess::News::bytes) {
                const std::size_t n =
                    process_->receive(reinterpret_cast<char*>(&reply) + got, sizeof reply - got);
                if (n == 0) {
                    reply.kind = Reply::returned;
                    return crashed(result);
                }
                got += n;
                if (Clock::now() < deadline) continue;  // one that comes byte by byte is late, too
            }
            if (Clock::now() >= next_look_)
                if (const auto excess = excess_over(options.more_memory_mib))
                    return end_with(result, excess->kind, excess->what);
            if (Clock::now() >= deadline)
                return end_with(result, CallResult::Kind::timed_out,
                                fmt::format("timed out after {:g} s", limit_s));
        }
        if (is_late_fault(reply, request)) return crashed_late(reply, result);
        if (reply.number != request.number || reply.kind > Reply::not_run)
            return broke_protocol(result);
        if (reply.kind == Reply::fault) return crashed_by(reply, result);
        // Calls that are over before anybody looks may leak. What the worker had at most, and what
        // the arena has more, are known after each of them; files and children are looked for now
        // and then.
        if (reply.peak_mib > limit_mib || arena_->resident_mib() > arena_mib_ ||
            Clock::now() >= next_look_)
            if (const auto excess = excess_over(options.more_memory_mib))
                return end_with(result, excess->kind, excess->what);
        return true;
    }

    /// Looking takes at most a twentieth of the time, unless there is much to look at: who starts
    /// thousands of threads would not be seen. A worker that is loaded is not held to what
    /// was written before.
    std::optional<Excess> excess_over(std::int64_t more_mib) {
        constexpr auto kLookEvery = std::chrono::milliseconds(20),
                       kLookAtLeastEvery = std::chrono::milliseconds(200);
        constexpr int kShareOfLooking = 20;
        const auto start = Clock::now();
        // Children are looked for by thread: of too many threads there is no end.
        const std::vector<pid_t> family =
            process_->threads() > kMostThreads ? process_->itself() : process_->family();
        const auto excess = excess_of({family, *arena_, arena_mib_, private_place(), written_before_},
                                      options_.memory_mib, more_mib);
        const auto end = Clock::now();
        next_look_ = end + std::clamp<Clock::duration>(kShareOfLooking * (end - start), kLookEvery,
                                                       kLookAtLeastEvery);
        return excess;
    }

    std::string private_place() const { return options_.sandbox ? options_.sandbox->folder() : ""; }

    /// The worker is gone, or lost its socket. Always false.
    bool crashed(CallResult& result) {
        result.kind = CallResult::Kind::crashed;
        result.detail = describe_end(process_->end(false), options_);
        copy_crashed_ = process_->is_copy();
        process_.reset();
        return false;
    }

    /// By the signal that the fault was: its handler may have met a closed connection. Always false.
    bool crashed_by(const Reply& fault, CallResult& result) {
        (void)crashed(result);
        if (fault.signal > 0 && fault.signal < NSIG) result.detail = "crashed: " + signal_name(fault.signal);
        return false;
    }

    /// A fault of an earlier call: a thread of the library that outlived it.
    static bool is_late_fault(const Reply& reply, const Request& request) {
        return reply.kind == Reply::fault && reply.number > 0 && reply.number < request.number;
    }
    bool crashed_late(Reply& fault, CallResult& result) {
        (void)crashed_by(fault, result);
        result.detail += fmt::format(" in a thread that outlived its call ({} of address {:#x})",
                                     fault.is_write ? "write" : "read", fault.address);
        fault.kind = Reply::returned;  // it is described
        return false;
    }

    bool broke_protocol(CallResult& result) {
        return end_with(result, CallResult::Kind::broke_rules,
                        "wrote to the suite's connection, which only its worker does");
    }

    /// A call returned, but what it left is no state that another call could begin in.
    void note_broken(std::vector<CallResult>& results, const std::string& how) {
        process_.reset();
        for (CallResult& result : results) {
            if (result.died()) continue;
            result.kind = CallResult::Kind::broke_rules;
            result.detail = how;
        }
    }

    /// The worker must go. Always false.
    bool end_with(CallResult& result, CallResult::Kind kind, std::string detail) {
        result.kind = kind;
        result.detail = std::move(detail);
        if (process_->is_copy()) distrust_fork_server();
        process_.reset();
        return false;
    }

    /// Helpers that end with the worker are left alone; others are a failure of the call.
    void note_left_processes(std::vector<CallResult>& results) {
        if (helpers_end_) return;
        const std::vector<pid_t> forked = process_->family();
        if (forked.size() <= 1) return;
        if (forked.size() > kMostProcesses + 1) {
            note_broken(results, fmt::format("started more than {} processes", kMostProcesses));
            return;
        }
        const int left = process_->count_left({forked.begin() + 1, forked.end()}, grace_ms_);
        process_.reset();
        helpers_end_ = left == 0;
        constexpr int kShortGrace = 20;  // it was seen to leave some: the search for a small case
        if (left > 0) grace_ms_ = kShortGrace;
        if (left == 0) return;
        for (CallResult& result : results) {
            result.kind = CallResult::Kind::left_processes;
            result.detail = left_text(left);
        }
    }

    void start() {
        const std::string identity = identity_of(options_.library);
        if (!identity_.empty() && identity != identity_)
            throw LoadError(
                fmt::format("{}: the library changed while the run went on", options_.library));
        identity_ = identity;
        load();
        if (helpers_end_) return;
        const std::vector<pid_t> family = process_->family();
        if (family.size() <= 1) return;
        left_by_load_ = process_->count_left({family.begin() + 1, family.end()}, grace_ms_);
        process_.reset();
        helpers_end_ = left_by_load_ == 0;
        if (helpers_end_) load();
    }

    void load() {
        // Loading does not count towards the time limit of a call. What was loaded once takes about
        // as long again.
        constexpr double kLeastLimit = 5, kSlower = 3;
        const auto start = Clock::now();
        arena_mib_ = arena_->resident_mib();
        if (options_.sandbox) written_before_ = written_files(private_place(), {}, 2 * kMostFiles);
        process_.emplace(options_, arena_->descriptor());
        const auto reason_to_stop = [&] {
            const auto excess = excess_over(0);
            return excess ? excess->what : std::string();
        };
        try {
            info_ = read_hello(*process_, options_, load_limit_s_, reason_to_stop);
            if (const std::string why = reason_to_stop(); !why.empty())
                throw LoadError(
                    fmt::format("{}: {} while it was loaded", options_.library, why));
        } catch (const Stopped&) {
            process_.reset();
            throw;
        } catch (...) {
            const bool was_copy = process_->is_copy();
            process_.reset();
            if (!was_copy) throw;
            distrust_fork_server();
            return load();
        }
        note_loaded();
        written_before_ = {};
        if (process_->is_copy()) return;
        const std::chrono::duration<double> took = Clock::now() - start;
        load_limit_s_ = std::min(load_limit_s_, std::max(kLeastLimit, kSlower * took.count()));
    }

    WorkerOptions options_;
    std::shared_ptr<Arena> arena_ = Arena::shared();
    CandidateInfo info_;
    std::optional<WorkerProcess> process_;
    std::uint64_t requests_ = 0;
    double limit_s_ = 10;
    double load_limit_s_ = 60;
    Clock::time_point next_look_{};  ///< when memory is measured at the latest
    std::int64_t arena_mib_ = 0;     ///< of the arena's pages, before the call
    WrittenFiles written_before_;    ///< the worker was loaded; then nothing
    bool copy_crashed_ = false;      ///< in the last calls, and nobody has looked yet whether a program does, too
    bool helpers_end_ = false;       ///< what it forks was seen to end with the worker
    int grace_ms_ = 1000;            ///< in which helpers end after the worker
    int left_by_load_ = 0;           ///< processes that do not end with it, whatever is called
    std::string identity_;           ///< of the library that was loaded first
};

}  // namespace

bool CandidateInfo::implements(std::string_view op) const {
    return std::find(operators.begin(), operators.end(), op) != operators.end();
}

std::unique_ptr<Candidate> open_worker_candidate(const WorkerOptions& options) {
    return std::make_unique<WorkerCandidate>(options);
}

}  // namespace attncheck::properties
