#include "ref/operators/attention_merge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ref/attention/attention_roundoff.h"
#include "ref/numbers/dtype.h"

namespace attncheck::ref {
namespace {

/// The weight a part may gain is capped here; beyond it nothing is known of the row.
constexpr double kLargestGain = 1e100;

/// One (row, head): the parts that count, their exact weights, and how far those may be off.
///
/// Relative error of e_p = exp(lse_p - m), u = roundoff of one operation, n parts that count:
///
///   4 u |lse_p - m| + exp              the difference, its factor log2 e, exp itself
///   (n - 1)(exp + 3 u)                 parts taken in one by one are rescaled once per later part
///   2 u (|lse_p| + |LSE|)              lse_p times log2 e, or exp(lse_p - LSE) with a stored LSE
///
/// Sums have n terms and n rescalings, the quotient or product with 1/l one rounding each.
///
/// Under split=lse the merge may be one of differences, part by part: g = 1 / (1 + exp(LSE - lse_p)), o := o - g (o - o_p),
/// and LSE stored each time. A step errs by u of what it subtracts, 2 M for the largest part M, of the product and of the
/// result, and by what 1 - g, next to 1, has lost: 8 u M together. LSE errs anew in each of the n - 1 steps.
///
/// Under split=half the result of every merge of two parts may be stored in the type of the parts, as a wrapper that takes in one
/// part after the other does: each time u of the sum so far, at most n - 1 times u sum w_p |o_p|.
class MergedRow {
public:
    MergedRow(const AttentionRoundoff& roundoff, std::span<const double> lses)
        : roundoff_(roundoff) {
        for (std::size_t p = 0; p < lses.size(); ++p) {
            if (lses[p] == -kInfinity) continue;
            live_.push_back({p, lses[p]});
            is_nan_ = is_nan_ || std::isnan(lses[p]);
            unjudged_ = unjudged_ || lses[p] == kInfinity;
            max_ = std::max(max_, lses[p]);
            farthest_ = std::max(farthest_, std::fabs(lses[p]));
        }
        if (live_.empty() || is_nan_ || unjudged_) return;
        for (const Part& part : live_) sum_ += std::exp(part.lse - max_);
        lse_ = max_ + std::log(sum_);
        const double n = static_cast<double>(live_.size()), u = roundoff_.unit;
        for (Part& part : live_) {
            const double distance = part.lse - max_;
            const double error = roundoff_.exponent_error(distance) + roundoff_.rescale_error(n) +
                                 2 * u * (std::fabs(part.lse) + std::fabs(lse_)) +
                                 (roundoff_.lse_split ? 2 * (n - 1) * u * (farthest_ + std::log(n) + 2) : 0);
            part.weight = std::exp(distance) / sum_;
            part.gain =
                std::clamp(std::exp(distance + error) / sum_ - part.weight, 0.0, kLargestGain);
            part.loss = std::exp(distance) < kSafeExp ? kExpFloor : 0;
            gained_ += part.gain;
        }
        growth_ = gamma(2 * n + 3, roundoff_.sum) + 2 * u;
        const double sum_error = (1 + gained_) * (1 + growth_) - 1;
        quotient_ = sum_error < 1 ? sum_error / (1 - sum_error) : kInfinity;
    }

    void write_lse(ExpectedTensor& out, std::size_t at) const {
        if (live_.empty()) {
            out.value[at] = -kInfinity;
        } else if (is_nan_) {
            out.value[at] = std::numeric_limits<double>::quiet_NaN();
        } else if (unjudged_) {
            leave_unjudged(out, at);
        } else {
            const double error = std::log1p(gained_) + std::log1p(growth_) +
                                 4 * roundoff_.unit *
                                     (std::fabs(max_) + std::fabs(lse_) + std::log(sum_) + 1);
            finish(lse_, error * roundoff_.oracle, 0, kLargestFp32, Dtype::fp32, out, at);
        }
    }

    /// value(p): o of part p.
    template <class Value>
    void write(const Value& value, Dtype dtype, ExpectedTensor& out, std::size_t at) const {
        if (live_.empty()) return;  // 0, exactly
        if (is_nan_) {
            out.value[at] = std::numeric_limits<double>::quiet_NaN();
            return;
        }
        if (unjudged_) return leave_unjudged(out, at);
        double exact = 0, moved = 0, size = 0, lost = 0, peak = 0, largest = 0;
        for (const Part& part : live_) {
            const double o = value(part.number);
            exact += part.weight * o;
            if (!std::isfinite(o)) continue;
            moved += part.gain * std::fabs(o);
            size += part.weight * std::fabs(o);
            lost += part.loss * std::fabs(o);
            peak += std::fabs(o);  // each part may have been the largest so far
            largest = std::max(largest, std::fabs(o));
        }
        const double n = static_cast<double>(live_.size());
        if (roundoff_.lse_split) lost += 8 * (n - 1) * roundoff_.unit * largest;
        const double stored = (n - 1) * roundoff_.part / (1 - (n - 1) * roundoff_.part);
        lost += (n - 1) * roundoff_.part_eta;
        const double error = moved * (1 + quotient_) * (1 + growth_) * (1 + stored) +
                             size * (quotient_ + growth_ + quotient_ * growth_) * (1 + stored) + size * stored +
                             3 * roundoff_.unit * std::fabs(exact) + lost +
                             (2 * n + 4) * (roundoff_.sum_floor + roundoff_.tiny_sum) + 2 * roundoff_.tiny;
        finish(exact, size == 0 && lost == 0 ? 0 : error * roundoff_.oracle,
               peak * (1 + gained_) * (1 + growth_), roundoff_.largest, dtype, out, at);
    }

private:
    struct Part {
        std::size_t number;
        double lse, weight = 0, gain = 0, loss = 0;
    };
    const AttentionRoundoff& roundoff_;
    std::vector<Part> live_;
    bool is_nan_ = false, unjudged_ = false;
    double max_ = -kInfinity, farthest_ = 0, sum_ = 0, lse_ = 0;
    double gained_ = 0, growth_ = 0, quotient_ = 0;
};

}  // namespace

ExpectedMerge expected_attention_merge(const MergeShape& s, const Precision& precision,
                                       std::span<const double> parts,
                                       std::span<const double> lses) {
    const std::int64_t rows = s.rows * s.heads;
    require_elements("parts", parts.size(), s.parts * rows * s.value_dim);
    require_elements("lses", lses.size(), s.parts * rows);
    ExpectedMerge out{ExpectedTensor(static_cast<std::size_t>(rows * s.value_dim)),
                      ExpectedTensor(static_cast<std::size_t>(rows))};
    const AttentionRoundoff roundoff(precision);
    const auto stride = static_cast<std::size_t>(rows), dim = static_cast<std::size_t>(s.value_dim);
    std::vector<double> own(static_cast<std::size_t>(s.parts));
    for (std::size_t row = 0; row < stride; ++row) {
        for (std::size_t p = 0; p < own.size(); ++p) own[p] = lses[p * stride + row];
        const MergedRow merged(roundoff, own);
        merged.write_lse(out.lse, row);
        for (std::size_t d = 0; d < dim; ++d)
            merged.write([&](std::size_t p) { return parts[(p * stride + row) * dim + d]; },
                         precision.dtype, out.output, row * dim + d);
    }
    return out;
}

}  // namespace attncheck::ref
