// Every variant as a caller sees it: its parameter list, written once more and independently of the
// library, from the fields of candidate.h.
#ifndef ATTNCHECK_TESTS_ACLNN_OPERATORS_VARIANTS_H
#define ATTNCHECK_TESTS_ACLNN_OPERATORS_VARIANTS_H

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_flash_attention_score.h"
#include "aclnnop/aclnn_flash_attention_score_grad.h"
#include "aclnnop/aclnn_nsa_compress.h"
#include "aclnnop/aclnn_nsa_compress_attention.h"
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "aclnnop/aclnn_nsa_selected_attention.h"
#include "aclnnop/aclnn_nsa_selected_attention_grad.h"
#include "operators_problem.h"

namespace attncheck::aclnn {

/// Descriptors and strings of one call; forget() destroys the ones and overwrites the others. The
/// descriptor of the view at `dead` is destroyed before anybody sees it.
class Descriptors {
public:
    Descriptors() = default;
    ~Descriptors() { forget(); }
    Descriptors(const Descriptors&) = delete;
    Descriptors& operator=(const Descriptors&) = delete;

    /// The view begins kOffset elements behind the start of its storage.
    aclTensor* operator()(const attncheck_tensor& view) {
        if (view.data == nullptr) return nullptr;
        constexpr std::int64_t kOffset = 3;
        char* storage = static_cast<char*>(view.data) - kOffset * size_of(view.dtype);
        const auto rank = static_cast<std::uint64_t>(view.rank);
        tensors_.push_back(aclCreateTensor(view.shape, rank, static_cast<aclDataType>(view.dtype),
                                           view.strides, kOffset, ACL_FORMAT_ND, view.shape, rank,
                                           storage));
        aclTensor* const tensor = tensors_.back();
        if (view.data == dead) {
            aclDestroyTensor(tensor);
            tensors_.pop_back();
        }
        return tensor;
    }
    aclIntArray* operator()(const attncheck_int_array& array) {
        if (array.values == nullptr) return nullptr;
        arrays_.push_back(aclCreateIntArray(array.values, static_cast<std::uint64_t>(array.size)));
        return arrays_.back();
    }
    char* operator()(const char* text) {
        return text == nullptr ? nullptr : texts_.emplace_back(text).data();
    }
    const void* dead = nullptr;

    void forget() {
        for (const aclTensor* tensor : tensors_) aclDestroyTensor(tensor);
        for (const aclIntArray* array : arrays_) aclDestroyIntArray(array);
        for (std::string& text : texts_) text.assign(text.size(), 'x');
        tensors_.clear();
        arrays_.clear();
    }

private:
    std::vector<aclTensor*> tensors_;
    std::vector<aclIntArray*> arrays_;
    std::deque<std::string> texts_;
};

inline bool is_empty(const char* text) { return text != nullptr && *text == '\0'; }
inline bool is_packed(const char* layout) {
    return layout != nullptr && std::strcmp(layout, "TND") == 0;
}

/// can_express: whether a call of the operator is one of the variant; what a variant fixes is not
/// among its parameters.
using SecondPhase = aclnnStatus (*)(void*, std::uint64_t, aclOpExecutor*, aclrtStream);

struct NsaCompress {
    using Args = attncheck_nsa_compress_args;
    static constexpr const char* kName = "aclnnNsaCompress";
    static constexpr SecondPhase kSecondPhase = aclnnNsaCompress;
    static void fill_problem(Problem<Args>& problem) { fill(problem); }
    static bool can_express(const Args&) { return true; }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnNsaCompressGetWorkspaceSize(
            d(a.input), d(a.weight), d(a.act_seq_len), d(a.layout), a.compress_block_size,
            a.compress_stride, a.act_seq_len_type, d(a.output), bytes, executor);
    }
};

struct NsaCompressGrad {
    using Args = attncheck_nsa_compress_grad_args;
    static constexpr const char* kName = "aclnnNsaCompressGrad";
    static constexpr SecondPhase kSecondPhase = aclnnNsaCompressGrad;
    static void fill_problem(Problem<Args>& problem) { fill(problem); }
    static bool can_express(const Args&) { return true; }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnNsaCompressGradGetWorkspaceSize(
            d(a.output_grad), d(a.input), d(a.weight), d(a.act_seq_len), a.compress_block_size,
            a.compress_stride, a.act_seq_len_type, d(a.layout), d(a.input_grad), d(a.weight_grad),
            bytes, executor);
    }
};

struct NsaSelectedAttention {
    using Args = attncheck_nsa_selected_attention_args;
    static constexpr const char* kName = "aclnnNsaSelectedAttention";
    static constexpr SecondPhase kSecondPhase = aclnnNsaSelectedAttention;
    static void fill_problem(Problem<Args>& problem) { fill(problem); }
    static bool can_express(const Args&) { return true; }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnNsaSelectedAttentionGetWorkspaceSize(
            d(a.query), d(a.key), d(a.value), d(a.topk_indices), d(a.atten_mask),
            d(a.actual_seq_q_len), d(a.actual_seq_kv_len), a.scale_value, a.head_num,
            d(a.input_layout), a.sparse_mode, a.selected_block_size, a.selected_block_count,
            d(a.softmax_max), d(a.softmax_sum), d(a.attention_out), bytes, executor);
    }
};

struct NsaSelectedAttentionGrad {
    using Args = attncheck_nsa_selected_attention_grad_args;
    static constexpr const char* kName = "aclnnNsaSelectedAttentionGrad";
    static constexpr SecondPhase kSecondPhase = aclnnNsaSelectedAttentionGrad;
    static void fill_problem(Problem<Args>& problem) { fill(problem); }
    static bool can_express(const Args&) { return true; }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnNsaSelectedAttentionGradGetWorkspaceSize(
            d(a.query), d(a.key), d(a.value), d(a.attention_out), d(a.attention_out_grad),
            d(a.softmax_max), d(a.softmax_sum), d(a.topk_indices), d(a.actual_seq_q_len),
            d(a.actual_seq_kv_len), d(a.atten_mask), a.scale_value, a.selected_block_size,
            a.selected_block_count, a.head_num, d(a.input_layout), a.sparse_mode, d(a.dq), d(a.dk),
            d(a.dv), bytes, executor);
    }
};

struct NsaCompressAttention {
    using Args = attncheck_nsa_compress_attention_args;
    static constexpr const char* kName = "aclnnNsaCompressAttention";
    static constexpr SecondPhase kSecondPhase = aclnnNsaCompressAttention;
    static void fill_problem(Problem<Args>& problem) { fill(problem); }
    static bool can_express(const Args&) { return true; }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnNsaCompressAttentionGetWorkspaceSize(
            d(a.query), d(a.key), d(a.value), d(a.atten_mask), d(a.topk_mask),
            d(a.actual_seq_q_len), d(a.actual_cmp_seq_kv_len), d(a.actual_sel_seq_kv_len),
            a.scale_value, a.head_num, d(a.input_layout), a.sparse_mode, a.compress_block_size,
            a.compress_stride, a.select_block_size, a.select_block_count, d(a.softmax_max),
            d(a.softmax_sum), d(a.attention_out), d(a.topk_indices), bytes, executor);
    }
};

struct FlashAttentionScore {
    using Args = attncheck_flash_attention_score_args;
    static constexpr const char* kName = "aclnnFlashAttentionScore";
    static constexpr SecondPhase kSecondPhase = aclnnFlashAttentionScore;
    static void fill_problem(Problem<Args>& problem) { fill(problem, {}); }
    static bool can_express(const Args& a) {
        return a.pse_type == 1 && is_empty(a.softmax_out_layout) && !is_packed(a.input_layout);
    }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnFlashAttentionScoreGetWorkspaceSize(
            d(a.query), d(a.key), d(a.value), d(a.real_shift), d(a.drop_mask), d(a.padding_mask),
            d(a.atten_mask), d(a.prefix), a.scale_value, a.keep_prob, a.pre_tokens, a.next_tokens,
            a.head_num, d(a.input_layout), a.*kInertMember<Args>, a.sparse_mode, d(a.softmax_max),
            d(a.softmax_sum), nullptr, d(a.attention_out), bytes, executor);
    }
};

struct FlashAttentionScoreV2 {
    using Args = attncheck_flash_attention_score_args;
    static constexpr const char* kName = "aclnnFlashAttentionScoreV2";
    static constexpr SecondPhase kSecondPhase = aclnnFlashAttentionScoreV2;
    static void fill_problem(Problem<Args>& problem) {
        fill(problem, {.chosen_bias = true, .dtype = ATTNCHECK_FLOAT32});
    }
    static bool can_express(const Args& a) {
        return is_empty(a.softmax_out_layout) && !is_packed(a.input_layout);
    }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnFlashAttentionScoreV2GetWorkspaceSize(
            d(a.query), d(a.key), d(a.value), d(a.real_shift), d(a.drop_mask), d(a.padding_mask),
            d(a.atten_mask), d(a.prefix), d(a.q_start_idx), d(a.kv_start_idx), a.scale_value,
            a.keep_prob, a.pre_tokens, a.next_tokens, a.head_num, d(a.input_layout),
            a.*kInertMember<Args>, a.sparse_mode, a.pse_type, d(a.softmax_max), d(a.softmax_sum), nullptr,
            d(a.attention_out), bytes, executor);
    }
};

struct FlashAttentionVarLenScore {
    using Args = attncheck_flash_attention_score_args;
    static constexpr const char* kName = "aclnnFlashAttentionVarLenScore";
    static constexpr SecondPhase kSecondPhase = aclnnFlashAttentionVarLenScore;
    static void fill_problem(Problem<Args>& problem) { fill(problem, {.packed = true}); }
    static bool can_express(const Args& a) {
        return a.pse_type == 1 && is_empty(a.softmax_out_layout);
    }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnFlashAttentionVarLenScoreGetWorkspaceSize(
            d(a.query), d(a.key), d(a.value), d(a.real_shift), d(a.drop_mask), d(a.padding_mask),
            d(a.atten_mask), d(a.prefix), d(a.actual_seq_q_len), d(a.actual_seq_kv_len),
            a.scale_value, a.keep_prob, a.pre_tokens, a.next_tokens, a.head_num, d(a.input_layout),
            a.*kInertMember<Args>, a.sparse_mode, d(a.softmax_max), d(a.softmax_sum), nullptr,
            d(a.attention_out), bytes, executor);
    }
};

struct FlashAttentionVarLenScoreV2 {
    using Args = attncheck_flash_attention_score_args;
    static constexpr const char* kName = "aclnnFlashAttentionVarLenScoreV2";
    static constexpr SecondPhase kSecondPhase = aclnnFlashAttentionVarLenScoreV2;
    static void fill_problem(Problem<Args>& problem) {
        fill(problem, {.packed = true, .chosen_bias = true, .dtype = ATTNCHECK_FLOAT32});
    }
    static bool can_express(const Args& a) { return is_empty(a.softmax_out_layout); }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnFlashAttentionVarLenScoreV2GetWorkspaceSize(
            d(a.query), d(a.key), d(a.value), d(a.real_shift), d(a.drop_mask), d(a.padding_mask),
            d(a.atten_mask), d(a.prefix), d(a.actual_seq_q_len), d(a.actual_seq_kv_len),
            d(a.q_start_idx), d(a.kv_start_idx), a.scale_value, a.keep_prob, a.pre_tokens,
            a.next_tokens, a.head_num, d(a.input_layout), a.*kInertMember<Args>, a.sparse_mode,
            a.pse_type, d(a.softmax_max), d(a.softmax_sum), nullptr, d(a.attention_out), bytes,
            executor);
    }
};

struct FlashAttentionVarLenScoreV3 {
    using Args = attncheck_flash_attention_score_args;
    static constexpr const char* kName = "aclnnFlashAttentionVarLenScoreV3";
    static constexpr SecondPhase kSecondPhase = aclnnFlashAttentionVarLenScoreV3;
    static void fill_problem(Problem<Args>& problem) {
        fill(problem, {.packed = true, .rope = true, .dtype = ATTNCHECK_BFLOAT16});
    }
    static bool can_express(const Args& a) { return is_empty(a.softmax_out_layout); }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnFlashAttentionVarLenScoreV3GetWorkspaceSize(
            d(a.query), d(a.query_rope), d(a.key), d(a.key_rope), d(a.value), d(a.real_shift),
            d(a.drop_mask), d(a.padding_mask), d(a.atten_mask), d(a.prefix), d(a.actual_seq_q_len),
            d(a.actual_seq_kv_len), d(a.q_start_idx), d(a.kv_start_idx), a.scale_value, a.keep_prob,
            a.pre_tokens, a.next_tokens, a.head_num, d(a.input_layout), a.*kInertMember<Args>,
            a.sparse_mode, a.pse_type, d(a.softmax_max), d(a.softmax_sum), nullptr,
            d(a.attention_out), bytes, executor);
    }
};

struct FlashAttentionVarLenScoreV4 {
    using Args = attncheck_flash_attention_score_args;
    static constexpr const char* kName = "aclnnFlashAttentionVarLenScoreV4";
    static constexpr SecondPhase kSecondPhase = aclnnFlashAttentionVarLenScoreV4;
    static void fill_problem(Problem<Args>& problem) {
        fill(problem, {.packed = true, .same_as_input = true});
    }
    static bool can_express(const Args& a) { return a.pse_type == 1; }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnFlashAttentionVarLenScoreV4GetWorkspaceSize(
            d(a.query), d(a.key), d(a.value), d(a.real_shift), d(a.drop_mask), d(a.padding_mask),
            d(a.atten_mask), d(a.prefix), d(a.actual_seq_q_len), d(a.actual_seq_kv_len),
            a.scale_value, a.keep_prob, a.pre_tokens, a.next_tokens, a.head_num, d(a.input_layout),
            a.*kInertMember<Args>, a.sparse_mode, d(a.softmax_out_layout), d(a.softmax_max),
            d(a.softmax_sum), nullptr, d(a.attention_out), bytes, executor);
    }
};

struct FlashAttentionScoreGrad {
    using Args = attncheck_flash_attention_score_grad_args;
    static constexpr const char* kName = "aclnnFlashAttentionScoreGrad";
    static constexpr SecondPhase kSecondPhase = aclnnFlashAttentionScoreGrad;
    static void fill_problem(Problem<Args>& problem) { fill(problem, {}); }
    static bool can_express(const Args& a) {
        return a.pse_type == 1 && is_empty(a.softmax_in_layout) && !is_packed(a.input_layout);
    }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnFlashAttentionScoreGradGetWorkspaceSize(
            d(a.query), d(a.key), d(a.value), d(a.dy), d(a.pse_shift), d(a.drop_mask),
            d(a.padding_mask), d(a.atten_mask), d(a.softmax_max), d(a.softmax_sum), nullptr,
            d(a.attention_in), d(a.prefix), a.scale_value, a.keep_prob, a.pre_tokens, a.next_tokens,
            a.head_num, d(a.input_layout), a.*kInertMember<Args>, a.sparse_mode, d(a.dq), d(a.dk),
            d(a.dv), nullptr, bytes, executor);
    }
};

struct FlashAttentionScoreGradV2 {
    using Args = attncheck_flash_attention_score_grad_args;
    static constexpr const char* kName = "aclnnFlashAttentionScoreGradV2";
    static constexpr SecondPhase kSecondPhase = aclnnFlashAttentionScoreGradV2;
    static void fill_problem(Problem<Args>& problem) {
        fill(problem, {.chosen_bias = true, .dtype = ATTNCHECK_FLOAT32});
    }
    static bool can_express(const Args& a) {
        return is_empty(a.softmax_in_layout) && !is_packed(a.input_layout);
    }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnFlashAttentionScoreGradV2GetWorkspaceSize(
            d(a.query), d(a.key), d(a.value), d(a.dy), d(a.pse_shift), d(a.drop_mask),
            d(a.padding_mask), d(a.atten_mask), d(a.softmax_max), d(a.softmax_sum), nullptr,
            d(a.attention_in), d(a.prefix), d(a.q_start_idx), d(a.kv_start_idx), a.scale_value,
            a.keep_prob, a.pre_tokens, a.next_tokens, a.head_num, d(a.input_layout),
            a.*kInertMember<Args>, a.sparse_mode, a.pse_type, d(a.dq), d(a.dk), d(a.dv), nullptr, bytes,
            executor);
    }
};

struct FlashAttentionUnpaddingScoreGrad {
    using Args = attncheck_flash_attention_score_grad_args;
    static constexpr const char* kName = "aclnnFlashAttentionUnpaddingScoreGrad";
    static constexpr SecondPhase kSecondPhase = aclnnFlashAttentionUnpaddingScoreGrad;
    static void fill_problem(Problem<Args>& problem) { fill(problem, {.packed = true}); }
    static bool can_express(const Args& a) {
        return a.pse_type == 1 && is_empty(a.softmax_in_layout);
    }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnFlashAttentionUnpaddingScoreGradGetWorkspaceSize(
            d(a.query), d(a.key), d(a.value), d(a.dy), d(a.pse_shift), d(a.drop_mask),
            d(a.padding_mask), d(a.atten_mask), d(a.softmax_max), d(a.softmax_sum), nullptr,
            d(a.attention_in), d(a.prefix), d(a.actual_seq_q_len), d(a.actual_seq_kv_len),
            a.scale_value, a.keep_prob, a.pre_tokens, a.next_tokens, a.head_num, d(a.input_layout),
            a.*kInertMember<Args>, a.sparse_mode, d(a.dq), d(a.dk), d(a.dv), nullptr, bytes, executor);
    }
};

struct FlashAttentionUnpaddingScoreGradV2 {
    using Args = attncheck_flash_attention_score_grad_args;
    static constexpr const char* kName = "aclnnFlashAttentionUnpaddingScoreGradV2";
    static constexpr SecondPhase kSecondPhase = aclnnFlashAttentionUnpaddingScoreGradV2;
    static void fill_problem(Problem<Args>& problem) {
        fill(problem, {.packed = true, .chosen_bias = true, .dtype = ATTNCHECK_FLOAT32});
    }
    static bool can_express(const Args& a) { return is_empty(a.softmax_in_layout); }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnFlashAttentionUnpaddingScoreGradV2GetWorkspaceSize(
            d(a.query), d(a.key), d(a.value), d(a.dy), d(a.pse_shift), d(a.drop_mask),
            d(a.padding_mask), d(a.atten_mask), d(a.softmax_max), d(a.softmax_sum), nullptr,
            d(a.attention_in), d(a.prefix), d(a.actual_seq_q_len), d(a.actual_seq_kv_len),
            d(a.q_start_idx), d(a.kv_start_idx), a.scale_value, a.keep_prob, a.pre_tokens,
            a.next_tokens, a.head_num, d(a.input_layout), a.*kInertMember<Args>, a.sparse_mode,
            a.pse_type, d(a.dq), d(a.dk), d(a.dv), nullptr, bytes, executor);
    }
};

struct FlashAttentionUnpaddingScoreGradV3 {
    using Args = attncheck_flash_attention_score_grad_args;
    static constexpr const char* kName = "aclnnFlashAttentionUnpaddingScoreGradV3";
    static constexpr SecondPhase kSecondPhase = aclnnFlashAttentionUnpaddingScoreGradV3;
    static void fill_problem(Problem<Args>& problem) {
        fill(problem, {.packed = true, .rope = true, .dtype = ATTNCHECK_BFLOAT16});
    }
    static bool can_express(const Args& a) { return is_empty(a.softmax_in_layout); }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnFlashAttentionUnpaddingScoreGradV3GetWorkspaceSize(
            d(a.query), d(a.query_rope), d(a.key), d(a.key_rope), d(a.value), d(a.dy),
            d(a.pse_shift), d(a.drop_mask), d(a.padding_mask), d(a.atten_mask), d(a.softmax_max),
            d(a.softmax_sum), nullptr, d(a.attention_in), d(a.prefix), d(a.actual_seq_q_len),
            d(a.actual_seq_kv_len), d(a.q_start_idx), d(a.kv_start_idx), a.scale_value, a.keep_prob,
            a.pre_tokens, a.next_tokens, a.head_num, d(a.input_layout), a.*kInertMember<Args>,
            a.sparse_mode, a.pse_type, d(a.dq), d(a.dq_rope), d(a.dk), d(a.dk_rope), d(a.dv),
            nullptr, bytes, executor);
    }
};

struct FlashAttentionUnpaddingScoreGradV4 {
    using Args = attncheck_flash_attention_score_grad_args;
    static constexpr const char* kName = "aclnnFlashAttentionUnpaddingScoreGradV4";
    static constexpr SecondPhase kSecondPhase = aclnnFlashAttentionUnpaddingScoreGradV4;
    static void fill_problem(Problem<Args>& problem) {
        fill(problem, {.packed = true, .same_as_input = true});
    }
    static bool can_express(const Args& a) { return a.pse_type == 1; }
    static aclnnStatus first_phase(const Args& a, Descriptors& d, std::uint64_t* bytes,
                                   aclOpExecutor** executor) {
        return aclnnFlashAttentionUnpaddingScoreGradV4GetWorkspaceSize(
            d(a.query), d(a.key), d(a.value), d(a.dy), d(a.pse_shift), d(a.drop_mask),
            d(a.padding_mask), d(a.atten_mask), d(a.softmax_max), d(a.softmax_sum), nullptr,
            d(a.attention_in), d(a.prefix), d(a.actual_seq_q_len), d(a.actual_seq_kv_len),
            a.scale_value, a.keep_prob, a.pre_tokens, a.next_tokens, a.head_num, d(a.input_layout),
            a.*kInertMember<Args>, a.sparse_mode, d(a.dq), d(a.dk), d(a.dv), nullptr,
            d(a.softmax_in_layout), bytes, executor);
    }
};

using Variants =
    testing::Types<NsaCompress, NsaCompressGrad, NsaSelectedAttention, NsaSelectedAttentionGrad,
                   NsaCompressAttention, FlashAttentionScore, FlashAttentionScoreV2,
                   FlashAttentionVarLenScore, FlashAttentionVarLenScoreV2,
                   FlashAttentionVarLenScoreV3, FlashAttentionVarLenScoreV4,
                   FlashAttentionScoreGrad, FlashAttentionScoreGradV2,
                   FlashAttentionUnpaddingScoreGrad, FlashAttentionUnpaddingScoreGradV2,
                   FlashAttentionUnpaddingScoreGradV3, FlashAttentionUnpaddingScoreGradV4>;

struct VariantName {
    template <class Variant>
    static std::string GetName(int) {
        return Variant::kName;
    }
};

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_TESTS_ACLNN_OPERATORS_VARIANTS_H
