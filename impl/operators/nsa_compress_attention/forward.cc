#include "impl/operators/nsa_compress_attention/nsa_compress_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "impl/operators/flash_attention/tile.h"
#include "impl/operators/nsa_compress_attention/plan.h"
#include "impl/runtime/thread_pool.h"

namespace attncheck::impl {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct CompressAttentionProblem {
    CompressAttentionPlan plan;
    const AttentionKernels& kernels;
    int format;
    StridedRows<const std::uint16_t> key;
    RowView query, value, no_rope, output;

    CompressAttentionProblem(const attncheck_nsa_compress_attention_args& args,
                             const AttentionKernels& table)
        : plan(args),
          kernels(table),
          format(static_cast<int>(half_format(args.query))),
          key(input_rows(args.key)),
          query(args.query, flash_axes(FlashLayout::kTnd), plan.head_dim()),
          value(args.value, flash_axes(FlashLayout::kTnd), plan.value_dim()),
          no_rope(args.value, flash_axes(FlashLayout::kTnd), 0),
          output(args.attention_out, flash_axes(FlashLayout::kTnd), plan.value_dim()) {}
};

// Some queries of one sequence and kv head: row q * G + g is head g of query q. The probabilities
// of all keys stay, because the scores need them; so the softmax takes whole rows at once and
// nothing is rescaled.
class CompressAttentionUnit {
public:
    CompressAttentionUnit(const CompressAttentionProblem& problem, const CompressedQueries& queries)
        : problem_(problem),
          plan_(problem.plan),
          kernels_(problem.kernels),
          queries_(queries),
          group_size_(plan_.group_size()),
          rows_(queries.num_queries * group_size_),
          keys_(queries.num_keys()),
          cols_(padded_to_vectors(keys_)),
          query_width_(padded_to_vectors(plan_.head_dim())),
          query_(rows_ * query_width_),
          panels_(kFlashTileKeys * plan_.head_dim()),
          value_(kFlashTileKeys, plan_.value_dim()),
          probs_(rows_ * cols_),
          sums_(rows_ * value_.width()),
          group_probs_(cols_),
          tile_probs_(rows_ * kFlashTileKeys),
          seen_(plan_.has_atten_mask() ? queries.num_queries * cols_ : 0),
          tile_seen_(plan_.has_atten_mask() ? rows_ * kFlashTileKeys : 0),
          has_key_(static_cast<std::size_t>(queries.num_queries), keys_ > 0 ? 1 : 0),
          row_max_(static_cast<std::size_t>(rows_), -kInfinity),
          row_sum_(static_cast<std::size_t>(rows_), 0.0f) {}

    void run() {
        mark_seen();
        compute_logits();
        std::vector<float> rescale(static_cast<std::size_t>(rows_));
        kernels_.softmax_tile({probs_.data(), cols_, rows_, cols_, 1.0f, row_max_.data(),
                               row_sum_.data(), rescale.data()});
        select_blocks();
        add_values();
        const auto finite = [](float sum) { return std::isfinite(sum); };
        if (!std::all_of(sums_.data(), sums_.data() + rows_ * value_.width(), finite))
            repair_overflow();
        write_rows();
    }

private:
    void mark_seen() {
        if (!plan_.has_atten_mask()) return;
        for (std::int64_t q = 0; q < queries_.num_queries; ++q) {
            std::uint8_t* seen = seen_.data() + q * cols_;
            plan_.mark_seen(queries_.query_begin + q, keys_, seen);
            std::fill(seen + keys_, seen + cols_, std::uint8_t{0});
            has_key_[static_cast<std::size_t>(q)] = has_seen(seen, keys_) ? 1 : 0;
        }
    }

    static bool has_seen(const std::uint8_t* seen, std::int64_t count) {
        return std::memchr(seen, 1, static_cast<std::size_t>(count)) != nullptr;
    }
    static bool has_hidden(const std::uint8_t* seen, std::int64_t count) {
        return std::memchr(seen, 0, static_cast<std::size_t>(count)) != nullptr;
    }

    // A tile that no query sees is neither read nor multiplied.
    bool is_seen(std::int64_t key_begin, std::int64_t count) const {
        if (!plan_.has_atten_mask()) return true;
        for (std::int64_t q = 0; q < queries_.num_queries; ++q)
            if (has_seen(seen_.data() + q * cols_ + key_begin, count)) return true;
        return false;
    }

    void compute_logits() {
        const std::int64_t head_begin = queries_.kv_head * group_size_;
        float* to = query_.data();
        for (std::int64_t row = 0; row < rows_; ++row, to += query_width_) {
            problem_.query.read(problem_.query.offset(0, head_begin + row % group_size_,
                                                      queries_.token(row / group_size_)),
                                to, kernels_);
        }
        for (std::int64_t begin = 0; begin < keys_; begin += kFlashTileKeys) {
            const std::int64_t count = std::min(kFlashTileKeys, keys_ - begin),
                               cols = padded_to_vectors(count);
            if (is_seen(begin, count)) {
                pack_keys(begin, count);
                kernels_.panel_product[problem_.format](
                    {query_.data(), query_width_, rows_, panels_.data(), plan_.head_dim(), cols,
                     plan_.scale(), probs_.data() + begin, cols_});
            }
            hide_keys(begin, cols);
        }
        for (std::int64_t row = 0; row < rows_; ++row)
            std::fill(probs_.data() + row * cols_ + keys_, probs_.data() + (row + 1) * cols_,
                      -kInfinity);
    }

    // Panels [cols / 16, D, 16] of keys from `begin` on, zeros in place of keys beyond the tile.
    void pack_keys(std::int64_t begin, std::int64_t count) {
        const std::int64_t dim = plan_.head_dim(), stride = problem_.key.dim_stride;
        std::uint16_t* to = panels_.data();
        for (std::int64_t group = 0; group < count; group += kPanelCols, to += dim * kPanelCols) {
            const std::int64_t present = std::min(kPanelCols, count - group);
            if (present < kPanelCols) std::fill_n(to, dim * kPanelCols, std::uint16_t{0});
            const std::uint16_t* rows[kPanelCols];
            for (std::int64_t key = 0; key < present; ++key)
                rows[key] = problem_.key.at(queries_.sequence.key_begin + begin + group + key,
                                            queries_.kv_head);
            if (present == kPanelCols && stride == 1) {
                for (std::int64_t c = 0; c < dim; ++c)
                    for (std::int64_t key = 0; key < kPanelCols; ++key)
                        to[c * kPanelCols + key] = rows[key][c];
                continue;
            }
            for (std::int64_t c = 0; c < dim; ++c)
                for (std::int64_t key = 0; key < present; ++key)
                    to[c * kPanelCols + key] = rows[key][c * stride];
        }
    }

    // -infinity for hidden pairs, whatever was there.
    void hide_keys(std::int64_t begin, std::int64_t cols) {
        if (!plan_.has_atten_mask()) return;
        for (std::int64_t q = 0; q < queries_.num_queries; ++q) {
            const std::uint8_t* seen = seen_.data() + q * cols_ + begin;
            if (!has_hidden(seen, cols)) continue;
            for (std::int64_t row = q * group_size_; row < (q + 1) * group_size_; ++row) {
                float* logits = probs_.data() + row * cols_ + begin;
                for (std::int64_t key = 0; key < cols; ++key)
                    logits[key] = seen[key] != 0 ? logits[key] : -kInfinity;
            }
        }
    }

    // Block scores are linear in the probabilities, so the heads are added first.
    void select_blocks() {
        const std::int64_t num_blocks = plan_.geometry().num_selected(keys_),
                           count = plan_.args().select_block_count,
                           stride = plan_.args().topk_indices.strides[2];
        std::vector<float> inverse_sums(static_cast<std::size_t>(group_size_)),
            scores(static_cast<std::size_t>(num_blocks));
        std::vector<std::int32_t> blocks(static_cast<std::size_t>(count));
        for (std::int64_t q = 0; q < queries_.num_queries; ++q) {
            std::fill_n(group_probs_.data(), cols_, 0.0f);
            if (has_key_[static_cast<std::size_t>(q)] != 0) {
                const std::int64_t row = q * group_size_;
                for (std::int64_t g = 0; g < group_size_; ++g)
                    inverse_sums[static_cast<std::size_t>(g)] = 1.0f / sum_of_row(row + g);
                kernels_.float_product({inverse_sums.data(), group_size_, 1,
                                        probs_.data() + row * cols_, cols_, group_size_, cols_,
                                        true, group_probs_.data(), cols_});
            }
            block_scores(group_probs_.data(), keys_, plan_.geometry(), scores.data());
            plan_.force_blocks(queries_.query_begin + q, num_blocks, scores.data());
            top_blocks(scores.data(), num_blocks, count, blocks.data());
            std::int32_t* to = plan_.topk_row(queries_.token(q), queries_.kv_head);
            for (std::int64_t i = 0; i < count; ++i)
                to[i * stride] = blocks[static_cast<std::size_t>(i)];
        }
    }

    // sums := sum_i exp(S_i - m) v_i of the visible keys.
    void add_values() {
        std::fill_n(sums_.data(), rows_ * value_.width(), 0.0f);
        for (std::int64_t begin = 0; begin < keys_; begin += kFlashTileKeys) {
            const std::int64_t count = std::min(kFlashTileKeys, keys_ - begin);
            if (!is_seen(begin, count)) continue;
            value_.load(problem_.value, problem_.no_rope, 0, queries_.kv_head,
                        queries_.sequence.key_begin + begin, count, kernels_);
            value_.set_aside_non_finite(kernels_);
            for (std::int64_t row = 0; row < rows_; ++row)
                std::copy_n(probs_.data() + row * cols_ + begin, count,
                            tile_probs_.data() + row * kFlashTileKeys);
            value_.add_sum_over_keys(tile_probs_.data(), rows_, count, tile_flags(begin, count),
                                     sums_.data(), kernels_);
        }
    }

    PairFlags tile_flags(std::int64_t begin, std::int64_t count) {
        if (!plan_.has_atten_mask()) return {};
        for (std::int64_t row = 0; row < rows_; ++row)
            std::copy_n(seen_.data() + row / group_size_ * cols_ + begin, count,
                        tile_seen_.data() + row * kFlashTileKeys);
        return {tile_seen_.data(), nullptr};
    }

    // Sums before the division may leave fp32 although the mean of the values does not: smaller
    // probabilities decide which of those elements are really not finite. Elements that were
    // finite stay, so that what underflows here is not missing there. Rows become quotients.
    void repair_overflow() {
        constexpr float kSmallFactor = 0x1p-14f;  // at most 14000 keys
        const std::int64_t width = value_.width();
        const std::vector<float> first(sums_.data(), sums_.data() + rows_ * width);
        kernels_.scale_row(probs_.data(), kSmallFactor, rows_ * cols_);
        add_values();
        for (std::int64_t row = 0; row < rows_; ++row) {
            for (std::int64_t c = 0; c < width; ++c) {
                const float before = first[static_cast<std::size_t>(row * width + c)];
                float& sum = sums_.data()[row * width + c];
                sum = std::isfinite(before) ? before / sum_of_row(row)
                                            : sum / (sum_of_row(row) * kSmallFactor);
            }
        }
        sums_are_quotients_ = true;
    }

    // exp(-inf + inf) where all visible logits are -inf.
    float sum_of_row(std::int64_t row) const {
        return row_max_[static_cast<std::size_t>(row)] == -kInfinity
                   ? std::numeric_limits<float>::quiet_NaN()
                   : row_sum_[static_cast<std::size_t>(row)];
    }

    void write_rows() {
        constexpr float kMax = std::numeric_limits<float>::max();
        for (std::int64_t row = 0; row < rows_; ++row) {
            const std::int64_t q = row / group_size_,
                               head = queries_.kv_head * group_size_ + row % group_size_,
                               at = problem_.output.offset(0, head, queries_.token(q));
            float row_max = -kMax, row_sum = kMax;
            if (has_key_[static_cast<std::size_t>(q)] == 0) {
                problem_.output.write_zeros(at);
            } else {
                row_max = row_max_[static_cast<std::size_t>(row)];
                row_sum = sum_of_row(row);
                problem_.output.write_quotient(at, sums_.data() + row * value_.width(),
                                               sums_are_quotients_ ? 1.0f : row_sum, kernels_);
            }
            plan_.write_statistics(queries_.sequence, queries_.query_begin + q, head, row_max,
                                   row_sum);
        }
    }

    const CompressAttentionProblem& problem_;
    const CompressAttentionPlan& plan_;
    const AttentionKernels& kernels_;
    CompressedQueries queries_;
    std::int64_t group_size_, rows_, keys_, cols_, query_width_;
    AlignedBuffer<float> query_;
    AlignedBuffer<std::uint16_t> panels_;
    PackedRows value_;
    AlignedBuffer<float> probs_, sums_, group_probs_, tile_probs_;
    AlignedBuffer<std::uint8_t> seen_, tile_seen_;
    std::vector<std::uint8_t> has_key_;
    std::vector<float> row_max_, row_sum_;
    bool sums_are_quotients_ = false;
};

}  // namespace

void nsa_compress_attention(const attncheck_nsa_compress_attention_args& args,
                            const AttentionKernels& kernels) {
    const CompressAttentionProblem problem(args, kernels);
    parallel_for(problem.plan.num_units(), [&](std::int64_t unit) {
        CompressAttentionUnit(problem, problem.plan.unit(unit)).run();
    });
    for (std::int64_t token = problem.plan.num_tokens_in_sequences(); token < args.query.shape[0];
         ++token)
        problem.plan.write_zeros_beyond(token);
}

}  // namespace attncheck::impl
