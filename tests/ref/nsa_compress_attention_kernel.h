// Small problems of NsaCompressAttention and kernels that compute their scores in fp32, one
// rounding after every operation, in whatever way the contract leaves open.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "ref/operators/nsa_compress_attention_selection.h"

namespace attncheck::ref {

using Values = std::vector<double>;
using Bytes = std::vector<std::uint8_t>;
using Random = std::mt19937_64;

/// One query token per sequence position, all sequences with the same extents as `shape` says.
struct ScoreProblem {
    CompressAttentionShape shape;
    Dtype type = Dtype::bf16;
    Values query, key, value;
    double scale = 1;
    Bytes atten, topk;

    AttentionInputs<double> inputs() const { return {query, key, value, scale}; }
    CompressMasks masks() const { return {atten, topk}; }
    BlockScores scores(std::int64_t t, std::int64_t n, Grant grant = Grant::rounding) const {
        return ImportanceScores(shape, inputs(), masks(), type, grant)(t, n);
    }
    /// The canonical lists [T1,N2,K] by the exact scores; 0 behind the last sequence.
    std::vector<std::int32_t> selected_blocks() const {
        ImportanceScores scores(shape, inputs(), masks(), type);
        std::vector<std::int32_t> all;
        for (std::int64_t t = 0; t < shape.total_queries; ++t)
            for (std::int64_t n = 0; n < shape.kv_heads; ++n) {
                std::vector<std::int32_t> list(static_cast<std::size_t>(shape.select_count));
                if (scores.query(t).sequence >= 0)
                    list = select_blocks(scores(t, n), shape.select_count);
                all.insert(all.end(), list.begin(), list.end());
            }
        return all;
    }
    /// The logits of a query row in binary64; -infinity where hidden.
    Values logits(std::int64_t t, std::int64_t head) const;
};

inline Values ScoreProblem::logits(std::int64_t t, std::int64_t head) const {
    const PackedQuery place = compress_queries(shape)[static_cast<std::size_t>(t)];
    std::vector<KeyColumn> columns;
    compress_columns(shape, masks())(t, head, columns);
    Values all(static_cast<std::size_t>(place.kv_length), -HUGE_VAL);
    for (const KeyColumn& c : columns) {
        double sum = 0;
        for (std::int64_t d = 0; d < shape.head_dim; ++d)
            sum += query[static_cast<std::size_t>((t * shape.query_heads + head) * shape.head_dim +
                                                  d)] *
                   key[static_cast<std::size_t>(
                       (c.key * shape.kv_heads + head / shape.group()) * shape.head_dim + d)];
        all[static_cast<std::size_t>(c.key - place.first_key)] = scale * sum;
    }
    return all;
}

/// A problem of one sequence whose only channel gives the logits log(weight), the same in all
/// heads.
inline ScoreProblem problem_of_weights(const Values& weights, std::int64_t keys_per_select,
                                       std::int64_t strides_per_key, std::int64_t count) {
    ScoreProblem p;
    p.type = Dtype::fp32;
    p.shape.query_lengths = {1}, p.shape.total_queries = 1;
    p.shape.total_keys = static_cast<std::int64_t>(weights.size());
    p.shape.kv_lengths = {p.shape.total_keys};
    p.shape.compress_stride = 16, p.shape.compress_block = 16 * strides_per_key;
    p.shape.select_block = 16 * keys_per_select, p.shape.select_count = count;
    p.query = {1};
    for (const double w : weights) p.key.push_back(std::log(w));
    p.value.assign(weights.size(), 1);
    return p;
}

/// How a kernel arrives at its scores.
struct ScoreMethod {
    std::size_t tile = 0;  ///< columns of a tile, 0: all
    enum { second_pass, rescaled, stored_lse } prob = second_pass;
    enum { forward, backward, weighted, pairwise } window = forward;
    bool base2 = false, fused = false, reciprocal = false, late = false, tree = false;
    bool coarse_exp = false, flush_exp = false, reversed_dot = false;

    std::string text() const {
        std::ostringstream out;
        out << "tile " << tile << " prob " << prob << " window " << window
            << (base2 ? " base2" : "") << (fused ? " fused" : "")
            << (reciprocal ? " reciprocal" : "") << (late ? " late" : "") << (tree ? " tree" : "")
            << (coarse_exp ? " coarse" : "") << (flush_exp ? " flush" : "")
            << (reversed_dot ? " reversed" : "");
        return out.str();
    }
};

inline ScoreMethod draw_score_method(Random& random) {
    const auto coin = [&] { return random() % 2 == 0; };
    const std::size_t tiles[] = {0, 16, 32, 64, 128};
    ScoreMethod m;
    m.tile = tiles[random() % 5];
    m.prob = static_cast<decltype(m.prob)>(random() % 3);
    m.window = static_cast<decltype(m.window)>(random() % 4);
    m.base2 = coin(), m.fused = coin(), m.reciprocal = coin(), m.late = coin(), m.tree = coin();
    m.coarse_exp = coin(), m.flush_exp = coin(), m.reversed_dot = coin();
    return m;
}

class ScoreKernel {
public:
    ScoreKernel(const ScoreProblem& problem, const ScoreMethod& method) : p_(problem), m_(method) {}

    /// Group scores of every block, forced blocks included as if they were not.
    std::vector<float> run(std::int64_t t, std::int64_t kv_head) const {
        std::vector<std::vector<float>> heads;
        for (std::int64_t g = 0; g < p_.shape.group(); ++g)
            heads.push_back(head(t, kv_head * p_.shape.group() + g));
        std::vector<float> sum(heads[0].size());
        for (std::size_t j = 0; j < sum.size(); ++j) {
            std::vector<float> parts;
            for (const auto& each : heads) parts.push_back(each[j]);
            sum[j] = m_.tree ? pairwise(parts) : std::accumulate(parts.begin(), parts.end(), 0.0f);
        }
        return sum;
    }

    /// The list of such a kernel: forced blocks first, ties to the smaller number.
    std::vector<std::int64_t> list(std::int64_t t, std::int64_t kv_head) const {
        std::vector<float> scores = run(t, kv_head);
        const PackedQuery place = compress_queries(p_.shape)[static_cast<std::size_t>(t)];
        const std::int64_t row = place.position * p_.shape.most_select_blocks();
        for (std::size_t j = 0; j < scores.size() && !p_.topk.empty(); ++j)
            if (p_.topk[static_cast<std::size_t>(row) + j]) scores[j] = FLT_MAX;
        std::vector<std::int64_t> order(scores.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
            return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
        });
        order.resize(static_cast<std::size_t>(p_.shape.select_count));
        return order;
    }

private:
    static constexpr float kLog2e = 1.44269504f;

    float exp(float x) const {
        if (m_.flush_exp && x < (m_.base2 ? -125.5f : -87.0f)) return 0;
        const double e =
            m_.base2 ? std::exp2(static_cast<double>(x)) : std::exp(static_cast<double>(x));
        if (!m_.coarse_exp || x == 0) return static_cast<float>(e);
        const bool up = static_cast<std::int64_t>(x * 1024) % 2 != 0;
        return static_cast<float>(e * (1 + (up ? 3.4 : -3.4) * 0x1p-24));
    }

    static float pairwise(std::vector<float> level) {
        if (level.empty()) return 0;
        for (; level.size() > 1; level.resize((level.size() + 1) / 2))
            for (std::size_t i = 0; i < level.size(); i += 2)
                level[i / 2] = i + 1 < level.size() ? level[i] + level[i + 1] : level[i];
        return level[0];
    }

    float dot(std::int64_t t, std::int64_t n, std::int64_t key) const {
        const std::int64_t dim = p_.shape.head_dim;
        const double* q = p_.query.data() + (t * p_.shape.query_heads + n) * dim;
        const double* k = p_.key.data() + (key * p_.shape.kv_heads + n / p_.shape.group()) * dim;
        float sum = 0;
        for (std::int64_t i = 0; i < dim; ++i) {
            const std::int64_t d = m_.reversed_dot ? dim - 1 - i : i;
            const float a = static_cast<float>(q[d]), b = static_cast<float>(k[d]);
            sum = m_.fused ? std::fma(a, b, sum) : sum + a * b;
        }
        return sum;
    }

    /// P, or e with late normalisation, of every key of the sequence; and what to divide by.
    std::vector<float> head(std::int64_t t, std::int64_t n) const {
        const PackedQuery place = compress_queries(p_.shape)[static_cast<std::size_t>(t)];
        std::vector<KeyColumn> columns;
        compress_columns(p_.shape, p_.masks())(t, n, columns);
        std::vector<float> prob(static_cast<std::size_t>(place.kv_length), 0.0f);
        if (columns.empty()) return windows(prob, 1);
        const float scale = static_cast<float>(p_.scale);
        const float factor = m_.base2 ? scale * kLog2e : scale;
        std::vector<float> dots, scaled;
        for (const KeyColumn& c : columns) {
            dots.push_back(dot(t, n, c.key));
            scaled.push_back(dots.back() * factor);
        }
        const auto relative = [&](std::size_t j, float from) {
            return m_.fused ? std::fma(dots[j], factor, -from) : scaled[j] - from;
        };
        const std::size_t tile = m_.tile ? m_.tile : columns.size();
        float max = 0, sum = 0;
        std::vector<float> e(columns.size());
        for (std::size_t begin = 0; begin < columns.size(); begin += tile) {
            const std::size_t end = std::min(begin + tile, columns.size());
            float top = *std::max_element(scaled.begin() + static_cast<std::ptrdiff_t>(begin),
                                          scaled.begin() + static_cast<std::ptrdiff_t>(end));
            if (begin > 0) {
                top = std::max(top, max);
                const float alpha = exp(max - top);
                sum *= alpha;
                for (std::size_t j = 0; j < begin; ++j) e[j] *= alpha;
            }
            max = top;
            for (std::size_t j = begin; j < end; ++j) sum += e[j] = exp(relative(j, max));
        }
        const float log_sum = m_.base2 ? std::log2(sum) : std::log(sum);
        const float lse = max + log_sum, inverse = 1 / sum;
        const bool late = m_.late && m_.prob != ScoreMethod::stored_lse;
        for (std::size_t j = 0; j < columns.size(); ++j) {
            float& p = prob[static_cast<std::size_t>(columns[j].key - place.first_key)];
            if (m_.prob == ScoreMethod::stored_lse) {
                p = exp(relative(j, lse));
                continue;
            }
            p = m_.prob == ScoreMethod::rescaled ? e[j] : exp(relative(j, max));
            if (!late) p = m_.reciprocal ? p * inverse : p / sum;
        }
        return windows(prob, late ? sum : 1);
    }

    std::vector<float> windows(const std::vector<float>& prob, float sum) const {
        const std::int64_t m_count = p_.shape.keys_per_select(), keys = std::ssize(prob);
        const std::int64_t n_count = p_.shape.strides_per_key();
        std::vector<float> out;
        for (std::int64_t j = 0; j < p_.shape.select_blocks(keys); ++j) {
            std::vector<float> terms;
            for (std::int64_t m = 0; m < m_count; ++m)
                for (std::int64_t n = 0; n < n_count; ++n) {
                    const std::int64_t key = m_count * (j + 1) - m - n;
                    terms.push_back(key >= 0 && key < keys ? prob[static_cast<std::size_t>(key)]
                                                           : 0.0f);
                }
            if (m_.window == ScoreMethod::backward) std::reverse(terms.begin(), terms.end());
            float score = 0;
            if (m_.window == ScoreMethod::pairwise) {
                score = pairwise(terms);
            } else if (m_.window == ScoreMethod::weighted) {
                for (std::int64_t i = 0; i <= m_count + n_count - 2; ++i) {
                    const std::int64_t key = m_count * (j + 1) - i;
                    if (key >= 0 && key < keys)
                        score += static_cast<float>(window_weight(i, m_count, n_count)) *
                                 prob[static_cast<std::size_t>(key)];
                }
            } else {
                score = std::accumulate(terms.begin(), terms.end(), 0.0f);
            }
            out.push_back(sum == 1 ? score : score / sum);
        }
        return out;
    }

    const ScoreProblem& p_;
    const ScoreMethod& m_;
};

enum class ScoreKind { normal, spiky, integers, large_logits, offset, equal, zero, tiny, count };
inline const char* const kScoreKindNames[] = {"normal", "spiky", "integers", "large_logits",
                                              "offset", "equal", "zero",     "tiny"};

/// One sequence or two; a mask, forced blocks or neither.
inline ScoreProblem draw_score_problem(Random& random, Dtype type, ScoreKind kind,
                                       std::int64_t max_keys) {
    std::normal_distribution<double> normal;
    const auto up_to = [&](std::int64_t n) { return 1 + static_cast<std::int64_t>(random() % n); };
    ScoreProblem p;
    p.type = type;
    CompressAttentionShape& s = p.shape;
    s.kv_heads = up_to(2), s.query_heads = s.kv_heads << (random() % 4);
    const std::int64_t dims[] = {1, 2, 4, 8, 16, 32, 64};
    s.head_dim = dims[random() % 7], s.value_dim = 1;
    const std::int64_t strides_per_key = up_to(4);
    s.compress_stride = 16, s.compress_block = 16 * strides_per_key;
    s.select_block = 16 * (strides_per_key + static_cast<std::int64_t>(random() % 5));
    const std::int64_t sequences = up_to(2);
    std::int64_t fewest = 1 << 20;
    for (std::int64_t b = 0; b < sequences; ++b) {
        s.query_lengths.push_back(up_to(2));
        s.kv_lengths.push_back(up_to(max_keys));
        s.total_queries += s.query_lengths.back(), s.total_keys += s.kv_lengths.back();
        fewest = std::min(fewest, s.select_blocks(s.kv_lengths.back()));
    }
    s.select_count = up_to(std::min<std::int64_t>(fewest, 16));
    p.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_dim)));
    const auto fill = [&](Values& to, std::int64_t rows, std::int64_t heads) {
        to.resize(static_cast<std::size_t>(rows * heads * s.head_dim));
        for (double& v : to) {
            v = normal(random);
            if (kind == ScoreKind::spiky && random() % 16 == 0) v *= 20;
            if (kind == ScoreKind::integers) v = std::nearbyint(v * 2);
            if (kind == ScoreKind::large_logits) v *= 30;
        }
    };
    fill(p.query, s.total_queries, s.query_heads);
    fill(p.key, s.total_keys, s.kv_heads);
    const auto dim = static_cast<std::size_t>(s.head_dim);
    if (kind == ScoreKind::offset)
        for (std::size_t i = 0; i < p.key.size(); i += dim) p.key[i] += 200;
    if (kind == ScoreKind::equal)
        for (std::size_t i = 0; i < p.key.size(); ++i) p.key[i] = p.key[i % dim];
    if (kind == ScoreKind::zero) std::fill(p.query.begin(), p.query.end(), 0.0);
    if (kind == ScoreKind::tiny) p.scale = static_cast<float>(p.scale * 1e-6);
    for (Values* t : {&p.query, &p.key})
        for (double& v : *t) v = decode(type, encode(type, v));
    p.value.assign(static_cast<std::size_t>(s.total_keys * s.kv_heads), 1);
    if (random() % 2) {
        p.atten.resize(static_cast<std::size_t>(s.longest_query() * s.longest_cmp()));
        for (auto& hidden : p.atten) hidden = random() % 3 == 0;
    }
    if (random() % 2) {
        p.topk.resize(static_cast<std::size_t>(s.longest_query() * s.most_select_blocks()));
        for (auto& forced : p.topk) forced = random() % 5 == 0;
    }
    return p;
}

}  // namespace attncheck::ref
