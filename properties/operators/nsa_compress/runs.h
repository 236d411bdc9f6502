// What relations between runs of NsaCompress and its gradient share.
#pragma once

#include "properties/laws/relation_checks.h"
#include "properties/operators/nsa_compress/case.h"

namespace attncheck::properties {

/// Runs a problem; trouble is set when it did not return 0.
struct CompressRun {
    Call call;
    CallResult result;
    std::optional<Verdict> trouble;
    CompressRun(const CompressProblem& problem, PropertyContext& context)
        : call(problem.call()),
          result(context.candidate.run(call, {})),
          trouble(verdict_unless_ok(result)) {}
    const std::vector<std::uint32_t>& bits(std::string_view name) const {
        return result.outputs[tensor_index(call, name)];
    }
    std::vector<double> values(std::string_view name) const {
        return decode_all(call.tensor(name).type(), bits(name));
    }
    /// Of element k of an output, the words of the case.
    PlaceOf place(const Spec& spec, const std::string& name) const {
        return [this, &spec, name](std::size_t k) { return place_of(spec, call, name, k); };
    }
};

/// What an output may be in any order of sums; empty where the order is promised. Refers to the
/// problem.
inline OpenOrder open_order(const CompressProblem& problem, const PropertyContext& context,
                            const std::string& name) {
    if (!context.rounding.any_order) return {};
    return [&problem, &context, name] {
        return tensor_of(problem.expected(context.rounding), name);
    };
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
