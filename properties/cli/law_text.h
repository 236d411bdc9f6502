// What the sources say of each law: why it holds, its domain, its bound, what it kills, what it
// shrinks to.
#pragma once

#include <string>
#include <vector>

namespace attncheck::properties {

class Operator;

struct LawText {
    std::string path;  ///< of the source
    std::string name;  ///< of the law, or of the function that checks it
    std::string text;
};

/// All of them; cmake/law_text.cc writes this function from the sources when the suite is built.
const std::vector<LawText>& law_texts();

/// The text of an operator's law. A text in the operator's folder wins against one of the shared
/// laws. nullptr if there is none.
const LawText* law_text(const Operator& op, const std::string& law);

}  // namespace attncheck::properties
