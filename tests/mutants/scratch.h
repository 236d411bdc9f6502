// The flat scratch memory of one call.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <vector>

namespace attncheck::mutants {

struct ScratchDefects {
    bool keeps_old = false;  ///< the memory is this thread's, and holds what the last call left
    bool is_shared = false;  ///< the memory is every thread's
    bool overlaps = false;   ///< region starts are rounded down instead of up
    bool is_fresh = false;   ///< the memory is as the heap gives it
};

/// Regions of floats, all zero at first, each starting at a multiple of one vector of 64.
class Scratch {
public:
    Scratch(std::initializer_list<std::size_t> sizes, ScratchDefects defects);
    float* region(std::size_t index) const { return base_ + offsets_[index]; }

private:
    std::vector<std::size_t> offsets_;
    std::unique_ptr<float[]> own_;
    float* base_ = nullptr;
};

/// Lets other threads run when the scratch is shared, so that concurrent calls interleave.
void widen_race(bool is_shared);

}  // namespace attncheck::mutants
