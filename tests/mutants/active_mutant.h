// Which defect is switched on. The environment variable ATTNCHECK_MUTANT is read once, when the
// library is loaded.
#pragma once

#include <algorithm>
#include <cstddef>

#include "attncheck/candidate.h"
#include "mutant_table.h"

/// For tests of the library itself: switches the defect without a new process. NULL or "" = none.
/// Not thread-safe.
extern "C" ATTNCHECK_EXPORT void attncheck_mutants_select(const char* id);

/// For tests: 1 if some code of the library asks for row `index` of the table.
extern "C" ATTNCHECK_EXPORT int attncheck_mutants_is_used(int index);

/// The table of mutants as text, in the form that `attncheck mutants` reads.
extern "C" ATTNCHECK_EXPORT const char* attncheck_mutant_table(void);

namespace attncheck::mutants {

inline constexpr int kNoMutant = -1, kUnknownMutant = -2;

/// Row of the table, kNoMutant or kUnknownMutant.
extern int active_mutant;

bool mark_used(int index);

template <std::size_t kSize>
struct IdText {
    char text[kSize]{};
    consteval IdText(const char (&id)[kSize]) { std::copy_n(id, kSize, text); }
};

/// Registers at load time that the code contains a row of the table, executed or not.
template <int kIndex>
struct Use {
    static const bool registered;
};
template <int kIndex>
const bool Use<kIndex>::registered = mark_used(kIndex);

/// True if this defect is switched on. An id that the table does not list does not compile.
template <IdText kId>
bool on() {
    constexpr int kIndex = mutant_index(kId.text);
    static_assert(kIndex >= 0, "this id is not in the table of mutants");
    static_cast<void>(&Use<kIndex>::registered);
    return active_mutant == kIndex;
}

}  // namespace attncheck::mutants
