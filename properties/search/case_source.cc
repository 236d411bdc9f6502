#include "properties/search/case_source.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "properties/case/attention_data.h"

namespace attncheck::properties {
namespace {

constexpr int kExploring = 5;  ///< percent of draws that look outside of what is known to be taken
/// Percent, under hidden=times_zero: a NaN of a hidden key gives away every row that it may reach.
constexpr int kHiddenNumbers = 50;

}  // namespace

CaseSource::CaseSource(const Operator& op, const Property& property, const EngineOptions& options,
                       const Portion& portion)
    : op_(op), property_(property), options_(options) {
    if (options.survey && !options.survey->scope.is_open()) scope_ = options.survey->scope;
    if (property.clauses) plan_.emplace(op, property, options.profile, portion.number, portion.of);
}

Spec CaseSource::next(Random& random, int size, bool is_plain) {
    if (std::optional<Spec> spec = planned(random, size)) return *spec;
    if (std::optional<Spec> spec = draw(random, size, is_plain)) return *spec;
    if (!options_.survey || options_.survey->scope.is_open())
        throw std::logic_error(fmt::format("{}: the generator of {} leaves its own domain",
                                           op_.name(), property_.name));
    is_outside_ = true;
    return op_.sample(random, size, options_.profile);
}

bool CaseSource::is_in_domain(const Spec& spec) const {
    return !op_.illegal(spec) && (!property_.domain || property_.domain(spec));
}

/// One of twenty may be outside of what is known to be taken, and is where little was asked for there.
std::optional<Spec> CaseSource::draw(Random& random, int size, bool is_plain) {
    const Scope* scope = scope_ ? &*scope_ : nullptr;
    explores_ = false;
    bool may_explore = scope && !scope->is_declared() && random.chance(kExploring);
    for (int tries = 0; tries < 100; ++tries) {
        Spec spec = is_plain && tries < 20 ? op_.plain(random, options_.profile)
                                           : op_.sample(random, size, options_.profile);
        spec.withheld |= options_.withheld;
        if (property_.adapt) property_.adapt(spec, random);
        if (options_.rounding.hidden_times_zero && random.chance(kHiddenNumbers)) with_hidden_numbers(spec);
        if (!is_in_domain(spec)) continue;
        if (!scope || scope->holds(spec)) return spec;
        if (std::exchange(may_explore, false)) {
            std::optional<Spec> next = scope->just_outside(spec, random);
            explores_ = next && is_in_domain(*next);
            if (explores_) return next;
        }
        std::optional<Spec> inside = scope->brought_inside(spec, random);
        if (!inside) continue;
        inside->profile = options_.profile;
        if (!is_in_domain(*inside)) {  // as the property wants it
            if (property_.adapt) property_.adapt(*inside, random);
            if (!is_in_domain(*inside) || !scope->holds(*inside)) continue;
        }
        return inside;
    }
    return std::nullopt;
}

/// A case that is planned, until every clause was tried; later every second one is.
std::optional<Spec> CaseSource::planned(Random& random, int size) {
    if (!plan_ || (plan_->is_through() && random.chance(50))) return std::nullopt;
    explores_ = false;
    return plan_->next(
        random,
        [&] {
            std::optional<Spec> other = draw(random, size, false);
            if (other) other->edits.clear();
            return other;
        },
        scope_ ? &*scope_ : nullptr);
}

}  // namespace attncheck::properties
