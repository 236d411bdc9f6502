#include "properties/laws/clauses.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "properties/case/derived.h"

namespace attncheck::properties {
namespace {

/// "flash{...}" and "a=1,b=2" as one case line.
Spec with_edits(std::string_view base, std::string_view edits, const Schema& schema) {
    std::string line(base);
    if (!edits.empty()) line.insert(line.size() - 1, fmt::format(" break=[{}]", edits));
    return parse(line, {&schema});
}

/// An accepted value of a field whose buffers do not follow its claim: the field has it, too.
Spec with_fields(Spec spec) {
    if (spec.edits.empty()) return spec;
    const Claim* claim = spec.schema->claim_of(spec.edits.back());
    if (!claim || claim->laid_out || claim->apply) return spec;
    const int field = spec.schema->number(claim->key.substr(claim->key.find('.') + 1));
    if (field < 0) return spec;
    Spec out = spec;
    out.numbers[static_cast<std::size_t>(field)] = spec.edits.back().integer();
    return illegal(out) ? spec : out;
}

/// Numbers in the order of their values, so that halves of intervals can be taken.
struct Steps {
    bool real = false;
    std::int64_t step = 1;

    std::int64_t of(const Edit& edit) const {
        if (!real) return edit.integer();
        const auto bits = std::bit_cast<std::int64_t>(edit.real());
        return bits < 0 ? std::numeric_limits<std::int64_t>::min() - bits : bits;
    }
    void set(Edit& edit, std::int64_t value) const {
        if (!real)
            edit.value = value;
        else
            edit.value = std::bit_cast<double>(
                value < 0 ? std::numeric_limits<std::int64_t>::min() - value : value);
    }
};

bool is_number(const Edit& edit, bool real) {
    if (std::holds_alternative<std::int64_t>(edit.value)) return true;
    return real && std::holds_alternative<double>(edit.value) && !std::isnan(edit.real());
}

}  // namespace

std::optional<ref::Ruling> ruling_of(const Spec& spec) {
    try {
        return rule(spec.schema->build(spec));
    } catch (const std::invalid_argument&) {
        return std::nullopt;
    }
}

Spec broken_case(const ClauseEdge& edge, const Schema& schema) {
    return with_edits(edge.base, edge.broken, schema);
}

std::optional<Spec> legal_case(const ClauseEdge& edge, const Schema& schema) {
    if (edge.legal.empty()) return std::nullopt;
    return with_fields(with_edits(edge.base, edge.legal, schema));
}

Edge nearest_edge(Edge far, const std::string& clause, std::int64_t step) {
    const auto &broken = far.broken.edits, &legal = far.legal.edits;
    if (broken.empty() || broken.size() != legal.size()) return far;
    const Edit& last = broken.back();
    const bool real =
        std::any_of(far.broken.schema->reals.begin(), far.broken.schema->reals.end(),
                    [&](const RealField& field) { return field.name == last.name; });
    if (last.name != legal.back().name || !is_number(last, real) || !is_number(legal.back(), real))
        return far;
    const Steps steps{real, step};
    // Distances in unsigned arithmetic: INT64_MIN is as far from 1 as can be.
    const std::int64_t from = steps.of(legal.back());
    const std::int64_t to = steps.of(last);
    const bool up = to > from;
    const std::uint64_t distance =
        (up ? static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from)
            : static_cast<std::uint64_t>(from) - static_cast<std::uint64_t>(to)) /
        static_cast<std::uint64_t>(step);
    const auto at = [&](std::uint64_t k) {
        const std::uint64_t moved = k * static_cast<std::uint64_t>(step);
        Spec spec = far.broken;
        steps.set(spec.edits.back(),
                  static_cast<std::int64_t>(up ? static_cast<std::uint64_t>(from) + moved
                                               : static_cast<std::uint64_t>(from) - moved));
        return spec;
    };
    if (at(distance) != far.broken && ruling_of(at(distance)).value_or(ref::Ruling{}).clause != clause)
        return far;  // not whole steps apart
    std::uint64_t inside = 0, outside = distance, accepted = 0;
    while (outside - inside > 1) {
        const std::uint64_t middle = inside + (outside - inside) / 2;
        const auto ruling = ruling_of(at(middle));
        if (ruling && ruling->clause == clause) {
            outside = middle;
            continue;
        }
        inside = middle;
        if (ruling && ruling->accepted()) accepted = middle;
    }
    return {at(outside), at(accepted)};
}

Clauses::Clauses(const std::vector<ClauseEdge>& edges, std::string_view op) {
    for (const ClauseEdge& edge : edges) {
        if (edge.op != op) continue;
        if (edge.clause.empty()) {
            rows_.push_back({std::nullopt, &edge});
            continue;
        }
        const auto known = number(edge.clause);
        if (!known) names_.emplace_back(edge.clause);
        rows_.push_back({known.value_or(names_.size() - 1), &edge});
    }
}

std::optional<std::size_t> Clauses::number(std::string_view name) const {
    const auto at = std::find(names_.begin(), names_.end(), name);
    if (at == names_.end()) return std::nullopt;
    return static_cast<std::size_t>(at - names_.begin());
}

}  // namespace attncheck::properties
