/* Native sparse attention as a module: three branches over the operators of candidate.h, weighted by gates, forward
 * and backward. The operators are handed in one by one, so those of several libraries can be mixed.
 *
 *   compress   Kc = NsaCompress(K^c, Wk), Vc = NsaCompress(V^c, Wv);  token t sees block j when j d + l - 1 <= t
 *   select     the blocks of l' tokens that NsaCompressAttention lists for t, up to t itself
 *   window     the last w tokens, t included
 *   O[t,h]   = sum over the branches of  sigmoid(z[t,h,branch]) O_branch[t,h]
 *
 * A token that sees no compressed block has no compress branch: its output and its gate's gradient are 0 there. The
 * lists of blocks are constants of the backward. Source: Yuan et al. 2025, arXiv 2502.11089, sections 3.2 and 3.3.
 *
 * Legend: T tokens of all sequences packed, N1 query heads, N2 key/value heads, D head dim, Dv value dim, l compress
 * block, d compress stride, l' select block, K blocks per list, w window. Limits are those of the operators, with
 * l = d up to 112.
 *
 * Sequences may have any length: key and value rows are padded with zeros to whole select blocks, K at least, which
 * no token sees. Valid C11 and C++17. */
#ifndef ATTNCHECK_NSA_MODULE_H
#define ATTNCHECK_NSA_MODULE_H

#include <attncheck/candidate.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The entry points to use. The last three gradients are needed by the backward only. */
typedef struct attncheck_nsa_operators {
    int (*nsa_compress)(const attncheck_nsa_compress_args*);
    int (*nsa_compress_attention)(const attncheck_nsa_compress_attention_args*);
    int (*nsa_selected_attention)(const attncheck_nsa_selected_attention_args*);
    int (*flash_attention_score)(const attncheck_flash_attention_score_args*);
    int (*nsa_compress_grad)(const attncheck_nsa_compress_grad_args*);
    int (*nsa_selected_attention_grad)(const attncheck_nsa_selected_attention_grad_args*);
    int (*flash_attention_score_grad)(const attncheck_flash_attention_score_grad_args*);
    /* Instead of those that are NULL: called with `caller`, the name of the operator, and its arguments. May be NULL. */
    int (*call)(void* caller, const char* op, const void* args);
    void* caller;
} attncheck_nsa_operators;

/* Tensors are float16 or bfloat16, all alike, of any strides; the gate logits are float32. */
typedef struct attncheck_nsa_module_args {
    attncheck_tensor    query;                             /* [T,N1,D] */
    attncheck_tensor    key_compress, value_compress;      /* [T,N2,D], [T,N2,Dv]: tokens to be compressed */
    attncheck_tensor    key_select, value_select;          /* likewise; both absent: tied to the ones above */
    attncheck_tensor    key_window, value_window;          /* likewise */
    attncheck_tensor    key_weight, value_weight;          /* [l,N2] */
    attncheck_tensor    gate_logits;                       /* float32 [T,N1,3]: compress, select, window; may be +-inf */
    attncheck_int_array actual_seq_len;                    /* cumulative; rows beyond the last one give 0 */
    double              scale_value;
    int64_t             compress_block_size, compress_stride, select_block_size, select_block_count;
    int64_t             window_size;                       /* w >= 1 */
    int64_t             force_blocks;                      /* 0; 1: block 0, t's own and the one before are listed */
    attncheck_tensor    attention_out;                     /* [T,N1,Dv] */
} attncheck_nsa_module_args;

/* Gradients of what the forward was given; the gradients of tied keys and values are absent, and their sum goes to
 * key_compress_grad and value_compress_grad. */
typedef struct attncheck_nsa_module_grad_args {
    attncheck_tensor attention_out_grad;                   /* [T,N1,Dv] */
    attncheck_tensor query_grad;
    attncheck_tensor key_compress_grad, value_compress_grad;
    attncheck_tensor key_select_grad, value_select_grad;
    attncheck_tensor key_window_grad, value_window_grad;
    attncheck_tensor key_weight_grad, value_weight_grad;
    attncheck_tensor gate_logits_grad;                     /* float32 */
} attncheck_nsa_module_grad_args;

/* What the forward keeps for the backward: statistics and outputs of the branches, compressed rows, lists. */
typedef struct attncheck_nsa_module_state attncheck_nsa_module_state;

/* Both return 0, 161001 or 161002 for arguments of their own, or what an operator returned that did not return 0;
 * attncheck_nsa_module_message then says which and why. *state (may be NULL) is to be freed by the caller, and is set
 * when 0 is returned only. The backward takes the arguments of the forward once more; attention_out is not read. */
ATTNCHECK_EXPORT int attncheck_nsa_module(const attncheck_nsa_operators*, const attncheck_nsa_module_args*,
                                          attncheck_nsa_module_state** state);
ATTNCHECK_EXPORT int attncheck_nsa_module_grad(const attncheck_nsa_operators*, const attncheck_nsa_module_args*,
                                               const attncheck_nsa_module_state* state,
                                               const attncheck_nsa_module_grad_args*);
ATTNCHECK_EXPORT void attncheck_nsa_module_free(attncheck_nsa_module_state* state);

/* The lists of blocks, int32 [T,N2,K], as long as the state lives; no rows when there are no tokens. */
ATTNCHECK_EXPORT attncheck_tensor attncheck_nsa_module_blocks(const attncheck_nsa_module_state* state);

/* Of this thread's last call that did not return 0; never NULL. */
ATTNCHECK_EXPORT const char* attncheck_nsa_module_message(void);

#ifdef __cplusplus
}
#endif

#endif /* ATTNCHECK_NSA_MODULE_H */
