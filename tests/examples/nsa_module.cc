// Native sparse attention forward and backward in a page: learns the gates, the pooling weights and
// the query of one attention layer so that its output comes close to a target, by plain gradient
// descent. Link with libattncheck_builtin, or fill the table with the operators of your own
// library.
#include <attncheck/nsa_module.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <random>
#include <vector>

/// A dense tensor of 32-bit words, the upper half of which is a bfloat16: strides of two.
struct Tensor {
    std::vector<float> values;
    attncheck_tensor view{};

    Tensor(attncheck_dtype dtype, std::initializer_list<int64_t> shape, double spread = 0) {
        static std::mt19937 random(1);
        std::normal_distribution<float> normal(0, 1);
        std::size_t count = 1;
        for (int64_t extent : shape) view.shape[view.rank++] = extent, count *= std::size_t(extent);
        values.resize(count);
        for (float& value : values) value = spread > 0 ? float(spread) * normal(random) : 0;
        const bool half = dtype == ATTNCHECK_BFLOAT16;
        view.data = reinterpret_cast<char*>(values.data()) + (half ? 2 : 0);  // little-endian
        view.dtype = dtype;
        int64_t pitch = half ? 2 : 1;
        for (int dim = view.rank; dim-- > 0; pitch *= view.shape[dim]) view.strides[dim] = pitch;
    }
    void descend(const Tensor& gradient, float rate) {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] -= rate * gradient.values[i];
    }
};

static void require(int status) {
    if (status == ATTNCHECK_OK) return;
    std::fprintf(stderr, "%s\n", attncheck_nsa_module_message());
    std::exit(1);
}

int main() {
    const attncheck_nsa_operators operators = {attncheck_nsa_compress,
                                               attncheck_nsa_compress_attention,
                                               attncheck_nsa_selected_attention,
                                               attncheck_flash_attention_score,
                                               attncheck_nsa_compress_grad,
                                               attncheck_nsa_selected_attention_grad,
                                               attncheck_flash_attention_score_grad,
                                               nullptr,
                                               nullptr};
    const int64_t tokens = 150, heads = 4, kv_heads = 2, dim = 128, block = 32;
    const int64_t ends[] = {83, 150};  // two sequences, neither a multiple of anything
    const attncheck_dtype bf16 = ATTNCHECK_BFLOAT16, fp32 = ATTNCHECK_FLOAT32;
    Tensor query(bf16, {tokens, heads, dim}, 1), key(bf16, {tokens, kv_heads, dim}, 1),
        value(bf16, {tokens, kv_heads, dim}, 1), key_weight(bf16, {block, kv_heads}, 0.2),
        value_weight(bf16, {block, kv_heads}, 0.2), gates(fp32, {tokens, heads, 3}, 1),
        out(bf16, {tokens, heads, dim}), target(bf16, {tokens, heads, dim}, 0.3);
    Tensor query_grad(bf16, {tokens, heads, dim}), key_grad(bf16, {tokens, kv_heads, dim}),
        value_grad(bf16, {tokens, kv_heads, dim}), key_weight_grad(bf16, {block, kv_heads}),
        value_weight_grad(bf16, {block, kv_heads}), gates_grad(fp32, {tokens, heads, 3}),
        out_grad(bf16, {tokens, heads, dim});

    attncheck_nsa_module_args args{};  // key and value of the other two branches absent: tied
    args.query = query.view;
    args.key_compress = key.view, args.value_compress = value.view;
    args.key_weight = key_weight.view, args.value_weight = value_weight.view;
    args.gate_logits = gates.view;
    args.actual_seq_len = {ends, 2};
    args.scale_value = 1 / std::sqrt(double(dim));
    args.compress_block_size = block, args.compress_stride = 16;
    args.select_block_size = 32, args.select_block_count = 2, args.window_size = 40;
    args.force_blocks = 1;
    args.attention_out = out.view;
    attncheck_nsa_module_grad_args grads{};
    grads.attention_out_grad = out_grad.view, grads.query_grad = query_grad.view;
    grads.key_compress_grad = key_grad.view, grads.value_compress_grad = value_grad.view;
    grads.key_weight_grad = key_weight_grad.view, grads.value_weight_grad = value_weight_grad.view;
    grads.gate_logits_grad = gates_grad.view;

    double first = 0, loss = 0;
    for (int step = 0; step <= 20; ++step) {
        attncheck_nsa_module_state* state = nullptr;
        require(attncheck_nsa_module(&operators, &args, &state));
        loss = 0;
        for (std::size_t i = 0; i < out.values.size(); ++i) {
            out_grad.values[i] = out.values[i] - target.values[i];
            loss += 0.5 * out_grad.values[i] * out_grad.values[i];
        }
        require(attncheck_nsa_module_grad(&operators, &args, state, &grads));
        attncheck_nsa_module_free(state);
        if (step == 0) first = loss;
        if (step % 5 == 0) std::printf("step %2d  loss %.2f\n", step, loss);
        gates.descend(gates_grad, 0.05f);
        query.descend(query_grad, 0.05f);
        key_weight.descend(key_weight_grad, 1e-4f);
        value_weight.descend(value_weight_grad, 1e-4f);
    }
    return loss < 0.8 * first ? 0 : 1;  // a wrong sign or a lost factor does not get there
}
