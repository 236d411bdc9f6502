#include "impl/operators/flash_attention/forward_pass.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "impl/operators/flash_attention/operand.h"
#include "impl/operators/flash_attention/tile.h"
#include "impl/runtime/thread_pool.h"

namespace attncheck::impl {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct ForwardProblem {
    const TilePlan& plan;
    const ForwardRows& of;
    const AttentionKernels& kernels;

    bool as_pairs() const { return takes_pairs(of.query.dtype(), kernels); }
    std::int64_t logit_dim() const { return of.query.dim() + of.query_rope.dim(); }
};

// Queries per unit: a few tiles share what loading a tile of keys costs, as long as there are units
// enough for several threads.
constexpr std::int64_t kMostUnitRows = 4 * kFlashTileRows;

std::int64_t unit_rows(const TilePlan& plan) {
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
        query_.load(problem_.of.query, problem_.of.query_rope, unit_.b, unit_.head,
                    sequence_.query_begin + unit_.begin, rows_);
        add_tiles(1.0f);
        // Sums before the division may leave fp32 although the mean of the values does not: smaller
        // probabilities decide which of those elements are really not finite.
        const std::int64_t size = rows_ * value_.width();
        const auto finite = [](float sum) { return std::isfinite(sum); };
        if (!std::all_of(sums_.data(), sums_.data() + size, finite)) {
            const std::vector<float> first(sums_.data(), sums_.data() + size);
            add_tiles(small_factor());
            merge(first);
        }
        write();
    }

private:
    /// One over more than the number of keys.
    float small_factor() const {
        return sequence_.key_len <= std::int64_t{1} << 20 ? 0x1p-21f : 0x1p-62f;
    }

    void add_tiles(float prob_factor) {
        // A sink is a logit before all keys.
        const float sink = problem_.plan.sink(unit_.head);
        std::fill_n(row_max_, rows_, sink);
        std::fill_n(row_sum_, rows_, sink == -kInfinity ? 0.0f : 1.0f);
        std::fill_n(has_key_, rows_, std::uint8_t{0});
        std::fill_n(sums_.data(), rows_ * value_.width(), 0.0f);
        const VisibleBand band = problem_.plan.band(unit_.b);
        const std::int64_t end = band.last(unit_.end - 1);
        std::int64_t begin = band.first(unit_.begin) / kFlashTileKeys * kFlashTileKeys;
        for (; begin < end; begin += kFlashTileKeys) {
            const std::int64_t keys = std::min(kFlashTileKeys, band.key_len - begin),
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
        key_.load(problem_.of.key, problem_.of.key_rope, unit_.b, kv_head, position, count);
        value_.load(problem_.of.value, problem_.of.no_rope, unit_.b, kv_head, position, count);
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
                                                     problem_.plan.logit_factor(), probs_, step, sums))
            return;
        query_.multiply(skip, tile.rows, key_, tile.keys, problem_.plan.logit_factor(), logits);
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
                                            : sum / (row_sum_[r] * small_factor());
            }
        }
        merged_ = true;
    }

    void write() {
        const TilePlan& plan = problem_.plan;
        for (std::int64_t r = 0; r < rows_; ++r) {
            const std::int64_t i = unit_.begin + r;
            const bool has_key = has_key_[r] != 0;
            const float row_sum = has_key && row_max_[r] == -kInfinity
                                      ? std::numeric_limits<float>::quiet_NaN()
                                      : row_sum_[r];
            plan.write_statistics(unit_.b, unit_.head, i, {row_max_[r], row_sum, has_key});
            if (problem_.of.output.dim() == 0) continue;
            const std::int64_t at = problem_.of.output.offset(unit_.b, unit_.head,
                                                              sequence_.query_begin + i);
            if (has_key)
                problem_.of.output.write_quotient(at, sums_.data() + r * value_.width(),
                                                  merged_ ? 1.0f : row_sum, problem_.kernels);
            else
                problem_.of.output.write_zeros(at);
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

}  // namespace

void run_forward(const TilePlan& plan, const ForwardRows& rows, const AttentionKernels& kernels) {
    const ForwardProblem problem{plan, rows, kernels};
    const FlashExtents& extents = plan.extents();
    const std::int64_t rows_at_once = unit_rows(plan);
    const FlashUnits units(plan, false, extents.query_heads, rows_at_once);
    std::int64_t longest = 0;
    for (std::int64_t b = 0; b < extents.batch; ++b)
        longest = std::max(longest, plan.sequence(b).query_len);
    std::atomic<std::int64_t> next{0};
    parallel_for(std::min<std::int64_t>(units.count(), num_threads()), [&](std::int64_t) {
        std::int64_t index = next++;
        if (index >= units.count()) return;
        ForwardUnit unit(problem, std::min(longest, rows_at_once));
        for (; index < units.count(); index = next++) unit.run(units.unit(index));
    });
}

}  // namespace attncheck::impl
