/* The interface between attncheck and a kernel under test (a "candidate"). ABI version 1.
 *
 * A candidate is a shared library that exports the two identification symbols below and any subset of the operator
 * entry points; what it does not export is reported as not implemented. Valid C11 and C++17, no dependency.
 *
 * Memory belongs to the caller. An entry point writes every element of every present output and nothing else, reads
 * its inputs only, may be called from several threads at once, and rejects bad arguments before it computes anything.
 * Strides count elements, never bytes; input strides may be 0 or negative. Elements of outputs are distinct.
 *
 * Shapes use T (tokens of all sequences packed), N (heads), D (head dim), C (compressed rows), K (blocks per query). */
#ifndef ATTNCHECK_CANDIDATE_H
#define ATTNCHECK_CANDIDATE_H

#include <stdint.h>

#if defined(_WIN32)
#define ATTNCHECK_EXPORT __declspec(dllexport)
#elif defined(__GNUC__)
#define ATTNCHECK_EXPORT __attribute__((visibility("default")))
#else
#define ATTNCHECK_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ATTNCHECK_ABI_VERSION 1

/* Element types; the numbers are those of aclDataType. */
typedef enum attncheck_dtype {
    ATTNCHECK_FLOAT32 = 0,
    ATTNCHECK_FLOAT16 = 1,
    ATTNCHECK_INT32 = 3,
    ATTNCHECK_UINT8 = 4,
    ATTNCHECK_INT64 = 9,
    ATTNCHECK_BOOL = 12,
    ATTNCHECK_BFLOAT16 = 27,
    ATTNCHECK_FLOAT8_E5M2 = 35,
    ATTNCHECK_FLOAT8_E4M3FN = 36
} attncheck_dtype;

#define ATTNCHECK_MAX_RANK 8

/* A strided view. Rank 0 is never legal; a present tensor without elements has a non-NULL data and a 0 in shape. */
typedef struct attncheck_tensor {
    void*   data;                        /* address of element (0,..,0); NULL = the argument is absent */
    int32_t dtype;                       /* attncheck_dtype */
    int32_t rank;                        /* number of valid entries below */
    int64_t shape[ATTNCHECK_MAX_RANK];
    int64_t strides[ATTNCHECK_MAX_RANK]; /* in elements; need not be contiguous */
} attncheck_tensor;

/* A host array. A present but empty array has a non-NULL values. */
typedef struct attncheck_int_array {
    const int64_t* values;               /* NULL = the argument is absent */
    int64_t        size;
} attncheck_int_array;

/* What an entry point returns. */
enum {
    ATTNCHECK_OK = 0,
    ATTNCHECK_ERR_NULLPTR = 161001,      /* a required argument is absent */
    ATTNCHECK_ERR_INVALID = 161002,      /* the arguments break a documented constraint */
    ATTNCHECK_ERR_INTERNAL = 561000,
    ATTNCHECK_DECLINED = -1              /* legal, but not implemented here: skipped and counted, never passed */
};

/* Y[o_b + j, n, c] = sum_{r < block} X[a_b + j * stride + r, n, c] * W[r, n] for every block j of every sequence b. */
typedef struct attncheck_nsa_compress_args {
    attncheck_tensor    input, weight;                     /* [T,N,D], [block,N] */
    attncheck_int_array act_seq_len;                       /* cumulative lengths, no leading zero needed */
    const char*         layout;                            /* "TND" */
    int64_t             compress_block_size, compress_stride, act_seq_len_type;
    attncheck_tensor    output;                            /* [C,N,D] */
} attncheck_nsa_compress_args;

/* The gradients of the above with respect to X and W. A NULL act_seq_len means one sequence of length T. */
typedef struct attncheck_nsa_compress_grad_args {
    attncheck_tensor    output_grad, input, weight;        /* [C,N,D], [T,N,D], [block,N] */
    attncheck_int_array act_seq_len;
    int64_t             compress_block_size, compress_stride, act_seq_len_type;
    const char*         layout;
    attncheck_tensor    input_grad, weight_grad;           /* [T,N,D], [block,N] */
} attncheck_nsa_compress_grad_args;

/* Attention of each query over the key blocks listed for it; statistics are repeated 8 times in the last dimension. */
typedef struct attncheck_nsa_selected_attention_args {
    attncheck_tensor    query, key, value;                 /* [T1,N1,D], [T2,N2,D], [T2,N2,Dv] */
    attncheck_tensor    topk_indices;                      /* int32 [T1,N2,K] */
    attncheck_tensor    atten_mask;                        /* optional */
    attncheck_int_array actual_seq_q_len, actual_seq_kv_len;
    double              scale_value;
    int64_t             head_num;
    const char*         input_layout;
    int64_t             sparse_mode, selected_block_size, selected_block_count;
    attncheck_tensor    softmax_max, softmax_sum;          /* float32 [T1,N1,8] */
    attncheck_tensor    attention_out;                     /* [T1,N1,Dv] */
} attncheck_nsa_selected_attention_args;

typedef struct attncheck_nsa_selected_attention_grad_args {
    attncheck_tensor    query, key, value, attention_out, attention_out_grad;
    attncheck_tensor    softmax_max, softmax_sum, topk_indices;
    attncheck_int_array actual_seq_q_len, actual_seq_kv_len;
    attncheck_tensor    atten_mask;                        /* optional */
    double              scale_value;
    int64_t             selected_block_size, selected_block_count, head_num;
    const char*         input_layout;
    int64_t             sparse_mode;
    attncheck_tensor    dq, dk, dv;
} attncheck_nsa_selected_attention_grad_args;

/* Attention over compressed keys, block importance scores and their top-k. */
typedef struct attncheck_nsa_compress_attention_args {
    attncheck_tensor    query, key, value;                 /* key, value are compressed: [C,N2,D], [C,N2,Dv] */
    attncheck_tensor    atten_mask, topk_mask;             /* optional */
    attncheck_int_array actual_seq_q_len, actual_cmp_seq_kv_len, actual_sel_seq_kv_len;
    double              scale_value;
    int64_t             head_num;
    const char*         input_layout;
    int64_t             sparse_mode, compress_block_size, compress_stride, select_block_size, select_block_count;
    attncheck_tensor    softmax_max, softmax_sum, attention_out;
    attncheck_tensor    topk_indices;                      /* int32 [T1,N2,K] */
} attncheck_nsa_compress_attention_args;

typedef struct attncheck_flash_attention_score_args {
    attncheck_tensor    query, query_rope, key, key_rope, value;          /* ropes optional */
    attncheck_tensor    real_shift, drop_mask, padding_mask, atten_mask;  /* optional */
    attncheck_int_array prefix, actual_seq_q_len, actual_seq_kv_len, q_start_idx, kv_start_idx;   /* optional */
    double              scale_value, keep_prob;
    int64_t             pre_tokens, next_tokens, head_num;
    const char*         input_layout;                      /* "BSH" "SBH" "BSND" "BNSD" "TND" */
    int64_t             inner_precise, sparse_mode, pse_type;
    const char*         softmax_out_layout;                /* "" or "same_as_input" */
    attncheck_tensor    softmax_max, softmax_sum, attention_out;
} attncheck_flash_attention_score_args;

typedef struct attncheck_flash_attention_score_grad_args {
    attncheck_tensor    query, query_rope, key, key_rope, value, dy;
    attncheck_tensor    pse_shift, drop_mask, padding_mask, atten_mask;   /* optional */
    attncheck_tensor    softmax_max, softmax_sum, attention_in;
    attncheck_int_array prefix, actual_seq_q_len, actual_seq_kv_len, q_start_idx, kv_start_idx;   /* optional */
    double              scale_value, keep_prob;
    int64_t             pre_tokens, next_tokens, head_num;
    const char*         input_layout;
    int64_t             inner_precise, sparse_mode, pse_type;
    const char*         softmax_in_layout;                 /* "" or "same_as_input" */
    attncheck_tensor    dq, dq_rope, dk, dk_rope, dv;      /* rope gradients present iff ropes are */
} attncheck_flash_attention_score_grad_args;

/* Attention in the field's own words, with query head h reading key/value head g = h / (Hq / Hkv):
 *   s = softcap * tanh(scale <q, k> / softcap) + bias    (softcap 0: s = scale <q, k> + bias; bias -infinity hides the key)
 *   O = sum exp(s - LSE) v over the visible keys,         LSE = ln(sum exp(s) + exp(sink))
 * Key j is visible to query i iff mask is 1, j < kv_length and i + off - window_left <= j <= i + off + window_right, with
 * off = 0 for align 0 and Skv - Sq for align 1. A row without visible key and without sink has O = 0, LSE = -infinity.
 * Rejections may have any number but 0 and -1. */
typedef struct attncheck_attention_args {
    attncheck_tensor    query;                             /* [B,Sq,Hq,D], packed [T,Hq,D]; fp16, bf16 or fp32 */
    attncheck_tensor    key;                               /* [B,Skv,Hkv,D], packed [Tkv,Hkv,D], as query */
    attncheck_tensor    value;                             /* [B,Skv,Hkv,Dv], packed [Tkv,Hkv,Dv], as query */
    attncheck_int_array cu_seqlens_q;                      /* optional: B + 1 starts and the end; absent: padded form */
    attncheck_int_array cu_seqlens_kv;                     /* present iff cu_seqlens_q is */
    attncheck_int_array kv_length;                         /* optional, padded form only: [B] keys in use; absent: all */
    attncheck_tensor    bias;                              /* optional, padded form only: [B|1,Hq|1,Sq|1,Skv|1] fp32 or as query */
    attncheck_tensor    mask;                              /* optional, the same form, bool: 1 = may be seen */
    attncheck_tensor    sink;                              /* optional: float32 [Hq], a logit without a value; -infinity: none */
    double              scale;                             /* of <q, k>; narrowed to fp32 once; zero and negative are legal */
    double              softcap;                           /* 0 = none; any other number is positive, whole or not */
    int64_t             window_left;                       /* keys before the diagonal, -1 = unlimited; up to 2^63 - 1 */
    int64_t             window_right;                      /* keys behind the diagonal, likewise; 0 = causal */
    int64_t             align;                             /* diagonal through 0 = top left, 1 = bottom right */
    attncheck_tensor    out;                               /* [B,Sq,Hq,Dv], packed [T,Hq,Dv], as query */
    attncheck_tensor    lse;                               /* optional: float32 [B,Hq,Sq], packed [Hq,T], natural logarithm */
} attncheck_attention_args;

/* The gradients of the above for the gradient dout of out. */
typedef struct attncheck_attention_grad_args {
    attncheck_tensor    dout;                              /* as out */
    attncheck_tensor    query, key, value;                 /* as in the forward call */
    attncheck_tensor    out;                               /* of the forward call */
    attncheck_tensor    lse;                               /* of the forward call, optional */
    attncheck_int_array cu_seqlens_q, cu_seqlens_kv;       /* as in the forward call */
    attncheck_int_array kv_length;                         /* as in the forward call */
    attncheck_tensor    bias, mask, sink;                  /* as in the forward call */
    double              scale, softcap;                    /* as in the forward call */
    int64_t             window_left, window_right, align;  /* as in the forward call */
    attncheck_tensor    dq, dk, dv;                        /* as query, key, value */
    attncheck_tensor    dbias;                             /* optional: as bias, summed over its broadcast dimensions */
    attncheck_tensor    dsink;                             /* optional: as sink */
} attncheck_attention_grad_args;

/* Attention of the last Sq positions of each sequence over a paged cache: position j of sequence b lies in page
 * block_table[b, j / page_size] at j % page_size. Align is bottom right, keys behind the diagonal are hidden. */
typedef struct attncheck_attention_decode_args {
    attncheck_tensor    query;                             /* [B,Sq,Hq,D], Sq 1..16; fp16, bf16 or fp32 */
    attncheck_tensor    key_cache;                         /* [pages,page_size,Hkv,D], page_size 1..256, as query */
    attncheck_tensor    value_cache;                       /* [pages,page_size,Hkv,Dv], as query; in latent attention
                                                              (case field values=in_keys) a view of key_cache: its
                                                              data and strides, the first Dv channels */
    attncheck_tensor    block_table;                       /* int32 [B,max_pages]; entries behind the last page hold anything */
    attncheck_int_array kv_length;                         /* [B]: positions in use, the queries' own included */
    attncheck_tensor    sink;                              /* optional: float32 [Hq] */
    double              scale, softcap;                    /* as in attncheck_attention_args */
    int64_t             window_left;                       /* -1 = unlimited */
    attncheck_tensor    out;                               /* [B,Sq,Hq,Dv], as query */
    attncheck_tensor    lse;                               /* optional: float32 [B,Hq,Sq] */
} attncheck_attention_decode_args;

/* Attention over all keys from attention over parts of them: LSE = ln sum exp(lse_p), o = sum exp(lse_p - LSE) o_p. A part
 * with lse_p = -infinity counts for nothing, whatever its o_p holds; with no other part o = 0 and LSE = -infinity.
 * Rejections may have any number but 0 and -1. */
typedef struct attncheck_attention_merge_args {
    attncheck_tensor parts, lses;                          /* [P,R,H,Dv] fp16, bf16 or fp32; float32 [P,R,H] */
    attncheck_tensor out, lse;                             /* [R,H,Dv] as parts; float32 [R,H], optional */
} attncheck_attention_merge_args;

/* Identification: both required. */
ATTNCHECK_EXPORT uint32_t    attncheck_abi_version(void);    /* returns ATTNCHECK_ABI_VERSION */
ATTNCHECK_EXPORT const char* attncheck_candidate_name(void); /* "vendor-kernel 1.4 (avx512)" */
ATTNCHECK_EXPORT const char* attncheck_precision(void);      /* optional: its rounding class, as --precision takes it */

/* Optional: the cases that it takes, one line for each operator, with the fields and values of case lines:
 * "flash_attention_score: dtype=bf16,fp16 dim=64,128 value_dim=dim layout=BSND,TND pse=absent drop=absent".
 * A field that is not named is unrestricted; values are lists, ranges a..b and a..b/step, or the name of a field that
 * is equal; outputs=attention_out: the others are not passed (data NULL). Without it the suite learns what is declined. */
ATTNCHECK_EXPORT const char* attncheck_features(void);

/* Operators: export any subset. */
ATTNCHECK_EXPORT int attncheck_nsa_compress(const attncheck_nsa_compress_args*);
ATTNCHECK_EXPORT int attncheck_nsa_compress_grad(const attncheck_nsa_compress_grad_args*);
ATTNCHECK_EXPORT int attncheck_nsa_selected_attention(const attncheck_nsa_selected_attention_args*);
ATTNCHECK_EXPORT int attncheck_nsa_selected_attention_grad(const attncheck_nsa_selected_attention_grad_args*);
ATTNCHECK_EXPORT int attncheck_nsa_compress_attention(const attncheck_nsa_compress_attention_args*);
ATTNCHECK_EXPORT int attncheck_flash_attention_score(const attncheck_flash_attention_score_args*);
ATTNCHECK_EXPORT int attncheck_flash_attention_score_grad(const attncheck_flash_attention_score_grad_args*);
ATTNCHECK_EXPORT int attncheck_attention(const attncheck_attention_args*);
ATTNCHECK_EXPORT int attncheck_attention_grad(const attncheck_attention_grad_args*);
ATTNCHECK_EXPORT int attncheck_attention_decode(const attncheck_attention_decode_args*);
ATTNCHECK_EXPORT int attncheck_attention_merge(const attncheck_attention_merge_args*);

#ifdef __cplusplus
}
#endif

#endif /* ATTNCHECK_CANDIDATE_H */
