// Relations of the gradient of flash attention: which output gradient reaches which element,
// identities that tie dQ, dK and dV to each other and to the forward, and what the given statistics
// and output are used for. Most need no oracle of the backward: only its bounds.
//
//   delta_i = <dO_i, O_i>   dS_ij = P_ij (g_ij <dO_i, v_j> - delta_i)   P_ij = exp(s_ij -
//   row_max_i) / row_sum_i dQ_i = scale sum_j dS_ij k_j   dK_j = scale sum_i dS_ij q_i   dV_j =
//   sum_i P_ij g_ij dO_i
//
// O* is the exact output, g_ij what dropout does. The given statistics make P of a row f_i times
// the exact one, whatever they are; f_i is known. Q, K and their gradients are those with the ropes
// behind every row.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "properties/flash_attention_runs.h"
#include "ref/dual.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
constexpr double kFp32 = 0x1p-24;

/// The numbers of a gradient problem and its exact forward.
struct GradientNumbers {
    std::vector<double> query, key, value, output, output_grad, row_max, row_sum;
    // When asked for, [T1,N1,Dv] and [T1,N1]; 0 for rows without a key:
    std::vector<double> exact_output;  ///< O*
    std::vector<double> factor;        ///< f_i = sum_j P_ij
    std::vector<double> kept;          ///< sum_j P_ij g_ij
    const FlashParts& parts;

    explicit GradientNumbers(const FlashParts& of)
        : query(of.query_values()),
          key(of.key_values()),
          value(of.values(of.value)),
          output(of.values(of.output)),
          output_grad(of.values(of.output_grad)),
          row_max(of.row_max.begin(), of.row_max.end()),
          row_sum(of.row_sum.begin(), of.row_sum.end()),
          parts(of) {}

    ref::AttentionInputs<double> forward() const {
        return {query, key, value, parts.shape.scale, parts.shape.dropout.keep_prob};
    }
    std::size_t head_dim() const {
        return static_cast<std::size_t>(parts.shape.head_dim + parts.shape.rope_dim);
    }
    std::size_t value_dim() const { return static_cast<std::size_t>(parts.shape.value_dim); }

    void attend() {
        exact_output.assign(output.size(), 0);
        factor.assign(row_max.size(), 0);
        kept.assign(row_max.size(), 0);
        const ref::AttentionShape dense = parts.shape.dense();
        const ref::AttentionInputs<double> in = forward();
        ref::AttentionRow<double> row;
        for_each_row(parts, [&](Int t, Int n, const std::vector<ref::KeyColumn>& columns) {
            if (columns.empty()) return;
            ref::attend_row(dense, in, t, n, std::span<const ref::KeyColumn>(columns), row);
            const auto at = static_cast<std::size_t>(t * dense.query_heads + n);
            std::copy(row.output.begin(), row.output.end(),
                      exact_output.begin() + static_cast<Int>(at * value_dim()));
            factor[at] = std::exp(row.row_max - row_max[at]) * row.row_sum / row_sum[at];
            for (std::size_t j = 0; j < columns.size(); ++j)
                if (columns[j].kept) kept[at] += row.probs[j];
            kept[at] *= factor[at] / in.keep_prob;
        });
    }

    /// The largest |f_i - 1|.
    double statistics_error() const {
        double largest = 0;
        for (const double f : factor)
            if (f != 0) largest = std::max(largest, std::fabs(f - 1));
        return largest;
    }
    bool sees_keys(std::size_t row) const { return row_sum[row] > 0 && row_sum[row] < 1e38; }
};

/// Expected values of the given numbers; the bounds also cover statistics that move P by prob_error
/// and an output that is off by output_error [T1,N1,Dv].
ExpectedOutputs expected_of(const GradientNumbers& in, const ref::RoundingClass& rounding,
                            std::span<const double> output_error = {}, double prob_error = 0) {
    auto expected = ref::expected_attention_grad(
        in.parts.shape.dense(), ref::flash_columns(in.parts.shape),
        {in.forward(), in.output_grad, in.output, in.row_max, in.row_sum, output_error, prob_error},
        in.parts.dtype, rounding);
    ExpectedOutputs out;
    out.emplace_back("dq", std::move(expected.query_grad));
    out.emplace_back("dk", std::move(expected.key_grad));
    out.emplace_back("dv", std::move(expected.value_grad));
    return out;
}

ExpectedOutputs expected_wide(const FlashParts& parts, const ref::RoundingClass& rounding) {
    return expected_of(GradientNumbers(parts), rounding);
}

constexpr const char* kGradients[] = {"dq", "dk", "dv"};

/// Place of element k of a gradient with its rope behind every row.
std::string wide_place(const FlashParts& parts, const std::string& name, std::size_t k) {
    FlashParts shape;
    shape.shape = parts.shape;
    shape.shape.head_dim += shape.shape.rope_dim;
    shape.shape.rope_dim = 0;
    return packed_place(shape, name, k);
}

Verdict verdict_on_wide(const FlashParts& parts, const std::string& name, std::vector<double> left,
                        std::vector<double> right, const std::vector<double>& allowed,
                        const std::string& relation) {
    return verdict_within(name, std::move(left), std::move(right), allowed, relation,
                          [&](std::size_t k) { return wide_place(parts, name, k); });
}

/// Every gradient of a run against expected values, as verdict_on_values does for a call.
Verdict verdict_on_expected(const FlashParts& parts, const FlashRun& run,
                            const ExpectedOutputs& expected, const std::string& relation) {
    Verdict all;
    for (const auto& [name, values] : expected)
        join(all, verdict_on_wide(parts, name, wide_values(parts, run, name), values.value,
                                  allowance(values), relation));
    return all;
}

/// Walks [rows, heads, width] of queries or keys and gives each row the slot (sequence, key/value
/// head) it belongs to; rows beyond the last sequence are left out.
template <class Visit>
void for_each_slot(const FlashParts& parts, bool of_keys, const Visit& visit) {
    const ref::FlashAttentionShape& s = parts.shape;
    const Int heads = of_keys ? s.kv_heads : s.query_heads, group = heads / s.kv_heads;
    const auto places = of_keys ? row_places(s.kv_lengths, s.total_keys)
                                : row_places(s.query_lengths, s.total_queries);
    for (std::size_t row = 0; row < places.size(); ++row)
        for (Int head = 0; head < heads && places[row].sequence >= 0; ++head)
            visit(row * static_cast<std::size_t>(heads) + static_cast<std::size_t>(head),
                  static_cast<std::size_t>(places[row].sequence * s.kv_heads + head / group));
}

std::size_t slots(const FlashParts& parts) {
    return parts.shape.query_lengths.size() * static_cast<std::size_t>(parts.shape.kv_heads);
}

/// One number per (sequence, key/value head), or one per channel of it.
Identity identity_per_slot(const FlashParts& parts, std::size_t width = 1) {
    Identity identity(slots(parts) * width);
    const auto heads = static_cast<std::size_t>(parts.shape.kv_heads);
    for (std::size_t k = 0; k < identity.place.size(); ++k) {
        const std::size_t slot = k / width;
        identity.place[k] =
            fmt::format("{} {}, key/value head {}", parts.shape.packed ? "sequence" : "batch",
                        slot / heads, slot % heads);
        if (width > 1) identity.place[k] += fmt::format(", channel {}", k % width);
    }
    return identity;
}

/// An output gradient that is zero but for one row reaches that row's dQ and the keys it sees,
/// for dV those that it keeps.
/// Why     every term of dQ_i, and every term that row i adds to dK and dV, has dO_i as a factor.
/// Domain  moderate data; dO is kept in one (query, head), any given output and statistics.
/// Demand  exact zeros elsewhere; the row's dQ keeps the bits that it has with the whole dO.
/// Kills   mutants FAG-18.
Verdict one_row(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const ref::FlashAttentionShape& s = parts.shape;
    if (s.total_queries == 0) return inapplicable();
    Random random(mix(spec.seed));
    const Int t = random.between(0, s.total_queries - 1),
              head = random.between(0, s.query_heads - 1);
    const auto row = static_cast<std::size_t>(t * s.query_heads + head);
    FlashParts single = parts;
    for (std::size_t k = 0; k < single.output_grad.size(); ++k)
        if (k / static_cast<std::size_t>(s.value_dim) != row) single.output_grad[k] = 0;
    const FlashRun whole(parts, context), alone(single, context);
    if (auto trouble = first_trouble({&whole, &alone})) return *trouble;
    const std::string relation =
        fmt::format("with the output gradient of row {}, head {} alone", t, head);
    const auto row_of = [&](const std::string& name, std::size_t k) {
        const Int rows =
            is_of_keys(name) ? s.total_keys * s.kv_heads : s.total_queries * s.query_heads;
        return k / (whole.bits(name).size() / static_cast<std::size_t>(rows));
    };
    Verdict verdict = verdict_on_equal_bits(parts, whole, alone, relation,
                                            [&](const std::string& name, std::size_t k) {
                                                return !is_of_keys(name) && row_of(name, k) == row;
                                            });
    if (verdict.failed()) return verdict;
    const std::vector<char> seen = keys_seen_by(parts, t, head, Drops::counted),
                            kept = keys_seen_by(parts, t, head, Drops::left_out);
    for (const auto& [name, dtype, bits] : alone.outputs) {
        const std::vector<double> values = alone.values(name);
        for (std::size_t k = 0; k < values.size(); ++k) {
            const std::size_t at = row_of(name, k);
            const bool reached = !is_of_keys(name) ? at == row : name == "dv" ? kept[at] : seen[at];
            if (!reached && values[k] != 0)
                return Verdict::fail(name + " of an unreached row is not 0",
                                     fmt::format("{}: {}  expected 0  got {:.9g}", relation,
                                                 packed_place(parts, name, k), values[k]));
        }
    }
    return {};
}

/// Additive in dO.
/// Why     delta uses the given output, so that every gradient is linear in dO alone.
/// Domain  output gradients rounded to multiples of 1/8 and split into whole numbers and the
/// rest.
/// Bound   the bounds of the three runs.
/// Kills   mutants FAG-08.
Verdict linearity(const Spec& spec, PropertyContext& context) {
    FlashParts whole = flash_parts(spec);
    quantise(whole.dtype, whole.output_grad);
    FlashParts first = whole, second = whole;
    Random random(mix(spec.seed));
    std::vector<double> part(whole.output_grad.size());
    for (double& value : part) value = static_cast<double>(random.between(-3, 3));
    if (!change_exactly(whole.dtype, first.output_grad,
                        [&](double, std::size_t k) { return part[k]; }) ||
        !change_exactly(whole.dtype, second.output_grad,
                        [&](double value, std::size_t k) { return value - part[k]; }))
        return inapplicable();
    const FlashRun a(first, context), b(second, context), sum(whole, context);
    if (auto trouble = first_trouble({&a, &b, &sum})) return *trouble;
    const ExpectedOutputs a_expected = packed_expected_of(first, context.rounding),
                          b_expected = packed_expected_of(second, context.rounding),
                          sum_expected = packed_expected_of(whole, context.rounding);
    Verdict all;
    for (const auto& [name, dtype, bits] : sum.outputs)
        join(all,
             verdict_on_flash(whole, name, sum_of(a.values(name), b.values(name)), sum.values(name),
                              sum_of(sum_of(allowance(tensor_of(a_expected, name)),
                                            allowance(tensor_of(b_expected, name))),
                                     allowance(tensor_of(sum_expected, name))),
                              "output gradient split in two"));
    return all;
}

/// Twice dO gives twice every gradient.
/// Why     as linearity; and rounding does not look at exponents in the normal range.
/// Domain  moderate data.
/// Demand  to the bit, where results are normal numbers: dV always, dQ and dK unless dS is cast
/// to fp16, whose subnormal numbers are within reach; there the bounds of both runs.
/// Kills   mutants FAG-13.
Verdict output_grad_scale(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    FlashParts doubled = parts;
    if (!scale_exactly(parts.dtype, doubled.output_grad, 1)) return inapplicable();
    const FlashRun left(parts, context), right(doubled, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const bool to_the_bit = parts.dtype != ref::Dtype::fp16 || !context.rounding.score_grad_rounded;
    const ExpectedOutputs expected =
        to_the_bit ? ExpectedOutputs{} : packed_expected_of(parts, context.rounding);
    constexpr const char* kRelation = "output gradient doubled";
    Verdict all;
    for (const auto& [name, dtype, bits] : left.outputs) {
        if (to_the_bit || name == "dv") {
            join(all, verdict_on_powers(name, dtype, left.values(name), right.values(name), 1,
                                        kRelation, [&, &name = name](std::size_t k) {
                                            return packed_place(parts, name, k);
                                        }));
            continue;
        }
        // Every term of the bound at most doubles with dO.
        const std::vector<double> twice = times(left.values(name), 2);
        std::vector<double> allowed = times(allowance(tensor_of(expected, name)), 4);
        for (std::size_t k = 0; k < twice.size(); ++k)
            if (std::fabs(twice[k]) > ref::max_finite(parts.dtype) / 2)
                allowed[k] = std::numeric_limits<double>::infinity();
        join(all, verdict_on_flash(parts, name, twice, right.values(name), allowed, kRelation));
    }
    return all;
}

/// Adds the sum over the keys of a slot, channel by channel, to the left side.
void add_key_sums(const FlashParts& parts, const std::vector<double>& grad,
                  const std::vector<double>& bound, std::size_t width, Identity& identity) {
    for_each_slot(parts, true, [&](std::size_t at, std::size_t slot) {
        for (std::size_t d = 0; d < width; ++d) {
            identity.left[slot * width + d] += grad[at * width + d];
            identity.allowed[slot * width + d] += bound[at * width + d];
            identity.size[slot * width + d] += std::fabs(grad[at * width + d]);
        }
    });
}

/// Over a sequence and a key/value head, sum_j dV_j = sum_i (sum_j P_ij g_ij) dO_i: without
/// dropout, sum_i f_i dO_i.
/// Why     exchange of the sums.
/// Domain  any statistics and drop mask.
/// Bound   the bounds of dV added.
/// Kills   mutants FAG-03, FAG-07, FAG-10, FAG-40.
Verdict value_sum(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    GradientNumbers in(parts);
    in.attend();
    const FlashRun run(parts, context);
    if (run.trouble) return *run.trouble;
    const ExpectedOutputs expected = expected_of(in, context.rounding);
    const std::size_t width = in.value_dim();
    Identity identity = identity_per_slot(parts, width);
    add_key_sums(parts, run.values("dv"), allowance(tensor_of(expected, "dv")), width, identity);
    for_each_slot(parts, false, [&](std::size_t at, std::size_t slot) {
        for (std::size_t d = 0; d < width; ++d) {
            const double grad = in.kept[at] * in.output_grad[at * width + d];
            identity.right[slot * width + d] += grad;
            identity.size[slot * width + d] += std::fabs(grad);
        }
    });
    return identity.verdict("dv", "sum_j dV_j = sum_ij P_ij g_ij dO_i");
}

/// Over a sequence and a key/value head, sum_j dK_j = scale sum_i f_i <dO_i, O*_i - O_i> q_i.
/// Why     sum_j dS_ij = f_i <dO_i, O*_i> - f_i <dO_i, O_i>: with the exact output it is 0, since
/// shifting all keys changes nothing; what is left is what was done to O.
/// Domain  any statistics, given output, bias, rope and drop mask.
/// Bound   the bounds of dK added.
/// Kills   mutants FAG-08, FAG-10, FAG-40.
Verdict key_sum(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    GradientNumbers in(parts);
    in.attend();
    const FlashRun run(parts, context);
    if (run.trouble) return *run.trouble;
    const ExpectedOutputs expected = expected_of(in, context.rounding);
    const std::size_t width = in.head_dim(), value_width = in.value_dim();
    Identity identity = identity_per_slot(parts, width);
    add_key_sums(parts, wide_values(parts, run, "dk"), allowance(tensor_of(expected, "dk")), width,
                 identity);
    for_each_slot(parts, false, [&](std::size_t at, std::size_t slot) {
        const double sum =
            in.factor[at] * (dot_of(in.output_grad, in.exact_output, at, value_width) -
                             dot_of(in.output_grad, in.output, at, value_width));
        const double size =
            in.factor[at] * (size_of(in.output_grad, in.exact_output, at, value_width) +
                             size_of(in.output_grad, in.output, at, value_width));
        for (std::size_t d = 0; d < width; ++d) {
            const double q = parts.shape.scale * in.query[at * width + d];
            identity.right[slot * width + d] += sum * q;
            identity.size[slot * width + d] += size * std::fabs(q);
        }
    });
    return identity.verdict("dk", "sum_j dK_j = scale sum_i f_i <dO_i, O*_i - O_i> q_i");
}

/// Adds sum_row <grad, weights> to one side of an identity, with the bounds it brings.
void add_products(const FlashParts& parts, bool of_keys, const std::vector<double>& grad,
                  const std::vector<double>& bound, const std::vector<double>& weights,
                  std::vector<double>& side, Identity& identity) {
    const ref::FlashAttentionShape& s = parts.shape;
    const Int rows = of_keys ? s.total_keys * s.kv_heads : s.total_queries * s.query_heads;
    if (rows == 0) return;
    const std::size_t width = grad.size() / static_cast<std::size_t>(rows);
    for_each_slot(parts, of_keys, [&](std::size_t at, std::size_t slot) {
        for (std::size_t k = at * width; k < (at + 1) * width; ++k) {
            if (weights[k] == 0) continue;  // an overflowed element is not judged
            side[slot] += grad[k] * weights[k];
            identity.size[slot] += std::fabs(grad[k] * weights[k]);
            identity.allowed[slot] += bound[k] * std::fabs(weights[k]);
        }
    });
}

/// Over a sequence and a key/value head, <dQ, Q> + <dQr, Qr> = <dK, K> + <dKr, Kr> and <dV, V> =
/// sum_i f_i <dO_i, O*_i>.
/// Why     Euler: both sides of the first are scale sum_ij dS_ij <q_i, k_j>, whatever the bias;
/// both of the second sum_ij P_ij g_ij <dO_i, v_j>.
/// Domain  any statistics, given output, bias, rope and drop mask.
/// Bound   sum of the bounds times the sizes they meet.
/// Kills   mutants FAG-07, FAG-08, FAG-10, FAG-13, FAG-40.
Verdict euler(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    GradientNumbers in(parts);
    in.attend();
    const FlashRun run(parts, context);
    if (run.trouble) return *run.trouble;
    const ExpectedOutputs expected = expected_of(in, context.rounding);
    const auto bound = [&](const char* name) { return allowance(tensor_of(expected, name)); };
    const auto grad = [&](const char* name) { return wide_values(parts, run, name); };
    Identity scores = identity_per_slot(parts), values = identity_per_slot(parts);
    add_products(parts, false, grad("dq"), bound("dq"), in.query, scores.left, scores);
    add_products(parts, true, grad("dk"), bound("dk"), in.key, scores.right, scores);
    add_products(parts, true, grad("dv"), bound("dv"), in.value, values.left, values);
    for_each_slot(parts, false, [&](std::size_t at, std::size_t slot) {
        values.right[slot] +=
            in.factor[at] * dot_of(in.output_grad, in.exact_output, at, in.value_dim());
        values.size[slot] +=
            in.factor[at] * size_of(in.output_grad, in.exact_output, at, in.value_dim());
    });
    Verdict all = scores.verdict("dq and dk", "<dQ, Q> = <dK, K>");
    join(all, values.verdict("dv", "<dV, V> = sum f <dO, O*>"));
    return all;
}

/// (row_max + c, row_sum exp(-c)) is the same P.
/// Why     only exp(s - row_max) / row_sum enters a gradient, however the two share it.
/// Domain  a c of -2 .. 2 per row, on top of what the case does.
/// Bound   twice the bound for statistics that are off by the rounding of both pairs.
/// Kills   mutants FAG-03, FAG-08, FAG-19.
Verdict statistics_shift(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const GradientNumbers in(parts);
    FlashParts shifted = parts;
    Random random(mix(spec.seed));
    const double unit = std::max(kFp32, ref::accumulator_roundoff(context.rounding, parts.dtype));
    double error = 0;
    for (std::size_t row = 0; row < parts.row_max.size(); ++row) {
        if (!in.sees_keys(row)) continue;
        const float moved =
            static_cast<float>(in.row_max[row] + static_cast<double>(random.between(-8, 8)) / 4);
        const double really = static_cast<double>(moved) - in.row_max[row];
        shifted.row_max[row] = moved;
        shifted.row_sum[row] = static_cast<float>(in.row_sum[row] * std::exp(-really));
        // The rounding of the new sum; s - row_max, row_max and log(row_sum) grow by |c| each.
        error = std::max(error, 2 * kFp32 + 9 * unit * std::fabs(really));
    }
    const FlashRun left(parts, context), right(shifted, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const ExpectedOutputs expected = expected_of(in, context.rounding, {}, error);
    Verdict all;
    for (const char* name : kGradients)
        join(all, verdict_on_wide(parts, name, wide_values(parts, left, name),
                                  wide_values(parts, right, name),
                                  times(allowance(tensor_of(expected, name)), 2),
                                  "row_max + c and row_sum exp(-c)"));
    return all;
}

/// A row sum that is twice as large halves every gradient.
/// Why     P is what the statistics say, not what the logits would give: contract decision 3.
/// Domain  factors 1/2, 2 and 4 for all rows at once.
/// Bound   the bounds of both runs, that of the first divided by the factor.
/// Kills   mutants FAG-18, FAG-19.
Verdict statistics_used(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const GradientNumbers in(parts);
    FlashParts changed = parts;
    const double factor = Random(mix(spec.seed)).pick<double>({0.5, 2, 4});
    for (std::size_t row = 0; row < changed.row_sum.size(); ++row)
        if (in.sees_keys(row)) changed.row_sum[row] *= static_cast<float>(factor);
    const FlashRun left(parts, context), right(changed, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const ExpectedOutputs expected = packed_expected_of(parts, context.rounding),
                          changed_expected = packed_expected_of(changed, context.rounding);
    Verdict all;
    for (const auto& [name, dtype, bits] : left.outputs)
        join(all,
             verdict_on_flash(parts, name, times(left.values(name), 1 / factor), right.values(name),
                              sum_of(times(allowance(tensor_of(expected, name)), 1 / factor),
                                     allowance(tensor_of(changed_expected, name))),
                              fmt::format("row_sum times {}", factor)));
    return all;
}

/// delta comes from the given output: O + d moves dS_ij by -P_ij <dO_i, d_i>, and dV does not
/// look at O.
/// Why     contract decision 3.
/// Domain  d of up to 1/2 in every element.
/// Bound   that of the expected values for the changed output; the bits of dV.
/// Kills   mutants FAG-03, FAG-07, FAG-10, FAG-13, FAG-18, FAG-40.
Verdict output_used(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    FlashParts changed = parts;
    Random random(mix(spec.seed));
    for (std::uint32_t& element : changed.output)
        element = ref::encode(parts.dtype, ref::decode(parts.dtype, element) +
                                               static_cast<double>(random.between(-8, 8)) / 16);
    const FlashRun left(parts, context), right(changed, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    constexpr const char* kRelation = "another given output";
    Verdict all =
        verdict_on_equal_bits(parts, left, right, kRelation,
                              [](const std::string& name, std::size_t) { return name == "dv"; });
    join(all,
         verdict_on_expected(changed, right, expected_wide(changed, context.rounding), kRelation));
    return all;
}

std::vector<ref::Dual> dual(const std::vector<double>& values) {
    return std::vector<ref::Dual>(values.begin(), values.end());
}

/// What of the case the exact derivative is compared with.
struct Adjoint {
    struct Gradient {
        std::vector<double> values, bound;
    };
    GradientNumbers in;
    ref::AttentionShape dense;
    std::map<std::string, Gradient> gradients;  ///< dq, dk, dv
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

    /// Adds <grad, r> of one row of a gradient to the left side, and what the bounds allow.
    void add_gradient(const char* name, std::size_t at, const std::vector<double>& direction,
                      Identity& identity, std::size_t slot) const {
        const auto& [grad, bound] = gradients.at(name);
        for (std::size_t d = 0; d < direction.size(); ++d) {
            if (direction[d] == 0) continue;  // an overflowed element is not judged
            const std::size_t k = at * direction.size() + d;
            identity.left[slot] += grad[k] * direction[d];
            identity.allowed[slot] += bound[k] * std::fabs(direction[d]);
            identity.size[slot] += std::fabs(grad[k] * direction[d]);
        }
    }
};

std::vector<double> random_direction(std::size_t width, Random& random) {
    std::vector<double> direction(width);
    for (double& r : direction) r = static_cast<double>(random.between(-2, 2));
    return direction;
}

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
        of.add_gradient("dq", at, direction, identity, slot);
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
        of.add_gradient(name, at, direction, identity, slot);
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
    GradientNumbers in(parts);
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

void with_short_sequences(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    with_smaller_lengths(spec);
}

}  // namespace

void add_flash_gradient_relations(std::vector<Property>& list) {
    add_flash_shared_relations(list);
    list.push_back({"one_row", "dO in one row reaches that row and the keys it sees", one_row,
                    with_moderate_data, moderate});
    list.push_back({"linearity", "additive in dO", linearity, with_short_sequences, moderate});
    list.push_back({"output_grad_scale", "twice dO gives twice the gradients", output_grad_scale,
                    with_moderate_data, moderate});
    list.push_back({"value_sum", "sum_j dV_j = sum_ij P_ij g_ij dO_i", value_sum,
                    with_moderate_data, moderate});
    list.push_back({"key_sum", "sum_j dK_j = scale sum_i f_i <dO_i, O*_i - O_i> q_i", key_sum,
                    with_moderate_data, moderate});
    list.push_back({"euler", "<dQ, Q> = <dK, K>, <dV, V> = sum f <dO, O*>", euler,
                    with_moderate_data, moderate});
    list.push_back({"statistics_shift", "(row_max + c, row_sum exp(-c)) is the same P",
                    statistics_shift, with_moderate_data, moderate});
    list.push_back({"statistics_used", "P follows the given row_sum", statistics_used,
                    with_moderate_data, moderate});
    list.push_back({"output_used", "delta follows the given output, dV does not look at it",
                    output_used, with_moderate_data, moderate});
    list.push_back({"adjoint", "<dQ, r>, <dK, r>, <dV, r> are derivatives of the exact forward",
                    adjoint, with_combination, of_reference});
    list.push_back({"forward_backward",
                    "the candidate's own output and statistics give the gradient of attention",
                    forward_backward, with_moderate_data, moderate});
}

}  // namespace attncheck::properties
