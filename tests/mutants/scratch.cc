#include "scratch.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace attncheck::mutants {

namespace {

constexpr std::size_t kVector = 64;

/// Offset of what follows a region of `size` floats at `offset`.
std::size_t next_offset(std::size_t offset, std::size_t size, bool overlaps) {
    if (overlaps) return (offset + size) / kVector * kVector;
    return (offset + size + kVector - 1) / kVector * kVector;
}

constexpr std::size_t kSharedFloats = std::size_t{1} << 20;
float shared_scratch[kSharedFloats];

}  // namespace

Scratch::Scratch(std::initializer_list<std::size_t> sizes, ScratchDefects defects) {
    std::size_t offset = 0, total = 0;
    for (const std::size_t size : sizes) {
        offsets_.push_back(offset);
        total = std::max(total, offset + size);
        offset = next_offset(offset, size, defects.overlaps);
    }
    if (defects.keeps_old) {
        thread_local std::vector<float> kept;
        if (kept.size() < total) kept.resize(total);
        base_ = kept.data();
    } else if (defects.is_shared && total <= kSharedFloats) {
        base_ = shared_scratch;
        std::fill_n(base_, total, 0.0f);
    } else if (defects.is_fresh) {
        own_ = std::make_unique_for_overwrite<float[]>(total);
        base_ = own_.get();
    } else {
        own_ = std::make_unique<float[]>(total);
        base_ = own_.get();
    }
}

void widen_race(bool is_shared) {
    if (is_shared) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

}  // namespace attncheck::mutants
