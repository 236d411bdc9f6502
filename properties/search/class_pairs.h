// Pairs of classes: which two of the classes that an operator requires met in one case. A quota
// says that each class was reached; defects often need two of them at once, such as a mode in a
// layout.
//
// The classes are the labels of Operator::required_classes, which cover every named field of a case
// line and the shapes that matter, without the numbered corner cases, which are combinations
// themselves. Possible are the pairs of different dimensions that the operator does not
// exclude (operators/OPERATOR/excluded_pairs.txt).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "properties/operators/operator.h"
#include "properties/report/results.h"

namespace attncheck::properties {

/// The pairs of one operator, numbered.
class ClassPairs {
public:
    explicit ClassPairs(const Operator& op);

    /// Adds every pair of a case with these labels. A label that is no required class is passed
    /// over.
    void note(const std::vector<std::string>& labels, PairSet& reached) const;

    PairCoverage coverage(const PairSet& reached) const;
    /// Of those that are `possible`: what shards reach of them is what the whole run does.
    PairCoverage coverage(const PairSet& reached, const PairSet& possible) const;

    const std::vector<std::string>& classes() const { return classes_; }
    /// Whether two classes are of different dimensions: "data:ints" and "data:ones" are values of
    /// one.
    bool counted(std::size_t a, std::size_t b) const;
    std::size_t pair(std::size_t a, std::size_t b) const;
    bool excluded(std::size_t pair) const { return excluded_.has(pair); }

private:
    PairCoverage coverage_of(const PairSet& reached, const PairSet* possible) const;

    std::string op_;
    std::vector<std::string> classes_;
    std::unordered_map<std::string, std::size_t> number_;
    PairSet excluded_;
};

}  // namespace attncheck::properties
