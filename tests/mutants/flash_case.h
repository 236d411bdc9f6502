// For mutants_test: calls of FlashAttentionScore and its gradient, and what they must give, by
// plain loops in double precision.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "attncheck/candidate.h"
#include "plain_case.h"

namespace attncheck::mutants {

enum class Bias { none, plain, row, slopes, pairs };

struct FlashCase {
    std::string layout = "BSND";
    std::int32_t dtype = ATTNCHECK_FLOAT16;
    bool strided = false;
    std::vector<std::int64_t> query_lens{5}, kv_lens{7};  ///< per sequence; equal outside TND
    std::int64_t rows_beyond = 0;                         ///< TND
    std::int64_t kv_heads = 1, group = 1, head_dim = 16, value_dim = 16, rope_dim = 0;
    std::int64_t mode = 0;
    bool masked = false;
    std::int64_t pre = INT64_MAX, next = INT64_MAX;
    std::vector<std::int64_t> prefix{};
    std::int64_t pse_type = 1;
    Bias bias = Bias::none;
    std::int64_t query_start = 0, key_start = 0;
    double keep_prob = 1;
    bool dropped = false, as_input = false;
    double scale = 0.1875;
    unsigned seed = 7;

    bool is_tnd() const { return layout == "TND"; }
    std::int64_t batches() const { return static_cast<std::int64_t>(query_lens.size()); }
    std::int64_t query_heads() const { return kv_heads * group; }
    static std::int64_t before(const std::vector<std::int64_t>& lens, std::int64_t b) {
        std::int64_t sum = 0;
        for (std::int64_t k = 0; k < b; ++k) sum += lens[static_cast<std::size_t>(k)];
        return sum;
    }
    std::int64_t query_len(std::int64_t b) const { return query_lens[static_cast<std::size_t>(b)]; }
    std::int64_t kv_len(std::int64_t b) const { return kv_lens[static_cast<std::size_t>(b)]; }
};

/// A tensor of a floating type or of bytes with its memory, filled with 0x7b bytes.
class FlashTensor {
public:
    FlashTensor() = default;
    FlashTensor(std::vector<std::int64_t> shape, std::int32_t dtype, bool strided) {
        view_.dtype = dtype;
        view_.rank = static_cast<std::int32_t>(shape.size());
        std::int64_t pitch = strided ? 2 : 1;
        for (std::size_t k = shape.size(); k-- > 0;) {
            view_.shape[k] = shape[k];
            view_.strides[k] = pitch;
            pitch = pitch * std::max<std::int64_t>(shape[k], 1) + (strided ? 3 : 0);
        }
        memory_.assign(static_cast<std::size_t>((pitch + 1) * width()), 0x7b);
    }

    attncheck_tensor view() {
        if (view_.rank > 0) view_.data = memory_.data();
        return view_;
    }
    /// By row-major number.
    std::int64_t offset(std::int64_t number) const {
        std::int64_t sum = 0;
        for (int k = view_.rank - 1; k >= 0; --k) {
            sum += number % view_.shape[k] * view_.strides[k];
            number /= view_.shape[k];
        }
        return sum;
    }
    double get(std::int64_t number) const {
        const unsigned char* place = memory_.data() + offset(number) * width();
        if (view_.dtype == ATTNCHECK_FLOAT32) return *reinterpret_cast<const float*>(place);
        if (width() == 1) return *place;
        return decode(view_.dtype == ATTNCHECK_FLOAT16,
                      *reinterpret_cast<const std::uint16_t*>(place));
    }
    /// value * 64 for floating types, the byte otherwise.
    void set(std::int64_t number, int value) {
        unsigned char* place = memory_.data() + offset(number) * width();
        if (view_.dtype == ATTNCHECK_FLOAT32)
            *reinterpret_cast<float*>(place) = static_cast<float>(value) / 64.0f;
        else if (width() == 1)
            *place = static_cast<unsigned char>(value);
        else
            *reinterpret_cast<std::uint16_t*>(place) =
                encode(view_.dtype == ATTNCHECK_FLOAT16, value);
    }
    std::int64_t elements() const {
        std::int64_t count = view_.rank == 0 ? 0 : 1;
        for (int k = 0; k < view_.rank; ++k) count *= view_.shape[k];
        return count;
    }
    template <class Next>
    void fill(Next&& next) {
        for (std::int64_t k = 0; k < elements(); ++k) set(k, next());
    }

private:
    std::int64_t width() const {
        if (view_.dtype == ATTNCHECK_FLOAT32) return 4;
        return view_.dtype == ATTNCHECK_FLOAT16 || view_.dtype == ATTNCHECK_BFLOAT16 ? 2 : 1;
    }

    attncheck_tensor view_{};
    std::vector<unsigned char> memory_;
};

/// The operands of both directions. The gradient is given an output and statistics that do not
/// belong to the queries and keys, so that recomputing them shows.
struct FlashCall {
    FlashCase c;
    std::vector<std::int64_t> query_ends, key_ends;
    FlashTensor query, key, value, query_rope, key_rope, output, output_grad;
    FlashTensor dq, dk, dv, dq_rope, dk_rope, pse, drop, mask, row_max, row_sum;

    explicit FlashCall(const FlashCase& from) : c(from), random_(from.seed) {
        for (std::int64_t b = 1; b <= c.batches(); ++b) {
            query_ends.push_back(FlashCase::before(c.query_lens, b));
            key_ends.push_back(FlashCase::before(c.kv_lens, b));
        }
        query = operand(true, c.head_dim), key = operand(false, c.head_dim);
        value = operand(false, c.value_dim), output = operand(true, c.value_dim);
        if (c.rope_dim > 0) {
            query_rope = operand(true, c.rope_dim), key_rope = operand(false, c.rope_dim);
            dq_rope = query_rope, dk_rope = key_rope;
        }
        output_grad = output, dq = query, dk = key, dv = value;
        std::vector<std::int64_t> rows{c.batches(), c.query_heads(), c.query_lens[0], 8};
        if (c.is_tnd()) rows = {query_ends.back() + c.rows_beyond, c.query_heads(), 8};
        row_max = FlashTensor(rows, ATTNCHECK_FLOAT32, c.strided), row_sum = row_max;
        const auto any = [this] { return numbers_(random_); };
        for (FlashTensor* tensor : {&query, &key, &value, &query_rope, &key_rope})
            tensor->fill(any);
        make_bias();
        make_masks();
    }

    /// What the gradient takes besides.
    void prepare_gradient() {
        for (FlashTensor* tensor : {&output, &output_grad})
            tensor->fill([this] { return numbers_(random_); });
        std::uniform_int_distribution<int> sums(500, 2500);
        const std::int64_t rows = row_max.elements() / 8;
        for (FlashTensor* tensor : {&row_max, &row_sum})
            for (std::int64_t p = 0; p < rows; ++p) {
                const int entry = sums(random_) / (tensor == &row_max ? 16 : 1);
                for (std::int64_t copy = 0; copy < 8; ++copy) tensor->set(8 * p + copy, entry);
            }
    }

    attncheck_flash_attention_score_args forward_args() {
        attncheck_flash_attention_score_args a{};
        a.real_shift = pse.view(), a.softmax_out_layout = statistics_layout();
        a.attention_out = output.view();
        fill(a);
        return a;
    }
    attncheck_flash_attention_score_grad_args gradient_args() {
        attncheck_flash_attention_score_grad_args a{};
        a.pse_shift = pse.view(), a.softmax_in_layout = statistics_layout();
        a.attention_in = output.view(), a.dy = output_grad.view();
        a.dq = dq.view(), a.dk = dk.view(), a.dv = dv.view();
        a.dq_rope = dq_rope.view(), a.dk_rope = dk_rope.view();
        fill(a);
        return a;
    }

    /// Row-major number of channel k in an operand with `heads` heads of `channels` channels.
    std::int64_t number(bool is_query, std::int64_t channels, std::int64_t b, std::int64_t n,
                        std::int64_t i, std::int64_t k) const {
        const std::int64_t heads = is_query ? c.query_heads() : c.kv_heads;
        const std::int64_t rows = is_query ? c.query_lens[0] : c.kv_lens[0];
        const std::int64_t first = FlashCase::before(is_query ? c.query_lens : c.kv_lens, b);
        std::int64_t place = (first + i) * heads + n;  // TND, and BSH and BSND: equal lengths
        if (c.layout == "SBH") place = (i * c.batches() + b) * heads + n;
        if (c.layout == "BNSD") place = (b * heads + n) * rows + i;
        return place * channels + k;
    }

    /// Place of the statistics of a row, in units of 8.
    std::int64_t statistics_place(std::int64_t b, std::int64_t n, std::int64_t i) const {
        if (!c.is_tnd()) return (b * c.query_heads() + n) * c.query_lens[0] + i;
        const std::int64_t first = FlashCase::before(c.query_lens, b);
        if (c.as_input) return (first + i) * c.query_heads() + n;
        return first * c.query_heads() + n * c.query_len(b) + i;
    }

    std::int64_t pair(std::int64_t b, std::int64_t n, std::int64_t i, std::int64_t j) const {
        std::int64_t first = 0;
        for (std::int64_t a = 0; a < b; ++a) first += c.query_len(a) * c.kv_len(a);
        return c.query_heads() * first + (n * c.query_len(b) + i) * c.kv_len(b) + j;
    }

private:
    template <class Args>
    void fill(Args& a) {
        a.query = query.view(), a.key = key.view(), a.value = value.view();
        a.query_rope = query_rope.view(), a.key_rope = key_rope.view();
        a.drop_mask = drop.view(), a.atten_mask = mask.view();
        a.softmax_max = row_max.view(), a.softmax_sum = row_sum.view();
        if (c.is_tnd())
            a.actual_seq_q_len = array(query_ends), a.actual_seq_kv_len = array(key_ends);
        if (!c.prefix.empty()) a.prefix = array(c.prefix);
        if (c.bias == Bias::slopes) a.q_start_idx = {&c.query_start, 1};
        if (c.bias == Bias::slopes) a.kv_start_idx = {&c.key_start, 1};
        a.scale_value = c.scale, a.keep_prob = c.keep_prob;
        a.pre_tokens = c.pre, a.next_tokens = c.next, a.head_num = c.query_heads();
        a.input_layout = c.layout.c_str(), a.sparse_mode = c.mode, a.pse_type = c.pse_type;
    }
    static attncheck_int_array array(const std::vector<std::int64_t>& entries) {
        return {entries.data(), static_cast<std::int64_t>(entries.size())};
    }
    const char* statistics_layout() const { return c.as_input ? "same_as_input" : ""; }

    FlashTensor operand(bool is_query, std::int64_t channels) const {
        const std::int64_t heads = is_query ? c.query_heads() : c.kv_heads, b = c.batches();
        const std::int64_t rows = is_query ? c.query_lens[0] : c.kv_lens[0];
        const std::int64_t total = (is_query ? query_ends : key_ends).back() + c.rows_beyond;
        std::vector<std::int64_t> shape{b, rows, heads, channels};
        if (c.layout == "BSH") shape = {b, rows, heads * channels};
        if (c.layout == "SBH") shape = {rows, b, heads * channels};
        if (c.layout == "BNSD") shape = {b, heads, rows, channels};
        if (c.is_tnd()) shape = {total, heads, channels};
        return {shape, c.dtype, c.strided};
    }
    void make_bias() {
        const std::int64_t b = c.batches(), n = c.query_heads(), q = c.query_lens[0];
        const std::int64_t k = c.kv_lens[0];
        if (c.bias == Bias::none) return;
        std::vector<std::int64_t> shape{b, n, q, k};
        if (c.bias == Bias::row) shape = {1, n, 1, k};
        if (c.bias == Bias::slopes) shape = {b, n};
        if (c.bias == Bias::pairs) shape = {pair(b, 0, 0, 0)};
        pse = {shape, c.bias == Bias::slopes ? ATTNCHECK_FLOAT32 : c.dtype, c.strided};
        pse.fill([this] { return numbers_(random_) / 4; });
    }
    void make_masks() {
        std::uniform_int_distribution<int> bytes(0, 255), bits(0, 1);
        if (c.dropped) drop = {{(pair(c.batches(), 0, 0, 0) + 7) / 8}, ATTNCHECK_UINT8, c.strided};
        drop.fill([&] { return bytes(random_); });
        if (!c.masked) return;
        const std::int64_t q = *std::max_element(c.query_lens.begin(), c.query_lens.end());
        const std::int64_t k = *std::max_element(c.kv_lens.begin(), c.kv_lens.end());
        std::vector<std::int64_t> shape{c.mode == 6 ? 3072 : 2048, 2048};
        if (c.mode < 2 || c.mode == 5) shape = {c.batches(), 1, q, k};
        mask = {shape, ATTNCHECK_BOOL, c.strided && shape.size() == 4};
        if (shape.size() == 4) mask.fill([&] { return bits(random_); });  // else not to be read
    }

    std::mt19937 random_;
    std::uniform_int_distribution<int> numbers_{-128, 128};
};

/// Counts elements that differ from the plain loops.
class FlashOracle {
public:
    explicit FlashOracle(FlashCall& call) : call_(call), c_(call.c) {}

    int count_forward_errors() {
        for_each_row([&](const Row& r) {
            double row_max = r.z.empty() ? -FLT_MAX : -INFINITY,
                   row_sum = r.z.empty() ? FLT_MAX : 0;
            for (const double z : r.z) row_max = std::max(row_max, z);
            for (const double z : r.z) row_sum += std::exp(z - row_max);
            for (std::int64_t k = 0; k < c_.value_dim; ++k) {
                double sum = 0;
                for (std::size_t a = 0; a < r.z.size(); ++a)
                    if (const double kept = kept_factor(r, r.keys[a]); kept != 0)
                        sum += std::exp(r.z[a] - row_max) / row_sum * kept *
                               at(call_.value, false, c_.value_dim, r.b, r.kv_head, r.keys[a], k);
                check(sum, at(call_.output, true, c_.value_dim, r.b, r.n, r.i, k));
            }
            const std::int64_t place = 8 * call_.statistics_place(r.b, r.n, r.i);
            for (int copy = 0; copy < 8; ++copy) {
                compare(row_max, call_.row_max.get(place + copy));
                compare(row_sum, call_.row_sum.get(place + copy));
            }
        });
        check_beyond(call_.output, true, c_.value_dim);
        return errors_;
    }

    int count_gradient_errors() {
        const auto zeros = [](const FlashTensor& like) {
            return std::vector<double>(static_cast<std::size_t>(like.elements()));
        };
        std::vector<double> dq = zeros(call_.dq), dk = zeros(call_.dk), dv = zeros(call_.dv);
        std::vector<double> dq_rope, dk_rope;
        if (c_.rope_dim > 0) dq_rope = zeros(call_.dq_rope), dk_rope = zeros(call_.dk_rope);
        for_each_row([&](const Row& r) {
            const std::int64_t place = 8 * call_.statistics_place(r.b, r.n, r.i);
            for (std::size_t a = 0; a < r.z.size(); ++a) {
                const std::int64_t j = r.keys[a];
                const double p =
                    std::exp(r.z[a] - call_.row_max.get(place)) / call_.row_sum.get(place);
                const double kept = kept_factor(r, j);
                double dp = 0, delta = 0;
                for (std::int64_t k = 0; k < c_.value_dim; ++k) {
                    const double dy = at(call_.output_grad, true, c_.value_dim, r.b, r.n, r.i, k);
                    dp += dy * at(call_.value, false, c_.value_dim, r.b, r.kv_head, j, k);
                    delta += dy * at(call_.output, true, c_.value_dim, r.b, r.n, r.i, k);
                    dv[number(false, c_.value_dim, r.b, r.kv_head, j, k)] += p * kept * dy;
                }
                const double ds = c_.scale * p * (dp * kept - delta);
                add_products(ds, r, j, c_.head_dim, call_.query, call_.key, dq, dk);
                add_products(ds, r, j, c_.rope_dim, call_.query_rope, call_.key_rope, dq_rope,
                             dk_rope);
            }
        });
        check_all(dq, call_.dq), check_all(dk, call_.dk), check_all(dv, call_.dv);
        check_all(dq_rope, call_.dq_rope), check_all(dk_rope, call_.dk_rope);
        return errors_;
    }

private:
    struct Row {
        std::int64_t b, n, kv_head, i;
        std::vector<std::int64_t> keys;  ///< visible ones
        std::vector<double> z;           ///< their logits
    };

    std::size_t number(bool is_query, std::int64_t channels, std::int64_t b, std::int64_t n,
                       std::int64_t i, std::int64_t k) const {
        return static_cast<std::size_t>(call_.number(is_query, channels, b, n, i, k));
    }
    double at(const FlashTensor& tensor, bool is_query, std::int64_t channels, std::int64_t b,
              std::int64_t n, std::int64_t i, std::int64_t k) const {
        return tensor.get(call_.number(is_query, channels, b, n, i, k));
    }
    double dot(const Row& r, std::int64_t j, std::int64_t channels, const FlashTensor& q,
               const FlashTensor& key) const {
        double sum = 0;
        for (std::int64_t k = 0; k < channels; ++k)
            sum += at(q, true, channels, r.b, r.n, r.i, k) *
                   at(key, false, channels, r.b, r.kv_head, j, k);
        return sum;
    }
    void add_products(double ds, const Row& r, std::int64_t j, std::int64_t channels,
                      const FlashTensor& q, const FlashTensor& key, std::vector<double>& dq,
                      std::vector<double>& dk) const {
        for (std::int64_t k = 0; k < channels; ++k) {
            dq[number(true, channels, r.b, r.n, r.i, k)] +=
                ds * at(key, false, channels, r.b, r.kv_head, j, k);
            dk[number(false, channels, r.b, r.kv_head, j, k)] +=
                ds * at(q, true, channels, r.b, r.n, r.i, k);
        }
    }

    double bias(const Row& r, std::int64_t j) const {
        const std::int64_t heads = c_.query_heads(), q = c_.query_lens[0], k = c_.kv_lens[0];
        const double distance =
            std::fabs(static_cast<double>(j + c_.key_start - r.i - c_.query_start));
        switch (c_.bias) {
            case Bias::plain:
                return call_.pse.get(((r.b * heads + r.n) * q + r.i) * k + j);
            case Bias::row:
                return call_.pse.get(r.n * k + j);
            case Bias::pairs:
                return call_.pse.get(call_.pair(r.b, r.n, r.i, j));
            case Bias::slopes:
                return -call_.pse.get(r.b * heads + r.n) *
                       (c_.pse_type == 2 ? distance : std::sqrt(distance));
            default:
                return 0;
        }
    }
    double logit(const Row& r, std::int64_t j) const {
        const double a = dot(r, j, c_.head_dim, call_.query, call_.key) +
                         dot(r, j, c_.rope_dim, call_.query_rope, call_.key_rope);
        if (c_.pse_type == 1) return (a + bias(r, j)) * c_.scale;
        return a * c_.scale + bias(r, j);
    }
    double kept_factor(const Row& r, std::int64_t j) const {
        if (!c_.dropped) return 1;
        const std::int64_t bit = call_.pair(r.b, r.n, r.i, j);
        const int byte = static_cast<int>(call_.drop.get(bit / 8));
        return (byte >> bit % 8 & 1) != 0 ? 1.0 / static_cast<float>(c_.keep_prob) : 0;
    }

    bool sees(const Row& r, std::int64_t j) const {
        if (!c_.masked) return true;
        const std::int64_t delta = c_.kv_len(r.b) - c_.query_len(r.b), ahead = j - r.i;
        const auto in_band = [&](std::int64_t shift) {  // tokens are unlimited or small
            return (c_.pre == INT64_MAX || ahead - shift >= -c_.pre) &&
                   (c_.next == INT64_MAX || ahead - shift <= c_.next);
        };
        const auto open = [&] {
            const std::int64_t q = *std::max_element(c_.query_lens.begin(), c_.query_lens.end());
            const std::int64_t k = *std::max_element(c_.kv_lens.begin(), c_.kv_lens.end());
            return call_.mask.get((r.b * q + r.i) * k + j) == 0;
        };
        switch (c_.mode) {
            case 0:
                return open() && in_band(0);
            case 2:
                return ahead <= 0;
            case 3:
                return ahead <= delta;
            case 4:
                return in_band(delta);
            case 6:
                return ahead <= delta || j < c_.prefix[static_cast<std::size_t>(r.b)];
            case 7:  // these cases end, or begin, with a sequence that has queries
                return ahead <= delta + (r.b == c_.batches() - 1 ? c_.next : 0);
            case 8:
                return ahead <= (r.b == 0 ? delta + c_.next : 0);
            default:
                return open();
        }
    }

    template <class Visit>
    void for_each_row(Visit&& visit) {
        for (std::int64_t b = 0; b < c_.batches(); ++b)
            for (std::int64_t n = 0; n < c_.query_heads(); ++n)
                for (std::int64_t i = 0; i < c_.query_len(b); ++i) {
                    Row r{b, n, n / c_.group, i, {}, {}};
                    for (std::int64_t j = 0; j < c_.kv_len(b); ++j)
                        if (sees(r, j)) r.keys.push_back(j), r.z.push_back(logit(r, j));
                    visit(r);
                }
    }

    void check_beyond(const FlashTensor& tensor, bool is_query, std::int64_t channels) {
        const std::int64_t heads = is_query ? c_.query_heads() : c_.kv_heads;
        const std::int64_t begin = tensor.elements() - c_.rows_beyond * heads * channels;
        for (std::int64_t k = begin; k < tensor.elements(); ++k) compare(0, tensor.get(k));
        for (std::int64_t k = c_.rows_beyond * heads * 8; k > 0; --k) {
            compare(0, call_.row_max.get(call_.row_max.elements() - k));
            compare(0, call_.row_sum.get(call_.row_sum.elements() - k));
        }
    }
    void check_all(const std::vector<double>& expected, const FlashTensor& actual) {
        for (std::size_t k = 0; k < expected.size(); ++k)
            check(expected[k], actual.get(static_cast<std::int64_t>(k)));
    }
    /// Half an ulp, and fp32 sums of the size that these cases have.
    void check(double expected, double actual) {
        const int bits = c_.dtype == ATTNCHECK_FLOAT16   ? 11
                         : c_.dtype == ATTNCHECK_FLOAT32 ? 24
                                                         : 8;
        const double bound = std::fabs(expected) * (std::ldexp(1.0, -bits) + 4e-6) + 4e-6;
        errors_ += !(std::fabs(expected - actual) <= bound);
    }
    void compare(double expected, double actual) {
        errors_ += !(std::fabs(expected - actual) <= 1e-5 * std::max(1.0, std::fabs(expected)));
    }

    FlashCall& call_;
    FlashCase& c_;
    int errors_ = 0;
};

/// Elements of the outputs that are wrong; -1 if the call is rejected.
inline int count_flash_forward_errors(const FlashCase& c) {
    FlashCall call(c);
    const auto args = call.forward_args();
    if (attncheck_flash_attention_score(&args) != ATTNCHECK_OK) return -1;
    return FlashOracle(call).count_forward_errors();
}

inline int count_flash_gradient_errors(const FlashCase& c) {
    FlashCall call(c);
    call.prepare_gradient();
    const auto args = call.gradient_args();
    if (attncheck_flash_attention_score_grad(&args) != ATTNCHECK_OK) return -1;
    return FlashOracle(call).count_gradient_errors();
}

}  // namespace attncheck::mutants
