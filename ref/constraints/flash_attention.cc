// The documented constraints of FlashAttentionScore and FlashAttentionScoreGrad, and the order in
// which they are checked. Sources: contract.md, return values and decisions 4 and 8 to 11;
// flash_attention.md 2 and 3. Both directions have the same limits. Arguments may hold anything:
// every comparison comes before the arithmetic that relies on it. Legend as in
// flash_attention_examination.h.
#include <iterator>
#include <stdexcept>

#include "ref/constraints/flash_attention_examination.h"

namespace attncheck::ref::flash {
namespace {

constexpr std::int64_t kMebi = 1 << 20;
constexpr std::int64_t kMaxBatch = 2 * kMebi, kMaxLength = kMebi;
constexpr std::int64_t kMaxHeads = 256, kMaxHeadDim = 512, kRopeGranule = 8;

constexpr Axes kLayouts[] = {{"BSH", 3, 0, 1, -1, 2},
                             {"SBH", 3, 1, 0, -1, 2},
                             {"BSND", 4, 0, 1, 2, 3},
                             {"BNSD", 4, 0, 2, 1, 3},
                             {"TND", 3, -1, 0, 1, 2}};

/// True when an argument is missing that only the value of another one makes required. Looks at
/// arguments that may all be illegal.
bool lacks_conditional(const FlashAttentionArguments& a, bool gradient) {
    const bool ropes = a.query_rope.present || a.key_rope.present;
    const bool lengths = a.actual_seq_q_len.present && a.actual_seq_kv_len.present;
    return (a.input_layout == "TND" && !lengths) || a.query_rope.present != a.key_rope.present ||
           (ropes && !a.atten_mask.present) ||
           (gradient && ropes && !(a.dq_rope.present && a.dk_rope.present)) ||
           (a.pse_type != 1 && !a.pse.present) ||
           (narrowed_keep_prob(a.keep_prob) < 1 && !a.drop_mask.present) ||
           (a.atten_mask.present && a.sparse_mode == 6 && !a.prefix.present);
}

}  // namespace

Operands inputs_of(const FlashAttentionArguments& a, bool gradient) {
    if (!gradient) return {{a.query, "query"}, {a.key, "key"}, {a.value, "value"}};
    return {{a.query, "query"},
            {a.key, "key"},
            {a.value, "value"},
            {a.dy, "dy"},
            {a.softmax_max, "softmax_max", Stores::statistics},
            {a.softmax_sum, "softmax_sum", Stores::statistics},
            {a.attention, "attention_in", Stores::result}};
}

Operands outputs_of(const FlashAttentionArguments& a, bool gradient) {
    if (gradient)
        return {{a.dq, "dq", Stores::result},
                {a.dk, "dk", Stores::result},
                {a.dv, "dv", Stores::result}};
    return {{a.softmax_max, "softmax_max", Stores::statistics},
            {a.softmax_sum, "softmax_sum", Stores::statistics},
            {a.attention, "attention_out", Stores::result}};
}

Ruling FlashExamination::judge() {
    examine_absences();
    examine_layouts();
    examine_ranks();
    examine_dtypes();
    examine_attributes();
    examine_query();
    examine_key();
    examine_value();
    if (gradient) examine_gradient_inputs();
    examine_lengths();
    examine_ropes();
    examine_pse();
    examine_drop_mask();
    rule(!a.padding_mask.present, kInvalid, "padding_mask", "is given", "no padding_mask");
    examine_mask();
    examine_sparse_mode();
    examine_pse_against_mode();
    if (gradient)
        examine_gradients();
    else
        examine_forward_outputs();
    ruling.either_status = lacks_conditional(a, gradient);
    return ruling;
}

void FlashExamination::examine_absences() {
    const auto required = [&](const Operand& operand) {
        present(operand.tensor.present, operand.name, "a tensor");
    };
    std::for_each(inputs.begin(), inputs.end(), required);
    present(a.input_layout.has_value(), "input_layout", "one of the layouts, as a string");
    present(a.softmax_layout.has_value(), softmax_layout_name, "\"\", \"same_as_input\"");
    std::for_each(outputs.begin(), outputs.end(), required);
}

void FlashExamination::examine_layouts() {
    if (!accepted()) return;
    const auto* const found =
        std::find_if(std::begin(kLayouts), std::end(kLayouts),
                     [&](const Axes& candidate) { return *a.input_layout == candidate.name; });
    rule(found != std::end(kLayouts), kInvalid, "input_layout", "is " + show(*a.input_layout),
         "\"BSH\", \"SBH\", \"BSND\", \"BNSD\", \"TND\"");
    if (!accepted()) return;
    axes = *found;
    rule(a.softmax_layout->empty() || (packed() && *a.softmax_layout == "same_as_input"), kInvalid,
         softmax_layout_name, "is " + show(*a.softmax_layout),
         packed() ? "\"\", \"same_as_input\"" : "\"\" outside TND");
}

void FlashExamination::examine_ranks() {
    for_each_operand([&](const Operand& operand) {
        const bool statistics = operand.stores == Stores::statistics;
        rank(operand.tensor, operand.name, statistics ? (packed() ? 3 : 4) : axes.rank);
    });
}

void FlashExamination::examine_dtypes() {
    const bool may_be_fp8 = gradient && a.ascend950;
    const bool fp8 = may_be_fp8 && is_fp8(a.query);
    for_each_operand([&](const Operand& operand) {
        const TensorArgument& t = operand.tensor;
        if (operand.stores == Stores::statistics)
            dtype(t, operand.name, {Dtype::fp32});
        else if (&t == &a.query && may_be_fp8)
            dtype(t, operand.name,
                  {Dtype::fp16, Dtype::bf16, Dtype::fp32, Dtype::fp8_e5m2, Dtype::fp8_e4m3fn});
        else if (&t == &a.query || (fp8 && &t == &a.attention))
            dtype(t, operand.name, {Dtype::fp16, Dtype::bf16, Dtype::fp32});
        else if (fp8 && operand.stores == Stores::result)
            same_dtype(t, operand.name, a.attention, attention_name);
        else
            same_dtype(t, operand.name, a.query, "query");
    });
}

void FlashExamination::examine_attributes() {
    const float keep_prob = narrowed_keep_prob(a.keep_prob);
    rule(keep_prob > 0 && keep_prob <= 1, kInvalid, "keep_prob", "is " + show(a.keep_prob),
         "(0, 1] as fp32");
    number_within("head_num", a.head_num, 1, kMaxHeads);
    number_within("sparse_mode", a.sparse_mode, 0, 8);
    const bool fits_layout =
        a.sparse_mode <= 4 || a.sparse_mode == 6 || (a.sparse_mode == 5) != packed();
    number(fits_layout, "sparse_mode", a.sparse_mode, packed() ? "0..4, 6, 7, 8 in TND" : "0..6");
    number_within("pse_type", a.pse_type, 0, 3);
}

void FlashExamination::extent_is(std::int64_t value, std::int64_t wanted, const char* parameter,
                                 const char* name, const char* other) {
    if (passes(value == wanted)) return;
    extent(false, parameter, name, value,
           std::string(name) + " of " + other + " = " + std::to_string(wanted));
}

void FlashExamination::examine_query() {
    if (!accepted()) return;
    const auto axis = [&](int which) { return a.query.shape[static_cast<std::size_t>(which)]; };
    if (!packed()) extent_within("query", "B", x.batch = axis(axes.batch), 0, kMaxBatch);
    x.query_rows = axis(axes.length);
    extent_within("query", packed() ? "T1" : "S1", x.query_rows, 0, kMaxLength);
    x.num_query_heads = a.head_num;
    if (merged()) {
        const std::int64_t hidden = axis(axes.channels);
        extent(hidden > 0 && hidden % a.head_num == 0, "query", "H1", hidden,
               "a positive multiple of head_num = " + std::to_string(a.head_num));
        x.head_dim = hidden / a.head_num;
    } else {
        number(a.head_num == axis(axes.heads), "head_num", a.head_num,
               "N1 of query = " + std::to_string(axis(axes.heads)));
        x.head_dim = axis(axes.channels);
    }
    extent_within("query", "D", x.head_dim, 1, kMaxHeadDim);
}

void FlashExamination::examine_key() {
    if (!accepted()) return;
    const auto axis = [&](int which) { return a.key.shape[static_cast<std::size_t>(which)]; };
    if (!packed()) extent_is(axis(axes.batch), x.batch, "key", "B", "query");
    x.kv_rows = axis(axes.length);
    extent_within("key", packed() ? "T2" : "S2", x.kv_rows, 0, kMaxLength);
    if (merged()) {
        const std::int64_t hidden = axis(axes.channels);
        extent(hidden > 0 && hidden % x.head_dim == 0, "key", "H2", hidden,
               "a positive multiple of D of query = " + std::to_string(x.head_dim));
        x.num_kv_heads = hidden / x.head_dim;
    } else {
        extent_is(axis(axes.channels), x.head_dim, "key", "D", "query");
        x.num_kv_heads = axis(axes.heads);
    }
    extent(x.num_kv_heads >= 1 && x.num_query_heads % x.num_kv_heads == 0, "key", "N2",
           x.num_kv_heads, "N2 a divisor of N1 = " + std::to_string(x.num_query_heads));
}

void FlashExamination::examine_value() {
    if (!accepted()) return;
    const auto axis = [&](int which) { return a.value.shape[static_cast<std::size_t>(which)]; };
    if (!packed()) extent_is(axis(axes.batch), x.batch, "value", "B", "key");
    extent_is(axis(axes.length), x.kv_rows, "value", packed() ? "T2" : "S2", "key");
    if (merged()) {
        const std::int64_t hidden = axis(axes.channels);
        extent(hidden > 0 && hidden % x.num_kv_heads == 0, "value", "Hv", hidden,
               "a positive multiple of N2 of key = " + std::to_string(x.num_kv_heads));
        x.value_dim = hidden / x.num_kv_heads;
    } else {
        extent_is(axis(axes.heads), x.num_kv_heads, "value", "N2", "key");
        x.value_dim = axis(axes.channels);
    }
    extent_within("value", "Dv", x.value_dim, 1, x.head_dim);
}

Shape FlashExamination::in_layout(std::int64_t rows, std::int64_t heads,
                                  std::int64_t channels) const {
    Shape shape(static_cast<std::size_t>(axes.rank));
    const auto axis = [&](int which) -> std::int64_t& {
        return shape[static_cast<std::size_t>(which)];
    };
    if (!packed()) axis(axes.batch) = x.batch;
    axis(axes.length) = rows;
    axis(axes.channels) = merged() ? heads * channels : channels;
    if (!merged()) axis(axes.heads) = heads;
    return shape;
}

Shape FlashExamination::statistics_shape() const {
    if (packed()) return {x.query_rows, x.num_query_heads, kStatisticCopies};
    return {x.batch, x.num_query_heads, x.query_rows, kStatisticCopies};
}

void FlashExamination::statistics(const TensorArgument& t, const char* parameter) {
    shape(t, parameter, packed() ? "[T1,N1,8]" : "[B,N1,S1,8]", statistics_shape());
}

void FlashExamination::query_like(const TensorArgument& t, const char* parameter,
                                  std::int64_t channels) {
    shape(t, parameter, channels == x.head_dim ? "query's shape" : "query's shape with Dv",
          in_layout(x.query_rows, x.num_query_heads, channels));
}

void FlashExamination::examine_gradient_inputs() {
    if (!accepted()) return;
    query_like(a.dy, "dy", x.value_dim);
    statistics(a.softmax_max, "softmax_max");
    statistics(a.softmax_sum, "softmax_sum");
    query_like(a.attention, attention_name, x.value_dim);
}

void FlashExamination::examine_length_array(const ArrayArgument& array, const char* parameter,
                                            const char* extent_name, std::int64_t rows) {
    present(array.present, parameter, "cumulative lengths, as input_layout is \"TND\"");
    array_size(array.size >= 1 && array.size <= kMaxBatch, array, parameter,
               "size " + show_range(1, kMaxBatch));
    if (&array == &a.actual_seq_kv_len)
        array_size(array.size == a.actual_seq_q_len.size, array, parameter,
                   "the size of actual_seq_q_len = " + std::to_string(a.actual_seq_q_len.size));
    require_backed(array, parameter);
    lengths(array, parameter, extent_name, rows, [](std::size_t, std::int64_t) {});
}

void FlashExamination::examine_lengths() {
    if (!accepted()) return;
    if (packed()) {
        examine_length_array(a.actual_seq_q_len, "actual_seq_q_len", "T1", x.query_rows);
        examine_length_array(a.actual_seq_kv_len, "actual_seq_kv_len", "T2", x.kv_rows);
        if (!accepted()) return;
        x.batch = a.actual_seq_q_len.size;
        Sequence begin;
        for (std::size_t b = 0; b < a.actual_seq_q_len.values.size(); ++b) {
            const Sequence end{a.actual_seq_q_len.values[b], a.actual_seq_kv_len.values[b]};
            x.sequences.push_back({end.query_len - begin.query_len, end.kv_len - begin.kv_len});
            begin = end;
        }
    } else {
        x.sequences = {{x.query_rows, x.kv_rows}};
    }
    sum_up_lengths();
}

/// Sums stay far inside int64: S1 and S2 add up to at most 1 Mi each.
void FlashExamination::sum_up_lengths() {
    const Sequence first = x.sequences.front();
    for (const Sequence& s : x.sequences) {
        x.query_len = std::max(x.query_len, s.query_len);
        x.kv_len = std::max(x.kv_len, s.kv_len);
        x.sum_query += s.query_len;
        x.sum_kv += s.kv_len;
        x.sum_pairs += s.query_len * s.kv_len;
        x.equal_lengths &= s.query_len == first.query_len && s.kv_len == first.kv_len;
        x.square &= s.query_len == s.kv_len;
    }
}

void FlashExamination::examine_ropes() {
    if (!accepted()) return;
    const bool wanted = a.query_rope.present || a.key_rope.present;
    if (wanted) {
        present(a.query_rope.present, "query_rope", "a tensor, as key_rope is given");
        present(a.key_rope.present, "key_rope", "a tensor, as query_rope is given");
        examine_rope_shapes();
        examine_rope_company();
    }
    if (gradient) examine_rope_gradients(wanted);
}

void FlashExamination::examine_rope_shapes() {
    const char* const name = "query_rope";
    rule(packed(), kInvalid, name, given_with("input_layout " + show(*a.input_layout)),
         "input_layout \"TND\"");
    const auto query_dtype = static_cast<Dtype>(a.query.dtype);
    rule(query_dtype == Dtype::bf16, kInvalid, name, given_with("query of " + show(query_dtype)),
         "query of " + show(Dtype::bf16));
    dtype(a.query_rope, name, {Dtype::bf16});
    dtype(a.key_rope, "key_rope", {Dtype::bf16});
    rank(a.query_rope, name, 3);
    rank(a.key_rope, "key_rope", 3);
    if (!accepted()) return;
    const std::int64_t rope_dim = a.query_rope.shape[2];
    extent(rope_dim >= kRopeGranule && rope_dim <= x.head_dim && rope_dim % kRopeGranule == 0, name,
           "Dr", rope_dim, "a multiple of 8, " + show_range(kRopeGranule, x.head_dim),
           side_of(rope_dim, kRopeGranule, x.head_dim));
    shape(a.query_rope, name, "[T1,N1,Dr]", {x.query_rows, x.num_query_heads, rope_dim});
    shape(a.key_rope, "key_rope", "[T2,N2,Dr]", {x.kv_rows, x.num_kv_heads, rope_dim});
}

/// The other arguments that a call with ropes must and must not have.
void FlashExamination::examine_rope_company() {
    const char* const name = "query_rope";
    rule(!a.pse.present, kInvalid, name, given_with(pse_name), std::string("no ") + pse_name);
    rule(!a.drop_mask.present, kInvalid, name, given_with("drop_mask"), "no drop_mask");
    rule(narrowed_keep_prob(a.keep_prob) == 1, kInvalid, name,
         given_with("keep_prob " + show(a.keep_prob)), "keep_prob 1");
    rule(a.pse_type == 1, kInvalid, name, given_with("pse_type " + std::to_string(a.pse_type)),
         "pse_type 1");
    rule(a.sparse_mode != 6, kInvalid, name, given_with("sparse_mode 6"), "any other sparse_mode");
    present(a.atten_mask.present, "atten_mask", "a mask, as query_rope is given");
}

void FlashExamination::examine_rope_gradients(bool wanted) {
    const Operands gradients{{a.dq_rope, "dq_rope"}, {a.dk_rope, "dk_rope"}};
    for (const Operand& each : gradients)
        if (wanted)
            present(each.tensor.present, each.name, "a tensor, as query_rope is given");
        else
            rule(!each.tensor.present, kInvalid, each.name, "is given",
                 "none, as query_rope is absent");
}

void FlashExamination::examine_forward_outputs() {
    if (!accepted()) return;
    statistics(a.softmax_max, "softmax_max");
    statistics(a.softmax_sum, "softmax_sum");
    query_like(a.attention, attention_name, x.value_dim);
}

void FlashExamination::examine_gradients() {
    if (!accepted()) return;
    const auto rope_like = [&](const TensorArgument& t, const char* name,
                               const TensorArgument& rope, const char* rope_name) {
        if (!rope.present) return;
        rank(t, name, 3);
        same_dtype(t, name, rope, rope_name);
        shape(t, name, rope_name, rope.shape);
    };
    query_like(a.dq, "dq", x.head_dim);
    rope_like(a.dq_rope, "dq_rope", a.query_rope, "query_rope");
    shape(a.dk, "dk", "key's shape", a.key.shape);
    rope_like(a.dk_rope, "dk_rope", a.key_rope, "key_rope");
    shape(a.dv, "dv", "value's shape", a.value.shape);
}

}  // namespace attncheck::ref::flash

namespace attncheck::ref {

Ruling rule_flash_attention_score(const FlashAttentionArguments& arguments) {
    return flash::FlashExamination(arguments, false).judge();
}

Ruling rule_flash_attention_score_grad(const FlashAttentionArguments& arguments) {
    return flash::FlashExamination(arguments, true).judge();
}

}  // namespace attncheck::ref
