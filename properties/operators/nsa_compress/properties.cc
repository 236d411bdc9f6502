// NsaCompress and its gradient in single runs: against the reference, exact data, the tiers, full
// size, illegal arguments, and what a call may do to memory and to later calls.
#include <fmt/format.h>

#include <algorithm>

#include "properties/case/attention_draws.h"
#include "properties/case/values.h"
#include "properties/judge/sampled_attention.h"
#include "properties/laws/call_properties.h"
#include "properties/laws/relation_checks.h"
#include "properties/operators/nsa_compress/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// The call of a case in its layouts, edits left out, and its problem.
struct CaseCall {
    Call call;
    CompressProblem problem;

    explicit CaseCall(const Spec& spec)
        : call(build_compress_call(without_edits(spec))), problem(spec, call) {}
};

CaseProblem case_problem(const Spec& spec) {
    CaseCall made(spec);
    const auto problem = std::make_shared<const CompressProblem>(std::move(made.problem));
    return {std::move(made.call),
            [problem](const ref::RoundingClass& rounding) { return problem->expected(rounding); },
            {},
            [problem] {
                const auto input = problem->values(kCmpInput), weight = problem->values(kCmpWeight);
                if (!problem->gradient)
                    return half_composition_errors(problem->shape, problem->dtype, input, weight);
                const auto output_grad = problem->values(kCmpOutputGrad);
                return half_composition_errors(problem->shape, problem->dtype, input, weight,
                                               output_grad);
            }};
}

/// One case in fifty has tens of thousands of tokens: indices that leave 16 bits, many tiles, many
/// threads, and gradients beyond 4 MiB, which an implementation may store past the cache.
void now_and_then_long(Spec& spec, Random& random) {
    if (!random.chance(2)) return;
    spec.set("heads", 1);
    const auto length = random.pick<Int>({4096, 16384, 65536, 70000});
    spec.set("dim", length > 65536 ? 32 : 16);
    spec.lists[0].resize(1);
    spec.lists[0][0] = length + random.between(-20, 20);
    if (length == 16384 && random.chance(50)) spec.set("dim", 160);
}

/// Agreement: Y, dX and dW are sums of products; any order of fp32 accumulation stays within
/// gamma_n of the exact sum.
/// Domain  every legal case, every data recipe, every layout.
/// Bound   verification.md 4.1, 4.2; 0
///         beyond the final rounding where every partial sum is exact in fp32.
/// Kills   NC-01 NC-03 NC-06 NC-07 NC-08 NC-11 NC-12 NC-17 NCG-02 NCG-05 NCG-09 NCG-10 ALL-02
///         ALL-03 ALL-05.
/// Shrinks to one sequence of one block, one head, 16 channels, one non-zero element in each
///         factor.
CallProperties agreement() {
    CallProperties of;
    of.problem = case_problem;
    of.adapt_agreement = now_and_then_long;
    of.adapt_history = [](Spec& spec, Random& random) {
        const auto lengths = spec.schema->number("lengths");
        if (lengths >= 0) spec.numbers[static_cast<std::size_t>(lengths)] = 0;
        if (spec.lists[0].size() < 2)
            spec.lists[0].push_back(spec.number("block") + random.between(0, 40));
    };
    of.earlier = {reversed_sequences(), other_value("dtype", {0, 1})};
    return of;
}

/// Data of small integers: every partial sum is exact, so the result is the correctly rounded exact
/// number.
/// Why     products and sums of these stay below 2^24 units; verification.md 4.8.
/// Bound   0 where the exact sum is representable, else its distance to the nearest number.
/// Kills   every indexing defect, without any tolerance.
Verdict exact_integers(const Spec& spec, PropertyContext& context) {
    const CaseCall of(spec);
    const CallResult result = context.candidate.run(of.call, {});
    if (auto verdict = verdict_unless_ok(result)) return *verdict;
    const ExpectedOutputs expected = of.problem.expected(context.rounding);
    for (const auto& [name, tensor] : expected)
        for (std::size_t k = 0; k < tensor.size(); ++k)
            if (tensor.bound[k] > ref::half_ulp(of.problem.dtype, tensor.value[k]))
                return inapplicable();
    return verdict_on_values(spec, of.call, result, expected);
}

/// Why     every partial sum of zero-mean products errs on its own; a gain or a lost row of the
///         weight moves all outputs alike.
/// Domain  unit-variance data.
/// Bound   tiers.h.
/// Kills   gains of 0.1 % and a row of the weight that is slightly off.
/// Shrinks to the fewest blocks that show it.
Verdict deviation(const Spec& spec, PropertyContext& context) {
    const CaseCall of(spec);
    const CallResult result = context.candidate.run(of.call, {});
    if (auto verdict = verdict_unless_ok(result)) return *verdict;
    return judge_compress(of.problem, context.rounding, [&](const std::string& name) {
        return decode_all(of.problem.dtype, result.outputs[tensor_index(of.call, name)]);
    });
}

/// Weights and inputs of unit variance, a few hundred blocks, heads times channels in proportion.
bool is_compress_tier_data(const Spec& spec) {
    return spec.recipe == Recipe::normal && spec.overrides.empty() && spec.edits.empty() &&
           std::ranges::none_of(spec.layouts, repeats);
}

/// Percent of the cases of `deviation` that are long: they cost little.
constexpr int kLongCompressTierCases = 40;

/// 2048 to 65536 tokens in one sequence: a sum of dW has as many products as there are blocks times
/// channels.
void make_long_tier_case(Spec& spec, Random& random) {
    constexpr Int kMostElements = Int{1} << 20;
    const Int length = random.pick<Int>({2048, 4096, 8192, 16'384, 32'768, 65'536, 65'536}) -
                       random.between(0, 500);
    Spec wide = spec;
    wide.set("heads", random.between(1, 2));
    wide.set("dim", std::clamp<Int>(kMostElements / (length * wide.number("heads")) / 16 * 16, 16,
                                    16 * random.between(1, 16)));
    wide.lists[0] = {length};
    if (!illegal(wide)) spec = std::move(wide);
}

void make_compress_tier_case(Spec& spec, Random& random) {
    spec.recipe = Recipe::normal;
    std::ranges::replace_if(spec.layouts, repeats, Layout::dense);
    const bool one = spec.schema->number("lengths") >= 0 && spec.number("lengths") != 0;
    Spec wide = spec;
    wide.set("heads", std::min<Int>(spec.number("heads"), random.between(2, 4)));
    wide.set("dim", std::min<Int>(spec.number("dim"), 64));
    auto& lengths = wide.lists[0];
    if (one) lengths.resize(1);
    const Int empty = std::ranges::count(lengths, Int{0});
    const bool all = empty == std::ssize(lengths);
    const Int sequences = std::ssize(lengths) - (all ? 0 : empty);
    const Int blocks = random.between(40, 100) / sequences;
    for (auto& length : lengths)  // empty sequences stay empty, unless nothing else is left
        if (all || length > 0)
            length = std::min<Int>(spec.number("block") + blocks * spec.number("stride"),
                                   900 / sequences) +
                     random.between(0, 15);
    if (!illegal(wide)) spec = wide;
    if (random.chance(kLongCompressTierCases)) make_long_tier_case(spec, random);
}

/// Validation reads arguments, not elements: few of them make room for many cases.
void plain_data(Spec& spec) {
    spec.set("heads", std::min<Int>(spec.number("heads"), 3));
    spec.set("dim", std::min<Int>(spec.number("dim"), 48));
    if (spec.lists[0].size() > 4) spec.lists[0].resize(4);
    for (auto& length : spec.lists[0]) length = std::min<Int>(length, 200);
    if (longest(spec.lists[0]) == 0) spec.lists[0].back() = 1;
    with_zeros_in_dense_tensors(spec);
}

/// The second and third tier on as many heads as take some million elements: heads do not meet.
/// One that holds says what it may miss.
Verdict judge_heads(const CompressProblem& problem, const Call& call, const CallResult& result,
                    std::uint64_t seed, const PropertyContext& context) {
    constexpr Int kMostElements = Int{1} << 22;
    const ref::CompressShape& s = problem.shape;
    const Int heads =
        std::clamp<Int>(kMostElements / (s.total_tokens * s.head_dim), 1, s.heads);
    Random random(mix(seed));
    std::vector<Int> source = permutation(s.heads, random);
    source.resize(static_cast<std::size_t>(heads));
    CompressProblem some = problem;
    some.shape.heads = heads;
    for (const auto argument : {kCmpInput, kCmpWeight, kCmpOutputGrad})
        some.bits[argument] = gather_heads(problem.bits[argument], s.heads, source,
                                           argument == kCmpWeight ? 1 : s.head_dim);
    auto tensors = compress_tensors(some, context.rounding);
    for (TierTensor& tensor : tensors)
        tensor.got = gather_heads(
            decode_all(problem.dtype, result.outputs[tensor_index(call, tensor.name)]), s.heads,
            source, tensor.width);
    Verdict verdict = judge_tiers(tensors, context.rounding, [&](const ref::RoundingClass& other, const WantedRows&) {
        return compress_tensors(some, other);
    });
    if (verdict.failed()) return verdict;
    verdict.message = fmt::format("  deviation and filters of {} of {} heads:\n{}", heads, s.heads,
                                  describe_reach(tensors, [&](const TierTensor& tensor) {
                                      return tensor.role == Role::weight_grad ? s.total_blocks()
                                             : some.gradient                ? Int{0}
                                                                            : s.block;
                                  }));
    return verdict;
}

/// All elements of full size: every output is a sum over one window, or over all blocks.
Verdict full_size(const Spec& spec, PropertyContext& context) {
    const CaseCall of(spec);
    const ref::CompressShape& s = of.problem.shape;
    // Two for every product of an element and a weight.
    const double flops =
        2.0 * static_cast<double>(s.total_blocks() * s.heads * s.head_dim * s.block);
    const CallResult result = context.candidate.run(of.call, limits_for(of.call, flops));
    if (auto early = verdict_unless_ok(result)) return *early;
    if (!result.damage.empty())
        return Verdict::fail("memory: " + result.damage.front().tensor,
                             result.damage.front().tensor + ": " + result.damage.front().what,
                             Tier::memory);
    const ExpectedOutputs expected = of.problem.expected(context.rounding);
    Verdict verdict = verdict_on_values(spec, of.call, result, expected);
    if (verdict.failed()) return verdict;
    for (const auto& [name, values] : expected)
        verdict.message += fmt::format("  {}: all {} elements compared\n", name, values.size());
    verdict.message += fmt::format("  {}: {:.1f} s in the candidate", of.call.op, result.seconds);
    if (!is_compress_tier_data(spec)) return verdict;
    Verdict tiers = judge_heads(of.problem, of.call, result, spec.seed, context);
    if (tiers.failed()) return tiers;
    verdict.worst_ratio = std::max(verdict.worst_ratio, tiers.worst_ratio);
    verdict.message += "\n" + tiers.message;
    return verdict;
}

}  // namespace

std::vector<Property> compress_properties(bool gradient) {
    std::vector<Property> list;
    add_call_properties(list, agreement());
    list.push_back({"exact_integers", "small integer data: the correctly rounded exact result",
                    exact_integers, [](Spec& spec, Random&) { spec.recipe = Recipe::ints; },
                    [](const Spec& spec) { return spec.recipe <= Recipe::ints; }});
    Property tiers{"deviation",
                   "errors on zero-mean data are as rounding predicts: no gain, no lost part",
                   deviation, make_compress_tier_case, is_compress_tier_data};
    tiers.case_divisor = 4;
    list.insert(list.begin() + 1, std::move(tiers));  // behind agreement
    add_validation_properties(list, plain_data);
    add_compress_relations(list);
    add_compress_linear_relations(list, gradient);
    /// Full size: all elements agree with the reference.
    /// Why     what breaks only at full size is beyond what small cases reach.
    /// Domain  cases of many thousand tokens; run by `verify --large` alone.
    /// Bound   that of agreement, and the deviation tier.
    /// Kills   indices of 32 bits that overflow, and blocks that are lost beyond some length.
    Property large{"sampled", "full size: all elements agree with the reference; see verify --large",
                   full_size, [](Spec& spec, Random&) { without_extremes(spec); },
                   [](const Spec& spec) { return spec.edits.empty(); }};
    large.large = true;
    list.push_back(std::move(large));
    return list;
}

/// One long sequence, which no other operator has as long by default, also of whole numbers, whose sums are exact; several with windows that overlap little and widths off the vectors; one
/// whose input is larger than caches are, where implementations take other ways through memory.
std::vector<Spec> compress_large_cases(const Schema& schema, Int length, std::uint64_t seed) {
    const Int odd = Random(seed).between(1, 15);
    Spec one(schema);
    one.lists = {{long_where_linear(length) + 32 + odd}};  // a window begins behind `length` as well
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
    Spec whole_numbers = one;
    whole_numbers.recipe = Recipe::ints;
    whole_numbers.seed = seed + 3;
    return {one, several, whole_numbers, wide};
}

}  // namespace attncheck::properties
