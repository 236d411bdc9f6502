// The two operators' rulings, put together from the constraints they share.
#include "active_mutant.h"
#include "constraints.h"
#include "problem.h"

namespace attncheck::mutants {

namespace {

/// First failure decides: absent arguments come before everything else.
int rule_on_absence(const attncheck_tensor* const* required, int count,
                    const attncheck_tensor& weight, const attncheck_tensor& input) {
    if (on<"VAL-x10">() && input.data != nullptr && !is_half(input.dtype))
        return ATTNCHECK_ERR_INVALID;
    for (int i = 0; i < count; ++i) {
        if (required[i]->data != nullptr) continue;
        if (on<"VAL-x06">() && required[i] == &weight) return ATTNCHECK_ERR_INVALID;
        return ATTNCHECK_ERR_NULLPTR;
    }
    return ATTNCHECK_OK;
}

void fill(Problem& problem, const attncheck_tensor& input, const attncheck_tensor& weight,
          const attncheck_tensor& y, std::int64_t block, std::int64_t stride) {
    problem.type = input.dtype == ATTNCHECK_FLOAT16 ? Half::fp16 : Half::bf16;
    problem.tokens = input.shape[0];
    problem.heads = input.shape[1];
    problem.head_dim = input.shape[2];
    problem.blocks = y.shape[0];
    problem.block = block;
    problem.stride = stride;
    problem.x = view_of(input);
    problem.w = view_of(weight);
    problem.y = view_of(y);
}

}  // namespace

int accept(const attncheck_nsa_compress_args* args, Problem& problem) {
    if (args == nullptr) return ATTNCHECK_ERR_NULLPTR;
    const auto& [input, weight, lengths, layout, block, stride, length_type, output] = *args;
    if (on<"VAL-x07">()) touch_early(output);
    if (on<"VAL-x11">()) allocate_early(input);
    const attncheck_tensor* required[] = {&input, &weight, &output};
    if (const int status = rule_on_absence(required, 3, weight, input)) return status;
    if (lengths.values == nullptr) {
        if (lengths.size >= 0) return ATTNCHECK_ERR_NULLPTR;
        return ATTNCHECK_ERR_INVALID;
    }
    if (layout == nullptr) return ATTNCHECK_ERR_NULLPTR;
    if (!is_tnd(layout)) return ATTNCHECK_ERR_INVALID;
    if (input.rank != 3 || weight.rank != 2 || output.rank != 3) return ATTNCHECK_ERR_INVALID;
    if (!dtypes_agree(input, weight) || output.dtype != input.dtype) return ATTNCHECK_ERR_INVALID;
    if (!in_range(block, stride, false) || length_type != 0) return ATTNCHECK_ERR_INVALID;
    if (on<"VAL-x20">() && block == stride) return ATTNCHECK_ERR_INVALID;
    if (!shapes_are_legal(input, weight, block)) return ATTNCHECK_ERR_INVALID;
    const LengthRuling ruling = rule_on_lengths(lengths, input.shape[0], false);
    if (!ruling.legal) return ATTNCHECK_ERR_INVALID;
    if (!rows_match(output, input, lengths, block, stride, ruling)) return ATTNCHECK_ERR_INVALID;
    fill(problem, input, weight, output, block, stride);
    problem.ends.assign(lengths.values, lengths.values + lengths.size);
    return ATTNCHECK_OK;
}

int accept(const attncheck_nsa_compress_grad_args* args, Problem& problem) {
    if (args == nullptr) return ATTNCHECK_ERR_NULLPTR;
    const auto& [output_grad, input, weight, given_lengths, block, stride, length_type, layout,
                 input_grad, weight_grad] = *args;
    if (on<"VAL-x07">()) touch_early(input_grad);
    if (on<"VAL-x11">()) allocate_early(input);
    const attncheck_tensor* required[] = {&output_grad, &input, &weight, &input_grad, &weight_grad};
    if (const int status = rule_on_absence(required, 5, weight, input)) return status;
    attncheck_int_array lengths = given_lengths;
    const bool pretends_present = on<"VAL-x22">() && lengths.values == nullptr && lengths.size > 0;
    const bool absent = lengths.values == nullptr && lengths.size == 0;
    if (lengths.values == nullptr && !absent && !pretends_present)
        return lengths.size > 0 ? ATTNCHECK_ERR_NULLPTR : ATTNCHECK_ERR_INVALID;
    if (absent && on<"VAL-x15">()) return ATTNCHECK_ERR_NULLPTR;
    if (layout == nullptr && on<"VAL-x09">()) return ATTNCHECK_ERR_NULLPTR;
    if (layout != nullptr && !is_tnd(layout)) return ATTNCHECK_ERR_INVALID;
    if (output_grad.rank != 3 || input.rank != 3 || weight.rank != 2 || input_grad.rank != 3 ||
        weight_grad.rank != 2)
        return ATTNCHECK_ERR_INVALID;
    if (!dtypes_agree(input, weight) || output_grad.dtype != input.dtype ||
        input_grad.dtype != input.dtype || weight_grad.dtype != input.dtype)
        return ATTNCHECK_ERR_INVALID;
    if (!in_range(block, stride, true)) return ATTNCHECK_ERR_INVALID;
    if (length_type != 0 && !(on<"VAL-x13">() && length_type == 1)) return ATTNCHECK_ERR_INVALID;
    if (!shapes_are_legal(input, weight, block)) return ATTNCHECK_ERR_INVALID;

    const std::int64_t whole = input.shape[0];
    if (absent || (on<"VAL-x18">() && lengths.size == 0)) lengths = {&whole, 1};
    const LengthRuling ruling = rule_on_lengths(lengths, input.shape[0], true);
    if (!ruling.legal) return ATTNCHECK_ERR_INVALID;
    if (!rows_match(output_grad, input, lengths, block, stride, ruling))
        return ATTNCHECK_ERR_INVALID;
    if (!same_extents(input_grad, input) || !same_extents(weight_grad, weight))
        return ATTNCHECK_ERR_INVALID;
    fill(problem, input, weight, output_grad, block, stride);
    problem.is_gradient = true;
    problem.dx = view_of(input_grad);
    problem.dw = view_of(weight_grad);
    problem.ends.assign(lengths.values, lengths.values + lengths.size);
    if (absent && on<"NCG-x16">()) problem.ends = {0};
    return ATTNCHECK_OK;
}

}  // namespace attncheck::mutants
