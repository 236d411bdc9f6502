// Relations that only a paged cache has: where a key lies, with whom its page is shared and what
// stands in places that nobody may read does not matter.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "properties/laws/attention_laws.h"
#include "properties/laws/attention_run.h"
#include "properties/laws/attention_sight.h"
#include "properties/laws/relation_checks.h"
#include "properties/operators/attention_decode/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// Page `to` of one cache becomes page `from` of another.
void copy_page(const DecodeParts& source, Int from, DecodeParts& target, Int to) {
    const ref::DecodeShape& s = source.shape;
    const auto copy = [&](const Bits& here, Bits& there, Int width) {
        const Int count = s.page_size * s.kv_heads * width;
        std::copy_n(here.begin() + from * count, count, there.begin() + to * count);
    };
    copy(source.key, target.key, s.head_dim);
    copy(source.value, target.value, s.value_dim);
}

/// Runs visit(sequence, page of the sequence) for every entry that is read.
template <class Visit>
void for_each_entry(const DecodeParts& parts, Visit&& visit) {
    for (std::size_t b = 0; b < parts.shape.kv_lengths.size(); ++b)
        for (Int p = 0; p < parts.shape.pages_of(b); ++p) visit(b, p);
}

Verdict identical(const AttentionProblem& problem, DecodeParts changed, PropertyContext& context,
                  const std::string& relation) {
    if (!is_poison_judged(problem, context)) return inapplicable();
    return verdict_on_identical_problems(decode_operator(), problem,
                                         decode_problem(std::move(changed)), context, relation);
}

/// The pages of the cache may stand in any order.
/// Why     the block table says where a page is; nothing depends on its number.
/// Domain  any data; pages are exchanged, and their numbers in the table with them.
/// Demand  the same bits.
/// Kills   AD-01 02 03 05: a table that is not read, or read for one sequence only.
/// Shrinks to one sequence, two pages of one slot, one of them with a value that is not 0.
Verdict page_order(const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = decode_inputs(spec);
    const DecodeParts parts = parts_of<DecodeParts>(problem);
    if (parts.shape.pages < 2) return inapplicable();
    Random random(mix(spec.seed));
    const std::vector<Int> place = permutation(parts.shape.pages, random);
    DecodeParts moved = parts;
    for (Int page = 0; page < parts.shape.pages; ++page)
        copy_page(parts, page, moved, place[static_cast<std::size_t>(page)]);
    for_each_entry(parts, [&](std::size_t b, Int p) {
        moved.entry(b, p) = static_cast<std::int32_t>(
            place[static_cast<std::size_t>(parts.entry(b, p))]);
    });
    return identical(problem, std::move(moved), context, "with the pages of the cache in another order");
}

/// A page that sequences share may as well be several pages of the same contents.
/// Why     no sequence knows who else reads a page.
/// Domain  any data; every entry of the table that is read gets a separate page.
/// Demand  the same bits.
/// Kills   AD-01 02 04: work that is divided by pages of the cache.
/// Shrinks to two sequences with one page.
Verdict page_sharing(const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = decode_inputs(spec);
    const DecodeParts parts = parts_of<DecodeParts>(problem);
    if (parts.shape.pages == 0) return inapplicable();
    DecodeParts own = on_own_pages(parts, parts.shape.page_size, poison_of(parts.dtype, context));
    return identical(problem, std::move(own), context, "with a page of its own for every entry");
}

/// Memory that belongs to no sequence is not read: entries behind the last page, pages in no list, and slots
/// behind the last position.
/// Why     the contract; servers leave there what earlier requests had, or nothing at all.
/// Domain  any data; the entries become others, the table gets one more column, the slots NaN.
/// Demand  the same bits, and no access outside the cache.
/// Kills   AD-02 05 06 07.
/// Shrinks to one sequence of one key in a page of two slots.
Verdict unowned(const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = decode_inputs(spec);
    const DecodeParts parts = parts_of<DecodeParts>(problem);
    const ref::DecodeShape& s = parts.shape;
    Random random(mix(spec.seed));
    DecodeParts changed = parts;
    changed.shape.table_columns = s.table_columns + 1;
    changed.block_table.clear();
    for (std::size_t b = 0; b < s.kv_lengths.size(); ++b)
        for (Int p = 0; p <= s.table_columns; ++p)
            changed.block_table.push_back(
                p < s.pages_of(b) ? parts.entry(b, p)
                                  : random.pick<std::int32_t>({-1, INT32_MAX, INT32_MIN, 1 << 20, 0}));
    fill_unowned(changed, poison_of(parts.dtype, context));
    return identical(problem, std::move(changed), context,
                     "with other entries behind the last page and " +
                         poison_name(parts.dtype, context) + " in slots of no sequence");
}

/// The same positions on pages of another size.
/// Why     the size of a page says where a key lies and nothing else.
/// Domain  moderate data; pages of any other size from 1 to 256.
/// Bound   twice that of the case: a kernel may cut its sums at pages.
/// Kills   AD-08 09, AD-WILD-43: a size that is taken for granted.
/// Shrinks to one sequence of two keys.
Verdict page_size(const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = decode_inputs(spec);
    const DecodeParts parts = parts_of<DecodeParts>(problem);
    Random random(mix(spec.seed));
    const ref::DecodeShape& s = parts.shape;
    Int size = s.page_size;
    while (size == s.page_size)
        size = random.pick<Int>({1, 2, 3, 7, 8, 15, 16, 16, 32, 64, 128, 256});
    if (!is_poison_judged(problem, context)) return inapplicable();
    DecodeParts other = on_own_pages(parts, size, poison_of(parts.dtype, context));
    const std::string relation =
        fmt::format("on pages of {} instead of {} slots", size, s.page_size);
    return verdict_on_equal_problems(decode_operator(), problem, decode_problem(std::move(other)),
                                     context, relation);
}

/// Several queries at once give what each gives alone, at the length at which it is the last one.
/// Why     query i of Sq stands at kv_length - Sq + i and sees nothing behind itself.
/// Domain  moderate data.
/// Bound   twice that of the case.
/// Kills   AD-10 11 12 14, AD-WILD-26 39: a diagonal through another corner, a path of one query.
/// Shrinks to two queries, two keys.
Verdict single_queries(const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = decode_inputs(spec);
    const DecodeParts parts = parts_of<DecodeParts>(problem);
    const ref::DecodeShape& s = parts.shape;
    if (s.queries < 2) return inapplicable();
    const AttentionRun together(decode_operator(), problem, context);
    if (together.early_verdict) return *together.early_verdict;
    const ExpectedOutputs expected = expected_of(problem, context.rounding);
    Random random(mix(spec.seed));
    const Int i = random.between(0, s.queries - 1), heads = s.query_heads;
    DecodeParts one = parts;
    one.shape.queries = 1;
    one.query.clear();
    for (std::size_t b = 0; b < s.kv_lengths.size(); ++b) {
        one.shape.kv_lengths[b] = std::max<Int>(s.kv_lengths[b] - s.queries + 1 + i, 0);
        const Bits row = slice(parts.query, static_cast<Int>(b) * s.queries + i, 1,
                               heads * s.head_dim);
        one.query.insert(one.query.end(), row.begin(), row.end());
    }
    const AttentionProblem alone = decode_problem(std::move(one));
    const AttentionRun single(decode_operator(), alone, context);
    if (single.early_verdict) return *single.early_verdict;
    Verdict all;
    for (const AttentionOutput& output : problem.outputs()) {
        const Int width = heads * output.width;
        const auto rows_of = [&](const std::vector<double>& values) {
            std::vector<double> out;
            for (Int b = 0; b < s.batches(); ++b) {
                const auto first = values.begin() + (b * s.queries + i) * width;
                out.insert(out.end(), first, first + width);
            }
            return out;
        };
        join(all, verdict_within(
                      alone, output.name, rows_of(together.values(output.name)),
                      single.values(output.name),
                      times(rows_of(allowance(tensor_of(expected, output.name))), 2),
                      fmt::format("query {} of {} against the same query alone", i, s.queries)));
    }
    return all;
}

}  // namespace

void add_decode_laws(std::vector<Property>& list) {
    const auto add = [&](const char* name, const char* summary,
                         Verdict (*law)(const Spec&, PropertyContext&),
                         void (*adapt)(Spec&, Random&), bool any_data = false) {
        Property property{name, summary, law, adapt, moderate};
        if (any_data) property.domain = nullptr;
        list.push_back(std::move(property));
    };
    constexpr bool kAnyData = true;
    add("page_order", "pages in another order change no bit", page_order,
        [](Spec& spec, Random&) { spec.set("spare", std::max<Int>(spec.number("spare"), 1)); },
        kAnyData);
    add("page_sharing", "a page of its own for every sequence changes no bit", page_sharing,
        [](Spec& spec, Random& random) {
            if (spec.number("shared") == 0) spec.set("shared", random.between(1, 2));
        },
        kAnyData);
    add("unowned", "entries, pages and slots of no sequence change no bit", unowned, nullptr,
        kAnyData);
    add("page_size", "pages of another size", page_size, with_moderate_data);
    add("single_queries", "several queries against each alone", single_queries,
        [](Spec& spec, Random& random) {
            with_moderate_data(spec, random);
            if (spec.lists[0][0] == 1) set_queries(spec, random.between(2, 6));
        });
    list.push_back(split_keys_law());
    list.push_back(last_rows_law());
}

}  // namespace attncheck::properties
