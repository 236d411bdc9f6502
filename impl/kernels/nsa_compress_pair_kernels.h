#ifndef ATTNCHECK_IMPL_NSA_COMPRESS_PAIR_KERNELS_H
#define ATTNCHECK_IMPL_NSA_COMPRESS_PAIR_KERNELS_H

#include <cstdint>

#include "impl/kernels/nsa_compress_kernels.h"

/// bf16 micro-kernels of compression around the instruction that multiplies two pairs of bf16
/// numbers and adds both products to an fp32 sum (vdpbf16ps).
///
///   sum + a b  =  fma(a_even, b_even, fma(a_odd, b_odd, sum))
///
/// Pairs are neighbouring tokens forward, neighbouring windows in dX, neighbouring channels in dW.
/// Every kernel exists twice. The *exact* one forms those two multiply-adds; the other one is the
/// instruction, which reads subnormals as zero and writes subnormal sums as zero. Apart from that
/// their bits are the same (a test compares them on this machine), so that a driver may take either
/// wherever nothing subnormal can matter:
///
///   weights and dY are plain (bf16_dot_kernels.h: 0 or of magnitude in [2^-38, 2^20)), else exact;
///   dX is then free of subnormals: its products are multiples of 2^-90;
///   a subnormal X that is read as zero costs less than 2^-106, a lost partial sum less than
///   2^-126. That is nothing beside a sum of kLeastSum or more; other sums, infinity and NaN among
///   them, are computed again by the exact kernel.
namespace attncheck::impl {

/// Forward: at most 128 products, 2^-98 lost, is 2^-38 of it.
inline constexpr float kLeastSum = 0x1p-60f;
/// dW: at most 2^40 products, 2^-65 lost, is 2^-25 of it and below half an ulp of fp32.
inline constexpr float kLeastWeightGrad = 0x1p-40f;

/// `grad_pairs` is room for the pairs of neighbouring windows, [(num_windows + 1) / 2, num_heads *
/// head_dim].
struct PairGradientSlab : GradientSlabOf<std::uint16_t> {
    std::uint32_t* grad_pairs;
};

/// Forward: tokens that are done before the next are begun, at most. 8 rows of the usual 4 heads of
/// 128, and what was asked for of the next 8, fit the first level.
inline constexpr std::int64_t kPairTokens = 8;

struct CompressPairKernels {
    /// As KernelTable::compress_slab, `weight_halves` in place of `weight`; the sums are in an
    /// order of their own until order_sums.
    void (*compress_slab)(const CompressSlab&);
    void (*exact_compress_slab)(const CompressSlab&);
    /// The sums of one head into the order of channels, or of several neighbouring ones of whole
    /// lines. Returns whether all of them are plain sums: finite and not below kLeastSum.
    bool (*order_sums)(float* sums, std::int64_t num_channels);
    /// The same of whole lines in one pass: ordered, rounded, and with [true] stored past the cache
    /// at `to`, which is 64-byte aligned then. `sums` stay as they are; what is stored is right if
    /// all of them are plain.
    bool (*round_sums[2])(const float* sums, std::uint16_t* to, std::int64_t num_channels);
    void (*gradient_slab)(const PairGradientSlab&);
    void (*exact_gradient_slab)(const PairGradientSlab&);
};

/// Null where this machine, or the compiler's target, has no such instruction.
const CompressPairKernels* compress_pair_kernels();

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_NSA_COMPRESS_PAIR_KERNELS_H
