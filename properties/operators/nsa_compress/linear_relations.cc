// Relations between runs of NsaCompress and its gradient that follow from the operator being linear
// in every argument: powers of two, sums, one-hot weights, and the identities that tie gradients to
// the forward.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "properties/operators/nsa_compress/runs.h"

namespace attncheck::properties {
namespace {

/// Scaling one argument by a power of two scales what depends on it, bit for bit.
/// Why     rounding to nearest does not look at the exponent away from overflow and underflow.
/// Domain  moderate data; elements that are subnormal or overflow in either run are skipped.
/// Kills   hidden constants, clamping, mixed precision that depends on magnitude.
Verdict power_of_two(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const CompressParts parts = parts_of(problem);
    CompressParts scaled = parts;
    Random random(mix(spec.seed));
    const int argument = static_cast<int>(random.between(0, parts.gradient ? 2 : 1));
    const int exponent = static_cast<int>(random.pick<int>({-3, -1, 1, 3}));
    auto& bits = argument == 0 ? scaled.input : argument == 1 ? scaled.weight : scaled.output_grad;
    for (auto& element : bits) {
        const double value = ref::decode(parts.dtype, element), moved = std::ldexp(value, exponent);
        element = ref::encode(parts.dtype, moved);
        if (ref::decode(parts.dtype, element) != moved) return inapplicable();
    }
    const CompressRun left(parts, context), right(scaled, context);
    for (const CompressRun* run : {&left, &right})
        if (run->trouble) return *run->trouble;
    const double low = ref::min_normal(parts.dtype) * 64, high = ref::max_finite(parts.dtype) / 64;
    for (const char* name : output_names(parts.gradient)) {
        const bool scales = argument == 2 || !parts.gradient ||
                            (argument == 0) == (std::string_view(name) == "weight_grad");
        std::vector<double> a = left.values(name), b = right.values(name);
        for (std::size_t k = 0; k < a.size(); ++k) {
            if (scales) a[k] = std::ldexp(a[k], exponent);
            // A sum that underflows on one side only is no defect if it is subnormal on the other.
            if (a[k] == 0 ? std::fabs(b[k]) < ref::min_normal(parts.dtype)
                          : std::fabs(a[k]) < low || !(std::fabs(a[k]) <= high))
                b[k] = a[k] = 0;
        }
        constexpr const char* kArguments[] = {"input", "weight", "output_grad"};
        Verdict verdict = verdict_on_difference(
            name, a, b, std::vector<double>(a.size(), 0),
            fmt::format("{} times 2^{}", kArguments[argument], exponent),
            [&](std::size_t k) { return place_of(spec, left.call, name, k); });
        if (verdict.failed()) return verdict;
    }
    return {};
}

/// Additive in each argument: f(a + b) = f(a) + f(b).
/// Domain  small integers, so that a + b is stored exactly.
/// Bound   the bounds of the three runs added; mostly 0, as the results are exact.
/// Kills   saturation, normalisation by the weights, anything added that is no product.
Verdict linearity(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const CompressParts whole = parts_of(problem);
    Random random(mix(spec.seed));
    const int argument = static_cast<int>(random.between(0, whole.gradient ? 2 : 1));
    const auto choose = [&](CompressParts& parts) -> std::vector<std::uint32_t>& {
        return argument == 0 ? parts.input : argument == 1 ? parts.weight : parts.output_grad;
    };
    CompressParts first = whole, second = whole;
    for (std::size_t k = 0; k < choose(first).size(); ++k) {
        const double value = ref::decode(whole.dtype, choose(first)[k]);
        const double part = static_cast<double>(random.between(-3, 3));
        choose(first)[k] = ref::encode(whole.dtype, part);
        choose(second)[k] = ref::encode(whole.dtype, value - part);
        if (ref::decode(whole.dtype, choose(second)[k]) != value - part) return inapplicable();
    }
    const CompressRun a(first, context), b(second, context), sum(whole, context);
    for (const CompressRun* run : {&a, &b, &sum})
        if (run->trouble) return *run->trouble;
    const ExpectedOutputs ea = expected_of(first, context.rounding),
                          eb = expected_of(second, context.rounding),
                          es = expected_of(whole, context.rounding);
    for (std::size_t i = 0; i < es.size(); ++i) {
        const std::string& name = es[i].first;
        // dW does not depend on W, dX not on X: there f(a) = f(b) = f(a + b).
        const bool constant = whole.gradient && ((argument == 0 && name == "input_grad") ||
                                                 (argument == 1 && name == "weight_grad"));
        std::vector<double> left = a.values(name), bound = es[i].second.bound;
        const std::vector<double> right = b.values(name);
        for (std::size_t k = 0; k < left.size(); ++k) {
            if (!constant) left[k] += right[k];
            bound[k] += ea[i].second.bound[k] + eb[i].second.bound[k];
        }
        constexpr const char* kArguments[] = {"input", "weight", "output_grad"};
        Verdict verdict =
            verdict_on_difference(name, left, sum.values(name), bound,
                                  fmt::format("{} split in two", kArguments[argument]),
                                  [&](std::size_t k) { return place_of(spec, sum.call, name, k); });
        if (verdict.failed()) return verdict;
    }
    return {};
}

/// One-hot weights: the forward copies one token per block, the gradient copies each block back.
/// Why     x * 1 + 0 + ... + 0 is x in any order and precision.
/// Demand  equal numbers, no tolerance.
/// Kills   NC-03 NC-06 NC-12 NCG-09, any offset.
Verdict one_hot(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const ref::CompressShape& s = problem.shape;
    const CompressParts parts = parts_of(problem);
    const CompressRun run(parts, context);
    if (run.trouble) return *run.trouble;
    const std::vector<double> weight = problem.values("weight");
    std::vector<std::int64_t> chosen(static_cast<std::size_t>(s.heads), -1);
    for (std::size_t k = 0; k < weight.size(); ++k) {
        if (weight[k] == 0) continue;
        auto& position = chosen[k % static_cast<std::size_t>(s.heads)];
        if (weight[k] != 1 || position >= 0) return inapplicable();
        position = static_cast<std::int64_t>(k) / s.heads;
    }
    const CompressBlocks blocks(s);
    const char* name = problem.gradient ? "input_grad" : "output";
    const std::vector<double> source = problem.values(problem.gradient ? "output_grad" : "input");
    const std::vector<double> got = run.values(name);
    std::vector<double> expected(got.size(), 0);
    for (std::size_t j = 0; j < blocks.first_token.size(); ++j)
        for (std::int64_t n = 0; n < s.heads; ++n) {
            if (chosen[static_cast<std::size_t>(n)] < 0) continue;
            const std::int64_t token = blocks.first_token[j] + chosen[static_cast<std::size_t>(n)];
            const std::int64_t at_token = (token * s.heads + n) * s.head_dim;
            const std::int64_t at_block = (static_cast<std::int64_t>(j) * s.heads + n) * s.head_dim;
            const std::int64_t from = problem.gradient ? at_block : at_token,
                               into = problem.gradient ? at_token : at_block;
            std::copy_n(source.begin() + from, s.head_dim, expected.begin() + into);
        }
    return verdict_on_difference(name, expected, got, std::vector<double>(got.size(), 0),
                                 "one-hot weights copy",
                                 [&](std::size_t k) { return place_of(spec, run.call, name, k); });
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
    long double sum = 0;
    for (std::size_t k = 0; k < a.size(); ++k) sum += static_cast<long double>(a[k]) * b[k];
    return static_cast<double>(sum);
}

double weighted_bound(const std::vector<double>& bound, const std::vector<double>& weights) {
    double sum = 0;
    for (std::size_t k = 0; k < bound.size(); ++k) sum += bound[k] * std::fabs(weights[k]);
    return sum;
}

Verdict scalar_verdict(const std::string& tensor, const std::string& identity, double left,
                       double right, double allowed) {
    return verdict_on_difference(tensor, {left}, {right}, {allowed}, identity,
                                 [&](std::size_t) { return "[" + identity + "]"; });
}

/// <dX, X> = <dY, Y> = <dW, W>: the operator is linear in X and in W.
/// Why     Euler's identity for a bilinear form; Y is the exact forward, so no backward oracle is
///         needed.
/// Bound   sum of the gradient's bounds times the magnitude they meet.
/// Kills   a gradient that is not the transpose of its forward.
Verdict adjoint(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const CompressParts parts = parts_of(problem);
    const CompressRun run(parts, context);
    if (run.trouble) return *run.trouble;
    const auto input = problem.values("input"), weight = problem.values("weight"),
               output_grad = problem.values("output_grad");
    std::vector<double> forward(output_grad.size());
    ref::nsa_compress<double>(problem.shape, input, weight, forward);
    double magnitude = 0;  // of everything that the oracle's own binary64 sums added up
    for (std::size_t k = 0; k < forward.size(); ++k)
        magnitude += std::fabs(forward[k] * output_grad[k]);
    const double form = dot(output_grad, forward);
    const ExpectedOutputs expected = expected_of(parts, context.rounding);
    if (may_overflow(expected)) return inapplicable();
    const double oracle_error = 1e-12 * magnitude;
    Verdict verdict =
        scalar_verdict("input_grad", "<dX,X> = <dY,Y>", dot(run.values("input_grad"), input), form,
                       weighted_bound(expected[0].second.bound, input) + oracle_error);
    if (verdict.failed()) return verdict;
    return scalar_verdict("weight_grad", "<dW,W> = <dY,Y>", dot(run.values("weight_grad"), weight),
                          form, weighted_bound(expected[1].second.bound, weight) + oracle_error);
}

/// The candidate's own forward, differenced along a direction, against its own gradient.
/// Why     f(X) = <dY, Y(X)> is linear: f(X+) - f(X-) = <dX, X+ - X-> exactly, for the numbers as
///         stored.
/// Bound   rounding of both forwards through dY, and of the gradient through the step.
/// Kills   forward and gradient that are each plausible and do not belong together.
Verdict forward_backward(const Spec& spec, PropertyContext& context) {
    if (!context.candidate.info().implements("nsa_compress")) return inapplicable();
    const CompressProblem problem(spec);
    const CompressParts parts = parts_of(problem);
    const CompressRun gradient(parts, context);
    if (gradient.trouble) return *gradient.trouble;
    const ExpectedOutputs gradient_expected = expected_of(parts, context.rounding);
    if (may_overflow(gradient_expected)) return inapplicable();
    const auto output_grad = problem.values("output_grad");
    Random random(mix(spec.seed));
    for (const bool along_input : {true, false}) {
        CompressParts plus = parts, minus = parts;
        plus.gradient = minus.gradient = false;
        auto& up = along_input ? plus.input : plus.weight;
        auto& down = along_input ? minus.input : minus.weight;
        for (std::size_t k = 0; k < up.size(); ++k) {
            const double value = ref::decode(parts.dtype, up[k]),
                         step = static_cast<double>(random.between(-2, 2));
            up[k] = ref::encode(parts.dtype, value + step);
            down[k] = ref::encode(parts.dtype, value - step);
        }
        const ExpectedOutputs plus_expected = expected_of(plus, context.rounding),
                              minus_expected = expected_of(minus, context.rounding);
        if (may_overflow(plus_expected) || may_overflow(minus_expected)) return inapplicable();
        const CompressRun high(plus, context), low(minus, context);
        for (const CompressRun* run : {&high, &low})
            if (run->trouble) return *run->trouble;
        const auto high_value = decode_all(parts.dtype, up),
                   low_value = decode_all(parts.dtype, down);
        std::vector<double> step(up.size()), difference = high.values("output");
        const auto low_output = low.values("output");
        for (std::size_t k = 0; k < step.size(); ++k) step[k] = high_value[k] - low_value[k];
        double magnitude = 0;
        for (std::size_t k = 0; k < difference.size(); ++k) {
            difference[k] -= low_output[k];
            magnitude += std::fabs(difference[k] * output_grad[k]);
        }
        const char* name = along_input ? "input_grad" : "weight_grad";
        const double allowed =
            weighted_bound(plus_expected[0].second.bound, output_grad) +
            weighted_bound(minus_expected[0].second.bound, output_grad) +
            weighted_bound(gradient_expected[along_input ? 0 : 1].second.bound, step) +
            1e-12 * magnitude;
        Verdict verdict =
            scalar_verdict(name,
                           along_input ? "<dY, Y(X+) - Y(X-)> = <dX, X+ - X->"
                                       : "<dY, Y(W+) - Y(W-)> = <dW, W+ - W->",
                           dot(difference, output_grad), dot(gradient.values(name), step), allowed);
        if (verdict.failed()) return verdict;
    }
    return {};
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
