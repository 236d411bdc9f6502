// The gradient of flash attention is that of the forward: of the exact one, differentiated by dual
// numbers, and of the candidate's own. Legend as in flash_attention_grad_numbers.h.
#include <algorithm>
#include <cmath>
#include <map>

#include "properties/laws/adjoint_checks.h"
#include "properties/operators/flash_attention/grad_numbers.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// What of the case the exact derivative is compared with.
struct Adjoint {
    FlashGradientNumbers in;
    ref::AttentionShape dense;
    std::map<std::string, BoundedGradient> gradients;  ///< dq, dk, dv
    std::vector<ref::Dual> query, key, value;
    ref::AttentionRow<ref::Dual> row;

    Adjoint(const FlashParts& parts, const FlashRun& run, const ref::RoundingClass& rounding)
        : in(parts),
          dense(parts.shape.dense()),
          query(dual(in.query)),
          key(dual(in.key)),
          value(dual(in.value)) {
        in.attend();
        std::vector<double> output_error(in.output.size());
        for (std::size_t k = 0; k < output_error.size(); ++k)
            output_error[k] = std::fabs(in.output[k] - in.exact_output[k]);
        for (const auto& [name, expected] :
             expected_of(in, rounding, output_error, in.statistics_error()))
            gradients[name] = {wide_values(parts, run, name), allowance(expected)};
    }

    /// Adds d <dO_i, O_i> / d eps of one row of the forward over dual numbers to the right side.
    void add_derivative(std::size_t at, const std::vector<ref::KeyColumn>& columns,
                        Identity& identity, std::size_t slot) {
        const ref::AttentionInputs<ref::Dual> forward{query, key, value, in.parts.shape.scale,
                                                      in.parts.shape.dropout.keep_prob};
        ref::attend_row(dense, forward, static_cast<Int>(at) / dense.query_heads,
                        static_cast<Int>(at) % dense.query_heads,
                        std::span<const ref::KeyColumn>(columns), row);
        for (std::size_t d = 0; d < row.output.size(); ++d) {
            const double term = in.output_grad[at * row.output.size() + d] * row.output[d].tangent;
            identity.right[slot] += term;
            identity.size[slot] += std::fabs(term);
        }
    }
};

/// One query row at a time: d<dO_i, O_i> along q_i.
Verdict query_adjoint(Adjoint& of, Random& random) {
    const auto rows = static_cast<std::size_t>(of.dense.query_rows * of.dense.query_heads);
    constexpr std::size_t kMany = 64;  // rows tried, spread over the problem
    const std::size_t step = rows / kMany + 1;
    Identity identity((rows + step - 1) / step);
    for_each_row(of.in.parts, [&](Int t, Int n, const std::vector<ref::KeyColumn>& columns) {
        const auto at = static_cast<std::size_t>(t * of.dense.query_heads + n);
        if (at % step != 0) return;
        const std::vector<double> direction = random_direction(of.in.head_dim(), random);
        const std::size_t first = at * direction.size(), slot = at / step;
        for (std::size_t d = 0; d < direction.size(); ++d)
            of.query[first + d].tangent = direction[d];
        of.add_derivative(at, columns, identity, slot);
        of.gradients.at("dq").add(at, direction, identity, slot);
        identity.place[slot] = wide_place(of.in.parts, "dq", first);
    });
    return identity.verdict("dq", "<dQ_i, r> = d<dO, O>/dq_i along r");
}

/// One key of every sequence and key/value head: d<dO, O> along k_j, or along v_j.
Verdict key_adjoint(Adjoint& of, Random& random, bool along_key) {
    const FlashParts& parts = of.in.parts;
    const std::size_t width = along_key ? of.in.head_dim() : of.in.value_dim();
    const char* name = along_key ? "dk" : "dv";
    Identity identity = identity_per_slot(parts);
    std::vector<Int> chosen(slots(parts), -1), keys_seen(chosen.size());
    const std::vector<char> seen = seen_keys(parts);
    for_each_slot(parts, true, [&](std::size_t at, std::size_t slot) {
        if (seen[at] && random.between(0, keys_seen[slot]++) == 0)
            chosen[slot] = static_cast<Int>(at);
    });
    auto& argument = along_key ? of.key : of.value;
    for (std::size_t slot = 0; slot < chosen.size(); ++slot) {
        if (chosen[slot] < 0) continue;
        const auto at = static_cast<std::size_t>(chosen[slot]);
        const std::vector<double> direction = random_direction(width, random);
        for (std::size_t d = 0; d < width; ++d) argument[at * width + d].tangent = direction[d];
        of.gradients.at(name).add(at, direction, identity, slot);
        identity.place[slot] = wide_place(parts, name, at * width);
    }
    const auto places = row_places(parts.shape.query_lengths, parts.shape.total_queries);
    for_each_row(parts, [&](Int t, Int n, const std::vector<ref::KeyColumn>& columns) {
        const Int heads = parts.shape.kv_heads, head = n / of.dense.group();
        const auto slot =
            static_cast<std::size_t>(places[static_cast<std::size_t>(t)].sequence * heads + head);
        const bool meets = std::any_of(columns.begin(), columns.end(), [&](const auto& c) {
            return c.key * heads + head == chosen[slot];
        });
        if (meets)
            of.add_derivative(static_cast<std::size_t>(t * of.dense.query_heads + n), columns,
                              identity, slot);
    });
    for (ref::Dual& number : argument) number.tangent = 0;
    return identity.verdict(name, along_key ? "<dK_j, r> = d<dO, O>/dk_j along r"
                                            : "<dV_j, r> = d<dO, O>/dv_j along r");
}

/// The gradient is that of the forward, for every combination of mask, bias, rope and dropout.
/// Why     <dQ, r> is the derivative of f = <dO, O(Q + eps r, K, V)>, which dual numbers give
/// exactly through the reference forward: no oracle of the backward is needed (verification.md
/// 4.9).
/// Domain  given statistics and output of the reference, so that the gradient is that of the
/// forward.
/// Bound   sum of the bounds times |r|, r whole numbers in one row at a time; the bounds cover
/// the rounding of the given output and statistics.
/// Kills   mutants FAG-03, FAG-07, FAG-10, FAG-13, FAG-40.
Verdict adjoint(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const FlashRun run(parts, context);
    if (run.trouble) return *run.trouble;
    Adjoint of(parts, run, context.rounding);
    Random random(mix(spec.seed));
    Verdict all = key_adjoint(of, random, true);
    join(all, key_adjoint(of, random, false));
    join(all, query_adjoint(of, random));
    return all;
}

bool of_reference(const Spec& spec) {
    return spec.number("out") == 0 && spec.number("stats") == 0 && moderate(spec);
}

/// Draws whether there is a mask, a bias and a drop mask, each with a chance of a half.
void with_combination(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    spec.set("out", 0), spec.set("stats", 0);
    if (spec.numbers[kFaRope] != 0) return;
    if (random.chance(50))
        without_mask(spec);
    else
        with_some_mask(spec, random);
    if (random.chance(50)) without_bias(spec);
    if (random.chance(50)) {
        without_dropout(spec);
    } else if (spec.numbers[kFaDrop] == 0) {
        spec.numbers[kFaDrop] = 1;
        spec.numbers[kFaKeep] = random.between(1, 3);
    }
}

/// The candidate's forward and backward belong together: its own statistics and output, fed to
/// its own gradient, give the gradient of exact attention.
/// Why     what training does; conventions of the two (scale in row_max, base of the logarithm,
/// order of the statistics, bits of the drop mask) must be the same.
/// Domain  candidates that export the forward.
/// Bound   that of the gradient, with the forward's bounds as errors of the given output and
/// statistics.
/// Kills   mutants FAG-03, FAG-07, FAG-10, FAG-13, FAG-19.
Verdict forward_backward(const Spec& spec, PropertyContext& context) {
    if (!context.candidate.info().implements("flash_attention_score")) return inapplicable();
    FlashParts parts = flash_parts(spec), forward_parts = parts;
    forward_parts.gradient = false;
    const FlashRun forward(forward_parts, context);
    if (forward.trouble) return *forward.trouble;
    FlashGradientNumbers in(parts);
    const auto exact = ref::expected_attention(parts.shape.dense(), ref::flash_columns(parts.shape),
                                               in.forward(), parts.dtype, context.rounding);
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
    for (std::size_t row = 0; row < parts.row_max.size(); ++row) {
        const std::size_t lanes = row_max.size() / parts.row_max.size();
        parts.row_max[row] = static_cast<float>(row_max[row * lanes]);
        parts.row_sum[row] = static_cast<float>(row_sum[row * lanes]);
    }
    const FlashRun gradient(parts, context);
    if (gradient.trouble) return *gradient.trouble;
    return verdict_on_expected(parts, gradient,
                               expected_of(in, context.rounding, exact.output.bound, prob_error),
                               "own forward, own gradient");
}

}  // namespace

void add_flash_adjoint_relations(std::vector<Property>& list) {
    list.push_back({"adjoint", "<dQ, r>, <dK, r>, <dV, r> are derivatives of the exact forward",
                    adjoint, with_combination, of_reference});
    list.push_back({"forward_backward",
                    "the candidate's own output and statistics give the gradient of attention",
                    forward_backward, with_moderate_data, moderate});
}

}  // namespace attncheck::properties
