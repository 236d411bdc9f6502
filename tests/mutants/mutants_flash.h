// Defects of FlashAttentionScore and its gradient. Those of one direction have headers of their
// own; here are the ones that both share: the rulings (VAL) and what is not special to the operator
// (ALL). FA-VAL-07 is VAL-07 of the catalogue of bug classes for these operators, and so on.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>

#include "mutant.h"
#include "mutants_flash_forward.h"
#include "mutants_flash_gradient.h"

namespace attncheck::mutants {

inline constexpr Mutant kFlashSharedMutants[] = {
    {"FA-x116", kFlashBoth, kHard, "TND pse that fits both flat forms taken as pairs"},
    {"FA-ALL-02", kFlashBoth, kHard, "strides of value ignored"},
    {"FA-ALL-03", kFlashBoth, kMedium, "address of the query rounded down to 64 bytes"},
    {"FA-ALL-05", kFlashBoth, kHard,
     "pitch of the keys derived from the stride of a head dimension of size 1"},
    {"FA-ALL-09a", kFlashBoth, kFiendish,
     "plan cached by shapes only: lengths of the first call reused"},
    {"FA-ALL-09b", kFlashBoth, kFiendish,
     "plan cached by shapes only: scale of the first call reused"},
    {"FA-ALL-09c", kFlashBoth, kFiendish,
     "plan cached by shapes only: sparse_mode of the first call reused"},
    {"FA-ALL-09d", kFlashBoth, kFiendish,
     "plan cached by shapes only: keep_prob of the first call reused"},
    {"FA-ALL-09e", kFlashBoth, kFiendish,
     "plan cached by shapes only: next_tokens of the first call reused"},
    {"FA-ALL-10", kFlashBoth, kHard, "static scratch shared by concurrent calls"},
    {"FA-ALL-11", kFlashBoth, kHard,
     "scratch regions placed without rounding up: they overlap for some shapes"},
    {"FA-ALL-14", kFlashBoth, kHard, "mask inverted in place"},
    {"FA-VAL-07", kFlashBoth, kMedium, "decreasing cumulative lengths accepted"},
    {"FA-VAL-35", kFlashBoth, kHard, "negative first cumulative length accepted"},
    {"FA-VAL-x01", kFlashBoth, kHard, "dtypes checked before absent arguments"},
    {"FA-VAL-x02", kFlashGrad, kMedium, "absent statistics accepted"},
    {"FA-VAL-x03", kFlashGrad, kMedium, "absent attention_in accepted"},
    {"FA-VAL-x04", kFlashBoth, kMedium, "absent softmax layout string accepted"},
    {"FA-VAL-x05", kFlashBoth, kMedium, "layout in lower case accepted"},
    {"FA-VAL-x06", kFlashBoth, kMedium, "legal SBH rejected"},
    {"FA-VAL-x07", kFlashBoth, kMedium, "any softmax layout string accepted"},
    {"FA-VAL-x08", kFlashBoth, kMedium, "\"same_as_input\" accepted outside TND"},
    {"FA-VAL-x09", kFlashBoth, kMedium, "legal \"same_as_input\" rejected"},
    {"FA-VAL-x10", kFlashBoth, kMedium, "legal fp32 rejected"},
    {"FA-VAL-x11", kFlashBoth, kMedium, "dtype of the statistics not checked"},
    {"FA-VAL-x12", kFlashGrad, kMedium, "dtype of dy not compared"},
    {"FA-VAL-x13", kFlashBoth, kHard, "keep_prob that is 0 in fp32 accepted"},
    {"FA-VAL-x14", kFlashBoth, kMedium, "keep_prob > 1 accepted"},
    {"FA-VAL-x15", kFlashBoth, kHard, "keep_prob NaN accepted"},
    {"FA-VAL-x16", kFlashBoth, kHard, "legal keep_prob that rounds to 1 rejected"},
    {"FA-VAL-x17", kFlashBoth, kMedium, "head_num > 256 accepted"},
    {"FA-VAL-x18", kFlashBoth, kMedium, "sparse_mode > 8 accepted"},
    {"FA-VAL-x19", kFlashBoth, kHard, "modes 7, 8 without a mask accepted outside TND"},
    {"FA-VAL-x20", kFlashBoth, kMedium, "mode 5 accepted in TND"},
    {"FA-VAL-x21", kFlashBoth, kMedium, "pse_type outside 0..3 accepted"},
    {"FA-VAL-x22", kFlashBoth, kHard, "legal scale that is not finite rejected"},
    {"FA-VAL-x23", kFlashBoth, kHard, "legal inner_precise > 4 rejected"},
    {"FA-VAL-x24", kFlashBoth, kMedium,
     "BSH, SBH: hidden size that is no multiple of head_num accepted"},
    {"FA-VAL-x25", kFlashBoth, kMedium,
     "BSH, SBH: hidden size of the values that is no multiple of N2 accepted"},
    {"FA-VAL-x26", kFlashBoth, kMedium, "head_num not compared with N1"},
    {"FA-VAL-x27", kFlashBoth, kMedium, "D of the keys not compared"},
    {"FA-VAL-x28", kFlashBoth, kMedium, "heads of the values not compared"},
    {"FA-VAL-x29", kFlashBoth, kMedium, "D up to 768 accepted"},
    {"FA-VAL-x30", kFlashBoth, kMedium, "legal D that is no multiple of 8 rejected"},
    {"FA-VAL-x31", kFlashBoth, kMedium, "Dv > D accepted"},
    {"FA-VAL-x32", kFlashBoth, kMedium, "legal Dv < D rejected"},
    {"FA-VAL-x33", kFlashBoth, kMedium, "N1 that is no multiple of N2 accepted"},
    {"FA-VAL-x34", kFlashBoth, kHard, "S and T above 1 Mi accepted"},
    {"FA-VAL-x35", kFlashBoth, kHard, "legal calls without keys rejected"},
    {"FA-VAL-x36", kFlashBoth, kHard, "legal calls without queries rejected"},
    {"FA-VAL-x37", kFlashBoth, kMedium, "rows of the values not compared"},
    {"FA-VAL-x38", kFlashBoth, kHard, "legal B == 0 rejected"},
    {"FA-VAL-x39", kFlashBoth, kMedium, "batches of the values not compared"},
    {"FA-VAL-x40", kFlashBoth, kMedium, "extents of softmax_sum not checked"},
    {"FA-VAL-x41", kFlashGrad, kMedium, "extents of dy not checked"},
    {"FA-VAL-x42", kFlashGrad, kMedium, "extents of attention_in not checked"},
    {"FA-VAL-x43", kFlashBoth, kHard, "empty length array accepted"},
    {"FA-VAL-x44", kFlashBoth, kHard, "legal length arrays of more than 2048 entries rejected"},
    {"FA-VAL-x45", kFlashBoth, kMedium, "last cumulative length > T accepted"},
    {"FA-VAL-x46", kFlashBoth, kHard, "legal T > last cumulative length rejected"},
    {"FA-VAL-x47", kFlashBoth, kMedium, "length arrays of different size accepted"},
    {"FA-VAL-x48", kFlashBoth, kMedium, "extents of the outputs not checked"},
    {"FA-VAL-x49", kFlashBoth, kHard,
     "first output element zeroed before the arguments are checked"},
    {"FA-VAL-x50", kFlashBoth, kHard,
     "scratch for the elements of a query of rank 3 allocated before the check: a huge one aborts"},
    {"FA-VAL-x51", kFlashBoth, kMedium, "padding_mask accepted"},
    {"FA-VAL-x52", kFlashGrad, kMedium, "rope gradients accepted without ropes"},
    {"FA-VAL-x53", kFlashBoth, kMedium, "pse_type 2, 3: slopes of the query's dtype accepted"},
    {"FA-VAL-x54", kFlashBoth, kMedium, "pse_type 2, 3: extents of the slopes not checked"},
    {"FA-VAL-x55", kFlashBoth, kHard, "legal slopes [B,N1] rejected"},
    {"FA-VAL-x56", kFlashBoth, kMedium, "mode 6: absent prefix accepted"},
    {"FA-VAL-x57", kFlashBoth, kMedium, "size of prefix not compared with B"},
    {"FA-VAL-x58", kFlashBoth, kHard, "more than 2048 batches accepted with prefix"},
    {"FA-VAL-x59", kFlashBoth, kHard, "prefix below max(0, S2-S1) accepted"},
    {"FA-VAL-x60", kFlashBoth, kMedium, "prefix above S2 accepted"},
    {"FA-VAL-x61", kFlashBoth, kHard, "legal prefix S2 rejected"},
    {"FA-VAL-x62", kFlashBoth, kHard, "legal prefix 0 rejected"},
    {"FA-VAL-x63", kFlashBoth, kHard, "mode 0: limits of negative tokens swapped"},
    {"FA-VAL-x64", kFlashBoth, kHard, "mode 0: negative tokens not checked"},
    {"FA-VAL-x65", kFlashBoth, kHard, "mode 0: legal negative next_tokens rejected"},
    {"FA-VAL-x66", kFlashBoth, kHard, "mode 4: empty band accepted"},
    {"FA-VAL-x67", kFlashBoth, kHard, "mode 4: legal pre + next == 0 rejected"},
    {"FA-VAL-x68", kFlashBoth, kHard, "mode 4: legal negative pre_tokens rejected in TND"},
    {"FA-VAL-x69", kFlashBoth, kHard, "modes 0, 4: legal pre_tokens above 32 bits rejected"},
    {"FA-VAL-x70", kFlashBoth, kHard, "modes 1, 2, 3: tokens checked although unused"},
    {"FA-VAL-x71", kFlashBoth, kHard, "TND modes 3, 7: S1 > S2 accepted"},
    {"FA-VAL-x72", kFlashBoth, kHard,
     "TND modes 3, 7: legal sequence with queries and no keys rejected"},
    {"FA-VAL-x73", kFlashBoth, kHard, "modes 7, 8: pre_tokens of the band sequence not checked"},
    {"FA-VAL-x74", kFlashBoth, kHard,
     "modes 7, 8: next_tokens < S1 - S2 of the band sequence accepted"},
    {"FA-VAL-x75", kFlashBoth, kHard, "mode 7: next_tokens > 0 accepted"},
    {"FA-VAL-x76", kFlashBoth, kHard, "mode 8: legal next_tokens > 0 rejected"},
    {"FA-VAL-x77", kFlashBoth, kHard, "one rope without the other accepted"},
    {"FA-VAL-x78", kFlashBoth, kMedium, "ropes of any dtype accepted"},
    {"FA-VAL-x79", kFlashBoth, kMedium, "rope dim that is no multiple of 8 accepted"},
    {"FA-VAL-x80", kFlashBoth, kMedium, "rope dim > D accepted"},
    {"FA-VAL-x81", kFlashBoth, kMedium, "extents of key_rope not checked"},
    {"FA-VAL-x82", kFlashBoth, kHard, "ropes together with pse or dropout accepted"},
    {"FA-VAL-x83", kFlashBoth, kHard, "ropes in mode 6 accepted"},
    {"FA-VAL-x84", kFlashBoth, kMedium, "ropes without a mask accepted"},
    {"FA-VAL-x85", kFlashBoth, kMedium, "absent pse accepted with pse_type other than 1"},
    {"FA-VAL-x86", kFlashBoth, kMedium, "pse of another dtype accepted"},
    {"FA-VAL-x87", kFlashBoth, kMedium, "extents of pse not checked"},
    {"FA-VAL-x88", kFlashBoth, kHard, "legal pse with one batch for all rejected"},
    {"FA-VAL-x89", kFlashBoth, kHard, "TND: legal pse of rank 4 rejected"},
    {"FA-VAL-x90", kFlashBoth, kHard, "TND: legal pse of N1*sum(S2) elements rejected"},
    {"FA-VAL-x91", kFlashBoth, kHard, "legal compressed pse rejected"},
    {"FA-VAL-x92", kFlashBoth, kMedium, "absent drop_mask accepted with keep_prob < 1"},
    {"FA-VAL-x93", kFlashBoth, kHard, "legal drop_mask rejected when keep_prob is 1"},
    {"FA-VAL-x94", kFlashBoth, kMedium, "bool drop_mask accepted"},
    {"FA-VAL-x95", kFlashBoth, kHard, "legal drop_mask of rank > 1 rejected"},
    {"FA-VAL-x96", kFlashBoth, kMedium, "size of drop_mask not checked"},
    {"FA-VAL-x97", kFlashBoth, kHard, "legal drop_mask with bytes to spare rejected"},
    {"FA-VAL-x98", kFlashBoth, kMedium, "fp16 mask accepted"},
    {"FA-VAL-x99", kFlashBoth, kMedium, "legal uint8 mask rejected"},
    {"FA-VAL-x100", kFlashGrad, kMedium, "legal bool mask rejected"},
    {"FA-VAL-x101", kFlashBoth, kMedium, "modes 0, 1, 5: mask of any extents accepted"},
    {"FA-VAL-x102", kFlashBoth, kHard, "TND: legal mask [sum S1, sum S2] rejected"},
    {"FA-VAL-x103", kFlashBoth, kHard, "TND: legal mask of rank 4 rejected"},
    {"FA-VAL-x104", kFlashBoth, kHard, "compressed mask of rank 4 accepted"},
    {"FA-VAL-x105", kFlashBoth, kMedium, "compressed mask of any two extents accepted"},
    {"FA-VAL-x106", kFlashBoth, kHard, "mode 6: mask [2048,2048] accepted"},
    {"FA-VAL-x107", kFlashBoth, kHard, "tokens checked without a mask"},
    {"FA-VAL-x108", kFlashBoth, kHard, "mode 3 outside TND: legal S1 > S2 rejected"},
    {"FA-VAL-x109", kFlashBoth, kHard, "mode 7 with pse accepted"},
    {"FA-VAL-x110", kFlashBoth, kHard, "mode 8: pse without alignment accepted"},
    {"FA-VAL-x111", kFlashBoth, kHard, "pse_type 2, 3: S1 != S2 accepted"},
    {"FA-VAL-x112", kFlashBoth, kHard, "compressed pse accepted without causal visibility"},
    {"FA-VAL-x113", kFlashBoth, kHard, "compressed pse: legal causal mode 0 rejected"},
    {"FA-VAL-x114", kFlashBoth, kHard, "TND mode 7: S1 > S2 accepted, mode 3 not"},
    {"FA-VAL-x115", kFlashBoth, kHard, "prefix checked in the first and the last batch only"},
    {"FA-VAL-x116", kFlashBoth, kHard, "pse_type 2, 3: sums of S1 and S2 compared"},
    {"FA-VAL-x117", kFlashBoth, kHard, "mode 5: mask [S2,S1] accepted"},
    {"FA-VAL-x118", kFlashBoth, kHard, "mode 8: pse looked at in sequence 0 only"},
    {"FA-VAL-x119", kFlashBoth, kHard,
     "mode 7: next_tokens < S1 - S2 of the band sequence accepted, mode 8 not"},
    {"FA-VAL-x120", kFlashBoth, kHard, "legal rope dim D rejected"},
    {"FA-VAL-x121", kFlashBoth, kHard, "compressed pse: mode 0 with pre_tokens S1 - 1 accepted"},
    {"FA-VAL-x122", kFlashBoth, kHard, "mode 0: next_tokens -S2 accepted"},
    {"FA-VAL-x123", kFlashBoth, kHard, "TND mode 3: S1 > S2 accepted when the sums are not"},
    {"VAL-14", kFlashBoth, kMedium, "negative sparse_mode accepted"},
    {"VAL-15", kFlashBoth, kFiendish,
     "BSH, SBH: hidden size of the keys N2*D + r, r < N2, accepted"},
    {"VAL-16", kFlashBoth, kMedium, "BSH, SBH: hidden size of the keys below D ends the process"},
    {"VAL-17", kFlashBoth, kHard, "head_num compared in 32 bits"},
    {"VAL-19", kFlashBoth, kHard, "drop_mask may lack the last partial byte"},
    {"VAL-24", kFlashGrad, kHard, "TND: statistics required as [N1,T1,8]"},
    {"VAL-25", kFlashBoth, kMedium, "SBH: S1 and S2 compared instead of the batches"},
    {"VAL-26", kFlashBoth, kMedium, "legal empty sequences rejected"},
    {"VAL-28", kFlashBoth, kHard, "number of drop bits kept in 32 bits"},
    {"VAL-32", kFlashBoth, kEasy, "dtype of value not compared"},
};

/// The whole family.
inline constexpr auto kFlashMutants = [] {
    std::array<Mutant, std::size(kFlashForwardMutants) + std::size(kFlashGradientMutants) +
                           std::size(kFlashSharedMutants)>
        all{};
    auto* end =
        std::copy(std::begin(kFlashForwardMutants), std::end(kFlashForwardMutants), all.begin());
    end = std::copy(std::begin(kFlashGradientMutants), std::end(kFlashGradientMutants), end);
    std::copy(std::begin(kFlashSharedMutants), std::end(kFlashSharedMutants), end);
    return all;
}();

// Of the catalogue are left out:
//   FAG-26   offsets in 32 bits: a legal trigger needs more than 2^31 elements of memory.
//   FAG-37   gradient of pse: the interface has no output for it (reserved by the contract).
//   FAG-39   missing wait for the producer of dy: calls are synchronous, there is no producer.
// Changed: FA-69 in BNSD only, where the next head follows; FA-72 has the range of lengths of the
// bug it stands for; ALL-18 for the gradient only, because the forward's outputs are all empty when
// its statistics are; VAL-35 without T > last length, which is legal here; FA-08 and FA-17 for
// every mode that they fit.

}  // namespace attncheck::mutants
