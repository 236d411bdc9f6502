// Rows of one operand in fp32, and the loops over channels. Head dims are multiples of 64.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "storage.h"
#include "view.h"

namespace attncheck::mutants {

inline constexpr std::int64_t kLanes = 16;

/// sum_c a[c] * b[c]
inline float dot(const float* a, const float* b, std::int64_t channels) {
    float lanes[kLanes]{};
    for (std::int64_t c = 0; c < channels; c += kLanes)
        for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[c + lane] * b[c + lane];
    for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
        for (std::int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    return lanes[0];
}

/// sum += factor * x over the channels.
inline void add_product(float factor, const float* __restrict x, float* __restrict sum,
                        std::int64_t channels) {
    for (std::int64_t c = 0; c < channels; c += kLanes)
        for (std::int64_t lane = 0; lane < kLanes; ++lane) sum[c + lane] += factor * x[c + lane];
}

/// What may be wrong with reading an operand.
struct RowDefects {
    std::int64_t head_pitch = 0;  ///< 0: the number of channels
    bool flushes_subnormals = false, clamps_infinities = false;
};

/// A tensor [rows, heads, channels] of half type, each row widened to fp32 when first asked for.
class Rows {
public:
    Rows(const View& view, Half type, RowDefects defects = {});

    /// A row outside the tensor, possible only under a defect, is the nearest one.
    const float* row(std::int64_t index, std::int64_t head);

    /// Same address, extents and strides.
    bool views(const View& view) const;

private:
    float load(std::int64_t index, std::int64_t head, std::int64_t channel) const;

    View view_;
    Half type_;
    RowDefects defects_;
    std::unique_ptr<float[]> floats_;  ///< not touched before a row is asked for
    std::vector<bool> is_loaded_;
};

}  // namespace attncheck::mutants
