#include "impl/operators/attention_decode/validate.h"

#include <cmath>
#include <limits>
#include <string>

#include "impl/arguments/argument_checks.h"

namespace attncheck::impl {
namespace {

constexpr std::int64_t kLargestExtent = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMaxQueries = 16, kMaxPageSize = 256;

MaybeRejection check_presence(const attncheck_attention_decode_args& a) {
    if (a.query.data == nullptr) return absent("query");
    if (a.key_cache.data == nullptr) return absent("key_cache");
    if (a.value_cache.data == nullptr) return absent("value_cache");
    if (a.block_table.data == nullptr) return absent("block_table");
    if (a.kv_length.values == nullptr) return absent("kv_length");
    if (a.out.data == nullptr) return absent("out");
    return std::nullopt;
}

MaybeRejection check_ranks_and_dtypes(const attncheck_attention_decode_args& a) {
    if (auto rejection = check_ranks({{"query", &a.query, 4}, {"key_cache", &a.key_cache, 4},
                                      {"value_cache", &a.value_cache, 4},
                                      {"block_table", &a.block_table, 2}, {"out", &a.out, 4}}))
        return rejection;
    if (a.sink.data != nullptr) {
        if (auto rejection = check_ranks({{"sink", &a.sink, 1}})) return rejection;
        if (auto rejection = check_dtype("sink", a.sink, ATTNCHECK_FLOAT32, nullptr))
            return rejection;
    }
    if (a.lse.data != nullptr) {
        if (auto rejection = check_ranks({{"lse", &a.lse, 3}})) return rejection;
        if (auto rejection = check_dtype("lse", a.lse, ATTNCHECK_FLOAT32, nullptr))
            return rejection;
    }
    const std::int32_t dtype = a.query.dtype;
    if (dtype != ATTNCHECK_FLOAT16 && dtype != ATTNCHECK_BFLOAT16 && dtype != ATTNCHECK_FLOAT32)
        return invalid("query", "of dtype " + dtype_name(dtype), "fp16, bf16 or fp32");
    if (auto rejection = check_dtype("key_cache", a.key_cache, dtype, "query")) return rejection;
    if (auto rejection = check_dtype("value_cache", a.value_cache, dtype, "query"))
        return rejection;
    if (auto rejection = check_dtype("out", a.out, dtype, "query")) return rejection;
    return check_dtype("block_table", a.block_table, ATTNCHECK_INT32, nullptr);
}

MaybeRejection check_numbers(const attncheck_attention_decode_args& a) {
    if (auto rejection = check_scale("scale", a.scale)) return rejection;
    if (auto rejection = check_scale("softcap", a.softcap)) return rejection;
    if (a.softcap < 0) return invalid("softcap", std::to_string(a.softcap), "0 or a positive value");
    return check_range("window_left", a.window_left, -1, kLargestExtent);
}

MaybeRejection check_shapes(const attncheck_attention_decode_args& a) {
    const Extent batch{"B", a.query.shape[0]}, queries{"Sq", a.query.shape[1]},
        heads{"Hq", a.query.shape[2]}, dim{"D", a.query.shape[3]},
        pages{"pages", a.key_cache.shape[0]}, page_size{"page_size", a.key_cache.shape[1]},
        kv_heads{"Hkv", a.key_cache.shape[2]}, value_dim{"Dv", a.value_cache.shape[3]},
        max_pages{"max_pages", a.block_table.shape[1]};
    struct Limit {
        const char* parameter;
        Extent extent;
        std::int64_t least, most;
    };
    for (const Limit& limit :
         {Limit{"query", batch, 0, kLargestExtent}, {"query", queries, 1, kMaxQueries},
          {"query", heads, 1, kLargestExtent}, {"query", dim, 1, kLargestExtent},
          {"key_cache", pages, 0, kLargestExtent}, {"key_cache", page_size, 1, kMaxPageSize},
          {"key_cache", kv_heads, 1, kLargestExtent}, {"value_cache", value_dim, 1, kLargestExtent},
          {"block_table", max_pages, 0, kLargestExtent}})
        if (auto rejection = check_extent(limit.parameter, limit.extent.meaning,
                                          limit.extent.value, limit.least, limit.most))
            return rejection;
    if (heads.value % kv_heads.value != 0)
        return invalid("query", "of extent Hq = " + std::to_string(heads.value),
                       "a multiple of Hkv = " + std::to_string(kv_heads.value));
    if (auto rejection =
            check_shape("key_cache", a.key_cache, {pages, page_size, kv_heads, dim}))
        return rejection;
    if (auto rejection =
            check_shape("value_cache", a.value_cache, {pages, page_size, kv_heads, value_dim}))
        return rejection;
    if (auto rejection = check_shape("block_table", a.block_table, {batch, max_pages}))
        return rejection;
    if (auto rejection = check_shape("out", a.out, {batch, queries, heads, value_dim}))
        return rejection;
    if (a.lse.data != nullptr)
        if (auto rejection = check_shape("lse", a.lse, {batch, heads, queries})) return rejection;
    if (a.sink.data != nullptr) return check_shape("sink", a.sink, {heads});
    return std::nullopt;
}

/// Whole pages are compared: max_pages * page_size may overflow.
MaybeRejection check_kv_length(const attncheck_attention_decode_args& a) {
    if (a.kv_length.size != a.query.shape[0])
        return invalid("kv_length", "of size " + std::to_string(a.kv_length.size),
                       "B = " + std::to_string(a.query.shape[0]));
    const std::int64_t page_size = a.key_cache.shape[1];
    for (std::int64_t b = 0; b < a.kv_length.size; ++b) {
        const std::int64_t length = a.kv_length.values[b];
        if (length < 0 || (length > 0 && (length - 1) / page_size >= a.block_table.shape[1]))
            return invalid("kv_length", element_text(length, b), "0 to max_pages * page_size");
    }
    return std::nullopt;
}

}  // namespace

MaybeRejection validate_attention_decode(const attncheck_attention_decode_args* args) {
    if (args == nullptr) return absent("args");
    for (const auto check : {check_presence, check_ranks_and_dtypes, check_numbers, check_shapes,
                             check_kv_length})
        if (auto rejection = check(*args)) return rejection;
    return std::nullopt;
}

}  // namespace attncheck::impl
