// Relations between runs of NsaCompress and its gradient: what must not change, and what must move
// with what it depends on. Values of a single run are nsa_compress_properties.cc's concern, what
// follows from linearity nsa_compress_linear_relations.cc's.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "properties/operators/nsa_compress/runs.h"

namespace attncheck::properties {
namespace {

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
    const std::size_t row = static_cast<std::size_t>(problem.shape.heads * problem.shape.head_dim);
    if (std::find(blocks.covered.begin(), blocks.covered.end(), false) == blocks.covered.end())
        return inapplicable();
    CompressParts poisoned = parts_of(problem);
    for (std::size_t t = 0; t < blocks.covered.size(); ++t)
        if (!blocks.covered[t])
            std::fill_n(poisoned.input.begin() + static_cast<std::ptrdiff_t>(t * row), row,
                        nan_bits(problem.dtype));
    const CompressRun plain(parts_of(problem), context), changed(poisoned, context);
    for (const CompressRun* run : {&plain, &changed})
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
///         never mix.
/// Demand  same bits everywhere else; the changed row gets NaN or other numbers.
/// Kills   blocks
///         across a sequence boundary, head mix-ups, windows one token too long.
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
    const CompressRun plain(parts_of(problem), context), changed(changed_parts, context);
    for (const CompressRun* run : {&plain, &changed})
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
/// theirs.
/// Why     blocks never cross a boundary and W is shared.
/// Bound   the bounds of both runs added.
/// Kills   NCG-02, offsets that drift after empty or short sequences.
Verdict packing(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const ref::CompressShape& s = problem.shape;
    const CompressParts parts = parts_of(problem);
    const CompressRun packed(parts, context);
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
            const CompressRun alone(one, context);
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
    const CompressRun left(without, context), right(with, context);
    for (const CompressRun* run : {&left, &right})
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
    const CompressRun left(parts, context), right(moved, context);
    for (const CompressRun* run : {&left, &right})
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
    add_compress_linear_relations(list, gradient);
}

}  // namespace attncheck::properties
