// Where the blocks of every sequence lie.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.h"

namespace attncheck::mutants {

struct Sequence {
    std::int64_t first_token = 0, length = 0;
    std::int64_t first_block = 0, blocks = 0;  ///< rows of Y
};

struct Plan {
    std::vector<Sequence> sequences;
    std::int64_t blocks = 0;
    std::int64_t end = 0;  ///< last cumulative length
};

Plan make_plan(const Problem& problem);

/// Consecutive blocks [begin, end) of worker `index` out of `workers`; the last workers may get
/// none.
struct Share {
    std::int64_t begin = 0, end = 0;
};
Share share_of(std::int64_t blocks, int index, int workers);

}  // namespace attncheck::mutants
