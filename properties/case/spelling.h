// What a misspelt name may have meant.
#pragma once

#include <string>
#include <vector>

namespace attncheck::properties {

/// Letters to add, remove or replace (Levenshtein 1966).
int edit_distance(const std::string& a, const std::string& b);

/// The known name that resembles `name`: at most two of five letters differ, or it begins with
/// all of them; empty without one.
std::string resembling(const std::string& name, const std::vector<std::string>& known);

/// "unknown operator 'atention', did you mean 'attention'?", or with all names that are known when
/// none resembles it.
std::string unknown_name(const std::string& kind, const std::string& name,
                         const std::vector<std::string>& known);

}  // namespace attncheck::properties
