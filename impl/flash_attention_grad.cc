#include <algorithm>

#include "impl/flash_attention.h"
#include "impl/flash_attention_plan.h"
#include "impl/flash_attention_tile.h"
#include "impl/thread_pool.h"

// Two passes that share nothing but the inputs: dq of a tile of queries is a sum over keys, dk and
// dv of a tile of keys are sums over the queries of every head of the group. Computing the
// probabilities twice costs 2 of 7 products and saves locks and partial sums.
namespace attncheck::impl {
namespace {

struct GradientProblem {
    FlashPlan plan;
    const AttentionKernels& kernels;
    RowView query, query_rope, key, key_rope, value, no_rope, output, output_grad;
    RowView query_grad, query_rope_grad, key_grad, key_rope_grad, value_grad;

    GradientProblem(const FlashCall& call, const AttentionKernels& table)
        : plan(call),
          kernels(table),
          query(plan.rows(*call.query, plan.extents().head_dim)),
          query_rope(plan.rows(*call.query_rope, plan.rope_dim())),
          key(plan.rows(*call.key, plan.extents().head_dim)),
          key_rope(plan.rows(*call.key_rope, plan.rope_dim())),
          value(plan.rows(*call.value, plan.extents().value_dim)),
          no_rope(plan.rows(*call.value, 0)),
          output(plan.rows(*call.output, plan.extents().value_dim)),
          output_grad(plan.rows(*call.output_grad, plan.extents().value_dim)),
          query_grad(plan.rows(*call.query_grad, plan.extents().head_dim)),
          query_rope_grad(plan.rows(*call.query_rope_grad, plan.rope_dim())),
          key_grad(plan.rows(*call.key_grad, plan.extents().head_dim)),
          key_rope_grad(plan.rows(*call.key_rope_grad, plan.rope_dim())),
          value_grad(plan.rows(*call.value_grad, plan.extents().value_dim)) {}

    std::int64_t logit_dim() const { return plan.extents().head_dim + plan.rope_dim(); }
};

// What both passes need of a tile of queries of one head.
class QueryTile {
public:
    QueryTile(const GradientProblem& problem, std::int64_t max_rows)
        : problem_(problem),
          query_(max_rows, problem.logit_dim()),
          output_grad_(max_rows, problem.plan.extents().value_dim),
          output_(max_rows, problem.plan.extents().value_dim) {}

    void load(std::int64_t b, std::int64_t head, std::int64_t begin, std::int64_t rows) {
        const FlashPlan& plan = problem_.plan;
        const std::int64_t position = plan.sequence(b).query_begin + begin;
        query_.load(problem_.query, problem_.query_rope, b, head, position, rows, problem_.kernels);
        output_grad_.load(problem_.output_grad, problem_.no_rope, b, head, position, rows,
                          problem_.kernels);
        output_.load(problem_.output, problem_.no_rope, b, head, position, rows, problem_.kernels);
        for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t i = begin + r;
            row_max_[r] = plan.first_statistic(*plan.call().softmax_max, b, head, i);
            row_sum_[r] = plan.first_statistic(*plan.call().softmax_sum, b, head, i);
            delta_[r] = problem_.kernels.dot(output_grad_.row(r), output_.row(r), output_.width());
        }
    }
    PackedRows& query() { return query_; }
    PackedRows& output_grad() { return output_grad_; }

    /// probs = P and score_grads = dS of a tile of these rows, exactly 0 where the pair is hidden.
    /// The columns are K and V as PackedRows::transpose leaves them.
    void pair_gradients(const PairTile& pairs, const float* key_columns, const float* value_columns,
                        float* probs, float* score_grads) const {
        pairs.multiply(query_, key_columns, probs);
        pairs.finish_logits(probs);
        pairs.multiply(output_grad_, value_columns, score_grads);
        pairs.drop(score_grads, problem_.plan.keep_factor());
        problem_.kernels.gradient_tile({probs, score_grads, kFlashTileKeys, pairs.tile().rows,
                                        pairs.tile().cols(), row_max_, row_sum_, delta_});
        pairs.fill_hidden(probs, 0.0f);
        pairs.fill_hidden(score_grads, 0.0f);
    }

private:
    const GradientProblem& problem_;
    PackedRows query_, output_grad_, output_;
    float row_max_[kFlashTileRows], row_sum_[kFlashTileRows], delta_[kFlashTileRows];
};

// A tile of keys of one kv head: what the products need of K and V.
class KeyTileColumns {
public:
    explicit KeyTileColumns(const GradientProblem& problem)
        : problem_(problem),
          key_(kFlashTileKeys, problem.logit_dim()),
          value_(kFlashTileKeys, problem.plan.extents().value_dim),
          key_columns_(key_.dim() * kFlashTileKeys),
          value_columns_(value_.dim() * kFlashTileKeys) {}

    void load(std::int64_t b, std::int64_t kv_head, std::int64_t begin, std::int64_t keys) {
        const std::int64_t position = problem_.plan.sequence(b).key_begin + begin;
        key_.load(problem_.key, problem_.key_rope, b, kv_head, position, keys, problem_.kernels);
        value_.load(problem_.value, problem_.no_rope, b, kv_head, position, keys, problem_.kernels);
        key_.transpose(key_columns_.data());
        value_.transpose(value_columns_.data());
    }
    PackedRows& key() { return key_; }
    std::int64_t value_width() const { return value_.width(); }
    const float* key_columns() const { return key_columns_.data(); }
    const float* value_columns() const { return value_columns_.data(); }

private:
    const GradientProblem& problem_;
    PackedRows key_, value_;
    AlignedBuffer<float> key_columns_, value_columns_;
};

constexpr std::int64_t kRowSlack = 16;  // RowView stores read whole vectors

// Pass 1: dq of a tile of queries.
class QueryGradientUnit {
public:
    QueryGradientUnit(const GradientProblem& problem, const FlashUnits::Unit& unit)
        : problem_(problem),
          unit_(unit),
          rows_(unit.end - unit.begin),
          pairs_(problem.plan, problem.kernels, rows_),
          queries_(problem, rows_),
          keys_(problem),
          probs_(rows_ * kFlashTileKeys),
          score_grads_(rows_ * kFlashTileKeys),
          sums_(rows_ * queries_.query().width() + kRowSlack) {}

    void run() {
        const std::int64_t size = rows_ * queries_.query().width();
        std::fill_n(sums_.data(), size + kRowSlack, 0.0f);
        queries_.load(unit_.b, unit_.head, unit_.begin, rows_);
        const VisibleBand band = problem_.plan.band(unit_.b);
        const std::int64_t end = band.last(unit_.end - 1);
        std::int64_t begin = band.first(unit_.begin) / kFlashTileKeys * kFlashTileKeys;
        for (; begin < end; begin += kFlashTileKeys) {
            pairs_.start({unit_.b, unit_.head, unit_.begin, rows_, begin,
                          std::min(kFlashTileKeys, band.key_len - begin)});
            add_tile();
        }
        store();
    }

private:
    void add_tile() {
        const FlashTile& tile = pairs_.tile();
        keys_.load(unit_.b, unit_.head / problem_.plan.group_size(), tile.key_begin, tile.keys);
        keys_.key().set_aside_non_finite();
        pairs_.note_rows_with_keys(has_key_);
        queries_.pair_gradients(pairs_, keys_.key_columns(), keys_.value_columns(), probs_.data(),
                                score_grads_.data());
        keys_.key().add_sum_over_keys(score_grads_.data(), rows_, pairs_.visible(), sums_.data(),
                                      problem_.kernels);
    }

    void store() {
        const FlashPlan& plan = problem_.plan;
        const RowView &grad = problem_.query_grad, &rope_grad = problem_.query_rope_grad;
        const std::int64_t position = plan.sequence(unit_.b).query_begin + unit_.begin,
                           width = queries_.query().width();
        // Nothing, rather than scale * 0, which may be NaN, for a row that sees no key.
        const auto store_row = [&](const RowView& view, std::int64_t r, std::int64_t channel) {
            const std::int64_t at = view.offset(unit_.b, unit_.head, position + r);
            if (has_key_[r] == 0) return view.write_zeros(at);
            view.write_product(at, sums_.data() + r * width + channel, plan.scale(),
                               problem_.kernels);
        };
        for (std::int64_t r = 0; r < rows_; ++r) {
            store_row(grad, r, 0);
            if (rope_grad.dim() > 0) store_row(rope_grad, r, grad.dim());
        }
    }

    const GradientProblem& problem_;
    FlashUnits::Unit unit_;
    std::int64_t rows_;
    PairTile pairs_;
    QueryTile queries_;
    KeyTileColumns keys_;
    AlignedBuffer<float> probs_, score_grads_, sums_;
    std::uint8_t has_key_[kFlashTileRows] = {};
};

// Pass 2: dk and dv of a tile of keys, summed over heads, then tiles of queries.
class KeyGradientUnit {
public:
    KeyGradientUnit(const GradientProblem& problem, const FlashUnits::Unit& unit)
        : problem_(problem),
          unit_(unit),
          sequence_(problem.plan.sequence(unit.b)),
          max_rows_(std::min(kFlashTileRows, sequence_.query_len)),
          pairs_(problem.plan, problem.kernels, max_rows_),
          queries_(problem, max_rows_),
          keys_(problem),
          probs_(max_rows_ * kFlashTileKeys),
          score_grads_(max_rows_ * kFlashTileKeys),
          key_sums_(kFlashTileKeys * keys_.key().width() + kRowSlack),
          value_sums_(kFlashTileKeys * keys_.value_width()) {}

    void run() {
        const FlashPlan& plan = problem_.plan;
        std::fill_n(key_sums_.data(), kFlashTileKeys * keys_.key().width() + kRowSlack, 0.0f);
        std::fill_n(value_sums_.data(), kFlashTileKeys * keys_.value_width(), 0.0f);
        const VisibleBand band = plan.band(unit_.b);
        const std::int64_t first = band.first_query(unit_.begin, sequence_.query_len),
                           last = band.last_query(unit_.end, sequence_.query_len),
                           head_begin = unit_.head * plan.group_size();
        if (first < last) keys_.load(unit_.b, unit_.head, unit_.begin, unit_.end - unit_.begin);
        for (std::int64_t head = head_begin; head < head_begin + plan.group_size(); ++head) {
            std::int64_t begin = first / kFlashTileRows * kFlashTileRows;
            for (; begin < last; begin += kFlashTileRows) {
                add_tile(head, begin, std::min(kFlashTileRows, sequence_.query_len - begin));
            }
        }
        store();
    }

private:
    void add_tile(std::int64_t head, std::int64_t query_begin, std::int64_t rows) {
        const std::int64_t num_keys = unit_.end - unit_.begin;
        const AttentionKernels& kernels = problem_.kernels;
        pairs_.start({unit_.b, head, query_begin, rows, unit_.begin, num_keys});
        pairs_.note_keys_with_rows(has_row_);
        queries_.load(unit_.b, head, query_begin, rows);
        queries_.query().set_aside_non_finite();
        queries_.output_grad().set_aside_non_finite();
        queries_.pair_gradients(pairs_, keys_.key_columns(), keys_.value_columns(), probs_.data(),
                                score_grads_.data());
        queries_.query().add_sum_over_rows(score_grads_.data(), num_keys, pairs_.visible(),
                                           key_sums_.data(), kernels);
        pairs_.drop(probs_.data(), problem_.plan.keep_factor());
        queries_.output_grad().add_sum_over_rows(probs_.data(), num_keys, pairs_.visible_and_kept(),
                                                 value_sums_.data(), kernels);
    }

    void store() {
        const RowView &key_grad = problem_.key_grad, &rope_grad = problem_.key_rope_grad,
                      &value_grad = problem_.value_grad;
        const auto store_key = [&](const RowView& view, std::int64_t key, const float* sums,
                                   float factor) {
            const std::int64_t at =
                view.offset(unit_.b, unit_.head, sequence_.key_begin + unit_.begin + key);
            if (has_row_[key] == 0) return view.write_zeros(at);
            view.write_product(at, sums, factor, problem_.kernels);
        };
        const float scale = problem_.plan.scale();
        for (std::int64_t key = 0; key < unit_.end - unit_.begin; ++key) {
            const float* sums = key_sums_.data() + key * keys_.key().width();
            store_key(key_grad, key, sums, scale);
            if (rope_grad.dim() > 0) store_key(rope_grad, key, sums + key_grad.dim(), scale);
            store_key(value_grad, key, value_sums_.data() + key * keys_.value_width(), 1.0f);
        }
    }

    const GradientProblem& problem_;
    FlashUnits::Unit unit_;
    FlashSequence sequence_;
    std::int64_t max_rows_;
    PairTile pairs_;
    QueryTile queries_;
    KeyTileColumns keys_;
    AlignedBuffer<float> probs_, score_grads_, key_sums_, value_sums_;
    std::uint8_t has_row_[kFlashTileKeys] = {};
};

void zero_rows(const RowView& view, std::int64_t begin, std::int64_t end, std::int64_t heads) {
    if (view.dim() == 0) return;
    for (std::int64_t row = begin; row < end; ++row) {
        for (std::int64_t head = 0; head < heads; ++head) {
            view.write_zeros(view.offset(0, head, row));
        }
    }
}

// Rows of TND that belong to no sequence.
void zero_rows_beyond(const GradientProblem& problem) {
    const FlashExtents& extents = problem.plan.extents();
    if (!extents.is_packed()) return;
    const FlashSequence last = problem.plan.sequence(extents.batch - 1);
    const std::int64_t query_end = last.query_begin + last.query_len,
                       key_end = last.key_begin + last.key_len;
    zero_rows(problem.query_grad, query_end, extents.query_len, extents.query_heads);
    zero_rows(problem.query_rope_grad, query_end, extents.query_len, extents.query_heads);
    zero_rows(problem.key_grad, key_end, extents.key_len, extents.kv_heads);
    zero_rows(problem.key_rope_grad, key_end, extents.key_len, extents.kv_heads);
    zero_rows(problem.value_grad, key_end, extents.key_len, extents.kv_heads);
}

}  // namespace

void flash_attention_score_grad(const attncheck_flash_attention_score_grad_args& args,
                                const AttentionKernels& kernels) {
    const GradientProblem problem(flash_call(args), kernels);
    const FlashExtents& extents = problem.plan.extents();
    const FlashUnits query_units(problem.plan, false, extents.query_heads, kFlashTileRows);
    parallel_for(query_units.count(), [&](std::int64_t unit) {
        QueryGradientUnit(problem, query_units.unit(unit)).run();
    });
    const FlashUnits key_units(problem.plan, true, extents.kv_heads, kFlashTileKeys);
    parallel_for(key_units.count(),
                 [&](std::int64_t unit) { KeyGradientUnit(problem, key_units.unit(unit)).run(); });
    zero_rows_beyond(problem);
}

}  // namespace attncheck::impl
