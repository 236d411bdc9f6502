#include "selected_rows.h"

#include <algorithm>

namespace attncheck::mutants {

Rows::Rows(const View& view, Half type, RowDefects defects)
    : view_(view),
      type_(type),
      defects_(defects),
      floats_(new float[static_cast<std::size_t>(view.elements())]),
      is_loaded_(static_cast<std::size_t>(view.shape[0] * view.shape[1])) {
    if (defects_.head_pitch == 0) defects_.head_pitch = view.shape[2];
}

float Rows::load(std::int64_t index, std::int64_t head, std::int64_t channel) const {
    if (defects_.head_pitch != view_.shape[2]) {
        const std::int64_t pitch = view_.shape[1] * view_.shape[2];
        const std::int64_t position =
            std::min(index * pitch + head * defects_.head_pitch + channel, view_.elements() - 1);
        index = position / pitch;
        head = position % pitch / view_.shape[2];
        channel = position % view_.shape[2];
    }
    const std::uint16_t bits = *view_.at(index, head, channel);
    if (defects_.flushes_subnormals && type_ == Half::fp16 && is_subnormal_fp16(bits)) return 0.0f;
    if (defects_.clamps_infinities && is_infinite(type_, bits))
        return widen(type_, static_cast<std::uint16_t>(bits - 1));
    return widen(type_, bits);
}

const float* Rows::row(std::int64_t index, std::int64_t head) {
    index = std::clamp<std::int64_t>(index, 0, view_.shape[0] - 1);
    head = std::clamp<std::int64_t>(head, 0, view_.shape[1] - 1);
    const std::int64_t channels = view_.shape[2], position = index * view_.shape[1] + head;
    float* floats = floats_.get() + position * channels;
    if (is_loaded_[static_cast<std::size_t>(position)]) return floats;
    is_loaded_[static_cast<std::size_t>(position)] = true;
    const bool is_plain = defects_.head_pitch == channels && !defects_.flushes_subnormals &&
                          !defects_.clamps_infinities;
    const std::uint16_t* element = view_.at(index, head);
    for (std::int64_t c = 0; c < channels; ++c)
        floats[c] = is_plain ? widen(type_, element[c * view_.stride[2]]) : load(index, head, c);
    return floats;
}

bool Rows::views(const View& view) const {
    return view.data == view_.data && std::equal(view.shape, view.shape + 3, view_.shape) &&
           std::equal(view.stride, view.stride + 3, view_.stride);
}

}  // namespace attncheck::mutants
