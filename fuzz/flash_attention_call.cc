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
#include "fuzz/struct_call.h"

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

const Family& family() {
    static const Family only("flash_attention_score", "flash_attention_score_grad",
                             {{"real_shift", "pse_shift"},
                              {"attention_out", "attention_in"},
                              {"softmax_out_layout", "softmax_in_layout"}});
    return only;
}

/// In the order of FlashArray.
constexpr const char* kArrayNames[] = {"actual_seq_q_len", "actual_seq_kv_len", "prefix",
                                       "q_start_idx", "kv_start_idx"};

class FlashAttentionCall : public StructCall {
public:
    explicit FlashAttentionCall(const CallBytes& bytes)
        : StructCall(family(), &c_.g), c_(draw_flash_attention({bytes.head.data(), bytes.head.data() + bytes.head.size()})) {
        for (const Change& change : bytes.changes) spoil(change);
        unchanged_ = bytes.changes.empty(), forward_ = !c_.gradient;
        for (std::size_t i = 0; i < kArrays; ++i) {
            attncheck_int_array& array = *arrays_of(c_.g)[i];
            if (i < kQueryStart) {
                backed_[kArrayNames[i]] = back_array(array, c_.values[i], kMostSequences, kMostBacked);
                continue;
            }
            // Of a start index only the first element counts, and only if there is one.
            if (c_.values[i].empty()) c_.values[i].push_back(0);
            if (array.values) array.values = c_.values[i].data();
            backed_[kArrayNames[i]] = {array.values != nullptr, array.size, c_.values[i]};
        }
        choose_profile();
    }

    std::optional<ref::Ruling> ruling() const override {
        auto arguments = ruled<ref::FlashAttentionArguments>();
        arguments.ascend950 = c_.ascend950;
        return c_.gradient ? ref::rule_flash_attention_score_grad(arguments)
                           : ref::rule_flash_attention_score(arguments);
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

    /// Any value of it is legal.
    void spoil_inert(const Change& change) {
        const auto& argument = family().inert().argument;
        Integer value = argument.get(&c_.g);
        apply(change, value, kLimits);
        argument.put(&c_.g, value);
    }

    void spoil(const Change& change) {
        auto& g = c_.g;
        const std::uint8_t which = change.which;
        Integer* const attributes[] = {&g.sparse_mode, &g.pre_tokens, &g.next_tokens, &g.head_num,
                                       &g.pse_type};
        Tensor& t = *tensors_of(g)[which % 18];
        attncheck_int_array& array = *arrays_of(g)[which % kArrays];
        std::vector<Integer>& values = c_.values[which % kArrays];
        switch (change.what % 15) {
            case 0:
                if (which % 6 < std::size(attributes))
                    return apply(change, *attributes[which % 6], kLimits);
                return spoil_inert(change);
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

    FlashParts c_;
};

}  // namespace

std::unique_ptr<FuzzedCall> flash_attention_call(const CallBytes& bytes) {
    return std::make_unique<FlashAttentionCall>(bytes);
}

}  // namespace attncheck::fuzz
