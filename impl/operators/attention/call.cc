#include "impl/operators/attention/call.h"

namespace attncheck::impl {
namespace {

template <class Args>
AttentionCall common_fields(const Args& args) {
    AttentionCall call{};
    call.query = &args.query, call.key = &args.key, call.value = &args.value;
    call.bias = &args.bias, call.mask = &args.mask, call.sink = &args.sink;
    call.output = &args.out, call.lse = &args.lse;
    call.query_starts = &args.cu_seqlens_q, call.key_starts = &args.cu_seqlens_kv;
    call.kv_length = &args.kv_length;
    call.scale = args.scale, call.softcap = args.softcap;
    call.window_left = args.window_left, call.window_right = args.window_right;
    call.align = args.align;
    return call;
}

}  // namespace

AttentionCall attention_call(const attncheck_attention_args& args) { return common_fields(args); }

AttentionCall attention_call(const attncheck_attention_grad_args& args) {
    AttentionCall call = common_fields(args);
    call.output_grad = &args.dout;
    call.query_grad = &args.dq, call.key_grad = &args.dk, call.value_grad = &args.dv;
    call.bias_grad = &args.dbias, call.sink_grad = &args.dsink;
    return call;
}

FlashExtents attention_extents(const AttentionCall& call) {
    const bool packed = call.is_packed();
    const int rows = packed ? 0 : 1, heads = rows + 1, dim = rows + 2;
    return {packed ? FlashLayout::kTnd : FlashLayout::kBsnd,
            packed ? call.query_starts->size - 1 : call.query->shape[0],
            call.query->shape[rows],
            call.key->shape[rows],
            call.query->shape[heads],
            call.key->shape[heads],
            call.query->shape[dim],
            call.value->shape[dim]};
}

}  // namespace attncheck::impl
