// Tolerance rules that other projects test attention kernels with, to see what they would have
// caught on the same cases (verification.md 2.1, 2.2, 2.6, 2.7, 2.9). None of them decides a
// verdict of its own accord: `attncheck verify --rule` asks for one in place of the error bounds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "properties/judge/verdict.h"
#include "properties/judge/half_composition.h"

namespace attncheck::properties {

/// Elements of one output as a rule sees them.
struct RuledTensor {
    ref::Dtype dtype;
    bool gradient = false;
    double terms = 1;              ///< keys of the longest sequence, or rows of a compressed block
    double largest_value = 0;      ///< of the value (or input) tensor, for sums of p |v|
    double composition_error = 0;  ///< largest error of a half-precision composition, if asked for
    const std::vector<double>& exact;
    const std::vector<double>& got;
};

struct ToleranceRule {
    std::string name, summary;
    std::function<bool(const RuledTensor&)> accepts;
    bool by_composition = false;  ///< reads composition_error
};

/// torch, ggml, cudnn, benchdnn, fa2, kernelbench, flashinfer_bench.
std::vector<std::string> rule_names();
const ToleranceRule* find_rule(const std::string& name);

/// What the rule says of a call's outputs. It judges attention outputs and gradients; softmax
/// statistics and lists of blocks, which these projects do not compare, are left out. A number that
/// is not finite has to be so in both. Only ordinary data is judged, the kind that the
/// rules were made for: normally distributed, in a half type, logits of a moderate spread. On
/// harder data each of them rejects correct kernels.
Verdict verdict_by_rule(const ToleranceRule& rule, const Spec& spec, const Call& call,
                        const CallResult& result, const ExpectedOutputs& expected,
                        const std::function<CompositionErrors()>& composition_errors);

}  // namespace attncheck::properties
