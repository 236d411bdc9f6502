// Defects that show where operators feed each other: what one call leaves behind for the next, and
// arguments that only a composition hands over. Legend: include/attncheck/nsa_module.h.
#pragma once

#include "mutant.h"

namespace attncheck::mutants {

/// The composition of the others: its defects sit in what the operators pass to each other.
inline constexpr Operators kModule{"NsaModule", "NsaModule", true, false, "nsa_module"};

inline constexpr Mutant kModuleMutants[] = {
    {"MOD-01", kModule, kMedium,
     "FlashAttentionScoreGrad takes statistics of sparse mode 1 by token and head"},
    {"MOD-02", kModule, kMedium, "NsaCompressAttention writes its statistics by token and head"},
    {"MOD-03", kModule, kMedium,
     "selected gradient over the first K blocks instead of the list of the forward"},
    {"MOD-04", kModule, kHard,
     "compress gradient with the tokens of the last forward of these shapes: the values' for keys"},
    {"MOD-05", kModule, kMedium, "window one token longer, forward and gradient alike"},
    {"MOD-06", kModule, kMedium, "gradient of the window sees one token ahead"},
    {"MOD-07", kModule, kMedium, "last entry of the list not read, forward and gradient alike"},
    {"MOD-08", kModule, kEasy, "lists numbered through all sequences of the pack"},
    {"MOD-09", kModule, kMedium,
     "selected gradient leaves dv of keys that no list has as the last call of its shape wrote it"},
    {"MOD-10", kModule, kHard,
     "flash gradient with the output of the last flash forward of these shapes"},
    {"MOD-11", kModule, kHard,
     "flash gradient with the statistics of the last flash forward of these shapes"},
    {"MOD-12", kModule, kHard, "weights kept by shape: values are pooled with those of the keys"},
    {"MOD-13", kModule, kMedium, "selected gradient without its mask: later tokens get a share"},
    {"MOD-14", kModule, kHard, "flash gradient in sparse mode 1 with the scale 1 / sqrt(D)"},
    {"MOD-15", kModule, kMedium, "lists of the first kv head for all, forward and gradient alike"},
};

}  // namespace attncheck::mutants
