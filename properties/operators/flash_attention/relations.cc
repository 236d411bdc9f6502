// The relations of flash attention in both directions: the order of the keys here, the laws of all
// attention operators with the cases that they want, and those of the other files.
#include <algorithm>

#include "properties/laws/attention_laws.h"
#include "properties/operators/flash_attention/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// Elements of [pairs of a sequence, ...] with their columns permuted: new (n, i, j) is old (n, i,
/// order[j]).
template <class T>
void permute_columns(std::vector<T>& values, std::size_t first, Int rows, Int columns,
                     Int row_stride, const std::vector<Int>& order) {
    std::vector<T> row(static_cast<std::size_t>(columns));
    for (Int r = 0; r < rows; ++r) {
        T* const at = values.data() + first + static_cast<std::size_t>(r * row_stride);
        for (Int j = 0; j < columns; ++j)
            row[static_cast<std::size_t>(j)] = at[order[static_cast<std::size_t>(j)]];
        std::copy(row.begin(), row.end(), at);
    }
}

/// Row `row` of [rows, width] from row source[row].
template <class T>
std::vector<T> gather_rows(const std::vector<T>& values, const std::vector<std::int64_t>& source,
                           std::int64_t width) {
    std::vector<T> out;
    if (values.empty()) return out;
    out.reserve(values.size());
    for (const std::int64_t row : source) {
        const auto first = values.begin() + row * width;
        out.insert(out.end(), first, first + width);
    }
    return out;
}

/// Every sequence with its keys in another order; source is filled with the old row of every key
/// row.
FlashParts with_permuted_keys(const FlashParts& parts, Random& random, std::vector<Int>& source) {
    FlashParts to = parts;
    const ref::FlashAttentionShape& s = parts.shape;
    const Int rows = longest(s.query_lengths), columns = longest(s.kv_lengths);
    std::vector<std::vector<Int>> orders;
    for (std::size_t b = 0; b < s.kv_lengths.size(); ++b) {
        orders.push_back(permutation(s.kv_lengths[b], random));
        const auto first = static_cast<Int>(source.size());
        for (const Int j : orders.back()) source.push_back(first + j);
        const Int own = s.query_heads * s.query_lengths[b];
        if (s.mask.present)
            for (Int n = 0; n < s.query_heads; ++n)
                permute_columns(to.shape.mask.values,
                                static_cast<std::size_t>((static_cast<Int>(b) * s.query_heads + n) *
                                                         rows * columns),
                                s.query_lengths[b], s.kv_lengths[b], columns, orders.back());
        if (s.bias.present)
            permute_columns(to.pse, static_cast<std::size_t>(first_pair(s, b)), own,
                            s.kv_lengths[b], s.kv_lengths[b], orders.back());
    }
    if (s.bias.present) to.take_bias();
    if (s.dropout.present)
        rewrite_dropout(to.shape, [&](std::size_t b, Int n, Int i, Int j) {
            return drop_bit(s, first_pair(s, b) + (n * s.query_lengths[b] + i) * s.kv_lengths[b] +
                                   orders[b][static_cast<std::size_t>(j)]);
        });
    while (std::ssize(source) < s.total_keys) source.push_back(std::ssize(source));
    to.key = gather_rows(parts.key, source, s.kv_heads * (s.head_dim + s.rope_dim));
    to.value = gather_rows(parts.value, source, s.kv_heads * s.value_dim);
    return to;
}

/// With every pair of a query and a key written; nullopt: not to be written so.
Verdict verdict_on_permuted_keys(const std::optional<FlashParts>& parts, std::uint64_t seed,
                                 PropertyContext& context) {
    if (!parts) return inapplicable();
    Random random(mix(seed));
    std::vector<Int> source;
    const FlashParts permuted = with_permuted_keys(*parts, random, source);
    const AttentionOperator& of = flash_attention_operator();
    const AttentionProblem before = flash_problem(*parts), after = flash_problem(permuted);
    const AttentionRun left(of, before, context);
    if (left.early_verdict) return *left.early_verdict;
    const AttentionRun right(of, after, context);
    if (right.early_verdict) return *right.early_verdict;
    return verdict_within_both(
        left, right, context, "keys of every sequence permuted",
        [&](const std::string& name, const std::vector<double>& values) {
            const AttentionOutput& output = after.output_named(name);
            return output.of_keys ? gather_rows(values, source, output.heads * output.width)
                                  : values;
        });
}

/// The order of the keys means nothing when mask, bias and drop mask follow it.
/// Why     softmax and its gradient are sums over the visible keys.
/// Domain  every problem, with mask and bias written element by element; without its mask where the candidate takes no
///         written one.
/// Bound   the bounds of both.
/// Kills   mutants FA-13, FA-15, FA-35, FA-44, FA-58, FAG-19.
Verdict key_permutation(const Spec& spec, PropertyContext& context) {
    FlashParts parts = flash_parts(spec);
    const Verdict verdict = verdict_on_permuted_keys(with_explicit_pairs(parts), spec.seed, context);
    if (verdict.kind != Verdict::Kind::declined || !parts.shape.mask.present) return verdict;
    parts.shape.mask = {};
    parts.prefix.reset();
    if (parts.gradient) {  // is given what a forward without the mask says
        AttentionProblem whole = flash_problem(parts);
        give_reference_forward(whole);
        static_cast<AttentionValues&>(parts) = whole;
    }
    return verdict_on_permuted_keys(with_explicit_pairs(parts), spec.seed, context);
}

/// A band that leaves out the first keys of every sequence.
void with_early_keys_hidden(Spec& spec, Random& random) {
    spec.numbers[kFaMask] = random.between(1, 2);
    spec.numbers[kFaSparse] = 4;
    spec.numbers[kFaTokens] = static_cast<Int>(FlashTokens::given);
    spec.numbers[kFaPre] = random.between(0, 3);
    spec.numbers[kFaNext] = random.between(0, 3);
    const Int hidden = spec.numbers[kFaPre] + random.between(1, 3);
    for (std::size_t b = 0; b < spec.lists[1].size(); ++b) spec.lists[1][b] = spec.lists[0][b] + hidden;
}

/// Likely to have keys that nobody sees: in front of a band, behind the last sequence, above a diagonal, without
/// queries.
void with_unseen_keys(Spec& spec, Random& random) {
    constexpr Int kMost = 1025;  // tens of thousands of queries have few keys, and would get as many
    if (spec.numbers[kFaPse] == 0 && std::ranges::max(spec.lists[0]) <= kMost && random.chance(40))
        return with_early_keys_hidden(spec, random);
    if (is_tnd(spec)) {
        spec.numbers[kFaBeyondKv] = random.between(1, 3);
        return;
    }
    if (spec.numbers[kFaMask] != 0 || spec.numbers[kFaPse] != 0) return;
    spec.numbers[kFaMask] = random.between(1, 2);
    spec.numbers[kFaSparse] = 2;
    for (auto& length : spec.lists[1]) length = spec.lists[0][0] + 3;
}

void with_several_sequences(Spec& spec, Random& random) {
    with_another_sequence(spec, random, is_tnd(spec));
}

void with_nothing_dropped(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    without_dropout(spec);
}

const AttentionCases kCases = {
    .unseen_keys = with_unseen_keys,
    .masked = with_some_mask,
    .is_masked = [](const Spec& spec) { return spec.numbers[kFaMask] != 0; },
    .several_sequences = with_several_sequences,
    .undropped = with_nothing_dropped,
    .is_undropped = [](const Spec& spec) { return spec.numbers[kFaDrop] == 0; }};

}  // namespace

void add_flash_relations(std::vector<Property>& list, bool gradient) {
    add_flash_form_relations(list);
    add_flash_pair_relations(list);
    list.push_back({"key_permutation", "the order of the keys means nothing", key_permutation,
                    with_moderate_data, moderate});
    add_attention_laws(list, flash_attention_operator(), gradient, kCases);
    if (!gradient) add_flash_bias_relations(list);
}

}  // namespace attncheck::properties
