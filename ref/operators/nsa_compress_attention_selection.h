// Selection of NsaCompressAttention: the K blocks with the highest importance, and the judgement on
// a list that a candidate gives.
//
// The list is in descending order of the scores, forced blocks first; equal scores, and forced
// blocks among each other, in ascending order of the block (nsa.md 6.5; contract.md, decision 7).
// Block numbers count from the start of the sequence. Rows behind the last sequence hold 0.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ref/operators/nsa_compress_attention_scores.h"

namespace attncheck::ref {

/// The list of the exact scores; NaN counts as the lowest. Throws std::invalid_argument when there
/// are fewer blocks than `count`.
std::vector<std::int32_t> select_blocks(const BlockScores& scores, std::int64_t count);

/// The first wrong entry of a list.
struct SelectionFault {
    std::int64_t position = 0;  ///< in the list
    std::string reason;         ///< one line, begins with the entry: "7: ..."
};

struct ListJudgement {
    std::optional<SelectionFault> fault;
    /// Largest difference of two scores listed the wrong way round, in units of its bound; at most
    /// 1 unless there is a fault.
    double worst_ratio = 0;
};

/// Judges the list of one row. Entry k is right if it is in range, not listed before, and no block
/// that is not listed before must precede it: by a score higher by more than the error of their
/// difference, by being forced when the entry is not, or by a smaller number when both are tied.
/// Rows that are not ordered: in range and distinct.
ListJudgement judge_list(const BlockScores& scores, std::span<const std::int64_t> list);

struct SelectionJudgement {
    bool right = true;
    std::size_t index = 0;                  ///< row-major in [T1,N2,K], of the first wrong entry
    std::size_t wrong = 0;                  ///< lists with a wrong entry
    std::size_t judged = 0, unordered = 0;  ///< lists of sequences; those not ordered among them
    double worst_ratio = 0;
    /// "topk_indices[t=5,n=0,k=3] = 7: ..." for the first wrong entry, otherwise empty.
    std::string message;
    /// The first wrong list, as given and of the exact scores; empty for a row of no sequence.
    std::vector<std::int64_t> got;
    std::vector<std::int32_t> expected;
};

/// Judges topk_indices [T1,N2,K] row-major. Throws std::invalid_argument when their number is
/// wrong.
SelectionJudgement judge_selection(ImportanceScores& scores, std::span<const std::int64_t> indices);

}  // namespace attncheck::ref
