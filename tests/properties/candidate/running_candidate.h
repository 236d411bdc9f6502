// Candidates behind a worker, and the arguments of a small call whose exact result is known.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/properties/case/case_line.h"
#include "properties/candidate/worker_candidate.h"

namespace attncheck::properties {

inline WorkerOptions options_for(const std::string& name, double timeout_s = 10) {
    WorkerOptions options;
    options.library = std::string(CANDIDATE_DIR) + "/" + name + ".so";
    options.worker = WORKER_PATH;
    options.timeout_s = timeout_s;
    return options;
}

inline std::unique_ptr<Candidate> opened(const std::string& name, double timeout_s = 10) {
    return open_worker_candidate(options_for(name, timeout_s));
}

/// What a library that cannot be used is refused with.
inline std::string load_error(const WorkerOptions& options) {
    try {
        return "loaded: " + open_worker_candidate(options)->info().name;
    } catch (const LoadError& e) {
        return e.what();
    }
}

/// Sets an environment variable for a scope in which nothing else runs.
class WithVariable {
public:
    WithVariable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
    ~WithVariable() { unsetenv(name_); }

private:
    const char* name_;
};

/// Two blocks of ones: every output element is 16.
inline Call call_of_ones() {
    return forward().build(
        spec_of("nsa_compress{dtype=fp16 seq=[32] heads=2 dim=16 block=16 stride=16 data=ones "
                "seed=0}"));
}

inline std::vector<double> output_of(const Call& call, const CallResult& result) {
    std::vector<double> values;
    for (const auto bits : result.outputs.at(2))
        values.push_back(ref::decode(call.tensor("output").type(), bits));
    return values;
}

}  // namespace attncheck::properties
