#include "ref/operators/nsa_compress_attention_scores.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "ref/attention/attention_roundoff.h"
#include "ref/numbers/dtype.h"

namespace attncheck::ref {
namespace {

/// Tiles of at least so many neighbouring keys that a sequence lies in, wherever it starts.
double most_tiles(std::int64_t keys, std::int64_t least_tile) {
    return static_cast<double>((keys + least_tile - 1) / least_tile + 1);
}

/// A window with all that lies inside the sequence: calls use(key, weight).
template <class Use>
void for_each_in_window(std::int64_t block, std::int64_t keys, std::int64_t keys_per_select,
                        std::int64_t strides_per_key, const Use& use) {
    const std::int64_t last = keys_per_select * (block + 1);
    for (std::int64_t offset = 0; offset <= keys_per_select + strides_per_key - 2; ++offset) {
        const std::int64_t key = last - offset;
        if (key >= 0 && key < keys)
            use(key, window_weight(offset, keys_per_select, strides_per_key));
    }
}

}  // namespace

std::int64_t window_weight(std::int64_t offset, std::int64_t keys_per_select,
                           std::int64_t strides_per_key) {
    return std::min({offset + 1, keys_per_select, strides_per_key,
                     keys_per_select + strides_per_key - 1 - offset});
}

double BlockScores::difference_bound(std::int64_t a, std::int64_t b) const {
    double sum = 0;
    for (std::int64_t g = 0; g < heads; ++g) {
        const auto at_a = static_cast<std::size_t>(g * blocks() + a);
        const auto at_b = static_cast<std::size_t>(g * blocks() + b);
        const double c = common[static_cast<std::size_t>(g)];
        sum += (1 + c) * (local[at_a] + local[at_b]) +
               c * std::fabs(head_score[at_a] - head_score[at_b]);
    }
    return sum;
}

bool BlockScores::tied(std::int64_t a, std::int64_t b) const {
    const auto at_a = static_cast<std::size_t>(a), at_b = static_cast<std::size_t>(b);
    if (forced[at_a] || forced[at_b]) return forced[at_a] && forced[at_b];
    if (bound[at_a] == 0 && bound[at_b] == 0) return score[at_a] == score[at_b];
    if (!symmetric_ties) return false;
    const auto kind = [&](std::int64_t head, std::int64_t key) {
        if (key < 0 || key >= keys) return ColumnKind::nothing;
        return kinds[static_cast<std::size_t>(head * keys + key)];
    };
    bool vanishes = false, has_top = false;
    for (std::int64_t g = 0; g < heads; ++g)
        for (std::int64_t offset = 0; offset <= keys_per_select + strides_per_key - 2; ++offset) {
            ColumnKind places[] = {kind(g, keys_per_select * (a + 1) - offset),
                                   kind(g, keys_per_select * (b + 1) - offset)};
            for (ColumnKind& place : places) {
                if (place != ColumnKind::vanishing) continue;
                vanishes = true;
                place = ColumnKind::nothing;
            }
            if (places[0] != places[1] || places[0] == ColumnKind::other) return false;
            has_top |= places[0] == ColumnKind::top;
        }
    return has_top || !vanishes;
}

/// Scratch is kept between rows.
class ImportanceScores::Work {
public:
    Work(const CompressAttentionShape& shape, const AttentionInputs<double>& in,
         const CompressMasks& masks, const Precision& precision, Grant grant,
         const GivenStatistics& given)
        : shape_(shape),
          in_(in),
          masks_(masks),
          given_(given),
          queries_(compress_queries(shape)),
          list_columns_(compress_columns(shape, masks)),
          logits_only_(shape.dense()),
          roundoff_(precision),
          score_error_(checked(shape, in, given), in, roundoff_),
          grant_(grant) {
        logits_only_.value_dim = 0;
    }

    const CompressAttentionShape& shape() const { return shape_; }
    const PackedQuery& query(std::int64_t t) const {
        return queries_.at(static_cast<std::size_t>(t));
    }

    BlockScores scores(std::int64_t t, std::int64_t kv_head) {
        const PackedQuery& place = query(t);
        BlockScores out;
        if (place.sequence < 0) return out;
        out.heads = shape_.group(), out.keys = place.kv_length;
        out.keys_per_select = shape_.keys_per_select();
        out.strides_per_key = shape_.strides_per_key();
        out.symmetric_ties = grant_ == Grant::lattice;
        const auto blocks = static_cast<std::size_t>(shape_.select_blocks(out.keys));
        const auto group = static_cast<std::size_t>(out.heads);
        out.score.resize(blocks), out.bound.resize(blocks), out.forced.resize(blocks);
        out.head_score.resize(group * blocks), out.local.resize(group * blocks);
        out.common.resize(group);
        out.kinds.resize(group * static_cast<std::size_t>(out.keys), ColumnKind::nothing);
        force(place, out);
        columns_.clear();
        list_columns_(t, kv_head * shape_.group(), columns_);
        for (std::int64_t g = 0; g < out.heads; ++g)
            add_head(t, kv_head * shape_.group() + g, g, place, out);
        for (const double score : out.score)
            if (!std::isfinite(score)) out.ordered = false;
        return out;
    }

private:
    static AttentionShape checked(const CompressAttentionShape& shape,
                                  const AttentionInputs<double>& in, const GivenStatistics& given) {
        require_attention_shape(shape.dense(), in);
        const std::int64_t rows = shape.total_queries * shape.query_heads;
        if (!given.row_max.empty() || !given.row_sum.empty()) {
            require_elements("row_max", given.row_max.size(), rows);
            require_elements("row_sum", given.row_sum.size(), rows);
        }
        return shape.dense();
    }

    void force(const PackedQuery& place, BlockScores& out) const {
        if (masks_.topk.empty()) return;
        const std::int64_t row = place.position * shape_.most_select_blocks();
        for (std::size_t j = 0; j < out.forced.size(); ++j)
            out.forced[j] = masks_.topk[static_cast<std::size_t>(row) + j] != 0;
    }

    /// The windows of one head. A row without a visible key adds 0 without an error.
    void add_head(std::int64_t t, std::int64_t n, std::int64_t g, const PackedQuery& place,
                  BlockScores& out) {
        if (columns_.empty()) return;
        attend_row(logits_only_, in_, t, n, std::span<const KeyColumn>(columns_), row_);
        measure_columns(t, n, g, place, out);
        const double unit = roundoff_.unit;
        // M N products or additions of a window, G of the group; the quotient, or a reciprocal and
        // a product, and a weight that multiplies.
        const double eta =
            gamma(static_cast<double>(out.keys_per_select * out.strides_per_key + out.heads),
                  roundoff_.sum) +
            4 * unit;
        const auto head = static_cast<std::size_t>(g), blocks = out.score.size();
        const double c = out.common[head];
        for (std::size_t j = 0; j < blocks; ++j) {
            double score = 0, moved = 0;
            for_each_in_window(static_cast<std::int64_t>(j), out.keys, out.keys_per_select,
                               out.strides_per_key, [&](std::int64_t key, std::int64_t weight) {
                                   const auto i = static_cast<std::size_t>(key);
                                   const auto w = static_cast<double>(weight);
                                   score += w * prob_[i];
                                   moved += w * (gain_[i] * (1 + eta) + prob_[i] * eta + loss_[i]);
                               });
            out.head_score[head * blocks + j] = score;
            out.local[head * blocks + j] = moved * roundoff_.oracle;
            out.score[j] += score;
            out.bound[j] += ((1 + c) * moved + c * score) * roundoff_.oracle;
        }
    }

    /// P, what each may gain and lose, the error common to the row, and what ties need to know; all
    /// by position inside the sequence.
    void measure_columns(std::int64_t t, std::int64_t n, std::int64_t g, const PackedQuery& place,
                         BlockScores& out) {
        const auto keys = static_cast<std::size_t>(place.kv_length);
        for (std::vector<double>* each : {&prob_, &gain_, &loss_}) each->assign(keys, 0);
        const double m = row_.row_max, l = row_.row_sum, u = roundoff_.unit;
        const double shift = 4 * u * std::fabs(m);
        if (!std::isfinite(m) || !std::isfinite(l) || !(shift <= kCoarse)) out.ordered = false;
        const double count = static_cast<double>(columns_.size());
        // Hidden keys cut the columns into runs, but not the tiles of 16 keys and more.
        const double tiles = std::min(roundoff_.tiles(columns_),
                                      most_tiles(place.kv_length, roundoff_.least_tile));
        const double growth = gamma(count + 2 * tiles - 3, roundoff_.sum);
        const double log_sum = std::log(l);
        double gained = 0;
        const double* q = in_.query.data() + (t * shape_.query_heads + n) * shape_.head_dim;
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            const std::int64_t key = columns_[c].key - place.first_key;
            const auto i = static_cast<std::size_t>(key);
            const double* k =
                in_.key.data() +
                (columns_[c].key * shape_.kv_heads + n / shape_.group()) * shape_.head_dim;
            const double magnitude = magnitude_product(q, k, shape_.head_dim);
            if (score_error_.may_overflow(finite_magnitude(q, k, shape_.head_dim, magnitude)))
                out.ordered = false;
            const double s = row_.logits[c];
            prob_[i] = prob_of(t, n, s, row_.probs[c]);
            if (!std::isfinite(s)) continue;
            const double eps = score_error_(s, 0, magnitude) + roundoff_.exponent_error(s - m) +
                               3 * u * log_sum + roundoff_.rescale_error(tiles);
            const double highest = std::exp(s - m + eps);
            gain_[i] = std::max(highest / l - row_.probs[c], 0.0);
            loss_[i] = highest < kSafeExp ? kExpFloor : 0;
            gained += gain_[i];
            // steps=half: a composition sums the P that it has stored, behind the row sum.
            if (roundoff_.step > 0)
                gain_[i] += roundoff_.step * (row_.probs[c] + gain_[i]) + roundoff_.step_eta;
            out.kinds[static_cast<std::size_t>(g) * keys + i] =
                s - m + eps + shift <= -kVanishingGap           ? ColumnKind::vanishing
                : s == m && score_error_.is_exact(magnitude) ? ColumnKind::top
                                                             : ColumnKind::other;
        }
        // The row sum, of rounded P with sum=rounded, and with a stored lse its two roundings, those of log and of a maximum that
        // changes its base: 6 u (|m| + log l) + 4 u.
        const double summands =
            roundoff_.row_sum > 0 ? roundoff_.row_sum + count * roundoff_.cast_eta / std::min(1.0, l) : 0;
        const double c =
            (1 + gained) * (1 + growth) * (1 + summands) * std::exp(6 * u * (std::fabs(m) + log_sum) + 4 * u) - 1;
        out.common[static_cast<std::size_t>(g)] = c;
        if (!(c < kInfinity)) out.ordered = false;
    }

    double prob_of(std::int64_t t, std::int64_t n, double logit, double prob) const {
        if (given_.row_max.empty()) return prob;
        const auto at = static_cast<std::size_t>(t * shape_.query_heads + n);
        return std::exp(logit - given_.row_max[at]) / given_.row_sum[at];
    }

    const CompressAttentionShape& shape_;
    AttentionInputs<double> in_;
    CompressMasks masks_;
    GivenStatistics given_;
    std::vector<PackedQuery> queries_;
    ColumnLister list_columns_;
    AttentionShape logits_only_;
    AttentionRoundoff roundoff_;
    ScoreError score_error_;
    Grant grant_;
    std::vector<KeyColumn> columns_;
    AttentionRow<double> row_;
    std::vector<double> prob_, gain_, loss_;
};

ImportanceScores::ImportanceScores(const CompressAttentionShape& shape,
                                   const AttentionInputs<double>& in, const CompressMasks& masks,
                                   const Precision& precision, Grant grant,
                                   const GivenStatistics& given)
    : work_(std::make_unique<Work>(shape, in, masks, precision, grant, given)) {}

ImportanceScores::~ImportanceScores() = default;

const CompressAttentionShape& ImportanceScores::shape() const { return work_->shape(); }
const PackedQuery& ImportanceScores::query(std::int64_t t) const { return work_->query(t); }

BlockScores ImportanceScores::operator()(std::int64_t t, std::int64_t kv_head) {
    return work_->scores(t, kv_head);
}

}  // namespace attncheck::ref
