// Code that relations between runs share, whatever the operator: how two sets of numbers are compared,
// exact changes of stored numbers, rearranged heads, and the domain of moderate data. Knows no
// operator.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/random.h"
#include "properties/judge/verdict.h"
#include "properties/laws/property.h"

namespace attncheck::properties {

inline Verdict inapplicable() { return {Verdict::Kind::inapplicable, {}, {}, 0, {}, {}}; }
/// The law is about outputs that the case does not ask for, or that the candidate does not give.
inline Verdict needs(const std::string& outputs) {
    Verdict verdict = inapplicable();
    verdict.message = fmt::format("needs {}, not given", outputs);
    return verdict;
}

/// A case of the same shapes with other values.
Spec with_other_values(const Spec& spec, Recipe instead_of_zeros = Recipe::ones);

// ---- verdicts ----

/// Keeps the first failure and the largest error ratio.
void join(Verdict& all, const Verdict& one);

/// The bound of each element; infinite where it says nothing (unjudged, or the result may
/// overflow).
std::vector<double> allowance(const ref::ExpectedTensor& expected);
std::vector<double> sum_of(std::vector<double> a, const std::vector<double>& b);
std::vector<double> times(std::vector<double> values, double factor);
const ref::ExpectedTensor& tensor_of(const ExpectedOutputs& expected, std::string_view name);

/// |left - right| <= allowed; elements with an infinite allowance are not compared. where(k)
/// describes element k.
using PlaceOf = std::function<std::string(std::size_t k)>;
Verdict verdict_within(const std::string& name, std::vector<double> left, std::vector<double> right,
                       const std::vector<double>& allowed, const std::string& relation,
                       const PlaceOf& where);

/// left * 2^exponent == right without tolerance, where both stay away from subnormal and infinite
/// numbers of `dtype`. `open` is the expectation of `right`.
Verdict verdict_on_powers(const std::string& name, ref::Dtype dtype, std::vector<double> left,
                          std::vector<double> right, int exponent, const std::string& relation,
                          const PlaceOf& where, const OpenOrder& open = {});

/// Sums that must be equal, one per place: both sides, what they may differ by, and the sum of the
/// sizes of their terms.
struct Identity {
    std::vector<double> left, right, allowed, size;
    std::vector<std::string> place;

    explicit Identity(std::size_t count)
        : left(count), right(count), allowed(count), size(count), place(count) {}

    /// Sums with an infinite allowance are not compared.
    Verdict verdict(const std::string& tensor, const std::string& relation);
};

/// <a, b> and sum |a b| of a row of two tensors of this width.
double dot_of(const std::vector<double>& a, const std::vector<double>& b, std::size_t row,
              std::size_t width);
double size_of(const std::vector<double>& a, const std::vector<double>& b, std::size_t row,
               std::size_t width);

/// Elements of an output for which this is false are skipped.
using OutputFilter = std::function<bool(const std::string& name, std::size_t k)>;

/// The first run that did not return 0, as a verdict.
template <class Run>
std::optional<Verdict> first_early_verdict(std::initializer_list<const Run*> runs) {
    for (const Run* run : runs)
        if (run->early_verdict) return run->early_verdict;
    return std::nullopt;
}

// ---- changes of stored numbers ----

/// Multiples of 1/8 of size at most 4 in place of the values: sums with small integers are stored
/// exactly in all types.
void quantise(ref::Dtype dtype, std::vector<std::uint32_t>& bits);

/// The element-wise change of a tensor; false when a result cannot be stored exactly. NaN, which
/// unread elements may hold, stays NaN.
bool change_exactly(ref::Dtype dtype, std::vector<std::uint32_t>& bits,
                    const std::function<double(double value, std::size_t k)>& change);

/// Numbers that a power of two near 1 would make subnormal become zero.
void drop_tiny(ref::Dtype dtype, std::vector<std::uint32_t>& bits);

/// Times 2^exponent; false when a result cannot be stored exactly.
bool scale_exactly(ref::Dtype dtype, std::vector<std::uint32_t>& bits, int exponent);

/// Head n of the result is head source[n] of values [rows, heads, width].
template <class T>
std::vector<T> gather_heads(const std::vector<T>& values, std::int64_t heads,
                            const std::vector<std::int64_t>& source, std::int64_t width) {
    std::vector<T> out;
    if (values.empty()) return out;
    const auto rows = std::ssize(values) / (heads * width);
    out.reserve(static_cast<std::size_t>(rows * std::ssize(source) * width));
    for (std::int64_t row = 0; row < rows; ++row)
        for (const std::int64_t head : source) {
            const auto first = values.begin() + (row * heads + head) * width;
            out.insert(out.end(), first, first + width);
        }
    return out;
}

/// Rows [first, first + count) of values [rows, width].
template <class T>
std::vector<T> slice(const std::vector<T>& values, std::int64_t first, std::int64_t count,
                     std::int64_t width) {
    if (values.empty()) return {};
    const auto begin = values.begin() + first * width;
    return std::vector<T>(begin, begin + count * width);
}

/// 0 .. count-1 in random order, never the identity when count > 1.
std::vector<std::int64_t> permutation(std::int64_t count, Random& random);

// ---- domains ----

/// Data whose gradients and outputs stay far from overflow and underflow.
void with_moderate_data(Spec& spec, Random& random);
bool moderate(const Spec& spec);

/// Moderate data and half the queries, for laws that take two evaluations and more.
void with_fewer_queries(Spec& spec, Random& random);

/// Normal data in place of recipes that leave the range of a type.
void without_extremes(Spec& spec);

}  // namespace attncheck::properties
