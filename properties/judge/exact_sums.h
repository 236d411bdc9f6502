// Attention of full size without tolerance: equal logits over 2^k keys and whole numbers, so that every order of
// summation in fp32 gives the same number.
//
//   P = 2^-k,   O = 2^-k sum_j v_j,   dV_j = 2^-k sum_i dO_i      |v|, |dO| <= 127, sums below 2^24
//
// A bound of full size has room for a lost key of 16384 and for a partial sum that is rounded to half; this has none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/judge/attention_problem.h"
#include "properties/judge/verdict.h"

namespace attncheck::properties {

/// Values and gradients of the output become whole numbers of up to 127, which bf16 has: a partial sum of them that is
/// rounded to half loses bits.
void give_whole_numbers(AttentionProblem& problem, std::uint64_t seed);

/// Keys of each row, if all rows see as many, each once, a power of two, with equal logits of `spec`, and if the class
/// leaves sums of whole numbers exact; else 0.
std::int64_t exact_row_length(const Spec& spec, const AttentionProblem& problem,
                              const ref::RoundingClass& rounding);

/// Chosen rows of one output [rows, width] against their exact numbers, multiples of 1 / keys. P that is not cast errs
/// by some u, which is allowed: 2^-14 of the root mean square, a sixteenth of what a rounding to bf16 may move.
Verdict verdict_on_exact_sums(const AttentionProblem& problem, const std::string& name,
                              const std::vector<std::int64_t>& numbers,
                              const std::vector<double>& expected, const std::vector<double>& got,
                              std::int64_t keys);

}  // namespace attncheck::properties
