// The documented constraints of NsaCompress and NsaCompressGrad. Source: contract.md, return values
// and decisions 4 and 5. Arguments may hold anything: every comparison comes before the arithmetic
// that relies on it.
#include <limits>

#include "ref/constraints/constraints.h"
#include "ref/constraints/examination.h"
#include "ref/constraints/nsa_limits.h"

namespace attncheck::ref {
namespace {

constexpr std::int64_t kMaxCompressedDim = 256;

/// The checks the forward and the gradient have in common.
struct CompressExamination : Examination {
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

    void input_and_weight_shape(const TensorArgument& input, const Operand& weight,
                                std::int64_t block) {
        if (!accepted()) return;
        const std::int64_t tokens = input.shape[0], heads = input.shape[1], dim = input.shape[2];
        input_extent(tokens >= 1, "T", tokens, "T >= 1");
        input_extent(heads >= 1 && heads <= kMaxHeads, "N", heads, "N in 1..128",
                     side_of(heads, 1, kMaxHeads));
        input_extent(dim >= kGranule && dim <= kMaxCompressedDim && dim % kGranule == 0, "D", dim,
                     "D a multiple of 16, 16..256", side_of(dim, kGranule, kMaxCompressedDim));
        if (!accepted()) return;
        const bool fits = tokens <= std::numeric_limits<std::int64_t>::max() / (heads * dim);
        input_extent(fits, "T", tokens, "T * N * D within int64");
        shapes({&weight, 1}, {{"compress_block_size", block}, {"N", heads}});
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

/// Shapes that depend on the number of blocks, for accepted lengths.
template <class Arguments>
void examine_block_shapes(Examination& e, const Arguments& a,
                          const std::vector<std::int64_t>& cumulative,
                          std::initializer_list<std::span<const Operand>> operands) {
    const auto& input = a.input.shape;
    const std::int64_t block = a.compress_block_size,
                       blocks = count_blocks(cumulative, block, a.compress_stride);
    for (const auto& each : operands)
        e.shapes(each, {{"C", blocks},
                        {"T", input[0]},
                        {"N", input[1]},
                        {"D", input[2]},
                        {"compress_block_size", block}});
}

}  // namespace

Ruling rule_nsa_compress(const CompressArguments& a) {
    CompressExamination e;
    const Operands inputs{{a.input, "input", "[T,N,D]"},
                          {a.weight, "weight", "[compress_block_size,N]"}},
        outputs{{a.output, "output", "[C,N,D]"}};
    e.present(inputs);
    e.present(a.act_seq_len.present, "act_seq_len", "cumulative sequence lengths");
    e.present(a.layout.has_value(), "layout", "\"TND\"");
    e.present(outputs);
    e.layout(a.layout, "layout");
    e.form({inputs, outputs}, inputs[0], {Dtype::fp16, Dtype::bf16});
    e.attributes(a.compress_block_size, a.compress_stride, a.act_seq_len_type, true);
    e.input_and_weight_shape(a.input, inputs[1], a.compress_block_size);
    if (!e.accepted()) return e.ruling;
    e.act_seq_len(a.act_seq_len, a.input.shape[0]);
    if (e.accepted()) examine_block_shapes(e, a, a.act_seq_len.values, {outputs});
    return e.ruling;
}

Ruling rule_nsa_compress_grad(const CompressGradArguments& a) {
    CompressExamination e;
    const Operands inputs{{a.output_grad, "output_grad", "[C,N,D]"},
                          {a.input, "input", "[T,N,D]"},
                          {a.weight, "weight", "[compress_block_size,N]"}},
        outputs{{a.input_grad, "input_grad", "[T,N,D]"},
                {a.weight_grad, "weight_grad", "[compress_block_size,N]"}};
    const bool one_sequence = !a.act_seq_len.present && a.act_seq_len.size == 0;
    e.present(inputs);
    e.present(
        a.act_seq_len.present || a.act_seq_len.size <= 0, "act_seq_len",
        "values for its size " + std::to_string(a.act_seq_len.size) + ", or absent with size 0");
    e.present(outputs);
    e.layout(a.layout, "layout");
    e.form({inputs, outputs}, inputs[1], {Dtype::fp16, Dtype::bf16});
    e.attributes(a.compress_block_size, a.compress_stride, a.act_seq_len_type, false);
    e.input_and_weight_shape(a.input, inputs[2], a.compress_block_size);
    if (!e.accepted()) return e.ruling;
    const std::int64_t tokens = a.input.shape[0];
    if (!one_sequence) e.act_seq_len(a.act_seq_len, tokens);
    if (!e.accepted()) return e.ruling;
    const std::vector<std::int64_t> whole{tokens};
    examine_block_shapes(e, a, one_sequence ? whole : a.act_seq_len.values,
                         {std::span(inputs).first(1), outputs});
    return e.ruling;
}

}  // namespace attncheck::ref
