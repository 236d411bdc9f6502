// Random problems of the neutral Attention: softcap, broadcast bias, mask, window, sinks, groups of
// two heads.
#pragma once

#include <complex>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "ref/operators/attention.h"

namespace attncheck::ref {

using Values = std::vector<double>;
using Numbers = std::vector<std::int64_t>;

inline NeutralAttentionShape padded(std::int64_t batch, std::int64_t queries, std::int64_t keys,
                             std::int64_t heads = 1, std::int64_t kv_heads = 1) {
    NeutralAttentionShape s;
    s.query_lengths.assign(static_cast<std::size_t>(batch), queries);
    s.kv_lengths.assign(static_cast<std::size_t>(batch), keys);
    s.total_queries = batch * queries, s.total_keys = batch * keys;
    s.query_heads = heads, s.kv_heads = kv_heads;
    return s;
}

struct NeutralProblem {
    NeutralAttentionShape shape;
    Values query, key, value, output_grad;

    NeutralProblem(unsigned seed, double softcap, bool has_sink, std::int64_t queries = 5,
            std::int64_t keys = 7, std::int64_t dim = 3, Dtype dtype = Dtype::fp32) {
        std::mt19937 random(seed);
        std::normal_distribution<double> normal;
        const auto draw = [&](std::int64_t count, double size = 1) {
            Values values(static_cast<std::size_t>(count));
            for (double& v : values) v = decode(dtype, encode(dtype, size * normal(random)));
            return values;
        };
        shape = padded(2, queries, keys, 4, 2);
        shape.head_dim = dim, shape.value_dim = dim + 1;
        shape.scale = 0.75, shape.softcap = softcap;
        shape.window_left = keys - 2, shape.window_right = 1, shape.bottom_right = true;
        shape.bias = {true, {1, 4, 1, keys}, draw(4 * keys)};
        shape.mask = {true, {2, 1, queries, keys}, {}};
        for (std::int64_t e = 0; e < 2 * queries * keys; ++e)
            shape.mask.values.push_back(random() % 8 != 0);
        if (has_sink) shape.sink = draw(4);
        query = draw(2 * queries * 4 * dim), key = draw(2 * keys * 2 * dim);
        value = draw(2 * keys * 2 * (dim + 1)), output_grad = draw(2 * queries * 4 * (dim + 1));
    }
    AttentionInputs<double> inputs() const { return shape.inputs(query, key, value); }
    ColumnLister columns() const { return attention_columns(shape); }

    struct Forward {
        Values output, row_max, row_sum;
    };
    Forward forward() const {
        Forward f{Values(output_grad.size()), {}, {}};
        f.row_max.resize(static_cast<std::size_t>(shape.total_queries * 4));
        f.row_sum.resize(f.row_max.size());
        dense_attention<double>({shape.dense(), columns(), inputs()}, f.output, f.row_max,
                                f.row_sum);
        return f;
    }
    AttentionGradInputs gradient(const Forward& f) const {
        AttentionGradInputs in{inputs(), output_grad, f.output, f.row_max, f.row_sum};
        in.bias_elements = shape.bias.values.size();
        return in;
    }
};

}  // namespace attncheck::ref
