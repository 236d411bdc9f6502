// Is printing the inverse of parsing? Any text either is a case line or is refused with
// std::invalid_argument; what was read prints as a line that reads back as the same case, and
// asking whether the case is legal comes to an answer. A trap means one of these fails.
//
// The bytes are the text.
#include <cstdio>
#include <stdexcept>
#include <string>

#include "properties/operators/catalogue.h"

using namespace attncheck::properties;

namespace {

[[noreturn]] void disagree(const std::string& what, const std::string& line) {
    std::fprintf(stderr, "%s: %s\n", what.c_str(), line.c_str());
    __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Spec spec;
    try {
        spec = parse({reinterpret_cast<const char*>(data), size}, schemas());
    } catch (const std::invalid_argument& refusal) {
        if (*refusal.what() == '\0') disagree("refused without a word", "");
        return 0;
    }
    const std::string line = print(spec);
    try {
        if (!(parse(line, schemas()) == spec)) disagree("reads back as another case", line);
    } catch (const std::invalid_argument& refusal) {
        disagree(refusal.what(), line);
    }
    if (print(parse(line, schemas())) != line) disagree("prints differently", line);
    (void)find_operator(spec.schema->op)->illegal(spec);
    return 0;
}
