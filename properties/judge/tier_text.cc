#include "properties/judge/tier_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "properties/judge/error_map.h"

namespace attncheck::properties {
namespace {

std::string percent(double value) { return fmt::format("{:+.3g} %", 100 * value); }

bool is_about(double value, double target) { return std::fabs(value - target) < 0.2; }

/// What the tiles of a last_tile probe are cut from.
std::string summed_word(const TierTensor& tensor) {
    if (tensor.row_word == "token" || tensor.row_word == "block") return "rows";
    return tensor.row_word == "query" ? "keys" : "queries";
}

/// A number that is cut to a type, and not rounded, is smaller by 0.72 u in the mean.
bool is_of_cut(ref::Dtype type, double gain) {
    return type != ref::Dtype::fp32 && std::fabs(gain / (-0.72 * ref::unit_roundoff(type)) - 1) < 0.25;
}

std::string words_of_defect(const TierTensor& tensor, const Finding& found) {
    const ref::Probe& probe = tensor.noise.probes[found.probe];
    const double b = found.coefficient;
    switch (probe.defect) {
        case ref::Defect::gain:
            if (is_about(b, -1) && is_about(b * 10, -10)) return "gain -100 % (all zero?)";
            if (std::fabs((1 + b) * tensor.scale - 1) < 0.02 && tensor.scale != 1)
                return "gain " + percent(b) + " (scale left out?)";
            if (std::fabs((1 + b) / tensor.scale - 1) < 0.02 && tensor.scale != 1)
                return "gain " + percent(b) + " (scale applied twice?)";
            if (std::fabs(b + 2) < 0.008) return "gain " + percent(b) + " (sign reversed?)";
            return "gain " + percent(b) + (is_of_cut(tensor.dtype, b) ? " (cut, not rounded?)" : "");
        case ref::Defect::scale:
            return "scale inside the softmax off by " + percent(b);
        case ref::Defect::row_term:
            if (is_about(b, -1)) return "row term wrong (delta left out?)";
            return "row term wrong (delta off by " + percent(b) + ")";
        case ref::Defect::other_row:
            if (is_about(b, 1)) return "row term wrong (delta of another row?)";
            return "row term wrong (mixed with another row's by " + percent(b) + ")";
        case ref::Defect::last_tile:
            if (is_about(b, -1))
                return fmt::format("last tile of {} {} missing", probe.tile, summed_word(tensor));
            if (is_about(b, 1))
                return fmt::format("last tile of {} {} counted twice?", probe.tile, summed_word(tensor));
            if (std::fabs(b) > 1.5)  // no share of the tile's own sum
                return fmt::format("wrong most of all by the last {} {}", probe.tile, summed_word(tensor));
            return fmt::format("last tile of {} {} off by {}", probe.tile, summed_word(tensor),
                               percent(b));
        case ref::Defect::last_weight:
            if (is_about(b, -1)) return "last row of the weight missing";
            return "last row of the weight off by " + percent(b);
    }
    return {};
}

/// The failure class: the defect without its size.
std::string class_of_defect(const ref::Probe& probe) {
    switch (probe.defect) {
        case ref::Defect::gain:
            return "gain";
        case ref::Defect::scale:
            return "scale inside the softmax";
        case ref::Defect::row_term:
        case ref::Defect::other_row:
            return "row term";
        case ref::Defect::last_tile:
            return "last tile";
        case ref::Defect::last_weight:
            return "last row of the weight";
    }
    return {};
}

std::string words_of_slice(const TierTensor& tensor, const SliceName& slice) {
    switch (slice.kind) {
        case SliceName::Kind::all:
            return {};
        case SliceName::Kind::sequence:
            return fmt::format(" in sequence {}", slice.index);
        case SliceName::Kind::head:
            return fmt::format(" in head {}", slice.index);
        case SliceName::Kind::last_tile:
            return fmt::format(" in the last {} {} rows of the sequences", slice.index,
                               tensor.row_word);
        case SliceName::Kind::lane:
            return fmt::format(" in {} rows {} modulo 16", tensor.row_word, slice.index);
        case SliceName::Kind::channel:
            return fmt::format(" in channel {}", slice.index);
    }
    return {};
}

/// The elements of which rounding is known, in units of its deviation.
std::vector<double> in_deviations(const TierTensor& tensor, std::vector<double> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double variance = tensor.noise.variance[i];
        values[i] = variance > 0 ? values[i] / std::sqrt(variance) : 0;
    }
    return values;
}

/// How much of the squared error a direction takes away: its best multiple, or itself.
struct Match {
    double of_multiple = 0, coefficient = 0, as_it_is = 0;
};
Match match_of(const std::vector<double>& error, const std::vector<double>& direction) {
    const double errors = std::inner_product(error.begin(), error.end(), error.begin(), 0.0),
                 directions = std::inner_product(direction.begin(), direction.end(), direction.begin(), 0.0),
                 both = std::inner_product(error.begin(), error.end(), direction.begin(), 0.0);
    if (!(errors > 0) || !(directions > 0)) return {};
    return {both * both / (errors * directions), both / directions, (2 * both - directions) / errors};
}

/// So many elements have the error: 1 where one has nearly all of it.
double erring_elements(const std::vector<double>& error) {
    double squares = 0, fourth_powers = 0;
    for (const double one : error) {
        squares += one * one;
        fourth_powers += one * one * one * one;
    }
    return fourth_powers > 0 ? squares * squares / fourth_powers : 0;
}

/// Got, or what a hypothesis says, against what is expected.
std::vector<double> difference(const std::vector<double>& values, const TierTensor& tensor) {
    std::vector<double> out = values;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] -= tensor.noise.value[i];
    return in_deviations(tensor, std::move(out));
}

/// Numbers of a type that are cut to it in place of rounded.
std::vector<double> cut_to(ref::Dtype type, const std::vector<double>& values) {
    std::vector<double> out(values.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
        const std::uint32_t bits = ref::encode(type, values[i]);
        const bool is_larger = std::fabs(ref::decode(type, bits)) > std::fabs(values[i]);
        out[i] = ref::decode(type, is_larger ? bits - 1 : bits);
    }
    return out;
}

/// Sums over one cell of the map.
struct CellSums {
    double sum = 0, weight = 0;
};

/// Root mean square of z, or the coefficient of the filter in percent.
std::string map_of(const TierTensor& tensor, const Finding& found) {
    const bool filter = found.kind == Finding::Kind::filter;
    ErrorMap<CellSums> map;
    const ref::RoundingNoise& noise = tensor.noise;
    for (std::size_t i = 0; i < noise.size(); ++i) {
        if (!(noise.variance[i] > 0)) continue;
        const auto unit = static_cast<std::int64_t>(i) / tensor.width;
        const ref::SequencePlace& place = tensor.place_of(unit);
        CellSums& cell = map.at(place.sequence, tensor.head_of(unit), place.position);
        const double error = tensor.got[i] - noise.value[i];
        const double r = filter ? noise.probes[found.probe].direction[i] : error;
        cell.sum += error * r / noise.variance[i];
        cell.weight += filter ? r * r / noise.variance[i] : 1;
    }
    return map.text(filter ? "size in %" : "rms of error / deviation", tensor.row_word,
                    [&](const CellSums& cell) -> std::string {
                        if (!(cell.weight > 0)) return "       -";
                        if (filter) return fmt::format(" {:>+7.3g}", 100 * cell.sum / cell.weight);
                        return fmt::format(" {:>7.3g}", std::sqrt(cell.sum / cell.weight));
                    },
                    [](const CellSums& cell) { return cell.weight > 0 ? std::fabs(cell.sum / cell.weight) : 0; });
}

std::string words_of_deviation(const TierTensor& tensor, const Finding& found) {
    if (found.kind == Finding::Kind::slice)
        return fmt::format(
            "rms error {:.3g} of the predicted deviation{}{} ({} rows)", found.statistic,
            words_of_slice(tensor, found.slice),
            found.limit > 0 ? fmt::format(", at most {:.3g} expected", found.limit) : std::string(),
            found.rows);
    const auto unit = static_cast<std::int64_t>(found.element) / tensor.width;
    const ref::SequencePlace& place = tensor.place_of(unit);
    return fmt::format(
        "[sequence {}, {} {}, head {}, channel {}] expected {:.9g}, got {:.9g}: {:.3g} times the "
        "predicted deviation, at most {:.3g} expected",
        place.sequence, tensor.row_word, place.position, tensor.head_of(unit),
        static_cast<std::int64_t>(found.element) % tensor.width, tensor.noise.value[found.element],
        tensor.got[found.element], found.statistic, found.limit);
}

/// A filter sees a part of any large error. One that has less than half of it does not say what is wrong: the error is
/// described as it is.
Finding without_weak_filter(const TierTensor& tensor, const Finding& found) {
    constexpr double kLarge = 4, kHalf = 0.5;
    if (found.kind != Finding::Kind::filter || found.slice.kind != SliceName::Kind::all || found.rms < kLarge) return found;
    const Match match = match_of(difference(tensor.got, tensor),
                                 in_deviations(tensor, tensor.noise.probes[found.probe].direction));
    if (match.of_multiple >= kHalf) return found;
    Finding plain = found;
    plain.kind = Finding::Kind::slice, plain.statistic = found.rms, plain.limit = 0;
    return plain;
}

}  // namespace

void describe_finding(const TierTensor& tensor, const Finding& of,
                      const ref::RoundingClass& declared,
                      const std::optional<ref::RoundingClass>& coarser, const std::string& cause,
                      Verdict& verdict) {
    verdict.kind = Verdict::Kind::failed;
    const Finding found = without_weak_filter(tensor, of);
    if (found.kind == Finding::Kind::filter) {
        verdict.tier = Tier::filter;
        verdict.failure =
            fmt::format("{}: {}", tensor.name, class_of_defect(tensor.noise.probes[found.probe]));
        verdict.message = fmt::format(
            "{}: {}{} (t = {:.0f}, {} rows; rms error {:.3g} of the predicted deviation)",
            tensor.name, words_of_defect(tensor, found), words_of_slice(tensor, found.slice),
            std::fabs(found.statistic), found.rows, found.rms);
    } else {
        verdict.tier = Tier::deviation;
        verdict.failure = tensor.name + (coarser ? " is less precise than declared" : " deviates");
        verdict.message = tensor.name + ": " + words_of_deviation(tensor, found);
        if (coarser)
            verdict.message += fmt::format("\n  errors look like the class '{}', declared is '{}'",
                                           ref::print_rounding_class(*coarser),
                                           ref::print_rounding_class(declared));
    }
    if (!cause.empty())
        verdict.message =
            tensor.name + ": " + cause + verdict.message.substr(tensor.name.size() + 2);
    verdict.message += map_of(tensor, found);
}

/// A multiple of any direction is the error of one element, and has most of the error of a few: what it explains is
/// counted after one element, a hypothesis as it is.
std::string likely_cause(const TierTensor& tensor, const std::vector<Hypothesis>& hypotheses, double rms,
                         bool hypothesis_only) {
    constexpr double kMost = 0.9, kFew = 3;
    const double beyond_rounding = kMost * (1 - 1 / (rms * rms));
    const ref::RoundingNoise& noise = tensor.noise;
    const std::vector<double> error = difference(tensor.got, tensor);
    const double elements = erring_elements(error);
    const auto words = [](const std::string& text, double share) {
        return fmt::format("{}, which explains {:.3g} % of the error; ", text, 100 * share);
    };
    std::vector<std::string> alike;  // hypotheses with the same outputs
    double best = elements < kFew ? std::max(beyond_rounding, 1 - 4 / (rms * rms)) : beyond_rounding;
    if (tensor.dtype != ref::Dtype::fp32) {
        const double share = match_of(error, difference(cut_to(tensor.dtype, noise.value), tensor)).as_it_is;
        if (share > best) best = share, alike = {"stored rounded toward zero, not to nearest"};
    }
    for (const Hypothesis& hypothesis : hypotheses) {
        if (!hypothesis.only.empty() && hypothesis.only != tensor.name) continue;
        for (const TierTensor& other : hypothesis.tensors()) {
            if (other.name != tensor.name || other.noise.size() != noise.size()) continue;
            const Match match = match_of(error, difference(other.noise.value, tensor));
            if (!is_about(match.coefficient, 1)) continue;
            constexpr double kSame = 1e-12;
            if (match.as_it_is > best + kSame)
                best = match.as_it_is, alike = {hypothesis.text};
            else if (!alike.empty() && match.as_it_is >= best - kSame)
                alike.push_back(hypothesis.text);
        }
    }
    if (alike.size() > 2) alike.resize(2);
    const std::string of_hypothesis =
        alike.empty() ? std::string() : words(fmt::format("{}", fmt::join(alike, ", or ")), best);
    std::string of_defect;
    double least = alike.empty() ? beyond_rounding : best;
    Finding found;
    for (found.probe = 0; found.probe < noise.probes.size(); ++found.probe) {
        const Match match = match_of(error, in_deviations(tensor, noise.probes[found.probe].direction));
        found.coefficient = match.coefficient;
        const double others = std::max(elements - 1, 0.0) / std::max(elements, 1.0),
                     share = alike.empty() ? match.of_multiple : 1 - (1 - match.of_multiple) / std::max(others, 1e-9);
        if (!(share > least) || (!alike.empty() && others < 0.5)) continue;
        const std::string text = words_of_defect(tensor, found);
        // Of one or two elements everything is a multiple: only a number that stands for a defect says something.
        if (elements < kFew && !text.ends_with("?)") && !text.ends_with("missing")) continue;
        least = share;
        of_defect = words(text, match.of_multiple);
    }
    if (of_defect.empty()) return of_hypothesis;
    return hypothesis_only ? std::string() : of_defect;
}

/// The variance of a cast is predicted for the worst significand: half of it on average, less where
/// probabilities of 1 are exact.
std::string looks_like(const CastEvidence& evidence) {
    if (evidence.word.empty() || !(evidence.expected > 0)) return {};
    const double share = evidence.found / evidence.expected;
    constexpr double kRounded = 0.15, kNot = 0.08;
    const bool of_sum = evidence.word == "sum";
    if (share > kRounded) return evidence.word + (of_sum ? "=rounded" : "=half");
    if (share < kNot) return evidence.word + "=fp32";
    return evidence.word + "=?";
}

std::string words_of(const std::vector<CastEvidence>& casts) {
    std::string text;
    for (const CastEvidence& cast : casts) {
        const std::string word = looks_like(cast);
        if (!word.empty()) text += (text.empty() ? "" : " ") + word;
    }
    return text;
}

}  // namespace attncheck::properties
