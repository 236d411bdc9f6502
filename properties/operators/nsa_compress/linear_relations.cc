// Relations between runs of NsaCompress and its gradient that follow from the operator being linear
// in every argument: powers of two, sums, one-hot weights, and the identities that tie gradients to
// the forward.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "properties/operators/nsa_compress/runs.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// dW does not depend on W, dX not on X.
bool depends(const CompressProblem& problem, const std::string& output, CompressArgument argument) {
    if (!problem.gradient || argument == kCmpOutputGrad) return true;
    return is_weight_grad(problem, output) == (argument == kCmpInput);
}

/// Scaling one argument by a power of two scales what depends on it, bit for bit.
/// Why     rounding to nearest does not depend on the exponent away from overflow and underflow.
/// Domain  moderate data; elements that are subnormal or overflow in either run are skipped.
/// Kills   hidden constants, clamping, mixed precision that depends on magnitude.
Verdict power_of_two(const Spec& spec, PropertyContext& context) {
    CompressProblem problem(spec);
    if (ref::flushes_subnormals({problem.dtype, context.rounding}))
        for (auto& bits : problem.bits) drop_tiny(problem.dtype, bits);
    CompressProblem scaled = problem;
    Random random(mix(spec.seed));
    const auto argument = static_cast<CompressArgument>(random.between(0, problem.arguments() - 1));
    const int exponent = random.pick<int>({-3, -1, 1, 3});
    if (!scale_exactly(problem.dtype, scaled.bits[argument], exponent)) return inapplicable();
    const CompressRun left(spec, problem, context), right(spec, scaled, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    Verdict all;
    for (const std::string& name : left.outputs())
        join(all, verdict_on_scaled(left, right, context, name,
                                    depends(problem, name, argument) ? exponent : 0,
                                    fmt::format("{} times 2^{}", name_of(argument), exponent)));
    return all;
}

/// Additive in each argument: f(a + b) = f(a) + f(b).
/// Domain  small integers, so that a + b is stored exactly.
/// Bound   the bounds of the three runs added; mostly 0, as the results are exact.
/// Kills   saturation, normalisation by the weights, anything added that is no product.
Verdict linearity(const Spec& spec, PropertyContext& context) {
    const CompressProblem whole(spec);
    Random random(mix(spec.seed));
    const auto argument = static_cast<CompressArgument>(random.between(0, whole.arguments() - 1));
    CompressProblem first = whole, second = whole;
    if (!split_exactly(whole.dtype, whole.bits[argument], random, first.bits[argument],
                       second.bits[argument]))
        return inapplicable();
    const CompressRun a(spec, first, context), b(spec, second, context), sum(spec, whole, context);
    if (auto early = first_early_verdict({&a, &b, &sum})) return *early;
    return verdict_on_sum(a, b, sum, context, fmt::format("{} split in two", name_of(argument)),
                          [&](const std::string& name) { return depends(whole, name, argument); });
}

/// One-hot weights: the forward copies one token per block, the gradient copies each block back.
/// Why     x * 1 + 0 + ... + 0 is x in any order and precision.
/// Demand  equal numbers, no tolerance; a subnormal one may be 0 where such numbers are flushed.
/// Kills   NC-03 NC-06 NC-12 NCG-09, any offset.
Verdict one_hot(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const ref::CompressShape& s = problem.shape;
    const CompressRun run(spec, problem, context);
    if (run.early_verdict) return *run.early_verdict;
    const std::vector<double> weight = problem.values(kCmpWeight);
    std::vector<Int> chosen(static_cast<std::size_t>(s.heads), -1);
    for (std::size_t k = 0; k < weight.size(); ++k) {
        if (weight[k] == 0) continue;
        auto& position = chosen[k % chosen.size()];
        if (weight[k] != 1 || position >= 0) return inapplicable();
        position = static_cast<Int>(k) / s.heads;
    }
    const std::string name = run.outputs()[0];
    const std::vector<double> source = problem.values(problem.gradient ? kCmpOutputGrad : kCmpInput),
                              got = run.values(name);
    std::vector<double> expected(got.size(), 0);
    ref::for_each_block(s, [&](Int block, Int first) {
        for (Int n = 0; n < s.heads; ++n) {
            const Int position = chosen[static_cast<std::size_t>(n)];
            if (position < 0) continue;
            Int from = ((first + position) * s.heads + n) * s.head_dim,
                into = (block * s.heads + n) * s.head_dim;
            if (problem.gradient) std::swap(from, into);
            std::copy_n(source.begin() + from, s.head_dim, expected.begin() + into);
        }
    });
    std::vector<double> allowed(got.size(), 0);
    const bool flushes = ref::flushes_subnormals({problem.dtype, context.rounding});
    for (std::size_t k = 0; k < allowed.size() && flushes; ++k)
        if (std::fabs(expected[k]) < ref::min_normal(problem.dtype)) allowed[k] = std::fabs(expected[k]);
    return verdict_on_difference(name, expected, got, allowed, "one-hot weights copy", run.place(name));
}

/// One sum of products, named by what it compares.
Identity one_sum(const std::string& relation) {
    Identity identity(1);
    identity.place[0] = relation;
    return identity;
}

std::vector<double> difference(std::vector<double> a, const std::vector<double>& b) {
    return sum_of(std::move(a), times(b, -1));
}

/// <dX, X> = <dY, Y> = <dW, W>: the operator is linear in X and in W.
/// Why     Euler's identity for a bilinear form; Y is the exact forward, so no backward oracle is
///         needed.
/// Bound   sum of the gradient's bounds times the magnitude they meet.
/// Kills   a gradient that is not the transpose of its forward.
Verdict adjoint(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const CompressRun run(spec, problem, context);
    if (run.early_verdict) return *run.early_verdict;
    std::vector<double> output(problem.bits[kCmpOutputGrad].size());
    const auto input = problem.values(kCmpInput), weight = problem.values(kCmpWeight);
    ref::nsa_compress<double>(problem.shape, input, weight, output);
    const BoundedOutput forward(output, std::vector<double>(output.size()));
    const ExpectedOutputs expected = problem.expected(context.rounding);
    Verdict all;
    for (const auto argument : {kCmpInput, kCmpWeight}) {
        const std::string relation = argument == kCmpInput ? "<dX,X> = <dY,Y>" : "<dW,W> = <dY,Y>",
                          name = run.outputs()[argument];
        Identity identity = one_sum(relation);
        BoundedOutput(run, expected, name)
            .add_product(0, problem.values(argument), identity.left, identity, 0);
        forward.add_product(0, problem.values(kCmpOutputGrad), identity.right, identity, 0);
        join(all, identity.verdict(name, relation));
    }
    return all;
}

/// The candidate's own forward, differenced along a direction, against its own gradient.
/// Why     f(X) = <dY, Y(X)> is linear: f(X+) - f(X-) = <dX, X+ - X-> exactly, for the numbers as
///         stored.
/// Bound   rounding of both forwards through dY, and of the gradient through the step.
/// Kills   forward and gradient that are each plausible and do not belong together.
Verdict forward_backward(const Spec& spec, PropertyContext& context) {
    if (!context.candidate.info().implements("nsa_compress")) return inapplicable();
    const CompressProblem problem(spec);
    const CompressRun gradient(spec, problem, context);
    if (gradient.early_verdict) return *gradient.early_verdict;
    const ExpectedOutputs of_gradient = problem.expected(context.rounding);
    Random random(mix(spec.seed));
    Verdict all;
    for (const auto argument : {kCmpInput, kCmpWeight}) {
        CompressProblem plus = problem, minus = problem;
        plus.gradient = minus.gradient = false;
        for (std::size_t k = 0; k < plus.bits[argument].size(); ++k) {
            const double value = ref::decode(problem.dtype, plus.bits[argument][k]),
                         step = static_cast<double>(random.between(-2, 2));
            plus.bits[argument][k] = ref::encode(problem.dtype, value + step);
            minus.bits[argument][k] = ref::encode(problem.dtype, value - step);
        }
        const CompressRun high(spec, plus, context), low(spec, minus, context);
        if (auto early = first_early_verdict({&high, &low})) return *early;
        const std::string name = gradient.outputs()[argument];
        Identity identity = one_sum(argument == kCmpInput ? "<dY, Y(X+) - Y(X-)> = <dX, X+ - X->"
                                                          : "<dY, Y(W+) - Y(W-)> = <dW, W+ - W->");
        const BoundedOutput change(
            difference(high.values("output"), low.values("output")),
            sum_of(allowance(plus.expected(context.rounding)[0].second),
                   allowance(minus.expected(context.rounding)[0].second)));
        change.add_product(0, problem.values(kCmpOutputGrad), identity.left, identity, 0);
        BoundedOutput(gradient, of_gradient, name)
            .add_product(0, difference(plus.values(argument), minus.values(argument)),
                         identity.right, identity, 0);
        join(all, identity.verdict(name, identity.place[0]));
    }
    return all;
}

}  // namespace

void add_compress_linear_relations(std::vector<Property>& list, bool gradient) {
    list.push_back({"power_of_two", "scaling by powers of two is exact", power_of_two,
                    with_moderate_data, moderate});
    list.push_back(
        {"linearity", "additive in every argument", linearity,
         [](Spec& spec, Random&) { spec.recipe = Recipe::ints; },
         [](const Spec& spec) { return spec.recipe <= Recipe::ints && moderate(spec); }});
    list.push_back({"one_hot", "one-hot weights copy rows exactly", one_hot,
                    [](Spec& spec, Random&) { spec.recipe = Recipe::onehot; },
                    [](const Spec& spec) {
                        return (spec.recipe == Recipe::onehot || spec.recipe == Recipe::zeros) &&
                               moderate(spec);
                    }});
    if (!gradient) return;
    list.push_back({"adjoint", "<dX,X> = <dW,W> = <dY,Y>", adjoint, with_moderate_data, moderate});
    list.push_back({"forward_backward",
                    "the candidate's own forward, differenced, gives its own gradient",
                    forward_backward, with_moderate_data, moderate});
}

}  // namespace attncheck::properties
