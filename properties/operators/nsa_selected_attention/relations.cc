// Relations between runs of selected attention that hold in both directions: what may not matter
// (keys that no row sees, what else is packed) and the order of heads. Those of the lists are
// nsa_selected_attention_list_relations.cc's concern, those that change queries, keys and values
// nsa_selected_attention_shift_relations.cc's, identities of the gradient
// nsa_selected_attention_grad_relations.cc's, values of a single run
// nsa_selected_attention_properties.cc's.
//
// "Kills" names mutants that the property was seen to kill within 25 to 60 cases, not all of them:
// those that few other relations kill, or that say what it is for.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "properties/operators/nsa_selected_attention/runs.h"

namespace attncheck::properties {
namespace {

constexpr double kNotLookedAt = std::numeric_limits<double>::infinity();  ///< as an allowance

/// What no row sees matters to nothing, and gets gradient 0.
/// Why     contract decision 12: a hidden key is skipped, never multiplied by zero; decision 4 for
/// rows beyond the last sequence.
/// Domain  keys that are in no list or hidden from every row that lists them, any data; they become
/// NaN.
/// Demand  the same bits; dk and dv of these keys 0 (of either sign: a negative scale times 0 is
/// -0).
/// Kills   NSF-x28 x44 x45, NSG-17 x15 x30.
/// Shrinks to one query, two blocks of 16 keys, block 0 listed, all data 0.
Verdict unselected(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    std::vector<char> unseen = seen_keys(parts);
    for (char& key : unseen) key = !key;
    if (std::count(unseen.begin(), unseen.end(), 1) == 0) return inapplicable();
    SelectedParts poisoned = parts;
    poison_keys(poisoned, unseen);
    const SelectedRun plain(parts, context), changed(poisoned, context);
    if (auto trouble = trouble_of({&plain, &changed})) return *trouble;
    Verdict verdict =
        verdict_on_equal_bits(spec, plain, changed, "with NaN in keys and values that no row sees");
    if (verdict.failed() || !parts.gradient) return verdict;
    for (const char* name : {"dk", "dv"}) {
        const std::vector<double> values = changed.values(name);
        const std::size_t width = values.size() / unseen.size();
        for (std::size_t k = 0; k < values.size(); ++k)
            if (unseen[k / width] && values[k] != 0)
                return Verdict::fail(fmt::format("{} of an unseen key is not 0", name),
                                     fmt::format("{}  expected 0  got {:.9g}",
                                                 place_of(spec, changed.call, name, k), values[k]));
    }
    return {};
}

void with_spare_blocks(Spec& spec, Random& random) {
    for (auto& kv : spec.lists[1])
        if (kv > 0) kv += spec.numbers[kSelBlock] * random.between(0, 2);
}

/// Runs the problem with NaN in the keys [T2,N2] and demands the bits of everything that does not
/// meet them: output and dq of rows that see none of them, dk and dv of all other keys.
Verdict verdict_on_poison(const Spec& spec, PropertyContext& context, const SelectedParts& parts,
                          const std::vector<char>& keys, const std::string& relation) {
    SelectedParts poisoned = parts;
    poison_keys(poisoned, keys);
    const std::vector<char> touched = rows_that_see(parts, keys);
    const SelectedRun plain(parts, context), changed(poisoned, context);
    if (auto trouble = trouble_of({&plain, &changed})) return *trouble;
    return verdict_on_equal_bits(
        spec, plain, changed, relation, [&](const std::string& name, std::size_t k) {
            const std::vector<char>& skipped = name == "dk" || name == "dv" ? keys : touched;
            return !skipped[k / (plain.bits(name).size() / skipped.size())];
        });
}

/// Query rows of sequences with keys.
std::vector<std::int64_t> rows_with_keys(const std::vector<ref::SelectedQuery>& queries) {
    std::vector<std::int64_t> rows;
    for (std::size_t t = 0; t < queries.size(); ++t)
        if (queries[t].sequence >= 0 && queries[t].kv_length > 0)
            rows.push_back(static_cast<std::int64_t>(t));
    return rows;
}

/// What the mask hides from a row does not reach it: with sparse mode 2 no row depends on the
/// future, in its own or in any other sequence.
/// Why     contract decisions 6 and 12. In the gradient every pair of row and key has a term of its
/// own, because the statistics are given: NaN in a key reaches dq of the rows that see it and its
/// own dk and dv, nothing else.
/// Domain  cases with a mask, any data; the keys that the mask hides from one row of one sequence
/// become NaN.
/// Demand  the same bits in all rows that see none of them.
/// Kills   NSF-04 08 x44 x45 x50, NSG-x18 x21.
/// Shrinks to one query, one block of 16 keys, one head, one hidden pair.
Verdict causality(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    const ref::SelectedAttentionShape& s = parts.shape;
    const auto queries = ref::selected_queries(s);
    const std::vector<std::int64_t> rows = rows_with_keys(queries);
    if (!parts.mask.present || rows.empty()) return inapplicable();
    Random random(mix(spec.seed));
    std::vector<char> hidden(static_cast<std::size_t>(s.total_keys * s.kv_heads));
    std::string relation;
    for (int tries = 0; tries < 8 && relation.empty(); ++tries) {
        const auto& row = queries[static_cast<std::size_t>(random.pick(rows))];
        for (std::int64_t j = 0; j < row.kv_length; ++j) {
            const bool hides = parts.sparse_mode == 2
                                   ? j > row.position
                                   : parts.mask.bits[static_cast<std::size_t>(
                                         row.position * parts.mask.shape[1] + j)] != 0;
            if (!hides) continue;
            std::fill_n(hidden.begin() + (row.first_key + j) * s.kv_heads, s.kv_heads, 1);
            relation = fmt::format("with NaN in what the mask hides from query {} of sequence {}",
                                   row.position, row.sequence);
        }
    }
    if (relation.empty()) return inapplicable();
    return verdict_on_poison(spec, context, parts, hidden, relation);
}

void with_mask(Spec& spec, Random& random) {
    if (spec.numbers[kSelMask] != 0) return;
    spec.numbers[kSelMask] = random.between(1, 2);
}

/// A row depends on what it sees and on nothing else.
/// Why     as above; the keys that one token's rows do not see are in other blocks, other sequences
/// or hidden.
/// Domain  any data; all keys but those that the rows of one token see become NaN.
/// Demand  the same bits in that token's rows and in all others that see none of the NaN.
/// Kills   NSF-18 x28 x44 x45, NSG-x16 x18 x21.
Verdict row_view(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    const auto queries = ref::selected_queries(parts.shape);
    const std::vector<std::int64_t> rows = rows_with_keys(queries);
    if (rows.empty()) return inapplicable();
    const std::int64_t t = Random(mix(spec.seed)).pick(rows);
    std::vector<char> others = keys_seen_by(parts, t);
    for (char& key : others) key = !key;
    const auto& row = queries[static_cast<std::size_t>(t)];
    return verdict_on_poison(spec, context, parts, others,
                             fmt::format("with NaN in all keys but those that query {} of "
                                         "sequence {} sees",
                                         row.position, row.sequence));
}

/// Sequences packed together give what each gives alone.
/// Why     no row sees another sequence; offsets are the cumulative lengths (contract decision 4).
/// Bound   twice that of the packed run: a sequence alone has the same rows and keys.
/// Kills   NSF-02 x08 x09 x50, NSG-x05 x16 x20.
/// Shrinks to two sequences, the first with one query and no key.
Verdict packing(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    const ref::SelectedAttentionShape& s = parts.shape;
    const SelectedRun packed(parts, context);
    if (packed.trouble) return *packed.trouble;
    const ExpectedOutputs expected = expected_of(parts, context.rounding);
    Verdict all;
    std::int64_t query = 0, key = 0;
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b) {
        const std::int64_t queries = s.query_lengths[b], keys = s.kv_lengths[b];
        if (queries > 0) {
            const SelectedRun alone(single_sequence(parts, b), context);
            if (alone.trouble) return *alone.trouble;
            for (const std::string& name : packed.output_names()) {
                const bool of_keys = name == "dk" || name == "dv";
                const std::vector<double> together = packed.values(name);
                const std::int64_t row = std::ssize(together) /
                                         (of_keys ? s.total_keys : s.total_queries),
                                   first = of_keys ? key : query, count = of_keys ? keys : queries;
                std::vector<double> allowed(together.size(), kNotLookedAt), apart = together;
                const std::vector<double> bound = allowance(tensor_of(expected, name)),
                                          values = alone.values(name);
                for (std::int64_t k = 0; k < count * row; ++k) {
                    const auto at = static_cast<std::size_t>(first * row + k);
                    allowed[at] = 2 * bound[at];
                    apart[at] = values[static_cast<std::size_t>(k)];
                }
                join(all, verdict_on_runs(spec, packed, name, together, apart, allowed,
                                          fmt::format("sequence {} packed against alone", b)));
            }
        }
        query += queries;
        key += keys;
    }
    return all;
}

/// The outputs of `left` with their heads rearranged against those of `right`, within twice the
/// bound.
Verdict verdict_on_moved_heads(const Spec& spec, PropertyContext& context,
                               const SelectedParts& parts,
                               const std::vector<std::int64_t>& query_source,
                               const std::vector<std::int64_t>& kv_source,
                               const std::string& relation) {
    const SelectedRun left(parts, context),
        right(with_heads(parts, query_source, kv_source), context);
    if (auto trouble = trouble_of({&left, &right})) return *trouble;
    const ExpectedOutputs expected = expected_of(parts, context.rounding);
    Verdict all;
    for (const std::string& name : left.output_names()) {
        const auto& shape = left.call.tensor(name).buffer_shape;
        const auto& source = name == "dk" || name == "dv" ? kv_source : query_source;
        const auto moved = [&](const std::vector<double>& values) {
            return gather_heads(values, shape[1], source, shape[2]);
        };
        join(all, verdict_on_runs(spec, right, name, moved(left.values(name)), right.values(name),
                                  times(moved(allowance(tensor_of(expected, name))), 2), relation));
    }
    return all;
}

/// Key/value heads, with their query heads and lists, do not mix.
/// Why     query head n reads key/value head n / G and its lists only.
/// Bound   twice that of one run: the same rows in another order.
/// Kills   NSF-21 x22 x28 x60, NSG-x11 x15 x19.
/// Shrinks to two key/value heads with different lists, one non-zero logit.
Verdict head_permutation(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    const std::int64_t heads = parts.shape.kv_heads, group = parts.shape.dense().group();
    if (heads < 2) return inapplicable();
    Random random(mix(spec.seed));
    const std::vector<std::int64_t> kv_source = permutation(heads, random);
    std::vector<std::int64_t> query_source;
    for (const auto head : kv_source)
        for (std::int64_t g = 0; g < group; ++g) query_source.push_back(head * group + g);
    return verdict_on_moved_heads(spec, context, parts, query_source, kv_source,
                                  "key/value heads permuted with their groups");
}

/// The query heads of a group do not mix.
/// Why     they share keys, values and lists, and nothing else; dk and dv are sums over the group.
/// Bound   twice that of one run.
/// Kills   NSF-x22 x23 x24, NSG-12 x19 x28.
/// Shrinks to one query, one block, the smallest group that shows it (17 for NSF-x23), data 0.
Verdict group_permutation(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    const std::int64_t heads = parts.shape.kv_heads, group = parts.shape.dense().group();
    if (group < 2) return inapplicable();
    Random random(mix(spec.seed));
    std::vector<std::int64_t> kv_source(static_cast<std::size_t>(heads)), query_source;
    std::iota(kv_source.begin(), kv_source.end(), std::int64_t{0});
    for (std::int64_t head = 0; head < heads; ++head)
        for (const auto g : permutation(group, random)) query_source.push_back(head * group + g);
    return verdict_on_moved_heads(spec, context, parts, query_source, kv_source,
                                  "query heads permuted inside their groups");
}

/// A group is its key/value head repeated G times.
/// Why     query head n reads key/value head n / G; dk and dv are sums over the group.
/// Bound   the bounds of both runs added, for dk and dv those of all repeated heads.
/// Kills   NSF-21 x22 x23 x46, NSG-12 17 x28.
/// Shrinks to two key/value heads, group 2, one non-zero logit.
Verdict gqa_repeat(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    const std::int64_t group = parts.shape.dense().group();
    if (group < 2) return inapplicable();
    std::vector<std::int64_t> query_source, kv_source;
    for (std::int64_t n = 0; n < parts.shape.query_heads; ++n) {
        query_source.push_back(n);
        kv_source.push_back(n / group);
    }
    const SelectedParts repeated = with_heads(parts, query_source, kv_source);
    const SelectedRun left(parts, context), right(repeated, context);
    if (auto trouble = trouble_of({&left, &right})) return *trouble;
    const ExpectedOutputs expected = expected_of(parts, context.rounding);
    if (!parts.gradient)
        return verdict_on_equal_runs(spec, left, right, expected, expected,
                                     "key/value heads repeated");
    const ExpectedOutputs repeated_expected = expected_of(repeated, context.rounding);
    Verdict all;
    for (const std::string& name : left.output_names()) {
        const auto summed = [&](const std::vector<double>& values) {
            if (name == "dq") return values;
            const auto width = static_cast<std::size_t>(left.call.tensor(name).buffer_shape[2]);
            std::vector<double> sum(values.size() / static_cast<std::size_t>(group));
            for (std::size_t k = 0; k < values.size(); ++k)
                sum[k / (width * static_cast<std::size_t>(group)) * width + k % width] += values[k];
            return sum;
        };
        join(all, verdict_on_runs(spec, left, name, left.values(name), summed(right.values(name)),
                                  sum_of(allowance(tensor_of(expected, name)),
                                         summed(allowance(tensor_of(repeated_expected, name)))),
                                  "key/value heads repeated"));
    }
    return all;
}

void with_several_heads(Spec& spec, Random& random) {
    with_less_data(spec, random);
    if (spec.numbers[kSelKvHeads] > 1) return;
    spec.numbers[kSelKvHeads] = random.between(2, 3);
    spec.numbers[kSelGroup] = (spec.numbers[kSelGroup] + 1) / 2;
}

void with_group(Spec& spec, Random& random) {
    with_less_data(spec, random);
    if (spec.numbers[kSelGroup] == 1) spec.numbers[kSelGroup] = random.between(2, 3);
}

void with_sequences(Spec& spec, Random& random) {
    with_less_data(spec, random);
    if (spec.lists[0].size() > 1) return;
    spec.lists[0].push_back(random.between(1, 20));
    spec.lists[1].push_back(spec.numbers[kSelBlock] *
                            (spec.numbers[kSelCount] + random.between(0, 2)));
}

}  // namespace

void add_selected_shared_relations(std::vector<Property>& list) {
    add_selected_list_relations(list);
    list.push_back({"unselected",
                    "NaN in keys that no row sees changes no bit",
                    unselected,
                    with_spare_blocks,
                    {}});
    list.push_back({"causality", "NaN behind the mask changes no bit of the rows it is hidden from",
                    causality, with_mask,
                    [](const Spec& spec) { return spec.numbers[kSelMask] != 0; }});
    list.push_back(
        {"row_view", "NaN in all that a row does not see changes no bit of it", row_view, {}, {}});
    list.push_back({"packing", "sequences packed together give what each gives alone", packing,
                    with_sequences, moderate});
    list.push_back({"head_permutation", "permuting key/value heads with their groups",
                    head_permutation, with_several_heads, moderate});
    list.push_back({"group_permutation", "permuting the query heads of a group", group_permutation,
                    with_group, moderate});
    list.push_back(
        {"gqa_repeat", "a group is its key/value head repeated", gqa_repeat, with_group, moderate});
}

}  // namespace attncheck::properties
