// Subnormal halves, one block listed sixteen times, sparse mode 2 without a mask. The output has
// twice the memory that it needs; at the end the addresses of stream and context are passed instead
// of the handles, and the handles, a tensor with its memory and both arrays leak.
#include "aclnnop/aclnn_nsa_selected_attention.h"
#include "example.h"

using namespace example;

int main() {
    Device device;
    CHECK(device.Open());
    const Shape queries = {1024, 16, 192}, keys = {4096, 4, 192}, values = {4096, 4, 128},
                lists = {1024, 4, 16}, statistics = {1024, 16, 8}, outputs = {1024, 16, 128};
    Buffer query, key, value, topk, row_max, row_sum, output;
    CHECK(query.Fill<aclFloat16>(1, queries, ACL_FLOAT16));
    CHECK(key.Fill<aclFloat16>(1, keys, ACL_FLOAT16));
    CHECK(value.Fill<aclFloat16>(1, values, ACL_FLOAT16));
    CHECK(topk.Fill<int32_t>(2, lists, ACL_INT32));
    CHECK(row_max.Fill<float>(0, statistics, ACL_FLOAT));
    CHECK(row_sum.Fill<float>(0, statistics, ACL_FLOAT));
    CHECK(output.Fill<float>(0, outputs, ACL_FLOAT16));
    const int64_t query_ends[] = {512, 1024}, key_ends[] = {2048, 4096};
    aclIntArray *query_lengths = aclCreateIntArray(query_ends, 2),
                *key_lengths = aclCreateIntArray(key_ends, 2);
    char layout[] = "TND";

    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnNsaSelectedAttentionGetWorkspaceSize(
        query.tensor, key.tensor, value.tensor, topk.tensor, nullptr, query_lengths, key_lengths,
        1.0, 16, layout, 2, 64, 16, row_max.tensor, row_sum.tensor, output.tensor, &bytes,
        &executor));
    CHECK(Finish(aclnnNsaSelectedAttention, bytes, executor, device.stream));

    std::vector<aclFloat16> result;
    CHECK(output.Download(result, CountOf(outputs)));
    for (size_t i = 0; i < result.size(); ++i)
        std::printf("attention out result is: %u\n", static_cast<unsigned>(result[i]));
    CHECK(query.Free());
    CHECK(key.Free());
    CHECK(value.Free());
    CHECK(row_max.Free());
    CHECK(row_sum.Free());
    CHECK(output.Free());
    aclrtDestroyStream(&device.stream);
    aclrtDestroyContext(&device.context);
    CHECK(aclrtResetDevice(0));
    return aclFinalize();
}
