// What a run knows so far: each counterexample is printed, kept in the corpus and saved as soon as
// it is there, so that a run that is killed has lost little.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "properties/report/causes.h"
#include "properties/report/results.h"
#include "properties/search/run.h"

namespace attncheck::properties {

/// Lets a property's report through when it has another counterexample, otherwise a few times a
/// second.
class Pace {
public:
    bool passes(const PropertyReport& now, double time);

private:
    double last_ = -1;
    std::size_t known_ = 0;
    bool was_shrinking_ = false;
};

class Findings {
public:
    /// Of so many properties; `report` has what a saved report says of the run as a whole.
    Findings(std::size_t properties, const VerifyOptions& options, const Clock& clock,
             RunReport& report, std::ostream& out);

    /// Whether update() would print something.
    bool has_more(std::size_t i, const PropertyReport& now) const;

    /// The latest report of property i. Says which counterexamples are new, prints and keeps those
    /// that are shrunk; saves when there are any, or when the last time was seconds ago. A search that began anew adds
    /// nothing until it is further than the one before.
    void update(std::size_t i, const Operator& op, PropertyReport now);
    /// Takes the place of the counterexample of this failure that was left to be shrunk.
    void shrunk(std::size_t i, const Operator& op, const Counterexample& smallest);
    /// One that waits to be shrunk; nullptr: there is none.
    const Counterexample* to_shrink(std::size_t i) const;
    /// What is known of the property; nullptr: nothing.
    const PropertyReport* report_of(std::size_t i) const;

    /// The report of property i is its last one: saved, so that no later run begins it again.
    void close(std::size_t i);
    /// An earlier run came to this report, and printed what is shrunk of it.
    void go_on_with(std::size_t i, const PropertyReport& report);
    /// The same of a property that came to its end.
    void take_over(std::size_t i, const PropertyReport& report);

    /// The last report of a property that did not come to its end; nothing when there was none.
    std::optional<PropertyReport> left_by(std::size_t i) const;

    std::int64_t cases() const;  ///< generated, replayed and declined ones of all properties
    void save();                 ///< now, whenever the last time was

private:
    struct OfProperty {
        std::optional<PropertyReport> report;
        std::map<std::string, bool> shown;  ///< failures; true: in full
        bool is_closed = false;
    };
    /// Of all that were shown in this way, the first of its cause.
    bool is_first_of_its_cause(std::vector<Failure>& shown, const PropertyReport& property,
                               const Counterexample& found) const;
    bool is_news(std::size_t i, const Counterexample& found) const;
    void show(const PropertyReport& property, const Counterexample& found);
    void keep(const Operator& op, const std::string& property, const Counterexample& found);

    const VerifyOptions& options_;
    const Clock& clock_;
    RunReport& report_;
    std::ostream& out_;
    double start_, saved_ = 0;
    std::vector<OfProperty> properties_;
    std::vector<Failure> shown_;      ///< printed, in full or in a line
    std::vector<Failure> announced_;  ///< before they were shrunk
};

}  // namespace attncheck::properties
