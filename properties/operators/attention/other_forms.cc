// Relations of Attention and its gradient to other forms of the same problem: padded batches, and the
// operator of the documents.
#include <algorithm>
#include <cmath>
#include <limits>

#include "properties/case/attention_data.h"
#include "properties/case/attention_draws.h"
#include "properties/laws/attention_laws.h"
#include "properties/laws/attention_run.h"
#include "properties/operators/attention/case.h"
#include "properties/operators/flash_attention/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// Sequences as batches of equal length, the tails of the shorter ones hidden by kv_length.
struct Padded {
    AttentionProblem problem;
    Int queries = 0, keys = 0;  ///< rows of every batch

    explicit Padded(const AttentionProblem& packed) {
        NeutralParts to = parts_of<NeutralParts>(packed);
        ref::NeutralAttentionShape& s = to.shape;
        queries = longest(s.query_lengths), keys = longest(s.kv_lengths);
        const auto tails = [](const auto& values, const std::vector<Int>& lengths, Int longest_one,
                              Int width, std::uint32_t filler) {
            auto out = values;
            out.clear();
            Int first = 0;
            for (const Int length : lengths) {
                const auto at = values.begin() + first * width;
                out.insert(out.end(), at, at + length * width);
                out.insert(out.end(), static_cast<std::size_t>((longest_one - length) * width),
                           filler);
                first += length;
            }
            return out;
        };
        const std::uint32_t nan =
            ref::encode(to.dtype, std::numeric_limits<double>::quiet_NaN());
        to.query = tails(to.query, s.query_lengths, queries, s.query_heads * s.head_dim, 0);
        to.key = tails(to.key, s.kv_lengths, keys, s.kv_heads * s.head_dim, nan);
        to.value = tails(to.value, s.kv_lengths, keys, s.kv_heads * s.value_dim, nan);
        if (to.gradient)
            for (Bits* rows : {&to.output_grad, &to.output})
                *rows = tails(*rows, s.query_lengths, queries, s.query_heads * s.value_dim, 0);
        s.packed = false;
        s.has_kv_length = true;
        s.kv_length = s.kv_lengths;
        const auto batches = s.kv_lengths.size();
        s.query_lengths.assign(batches, queries);
        s.kv_lengths.assign(batches, keys);
        s.total_queries = queries * static_cast<Int>(batches);
        s.total_keys = keys * static_cast<Int>(batches);
        to.set("layout", 0);
        to.set("kv_length", static_cast<Int>(KvLength::all));
        problem = neutral_problem(std::move(to));
        if (!problem.gradient) return;
        const Bits given = problem.output;  // statistics of rows that are there are the same
        give_reference_forward(problem);
        problem.output = given;
    }
};

/// Packed sequences are padded batches with kv_length.
/// Why     both are the same rows and keys; what lies behind kv_length is not read.
/// Domain  packed cases; a window of the bottom right corner only where it lies on one diagonal.
///         The tails of keys and values hold NaN, those of dO zeros.
/// Bound   twice that of the packed problem.
/// Kills   AT-06 16, WILD-05 10 42.
/// Shrinks to two sequences of different lengths.
Verdict packed_as_padded(const Spec& spec, PropertyContext& context) {
    const AttentionOperator& of = neutral_operator();
    AttentionProblem packed = of.problem(spec);
    const auto& s = extras_of<NeutralParts>(packed).shape;
    if (packed.statistics == Statistics::lse && packed.gradient) give_reference_forward(packed);
    const bool has_window = s.window_left >= 0 || s.window_right >= 0;
    const Int diagonal = longest(s.kv_lengths) - longest(s.query_lengths);
    for (std::size_t b = 0; b < s.kv_lengths.size() && has_window && s.bottom_right; ++b)
        if (s.kv_lengths[b] - s.query_lengths[b] != diagonal) return inapplicable();
    if (context.rounding.hidden_times_zero) return inapplicable();
    const Padded padded(packed);
    const AttentionRun left(of, packed, context), right(of, padded.problem, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    const ExpectedOutputs expected = expected_of(packed, context.rounding);
    Verdict all;
    for (const AttentionOutput& output : packed.outputs()) {
        std::vector<double> rows = right.values(output.name);
        if (!output.is_sum) {
            const auto& lengths = output.of_keys ? s.kv_lengths : s.query_lengths;
            const Int width = output.heads * output.width,
                      longest_one = output.of_keys ? padded.keys : padded.queries;
            std::vector<double> own;
            for (std::size_t b = 0; b < lengths.size(); ++b) {
                const auto first = rows.begin() + static_cast<Int>(b) * longest_one * width;
                own.insert(own.end(), first, first + lengths[b] * width);
            }
            rows = std::move(own);
        }
        join(all, verdict_within(packed, output.name, left.values(output.name), rows,
                                 times(allowance(tensor_of(expected, output.name)), 2),
                                 "packed sequences against padded batches"));
    }
    return all;
}

/// The same problem of FlashAttentionScore; nullopt where it cannot be said there.
std::optional<FlashParts> as_flash(const NeutralParts& parts) {
    const ref::NeutralAttentionShape& s = parts.shape;
    const bool own_bias = s.bias.present && parts.bias_dtype != parts.dtype;
    if (s.softcap != 0 || !s.sink.empty() || own_bias || s.query_lengths.empty()) return std::nullopt;
    const Spec plain(flash_description(parts.gradient));
    FlashParts to;
    static_cast<AttentionValues&>(to) = parts;
    to.fields = plain.numbers;
    to.layout = s.packed ? FlashLayout::tnd : FlashLayout::bsnd;
    to.scale = parts.scale;
    ref::FlashAttentionShape& f = to.shape;
    f.query_lengths = s.query_lengths, f.kv_lengths = s.kv_lengths;
    f.total_queries = s.total_queries, f.total_keys = s.total_keys;
    f.query_heads = s.query_heads, f.kv_heads = s.kv_heads;
    f.head_dim = s.head_dim, f.value_dim = s.value_dim;
    f.packed = s.packed;
    f.scale = s.scale;
    f.mask.present = true;
    f.mask.sparse_mode = 1;
    const Int rows = longest(s.query_lengths), columns = longest(s.kv_lengths);
    f.mask.shape = {std::ssize(s.query_lengths), s.query_heads, rows, columns};
    f.bias.present = s.bias.present;
    f.bias.type = s.bias.present ? 0 : 1;
    if (s.bias.present) f.bias.shape = f.mask.shape;
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
        for (Int h = 0; h < s.query_heads; ++h)
            for (Int i = 0; i < rows; ++i)
                for (Int j = 0; j < columns; ++j) {
                    const bool seen = i < s.query_lengths[b] && j < s.kv_lengths[b] &&
                                      ref::sees_key(s, b, h, i, j);
                    f.mask.values.push_back(!seen);
                    if (!s.bias.present) continue;
                    const auto place =
                        static_cast<std::size_t>(s.bias.place(static_cast<Int>(b), h, i, j));
                    to.pse.push_back(seen ? parts.bias[place] : 0);
                }
    if (s.bias.present) to.take_bias();
    return is_legal(to) ? std::optional(to) : std::nullopt;
}

/// Attention is FlashAttentionScore on what both can say, and so are their gradients.
/// Why     one formula; bias after the scale is pse_type 0, visible pairs are a mask of mode 1.
/// Domain  candidates that have both; no softcap, no sink, a bias of the type of the query,
///         value_dim <= dim.
/// Bound   those of both; the LSE against row_max + log(row_sum).
/// Kills   what is wrong in one of the two operators alone.
Verdict as_flash_attention(const Spec& spec, PropertyContext& context) {
    const NeutralParts parts = neutral_parts(spec);
    if (parts.shape.value_dim > parts.shape.head_dim) return inapplicable();
    if (!context.candidate.info().implements(flash_description(parts.gradient).op))
        return inapplicable();
    const std::optional<FlashParts> flash = as_flash(parts);
    if (!flash) return inapplicable();
    const AttentionProblem one = neutral_problem(parts), other = flash_problem(*flash);
    const AttentionRun left(neutral_operator(), one, context),
        right(flash_attention_operator(), other, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    return verdict_on_other_operator(left, right, context,
                                     "against " + flash_description(parts.gradient).op);
}

void packed(Spec& spec) {
    for (const char* field : {"bias", "bias_type", "bias_values", "mask", "kv_length", "hidden_keys",
                              "dbias"})
        if (spec.schema->number(field) >= 0) spec.set(field, 0);
    spec.set("layout", static_cast<Int>(NeutralLayout::packed));
}

}  // namespace

Verdict verdict_on_other_operator(const AttentionRun& neutral, const AttentionRun& other,
                                  const PropertyContext& context, const std::string& relation) {
    const AttentionProblem &one = neutral.problem, &same = other.problem;
    const ExpectedOutputs expected = expected_of(one, context.rounding),
                          of_other = expected_of(same, context.rounding);
    Verdict all;
    for (const AttentionOutput& output : one.outputs()) {
        if (output.is_sum) continue;  // the operators of the documents have no gradient of a bias
        std::vector<double> values, allowed;
        if (output.is_lse()) {
            values = other.first_lanes("softmax_max");
            const std::vector<double> sums = other.first_lanes("softmax_sum");
            for (std::size_t k = 0; k < values.size(); ++k) values[k] += std::log(sums[k]);
            const AttentionNumbers numbers(same);
            allowed = allowance(
                ref::expected_attention(same.forward(numbers), {same.dtype, context.rounding}).lse);
        } else {
            const std::string& name = output.role == Role::output ? same.output_name : output.name;
            values = other.values(name);
            allowed = allowance(tensor_of(of_other, name));
        }
        join(all, verdict_within(one, output.name, neutral.values(output.name), values,
                                 sum_of(allowance(tensor_of(expected, output.name)), allowed),
                                 relation));
    }
    return all;
}

void add_neutral_forms(std::vector<Property>& list) {
    const AddOnModerateData add{list};
    add("packed_as_padded", "packed sequences are padded batches with kv_length", packed_as_padded,
        [](Spec& spec, Random& random) {
            with_moderate_data(spec, random);
            packed(spec);
            for (auto& lengths : spec.lists)
                if (random.chance(50)) lengths[0] /= 2;
        },
        is_packed);
    add("as_flash_attention", "the same as FlashAttentionScore where the candidate has both",
        as_flash_attention,
        [](Spec& spec, Random& random) {
            with_moderate_data(spec, random);
            without_softcap(spec), spec.set("sink", 0);
            set_if_present(spec, "dsink", 0);
            spec.set("value_dim", std::min(spec.number("value_dim"), spec.number("dim")));
            if (spec.number("bias") != 0) spec.set("bias_type", 1);
        });
}

}  // namespace attncheck::properties
