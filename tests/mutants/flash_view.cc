#include "flash_view.h"

#include <algorithm>

#include "active_mutant.h"
#include "selected_rows.h"
#include "storage.h"

namespace attncheck::mutants {

namespace {

float load_fp8(std::int32_t dtype, std::uint8_t bits) {
    const int magnitude = bits & 0x7f;
    if (dtype == ATTNCHECK_FLOAT8_E5M2 || on<"FP8-01">())
        return on<"FP8-03">() && magnitude < 4 ? 0.0f : widen_e5m2(bits);
    if (on<"FP8-02">() && magnitude == 0x7f) return bits & 0x80 ? -480.0f : 480.0f;
    return widen_e4m3fn(bits);
}

}  // namespace

float load_element(std::int32_t dtype, const void* data, std::int64_t offset) {
    if (dtype == ATTNCHECK_FLOAT8_E5M2 || dtype == ATTNCHECK_FLOAT8_E4M3FN)
        return load_fp8(dtype, static_cast<const std::uint8_t*>(data)[offset]);
    if (dtype == ATTNCHECK_FLOAT32) return static_cast<const float*>(data)[offset];
    const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[offset];
    return widen(dtype == ATTNCHECK_FLOAT16 ? Half::fp16 : Half::bf16, bits);
}

void store_element(std::int32_t dtype, void* data, std::int64_t offset, float value) {
    if (dtype == ATTNCHECK_FLOAT32)
        static_cast<float*>(data)[offset] = value;
    else
        static_cast<std::uint16_t*>(data)[offset] =
            narrow(dtype == ATTNCHECK_FLOAT16 ? Half::fp16 : Half::bf16, value);
}

float round_to_dtype(std::int32_t dtype, float value) {
    if (dtype == ATTNCHECK_FLOAT32) return value;
    return round_to(dtype == ATTNCHECK_FLOAT16 ? Half::fp16 : Half::bf16, value);
}

std::int64_t elements_of(const attncheck_tensor& tensor) {
    std::int64_t elements = 1;
    for (int k = 0; k < tensor.rank; ++k) elements *= tensor.shape[k];
    return elements;
}

std::int64_t offset_of(const attncheck_tensor& tensor, std::int64_t position) {
    position = std::clamp<std::int64_t>(position, 0, elements_of(tensor) - 1);
    std::int64_t offset = 0;
    for (int k = tensor.rank - 1; k >= 0; --k) {
        offset += position % tensor.shape[k] * tensor.strides[k];
        position /= tensor.shape[k];
    }
    return offset;
}

FlashView::FlashView(const attncheck_tensor& from, FlashLayout layout, std::int64_t heads)
    : tensor(from) {
    const std::int64_t *n = from.shape, *s = from.strides;
    const auto set = [this](int k, std::int64_t extent_k, std::int64_t step_k) {
        extent[k] = extent_k;
        step[k] = step_k;
    };
    const bool is_merged = layout == FlashLayout::bsh || layout == FlashLayout::sbh;
    const int channel = from.rank - 1;
    const std::int64_t channels = is_merged ? n[channel] / heads : n[channel];
    set(3, channels, s[channel]);
    switch (layout) {
        case FlashLayout::bsh:
            set(0, n[0], s[0]), set(1, heads, channels * s[2]), set(2, n[1], s[1]);
            break;
        case FlashLayout::sbh:
            set(0, n[1], s[1]), set(1, heads, channels * s[2]), set(2, n[0], s[0]);
            break;
        case FlashLayout::bsnd:
            set(0, n[0], s[0]), set(1, n[2], s[2]), set(2, n[1], s[1]);
            break;
        case FlashLayout::bnsd:
            set(0, n[0], s[0]), set(1, n[1], s[1]), set(2, n[2], s[2]);
            break;
        case FlashLayout::tnd:
            set(0, 1, 0), set(1, n[1], s[1]), set(2, n[0], s[0]);
            break;
    }
}

std::int64_t FlashView::offset(std::int64_t batch, std::int64_t head, std::int64_t row,
                               std::int64_t channel) const {
    const std::int64_t index[] = {batch, head, row, channel};
    std::int64_t sum = 0;
    for (int k = 0; k < 4; ++k) sum += index[k] * (is_misread ? flat[k] : step[k]);
    if (narrowed != nullptr) sum = narrowed(sum);
    return is_misread ? offset_of(tensor, sum) : sum;
}

void FlashView::misread_as(FlashLayout layout, std::int64_t heads, std::int64_t channels) {
    const std::int64_t batches = extent[0], rows = extent[2];
    is_misread = true;
    flat[3] = 1;
    flat[1] = layout == FlashLayout::bnsd ? rows * channels : channels;
    flat[2] = layout == FlashLayout::bnsd  ? channels
              : layout == FlashLayout::sbh ? batches * heads * channels
                                           : heads * channels;
    flat[0] = layout == FlashLayout::sbh ? heads * channels : rows * heads * channels;
}

void FlashView::misread_as(FlashLayout layout) { misread_as(layout, extent[1], extent[3]); }

void FlashView::forget_strides(FlashLayout layout) {
    FlashView contiguous = *this;
    contiguous.misread_as(layout);
    std::copy_n(contiguous.flat, 4, step);
}

Grid::Grid(const attncheck_tensor& from) : tensor(from) {
    const int missing = 4 - from.rank;
    for (int k = 0; k < from.rank; ++k) {
        shape[missing + k] = from.shape[k];
        stride[missing + k] = from.strides[k];
    }
}

float* StatisticsView::at(std::int64_t number, std::int64_t copy) const {
    std::int64_t offset = copy * tensor.strides[tensor.rank - 1];
    for (int k = tensor.rank - 2; k >= 0; --k) {
        offset += number % tensor.shape[k] * tensor.strides[k];
        number /= tensor.shape[k];
    }
    return static_cast<float*>(tensor.data) + offset;
}

std::int64_t padded(std::int64_t channels) { return (channels + kLanes - 1) / kLanes * kLanes; }

FlashRows::FlashRows(const FlashView& view, FlashRowDefects defects)
    : view_(view),
      defects_(defects),
      padded_(padded(view.extent[3])),
      rows_(static_cast<std::size_t>(view.extent[0] * view.extent[1] * view.extent[2])) {}

float FlashRows::load(std::int64_t batch, std::int64_t head, std::int64_t index,
                      std::int64_t channel) const {
    const std::int64_t offset = view_.offset(batch, head, index, channel);
    const std::int32_t dtype = view_.tensor.dtype;
    if (dtype == ATTNCHECK_FLOAT16 || dtype == ATTNCHECK_BFLOAT16) {
        const Half type = dtype == ATTNCHECK_FLOAT16 ? Half::fp16 : Half::bf16;
        const std::uint16_t bits = static_cast<const std::uint16_t*>(view_.tensor.data)[offset];
        const bool is_subnormal = type == Half::fp16 && is_subnormal_fp16(bits);
        if (defects_.flushes_subnormals && is_subnormal) return 0.0f;
        if (defects_.clamps_infinities && is_infinite(type, bits))
            return widen(type, static_cast<std::uint16_t>(bits - 1));
    }
    const float value = load_element(dtype, view_.tensor.data, offset);
    return defects_.rounds_to_bf16 ? round_to(Half::bf16, value) : value;
}

const float* FlashRows::row(std::int64_t batch, std::int64_t head, std::int64_t index) {
    index = std::clamp<std::int64_t>(index, 0, view_.extent[2] - 1);
    head = std::clamp<std::int64_t>(head, 0, view_.extent[1] - 1);
    batch = std::clamp<std::int64_t>(batch, 0, view_.extent[0] - 1);
    std::vector<float>& floats =
        rows_[static_cast<std::size_t>((batch * view_.extent[1] + head) * view_.extent[2] + index)];
    if (!floats.empty()) return floats.data();
    floats.assign(static_cast<std::size_t>(padded_), 0.0f);
    const std::int64_t channels = view_.extent[3];
    for (std::int64_t c = 0; c < channels; ++c)
        floats[static_cast<std::size_t>(c)] = load(batch, head, index, c);
    if (defects_.pads_with_garbage)
        for (std::int64_t c = channels; c < padded_; ++c)
            floats[static_cast<std::size_t>(c)] = floats[static_cast<std::size_t>(c % channels)];
    return floats.data();
}

}  // namespace attncheck::mutants
