// What the suite and its worker process say to each other. The worker is a fresh program that loads
// the candidate; both map one shared arena at the same address, so that argument structs can be
// passed as they are. Requests and replies are fixed-size records on a socket; a worker that dies
// closes it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attncheck::properties {

inline constexpr std::uintptr_t kArenaAddress =
    0x2a0000000000;  ///< free in ordinary and sanitized processes
/// Address space only, pages come on demand: the first size that the system grants. The largest has
/// room for four calls at once with tensors that lie far apart.
inline constexpr std::uint64_t kArenaSizes[] = {std::uint64_t{1} << 38, std::uint64_t{1} << 36};
inline constexpr std::uint64_t kControlBytes =
    1 << 20;  ///< argument structs, strings and guard table
inline constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t round_up_to_page(std::uint64_t bytes) {
    return (bytes + kPage - 1) / kPage * kPage;
}
inline constexpr int kMaxCalls = 4;
inline constexpr std::size_t kNameBytes = 64;  ///< of an entry point's name, with its NUL
inline constexpr std::size_t kMessageBytes = 1024;  ///< of what a call says, with its NUL

/// First message of the worker, followed by `bytes` of text: "ok\n<name>\n<precision>\n<features>\n
/// <op> <op> ..." or the error. A new line in features is a semicolon there.
struct Hello {
    std::uint32_t magic;
    std::uint32_t bytes;
};
inline constexpr std::uint32_t kHelloMagic = 0xa77c0001;
inline constexpr std::uint32_t kLongestHello = 64 << 10;
inline constexpr std::size_t kLongestWord = 4096;  ///< of a name and of a precision in it

/// Exit status of a worker whose socket broke: the candidate closed it, say.
inline constexpr int kConnectionLost = 97;

/// What a call changed in its process and left so, one bit each.
enum Change : std::uint32_t {
    kChangedFlushing = 1,
    kChangedRounding = 2,
    kChangedHandler = 4,
    kChangedMask = 8,
    kChangedTimer = 16,
    kChangedFolder = 32,
    kChangedLocale = 64,
    kChangedVariable = 128,
    kChangedRegisters = 256,
    kChangedLimit = 512,
};

struct Request {
    std::uint64_t number;  ///< the reply has the same
    std::uint32_t calls;  ///< 1..kMaxCalls; more than one run at once
    std::uint32_t repetitions;           ///< at least one; no more begin after enough_s
    double enough_s;
    char op[kMaxCalls][kNameBytes];      ///< entry points, without the prefix "attncheck_"
    std::uint64_t arguments[kMaxCalls];  ///< address of the argument struct in the arena
    std::uint64_t guards;                ///< address of the guard table: pairs {address, bytes}
    std::uint32_t guard_count;
    std::uint32_t input_count;
    std::uint64_t inputs;  ///< the same for the pages of inputs, read-only while the calls run
    std::uint64_t outputs;  ///< the same for pages of outputs, hashed when the calls have returned
    std::uint32_t output_count;
    std::uint32_t heap;    ///< byte that freed heap memory holds; fresh memory holds its complement
};

struct Reply {
    std::uint64_t number;
    /// not_run: the worker had no threads to call from.
    enum Kind : std::uint32_t { returned, fault, not_run } kind;
    std::int32_t status[kMaxCalls];
    std::int32_t signal;  ///< fault: signal number, address, and whether it was a write
    std::uint32_t is_write;
    std::uint32_t has_children;  ///< of the worker, whether they still run or not
    std::int64_t peak_mib;       ///< resident memory of the worker, the most so far
    std::uint64_t address;
    double seconds;  ///< time inside the candidate
    std::uint64_t output_hash;
    std::uint32_t changes;  ///< of Change
    /// Why a status is not 0, from candidates that can say it; mostly empty.
    char message[kMaxCalls][kMessageBytes];
};

/// A library that stands in front of others exports two more symbols, so that the worker can hand
/// it their names and ask which operators they have; both are called before anything else of it:
///   const char* attncheck_adapter_open(const char* libraries)     null, or why not, one line
///   int attncheck_adapter_implements(const char* entry_point)     without the prefix
inline constexpr const char* kAdapterOpen = "attncheck_adapter_open";
inline constexpr const char* kAdapterImplements = "attncheck_adapter_implements";

}  // namespace attncheck::properties
