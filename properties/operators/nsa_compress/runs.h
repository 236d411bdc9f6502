// Code that several relations between runs of NsaCompress and its gradient share.
#pragma once

#include "properties/laws/law_run.h"
#include "properties/operators/nsa_compress/case.h"

namespace attncheck::properties {

struct CompressRun : LawRun {
    const Spec& spec;
    const CompressProblem& problem;
    Call call;
    CallResult result;

    CompressRun(const Spec& of, const CompressProblem& problem_of_run, PropertyContext& context)
        : spec(of), problem(problem_of_run), call(problem.call()) {
        result = context.candidate.run(call, {});
        trouble = verdict_unless_ok(result);
    }
    const std::vector<std::uint32_t>& bits(std::string_view output) const override {
        return result.outputs[tensor_index(call, output)];
    }
    ref::Dtype type(std::string_view output) const override { return call.tensor(output).type(); }
    ExpectedOutputs expected(const ref::RoundingClass& rounding, ref::Grant) const override {
        return problem.expected(rounding);
    }
    PlaceOf place(const std::string& output) const override {
        return [this, output](std::size_t k) { return place_of(spec, call, output, k); };
    }
};

/// Elements of the weight's gradient are numbered [window position, head]; the other outputs have
/// channels as well.
inline bool is_weight_grad(const CompressProblem& problem, const std::string& output) {
    const Description& of = compress_description(problem.gradient);
    return of.tensors[static_cast<std::size_t>(of.tensor(output))].role == Role::weight_grad;
}

inline std::vector<std::string> output_names(bool gradient) {
    if (gradient) return {"input_grad", "weight_grad"};
    return {"output"};
}

/// "input", as relations name an argument.
inline const char* name_of(CompressArgument argument) {
    constexpr const char* kNames[] = {"input", "weight", "output_grad"};
    return kNames[argument];
}

}  // namespace attncheck::properties
