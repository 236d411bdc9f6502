// What the cases of one property show, added to its report: the classes that they reach, the errors that they have, and
// the failures that a waiver excuses. It judges nothing.
#pragma once

#include <string>
#include <vector>

#include "properties/search/class_pairs.h"
#include "properties/search/engine.h"

namespace attncheck::properties {

class CaseEvidence {
public:
    /// Everything is kept by reference.
    CaseEvidence(const Operator& op, const Property& property, const EngineOptions& options);

    /// Labels of a generated case with a verdict. A replayed case says nothing about the generator and has none.
    void add_classes(const Spec& spec, const std::vector<std::string>& labels, PropertyReport& report) const;
    void add_errors(const Verdict& verdict, PropertyReport& report) const;
    /// Whether the run waives this failure. The report counts it then, with the reason.
    bool waives(const std::string& failure, const std::vector<std::string>& labels, PropertyReport& report) const;

private:
    const Operator& op_;
    const Property& property_;
    const EngineOptions& options_;
    const ClassPairs pairs_;
};

}  // namespace attncheck::properties
