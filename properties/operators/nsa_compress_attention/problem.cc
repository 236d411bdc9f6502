// A problem of compress attention: from a case, changed, into a call, and the verdict on its lists.
#include "properties/operators/nsa_compress_attention/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <utility>

#include "properties/case/values.h"

namespace attncheck::properties::compress_attention {
namespace {

using Int = std::int64_t;

Parts parts_without_values(const Spec& spec) {
    Parts parts;
    const Extents extents = extents_of(spec);
    const auto& n = spec.numbers;
    take_case(spec, extents, parts);
    ref::CompressAttentionShape& s = parts.shape;
    s.compress_block = n[kBlock];
    s.compress_stride = n[kStride];
    s.select_block = n[kSelect];
    s.select_count = n[kCount];
    parts.sparse_mode = n[kSparse];
    parts.mask = MaskTensor::of_kind(n[kMask]);
    parts.topk_mask = MaskTensor::of_kind(n[kTopkMask]);
    parts.fit_mask_shapes();
    return parts;
}

void give_values(const Parts& parts, const Extents& extents, Call& call) {
    const Tensor* const forced = &call.tensors[kForcedBlocks];
    give_values(parts, extents, call, [&](Role, Tensor& tensor) {
        tensor.bits = &tensor == forced ? parts.topk_mask.bits : parts.mask.bits;
    });
}

Call make_call(const Parts& parts) {
    const ref::CompressAttentionShape& s = parts.shape;
    Spec spec = case_of(parts, description());
    auto& n = spec.numbers;
    n[kDtype] = parts.dtype != ref::Dtype::fp16;
    n[kBlock] = s.compress_block;
    n[kStride] = s.compress_stride;
    n[kSelect] = s.select_block;
    n[kCount] = s.select_count;
    n[kMask] = parts.mask.kind();
    n[kTopkMask] = parts.topk_mask.kind();
    n[kSparse] = parts.sparse_mode;
    const Extents extents = extents_of(spec);
    Call call = outline_of(extents);
    call.reals[0].value = parts.scale;
    give_values(parts, extents, call);
    return call;
}

AttentionProblem inputs_of(const Spec& spec) { return problem_of(parts_of(spec)); }

class CompressAttention : public PartsOperator<Parts> {
public:
    CompressAttention() : PartsOperator(inputs_of, problem_of, make_call) {}

    std::optional<AttentionProblem> single_sequence(const AttentionProblem& problem, std::size_t b,
                                                    Random&) const override {
        const Int queries = problem.query_lengths[b], keys = problem.kv_lengths[b];
        if (queries == 0) return std::nullopt;
        Parts one = parts_of_sequence<Parts>(problem, b);
        one.mask.crop(queries, keys);
        one.topk_mask.crop(queries, one.shape.select_blocks(keys));
        one.fit_mask_shapes();
        return problem_of(std::move(one));
    }
    Verdict judge_lists(const AttentionProblem& problem, const Bits& lists,
                        const ref::RoundingClass& rounding, ref::Grant grant,
                        const std::string& relation) const override {
        return verdict_on_lists(problem, lists_of(lists), rounding, grant, relation);
    }

private:
    /// Masks are those of all heads.
    void move_extras(const Parts&, const HeadSources&, Parts&) const override {}
};

/// The message without the place, which is told in the suite's words.
std::string reason_of(const std::string& message) {
    const auto equals = message.find("] = ");
    return equals == std::string::npos ? message : message.substr(equals + 4);
}

/// The first blocks of a list.
std::string list_text(const auto& blocks) {
    constexpr std::size_t kShown = 16;
    return fmt::format("[{}{}]", fmt::join(std::span(blocks).first(std::min(blocks.size(), kShown)), ", "),
                       blocks.size() > kShown ? ", ..." : "");
}

}  // namespace

void Parts::fit_mask_shapes() {
    const Int rows = longest(shape.query_lengths), keys = longest(shape.kv_lengths);
    mask.shape = {rows, keys};
    topk_mask.shape = {rows, shape.most_select_blocks()};
}

Parts masks_of(const Spec& spec) {
    Parts parts = parts_without_values(spec);
    fill_masks(spec, parts);
    apply_overrides(spec, [&](std::size_t tensor) {
        return tensor == kAttenMask      ? &parts.mask.bits
               : tensor == kForcedBlocks ? &parts.topk_mask.bits
                                         : nullptr;
    });
    return parts;
}

Parts parts_of(const Spec& spec) {
    Parts parts = masks_of(spec);
    fill_values(spec, recipe_of(spec, parts), parts);
    return parts;
}

Parts parts_of_call(const Call& call) {
    const auto lengths_of = [&](std::size_t array) {
        std::vector<Int> out = call.arrays[array].values;
        for (std::size_t b = out.size(); b-- > 1;) out[b] -= out[b - 1];
        return out;
    };
    const Tensor &query = tensor_with(Role::query, call), &key = tensor_with(Role::key, call),
                 &value = tensor_with(Role::value, call);
    Parts parts;
    parts.dtype = parts.result = query.type();
    ref::CompressAttentionShape& s = parts.shape;
    s.query_lengths = lengths_of(0);
    s.kv_lengths = lengths_of(1);
    s.total_queries = query.shape[0];
    s.query_heads = query.shape[1];
    s.head_dim = query.shape[2];
    s.total_keys = key.shape[0];
    s.kv_heads = key.shape[1];
    s.value_dim = value.shape[2];
    s.compress_block = call.number("compress_block_size");
    s.compress_stride = call.number("compress_stride");
    s.select_block = call.number("select_block_size");
    s.select_count = call.number("select_block_count");
    parts.scale = call.reals[0].value;
    for (const auto& [number, mask] :
         {std::pair{kAttenMask, &parts.mask}, std::pair{kForcedBlocks, &parts.topk_mask}}) {
        mask->present = call.tensors[number].present;
        mask->bits = call.tensors[number].bits;
    }
    parts.fit_mask_shapes();
    parts.query = query.bits;
    parts.key = key.bits;
    parts.value = value.bits;
    return parts;
}

Call build_call(const Spec& spec) {
    return build_with_values(spec, [](const Spec& of, Call& call) {
        give_values(parts_of(of), extents_of(of), call);
    });
}

AttentionProblem problem_of(Parts parts) {
    AttentionProblem problem = problem_of_shape(parts.shape);
    problem.scale = parts.narrowed_scale();
    const auto extras = hold(problem, std::move(parts));
    const ref::CompressAttentionShape& s = extras->shape;
    add_attention_outputs(problem);
    const auto place =
        std::make_shared<std::vector<Int>>(static_cast<std::size_t>(problem.query_rows()));
    const auto order = ref::compress_statistics_order(s);
    for (std::size_t p = 0; p < order.size(); ++p)
        (*place)[static_cast<std::size_t>(order[p])] = static_cast<Int>(p);
    for (AttentionOutput& output : problem.forward_outputs)
        if (output.is_statistic())
            output.row_in_call = [place](Int number) {
                return (*place)[static_cast<std::size_t>(number)];
            };
    problem.forward_outputs.push_back({.name = "topk_indices",
                                       .role = Role::list,
                                       .dtype = ref::Dtype::int32,
                                       .heads = s.kv_heads,
                                       .width = s.select_count,
                                       .column = "entry",
                                       .parts = {{"topk_indices", 0, s.select_count}}});
    // The lister refers to the shape and the mask, which live as long as itself.
    const auto hidden = std::make_shared<const std::vector<std::uint8_t>>(extras->mask.contents());
    problem.columns = [extras, hidden,
                       columns = shared_columns(ref::compress_columns(s, {*hidden, {}}))](
                          Int t, Int n, std::vector<ref::KeyColumn>& to) {
        return columns(t, n, to);
    };
    return problem;
}

std::vector<Int> lists_of(const Bits& bits) {
    std::vector<Int> out(bits.size());
    std::ranges::transform(bits, out.begin(),
                           [](std::uint32_t b) { return static_cast<std::int32_t>(b); });
    return out;
}

Scores::Scores(const AttentionProblem& problem, const ref::RoundingClass& rounding,
               ref::Grant grant)
    : hidden(extras_of<Parts>(problem).mask.contents()),
      forced(extras_of<Parts>(problem).topk_mask.contents()),
      masks{hidden, forced},
      numbers(problem),
      in(numbers.inputs()),
      of_blocks(extras_of<Parts>(problem).shape, in, masks, {problem.dtype, rounding}, grant) {}

Verdict verdict_on_lists(const AttentionProblem& problem, const std::vector<Int>& lists,
                         const ref::RoundingClass& rounding, ref::Grant grant,
                         const std::string& relation) {
    Scores scores(problem, rounding, grant);
    const ref::SelectionJudgement judgement = ref::judge_selection(scores.of_blocks, lists);
    Verdict verdict;
    verdict.worst_ratio = judgement.worst_ratio;
    if (judgement.right) return verdict;
    verdict.kind = Verdict::Kind::failed;
    verdict.failure =
        relation.empty() ? "topk_indices is wrong" : "topk_indices breaks the relation";
    verdict.message = fmt::format(
        "{}{}topk_indices is wrong in {} of {} lists; first:\n  {}  {}", relation,
        relation.empty() ? "" : ": ", judgement.wrong, judgement.judged,
        problem.place("topk_indices", static_cast<std::size_t>(judgement.index)),
        reason_of(judgement.message));
    if (!judgement.got.empty())
        verdict.message += fmt::format("\n  the list is    {}\n  expected e.g.  {}", list_text(judgement.got),
                                       list_text(judgement.expected));
    return verdict;
}

const AttentionOperator& attention_operator() {
    static const CompressAttention kOperator;
    return kOperator;
}

void lengthen_keys(Spec& spec) {
    const Int least = (spec.numbers[kCount] - 1) * keys_per_select(spec) + 1;
    for (auto& length : spec.lists[1])
        if (length > 0) length = std::max(length, least);
}

}  // namespace attncheck::properties::compress_attention
