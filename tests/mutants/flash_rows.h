// One row of logits: what both directions compute first.
//
//   A_ij = <q_i, k_j> + <q_rope_i, k_rope_j>
//   Z_ij = pse_type 1: (A_ij + pse_ij) * scale,  otherwise: A_ij * scale + pse_ij
#pragma once

#include <cstdint>
#include <memory>

#include "flash_bias.h"
#include "flash_problem.h"
#include "flash_side.h"
#include "flash_visible.h"
#include "scratch.h"

namespace attncheck::mutants {

/// Query i of sequence b, head `head`, its kv head and its place in the operands.
struct FlashRow {
    const FlashSequence* sequence;
    std::int64_t b, head, kv_head, i;

    std::int64_t query_index() const { return sequence->first_query + i; }
    std::int64_t key_index(std::int64_t j) const { return sequence->first_key + j; }
};

class FlashLogits {
public:
    FlashLogits(const FlashProblem& problem, const FlashPlan& plan);

    FlashRow row(std::int64_t b, std::int64_t head, std::int64_t i) const;

    /// Loads what the row sees and, for visible keys, its logits.
    void load(const FlashRow& row, float* logits);

    bool sees(std::int64_t j) const { return visibility_.sees(j); }
    bool sees_any() const { return visibility_.sees_any(); }

    /// Factor of a probability: 1/keep_prob, 1 without dropout; a dropped key has none.
    bool keeps(const FlashRow& row, std::int64_t j) const {
        return !problem_.has_drop_mask || bias_.keeps(row.b, row.head, row.i, j);
    }

    const float* query(const FlashRow& row);
    const float* query_rope(const FlashRow& row);
    const float* key(const FlashRow& row, std::int64_t j);
    const float* key_rope(const FlashRow& row, std::int64_t j);

private:
    float product(const FlashRow& row, std::int64_t j);
    float logit(const FlashRow& row, std::int64_t j);
    template <IdText kForward, IdText kGradient>
    bool has() const {
        return on_side<kForward, kGradient>(problem_.is_gradient);
    }

    const FlashProblem& problem_;
    const FlashPlan& plan_;
    FlashVisibility visibility_;
    FlashBias bias_;
    FlashRows queries_;
    std::shared_ptr<FlashRows> keys_;
    std::unique_ptr<FlashRows> query_ropes_, key_ropes_;
};

FlashRowDefects flash_row_defects(const FlashProblem& problem);
ScratchDefects flash_scratch_defects(bool keeps_old = false);

/// Number in memory order of the statistics of a row.
std::int64_t statistics_number(const FlashProblem& problem, const FlashRow& row);

/// Number for a row beyond the last sequence (TND).
std::int64_t statistics_number_beyond(const FlashProblem& problem, std::int64_t t,
                                      std::int64_t head);

void attend(const FlashProblem& problem, const FlashPlan& plan);
void attend_grad(const FlashProblem& problem, const FlashPlan& plan);

}  // namespace attncheck::mutants
