// An Edit is one illegal change of a call, as a value: `break=[...]` of a case line is a list of them.
//
//   NAME=5   NAME=nan   NAME="text"   NAME.absent   NAME.present   NAME.dtype=0   NAME.rank=2
//   NAME.shape[1]=7   NAME.swap[0,1]   NAME.lead=1   NAME.spare=9   NAME.size=-1   NAME.null
//   NAME[0]=-5   NAME[0,2,1]=-5
//   all.KEY=VALUE    gives a field another value in every shape and argument that follows from it
//
// One parser and one printer know this syntax; what a name means is the call's (apply_edit) or the
// description's (claims).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace attncheck::properties {

struct Edit {
    std::string name;       ///< of an argument, or "all"
    std::string attribute;  ///< behind the dot; empty: the argument itself
    std::vector<std::int64_t> index;
    std::variant<std::monostate, std::int64_t, double, std::string> value;

    Edit() = default;
    /// Reads the text form. Throws std::invalid_argument that names the text.
    Edit(std::string_view text);
    Edit(const char* text) : Edit(std::string_view(text)) {}
    Edit(const std::string& text) : Edit(std::string_view(text)) {}

    /// The value as a whole number or as a number; throws std::invalid_argument when it is none.
    std::int64_t integer() const;
    double real() const;
    bool has_value() const { return value.index() != 0; }
};

std::string print(const Edit& edit);

/// Edits are equal when they print alike: NaN is NaN.
inline bool operator==(const Edit& a, const Edit& b) { return print(a) == print(b); }

/// Throws std::invalid_argument: "case: break entry '<edit>' <why>".
[[noreturn]] void refuse(const Edit& edit, std::string_view why);

}  // namespace attncheck::properties
