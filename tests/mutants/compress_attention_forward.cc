// The forward, one query at a time: logits, softmax and values of every head, then the list of
// every kv head.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

#include "active_mutant.h"
#include "compress_attention_problem.h"
#include "compress_attention_scores.h"
#include "scratch.h"
#include "selected_rows.h"
#include "subtle.h"

namespace attncheck::mutants {

namespace {

constexpr std::int64_t kTile = 64;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Statistics {
    float row_max = -FLT_MAX, row_sum = FLT_MAX;
};

std::size_t size(std::int64_t floats) { return static_cast<std::size_t>(floats); }

/// Any number of channels; the lanes of selected_rows.h take multiples of 16.
float dot_of_any(const float* a, const float* b, std::int64_t channels) {
    const std::int64_t whole = channels / kLanes * kLanes;
    float sum = dot(a, b, whole);
    for (std::int64_t c = whole; c < channels; ++c) sum += a[c] * b[c];
    return sum;
}

class CompressedForward {
public:
    CompressedForward(const CompressAttentionProblem& problem, const CompressAttentionPlan& plan)
        : problem_(problem),
          plan_(plan),
          keys_(problem.key, problem.type),
          values_(problem.value, problem.type, value_defects(problem)),
          scratch_({size(problem.head_dim), size(plan.longest_keys), size(plan.longest_keys),
                    size(problem.num_query_heads * plan.longest_keys), size(problem.value_dim)},
                   {false, on<"NCA-ALL-10">(), on<"NCA-ALL-11">()}),
          query_(scratch_.region(0)),
          logits_(scratch_.region(1)),
          probs_(scratch_.region(2)),
          importance_(scratch_.region(3)),
          acc_(scratch_.region(4)),
          visible_(size(plan.longest_keys)) {}

    void run() {
        for (const CompressedSequence& sequence : plan_.sequences) {
            const std::int64_t queries =
                on<"NCA-x33">() ? sequence.query_len / 8 * 8 : sequence.query_len;
            for (std::int64_t s = 0; s < queries; ++s) run_query(sequence, s);
        }
        if (on<"NCA-x20">()) return;
        std::fill_n(acc_, problem_.value_dim, 0.0f);
        for (std::int64_t t = plan_.queries_end; t < problem_.query_tokens; ++t) {
            for (std::int64_t head = 0; head < problem_.num_query_heads; ++head) {
                store_output(t, head);
                store_statistics(t, head, {0.0f, 0.0f});
            }
            for (std::int64_t n = 0; n < problem_.num_kv_heads && !on<"NCA-x21">(); ++n)
                for (std::int64_t i = 0; i < problem_.list_size; ++i)
                    *problem_.topk.at(t, n, i) = 0;
        }
    }

private:
    static RowDefects value_defects(const CompressAttentionProblem& problem) {
        RowDefects defects;
        if (on<"NCA-x29">()) defects.head_pitch = problem.head_dim;
        return defects;
    }

    void run_query(const CompressedSequence& sequence, std::int64_t s) {
        load_visible(sequence, s);
        const std::int64_t group = problem_.group_size(), heads = problem_.num_query_heads;
        for (std::int64_t head = 0; head < heads; ++head) run_row(sequence, s, head);
        for (std::int64_t n = 0; n < problem_.num_kv_heads; ++n) {
            const bool all = on<"NCA-06">();
            CompressAttentionScores(problem_, sequence,
                                    importance_ + (all ? 0 : n * group * sequence.num_keys),
                                    all ? heads : group)
                .select(s, n);
        }
    }

    void load_visible(const CompressedSequence& sequence, std::int64_t s) {
        for (std::int64_t i = 0; i < sequence.num_keys; ++i)
            visible_[size(i)] = sees(sequence, s, i) ? 1 : 0;
        if (on<"NCA-x26">() && sequence.num_keys > 16)
            std::fill(visible_.begin() + sequence.num_keys / 16 * 16, visible_.end(),
                      static_cast<unsigned char>(0));
    }

    bool sees(const CompressedSequence& sequence, std::int64_t s, std::int64_t i) const {
        if (!problem_.has_mask)
            return !on<"NCA-x14">() ||
                   i * problem_.compress_stride + problem_.compress_block - 1 <= s;
        if (on<"NCA-x11">() || (on<"NCA-x13">() && problem_.sparse_mode == 0)) return true;
        const BasicView<std::uint8_t>& mask = problem_.mask;
        if (on<"NCA-x12">()) s = std::min(sequence.first_query + s, mask.shape[0] - 1);
        if (on<"NCA-12">()) {
            const std::int64_t position = s * sequence.num_keys + i;
            return *mask.at(position / mask.shape[1], position % mask.shape[1]) == 0;
        }
        return *mask.at(s, i) == 0;
    }

    void run_row(const CompressedSequence& sequence, std::int64_t s, std::int64_t head) {
        const std::int64_t t = sequence.first_query + s, count = sequence.num_keys;
        const std::int64_t kv_head =
            on<"NCA-x23">() ? head % problem_.num_kv_heads : head / problem_.group_size();
        for (std::int64_t c = 0; c < problem_.head_dim; ++c)
            query_[c] = widen(problem_.type, *problem_.query.at(t, head, c));
        std::fill_n(acc_, problem_.value_dim, 0.0f);
        float* importance = importance_ + head * count;
        std::fill_n(importance, count, 0.0f);
        Statistics statistics;
        if (std::find(visible_.begin(), visible_.begin() + count, 1) != visible_.begin() + count) {
            compute_logits(sequence, kv_head, plan_.scale);
            if (head == 0) widen_race(on<"NCA-ALL-10">());
            statistics = softmax(count, probs_);
            add_values(sequence, kv_head);
            std::copy_n(probs_, count, importance);
            spoil_importance(sequence, kv_head, statistics, importance);
        } else {
            spoil_empty_row(sequence, kv_head, statistics, importance);
        }
        store_output(t, head);
        store_statistics_of(sequence, s, head, statistics);
    }

    void compute_logits(const CompressedSequence& sequence, std::int64_t kv_head, float scale) {
        for (std::int64_t i = 0; i < sequence.num_keys; ++i)
            if (visible_[size(i)] != 0)
                logits_[i] = scale * dot_of_any(query_, keys_.row(sequence.first_key + i, kv_head),
                                                problem_.head_dim);
    }

    /// Over the visible keys, of which there is one at least; 0 for the others.
    Statistics softmax(std::int64_t count, float* probs) const {
        Statistics statistics{-kInfinity, 0.0f};
        std::vector<float> running;  // at the end of each tile
        for (std::int64_t i = 0; i < count; ++i) {
            if (visible_[size(i)] != 0 &&
                (logits_[i] > statistics.row_max || std::isnan(logits_[i])))
                statistics.row_max = logits_[i];
            if ((i + 1) % kTile == 0 || i + 1 == count) running.push_back(statistics.row_max);
        }
        for (std::int64_t i = 0; i < count; ++i)
            if (visible_[size(i)] != 0)
                statistics.row_sum += std::exp(logits_[i] - statistics.row_max);
        for (std::int64_t i = 0; i < count; ++i) {
            const float shift = on<"NCA-x31">() ? running[size(i / kTile)] : statistics.row_max;
            probs[i] =
                visible_[size(i)] == 0 ? 0.0f : std::exp(logits_[i] - shift) / statistics.row_sum;
        }
        return statistics;
    }

    void add_values(const CompressedSequence& sequence, std::int64_t kv_head) {
        for (std::int64_t i = 0; i < sequence.num_keys; ++i) {
            if (visible_[size(i)] == 0 && !on<"NCA-x22">()) continue;
            const float* value = values_.row(sequence.first_key + i, kv_head);
            const float prob = on<"NCA-x202">() ? cut_to(problem_.type, probs_[i]) : probs_[i];
            for (std::int64_t c = 0; c < problem_.value_dim; ++c) acc_[c] += prob * value[c];
        }
    }

    void spoil_importance(const CompressedSequence& sequence, std::int64_t kv_head,
                          const Statistics& statistics, float* importance) {
        if (on<"NCA-15">())
            for (std::int64_t i = 0; i < sequence.num_keys; ++i)
                importance[i] *= statistics.row_sum;
        if (on<"NCA-19">()) {
            compute_logits(sequence, kv_head, 1.0f);
            softmax(sequence.num_keys, importance);
        }
        if (on<"NCA-x28">()) {
            const std::vector<unsigned char> kept = visible_;
            std::fill(visible_.begin(), visible_.end(), static_cast<unsigned char>(1));
            compute_logits(sequence, kv_head, plan_.scale);
            softmax(sequence.num_keys, importance);
            visible_ = kept;
        }
    }

    /// Defects of rows without a visible key; acc and the importance are 0.
    void spoil_empty_row(const CompressedSequence& sequence, std::int64_t kv_head,
                         Statistics& statistics, float* importance) {
        if (on<"NCA-x18">()) std::fill_n(acc_, problem_.value_dim, std::nanf(""));
        if (!on<"NCA-x17">() && !on<"NCA-x19">()) return;
        const float uniform = 1.0f / static_cast<float>(sequence.num_keys);
        std::fill_n(importance, sequence.num_keys, uniform);
        if (on<"NCA-x19">()) return;
        statistics.row_sum = static_cast<float>(sequence.num_keys);
        std::fill_n(probs_, sequence.num_keys, uniform);
        for (std::int64_t i = 0; i < sequence.num_keys; ++i)
            for (std::int64_t c = 0; c < problem_.value_dim; ++c)
                acc_[c] += uniform * values_.row(sequence.first_key + i, kv_head)[c];
    }

    void store_output(std::int64_t t, std::int64_t head) {
        const float factor = on<"NCA-x201">() ? subtle_gain(problem_.type) : 1.0f;
        for (std::int64_t c = 0; c < problem_.value_dim; ++c)
            *problem_.output.at(t, head, c) = narrow(problem_.type, factor * acc_[c]);
    }

    void store_statistics_of(const CompressedSequence& sequence, std::int64_t s, std::int64_t head,
                             Statistics statistics) {
        if (on<"NCA-x25">() && statistics.row_sum != FLT_MAX && plan_.scale != 0.0f)
            statistics.row_max /= plan_.scale;
        const std::int64_t heads = problem_.num_query_heads;
        std::int64_t position = sequence.first_query * heads + head * sequence.query_len + s;
        if (on<"NCA-x15">()) position = (sequence.first_query + s) * heads + head;
        store_statistics(position / heads, position % heads, statistics);
    }

    void store_statistics(std::int64_t row, std::int64_t head, const Statistics& statistics) {
        for (std::int64_t copy = 0; copy < (on<"NCA-x16">() ? 1 : 8); ++copy) {
            *problem_.row_max.at(row, head, copy) = statistics.row_max;
            *problem_.row_sum.at(row, head, copy) = statistics.row_sum;
        }
    }

    const CompressAttentionProblem& problem_;
    const CompressAttentionPlan& plan_;
    Rows keys_, values_;
    Scratch scratch_;
    float *query_, *logits_, *probs_, *importance_, *acc_;
    std::vector<unsigned char> visible_;
};

}  // namespace

void attend_compressed(const CompressAttentionProblem& problem, const CompressAttentionPlan& plan) {
    CompressedForward(problem, plan).run();
}

}  // namespace attncheck::mutants
