#include "properties/cli/emit_command.h"

#include <iostream>

#include "properties/cli/command.h"
#include "properties/cli/emitted_case.h"
#include "properties/cli/emitted_text.h"

namespace attncheck::properties {

std::vector<std::string> emitted_languages() { return {"numpy", "torch", "c"}; }

int emit_command(const Arguments& arguments) {
    const auto [op, spec] = legal_case(arguments);
    const EmittedCase made = emitted_case(*op, spec);
    std::cout << (arguments.emit == "c" ? emitted_c(made)
                                        : emitted_python(made, arguments.emit == "torch"));
    return kHeld;
}

}  // namespace attncheck::properties
