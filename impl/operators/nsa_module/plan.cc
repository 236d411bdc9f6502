#include "impl/operators/nsa_module/plan.h"

#include <algorithm>

namespace attncheck::impl::module {
namespace {

std::string text_of(const attncheck_tensor& tensor) {
    std::string text(1, '[');
    for (int dim = 0; dim < std::clamp(tensor.rank, 0, ATTNCHECK_MAX_RANK); ++dim) {
        if (dim > 0) text += ',';
        text += std::to_string(tensor.shape[dim]);
    }
    text += ']';
    return text;
}

/// An absent required tensor is 161001, a wrong shape or dtype 161002.
void require(const char* name, const attncheck_tensor& tensor, std::int32_t dtype,
             const std::vector<std::int64_t>& shape) {
    if (!tensor.data)
        throw Failure(ATTNCHECK_ERR_NULLPTR, std::string(name) + " is absent, it is required");
    bool fits = tensor.rank == static_cast<std::int32_t>(shape.size());
    for (std::size_t dim = 0; fits && dim < shape.size(); ++dim)
        fits = tensor.shape[dim] == shape[dim];
    if (!fits) {
        attncheck_tensor wanted{};
        wanted.rank = static_cast<std::int32_t>(shape.size());
        std::copy(shape.begin(), shape.end(), wanted.shape);
        throw Failure(ATTNCHECK_ERR_INVALID, std::string(name) + " has shape " + text_of(tensor) +
                                                 ", it must be " + text_of(wanted));
    }
    if (tensor.dtype != dtype)
        throw Failure(ATTNCHECK_ERR_INVALID, std::string(name) + " has dtype " +
                                                 std::to_string(tensor.dtype) + ", it must be " +
                                                 std::to_string(dtype));
}

void require_range(const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
    if (value < low || value > high)
        throw Failure(ATTNCHECK_ERR_INVALID, std::string(name) + " is " + std::to_string(value) +
                                                 ", it must be in " + std::to_string(low) + ".." +
                                                 std::to_string(high));
}

/// Both present: false. Both absent: true, they are tied.
bool is_tied(const char* branch, const attncheck_tensor& key, const attncheck_tensor& value) {
    if ((key.data == nullptr) != (value.data == nullptr))
        throw Failure(ATTNCHECK_ERR_INVALID, std::string("of key_") + branch + " and value_" +
                                                 branch + " one is absent; both or none must be");
    return key.data == nullptr;
}

void lay_out_sequences(const attncheck_int_array& lengths, Plan& plan) {
    if (!lengths.values)
        throw Failure(ATTNCHECK_ERR_NULLPTR, "actual_seq_len is absent, it is required");
    require_range("the size of actual_seq_len", lengths.size, 1, std::int64_t{1} << 20);
    std::int64_t before = 0;
    for (std::int64_t b = 0; b < lengths.size; ++b) {
        const std::int64_t end = lengths.values[b];
        if (end < before || end > plan.tokens)
            throw Failure(ATTNCHECK_ERR_INVALID, "actual_seq_len[" + std::to_string(b) + "] is " +
                                                     std::to_string(end) + ", it must be in " +
                                                     std::to_string(before) + ".." +
                                                     std::to_string(plan.tokens));
        const std::int64_t length = end - before,
                           blocks = (length + plan.select_block - 1) / plan.select_block,
                           padded =
                               length ? plan.select_block * std::max(blocks, plan.select_count) : 0,
                           compressed = length ? (padded - plan.block) / plan.stride + 1 : 0,
                           keys = plan.select_block / plan.stride;
        plan.sequence.add(length);
        plan.padded.add(padded);
        plan.compressed.add(compressed);
        plan.selectable.add((compressed + keys - 1) / keys);
        before = end;
    }
}

}  // namespace

std::int64_t Lengths::longest() const { return of.empty() ? 0 : *std::ranges::max_element(of); }

Lengths Plan::grad_padded() const {
    if (grad_block() == block) return padded;
    Lengths longer;
    for (const std::int64_t length : padded.of) longer.add(length ? length + stride : 0);
    return longer;
}

Plan make_plan(const attncheck_nsa_module_args& args) {
    Plan plan;
    if (!args.query.data) throw Failure(ATTNCHECK_ERR_NULLPTR, "query is absent, it is required");
    if (!args.key_compress.data || !args.value_compress.data)
        throw Failure(ATTNCHECK_ERR_NULLPTR,
                      "key_compress or value_compress is absent, both are required");
    if (args.query.rank != 3 || args.key_compress.rank != 3 || args.value_compress.rank != 3)
        throw Failure(ATTNCHECK_ERR_INVALID,
                      "query, key_compress and value_compress must have rank 3, they are " +
                          text_of(args.query) + ", " + text_of(args.key_compress) + " and " +
                          text_of(args.value_compress));
    plan.dtype = args.query.dtype;
    if (plan.dtype != ATTNCHECK_FLOAT16 && plan.dtype != ATTNCHECK_BFLOAT16)
        throw Failure(ATTNCHECK_ERR_INVALID, "query has dtype " + std::to_string(plan.dtype) +
                                                 ", it must be float16 (1) or bfloat16 (27)");
    const std::int64_t* const query = args.query.shape;
    plan.tokens = query[0], plan.query_heads = query[1], plan.head_dim = query[2];
    plan.kv_heads = args.key_compress.shape[1], plan.value_dim = args.value_compress.shape[2];
    plan.block = args.compress_block_size, plan.stride = args.compress_stride;
    plan.select_block = args.select_block_size, plan.select_count = args.select_block_count;
    plan.window = args.window_size;
    require_range("the number of tokens", plan.tokens, 1, std::int64_t{1} << 21);
    require_range("the number of key heads", plan.kv_heads, 1, 128);
    if (plan.query_heads < 1 || plan.query_heads % plan.kv_heads != 0)
        throw Failure(ATTNCHECK_ERR_INVALID, "query has " + std::to_string(plan.query_heads) +
                                                 " heads, they must be a multiple of the " +
                                                 std::to_string(plan.kv_heads) + " key heads");
    require_range("compress_stride", plan.stride, 16, 128);
    require_range("compress_block_size", plan.block, plan.stride, 128);
    require_range("select_block_size", plan.select_block, plan.block, 128);
    require_range("select_block_count", plan.select_count, 1, 32);
    require_range("window_size", plan.window, 1, std::int64_t{1} << 31);
    require_range("force_blocks", args.force_blocks, 0, 1);
    if (plan.select_block % plan.stride != 0)
        throw Failure(ATTNCHECK_ERR_INVALID, "select_block_size is " +
                                                 std::to_string(plan.select_block) +
                                                 ", it must be a multiple of compress_stride " +
                                                 std::to_string(plan.stride));
    const std::vector<std::int64_t> key{plan.tokens, plan.kv_heads, plan.head_dim},
        value{plan.tokens, plan.kv_heads, plan.value_dim}, weight{plan.block, plan.kv_heads};
    require("key_compress", args.key_compress, plan.dtype, key);
    require("value_compress", args.value_compress, plan.dtype, value);
    plan.select_tied = is_tied("select", args.key_select, args.value_select);
    plan.window_tied = is_tied("window", args.key_window, args.value_window);
    if (!plan.select_tied) {
        require("key_select", args.key_select, plan.dtype, key);
        require("value_select", args.value_select, plan.dtype, value);
    }
    if (!plan.window_tied) {
        require("key_window", args.key_window, plan.dtype, key);
        require("value_window", args.value_window, plan.dtype, value);
    }
    require("key_weight", args.key_weight, plan.dtype, weight);
    require("value_weight", args.value_weight, plan.dtype, weight);
    require("gate_logits", args.gate_logits, ATTNCHECK_FLOAT32, {plan.tokens, plan.query_heads, 3});
    require("attention_out", args.attention_out, plan.dtype,
            {plan.tokens, plan.query_heads, plan.value_dim});
    lay_out_sequences(args.actual_seq_len, plan);
    return plan;
}

void check_gradients(const Plan& plan, const attncheck_nsa_module_args& args,
                     const attncheck_nsa_module_grad_args& grads) {
    const auto like = [&](const char* name, const attncheck_tensor& grad,
                          const attncheck_tensor& of) {
        if (!of.data && grad.data)
            throw Failure(ATTNCHECK_ERR_INVALID,
                          std::string(name) + " is present, but its tensor is tied");
        if (of.data) require(name, grad, of.dtype, {of.shape, of.shape + of.rank});
    };
    require("attention_out_grad", grads.attention_out_grad, plan.dtype,
            {plan.tokens, plan.query_heads, plan.value_dim});
    like("query_grad", grads.query_grad, args.query);
    like("key_compress_grad", grads.key_compress_grad, args.key_compress);
    like("value_compress_grad", grads.value_compress_grad, args.value_compress);
    like("key_select_grad", grads.key_select_grad, args.key_select);
    like("value_select_grad", grads.value_select_grad, args.value_select);
    like("key_window_grad", grads.key_window_grad, args.key_window);
    like("value_window_grad", grads.value_window_grad, args.value_window);
    like("key_weight_grad", grads.key_weight_grad, args.key_weight);
    like("value_weight_grad", grads.value_weight_grad, args.value_weight);
    like("gate_logits_grad", grads.gate_logits_grad, args.gate_logits);
}

}  // namespace attncheck::impl::module
