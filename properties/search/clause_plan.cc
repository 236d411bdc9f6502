#include "properties/search/clause_plan.h"

#include <algorithm>
#include <set>
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

/// The case with every other type that is tried of the tensor whose type its edit changes: types
/// are no interval with an edge.
std::vector<Spec> other_types(const Spec& spec, const Property& property) {
    std::vector<Spec> out;
    const Edit& now = spec.edits.back();
    Spec base = spec;
    base.edits.clear();
    for (const auto& group : property.edits(base))
        for (const Edit& edit : group) {
            if (edit.name != now.name || edit.attribute != now.attribute || edit == now) continue;
            base.edits = {edit};
            if (std::find(out.begin(), out.end(), base) == out.end()) out.push_back(base);
        }
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

ClausePlan::ClausePlan(const Operator& op, const Property& property, Profile profile, int part,
                       int parts)
    : op_(op), clauses_(*property.clauses, op.name()) {
    for (const Clauses::Row& row : clauses_.rows()) {
        std::optional<Spec> broken = or_nothing([&] { return broken_case(*row.edge, op.schema()); });
        if (!broken) continue;
        std::optional<Spec> legal = or_nothing([&] { return legal_case(*row.edge, op.schema()); });
        broken->profile = profile;
        if (legal) legal->profile = profile;
        rows_.push_back({row.clause, std::move(*broken), std::move(legal)});
    }
    std::set<std::string> tensors;
    for (std::size_t i = rows_.size(); i-- > 0;) {
        const Spec spec = rows_[i].broken;
        if (spec.edits.size() != 1 || spec.edits[0].attribute != "dtype" || !property.edits ||
            !tensors.insert(spec.edits[0].name).second)
            continue;
        for (Spec& other : other_types(spec, property)) {
            const auto ruling = ruling_of(other);
            const auto clause = ruling ? clauses_.number(ruling->clause) : std::nullopt;
            if (clause) rows_.push_back({clause, std::move(other), std::nullopt});
        }
    }
    if (parts == 1) return;
    std::vector<Row> own;
    for (std::size_t i = static_cast<std::size_t>(part); i < rows_.size(); i += static_cast<std::size_t>(parts))
        own.push_back(std::move(rows_[i]));
    rows_ = std::move(own);
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
        if (row.clause) inside_.add(*row.clause);
        return wanted;
    }
    std::optional<Spec> spec = scope->brought_inside(wanted, random);
    if (!spec) return std::nullopt;
    spec->edits = wanted.edits;
    spec->profile = wanted.profile;
    const auto ruling = ruling_of(*spec);
    if (!ruling || ruling->clause != name_of(row, is_legal_side)) return std::nullopt;
    if (row.clause) inside_.add(*row.clause);
    return spec;
}

std::optional<Spec> ClausePlan::varied(const Row& row, Random& random,
                                       const std::function<std::optional<Spec>()>& draw,
                                       const Scope* scope) const {
    const std::optional<Spec> other = row.clause ? draw() : std::nullopt;
    if (!other) return std::nullopt;
    const std::string clause = name_of(row, false);
    for (const int share : kShares) {
        Spec spec = crossed(row.broken, *other, share, random);
        if (op_.illegal(spec) || (scope && !scope->holds(spec))) continue;
        const auto ruling = ruling_of(spec);
        if (!ruling || ruling->clause != clause) continue;
        if (!row.legal) return spec;
        Spec legal = spec;
        legal.edits = row.legal->edits;
        const auto accepted = ruling_of(legal);
        if (!accepted || !accepted->accepted()) return spec;
        Edge edge = nearest_edge({std::move(spec), std::move(legal)}, clause);
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
        if (!inside_.has(k)) {
            out.outside.push_back(clauses_.name(k));
            continue;
        }
        ++out.possible;
        if (!decided_.has(k)) out.missing.push_back(clauses_.name(k));
    }
    return out;
}

}  // namespace attncheck::properties
