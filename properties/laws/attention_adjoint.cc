// The gradient is that of the forward: of the exact one, differentiated by dual numbers, and of the
// candidate's own. Legend as in attention_gradient_numbers.h.
#include <algorithm>
#include <cmath>
#include <map>

#include "properties/laws/attention_gradient_laws.h"
#include "properties/laws/attention_gradient_numbers.h"
#include "properties/laws/attention_sight.h"
#include "ref/numbers/dual.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
using Columns = std::vector<ref::KeyColumn>;
using Duals = std::vector<ref::Dual>;

Duals dual(const std::vector<double>& values) { return {values.begin(), values.end()}; }

/// Puts a random direction of whole numbers into the tangents of a row, and returns it.
std::vector<double> set_direction(Duals& argument, std::size_t row, std::size_t width,
                                  Random& random) {
    std::vector<double> direction(width);
    for (double& r : direction) r = static_cast<double>(random.between(-2, 2));
    for (std::size_t d = 0; d < width; ++d) argument[row * width + d].tangent = direction[d];
    return direction;
}

/// Compares the gradients of a run with the exact derivatives of the forward.
struct Adjoint {
    const AttentionProblem& problem;
    GradientNumbers in;
    std::map<std::string, BoundedGradient> gradients;  ///< of every output
    Duals query, key, value, sink, bias;
    ref::AttentionRow<ref::Dual> row_of_forward;

    Adjoint(const AttentionRun& run, const ref::RoundingClass& rounding)
        : problem(run.problem),
          in(run.problem),
          query(dual(in.query)),
          key(dual(in.key)),
          value(dual(in.value)),
          sink(in.sink.begin(), in.sink.end()),
          bias(problem.bias_elements) {
        std::vector<double> output_error(in.output.size());
        for (std::size_t k = 0; k < output_error.size(); ++k)
            output_error[k] = std::fabs(in.output[k] - in.exact_output[k]);
        ref::AttentionGradInputs inputs = in.gradient_inputs();
        inputs.output_error = output_error;
        inputs.prob_error = in.statistics_error();
        const ExpectedOutputs expected = expected_of(problem, inputs, rounding);
        for (const AttentionOutput& output : problem.outputs())
            gradients.try_emplace(output.name, run, expected, output.name);
        if (!bias.empty())
            for_each_row(problem, [&](Int, Int, const Columns& columns) {
                for (const ref::KeyColumn& column : columns)
                    if (column.place >= 0) bias[static_cast<std::size_t>(column.place)] = column.bias;
            });
    }

    /// Adds d <dO_i, O_i> / d eps of one row of the forward over dual numbers to the right side.
    void add_derivative(Int t, Int n, const Columns& columns, Identity& identity,
                        std::size_t slot) {
        const ref::AttentionInputs<ref::Dual> forward{query,    key,          value,     in.scale,
                                                        in.keep_prob, in.softcap, sink, bias};
        ref::attend_row(problem.shape, forward, t, n, std::span<const ref::KeyColumn>(columns),
                        row_of_forward);
        const Duals& output = row_of_forward.output;
        const auto first =
            static_cast<std::size_t>(t * problem.shape.query_heads + n) * output.size();
        const std::vector<double> slopes = sizes_of_slopes();
        for (std::size_t d = 0; d < output.size(); ++d) {
            identity.right[slot] += in.output_grad[first + d] * output[d].tangent;
            identity.size[slot] += std::fabs(in.output_grad[first + d]) * size_of_derivative(n, columns, slopes, d);
        }
    }

    /// |P'| of every column, and what P' = P (s' - sum P s') is the difference of; 0 where P is: a logit of -infinity has
    /// no tangent.
    std::vector<double> sizes_of_slopes() const {
        const Duals &probs = row_of_forward.probs, &logits = row_of_forward.logits;
        const auto counts = [&](std::size_t j) { return probs[j].value != 0 || probs[j].tangent != 0; };
        double mean = 0;
        for (std::size_t j = 0; j < probs.size(); ++j)
            if (counts(j)) mean += probs[j].value * std::fabs(logits[j].tangent);
        std::vector<double> sizes(probs.size());
        for (std::size_t j = 0; j < probs.size(); ++j)
            if (counts(j)) sizes[j] = std::fabs(probs[j].tangent) + probs[j].value * (std::fabs(logits[j].tangent) + mean);
        return sizes;
    }

    /// What the sum dO_d/d eps = sum g (P' v + P v') is rounded by: its terms may cancel, as they do along a sink where the
    /// values have the mean 0.
    double size_of_derivative(Int n, const Columns& columns, const std::vector<double>& slopes, std::size_t channel) const {
        const auto width = static_cast<std::size_t>(problem.shape.value_dim);
        double size = 0;
        for (std::size_t j = 0; j < columns.size(); ++j) {
            const double prob = row_of_forward.probs[j].value;
            if (!columns[j].kept || (prob == 0 && slopes[j] == 0)) continue;
            const ref::Dual& v = value[key_number(problem, columns[j], n) * width + channel];
            size += slopes[j] * std::fabs(v.value) + prob * std::fabs(v.tangent);
        }
        return size / in.keep_prob;
    }

    /// Adds <grad, r> of one row to the left side.
    void add_gradient(const std::string& name, std::size_t row, const std::vector<double>& direction,
                      Identity& identity, std::size_t slot) {
        gradients.at(name).add_product(row * direction.size(), direction, identity.left, identity,
                                       slot);
        identity.place[slot] = problem.place(name, row * direction.size());
    }
};

/// One query row at a time: d<dO_i, O_i> along q_i; in every second row along q_i itself, which is
/// along the logarithm of the scale.
Verdict query_adjoint(Adjoint& of, Random& random) {
    const auto rows = static_cast<std::size_t>(of.problem.query_rows());
    constexpr std::size_t kMany = 64;  // rows tried, spread over the problem
    const std::size_t step = rows / kMany + 1;
    Identity identity((rows + step - 1) / step);
    for_each_row(of.problem, [&](Int t, Int n, const Columns& columns) {
        const auto row = static_cast<std::size_t>(t * of.problem.shape.query_heads + n);
        if (row % step != 0) return;
        const auto width = static_cast<std::size_t>(of.problem.shape.head_dim);
        std::vector<double> direction = set_direction(of.query, row, width, random);
        for (std::size_t d = 0; d < width && row / step % 2 == 1; ++d)
            of.query[row * width + d].tangent = direction[d] = of.in.query[row * width + d];
        of.add_derivative(t, n, columns, identity, row / step);
        of.add_gradient("dq", row, direction, identity, row / step);
    });
    for (ref::Dual& number : of.query) number.tangent = 0;
    return identity.verdict("dq", "<dQ_i, r> = d<dO, O>/dq_i along r");
}

/// One key of every sequence and key/value head: d<dO, O> along k_j, or along v_j.
Verdict key_adjoint(Adjoint& of, Random& random, bool along_key) {
    const AttentionProblem& problem = of.problem;
    const char* name = along_key ? "dk" : "dv";
    const auto width =
        static_cast<std::size_t>(along_key ? problem.shape.head_dim : problem.shape.value_dim);
    Duals& argument = along_key ? of.key : of.value;
    Identity identity = identity_per_slot(problem);
    std::vector<Int> chosen(identity.left.size(), -1), keys_seen(chosen.size());
    const std::vector<char> seen = seen_keys(problem);
    for_each_slot(problem, true, [&](std::size_t row, std::size_t slot) {
        if (seen[row] && random.between(0, keys_seen[slot]++) == 0)
            chosen[slot] = static_cast<Int>(row);
    });
    for (std::size_t slot = 0; slot < chosen.size(); ++slot) {
        if (chosen[slot] < 0) continue;
        const auto row = static_cast<std::size_t>(chosen[slot]);
        of.add_gradient(name, row, set_direction(argument, row, width, random), identity, slot);
    }
    Columns columns;
    for_each_slot(problem, false, [&](std::size_t row, std::size_t slot) {
        if (chosen[slot] < 0) return;
        const Int t = static_cast<Int>(row) / problem.shape.query_heads,
                  n = static_cast<Int>(row) % problem.shape.query_heads;
        columns.clear();
        problem.columns(t, n, columns);
        if (std::any_of(columns.begin(), columns.end(), [&](const ref::KeyColumn& column) {
                return key_number(problem, column, n) == static_cast<std::size_t>(chosen[slot]);
            }))
            of.add_derivative(t, n, columns, identity, slot);
    });
    for (ref::Dual& number : argument) number.tangent = 0;
    return identity.verdict(name, along_key ? "<dK_j, r> = d<dO, O>/dk_j along r"
                                            : "<dV_j, r> = d<dO, O>/dv_j along r");
}

/// All of a bias at once, or every sink alone: d<dO, O> along it.
Verdict added_adjoint(Adjoint& of, Random& random, const char* name, Duals& argument) {
    const AttentionProblem& problem = of.problem;
    if (!problem.gives(name)) return {};
    const bool of_heads = &argument == &of.sink;
    const auto width = static_cast<std::size_t>(problem.output_named(name).width);
    Identity identity(of_heads ? argument.size() : 1);
    for (std::size_t row = 0; row < argument.size() / width; ++row)
        of.add_gradient(name, row, set_direction(argument, row, width, random), identity,
                        of_heads ? row : 0);
    for_each_row(problem, [&](Int t, Int n, const Columns& columns) {
        if (!columns.empty())
            of.add_derivative(t, n, columns, identity, of_heads ? static_cast<std::size_t>(n) : 0);
    });
    for (ref::Dual& number : argument) number.tangent = 0;
    return identity.verdict(name, of_heads ? "dsink_h = d<dO, O>/dsink_h"
                                           : "<dbias, r> = d<dO, O>/dbias along r");
}

}  // namespace

/// The gradient is that of the forward, for every combination of mask, bias, rope and dropout.
/// Why     <dQ, r> is the derivative of f = <dO, O(Q + eps r, K, V, bias, sink)>. Dual numbers give the
///         derivative exactly through the reference forward, without an oracle of the backward
///         (verification.md 4.9).
/// Domain  the given output is that of the reference, so that the gradient is that of the forward.
/// Bound   sum of the bounds times |r|, r whole numbers in one row at a time, or in all of a bias; r
///         is q_i itself in every second row, which is the direction of the scale. A rope is a part
///         of its row. The bounds cover the rounding of the given output and of the statistics.
/// Kills   FAG-03 07 10 13 40, NSG-02 12 13 x02 x25 x26 x27 x28.
/// Shrinks to one query, one key or block of keys, one head, one non-zero dO element.
Verdict adjoint(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    if (context.rounding.own_forward) return inapplicable();
    const AttentionProblem problem = of.problem(spec);
    const AttentionRun run(of, problem, context);
    if (run.early_verdict) return *run.early_verdict;
    Adjoint both(run, context.rounding);
    Random random(mix(spec.seed));
    Verdict all = key_adjoint(both, random, true);
    join(all, key_adjoint(both, random, false));
    join(all, query_adjoint(both, random));
    join(all, added_adjoint(both, random, "dbias", both.bias));
    join(all, added_adjoint(both, random, "dsink", both.sink));
    return all;
}

/// The candidate's forward and backward belong together: its own statistics and output, passed to
/// its own gradient, give the gradient of exact attention.
/// Why     training does it. Both must have the same conventions (scale in row_max, base of the
///         logarithm, order of the statistics, bits of the drop mask).
/// Domain  candidates that export the forward.
/// Bound   that of the gradient, with the forward's bounds as errors of the given output and
///         statistics.
/// Kills   FAG-03 07 10 13 19, NSG-07 12 13 x02 x22 x26 x34.
/// Shrinks to one query, one key or block of keys, one head, one non-zero dO element.
Verdict forward_backward(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    AttentionProblem problem = of.problem(spec), forward_problem = problem;
    forward_problem.gradient = false;
    const std::string op = of.call(forward_problem).op;
    if (!context.candidate.info().implements(op)) return inapplicable();
    if (!context.gives_all_of(op)) return needs("every output of " + op);
    const AttentionRun forward(of, forward_problem, context);
    if (forward.early_verdict) return *forward.early_verdict;
    AttentionNumbers in(problem);
    const auto exact =
        ref::expected_attention(problem.forward(in), {problem.dtype, context.rounding});
    in.output = exact.output.value;
    in.row_max = exact.row_max.value;
    in.row_sum = exact.row_sum.value;
    const bool has_pair = problem.statistics == Statistics::pair;
    for (std::size_t row = 0; row < in.row_max.size(); ++row)
        if (problem.statistics == Statistics::lse && sees_keys(in.row_sum[row])) {
            in.row_max[row] = exact.stored_lse.value[row];
            in.row_sum[row] = 1;
        }
    ref::AttentionGradInputs inputs = in.gradient_inputs();
    inputs.output_error = exact.output.bound;
    for (std::size_t row = 0; row < in.row_max.size(); ++row)
        if (sees_keys(in.row_sum[row]) && problem.statistics != Statistics::none) {
            // log P moves with the LSE; the gradient's own rounding is relative to the row_max it
            // is given.
            const double error = has_pair
                                     ? exact.lse.bound[row] + 0x1p-20 * exact.row_max.bound[row]
                                     : exact.stored_lse.bound[row] * (1 + 0x1p-20);
            if (!std::isfinite(error)) return inapplicable();
            inputs.prob_error = std::max(inputs.prob_error, error);
        }
    problem.output = forward.bits(problem.output_name);
    const auto floats = [](const std::vector<double>& values) {
        return std::vector<float>(values.begin(), values.end());
    };
    if (has_pair) {
        problem.row_max = floats(forward.first_lanes("softmax_max"));
        problem.row_sum = floats(forward.first_lanes("softmax_sum"));
    } else if (problem.statistics == Statistics::lse) {
        take_lse(floats(forward.values("lse")), problem);
    }
    const AttentionRun gradient(of, problem, context);
    if (gradient.early_verdict) return *gradient.early_verdict;
    return verdict_on_expected(gradient, expected_of(problem, inputs, context.rounding),
                               "own forward, own gradient");
}

}  // namespace attncheck::properties
