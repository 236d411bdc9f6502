#ifndef ATTNCHECK_IMPL_AMX_EMULATION_H
#define ATTNCHECK_IMPL_AMX_EMULATION_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace attncheck::impl {

inline constexpr std::int64_t kTileEdge = 16;  ///< rows of a tile, and words in a row
inline constexpr std::int64_t kTileWords = kTileEdge * kTileEdge;

/// What AmxTiles (amx_kernels.cc) does, in memory: tests run it on every machine.
class EmulatedTiles {
public:
    template <int kTile>
    void zero() {
        std::fill_n(tiles_[kTile], kTileWords, 0u);
    }
    template <int kTile>
    void load(const std::uint32_t* from, std::int64_t stride) {
        for (std::int64_t row = 0; row < kTileEdge; ++row)
            std::copy_n(from + row * stride, kTileEdge, tiles_[kTile] + row * kTileEdge);
    }
    template <int kSum, int kLeft, int kRight>
    void multiply() {
        multiply(tiles_[kLeft], tiles_[kRight], tiles_[kSum]);
    }
    template <int kTile>
    void store(float* to) {
        std::memcpy(to, tiles_[kTile], sizeof tiles_[kTile]);
    }

private:
    // Once in the program: a block of tiles has sixteen of them, and unrolled they were most of its code.
    [[gnu::noinline]] static void multiply(const std::uint32_t* left_tile, const std::uint32_t* right_tile,
                                           std::uint32_t* sum_tile) {
        float right_low[kTileWords], right_high[kTileWords];
        for (std::int64_t i = 0; i < kTileWords; ++i) {
            right_low[i] = low_half(right_tile[i]);
            right_high[i] = high_half(right_tile[i]);
        }
        for (std::int64_t m = 0; m < kTileEdge; ++m) {
            float low[kTileEdge] = {}, high[kTileEdge] = {};
            for (std::int64_t k = 0; k < kTileEdge; ++k) {
                const std::uint32_t left = left_tile[m * kTileEdge + k];
                const float left_low = low_half(left), left_high = high_half(left);
                for (std::int64_t n = 0; n < kTileEdge; ++n) {
                    low[n] += left_low * right_low[k * kTileEdge + n];
                    high[n] += left_high * right_high[k * kTileEdge + n];
                }
            }
            for (std::int64_t n = 0; n < kTileEdge; ++n) {
                std::uint32_t& word = sum_tile[m * kTileEdge + n];
                word = bits(flushed(value(word) + flushed(low[n] + high[n])));
            }
        }
    }
    static float value(std::uint32_t word) {
        float result;
        std::memcpy(&result, &word, sizeof result);
        return result;
    }
    static std::uint32_t bits(float number) {
        std::uint32_t result;
        std::memcpy(&result, &number, sizeof result);
        return result;
    }
    // Subnormals become zeros on the way in and out.
    static float flushed(float number) {
        return std::fabs(number) < 0x1p-126f ? std::copysign(0.0f, number) : number;
    }
    static float low_half(std::uint32_t pair) { return flushed(value(pair << 16)); }
    static float high_half(std::uint32_t pair) { return flushed(value(pair & 0xffff0000u)); }

    std::uint32_t tiles_[8][kTileWords];
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_AMX_EMULATION_H
