#include "properties/judge/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "properties/case/call.h"
#include "properties/case/random.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
constexpr Int kTileInText = 64;

/// Positions of one long sequence beside its ends.
std::vector<Int> edges(Int length) {
    std::vector<Int> out{1, length - 2};
    for (Int edge = 16; edge < length; edge *= 2) out.insert(out.end(), {edge - 1, edge});
    for (const Int tile : {16, 32, 64, 128, 256}) {
        const Int last = (length - 1) / tile * tile;
        out.insert(out.end(), {last - 1, last});
    }
    std::erase_if(out, [&](Int p) { return p < 0 || p >= length; });
    return out;
}

/// The numbers of at most four sequences, the longest first.
std::vector<std::size_t> longest_sequences(const std::vector<Int>& lengths) {
    std::vector<std::size_t> order(lengths.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
    order.resize(std::min<std::size_t>(order.size(), 4));
    return order;
}

std::set<Int> boundary_rows(const std::vector<Int>& lengths, Int total_rows, Int heads,
                            std::uint64_t seed) {
    constexpr Int kEveryHead = 16;
    std::set<Int> out;
    const auto add = [&](Int row) {
        const auto head = static_cast<Int>(mix(seed ^ mix(static_cast<std::uint64_t>(row))) %
                                           static_cast<std::uint64_t>(heads));
        out.insert(row * heads + head);
    };
    const auto starts = row_starts(lengths);
    for (std::size_t b = 0; b < lengths.size(); ++b)
        if (lengths[b] > 0) add(starts[b]), add(starts[b + 1] - 1);
    if (starts.back() < total_rows) add(starts.back()), add(total_rows - 1);
    for (const std::size_t b : longest_sequences(lengths)) {
        if (lengths[b] == 0) continue;
        for (const Int position : edges(lengths[b])) add(starts[b] + position);
        for (Int head = 0; head < std::min(heads, kEveryHead); ++head) {
            out.insert(starts[b] * heads + head);
            out.insert((starts[b + 1] - 1) * heads + head);
        }
    }
    return out;
}

/// `count` different numbers below `population`, each set of them as likely as any other (Floyd).
std::set<Int> draw(Int population, Int count, std::uint64_t seed) {
    Random random(seed);
    std::set<Int> out;
    for (Int top = population - count; top < population; ++top) {
        const Int number = random.between(0, top);
        if (!out.insert(number).second) out.insert(top);
    }
    return out;
}

}  // namespace

RowSample sample_rows(const std::vector<Int>& lengths, Int total_rows, Int heads, Int count,
                      std::uint64_t seed) {
    RowSample sample;
    sample.population = total_rows * heads;
    if (sample.population == 0) return sample;
    sample.drawn = std::min(count, sample.population);
    std::set<Int> all = draw(sample.population, sample.drawn, mix(seed ^ 0x5a3e));
    const std::set<Int> boundary = boundary_rows(lengths, total_rows, heads, seed);
    sample.boundary = std::ssize(boundary);
    all.insert(boundary.begin(), boundary.end());
    sample.numbers.assign(all.begin(), all.end());
    return sample;
}

double miss_probability(Int population, Int defective, Int drawn) {
    if (defective + drawn > population) return 0;
    const auto [few, many] = std::minmax(defective, drawn);  // the formula is symmetric in them
    double probability = 1;
    for (Int i = 0; i < few; ++i)
        probability *=
            static_cast<double>(population - many - i) / static_cast<double>(population - i);
    return probability;
}

std::string describe(const RowSample& sample, const std::string& what) {
    if (sample.drawn == sample.population)
        return fmt::format("all {} {} compared", sample.population, what);
    const Int percent = (sample.population + 99) / 100,
              tile = std::min(kTileInText, sample.population);
    return fmt::format(
        "{} sampled {} of {} ({} random, {} boundary): a defect in 1 % of them is missed with "
        "probability {:.2g}, in one tile of {} with {:.2g}",
        what, sample.numbers.size(), sample.population, sample.drawn, sample.boundary,
        miss_probability(sample.population, percent, sample.drawn), tile,
        miss_probability(sample.population, tile, sample.drawn));
}

}  // namespace attncheck::properties
