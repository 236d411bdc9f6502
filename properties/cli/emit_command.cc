#include "properties/cli/emit_command.h"

#include <fmt/format.h>

#include <iostream>

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

}  // namespace

std::vector<std::string> emitted_languages() { return {"numpy", "torch", "c"}; }

int emit_command(const Arguments& arguments) {
    const auto [op, spec] = legal_case(arguments);
    const EmittedCase made = emitted_case(*op, spec, class_of(arguments));
    std::cout << (arguments.emit == "c" ? emitted_c(made)
                                        : emitted_python(made, arguments.emit == "torch"));
    return kHeld;
}

}  // namespace attncheck::properties
