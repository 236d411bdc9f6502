#include "impl/operators/flash_attention/gradient_pass.h"

#include <algorithm>
#include <memory>

#include "impl/runtime/thread_pool.h"

// A unit of work is a chunk of keys of one kv head: it goes through its tiles of keys, whose dk and
// dv it finishes, and for each through the queries of every head of the group, to whose dq it adds.
// There is one sum dq per chunk, and a second step adds those up in their order; so nothing is
// locked and bits depend on the shape alone. Every probability is computed once, five products in
// all.
namespace attncheck::impl {
namespace {

struct GradientProblem {
    const TilePlan& plan;
    const GradientRows& of;
    const AttentionKernels& kernels;

    bool as_pairs() const { return takes_pairs(of.query.dtype(), kernels); }
};

// How keys are cut: at multiples of a length that depends on neither batch nor heads as long as dq
// is small, so that a sequence has the same bits in any company. At most 8 units per kv head; their
// copies of dq take at most 2^28 bytes together, unless one takes more.
struct KeyChunks {
    std::int64_t length = 512, count = 1;

    KeyChunks(const GradientProblem& problem, std::int64_t query_rows) {
        constexpr std::int64_t kMostChunks = 8, kMostBytes = std::int64_t{1} << 28;
        std::int64_t most_keys = 1;
        for (std::int64_t b = 0; b < problem.plan.extents().batch; ++b)
            most_keys = std::max(most_keys, problem.plan.sequence(b).key_len);
        const std::int64_t bytes = query_rows * padded_to_vectors(problem.of.logit_dim()) *
                                   static_cast<std::int64_t>(sizeof(float));
        for (;; length *= 2) {
            count = (most_keys + length - 1) / length;
            if (count == 1 || (count <= kMostChunks && count * bytes <= kMostBytes)) return;
        }
    }
};

// dq before the scale, [chunks, rows, width], and which rows saw a key of the chunk.
class QueryGradients {
public:
    QueryGradients(const GradientProblem& problem, const KeyChunks& chunks, const GradientQueryRows& rows)
        : problem_(problem),
          chunks_(chunks),
          rows_(rows),
          width_(padded_to_vectors(problem.of.logit_dim())),
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
        const TilePlan& plan = problem_.plan;
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
        const RowView &grad = problem_.of.query_grad, &rope_grad = problem_.of.query_rope_grad;
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
    const GradientQueryRows& rows_;
    std::int64_t width_;
    AlignedBuffer<float> sums_;
    std::vector<std::uint8_t> has_key_;
};

// A tile of keys of one kv head and the sums dk and dv of its keys.
class KeyTileSums {
public:
    explicit KeyTileSums(const GradientProblem& problem)
        : problem_(problem),
          key_(kFlashTileKeys, problem.of.logit_dim(), problem.kernels, problem.as_pairs()),
          value_(kFlashTileKeys, problem.plan.extents().value_dim, problem.kernels,
                 problem.as_pairs()),
          key_sums_(kFlashTileKeys * key_.width() + kRowSlack),
          value_sums_(kFlashTileKeys * value_.width() + kRowSlack) {}

    void start(std::int64_t b, std::int64_t kv_head, std::int64_t begin, std::int64_t count) {
        b_ = b, kv_head_ = kv_head, begin_ = begin, count_ = count;
        std::fill_n(key_sums_.data(), kFlashTileKeys * key_.width() + kRowSlack, 0.0f);
        std::fill_n(value_sums_.data(), kFlashTileKeys * value_.width() + kRowSlack, 0.0f);
        std::fill_n(has_row_, kFlashTileKeys, std::uint8_t{0});
        const TilePlan& plan = problem_.plan;
        const std::int64_t query_len = plan.sequence(b).query_len;
        const VisibleBand band = plan.band(b);
        first_query_ = last_query_ = 0;
        if (begin >= band.key_len) return;
        count = std::min(count, band.key_len - begin);
        // Even, as the first row of a sum over rows has to be.
        first_query_ = band.first_query(begin, query_len) / 2 * 2;
        last_query_ = band.last_query(begin + count, query_len);
        if (first_query_ >= last_query_) return;
        key_.load(problem_.of.key, problem_.of.key_rope, b, kv_head, position(), count);
        value_.load(problem_.of.value, problem_.of.no_rope, b, kv_head, position(), count);
    }
    std::int64_t begin() const { return begin_; }
    std::int64_t count() const { return count_; }
    /// Queries that may see one of the keys.
    std::int64_t first_query() const { return first_query_; }
    std::int64_t last_query() const { return last_query_; }
    TileRows& key() { return key_; }
    TileRows& value() { return value_; }
    float* key_sums() const { return key_sums_.data(); }
    float* value_sums() const { return value_sums_.data(); }
    std::uint8_t* has_row() { return has_row_; }

    void store() const {
        const RowView &key_grad = problem_.of.key_grad, &rope_grad = problem_.of.key_rope_grad,
                      &value_grad = problem_.of.value_grad;
        const auto store_key = [&](const RowView& view, std::int64_t key, const float* sums,
                                   float factor) {
            const std::int64_t at = view.offset(b_, kv_head_, position() + key);
            if (has_row_[key] == 0) return view.write_zeros(at);
            view.write_product(at, sums, factor, problem_.kernels);
        };
        const float scale = problem_.plan.scale();
        for (std::int64_t key = 0; key < count_; ++key) {
            const float* sums = key_sums_.data() + key * key_.width();
            store_key(key_grad, key, sums, scale);
            if (rope_grad.dim() > 0) store_key(rope_grad, key, sums + key_grad.dim(), scale);
            store_key(value_grad, key, value_sums_.data() + key * value_.width(), 1.0f);
        }
    }

private:
    static constexpr std::int64_t kRowSlack = 16;  // RowView stores read whole vectors
    std::int64_t position() const { return problem_.plan.sequence(b_).key_begin + begin_; }

    const GradientProblem& problem_;
    std::int64_t b_ = 0, kv_head_ = 0, begin_ = 0, count_ = 0, first_query_ = 0, last_query_ = 0;
    TileRows key_, value_;
    AlignedBuffer<float> key_sums_, value_sums_;
    std::uint8_t has_row_[kFlashTileKeys] = {};
};

// Some keys of one kv head, a few tiles at a time: those stay in the second-level cache while all
// queries pass by, and share what loading a tile of queries costs.
class KeyChunkUnit {
public:
    KeyChunkUnit(const GradientProblem& problem, const GradientQueryRows& rows, QueryGradients& query_grads,
                 std::int64_t chunk, const FlashUnits::Unit& unit)
        : problem_(problem),
          rows_(rows),
          query_grads_(query_grads),
          chunk_(chunk),
          unit_(unit),
          sequence_(problem.plan.sequence(unit.b)),
          band_(problem.plan.band(unit.b)),
          max_rows_(std::min(kFlashTileRows, sequence_.query_len)),
          gradients_(problem.plan, max_rows_, problem.kernels, problem.as_pairs()),
          query_(max_rows_, problem.of.logit_dim(), problem.kernels, problem.as_pairs()),
          output_grad_(max_rows_, problem.plan.extents().value_dim, problem.kernels,
                       problem.as_pairs()) {
        const std::int64_t tiles = (unit.end - unit.begin + kFlashTileKeys - 1) / kFlashTileKeys;
        for (std::int64_t i = 0; i < std::min(tiles, kTilesAtOnce); ++i)
            tiles_.push_back(std::make_unique<KeyTileSums>(problem));
    }

    void run() {
        const std::int64_t group = problem_.plan.group_size(), head_begin = unit_.head * group;
        // Heads of a group are neighbours, so their rows are.
        query_grads_.clear(chunk_, rows_.at(unit_.b, head_begin, 0), group * sequence_.query_len);
        for (std::int64_t begin = unit_.begin; begin < unit_.end;
             begin += kTilesAtOnce * kFlashTileKeys) {
            start_tiles(begin);
            for (std::int64_t head = head_begin; head < head_begin + group; ++head) {
                for (std::int64_t query = first_query_; query < last_query_;
                     query += kFlashTileRows)
                    add_queries(head, query, std::min(last_query_, query + kFlashTileRows));
            }
            for (std::int64_t i = 0; i < num_tiles_; ++i) tile(i).store();
        }
    }

private:
    static constexpr std::int64_t kTilesAtOnce = 4;  // 220 KiB each for 128 channels of bf16

    KeyTileSums& tile(std::int64_t i) { return *tiles_[static_cast<std::size_t>(i)]; }

    void start_tiles(std::int64_t key_begin) {
        num_tiles_ = 0;
        first_query_ = sequence_.query_len, last_query_ = 0;
        for (std::int64_t begin = key_begin; begin < unit_.end && num_tiles_ < kTilesAtOnce;
             begin += kFlashTileKeys) {
            KeyTileSums& next = tile(num_tiles_++);
            next.start(unit_.b, unit_.head, begin, std::min(kFlashTileKeys, unit_.end - begin));
            if (next.first_query() >= next.last_query()) continue;
            first_query_ = std::min(first_query_, next.first_query());
            last_query_ = std::max(last_query_, next.last_query());
        }
    }

    void add_queries(std::int64_t head, std::int64_t begin, std::int64_t end) {
        const std::int64_t position = sequence_.query_begin + begin;
        query_.load(problem_.of.query, problem_.of.query_rope, unit_.b, head, position, end - begin);
        output_grad_.load(problem_.of.output_grad, problem_.of.no_rope, unit_.b, head, position,
                          end - begin);
        for (std::int64_t i = 0; i < num_tiles_; ++i) {
            KeyTileSums& keys = tile(i);
            const std::int64_t first = std::max(begin, keys.first_query()),
                               last = std::min(end, keys.last_query());
            VisibleBand::Extent extent{};
            for (std::int64_t query = first; query < last; query += extent.rows) {
                extent = band_.tile_from(query, last, keys.begin(), keys.begin() + keys.count());
                if (extent.keys <= 0) continue;
                gradients_.pairs().start({unit_.b, head, query, extent.rows, keys.begin(), extent.keys});
                add_tile(query - begin, keys);
            }
        }
    }

    // The rows of the tile are those of the loaded queries from `skip` on.
    void add_tile(std::int64_t skip, KeyTileSums& keys) {
        PairTile& pairs = gradients_.pairs();
        TileWeights &probs = gradients_.probs(), &score_grads = gradients_.score_grads();
        const FlashTile& tile = pairs.tile();
        const std::int64_t row = rows_.at(tile.b, tile.head, tile.query_begin);
        pairs.note_rows_with_keys(query_grads_.has_key(chunk_, row));
        pairs.note_keys_with_rows(keys.has_row());
        gradients_.fill(query_, output_grad_, skip, keys.key(), keys.value(), rows_, row);
        gradients_.apply_slopes();

        const PairFlags visible = pairs.visible();
        score_grads.round_for_keys(tile.rows, tile.cols());
        keys.key().add_sum_over_keys(score_grads, tile.rows, tile.keys, visible,
                                     query_grads_.sums(chunk_, row));
        score_grads.round_for_rows(tile.rows, tile.cols());
        query_.add_sum_over_rows(score_grads, skip, tile.rows, tile.keys, visible,
                                 keys.key_sums());
        pairs.drop(probs.data(), problem_.plan.keep_factor());
        probs.round_for_rows(tile.rows, tile.cols());
        output_grad_.add_sum_over_rows(probs, skip, tile.rows, tile.keys,
                                       pairs.visible_and_kept(), keys.value_sums());
    }

    const GradientProblem& problem_;
    const GradientQueryRows& rows_;
    QueryGradients& query_grads_;
    std::int64_t chunk_;
    FlashUnits::Unit unit_;
    FlashSequence sequence_;
    VisibleBand band_;
    std::int64_t max_rows_, num_tiles_ = 0, first_query_ = 0, last_query_ = 0;
    TileGradients gradients_;
    TileRows query_, output_grad_;
    std::vector<std::unique_ptr<KeyTileSums>> tiles_;
};

}  // namespace

GradientQueryRows::GradientQueryRows(const TilePlan& plan) : plan_(plan) {
    const FlashExtents& extents = plan.extents();
    first_.reserve(static_cast<std::size_t>(extents.batch));
    for (std::int64_t b = 0; b < extents.batch; ++b) {
        first_.push_back(count_);
        count_ += extents.query_heads * plan.sequence(b).query_len;
    }
    for (std::vector<float>* numbers : {&row_max, &row_sum, &delta})
        numbers->resize(static_cast<std::size_t>(count_));
}

void GradientQueryRows::load(const GradientRows& of, const FlashUnits::Unit& unit,
                             const AttentionKernels& kernels) {
    const std::int64_t rows = unit.end - unit.begin,
                       position = plan_.sequence(unit.b).query_begin + unit.begin;
    PackedRows output(rows, plan_.extents().value_dim), output_grad(rows, output.dim());
    output.load(of.output, of.no_rope, unit.b, unit.head, position, rows, kernels);
    output_grad.load(of.output_grad, of.no_rope, unit.b, unit.head, position, rows, kernels);
    for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t i = unit.begin + r;
        const auto to = static_cast<std::size_t>(at(unit.b, unit.head, i));
        const RowStatistics given = plan_.statistics(unit.b, unit.head, i);
        row_max[to] = given.row_max, row_sum[to] = given.row_sum;
        delta[to] = kernels.dot(output_grad.row(r), output.row(r), output.width());
    }
}

TileGradients::TileGradients(const TilePlan& plan, std::int64_t max_rows,
                             const AttentionKernels& kernels, bool as_pairs)
    : plan_(plan),
      pairs_(plan, max_rows),
      probs_(max_rows, kernels, as_pairs),
      score_grads_(max_rows, kernels, as_pairs),
      slopes_(plan.has_slopes() ? max_rows * kFlashTileKeys : 0) {}

void TileGradients::fill(TileRows& query, TileRows& output_grad, std::int64_t skip, TileRows& key,
                         TileRows& value, const GradientQueryRows& rows, std::int64_t row) {
    const FlashTile& tile = pairs_.tile();
    const auto first = static_cast<std::size_t>(row);
    float *probs = probs_.data(), *score_grads = score_grads_.data();
    query.multiply(skip, tile.rows, key, tile.keys, plan_.logit_factor(), probs);
    pairs_.finish_logits(probs, plan_.has_slopes() ? slopes_.data() : nullptr);
    output_grad.multiply(skip, tile.rows, value, tile.keys, 1.0f, score_grads);
    pairs_.drop(score_grads, plan_.keep_factor());
    TileWeights::gradient(
        probs_, score_grads_,
        {tile.rows, tile.cols(), &rows.row_max[first], &rows.row_sum[first], &rows.delta[first]});
    pairs_.fill_hidden(probs, 0.0f);
    pairs_.fill_hidden(score_grads, 0.0f);
}

void TileGradients::apply_slopes() {
    if (!plan_.has_slopes()) return;
    const FlashTile& tile = pairs_.tile();
    float* score_grads = score_grads_.data();
    const float* slopes = slopes_.data();
    for (std::int64_t r = 0; r < tile.rows; ++r)
        for (std::int64_t k = 0; k < tile.cols(); ++k)
            score_grads[r * kFlashTileKeys + k] *= slopes[r * kFlashTileKeys + k];
    pairs_.fill_hidden(score_grads, 0.0f);  // a hidden pair's slope may be NaN
}

void load_query_rows(const TilePlan& plan, const GradientRows& of, const AttentionKernels& kernels,
                     GradientQueryRows& rows) {
    const FlashUnits units(plan, false, plan.extents().query_heads, kFlashTileRows);
    parallel_for(units.count(),
                 [&](std::int64_t unit) { rows.load(of, units.unit(unit), kernels); });
}

void run_gradient(const TilePlan& plan, const GradientRows& of, const GradientQueryRows& rows,
                  const AttentionKernels& kernels) {
    const GradientProblem problem{plan, of, kernels};
    const FlashExtents& extents = plan.extents();
    const FlashUnits query_units(plan, false, extents.query_heads, kFlashTileRows);
    const KeyChunks chunks(problem, rows.count());
    QueryGradients query_grads(problem, chunks, rows);
    const FlashUnits key_units(plan, true, extents.kv_heads, chunks.length);
    parallel_for(key_units.count(), [&](std::int64_t index) {
        const FlashUnits::Unit unit = key_units.unit(index);
        KeyChunkUnit(problem, rows, query_grads, unit.begin / chunks.length, unit).run();
    });
    parallel_for(query_units.count(),
                 [&](std::int64_t unit) { query_grads.store(query_units.unit(unit)); });
}

}  // namespace attncheck::impl
