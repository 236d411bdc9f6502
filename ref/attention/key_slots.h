// Some keys of a problem, numbered for the rows of a result.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "ref/attention/dense_attention.h"

namespace attncheck::ref {

/// The keys whose dK and dV are wanted: all, or some, which are then numbered in the order given.
/// A key is its row of K and V times N2, plus head.
class KeySlots {
public:
    explicit KeySlots(std::int64_t all) : count_(all) {}
    KeySlots(std::int64_t all, std::span<const std::int64_t> chosen)
        : count_(std::ssize(chosen)), slots_(static_cast<std::size_t>(all), kNone) {
        for (std::size_t k = 0; k < chosen.size(); ++k) {
            std::int64_t& slot = slots_[static_cast<std::size_t>(chosen[k])];
            if (slot != kNone)
                throw std::invalid_argument("dense attention: key " + std::to_string(chosen[k]) +
                                            " is chosen twice");
            slot = static_cast<std::int64_t>(k);
        }
    }
    std::int64_t count() const { return count_; }
    std::int64_t of(std::int64_t key) const {
        return slots_.empty() ? key : slots_[static_cast<std::size_t>(key)];
    }
    /// Lists the columns whose key is wanted.
    ColumnLister only(const AttentionShape& shape, const ColumnLister& list_columns) const {
        if (slots_.empty()) return list_columns;
        return [this, shape, list_columns](std::int64_t t, std::int64_t n,
                                           std::vector<KeyColumn>& columns) {
            const bool in_sequence = list_columns(t, n, columns);
            std::erase_if(columns, [&](const KeyColumn& c) {
                return of(c.key * shape.kv_heads + n / shape.group()) == kNone;
            });
            return in_sequence;
        };
    }

private:
    static constexpr std::int64_t kNone = -1;
    std::int64_t count_;
    std::vector<std::int64_t> slots_;  ///< by key; empty: all, in their own order
};

}  // namespace attncheck::ref
