#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "impl/operators/nsa_selected_attention/nsa_selected_attention.h"
#include "impl/operators/selection/selected_call.h"
#include "impl/operators/selection/selected_key_sums.h"
#include "impl/operators/selection/selected_tile.h"
#include "impl/runtime/thread_pool.h"
#include "impl/arguments/token_heads.h"

// A unit is a slice of the queries of a sequence and kv head, or several short ones. It goes chunk
// by chunk, as the forward, finishes dq of its queries and adds to the sums dk and dv of its slice;
// a second step adds up the slices in their order. So every probability is computed once, five
// products in all, nothing is locked, and bits depend on lengths and lists alone.
namespace attncheck::impl {
namespace {

struct GradientProblem : SelectedCall<attncheck_nsa_selected_attention_grad_args> {
    GradientProblem(const attncheck_nsa_selected_attention_grad_args& a,
                    const AttentionKernels& table)
        : SelectedCall(a, table, SelectedBlocks::kBoth, SelectedBlocks::kColumns) {}

    std::int64_t chunk_queries(std::int64_t num_keys) const {
        return queries_per_chunk(num_keys / selection.block(), selection.count(), group_size);
    }
};

class ChunkGradient {
public:
    ChunkGradient(const GradientProblem& problem, KeySums& key_sums)
        : problem_(problem),
          key_sums_(key_sums),
          max_queries_(
              problem.chunk_queries(problem.selection.most_blocks() * problem.selection.block())),
          max_rows_(max_queries_ * problem.group_size),
          lists_(problem.selection),
          tile_(problem.selection, problem.group_size),
          writer_(problem.args.dq, problem.kernels),
          query_(max_rows_ * problem.head_dim),
          output_grad_(max_rows_ * problem.value_dim),
          tile_query_(problem.head_dim, problem.format, problem.kernels, problem.as_pairs),
          tile_output_grad_(problem.value_dim, problem.format, problem.kernels, problem.as_pairs),
          query_sums_(max_rows_ * problem.head_dim),
          tile_sums_(kSelectedTileRows * problem.head_dim),
          row_max_(max_rows_),
          row_sum_(max_rows_),
          delta_(max_rows_),
          probs_(kSelectedTileRows, problem.kernels, problem.as_pairs),
          score_grads_(kSelectedTileRows, problem.kernels, problem.as_pairs),
          is_plain_(static_cast<std::size_t>(max_queries_)) {}

    void run(const SelectedChunk& chunk, std::int64_t slice) {
        chunk_ = chunk;
        load_queries();
        std::fill_n(query_sums_.data(), rows() * problem_.head_dim, 0.0f);
        lists_.start(chunk);
        lists_.for_each_block(
            [&](std::int64_t block, const std::int32_t* queries, std::int64_t count) {
                const KeySums::Block sums =
                    key_sums_.block(slice, chunk_.kv_head,
                                    chunk_.sequence.key_begin + block * problem_.selection.block());
                for_each_tile_of_block(queries, count, problem_.group_size,
                                       [&](const std::int32_t* some, std::int64_t num_queries) {
                                           tile_.start(chunk_, block, some, num_queries, nullptr);
                                           if (tile_.cols() > 0) add_tile(sums);
                                       });
            });
        write();
    }

private:
    std::int64_t rows() const { return chunk_.size() * problem_.group_size; }

    // Rows of q and dO; statistics and delta = <dO, O>.
    void load_queries() {
        const std::int64_t group_size = problem_.group_size, head_dim = problem_.head_dim,
                           value_dim = problem_.value_dim, head_begin = chunk_.kv_head * group_size;
        const RowBlock block{chunk_.begin, chunk_.size(), head_begin, group_size, head_dim};
        gather(input_rows(problem_.args.query), block, query_.data());
        gather(input_rows(problem_.args.attention_out_grad),
               {chunk_.begin, chunk_.size(), head_begin, group_size, value_dim},
               output_grad_.data());
        TokenHeadsReader reader(problem_.args.attention_out, problem_.kernels);
        alignas(64) float output[kMaxAttentionDim], output_grad[kMaxAttentionDim];
        for (std::int64_t r = 0; r < rows(); ++r) {
            const std::int64_t query = r / group_size, token = chunk_.begin + query,
                               head = head_begin + r % group_size;
            const std::uint16_t* grad = output_grad_.data() + r * value_dim;
            reader.read(token, head, output);
            problem_.kernels.widen_row[static_cast<int>(problem_.format)](grad, output_grad,
                                                                          value_dim);
            delta_.data()[r] = problem_.kernels.dot(output_grad, output, value_dim);
            row_max_.data()[r] = first_copy(problem_.args.softmax_max, token, head);
            row_sum_.data()[r] = first_copy(problem_.args.softmax_sum, token, head);
            std::uint8_t& is_plain = is_plain_[static_cast<std::size_t>(query)];
            if (r % group_size == 0) is_plain = 1;
            if (!problem_.is_plain(query_.data() + r * head_dim, head_dim) ||
                !problem_.is_plain(grad, value_dim))
                is_plain = 0;
        }
    }

    void add_tile(const KeySums::Block& sums) {
        const bool plain = problem_.is_plain(tile_, is_plain_);
        has_operands_ = false;
        // Plain as they are, weights that rounding has left out may need the other operands.
        if (plain) {
            tile_query_.gather(tile_, query_.data());
            tile_output_grad_.gather(tile_, output_grad_.data());
        }
        fill_weights(plain);
        add_query_sums(plain);
        add_key_sums(plain, sums);
    }

    TileOperands& operands() {
        if (!operands_) {
            operands_ = std::make_unique<TileOperands>(problem_.args.key, problem_.args.value,
                                                       problem_.kernels);
        }
        if (!has_operands_) {
            operands_->start(tile_, problem_.selection.block(), query_.data(), output_grad_.data());
            has_operands_ = true;
        }
        return *operands_;
    }

    // P and dS, exactly 0 where the pair is hidden.
    void fill_weights(bool plain) {
        const std::int64_t rows = tile_.rows(), cols = tile_.cols();
        float *probs = probs_.data(), *score_grads = score_grads_.data();
        if (plain) {
            problem_.keys.multiply(tile_query_, tile_, problem_.scale, probs);
            problem_.values.multiply(tile_output_grad_, tile_, 1.0f, score_grads);
        } else {
            TileOperands& exact = operands();
            exact.query().multiply(0, rows, exact.key(), cols, problem_.scale, probs);
            exact.output_grad().multiply(0, rows, exact.value(), cols, 1.0f, score_grads);
        }
        float row_max[kSelectedTileRows], row_sum[kSelectedTileRows], delta[kSelectedTileRows];
        tile_.gather(row_max_.data(), 1, row_max);
        tile_.gather(row_sum_.data(), 1, row_sum);
        tile_.gather(delta_.data(), 1, delta);
        TileWeights::gradient(probs_, score_grads_, {rows, cols, row_max, row_sum, delta});
        tile_.fill_hidden(probs, 0.0f);
        tile_.fill_hidden(score_grads, 0.0f);
    }

    void add_query_sums(bool plain) {
        const std::int64_t rows = tile_.rows(), cols = tile_.cols(), dim = problem_.head_dim;
        score_grads_.round_for_keys(rows, cols);
        if (plain && !score_grads_.has_lost()) {
            problem_.keys.sum_over_keys(score_grads_, tile_, tile_sums_.data());
        } else {
            std::fill_n(tile_sums_.data(), rows * dim, 0.0f);
            operands().key().add_sum_over_keys(score_grads_, rows, cols, operands().visible(),
                                               tile_sums_.data());
        }
        tile_.for_each_query(dim, [&](std::int64_t to, std::int64_t from, std::int64_t size) {
            problem_.kernels.scale_and_add(query_sums_.data() + to, 1.0f, tile_sums_.data() + from,
                                           size);
        });
    }

    void add_key_sums(bool plain, const KeySums::Block& sums) {
        const std::int64_t rows = tile_.rows(), cols = tile_.cols();
        score_grads_.round_for_rows(rows, cols);
        if (plain && !score_grads_.has_lost()) {
            tile_query_.add_sum_over_rows(score_grads_, cols, sums.key_sums);
        } else {
            operands().query().add_sum_over_rows(score_grads_, 0, rows, cols, operands().visible(),
                                                 sums.key_sums);
        }
        probs_.round_for_rows(rows, cols);
        if (plain && !probs_.has_lost()) {
            tile_output_grad_.add_sum_over_rows(probs_, cols, sums.value_sums);
        } else {
            operands().output_grad().add_sum_over_rows(probs_, 0, rows, cols, operands().visible(),
                                                       sums.value_sums);
        }
    }

    // The scale is finite in fp32: a row that sees no key gets +0.
    void write() {
        for (std::int64_t r = 0; r < rows(); ++r) {
            const std::int64_t query = r / problem_.group_size, token = chunk_.begin + query,
                               head =
                                   chunk_.kv_head * problem_.group_size + r % problem_.group_size;
            writer_.write_product(query_sums_.data() + r * problem_.head_dim, problem_.scale, token,
                                  head);
        }
    }

    const GradientProblem& problem_;
    KeySums& key_sums_;
    std::int64_t max_queries_, max_rows_;
    SelectedChunk chunk_{};
    BlockLists lists_;
    SelectedTile tile_;
    TokenHeadsWriter writer_;
    AlignedBuffer<std::uint16_t> query_, output_grad_;
    GatheredRows tile_query_, tile_output_grad_;
    AlignedBuffer<float> query_sums_, tile_sums_, row_max_, row_sum_, delta_;
    TileWeights probs_, score_grads_;
    std::vector<std::uint8_t> is_plain_;  // q and dO of a query
    bool has_operands_ = false;
    std::unique_ptr<TileOperands> operands_;
};

}  // namespace

void nsa_selected_attention_grad(const attncheck_nsa_selected_attention_grad_args& args,
                                 const AttentionKernels& kernels) {
    const GradientProblem problem(args, kernels);
    const QuerySlices slices(problem.selection, problem.head_dim + problem.value_dim);
    KeySums key_sums(problem.selection, slices.num_slices(), problem.head_dim, problem.value_dim,
                     kernels);
    const std::int64_t units = slices.num_units() * args.key.shape[1];
    // The buffers of a unit serve the next one of the same thread.
    std::atomic<std::int64_t> next{0};
    parallel_for(std::min<std::int64_t>(units, num_threads()), [&](std::int64_t) {
        if (next >= units) return;
        ChunkGradient gradient(problem, key_sums);
        for (std::int64_t unit = next++; unit < units; unit = next++) {
            const std::int64_t kv_head = unit / slices.num_units();
            slices.for_each_slice(unit % slices.num_units(), [&](const QuerySlices::Slice& slice) {
                const Sequence& sequence = slice.sequence;
                const std::int64_t step =
                    problem.chunk_queries(sequence.key_end - sequence.key_begin);
                for (std::int64_t begin = slice.begin; begin < slice.end; begin += step) {
                    gradient.run({sequence, kv_head, begin, std::min(slice.end, begin + step)},
                                 slice.index);
                }
            });
        }
    });
    key_sums.store(problem.scale, args.dk, args.dv);
    const std::int64_t begin = problem.selection.num_queries();
    fill_zero({begin, args.dq.shape[0] - begin, 0, args.dq.shape[1], problem.head_dim},
              output_rows(args.dq));
}

}  // namespace attncheck::impl
