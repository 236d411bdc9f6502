// For mutants_test: calls of NsaSelectedAttention and its gradient, and what they must give, by
// plain loops in double precision.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "attncheck/candidate.h"
#include "plain_case.h"

namespace attncheck::mutants {

enum class MaskKind { none, mode_0, mode_2, mode_2_without_mask };

struct SelectedCase {
    bool fp16 = true, strided = false;
    std::vector<std::int64_t> query_ends, key_ends;
    std::int64_t query_tokens = 0, key_tokens = 0;
    std::int64_t kv_heads = 1, group = 1, head_dim = 128, value_dim = 128;
    std::int64_t block = 16, count = 1;
    MaskKind mask = MaskKind::none;
    double scale = 0.09375;
    unsigned seed = 7;

    std::int64_t query_heads() const { return kv_heads * group; }
};

/// A tensor of any element type with its memory, filled with 0x7b bytes.
template <class Element>
class Strided {
public:
    Strided(std::vector<std::int64_t> shape, std::int32_t dtype, bool strided) {
        view_.dtype = dtype;
        view_.rank = static_cast<std::int32_t>(shape.size());
        std::int64_t pitch = strided ? 2 : 1;
        for (std::size_t i = shape.size(); i-- > 0;) {
            view_.shape[i] = shape[i];
            view_.strides[i] = pitch;
            pitch = pitch * shape[i] + (strided ? 3 : 0);
        }
        Element fill{};
        std::fill_n(reinterpret_cast<unsigned char*>(&fill), sizeof fill, 0x7b);
        memory_.assign(static_cast<std::size_t>(pitch) + 1, fill);
        view_.data = memory_.data();
    }

    const attncheck_tensor& view() {
        view_.data = memory_.data();  // copies have memory of their own
        return view_;
    }
    Element& at(std::int64_t i, std::int64_t j, std::int64_t k = 0) {
        return memory_[static_cast<std::size_t>(i * view_.strides[0] + j * view_.strides[1] +
                                                (view_.rank > 2 ? k * view_.strides[2] : 0))];
    }
    template <class Next>
    void fill(Next&& next) {
        for (Element& element : memory_) element = next();
    }

private:
    attncheck_tensor view_{};
    std::vector<Element> memory_;
};

/// The operands of both directions. The gradient is given an output and statistics that do not
/// belong to the queries and keys, so that recomputing them shows.
struct SelectedCall {
    using Halves = Strided<std::uint16_t>;

    SelectedCase c;
    Halves query, key, value, output, output_grad, dq, dk, dv;
    Strided<float> row_max, row_sum;
    Strided<std::int32_t> topk;
    Strided<std::uint8_t> mask;

    explicit SelectedCall(const SelectedCase& from)
        : c(from),
          query(halves(c.query_tokens, c.query_heads(), c.head_dim)),
          key(halves(c.key_tokens, c.kv_heads, c.head_dim)),
          value(halves(c.key_tokens, c.kv_heads, c.value_dim)),
          output(halves(c.query_tokens, c.query_heads(), c.value_dim)),
          output_grad(output),
          dq(query),
          dk(key),
          dv(value),
          row_max({c.query_tokens, c.query_heads(), 8}, ATTNCHECK_FLOAT32, c.strided),
          row_sum(row_max),
          topk({c.query_tokens, c.kv_heads, c.count}, ATTNCHECK_INT32, c.strided),
          mask({longest(c.query_ends), longest(c.key_ends)}, ATTNCHECK_BOOL, c.strided),
          random_(c.seed) {
        std::uniform_int_distribution<int> values(-128, 128), bits(0, 1);
        for (Halves* tensor : {&query, &key, &value})
            tensor->fill([&] { return encode(c.fp16, values(random_)); });
        mask.fill([&] { return static_cast<std::uint8_t>(bits(random_)); });
        fill_lists();
    }

    /// What the gradient takes besides.
    void prepare_gradient() {
        std::uniform_int_distribution<int> values(-128, 128);
        std::uniform_real_distribution<float> sums(8, 40);
        for (Halves* tensor : {&output, &output_grad})
            tensor->fill([&] { return encode(c.fp16, values(random_)); });
        row_max.fill([&] { return sums(random_) / 16; });
        row_sum.fill([&] { return sums(random_); });
    }

    attncheck_nsa_selected_attention_args forward_args() {
        return {query.view(),
                key.view(),
                value.view(),
                topk.view(),
                mask_view(),
                array(c.query_ends),
                array(c.key_ends),
                c.scale,
                c.query_heads(),
                "TND",
                mode(),
                c.block,
                c.count,
                row_max.view(),
                row_sum.view(),
                output.view()};
    }
    attncheck_nsa_selected_attention_grad_args gradient_args() {
        return {query.view(),
                key.view(),
                value.view(),
                output.view(),
                output_grad.view(),
                row_max.view(),
                row_sum.view(),
                topk.view(),
                array(c.query_ends),
                array(c.key_ends),
                mask_view(),
                c.scale,
                c.block,
                c.count,
                c.query_heads(),
                "TND",
                mode(),
                dq.view(),
                dk.view(),
                dv.view()};
    }

    static std::int64_t longest(const std::vector<std::int64_t>& ends) {
        std::int64_t most = 0, begin = 0;
        for (const std::int64_t end : ends) {
            most = std::max(most, end - begin);
            begin = end;
        }
        return most;
    }

private:
    Halves halves(std::int64_t rows, std::int64_t heads, std::int64_t channels) const {
        return {
            {rows, heads, channels}, c.fp16 ? ATTNCHECK_FLOAT16 : ATTNCHECK_BFLOAT16, c.strided};
    }
    static attncheck_int_array array(const std::vector<std::int64_t>& ends) {
        return {ends.data(), static_cast<std::int64_t>(ends.size())};
    }
    std::int64_t mode() const {
        return c.mask == MaskKind::mode_2 || c.mask == MaskKind::mode_2_without_mask ? 2 : 0;
    }
    attncheck_tensor mask_view() {
        attncheck_tensor view = mask.view();
        if (c.mask == MaskKind::none || c.mask == MaskKind::mode_2_without_mask)
            view.data = nullptr;
        return view;
    }

    /// Random blocks, repeated ones among them; junk where no list is looked at.
    void fill_lists() {
        topk.fill([] { return -5; });
        std::int64_t first_query = 0, first_key = 0;
        for (std::size_t b = 0; b < c.query_ends.size(); ++b) {
            const std::int64_t blocks = (c.key_ends[b] - first_key) / c.block;
            std::uniform_int_distribution<int> block(0, static_cast<int>(blocks) - 1);
            for (std::int64_t t = first_query; t < c.query_ends[b] && blocks > 0; ++t)
                for (std::int64_t head = 0; head < c.kv_heads; ++head)
                    for (std::int64_t i = 0; i < c.count; ++i) topk.at(t, head, i) = block(random_);
            first_query = c.query_ends[b];
            first_key = c.key_ends[b];
        }
    }

    std::mt19937 random_;
};

/// Counts elements that differ from the plain loops.
class SelectedOracle {
public:
    explicit SelectedOracle(SelectedCall& call) : call_(call), c_(call.c) {}

    int count_forward_errors() {
        for_each_row([&](const Row& row) {
            double row_max = row.is_beyond ? 0 : -FLT_MAX, row_sum = row.is_beyond ? 0 : FLT_MAX;
            const std::vector<double> o = attended(row, row_max, row_sum);
            for (std::int64_t k = 0; k < c_.value_dim; ++k)
                check(o[size(k)], half(call_.output, row.t, row.head, k));
            for (int copy = 0; copy < 8; ++copy) {
                check_fp32(row_max, call_.row_max.at(row.t, row.head, copy));
                check_fp32(row_sum, call_.row_sum.at(row.t, row.head, copy));
            }
        });
        return errors_;
    }

    int count_gradient_errors() {
        std::vector<double> dk(size(c_.key_tokens * c_.kv_heads * c_.head_dim));
        std::vector<double> dv(size(c_.key_tokens * c_.kv_heads * c_.value_dim));
        for_each_row([&](const Row& row) {
            std::vector<double> dq(size(c_.head_dim));
            for (const std::int64_t u : row.keys) {
                const double p = std::exp(logit(row, u) - call_.row_max.at(row.t, row.head)) /
                                 call_.row_sum.at(row.t, row.head);
                double dp_minus_delta = 0;
                const std::int64_t key_row = u * c_.kv_heads + row.kv_head;
                for (std::int64_t k = 0; k < c_.value_dim; ++k) {
                    const double grad = half(call_.output_grad, row.t, row.head, k);
                    dp_minus_delta += grad * (half(call_.value, u, row.kv_head, k) -
                                              half(call_.output, row.t, row.head, k));
                    dv[size(key_row * c_.value_dim + k)] += p * grad;
                }
                const double ds = p * dp_minus_delta * c_.scale;
                for (std::int64_t k = 0; k < c_.head_dim; ++k) {
                    dq[size(k)] += ds * half(call_.key, u, row.kv_head, k);
                    dk[size(key_row * c_.head_dim + k)] +=
                        ds * half(call_.query, row.t, row.head, k);
                }
            }
            for (std::int64_t k = 0; k < c_.head_dim; ++k)
                check(dq[size(k)], half(call_.dq, row.t, row.head, k));
        });
        for (std::int64_t u = 0; u < c_.key_tokens; ++u)
            for (std::int64_t head = 0; head < c_.kv_heads; ++head) {
                const std::int64_t row = u * c_.kv_heads + head;
                for (std::int64_t k = 0; k < c_.head_dim; ++k)
                    check(dk[size(row * c_.head_dim + k)], half(call_.dk, u, head, k));
                for (std::int64_t k = 0; k < c_.value_dim; ++k)
                    check(dv[size(row * c_.value_dim + k)], half(call_.dv, u, head, k));
            }
        return errors_;
    }

private:
    struct Row {
        std::int64_t t, head, kv_head;
        bool is_beyond;
        std::vector<std::int64_t> keys;  ///< visible ones, as often as they are listed
    };

    static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
    double half(SelectedCall::Halves& tensor, std::int64_t i, std::int64_t j, std::int64_t k) {
        return decode(c_.fp16, tensor.at(i, j, k));
    }

    double logit(const Row& row, std::int64_t u) {
        double sum = 0;
        for (std::int64_t k = 0; k < c_.head_dim; ++k)
            sum += half(call_.query, row.t, row.head, k) * half(call_.key, u, row.kv_head, k);
        return c_.scale * sum;
    }

    /// The row of the output; the statistics change only if the row has keys.
    std::vector<double> attended(const Row& row, double& row_max, double& row_sum) {
        std::vector<double> logits, o(size(c_.value_dim));
        for (const std::int64_t u : row.keys) logits.push_back(logit(row, u));
        if (logits.empty()) return o;
        row_max = *std::max_element(logits.begin(), logits.end());
        for (const double a : logits)
            if (std::isnan(a)) row_max = a;
        row_sum = 0;
        for (const double a : logits) row_sum += std::exp(a - row_max);
        for (std::size_t j = 0; j < logits.size(); ++j)
            for (std::int64_t k = 0; k < c_.value_dim; ++k)
                o[size(k)] += std::exp(logits[j] - row_max) / row_sum *
                              half(call_.value, row.keys[j], row.kv_head, k);
        return o;
    }

    template <class Visit>
    void for_each_row(Visit&& visit) {
        std::int64_t t = 0, first_key = 0;
        for (std::size_t b = 0; b <= c_.query_ends.size(); ++b) {
            const bool is_beyond = b == c_.query_ends.size();
            const std::int64_t begin = t, end = is_beyond ? c_.query_tokens : c_.query_ends[b];
            const std::int64_t kv_len = is_beyond ? 0 : c_.key_ends[b] - first_key;
            for (; t < end; ++t)
                for (std::int64_t head = 0; head < c_.query_heads(); ++head) {
                    Row row{t, head, head / c_.group, is_beyond, {}};
                    if (kv_len > 0) row.keys = visible_keys(t, t - begin, row.kv_head, first_key);
                    visit(row);
                }
            if (!is_beyond) first_key = c_.key_ends[b];
        }
    }

    std::vector<std::int64_t> visible_keys(std::int64_t t, std::int64_t s, std::int64_t kv_head,
                                           std::int64_t first_key) {
        std::vector<std::int64_t> keys;
        for (std::int64_t i = 0; i < c_.count; ++i)
            for (std::int64_t r = 0; r < c_.block; ++r) {
                const std::int64_t position = call_.topk.at(t, kv_head, i) * c_.block + r;
                const bool hidden =
                    (c_.mask == MaskKind::mode_2 && position > s) ||
                    (c_.mask == MaskKind::mode_0 && call_.mask.at(s, position) != 0);
                if (!hidden) keys.push_back(first_key + position);
            }
        return keys;
    }

    /// Half an ulp, and fp32 sums of the size that these cases have. In place of a number that is
    /// not finite any such will do.
    void check(double expected, double actual) {
        const double bound = std::fabs(expected) * (std::ldexp(1.0, c_.fp16 ? -11 : -8) + 2e-6) +
                             2e-4 * std::max(1.0, std::fabs(expected) * 1e-2);
        compare(expected, actual, bound);
    }
    void check_fp32(double expected, double actual) {
        compare(expected, actual, 1e-5 * std::max(1.0, std::fabs(expected)));
    }
    void compare(double expected, double actual, double bound) {
        const bool agrees = std::isfinite(expected) ? std::fabs(expected - actual) <= bound
                                                    : !std::isfinite(actual);
        errors_ += !agrees;
    }

    SelectedCall& call_;
    SelectedCase& c_;
    int errors_ = 0;
};

/// Elements of the outputs that are wrong; -1 if the call is rejected.
inline int count_selected_forward_errors(const SelectedCase& c) {
    SelectedCall call(c);
    const auto args = call.forward_args();
    if (attncheck_nsa_selected_attention(&args) != ATTNCHECK_OK) return -1;
    return SelectedOracle(call).count_forward_errors();
}

inline int count_selected_gradient_errors(const SelectedCase& c) {
    SelectedCall call(c);
    call.prepare_gradient();
    const auto args = call.gradient_args();
    if (attncheck_nsa_selected_attention_grad(&args) != ATTNCHECK_OK) return -1;
    return SelectedOracle(call).count_gradient_errors();
}

}  // namespace attncheck::mutants
