#include "properties/case/data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <system_error>
#include <thread>
#include <vector>

#include "properties/case/random.h"

namespace attncheck::properties {
namespace {

constexpr std::uint64_t kPrimes[] = {0x9E3779B185EBCA87ull, 0xC2B2AE3D27D4EB4Full,
                                     0x165667B19E3779F9ull, 0x85EBCA77C2B2AE63ull};

/// Before the last mix.
std::uint64_t sum_of(std::uint64_t seed, int tensor, std::span<const std::int64_t> index) {
    std::uint64_t sum = mix(seed) + static_cast<std::uint64_t>(tensor + 1) * 0x27D4EB2F165667C5ull;
    for (std::size_t dim = 0; dim < index.size(); ++dim)
        sum += static_cast<std::uint64_t>(index[dim]) * kPrimes[dim];
    return sum;
}

double uniform(std::uint64_t hash) { return static_cast<double>(hash >> 11) * 0x1p-53; }

}  // namespace

RecipeRow::RecipeRow(Recipe recipe, std::uint64_t seed, const DataRole& role, ref::Dtype dtype,
                     std::span<const std::int64_t> index, std::int64_t elements)
    : recipe_(recipe),
      seed_(seed),
      role_(role),
      dtype_(dtype),
      rank_(index.size() + 1),
      elements_(elements),
      sum_(sum_of(seed, role.tensor, index)),
      prime_(kPrimes[index.size()]) {
    std::ranges::copy(index, index_);
}

double RecipeRow::value(std::uint64_t hash, std::int64_t last) const {
    const auto index = [&](std::size_t dim) { return dim + 1 == rank_ ? last : index_[dim]; };
    const double sign = hash & 1 ? -1 : 1;
    switch (recipe_) {
        case Recipe::zeros:
            return 0;
        case Recipe::ones:
            return 1;
        case Recipe::ints:
            return role_.weights ? static_cast<double>(hash % 3) - 1
                                 : static_cast<double>(hash % 9) - 4;
        case Recipe::onehot: {
            if (!role_.weights) return normal_of(hash);
            const std::int64_t column[] = {0, rank_ > 1 ? index(1) : 0};
            const std::uint64_t chosen =
                mix(sum_of(seed_, role_.tensor, column)) % static_cast<std::uint64_t>(role_.rows);
            return index(0) == static_cast<std::int64_t>(chosen) ? 1 : 0;
        }
        case Recipe::signs:
            return hash & 2 ? sign : std::copysign(0.0, sign);
        case Recipe::normal:
            return normal_of(hash);
        case Recipe::cancelling:
            return (role_.weights || index(0) % 2 == 0 ? 1 : -1) * (1 + 0.01 * normal_of(hash));
        case Recipe::spiky:
            return normal_of(hash) * (mix(hash) % 16 == 0 ? 1000 : 1);
        case Recipe::huge:
            return role_.weights ? normal_of(hash)
                                 : sign * ref::max_finite(dtype_) * (0.25 + 0.75 * uniform(hash));
        case Recipe::subnormal:
            return role_.weights ? normal_of(hash)
                                 : sign * ref::min_normal(dtype_) * uniform(hash);
        case Recipe::specials: {
            const auto place =
                mix(hash) % static_cast<std::uint64_t>(elements_ > 0 ? elements_ : 1);
            if (place > 1) return hash % 4 == 0 ? 0 : normal_of(hash);  // zeros: NaN times zero is NaN
            constexpr double kInfinity = std::numeric_limits<double>::infinity();
            return hash % 3 == 0 ? std::numeric_limits<double>::quiet_NaN() : sign * kInfinity;
        }
    }
    return 0;
}

double recipe_value(Recipe recipe, std::uint64_t seed, const DataRole& role, ref::Dtype dtype,
                    std::span<const std::int64_t> index, std::int64_t elements) {
    return RecipeRow(recipe, seed, role, dtype, index.first(index.size() - 1),
                     elements)(index.back());
}

void for_row_ranges(std::int64_t rows, std::int64_t elements,
                    const std::function<void(std::int64_t, std::int64_t)>& work) {
    constexpr std::int64_t kMany = std::int64_t{1} << 22, kThreads = 4;
    if (elements < kMany) return work(0, rows);
    std::vector<std::thread> threads;
    for (std::int64_t k = 0; k < kThreads; ++k) {
        const auto part = [&, k] { work(rows * k / kThreads, rows * (k + 1) / kThreads); };
        try {
            threads.emplace_back(part);
        } catch (const std::system_error&) {  // no thread is left: here, then
            part();
        }
    }
    for (auto& thread : threads) thread.join();
}

}  // namespace attncheck::properties
