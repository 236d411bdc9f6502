// The numbers by which the code of an operator reads its fields are those of its description.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "properties/operators/flash_attention/case.h"
#include "properties/operators/nsa_compress/case.h"
#include "properties/operators/nsa_compress_attention/case.h"
#include "properties/operators/nsa_module/case.h"
#include "properties/operators/nsa_selected_attention/case.h"
#include "tests/properties/case/case_line.h"

namespace attncheck::properties {
namespace {

using Numbers = std::vector<std::pair<int, const char*>>;

/// Every field of the description, by its number. A forward has no field that only gradients have.
void expect_numbers(const char* op, const Numbers& numbers) {
    const Schema& schema = find_operator(op)->schema();
    std::size_t found = 0;
    for (const auto& [number, key] : numbers) {
        const int own = schema.number(key);
        if (own < 0) continue;
        EXPECT_EQ(own, number) << op << " " << key;
        ++found;
    }
    EXPECT_EQ(found, schema.numbers.size()) << op << ": a field has no number";
}

TEST(FieldNumbers, NsaCompressAttention) {
    using namespace compress_attention;
    const Numbers numbers{{kDtype, "dtype"}, {kKvHeads, "kv_heads"}, {kGroup, "group"}, {kDim, "dim"},
                          {kValueDim, "value_dim"}, {kBlock, "block"}, {kStride, "stride"},
                          {kSelect, "select"}, {kCount, "count"}, {kMask, "mask"}, {kHides, "hides"},
                          {kTopkMask, "topk_mask"}, {kForces, "forces"}, {kSparse, "sparse"},
                          {kScale, "scale"}, {kLogits, "logits"}, {kBeyondQ, "beyond_q"},
                          {kBeyondCmp, "beyond_cmp"}};
    expect_numbers("nsa_compress_attention", numbers);
}

TEST(FieldNumbers, NsaSelectedAttention) {
    const Numbers numbers{{kSelDtype, "dtype"}, {kSelKvHeads, "kv_heads"}, {kSelGroup, "group"},
                          {kSelDim, "dim"}, {kSelValueDim, "value_dim"}, {kSelBlock, "block"},
                          {kSelCount, "count"}, {kSelMask, "mask"}, {kSelMaskShape, "mask_shape"},
                          {kSelSparse, "sparse"}, {kSelScale, "scale"}, {kSelTopk, "topk"},
                          {kSelLogits, "logits"}, {kSelBeyondQ, "beyond_q"}, {kSelBeyondKv, "beyond_kv"},
                          {kSelStats, "stats"}, {kSelOut, "out"}};
    expect_numbers("nsa_selected_attention", numbers);
    expect_numbers("nsa_selected_attention_grad", numbers);
}

TEST(FieldNumbers, NsaCompress) {
    const Numbers numbers{{kCmpDtype, "dtype"}, {kCmpHeads, "heads"}, {kCmpDim, "dim"}, {kCmpBlock, "block"},
                          {kCmpStride, "stride"}, {kCmpBeyond, "beyond"}, {kCmpLengths, "lengths"},
                          {kCmpLayoutText, "layout"}};
    expect_numbers("nsa_compress", numbers);
    expect_numbers("nsa_compress_grad", numbers);
}

TEST(FieldNumbers, NsaModule) {
    using namespace nsa_module;
    const Numbers numbers{{kDtype, "dtype"}, {kKvHeads, "kv_heads"}, {kGroup, "group"}, {kDim, "dim"},
                          {kValueDim, "value_dim"}, {kBlock, "block"}, {kStride, "stride"},
                          {kSelect, "select"}, {kCount, "count"}, {kWindow, "window"}, {kTied, "tied"},
                          {kForced, "forced"}, {kGates, "gates"}, {kWeights, "weights"}, {kLogits, "logits"},
                          {kScale, "scale"}, {kBeyond, "beyond"}};
    expect_numbers("nsa_module", numbers);
}

TEST(FieldNumbers, FlashAttention) {
    const Numbers numbers{{kFaDtype, "dtype"}, {kFaLayout, "layout"}, {kFaKvHeads, "kv_heads"},
                          {kFaGroup, "group"}, {kFaDim, "dim"}, {kFaValueDim, "value_dim"}, {kFaRope, "rope"},
                          {kFaMask, "mask"}, {kFaMaskForm, "mask_form"}, {kFaSparse, "sparse"},
                          {kFaPre, "pre"}, {kFaNext, "next"}, {kFaTokens, "tokens"}, {kFaPrefix, "prefix"},
                          {kFaPse, "pse"}, {kFaPseType, "pse_type"}, {kFaStart, "start"}, {kFaDrop, "drop"},
                          {kFaKeep, "keep"}, {kFaScale, "scale"}, {kFaLogits, "logits"},
                          {kFaOrder, "stats_order"}, {kFaInert, "precise"}, {kFaBeyondQ, "beyond_q"},
                          {kFaBeyondKv, "beyond_kv"}, {kFaStats, "stats"}, {kFaOut, "out"},
                          {kFaResult, "result"}};
    expect_numbers("flash_attention_score", numbers);
    expect_numbers("flash_attention_score_grad", numbers);
}

}  // namespace
}  // namespace attncheck::properties
