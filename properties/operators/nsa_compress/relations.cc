// Relations between runs of NsaCompress and its gradient: what must not change, and what must move
// with what it depends on. What follows from linearity is in linear_relations.cc.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "properties/operators/nsa_compress/runs.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

std::uint32_t nan_bits(ref::Dtype dtype) {
    return ref::encode(dtype, std::numeric_limits<double>::quiet_NaN());
}

/// Tokens that no block covers matter to nothing and get gradient +0.
/// Why     blocks are the only readers of tokens; contract decision 5.
/// Domain  cases with an uncovered token; those tokens are replaced by NaN.
/// Demand  same bits; +0, not -0.
/// Kills   NCG-04, windows past the end of a sequence, -0 in uncovered rows.
Verdict uncovered(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const CompressBlocks blocks(problem.shape);
    const auto row = static_cast<std::size_t>(problem.shape.heads * problem.shape.head_dim);
    if (std::ranges::find(blocks.covered, false) == blocks.covered.end()) return inapplicable();
    CompressProblem poisoned = problem;
    auto& input = poisoned.bits[kCmpInput];
    for (std::size_t k = 0; k < input.size(); ++k)
        if (!blocks.covered[k / row]) input[k] = nan_bits(problem.dtype);
    const CompressRun plain(spec, problem, context), changed(spec, poisoned, context);
    if (auto early = first_early_verdict({&plain, &changed})) return *early;
    Verdict verdict = verdict_on_equal_bits(plain, changed, context,
                                               "with NaN in tokens that no block covers");
    if (verdict.failed() || !problem.gradient) return verdict;
    const auto& input_grad = changed.bits("input_grad");
    for (std::size_t k = 0; k < input_grad.size(); ++k)
        if (!blocks.covered[k / row] && input_grad[k] != 0)
            return Verdict::fail("input_grad of an uncovered token is not +0",
                                 fmt::format("{}  expected +0  got {:.9g} ({:#06x})",
                                             plain.place("input_grad")(k),
                                             ref::decode(problem.dtype, input_grad[k]),
                                             input_grad[k]));
    return {};
}

/// Changing one row of an input changes only what depends on it.
/// Why     a block reads its own tokens and nothing else; dX of a token reads its own blocks; heads
///         never mix.
/// Demand  same bits everywhere else; the changed row gets NaN or other numbers.
/// Kills   blocks
///         across a sequence boundary, head mix-ups, windows one token too long.
Verdict locality(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const ref::CompressShape& s = problem.shape;
    const CompressBlocks blocks(s);
    Random random(mix(spec.seed));
    CompressProblem other = problem;
    const bool of_blocks = problem.gradient && !blocks.first_token.empty() && random.chance(50);
    const CompressArgument argument = of_blocks ? kCmpOutputGrad : kCmpInput;
    const Int rows = of_blocks ? std::ssize(blocks.first_token) : s.total_tokens;
    const Int row = random.between(0, rows - 1), head = random.between(0, s.heads - 1);
    const bool with_nan = random.chance(50);
    for (Int c = 0; c < s.head_dim; ++c) {
        auto& element =
            other.bits[argument][static_cast<std::size_t>((row * s.heads + head) * s.head_dim + c)];
        element = with_nan ? nan_bits(problem.dtype)
                           : ref::encode(problem.dtype, 2 - ref::decode(problem.dtype, element));
    }
    const CompressRun plain(spec, problem, context), changed(spec, other, context);
    if (auto early = first_early_verdict({&plain, &changed})) return *early;

    const auto reads = [&](Int block, Int token) {
        const Int first = blocks.first_token[static_cast<std::size_t>(block)];
        return first <= token && token < first + s.block;
    };
    const auto depends = [&](const std::string& name, std::size_t k) {
        const auto number = static_cast<Int>(k);
        if (is_weight_grad(problem, name)) {
            if (number % s.heads != head) return false;
            return of_blocks || std::ranges::find(blocks.first_token, row - number / s.heads) !=
                                    blocks.first_token.end();
        }
        const Int at = number / (s.heads * s.head_dim);
        if (number / s.head_dim % s.heads != head) return false;
        if (!problem.gradient) return reads(at, row);
        return of_blocks && reads(row, at);
    };
    return verdict_on_equal_bits(
        plain, changed, context,
        fmt::format("after changing {} row {} of head {}", name_of(argument), row, head),
        [&](const std::string& name, std::size_t k) { return !depends(name, k); });
}

/// One sequence of a packed problem as a separate problem.
CompressProblem single_sequence(const CompressProblem& all, std::size_t sequence, Int first_token,
                                Int first_block) {
    const ref::CompressShape& s = all.shape;
    const Int row = s.heads * s.head_dim, length = s.seq_lengths[sequence];
    CompressProblem one = all;
    one.shape.seq_lengths = {length};
    one.shape.total_tokens = length;
    one.bits[kCmpInput] = slice(all.bits[kCmpInput], first_token, length, row);
    one.bits[kCmpOutputGrad] =
        slice(all.bits[kCmpOutputGrad], first_block, s.blocks_of(length), row);
    return one;
}

/// Packing sequences together changes nothing: each gives what it gives alone, and dW is the sum of
/// theirs.
/// Why     blocks never cross a boundary and W is shared.
/// Bound   the bounds of both runs added.
/// Kills   NCG-02, offsets that drift after empty or short sequences.
Verdict packing(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const ref::CompressShape& s = problem.shape;
    const CompressRun packed(spec, problem, context);
    if (packed.early_verdict) return *packed.early_verdict;
    const ExpectedOutputs expected = problem.expected(context.rounding);
    const auto row = static_cast<std::size_t>(s.heads * s.head_dim);
    std::vector<double> weights, weight_bound;
    if (problem.gradient) {
        weights.assign(expected[1].second.size(), 0);
        weight_bound = allowance(expected[1].second);
    }
    Verdict all;
    Int token = 0, block = 0;
    for (std::size_t b = 0; b < s.seq_lengths.size(); ++b) {
        const Int length = s.seq_lengths[b], blocks = s.blocks_of(length);
        const auto first = static_cast<std::size_t>(problem.gradient ? token : block),
                   count = static_cast<std::size_t>(problem.gradient ? length : blocks);
        const CompressProblem one = single_sequence(problem, b, token, block);
        token += length;
        block += blocks;
        if (length == 0) continue;
        const CompressRun alone(spec, one, context);
        if (alone.early_verdict) return *alone.early_verdict;
        join(all, verdict_on_part(packed, alone, expected, expected[0].first, first * row, count * row,
                                  fmt::format("sequence {} packed against alone", b)));
        if (!problem.gradient) continue;
        weights = sum_of(std::move(weights), alone.values("weight_grad"));
        weight_bound = sum_of(std::move(weight_bound), allowance(one.expected(context.rounding)[1].second));
    }
    if (problem.gradient)
        join(all, verdict_within("weight_grad", packed.values("weight_grad"), weights, weight_bound,
                                 "packed against the sum over single sequences",
                                 packed.place("weight_grad")));
    return all;
}

/// A leading, middle or trailing empty sequence changes nothing.
/// Why     a repeated cumulative length is a sequence without tokens (contract decision 4).
/// Kills   NCG-02, {0, 128, 272} read as a start offset, an empty sequence counted as a block.
Verdict empty_sequences(const Spec& spec, PropertyContext& context) {
    CompressProblem without(spec), with = without;
    std::erase(without.shape.seq_lengths, 0);
    if (without.shape.seq_lengths.empty()) return inapplicable();
    with.shape.seq_lengths.clear();
    for (const auto length : without.shape.seq_lengths)
        with.shape.seq_lengths.insert(with.shape.seq_lengths.end(), {0, length});
    with.shape.seq_lengths.push_back(0);
    const CompressRun left(spec, without, context), right(spec, with, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    return verdict_on_equal_runs(left, right, context, "without against with empty sequences");
}

/// Heads do not mix: permuting them permutes the outputs.
/// Bound   the bounds of both runs added (a candidate may vectorise across heads).
/// Kills   NC-06, NC-17, head index modulo something.
Verdict head_permutation(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const ref::CompressShape& s = problem.shape;
    if (s.heads < 2) return inapplicable();
    Random random(mix(spec.seed));
    const std::vector<Int> source = permutation(s.heads, random);
    CompressProblem moved = problem;
    for (const auto argument : {kCmpInput, kCmpWeight, kCmpOutputGrad})
        moved.bits[argument] = gather_heads(problem.bits[argument], s.heads, source,
                                            argument == kCmpWeight ? 1 : s.head_dim);
    const CompressRun left(spec, problem, context), right(spec, moved, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    return verdict_on_moved_runs(
        left, right, context, "heads permuted",
        [&](const std::string& name, const std::vector<double>& values) {
            return gather_heads(values, s.heads, source,
                                is_weight_grad(problem, name) ? 1 : s.head_dim);
        });
}

void with_uncovered_tokens(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    const int lengths = spec.schema->number("lengths");
    if (lengths < 0 || spec.numbers[static_cast<std::size_t>(lengths)] == 0)
        spec.set("beyond", random.between(0, 3));
    spec.lists[0].back() += random.between(1, 15);
}

void with_some_token(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    if (longest(spec.lists[0]) == 0) spec.lists[0].back() = spec.number("block");
}

void with_several_heads(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    if (spec.number("heads") == 1) spec.set("heads", 2);
}

}  // namespace

void add_compress_relations(std::vector<Property>& list) {
    list.push_back({"uncovered", "tokens outside every block change nothing and get gradient +0",
                    uncovered, with_uncovered_tokens, moderate});
    list.push_back({"locality", "changing one row changes only the blocks and tokens that meet it",
                    locality, with_moderate_data, moderate});
    list.push_back({"packing", "sequences packed together give what each gives alone", packing,
                    with_moderate_data, moderate});
    list.push_back({"empty_sequences", "empty sequences anywhere change nothing", empty_sequences,
                    with_some_token, moderate});
    list.push_back({"head_permutation", "permuting heads permutes the outputs", head_permutation,
                    with_several_heads, moderate});
}

}  // namespace attncheck::properties
