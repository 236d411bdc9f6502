// What became of the cases of a search, in their order. With it a search goes on in another process: the cases are drawn
// again, and none of them is run again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "properties/report/results.h"

namespace attncheck::properties {

enum class Outcome : char {
    judged = 'j',
    hardly_compared = 'h',
    inapplicable = 'i',
    declined = 'd',
    others_declined = 'o',  ///< the case is taken, but not what it is compared with
};

/// Adds a case to the text. `failure`: its class; empty for a case that did not fail, or whose failure was waived.
void add_to(CaseJournal& journal, Outcome outcome, const std::string& failure);

/// Every case in its order. Throws std::runtime_error for a text that add_to() did not write.
void for_each_case(const CaseJournal& journal,
                   const std::function<void(Outcome outcome, const std::string& failure)>& tell);

}  // namespace attncheck::properties
