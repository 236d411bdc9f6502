// The generator of compress: which shapes and data are drawn how often, what a case is called, which
// classes a run must reach, and steps to smaller cases that change several fields.
#include <algorithm>
#include <utility>

#include "properties/case/attention_draws.h"
#include "properties/operators/labels.h"
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

/// Two extents or three near their limits at once, which the budget of other cases keeps apart: heads, width and window;
/// tokens, heads and width; sequences and window.
void sample_large(Random& random, Spec& spec) {
    std::int64_t most = 1'500'000;
    const std::int64_t block = spec.numbers[kCmpBlock], stride = spec.numbers[kCmpStride];
    auto& lengths = spec.lists[0];
    auto& dim = spec.numbers[kCmpDim];
    dim = 16 * random.between(1, 16);
    switch (random.between(0, 2)) {
        case 0:
            spec.numbers[kCmpHeads] = random.pick<std::int64_t>({24, 33, 40, 48, 64, 65, 96, 127, 128});
            lengths = {block + stride * random.between(0, 2) + random.between(0, stride - 1)};
            if (random.chance(30)) {  // rows of one token beyond 16384 elements
                spec.numbers[kCmpHeads] = random.pick<std::int64_t>({65, 96, 128});
                dim = 256, lengths = {block}, most = 3'000'000;
            }
            break;
        case 1:
            spec.numbers[kCmpHeads] = random.between(2, 8);
            lengths = {random.between(4097, 4400)};
            if (random.chance(40)) lengths.insert(lengths.begin(), random.between(0, 2 * block));
            break;
        default:
            spec.numbers[kCmpHeads] = random.between(1, 2);
            lengths.clear();
            for (std::int64_t left = random.pick<std::int64_t>({34, 129, 130, 200, 257}); left > 0; --left)
                lengths.push_back(random.chance(30) ? block + random.between(0, stride) : random.between(0, block));
    }
    while (cost(spec) > most && dim > 16) dim -= 16;
}

void sample_data(Random& random, Spec& spec) {
    using enum Recipe;
    draw_data(spec, random,
              {{normal, 4},
               {ints, 2},
               {onehot, 1},
               {signs, 1},
               {cancelling, 1},
               {spiky, 1},
               {huge, 2},
               {subnormal, 2},
               {specials, 1}});
    draw_layouts(spec, random, Layout::broadcast, 40, 50);
}

Spec sample_compress(const Schema& schema, Random& random, int size, Profile) {
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
    // Many blocks of little width: partitions over workers, long reductions.
    if (random.chance(4)) {
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
    // Equal extents (heads == block) select the wrong branch in kernels that compare shapes.
    if (random.chance(4)) {
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
    const bool is_large = random.chance(2);
    if (is_large) sample_large(random, spec);
    spec.numbers[kCmpBeyond] = random.chance(12) ? random.between(1, 40) : 0;
    const bool coincide = spec.numbers[kCmpHeads] == spec.numbers[kCmpBlock];
    const std::int64_t budget =
        is_large   ? 4'000'000
        : coincide ? 300'000
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
    const ref::CompressShape s = compress_shape(spec);
    const auto& lengths = s.seq_lengths;
    const auto any = [&](auto&& test) { return std::any_of(lengths.begin(), lengths.end(), test); };
    Labels labels(spec, {});
    const bool several = lengths.size() > 1;
    labels.add(several && lengths.front() == 0, "leading_empty");
    labels.add(several && lengths.back() == 0, "trailing_empty");
    labels.add(several && std::find(lengths.begin() + 1, lengths.end() - 1, 0) != lengths.end() - 1,
               "middle_empty");
    labels.add(any([&](auto n) { return n > 0 && n < s.block; }), "below_block");
    labels.add(any([&](auto n) { return n == s.block; }), "exactly_block");
    labels.add(any([&](auto n) { return n > s.block && n < s.block + s.stride; }),
               "just_above_block");
    labels.add(any([&](auto n) { return n > s.block && (n - s.block) % s.stride != 0; }),
               "ragged_tail");
    labels.add(s.block % s.stride != 0, "ragged_window");
    labels.add(s.block == s.stride, "no_overlap");
    labels.add(s.block > 2 * s.stride, "deep_overlap");
    labels.add(spec.numbers[kCmpBeyond] > 0, "beyond_last");
    labels.add(s.total_blocks() == 0, "no_blocks");
    labels.add(s.total_blocks() >= 64, "many_blocks");
    labels.add(s.heads > 1, "multi_head");
    labels.add(s.heads == 128 || s.head_dim == 256 || s.block == 128, "limit_extent");
    labels.add(s.head_dim % 64 != 0, "dim_tail");
    labels.add(s.heads == s.block, "heads_equal_block");
    const auto has = [&](Layout layout) {
        return std::ranges::find(spec.layouts, layout) != spec.layouts.end();
    };
    labels.layouts(false);
    labels.add(has(Layout::reversed), "reversed");
    labels.add(has(Layout::broadcast), "broadcast");
    labels.add(spec.numbers.size() > kCmpLengths && spec.numbers[kCmpLengths] == 1,
               "lengths_absent");
    labels.edited();
    return labels.take();
}

std::vector<RequiredClass> compress_required_classes(bool gradient) {
    Required required(compress_description(gradient));
    required.share(40, {"multi_head"})
        .share(25, {"fp16", "bf16", "dim_tail"})
        .share(20, {"ragged_tail", "strided"})
        .share(10, {"below_block", "deep_overlap"})
        .share(5, {"leading_empty", "exactly_block", "just_above_block", "ragged_window",
                   "beyond_last"})
        .share(3, {"trailing_empty"})
        .share(2, {"middle_empty"})
        .share(1, {"no_blocks", "many_blocks", "limit_extent", "reversed", "broadcast"})
        .share(0.5, {"heads_equal_block"})
        .rare(0.2, {"far_strides", "repeated_rows", "reversed_columns"})
        .recipes(1, Recipe::ints);
    return gradient ? required.share(1, {"lengths_absent"}).take()
                    : required.share(5, {"no_overlap"}).take();
}

std::vector<Spec> joint_shrinks(const Spec& spec) {
    const bool gradient = spec.schema == &compress_description(true);
    std::vector<Spec> out;
    const std::int64_t block = spec.numbers[kCmpBlock], stride = spec.numbers[kCmpStride];
    if (spec.numbers[kCmpBeyond] > 0) {  // rows behind the last sequence become part of it
        Spec to = spec;
        to.lists[0].back() += std::exchange(to.numbers[kCmpBeyond], 0);
        out.push_back(to);
        to.lists[0] = {compress_shape(spec).total_tokens};
        out.push_back(to);
    } else if (spec.lists[0].size() > 1) {  // only empty sequences, and one row behind them
        Spec to = spec;
        to.lists[0] = {0};
        to.numbers[kCmpBeyond] = 1;
        out.push_back(to);
    }
    for (std::int64_t b = spec.schema->numbers[kCmpBlock].min; b < block; b += 16)
        for (std::int64_t s = 16; s <= std::min(stride, gradient ? b - 16 : b); s += 16) {
            Spec to = spec;
            to.numbers[kCmpBlock] = b;
            to.numbers[kCmpStride] = s;
            for (auto& length : to.lists[0])
                length = std::max<std::int64_t>(0, length - (block - b));
            out.push_back(to);
            for (std::size_t i = 0; i < to.lists[0].size(); ++i)
                to.lists[0][i] = spec.lists[0][i] * b / block;
            out.push_back(to);
            to.lists[0] = spec.lists[0];
            out.push_back(to);
        }
    for (std::int64_t s = 16; s < stride; s += 16) {  // as many blocks at a smaller stride
        Spec to = spec;
        to.numbers[kCmpStride] = s;
        for (auto& length : to.lists[0]) {
            const std::int64_t over = length - block;
            if (over > 0) length = block + over / stride * s + std::min(over % stride, s - 1);
        }
        out.push_back(to);
    }
    return out;
}

}  // namespace

std::unique_ptr<Operator> make_nsa_compress(bool gradient) {
    return make_operator({.schema = compress_description(gradient),
                          .properties = compress_properties(gradient),
                          .required = compress_required_classes(gradient),
                          .labels = compress_labels,
                          .draw = sample_compress,
                          .joint_shrinks = joint_shrinks,
                          .large_cases = compress_large_cases,
                          .expected = [](const Spec& spec, const ref::RoundingClass& rounding) {
                              return CompressProblem(spec).expected(rounding);
                          }});
}

}  // namespace attncheck::properties
