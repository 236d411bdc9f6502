// The worker's side of the protocol, whoever the candidate is: a library that was loaded
// (worker_main.cc) or functions of another language (worker_library.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "properties/candidate/protocol.h"

namespace attncheck::properties {

/// One entry point: the address of its arguments to its status. A text for people, kMessageBytes
/// with its NUL, may say why the status is not 0.
using ServedEntry = std::function<int(const void* arguments, char* message)>;

/// What a candidate says about itself, and its entry points by name.
struct ServedCandidate {
    std::string name, precision, features;  ///< features: a line for each operator
    std::vector<std::string> entries;       ///< without the prefix "attncheck_"
    std::function<ServedEntry(const char* entry)> entry;
};

/// Takes the socket and maps the arena, before anything of the candidate is loaded. False when the
/// arena's place is taken; the suite was told.
bool open_worker(int socket, int arena);

/// Tells the suite why the candidate cannot be used: one line.
void refuse(const std::string& why);

/// Announces the candidate and runs the calls that the suite asks for until it closes the socket.
/// Faults are reported with their address, then they end the process.
void serve(const ServedCandidate& candidate);

}  // namespace attncheck::properties
