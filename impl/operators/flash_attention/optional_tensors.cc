#include "impl/operators/flash_attention/optional_tensors.h"

#include <string>

#include "impl/arguments/argument_checks.h"

namespace attncheck::impl {
namespace {

// Of a tensor whose rank may be anything.
std::string shape_text(const attncheck_tensor& tensor) {
    std::string text = "[";
    for (int d = 0; d < tensor.rank && d < ATTNCHECK_MAX_RANK; ++d) {
        text += (d == 0 ? "" : ", ") + std::to_string(tensor.shape[d]);
    }
    return text + "]";
}

// What a rope excludes; every clash is reported at query_rope, the argument that makes it one.
MaybeRejection check_rope_company(const FlashCall& call) {
    const auto clash = [](const char* with, const char* allowed) {
        return invalid("query_rope", std::string("given with ") + with, allowed);
    };
    if (call.has_bias()) return clash("a position bias", "ropes without one");
    if (call.has_dropout()) return clash("drop_mask", "ropes without one");
    if (static_cast<float>(call.keep_prob) != 1.0f) return clash("keep_prob below 1", "1");
    if (call.bias_type != 1) return clash("another pse_type", "pse_type 1");
    if (call.sparse_mode == 6) return clash("sparse_mode 6", "other modes");
    if (!call.has_mask()) return absent("atten_mask");
    return std::nullopt;
}

MaybeRejection check_rope(const FlashCall& call, const FlashExtents& e) {
    const attncheck_tensor &query = *call.query_rope, &key = *call.key_rope;
    if (query.data == nullptr) {
        if (key.data != nullptr) return absent("query_rope");
        if (!call.is_gradient()) return std::nullopt;
        if (call.query_rope_grad->data != nullptr)
            return invalid("dq_rope", "given without ropes", "absent");
        if (call.key_rope_grad->data != nullptr)
            return invalid("dk_rope", "given without ropes", "absent");
        return std::nullopt;
    }
    if (key.data == nullptr) return absent("key_rope");
    if (!e.is_packed()) return invalid("query_rope", "given", "ropes with input_layout TND only");
    if (call.query->dtype != ATTNCHECK_BFLOAT16 || query.dtype != ATTNCHECK_BFLOAT16)
        return invalid("query_rope", "not bfloat16 like query", "dtype 27 (bfloat16) of both");
    if (auto rejection = check_dtype("key_rope", key, ATTNCHECK_BFLOAT16, "query_rope"))
        return rejection;
    if (auto rejection = check_ranks({{"query_rope", &query, 3}, {"key_rope", &key, 3}}))
        return rejection;
    const std::int64_t dim = query.shape[2];
    if (dim < 8 || dim > e.head_dim || dim % 8 != 0) {
        return invalid("query_rope", "of extent Dr = " + std::to_string(dim),
                       "multiples of 8 in [8, D], D is " + std::to_string(e.head_dim));
    }
    if (auto rejection = check_shape("query_rope", query,
                                     {{"T1", e.query_len}, {"N1", e.query_heads}, {"Dr", dim}}))
        return rejection;
    if (auto rejection =
            check_shape("key_rope", key, {{"T2", e.key_len}, {"N2", e.kv_heads}, {"Dr", dim}}))
        return rejection;
    if (auto rejection = check_rope_company(call)) return rejection;
    if (!call.is_gradient()) return std::nullopt;
    if (call.query_rope_grad->data == nullptr) return absent("dq_rope");
    if (call.key_rope_grad->data == nullptr) return absent("dk_rope");
    return std::nullopt;
}

MaybeRejection check_bias(const FlashCall& call, const FlashExtents& e, const FlashLengths& l) {
    if (!call.has_bias()) {
        if (call.bias_type != 1) return absent(call.bias_name);
        return std::nullopt;
    }
    const std::int32_t dtype = call.bias_type >= 2         ? std::int32_t{ATTNCHECK_FLOAT32}
                               : is_fp8(call.query->dtype) ? call.output->dtype
                                                           : call.query->dtype;
    if (auto rejection = check_dtype(call.bias_name, *call.bias, dtype, nullptr)) return rejection;
    if (bias_form(call, e, l)) return std::nullopt;
    return invalid(call.bias_name, "of shape " + shape_text(*call.bias),
                   call.bias_type >= 2 ? "[N1] or [B, N1]"
                   : e.is_packed() ? "[N1*sum(S2)], [N1*sum(S1*S2)], [1 or B, N1, 1024, S2] or, "
                                     "with equal lengths, [1 or B, N1, 1 or S1, S2]"
                                   : "[1 or B, N1, 1 or S1 or 1024, S2]");
}

MaybeRejection check_drop_mask(const FlashCall& call, const FlashLengths& l) {
    const char* const name = "drop_mask";
    const attncheck_tensor& mask = *call.drop_mask;
    if (!call.has_dropout()) {
        if (static_cast<float>(call.keep_prob) < 1.0f) return absent(name);
        return std::nullopt;
    }
    if (auto rejection = check_dtype(name, mask, ATTNCHECK_UINT8, nullptr)) return rejection;
    if (mask.rank < 1 || mask.rank > ATTNCHECK_MAX_RANK)
        return invalid(name, "of rank " + std::to_string(mask.rank), "rank 1 to 8");
    std::int64_t count = 1;
    bool fits = true, empty = false;
    for (int d = 0; d < mask.rank; ++d) {
        const std::int64_t extent = mask.shape[d];
        if (extent < 0) return invalid(name, "of extent " + std::to_string(extent), "extents >= 0");
        empty = empty || extent == 0;
        fits = fits && !__builtin_mul_overflow(count, extent, &count);
    }
    if (empty) count = 0;
    if (!l.num_pairs || !(fits || empty))
        return invalid(name, "or N1*S1*S2 beyond 2^63 elements", "fewer");
    const std::int64_t wanted = *l.num_pairs / 8 + (*l.num_pairs % 8 != 0);
    if (count >= wanted) return std::nullopt;
    return invalid(name, "of " + std::to_string(count) + " elements",
                   "at least " + std::to_string(wanted) + ", one bit per query head and pair");
}

MaybeRejection check_mask(const FlashCall& call, const FlashExtents& e, const FlashLengths& l) {
    const char* const name = "atten_mask";
    if (!call.has_mask()) return std::nullopt;
    const attncheck_tensor& mask = *call.atten_mask;
    if (mask.dtype != ATTNCHECK_BOOL && mask.dtype != ATTNCHECK_UINT8)
        return invalid(name, "of dtype " + dtype_name(mask.dtype), "dtype 12 (bool) or 4 (uint8)");
    if (mask.rank != 2 && mask.rank != 4)
        return invalid(name, "of rank " + std::to_string(mask.rank), "rank 2 or 4");
    if (mask_form(call, e, l)) return std::nullopt;
    const bool compressed = call.sparse_mode != 0 && call.sparse_mode != 1 && call.sparse_mode != 5;
    return invalid(name, "of shape " + shape_text(mask),
                   compressed              ? "[2048, 2048], in sparse_mode 6 [3072, 2048]"
                   : call.sparse_mode == 5 ? "[B, 1 or N1, S1, S2], with B = 1 also [S1, S2]"
                   : e.is_packed() ? "[max S1, max S2], that after [1, 1], [B, 1] or [B, N1], or "
                                     "[sum S1, sum S2]"
                                   : "[S1, S2], that after [1, 1], [B, 1] or [B, N1]");
}

}  // namespace

MaybeRejection check_optional_tensors(const FlashCall& call, const FlashExtents& extents,
                                      const FlashLengths& lengths) {
    if (auto rejection = check_rope(call, extents)) return rejection;
    if (auto rejection = check_bias(call, extents, lengths)) return rejection;
    if (auto rejection = check_drop_mask(call, lengths)) return rejection;
    if (call.padding_mask->data != nullptr) return invalid("padding_mask", "given", "absent");
    return check_mask(call, extents, lengths);
}

}  // namespace attncheck::impl
