// Answers the suite in place of the worker, from a constructor: no guard page, no limit of a call and no look at the process
// is between it and the suite.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <limits>
#include <string>

#include "properties/candidate/content_hash.h"
#include "properties/candidate/protocol.h"
#include "tests/hostile/hostile.h"

using namespace attncheck::properties;

namespace {

int socket_of_the_suite() {
    struct stat file{};
    for (int fd = 3; fd < 64; ++fd)
        if (fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode)) return fd;
    return -1;
}

std::uint64_t hash_of_outputs(const Request& request) {
    const auto* table = reinterpret_cast<const std::uint64_t*>(request.outputs);
    std::uint64_t hash = 0;
    for (std::uint32_t i = 0; i < request.output_count; ++i)
        hash = hash_of(reinterpret_cast<const void*>(table[2 * i]), table[2 * i + 1], hash);
    return hash;
}

__attribute__((constructor)) void take_over() {
    const int socket = socket_of_the_suite();
    const std::string text = "ok\ntakes over\n\n\nnsa_compress\n";
    const Hello hello{kHelloMagic, static_cast<std::uint32_t>(text.size())};
    (void)!write(socket, &hello, sizeof hello);
    (void)!write(socket, text.data(), text.size());
    Request request{};
    while (recv(socket, &request, sizeof request, MSG_WAITALL) == sizeof request) {
        Reply reply{};
        reply.number = request.number;
        for (std::uint32_t k = 0; k < request.calls; ++k) {
            const auto* args = reinterpret_cast<const attncheck_nsa_compress_args*>(request.arguments[k]);
            if (!is_trick("claims_success")) correct_forward(args);
            if (is_trick("writes_past_the_end")) *end_of(&args->output) = 1;
        }
        reply.output_hash = hash_of_outputs(request);
        if (is_trick("forges_the_number")) reply.number += 1;
        if (is_trick("forges_the_time")) reply.seconds = std::numeric_limits<double>::infinity();
        if (is_trick("claims_no_threads")) reply.kind = Reply::not_run;
        if (is_trick("forges_a_report")) {
            reply.status[0] = 7;
            std::snprintf(reply.message[0], kMessageBytes,
                          "\x1b[2J\xe2\x80\xae\n\n</script><testcase name=\"forged\"/>\nevery property held\n");
        }
        if (is_trick("dribbles"))
            for (std::size_t k = 0; k < sizeof reply; ++k) {
                (void)!write(socket, reinterpret_cast<const char*>(&reply) + k, 1);
                usleep(10'000);
            }
        if (is_trick("answers_twice")) (void)!write(socket, &reply, sizeof reply);
        (void)!write(socket, &reply, sizeof reply);
    }
    _exit(0);
}

}  // namespace
