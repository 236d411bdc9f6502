#include "properties/candidate/guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "properties/candidate/private_folder.h"
#include "properties/candidate/process_family.h"

namespace attncheck::properties {
namespace {

/// Without anything that somebody waits for the end of: descriptors, terminal, signals.
void withdraw(int kept) {
    setsid();
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) signal(number, SIG_IGN);
    const int null = open("/dev/null", O_RDWR);
    for (int standard = 0; standard <= 2; ++standard) dup2(null, standard);
    constexpr int kMostDescriptors = 1024;
    for (int fd = 3; fd < kMostDescriptors; ++fd)
        if (fd != kept) close(fd);
}

}  // namespace

void start_guardian() {
    static bool started = false;
    if (started) return;
    started = true;
    (void)mark_of_run();  // of this process, for the guardian too
    const int suite = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
    if (suite < 0) return;
    const pid_t pid = fork();
    if (pid == 0) {
        withdraw(suite);
        pollfd waiting{suite, POLLIN, 0};
        int ready = 0;
        do
            ready = poll(&waiting, 1, -1);
        while (ready < 0 && errno == EINTR);
        if (ready < 0) _exit(1);  // the system cannot say when the suite ends
        constexpr int kMostRounds = 100;  // something may fork faster than it is ended
        for (int k = 0; k < kMostRounds && end_marked() > 0; ++k) {
        }
        remove_folder(private_folder_if_made());
        _exit(0);
    }
    close(suite);
}

}  // namespace attncheck::properties
