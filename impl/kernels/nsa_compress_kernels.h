#ifndef ATTNCHECK_IMPL_NSA_COMPRESS_KERNELS_H
#define ATTNCHECK_IMPL_NSA_COMPRESS_KERNELS_H

#include <cstdint>
#include <optional>

#include "impl/kernels/lines_ahead.h"
#include "impl/kernels/window_geometry.h"

/// Micro-kernels on one slab: kSlabTokens tokens that lie in the same `num_windows` windows.
///
/// They know neither sequences nor masks; the driver decides which windows are passed, every pass
/// multiplies. Token and head strides count elements, the head dimension is contiguous, pointers
/// are aligned to an element only. head_dim is a multiple of 16. fp32 throughout; outputs rounded
/// once, to nearest even.
namespace attncheck::impl {

struct CompressSlab {
    const std::uint16_t* input;  // token 0, head 0
    std::int64_t token_stride, head_stride, num_heads, head_dim;
    TokensAhead ahead;
    LineRequests requests;
    std::int64_t tokens_at_once;  // a divisor of kSlabTokens; not for pair kernels
    bool from_memory;     // the input is larger than a last-level cache; for pair kernels only
    const float* weight;  // [num_heads, block]: the weights of a window are contiguous
    const std::uint16_t* weight_halves;  // the same in bf16; for pair kernels only
    std::int64_t block;
    int num_windows;                          // 1 .. kMaxOpenWindows
    std::int64_t first_row[kMaxOpenWindows];  // r of token 0 in each window
    float* sums[kMaxOpenWindows];  // [num_heads, head_dim] each, 64-byte aligned; added to
};

/// kSlabTokens tokens of X and dX and the windows over them. W and dY are fp32, or bf16 where products
/// are of pairs.
template <class Number>
struct GradientSlabOf {
    const std::uint16_t* input;
    std::int64_t input_token_stride, input_head_stride;
    TokensAhead ahead;
    LineRequests requests;  // up to KernelTable::most_in_rows windows; beyond them always kTwice
    std::uint16_t* input_grad;
    std::int64_t grad_token_stride, grad_head_stride, num_heads, head_dim;
    const Number* weight;  // as in CompressSlab
    std::int64_t block;
    int num_windows;  // 1 .. kMaxOpenWindows
    std::int64_t first_row[kMaxOpenWindows];
    const Number* output_grad[kMaxOpenWindows];  // [num_heads, head_dim] each, 64-byte aligned
    float* weight_grad_lanes;  // [num_heads, block, kLanesPerSum], 64-byte aligned; added to
    bool bypass_cache;  // input_grad rows are 32-byte aligned and too many to be kept in cache
};
using GradientSlab = GradientSlabOf<float>;

/// A dW element is kept as this many partial sums, which vectors of up to 16 lanes add to directly.
inline constexpr std::int64_t kLanesPerSum = 16;

struct CompressPairKernels;  // nsa_compress_pair_kernels.h

/// One instruction set's kernels; the arrays are indexed by HalfFormat.
struct KernelTable {
    const char* isa;
    LineRequests requests;  // of rows that are short enough
    int most_in_rows;       // windows for which gradient_slab takes several rows at once
    // Rows of `count` elements, a multiple of 16.
    void (*widen_row[2])(const std::uint16_t* from, float* to, std::int64_t count);
    // Of sums of products of such elements: the 16 low bits of a NaN are 0 then.
    void (*narrow_row[2])(const float* from, std::uint16_t* to, std::int64_t count);
    // As narrow_row, past the cache; `to` is 64-byte aligned.
    void (*stream_row[2])(const float* from, std::uint16_t* to, std::int64_t count);
    void (*compress_slab[2])(const CompressSlab&);
    void (*gradient_slab[2])(const GradientSlab&);
    void (*end_of_stores)();           // orders cache-bypassing stores before whatever follows
    const CompressPairKernels* pairs;  // for bf16 in place of compress_slab and gradient_slab
};

/// Kernels of default_instruction_set(), with its exception.
const KernelTable& default_kernels();

/// Kernels by name, as in find_instruction_set; nothing if not available here.
std::optional<KernelTable> find_kernels(const char* isa);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_NSA_COMPRESS_KERNELS_H
