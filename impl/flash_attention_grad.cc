#include <algorithm>
#include <cstring>
#include <vector>

#include "impl/flash_attention.h"
#include "impl/flash_attention_operand.h"
#include "impl/flash_attention_plan.h"
#include "impl/flash_attention_tile.h"
#include "impl/thread_pool.h"

// A unit of work is a chunk of keys of one kv head: it goes through its tiles of keys, whose dk and
// dv it finishes, and for each through the queries of every head of the group, to whose dq it adds.
// There is one sum dq per chunk, and a second step adds those up in their order; so nothing is
// locked and bits depend on the shape alone. Every probability is computed once, five products in
// all.
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

    bool as_pairs() const { return takes_pairs(query.dtype(), kernels); }
    /// What <q, k> is multiplied by; a bias may come before the scale.
    float logit_factor() const { return plan.has_bias() ? 1.0f : plan.scale(); }
    std::int64_t logit_dim() const { return plan.extents().head_dim + plan.rope_dim(); }
};

// How keys are cut. Eight units keep several threads busy; a chunk of 512 keys or more makes little
// of the memory for its dq, of which there is 2^28 bytes unless one copy takes more.
struct KeyChunks {
    std::int64_t length, count;

    explicit KeyChunks(const GradientProblem& problem, std::int64_t query_rows) {
        constexpr std::int64_t kUnits = 8, kLeastKeys = 512, kMostBytes = std::int64_t{1} << 28;
        const FlashExtents& extents = problem.plan.extents();
        std::int64_t most_keys = 1;
        for (std::int64_t b = 0; b < extents.batch; ++b)
            most_keys = std::max(most_keys, problem.plan.sequence(b).key_len);
        const auto ceiling = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
        const std::int64_t heads = std::max<std::int64_t>(1, extents.batch * extents.kv_heads),
                           bytes = std::max<std::int64_t>(
                               1, query_rows * padded_to_vectors(problem.logit_dim()) * 4),
                           wanted = std::min({ceiling(kUnits, heads),
                                              ceiling(most_keys, kLeastKeys), kMostBytes / bytes});
        length = ceiling(ceiling(most_keys, std::max<std::int64_t>(1, wanted)), kFlashTileKeys) *
                 kFlashTileKeys;
        count = ceiling(most_keys, length);
    }
};

// What units share: numbers per row of queries, (batch entry, head, position) in that order.
class QueryRows {
public:
    explicit QueryRows(const GradientProblem& problem) : problem_(problem) {
        const FlashExtents& extents = problem.plan.extents();
        first_.reserve(static_cast<std::size_t>(extents.batch));
        for (std::int64_t b = 0; b < extents.batch; ++b) {
            first_.push_back(count_);
            count_ += extents.query_heads * problem.plan.sequence(b).query_len;
        }
        for (std::vector<float>* numbers : {&row_max, &row_sum, &delta})
            numbers->resize(static_cast<std::size_t>(count_));
    }
    std::int64_t count() const { return count_; }
    std::int64_t at(std::int64_t b, std::int64_t head, std::int64_t position) const {
        return first_[static_cast<std::size_t>(b)] + head * problem_.plan.sequence(b).query_len +
               position;
    }

    // The given statistics and delta = <dO, O> of a tile of queries.
    void load(const FlashUnits::Unit& unit) {
        const FlashPlan& plan = problem_.plan;
        const std::int64_t rows = unit.end - unit.begin,
                           position = plan.sequence(unit.b).query_begin + unit.begin;
        PackedRows output(rows, plan.extents().value_dim), output_grad(rows, output.dim());
        output.load(problem_.output, problem_.no_rope, unit.b, unit.head, position, rows,
                    problem_.kernels);
        output_grad.load(problem_.output_grad, problem_.no_rope, unit.b, unit.head, position, rows,
                         problem_.kernels);
        for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t i = unit.begin + r;
            const auto to = static_cast<std::size_t>(at(unit.b, unit.head, i));
            row_max[to] = plan.first_statistic(*plan.call().softmax_max, unit.b, unit.head, i);
            row_sum[to] = plan.first_statistic(*plan.call().softmax_sum, unit.b, unit.head, i);
            delta[to] = problem_.kernels.dot(output_grad.row(r), output.row(r), output.width());
        }
    }

    std::vector<float> row_max, row_sum, delta;

private:
    const GradientProblem& problem_;
    std::vector<std::int64_t> first_;
    std::int64_t count_ = 0;
};

// dq before the scale, [chunks, rows, width], and which rows saw a key of the chunk.
class QueryGradients {
public:
    QueryGradients(const GradientProblem& problem, const KeyChunks& chunks, const QueryRows& rows)
        : problem_(problem),
          chunks_(chunks),
          rows_(rows),
          width_(padded_to_vectors(problem.logit_dim())),
          sums_(chunks.count * rows.count() * width_ + kRowSlack),
          has_key_(static_cast<std::size_t>(chunks.count * rows.count())) {}

    float* sums(std::int64_t chunk, std::int64_t row) const {
        return sums_.data() + (chunk * rows_.count() + row) * width_;
    }
    std::uint8_t* has_key(std::int64_t chunk, std::int64_t row) {
        return has_key_.data() + chunk * rows_.count() + row;
    }
    void clear(std::int64_t chunk, std::int64_t row, std::int64_t rows) const {
        std::fill_n(sums(chunk, row), rows * width_, 0.0f);
    }

    // Adds up the chunks of a tile of queries, in order, and writes dq.
    void store(const FlashUnits::Unit& unit) {
        const FlashPlan& plan = problem_.plan;
        const std::int64_t row = rows_.at(unit.b, unit.head, unit.begin),
                           rows = unit.end - unit.begin,
                           position = plan.sequence(unit.b).query_begin + unit.begin,
                           keys = plan.sequence(unit.b).key_len;
        // A sequence of few keys has no units in the last chunks; their sums were never cleared.
        const std::int64_t chunks = (keys + chunks_.length - 1) / chunks_.length;
        for (std::int64_t chunk = 1; chunk < chunks; ++chunk) {
            float* total = sums(0, row);
            const float* part = sums(chunk, row);
            for (std::int64_t i = 0; i < rows * width_; ++i) total[i] += part[i];
            for (std::int64_t r = 0; r < rows; ++r)
                *has_key(0, row + r) |= *has_key(chunk, row + r);
        }
        const RowView &grad = problem_.query_grad, &rope_grad = problem_.query_rope_grad;
        // Nothing, rather than scale * 0, which may be NaN, for a row that sees no key.
        const auto store_row = [&](const RowView& view, std::int64_t r, std::int64_t channel) {
            const std::int64_t at = view.offset(unit.b, unit.head, position + r);
            if (*has_key(0, row + r) == 0) return view.write_zeros(at);
            view.write_product(at, sums(0, row + r) + channel, plan.scale(), problem_.kernels);
        };
        for (std::int64_t r = 0; r < rows; ++r) {
            store_row(grad, r, 0);
            if (rope_grad.dim() > 0) store_row(rope_grad, r, grad.dim());
        }
    }

private:
    static constexpr std::int64_t kRowSlack = 16;  // RowView stores read whole vectors

    const GradientProblem& problem_;
    const KeyChunks& chunks_;
    const QueryRows& rows_;
    std::int64_t width_;
    AlignedBuffer<float> sums_;
    std::vector<std::uint8_t> has_key_;
};

// Some keys of one kv head.
class KeyChunkUnit {
public:
    KeyChunkUnit(const GradientProblem& problem, const QueryRows& rows, QueryGradients& query_grads,
                 std::int64_t chunk, const FlashUnits::Unit& unit)
        : problem_(problem),
          rows_(rows),
          query_grads_(query_grads),
          chunk_(chunk),
          unit_(unit),
          sequence_(problem.plan.sequence(unit.b)),
          max_rows_(std::min(kFlashTileRows, sequence_.query_len)),
          pairs_(problem.plan, max_rows_),
          query_(max_rows_, problem.logit_dim(), problem.kernels, problem.as_pairs()),
          output_grad_(max_rows_, problem.plan.extents().value_dim, problem.kernels,
                       problem.as_pairs()),
          key_(kFlashTileKeys, problem.logit_dim(), problem.kernels, problem.as_pairs()),
          value_(kFlashTileKeys, problem.plan.extents().value_dim, problem.kernels,
                 problem.as_pairs()),
          probs_(max_rows_, problem.kernels, problem.as_pairs()),
          score_grads_(max_rows_, problem.kernels, problem.as_pairs()),
          key_sums_(kFlashTileKeys * key_.width() + kRowSlack),
          value_sums_(kFlashTileKeys * value_.width() + kRowSlack) {}

    void run() {
        const std::int64_t group = problem_.plan.group_size();
        // Heads of a group are neighbours, so their rows are.
        query_grads_.clear(chunk_, rows_.at(unit_.b, unit_.head * group, 0),
                           group * sequence_.query_len);
        for (std::int64_t begin = unit_.begin; begin < unit_.end; begin += kFlashTileKeys)
            run_keys(begin, std::min(kFlashTileKeys, unit_.end - begin));
    }

private:
    static constexpr std::int64_t kRowSlack = 16;  // RowView stores read whole vectors

    void run_keys(std::int64_t key_begin, std::int64_t num_keys) {
        const FlashPlan& plan = problem_.plan;
        std::fill_n(key_sums_.data(), kFlashTileKeys * key_.width() + kRowSlack, 0.0f);
        std::fill_n(value_sums_.data(), kFlashTileKeys * value_.width() + kRowSlack, 0.0f);
        std::fill_n(has_row_, kFlashTileKeys, std::uint8_t{0});
        const VisibleBand band = plan.band(unit_.b);
        const std::int64_t first = band.first_query(key_begin, sequence_.query_len),
                           last = band.last_query(key_begin + num_keys, sequence_.query_len),
                           head_begin = unit_.head * plan.group_size(),
                           position = sequence_.key_begin + key_begin;
        if (first >= last) return store(position, num_keys);
        key_.load(problem_.key, problem_.key_rope, unit_.b, unit_.head, position, num_keys);
        value_.load(problem_.value, problem_.no_rope, unit_.b, unit_.head, position, num_keys);
        for (std::int64_t head = head_begin; head < head_begin + plan.group_size(); ++head) {
            std::int64_t begin = first / kFlashTileRows * kFlashTileRows;
            for (; begin < last; begin += kFlashTileRows) {
                pairs_.start({unit_.b, head, begin,
                              std::min(kFlashTileRows, sequence_.query_len - begin), key_begin,
                              num_keys});
                add_tile();
            }
        }
        store(position, num_keys);
    }

    void add_tile() {
        const FlashTile& tile = pairs_.tile();
        const std::int64_t position = sequence_.query_begin + tile.query_begin,
                           row = rows_.at(tile.b, tile.head, tile.query_begin);
        query_.load(problem_.query, problem_.query_rope, tile.b, tile.head, position, tile.rows);
        output_grad_.load(problem_.output_grad, problem_.no_rope, tile.b, tile.head, position,
                          tile.rows);
        pairs_.note_rows_with_keys(query_grads_.has_key(chunk_, row));
        pairs_.note_keys_with_rows(has_row_);
        fill_weights(static_cast<std::size_t>(row));

        const PairFlags visible = pairs_.visible();
        if (problem_.as_pairs()) score_grads_.round_for_keys(tile.rows, tile.cols());
        key_.add_sum_over_keys(score_grads_, tile.rows, visible, query_grads_.sums(chunk_, row));
        if (problem_.as_pairs()) score_grads_.round_for_rows(tile.rows, tile.cols());
        query_.add_sum_over_rows(score_grads_, tile.keys, visible, key_sums_.data());
        pairs_.drop(probs_.data(), problem_.plan.keep_factor());
        if (problem_.as_pairs()) probs_.round_for_rows(tile.rows, tile.cols());
        output_grad_.add_sum_over_rows(probs_, tile.keys, pairs_.visible_and_kept(),
                                       value_sums_.data());
    }

    // P and dS of the tile, exactly 0 where the pair is hidden.
    void fill_weights(std::size_t row) {
        float *probs = probs_.data(), *score_grads = score_grads_.data();
        query_.multiply(key_, problem_.logit_factor(), probs);
        pairs_.finish_logits(probs);
        output_grad_.multiply(value_, 1.0f, score_grads);
        pairs_.drop(score_grads, problem_.plan.keep_factor());
        const FlashTile& tile = pairs_.tile();
        problem_.kernels.gradient_tile({probs, score_grads, kFlashTileKeys, tile.rows, tile.cols(),
                                        &rows_.row_max[row], &rows_.row_sum[row],
                                        &rows_.delta[row]});
        pairs_.fill_hidden(probs, 0.0f);
        pairs_.fill_hidden(score_grads, 0.0f);
    }

    void store(std::int64_t position, std::int64_t num_keys) {
        const RowView &key_grad = problem_.key_grad, &rope_grad = problem_.key_rope_grad,
                      &value_grad = problem_.value_grad;
        const auto store_key = [&](const RowView& view, std::int64_t key, const float* sums,
                                   float factor) {
            const std::int64_t at = view.offset(unit_.b, unit_.head, position + key);
            if (has_row_[key] == 0) return view.write_zeros(at);
            view.write_product(at, sums, factor, problem_.kernels);
        };
        const float scale = problem_.plan.scale();
        for (std::int64_t key = 0; key < num_keys; ++key) {
            const float* sums = key_sums_.data() + key * key_.width();
            store_key(key_grad, key, sums, scale);
            if (rope_grad.dim() > 0) store_key(rope_grad, key, sums + key_grad.dim(), scale);
            store_key(value_grad, key, value_sums_.data() + key * value_.width(), 1.0f);
        }
    }

    const GradientProblem& problem_;
    const QueryRows& rows_;
    QueryGradients& query_grads_;
    std::int64_t chunk_;
    FlashUnits::Unit unit_;
    FlashSequence sequence_;
    std::int64_t max_rows_;
    PairTile pairs_;
    TileRows query_, output_grad_, key_, value_;
    TileWeights probs_, score_grads_;
    AlignedBuffer<float> key_sums_, value_sums_;
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
    QueryRows rows(problem);
    parallel_for(query_units.count(),
                 [&](std::int64_t unit) { rows.load(query_units.unit(unit)); });
    const KeyChunks chunks(problem, rows.count());
    QueryGradients query_grads(problem, chunks, rows);
    const FlashUnits key_units(problem.plan, true, extents.kv_heads, chunks.length);
    parallel_for(key_units.count(), [&](std::int64_t index) {
        const FlashUnits::Unit unit = key_units.unit(index);
        KeyChunkUnit(problem, rows, query_grads, unit.begin / chunks.length, unit).run();
    });
    parallel_for(query_units.count(),
                 [&](std::int64_t unit) { query_grads.store(query_units.unit(unit)); });
    zero_rows_beyond(problem);
}

}  // namespace attncheck::impl
