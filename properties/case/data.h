// Element values: a hash of the logical index, never of a position in a stream, so that cropping a
// tensor keeps the value of every element that is left.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "properties/case/random.h"
#include "properties/case/spec.h"
#include "ref/numbers/dtype.h"

namespace attncheck::properties {

/// What the recipes need to know of a tensor to stay meaningful whatever its role.
struct DataRole {
    int tensor = 0;  ///< schema index, part of the hash
    bool weights =
        false;  ///< gets the structured part of a recipe: one-hot rows, the tame side of huge data
    std::int64_t rows = 1;  ///< extent of dimension 0
};

/// The recipe's value of one element, not yet rounded to the storage type.
///   zeros, ones
///   ints        whole numbers: -1..1 for weights, -4..4 else (sums of products stay exact in fp32)
///   onehot      weights: one 1 per column, 0 elsewhere; others as normal
///   signs       +0, -0, +1, -1
///   normal      zero mean, unit variance (sum of four uniform numbers)
///   cancelling  rows of alternating sign and nearly equal size: sums lose most of their digits
///   spiky       normal, one element in 16 a thousand times larger
///   huge        close to the largest finite number; weights stay near 1
///   subnormal   subnormal numbers; weights stay near 1
///   specials    normal, a quarter of it zero, with about two NaN or infinities per tensor
double recipe_value(Recipe recipe, std::uint64_t seed, const DataRole& role, ref::Dtype dtype,
                    std::span<const std::int64_t> index, std::int64_t elements);

/// From a hash: the sum of four 16-bit uniform numbers, centred, unit variance. Bounded by 3.5, no
/// logarithm needed.
inline double normal_of(std::uint64_t hash) {
    const double sum = static_cast<double>((hash & 0xFFFF) + (hash >> 16 & 0xFFFF) +
                                           (hash >> 32 & 0xFFFF) + (hash >> 48));
    constexpr double kUnit = 1.7320508075688772 / 65536.0;  // the root of 3
    return (sum - 2 * 65535.0) * kUnit;
}

/// The recipe's values of elements that differ in their last index alone, at most three: a tensor has many.
class RecipeRow {
public:
    /// `index` without its last number.
    RecipeRow(Recipe recipe, std::uint64_t seed, const DataRole& role, ref::Dtype dtype,
              std::span<const std::int64_t> index, std::int64_t elements);
    double operator()(std::int64_t last) const {
        const std::uint64_t hash = mix(sum_ + static_cast<std::uint64_t>(last) * prime_);
        return recipe_ == Recipe::normal ? normal_of(hash) : value(hash, last);
    }

private:
    double value(std::uint64_t hash, std::int64_t last) const;

    Recipe recipe_;
    std::uint64_t seed_;
    DataRole role_;
    ref::Dtype dtype_;
    std::int64_t index_[3] = {};
    std::size_t rank_;  ///< with the last index
    std::int64_t elements_;
    std::uint64_t sum_, prime_;
};

/// Calls work(begin, end) for ranges of rows, on threads of their own when there are many elements:
/// values depend on their index alone.
void for_row_ranges(std::int64_t rows, std::int64_t elements,
                    const std::function<void(std::int64_t begin, std::int64_t end)>& work);

}  // namespace attncheck::properties
