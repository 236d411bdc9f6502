// Statistics that do not fit the inputs, a format that means nothing for three dimensions, and dk
// printed twice, the second time as dv.
#include "aclnnop/aclnn_nsa_selected_attention_grad.h"
#include "example.h"

using namespace example;

static int Print(const char* name, const Buffer& buffer, size_t count) {
    std::vector<aclFloat16> data;
    CHECK(buffer.Download(data, count));
    for (size_t i = 0; i < count; ++i)
        std::printf("result %s[%zu] is: %u\n", name, i, static_cast<unsigned>(data[i]));
    return 0;
}

int main() {
    Device device;
    CHECK(device.Open());
    const Shape queries = {1, 1, 192}, keys = {1024, 1, 192}, statistics = {1, 1, 8},
                lists = {1, 1, 16};
    const aclFormat format = ACL_FORMAT_NCHW;
    Buffer query, key, value, output, output_grad, row_max, row_sum, topk, dq, dk, dv;
    CHECK(query.Fill<aclFloat16>(2, queries, ACL_FLOAT16, format));
    CHECK(key.Fill<aclFloat16>(2, keys, ACL_FLOAT16, format));
    CHECK(value.Fill<aclFloat16>(2, keys, ACL_FLOAT16, format));
    CHECK(output.Fill<aclFloat16>(2, queries, ACL_FLOAT16, format));
    CHECK(output_grad.Fill<aclFloat16>(2, queries, ACL_FLOAT16, format));
    CHECK(row_max.Fill<float>(2, statistics, ACL_FLOAT, format));
    CHECK(row_sum.Fill<float>(2, statistics, ACL_FLOAT, format));
    std::vector<int32_t> blocks;
    for (int32_t block = 0; block < 16; ++block) blocks.push_back(block);
    CHECK(topk.Upload(blocks, lists, ACL_INT32, format));
    CHECK(dq.Fill<aclFloat16>(2, queries, ACL_FLOAT16, format));
    CHECK(dk.Fill<aclFloat16>(2, keys, ACL_FLOAT16, format));
    CHECK(dv.Fill<aclFloat16>(2, keys, ACL_FLOAT16, format));
    const int64_t query_ends[] = {1}, key_ends[] = {1024};
    aclIntArray *query_lengths = aclCreateIntArray(query_ends, 1),
                *key_lengths = aclCreateIntArray(key_ends, 1);
    char layout[] = "TND";

    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnNsaSelectedAttentionGradGetWorkspaceSize(
        query.tensor, key.tensor, value.tensor, output.tensor, output_grad.tensor, row_max.tensor,
        row_sum.tensor, topk.tensor, query_lengths, key_lengths, nullptr, 1.0, 64, 16, 1, layout, 0,
        dq.tensor, dk.tensor, dv.tensor, &bytes, &executor));
    CHECK(Finish(aclnnNsaSelectedAttentionGrad, bytes, executor, device.stream));

    CHECK(Print("dq", dq, CountOf(queries)));
    CHECK(Print("dk", dk, CountOf(keys)));
    CHECK(Print("dv", dk, CountOf(keys)));
    CHECK(aclDestroyIntArray(query_lengths));
    CHECK(aclDestroyIntArray(key_lengths));
    Buffer* const all[] = {&query,   &key,  &value, &output, &output_grad, &row_max,
                           &row_sum, &topk, &dq,    &dk,     &dv};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) CHECK(all[i]->Free());
    return device.Close();
}
