// One run of the NSA module over a candidate's operators, with everything the operators passed on,
// and what is expected of it.
//
// The call of a run has the tensors of run_description().
#pragma once

#include <optional>

#include "properties/operators/nsa_module/case.h"
#include "properties/operators/nsa_module/operators.h"
#include "properties/laws/law_run.h"

namespace attncheck::properties::nsa_module {

/// The composition under test. Tests put broken ones in its place.
struct Composition {
    decltype(&attncheck_nsa_module) forward = attncheck_nsa_module;
    decltype(&attncheck_nsa_module_grad) backward = attncheck_nsa_module_grad;
};
Composition& composition();

enum class Direction { forward, both };

struct Run : CallRun {
    const Parts& parts;
    ref::NsaModuleObserved observed;
    std::vector<std::int64_t> topk;       ///< [T,N2,K]
    std::vector<OperatorRecord> records;  ///< none when there are no tokens

    /// early_verdict is also set where a list of blocks cannot be used.
    Run(const Parts& parts, PropertyContext& context,
        Direction direction = Direction::both);
    /// Lists and output of the forward.
    std::vector<std::string> outputs() const override;
    ExpectedOutputs expected(const ref::RoundingClass& rounding, ref::Grant) const override;
    bool is_list(const std::string& output) const override;
    /// Each right for its run.
    Verdict verdict_on_open_lists(const LawRun& other, const PropertyContext& context,
                                  const std::string& output, const std::string& relation,
                                  const OutputFilter& compared) const override;
    /// Number `occurrence` of the calls of an operator; null when there is none.
    const OperatorRecord* find(ModuleOp op, int occurrence = 0) const;

private:
    void gather();
};

/// The inputs of the reference; `values` has those of every input, by number.
template <class Scalar>
ref::NsaModuleInputs<Scalar> module_inputs(
    const Parts& parts, const std::array<std::vector<Scalar>, kInputs>& values) {
    const auto span = [&](int input) {
        return std::span<const Scalar>(values[static_cast<std::size_t>(input)]);
    };
    ref::NsaModuleInputs<Scalar> in;
    in.query = span(kQuery);
    for (int b = 0; b < ref::kModuleBranches; ++b) {
        in.key[static_cast<std::size_t>(b)] = span(parts.tied ? kKeyCompress : key_input(b));
        in.value[static_cast<std::size_t>(b)] = span(parts.tied ? kValueCompress : value_input(b));
    }
    in.key_weight = span(kKeyWeight);
    in.value_weight = span(kValueWeight);
    in.gate_logits = span(kGateLogits);
    return in;
}

/// What the case holds, as numbers for the reference.
struct Given {
    std::array<std::vector<double>, kInputs> values;  ///< tied: of all three branches
    ref::NsaModuleInputs<double> in;

    explicit Given(const Parts& parts);
    Given(const Given&) = delete;
    Given& operator=(const Given&) = delete;
};

/// The exact composition at the lists of a run.
struct Exact : Given {
    ref::NsaModuleForward<double> forward;
    ref::NsaModuleGrad grad;

    Exact(const Parts& parts, const Run& run);
};

/// Bounds of the operators on what they were passed.
ref::ExpectedModuleStages expected_stages(const Parts& parts, const Run& run, const Given& given,
                                          const ref::RoundingClass& rounding,
                                          ref::Grant grant = ref::Grant::rounding,
                                          ref::ModuleStages wanted = ref::ModuleStages::all);
ExpectedOutputs of_operators(const ref::ExpectedModuleStages& stages);

/// And of the whole, by them.
ExpectedOutputs of_module(const Parts& parts, const Run& run, const Exact& exact,
                          const ref::ExpectedModuleStages& stages);
ExpectedOutputs of_module(const Parts& parts, const Run& run, const Exact& exact,
                          const ref::RoundingClass& rounding);

/// Number t * N1 + n of the row whose statistics lie at each place [T,N1] of what
/// NsaCompressAttention and FlashAttentionScore write, kLanes times each.
std::vector<std::int64_t> physical_rows(const Parts& parts);
inline constexpr std::int64_t kLanes = 8;
/// The name of the lists of blocks in a run and in the operators.
inline constexpr const char* kLists = "topk_indices";

/// The lists of a run against the scores of what NsaCompressAttention was passed.
Verdict verdict_on_selection(const Run& run, const ref::RoundingClass& rounding,
                             ref::Grant grant = ref::Grant::rounding);

/// Outputs and gradients of the module, by name.
std::vector<std::string> gradient_names(const Parts& parts);

}  // namespace attncheck::properties::nsa_module
