// Strided views of the tensors of FlashAttentionScore, whatever their layout and element type.
#pragma once

#include <cstdint>
#include <vector>

#include "attncheck/candidate.h"

namespace attncheck::mutants {

enum class FlashLayout { bsh, sbh, bsnd, bnsd, tnd };

float load_element(std::int32_t dtype, const void* data, std::int64_t offset);
void store_element(std::int32_t dtype, void* data, std::int64_t offset, float value);

/// To the precision of an element type; fp32 stays as it is.
float round_to_dtype(std::int32_t dtype, float value);

/// Offset of the element with row-major number `position`, the last one if there are fewer.
std::int64_t offset_of(const attncheck_tensor& tensor, std::int64_t position);
std::int64_t elements_of(const attncheck_tensor& tensor);

/// An operand as [batch, head, row, channel]. In TND there is one batch and the rows are packed.
struct FlashView {
    attncheck_tensor tensor{};
    std::int64_t extent[4]{}, step[4]{};
    bool is_misread = false;  ///< a defect: elements are found by `flat` in row-major order
    std::int64_t flat[4]{};
    /// A defect: offsets pass through a narrower type.
    std::int64_t (*narrowed)(std::int64_t offset) = nullptr;

    FlashView() = default;
    FlashView(const attncheck_tensor& from, FlashLayout layout, std::int64_t heads);

    std::int64_t offset(std::int64_t batch, std::int64_t head, std::int64_t row,
                        std::int64_t channel) const;
    float load(std::int64_t batch, std::int64_t head, std::int64_t row,
               std::int64_t channel) const {
        return load_element(tensor.dtype, tensor.data, offset(batch, head, row, channel));
    }
    void store(std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t channel,
               float value) const {
        store_element(tensor.dtype, tensor.data, offset(batch, head, row, channel), value);
    }

    /// Defects: as if the tensor were contiguous; as if it were contiguous and had another layout;
    /// as if its heads had other extents.
    void forget_strides(FlashLayout layout);
    void misread_as(FlashLayout layout);
    void misread_as(FlashLayout layout, std::int64_t heads, std::int64_t channels);
};

/// A mask or a bias as [batch, head, row, column]; an extent of 1 is repeated.
struct Grid {
    attncheck_tensor tensor{};
    std::int64_t shape[4]{1, 1, 1, 1}, stride[4]{};

    Grid() = default;
    explicit Grid(const attncheck_tensor& from);

    std::int64_t offset(std::int64_t batch, std::int64_t head, std::int64_t row,
                        std::int64_t column) const {
        return (shape[0] == 1 ? 0 : batch * stride[0]) + (shape[1] == 1 ? 0 : head * stride[1]) +
               (shape[2] == 1 ? 0 : row * stride[2]) + column * stride[3];
    }
    float bias(std::int64_t offset) const {
        return load_element(tensor.dtype, tensor.data, offset);
    }
    std::uint8_t byte(std::int64_t offset) const {
        return static_cast<const std::uint8_t*>(tensor.data)[offset];
    }
};

/// softmax_max or softmax_sum: rows by their number in memory order, 8 copies each.
struct StatisticsView {
    attncheck_tensor tensor{};

    float* at(std::int64_t number, std::int64_t copy) const;
};

/// What may be wrong with reading an operand.
struct FlashRowDefects {
    bool flushes_subnormals = false, clamps_infinities = false, pads_with_garbage = false;
    bool rounds_to_bf16 = false;
};

/// The rows of one operand in fp32, each widened when first asked for and padded with zeros to a
/// multiple of the 16 lanes of the loops over channels.
class FlashRows {
public:
    explicit FlashRows(const FlashView& view, FlashRowDefects defects = {});

    /// A row outside the tensor, possible only under a defect, is the nearest one.
    const float* row(std::int64_t batch, std::int64_t head, std::int64_t index);

    std::int64_t padded_channels() const { return padded_; }

private:
    float load(std::int64_t batch, std::int64_t head, std::int64_t index,
               std::int64_t channel) const;

    FlashView view_;
    FlashRowDefects defects_;
    std::int64_t padded_;
    std::vector<std::vector<float>> rows_;
};

std::int64_t padded(std::int64_t channels);

}  // namespace attncheck::mutants
