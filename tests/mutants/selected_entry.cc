// NsaSelectedAttention and its gradient: accept, plan, compute.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "active_mutant.h"
#include "first_plan.h"
#include "module_defects.h"
#include "one_buffer.h"
#include "selected_kernels.h"
#include "selected_problem.h"

namespace attncheck::mutants {

namespace {

/// Defects in how the operands are addressed.
void distort_views(SelectedProblem& problem) {
    if (on<"NS-ALL-03">()) {
        const auto address = reinterpret_cast<std::uintptr_t>(problem.query.data);
        problem.query.data -= address % 64 / sizeof(std::uint16_t);
    }
    if (on<"NS-ALL-05">() && problem.num_kv_heads == 1)
        problem.key.stride[0] = problem.key.stride[1];
    if (problem.is_gradient) {
        if (on<"NSG-ALL-02">()) problem.output_grad.forget_strides();
        if (on<"NSG-x52">()) problem.dv.forget_strides();
        if (on<"NSG-x301">()) problem.dk.is_narrow = true;
        return;
    }
    if (on<"NSF-ALL-02">()) problem.value.forget_strides();
    if (on<"NSF-x52">()) {
        problem.mask.stride[1] = 1;
        problem.mask.stride[0] = problem.mask.shape[1];
    }
    if (on<"NSF-x53">()) problem.topk.forget_strides();
    if (on<"NSF-x54">()) problem.output.forget_strides();
    if (on<"NSF-x301">()) problem.key.is_narrow = true;
    if (on<"NSF-x302">()) problem.value.expect_positive_channels();
}

/// A defect: every list is put in ascending order where the caller has it.
void sort_lists(const BasicView<std::int32_t>& topk) {
    std::vector<std::int32_t> list(static_cast<std::size_t>(topk.shape[2]));
    for (std::int64_t t = 0; t < topk.shape[0]; ++t)
        for (std::int64_t head = 0; head < topk.shape[1]; ++head) {
            for (std::int64_t i = 0; i < topk.shape[2]; ++i)
                list[static_cast<std::size_t>(i)] = *topk.at(t, head, i);
            std::sort(list.begin(), list.end());
            for (std::int64_t i = 0; i < topk.shape[2]; ++i)
                *topk.at(t, head, i) = list[static_cast<std::size_t>(i)];
        }
}

std::vector<std::int32_t> lists_of(const SelectedProblem& p) {
    std::vector<std::int32_t> lists;
    for (std::int64_t t = 0; t < p.topk.shape[0]; ++t)
        for (std::int64_t head = 0; head < p.topk.shape[1]; ++head)
            for (std::int64_t i = 0; i < p.topk.shape[2]; ++i) lists.push_back(*p.topk.at(t, head, i));
    return lists;
}

/// All that a plan depends on, without the lists.
std::vector<double> key_without_lists(const SelectedProblem& p) {
    std::vector<double> key{p.scale, static_cast<double>(p.is_gradient)};
    for (const std::int64_t number : {p.query_tokens, p.num_query_heads, p.head_dim, p.key_tokens, p.num_kv_heads,
                                      p.value_dim, p.block_size, p.block_count, p.sparse_mode})
        key.push_back(static_cast<double>(number));
    for (const auto* ends : {&p.query_ends, &p.key_ends}) key.insert(key.end(), ends->begin(), ends->end());
    return key;
}

/// The problem has these lists, which must outlive it.
void take_lists(SelectedProblem& p, std::vector<std::int32_t>& lists) {
    p.topk.data = lists.data();
    p.topk.forget_strides();
}

/// A defect: the lists become those of the first call that had these shapes, lengths and attributes.
void take_first_lists(SelectedProblem& p, std::vector<std::int32_t>& lists) {
    lists = first_with(key_without_lists(p), [&] { return lists_of(p); });
    take_lists(p, lists);
}

/// A defect: the way for lists that name block 0 alone is taken by all calls with these shapes, lengths and attributes
/// when it was right for the first one.
void take_first_kind(SelectedProblem& p, std::vector<std::int32_t>& lists) {
    lists = lists_of(p);
    const std::vector<std::int32_t> zeros(lists.size());
    if (first_with(key_without_lists(p), [&] { return lists == zeros; })) lists = zeros;
    take_lists(p, lists);
}

template <class Args>
int run(const Args* args) {
    const Composed composed(args);
    SelectedProblem problem;
    if (const int status = accept(composed.args(), problem)) return status;
    if (problem.is_undefined) return ATTNCHECK_OK;
    distort_views(problem);
    if (on<"NSF-x303">() && !problem.is_gradient && begins_inside(args->value, args->key))
        std::copy_n(problem.key.stride, 3, problem.value.stride);
    if (on<"NS-ALL-14">()) sort_lists(problem.topk);
    std::vector<std::int32_t> lists;
    if (on<"NS-ALL-x330">()) take_first_lists(problem, lists);
    if (on<"NS-ALL-x350">()) take_first_kind(problem, lists);
    const SelectedPlan plan = make_plan(problem);
    if (problem.is_gradient)
        attend_grad(problem, plan);
    else
        attend(problem, plan);
    return ATTNCHECK_OK;
}

}  // namespace

}  // namespace attncheck::mutants

int attncheck_nsa_selected_attention(const attncheck_nsa_selected_attention_args* args) {
    return attncheck::mutants::run(args);
}

int attncheck_nsa_selected_attention_grad(const attncheck_nsa_selected_attention_grad_args* args) {
    return attncheck::mutants::run(args);
}
