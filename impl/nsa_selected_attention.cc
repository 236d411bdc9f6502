#include "impl/nsa_selected_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "impl/flash_attention_operand.h"
#include "impl/key_panels.h"
#include "impl/key_selection.h"
#include "impl/key_tile.h"
#include "impl/thread_pool.h"
#include "impl/token_heads.h"

namespace attncheck::impl {
namespace {

struct SelectedProblem {
    const attncheck_nsa_selected_attention_args& args;
    const AttentionKernels& kernels;
    KeySelection selection;
    std::vector<std::uint8_t> listed;
    TransposedPanels keys;
    ContiguousRows values;
    std::int64_t group_size, head_dim, value_dim;

    SelectedProblem(const attncheck_nsa_selected_attention_args& a, const AttentionKernels& table)
        : args(a),
          kernels(table),
          selection(a),
          listed(listed_blocks(selection)),
          keys(input_rows(a.key), a.key.shape[2], selection, listed),
          values(input_rows(a.value), a.value.shape[2], selection, listed),
          group_size(a.query.shape[1] / a.key.shape[1]),
          head_dim(a.query.shape[2]),
          value_dim(a.value.shape[2]) {}
};

// The G rows of some queries of one kv head.
class SelectedUnit {
public:
    SelectedUnit(const SelectedProblem& problem, std::int64_t kv_head)
        : problem_(problem),
          format_(static_cast<int>(half_format(problem.args.query))),
          kv_head_(kv_head),
          head_begin_(kv_head * problem.group_size),
          tile_(problem.values, problem.group_size, problem.kernels.panel_product[format_]),
          query_reader_(problem.args.query, problem.kernels),
          output_writer_(problem.args.attention_out, problem.kernels),
          query_(problem.group_size * problem.head_dim),
          logits_(problem.group_size * kTileKeys),
          sums_(problem.group_size * problem.value_dim) {}

    void run(std::int64_t token_begin, std::int64_t token_end) {
        Sequence sequence;
        for (std::int64_t token = token_begin; token < token_end; ++token) {
            if (token >= problem_.selection.num_queries()) {
                write_empty(token, 0.0f, 0.0f);
                continue;
            }
            if (token >= sequence.query_end) sequence = problem_.selection.sequence_of_query(token);
            attend(sequence, token);
        }
    }

private:
    void attend(const Sequence& sequence, std::int64_t token) {
        constexpr float kMax = std::numeric_limits<float>::max();
        query_reader_.read(token, head_begin_, problem_.group_size, query_.data());
        if (!add_tiles(sequence, token, 1.0f)) {
            write_empty(token, -kMax, kMax);
            return;
        }
        // Sums of up to 2^12 values before the division may leave fp32 although their mean does
        // not: smaller probabilities decide whether the row is really not finite.
        constexpr float kSmallFactor = 0x1p-12f;
        static_assert(kMaxSelectedBlock * kMaxSelectedCount <= 1 << 12);
        float prob_factor = 1.0f;
        if (!all_finite()) add_tiles(sequence, token, prob_factor = kSmallFactor);
        for (std::int64_t g = 0; g < problem_.group_size; ++g) {
            if (row_max_[g] == -std::numeric_limits<float>::infinity()) {
                row_sum_[g] = std::numeric_limits<float>::quiet_NaN();  // exp(-inf + inf)
            }
            output_writer_.write_quotient(sums_.data() + g * problem_.value_dim,
                                          row_sum_[g] * prob_factor, token, head_begin_ + g);
            fill_copies(problem_.args.softmax_max, token, head_begin_ + g, row_max_[g]);
            fill_copies(problem_.args.softmax_sum, token, head_begin_ + g, row_sum_[g]);
        }
    }

    // Leaves statistics and sum_j prob_factor * exp(S_j - m) v_j of the visible keys, if any.
    bool add_tiles(const Sequence& sequence, std::int64_t token, float prob_factor) {
        std::fill_n(row_max_, problem_.group_size, -std::numeric_limits<float>::infinity());
        std::fill_n(row_sum_, problem_.group_size, 0.0f);
        std::fill_n(sums_.data(), problem_.group_size * problem_.value_dim, 0.0f);
        const float scale = static_cast<float>(problem_.args.scale_value);
        const TileProduct products[] = {
            {query_.data(), &problem_.keys, problem_.head_dim, scale, logits_.data()}};
        return for_each_tile(problem_.selection, sequence, token, kv_head_, products, tile_,
                             [&] { add_tile(prob_factor); });
    }

    void add_tile(float prob_factor) {
        const AttentionKernels& kernels = problem_.kernels;
        const std::int64_t value_dim = problem_.value_dim, group_size = problem_.group_size;
        const std::int64_t padded =
            tile_.pad(logits_.data(), -std::numeric_limits<float>::infinity());
        float rescale[kMaxHeadsPerGroup];
        kernels.softmax_tile({logits_.data(), kTileKeys, group_size, padded, prob_factor, row_max_,
                              row_sum_, rescale});
        for (std::int64_t g = 0; g < group_size; ++g) {
            if (rescale[g] == 1.0f) continue;
            kernels.scale_row(sums_.data() + g * value_dim, rescale[g], value_dim);
        }
        kernels.row_product[format_]({logits_.data(), kTileKeys, group_size, tile_.key_rows(),
                                      tile_.cols(), value_dim, sums_.data(), value_dim});
    }

    bool all_finite() const {
        const std::int64_t count = problem_.group_size * problem_.value_dim;
        return std::all_of(sums_.data(), sums_.data() + count,
                           [](float sum) { return std::isfinite(sum); });
    }

    void write_empty(std::int64_t token, float row_max, float row_sum) {
        output_writer_.write_zeros(token, head_begin_, problem_.group_size);
        for (std::int64_t g = 0; g < problem_.group_size; ++g) {
            fill_copies(problem_.args.softmax_max, token, head_begin_ + g, row_max);
            fill_copies(problem_.args.softmax_sum, token, head_begin_ + g, row_sum);
        }
    }

    const SelectedProblem& problem_;
    int format_;
    std::int64_t kv_head_, head_begin_;
    KeyTile tile_;
    TokenHeadsReader query_reader_;
    TokenHeadsWriter output_writer_;
    AlignedBuffer<float> query_, logits_, sums_;
    float row_max_[kMaxHeadsPerGroup], row_sum_[kMaxHeadsPerGroup];
};

}  // namespace

void nsa_selected_attention(const attncheck_nsa_selected_attention_args& args,
                            const AttentionKernels& kernels) {
    if (takes_pairs(args.query.dtype, kernels))
        return nsa_selected_attention_in_pairs(args, kernels);
    const SelectedProblem problem(args, kernels);
    const QueryUnits units(args.query.shape[0], args.key.shape[1],
                           problem.group_size * (problem.head_dim + problem.value_dim) *
                               args.selected_block_size * args.selected_block_count);
    parallel_for(units.count(), [&](std::int64_t unit) {
        SelectedUnit(problem, units.kv_head(unit)).run(units.begin(unit), units.end(unit));
    });
}

}  // namespace attncheck::impl
