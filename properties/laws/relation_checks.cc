#include "properties/laws/relation_checks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ref/attention/dense_attention.h"

namespace attncheck::properties {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kOracleError = 1e-12;  ///< of a sum in binary64, relative to the sum of sizes

}  // namespace

Spec with_other_values(const Spec& spec, Recipe instead_of_zeros) {
    Spec other = spec;
    other.seed = spec.seed + 1;
    other.overrides.clear();
    if (other.recipe == Recipe::zeros) other.recipe = instead_of_zeros;
    return other;
}

void join(Verdict& all, const Verdict& one) {
    if (all.failed()) return;
    const double worst = std::max(all.worst_ratio, one.worst_ratio);
    const std::int64_t differing = all.differing + one.differing;
    ElementCount elements = all.elements;
    elements.add(one.elements);
    if (one.failed())
        all = one;
    else
        all.worst_ratio = worst;
    all.differing = differing;
    all.elements = elements;
}

std::vector<double> allowance(const ref::ExpectedTensor& expected) {
    std::vector<double> allowed = expected.bound;
    for (std::size_t k = 0; k < allowed.size(); ++k)
        if (expected.overflow[k] != ref::Overflow::none || !std::isfinite(expected.value[k]))
            allowed[k] = kInfinity;
    return allowed;
}

std::vector<double> sum_of(std::vector<double> a, const std::vector<double>& b) {
    for (std::size_t k = 0; k < a.size(); ++k) a[k] += b[k];
    return a;
}

std::vector<double> times(std::vector<double> values, double factor) {
    for (double& value : values) value *= factor;
    return values;
}

const ref::ExpectedTensor& tensor_of(const ExpectedOutputs& expected, std::string_view name) {
    return std::find_if(expected.begin(), expected.end(),
                        [&](const auto& item) { return item.first == name; })
        ->second;
}

Verdict verdict_within(const std::string& name, std::vector<double> left, std::vector<double> right,
                       const std::vector<double>& allowed, const std::string& relation,
                       const PlaceOf& where) {
    for (std::size_t k = 0; k < left.size(); ++k)
        if (!(allowed[k] < kInfinity)) left[k] = right[k] = 0;
    return verdict_on_difference(name, left, right, allowed, relation, where);
}

Verdict verdict_on_powers(const std::string& name, ref::Dtype dtype, std::vector<double> left,
                          std::vector<double> right, int exponent, const std::string& relation,
                          const PlaceOf& where, const OpenOrder& open) {
    // 2^-80: fp32 terms that underflow are far below half a unit of such a result.
    const double low = std::max(ref::min_normal(dtype) * 64, 0x1p-80),
                 high = ref::max_finite(dtype) / 64;
    std::int64_t differing = 0;
    for (std::size_t k = 0; k < left.size(); ++k) {
        left[k] = std::ldexp(left[k], exponent);
        const double size = std::max(std::fabs(left[k]), std::fabs(right[k]));
        if (size < low || size > high) left[k] = right[k] = 0;
        differing += !are_same(left[k], right[k]);
    }
    std::vector<double> allowed(left.size(), 0);
    if (open && differing > 0) {
        const ref::ExpectedTensor expected = open();
        allowed = times(allowance(expected), 2);
        for (std::size_t k = 0; k < allowed.size(); ++k)
            if (ref::is_exact(expected, k, dtype)) allowed[k] = 0;
    }
    Verdict verdict = verdict_within(name, left, right, allowed, relation, where);
    if (open) verdict.differing = differing;
    return verdict;
}

Verdict Identity::verdict(const std::string& tensor, const std::string& relation) {
    for (std::size_t k = 0; k < left.size(); ++k) {
        allowed[k] += kOracleError * size[k];
        if (!std::isfinite(allowed[k])) left[k] = right[k] = allowed[k] = 0;
    }
    return verdict_on_difference(tensor, left, right, allowed, relation,
                                 [&](std::size_t k) { return place[k].starts_with('[') ? place[k] : "[" + place[k] + "]"; });
}

double dot_of(const std::vector<double>& a, const std::vector<double>& b, std::size_t row,
              std::size_t width) {
    return ref::inner_product(a.data() + row * width, b.data() + row * width,
                              static_cast<std::int64_t>(width));
}
double size_of(const std::vector<double>& a, const std::vector<double>& b, std::size_t row,
               std::size_t width) {
    double size = 0;
    for (std::size_t k = row * width; k < (row + 1) * width; ++k) size += std::fabs(a[k] * b[k]);
    return size;
}

void quantise(ref::Dtype dtype, std::vector<std::uint32_t>& bits) {
    for (std::uint32_t& element : bits)
        element = ref::encode(
            dtype, std::clamp(std::round(ref::decode(dtype, element) * 8) / 8, -4.0, 4.0));
}

bool change_exactly(ref::Dtype dtype, std::vector<std::uint32_t>& bits,
                    const std::function<double(double, std::size_t)>& change) {
    for (std::size_t k = 0; k < bits.size(); ++k) {
        const double wanted = change(ref::decode(dtype, bits[k]), k);
        bits[k] = ref::encode(dtype, wanted);
        if (ref::decode(dtype, bits[k]) != wanted && !std::isnan(wanted)) return false;
    }
    return true;
}

void drop_tiny(ref::Dtype dtype, std::vector<std::uint32_t>& bits) {
    for (std::uint32_t& element : bits)
        if (std::fabs(ref::decode(dtype, element)) < 0x1p-7) element = 0;
}

bool scale_exactly(ref::Dtype dtype, std::vector<std::uint32_t>& bits, int exponent) {
    return change_exactly(dtype, bits,
                          [&](double v, std::size_t) { return std::ldexp(v, exponent); });
}

std::vector<std::int64_t> permutation(std::int64_t count, Random& random) {
    std::vector<std::int64_t> to(static_cast<std::size_t>(count));
    std::iota(to.begin(), to.end(), std::int64_t{0});
    for (std::size_t n = to.size(); n-- > 1;)
        std::swap(to[n],
                  to[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(n)))]);
    if (std::is_sorted(to.begin(), to.end())) std::reverse(to.begin(), to.end());
    return to;
}

void with_moderate_data(Spec& spec, Random&) {
    if (spec.recipe > Recipe::spiky) spec.recipe = Recipe::normal;
}

void with_fewer_queries(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    for (auto& length : spec.lists[0]) length = (length + 1) / 2;
}

void without_extremes(Spec& spec) {
    if (spec.recipe >= Recipe::huge) spec.recipe = Recipe::normal;
}

bool moderate(const Spec& spec) {
    return spec.recipe <= Recipe::spiky &&
           std::all_of(spec.overrides.begin(), spec.overrides.end(), [](const auto& item) {
               return std::isfinite(item.second) && std::fabs(item.second) < 1e4;
           });
}

}  // namespace attncheck::properties
