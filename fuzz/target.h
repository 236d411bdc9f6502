// What a program fuzzes besides its question: CMake writes the definition, one for every libFuzzer program and one for the
// plain program of a question, which is told the operator by -operator=NAME.
#pragma once

#include <cstddef>
#include <string>

namespace attncheck::fuzz {

struct Target {
    std::string family;      ///< operator family; "" for all, or for a question that is about none
    bool edits = false;      ///< arguments of a case may be edited
    unsigned raw_percent = 0;  ///< how often the text of a case is changed in place of the case
    std::size_t changes = 0;   ///< the most changes that are read from bytes
};

extern Target target;

}  // namespace attncheck::fuzz
