// Relations of the lists of selected blocks: forced blocks, more and fewer of them, windows.
//
// Lists of two runs may differ where rounding leaves the order of two scores open; they are then
// both judged by the reference (verdict_on_lists of laws/attention_run.h).
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "properties/laws/attention_run.h"
#include "properties/operators/nsa_compress_attention/problem.h"

namespace attncheck::properties::compress_attention {
namespace {

/// Both problems have the same numbers, within twice the bound of the first, and the lists of the
/// second are those that `predict` makes of the first's, or right.
Verdict verdict_on_problems(const Parts& first, const Parts& second, PropertyContext& context,
                            const std::string& relation,
                            const std::function<Bits(const Bits&)>& predict = {}) {
    const AttentionProblem left_problem = problem_of(first), right_problem = problem_of(second);
    const AttentionOperator& of = attention_operator();
    const AttentionRun left(of, left_problem, context), right(of, right_problem, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    Verdict all = verdict_on_equal_runs(left, right, context, relation);
    const Bits &given = left.bits("topk_indices"), predicted = predict ? predict(given) : given;
    join(all, verdict_on_lists(of, {right_problem, predicted},
                               {right_problem, right.bits("topk_indices")}, context, relation));
    return all;
}

/// What topk_mask forces precedes all else in ascending order, and the rest keeps its order.
/// Why     contract decision 7: forcing a block gives it a score above all others; nothing but the
///         lists depends on the mask.
/// Domain  cases with a topk_mask.
/// Demand  lists as predicted from the run without the mask, or right; all else within the bound.
/// Kills   NCA-x03 x05 x06 x07 x08 x09 x10 x24.
/// Shrinks to one query, two blocks, the second forced.
Verdict forced_blocks(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    if (!parts.topk_mask.present) return inapplicable();
    Parts free = parts;
    free.topk_mask.present = false;
    free.topk_mask.bits.clear();
    const auto queries = ref::compress_queries(parts.shape);
    const auto count = static_cast<std::size_t>(parts.shape.select_count);
    return verdict_on_problems(
        free, parts, context, "topk_mask against none", [&](const Bits& unforced) {
            Bits predicted = unforced;
            for (std::size_t at = 0; at < predicted.size(); at += count) {
                const auto& query =
                    queries[at / (count * static_cast<std::size_t>(parts.shape.kv_heads))];
                if (query.sequence < 0) continue;
                Bits list;
                for (std::int64_t j = 0; j < parts.shape.select_blocks(query.kv_length); ++j)
                    if (parts.topk_mask.at(query.position, j))
                        list.push_back(static_cast<std::uint32_t>(j));
                for (std::size_t k = at; k < at + count; ++k) {
                    const auto block = static_cast<std::int32_t>(predicted[k]);
                    const bool inside = block >= 0 && block < parts.topk_mask.shape[1];
                    if (!inside || !parts.topk_mask.at(query.position, block))
                        list.push_back(predicted[k]);
                }
                std::copy_n(list.begin(), count,
                            predicted.begin() + static_cast<std::ptrdiff_t>(at));
            }
            return predicted;
        });
}

/// A shorter list is the beginning of a longer one.
/// Why     the list is sorted; K only says where it ends.
/// Domain  count > 1.
/// Demand  the first K' of K entries, or lists that are right; all else within the bound.
/// Kills   NCA-x04 x18 x20 x33.
/// Shrinks to one query, two blocks, count 2.
Verdict prefix(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    const std::int64_t count = parts.shape.select_count;
    if (count < 2) return inapplicable();
    Parts fewer = parts;
    fewer.shape.select_count = Random(mix(spec.seed)).between(1, count - 1);
    return verdict_on_problems(
        parts, fewer, context,
        fmt::format("count {} against {}", count, fewer.shape.select_count),
        [&](const Bits& lists) {
            Bits first;
            for (auto at = lists.begin(); at != lists.end(); at += count)
                first.insert(first.end(), at, at + fewer.shape.select_count);
            return first;
        });
}

void with_longer_lists(Spec& spec, Random& random) {
    with_fewer_queries(spec, random);
    if (spec.numbers[kCount] == 1) spec.numbers[kCount] = random.between(2, 4);
    lengthen_keys(spec);
}

/// With as many entries as blocks every block is listed once.
/// Why     lists are distinct and in range.
/// Domain  every sequence has no key or exactly K blocks; any data.
/// Kills   NCA-x24 x33.
/// Shrinks to one query, one block.
Verdict everything(const Spec& spec, PropertyContext& context) {
    const AttentionOperator& of = attention_operator();
    const AttentionProblem problem = of.problem(spec);
    const AttentionRun run(of, problem, context);
    if (run.early_verdict) return *run.early_verdict;
    const AttentionOutput& output = problem.output_named("topk_indices");
    const std::vector<std::int64_t> lists = lists_of(run.bits(output.name));
    const auto count = static_cast<std::size_t>(output.width);
    const auto judged = static_cast<std::size_t>(row_starts(problem.query_lengths).back() *
                                                 output.heads * output.width);
    for (std::size_t at = 0; at < judged; at += count) {
        std::vector<char> listed(count);
        for (std::size_t k = at; k < at + count; ++k) {
            const bool inside = lists[k] >= 0 && lists[k] < output.width;
            if (inside && !listed[static_cast<std::size_t>(lists[k])]) {
                listed[static_cast<std::size_t>(lists[k])] = 1;
                continue;
            }
            return Verdict::fail(
                "topk_indices breaks the relation",
                fmt::format("{}  {}: {}", problem.place(output.name, k), lists[k],
                            inside ? "is listed twice, but every block has one place"
                                   : "is no block of the sequence"));
        }
    }
    return {};
}

std::int64_t blocks_of(const Spec& spec, std::int64_t cmp) {
    const std::int64_t keys = keys_per_select(spec);
    return (cmp + keys - 1) / keys;
}

bool selects_everything(const Spec& spec) {
    return std::all_of(spec.lists[1].begin(), spec.lists[1].end(), [&](auto cmp) {
        return cmp == 0 || blocks_of(spec, cmp) == spec.numbers[kCount];
    });
}

void make_select_everything(Spec& spec, Random& random) {
    const std::int64_t keys = keys_per_select(spec);
    for (auto& cmp : spec.lists[1])
        if (cmp > 0) cmp = (spec.numbers[kCount] - 1) * keys + random.between(1, keys);
}

/// The key/value rows of a problem in another order within their sequences: key i of every sequence
/// comes from source(i, Cmp).
template <class Source>
Parts with_keys_moved(const Parts& parts, const Source& source) {
    Parts to = parts;
    const auto starts = row_starts(parts.shape.kv_lengths);
    for (std::size_t b = 0; b + 1 < starts.size(); ++b) {
        const std::int64_t cmp = parts.shape.kv_lengths[b];
        for (std::int64_t i = 0; i < cmp; ++i) {
            const std::int64_t from = source(i, cmp);
            for (const auto& [old_bits, new_bits] :
                 {std::pair{&parts.key, &to.key}, std::pair{&parts.value, &to.value}}) {
                const std::int64_t row = std::ssize(*old_bits) / parts.shape.total_keys;
                std::copy_n(old_bits->begin() + (starts[b] + from) * row, row,
                            new_bits->begin() + (starts[b] + i) * row);
            }
            for (std::int64_t r = 0; b == 0 && parts.mask.present && r < parts.mask.shape[0]; ++r)
                to.mask.bits[static_cast<std::size_t>(r * parts.mask.shape[1] + i)] =
                    parts.mask.bits[static_cast<std::size_t>(r * parts.mask.shape[1] + from)];
        }
    }
    return to;
}

/// Keys that lie equally often in every window may trade places.
/// Why     a score is a weighted sum over its window: P of keys with the same weights can be
/// exchanged, and softmax is a sum over all keys.
/// Domain  one sequence, or no mask (which would have to move differently in each of them).
/// Bound   twice that of one run; lists the same or right.
/// Kills   NCA-04 x01 x11 x26 x29 x31.
/// Shrinks to one query, M = 2, N = 1.
Verdict window_permutation(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    const ref::CompressAttentionShape& s = parts.shape;
    const std::int64_t keys = s.keys_per_select(), strides = s.strides_per_key();
    Random random(mix(spec.seed));
    std::map<std::int64_t, std::vector<std::int64_t>> source_of;  // by length
    bool moves = false;
    for (const std::int64_t cmp : s.kv_lengths) {
        if (source_of.contains(cmp)) continue;
        std::map<std::vector<std::int64_t>, std::vector<std::int64_t>> classes;
        for (std::int64_t i = 0; i < cmp; ++i) {
            std::vector<std::int64_t> weights;  // block and weight, where it is not zero
            for (std::int64_t j = std::max<std::int64_t>(0, i / keys - 1);
                 j < s.select_blocks(cmp) && keys * (j + 1) - i <= keys + strides - 2; ++j)
                if (keys * (j + 1) >= i)
                    weights.insert(weights.end(),
                                   {j, ref::window_weight(keys * (j + 1) - i, keys, strides)});
            classes[weights].push_back(i);
        }
        std::vector<std::int64_t>& source = source_of[cmp];
        source.resize(static_cast<std::size_t>(cmp));
        for (const auto& [weights, members] : classes) {
            const auto to = permutation(std::ssize(members), random);
            moves = moves || members.size() > 1;
            for (std::size_t k = 0; k < members.size(); ++k)
                source[static_cast<std::size_t>(members[k])] =
                    members[static_cast<std::size_t>(to[k])];
        }
    }
    if (!moves) return inapplicable();
    return verdict_on_problems(parts,
                               with_keys_moved(parts,
                                               [&](std::int64_t i, std::int64_t cmp) {
                                                   return source_of[cmp][static_cast<std::size_t>(i)];
                                               }),
                               context, "keys permuted among those with the same windows");
}

bool masked_alone(const Spec& spec) {
    return moderate(spec) && (spec.numbers[kMask] == 0 || spec.lists[0].size() == 1);
}

void with_wide_windows(Spec& spec, Random& random) {
    with_fewer_queries(spec, random);
    if (spec.lists[0].size() > 1) spec.numbers[kMask] = spec.numbers[kHides] = 0;
    if (spec.numbers[kSelect] - spec.numbers[kBlock] < spec.numbers[kStride]) {
        spec.numbers[kBlock] = spec.numbers[kStride] = 16;
        spec.numbers[kSelect] = random.pick<std::int64_t>({32, 48, 64});
        lengthen_keys(spec);
    }
}

/// Twice l, d and l' mean the same.
/// Why     only l' / d and floor(l / d) enter; the mask is what hides, not positions.
/// Domain  2 l' <= 128, 2 d <= 64.
/// Bound   twice that of one run; lists the same or right.
/// Kills   NCA-x14 x18 x20.
/// Shrinks to one query, one key, windows of 16.
Verdict coarser_tokens(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    Parts coarser = parts;
    coarser.shape.compress_block *= 2;
    coarser.shape.compress_stride *= 2;
    coarser.shape.select_block *= 2;
    return verdict_on_problems(parts, coarser, context, "block, stride and select doubled");
}

bool can_double(const Spec& spec) {
    return moderate(spec) && spec.numbers[kSelect] <= 64 && spec.numbers[kStride] <= 32;
}

void make_doublable(Spec& spec, Random& random) {
    with_fewer_queries(spec, random);
    if (!can_double(spec)) {
        spec.numbers[kStride] = 16;
        spec.numbers[kBlock] = random.pick<std::int64_t>({16, 32, 48});
        spec.numbers[kSelect] = random.pick<std::int64_t>({48, 64});
        lengthen_keys(spec);
    }
    // Positions at which a query is older than the first key's tokens, and no mask that says so.
    if (spec.lists[0].size() > 2 || spec.lists[1][0] == 0 || random.chance(60)) return;
    spec.numbers[kGroup] = spec.numbers[kKvHeads] = 1;
    spec.numbers[kMask] = spec.numbers[kHides] = 0;
    spec.lists[0][0] = spec.numbers[kBlock] + random.between(0, 8);
}

/// Both sparse modes mean the same.
/// Why     contract decision 7: a mask that is given hides, in either mode.
/// Bound   twice that of one run; lists the same or right.
/// Kills   NCA-x13 x18 x20.
/// Shrinks to one query, one key, one hidden pair.
Verdict sparse_modes(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    Parts other = parts;
    other.sparse_mode = 1 - parts.sparse_mode;
    return verdict_on_problems(
        parts, other, context,
        fmt::format("sparse_mode {} against {}", parts.sparse_mode, other.sparse_mode));
}

void with_topk_mask(Spec& spec, Random& random) {
    with_fewer_queries(spec, random);
    if (spec.numbers[kTopkMask] == 0) spec.numbers[kTopkMask] = random.between(1, 2);
}

}  // namespace

void add_list_relations(std::vector<Property>& list) {
    list.push_back({"forced_blocks", "forced blocks come first, the rest keeps its order",
                    forced_blocks, with_topk_mask, [](const Spec& spec) {
                        return moderate(spec) && spec.numbers[kTopkMask] != 0;
                    }});
    list.push_back({"prefix", "a shorter list is the beginning of a longer one", prefix,
                    with_longer_lists,
                    [](const Spec& spec) { return moderate(spec) && spec.numbers[kCount] > 1; }});
    list.push_back({"everything", "as many entries as blocks: every block once", everything,
                    make_select_everything, selects_everything});
    list.push_back({"window_permutation", "permuting keys that lie in the same windows",
                    window_permutation, with_wide_windows, masked_alone});
    list.push_back({"coarser_tokens", "twice block, stride and select mean the same",
                    coarser_tokens, make_doublable, can_double});
    list.push_back({"sparse_modes", "both sparse modes mean the same", sparse_modes, with_fewer_queries,
                    moderate});
}

}  // namespace attncheck::properties::compress_attention
