// The second and third tier of comparison: errors in units of the deviation that rounding predicts
// (elements, and root mean squares over slices), and matched filters that name a defect and measure
// it (verification.md 4.6, 4.7). Knows no operator.
//
// Every threshold follows from one number, the probability of a false alarm that one case may have
// (kFalseAlarm), shared out evenly over the tests of the case:
//   element    |z| = |error| / sigma, z sub-Gaussian:        2 exp(-z^2 / 2)
//   slice      mean z^2 = x over n independent rows:          exp(-n (x - 1 - ln x) / 2)
//              of truncating sums the part that goes with partial sums has so many independent ones as
//              there are channels, heads and sequences in the slice, and half of the false alarms
//   filter     t = sum a / sqrt(sum a^2), a_r = sum e r / sigma^2 of row r, symmetric and
//              independent:                                   2 exp(-t^2 / 2)
// A filter fires only if the same sum also exceeds t times its predicted deviation, and both after
// what coherent roundings may do to it is taken off.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "properties/case/description.h"
#include "properties/judge/verdict.h"
#include "ref/attention/rounding_noise.h"

namespace attncheck::properties {

/// Of one case. A run of a million cases, shrinking included, stays below 1e-8.
inline constexpr double kFalseAlarm = 1e-14;

/// One output [rows, heads, width], row-major, beside what rounding predicts for it.
struct TierTensor {
    std::string name;
    Role role = Role::other;
    std::string row_word;  ///< "query", "key", "token" or "block"
    std::int64_t heads = 1, width = 1;
    std::vector<ref::SequencePlace> places;  ///< per row, or per chosen (row, head)
    std::vector<std::int64_t> chosen_heads;  ///< of every chosen (row, head); empty: all are there
    ref::RoundingNoise noise;
    std::vector<double> got;
    ref::Dtype dtype = ref::Dtype::fp16;  ///< storage type of the operands
    /// Truncating sums of two rows lose alike where the rows add the same factors: keys of one head in dV,
    /// queries of the heads that share a key head in the output. `independent_sums` of the rows of such
    /// heads and of one channel at least are independent.
    std::int64_t heads_with_same_factors = 1;
    double independent_sums = 1;
    /// No more of what goes together is independent in any slice: errors of delta, one for each row.
    double most_independent = std::numeric_limits<double>::infinity();
    /// Share of the variance that rows of a head and a channel have in common, as truncating sums have: partial sums
    /// over nearly equal P are as large in all rows at once, and so are the roundings of them.
    double sums_alike = 0;
    double scale = 1;  ///< of the logits: a gain of 1 / scale is a scale left out
    /// Variance of a sum of the elements by errors that they share, given the weight of each; empty: none. It takes
    /// about as long as the tensor itself and is asked for where a filter would fire.
    std::function<double(std::span<const double>)> shared_variance;
    std::string cast;  ///< word of the rounding class that `noise.cast` stands for, or empty
    /// Multiplications that one row takes, where rows can be computed alone; 0: they cannot.
    double row_work = 0;

    const ref::SequencePlace& place_of(std::int64_t unit) const {
        return places[static_cast<std::size_t>(chosen_heads.empty() ? unit / heads : unit)];
    }
    std::int64_t head_of(std::int64_t unit) const {
        return chosen_heads.empty() ? unit % heads
                                    : chosen_heads[static_cast<std::size_t>(unit)];
    }
};

/// How far the statistics of a case went, each in units of its threshold and as it is.
struct TierScores {
    double element = 0, slice = 0, filter = 0;  ///< over threshold, at most 1 when held
    double worst_z = 0, worst_rms = 0, worst_t = 0;
    void join(const TierScores& other);
    double worst() const;
};

/// Whether each row (row and head) is to be computed; empty: all. The others may hold anything.
using WantedRows = std::vector<char>;

/// Noise of all tensors of a problem under a rounding class; `got` stays empty.
using NoiseOf = std::function<std::vector<TierTensor>(const ref::RoundingClass&, const WantedRows&)>;

/// What else a candidate may have computed: its exact outputs, evaluated when a failure is to be
/// named.
struct Hypothesis {
    std::string text;
    std::function<std::vector<TierTensor>()> tensors;
    std::string only = {};  ///< the one output that differs; empty: any may
};
using HypothesesOf = std::function<std::vector<Hypothesis>(const WantedRows&)>;

/// All tensors of a case. The verdict is on the first tensor that fails. Failure classes:
///   "dk: gain"                          a filter fired; the message has the size
///   "dk is less precise than declared"  a coarser class explains the deviation
///   "dk deviates"                       otherwise, and where errors are far beyond rounding
/// `noise_of` and `hypotheses` are asked on failure only, of a long tensor for its worst rows. Where a hypothesis, or a defect that
/// has a filter, explains nine tenths of a large error, the message begins with it.
Verdict judge_tiers(const std::vector<TierTensor>& tensors, const ref::RoundingClass& declared,
                    const NoiseOf& noise_of, TierScores* scores = nullptr,
                    const HypothesesOf& hypotheses = {});

/// What the tiers see of the tensors, in words of defects: the least gain that a filter shows with a
/// probability of 0.998, and how far one lost term of the longest sum stands out of the rounding,
/// root mean square. `terms` of the longest sum; 0: not said.
std::string describe_reach(const std::vector<TierTensor>& tensors,
                           const std::function<std::int64_t(const TierTensor&)>& terms);

/// Thresholds, for tests: the z of `tests` two-sided tests, and the root mean square over `rows`.
double element_limit(double tests);
double rms_limit(double rows, double tests);

}  // namespace attncheck::properties
