#include "impl/kernels/amx_kernels.h"

#include <algorithm>
#include <cstring>

#include "impl/kernels/amx_emulation.h"
#include "impl/kernels/attention_kernels.h"
#include "impl/kernels/wide_intrinsics.h"

#if defined(ATTNCHECK_IMPL_HAVE_AMX)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

// The file is compiled for any x86-64; only what follows uses the wide instructions and the tiles.
HWY_PUSH_ATTRIBUTES(ATTNCHECK_IMPL_AVX512_BF16 ",amx-tile,amx-bf16")

namespace attncheck::impl {
namespace {

#include "impl/kernels/softmax_512-inl.h"
#include "impl/kernels/transpose_square-inl.h"

// No template of the library in here: its code, shared by the whole program, would be of this
// target.
constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// Tile registers 0 to 7, all of 16 x 16 words while the object lives.
class AmxTiles {
public:
    AmxTiles() {
        static constexpr Config kConfig;
        __asm__ volatile("ldtilecfg %0" ::"m"(kConfig));
    }
    ~AmxTiles() { __asm__ volatile("tilerelease" ::); }
    AmxTiles(const AmxTiles&) = delete;
    AmxTiles& operator=(const AmxTiles&) = delete;

    template <int kTile>
    void zero() {
        __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
    }
    template <int kTile>
    void load(const std::uint32_t* from, std::int64_t stride) {
        __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(from), "r"(4 * stride)
                         : "memory");
    }
    template <int kSum, int kLeft, int kRight>
    void multiply() {
        __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kLeft),
                         "i"(kRight));
    }
    template <int kTile>
    void store(float* to) {
        __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(to), "r"(4 * kTileEdge)
                         : "memory");
    }

private:
    struct alignas(64) Config {
        std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
        std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
};

/// Sums of up to two by two tiles, from as many of the left and of the right:
/// registers 0 to 3, 4 and 5, 6 and 7.
constexpr std::int64_t kBlock = 2 * kTileEdge;
constexpr std::int64_t kMaxDepthTiles = 16;

/// Where a tile begins, and the distance of its rows.
struct TileView {
    const std::uint32_t* words;
    std::int64_t stride;
};

/// Tiles of up to kBlock rows of the left operand along the whole depth, copied where memory does
/// not hold them as tiles.
class LeftTiles {
public:
    void take(const PairProduct& p, std::int64_t first_row) {
        for (std::int64_t tile = 0; tile < 2; ++tile) {
            const std::int64_t row = first_row + tile * kTileEdge;
            const std::int64_t rows = smaller(kTileEdge, p.rows - row);
            if (rows <= 0) return;
            for (std::int64_t pair = 0; pair < p.depth_pairs; pair += kTileEdge) {
                const std::int64_t pairs = smaller(kTileEdge, p.depth_pairs - pair);
                const std::uint32_t* from = p.left + row * p.left_row + pair * p.left_depth;
                TileView& view = views_[tile][pair / kTileEdge];
                if (p.left_depth == 1 && rows == kTileEdge && pairs == kTileEdge) {
                    view = {from, p.left_row};
                    continue;
                }
                std::uint32_t* to = copies_ + (tile * kMaxDepthTiles + pair / kTileEdge) * kTileWords;
                p.left_depth == 1 ? copy(from, p.left_row, rows, pairs, to)
                                  : copy_transposed(from, p.left_depth, rows, pairs, to);
                view = {to, kTileEdge};
            }
        }
    }
    const TileView& at(int tile, std::int64_t depth_tile) const { return views_[tile][depth_tile]; }

    /// Some rows of some words; zeros fill the tile. Out of line: hardly ever, beside loops that
    /// are to be short.
    [[gnu::noinline]] static void copy(const std::uint32_t* from, std::int64_t stride,
                                       std::int64_t rows, std::int64_t words, std::uint32_t* to) {
        const __mmask16 mask = first(words);
        for (std::int64_t row = 0; row < kTileEdge; ++row, to += kTileEdge) {
            _mm512_storeu_si512(to, row < rows ? _mm512_maskz_loadu_epi32(mask, from + row * stride)
                                               : _mm512_setzero_si512());
        }
    }

private:
    static __mmask16 first(std::int64_t words) {
        return static_cast<__mmask16>((1u << words) - 1u);
    }
    static void copy_transposed(const std::uint32_t* from, std::int64_t stride, std::int64_t rows,
                                std::int64_t pairs, std::uint32_t* to) {
        __m512i square[kTileEdge];
        for (std::int64_t pair = 0; pair < kTileEdge; ++pair) {
            square[pair] = pair < pairs
                               ? _mm512_maskz_loadu_epi32(first(rows), from + pair * stride)
                               : _mm512_setzero_si512();
        }
        transpose_square(square);
        for (std::int64_t row = 0; row < kTileEdge; ++row)
            _mm512_storeu_si512(to + row * kTileEdge, square[row]);
    }

    TileView views_[2][kMaxDepthTiles];
    alignas(64) std::uint32_t copies_[2 * kMaxDepthTiles * kTileWords];
};

/// Sums of a block of tiles on their way to the result of a product.
struct BlockSums {
    const PairProduct* product;
    std::int64_t row, col;
    int row_tiles, col_tiles;
    alignas(64) float tiles[2][2][kTileWords];
};

/// out (+)= factor * sums, for the rows that there are; a sum that is 0 is +0.
template <bool kAccumulate>
void write_tile(const PairProduct& p, std::int64_t row, std::int64_t col, const float* sums) {
    const __m512 factor = _mm512_set1_ps(p.factor), zero = _mm512_setzero_ps();
    const std::int64_t rows = smaller(kTileEdge, p.rows - row), stride = p.out_stride;
    float* to = p.out + row * stride + col;
    for (std::int64_t r = 0; r < rows; ++r, to += stride, sums += kTileEdge) {
        const __m512 sum = _mm512_load_ps(sums);
        const __m512 scaled = kAccumulate ? _mm512_fmadd_ps(sum, factor, _mm512_loadu_ps(to))
                                          : _mm512_mul_ps(sum, factor);
        _mm512_storeu_ps(to, _mm512_add_ps(scaled, zero));
    }
}

void write_block(const BlockSums& sums) {
    const PairProduct& p = *sums.product;
    const auto write = p.accumulate ? &write_tile<true> : &write_tile<false>;
    for (int r = 0; r < sums.row_tiles; ++r) {
        for (int c = 0; c < sums.col_tiles; ++c)
            write(p, sums.row + r * kTileEdge, sums.col + c * kTileEdge, sums.tiles[r][c]);
    }
}

/// The sums of a block, in `sums`. What the unit did for the block before is written, unless null,
/// once everything for this one has been handed to it, and a step of `beside` is done for every
/// tile of the depth: the unit works meanwhile.
template <class Tiles, class Beside, int kRowTiles, int kColTiles>
void multiply_block(const PairProduct& p, const LeftTiles& left, Tiles& tiles, BlockSums& sums,
                    const BlockSums* before, Beside& beside) {
    tiles.template zero<0>();
    if constexpr (kColTiles > 1) tiles.template zero<1>();
    if constexpr (kRowTiles > 1) tiles.template zero<2>();
    if constexpr (kRowTiles > 1 && kColTiles > 1) tiles.template zero<3>();
    alignas(64) std::uint32_t cut[kColTiles][kTileWords];
    const std::int64_t depth = p.depth_pairs, stride = p.right_stride;
    const std::uint32_t* right = p.right + sums.col;
    for (std::int64_t pair = 0; pair < depth; pair += kTileEdge, right += kTileEdge * stride) {
        TileView view[2] = {{right, stride}, {right + kTileEdge, stride}};
        for (int tile = 0; tile < kColTiles && depth - pair < kTileEdge; ++tile) {
            LeftTiles::copy(view[tile].words, stride, depth - pair, kTileEdge, cut[tile]);
            view[tile] = {cut[tile], kTileEdge};
        }
        const TileView& upper = left.at(0, pair / kTileEdge);
        tiles.template load<4>(upper.words, upper.stride);
        tiles.template load<6>(view[0].words, view[0].stride);
        tiles.template multiply<0, 4, 6>();
        if constexpr (kColTiles > 1) {
            tiles.template load<7>(view[1].words, view[1].stride);
            tiles.template multiply<1, 4, 7>();
        }
        if constexpr (kRowTiles > 1) {
            const TileView& lower = left.at(1, pair / kTileEdge);
            tiles.template load<5>(lower.words, lower.stride);
            tiles.template multiply<2, 5, 6>();
            if constexpr (kColTiles > 1) tiles.template multiply<3, 5, 7>();
        }
        beside.step();
    }
    if (before != nullptr) write_block(*before);
    tiles.template store<0>(sums.tiles[0][0]);
    if constexpr (kColTiles > 1) tiles.template store<1>(sums.tiles[0][1]);
    if constexpr (kRowTiles > 1) tiles.template store<2>(sums.tiles[1][0]);
    if constexpr (kRowTiles > 1 && kColTiles > 1) tiles.template store<3>(sums.tiles[1][1]);
}

/// Products block by block, the last one always on its way.
template <class Tiles, class Beside>
class BlockWalk {
public:
    BlockWalk(Tiles& tiles, Beside& beside) : tiles_(tiles), beside_(beside), before_(nullptr) {}

    /// kBlock rows of a product, of which no more than kMaxDepthTiles are deep; `p` outlives the
    /// walk.
    void multiply_rows(const PairProduct& p, std::int64_t row) {
        using Multiply = void (*)(const PairProduct&, const LeftTiles&, Tiles&, BlockSums&,
                                  const BlockSums*, Beside&);
        static constexpr Multiply kMultiply[2][2] = {
            {&multiply_block<Tiles, Beside, 1, 1>, &multiply_block<Tiles, Beside, 1, 2>},
            {&multiply_block<Tiles, Beside, 2, 1>, &multiply_block<Tiles, Beside, 2, 2>}};
        left_.take(p, row);
        for (std::int64_t col = 0; col < p.cols; col += kBlock) {
            BlockSums& block = before_ == &sums_[0] ? sums_[1] : sums_[0];
            block.product = &p;
            block.row = row;
            block.col = col;
            block.row_tiles = p.rows - row > kTileEdge ? 2 : 1;
            block.col_tiles = p.cols - col > kTileEdge ? 2 : 1;
            kMultiply[block.row_tiles - 1][block.col_tiles - 1](p, left_, tiles_, block, before_,
                                                                beside_);
            before_ = &block;
        }
    }
    void finish() {
        if (before_ != nullptr) write_block(*before_);
        before_ = nullptr;
    }

private:
    Tiles& tiles_;
    Beside& beside_;
    LeftTiles left_;
    BlockSums sums_[2];
    const BlockSums* before_;
};

struct Nothing {
    void step() {}
};

constexpr std::int64_t kMaxPairs = kMaxDepthTiles * kTileEdge;

// The registers are set up and given back in every product: about fifty cycles of a thousand, and
// nothing of another user of the unit in this thread is left in place of its own.
template <class Tiles>
void product(const PairProduct& whole) {
    Tiles tiles;
    Nothing nothing;
    PairProduct part = whole;
    std::int64_t done = 0;
    do {
        part.depth_pairs = smaller(kMaxPairs, whole.depth_pairs - done);
        BlockWalk<Tiles, Nothing> walk(tiles, nothing);
        for (std::int64_t row = 0; row < part.rows; row += kBlock) walk.multiply_rows(part, row);
        walk.finish();
        done += part.depth_pairs;
        part.left = whole.left + done * whole.left_depth;
        part.right = whole.right + done * whole.right_stride;
        part.accumulate = true;
    } while (done < whole.depth_pairs);
}

#include "impl/kernels/amx_attention-inl.h"

}  // namespace
}  // namespace attncheck::impl

HWY_POP_ATTRIBUTES

namespace attncheck::impl {
namespace {

// Small whole numbers, with edges in every direction: exact, whatever the order of the sum.
bool multiplies_right() {
    constexpr std::int64_t kRows = 35, kPairs = 19, kCols = 48;
    constexpr std::uint32_t kNumbers[4] = {0x0000, 0x3f80, 0x4000, 0xc040};  // 0, 1, 2, -3 in bf16
    constexpr int kValues[4] = {0, 1, 2, -3};
    const auto choice = [](std::int64_t i) { return (i * i + i / 7) % 4; };
    std::uint32_t left[kRows * kPairs], right[kPairs * kCols];
    for (std::int64_t i = 0; i < kRows * kPairs; ++i)
        left[i] = kNumbers[choice(i)] | kNumbers[choice(i + 5)] << 16;
    for (std::int64_t i = 0; i < kPairs * kCols; ++i)
        right[i] = kNumbers[choice(i + 2)] | kNumbers[choice(3 * i)] << 16;
    float out[kRows * kCols];
    product<AmxTiles>(
        {left, kPairs, 1, kRows, right, kCols, kPairs, kCols, false, 1.0f, out, kCols});
    for (std::int64_t m = 0; m < kRows; ++m) {
        for (std::int64_t n = 0; n < kCols; ++n) {
            int sum = 0;
            for (std::int64_t k = 0; k < kPairs; ++k) {
                const std::int64_t a = m * kPairs + k, b = k * kCols + n;
                sum += kValues[choice(a)] * kValues[choice(b + 2)] +
                       kValues[choice(a + 5)] * kValues[choice(3 * b)];
            }
            if (out[m * kCols + n] != static_cast<float>(sum)) return false;
        }
    }
    return true;
}

bool request_amx() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
    if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

template <class Tiles>
const Bf16DotKernels* with_products(Bf16DotKernels& table) {
    const Bf16DotKernels* others = bf16_dot_kernels();
    if (others == nullptr) return nullptr;
    table = *others;
    table.product = &product<Tiles>;
    table.attend = &attend<Tiles>;
    return &table;
}

}  // namespace

bool may_use_amx() {
    static const bool granted = request_amx();
    return granted;
}

const Bf16DotKernels* amx_kernels() {
    static const Bf16DotKernels* const kernels =
        may_use_amx() && multiplies_right() ? untried_amx_kernels() : nullptr;
    return kernels;
}

const Bf16DotKernels* untried_amx_kernels() {
    static Bf16DotKernels table;
    static const Bf16DotKernels* const kernels = with_products<AmxTiles>(table);
    return kernels;
}

const Bf16DotKernels* emulated_amx_kernels() {
    static Bf16DotKernels table;
    static const Bf16DotKernels* const kernels = with_products<EmulatedTiles>(table);
    return kernels;
}

}  // namespace attncheck::impl

#else

namespace attncheck::impl {
bool may_use_amx() { return false; }
const Bf16DotKernels* amx_kernels() { return nullptr; }
const Bf16DotKernels* untried_amx_kernels() { return nullptr; }
const Bf16DotKernels* emulated_amx_kernels() { return nullptr; }
}  // namespace attncheck::impl

#endif
