// AttentionMerge against the reference, what holds for every call, and its relations: a merge is a
// sum over parts, so their order and their grouping are the caller's choice.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "properties/case/attention_draws.h"
#include "properties/case/values.h"
#include "properties/laws/call_properties.h"
#include "properties/laws/law_run.h"
#include "properties/operators/attention_merge/problem.h"

namespace attncheck::properties {
namespace {

// ---- agreement ----

/// A row without a part that counts has LSE = -infinity, not NaN and not a large number.
/// Source: the contract. Kills AM-03.
Verdict judge_empty_rows(const MergeProblem& problem, const Call& call, const CallResult& result) {
    if (!problem.gives_lse) return {};
    const auto& bits = result.outputs[tensor_index(call, "lse")];
    const std::vector<bool> empty = empty_rows(problem);
    for (std::size_t row = 0; row < empty.size(); ++row)
        if (const double got = ref::decode(ref::Dtype::fp32, bits[row]);
            empty[row] && got != -kInfinity)
            return Verdict::fail(
                "lse of a row without parts",
                fmt::format("lse[row {}, head {}]  expected -inf  got {:.9g}",
                            static_cast<std::int64_t>(row) / problem.shape.heads,
                            static_cast<std::int64_t>(row) % problem.shape.heads, got));
    return {};
}

CaseProblem case_problem(const Spec& spec) {
    CaseProblem out;
    out.call = build_merge_call(without_edits(spec));
    const auto problem = std::make_shared<const MergeProblem>(out.call);
    out.expected = [problem](const ref::RoundingClass& rounding) {
        return outputs_of(problem->expected(rounding), problem->gives_lse);
    };
    out.judge = [problem, call = out.call](const CallResult& result, const ref::RoundingClass&) {
        return judge_empty_rows(*problem, call, result);
    };
    return out;
}

// ---- relations ----

/// One call; refers to the problem.
CallRun merge_run(const Spec& spec, const MergeProblem& problem, PropertyContext& context) {
    return {spec, problem.call(), context, [&problem](const ref::RoundingClass& rounding) {
                return outputs_of(problem.expected(rounding), problem.gives_lse);
            }};
}

/// Both problems give the same numbers within the bounds of both, but for what the second adds to
/// every LSE. An LSE that is not finite is agreement's concern.
Verdict same_merge(const Spec& spec, const MergeProblem& one, const MergeProblem& other,
                   PropertyContext& context, const std::string& relation, double lse_shift = 0) {
    const CallRun left = merge_run(spec, one, context), right = merge_run(spec, other, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    const ExpectedOutputs of_left = left.expected(context.rounding, ref::Grant::rounding),
                          of_right = right.expected(context.rounding, ref::Grant::rounding);
    Verdict all;
    for (std::size_t k = 0; k < std::min(of_left.size(), of_right.size()); ++k) {
        const auto& [name, expected] = of_left[k];
        std::vector<double> values = left.values(name),
                            allowed = sum_of(allowance(expected), allowance(of_right[k].second));
        for (std::size_t row = 0; name == "lse" && row < values.size(); ++row) {
            values[row] += lse_shift;
            if (!std::isfinite(expected.value[row])) allowed[row] = kInfinity;
        }
        join(all, verdict_within(name, values, right.values(name), allowed, relation,
                                 left.place(name)));
    }
    return all;
}

/// Whether the candidate takes the case with another number of parts.
bool takes_parts(Spec spec, std::int64_t count, const PropertyContext& context) {
    spec.set("parts", count);
    return context.takes(spec);
}

/// The numbers first..last that `is_taken` holds for.
template <class IsTaken>
std::vector<std::int64_t> numbers(std::int64_t first, std::int64_t last, const IsTaken& is_taken) {
    std::vector<std::int64_t> out;
    for (std::int64_t number = first; number <= last; ++number)
        if (is_taken(number)) out.push_back(number);
    return out;
}

/// The parts of `from` that `source` lists, in that order.
MergeProblem with_parts(const MergeProblem& from, const std::vector<std::int64_t>& source) {
    MergeProblem to = from;
    to.shape.parts = std::ssize(source);
    to.parts.clear(), to.lses.clear();
    const auto row = static_cast<std::ptrdiff_t>(from.row_count());
    const std::ptrdiff_t block = row * from.shape.value_dim;
    for (const std::int64_t part : source) {
        to.parts.insert(to.parts.end(), from.parts.begin() + part * block,
                        from.parts.begin() + (part + 1) * block);
        to.lses.insert(to.lses.end(), from.lses.begin() + part * row,
                       from.lses.begin() + (part + 1) * row);
    }
    return to;
}

/// The order of the parts does not matter.
/// Why     LSE and o are sums over the parts.
/// Domain  two parts or more, moderate data.
/// Bound   those of both runs.
/// Kills   AM-05 AM-06 AM-10.
/// Shrinks to two parts of one row.
Verdict part_permutation(const Spec& spec, PropertyContext& context) {
    const MergeProblem problem(spec);
    if (problem.shape.parts < 2) return inapplicable();
    Random random(mix(spec.seed));
    const MergeProblem turned = with_parts(problem, permutation(problem.shape.parts, random));
    return same_merge(spec, problem, turned, context, "with the parts in another order");
}

/// A part with lse = -infinity counts for nothing, whatever its values are.
/// Why     exp(-infinity) = 0, and the contract says that such a part is not read.
/// Domain  cases of moderate data that have such parts, which a library may declare that it does not take (dead=none); one to
///         three more, of NaN, are put anywhere, as many as a library takes.
/// Bound   those of both runs: the tiles of parts may lie elsewhere.
/// Kills   AM-02 AM-05 AM-08.
/// Shrinks to one part and one row.
Verdict dead_part(const Spec& spec, PropertyContext& context) {
    const MergeProblem problem(spec);
    MergeProblem more = problem;
    Random random(mix(spec.seed + 1));
    const auto row = static_cast<std::ptrdiff_t>(problem.row_count());
    const std::ptrdiff_t block = row * problem.shape.value_dim;
    const auto nan = ref::encode(problem.dtype, std::numeric_limits<double>::quiet_NaN());
    const auto dead = ref::encode(ref::Dtype::fp32, -kInfinity);
    const auto counts = numbers(1, 3, [&](std::int64_t added) {
        return takes_parts(spec, problem.shape.parts + added, context);
    });
    if (counts.empty()) return inapplicable();
    for (std::int64_t added = random.pick(counts); added > 0; --added) {
        const std::int64_t at = random.between(0, more.shape.parts++);
        more.parts.insert(more.parts.begin() + at * block, static_cast<std::size_t>(block), nan);
        more.lses.insert(more.lses.begin() + at * row, static_cast<std::size_t>(row), dead);
    }
    return same_merge(spec, problem, more, context, "with more parts of lse=-inf and values NaN");
}

/// Merging the merges of the first and of the last parts is merging all.
/// Why     exp(LSE_1) + exp(LSE_2) is the sum of all exp(lse_p), and o_k exp(LSE_k) that of all
///         o_p exp(lse_p).
/// Domain  two parts or more, lse present, moderate data; a library takes two parts and those of both merges.
/// Bound   those of the merge of all and of the last merge, and what the errors of the first two
///         move: e^{2 d} - 1 of sum w |o| for lses off by at most d, and sum w times the bounds.
/// Kills   AM-04 AM-08 AM-11.
/// Shrinks to two parts of one row.
Verdict merged_merges(const Spec& spec, PropertyContext& context) {
    const MergeProblem problem(spec);
    if (spec.withheld != 0) return needs("lse");
    if (problem.shape.parts < 2 || !problem.gives_lse) return inapplicable();
    Random random(mix(spec.seed + 2));
    const std::int64_t parts = problem.shape.parts;
    const auto cuts = numbers(1, parts - 1, [&](std::int64_t cut) {
        return takes_parts(spec, cut, context) && takes_parts(spec, parts - cut, context);
    });
    if (cuts.empty() || !takes_parts(spec, 2, context)) return inapplicable();
    const std::int64_t cut = random.pick(cuts);
    std::vector<std::int64_t> halves[2];
    for (std::int64_t p = 0; p < problem.shape.parts; ++p) halves[p < cut ? 0 : 1].push_back(p);
    MergeProblem last = problem;
    last.shape.parts = 2;
    last.parts.clear(), last.lses.clear();
    std::vector<ref::ExpectedMerge> first;
    for (const auto& half : halves) {
        const MergeProblem part = with_parts(problem, half);
        const CallRun run = merge_run(spec, part, context);
        if (run.early_verdict) return *run.early_verdict;
        last.parts.insert(last.parts.end(), run.bits("out").begin(), run.bits("out").end());
        last.lses.insert(last.lses.end(), run.bits("lse").begin(), run.bits("lse").end());
        first.push_back(part.expected(context.rounding));
    }
    const CallRun whole = merge_run(spec, problem, context), merged = merge_run(spec, last, context);
    if (auto early = first_early_verdict({&whole, &merged})) return *early;
    const ref::ExpectedMerge a = problem.expected(context.rounding),
                             b = last.expected(context.rounding);
    std::vector<double> lse_allowed = sum_of(allowance(a.lse), allowance(b.lse));
    std::vector<double> allowed = sum_of(allowance(a.output), allowance(b.output));
    const auto dim = static_cast<std::size_t>(problem.shape.value_dim);
    for (std::size_t row = 0; row < problem.row_count(); ++row) {
        double off = 0;
        for (const ref::ExpectedMerge& one : first)
            if (std::isfinite(one.lse.value[row])) off = std::max(off, one.lse.bound[row]);
        lse_allowed[row] += off;
        if (!std::isfinite(a.lse.value[row])) lse_allowed[row] = kInfinity;
        for (std::size_t d = 0; d < dim; ++d)
            for (const ref::ExpectedMerge& one : first) {
                if (!std::isfinite(one.lse.value[row])) continue;
                if (!std::isfinite(one.output.value[row * dim + d])) {
                    allowed[row * dim + d] = kInfinity;  // agreement's concern
                    continue;
                }
                const double weight = std::exp(one.lse.value[row] - a.lse.value[row]);
                const std::size_t k = row * dim + d;
                allowed[k] += weight * std::exp(2 * off) *
                              (one.output.bound[k] +
                               std::expm1(2 * off) * std::fabs(one.output.value[k]));
            }
    }
    const std::string relation = fmt::format("as the merge of parts 0..{} with the rest", cut - 1);
    Verdict all = verdict_within("out", whole.values("out"), merged.values("out"), allowed,
                                 relation, whole.place("out"));
    join(all, verdict_within("lse", whole.values("lse"), merged.values("lse"), lse_allowed,
                             relation, whole.place("lse")));
    return all;
}

/// Adding a number to all lses adds it to LSE and leaves o alone.
/// Why     exp(lse_p + c - (LSE + c)) = exp(lse_p - LSE).
/// Domain  cases where every sum lse_p + c is exact; moderate data.
/// Bound   those of both runs.
/// Kills   AM-01 AM-04.
/// Shrinks to one part and one row.
Verdict lse_shift(const Spec& spec, PropertyContext& context) {
    const MergeProblem problem(spec);
    MergeProblem shifted = problem;
    Random random(mix(spec.seed + 3));
    const double by = random.pick<double>({-512, -128, -1, 1, 128, 512});
    // Whole numbers of 2^-10 stay exact.
    MergeProblem coarse = problem;
    for (std::uint32_t& bits : coarse.lses) {
        const double lse = ref::decode(ref::Dtype::fp32, bits);
        bits = ref::encode(ref::Dtype::fp32, std::round(lse * 1024) / 1024);
    }
    shifted.lses = coarse.lses;
    if (!change_exactly(ref::Dtype::fp32, shifted.lses,
                        [by](double value, std::size_t) { return value + by; }))
        return inapplicable();
    return same_merge(spec, coarse, shifted, context, fmt::format("with {} added to all lses", by), by);
}

/// The output does not depend on whether lse is asked for.
/// Why     lse is a separate output.
/// Bound   those of both runs: it may be another path of the code.
/// Kills   AM-13.
/// Shrinks to one part and one row.
Verdict lse_optional(const Spec& spec, PropertyContext& context) {
    const MergeProblem problem(spec);
    if (!context.gives_all_of(spec.schema->op)) return needs("lse");
    MergeProblem without = problem;
    without.gives_lse = !problem.gives_lse;
    return same_merge(spec, problem, without, context, "with and without the output lse");
}

/// A row of one head alone gives what it gives among others.
/// Why     rows and heads do not meet.
/// Bound   those of both runs.
/// Kills   AM-06.
/// Shrinks to two heads.
Verdict row_alone(const Spec& spec, PropertyContext& context) {
    const MergeProblem problem(spec);
    if (problem.row_count() < 2) return inapplicable();
    Random random(mix(spec.seed + 4));
    const auto row = random.between(0, static_cast<std::int64_t>(problem.row_count()) - 1);
    MergeProblem alone = problem;
    alone.shape.rows = alone.shape.heads = 1;
    const auto rows = static_cast<std::int64_t>(problem.row_count());
    alone.parts = gather_heads(problem.parts, rows, {row}, problem.shape.value_dim);
    alone.lses = gather_heads(problem.lses, rows, {row}, 1);
    const CallRun whole = merge_run(spec, problem, context), one = merge_run(spec, alone, context);
    if (auto early = first_early_verdict({&whole, &one})) return *early;
    const std::vector<double> allowed = allowance(alone.expected(context.rounding).output);
    return verdict_within(
        "out", slice(whole.values("out"), row, 1, problem.shape.value_dim), one.values("out"),
        times(allowed, 2), "as a problem of one row and head",
        [&](std::size_t k) {
            return whole.place("out")(static_cast<std::size_t>(row * problem.shape.value_dim) + k);
        });
}

/// Numbers that are set are moderate, too, but for dead parts and what those hold.
bool moderate_merge(const Spec& spec) {
    if (spec.recipe > Recipe::spiky) return false;
    return std::ranges::all_of(spec.overrides, [&](const auto& item) {
        const auto& [element, value] = item;
        if (std::isfinite(value)) return std::fabs(value) < 1e4;
        const ElementRef lse{1, {element.index[0], element.index[1], element.index[2]}};
        const auto set = spec.overrides.find(lse);
        return set != spec.overrides.end() && set->second == -kInfinity;
    });
}

void with_dead_parts(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    if (spec.number("dead") == 0) spec.set("dead", random.between(1, 3));
}

void add_relations(std::vector<Property>& list) {
    const auto add = [&](const char* name, const char* summary, auto check) {
        list.push_back({name, summary, check, with_moderate_data, moderate_merge});
    };
    add("part_permutation", "the order of the parts does not matter", part_permutation);
    list.push_back({"dead_part", "a part with lse -inf counts for nothing, whatever it holds", dead_part, with_dead_parts,
                    [](const Spec& spec) { return moderate_merge(spec) && spec.number("dead") != 0; }});
    add("merged_merges", "merging the merges of some parts and of the rest is merging all",
        merged_merges);
    add("lse_shift", "a number added to all lses is added to lse alone", lse_shift);
    add("lse_optional", "the output does not depend on whether lse is asked for", lse_optional);
    add("row_alone", "a row of one head alone gives what it gives among others", row_alone);
}

// ---- validation ----

/// Validation reads arguments, not elements: few of them make room for many cases.
void plain_data(Spec& spec) {
    limit_fields(spec, {"parts", "rows", "heads"}, 3);
    limit_fields(spec, {"dim"}, 17);
    for (const char* field : {"weights", "shift", "dead"}) spec.set(field, 0);
    with_zeros_in_dense_tensors(spec);
}

}  // namespace

/// Agreement: weights are quotients of exponentials, o and LSE their sums.
/// Domain  every legal case, every data recipe, every layout.
/// Bound   ref/operators/attention_merge.cc.
/// Kills   AM-01..AM-14.
/// Shrinks to one part, or two of them, of one row, one head and one channel.
std::vector<Property> merge_properties() {
    std::vector<Property> list;
    CallProperties of;
    of.problem = case_problem;
    of.adapt_history = [](Spec& spec, Random&) {
        if (spec.number("parts") < 2) spec.set("parts", 2);
        if (spec.number("rows") == 0) spec.set("rows", 1);
    };
    add_call_properties(list, of);
    add_validation_properties(list, plain_data, 4);
    add_relations(list);
    return list;
}

}  // namespace attncheck::properties
