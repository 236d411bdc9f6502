// The documented constraints of NsaCompress and NsaCompressGrad. Source: contract.md, return values
// and decisions 4 and 5. Arguments may hold anything: every comparison comes before the arithmetic
// that relies on it.
#include <limits>

#include "ref/constraints/constraints.h"
#include "ref/constraints/examination.h"

namespace attncheck::ref {
namespace {

constexpr std::int64_t kMaxHeads = 128, kMaxHeadDim = 256, kMaxBlock = 128;
constexpr std::int64_t kGranule = 16;  ///< head_dim, block and stride are multiples of it

/// The checks the forward and the gradient have in common.
struct CompressExamination : Examination {
    void input_dtype(const TensorArgument& input) {
        dtype(input, "input", {Dtype::fp16, Dtype::bf16});
    }
    void input_extent(bool holds, const char* name, std::int64_t value, const char* allowed,
                      const std::string& side = {}) {
        extent(holds, "input", name, value, allowed, side);
    }
    void multiple_of_16(std::int64_t value, std::int64_t largest, const char* parameter,
                        const std::string& allowed) {
        number(value > 0 && value <= largest && value % kGranule == 0, parameter, value, allowed,
               side_of(value, kGranule, largest));
    }

    void attributes(std::int64_t block, std::int64_t stride, std::int64_t act_seq_len_type,
                    bool block_may_be_stride) {
        multiple_of_16(block, kMaxBlock, "compress_block_size", "a multiple of 16, 16..128");
        multiple_of_16(stride, std::numeric_limits<std::int64_t>::max(), "compress_stride",
                       "a positive multiple of 16");
        number(stride < block || (block_may_be_stride && stride == block), "compress_stride",
               stride,
               std::string(block_may_be_stride ? "at most" : "less than") +
                   " compress_block_size = " + std::to_string(block));
        number(act_seq_len_type == 0, "act_seq_len_type", act_seq_len_type, "0");
    }

    void input_and_weight_shape(const TensorArgument& input, const TensorArgument& weight,
                                std::int64_t block) {
        if (!accepted()) return;
        const std::int64_t tokens = input.shape[0], heads = input.shape[1], dim = input.shape[2];
        input_extent(tokens >= 1, "T", tokens, "T >= 1");
        input_extent(heads >= 1 && heads <= kMaxHeads, "N", heads, "N in 1..128",
                     side_of(heads, 1, kMaxHeads));
        input_extent(dim >= kGranule && dim <= kMaxHeadDim && dim % kGranule == 0, "D", dim,
                     "D a multiple of 16, 16..256", side_of(dim, kGranule, kMaxHeadDim));
        if (!accepted()) return;
        const bool fits = tokens <= std::numeric_limits<std::int64_t>::max() / (heads * dim);
        input_extent(fits, "T", tokens, "T * N * D within int64");
        shape(weight, "weight", "[compress_block_size,N]", {block, heads});
    }

    void act_seq_len(const ArrayArgument& array, std::int64_t tokens) {
        array_size(array.size > 0, array, "act_seq_len", "size >= 1");
        lengths(array, "act_seq_len", "T", tokens, [](std::size_t, std::int64_t) {});
    }
};

/// C for accepted lengths, block and stride.
std::int64_t count_blocks(const std::vector<std::int64_t>& cumulative, std::int64_t block,
                          std::int64_t stride) {
    std::int64_t blocks = 0, begin = 0;
    for (const std::int64_t end : cumulative) {
        if (end - begin >= block) blocks += (end - begin - block) / stride + 1;
        begin = end;
    }
    return blocks;
}

}  // namespace

Ruling rule_nsa_compress(const CompressArguments& a) {
    CompressExamination e;
    e.present(a.input.present, "input", "a tensor [T,N,D]");
    e.present(a.weight.present, "weight", "a tensor [compress_block_size,N]");
    e.present(a.act_seq_len.present, "act_seq_len", "cumulative sequence lengths");
    e.present(a.layout.has_value(), "layout", "\"TND\"");
    e.present(a.output.present, "output", "a tensor [C,N,D]");
    e.layout(a.layout, "layout");
    e.rank(a.input, "input", 3);
    e.rank(a.weight, "weight", 2);
    e.rank(a.output, "output", 3);
    e.input_dtype(a.input);
    e.same_dtype(a.weight, "weight", a.input, "input");
    e.same_dtype(a.output, "output", a.input, "input");
    e.attributes(a.compress_block_size, a.compress_stride, a.act_seq_len_type, true);
    e.input_and_weight_shape(a.input, a.weight, a.compress_block_size);
    if (!e.accepted()) return e.ruling;
    e.act_seq_len(a.act_seq_len, a.input.shape[0]);
    if (!e.accepted()) return e.ruling;
    const std::int64_t blocks =
        count_blocks(a.act_seq_len.values, a.compress_block_size, a.compress_stride);
    e.shape(a.output, "output", "[C,N,D]", {blocks, a.input.shape[1], a.input.shape[2]});
    return e.ruling;
}

Ruling rule_nsa_compress_grad(const CompressGradArguments& a) {
    CompressExamination e;
    const bool one_sequence = !a.act_seq_len.present && a.act_seq_len.size == 0;
    e.present(a.output_grad.present, "output_grad", "a tensor [C,N,D]");
    e.present(a.input.present, "input", "a tensor [T,N,D]");
    e.present(a.weight.present, "weight", "a tensor [compress_block_size,N]");
    e.present(
        a.act_seq_len.present || a.act_seq_len.size <= 0, "act_seq_len",
        "values for its size " + std::to_string(a.act_seq_len.size) + ", or absent with size 0");
    e.present(a.input_grad.present, "input_grad", "a tensor [T,N,D]");
    e.present(a.weight_grad.present, "weight_grad", "a tensor [compress_block_size,N]");
    e.layout(a.layout, "layout");
    e.rank(a.output_grad, "output_grad", 3);
    e.rank(a.input, "input", 3);
    e.rank(a.weight, "weight", 2);
    e.rank(a.input_grad, "input_grad", 3);
    e.rank(a.weight_grad, "weight_grad", 2);
    e.input_dtype(a.input);
    e.same_dtype(a.output_grad, "output_grad", a.input, "input");
    e.same_dtype(a.weight, "weight", a.input, "input");
    e.same_dtype(a.input_grad, "input_grad", a.input, "input");
    e.same_dtype(a.weight_grad, "weight_grad", a.input, "input");
    e.attributes(a.compress_block_size, a.compress_stride, a.act_seq_len_type, false);
    e.input_and_weight_shape(a.input, a.weight, a.compress_block_size);
    if (!e.accepted()) return e.ruling;
    const std::int64_t tokens = a.input.shape[0], heads = a.input.shape[1], dim = a.input.shape[2];
    if (!one_sequence) e.act_seq_len(a.act_seq_len, tokens);
    if (!e.accepted()) return e.ruling;
    const std::vector<std::int64_t> whole{tokens};
    const std::int64_t blocks = count_blocks(one_sequence ? whole : a.act_seq_len.values,
                                             a.compress_block_size, a.compress_stride);
    e.shape(a.output_grad, "output_grad", "[C,N,D]", {blocks, heads, dim});
    e.shape(a.input_grad, "input_grad", "[T,N,D]", {tokens, heads, dim});
    e.shape(a.weight_grad, "weight_grad", "[compress_block_size,N]",
            {a.compress_block_size, heads});
    return e.ruling;
}

}  // namespace attncheck::ref
