// One line of the table of mutants.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace attncheck::mutants {

enum class Difficulty { easy, medium, hard, fiendish };

/// What a suite may be expected to do with a mutant.
enum class Status {
    counted,            ///< wrong under the contract: a suite that misses it has a gap
    near_equivalent,    ///< wrong, but only by rounding noise: needs a rigorous bound
    contract_dependent  ///< breaks only a promise that candidates need not make
};

/// What a defect makes wrong.
enum class Kind {
    result,  ///< what a call computes, reads or writes
    ruling   ///< which arguments are accepted
};

enum class Origin {
    catalogue,  ///< bugs that shipped or nearly did
    further     ///< more of the same kinds
};

/// The entry points that a defect sits in: a forward, its gradient, or both.
struct Operators {
    std::string_view name, family;  ///< the family has the name of its forward
    bool forward, gradient;
    std::string_view op;  ///< the forward's entry point without its prefix
};

struct Mutant {
    std::string_view id;
    Operators operators;
    Difficulty difficulty;
    std::string_view description;
    Status status = Status::counted;
    std::string_view reason = {};  ///< why the status is not `counted`
    // The table sets these (mutant_table.h).
    Kind kind = Kind::result;
    Origin origin = Origin::catalogue;
    std::string_view profile = "-";  ///< the platform that it shows on; -: the default one
};

inline constexpr Difficulty kEasy = Difficulty::easy, kMedium = Difficulty::medium,
                            kHard = Difficulty::hard, kFiendish = Difficulty::fiendish;

/// Tables one behind the other.
template <const auto&... tables>
constexpr auto joined() {
    std::array<Mutant, (std::size(tables) + ...)> all{};
    std::size_t end = 0;
    ((std::ranges::copy(tables, all.begin() + end), end += std::size(tables)), ...);
    return all;
}

}  // namespace attncheck::mutants
