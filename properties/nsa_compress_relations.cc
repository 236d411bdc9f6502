// Relations between runs of NsaCompress and its gradient: what must not change, what must change in
// step, and the identities that tie gradients to the forward. Values of a single run are
// nsa_compress_properties.cc's concern.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "properties/check.h"
#include "properties/nsa_compress_case.h"

namespace attncheck::properties {
namespace {

Verdict inapplicable() { return {Verdict::Kind::inapplicable, {}, {}, 0, {}, {}}; }

std::uint32_t nan_bits(ref::Dtype dtype) {
    return ref::encode(dtype, std::numeric_limits<double>::quiet_NaN());
}

const std::vector<std::uint32_t>& output(const Call& call, const CallResult& result,
                                         std::string_view name) {
    return result.outputs[tensor_index(call, name)];
}

/// True if a result may leave the range of its type: relations between finite numbers say nothing
/// there.
bool may_overflow(const ExpectedOutputs& expected) {
    return std::any_of(expected.begin(), expected.end(), [](const auto& output) {
        const auto& flags = output.second.overflow;
        return std::any_of(flags.begin(), flags.end(),
                           [](ref::Overflow o) { return o != ref::Overflow::none; });
    });
}

std::vector<const char*> output_names(bool gradient) {
    return gradient ? std::vector<const char*>{"input_grad", "weight_grad"}
                    : std::vector<const char*>{"output"};
}

/// Runs a changed call; the verdict is set when it did not return 0.
struct Run {
    Call call;
    CallResult result;
    std::optional<Verdict> trouble;
    Run(const CompressParts& parts, PropertyContext& context)
        : call(make_compress_call(parts)),
          result(context.candidate.run(call, {})),
          trouble(verdict_unless_ok(result)) {}
    std::vector<double> values(std::string_view name) const {
        return decode_all(call.tensor(name).type(), output(call, result, name));
    }
};

/// Tokens that no block covers matter to nothing and get gradient +0.
/// Why     blocks are the only readers of tokens; contract decision 5.
/// Domain  cases with an uncovered token; those tokens are replaced by NaN.
/// Demand  same bits; +0, not -0.
/// Kills   NCG-04, windows past the end of a sequence, -0 in uncovered rows.
Verdict uncovered(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const CompressBlocks blocks(problem.shape);
    const std::size_t row = static_cast<std::size_t>(problem.shape.heads * problem.shape.head_dim);
    if (std::find(blocks.covered.begin(), blocks.covered.end(), false) == blocks.covered.end())
        return inapplicable();
    CompressParts poisoned = parts_of(problem);
    for (std::size_t t = 0; t < blocks.covered.size(); ++t)
        if (!blocks.covered[t])
            std::fill_n(poisoned.input.begin() + static_cast<std::ptrdiff_t>(t * row), row,
                        nan_bits(problem.dtype));
    const Run plain(parts_of(problem), context), changed(poisoned, context);
    for (const Run* run : {&plain, &changed})
        if (run->trouble) return *run->trouble;
    for (const char* name : output_names(problem.gradient)) {
        const auto where = [&](std::size_t k) { return place_of(spec, plain.call, name, k); };
        Verdict verdict =
            verdict_on_same_bits(name, problem.dtype, output(plain.call, plain.result, name),
                                 output(changed.call, changed.result, name),
                                 "with NaN in tokens that no block covers", where);
        if (verdict.failed()) return verdict;
    }
    if (!problem.gradient) return {};
    const auto& input_grad = output(changed.call, changed.result, "input_grad");
    for (std::size_t k = 0; k < input_grad.size(); ++k)
        if (!blocks.covered[k / row] && input_grad[k] != 0)
            return Verdict::fail(
                "input_grad of an uncovered token is not +0",
                fmt::format("{}  expected +0  got {:.9g} ({:#06x})",
                            place_of(spec, plain.call, "input_grad", k),
                            ref::decode(problem.dtype, input_grad[k]), input_grad[k]));
    return {};
}

/// Changing one row of an input changes only what depends on it.
/// Why     a block reads its own tokens and nothing else; dX of a token reads its own blocks; heads
/// never mix. Demand  same bits everywhere else; the changed row gets NaN or other numbers. Kills
/// blocks across a sequence boundary, head mix-ups, windows one token too long.
Verdict locality(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const ref::CompressShape& s = problem.shape;
    const CompressBlocks blocks(s);
    Random random(mix(spec.seed));
    CompressParts changed_parts = parts_of(problem);
    const bool change_output_grad =
        problem.gradient && !blocks.first_token.empty() && random.chance(50);
    auto& bits = change_output_grad ? changed_parts.output_grad : changed_parts.input;
    const std::int64_t rows =
        change_output_grad ? static_cast<std::int64_t>(blocks.first_token.size()) : s.total_tokens;
    const std::int64_t row = random.between(0, rows - 1), head = random.between(0, s.heads - 1);
    const bool with_nan = random.chance(50);
    for (std::int64_t c = 0; c < s.head_dim; ++c) {
        auto& element = bits[static_cast<std::size_t>((row * s.heads + head) * s.head_dim + c)];
        element = with_nan ? nan_bits(problem.dtype)
                           : ref::encode(problem.dtype, 2 - ref::decode(problem.dtype, element));
    }
    const Run plain(parts_of(problem), context), changed(changed_parts, context);
    for (const Run* run : {&plain, &changed})
        if (run->trouble) return *run->trouble;

    const auto reads = [&](std::size_t block, std::int64_t token) {
        return blocks.first_token[block] <= token && token < blocks.first_token[block] + s.block;
    };
    const auto depends = [&](const std::string& name, std::size_t k) {
        if (name == "weight_grad") {
            const auto position = static_cast<std::int64_t>(k) / s.heads;
            if (static_cast<std::int64_t>(k) % s.heads != head) return false;
            if (change_output_grad) return true;
            return std::any_of(blocks.first_token.begin(), blocks.first_token.end(),
                               [&](std::int64_t first) { return first + position == row; });
        }
        const std::int64_t at = static_cast<std::int64_t>(k) / (s.heads * s.head_dim);
        if (static_cast<std::int64_t>(k) / s.head_dim % s.heads != head) return false;
        if (name == "output") return reads(static_cast<std::size_t>(at), row);
        return change_output_grad && reads(static_cast<std::size_t>(row), at);
    };
    for (const char* name : output_names(problem.gradient)) {
        Verdict verdict = verdict_on_same_bits(
            name, problem.dtype, output(plain.call, plain.result, name),
            output(changed.call, changed.result, name),
            fmt::format("after changing {} row {} of head {}",
                        change_output_grad ? "output_grad" : "input", row, head),
            [&](std::size_t k) { return place_of(spec, plain.call, name, k); },
            [&](std::size_t k) { return !depends(name, k); });
        if (verdict.failed()) return verdict;
    }
    return {};
}

/// One sequence of a packed problem as a problem of its own.
CompressParts single_sequence(const CompressParts& all, std::size_t sequence,
                              std::int64_t first_token, std::int64_t first_block) {
    const ref::CompressShape& s = all.shape;
    const std::int64_t row = s.heads * s.head_dim, length = s.seq_lengths[sequence];
    CompressParts one = all;
    one.shape.seq_lengths = {length};
    one.shape.total_tokens = length;
    const auto slice = [&](const auto& bits, std::int64_t begin, std::int64_t count) {
        return std::vector<std::uint32_t>(bits.begin() + begin * row,
                                          bits.begin() + (begin + count) * row);
    };
    one.input = slice(all.input, first_token, length);
    if (all.gradient) one.output_grad = slice(all.output_grad, first_block, s.blocks_of(length));
    return one;
}

/// Packing sequences together changes nothing: each gives what it gives alone, and dW is the sum of
/// theirs. Why     blocks never cross a boundary and W is shared. Bound   the bounds of both runs
/// added. Kills   NCG-02, offsets that drift after empty or short sequences.
Verdict packing(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const ref::CompressShape& s = problem.shape;
    const CompressParts parts = parts_of(problem);
    const Run packed(parts, context);
    if (packed.trouble) return *packed.trouble;
    const ExpectedOutputs packed_expected = expected_of(parts, context.rounding);
    if (may_overflow(packed_expected)) return inapplicable();
    const std::int64_t row = s.heads * s.head_dim;
    const char* rows_name = problem.gradient ? "input_grad" : "output";
    const std::vector<double> packed_rows = packed.values(rows_name);
    std::vector<double> weight_sum, weight_bound;
    if (problem.gradient) {
        weight_sum.assign(packed_expected[1].second.size(), 0);
        weight_bound = packed_expected[1].second.bound;
    }
    std::int64_t token = 0, block = 0;
    for (std::size_t b = 0; b < s.seq_lengths.size(); ++b) {
        const std::int64_t length = s.seq_lengths[b];
        if (length > 0) {
            const CompressParts one = single_sequence(parts, b, token, block);
            const Run alone(one, context);
            if (alone.trouble) return *alone.trouble;
            const ExpectedOutputs expected = expected_of(one, context.rounding);
            const std::int64_t first = (problem.gradient ? token : block) * row;
            const std::vector<double> rows = alone.values(rows_name);
            std::vector<double> bound = expected[0].second.bound;
            for (std::size_t k = 0; k < bound.size(); ++k)
                bound[k] += packed_expected[0].second.bound[static_cast<std::size_t>(first) + k];
            Verdict verdict = verdict_on_difference(
                rows_name,
                {packed_rows.begin() + first, packed_rows.begin() + first + std::ssize(rows)}, rows,
                bound, fmt::format("sequence {} packed against alone", b), [&](std::size_t k) {
                    return place_of(spec, packed.call, rows_name,
                                    static_cast<std::size_t>(first) + k);
                });
            if (verdict.failed()) return verdict;
            if (problem.gradient) {
                const std::vector<double> grads = alone.values("weight_grad");
                for (std::size_t k = 0; k < grads.size(); ++k) {
                    weight_sum[k] += grads[k];
                    weight_bound[k] += expected[1].second.bound[k];
                }
            }
        }
        token += length;
        block += s.blocks_of(length);
    }
    if (!problem.gradient) return {};
    return verdict_on_difference(
        "weight_grad", packed.values("weight_grad"), weight_sum, weight_bound,
        "packed against the sum over single sequences",
        [&](std::size_t k) { return place_of(spec, packed.call, "weight_grad", k); });
}

/// A leading, middle or trailing empty sequence changes nothing.
/// Why     a repeated cumulative length is a sequence without tokens (contract decision 4).
/// Kills   NCG-02, {0, 128, 272} read as a start offset, an empty sequence counted as a block.
Verdict empty_sequences(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    CompressParts without = parts_of(problem), with = without;
    std::erase(without.shape.seq_lengths, 0);
    if (without.shape.seq_lengths.empty()) return inapplicable();
    with.shape.seq_lengths.clear();
    for (const auto length : without.shape.seq_lengths)
        with.shape.seq_lengths.insert(with.shape.seq_lengths.end(), {0, length});
    with.shape.seq_lengths.push_back(0);
    const ExpectedOutputs all_expected = expected_of(without, context.rounding);
    if (may_overflow(all_expected)) return inapplicable();
    const Run left(without, context), right(with, context);
    for (const Run* run : {&left, &right})
        if (run->trouble) return *run->trouble;
    for (const auto& [name, expected] : all_expected) {
        std::vector<double> bound = expected.bound;
        for (auto& b : bound) b *= 2;
        Verdict verdict = verdict_on_difference(
            name, left.values(name), right.values(name), bound,
            "without against with empty sequences",
            [&](std::size_t k) { return place_of(spec, left.call, name, k); });
        if (verdict.failed()) return verdict;
    }
    return {};
}

/// Heads do not mix: permuting them permutes the outputs.
/// Bound   the bounds of both runs added (a candidate may vectorise across heads).
/// Kills   NC-06, NC-17, head index modulo something.
Verdict head_permutation(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const ref::CompressShape& s = problem.shape;
    if (s.heads < 2) return inapplicable();
    std::vector<std::int64_t> to(static_cast<std::size_t>(s.heads));
    std::iota(to.begin(), to.end(), std::int64_t{0});
    Random random(mix(spec.seed));
    for (std::size_t n = to.size(); n-- > 1;)
        std::swap(to[n],
                  to[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(n)))]);
    if (std::is_sorted(to.begin(), to.end())) std::reverse(to.begin(), to.end());
    const auto permuted = [&](const auto& values, std::int64_t width) {
        auto out = values;
        for (std::size_t k = 0; k < values.size(); ++k) {
            const auto i = static_cast<std::int64_t>(k);
            const std::int64_t head = i / width % s.heads;
            out[static_cast<std::size_t>(i + (to[static_cast<std::size_t>(head)] - head) * width)] =
                values[k];
        }
        return out;
    };
    const CompressParts parts = parts_of(problem);
    CompressParts moved = parts;
    moved.input = permuted(parts.input, s.head_dim);
    moved.weight = permuted(parts.weight, 1);
    if (parts.gradient) moved.output_grad = permuted(parts.output_grad, s.head_dim);
    const ExpectedOutputs all_expected = expected_of(parts, context.rounding);
    if (may_overflow(all_expected)) return inapplicable();
    const Run left(parts, context), right(moved, context);
    for (const Run* run : {&left, &right})
        if (run->trouble) return *run->trouble;
    for (const auto& [name, expected] : all_expected) {
        const std::int64_t width = name == "weight_grad" ? 1 : s.head_dim;
        std::vector<double> bound = permuted(expected.bound, width);
        for (auto& b : bound) b *= 2;
        Verdict verdict = verdict_on_difference(
            name, permuted(left.values(name), width), right.values(name), bound, "heads permuted",
            [&](std::size_t k) { return place_of(spec, right.call, name, k); });
        if (verdict.failed()) return verdict;
    }
    return {};
}

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
    const Run left(parts, context), right(scaled, context);
    for (const Run* run : {&left, &right})
        if (run->trouble) return *run->trouble;
    const double low = ref::min_normal(parts.dtype) * 64, high = ref::max_finite(parts.dtype) / 64;
    for (const char* name : output_names(parts.gradient)) {
        const bool scales = argument == 2 || !parts.gradient ||
                            (argument == 0) == (std::string_view(name) == "weight_grad");
        std::vector<double> a = left.values(name), b = right.values(name);
        for (std::size_t k = 0; k < a.size(); ++k) {
            if (scales) a[k] = std::ldexp(a[k], exponent);
            if (a[k] == 0 ? b[k] == 0 : std::fabs(a[k]) < low || !(std::fabs(a[k]) <= high))
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
    const Run a(first, context), b(second, context), sum(whole, context);
    for (const Run* run : {&a, &b, &sum})
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
    const Run run(parts, context);
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
/// needed. Bound   sum of the gradient's bounds times the magnitude they meet. Kills   a gradient
/// that is not the transpose of its forward.
Verdict adjoint(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const CompressParts parts = parts_of(problem);
    const Run run(parts, context);
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
/// stored. Bound   rounding of both forwards through dY, and of the gradient through the step.
/// Kills   forward and gradient that are each plausible and do not belong together.
Verdict forward_backward(const Spec& spec, PropertyContext& context) {
    if (!context.candidate.info().implements("nsa_compress")) return inapplicable();
    const CompressProblem problem(spec);
    const CompressParts parts = parts_of(problem);
    const Run gradient(parts, context);
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
        const Run high(plus, context), low(minus, context);
        for (const Run* run : {&high, &low})
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

void with_moderate_data(Spec& spec, Random&) {
    if (spec.recipe > Recipe::spiky) spec.recipe = Recipe::normal;
}
bool moderate(const Spec& spec) {
    return spec.recipe <= Recipe::spiky &&
           std::all_of(spec.overrides.begin(), spec.overrides.end(), [](const auto& item) {
               return std::isfinite(item.second) && std::fabs(item.second) < 1e4;
           });
}

void with_empty_sequences(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    if (std::all_of(spec.lists[0].begin(), spec.lists[0].end(),
                    [](auto length) { return length == 0; }))
        spec.lists[0].back() = spec.number("block");
}

}  // namespace

void add_compress_relations(std::vector<Property>& list, bool gradient) {
    list.push_back({"uncovered", "tokens outside every block change nothing and get gradient +0",
                    uncovered,
                    [](Spec& spec, Random& random) {
                        with_moderate_data(spec, random);
                        const int lengths = spec.schema->number("lengths");
                        if (lengths < 0 || spec.numbers[static_cast<std::size_t>(lengths)] == 0)
                            spec.set("beyond", random.between(0, 3));
                        spec.lists[0].back() += random.between(1, 15);
                    },
                    moderate});
    list.push_back({"locality", "changing one row changes only the blocks and tokens that meet it",
                    locality, with_moderate_data, moderate});
    list.push_back({"packing", "sequences packed together give what each gives alone", packing,
                    with_moderate_data, moderate});
    list.push_back({"empty_sequences", "empty sequences anywhere change nothing", empty_sequences,
                    with_empty_sequences, moderate});
    list.push_back({"head_permutation", "permuting heads permutes the outputs", head_permutation,
                    [](Spec& spec, Random& random) {
                        with_moderate_data(spec, random);
                        if (spec.number("heads") == 1) spec.set("heads", 2);
                    },
                    moderate});
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
