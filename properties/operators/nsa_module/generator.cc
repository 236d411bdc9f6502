// The generator of the NSA module: which shapes and data are drawn how often, what a case is
// called, and which classes a run must reach.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "properties/case/attention_draws.h"
#include "properties/operators/labels.h"
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
    const Int heads = random.pick<Int>({1, 1, 2, 3});
    n[kKvHeads] = heads == 3 ? 2 : 1;
    n[kGroup] = heads == 2 ? 2 : 1;
    n[kDim] = n[kValueDim] = 128;
    n[kCount] = random.between(1, 2);
    const Int longest = heads > 1 ? 130 : 180;
    spec.lists[0] = {std::min(longest, n[kSelect] * random.between(4, 8) + random.between(0, 15))};
    if (random.chance(50)) spec.lists[0].push_back(random.between(0, 5));
}

/// More query heads of a key head, or longer blocks, than a tile holds, and blocks that scores decide on.
void sample_beyond_tiles(Random& random, Spec& spec) {
    auto& n = spec.numbers;
    const bool has_group = random.chance(50);
    n[kKvHeads] = 1;
    n[kGroup] = has_group ? 16 : 1;
    n[kDim] = n[kValueDim] = 128;
    n[kBlock] = has_group ? 16 : random.pick<Int>({80, 96, 128});
    n[kStride] = 16;
    n[kSelect] = has_group ? 16 : random.pick<Int>({n[kBlock], 128});
    n[kCount] = 1;
    n[kWindow] = random.between(1, 40);
    const Int blocks = has_group ? random.between(3, 4) : 2;
    spec.lists[0] = {blocks * n[kSelect] + random.pick<Int>({0, 0, 1, 5})};
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
    fit_budget(spec, {.most = budget, .cost = cost, .tries = 100}, [&](int tries) {
        const auto longest = std::max_element(lengths.begin(), lengths.end());
        switch (random.between(0, tries < 6 ? 2 : 3)) {
            case 0:
                if (n[kGroup] > 1 + random.between(0, 1)) n[kGroup] /= 2;
                break;
            case 1:
                if (n[kKvHeads] > 1 + random.between(0, 1)) --n[kKvHeads];
                break;
            case 2:
                if (lengths.size() > 1 + static_cast<std::size_t>(random.between(0, 1)))
                    lengths.erase(longest);
                break;
            default:
                *longest -= *longest / 4;
        }
    });
}

void sample_data(Random& random, Spec& spec) {
    auto& n = spec.numbers;
    using enum Recipe;
    draw_data(spec, random,
              {{normal, 4}, {ints, 1}, {ones, 1}, {onehot, 1}, {signs, 1}, {cancelling, 1}});
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

Spec sample(const Schema& schema, Random& random, int size, Profile) {
    Spec spec(schema);
    auto& n = spec.numbers;
    n[kDtype] = random.between(0, 1);
    n[kKvHeads] = random.pick<Int>({1, 1, 2, 2, 2, 3});
    n[kGroup] = random.pick<Int>({1, 2, 2, 2, 4});
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
    fit_budget(random, spec, 600'000 + 20'000 * static_cast<Int>(size));
    if (random.chance(10)) sample_selection(random, spec);
    if (random.chance(2)) sample_beyond_tiles(random, spec);
    if (std::all_of(spec.lists[0].begin(), spec.lists[0].end(), [](Int s) { return s == 0; }) &&
        n[kBeyond] == 0)
        spec.lists[0].back() = n[kBlock];
    return spec;
}

std::vector<std::string> labels_of(const Spec& spec) {
    const auto& n = spec.numbers;
    const auto any = [&](const auto& test) { return std::ranges::any_of(spec.lists[0], test); };
    Labels labels(spec);
    labels.add(value_name(spec.schema->numbers[kDtype], n[kDtype]));
    for (const char* field : {"gates", "weights", "logits"}) labels.value_of(field);
    labels.add(fmt::format("data:{}", name_of(spec.recipe)));
    labels.add(n[kTied] != 0, "tied");
    labels.add(n[kTied] == 0, "untied");
    labels.add(n[kForced] != 0, "forced_blocks");
    labels.add(spec.lists[0].size() > 1, "several_sequences");
    labels.add(any([](Int s) { return s == 0; }), "empty_sequence");
    labels.add(any([&](Int s) { return s > 0 && s < n[kBlock]; }), "no_compressed_block");
    labels.add(any([&](Int s) { return s > n[kBlock] && s % n[kStride] != 0; }), "ragged_stride");
    labels.add(any([&](Int s) { return s % n[kSelect] != 0; }), "ragged_select_block");
    labels.add(any([&](Int s) { return s > 0 && s <= n[kSelect] * (n[kCount] - 1); }),
               "fewer_blocks_than_count");
    labels.add(any([&](Int s) { return s > n[kSelect] * n[kCount]; }), "blocks_left_out");
    labels.add(any([&](Int s) { return s > n[kWindow]; }), "window_slides");
    labels.add(n[kBlock] == n[kStride], "no_overlap");
    labels.add(n[kBlock] > n[kStride], "overlap");
    labels.add(n[kBlock] % n[kStride] != 0, "block_no_multiple_of_stride");
    labels.add(n[kSelect] > n[kBlock], "select_larger_than_block");
    labels.add(n[kCount] > 1, "several_blocks");
    labels.add(n[kKvHeads] > 1, "several_kv_heads");
    labels.add(n[kGroup] > 1, "grouped_heads");
    labels.add(n[kValueDim] < n[kDim], "value_dim_smaller");
    labels.add(n[kDim] > 128, "dim_192");
    labels.add(n[kBeyond] > 0, "beyond_last");
    return labels.take();
}

std::vector<RequiredClass> required_classes() {
    return Required(description())
        .share(40, {"several_blocks"})
        .share(30, {"several_sequences", "ragged_select_block", "overlap", "grouped_heads"})
        .share(25, {"fp16", "bf16", "tied", "untied", "window_slides"})
        .share(20, {"no_compressed_block", "several_kv_heads"})
        .share(15, {"ragged_stride", "blocks_left_out", "no_overlap", "select_larger_than_block"})
        .share(10, {"forced_blocks", "fewer_blocks_than_count"})
        .share(6, {"dim_192"})
        .share(5, {"beyond_last"})
        .share(4, {"empty_sequence"})
        .share(3, {"block_no_multiple_of_stride"})
        .share(2, {"value_dim_smaller"})
        .share(3, "gates", {"half", "random", "compress", "select", "window"})
        .share(1, {"gates:closed"})
        .values(4, "weights")
        .values(4, "logits")
        .share(3, "data", {"ints", "ones", "onehot", "signs", "normal", "cancelling"})
        .take();
}

}  // namespace attncheck::properties::nsa_module
