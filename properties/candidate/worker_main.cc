// attncheck-worker: loads one candidate library and runs the calls it is told to, so that whatever
// the candidate does to its process stays there. Started by the suite (worker_candidate.cc) as:
// attncheck-worker SOCKET_FD ARENA_FD LIB [LIBS]
// LIBS is for a LIB that stands in front of other libraries.
#include <attncheck/candidate.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "properties/candidate/exported_entries.h"
#include "properties/candidate/worker_service.h"

namespace {

using namespace attncheck::properties;

using EntryPoint = int (*)(const void*);

/// Says why the library cannot be used. The exit status.
int refused(const std::string& why) {
    refuse(why);
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4 && argc != 5) {
        std::fprintf(stderr, "attncheck-worker is started by attncheck and is of no use alone\n");
        return 2;
    }
    if (!open_worker(std::atoi(argv[1]), std::atoi(argv[2]))) return 2;
    setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // a kernel that crashes has printed its lines
    const std::string path = argv[3];
    void* library = dlopen(argv[3], RTLD_NOW | RTLD_LOCAL);
    if (!library) return refused(dlerror());
    const auto symbol = [&](const std::string& name) { return dlsym(library, name.c_str()); };
    const auto implements =
        reinterpret_cast<int (*)(const char*)>(symbol(kAdapterImplements));
    if (argc == 5) {
        const auto open = reinterpret_cast<const char* (*)(const char*)>(symbol(kAdapterOpen));
        if (!open || !implements) return refused(path + " stands in front of no other libraries");
        if (const char* problem = open(argv[4])) return refused(problem);
    }
    const auto abi_version = reinterpret_cast<std::uint32_t (*)()>(symbol("attncheck_abi_version"));
    const auto text_of = [&](const char* name) {
        const auto text = reinterpret_cast<const char* (*)()>(symbol(name));
        const char* said = text ? text() : nullptr;
        return std::string(said ? said : "");
    };
    constexpr const char* kName = "attncheck_candidate_name";
    if (!abi_version || !symbol(kName))
        return refused(path + " does not export " +
                       (abi_version ? kName : "attncheck_abi_version"));
    if (abi_version() != ATTNCHECK_ABI_VERSION)
        return refused(path + " has ABI version " + std::to_string(abi_version()) + ", expected " +
                       std::to_string(ATTNCHECK_ABI_VERSION));
    ServedCandidate candidate;
    candidate.features = text_of("attncheck_features");
    for (const std::string& entry : exported_entries(library))
        if (!implements || implements(entry.c_str())) candidate.entries.push_back(entry);
    candidate.precision = text_of("attncheck_precision");
    candidate.name = text_of(kName);
    if (candidate.name.empty()) candidate.name = "(unnamed)";
    candidate.entry = [library](const char* name) -> ServedEntry {
        const auto entry = reinterpret_cast<EntryPoint>(entry_named(library, name));
        return [entry](const void* arguments, char*) { return entry(arguments); };
    };
    serve(candidate);
    _exit(kConnectionLost);  // the candidate's own destructors are not under test
}
