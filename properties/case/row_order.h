// Rows of a tensor that is indexed [row, head, channel] or [row, head]: from that order to the one in memory, and
// back. In each sequence the way is affine, so it costs little however many rows there are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "properties/case/description.h"

namespace attncheck::properties {

class RowOrder {
public:
    /// Of a tensor that has no rows of sequences, or lies in the order of its index, nothing moves.
    RowOrder(const TensorField& tensor, const Extents& extents);

    bool moves() const { return !sequences_.empty(); }
    /// Number of a row (row * heads + head) among the rows in memory.
    std::int64_t operator()(std::int64_t number) const;

    template <class T>
    std::vector<T> to_memory(const std::vector<T>& values) const {
        return moved(values, true);
    }
    template <class T>
    std::vector<T> from_memory(const std::vector<T>& values) const {
        return moved(values, false);
    }

private:
    /// Rows up to `end` of one sequence.
    struct Sequence {
        std::int64_t begin = 0, end = 0;
        std::int64_t first = 0, row_step = 0, head_step = 0;  ///< in memory
    };

    template <class T>
    std::vector<T> moved(const std::vector<T>& values, bool to) const {
        if (!moves() || values.empty()) return values;
        std::vector<T> out(values.size());
        for (std::int64_t row = 0; (row + 1) * width_ <= std::ssize(values); ++row) {
            const std::int64_t there = (*this)(row);
            std::copy_n(values.begin() + (to ? row : there) * width_, width_,
                        out.begin() + (to ? there : row) * width_);
        }
        return out;
    }

    std::int64_t heads_ = 1, width_ = 1;
    std::vector<Sequence> sequences_;  ///< those with rows; empty: nothing moves
};

}  // namespace attncheck::properties
