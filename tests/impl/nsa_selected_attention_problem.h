#ifndef ATTNCHECK_TESTS_IMPL_NSA_SELECTED_ATTENTION_PROBLEM_H
#define ATTNCHECK_TESTS_IMPL_NSA_SELECTED_ATTENTION_PROBLEM_H

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "attncheck/candidate.h"
#include "impl/kernels/half_formats.h"

// Problems of NsaSelectedAttention and what plain loops in binary64 make of them.
namespace attncheck::impl {

enum class Storage { kPacked, kHeadsFirst, kReversed };

// A rank 3 tensor (rank 2 with a first extent of 1) in strided storage with poisoned gaps.
template <class Element>
struct TestTensor {
    std::vector<std::int64_t> shape, strides;
    std::int64_t origin = 1;  // an address that is aligned to an element only
    std::vector<Element> storage;
    Element poison;

    TestTensor(std::vector<std::int64_t> extents, Storage how, Element fill)
        : shape(std::move(extents)), strides(3), poison(fill) {
        const std::vector<int> order = how == Storage::kPacked       ? std::vector{0, 1, 2}
                                       : how == Storage::kHeadsFirst ? std::vector{1, 0, 2}
                                                                     : std::vector{2, 0, 1};
        const std::int64_t gap = how == Storage::kReversed ? 2 : 1;
        std::int64_t step = gap;
        for (std::size_t i = 3; i-- > 0;) {
            const auto dim = static_cast<std::size_t>(order[i]);
            strides[dim] = step;
            step = step * shape[dim] + (gap > 1 ? 3 : 0);
        }
        if (how == Storage::kReversed) {
            for (std::size_t dim = 0; dim < 3; ++dim) {
                origin += strides[dim] * (shape[dim] - 1);
                strides[dim] = -strides[dim];
            }
        }
        storage.assign(static_cast<std::size_t>(step + 64), fill);
    }
    Element& at(std::int64_t i, std::int64_t j, std::int64_t k) {
        return storage[static_cast<std::size_t>(origin + i * strides[0] + j * strides[1] +
                                                k * strides[2])];
    }
    attncheck_tensor view(std::int32_t dtype) {
        attncheck_tensor made{};
        made.data = storage.data() + origin;
        made.dtype = dtype;
        made.rank = 3;
        for (std::size_t dim = 0; dim < 3; ++dim) {
            made.shape[dim] = shape[dim];
            made.strides[dim] = strides[dim];
        }
        return made;
    }
    std::int64_t elements() const { return shape[0] * shape[1] * shape[2]; }
    std::vector<Element> logical() {
        std::vector<Element> values;
        for (std::int64_t i = 0; i < shape[0]; ++i) {
            for (std::int64_t j = 0; j < shape[1]; ++j) {
                for (std::int64_t k = 0; k < shape[2]; ++k) values.push_back(at(i, j, k));
            }
        }
        return values;
    }
    std::int64_t poisoned() const {
        std::int64_t count = 0;
        for (const Element& element : storage) count += element == poison;
        return count;
    }
    void refill() { storage.assign(storage.size(), poison); }
};

using HalfTensor = TestTensor<std::uint16_t>;

enum class Sees { kAll, kCausal, kMask };

struct SelectedShape {
    std::int64_t kv_heads, group_size, head_dim, value_dim, block, count;
    Sees sees;
    std::vector<std::pair<std::int64_t, std::int64_t>> lengths;  // (queries, keys) per sequence
    std::int64_t spare_queries = 0, spare_keys = 0;              // tokens beyond the last sequence
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

constexpr std::uint16_t kHalfPoison = 0x5a5a;
constexpr float kFloatPoison = 1234.5f;
constexpr std::int32_t kTopkPoison = 1 << 30;

struct SelectedProblem {
    SelectedShape shape;
    HalfFormat format;
    HalfTensor query, key, value, output, output_grad, dq, dk, dv;
    TestTensor<float> row_max, row_sum;
    TestTensor<std::int32_t> topk;
    TestTensor<std::uint8_t> mask;  // [1, max S_q, max S_kv]
    std::vector<std::int64_t> query_ends, key_ends;

    SelectedProblem(const SelectedShape& of, HalfFormat half, Storage how = Storage::kPacked)
        : shape(of),
          format(half),
          query({of.queries(), of.heads(), of.head_dim}, how, kHalfPoison),
          key({of.keys(), of.kv_heads, of.head_dim}, how, kHalfPoison),
          value({of.keys(), of.kv_heads, of.value_dim}, how, kHalfPoison),
          output({of.queries(), of.heads(), of.value_dim}, how, kHalfPoison),
          output_grad({of.queries(), of.heads(), of.value_dim}, how, kHalfPoison),
          dq({of.queries(), of.heads(), of.head_dim}, how, kHalfPoison),
          dk({of.keys(), of.kv_heads, of.head_dim}, how, kHalfPoison),
          dv({of.keys(), of.kv_heads, of.value_dim}, how, kHalfPoison),
          row_max({of.queries(), of.heads(), 8}, how, kFloatPoison),
          row_sum({of.queries(), of.heads(), 8}, how, kFloatPoison),
          topk({of.queries(), of.kv_heads, of.count}, how, kTopkPoison),
          mask({1, of.longest(false), of.longest(true)}, how, 0) {
        std::int64_t queries = 0, keys = 0;
        for (const auto& [own_queries, own_keys] : shape.lengths) {
            query_ends.push_back(queries += own_queries);
            key_ends.push_back(keys += own_keys);
        }
        std::mt19937 random(11);
        for (HalfTensor* tensor : {&query, &key, &value, &output_grad}) fill(*tensor, random);
        fill_lists(random);
        fill_mask(random);
    }
    void fill(HalfTensor& tensor, std::mt19937& random) {
        std::normal_distribution<float> values(0.0f, 1.0f);
        for_each_element(tensor, [&](auto& element) { element = narrow(format, values(random)); });
    }
    template <class Element, class Visit>
    static void for_each_element(TestTensor<Element>& tensor, const Visit& visit) {
        for (std::int64_t i = 0; i < tensor.shape[0]; ++i) {
            for (std::int64_t j = 0; j < tensor.shape[1]; ++j) {
                for (std::int64_t k = 0; k < tensor.shape[2]; ++k) visit(tensor.at(i, j, k));
            }
        }
    }
    // Any block of the sequence, often one of the first three: duplicates, any order, and under
    // causal visibility lists that lie entirely in the future. Rows that nobody looks at stay
    // poisoned.
    void fill_lists(std::mt19937& random) {
        for (std::size_t b = 0; b < shape.lengths.size(); ++b) {
            const auto [own_queries, own_keys] = shape.lengths[b];
            if (own_keys == 0) continue;
            const auto num_blocks = static_cast<std::uint32_t>(own_keys / shape.block);
            for (std::int64_t t = query_ends[b] - own_queries; t < query_ends[b]; ++t) {
                for (std::int64_t n = 0; n < shape.kv_heads; ++n) {
                    for (std::int64_t i = 0; i < shape.count; ++i) {
                        const std::uint32_t limit =
                            random() % 2 ? num_blocks : std::min<std::uint32_t>(3, num_blocks);
                        topk.at(t, n, i) = static_cast<std::int32_t>(random() % limit);
                    }
                }
            }
        }
    }
    // Runs of hidden keys and rows of every kind; in row 1 everything is hidden.
    void fill_mask(std::mt19937& random) {
        for (std::int64_t s = 0; s < mask.shape[1]; ++s) {
            const std::uint32_t change = 2 + random() % 20;
            bool hidden = random() % 2;
            for (std::int64_t j = 0; j < mask.shape[2]; ++j) {
                if (random() % change == 0) hidden = !hidden;
                mask.at(0, s, j) = s == 1 || hidden ? static_cast<std::uint8_t>(1 + s % 255) : 0;
            }
        }
    }

    bool visible(std::int64_t query_pos, std::int64_t key_pos) {
        if (shape.sees == Sees::kCausal) return key_pos <= query_pos;
        if (shape.sees == Sees::kMask) return mask.at(0, query_pos, key_pos) == 0;
        return true;
    }
    // visit(t, kv head, key token) for every visible pair, as often as the list has it.
    template <class Visit>
    void for_each_pair(const Visit& visit) {
        for (std::size_t b = 0; b < shape.lengths.size(); ++b) {
            const auto [own_queries, own_keys] = shape.lengths[b];
            if (own_keys == 0) continue;
            const std::int64_t first = query_ends[b] - own_queries,
                               key_begin = key_ends[b] - own_keys;
            for (std::int64_t t = first; t < query_ends[b]; ++t) {
                for (std::int64_t n = 0; n < shape.kv_heads; ++n) {
                    for (std::int64_t i = 0; i < shape.count; ++i) {
                        for (std::int64_t r = 0; r < shape.block; ++r) {
                            const std::int64_t pos = topk.at(t, n, i) * shape.block + r;
                            if (visible(t - first, pos)) visit(t, n, key_begin + pos);
                        }
                    }
                }
            }
        }
    }

    std::int32_t dtype() const {
        return format == HalfFormat::kFp16 ? ATTNCHECK_FLOAT16 : ATTNCHECK_BFLOAT16;
    }
    attncheck_tensor mask_view() {
        attncheck_tensor view{};
        if (shape.sees == Sees::kAll) return view;
        view.data = mask.storage.data() + mask.origin;
        view.dtype = ATTNCHECK_BOOL;
        view.rank = 2;
        for (int dim = 0; dim < 2; ++dim) {
            view.shape[dim] = mask.shape[static_cast<std::size_t>(dim) + 1];
            view.strides[dim] = mask.strides[static_cast<std::size_t>(dim) + 1];
        }
        return view;
    }
    attncheck_nsa_selected_attention_args forward_args() {
        return {query.view(dtype()),
                key.view(dtype()),
                value.view(dtype()),
                topk.view(ATTNCHECK_INT32),
                mask_view(),
                {query_ends.data(), std::ssize(query_ends)},
                {key_ends.data(), std::ssize(key_ends)},
                shape.scale,
                shape.heads(),
                "TND",
                shape.sees == Sees::kMask ? 0 : 2,
                shape.block,
                shape.count,
                row_max.view(ATTNCHECK_FLOAT32),
                row_sum.view(ATTNCHECK_FLOAT32),
                output.view(dtype())};
    }
    attncheck_nsa_selected_attention_grad_args gradient_args() {
        return {query.view(dtype()),
                key.view(dtype()),
                value.view(dtype()),
                output.view(dtype()),
                output_grad.view(dtype()),
                row_max.view(ATTNCHECK_FLOAT32),
                row_sum.view(ATTNCHECK_FLOAT32),
                topk.view(ATTNCHECK_INT32),
                {query_ends.data(), std::ssize(query_ends)},
                {key_ends.data(), std::ssize(key_ends)},
                mask_view(),
                shape.scale,
                shape.block,
                shape.count,
                shape.heads(),
                "TND",
                shape.sees == Sees::kMask ? 0 : 2,
                dq.view(dtype()),
                dk.view(dtype()),
                dv.view(dtype())};
    }
    double number(HalfTensor& tensor, std::int64_t i, std::int64_t j, std::int64_t k) {
        return static_cast<double>(widen(format, tensor.at(i, j, k)));
    }
};

// A sum and by what its error is measured: the sum of its absolute terms, for what happens in fp32,
// and the same with the weights (P or dS) that they have, for the rounding of these.
struct Sum {
    double value = 0, size = 0, weighted = 0;
    void add(double term) { value += term, size += std::abs(term), weighted += std::abs(term); }
};

// [extents] of sums in row-major order.
struct SumTensor {
    std::vector<std::int64_t> shape;
    std::vector<Sum> sums;
    explicit SumTensor(const std::vector<std::int64_t>& extents)
        : shape(extents), sums(static_cast<std::size_t>(extents[0] * extents[1] * extents[2])) {}
    Sum& at(std::int64_t i, std::int64_t j, std::int64_t k) {
        return sums[static_cast<std::size_t>((i * shape[1] + j) * shape[2] + k)];
    }
};

// The elements of a tensor, dense: every row is read once for each row of the other side.
struct Numbers {
    std::vector<std::int64_t> shape;
    std::vector<double> all;
    Numbers(SelectedProblem& p, HalfTensor& of) : shape(of.shape) {
        for (std::int64_t i = 0; i < shape[0]; ++i)
            for (std::int64_t j = 0; j < shape[1]; ++j)
                for (std::int64_t k = 0; k < shape[2]; ++k) all.push_back(p.number(of, i, j, k));
    }
    const double* row(std::int64_t i, std::int64_t j) const {
        return all.data() + (i * shape[1] + j) * shape[2];
    }
};

inline double expected_logit(const SelectedShape& s, const double* query, const double* key) {
    double dot = 0;
    for (std::int64_t c = 0; c < s.head_dim; ++c) dot += query[c] * key[c];
    return static_cast<double>(static_cast<float>(s.scale)) * dot;
}

struct ExpectedForward {
    std::vector<double> row_max, row_sum;  // [T1 * N1]; -inf and 0 without a visible key
    SumTensor output;
};

inline ExpectedForward expected_forward(SelectedProblem& p) {
    const SelectedShape& s = p.shape;
    const auto rows = static_cast<std::size_t>(s.queries() * s.heads());
    ExpectedForward e{std::vector<double>(rows, -std::numeric_limits<double>::infinity()),
                      std::vector<double>(rows), SumTensor(p.output.shape)};
    const Numbers query(p, p.query), keys(p, p.key), values(p, p.value);
    const auto logit = [&](std::int64_t t, std::int64_t head, std::int64_t key) {
        return expected_logit(s, query.row(t, head), keys.row(key, head / s.group_size));
    };
    const auto for_each_row = [&](const auto& visit) {
        p.for_each_pair([&](std::int64_t t, std::int64_t n, std::int64_t key) {
            for (std::int64_t head = n * s.group_size; head < (n + 1) * s.group_size; ++head)
                visit(t, head, key, static_cast<std::size_t>(t * s.heads() + head));
        });
    };
    for_each_row([&](std::int64_t t, std::int64_t head, std::int64_t key, std::size_t row) {
        e.row_max[row] = std::max(e.row_max[row], logit(t, head, key));
    });
    for_each_row([&](std::int64_t t, std::int64_t head, std::int64_t key, std::size_t row) {
        const double prob = std::exp(logit(t, head, key) - e.row_max[row]);
        e.row_sum[row] += prob;
        const double* value = values.row(key, head / s.group_size);
        Sum* output = &e.output.at(t, head, 0);
        for (std::int64_t c = 0; c < s.value_dim; ++c) output[c].add(prob * value[c]);
    });
    for (std::size_t i = 0; i < e.output.sums.size(); ++i) {
        const double sum = e.row_sum[i / static_cast<std::size_t>(s.value_dim)];
        Sum& output = e.output.sums[i];
        if (sum > 0) output = {output.value / sum, output.size / sum, output.weighted / sum};
    }
    return e;
}

struct ExpectedGradient {
    SumTensor dq, dk, dv;
};

// From the statistics and the output that the problem holds.
inline ExpectedGradient expected_gradient(SelectedProblem& p) {
    const SelectedShape& s = p.shape;
    ExpectedGradient e{SumTensor(p.dq.shape), SumTensor(p.dk.shape), SumTensor(p.dv.shape)};
    const double scale = static_cast<double>(static_cast<float>(s.scale));
    const Numbers queries(p, p.query), keys(p, p.key), values(p, p.value), outputs(p, p.output), grads(p, p.output_grad);
    p.for_each_pair([&](std::int64_t t, std::int64_t n, std::int64_t key) {
        const double *const k = keys.row(key, n), *const v = values.row(key, n);
        for (std::int64_t head = n * s.group_size; head < (n + 1) * s.group_size; ++head) {
            const double *const q = queries.row(t, head), *const output = outputs.row(t, head),
                               *const grad = grads.row(t, head);
            Sum *const dq = &e.dq.at(t, head, 0), *const dk = &e.dk.at(key, n, 0),
                       *const dv = &e.dv.at(key, n, 0);
            const double prob = std::exp(expected_logit(s, q, k) - p.row_max.at(t, head, 0)) /
                                p.row_sum.at(t, head, 0);
            Sum centred;  // dP - delta
            for (std::int64_t c = 0; c < s.value_dim; ++c) {
                centred.add(grad[c] * v[c]);
                centred.add(-grad[c] * output[c]);
                dv[c].add(prob * grad[c]);
            }
            const Sum score_grad{prob * centred.value * scale,
                                 std::abs(prob * centred.size * scale),
                                 std::abs(prob * centred.value * scale)};
            for (std::int64_t c = 0; c < s.head_dim; ++c) {
                dq[c].value += score_grad.value * k[c], dq[c].size += score_grad.size * std::abs(k[c]);
                dk[c].value += score_grad.value * q[c], dk[c].size += score_grad.size * std::abs(q[c]);
                dq[c].weighted += score_grad.weighted * std::abs(k[c]);
                dk[c].weighted += score_grad.weighted * std::abs(q[c]);
            }
        }
    });
    return e;
}

}  // namespace attncheck::impl

#endif  // ATTNCHECK_TESTS_IMPL_NSA_SELECTED_ATTENTION_PROBLEM_H
