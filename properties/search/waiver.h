// Files of known deviations.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "properties/operators/operator.h"

namespace attncheck::properties {

/// A known deviation that is counted and shown, not reported as a failure.
struct Waiver {
    std::string op, property;         ///< "*" matches all
    std::vector<std::string> labels;  ///< all must hold for the case; empty matches all
    std::string reason;
    std::string failure = "*";  ///< the failure class, where * stands for any text
    std::string output = "*";   ///< the output that the class names, see output_of() in report/causes.h

    bool applies(const std::string& to_op, const std::string& to_property,
                 const std::vector<std::string>& case_labels, const std::string& to_failure) const;
    /// As a line of the file has it.
    std::string text() const;
};

/// Reads lines
///
///   OPERATOR PROPERTY LABELS [failure="CLASS"] [output=NAME] REASON
///
/// "*" matches all, labels are comma-separated, "#" at the beginning of a word starts a comment. Throws
/// std::runtime_error naming the line that does not fit the operators, labels and outputs included.
std::vector<Waiver> read_waivers(const std::string& path,
                                 const std::vector<std::unique_ptr<Operator>>& operators);

}  // namespace attncheck::properties
