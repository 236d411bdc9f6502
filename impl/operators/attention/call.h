#ifndef ATTNCHECK_IMPL_ATTENTION_CALL_H
#define ATTNCHECK_IMPL_ATTENTION_CALL_H

#include <cstdint>

#include "attncheck/candidate.h"
#include "impl/operators/flash_attention/shapes.h"

/// Both directions' arguments of Attention under one set of names, and what they say about extents.
///
/// Legend   B batch, Hq and Hkv query and kv heads, Sq and Skv lengths (T and Tkv packed), D and Dv
///          head dims. In the packed form "batch" means a sequence.
namespace attncheck::impl {

/// Pointers into the caller's struct; those of tensors that a direction does not have are null.
struct AttentionCall {
    const attncheck_tensor *query, *key, *value, *bias, *mask, *sink, *output, *lse;
    const attncheck_tensor *output_grad, *query_grad, *key_grad, *value_grad, *bias_grad, *sink_grad;
    const attncheck_int_array *query_starts, *key_starts, *kv_length;
    double scale, softcap;
    std::int64_t window_left, window_right, align;

    bool is_gradient() const { return query_grad != nullptr; }
    bool is_packed() const { return query_starts->values != nullptr; }
    bool has_bias() const { return bias->data != nullptr; }
    bool has_mask() const { return mask->data != nullptr; }
    bool has_sink() const { return sink->data != nullptr; }
    bool has_lse() const { return lse->data != nullptr; }
};

AttentionCall attention_call(const attncheck_attention_args& args);
AttentionCall attention_call(const attncheck_attention_grad_args& args);

/// In the words of the passes: layout BSND or TND.
FlashExtents attention_extents(const AttentionCall& call);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_ATTENTION_CALL_H
