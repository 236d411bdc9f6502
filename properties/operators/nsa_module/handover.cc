// Relations between what the operators of one run of the NSA module hand each other.
//
// "Kills" names mutants that the property was seen to kill within 40 cases, and broken compositions
// of tests/properties/operators/nsa_module_test.cc.
#include <fmt/format.h>

#include <bit>
#include <span>

#include "properties/case/values.h"
#include "properties/operators/flash_attention/case.h"
#include "properties/operators/nsa_module/runs.h"

namespace attncheck::properties::nsa_module {
namespace {


/// The lists of NsaCompressAttention are what both directions of selected attention are passed:
/// int32 [T,N2,K], blocks of the own sequence, each once; and they are right for their scores.
/// Why     nsa.md 11, 52: the list of one operator is an argument of the next.
/// Kills   NCA-x03, the composition that evaluates the lists again.
Verdict lists_handed_on(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    const Run run(parts, context);  // every run checks range and distinctness
    if (run.early_verdict) return *run.early_verdict;
    for (const ModuleOp op : {ModuleOp::selected_attention, ModuleOp::selected_attention_grad}) {
        const OperatorRecord* record = run.find(op);
        if (!record) return inapplicable();
        const Tensor &list = tensor_with(Role::list, record->call), &own = run.call.tensor(kLists);
        if (list.type() != own.type() || list.shape != own.shape || list.bits != run.bits(kLists))
            return Verdict::fail("another list was passed on",
                                 fmt::format("{} was passed other lists than "
                                             "nsa_compress_attention wrote",
                                             record->call.op));
    }
    return verdict_on_selection(run, context.rounding);
}

/// NsaCompressAttention is FlashAttentionScore with a mask: its statistics, element by element in
/// memory, are those that FlashAttentionScoreGrad takes.
/// Why     nsa.md 6.5: both write them as [N1,S] per sequence, which is why the gradient of the one
/// is the gradient of the other.
/// Bound   twice that of the attention part.
/// Kills   MOD-02: statistics by token and head.
/// Shrinks to two heads and two tokens.
Verdict statistics_order(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    const Run run(parts, context);
    if (run.early_verdict) return *run.early_verdict;
    const OperatorRecord* gradient = run.find(ModuleOp::flash_attention_grad);
    if (!gradient) return inapplicable();
    const OperatorRecord& attention = *run.find(ModuleOp::compress_attention);
    const Description& forward = flash_description(false);
    Call flash = gradient->call;
    flash.op = forward.op;
    flash.description = &forward;
    flash.texts[1].name = forward.texts[1].name;
    flash.tensors.clear();
    for (const TensorField& field : forward.tensors) {
        const Call& from = field.output ? attention.call : gradient->call;
        flash.tensors.push_back(field.role == Role::bias ? tensor_with(field.role, from)
                                                         : from.tensor(field.name));
        flash.tensors.back().name = field.name;
    }
    const CallResult result = context.candidate.run(flash, {});
    if (auto early = verdict_unless_ok(result)) return *early;
    const auto expected =
        of_operators(expected_stages(parts, run, Given(parts), context.rounding,
                                     ref::Grant::rounding, ref::ModuleStages::compress_branch));
    const auto rows = physical_rows(parts);
    Verdict all;
    for (const auto& [name, of] :
         {std::pair{"softmax_max", "compress_max"}, std::pair{"softmax_sum", "compress_sum"}}) {
        const auto by_row = allowance(tensor_of(expected, of));
        std::vector<double> allowed;
        for (const auto row : rows) allowed.insert(allowed.end(), kLanes, 2 * by_row[at(row)]);
        join(all,
             verdict_within(
                 name, decode_all(ref::Dtype::fp32, attention.output(name)),
                 decode_all(ref::Dtype::fp32, result.outputs[tensor_index(flash, name)]), allowed,
                 "nsa_compress_attention against flash_attention_score on the compressed keys",
                 [&](std::size_t k) { return run.place(of)(at(rows[k / kLanes])); }));
    }
    return all;
}

/// Sums of one compression, by head: <dX, X> = <dY, Y> = <dW, W>.
/// Why     Y is linear in X and in W (nsa.md 11, 49).
/// Bound   the bounds of dX, dW and Y, weighted.
/// Kills   MOD-04.
Verdict compress_adjoint(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    const Run run(parts, context);
    if (run.early_verdict) return *run.early_verdict;
    const Given given(parts);
    const auto bounds =
        of_operators(expected_stages(parts, run, given, context.rounding, ref::Grant::rounding,
                                     ref::ModuleStages::compression));
    Verdict all;
    for (const bool value : {false, true}) {
        const std::string kind = value ? "value" : "key";
        const auto heads = at(parts.shape.kv_heads);
        const std::size_t width = at(value ? parts.shape.value_dim : parts.shape.head_dim);
        Identity tokens(heads), weights(heads);
        const auto add = [&](const std::vector<double>& factor, const std::string& name,
                             std::size_t row, std::vector<double>& side, Identity& identity) {
            const BoundedOutput output(run, bounds, name);
            for (std::size_t k = 0; k < factor.size(); k += row)
                output.add_product(k, std::span(factor).subspan(k, row), side, identity,
                                   k / row % heads);
        };
        const auto block_grads = run.values(kind + "_blocks_grad");
        for (Identity* identity : {&tokens, &weights}) {
            for (std::size_t head = 0; head < heads; ++head)
                identity->place[head] = fmt::format("{}, head {}", kind, head);
            add(block_grads, kind + "_blocks", width, identity->right, *identity);
        }
        add(given.values[value ? kValueCompress : kKeyCompress], "compress_" + kind + "_grad",
            width, tokens.left, tokens);
        add(given.values[value ? kValueWeight : kKeyWeight], kind + "_weight_grad", 1, weights.left,
            weights);
        join(all, tokens.verdict("compress_" + kind + "_grad", "<dX, X> against <dY, Y>"));
        join(all, weights.verdict(kind + "_weight_grad", "<dW, W> against <dY, Y>"));
    }
    return all;
}

/// Compression with weights 1/l is the mean of l tokens.
/// Why     nsa.md 11, 49.
/// Domain  l a power of two: 1/l is exact.
/// Bound   that of the operator.
/// Kills   NC-01.
Verdict mean_pooling(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    const Run run(parts, context, Direction::forward);
    if (run.early_verdict) return *run.early_verdict;
    const Given given(parts);
    const auto bounds =
        of_operators(expected_stages(parts, run, given, context.rounding, ref::Grant::rounding,
                                     ref::ModuleStages::compression));
    Verdict all;
    for (const bool value : {false, true}) {
        const std::string name = value ? "value_blocks" : "key_blocks";
        const auto& x = given.values[value ? kValueCompress : kKeyCompress];
        const std::int64_t dim = value ? parts.shape.value_dim : parts.shape.head_dim,
                           row = parts.shape.kv_heads * dim;
        std::vector<double> mean(run.bits(name).size());
        ref::for_each_block(parts.shape.compress(dim), [&](std::int64_t j, std::int64_t first) {
            for (std::int64_t r = 0; r < parts.shape.block; ++r)
                for (std::int64_t c = 0; c < row; ++c)
                    mean[at(j * row + c)] += x[at((first + r) * row + c)];
        });
        for (double& v : mean) v /= static_cast<double>(parts.shape.block);
        join(all, verdict_within(name, run.values(name), mean, allowance(tensor_of(bounds, name)),
                                 "weights 1/l against the mean of l tokens",
                                 run.place(name)));
    }
    return all;
}

void with_means(Spec& spec, Random&) { spec.numbers[kWeights] = static_cast<int>(Weights::mean); }

}  // namespace

void add_handover(std::vector<Property>& list) {
    list.push_back({"lists_handed_on",
                    "the lists of one operator are right as arguments of the next",
                    lists_handed_on});
    list.push_back({"statistics_order",
                    "NsaCompressAttention's statistics are those of FlashAttentionScore in memory",
                    statistics_order});
    list.push_back({"compress_adjoint", "<dX, X> = <dW, W> = <dY, Y> for both compressions",
                    compress_adjoint});
    list.push_back({"mean_pooling", "weights 1/l give the mean of l tokens", mean_pooling,
                    with_means, [](const Spec& spec) {
                        return spec.numbers[kWeights] == static_cast<int>(Weights::mean) &&
                               std::has_single_bit(
                                   static_cast<std::uint64_t>(spec.numbers[kBlock]));
                    }});
}

}  // namespace attncheck::properties::nsa_module
