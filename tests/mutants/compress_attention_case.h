// For mutants_test: random calls of NsaCompressAttention, what the built-in implementation makes of
// them, and the scores by plain loops in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "attncheck/candidate.h"
#include "impl/operators/nsa_compress_attention/nsa_compress_attention.h"
#include "selected_case.h"

namespace attncheck::mutants {

struct CompressAttentionCase {
    bool fp16 = true, strided = false, has_mask = false, has_topk_mask = false;
    std::vector<std::int64_t> query_ends, key_ends;
    std::int64_t spare_queries = 0, spare_keys = 0;
    std::int64_t kv_heads = 1, group = 1, head_dim = 16, value_dim = 16;
    std::int64_t block = 32, stride = 16, selected = 64, count = 1;
    double scale = 0.25;
    unsigned seed = 7;

    std::int64_t query_heads() const { return kv_heads * group; }
    std::int64_t is_m() const { return selected / stride; }
    std::int64_t candidates(std::int64_t keys) const { return (keys + is_m() - 1) / is_m(); }
    std::int64_t query_tokens() const { return query_ends.back() + spare_queries; }
    std::int64_t key_tokens() const { return key_ends.back() + spare_keys; }
    std::vector<std::int64_t> selected_ends() const {
        std::vector<std::int64_t> ends;
        std::int64_t sum = 0, begin = 0;
        for (const std::int64_t end : key_ends) {
            ends.push_back(sum += candidates(end - begin));
            begin = end;
        }
        return ends;
    }
};

/// Any legal shape of moderate size.
inline CompressAttentionCase random_compress_attention_case(unsigned seed) {
    std::mt19937 random(seed);
    const auto below = [&](unsigned limit) { return static_cast<std::int64_t>(random() % limit); };
    CompressAttentionCase c;
    c.seed = seed;
    c.fp16 = below(2) == 0, c.strided = below(2) == 0;
    c.has_mask = below(3) != 0, c.has_topk_mask = below(2) == 0;
    c.group = std::int64_t{1} << below(5), c.kv_heads = 1 + below(3);
    c.head_dim = 1 + below(70), c.value_dim = 1 + below(static_cast<unsigned>(c.head_dim));
    c.stride = 16 * (1 + below(4));
    c.selected = c.stride * (1 + below(static_cast<unsigned>(128 / c.stride)));
    c.block = c.stride + 16 * below(static_cast<unsigned>((c.selected - c.stride) / 16 + 1));
    c.count = 1 + below(6);
    const std::int64_t least = (c.count - 1) * c.is_m() + 1, sequences = 1 + below(4);
    std::int64_t queries = 0, keys = 0;
    for (std::int64_t b = 0; b < sequences; ++b) {
        if (below(4) != 0) {
            queries += below(8);
            keys += least + below(90);
        }
        c.query_ends.push_back(queries);
        c.key_ends.push_back(keys);
    }
    c.spare_queries = queries == 0 ? 1 : below(3);
    c.spare_keys = keys == 0 ? 1 : below(3);
    c.scale = std::ldexp(1.0, -static_cast<int>(below(4))) * (below(5) == 0 ? -1 : 1);
    return c;
}

struct CompressAttentionCall {
    using Halves = Strided<std::uint16_t>;

    CompressAttentionCase c;
    std::vector<std::int64_t> selected_ends;
    Halves query, key, value, output;
    Strided<float> row_max, row_sum;
    Strided<std::int32_t> topk;
    Strided<std::uint8_t> mask, topk_mask;

    explicit CompressAttentionCall(const CompressAttentionCase& from)
        : c(from),
          selected_ends(c.selected_ends()),
          query(halves(c.query_tokens(), c.query_heads(), c.head_dim)),
          key(halves(c.key_tokens(), c.kv_heads, c.head_dim)),
          value(halves(c.key_tokens(), c.kv_heads, c.value_dim)),
          output(halves(c.query_tokens(), c.query_heads(), c.value_dim)),
          row_max({c.query_tokens(), c.query_heads(), 8}, ATTNCHECK_FLOAT32, c.strided),
          row_sum(row_max),
          topk({c.query_tokens(), c.kv_heads, c.count}, ATTNCHECK_INT32, c.strided),
          mask({longest(c.query_ends), longest(c.key_ends)}, ATTNCHECK_BOOL, c.strided),
          topk_mask({longest(c.query_ends), c.candidates(longest(c.key_ends))}, ATTNCHECK_UINT8,
                    c.strided) {
        std::mt19937 random(c.seed);
        std::uniform_int_distribution<int> values(-128, 128);
        for (Halves* tensor : {&query, &key, &value})
            tensor->fill([&] { return encode(c.fp16, values(random)); });
        const unsigned density = 1 + random() % 4;
        mask.fill([&] { return static_cast<std::uint8_t>(random() % 5 < density ? 1 : 0); });
        for (std::int64_t s = 0; s < longest(c.query_ends); s += 3)
            for (std::int64_t i = 0; i < longest(c.key_ends); ++i)
                mask.at(s, i) = i % 5 != s;  // row 6: all hidden
        topk_mask.fill([&] { return static_cast<std::uint8_t>(random() % 5 == 0 ? 2 : 0); });
    }

    attncheck_nsa_compress_attention_args args() {
        return {query.view(),
                key.view(),
                value.view(),
                optional(mask, c.has_mask),
                optional(topk_mask, c.has_topk_mask),
                array(c.query_ends),
                array(c.key_ends),
                array(selected_ends),
                c.scale,
                c.query_heads(),
                "TND",
                c.has_mask ? 1 : 0,
                c.block,
                c.stride,
                c.selected,
                c.count,
                row_max.view(),
                row_sum.view(),
                output.view(),
                topk.view()};
    }

    static std::int64_t longest(const std::vector<std::int64_t>& ends) {
        return SelectedCall::longest(ends);
    }

private:
    Halves halves(std::int64_t rows, std::int64_t heads, std::int64_t channels) const {
        return {
            {rows, heads, channels}, c.fp16 ? ATTNCHECK_FLOAT16 : ATTNCHECK_BFLOAT16, c.strided};
    }
    static attncheck_int_array array(const std::vector<std::int64_t>& ends) {
        return {ends.data(), static_cast<std::int64_t>(ends.size())};
    }
    static attncheck_tensor optional(Strided<std::uint8_t>& tensor, bool present) {
        attncheck_tensor view = tensor.view();
        if (!present) view.data = nullptr;
        return view;
    }
};

/// Compares the library of mutants with the built-in implementation, element by element.
class CompressAttentionComparison {
public:
    explicit CompressAttentionComparison(const CompressAttentionCase& c)
        : c_(c), ours_(c), theirs_(c) {}

    /// Elements that differ by more than rounding; -1 if the library rejects the call.
    int count_errors() {
        const auto args = ours_.args();
        if (attncheck_nsa_compress_attention(&args) != ATTNCHECK_OK) return -1;
        impl::nsa_compress_attention(theirs_.args(), impl::default_attention_kernels());
        for (std::int64_t t = 0; t < c_.query_tokens(); ++t)
            for (std::int64_t head = 0; head < c_.query_heads(); ++head) compare_row(t, head);
        std::int64_t first_query = 0, first_key = 0;
        for (std::size_t b = 0; b < c_.query_ends.size(); ++b) {
            for (std::int64_t t = first_query; t < c_.query_ends[b]; ++t)
                for (std::int64_t n = 0; n < c_.kv_heads; ++n)
                    compare_lists(t, t - first_query, n, first_key, c_.key_ends[b] - first_key);
            first_query = c_.query_ends[b];
            first_key = c_.key_ends[b];
        }
        for (std::int64_t t = first_query; t < c_.query_tokens(); ++t)
            for (std::int64_t n = 0; n < c_.kv_heads; ++n)
                for (std::int64_t i = 0; i < c_.count; ++i)
                    errors_ += ours_.topk.at(t, n, i) != 0 || theirs_.topk.at(t, n, i) != 0;
        return errors_;
    }

private:
    double half(CompressAttentionCall::Halves& tensor, std::int64_t i, std::int64_t j,
                std::int64_t k) {
        return decode(c_.fp16, tensor.at(i, j, k));
    }

    // Two roundings to the output type, and fp32 sums.
    void compare_row(std::int64_t t, std::int64_t head) {
        for (std::int64_t k = 0; k < c_.value_dim; ++k) {
            const double a = half(ours_.output, t, head, k), b = half(theirs_.output, t, head, k);
            errors_ +=
                !(std::fabs(a - b) <= std::fabs(a) * std::ldexp(1.0, c_.fp16 ? -10 : -7) + 1e-4);
        }
        for (std::int64_t copy = 0; copy < 8; ++copy) {
            compare_statistic(ours_.row_max.at(t, head, copy), theirs_.row_max.at(t, head, copy));
            compare_statistic(ours_.row_sum.at(t, head, copy), theirs_.row_sum.at(t, head, copy));
        }
    }
    void compare_statistic(double a, double b) {
        errors_ += !(std::fabs(a - b) <= 2e-5 * std::max(1.0, std::fabs(a)));
    }

    // Equal, except for blocks whose scores differ by less than the rounding of fp32. Blocks of
    // score 0 have one order.
    void compare_lists(std::int64_t t, std::int64_t s, std::int64_t n, std::int64_t first_key,
                       std::int64_t keys) {
        const std::vector<double> scores = scores_of(t, s, n, first_key, keys);
        std::set<std::int32_t> listed;
        for (std::int64_t i = 0; i < c_.count; ++i) {
            const std::int32_t a = ours_.topk.at(t, n, i), b = theirs_.topk.at(t, n, i);
            const bool in_range = a >= 0 && a < std::ssize(scores) && b >= 0 &&
                                  b < std::ssize(scores) && listed.insert(a).second;
            errors_ += !in_range;
            if (!in_range || a == b) continue;
            const double ours = scores[static_cast<std::size_t>(a)],
                         theirs = scores[static_cast<std::size_t>(b)];
            errors_ += !(std::fabs(ours - theirs) <= 1e-4) || (ours == 0 && theirs == 0);
        }
    }

    /// nsa.md 6.4, as it stands there; 1e9 and more for forced blocks, each with its own number.
    std::vector<double> scores_of(std::int64_t t, std::int64_t s, std::int64_t n,
                                  std::int64_t first_key, std::int64_t keys) {
        std::vector<double> scores(static_cast<std::size_t>(c_.candidates(keys)));
        for (std::int64_t head = n * c_.group; head < (n + 1) * c_.group; ++head) {
            const std::vector<double> probs = probs_of(t, s, head, first_key, keys);
            for (std::int64_t j = 0; j < std::ssize(scores); ++j)
                for (std::int64_t m = 0; m < c_.is_m(); ++m)
                    for (std::int64_t r = 0; r < c_.block / c_.stride; ++r) {
                        const std::int64_t at = c_.is_m() * (j + 1) - m - r;
                        if (at >= 0 && at < keys)
                            scores[static_cast<std::size_t>(j)] +=
                                probs[static_cast<std::size_t>(at)];
                    }
        }
        for (std::int64_t j = 0; j < std::ssize(scores) && c_.has_topk_mask; ++j)
            if (ours_.topk_mask.at(s, j) != 0)
                scores[static_cast<std::size_t>(j)] = 1e9 + static_cast<double>(j);
        return scores;
    }

    std::vector<double> probs_of(std::int64_t t, std::int64_t s, std::int64_t head,
                                 std::int64_t first_key, std::int64_t keys) {
        std::vector<double> probs(static_cast<std::size_t>(keys), -HUGE_VAL);
        double most = -HUGE_VAL, sum = 0;
        for (std::int64_t i = 0; i < keys; ++i) {
            if (c_.has_mask && ours_.mask.at(s, i) != 0) continue;
            double dot = 0;
            for (std::int64_t k = 0; k < c_.head_dim; ++k)
                dot += half(ours_.query, t, head, k) *
                       half(ours_.key, first_key + i, head / c_.group, k);
            most = std::max(most, probs[static_cast<std::size_t>(i)] = c_.scale * dot);
        }
        for (double& p : probs) sum += p = p == -HUGE_VAL ? 0 : std::exp(p - most);
        for (double& p : probs) p = sum > 0 ? p / sum : 0;
        return probs;
    }

    CompressAttentionCase c_;
    CompressAttentionCall ours_, theirs_;
    int errors_ = 0;
};

inline int count_compress_attention_errors(const CompressAttentionCase& c) {
    return CompressAttentionComparison(c).count_errors();
}

}  // namespace attncheck::mutants
