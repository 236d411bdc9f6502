#ifndef ATTNCHECK_BENCH_CEILINGS_H
#define ATTNCHECK_BENCH_CEILINGS_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "impl/arguments/strided_rows.h"

/// What the machine can do at best, measured in the same run as the operators: an operator's speed
/// means something only as a fraction of it.
namespace attncheck::bench {

/// How a duration is taken. CPU time of the calling thread leaves out what other programs took from
/// a shared machine; it means something for one thread only.
enum class Clock { kWall, kCpu };

double seconds(Clock clock, const std::function<void()>& run);

/// How often in a row a round measures a way to copy, and what is compared with copying: what a
/// last-level cache keeps of tensors that are twice its size takes a few calls to settle.
inline constexpr int kCopyRepetitions = 8;

/// Rates of `threads` threads together; 0 where the machine has no such instruction.
struct Ceilings {
    double fp32_flops = 0;      ///< fused multiply-adds of the kernels' vectors, 2 operations each
    double bf16_dot_flops = 0;  ///< vdpbf16ps, 4 operations per 32-bit lane
    double amx_bf16_flops = 0;  ///< tdpbf16ps

    /// The best that any of these instructions does for products of this element type.
    double product_flops(std::int32_t dtype) const;
};

/// Bytes a second of `threads` threads together.
struct MemoryRates {
    double copy = 0;        ///< fastest copy, bytes read plus bytes written
    double plain_copy = 0;  ///< the same without requests ahead of use: memcpy and streaming
    double read = 0;        ///< fastest reading alone
};

/// One round, with the threads that the thread pool is set to; the caller keeps the best of
/// several. `kernels`: the instruction set of the kernels; wider ones are no ceiling of theirs.
Ceilings measure_ceilings(Clock clock, int threads, std::string_view kernels);

/// What is copied and where to, all of it touched.
class CopyBuffers {
public:
    explicit CopyBuffers(std::int64_t bytes);
    /// One round, as above.
    MemoryRates measure(Clock clock, int threads) const;

private:
    using Copy = void (*)(char* to, const char* from, std::size_t bytes);
    // Bytes a second of one pass over the source, the fastest of these ways.
    double source_rate(Clock clock, int threads, const std::vector<Copy>& ways) const;

    std::int64_t bytes_;
    impl::AlignedBuffer<char> from_, to_;
};

void keep_best(Ceilings& best, const Ceilings& round);
void keep_best(MemoryRates& best, const MemoryRates& round);

/// The features that matter here, for example "x86-64, 2 cores: avx2 fma f16c avx512f avx512_bf16".
std::string machine_features();

}  // namespace attncheck::bench

#endif  // ATTNCHECK_BENCH_CEILINGS_H
