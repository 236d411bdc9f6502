// Peak rates by loops of nothing but the instruction in question, on registers: 12 independent sums
// cover a latency of 4 to 6 at two instructions a cycle. Of several ways to
// copy or read the fastest counts.
#include "bench/ceilings.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "attncheck/candidate.h"
#include "impl/kernels/amx_kernels.h"
#include "impl/arguments/strided_rows.h"
#include "impl/runtime/thread_pool.h"
#include "impl/kernels/wide_intrinsics.h"

namespace attncheck::bench {
namespace {

constexpr int kSums = 12;

// One loop of `turns` times kSums instructions. Returns something that depends on every sum.
struct PeakLoop {
    float (*run)(std::int64_t turns) = nullptr;
    double operations_per_turn = 0;
};

volatile float opaque_small = 0x1p-60f;

#if defined(__x86_64__)

__attribute__((target("avx512f"))) float fma_512(std::int64_t turns) {
    const __m512 a = _mm512_set1_ps(opaque_small), b = _mm512_set1_ps(opaque_small);
    __m512 sums[kSums];
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
    for (std::int64_t turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 12
        for (int i = 0; i < kSums; ++i) sums[i] = _mm512_fmadd_ps(a, b, sums[i]);
    }
    for (int i = 1; i < kSums; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
    return _mm512_reduce_add_ps(sums[0]);
}

__attribute__((target("avx2,fma"))) float fma_256(std::int64_t turns) {
    const __m256 a = _mm256_set1_ps(opaque_small), b = _mm256_set1_ps(opaque_small);
    __m256 sums[kSums];
    for (int i = 0; i < kSums; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
    for (std::int64_t turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 12
        for (int i = 0; i < kSums; ++i) sums[i] = _mm256_fmadd_ps(a, b, sums[i]);
    }
    for (int i = 1; i < kSums; ++i) sums[0] = _mm256_add_ps(sums[0], sums[i]);
    return _mm256_cvtss_f32(sums[0]);
}

__attribute__((target("avx512f,avx512bf16"))) float dot_bf16(std::int64_t turns) {
    const __m512bh a = (__m512bh)_mm512_set1_ps(opaque_small), b = a;
    __m512 sums[kSums];
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
    for (std::int64_t turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 12
        for (int i = 0; i < kSums; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, b);
    }
    for (int i = 1; i < kSums; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
    return _mm512_reduce_add_ps(sums[0]);
}

// Four sums of 16 x 16 from two tiles on either side, as a matrix product would.
__attribute__((target("amx-tile,amx-bf16"))) float dot_amx(std::int64_t turns) {
    struct alignas(64) {
        std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
        std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    alignas(64) float tile[256] = {};
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, tile, 64);
    _tile_loadd(5, tile, 64);
    _tile_loadd(6, tile, 64);
    _tile_loadd(7, tile, 64);
    for (std::int64_t turn = 0; turn < turns; ++turn) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, tile, 64);
    _tile_release();
    return tile[0];
}

// By the instruction set of the kernels, "avx2" or wider.
PeakLoop fp32_loop(std::string_view kernels) {
    if (kernels != "avx2" && __builtin_cpu_supports("avx512f")) return {fma_512, kSums * 16 * 2.0};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return {fma_256, kSums * 8 * 2.0};
    return {};
}
PeakLoop bf16_loop(std::string_view kernels) {
    if ((kernels == "avx512_bf16" || kernels == "amx") && __builtin_cpu_supports("avx512bf16")) return {dot_bf16, kSums * 16 * 4.0};
    return {};
}
PeakLoop amx_loop(std::string_view kernels) {
    if (kernels == "amx" && impl::may_use_amx()) return {dot_amx, 4 * 16 * 16 * 32 * 2.0};
    return {};
}

#else
PeakLoop fp32_loop(std::string_view) { return {}; }
PeakLoop bf16_loop(std::string_view) { return {}; }
PeakLoop amx_loop(std::string_view) { return {}; }
#endif

// Whatever vectors the compiler makes of it, where no loop above fits.
float fma_plain(std::int64_t turns) {
    float sums[64] = {};
    const float a = opaque_small, b = opaque_small;
    for (std::int64_t turn = 0; turn < turns; ++turn) {
        for (float& sum : sums) sum += a * b;
    }
    return *std::max_element(sums, sums + 64);
}

double best_rate(Clock clock, int threads, const PeakLoop& loop) {
    if (loop.run == nullptr) return 0;
    constexpr std::int64_t kTurns = 200000;  // about a millisecond
    double best_s = std::numeric_limits<double>::infinity();
    volatile float sink = 0;
    for (int repetition = 0; repetition < 8; ++repetition) {
        best_s = std::min(best_s, seconds(clock, [&] {
                              impl::parallel_for(threads,
                                                 [&](std::int64_t) { sink = loop.run(kTurns); });
                          }));
    }
    return loop.operations_per_turn * static_cast<double>(kTurns) * threads / best_s;
}

using Copy = void (*)(char* to, const char* from, std::size_t bytes);

void copy_memcpy(char* to, const char* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

// In pieces below the size from which the C library bypasses the cache.
void copy_cached(char* to, const char* from, std::size_t bytes) {
    constexpr std::size_t kPiece = 32 << 10;
    for (std::size_t done = 0; done < bytes; done += kPiece) {
        std::memcpy(to + done, from + done, std::min(kPiece, bytes - done));
    }
}

#if defined(__SSE2__)
void copy_streaming(char* to, const char* from, std::size_t bytes) {
    for (std::size_t i = 0; i + 64 <= bytes; i += 64) {
        for (std::size_t j = 0; j < 64; j += 16) {
            const __m128i value = _mm_load_si128(reinterpret_cast<const __m128i*>(from + i + j));
            _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + j), value);
        }
    }
    _mm_sfence();
}

// The means of the compression operators, whose ceiling this is (impl/kernels/lines_ahead.h): lines are
// asked for twice ahead of use and pages touched before, or, of whole lines below, asked for once.
constexpr std::size_t kPage = 4096, kNear = 8 << 10, kFar = 16 << 10, kTouched = 64 << 10;

void touch(const char* address) { static_cast<void>(*static_cast<const volatile char*>(address)); }

void copy_ahead(char* to, const char* from, std::size_t bytes) {
    for (std::size_t page = 0; page < bytes; page += kPage) {
        const std::size_t end = std::min(page + kPage, bytes / 64 * 64);
        if (page + kTouched < bytes) {
            touch(from + page + kTouched);
            touch(to + page + kTouched);
        }
        for (std::size_t i = page; i < end; i += 64) {
            if (i + kFar < bytes) _mm_prefetch(from + i + kFar, _MM_HINT_T1);
            if (i + kNear < bytes) _mm_prefetch(from + i + kNear, _MM_HINT_T1);
            for (std::size_t j = 0; j < 64; j += 16) {
                const __m128i value =
                    _mm_load_si128(reinterpret_cast<const __m128i*>(from + i + j));
                _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + j), value);
            }
        }
    }
    _mm_sfence();
}

void read_ahead(char* result, const char* from, std::size_t bytes) {
    __m128i sums[4] = {};
    for (std::size_t page = 0; page < bytes; page += kPage) {
        const std::size_t end = std::min(page + kPage, bytes / 64 * 64);
        if (page + kTouched < bytes) touch(from + page + kTouched);
        for (std::size_t i = page; i < end; i += 64) {
            if (i + kFar < bytes) _mm_prefetch(from + i + kFar, _MM_HINT_T1);
            if (i + kNear < bytes) _mm_prefetch(from + i + kNear, _MM_HINT_T1);
            for (std::size_t j = 0; j < 4; ++j) {
                const auto* line = reinterpret_cast<const __m128i*>(from + i);
                sums[j] = _mm_xor_si128(sums[j], _mm_load_si128(line + j));
            }
        }
    }
    sums[0] = _mm_xor_si128(_mm_xor_si128(sums[0], sums[1]), _mm_xor_si128(sums[2], sums[3]));
    _mm_store_si128(reinterpret_cast<__m128i*>(result), sums[0]);
}
#endif

#if defined(__x86_64__)
template <bool kAhead>
__attribute__((target("avx512f"))) void copy_lines(char* to, const char* from, std::size_t bytes) {
    constexpr std::size_t kOnce = 12 << 10;
    for (std::size_t i = 0; i + 64 <= bytes; i += 64) {
        if (kAhead && i + kOnce < bytes) _mm_prefetch(from + i + kOnce, _MM_HINT_T0);
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_load_si512(from + i));
    }
    _mm_sfence();
}

__attribute__((target("avx512f"))) void read_lines(char* result, const char* from,
                                                   std::size_t bytes) {
    __m512i sums[4] = {};
    for (std::size_t i = 0; i + 256 <= bytes; i += 256) {
#pragma GCC unroll 4
        for (std::size_t j = 0; j < 4; ++j)
            sums[j] = _mm512_xor_si512(sums[j], _mm512_load_si512(from + i + 64 * j));
    }
    sums[0] =
        _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3]));
    _mm512_store_si512(result, sums[0]);
}
#endif

// Into registers, in the order of memory and without any help.
void read_plain(char* result, const char* from, std::size_t bytes) {
    std::uint64_t sums[8] = {};
    for (std::size_t i = 0; i + 64 <= bytes; i += 64) {
        std::uint64_t line[8];
        std::memcpy(line, from + i, 64);
        for (std::size_t j = 0; j < 8; ++j) sums[j] ^= line[j];
    }
    std::memcpy(result, sums, 64);
}

struct Ways {
    std::vector<Copy> plain_copies{copy_memcpy, copy_cached}, copies_ahead, reads{read_plain};

    Ways() {
#if defined(__SSE2__)
        plain_copies.push_back(copy_streaming);
        copies_ahead.push_back(copy_ahead);
        reads.push_back(read_ahead);
#endif
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx512f")) {
            plain_copies.push_back(copy_lines<false>);
            copies_ahead.push_back(copy_lines<true>);
            reads.push_back(read_lines);
        }
#endif
    }
};

}  // namespace

double seconds(Clock clock, const std::function<void()>& run) {
    const auto now = [clock] {
        if (clock == Clock::kCpu) {
            timespec time{};
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
            return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
        }
        return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    };
    const double begin = now();
    run();
    return now() - begin;
}

double Ceilings::product_flops(std::int32_t dtype) const {
    if (dtype != ATTNCHECK_BFLOAT16) return fp32_flops;
    return std::max({fp32_flops, bf16_dot_flops, amx_bf16_flops});
}

Ceilings measure_ceilings(Clock clock, int threads, std::string_view kernels) {
    Ceilings result;
    const PeakLoop fp32 = fp32_loop(kernels);
    result.fp32_flops =
        best_rate(clock, threads, fp32.run != nullptr ? fp32 : PeakLoop{fma_plain, 64 * 2.0});
    result.bf16_dot_flops = best_rate(clock, threads, bf16_loop(kernels));
    result.amx_bf16_flops = best_rate(clock, threads, amx_loop(kernels));
    return result;
}

CopyBuffers::CopyBuffers(std::int64_t bytes) : bytes_(bytes), from_(bytes), to_(bytes) {
    std::memset(from_.data(), 1, static_cast<std::size_t>(bytes));
    std::memset(to_.data(), 2, static_cast<std::size_t>(bytes));
}

double CopyBuffers::source_rate(Clock clock, int threads, const std::vector<Copy>& ways) const {
    const std::int64_t part = bytes_ / threads / 64 * 64;
    double best_s = std::numeric_limits<double>::infinity();
    for (const Copy copy : ways) {
        for (int repetition = 0; repetition < kCopyRepetitions; ++repetition) {
            best_s = std::min(best_s, seconds(clock, [&] {
                                  impl::parallel_for(threads, [&](std::int64_t thread) {
                                      copy(to_.data() + thread * part, from_.data() + thread * part,
                                           static_cast<std::size_t>(part));
                                  });
                              }));
        }
    }
    return static_cast<double>(part * threads) / best_s;
}

MemoryRates CopyBuffers::measure(Clock clock, int threads) const {
    const Ways ways;
    MemoryRates result;
    result.plain_copy = 2 * source_rate(clock, threads, ways.plain_copies);
    result.copy = std::max(result.plain_copy, 2 * source_rate(clock, threads, ways.copies_ahead));
    result.read = source_rate(clock, threads, ways.reads);
    return result;
}

void keep_best(Ceilings& best, const Ceilings& round) {
    best.fp32_flops = std::max(best.fp32_flops, round.fp32_flops);
    best.bf16_dot_flops = std::max(best.bf16_dot_flops, round.bf16_dot_flops);
    best.amx_bf16_flops = std::max(best.amx_bf16_flops, round.amx_bf16_flops);
}
void keep_best(MemoryRates& best, const MemoryRates& round) {
    best.copy = std::max(best.copy, round.copy);
    best.plain_copy = std::max(best.plain_copy, round.plain_copy);
    best.read = std::max(best.read, round.read);
}

std::string machine_features() {
    std::string text;
#if defined(__x86_64__)
    text = "x86-64, " + std::to_string(std::thread::hardware_concurrency()) + " cores:";
    const auto add = [&text](bool present, const char* name) {
        if (present) text += std::string(" ") + name;
    };
    add(__builtin_cpu_supports("avx2"), "avx2");
    add(__builtin_cpu_supports("fma"), "fma");
    add(__builtin_cpu_supports("avx512f"), "avx512f");
    add(__builtin_cpu_supports("avx512bf16"), "avx512_bf16");
    add(amx_loop("amx").run != nullptr, "amx_bf16");
#else
    text = std::to_string(std::thread::hardware_concurrency()) + " cores";
#endif
    return text;
}

}  // namespace attncheck::bench
