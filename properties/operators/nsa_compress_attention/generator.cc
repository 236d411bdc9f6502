// The generator of compress attention: which shapes, masks and data are drawn how often, what a
// case is called, and which classes a run must reach.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "properties/case/attention_draws.h"
#include "properties/operators/labels.h"
#include "properties/operators/nsa_compress_attention/case.h"

namespace attncheck::properties::compress_attention {
namespace {

using Int = std::int64_t;

constexpr Int kManyBlocks = 32, kWideRow = 1 << 14;

Int cost(const Spec& spec) { return attention_cost_of(spec, 8); }

void sample_heads(Random& random, Spec& spec) {
    auto& n = spec.numbers;
    n[kKvHeads] = random.chance(40) ? 1 : random.pick<Int>({2, 2, 2, 3, 4, 5});
    n[kGroup] = random.pick<Int>({1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 16, 32, 64});
    n[kDim] = random.chance(80)
                  ? random.pick<Int>({1, 2, 3, 4, 7, 8, 15, 16, 17, 24, 32, 33, 48, 63, 64, 65, 80})
                  : random.pick<Int>({96, 127, 128, 129, 192, 256, 511, 512, 768, random.between(257, 768)});
    n[kValueDim] =
        random.chance(50) ? n[kDim] : random.between(1, std::min<Int>(n[kDim], 2 + n[kDim] / 2));
}

void sample_windows(Random& random, Spec& spec) {
    // M = l'/d of 1, 2, 3, 4, 5, 6, 8 with N = floor(l/d) of 1, 2, 3, 4, 5, 8.
    const auto [block, stride, select] = random.pick<std::array<Int, 3>>(
        {{16, 16, 16},   {16, 16, 32}, {16, 16, 128},  {16, 16, 48},   {16, 16, 64},
         {32, 16, 32},   {32, 16, 48}, {32, 16, 64},   {32, 16, 64},   {32, 16, 128},
         {32, 32, 32},   {48, 32, 64}, {48, 16, 64},   {64, 16, 64},   {48, 48, 96},
         {32, 32, 128},  {64, 16, 96}, {80, 16, 80},   {128, 16, 128}, {64, 64, 64},
         {128, 64, 128}, {96, 48, 96}, {112, 16, 128}, {48, 32, 96},   {64, 32, 128}});
    spec.numbers[kBlock] = block;
    spec.numbers[kStride] = stride;
    spec.numbers[kSelect] = select;
    if (random.chance(20)) {  // any that is legal: stride <= block <= select, a multiple of stride
        constexpr Int kMost = 128;
        const Int any = 16 * random.between(1, 8);
        Int step = 16 * random.between(1, std::min<Int>(4, any / 16));
        if ((any + step - 1) / step * step > kMost) step = 16;
        spec.numbers[kBlock] = any;
        spec.numbers[kStride] = step;
        spec.numbers[kSelect] = step * random.between((any + step - 1) / step, kMost / step);
    }
    spec.numbers[kCount] = random.chance(70) ? random.pick<Int>({1, 1, 2, 2, 3, 4, 5})
                                             : random.pick<Int>({7, 8, 9, 15, 16, 17, 31, 32});
}

/// Lengths of one sequence around what its lists need.
void sample_sequence(Random& random, Spec& spec) {
    const Int keys = keys_per_select(spec), count = spec.numbers[kCount];
    const Int more = random.pick<Int>({0, 0, 0, 1, 1, 2, 3, 4, 6, 9});
    const Int rest = random.chance(40) ? keys : random.between(1, keys);
    Int cmp = (count + more - 1) * keys + rest;
    Int q = random.pick<Int>({0, 1, 1, 2, 3, 4, 5, 7, 8, 9, random.between(1, 20)});
    if (random.chance(12)) q = cmp = 0;
    spec.lists[0].push_back(q);
    spec.lists[1].push_back(cmp);
}

void fit_budget(Random& random, Spec& spec, Int budget) {
    auto& n = spec.numbers;
    const auto step = [&](int tries) {
        const std::size_t at = any_sequence(spec, random);
        auto& q = spec.lists[0];
        auto& cmp = spec.lists[1];
        switch (random.between(0, 5)) {
            case 0:
                if (tries > 8 && n[kKvHeads] > 1) --n[kKvHeads];
                break;
            case 1:
                q[at] = (q[at] + 1) / 2;
                break;
            case 2:
                cmp[at] = std::min(cmp[at], n[kCount] * keys_per_select(spec));
                break;
            case 3:
                if (tries > 8 && q.size() > 1 && random.chance(q.size() > 2 ? 50 : 10))
                    remove_sequence(spec, at);
                break;
            case 4:
                n[kDim] = (n[kDim] + 1) / 2;
                n[kValueDim] = std::min(n[kValueDim], n[kDim]);
                break;
            default:
                if (tries > 24 && n[kGroup] > 1) n[kGroup] /= 2;
                break;
        }
    };
    fit_budget(spec, {.most = budget, .cost = cost, .tries = 300}, step);
}

/// The probabilities of one query's group, G * Cmp of them, at and beyond 64 KiB in fp32: offsets of
/// 16 bits wrap.
void sample_wide_rows(Random& random, Spec& spec) {
    auto& n = spec.numbers;
    n[kKvHeads] = 1;
    n[kGroup] = random.pick<Int>({8, 16, 32, 64});
    n[kDim] = random.pick<Int>({1, 2, 4, 8});
    n[kValueDim] = random.between(1, n[kDim]);
    n[kCount] = random.pick<Int>({1, 2, 3, 16});
    spec.lists[0] = {random.between(1, 2)};
    spec.lists[1] = {kWideRow / n[kGroup] + random.between(0, 40)};
}

/// Two extents near their limits at once, which the budget of other cases keeps apart.
void sample_large(Random& random, Spec& spec) {
    auto& n = spec.numbers;
    n[kCount] = random.between(1, 3);
    const Int keys = keys_per_select(spec);
    if (random.chance(50)) {  // heads of keys
        n[kKvHeads] = random.pick<Int>({9, 16, 33, 48, 64, 65, 128, 128});
        n[kGroup] = random.between(1, 128 / n[kKvHeads] > 1 ? 2 : 1);
        n[kDim] = random.between(17, 40);
        spec.lists = {{random.between(1, 4)}, {keys * random.between(n[kCount], 6)}};
    } else {  // queries and keys, late ones
        n[kKvHeads] = 1, n[kGroup] = random.between(1, 2);
        n[kDim] = random.chance(50) ? random.between(17, 32) : random.between(65, 128);
        const Int least = random.pick<Int>({257, 257, 257, 513, 513, 1025});
        spec.lists = {{n[kDim] > 64 ? random.between(20, 40) : least + random.between(0, 40)},
                      {std::max(keys * n[kCount], Int{65} + random.between(0, 20))}};
    }
    n[kValueDim] = random.between(17, n[kDim]);  // not fewer than the lanes of the statistics, which some classes leave open
}

void sample_masks(Random& random, Spec& spec) {
    auto& n = spec.numbers;
    n[kSparse] = random.between(0, 1);
    if (random.chance(65)) {
        n[kMask] = random.between(1, 2);
        n[kHides] = random.pick<Int>({0, 0, 0, 1, 1, 2, 2, 2, 3, 4});
        // Causal rows see their first key at position l - 1.
        if (n[kHides] == static_cast<Int>(Hides::causal))
            for (auto& q : spec.lists[0])
                if (q > 1 && random.chance(60))
                    q = n[kBlock] - 1 + random.between(0, 2) * n[kStride] + random.between(0, 1);
    }
    if (random.chance(55)) {
        n[kTopkMask] = random.between(1, 2);
        n[kForces] = random.pick<Int>({0, 0, 0, 1, 1, 2, 3, 4});
    }
}

void sample_data(Random& random, Spec& spec) {
    draw_data(spec, random, each_recipe(5, 2));
    spec.numbers[kScale] = random.pick<Int>({1, 1, 1, 1, 1, 0, 2, 2, 3, 4, 5, 6});
    spec.numbers[kLogits] = random.chance(58) ? 0 : random.between(1, 9);
    draw_layouts(spec, random);
}

/// Counts of visible and forced blocks over all rows, as the masks leave them.
struct Rows {
    bool without_key = false, part_visible = false, fewer_than_count = false;
    bool forced_above_count = false, some_forced = false, forced_hidden = false;
    bool equal_zero = false;  ///< two blocks without a visible key, and one with
};

void look_at_row(const Parts& parts, Int position, Int cmp, Rows& rows) {
    const ref::CompressAttentionShape& s = parts.shape;
    const Int keys = s.keys_per_select(), strides = s.strides_per_key();
    Int visible = 0, scored = 0, forced = 0;
    for (Int i = 0; i < cmp; ++i) visible += !parts.mask.at(position, i);
    for (Int j = 0; j < s.select_blocks(cmp); ++j) {
        bool sees = false;
        for (Int i = std::max<Int>(0, keys * j - strides + 2);
             i <= std::min(cmp - 1, keys * (j + 1)); ++i)
            sees = sees || !parts.mask.at(position, i);
        scored += sees;
        const bool is_forced = parts.topk_mask.at(position, j);
        forced += is_forced;
        rows.forced_hidden = rows.forced_hidden || (is_forced && !sees);
    }
    rows.without_key = rows.without_key || visible == 0;
    rows.part_visible = rows.part_visible || (visible > 0 && visible < cmp);
    rows.fewer_than_count = rows.fewer_than_count || (scored > 0 && scored < s.select_count);
    rows.equal_zero = rows.equal_zero || (scored > 0 && scored + 2 <= s.select_blocks(cmp));
    rows.forced_above_count = rows.forced_above_count || forced > s.select_count;
    rows.some_forced = rows.some_forced || (forced > 0 && forced < s.select_count);
}

Rows rows_of(const Spec& spec) {
    Rows rows;
    if (spec.numbers[kMask] == 0 && spec.numbers[kTopkMask] == 0) return rows;
    const Parts parts = masks_of(spec);
    for (std::size_t b = 0; b < spec.lists[0].size(); ++b)
        for (Int position = 0; position < spec.lists[0][b]; ++position)
            look_at_row(parts, position, spec.lists[1][b], rows);
    return rows;
}

void label_lengths(const Spec& spec, Labels& labels) {
    const auto &q = spec.lists[0], &cmp = spec.lists[1];
    const std::size_t last = q.size() - 1;
    const Int keys = keys_per_select(spec), count = spec.numbers[kCount];
    const auto blocks = [&](Int length) { return (length + keys - 1) / keys; };
    bool middle = false, differ = false, shorter = false;
    Int longest_before = 0;
    for (std::size_t b = 0; b <= last; ++b) {
        middle = middle || (b > 0 && b < last && cmp[b] == 0);
        differ = differ || (q[b] != cmp[b] && b < last);
        shorter = shorter || (q[b] > 0 && cmp[b] < longest_before);
        longest_before = std::max(longest_before, cmp[b]);
    }
    labels.add(last > 0, "several_sequences");
    labels.add(last > 0 && cmp[0] == 0, "leading_empty");
    labels.add(last > 0 && cmp[last] == 0, "trailing_empty");
    labels.add(middle, "middle_empty");
    labels.some([](Int t, Int n) { return t == 0 && n > 0; }, "keys_without_queries");
    labels.add(differ, "lengths_differ_before_another");
    labels.add(shorter, "shorter_after_longer");
    labels.some([&](Int t, Int n) { return t > 0 && n % keys != 0; }, "ragged_last_window");
    labels.some([&](Int t, Int n) { return t > 0 && n % keys == 0; }, "full_last_window");
    labels.some([&](Int t, Int n) { return t > 0 && blocks(n) == count; }, "all_blocks_selected");
    labels.some([&](Int t, Int n) { return t > 0 && blocks(n) > kManyBlocks; }, "many_blocks");
    labels.some([&](Int t, Int n) { return t > 0 && spec.numbers[kGroup] * n >= kWideRow; },
                "wide_row");
    labels.add(spec.numbers[kBeyondQ] > 0 || spec.numbers[kBeyondCmp] > 0, "beyond_last");
}

void label_windows(const Spec& spec, Labels& labels) {
    const auto& n = spec.numbers;
    labels.add(fmt::format("M:{}", keys_per_select(spec)));
    labels.add(fmt::format("N:{}", n[kBlock] / n[kStride]));
    labels.value_of("group");
    labels.add(n[kBlock] % n[kStride] != 0, "block_no_multiple_of_stride");
    labels.add(n[kSelect] % n[kBlock] != 0, "select_no_multiple_of_block");
    labels.add(n[kBlock] == 128 || n[kSelect] == 128, "windows_of_128");
    labels.add(n[kCount] > 16, "count_above_16");
    labels.add(n[kKvHeads] > 1, "several_kv_heads");
    labels.add(n[kValueDim] < n[kDim], "value_dim_smaller");
    labels.add(n[kDim] > 256, "dim_above_256");
    labels.add(n[kDim] % 16 != 0, "odd_dim");
}

}  // namespace

Spec sample(const Schema& schema, Random& random, int size, Profile) {
    Spec spec(schema);
    spec.numbers[kDtype] = random.between(0, 1);
    sample_heads(random, spec);
    sample_windows(random, spec);
    const Int sequences = random.pick<Int>({1, 1, 2, 2, 2, 3, 3, 4});
    for (Int b = 0; b < sequences; ++b) sample_sequence(random, spec);
    if (random.chance(7)) {  // more blocks than a tile of scores holds
        auto& cmp = spec.lists[1].back();
        cmp = keys_per_select(spec) * random.between(kManyBlocks, 3 * kManyBlocks) +
              random.between(0, keys_per_select(spec) - 1);
        cmp = std::max(cmp, spec.numbers[kCount] * keys_per_select(spec));
        spec.lists[0].back() = random.between(1, 3);
    }
    const bool large = random.chance(4), wide = !large && random.chance(4);
    if (large) sample_large(random, spec);
    if (wide) sample_wide_rows(random, spec);
    sample_masks(random, spec);
    if (!wide && !large) fit_budget(random, spec, (Int{1} << 16) + (Int{3} << 10) * size);
    if (random.chance(10)) spec.numbers[kBeyondQ] = draw_rows_beyond(random);
    if (random.chance(10)) spec.numbers[kBeyondCmp] = draw_rows_beyond(random);
    if (total(spec.lists[0]) + spec.numbers[kBeyondQ] == 0) spec.numbers[kBeyondQ] = 1;
    if (total(spec.lists[1]) + spec.numbers[kBeyondCmp] == 0) spec.numbers[kBeyondCmp] = 1;
    sample_data(random, spec);
    return spec;
}

/// The widths, windows and counts of the published module: 192 and 128 channels, blocks of 32 every 16 tokens, 16
/// selected ones of 64, groups of 16 at most, compressed keys around whole tiles.
Spec plain(const Schema& schema, Random& random) {
    constexpr Int kMost = 2'000'000;
    Spec spec(schema);
    auto& n = spec.numbers;
    n[kDtype] = random.between(0, 1);
    n[kKvHeads] = random.pick<Int>({1, 1, 2});
    n[kGroup] = random.pick<Int>({1, 4, 4, 16});
    n[kDim] = random.pick<Int>({192, 192, 128});
    n[kValueDim] = 128;
    n[kBlock] = 32, n[kStride] = 16, n[kSelect] = 64;
    n[kCount] = random.pick<Int>({16, 16, 8, 4});
    n[kScale] = static_cast<Int>(ScaleKind::rsqrt);
    const Int least = n[kCount] * keys_per_select(spec), sequences = random.pick<Int>({1, 1, 2});
    for (Int b = 0; b < sequences; ++b) {
        spec.lists[0].push_back(random.chance(30) ? random.pick<Int>({63, 64, 65}) : random.between(1, 24));
        spec.lists[1].push_back(std::max(least, random.chance(50) ? random.pick<Int>({64, 65, 127, 128, 129})
                                                                  : random.between(30, 200)));
    }
    while (cost(spec) > kMost && longest(spec.lists[0]) > 1)
        for (Int& length : spec.lists[0]) length = (length + 1) / 2;
    n[kSparse] = 1;
    if (random.chance(50)) n[kMask] = 1, n[kHides] = static_cast<Int>(random.chance(50) ? Hides::random : Hides::ramp);
    spec.seed = random.next() >> 40;
    return spec;
}

std::vector<std::string> labels_of(const Spec& spec) {
    const auto& n = spec.numbers;
    Labels labels(spec, {"logits", "scale"});
    if (labels.edited()) return labels.take();
    const bool mask = n[kMask] != 0, topk_mask = n[kTopkMask] != 0;
    if (mask) labels.value_of("hides");
    labels.add(!mask, "no_mask");
    if (topk_mask) labels.value_of("forces");
    labels.add(!topk_mask, "no_topk_mask");
    labels.add(mask && n[kSparse] == 0, "mask_in_sparse_mode_0");
    labels.add(!mask && n[kSparse] == 1, "sparse_mode_1_without_mask");
    labels.add(n[kMask] == 2 || n[kTopkMask] == 2, "uint8_mask");
    labels.add(spec.lists[0].size() > 1 && (mask || topk_mask), "mask_for_several_sequences");
    label_lengths(spec, labels);
    label_windows(spec, labels);
    labels.layouts();
    const Rows rows = rows_of(spec);
    labels.add(rows.without_key, "row_without_key");
    labels.add(rows.part_visible, "part_of_row_visible");
    labels.add(rows.fewer_than_count, "fewer_visible_than_count");
    labels.add(rows.equal_zero, "equal_scores_of_hidden_blocks");
    labels.add(!mask && n[kLogits] == static_cast<Int>(LogitKind::equal), "equal_scores");
    labels.add(rows.forced_above_count, "forced_above_count");
    labels.add(rows.some_forced, "part_of_list_forced");
    labels.add(rows.forced_hidden, "forced_hidden_block");
    return labels.take();
}

std::vector<RequiredClass> required_classes() {
    return Required(description())
        .share(25, {"fp16", "bf16", "several_sequences"})
        .share(20, {"ragged_last_window"})
        .share(15, {"lengths_differ_before_another", "full_last_window", "several_kv_heads",
                    "value_dim_smaller", "odd_dim", "mask_in_sparse_mode_0", "uint8_mask",
                    "mask_for_several_sequences", "part_of_row_visible"})
        .share(10, {"all_blocks_selected", "no_mask", "no_topk_mask"})
        .share(8, {"shorter_after_longer", "beyond_last", "strided", "row_without_key",
                   "forced_above_count"})
        .share(5, {"windows_of_128", "sparse_mode_1_without_mask", "fewer_visible_than_count",
                   "equal_scores_of_hidden_blocks", "part_of_list_forced"})
        .share(3, {"keys_without_queries", "block_no_multiple_of_stride",
                   "select_no_multiple_of_block", "forced_hidden_block"})
        .share(2, {"leading_empty", "trailing_empty", "many_blocks", "count_above_16"})
        .share(1, {"middle_empty", "wide_row", "broadcast", "reversed", "equal_scores"})
        .share(0.5, {"dim_above_256"})
        .share(1, "M", {"1", "2", "3", "4", "8"})
        .share(1, "N", {"1", "2", "3", "4", "8"})
        .share(0.5, "group", {"1", "2", "4", "8", "16", "32", "64"})
        .values(2, "hides")
        .values(2, "forces")
        .recipes(0.5)
        .values(1, "logits")
        .values(1, "scale")
        .rare(0.2, {"far_strides", "repeated_rows", "reversed_columns", "one_buffer"})
        .take();
}

}  // namespace attncheck::properties::compress_attention
