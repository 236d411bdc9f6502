// The entry points of FlashAttentionScore, for both of its tables.
#pragma once

#include "mutant.h"

namespace attncheck::mutants {

inline constexpr Operators kFlash{"FlashAttentionScore", "FlashAttentionScore", true, false,
                                  "flash_attention_score"};
inline constexpr Operators kFlashGrad{"FlashAttentionScoreGrad", "FlashAttentionScore", false, true,
                                      "flash_attention_score"};
inline constexpr Operators kFlashBoth{"FlashAttentionScore(Grad)", "FlashAttentionScore", true,
                                      true, "flash_attention_score"};

}  // namespace attncheck::mutants
