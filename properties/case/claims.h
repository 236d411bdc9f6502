// Claims that several descriptions have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/case/description.h"

namespace attncheck::properties {

/// Of one list.
inline constexpr std::int64_t kMostRows = 1 << 21;

/// "all.KEY" for each key, laid out.
std::vector<Claim> field_claims(const std::vector<std::string>& keys, std::int64_t largest);

/// "NAME": these fields at once, laid out. The first has the limits.
Claim joint_claim(std::string name, std::vector<std::string> keys, std::int64_t largest);

/// More batches: each list goes on with empty sequences, or with its first length where all have one.
void claim_batches(Extents& extents, std::int64_t count, bool packed);

/// "rows.LIST": the number of rows in the shapes alone. Tried: one more than there may be, and
/// numbers whose products with other extents overflow.
Claim row_claim(std::string list);

/// "long.LIST": the number of rows, all of them in the last sequence; the scalars in `kept` stay as
/// they are. Tried: a last sequence that is longer than any may be.
Claim length_claim(std::string list, std::vector<std::string> kept);

}  // namespace attncheck::properties
