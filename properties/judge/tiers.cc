#include "properties/judge/tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "properties/judge/tier_measurement.h"
#include "properties/judge/tier_text.h"

namespace attncheck::properties {
namespace {

/// Root mean squares of a whole tensor in units of its deviation: from the first on, an error is so much larger than
/// rounding that its direction shows; from the second on it is not left to a filter to name. Between them a hypothesis is
/// told with the filter that fired, where it has more of the error than any filter.
constexpr double kBeyondRounding = 1.5, kFarBeyondRounding = 10;
/// From here on an output may be one that is cut as it is stored, which needs no search.
constexpr double kCut = 1.2;
/// Sums in fp16 deviate 2^13 times as far as in fp32: no class explains what is twice as far off.
constexpr double kCoarsest = 1 << 14;

/// Classes that are coarser than the declared one: casts first, then sums, then both.
std::vector<ref::RoundingClass> coarser_classes(const ref::RoundingClass& declared) {
    std::vector<ref::RoundingClass> list;
    const auto add = [&](const ref::RoundingClass& rounding) {
        if (!(rounding == declared)) list.push_back(rounding);
    };
    ref::RoundingClass casts = declared;
    casts.prob_rounded = casts.score_grad_rounded = true;
    add(casts);
    casts.row_sum_rounded = true;
    add(casts);
    const double half = ref::parse_rounding_class("acc=half").accumulator_roundoff;
    for (const ref::RoundingClass& base : {declared, casts})
        for (const double u : {0x1p-24, 0x1p-23, half}) {
            if (declared.accumulator_roundoff < 0 || (u > 0 && u <= declared.accumulator_roundoff))
                continue;
            ref::RoundingClass sums = base;
            sums.accumulator_roundoff = u;
            add(sums);
        }
    return list;
}

/// The rows that a failure is named by: of a tensor whose rows take long the worst ones and, as many, others evenly.
WantedRows wanted_rows(const TierTensor& tensor) {
    constexpr double kMostWork = 1 << 22;  // multiplications for each of forty hypotheses
    const std::size_t width = static_cast<std::size_t>(tensor.width), rows = tensor.noise.size() / width;
    if (!tensor.chosen_heads.empty() || tensor.row_work * static_cast<double>(rows) <= kMostWork) return {};
    const std::size_t half = std::max(std::size_t{2}, static_cast<std::size_t>(kMostWork / tensor.row_work / 2));
    if (2 * half >= rows) return {};
    std::vector<std::pair<double, std::size_t>> errors(rows);
    for (std::size_t row = 0; row < rows; ++row) {
        errors[row] = {0, row};
        for (std::size_t i = row * width; i < (row + 1) * width; ++i)
            if (tensor.noise.variance[i] > 0) {
                const double error = tensor.got[i] - tensor.noise.value[i];
                errors[row].first -= error * error / tensor.noise.variance[i];
            }
    }
    WantedRows wanted(rows);
    for (std::size_t k = 0; k < half; ++k) wanted[k * rows / half] = 1;
    std::ranges::nth_element(errors, errors.begin() + static_cast<std::ptrdiff_t>(half));
    for (std::size_t k = 0; k < half; ++k) wanted[errors[k].second] = 1;
    return wanted;
}

/// A row without a deviation is not compared.
void leave_out_unwanted(TierTensor& tensor, const WantedRows& wanted) {
    for (std::size_t i = 0; i < tensor.noise.size() && !wanted.empty(); ++i)
        if (!wanted[i / static_cast<std::size_t>(tensor.width)]) tensor.noise.variance[i] = 0;
}

struct Tests {
    double elements = 0, slices = 0, filters = 0;
};

struct Measured {
    std::vector<Measurement> tensors;
    Tests tests;
};

Measured measured_of(const std::vector<TierTensor>& tensors) {
    Measured all;
    for (const TierTensor& tensor : tensors) {
        const Measurement& one = all.tensors.emplace_back(tensor);
        all.tests.elements += one.elements();
        all.tests.slices += one.slices();
        all.tests.filters += one.filters();
    }
    return all;
}

/// Whether no head has ten times the error of another: a class rounds in all of them.
bool is_alike_in_heads(const TierTensor& tensor) {
    constexpr double kFew = 32, kFarther = 100;  // elements of a head; squared
    std::map<std::int64_t, std::pair<double, double>> heads;  // sum of z^2, elements
    for (std::size_t i = 0; i < tensor.noise.size(); ++i) {
        if (!(tensor.noise.variance[i] > 0)) continue;
        const double error = tensor.got[i] - tensor.noise.value[i];
        auto& [sum, count] = heads[tensor.head_of(static_cast<std::int64_t>(i) / tensor.width)];
        sum += error * error / tensor.noise.variance[i], count += 1;
    }
    double least = std::numeric_limits<double>::infinity(), most = 0;
    for (const auto& [head, of] : heads) {
        if (of.second < kFew) continue;
        least = std::min(least, of.first / of.second), most = std::max(most, of.first / of.second);
    }
    return !(most > kFarther * least);
}

/// Whether a tenth of the rows has nearly all of the error, in units of what the class predicts: it rounds in all rows.
bool is_in_few_rows(const TierTensor& tensor) {
    constexpr std::size_t kFew = 20;  // rows
    constexpr double kShare = 0.1, kMost = 0.9;
    const auto width = static_cast<std::size_t>(tensor.width);
    std::vector<double> rows;
    for (std::size_t first = 0; first < tensor.noise.size(); first += width) {
        double sum = 0;
        bool is_judged = false;
        for (std::size_t i = first; i < first + width; ++i)
            if (tensor.noise.variance[i] > 0) {
                const double error = tensor.got[i] - tensor.noise.value[i];
                sum += error * error / tensor.noise.variance[i], is_judged = true;
            }
        if (is_judged) rows.push_back(sum);
    }
    if (rows.size() < kFew) return false;
    std::ranges::sort(rows, std::greater<>());
    const auto tenth = rows.begin() + static_cast<std::ptrdiff_t>(kShare * static_cast<double>(rows.size()));
    const double all = std::accumulate(rows.begin(), rows.end(), 0.0);
    return std::accumulate(rows.begin(), tenth, 0.0) > kMost * all;
}

/// The finest coarser class under which the tensor would pass, or nothing.
std::optional<ref::RoundingClass> explaining_class(const TierTensor& tensor, const Tests& tests,
                                                   const ref::RoundingClass& declared,
                                                   const NoiseOf& noise_of, const WantedRows& wanted) {
    if (!is_alike_in_heads(tensor)) return std::nullopt;
    for (const ref::RoundingClass& rounding : coarser_classes(declared))
        for (TierTensor& other : noise_of(rounding, wanted)) {
            if (other.name != tensor.name) continue;
            other.got = tensor.got;
            leave_out_unwanted(other, wanted);
            if (is_in_few_rows(other)) continue;
            // A class that predicts far larger errors explains nothing.
            constexpr double kLeast = 0.1;
            TierScores ignored;
            const Measurement measured(other);
            if (!measured.judge(tests.elements, tests.slices, tests.filters, ignored) &&
                measured.deviation().rms > kLeast)
                return rounding;
        }
    return std::nullopt;
}

/// Data of these tiers has no overflow: what is not finite is the first tier's to judge.
std::optional<Verdict> verdict_on_finite(const TierTensor& tensor) {
    for (std::size_t i = 0; i < tensor.got.size(); ++i)
        if (!std::isfinite(tensor.got[i]) && std::isfinite(tensor.noise.value[i])) {
            return Verdict::fail(tensor.name + " is wrong", tensor.name + " is not finite",
                                 Tier::bound);
        }
    return std::nullopt;
}

}  // namespace

void TierScores::join(const TierScores& other) {
    for (const auto member : {&TierScores::element, &TierScores::slice, &TierScores::filter,
                              &TierScores::worst_z, &TierScores::worst_rms, &TierScores::worst_t})
        this->*member = std::max(this->*member, other.*member);
}

double TierScores::worst() const { return std::max({element, slice, filter}); }

double element_limit(double tests) { return std::sqrt(2 * std::log(2 * tests / kFalseAlarm)); }

double rms_limit(double rows, double tests) {
    // x - 1 - ln x = 2 ln(tests / alarm) / rows, x > 1, by bisection: monotone.
    const double want = 2 * std::log(tests / kFalseAlarm) / std::max(rows, 1.0);
    double low = 1, high = 2 * want + 4;
    for (int step = 0; step < 60; ++step) {
        const double x = (low + high) / 2;
        (x - 1 - std::log(x) < want ? low : high) = x;
    }
    return std::sqrt(high);
}

/// Other roundings to half have errors as large, of which the variance is known from above only.
static bool tells_casts(const ref::RoundingClass& declared) {
    return declared.scaling != ref::Scaling::half && !declared.steps_rounded && !declared.scores_rounded && !declared.prob_kept &&
           !declared.parts_rounded;
}

Verdict judge_tiers(const std::vector<TierTensor>& tensors, const ref::RoundingClass& declared,
                    const NoiseOf& noise_of, TierScores* scores, const HypothesesOf& hypotheses) {
    for (const TierTensor& tensor : tensors)
        if (auto verdict = verdict_on_finite(tensor)) return *verdict;
    TierScores own;
    const auto [measured, tests] = measured_of(tensors);
    Verdict verdict;
    for (std::size_t k = 0; k < tensors.size(); ++k) {
        const TierTensor& tensor = tensors[k];
        if (!tensor.cast.empty() && tensor.dtype != ref::Dtype::fp32 && tells_casts(declared))
            verdict.casts.push_back(measured[k].evidence());
        auto found = measured[k].judge(tests.elements, tests.slices, tests.filters, own);
        if (!found || verdict.failed()) continue;
        const bool is_filter = found->kind == Finding::Kind::filter;
        const bool is_left_to_filter = is_filter && found->rms <= kFarBeyondRounding;
        const WantedRows wanted = wanted_rows(tensor);
        std::string cause;
        const bool shows_direction = found->rms > kBeyondRounding;
        if (found->rms > kCut) {
            TierTensor looked_at;
            if (!wanted.empty()) leave_out_unwanted(looked_at = tensor, wanted);
            cause = likely_cause(wanted.empty() ? tensor : looked_at,
                                 hypotheses && shows_direction ? hypotheses(wanted) : std::vector<Hypothesis>{},
                                 found->rms,
                                 is_left_to_filter || !shows_direction);
        }
        if (!cause.empty() && !is_left_to_filter) found = measured[k].deviation();
        std::optional<ref::RoundingClass> coarser;
        if (found->kind != Finding::Kind::filter && cause.empty() && found->rms < kCoarsest)
            coarser = explaining_class(tensor, tests, declared, noise_of, wanted);
        describe_finding(tensor, *found, declared, coarser, cause, verdict);
    }
    if (verdict.failed()) verdict.casts.clear();  // a defect is no rounding
    verdict.worst_ratio = own.worst();
    if (scores) scores->join(own);
    return verdict;
}

std::string describe_reach(const std::vector<TierTensor>& tensors,
                           const std::function<std::int64_t(const TierTensor&)>& terms) {
    constexpr double kMargin = 2.88;  // of a normal deviate: 0.998
    const auto [measured, tests] = measured_of(tensors);
    std::string text;
    for (std::size_t k = 0; k < tensors.size(); ++k) {
        if (measured[k].is_empty()) continue;
        text += fmt::format("{}  {}: ", text.empty() ? "" : "\n", tensors[k].name);
        const double gain = measured[k].least_gain(element_limit(kKinds * tests.filters), kMargin);
        const std::int64_t count = terms(tensors[k]);
        text += std::isfinite(gain)
                    ? fmt::format("a gain of {:.2g} %{} is seen with probability 0.998", 100 * gain,
                                  count < 2 ? "" : fmt::format(" on sums of up to {} terms", count))
                    : std::string("too few rows for a gain to be named");
        if (count < 2) continue;
        const auto [lost, room] = measured[k].lost_term(static_cast<double>(count), tests.slices);
        text += fmt::format("; one term lost in every sum is an error of {:.2g} deviations, {:.2g} "
                            "{} seen",
                            lost, room, lost > room ? "are" : "would be");
    }
    return text;
}

}  // namespace attncheck::properties
