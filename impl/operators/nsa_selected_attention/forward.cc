#include "impl/operators/nsa_selected_attention/nsa_selected_attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "impl/operators/selection/selected_call.h"
#include "impl/operators/selection/selected_tile.h"
#include "impl/runtime/thread_pool.h"
#include "impl/arguments/token_heads.h"

// A unit is a chunk of queries of one kv head. Its sums stay in the second-level cache while blocks
// pass by; the rows of a tile are gathered, so that one product serves all of them, and what it
// gives is added back row by row.
namespace attncheck::impl {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct ForwardProblem : SelectedCall<attncheck_nsa_selected_attention_args> {
    std::int64_t chunk_queries;

    ForwardProblem(const attncheck_nsa_selected_attention_args& a, const AttentionKernels& table)
        : SelectedCall(a, table, SelectedBlocks::kColumns, SelectedBlocks::kRows),
          chunk_queries(queries_per_chunk(selection.most_blocks(), selection.count(), group_size)) {
    }
};

class ChunkForward {
public:
    explicit ChunkForward(const ForwardProblem& problem)
        : problem_(problem),
          max_rows_(problem.chunk_queries * problem.group_size),
          lists_(problem.selection),
          tile_(problem.selection, problem.group_size),
          writer_(problem.args.attention_out, problem.kernels),
          query_(max_rows_ * problem.head_dim),
          tile_query_(problem.head_dim, problem.format, problem.kernels, problem.as_pairs),
          sums_(max_rows_ * problem.value_dim),
          tile_sums_(kSelectedTileRows * problem.value_dim),
          probs_(kSelectedTileRows, problem.kernels, problem.as_pairs),
          row_max_(max_rows_),
          row_sum_(max_rows_),
          query_sees_(static_cast<std::size_t>(problem.chunk_queries)),
          query_is_plain_(query_sees_.size()) {}

    void run(const SelectedChunk& chunk) {
        chunk_ = chunk;
        load_queries();
        lists_.start(chunk);
        add_blocks(1.0f);
        // Sums before the division may leave fp32 although the mean of the values does not: smaller
        // probabilities decide which of those elements are really not finite.
        first_.clear();
        if (!problem_.kernels.all_finite(sums_.data(), size())) {
            first_.assign(sums_.data(), sums_.data() + size());
            add_blocks(kSmallFactor);
        }
        write();
    }

private:
    // Up to 2^12 keys, or copies of keys.
    static constexpr float kSmallFactor = 0x1p-12f;
    static_assert(kMaxSelectedBlock * kMaxSelectedCount <= 1 << 12);

    std::int64_t rows() const { return chunk_.size() * problem_.group_size; }
    std::int64_t size() const { return rows() * problem_.value_dim; }

    void load_queries() {
        const std::int64_t group_size = problem_.group_size;
        gather(input_rows(problem_.args.query),
               {chunk_.begin, chunk_.size(), chunk_.kv_head * group_size, group_size,
                problem_.head_dim},
               query_.data());
        const std::int64_t elements = group_size * problem_.head_dim;
        for (std::int64_t i = 0; i < chunk_.size(); ++i) {
            query_is_plain_[static_cast<std::size_t>(i)] =
                problem_.is_plain(query_.data() + i * elements, elements);
        }
    }

    void add_blocks(float prob_factor) {
        std::fill_n(row_max_.data(), rows(), -kInfinity);
        std::fill_n(row_sum_.data(), rows(), 0.0f);
        std::fill_n(sums_.data(), size(), 0.0f);
        std::fill(query_sees_.begin(), query_sees_.end(), std::uint8_t{0});
        lists_.for_each_block(
            [&](std::int64_t block, const std::int32_t* queries, std::int64_t count) {
                for_each_tile_of_block(queries, count, problem_.group_size,
                                       [&](const std::int32_t* some, std::int64_t num_queries) {
                                           tile_.start(chunk_, block, some, num_queries,
                                                       query_sees_.data());
                                           if (tile_.cols() > 0) add_tile(prob_factor);
                                       });
            });
    }

    void add_tile(float prob_factor) {
        const std::int64_t rows = tile_.rows(), cols = tile_.cols(), value_dim = problem_.value_dim;
        const bool plain = problem_.is_plain(tile_, query_is_plain_);
        if (plain) {
            tile_query_.gather(tile_, query_.data());
            problem_.keys.multiply(tile_query_, tile_, problem_.scale, probs_.data());
        } else {
            start_operands();
            operands_->query().multiply(0, rows, operands_->key(), cols, problem_.scale,
                                        probs_.data());
        }
        tile_.fill_hidden(probs_.data(), -kInfinity);

        float row_max[kSelectedTileRows], row_sum[kSelectedTileRows], rescale[kSelectedTileRows];
        tile_.gather(row_max_.data(), 1, row_max);
        tile_.gather(row_sum_.data(), 1, row_sum);
        // Only NaN is ever left out by rounding, and then the sum of the row's probabilities, by
        // which it is divided, is NaN.
        probs_.softmax({rows, cols, prob_factor, row_max, row_sum, rescale});
        tile_.scatter(row_max, row_max_.data());
        tile_.scatter(row_sum, row_sum_.data());

        if (plain) {
            problem_.values.sum_over_keys(probs_, tile_, tile_sums_.data());
        } else {
            std::fill_n(tile_sums_.data(), rows * value_dim, 0.0f);
            operands_->value().add_sum_over_keys(probs_, rows, cols, operands_->visible(),
                                                 tile_sums_.data());
        }
        add_sums(rescale);
    }

    void start_operands() {
        if (!operands_) {
            operands_ = std::make_unique<TileOperands>(problem_.args.key, problem_.args.value,
                                                       problem_.kernels);
        }
        operands_->start(tile_, problem_.selection.block(), query_.data(), nullptr);
    }

    void add_sums(const float* rescale) {
        const std::int64_t value_dim = problem_.value_dim;
        const float* more = tile_sums_.data();
        for (std::int64_t i = 0; i < tile_.num_queries(); ++i) {
            float* sums = sums_.data() + tile_.queries()[i] * problem_.group_size * value_dim;
            for (std::int64_t g = 0; g < problem_.group_size; ++g) {
                problem_.kernels.scale_and_add(sums, *rescale++, more, value_dim);
                sums += value_dim;
                more += value_dim;
            }
        }
    }

    void write() {
        constexpr float kMax = std::numeric_limits<float>::max();
        for (std::int64_t r = 0; r < rows(); ++r) {
            const std::int64_t query = r / problem_.group_size, token = chunk_.begin + query,
                               head =
                                   chunk_.kv_head * problem_.group_size + r % problem_.group_size;
            float row_max = -kMax, row_sum = kMax;
            if (query_sees_[static_cast<std::size_t>(query)] == 0) {
                writer_.write_zeros(token, head);
            } else {
                row_max = row_max_.data()[r];
                row_sum = row_max == -kInfinity ? std::numeric_limits<float>::quiet_NaN()
                                                : row_sum_.data()[r];
                float divisor = row_sum;
                if (!first_.empty()) {
                    merge(r, row_sum);
                    divisor = 1.0f;
                }
                writer_.write_quotient(sums_.data() + r * problem_.value_dim, divisor, token, head);
            }
            fill_copies(problem_.args.softmax_max, token, head, row_max);
            fill_copies(problem_.args.softmax_sum, token, head, row_sum);
        }
    }

    // Sums become quotients; an element that was finite the first time keeps that value.
    void merge(std::int64_t r, float row_sum) {
        for (std::int64_t i = r * problem_.value_dim; i < (r + 1) * problem_.value_dim; ++i) {
            const float before = first_[static_cast<std::size_t>(i)];
            float& sum = sums_.data()[i];
            sum = std::isfinite(before) ? before / row_sum : sum / (row_sum * kSmallFactor);
        }
    }

    const ForwardProblem& problem_;
    std::int64_t max_rows_;
    SelectedChunk chunk_{};
    BlockLists lists_;
    SelectedTile tile_;
    TokenHeadsWriter writer_;
    AlignedBuffer<std::uint16_t> query_;
    GatheredRows tile_query_;
    AlignedBuffer<float> sums_, tile_sums_;
    TileWeights probs_;
    AlignedBuffer<float> row_max_, row_sum_;
    std::vector<std::uint8_t> query_sees_, query_is_plain_;
    std::vector<float> first_;  // empty unless a sum was not finite
    std::unique_ptr<TileOperands> operands_;
};

// Tokens beyond the last sequence.
void write_beyond(const attncheck_nsa_selected_attention_args& args, std::int64_t begin) {
    for (std::int64_t token = begin; token < args.query.shape[0]; ++token) {
        fill_zero({token, 1, 0, args.query.shape[1], args.value.shape[2]},
                  output_rows(args.attention_out));
        for (std::int64_t head = 0; head < args.query.shape[1]; ++head) {
            fill_copies(args.softmax_max, token, head, 0.0f);
            fill_copies(args.softmax_sum, token, head, 0.0f);
        }
    }
}

}  // namespace

void nsa_selected_attention(const attncheck_nsa_selected_attention_args& args,
                            const AttentionKernels& kernels) {
    const ForwardProblem problem(args, kernels);
    const std::int64_t num_queries = problem.selection.num_queries(),
                       chunks = (num_queries + problem.chunk_queries - 1) / problem.chunk_queries,
                       units = chunks * args.key.shape[1];
    // The buffers of a unit serve the next one of the same thread.
    std::atomic<std::int64_t> next{0};
    parallel_for(std::min<std::int64_t>(units, num_threads()), [&](std::int64_t) {
        if (next >= units) return;
        ChunkForward forward(problem);
        for (std::int64_t unit = next++; unit < units; unit = next++) {
            const std::int64_t kv_head = unit / chunks,
                               begin = unit % chunks * problem.chunk_queries,
                               end = std::min(num_queries, begin + problem.chunk_queries);
            for (std::int64_t token = begin; token < end;) {
                const Sequence sequence = problem.selection.sequence_of_query(token);
                const std::int64_t last = std::min(end, sequence.query_end);
                forward.run({sequence, kv_head, token, last});
                token = last;
            }
        }
    });
    write_beyond(args, num_queries);
}

}  // namespace attncheck::impl
