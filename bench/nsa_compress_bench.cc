// How close compression and its gradient come to the memory bandwidth of the machine.
//
// Both do a handful of multiply-adds per element, so the ceiling is the copy bandwidth: the fastest
// of several ways to copy a buffer of as many bytes as the operator moves, in the same run with as
// many threads, each byte read and each byte written counted once. (A smaller buffer would stay in
// the last-level cache, which the operator's own tensors do not.) `fraction` is operator bytes per
// second over copy bytes per second.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "attncheck/candidate.h"
#include "impl/half_formats.h"
#include "impl/strided_rows.h"
#include "impl/thread_pool.h"

namespace {

namespace impl = attncheck::impl;

constexpr std::int64_t kTokens = 65536, kHeads = 4, kHeadDim = 128, kBlock = 32, kStride = 16;
constexpr std::int64_t kRows = (kTokens - kBlock) / kStride + 1;
constexpr std::int64_t kInputElements = kTokens * kHeads * kHeadDim;
constexpr std::int64_t kOutputElements = kRows * kHeads * kHeadDim;
constexpr std::int64_t kWeightElements = kBlock * kHeads;
constexpr std::int64_t kForwardBytes = 2 * (kInputElements + kWeightElements + kOutputElements);
constexpr std::int64_t kGradientBytes =
    2 * (2 * kInputElements + 2 * kWeightElements + kOutputElements);

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
constexpr Copy kCopies[] = {copy_memcpy, copy_cached, copy_streaming};
#else
constexpr Copy kCopies[] = {copy_memcpy, copy_cached};
#endif

double seconds(const std::function<void()>& run) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Best bytes per second (read plus written) over the variants and repetitions, from one buffer of
// `bytes` to another.
double copy_bandwidth(std::int64_t bytes) {
    const std::int64_t threads = impl::num_threads();
    const std::int64_t part = bytes / threads / 64 * 64;
    const impl::AlignedBuffer<char> from(part * threads), to(part * threads);
    std::memset(from.data(), 1, static_cast<std::size_t>(part * threads));
    std::memset(to.data(), 2, static_cast<std::size_t>(part * threads));
    double best_s = std::numeric_limits<double>::infinity();
    for (const Copy copy : kCopies) {
        for (int repetition = 0; repetition < 15; ++repetition) {
            const double elapsed_s = seconds([&] {
                impl::parallel_for(threads, [&](std::int64_t thread) {
                    copy(to.data() + thread * part, from.data() + thread * part,
                         static_cast<std::size_t>(part));
                });
            });
            best_s = std::min(best_s, elapsed_s);
        }
    }
    return static_cast<double>(2 * part * threads) / best_s;
}

struct Tensor {
    impl::AlignedBuffer<std::uint16_t> data;
    attncheck_tensor view{};

    Tensor(attncheck_dtype dtype, std::vector<std::int64_t> shape, std::int64_t elements)
        : data(elements) {
        view.data = data.data();
        view.dtype = dtype;
        view.rank = static_cast<std::int32_t>(shape.size());
        std::int64_t stride = 1;
        for (std::size_t dim = shape.size(); dim-- > 0;) {
            view.shape[dim] = shape[dim];
            view.strides[dim] = stride;
            stride *= shape[dim];
        }
        const impl::HalfFormat format =
            dtype == ATTNCHECK_FLOAT16 ? impl::HalfFormat::kFp16 : impl::HalfFormat::kBf16;
        std::uint32_t state = 12345;
        for (std::int64_t i = 0; i < elements; ++i) {
            state = state * 1664525u + 1013904223u;
            const float value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
            data.data()[i] = impl::narrow(format, value);
        }
    }
};

struct Problem {
    Tensor input, weight, output, input_grad, weight_grad;
    std::int64_t length = kTokens;

    explicit Problem(attncheck_dtype dtype)
        : input(dtype, {kTokens, kHeads, kHeadDim}, kInputElements),
          weight(dtype, {kBlock, kHeads}, kWeightElements),
          output(dtype, {kRows, kHeads, kHeadDim}, kOutputElements),
          input_grad(dtype, {kTokens, kHeads, kHeadDim}, kInputElements),
          weight_grad(dtype, {kBlock, kHeads}, kWeightElements) {}

    int forward() const {
        const attncheck_nsa_compress_args args{input.view, weight.view, {&length, 1}, "TND", kBlock,
                                               kStride,    0,           output.view};
        return attncheck_nsa_compress(&args);
    }
    int gradient() const {
        const attncheck_nsa_compress_grad_args args{
            output.view, input.view, weight.view, {&length, 1},    kBlock,
            kStride,     0,          "TND",       input_grad.view, weight_grad.view};
        return attncheck_nsa_compress_grad(&args);
    }
};

void measure(benchmark::State& state, attncheck_dtype dtype, int (Problem::*run)() const,
             std::int64_t bytes) {
    const Problem problem(dtype);
    const double copy_bytes_per_s = copy_bandwidth(bytes);
    double best_s = std::numeric_limits<double>::infinity();
    for (auto _ : state) {
        int status = ATTNCHECK_OK;
        const double elapsed_s = seconds([&] { status = (problem.*run)(); });
        if (status != ATTNCHECK_OK) state.SkipWithError("the call was rejected");
        best_s = std::min(best_s, elapsed_s);
        state.SetIterationTime(elapsed_s);
    }
    const double best_bytes_per_s = static_cast<double>(bytes) / best_s;
    state.SetBytesProcessed(state.iterations() * bytes);
    state.counters["best_GB_per_s"] = best_bytes_per_s * 1e-9;
    state.counters["copy_GB_per_s"] = copy_bytes_per_s * 1e-9;
    state.counters["fraction"] = best_bytes_per_s / copy_bytes_per_s;
}

void compress(benchmark::State& state, attncheck_dtype dtype) {
    measure(state, dtype, &Problem::forward, kForwardBytes);
}
void compress_grad(benchmark::State& state, attncheck_dtype dtype) {
    measure(state, dtype, &Problem::gradient, kGradientBytes);
}

BENCHMARK_CAPTURE(compress, bf16, ATTNCHECK_BFLOAT16)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compress, fp16, ATTNCHECK_FLOAT16)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compress_grad, bf16, ATTNCHECK_BFLOAT16)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compress_grad, fp16, ATTNCHECK_FLOAT16)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// A call so small that only its fixed costs show.
void compress_small(benchmark::State& state) {
    constexpr std::int64_t kSmallTokens = 256, kSmallDim = 16,
                           kSmallRows = (kSmallTokens - kBlock) / kStride + 1;
    const Tensor input(ATTNCHECK_BFLOAT16, {kSmallTokens, 1, kSmallDim}, kSmallTokens * kSmallDim);
    const Tensor weight(ATTNCHECK_BFLOAT16, {kBlock, 1}, kBlock);
    const Tensor output(ATTNCHECK_BFLOAT16, {kSmallRows, 1, kSmallDim}, kSmallRows * kSmallDim);
    const Tensor input_grad(ATTNCHECK_BFLOAT16, {kSmallTokens, 1, kSmallDim},
                            kSmallTokens * kSmallDim);
    const Tensor weight_grad(ATTNCHECK_BFLOAT16, {kBlock, 1}, kBlock);
    const std::int64_t length = kSmallTokens;
    const attncheck_nsa_compress_args forward{input.view, weight.view, {&length, 1}, "TND", kBlock,
                                              kStride,    0,           output.view};
    const attncheck_nsa_compress_grad_args gradient{
        output.view, input.view, weight.view, {&length, 1},    kBlock,
        kStride,     0,          "TND",       input_grad.view, weight_grad.view};
    for (auto _ : state) {
        benchmark::DoNotOptimize(state.range(0) == 0 ? attncheck_nsa_compress(&forward)
                                                     : attncheck_nsa_compress_grad(&gradient));
    }
}
BENCHMARK(compress_small)->ArgName("gradient")->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    std::printf("candidate %s, %d threads; T=%lld N=%lld D=%lld block=%lld stride=%lld\n",
                attncheck_candidate_name(), impl::num_threads(), static_cast<long long>(kTokens),
                static_cast<long long>(kHeads), static_cast<long long>(kHeadDim),
                static_cast<long long>(kBlock), static_cast<long long>(kStride));
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
