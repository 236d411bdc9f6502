#include "impl/operators/attention/validate.h"

#include <string>
#include <utility>

#include "impl/arguments/argument_checks.h"
#include "impl/operators/attention/call.h"

namespace attncheck::impl {
namespace {

/// The checks of one call; the first that fails is kept and the others do nothing.
class AttentionChecks {
public:
    explicit AttentionChecks(const AttentionCall& call) : call_(call) {}

    MaybeRejection run() {
        require("query", *call_.query), require("key", *call_.key), require("value", *call_.value);
        require("out", *call_.output);
        form();
        if (!failed()) inputs();
        if (!failed()) attributes();
        if (!failed()) extents();
        if (!failed()) arrays();
        if (!failed()) pair_tensor("bias", *call_.bias);
        if (!failed()) pair_tensor("mask", *call_.mask);
        if (!failed()) statistics();
        if (!failed() && call_.is_gradient()) gradients();
        return rejection_;
    }

private:
    bool failed() const { return rejection_.has_value(); }
    void keep(MaybeRejection rejection) {
        if (!failed()) rejection_ = std::move(rejection);
    }
    void require(const char* name, const attncheck_tensor& tensor) {
        if (tensor.data == nullptr) keep(absent(name));
    }
    static bool is_given(const attncheck_int_array& array) {
        return array.values != nullptr || array.size != 0;
    }
    static std::string text(std::int64_t value) { return std::to_string(value); }

    void form() {
        packed_ = is_given(*call_.query_starts);
        if (is_given(*call_.key_starts) != packed_)
            keep(invalid("cu_seqlens_kv", packed_ ? "absent" : "present",
                         "present iff cu_seqlens_q is"));
    }

    void inputs() {
        const int rank = packed_ ? 3 : 4;
        keep(check_ranks({{"query", call_.query, rank},
                          {"key", call_.key, rank},
                          {"value", call_.value, rank},
                          {"out", call_.output, rank}}));
        const std::int32_t dtype = call_.query->dtype;
        if (dtype != ATTNCHECK_FLOAT32 && dtype != ATTNCHECK_FLOAT16 && dtype != ATTNCHECK_BFLOAT16)
            keep(invalid("query", "of dtype " + dtype_name(dtype), "fp16, bf16 or fp32"));
        keep(check_dtype("key", *call_.key, dtype, "query"));
        keep(check_dtype("value", *call_.value, dtype, "query"));
        keep(check_dtype("out", *call_.output, dtype, "query"));
    }

    void attributes() {
        keep(check_scale("scale", call_.scale));
        keep(check_scale("softcap", call_.softcap));
        if (call_.softcap < 0) keep(invalid("softcap", std::to_string(call_.softcap), "0 or more"));
        if (call_.window_left < -1) keep(invalid("window_left", text(call_.window_left), ">= -1"));
        if (call_.window_right < -1)
            keep(invalid("window_right", text(call_.window_right), ">= -1"));
        keep(check_range("align", call_.align, 0, 1));
    }

    void extents() {
        const int rows = packed_ ? 0 : 1;
        const std::int64_t *q = call_.query->shape + rows, *k = call_.key->shape + rows;
        batch_ = packed_ ? 0 : call_.query->shape[0];
        queries_ = q[0], keys_ = k[0], query_heads_ = q[1], kv_heads_ = k[1], dim_ = q[2];
        value_dim_ = call_.value->shape[rows + 2];
        at_least("query", "B", batch_, 0);
        at_least("query", packed_ ? "T" : "Sq", queries_, 0);
        at_least("key", packed_ ? "Tkv" : "Skv", keys_, 0);
        at_least("query", "Hq", query_heads_, 1), at_least("key", "Hkv", kv_heads_, 1);
        at_least("query", "D", dim_, 1), at_least("value", "Dv", value_dim_, 1);
        if (failed()) return;
        if (query_heads_ % kv_heads_ != 0)
            keep(invalid("query", "of " + text(query_heads_) + " heads",
                         "a multiple of the " + text(kv_heads_) + " heads of key"));
        shape("key", *call_.key, keys_, kv_heads_, dim_);
        shape("value", *call_.value, keys_, kv_heads_, value_dim_);
        shape("out", *call_.output, queries_, query_heads_, value_dim_);
    }
    void at_least(const char* name, const char* letter, std::int64_t extent, std::int64_t least) {
        if (extent < least)
            keep(invalid(name, std::string("of extent ") + letter + " = " + text(extent),
                         std::string(letter) + " >= " + text(least)));
    }
    void shape(const char* name, const attncheck_tensor& tensor, std::int64_t rows,
               std::int64_t heads, std::int64_t dim) {
        keep(packed_ ? check_shape(name, tensor, {{"T", rows}, {"H", heads}, {"D", dim}})
                     : check_shape(name, tensor,
                                   {{"B", batch_}, {"S", rows}, {"H", heads}, {"D", dim}}));
    }

    void arrays() {
        if (packed_) {
            starts("cu_seqlens_q", *call_.query_starts, queries_);
            starts("cu_seqlens_kv", *call_.key_starts, keys_);
            if (!failed() && call_.key_starts->size != call_.query_starts->size)
                keep(invalid("cu_seqlens_kv", "of size " + text(call_.key_starts->size),
                             "the size of cu_seqlens_q, " + text(call_.query_starts->size)));
        }
        const attncheck_int_array& lengths = *call_.kv_length;
        if (failed() || !is_given(lengths)) return;
        if (packed_) return keep(invalid("kv_length", "present", "absent in the packed form"));
        if (lengths.values == nullptr) return keep(absent("kv_length"));
        if (lengths.size != batch_)
            return keep(invalid("kv_length", "of size " + text(lengths.size), "B = " + text(batch_)));
        for (std::int64_t b = 0; b < batch_; ++b)
            if (lengths.values[b] < 0 || lengths.values[b] > keys_)
                return keep(invalid("kv_length", element_text(lengths.values[b], b),
                                    "[0, Skv = " + text(keys_) + "]"));
    }
    void starts(const char* name, const attncheck_int_array& array, std::int64_t rows) {
        if (failed()) return;
        if (array.values == nullptr) return keep(absent(name));
        if (array.size < 1) return keep(invalid(name, "of size " + text(array.size), "B + 1 entries"));
        if (array.values[0] != 0)
            return keep(invalid(name, element_text(array.values[0], 0), "0 at first"));
        for (std::int64_t b = 1; b < array.size; ++b)
            if (array.values[b] < array.values[b - 1])
                return keep(invalid(name, element_text(array.values[b], b), "non-decreasing values"));
        if (array.values[array.size - 1] != rows)
            keep(invalid(name, element_text(array.values[array.size - 1], array.size - 1),
                         "the number of rows at last, " + text(rows)));
    }

    /// bias or mask: [B or 1, Hq or 1, Sq or 1, Skv or 1].
    void pair_tensor(const char* name, const attncheck_tensor& tensor) {
        if (tensor.data == nullptr) return;
        if (packed_) return keep(invalid(name, "present", "absent in the packed form"));
        keep(check_ranks({{name, &tensor, 4}}));
        if (&tensor == call_.mask)
            keep(check_dtype(name, tensor, ATTNCHECK_BOOL, nullptr));
        else if (tensor.dtype != ATTNCHECK_FLOAT32)
            keep(check_dtype(name, tensor, call_.query->dtype, "query"));
        if (failed()) return;
        const std::int64_t wanted[] = {batch_, query_heads_, queries_, keys_};
        const char* const letters[] = {"B", "Hq", "Sq", "Skv"};
        for (int d = 0; d < 4; ++d)
            if (tensor.shape[d] != 1 && tensor.shape[d] != wanted[d])
                return keep(invalid(name,
                                    std::string("of extent ") + letters[d] + " = " +
                                        text(tensor.shape[d]),
                                    "1 or " + text(wanted[d])));
    }

    void statistics() {
        if (call_.has_sink()) {
            keep(check_ranks({{"sink", call_.sink, 1}}));
            keep(check_dtype("sink", *call_.sink, ATTNCHECK_FLOAT32, nullptr));
            if (!failed()) keep(check_shape("sink", *call_.sink, {{"Hq", query_heads_}}));
        }
        if (!call_.has_lse()) return;
        const attncheck_tensor& lse = *call_.lse;
        keep(check_ranks({{"lse", &lse, packed_ ? 2 : 3}}));
        keep(check_dtype("lse", lse, ATTNCHECK_FLOAT32, nullptr));
        if (failed()) return;
        keep(packed_ ? check_shape("lse", lse, {{"Hq", query_heads_}, {"T", queries_}})
                     : check_shape("lse", lse,
                                   {{"B", batch_}, {"Hq", query_heads_}, {"Sq", queries_}}));
    }

    void gradients() {
        gradient("dout", *call_.output_grad, *call_.output, "out");
        gradient("dq", *call_.query_grad, *call_.query, "query");
        gradient("dk", *call_.key_grad, *call_.key, "key");
        gradient("dv", *call_.value_grad, *call_.value, "value");
        optional_gradient("dbias", *call_.bias_grad, *call_.bias, "bias");
        optional_gradient("dsink", *call_.sink_grad, *call_.sink, "sink");
    }
    /// Type and shape are those of its tensor.
    void gradient(const char* name, const attncheck_tensor& tensor, const attncheck_tensor& of,
                  const char* of_name) {
        require(name, tensor);
        keep(check_ranks({{name, &tensor, of.rank}}));
        keep(check_dtype(name, tensor, of.dtype, of_name));
        for (std::int32_t d = 0; !failed() && d < of.rank; ++d)
            if (tensor.shape[d] != of.shape[d])
                keep(invalid(name, "of extent " + text(tensor.shape[d]) + " at " + text(d),
                             text(of.shape[d]) + ", that of " + of_name));
    }
    void optional_gradient(const char* name, const attncheck_tensor& tensor,
                           const attncheck_tensor& of, const char* of_name) {
        if (tensor.data == nullptr) return;
        if (of.data == nullptr)
            return keep(invalid(name, "present", std::string("absent without ") + of_name));
        gradient(name, tensor, of, of_name);
    }

    const AttentionCall& call_;
    MaybeRejection rejection_;
    bool packed_ = false;
    std::int64_t batch_ = 0, queries_ = 0, keys_ = 0, query_heads_ = 0, kv_heads_ = 0, dim_ = 0,
                 value_dim_ = 0;
};

template <class Args>
MaybeRejection validate(const Args* args) {
    if (args == nullptr) return absent("args");
    const AttentionCall call = attention_call(*args);
    return AttentionChecks(call).run();
}

}  // namespace

MaybeRejection validate_attention(const attncheck_attention_args* args) { return validate(args); }
MaybeRejection validate_attention_grad(const attncheck_attention_grad_args* args) {
    return validate(args);
}

}  // namespace attncheck::impl
