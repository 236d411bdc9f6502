// Which keys a query sees.
#pragma once

#include <cstdint>
#include <vector>

#include "flash_problem.h"
#include "flash_side.h"

namespace attncheck::mutants {

class FlashVisibility {
public:
    FlashVisibility(const FlashProblem& problem, const FlashPlan& plan);

    /// Decides for query i of sequence b and one query head.
    void load(std::int64_t b, std::int64_t head, std::int64_t i);

    bool sees(std::int64_t j) const { return visible_[static_cast<std::size_t>(j)] != 0; }
    bool sees_any() const { return sees_any_; }

private:
    /// First and last position that the mode leaves visible; not limited to the sequence.
    struct Band {
        std::int64_t first, last;
    };
    Band band(std::int64_t b, std::int64_t i) const;
    Band token_band(std::int64_t b, std::int64_t i, std::int64_t shift) const;
    void distort(Band& band, const FlashSequence& sequence, std::int64_t i) const;
    std::int64_t prefix(std::int64_t b) const;
    bool reads_contents() const;
    bool is_hidden_by_contents(std::int64_t b, std::int64_t head, std::int64_t i,
                               std::int64_t j) const;
    std::int64_t mask_offset(std::int64_t b, std::int64_t head, std::int64_t i,
                             std::int64_t j) const;
    template <IdText kForward, IdText kGradient>
    bool has() const {
        return on_side<kForward, kGradient>(problem_.is_gradient);
    }

    const FlashProblem& problem_;
    const FlashPlan& plan_;
    std::vector<char> visible_;
    bool sees_any_ = false;
};

}  // namespace attncheck::mutants
