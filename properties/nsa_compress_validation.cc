// Validation: what a call with illegal arguments must come to. The arguments are a legal call with
// edits; the ruling on them is the reference's predicate, never the name of the edit.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "properties/check.h"
#include "properties/nsa_compress_case.h"

namespace attncheck::properties {
namespace {

/// Edits by the rule they aim at. A rule is drawn first, then one of its edits, so that every rule
/// gets its share.
using EditGroups = std::vector<std::vector<std::string>>;

/// Values of one argument that are illegal, or legal in an unusual way: the predicate says which.
std::vector<std::string> values_of(const std::string& name, std::vector<std::int64_t> values) {
    std::vector<std::string> edits;
    for (const auto value : values) edits.push_back(fmt::format("{}={}", name, value));
    return edits;
}

constexpr std::int64_t kMax = INT64_MAX, kMin = INT64_MIN;

void add_tensor_edits(EditGroups& groups, const TensorField& tensor, const ref::CompressShape& s) {
    groups.push_back({tensor.name + ".absent"});
    groups.push_back(values_of(tensor.name + ".rank", {-1, 0, 1, tensor.rank - 1, tensor.rank + 1,
                                                       8, 9, 1000, INT32_MAX, INT32_MIN}));
    groups.push_back(values_of(tensor.name + ".dtype",
                               {ATTNCHECK_FLOAT16, ATTNCHECK_BFLOAT16, ATTNCHECK_FLOAT32,
                                ATTNCHECK_INT32, ATTNCHECK_BOOL, ATTNCHECK_FLOAT8_E5M2, 2, -1}));
    const std::int64_t extents[3] = {tensor.name.starts_with("weight")   ? s.block
                                     : tensor.name.starts_with("output") ? s.total_blocks()
                                                                         : s.total_tokens,
                                     s.heads, s.head_dim};
    for (int dim = 0; dim < tensor.rank; ++dim) {
        const std::int64_t now = extents[dim];
        groups.push_back(values_of(fmt::format("{}.shape[{}]", tensor.name, dim),
                                   {now + 1, now - 1, 0, -1, 2 * now + 16, std::int64_t{1} << 32,
                                    std::int64_t{1} << 62, kMax, kMin}));
    }
}

/// Every single change of a legal call that validation is tried with. "all.KEY=V" gives the field
/// another value in every place it decides, so that only its own rule can catch it.
EditGroups possible_edits(const Spec& spec) {
    const bool gradient = spec.schema->op == "nsa_compress_grad";
    const ref::CompressShape s = compress_shape(spec);
    EditGroups groups;
    for (const TensorField& tensor : spec.schema->tensors) add_tensor_edits(groups, tensor, s);
    groups.push_back(values_of(
        "compress_block_size",
        {0, -16, -32, 8, 17, 24, s.block + 8, s.block - 16, s.block + 16, 144, 256, kMax, kMin}));
    groups.push_back(values_of("compress_stride", {0, -16, 8, 17, 24, s.block, s.block + 16,
                                                   s.stride + 8, 2 * s.block, kMax, kMin}));
    groups.push_back(values_of("act_seq_len_type", {1, 2, -1, kMax}));
    groups.push_back({"layout=\"BSND\"", "layout=\"tnd\"", "layout=\"\"", "layout=\"TNDX\"",
                      "layout=\"TNDx\"", "layout=\"TN\"", "layout=\" TND\""});
    groups.push_back({"layout.absent"});
    groups.push_back(values_of("all.dim", {8, 24, 40, 264, 272}));
    groups.push_back(values_of("all.heads", {129, 130}));
    groups.push_back(values_of("all.block", {0, 8, 24, 136, 144, 160}));
    groups.push_back(values_of("all.stride", {0, 8, 24, s.block, s.block + 16}));
    groups.push_back(values_of("all.dtype", {ATTNCHECK_FLOAT32}));
    if (gradient && spec.number("lengths") == 1) return groups;
    groups.push_back({"act_seq_len.absent"});
    groups.push_back({"act_seq_len.null", "act_seq_len.size=-1"});
    groups.push_back({"act_seq_len.size=0"});
    std::int64_t end = 0;
    for (std::size_t k = 0; k < spec.lists[0].size(); ++k) {
        end += spec.lists[0][k];
        if (k > 0 && k + 1 < spec.lists[0].size()) continue;  // the first and the last say it all
        groups.push_back(values_of(
            fmt::format("act_seq_len[{}]", k),
            {-1, -2, end - 1, end + 1, s.total_tokens + 1, s.total_tokens + 16, kMax, kMin}));
    }
    return groups;
}

std::string random_edit(const Spec& spec, Random& random) {
    return random.pick(random.pick(possible_edits(spec)));
}

/// Legality of a broken call has one answer; building it can only fail when an edit names nothing
/// (any more).
std::optional<Call> broken_call(const Spec& spec) {
    try {
        return find_operator(spec.schema->op)->build(spec);
    } catch (const std::invalid_argument&) {
        return std::nullopt;
    }
}

/// Accepts exactly what the contract accepts, with its status, and leaves the outputs alone when it
/// does not. Why     all rejection happens before anything is computed; null pointers come first
/// (161001), all else is 161002. Domain  a legal call with one or several arguments changed; what
/// the change amounts to is the predicate's to say. Kills   VAL-03 VAL-06 VAL-07 VAL-35, crashes on
/// nonsense, half-written outputs. Shrinks to the smallest legal call and one edit.
Verdict validation(const Spec& spec, PropertyContext& context) {
    const std::optional<Call> call = broken_call(spec);
    if (!call) return {Verdict::Kind::inapplicable, {}, {}, 0};
    const HostArray& lengths = call->arrays[0];
    if (!lengths.present && lengths.size < 0)
        return {Verdict::Kind::inapplicable, {}, {}, 0};  // absent or illegal: both are
    const ref::Ruling ruling = find_operator(spec.schema->op)->rule(*call);
    if (ruling.accepted() && !runnable_after_edits(*call))
        return {Verdict::Kind::inapplicable, {}, {}, 0};
    const CallResult result = context.candidate.run(*call, {});
    if (result.died()) {
        Verdict verdict = *verdict_unless_ok(result);
        verdict.message += ruling.accepted() ? " on legal arguments"
                                             : fmt::format(" instead of returning {} ({})",
                                                           ruling.status, ruling.message);
        return verdict;
    }
    if (result.status == ATTNCHECK_DECLINED) return {Verdict::Kind::declined, {}, {}, 0};
    if (result.status != ruling.status) {
        if (ruling.accepted())
            return Verdict::fail(
                "rejected a legal call",
                fmt::format("returned {} for a legal call, expected 0", result.status));
        const std::string what = result.status == ATTNCHECK_OK ? "accepted" : "wrong status for";
        return Verdict::fail(fmt::format("{} bad {}", what, ruling.parameter),
                             fmt::format("returned {}, expected {}: {}", result.status,
                                         ruling.status, ruling.message));
    }
    if (ruling.accepted()) return {};
    if (!result.damage.empty())
        return Verdict::fail("memory: " + result.damage.front().tensor,
                             fmt::format("rejected, but {}: {}", result.damage.front().tensor,
                                         result.damage.front().what));
    for (std::size_t i = 0; i < call->tensors.size(); ++i) {
        const Tensor& tensor = call->tensors[i];
        if (!tensor.output || !tensor.present) continue;
        const std::uint32_t untouched = tensor.element_size() == 2 ? 0xFFFFu : 0xFFFFFFFFu;
        const auto& bits = result.outputs[i];
        const auto touched =
            std::find_if(bits.begin(), bits.end(), [&](std::uint32_t b) { return b != untouched; });
        if (touched != bits.end())
            return Verdict::fail(tensor.name + " written by a rejected call",
                                 fmt::format("rejected with {}, but {} was written at element {}",
                                             result.status, tensor.name, touched - bits.begin()));
    }
    return {};
}

/// Validation looks at arguments, not at elements: few of them make room for many cases.
void plain_data(Spec& spec) {
    spec.set("heads", std::min<std::int64_t>(spec.number("heads"), 3));
    spec.set("dim", std::min<std::int64_t>(spec.number("dim"), 48));
    if (spec.lists[0].size() > 4) spec.lists[0].resize(4);
    for (auto& length : spec.lists[0]) length = std::min<std::int64_t>(length, 200);
    if (std::count(spec.lists[0].begin(), spec.lists[0].end(), 0) == std::ssize(spec.lists[0]))
        spec.lists[0].back() = 1;
    spec.recipe = Recipe::zeros;
    spec.overrides.clear();
    std::fill(spec.layouts.begin(), spec.layouts.end(), Layout::dense);
}

bool meaningful(const Spec& spec) { return !spec.edits.empty() && broken_call(spec).has_value(); }

}  // namespace

void add_compress_validation(std::vector<Property>& list, bool) {
    Property one{"validation",
                 "illegal arguments: right status, outputs untouched; legal ones accepted",
                 validation,
                 [](Spec& spec, Random& random) {
                     plain_data(spec);
                     spec.edits = {random_edit(spec, random)};
                 },
                 meaningful};
    one.validation = true;
    one.case_factor = 8;  // some 200 different edits, cheap to run
    Property several{"validation_combined",
                     "several illegal arguments at once: the first rule in order decides, no crash",
                     validation,
                     [](Spec& spec, Random& random) {
                         plain_data(spec);
                         for (std::int64_t k = random.between(2, 4); k > 0; --k)
                             spec.edits.push_back(random_edit(spec, random));
                     },
                     meaningful};
    several.validation = true;
    several.case_factor = 3;
    list.push_back(std::move(one));
    list.push_back(std::move(several));
}

}  // namespace attncheck::properties
