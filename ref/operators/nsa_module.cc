#include "ref/operators/nsa_module.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "ref/attention/attention_roundoff.h"
#include "ref/operators/packed_queries.h"

namespace attncheck::ref {
namespace {

using Columns = std::vector<KeyColumn>;

/// First compressed row of each sequence.
std::vector<std::int64_t> first_blocks(const NsaModuleShape& shape) {
    const CompressShape compress = shape.compress(1);
    std::vector<std::int64_t> first;
    std::int64_t row = 0;
    for (const std::int64_t length : shape.lengths) {
        first.push_back(row);
        row += compress.blocks_of(length);
    }
    return first;
}

void list_blocks(const NsaModuleShape& shape, const PackedQuery& query, std::int64_t first,
                 Columns& columns) {
    for (std::int64_t j = 0; j * shape.stride + shape.block - 1 <= query.position; ++j)
        columns.push_back({first + j, 0, true});
}

void list_selected(const NsaModuleShape& shape, const PackedQuery& query,
                   std::span<const std::int64_t> list, Columns& columns) {
    for (const std::int64_t index : list) {
        if (index < 0)
            throw std::invalid_argument("nsa_module: block " + std::to_string(index) +
                                        " is listed");
        const std::int64_t begin = index * shape.select_block,
                           end = std::min(begin + shape.select_block, query.position + 1);
        for (std::int64_t position = begin; position < end; ++position)
            columns.push_back({query.first_key + position, 0, true});
    }
}

void list_window(const NsaModuleShape& shape, const PackedQuery& query, Columns& columns) {
    for (std::int64_t u = std::max<std::int64_t>(0, query.position - shape.window + 1);
         u <= query.position; ++u)
        columns.push_back({query.first_key + u, 0, true});
}

/// The values of expected gradients; their bounds play no role here.
std::vector<double> value_of(ExpectedTensor tensor) { return std::move(tensor.value); }

}  // namespace

ColumnLister module_columns(const NsaModuleShape& shape, int branch,
                            std::span<const std::int64_t> topk) {
    require_elements("topk", topk.size(), shape.tokens * shape.kv_heads * shape.select_count);
    auto queries =
        packed_queries("nsa_module", {shape.lengths, shape.lengths, shape.tokens, shape.tokens});
    return [shape, branch, topk, queries = std::move(queries), first = first_blocks(shape)](
               std::int64_t t, std::int64_t head, Columns& columns) {
        const PackedQuery& query = queries[static_cast<std::size_t>(t)];
        if (query.sequence < 0) return false;
        const std::int64_t row = t * shape.kv_heads + head / (shape.query_heads / shape.kv_heads);
        if (branch == 0)
            list_blocks(shape, query, first[static_cast<std::size_t>(query.sequence)], columns);
        else if (branch == 1)
            list_selected(shape, query,
                          topk.subspan(static_cast<std::size_t>(row * shape.select_count),
                                       static_cast<std::size_t>(shape.select_count)),
                          columns);
        else
            list_window(shape, query, columns);
        return true;
    };
}

NsaModuleGrad nsa_module_grad(const NsaModuleShape& shape, const NsaModuleInputs<double>& in,
                              std::span<const std::int64_t> topk,
                              const NsaModuleForward<double>& forward,
                              std::span<const double> output_grad) {
    // The storage type and rounding class only matter to bounds, which are not used.
    constexpr Dtype kAny = Dtype::fp32;
    const auto rows = static_cast<std::size_t>(shape.tokens * shape.query_heads),
               width = static_cast<std::size_t>(shape.value_dim);
    NsaModuleGrad out;
    out.query.assign(in.query.size(), 0);
    out.gate_logits.assign(in.gate_logits.size(), 0);
    for (std::size_t b = 0; b < kModuleBranches; ++b) {
        const auto& branch = forward.branch[b];
        std::vector<double> branch_grad(rows * width);
        for (std::size_t row = 0; row < rows; ++row) {
            const double gate = sigmoid(in.gate_logits[row * 3 + b]);
            for (std::size_t c = row * width; c < (row + 1) * width; ++c)
                branch_grad[c] = gate * output_grad[c];
            out.gate_logits[row * 3 + b] =
                gate * (1 - gate) *
                inner_product(output_grad.data() + row * width, branch.output.data() + row * width,
                              shape.value_dim);
        }
        const AttentionGradInputs attention{
            inputs_of_branch<double>(shape, in, b, forward.key_blocks, forward.value_blocks),
            branch_grad, branch.output, branch.row_max, branch.row_sum};
        const ColumnLister columns = module_columns(shape, static_cast<int>(b), topk);
        AttentionGrad grad =
            dense_attention_grad({shape.dense(static_cast<int>(b)), columns, attention});
        out.branch_query[b] = std::move(grad.query);
        for (std::size_t i = 0; i < out.query.size(); ++i) out.query[i] += out.branch_query[b][i];
        out.key[b] = std::move(grad.key);
        out.value[b] = std::move(grad.value);
    }
    out.key_blocks = std::move(out.key[0]);
    out.value_blocks = std::move(out.value[0]);
    auto key = expected_nsa_compress_grad(shape.compress(shape.head_dim), kAny, out.key_blocks,
                                          in.key[0], in.key_weight);
    auto value = expected_nsa_compress_grad(shape.compress(shape.value_dim), kAny, out.value_blocks,
                                            in.value[0], in.value_weight);
    out.key[0] = value_of(std::move(key.input_grad));
    out.key_weight = value_of(std::move(key.weight_grad));
    out.value[0] = value_of(std::move(value.input_grad));
    out.value_weight = value_of(std::move(value.weight_grad));
    return out;
}

}  // namespace attncheck::ref
