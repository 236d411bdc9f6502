#include "properties/case/repetition.h"

#include <algorithm>
#include <numeric>

#include "properties/case/call.h"
#include "properties/case/derived.h"
#include "properties/case/row_order.h"

namespace attncheck::properties {

Repetition::Repetition(Layout layout, const TensorField& tensor, const Extents& extents,
                       std::span<const std::int64_t> shape) {
    if (!properties::repeats(layout)) return;
    const Laid laid = laid_out(tensor, extents);
    const std::vector<std::int64_t> own(shape.begin(), shape.end());
    const std::vector<std::int64_t>& passed = own.empty() ? laid.shape : own;
    const auto strides = strides_for(layout, passed, laid.order);
    const auto offsets = offsets_of(passed, strides);
    if (offsets.empty()) return;
    std::vector<std::size_t> logical(offsets.size());  // of each element in memory order
    std::iota(logical.begin(), logical.end(), std::size_t{0});
    if (own.empty()) logical = RowOrder(tensor, extents).to_memory(logical);
    const Extent extent = extent_of(passed, strides);
    constexpr std::size_t kNone = SIZE_MAX;
    std::vector<std::size_t> at(static_cast<std::size_t>(extent.count()), kNone);
    first_.resize(offsets.size());
    for (std::size_t k = 0; k < offsets.size(); ++k) {
        std::size_t& first = at[static_cast<std::size_t>(offsets[k] - extent.lowest)];
        if (first == kNone) first = logical[k];
        first_[logical[k]] = first;
    }
}

void Repetition::fold(std::vector<std::uint32_t>& bits) const {
    if (!repeats() || bits.size() != first_.size()) return;
    // The first element of a group may have a later number than others: rows move in memory.
    const std::vector<std::uint32_t> before = bits;
    std::ranges::transform(first_, bits.begin(), [&](std::size_t k) { return before[k]; });
}

}  // namespace attncheck::properties
