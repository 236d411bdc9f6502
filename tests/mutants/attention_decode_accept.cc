// The ruling on a call of AttentionDecode. Any status but 0 and -1 is a rejection.
#include <cmath>

#include "attention_decode_call.h"
#include "ruling.h"

namespace attncheck::mutants {

namespace {

using Args = attncheck_attention_decode_args;

void rule_on_types(const Args& a, Ruling& ruling) {
    ruling.require(a.query.rank == 4 && a.key_cache.rank == 4 && a.value_cache.rank == 4);
    ruling.require(a.block_table.rank == 2 && a.out.rank == 4);
    ruling.require(!a.sink.data || (a.sink.rank == 1 && a.sink.dtype == ATTNCHECK_FLOAT32));
    ruling.require(!a.lse.data || (a.lse.rank == 3 && a.lse.dtype == ATTNCHECK_FLOAT32));
    const std::int32_t dtype = a.query.dtype;
    ruling.require(is_half_type(dtype) || dtype == ATTNCHECK_FLOAT32);
    ruling.require(a.key_cache.dtype == dtype && a.value_cache.dtype == dtype &&
                   a.out.dtype == dtype);
    ruling.require(a.block_table.dtype == ATTNCHECK_INT32, on<"AD-VAL-01">());
}

void rule_on_numbers(const Args& a, Ruling& ruling) {
    ruling.require(std::isfinite(static_cast<float>(a.scale)));
    ruling.require(std::isfinite(static_cast<float>(a.softcap)),
                   on<"AD-VAL-07">() && std::isnan(a.softcap));
    ruling.require(!(a.softcap < 0));
    ruling.require(a.window_left >= -1, on<"AD-VAL-06">());
}

void rule_on_shapes(const Args& a, Ruling& ruling) {
    const std::int64_t batch = a.query.shape[0], queries = a.query.shape[1],
                       heads = a.query.shape[2], dim = a.query.shape[3],
                       pages = a.key_cache.shape[0], page_size = a.key_cache.shape[1],
                       kv_heads = a.key_cache.shape[2], value_dim = a.value_cache.shape[3],
                       most = a.block_table.shape[1];
    ruling.require(batch >= 0 && pages >= 0 && most >= 0);
    ruling.require(in(queries, 1, 16) && in(page_size, 1, 256));
    ruling.require(heads >= 1 && kv_heads >= 1 && dim >= 1 && value_dim >= 1);
    if (ruling.is_settled()) return;
    ruling.require(heads % kv_heads == 0, on<"AD-VAL-05">());
    ruling.require(has_extents(a.key_cache, {pages, page_size, kv_heads, dim}));
    ruling.require(has_extents(a.value_cache, {pages, page_size, kv_heads, value_dim}));
    ruling.require(has_extents(a.block_table, {batch, most}));
    ruling.require(has_extents(a.out, {batch, queries, heads, value_dim}));
    ruling.require(!a.lse.data || has_extents(a.lse, {batch, heads, queries}), on<"AD-VAL-02">());
    ruling.require(!a.sink.data || has_extents(a.sink, {heads}));
    ruling.require(a.kv_length.size == batch);
    for (std::int64_t b = 0; b < batch && !ruling.is_settled(); ++b) {
        const std::int64_t length = a.kv_length.values[b];
        ruling.require(length >= 0, on<"AD-VAL-04">());
        ruling.require(length <= 0 || (length - 1) / page_size < most, on<"AD-VAL-03">());
        ruling.refuse(on<"AD-VAL-08">() && length > 0 && length % page_size == 0 &&
                      length / page_size == most);
    }
}

}  // namespace

int accept(const Args& a) {
    for (const attncheck_tensor* required :
         {&a.query, &a.key_cache, &a.value_cache, &a.block_table, &a.out})
        if (!required->data) return ATTNCHECK_ERR_NULLPTR;
    if (!a.kv_length.values) return ATTNCHECK_ERR_NULLPTR;
    Ruling ruling;
    rule_on_types(a, ruling);
    rule_on_numbers(a, ruling);
    if (!ruling.is_settled()) rule_on_shapes(a, ruling);
    if (!ruling.is_legal) return ATTNCHECK_ERR_INVALID;
    return ruling.is_undefined ? kNothingComputed : int{ATTNCHECK_OK};
}

}  // namespace attncheck::mutants
