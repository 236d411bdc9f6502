#include "impl/operators/flash_attention/validate.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "impl/arguments/argument_checks.h"
#include "impl/operators/flash_attention/optional_tensors.h"
#include "impl/operators/flash_attention/shapes.h"
#include "impl/operators/flash_attention/sparse_rules.h"

namespace attncheck::impl {
namespace {

constexpr std::int64_t kStatisticCopies = 8;

bool is_wide(std::int32_t dtype) {
    return dtype == ATTNCHECK_FLOAT16 || dtype == ATTNCHECK_BFLOAT16 || dtype == ATTNCHECK_FLOAT32;
}

bool profile_has_fp8() {
    const char* profile = std::getenv("ATTNCHECK_PROFILE");
    return profile != nullptr && std::strcmp(profile, "ascend950") == 0;
}

MaybeRejection check_same_extent(const char* name, const char* meaning, std::int64_t value,
                                 const char* other, std::int64_t wanted) {
    if (value == wanted) return std::nullopt;
    return invalid(name, std::string("of extent ") + meaning + " = " + std::to_string(value),
                   std::string(meaning) + " of " + other + ", which is " + std::to_string(wanted));
}

// The string is the caller's and may be of any length; its head identifies the mistake.
std::string quoted(const char* text) {
    constexpr std::size_t kShownChars = 24;
    const std::size_t length = strnlen(text, kShownChars + 1);
    std::string out = "\"";
    out.append(text, std::min(length, kShownChars));
    return out += length > kShownChars ? "...\"" : "\"";
}

MaybeRejection check_layouts(const FlashCall& call) {
    if (!parse_flash_layout(call.input_layout)) {
        return invalid("input_layout", quoted(call.input_layout),
                       "\"BSH\", \"SBH\", \"BSND\", \"BNSD\" or \"TND\"");
    }
    if (call.statistics_layout[0] == '\0') return std::nullopt;
    const bool same_as_input = std::strcmp(call.statistics_layout, "same_as_input") == 0;
    if (same_as_input && std::strcmp(call.input_layout, "TND") == 0) return std::nullopt;
    return invalid(call.statistics_layout_name, quoted(call.statistics_layout),
                   "\"\", with input_layout \"TND\" also \"same_as_input\"");
}

MaybeRejection check_all_ranks(const FlashCall& call) {
    const FlashLayout layout = *parse_flash_layout(call.input_layout);
    const int rank = flash_axes(layout).rank, statistics_rank = layout == FlashLayout::kTnd ? 3 : 4;
    if (auto rejection = check_ranks(
            {{"query", call.query, rank}, {"key", call.key, rank}, {"value", call.value, rank}})) {
        return rejection;
    }
    if (call.is_gradient()) {
        if (auto rejection = check_ranks({{"dy", call.output_grad, rank}})) return rejection;
    }
    if (auto rejection = check_ranks({{"softmax_max", call.softmax_max, statistics_rank},
                                      {"softmax_sum", call.softmax_sum, statistics_rank},
                                      {call.output_name, call.output, rank}})) {
        return rejection;
    }
    if (!call.is_gradient()) return std::nullopt;
    return check_ranks({{"dq", call.query_grad, rank},
                        {"dk", call.key_grad, rank},
                        {"dv", call.value_grad, rank}});
}

MaybeRejection check_all_dtypes(const FlashCall& call) {
    const std::int32_t input = call.query->dtype, output = call.output->dtype;
    const bool fp8 = call.is_gradient() && is_fp8(input) && profile_has_fp8();
    if (!is_wide(input) && !fp8) {
        return invalid("query", "of dtype " + dtype_name(input),
                       "dtype 1 (float16), 27 (bfloat16) or 0 (float32)");
    }
    if (auto rejection = check_dtype("key", *call.key, input, "query")) return rejection;
    if (auto rejection = check_dtype("value", *call.value, input, "query")) return rejection;
    if (call.is_gradient()) {
        if (auto rejection = check_dtype("dy", *call.output_grad, input, "query")) return rejection;
    }
    for (const auto& [name, tensor] :
         {std::pair{"softmax_max", call.softmax_max}, std::pair{"softmax_sum", call.softmax_sum}}) {
        if (auto rejection = check_dtype(name, *tensor, ATTNCHECK_FLOAT32, nullptr))
            return rejection;
    }
    if (fp8 && !is_wide(output)) {
        return invalid(call.output_name, "of dtype " + dtype_name(output),
                       "dtype 1 (float16), 27 (bfloat16) or 0 (float32)");
    }
    if (!fp8) {
        if (auto rejection = check_dtype(call.output_name, *call.output, input, "query"))
            return rejection;
    }
    if (!call.is_gradient()) return std::nullopt;
    const char* of = fp8 ? "attention_in" : "query";
    if (auto rejection = check_dtype("dq", *call.query_grad, output, of)) return rejection;
    if (auto rejection = check_dtype("dk", *call.key_grad, output, of)) return rejection;
    return check_dtype("dv", *call.value_grad, output, of);
}

MaybeRejection check_attributes(const FlashCall& call) {
    const float keep_prob = static_cast<float>(call.keep_prob);
    if (!(keep_prob > 0.0f && keep_prob <= 1.0f))
        return invalid("keep_prob", std::to_string(call.keep_prob), "(0, 1] in float32");
    if (auto rejection = check_range("head_num", call.head_num, 1, kMaxFlashHeads))
        return rejection;
    const std::int64_t mode = call.sparse_mode;
    if (auto rejection = check_range("sparse_mode", mode, 0, 8)) return rejection;
    const bool packed = *parse_flash_layout(call.input_layout) == FlashLayout::kTnd;
    if (!packed && mode >= 7)
        return invalid("sparse_mode", std::to_string(mode), "0 to 6 unless input_layout is TND");
    if (packed && mode == 5)
        return invalid("sparse_mode", "5", "0 to 4 and 6 to 8 with input_layout TND");
    return check_range("pse_type", call.bias_type, 0, 3);
}

MaybeRejection check_query(const FlashCall& call, const FlashAxes& axes) {
    const attncheck_tensor& query = *call.query;
    const std::int64_t channels = query.shape[axes.channel];
    if (axes.batch >= 0) {
        if (auto rejection = check_extent("query", "B", query.shape[axes.batch], 0, kMaxFlashBatch))
            return rejection;
    }
    if (auto rejection = check_extent("query", "S1", query.shape[axes.position], 0, kMaxFlashLen))
        return rejection;
    if (axes.head >= 0) {
        if (query.shape[axes.head] != call.head_num) {
            return invalid("head_num", std::to_string(call.head_num),
                           "N1 of query, which is " + std::to_string(query.shape[axes.head]));
        }
        return check_extent("query", "D", channels, 1, kMaxFlashDim);
    }
    if (channels <= 0 || channels % call.head_num != 0) {
        return invalid("query", "of extent H = " + std::to_string(channels),
                       "positive multiples of head_num, which is " + std::to_string(call.head_num));
    }
    return check_extent("query", "D", channels / call.head_num, 1, kMaxFlashDim);
}

// Batch and number of rows of key and value.
MaybeRejection check_rows(const char* name, const attncheck_tensor& tensor, const FlashAxes& axes,
                          const char* other, std::int64_t batch, std::int64_t rows) {
    if (axes.batch >= 0) {
        if (auto rejection = check_same_extent(name, "B", tensor.shape[axes.batch], "query", batch))
            return rejection;
    }
    return check_same_extent(name, "S2", tensor.shape[axes.position], other, rows);
}

MaybeRejection check_key(const FlashCall& call, const FlashAxes& axes) {
    const attncheck_tensor &query = *call.query, &key = *call.key;
    const std::int64_t batch = axes.batch < 0 ? 0 : query.shape[axes.batch],
                       rows = key.shape[axes.position], channels = key.shape[axes.channel];
    if (auto rejection = check_rows("key", key, axes, "key", batch, rows)) return rejection;
    if (auto rejection = check_extent("key", "S2", rows, 0, kMaxFlashLen)) return rejection;
    std::int64_t kv_heads = 0;
    if (axes.head < 0) {
        const std::int64_t head_dim = query.shape[axes.channel] / call.head_num;
        if (channels <= 0 || channels % head_dim != 0) {
            return invalid("key", "of extent H = " + std::to_string(channels),
                           "positive multiples of D, which is " + std::to_string(head_dim));
        }
        kv_heads = channels / head_dim;
    } else {
        if (auto rejection =
                check_same_extent("key", "D", channels, "query", query.shape[axes.channel]))
            return rejection;
        kv_heads = key.shape[axes.head];
    }
    if (kv_heads >= 1 && call.head_num % kv_heads == 0) return std::nullopt;
    return invalid("key", "of extent N2 = " + std::to_string(kv_heads),
                   "divisors of N1, which is " + std::to_string(call.head_num));
}

MaybeRejection check_value(const FlashCall& call, const FlashAxes& axes) {
    const attncheck_tensor &query = *call.query, &key = *call.key, &value = *call.value;
    const std::int64_t batch = axes.batch < 0 ? 0 : query.shape[axes.batch],
                       channels = value.shape[axes.channel];
    if (auto rejection = check_rows("value", value, axes, "key", batch, key.shape[axes.position]))
        return rejection;
    if (axes.head >= 0) {
        if (auto rejection = check_same_extent("value", "N2", value.shape[axes.head], "key",
                                               key.shape[axes.head]))
            return rejection;
        return check_extent("value", "Dv", channels, 1, query.shape[axes.channel]);
    }
    const std::int64_t head_dim = query.shape[axes.channel] / call.head_num,
                       kv_heads = key.shape[axes.channel] / head_dim;
    if (channels <= 0 || channels % kv_heads != 0) {
        return invalid("value", "of extent H = " + std::to_string(channels),
                       "positive multiples of N2, which is " + std::to_string(kv_heads));
    }
    return check_extent("value", "Dv", channels / kv_heads, 1, head_dim);
}

// `tensor` against `model`, whose channels hold `model_dim` per head, with `dim` of them instead.
MaybeRejection check_like(const char* name, const attncheck_tensor& tensor, const char* model_name,
                          const attncheck_tensor& model, const FlashAxes& axes,
                          std::int64_t model_dim, std::int64_t dim) {
    for (int d = 0; d < axes.rank; ++d) {
        const std::int64_t extent = model.shape[d],
                           wanted = d == axes.channel ? extent / model_dim * dim : extent;
        if (tensor.shape[d] == wanted) continue;
        return invalid(
            name,
            "of extent " + std::to_string(tensor.shape[d]) + " in dimension " + std::to_string(d),
            std::to_string(wanted) + ", from the shape of " + model_name);
    }
    return std::nullopt;
}

MaybeRejection check_statistics(const FlashCall& call, const FlashExtents& e) {
    for (const auto& [name, tensor] :
         {std::pair{"softmax_max", call.softmax_max}, std::pair{"softmax_sum", call.softmax_sum}}) {
        const Extent copies{"8", kStatisticCopies}, heads{"N1", e.query_heads};
        auto rejection =
            e.is_packed()
                ? check_shape(name, *tensor, {{"T1", e.query_len}, heads, copies})
                : check_shape(name, *tensor, {{"B", e.batch}, heads, {"S1", e.query_len}, copies});
        if (rejection) return rejection;
    }
    return std::nullopt;
}

MaybeRejection check_input_shapes(const FlashCall& call) {
    const FlashAxes axes = flash_axes(*parse_flash_layout(call.input_layout));
    if (auto rejection = check_query(call, axes)) return rejection;
    if (auto rejection = check_key(call, axes)) return rejection;
    if (auto rejection = check_value(call, axes)) return rejection;
    if (!call.is_gradient()) return std::nullopt;
    const FlashExtents e = flash_extents(call);
    if (auto rejection = check_like("dy", *call.output_grad, "query", *call.query, axes, e.head_dim,
                                    e.value_dim))
        return rejection;
    if (auto rejection = check_statistics(call, e)) return rejection;
    return check_like(call.output_name, *call.output, "query", *call.query, axes, e.head_dim,
                      e.value_dim);
}

MaybeRejection check_lengths(const char* name, const attncheck_int_array& ends,
                             std::int64_t num_tokens, const attncheck_int_array* other) {
    if (ends.values == nullptr) return absent(name);
    if (ends.size < 1 || ends.size > kMaxFlashBatch)
        return invalid(name, "of size " + std::to_string(ends.size), "size in [1, 2097152]");
    if (other != nullptr && ends.size != other->size) {
        return invalid(name, "of size " + std::to_string(ends.size),
                       "the size of actual_seq_q_len, which is " + std::to_string(other->size));
    }
    std::int64_t previous = 0;
    for (std::int64_t b = 0; b < ends.size; ++b) {
        if (ends.values[b] < previous) {
            return invalid(
                name, element_text(ends.values[b], b),
                "non-negative and non-decreasing values, at least " + std::to_string(previous));
        }
        previous = ends.values[b];
    }
    if (previous <= num_tokens) return std::nullopt;
    return invalid(
        name, element_text(previous, ends.size - 1),
        "a last value of at most the number of tokens, which is " + std::to_string(num_tokens));
}

MaybeRejection check_all_lengths(const FlashCall& call) {
    if (*parse_flash_layout(call.input_layout) != FlashLayout::kTnd) return std::nullopt;
    if (auto rejection =
            check_lengths("actual_seq_q_len", *call.query_ends, call.query->shape[0], nullptr))
        return rejection;
    return check_lengths("actual_seq_kv_len", *call.key_ends, call.key->shape[0], call.query_ends);
}

MaybeRejection check_options(const FlashCall& call) {
    const FlashExtents e = flash_extents(call);
    const FlashLengths l = flash_lengths(call, e);
    if (auto rejection = check_optional_tensors(call, e, l)) return rejection;
    return check_sparse_rules(call, e, l);
}

// A gradient of `of`: its rank and dtype are checked here only where no earlier step did.
MaybeRejection check_rope_grad(const char* name, const attncheck_tensor& grad, const char* of,
                               const attncheck_tensor& rope) {
    if (auto rejection = check_ranks({{name, &grad, 3}})) return rejection;
    if (auto rejection = check_dtype(name, grad, rope.dtype, of)) return rejection;
    return check_shape(name, grad,
                       {{"T", rope.shape[0]}, {"N", rope.shape[1]}, {"Dr", rope.shape[2]}});
}

MaybeRejection check_output_shapes(const FlashCall& call) {
    const FlashExtents e = flash_extents(call);
    const FlashAxes axes = flash_axes(e.layout);
    if (!call.is_gradient()) {
        if (auto rejection = check_statistics(call, e)) return rejection;
        return check_like(call.output_name, *call.output, "query", *call.query, axes, e.head_dim,
                          e.value_dim);
    }
    if (auto rejection = check_like("dq", *call.query_grad, "query", *call.query, axes, 1, 1))
        return rejection;
    if (call.has_rope()) {
        if (auto rejection =
                check_rope_grad("dq_rope", *call.query_rope_grad, "query_rope", *call.query_rope))
            return rejection;
    }
    if (auto rejection = check_like("dk", *call.key_grad, "key", *call.key, axes, 1, 1))
        return rejection;
    if (call.has_rope()) {
        if (auto rejection =
                check_rope_grad("dk_rope", *call.key_rope_grad, "key_rope", *call.key_rope))
            return rejection;
    }
    return check_like("dv", *call.value_grad, "value", *call.value, axes, 1, 1);
}

// Everything after the absent arguments, which the two structs order differently.
MaybeRejection check_call(const FlashCall& call) {
    if (auto rejection = check_layouts(call)) return rejection;
    if (auto rejection = check_all_ranks(call)) return rejection;
    if (auto rejection = check_all_dtypes(call)) return rejection;
    if (auto rejection = check_attributes(call)) return rejection;
    if (auto rejection = check_input_shapes(call)) return rejection;
    if (auto rejection = check_all_lengths(call)) return rejection;
    if (auto rejection = check_options(call)) return rejection;
    return check_output_shapes(call);
}

}  // namespace

std::optional<Rejection> validate_flash_attention_score(
    const attncheck_flash_attention_score_args* args) {
    if (args == nullptr) return absent("args");
    const attncheck_flash_attention_score_args& a = *args;
    if (a.query.data == nullptr) return absent("query");
    if (a.key.data == nullptr) return absent("key");
    if (a.value.data == nullptr) return absent("value");
    if (a.input_layout == nullptr) return absent("input_layout");
    if (a.softmax_out_layout == nullptr) return absent("softmax_out_layout");
    if (a.softmax_max.data == nullptr) return absent("softmax_max");
    if (a.softmax_sum.data == nullptr) return absent("softmax_sum");
    if (a.attention_out.data == nullptr) return absent("attention_out");
    return check_call(flash_call(a));
}

std::optional<Rejection> validate_flash_attention_score_grad(
    const attncheck_flash_attention_score_grad_args* args) {
    if (args == nullptr) return absent("args");
    const attncheck_flash_attention_score_grad_args& a = *args;
    if (a.query.data == nullptr) return absent("query");
    if (a.key.data == nullptr) return absent("key");
    if (a.value.data == nullptr) return absent("value");
    if (a.dy.data == nullptr) return absent("dy");
    if (a.softmax_max.data == nullptr) return absent("softmax_max");
    if (a.softmax_sum.data == nullptr) return absent("softmax_sum");
    if (a.attention_in.data == nullptr) return absent("attention_in");
    if (a.input_layout == nullptr) return absent("input_layout");
    if (a.softmax_in_layout == nullptr) return absent("softmax_in_layout");
    if (a.dq.data == nullptr) return absent("dq");
    if (a.dk.data == nullptr) return absent("dk");
    if (a.dv.data == nullptr) return absent("dv");
    return check_call(flash_call(a));
}

}  // namespace attncheck::impl
