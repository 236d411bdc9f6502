// Relations between problems of flash attention that differ: what may not matter (hidden data,
// order of heads and keys) and what must follow a change of the data, in both directions and for
// the forward alone. Identities of the gradient are flash_attention_grad_relations.cc's concern,
// the same problem in other words flash_attention_forms.cc's.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "properties/flash_attention_runs.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
constexpr std::size_t kLanes = 8;  ///< copies of every statistic

/// What no row sees matters to nothing, and gets gradient 0.
/// Why     contract decision 12: a hidden key is skipped, never multiplied by zero; decision 4
/// for rows beyond the last sequence.
/// Domain  keys that no row sees, any data; they, their ropes and values become NaN.
/// Demand  the same bits; dk, dk_rope and dv of these keys 0, of either sign.
/// Kills   mutants FA-19, FA-35, FA-39, FAG-42.
Verdict hidden(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    std::vector<char> unseen = seen_keys(parts);
    for (char& key : unseen) key = !key;
    if (std::count(unseen.begin(), unseen.end(), 1) == 0) return inapplicable();
    FlashParts poisoned = parts;
    poison_keys(poisoned, unseen);
    const FlashRun plain(parts, context), changed(poisoned, context);
    if (auto trouble = first_trouble({&plain, &changed})) return *trouble;
    Verdict verdict = verdict_on_equal_bits(parts, plain, changed,
                                            "with NaN in keys and values that no row sees");
    if (verdict.failed()) return verdict;
    for (const auto& [name, dtype, bits] : changed.outputs) {
        if (!is_of_keys(name)) continue;
        const std::size_t width = bits.size() / unseen.size();
        for (std::size_t k = 0; k < bits.size(); ++k)
            if (unseen[k / width] && ref::decode(dtype, bits[k]) != 0)
                return Verdict::fail(fmt::format("{} of an unseen key is not 0", name),
                                     fmt::format("{}  expected 0  got {:.9g} ({:#06x})",
                                                 packed_place(parts, name, k),
                                                 ref::decode(dtype, bits[k]), bits[k]));
    }
    return {};
}

/// Likely to have keys that nobody sees: behind the last sequence, above a diagonal, without
/// queries.
void with_unseen_keys(Spec& spec, Random& random) {
    if (spec.numbers[kFaLayout] == static_cast<Int>(FlashLayout::tnd)) {
        spec.numbers[kFaBeyondKv] = random.between(1, 3);
        return;
    }
    if (spec.numbers[kFaMask] != 0 || spec.numbers[kFaPse] != 0) return;
    spec.numbers[kFaMask] = random.between(1, 2);
    spec.numbers[kFaSparse] = 2;
    for (auto& length : spec.lists[1]) length = spec.lists[0][0] + 3;
}

/// The bias of a hidden pair matters to nothing.
/// Why     as hidden: a hidden key is skipped, its bias with it.
/// Domain  cases with a mask and an external bias, written element by element; any data.
/// Demand  the same bits with NaN in its place.
/// Kills   mutants FA-15, FAG-03.
Verdict hidden_bias(const Spec& spec, PropertyContext& context) {
    const std::optional<FlashParts> parts = with_plain_bias(flash_parts(spec));
    if (!parts || !is_legal(*parts)) return inapplicable();
    FlashParts poisoned = *parts;
    const std::uint32_t nan = ref::encode(parts->dtype, std::numeric_limits<double>::quiet_NaN());
    const ref::FlashAttentionShape& s = parts->shape;
    std::size_t at = 0;
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
        for (Int n = 0; n < s.query_heads; ++n)
            for (Int i = 0; i < s.query_lengths[b]; ++i)
                for (Int j = 0; j < s.kv_lengths[b]; ++j, ++at)
                    if (!ref::is_visible(s, b, n, i, j)) poisoned.pse[at] = nan;
    return verdict_on_identical_problems(*parts, poisoned, context,
                                         "with NaN in the bias of hidden pairs");
}

void with_mask_and_bias(Spec& spec, Random& random) {
    with_some_mask(spec, random);
    if (spec.numbers[kFaPse] != 0 && spec.numbers[kFaPseType] < 2) return;
    without_bias(spec);
    spec.numbers[kFaRope] = 0;
    spec.numbers[kFaPseType] = random.between(0, 1);
    spec.numbers[kFaPse] = static_cast<Int>(
        spec.numbers[kFaLayout] == static_cast<Int>(FlashLayout::tnd) ? FlashPse::flat_pairs
                                                                      : FlashPse::plain);
}

/// The contents of a compressed mask say nothing.
/// Why     contract decision 8: in modes 2, 3, 4, 6, 7 and 8 the predicate decides.
/// Domain  these modes, any data.
/// Demand  the same bits with all elements 0, or all 1.
Verdict mask_contents(const Spec& spec, PropertyContext& context) {
    const auto filled = [](std::size_t size, std::uint8_t byte) {
        return std::make_shared<const std::vector<std::uint8_t>>(size, byte);
    };
    const FlashParts parts = flash_parts(spec);
    const bool one = Random(mix(spec.seed)).chance(50);
    const FlashRun plain(parts, context), changed(parts, context, [&](Call& call) {
        auto& bytes = call.tensor("atten_mask").shared_bytes;
        bytes = filled(bytes->size(), one ? 1 : 0);
    });
    if (auto trouble = first_trouble({&plain, &changed})) return *trouble;
    return verdict_on_equal_bits(
        parts, plain, changed, fmt::format("with a compressed mask of {}", one ? "ones" : "zeros"));
}

bool has_compressed_mask(const Spec& spec) {
    const Int mode = spec.numbers[kFaSparse];
    return spec.numbers[kFaMask] != 0 && mode >= 2 && mode != 5;
}

void with_compressed_mask(Spec& spec, Random& random) {
    if (has_compressed_mask(spec)) return;
    with_some_mask(spec, random);
    spec.numbers[kFaSparse] = random.between(2, 4);
    spec.numbers[kFaMaskForm] = spec.numbers[kFaPrefix] = 0;
}

/// Runs the problem with NaN in the keys [T2,N2] and demands the bits of everything that does not
/// meet them: output and dq of rows that see none of them, dk and dv of all other keys.
Verdict verdict_on_poison(const FlashParts& parts, PropertyContext& context,
                          const std::vector<char>& keys, const std::string& relation) {
    FlashParts poisoned = parts;
    poison_keys(poisoned, keys);
    const std::vector<char> touched = rows_that_see(parts, keys);
    const FlashRun plain(parts, context), changed(poisoned, context);
    if (auto trouble = first_trouble({&plain, &changed})) return *trouble;
    return verdict_on_equal_bits(
        parts, plain, changed, relation, [&](const std::string& name, std::size_t k) {
            const std::vector<char>& skipped = is_of_keys(name) ? keys : touched;
            return !skipped[k / (plain.bits(name).size() / skipped.size())];
        });
}

/// What the mask hides from a row does not reach it: no row of a causal mode depends on the
/// future.
/// Why     contract decisions 8 and 12. In the gradient every pair of row and key has a term of
/// its own, because the statistics are given: NaN in a key reaches dq of the rows that see it and
/// its own dk and dv, nothing else.
/// Domain  cases with a mask, any data; the keys of its sequence that all heads of one row do not
/// see become NaN.
/// Demand  the same bits in all rows that see none of them.
/// Kills   mutants FA-15, FA-19, FA-35, FAG-03, FAG-42.
Verdict causality(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const ref::FlashAttentionShape& s = parts.shape;
    const std::vector<Int> rows = rows_with_keys(parts);
    if (rows.empty()) return inapplicable();
    const auto places = row_places(s.query_lengths, s.total_queries);
    const auto first_key = ref::first_rows(s.kv_lengths);
    Random random(mix(spec.seed));
    for (int tries = 0; tries < 8; ++tries) {
        const Int t = random.pick(rows);
        const FlashRow place = places[static_cast<std::size_t>(t)];
        const auto b = static_cast<std::size_t>(place.sequence);
        std::vector<char> keys = keys_seen_by(parts, t);
        for (std::size_t k = 0; k < keys.size(); ++k) {
            const Int j = static_cast<Int>(k) / s.kv_heads - first_key[b];
            keys[k] = !keys[k] && j >= 0 && j < s.kv_lengths[b];
        }
        if (std::count(keys.begin(), keys.end(), 1) == 0) continue;
        return verdict_on_poison(parts, context, keys,
                                 fmt::format("with NaN in what the mask hides from query {} of "
                                             "sequence {}",
                                             place.position, place.sequence));
    }
    return inapplicable();
}

/// A row depends on what it sees and on nothing else.
/// Why     as above; the keys that one token's rows do not see are hidden, of other heads, or of
/// other sequences.
/// Domain  any data; all keys but those that the rows of one token see become NaN.
/// Demand  the same bits in that token's rows and in all others that see none of the NaN.
/// Kills   mutants FA-13, FA-15, FA-19, FAG-42.
Verdict row_view(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const std::vector<Int> rows = rows_with_keys(parts);
    if (rows.empty()) return inapplicable();
    const Int t = Random(mix(spec.seed)).pick(rows);
    std::vector<char> others = keys_seen_by(parts, t);
    for (char& key : others) key = !key;
    return verdict_on_poison(
        parts, context, others,
        fmt::format("with NaN in all keys but those that query row {} sees", t));
}

/// The value of a dropped key matters only where it is kept.
/// Why     contract decision 8, NaN: a dropped key's V and dP are hidden, its Q and K are not;
/// statistics and dv do not look at V.
/// Domain  drop masks, any data; the values of a few keys become NaN.
/// Demand  the same bits: statistics and dv everywhere, output and dq of rows that keep none of
/// these keys, dk of all other keys.
/// Kills   mutants FA-19, FA-58, FA-59, FAG-42.
Verdict dropped_values(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const ref::FlashAttentionShape& s = parts.shape;
    std::vector<char> keys(static_cast<std::size_t>(s.total_keys * s.kv_heads));
    Random random(mix(spec.seed));
    const int percent = spec.numbers[kFaDrop] == static_cast<Int>(FlashDrop::drop_all)
                            ? 50
                            : static_cast<int>(200 / (longest(s.kv_lengths) + 3)) + 1;
    for (char& key : keys) key = random.chance(percent);
    if (std::count(keys.begin(), keys.end(), 1) == 0) return inapplicable();
    FlashParts poisoned = parts;
    poison_keys(poisoned, keys, true);
    const std::vector<char> touched = rows_that_see(parts, keys, true);
    const FlashRun plain(parts, context), changed(poisoned, context);
    if (auto trouble = first_trouble({&plain, &changed})) return *trouble;
    return verdict_on_equal_bits(
        parts, plain, changed, "with NaN in values that are dropped",
        [&](const std::string& name, std::size_t k) {
            if (name.starts_with("softmax") || name == "dv") return true;
            const std::vector<char>& skipped = is_of_keys(name) ? keys : touched;
            return !skipped[k / (plain.bits(name).size() / skipped.size())];
        });
}

bool drops_some(const Spec& spec) {
    return spec.numbers[kFaDrop] != 0 &&
           spec.numbers[kFaDrop] != static_cast<Int>(FlashDrop::keep_all);
}

void with_drops(Spec& spec, Random& random) {
    if (spec.numbers[kFaRope] != 0) without_mask(spec);
    if (drops_some(spec)) return;
    spec.numbers[kFaDrop] = random.pick<Int>({1, 1, 3});
    spec.numbers[kFaKeep] = random.between(0, 3);
}

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

/// left * 2^exponent == right for one output.
Verdict verdict_on_scaled(const FlashParts& parts, const FlashRun& left, const FlashRun& right,
                          const std::string& name, int exponent, const std::string& relation) {
    return verdict_on_powers(name, left.output(name).dtype, left.values(name), right.values(name),
                             exponent, relation,
                             [&](std::size_t k) { return packed_place(parts, name, k); });
}

/// (2^a Q, 2^-a K) has the logits of (Q, K).
/// Why     every product q k is the same number; away from overflow and underflow rounding does
/// not look at exponents. dq goes with K, dk with Q.
/// Domain  moderate data, numbers below 2^-7 set to zero; ropes follow.
/// Demand  the same bits; dq and dk scaled, where they are normal numbers.
Verdict power_of_two(const Spec& spec, PropertyContext& context) {
    FlashParts parts = flash_parts(spec);
    for (auto* bits : {&parts.query, &parts.query_rope, &parts.key, &parts.key_rope})
        drop_tiny(parts.dtype, *bits);
    FlashParts scaled = parts;
    const int exponent = Random(mix(spec.seed)).pick<int>({-3, -1, 1, 3});
    for (auto* bits : {&scaled.query, &scaled.query_rope})
        if (!scale_exactly(parts.dtype, *bits, exponent)) return inapplicable();
    for (auto* bits : {&scaled.key, &scaled.key_rope})
        if (!scale_exactly(parts.dtype, *bits, -exponent)) return inapplicable();
    const FlashRun left(parts, context), right(scaled, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const std::string relation =
        fmt::format("query times 2^{}, key times 2^{}", exponent, -exponent);
    Verdict all;
    for (const auto& [name, dtype, bits] : left.outputs) {
        const int moved = name.starts_with("dq")   ? -exponent
                          : name.starts_with("dk") ? exponent
                                                   : 0;
        if (moved != 0) join(all, verdict_on_scaled(parts, left, right, name, moved, relation));
    }
    join(all, verdict_on_equal_bits(parts, left, right, relation,
                                    [](const std::string& name, std::size_t) {
                                        return !name.starts_with("dq") && !name.starts_with("dk");
                                    }));
    return all;
}

/// Twice V gives twice O, with any drop mask. In the gradient (2 V, 2 O, dO / 2) has the dS of
/// (V, O, dO), and half its dV.
/// Why     O is linear in V; dP = <dO, V> and delta = <dO, O> stay the same numbers.
/// Domain  moderate data, output gradients below 2^-7 set to zero.
/// Demand  the same bits: statistics, dq and dk as they were, O doubled and dv halved where they
/// are normal numbers.
/// Kills   mutants FA-18, FA-33, FA-66, FAG-03.
Verdict value_scale(const Spec& spec, PropertyContext& context) {
    FlashParts parts = flash_parts(spec);
    drop_tiny(parts.dtype, parts.output_grad);
    FlashParts scaled = parts;
    if (!scale_exactly(parts.dtype, scaled.value, 1) ||
        !scale_exactly(parts.dtype, scaled.output, 1) ||
        !scale_exactly(parts.dtype, scaled.output_grad, -1))
        return inapplicable();
    const FlashRun left(parts, context), right(scaled, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const std::string relation =
        parts.gradient ? "value and output doubled, output gradient halved" : "value doubled";
    const char* follows = parts.gradient ? "dv" : "attention_out";
    Verdict all = verdict_on_equal_bits(
        parts, left, right, relation,
        [&](const std::string& name, std::size_t) { return name != follows; });
    join(all, verdict_on_scaled(parts, left, right, follows, parts.gradient ? -1 : 1, relation));
    return all;
}

/// Additive in V, with any drop mask.
/// Why     O = sum_j P_ij g_ij v_j, and P does not look at V.
/// Domain  values rounded to multiples of 1/8 and split into whole numbers and the rest.
/// Bound   the bounds of the three runs; the statistics keep their bits.
/// Kills   mutants FA-13, FA-15, FA-19, FA-35, FA-38, FA-44.
Verdict value_linearity(const Spec& spec, PropertyContext& context) {
    FlashParts whole = flash_parts(spec);
    quantise(whole.dtype, whole.value);
    FlashParts first = whole, second = whole;
    Random random(mix(spec.seed));
    std::vector<double> part(whole.value.size());
    for (double& value : part) value = static_cast<double>(random.between(-3, 3));
    if (!change_exactly(whole.dtype, first.value, [&](double, std::size_t k) { return part[k]; }) ||
        !change_exactly(whole.dtype, second.value,
                        [&](double value, std::size_t k) { return value - part[k]; }))
        return inapplicable();
    const FlashRun a(first, context), b(second, context), sum(whole, context);
    if (auto trouble = first_trouble({&a, &b, &sum})) return *trouble;
    const auto is_statistic = [](const std::string& name, std::size_t) {
        return name != "attention_out";
    };
    Verdict all = verdict_on_equal_bits(whole, a, sum, "other values", is_statistic);
    const auto bound_of = [&](const FlashParts& of) {
        return allowance(tensor_of(packed_expected_of(of, context.rounding), "attention_out"));
    };
    join(all, verdict_on_flash(whole, "attention_out",
                               sum_of(a.values("attention_out"), b.values("attention_out")),
                               sum.values("attention_out"),
                               sum_of(sum_of(bound_of(first), bound_of(second)), bound_of(whole)),
                               "values split in two"));
    return all;
}

/// Rows that see a key, [T1,N1].
std::vector<char> rows_not_empty(const FlashParts& parts) {
    return rows_that_see(
        parts, std::vector<char>(
                   static_cast<std::size_t>(parts.shape.total_keys * parts.shape.kv_heads), 1));
}

/// A constant added to all values is added to the output.
/// Why     sum_j P_ij (v_j + c) = o_i + c, because P sums to 1; not with dropout.
/// Domain  values rounded to multiples of 1/8, c a whole number per key/value head and channel: V
/// + c is stored exactly.
/// Bound   the bounds of both runs; the statistics do not look at V and keep their bits.
/// Kills   mutants FA-15, FA-18, FA-19, FA-33, FA-38, FA-52.
Verdict value_shift(const Spec& spec, PropertyContext& context) {
    FlashParts parts = flash_parts(spec);
    quantise(parts.dtype, parts.value);
    const ref::FlashAttentionShape& s = parts.shape;
    const Int width = s.value_dim, group = s.query_heads / s.kv_heads;
    std::vector<double> constants(static_cast<std::size_t>(s.kv_heads * width));
    Random random(mix(spec.seed));
    for (double& c : constants) c = static_cast<double>(random.between(-3, 3));
    FlashParts shifted = parts;
    if (!change_exactly(parts.dtype, shifted.value, [&](double value, std::size_t k) {
            return value + constants[k % constants.size()];
        }))
        return inapplicable();
    const FlashRun left(parts, context), right(shifted, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const std::vector<char> with_keys = rows_not_empty(parts);
    std::vector<double> moved = left.values("attention_out");
    for (std::size_t k = 0; k < moved.size(); ++k) {
        const auto row = k / static_cast<std::size_t>(width);
        const Int kv_head = static_cast<Int>(row) % s.query_heads / group;
        if (with_keys[row])
            moved[k] += constants[static_cast<std::size_t>(kv_head * width) +
                                  k % static_cast<std::size_t>(width)];
    }
    Verdict all = verdict_on_equal_bits(
        parts, left, right, "a constant added to all values",
        [](const std::string& name, std::size_t) { return name != "attention_out"; });
    const auto bound_of = [&](const FlashParts& of) {
        return allowance(tensor_of(packed_expected_of(of, context.rounding), "attention_out"));
    };
    join(all, verdict_on_flash(parts, "attention_out", moved, right.values("attention_out"),
                               sum_of(bound_of(parts), bound_of(shifted)),
                               "a constant added to all values"));
    return all;
}

/// A constant added to the bias of a row moves its maximum and nothing else.
/// Why     softmax does not change when all its arguments grow by the same number; behind the
/// scale the maximum moves by c, before it by scale c.
/// Domain  external biases written element by element, as multiples of 1/8; c a whole number per
/// row and head.
/// Bound   the bounds of both runs.
/// Kills   mutants FA-13, FA-15, FA-32, FA-42, FA-44, FA-45.
Verdict bias_shift(const Spec& spec, PropertyContext& context) {
    std::optional<FlashParts> plain = with_plain_bias(flash_parts(spec));
    if (!plain || !is_legal(*plain)) return inapplicable();
    FlashParts& parts = *plain;
    quantise(parts.dtype, parts.pse);
    parts.shape.bias.values = decode_all(parts.dtype, parts.pse);
    const ref::FlashAttentionShape& s = parts.shape;
    FlashParts shifted = parts;
    std::vector<double> constants(static_cast<std::size_t>(s.total_queries * s.query_heads));
    Random random(mix(spec.seed));
    for (double& c : constants) c = static_cast<double>(random.between(-8, 8));
    const auto first_query = ref::first_rows(s.query_lengths);
    std::size_t at = 0;
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
        for (Int n = 0; n < s.query_heads; ++n)
            for (Int i = 0; i < s.query_lengths[b]; ++i)
                for (Int j = 0; j < s.kv_lengths[b]; ++j, ++at)
                    shifted.pse[at] = ref::encode(
                        parts.dtype,
                        s.bias.values[at] + constants[static_cast<std::size_t>(
                                                (first_query[b] + i) * s.query_heads + n)]);
    shifted.shape.bias.values = decode_all(parts.dtype, shifted.pse);
    const FlashRun left(parts, context), right(shifted, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const ExpectedOutputs expected = packed_expected_of(parts, context.rounding),
                          shifted_expected = packed_expected_of(shifted, context.rounding);
    const std::vector<char> with_keys = rows_not_empty(parts);
    Verdict all;
    for (const auto& [name, dtype, bits] : left.outputs) {
        std::vector<double> moved = left.values(name);
        for (std::size_t k = 0; k < moved.size() && name == "softmax_max"; ++k)
            if (with_keys[k / kLanes])
                moved[k] += (s.bias.type == 1 ? s.scale : 1) * constants[k / kLanes];
        join(all, verdict_on_flash(parts, name, moved, right.values(name),
                                   sum_of(allowance(tensor_of(expected, name)),
                                          allowance(tensor_of(shifted_expected, name))),
                                   "a constant added to the bias of every row"));
    }
    return all;
}

bool has_external_bias(const Spec& spec) {
    return spec.numbers[kFaPse] != 0 && spec.numbers[kFaPseType] < 2;
}

void with_external_bias(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    if (has_external_bias(spec)) return;
    const Int mask = spec.numbers[kFaMask];
    with_mask_and_bias(spec, random);
    if (mask == 0) without_mask(spec);
}

/// The statistics are those before dropout.
/// Why     contract decision 3.
/// Domain  drop masks, any data.
/// Demand  the bits of the problem without dropout.
/// Kills   mutants FA-x77.
Verdict dropout_statistics(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    FlashParts without = parts;
    without.shape.dropout.present = false;
    without.shape.dropout.keep_prob = without.keep_prob = 1;
    without.shape.dropout.bytes.clear();
    const FlashRun left(parts, context), right(without, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    return verdict_on_equal_bits(
        parts, left, right, "without dropout",
        [](const std::string& name, std::size_t) { return name != "attention_out"; });
}

/// The eight elements of a statistic are one number, and the two statistics belong together.
/// Why     contract decision 3. row_max + log(row_sum) is the logarithm of sum exp(logit),
/// whatever maximum was subtracted, and its error is smaller than those of both: the error of the
/// maximum cancels. A sum with exp(0) = 1 in it is at least 1, up to the rounding of the maximum.
/// Bound that of the LSE for the pair; 2^-20 and 4 u |row_max| for the sum against 1; the bits
/// for the eight elements.
/// Kills   mutants FA-05, FA-20, FA-22, FA-27, FA-47, FA-65.
Verdict statistics(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const FlashRun run(parts, context);
    if (run.trouble) return *run.trouble;
    for (const char* name : {"softmax_max", "softmax_sum"}) {
        const auto& bits = run.bits(name);
        for (std::size_t k = 0; k < bits.size(); ++k)
            if (bits[k] != bits[k / kLanes * kLanes])
                return Verdict::fail(
                    std::string(name) + " is not the same 8 times",
                    fmt::format("{}  {:.9g}  first of the eight {:.9g}",
                                packed_place(parts, name, k),
                                ref::decode(ref::Dtype::fp32, bits[k]),
                                ref::decode(ref::Dtype::fp32, bits[k / kLanes * kLanes])));
    }
    const auto query = parts.query_values(), key = parts.key_values(),
               value = parts.values(parts.value);
    const ref::AttentionInputs<double> in{query, key, value, parts.shape.scale,
                                          parts.shape.dropout.keep_prob};
    const auto expected = ref::expected_attention(
        parts.shape.dense(), ref::flash_columns(parts.shape), in, parts.dtype, context.rounding);
    const std::vector<double> row_max = run.values("softmax_max"),
                              row_sum = run.values("softmax_sum");
    const std::vector<double> allowed = allowance(expected.lse);
    std::vector<double> lse(row_max.size()), exact(lse.size()), bound(lse.size()), low(lse.size()),
        slack(lse.size());
    for (std::size_t k = 0; k < lse.size(); ++k) {
        const std::size_t row = k / kLanes;
        const bool judged = std::isfinite(allowed[row]) && expected.row_sum.value[row] > 0;
        lse[k] = judged ? row_max[k] + std::log(row_sum[k]) : 0;
        exact[k] = judged ? expected.lse.value[row] : 0;
        bound[k] = judged ? allowed[row] : 0;
        low[k] = judged ? std::min(row_sum[k], 1.0) : 1;
        slack[k] = judged ? 0x1p-20 + 4 * ref::accumulator_roundoff(context.rounding, parts.dtype) *
                                          std::fabs(row_max[k])
                          : 0;
    }
    Verdict all = verdict_on_flash(parts, "softmax_max", lse, exact, bound,
                                   "row_max + log(row_sum) against the exact LSE");
    join(all, verdict_on_flash(parts, "softmax_sum", low, std::vector<double>(low.size(), 1), slack,
                               "row_sum at least 1"));
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
    list.push_back(
        {"hidden", "NaN in keys that no row sees changes no bit", hidden, with_unseen_keys, {}});
    list.push_back({"hidden_bias", "NaN in the bias of hidden pairs changes no bit", hidden_bias,
                    with_mask_and_bias, [](const Spec& spec) {
                        return spec.numbers[kFaMask] != 0 && has_external_bias(spec);
                    }});
    list.push_back({"mask_contents", "the contents of a compressed mask say nothing", mask_contents,
                    with_compressed_mask, has_compressed_mask});
    list.push_back({"causality", "NaN behind the mask changes no bit of the rows it is hidden from",
                    causality, with_some_mask,
                    [](const Spec& spec) { return spec.numbers[kFaMask] != 0; }});
    list.push_back(
        {"row_view", "NaN in all that a row does not see changes no bit of it", row_view, {}, {}});
    list.push_back({"dropped_values", "NaN in a value changes no bit of the rows that drop it",
                    dropped_values, with_drops, drops_some});
    list.push_back({"key_permutation", "the order of the keys means nothing", key_permutation,
                    with_moderate_data, moderate});
    list.push_back({"head_permutation", "permuting key/value heads with their groups",
                    head_permutation, with_several_heads, moderate});
    list.push_back({"group_permutation", "permuting the query heads of a group", group_permutation,
                    with_group, moderate});
    list.push_back(
        {"gqa_repeat", "a group is its key/value head repeated", gqa_repeat, with_group, moderate});
    list.push_back({"power_of_two", "(2^a Q, 2^-a K) has the same logits, to the bit", power_of_two,
                    with_moderate_data, moderate});
    list.push_back({"value_scale", "twice V gives twice O, to the bit", value_scale,
                    with_moderate_data, moderate});
}

void add_flash_forward_relations(std::vector<Property>& list) {
    add_flash_shared_relations(list);
    list.push_back({"value_linearity", "additive in V, with any drop mask", value_linearity,
                    with_moderate_data, moderate});
    list.push_back({"value_shift", "V + c gives O + c", value_shift,
                    [](Spec& spec, Random& random) {
                        with_moderate_data(spec, random);
                        without_dropout(spec);
                    },
                    [](const Spec& spec) { return moderate(spec) && spec.numbers[kFaDrop] == 0; }});
    list.push_back({"bias_shift", "a constant in the bias of a row moves its maximum alone",
                    bias_shift, with_external_bias,
                    [](const Spec& spec) { return moderate(spec) && has_external_bias(spec); }});
    list.push_back({"dropout_statistics", "statistics are those before dropout", dropout_statistics,
                    with_drops, [](const Spec& spec) { return spec.numbers[kFaDrop] != 0; }});
    list.push_back({"statistics", "eight equal elements; row_max + log(row_sum) is the LSE",
                    statistics, with_moderate_data, moderate});
}

}  // namespace attncheck::properties
