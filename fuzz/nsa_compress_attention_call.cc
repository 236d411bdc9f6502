// Calls of NsaCompressAttention.
//
// Head    blocks and strides, count, heads, dims, dtype, scale, mode and masks, number of sequences
//         and their lengths, rows beyond the last one
// Change  what: an extent of one tensor or of all, a length, an attribute, an array's size, a rank,
//         a dtype, a stride, the layout, a tensor or an array absent, the scale
#include <algorithm>
#include <array>
#include <limits>

#include "fuzz/bytes.h"
#include "fuzz/struct_call.h"
#include "ref/constraints/nsa_compress_attention.h"

namespace attncheck::fuzz {
namespace {

using Integer = std::int64_t;
using Args = attncheck_nsa_compress_attention_args;

constexpr double kScales[] = {0.1,
                              0,
                              -1,
                              5e-324,
                              0x1.fffffefffffffp127,
                              0x1.ffffffp127,
                              -1e300,
                              std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()};
constexpr int kLegalScales = 5;
constexpr Integer kLimits[] = {0,  1,  2,  3,   8,   15,  16,  17,  31,  32,    33,    48,   63,
                               64, 65, 80, 112, 127, 128, 129, 144, 767, 768,   769,   1024, -1,
                               5,  7,  96, 192, 256, 3,   6,   9,   10,  13999, 14000, 14001};
constexpr Integer kNoLength = -1;  ///< stands for a present array until its values are final
constexpr Integer kMostBacked = 64;

/// Every number a shape is made of.
enum Extent { kT1, kN1, kC, kN2, kD, kDv, kK, kExtents };
enum Array { kQueryEnds, kCmpEnds, kSelEnds, kArrays };

void set_shape(attncheck_tensor& t, Integer first, Integer second, Integer third) {
    t.shape[0] = first, t.shape[1] = second, t.shape[2] = third;
}

const Family& family() {
    static const Family only("nsa_compress_attention");
    return only;
}

/// In the order of Array.
constexpr const char* kArrayNames[] = {"actual_seq_q_len", "actual_cmp_seq_kv_len",
                                       "actual_sel_seq_kv_len"};

class CompressAttentionCall : public StructCall {
public:
    explicit CompressAttentionCall(const CallBytes& bytes) : StructCall(family(), &a_) {
        draw({bytes.head.data(), bytes.head.data() + bytes.head.size()});
        for (const Change& change : bytes.changes) spoil(change);
        unchanged_ = bytes.changes.empty();
        for (std::size_t i = 0; i < kArrays; ++i)
            backed_[kArrayNames[i]] = back_array(
                *arrays()[i], ends_[i], std::numeric_limits<Integer>::max(), kMostBacked);
    }

    std::optional<ref::Ruling> ruling() const override {
        return ref::rule_nsa_compress_attention(ruled<ref::CompressAttentionArguments>());
    }

private:
    std::array<attncheck_tensor*, 9> tensors() {
        return {&a_.query,        &a_.key,         &a_.value,
                &a_.softmax_max,  &a_.softmax_sum, &a_.attention_out,
                &a_.topk_indices, &a_.atten_mask,  &a_.topk_mask};
    }
    std::array<attncheck_int_array*, kArrays> arrays() {
        return {&a_.actual_seq_q_len, &a_.actual_cmp_seq_kv_len, &a_.actual_sel_seq_kv_len};
    }

    void draw(Bytes head) {
        constexpr Integer kKvHeads[] = {1, 2, 3, 5, 200}, kGroups[] = {1, 2, 8, 64};
        constexpr Integer kDims[][2] = {{192, 128}, {1, 1}, {768, 768}, {80, 3}};
        constexpr Integer kCounts[] = {1, 2, 5, 32};
        draw_blocks(head);
        x_[kK] = kCounts[head.byte() % 4];
        const std::uint8_t heads = head.byte(), dims = head.byte();
        x_[kN2] = kKvHeads[heads % 5], x_[kN1] = x_[kN2] * kGroups[heads / 5 % 4];
        x_[kD] = kDims[dims % 4][0], x_[kDv] = kDims[dims % 4][1];
        const std::int32_t dtype = head.byte() % 2 ? ATTNCHECK_BFLOAT16 : ATTNCHECK_FLOAT16;
        a_.scale_value = kScales[head.byte() % kLegalScales];
        const std::uint8_t masks = head.byte();
        a_.sparse_mode = masks % 2;
        for (attncheck_tensor* t : tensors()) *t = {no_memory(), dtype, 3, {}, {}};
        a_.softmax_max.dtype = a_.softmax_sum.dtype = ATTNCHECK_FLOAT32;
        a_.topk_indices.dtype = ATTNCHECK_INT32;
        for (attncheck_tensor* t : {&a_.atten_mask, &a_.topk_mask})
            *t = {nullptr, masks & 2 ? ATTNCHECK_BOOL : ATTNCHECK_UINT8, 2, {}, {}};
        if (masks & 4) a_.atten_mask.data = no_memory();
        if (masks & 8) a_.topk_mask.data = no_memory();
        draw_lengths(head);
        set_shapes();
        a_.input_layout = draw_layout(0, 0);
        for (std::size_t i = 0; i < kArrays; ++i) *arrays()[i] = {&kNoLength, std::ssize(ends_[i])};
    }

    /// l' >= l >= d, l' a multiple of d.
    void draw_blocks(Bytes& head) {
        const std::uint8_t bytes[] = {head.byte(), head.byte(), head.byte()};
        const Integer stride = 1 + bytes[0] % 4, multiples = 8 / stride;
        const Integer selected = stride * (1 + bytes[1] % multiples);
        a_.compress_stride = 16 * stride, a_.select_block_size = 16 * selected;
        a_.compress_block_size = 16 * (stride + bytes[2] % (selected - stride + 1));
    }

    void draw_lengths(Bytes& head) {
        const Integer keys_per_block = a_.select_block_size / a_.compress_stride;
        const Integer least = keys_per_block * (x_[kK] - 1) + 1;
        Integer ends[kArrays] = {}, longest[kArrays] = {};
        for (int left = 1 + head.byte() % 5; left > 0; --left) {
            const Integer queries = head.byte() % 9, kind = head.byte();
            Integer keys = kind == 255 ? 14000 : least + kind;
            if (queries == 0 && kind % 2 == 0) keys = 0;
            const Integer own[] = {queries, keys, (keys + keys_per_block - 1) / keys_per_block};
            for (std::size_t i = 0; i < kArrays; ++i) {
                ends_[i].push_back(ends[i] += own[i]);
                longest[i] = std::max(longest[i], own[i]);
            }
        }
        x_[kT1] = std::max<Integer>(1, ends[kQueryEnds] + head.byte() % 4);
        x_[kC] = std::max<Integer>(1, ends[kCmpEnds] + head.byte());
        set_shape(a_.atten_mask, longest[kQueryEnds], longest[kCmpEnds], 0);
        set_shape(a_.topk_mask, longest[kQueryEnds], longest[kSelEnds], 0);
    }

    void set_shapes() {
        set_shape(a_.query, x_[kT1], x_[kN1], x_[kD]);
        set_shape(a_.key, x_[kC], x_[kN2], x_[kD]);
        set_shape(a_.value, x_[kC], x_[kN2], x_[kDv]);
        set_shape(a_.softmax_max, x_[kT1], x_[kN1], 8);
        set_shape(a_.softmax_sum, x_[kT1], x_[kN1], 8);
        set_shape(a_.attention_out, x_[kT1], x_[kN1], x_[kDv]);
        set_shape(a_.topk_indices, x_[kT1], x_[kN2], x_[kK]);
        a_.head_num = x_[kN1], a_.select_block_count = x_[kK];
    }

    void spoil(const Change& change) {
        const std::uint8_t which = change.which;
        Integer* const attributes[] = {
            &a_.head_num,        &a_.sparse_mode,       &a_.compress_block_size,
            &a_.compress_stride, &a_.select_block_size, &a_.select_block_count};
        attncheck_tensor& t = *tensors()[which % 9];
        std::vector<Integer>& ends = ends_[which % kArrays];
        attncheck_int_array& array = *arrays()[which % kArrays];
        switch (change.what % 12) {
            case 0:
                return apply(change, *attributes[which % 6], kLimits);
            case 1:
                return apply(change, t.shape[which / 9 % ATTNCHECK_MAX_RANK], kLimits);
            case 2:
                return apply(change, ends[which / kArrays % ends.size()], kLimits);
            case 3:
                return apply(change, array.size, kLimits);
            case 4:
                return apply(change, t.rank, kRanks);
            case 5:
                return apply(change, t.dtype, kDtypes);
            case 6:
                a_.input_layout = draw_layout(0, which);
                return;
            case 7:
                t.data = which / 9 % 4 ? nullptr : no_memory();
                return;
            case 8:
                array.values = nullptr;
                return;
            case 9:
                a_.scale_value = kScales[which % std::size(kScales)];
                return;
            case 10:
                apply(change, x_[which % kExtents], kLimits);
                return set_shapes();
            default:
                return apply(change, t.strides[which / 9 % ATTNCHECK_MAX_RANK], {});
        }
    }

    Args a_{};
    std::array<Integer, kExtents> x_{};
    std::array<std::vector<Integer>, kArrays> ends_;  ///< back the arrays
};

}  // namespace

std::unique_ptr<FuzzedCall> nsa_compress_attention_call(const CallBytes& bytes) {
    return std::make_unique<CompressAttentionCall>(bytes);
}

}  // namespace attncheck::fuzz
