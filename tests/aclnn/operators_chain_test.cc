// Operators that feed each other: all first phases before any work runs, all work in one go. And
// calls without elements.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "acl_fixture.h"
#include "operators_direct.h"
#include "operators_variants.h"

namespace attncheck::aclnn {
namespace {

constexpr std::int32_t kHalf = ATTNCHECK_FLOAT16, kFloat = ATTNCHECK_FLOAT32;
constexpr std::uint8_t kGarbage = 0xff;  // NaN, and -1 as an index

/// One sequence of 128 tokens: 7 compressed blocks of 32, 2 selection blocks of 64, both selected.
struct Chain {
    Storage storage;
    attncheck_nsa_compress_args keys{}, values{};
    attncheck_nsa_compress_attention_args compressed{};
    attncheck_nsa_selected_attention_args selected{};

    Chain() {
        const attncheck_tensor query = storage.numbers({128, 4, 128}, kHalf);
        keys.input = storage.numbers({128, 2, 128}, kHalf);
        values.input = storage.numbers({128, 2, 128}, kHalf);
        for (attncheck_nsa_compress_args* args : {&keys, &values}) {
            args->weight = storage.numbers({32, 2}, kHalf);
            args->act_seq_len = storage.array({128});
            args->layout = "TND";
            args->compress_block_size = 32;
            args->compress_stride = 16;
            args->output = output({7, 2, 128}, kHalf);
        }
        compressed.query = query;
        compressed.key = keys.output;
        compressed.value = values.output;
        compressed.actual_seq_q_len = storage.array({128});
        compressed.actual_cmp_seq_kv_len = storage.array({7});
        compressed.actual_sel_seq_kv_len = storage.array({2});
        compressed.scale_value = selected.scale_value = 0.0625;
        compressed.head_num = selected.head_num = 4;
        compressed.input_layout = selected.input_layout = "TND";
        compressed.compress_block_size = 32;
        compressed.compress_stride = 16;
        compressed.select_block_size = selected.selected_block_size = 64;
        compressed.select_block_count = selected.selected_block_count = 2;
        compressed.topk_indices = output({128, 2, 2}, ATTNCHECK_INT32);
        selected.query = query;
        selected.key = keys.input;
        selected.value = values.input;
        selected.topk_indices = compressed.topk_indices;
        selected.actual_seq_q_len = selected.actual_seq_kv_len = storage.array({128});
        selected.softmax_max = output({128, 4, 8}, kFloat);
        selected.softmax_sum = output({128, 4, 8}, kFloat);
        selected.attention_out = output({128, 4, 128}, kHalf);
        compressed.softmax_max = output({128, 4, 8}, kFloat);
        compressed.softmax_sum = output({128, 4, 8}, kFloat);
        compressed.attention_out = output({128, 4, 128}, kHalf);
    }
    attncheck_tensor output(const Shape& shape, std::int32_t dtype) {
        return storage.tensor(shape, dtype, kGarbage);
    }
};

Bytes bytes_of(const attncheck_tensor& tensor) {
    const auto* data = static_cast<const std::uint8_t*>(tensor.data);
    return Bytes(data, data + count_of(tensor) * size_of(tensor.dtype));
}

class OperatorChain : public DeviceTest {
protected:
    template <class Variant>
    static aclOpExecutor* prepare(const typename Variant::Args& args) {
        Descriptors descriptors;
        std::uint64_t bytes = 1;
        aclOpExecutor* executor = nullptr;
        EXPECT_EQ(Variant::first_phase(args, descriptors, &bytes, &executor), 0)
            << recent_message();
        EXPECT_EQ(bytes, 0u);
        return executor;
    }
};

TEST_F(OperatorChain, NeedsNoPauseBetweenItsLinks) {
    const Chain chain, wanted;
    ASSERT_EQ(direct(wanted.keys), 0);
    ASSERT_EQ(direct(wanted.values), 0);
    ASSERT_EQ(direct(wanted.compressed), 0);
    ASSERT_EQ(direct(wanted.selected), 0);

    aclOpExecutor* const selected = prepare<NsaSelectedAttention>(chain.selected);
    aclOpExecutor* const compressed = prepare<NsaCompressAttention>(chain.compressed);
    aclOpExecutor* const values = prepare<NsaCompress>(chain.values);
    aclOpExecutor* const keys = prepare<NsaCompress>(chain.keys);
    const aclrtStream stream = new_stream();
    ASSERT_EQ(aclnnNsaCompress(nullptr, 0, keys, stream), 0);
    ASSERT_EQ(aclnnNsaCompress(nullptr, 0, values, stream), 0);
    ASSERT_EQ(aclnnNsaCompressAttention(nullptr, 0, compressed, stream), 0);
    ASSERT_EQ(aclnnNsaSelectedAttention(nullptr, 0, selected, stream), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream), 0) << recent_message();

    EXPECT_EQ(bytes_of(chain.compressed.topk_indices), bytes_of(wanted.compressed.topk_indices));
    EXPECT_EQ(bytes_of(chain.compressed.attention_out), bytes_of(wanted.compressed.attention_out));
    EXPECT_EQ(bytes_of(chain.selected.softmax_max), bytes_of(wanted.selected.softmax_max));
    EXPECT_EQ(bytes_of(chain.selected.attention_out), bytes_of(wanted.selected.attention_out));
    EXPECT_NE(bytes_of(chain.selected.attention_out),
              Bytes(bytes_of(chain.selected.attention_out).size(), kGarbage));
}

// A sequence shorter than a block has no output: a tensor without elements may be without address.
TEST_F(OperatorChain, OfAnEmptyOutput) {
    Storage storage;
    Descriptors descriptors;
    const std::int64_t dims[] = {0, 2, 16};
    aclTensor* const output =
        aclCreateTensor(dims, 3, ACL_FLOAT16, nullptr, 0, ACL_FORMAT_ND, dims, 3, nullptr);
    std::uint64_t bytes = 1;
    aclOpExecutor* executor = nullptr;
    char layout[] = "TND";
    ASSERT_EQ(aclnnNsaCompressGetWorkspaceSize(descriptors(storage.numbers({20, 2, 16}, kHalf)),
                                               descriptors(storage.numbers({32, 2}, kHalf)),
                                               descriptors(storage.array({20})), layout, 32, 16, 0,
                                               output, &bytes, &executor),
              0)
        << recent_message();
    EXPECT_EQ(bytes, 0u);
    ASSERT_EQ(aclnnNsaCompress(nullptr, 0, executor, nullptr), 0);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0) << recent_message();
    EXPECT_EQ(aclDestroyTensor(output), 0);
}

// Without blocks the gradients are zero; without lengths all tokens are one sequence.
TEST_F(OperatorChain, OfAnEmptyGradient) {
    Storage storage;
    Descriptors descriptors;
    const attncheck_tensor input = storage.numbers({20, 2, 16}, kHalf),
                           input_grad = storage.tensor({20, 2, 16}, kHalf, kGarbage),
                           weight_grad = storage.tensor({32, 2}, kHalf, kGarbage);
    const std::int64_t dims[] = {0, 2, 16};
    aclTensor* const output_grad =
        aclCreateTensor(dims, 3, ACL_FLOAT16, nullptr, 0, ACL_FORMAT_ND, dims, 3, nullptr);
    std::uint64_t bytes = 1;
    aclOpExecutor* executor = nullptr;
    ASSERT_EQ(aclnnNsaCompressGradGetWorkspaceSize(
                  output_grad, descriptors(input), descriptors(storage.numbers({32, 2}, kHalf)),
                  nullptr, 32, 16, 0, nullptr, descriptors(input_grad), descriptors(weight_grad),
                  &bytes, &executor),
              0)
        << recent_message();
    ASSERT_EQ(aclnnNsaCompressGrad(nullptr, 0, executor, nullptr), 0);
    ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0) << recent_message();
    EXPECT_EQ(bytes_of(input_grad), Bytes(20 * 2 * 16 * 2, 0));
    EXPECT_EQ(bytes_of(weight_grad), Bytes(32 * 2 * 2, 0));
    EXPECT_EQ(aclDestroyTensor(output_grad), 0);
}

}  // namespace
}  // namespace attncheck::aclnn
