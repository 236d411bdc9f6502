// From the probabilities of a group of heads to the list of a query (legend:
// compress_attention_problem.h).
//
//   score[j] = sum_{g < G} sum_{m < isM} sum_{n < isN} P[g, isM*(j + 1) - m - n],  P[g, x] = 0
//   outside [0, Cmp)
//
// Sums of fp32 numbers in binary64. The list has the K largest scores, largest first, smaller index
// first among equals; what topk_mask[s, j] marks comes before the rest. NaN scores come last.
#pragma once

#include <cstdint>
#include <vector>

#include "compress_attention_problem.h"

namespace attncheck::mutants {

class CompressAttentionScores {
public:
    /// probs: [rows, Cmp], the G rows of the group, or those of all N1 heads under a defect.
    CompressAttentionScores(const CompressAttentionProblem& problem,
                            const CompressedSequence& sequence, const float* probs,
                            std::int64_t rows)
        : problem_(problem), sequence_(sequence), probs_(probs), rows_(rows) {}

    /// Writes the list of query s and a kv head.
    void select(std::int64_t s, std::int64_t kv_head);

private:
    double window(std::int64_t row, std::int64_t block) const;
    double prob(std::int64_t row, std::int64_t index) const;
    double sum_over_heads(std::int64_t block) const;
    bool is_forced(std::int64_t s, std::int64_t block) const;
    bool precedes(std::int64_t a, std::int64_t b) const;
    std::int64_t best_left(const std::vector<bool>& taken) const;

    const CompressAttentionProblem& problem_;
    const CompressedSequence& sequence_;
    const float* probs_;
    std::int64_t rows_;
    std::vector<double> scores_;
};

}  // namespace attncheck::mutants
