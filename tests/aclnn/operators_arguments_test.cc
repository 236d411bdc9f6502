// What reaches the operators, parameter by parameter: the entry points of this program only
// record their arguments. All attributes of a call differ, so two that are interchanged show,
// those without an effect on any result included.
#include <gtest/gtest.h>

#include <any>
#include <cstring>
#include <string>
#include <vector>

#include "acl_fixture.h"
#include "operators_fields.h"
#include "operators_variants.h"

namespace attncheck::aclnn {
namespace {

template <class Args>
struct Recorded {
    Args args;
    std::vector<std::vector<std::int64_t>> arrays;
    std::vector<std::string> texts;
};

std::any& last_call() {
    static std::any call;
    return call;
}

// Arrays and strings are copied: they live as long as the executor.
template <class Args>
int record(const Args* args) {
    Recorded<Args> call{*args, {}, {}};
    for (const auto array : fields<Args>().arrays) {
        const attncheck_int_array& values = args->*array;
        call.arrays.emplace_back(values.values, values.values + values.size);
    }
    for (const auto text : fields<Args>().texts)
        call.texts.push_back(args->*text ? args->*text : "(null)");
    last_call() = call;
    return ATTNCHECK_OK;
}

template <class Variant>
class OperatorArguments : public DeviceTest {};
TYPED_TEST_SUITE(OperatorArguments, Variants, VariantName);

// The descriptors are gone and the strings overwritten before the work runs.
TYPED_TEST(OperatorArguments, ArriveInTheirFields) {
    using Args = typename TypeParam::Args;
    Problem<Args> problem;
    TypeParam::fill_problem(problem);
    Descriptors descriptors;
    std::uint64_t bytes = 1;
    aclOpExecutor* executor = nullptr;
    ASSERT_EQ(TypeParam::first_phase(problem.args, descriptors, &bytes, &executor), 0)
        << recent_message();
    EXPECT_EQ(bytes, 0u);
    descriptors.forget();
    last_call().reset();
    ASSERT_EQ(TypeParam::kSecondPhase(nullptr, 0, executor, nullptr), 0);
    ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);

    ASSERT_TRUE(last_call().has_value());
    const auto* found = std::any_cast<Recorded<Args>>(&last_call());
    ASSERT_NE(found, nullptr) << "another operator ran";
    Args args = found->args;
    const Fields<Args>& all = fields<Args>();
    const Args& wanted = problem.args;
    for (std::size_t i = 0; i < all.arrays.size(); ++i) {
        const attncheck_int_array& values = wanted.*all.arrays[i];
        EXPECT_EQ(found->arrays[i],
                  std::vector<std::int64_t>(values.values, values.values + values.size))
            << "array " << i;
        EXPECT_EQ((args.*all.arrays[i]).values == nullptr, values.values == nullptr);
        args.*all.arrays[i] = values;
    }
    for (std::size_t i = 0; i < all.texts.size(); ++i) {
        EXPECT_EQ(found->texts[i], wanted.*all.texts[i]) << "text " << i;
        args.*all.texts[i] = wanted.*all.texts[i];
    }
    for (std::size_t i = 0; i < all.integers.size(); ++i)
        EXPECT_EQ(args.*all.integers[i], wanted.*all.integers[i]) << "integer " << i;
    for (std::size_t i = 0; i < all.reals.size(); ++i)
        EXPECT_EQ(args.*all.reals[i], wanted.*all.reals[i]) << "real " << i;
    for (const auto tensor : all.tensors()) {
        EXPECT_EQ((args.*tensor).data, (wanted.*tensor).data);
        EXPECT_EQ(std::memcmp(&(args.*tensor), &(wanted.*tensor), sizeof(attncheck_tensor)), 0);
    }
    EXPECT_EQ(std::memcmp(&args, &wanted, sizeof args), 0) << "a field that the lists leave out";
}

// The test itself: a swap of two attributes would show.
TYPED_TEST(OperatorArguments, AllDiffer) {
    using Args = typename TypeParam::Args;
    Problem<Args> problem;
    TypeParam::fill_problem(problem);
    const auto& integers = fields<Args>().integers;
    for (std::size_t i = 0; i < integers.size(); ++i) {
        for (std::size_t k = 0; k < i; ++k)
            EXPECT_NE(problem.args.*integers[i], problem.args.*integers[k]) << k << ", " << i;
    }
    const auto tensors = fields<Args>().tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const void* data = (problem.args.*tensors[i]).data;
        for (std::size_t k = 0; k < i && data != nullptr; ++k)
            EXPECT_NE(data, (problem.args.*tensors[k]).data) << k << ", " << i;
    }
}

}  // namespace
}  // namespace attncheck::aclnn

// The linker leads the library's calls here (--wrap).
extern "C" {
using attncheck::aclnn::record;
int __wrap_attncheck_nsa_compress(const attncheck_nsa_compress_args* args) { return record(args); }
int __wrap_attncheck_nsa_compress_grad(const attncheck_nsa_compress_grad_args* args) {
    return record(args);
}
int __wrap_attncheck_nsa_selected_attention(const attncheck_nsa_selected_attention_args* args) {
    return record(args);
}
int __wrap_attncheck_nsa_selected_attention_grad(
    const attncheck_nsa_selected_attention_grad_args* args) {
    return record(args);
}
int __wrap_attncheck_nsa_compress_attention(const attncheck_nsa_compress_attention_args* args) {
    return record(args);
}
int __wrap_attncheck_flash_attention_score(const attncheck_flash_attention_score_args* args) {
    return record(args);
}
int __wrap_attncheck_flash_attention_score_grad(
    const attncheck_flash_attention_score_grad_args* args) {
    return record(args);
}
}
