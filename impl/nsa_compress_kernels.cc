#include "impl/nsa_compress_kernels.h"

#include <utility>

#include "impl/instruction_set.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "impl/nsa_compress_kernels.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "impl/half_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attncheck::impl {
namespace HWY_NAMESPACE {

constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));

template <class Format>
HWY_INLINE FloatVec load_half(const std::uint16_t* from) {
    return Format::widen(hn::LoadU(HalfTag(), from));
}

constexpr std::int64_t kLineElements = 32;  // of 2 bytes in a line of 64 bytes

// Asks for a line of a later slab, into the second level: a prototype reached 26 GB/s that way and
// 16 GB/s with requests into the first (one thread, one run each; cause unknown). The
// address is a hint that may lie outside the tensor, hence integer arithmetic.
HWY_INLINE void prefetch_line(std::uintptr_t address) {
    __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 2);
}

// Walks the rows of the next slab in the order of memory (head fastest) while the kernel walks the
// current one head by head: the hardware follows the former and not the latter. One thread,
// 64 MiB, busy machine: 12 GB/s without (reading alone 40), 22 GB/s with (reading alone 30).
class NextSlabRows {
public:
    HWY_INLINE NextSlabRows(const CompressSlab& slab, std::int64_t step) : slab_(slab) {
        token_ = kSlabTokens + step / slab.num_heads;
        head_ = step % slab.num_heads;
    }
    HWY_INLINE std::uintptr_t row() const {
        const std::int64_t offset = token_ * slab_.token_stride + head_ * slab_.head_stride;
        return reinterpret_cast<std::uintptr_t>(slab_.input) +
               static_cast<std::uintptr_t>(offset) * sizeof(std::uint16_t);
    }
    HWY_INLINE void advance() {
        if (++head_ == slab_.num_heads) {
            head_ = 0;
            ++token_;
        }
    }

private:
    const CompressSlab& slab_;
    std::int64_t token_, head_;
};

template <class Format>
void widen_row(const std::uint16_t* from, float* to, std::int64_t count) {
    for (std::int64_t c = 0; c < count; c += kLanes)
        hn::StoreU(load_half<Format>(from + c), FloatTag(), to + c);
}

template <class Format>
void narrow_row(const float* from, std::uint16_t* to, std::int64_t count) {
    for (std::int64_t c = 0; c < count; c += kLanes) {
        hn::StoreU(Format::narrow(hn::LoadU(FloatTag(), from + c)), HalfTag(), to + c);
    }
}

// Forward register tile: kWindows x kVectors sums stay in registers over the tokens of the slab, so
// that each input vector is loaded and widened once and feeds kWindows multiply-adds.
template <class Format, int kWindows, int kVectors>
HWY_INLINE void compress_tile(const CompressSlab& slab, std::int64_t head, std::int64_t c) {
    const FloatTag d;
    const std::uint16_t* input = slab.input + head * slab.head_stride + c;
    const float* weight[kWindows];
    float* sums[kWindows];
    FloatVec sum[kWindows][kVectors];
    for (int k = 0; k < kWindows; ++k) {
        weight[k] = slab.weight + head * slab.block + slab.first_row[k];
        sums[k] = slab.sums[k] + head * slab.head_dim + c;
        for (int v = 0; v < kVectors; ++v) sum[k][v] = hn::Load(d, sums[k] + v * kLanes);
    }
    NextSlabRows next(slab, head * kSlabTokens);
    for (std::int64_t i = 0; i < kSlabTokens; ++i) {
        const std::uintptr_t next_row =
            next.row() + static_cast<std::uintptr_t>(c) * sizeof(std::uint16_t);
        next.advance();
        const std::uint16_t* token = input + i * slab.token_stride;
        for (int v = 0; v < kVectors; ++v) {
            if (v * kLanes % kLineElements == 0)
                prefetch_line(next_row + v * kLanes * sizeof(std::uint16_t));
            const FloatVec x = load_half<Format>(token + v * kLanes);
            for (int k = 0; k < kWindows; ++k) {
                sum[k][v] = hn::MulAdd(x, hn::Set(d, weight[k][i]), sum[k][v]);
            }
        }
    }
    for (int k = 0; k < kWindows; ++k) {
        for (int v = 0; v < kVectors; ++v) hn::Store(sum[k][v], d, sums[k] + v * kLanes);
    }
}

// Widest tile that leaves registers for one input vector and the broadcast weights: 24 of the 32
// registers of a 16-lane target, 12 of 16 otherwise.
template <int kWindows>
constexpr int widest_tile() {
    const int registers = kLanes >= 16 ? 24 : 12;
    int vectors = 8;
    while (vectors > 1 && vectors * kWindows > registers) vectors /= 2;
    return vectors;
}

template <class Format, int kWindows, int kVectors>
HWY_INLINE void compress_tiles(const CompressSlab& slab, std::int64_t head, std::int64_t c) {
    for (; c + kVectors * kLanes <= slab.head_dim; c += kVectors * kLanes) {
        compress_tile<Format, kWindows, kVectors>(slab, head, c);
    }
    if constexpr (kVectors > 1) {
        if (c < slab.head_dim) compress_tiles<Format, kWindows, kVectors / 2>(slab, head, c);
    }
}

template <class Format, int kWindows>
void compress_windows(const CompressSlab& slab) {
    for (std::int64_t head = 0; head < slab.num_heads; ++head) {
        compress_tiles<Format, kWindows, widest_tile<kWindows>()>(slab, head, 0);
    }
}

// Partial vectors are stored through the cache: a streaming store exists for whole registers only.
template <bool kBypassCache>
HWY_INLINE void store_half(HalfVec half, std::uint16_t* to) {
    if constexpr (kBypassCache && kLanes >= 8) {
        hn::Stream(half, HalfTag(), to);
    } else {
        hn::StoreU(half, HalfTag(), to);
    }
}

// Bytes ahead of the current row. One thread, 64 MiB, fraction of copy bandwidth: none 0.48, 1 KiB
// 0.51, 4 KiB 0.44, 16 KiB 0.46. Tiles of two and four tokens, which share the loads of dY, reached
// 0.33 and 0.38: rows have to be walked in the order of memory.
constexpr std::uintptr_t kGradientLookahead = 1024;

// One pass over a token row gives both gradients:  dX = sum_k w_k * dY_k,   dW_k += dY_k . X.
template <class Format, int kWindows, bool kBypassCache>
HWY_INLINE void gradient_row(const GradientSlab& slab, std::int64_t token, std::int64_t head) {
    const FloatTag d;
    const std::uint16_t* HWY_RESTRICT input =
        slab.input + token * slab.input_token_stride + head * slab.input_head_stride;
    std::uint16_t* HWY_RESTRICT input_grad =
        slab.input_grad + token * slab.grad_token_stride + head * slab.grad_head_stride;
    const float* HWY_RESTRICT output_grad[kWindows];
    FloatVec weight[kWindows], product[kWindows];
    for (int k = 0; k < kWindows; ++k) {
        output_grad[k] = slab.output_grad[k] + head * slab.head_dim;
        weight[k] = hn::Set(d, slab.weight[head * slab.block + slab.first_row[k] + token]);
        product[k] = hn::Zero(d);
    }
    const std::int64_t head_dim = slab.head_dim;
    const auto vector_at = [&](std::int64_t c) HWY_ATTR {
        const FloatVec x = load_half<Format>(input + c);
        FloatVec g = hn::Load(d, output_grad[0] + c);
        FloatVec sum = hn::Mul(g, weight[0]);
        product[0] = hn::MulAdd(g, x, product[0]);
        for (int k = 1; k < kWindows; ++k) {
            g = hn::Load(d, output_grad[k] + c);
            sum = hn::MulAdd(g, weight[k], sum);
            product[k] = hn::MulAdd(g, x, product[k]);
        }
        return sum;
    };
    std::int64_t c = 0;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    if constexpr (kBypassCache) {  // whole lines
        for (; c + 2 * kLanes <= head_dim; c += 2 * kLanes) {
            prefetch_line(reinterpret_cast<std::uintptr_t>(input + c) + kGradientLookahead);
            const FloatVec low = vector_at(c), high = vector_at(c + kLanes);
            hn::Stream(Format::narrow_line(low, high), LineTag(), input_grad + c);
        }
    }
#endif
    for (; c < head_dim; c += kLanes)
        store_half<kBypassCache>(Format::narrow(vector_at(c)), input_grad + c);
    for (int k = 0; k < kWindows; ++k) {
        const std::int64_t row = head * slab.block + slab.first_row[k] + token;
        float* lanes = slab.weight_grad_lanes + row * kLanesPerSum;
        hn::Store(hn::Add(hn::Load(d, lanes), product[k]), d, lanes);
    }
}

template <class Format, int kWindows, bool kBypassCache>
HWY_INLINE void gradient_rows(const GradientSlab& slab) {
    for (std::int64_t token = 0; token < kSlabTokens; ++token) {
        for (std::int64_t head = 0; head < slab.num_heads; ++head) {
            gradient_row<Format, kWindows, kBypassCache>(slab, token, head);
        }
    }
}

template <class Format, int kWindows>
void gradient_windows(const GradientSlab& slab) {
    if (slab.bypass_cache) {
        gradient_rows<Format, kWindows, true>(slab);
    } else {
        gradient_rows<Format, kWindows, false>(slab);
    }
}

template <class Format, int... kIndex>
HWY_INLINE void dispatch_compress(const CompressSlab& slab, std::integer_sequence<int, kIndex...>) {
    using Kernel = void (*)(const CompressSlab&);
    static constexpr Kernel kKernels[] = {&compress_windows<Format, kIndex + 1>...};
    kKernels[slab.num_windows - 1](slab);
}

template <class Format, int... kIndex>
HWY_INLINE void dispatch_gradient(const GradientSlab& slab, std::integer_sequence<int, kIndex...>) {
    using Kernel = void (*)(const GradientSlab&);
    static constexpr Kernel kKernels[] = {&gradient_windows<Format, kIndex + 1>...};
    kKernels[slab.num_windows - 1](slab);
}

template <class Format>
void compress_slab(const CompressSlab& slab) {
    dispatch_compress<Format>(slab, std::make_integer_sequence<int, kMaxOpenWindows>());
}

template <class Format>
void gradient_slab(const GradientSlab& slab) {
    dispatch_gradient<Format>(slab, std::make_integer_sequence<int, kMaxOpenWindows>());
}

void end_of_stores() { hwy::FlushStream(); }

const KernelTable* kernel_table() {
    static const KernelTable table = {
        nullptr,
        {&widen_row<Fp16>, &widen_row<Bf16>},
        {&narrow_row<Fp16>, &narrow_row<Bf16>},
        {&compress_slab<Fp16>, &compress_slab<Bf16>},
        {&gradient_slab<Fp16>, &gradient_slab<Bf16>},
        &end_of_stores,
    };
    return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace attncheck::impl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attncheck::impl {
namespace {

HWY_EXPORT(kernel_table);

// A private choice of target: Highway's global one belongs to the whole process and may be in use
// elsewhere.
KernelTable kernels_of(const InstructionSet& set) {
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
    KernelTable kernels = *HWY_STATIC_DISPATCH(kernel_table)();
#else
    hwy::ChosenTarget choice;
    choice.Update(set.targets);
    KernelTable kernels = *HWY_DISPATCH_TABLE(kernel_table)[choice.GetIndex()]();
#endif
    kernels.isa = set.name;
    return kernels;
}

}  // namespace

std::optional<KernelTable> find_kernels(const char* isa) {
    const std::optional<InstructionSet> set = find_instruction_set(isa);
    if (!set) return std::nullopt;
    return kernels_of(*set);
}

const KernelTable& default_kernels() {
    static const KernelTable kernels = kernels_of(default_instruction_set());
    return kernels;
}

}  // namespace attncheck::impl
#endif  // HWY_ONCE
