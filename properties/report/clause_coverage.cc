#include "properties/report/clause_coverage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <stdexcept>

namespace attncheck::properties {
namespace {

using Names = std::set<std::string>;

Names set_of(const std::vector<std::string>& names) { return {names.begin(), names.end()}; }

Names in_both(const Names& left, const Names& right) {
    Names out;
    std::ranges::set_intersection(left, right, std::inserter(out, out.end()));
    return out;
}

Names in_either(const Names& left, const Names& right) {
    Names out = left;
    out.insert(right.begin(), right.end());
    return out;
}

std::int64_t all_of(const ClauseCoverage& clauses) {
    return clauses.possible + static_cast<std::int64_t>(clauses.outside.size());
}

}  // namespace

Json clauses_json(const ClauseCoverage& clauses) {
    Json json = pairs_json(clauses.possible, clauses.missing);
    json["outside"] = clauses.outside;
    json["through"] = clauses.is_through;
    return json;
}

ClauseCoverage clauses_from(const Json& json) {
    ClauseCoverage out;
    out.possible = json.at("possible").get<std::int64_t>();
    out.missing = json.at("missing").get<std::vector<std::string>>();
    out.outside = json.at("outside").get<std::vector<std::string>>();
    out.is_through = json.at("through").get<bool>();
    constexpr std::int64_t kMost = 1'000'000;  // of an operator; some hundreds are known
    if (out.possible < 0 || out.possible > kMost || std::ssize(out.missing) > out.possible)
        throw std::runtime_error(fmt::format("has {} clauses missing of {} possible ones",
                                             out.missing.size(), out.possible));
    return out;
}

ClauseCoverage joined(const ClauseCoverage& left, const ClauseCoverage& right) {
    if (all_of(left) != all_of(right))
        throw std::runtime_error(fmt::format("counts {} clauses of an operator, an earlier report {}",
                                             all_of(right), all_of(left)));
    const Names outside = in_both(set_of(left.outside), set_of(right.outside));
    const auto undecided = [](const ClauseCoverage& one) {
        return in_either(set_of(one.missing), set_of(one.outside));
    };
    ClauseCoverage out;
    out.possible = all_of(left) - static_cast<std::int64_t>(outside.size());
    for (const std::string& clause : in_both(undecided(left), undecided(right)))
        if (!outside.contains(clause)) out.missing.push_back(clause);
    out.outside.assign(outside.begin(), outside.end());
    out.is_through = left.is_through && right.is_through;
    return out;
}

ClauseVerdict verdict_on(const ClauseCoverage& clauses, std::int64_t declined, int missing_parts) {
    using Status = PropertyReport::Status;
    if (missing_parts > 0)
        return {Status::declined, "not judged: `attncheck merge` judges the clauses of all shards"};
    if (!clauses.is_through)
        return {Status::declined, "not judged: validation ended before every clause was tried"};
    if (clauses.missing.empty()) return {};
    const std::string note =
        fmt::format("{} of {} clauses of the contract decided no call: {}", clauses.missing.size(),
                    clauses.possible, fmt::join(clauses.missing, "; "));
    if (declined > 0) return {Status::declined, "the candidate declined cases: " + note};
    return {Status::error, note};
}

}  // namespace attncheck::properties
