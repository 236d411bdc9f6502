// Code that several relations between runs of NsaCompress and its gradient share.
#pragma once

#include "properties/laws/relation_checks.h"
#include "properties/operators/nsa_compress/case.h"

namespace attncheck::properties {

struct CompressRun : CallRun {
    CompressRun(const CompressProblem& problem, PropertyContext& context)
        : CallRun(problem.call(), context) {}
    /// Of element k of an output, the words of the case.
    PlaceOf place(const Spec& spec, const std::string& name) const {
        return [this, &spec, name](std::size_t k) { return place_of(spec, call, name, k); };
    }
};

/// The bounds of an output in any order of sums; empty where the order is promised. Refers to the
/// problem.
inline OpenOrder open_order(const CompressProblem& problem, const PropertyContext& context,
                            const std::string& name) {
    if (!context.rounding.any_order) return {};
    return [&problem, &context, name] {
        return tensor_of(problem.expected(context.rounding), name);
    };
}

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
