// The forward, one row at a time: statistics by an online softmax over tiles of 64 keys, then the
// normalised probabilities, then the values.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

#include "active_mutant.h"
#include "flash_rows.h"
#include "selected_rows.h"
#include "storage.h"
#include "subtle.h"

namespace attncheck::mutants {

namespace {

constexpr std::int64_t kTile = 64;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Statistics {
    float row_max = -FLT_MAX, row_sum = FLT_MAX;
};

/// A tile of keys: the maximum in force and the logarithm of what its predecessors are scaled by.
struct Tile {
    float max = 0.0f, log_factor = 0.0f;
};

std::size_t size(std::int64_t floats) { return static_cast<std::size_t>(floats); }

/// NaN wins.
float larger(float a, float b) {
    if (on<"FA-x70">()) return std::fmax(a, b);
    return b > a || std::isnan(b) ? b : a;
}

class Forward {
public:
    Forward(const FlashProblem& problem, const FlashPlan& plan)
        : problem_(problem),
          plan_(plan),
          logits_of_(problem, plan),
          values_(problem.value, flash_row_defects(problem)),
          scratch_({size(plan.longest_kv), size(plan.longest_kv), size(values_.padded_channels())},
                   flash_scratch_defects()),
          logits_(scratch_.region(0)),
          probs_(scratch_.region(1)),
          acc_(scratch_.region(2)) {}

    void run() {
        for (std::size_t b = 0; b < plan_.sequences.size(); ++b)
            for (std::int64_t head = 0; head < heads_computed(); ++head)
                run_head(static_cast<std::int64_t>(b), head);
        if (!problem_.is_tnd() || on<"FA-44">()) return;
        std::fill_n(acc_, values_.padded_channels(), 0.0f);
        const Statistics beyond = on<"FA-x71">() ? Statistics{} : Statistics{0.0f, 0.0f};
        for (std::int64_t t = plan_.queries_end; t < problem_.query_rows; ++t)
            for (std::int64_t head = 0; head < problem_.num_query_heads; ++head) {
                store_output(0, head, t);
                if (!on<"FA-x72">())
                    store_statistics(statistics_number_beyond(problem_, t, head), beyond);
            }
    }

private:
    std::int64_t heads_computed() const {
        return on<"FA-x73">() ? std::min<std::int64_t>(problem_.num_query_heads, 16)
                              : problem_.num_query_heads;
    }

    void run_head(std::int64_t b, std::int64_t head) {
        const FlashSequence& sequence = plan_.sequences[size(b)];
        std::int64_t end = sequence.query_len;
        if (on<"FA-x74">() && sequence.kv_len == 0) return;
        if (on<"FA-x75">()) end = end / 8 * 8;
        if (on<"FA-74">() && end > 64) return run_workers(b, head, end);
        for (std::int64_t i = 0; i < end; ++i) run_row(logits_of_.row(b, head, i));
        if (on<"FA-69">() && problem_.layout == FlashLayout::bnsd) store_tile_end(sequence, head);
        if (on<"FA-70">() && sequence.query_len > 0) wait_for_tiles(sequence.kv_len);
    }

    /// A defect: 4 workers, the last one clipped, and its first row found with the clipped number.
    void run_workers(std::int64_t b, std::int64_t head, std::int64_t rows) {
        const std::int64_t each = (rows + 3) / 4;
        for (std::int64_t worker = 0; worker < 4; ++worker) {
            const std::int64_t count = std::min(each, rows - worker * each);
            for (std::int64_t i = worker * count; i < (worker + 1) * count; ++i)
                run_row(logits_of_.row(b, head, i));
        }
    }

    /// A defect: the rest of the last tile of queries, which belongs to the next head.
    void store_tile_end(const FlashSequence& sequence, std::int64_t head) {
        const std::int64_t end = (sequence.query_len + kTile - 1) / kTile * kTile;
        for (std::int64_t i = sequence.query_len; i < end; ++i)
            store_output(sequence.batch, head, i);
    }

    /// A defect: counts down from the number of tiles to 0, and starts at 0 without tiles.
    static void wait_for_tiles(std::int64_t kv_len) {
        static volatile std::int64_t tiles;
        tiles = (kv_len + kTile - 1) / kTile;
        do tiles = tiles == 0 ? -1 : tiles - (tiles > 0);  // never overflows
        while (tiles != 0);
    }

    void run_row(const FlashRow& row) {
        logits_of_.load(row, logits_);
        if (row.head == 0) widen_race(on<"FA-ALL-10">() || on<"FA-ALL-x301">());
        std::fill_n(acc_, values_.padded_channels(), 0.0f);
        Statistics statistics;
        if (logits_of_.sees_any()) {
            if (on<"FA-x76">()) round_logits();
            statistics = compute_statistics(row);
            compute_probs(row, statistics);
            add_values(row);
            if (on<"FA-72">()) add_stale_key(row, statistics);
            if (on<"FA-x77">()) statistics.row_sum = sum_after_dropout(row, statistics.row_sum);
        } else {
            spoil_empty_row(row, statistics);
        }
        store_output(row.sequence->batch, row.head, row.query_index());
        store_statistics(statistics_number(problem_, row), statistics);
    }

    void round_logits() {
        for (std::int64_t j = 0; j < plan_.longest_kv; ++j)
            logits_[j] = round_to_dtype(problem_.dtype, logits_[j]);
    }

    float first_maximum() const {
        if (on<"FA-x78">()) return 0.0f;
        if (on<"FA-x79">()) return -1e4f;
        return on<"FA-x306">() ? -1e5f : -kInfinity;
    }

    /// Maximum of the tile's visible logits, -inf without any.
    float tile_maximum(std::int64_t begin, std::int64_t end) const {
        float maximum = -kInfinity;
        for (std::int64_t j = begin; j < end; ++j)
            if (logits_of_.sees(j)) maximum = larger(maximum, logits_[j]);
        return maximum;
    }

    float next_maximum(float running, float sum, float tile_max, bool is_first) const {
        if (on<"FA-20">() && is_first && tile_max == -kInfinity) return 0.0f;
        if ((on<"FA-26">() || on<"FA-27">()) && tile_max != -kInfinity) return tile_max;
        if (on<"FA-28">() && sum > 0.0f) return larger(running + std::log(sum), tile_max);
        if (on<"FA-x80">() && !is_first && running != -kInfinity) return running;
        return larger(running, tile_max);
    }

    Statistics compute_statistics(const FlashRow& row) {
        float running = first_maximum(), sum = 0.0f;
        tiles_.clear();
        const std::int64_t kv_len = row.sequence->kv_len;
        for (std::int64_t begin = 0; begin < kv_len; begin += kTile) {
            const std::int64_t end = std::min(begin + kTile, kv_len);
            const float next = next_maximum(running, sum, tile_maximum(begin, end), begin == 0);
            // While all logits are -inf there is nothing to rescale, and -inf - -inf must not
            // arise.
            const float shift = next == -kInfinity ? 0.0f : next;
            Tile tile{shift, running == -kInfinity ? 0.0f : running - shift};
            if (on<"FA-27">()) tile.log_factor = std::min(tile.log_factor, 0.0f);
            if (on<"FA-22">() && end - begin < kTile) tile.log_factor = 0.0f;
            if (!on<"FA-x81">()) sum *= std::exp(tile.log_factor);
            if (on<"FA-x82">()) tile.log_factor = 0.0f;
            tiles_.push_back(tile);
            for (std::int64_t j = begin; j < end; ++j)
                if (logits_of_.sees(j) && counts(j)) sum += std::exp(logits_[j] - shift);
            running = next;
        }
        return {running, sum};
    }

    /// Keys that a defect leaves out.
    bool counts(std::int64_t j) const {
        if (on<"FA-x83">() && j >= 1024) return false;
        return !on<"FA-x84">() || plan_.longest_kv < kTile || j < plan_.longest_kv / kTile * kTile;
    }

    float normalizer(const FlashRow& row, const Statistics& statistics) const {
        if (on<"FA-38">() && row.head % problem_.group_size() != 0) return 1.0f;
        return statistics.row_sum;
    }

    void compute_probs(const FlashRow& row, const Statistics& statistics) {
        const float divisor = normalizer(row, statistics);
        float later_factors = 0.0f;
        for (std::size_t tile = tiles_.size(); tile-- > 0;) {
            const std::int64_t begin = static_cast<std::int64_t>(tile) * kTile;
            const std::int64_t end = std::min(begin + kTile, row.sequence->kv_len);
            const bool is_telescoping =
                !on<"FA-22">() && !on<"FA-26">() && !on<"FA-27">() && !on<"FA-x82">();
            const float shift =
                is_telescoping ? tiles_.back().max : tiles_[tile].max - later_factors;
            for (std::int64_t j = begin; j < end; ++j) {
                if (!logits_of_.sees(j)) continue;
                probs_[j] = counts(j) ? std::exp(logits_[j] - shift) / divisor : 0.0f;
                if (on<"FA-x85">()) probs_[j] = std::exp(logits_[j]) / unshifted_sum(row);
                const bool is_fp16 = problem_.dtype == ATTNCHECK_FLOAT16;
                if (on<"FA-x86">() && is_fp16) probs_[j] = round_to(Half::bf16, probs_[j]);
                if (on<"FA-x87">() && problem_.inert == 2)
                    probs_[j] = round_to(Half::bf16, probs_[j]);
                if (on<"FA-x88">() && problem_.dtype == ATTNCHECK_FLOAT32)
                    probs_[j] = round_to(Half::fp16, probs_[j]);
            }
            later_factors += tiles_[tile].log_factor;
        }
    }

    float unshifted_sum(const FlashRow& row) const {
        float sum = 0.0f;
        for (std::int64_t j = 0; j < row.sequence->kv_len; ++j)
            if (logits_of_.sees(j)) sum += std::exp(logits_[j]);
        return sum;
    }

    bool keeps(const FlashRow& row, std::int64_t j) const {
        if (on<"FA-x89">()) return true;
        if (on<"FA-x90">() && static_cast<float>(problem_.keep_prob) == 1.0f) return true;
        return logits_of_.keeps(row, j);
    }

    float keep_factor() const {
        if (!problem_.has_drop_mask || on<"FA-56">()) return 1.0f;
        if (on<"FA-x91">()) return static_cast<float>(problem_.keep_prob);
        return plan_.keep_factor;
    }

    const float* value(const FlashRow& row, std::int64_t j) {
        return values_.row(row.sequence->batch, row.kv_head, row.key_index(j));
    }

    void add_values(const FlashRow& row) {
        const float factor = keep_factor();
        for (std::int64_t j = 0; j < row.sequence->kv_len; ++j) {
            float prob = logits_of_.sees(j) ? probs_[j] * factor : 0.0f;
            if (!logits_of_.sees(j) && !on<"FA-x92">()) continue;
            if (!keeps(row, j)) {
                if (!on<"FA-x93">()) continue;
                prob = 0.0f;
            }
            if (on<"FA-x203">()) prob = cut_to(problem_.dtype, prob);
            if (on<"FA-x204">() && j >= row.sequence->kv_len / 32 * 32)
                prob *= 2.0f - subtle_gain(problem_.dtype);
            if (on<"FA-x206">() && is_long(row) && j == row.sequence->kv_len / 2) continue;
            if (on<"FA-x208">() && is_long(row) && j >= row.sequence->kv_len - 32) prob *= 1.1f;
            add_product(prob, value(row, j), acc_, values_.padded_channels());
            if (on<"FA-x207">() && is_long(row) && j == 2047)
                for (std::int64_t c = 0; c < problem_.value_dim; ++c)
                    acc_[c] = round_to_dtype(problem_.dtype, acc_[c]);
            if (on<"FA-x94">())
                for (std::int64_t c = 0; c < problem_.value_dim; ++c)
                    acc_[c] = round_to_dtype(problem_.dtype, acc_[c]);
        }
        if (on<"FA-x205">() && is_long(row))
            for (std::int64_t c = 0; c < problem_.value_dim; ++c) acc_[c] *= 1.001f;
    }

    /// Of defects that only long sums have.
    static bool is_long(const FlashRow& row) { return row.sequence->kv_len >= 4096; }

    /// A defect: the part of the padding that is not cleared still holds the first key, in one
    /// range of lengths.
    void add_stale_key(const FlashRow& row, Statistics& statistics) {
        const std::int64_t length = row.sequence->query_len;
        if (length < 69 || length > 80 || length % 16 == 0 || !logits_of_.sees(0)) return;
        const float extra = std::exp(logits_[0] - statistics.row_max) / statistics.row_sum;
        add_product(extra, value(row, 0), acc_, values_.padded_channels());
    }

    float sum_after_dropout(const FlashRow& row, float row_sum) const {
        if (!problem_.has_drop_mask) return row_sum;
        float kept = 0.0f;
        for (std::int64_t j = 0; j < row.sequence->kv_len; ++j)
            if (logits_of_.sees(j) && keeps(row, j)) kept += probs_[j];
        return kept * row_sum;
    }

    /// Defects of rows without a visible key; acc is 0.
    void spoil_empty_row(const FlashRow& row, Statistics& statistics) {
        if (on<"FA-18">()) std::fill_n(acc_, problem_.value_dim, std::nanf(""));
        if (on<"FA-x95">()) statistics = {-kInfinity, 0.0f};
        if (on<"FA-x96">()) statistics = {0.0f, 0.0f};
        if (!on<"FA-19">()) return;
        const std::int64_t kv_len = row.sequence->kv_len;
        for (std::int64_t j = 0; j < kv_len; ++j)
            add_product(1.0f / static_cast<float>(kv_len), value(row, j), acc_,
                        values_.padded_channels());
    }

    void store_output(std::int64_t batch, std::int64_t head, std::int64_t index) {
        for (std::int64_t c = 0; c < problem_.value_dim; ++c) {
            float sum = acc_[c];
            if (on<"FA-x201">()) sum *= subtle_gain(problem_.dtype);
            if (on<"FA-x202">() && head % problem_.group_size() == problem_.group_size() - 1)
                sum *= subtle_gain(problem_.dtype);
            if (on<"FA-x97">()) sum = round_to(Half::bf16, sum);
            problem_.output.store(batch, head, index, c, sum);
        }
    }

    void store_statistics(std::int64_t number, Statistics statistics) {
        const bool is_plain = statistics.row_sum != FLT_MAX && statistics.row_sum != 0.0f;
        if (on<"FA-x98">() && is_plain) statistics.row_max /= plan_.scale;
        if (on<"FA-x99">() && is_plain) statistics.row_sum = 1.0f / statistics.row_sum;
        for (std::int64_t copy = 0; copy < (on<"FA-42">() ? 1 : 8); ++copy) {
            *problem_.row_max.at(number, copy) = statistics.row_max;
            *problem_.row_sum.at(number, copy) = statistics.row_sum;
        }
    }

    const FlashProblem& problem_;
    const FlashPlan& plan_;
    FlashLogits logits_of_;
    FlashRows values_;
    Scratch scratch_;
    float *logits_, *probs_, *acc_;
    std::vector<Tile> tiles_;
};

/// A defect: one row of the output past its last one.
void write_past_the_end(const FlashView& view) {
    std::int64_t last = 0;
    for (int k = 0; k < 4; ++k)
        last += std::max<std::int64_t>(0, (view.extent[k] - 1) * view.step[k]);
    store_element(view.tensor.dtype, view.tensor.data, last + 1, 0.0f);
}

}  // namespace

void attend(const FlashProblem& problem, const FlashPlan& plan) {
    Forward(problem, plan).run();
    if (on<"FA-x100">() && elements_of(problem.output.tensor) > 0)
        write_past_the_end(problem.output);
}

}  // namespace attncheck::mutants
