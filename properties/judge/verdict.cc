#include "properties/judge/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "properties/case/derived.h"
#include "properties/judge/where.h"

namespace attncheck::properties {
namespace {

/// In the order of Tier.
constexpr std::string_view kTierNames[] = {"relation", "bound",      "deviation", "filter",
                                           "memory",   "validation", "crash"};

/// Whether both can be sums of the same terms in different orders.
bool may_differ(const ref::ExpectedTensor& expected, std::size_t k, ref::Dtype dtype, double left,
                double right) {
    if (!std::isfinite(expected.value[k])) return !std::isfinite(left) && !std::isfinite(right);
    if (expected.overflow[k] != ref::Overflow::none) return true;
    if (ref::is_exact(expected, k, dtype)) return false;
    return std::fabs(left - right) <= 2 * expected.bound[k];
}

/// The elements that are wrong as ranges per dimension: "dim 0: 3..3, dim 1: 0..1".
std::string spread(const ref::ExpectedTensor& expected, const Tensor& tensor,
                   const std::vector<std::uint32_t>& got) {
    std::vector<std::int64_t> low, high;
    ref::ExpectedTensor one(1);
    for (std::size_t k = 0; k < got.size(); ++k) {
        one.value[0] = expected.value[k];
        one.bound[0] = expected.bound[k];
        one.overflow[0] = expected.overflow[k];
        if (compare(one, {&got[k], 1}, tensor.type()).ok()) continue;
        const auto index = coordinates(static_cast<std::int64_t>(k), tensor.buffer_shape);
        if (low.empty()) low = high = index;
        for (std::size_t dim = 0; dim < index.size(); ++dim) {
            low[dim] = std::min(low[dim], index[dim]);
            high[dim] = std::max(high[dim], index[dim]);
        }
    }
    std::string text;
    for (std::size_t dim = 0; dim < low.size(); ++dim)
        text += low[dim] == high[dim]
                    ? fmt::format("{}{}", dim ? ", " : "", low[dim])
                    : fmt::format("{}{}..{}", dim ? ", " : "", low[dim], high[dim]);
    return text;
}

}  // namespace

bool are_same(double left, double right) {
    return left == right || (std::isnan(left) && std::isnan(right));
}

std::string_view name_of(Tier tier) { return kTierNames[static_cast<std::size_t>(tier)]; }

Tier tier_named(std::string_view name) {
    const auto* const at = std::ranges::find(kTierNames, name);
    if (at == std::end(kTierNames))
        throw std::invalid_argument(fmt::format("'{}' is no tier", name));
    return static_cast<Tier>(at - std::begin(kTierNames));
}

void add_evidence(std::vector<CastEvidence>& all, const CastEvidence& one) {
    const auto same = std::ranges::find(all, one.word, &CastEvidence::word);
    if (same == all.end()) return all.push_back(one);
    same->found += one.found;
    same->expected += one.expected;
}

void add_evidence(std::vector<BoundEvidence>& all, const BoundEvidence& one) {
    const auto same = std::ranges::find(all, one.name, &BoundEvidence::name);
    if (same == all.end()) return all.push_back(one);
    same->worst = std::max(same->worst, one.worst);
    same->cases += one.cases;
}

std::optional<Verdict> verdict_unless_ok(const CallResult& result) {
    switch (result.kind) {
        case CallResult::Kind::broke_rules:
        case CallResult::Kind::crashed: {
            const auto end = result.detail.find(" (");  // the class without the address
            return Verdict::fail(result.detail.substr(0, end), result.detail, Tier::crash);
        }
        case CallResult::Kind::out_of_bounds:
            return Verdict::fail("out of bounds: " + result.where, result.detail, Tier::memory);
        case CallResult::Kind::wrote_input:
            return Verdict::fail("memory: " + result.where, result.detail, Tier::memory);
        case CallResult::Kind::timed_out:
            return Verdict::fail(kTimedOut, result.detail, Tier::crash);
        case CallResult::Kind::out_of_memory:
            return Verdict::fail("out of memory", result.detail, Tier::crash);
        case CallResult::Kind::left_processes:
            return Verdict::fail("left processes behind", result.detail, Tier::crash);
        case CallResult::Kind::returned:
            break;
    }
    if (result.status == ATTNCHECK_OK) return std::nullopt;
    if (result.status == ATTNCHECK_DECLINED)
        return Verdict{Verdict::Kind::declined, {}, result.detail, 0, {}, {}};
    if (!result.detail.empty())  // the class is before the colon, and the same for smaller cases
        return Verdict::fail(result.detail.substr(0, std::min(result.detail.find(": "), result.detail.find('\n'))), result.detail,
                             Tier::crash);
    return Verdict::fail(kRejectedLegal,
                         fmt::format("returned {} for a legal call, expected 0", result.status));
}

std::size_t tensor_index(const Call& call, std::string_view name) {
    return static_cast<std::size_t>(&call.tensor(name) - call.tensors.data());
}

std::string place_of(const Spec& spec, const Call& call, const std::string& tensor, std::size_t k) {
    const auto index = coordinates(static_cast<std::int64_t>(k), call.tensor(tensor).buffer_shape);
    return fmt::format("[{}]", describe(spec, tensor, index));
}

namespace {

/// Elements with an infinite bound.
std::int64_t unjudged_of(const ref::ExpectedTensor& expected) {
    return std::ranges::count(expected.bound, std::numeric_limits<double>::infinity());
}

/// Whether a NaN has a sign says nothing.
double without_sign_of_nan(double x) { return std::isnan(x) ? std::fabs(x) : x; }

/// One of the two numbers that a softmax says of its row.
bool is_of_pair(const Spec& spec, const std::string& name) {
    const int tensor = spec.schema->tensor(name);
    if (tensor < 0) return false;
    const Role role = spec.schema->tensors[static_cast<std::size_t>(tensor)].role;
    return role == Role::row_max || role == Role::row_sum;
}

}  // namespace

Verdict verdict_on_values(const Spec& spec, const Call& call, const CallResult& result,
                          const ExpectedOutputs& expected, bool pair_is_open) {
    Verdict verdict;
    for (const auto& [name, values] : expected) {
        const Tensor& tensor = call.tensor(name);
        if (tensor.withheld) continue;
        const std::vector<std::uint32_t>& got = result.outputs[tensor_index(call, name)];
        const Comparison c = compare(values, got, tensor.type());
        if (!(c.worst_ratio <= verdict.worst_ratio)) verdict.worst_ratio = c.worst_ratio;
        if (!(pair_is_open && is_of_pair(spec, name))) verdict.elements.add({std::ssize(values.bound), unjudged_of(values)});
        if (c.ok() || verdict.failed()) continue;
        verdict.kind = Verdict::Kind::failed;
        verdict.tier = Tier::bound;
        const char* what = c.kind == Comparison::Kind::not_finite ? "is not finite"
                           : c.kind == Comparison::Kind::not_propagated
                               ? "lost a NaN or infinity"
                               : "differs from the reference";
        verdict.failure =
            name +
            " is wrong";  // one class: a smaller case may show the same defect in another way
        verdict.message = fmt::format(
            "{} {} in {} of {} elements (index ranges [{}]); {}:\n  {}  expected {:.9g}  got "
            "{:.9g}",
            name, what, c.wrong, c.compared, spread(values, tensor, got),
            c.kind == Comparison::Kind::wrong_value ? "worst" : "first",
            place_of(spec, call, name, c.index), without_sign_of_nan(c.expected), without_sign_of_nan(c.got));
        if (c.kind == Comparison::Kind::wrong_value)
            verdict.message +=
                c.bound == 0 ? fmt::format("  error {:.3g}  bound 0: the result is exact in {}",
                                           c.error, ref::dtype_name(tensor.type()))
                             : fmt::format("  error {:.3g}  bound {:.3g} ({:.3g} times the bound)",
                                           c.error, c.bound, c.error / c.bound);
        verdict.message += map_of_errors(spec, tensor, values, got);
    }
    return verdict;
}

Verdict verdict_on_same_bits(const std::string& tensor, ref::Dtype dtype,
                             const std::vector<std::uint32_t>& left,
                             const std::vector<std::uint32_t>& right, const std::string& relation,
                             const std::function<std::string(std::size_t)>& where,
                             const std::function<bool(std::size_t)>& looked_at,
                             const OpenOrder& open) {
    Verdict verdict;
    std::optional<ref::ExpectedTensor> expected;
    std::size_t wrong = 0, first = 0;
    for (std::size_t k = 0; k < left.size(); ++k) {
        if (left[k] == right[k] || (looked_at && !looked_at(k))) continue;
        const double a = ref::decode(dtype, left[k]), b = ref::decode(dtype, right[k]);
        if (are_same(a, b)) continue;
        if (open && !expected) expected = open();
        if (expected && may_differ(*expected, k, dtype, a, b)) {
            ++verdict.differing;
            continue;
        }
        if (wrong++ == 0) first = k;
    }
    if (wrong == 0) return verdict;
    return Verdict::fail(
        tensor + " changed",
        fmt::format(
            "{}: {} differs in {} elements; first:\n  {}  {:.9g} ({:#06x}) became {:.9g} ({:#06x})",
            relation, tensor, wrong, where(first), ref::decode(dtype, left[first]), left[first],
            ref::decode(dtype, right[first]), right[first]));
}

Verdict verdict_on_difference(const std::string& tensor, const std::vector<double>& left,
                              const std::vector<double>& right, const std::vector<double>& bound,
                              const std::string& relation,
                              const std::function<std::string(std::size_t)>& where) {
    Verdict verdict;
    std::size_t wrong = 0, worst = 0;
    for (std::size_t k = 0; k < left.size(); ++k) {
        if (are_same(left[k], right[k])) continue;  // two infinities have no difference
        const double error = std::fabs(left[k] - right[k]);
        const double ratio = error_ratio(error, bound[k]);
        if (error <= bound[k]) {
            verdict.worst_ratio = std::max(verdict.worst_ratio, ratio);
            continue;
        }
        if (wrong++ == 0 || (!(ratio <= verdict.worst_ratio) && !std::isnan(verdict.worst_ratio))) {
            worst = k;
            verdict.worst_ratio = ratio;
        }
    }
    if (wrong == 0) return verdict;
    verdict.kind = Verdict::Kind::failed;
    verdict.failure = tensor + " breaks the relation";
    verdict.message = fmt::format(
        "{}: {} differs in {} elements; worst:\n  {}  {:.9g} against {:.9g}  difference {:.3g}  "
        "allowed {:.3g}",
        relation, tensor, wrong, where(worst), left[worst], right[worst],
        std::fabs(left[worst] - right[worst]), bound[worst]);
    return verdict;
}

}  // namespace attncheck::properties
