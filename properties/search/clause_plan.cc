#include "properties/search/clause_plan.h"

#include <algorithm>
#include <stdexcept>

namespace attncheck::properties {
namespace {

/// Shares of the fields that are taken from another case, the largest first.
constexpr int kShares[] = {100, 60, 30, 12, 5};

/// `spec` with some fields of `other`. Its edits stay.
Spec crossed(const Spec& spec, const Spec& other, int share, Random& random) {
    Spec out = spec;
    for (std::size_t i = 0; i < out.numbers.size(); ++i)
        if (random.chance(share)) out.numbers[i] = other.numbers[i];
    for (std::size_t i = 0; i < out.layouts.size(); ++i)
        if (random.chance(share)) out.layouts[i] = other.layouts[i];
    if (random.chance(share)) out.lists = other.lists;
    if (random.chance(share)) out.recipe = other.recipe;
    out.seed = other.seed;
    return out;
}

/// A row whose text is of another version of the operator is left out; a test finds it.
std::optional<Spec> or_nothing(const std::function<std::optional<Spec>()>& read) {
    try {
        return read();
    } catch (const std::invalid_argument&) {
        return std::nullopt;
    }
}

}  // namespace

ClausePlan::ClausePlan(const Operator& op, const Property& property, Profile profile, int shard,
                       int shards)
    : op_(op), clauses_(*property.clauses, op.name()) {
    int number = 0;
    for (const Clauses::Row& row : clauses_.rows()) {
        if (number++ % shards != shard) continue;
        std::optional<Spec> broken = or_nothing([&] { return broken_case(*row.edge, op.schema()); });
        if (!broken) continue;
        std::optional<Spec> legal = or_nothing([&] { return legal_case(*row.edge, op.schema()); });
        broken->profile = profile;
        if (legal) legal->profile = profile;
        rows_.push_back({row.clause, std::move(*broken), std::move(legal)});
    }
}

std::optional<Spec> ClausePlan::next(Random& random,
                                     const std::function<std::optional<Spec>()>& draw,
                                     const Scope* scope) {
    if (rows_.empty()) return std::nullopt;
    while (!is_through()) {
        const std::size_t at = next_++;
        const Row& row = rows_[at % rows_.size()];
        if (std::optional<Spec> spec = listed(row, at >= rows_.size(), random, scope)) return spec;
    }
    return varied(rows_[next_++ % rows_.size()], random, draw, scope);
}

std::optional<Spec> ClausePlan::listed(const Row& row, bool is_legal_side, Random& random,
                                       const Scope* scope) {
    if (is_legal_side && !row.legal) return std::nullopt;
    const Spec& wanted = is_legal_side ? *row.legal : row.broken;
    if (!scope || scope->holds(wanted)) {
        inside_.add(row.clause);
        return wanted;
    }
    std::optional<Spec> spec = scope->brought_inside(wanted, random);
    if (!spec) return std::nullopt;
    spec->edits = wanted.edits;
    spec->profile = wanted.profile;
    const auto ruling = ruling_of(*spec);
    if (!ruling || ruling->clause != (is_legal_side ? "" : clauses_.name(row.clause)))
        return std::nullopt;
    inside_.add(row.clause);
    return spec;
}

std::optional<Spec> ClausePlan::varied(const Row& row, Random& random,
                                       const std::function<std::optional<Spec>()>& draw,
                                       const Scope* scope) const {
    const std::optional<Spec> other = draw();
    if (!other) return std::nullopt;
    for (const int share : kShares) {
        Spec spec = crossed(row.broken, *other, share, random);
        if (op_.illegal(spec) || (scope && !scope->holds(spec))) continue;
        const auto ruling = ruling_of(spec);
        if (!ruling || ruling->clause != clauses_.name(row.clause)) continue;
        if (!row.legal) return spec;
        Spec legal = spec;
        legal.edits = row.legal->edits;
        const auto accepted = ruling_of(legal);
        if (!accepted || !accepted->accepted()) return spec;
        Edge edge = nearest_edge({std::move(spec), std::move(legal)}, clauses_.name(row.clause));
        return random.chance(75) ? std::move(edge.broken) : std::move(edge.legal);
    }
    return std::nullopt;
}

void ClausePlan::note(const std::string& clause) {
    if (const auto number = clauses_.number(clause)) decided_.add(*number), inside_.add(*number);
}

ClauseCoverage ClausePlan::coverage() const {
    ClauseCoverage out;
    out.is_through = is_through();
    for (std::size_t k = 0; k < clauses_.size(); ++k) {
        if (!inside_.has(k)) continue;
        ++out.possible;
        if (!decided_.has(k)) out.missing.push_back(clauses_.name(k));
    }
    return out;
}

}  // namespace attncheck::properties
