// Relations between problems of flash attention that differ in the order of keys or heads, in both
// directions; and the list of all that hold in both. What may not matter at all is
// flash_attention_hidden_relations.cc's concern, what must follow a change of the data
// flash_attention_shift_relations.cc's, the same problem in other words flash_attention_forms.cc's,
// identities of the gradient flash_attention_grad_relations.cc's.
#include <algorithm>
#include <numeric>

#include "properties/operators/flash_attention/runs.h"

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
    if (s.bias.present) to.shape.bias.values = decode_all(parts.dtype, to.pse);
    if (s.dropout.present)
        rewrite_dropout(to.shape, [&](std::size_t b, Int n, Int i, Int j) {
            return drop_bit(s, first_pair(s, b) + (n * s.query_lengths[b] + i) * s.kv_lengths[b] +
                                   orders[b][static_cast<std::size_t>(j)]);
        });
    while (std::ssize(source) < s.total_keys) source.push_back(std::ssize(source));
    to.key = gather_rows(parts.key, source, s.kv_heads * s.head_dim);
    to.key_rope = gather_rows(parts.key_rope, source, s.kv_heads * s.rope_dim);
    to.value = gather_rows(parts.value, source, s.kv_heads * s.value_dim);
    return to;
}

/// The order of the keys means nothing when mask, bias and drop mask follow it.
/// Why     softmax and its gradient are sums over the visible keys.
/// Domain  every problem, with mask and bias written element by element.
/// Bound   the bounds of both.
/// Kills   mutants FA-13, FA-15, FA-35, FA-44, FA-58, FAG-19.
Verdict key_permutation(const Spec& spec, PropertyContext& context) {
    const std::optional<FlashParts> parts = with_explicit_pairs(flash_parts(spec));
    if (!parts) return inapplicable();
    Random random(mix(spec.seed));
    std::vector<Int> source;
    const FlashParts permuted = with_permuted_keys(*parts, random, source);
    const FlashRun left(*parts, context), right(permuted, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const ExpectedOutputs left_expected = packed_expected_of(*parts, context.rounding),
                          right_expected = packed_expected_of(permuted, context.rounding);
    Verdict all;
    for (const auto& [name, dtype, bits] : right.outputs) {
        const auto moved = [&, &name = name](const std::vector<double>& values) {
            return is_of_keys(name) && !source.empty()
                       ? gather_rows(values, source, std::ssize(values) / std::ssize(source))
                       : values;
        };
        join(all, verdict_on_flash(permuted, name, moved(left.values(name)), right.values(name),
                                   sum_of(moved(allowance(tensor_of(left_expected, name))),
                                          allowance(tensor_of(right_expected, name))),
                                   "keys of every sequence permuted"));
    }
    return all;
}

/// The outputs of `parts` with their heads rearranged against those of the rearranged problem,
/// within twice the bound.
Verdict verdict_on_moved_heads(const FlashParts& parts, PropertyContext& context,
                               const std::vector<Int>& query_source,
                               const std::vector<Int>& kv_source, const std::string& relation) {
    const FlashParts permuted = with_heads(parts, query_source, kv_source);
    const FlashRun left(parts, context), right(permuted, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const ExpectedOutputs expected = packed_expected_of(parts, context.rounding);
    const ref::FlashAttentionShape& s = parts.shape;
    Verdict all;
    for (const auto& [name, dtype, bits] : left.outputs) {
        const bool of_keys = is_of_keys(name);
        const auto& source = of_keys ? kv_source : query_source;
        const Int rows = std::max<Int>(of_keys ? s.total_keys : s.total_queries, 1),
                  width = std::ssize(bits) / (rows * std::ssize(source));
        const auto moved = [&](const std::vector<double>& values) {
            return gather_heads(values, std::ssize(source), source, width);
        };
        join(all,
             verdict_on_flash(permuted, name, moved(left.values(name)), right.values(name),
                              times(moved(allowance(tensor_of(expected, name))), 2), relation));
    }
    return all;
}

/// Key/value heads, with their query heads, masks, biases and drop bits, do not mix.
/// Why     query head n reads key/value head n / G only (flash_attention.md 2.2).
/// Bound   twice that of one run: the same rows in another order.
/// Kills   mutants FA-18, FA-42, FA-46, FA-58, FAG-13, FAG-18.
Verdict head_permutation(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const Int heads = parts.shape.kv_heads, group = parts.shape.query_heads / heads;
    if (heads < 2) return inapplicable();
    Random random(mix(spec.seed));
    const std::vector<Int> kv_source = permutation(heads, random);
    std::vector<Int> query_source;
    for (const auto head : kv_source)
        for (Int g = 0; g < group; ++g) query_source.push_back(head * group + g);
    return verdict_on_moved_heads(parts, context, query_source, kv_source,
                                  "key/value heads permuted with their groups");
}

/// The query heads of a group do not mix.
/// Why     they share keys and values, and nothing else; dk and dv are sums over the group.
/// Bound   twice that of one run.
/// Kills   mutants FA-38, FA-46, FA-52, FA-58, FA-59, FA-66.
Verdict group_permutation(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const Int heads = parts.shape.kv_heads, group = parts.shape.query_heads / heads;
    if (group < 2) return inapplicable();
    Random random(mix(spec.seed));
    std::vector<Int> kv_source(static_cast<std::size_t>(heads)), query_source;
    std::iota(kv_source.begin(), kv_source.end(), Int{0});
    for (Int head = 0; head < heads; ++head)
        for (const auto g : permutation(group, random)) query_source.push_back(head * group + g);
    return verdict_on_moved_heads(parts, context, query_source, kv_source,
                                  "query heads permuted inside their groups");
}

/// A group is its key/value head repeated G times.
/// Why     query head n reads key/value head n / G; dk and dv are sums over the group.
/// Bound   the bounds of both runs, for dk and dv those of all repeated heads.
/// Kills   mutants FA-35, FA-38, FA-52, FAG-07, FAG-10, FAG-13.
Verdict gqa_repeat(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const Int group = parts.shape.query_heads / parts.shape.kv_heads;
    if (group < 2) return inapplicable();
    std::vector<Int> query_source, kv_source;
    for (Int n = 0; n < parts.shape.query_heads; ++n) {
        query_source.push_back(n);
        kv_source.push_back(n / group);
    }
    const FlashParts repeated = with_heads(parts, query_source, kv_source);
    if (!parts.gradient)
        return verdict_on_equal_problems(parts, repeated, context, "key/value heads repeated");
    const FlashRun left(parts, context), right(repeated, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const ExpectedOutputs expected = packed_expected_of(parts, context.rounding),
                          repeated_expected = packed_expected_of(repeated, context.rounding);
    Verdict all;
    for (const auto& [name, dtype, bits] : left.outputs) {
        const auto summed = [&, &name = name](const std::vector<double>& values) {
            if (!is_of_keys(name) || values.empty()) return values;
            const auto width = values.size() / static_cast<std::size_t>(repeated.shape.total_keys *
                                                                        repeated.shape.kv_heads);
            std::vector<double> sum(values.size() / static_cast<std::size_t>(group));
            for (std::size_t k = 0; k < values.size(); ++k)
                sum[k / (width * static_cast<std::size_t>(group)) * width + k % width] += values[k];
            return sum;
        };
        join(all, verdict_on_flash(parts, name, left.values(name), summed(right.values(name)),
                                   sum_of(allowance(tensor_of(expected, name)),
                                          summed(allowance(tensor_of(repeated_expected, name)))),
                                   "key/value heads repeated"));
    }
    return all;
}

void with_several_heads(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    if (spec.numbers[kFaKvHeads] > 1) return;
    spec.numbers[kFaKvHeads] = random.between(2, 3);
    spec.numbers[kFaGroup] = std::min<Int>((spec.numbers[kFaGroup] + 1) / 2, 64);
}

void with_group(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    if (spec.numbers[kFaGroup] == 1) spec.numbers[kFaGroup] = random.between(2, 3);
}

}  // namespace

void add_flash_shared_relations(std::vector<Property>& list) {
    add_flash_form_relations(list);
    add_flash_hidden_relations(list);
    list.push_back({"key_permutation", "the order of the keys means nothing", key_permutation,
                    with_moderate_data, moderate});
    list.push_back({"head_permutation", "permuting key/value heads with their groups",
                    head_permutation, with_several_heads, moderate});
    list.push_back({"group_permutation", "permuting the query heads of a group", group_permutation,
                    with_group, moderate});
    list.push_back(
        {"gqa_repeat", "a group is its key/value head repeated", gqa_repeat, with_group, moderate});
}

}  // namespace attncheck::properties
