// The cases of the golden digests and the hashes of each: what the operator makes of a case, by
// kind, so that a difference says what changed.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "properties/operators/catalogue.h"

namespace attncheck::golden {

inline constexpr int kCases = 500;  ///< drawn for each property

/// One kind of hash. Costly kinds are taken of every `step`-th case.
struct Kind {
    const char* name;
    int step;
    const char* meaning;
};

enum KindIndex { kCase, kLabels, kEdits, kArguments, kPlaces, kBuffers, kShrinks, kKinds };
extern const std::array<Kind, kKinds> kKindTable;

struct CaseHashes {
    std::string line;
    std::array<std::optional<std::uint64_t>, kKinds> hashes;
};

/// All cases of a property, in order; with `all`, every kind of every case. A property for cases of
/// full size has those too, as lines only.
std::vector<CaseHashes> hash_cases(const properties::Operator& op,
                                   const properties::Property& property, bool all);

/// One hash for each kind over these cases; none where no case has the kind.
std::array<std::optional<std::uint64_t>, kKinds> summary(const std::vector<CaseHashes>& cases);

}  // namespace attncheck::golden
