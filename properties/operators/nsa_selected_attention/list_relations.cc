// Relations between runs of selected attention whose lists differ and say the same: their order,
// entries listed twice, all blocks listed, smaller blocks. In both directions.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "properties/laws/attention_run.h"
#include "properties/operators/nsa_selected_attention/problem.h"

namespace attncheck::properties {
namespace {

bool is_statistic_of_empty_row(double row_sum) { return row_sum >= ref::kEmptyRowSum; }

/// Lists of `count` entries: `fill` appends the new entries of an old list.
template <class Fill>
void change_lists(SelectedParts& parts, std::int64_t count, const Fill& fill) {
    const auto old = static_cast<std::size_t>(parts.shape.count);
    Bits topk;
    for (std::size_t first = 0; first < parts.topk.size(); first += old)
        fill(std::span<const std::uint32_t>(parts.topk).subspan(first, old), topk);
    parts.topk = std::move(topk);
    parts.shape.count = count;
}

/// Sets block size and count and lengthens key sequences that are too short for them.
void set_blocks(Spec& spec, std::int64_t block, std::int64_t count) {
    spec.numbers[kSelBlock] = block;
    spec.numbers[kSelCount] = count;
    for (auto& length : spec.lists[1])
        if (length > 0) length = std::max((length + block - 1) / block, count) * block;
}

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
    return verdict_on_equal_problems(selected_attention_operator(), selected_problem(parts),
                                     selected_problem(shuffled), context, "every list permuted");
}

void with_longer_lists(Spec& spec, Random& random) {
    with_fewer_queries(spec, random);
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
    const AttentionProblem once_problem = selected_problem(parts),
                           twice_problem = selected_problem(twice);
    const AttentionOperator& of = selected_attention_operator();
    const AttentionRun left(of, once_problem, context), right(of, twice_problem, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    const ExpectedOutputs twice_expected = expected_of(twice_problem, context.rounding);
    Verdict all;
    for (const auto& [name, once_expected] : expected_of(once_problem, context.rounding)) {
        std::vector<double> values = left.values(name), allowed = allowance(once_expected);
        const bool row_sum = once_problem.output_named(name).is_row_sum();
        for (std::size_t k = 0; k < values.size() && row_sum; ++k) {
            if (is_statistic_of_empty_row(values[k])) continue;
            values[k] *= 2;
            allowed[k] *= 2;
        }
        join(all, verdict_within(once_problem, name, values, right.values(name),
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
    with_fewer_queries(spec, random);
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
    return [rows, parts](std::int64_t t, std::int64_t, std::vector<ref::KeyColumn>& columns) {
        if (t >= std::ssize(rows)) return false;
        const Row& row = rows[static_cast<std::size_t>(t)];
        for (std::int64_t position = 0; position < row.keys; ++position)
            if (!parts.mask.present || !parts.hides(row.position, position))
                columns.push_back({row.first_key + position, 0, true});
        return true;
    };
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
    AttentionProblem problem = selected_problem(parts);
    if (problem.gradient) give_reference_forward(problem);
    const Call call = selected_attention_operator().call(problem);
    const CallResult result = context.candidate.run(call, {});
    if (auto early = verdict_unless_ok(result)) return *early;
    problem.columns = all_visible_keys(parts);
    return verdict_on_values(spec, call, result, expected_of(problem, context.rounding));
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
    return verdict_on_equal_problems(
        selected_attention_operator(), selected_problem(parts), selected_problem(finer), context,
        fmt::format("blocks of {} against blocks of {}", parts.shape.block, finer.shape.block));
}

void make_cuttable(Spec& spec, Random& random) {
    with_fewer_queries(spec, random);
    const std::int64_t block = random.pick<std::int64_t>({32, 32, 48, 64, 64, 96, 128});
    set_blocks(spec, block, std::min<std::int64_t>(spec.numbers[kSelCount], 256 / block));
}

}  // namespace

void add_selected_list_relations(std::vector<Property>& list) {
    list.push_back({"list_order", "the order of a list means nothing", list_order,
                    with_longer_lists, moderate});
    list.push_back({"multiset", "every entry twice: twice the row sum, all else the same", multiset,
                    make_fit_twice,
                    [](const Spec& spec) { return moderate(spec) && fits_twice(spec); }});
    list.push_back({"dense", "all blocks listed make dense attention", dense,
                    make_select_everything, selects_everything});
    list.push_back({"reblocking", "the same keys in smaller blocks", reblocking, make_cuttable,
                    [](const Spec& spec) { return moderate(spec) && !block_cuts(spec).empty(); }});
}

}  // namespace attncheck::properties
