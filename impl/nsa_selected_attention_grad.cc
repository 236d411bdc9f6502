#include <algorithm>
#include <limits>
#include <vector>

#include "impl/flash_attention_operand.h"
#include "impl/key_panels.h"
#include "impl/key_selection.h"
#include "impl/key_tile.h"
#include "impl/nsa_selected_attention.h"
#include "impl/thread_pool.h"
#include "impl/token_heads.h"

// Two passes that share nothing but the inputs. dq of a query is a sum over its keys: pass 1 walks
// queries like the forward. dk and dv of a key are sums over the queries that see it: pass 2 walks
// blocks of keys with the lists turned round and computes the probabilities again, which costs
// 2 of its 4 products and saves both locks and partial results of the size of the gradient.
namespace attncheck::impl {
namespace {

struct GradientProblem {
    const attncheck_nsa_selected_attention_grad_args& args;
    const AttentionKernels& kernels;
    KeySelection selection;
    SelectingQueries selecting;
    std::vector<std::uint8_t> listed;
    TransposedPanels key_panels, value_panels;
    ContiguousRows key_rows;
    std::int64_t group_size, head_dim, value_dim;
    float scale;
    int format;

    GradientProblem(const attncheck_nsa_selected_attention_grad_args& a,
                    const AttentionKernels& table)
        : args(a),
          kernels(table),
          selection(a),
          selecting(selection),
          listed(listed_blocks(selection, selecting)),
          key_panels(input_rows(a.key), a.key.shape[2], selection, listed),
          value_panels(input_rows(a.value), a.value.shape[2], selection, listed),
          key_rows(input_rows(a.key), a.key.shape[2], selection, listed),
          group_size(a.query.shape[1] / a.key.shape[1]),
          head_dim(a.query.shape[2]),
          value_dim(a.value.shape[2]),
          scale(static_cast<float>(a.scale_value)),
          format(static_cast<int>(half_format(a.query))) {}
};

// What both passes need of a query: rows of q and dO, statistics and delta, for up to `max_rows`
// pairs of a token and a head.
class QueryRows {
public:
    QueryRows(const GradientProblem& problem, std::int64_t kv_head, std::int64_t max_rows)
        : problem_(problem),
          head_begin_(kv_head * problem.group_size),
          query_reader_(problem.args.query, problem.kernels),
          output_reader_(problem.args.attention_out, problem.kernels),
          output_grad_reader_(problem.args.attention_out_grad, problem.kernels),
          query_(max_rows * problem.head_dim),
          output_grad_(max_rows * problem.value_dim),
          output_(problem.group_size * problem.value_dim),
          row_max_(max_rows),
          row_sum_(max_rows),
          delta_(max_rows) {}

    /// Rows [row, row + G) become those of `token`.
    void load(std::int64_t token, std::int64_t row) {
        const std::int64_t value_dim = problem_.value_dim;
        float* output_grad = output_grad_.data() + row * value_dim;
        query_reader_.read(token, head_begin_, problem_.group_size,
                           query_.data() + row * problem_.head_dim);
        output_grad_reader_.read(token, head_begin_, problem_.group_size, output_grad);
        output_reader_.read(token, head_begin_, problem_.group_size, output_.data());
        for (std::int64_t g = 0; g < problem_.group_size; ++g) {
            row_max_.data()[row + g] =
                first_copy(problem_.args.softmax_max, token, head_begin_ + g);
            row_sum_.data()[row + g] =
                first_copy(problem_.args.softmax_sum, token, head_begin_ + g);
            delta_.data()[row + g] = problem_.kernels.dot(
                output_grad + g * value_dim, output_.data() + g * value_dim, value_dim);
        }
    }
    const float* query(std::int64_t row) const { return query_.data() + row * problem_.head_dim; }
    const float* output_grad(std::int64_t row) const {
        return output_grad_.data() + row * problem_.value_dim;
    }
    /// Turns logits and dP of the first rows into P and dS.
    void to_gradients(float* logits, float* prob_grads, std::int64_t stride, std::int64_t rows,
                      std::int64_t cols) const {
        problem_.kernels.gradient_tile({logits, prob_grads, stride, rows, cols, row_max_.data(),
                                        row_sum_.data(), delta_.data()});
    }

private:
    const GradientProblem& problem_;
    std::int64_t head_begin_;
    TokenHeadsReader query_reader_, output_reader_, output_grad_reader_;
    AlignedBuffer<float> query_, output_grad_, output_, row_max_, row_sum_, delta_;
};

// Pass 1: dq of some queries, for the heads of one kv head.
class QueryGradientUnit {
public:
    QueryGradientUnit(const GradientProblem& problem, std::int64_t kv_head)
        : problem_(problem),
          kv_head_(kv_head),
          tile_(problem.key_rows, problem.group_size,
                problem.kernels.panel_product[problem.format]),
          rows_(problem, kv_head, problem.group_size),
          writer_(problem.args.dq, problem.kernels),
          logits_(problem.group_size * kTileKeys),
          prob_grads_(problem.group_size * kTileKeys),
          sums_(problem.group_size * problem.head_dim) {}

    void run(std::int64_t token_begin, std::int64_t token_end) {
        const std::int64_t head_begin = kv_head_ * problem_.group_size;
        Sequence sequence;
        for (std::int64_t token = token_begin; token < token_end; ++token) {
            const bool in_sequence = token < problem_.selection.num_queries();
            if (in_sequence && token >= sequence.query_end)
                sequence = problem_.selection.sequence_of_query(token);
            if (!in_sequence || !add_tiles(sequence, token)) {
                writer_.write_zeros(token, head_begin, problem_.group_size);
                continue;
            }
            for (std::int64_t g = 0; g < problem_.group_size; ++g) {
                writer_.write_product(sums_.data() + g * problem_.head_dim, problem_.scale, token,
                                      head_begin + g);
            }
        }
    }

private:
    bool add_tiles(const Sequence& sequence, std::int64_t token) {
        std::fill_n(sums_.data(), problem_.group_size * problem_.head_dim, 0.0f);
        rows_.load(token, 0);
        const TileProduct products[] = {{rows_.query(0), &problem_.key_panels, problem_.head_dim,
                                         problem_.scale, logits_.data()},
                                        {rows_.output_grad(0), &problem_.value_panels,
                                         problem_.value_dim, 1.0f, prob_grads_.data()}};
        return for_each_tile(problem_.selection, sequence, token, kv_head_, products, tile_,
                             [&] { add_tile(); });
    }

    void add_tile() {
        const std::int64_t group_size = problem_.group_size, head_dim = problem_.head_dim;
        tile_.pad(logits_.data(), 0.0f);
        const std::int64_t padded = tile_.pad(prob_grads_.data(), 0.0f);
        rows_.to_gradients(logits_.data(), prob_grads_.data(), kTileKeys, group_size, padded);
        problem_.kernels.row_product[problem_.format]({prob_grads_.data(), kTileKeys, group_size,
                                                       tile_.key_rows(), tile_.cols(), head_dim,
                                                       sums_.data(), head_dim});
    }

    const GradientProblem& problem_;
    std::int64_t kv_head_;
    KeyTile tile_;
    QueryRows rows_;
    TokenHeadsWriter writer_;
    AlignedBuffer<float> logits_, prob_grads_, sums_;
};

// Keys [key_begin, key_begin + num_keys) of a block of the pack.
struct KeyUnit {
    std::int64_t kv_head, block, key_begin, num_keys, work;
};

// Rows of a batch of queries: a strip of 4 vectors of them takes 16 KiB, half of a first-level
// cache, and is read again for every 6 keys.
constexpr std::int64_t kBatchRows = 64;
static_assert(kBatchRows >= kMaxHeadsPerGroup);

// Pass 2: dk and dv of a few keys, summed over the queries that list their block.
class KeyGradientUnit {
public:
    KeyGradientUnit(const GradientProblem& problem, const KeyUnit& unit)
        : problem_(problem),
          unit_(unit),
          first_key_(unit.block * problem.selection.block() + unit.key_begin),
          sequence_(problem.selection.sequence_of_key(first_key_)),
          rows_(problem, unit.kv_head, kBatchRows),
          probs_(kBatchRows * unit.num_keys),
          score_grads_(kBatchRows * unit.num_keys),
          key_grads_(unit.num_keys * problem.head_dim),
          value_grads_(unit.num_keys * problem.value_dim) {}

    void run() {
        std::fill_n(key_grads_.data(), unit_.num_keys * problem_.head_dim, 0.0f);
        std::fill_n(value_grads_.data(), unit_.num_keys * problem_.value_dim, 0.0f);
        const std::int64_t count = problem_.selecting.count(unit_.kv_head, unit_.block),
                           batch = kBatchRows / problem_.group_size;
        const std::int32_t* queries = problem_.selecting.queries(unit_.kv_head, unit_.block);
        for (std::int64_t i = 0; i < count; i += batch) {
            add_batch(queries + i, std::min(batch, count - i));
        }
        store();
    }

private:
    // Products of hidden pairs are formed, each in a lane of its own, but never summed.
    void add_batch(const std::int32_t* queries, std::int64_t count) {
        const std::int64_t group_size = problem_.group_size, num_rows = count * group_size;
        for (std::int64_t i = 0; i < count; ++i) rows_.load(queries[i], i * group_size);
        const auto panel_product = problem_.kernels.panel_product[problem_.format];
        panel_product({rows_.query(0), problem_.head_dim, num_rows,
                       problem_.key_panels.at(unit_.kv_head, first_key_), problem_.head_dim,
                       unit_.num_keys, problem_.scale, probs_.data(), unit_.num_keys});
        panel_product({rows_.output_grad(0), problem_.value_dim, num_rows,
                       problem_.value_panels.at(unit_.kv_head, first_key_), problem_.value_dim,
                       unit_.num_keys, 1.0f, score_grads_.data(), unit_.num_keys});
        rows_.to_gradients(probs_.data(), score_grads_.data(), unit_.num_keys, num_rows,
                           unit_.num_keys);

        // Neighbouring queries that see the whole block are one product. The block decides, not the
        // keys of this unit: otherwise the order of summation would depend on how blocks are cut.
        const std::int64_t block = problem_.selection.block(),
                           block_pos = first_key_ - unit_.key_begin - sequence_.key_begin;
        const std::int64_t key_end = unit_.key_begin + unit_.num_keys;
        VisibleRanges seen;
        std::int64_t whole_begin = 0;
        for (std::int64_t i = 0; i < count; ++i) {
            problem_.selection.visible_ranges(queries[i] - sequence_.query_begin, block_pos, block,
                                              seen);
            if (seen.covers(block)) continue;
            add_products(whole_begin, i, 0, unit_.num_keys);
            for (int r = 0; r < seen.count; ++r) {
                add_products(
                    i, i + 1,
                    std::max<std::int64_t>(seen.range[r].begin, unit_.key_begin) - unit_.key_begin,
                    std::min<std::int64_t>(seen.range[r].end, key_end) - unit_.key_begin);
            }
            whole_begin = i + 1;
        }
        add_products(whole_begin, count, 0, unit_.num_keys);
    }

    // Queries [begin, end) of the batch, which all see keys [key_begin, key_end) of the unit.
    void add_products(std::int64_t begin, std::int64_t end, std::int64_t key_begin,
                      std::int64_t key_end) {
        if (begin >= end || key_begin >= key_end) return;
        const std::int64_t row = begin * problem_.group_size,
                           depth = (end - begin) * problem_.group_size,
                           num_keys = key_end - key_begin, left = row * unit_.num_keys + key_begin;
        const std::int64_t head_dim = problem_.head_dim, value_dim = problem_.value_dim;
        problem_.kernels.transposed_product({score_grads_.data() + left, unit_.num_keys, num_keys,
                                             rows_.query(row), head_dim, depth, head_dim,
                                             key_grads_.data() + key_begin * head_dim, head_dim});
        problem_.kernels.transposed_product(
            {probs_.data() + left, unit_.num_keys, num_keys, rows_.output_grad(row), value_dim,
             depth, value_dim, value_grads_.data() + key_begin * value_dim, value_dim});
    }

    void store() {
        TokenHeadsWriter key_writer(problem_.args.dk, problem_.kernels);
        TokenHeadsWriter value_writer(problem_.args.dv, problem_.kernels);
        for (std::int64_t key = 0; key < unit_.num_keys; ++key) {
            key_writer.write_product(key_grads_.data() + key * problem_.head_dim, problem_.scale,
                                     first_key_ + key, unit_.kv_head);
            value_writer.write_product(value_grads_.data() + key * problem_.value_dim, 1.0f,
                                       first_key_ + key, unit_.kv_head);
        }
    }

    const GradientProblem& problem_;
    KeyUnit unit_;
    std::int64_t first_key_;
    Sequence sequence_;
    QueryRows rows_;
    AlignedBuffer<float> probs_, score_grads_, key_grads_, value_grads_;
};

// The listed blocks, those that much of the work belongs to cut into ranges of keys (a multiple of
// 16): every key is summed in the same order however it is cut. Largest first, so that the last
// units to end are small.
std::vector<KeyUnit> cut_keys(const GradientProblem& problem) {
    constexpr std::int64_t kUnitsPerThread = 8;
    const std::int64_t num_blocks = problem.selection.num_blocks(),
                       num_kv_heads = problem.selection.num_kv_heads(),
                       groups = problem.selection.block() / kKeyGroup;
    std::int64_t total = 0;
    for (std::int64_t i = 0; i < num_kv_heads * num_blocks; ++i) {
        total += problem.selecting.count(i / num_blocks, i % num_blocks);
    }
    const std::int64_t most = total / (kUnitsPerThread * num_threads()) + 1;
    std::vector<KeyUnit> units;
    for (std::int64_t i = 0; i < num_kv_heads * num_blocks; ++i) {
        const std::int64_t count = problem.selecting.count(i / num_blocks, i % num_blocks);
        if (count == 0) continue;
        const std::int64_t parts =
            num_threads() == 1 ? 1 : std::min(groups, (count + most - 1) / most);
        for (std::int64_t part = 0; part < parts; ++part) {
            const std::int64_t begin = groups * part / parts, end = groups * (part + 1) / parts;
            units.push_back({i / num_blocks, i % num_blocks, begin * kKeyGroup,
                             (end - begin) * kKeyGroup, (end - begin) * count});
        }
    }
    std::stable_sort(units.begin(), units.end(), [](const KeyUnit& left, const KeyUnit& right) {
        return left.work > right.work;
    });
    return units;
}

// Zeros for keys in no list and for tokens beyond the last sequence.
void zero_other_keys(const GradientProblem& problem) {
    const StridedRows<std::uint16_t> key_grads = output_rows(problem.args.dk),
                                     value_grads = output_rows(problem.args.dv);
    const std::int64_t num_tokens = problem.args.dk.shape[0], block = problem.selection.block(),
                       num_blocks = problem.selection.num_blocks(),
                       num_kv_heads = problem.selection.num_kv_heads();
    const auto zero = [&](std::int64_t token, std::int64_t count, std::int64_t head) {
        fill_zero({token, count, head, 1, problem.head_dim}, key_grads);
        fill_zero({token, count, head, 1, problem.value_dim}, value_grads);
    };
    parallel_for(num_kv_heads, [&](std::int64_t head) {
        for (std::int64_t i = 0; i < num_blocks; ++i) {
            if (problem.selecting.count(head, i) == 0) zero(i * block, block, head);
        }
        const std::int64_t num_keys = num_blocks * block;
        zero(num_keys, num_tokens - num_keys, head);
    });
}

}  // namespace

void nsa_selected_attention_grad(const attncheck_nsa_selected_attention_grad_args& args,
                                 const AttentionKernels& kernels) {
    if (takes_pairs(args.query.dtype, kernels))
        return nsa_selected_attention_grad_in_pairs(args, kernels);
    const GradientProblem problem(args, kernels);
    const QueryUnits query_units(args.query.shape[0], args.key.shape[1],
                                 problem.group_size * (2 * problem.head_dim + problem.value_dim) *
                                     args.selected_block_size * args.selected_block_count);
    parallel_for(query_units.count(), [&](std::int64_t unit) {
        QueryGradientUnit(problem, query_units.kv_head(unit))
            .run(query_units.begin(unit), query_units.end(unit));
    });
    const std::vector<KeyUnit> key_units = cut_keys(problem);
    parallel_for(static_cast<std::int64_t>(key_units.size()), [&](std::int64_t unit) {
        KeyGradientUnit(problem, key_units[static_cast<std::size_t>(unit)]).run();
    });
    zero_other_keys(problem);
}

}  // namespace attncheck::impl
