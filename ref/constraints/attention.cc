#include "ref/constraints/attention.h"

#include <algorithm>

#include "ref/constraints/examination.h"

namespace attncheck::ref {
namespace {

class AttentionExamination : public Examination {
public:
    explicit AttentionExamination(const AttentionArguments& arguments) : a_(arguments) {}

    /// Everything but the outputs of a direction.
    void inputs() {
        present(a_.query.present, "query", "a tensor");
        present(a_.key.present, "key", "a tensor");
        present(a_.value.present, "value", "a tensor");
        present(a_.out.present, "out", "a tensor");
        const bool packed = is_given(a_.cu_seqlens_q);
        circumstance = packed ? "packed form" : "padded form";
        rule(is_given(a_.cu_seqlens_kv) == packed, kInvalid, "cu_seqlens_kv",
             packed ? "is absent" : "is present", "present iff cu_seqlens_q is");
        const std::int32_t rank_of_rows = packed ? 3 : 4;
        rank(a_.query, "query", rank_of_rows);
        rank(a_.key, "key", rank_of_rows);
        rank(a_.value, "value", rank_of_rows);
        rank(a_.out, "out", rank_of_rows);
        dtype(a_.query, "query", {Dtype::fp16, Dtype::bf16, Dtype::fp32});
        same_dtype(a_.key, "key", a_.query, "query");
        same_dtype(a_.value, "value", a_.query, "query");
        same_dtype(a_.out, "out", a_.query, "query");
        attributes();
        if (!accepted()) return;
        extents(packed);
        arrays(packed);
        pairs(packed);
        sink();
        if (accepted()) shape(a_.out, "out", rows_text(), like_query(value_dim_));
        lse(packed);
    }

    void gradients(const AttentionGradArguments& g) {
        present(g.dout.present, "dout", "a tensor");
        present(g.dq.present, "dq", "a tensor");
        present(g.dk.present, "dk", "a tensor");
        present(g.dv.present, "dv", "a tensor");
        same(g.dout, "dout", a_.out, "out");
        same(g.dq, "dq", a_.query, "query");
        same(g.dk, "dk", a_.key, "key");
        same(g.dv, "dv", a_.value, "value");
        optional(g.dbias, "dbias", a_.bias, "bias");
        optional(g.dsink, "dsink", a_.sink, "sink");
    }

private:
    static bool is_given(const ArrayArgument& array) { return array.present || array.size != 0; }

    void attributes() {
        rule(is_finite_as_fp32(a_.scale), kInvalid, "scale", "is " + show(a_.scale),
             "a number that is finite in fp32");
        rule(is_finite_as_fp32(a_.softcap) && a_.softcap >= 0, kInvalid, "softcap",
             "is " + show(a_.softcap), "0 or a positive number that is finite in fp32",
             a_.softcap < 0 ? "below" : "not finite");
        number(a_.window_left >= -1, "window_left", a_.window_left, "-1 or more");
        number(a_.window_right >= -1, "window_right", a_.window_right, "-1 or more");
        number_within("align", a_.align, 0, 1);
    }

    void extents(bool packed) {
        const std::size_t last = packed ? 2 : 3, heads = last - 1, rows = heads - 1;
        const auto& q = a_.query.shape;
        const auto& k = a_.key.shape;
        const auto& v = a_.value.shape;
        batch_ = packed ? 0 : q[0];
        queries_ = q[rows], keys_ = k[rows];
        query_heads_ = q[heads], kv_heads_ = k[heads];
        head_dim_ = q[last], value_dim_ = v[last];
        if (!packed) extent(batch_ >= 0, "query", "B", batch_, "B >= 0");
        extent(queries_ >= 0, "query", packed ? "T" : "Sq", queries_, "0 or more");
        extent(keys_ >= 0, "key", packed ? "T" : "Skv", keys_, "0 or more");
        extent(query_heads_ >= 1, "query", "Hq", query_heads_, "Hq >= 1");
        extent(kv_heads_ >= 1, "key", "Hkv", kv_heads_, "Hkv >= 1");
        extent(head_dim_ >= 1, "query", "D", head_dim_, "D >= 1");
        extent(value_dim_ >= 1, "value", "Dv", value_dim_, "Dv >= 1");
        if (!accepted()) return;
        extent(query_heads_ % kv_heads_ == 0, "query", "Hq", query_heads_,
               "a multiple of Hkv = " + std::to_string(kv_heads_));
        shape(a_.key, "key", packed ? "[T,Hkv,D]" : "[B,Skv,Hkv,D]",
              packed ? std::vector{keys_, kv_heads_, head_dim_}
                     : std::vector{batch_, keys_, kv_heads_, head_dim_});
        shape(a_.value, "value", packed ? "[T,Hkv,Dv]" : "[B,Skv,Hkv,Dv]",
              packed ? std::vector{keys_, kv_heads_, value_dim_}
                     : std::vector{batch_, keys_, kv_heads_, value_dim_});
    }

    /// A null pointer with a size, or a size below 0.
    void require_values(const ArrayArgument& array, const char* parameter) {
        present(array.present, parameter, "an array");
        array_size(array.size >= 0, array, parameter, "0 or more entries");
    }

    void arrays(bool packed) {
        if (packed) {
            require_values(a_.cu_seqlens_q, "cu_seqlens_q");
            require_values(a_.cu_seqlens_kv, "cu_seqlens_kv");
            array_size(a_.cu_seqlens_q.size >= 1, a_.cu_seqlens_q, "cu_seqlens_q", "B + 1 entries");
            rule(a_.cu_seqlens_kv.size == a_.cu_seqlens_q.size, kInvalid, "cu_seqlens_kv",
                 "has size " + std::to_string(a_.cu_seqlens_kv.size),
                 "the size of cu_seqlens_q, " + std::to_string(a_.cu_seqlens_q.size),
                 a_.cu_seqlens_kv.size < a_.cu_seqlens_q.size ? "below" : "above");
            starts(a_.cu_seqlens_q, "cu_seqlens_q", queries_);
            starts(a_.cu_seqlens_kv, "cu_seqlens_kv", keys_);
        }
        if (!is_given(a_.kv_length)) return;
        rule(!packed, kInvalid, "kv_length", "is present", "the padded form only");
        require_values(a_.kv_length, "kv_length");
        array_size(a_.kv_length.size == batch_, a_.kv_length, "kv_length",
                   "B = " + std::to_string(batch_) + " entries");
        for (std::size_t b = 0; accepted() && b < a_.kv_length.values.size(); ++b) {
            const std::int64_t length = a_.kv_length.values[b];
            place = place_of(b, a_.kv_length.values.size());
            rule(length >= 0 && length <= keys_, kInvalid, "kv_length",
                 "has value " + std::to_string(length) + " at index " + std::to_string(b),
                 "0..Skv = " + std::to_string(keys_), length < 0 ? "below" : "above");
        }
        place.clear();
    }

    void starts(const ArrayArgument& array, const char* parameter, std::int64_t rows) {
        if (!accepted()) return;
        const auto& values = array.values;
        rule(values.front() == 0, kInvalid, parameter,
             "begins with " + std::to_string(values.front()), "0 at first",
             values.front() < 0 ? "below" : "above");
        for (std::size_t b = 1; accepted() && b < values.size(); ++b) {
            place = place_of(b - 1, values.size() - 1);
            rule(values[b] >= values[b - 1], kInvalid, parameter,
                 "has value " + std::to_string(values[b]) + " at index " + std::to_string(b),
                 "non-decreasing values, here at least " + std::to_string(values[b - 1]));
        }
        place.clear();
        rule(values.back() == rows, kInvalid, parameter,
             "ends with " + std::to_string(values.back()),
             "the number of rows at last, " + std::to_string(rows),
             values.back() < rows ? "below" : "above");
    }

    void pairs(bool packed) {
        for (const bool is_bias : {true, false}) {
            const TensorArgument& t = is_bias ? a_.bias : a_.mask;
            const char* const name = is_bias ? "bias" : "mask";
            if (!t.present) continue;
            rule(!packed, kInvalid, name, "is present", "the padded form only");
            rank(t, name, 4);
            if (is_bias && t.dtype != a_.query.dtype)
                dtype(t, name, {static_cast<Dtype>(a_.query.dtype), Dtype::fp32});
            if (!is_bias) dtype(t, name, {Dtype::boolean});
            constexpr const char* kLetters[] = {"B", "Hq", "Sq", "Skv"};
            const std::int64_t full[] = {batch_, query_heads_, queries_, keys_};
            for (std::size_t k = 0; accepted() && k < 4; ++k)
                extent(t.shape[k] == 1 || t.shape[k] == full[k], name, kLetters[k], t.shape[k],
                       "1 or " + std::to_string(full[k]),
                       side_of(t.shape[k], std::min<std::int64_t>(1, full[k]),
                               std::max<std::int64_t>(1, full[k])));
        }
    }

    void sink() {
        if (!a_.sink.present) return;
        rank(a_.sink, "sink", 1);
        dtype(a_.sink, "sink", {Dtype::fp32});
        if (accepted()) shape(a_.sink, "sink", "[Hq]", {query_heads_});
    }

    void lse(bool packed) {
        if (!a_.lse.present) return;
        rank(a_.lse, "lse", packed ? 2 : 3);
        dtype(a_.lse, "lse", {Dtype::fp32});
        if (accepted())
            shape(a_.lse, "lse", packed ? "[Hq,T]" : "[B,Hq,Sq]",
                  packed ? std::vector{query_heads_, queries_}
                         : std::vector{batch_, query_heads_, queries_});
    }

    std::vector<std::int64_t> like_query(std::int64_t width) const {
        std::vector<std::int64_t> shape = a_.query.shape;
        shape.back() = width;
        return shape;
    }
    const char* rows_text() const { return a_.query.rank == 3 ? "[T,Hq,Dv]" : "[B,Sq,Hq,Dv]"; }

    /// A gradient has the type and the shape of its tensor.
    void same(const TensorArgument& t, const char* name, const TensorArgument& other,
              const char* other_name) {
        if (!accepted()) return;
        rank(t, name, other.rank);
        same_dtype(t, name, other, other_name);
        if (accepted()) shape(t, name, other_name, other.shape);
    }
    void optional(const TensorArgument& t, const char* name, const TensorArgument& other,
                  const char* other_name) {
        if (!t.present) return;
        rule(other.present, kInvalid, name, "is present",
             std::string("absent without ") + other_name);
        same(t, name, other, other_name);
    }

    const AttentionArguments& a_;
    std::int64_t batch_ = 0, queries_ = 0, keys_ = 0, query_heads_ = 1, kv_heads_ = 1;
    std::int64_t head_dim_ = 1, value_dim_ = 1;
};

Ruling with_any_status(Ruling ruling) {
    ruling.any_status = !ruling.accepted();
    return ruling;
}

}  // namespace

Ruling rule_attention(const AttentionArguments& arguments) {
    AttentionExamination e(arguments);
    e.inputs();
    return with_any_status(e.ruling);
}

Ruling rule_attention_grad(const AttentionGradArguments& arguments) {
    AttentionExamination e(arguments.forward);
    e.inputs();
    e.gradients(arguments);
    return with_any_status(e.ruling);
}

}  // namespace attncheck::ref
