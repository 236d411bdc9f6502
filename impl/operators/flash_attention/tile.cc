#include "impl/operators/flash_attention/tile.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attncheck::impl {
namespace {

constexpr std::int64_t kSlack = 16;  // store kernels read whole vectors of a row's last channels

}  // namespace

PackedRows::PackedRows(std::int64_t max_rows, std::int64_t dim)
    : dim_(dim),
      width_(padded_to_vectors(dim)),
      rows_(padded_to_vectors(max_rows) * width_ + kSlack) {}

void PackedRows::load(const RowView& view, const RowView& rope, std::int64_t b, std::int64_t head,
                      std::int64_t position, std::int64_t count, const AttentionKernels& kernels) {
    count_ = count;
    aside_.clear();
    float* to = rows_.data();
    for (std::int64_t r = 0; r < count; ++r, to += width_) {
        view.read(view.offset(b, head, position + r), to, kernels);
        if (rope.dim() > 0) rope.read(rope.offset(b, head, position + r), to + view.dim(), kernels);
        std::fill(to + dim_, to + width_, 0.0f);
    }
    std::fill(to, rows_.data() + padded_to_vectors(count) * width_, 0.0f);
}

void PackedRows::load_halves(const std::uint16_t* rows, std::int64_t count, HalfFormat format,
                             const AttentionKernels& kernels) {
    count_ = count;
    aside_.clear();
    const std::int64_t size = count * width_;
    kernels.widen_row[static_cast<int>(format)](rows, rows_.data(), size);
    std::fill(rows_.data() + size, rows_.data() + padded_to_vectors(count) * width_, 0.0f);
}

void PackedRows::transpose(float* to, const AttentionKernels& kernels) const {
    // Words, whatever they stand for; no arithmetic.
    kernels.transpose_words({reinterpret_cast<const std::uint32_t*>(rows_.data()), width_,
                             padded_to_vectors(count_), dim_, reinterpret_cast<std::uint32_t*>(to),
                             kFlashTileKeys});
}

void PackedRows::set_aside_non_finite(const AttentionKernels& kernels) {
    const std::int64_t size = count_ * width_;
    if (kernels.all_finite(rows_.data(), size)) return;
    finite_.assign(rows_.data(), rows_.data() + size);
    for (std::int64_t i = 0; i < size; ++i) {
        float& value = finite_[static_cast<std::size_t>(i)];
        if (std::isfinite(value)) continue;
        aside_.push_back({i / width_, i % width_, value});
        value = 0.0f;
    }
}

void PackedRows::add_sum_over_keys(const float* left, std::int64_t rows, std::int64_t keys,
                                   PairFlags flags, float* out,
                                   const AttentionKernels& kernels) const {
    kernels.float_product(
        {left, kFlashTileKeys, rows, operand(), width_, keys, width_, true, out, width_});
    add_aside_over_keys(left, rows, keys, flags, out);
}

void PackedRows::add_aside_over_keys(const float* left, std::int64_t rows, std::int64_t keys,
                                     PairFlags flags, float* out) const {
    for (const Element& e : aside_) {
        if (e.row >= keys) continue;
        for (std::int64_t r = 0; r < rows; ++r) {
            if (!flags.counts(r, e.row)) continue;
            out[r * width_ + e.channel] += left[r * kFlashTileKeys + e.row] * e.value;
        }
    }
}

void PackedRows::add_sum_over_rows(const float* left, std::int64_t begin, std::int64_t rows,
                                   std::int64_t keys, PairFlags flags, float* out,
                                   const AttentionKernels& kernels) const {
    kernels.transposed_product({left, kFlashTileKeys, keys, operand() + begin * width_, width_,
                                rows, width_, out, width_});
    add_aside_over_rows(left, begin, rows, keys, flags, out);
}

void PackedRows::add_aside_over_rows(const float* left, std::int64_t begin, std::int64_t rows,
                                     std::int64_t keys, PairFlags flags, float* out) const {
    for (const Element& e : aside_) {
        const std::int64_t row = e.row - begin;
        if (row < 0 || row >= rows) continue;
        for (std::int64_t key = 0; key < keys; ++key) {
            if (!flags.counts(row, key)) continue;
            out[key * width_ + e.channel] += left[row * kFlashTileKeys + key] * e.value;
        }
    }
}

PairTile::PairTile(const TilePlan& plan, std::int64_t max_rows)
    : plan_(plan),
      seen_(max_rows * kFlashTileKeys),
      kept_(plan.has_dropout() ? max_rows * kFlashTileKeys : 0) {}

void PairTile::start(const FlashTile& tile) {
    tile_ = tile;
    sees_all_ = plan_.sees_all(tile);
    if (!sees_all_) plan_.mark_seen(tile, seen_.data());
    if (plan_.has_dropout()) plan_.mark_kept(tile, kept_.data());
}

void PairTile::finish_logits(float* products, float* slopes) const {
    if (plan_.changes_products()) plan_.finish_products(tile_, products, slopes);
    fill_hidden(products, -std::numeric_limits<float>::infinity());
}

void PairTile::fill_hidden(float* matrix, float value) const {
    if (sees_all_) return;
    const std::uint8_t* seen = seen_.data();
    for (std::int64_t r = 0; r < tile_.rows; ++r) {
        for (std::int64_t k = 0; k < tile_.cols(); ++k) {
            const std::int64_t at = r * kFlashTileKeys + k;
            matrix[at] = seen[at] != 0 ? matrix[at] : value;
        }
    }
}

void PairTile::drop(float* matrix, float factor) const {
    if (!plan_.has_dropout()) return;
    const std::uint8_t* kept = kept_.data();
    for (std::int64_t r = 0; r < tile_.rows; ++r) {
        for (std::int64_t k = 0; k < tile_.cols(); ++k) {
            const std::int64_t at = r * kFlashTileKeys + k;
            matrix[at] = kept[at] != 0 ? matrix[at] * factor : 0.0f;
        }
    }
}

void PairTile::note_rows_with_keys(std::uint8_t* has_key) const {
    const std::uint8_t* seen = seen_.data();
    for (std::int64_t r = 0; r < tile_.rows; ++r, seen += kFlashTileKeys) {
        if (has_key[r] != 0) continue;
        has_key[r] = sees_all_ || std::any_of(seen, seen + tile_.keys,
                                              [](std::uint8_t flag) { return flag != 0; });
    }
}

void PairTile::note_keys_with_rows(std::uint8_t* has_row) const {
    if (sees_all_) {
        std::fill_n(has_row, tile_.keys, std::uint8_t{1});
        return;
    }
    const std::uint8_t* seen = seen_.data();
    for (std::int64_t r = 0; r < tile_.rows; ++r, seen += kFlashTileKeys) {
        for (std::int64_t k = 0; k < tile_.keys; ++k) has_row[k] |= seen[k];
    }
}

}  // namespace attncheck::impl
