#include "properties/search/clock.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <chrono>

namespace attncheck::properties {
namespace {

volatile sig_atomic_t g_interrupted = 0;

class SystemClock final : public Clock {
public:
    double now() const override {
        return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }
    bool interrupted() const override { return g_interrupted != 0; }
};

}  // namespace

const Clock& system_clock() {
    static const SystemClock clock;
    return clock;
}

void catch_interrupts() {
    struct sigaction action{};
    // A second Ctrl-C ends the program at once. What comes within a second is the same one: some
    // senders signal the process and then its whole group.
    action.sa_handler = [](int) {
        static volatile time_t first = 0;
        timespec now{};
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (g_interrupted && now.tv_sec - first > 1) _exit(130);
        if (!g_interrupted) first = now.tv_sec;
        g_interrupted = 1;
    };
    action.sa_flags = SA_RESTART;
    for (const int number : {SIGINT, SIGTERM, SIGQUIT, SIGXCPU})
        sigaction(number, &action, nullptr);
    struct sigaction before{};
    sigaction(SIGHUP, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

}  // namespace attncheck::properties
