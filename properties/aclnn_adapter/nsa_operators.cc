// The NSA operators: one vendor function each, with the members of the C struct as parameters.
#include <attncheck/candidate.h>

#include "properties/aclnn_adapter/operators.h"
#include "properties/aclnn_adapter/struct_order.h"

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
    return run_in_order(compress(), *a);
}
int attncheck_nsa_compress_grad(const attncheck_nsa_compress_grad_args* a) {
    return run_in_order(compress_grad(), *a);
}
int attncheck_nsa_selected_attention(const attncheck_nsa_selected_attention_args* a) {
    return run_in_order(selected_attention(), *a);
}
int attncheck_nsa_selected_attention_grad(const attncheck_nsa_selected_attention_grad_args* a) {
    return run_in_order(selected_attention_grad(), *a);
}
int attncheck_nsa_compress_attention(const attncheck_nsa_compress_attention_args* a) {
    return run_in_order(compress_attention(), *a);
}

}  // extern "C"
