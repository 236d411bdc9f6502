#include "properties/laws/law_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace attncheck::properties {
namespace {

/// The bounds of an output in any order of sums; empty where the order is promised. Refers to the
/// run.
OpenOrder open_order(const LawRun& run, const PropertyContext& context, const std::string& output) {
    if (!context.rounding.any_order) return {};
    return [&run, &context, output] {
        return tensor_of(run.expected(context.rounding, ref::Grant::lattice), output);
    };
}

}  // namespace

bool LawRun::is_list(const std::string&) const { return false; }

Verdict LawRun::verdict_on_open_lists(const LawRun&, const PropertyContext&, const std::string&,
                                      const std::string&, const OutputFilter&) const {
    return {};
}

std::vector<std::string> CallRun::outputs() const {
    std::vector<std::string> names;
    for (const Tensor& tensor : call.tensors)
        if (tensor.output && tensor.present) names.push_back(tensor.name);
    return names;
}

void BoundedOutput::add_product(std::size_t first, std::span<const double> weights,
                                std::vector<double>& side, Identity& identity,
                                std::size_t slot) const {
    for (std::size_t k = 0; k < weights.size(); ++k) {
        // An element that is not judged takes part only where it counts; a NaN of any other one is an error.
        if (weights[k] == 0 && !std::isfinite(allowed[first + k])) continue;
        const double product = values[first + k] * weights[k];
        side[slot] += product;
        // A NaN where none is allowed must not widen what is allowed.
        if (std::isfinite(product)) identity.size[slot] += std::fabs(product);
        identity.allowed[slot] += allowed[first + k] * std::fabs(weights[k]);
    }
}

Verdict verdict_on_equal_bits(const LawRun& left, const LawRun& right,
                              const PropertyContext& context, const std::string& output,
                              const std::string& relation, const OutputFilter& compared) {
    return verdict_on_same_bits(
        output, left.type(output), left.bits(output), right.bits(output), relation,
        left.place(output),
        [&](std::size_t k) { return !compared || compared(output, k); },
        open_order(left, context, output));
}

Verdict verdict_on_equal_bits(const LawRun& left, const LawRun& right,
                              const PropertyContext& context, const std::string& relation,
                              const OutputFilter& compared) {
    Verdict all;
    for (const std::string& name : left.outputs())
        join(all, left.is_list(name) && context.rounding.any_order
                      ? left.verdict_on_open_lists(right, context, name, relation, compared)
                      : verdict_on_equal_bits(left, right, context, name, relation, compared));
    return all;
}

Verdict verdict_on_scaled(const LawRun& left, const LawRun& right, const PropertyContext& context,
                          const std::string& output, int exponent, const std::string& relation) {
    return verdict_on_powers(output, left.type(output), left.values(output), right.values(output),
                             exponent, relation, left.place(output),
                             open_order(right, context, output));
}

Verdict verdict_on_equal_runs(const LawRun& left, const LawRun& right,
                              const PropertyContext& context, const std::string& relation) {
    Verdict all;
    for (const auto& [name, expected] : left.expected(context.rounding, ref::Grant::rounding))
        join(all, verdict_within(name, left.values(name), right.values(name),
                                 times(allowance(expected), 2), relation, left.place(name)));
    return all;
}

Verdict verdict_within_both(const LawRun& left, const LawRun& right,
                            const PropertyContext& context, const std::string& relation,
                            const MovedOutput& moved_left, const MovedOutput& moved_right) {
    const auto in_order = [](const MovedOutput& moved, const std::string& name,
                             std::vector<double> values) {
        return moved ? moved(name, values) : values;
    };
    const ExpectedOutputs of_right = right.expected(context.rounding, ref::Grant::rounding);
    Verdict all;
    for (const auto& [name, expected] : left.expected(context.rounding, ref::Grant::rounding)) {
        const auto other = std::ranges::find(of_right, name, &ExpectedOutputs::value_type::first);
        if (other == of_right.end()) continue;
        join(all, verdict_within(name, in_order(moved_left, name, left.values(name)),
                                 in_order(moved_right, name, right.values(name)),
                                 sum_of(in_order(moved_left, name, allowance(expected)),
                                        in_order(moved_right, name, allowance(other->second))),
                                 relation, (moved_left ? right : left).place(name)));
    }
    return all;
}

Verdict verdict_on_moved_runs(const LawRun& left, const LawRun& right,
                              const PropertyContext& context, const std::string& relation,
                              const MovedOutput& moved) {
    Verdict all;
    for (const auto& [name, expected] : left.expected(context.rounding, ref::Grant::rounding))
        join(all, verdict_within(name, moved(name, left.values(name)), right.values(name),
                                 times(moved(name, allowance(expected)), 2), relation,
                                 right.place(name)));
    return all;
}

Verdict verdict_on_part(const LawRun& whole, const LawRun& part, const ExpectedOutputs& expected,
                        const std::string& output, std::size_t first, std::size_t count,
                        const std::string& relation) {
    const std::vector<double> together = whole.values(output), own = part.values(output),
                              bound = allowance(tensor_of(expected, output));
    std::vector<double> in_place = together,
                        allowed(together.size(), std::numeric_limits<double>::infinity());
    for (std::size_t k = 0; k < count; ++k) {
        in_place[first + k] = own[k];
        allowed[first + k] = 2 * bound[first + k];
    }
    return verdict_within(output, together, std::move(in_place), allowed, relation,
                          whole.place(output));
}

Verdict verdict_on_sum(const LawRun& first, const LawRun& second, const LawRun& whole,
                       const PropertyContext& context, const std::string& relation,
                       const std::function<bool(const std::string&)>& is_linear) {
    const auto expected_of = [&](const LawRun& run) {
        return run.expected(context.rounding, ref::Grant::rounding);
    };
    const ExpectedOutputs of_first = expected_of(first), of_second = expected_of(second);
    Verdict all;
    for (const auto& [name, expected] : expected_of(whole)) {
        std::vector<double> sum = first.values(name);
        if (!is_linear || is_linear(name)) sum = sum_of(std::move(sum), second.values(name));
        join(all, verdict_within(name, std::move(sum), whole.values(name),
                                 sum_of(sum_of(allowance(tensor_of(of_first, name)),
                                               allowance(tensor_of(of_second, name))),
                                        allowance(expected)),
                                 relation, whole.place(name)));
    }
    return all;
}

std::vector<double> whole_numbers(std::size_t count, std::int64_t most, Random& random) {
    std::vector<double> numbers(count);
    for (double& number : numbers) number = static_cast<double>(random.between(-most, most));
    return numbers;
}

bool split_exactly(ref::Dtype dtype, const std::vector<std::uint32_t>& whole, Random& random,
                   std::vector<std::uint32_t>& first, std::vector<std::uint32_t>& second) {
    const std::vector<double> part = whole_numbers(whole.size(), 3, random);
    first = second = whole;
    return change_exactly(dtype, first, [&](double, std::size_t k) { return part[k]; }) &&
           change_exactly(dtype, second,
                          [&](double value, std::size_t k) { return value - part[k]; });
}

}  // namespace attncheck::properties
