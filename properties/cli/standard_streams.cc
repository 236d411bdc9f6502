#include "properties/cli/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "properties/cli/command.h"

namespace attncheck::properties {

void prepare_standard_streams() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
        if (fcntl(fd, F_GETFD) < 0) (void)!::open("/dev/null", O_RDWR);  // the lowest that is free
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

int flush_standard_output(int status) {
    std::cout.flush();
    const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout;
    pollfd reader{STDOUT_FILENO, POLLOUT, 0};
    const bool was_closed = poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR) != 0;
    if (written || was_closed) return status;
    std::cerr << "attncheck: cannot write standard output\n";
    return status == 0 ? kUsage : status;
}

}  // namespace attncheck::properties
