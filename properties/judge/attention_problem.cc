#include "properties/judge/attention_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ref/attention/rounding_noise.h"
#include "ref/operators/attention.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
constexpr Int kStatisticLanes = 8;  ///< copies of every statistic
constexpr const char* kLane = "lane";

/// Element `from` of an expectation becomes element `to` of another.
void copy_element(const ref::ExpectedTensor& source, std::size_t from, ref::ExpectedTensor& target,
                  std::size_t to) {
    target.value[to] = source.value[from];
    target.bound[to] = source.bound[from];
    target.overflow[to] = source.overflow[from];
}

ref::ExpectedTensor in_lanes(const ref::ExpectedTensor& rows) {
    ref::ExpectedTensor all(rows.size() * kStatisticLanes);
    for (std::size_t k = 0; k < all.size(); ++k) copy_element(rows, k / kStatisticLanes, all, k);
    return all;
}

/// Which rows of [rows, width] numbers hold a NaN or an infinity.
std::vector<char> non_finite_rows(const std::vector<double>& values, Int width) {
    std::vector<char> marks(values.size() / static_cast<std::size_t>(width));
    for (std::size_t k = 0; k < values.size(); ++k)
        if (!std::isfinite(values[k])) marks[k / static_cast<std::size_t>(width)] = 1;
    return marks;
}

bool any_non_finite(const std::vector<double>& values) {
    return std::ranges::any_of(values, [](double x) { return !std::isfinite(x); });
}

bool any(const std::vector<char>& marks) {
    return std::ranges::find(marks, 1) != marks.end();
}

/// The largest magnitude of every row of `width` numbers that is finite.
std::vector<double> largest_of_rows(std::span<const double> numbers, Int width) {
    std::vector<double> out(width > 0 ? numbers.size() / static_cast<std::size_t>(width) : 0);
    for (std::size_t k = 0; k < out.size() * static_cast<std::size_t>(width); ++k)
        if (std::isfinite(numbers[k]))
            out[k / static_cast<std::size_t>(width)] =
                std::max(out[k / static_cast<std::size_t>(width)], std::fabs(numbers[k]));
    return out;
}

/// Products of `width` numbers as large as these may leave a type that ends at `limit`.
bool may_overflow(double a, double b, Int width, double limit) {
    return a * b * static_cast<double>(width) >= limit * (1 - 0x1p-8);
}

/// hidden=times_zero: 0 times NaN is NaN, and 0 times infinity. Rows and keys that a kernel may pair although
/// the row does not see the key, of all keys of the head: tiles end where they like.
void leave_reached_unjudged(const AttentionProblem& problem, const ref::RoundingClass& rounding,
                            ExpectedOutputs& expected) {
    const AttentionNumbers n(problem);
    const ref::AttentionShape& s = problem.shape;
    std::vector<char> keys = non_finite_rows(n.key, s.head_dim),
                      values = non_finite_rows(n.value, s.value_dim),
                      rows = non_finite_rows(n.query, s.head_dim);
    for (std::size_t k = 0; k < keys.size(); ++k) keys[k] |= values[k];
    if (problem.gradient)
        for (const auto& given : {non_finite_rows(n.output_grad, s.value_dim),
                                  non_finite_rows(n.output, s.value_dim),
                                  non_finite_rows(n.row_max, 1), non_finite_rows(n.row_sum, 1)})
            for (std::size_t row = 0; row < rows.size(); ++row) rows[row] |= given[row];
    // dP, delta and their difference may be infinite where nothing else is; so may the score of a hidden key, to which a
    // mask adds -infinity.
    const double stored = ref::max_finite(problem.dtype), fp32 = ref::max_finite(ref::Dtype::fp32),
                 limit = rounding.steps_rounded ? stored : fp32;
    const bool stores_scores = rounding.steps_rounded || rounding.scores_rounded;
    const double range = stores_scores ? stored : fp32 / 2;  // times log2 e, or not
    std::vector<double> large_rows, large_values, large_outputs;
    const std::vector<double> large_queries = largest_of_rows(n.query, s.head_dim);
    std::vector<double> large_keys = largest_of_rows(n.key, s.head_dim);
    for (double& x : large_keys) x *= std::max(1.0, std::fabs(problem.scale));
    if (problem.gradient) {
        large_rows = largest_of_rows(n.output_grad, s.value_dim);
        large_values = largest_of_rows(n.value, s.value_dim);
        large_outputs = largest_of_rows(n.output, s.value_dim);
        large_outputs.resize(rows.size());
        for (std::size_t row = 0; row < rows.size(); ++row)
            rows[row] |= may_overflow(large_rows[row], large_outputs[row], s.value_dim, limit);
    }
    const bool overflows =
        problem.gradient && !large_rows.empty() && !large_values.empty() &&
        may_overflow(std::ranges::max(large_rows),
                     std::ranges::max(large_values) + std::ranges::max(large_outputs), s.value_dim, limit);
    const bool leave_range = !large_queries.empty() && !large_keys.empty() &&
                             may_overflow(std::ranges::max(large_queries), std::ranges::max(large_keys), s.head_dim, range);
    if (!overflows && !leave_range && !any(keys) && !any(rows)) return;
    std::vector<char> reached_rows(rows.size()), reached_keys(keys.size());
    std::vector<ref::KeyColumn> columns;
    for (Int t = 0; t < s.query_rows; ++t)
        for (Int head = 0; head < s.query_heads; ++head) {
            columns.clear();
            problem.columns(t, head, columns);
            const Int kv_head = head / s.group();
            const auto row = static_cast<std::size_t>(t * s.query_heads + head);
            std::vector<char> sees(static_cast<std::size_t>(s.kv_rows));
            bool is_lost = false;
            for (const ref::KeyColumn& c : columns)
                if (c.kept) sees[static_cast<std::size_t>(c.key)] = 1;
            for (Int key = 0; key < s.kv_rows; ++key) {
                if (sees[static_cast<std::size_t>(key)]) continue;
                const auto at = static_cast<std::size_t>(key * s.kv_heads + kv_head);
                const bool infinite =
                    (overflows && may_overflow(large_rows[row], large_values[at] + large_outputs[row],
                                               s.value_dim, limit)) ||
                    (leave_range && may_overflow(large_queries[row], large_keys[at], s.head_dim, range));
                // An infinite score has -infinity added to it. In a gradient 0 (dP - delta) is no number either where dO,
                // and so delta, is none.
                reached_rows[row] |= keys[at] | infinite | rows[row];
                reached_keys[at] |= keys[at] | infinite | rows[row];
                is_lost |= keys[at] != 0 || (infinite && leave_range);
            }
            // forward=own: the row's own output has met the key. Its softmax, and delta, go to all keys that the row is
            // paired with, seen or hidden.
            if (is_lost && problem.gradient && rounding.own_forward)
                for (Int key = 0; key < s.kv_rows; ++key)
                    reached_keys[static_cast<std::size_t>(key * s.kv_heads + kv_head)] = 1;
        }
    for (auto& [name, tensor] : expected) {
        const AttentionOutput& output = problem.output_named(name);
        const std::vector<char>& reached = output.of_keys ? reached_keys : reached_rows;
        const bool anywhere = output.is_sum && any(reached_rows);
        for (std::size_t k = 0; k < tensor.size(); ++k)
            if (output.is_sum ? anywhere : reached[k / static_cast<std::size_t>(output.width)]) ref::leave_unjudged(tensor, k);
    }
}

}  // namespace

bool has_non_finite(const AttentionProblem& problem) {
    const AttentionNumbers n(problem);
    return std::ranges::any_of(
        std::initializer_list<const std::vector<double>*>{&n.query, &n.key, &n.value,
                                                          &n.output_grad, &n.output, &n.row_max,
                                                          &n.row_sum},
        [](const auto* x) { return any_non_finite(*x); });
}

bool has_non_finite_keys(const AttentionProblem& problem) {
    const AttentionNumbers n(problem);
    return any_non_finite(n.key) || any_non_finite(n.value);
}

const AttentionOutput& AttentionProblem::output_named(std::string_view name) const {
    return *std::find_if(outputs().begin(), outputs().end(),
                         [&](const AttentionOutput& one) { return one.name == name; });
}

std::string AttentionProblem::place(std::string_view name, std::size_t k) const {
    const AttentionOutput& of = output_named(name);
    const Int at = static_cast<Int>(k), row = at / (of.heads * of.width);
    if (of.is_sum && of.width == 1) return fmt::format("[head {}]", at % of.heads);
    if (of.is_sum)
        return fmt::format("[{}, {}, element {}]", row, at / of.width % of.heads, at % of.width);
    const ref::SequencePlace where = ref::sequence_places(
        of.of_keys ? kv_lengths : query_lengths,
        of.of_keys ? shape.kv_rows : shape.query_rows)[static_cast<std::size_t>(row)];
    const std::string sequence =
        where.sequence < 0 ? fmt::format("row {} beyond the last sequence", row)
                           : fmt::format("{} {}, {} {}", sequence_word, where.sequence,
                                         of.of_keys ? "key" : "query", where.position);
    const std::string head = fmt::format("{}, head {}", sequence, at / of.width % of.heads);
    if (of.width == 1 && std::string_view(of.column) == kLane) return fmt::format("[{}]", head);
    return fmt::format("[{}, {} {}]", head, of.column, at % of.width);
}

void add_attention_outputs(AttentionProblem& problem) {
    const ref::AttentionShape& s = problem.shape;
    const auto of = [&](const char* name, Role role, bool of_keys, Int width) {
        return AttentionOutput{.name = name,
                               .role = role,
                               .dtype = problem.result,
                               .heads = of_keys ? s.kv_heads : s.query_heads,
                               .width = width,
                               .of_keys = of_keys,
                               .parts = {{name, 0, width}}};
    };
    const auto add_statistic = [&](const char* name, Role role, Int width) {
        problem.forward_outputs.push_back(of(name, role, false, width));
        problem.forward_outputs.back().dtype = ref::Dtype::fp32;
        problem.forward_outputs.back().column = kLane;
    };
    if (problem.statistics == Statistics::pair) {
        add_statistic("softmax_max", Role::row_max, kStatisticLanes);
        add_statistic("softmax_sum", Role::row_sum, kStatisticLanes);
    }
    if (problem.statistics == Statistics::lse) add_statistic("lse", Role::lse, 1);
    problem.forward_outputs.push_back(
        of(problem.output_name.c_str(), Role::output, false, s.value_dim));
    problem.gradient_outputs = {of("dq", Role::query_grad, false, s.head_dim),
                                of("dk", Role::key_grad, true, s.head_dim),
                                of("dv", Role::value_grad, true, s.value_dim)};
    std::erase_if(problem.forward_outputs, [&](const AttentionOutput& output) {
        return std::ranges::find(problem.withheld, output.name) != problem.withheld.end();
    });
}

ref::ColumnLister shared_columns(ref::ColumnLister columns) {
    return [shared = std::make_shared<const ref::ColumnLister>(std::move(columns))](
               Int t, Int n, std::vector<ref::KeyColumn>& to) { return (*shared)(t, n, to); };
}

AttentionNumbers::AttentionNumbers(const AttentionProblem& problem)
    : query(decode_all(problem.dtype, problem.query)),
      key(decode_all(problem.dtype, problem.key)),
      value(decode_all(problem.dtype, problem.value)),
      output_grad(decode_all(problem.dtype, problem.output_grad)),
      output(decode_all(problem.result, problem.output)),
      row_max(problem.row_max.begin(), problem.row_max.end()),
      row_sum(problem.row_sum.begin(), problem.row_sum.end()),
      scale(problem.scale),
      keep_prob(problem.keep_prob),
      softcap(problem.softcap),
      sink(problem.sink) {}

ref::AttentionForward<double> AttentionProblem::forward(const AttentionNumbers& numbers) const {
    return {shape, columns, numbers.inputs()};
}

ref::AttentionBackward AttentionProblem::backward(const AttentionNumbers& numbers) const {
    return {shape, columns, numbers.gradient_inputs()};
}

void give_reference_forward(AttentionProblem& problem) {
    const auto rows = static_cast<std::size_t>(problem.query_rows());
    std::vector<double> output(rows * static_cast<std::size_t>(problem.shape.value_dim)),
        row_max(rows), row_sum(rows);
    const AttentionNumbers numbers(problem);
    ref::dense_attention<double>(problem.forward(numbers), output, row_max, row_sum);
    problem.output.resize(output.size());
    std::transform(output.begin(), output.end(), problem.output.begin(),
                   [&](double v) { return ref::encode(problem.result, v); });
    if (problem.statistics == Statistics::lse)
        for (std::size_t row = 0; row < rows; ++row)
            if (row_max[row] != ref::kEmptyRowMax)
                row_max[row] += std::log(std::exchange(row_sum[row], 1));
    problem.row_max.assign(row_max.begin(), row_max.end());
    problem.row_sum.assign(row_sum.begin(), row_sum.end());
}

void take_lse(const std::vector<float>& lse, AttentionValues& values) {
    values.row_max = lse;
    values.row_sum.assign(lse.size(), 1);
    for (std::size_t row = 0; row < lse.size(); ++row)
        if (lse[row] == -std::numeric_limits<float>::infinity()) {
            values.row_max[row] = static_cast<float>(ref::kEmptyRowMax);
            values.row_sum[row] = static_cast<float>(ref::kEmptyRowSum);
        }
}

ref::RoundingClass with_casts(const AttentionProblem& problem, ref::RoundingClass rounding) {
    if (problem.dtype == ref::Dtype::fp8_e5m2 || problem.dtype == ref::Dtype::fp8_e4m3fn)
        rounding.cast = problem.dtype;
    return rounding;
}

ExpectedOutputs expected_of(const AttentionProblem& problem, const ref::AttentionGradInputs& in,
                            const ref::RoundingClass& declared, ref::Grant grant) {
    const ref::RoundingClass rounding = with_casts(problem, declared);
    ref::AttentionGradInputs given = in;
    given.bias_elements = problem.bias_elements;
    given.bias_dtype = problem.bias_dtype;
    ref::GradStatistics own;
    ref::ExpectedTensor own_output;
    if (problem.statistics == Statistics::none || rounding.own_forward) {
        auto forward = ref::expected_attention({problem.shape, problem.columns, in.forward},
                                               {problem.dtype, rounding}, grant);
        if (rounding.own_forward) {
            own_output = std::move(forward.output);
            given.output = own_output.value, given.output_error = own_output.bound;
        }
        own = ref::own_statistics(std::move(forward));
        given.row_max = own.row_max, given.row_sum = own.row_sum;
        given.statistics_error = own.error;
    }
    auto expected = ref::expected_attention_grad({problem.shape, problem.columns, given},
                                                 {problem.result, rounding}, grant);
    ExpectedOutputs out;
    out.emplace_back("dq", std::move(expected.query_grad));
    out.emplace_back("dk", std::move(expected.key_grad));
    out.emplace_back("dv", std::move(expected.value_grad));
    for (const AttentionOutput& output : problem.gradient_outputs)
        if (output.is_sum)
            out.emplace_back(output.name, output.role == Role::sink_grad
                                              ? std::move(expected.sink_grad)
                                              : std::move(expected.bias_grad));
    return out;
}

ExpectedOutputs expected_of(const AttentionProblem& problem, const ref::RoundingClass& rounding,
                            ref::Grant grant) {
    const AttentionNumbers numbers(problem);
    ExpectedOutputs out;
    if (problem.gradient) {
        out = expected_of(problem, numbers.gradient_inputs(), rounding, grant);
        if (rounding.hidden_times_zero) leave_reached_unjudged(problem, rounding, out);
        return out;
    }
    auto expected =
        ref::expected_attention(problem.forward(numbers), {problem.dtype, rounding}, grant);
    if (problem.statistics == Statistics::pair) {
        out.emplace_back("softmax_max", in_lanes(expected.row_max));
        out.emplace_back("softmax_sum", in_lanes(expected.row_sum));
    }
    if (problem.statistics == Statistics::lse)
        out.emplace_back("lse", std::move(expected.stored_lse));
    out.emplace_back(problem.output_name, std::move(expected.output));
    std::erase_if(out, [&](const auto& one) { return !problem.gives(one.first); });
    if (rounding.hidden_times_zero) leave_reached_unjudged(problem, rounding, out);
    return out;
}

ExpectedOutputs in_call_order(const AttentionProblem& problem, const ExpectedOutputs& packed) {
    ExpectedOutputs out;
    for (const auto& [name, expected] : packed) {
        const AttentionOutput& output = problem.output_named(name);
        const Int numbers = static_cast<Int>(expected.size()) / output.width;
        for (const OutputPart& part : output.parts) {
            ref::ExpectedTensor tensor(static_cast<std::size_t>(numbers * part.width));
            for (Int number = 0; number < numbers; ++number) {
                const auto from = static_cast<std::size_t>(number * output.width + part.begin),
                           to = output.first_element(part, number);
                for (std::size_t c = 0; c < static_cast<std::size_t>(part.width); ++c)
                    copy_element(expected, from + c, tensor, to + c);
            }
            out.emplace_back(part.tensor, std::move(tensor));
        }
    }
    return out;
}

Bits packed_bits(const AttentionOutput& output, const Call& call, const CallResult& result) {
    Bits out;
    for (const OutputPart& part : output.parts) {
        const Bits& stored = result.outputs[tensor_index(call, part.tensor)];
        const Int numbers = static_cast<Int>(stored.size()) / part.width;
        out.resize(static_cast<std::size_t>(numbers * output.width));
        for (Int number = 0; number < numbers; ++number)
            std::copy_n(
                stored.begin() + static_cast<std::ptrdiff_t>(output.first_element(part, number)),
                part.width, out.begin() + number * output.width + part.begin);
    }
    return out;
}

}  // namespace attncheck::properties
