#include "properties/candidate/process_state.h"

#include <fcntl.h>
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

#if defined(__x86_64__)
/// What FNSTENV stores in 64-bit mode (Intel SDM vol. 1, figure 8-9): words of 32 bits, of which
/// the lower 16 count.
struct X87 {
    std::uint16_t control, reserved0, status, reserved1, tags, reserved2;
    std::uint32_t rest[4];
};

X87 x87() {
    X87 now;
    asm volatile("fnstenv %0\n\tfldenv %0" : "=m"(now));  // the first masks all exceptions
    return now;
}
#endif

/// /proc/self/timers has a line "ID: n" for each (proc(5)); where the system has no such file, none.
std::size_t count_posix_timers() {
    const int file = open("/proc/self/timers", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    char text[4096];
    std::size_t timers = 0;
    for (ssize_t got = 0; (got = read(file, text, sizeof text)) > 0;)
        timers += static_cast<std::size_t>(std::count(text, text + got, 'I'));
    close(file);
    return timers;
}

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
#if defined(__x86_64__)
    constexpr std::uint16_t kAllEmpty = 0xffff;  // two bits for each register, 3: empty
    const X87 x87 = properties::x87();
    state.x87_control = x87.control;
    state.is_x87_in_use = x87.tags != kAllEmpty;
#endif
    sigprocmask(SIG_SETMASK, nullptr, &state.blocked);
    for (std::size_t k = 0; k < 3; ++k) getitimer(kClocks[k], &state.timers[k]);
    state.posix_timers = count_posix_timers();
    for (int which = 0; which < RLIM_NLIMITS; ++which)
        getrlimit(static_cast<__rlimit_resource>(which), &state.limits[which]);
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
    if ((differs & ~kFlushes) != 0 || before.x87_control != after.x87_control)
        changes |= kChangedRounding;
    if (after.is_x87_in_use && !before.is_x87_in_use) changes |= kChangedRegisters;
    if (!is_same_mask(before.blocked, after.blocked)) changes |= kChangedMask;
    for (std::size_t k = 0; k < 3; ++k)
        if (is_armed(after.timers[k]) && !is_armed(before.timers[k])) changes |= kChangedTimer;
    if (after.posix_timers > before.posix_timers) changes |= kChangedTimer;
    for (int which = 0; which < RLIM_NLIMITS; ++which)
        if (after.limits[which].rlim_cur < before.limits[which].rlim_cur ||
            after.limits[which].rlim_max < before.limits[which].rlim_max)
            changes |= kChangedLimit;
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
