#include "properties/judge/sampled_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "properties/case/random.h"
#include "ref/attention/chosen_attention.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// Elements `chosen` of an output against their expectation.
Verdict judge_elements(const AttentionProblem& problem, const std::string& name,
                       const std::vector<Int>& chosen, const ref::ExpectedTensor& expected,
                       const Call& call, const CallResult& result) {
    const Bits all = packed_bits(problem.output_named(name), call, result);
    Bits got;
    for (const Int element : chosen) got.push_back(all[static_cast<std::size_t>(element)]);
    const Comparison c = compare(expected, got, call.tensor(name).type());
    Verdict verdict;
    verdict.worst_ratio = c.worst_ratio;
    if (c.ok()) {
        verdict.message = fmt::format("\n  {}: {} of {} elements compared", name, chosen.size(), all.size());
        return verdict;
    }
    verdict.kind = Verdict::Kind::failed;
    verdict.tier = Tier::bound;
    verdict.failure = name + " is wrong";
    verdict.message = fmt::format(
        "{} differs from the reference in {} of {} elements compared; worst:\n  {}  expected {:.9g}  got {:.9g}  "
        "error {:.3g}  bound {:.3g}",
        name, c.wrong, chosen.size(), problem.place(name, static_cast<std::size_t>(chosen[c.index])),
        c.expected, c.got, c.error, c.bound);
    return verdict;
}

Verdict judge_sinks(const FullSizeAttention& of, const ref::AttentionGradInputs& in, const Call& call,
                    const CallResult& result, const PropertyContext& context) {
    const AttentionProblem& problem = of.problem;
    // No columns: what the sinks take is told by the LSE, at a cost linear in the rows.
    const ref::ColumnLister no_columns = of.columns_of ? of.columns_of({}) : problem.columns;
    std::vector<Int> heads(problem.sink.size());
    for (std::size_t head = 0; head < heads.size(); ++head) heads[head] = static_cast<Int>(head);
    return judge_elements(problem, "dsink", heads,
                          ref::expected_sink_grad({problem.shape, no_columns, in},
                                                  {problem.result, context.rounding}),
                          call, result);
}

Verdict judge_biases(const FullSizeAttention& of, ref::AttentionGradInputs in, const Call& call,
                     const CallResult& result, const PropertyContext& context) {
    const AttentionProblem& problem = of.problem;
    const std::vector<Int> chosen = chosen_bias_elements(of);
    in.bias_elements = chosen.size();
    in.bias_dtype = problem.bias_dtype;
    return judge_elements(problem, "dbias", chosen,
                          ref::expected_bias_grad({problem.shape, of.bias_columns_of(chosen), in},
                                                  {problem.result, context.rounding}),
                          call, result);
}

}  // namespace

std::vector<Int> chosen_bias_elements(const FullSizeAttention& of) {
    constexpr Int kRandom = 48;
    const auto count = static_cast<Int>(of.problem.bias_elements);
    if (!of.problem.gives("dbias") || !of.bias_columns_of || count == 0) return {};
    std::set<Int> chosen{0, count - 1};
    const auto add = [&](Int element) {
        if (element < count) chosen.insert(element);
    };
    for (Int edge = 16; edge <= count; edge *= 2) add(edge - 1), add(edge);
    Random random(of.seed + 2);
    for (Int k = 0; k < kRandom; ++k) add(random.between(0, count - 1));
    return {chosen.begin(), chosen.end()};
}

Verdict judge_sampled_sums(const FullSizeAttention& of, const Call& call, const CallResult& result,
                           const PropertyContext& context) {
    Verdict all;
    if (context.rounding.own_forward || of.problem.statistics == Statistics::none) return all;
    const AttentionNumbers numbers(of.problem);
    const ref::AttentionGradInputs in = numbers.gradient_inputs();
    if (of.problem.gives("dsink")) all = judge_sinks(of, in, call, result, context);
    if (all.failed() || chosen_bias_elements(of).empty()) return all;
    Verdict biases = judge_biases(of, in, call, result, context);
    biases.worst_ratio = std::max(biases.worst_ratio, all.worst_ratio);
    if (!biases.failed()) biases.message = all.message + biases.message;
    return biases;
}

}  // namespace attncheck::properties
