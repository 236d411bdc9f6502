// The documented constraints of NsaCompress and NsaCompressGrad. Source: contract.md, return values
// and decisions 4 and 5. Arguments may hold anything: every comparison comes before the arithmetic
// that relies on it.
#include <limits>

#include "ref/constraints.h"
#include "ref/dtype.h"

namespace attncheck::ref {
namespace {

constexpr std::int64_t kMaxHeads = 128, kMaxHeadDim = 256, kMaxBlock = 128;
constexpr std::int64_t kGranule = 16;  ///< head_dim, block and stride are multiples of it

bool is_float16_or_bfloat16(std::int32_t dtype) {
    return dtype == static_cast<std::int32_t>(Dtype::fp16) ||
           dtype == static_cast<std::int32_t>(Dtype::bf16);
}

std::string show_dtype(std::int32_t dtype) {
    return std::to_string(dtype) + " (" + std::string(dtype_name(static_cast<Dtype>(dtype))) + ")";
}

std::string show(const std::vector<std::int64_t>& shape) {
    std::string text = "[";
    for (const std::int64_t extent : shape)
        text += (text.size() > 1 ? "," : "") + std::to_string(extent);
    return text + "]";
}

std::string show(const std::string& text) {
    constexpr std::size_t kShown = 32;
    return '"' + text.substr(0, kShown) + (text.size() > kShown ? "...\"" : "\"");
}

/// The checks of one call, in the order they are called: the first that fails is the ruling, the
/// others do nothing.
struct Examination {
    Ruling ruling;

    void rule(bool holds, int status, const char* parameter, const std::string& value,
              const std::string& allowed) {
        if (!ruling.accepted() || holds) return;
        ruling = {status, parameter,
                  std::string(parameter) + ' ' + value + "; allowed: " + allowed};
    }
    void present(bool holds, const char* parameter, const std::string& allowed) {
        rule(holds, kAbsent, parameter, "is absent", allowed);
    }
    void rank(const TensorArgument& t, const char* parameter, std::int32_t rank) {
        const bool holds = t.rank == rank && t.shape.size() == static_cast<std::size_t>(rank);
        rule(holds, kInvalid, parameter, "has rank " + std::to_string(t.rank),
             "rank " + std::to_string(rank));
    }
    void same_dtype(const TensorArgument& t, const char* parameter, const TensorArgument& input) {
        rule(t.dtype == input.dtype, kInvalid, parameter, "has dtype " + show_dtype(t.dtype),
             show_dtype(input.dtype) + ", the dtype of input");
    }
    void multiple_of_16(std::int64_t value, std::int64_t largest, const char* parameter,
                        const std::string& allowed) {
        rule(value > 0 && value <= largest && value % kGranule == 0, kInvalid, parameter,
             "is " + std::to_string(value), allowed);
    }
    void extent(bool holds, const char* name, std::int64_t value, const char* allowed) {
        rule(holds, kInvalid, "input", "has " + std::string(name) + " = " + std::to_string(value),
             allowed);
    }
    void shape(const TensorArgument& t, const char* parameter, const char* extents,
               const std::vector<std::int64_t>& wanted) {
        rule(t.shape == wanted, kInvalid, parameter, "has shape " + show(t.shape),
             std::string(extents) + " = " + show(wanted));
    }

    void layout(const std::optional<std::string>& layout) {
        if (layout) rule(*layout == "TND", kInvalid, "layout", "is " + show(*layout), "\"TND\"");
    }
    void input_dtype(const TensorArgument& input) {
        rule(is_float16_or_bfloat16(input.dtype), kInvalid, "input",
             "has dtype " + show_dtype(input.dtype), "1 (fp16), 27 (bf16)");
    }

    void attributes(std::int64_t block, std::int64_t stride, std::int64_t act_seq_len_type,
                    bool block_may_be_stride) {
        multiple_of_16(block, kMaxBlock, "compress_block_size", "a multiple of 16, 16..128");
        multiple_of_16(stride, std::numeric_limits<std::int64_t>::max(), "compress_stride",
                       "a positive multiple of 16");
        rule(stride < block || (block_may_be_stride && stride == block), kInvalid,
             "compress_stride", "is " + std::to_string(stride),
             std::string(block_may_be_stride ? "at most" : "less than") +
                 " compress_block_size = " + std::to_string(block));
        rule(act_seq_len_type == 0, kInvalid, "act_seq_len_type",
             "is " + std::to_string(act_seq_len_type), "0");
    }

    void input_and_weight_shape(const TensorArgument& input, const TensorArgument& weight,
                                std::int64_t block) {
        if (!ruling.accepted()) return;
        const std::int64_t tokens = input.shape[0], heads = input.shape[1], dim = input.shape[2];
        extent(tokens >= 1, "T", tokens, "T >= 1");
        extent(heads >= 1 && heads <= kMaxHeads, "N", heads, "N in 1..128");
        extent(dim >= kGranule && dim <= kMaxHeadDim && dim % kGranule == 0, "D", dim,
               "D a multiple of 16, 16..256");
        if (!ruling.accepted()) return;
        const bool fits = tokens <= std::numeric_limits<std::int64_t>::max() / (heads * dim);
        extent(fits, "T", tokens, "T * N * D within int64");
        shape(weight, "weight", "[compress_block_size,N]", {block, heads});
    }

    void lengths(const ArrayArgument& array, std::int64_t tokens) {
        rule(array.size > 0, kInvalid, "act_seq_len", "has size " + std::to_string(array.size),
             "size >= 1");
        std::int64_t previous = 0;
        for (std::size_t b = 0; b < array.values.size() && ruling.accepted(); ++b) {
            const std::int64_t value = array.values[b];
            if (value < previous)  // previous >= 0: a negative value ends here, too
                rule(false, kInvalid, "act_seq_len",
                     "has value " + std::to_string(value) + " at index " + std::to_string(b),
                     "non-negative, non-decreasing values, here at least " +
                         std::to_string(previous));
            previous = value;
        }
        rule(previous <= tokens, kInvalid, "act_seq_len", "ends with " + std::to_string(previous),
             "a last value of at most T = " + std::to_string(tokens));
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
    Examination e;
    e.present(a.input.present, "input", "a tensor [T,N,D]");
    e.present(a.weight.present, "weight", "a tensor [compress_block_size,N]");
    e.present(a.act_seq_len.present, "act_seq_len", "cumulative sequence lengths");
    e.present(a.layout.has_value(), "layout", "\"TND\"");
    e.present(a.output.present, "output", "a tensor [C,N,D]");
    e.layout(a.layout);
    e.rank(a.input, "input", 3);
    e.rank(a.weight, "weight", 2);
    e.rank(a.output, "output", 3);
    e.input_dtype(a.input);
    e.same_dtype(a.weight, "weight", a.input);
    e.same_dtype(a.output, "output", a.input);
    e.attributes(a.compress_block_size, a.compress_stride, a.act_seq_len_type, true);
    e.input_and_weight_shape(a.input, a.weight, a.compress_block_size);
    if (!e.ruling.accepted()) return e.ruling;
    e.lengths(a.act_seq_len, a.input.shape[0]);
    if (!e.ruling.accepted()) return e.ruling;
    const std::int64_t blocks =
        count_blocks(a.act_seq_len.values, a.compress_block_size, a.compress_stride);
    e.shape(a.output, "output", "[C,N,D]", {blocks, a.input.shape[1], a.input.shape[2]});
    return e.ruling;
}

Ruling rule_nsa_compress_grad(const CompressGradArguments& a) {
    Examination e;
    const bool one_sequence = !a.act_seq_len.present && a.act_seq_len.size == 0;
    e.present(a.output_grad.present, "output_grad", "a tensor [C,N,D]");
    e.present(a.input.present, "input", "a tensor [T,N,D]");
    e.present(a.weight.present, "weight", "a tensor [compress_block_size,N]");
    e.present(
        a.act_seq_len.present || a.act_seq_len.size <= 0, "act_seq_len",
        "values for its size " + std::to_string(a.act_seq_len.size) + ", or absent with size 0");
    e.present(a.input_grad.present, "input_grad", "a tensor [T,N,D]");
    e.present(a.weight_grad.present, "weight_grad", "a tensor [compress_block_size,N]");
    e.layout(a.layout);
    e.rank(a.output_grad, "output_grad", 3);
    e.rank(a.input, "input", 3);
    e.rank(a.weight, "weight", 2);
    e.rank(a.input_grad, "input_grad", 3);
    e.rank(a.weight_grad, "weight_grad", 2);
    e.input_dtype(a.input);
    e.same_dtype(a.output_grad, "output_grad", a.input);
    e.same_dtype(a.weight, "weight", a.input);
    e.same_dtype(a.input_grad, "input_grad", a.input);
    e.same_dtype(a.weight_grad, "weight_grad", a.input);
    e.attributes(a.compress_block_size, a.compress_stride, a.act_seq_len_type, false);
    e.input_and_weight_shape(a.input, a.weight, a.compress_block_size);
    if (!e.ruling.accepted()) return e.ruling;
    const std::int64_t tokens = a.input.shape[0], heads = a.input.shape[1], dim = a.input.shape[2];
    if (!one_sequence) e.lengths(a.act_seq_len, tokens);
    if (!e.ruling.accepted()) return e.ruling;
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
