#include "properties/judge/tier_measurement.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "properties/case/random.h"

namespace attncheck::properties {

namespace {

/// The inner product, in partial sums that do not wait for each other.
double product_of(const double* a, const double* b, std::size_t count) {
    constexpr std::size_t kParts = 8;
    double parts[kParts] = {};
    std::size_t at = 0;
    for (; at + kParts <= count; at += kParts)
        for (std::size_t k = 0; k < kParts; ++k) parts[k] += a[at + k] * b[at + k];
    for (; at < count; ++at) parts[0] += a[at] * b[at];
    return ((parts[0] + parts[4]) + (parts[1] + parts[5])) + ((parts[2] + parts[6]) + (parts[3] + parts[7]));
}

/// A result and what was expected.
using ResultOfChannel = std::pair<double, double>;

/// As many independent errors would have a mean square that varies as much as that of these roundings to the output type. Numbers
/// that share a cell of the type and lie close together in it have one error: rows over the same few keys, of nearly the same P.
/// Those that fill the cell have errors of their own.
double independent_roundings(std::vector<ResultOfChannel>& results, ref::Dtype dtype) {
    std::ranges::sort(results);
    double variance = 0;  // of the sum of the squares, in units of that of one
    for (std::size_t begin = 0, end; begin < results.size(); begin = end) {
        for (end = begin + 1; end < results.size() && results[end].first == results[begin].first;) ++end;
        const auto count = static_cast<double>(end - begin);
        // The range of as many uniform numbers is this much of the cell in the mean. In a part f of the cell the mean square of
        // the errors varies as that of 1 / (1 - f)^2 errors does, about.
        const double usual = (count - 1) / (count + 1) * 2 * ref::half_ulp(dtype, std::fabs(results[begin].first));
        const double left = std::max(1 - (results[end - 1].second - results[begin].second) / usual, 0.0);
        variance += count == 1 ? 1 : count * count / std::min(count, 1 / (left * left));
    }
    const auto rows = static_cast<double>(results.size());
    return rows * rows / std::max(variance, 1.0);
}

}  // namespace

Measurement::Measurement(const TierTensor& tensor) : tensor_(tensor) {
    z_.resize(tensor.noise.size());
    for (std::size_t i = 0; i < z_.size(); ++i) {
        const double variance = tensor.noise.variance[i];
        z_[i] = variance > 0 ? (tensor.got[i] - tensor.noise.value[i]) / std::sqrt(variance)
                             : std::nan("");
    }
    if (!tensor.noise.shared.empty() || tensor.shared_variance)
        counted_.resize(z_.size() / static_cast<std::size_t>(tensor.width));
    measure_rows();
    measure_shared();
}

std::optional<Finding> Measurement::judge(double element_tests, double slice_tests,
                                          double filter_tests, TierScores& scores) const {
    std::optional<Finding> filter = judge_filters(element_limit(kKinds * filter_tests), scores);
    std::optional<Finding> slice = judge_slices(slice_tests, scores);
    std::optional<Finding> element =
        judge_elements(element_limit(kKinds * element_tests), scores);
    std::optional<Finding>& first = filter ? filter : slice ? slice : element;
    if (first) first->rms = slices_.begin()->second.rms();
    return first;
}

Finding Measurement::deviation() const {
    Finding found;
    found.kind = Finding::Kind::slice;
    found.statistic = found.rms = slices_.begin()->second.rms();
    found.rows = slices_.begin()->second.rows;
    return found;
}

double Measurement::least_gain(double limit, double margin) const {
    const auto gain = std::find_if(filters_.begin(), filters_.end(), [&](const auto& one) {
        return one.first.second.kind == SliceName::Kind::all &&
               tensor_.noise.probes[one.first.first].defect == ref::Defect::gain;
    });
    if (gain == filters_.end()) return std::numeric_limits<double>::infinity();
    const FilterSums f = with_shared(gain->first.first, gain->first.second);
    const double shift = f.coherent();
    // Noise of a_r has the variance w_r.
    for (double b = 1e-6; b < 1; b *= 1.05) {
        const double left = std::max(b - shift, 0.0);
        const double t = left * f.w / std::sqrt(std::max(f.w + f.shared, left * left * f.w2 + f.w));
        if (t > limit + margin) return b;
    }
    return std::numeric_limits<double>::infinity();
}

std::pair<double, double> Measurement::lost_term(double terms, double slice_tests) const {
    const SliceSums& all = slices_.begin()->second;
    double values = 0;
    for (std::size_t i = 0; i < z_.size(); ++i)
        if (!std::isnan(z_[i]))
            values += ref_square(tensor_.noise.value[i]) / tensor_.noise.variance[i];
    const double rms = std::sqrt(values / (elements() * terms)),
                 limit = limit_of(all, slice_tests);
    return {rms, std::sqrt(std::max(ref_square(limit) - ref_square(all.rms()), 0.0))};
}

CastEvidence Measurement::evidence() const {
    CastEvidence sum{tensor_.cast};
    const ref::RoundingNoise& noise = tensor_.noise;
    for (std::size_t i = 0; i < z_.size(); ++i) {
        if (!(noise.cast[i] > 0) || std::isnan(z_[i]) || !std::isfinite(noise.rest[i] + noise.cast[i])) continue;
        const double error = tensor_.got[i] - noise.value[i];
        const double weight = 1 / ref_square(noise.rest[i] + noise.cast[i]);
        sum.found += weight * noise.cast[i] * (error * error - noise.rest[i]);
        sum.expected += weight * noise.cast[i] * noise.cast[i];
    }
    return sum;
}

std::vector<SliceName> Measurement::names(std::int64_t unit) const {
    const ref::SequencePlace& place = tensor_.place_of(unit);
    std::vector<SliceName> out{{SliceName::Kind::all, 0},
                               {SliceName::Kind::head, tensor_.head_of(unit)},
                               {SliceName::Kind::sequence, place.sequence},
                               {SliceName::Kind::lane, place.position % 16}};
    if (place.position >= (place.length - 1) / 32 * 32)
        out.push_back({SliceName::Kind::last_tile, 32});
    return out;
}

bool Measurement::is_first_of_its_kind(std::size_t first) {
    std::uint64_t hash = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(tensor_.width); ++d)
        hash = mix(hash ^ std::bit_cast<std::uint64_t>(tensor_.noise.value[first + d]));
    return seen_.insert(hash).second;
}

void Measurement::measure_rows() {
    const auto width = static_cast<std::size_t>(tensor_.width);
    const auto units = static_cast<std::int64_t>(z_.size() / width);
    std::vector<SliceSums> channels(width > 1 ? width : 0);
    std::vector<std::vector<ResultOfChannel>> results(tensor_.dtype == ref::Dtype::fp32 ? 0 : channels.size());
    for (std::int64_t unit = 0; unit < units; ++unit) {
        const std::size_t first = static_cast<std::size_t>(unit) * width;
        double sum = 0, truncated = 0;
        std::int64_t count = 0;
        for (std::size_t d = 0; d < width; ++d) {
            const double z = z_[first + d];
            if (std::isnan(z)) continue;
            sum += z * z;
            truncated += truncated_share(first + d);
            ++count;
        }
        if (count == 0) continue;
        judged_ += count;
        if (!is_first_of_its_kind(first)) continue;
        for (const SliceName& name : names(unit)) {
            SliceSums& slice = slices_[name];
            slice.name = name;
            slice.sum += sum;
            slice.elements += count;
            slice.truncated += truncated;
            if (truncated > 0)
                slice.heads.insert(tensor_.place_of(unit).sequence * tensor_.heads +
                                   tensor_.head_of(unit) / tensor_.heads_with_same_factors);
            ++slice.rows;
        }
        for (std::size_t d = 0; d < channels.size(); ++d) {
            const double z = z_[first + d];
            if (std::isnan(z)) continue;
            channels[d].sum += z * z;
            channels[d].truncated += truncated_share(first + d);
            ++channels[d].elements;
            ++channels[d].rows;
            if (!results.empty()) results[d].emplace_back(tensor_.got[first + d], tensor_.noise.value[first + d]);
        }
        if (!counted_.empty()) counted_[static_cast<std::size_t>(unit)] = true;
        measure_probes(unit, first);
    }
    const double width_of_sums = static_cast<double>(width) * tensor_.independent_sums;
    for (auto& [name, slice] : slices_)
        slice.independent_sums = static_cast<double>(slice.heads.size()) * width_of_sums;
    std::map<SliceName, SliceSums> of_channels;
    double counted_rows = 0, independent_rows = 0;
    for (std::size_t d = 0; d < channels.size(); ++d) {
        if (channels[d].truncated > 0)
            channels[d].independent_sums = static_cast<double>(slices_.begin()->second.heads.size()) *
                                           tensor_.independent_sums;
        channels[d].name = {SliceName::Kind::channel, static_cast<std::int64_t>(d)};
        counted_rows += static_cast<double>(channels[d].rows);
        if (!results.empty()) leave_out_crowded(channels[d], independent_roundings(results[d], tensor_.dtype));
        independent_rows += static_cast<double>(channels[d].rows);
        if (channels[d].rows > 0) of_channels[channels[d].name] = channels[d];
    }
    if (independent_rows < counted_rows)
        for (auto& [name, slice] : slices_)
            slice.rows = std::max<std::int64_t>(static_cast<std::int64_t>(static_cast<double>(slice.rows) * independent_rows / counted_rows), 1);
    slices_.merge(of_channels);
}

/// Of rows whose roundings are one, one counts. A share of them is like that by chance.
void Measurement::leave_out_crowded(SliceSums& slice, double independent) {
    constexpr double kByChance = 0.6;
    if (independent < kByChance * static_cast<double>(slice.rows)) slice.rows = static_cast<std::int64_t>(independent);
}

double Measurement::truncated_share(std::size_t element) const {
    const ref::RoundingNoise& noise = tensor_.noise;
    const double variance = noise.variance[element];
    if (std::isinf(variance)) return tensor_.sums_alike;
    const double truncated = noise.truncated.empty() ? 0 : noise.truncated[element] / variance;
    return std::max({truncated, tensor_.sums_alike, std::min(noise.alike[element] / variance, 1.0)});
}

double Measurement::limit_of(const SliceSums& slice, double tests) const {
    const auto rows = static_cast<double>(slice.rows);
    if (slice.truncated == 0) return rms_limit(rows, kKinds * tests);
    const double share = slice.truncated / static_cast<double>(slice.elements),
                 independent = std::min({slice.independent_sums, rows, tensor_.most_independent});
    return std::sqrt((1 - share) * ref_square(rms_limit(rows, 2 * kKinds * tests)) +
                     share * ref_square(rms_limit(independent, 2 * kKinds * tests)));
}

void Measurement::measure_probes(std::int64_t unit, std::size_t first) {
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

void Measurement::measure_shared() {
    const ref::RoundingNoise& noise = tensor_.noise;
    if (noise.shared.empty()) return;
    const auto width = static_cast<std::size_t>(tensor_.width);
    std::map<SliceName, std::size_t> numbers;
    std::vector<std::vector<std::size_t>> slices(counted_.size());
    for (std::size_t unit = 0; unit < counted_.size(); ++unit)
        for (const SliceName& name : counted_[unit] ? names(static_cast<std::int64_t>(unit)) : std::vector<SliceName>{})
            slices[unit].push_back(numbers.try_emplace(name, numbers.size()).first->second);
    std::vector<double> weighted(z_.size()), sums;
    for (std::size_t k = 0; k < noise.probes.size(); ++k) {
        for (std::size_t i = 0; i < z_.size(); ++i)
            weighted[i] = std::isnan(z_[i]) ? 0 : noise.probes[k].direction[i] / noise.variance[i];
        std::vector<double> variances(numbers.size());
        for (const ref::SharedErrors& errors : noise.shared) {
            const std::size_t keys = errors.places.size();
            for (std::size_t i = 0; i * width < errors.factor.size(); ++i) {
                const double* const factor = errors.factor.data() + i * width;
                sums.assign(numbers.size(), 0.0);
                for (std::size_t c = 0; c < keys; ++c) {
                    const auto unit = static_cast<std::size_t>(errors.places[c]);
                    if (slices[unit].empty()) continue;
                    const double product =
                        static_cast<double>(errors.share[i * keys + c]) *
                        product_of(factor, weighted.data() + unit * width, width);
                    for (const std::size_t slice : slices[unit]) sums[slice] += product;
                }
                for (std::size_t at = 0; at < sums.size(); ++at) variances[at] += ref_square(sums[at]);
            }
        }
        for (const auto& [name, number] : numbers) {
            const auto filter = filters_.find({k, name});
            if (filter != filters_.end()) filter->second.shared = variances[number];
        }
    }
}

FilterSums Measurement::with_shared(std::size_t probe, const SliceName& slice) const {
    FilterSums sums = filters_.at({probe, slice});
    if (!tensor_.shared_variance) return sums;
    const ref::RoundingNoise& noise = tensor_.noise;
    const auto width = static_cast<std::size_t>(tensor_.width);
    std::vector<double> weights(z_.size());
    for (std::size_t unit = 0; unit < counted_.size(); ++unit) {
        if (!counted_[unit] || !std::ranges::count(names(static_cast<std::int64_t>(unit)), slice)) continue;
        for (std::size_t i = unit * width; i < (unit + 1) * width; ++i)
            if (!std::isnan(z_[i])) weights[i] = noise.probes[probe].direction[i] / noise.variance[i];
    }
    sums.shared += tensor_.shared_variance(weights);
    return sums;
}

std::optional<Finding> Measurement::judge_filters(double limit, TierScores& scores) const {
    const auto score = [&](double t) {
        scores.filter = std::max(scores.filter, t / limit);
        scores.worst_t = std::max(scores.worst_t, t);
    };
    std::vector<std::pair<double, const decltype(filters_)::value_type*>> candidates;
    for (const auto& one : filters_) {
        const double t = one.second.statistic();
        if (!(t > limit)) {
            score(t);
            continue;
        }
        const double weight = one.first.second.kind == SliceName::Kind::all ? 1.5 : 1;
        candidates.emplace_back(weight * std::fabs(one.second.t()), &one);
    }
    std::ranges::stable_sort(candidates, std::greater<>(), [](const auto& one) { return one.first; });
    for (const auto& [explained, one] : candidates) {
        const FilterSums filter = with_shared(one->first.first, one->first.second);
        score(filter.statistic());
        if (!(filter.statistic() > limit)) continue;
        Finding found;
        found.kind = Finding::Kind::filter;
        found.probe = one->first.first;
        found.slice = one->first.second;
        found.coefficient = filter.coefficient();
        found.statistic = filter.t();
        found.limit = limit;
        found.rows = filter.rows;
        return found;
    }
    return std::nullopt;
}

std::optional<Finding> Measurement::judge_slices(double tests, TierScores& scores) const {
    std::optional<Finding> best;
    double most = 1;
    for (const auto& [name, slice] : slices_) {
        const double rms = slice.rms();
        const double limit = limit_of(slice, tests);
        const double ratio = rms / limit;
        scores.slice = std::isnan(ratio) ? ratio : std::max(scores.slice, ratio);
        if (slice.rows >= 64) scores.worst_rms = std::max(scores.worst_rms, rms);
        if (!(ratio > most)) continue;
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
    const SliceSums& all = slices_.empty() ? kNone : slices_.begin()->second;
    const double all_limit = limit_of(all, tests);
    if (best && best->slice.kind != SliceName::Kind::all && all.rms() > all_limit &&
        !(slices_.at(best->slice).sum > 0.9 * all.sum && 2 * best->rows < all.rows)) {
        best->slice = all.name;
        best->statistic = all.rms();
        best->limit = all_limit;
        best->rows = all.rows;
    }
    return best;
}

std::optional<Finding> Measurement::judge_elements(double limit, TierScores& scores) const {
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

}  // namespace attncheck::properties
