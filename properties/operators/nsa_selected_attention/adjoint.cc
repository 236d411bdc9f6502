// The gradient of selected attention is that of the forward: of the exact one, differentiated by
// dual numbers, and of the candidate's own. Legend as in nsa_selected_attention_grad_numbers.h.
#include <algorithm>
#include <cmath>
#include <map>

#include "properties/laws/adjoint_checks.h"
#include "properties/operators/nsa_selected_attention/grad_numbers.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// <dO_i, dO_i / d eps> of one row of the forward over dual numbers.
double row_derivative(const SelectedGradientNumbers& in,
                      const ref::AttentionInputs<ref::Dual>& forward, std::size_t at,
                      std::span<const ref::KeyColumn> columns, ref::AttentionRow<ref::Dual>& row,
                      double& size) {
    const Int heads = in.parts.shape.query_heads;
    ref::attend_row(in.parts.shape.dense(), forward, static_cast<Int>(at) / heads,
                    static_cast<Int>(at) % heads, columns, row);
    double sum = 0;
    for (std::size_t d = 0; d < row.output.size(); ++d) {
        const double term = in.output_grad[at * row.output.size() + d] * row.output[d].tangent;
        sum += term;
        size += std::fabs(term);
    }
    return sum;
}

/// What of the case the exact derivative is compared with.
struct Adjoint {
    SelectedGradientNumbers in;
    const SelectedRun& run;
    std::map<std::string, BoundedGradient> gradients;  ///< dq, dk, dv
    std::vector<ref::Dual> query, key, value;

    Adjoint(const SelectedParts& parts, const SelectedRun& of, const ref::RoundingClass& rounding)
        : in(parts), run(of), query(dual(in.query)), key(dual(in.key)), value(dual(in.value)) {
        in.attend();
        std::vector<double> output_error(in.output.size());
        for (std::size_t k = 0; k < output_error.size(); ++k)
            output_error[k] = std::fabs(in.output[k] - in.exact_output[k]);
        for (const auto& [name, expected] :
             expected_with_errors(in, rounding, output_error, in.largest_statistics_error()))
            gradients[name] = {run.values(name), allowance(expected)};
    }
};

/// One query row at a time: d<dO_i, O_i> along q_i.
Verdict query_adjoint(const Spec& spec, Adjoint& of, Random& random) {
    const ref::SelectedAttentionShape& s = of.in.parts.shape;
    const auto rows = static_cast<std::size_t>(s.total_queries * s.query_heads);
    constexpr std::size_t kMany = 64;  // rows tried, spread over the problem
    const std::size_t step = rows / kMany + 1;
    const auto columns_of = of.in.parts.columns();
    std::vector<ref::KeyColumn> columns;
    ref::AttentionRow<ref::Dual> row;
    Identity identity((rows + step - 1) / step);
    std::size_t slot = 0;
    for (std::size_t at = 0; at < rows; at += step, ++slot) {
        columns.clear();
        columns_of(static_cast<Int>(at) / s.query_heads, static_cast<Int>(at) % s.query_heads,
                   columns);
        const std::vector<double> direction =
            random_direction(static_cast<std::size_t>(s.head_dim), random);
        const auto first = at * direction.size();
        for (std::size_t d = 0; d < direction.size(); ++d)
            of.query[first + d].tangent = direction[d];
        const ref::AttentionInputs<ref::Dual> forward{of.query, of.key, of.value,
                                                      of.in.parts.narrowed_scale(), 1};
        identity.right[slot] =
            row_derivative(of.in, forward, at, columns, row, identity.size[slot]);
        of.gradients.at("dq").add(at, direction, identity, slot);
        identity.place[slot] = place_of(spec, of.run.call, "dq", first);
    }
    return identity.verdict("dq", "<dQ_i, r> = d<dO, O>/dq_i along r");
}

/// One key of every sequence and key/value head: d<dO, O> along k_j, or along v_j.
Verdict key_adjoint(const Spec& spec, Adjoint& of, Random& random, bool along_key) {
    const ref::SelectedAttentionShape& s = of.in.parts.shape;
    const Int width = along_key ? s.head_dim : s.value_dim, group = s.dense().group();
    const char* name = along_key ? "dk" : "dv";
    Identity identity = identity_per_slot(of.in.parts);
    std::vector<Int> chosen(slots(of.in.parts), -1);
    std::vector<Int> keys_seen(chosen.size());
    const std::vector<char> seen = seen_keys(of.in.parts);
    for_each_slot(of.in.parts, true, [&](std::size_t at, std::size_t slot) {
        if (seen[at] && random.between(0, keys_seen[slot]++) == 0)
            chosen[slot] = static_cast<Int>(at);
    });
    auto& argument = along_key ? of.key : of.value;
    for (std::size_t slot = 0; slot < chosen.size(); ++slot) {
        if (chosen[slot] < 0) continue;
        const auto at = static_cast<std::size_t>(chosen[slot]);
        const std::vector<double> direction =
            random_direction(static_cast<std::size_t>(width), random);
        for (std::size_t d = 0; d < direction.size(); ++d)
            argument[at * direction.size() + d].tangent = direction[d];
        of.gradients.at(name).add(at, direction, identity, slot);
        identity.place[slot] = place_of(spec, of.run.call, name, at * direction.size());
    }
    const ref::AttentionInputs<ref::Dual> forward{of.query, of.key, of.value,
                                                  of.in.parts.narrowed_scale(), 1};
    const auto columns_of = of.in.parts.columns();
    std::vector<ref::KeyColumn> columns;
    ref::AttentionRow<ref::Dual> row;
    for_each_slot(of.in.parts, false, [&](std::size_t at, std::size_t slot) {
        const Int head = static_cast<Int>(at) % s.query_heads;
        columns.clear();
        columns_of(static_cast<Int>(at) / s.query_heads, head, columns);
        const Int key_row = chosen[slot] / s.kv_heads;
        if (chosen[slot] < 0 || std::none_of(
                                    columns.begin(), columns.end(),
                                    [&](const auto& c) {
                                        return c.key == key_row &&
                                               chosen[slot] % s.kv_heads == head / group;
                                    }))
            return;
        identity.right[slot] +=
            row_derivative(of.in, forward, at, columns, row, identity.size[slot]);
    });
    for (ref::Dual& number : argument) number.tangent = 0;
    return identity.verdict(name, along_key ? "<dK_j, r> = d<dO, O>/dk_j along r"
                                            : "<dV_j, r> = d<dO, O>/dv_j along r");
}

/// The gradient is that of the forward.
/// Why     <dQ, r> is the derivative of f = <dO, O(Q + eps r, K, V)>, which dual numbers give
/// exactly through the reference forward: no oracle of the backward is needed (verification.md
/// 4.9).
/// Domain  given statistics and output of the reference, so that the gradient is that of the
/// forward.
/// Bound   sum of the bounds times |r|, r whole numbers in one row at a time; the bounds cover the
/// rounding of the given output and statistics.
/// Kills   NSG-02 12 13 x02 x25 x26 x27 x28.
/// Shrinks to one query, one block of 16 keys, one head, one non-zero dO element.
Verdict adjoint(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    const SelectedRun run(parts, context);
    if (run.trouble) return *run.trouble;
    Adjoint of(parts, run, context.rounding);
    Random random(mix(spec.seed));
    Verdict all = key_adjoint(spec, of, random, true);
    join(all, key_adjoint(spec, of, random, false));
    join(all, query_adjoint(spec, of, random));
    return all;
}

bool output_of_reference(const Spec& spec) { return spec.number("out") == 0 && moderate(spec); }

/// The candidate's forward and backward belong together: its own statistics and output, fed to its
/// own gradient, give the gradient of exact attention.
/// Why     what training does; conventions of the two (scale in row_max, base of the logarithm)
/// must be the same.
/// Domain  candidates that export the forward.
/// Bound   that of the gradient, with the forward's bounds as errors of the given output and
/// statistics.
/// Kills   NSG-07 12 13 x02 x22 x26 x34.
/// Shrinks to one query, one block of 16 keys, one head, one non-zero dO element.
Verdict forward_backward(const Spec& spec, PropertyContext& context) {
    if (!context.candidate.info().implements("nsa_selected_attention")) return inapplicable();
    SelectedParts parts = selected_parts(spec);
    SelectedParts forward_parts = parts;
    forward_parts.gradient = false;
    const SelectedRun forward(forward_parts, context);
    if (forward.trouble) return *forward.trouble;
    SelectedGradientNumbers in(parts);
    const auto exact = ref::expected_attention(parts.shape.dense(), parts.columns(), in.forward(),
                                               parts.dtype, context.rounding);
    in.output = exact.output.value;
    in.row_max = exact.row_max.value;
    in.row_sum = exact.row_sum.value;
    double prob_error = 0;
    for (std::size_t row = 0; row < in.row_max.size(); ++row)
        if (in.sees_keys(row)) {
            // log P moves with the LSE; the gradient's own rounding is relative to the row_max it
            // is given.
            const double error = exact.lse.bound[row] + 0x1p-20 * exact.row_max.bound[row];
            if (!std::isfinite(error)) return inapplicable();
            prob_error = std::max(prob_error, error);
        }
    parts.output = forward.bits("attention_out");
    const std::vector<double> row_max = forward.values("softmax_max"),
                              row_sum = forward.values("softmax_sum");
    const std::size_t lanes = row_max.size() / parts.row_max.size();
    for (std::size_t row = 0; row < parts.row_max.size(); ++row) {
        parts.row_max[row] = static_cast<float>(row_max[row * lanes]);
        parts.row_sum[row] = static_cast<float>(row_sum[row * lanes]);
    }
    const SelectedRun gradient(parts, context);
    if (gradient.trouble) return *gradient.trouble;
    return verdict_on_values(
        spec, gradient.call, gradient.result,
        expected_with_errors(in, context.rounding, exact.output.bound, prob_error));
}

void with_reference_output(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    spec.set("out", 0);
}

}  // namespace

void add_selected_adjoint_relations(std::vector<Property>& list) {
    list.push_back({"adjoint", "<dQ, r>, <dK, r>, <dV, r> are derivatives of the exact forward",
                    adjoint, with_reference_output, output_of_reference});
    list.push_back({"forward_backward",
                    "the candidate's own output and statistics give the gradient of attention",
                    forward_backward, with_moderate_data, moderate});
}

}  // namespace attncheck::properties
