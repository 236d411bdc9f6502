// The boundary to an implementation under test: what it says about itself and what one call of it
// came to.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "properties/case/call.h"

namespace attncheck::properties {

/// The library cannot be used at all (missing, wrong architecture, symbols or ABI version). One
/// line for people.
class LoadError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// The run ends: a call was given up, which says nothing about the candidate.
class Stopped : public std::runtime_error {
public:
    Stopped() : std::runtime_error("the run was stopped") {}
};

/// The buffers of a call need more address space than the system grants: nothing was called.
class NoRoom : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct CandidateInfo {
    std::string name, path;
    std::string precision;               ///< as the library declares it; empty when it does not
    std::string features;                ///< as the library declares them, ';' between lines
    std::vector<std::string> operators;  ///< those it exports
    bool implements(std::string_view op) const;
};

/// Where a buffer lies: ending at an inaccessible page, beginning at one, or one element behind that, so that no address is
/// aligned to more than an element.
enum class Placement { ends_at_guard, begins_at_guard, off_alignment };

/// Outputs are filled with a pattern before the call: 0xFF.. in one run, 0x5A.. in the other.
enum class Poison : std::uint8_t { ones = 0xFF, mixed = 0x5A };

struct CallResult {
    enum class Kind {
        returned,
        crashed,
        out_of_bounds,
        wrote_input,  ///< while its pages were locked
        timed_out,
        out_of_memory,
        left_processes,
        broke_rules  ///< of its process or of its connection with the suite, as `detail` says
    } kind = Kind::returned;
    int status = 0;      ///< return value, when returned
    std::string detail;  ///< "SIGSEGV reading address 0x0", "timed out after 10 s", ...; when
                         ///< returned: what the candidate says to its status, mostly nothing
    std::string where;   ///< tensor concerned, for out_of_bounds and wrote_input
    std::vector<std::vector<std::uint32_t>>
        outputs;  ///< per tensor of the call; empty for inputs; row-major bits
    struct Damage {
        std::string tensor, what;
    };
    std::vector<Damage> damage;  ///< memory changed that is no output element
    double seconds = 0;

    bool ok() const { return kind == Kind::returned && status == 0; }
    bool died() const { return kind != Kind::returned; }
    bool declined() const { return kind == Kind::returned && status == ATTNCHECK_DECLINED; }
};

struct RunOptions {
    Placement placement = Placement::ends_at_guard;
    Poison poison = Poison::ones;
    double patience = 1;  ///< the time limit times this, for calls that have much to do
    std::int64_t more_memory_mib = 0;  ///< beyond the configured limit
    bool locks_inputs = false;  ///< their pages cannot be written while the call runs
};

class Candidate {
public:
    virtual ~Candidate() = default;
    virtual const CandidateInfo& info() const = 0;

    /// The name of whose implementation of an operator this candidate runs.
    virtual std::string implementation_of(const std::string& op) const {
        (void)op;
        return info().name;
    }

    /// One call of the entry point of call.op. Throws Stopped.
    virtual CallResult run(const Call& call, const RunOptions& options) = 0;

    /// All calls at once, each on a thread of its own and repeated there; results of the last
    /// repetition.
    virtual std::vector<CallResult> run_together(std::span<const Call* const> calls,
                                                 int repetitions) = 0;

    /// Forgets everything earlier calls left behind: the next call runs in a fresh process.
    virtual void restart() = 0;

    /// What the library writes on standard error while `calls` run, from a fresh process on; empty where nobody can tell.
    virtual std::string written_during(const std::function<void()>& calls) {
        calls();
        return {};
    }

    /// Shorter time limit for the hurry of shrinking; 0 restores the configured one.
    virtual void limit_time(std::chrono::duration<double> limit) = 0;
};

}  // namespace attncheck::properties
