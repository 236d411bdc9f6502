#include "impl/operators/flash_attention/flash_attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "impl/operators/flash_attention/operand.h"
#include "impl/operators/flash_attention/plan.h"
#include "impl/operators/flash_attention/tile.h"
#include "impl/runtime/thread_pool.h"

namespace attncheck::impl {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct ForwardProblem {
    FlashPlan plan;
    const AttentionKernels& kernels;
    RowView query, query_rope, key, key_rope, value, no_rope, output;

    ForwardProblem(const FlashCall& call, const AttentionKernels& table)
        : plan(call),
          kernels(table),
          query(plan.rows(*call.query, plan.extents().head_dim)),
          query_rope(plan.rows(*call.query_rope, plan.rope_dim())),
          key(plan.rows(*call.key, plan.extents().head_dim)),
          key_rope(plan.rows(*call.key_rope, plan.rope_dim())),
          value(plan.rows(*call.value, plan.extents().value_dim)),
          no_rope(plan.rows(*call.value, 0)),
          output(plan.rows(*call.output, plan.extents().value_dim)) {}

    bool as_pairs() const { return takes_pairs(query.dtype(), kernels); }
    /// What <q, k> is multiplied by; a bias may come before the scale.
    float logit_factor() const { return plan.has_bias() ? 1.0f : plan.scale(); }
    std::int64_t logit_dim() const { return plan.extents().head_dim + plan.rope_dim(); }
};

// Queries per unit: a few tiles share what loading a tile of keys costs, as long as there are units
// enough for several threads.
constexpr std::int64_t kMostUnitRows = 4 * kFlashTileRows;

std::int64_t unit_rows(const FlashPlan& plan) {
    constexpr std::int64_t kUnits = 16;
    const FlashExtents& extents = plan.extents();
    std::int64_t rows = kMostUnitRows;
    for (; rows > kFlashTileRows; rows /= 2) {
        std::int64_t units = 0;
        for (std::int64_t b = 0; b < extents.batch; ++b)
            units += extents.query_heads * ((plan.sequence(b).query_len + rows - 1) / rows);
        if (units >= kUnits) break;
    }
    return rows;
}

// Some queries of one head, unit after unit in the same buffers.
class ForwardUnit {
public:
    ForwardUnit(const ForwardProblem& problem, std::int64_t max_rows)
        : problem_(problem),
          pairs_(problem.plan, std::min(max_rows, kFlashTileRows)),
          query_(max_rows, problem.logit_dim(), problem.kernels, problem.as_pairs()),
          key_(kFlashTileKeys, problem.logit_dim(), problem.kernels, problem.as_pairs()),
          value_(kFlashTileKeys, problem.plan.extents().value_dim, problem.kernels,
                 problem.as_pairs()),
          probs_(std::min(max_rows, kFlashTileRows), problem.kernels, problem.as_pairs()),
          sums_(max_rows * value_.width()) {}

    void run(const FlashUnits::Unit& unit) {
        unit_ = unit;
        sequence_ = problem_.plan.sequence(unit.b);
        rows_ = unit.end - unit.begin;
        merged_ = false;
        query_.load(problem_.query, problem_.query_rope, unit_.b, unit_.head,
                    sequence_.query_begin + unit_.begin, rows_);
        add_tiles(1.0f);
        // Sums before the division may leave fp32 although the mean of the values does not: smaller
        // probabilities decide which of those elements are really not finite.
        const std::int64_t size = rows_ * value_.width();
        const auto finite = [](float sum) { return std::isfinite(sum); };
        if (!std::all_of(sums_.data(), sums_.data() + size, finite)) {
            const std::vector<float> first(sums_.data(), sums_.data() + size);
            add_tiles(kSmallFactor);
            merge(first);
        }
        write();
    }

private:
    // At most 2^20 keys.
    static constexpr float kSmallFactor = 0x1p-21f;

    void add_tiles(float prob_factor) {
        std::fill_n(row_max_, rows_, -kInfinity);
        std::fill_n(row_sum_, rows_, 0.0f);
        std::fill_n(has_key_, rows_, std::uint8_t{0});
        std::fill_n(sums_.data(), rows_ * value_.width(), 0.0f);
        const VisibleBand band = problem_.plan.band(unit_.b);
        const std::int64_t end = band.last(unit_.end - 1);
        std::int64_t begin = band.first(unit_.begin) / kFlashTileKeys * kFlashTileKeys;
        for (; begin < end; begin += kFlashTileKeys) {
            const std::int64_t keys = std::min(kFlashTileKeys, sequence_.key_len - begin),
                               first = std::max(unit_.begin,
                                                band.first_query(begin, sequence_.query_len)),
                               last = std::min(unit_.end,
                                               band.last_query(begin + keys, sequence_.query_len));
            if (first >= last) continue;
            load_keys(begin, keys);
            VisibleBand::Extent extent{};
            for (std::int64_t query = first; query < last; query += extent.rows) {
                extent = band.tile_from(query, last, begin, begin + keys);
                if (extent.keys <= 0) continue;
                pairs_.start({unit_.b, unit_.head, query, extent.rows, begin, extent.keys});
                add_tile(prob_factor);
            }
        }
    }

    void load_keys(std::int64_t begin, std::int64_t count) {
        const std::int64_t kv_head = unit_.head / problem_.plan.group_size(),
                           position = sequence_.key_begin + begin;
        key_.load(problem_.key, problem_.key_rope, unit_.b, kv_head, position, count);
        value_.load(problem_.value, problem_.no_rope, unit_.b, kv_head, position, count);
    }

    // The rows of the tile, of which `skip` of the unit come before, and its keys.
    void add_tile(float prob_factor) {
        const FlashTile& tile = pairs_.tile();
        const std::int64_t width = value_.width(), skip = tile.query_begin - unit_.begin;
        float *logits = probs_.data(), *sums = sums_.data() + skip * width;
        pairs_.note_rows_with_keys(has_key_ + skip);
        float rescale[kFlashTileRows];
        const SoftmaxStep step{tile.rows,       tile.cols(),     prob_factor,
                               row_max_ + skip, row_sum_ + skip, rescale};
        if (pairs_.keeps_products() && query_.attend(skip, key_, value_, tile.keys,
                                                     problem_.logit_factor(), probs_, step, sums))
            return;
        query_.multiply(skip, tile.rows, key_, tile.keys, problem_.logit_factor(), logits);
        pairs_.finish_logits(logits);
        probs_.softmax(step);
        if (problem_.plan.has_dropout()) {
            pairs_.drop(logits, problem_.plan.keep_factor());
            probs_.round_for_keys(tile.rows, tile.cols());
        }
        for (std::int64_t r = 0; r < tile.rows; ++r) {
            if (rescale[r] == 1.0f) continue;
            problem_.kernels.scale_row(sums + r * width, rescale[r], width);
        }
        value_.add_sum_over_keys(probs_, tile.rows, tile.keys, pairs_.visible_and_kept(), sums);
    }

    // Rows become quotients; an element that was finite the first time keeps that value.
    void merge(const std::vector<float>& first) {
        const std::int64_t width = value_.width();
        for (std::int64_t r = 0; r < rows_; ++r) {
            for (std::int64_t c = 0; c < width; ++c) {
                const float before = first[static_cast<std::size_t>(r * width + c)];
                float& sum = sums_.data()[r * width + c];
                sum = std::isfinite(before) ? before / row_sum_[r]
                                            : sum / (row_sum_[r] * kSmallFactor);
            }
        }
        merged_ = true;
    }

    void write() {
        constexpr float kMax = std::numeric_limits<float>::max();
        const FlashPlan& plan = problem_.plan;
        for (std::int64_t r = 0; r < rows_; ++r) {
            const std::int64_t i = unit_.begin + r,
                               at = problem_.output.offset(unit_.b, unit_.head,
                                                           sequence_.query_begin + i);
            float row_max = -kMax, row_sum = kMax;
            if (has_key_[r] == 0) {
                problem_.output.write_zeros(at);
            } else {
                row_max = row_max_[r];
                row_sum =
                    row_max == -kInfinity ? std::numeric_limits<float>::quiet_NaN() : row_sum_[r];
                problem_.output.write_quotient(at, sums_.data() + r * value_.width(),
                                               merged_ ? 1.0f : row_sum, problem_.kernels);
            }
            plan.write_statistic(*plan.call().softmax_max, unit_.b, unit_.head, i, row_max);
            plan.write_statistic(*plan.call().softmax_sum, unit_.b, unit_.head, i, row_sum);
        }
    }

    const ForwardProblem& problem_;
    FlashUnits::Unit unit_{};
    FlashSequence sequence_{};
    std::int64_t rows_ = 0;
    PairTile pairs_;
    TileRows query_, key_, value_;
    TileWeights probs_;
    AlignedBuffer<float> sums_;
    bool merged_ = false;
    float row_max_[kMostUnitRows], row_sum_[kMostUnitRows];
    std::uint8_t has_key_[kMostUnitRows];
};

// Rows of TND that belong to no sequence.
void zero_rows_beyond(const ForwardProblem& problem) {
    const FlashPlan& plan = problem.plan;
    if (!plan.extents().is_packed()) return;
    const FlashSequence last = plan.sequence(plan.extents().batch - 1);
    for (std::int64_t row = last.query_begin + last.query_len; row < plan.extents().query_len;
         ++row) {
        for (std::int64_t head = 0; head < plan.extents().query_heads; ++head) {
            problem.output.write_zeros(problem.output.offset(0, head, row));
            plan.write_statistic_beyond(*plan.call().softmax_max, row, head, 0.0f);
            plan.write_statistic_beyond(*plan.call().softmax_sum, row, head, 0.0f);
        }
    }
}

}  // namespace

void flash_attention_score(const attncheck_flash_attention_score_args& args,
                           const AttentionKernels& kernels) {
    const ForwardProblem problem(flash_call(args), kernels);
    const FlashExtents& extents = problem.plan.extents();
    const std::int64_t rows_at_once = unit_rows(problem.plan);
    const FlashUnits units(problem.plan, false, extents.query_heads, rows_at_once);
    std::int64_t longest = 0;
    for (std::int64_t b = 0; b < extents.batch; ++b)
        longest = std::max(longest, problem.plan.sequence(b).query_len);
    std::atomic<std::int64_t> next{0};
    parallel_for(std::min<std::int64_t>(units.count(), num_threads()), [&](std::int64_t) {
        std::int64_t index = next++;
        if (index >= units.count()) return;
        ForwardUnit unit(problem, std::min(longest, rows_at_once));
        for (; index < units.count(); index = next++) unit.run(units.unit(index));
    });
    zero_rows_beyond(problem);
}

}  // namespace attncheck::impl
