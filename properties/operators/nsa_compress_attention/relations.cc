// Relations between runs of compress attention that concern its attention part, and the lists as
// far as they follow. Relations of the lists themselves are
// nsa_compress_attention_list_relations.cc's concern, values of a single run
// nsa_compress_attention_properties.cc's.
//
// "Kills" names mutants that the property was seen to kill within 60 cases, not all of them: those
// that few other relations kill, or that say what it is for.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "properties/laws/attention_laws.h"
#include "properties/operators/nsa_compress_attention/runs.h"

namespace attncheck::properties::compress_attention {
namespace {

constexpr double kNotLookedAt = std::numeric_limits<double>::infinity();  ///< as an allowance

/// What the mask hides from a row does not reach it.
/// Why     contract decision 12: a hidden key is skipped, never multiplied by zero.
/// Domain  cases with a mask, any data; the keys that the mask hides from one row of one sequence
/// become NaN.
/// Demand  the same bits, lists included, in all rows that see none of them.
/// Kills   NCA-x11 x13 x15 x22 x28.
/// Shrinks to one query, one key, one hidden pair.
Verdict hidden_keys(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    const auto queries = ref::compress_queries(parts.shape);
    const auto rows = rows_in_sequences(parts);
    if (!parts.mask.present || rows.empty()) return inapplicable();
    Random random(mix(spec.seed));
    std::vector<char> hidden(static_cast<std::size_t>(parts.shape.total_keys));
    std::string relation;
    for (int tries = 0; tries < 8 && relation.empty(); ++tries) {
        const auto& row = queries[static_cast<std::size_t>(random.pick(rows))];
        for (std::int64_t i = 0; i < row.kv_length; ++i) {
            if (!parts.mask.at(row.position, i)) continue;
            hidden[static_cast<std::size_t>(row.first_key + i)] = 1;
            relation = fmt::format("with NaN in what the mask hides from query {} of sequence {}",
                                   row.position, row.sequence);
        }
    }
    if (relation.empty()) return inapplicable();
    Parts poisoned = parts;
    poison_keys(poisoned, hidden);
    const std::vector<char> touched = rows_that_see(parts, hidden);
    const Run plain(parts, context), changed(poisoned, context);
    if (auto trouble = first_trouble({&plain, &changed})) return *trouble;
    return verdict_on_equal_bits(
        spec, plain, changed, relation, [&](const std::string& name, std::size_t k) {
            return !touched[k / (plain.bits(name).size() / touched.size())];
        });
}

/// A row depends on what it sees and on nothing else.
/// Why     as above; what one query does not see are other queries, other sequences and hidden
/// keys.
/// Domain  any data; all keys but those that one query sees, and all other queries, become NaN.
/// Demand  the same bits in that row.
/// Kills   NCA-12 x11 x13 x22 x28.
/// Shrinks to two queries, one key.
Verdict row_view(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    const auto rows = rows_in_sequences(parts);
    if (rows.empty()) return inapplicable();
    const std::int64_t t = Random(mix(spec.seed)).pick(rows);
    std::vector<char> others = keys_seen_by(parts, t);
    for (char& key : others) key = !key;
    Parts poisoned = parts;
    poison_keys(poisoned, others);
    const std::uint32_t nan = ref::encode(parts.dtype, std::numeric_limits<double>::quiet_NaN());
    const auto row = static_cast<std::size_t>(parts.shape.query_heads * parts.shape.head_dim);
    for (std::size_t k = 0; k < poisoned.query.size(); ++k)
        if (static_cast<std::int64_t>(k / row) != t) poisoned.query[k] = nan;
    const Run plain(parts, context), changed(poisoned, context);
    if (auto trouble = first_trouble({&plain, &changed})) return *trouble;
    return verdict_on_equal_bits(
        spec, plain, changed, "with NaN in all that one query does not see",
        [&](const std::string& name, std::size_t k) {
            const auto size = plain.bits(name).size();
            return static_cast<std::int64_t>(
                       k / (size / static_cast<std::size_t>(parts.shape.total_queries))) == t;
        });
}

/// Sequences packed together give what each gives alone.
/// Why     no row sees another sequence; offsets are the cumulative lengths, rows of the masks are
/// positions inside the sequence, their pitch is that of the longest (contract decisions 4 and 7).
/// Bound   twice that of the packed run; lists the same or right.
/// Kills   NCA-12 x09 x10 x12 x24 x27 x33.
/// Shrinks to two sequences with one query each.
Verdict packing(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    const ref::CompressAttentionShape& s = parts.shape;
    const Run packed(parts, context);
    if (packed.trouble) return *packed.trouble;
    const ExpectedOutputs expected = expected_rows(parts, context.rounding);
    const auto starts = row_starts(s.query_lengths);
    std::vector<std::int64_t> lists = packed.lists();
    Verdict all;
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b) {
        if (s.query_lengths[b] == 0) continue;
        const Run alone(single_sequence(parts, b), context);
        if (alone.trouble) return *alone.trouble;
        for (const auto& [name, tensor] : expected) {
            const std::vector<double> together = packed.values(name), values = alone.values(name),
                                      bound = allowance(tensor);
            const auto first = together.size() / static_cast<std::size_t>(s.total_queries) *
                               static_cast<std::size_t>(starts[b]);
            std::vector<double> allowed(together.size(), kNotLookedAt), apart = together;
            for (std::size_t k = 0; k < values.size(); ++k) {
                allowed[first + k] = 2 * bound[first + k];
                apart[first + k] = values[k];
            }
            join(all, verdict_on_runs(spec, packed, name, together, apart, allowed,
                                      fmt::format("sequence {} packed against alone", b)));
        }
        const auto own = alone.lists();
        std::copy(own.begin(), own.end(), lists.begin() + starts[b] * s.kv_heads * s.select_count);
    }
    join(all, verdict_on_equal_lists(spec, context, parts, packed.lists(), lists,
                                     "sequences packed against alone"));
    return all;
}

/// Both runs of a problem whose heads are rearranged; list_source says where the list of a
/// key/value head comes from.
Verdict verdict_on_moved_heads(const Spec& spec, PropertyContext& context, const Parts& parts,
                               const std::vector<std::int64_t>& query_source,
                               const std::vector<std::int64_t>& kv_source,
                               const std::string& relation) {
    const ref::CompressAttentionShape& s = parts.shape;
    const Parts rearranged = with_heads(parts, query_source, kv_source);
    const Run left(parts, context), right(rearranged, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const ExpectedOutputs expected = expected_rows(parts, context.rounding);
    Verdict all;
    for (const auto& [name, tensor] : expected) {
        const std::int64_t width = name == "attention_out" ? s.value_dim : 1;
        const auto moved = [&](const std::vector<double>& values) {
            return gather_heads(values, s.query_heads, query_source, width);
        };
        const std::string& tensor_name = name;
        join(all, verdict_within(name, moved(left.values(name)), right.values(name),
                                 times(moved(allowance(tensor)), 2), relation,
                                 [&](std::size_t k) { return right.place(spec, tensor_name, k); }));
    }
    join(all,
         verdict_on_equal_lists(spec, context, rearranged,
                                gather_heads(left.lists(), s.kv_heads, kv_source, s.select_count),
                                right.lists(), relation));
    return all;
}

/// Key/value heads, with their query heads and lists, do not mix.
/// Why     query head n reads key/value head n / G; scores are summed over one group.
/// Bound   twice that of one run; lists the same or right.
/// Kills   NCA-x15 x20 x23 x29.
/// Shrinks to two key/value heads with different keys.
Verdict head_permutation(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    const std::int64_t heads = parts.shape.kv_heads, group = parts.shape.group();
    if (heads < 2) return inapplicable();
    Random random(mix(spec.seed));
    const std::vector<std::int64_t> kv_source = permutation(heads, random);
    std::vector<std::int64_t> query_source;
    for (const auto head : kv_source)
        for (std::int64_t g = 0; g < group; ++g) query_source.push_back(head * group + g);
    return verdict_on_moved_heads(spec, context, parts, query_source, kv_source,
                                  "key/value heads permuted with their groups");
}

std::vector<std::int64_t> all_heads(std::int64_t count) {
    std::vector<std::int64_t> heads(static_cast<std::size_t>(count));
    std::iota(heads.begin(), heads.end(), std::int64_t{0});
    return heads;
}

/// The query heads of a group do not mix but in the scores, which are their sum.
/// Bound   twice that of one run; lists the same or right.
/// Kills   NCA-x15 x20 x23 x30.
/// Shrinks to one query and the smallest group that shows it.
Verdict group_permutation(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    const std::int64_t heads = parts.shape.kv_heads, group = parts.shape.group();
    if (group < 2) return inapplicable();
    Random random(mix(spec.seed));
    std::vector<std::int64_t> query_source;
    for (std::int64_t head = 0; head < heads; ++head)
        for (const auto g : permutation(group, random)) query_source.push_back(head * group + g);
    return verdict_on_moved_heads(spec, context, parts, query_source, all_heads(heads),
                                  "query heads permuted inside their groups");
}

/// Every query head twice in its group: the same outputs twice, the same lists.
/// Why     all scores double.
/// Domain  2 G <= 64.
/// Bound   twice that of one run; lists the same or right.
/// Kills   NCA-x15 x20 x23.
/// Shrinks to one query, group 1.
Verdict group_doubled(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    std::vector<std::int64_t> query_source;
    for (std::int64_t n = 0; n < parts.shape.query_heads; ++n)
        query_source.insert(query_source.end(), 2, n);
    return verdict_on_moved_heads(spec, context, parts, query_source,
                                  all_heads(parts.shape.kv_heads), "every query head twice");
}

/// O(V + W) = O(V) + O(W).
/// Why     O is linear in V.
/// Domain  values rounded to multiples of 1/8, W a vector of whole numbers for every key: all three
/// are stored exactly.
/// Bound   the bounds of the three runs added; statistics and lists keep their bits.
/// Kills   NCA-12 x11 x17 x23 x26 x27.
Verdict value_linearity(const Spec& spec, PropertyContext& context) {
    Parts first = parts_of(spec);
    quantise(first.dtype, first.value);
    Parts second = first, sum = first;
    const auto whole = [&](std::size_t k) {
        return static_cast<double>(mix(spec.seed + k) % 7) - 3;
    };
    if (!change_exactly(first.dtype, second.value,
                        [&](double, std::size_t k) { return whole(k); }) ||
        !change_exactly(first.dtype, sum.value,
                        [&](double v, std::size_t k) { return v + whole(k); }))
        return inapplicable();
    const Run one(first, context), two(second, context), both(sum, context);
    if (auto trouble = first_trouble({&one, &two, &both})) return *trouble;
    const auto bound_of = [&](const Parts& parts) {
        return allowance(tensor_of(expected_rows(parts, context.rounding), "attention_out"));
    };
    Verdict all = verdict_on_equal_bits(
        spec, one, both, "other values",
        [](const std::string& name, std::size_t) { return name != "attention_out"; });
    join(all, verdict_on_runs(spec, one, "attention_out",
                              sum_of(one.values("attention_out"), two.values("attention_out")),
                              both.values("attention_out"),
                              sum_of(sum_of(bound_of(first), bound_of(second)), bound_of(sum)),
                              "values V, W and V + W"));
    return all;
}

void with_mask(Spec& spec, Random& random) {
    if (spec.numbers[kMask] == 0) {
        spec.numbers[kMask] = random.between(1, 2);
        spec.numbers[kHides] = random.pick<std::int64_t>({0, 2, 2, 4});
    }
}

void with_several_heads(Spec& spec, Random& random) {
    with_less_data(spec, random);
    if (spec.numbers[kKvHeads] == 1) spec.numbers[kKvHeads] = random.between(2, 3);
}

void with_group(Spec& spec, Random& random) {
    with_less_data(spec, random);
    if (spec.numbers[kGroup] == 1) spec.numbers[kGroup] = random.pick<std::int64_t>({2, 4});
}

void with_room_in_group(Spec& spec, Random& random) {
    with_less_data(spec, random);
    spec.numbers[kGroup] = std::min<std::int64_t>(spec.numbers[kGroup], 32);
}

void with_sequences(Spec& spec, Random& random) {
    with_less_data(spec, random);
    if (spec.lists[0].size() > 1) return;
    const std::int64_t keys = spec.numbers[kSelect] / spec.numbers[kStride];
    spec.lists[0].push_back(random.between(1, 6));
    spec.lists[1].push_back(spec.numbers[kCount] * keys + random.between(0, 2 * keys));
}

}  // namespace

void add_relations(std::vector<Property>& list) {
    list.push_back({"hidden_keys",
                    "NaN behind the mask changes no bit of the rows it is hidden from", hidden_keys,
                    with_mask, [](const Spec& spec) { return spec.numbers[kMask] != 0; }});
    list.push_back({"row_view",
                    "NaN in all that a query does not see changes no bit of it",
                    row_view,
                    {},
                    {}});
    list.push_back({"packing", "sequences packed together give what each gives alone", packing,
                    with_sequences, moderate});
    list.push_back({"head_permutation", "permuting key/value heads with their groups",
                    head_permutation, with_several_heads, moderate});
    list.push_back({"group_permutation", "permuting the query heads of a group", group_permutation,
                    with_group, moderate});
    list.push_back({"group_doubled", "every query head twice: the same lists", group_doubled,
                    with_room_in_group, [](const Spec& spec) {
                        return moderate(spec) && 2 * spec.numbers[kGroup] <= 64;
                    }});
    list.push_back(
        {"value_linearity", "V + W gives O(V) + O(W)", value_linearity, with_less_data, moderate});
    add_attention_laws(list, attention_operator(), false);
}

}  // namespace attncheck::properties::compress_attention
