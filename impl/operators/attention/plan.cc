#include "impl/operators/attention/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attncheck::impl {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Further than any pair of positions, and sums of a few of them do not overflow.
constexpr std::int64_t kFar = std::int64_t{1} << 60;

// A dimension of extent 1 stands for all; its stride may be anything.
std::int64_t offset_in(const attncheck_tensor& tensor, int dim, std::int64_t index) {
    return tensor.shape[dim] == 1 ? 0 : index * tensor.strides[dim];
}

std::int64_t key_stride(const attncheck_tensor& tensor) {
    return tensor.shape[3] == 1 ? 0 : tensor.strides[3];
}

}  // namespace

AttentionPlan::AttentionPlan(const AttentionCall& call, const AttentionKernels& kernels)
    : TilePlan(attention_extents(call), static_cast<float>(call.scale)),
      call_(call),
      kernels_(kernels),
      softcap_(static_cast<float>(call.softcap)) {
    if (!call.is_gradient() || call.has_lse()) return;
    const FlashExtents& e = extents();
    kept_.resize(static_cast<std::size_t>((e.is_packed() ? 1 : e.batch) * e.query_len *
                                          e.query_heads));
}

FlashSequence AttentionPlan::sequence(std::int64_t b) const {
    if (!extents().is_packed()) return {0, extents().query_len, 0, extents().key_len};
    const std::int64_t *q = call_.query_starts->values + b, *k = call_.key_starts->values + b;
    return {q[0], q[1] - q[0], k[0], k[1] - k[0]};
}

VisibleBand AttentionPlan::band(std::int64_t b) const {
    const FlashSequence s = sequence(b);
    const std::int64_t off = call_.align == 1 ? s.key_len - s.query_len : 0;
    const std::int64_t left = call_.window_left, right = call_.window_right;
    const std::int64_t keys =
        call_.kv_length->values != nullptr ? call_.kv_length->values[b] : s.key_len;
    return {left < 0 ? -kFar : off - std::min(left, kFar),
            right < 0 ? kFar : off + std::min(right, kFar), 0, keys};
}

std::int64_t AttentionPlan::pair_offset(const attncheck_tensor& tensor, std::int64_t b,
                                        std::int64_t head, std::int64_t i, std::int64_t j) {
    return offset_in(tensor, 0, b) + offset_in(tensor, 1, head) + offset_in(tensor, 2, i) +
           offset_in(tensor, 3, j);
}

void AttentionPlan::load_bias(const FlashTile& tile, std::int64_t i, std::int64_t begin,
                              std::int64_t end, float* to) const {
    const attncheck_tensor& bias = *call_.bias;
    const std::int64_t start = pair_offset(bias, tile.b, tile.head, i, tile.key_begin + begin),
                       stride = key_stride(bias);
    for (std::int64_t k = 0; k < end - begin; ++k)
        to[k] = widen_element(bias.dtype, bias.data, start + k * stride);
}

void AttentionPlan::hide_pairs(const FlashTile& tile, std::int64_t i, std::int64_t begin,
                               std::int64_t end, std::uint8_t* seen) const {
    if (call_.has_mask()) {
        const attncheck_tensor& mask = *call_.mask;
        const std::uint8_t* shown =
            static_cast<const std::uint8_t*>(mask.data) +
            pair_offset(mask, tile.b, tile.head, i, tile.key_begin + begin);
        const std::int64_t stride = key_stride(mask);
        for (std::int64_t k = begin; k < end; ++k) seen[k] = shown[(k - begin) * stride] != 0;
    }
    if (!call_.has_bias()) return;
    float bias[kFlashTileKeys];
    load_bias(tile, i, begin, end, bias);
    for (std::int64_t k = begin; k < end; ++k)
        if (bias[k - begin] == -kInfinity) seen[k] = 0;
}

void AttentionPlan::finish_products(const FlashTile& tile, float* products, float* slopes) const {
    if (softcap_ > 0)
        kernels_.softcap_tile(
            {products, kFlashTileKeys, tile.rows, tile.cols(), softcap_,
             divides_products() ? 1.0f : softcap_, slopes});
    if (!call_.has_bias()) return;
    const VisibleBand visible = band(tile.b);
    for (std::int64_t r = 0; r < tile.rows; ++r, products += kFlashTileKeys) {
        const std::int64_t i = tile.query_begin + r,
                           begin = std::max(visible.first(i) - tile.key_begin, std::int64_t{0}),
                           end = std::min(visible.last(i) - tile.key_begin, tile.keys);
        if (begin >= end) continue;
        float bias[kFlashTileKeys];
        load_bias(tile, i, begin, end, bias);
        for (std::int64_t k = begin; k < end; ++k) products[k] += bias[k - begin];
    }
}

float AttentionPlan::sink(std::int64_t head) const {
    if (!call_.has_sink()) return -kInfinity;
    return static_cast<const float*>(call_.sink->data)[head * call_.sink->strides[0]];
}

std::int64_t AttentionPlan::statistic_offset(const attncheck_tensor& lse, std::int64_t b,
                                             std::int64_t head, std::int64_t i) const {
    if (!extents().is_packed())
        return b * lse.strides[0] + head * lse.strides[1] + i * lse.strides[2];
    return head * lse.strides[0] + (sequence(b).query_begin + i) * lse.strides[1];
}

std::size_t AttentionPlan::kept_place(std::int64_t b, std::int64_t head, std::int64_t i) const {
    const std::int64_t row = extents().is_packed() ? sequence(b).query_begin + i
                                                   : b * extents().query_len + i;
    return static_cast<std::size_t>(row * extents().query_heads + head);
}

RowStatistics AttentionPlan::statistics(std::int64_t b, std::int64_t head, std::int64_t i) const {
    if (!kept_.empty()) return kept_[kept_place(b, head, i)];
    const attncheck_tensor& lse = *call_.lse;
    return {static_cast<const float*>(lse.data)[statistic_offset(lse, b, head, i)], 1.0f};
}

void AttentionPlan::write_statistics(std::int64_t b, std::int64_t head, std::int64_t i,
                                     const RowStatistics& of) const {
    if (call_.is_gradient()) {
        kept_[kept_place(b, head, i)] = of;
        return;
    }
    if (!call_.has_lse()) return;
    const attncheck_tensor& lse = *call_.lse;
    static_cast<float*>(lse.data)[statistic_offset(lse, b, head, i)] =
        of.row_max + std::log(of.row_sum);
}

}  // namespace attncheck::impl
