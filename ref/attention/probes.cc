#include "ref/attention/probes.h"

#include <algorithm>

#include "ref/attention/rounding_variance.h"
#include "ref/attention/shared_rows.h"

namespace attncheck::ref {

std::vector<SequencePlace> sequence_places(std::span<const std::int64_t> lengths,
                                           std::int64_t total) {
    std::vector<SequencePlace> places;
    for (std::size_t b = 0; b < lengths.size(); ++b)
        for (std::int64_t i = 0; i < lengths[b]; ++i)
            places.push_back({static_cast<std::int64_t>(b), i, lengths[b]});
    places.resize(static_cast<std::size_t>(total));
    return places;
}

void add_tile_probes(RoundingNoise& noise, std::span<const SequencePlace> places) {
    for (const std::int64_t tile : kProbedTiles)
        if (std::any_of(places.begin(), places.end(),
                        [tile](const SequencePlace& p) { return in_last_tile(p, tile); }))
            noise.probes.push_back({Defect::last_tile, tile, std::vector<double>(noise.size())});
}

void add_coherent(RoundingNoise& noise, Defect defect, double part) {
    const std::vector<double>& direction = find_probe(noise, defect)->direction;
    for (std::size_t i = 0; i < noise.size(); ++i) noise.alike[i] += square(part * direction[i]);
}

void add_cut(RoundingNoise& noise, double cut) {
    if (cut == 0) return;
    const auto add = [&](const std::vector<double>& direction) {
        for (std::size_t i = 0; i < noise.size(); ++i) {
            const double part = 3 * cut * square(direction[i]);
            noise.variance[i] += part, noise.rest[i] += part, noise.alike[i] += part;
        }
    };
    add(noise.value);
    for (const Defect defect : {Defect::scale, Defect::row_term})
        if (const Probe* const probe = find_probe(noise, defect)) add(probe->direction);
}

Probe* find_probe(RoundingNoise& noise, Defect defect, std::int64_t tile) {
    for (Probe& probe : noise.probes)
        if (probe.defect == defect && (tile == 0 || probe.tile == tile)) return &probe;
    return nullptr;
}

void add_gain(RoundingNoise& noise) {
    noise.probes.insert(noise.probes.begin(), {Defect::gain, 0, noise.value});
}

std::vector<std::int64_t> columns_in_last_tile(const SharedRows<double>& rows,
                                               std::span<const SequencePlace> key_places,
                                               std::int64_t tile) {
    std::vector<std::int64_t> last;
    for (std::int64_t j = 0; j < rows.count(); ++j)
        if (rows.key_row(j) != kSinkKey &&
            in_last_tile(key_places[static_cast<std::size_t>(rows.key_row(j))], tile))
            last.push_back(j);
    return last;
}

}  // namespace attncheck::ref
