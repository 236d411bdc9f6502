#include "properties/case/many_sequences.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "properties/case/derived.h"
#include "properties/case/random.h"

namespace attncheck::properties {
namespace {

constexpr int kPercent = 4;
constexpr std::int64_t kFew = 7, kTable = 33, kLargeTable = 1025;
constexpr double kMostOfAll = 200'000;  ///< of all tensors together

/// Elements of all tensors; what the case costs is a small multiple.
double size_of(const Spec& spec) {
    double elements = 0;
    for (const auto& shape : shapes_of(extents_of(spec)))
        elements += std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>());
    return elements;
}

/// `count` sequences, each as long as one of the case's or shorter. `cuts` says in how many of the
/// lists they may be shorter: lengths of keys can depend on other fields.
Spec repeated(const Spec& spec, std::int64_t count, std::size_t cuts, bool all_alike,
              Random& random) {
    Spec many = spec;
    many.overrides.clear();
    for (auto& list : many.lists) list.clear();
    const auto draw = [&] {
        const auto from = static_cast<std::size_t>(random.between(0, std::ssize(spec.lists[0]) - 1));
        for (std::size_t k = 0; k < many.lists.size(); ++k) {
            const std::int64_t length = spec.lists[k][std::min(from, spec.lists[k].size() - 1)];
            const std::int64_t most = random.pick<std::int64_t>({0, 1, 1, 2, 3, 5, length, length});
            // Keys behind the first lists: a defect may need more of them than a tile has, in a late sequence.
            const bool is_kept = k > 0 && random.chance(50);
            many.lists[k].push_back(k < cuts && !is_kept ? std::min(length, most) : length);
        }
    };
    for (std::int64_t b = 0; b < count; ++b) {
        if (b == 0 || !all_alike) {
            draw();
            continue;
        }
        for (auto& list : many.lists) list.push_back(list.front());
    }
    return many;
}

}  // namespace

void draw_many_sequences(Spec& spec) {
    if (spec.lists.empty() || spec.lists[0].empty()) return;
    Random random(mix(spec.seed) ^ static_cast<std::uint64_t>(spec.lists[0].size()));
    if (!random.chance(kPercent)) return;
    const std::int64_t table = random.chance(3) ? kLargeTable : kTable;
    const std::int64_t most = std::min(table, spec.schema->lists[0].max_size);
    if (most < kFew) return;
    const std::int64_t count = table == kLargeTable ? most : random.between(kFew, most);
    Spec small = spec;
    for (std::size_t i = 0; i < small.numbers.size(); ++i) {
        const NumberField& field = small.schema->numbers[i];
        if (field.word == "head") small.numbers[i] = std::max<std::int64_t>(field.min, 1);
    }
    for (const bool all_alike : {false, true})
        for (std::size_t cuts = small.lists.size(); cuts > 0; --cuts) {
            const Spec many = repeated(small, count, cuts, all_alike, random);
            if (illegal(many) || size_of(many) > kMostOfAll) continue;
            spec = many;
            return;
        }
}

}  // namespace attncheck::properties
