#include "properties/candidate/worker_library.h"

#include <sstream>
#include <string>

#include "properties/candidate/worker_service.h"

namespace {
using namespace attncheck::properties;
}

int attncheck_worker_open(int socket, int arena) { return open_worker(socket, arena) ? 0 : -1; }

void attncheck_worker_refuse(const char* why) { refuse(why); }

int attncheck_worker_serve(const char* name, const char* precision, const char* features,
                           const char* entries, attncheck_worker_call call) {
    ServedCandidate candidate{name, precision, features, {}, {}};
    std::istringstream words(entries);
    for (std::string entry; words >> entry;) candidate.entries.push_back(entry);
    candidate.entry = [call](const char* entry) -> ServedEntry {
        return [call, named = std::string(entry)](const void* arguments, char* message) {
            return call(named.c_str(), arguments, message, kMessageBytes);
        };
    };
    serve(candidate);
    return kConnectionLost;
}
