// The arguments of both directions of FlashAttentionScore under one name each, and the outcome of
// the rulings on them.
#pragma once

#include <cstdint>
#include <vector>

#include "attncheck/candidate.h"
#include "flash_problem.h"

namespace attncheck::mutants {

struct FlashArguments {
    bool is_gradient = false;
    attncheck_tensor query, query_rope, key, key_rope, value, output_grad;
    attncheck_tensor pse, drop_mask, padding_mask, mask;
    attncheck_int_array prefix, query_ends, key_ends, query_start, key_start;
    double scale = 1, keep_prob = 1;
    std::int64_t pre_tokens = 0, next_tokens = 0, head_num = 0;
    std::int64_t inert = 0;  ///< the attribute without effect
    std::int64_t sparse_mode = 0, pse_type = 0;
    const char *layout = nullptr, *statistics_layout = nullptr;
    attncheck_tensor row_max, row_sum, output;
    attncheck_tensor dq, dq_rope, dk, dk_rope, dv;

    FlashLayout layout_kind() const;
    bool is_tnd() const { return layout_kind() == FlashLayout::tnd; }
    bool has_mask() const { return mask.data != nullptr; }
    bool has_rope() const { return query_rope.data != nullptr || key_rope.data != nullptr; }
    bool has_pse() const { return pse.data != nullptr; }
    bool is_fp8() const {
        return query.dtype == ATTNCHECK_FLOAT8_E5M2 || query.dtype == ATTNCHECK_FLOAT8_E4M3FN;
    }
    /// The element type of what is not fp8.
    std::int32_t wide_dtype() const { return is_fp8() ? output.dtype : query.dtype; }
};

/// Extents that follow from the shapes and the length arrays.
struct FlashExtents {
    std::int64_t query_rows = 0, key_rows = 0;  ///< S1, S2; TND: T1, T2
    std::int64_t num_query_heads = 0, num_kv_heads = 0, head_dim = 0, value_dim = 0, batches = 0;
    std::vector<std::int64_t> query_lens, kv_lens;
    std::int64_t longest_query = 0, longest_kv = 0;
};

/// Collects the outcome of the constraints: the status of the first one that is broken.
struct FlashRuling {
    int status = ATTNCHECK_OK;
    bool is_undefined = false;

    /// overlooked: a defect that accepts a call which breaks this constraint.
    void require(bool holds, bool overlooked = false, int broken = ATTNCHECK_ERR_INVALID) {
        if (holds) return;
        if (overlooked)
            is_undefined = true;
        else if (status == ATTNCHECK_OK)
            status = broken;
    }
    void require_present(bool present, bool overlooked = false) {
        require(present, overlooked, ATTNCHECK_ERR_NULLPTR);
    }
    /// A defect that rejects what is legal.
    void refuse(bool defect) { require(!defect); }
    bool is_settled() const { return status != ATTNCHECK_OK || is_undefined; }
};

/// Products of extents that are not negative, as far as int64 goes.
class Product {
public:
    Product& times(std::int64_t factor) {
        fits_ = fits_ && !__builtin_mul_overflow(value_, factor, &value_);
        return *this;
    }
    Product& plus(const Product& other) {
        fits_ = fits_ && other.fits_ && !__builtin_add_overflow(value_, other.value_, &value_);
        return *this;
    }
    explicit Product(std::int64_t first = 1) : value_(first) {}
    bool fits() const { return fits_; }
    std::int64_t value() const { return value_; }

private:
    std::int64_t value_;
    bool fits_ = true;
};

/// N1 * S1 * S2 summed over the sequences, begin to end of the whole call.
Product pair_count(const FlashExtents& extents);

void rule_on_ropes(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling);
PseForm rule_on_pse(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling);
void rule_on_drop_mask(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling);

/// True if the mask is [sum S1_b, sum S2_b].
bool rule_on_mask(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling);
void rule_on_tokens(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling);

/// pse together with the mask and the mode.
void rule_on_pse_and_mask(const FlashArguments& a, const FlashExtents& x, PseForm form,
                          FlashRuling& ruling);

bool has_flash_extents(const attncheck_tensor& tensor, const std::vector<std::int64_t>& extents);

/// Starts of mode 8 and pse: the first elements if both arrays have one.
bool has_starts(const FlashArguments& a);

/// The band sequence of modes 7 and 8, -1 without queries.
std::int64_t band_sequence(const FlashArguments& a, const FlashExtents& x);

}  // namespace attncheck::mutants
