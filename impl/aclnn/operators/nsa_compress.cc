#include "aclnnop/aclnn_nsa_compress.h"
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "impl/aclnn/operators/first_phase.h"
#include "impl/operators/nsa_compress/validate.h"

/// NsaCompress and its gradient (nsa.md 2.1, 3.1). In the forward the layout stands before the
/// block's numbers, in the gradient after them.
namespace attncheck::aclnn {
namespace {

using Forward = attncheck_nsa_compress_args;
using Gradient = attncheck_nsa_compress_grad_args;

constexpr Operator<Forward> kForward{impl::validate_nsa_compress, attncheck_nsa_compress};
constexpr Operator<Gradient> kGradient{impl::validate_nsa_compress_grad,
                                       attncheck_nsa_compress_grad};

}  // namespace
}  // namespace attncheck::aclnn

using namespace attncheck::aclnn;

extern "C" {

aclnnStatus aclnnNsaCompressGetWorkspaceSize(const aclTensor* input, const aclTensor* weight,
                                             const aclIntArray* actSeqLenOptional,
                                             char* layoutOptional, int64_t compressBlockSize,
                                             int64_t compressStride, int64_t actSeqLenType,
                                             aclTensor* output, uint64_t* workspaceSize,
                                             aclOpExecutor** executor) {
    const auto map = [&](MappedCall<Forward>& call) {
        call.input<&Forward::input>("input", input);
        call.input<&Forward::weight>("weight", weight);
        call.array<&Forward::act_seq_len>("actSeqLenOptional", actSeqLenOptional);
        call.text<&Forward::layout>("layoutOptional", layoutOptional);
        call.integer<&Forward::compress_block_size>("compressBlockSize", compressBlockSize);
        call.integer<&Forward::compress_stride>("compressStride", compressStride);
        call.integer<&Forward::act_seq_len_type>("actSeqLenType", actSeqLenType);
        call.output<&Forward::output>("output", output);
    };
    return first_phase("aclnnNsaCompress", kForward, map, workspaceSize, executor);
}

aclnnStatus aclnnNsaCompress(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                             aclrtStream stream) {
    return launch_executor("aclnnNsaCompress", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnNsaCompressGradGetWorkspaceSize(
    const aclTensor* outputGrad, const aclTensor* input, const aclTensor* weight,
    const aclIntArray* actSeqLenOptionalOptional, int64_t compressBlockSize, int64_t compressStride,
    int64_t actSeqLenType, char* layoutOptionalOptional, const aclTensor* inputGradOut,
    const aclTensor* weightGradOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
    const auto map = [&](MappedCall<Gradient>& call) {
        call.input<&Gradient::output_grad>("outputGrad", outputGrad);
        call.input<&Gradient::input>("input", input);
        call.input<&Gradient::weight>("weight", weight);
        call.array<&Gradient::act_seq_len>("actSeqLenOptionalOptional", actSeqLenOptionalOptional);
        call.integer<&Gradient::compress_block_size>("compressBlockSize", compressBlockSize);
        call.integer<&Gradient::compress_stride>("compressStride", compressStride);
        call.integer<&Gradient::act_seq_len_type>("actSeqLenType", actSeqLenType);
        call.text<&Gradient::layout>("layoutOptionalOptional", layoutOptionalOptional);
        call.output<&Gradient::input_grad>("inputGradOut", inputGradOut);
        call.output<&Gradient::weight_grad>("weightGradOut", weightGradOut);
    };
    return first_phase("aclnnNsaCompressGrad", kGradient, map, workspaceSize, executor);
}

aclnnStatus aclnnNsaCompressGrad(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                 aclrtStream stream) {
    return launch_executor("aclnnNsaCompressGrad", workspace, workspaceSize, executor, stream);
}

}  // extern "C"
