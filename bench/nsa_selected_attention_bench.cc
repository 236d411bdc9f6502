// How close NsaSelectedAttention and its gradient come to the arithmetic of their own micro-kernel.
//
// Work is counted in multiply-adds of the products of the formulas: per visible pair of a query
// head and a key, D + Dv in the forward (S, O) and 3 D + 2 Dv in the gradient (S, dq, dk, dP, dv);
// what the gradient computes a second time is not counted. The ceiling is the rate of a product
// whose operands stay in the first levels of cache, in the same run, times the number of threads
// used. `fraction` is the operator's rate over the ceiling.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "attncheck/candidate.h"
#include "impl/attention_kernels.h"
#include "impl/half_formats.h"
#include "impl/strided_rows.h"
#include "impl/thread_pool.h"

namespace {

namespace impl = attncheck::impl;

constexpr std::int64_t kTokens = 4096, kQueryHeads = 16, kKvHeads = 1, kHeadDim = 192,
                       kValueDim = 128, kBlock = 64, kCount = 16;
constexpr std::int64_t kBlocks = kTokens / kBlock;

template <class Element>
struct Tensor {
    impl::AlignedBuffer<Element> data;
    attncheck_tensor view{};

    Tensor(std::int32_t dtype, std::vector<std::int64_t> shape)
        : data(shape[0] * shape[1] * shape[2]) {
        view.data = data.data();
        view.dtype = dtype;
        view.rank = 3;
        std::int64_t stride = 1;
        for (std::size_t dim = 3; dim-- > 0;) {
            view.shape[dim] = shape[dim];
            view.strides[dim] = stride;
            stride *= shape[dim];
        }
    }
    std::int64_t size() const { return view.shape[0] * view.strides[0]; }
};

struct Problem {
    Tensor<std::uint16_t> query, key, value, output, output_grad, dq, dk, dv;
    Tensor<float> row_max, row_sum;
    Tensor<std::int32_t> topk;
    attncheck_tensor mask{};
    std::uint8_t unread = 0;
    std::int64_t length = kTokens;
    std::int64_t visible_pairs = 0;

    explicit Problem(attncheck_dtype dtype)
        : query(dtype, {kTokens, kQueryHeads, kHeadDim}),
          key(dtype, {kTokens, kKvHeads, kHeadDim}),
          value(dtype, {kTokens, kKvHeads, kValueDim}),
          output(dtype, {kTokens, kQueryHeads, kValueDim}),
          output_grad(dtype, {kTokens, kQueryHeads, kValueDim}),
          dq(dtype, {kTokens, kQueryHeads, kHeadDim}),
          dk(dtype, {kTokens, kKvHeads, kHeadDim}),
          dv(dtype, {kTokens, kKvHeads, kValueDim}),
          row_max(ATTNCHECK_FLOAT32, {kTokens, kQueryHeads, 8}),
          row_sum(ATTNCHECK_FLOAT32, {kTokens, kQueryHeads, 8}),
          topk(ATTNCHECK_INT32, {kTokens, kKvHeads, kCount}) {
        const impl::HalfFormat format =
            dtype == ATTNCHECK_FLOAT16 ? impl::HalfFormat::kFp16 : impl::HalfFormat::kBf16;
        std::mt19937 random(1);
        std::normal_distribution<float> values;
        for (Tensor<std::uint16_t>* tensor : {&query, &key, &value, &output_grad}) {
            for (std::int64_t i = 0; i < tensor->size(); ++i)
                tensor->data.data()[i] = impl::narrow(format, values(random));
        }
        mask.data = &unread;
        mask.dtype = ATTNCHECK_BOOL;
        mask.rank = 2;
        mask.shape[0] = mask.shape[1] = 1;
        fill_lists(random);
    }
    // The first block, the query's own and its predecessor, the others drawn from the past, all
    // different; a query with fewer blocks in its past lists future ones.
    void fill_lists(std::mt19937& random) {
        std::vector<std::int32_t> order(kBlocks);
        for (std::int64_t t = 0; t < kTokens; ++t) {
            const std::int64_t own = t / kBlock;
            for (std::int64_t i = 0; i < kBlocks; ++i)
                order[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
            if (own >= kCount) {
                std::shuffle(order.begin() + 1, order.begin() + own - 1, random);
                std::swap(order[kCount - 2], order[static_cast<std::size_t>(own - 1)]);
                std::swap(order[kCount - 1], order[static_cast<std::size_t>(own)]);
            }
            for (std::int64_t i = 0; i < kCount; ++i) {
                const std::int64_t block = order[static_cast<std::size_t>(i)];
                topk.data.data()[t * kCount + i] = static_cast<std::int32_t>(block);
                visible_pairs += std::clamp<std::int64_t>(t - block * kBlock + 1, 0, kBlock);
            }
        }
        visible_pairs *= kQueryHeads;
    }
    int forward() const {
        const attncheck_nsa_selected_attention_args args{
            query.view,   key.view,     value.view,   topk.view,  mask, {&length, 1},
            {&length, 1}, 0.0721688,    kQueryHeads,  "TND",      2,    kBlock,
            kCount,       row_max.view, row_sum.view, output.view};
        return attncheck_nsa_selected_attention(&args);
    }
    int gradient() const {
        const attncheck_nsa_selected_attention_grad_args args{query.view,
                                                              key.view,
                                                              value.view,
                                                              output.view,
                                                              output_grad.view,
                                                              row_max.view,
                                                              row_sum.view,
                                                              topk.view,
                                                              {&length, 1},
                                                              {&length, 1},
                                                              mask,
                                                              0.0721688,
                                                              kBlock,
                                                              kCount,
                                                              kQueryHeads,
                                                              "TND",
                                                              2,
                                                              dq.view,
                                                              dk.view,
                                                              dv.view};
        return attncheck_nsa_selected_attention_grad(&args);
    }
};

double seconds(const std::function<void()>& run) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Multiply-adds per second of all threads.
double micro_kernel_rate() {
    constexpr std::int64_t kRows = 48, kDepth = 64, kCols = 64, kTurns = 20000;
    const std::int64_t threads = impl::num_threads();
    const impl::AlignedBuffer<float> left(kDepth * kRows), right(kDepth * kCols),
        out(kRows * kCols * threads);
    std::fill_n(left.data(), kDepth * kRows, 1e-3f);
    std::fill_n(right.data(), kDepth * kCols, 1e-3f);
    std::fill_n(out.data(), kRows * kCols * threads, 0.0f);
    double best_s = std::numeric_limits<double>::infinity();
    for (int repetition = 0; repetition < 5; ++repetition) {
        best_s = std::min(best_s, seconds([&] {
                              impl::parallel_for(threads, [&](std::int64_t thread) {
                                  for (std::int64_t turn = 0; turn < kTurns; ++turn) {
                                      impl::default_attention_kernels().transposed_product(
                                          {left.data(), kRows, kRows, right.data(), kCols, kDepth,
                                           kCols, out.data() + thread * kRows * kCols, kCols});
                                  }
                              });
                          }));
    }
    return static_cast<double>(kRows * kDepth * kCols * kTurns * threads) / best_s;
}

// range: threads.
void measure(benchmark::State& state, attncheck_dtype dtype, int (Problem::*run)() const,
             std::int64_t products_per_pair) {
    const Problem problem(dtype);
    impl::set_num_threads(static_cast<int>(state.range(0)));
    problem.forward();  // the gradient's inputs
    const double ceiling = micro_kernel_rate();
    double best_s = std::numeric_limits<double>::infinity();
    for (auto _ : state) {
        int status = ATTNCHECK_OK;
        const double elapsed_s = seconds([&] { status = (problem.*run)(); });
        if (status != ATTNCHECK_OK) state.SkipWithError("the call was rejected");
        best_s = std::min(best_s, elapsed_s);
        state.SetIterationTime(elapsed_s);
    }
    impl::set_num_threads(0);
    const double rate = static_cast<double>(problem.visible_pairs * products_per_pair) / best_s;
    state.counters["best_ms"] = best_s * 1e3;
    state.counters["GFLOP_per_s"] = 2e-9 * rate;
    state.counters["micro_kernel_GFLOP_per_s"] = 2e-9 * ceiling;
    state.counters["fraction"] = rate / ceiling;
}

void selected(benchmark::State& state, attncheck_dtype dtype) {
    measure(state, dtype, &Problem::forward, kHeadDim + kValueDim);
}
void selected_grad(benchmark::State& state, attncheck_dtype dtype) {
    measure(state, dtype, &Problem::gradient, 3 * kHeadDim + 2 * kValueDim);
}

BENCHMARK_CAPTURE(selected, bf16, ATTNCHECK_BFLOAT16)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(selected, fp16, ATTNCHECK_FLOAT16)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(selected_grad, bf16, ATTNCHECK_BFLOAT16)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(selected_grad, fp16, ATTNCHECK_FLOAT16)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    std::printf("candidate %s; T=%lld N1=%lld N2=%lld D=%lld Dv=%lld block=%lld count=%lld\n",
                attncheck_candidate_name(), static_cast<long long>(kTokens),
                static_cast<long long>(kQueryHeads), static_cast<long long>(kKvHeads),
                static_cast<long long>(kHeadDim), static_cast<long long>(kValueDim),
                static_cast<long long>(kBlock), static_cast<long long>(kCount));
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
