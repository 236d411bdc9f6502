// Where the blocks of every sequence lie, and the flat scratch memory of one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
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

/// Regions of floats, all zero at first, each starting at a multiple of one vector of 64.
class Scratch {
public:
    /// keeps_old: a defect; the memory is this thread's, and holds what the previous call left
    /// there.
    Scratch(std::initializer_list<std::size_t> sizes, bool keeps_old);
    float* region(std::size_t index) const { return base_ + offsets_[index]; }

private:
    std::vector<std::size_t> offsets_;
    std::unique_ptr<float[]> own_;
    float* base_ = nullptr;
};

/// With shared scratch switched on: lets other threads run, so that concurrent calls interleave.
void widen_race();

}  // namespace attncheck::mutants
