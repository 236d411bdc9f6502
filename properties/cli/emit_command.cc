#include "properties/cli/emit_command.h"

#include <fmt/format.h>

#include <iostream>
#include <set>

#include "properties/cli/command.h"
#include "properties/cli/emitted_case.h"
#include "properties/cli/emitted_text.h"

namespace attncheck::properties {

namespace {

/// The class that `reproduce` judges the case by. Only a library that is named is asked for its own.
ref::RoundingClass class_of(const Arguments& arguments) {
    if (arguments.candidate.empty() || !arguments.precision.empty()) return rounding_of(arguments);
    try {
        return rounding_of(arguments, *open_candidate(arguments, false));
    } catch (const LoadError& e) {
        throw LoadError(fmt::format("{}; with --precision a program needs no library", e.what()));
    }
}

/// Laws that compare outputs with what is expected of one call, as the program does.
const std::set<std::string, std::less<>> kJudgedByBounds{"agreement", "exact_lattice", "exact_integers", "non_finite", "sampled"};

}  // namespace

std::vector<std::string> emitted_languages() { return {"numpy", "torch", "c"}; }

int emit_command(const Arguments& arguments) {
    const auto [op, spec] = legal_case(arguments);
    const EmittedCase made = emitted_case(*op, spec, class_of(arguments));
    // What other laws see, such as a gain below every bound, the program does not.
    if (!arguments.property.empty() && !kJudgedByBounds.contains(arguments.property))
        std::cerr << fmt::format(
            "attncheck: note: {0} found this, and the program compares every output with its bound alone: it may find nothing wrong; "
            "attncheck explain {0}\n",
            arguments.property);
    std::cout << (arguments.emit == "c" ? emitted_c(made)
                                        : emitted_python(made, arguments.emit == "torch"));
    return kHeld;
}

}  // namespace attncheck::properties
