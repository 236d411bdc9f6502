// Ones in real half precision, a layout that is a string literal, descriptors without strides.
#include "aclnnop/aclnn_nsa_compress.h"
#include "example.h"

using namespace example;

int main() {
    Device device;
    CHECK(device.Open());
    const Shape tokens = {64, 4, 32}, weights = {32, 4}, blocks = {2, 4, 32};
    const aclFloat16 one = aclFloatToFloat16(1.0f);
    Buffer input, weight, output;
    CHECK(input.Upload(std::vector<aclFloat16>(CountOf(tokens), one), tokens, ACL_FLOAT16,
                       ACL_FORMAT_ND, false));
    CHECK(weight.Upload(std::vector<aclFloat16>(CountOf(weights), one), weights, ACL_FLOAT16,
                        ACL_FORMAT_ND, false));
    CHECK(output.Upload(std::vector<aclFloat16>(CountOf(blocks), 0), blocks, ACL_FLOAT16,
                        ACL_FORMAT_ND, false));
    const int64_t ends[] = {64};
    aclIntArray* lengths = aclCreateIntArray(ends, 1);

    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnNsaCompressGetWorkspaceSize(input.tensor, weight.tensor, lengths, "TND", 32, 32, 0,
                                           output.tensor, &bytes, &executor));
    CHECK(Finish(aclnnNsaCompress, bytes, executor, device.stream));

    std::vector<aclFloat16> result;
    CHECK(output.Download(result, CountOf(blocks)));
    for (size_t i = 0; i < result.size(); ++i)
        std::printf("mean result[%zu] is: %f\n", i, aclFloat16ToFloat(result[i]));
    CHECK(aclDestroyIntArray(lengths));
    CHECK(input.Free());
    CHECK(weight.Free());
    CHECK(output.Free());
    return device.Close();
}
