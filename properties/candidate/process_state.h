// State of the process that a call must not change; memory is checked elsewhere.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace attncheck::properties {

/// Of the calling thread and its process.
struct ProcessState {
    std::uint32_t float_control = 0;  ///< of the processor, without the flags of past operations
    std::uint16_t x87_control = 0;    ///< precision, rounding and exceptions of `long double`
    bool is_x87_in_use = false;       ///< a register of its stack; MMX takes all of them
    sigset_t blocked{};
    itimerval timers[3]{};  ///< of the three clocks that send signals
    std::size_t posix_timers = 0;  ///< of timer_create, armed or not
    rlimit limits[RLIM_NLIMITS]{};
    dev_t folder_device = 0;
    ino_t folder = 0;
    std::string locale;
    std::vector<std::uint64_t> variables;  ///< hashes of the environment

    static ProcessState now();
};

/// Bits of protocol.h's Change.
std::uint32_t changes_between(const ProcessState& before, const ProcessState& after);

}  // namespace attncheck::properties
