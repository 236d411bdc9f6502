#ifndef ATTNCHECK_TESTS_IMPL_NSA_COMPRESS_ATTENTION_PROBLEM_H
#define ATTNCHECK_TESTS_IMPL_NSA_COMPRESS_ATTENTION_PROBLEM_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "attncheck/candidate.h"
#include "impl/kernels/half_formats.h"
#include "nsa_selected_attention_problem.h"

// Problems of NsaCompressAttention and what plain loops in binary64 make of them.
namespace attncheck::impl {

struct Geometry {
    std::int64_t block = 32, stride = 16, selected = 64;

    std::int64_t is_m() const { return selected / stride; }
    std::int64_t is_n() const { return block / stride; }
    std::int64_t candidates(std::int64_t compressed) const {
        return (compressed + is_m() - 1) / is_m();
    }
};

struct CompressShape {
    std::int64_t kv_heads, group_size, head_dim, value_dim;
    Geometry geometry;
    std::int64_t count;
    std::vector<std::pair<std::int64_t, std::int64_t>> lengths;  // (queries, compressed keys)
    bool has_mask = false, has_topk_mask = false;
    std::int64_t spare_queries = 0, spare_keys = 0;  // rows beyond the last sequence
    double scale = 0.0625;

    std::int64_t heads() const { return kv_heads * group_size; }
    std::int64_t queries() const {
        std::int64_t sum = spare_queries;
        for (const auto& [queries, keys] : lengths) sum += queries;
        return sum;
    }
    std::int64_t keys() const {
        std::int64_t sum = spare_keys;
        for (const auto& [queries, keys] : lengths) sum += keys;
        return sum;
    }
    std::int64_t longest(bool of_keys) const {
        std::int64_t most = 0;
        for (const auto& [queries, keys] : lengths) most = std::max(most, of_keys ? keys : queries);
        return most;
    }
};

struct CompressProblem {
    CompressShape shape;
    HalfFormat format;
    HalfTensor query, key, value, output;
    TestTensor<float> row_max, row_sum;
    TestTensor<std::int32_t> topk;
    TestTensor<std::uint8_t> mask, topk_mask;  // [1, max S_q, max Cmp], [1, max S_q, max Sel]
    std::vector<std::int64_t> query_ends, key_ends, selected_ends;

    CompressProblem(const CompressShape& of, HalfFormat half, Storage how = Storage::kPacked)
        : shape(of),
          format(half),
          query({of.queries(), of.heads(), of.head_dim}, how, kHalfPoison),
          key({of.keys(), of.kv_heads, of.head_dim}, how, kHalfPoison),
          value({of.keys(), of.kv_heads, of.value_dim}, how, kHalfPoison),
          output({of.queries(), of.heads(), of.value_dim}, how, kHalfPoison),
          row_max({of.queries(), of.heads(), 8}, how, kFloatPoison),
          row_sum({of.queries(), of.heads(), 8}, how, kFloatPoison),
          topk({of.queries(), of.kv_heads, of.count}, how, kTopkPoison),
          mask({1, of.longest(false), of.longest(true)}, how, 0),
          topk_mask({1, of.longest(false), of.geometry.candidates(of.longest(true))}, how, 0) {
        std::int64_t queries = 0, keys = 0, selected = 0;
        for (const auto& [own_queries, own_keys] : shape.lengths) {
            query_ends.push_back(queries += own_queries);
            key_ends.push_back(keys += own_keys);
            selected_ends.push_back(selected += shape.geometry.candidates(own_keys));
        }
        std::mt19937 random(11);
        std::normal_distribution<float> values(0.0f, 1.0f);
        for (HalfTensor* tensor : {&query, &key, &value}) {
            SelectedProblem::for_each_element(
                *tensor, [&](auto& element) { element = narrow(format, values(random)); });
        }
        fill_masks(random);
    }
    // Runs of hidden keys; in row 1 everything is hidden. Some blocks are forced, in row 2 all.
    void fill_masks(std::mt19937& random) {
        for (std::int64_t s = 0; s < mask.shape[1]; ++s) {
            const std::uint32_t change = 2 + random() % 20;
            bool hidden = random() % 2;
            for (std::int64_t i = 0; i < mask.shape[2]; ++i) {
                if (random() % change == 0) hidden = !hidden;
                mask.at(0, s, i) = s == 1 || hidden ? static_cast<std::uint8_t>(1 + s % 255) : 0;
            }
            for (std::int64_t j = 0; j < topk_mask.shape[2]; ++j)
                topk_mask.at(0, s, j) = s == 2 || random() % 6 == 0 ? 1 : 0;
        }
    }

    std::int32_t dtype() const {
        return format == HalfFormat::kFp16 ? ATTNCHECK_FLOAT16 : ATTNCHECK_BFLOAT16;
    }
    static attncheck_tensor mask_view(TestTensor<std::uint8_t>& tensor, bool present) {
        attncheck_tensor view{};
        if (!present) return view;
        view.data = tensor.storage.data() + tensor.origin;
        view.dtype = ATTNCHECK_BOOL;
        view.rank = 2;
        for (int dim = 0; dim < 2; ++dim) {
            view.shape[dim] = tensor.shape[static_cast<std::size_t>(dim) + 1];
            view.strides[dim] = tensor.strides[static_cast<std::size_t>(dim) + 1];
        }
        return view;
    }
    attncheck_nsa_compress_attention_args args() {
        return {query.view(dtype()),
                key.view(dtype()),
                value.view(dtype()),
                mask_view(mask, shape.has_mask),
                mask_view(topk_mask, shape.has_topk_mask),
                {query_ends.data(), std::ssize(query_ends)},
                {key_ends.data(), std::ssize(key_ends)},
                {selected_ends.data(), std::ssize(selected_ends)},
                shape.scale,
                shape.heads(),
                "TND",
                shape.has_mask ? 1 : 0,
                shape.geometry.block,
                shape.geometry.stride,
                shape.geometry.selected,
                shape.count,
                row_max.view(ATTNCHECK_FLOAT32),
                row_sum.view(ATTNCHECK_FLOAT32),
                output.view(dtype()),
                topk.view(ATTNCHECK_INT32)};
    }
    double number(HalfTensor& tensor, std::int64_t i, std::int64_t j, std::int64_t k) {
        return static_cast<double>(widen(format, tensor.at(i, j, k)));
    }
    bool visible(std::int64_t query_pos, std::int64_t key_pos) {
        return !shape.has_mask || mask.at(0, query_pos, key_pos) == 0;
    }
    bool forced(std::int64_t query_pos, std::int64_t block) {
        return shape.has_topk_mask && topk_mask.at(0, query_pos, block) != 0;
    }
    // The statistic of (position s of a sequence, head): per sequence [N1, S_q] (nsa.md 6.5).
    float& statistic(TestTensor<float>& of, std::size_t b, std::int64_t s, std::int64_t head,
                     std::int64_t copy) {
        const std::int64_t own = shape.lengths[b].first,
                           at = (query_ends[b] - own) * shape.heads() + head * own + s;
        return of.at(at / shape.heads(), at % shape.heads(), copy);
    }
    // visit(b, t, s, kv head)
    template <class Visit>
    void for_each_query(const Visit& visit) {
        for (std::size_t b = 0; b < shape.lengths.size(); ++b) {
            const std::int64_t own = shape.lengths[b].first;
            for (std::int64_t s = 0; s < own; ++s)
                for (std::int64_t n = 0; n < shape.kv_heads; ++n)
                    visit(b, query_ends[b] - own + s, s, n);
        }
    }
};

// One row of attention.
struct ExpectedRow {
    double row_max = -std::numeric_limits<double>::infinity(), row_sum = 0;
    std::vector<double> probs;  // 0 where hidden
    std::vector<Sum> output;
};

inline ExpectedRow expected_row(CompressProblem& p, std::size_t b, std::int64_t t, std::int64_t s,
                                std::int64_t head) {
    const auto [own_queries, own_keys] = p.shape.lengths[b];
    const std::int64_t first = p.key_ends[b] - own_keys, n = head / p.shape.group_size;
    ExpectedRow row;
    row.output.resize(static_cast<std::size_t>(p.shape.value_dim));
    std::vector<double> logits;
    for (std::int64_t i = 0; i < own_keys; ++i) {
        double dot = 0;
        for (std::int64_t c = 0; c < p.shape.head_dim; ++c)
            dot += p.number(p.query, t, head, c) * p.number(p.key, first + i, n, c);
        logits.push_back(static_cast<double>(static_cast<float>(p.shape.scale)) * dot);
        if (p.visible(s, i)) row.row_max = std::max(row.row_max, logits.back());
    }
    for (std::int64_t i = 0; i < own_keys; ++i) {
        const double e = std::exp(logits[static_cast<std::size_t>(i)] - row.row_max);
        row.probs.push_back(p.visible(s, i) ? e : 0.0);
        row.row_sum += row.probs.back();
    }
    for (std::int64_t i = 0; i < own_keys; ++i) {
        if (!p.visible(s, i)) continue;
        double& prob = row.probs[static_cast<std::size_t>(i)];
        prob /= row.row_sum;
        for (std::int64_t c = 0; c < p.shape.value_dim; ++c)
            row.output[static_cast<std::size_t>(c)].add(prob * p.number(p.value, first + i, n, c));
    }
    return row;
}

// The double sum of nsa.md 6.4, as it stands there.
inline std::vector<double> expected_scores(const std::vector<double>& probs, const Geometry& g) {
    const std::int64_t num_probs = std::ssize(probs);
    std::vector<double> scores(static_cast<std::size_t>(g.candidates(num_probs)));
    for (std::int64_t j = 0; j < std::ssize(scores); ++j) {
        for (std::int64_t m = 0; m < g.is_m(); ++m) {
            for (std::int64_t n = 0; n < g.is_n(); ++n) {
                const std::int64_t at = g.is_m() * (j + 1) - m - n;
                if (at < 0 || at >= num_probs) continue;
                scores[static_cast<std::size_t>(j)] += probs[static_cast<std::size_t>(at)];
            }
        }
    }
    return scores;
}

}  // namespace attncheck::impl

#endif  // ATTNCHECK_TESTS_IMPL_NSA_COMPRESS_ATTENTION_PROBLEM_H
