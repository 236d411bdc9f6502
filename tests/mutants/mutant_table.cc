#include "mutant_table.h"

namespace attncheck::mutants {

namespace {

constexpr bool ids_are_distinct() {
    std::array<std::string_view, kMutants.size()> ids{};
    std::transform(kMutants.begin(), kMutants.end(), ids.begin(),
                   [](const Mutant& mutant) { return mutant.id; });
    std::sort(ids.begin(), ids.end());
    return std::adjacent_find(ids.begin(), ids.end()) == ids.end();
}

constexpr bool exceptions_have_reasons() {
    for (const Mutant& mutant : kMutants)
        if ((mutant.status == Status::counted) != mutant.reason.empty()) return false;
    return true;
}

static_assert(ids_are_distinct());
static_assert(exceptions_have_reasons());

}  // namespace

std::string_view name_of(Difficulty difficulty) {
    switch (difficulty) {
        case Difficulty::easy:
            return "easy";
        case Difficulty::medium:
            return "medium";
        case Difficulty::hard:
            return "hard";
        case Difficulty::fiendish:
            return "fiendish";
    }
    return "?";
}

std::string_view name_of(Status status) {
    switch (status) {
        case Status::counted:
            return "counted";
        case Status::near_equivalent:
            return "near-equivalent";
        case Status::contract_dependent:
            return "contract-dependent";
    }
    return "?";
}

std::string_view name_of(Kind kind) { return kind == Kind::ruling ? "ruling" : "result"; }

std::string_view name_of(Origin origin) {
    return origin == Origin::catalogue ? "catalogue" : "further";
}

}  // namespace attncheck::mutants
