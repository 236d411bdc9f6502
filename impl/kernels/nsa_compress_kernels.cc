#include "impl/kernels/nsa_compress_kernels.h"

#include <utility>

#include "impl/kernels/instruction_set.h"
#include "impl/kernels/lines_ahead.h"
#include "impl/kernels/nsa_compress_pair_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "impl/kernels/nsa_compress_kernels.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "impl/kernels/half_vectors-inl.h"
#include "impl/kernels/kernel_versions.h"

HWY_BEFORE_NAMESPACE();
namespace attncheck::impl {
namespace HWY_NAMESPACE {

constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));

template <class Format>
HWY_INLINE FloatVec load_half(const std::uint16_t* from) {
    return Format::widen(hn::LoadU(HalfTag(), from));
}

// LinesAhead forward, in two walks: fp16 is no faster than memory there, and a loop that asks for
// one line at a time does so evenly.
class LineWalk {
public:
    LineWalk(std::uintptr_t begin, std::int64_t row_elements, std::int64_t row_stride)
        : line_(begin),
          row_end_(begin + static_cast<std::uintptr_t>(row_elements) * sizeof(std::uint16_t)),
          row_bytes_(static_cast<std::uintptr_t>(row_elements) * sizeof(std::uint16_t)),
          row_step_(static_cast<std::uintptr_t>(row_stride) * sizeof(std::uint16_t)) {}
    HWY_INLINE std::uintptr_t next() {
        const std::uintptr_t line = line_;
        line_ += kLineBytes;
        if (line_ >= row_end_) {
            line_ = row_end_ - row_bytes_ + row_step_;
            row_end_ += row_step_;
        }
        return line;
    }

private:
    std::uintptr_t line_, row_end_, row_bytes_, row_step_;
};

struct SlabLinesAhead {
    LineWalk far, near;
    LineRequests requests;

    // Of all heads where they are neighbours in memory, else of one.
    static SlabLinesAhead of(const CompressSlab& slab, std::int64_t token, std::int64_t head) {
        const std::int64_t heads = slab.head_stride == slab.head_dim ? slab.num_heads : 1;
        const auto lines = [&](std::int64_t tokens) {
            return LineWalk(
                byte_address(slab.input, tokens * slab.token_stride + head * slab.head_stride),
                heads * slab.head_dim, slab.token_stride);
        };
        return {lines(token + slab.ahead.far), lines(token + slab.ahead.near), slab.requests};
    }
    HWY_INLINE void request_next() {
        if (requests == LineRequests::kTwice) {
            request_into_second(far.next());
            request_into_second(near.next());
        } else {
            request_into_first(near.next());
        }
    }
};

template <class Format>
void widen_row(const std::uint16_t* from, float* to, std::int64_t count) {
    for (std::int64_t c = 0; c < count; c += kLanes)
        hn::StoreU(load_half<Format>(from + c), FloatTag(), to + c);
}

template <class Format>
void narrow_row(const float* from, std::uint16_t* to, std::int64_t count) {
    for (std::int64_t c = 0; c < count; c += kLanes) {
        hn::StoreU(Format::narrow_sum(hn::LoadU(FloatTag(), from + c)), HalfTag(), to + c);
    }
}

struct Tokens {
    std::int64_t begin, count;
};

// The loop over tokens is not unrolled: the hardware follows a sequence of addresses best when one
// instruction makes it. Forward register tile: kWindows x kVectors sums stay in registers over the
// tokens, so that each input vector is loaded and widened once and feeds kWindows
// multiply-adds.
template <class Format, int kWindows, int kVectors>
HWY_INLINE void compress_tile(const CompressSlab& slab, Tokens tokens, std::int64_t head,
                              std::int64_t c, SlabLinesAhead& ahead) {
    const FloatTag d;
    const std::uint16_t* input =
        slab.input + tokens.begin * slab.token_stride + head * slab.head_stride + c;
    const float* weight[kWindows];
    float* sums[kWindows];
    FloatVec sum[kWindows][kVectors];
    for (int k = 0; k < kWindows; ++k) {
        weight[k] = slab.weight + head * slab.block + slab.first_row[k] + tokens.begin;
        sums[k] = slab.sums[k] + head * slab.head_dim + c;
        for (int v = 0; v < kVectors; ++v) sum[k][v] = hn::Load(d, sums[k] + v * kLanes);
    }
    SlabLinesAhead lines = ahead;
#pragma GCC unroll 1
    for (std::int64_t i = 0; i < tokens.count; ++i) {
        const std::uint16_t* token = input + i * slab.token_stride;
        for (int v = 0; v < kVectors; ++v) {
            if (v * kLanes % kLineElements == 0) lines.request_next();
            const FloatVec x = load_half<Format>(token + v * kLanes);
            for (int k = 0; k < kWindows; ++k) {
                sum[k][v] = hn::MulAdd(x, hn::Set(d, weight[k][i]), sum[k][v]);
            }
        }
    }
    ahead = lines;
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
HWY_INLINE void compress_tiles(const CompressSlab& slab, Tokens tokens, std::int64_t head,
                               std::int64_t c, SlabLinesAhead& ahead) {
    for (; c + kVectors * kLanes <= slab.head_dim; c += kVectors * kLanes) {
        compress_tile<Format, kWindows, kVectors>(slab, tokens, head, c, ahead);
    }
    if constexpr (kVectors > 1) {
        if (c < slab.head_dim)
            compress_tiles<Format, kWindows, kVectors / 2>(slab, tokens, head, c, ahead);
    }
}

template <class Format, int kWindows>
HWY_INLINE void compress_windows_by(const CompressSlab& slab, std::int64_t tokens_at_once) {
    for (Tokens tokens{0, tokens_at_once}; tokens.begin < kSlabTokens;
         tokens.begin += tokens.count) {
        SlabLinesAhead ahead = SlabLinesAhead::of(slab, tokens.begin, 0);
        for (std::int64_t head = 0; head < slab.num_heads; ++head) {
            if (head > 0 && slab.head_stride != slab.head_dim)
                ahead = SlabLinesAhead::of(slab, tokens.begin, head);
            compress_tiles<Format, kWindows, widest_tile<kWindows>()>(slab, tokens, head, 0, ahead);
        }
    }
}

template <class Format, int kWindows>
void compress_windows(const CompressSlab& slab) {
    if (kLanes >= 8 && slab.tokens_at_once == kSlabTokens) {
        compress_windows_by<Format, kWindows>(slab, kSlabTokens);  // a number that is known
    } else {
        compress_windows_by<Format, kWindows>(slab, slab.tokens_at_once);
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

template <class Format>
void stream_row(const float* from, std::uint16_t* to, std::int64_t count) {
    const FloatTag d;
    std::int64_t c = 0;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    for (; c + 2 * kLanes <= count; c += 2 * kLanes) {  // whole lines
        const LineVec line =
            Format::narrow_sums(hn::LoadU(d, from + c), hn::LoadU(d, from + c + kLanes));
        hn::Stream(line, LineTag(), to + c);
    }
#endif
    for (; c < count; c += kLanes)
        store_half<true>(Format::narrow_sum(hn::LoadU(d, from + c)), to + c);
}

#include "impl/kernels/nsa_compress_gradient-inl.h"

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
        LineRequests::kOnce,
        kMostInRows,
        {&widen_row<Fp16>, &widen_row<Bf16>},
        {&narrow_row<Fp16>, &narrow_row<Bf16>},
        {&stream_row<Fp16>, &stream_row<Bf16>},
        {&compress_slab<Fp16>, &compress_slab<Bf16>},
        {&gradient_slab<Fp16>, &gradient_slab<Bf16>},
        &end_of_stores,
        nullptr,
    };
    return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace attncheck::impl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attncheck::impl {
namespace {

ATTNCHECK_VERSIONS(kernel_table)

KernelTable kernels_of(const InstructionSet& set) {
    KernelTable kernels = *versions_of_kernel_table(set);
    kernels.isa = set.name;
    kernels.requests = default_line_requests();
    if (set.bf16_dot != nullptr) kernels.pairs = compress_pair_kernels();
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
