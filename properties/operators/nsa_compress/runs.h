// Code that several relations between runs of NsaCompress and its gradient share.
#pragma once

#include "properties/laws/law_run.h"
#include "properties/operators/nsa_compress/case.h"

namespace attncheck::properties {

struct CompressRun : CallRun {
    const CompressProblem& problem;

    CompressRun(const Spec& of, const CompressProblem& problem_of_run, PropertyContext& context)
        : CallRun(of, problem_of_run.call(), context,
                  [this](const ref::RoundingClass& rounding) { return problem.expected(rounding); }),
          problem(problem_of_run) {}
    CompressRun(const CompressRun&) = delete;
};

/// Elements of the weight's gradient are numbered [window position, head]; the other outputs have
/// channels as well.
inline bool is_weight_grad(const CompressProblem& problem, const std::string& output) {
    const Description& of = compress_description(problem.gradient);
    return of.tensors[static_cast<std::size_t>(of.tensor(output))].role == Role::weight_grad;
}

/// "input", as relations name an argument.
inline const char* name_of(CompressArgument argument) {
    constexpr const char* kNames[] = {"input", "weight", "output_grad"};
    return kNames[argument];
}

}  // namespace attncheck::properties
