#include "impl/operators/selection/selected_operands.h"

#include <algorithm>

#include "impl/runtime/thread_pool.h"

namespace attncheck::impl {
namespace {

constexpr std::int64_t kPairs = 2;

// visit(head, first key token) for every listed block, on all threads.
template <class Visit>
void for_each_listed_block(const KeySelection& selection, const std::vector<std::uint8_t>& listed,
                           const Visit& visit) {
    constexpr std::int64_t kBlocksPerUnit = 16;  // about 100 us of copying
    const std::int64_t total = static_cast<std::int64_t>(listed.size()),
                       num_blocks = selection.num_blocks();
    parallel_for((total + kBlocksPerUnit - 1) / kBlocksPerUnit, [&](std::int64_t unit) {
        const std::int64_t end = std::min(total, (unit + 1) * kBlocksPerUnit);
        for (std::int64_t i = unit * kBlocksPerUnit; i < end; ++i) {
            if (listed[static_cast<std::size_t>(i)] == 0) continue;
            visit(i / num_blocks, i % num_blocks * selection.block());
        }
    });
}

}  // namespace

bool all_plain(const std::uint16_t* elements, std::int64_t count, HalfFormat format,
               const AttentionKernels& kernels, bool as_pairs) {
    if (as_pairs) return kernels.bf16_dot->all_plain(elements, count);
    const int exponent = format == HalfFormat::kFp16 ? 0x7c00 : 0x7f80;
    int not_finite = 0;
    for (std::int64_t i = 0; i < count; ++i)
        not_finite |= (elements[i] & exponent) == exponent ? 1 : 0;
    return not_finite == 0;
}

GatheredRows::GatheredRows(std::int64_t dim, HalfFormat format, const AttentionKernels& kernels,
                           bool as_pairs)
    : kernels_(kernels),
      as_pairs_(as_pairs),
      format_(static_cast<int>(format)),
      dim_(dim),
      floats_(as_pairs ? 0 : kSelectedTileRows * dim),
      halves_(as_pairs ? kSelectedTileRows * dim : 0),
      row_pairs_(as_pairs ? kSelectedTileRows / kPairs * dim : 0) {}

void GatheredRows::gather(const SelectedTile& tile, const std::uint16_t* from) {
    count_ = tile.rows();
    if (!as_pairs_) {
        tile.for_each_query(dim_, [&](std::int64_t source, std::int64_t target, std::int64_t size) {
            kernels_.widen_row[format_](from + source, floats_.data() + target, size);
        });
        return;
    }
    tile.gather(from, dim_, halves_.data());
    if (count_ % kPairs != 0) std::fill_n(halves_.data() + count_ * dim_, dim_, std::uint16_t{0});
}

void GatheredRows::add_sum_over_rows(const TileWeights& weights, std::int64_t keys, float* out) {
    if (!as_pairs_) {
        kernels_.transposed_product(
            {weights.data(), kFlashTileKeys, keys, floats_.data(), dim_, count_, dim_, out, dim_});
        return;
    }
    const std::int64_t pairs = (count_ + 1) / kPairs;
    kernels_.bf16_dot->pair_rows(halves_.data(), pairs * kPairs, dim_, row_pairs_.data());
    kernels_.bf16_dot->product({weights.pairs_of_rows(), 1, kFlashTileKeys, keys, row_pairs_.data(),
                                dim_, pairs, dim_, true, 1.0f / kWeightScale, out, dim_});
}

SelectedBlocks::SelectedBlocks(const attncheck_tensor& tensor, const KeySelection& selection,
                               const std::vector<std::uint8_t>& listed,
                               const AttentionKernels& kernels, Forms forms)
    : kernels_(kernels),
      as_pairs_(takes_pairs(tensor.dtype, kernels)),
      format_(half_format(tensor)),
      num_keys_(selection.num_keys()),
      dim_(tensor.shape[2]),
      block_(selection.block()),
      words_(as_pairs_ ? dim_ / kPairs : dim_),
      is_plain_(listed.size()),
      columns_((forms & kColumns) != 0 ? selection.num_kv_heads() * num_keys_ * words_ : 0),
      rows_((forms & kRows) != 0 ? selection.num_kv_heads() * num_keys_ * words_ : 0) {
    const StridedRows<const std::uint16_t> from = input_rows(tensor);
    for_each_listed_block(selection, listed, [&](std::int64_t head, std::int64_t token) {
        alignas(64) std::uint16_t halves[kMaxSelectedBlock * kMaxAttentionDim];
        gather(from, {token, block_, head, 1, dim_}, halves);
        if (!all_plain(halves, block_ * dim_, format_, kernels, as_pairs_)) return;
        const std::int64_t row = head * num_keys_ + token;
        is_plain_[static_cast<std::size_t>(row / block_)] = 1;
        pack(halves, row, forms);
    });
}

void SelectedBlocks::pack(const std::uint16_t* halves, std::int64_t first_row, Forms forms) {
    const std::int64_t at = first_row * words_;
    const bool has_rows = (forms & kRows) != 0, has_columns = (forms & kColumns) != 0;
    if (as_pairs_ && has_rows)
        kernels_.bf16_dot->pair_rows(halves, block_, dim_, rows_.data() + at);
    const std::uint32_t* words = reinterpret_cast<const std::uint32_t*>(halves);
    alignas(64) float floats[kMaxSelectedBlock * kMaxAttentionDim];
    if (!as_pairs_) {
        float* to = has_rows ? reinterpret_cast<float*>(rows_.data() + at) : floats;
        kernels_.widen_row[static_cast<int>(format_)](halves, to, block_ * dim_);
        words = reinterpret_cast<const std::uint32_t*>(to);
    }
    // Words, whatever they stand for.
    if (has_columns)
        kernels_.transpose_words({words, words_, block_, words_, columns_.data() + at, block_});
}

void SelectedBlocks::multiply(const GatheredRows& rows, const SelectedTile& tile, float factor,
                              float* out) const {
    const std::uint32_t* columns = columns_.data() + first_row(tile) * words_;
    if (!as_pairs_) {
        kernels_.scaled_product({rows.floats_.data(), dim_, tile.rows(),
                                 reinterpret_cast<const float*>(columns), block_, dim_, tile.cols(),
                                 factor, out, kFlashTileKeys});
        return;
    }
    kernels_.bf16_dot->product({reinterpret_cast<const std::uint32_t*>(rows.halves_.data()), words_,
                                1, tile.rows(), columns, block_, words_, tile.cols(), false, factor,
                                out, kFlashTileKeys});
}

void SelectedBlocks::sum_over_keys(const TileWeights& weights, const SelectedTile& tile,
                                   float* out) const {
    const std::uint32_t* rows = rows_.data() + first_row(tile) * words_;
    if (!as_pairs_) {
        kernels_.float_product({weights.data(), kFlashTileKeys, tile.rows(),
                                reinterpret_cast<const float*>(rows), dim_, tile.cols(), dim_,
                                false, out, dim_});
        return;
    }
    kernels_.bf16_dot->product({weights.pairs_of_keys(), kFlashTileKeys / kPairs, 1, tile.rows(),
                                rows, dim_, tile.cols() / kPairs, dim_, false, 1.0f / kWeightScale,
                                out, dim_});
}

TileOperands::TileOperands(const attncheck_tensor& key, const attncheck_tensor& value,
                           const AttentionKernels& kernels)
    : key_tensor_(input_rows(key)),
      value_tensor_(input_rows(value)),
      format_(half_format(key)),
      query_(kSelectedTileRows, key.shape[2], kernels, takes_pairs(key.dtype, kernels)),
      output_grad_(kSelectedTileRows, value.shape[2], kernels, takes_pairs(key.dtype, kernels)),
      key_(kMaxSelectedBlock, key.shape[2], kernels, takes_pairs(key.dtype, kernels)),
      value_(kMaxSelectedBlock, value.shape[2], kernels, takes_pairs(key.dtype, kernels)),
      seen_(kSelectedTileRows * kFlashTileKeys),
      gathered_(static_cast<std::size_t>(std::max(kSelectedTileRows, kMaxSelectedBlock) *
                                         kMaxAttentionDim)) {}

void TileOperands::start(const SelectedTile& tile, std::int64_t block, const std::uint16_t* query,
                         const std::uint16_t* output_grad) {
    const auto load = [&](TileRows& rows, const std::uint16_t* from) {
        tile.gather(from, rows.width(), gathered_.data());
        rows.load_halves(gathered_.data(), tile.rows(), format_);
    };
    load(query_, query);
    if (output_grad != nullptr) load(output_grad_, output_grad);
    tile.mark_seen(seen_.data());
    if (tile.kv_head() == kv_head_ && tile.key_token() == key_token_) return;
    kv_head_ = tile.kv_head();
    key_token_ = tile.key_token();
    const auto load_block = [&](TileRows& rows, const StridedRows<const std::uint16_t>& from) {
        gather(from, {key_token_, block, kv_head_, 1, rows.width()}, gathered_.data());
        rows.load_halves(gathered_.data(), block, format_);
    };
    load_block(key_, key_tensor_);
    load_block(value_, value_tensor_);
}

}  // namespace attncheck::impl
