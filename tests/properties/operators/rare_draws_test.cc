// What few cases have and kernels have been wrong on: it is drawn often enough to be met in every run.
#include <gtest/gtest.h>

#include <algorithm>

#include "properties/operators/catalogue.h"

namespace attncheck::properties {
namespace {

/// How many cases are so: drawn for any law, or for agreement, which has more of some than other laws.
template <class Is>
int count_of(const char* name, Is&& is, bool of_agreement = false) {
    constexpr int kCases = 4000, kSizes = 100;
    const Operator& op = *find_operator(name);
    Random random(11);
    int count = 0;
    for (int k = 0; k < kCases; ++k) {
        Spec spec = op.sample(random, k % kSizes, Profile::ascend910b);
        if (of_agreement) op.properties().front().adapt(spec, random);
        count += is(spec);
    }
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
    EXPECT_GE(count_of("attention_merge", [&](const Spec& spec) { return spec.number("heads") > 64; }), 4);
}

/// Rows of one side behind the first tile of 64, at the widths for which kernels are made.
bool has_wide_tiles(const Spec& spec, std::size_t side) {
    if (spec.number("dim") < 64) return false;
    for (std::size_t b = 0; b < spec.lists[0].size(); ++b)
        if (spec.lists[side][b] > 64 && spec.lists[1 - side][b] > 0) return true;
    return false;
}

TEST(RareDraws, WideHeadsBehindTheFirstTile) {
    for (const char* op : {"attention", "attention_grad", "flash_attention_score", "flash_attention_score_grad"}) {
        EXPECT_GE(count_of(op, [](const Spec& spec) { return has_wide_tiles(spec, 1); }), 200) << op;
        EXPECT_GE(count_of(op, [](const Spec& spec) { return has_wide_tiles(spec, 0); }), 100) << op;
    }
}

TEST(RareDraws, WideHeadsBehindEveryTile) {
    for (const char* op : {"attention", "attention_grad", "flash_attention_score", "flash_attention_score_grad"}) {
        ASSERT_EQ(find_operator(op)->properties().front().name, "agreement");
        for (const std::size_t side : {0u, 1u}) {
            const auto is_long = [&](const Spec& spec) { return spec.number("dim") >= 64 && longest(spec.lists[side]) > 256; };
            EXPECT_GE(count_of(op, is_long, true), 60) << op << ' ' << side;
        }
    }
}

// Padding at either end, or whole blocks: all keys of a tile are hidden in a row that sees others.
TEST(RareDraws, MasksHideWholeTiles) {
    const auto hides_a_tile = [](const Spec& spec) {
        if (spec.number("mask") == 0 || longest(spec.lists[1]) < 65 || longest(spec.lists[1]) > 400) return false;
        const Call call = spec.schema->build(spec);
        const Tensor& mask = call.tensor(call.op == "attention" ? "mask" : "atten_mask");
        const std::uint32_t hidden = call.op == "attention" ? 0 : 1;
        const std::int64_t columns = mask.shape.empty() ? 0 : mask.shape.back(), last = (columns - 1) / 64 * 64;
        if (columns < 65 || mask.bits.empty()) return false;
        for (auto row = mask.bits.begin(); row != mask.bits.end(); row += columns)
            if (std::all_of(row + last, row + columns, [&](std::uint32_t bit) { return (bit != 0) == (hidden != 0); }) &&
                std::any_of(row, row + last, [&](std::uint32_t bit) { return (bit != 0) != (hidden != 0); }))
                return true;
        return false;
    };
    EXPECT_GE(count_of("attention", hides_a_tile), 20);
    EXPECT_GE(count_of("flash_attention_score", hides_a_tile), 20);
}

// The last query of a block that sees its own block to the diagonal.
TEST(RareDraws, SelectedBlocksToTheirEnd) {
    const auto is_so = [](const Spec& spec) {
        return spec.number("block") > 64 && spec.number("sparse") == 2 && spec.number("mask") != 0 && longest(spec.lists[0]) >= spec.number("block");
    };
    EXPECT_GE(count_of("nsa_selected_attention", is_so), 8);
}

// The first channels of the keys are the values.
TEST(RareDraws, LatentDecoding) {
    const auto is_latent = [](const Spec& spec) { return spec.number("values") == 1; };
    EXPECT_GE(count_of("attention_decode", is_latent), 150);
    EXPECT_GE(count_of("attention_decode", [&](const Spec& spec) { return is_latent(spec) && spec.number("dim") == 576; }), 20);
}

// Latent attention has kernels for its own pairs of widths, and a grid has 65,535 of batch and head at most.
TEST(RareDraws, LatentWidthsAndGrids) {
    const auto has_widths = [](std::int64_t dim, std::int64_t value_dim) {
        return [=](const Spec& spec) { return spec.number("dim") == dim && spec.number("value_dim") == value_dim; };
    };
    for (const char* op : {"attention", "attention_grad", "flash_attention_score", "flash_attention_score_grad"})
        EXPECT_GE(count_of(op, has_widths(192, 128)), 15) << op;
    for (const char* op : {"attention", "attention_grad"})  // the documents' have no more than 512
        EXPECT_GE(count_of(op, has_widths(576, 512)), 3) << op;
    EXPECT_GE(count_of("attention", [](const Spec& spec) {
                  return std::ssize(spec.lists[0]) * spec.number("kv_heads") * spec.number("group") > 65'535;
              }), 1);
}

TEST(RareDraws, ManyHeads) {
    const auto heads = [](const Spec& spec) { return spec.number("kv_heads") * spec.number("group") > 128; };
    EXPECT_GE(count_of("flash_attention_score", [&](const Spec& spec) { return heads(spec) && spec.number("pse") >= 9; }), 3);
    EXPECT_GE(count_of("flash_attention_score", [&](const Spec& spec) { return heads(spec) && spec.number("pse") == 0; }), 3);
}

// Two extents near their limits at once: what a budget of cost keeps apart if each is drawn for itself.
TEST(RareDraws, LargeExtentsTogether) {
    const auto both = [](const char* one, std::int64_t least, const char* other, std::int64_t least_of_other) {
        return [=](const Spec& spec) { return spec.number(one) >= least && spec.number(other) >= least_of_other; };
    };
    EXPECT_GE(count_of("attention", both("kv_heads", 8, "value_dim", 128)), 10);
    EXPECT_GE(count_of("attention_grad", both("group", 16, "value_dim", 128)), 4);
    EXPECT_GE(count_of("nsa_selected_attention", both("count", 12, "kv_heads", 8)), 1);
    EXPECT_GE(count_of("nsa_compress_attention", both("count", 12, "kv_heads", 8)), 1);
}

// Ends of tables that few callers reach: channels behind 768, 64 query heads of one of several key heads, 256 rows of a
// batch that decodes, a second sequence behind 1024; of the module large groups and long blocks.
TEST(RareDraws, EndsOfTables) {
    EXPECT_GE(count_of("attention", [](const Spec& spec) { return spec.number("dim") > 768; }), 2);
    EXPECT_GE(count_of("attention_grad", [](const Spec& spec) { return spec.number("group") > 64 && spec.number("kv_heads") > 1; }), 6);
    EXPECT_GE(count_of("attention_decode", [](const Spec& spec) { return spec.lists[0][0] * spec.number("group") >= 256; }), 14);
    EXPECT_GE(count_of("attention", [](const Spec& spec) { return spec.lists[0].size() > 1025; }), 15);
    EXPECT_GE(count_of("nsa_module", [](const Spec& spec) { return spec.number("group") > 8; }), 40);
    EXPECT_GE(count_of("nsa_module", [](const Spec& spec) { return spec.number("block") > 64; }), 25);
}

// Rows behind the second 1024 of a compressed bias.
TEST(RareDraws, LongCompressedBiases) {
    const auto is_long = [](const Spec& spec) { return value_name(spec.schema->numbers[static_cast<std::size_t>(spec.schema->number("pse"))], spec.number("pse")).starts_with("compressed") && spec.lists[0][0] > 2048; };
    EXPECT_GE(count_of("flash_attention_score_grad", is_long), 4);
}

// Tensors that are padded to a whole tile: rows behind the last sequence that fill one.
TEST(RareDraws, RowsBehindTheLastTile) {
    const auto has_rows = [](const char* field) { return [field](const Spec& spec) { return spec.number(field) > 64; }; };
    EXPECT_GE(count_of("flash_attention_score", has_rows("beyond_q")), 8);
    EXPECT_GE(count_of("flash_attention_score_grad", has_rows("beyond_kv")), 8);
    EXPECT_GE(count_of("nsa_selected_attention", has_rows("beyond_q")), 15);
    EXPECT_GE(count_of("nsa_compress_attention", has_rows("beyond_cmp")), 15);
}

TEST(RareDraws, LargeGroupsWithLongLists) {
    EXPECT_GE(count_of("nsa_selected_attention", [](const Spec& spec) { return spec.number("group") > 8 && spec.number("count") > 16; }), 30);
}

// Sequences that begin behind what an index of 16 bits reaches.
TEST(RareDraws, LateKeysOfALaterSequence) {
    EXPECT_GE(count_of("flash_attention_score", [](const Spec& spec) {
                  return spec.lists[0].size() == 2 && spec.lists[1][0] >= 65'536 && spec.lists[0][1] > 0; }), 2);
}

}  // namespace
}  // namespace attncheck::properties
