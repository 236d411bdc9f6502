#ifndef ATTNCHECK_IMPL_FLASH_ATTENTION_OPERAND_H
#define ATTNCHECK_IMPL_FLASH_ATTENTION_OPERAND_H

#include <cstdint>
#include <vector>

#include "impl/kernels/attention_kernels.h"
#include "impl/operators/flash_attention/tile.h"
#include "impl/arguments/strided_rows.h"

/// Operands of the products of a tile, in fp32 or as pairs of bf16 numbers.
///
/// Pairs take half the time and are exact as operands, but the instruction flushes subnormals
/// (bf16_dot_kernels.h). So an element that is not plain never meets it: logits of a row that has
/// one come from the fp32 product, and sums leave it out and add its share in fp32. Which way a
/// number is computed depends only on the elements that it is computed from, never on a neighbour
/// in the tile; a hidden key changes no bits.
namespace attncheck::impl {

/// Whether tensors of this element type go to the pair products of these kernels.
inline bool takes_pairs(std::int32_t dtype, const AttentionKernels& kernels) {
    return kernels.bf16_dot != nullptr && dtype == ATTNCHECK_BFLOAT16;
}

/// SoftmaxTile without the tile itself.
struct SoftmaxStep {
    std::int64_t rows, cols;
    float prob_factor;
    float *row_max, *row_sum, *rescale;
};

/// GradientTile without the tile itself.
struct GradientStep {
    std::int64_t rows, cols;
    const float *row_max, *row_sum, *delta;
};

/// Weights of the pairs of a tile, probabilities or score gradients: [rows, kFlashTileKeys].
class TileWeights {
public:
    TileWeights(std::int64_t max_rows, const AttentionKernels& kernels, bool as_pairs);

    /// fp32, to be filled in; exactly 0 where a pair is hidden.
    float* data() const { return weights_.data(); }
    /// AttentionKernels::softmax_tile of the logits in data(), and round_for_keys.
    void softmax(const SoftmaxStep& step);
    /// AttentionKernels::gradient_tile of the logits in probs.data() and dP in score_grads.data().
    static void gradient(TileWeights& probs, TileWeights& score_grads, const GradientStep& step);
    /// After filling: what sums over keys, or over rows, need; nothing unless as pairs.
    void round_for_keys(std::int64_t rows, std::int64_t cols);
    void round_for_rows(std::int64_t rows, std::int64_t cols);
    /// Whether rounding has left out a weight.
    bool has_lost() const { return has_lost_; }
    /// Pairs along keys, [rows, kFlashTileKeys / 2], and along rows, [rows / 2, kFlashTileKeys].
    const std::uint32_t* pairs_of_keys() const {
        return reinterpret_cast<const std::uint32_t*>(halves_.data());
    }
    const std::uint32_t* pairs_of_rows() const { return row_pairs_.data(); }

private:
    friend class TileRows;
    SoftmaxTile tile_of(const SoftmaxStep& step) const;
    // After rounding, if it has left out anything: fills plain_ and lost_.
    void split(std::int64_t rows, std::int64_t cols);

    const AttentionKernels& kernels_;
    bool as_pairs_, has_lost_ = false;
    AlignedBuffer<float> weights_;
    AlignedBuffer<std::uint16_t> halves_;
    AlignedBuffer<std::uint32_t> row_pairs_;
    std::vector<float> plain_, lost_;  // empty unless rounding has left out a weight
};

/// Consecutive rows of one head, rope channels behind the others, in every form that a product
/// wants; a form is made when it is first asked for.
class TileRows {
public:
    TileRows(std::int64_t max_rows, std::int64_t dim, const AttentionKernels& kernels,
             bool as_pairs);

    std::int64_t width() const { return packed_.width(); }
    /// `rope` may be a view of dim 0.
    void load(const RowView& view, const RowView& rope, std::int64_t b, std::int64_t head,
              std::int64_t position, std::int64_t count);
    /// The same from rows [count, width()] of 16-bit numbers; bf16 if as pairs.
    void load_halves(const std::uint16_t* rows, std::int64_t count, HalfFormat format);

    std::int64_t count() const { return count_; }
    /// out[r, key] = factor * <this row begin + r, key> for some rows and the first keys; out
    /// [rows, kFlashTileKeys].
    void multiply(std::int64_t begin, std::int64_t rows, TileRows& keys, std::int64_t num_keys,
                  float factor, float* out);
    /// multiply, softmax of `weights` and add_sum_over_keys of the values to `out`, whose rows are
    /// rescaled before, in one; all pairs count. False where that is not possible.
    bool attend(std::int64_t begin, TileRows& keys, TileRows& values, std::int64_t num_keys,
                float factor, TileWeights& weights, const SoftmaxStep& step, float* out);
    /// out[row, c] += sum_key weights[row, key] * (this)[key, c] over the pairs that count and the
    /// first keys.
    void add_sum_over_keys(TileWeights& weights, std::int64_t rows, std::int64_t keys,
                           PairFlags flags, float* out);
    /// out[key, c] += sum_row weights[row, key] * (this)[begin + row, c], for an even begin.
    void add_sum_over_rows(TileWeights& weights, std::int64_t begin, std::int64_t rows,
                           std::int64_t keys, PairFlags flags, float* out);

private:
    std::int64_t cols() const { return padded_to_vectors(count_); }
    void forget();
    void note_plain_rows();
    PackedRows& floats();
    const float* float_columns();
    const std::uint32_t* pair_columns();
    const std::uint32_t* paired_rows();
    const std::uint32_t* rows_as_pairs() const {
        return reinterpret_cast<const std::uint32_t*>(halves_.data());
    }
    void split();
    PairProduct product_of_keys(std::int64_t begin, std::int64_t rows, TileRows& keys,
                                std::int64_t columns, float factor, float* out);
    PairProduct sum_over_keys(const TileWeights& weights, std::int64_t rows, std::int64_t keys,
                              float* out);
    void add_rest_over_keys(TileWeights& weights, std::int64_t rows, std::int64_t keys, float* out);
    template <class Add>
    void add_in_fp32(TileWeights& weights, const Add& add);

    const AttentionKernels& kernels_;
    bool as_pairs_;
    std::int64_t count_ = 0;
    bool all_plain_ = true, has_floats_ = false, has_columns_ = false, has_pair_columns_ = false,
         has_paired_rows_ = false, is_split_ = false;
    PackedRows packed_;
    AlignedBuffer<std::uint16_t> halves_;
    AlignedBuffer<std::uint32_t> pair_columns_, paired_rows_;
    std::vector<std::uint8_t> row_is_plain_;
    std::vector<float> columns_;
    std::vector<float> rest_;  // finite elements that are not plain
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_FLASH_ATTENTION_OPERAND_H
