// The NSA module against exact differentiation of the composed reference, with the selection of the
// candidate frozen; and its operators on what they hand each other.
#include <cmath>

#include "properties/laws/exact_lattice.h"
#include "properties/operators/nsa_module/runs.h"
#include "ref/numbers/dual.h"

namespace attncheck::properties::nsa_module {
namespace {

Verdict verdict_on_operators(const Run& run, const ref::ExpectedModuleStages& stages,
                             const ref::RoundingClass& rounding, ref::Grant grant) {
    Verdict all = verdict_on_values(run.spec, run.call, run.result, of_operators(stages));
    join(all, verdict_on_selection(run, rounding, grant));
    return all;
}

/// Every operator is right on what the operator before it wrote, lists and statistics included.
/// Why     the operators' own properties feed them from the reference; here they are fed from each
/// other, statistics in the order in which they were written.
/// Bound   that of each operator on its actual inputs (ref/operators/nsa_module_bound.h); lists by their
/// scores.
/// Kills   MOD-01 .. MOD-08, MOD-10 .. MOD-15.
/// Shrinks to one head, one sequence of as few tokens as the operator concerned needs.
Verdict operators_on_each_other(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    const Run run(parts, context);
    if (run.early_verdict) return *run.early_verdict;
    const auto stages = expected_stages(parts, run, Given(parts), context.rounding);
    return verdict_on_operators(run, stages, context.rounding, ref::Grant::rounding);
}

/// Output and chained gradients are those of the exact composition.
/// Why     the gradient of a composition is the composition of the gradients; the reference's chain
/// equals the derivative of its forward to binary64 (tests/ref/nsa_module_test.cc).
/// Bound   the operators' bounds, each on its actual inputs, propagated through the chain
/// (ref/operators/nsa_module_bound.h). 0 for what nothing reaches.
/// Kills   MOD-14, and the broken compositions of tests/properties/operators/nsa_module_test.cc.
Verdict end_to_end(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    const Run run(parts, context);
    if (run.early_verdict) return *run.early_verdict;
    const Exact exact(parts, run);
    return verdict_on_values(run.spec, run.call, run.result,
                             of_module(parts, run, exact, context.rounding));
}

/// <gradients, r> is the derivative of <O, dO> along r, for a direction r through every input.
/// Why     the definition of a gradient; the forward over dual numbers differentiates itself, no
/// backward formula of ours takes part but in the bound.
/// Bound   the end-to-end bounds, summed with |r|.
/// Kills   MOD-01; not MOD-04, which end_to_end sees: the bounds of a million terms add up.
Verdict derivative(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    const Run run(parts, context);
    if (run.early_verdict) return *run.early_verdict;
    const Exact exact(parts, run);
    // +-1, one element in four; the same for tied tensors.
    const auto direction = [&](int input, std::size_t k) {
        const std::uint64_t hash = mix(mix(spec.seed + static_cast<std::uint64_t>(input)) + k);
        return hash % 4 ? 0.0 : hash % 8 ? 1.0 : -1.0;
    };
    std::array<std::vector<ref::Dual>, kInputs> x;
    for (int input = 0; input < kInputs; ++input)
        for (std::size_t k = 0; k < exact.values[static_cast<std::size_t>(input)].size(); ++k)
            x[static_cast<std::size_t>(input)].emplace_back(
                exact.values[static_cast<std::size_t>(input)][k], direction(input, k));
    // An infinite gate logit has a sigmoid that does not move.
    for (ref::Dual& z : x[kGateLogits])
        if (!std::isfinite(z.value)) z = {z.value > 0 ? 1e3 : -1e3, 0};
    const auto forward =
        ref::nsa_module<ref::Dual>(parts.shape, module_inputs(parts, x), run.topk);
    const ExpectedOutputs bounds = of_module(parts, run, exact, context.rounding);
    Identity identity(1);
    identity.place[0] = "the sum over all inputs";
    for (std::size_t i = 0; i < forward.output.size(); ++i) {
        const double term = forward.output[i].tangent * exact.values[kOutputGrad][i];
        identity.right[0] += term;
        identity.size[0] += std::fabs(term);
    }
    for (int input = 0; input < kOutputGrad; ++input) {
        const std::string name = gradient_name(input);
        if (!run.call.tensor(name).present) continue;
        const auto got = run.values(name);
        const ref::ExpectedTensor& bound = tensor_of(bounds, name);
        const auto allowed = allowance(bound);
        for (std::size_t k = 0; k < got.size(); ++k) {
            const double r = direction(input, k);
            if (r == 0 || (input == kGateLogits && !std::isfinite(exact.values[kGateLogits][k])))
                continue;
            identity.left[0] += got[k] * r;
            identity.allowed[0] += allowed[k];
            identity.size[0] += std::fabs(bound.value[k]);
        }
    }
    return identity.verdict("the gradient", "<gradients, r> against the derivative along r");
}

/// The operators and the module on the exact inputs of each.
Verdict agreement(const Spec& spec, PropertyContext& context, ref::Grant grant) {
    const Parts parts = parts_of(spec);
    const Run run(parts, context);
    if (run.early_verdict) return *run.early_verdict;
    const Exact exact(parts, run);
    const auto stages = expected_stages(parts, run, exact, context.rounding, grant);
    Verdict all = verdict_on_operators(run, stages, context.rounding, grant);
    if (all.failed() || all.kind != Verdict::Kind::held) return all;
    join(all, verdict_on_values(run.spec, run.call, run.result,
                                of_module(parts, run, exact, stages)));
    return all;
}

void make_lattice(Spec& spec, Random& random) {
    spec.recipe = Recipe::ints;
    spec.set("logits", static_cast<int>(Logits::lattice));
    spec.set("weights", static_cast<int>(Weights::onehot));
    spec.set("scale", static_cast<int>(ScaleKind::one));
    spec.set("gates", static_cast<std::int64_t>(random.pick(
                          {Gates::half, Gates::compress, Gates::select, Gates::window})));
}

}  // namespace

void add_agreement(std::vector<Property>& list) {
    list.push_back({"operators_on_each_other",
                    "each operator within its bound on what the one before it wrote",
                    operators_on_each_other});
    list.push_back({"end_to_end", "output and chained gradients are those of the exact composition",
                    end_to_end});
    list.push_back({"derivative",
                    "<gradients, r> is the derivative of the forward along r (dual numbers)",
                    derivative});
    Property lattice = exact_lattice_property(agreement);
    lattice.adapt = make_lattice;
    lattice.domain = [](const Spec& spec) {
        return spec.number("logits") == static_cast<int>(Logits::lattice) &&
               spec.number("weights") == static_cast<int>(Weights::onehot);
    };
    list.push_back(std::move(lattice));
}

}  // namespace attncheck::properties::nsa_module
