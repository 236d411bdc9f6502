#include "properties/laws/attention_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "properties/case/attention_data.h"
#include "properties/judge/sampled_attention.h"
#include "properties/laws/attention_sight.h"

namespace attncheck::properties {

AttentionRun::AttentionRun(const AttentionOperator& of_run, const AttentionProblem& problem_of_run,
                           PropertyContext& context, const std::function<void(Call&)>& change)
    : of(of_run), problem(problem_of_run) {
    Call call = of.call(problem);
    if (change) change(call);
    const CallResult result = context.candidate.run(call, {});
    early_verdict = verdict_unless_ok(result);
    if (early_verdict) return;
    for (const AttentionOutput& output : problem.outputs())
        bits_.push_back(packed_bits(output, call, result));
}

std::vector<std::string> AttentionRun::outputs() const {
    std::vector<std::string> names;
    for (const AttentionOutput& output : problem.outputs()) names.push_back(output.name);
    return names;
}

const Bits& AttentionRun::bits(std::string_view name) const {
    return bits_[static_cast<std::size_t>(&problem.output_named(name) - problem.outputs().data())];
}

Verdict AttentionRun::verdict_on_open_lists(const LawRun& right, const PropertyContext& context,
                                            const std::string& name, const std::string& relation,
                                            const OutputFilter& compared) const {
    const Bits& own = bits(name);
    Bits other = right.bits(name);
    std::int64_t differing = 0;
    for (std::size_t k = 0; k < other.size(); ++k) {
        if (compared && !compared(name, k)) other[k] = own[k];
        differing += other[k] != own[k];
    }
    Verdict all = verdict_on_lists(of, {problem, own}, {problem, other}, context, relation);
    // Times a power of two what a composition stores may leave its type in one of the runs: its lists are right for its own numbers.
    const auto* const second = dynamic_cast<const AttentionRun*>(&right);
    if (all.failed() && !compared && second != nullptr)
        all = verdict_on_lists(of, {problem, own}, {second->problem, other}, context, relation);
    all.differing = differing;
    return all;
}

std::vector<double> AttentionRun::first_lanes(std::string_view name) const {
    const AttentionOutput& output = problem.output_named(name);
    std::vector<double> all = values(name);
    if (!output.is_statistic()) return all;
    std::vector<double> first;
    for (std::size_t k = 0; k < all.size(); k += static_cast<std::size_t>(output.width))
        first.push_back(all[k]);
    return first;
}

Verdict verdict_within(const AttentionProblem& problem, const std::string& name,
                       std::vector<double> left, std::vector<double> right,
                       const std::vector<double>& allowed, const std::string& relation) {
    return verdict_within(name, std::move(left), std::move(right), allowed, relation,
                          [&](std::size_t k) { return problem.place(name, k); });
}

Verdict verdict_on_equal_problems(const AttentionOperator& of, const AttentionProblem& left,
                                  const AttentionProblem& right, PropertyContext& context,
                                  const std::string& relation) {
    const AttentionRun a(of, left, context);
    if (a.early_verdict) return *a.early_verdict;
    const AttentionRun b(of, right, context);
    if (b.early_verdict) return *b.early_verdict;
    return verdict_on_equal_runs(a, b, context, relation);
}

Verdict verdict_on_rounded_problems(const AttentionOperator& of, const AttentionProblem& left,
                                    const AttentionProblem& right, PropertyContext& context,
                                    const std::string& relation) {
    const AttentionRun a(of, left, context);
    if (a.early_verdict) return *a.early_verdict;
    const AttentionRun b(of, right, context);
    if (b.early_verdict) return *b.early_verdict;
    const ExpectedOutputs of_right = expected_of(right, context.rounding);
    Verdict all;
    for (const auto& [name, from] : expected_of(left, context.rounding)) {
        const ref::ExpectedTensor& to = tensor_of(of_right, name);
        std::vector<double> moved = a.values(name);
        for (std::size_t k = 0; k < moved.size(); ++k)
            if (from.value[k] != to.value[k]) moved[k] += to.value[k] - from.value[k];
        join(all, verdict_within(left, name, moved, b.values(name),
                                 sum_of(allowance(from), allowance(to)), relation));
    }
    return all;
}

Verdict verdict_on_split(const AttentionOperator& of, AttentionProblem whole,
                         Bits AttentionProblem::*tensor, std::uint64_t seed,
                         PropertyContext& context, const std::string& relation,
                         const std::function<bool(const std::string&)>& is_linear) {
    quantise(whole.dtype, whole.*tensor);
    AttentionProblem first = whole, second = whole;
    Random random(mix(seed));
    if (!split_exactly(whole.dtype, whole.*tensor, random, first.*tensor, second.*tensor))
        return inapplicable();
    const AttentionRun a(of, first, context), b(of, second, context), sum(of, whole, context);
    if (auto early = first_early_verdict({&a, &b, &sum})) return *early;
    Verdict all = verdict_on_equal_bits(
        sum, a, context, relation,
        [&](const std::string& name, std::size_t) { return !is_linear(name); });
    join(all, verdict_on_sum(a, b, sum, context, relation, is_linear));
    return all;
}

Verdict verdict_on_identical_problems(const AttentionOperator& of, const AttentionProblem& left,
                                      const AttentionProblem& right, PropertyContext& context,
                                      const std::string& relation) {
    const AttentionRun a(of, left, context);
    if (a.early_verdict) return *a.early_verdict;
    const AttentionRun b(of, right, context);
    if (b.early_verdict) return *b.early_verdict;
    return verdict_on_equal_bits(a, b, context, relation);
}

Verdict verdict_on_powers(const AttentionRun& left, const AttentionRun& right,
                          const PropertyContext& given, const std::string& relation,
                          const ExponentOf& exponent_of) {
    const PropertyContext context = open_where_tiny(left.problem, given);
    Verdict all = verdict_on_equal_bits(
        left, right, context, relation, [&](const std::string& name, std::size_t) {
            return !exponent_of(left.problem.output_named(name));
        });
    const ref::RoundingClass& rounding = context.rounding;
    const bool stores_parts =
        left.problem.dtype == ref::Dtype::fp16 &&
        (rounding.parts_rounded || rounding.group_rounded || rounding.delta_rounded || rounding.steps_rounded);
    if (stores_parts) {
        join(all, verdict_within_powers(left, right, context, relation, exponent_of));
        return all;
    }
    for (const AttentionOutput& output : left.problem.outputs())
        if (const std::optional<int> exponent = exponent_of(output))
            join(all, verdict_on_scaled(left, right, context, output.name, *exponent, relation));
    return all;
}

Verdict verdict_within_powers(const AttentionRun& left, const AttentionRun& right, const PropertyContext& context,
                              const std::string& relation, const ExponentOf& exponent_of) {
    Verdict all = verdict_within_both(
        left, right, context, relation, [&](const std::string& name, const std::vector<double>& values) {
            return times(values, std::ldexp(1.0, exponent_of(left.problem.output_named(name)).value_or(0)));
        });
    for (const AttentionOutput& output : left.problem.outputs())
        if (output.is_list()) join(all, left.verdict_on_open_lists(right, context, output.name, relation, {}));
    return all;
}

Verdict verdict_on_lists(const AttentionOperator& of, BlockLists left, BlockLists right,
                         const PropertyContext& context, const std::string& relation) {
    if (left.bits == right.bits) return {};
    const auto judged = [&](const BlockLists& lists, const char* which) {
        return of.judge_lists(lists.problem, lists.bits, context.rounding, ref::Grant::rounding,
                              relation + which);
    };
    Verdict all = judged(left, ", the first of two runs");
    join(all, judged(right, ", the second of two runs"));
    return all;
}

bool has_tiny_terms(const AttentionProblem& problem) {
    const auto is_tiny = [](double term) {
        return std::fabs(term) > 0x1p-160 && std::fabs(term) < 0x1p-100;
    };
    const AttentionNumbers numbers(problem);
    const auto dot = [](const std::vector<double>& a, std::size_t row, const std::vector<double>& b,
                        std::size_t other, std::int64_t width) {
        const auto w = static_cast<std::size_t>(width);
        return std::inner_product(a.data() + row * w, a.data() + (row + 1) * w, b.data() + other * w, 0.0);
    };
    const ref::AttentionShape& s = problem.shape;
    bool found = false;
    std::vector<double> logits;
    for_each_row(problem, [&](std::int64_t t, std::int64_t n,
                              const std::vector<ref::KeyColumn>& columns) {
        if (found) return;
        const auto row = static_cast<std::size_t>(t * s.query_heads + n);
        const double cap = problem.softcap;
        double largest = problem.sink.empty() ? -std::numeric_limits<double>::infinity()
                                              : problem.sink[static_cast<std::size_t>(n)];
        logits.clear();
        for (const ref::KeyColumn& column : columns) {
            const std::size_t key = key_number(problem, column, n);
            const double scaled = problem.scale * dot(numbers.query, row, numbers.key, key, s.head_dim);
            logits.push_back((cap > 0 ? cap * std::tanh(scaled / cap) : scaled) + column.bias);
            largest = std::max(largest, logits.back());
        }
        const double delta =
            problem.gradient ? dot(numbers.output_grad, row, numbers.output, row, s.value_dim) : 0;
        for (std::size_t i = 0; i < columns.size() && !found; ++i) {
            const double prob = std::exp(logits[i] - largest);
            found = is_tiny(prob);
            if (found || !problem.gradient || prob == 0) continue;
            const std::size_t key = key_number(problem, columns[i], n);
            const double prob_grad =
                columns[i].kept
                    ? dot(numbers.output_grad, row, numbers.value, key, s.value_dim) / problem.keep_prob
                    : 0;
            found = is_tiny(prob * (prob_grad - delta));
        }
    });
    return found;
}

PropertyContext open_where_tiny(const AttentionProblem& problem, const PropertyContext& context) {
    PropertyContext opened = context;
    if (!opened.rounding.any_order) opened.rounding.any_order = has_tiny_terms(problem);
    return opened;
}

bool rounds_alike_at_every_scale(const AttentionProblem& problem, const PropertyContext& context) {
    return problem.dtype != ref::Dtype::fp16 ||
           ref::accumulator_roundoff({problem.dtype, context.rounding}) <= 0x1p-23;
}

bool casts_score_grad_to_fp16(const AttentionProblem& problem, const PropertyContext& context) {
    const ref::RoundingClass& rounding = context.rounding;
    return problem.dtype == ref::Dtype::fp16 && (rounding.score_grad_rounded || rounding.steps_rounded ||
                                                 rounding.delta_rounded || rounding.group_rounded);
}

Property attention_property(const AttentionOperator& of, std::string name, std::string summary,
                            AttentionLaw law) {
    return {std::move(name), std::move(summary),
            [&of, law](const Spec& spec, PropertyContext& context) {
                // Where hidden keys are multiplied by 0, their NaN may be in any row of either run.
                if (context.rounding.hidden_times_zero && has_non_finite_keys(of.inputs(spec)))
                    return inapplicable();
                return law(of, spec, context);
            },
            with_moderate_data, moderate};
}

CaseProblem attention_case(const AttentionOperator& of, const Spec& spec, ref::Grant grant) {
    const auto problem = std::make_shared<const AttentionProblem>(of.problem(spec));
    CaseProblem made;
    made.call = of.call(*problem);
    lay_out(spec, made.call);
    made.expected = [problem, grant](const ref::RoundingClass& rounding) {
        return in_call_order(*problem, expected_of(*problem, rounding, grant));
    };
    const auto& outputs = problem->outputs();
    const auto lists = std::find_if(outputs.begin(), outputs.end(),
                                    [](const auto& output) { return output.is_list(); });
    const bool has_lists = lists != outputs.end();
    const std::size_t list = has_lists ? tensor_index(made.call, lists->name) : 0;
    made.judge = [problem, grant, &of, has_lists, list, call = made.call](
                     const CallResult& result, const ref::RoundingClass& rounding) {
        Verdict all;
        // NaN of a hidden key may reach the scores.
        const bool spreads = rounding.hidden_times_zero && has_non_finite(*problem);
        if (has_lists && !spreads) all = of.judge_lists(*problem, result.outputs[list], rounding, grant);
        if (!problem->gradient && problem->statistics == Statistics::lse && !spreads)
            join(all, verdict_on_empty_rows(
                          *problem, decode_all(ref::Dtype::fp32,
                                               packed_bits(problem->output_named("lse"), call,
                                                           result))));
        if (!rounding.lse_statistics || problem->gradient || !gives_statistics(*problem))
            return all;
        // Only both statistics together have an expectation, neither has one alone.
        const auto statistic = [&](const char* name) {
            return decode_all(ref::Dtype::fp32,
                              packed_bits(problem->output_named(name), call, result));
        };
        join(all, verdict_on_pair(*problem, statistic("softmax_max"), statistic("softmax_sum"),
                                  rounding, grant));
        return all;
    };
    if (!problem->gradient && problem->statistics == Statistics::lse)
        made.cause = [problem, grant, call = made.call](const CallResult& result,
                                                        const ref::RoundingClass& rounding) {
            return lse_of_base_2(*problem, packed_bits(problem->output_named("lse"), call, result),
                                 tensor_of(expected_of(*problem, rounding, grant), "lse"));
        };
    made.composition_errors = [problem] { return half_composition_errors(*problem); };
    return made;
}

CallProperties call_properties_of(const AttentionOperator& of) {
    CallProperties properties;
    properties.problem = [&of](const Spec& spec) {
        return attention_case(of, spec, ref::Grant::rounding);
    };
    return properties;
}

}  // namespace attncheck::properties
