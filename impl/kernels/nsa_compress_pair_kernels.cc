#include "impl/kernels/nsa_compress_pair_kernels.h"

#include <bit>

#include "impl/kernels/bf16_dot_kernels.h"
#include "impl/kernels/lines_ahead.h"
#include "impl/kernels/wide_intrinsics.h"

#if defined(ATTNCHECK_IMPL_HAVE_BF16_DOT)

HWY_PUSH_ATTRIBUTES(ATTNCHECK_IMPL_AVX512_BF16)

namespace attncheck::impl {
namespace {

constexpr std::int64_t kLanes = 16;

inline __m512 even_halves(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
inline __m512 odd_halves(__m512i pairs) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

template <bool kExact>
inline __m512 dot(__m512 sum, __m512i a, __m512i b) {
    if constexpr (kExact) {
        return _mm512_fmadd_ps(even_halves(a), even_halves(b),
                               _mm512_fmadd_ps(odd_halves(a), odd_halves(b), sum));
    } else {
        return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
    }
}

inline __m512i load_line(const std::uint16_t* from) { return _mm512_loadu_si512(from); }
// 16 halves; the upper ones are zero.
inline __m512i load_half_line(const std::uint16_t* from) {
    return _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline __m512i widen(const std::uint16_t* from) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline __m512i broadcast_pair(const std::uint16_t* from) {
    std::uint32_t pair;
    __builtin_memcpy(&pair, from, sizeof pair);
    return _mm512_set1_epi32(static_cast<int>(pair));
}

template <int kPairs>
using Pairs = __m512i[kPairs];

// A column of lines is done for so many tokens at once, all heads of these before the next tokens
// are begun. The fewer there are, the more evenly lines are read in the order of memory, and the
// more often sums are.
constexpr int tokens_at_once(int num_windows, LineRequests requests) {
    if (requests == LineRequests::kTwice || num_windows > 4) return kPairTokens;
    return num_windows > 2 ? 4 : 2;
}

template <bool kExact, int kPairs>
inline void add_pairs(float* sums, const Pairs<kPairs>& pairs, const Pairs<kPairs>& weight) {
    __m512 sum = _mm512_load_ps(sums);
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p) sum = dot<kExact>(sum, pairs[p], weight[p]);
    _mm512_store_ps(sums, sum);
}

template <int kPairs>
inline void load_weights(const std::uint16_t* from, Pairs<kPairs>& weight) {
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p) weight[p] = broadcast_pair(from + 2 * p);
}

// The last 16 channels of a head where they are half a line; in the order of channels. Out of line:
// its weights would take the registers of the loop before it.
template <bool kExact, int kPairs>
[[gnu::noinline]] void compress_half_line(const CompressSlab& slab, const std::uint16_t* from,
                                          std::int64_t token, std::int64_t head) {
    const std::int64_t c = head * slab.head_dim + slab.head_dim - kLanes;
    Pairs<kPairs> pairs, weight;
    for (int p = 0; p < kPairs; ++p, from += 2 * slab.token_stride) {
        pairs[p] =
            _mm512_or_si512(widen(from), _mm512_slli_epi32(widen(from + slab.token_stride), 16));
    }
    for (int k = 0; k < slab.num_windows; ++k) {
        load_weights(slab.weight_halves + head * slab.block + slab.first_row[k] + token, weight);
        add_pairs<kExact, kPairs>(slab.sums[k] + c, pairs, weight);
    }
}

// Words of two vectors are interleaved within 128 bits, which costs one instruction everywhere;
// hence the order of sums: channels 0-3 8-11 16-19 24-27, then the others.
template <bool kExact, int kWindows, LineRequests kRequests>
void compress_tokens(const CompressSlab& slab) {
    constexpr int kTokens = tokens_at_once(kWindows, kRequests), kPairs = kTokens / 2;
    static_assert(kSlabTokens % kTokens == 0);
    const std::int64_t stride = slab.token_stride, head_stride = slab.head_stride,
                       num_heads = slab.num_heads, head_dim = slab.head_dim, block = slab.block,
                       line_channels = head_dim / (2 * kLanes) * (2 * kLanes);
    const bool one_run = head_stride == head_dim;  // all heads of a token
    const auto lines_from = [&](const std::uint16_t* first) {
        return LinesAhead(first, slab.ahead, one_run ? num_heads * head_dim : head_dim, stride);
    };
    float* sums[kWindows];
    const std::uint16_t* weights[kWindows];
#pragma GCC unroll 8
    for (int k = 0; k < kWindows; ++k) {
        sums[k] = slab.sums[k];
        weights[k] = slab.weight_halves + slab.first_row[k];
    }
    for (std::int64_t token = 0; token < kSlabTokens; token += kTokens) {
        const std::uint16_t* from = slab.input + token * stride;
        LinesAhead ahead = lines_from(from);
        const auto request_lines = [&] {
            if (kRequests == LineRequests::kTwice && slab.from_memory) {
                ahead.request_next_slowly<kTokens>();
            } else {
                ahead.request_next<kTokens, kRequests>();
            }
        };
        std::int64_t c = 0, weight_row = token;  // of all heads
        for (std::int64_t head = 0; head < num_heads; ++head, weight_row += block) {
            if (head > 0 && !one_run) ahead = lines_from(from);
            Pairs<kPairs> weight[kWindows];
#pragma GCC unroll 8
            for (int k = 0; k < kWindows; ++k) load_weights(weights[k] + weight_row, weight[k]);
            for (const std::int64_t end = c + line_channels; c < end;
                 c += 2 * kLanes, from += 2 * kLanes) {
                request_lines();
                // GCC would keep a pointer for every row, more than there are registers.
                __asm__("" : "+r"(from));
                Pairs<kPairs> low, high;
#pragma GCC unroll 4
                for (int p = 0; p < kPairs; ++p) {
                    const __m512i even = load_line(from + 2 * p * stride),
                                  odd = load_line(from + (2 * p + 1) * stride);
                    low[p] = _mm512_unpacklo_epi16(even, odd);
                    high[p] = _mm512_unpackhi_epi16(even, odd);
                }
#pragma GCC unroll 8
                for (int k = 0; k < kWindows; ++k) {
                    add_pairs<kExact, kPairs>(sums[k] + c, low, weight[k]);
                    add_pairs<kExact, kPairs>(sums[k] + c + kLanes, high, weight[k]);
                }
            }
            if (line_channels < head_dim) {
                request_lines();
                compress_half_line<kExact, kPairs>(slab, from, token, head);
                c += kLanes;
            }
            from += head_stride - line_channels;
        }
    }
}

template <bool kExact, int kWindows>
void compress_windows(const CompressSlab& slab) {
    if (slab.requests == LineRequests::kTwice) {
        compress_tokens<kExact, kWindows, LineRequests::kTwice>(slab);
    } else {
        compress_tokens<kExact, kWindows, LineRequests::kOnce>(slab);
    }
}

// The 16 low bits of a NaN are 0: it is an operand's, widened, or the default one.
inline __m512i round_sum(__m512 sum) {
    const __m512i bits = _mm512_castps_si512(sum);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_srli_epi32(
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
}

template <bool kExact>
inline __m256i narrow_half_line(__m512 sum) {
    if constexpr (kExact) return _mm512_cvtepi32_epi16(round_sum(sum));
    return (__m256i)_mm512_cvtneps_pbh(sum);
}

template <bool kExact>
inline __m512i narrow_line(__m512 low, __m512 high) {
    if constexpr (kExact) {
        return _mm512_inserti64x4(_mm512_castsi256_si512(narrow_half_line<true>(low)),
                                  narrow_half_line<true>(high), 1);
    }
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// Puts the sums of a line into the order of channels.
class LineOrder {
public:
    LineOrder()  // written out: the implicit one is not of this target
        : first_(_mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23)),
          second_(_mm512_add_epi32(first_, _mm512_set1_epi32(8))) {}
    ATTNCHECK_IMPL_INLINE __m512 first(__m512 low, __m512 high) const {
        return _mm512_permutex2var_ps(low, first_, high);
    }
    ATTNCHECK_IMPL_INLINE __m512 second(__m512 low, __m512 high) const {
        return _mm512_permutex2var_ps(low, second_, high);
    }

private:
    __m512i first_, second_;
};

// Whether all sums are plain. Magnitudes from kLeastSum to the largest finite one are neighbours
// among the bit patterns.
class PlainSums {
public:
    PlainSums()
        : sign_off_(_mm512_set1_epi32(0x7fffffff)),
          least_(_mm512_set1_epi32(std::bit_cast<std::int32_t>(kLeastSum))),
          furthest_(_mm512_setzero_si512()) {}
    ATTNCHECK_IMPL_INLINE void check(__m512 sum) {
        const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(sum), sign_off_);
        furthest_ = _mm512_max_epu32(furthest_, _mm512_sub_epi32(magnitude, least_));
    }
    ATTNCHECK_IMPL_INLINE bool all() const {
        constexpr std::int32_t kSpan =
            std::bit_cast<std::int32_t>(0x1.fffffep127f) - std::bit_cast<std::int32_t>(kLeastSum);
        return _mm512_cmpgt_epu32_mask(furthest_, _mm512_set1_epi32(kSpan)) == 0;
    }

private:
    __m512i sign_off_, least_, furthest_;
};

bool order_sums(float* sums, std::int64_t num_channels) {
    const LineOrder order;
    PlainSums plain;
    std::int64_t c = 0;
    for (; c + 2 * kLanes <= num_channels; c += 2 * kLanes) {
        const __m512 low = _mm512_load_ps(sums + c), high = _mm512_load_ps(sums + c + kLanes);
        plain.check(low);
        plain.check(high);
        _mm512_store_ps(sums + c, order.first(low, high));
        _mm512_store_ps(sums + c + kLanes, order.second(low, high));
    }
    if (c < num_channels) plain.check(_mm512_load_ps(sums + c));
    return plain.all();
}

template <bool kBypassCache>
bool round_sums(const float* sums, std::uint16_t* to, std::int64_t num_channels) {
    const LineOrder order;
    PlainSums plain;
    for (std::int64_t c = 0; c < num_channels; c += 2 * kLanes) {
        const __m512 low = _mm512_load_ps(sums + c), high = _mm512_load_ps(sums + c + kLanes);
        plain.check(low);
        plain.check(high);
        const __m512i line = narrow_line<false>(order.first(low, high), order.second(low, high));
        if constexpr (kBypassCache) {
            _mm512_stream_si512(reinterpret_cast<__m512i*>(to + c), line);
        } else {
            _mm512_storeu_si512(to + c, line);
        }
    }
    return plain.all();
}

#include "impl/kernels/nsa_compress_pair_gradient-inl.h"

template <bool kExact>
void compress_slab(const CompressSlab& slab) {
    using Kernel = void (*)(const CompressSlab&);
    static constexpr Kernel kKernels[kMaxOpenWindows] = {
        &compress_windows<kExact, 1>, &compress_windows<kExact, 2>, &compress_windows<kExact, 3>,
        &compress_windows<kExact, 4>, &compress_windows<kExact, 5>, &compress_windows<kExact, 6>,
        &compress_windows<kExact, 7>, &compress_windows<kExact, 8>,
    };
    kKernels[slab.num_windows - 1](slab);
}

template <bool kExact, bool kBypassCache>
void run_gradient(const PairGradientSlab& slab) {
    using Kernel = void (*)(const PairGradientSlab&);
    static constexpr Kernel kKernels[kMaxOpenWindows] = {
        &gradient_rows<kExact, 1, kBypassCache>, &gradient_rows<kExact, 2, kBypassCache>,
        &gradient_rows<kExact, 3, kBypassCache>, &gradient_rows<kExact, 4, kBypassCache>,
        &gradient_rows<kExact, 5, kBypassCache>, &gradient_rows<kExact, 6, kBypassCache>,
        &gradient_rows<kExact, 7, kBypassCache>, &gradient_rows<kExact, 8, kBypassCache>,
    };
    kKernels[slab.num_windows - 1](slab);
}

template <bool kExact>
void gradient_slab(const PairGradientSlab& slab) {
    pair_windows(slab);
    if (slab.bypass_cache) {
        run_gradient<kExact, true>(slab);
    } else {
        run_gradient<kExact, false>(slab);
    }
}

}  // namespace
}  // namespace attncheck::impl

HWY_POP_ATTRIBUTES

namespace attncheck::impl {

const CompressPairKernels* compress_pair_kernels() {
    static constexpr CompressPairKernels kTable = {
        &compress_slab<false>, &compress_slab<true>,
        &order_sums,           {&round_sums<false>, &round_sums<true>},
        &gradient_slab<false>, &gradient_slab<true>,
    };
    return bf16_dot_kernels() != nullptr ? &kTable : nullptr;
}

}  // namespace attncheck::impl

#else

namespace attncheck::impl {
const CompressPairKernels* compress_pair_kernels() { return nullptr; }
}  // namespace attncheck::impl

#endif
