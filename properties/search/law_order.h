// Which laws find most defects in the least time, as the mutation scores of the suite measured it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace attncheck::properties {

struct MeasuredLaw {
    std::string_view law;
    std::int64_t kills = 0;
    std::int64_t cases = 0;  ///< 95 of 100 kills need no more
};

/// By kills per second, most first (law_order.txt, written by tests/mutants/law_order.py).
const std::vector<MeasuredLaw>& law_order();

/// Where a law stands in the order; behind all others when it killed nothing alone.
std::size_t rank_of(std::string_view law);

}  // namespace attncheck::properties
