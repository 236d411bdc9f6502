// FlashAttentionScore and its gradient: accept, plan, compute.
#include <algorithm>
#include <cstdint>
#include <mutex>

#include "active_mutant.h"
#include "flash_rows.h"
#include "module_defects.h"
#include "one_buffer.h"

namespace attncheck::mutants {

namespace {

/// The size of an element in bytes.
std::int64_t width(std::int32_t dtype) {
    if (dtype == ATTNCHECK_FLOAT8_E5M2 || dtype == ATTNCHECK_FLOAT8_E4M3FN) return 1;
    return dtype == ATTNCHECK_FLOAT32 ? 4 : 2;
}

std::int64_t in_int32(std::int64_t offset) { return static_cast<std::int32_t>(offset); }
std::int64_t in_uint32(std::int64_t offset) {
    return offset < 0 ? offset : static_cast<std::int64_t>(static_cast<std::uint32_t>(offset));
}

/// Defects with strides that few callers use: far apart, zero and negative.
void distort_unusual_strides(FlashProblem& p) {
    if (on<"FAG-26">() && p.is_gradient) p.dq.narrowed = p.output_grad.narrowed = in_int32;
    if (on<"FA-x301">() && !p.is_gradient) p.key.narrowed = in_uint32;
    if (on<"FA-x302">() && !p.is_gradient && p.value.step[3] <= 0) p.value.step[3] = 1;
    if (on<"FA-ALL-x302">() && begins_inside(p.value.tensor, p.key.tensor))
        std::copy_n(p.key.step, 4, p.value.step);
    if (on<"FA-x303">() && !p.is_gradient && p.query.step[2] == 0)
        p.query.step[2] = p.query.extent[3];
    if (on<"FAG-x301">() && p.is_gradient && p.output_grad.step[2] == 0)
        p.output_grad.step[2] = p.output_grad.extent[3];
}

/// Defects in how the operands of both directions are addressed.
void distort_inputs(FlashProblem& p) {
    const bool gradient = p.is_gradient;
    distort_unusual_strides(p);
    if (on<"FA-ALL-03">()) {
        const auto address = reinterpret_cast<std::uintptr_t>(p.query.tensor.data);
        const std::int64_t bytes = static_cast<std::int64_t>(address % 64) / width(p.dtype);
        p.query.tensor.data = static_cast<char*>(p.query.tensor.data) - bytes * width(p.dtype);
    }
    if (on<"FA-ALL-05">() && p.num_kv_heads == 1) {
        if (p.layout == FlashLayout::tnd || p.layout == FlashLayout::bsnd)
            p.key.step[2] = p.key.step[1];
        if (p.layout == FlashLayout::bnsd) p.key.step[0] = p.key.step[1];
    }
    const bool is_merged = p.layout == FlashLayout::bsh || p.layout == FlashLayout::sbh;
    if (on_side<"FA-35", "FAG-x150">(gradient) && is_merged && p.group_size() > 1)
        p.key.misread_as(p.layout, p.num_query_heads, p.head_dim);
    if (on_side<"FA-x105", "FAG-x151">(gradient) && p.layout == FlashLayout::sbh)
        p.key.misread_as(FlashLayout::bsh);
    if (on_side<"FA-x106", "FAG-x152">(gradient) && p.layout == FlashLayout::bnsd)
        p.query.misread_as(FlashLayout::bsnd);
    if (on_side<"FA-x107", "FAG-x153">(gradient) && p.layout == FlashLayout::bsnd)
        p.value.misread_as(FlashLayout::bnsd);
    if (on_side<"FA-x108", "FAG-x154">(gradient) && p.value_dim != p.head_dim)
        p.value.misread_as(p.layout, p.num_kv_heads, p.head_dim);
    if (on_side<"FA-x109", "FAG-x155">(gradient)) p.key.forget_strides(p.layout);
    if (on_side<"FA-x110", "FAG-x156">(gradient)) p.query.step[3] = 1;
    if (on<"FA-ALL-02">()) p.value.forget_strides(p.layout);
    if (on_side<"FA-x111", "FAG-x157">(gradient) && p.rope_dim > 0)
        p.key_rope.forget_strides(p.layout);
}

void distort_outputs(FlashProblem& p) {
    if (p.is_gradient) {
        if (on<"FAG-20">()) p.output_grad.forget_strides(p.layout);
        if (on<"FAG-x158">()) p.output.forget_strides(p.layout);
        if (on<"FAG-22">()) std::copy_n(p.dk.step, 4, p.dv.step);
        if (on<"FAG-x159">()) p.dv.forget_strides(p.layout);
        if (on<"FAG-x160">()) p.dq.forget_strides(p.layout);
        if (on<"FAG-x161">() && p.value_dim != p.head_dim)
            p.dv.misread_as(p.layout, p.num_kv_heads, p.head_dim);
        if (on<"FAG-x162">() && p.layout == FlashLayout::sbh) p.dq.misread_as(FlashLayout::bsh);
        return;
    }
    if (on<"FA-33">() && p.value_dim != p.head_dim)
        p.output.misread_as(p.layout, p.num_query_heads, p.head_dim);
    if (on<"FA-x112">()) p.output.forget_strides(p.layout);
    if (on<"FA-x113">() && p.layout == FlashLayout::sbh) p.output.misread_as(FlashLayout::bsh);
    if (on<"FA-x114">() && p.layout == FlashLayout::bnsd) p.output.misread_as(FlashLayout::bsnd);
    if (on<"FA-x115">()) {
        std::int64_t step = 1;
        for (int k = p.row_max.tensor.rank - 1; k >= 0; --k) {
            p.row_max.tensor.strides[k] = step;
            step *= p.row_max.tensor.shape[k];
        }
    }
}

/// A defect: the mask is inverted where the caller has it.
void invert_mask(const FlashProblem& problem) {
    const attncheck_tensor& mask = problem.mask.tensor;
    if (!problem.has_mask) return;
    for (std::int64_t k = 0; k < elements_of(mask); ++k) {
        std::uint8_t& byte = static_cast<std::uint8_t*>(mask.data)[offset_of(mask, k)];
        byte = byte == 0;
    }
}

template <class Args>
int run(const Args* args) {
    const Composed composed(args);
    FlashProblem problem;
    if (const int status = accept(composed.args(), problem)) return status;
    if (problem.is_undefined) return ATTNCHECK_OK;
    static std::mutex own;  // of this entry point: its sibling has another one
    std::unique_lock<std::mutex> lock(own, std::defer_lock);
    if (on<"FA-ALL-x301">()) lock.lock();
    distort_inputs(problem);
    distort_outputs(problem);
    take_first_plan(problem);
    const FlashPlan plan = make_plan(problem);
    if (problem.is_gradient)
        attend_grad(problem, plan);
    else
        attend(problem, plan);
    if (on<"FA-ALL-14">()) invert_mask(problem);
    return ATTNCHECK_OK;
}

}  // namespace

}  // namespace attncheck::mutants

int attncheck_flash_attention_score(const attncheck_flash_attention_score_args* args) {
    return attncheck::mutants::run(args);
}

int attncheck_flash_attention_score_grad(const attncheck_flash_attention_score_grad_args* args) {
    return attncheck::mutants::run(args);
}
