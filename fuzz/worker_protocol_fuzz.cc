// Does the suite bear whatever a worker says? Any bytes on the connection are a library that cannot be loaded, or a result
// of a call: with outputs of the right size, with texts that a terminal can print, within the time limit, and with no
// process left. A trap means one of these fails.
//
// The bytes are a script of fuzz/scripted_worker.cc.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "properties/candidate/worker_candidate.h"
#include "properties/case/printable.h"
#include "properties/operators/catalogue.h"

using namespace attncheck::properties;

namespace {

constexpr const char* kCase =
    "nsa_compress{dtype=fp16 seq=[32] heads=2 dim=16 block=16 stride=16 data=ones seed=0}";

void require(bool holds, const char* law, const std::string& text) {
    if (holds) return;
    std::fprintf(stderr, "%s: '%s'\n", law, text.c_str());
    __builtin_trap();
}

void require_printable(const char* what, const std::string& text) {
    require(printable(text) == text, what, text);
}

void check(const Call& call, const CallResult& result) {
    require_printable("a detail cannot be printed", result.detail);
    require_printable("a place cannot be printed", result.where);
    if (result.kind != CallResult::Kind::returned) return;
    require(result.outputs.size() == call.tensors.size(), "a result lacks tensors", result.detail);
    for (std::size_t k = 0; k < call.tensors.size(); ++k)
        if (call.tensors[k].output)
            require(result.outputs[k].size() == call.tensors[k].elements(),
                    "an output has another size", call.tensors[k].name);
}

void run(const WorkerOptions& options) {
    static const Call call = find_operator("nsa_compress")->build(parse(kCase, schemas()));
    const auto candidate = open_worker_candidate(options);
    const CandidateInfo& info = candidate->info();
    for (const std::string& text : {info.name, info.precision, info.features})
        require_printable("a word about the library cannot be printed", text);
    for (int k = 0; k < 4; ++k) check(call, candidate->run(call, {}));
    const Call* const two[] = {&call, &call};
    for (const CallResult& result : candidate->run_together(two, 2)) check(call, result);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const std::string script =
        (std::filesystem::temp_directory_path() / ("attncheck-script-" + std::to_string(getpid())))
            .string();
    std::ofstream(script, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    WorkerOptions options;
    options.library = script;
    options.worker = SCRIPTED_WORKER_PATH;
    options.timeout_s = 0.2;
    const auto start = std::chrono::steady_clock::now();
    try {
        run(options);
    } catch (const LoadError& e) {
        require_printable("why it cannot be loaded cannot be printed", e.what());
    } catch (const std::runtime_error&) {
        // The system has no threads, as the worker says.
    }
    std::filesystem::remove(script);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    constexpr double kMostSeconds = 30;
    require(took.count() < kMostSeconds, "a run takes too long", std::to_string(took.count()));
    require(waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD, "a process is left", "");
    return 0;
}
