// The backward of the NSA module: gates, the three branches, the two compressions, and the sums of
// what several of them say about one tensor.
#include <limits>

#include "impl/operators/nsa_module/state.h"

namespace attncheck::impl::module {

/// dO_branch = g dO, and dz = g (1 - g) <dO, O_branch>.
std::array<Array, kBranches> State::gate_gradients(
    const attncheck_nsa_module_args& args, const attncheck_nsa_module_grad_args& grads) const {
    std::array<Array, kBranches> branch_grads;
    const Elements dy(grads.attention_out_grad), dz(grads.gate_logits_grad);
    for (int k = 0; k < kBranches; ++k) {
        branch_grads[k] = Array(plan_.dtype, {plan_.tokens, plan_.query_heads, plan_.value_dim});
        const Elements out(result_[k].out.tensor()), grad(branch_grads[k].tensor());
        for_each_query([&](std::size_t b, std::int64_t s, std::int64_t t, std::int64_t h) {
            const double g = gate(args, k, b, s, h);
            double dot = 0;
            for (std::int64_t c = 0; c < plan_.value_dim && g != 0; ++c) {
                const double dout = dy.get(t, h, c);
                grad.set(t, h, c, g * dout);
                dot += dout * out.get(t, h, c);
            }
            if (g != 0) dz.set(t, h, k, g * (1 - g) * dot);
        });
    }
    return branch_grads;
}

attncheck_flash_attention_score_grad_args State::flash_grad_args(
    const attncheck_nsa_module_args& args, Branch branch, const Array& dy,
    const AttentionGrads& out) const {
    attncheck_flash_attention_score_grad_args a{};
    a.query = args.query;
    a.dy = dy.tensor();
    a.softmax_max = result_[branch].row_max.tensor();
    a.softmax_sum = result_[branch].row_sum.tensor();
    a.attention_in = result_[branch].out.tensor();
    a.actual_seq_q_len = plan_.sequence.array();
    a.scale_value = args.scale_value;
    a.keep_prob = 1;
    a.head_num = plan_.query_heads;
    a.input_layout = kLayout;
    a.pse_type = 1;
    a.softmax_in_layout = "";
    a.dq = out.query.tensor();
    a.dk = out.key.tensor();
    a.dv = out.value.tensor();
    return a;
}

State::AttentionGrads State::compress_attention_grad(const attncheck_nsa_operators& operators,
                                                     const attncheck_nsa_module_args& args,
                                                     const Array& dy) const {
    AttentionGrads out(plan_, plan_.compressed.total());
    auto a = flash_grad_args(args, kCompress, dy, out);
    a.key = key_blocks_.tensor();
    a.value = value_blocks_.tensor();
    a.atten_mask = compress_mask_.tensor();
    a.actual_seq_kv_len = plan_.compressed.array();
    a.pre_tokens = a.next_tokens = std::numeric_limits<std::int32_t>::max();
    a.sparse_mode = 1;
    call(operators, "flash_attention_score_grad", operators.flash_attention_score_grad, a);
    return out;
}

State::AttentionGrads State::selected_attention_grad(const attncheck_nsa_operators& operators,
                                                     const attncheck_nsa_module_args& args,
                                                     const Array& dy) const {
    AttentionGrads out(plan_, plan_.padded.total());
    attncheck_nsa_selected_attention_grad_args a{};
    a.query = args.query;
    a.key = select_key_.tensor();
    a.value = select_value_.tensor();
    a.attention_out = result_[kSelect].out.tensor();
    a.attention_out_grad = dy.tensor();
    a.softmax_max = result_[kSelect].row_max.tensor();
    a.softmax_sum = result_[kSelect].row_sum.tensor();
    a.topk_indices = blocks_.tensor();
    a.actual_seq_q_len = plan_.sequence.array();
    a.actual_seq_kv_len = plan_.padded.array();
    a.atten_mask = causal_mask_.tensor();
    a.scale_value = args.scale_value;
    a.selected_block_size = plan_.select_block;
    a.selected_block_count = plan_.select_count;
    a.head_num = plan_.query_heads;
    a.input_layout = kLayout;
    a.sparse_mode = 2;
    a.dq = out.query.tensor();
    a.dk = out.key.tensor();
    a.dv = out.value.tensor();
    call(operators, "nsa_selected_attention_grad", operators.nsa_selected_attention_grad, a);
    return out;
}

State::AttentionGrads State::window_grad(const attncheck_nsa_operators& operators,
                                         const attncheck_nsa_module_args& args,
                                         const Array& dy) const {
    AttentionGrads out(plan_, plan_.tokens);
    auto a = flash_grad_args(args, kWindow, dy, out);
    a.key = key_of(args, kWindow);
    a.value = value_of(args, kWindow);
    a.atten_mask = band_mask().tensor();
    a.actual_seq_kv_len = plan_.sequence.array();
    a.pre_tokens = plan_.window - 1;
    a.sparse_mode = 4;
    call(operators, "flash_attention_score_grad", operators.flash_attention_score_grad, a);
    return out;
}

Array State::compress_grad(const attncheck_nsa_operators& operators, const attncheck_tensor& tokens,
                           const attncheck_tensor& weight, const Array& output_grad,
                           const attncheck_tensor& weight_grad) const {
    const Lengths lengths = plan_.grad_padded();
    const Array input = padded_rows(plan_, lengths, tokens);
    Array input_grad(plan_.dtype, {lengths.total(), tokens.shape[1], tokens.shape[2]}),
        longer(plan_.dtype, {plan_.grad_block(), plan_.kv_heads}), longer_grad = longer;
    const auto as_rows = [](attncheck_tensor tensor) {  // [l,N2] as [l,N2,1]
        tensor.rank = 3, tensor.shape[2] = 1, tensor.strides[2] = 1;
        return Elements(tensor);
    };
    for (std::int64_t r = 0; r < plan_.block; ++r)
        for (std::int64_t n = 0; n < plan_.kv_heads; ++n)
            as_rows(longer.tensor()).set(r, n, 0, as_rows(weight).get(r, n, 0));
    attncheck_nsa_compress_grad_args a{};
    a.output_grad = output_grad.tensor();
    a.input = input.tensor();
    a.weight = longer.tensor();
    a.act_seq_len = lengths.array();
    a.compress_block_size = plan_.grad_block();
    a.compress_stride = plan_.stride;
    a.layout = kLayout;
    a.input_grad = input_grad.tensor();
    a.weight_grad = longer_grad.tensor();
    call(operators, "nsa_compress_grad", operators.nsa_compress_grad, a);
    for (std::int64_t r = 0; r < plan_.block; ++r)
        for (std::int64_t n = 0; n < plan_.kv_heads; ++n)
            as_rows(weight_grad).set(r, n, 0, as_rows(longer_grad.tensor()).get(r, n, 0));
    return input_grad;
}

namespace {

/// Rows of token gradients, and where each sequence begins in them.
struct Part {
    const Array* rows;
    const Lengths* lengths;
};

/// Writes the sum of the parts to the rows of the sequences; the rows beyond stay 0.
void add_up(const Plan& plan, const std::vector<Part>& parts, const attncheck_tensor& to) {
    const Elements target(to);
    std::vector<Elements> sources;
    for (const Part& part : parts) sources.emplace_back(part.rows->tensor());
    for (std::size_t b = 0; b < plan.sequence.of.size(); ++b)
        for (std::int64_t s = 0; s < plan.sequence.of[b]; ++s)
            for (std::int64_t n = 0; n < target.extent(1); ++n)
                for (std::int64_t c = 0; c < target.extent(2); ++c) {
                    double sum = 0;
                    for (std::size_t k = 0; k < parts.size(); ++k)
                        sum += sources[k].get(parts[k].lengths->first(b) + s, n, c);
                    target.set(plan.sequence.first(b) + s, n, c, sum);
                }
}

/// All gradients become 0.
void clear(const attncheck_nsa_module_grad_args& grads) {
    for (attncheck_tensor tensor :
         {grads.query_grad, grads.key_compress_grad, grads.value_compress_grad,
          grads.key_select_grad, grads.value_select_grad, grads.key_window_grad,
          grads.value_window_grad, grads.key_weight_grad, grads.value_weight_grad,
          grads.gate_logits_grad}) {
        if (!tensor.data) continue;
        if (tensor.rank == 2) tensor.shape[2] = 1, tensor.strides[2] = 1;
        Elements(tensor).clear();
    }
}

}  // namespace

void State::backward(const attncheck_nsa_operators& operators,
                     const attncheck_nsa_module_args& args,
                     const attncheck_nsa_module_grad_args& grads) const {
    check_gradients(plan_, args, grads);
    clear(grads);
    if (plan_.sequence.total() == 0) return;
    const auto dy = gate_gradients(args, grads);
    const AttentionGrads compress = compress_attention_grad(operators, args, dy[kCompress]),
                         select = selected_attention_grad(operators, args, dy[kSelect]),
                         window = window_grad(operators, args, dy[kWindow]);
    const Array key = compress_grad(operators, args.key_compress, args.key_weight, compress.key,
                                    grads.key_weight_grad),
                value = compress_grad(operators, args.value_compress, args.value_weight,
                                      compress.value, grads.value_weight_grad);

    const Lengths from_compress = plan_.grad_padded();
    std::vector<Part> keys{{&key, &from_compress}}, values{{&value, &from_compress}};
    const auto hand_out = [&](bool tied, const AttentionGrads& branch, const Lengths& lengths,
                              const attncheck_tensor& key_grad,
                              const attncheck_tensor& value_grad) {
        if (tied) {
            keys.push_back({&branch.key, &lengths});
            values.push_back({&branch.value, &lengths});
        } else {
            add_up(plan_, {{&branch.key, &lengths}}, key_grad);
            add_up(plan_, {{&branch.value, &lengths}}, value_grad);
        }
    };
    hand_out(plan_.select_tied, select, plan_.padded, grads.key_select_grad,
             grads.value_select_grad);
    hand_out(plan_.window_tied, window, plan_.sequence, grads.key_window_grad,
             grads.value_window_grad);
    add_up(plan_, keys, grads.key_compress_grad);
    add_up(plan_, values, grads.value_compress_grad);
    add_up(plan_,
           {{&compress.query, &plan_.sequence},
            {&select.query, &plan_.sequence},
            {&window.query, &plan_.sequence}},
           grads.query_grad);
}

}  // namespace attncheck::impl::module
