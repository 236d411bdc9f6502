// Legal calls of every operator in the terms of candidate.h, with as many optional arguments as one
// call can have and attributes that all differ, so that two that are interchanged show.
#ifndef ATTNCHECK_TESTS_ACLNN_OPERATORS_PROBLEM_H
#define ATTNCHECK_TESTS_ACLNN_OPERATORS_PROBLEM_H

#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "attncheck/candidate.h"
#include "properties/case/inert_attribute.h"

namespace attncheck::aclnn {

using Shape = std::vector<std::int64_t>;

using properties::kInertMember;

inline std::int64_t count_of(const attncheck_tensor& tensor) {
    std::int64_t count = 1;
    for (int dim = 0; dim < tensor.rank; ++dim) count *= tensor.shape[dim];
    return count;
}

inline std::int64_t size_of(std::int32_t dtype) {
    switch (dtype) {
        case ATTNCHECK_FLOAT32:
        case ATTNCHECK_INT32:
            return 4;
        case ATTNCHECK_FLOAT16:
        case ATTNCHECK_BFLOAT16:
            return 2;
        case ATTNCHECK_INT64:
            return 8;
        default:
            return 1;
    }
}

/// Memory that a call points into.
class Storage {
public:
    std::uint8_t* bytes(std::int64_t count, std::uint8_t fill) {
        blocks_.emplace_back(static_cast<std::size_t>((count + 7) / 8 + 1), 0);
        std::memset(blocks_.back().data(), fill, blocks_.back().size() * 8);
        return reinterpret_cast<std::uint8_t*>(blocks_.back().data());
    }
    attncheck_tensor tensor(const Shape& shape, std::int32_t dtype, std::uint8_t fill = 0);
    /// Sixteenths between -1 and 1, which every floating type has.
    attncheck_tensor numbers(const Shape& shape, std::int32_t dtype);
    attncheck_tensor marks(const Shape& shape, std::int32_t dtype);  ///< one in five is set
    attncheck_tensor random_bytes(const Shape& shape);
    attncheck_tensor integers(const Shape& shape, std::int32_t end);  ///< below `end`
    attncheck_tensor positive(const Shape& shape);                    ///< float32 in [1, 2]
    attncheck_int_array array(std::vector<std::int64_t> values) {
        arrays_.push_back(std::move(values));
        return {arrays_.back().data(), static_cast<std::int64_t>(arrays_.back().size())};
    }

private:
    std::mt19937 random_{20};
    std::deque<std::vector<std::uint64_t>> blocks_;
    std::deque<std::vector<std::int64_t>> arrays_;
};

template <class Args>
struct Problem {
    Storage storage;
    Args args{};
};

/// What a variant of flash attention has beyond the first.
struct FlashOptions {
    bool packed = false, rope = false, chosen_bias = false, same_as_input = false;
    std::int32_t dtype = ATTNCHECK_FLOAT16;
};

void fill(Problem<attncheck_nsa_compress_args>& problem);
void fill(Problem<attncheck_nsa_compress_grad_args>& problem);
void fill(Problem<attncheck_nsa_selected_attention_args>& problem);
void fill(Problem<attncheck_nsa_selected_attention_grad_args>& problem);
void fill(Problem<attncheck_nsa_compress_attention_args>& problem);
void fill(Problem<attncheck_flash_attention_score_args>& problem, const FlashOptions& options);
void fill(Problem<attncheck_flash_attention_score_grad_args>& problem, const FlashOptions& options);

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_TESTS_ACLNN_OPERATORS_PROBLEM_H
