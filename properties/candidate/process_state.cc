#include "properties/candidate/process_state.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstring>

#include "properties/candidate/content_hash.h"
#include "properties/candidate/protocol.h"

namespace attncheck::properties {
namespace {

constexpr __itimer_which kClocks[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};

// Intel SDM vol. 1, 10.2.3; Arm ARM, FPCR.
#if defined(__x86_64__)
constexpr std::uint32_t kPastOperations = 0x3f, kFlushes = 0x8040;
std::uint32_t float_control() { return __builtin_ia32_stmxcsr() & ~kPastOperations; }
#elif defined(__aarch64__)
constexpr std::uint32_t kFlushes = 1u << 24;
std::uint32_t float_control() {
    std::uint64_t control = 0;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return static_cast<std::uint32_t>(control);
}
#else
constexpr std::uint32_t kFlushes = 0;
std::uint32_t float_control() { return 0; }
#endif

bool is_armed(const itimerval& timer) {
    return timer.it_value.tv_sec != 0 || timer.it_value.tv_usec != 0 ||
           timer.it_interval.tv_sec != 0 || timer.it_interval.tv_usec != 0;
}

/// A signal that is blocked now and was not, or the reverse.
bool is_same_mask(const sigset_t& a, const sigset_t& b) {
    for (int number = 1; number < NSIG; ++number)
        if (sigismember(&a, number) != sigismember(&b, number)) return false;
    return true;
}

}  // namespace

ProcessState ProcessState::now() {
    ProcessState state;
    state.float_control = properties::float_control();
    sigprocmask(SIG_SETMASK, nullptr, &state.blocked);
    for (std::size_t k = 0; k < 3; ++k) getitimer(kClocks[k], &state.timers[k]);
    struct stat here{};
    if (stat(".", &here) == 0) {
        state.folder_device = here.st_dev;
        state.folder = here.st_ino;
    }
    const char* const locale = std::setlocale(LC_ALL, nullptr);
    state.locale = locale ? locale : "";
    for (char** one = environ; one && *one; ++one)
        state.variables.push_back(hash_of(*one, std::strlen(*one), 0));
    return state;
}

std::uint32_t changes_between(const ProcessState& before, const ProcessState& after) {
    std::uint32_t changes = 0;
    const std::uint32_t differs = before.float_control ^ after.float_control;
    if ((differs & kFlushes) != 0) changes |= kChangedFlushing;
    if ((differs & ~kFlushes) != 0) changes |= kChangedRounding;
    if (!is_same_mask(before.blocked, after.blocked)) changes |= kChangedMask;
    for (std::size_t k = 0; k < 3; ++k)
        if (is_armed(after.timers[k]) && !is_armed(before.timers[k])) changes |= kChangedTimer;
    if (before.folder != after.folder || before.folder_device != after.folder_device)
        changes |= kChangedFolder;
    if (before.locale != after.locale) changes |= kChangedLocale;
    // New ones are how libraries talk to each other.
    if (before.variables != after.variables &&
        std::ranges::any_of(before.variables, [&](std::uint64_t one) {
            return std::ranges::find(after.variables, one) == after.variables.end();
        }))
        changes |= kChangedVariable;
    return changes;
}

}  // namespace attncheck::properties
