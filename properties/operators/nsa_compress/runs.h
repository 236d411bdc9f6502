// What relations between runs of NsaCompress and its gradient share: a run of changed parts and
// what is known of its outputs.
#pragma once

#include <algorithm>

#include "properties/operators/nsa_compress/case.h"
#include "properties/laws/relation_checks.h"

namespace attncheck::properties {

inline const std::vector<std::uint32_t>& output(const Call& call, const CallResult& result,
                                                std::string_view name) {
    return result.outputs[tensor_index(call, name)];
}

/// True if a result may leave the range of its type: relations between finite numbers say nothing
/// there.
inline bool may_overflow(const ExpectedOutputs& expected) {
    return std::any_of(expected.begin(), expected.end(), [](const auto& output) {
        const auto& flags = output.second.overflow;
        return std::any_of(flags.begin(), flags.end(),
                           [](ref::Overflow o) { return o != ref::Overflow::none; });
    });
}

inline std::vector<const char*> output_names(bool gradient) {
    return gradient ? std::vector<const char*>{"input_grad", "weight_grad"}
                    : std::vector<const char*>{"output"};
}

/// Runs a changed call; the verdict is set when it did not return 0.
struct CompressRun {
    Call call;
    CallResult result;
    std::optional<Verdict> trouble;
    CompressRun(const CompressParts& parts, PropertyContext& context)
        : call(make_compress_call(parts)),
          result(context.candidate.run(call, {})),
          trouble(verdict_unless_ok(result)) {}
    std::vector<double> values(std::string_view name) const {
        return decode_all(call.tensor(name).type(), output(call, result, name));
    }
};

/// Relations that follow from the operator being linear in every argument.
void add_compress_linear_relations(std::vector<Property>& list, bool gradient);

}  // namespace attncheck::properties
