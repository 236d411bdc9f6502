// The documented type of every operator's functions in C++11 (parameter lists of the documents):
// the C calling convention hides an interchanged parameter, and with the vendor's own headers on
// the path this file compiles just the same.
#include <cstdint>
#include <type_traits>

#include "acl/acl.h"
#include "aclnnop/aclnn_flash_attention_score.h"
#include "aclnnop/aclnn_flash_attention_score_grad.h"
#include "aclnnop/aclnn_nsa_compress.h"
#include "aclnnop/aclnn_nsa_compress_attention.h"
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "aclnnop/aclnn_nsa_selected_attention.h"
#include "aclnnop/aclnn_nsa_selected_attention_grad.h"

namespace {

typedef const aclTensor* In;  // most outputs too
typedef aclTensor* Out;
typedef const aclIntArray* Array;
typedef int64_t Int;
typedef double Real;
typedef char* Text;

template <class... Parameters>
using FirstPhase = aclnnStatus (*)(Parameters..., uint64_t*, aclOpExecutor**);
using SecondPhase = aclnnStatus (*)(void*, uint64_t, aclOpExecutor*, aclrtStream);

#define HAS_PHASES(api, ...)                                                                      \
    static_assert(std::is_same<decltype(&api##GetWorkspaceSize), FirstPhase<__VA_ARGS__>>::value, \
                  "first phase of " #api);                                                        \
    static_assert(std::is_same<decltype(&api), SecondPhase>::value, "second phase of " #api)

HAS_PHASES(aclnnNsaCompress, In, In, Array, Text, Int, Int, Int, Out);
HAS_PHASES(aclnnNsaCompressGrad, In, In, In, Array, Int, Int, Int, Text, In, In);
HAS_PHASES(aclnnNsaSelectedAttention, In, In, In, In, In, Array, Array, Real, Int, Text, Int, Int,
           Int, In, In, In);
HAS_PHASES(aclnnNsaSelectedAttentionGrad, In, In, In, In, In, In, In, In, Array, Array, In, Real,
           Int, Int, Int, Text, Int, In, In, In);
HAS_PHASES(aclnnNsaCompressAttention, In, In, In, In, In, Array, Array, Array, Real, Int, Text, Int,
           Int, Int, Int, Int, In, In, In, In);
HAS_PHASES(aclnnFlashAttentionScore, In, In, In, In, In, In, In, Array, Real, Real, Int, Int, Int,
           Text, Int, Int, In, In, In, In);
HAS_PHASES(aclnnFlashAttentionScoreV2, In, In, In, In, In, In, In, Array, Array, Array, Real, Real,
           Int, Int, Int, Text, Int, Int, Int, In, In, In, In);
HAS_PHASES(aclnnFlashAttentionVarLenScore, In, In, In, In, In, In, In, Array, Array, Array, Real,
           Real, Int, Int, Int, Text, Int, Int, In, In, In, In);
HAS_PHASES(aclnnFlashAttentionVarLenScoreV2, In, In, In, In, In, In, In, Array, Array, Array, Array,
           Array, Real, Real, Int, Int, Int, Text, Int, Int, Int, In, In, In, In);
HAS_PHASES(aclnnFlashAttentionVarLenScoreV3, In, In, In, In, In, In, In, In, In, Array, Array,
           Array, Array, Array, Real, Real, Int, Int, Int, Text, Int, Int, Int, In, In, In, In);
HAS_PHASES(aclnnFlashAttentionVarLenScoreV4, In, In, In, In, In, In, In, Array, Array, Array, Real,
           Real, Int, Int, Int, Text, Int, Int, Text, In, In, In, In);
HAS_PHASES(aclnnFlashAttentionScoreGrad, In, In, In, In, In, In, In, In, In, In, In, In, Array,
           Real, Real, Int, Int, Int, Text, Int, Int, In, In, In, In);
HAS_PHASES(aclnnFlashAttentionScoreGradV2, In, In, In, In, In, In, In, In, In, In, In, In, Array,
           Array, Array, Real, Real, Int, Int, Int, Text, Int, Int, Int, In, In, In, In);
HAS_PHASES(aclnnFlashAttentionUnpaddingScoreGrad, In, In, In, In, In, In, In, In, In, In, In, In,
           Array, Array, Array, Real, Real, Int, Int, Int, Text, Int, Int, In, In, In, In);
HAS_PHASES(aclnnFlashAttentionUnpaddingScoreGradV2, In, In, In, In, In, In, In, In, In, In, In, In,
           Array, Array, Array, Array, Array, Real, Real, Int, Int, Int, Text, Int, Int, Int, In,
           In, In, In);
HAS_PHASES(aclnnFlashAttentionUnpaddingScoreGradV3, In, In, In, In, In, In, In, In, In, In, In, In,
           In, In, Array, Array, Array, Array, Array, Real, Real, Int, Int, Int, Text, Int, Int,
           Int, In, In, In, In, In, In);
HAS_PHASES(aclnnFlashAttentionUnpaddingScoreGradV4, In, In, In, In, In, In, In, In, In, In, In, In,
           Array, Array, Array, Real, Real, Int, Int, Int, Text, Int, Int, In, In, In, In, Text);

}  // namespace
