// Compress attention as an attention problem and as an operator that laws can run.
#pragma once

#include "properties/laws/relation_checks.h"
#include "properties/operators/nsa_compress_attention/case.h"
#include "ref/operators/nsa_compress_attention_scores.h"

namespace attncheck::properties::compress_attention {

AttentionProblem problem_of(Parts parts);

/// topk_indices as numbers.
std::vector<std::int64_t> lists_of(const Bits& bits);

/// Scores of blocks, and the masks they read, for as long as this lives.
struct Scores {
    std::vector<std::uint8_t> hidden, forced;
    ref::CompressMasks masks;
    AttentionNumbers numbers;
    ref::AttentionInputs<double> in;
    ref::ImportanceScores of_blocks;

    Scores(const AttentionProblem& problem, const ref::RoundingClass& rounding,
           ref::Grant grant = ref::Grant::rounding);
    Scores(const Scores&) = delete;
    Scores& operator=(const Scores&) = delete;
};

/// The verdict on block lists [T1,N2,K] for this problem; `relation` begins the message of a
/// failure.
Verdict verdict_on_lists(const AttentionProblem& problem, const std::vector<std::int64_t>& lists,
                         const ref::RoundingClass& rounding,
                         ref::Grant grant = ref::Grant::rounding, const std::string& relation = {});

const AttentionOperator& attention_operator();

/// Gives every sequence that is not empty keys for `count` blocks at least.
void lengthen_keys(Spec& spec);

}  // namespace attncheck::properties::compress_attention
