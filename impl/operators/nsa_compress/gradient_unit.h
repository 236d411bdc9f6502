#ifndef ATTNCHECK_IMPL_NSA_COMPRESS_GRADIENT_UNIT_H
#define ATTNCHECK_IMPL_NSA_COMPRESS_GRADIENT_UNIT_H

#include <algorithm>
#include <cmath>
#include <cstring>

#include "impl/kernels/bf16_dot_kernels.h"
#include "impl/kernels/nsa_compress_pair_kernels.h"
#include "impl/operators/nsa_compress/plan.h"

/// Gradients of compression for a part of the tokens and heads, which one thread takes (grad.cc cuts
/// the parts).
namespace attncheck::impl {

struct GradientProblem {
    const KernelTable& kernels;
    HalfFormat format;
    StridedRows<const std::uint16_t> output_grad, input;
    StridedRows<std::uint16_t> input_grad;
    const float* weight;                 // [num_heads, block]; null with products of pairs
    const std::uint16_t* weight_halves;  // the same, null without
    WindowGeometry geometry;
    std::int64_t num_tokens, num_rows, num_heads, head_dim;
    bool bypass_cache;
    const CompressPairKernels* pairs;  // null where products are of single numbers
    bool plain_weight;                 // of pairs only
};

// Both gradients of tokens [token_begin, token_end) and a group of heads. dY rows of the open
// windows are widened once (products of pairs: copied) and wait in a ring of max_open() rows; the
// dW of these tokens is a separate partial result.
class GradientUnit {
public:
    GradientUnit(const GradientProblem& problem, std::int64_t head_begin, std::int64_t num_heads)
        : problem_(problem),
          head_begin_(head_begin),
          num_heads_(num_heads),
          row_size_(num_heads * problem.head_dim),
          ring_(ring_bytes()),
          lanes_(num_heads * problem.geometry.block * kLanesPerSum),
          packed_input_(std::max(problem.input.contiguous_dim() ? 0 : kSlabTokens * row_size_,
                                 problem.output_grad.contiguous_dim() ? 0 : row_size_)),
          packed_grad_(problem.input_grad.contiguous_dim() ? 0 : kSlabTokens * row_size_) {
        begin_slabs(slab_, problem.weight);
        begin_slabs(pair_slab_, problem.weight_halves);
        // Behind the ring of halves.
        pair_slab_.grad_pairs = reinterpret_cast<std::uint32_t*>(half_row(0)) +
                                problem.geometry.max_open() * row_size_ / 2;
    }

    // partial: [num_heads, block] of dW.
    void run(SequenceCursor cursor, std::int64_t token_begin, std::int64_t token_end,
             float* partial) {
        exact_ = !problem_.plain_weight;
        run_tokens(cursor, token_begin, token_end);
        reduce_weight_grad(partial);
        if (problem_.pairs == nullptr || all_plain_sums(partial)) return;
        // Something subnormal may have been lost: once more, with the same bits in dX.
        exact_ = true;
        run_tokens(cursor, token_begin, token_end);
        const std::int64_t count = num_heads_ * problem_.geometry.block;
        const AlignedBuffer<float> again(count);
        reduce_weight_grad(again.data());
        for (std::int64_t i = 0; i < count; ++i) {
            if (!is_plain_sum(partial[i])) partial[i] = again.data()[i];
        }
    }

private:
    // What all slabs have in common. `weight` is null for the kind of numbers that is not in use.
    template <class Number>
    void begin_slabs(GradientSlabOf<Number>& slab, const Number* weight) {
        const bool direct_input = problem_.input.contiguous_dim(),
                   direct_grad = problem_.input_grad.contiguous_dim();
        const bool may_ask_once = problem_.pairs != nullptr ||
                                  problem_.geometry.max_open() <= problem_.kernels.most_in_rows;
        const RequestPlan lines(may_ask_once ? problem_.kernels.requests : LineRequests::kTwice,
                                row_size_, 1, tokens_ahead(kBytesAhead, row_size_, 1));
        slab.requests = lines.requests;
        slab.ahead = lines.ahead;
        slab.input_token_stride = direct_input ? problem_.input.row_stride : row_size_;
        slab.input_head_stride = direct_input ? problem_.input.head_stride : problem_.head_dim;
        slab.grad_token_stride = direct_grad ? problem_.input_grad.row_stride : row_size_;
        slab.grad_head_stride = direct_grad ? problem_.input_grad.head_stride : problem_.head_dim;
        slab.num_heads = num_heads_;
        slab.head_dim = problem_.head_dim;
        slab.block = problem_.geometry.block;
        slab.weight = weight == nullptr ? nullptr : weight + head_begin_ * slab.block;
        slab.weight_grad_lanes = lanes_.data();
        slab.bypass_cache = problem_.bypass_cache;
    }

    // `cursor` is at the sequence of token_begin, or done when the tokens lie beyond the last
    // sequence.
    void run_tokens(SequenceCursor cursor, std::int64_t token_begin, std::int64_t token_end) {
        std::memset(lanes_.data(), 0,
                    static_cast<std::size_t>(num_heads_ * problem_.geometry.block * kLanesPerSum) *
                        sizeof(float));
        token_end_ = token_end;
        std::int64_t token = token_begin;
        for (; token < token_end && !cursor.done(); cursor.next()) {
            const std::int64_t end = std::min(token_end - cursor.token_begin, cursor.length());
            const std::int64_t pos = token - cursor.token_begin;
            if (pos < end) run_sequence(cursor, pos, end);
            token = std::max(token, cursor.token_begin + end);
        }
        zero_tokens(token, token_end);
    }

    static bool is_plain_sum(float sum) {
        return std::isfinite(sum) && std::abs(sum) >= kLeastWeightGrad;
    }

    // Of the rows of W that have met a token in a product of pairs.
    bool all_plain_sums(const float* partial) const {
        const std::int64_t block = problem_.geometry.block;
        for (std::int64_t row = 0; row < block; ++row) {
            if (!paired_rows_[row / kSlabTokens]) continue;
            for (std::int64_t head = 0; head < num_heads_; ++head) {
                if (!is_plain_sum(partial[head * block + row])) return false;
            }
        }
        return true;
    }

    // Fixed order of lanes, so fixed bits.
    void reduce_weight_grad(float* partial) const {
        for (std::int64_t i = 0; i < num_heads_ * problem_.geometry.block; ++i) {
            const float* lanes = lanes_.data() + i * kLanesPerSum;
            float half[8];
            for (int lane = 0; lane < 8; ++lane) half[lane] = lanes[lane] + lanes[lane + 8];
            partial[i] = ((half[0] + half[4]) + (half[2] + half[6])) +
                         ((half[1] + half[5]) + (half[3] + half[7]));
        }
    }

    // A slab of the usual four heads of 128; half and twice of it measured the same.
    static constexpr std::int64_t kBytesAhead = 8 << 10;
    // Of dY, where lines are asked for once. Rows that are not asked for cost bf16 0.4 ms of 2.8
    // with an X of 64 MiB (Zen 5); with X asked for twice fp16 takes 1.1 times as long with them.
    static constexpr std::int64_t kRowsAhead = 4;

    // dY rows of open windows in fp32; with products of pairs in bf16, and room for their pairs.
    std::int64_t ring_bytes() const {
        const std::int64_t max_open = problem_.geometry.max_open();
        return problem_.pairs == nullptr
                   ? max_open * row_size_ * 4
                   : max_open * row_size_ * 2 + (max_open + 1) / 2 * row_size_ * 4;
    }
    std::int64_t ring_index(std::int64_t window) const {
        return window % problem_.geometry.max_open();
    }
    float* float_row(std::int64_t window) const {
        return reinterpret_cast<float*>(ring_.data()) + ring_index(window) * row_size_;
    }
    std::uint16_t* half_row(std::int64_t window) const {
        return reinterpret_cast<std::uint16_t*>(ring_.data()) + ring_index(window) * row_size_;
    }

    // pos_begin is a multiple of 16. Window ends are too: a slab that the end of the sequence cuts
    // short has no window.
    void run_sequence(const SequenceCursor& cursor, std::int64_t pos_begin, std::int64_t pos_end) {
        const WindowGeometry& geometry = problem_.geometry;
        const std::int64_t num_windows = cursor.num_windows();
        const std::int64_t covered_end =
            num_windows == 0 ? 0 : (num_windows - 1) * geometry.stride + geometry.block;
        std::int64_t next_window = 0;  // the first one whose dY row is not in the ring
        std::int64_t pos = pos_begin;
        for (; pos < std::min(pos_end, covered_end); pos += kSlabTokens) {
            const std::int64_t low = geometry.first_open(pos);
            const std::int64_t high = std::min(num_windows - 1, geometry.last_open(pos));
            for (next_window = std::max(next_window, low); next_window <= high; ++next_window) {
                load_output_grad(cursor.window_begin + next_window, next_window);
            }
            touch_pages_ahead(cursor.token_begin + pos);
            run_slab(cursor.token_begin + pos, pos, low, high);
        }
        zero_tokens(cursor.token_begin + pos, cursor.token_begin + pos_end);
    }

    // X beyond this unit as well, for its thread is likely to get the next one too; not dX, which
    // others may be writing there.
    void touch_pages_ahead(std::int64_t token) const {
        if (slab_.requests == LineRequests::kOnce || !problem_.bypass_cache) return;
        const std::int64_t begin = token + tokens_to_touch_ahead(row_size_);
        const auto rows_until = [&](std::int64_t end) {
            const std::int64_t count = std::clamp<std::int64_t>(end - begin, 0, kSlabTokens);
            return RowBlock{begin, count, head_begin_, num_heads_, problem_.head_dim};
        };
        if (problem_.input.contiguous_dim())
            touch_pages(rows_until(problem_.num_tokens), problem_.input);
        touch_pages(rows_until(token_end_), problem_.input_grad);
    }

    void load_output_grad(std::int64_t row, std::int64_t window) {
        const RowBlock rows{row, 1, head_begin_, num_heads_, problem_.head_dim};
        if (problem_.pairs != nullptr) {
            gather(problem_.output_grad, rows, half_row(window));
            plain_rows_[ring_index(window)] =
                bf16_dot_kernels()->all_plain(half_row(window), row_size_);
        } else {
            const auto widen_row = problem_.kernels.widen_row[static_cast<int>(problem_.format)];
            if (!problem_.output_grad.contiguous_dim()) {
                gather(problem_.output_grad, rows, packed_input_.data());
                widen_row(packed_input_.data(), float_row(window), row_size_);
                return;
            }
            for (std::int64_t head = 0; head < num_heads_; ++head) {
                widen_row(problem_.output_grad.at(row, head_begin_ + head),
                          float_row(window) + head * problem_.head_dim, problem_.head_dim);
            }
        }
        if (problem_.output_grad.contiguous_dim() && slab_.requests == LineRequests::kOnce)
            request_output_grad(row + kRowsAhead);
    }

    ATTNCHECK_IMPL_INLINE void request_output_grad(std::int64_t row) const {
        if (row >= problem_.num_rows) return;
        for (std::int64_t head = 0; head < num_heads_; ++head) {
            const std::uint16_t* from = problem_.output_grad.at(row, head_begin_ + head);
            for (std::int64_t c = 0; c < problem_.head_dim; c += kLineElements)
                request_into_first(byte_address(from, c));
        }
    }

    void run_slab(std::int64_t token, std::int64_t pos, std::int64_t low, std::int64_t high) {
        const RowBlock rows{token, kSlabTokens, head_begin_, num_heads_, problem_.head_dim};
        const std::uint16_t* input = packed_input_.data();
        if (problem_.input.contiguous_dim()) {
            input = problem_.input.at(token, head_begin_);
        } else {
            gather(problem_.input, rows, packed_input_.data());
        }
        const bool direct_grad = problem_.input_grad.contiguous_dim();
        std::uint16_t* input_grad =
            direct_grad ? problem_.input_grad.at(token, head_begin_) : packed_grad_.data();
        if (problem_.pairs != nullptr) {
            multiply_pairs(input, input_grad, pos, low, high);
        } else {
            multiply(input, input_grad, pos, low, high);
        }
        if (!direct_grad) scatter(packed_grad_.data(), rows, problem_.input_grad);
    }

    // The windows [low, high] at position `pos`; `row_of` gives their rows in the ring.
    template <class Number, class RowOf>
    void place_windows(GradientSlabOf<Number>& slab, std::int64_t pos, std::int64_t low,
                       std::int64_t high, const RowOf& row_of) const {
        slab.num_windows = static_cast<int>(high - low + 1);
        for (int k = 0; k < slab.num_windows; ++k) {
            slab.first_row[k] = pos - (low + k) * problem_.geometry.stride;
            slab.output_grad[k] = row_of(low + k);
        }
    }

    void multiply(const std::uint16_t* input, std::uint16_t* input_grad, std::int64_t pos,
                  std::int64_t low, std::int64_t high) {
        slab_.input = input;
        slab_.input_grad = input_grad;
        place_windows(slab_, pos, low, high, [&](std::int64_t k) { return float_row(k); });
        problem_.kernels.gradient_slab[static_cast<int>(problem_.format)](slab_);
    }

    void multiply_pairs(const std::uint16_t* input, std::uint16_t* input_grad, std::int64_t pos,
                        std::int64_t low, std::int64_t high) {
        pair_slab_.input = input;
        pair_slab_.input_grad = input_grad;
        place_windows(pair_slab_, pos, low, high, [&](std::int64_t k) { return half_row(k); });
        bool exact = exact_;
        for (std::int64_t k = low; k <= high; ++k) exact = exact || !plain_rows_[ring_index(k)];
        for (int k = 0; k < pair_slab_.num_windows && !exact; ++k)
            paired_rows_[pair_slab_.first_row[k] / kSlabTokens] = true;
        exact ? problem_.pairs->exact_gradient_slab(pair_slab_)
              : problem_.pairs->gradient_slab(pair_slab_);
    }

    void zero_tokens(std::int64_t begin, std::int64_t end) {
        if (begin >= end) return;
        fill_zero({begin, end - begin, head_begin_, num_heads_, problem_.head_dim},
                  problem_.input_grad);
    }

    const GradientProblem& problem_;
    std::int64_t head_begin_, num_heads_, row_size_, token_end_ = 0;
    AlignedBuffer<std::byte> ring_;
    AlignedBuffer<float> lanes_;
    AlignedBuffer<std::uint16_t> packed_input_, packed_grad_;
    GradientSlab slab_;
    PairGradientSlab pair_slab_;
    bool exact_ = true;                               // pairs only
    bool plain_rows_[kMaxOpenWindows] = {};           // of the ring
    bool paired_rows_[kMaxBlock / kSlabTokens] = {};  // of W, by slabs
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_NSA_COMPRESS_GRADIENT_UNIT_H
