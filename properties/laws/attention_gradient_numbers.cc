#include "properties/laws/attention_gradient_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ref/attention/rounding_noise.h"

namespace attncheck::properties {

GradientNumbers::GradientNumbers(const AttentionProblem& of)
    : AttentionNumbers(of), problem(of), exact_output(output.size()), factor(row_max.size()) {
    std::vector<double> exact_max(factor.size()), exact_sum(factor.size());
    ref::dense_attention<double>(problem.forward(*this), exact_output, exact_max, exact_sum);
    for (std::size_t row = 0; row < factor.size(); ++row)
        if (sees_keys(exact_sum[row]))
            factor[row] = std::exp(exact_max[row] - row_max[row]) * exact_sum[row] / row_sum[row];
}

std::vector<double> GradientNumbers::kept() const {
    ref::AttentionShape shape = problem.shape;
    shape.value_dim = 1;
    const std::vector<double> ones(static_cast<std::size_t>(problem.key_rows()), 1);
    std::vector<double> kept(factor.size());
    ref::dense_attention<double>(
        {shape, problem.columns, {query, key, ones, scale, keep_prob, softcap, sink}}, kept);
    for (std::size_t row = 0; row < kept.size(); ++row) kept[row] *= factor[row];
    return kept;
}

double GradientNumbers::statistics_error() const {
    double largest = 0;
    for (const double f : factor)
        if (f != 0) largest = std::max(largest, std::fabs(f - 1));
    return largest;
}

void for_each_slot(const AttentionProblem& problem, bool of_keys,
                   const std::function<void(std::size_t, std::size_t)>& visit) {
    const ref::AttentionShape& s = problem.shape;
    const std::int64_t heads = of_keys ? s.kv_heads : s.query_heads, group = heads / s.kv_heads;
    const auto places =
        ref::sequence_places(of_keys ? problem.kv_lengths : problem.query_lengths,
                             of_keys ? s.kv_rows : s.query_rows);
    std::size_t row = 0;
    for (const ref::SequencePlace& place : places)
        for (std::int64_t head = 0; head < heads; ++head, ++row)
            if (place.sequence >= 0)
                visit(row, static_cast<std::size_t>(place.sequence * s.kv_heads + head / group));
}

Identity identity_per_slot(const AttentionProblem& problem, std::size_t width) {
    const auto heads = static_cast<std::size_t>(problem.shape.kv_heads);
    Identity identity(problem.query_lengths.size() * heads * width);
    for (std::size_t k = 0; k < identity.place.size(); ++k) {
        const std::size_t slot = k / width;
        identity.place[k] = fmt::format("{} {}, key/value head {}", problem.sequence_word,
                                        slot / heads, slot % heads);
        if (width > 1) identity.place[k] += fmt::format(", channel {}", k % width);
    }
    return identity;
}

Verdict verdict_on_expected(const AttentionRun& run, const ExpectedOutputs& expected,
                            const std::string& relation) {
    Verdict all;
    for (const auto& [name, values] : expected) {
        const Comparison c =
            compare(values, run.bits(name), run.problem.output_named(name).dtype);
        Verdict one;
        if (!c.ok())
            one = Verdict::fail(
                name + " is wrong",
                fmt::format("{}: {} is wrong in {} of {} elements; worst:\n  {}  expected {:.9g}  "
                            "got {:.9g}  error {:.3g}  bound {:.3g}",
                            relation, name, c.wrong, c.compared, run.problem.place(name, c.index),
                            c.expected, c.got, c.error, c.bound),
                Tier::bound);
        one.worst_ratio = c.worst_ratio;
        join(all, one);
    }
    return all;
}

}  // namespace attncheck::properties
