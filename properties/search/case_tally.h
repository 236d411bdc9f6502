// How many cases of one property were drawn and what became of them: when they are enough, and what
// they say in the end.
#pragma once

#include <cstdint>

#include "properties/search/portions.h"

namespace attncheck::properties {

class CaseTally {
public:
    CaseTally(const Property& property, const EngineOptions& options);

    /// What decides about a portion is counted in it alone.
    void begin(const Portion& portion);

    void add_drawn() { ++now_.drawn; }
    void add_inapplicable() { ++now_.inapplicable; }
    /// `is_taken`: the candidate takes the case, but not what it is compared with.
    void add_declined(bool is_taken) { ++now_.declined, now_.others_declined += is_taken; }
    /// A case with a verdict. One whose elements no bound judges, most of them, is counted apart.
    void add_judged(bool is_hardly_compared) { ++(is_hardly_compared ? now_.hardly_compared : now_.judged); }
    static bool is_hardly_compared(const ElementCount& elements);

    /// Cases of the portion that are still to be run, at least; `unlimited` where no number was asked for.
    std::int64_t left(std::int64_t unlimited) const;
    /// Every portion begins with cases of what people run.
    bool is_at_plain_cases() const { return now_.drawn < plain_cases(); }
    /// So many of the first cases are such.
    std::int64_t plain_cases() const;
    /// So many cases of the property, enough of them with a verdict; or so many drawn that it has its share.
    bool has_met(std::int64_t cases) const;
    /// As many of the portion as were asked for, or so many drawn that more would not help.
    bool is_enough() const;
    /// Waiting for a case with a verdict costs more than it shows.
    bool is_hopeless() const;

    /// Verdict of a property without a failure, over all portions so far.
    void conclude(PropertyReport& report, bool is_outside) const;
    /// Its counts.
    void fill(DrawnCases& drawn, bool is_outside) const;

private:
    struct Counts {
        std::int64_t drawn = 0;
        std::int64_t inapplicable = 0;     ///< of those drawn: the property demands nothing of them
        std::int64_t declined = 0;
        std::int64_t others_declined = 0;  ///< cases that are taken, but not what they are compared with
        std::int64_t judged = 0;           ///< neither declined nor inapplicable
        std::int64_t hardly_compared = 0;  ///< no bound judges most of their elements

        void add(const Counts& other);
        std::int64_t met() const { return judged + inapplicable + hardly_compared; }
    };
    Counts all() const;
    bool has_judged_enough() const;
    bool has_drawn_enough() const;
    bool is_mostly_declined() const;
    bool is_never_taken() const;
    bool has_never_applied() const;

    const Property& property_;
    const EngineOptions& options_;
    Counts before_, now_;        ///< of the portions before, and of this one
    bool was_mostly_declined_ = false;  ///< a portion before
    std::int64_t wanted_ = 0;    ///< of the portion; 0: as many as the time allows
    std::int64_t enough_ = kConclusiveCases;  ///< judged cases that make a verdict conclusive: the portion's share
    std::int64_t shares_ = 0;    ///< the same of all portions so far
    std::int64_t most_drawn_ = 0;
};

}  // namespace attncheck::properties
