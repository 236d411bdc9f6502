#include "tests/impl/amx_traps.h"

#include <signal.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace attncheck::impl {

#if defined(__x86_64__) && defined(__linux__)

namespace {

constexpr int kTiles = 8, kMaxRows = 16, kRowBytes = 64;

struct Unit {
    bool configured = false;
    int rows[kTiles] = {}, row_bytes[kTiles] = {};
    unsigned char tile[kTiles][kMaxRows][kRowBytes] = {};
    long executed = 0;
    const char* complaint = "";
};

Unit unit;
struct sigaction former;

void complain(const char* what) {
    if (*unit.complaint == '\0') unit.complaint = what;
}

void load_config(const unsigned char* from) {
    unit.configured = true;
    if (reinterpret_cast<std::uintptr_t>(from) % 64 != 0) complain("configuration across a line");
    if (from[0] != 1 || from[1] != 0) complain("palette is not 1 or the start row not 0");
    for (int i = 2; i < 16; ++i)
        if (from[i] != 0) complain("reserved bytes are not 0");
    for (int i = 0; i < 16; ++i) {
        std::uint16_t bytes;
        std::memcpy(&bytes, from + 16 + 2 * i, sizeof bytes);
        const int rows = from[48 + i];
        if (i >= kTiles) {
            if (bytes != 0 || rows != 0) complain("a tile beyond the eighth");
            continue;
        }
        if (bytes > kRowBytes || rows > kMaxRows || (bytes == 0) != (rows == 0))
            return complain("a tile larger than 16 rows of 64 bytes");
        unit.rows[i] = rows;
        unit.row_bytes[i] = bytes;
    }
    std::memset(unit.tile, 0, sizeof unit.tile);
}

void want(int tile) {
    if (!unit.configured || unit.rows[tile] == 0) complain("a tile without configuration");
}

float flushed(float number) {
    return std::fabs(number) < 0x1p-126f ? std::copysign(0.0f, number) : number;
}

float number(std::uint32_t bits) {
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return flushed(result);
}

// sum[m][n] += left[m][2 k] * right[k][2 n] + left[m][2 k + 1] * right[k][2 n + 1], words of 4
// bytes.
void multiply(int sum, int left, int right) {
    want(sum);
    want(left);
    want(right);
    if (unit.rows[sum] != unit.rows[left] || unit.row_bytes[sum] != unit.row_bytes[right] ||
        unit.row_bytes[left] != 4 * unit.rows[right])
        complain("tiles that do not fit together");
    for (int m = 0; m < unit.rows[left]; ++m) {
        for (int n = 0; n < unit.row_bytes[right] / 4; ++n) {
            float parts[2] = {};
            for (int k = 0; k < unit.row_bytes[left] / 4; ++k) {
                std::uint32_t a, b;
                std::memcpy(&a, unit.tile[left][m] + 4 * k, 4);
                std::memcpy(&b, unit.tile[right][k] + 4 * n, 4);
                parts[0] = flushed(parts[0] + number(a << 16) * number(b << 16));
                parts[1] = flushed(parts[1] + number(a & 0xffff0000u) * number(b & 0xffff0000u));
            }
            float total;
            std::memcpy(&total, unit.tile[sum][m] + 4 * n, 4);
            total = flushed(total + flushed(parts[0] + parts[1]));
            std::memcpy(unit.tile[sum][m] + 4 * n, &total, 4);
        }
    }
}

// Register `number` of the encoding, 0 to 15.
std::uint64_t general_register(const ucontext_t& context, int number) {
    constexpr int kOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                REG_R12, REG_R13, REG_R14, REG_R15};
    return static_cast<std::uint64_t>(context.uc_mcontext.gregs[kOrder[number]]);
}

// Operand in memory: base + displacement, and the index, which tile loads and stores take for the
// distance of rows.
struct Operand {
    std::uint64_t base = 0, index = 0;
    int bytes = 0;  ///< of the instruction behind the mod/rm byte
};

Operand decode_operand(const ucontext_t& context, const unsigned char* modrm, bool extend_index,
                       bool extend_base, std::uint64_t instruction) {
    Operand result;
    const int mod = *modrm >> 6, rm = *modrm & 7;
    const unsigned char* next = modrm + 1;
    bool displaced32 = mod == 2;
    if (rm == 4) {
        const int sib = *next++;
        const int index = (sib >> 3 & 7) + (extend_index ? 8 : 0), base = sib & 7;
        if (index != 4) result.index = general_register(context, index) << (sib >> 6);
        if (mod == 0 && base == 5)
            displaced32 = true;
        else
            result.base = general_register(context, base + (extend_base ? 8 : 0));
    } else if (mod == 0 && rm == 5) {
        std::int32_t displacement;  // from the end of the instruction
        std::memcpy(&displacement, next, 4);
        next += 4;
        result.bytes = static_cast<int>(next - modrm - 1);
        result.base = instruction + 5 + 4 + static_cast<std::uint64_t>(displacement);
        return result;
    } else {
        result.base = general_register(context, rm + (extend_base ? 8 : 0));
    }
    if (mod == 1) {
        result.base += static_cast<std::uint64_t>(static_cast<signed char>(*next++));
    } else if (displaced32) {
        std::int32_t displacement;
        std::memcpy(&displacement, next, 4);
        next += 4;
        result.base += static_cast<std::uint64_t>(displacement);
    }
    result.bytes = static_cast<int>(next - modrm - 1);
    return result;
}

void move_tile(int tile, const Operand& memory, bool store) {
    want(tile);
    for (int row = 0; row < unit.rows[tile]; ++row) {
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        void* at =
            reinterpret_cast<void*>(memory.base + static_cast<std::uint64_t>(row) * memory.index);
        const auto bytes = static_cast<std::size_t>(unit.row_bytes[tile]);
        store ? std::memcpy(at, unit.tile[tile][row], bytes)
              : std::memcpy(unit.tile[tile][row], at, bytes);
    }
}

// Length of the instruction, 0 if it is none of ours.
int execute(const ucontext_t& context, const unsigned char* code) {
    // Three-byte VEX, map 0F38, 128 bits, W = 0.
    if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84) != 0) return 0;
    const bool extend_index = (code[1] & 0x40) == 0, extend_base = (code[1] & 0x20) == 0;
    const int prefix = code[2] & 3, third = ~(code[2] >> 3) & 15, opcode = code[3];
    const int mod = code[4] >> 6, reg = code[4] >> 3 & 7, rm = code[4] & 7;
    const auto address = static_cast<std::uint64_t>(context.uc_mcontext.gregs[REG_RIP]);
    const auto memory = [&] {
        return decode_operand(context, code + 4, extend_index, extend_base, address);
    };
    enum Prefix { kNone, k66, kF3, kF2 };
    if (opcode == 0x49 && prefix == kNone && mod != 3) {
        const Operand operand = memory();
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        load_config(reinterpret_cast<const unsigned char*>(operand.base + operand.index));
        return 5 + operand.bytes;
    }
    if (opcode == 0x49 && prefix == kNone && code[4] == 0xc0) {
        unit.configured = false;
        return 5;
    }
    if (opcode == 0x49 && prefix == kF2 && mod == 3) {
        want(reg);
        std::memset(unit.tile[reg], 0, sizeof unit.tile[reg]);
        return 5;
    }
    if (opcode == 0x4b && (prefix == kF2 || prefix == kF3) && mod != 3 && rm == 4) {
        const Operand operand = memory();
        move_tile(reg, operand, prefix == kF3);
        return 5 + operand.bytes;
    }
    if (opcode == 0x5c && prefix == kF3 && mod == 3) {
        if (reg == rm || reg == third || rm == third) complain("a tile twice in one product");
        multiply(reg, rm, third & 7);
        return 5;
    }
    return 0;
}

void on_illegal_instruction(int, siginfo_t*, void* argument) {
    auto& context = *static_cast<ucontext_t*>(argument);
    long long& next = context.uc_mcontext.gregs[REG_RIP];
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    const int length = execute(context, reinterpret_cast<const unsigned char*>(next));
    if (length == 0) {
        sigaction(SIGILL, &former, nullptr);  // meets it again
        return;
    }
    ++unit.executed;
    next += length;
}

}  // namespace

AmxTraps::AmxTraps() {
    unit = Unit();
    struct sigaction action = {};
    action.sa_sigaction = &on_illegal_instruction;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, &former);
}

AmxTraps::~AmxTraps() { sigaction(SIGILL, &former, nullptr); }

long AmxTraps::executed() const { return unit.executed; }

std::string AmxTraps::complaint() const {
    return *unit.complaint == '\0' && unit.configured ? "tiles not released" : unit.complaint;
}

#else

AmxTraps::AmxTraps() = default;
AmxTraps::~AmxTraps() = default;
long AmxTraps::executed() const { return 0; }
std::string AmxTraps::complaint() const { return "no such machine code here"; }

#endif

}  // namespace attncheck::impl
