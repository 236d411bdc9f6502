// The generator of compress: which shapes and data are drawn how often, what a case is called, and
// which classes a run must reach.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "properties/operators/nsa_compress/case.h"

namespace attncheck::properties {
namespace {

void sample_windows(Random& random, bool gradient, Spec& spec) {
    const auto pair = random.pick<std::pair<int, int>>({{32, 16},
                                                        {32, 16},
                                                        {48, 32},
                                                        {64, 16},
                                                        {64, 32},
                                                        {128, 16},
                                                        {80, 48},
                                                        {112, 64},
                                                        {16, 16},
                                                        {32, 32},
                                                        {64, 64}});
    spec.numbers[kCmpBlock] = pair.first;
    spec.numbers[kCmpStride] = pair.second;
    if (random.chance(30)) {
        spec.numbers[kCmpBlock] = 16 * random.between(1, 8);
        spec.numbers[kCmpStride] = 16 * random.between(1, spec.numbers[kCmpBlock] / 16);
    }
    if (gradient && spec.numbers[kCmpBlock] <= spec.numbers[kCmpStride]) {
        spec.numbers[kCmpBlock] = std::max<std::int64_t>(spec.numbers[kCmpBlock], 32);
        spec.numbers[kCmpStride] = 16 * random.between(1, spec.numbers[kCmpBlock] / 16 - 1);
    }
}

std::int64_t sample_length(Random& random, std::int64_t block, std::int64_t stride) {
    switch (random.between(0, 9)) {
        case 0:
            return 0;
        case 1:
            return random.between(1, block - 1);
        case 2:
            return block - 1;
        case 3:
            return block;
        case 4:
            return block + stride - 1;
        case 5:
            return block + stride * random.between(1, 3);
        case 6:
            return block + random.between(1, stride - 1);
        case 7:
            return random.between(std::max<std::int64_t>(block - stride + 1, 1), block - 1);
        default:
            return random.between(1, 3 * block);
    }
}

std::int64_t cost(const Spec& spec) {
    const ref::CompressShape shape = compress_shape(spec);
    return (shape.total_blocks() * shape.block + shape.total_tokens) * shape.heads * shape.head_dim;
}

void sample_data(Random& random, Spec& spec) {
    spec.seed = random.next() >> 40;  // short to read; 16 million data sets per shape
    spec.recipe = random.pick<Recipe>(
        {Recipe::normal, Recipe::normal, Recipe::normal, Recipe::normal, Recipe::ints, Recipe::ints,
         Recipe::onehot, Recipe::signs, Recipe::cancelling, Recipe::spiky, Recipe::huge,
         Recipe::huge, Recipe::subnormal, Recipe::subnormal, Recipe::specials});
    if (!random.chance(40)) return;
    for (std::size_t i = 0; i < spec.schema->tensors.size(); ++i) {
        if (!random.chance(50)) continue;
        const bool output = spec.schema->tensors[i].output;
        spec.layouts[i] = static_cast<Layout>(
            random.between(1, static_cast<int>(output ? Layout::spread : Layout::broadcast)));
    }
}

}  // namespace

Spec sample_compress(const Schema& schema, Random& random, int size) {
    const bool gradient = schema.op == "nsa_compress_grad";
    Spec spec(schema);
    spec.numbers[kCmpDtype] = random.between(0, 1);
    sample_windows(random, gradient, spec);
    const std::int64_t block = spec.numbers[kCmpBlock], stride = spec.numbers[kCmpStride];
    spec.numbers[kCmpHeads] = random.chance(70)
                                  ? random.between(1, 4)
                                  : random.pick<std::int64_t>({5, 6, 7, 8, 9, 16, 17, 33, 128});
    spec.numbers[kCmpDim] =
        random.chance(70) ? 16 * random.between(1, 5) : 16 * random.between(1, 16);
    if (random.chance(
            4)) {  // many blocks of little width: partitions over workers, long reductions
        spec.numbers[kCmpHeads] = random.between(1, 2);
        spec.numbers[kCmpDim] = 16;
        spec.lists[0] = {block + stride * random.between(64, 200) + random.between(0, stride - 1)};
        if (random.chance(50))
            spec.lists[0].insert(spec.lists[0].begin(), random.between(0, 2 * block));
        if (random.chance(40)) {  // short and empty ones among them
            const auto extra = random.between(1, 3);
            for (std::int64_t i = 0; i < extra; ++i)
                spec.lists[0].insert(
                    spec.lists[0].begin() + random.between(0, std::ssize(spec.lists[0])),
                    random.chance(50) ? 0 : sample_length(random, block, stride));
        }
    } else {
        const std::int64_t count = random.pick<std::int64_t>({1, 1, 2, 2, 3, 3, 4, 5, 6});
        for (std::int64_t i = 0; i < count; ++i)
            spec.lists[0].push_back(sample_length(random, block, stride));
    }
    if (random.chance(
            4)) {  // extents that coincide hide nothing from a test, but decide wrong branches
        spec.numbers[kCmpBlock] = std::min<std::int64_t>(spec.numbers[kCmpBlock], 48);
        spec.numbers[kCmpStride] = std::min<std::int64_t>(
            spec.numbers[kCmpStride], spec.numbers[kCmpBlock] - (gradient ? 16 : 0));
        spec.numbers[kCmpHeads] = spec.numbers[kCmpBlock];
        spec.numbers[kCmpDim] = 16;
        spec.lists[0].resize(1);
        if (random.chance(40))
            spec.lists[0].insert(spec.lists[0].begin() + random.between(0, 1), 0);
        if (random.chance(20)) spec.lists[0].insert(spec.lists[0].begin(), block);
    }
    spec.numbers[kCmpBeyond] = random.chance(12) ? random.between(1, 40) : 0;
    const bool coincide = spec.numbers[kCmpHeads] == spec.numbers[kCmpBlock];
    const std::int64_t budget =
        coincide ? 300'000
                 : 20'000 + 2'000 * static_cast<std::int64_t>(size);  // products per output tensor
    while (cost(spec) > budget && (spec.numbers[kCmpHeads] > 1 || spec.numbers[kCmpDim] > 16 ||
                                   spec.lists[0].size() > 1)) {
        if (spec.numbers[kCmpHeads] > 1 && random.chance(50))
            spec.numbers[kCmpHeads] = (spec.numbers[kCmpHeads] + 1) / 2;
        else if (spec.numbers[kCmpDim] > 16 && random.chance(50))
            spec.numbers[kCmpDim] -= 16;
        else if (spec.lists[0].size() > 1 && random.chance(20))
            spec.lists[0].erase(spec.lists[0].begin() +
                                random.between(0, std::ssize(spec.lists[0]) - 1));
    }
    if (gradient && random.chance(6)) {
        spec.lists[0].resize(1);
        spec.numbers[kCmpBeyond] = 0;
        spec.numbers[kCmpLengths] = 1;
    }
    if (gradient && random.chance(4)) spec.numbers[kCmpLayoutText] = 1;
    if (spec.lists[0] == std::vector<std::int64_t>(spec.lists[0].size(), 0) &&
        spec.numbers[kCmpBeyond] == 0)
        spec.lists[0].back() = block;
    sample_data(random, spec);
    return spec;
}

std::vector<std::string> compress_labels(const Spec& spec) {
    const ref::CompressShape shape = compress_shape(spec);
    const auto& lengths = shape.seq_lengths;
    std::vector<std::string> out{spec.numbers[kCmpDtype] == 0 ? "fp16" : "bf16",
                                 fmt::format("data:{}", name_of(spec.recipe))};
    const auto any = [&](auto&& test) { return std::any_of(lengths.begin(), lengths.end(), test); };
    const auto label = [&](bool applies, const char* name) {
        if (applies) out.emplace_back(name);
    };
    label(lengths.front() == 0 && lengths.size() > 1, "leading_empty");
    label(lengths.back() == 0 && lengths.size() > 1, "trailing_empty");
    label(lengths.size() > 2 &&
              std::find(lengths.begin() + 1, lengths.end() - 1, 0) != lengths.end() - 1,
          "middle_empty");
    label(any([&](auto s) { return s > 0 && s < shape.block; }), "below_block");
    label(any([&](auto s) { return s == shape.block; }), "exactly_block");
    label(any([&](auto s) { return s > shape.block && s < shape.block + shape.stride; }),
          "just_above_block");
    label(any([&](auto s) { return s > shape.block && (s - shape.block) % shape.stride != 0; }),
          "ragged_tail");
    label(shape.block % shape.stride != 0, "ragged_window");
    label(shape.block == shape.stride, "no_overlap");
    label(shape.block > 2 * shape.stride, "deep_overlap");
    label(spec.numbers[kCmpBeyond] > 0, "beyond_last");
    label(shape.total_blocks() == 0, "no_blocks");
    label(shape.total_blocks() >= 64, "many_blocks");
    label(shape.heads > 1, "multi_head");
    label(shape.heads == 128 || shape.head_dim == 256 || shape.block == 128, "limit_extent");
    label(shape.head_dim % 64 != 0, "dim_tail");
    label(shape.heads == shape.block, "heads_equal_block");
    const auto has = [&](Layout layout) {
        return std::find(spec.layouts.begin(), spec.layouts.end(), layout) != spec.layouts.end();
    };
    label(std::any_of(spec.layouts.begin(), spec.layouts.end(),
                      [](Layout l) { return l != Layout::dense; }),
          "strided");
    label(has(Layout::reversed), "reversed");
    label(has(Layout::broadcast), "broadcast");
    label(spec.numbers.size() > kCmpLengths && spec.numbers[kCmpLengths] == 1, "lengths_absent");
    label(!spec.edits.empty(), kEditedLabel);
    return out;
}

std::vector<RequiredClass> compress_required_classes(bool gradient) {
    std::vector<RequiredClass> required = {{"fp16", 25},
                                           {"bf16", 25},
                                           {"leading_empty", 5},
                                           {"middle_empty", 2},
                                           {"trailing_empty", 3},
                                           {"below_block", 10},
                                           {"exactly_block", 5},
                                           {"just_above_block", 5},
                                           {"ragged_tail", 20},
                                           {"ragged_window", 5},
                                           {"deep_overlap", 10},
                                           {"beyond_last", 5},
                                           {"no_blocks", 1},
                                           {"multi_head", 40},
                                           {"dim_tail", 25},
                                           {"strided", 20},
                                           {"many_blocks", 1},
                                           {"limit_extent", 1},
                                           {"heads_equal_block", 0.5},
                                           {"reversed", 1},
                                           {"broadcast", 1}};
    for (const char* recipe : {"ints", "onehot", "signs", "normal", "cancelling", "spiky", "huge",
                               "subnormal", "specials"})
        required.push_back({fmt::format("data:{}", recipe), 1});
    if (gradient)
        required.push_back({"lengths_absent", 1});
    else
        required.push_back({"no_overlap", 5});
    return required;
}

}  // namespace attncheck::properties
