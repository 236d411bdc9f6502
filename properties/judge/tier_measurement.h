// One tensor measured against its predicted rounding: the sums behind the statistics of the second and
// third tier (tiers.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "properties/judge/tier_text.h"
#include "properties/judge/tiers.h"

namespace attncheck::properties {

/// Elements, slices and filters get a third of the false alarms each.
inline constexpr double kKinds = 3;

/// Rows and elements that belong together.
struct SliceSums {
    SliceName name;
    double sum = 0;  ///< of z^2
    std::int64_t elements = 0, rows = 0;
    double truncated = 0;  ///< sum of the shares of truncation in the variances
    std::unordered_set<std::int64_t> heads;  ///< whose rows add different factors, if sums truncate
    double independent_sums = 0;             ///< among those that truncate

    double rms() const {
        return elements == 0 ? 0 : std::sqrt(sum / static_cast<double>(elements));
    }
};

/// A matched filter over a slice of rows.
struct FilterSums {
    double a = 0, a2 = 0, w = 0, aw = 0, w2 = 0;  ///< sums of a_r, a_r^2, w_r, a_r w_r, w_r^2
    double v = 0;  ///< sum of squares of what coherent errors may be, over sigma
    double shared = 0;  ///< variance of a by errors that rows share (RoundingNoise::shared)
    std::int64_t rows = 0;

    void add(double ar, double wr, double vr) {
        a += ar, a2 += ar * ar, w += wr, aw += ar * wr, w2 += wr * wr, v += vr, ++rows;
    }
    double coefficient() const { return w > 0 ? a / w : 0; }
    /// What coherent errors may do to the coefficient of r (Cauchy and Schwarz).
    double coherent() const { return std::sqrt(v / w); }
    /// Both statistics, the smaller one, of what exceeds coherent errors; 0 where errors that rows share have no finite
    /// variance (statistics near the end of the range), for then any coefficient is rounding.
    double statistic() const {
        if (!(w > 0) || !std::isfinite(w + shared)) return 0;
        const double shift = std::copysign(coherent(), a), left = a - shift * w;
        if (left * a <= 0) return 0;
        const double squares = std::max(a2 - 2 * shift * aw + shift * shift * w2, 0.0);
        if (!(squares > 0)) return 0;
        return std::min(std::fabs(left) / std::sqrt(squares), std::fabs(left) / std::sqrt(w + shared));
    }
    /// In units of its predicted deviation.
    double t() const { return w > 0 ? a / std::sqrt(w + shared) : 0; }
};

/// One tensor, measured.
class Measurement {
public:
    explicit Measurement(const TierTensor& tensor);

    /// Number of tests of each kind, for the thresholds of the whole case.
    double elements() const { return static_cast<double>(judged_); }
    double slices() const { return static_cast<double>(slices_.size()); }
    double filters() const { return static_cast<double>(filters_.size()); }

    std::optional<Finding> judge(double element_tests, double slice_tests, double filter_tests,
                                 TierScores& scores) const;

    /// The whole tensor, whatever its limit.
    Finding deviation() const;

    /// The gain that the filter over the whole tensor shows with this margin above its limit, in
    /// units of the deviation of its statistic; infinite where too few rows let it fire.
    double least_gain(double limit, double margin) const;
    /// What one of `terms` equal parts of every element is in units of its deviation, root mean
    /// square, and what is allowed in addition to the predicted rounding.
    std::pair<double, double> lost_term(double terms, double slice_tests) const;
    bool is_empty() const { return slices_.empty(); }

    /// Evidence for the cast that the tensor's noise may hold: least squares of error^2 - rest on
    /// it.
    CastEvidence evidence() const;

private:
    static double ref_square(double x) { return x * x; }

    /// The slices a row belongs to, the whole tensor first.
    std::vector<SliceName> names(std::int64_t unit) const;

    /// Rows with the same exact numbers, as heads that see one and the same key, make the same
    /// errors: only the first counts among the independent ones.
    bool is_first_of_its_kind(std::size_t first);

    void measure_rows();

    /// Of the variance of an element.
    double truncated_share(std::size_t element) const;
    static void leave_out_crowded(SliceSums& slice, double independent);

    /// What the root mean square of a slice may be.
    double limit_of(const SliceSums& slice, double tests) const;

    void measure_probes(std::int64_t unit, std::size_t first);

    /// Errors that many rows share add up in the sum of a filter: row i of them takes
    /// (sum_r share_ir <factor_i, direction_r / sigma_r^2>)^2 of its variance.
    void measure_shared();

    /// The same with what the tensor counts on demand (TierTensor::shared_variance).
    FilterSums with_shared(std::size_t probe, const SliceName& slice) const;

    /// The filter that explains most; the whole tensor before its parts.
    std::optional<Finding> judge_filters(double limit, TierScores& scores) const;

    std::optional<Finding> judge_slices(double tests, TierScores& scores) const;

    std::optional<Finding> judge_elements(double limit, TierScores& scores) const;

    inline static const SliceSums kNone{};
    const TierTensor& tensor_;
    std::vector<double> z_;  ///< NaN where nothing is rounded
    std::int64_t judged_ = 0;
    std::unordered_set<std::uint64_t> seen_;
    std::vector<bool> counted_;  ///< rows that the filters have, where errors are shared
    std::map<SliceName, SliceSums> slices_;
    std::map<std::pair<std::size_t, SliceName>, FilterSums> filters_;
};

}  // namespace attncheck::properties
