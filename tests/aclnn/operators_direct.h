// The candidate interface under one name.
#ifndef ATTNCHECK_TESTS_ACLNN_OPERATORS_DIRECT_H
#define ATTNCHECK_TESTS_ACLNN_OPERATORS_DIRECT_H

#include "attncheck/candidate.h"

namespace attncheck::aclnn {

inline int direct(const attncheck_nsa_compress_args& args) { return attncheck_nsa_compress(&args); }
inline int direct(const attncheck_nsa_compress_grad_args& args) {
    return attncheck_nsa_compress_grad(&args);
}
inline int direct(const attncheck_nsa_selected_attention_args& args) {
    return attncheck_nsa_selected_attention(&args);
}
inline int direct(const attncheck_nsa_selected_attention_grad_args& args) {
    return attncheck_nsa_selected_attention_grad(&args);
}
inline int direct(const attncheck_nsa_compress_attention_args& args) {
    return attncheck_nsa_compress_attention(&args);
}
inline int direct(const attncheck_flash_attention_score_args& args) {
    return attncheck_flash_attention_score(&args);
}
inline int direct(const attncheck_flash_attention_score_grad_args& args) {
    return attncheck_flash_attention_score_grad(&args);
}

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_TESTS_ACLNN_OPERATORS_DIRECT_H
