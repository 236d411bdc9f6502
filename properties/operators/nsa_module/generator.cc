// The generator of the NSA module: which shapes and data are drawn how often, what a case is
// called, and which classes a run must reach.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "properties/operators/nsa_module/case.h"

namespace attncheck::properties::nsa_module {
namespace {

using Int = std::int64_t;

struct Windows {
    Int l, d, select;
};

void sample_windows(Random& random, Spec& spec) {
    const auto w = random.pick<Windows>({{16, 16, 16},
                                         {16, 16, 16},
                                         {32, 16, 32},
                                         {32, 16, 32},
                                         {32, 16, 64},
                                         {16, 16, 32},
                                         {32, 32, 32},
                                         {48, 16, 48},
                                         {48, 32, 64},
                                         {64, 16, 64},
                                         {32, 16, 48}});
    auto& n = spec.numbers;
    n[kBlock] = w.l;
    n[kStride] = w.d;
    n[kSelect] = w.select;
    n[kCount] = random.pick<Int>({1, 1, 1, 2, 2, 2, 3, 4});
    const Int reach = w.select * n[kCount];
    n[kWindow] = random.chance(30) ? random.pick<Int>({1, 2, 16, 17})
                                   : random.between(1, std::max<Int>(2, reach));
    if (random.chance(10)) n[kWindow] = 512;
}

/// Around the lengths at which blocks, strides and lists begin and end.
Int sample_length(Random& random, const Spec& spec) {
    const Int l = spec.numbers[kBlock], select = spec.numbers[kSelect],
              count = spec.numbers[kCount];
    switch (random.between(0, 7)) {
        case 0:
            return random.between(1, l - 1);  // no block
        case 1:
            return l - random.between(0, 1);
        case 2:
            return select * random.between(1, count + 1);
        case 3:
            return select * random.between(1, count) + random.pick<Int>({-1, 1});
        case 4:
            return random.between(1, 4);
        case 5:
            return random.between(1, select * (count + 1));
        default:  // more blocks than a list has room for
            return select * count + random.between(1, select * 2);
    }
}

/// One sequence of so many blocks that scores decide which are listed: those of the first blocks
/// are zero or tied as long as a token sees few compressed ones.
void sample_selection(Random& random, Spec& spec) {
    auto& n = spec.numbers;
    n[kKvHeads] = random.pick<Int>({1, 2});
    n[kGroup] = random.pick<Int>({1, 2});
    n[kDim] = n[kValueDim] = 128;
    n[kCount] = random.between(1, 2);
    const Int longest = n[kKvHeads] * n[kGroup] > 2 ? 130 : 180;
    spec.lists[0] = {std::min(longest, n[kSelect] * random.between(4, 8) + random.between(0, 15))};
    if (random.chance(50)) spec.lists[0].push_back(random.between(0, 5));
}

/// Multiply-adds of the three branches.
Int cost(const Spec& spec) {
    const auto& n = spec.numbers;
    Int pairs = 0;
    for (const Int length : spec.lists[0])
        pairs += length * (length / 2 + std::min(length, n[kSelect] * n[kCount]) + 16);
    return pairs * n[kKvHeads] * n[kGroup] * (n[kDim] + n[kValueDim]);
}

void fit_budget(Random& random, Spec& spec, Int budget) {
    auto& n = spec.numbers;
    auto& lengths = spec.lists[0];
    // Heads first, lengths last: blocks that a list leaves out need long sequences.
    for (int tries = 0; tries < 100 && cost(spec) > budget; ++tries) {
        const auto longest = std::max_element(lengths.begin(), lengths.end());
        switch (random.between(0, tries < 12 ? 2 : 3)) {
            case 0:
                if (n[kGroup] > 1 + random.between(0, 1)) n[kGroup] /= 2;
                break;
            case 1:
                if (n[kKvHeads] > 1 + random.between(0, 1)) --n[kKvHeads];
                break;
            case 2:
                if (lengths.size() > 2) lengths.erase(longest);
                break;
            default:
                *longest -= *longest / 4;
        }
    }
}

void sample_data(Random& random, Spec& spec) {
    auto& n = spec.numbers;
    spec.seed = random.next() >> 40;
    spec.recipe = random.pick<Recipe>({Recipe::normal, Recipe::normal, Recipe::normal,
                                       Recipe::normal, Recipe::ints, Recipe::ones, Recipe::onehot,
                                       Recipe::signs, Recipe::cancelling});
    n[kGates] = random.pick<Int>({0, 1, 1, 1, 1, 1, 1, 2, 3, 4});
    if (random.chance(4)) n[kGates] = static_cast<Int>(Gates::closed);
    n[kWeights] = random.pick<Int>({0, 0, 0, 0, 1, 2});
    n[kLogits] = random.chance(10);
    n[kScale] =
        static_cast<Int>(random.chance(75) ? ScaleKind::rsqrt
                                           : random.pick({ScaleKind::eighth, ScaleKind::tenth,
                                                          ScaleKind::zero, ScaleKind::negative}));
    if (n[kLogits]) n[kScale] = static_cast<Int>(ScaleKind::one);
}

}  // namespace

Spec sample(const Schema& schema, Random& random, int size) {
    Spec spec(schema);
    auto& n = spec.numbers;
    n[kDtype] = random.between(0, 1);
    n[kKvHeads] = random.pick<Int>({1, 1, 2, 2, 3});
    n[kGroup] = random.pick<Int>({1, 2, 2, 4});
    n[kDim] = random.chance(85) ? 128 : 192;
    n[kValueDim] = n[kDim] == 192 && random.chance(60) ? 192 : 128;
    sample_windows(random, spec);
    const Int sequences = random.pick<Int>({1, 1, 2, 2, 3, 4});
    for (Int b = 0; b < sequences; ++b)
        spec.lists[0].push_back(sequences > 1 && random.chance(10) ? 0
                                                                   : sample_length(random, spec));
    n[kBeyond] = random.chance(15) ? random.between(1, 5) : 0;
    n[kTied] = random.between(0, 1);
    n[kForced] = random.chance(35);
    sample_data(random, spec);
    fit_budget(random, spec, 2'500'000 + 60'000 * static_cast<Int>(size));
    if (random.chance(20)) sample_selection(random, spec);
    if (std::all_of(spec.lists[0].begin(), spec.lists[0].end(), [](Int s) { return s == 0; }) &&
        n[kBeyond] == 0)
        spec.lists[0].back() = n[kBlock];
    return spec;
}

std::vector<std::string> labels_of(const Spec& spec) {
    const auto& n = spec.numbers;
    const auto& lengths = spec.lists[0];
    const auto name = [&](Field field) {
        return spec.schema->numbers[field].names[static_cast<std::size_t>(n[field])];
    };
    std::vector<std::string> out{name(kDtype), "gates:" + name(kGates), "weights:" + name(kWeights),
                                 "logits:" + name(kLogits),
                                 fmt::format("data:{}", name_of(spec.recipe))};
    const auto label = [&](bool applies, const char* text) {
        if (applies) out.emplace_back(text);
    };
    const auto any = [&](const auto& test) {
        return std::any_of(lengths.begin(), lengths.end(), test);
    };
    label(n[kTied] != 0, "tied");
    label(n[kTied] == 0, "untied");
    label(n[kForced] != 0, "forced_blocks");
    label(lengths.size() > 1, "several_sequences");
    label(any([](Int s) { return s == 0; }), "empty_sequence");
    label(any([&](Int s) { return s > 0 && s < n[kBlock]; }), "no_compressed_block");
    label(any([&](Int s) { return s > n[kBlock] && s % n[kStride] != 0; }), "ragged_stride");
    label(any([&](Int s) { return s % n[kSelect] != 0; }), "ragged_select_block");
    label(any([&](Int s) { return s > 0 && s <= n[kSelect] * (n[kCount] - 1); }),
          "fewer_blocks_than_count");
    label(any([&](Int s) { return s > n[kSelect] * n[kCount]; }), "blocks_left_out");
    label(any([&](Int s) { return s > n[kWindow]; }), "window_slides");
    label(n[kBlock] == n[kStride], "no_overlap");
    label(n[kBlock] > n[kStride], "overlap");
    label(n[kBlock] % n[kStride] != 0, "block_no_multiple_of_stride");
    label(n[kSelect] > n[kBlock], "select_larger_than_block");
    label(n[kCount] > 1, "several_blocks");
    label(n[kKvHeads] > 1, "several_kv_heads");
    label(n[kGroup] > 1, "grouped_heads");
    label(n[kValueDim] < n[kDim], "value_dim_smaller");
    label(n[kDim] > 128, "dim_192");
    label(n[kBeyond] > 0, "beyond_last");
    return out;
}

std::vector<RequiredClass> required_classes() {
    std::vector<RequiredClass> required{{"fp16", 25},
                                        {"bf16", 25},
                                        {"tied", 25},
                                        {"untied", 25},
                                        {"forced_blocks", 10},
                                        {"several_sequences", 30},
                                        {"empty_sequence", 4},
                                        {"no_compressed_block", 20},
                                        {"ragged_stride", 15},
                                        {"ragged_select_block", 30},
                                        {"fewer_blocks_than_count", 10},
                                        {"blocks_left_out", 15},
                                        {"window_slides", 25},
                                        {"no_overlap", 15},
                                        {"overlap", 30},
                                        {"block_no_multiple_of_stride", 3},
                                        {"select_larger_than_block", 15},
                                        {"several_blocks", 40},
                                        {"several_kv_heads", 20},
                                        {"grouped_heads", 30},
                                        {"value_dim_smaller", 2},
                                        {"dim_192", 6},
                                        {"beyond_last", 5}};
    for (const char* gates : {"half", "random", "compress", "select", "window"})
        required.push_back({fmt::format("gates:{}", gates), 3});
    required.push_back({"gates:closed", 1});
    for (const char* weights : {"recipe", "onehot", "mean"})
        required.push_back({fmt::format("weights:{}", weights), 4});
    for (const char* logits : {"plain", "lattice"})
        required.push_back({fmt::format("logits:{}", logits), 4});
    for (const char* recipe : {"ints", "ones", "onehot", "signs", "normal", "cancelling"})
        required.push_back({fmt::format("data:{}", recipe), 3});
    return required;
}

}  // namespace attncheck::properties::nsa_module
