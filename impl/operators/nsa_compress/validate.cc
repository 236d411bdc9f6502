#include "impl/operators/nsa_compress/validate.h"

#include <initializer_list>
#include <limits>
#include <string>

#include "impl/arguments/argument_checks.h"
#include "impl/kernels/window_geometry.h"

namespace attncheck::impl {
namespace {

MaybeRejection check_dtypes(const attncheck_tensor& input,
                            std::initializer_list<NamedTensor> tensors) {
    if (auto rejection = check_half("input", input)) return rejection;
    for (const NamedTensor& named : tensors) {
        if (auto rejection = check_dtype(named.name, *named.tensor, input.dtype, "input"))
            return rejection;
    }
    return std::nullopt;
}

MaybeRejection check_attributes(std::int64_t block, std::int64_t stride, std::int64_t type,
                                bool overlap_required) {
    if (block <= 0 || block % kTokenUnit != 0 || block > kMaxBlock) {
        return invalid("compress_block_size", std::to_string(block),
                       "a multiple of 16 in [16, 128]");
    }
    if (stride <= 0 || stride % kTokenUnit != 0) {
        return invalid("compress_stride", std::to_string(stride), "a positive multiple of 16");
    }
    if (overlap_required ? stride >= block : stride > block) {
        return invalid("compress_stride", std::to_string(stride),
                       std::string(overlap_required ? "less than" : "at most") +
                           " compress_block_size, which is " + std::to_string(block));
    }
    if (type != 0) return invalid("act_seq_len_type", std::to_string(type), "0");
    return std::nullopt;
}

MaybeRejection check_input_and_weight(const attncheck_tensor& input, const attncheck_tensor& weight,
                                      std::int64_t block) {
    const std::int64_t num_tokens = input.shape[0], num_heads = input.shape[1],
                       head_dim = input.shape[2];
    if (num_tokens < 1)
        return invalid("input", "of extent T = " + std::to_string(num_tokens), "T >= 1");
    if (num_heads < 1 || num_heads > kMaxHeads) {
        return invalid("input", "of extent N = " + std::to_string(num_heads), "N in [1, 128]");
    }
    if (head_dim < kTokenUnit || head_dim > kMaxHeadDim || head_dim % kTokenUnit != 0) {
        return invalid("input", "of extent D = " + std::to_string(head_dim),
                       "D a multiple of 16 in [16, 256]");
    }
    // N * D <= 2^15, so only the product with T can leave int64.
    if (num_tokens > std::numeric_limits<std::int64_t>::max() / (num_heads * head_dim)) {
        return invalid("input", "of extent T = " + std::to_string(num_tokens),
                       "T * N * D below 2^63");
    }
    return check_shape("weight", weight, {{"compress_block_size", block}, {"N", num_heads}});
}

// `windows` receives C, the number of blocks over all sequences. It never exceeds the sum of the
// lengths, which is the last cumulative value, so it cannot overflow even before that value is
// compared with T.
MaybeRejection check_lengths(const attncheck_int_array& lengths, std::int64_t num_tokens,
                             WindowGeometry geometry, std::int64_t& windows) {
    const char* const name = "act_seq_len";
    windows = 0;
    if (lengths.size <= 0) {
        return invalid(name, "of size " + std::to_string(lengths.size), "size >= 1");
    }
    std::int64_t previous = 0;
    for (std::int64_t i = 0; i < lengths.size; ++i) {
        const std::int64_t value = lengths.values[i];
        if (value < 0) return invalid(name, element_text(value, i), "values >= 0");
        if (value < previous) {
            return invalid(name, element_text(value, i),
                           "non-decreasing values, the one before is " + std::to_string(previous));
        }
        windows += geometry.num_windows(value - previous);
        previous = value;
    }
    if (previous > num_tokens) {
        return invalid(name, element_text(previous, lengths.size - 1),
                       "a last value of at most T, which is " + std::to_string(num_tokens));
    }
    return std::nullopt;
}

}  // namespace

std::optional<Rejection> validate_nsa_compress(const attncheck_nsa_compress_args* args) {
    if (args == nullptr) return absent("args");
    const attncheck_nsa_compress_args& a = *args;
    if (a.input.data == nullptr) return absent("input");
    if (a.weight.data == nullptr) return absent("weight");
    if (a.act_seq_len.values == nullptr) return absent("act_seq_len");
    if (a.layout == nullptr) return absent("layout");
    if (a.output.data == nullptr) return absent("output");

    if (auto rejection = check_layout("layout", a.layout)) return rejection;
    const NamedTensor weight{"weight", &a.weight, 2}, output{"output", &a.output, 3};
    if (auto rejection = check_ranks({{"input", &a.input, 3}, weight, output})) return rejection;
    if (auto rejection = check_dtypes(a.input, {weight, output})) return rejection;
    const std::int64_t block = a.compress_block_size, stride = a.compress_stride;
    if (auto rejection = check_attributes(block, stride, a.act_seq_len_type, false))
        return rejection;
    if (auto rejection = check_input_and_weight(a.input, a.weight, block)) return rejection;
    std::int64_t windows = 0;
    if (auto rejection = check_lengths(a.act_seq_len, a.input.shape[0], {block, stride}, windows))
        return rejection;
    return check_shape("output", a.output,
                       {{"C", windows}, {"N", a.input.shape[1]}, {"D", a.input.shape[2]}});
}

std::optional<Rejection> validate_nsa_compress_grad(const attncheck_nsa_compress_grad_args* args) {
    if (args == nullptr) return absent("args");
    const attncheck_nsa_compress_grad_args& a = *args;
    if (a.output_grad.data == nullptr) return absent("output_grad");
    if (a.input.data == nullptr) return absent("input");
    if (a.weight.data == nullptr) return absent("weight");
    if (a.act_seq_len.values == nullptr && a.act_seq_len.size > 0) return absent("act_seq_len");
    if (a.input_grad.data == nullptr) return absent("input_grad");
    if (a.weight_grad.data == nullptr) return absent("weight_grad");

    if (a.layout != nullptr) {  // absent means "TND" in this direction
        if (auto rejection = check_layout("layout", a.layout)) return rejection;
    }
    const NamedTensor output_grad{"output_grad", &a.output_grad, 3}, input{"input", &a.input, 3};
    const NamedTensor weight{"weight", &a.weight, 2};
    const NamedTensor input_grad{"input_grad", &a.input_grad, 3},
        weight_grad{"weight_grad", &a.weight_grad, 2};
    if (auto rejection = check_ranks({output_grad, input, weight, input_grad, weight_grad}))
        return rejection;
    if (auto rejection = check_dtypes(a.input, {output_grad, weight, input_grad, weight_grad}))
        return rejection;
    const std::int64_t block = a.compress_block_size, stride = a.compress_stride;
    if (auto rejection = check_attributes(block, stride, a.act_seq_len_type, true))
        return rejection;
    if (auto rejection = check_input_and_weight(a.input, a.weight, block)) return rejection;

    const std::int64_t num_tokens = a.input.shape[0], num_heads = a.input.shape[1],
                       head_dim = a.input.shape[2];
    const WindowGeometry geometry{block, stride};
    std::int64_t windows =
        geometry.num_windows(num_tokens);  // absent lengths: one sequence of T tokens
    if (a.act_seq_len.values != nullptr || a.act_seq_len.size != 0) {
        if (auto rejection = check_lengths(a.act_seq_len, num_tokens, geometry, windows))
            return rejection;
    }
    const Extent heads{"N", num_heads}, dim{"D", head_dim};
    if (auto rejection = check_shape("output_grad", a.output_grad, {{"C", windows}, heads, dim}))
        return rejection;
    if (auto rejection = check_shape("input_grad", a.input_grad, {{"T", num_tokens}, heads, dim}))
        return rejection;
    return check_shape("weight_grad", a.weight_grad, {{"compress_block_size", block}, heads});
}

}  // namespace attncheck::impl
