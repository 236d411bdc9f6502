#include "operators_fields.h"

#include "operators_problem.h"

namespace attncheck::aclnn {

template <>
const Fields<attncheck_nsa_compress_args>& fields() {
    using Args = attncheck_nsa_compress_args;
    static const Fields<Args> all{
        .inputs = {&Args::input, &Args::weight},
        .outputs = {&Args::output},
        .arrays = {&Args::act_seq_len},
        .texts = {&Args::layout},
        .integers = {&Args::compress_block_size, &Args::compress_stride, &Args::act_seq_len_type},
        .reals = {},
    };
    return all;
}

template <>
const Fields<attncheck_nsa_compress_grad_args>& fields() {
    using Args = attncheck_nsa_compress_grad_args;
    static const Fields<Args> all{
        .inputs = {&Args::output_grad, &Args::input, &Args::weight},
        .outputs = {&Args::input_grad, &Args::weight_grad},
        .arrays = {&Args::act_seq_len},
        .texts = {&Args::layout},
        .integers = {&Args::compress_block_size, &Args::compress_stride, &Args::act_seq_len_type},
        .reals = {},
    };
    return all;
}

template <>
const Fields<attncheck_nsa_selected_attention_args>& fields() {
    using Args = attncheck_nsa_selected_attention_args;
    static const Fields<Args> all{
        .inputs = {&Args::query, &Args::key, &Args::value, &Args::topk_indices, &Args::atten_mask},
        .outputs = {&Args::softmax_max, &Args::softmax_sum, &Args::attention_out},
        .arrays = {&Args::actual_seq_q_len, &Args::actual_seq_kv_len},
        .texts = {&Args::input_layout},
        .integers = {&Args::head_num, &Args::sparse_mode, &Args::selected_block_size,
                     &Args::selected_block_count},
        .reals = {&Args::scale_value},
    };
    return all;
}

template <>
const Fields<attncheck_nsa_selected_attention_grad_args>& fields() {
    using Args = attncheck_nsa_selected_attention_grad_args;
    static const Fields<Args> all{
        .inputs = {&Args::query, &Args::key, &Args::value, &Args::attention_out,
                   &Args::attention_out_grad, &Args::softmax_max, &Args::softmax_sum,
                   &Args::topk_indices, &Args::atten_mask},
        .outputs = {&Args::dq, &Args::dk, &Args::dv},
        .arrays = {&Args::actual_seq_q_len, &Args::actual_seq_kv_len},
        .texts = {&Args::input_layout},
        .integers = {&Args::selected_block_size, &Args::selected_block_count, &Args::head_num,
                     &Args::sparse_mode},
        .reals = {&Args::scale_value},
    };
    return all;
}

template <>
const Fields<attncheck_nsa_compress_attention_args>& fields() {
    using Args = attncheck_nsa_compress_attention_args;
    static const Fields<Args> all{
        .inputs = {&Args::query, &Args::key, &Args::value, &Args::atten_mask, &Args::topk_mask},
        .outputs = {&Args::softmax_max, &Args::softmax_sum, &Args::attention_out,
                    &Args::topk_indices},
        .arrays = {&Args::actual_seq_q_len, &Args::actual_cmp_seq_kv_len,
                   &Args::actual_sel_seq_kv_len},
        .texts = {&Args::input_layout},
        .integers = {&Args::head_num, &Args::sparse_mode, &Args::compress_block_size,
                     &Args::compress_stride, &Args::select_block_size, &Args::select_block_count},
        .reals = {&Args::scale_value},
    };
    return all;
}

template <>
const Fields<attncheck_flash_attention_score_args>& fields() {
    using Args = attncheck_flash_attention_score_args;
    static const Fields<Args> all{
        .inputs = {&Args::query, &Args::query_rope, &Args::key, &Args::key_rope, &Args::value,
                   &Args::real_shift, &Args::drop_mask, &Args::padding_mask, &Args::atten_mask},
        .outputs = {&Args::softmax_max, &Args::softmax_sum, &Args::attention_out},
        .arrays = {&Args::prefix, &Args::actual_seq_q_len, &Args::actual_seq_kv_len,
                   &Args::q_start_idx, &Args::kv_start_idx},
        .texts = {&Args::input_layout, &Args::softmax_out_layout},
        .integers = {&Args::pre_tokens, &Args::next_tokens, &Args::head_num, kInertMember<Args>,
                     &Args::sparse_mode, &Args::pse_type},
        .reals = {&Args::scale_value, &Args::keep_prob},
    };
    return all;
}

template <>
const Fields<attncheck_flash_attention_score_grad_args>& fields() {
    using Args = attncheck_flash_attention_score_grad_args;
    static const Fields<Args> all{
        .inputs = {&Args::query, &Args::query_rope, &Args::key, &Args::key_rope, &Args::value,
                   &Args::dy, &Args::pse_shift, &Args::drop_mask, &Args::padding_mask,
                   &Args::atten_mask, &Args::softmax_max, &Args::softmax_sum, &Args::attention_in},
        .outputs = {&Args::dq, &Args::dq_rope, &Args::dk, &Args::dk_rope, &Args::dv},
        .arrays = {&Args::prefix, &Args::actual_seq_q_len, &Args::actual_seq_kv_len,
                   &Args::q_start_idx, &Args::kv_start_idx},
        .texts = {&Args::input_layout, &Args::softmax_in_layout},
        .integers = {&Args::pre_tokens, &Args::next_tokens, &Args::head_num, kInertMember<Args>,
                     &Args::sparse_mode, &Args::pse_type},
        .reals = {&Args::scale_value, &Args::keep_prob},
    };
    return all;
}

}  // namespace attncheck::aclnn
