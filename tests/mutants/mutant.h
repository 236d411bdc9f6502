// One line of the table of mutants.
#pragma once

#include <string_view>

namespace attncheck::mutants {

enum class Difficulty { easy, medium, hard, fiendish };

/// What a suite may be expected to do with a mutant.
enum class Status {
    counted,            ///< wrong under the contract: a suite that misses it has a gap
    near_equivalent,    ///< wrong, but only by rounding noise: needs a rigorous bound
    contract_dependent  ///< breaks only a promise that candidates need not make
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
};

inline constexpr Difficulty kEasy = Difficulty::easy, kMedium = Difficulty::medium,
                            kHard = Difficulty::hard, kFiendish = Difficulty::fiendish;

}  // namespace attncheck::mutants
