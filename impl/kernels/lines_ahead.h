#ifndef ATTNCHECK_IMPL_LINES_AHEAD_H
#define ATTNCHECK_IMPL_LINES_AHEAD_H

#include <cstdint>

#if defined(__GNUC__)
#define ATTNCHECK_IMPL_INLINE inline __attribute__((always_inline))
#else
#define ATTNCHECK_IMPL_INLINE inline
#endif

/// Requests for lines of memory ahead of their use. Addresses are hints that may lie outside the
/// tensor, hence integer arithmetic.
namespace attncheck::impl {

inline constexpr std::uintptr_t kLineBytes = 64;
inline constexpr std::int64_t kLineElements = 32;  // of 2 bytes

/// How lines are asked for, which processors want differently.
enum class LineRequests : std::uint8_t {
    /// Into the first level, `near` ahead. On Zen 5 the forward of 64 MiB takes 0.7 (fp16) and 0.8
    /// (bf16) of the time that it takes with kTwice, the gradient 0.8 to 0.9.
    kOnce,
    /// Into the second level, `far` and again `near` ahead. Zen 4 drops requests when many are on
    /// their way, and the second one catches those; requests into the first level were slower
    /// there (12 instead of 20 GB/s forward).
    kTwice,
};

/// What is faster where that was measured (Zen 4 and 5), kOnce elsewhere.
LineRequests default_line_requests();

/// How many tokens ahead of their use the kernels ask for lines of the input.
struct TokensAhead {
    std::int64_t far, near;
};

/// Asks for a line into the first or second level. Always inlined: GCC takes any other function
/// that does nothing else for one without effect and drops the call.
ATTNCHECK_IMPL_INLINE void request_into_first(std::uintptr_t address) {
    __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 3);
}
ATTNCHECK_IMPL_INLINE void request_into_second(std::uintptr_t address) {
    __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 2);
}

ATTNCHECK_IMPL_INLINE std::uintptr_t byte_address(const std::uint16_t* base,
                                                  std::int64_t elements) {
    return reinterpret_cast<std::uintptr_t>(base) +
           static_cast<std::uintptr_t>(elements) * sizeof(std::uint16_t);
}

/// Walks the lines of later tokens in the order of memory while a kernel goes through a slab in an
/// order of its own: memory delivers in sequence twice as fast as in the kernel's order.
class LinesAhead {
public:
    /// `run` elements of every token lie side by side; a token begins `stride` elements after the
    /// one before. Where that leaves no gap the run is endless.
    LinesAhead(const std::uint16_t* first, TokensAhead ahead, std::int64_t run, std::int64_t stride)
        : line_(byte_address(first, ahead.near * stride)),
          to_far_(static_cast<std::uintptr_t>((ahead.far - ahead.near) * stride) * 2),
          run_bytes_(static_cast<std::uintptr_t>(run) * 2),
          run_end_(run == stride ? UINTPTR_MAX : line_ + run_bytes_),
          step_(static_cast<std::uintptr_t>(stride) * 2) {}

    /// Asks for each of the next kCount lines.
    template <int kCount, LineRequests kRequests>
    ATTNCHECK_IMPL_INLINE void request_next() {
        request<kCount, kRequests, false>();
    }
    /// As request_next with kTwice, one line in six cycles at most. For kernels that are faster
    /// than memory: they would ask in bursts, more of which are dropped. Read alone, 64 MiB came at
    /// 22 to 26 GB/s without a pause, at 30 with 6 cycles, at 25 with 8; forward with pairs of bf16
    /// at 23, at 29 with 6.
    template <int kCount>
    ATTNCHECK_IMPL_INLINE void request_next_slowly() {
        request<kCount, LineRequests::kTwice, true>();
    }

private:
    template <LineRequests kRequests>
    ATTNCHECK_IMPL_INLINE void request_line(std::uintptr_t address) const {
        if constexpr (kRequests == LineRequests::kTwice) {
            request_into_second(address + to_far_);
            request_into_second(address);
        } else {
            request_into_first(address);
        }
    }

    template <int kCount, LineRequests kRequests, bool kSlowly>
    ATTNCHECK_IMPL_INLINE void request() {
        if (line_ + kCount * kLineBytes >= run_end_) {
#pragma GCC unroll 1
            for (int i = 0; i < kCount; ++i) {
                request_line<kRequests>(line_);
                line_ += kLineBytes;
                if (line_ >= run_end_) {
                    line_ = run_end_ - run_bytes_ + step_;
                    run_end_ += step_;
                }
            }
            return;
        }
#pragma GCC unroll 16
        for (std::uintptr_t i = 0; i < kCount; ++i) {
            const std::uintptr_t offset = kSlowly ? 0 : i * kLineBytes;
            request_line<kRequests>(line_ + offset);
            if (kSlowly) line_ = after_five_cycles(line_) + kLineBytes;
        }
        if (!kSlowly) line_ += kCount * kLineBytes;
    }

    // What depends on the result waits: 3 cycles for the product, 1 for each sum.
    ATTNCHECK_IMPL_INLINE static std::uintptr_t after_five_cycles(std::uintptr_t value) {
#if defined(__x86_64__) && defined(__GNUC__)
        __asm__("imul $1, %0, %0\n\tadd $0, %0\n\tadd $0, %0" : "+r"(value) : : "cc");
#endif
        return value;
    }

    std::uintptr_t line_, to_far_, run_bytes_, run_end_, step_;
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_LINES_AHEAD_H
