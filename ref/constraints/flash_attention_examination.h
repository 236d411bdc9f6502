// The examination of a call of FlashAttentionScore or FlashAttentionScoreGrad: its steps and what
// they know of the call. flash_attention.cc has the steps on tensors, lengths and ropes,
// flash_attention_mask.cc those on tensors with an element per pair of query and key.
//
// B batch, in TND the number of sequences   S1, S2 query and key lengths, in TND those of one
// sequence   T1, T2 query and key rows of all sequences   N1, N2 query and key heads   D, Dv
// head_dim and value_dim   Dr channels of a rope   H1 = N1*D, H2 = N2*D, Hv = N2*Dv
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ref/constraints/constraints.h"
#include "ref/constraints/examination.h"

namespace attncheck::ref::flash {

/// Where a layout has its axes; -1 where it has none, heads -1 where they are one axis with the
/// channels.
struct Axes {
    const char* name;
    std::int32_t rank;
    int batch, length, heads, channels;
};

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
/// The offsets of positions by q_start_idx and kv_start_idx.
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

inline std::string given_with(const std::string& what) { return "is given with " + what; }

inline bool is_fp8(const TensorArgument& t) {
    const auto dtype = static_cast<Dtype>(t.dtype);
    return dtype == Dtype::fp8_e5m2 || dtype == Dtype::fp8_e4m3fn;
}

/// NaN stays NaN; what lies far outside (0, 1] stays outside, without an overflow.
inline float narrowed_keep_prob(double keep_prob) {
    return static_cast<float>(std::clamp(keep_prob, -1.0, 2.0));
}

/// Before the layouts in struct order.
Operands inputs_of(const FlashAttentionArguments& a, bool gradient);
Operands outputs_of(const FlashAttentionArguments& a, bool gradient);

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

    Ruling judge();

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
    void tokens(bool holds, const std::string& allowed, const std::string& side = {});
    std::string side_of_band(std::int64_t kv_len, std::int64_t least, std::int64_t most) const;
    Starts take_starts();
    bool is_aligned_at_first(const Starts& start) const;
    bool is_aligned(const Starts& start) const;
    void examine_pse_against_mode();

    void examine_forward_outputs();
    void examine_gradients();
};

}  // namespace attncheck::ref::flash
