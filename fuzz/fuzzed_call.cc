#include "fuzz/fuzzed_call.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace attncheck::fuzz {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::int64_t kStandsForValues = -1;

/// Pages of which the last can be neither read nor written.
char* pages_before_guard(std::size_t pages) {
    void* const begin = mmap(nullptr, (pages + 1) * kPage, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) __builtin_trap();
    char* const guard = static_cast<char*>(begin) + pages * kPage;
    if (mprotect(guard, kPage, PROT_NONE) != 0) __builtin_trap();
    return guard;
}

}  // namespace

void* no_memory() {
    static char* const guard = pages_before_guard(0);
    return guard + kPage / 2;
}

const char* text_before_guard(int slot, std::string_view text) {
    static char* const guards[] = {pages_before_guard(1), pages_before_guard(1)};
    char* const begin = guards[slot] - text.size() - 1;
    std::memcpy(begin, text.data(), text.size());
    begin[text.size()] = '\0';
    return begin;
}

const char* draw_layout(int slot, std::uint8_t which) {
    static const std::string kLong(kPage - 1, 'T');
    static const std::string kLongTail = "TND" + std::string(kPage - 4, '\x01');
    static const std::string_view kNames[] = {
        "TND",   "BNSD", "BSND", "SBH", "BSH",           "",     "tnd", "TN",     "TNDX", "BSN",
        "TND  ", " TND", "T",    "B",   "same_as_input", "same", kLong, kLongTail};
    const std::size_t choice = which % (std::size(kNames) + 1);
    return choice == std::size(kNames) ? nullptr : text_before_guard(slot, kNames[choice]);
}

ref::ArrayArgument back_array(attncheck_int_array& array, std::vector<std::int64_t>& values,
                              std::int64_t most_accepted, std::int64_t most_backed) {
    if (!array.values) return {false, array.size, {}};
    if (array.size >= 1 && array.size <= most_accepted) {
        array.size = std::min(array.size, most_backed);
        values.resize(static_cast<std::size_t>(array.size), values.empty() ? 0 : values.back());
    }
    array.values = values.empty() ? &kStandsForValues : values.data();
    if (array.size < 1) return {true, array.size, {}};
    return {true, array.size, values};
}

}  // namespace attncheck::fuzz
