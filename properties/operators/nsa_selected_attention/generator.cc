// The generator of selected attention: which shapes, lists and data are drawn how often.
#include <algorithm>
#include <iterator>

#include "properties/case/attention_draws.h"
#include "properties/operators/nsa_selected_attention/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

Int cost(const Spec& spec) {
    const auto& n = spec.numbers;
    return attention_cost(spec, total(spec.lists[0]) * n[kSelBlock] * n[kSelCount],
                          n[kSelDim] + n[kSelValueDim]);
}

void sample_heads(Random& random, Spec& spec) {
    spec.numbers[kSelKvHeads] = random.chance(35) ? 1 : random.pick<Int>({2, 2, 2, 2, 3, 4, 5});
    spec.numbers[kSelGroup] =
        random.chance(50) ? random.pick<Int>({1, 2, 3, 4})
                          : random.pick<Int>({5, 6, 7, 8, 9, 15, 16, 17, 17, 31, 31, 32, 32});
    spec.numbers[kSelGroup] = std::min(spec.numbers[kSelGroup], 128 / spec.numbers[kSelKvHeads]);
    const Int wide = random.between(0, 2);  // 128/128, 192/128, 192/192
    spec.numbers[kSelDim] = wide > 0 ? 192 : 128;
    spec.numbers[kSelValueDim] = wide > 1 ? 192 : 128;
}

void sample_blocks(Random& random, Spec& spec) {
    const auto pair = random.pick<std::pair<int, int>>(
        {{16, 1}, {16, 2}, {16, 3}, {16, 4},  {16, 8},  {16, 16}, {16, 17}, {16, 32},
         {32, 1}, {32, 2}, {32, 5}, {48, 2},  {48, 3},  {64, 1},  {64, 2},  {64, 3},
         {64, 9}, {80, 2}, {96, 1}, {112, 2}, {128, 1}, {128, 2}});
    spec.numbers[kSelBlock] = pair.first;
    spec.numbers[kSelCount] = pair.second;
}

/// Two extents near their limits at once, which the budget of other cases keeps apart.
void sample_large(Random& random, Spec& spec) {
    auto& n = spec.numbers;
    auto &queries = spec.lists[0], &keys = spec.lists[1];
    n[kSelBlock] = 16, n[kSelCount] = random.between(1, 3), n[kSelKvHeads] = 1;
    n[kSelGroup] = random.between(1, 2);
    switch (random.between(0, 7)) {
        case 0:  // many heads of keys, and of queries
            n[kSelKvHeads] = random.pick<Int>({9, 12, 16, 24, 33, 40, 64, 65, 128});
            n[kSelGroup] = random.between(1, std::min<Int>(128 / n[kSelKvHeads], 4));
            queries = {random.between(2, 12)}, keys = {16 * random.between(3, 5)};
            break;
        case 1:  // long lists of wide blocks
            n[kSelBlock] = 16 * random.between(2, 8), n[kSelCount] = random.between(4, 32);
            queries = {random.between(1, 4)}, keys = {n[kSelBlock] * (n[kSelCount] + random.between(0, 2))};
            break;
        case 2:  // large groups with many queries
            n[kSelGroup] = random.between(9, 32), n[kSelCount] = random.between(1, 2);
            queries = {random.between(17, 24)}, keys = {16 * random.between(2, 4)};
            break;
        case 3: {  // many sequences of several heads
            queries.clear(), keys.clear();
            Int left = random.pick<Int>({9, 34, 40, 130, 200});
            n[kSelKvHeads] = left > 100 ? 1 : random.between(1, 3);
            if (left > 100) n[kSelCount] = 1;
            for (; left > 0; --left) {
                queries.push_back(random.chance(20) ? 0 : random.between(1, 2));
                keys.push_back(16 * (n[kSelCount] + random.between(0, 1)));
            }
            break;
        }
        case 4:
        case 5:  // large groups with long lists
            n[kSelGroup] = random.pick<Int>({9, 12, 16, 16, 17, 25, 32}), n[kSelCount] = random.between(16, 32);
            queries = {random.between(1, 3)}, keys = {16 * (n[kSelCount] + random.between(0, 2))};
            break;
        default:  // late queries of a later sequence
            n[kSelCount] = random.between(2, 4);
            queries = {random.between(1, 20), random.between(129, 300)};
            keys = {16 * random.between(4, 6), queries[1] / 16 * 16 + 16 * random.between(0, 2)};
    }
}

/// Lengths of one sequence around what its lists need.
void sample_sequence(Random& random, Spec& spec) {
    const Int block = spec.numbers[kSelBlock], least = block * spec.numbers[kSelCount];
    Int kv = random.chance(8) ? 0 : least + block * (random.chance(35) ? 0 : random.between(1, 4));
    const Int lengths[] = {0, 1, 2, block - 1, block, block + 1, std::min<Int>(kv, 160)};
    const auto kind = static_cast<std::size_t>(random.between(0, 9));
    Int q = kind < std::size(lengths) ? lengths[kind]
                                      : random.between(1, std::min<Int>(3 * block, 100));
    if (random.chance(7)) q = kv = 0;
    spec.lists[0].push_back(q);
    spec.lists[1].push_back(kv);
}

void fit_budget(Random& random, Spec& spec, Int budget) {
    const auto step = [&](int tries) {
        const std::size_t at = any_sequence(spec, random);
        auto& q = spec.lists[0];
        auto& kv = spec.lists[1];
        const Int least = spec.numbers[kSelBlock] * spec.numbers[kSelCount];
        switch (random.between(0, 4)) {
            case 0:
                if (tries > 12 && spec.numbers[kSelKvHeads] > (tries > 34 ? 1 : 2))
                    --spec.numbers[kSelKvHeads];
                break;
            case 1:
                q[at] = (q[at] + 1) / 2;
                break;
            case 2:
                if (kv[at] > least) kv[at] = least;
                break;
            case 3:
                if (kv[at] == 0) break;  // costs next to nothing
                if (tries > 8 && q.size() > 1 && random.chance(q.size() > 2 ? 50 : 20))
                    remove_sequence(spec, at);
                break;
            default:
                if (tries > 34 && spec.numbers[kSelGroup] > 1)
                    spec.numbers[kSelGroup] = (spec.numbers[kSelGroup] + 1) / 2;
                break;
        }
    };
    fit_budget(spec, {.most = budget, .cost = cost}, step);
}

void sample_mask(Random& random, Spec& spec) {
    if (random.chance(22)) {
        spec.numbers[kSelSparse] = random.chance(50) ? 2 : 0;  // without a mask neither counts
        return;
    }
    spec.numbers[kSelMask] = random.between(1, 2);
    spec.numbers[kSelSparse] = random.chance(65) ? 2 : 0;
    if (spec.numbers[kSelSparse] == 2)
        spec.numbers[kSelMaskShape] = random.pick({0, 0, 0, 1, 1, random.chance(15) ? 2 : 1});
}

void sample_data(Random& random, Spec& spec) {
    draw_data(spec, random, each_recipe(4, 2));
    draw_scale(spec, random);
    spec.numbers[kSelTopk] = random.between(1, 11);
    spec.numbers[kSelLogits] = random.chance(58) ? 0 : random.between(1, 8);
    draw_layouts(spec, random);
}

}  // namespace

Spec sample_selected(const Schema& schema, Random& random, int size, Profile) {
    Spec spec(schema);
    spec.numbers[kSelDtype] = random.between(0, 1);
    sample_heads(random, spec);
    sample_blocks(random, spec);
    const Int sequences = random.pick<Int>({1, 2, 2, 2, 3, 3, 4});
    for (Int i = 0; i < sequences; ++i) sample_sequence(random, spec);
    const bool limit = random.chance(2);
    if (limit) {  // the widest lists there are
        spec.numbers[kSelBlock] = 128;
        spec.numbers[kSelCount] = 32;
        spec.numbers[kSelKvHeads] = 1;
        spec.numbers[kSelGroup] = random.pick<Int>({2, 3});
        spec.lists = {{random.pick<Int>({1, 2, 3})}, {4096 + 128 * random.between(0, 1)}};
    }
    const bool is_long = !limit && random.chance(1);
    if (is_long) {  // keys behind the first 4096, few of them in a list
        const Int block = random.pick<Int>({16, 48, 64, 80});
        spec.numbers[kSelBlock] = block;
        spec.numbers[kSelCount] = random.between(1, 4);
        spec.numbers[kSelKvHeads] = 1;
        spec.numbers[kSelGroup] = random.between(1, 3);
        spec.lists = {{random.between(1, 40)}, {(4096 / block + random.between(1, 9)) * block}};
    }
    const bool is_large = !limit && !is_long && random.chance(5);
    if (is_large) sample_large(random, spec);
    const bool is_late = !limit && !is_long && !is_large && random.chance(2);
    if (is_late) {  // queries behind the first 256, short lists
        spec.numbers[kSelBlock] = 16;
        spec.numbers[kSelCount] = random.between(2, 4);
        spec.numbers[kSelKvHeads] = 1;
        spec.numbers[kSelGroup] = random.between(1, 2);
        const Int least = random.pick<Int>({258, 258, 258, 513, 513, 1025, 1025});
        spec.lists = {{least + random.between(0, 142)}, {16 * random.between(24, 44)}};
        if (least > 1000) {
            spec.numbers[kSelCount] = 2, spec.numbers[kSelGroup] = 1;
            spec.lists = {{least + random.between(0, 30)}, {16 * random.between(66, 72)}};
        }
    }
    const bool is_diagonal = !limit && !is_long && !is_large && !is_late && random.chance(3);
    if (is_diagonal) {  // queries to the end of their own block and behind it
        const Int block = random.pick<Int>({48, 64, 80, 96, 112, 128});
        spec.numbers[kSelBlock] = block;
        spec.numbers[kSelCount] = random.between(1, 2);
        spec.numbers[kSelKvHeads] = 1;
        spec.numbers[kSelGroup] = block < 96 ? random.between(1, 2) : 1;
        spec.lists = {{block + random.between(-1, 2)}, {2 * block}};
    }
    // Group 16 and more need few queries: the budget halves those first.
    const bool is_very_late = is_late && spec.lists[0][0] > 1024;
    if (!is_very_late)
        fit_budget(random, spec, limit || is_long || is_large || is_late || is_diagonal ? Int{12} << 20 : (Int{1} << 19) + (Int{12} << 10) * size);
    if (random.chance(10)) spec.numbers[kSelBeyondQ] = draw_rows_beyond(random);
    if (random.chance(10)) spec.numbers[kSelBeyondKv] = draw_rows_beyond(random);
    if (total(spec.lists[0]) + spec.numbers[kSelBeyondQ] == 0) spec.lists[0].back() = 1;
    if (total(spec.lists[1]) + spec.numbers[kSelBeyondKv] == 0) spec.numbers[kSelBeyondKv] = 1;
    sample_mask(random, spec);
    if (is_diagonal && spec.numbers[kSelMask] != 0) spec.numbers[kSelSparse] = 2;
    sample_data(random, spec);
    if (is_late && random.chance(70)) {  // all keys weigh
        spec.recipe = Recipe::normal;
        spec.numbers[kSelLogits] = 0;
        spec.set("scale", static_cast<Int>(ScaleKind::rsqrt));
    }
    draw_leading_keys(spec, random);
    draw_given(spec, random, 25, 20);
    return spec;
}

}  // namespace attncheck::properties
