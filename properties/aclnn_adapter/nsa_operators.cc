// The NSA operators: one vendor function each.
#include <attncheck/candidate.h>

#include "properties/aclnn_adapter/device_call.h"
#include "properties/aclnn_adapter/operators.h"

namespace attncheck::aclnn_adapter {
namespace {

const TwoPhases<NsaCompress>& compress() {
    static const TwoPhases<NsaCompress> api("aclnnNsaCompress");
    return api;
}
const TwoPhases<NsaCompressGrad>& compress_grad() {
    static const TwoPhases<NsaCompressGrad> api("aclnnNsaCompressGrad");
    return api;
}
const TwoPhases<NsaSelectedAttention>& selected_attention() {
    static const TwoPhases<NsaSelectedAttention> api("aclnnNsaSelectedAttention");
    return api;
}
const TwoPhases<NsaSelectedAttentionGrad>& selected_attention_grad() {
    static const TwoPhases<NsaSelectedAttentionGrad> api("aclnnNsaSelectedAttentionGrad");
    return api;
}
const TwoPhases<NsaCompressAttention>& compress_attention() {
    static const TwoPhases<NsaCompressAttention> api("aclnnNsaCompressAttention");
    return api;
}

const VendorOperator kOperators[] = {
    {"nsa_compress", [] { return bool(compress()); }},
    {"nsa_compress_grad", [] { return bool(compress_grad()); }},
    {"nsa_selected_attention", [] { return bool(selected_attention()); }},
    {"nsa_selected_attention_grad", [] { return bool(selected_attention_grad()); }},
    {"nsa_compress_attention", [] { return bool(compress_attention()); }}};

}  // namespace
}  // namespace attncheck::aclnn_adapter

using namespace attncheck::aclnn_adapter;

extern "C" {

int attncheck_nsa_compress(const attncheck_nsa_compress_args* a) {
    if (!compress()) return ATTNCHECK_DECLINED;
    DeviceCall call;
    const Tensor input = call.tensor(a->input), weight = call.tensor(a->weight);
    return call.run(compress(), input, weight, call.array(a->act_seq_len), call.text(a->layout),
                    a->compress_block_size, a->compress_stride, a->act_seq_len_type,
                    const_cast<aclTensor*>(call.tensor(a->output)));
}

int attncheck_nsa_compress_grad(const attncheck_nsa_compress_grad_args* a) {
    if (!compress_grad()) return ATTNCHECK_DECLINED;
    DeviceCall call;
    return call.run(compress_grad(), call.tensor(a->output_grad), call.tensor(a->input),
                    call.tensor(a->weight), call.array(a->act_seq_len), a->compress_block_size,
                    a->compress_stride, a->act_seq_len_type, call.text(a->layout),
                    call.tensor(a->input_grad), call.tensor(a->weight_grad));
}

int attncheck_nsa_selected_attention(const attncheck_nsa_selected_attention_args* a) {
    if (!selected_attention()) return ATTNCHECK_DECLINED;
    DeviceCall call;
    return call.run(selected_attention(), call.tensor(a->query), call.tensor(a->key),
                    call.tensor(a->value), call.tensor(a->topk_indices), call.tensor(a->atten_mask),
                    call.array(a->actual_seq_q_len), call.array(a->actual_seq_kv_len),
                    a->scale_value, a->head_num, call.text(a->input_layout), a->sparse_mode,
                    a->selected_block_size, a->selected_block_count, call.tensor(a->softmax_max),
                    call.tensor(a->softmax_sum), call.tensor(a->attention_out));
}

int attncheck_nsa_selected_attention_grad(const attncheck_nsa_selected_attention_grad_args* a) {
    if (!selected_attention_grad()) return ATTNCHECK_DECLINED;
    DeviceCall call;
    return call.run(selected_attention_grad(), call.tensor(a->query), call.tensor(a->key),
                    call.tensor(a->value), call.tensor(a->attention_out),
                    call.tensor(a->attention_out_grad), call.tensor(a->softmax_max),
                    call.tensor(a->softmax_sum), call.tensor(a->topk_indices),
                    call.array(a->actual_seq_q_len), call.array(a->actual_seq_kv_len),
                    call.tensor(a->atten_mask), a->scale_value, a->selected_block_size,
                    a->selected_block_count, a->head_num, call.text(a->input_layout),
                    a->sparse_mode, call.tensor(a->dq), call.tensor(a->dk), call.tensor(a->dv));
}

int attncheck_nsa_compress_attention(const attncheck_nsa_compress_attention_args* a) {
    if (!compress_attention()) return ATTNCHECK_DECLINED;
    DeviceCall call;
    return call.run(compress_attention(), call.tensor(a->query), call.tensor(a->key),
                    call.tensor(a->value), call.tensor(a->atten_mask), call.tensor(a->topk_mask),
                    call.array(a->actual_seq_q_len), call.array(a->actual_cmp_seq_kv_len),
                    call.array(a->actual_sel_seq_kv_len), a->scale_value, a->head_num,
                    call.text(a->input_layout), a->sparse_mode, a->compress_block_size,
                    a->compress_stride, a->select_block_size, a->select_block_count,
                    call.tensor(a->softmax_max), call.tensor(a->softmax_sum),
                    call.tensor(a->attention_out), call.tensor(a->topk_indices));
}

}  // extern "C"
