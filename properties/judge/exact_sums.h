// Attention of full size without tolerance: equal logits over 2^k keys and whole numbers, so that every order of
// summation in fp32 gives the same number.
//
//   P = 2^-k,   O = 2^-k sum_j v_j,   dV_j = 2^-k sum_i dO_i      |v|, |dO| <= 127, sums below 2^24
//
// With data=signs a gradient has exact scores, too: channels of query and key that do not meet, values that cancel in
// pairs, so that O and delta are 0, and one channel of dO in each row:
//
//   dS_ij = 2^-k dO_i v_j,   dQ_i = scale 2^-k sum_j (+-v_j) k_j,   dK_j = scale 2^-k sum_i (+-v_j) q_i     |v|, |k|, |q| <= 7
//
// dS has few bits, and so a cast changes none. A bound of full size has room for a lost key of 16384 and for a partial sum that is rounded to half; this has none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/judge/attention_problem.h"
#include "properties/judge/verdict.h"

namespace attncheck::properties {

/// Values and gradients of the output become whole numbers of up to 127, which bf16 has: a partial sum of them that is
/// rounded to half loses bits. With data=signs the numbers of exact scores; true: dQ and dK are exact as well.
bool give_exact_numbers(const Spec& spec, AttentionProblem& problem);

/// Keys of each row, if all rows see as many, each once, a power of two, with equal logits of `spec`, and if the class
/// leaves sums of whole numbers exact; else 0.
std::int64_t exact_row_length(const Spec& spec, const AttentionProblem& problem,
                              const ref::RoundingClass& rounding);

/// Chosen rows of one output [rows, width] against their exact numbers, multiples of 1 / keys, those of dQ and dK of
/// scale / keys. P that is not cast errs
/// by some u, which is allowed: 2^-14 of the root mean square, a sixteenth of what a rounding to bf16 may move.
Verdict verdict_on_exact_sums(const AttentionProblem& problem, const std::string& name,
                              const std::vector<std::int64_t>& numbers,
                              const std::vector<double>& expected, const std::vector<double>& got,
                              std::int64_t keys);

}  // namespace attncheck::properties
