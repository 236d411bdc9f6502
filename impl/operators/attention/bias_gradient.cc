#include "impl/operators/attention/bias_gradient.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "impl/runtime/thread_pool.h"

namespace attncheck::impl {
namespace {

struct BiasProblem {
    const AttentionPlan& plan;
    const GradientRows& of;
    const GradientQueryRows& rows;
    const AttentionKernels& kernels;
    const attncheck_tensor& grad;

    bool as_pairs() const { return takes_pairs(of.query.dtype(), kernels); }
};

// Indices that an extent of the bias stands for: one, or all of `count` where it is 1.
struct Served {
    std::int64_t begin, end;
};
Served served_by(const attncheck_tensor& grad, int dim, std::int64_t index, std::int64_t count) {
    return grad.shape[dim] == 1 ? Served{0, count} : Served{index, index + 1};
}

std::vector<float> no_sums(const attncheck_tensor& grad) {
    constexpr std::int64_t kSlack = 16;  // RowView stores read whole vectors
    return std::vector<float>(static_cast<std::size_t>(grad.shape[2] * grad.shape[3] + kSlack));
}

void store(const BiasProblem& problem, std::int64_t b, std::int64_t head,
           const std::vector<float>& sums) {
    const attncheck_tensor& grad = problem.grad;
    const RowView rows(grad, flash_axes(FlashLayout::kBnsd), grad.shape[3]);
    for (std::int64_t i = 0; i < grad.shape[2]; ++i)
        rows.write_product(rows.offset(b, head, i), sums.data() + i * grad.shape[3], 1.0f,
                           problem.kernels);
}

// The elements of one batch entry and head of the bias.
class BiasSlice {
public:
    explicit BiasSlice(const BiasProblem& problem)
        : problem_(problem),
          max_rows_(std::min(kFlashTileRows, problem.plan.extents().query_len)),
          gradients_(problem.plan, max_rows_, problem.kernels, problem.as_pairs()),
          query_(max_rows_, problem.of.logit_dim(), problem.kernels, problem.as_pairs()),
          output_grad_(max_rows_, problem.plan.extents().value_dim, problem.kernels,
                       problem.as_pairs()),
          key_(kFlashTileKeys, problem.of.logit_dim(), problem.kernels, problem.as_pairs()),
          value_(kFlashTileKeys, problem.plan.extents().value_dim, problem.kernels,
                 problem.as_pairs()) {}

    void run(std::int64_t batch_index, std::int64_t head_index) {
        const FlashExtents& e = problem_.plan.extents();
        const attncheck_tensor& grad = problem_.grad;
        columns_ = grad.shape[3];
        sums_ = no_sums(grad);
        const Served batches = served_by(grad, 0, batch_index, e.batch),
                     heads = served_by(grad, 1, head_index, e.query_heads);
        for (std::int64_t b = batches.begin; b < batches.end; ++b)
            for (std::int64_t head = heads.begin; head < heads.end; ++head)
                for (std::int64_t begin = 0; begin < problem_.plan.band(b).key_len;
                     begin += kFlashTileKeys)
                    add_keys(b, head, begin);
        store(problem_, batch_index, head_index, sums_);
    }

private:
    void add_keys(std::int64_t b, std::int64_t head, std::int64_t key_begin) {
        const AttentionPlan& plan = problem_.plan;
        const VisibleBand band = plan.band(b);
        const FlashSequence sequence = plan.sequence(b);
        const std::int64_t keys = std::min(kFlashTileKeys, band.key_len - key_begin),
                           kv_head = head / plan.group_size();
        const std::int64_t last = band.last_query(key_begin + keys, sequence.query_len);
        std::int64_t query = band.first_query(key_begin, sequence.query_len) / 2 * 2;
        if (query >= last) return;
        const GradientRows& of = problem_.of;
        key_.load(of.key, of.no_rope, b, kv_head, sequence.key_begin + key_begin, keys);
        value_.load(of.value, of.no_rope, b, kv_head, sequence.key_begin + key_begin, keys);
        for (; query < last; query += kFlashTileRows) {
            const std::int64_t count = std::min(kFlashTileRows, last - query),
                               seen = std::min(key_begin + keys, band.last(query + count - 1)) -
                                      key_begin;
            if (seen <= 0) continue;
            query_.load(of.query, of.no_rope, b, head, sequence.query_begin + query, count);
            output_grad_.load(of.output_grad, of.no_rope, b, head, sequence.query_begin + query,
                              count);
            gradients_.pairs().start({b, head, query, count, key_begin, seen});
            gradients_.fill(query_, output_grad_, 0, key_, value_, problem_.rows,
                            problem_.rows.at(b, head, query));
            add_tile();
        }
    }

    void add_tile() {
        const FlashTile& tile = gradients_.pairs().tile();
        const float* from = gradients_.score_grads().data();
        for (std::int64_t r = 0; r < tile.rows; ++r, from += kFlashTileKeys) {
            const std::int64_t row = problem_.grad.shape[2] == 1 ? 0 : tile.query_begin + r;
            float* to = sums_.data() + row * columns_;
            for (std::int64_t k = 0; k < tile.keys; ++k)
                to[columns_ == 1 ? 0 : tile.key_begin + k] += from[k];
        }
    }

    const BiasProblem& problem_;
    std::int64_t max_rows_, columns_ = 0;
    TileGradients gradients_;
    TileRows query_, output_grad_, key_, value_;
    std::vector<float> sums_;
};

}  // namespace

void write_bias_gradient(const AttentionPlan& plan, const GradientRows& of,
                         const GradientQueryRows& rows, const AttentionKernels& kernels) {
    const BiasProblem problem{plan, of, rows, kernels, *plan.call().bias_grad};
    const std::int64_t heads = problem.grad.shape[1];
    if (rows.count() == 0 || !plan.has_keys()) {
        for (std::int64_t slice = 0; slice < problem.grad.shape[0] * heads; ++slice)
            store(problem, slice / heads, slice % heads, no_sums(problem.grad));
        return;
    }
    parallel_for(problem.grad.shape[0] * heads, [&](std::int64_t slice) {
        BiasSlice(problem).run(slice / heads, slice % heads);
    });
}

void write_sink_gradient(const AttentionPlan& plan, const GradientQueryRows& rows) {
    const attncheck_tensor& grad = *plan.call().sink_grad;
    for (std::int64_t head = 0; head < plan.extents().query_heads; ++head) {
        const float sink = plan.sink(head);
        float sum = 0.0f;
        for (std::int64_t b = 0; b < plan.extents().batch; ++b)
            for (std::int64_t i = 0; i < plan.sequence(b).query_len; ++i) {
                const auto at = static_cast<std::size_t>(rows.at(b, head, i));
                if (sink == -std::numeric_limits<float>::infinity()) continue;
                sum -= std::exp(sink - rows.row_max[at]) / rows.row_sum[at] * rows.delta[at];
            }
        static_cast<float*>(grad.data)[head * grad.strides[0]] = sum;
    }
}

}  // namespace attncheck::impl
