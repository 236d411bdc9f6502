// Which rows of a tensor too large for a whole reference are compared, and what may be missed.
//
// A row is a (token, head), its number is token * heads + head. Boundaries, where kernels break,
// are always compared; the others are drawn at random without replacement, so that the chance to
// miss a defect of a given extent is an exact number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attncheck::properties {

/// Random rows, and random keys, of a case of full size unless asked otherwise.
inline constexpr std::int64_t kSampledRows = 512;

struct RowSample {
    std::vector<std::int64_t> numbers;  ///< ascending, distinct: drawn and boundary rows
    std::int64_t population = 0, drawn = 0, boundary = 0;
};

/// Sequences of these lengths follow each other; rows up to total_rows belong to none.
///
/// Boundary rows: the first and last row of every sequence and of what is beyond; of the longest
/// four sequences also rows 1 and the last but one, both sides of every power of two from 16 on,
/// and both sides of the last edge of tiles of 16, 32, 64, 128 and 256 rows. The first and last
/// row of the longest four get every head (up to 16), the others one each.
RowSample sample_rows(const std::vector<std::int64_t>& lengths, std::int64_t total_rows,
                      std::int64_t heads, std::int64_t count, std::uint64_t seed);

/// Chance that none of `drawn` of `population` rows, all different, is one of the `defective`:
///
///   C(population - defective, drawn) / C(population, drawn)
double miss_probability(std::int64_t population, std::int64_t defective, std::int64_t drawn);

/// "keys sampled 573 of 524288 (512 random, 61 boundary): a defect in 1 % of them is missed with
/// probability 0.0058, in one tile of 64 with 0.94"; `what` is "rows" or "keys".
std::string describe(const RowSample& sample, const std::string& what);

}  // namespace attncheck::properties
