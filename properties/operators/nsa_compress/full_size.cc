// NsaCompress and its gradient of full size. Every output is a sum over one window, or over all
// blocks: the whole reference is linear, and all elements are looked at.
#include <fmt/format.h>

#include <algorithm>

#include "properties/operators/nsa_compress/case.h"
#include "properties/judge/sampled_attention.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// Two for every product of an element and a weight.
double flops_of(const CompressProblem& problem) {
    const Tensor& blocks =
        problem.call.tensor(problem.call.op == "nsa_compress" ? "output" : "output_grad");
    return 2 * static_cast<double>(blocks.elements()) * static_cast<double>(problem.shape.block);
}

Verdict check_large(const Spec& spec, PropertyContext& context) {
    const CompressProblem problem(spec);
    const double flops = flops_of(problem);
    const CallResult result = context.candidate.run(problem.call, limits_for(problem.call, flops));
    if (auto trouble = verdict_unless_ok(result)) return *trouble;
    if (!result.damage.empty())
        return Verdict::fail("memory: " + result.damage.front().tensor,
                             result.damage.front().tensor + ": " + result.damage.front().what,
                             Tier::memory);
    const ExpectedOutputs expected = problem.expected(context.rounding);
    Verdict verdict = verdict_on_values(spec, problem.call, result, expected);
    if (verdict.failed()) return verdict;
    for (const auto& [name, values] : expected)
        verdict.message += fmt::format("  {}: all {} elements looked at\n", name, values.size());
    verdict.message +=
        fmt::format("  {}: {:.1f} s in the candidate", problem.call.op, result.seconds);
    return verdict;
}

}  // namespace

void add_compress_sampled(std::vector<Property>& list) {
    Property property{"sampled",
                      "full size: all elements agree with the reference; see verify --large",
                      check_large,
                      [](Spec& spec, Random&) {
                          if (spec.recipe >= Recipe::huge) spec.recipe = Recipe::normal;
                      },
                      [](const Spec& spec) { return spec.edits.empty(); }};
    property.large = true;
    list.push_back(std::move(property));
}

/// One long sequence; several with windows that overlap little and widths off the vectors; one
/// whose input is larger than caches are, where implementations take other ways through memory.
std::vector<Spec> compress_large_cases(const Schema& schema, Int length, std::uint64_t seed) {
    const Int odd = Random(seed).between(1, 15);
    Spec one(schema);
    one.lists = {{length - odd}};
    one.set("dtype", 1), one.set("heads", 4), one.set("dim", 128);
    one.set("block", 32), one.set("stride", 16);
    one.recipe = Recipe::normal;
    one.seed = seed;
    Spec several = one;
    several.lists = {{length / 2 + odd, 5, 0, length / 4 - odd}};
    several.set("dtype", 0), several.set("heads", 3), several.set("dim", 80);
    several.set("block", 64), several.set("stride", 48);
    several.seed = seed + 1;
    constexpr Int kBeyondCaches = Int{64} << 20;
    Spec wide = one;
    wide.lists = {{length, odd}};
    wide.set("heads", std::clamp<Int>(kBeyondCaches / (length * 128 * 2) + 1, 5, 128));
    wide.seed = seed + 2;
    return {one, several, wide};
}

}  // namespace attncheck::properties
