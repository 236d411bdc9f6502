// How many cases of one property were drawn and what became of them: when they are enough, and what
// they say in the end.
#pragma once

#include <cstdint>

#include "properties/search/engine.h"

namespace attncheck::properties {

class CaseTally {
public:
    CaseTally(const Property& property, const EngineOptions& options);

    std::int64_t drawn = 0;
    std::int64_t inapplicable = 0;     ///< of those drawn: the property demands nothing of them
    std::int64_t others_declined = 0;  ///< cases that are taken, but not what they are compared with

    /// A case with a verdict. One whose elements no bound judges, most of them, is counted apart.
    void add_judged(const ElementCount& elements);

    /// Cases that are still to be run, at least; `unlimited` where no number was asked for.
    std::int64_t left(std::int64_t unlimited) const;
    /// Every property begins with cases of what people run.
    bool is_at_plain_cases() const;
    /// So many cases of a slice, enough of them with a verdict; or so many drawn that it has its share.
    bool has_met(std::int64_t cases) const;
    /// As many as were asked for, or so many drawn that more would not help.
    bool is_enough() const;
    /// Waiting for a case with a verdict costs more than it shows.
    bool is_hopeless(const PropertyReport& so_far) const;

    /// Status and note of a property without a failure: one that met few cases says nothing, unless
    /// no more were asked for.
    void conclude(PropertyReport& report, bool is_outside) const;

private:
    bool has_judged_enough() const;
    bool has_drawn_enough() const;
    bool is_mostly_declined(const PropertyReport& so_far) const;
    bool is_never_taken(const PropertyReport& so_far) const;
    bool has_never_applied() const;
    void conclude_on_elements(PropertyReport& report) const;

    const Property& property_;
    const EngineOptions& options_;
    std::int64_t judged_ = 0;           ///< neither declined nor inapplicable
    std::int64_t hardly_compared_ = 0;  ///< no bound judges most of their elements
    std::int64_t wanted_ = 0;           ///< 0: as many as the time allows
    std::int64_t enough_ = 0;           ///< judged cases that make a verdict conclusive
    std::int64_t most_drawn_ = 0;
};

}  // namespace attncheck::properties
