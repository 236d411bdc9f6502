// What the validator of Attention refuses, beside the predicate of the oracle.
#include "impl/operators/attention/validate.h"

#include <gtest/gtest.h>

#include <functional>

#include "attention_problem.h"
#include "ref/constraints/attention.h"

namespace attncheck::impl {
namespace {

ref::TensorArgument argument(const attncheck_tensor& t) {
    ref::TensorArgument a{t.data != nullptr, t.dtype, t.rank, {}};
    for (std::int32_t d = 0; d < std::min(t.rank, 8); ++d) a.shape.push_back(t.shape[d]);
    return a;
}
ref::ArrayArgument argument(const attncheck_int_array& array) {
    ref::ArrayArgument a{array.values != nullptr, array.size, {}};
    if (a.present && array.size > 0) a.values.assign(array.values, array.values + array.size);
    return a;
}
template <class Args>
ref::AttentionArguments common_arguments(const Args& a) {
    return {argument(a.query),     argument(a.key),        argument(a.value),
            argument(a.cu_seqlens_q), argument(a.cu_seqlens_kv), argument(a.kv_length),
            argument(a.bias),      argument(a.mask),       argument(a.sink),
            a.scale,               a.softcap,              a.window_left,
            a.window_right,        a.align,                argument(a.out),
            argument(a.lse)};
}

/// Validator and predicate refuse the call because of the same parameter.
void expect_refused(const attncheck_attention_grad_args& a, const char* parameter) {
    const MaybeRejection got = validate_attention_grad(&a);
    ASSERT_TRUE(got) << parameter;
    EXPECT_EQ(got->parameter, parameter) << got->message;
    EXPECT_NE(got->status, ATTNCHECK_OK);
    EXPECT_NE(got->status, ATTNCHECK_DECLINED);
    const ref::Ruling ruling = ref::rule_attention_grad(
        {common_arguments(a), argument(a.dout), argument(a.dq), argument(a.dk), argument(a.dv),
         argument(a.dbias), argument(a.dsink)});
    EXPECT_EQ(ruling.parameter, parameter) << ruling.message;
    EXPECT_TRUE(ruling.any_status);
    EXPECT_NE(attncheck_attention_grad(&a), ATTNCHECK_OK);
}

TEST(AttentionValidator, RefusesWhatThePredicateRefuses) {
    NeutralForm form;
    form.lengths = {{3, 4}, {3, 4}}, form.kv_heads = 2, form.group_size = 2;
    form.bias = "BHQK", form.mask = "1111", form.has_sink = true, form.has_kv_length = true;
    using Args = attncheck_attention_grad_args;
    static const std::int64_t kLong[] = {1, 5}, kNegative[] = {-1, 2};
    const struct {
        const char* parameter;
        std::function<void(Args&)> change;
    } table[] = {
        {"query", [](Args& a) { a.query.data = nullptr; }},
        {"key", [](Args& a) { a.key.data = nullptr; }},
        {"value", [](Args& a) { a.value.data = nullptr; }},
        {"out", [](Args& a) { a.out.data = nullptr; }},
        {"dout", [](Args& a) { a.dout.data = nullptr; }},
        {"dq", [](Args& a) { a.dq.data = nullptr; }},
        {"query", [](Args& a) { a.query.rank = 3; }},
        {"query", [](Args& a) { a.query.dtype = ATTNCHECK_INT32; }},
        {"key", [](Args& a) { a.key.dtype = ATTNCHECK_FLOAT16; }},
        {"value", [](Args& a) { a.value.dtype = ATTNCHECK_BFLOAT16; }},
        {"out", [](Args& a) { a.out.dtype = ATTNCHECK_FLOAT16; }},
        {"scale", [](Args& a) { a.scale = kNan; }},
        {"scale", [](Args& a) { a.scale = 1e300; }},
        {"softcap", [](Args& a) { a.softcap = -1; }},
        {"softcap", [](Args& a) { a.softcap = kInf; }},
        {"window_left", [](Args& a) { a.window_left = -2; }},
        {"window_right", [](Args& a) { a.window_right = std::numeric_limits<std::int64_t>::min(); }},
        {"align", [](Args& a) { a.align = 2; }},
        {"query", [](Args& a) { a.query.shape[2] = 3; }},
        {"query", [](Args& a) { a.query.shape[0] = -1; }},
        {"query", [](Args& a) { a.query.shape[3] = 0; }},
        {"key", [](Args& a) { a.key.shape[3] = 7; }},
        {"value", [](Args& a) { a.value.shape[1] = 5; }},
        {"out", [](Args& a) { a.out.shape[2] = 2; }},
        {"kv_length", [](Args& a) { a.kv_length.size = 1; }},
        {"kv_length", [](Args& a) { a.kv_length.values = nullptr; }},
        {"kv_length", [](Args& a) { a.kv_length.values = kLong; }},
        {"kv_length", [](Args& a) { a.kv_length.values = kNegative; }},
        {"bias", [](Args& a) { a.bias.shape[1] = 2; }},
        {"bias", [](Args& a) { a.bias.dtype = ATTNCHECK_FLOAT16; }},
        {"bias", [](Args& a) { a.bias.rank = 3; }},
        {"mask", [](Args& a) { a.mask.dtype = ATTNCHECK_UINT8; }},
        {"mask", [](Args& a) { a.mask.shape[3] = 2; }},
        {"sink", [](Args& a) { a.sink.shape[0] = 3; }},
        {"sink", [](Args& a) { a.sink.rank = 2; }},
        {"lse", [](Args& a) { a.lse.dtype = ATTNCHECK_FLOAT16; }},
        {"lse", [](Args& a) { a.lse.shape[1] = 3; }},
        {"dbias", [](Args& a) { a.dbias.shape[0] = 1; }},
        {"dbias", [](Args& a) { a.bias.data = nullptr; }},
        {"dsink", [](Args& a) { a.sink.data = nullptr; }},
        {"dk", [](Args& a) { a.dk.shape[1] = 3; }},
        {"dv", [](Args& a) { a.dv.dtype = ATTNCHECK_BFLOAT16; }},
    };
    for (const auto& row : table) {
        NeutralProblem problem(form, 2);
        auto args = problem.gradient();
        row.change(args);
        expect_refused(args, row.parameter);
        for (const AnyTensor* output : {&problem.dq, &problem.dk, &problem.dv})
            for (const std::uint8_t byte : output->bytes) ASSERT_EQ(byte, AnyTensor::kPoison);
    }
}

TEST(AttentionValidator, RefusesPackedFormsThatDoNotFit) {
    NeutralForm form;
    form.packed = true, form.lengths = {{3, 4}, {2, 2}};
    using Args = attncheck_attention_grad_args;
    static const std::int64_t kFirst[] = {1, 3, 5}, kDecreasing[] = {0, 6, 5}, kShort[] = {0, 3, 4};
    static const std::uint8_t kByte = 1;
    const struct {
        const char* parameter;
        std::function<void(Args&)> change;
    } table[] = {
        {"cu_seqlens_kv", [](Args& a) { a.cu_seqlens_kv = {}; }},
        {"cu_seqlens_kv", [](Args& a) { a.cu_seqlens_q = {}; }},
        {"cu_seqlens_q", [](Args& a) { a.cu_seqlens_q.values = nullptr; }},
        {"cu_seqlens_q", [](Args& a) { a.cu_seqlens_q.size = 0; }},
        {"cu_seqlens_q", [](Args& a) { a.cu_seqlens_q.values = kFirst; }},
        {"cu_seqlens_q", [](Args& a) { a.cu_seqlens_q.values = kDecreasing; }},
        {"cu_seqlens_q", [](Args& a) { a.cu_seqlens_q.values = kShort; }},
        {"cu_seqlens_kv", [](Args& a) { a.cu_seqlens_kv.values = kShort; }},
        {"kv_length", [](Args& a) { a.kv_length = {kShort, 2}; }},
        {"mask", [](Args& a) {
             a.mask = {const_cast<std::uint8_t*>(&kByte), ATTNCHECK_BOOL, 4, {1, 1, 1, 1}, {}};
         }},
    };
    for (const auto& row : table) {
        NeutralProblem problem(form, 2);
        auto args = problem.gradient();
        row.change(args);
        expect_refused(args, row.parameter);
    }
}

TEST(AttentionValidator, RefusesANullStruct) {
    EXPECT_NE(attncheck_attention(nullptr), ATTNCHECK_OK);
    EXPECT_NE(attncheck_attention_grad(nullptr), ATTNCHECK_OK);
}

}  // namespace
}  // namespace attncheck::impl
