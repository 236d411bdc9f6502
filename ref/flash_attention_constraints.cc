// The documented constraints of FlashAttentionScore and FlashAttentionScoreGrad. Sources:
// contract.md, return values and decisions 4 and 8 to 11; flash_attention.md 2 and 3. Both
// directions have the same limits. Arguments may hold anything: every comparison comes before the
// arithmetic that relies on it.
//
// B batch, in TND the number of sequences   S1, S2 query and key lengths, in TND those of one
// sequence   T1, T2 query and key rows of all sequences   N1, N2 query and key heads   D, Dv
// head_dim and value_dim   Dr channels of a rope   H1 = N1*D, H2 = N2*D, Hv = N2*Dv
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ref/constraints.h"
#include "ref/examination.h"

namespace attncheck::ref {
namespace {

constexpr std::int64_t kMebi = 1 << 20;
constexpr std::int64_t kMaxBatch = 2 * kMebi, kMaxLength = kMebi, kMaxPrefixes = 2048;
constexpr std::int64_t kMaxHeads = 256, kMaxHeadDim = 512, kRopeGranule = 8;
constexpr std::int64_t kStatisticCopies = 8;  ///< softmax statistics are repeated 8 times
/// Masks of modes whose predicate decides, and the rows of a compressed position bias.
constexpr std::int64_t kCompressedMask = 2048, kPrefixMaskRows = 3072, kCompressedPse = 1024;

/// Where a layout has its axes; -1 where it has none, heads -1 where they are one axis with the
/// channels.
struct Axes {
    const char* name;
    std::int32_t rank;
    int batch, length, heads, channels;
};
constexpr Axes kLayouts[] = {{"BSH", 3, 0, 1, -1, 2},
                             {"SBH", 3, 1, 0, -1, 2},
                             {"BSND", 4, 0, 1, 2, 3},
                             {"BNSD", 4, 0, 2, 1, 3},
                             {"TND", 3, -1, 0, 1, 2}};

/// A required tensor, its name in candidate.h, and what decides its rank and dtype. Results have
/// the type of the query, and under fp8 the one that attention_in has.
enum class Stores { input, statistics, result };
struct Operand {
    const TensorArgument& tensor;
    const char* name;
    Stores stores = Stores::input;
};
using Operands = std::vector<Operand>;
using Shape = std::vector<std::int64_t>;

struct Sequence {
    std::int64_t query_len = 0, kv_len = 0;
};
/// What q_start_idx and kv_start_idx add to positions.
struct Starts {
    std::int64_t query = 0, key = 0;
};

/// Legal while the examination accepts, otherwise anything.
struct Extents {
    std::int64_t batch = 0, query_rows = 0, kv_rows = 0;
    std::int64_t num_query_heads = 0, num_kv_heads = 0, head_dim = 0, value_dim = 0;
    std::vector<Sequence> sequences;         ///< outside TND one that stands for all batches
    std::int64_t query_len = 0, kv_len = 0;  ///< the largest
    std::int64_t sum_query = 0, sum_kv = 0, sum_pairs = 0;  ///< of S1, S2, S1*S2; TND only
    bool equal_lengths = true;                              ///< one S1, one S2 for all sequences
    bool square = true;                                     ///< S1 == S2 in every sequence
};

std::string given_with(const std::string& what) { return "is given with " + what; }

std::string range(std::int64_t smallest, std::int64_t largest) {
    return std::to_string(smallest) + ".." + std::to_string(largest);
}

bool is_fp8(const TensorArgument& t) {
    const auto dtype = static_cast<Dtype>(t.dtype);
    return dtype == Dtype::fp8_e5m2 || dtype == Dtype::fp8_e4m3fn;
}

/// Modes whose mask has a fixed shape and is not read: the predicate decides.
bool is_predicate_mode(std::int64_t mode) { return mode != 0 && mode != 1 && mode != 5; }

/// Nothing when it leaves int64. No factor is negative.
std::optional<std::int64_t> product(const Shape& factors) {
    if (std::find(factors.begin(), factors.end(), 0) != factors.end()) return 0;
    std::int64_t result = 1;
    for (const std::int64_t factor : factors) {
        if (factor > std::numeric_limits<std::int64_t>::max() / result) return std::nullopt;
        result *= factor;
    }
    return result;
}

bool is_one_of(const Shape& shape, const std::vector<Shape>& allowed) {
    return std::find(allowed.begin(), allowed.end(), shape) != allowed.end();
}

std::string show_each(const std::vector<Shape>& shapes) {
    std::string text;
    for (const Shape& shape : shapes) text += (text.empty() ? "" : ", ") + show(shape);
    return text;
}

/// NaN stays NaN; what lies far outside (0, 1] stays outside, without an overflow.
float narrowed_keep_prob(double keep_prob) {
    return static_cast<float>(std::clamp(keep_prob, -1.0, 2.0));
}

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

/// Before the layouts in struct order.
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

/// One member per step of the order in constraints.h. A step that reads extents returns early when
/// an earlier one has rejected.
struct FlashExamination : Examination {
    FlashExamination(const FlashAttentionArguments& arguments, bool is_gradient)
        : a(arguments), gradient(is_gradient) {}

    const FlashAttentionArguments& a;
    const bool gradient;
    const char* const pse_name = gradient ? "pse_shift" : "real_shift";
    const char* const attention_name = gradient ? "attention_in" : "attention_out";
    const char* const softmax_layout_name = gradient ? "softmax_in_layout" : "softmax_out_layout";
    const Operands inputs = inputs_of(a, gradient), outputs = outputs_of(a, gradient);
    Axes axes{};
    Extents x;
    bool compressed_pse = false;

    bool packed() const { return axes.batch < 0; }
    bool merged() const { return axes.heads < 0; }
    bool is_slopes() const { return a.pse_type >= 2; }
    Sequence sequence(std::size_t b) const { return x.sequences[packed() ? b : 0]; }

    Ruling judge() {
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

    template <class Step>
    void for_each_operand(Step&& step) {
        std::for_each(inputs.begin(), inputs.end(), step);
        std::for_each(outputs.begin(), outputs.end(), step);
    }

    void examine_absences();
    void examine_layouts();
    void examine_ranks();
    void examine_dtypes();
    void examine_attributes();

    void extent_is(std::int64_t value, std::int64_t wanted, const char* parameter, const char* name,
                   const char* other);
    void examine_query();
    void examine_key();
    void examine_value();
    Shape in_layout(std::int64_t rows, std::int64_t heads, std::int64_t channels) const;
    Shape statistics_shape() const;
    void statistics(const TensorArgument& t, const char* parameter);
    void query_like(const TensorArgument& t, const char* parameter, std::int64_t channels);
    void examine_gradient_inputs();

    void backed(const ArrayArgument& array, const char* parameter);
    void examine_length_array(const ArrayArgument& array, const char* parameter,
                              const char* extent_name, std::int64_t rows);
    void examine_lengths();
    void sum_up_lengths();

    void examine_ropes();
    void examine_rope_shapes();
    void examine_rope_company();
    void examine_rope_gradients(bool wanted);

    void examine_pse();
    bool take_pse();
    bool take_dense_pse();
    void examine_drop_mask();
    std::vector<Shape> mask_shapes() const;
    void examine_mask();

    void examine_sparse_mode();
    void examine_top_left_band();
    void examine_prefix();
    void examine_long_queries(std::size_t exempt);
    void examine_last_band();
    void examine_first_band();
    void tokens(bool holds, const std::string& allowed);
    Starts take_starts();
    bool is_aligned(const Starts& start) const;
    void examine_pse_against_mode();

    void examine_forward_outputs();
    void examine_gradients();
};

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
    extent(value == wanted, parameter, name, value,
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

void FlashExamination::backed(const ArrayArgument& array, const char* parameter) {
    if (accepted() && static_cast<std::size_t>(array.size) != array.values.size())
        throw std::logic_error(std::string(parameter) + " holds " +
                               std::to_string(array.values.size()) + " values for its size " +
                               std::to_string(array.size));
}

void FlashExamination::examine_length_array(const ArrayArgument& array, const char* parameter,
                                            const char* extent_name, std::int64_t rows) {
    present(array.present, parameter, "cumulative lengths, as input_layout is \"TND\"");
    array_size(array.size >= 1 && array.size <= kMaxBatch, array, parameter,
               "size " + range(1, kMaxBatch));
    if (&array == &a.actual_seq_kv_len)
        array_size(array.size == a.actual_seq_q_len.size, array, parameter,
                   "the size of actual_seq_q_len = " + std::to_string(a.actual_seq_q_len.size));
    backed(array, parameter);
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
           "Dr", rope_dim, "a multiple of 8, " + range(kRopeGranule, x.head_dim));
    shape(a.query_rope, name, "[T1,N1,Dr]", {x.query_rows, x.num_query_heads, rope_dim});
    shape(a.key_rope, "key_rope", "[T2,N2,Dr]", {x.kv_rows, x.num_kv_heads, rope_dim});
}

/// What else a call with ropes must and must not have.
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

void FlashExamination::examine_pse() {
    if (!accepted()) return;
    if (a.pse_type != 1)
        present(a.pse.present, pse_name, "a tensor, as pse_type is " + std::to_string(a.pse_type));
    if (!a.pse.present) return;
    if (is_slopes())
        dtype(a.pse, pse_name, {Dtype::fp32});
    else if (is_fp8(a.query))
        same_dtype(a.pse, pse_name, a.attention, attention_name);
    else
        same_dtype(a.pse, pse_name, a.query, "query");
    if (!accepted()) return;
    const char* const forms =
        is_slopes() ? "[N1], [B,N1]"
        : packed()  ? "[N1*sum S2], [N1*sum S1*S2], with S1 == S2 per sequence compressed "
                      "[1|B,N1,1024,max S2], with equal lengths [1|B,N1,1|S1,S2]"
                    : "[1|B,N1,1|S1,S2], with S1 == S2 > 1024 compressed [1|B,N1,1024,S2]";
    rule(take_pse(), kInvalid, pse_name, "has shape " + show(a.pse.shape),
         std::string(forms) + " with B = " + std::to_string(x.batch) +
             ", N1 = " + std::to_string(x.num_query_heads) +
             ", S1 = " + std::to_string(x.query_len) + ", S2 = " + std::to_string(x.kv_len));
}

/// Sets compressed_pse. False for a shape that is no form of the position bias.
bool FlashExamination::take_pse() {
    const std::int64_t heads = x.num_query_heads;
    if (is_slopes()) return is_one_of(a.pse.shape, {{heads}, {x.batch, heads}});
    if (packed() && a.pse.rank == 1)
        return is_one_of(a.pse.shape, {{heads * x.sum_kv}, {heads * x.sum_pairs}});
    return take_dense_pse();
}

/// Rank 4. A shape that is plain is not compressed.
bool FlashExamination::take_dense_pse() {
    const Shape& s = a.pse.shape;
    if (a.pse.rank != 4 || (s[0] != 1 && s[0] != x.batch) || s[1] != x.num_query_heads ||
        s[3] != x.kv_len)
        return false;
    if (x.equal_lengths && (s[2] == x.query_len || s[2] == 1)) return true;
    compressed_pse =
        s[2] == kCompressedPse && x.square && (packed() || x.query_len > kCompressedPse);
    return compressed_pse;
}

void FlashExamination::examine_drop_mask() {
    if (!accepted()) return;
    const TensorArgument& mask = a.drop_mask;
    if (narrowed_keep_prob(a.keep_prob) < 1)
        present(mask.present, "drop_mask", "a tensor, as keep_prob is " + show(a.keep_prob));
    if (!mask.present) return;
    dtype(mask, "drop_mask", {Dtype::uint8});
    rule(mask.rank >= 1 && mask.rank <= 8, kInvalid, "drop_mask",
         "has rank " + std::to_string(mask.rank), "rank 1..8");
    rule(std::all_of(mask.shape.begin(), mask.shape.end(), [](auto extent) { return extent >= 0; }),
         kInvalid, "drop_mask", "has shape " + show(mask.shape), "extents >= 0");
    if (!accepted()) return;
    const auto elements = product(mask.shape);
    const auto bits = packed() ? product({x.num_query_heads, x.sum_pairs})
                               : product({x.batch, x.num_query_heads, x.query_len, x.kv_len});
    const auto bytes = bits.value_or(0) / 8 + (bits.value_or(0) % 8 != 0);
    rule(elements && bits && *elements >= bytes, kInvalid, "drop_mask",
         "has shape " + show(mask.shape),
         bits ? "at least " + std::to_string(bytes) + " elements, a number inside int64"
              : "no drop_mask for more bits than int64 can number");
}

/// Of the modes that read the mask; TND: the largest lengths, or all rows and columns.
std::vector<Shape> FlashExamination::mask_shapes() const {
    const std::int64_t batch = x.batch, heads = x.num_query_heads, rows = x.query_len,
                       columns = x.kv_len;
    if (a.sparse_mode == 6) return {{kPrefixMaskRows, kCompressedMask}};
    if (is_predicate_mode(a.sparse_mode)) return {{kCompressedMask, kCompressedMask}};
    std::vector<Shape> shapes{{batch, 1, rows, columns}, {batch, heads, rows, columns}};
    if (a.sparse_mode != 5) shapes.push_back({1, 1, rows, columns});
    if (a.sparse_mode != 5 || batch == 1) shapes.push_back({rows, columns});
    if (packed()) shapes.push_back({x.sum_query, x.sum_kv});
    return shapes;
}

void FlashExamination::examine_mask() {
    if (!accepted() || !a.atten_mask.present) return;
    dtype(a.atten_mask, "atten_mask", {Dtype::boolean, Dtype::uint8});
    const std::vector<Shape> allowed = mask_shapes();
    rule(is_one_of(a.atten_mask.shape, allowed), kInvalid, "atten_mask",
         "has shape " + show(a.atten_mask.shape),
         show_each(allowed) + " in sparse_mode " + std::to_string(a.sparse_mode));
}

/// Without a mask no mode has an effect, and nothing that goes with it is looked at.
void FlashExamination::examine_sparse_mode() {
    if (!accepted() || !a.atten_mask.present) return;
    const std::int64_t pre = a.pre_tokens, next = a.next_tokens;
    switch (a.sparse_mode) {
        case 0:
            examine_top_left_band();
            break;
        case 3:
            if (packed()) examine_long_queries(x.sequences.size());
            break;
        case 4: {
            // Of different signs, the two cannot overflow.
            const bool meets =
                (pre >= 0 && next >= 0) || ((pre >= 0 || next >= 0) && pre + next >= 0);
            tokens(meets, "pre_tokens + next_tokens >= 0");
            break;
        }
        case 5:
            if (a.prefix.present) examine_prefix();
            break;
        case 6:
            present(a.prefix.present, "prefix", "one value per batch, as sparse_mode is 6");
            examine_prefix();
            break;
        case 7:
            examine_last_band();
            break;
        case 8:
            examine_first_band();
            break;
        default:
            break;
    }
}

/// A rule on both tokens, of which pre_tokens is named.
void FlashExamination::tokens(bool holds, const std::string& allowed) {
    rule(
        holds, kInvalid, "pre_tokens",
        "is " + std::to_string(a.pre_tokens) + " with next_tokens " + std::to_string(a.next_tokens),
        allowed + " in sparse_mode " + std::to_string(a.sparse_mode));
}

/// A token that is negative must leave the band inside the matrix. Once it is known to be larger
/// than minus an extent, its negation cannot overflow.
void FlashExamination::examine_top_left_band() {
    const std::int64_t pre = a.pre_tokens, next = a.next_tokens;
    if (next < 0)
        tokens(next > -x.kv_len && pre >= -next,
               "next_tokens >= 0, or pre_tokens >= -next_tokens and -next_tokens < S2 = " +
                   std::to_string(x.kv_len));
    if (pre < 0)
        tokens(pre > -x.query_len && next >= -pre,
               "pre_tokens >= 0, or next_tokens >= -pre_tokens and -pre_tokens < S1 = " +
                   std::to_string(x.query_len));
}

void FlashExamination::examine_prefix() {
    array_size(a.prefix.size == x.batch && x.batch <= kMaxPrefixes, a.prefix, "prefix",
               "size B = " + std::to_string(x.batch) + ", at most " + std::to_string(kMaxPrefixes));
    backed(a.prefix, "prefix");
    for (std::size_t b = 0; b < a.prefix.values.size() && accepted(); ++b) {
        const Sequence s = sequence(b);
        const std::int64_t smallest = std::max<std::int64_t>(0, s.kv_len - s.query_len);
        const std::int64_t value = a.prefix.values[b];
        rule(value >= smallest && value <= s.kv_len, kInvalid, "prefix",
             "has value " + std::to_string(value) + " at index " + std::to_string(b),
             range(smallest, s.kv_len));
    }
}

/// Right-down causal in TND: no sequence but the exempt one may have queries before its first key.
void FlashExamination::examine_long_queries(std::size_t exempt) {
    for (std::size_t b = 0; b < x.sequences.size() && accepted(); ++b) {
        const Sequence& s = x.sequences[b];
        if (b == exempt || s.kv_len == 0 || s.query_len <= s.kv_len) continue;
        number(false, "sparse_mode", a.sparse_mode,
               "one that allows S1 = " + std::to_string(s.query_len) +
                   " > S2 = " + std::to_string(s.kv_len) + " of sequence " + std::to_string(b));
    }
}

/// Mode 7: the last sequence with queries is a band; nothing to check when there is none.
void FlashExamination::examine_last_band() {
    std::size_t after = x.sequences.size();
    while (after > 0 && x.sequences[after - 1].query_len == 0) --after;
    if (after == 0) return;
    examine_long_queries(after - 1);
    const Sequence& s = x.sequences[after - 1];
    const std::int64_t least = s.query_len - s.kv_len;
    tokens(a.pre_tokens >= s.kv_len && a.next_tokens >= least && a.next_tokens <= 0,
           "pre_tokens >= S2 = " + std::to_string(s.kv_len) + " and next_tokens in " +
               range(least, 0) + " for sequence " + std::to_string(after - 1));
}

/// Mode 8: the first sequence with queries is a band; nothing to check when there is none.
void FlashExamination::examine_first_band() {
    std::size_t b = 0;
    while (b < x.sequences.size() && x.sequences[b].query_len == 0) ++b;
    if (b == x.sequences.size()) return;
    const Sequence& s = x.sequences[b];
    const std::int64_t least = s.query_len - s.kv_len;
    tokens(a.pre_tokens >= s.kv_len && a.next_tokens >= least,
           "pre_tokens >= S2 = " + std::to_string(s.kv_len) + " and next_tokens >= " +
               std::to_string(least) + " for sequence " + std::to_string(b));
}

/// The start indices count for slopes only, and only when both are given and not empty; 0
/// otherwise.
Starts FlashExamination::take_starts() {
    const ArrayArgument &query = a.q_start_idx, &key = a.kv_start_idx;
    if (!is_slopes() || !query.present || !key.present) return {};
    array_size(query.size >= 0, query, "q_start_idx", "size >= 0");
    array_size(key.size >= 0, key, "kv_start_idx", "size >= 0");
    if (!accepted() || query.size == 0 || key.size == 0) return {};
    return {query.values.at(0), key.values.at(0)};
}

/// S1 - S2 + q_start_idx - kv_start_idx == 0 in sequence 0, S1 == S2 in the others.
bool FlashExamination::is_aligned(const Starts& start) const {
    const Sequence first = x.sequences.front();
    std::int64_t expected = 0;  // beyond int64 no key start equals it
    if (__builtin_add_overflow(start.query, first.query_len - first.kv_len, &expected) ||
        expected != start.key)
        return false;
    return std::all_of(x.sequences.begin() + 1, x.sequences.end(),
                       [](const Sequence& s) { return s.query_len == s.kv_len; });
}

void FlashExamination::examine_pse_against_mode() {
    if (!accepted() || !a.pse.present) return;
    const bool masked = a.atten_mask.present;
    const std::int64_t mode = a.sparse_mode;
    const Starts start = take_starts();
    const std::string given = given_with("sparse_mode " + std::to_string(mode));
    if (masked && mode == 7)
        rule(false, kInvalid, pse_name, given, "no position bias in sparse_mode 7");
    else if (masked && mode == 8)
        rule(is_aligned(start), kInvalid, pse_name, given,
             "S1 - S2 + q_start_idx - kv_start_idx == 0 in sequence 0, S1 == S2 in the others");
    else if (is_slopes())
        rule(x.square, kInvalid, pse_name,
             given_with("pse_type " + std::to_string(a.pse_type) + " for different lengths"),
             "S1 == S2 in every sequence");
    const bool causal =
        mode == 2 || mode == 3 || (mode == 0 && a.pre_tokens >= x.query_len && a.next_tokens == 0);
    rule(!compressed_pse || (masked && causal), kInvalid, pse_name,
         "is compressed in sparse_mode " + std::to_string(mode) + (masked ? "" : " without a mask"),
         "a mask and sparse_mode 2, 3, or 0 with pre_tokens >= S1 and next_tokens == 0");
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

}  // namespace

Ruling rule_flash_attention_score(const FlashAttentionArguments& arguments) {
    return FlashExamination(arguments, false).judge();
}

Ruling rule_flash_attention_score_grad(const FlashAttentionArguments& arguments) {
    return FlashExamination(arguments, true).judge();
}

}  // namespace attncheck::ref
