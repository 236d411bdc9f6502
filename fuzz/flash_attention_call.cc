// Calls of FlashAttentionScore and FlashAttentionScoreGrad.
//
// Head    as in flash_attention_parts.h
// Change  what: an attribute, an extent of one tensor or of all, a whole shape, an entry of an
// array,
//         its size, one entry more, a rank, a dtype, a stride, a layout, a tensor or array present
//         or absent, keep_prob or the scale
// The forward takes its tensors from those of the gradient.
#include <algorithm>
#include <cstdlib>
#include <limits>

#include "fuzz/flash_attention_parts.h"
#include "fuzz/fuzzed_call.h"
#include "impl/operators/flash_attention/validate.h"

namespace attncheck::fuzz {
namespace {

using Integer = std::int64_t;
using Tensor = attncheck_tensor;

constexpr Integer kMebi = 1 << 20;
constexpr Integer kLimits[] = {0,
                               1,
                               2,
                               3,
                               4,
                               5,
                               6,
                               7,
                               8,
                               9,
                               16,
                               255,
                               256,
                               257,
                               512,
                               513,
                               1023,
                               1024,
                               1025,
                               2047,
                               2048,
                               2049,
                               -1,
                               3072,
                               100,
                               24,
                               kMebi,
                               -2,
                               -3,
                               -5,
                               kMebi + 1,
                               2 * kMebi,
                               2 * kMebi + 1,
                               std::numeric_limits<Integer>::max(),
                               std::numeric_limits<Integer>::min()};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kTiny = 1e-12;
constexpr double kReals[] = {1,     0.5,   0,         -0.5,      1.5,   kNan,
                             kTiny, 1e-50, 1 - kTiny, 1 + kTiny, 1e300, -1e300};
constexpr Integer kMostSequences = 2 << 20, kMostBacked = 2100;

class FlashAttentionCall : public FuzzedCall {
public:
    explicit FlashAttentionCall(const CallBytes& bytes)
        : c_(draw_flash_attention({bytes.head.data(), bytes.head.data() + bytes.head.size()})) {
        for (const Change& change : bytes.changes) spoil(change);
        unchanged_ = bytes.changes.empty(), forward_ = !c_.gradient;
        for (std::size_t i = 0; i < kArrays; ++i) {
            attncheck_int_array& array = *arrays_of(c_.g)[i];
            if (i < kQueryStart) {
                backed_[i] = back_array(array, c_.values[i], kMostSequences, kMostBacked);
                continue;
            }
            // Of a start index only the first element counts, and only if there is one.
            if (c_.values[i].empty()) c_.values[i].push_back(0);
            if (array.values) array.values = c_.values[i].data();
            backed_[i] = {array.values != nullptr, array.size, c_.values[i]};
        }
        choose_profile();
    }

    std::optional<ref::Ruling> ruling() const override {
        const ref::FlashAttentionArguments a = reference();
        return c_.gradient ? ref::rule_flash_attention_score_grad(a)
                           : ref::rule_flash_attention_score(a);
    }
    impl::MaybeRejection rejection() const override {
        if (c_.gradient) return impl::validate_flash_attention_score_grad(&c_.g);
        const auto f = forward_args();
        return impl::validate_flash_attention_score(&f);
    }
    int enter() const override {
        if (c_.gradient) return attncheck_flash_attention_score_grad(&c_.g);
        const auto f = forward_args();
        return attncheck_flash_attention_score(&f);
    }
    ArgumentList arguments() const override {
        auto& g = const_cast<attncheck_flash_attention_score_grad_args&>(c_.g);
        const auto all = tensors_of(g);
        const auto every_array = arrays_of(g);
        return {{all.begin(), all.end()},
                {every_array.begin(), every_array.end()},
                {g.sparse_mode, g.pre_tokens, g.next_tokens, g.head_num, g.pse_type},
                {g.scale_value, g.keep_prob},
                {g.input_layout, g.softmax_in_layout}};
    }

private:
    /// The environment is slow to change: only where it differs.
    void choose_profile() const {
        static std::optional<bool> chosen;
        if (chosen == c_.ascend950) return;
        chosen = c_.ascend950;
        setenv("ATTNCHECK_PROFILE", c_.ascend950 ? "ascend950" : "ascend910b", 1);
    }

    /// A whole shape out of the numbers that shapes are made of.
    void redraw_shape(const Change& change, Tensor& t) {
        const auto& x = c_.x;
        const Integer parts[] = {
            1,     x[kB],  x[kN1], x[kN2], c_.query_len, c_.key_len, x[kQueryRows], x[kKeyRows],
            x[kD], x[kDv], x[kDr], 8,      1024,         2048,       3072,          0};
        t.rank = change.argument % 10;
        for (std::int32_t axis = 0; axis < std::min(t.rank, ATTNCHECK_MAX_RANK); ++axis)
            t.shape[axis] = parts[change.number >> (4 * axis) & 15];
        if (change.argument / 10 % 2) t.data = no_memory();
    }

    void spoil(const Change& change) {
        auto& g = c_.g;
        const std::uint8_t which = change.which;
        Integer* const attributes[] = {&g.sparse_mode, &g.pre_tokens, &g.next_tokens,
                                       &g.head_num,    &g.pse_type,   &g.inner_precise};
        Tensor& t = *tensors_of(g)[which % 18];
        attncheck_int_array& array = *arrays_of(g)[which % kArrays];
        std::vector<Integer>& values = c_.values[which % kArrays];
        switch (change.what % 15) {
            case 0:
                return apply(change, *attributes[which % 6], kLimits);
            case 1:
                return apply(change, t.shape[which / 18 % ATTNCHECK_MAX_RANK], kLimits);
            case 2:
                if (values.empty()) values.push_back(0);
                return apply(change, values[which / kArrays % values.size()], kLimits);
            case 3:
                return apply(change, array.size, kLimits);
            case 4:
                return apply(change, t.rank, kRanks);
            case 5:
                return apply(change, t.dtype, kDtypes);
            case 6:
                g.input_layout = draw_layout(0, which);
                return;
            case 7:
                g.softmax_in_layout = draw_layout(1, which);
                return;
            case 8:
                t.data = t.data ? nullptr : no_memory();
                return;
            case 9:
                array.values = array.values ? nullptr : &kNoValue;
                return;
            case 10:
                (which % 4 ? g.keep_prob : g.scale_value) = kReals[which / 4 % 12];
                return;
            case 11:
                apply(change, c_.x[which % kExtents], kLimits);
                return set_shapes(c_);
            case 12:
                return redraw_shape(change, t);
            case 13:
                values.push_back(values.empty() ? 0 : values.back());
                array.size = std::ssize(values);
                return;
            default:
                return apply(change, t.strides[which / 18 % ATTNCHECK_MAX_RANK], {});
        }
    }

    ref::FlashAttentionArguments reference() const {
        auto& g = const_cast<attncheck_flash_attention_score_grad_args&>(c_.g);
        ref::FlashAttentionArguments a;
        ref::TensorArgument* const own[] = {
            &a.query,     &a.key,        &a.value,    &a.dy,      &a.softmax_max, &a.softmax_sum,
            &a.attention, &a.dq,         &a.dk,       &a.dv,      &a.pse,         &a.atten_mask,
            &a.drop_mask, &a.query_rope, &a.key_rope, &a.dq_rope, &a.dk_rope,     &a.padding_mask};
        for (std::size_t i = 0; i < std::size(own); ++i)
            *own[i] = tensor_argument(*tensors_of(g)[i]);
        ref::ArrayArgument* const own_arrays[] = {&a.actual_seq_q_len, &a.actual_seq_kv_len,
                                                  &a.prefix, &a.q_start_idx, &a.kv_start_idx};
        for (std::size_t i = 0; i < kArrays; ++i) *own_arrays[i] = backed_[i];
        a.scale_value = g.scale_value, a.keep_prob = g.keep_prob;
        a.pre_tokens = g.pre_tokens, a.next_tokens = g.next_tokens, a.head_num = g.head_num;
        a.input_layout = text_argument(g.input_layout);
        a.softmax_layout = text_argument(g.softmax_in_layout);
        a.sparse_mode = g.sparse_mode, a.pse_type = g.pse_type;
        a.ascend950 = c_.ascend950;
        return a;
    }

    attncheck_flash_attention_score_args forward_args() const {
        const auto& g = c_.g;
        attncheck_flash_attention_score_args f{};
        f.query = g.query, f.query_rope = g.query_rope, f.key = g.key, f.key_rope = g.key_rope;
        f.value = g.value, f.real_shift = g.pse_shift, f.drop_mask = g.drop_mask;
        f.padding_mask = g.padding_mask, f.atten_mask = g.atten_mask, f.prefix = g.prefix;
        f.actual_seq_q_len = g.actual_seq_q_len, f.actual_seq_kv_len = g.actual_seq_kv_len;
        f.q_start_idx = g.q_start_idx, f.kv_start_idx = g.kv_start_idx;
        f.scale_value = g.scale_value, f.keep_prob = g.keep_prob, f.head_num = g.head_num;
        f.pre_tokens = g.pre_tokens, f.next_tokens = g.next_tokens, f.input_layout = g.input_layout;
        f.inner_precise = g.inner_precise, f.sparse_mode = g.sparse_mode, f.pse_type = g.pse_type;
        f.softmax_out_layout = g.softmax_in_layout;
        f.softmax_max = g.softmax_max, f.softmax_sum = g.softmax_sum,
        f.attention_out = g.attention_in;
        return f;
    }

    FlashParts c_;
    std::array<ref::ArrayArgument, kArrays> backed_;
};

}  // namespace

std::unique_ptr<FuzzedCall> flash_attention_call(const CallBytes& bytes) {
    return std::make_unique<FlashAttentionCall>(bytes);
}

}  // namespace attncheck::fuzz
