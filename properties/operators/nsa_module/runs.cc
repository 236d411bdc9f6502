#include "properties/operators/nsa_module/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "properties/operators/nsa_compress_attention/problem.h"

namespace attncheck::properties::nsa_module {
namespace {

using Lengths = std::vector<std::int64_t>;

/// A dense tensor in memory, as the module takes it.
class Memory {
public:
    Memory(const Tensor& tensor) : size_(tensor.element_size()), present_(tensor.present) {
        bytes_.resize((tensor.elements() + 1) * size_);
        for (std::size_t k = 0; k < tensor.bits.size(); ++k)
            std::memcpy(bytes_.data() + k * size_, &tensor.bits[k], size_);
        view_.dtype = tensor.dtype;
        view_.rank = tensor.rank;
        std::ranges::copy(tensor.shape, view_.shape);
        std::ranges::copy(tensor.strides, view_.strides);
    }
    attncheck_tensor view() {
        attncheck_tensor out = view_;
        out.data = present_ ? bytes_.data() : nullptr;
        return out;
    }
    std::vector<std::uint32_t> bits() const {
        std::vector<std::uint32_t> out(bytes_.size() / size_ - 1);
        for (std::size_t k = 0; k < out.size(); ++k)
            std::memcpy(&out[k], bytes_.data() + k * size_, size_);
        return out;
    }

private:
    std::size_t size_;
    bool present_;
    std::vector<std::byte> bytes_;
    attncheck_tensor view_{};
};

Lengths lengths_of(const Call& call, std::string_view name) {
    Lengths out = call.array(name).values;
    for (std::size_t b = out.size(); b-- > 1;) out[b] -= out[b - 1];
    return out;
}

/// The first rows of every padded sequence, as the module's rows have them.
std::vector<std::uint32_t> unpadded(const std::vector<std::uint32_t>& rows, const Lengths& from,
                                    const Lengths& to, std::size_t elements) {
    std::int64_t total = 0;
    for (const auto length : from) total += length;
    const std::int64_t width = total == 0 ? 0 : std::ssize(rows) / total;
    std::vector<std::uint32_t> out(elements);
    auto source = rows.begin();
    auto target = out.begin();
    for (std::size_t b = 0; b < from.size(); ++b) {
        std::copy_n(source, to[b] * width, target);
        source += from[b] * width;
        target += to[b] * width;
    }
    return out;
}

/// Lane 0 of the statistics by row and head; `physical`: they lie as [N1,S] per sequence.
std::vector<std::uint32_t> statistics(const Parts& parts, const std::vector<std::uint32_t>& lanes,
                                      bool physical) {
    const auto order = physical_rows(parts);
    std::vector<std::uint32_t> out(order.size());
    for (std::size_t p = 0; p < order.size(); ++p)
        out[physical ? static_cast<std::size_t>(order[p]) : p] =
            lanes[p * static_cast<std::size_t>(kLanes)];
    return out;
}

/// 49-53 of nsa.md 11: lists are sequence-relative blocks that exist, each once.
std::optional<Verdict> fault_of_lists(const Run& run, const Parts& parts) {
    const std::int64_t count = parts.shape.select_count;
    const auto starts = row_starts(parts.shape.lengths);
    for (std::size_t b = 0; b + 1 < starts.size(); ++b) {
        const std::int64_t length = parts.shape.lengths[b],
                           blocks = std::max(count, (length + parts.shape.select_block - 1) /
                                                        parts.shape.select_block);
        const std::int64_t width = parts.shape.kv_heads * count;
        for (std::int64_t k = starts[b] * width; k < starts[b + 1] * width; ++k) {
            const std::int64_t index = run.topk[static_cast<std::size_t>(k)];
            const auto first = run.topk.begin() + k / count * count;
            const bool repeated =
                std::find(first, run.topk.begin() + k, index) != run.topk.begin() + k;
            if (index >= 0 && index < blocks && !repeated) continue;
            return Verdict::fail(
                "topk_indices cannot be used",
                fmt::format("{}  topk_indices is {}, {}",
                            run.place(kLists)(static_cast<std::size_t>(k)), index,
                            repeated ? "which its list has twice"
                                     : fmt::format("blocks are 0..{}", blocks - 1)));
        }
    }
    return std::nullopt;
}

}  // namespace

Composition& composition() {
    static Composition chosen;
    return chosen;
}

Run::Run(const Parts& of, PropertyContext& context, Direction direction)
    : CallRun(spec_of(of, run_description())), parts(of) {
    call = make_call(parts, run_description());
    const auto end = call.tensors.begin() + std::ssize(description().tensors);
    std::vector<Memory> memory(call.tensors.begin(), end);
    const auto view = [&](std::size_t k) { return memory[k].view(); };
    const auto ends = cumulative(parts.shape.lengths);
    attncheck_nsa_module_args args{};
    attncheck_nsa_module_grad_args grads{};
    attncheck_tensor* const inputs[kInputs] = {
        &args.query,        &args.key_compress, &args.value_compress,     &args.key_select,
        &args.value_select, &args.key_window,   &args.value_window,       &args.key_weight,
        &args.value_weight, &args.gate_logits,  &grads.attention_out_grad};
    attncheck_tensor* const outputs[kInputs] = {
        &args.attention_out,        &grads.query_grad,        &grads.key_compress_grad,
        &grads.value_compress_grad, &grads.key_select_grad,   &grads.value_select_grad,
        &grads.key_window_grad,     &grads.value_window_grad, &grads.key_weight_grad,
        &grads.value_weight_grad,   &grads.gate_logits_grad};
    for (std::size_t k = 0; k < kInputs; ++k) {
        *inputs[k] = view(k);
        *outputs[k] = view(kInputs + k);
    }
    args.actual_seq_len = {ends.data(), std::ssize(ends)};
    args.scale_value = parts.scale;
    args.compress_block_size = parts.shape.block;
    args.compress_stride = parts.shape.stride;
    args.select_block_size = parts.shape.select_block;
    args.select_block_count = parts.shape.select_count;
    args.window_size = parts.shape.window;
    args.force_blocks = parts.forced;

    ModuleOperators operators(context.candidate);
    const attncheck_nsa_operators table = operators.table();
    attncheck_nsa_module_state* state = nullptr;
    int status = composition().forward(&table, &args, &state);
    if (status == ATTNCHECK_OK && direction == Direction::both)
        status = composition().backward(&table, &args, state, &grads);
    attncheck_nsa_module_free(state);
    early_verdict = operators.early_verdict();
    if (status != ATTNCHECK_OK && !early_verdict)
        early_verdict = Verdict::fail("the module failed", attncheck_nsa_module_message());
    if (early_verdict) return;
    for (const Memory& tensor : memory) result.outputs.push_back(tensor.bits());
    for (std::size_t k = memory.size(); k < call.tensors.size(); ++k)
        result.outputs.emplace_back(call.tensors[k].elements());
    records = operators.take_records();
    if (!records.empty()) gather();
    for (const std::uint32_t index : bits(kLists))
        topk.push_back(static_cast<std::int32_t>(index));
    early_verdict = fault_of_lists(*this, parts);
    if (early_verdict) return;
    observed.key_blocks = values("key_blocks");
    observed.value_blocks = values("value_blocks");
    for (std::size_t b = 0; b < ref::kModuleBranches; ++b) {
        const std::string branch = kBranchNames[b];
        observed.branch[b].output = values(branch + "_out");
        observed.branch[b].row_max = values(branch + "_max");
        observed.branch[b].row_sum = values(branch + "_sum");
    }
    if (direction == Direction::forward) return;
    observed.key_blocks_grad = values("key_blocks_grad");
    observed.value_blocks_grad = values("value_blocks_grad");
    for (auto& branch : observed.branch)
        if (branch.output_grad.empty()) branch.output_grad.assign(branch.output.size(), 0);
}

std::vector<std::string> Run::outputs() const { return {kLists, "attention_out"}; }

ExpectedOutputs Run::expected(const ref::RoundingClass& rounding, ref::Grant) const {
    return of_module(parts, *this, Exact(parts, *this), rounding);
}

bool Run::is_list(const std::string& output) const { return output == kLists; }

Verdict Run::verdict_on_open_lists(const LawRun& other, const PropertyContext& context,
                                   const std::string& output, const std::string&,
                                   const OutputFilter&) const {
    if (bits(output) == other.bits(output)) return {};
    Verdict all;
    for (const LawRun* run : {static_cast<const LawRun*>(this), &other})
        join(all, verdict_on_selection(static_cast<const Run&>(*run), context.rounding));
    return all;
}

const OperatorRecord* Run::find(ModuleOp op, int occurrence) const {
    for (const OperatorRecord& record : records)
        if (record.op == op && occurrence-- == 0) return &record;
    return nullptr;
}

void Run::gather() {
    const ref::NsaModuleShape& s = parts.shape;
    const Lengths& tokens = s.lengths;
    Lengths blocks;
    for (const auto length : tokens) blocks.push_back(s.compress(1).blocks_of(length));
    const auto put = [&](const std::string& name, std::vector<std::uint32_t> bits) {
        result.outputs[tensor_index(call, name)] = std::move(bits);
    };
    const auto put_rows = [&](const std::string& name, const OperatorRecord& record,
                              std::string_view tensor, const Lengths& from, const Lengths& to) {
        put(name, unpadded(record.output(tensor), from, to, call.tensor(name).elements()));
    };
    const auto put_branch = [&](const std::string& name, const OperatorRecord& record,
                                bool physical) {
        put(name + "_out", record.output("attention_out"));
        put(name + "_max", statistics(parts, record.output("softmax_max"), physical));
        put(name + "_sum", statistics(parts, record.output("softmax_sum"), physical));
    };
    const OperatorRecord& attention = *find(ModuleOp::compress_attention);
    const Lengths padded_blocks = lengths_of(attention.call, "actual_cmp_seq_kv_len");
    put_rows("key_blocks", *find(ModuleOp::compress, 0), "output", padded_blocks, blocks);
    put_rows("value_blocks", *find(ModuleOp::compress, 1), "output", padded_blocks, blocks);
    put(kLists, attention.output(kLists));
    put_branch("compress", attention, true);
    put_branch("select", *find(ModuleOp::selected_attention), false);
    put_branch("window", *find(ModuleOp::flash_attention), true);

    const OperatorRecord* selected = find(ModuleOp::selected_attention_grad);
    if (!selected) return;
    const OperatorRecord *compressed = find(ModuleOp::flash_attention_grad, 0),
                         *window = find(ModuleOp::flash_attention_grad, 1);
    const auto put_grads = [&](int branch, const OperatorRecord& record, const std::string& key,
                               const std::string& value, const Lengths& to,
                               std::string_view output_grad) {
        const Lengths from = lengths_of(record.call, "actual_seq_kv_len");
        put(std::string(kBranchNames[static_cast<std::size_t>(branch)]) + "_query_grad",
            record.output("dq"));
        put_rows(key, record, "dk", from, to);
        put_rows(value, record, "dv", from, to);
        observed.branch[static_cast<std::size_t>(branch)].output_grad =
            record.call.tensor(output_grad).values();
    };
    put_grads(0, *compressed, "key_blocks_grad", "value_blocks_grad", blocks, "dy");
    put_grads(1, *selected, "select_key_grad", "select_value_grad", tokens, "attention_out_grad");
    put_grads(2, *window, "window_key_grad", "window_value_grad", tokens, "dy");
    for (const int value : {0, 1}) {
        const OperatorRecord& record = *find(ModuleOp::compress_grad, value);
        put_rows(value ? "compress_value_grad" : "compress_key_grad", record, "input_grad",
                 lengths_of(record.call, "act_seq_len"), tokens);
    }
}

Given::Given(const Parts& parts) {
    for (int input = 0; input < kInputs; ++input)
        values[static_cast<std::size_t>(input)] = parts.values(input);
    in = module_inputs(parts, values);
}

Exact::Exact(const Parts& parts, const Run& run)
    : Given(parts), forward(ref::nsa_module<double>(parts.shape, in, run.topk)) {
    if (!run.observed.branch[0].output_grad.empty())
        grad = ref::nsa_module_grad(parts.shape, in, run.topk, forward, values[kOutputGrad]);
}

ref::ExpectedModuleStages expected_stages(const Parts& parts, const Run& run, const Given& given,
                                          const ref::RoundingClass& rounding, ref::Grant grant,
                                          ref::ModuleStages wanted) {
    return ref::expected_module_stages(parts.shape, given.in, run.topk, run.observed,
                                       {parts.dtype, rounding}, grant, wanted);
}

ExpectedOutputs of_operators(const ref::ExpectedModuleStages& stages) {
    ExpectedOutputs out;
    const auto branch_tensors = [&](std::size_t b) {
        const std::string branch = kBranchNames[b];
        out.emplace_back(branch + "_max", stages.branch[b].row_max);
        out.emplace_back(branch + "_sum", stages.branch[b].row_sum);
        out.emplace_back(branch + "_out", stages.branch[b].output);
    };
    if (stages.wanted == ref::ModuleStages::compress_branch) {
        branch_tensors(0);
        return out;
    }
    const bool all = stages.wanted == ref::ModuleStages::all;
    out.emplace_back("key_blocks", stages.key_blocks);
    out.emplace_back("value_blocks", stages.value_blocks);
    for (std::size_t b = 0; all && b < ref::kModuleBranches; ++b) branch_tensors(b);
    if (!stages.has_grad) return out;
    for (std::size_t b = 0; all && b < ref::kModuleBranches; ++b) {
        const std::string branch = kBranchNames[b];
        out.emplace_back(branch + "_query_grad", stages.grad[b].query_grad);
        out.emplace_back(b == 0 ? "key_blocks_grad" : branch + "_key_grad",
                         stages.grad[b].key_grad);
        out.emplace_back(b == 0 ? "value_blocks_grad" : branch + "_value_grad",
                         stages.grad[b].value_grad);
    }
    out.emplace_back("compress_key_grad", stages.key.input_grad);
    out.emplace_back("compress_value_grad", stages.value.input_grad);
    out.emplace_back("key_weight_grad", stages.key.weight_grad);
    out.emplace_back("value_weight_grad", stages.value.weight_grad);
    return out;
}

ExpectedOutputs of_module(const Parts& parts, const Run& run, const Exact& exact,
                          const ref::ExpectedModuleStages& stages) {
    const bool both = !run.observed.branch[0].output_grad.empty();
    ref::ExpectedNsaModule whole = ref::expected_nsa_module(
        parts.shape, exact.in, run.topk,
        both ? std::span<const double>(exact.values[kOutputGrad]) : std::span<const double>(),
        parts.tied, exact.forward, exact.grad, stages, parts.dtype);
    ExpectedOutputs out;
    out.emplace_back("attention_out", std::move(whole.output));
    if (whole.query_grad.size() == 0) return out;
    out.emplace_back("query_grad", std::move(whole.query_grad));
    for (int b = 0; b < (parts.tied ? 1 : ref::kModuleBranches); ++b) {
        const auto branch = static_cast<std::size_t>(b);
        out.emplace_back(std::string("key_") + kBranchNames[branch] + "_grad",
                         std::move(whole.key_grad[branch]));
        out.emplace_back(std::string("value_") + kBranchNames[branch] + "_grad",
                         std::move(whole.value_grad[branch]));
    }
    out.emplace_back("key_weight_grad", std::move(whole.key_weight_grad));
    out.emplace_back("value_weight_grad", std::move(whole.value_weight_grad));
    out.emplace_back("gate_logits_grad", std::move(whole.gate_logits_grad));
    return out;
}

ExpectedOutputs of_module(const Parts& parts, const Run& run, const Exact& exact,
                          const ref::RoundingClass& rounding) {
    return of_module(parts, run, exact, expected_stages(parts, run, exact, rounding));
}

std::vector<std::int64_t> physical_rows(const Parts& parts) {
    ref::CompressAttentionShape shape;
    shape.query_lengths = parts.shape.lengths;
    shape.total_queries = parts.shape.tokens;
    shape.query_heads = parts.shape.query_heads;
    return ref::compress_statistics_order(shape);
}

Verdict verdict_on_selection(const Run& run, const ref::RoundingClass& rounding, ref::Grant grant) {
    const OperatorRecord* record = run.find(ModuleOp::compress_attention);
    if (!record) return {};
    const AttentionProblem problem = compress_attention::problem_of(
        compress_attention::parts_of_call(record->call));
    return compress_attention::verdict_on_lists(problem, run.topk, rounding, grant);
}

std::vector<std::string> gradient_names(const Parts& parts) {
    std::vector<std::string> out;
    for (int input = 0; input < kOutputGrad; ++input)
        if (!parts.tied || input < kKeySelect || input > kValueWindow)
            out.push_back(gradient_name(input));
    return out;
}

}  // namespace attncheck::properties::nsa_module
