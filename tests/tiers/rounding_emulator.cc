#include "rounding_emulator.h"

#include <cmath>
#include <utility>

#include "rounded_sums.h"

namespace attncheck::tiers {

ref::RoundingClass Emulation::rounding() const {
    ref::RoundingClass rounding;
    rounding.prob_rounded = prob_cast;
    rounding.prob_kept = keeps_prob;
    rounding.score_grad_rounded = score_grad_cast;
    rounding.row_sum_rounded = sum_of_cast;
    if (sums == Sums::truncating) rounding.accumulator_roundoff = 0x1p-23;
    rounding.lse_statistics = lse_statistics || stale > 0;
    rounding.lse_split = parts > 1;
    rounding.parts_rounded = parts_cast;
    rounding.scores_rounded = scores_cast;
    rounding.delta_rounded = delta_cast;
    rounding.steps_rounded = steps_cast;
    rounding.tanh_error = tanh_units;
    rounding.group_rounded = group_cast;
    rounding.factor = factor;
    rounding.scaling = scaling;
    rounding.own_forward = own_forward;
    if (exp_units > 0) rounding.exp_error += exp_units;
    rounding.flush_subnormals = rounding.flush_bf16_subnormals = flush;
    return rounding;
}

std::string Emulation::name() const {
    constexpr const char* kSums[] = {"fp32", "fma", "fp64", "truncating", "pairwise"};
    return std::string(kSums[static_cast<int>(sums)]) + (prob_cast ? " p=half" : " p=fp32") +
           (score_grad_cast ? " ds=half" : " ds=fp32") + (sum_of_cast ? " sum=rounded" : "");
}

Outputs emulate(const properties::CompressProblem& problem, const Emulation& emulation) {
    const ref::CompressShape& s = problem.shape;
    const auto flushed = [&](std::vector<double> values) {
        for (double& value : values)
            if (emulation.flush && std::fabs(value) < ref::min_normal(problem.dtype)) value = 0;
        return values;
    };
    const auto x = flushed(problem.values(properties::kCmpInput)), w = flushed(problem.values(properties::kCmpWeight));
    using Int = std::int64_t;
    using Size = std::size_t;
    const Int row = s.heads * s.head_dim;
    const Sums sums = emulation.sums;
    std::vector<double> y(static_cast<Size>(s.total_blocks() * row)), dx(x.size()), dw(w.size());
    const auto dy = problem.gradient ? flushed(problem.values(properties::kCmpOutputGrad)) : std::vector<double>{};
    ref::for_each_block(s, [&](Int output_row, Int first_token) {
        for (Int r = 0; r < s.block; ++r)
            for (Int n = 0; n < s.heads; ++n) {
                const auto at = static_cast<Size>((first_token + r) * row + n * s.head_dim),
                           to = static_cast<Size>(output_row * row + n * s.head_dim),
                           weight = static_cast<Size>(r * s.heads + n);
                for (Size c = 0; c < static_cast<Size>(s.head_dim); ++c)
                    if (problem.gradient)
                        dx[at + c] = add(sums, dx[at + c], w[weight], dy[to + c]);
                    else
                        y[to + c] = add(sums, y[to + c], w[weight], x[at + c]);
                if (problem.gradient)
                    dw[weight] =
                        add(sums, dw[weight],
                            as_float(dot(sums, dy.data() + to, x.data() + at, s.head_dim)), 1);
            }
    });
    for (auto* out : {&y, &dx, &dw}) {
        for (double& value : *out) value = store(problem.dtype, value);
        *out = flushed(std::move(*out));
    }
    if (problem.gradient) return {{"input_grad", dx}, {"weight_grad", dw}};
    return {{"output", y}};
}

}  // namespace attncheck::tiers
