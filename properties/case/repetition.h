// Which elements of an input are one in memory: the layouts with stride 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "properties/case/spec.h"

namespace attncheck::properties {

class Extents;
struct TensorField;

/// Of one tensor: every element and the one whose memory it shares, the first of them in memory
/// order. Elements are named by their row-major number in the order of their index.
class Repetition {
public:
    /// `shape`: as laid out, where that is not what the extents say.
    Repetition(Layout layout, const TensorField& tensor, const Extents& extents,
               std::span<const std::int64_t> shape = {});

    bool repeats() const { return !first_.empty(); }
    std::size_t first_of(std::size_t element) const {
        return repeats() ? first_[element] : element;
    }
    /// Every element gets the bits of the first.
    void fold(std::vector<std::uint32_t>& bits) const;

private:
    std::vector<std::size_t> first_;  ///< empty: no two elements are one
};

}  // namespace attncheck::properties
