// Real halves of the class that comes with the vendor's headers, namespace std in scope. The output
// is read back as floats, twice as far as its memory goes; the arrays leak.
#include "aclnn/opdev/fp16_t.h"
#include "aclnnop/aclnn_nsa_compress_attention.h"
#include "example.h"

using namespace std;
using namespace example;

static void Print(const Buffer& buffer, size_t count) {
    vector<float> data;
    const int status = buffer.Download(data, count);
    if (status != ACL_SUCCESS) {
        printf("copy result from device to host failed. ERROR: %d\n", status);
        return;
    }
    for (size_t i = 0; i < count; ++i) printf("mean result[%zu] is: %f\n", i, data[i]);
}

int main() {
    Device device;
    CHECK(device.Open());
    const Shape queries = {1024, 16, 192}, keys = {64, 4, 192}, values = {64, 4, 128},
                hidden = {1024, 64}, forced = {1024, 16}, statistics = {1024, 16, 8},
                outputs = {1024, 16, 128}, lists = {1024, 4, 16};
    Buffer query, key, value, atten_mask, topk_mask, row_max, row_sum, output, topk;
    CHECK(query.Fill<op::fp16_t>(1.0, queries, ACL_FLOAT16));
    CHECK(key.Fill<op::fp16_t>(1.0, keys, ACL_FLOAT16));
    CHECK(value.Fill<op::fp16_t>(1.0, values, ACL_FLOAT16));
    CHECK(atten_mask.Fill<uint8_t>(0, hidden, ACL_UINT8));
    CHECK(topk_mask.Fill<uint8_t>(0, forced, ACL_UINT8));
    CHECK(row_max.Fill<float>(0, statistics, ACL_FLOAT));
    CHECK(row_sum.Fill<float>(0, statistics, ACL_FLOAT));
    CHECK(output.Fill<op::fp16_t>(0.0, outputs, ACL_FLOAT16));
    CHECK(topk.Fill<int32_t>(0, lists, ACL_INT32));
    const int64_t query_ends[] = {1024}, key_ends[] = {64}, block_ends[] = {16};
    aclIntArray *query_lengths = aclCreateIntArray(query_ends, 1),
                *key_lengths = aclCreateIntArray(key_ends, 1),
                *block_lengths = aclCreateIntArray(block_ends, 1);
    char layout[] = "TND";

    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnNsaCompressAttentionGetWorkspaceSize(
        query.tensor, key.tensor, value.tensor, atten_mask.tensor, topk_mask.tensor, query_lengths,
        key_lengths, block_lengths, 1.0, 16, layout, 1, 32, 16, 64, 16, row_max.tensor,
        row_sum.tensor, output.tensor, topk.tensor, &bytes, &executor));
    CHECK(Finish(aclnnNsaCompressAttention, bytes, executor, device.stream));

    Print(output, CountOf(outputs));
    Print(row_max, CountOf(statistics));
    Print(row_sum, CountOf(statistics));
    Print(topk, CountOf(lists));
    Buffer* const all[] = {&query,   &key,     &value,  &atten_mask, &topk_mask,
                           &row_max, &row_sum, &output, &topk};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) CHECK(all[i]->Free());
    return device.Close();
}
