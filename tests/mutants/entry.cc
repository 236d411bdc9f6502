// NsaCompress and its gradient: accept, plan, compute.
#include <cstdint>

#include "active_mutant.h"
#include "kernels.h"
#include "module_defects.h"
#include "plan.h"
#include "problem.h"

namespace attncheck::mutants {

namespace {

/// Defects in how the operands are addressed.
void distort_views(Problem& problem) {
    if (on<"ALL-02">()) (problem.is_gradient ? problem.y : problem.w).forget_strides();
    if (on<"ALL-03">()) {
        const auto address = reinterpret_cast<std::uintptr_t>(problem.x.data);
        problem.x.data -= address % 64 / sizeof(std::uint16_t);
    }
    if (on<"ALL-05">() && problem.heads == 1) problem.x.stride[0] = problem.x.stride[1];
    if (on<"NC-x24">() && !problem.is_gradient) problem.y.forget_strides();
    if (on<"NC-x25">() && !problem.is_gradient) problem.x.stride[2] = 1;
    if (on<"NCG-x17">() && problem.is_gradient) problem.dx.forget_strides();
    if (on<"NC-x301">() && !problem.is_gradient) problem.x.is_narrow = true;
    if (on<"NC-x302">() && !problem.is_gradient) problem.x.expect_positive_channels();
    if (on<"NCG-x301">() && problem.is_gradient) problem.dx.is_narrow = true;
}

/// Defects on a particular structure of the lengths.
void stumble(const Problem& problem, const Plan& plan) {
    if (problem.is_gradient) return;
    static int* volatile nothing = nullptr;
    static volatile std::int64_t position;
    for (const Sequence& sequence : plan.sequences) {
        if (on<"NC-x11">() && sequence.length == 0) *nothing = 1;
        if (!on<"NC-x12">() || problem.block != problem.stride) continue;
        position = 0;
        while (position != sequence.length) {
            const std::int64_t next = position + problem.stride;
            position = next < sequence.length + problem.stride
                           ? next
                           : sequence.length + 1;  // never overflows
        }
    }
}

/// A defect: an input that is worked on in place. Values are as before when the call ends.
void touch_input(const Problem& problem) {
    if (problem.x.elements() == 0) return;
    volatile std::uint16_t* const first = problem.x.at(0, 0, 0);
    *first = *first ^ 0x8000;
    *first = *first ^ 0x8000;
}

/// A defect: the rows that no block reads are cleared, as if they were padding.
void clear_uncovered_input(const Problem& problem, const Plan& plan) {
    const auto clear = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t)
            for (std::int64_t n = 0; n < problem.heads; ++n)
                for (std::int64_t c = 0; c < problem.head_dim; ++c) *problem.x.at(t, n, c) = 0;
    };
    for (const Sequence& sequence : plan.sequences)
        clear(sequence.first_token + covered_length(problem, sequence),
              sequence.first_token + sequence.length);
    clear(plan.end, problem.tokens);
}

}  // namespace

}  // namespace attncheck::mutants

using namespace attncheck::mutants;

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    const Composed composed(args);
    Problem problem;
    if (const int status = accept(composed.args(), problem)) {
        note_rejection(true);
        return status;
    }
    distort_views(problem);
    if (on<"ALL-x15">()) touch_input(problem);
    const Plan plan = make_plan(problem);
    stumble(problem, plan);
    compress(problem, plan);
    note_rejection(false);
    if (on<"ALL-14">()) clear_uncovered_input(problem, plan);
    return ATTNCHECK_OK;
}

int attncheck_nsa_compress_grad(const attncheck_nsa_compress_grad_args* args) {
    const Composed composed(args);
    Problem problem;
    if (const int status = accept(composed.args(), problem)) return status;
    distort_views(problem);
    if (on<"ALL-x15">()) touch_input(problem);
    const Plan plan = make_plan(problem);
    compress_grad(problem, plan);
    if (on<"ALL-14">()) clear_uncovered_input(problem, plan);
    return ATTNCHECK_OK;
}
