// The position bias and the dropout bits of one row.
//
//   pse_type 2, 3:  -slope * |d|, -slope * sqrt(|d|)  with d = (j + key_start) - (i + query_start)
//   dropout:        bit e = ((b*N1 + n)*S1 + i)*S2 + j of the mask, least significant bit first;
//                   TND: e = first_pair + (n*query_len + i)*kv_len + j
#pragma once

#include <cstdint>

#include "flash_problem.h"
#include "flash_side.h"

namespace attncheck::mutants {

class FlashBias {
public:
    FlashBias(const FlashProblem& problem, const FlashPlan& plan)
        : problem_(problem), plan_(plan) {}

    float bias(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) const;
    bool keeps(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) const;

private:
    std::int64_t plain_offset(std::int64_t b, std::int64_t head, std::int64_t i,
                              std::int64_t j) const;
    std::int64_t compressed_offset(std::int64_t b, std::int64_t head, std::int64_t i,
                                   std::int64_t j) const;
    float by_distance(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) const;
    double start_difference(std::int64_t b) const;
    template <IdText kForward, IdText kGradient>
    bool has() const {
        return on_side<kForward, kGradient>(problem_.is_gradient);
    }

    const FlashProblem& problem_;
    const FlashPlan& plan_;
};

}  // namespace attncheck::mutants
