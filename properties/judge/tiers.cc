#include "properties/judge/tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_set>

#include "properties/case/random.h"
#include "properties/judge/tier_text.h"

namespace attncheck::properties {
namespace {

/// Elements, slices and filters get a third of the false alarms each.
constexpr double kKinds = 3;

/// Rows and elements that belong together.
struct Slice {
    SliceName name;
    double sum = 0;  ///< of z^2
    std::int64_t elements = 0, rows = 0;

    double rms() const {
        return elements == 0 ? 0 : std::sqrt(sum / static_cast<double>(elements));
    }
};

/// A matched filter over a slice of rows.
struct Filter {
    double a = 0, a2 = 0, w = 0, aw = 0, w2 = 0;  ///< sums of a_r, a_r^2, w_r, a_r w_r, w_r^2
    double v = 0;  ///< sum of squares of what coherent errors may be, over sigma
    std::int64_t rows = 0;

    void add(double ar, double wr, double vr) {
        a += ar, a2 += ar * ar, w += wr, aw += ar * wr, w2 += wr * wr, v += vr, ++rows;
    }
    double coefficient() const { return w > 0 ? a / w : 0; }
    /// What coherent errors may do to the coefficient of r (Cauchy and Schwarz).
    double coherent() const { return std::sqrt(v / w); }
    /// Both statistics, the smaller one, of what exceeds coherent errors.
    double statistic() const {
        if (!(w > 0)) return 0;
        const double shift = std::copysign(coherent(), a), left = a - shift * w;
        if (left * a <= 0) return 0;
        const double squares = std::max(a2 - 2 * shift * aw + shift * shift * w2, 0.0);
        if (!(squares > 0)) return 0;
        return std::min(std::fabs(left) / std::sqrt(squares), std::fabs(left) / std::sqrt(w));
    }
    /// In units of its predicted deviation.
    double t() const { return w > 0 ? a / std::sqrt(w) : 0; }
};

/// One tensor, measured.
class Measurement {
public:
    explicit Measurement(const TierTensor& tensor) : tensor_(tensor) {
        z_.resize(tensor.noise.size());
        for (std::size_t i = 0; i < z_.size(); ++i) {
            const double variance = tensor.noise.variance[i];
            z_[i] = variance > 0 ? (tensor.got[i] - tensor.noise.value[i]) / std::sqrt(variance)
                                 : std::nan("");
        }
        measure_rows();
    }

    /// Number of tests of each kind, for the thresholds of the whole case.
    double elements() const { return static_cast<double>(judged_); }
    double slices() const { return static_cast<double>(slices_.size()); }
    double filters() const { return static_cast<double>(filters_.size()); }

    std::optional<Finding> judge(double element_tests, double slice_tests, double filter_tests,
                                 TierScores& scores) const {
        std::optional<Finding> filter = judge_filters(element_limit(kKinds * filter_tests), scores);
        std::optional<Finding> slice = judge_slices(slice_tests, scores);
        std::optional<Finding> element =
            judge_elements(element_limit(kKinds * element_tests), scores);
        std::optional<Finding>& first = filter ? filter : slice ? slice : element;
        if (first) first->rms = slices_.begin()->second.rms();
        return first;
    }

    /// The whole tensor, whatever its limit.
    Finding deviation() const {
        Finding found;
        found.kind = Finding::Kind::slice;
        found.statistic = found.rms = slices_.begin()->second.rms();
        found.rows = slices_.begin()->second.rows;
        return found;
    }

    /// The gain that the filter over the whole tensor shows with this margin above its limit, in
    /// units of the deviation of its statistic; infinite where too few rows let it fire.
    double least_gain(double limit, double margin) const {
        const auto gain = std::find_if(filters_.begin(), filters_.end(), [&](const auto& one) {
            return one.first.second.kind == SliceName::Kind::all &&
                   tensor_.noise.probes[one.first.first].defect == ref::Defect::gain;
        });
        if (gain == filters_.end()) return std::numeric_limits<double>::infinity();
        const Filter& f = gain->second;
        const double shift = f.coherent();
        // Noise of a_r has the variance w_r.
        for (double b = 1e-6; b < 1; b *= 1.05) {
            const double left = std::max(b - shift, 0.0);
            const double t = left * f.w / std::sqrt(std::max(f.w, left * left * f.w2 + f.w));
            if (t > limit + margin) return b;
        }
        return std::numeric_limits<double>::infinity();
    }
    /// What one of `terms` equal parts of every element is in units of its deviation, root mean
    /// square, and what is allowed in addition to the predicted rounding.
    std::pair<double, double> lost_term(double terms, double slice_tests) const {
        const Slice& all = slices_.begin()->second;
        double values = 0;
        for (std::size_t i = 0; i < z_.size(); ++i)
            if (!std::isnan(z_[i]))
                values += ref_square(tensor_.noise.value[i]) / tensor_.noise.variance[i];
        const double rms = std::sqrt(values / (elements() * terms)),
                     limit = rms_limit(static_cast<double>(all.rows), kKinds * slice_tests);
        return {rms, std::sqrt(std::max(ref_square(limit) - ref_square(all.rms()), 0.0))};
    }
    bool is_empty() const { return slices_.empty(); }

    /// Evidence for the cast that the tensor's noise may hold: least squares of error^2 - rest on
    /// it.
    CastEvidence evidence() const {
        CastEvidence sum{tensor_.cast};
        const ref::RoundingNoise& noise = tensor_.noise;
        for (std::size_t i = 0; i < z_.size(); ++i) {
            if (!(noise.cast[i] > 0) || std::isnan(z_[i])) continue;
            const double error = tensor_.got[i] - noise.value[i];
            const double weight = 1 / ref_square(noise.rest[i] + noise.cast[i]);
            sum.found += weight * noise.cast[i] * (error * error - noise.rest[i]);
            sum.expected += weight * noise.cast[i] * noise.cast[i];
        }
        return sum;
    }

private:
    static double ref_square(double x) { return x * x; }

    /// The slices a row belongs to, the whole tensor first.
    std::vector<SliceName> names(std::int64_t unit) const {
        const ref::SequencePlace& place = tensor_.place_of(unit);
        std::vector<SliceName> out{{SliceName::Kind::all, 0},
                                   {SliceName::Kind::head, tensor_.head_of(unit)},
                                   {SliceName::Kind::sequence, place.sequence},
                                   {SliceName::Kind::lane, place.position % 16}};
        if (place.position >= (place.length - 1) / 32 * 32)
            out.push_back({SliceName::Kind::last_tile, 32});
        return out;
    }

    /// Rows with the same exact numbers, as heads that see one and the same key, make the same
    /// errors: only the first counts among the independent ones.
    bool is_first_of_its_kind(std::size_t first) {
        std::uint64_t hash = 0;
        for (std::size_t d = 0; d < static_cast<std::size_t>(tensor_.width); ++d)
            hash = mix(hash ^ std::bit_cast<std::uint64_t>(tensor_.noise.value[first + d]));
        return seen_.insert(hash).second;
    }

    void measure_rows() {
        const auto width = static_cast<std::size_t>(tensor_.width);
        const auto units = static_cast<std::int64_t>(z_.size() / width);
        std::vector<Slice> channels(width > 1 ? width : 0);
        for (std::int64_t unit = 0; unit < units; ++unit) {
            const std::size_t first = static_cast<std::size_t>(unit) * width;
            double sum = 0;
            std::int64_t count = 0;
            for (std::size_t d = 0; d < width; ++d) {
                const double z = z_[first + d];
                if (std::isnan(z)) continue;
                sum += z * z;
                ++count;
            }
            if (count == 0) continue;
            judged_ += count;
            if (!is_first_of_its_kind(first)) continue;
            for (const SliceName& name : names(unit)) {
                Slice& slice = slices_[name];
                slice.name = name;
                slice.sum += sum;
                slice.elements += count;
                ++slice.rows;
            }
            for (std::size_t d = 0; d < channels.size(); ++d) {
                const double z = z_[first + d];
                if (std::isnan(z)) continue;
                channels[d].sum += z * z;
                ++channels[d].elements;
                ++channels[d].rows;
            }
            measure_probes(unit, first);
        }
        for (std::size_t d = 0; d < channels.size(); ++d) {
            channels[d].name = {SliceName::Kind::channel, static_cast<std::int64_t>(d)};
            if (channels[d].rows > 0) slices_[channels[d].name] = channels[d];
        }
    }

    void measure_probes(std::int64_t unit, std::size_t first) {
        const ref::RoundingNoise& noise = tensor_.noise;
        const auto slices = names(unit);
        const std::size_t end = first + static_cast<std::size_t>(tensor_.width);
        double v = 0;
        for (std::size_t i = first; i < end; ++i)
            if (!std::isnan(z_[i]))
                v += ref_square(noise.coherent * std::fabs(noise.value[i]) +
                                std::sqrt(noise.alike[i])) /
                     noise.variance[i];
        for (std::size_t k = 0; k < noise.probes.size(); ++k) {
            double a = 0, w = 0;
            for (std::size_t i = first; i < end; ++i) {
                if (std::isnan(z_[i])) continue;
                const double r = noise.probes[k].direction[i] / noise.variance[i];
                a += (tensor_.got[i] - noise.value[i]) * r;
                w += noise.probes[k].direction[i] * r;
            }
            if (!(w > 0)) continue;
            for (const SliceName& name : slices) filters_[{k, name}].add(a, w, v);
        }
    }

    /// The filter that explains most; the whole tensor before its parts.
    std::optional<Finding> judge_filters(double limit, TierScores& scores) const {
        std::optional<Finding> best;
        double most = 0;
        for (const auto& [key, filter] : filters_) {
            const double t = filter.statistic();
            scores.filter = std::max(scores.filter, t / limit);
            scores.worst_t = std::max(scores.worst_t, t);
            if (!(t > limit)) continue;
            const double weight = key.second.kind == SliceName::Kind::all ? 1.5 : 1;
            const double explained = weight * std::fabs(filter.t());
            if (!(explained > most)) continue;
            most = explained;
            Finding found;
            found.kind = Finding::Kind::filter;
            found.probe = key.first;
            found.slice = key.second;
            found.coefficient = filter.coefficient();
            found.statistic = filter.t();
            found.limit = limit;
            found.rows = filter.rows;
            best = found;
        }
        return best;
    }

    std::optional<Finding> judge_slices(double tests, TierScores& scores) const {
        std::optional<Finding> best;
        double most = 1;
        for (const auto& [name, slice] : slices_) {
            const double rms = slice.rms();
            const double limit = rms_limit(static_cast<double>(slice.rows), kKinds * tests);
            const double ratio = rms / limit;
            scores.slice = std::isnan(ratio) ? ratio : std::max(scores.slice, ratio);
            if (slice.rows >= 64) scores.worst_rms = std::max(scores.worst_rms, rms);
            if (ratio <= most) continue;
            most = ratio;
            Finding found;
            found.kind = Finding::Kind::slice;
            found.slice = name;
            found.statistic = rms;
            found.limit = limit;
            found.rows = slice.rows;
            best = found;
        }
        // What the whole tensor shows is not blamed on a part of it that has not most of it.
        const Slice& all = slices_.empty() ? kNone : slices_.begin()->second;
        const double all_limit = rms_limit(static_cast<double>(all.rows), kKinds * tests);
        if (best && best->slice.kind != SliceName::Kind::all && all.rms() > all_limit &&
            !(slices_.at(best->slice).sum > 0.9 * all.sum && 2 * best->rows < all.rows)) {
            best->slice = all.name;
            best->statistic = all.rms();
            best->limit = all_limit;
            best->rows = all.rows;
        }
        return best;
    }

    std::optional<Finding> judge_elements(double limit, TierScores& scores) const {
        Finding found;
        found.kind = Finding::Kind::element;
        found.limit = limit;
        for (std::size_t i = 0; i < z_.size(); ++i) {
            if (std::isnan(z_[i]) || std::fabs(z_[i]) <= found.statistic) continue;
            found.statistic = std::fabs(z_[i]);
            found.element = i;
        }
        scores.worst_z = std::max(scores.worst_z, found.statistic);
        scores.element = std::max(scores.element, found.statistic / limit);
        if (!(found.statistic > limit)) return std::nullopt;
        return found;
    }

    inline static const Slice kNone{};
    const TierTensor& tensor_;
    std::vector<double> z_;  ///< NaN where nothing is rounded
    std::int64_t judged_ = 0;
    std::unordered_set<std::uint64_t> seen_;
    std::map<SliceName, Slice> slices_;
    std::map<std::pair<std::size_t, SliceName>, Filter> filters_;
};

/// Root mean squares of a whole tensor in units of its deviation: from the first on, an error is so
/// much larger than rounding that its direction shows without weights; from the second on it is not
/// left to a filter to name.
constexpr double kBeyondRounding = 3, kFarBeyondRounding = 10;

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
    Tests tests;
    std::vector<Measurement> measured;
    measured.reserve(tensors.size());
    for (const TierTensor& tensor : tensors) {
        measured.emplace_back(tensor);
        tests.elements += measured.back().elements();
        tests.slices += measured.back().slices();
        tests.filters += measured.back().filters();
    }
    Verdict verdict;
    for (std::size_t k = 0; k < tensors.size(); ++k) {
        const TierTensor& tensor = tensors[k];
        if (!tensor.cast.empty() && tensor.dtype != ref::Dtype::fp32)
            verdict.casts.push_back(measured[k].evidence());
        auto found = measured[k].judge(tests.elements, tests.slices, tests.filters, own);
        if (!found || verdict.failed()) continue;
        const bool large = found->rms > (found->kind == Finding::Kind::filter ? kFarBeyondRounding
                                                                              : kBeyondRounding);
        std::string cause;
        if (large)
            cause = likely_cause(tensor, hypotheses ? hypotheses() : std::vector<Hypothesis>{});
        if (!cause.empty()) found = measured[k].deviation();
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
    std::vector<Measurement> measured;
    Tests tests;
    for (const TierTensor& tensor : tensors) {
        measured.emplace_back(tensor);
        tests.elements += measured.back().elements();
        tests.slices += measured.back().slices();
        tests.filters += measured.back().filters();
    }
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
