#include "properties/judge/tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "properties/judge/tier_measurement.h"
#include "properties/judge/tier_text.h"

namespace attncheck::properties {
namespace {

/// Root mean squares of a whole tensor in units of its deviation: from the first on, an error is so much larger than
/// rounding that its direction shows; from the second on it is not left to a filter to name. Between them a hypothesis is
/// told with the filter that fired, where it has more of the error than any filter.
constexpr double kBeyondRounding = 1.5, kFarBeyondRounding = 10;

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

/// The finest coarser class under which the tensor would pass, or nothing.
std::optional<ref::RoundingClass> explaining_class(const TierTensor& tensor, const Tests& tests,
                                                   const ref::RoundingClass& declared,
                                                   const NoiseOf& noise_of) {
    for (const ref::RoundingClass& rounding : coarser_classes(declared))
        for (TierTensor& other : noise_of(rounding)) {
            if (other.name != tensor.name) continue;
            other.got = tensor.got;
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

Verdict judge_tiers(const std::vector<TierTensor>& tensors, const ref::RoundingClass& declared,
                    const NoiseOf& noise_of, TierScores* scores, const HypothesesOf& hypotheses) {
    for (const TierTensor& tensor : tensors)
        if (auto verdict = verdict_on_finite(tensor)) return *verdict;
    TierScores own;
    const auto [measured, tests] = measured_of(tensors);
    Verdict verdict;
    for (std::size_t k = 0; k < tensors.size(); ++k) {
        const TierTensor& tensor = tensors[k];
        if (!tensor.cast.empty() && tensor.dtype != ref::Dtype::fp32)
            verdict.casts.push_back(measured[k].evidence());
        auto found = measured[k].judge(tests.elements, tests.slices, tests.filters, own);
        if (!found || verdict.failed()) continue;
        const bool is_filter = found->kind == Finding::Kind::filter;
        const bool is_left_to_filter = is_filter && found->rms <= kFarBeyondRounding;
        std::string cause;
        if (found->rms > kBeyondRounding)
            cause = likely_cause(tensor, hypotheses ? hypotheses() : std::vector<Hypothesis>{}, found->rms,
                                 is_left_to_filter);
        if (!cause.empty() && !is_left_to_filter) found = measured[k].deviation();
        std::optional<ref::RoundingClass> coarser;
        if (found->kind != Finding::Kind::filter && cause.empty())
            coarser = explaining_class(tensor, tests, declared, noise_of);
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
