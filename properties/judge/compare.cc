#include "properties/judge/compare.h"

#include <cmath>
#include <vector>

namespace attncheck::properties {

double error_ratio(double error, double bound) {
    if (error <= 0) return 0;  // 0/0 is agreement
    return error / bound;      // NaN and x/0 are no agreement
}

Comparison compare(const ref::ExpectedTensor& expected, std::span<const std::uint32_t> got,
                   ref::Dtype dtype) {
    Comparison result;
    result.compared = expected.size();
    if (got.size() != expected.size()) {
        result.kind = Comparison::Kind::wrong_size;
        result.wrong = expected.size();
        return result;
    }
    const double largest = ref::max_finite(dtype);
    double worst_wrong = -1;
    const auto report = [&](Comparison::Kind kind, std::size_t index, double value, double error) {
        result.kind = kind;
        result.index = index;
        result.expected = expected.value[index];
        result.got = value;
        result.error = error;
        result.bound = expected.bound[index];
    };
    const std::vector<double> values = ref::decode_all(dtype, got);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double exact = expected.value[i], value = values[i];
        if (!std::isfinite(exact)) {
            if (!std::isfinite(value)) continue;
            if (result.wrong++ == 0 || result.kind == Comparison::Kind::wrong_value)
                report(Comparison::Kind::not_propagated, i, value,
                       std::numeric_limits<double>::infinity());
            continue;
        }
        const ref::Overflow overflow = expected.overflow[i];
        if (!std::isfinite(value)) {
            if (overflow == ref::Overflow::any) continue;
            if (overflow == ref::Overflow::signed_infinity && std::isinf(value) &&
                (value > 0) == (exact > 0))
                continue;
            if (result.wrong++ == 0 || result.kind == Comparison::Kind::wrong_value)
                report(Comparison::Kind::not_finite, i, value,
                       std::numeric_limits<double>::infinity());
            continue;
        }
        // Saturation instead of infinity is as right as infinity itself.
        if (overflow != ref::Overflow::none && std::fabs(value) == largest &&
            (value > 0) == (exact > 0))
            continue;
        const double error = std::fabs(value - exact);
        const double ratio = error_ratio(error, expected.bound[i]);
        if (error <= expected.bound[i]) {
            if (ratio > result.worst_ratio) result.worst_ratio = ratio;
            continue;
        }
        ++result.wrong;
        if (!(ratio <= result.worst_ratio)) result.worst_ratio = ratio;
        const bool value_reported =
            result.kind == Comparison::Kind::agrees || result.kind == Comparison::Kind::wrong_value;
        if (value_reported && !(ratio <= worst_wrong) &&
            !std::isnan(worst_wrong)) {  // NaN is worst of all
            worst_wrong = ratio;
            report(Comparison::Kind::wrong_value, i, value, error);
        }
    }
    return result;
}

}  // namespace attncheck::properties
