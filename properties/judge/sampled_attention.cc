#include "properties/judge/sampled_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>


namespace attncheck::properties {
namespace {

using Int = std::int64_t;
using Seconds = std::chrono::duration<double>;
constexpr Int kLanes = 8;  ///< copies of every statistic

/// Rows of one output in a call's result.
struct OutputRows {
    const SampledProblem& problem;
    const Tensor& tensor;
    const std::vector<std::uint32_t>& bits;
    Int width;

    OutputRows(const SampledProblem& of, const Call& call, const CallResult& result,
               const std::string& name, Int row_width)
        : problem(of),
          tensor(call.tensor(name)),
          bits(result.outputs[tensor_index(call, name)]),
          width(row_width) {}

    std::span<const std::uint32_t> row(Int number) const {
        return {bits.data() + problem.first_element(tensor.name, number),
                static_cast<std::size_t>(width)};
    }
    std::string place(const Call& call, Int number, std::size_t channel) const {
        return place_of(*problem.spec, call, tensor.name,
                        problem.first_element(tensor.name, number) + channel);
    }
};

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

/// Columns of one row of an expectation as an expectation of its own.
ref::ExpectedTensor row_of(const ref::ExpectedTensor& all, std::size_t row, Int wide, Int begin,
                           Int width, bool repeat) {
    ref::ExpectedTensor out(static_cast<std::size_t>(width));
    for (Int c = 0; c < width; ++c) {
        const auto to = static_cast<std::size_t>(c),
                   from = row * static_cast<std::size_t>(wide) +
                          static_cast<std::size_t>(repeat ? 0 : begin + c);
        out.value[to] = all.value[from];
        out.bound[to] = all.bound[from];
        out.overflow[to] = all.overflow[from];
    }
    return out;
}

/// How an expectation [numbers, wide] lies in an output.
struct Lie {
    Int wide, begin;
    bool repeat = false;  ///< all elements of a row are copies of one number
};

/// The rows of one output against their expectation, into `verdict` unless that has failed already.
void judge_rows(const OutputRows& rows, const Call& call, const std::vector<Int>& numbers,
                const ref::ExpectedTensor& expected, const Lie& lie, const char* what,
                Verdict& verdict) {
    std::vector<Int> wrong;
    Comparison worst;
    for (std::size_t k = 0; k < numbers.size(); ++k) {
        const Comparison c =
            compare(row_of(expected, k, lie.wide, lie.begin, rows.width, lie.repeat),
                    rows.row(numbers[k]), rows.tensor.type());
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
        "{} differs from the reference in {} of {} {} looked at; first:\n  {}  expected {:.9g}  "
        "got {:.9g}  error {:.3g}  bound {:.3g} ({} of {} elements of it are wrong)",
        rows.tensor.name, wrong.size(), numbers.size(), what,
        rows.place(call, wrong.front(), worst.index), worst.expected, worst.got, worst.error,
        worst.bound, worst.wrong, worst.compared);
    if (wrong.size() > 1)
        verdict.message += fmt::format("\n  last: {}", rows.place(call, wrong.back(), 0));
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
RowSample sample_of(const SampledProblem& problem, bool of_keys, const PropertyContext& context) {
    const ref::AttentionShape& s = problem.shape;
    return of_keys ? sample_rows(problem.kv_lengths, s.kv_rows, s.kv_heads, context.samples,
                                 problem.spec->seed + 1)
                   : sample_rows(problem.query_lengths, s.query_rows, s.query_heads,
                                 context.samples, problem.spec->seed);
}

/// The two parts of a gradient that are sums over queries, by their sample of keys.
void judge_keys(const SampledProblem& problem, const ref::AttentionGradInputs& in,
                const GradientOutputs& outputs, const Call& call, const CallResult& result,
                const PropertyContext& context, Verdict& verdict, std::string& text) {
    const ref::AttentionShape& s = problem.shape;
    RowSample keys = sample_of(problem, true, context);
    text += fmt::format("\n  dk, dv: {}", describe(keys, "keys"));
    for (const auto* list : {&outputs.key, &outputs.value})
        for (const OutputPart& part : *list)
            add_non_finite_rows({problem, call, result, part.name, part.width}, keys.population,
                                keys);
    const auto columns = problem.columns_of ? problem.columns_of(keys.numbers) : problem.columns;
    const auto expected =
        ref::expected_key_grad_of(s, columns, in, problem.result, keys.numbers, context.rounding);
    for (const OutputPart& part : outputs.key)
        judge_rows({problem, call, result, part.name, part.width}, call, keys.numbers,
                   expected.key_grad, {s.head_dim, part.begin}, "keys", verdict);
    for (const OutputPart& part : outputs.value)
        judge_rows({problem, call, result, part.name, part.width}, call, keys.numbers,
                   expected.value_grad, {s.value_dim, part.begin}, "keys", verdict);
}

/// Elements of an output, [rows, width], in packed order.
std::vector<std::uint32_t> packed_rows(const SampledProblem& problem, const Call& call,
                                       const CallResult& result, const std::string& output,
                                       Int width) {
    const OutputRows rows(problem, call, result, output, width);
    std::vector<std::uint32_t> out;
    out.reserve(static_cast<std::size_t>(problem.rows() * width));
    for (Int number = 0; number < problem.rows(); ++number) {
        const auto row = rows.row(number);
        out.insert(out.end(), row.begin(), row.end());
    }
    return out;
}

Verdict judge_forward(const SampledProblem& problem, const SampledCalls& calls, const Call& call,
                      const CallResult& result, const PropertyContext& context) {
    const auto start = std::chrono::steady_clock::now();
    Verdict verdict = damage_of(result);
    if (verdict.failed()) return verdict;
    const ref::AttentionShape& s = problem.shape;
    RowSample sample = sample_of(problem, false, context);
    const std::string text = describe(sample, "rows");
    const OutputRows output(problem, call, result, "attention_out", s.value_dim),
        row_max(problem, call, result, "softmax_max", kLanes),
        row_sum(problem, call, result, "softmax_sum", kLanes);
    for (const OutputRows* rows : {&output, &row_max, &row_sum})
        add_non_finite_rows(*rows, sample.population, sample);
    const auto expected = ref::expected_attention_rows(
        s, problem.columns, problem.inputs(), problem.dtype, sample.numbers, context.rounding);
    judge_rows(row_max, call, sample.numbers, expected.row_max, {1, 0, true}, "rows", verdict);
    judge_rows(row_sum, call, sample.numbers, expected.row_sum, {1, 0, true}, "rows", verdict);
    judge_rows(output, call, sample.numbers, expected.output, {s.value_dim, 0}, "rows", verdict);
    if (verdict.failed()) return verdict;
    Verdict more;
    if (calls.more) more = calls.more(call, result, sample);
    if (more.failed()) return more;
    verdict.worst_ratio = std::max(verdict.worst_ratio, more.worst_ratio);
    verdict.message = fmt::format("  attention_out, softmax_max, softmax_sum: {}\n{}{}  {}", text,
                                  more.message, more.message.empty() ? "" : "\n",
                                  cost_text(context, call, problem.flops(), result, start));
    return verdict;
}

Verdict judge_gradient(const SampledProblem& problem, const GivenForward& given,
                       const GradientOutputs& outputs, const Call& call, const CallResult& result,
                       const PropertyContext& context) {
    const auto start = std::chrono::steady_clock::now();
    Verdict verdict = damage_of(result);
    if (verdict.failed()) return verdict;
    const ref::AttentionShape& s = problem.shape;
    const ref::AttentionGradInputs in{problem.inputs(), given.output_grad, given.output,
                                      given.row_max, given.row_sum};
    RowSample sample = sample_of(problem, false, context);
    std::string text = fmt::format("  dq: {}", describe(sample, "rows"));
    for (const OutputPart& part : outputs.query)
        add_non_finite_rows({problem, call, result, part.name, part.width}, sample.population,
                            sample);
    const auto expected = ref::expected_query_grad_rows(s, problem.columns, in, problem.result,
                                                        sample.numbers, context.rounding);
    for (const OutputPart& part : outputs.query)
        judge_rows({problem, call, result, part.name, part.width}, call, sample.numbers, expected,
                   {s.head_dim, part.begin}, "rows", verdict);
    judge_keys(problem, in, outputs, call, result, context, verdict, text);
    if (!verdict.failed())
        verdict.message = fmt::format(
            "{}\n  {}", text, cost_text(context, call, 2.5 * problem.flops(), result, start));
    return verdict;
}

std::vector<float> first_lanes(const SampledProblem& problem, const Call& call,
                               const CallResult& result, const std::string& name) {
    const auto& bits = result.outputs[tensor_index(call, name)];
    std::vector<float> out(static_cast<std::size_t>(problem.rows()));
    for (std::size_t k = 0; k < out.size(); ++k)
        out[k] = static_cast<float>(
            ref::decode(ref::Dtype::fp32, bits[problem.first_element(name, static_cast<Int>(k))]));
    return out;
}

}  // namespace

Verdict check_sampled(const SampledProblem& problem, const SampledCalls& calls,
                      PropertyContext& context) {
    Verdict forward;
    GivenForward given;
    {
        const Call call = calls.call(false);
        if (!context.candidate.info().implements(call.op))
            return {Verdict::Kind::inapplicable, {}, {}, 0, {}, {}};
        const CallResult result = context.candidate.run(call, limits_for(call, problem.flops()));
        if (auto trouble = verdict_unless_ok(result)) return *trouble;
        forward = judge_forward(problem, calls, call, result, context);
        if (forward.failed() && calls.gradient)
            forward.message = "the forward that gives statistics and output: " + forward.message;
        if (forward.failed() || !calls.gradient) return forward;
        given =
            calls.give(packed_rows(problem, call, result, "attention_out", problem.shape.value_dim),
                       first_lanes(problem, call, result, "softmax_max"),
                       first_lanes(problem, call, result, "softmax_sum"));
    }
    const Call call = calls.call(true);
    const CallResult result = context.candidate.run(call, limits_for(call, 2.5 * problem.flops()));
    if (auto trouble = verdict_unless_ok(result)) return *trouble;
    Verdict verdict = judge_gradient(problem, given, calls.outputs, call, result, context);
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
    for (Tensor& tensor : call.tensors) {
        const int field = spec.schema->tensor(tensor.name);
        if (field < 0 || tensor.shared_bytes) continue;
        const auto index = static_cast<std::size_t>(field);
        if (tensor.output == spec.schema->tensors[index].output)
            tensor.strides = strides_for(spec.layouts[index], tensor.buffer_shape);
    }
}

}  // namespace attncheck::properties
