// The values of a case, the problem taken from it, and a changed problem made into a call again.
#include "properties/operators/attention_merge/problem.h"

#include <algorithm>
#include <limits>

#include "properties/case/attention_data.h"
#include "properties/case/data.h"
#include "properties/case/values.h"

namespace attncheck::properties {
namespace {

constexpr int kParts = 0, kLses = 1;

/// A normal number of the element's own; `salt` for another one.
double drawn(const Spec& spec, std::uint64_t salt, std::span<const std::int64_t> index) {
    return recipe_value(Recipe::normal, mix(spec.seed + salt), {kLses}, ref::Dtype::fp32, index, 1);
}

bool is_dead(const Spec& spec, std::span<const std::int64_t> index) {
    constexpr double kQuarter = -0.674, kEighth = -1.15;  // quantiles of the normal numbers
    const auto row = index.subspan(1);
    switch (static_cast<MergeDead>(spec.number("dead"))) {
        case MergeDead::none:
            return false;
        case MergeDead::some:
            return drawn(spec, 1, index) < kQuarter;
        case MergeDead::most:
            return drawn(spec, 1, index) > kEighth;
        case MergeDead::rows:
            return drawn(spec, 2, row) < 0 || drawn(spec, 1, index) < kQuarter;
    }
    return false;
}

/// Differences of 70 are beyond what fp32 adds up, those of 700 beyond what its exp holds; a shift
/// of 1000 is, too, unless the maximum is taken off first. No finite number stands for a maximum of nothing: the
/// shift may be 20000.
double lse_of(const Spec& spec, std::span<const std::int64_t> index) {
    if (is_dead(spec, index)) return -kInfinity;
    const double own = drawn(spec, 0, index);
    const auto shift = static_cast<MergeShift>(spec.number("shift"));
    const double size = spec.seed % 2 == 0 ? 1000 : 20'000;
    const double common = shift == MergeShift::none ? 0 : shift == MergeShift::high ? size : -size;
    switch (static_cast<MergeWeights>(spec.number("weights"))) {
        case MergeWeights::equal:
            return common;
        case MergeWeights::near:
            return common + own;
        case MergeWeights::wide:
            return common + 20 * own;
        case MergeWeights::far:
            return common + 200 * own;
        case MergeWeights::dominant:
            return common + own + (index[0] == 0 ? 30 : 0);
    }
    return common;
}

/// Lses first, for parts that are dead hold NaN. A broadcast part belongs to all rows, dead or not.
void fill(const Spec& spec, Call& call) {
    Tensor &parts = call.tensor("parts"), &lses = call.tensor("lses");
    const auto override_tensor = [&](int wanted, Tensor& tensor) {
        if (has_extents_of(spec, call))
            apply_overrides(spec, [&](std::size_t index) {
                return static_cast<int>(index) == wanted ? &tensor.bits : nullptr;
            });
    };
    lses.bits.resize(lses.elements());
    for_each_index(lses.buffer_shape, [&](std::size_t k, const auto& index) {
        lses.bits[k] = ref::encode(ref::Dtype::fp32, lse_of(spec, index));
    });
    override_tensor(kLses, lses);

    fill_by_recipe(spec, kParts, parts);
    if (spec.layouts[kParts] != Layout::broadcast) {
        const std::uint32_t dead = ref::encode(ref::Dtype::fp32, -kInfinity),
                            nan = ref::encode(parts.type(), std::numeric_limits<double>::quiet_NaN());
        const auto dim = static_cast<std::size_t>(parts.buffer_shape.back());
        for (std::size_t k = 0; k < parts.bits.size(); ++k)
            if (lses.bits[k / dim] == dead) parts.bits[k] = nan;
    }
    override_tensor(kParts, parts);
}

}  // namespace

Call build_merge_call(const Spec& spec) { return build_of(spec, fill); }

MergeProblem::MergeProblem(const Spec& spec)
    : MergeProblem(build_merge_call(without_edits(spec))) {}

MergeProblem::MergeProblem(const Call& call)
    : dtype(call.tensor("parts").type()),
      parts(call.tensor("parts").bits),
      lses(call.tensor("lses").bits),
      gives_lse(call.tensor("lse").present),
      fields(call.fields) {
    const auto& extents = call.tensor("parts").buffer_shape;
    shape = {extents[0], extents[1], extents[2], extents[3]};
}

ref::ExpectedMerge MergeProblem::expected(const ref::RoundingClass& rounding) const {
    return ref::expected_attention_merge(shape, {dtype, rounding}, part_values(), lse_values());
}

Call MergeProblem::call() const {
    Spec spec(merge_description());
    if (!fields.empty()) spec.numbers = fields;
    spec.set("dtype", dtype_field(dtype));
    spec.set("parts", shape.parts);
    spec.set("rows", shape.rows);
    spec.set("heads", shape.heads);
    spec.set("dim", shape.value_dim);
    spec.set("statistics", gives_lse ? 0 : 1);
    Call call = outline_of(extents_of(spec));
    call.tensor("parts").bits = parts;
    call.tensor("lses").bits = lses;
    return call;
}

ExpectedOutputs outputs_of(ref::ExpectedMerge expected, bool gives_lse) {
    ExpectedOutputs out;
    out.emplace_back("out", std::move(expected.output));
    if (gives_lse) out.emplace_back("lse", std::move(expected.lse));
    return out;
}

std::vector<bool> empty_rows(const MergeProblem& problem) {
    std::vector<bool> empty(problem.row_count(), true);
    const std::vector<double> lses = problem.lse_values();
    for (std::size_t k = 0; k < lses.size(); ++k)
        if (lses[k] != -kInfinity) empty[k % empty.size()] = false;
    return empty;
}

}  // namespace attncheck::properties
