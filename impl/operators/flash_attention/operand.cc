#include "impl/operators/flash_attention/operand.h"

#include <algorithm>

namespace attncheck::impl {
namespace {

constexpr std::int64_t kPairs = 2;

// Rows rounded up so that 16 x 16 squares can be read.
std::int64_t padded_elements(std::int64_t rows, std::int64_t width) {
    return padded_to_vectors(rows) * width;
}

}  // namespace

TileWeights::TileWeights(std::int64_t max_rows, const AttentionKernels& kernels, bool as_pairs)
    : kernels_(kernels),
      as_pairs_(as_pairs),
      weights_(max_rows * kFlashTileKeys),
      halves_(as_pairs ? max_rows * kFlashTileKeys : 0),
      row_pairs_(as_pairs ? (max_rows + 1) / kPairs * kFlashTileKeys : 0) {}

SoftmaxTile TileWeights::tile_of(const SoftmaxStep& step) const {
    return {weights_.data(),  kFlashTileKeys, step.rows,    step.cols,
            step.prob_factor, step.row_max,   step.row_sum, step.rescale};
}

void TileWeights::softmax(const SoftmaxStep& step) {
    if (as_pairs_) {
        has_lost_ = kernels_.bf16_dot->softmax_tile(tile_of(step), halves_.data());
    } else {
        kernels_.softmax_tile(tile_of(step));
    }
}

void TileWeights::gradient(TileWeights& probs, TileWeights& score_grads, const GradientStep& step) {
    const AttentionKernels& kernels = probs.kernels_;
    const auto gradient_tile =
        probs.as_pairs_ ? kernels.bf16_dot->gradient_tile : kernels.gradient_tile;
    gradient_tile({probs.data(), score_grads.data(), kFlashTileKeys, step.rows, step.cols,
                   step.row_max, step.row_sum, step.delta});
}

void TileWeights::round_for_keys(std::int64_t rows, std::int64_t cols) {
    if (!as_pairs_) return;
    has_lost_ = kernels_.bf16_dot->narrow_rows({weights_.data(), kFlashTileKeys, rows, cols},
                                               halves_.data());
}

void TileWeights::round_for_rows(std::int64_t rows, std::int64_t cols) {
    if (!as_pairs_) return;
    has_lost_ = kernels_.bf16_dot->narrow_row_pairs({weights_.data(), kFlashTileKeys, rows, cols},
                                                    row_pairs_.data());
}

void TileWeights::split(std::int64_t rows, std::int64_t cols) {
    plain_.clear();
    lost_.clear();
    if (!has_lost_) return;
    plain_.resize(static_cast<std::size_t>(rows * kFlashTileKeys));
    lost_.resize(plain_.size());
    kernels_.bf16_dot->split_weights({weights_.data(), kFlashTileKeys, rows, cols}, plain_.data(),
                                     lost_.data());
}

TileRows::TileRows(std::int64_t max_rows, std::int64_t dim, const AttentionKernels& kernels,
                   bool as_pairs)
    : kernels_(kernels),
      as_pairs_(as_pairs),
      packed_(max_rows, dim),
      halves_(as_pairs ? padded_elements(max_rows, width()) : 0),
      pair_columns_(as_pairs ? width() / kPairs * kFlashTileKeys : 0),
      paired_rows_(as_pairs ? padded_elements(max_rows, width()) / kPairs : 0),
      row_is_plain_(static_cast<std::size_t>(max_rows)) {}

void TileRows::forget() {
    has_floats_ = has_columns_ = has_pair_columns_ = has_paired_rows_ = is_split_ = false;
    all_plain_ = true;
}

// After the rows; zeros fill the last square.
void TileRows::note_plain_rows() {
    std::uint16_t* row = halves_.data();
    for (std::int64_t r = 0; r < count_; ++r, row += width()) {
        const bool plain = kernels_.bf16_dot->all_plain(row, width());
        row_is_plain_[static_cast<std::size_t>(r)] = plain ? 1 : 0;
        all_plain_ = all_plain_ && plain;
    }
    std::fill(row, halves_.data() + padded_elements(count_, width()), std::uint16_t{0});
}

void TileRows::load(const RowView& view, const RowView& rope, std::int64_t b, std::int64_t head,
                    std::int64_t position, std::int64_t count) {
    count_ = count;
    forget();
    if (!as_pairs_) {
        packed_.load(view, rope, b, head, position, count, kernels_);
        packed_.set_aside_non_finite(kernels_);
        has_floats_ = true;
        return;
    }
    std::uint16_t* to = halves_.data();
    for (std::int64_t r = 0; r < count; ++r, to += width()) {
        view.read_halves(view.offset(b, head, position + r), to);
        if (rope.dim() > 0) rope.read_halves(rope.offset(b, head, position + r), to + view.dim());
        std::fill(to + packed_.dim(), to + width(), std::uint16_t{0});
    }
    note_plain_rows();
}

void TileRows::load_halves(const std::uint16_t* rows, std::int64_t count, HalfFormat format) {
    count_ = count;
    forget();
    if (!as_pairs_) {
        packed_.load_halves(rows, count, format, kernels_);
        packed_.set_aside_non_finite(kernels_);
        has_floats_ = true;
        return;
    }
    std::copy_n(rows, count * width(), halves_.data());
    note_plain_rows();
}

PackedRows& TileRows::floats() {
    if (!has_floats_) {
        packed_.load_halves(halves_.data(), count_, HalfFormat::kBf16, kernels_);
        packed_.set_aside_non_finite(kernels_);
        has_floats_ = true;
    }
    return packed_;
}

const float* TileRows::float_columns() {
    if (!has_columns_) {
        columns_.resize(static_cast<std::size_t>(packed_.dim() * kFlashTileKeys));
        floats().transpose(columns_.data(), kernels_);
        has_columns_ = true;
    }
    return columns_.data();
}

const std::uint32_t* TileRows::pair_columns() {
    if (!has_pair_columns_) {
        kernels_.transpose_words({rows_as_pairs(), width() / kPairs, cols(), width() / kPairs,
                                  pair_columns_.data(), kFlashTileKeys});
        has_pair_columns_ = true;
    }
    return pair_columns_.data();
}

const std::uint32_t* TileRows::paired_rows() {
    if (!has_paired_rows_) {
        const std::int64_t rows = cols();
        const Bf16DotKernels& kernels = *kernels_.bf16_dot;
        if (all_plain_) {
            kernels.pair_rows(halves_.data(), rows, width(), paired_rows_.data());
        } else {
            std::vector<std::uint16_t> kept(static_cast<std::size_t>(rows * width()));
            kernels.keep_plain(halves_.data(), kept.data(), rows * width());
            kernels.pair_rows(kept.data(), rows, width(), paired_rows_.data());
        }
        has_paired_rows_ = true;
    }
    return paired_rows_.data();
}

void TileRows::split() {
    if (is_split_) return;
    const std::int64_t size = cols() * width();
    std::vector<std::uint16_t> kept(static_cast<std::size_t>(size));
    kernels_.bf16_dot->keep_plain(halves_.data(), kept.data(), size);
    rest_.assign(kept.size(), 0.0f);
    const float* finite = floats().operand();
    for (std::int64_t i = 0; i < count_ * width(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (kept[at] == 0) rest_[at] = finite[i];
    }
    is_split_ = true;
}

PairProduct TileRows::product_of_keys(std::int64_t begin, std::int64_t rows, TileRows& keys,
                                      std::int64_t columns, float factor, float* out) {
    const std::int64_t pairs = width() / kPairs;
    return {rows_as_pairs() + begin * pairs,
            pairs,
            1,
            rows,
            keys.pair_columns(),
            kFlashTileKeys,
            pairs,
            columns,
            false,
            factor,
            out,
            kFlashTileKeys};
}

PairProduct TileRows::sum_over_keys(const TileWeights& weights, std::int64_t rows,
                                    std::int64_t keys, float* out) {
    return {weights.pairs_of_keys(),
            kFlashTileKeys / kPairs,
            1,
            rows,
            paired_rows(),
            width(),
            padded_to_vectors(keys) / kPairs,
            width(),
            true,
            1.0f / kWeightScale,
            out,
            width()};
}

bool TileRows::attend(std::int64_t begin, TileRows& keys, TileRows& values, std::int64_t num_keys,
                      float factor, TileWeights& weights, const SoftmaxStep& step, float* out) {
    if (!as_pairs_ || !all_plain_ || !keys.all_plain_ || !values.all_plain_) return false;
    weights.has_lost_ = kernels_.bf16_dot->attend(
        {product_of_keys(begin, step.rows, keys, step.cols, factor, weights.data()),
         weights.tile_of(step), weights.halves_.data(),
         values.sum_over_keys(weights, step.rows, num_keys, out)});
    values.add_rest_over_keys(weights, step.rows, num_keys, out);
    return true;
}

void TileRows::multiply(std::int64_t begin, std::int64_t rows, TileRows& keys,
                        std::int64_t num_keys, float factor, float* out) {
    const std::int64_t columns = padded_to_vectors(num_keys);
    const auto multiply_floats = [&](float* to) {
        kernels_.scaled_product({floats().row(begin), width(), rows, keys.float_columns(),
                                 kFlashTileKeys, packed_.dim(), columns, factor, to,
                                 kFlashTileKeys});
    };
    if (!as_pairs_) return multiply_floats(out);
    kernels_.bf16_dot->product(product_of_keys(begin, rows, keys, columns, factor, out));
    if (all_plain_ && keys.all_plain_) return;
    std::vector<float> exact(static_cast<std::size_t>(rows * kFlashTileKeys));
    multiply_floats(exact.data());
    for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t k = 0; k < num_keys; ++k) {
            const auto at = static_cast<std::size_t>(r * kFlashTileKeys + k);
            if (row_is_plain_[static_cast<std::size_t>(begin + r)] == 0 ||
                keys.row_is_plain_[static_cast<std::size_t>(k)] == 0)
                out[at] = exact[at];
        }
    }
}

// What the product of pairs has left out: weights that are not plain with all finite elements, and
// plain weights with the elements that are not. A weight that is not finite meets no 0 that stands
// for an element of the other kind.
template <class Add>
void TileRows::add_in_fp32(TileWeights& weights, const Add& add) {
    const bool has_lost = !weights.lost_.empty();
    if (has_lost) add(weights.lost_.data(), floats().operand());
    if (all_plain_) return;
    split();
    add(has_lost ? weights.plain_.data() : weights.data(), rest_.data());
}

void TileRows::add_rest_over_keys(TileWeights& weights, std::int64_t rows, std::int64_t keys,
                                  float* out) {
    weights.split(rows, padded_to_vectors(keys));
    add_in_fp32(weights, [&](const float* left, const float* right) {
        kernels_.float_product(
            {left, kFlashTileKeys, rows, right, width(), keys, width(), true, out, width()});
    });
}

void TileRows::add_sum_over_keys(TileWeights& weights, std::int64_t rows, std::int64_t keys,
                                 PairFlags flags, float* out) {
    if (!as_pairs_)
        return packed_.add_sum_over_keys(weights.data(), rows, keys, flags, out, kernels_);
    kernels_.bf16_dot->product(sum_over_keys(weights, rows, keys, out));
    add_rest_over_keys(weights, rows, keys, out);
    if (!all_plain_) packed_.add_aside_over_keys(weights.data(), rows, keys, flags, out);
}

void TileRows::add_sum_over_rows(TileWeights& weights, std::int64_t begin, std::int64_t rows,
                                 std::int64_t keys, PairFlags flags, float* out) {
    if (!as_pairs_) {
        return packed_.add_sum_over_rows(weights.data(), begin, rows, keys, flags, out, kernels_);
    }
    kernels_.bf16_dot->product(
        {weights.pairs_of_rows(), 1, kFlashTileKeys, keys, paired_rows() + begin / kPairs * width(),
         width(), (rows + 1) / kPairs, width(), true, 1.0f / kWeightScale, out, width()});
    weights.split(rows, padded_to_vectors(keys));
    add_in_fp32(weights, [&](const float* left, const float* right) {
        kernels_.transposed_product({left, kFlashTileKeys, keys, right + begin * width(), width(),
                                     rows, width(), out, width()});
    });
    if (!all_plain_) packed_.add_aside_over_rows(weights.data(), begin, rows, keys, flags, out);
}

}  // namespace attncheck::impl
