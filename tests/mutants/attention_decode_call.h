// A call of AttentionDecode as its defects see it: where keys lie, and which ones a query sees.
#pragma once

#include <algorithm>
#include <cstdint>

#include "active_mutant.h"
#include "element.h"

namespace attncheck::mutants {

/// 0, a status, or kNothingComputed: accepted against the contract, where no result is defined.
inline constexpr int kNothingComputed = 1;
int accept(const attncheck_attention_decode_args& args);

/// One element of a tensor, whatever its type.
class Elements {
public:
    explicit Elements(const attncheck_tensor& tensor) : tensor_(tensor) {}

    float load(std::int64_t at) const { return mutants::load(tensor_, at); }
    void store(std::int64_t at, float value) const { mutants::store(tensor_, at, value); }
    float rounded(float value) const { return mutants::rounded(tensor_, value); }
    std::int64_t offset(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l = 0) const {
        const std::int64_t* s = tensor_.strides;
        return i * s[0] + j * s[1] + k * s[2] + (l == 0 ? 0 : l * s[3]);
    }
    std::int64_t stride(int dim) const { return tensor_.strides[dim]; }
    std::int64_t extent(int dim) const { return tensor_.shape[dim]; }

private:
    const attncheck_tensor& tensor_;
};

/// One sequence of the cache.
class Sequence {
public:
    using Args = attncheck_attention_decode_args;

    Sequence(const Args& args, std::int64_t b);

    std::int64_t length() const { return length_; }

    /// Positions [begin, end).
    struct Range {
        std::int64_t begin = 0, end = 0;
    };
    /// What query i sees.
    Range seen_by(std::int64_t i) const;

    /// Offset of channel 0 of a position.
    std::int64_t key(std::int64_t position, std::int64_t head) const;
    std::int64_t value(std::int64_t position, std::int64_t head) const;
    /// True for a key that a defect passes over.
    bool is_skipped(std::int64_t position) const;

private:
    std::int64_t entry(std::int64_t column) const;
    std::int64_t page_of(std::int64_t position) const;
    std::int64_t slot_of(std::int64_t position) const;

    const Args& args_;
    std::int64_t b_, page_size_, length_;
};

}  // namespace attncheck::mutants
