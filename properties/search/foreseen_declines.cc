#include "properties/search/foreseen_declines.h"

#include <attncheck/candidate.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "properties/case/random.h"

namespace attncheck::properties {
namespace {

constexpr int kOfOne = 3;        ///< declined calls with a trait until others with it are foreseen
constexpr int kOfTwo = 4;        ///< the same of two traits together
constexpr int kOfOperator = 8;   ///< the same of all calls of an operator: the first ones may be declined for this and that
constexpr int kCallsOfOne = 12;  ///< accepted ones, before a trait that none of them had means anything
constexpr int kCallsOfTwo = 40;  ///< the same of a pair
constexpr int kTried = 16;       ///< one of so many foreseen calls is made

std::uint64_t trait(std::string_view name, std::int64_t kind, std::int64_t value) {
    std::uint64_t hash = mix(static_cast<std::uint64_t>(kind) * 1024 +
                             static_cast<std::uint64_t>(value));
    for (const char ch : name) hash = mix(hash ^ static_cast<unsigned char>(ch));
    return hash;
}

/// Of its strides: all are those of a dense tensor, some are 0 or negative, the last one is not 1.
std::int64_t memory_kind(const Tensor& tensor) {
    std::int64_t stride = 1, kind = 0;
    for (std::size_t d = tensor.shape.size(); d-- > 0; stride *= tensor.shape[d]) {
        if (tensor.shape[d] <= 1 || tensor.strides[d] == stride) continue;
        kind |= 1 | (tensor.strides[d] == 0) << 1 | (tensor.strides[d] < 0) << 2 |
                (d + 1 == tensor.shape.size()) << 3;
    }
    return kind;
}

/// Extent of the last dimension; many kernels want the same of keys and values.
std::int64_t width_of(const Tensor& tensor) { return tensor.shape.empty() ? 0 : tensor.shape.back(); }

/// A mode as it is; of other numbers the sign.
std::int64_t kind_of(std::int64_t value) {
    constexpr std::int64_t kModes = 8;
    return value < 0 ? -1 : std::min(value, kModes + 1);
}

std::int64_t kind_of(double value) {
    return std::isnan(value) ? 4 : (value > 0) + (value >= 1) + (value > 1) - (value < 0);
}

/// Of a call of another operator they are others: a forward that is taken says nothing of its gradient.
std::vector<std::uint64_t> traits_of(const Call& call) {
    enum Kind { presence, type, rank, order, emptiness, text, number, real, repetition, entry, width };
    std::vector<std::uint64_t> out;
    for (const Tensor& tensor : call.tensors) {
        out.push_back(trait(tensor.name, presence, tensor.present && !tensor.withheld));
        if (!tensor.present || tensor.withheld) continue;
        out.push_back(trait(tensor.name, type, tensor.dtype));
        out.push_back(trait(tensor.name, rank, tensor.rank));
        out.push_back(trait(tensor.name, order, memory_kind(tensor)));
        out.push_back(trait(tensor.name, emptiness, std::ranges::count(tensor.shape, 0) > 0));
        out.push_back(trait(tensor.name, width, width_of(tensor) == width_of(call.tensors.front())));
    }
    for (const HostArray& array : call.arrays) {
        out.push_back(trait(array.name, presence, array.present));
        if (array.present)
            out.push_back(trait(array.name, repetition,
                                std::ranges::adjacent_find(array.values) != array.values.end()));
    }
    for (const Text& one : call.texts)
        out.push_back(mix(trait(one.name, text, one.value.has_value()) ^
                          trait(one.value.value_or(""), text, 0)));
    for (const Number& one : call.numbers)
        out.push_back(trait(one.name, number, kind_of(one.value)));
    for (const Real& one : call.reals) out.push_back(trait(one.name, real, kind_of(one.value)));
    const std::uint64_t of_operator = trait(call.op, entry, 0);
    for (std::uint64_t& one : out) one = mix(one ^ of_operator);
    out.push_back(of_operator);
    return out;
}

std::uint64_t pair_of(std::uint64_t a, std::uint64_t b) { return mix(a) ^ mix(b); }

std::uint64_t list_of(const std::vector<std::uint64_t>& traits) {
    std::uint64_t hash = 0;
    for (const std::uint64_t one : traits) hash = mix(hash ^ one);
    return hash;
}

}  // namespace

CallResult declined_call(std::string detail) {
    CallResult result;
    result.status = ATTNCHECK_DECLINED;
    result.detail = std::move(detail);
    return result;
}

CallResult ForeseenDeclines::run(const Call& call, const RunOptions& options) {
    if (mode_ == Mode::exploring && is_case_declined_) return declined_call();
    const Traits traits = mode_ == Mode::on ? traits_of(call) : Traits();
    if (mode_ == Mode::on && declines(call, traits)) return declined_call();
    CallResult result = candidate_.run(call, options);
    is_case_declined_ |= result.declined();
    if (mode_ == Mode::on) learn(traits, result.declined());
    return result;
}

/// All of them are declined when one is: a law compares what calls give side by side.
std::vector<CallResult> ForeseenDeclines::run_together(std::span<const Call* const> calls,
                                                       int repetitions) {
    std::vector<Traits> traits;
    bool any_declined = mode_ == Mode::exploring && is_case_declined_;
    for (const Call* call : calls)
        if (mode_ == Mode::on && !any_declined) {
            traits.push_back(traits_of(*call));
            any_declined = declines(*call, traits.back());
        }
    if (any_declined) return std::vector<CallResult>(calls.size(), declined_call());
    std::vector<CallResult> results = candidate_.run_together(calls, repetitions);
    for (std::size_t k = 0; k < traits.size() && traits.size() == results.size(); ++k)
        learn(traits[k], results[k].declined());
    is_case_declined_ |= std::ranges::any_of(results, &CallResult::declined);
    return results;
}

bool ForeseenDeclines::declines(const Call& call, const Traits& traits) {
    is_trial_ = false;
    if (accepted_.contains(list_of(traits))) return false;
    if (is_foreseen(traits)) return ++foreseen_ % kTried != 0;
    if (!is_inside_trusted_ || !inside_ || inside_(call)) return false;
    is_trial_ = outside_++ % kTried == 0;
    return !is_trial_;
}

/// What was learned may be wrong: the first call outside of it is made, and if it is accepted, all are.
void ForeseenDeclines::learn(const Traits& traits, bool is_declined) {
    if (is_trial_ && !is_declined) is_inside_trusted_ = false;
    note(traits, is_declined);
}

bool ForeseenDeclines::is_foreseen(const Traits& traits) const {
    const auto is_known = [&](std::uint64_t key, int times) {
        const auto it = counts_.find(key);
        return it != counts_.end() && it->second.accepted == 0 && it->second.declined >= times;
    };
    if (!any_declined_) return false;
    if (is_known(traits.back(), kOfOperator)) return true;
    const auto of_operator = counts_.find(traits.back());
    const int accepted = of_operator == counts_.end() ? 0 : of_operator->second.accepted;
    if (accepted < kCallsOfOne) return false;
    for (const std::uint64_t one : traits)
        if (is_known(one, kOfOne)) return true;
    if (accepted < kCallsOfTwo) return false;
    for (std::size_t i = 0; i < traits.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
            if (is_known(pair_of(traits[i], traits[j]), kOfTwo)) return true;
    return false;
}

void ForeseenDeclines::note(const Traits& traits, bool is_declined) {
    // A case asks for one call several times: it says no more than once what is declined.
    if (is_declined && !declined_.insert(list_of(traits)).second) return;
    // Of pairs it only matters whether any call was accepted, of the operator how many were.
    if (!is_declined && !accepted_.insert(list_of(traits)).second) {
        ++counts_[traits.back()].accepted;
        return;
    }
    if (!is_declined && !any_declined_) return waiting_.push_back(traits);
    // A list has a thousand pairs, and most libraries decline nothing.
    if (!any_declined_) {
        any_declined_ = true;
        for (const Traits& one : waiting_) count(one, false);
        waiting_.clear();
    }
    count(traits, is_declined);
}

void ForeseenDeclines::count(const Traits& traits, bool is_declined) {
    const auto add = [&](std::uint64_t key) {
        Count& count = counts_[key];
        ++(is_declined ? count.declined : count.accepted);
    };
    for (std::size_t i = 0; i < traits.size(); ++i) {
        add(traits[i]);
        for (std::size_t j = 0; j < i; ++j) add(pair_of(traits[i], traits[j]));
    }
}

}  // namespace attncheck::properties
