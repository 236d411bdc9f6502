#ifndef ATTNCHECK_TESTS_IMPL_ATTENTION_PROBLEM_H
#define ATTNCHECK_TESTS_IMPL_ATTENTION_PROBLEM_H

#include <string>
#include <vector>

#include "flash_attention_problem.h"
#include "ref/operators/attention.h"

// Problems of Attention and its gradient in odd strides, and the expectations of the oracle.
namespace attncheck::impl {

struct NeutralForm {
    std::vector<std::pair<std::int64_t, std::int64_t>> lengths = {{5, 7}};  // alike, unless packed
    bool packed = false;
    std::int64_t kv_heads = 1, group_size = 1, head_dim = 8, value_dim = 8;
    std::int32_t dtype = ATTNCHECK_FLOAT32, bias_dtype = ATTNCHECK_FLOAT32;
    double scale = 0.3, softcap = 0;
    std::int64_t window_left = -1, window_right = -1, align = 0;
    bool has_kv_length = false, has_sink = false;
    std::string bias, mask;  // "BHQK", with 1 where an extent is: "1H1K"; empty: absent
    bool bias_hides = true;  // some elements are -infinity
    bool has_lse = true;
};

class NeutralProblem {
public:
    NeutralProblem(const NeutralForm& wanted, std::uint64_t seed) : form(wanted), random_(seed) {
        shape.packed = form.packed;
        for (const auto& [q, k] : form.lengths) {
            shape.query_lengths.push_back(q), shape.kv_lengths.push_back(k);
            shape.total_queries += q, shape.total_keys += k;
            starts_q.push_back(shape.total_queries), starts_kv.push_back(shape.total_keys);
        }
        shape.kv_heads = form.kv_heads, shape.query_heads = form.kv_heads * form.group_size;
        shape.head_dim = form.head_dim, shape.value_dim = form.value_dim;
        shape.scale = static_cast<float>(form.scale);
        shape.softcap = static_cast<float>(form.softcap);
        shape.window_left = form.window_left, shape.window_right = form.window_right;
        shape.bottom_right = form.align == 1;
        shape.has_kv_length = form.has_kv_length;
        const std::int64_t keys = longest(shape.kv_lengths);
        for (std::size_t b = 0; form.has_kv_length && b < form.lengths.size(); ++b)
            shape.kv_length.push_back(b == 0 ? keys / 2 : below(keys + 1));
        const std::int64_t heads = shape.query_heads;
        query = rows(false, heads, form.head_dim), key = rows(true, form.kv_heads, form.head_dim);
        value = rows(true, form.kv_heads, form.value_dim);
        output_grad = rows(false, heads, form.value_dim);
        for (AnyTensor* input : {&query, &key, &value, &output_grad})
            input->fill([&] { return normal(); });
        if (!form.bias.empty()) {
            bias = AnyTensor(form.bias_dtype, pairs(form.bias), storage());
            bias.fill([&] { return below(9) == 0 && form.bias_hides ? -kInf : normal(); });
            shape.bias = {true, bias.shape, values(bias)};
        }
        if (!form.mask.empty()) {
            mask = AnyTensor(ATTNCHECK_BOOL, pairs(form.mask), storage());
            mask.fill([&] { return below(6) == 0 ? 0.0 : 1.0; });
            shape.mask = {true, mask.shape, {}};
            for (const double shown : values(mask))
                shape.mask.values.push_back(shown != 0);
        }
        if (form.has_sink) {
            sink = AnyTensor(ATTNCHECK_FLOAT32, {heads}, storage());
            sink.fill([&] { return below(5) == 0 ? -kInf : normal(); });
            shape.sink = values(sink);
        }
        poison_hidden_keys();
        output = rows(false, heads, form.value_dim);
        if (form.has_lse) lse = AnyTensor(ATTNCHECK_FLOAT32, lse_shape(), storage());
        dq = rows(false, heads, form.head_dim), dk = rows(true, form.kv_heads, form.head_dim);
        dv = rows(true, form.kv_heads, form.value_dim);
        if (bias.present) dbias = AnyTensor(form.bias_dtype, bias.shape, storage());
        if (sink.present) dsink = AnyTensor(ATTNCHECK_FLOAT32, {heads}, storage());
    }

    attncheck_attention_args forward() {
        attncheck_attention_args a{};
        fill(a);
        a.out = output.view(), a.lse = lse.view();
        return a;
    }
    attncheck_attention_grad_args gradient() {
        attncheck_attention_grad_args a{};
        fill(a);
        a.out = output.view(), a.lse = lse.view(), a.dout = output_grad.view();
        a.dq = dq.view(), a.dk = dk.view(), a.dv = dv.view();
        a.dbias = dbias.view(), a.dsink = dsink.view();
        return a;
    }

    ref::Dtype dtype() const { return static_cast<ref::Dtype>(form.dtype); }
    ref::ExpectedAttention expected() const {
        return ref::expected_attention({shape.dense(), ref::attention_columns(shape), inputs()},
                                       dtype());
    }
    /// Of the output and the LSE that the tensors hold.
    ref::ExpectedAttentionGrad expected_gradient() const {
        const std::vector<double> o = values(output);
        const auto columns = ref::attention_columns(shape);
        ref::GradStatistics s = form.has_lse ? ref::given_statistics(lse_by_row())
                                             : ref::own_statistics(ref::expected_attention(
                                                   {shape.dense(), columns, inputs()}, dtype()));
        ref::AttentionGradInputs in{inputs(), grad_values_, o, s.row_max, s.row_sum};
        in.statistics_error = s.error;
        in.bias_elements = shape.bias.values.size();
        in.bias_dtype = static_cast<ref::Dtype>(form.bias_dtype);
        return ref::expected_attention_grad({shape.dense(), columns, in}, dtype());
    }
    /// [T1,N1] from [B,Hq,Sq] or [Hq,T].
    std::vector<double> lse_by_row() const {
        std::vector<double> out;
        for (std::int64_t t = 0; t < shape.total_queries; ++t)
            for (std::int64_t h = 0; h < shape.query_heads; ++h) {
                const std::int64_t length = longest(shape.query_lengths);
                out.push_back(lse.get(form.packed ? Index{h, t}
                                                  : Index{t / length, h, t % length}));
            }
        return out;
    }
    static std::vector<double> values(const AnyTensor& tensor) {
        std::vector<double> out;
        for (std::int64_t i = 0; i < tensor.elements(); ++i)
            out.push_back(tensor.get(tensor.unravel(i)));
        return out;
    }

    NeutralForm form;
    ref::NeutralAttentionShape shape;
    std::vector<std::int64_t> starts_q = {0}, starts_kv = {0};
    AnyTensor query, key, value, output_grad, bias, mask, sink, output, lse;
    AnyTensor dq, dk, dv, dbias, dsink;

private:
    static std::int64_t longest(const std::vector<std::int64_t>& lengths) {
        return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
    }
    double normal() { return std::normal_distribution<double>()(random_); }
    std::int64_t below(std::int64_t count) {
        return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(count));
    }
    Storage storage() {
        return static_cast<Storage>(below(static_cast<int>(Storage::kNumStorages)));
    }
    AnyTensor rows(bool of_keys, std::int64_t heads, std::int64_t dim) {
        const auto& lengths = of_keys ? shape.kv_lengths : shape.query_lengths;
        const std::int64_t total = of_keys ? shape.total_keys : shape.total_queries;
        return AnyTensor(form.dtype,
                         form.packed ? Index{total, heads, dim}
                                     : Index{std::ssize(lengths), longest(lengths), heads, dim},
                         storage());
    }
    Index pairs(const std::string& text) const {
        const std::int64_t full[] = {std::ssize(shape.query_lengths), shape.query_heads,
                                     longest(shape.query_lengths), longest(shape.kv_lengths)};
        Index extents;
        for (std::size_t k = 0; k < 4; ++k) extents.push_back(text[k] == '1' ? 1 : full[k]);
        return extents;
    }
    Index lse_shape() const {
        if (form.packed) return {shape.query_heads, shape.total_queries};
        return {std::ssize(shape.query_lengths), shape.query_heads, longest(shape.query_lengths)};
    }
    /// NaN where no query sees a key, in what the kernel gets and in what the oracle gets.
    void poison_hidden_keys() {
        std::vector<char> seen(static_cast<std::size_t>(shape.total_keys * shape.kv_heads));
        const auto columns = ref::attention_columns(shape);
        for (std::int64_t t = 0; t < shape.total_queries; ++t)
            for (std::int64_t h = 0; h < shape.query_heads; ++h) {
                std::vector<ref::KeyColumn> list;
                columns(t, h, list);
                for (const auto& c : list)
                    seen[static_cast<std::size_t>(c.key * shape.kv_heads + h / form.group_size)] = 1;
            }
        const std::int64_t keys = longest(shape.kv_lengths);
        for (std::int64_t k = 0; k < shape.total_keys; ++k)
            for (std::int64_t g = 0; g < shape.kv_heads; ++g) {
                if (seen[static_cast<std::size_t>(k * shape.kv_heads + g)]) continue;
                const auto set = [&](AnyTensor& tensor, std::int64_t dim) {
                    for (std::int64_t d = 0; d < dim; ++d)
                        tensor.set(form.packed ? Index{k, g, d} : Index{k / keys, k % keys, g, d},
                                   kNan);
                };
                set(key, form.head_dim), set(value, form.value_dim);
            }
        query_values_ = values(query), key_values_ = values(key), value_values_ = values(value);
        grad_values_ = values(output_grad);
    }
    ref::AttentionInputs<double> inputs() const {
        return shape.inputs(query_values_, key_values_, value_values_);
    }
    template <class Args>
    void fill(Args& a) {
        a.query = query.view(), a.key = key.view(), a.value = value.view();
        a.bias = bias.view(), a.mask = mask.view(), a.sink = sink.view();
        if (form.packed) {
            a.cu_seqlens_q = {starts_q.data(), std::ssize(starts_q)};
            a.cu_seqlens_kv = {starts_kv.data(), std::ssize(starts_kv)};
        }
        if (form.has_kv_length) a.kv_length = {shape.kv_length.data(), std::ssize(shape.kv_length)};
        a.scale = form.scale, a.softcap = form.softcap;
        a.window_left = form.window_left, a.window_right = form.window_right;
        a.align = form.align;
    }

    std::mt19937_64 random_;
    std::vector<double> query_values_, key_values_, value_values_, grad_values_;
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_TESTS_IMPL_ATTENTION_PROBLEM_H
