// Relations between runs of selected attention that hold in both directions, and those of the
// forward alone. Identities of the gradient are nsa_selected_attention_grad_relations.cc's concern,
// values of a single run nsa_selected_attention_properties.cc's.
//
// "Kills" names mutants that the property was seen to kill within 25 to 60 cases, not all of them:
// those that few other relations kill, or that say what it is for.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "properties/nsa_selected_attention_runs.h"

namespace attncheck::properties {
namespace {

constexpr std::size_t kLanes = 8;  ///< copies of every statistic
constexpr double kNotLookedAt = std::numeric_limits<double>::infinity();  ///< as an allowance

/// For relations that take two evaluations and more: moderate data, half the queries.
void with_less_data(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    fewer_queries(spec);
}

bool is_statistic_of_empty_row(double row_sum) { return row_sum >= ref::kEmptyRowSum; }

/// The order of a list means nothing.
/// Why     softmax and its gradient are sums over the listed keys (contract decision 6: visibility
/// does not depend on the place in the list).
/// Domain  lists with two different entries, moderate data.
/// Bound   the bounds of both runs added.
/// Kills   NSF-16 18 20 x18 x19 x20 x21, NSG-13 x23 x27.
/// Shrinks to one query, two blocks listed [1, 0], one non-zero logit.
Verdict list_order(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    SelectedParts shuffled = parts;
    Random random(mix(spec.seed));
    change_lists(shuffled, parts.shape.count, [&](auto list, auto& out) {
        for (const auto i : permutation(std::ssize(list), random))
            out.push_back(list[static_cast<std::size_t>(i)]);
    });
    if (shuffled.topk == parts.topk) return inapplicable();
    const SelectedRun left(parts, context), right(shuffled, context);
    if (auto trouble = trouble_of({&left, &right})) return *trouble;
    const ExpectedOutputs expected = expected_of(parts, context.rounding);
    return verdict_on_equal_runs(spec, left, right, expected, expected, "every list permuted");
}

void with_longer_lists(Spec& spec, Random& random) {
    with_less_data(spec, random);
    if (spec.numbers[kSelCount] == 1) set_blocks(spec, spec.numbers[kSelBlock], 2);
}

/// Every entry listed twice: twice the row sum, all else as before.
/// Why     lists are multisets: every weight exp(s - m) doubles, and so does their sum; P per copy
/// halves. In the gradient the given row sum is doubled with it, and a key gets the sum of what its
/// two copies get.
/// Domain  lists that fit in twice the length: 2 K <= 32 and 2 K blocks of keys.
/// Bound   the bounds of both runs added, that of the first row sum twice.
/// Kills   NSF-x01 x03 x04 x40, NSG-x01 x26 x34.
/// Shrinks to one query, two blocks of 16 keys, block 0 listed, all data 0.
Verdict multiset(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    SelectedParts twice = parts;
    change_lists(twice, 2 * parts.shape.count, [](auto list, auto& out) {
        out.insert(out.end(), list.begin(), list.end());
        out.insert(out.end(), list.begin(), list.end());
    });
    for (float& row_sum : twice.row_sum)
        if (!is_statistic_of_empty_row(row_sum)) row_sum *= 2;
    const SelectedRun left(parts, context), right(twice, context);
    if (auto trouble = trouble_of({&left, &right})) return *trouble;
    const ExpectedOutputs once_expected = expected_of(parts, context.rounding),
                          twice_expected = expected_of(twice, context.rounding);
    Verdict all;
    for (const std::string& name : left.output_names()) {
        std::vector<double> values = left.values(name),
                            allowed = allowance(tensor_of(once_expected, name));
        for (std::size_t k = 0; k < values.size() && name == "softmax_sum"; ++k) {
            if (is_statistic_of_empty_row(values[k])) continue;
            values[k] *= 2;
            allowed[k] *= 2;
        }
        join(all, verdict_on_runs(spec, left, name, values, right.values(name),
                                  sum_of(allowed, allowance(tensor_of(twice_expected, name))),
                                  "every list entry twice"));
    }
    return all;
}

bool fits_twice(const Spec& spec) {
    const std::int64_t twice = 2 * spec.numbers[kSelCount];
    return twice <= 32 && std::all_of(spec.lists[1].begin(), spec.lists[1].end(), [&](auto kv) {
               return kv == 0 || kv >= twice * spec.numbers[kSelBlock];
           });
}

void make_fit_twice(Spec& spec, Random& random) {
    with_less_data(spec, random);
    const std::int64_t block = spec.numbers[kSelBlock],
                       half = std::max<std::int64_t>(spec.numbers[kSelCount] / 2, 1);
    set_blocks(spec, block, 2 * half);
    spec.numbers[kSelCount] = half;
}

/// Every key of the row's sequence that the mask shows, written without lists and without the
/// oracle's index map.
ref::ColumnLister all_visible_keys(const SelectedParts& parts) {
    struct Row {
        std::int64_t position, first_key, keys;
    };
    std::vector<Row> rows;
    std::int64_t first_key = 0;
    for (std::size_t b = 0; b < parts.shape.query_lengths.size(); ++b) {
        for (std::int64_t s = 0; s < parts.shape.query_lengths[b]; ++s)
            rows.push_back({s, first_key, parts.shape.kv_lengths[b]});
        first_key += parts.shape.kv_lengths[b];
    }
    const bool masked = parts.mask.present, causal = parts.sparse_mode == 2;
    return [rows, masked, causal, mask = parts.mask](std::int64_t t, std::int64_t,
                                                     std::vector<ref::KeyColumn>& columns) {
        if (t >= std::ssize(rows)) return false;
        const Row& row = rows[static_cast<std::size_t>(t)];
        for (std::int64_t position = 0; position < row.keys; ++position) {
            const bool hidden =
                masked && (causal ? position > row.position
                                  : mask.bits[static_cast<std::size_t>(
                                        row.position * mask.shape[1] + position)] != 0);
            if (!hidden) columns.push_back({row.first_key + position, 0, true});
        }
        return true;
    };
}

ExpectedOutputs expected_over(const SelectedParts& parts, const ref::ColumnLister& columns,
                              const ref::RoundingClass& rounding) {
    const auto query = parts.values(parts.query), key = parts.values(parts.key),
               value = parts.values(parts.value);
    const ref::AttentionInputs<double> in{query, key, value, parts.narrowed_scale(), 1};
    ExpectedOutputs out;
    if (parts.gradient) {
        const auto output = parts.values(parts.output),
                   output_grad = parts.values(parts.output_grad);
        const std::vector<double> row_max(parts.row_max.begin(), parts.row_max.end()),
            row_sum(parts.row_sum.begin(), parts.row_sum.end());
        auto expected = ref::expected_attention_grad(parts.shape.dense(), columns,
                                                     {in, output_grad, output, row_max, row_sum},
                                                     parts.dtype, rounding);
        out.emplace_back("dq", std::move(expected.query_grad));
        out.emplace_back("dk", std::move(expected.key_grad));
        out.emplace_back("dv", std::move(expected.value_grad));
        return out;
    }
    auto expected =
        ref::expected_attention(parts.shape.dense(), columns, in, parts.dtype, rounding);
    for (const auto& [name, rows] : {std::pair{"softmax_max", &expected.row_max},
                                     std::pair{"softmax_sum", &expected.row_sum}}) {
        ref::ExpectedTensor lanes(rows->size() * kLanes);
        for (std::size_t k = 0; k < lanes.size(); ++k) {
            lanes.value[k] = rows->value[k / kLanes];
            lanes.bound[k] = rows->bound[k / kLanes];
            lanes.overflow[k] = rows->overflow[k / kLanes];
        }
        out.emplace_back(name, std::move(lanes));
    }
    out.emplace_back("attention_out", std::move(expected.output));
    return out;
}

/// Lists that name every block make dense attention.
/// Why     K blocks of the sequence, each once and in any order, are all its keys; what is left is
/// masked attention.
/// Domain  every sequence has no key or exactly K blocks; the lists are replaced by random
/// permutations.
/// Bound   that of the expected values, from a lister of all keys that shares nothing with the
/// oracle of lists.
/// Kills   NSF-x10 x13 x14 x41 x55 x56 x61 x62 x63, NSG-17 x02 x07 x17.
/// Shrinks to one query, one block of 16 keys, one head, all data 0.
Verdict dense(const Spec& spec, PropertyContext& context) {
    SelectedParts parts = selected_parts(spec);
    Random random(mix(spec.seed));
    change_lists(parts, parts.shape.count, [&](auto list, auto& out) {
        for (const auto block : permutation(std::ssize(list), random))
            out.push_back(static_cast<std::uint32_t>(block));
    });
    if (parts.gradient) give_reference_statistics(parts);
    const SelectedRun run(parts, context);
    if (run.trouble) return *run.trouble;
    return verdict_on_values(spec, run.call, run.result,
                             expected_over(parts, all_visible_keys(parts), context.rounding));
}

bool selects_everything(const Spec& spec) {
    const std::int64_t all = spec.numbers[kSelCount] * spec.numbers[kSelBlock];
    return std::all_of(spec.lists[1].begin(), spec.lists[1].end(),
                       [&](auto kv) { return kv == 0 || kv == all; });
}

void make_select_everything(Spec& spec, Random&) {
    for (auto& kv : spec.lists[1])
        if (kv > 0) kv = spec.numbers[kSelCount] * spec.numbers[kSelBlock];
}

/// Numbers of parts that a block can be cut into.
std::vector<std::int64_t> block_cuts(const Spec& spec) {
    std::vector<std::int64_t> cuts;
    for (std::int64_t cut = 2; cut <= 8; ++cut)
        if (spec.numbers[kSelBlock] % (16 * cut) == 0 && cut * spec.numbers[kSelCount] <= 32)
            cuts.push_back(cut);
    return cuts;
}

/// The same keys listed in smaller blocks.
/// Why     block i of B keys is blocks c i .. c i + c - 1 of B / c keys.
/// Domain  B / c a multiple of 16, c K <= 32.
/// Bound   the bounds of both runs added.
/// Kills   NSF-04 08 x03 x04 x29, NSG-x04 x29.
/// Shrinks to one query, one block of 32 keys, one non-zero logit.
Verdict reblocking(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    Random random(mix(spec.seed));
    const auto cut = static_cast<std::uint32_t>(random.pick(block_cuts(spec)));
    SelectedParts finer = parts;
    finer.shape.block /= cut;
    change_lists(finer, cut * parts.shape.count, [&](auto list, auto& out) {
        for (const std::uint32_t block : list)
            for (std::uint32_t i = 0; i < cut; ++i) out.push_back(block * cut + i);
    });
    const SelectedRun left(parts, context), right(finer, context);
    if (auto trouble = trouble_of({&left, &right})) return *trouble;
    const ExpectedOutputs expected = expected_of(parts, context.rounding);
    return verdict_on_equal_runs(
        spec, left, right, expected, expected,
        fmt::format("blocks of {} against blocks of {}", parts.shape.block, finer.shape.block));
}

void make_cuttable(Spec& spec, Random& random) {
    with_less_data(spec, random);
    const std::int64_t block = random.pick<std::int64_t>({32, 32, 48, 64, 64, 96, 128});
    set_blocks(spec, block, std::min<std::int64_t>(spec.numbers[kSelCount], 256 / block));
}

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

/// The part of `values` [rows, ...] that belongs to some rows.
template <class T>
std::vector<T> slice(const std::vector<T>& values, std::int64_t first, std::int64_t count,
                     std::int64_t row) {
    const auto begin = values.begin() + first * row;
    return std::vector<T>(begin, begin + count * row);
}

/// One sequence as a problem of its own. Without keys it gets one row that belongs to no sequence.
SelectedParts single_sequence(const SelectedParts& all, std::size_t b, std::int64_t query,
                              std::int64_t key) {
    SelectedParts one = all;
    ref::SelectedAttentionShape& s = one.shape;
    const std::int64_t queries = s.query_lengths[b], keys = s.kv_lengths[b];
    s.query_lengths = {queries};
    s.kv_lengths = {keys};
    s.total_queries = queries;
    s.total_keys = std::max<std::int64_t>(keys, 1);
    const auto key_rows = [&](const auto& bits, std::int64_t row) {
        return keys > 0 ? slice(bits, key, keys, row)
                        : std::vector<std::uint32_t>(static_cast<std::size_t>(row), 0);
    };
    one.query = slice(all.query, query, queries, s.query_heads * s.head_dim);
    one.key = key_rows(all.key, s.kv_heads * s.head_dim);
    one.value = key_rows(all.value, s.kv_heads * s.value_dim);
    one.topk = slice(all.topk, query, queries, s.kv_heads * s.count);
    if (all.gradient) {
        one.output = slice(all.output, query, queries, s.query_heads * s.value_dim);
        one.output_grad = slice(all.output_grad, query, queries, s.query_heads * s.value_dim);
        one.row_max = slice(all.row_max, query, queries, s.query_heads);
        one.row_sum = slice(all.row_sum, query, queries, s.query_heads);
    }
    if (!all.mask.present || all.sparse_mode != 0) return one;
    one.mask.bits.clear();
    for (std::int64_t row = 0; row < queries; ++row) {
        const auto first = all.mask.bits.begin() + row * all.mask.shape[1];
        one.mask.bits.insert(one.mask.bits.end(), first, first + keys);
    }
    one.mask.shape = {queries, keys};
    s.mask_columns = keys;
    return one;
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
            const SelectedRun alone(single_sequence(parts, b, query, key), context);
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

/// (2^a Q, 2^-a K) has the logits of (Q, K).
/// Why     every product q k is the same number; away from overflow and underflow rounding does not
/// look at exponents. dq goes with K, dk with Q.
/// Domain  moderate data, numbers below 2^-7 set to zero.
/// Demand  the same bits; dq and dk scaled, where they are normal numbers.
/// Kills   in the gradient NSG-05 06 x03 x12 x13 x35; in the forward no mutant of the arithmetic,
/// only NSF-x58 x59 x60 (memory, reuse of a buffer), which others kill as well.
Verdict power_of_two(const Spec& spec, PropertyContext& context) {
    SelectedParts parts = selected_parts(spec);
    if (!rounds_alike_at_every_scale(parts, context)) return inapplicable();
    drop_tiny(parts.dtype, parts.query);
    drop_tiny(parts.dtype, parts.key);
    SelectedParts scaled = parts;
    const int exponent = Random(mix(spec.seed)).pick<int>({-3, -1, 1, 3});
    if (!scale_exactly(parts.dtype, scaled.query, exponent) ||
        !scale_exactly(parts.dtype, scaled.key, -exponent))
        return inapplicable();
    const SelectedRun left(parts, context), right(scaled, context);
    if (auto trouble = trouble_of({&left, &right})) return *trouble;
    const std::string relation =
        fmt::format("query times 2^{}, key times 2^{}", exponent, -exponent);
    Verdict all = verdict_on_equal_bits(
        spec, left, right, relation,
        [](const std::string& name, std::size_t) { return name != "dq" && name != "dk"; });
    if (!parts.gradient) return all;
    join(all, verdict_on_scaled(spec, left, right, "dq", -exponent, relation));
    join(all, verdict_on_scaled(spec, left, right, "dk", exponent, relation));
    return all;
}

/// Twice V gives twice O. In the gradient (2 V, 2 O, dO / 2) has the dS of (V, O, dO), and half its
/// dV.
/// Why     O is linear in V; dP = <dO, V> and delta = <dO, O> stay the same numbers. Domain
/// moderate data, output gradients below 2^-7 set to zero.
/// Demand  the same bits: statistics, dq and dk as they were, O doubled and dv halved where they
/// are normal numbers.
/// Kills   NSF-x16 x17 x42 x46, NSG-x14 x16 x35 x36.
Verdict value_scale(const Spec& spec, PropertyContext& context) {
    SelectedParts parts = selected_parts(spec);
    if (!rounds_alike_at_every_scale(parts, context)) return inapplicable();
    drop_tiny(parts.dtype, parts.output_grad);
    SelectedParts scaled = parts;
    if (!scale_exactly(parts.dtype, scaled.value, 1) ||
        !scale_exactly(parts.dtype, scaled.output, 1) ||
        !scale_exactly(parts.dtype, scaled.output_grad, -1))
        return inapplicable();
    const SelectedRun left(parts, context), right(scaled, context);
    if (auto trouble = trouble_of({&left, &right})) return *trouble;
    const std::string relation =
        parts.gradient ? "value and output doubled, output gradient halved" : "value doubled";
    const char* follows = parts.gradient ? "dv" : "attention_out";
    Verdict all = verdict_on_equal_bits(
        spec, left, right, relation,
        [&](const std::string& name, std::size_t) { return name != follows; });
    join(all, verdict_on_scaled(spec, left, right, follows, parts.gradient ? -1 : 1, relation));
    return all;
}

/// A constant added to all values is added to the output.
/// Why     sum_j P_ij (v_j + c) = o_i + c, because P sums to 1.
/// Domain  values rounded to multiples of 1/8, c a whole number per key/value head and channel: V +
/// c is stored exactly.
/// Bound   the bounds of both runs added; the statistics do not look at V and keep their bits.
/// Kills   NSF-20 x02 x10 x13 x40 x41 x63.
/// Shrinks to one query, one block of 16 keys, one head, one non-zero logit.
Verdict value_shift(const Spec& spec, PropertyContext& context) {
    SelectedParts parts = selected_parts(spec);
    quantise(parts.dtype, parts.value);
    const ref::SelectedAttentionShape& s = parts.shape;
    const std::int64_t width = s.value_dim, group = s.dense().group();
    std::vector<double> constants(static_cast<std::size_t>(s.kv_heads * width));
    Random random(mix(spec.seed));
    for (double& c : constants) c = static_cast<double>(random.between(-3, 3));
    SelectedParts shifted = parts;
    if (!change_exactly(parts.dtype, shifted.value, [&](double value, std::size_t k) {
            return value + constants[k % constants.size()];
        }))
        return inapplicable();
    const SelectedRun left(parts, context), right(shifted, context);
    if (auto trouble = trouble_of({&left, &right})) return *trouble;
    const std::vector<char> with_keys = rows_that_see(
        parts, std::vector<char>(static_cast<std::size_t>(s.total_keys * s.kv_heads), 1));
    std::vector<double> moved = left.values("attention_out");
    for (std::size_t k = 0; k < moved.size(); ++k) {
        const auto row = k / static_cast<std::size_t>(width);
        const auto kv_head = static_cast<std::int64_t>(row) % s.query_heads / group;
        if (with_keys[row])
            moved[k] += constants[static_cast<std::size_t>(kv_head * width) +
                                  k % static_cast<std::size_t>(width)];
    }
    Verdict all = verdict_on_equal_bits(
        spec, left, right, "a constant added to all values",
        [](const std::string& name, std::size_t) { return name != "attention_out"; });
    const auto bound_of = [&](const SelectedParts& of) {
        return allowance(tensor_of(expected_of(of, context.rounding), "attention_out"));
    };
    join(all, verdict_on_runs(spec, left, "attention_out", moved, right.values("attention_out"),
                              sum_of(bound_of(parts), bound_of(shifted)),
                              "a constant added to all values"));
    return all;
}

/// A vector c added to all keys moves the logits of a row by scale <q, c> and nothing else.
/// Why     softmax does not change when all its arguments grow by the same number.
/// Domain  keys rounded to multiples of 1/8, c whole numbers per key/value head: K + c is stored
/// exactly.
/// Bound   the bounds of both runs added; softmax_max moves by scale <q, c>.
/// Kills   NSF-14 x09 x12 x13 x14 x55 x56.
/// Shrinks to one query, one block of 16 keys, one head, one non-zero query element.
Verdict key_shift(const Spec& spec, PropertyContext& context) {
    SelectedParts parts = selected_parts(spec);
    quantise(parts.dtype, parts.key);
    const ref::SelectedAttentionShape& s = parts.shape;
    std::vector<double> vectors(static_cast<std::size_t>(s.kv_heads * s.head_dim));
    Random random(mix(spec.seed));
    for (double& c : vectors) c = static_cast<double>(random.between(-2, 2));
    SelectedParts shifted = parts;
    if (!change_exactly(parts.dtype, shifted.key, [&](double key, std::size_t k) {
            return key + vectors[k % vectors.size()];
        }))
        return inapplicable();
    const SelectedRun left(parts, context), right(shifted, context);
    if (auto trouble = trouble_of({&left, &right})) return *trouble;
    const ExpectedOutputs expected = expected_of(parts, context.rounding),
                          shifted_expected = expected_of(shifted, context.rounding);
    const std::vector<double> query = parts.values(parts.query);
    Verdict all;
    for (const std::string& name : left.output_names()) {
        std::vector<double> moved = left.values(name);
        const std::size_t row =
            moved.size() / static_cast<std::size_t>(s.total_queries * s.query_heads);
        for (std::size_t k = 0; k < moved.size() && name == "softmax_max"; ++k) {
            if (moved[k] <= ref::kEmptyRowMax) continue;
            const std::size_t at = k / row;
            const auto n = static_cast<std::int64_t>(at) % s.query_heads;
            if (static_cast<std::int64_t>(at) / s.query_heads >=
                std::accumulate(s.query_lengths.begin(), s.query_lengths.end(), std::int64_t{0}))
                continue;  // beyond the last sequence: 0 stays 0
            moved[k] +=
                parts.narrowed_scale() *
                ref::inner_product(query.data() + at * static_cast<std::size_t>(s.head_dim),
                                   vectors.data() + n / s.dense().group() * s.head_dim, s.head_dim);
        }
        join(all, verdict_on_runs(spec, left, name, moved, right.values(name),
                                  sum_of(allowance(tensor_of(expected, name)),
                                         allowance(tensor_of(shifted_expected, name))),
                                  "a vector added to all keys"));
    }
    return all;
}

/// The eight elements of a statistic are one number, and the two statistics belong together.
/// Why     contract decision 3. row_max + log(row_sum) is the logarithm of sum exp(logit), whatever
/// maximum was subtracted, and its error is smaller than those of both: the error of the maximum
/// cancels. A sum with exp(0) = 1 in it is at least 1, at most the number of keys.
/// Bound   that of the LSE for the pair; 2^-20 for the sum against 1; the bits for the eight
/// elements.
/// Kills   NSF-14 16 x01 x12 x14 x30 x31 x32 x55.
/// Shrinks to one query, one block of 16 keys, one head, one non-zero logit.
Verdict statistics(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    const SelectedRun run(parts, context);
    if (run.trouble) return *run.trouble;
    for (const char* name : {"softmax_max", "softmax_sum"}) {
        const auto& bits = run.bits(name);
        for (std::size_t k = 0; k < bits.size(); ++k)
            if (bits[k] != bits[k / kLanes * kLanes])
                return Verdict::fail(
                    std::string(name) + " is not the same 8 times",
                    fmt::format("{}  {:.9g}  first of the eight {:.9g}",
                                place_of(spec, run.call, name, k),
                                ref::decode(ref::Dtype::fp32, bits[k]),
                                ref::decode(ref::Dtype::fp32, bits[k / kLanes * kLanes])));
    }
    const auto query = parts.values(parts.query), key = parts.values(parts.key),
               value = parts.values(parts.value);
    const ref::AttentionInputs<double> in{query, key, value, parts.narrowed_scale(), 1};
    const auto expected = ref::expected_attention(parts.shape.dense(), parts.columns(), in,
                                                  parts.dtype, context.rounding);
    const std::vector<double> row_max = run.values("softmax_max"),
                              row_sum = run.values("softmax_sum");
    const std::vector<double> allowed = allowance(expected.lse);
    std::vector<double> lse(row_max.size()), exact(lse.size()), bound(lse.size()), low(lse.size());
    for (std::size_t k = 0; k < lse.size(); ++k) {
        const std::size_t row = k / kLanes;
        const bool judged = std::isfinite(allowed[row]) && expected.row_sum.value[row] > 0;
        lse[k] = judged ? row_max[k] + std::log(row_sum[k]) : 0;
        exact[k] = judged ? expected.lse.value[row] : 0;
        bound[k] = judged ? allowed[row] : 0;
        low[k] = judged ? std::min(row_sum[k], 1.0) : 1;
    }
    Verdict all = verdict_on_runs(spec, run, "softmax_max", lse, exact, bound,
                                  "row_max + log(row_sum) against the exact LSE");
    join(all, verdict_on_runs(spec, run, "softmax_sum", low, std::vector<double>(low.size(), 1),
                              std::vector<double>(low.size(), 0x1p-20), "row_sum at least 1"));
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
    list.push_back({"list_order", "the order of a list means nothing", list_order,
                    with_longer_lists, moderate});
    list.push_back({"multiset", "every entry twice: twice the row sum, all else the same", multiset,
                    make_fit_twice,
                    [](const Spec& spec) { return moderate(spec) && fits_twice(spec); }});
    list.push_back({"dense", "all blocks listed make dense attention", dense,
                    make_select_everything, selects_everything});
    list.push_back({"reblocking", "the same keys in smaller blocks", reblocking, make_cuttable,
                    [](const Spec& spec) { return moderate(spec) && !block_cuts(spec).empty(); }});
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
    list.push_back({"power_of_two", "(2^a Q, 2^-a K) has the same logits, to the bit", power_of_two,
                    with_moderate_data, moderate});
    list.push_back({"value_scale", "twice V gives twice O, to the bit", value_scale,
                    with_moderate_data, moderate});
}

void add_selected_forward_relations(std::vector<Property>& list) {
    add_selected_shared_relations(list);
    list.push_back({"value_shift", "V + c gives O + c", value_shift, with_moderate_data, moderate});
    list.push_back({"key_shift", "K + c moves row_max by scale <q, c> and nothing else", key_shift,
                    with_moderate_data, moderate});
    list.push_back({"statistics", "eight equal elements; row_max + log(row_sum) is the LSE",
                    statistics, with_moderate_data, moderate});
}

}  // namespace attncheck::properties
