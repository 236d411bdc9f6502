// The first phases that the adapter calls, as the vendor documents them (acl_host.md 3). The
// calling convention does not reveal a wrong order of parameters, so where the headers in use
// declare a function its type is compared with the one here.
#pragma once

#include <cstdint>
#include <type_traits>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"

namespace attncheck::aclnn_adapter {

using Tensor = const aclTensor*;
using Array = const aclIntArray*;
using Text = char*;
using Integer = std::int64_t;
using Real = double;

/// Parameters of a first phase, followed by the size of the workspace and the executor.
template <class... Parameters>
using FirstPhase = aclnnStatus(Parameters..., std::uint64_t*, aclOpExecutor**);
using SecondPhase = aclnnStatus(void*, std::uint64_t, aclOpExecutor*, aclrtStream);

/// layout, compressBlockSize, compressStride, actSeqLenType; the output is not const.
using NsaCompress = FirstPhase<Tensor, Tensor, Array, Text, Integer, Integer, Integer, aclTensor*>;

/// compressBlockSize, compressStride, actSeqLenType, layout.
using NsaCompressGrad =
    FirstPhase<Tensor, Tensor, Tensor, Array, Integer, Integer, Integer, Text, Tensor, Tensor>;

/// scaleValue, headNum, inputLayout, sparseMode, selectedBlockSize, selectedBlockCount.
using NsaSelectedAttention =
    FirstPhase<Tensor, Tensor, Tensor, Tensor, Tensor, Array, Array, Real, Integer, Text, Integer,
               Integer, Integer, Tensor, Tensor, Tensor>;

/// scaleValue, selectedBlockSize, selectedBlockCount, headNum, inputLayout, sparseMode.
using NsaSelectedAttentionGrad =
    FirstPhase<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Array, Array, Tensor,
               Real, Integer, Integer, Integer, Text, Integer, Tensor, Tensor, Tensor>;

/// scaleValue, headNum, inputLayout, sparseMode, compress block and stride, select block and count.
using NsaCompressAttention =
    FirstPhase<Tensor, Tensor, Tensor, Tensor, Tensor, Array, Array, Array, Real, Integer, Text,
               Integer, Integer, Integer, Integer, Integer, Tensor, Tensor, Tensor, Tensor>;

// FlashAttention: query, key, value, pse, dropMask, paddingMask, attenMask; arrays; scaleValue,
// keepProb, preTokens, nextTokens, headNum, inputLayout, one without effect, sparseMode; outputs.
using FlashAttentionScore =
    FirstPhase<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Array, Real, Real, Integer,
               Integer, Integer, Text, Integer, Integer, Tensor, Tensor, Tensor, Tensor>;
/// Two start indices, and pseType after sparseMode.
using FlashAttentionScoreV2 =
    FirstPhase<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Array, Array, Array, Real,
               Real, Integer, Integer, Integer, Text, Integer, Integer, Integer, Tensor, Tensor,
               Tensor, Tensor>;
using FlashAttentionVarLenScore =
    FirstPhase<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Array, Array, Array, Real,
               Real, Integer, Integer, Integer, Text, Integer, Integer, Tensor, Tensor, Tensor,
               Tensor>;
using FlashAttentionVarLenScoreV2 =
    FirstPhase<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Array, Array, Array, Array,
               Array, Real, Real, Integer, Integer, Integer, Text, Integer, Integer, Integer,
               Tensor, Tensor, Tensor, Tensor>;
/// A rope after query and after key.
using FlashAttentionVarLenScoreV3 =
    FirstPhase<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Array, Array,
               Array, Array, Array, Real, Real, Integer, Integer, Integer, Text, Integer, Integer,
               Integer, Tensor, Tensor, Tensor, Tensor>;
/// softmaxOutLayout before the outputs.
using FlashAttentionVarLenScoreV4 =
    FirstPhase<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Array, Array, Array, Real,
               Real, Integer, Integer, Integer, Text, Integer, Integer, Text, Tensor, Tensor,
               Tensor, Tensor>;

// Gradients: query, key, value, dy, pse, three masks, softmaxMax, softmaxSum, softmaxIn,
// attentionIn; then as the forward; outputs dq, dk, dv, dpse.
using FlashAttentionScoreGrad =
    FirstPhase<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
               Tensor, Tensor, Array, Real, Real, Integer, Integer, Integer, Text, Integer, Integer,
               Tensor, Tensor, Tensor, Tensor>;
using FlashAttentionScoreGradV2 =
    FirstPhase<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
               Tensor, Tensor, Array, Array, Array, Real, Real, Integer, Integer, Integer, Text,
               Integer, Integer, Integer, Tensor, Tensor, Tensor, Tensor>;
using FlashAttentionUnpaddingScoreGrad =
    FirstPhase<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
               Tensor, Tensor, Array, Array, Array, Real, Real, Integer, Integer, Integer, Text,
               Integer, Integer, Tensor, Tensor, Tensor, Tensor>;
using FlashAttentionUnpaddingScoreGradV2 =
    FirstPhase<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
               Tensor, Tensor, Array, Array, Array, Array, Array, Real, Real, Integer, Integer,
               Integer, Text, Integer, Integer, Integer, Tensor, Tensor, Tensor, Tensor>;
/// Ropes after query and key, their gradients after dq and dk.
using FlashAttentionUnpaddingScoreGradV3 =
    FirstPhase<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
               Tensor, Tensor, Tensor, Tensor, Array, Array, Array, Array, Array, Real, Real,
               Integer, Integer, Integer, Text, Integer, Integer, Integer, Tensor, Tensor, Tensor,
               Tensor, Tensor, Tensor>;
/// softmaxInLayout after the outputs.
using FlashAttentionUnpaddingScoreGradV4 =
    FirstPhase<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
               Tensor, Tensor, Array, Array, Array, Real, Real, Integer, Integer, Integer, Text,
               Integer, Integer, Tensor, Tensor, Tensor, Tensor, Text>;

}  // namespace attncheck::aclnn_adapter
