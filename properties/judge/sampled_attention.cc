#include "properties/judge/sampled_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <utility>

#include "properties/case/derived.h"
#include "properties/case/one_buffer.h"
#include "properties/judge/attention_tiers.h"
#include "properties/judge/exact_sums.h"
#include "properties/judge/sampled_sums.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
using Seconds = std::chrono::duration<double>;
/// Rows of one output in a call's result; with a rope, of one of its tensors.
struct OutputRows {
    const AttentionProblem& problem;
    const AttentionOutput& output;
    const OutputPart& part;
    const Tensor& tensor;
    const Bits& bits;

    OutputRows(const AttentionProblem& of, const AttentionOutput& one, const OutputPart& of_output,
               const Call& call, const CallResult& result)
        : problem(of),
          output(one),
          part(of_output),
          tensor(call.tensor(part.tensor)),
          bits(result.outputs[tensor_index(call, part.tensor)]) {}

    std::span<const std::uint32_t> row(Int number) const {
        return {bits.data() + output.first_element(part, number),
                static_cast<std::size_t>(part.width)};
    }
    std::string place(Int number, std::size_t channel) const {
        return problem.place(output.name,
                             static_cast<std::size_t>(number * output.width + part.begin) + channel);
    }
};

std::vector<OutputRows> rows_of(const AttentionProblem& problem,
                                std::initializer_list<std::string_view> names, const Call& call,
                                const CallResult& result) {
    std::vector<OutputRows> rows;
    for (const std::string_view name : names) {
        if (!problem.gives(name)) continue;
        const AttentionOutput& output = problem.output_named(name);
        for (const OutputPart& part : output.parts)
            rows.emplace_back(problem, output, part, call, result);
    }
    return rows;
}

/// Adds rows with a NaN or an infinity, at most 16 of each output: the scan of all elements costs
/// little, and whether such a row is right the reference says.
void add_non_finite_rows(const OutputRows& rows, Int population, RowSample& sample) {
    std::set<Int> all(sample.numbers.begin(), sample.numbers.end());
    const ref::Dtype dtype = rows.tensor.type();
    int found = 0;
    for (Int number = 0; number < population && found < 16; ++number) {
        const auto row = rows.row(number);
        if (std::all_of(row.begin(), row.end(), [&](std::uint32_t bits) {
                return std::isfinite(ref::decode(dtype, bits));
            }))
            continue;
        ++found;
        all.insert(number);
    }
    sample.numbers.assign(all.begin(), all.end());
}

/// Columns of one row of an expectation as a separate expectation; a statistic has one column
/// and as many copies as lanes.
ref::ExpectedTensor row_of(const ref::ExpectedTensor& all, std::size_t row,
                           const OutputRows& rows) {
    const bool copies = rows.output.is_statistic();
    ref::ExpectedTensor out(static_cast<std::size_t>(rows.part.width));
    for (std::size_t to = 0; to < out.size(); ++to) {
        const std::size_t from = copies ? row
                                        : row * static_cast<std::size_t>(rows.output.width) +
                                              static_cast<std::size_t>(rows.part.begin) + to;
        out.value[to] = all.value[from];
        out.bound[to] = all.bound[from];
        out.overflow[to] = all.overflow[from];
    }
    return out;
}

/// The rows of one output against their expectation, into `verdict` unless that has failed already.
void judge_rows(const OutputRows& rows, const std::vector<Int>& numbers,
                const ref::ExpectedTensor& expected, const char* what, Verdict& verdict) {
    std::vector<Int> wrong;
    Comparison worst;
    for (std::size_t k = 0; k < numbers.size(); ++k) {
        const Comparison c =
            compare(row_of(expected, k, rows), rows.row(numbers[k]), rows.tensor.type());
        if (!(c.worst_ratio <= verdict.worst_ratio)) verdict.worst_ratio = c.worst_ratio;
        if (c.ok()) continue;
        if (wrong.empty()) worst = c;
        wrong.push_back(numbers[k]);
    }
    if (wrong.empty() || verdict.failed()) return;
    verdict.kind = Verdict::Kind::failed;
    verdict.tier = Tier::bound;
    verdict.failure = rows.tensor.name + " is wrong";
    verdict.message = fmt::format(
        "{} differs from the reference in {} of {} {} compared; first:\n  {}  expected {:.9g}  "
        "got {:.9g}  error {:.3g}  bound {:.3g} ({} of {} elements of it are wrong)",
        rows.tensor.name, wrong.size(), numbers.size(), what,
        rows.place(wrong.front(), worst.index), worst.expected, worst.got, worst.error,
        worst.bound, worst.wrong, worst.compared);
    if (wrong.size() > 1)
        verdict.message += fmt::format("\n  last: {}", rows.place(wrong.back(), 0));
}

Verdict damage_of(const CallResult& result) {
    if (result.damage.empty()) return {};
    const auto& damage = result.damage.front();
    return Verdict::fail("memory: " + damage.tensor,
                         fmt::format("{}: {}", damage.tensor, damage.what), Tier::memory);
}

std::string cost_text(const PropertyContext& context, const Call& call, double flops,
                      const CallResult& result, std::chrono::steady_clock::time_point start) {
    return fmt::format("{} of {}, {:.1f} s in it ({:.1f} GFLOP/s), {:.1f} s in the reference",
                       call.op, context.candidate.implementation_of(call.op), result.seconds,
                       flops / std::max(result.seconds, 1e-9) * 1e-9,
                       Seconds(std::chrono::steady_clock::now() - start).count());
}

/// The sample of an operator's rows, from the seed of the case.
RowSample sample_of(const FullSizeAttention& of, bool of_keys, const PropertyContext& context) {
    const AttentionProblem& p = of.problem;
    return of_keys ? sample_rows(p.kv_lengths, p.shape.kv_rows, p.shape.kv_heads, context.samples,
                                 of.seed + 1)
                   : sample_rows(p.query_lengths, p.shape.query_rows, p.shape.query_heads,
                                 context.samples, of.seed);
}

/// The chosen rows or keys of an output as numbers, the first lane of a statistic; all of dsink,
/// the chosen elements of dbias.
std::vector<double> chosen_values(const AttentionProblem& problem, const std::string& name,
                                  const ChosenRows& chosen, const Call& call,
                                  const CallResult& result) {
    const AttentionOutput& output = problem.output_named(name);
    if (output.is_sum) {
        std::vector<double> all = ref::decode_all(call.tensor(name).type(), packed_bits(output, call, result));
        if (output.role == Role::sink_grad) return all;
        std::vector<double> some;
        for (const Int element : chosen.bias) some.push_back(all[static_cast<std::size_t>(element)]);
        return some;
    }
    const auto& numbers = output.of_keys ? chosen.keys : chosen.rows;
    const Int width = output.is_statistic() ? 1 : output.width;
    std::vector<double> values(numbers.size() * static_cast<std::size_t>(width));
    for (const OutputRows& rows : rows_of(problem, {name}, call, result))
        for (std::size_t k = 0; k < numbers.size(); ++k)
            for (Int c = 0; c < std::min(width, rows.part.width); ++c)
                values[k * static_cast<std::size_t>(width) +
                       static_cast<std::size_t>(rows.part.begin + c)] = ref::decode(
                    rows.tensor.type(), rows.row(numbers[k])[static_cast<std::size_t>(c)]);
    return values;
}

/// An output whose sums are exact in this case, if it has one.
void judge_exact_sums(const FullSizeAttention& of, const std::string& name,
                      const ChosenRows& chosen, const ref::ExpectedTensor& expected,
                      const Call& call, const CallResult& result, Verdict& verdict) {
    if (of.exact_keys == 0 || verdict.failed() || !of.problem.gives(name)) return;
    const bool of_keys = of.problem.output_named(name).of_keys;
    Verdict exact = verdict_on_exact_sums(of.problem, name, of_keys ? chosen.keys : chosen.rows,
                                          expected.value,
                                          chosen_values(of.problem, name, chosen, call, result),
                                          of.exact_keys);
    if (exact.failed())
        verdict = std::move(exact);
    else
        verdict.message += fmt::format("\n  {}: exact sums over {} keys, judged bit for bit", name,
                                       of.exact_keys);
}

/// The second and third tier on the chosen rows and keys of the call's outputs, if the case has
/// them. What may be missed is added to the message.
void judge_chosen_tiers(const FullSizeAttention& of, const ChosenRows& chosen, const Call& call,
                        const CallResult& result, const PropertyContext& context,
                        Verdict& verdict) {
    if (!of.has_tiers || verdict.failed()) return;
    const AttentionProblem& problem = of.problem;
    const auto got = [&](const std::string& name) {
        return chosen_values(problem, name, chosen, call, result);
    };
    Verdict tiers = judge_chosen_attention(problem, chosen, context.rounding, got);
    if (tiers.failed()) {
        verdict = std::move(tiers);
        return;
    }
    verdict.worst_ratio = std::max(verdict.worst_ratio, tiers.worst_ratio);
    verdict.casts = std::move(tiers.casts);
    verdict.message += "\n" + tiers.message;
}

Verdict judge_forward(const FullSizeAttention& of, const Call& call, const CallResult& result,
                      const PropertyContext& context) {
    const auto start = std::chrono::steady_clock::now();
    Verdict verdict = damage_of(result);
    if (verdict.failed()) return verdict;
    const AttentionProblem& problem = of.problem;
    RowSample sample = sample_of(of, false, context);
    const std::string text = describe(sample, "rows");
    std::string names = problem.output_name;
    for (const AttentionOutput& output : problem.forward_outputs) {
        if (output.is_list()) continue;
        if (output.name != problem.output_name) names += ", " + output.name;
        for (const OutputRows& rows : rows_of(problem, {output.name}, call, result))
            add_non_finite_rows(rows, sample.population, sample);
    }
    const AttentionNumbers numbers(problem);
    const auto expected = ref::expected_attention_rows(
        problem.forward(numbers), {problem.dtype, context.rounding}, sample.numbers);
    for (const AttentionOutput& output : problem.forward_outputs) {
        if (output.is_list()) continue;
        const ref::ExpectedTensor& values = output.is_row_max()   ? expected.row_max
                                            : output.is_row_sum() ? expected.row_sum
                                            : output.is_lse()     ? expected.stored_lse
                                                                  : expected.output;
        for (const OutputRows& rows : rows_of(problem, {output.name}, call, result))
            judge_rows(rows, sample.numbers, values, "rows", verdict);
    }
    if (verdict.failed()) return verdict;
    Verdict more;
    if (of.more) more = of.more(problem, call, result, sample);
    if (more.failed()) return more;
    verdict.worst_ratio = std::max(verdict.worst_ratio, more.worst_ratio);
    verdict.message = fmt::format("  {}: {}\n{}{}  {}", names, text, more.message, more.message.empty() ? "" : "\n",
                                  cost_text(context, call, of.flops(), result, start));
    if (!of.exact_scores)
        judge_exact_sums(of, problem.output_name, {sample.numbers, {}, {}}, expected.output, call,
                         result, verdict);
    judge_chosen_tiers(of, {sample.numbers, {}, {}}, call, result, context, verdict);
    return verdict;
}

/// A gradient may form its own forward (forward=own, or no statistics). Its numbers and those that the reference takes are
/// two results of a forward: they differ by two bounds at most. The largest bound of the chosen rows stands for all rows.
struct OwnForward {
    std::vector<double> output, statistics;

    OwnForward(const AttentionProblem& problem, const AttentionNumbers& numbers, const ref::RoundingClass& rounding,
               const std::vector<Int>& rows) {
        if (!rounding.own_forward && problem.statistics != Statistics::none) return;
        const auto forward = ref::expected_attention_rows(problem.forward(numbers), {problem.dtype, rounding}, rows);
        const auto largest = [](const ref::ExpectedTensor& of) {
            double out = 0;
            for (const double bound : of.bound)
                if (std::isfinite(bound)) out = std::max(out, bound);
            return 2 * out;
        };
        statistics.assign(numbers.row_max.size(), largest(forward.stored_lse));
        if (rounding.own_forward) output.assign(numbers.output.size(), largest(forward.output));
    }
};

Verdict judge_gradient(const FullSizeAttention& of, const Call& call, const CallResult& result,
                       const PropertyContext& context) {
    const auto start = std::chrono::steady_clock::now();
    Verdict verdict = damage_of(result);
    if (verdict.failed()) return verdict;
    const AttentionProblem& problem = of.problem;
    const AttentionNumbers numbers(problem);
    ref::AttentionGradInputs in = numbers.gradient_inputs();
    const auto sample_with = [&](bool of_keys, const std::vector<OutputRows>& all) {
        RowSample sample = sample_of(of, of_keys, context);
        const std::string text = describe(sample, of_keys ? "keys" : "rows");
        for (const OutputRows& rows : all) add_non_finite_rows(rows, sample.population, sample);
        return std::pair(std::move(sample), text);
    };
    const auto query_grad = rows_of(problem, {"dq"}, call, result),
               key_grads = rows_of(problem, {"dk", "dv"}, call, result);
    const auto [rows, rows_text] = sample_with(false, query_grad);
    const OwnForward own(problem, numbers, context.rounding, rows.numbers);
    in.output_error = own.output, in.statistics_error = own.statistics;
    const auto expected = ref::expected_query_grad_rows(
        {problem.shape, problem.columns, in}, {problem.result, context.rounding}, rows.numbers);
    for (const OutputRows& one : query_grad)
        judge_rows(one, rows.numbers, expected, "rows", verdict);
    const auto [keys, keys_text] = sample_with(true, key_grads);
    const ref::ColumnLister key_columns =
        of.columns_of ? of.columns_of(keys.numbers) : problem.columns;
    const auto of_keys = ref::expected_key_grad_of(
        {problem.shape, key_columns, in}, {problem.result, context.rounding}, keys.numbers);
    for (const OutputRows& one : key_grads)
        judge_rows(one, keys.numbers,
                   one.output.is_value_grad() ? of_keys.value_grad : of_keys.key_grad, "keys",
                   verdict);
    if (!verdict.failed())
        verdict.message =
            fmt::format("  dq: {}\n  dk, dv: {}\n  {}", rows_text, keys_text,
                        cost_text(context, call, 2.5 * of.flops(), result, start));
    ChosenRows chosen{rows.numbers, keys.numbers, key_columns};
    if (problem.bias_row == static_cast<Int>(problem.bias_elements))
        chosen.bias = chosen_bias_elements(of);
    if (!chosen.bias.empty()) chosen.bias_columns = of.bias_columns_of(chosen.bias);
    if (!context.rounding.group_rounded)
        judge_exact_sums(of, "dv", chosen, of_keys.value_grad, call, result, verdict);
    if (of.exact_scores) {
        judge_exact_sums(of, "dq", chosen, expected, call, result, verdict);
        if (!context.rounding.group_rounded)
            judge_exact_sums(of, "dk", chosen, of_keys.key_grad, call, result, verdict);
    }
    if (!verdict.failed()) {
        const Verdict sums = judge_sampled_sums(of, call, result, context);
        if (sums.failed()) return sums;
        verdict.worst_ratio = std::max(verdict.worst_ratio, sums.worst_ratio);
        verdict.message += sums.message;
    }
    judge_chosen_tiers(of, chosen, call, result, context, verdict);
    return verdict;
}

/// Statistics and output of a forward, as the gradient is given them.
void take_forward(const Call& call, const CallResult& result, AttentionProblem& problem) {
    problem.output = packed_bits(problem.output_named(problem.output_name), call, result);
    const auto statistic = [&](const char* name) {
        const OutputRows rows = rows_of(problem, {name}, call, result).front();
        std::vector<float> out(static_cast<std::size_t>(problem.query_rows()));
        for (std::size_t k = 0; k < out.size(); ++k)
            out[k] = static_cast<float>(
                ref::decode(ref::Dtype::fp32, rows.row(static_cast<Int>(k)).front()));
        return out;
    };
    if (problem.statistics == Statistics::pair) {
        problem.row_max = statistic("softmax_max");
        problem.row_sum = statistic("softmax_sum");
    } else if (problem.statistics == Statistics::lse) {
        take_lse(statistic("lse"), problem);
    }
}

}  // namespace

Verdict check_sampled(FullSizeAttention of, PropertyContext& context) {
    const bool gradient = std::exchange(of.problem.gradient, false);
    Verdict forward;
    {
        const Call call = of.call(of.problem);
        const bool is_alone = gradient && (of.problem.statistics == Statistics::none || !context.gives_all_of(call.op));
        constexpr double kMostFlops = 2e11;  // of the reference: a minute or so
        if (is_alone && of.flops() > kMostFlops)
            return {Verdict::Kind::inapplicable, {}, "needs the lse of a forward: the reference gives none to so many pairs", 0, {}, {}};
        if (is_alone) {
            give_reference_forward(of.problem);
            forward.message = "  the forward that it is given is the reference's";
        } else {
            if (!context.candidate.info().implements(call.op)) return {Verdict::Kind::inapplicable, {}, {}, 0, {}, {}};
            const CallResult result = context.candidate.run(call, limits_for(call, of.flops()));
            if (auto early = verdict_unless_ok(result)) return *early;
            forward = judge_forward(of, call, result, context);
            if (forward.failed() && gradient)
                forward.message = "the forward that gives statistics and output: " + forward.message;
            if (forward.failed() || !gradient) return forward;
            take_forward(call, result, of.problem);
        }
        if (of.alter_forward) of.alter_forward(of.problem);
    }
    of.problem.gradient = true;
    const Call call = of.call(of.problem);
    const CallResult result = context.candidate.run(call, limits_for(call, 2.5 * of.flops()));
    if (auto early = verdict_unless_ok(result)) return *early;
    Verdict verdict = judge_gradient(of, call, result, context);
    verdict.worst_ratio = std::max(verdict.worst_ratio, forward.worst_ratio);
    if (!verdict.failed()) verdict.message = forward.message + "\n" + verdict.message;
    return verdict;
}

RunOptions limits_for(const Call& call, double flops) {
    double bytes = 0, elements = 0;
    for (const Tensor& tensor : call.tensors) {
        if (!tensor.present) continue;
        elements += static_cast<double>(tensor.elements());
        bytes += static_cast<double>(tensor.elements() * tensor.element_size());
    }
    RunOptions options;
    options.patience = 1 + flops / 1e10 + elements / 1e7;
    options.more_memory_mib = static_cast<Int>(8 * bytes / (1 << 20));
    return options;
}

void lay_out(const Spec& spec, Call& call) {
    std::vector<Layout> layouts(call.tensors.size(), Layout::dense);
    for (std::size_t i = 0; i < layouts.size(); ++i) {
        Tensor& tensor = call.tensors[i];
        const int field = spec.schema->tensor(tensor.name);
        if (field < 0 || tensor.shared_bytes) continue;
        const auto index = static_cast<std::size_t>(field);
        if (tensor.output != spec.schema->tensors[index].output) continue;
        layouts[i] = spec.layouts[index];
        tensor.lie_alone(strides_for(layouts[i], tensor.buffer_shape, tensor.order));
    }
    lay_in_one_buffer(call, layouts, extents_of(spec));
}

}  // namespace attncheck::properties
