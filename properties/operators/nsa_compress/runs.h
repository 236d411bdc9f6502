// Code that several relations between runs of NsaCompress and its gradient share.
#pragma once

#include "properties/laws/law_run.h"
#include "properties/operators/nsa_compress/case.h"

namespace attncheck::properties {

struct CompressRun : CallRun {
    const CompressProblem& problem;

    CompressRun(const Spec& of, const CompressProblem& problem_of_run, PropertyContext& context)
        : CallRun(of, problem_of_run.call(), context), problem(problem_of_run) {}
    std::vector<std::string> outputs() const override;
    ExpectedOutputs expected(const ref::RoundingClass& rounding, ref::Grant) const override {
        return problem.expected(rounding);
    }
};

/// Elements of the weight's gradient are numbered [window position, head]; the other outputs have
/// channels as well.
inline bool is_weight_grad(const CompressProblem& problem, const std::string& output) {
    const Description& of = compress_description(problem.gradient);
    return of.tensors[static_cast<std::size_t>(of.tensor(output))].role == Role::weight_grad;
}

inline std::vector<std::string> CompressRun::outputs() const {
    if (problem.gradient) return {"input_grad", "weight_grad"};
    return {"output"};
}

/// "input", as relations name an argument.
inline const char* name_of(CompressArgument argument) {
    constexpr const char* kNames[] = {"input", "weight", "output_grad"};
    return kNames[argument];
}

}  // namespace attncheck::properties
