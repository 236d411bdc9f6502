// A worker that says what a script says: SOCKET ARENA SCRIPT, as attncheck-worker is started. Not under test itself.
//
// The script is a sequence of pieces: a byte of flags, two bytes of length, and as many bytes. The first piece is sent at
// once, each further one when a request has come. Flags: 1: the number of the request goes over the first eight bytes;
// 2: the piece is a reply of which these bytes are the beginning; 4: the socket is closed behind it, the process stays a second.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "properties/candidate/protocol.h"

using attncheck::properties::Reply;
using attncheck::properties::Request;

int main(int argc, char** argv) {
    if (argc < 4) return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int socket = std::atoi(argv[1]);
    // A load may take a minute, and the suite would wait for the rest of what it was promised.
    const timeval patience{0, 300'000};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    std::ifstream in(argv[3], std::ios::binary);
    const std::string script{std::istreambuf_iterator<char>(in), {}};
    Request request{};
    for (std::size_t at = 0; at + 3 <= script.size();) {
        const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(script[at + k]); };
        const unsigned flags = byte(0), length = byte(1) + 256u * byte(2);
        std::string piece = script.substr(at + 3, length);
        at += 3 + piece.size();
        if ((flags & 2) != 0) piece.resize(sizeof(Reply), '\0');
        if ((flags & 1) != 0 && piece.size() >= sizeof request.number)
            std::memcpy(piece.data(), &request.number, sizeof request.number);
        for (std::size_t sent = 0; sent < piece.size();) {
            const ssize_t n = send(socket, piece.data() + sent, piece.size() - sent, MSG_NOSIGNAL);
            if (n <= 0) return 1;
            sent += static_cast<std::size_t>(n);
        }
        if ((flags & 4) != 0) {
            close(socket);
            sleep(1);
        }
        if (at + 3 > script.size()) break;
        if (recv(socket, &request, sizeof request, MSG_WAITALL) != sizeof request) return 1;
    }
    return 0;
}
