// What few cases have and kernels have been wrong on: it is drawn often enough to be met in every run.
#include <gtest/gtest.h>

#include <algorithm>

#include "properties/operators/catalogue.h"

namespace attncheck::properties {
namespace {

/// How many of a run's cases are so.
template <class Is>
int count_of(const char* op, Is&& is) {
    constexpr int kCases = 4000, kSizes = 100;
    Random random(11);
    int count = 0;
    for (int k = 0; k < kCases; ++k) count += is(find_operator(op)->sample(random, k % kSizes, Profile::ascend910b));
    return count;
}

bool has_layout(const Spec& spec, const char* tensor, Layout layout) {
    return spec.layouts[static_cast<std::size_t>(spec.schema->tensor(tensor))] == layout;
}

// out.sum().backward() hands over one number for all elements, expand() over the batch one for all batches.
TEST(RareDraws, GradientsOfSums) {
    EXPECT_GE(count_of("attention_grad", [](const Spec& spec) { return has_layout(spec, "dout", Layout::one_element); }), 15);
    EXPECT_GE(count_of("flash_attention_score_grad", [](const Spec& spec) { return has_layout(spec, "dy", Layout::one_element); }), 15);
    const auto is_of_batches = [](const Spec& spec) { return spec.lists[0].size() > 1 && has_layout(spec, "key", Layout::one_row); };
    EXPECT_GE(count_of("attention", is_of_batches), 3);
}

// One new token for each sequence, one of them behind many keys.
TEST(RareDraws, DecodingOfPackedSequences) {
    const auto decodes = [](const Spec& spec) {
        return spec.lists[0].size() > 1 && std::ranges::all_of(spec.lists[0], [](std::int64_t q) { return q == 1; }) &&
               std::ranges::any_of(spec.lists[1].begin() + 1, spec.lists[1].end(), [](std::int64_t kv) { return kv > 256; });
    };
    EXPECT_GE(count_of("attention", decodes), 20);
    EXPECT_GE(count_of("flash_attention_score", decodes), 20);
}

TEST(RareDraws, LargeMerges) {
    const auto rows = [](const Spec& spec) { return spec.number("rows") * spec.number("heads"); };
    EXPECT_GE(count_of("attention_merge", [&](const Spec& spec) { return spec.number("rows") > 1024; }), 10);
    EXPECT_GE(count_of("attention_merge", [&](const Spec& spec) { return spec.number("dim") > 256; }), 10);
    EXPECT_GE(count_of("attention_merge", [&](const Spec& spec) { return rows(spec) > 65'536; }), 1);
}

TEST(RareDraws, ManyHeads) {
    const auto heads = [](const Spec& spec) { return spec.number("kv_heads") * spec.number("group") > 128; };
    EXPECT_GE(count_of("flash_attention_score", [&](const Spec& spec) { return heads(spec) && spec.number("pse") >= 9; }), 3);
    EXPECT_GE(count_of("flash_attention_score", [&](const Spec& spec) { return heads(spec) && spec.number("pse") == 0; }), 3);
}

}  // namespace
}  // namespace attncheck::properties
