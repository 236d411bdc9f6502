// Attention laws of what a row may not depend on: NaN in its place must change no bit.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "properties/laws/attention_laws.h"
#include "properties/laws/attention_run.h"
#include "properties/laws/attention_sight.h"
#include "ref/attention/rounding_noise.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

bool any(const std::vector<char>& marks) {
    return std::find(marks.begin(), marks.end(), 1) != marks.end();
}

std::vector<char> all_but(std::vector<char> marks) {
    for (char& mark : marks) mark = !mark;
    return marks;
}

/// True if packed element k belongs to one of these rows [T1,N1], or keys [T2,N2]. A list belongs
/// to all query heads of its group.
bool belongs_to(const AttentionProblem& problem, const AttentionOutput& output, std::size_t k,
                const std::vector<char>& rows, const std::vector<char>& keys) {
    if (output.is_sum) return true;  // of any row
    const std::size_t row = k / static_cast<std::size_t>(output.width);
    if (output.of_keys) return keys[row] != 0;
    if (!output.is_list()) return rows[row] != 0;
    const Int group = problem.shape.group();
    const auto first = rows.begin() + static_cast<Int>(row) * group;
    return std::find(first, first + group, 1) != first + group;
}

/// These keys and all that these rows see: a gradient that is not given the statistics of a row
/// forms them from every key of it.
std::vector<char> keys_of_rows(const AttentionProblem& problem, const std::vector<char>& rows,
                               std::vector<char> keys) {
    for_each_row(problem, [&](Int t, Int n, const std::vector<ref::KeyColumn>& columns) {
        if (!rows[static_cast<std::size_t>(t * problem.shape.query_heads + n)]) return;
        for (const ref::KeyColumn& column : columns) keys[key_number(problem, column, n)] = 1;
    });
    return keys;
}

/// NaN in these keys and in the queries of these rows changes no bit of what does not meet them:
/// statistics, output, lists and dq of the other rows that see none of the keys, dk and dv of the
/// other keys.
Verdict verdict_on_poison(const AttentionOperator& of, const AttentionProblem& problem,
                          PropertyContext& context, const std::vector<char>& keys,
                          const std::vector<char>& queries, const std::string& relation) {
    if (!is_poison_judged(problem, context)) return inapplicable();
    AttentionProblem poisoned = problem;
    poison_keys(poisoned, keys, context);
    std::vector<char> touched = rows_that_see(problem, keys);
    const std::uint32_t nan = ref::encode(problem.dtype, std::numeric_limits<double>::quiet_NaN());
    for (std::size_t row = 0; row < queries.size(); ++row) {
        if (!queries[row]) continue;
        touched[row] = 1;
        std::fill_n(poisoned.query.begin() + static_cast<Int>(row) * problem.shape.head_dim,
                    problem.shape.head_dim, nan);
    }
    const bool forms_statistics = problem.gradient && (problem.statistics == Statistics::none || context.rounding.own_forward);
    const std::vector<char> reached =
        forms_statistics ? keys_of_rows(problem, touched, keys) : keys;
    const AttentionRun plain(of, problem, context), changed(of, poisoned, context);
    if (auto early = first_early_verdict({&plain, &changed})) return *early;
    return verdict_on_equal_bits(plain, changed, context, relation, [&](const std::string& name, std::size_t k) {
            return !belongs_to(problem, problem.output_named(name), k, touched, reached);
        });
}

}  // namespace

void AttentionOperator::with_less_data(Spec& spec, Random& random) const {
    with_fewer_queries(spec, random);
}

std::vector<char> AttentionOperator::masked_keys(const AttentionProblem& problem, Int t) const {
    const auto places = ref::sequence_places(problem.query_lengths, problem.shape.query_rows);
    const auto b = static_cast<std::size_t>(places[static_cast<std::size_t>(t)].sequence);
    const Int first = row_starts(problem.kv_lengths)[b], last = first + problem.kv_lengths[b];
    std::vector<char> keys = all_but(keys_seen_by(problem, t));
    for (std::size_t k = 0; k < keys.size(); ++k) {
        const Int key = static_cast<Int>(k) / problem.shape.kv_heads;
        if (key < first || key >= last) keys[k] = 0;
    }
    return keys;
}

/// A key that no row sees has no effect, and its gradient is 0.
/// Why     contract decision 12: a hidden key is skipped, never multiplied by zero; decision 4 for
///         rows beyond the last sequence.
/// Domain  keys that are hidden from every row, or in no list; any data. They become NaN.
/// Demand  the same bits, lists included; dk and dv of these keys 0, of either sign: a negative
///         scale times 0 is -0.
/// Kills   FA-19 35 39, FAG-42, NSF-x28 x44 x45, NSG-17 x15 x30, NCA-12 x11 x13 x22 x28.
/// Shrinks to one query, two keys or blocks of keys, one of them seen, all data 0.
Verdict hidden(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    const std::vector<char> unseen = all_but(seen_keys(problem));
    if (!any(unseen) || !is_poison_judged(problem, context)) return inapplicable();
    AttentionProblem poisoned = problem;
    poison_keys(poisoned, unseen, context);
    const AttentionRun plain(of, problem, context), changed(of, poisoned, context);
    if (auto early = first_early_verdict({&plain, &changed})) return *early;
    const std::string poison = poison_name(problem.dtype, context);
    Verdict verdict = verdict_on_equal_bits(plain, changed, context,
                                            "with " + poison + " in keys and values that no row sees");
    if (verdict.failed()) return verdict;
    for (const AttentionOutput& output : problem.outputs()) {
        if (!output.of_keys) continue;
        const std::vector<double> values = changed.values(output.name);
        for (std::size_t k = 0; k < values.size(); ++k)
            if (unseen[k / static_cast<std::size_t>(output.width)] && values[k] != 0)
                return Verdict::fail(fmt::format("{} of an unseen key is not 0", output.name),
                                     fmt::format("{}  expected 0  got {:.9g}",
                                                 problem.place(output.name, k), values[k]));
    }
    return verdict;
}

/// A key that the mask hides from a row does not reach that row: no row of a causal mode depends on the future.
/// Why     contract decisions 6, 8 and 12. In the gradient every pair of row and key has a term of
///         its own, because the statistics are given: NaN in a key reaches dq of the rows that see
///         it and its own dk and dv, nothing else.
/// Domain  cases with a mask, any data; the keys that it hides from one row of one sequence become
///         NaN.
/// Demand  the same bits in all rows that see none of them.
/// Kills   FA-15 19 35, FAG-03 42, NSF-04 08 x44 x45 x50, NSG-x18 x21, NCA-x11 x13 x15 x22 x28.
/// Shrinks to one query, one key or block of keys, one head, one hidden pair.
Verdict causality(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    const std::vector<Int> rows = rows_with_keys(problem);
    if (rows.empty()) return inapplicable();
    const auto places = ref::sequence_places(problem.query_lengths, problem.shape.query_rows);
    Random random(mix(spec.seed));
    for (int tries = 0; tries < 8; ++tries) {
        const Int t = random.pick(rows);
        const std::vector<char> keys = of.masked_keys(problem, t);
        if (!any(keys)) continue;
        const ref::SequencePlace& place = places[static_cast<std::size_t>(t)];
        return verdict_on_poison(of, problem, context, keys, {},
                                 fmt::format("with {} in what the mask hides from query {} of "
                                             "{} {}",
                                             poison_name(problem.dtype, context), place.position, problem.sequence_word,
                                             place.sequence));
    }
    return inapplicable();
}

/// A row depends on what it sees and on nothing else.
/// Why     as above; the keys that one token's rows do not see are hidden, of other heads, in other
///         blocks or in other sequences. In the forward no row sees another query.
/// Domain  any data; all keys but those that the rows of one token see become NaN, in the forward
///         also the queries of all rows that see some of these, and of half of the others.
/// Demand  the same bits in that token's rows and in all others that meet no NaN.
/// Kills   FA-13 15 19, FAG-42, NSF-18 x28 x44 x45, NSG-x16 x18 x21, NCA-12 x11 x13 x22 x28.
/// Shrinks to two queries, one key.
Verdict row_view(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = of.problem(spec);
    const std::vector<Int> rows = rows_with_keys(problem);
    if (rows.empty()) return inapplicable();
    Random random(mix(spec.seed));
    const Int t = random.pick(rows);
    const std::vector<char> others = all_but(keys_seen_by(problem, t));
    std::vector<char> queries;
    if (!problem.gradient) {
        queries = rows_that_see(problem, others);
        for (std::size_t row = 0; row < queries.size(); ++row)
            if (static_cast<Int>(row) / problem.shape.query_heads == t)
                queries[row] = 0;
            else if (random.chance(50))
                queries[row] = 1;
    }
    return verdict_on_poison(
        of, problem, context, others, queries,
        fmt::format("with {} in all keys but those that query row {} sees",
                    poison_name(problem.dtype, context), t));
}

}  // namespace attncheck::properties
