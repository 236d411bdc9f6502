// The constraints that NsaCompress and its gradient share, each with the defects that belong to it.
#pragma once

#include <cstdint>

#include "attncheck/candidate.h"

namespace attncheck::mutants {

bool is_half(std::int32_t dtype);
bool is_tnd(const char* layout);
bool is_tnd_in_any_case(const char* layout);

/// fp16 or bf16, the same for both.
bool dtypes_agree(const attncheck_tensor& input, const attncheck_tensor& weight);

/// Positive multiples of 16, block <= 128, stride <= block (forward) or stride < block (gradient).
bool in_range(std::int64_t block, std::int64_t stride, bool is_gradient);

/// T >= 1, 1 <= N <= 128, D a multiple of 16 up to 256, T*N*D within int64, weight [block, N].
/// Ranks are right already.
bool shapes_are_legal(const attncheck_tensor& input, const attncheck_tensor& weight,
                      std::int64_t block);

bool same_extents(const attncheck_tensor& a, const attncheck_tensor& b);

struct LengthRuling {
    bool legal = false;
    bool by_defect = false;  ///< accepted by a defect only: the number of blocks is then undefined
                             ///< and not checked
};

/// At least one entry, non-negative, non-decreasing, the last one not beyond T.
LengthRuling rule_on_lengths(const attncheck_int_array& lengths, std::int64_t tokens,
                             bool is_gradient);

/// The tensor of compressed rows is [C, N, D].
bool rows_match(const attncheck_tensor& rows, const attncheck_tensor& input,
                const attncheck_int_array& lengths, std::int64_t block, std::int64_t stride,
                const LengthRuling& ruling);

/// A defect: sizes a scratch buffer by T*N*D before anything is checked. Ends the process if that
/// is too large.
void allocate_early(const attncheck_tensor& input) noexcept;

/// A defect: what a caller sees of an output that is touched before the arguments are checked.
void touch_early(const attncheck_tensor& output);

}  // namespace attncheck::mutants
