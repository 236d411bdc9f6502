// The generator of selected attention: which shapes, lists and data are drawn how often, what a
// case is called, and which classes a run must reach.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "properties/operators/nsa_selected_attention/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

Int total(const std::vector<Int>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), Int{0});
}

/// Multiply-adds of the forward's two products, plus the elements that have to be made.
Int cost(const Spec& spec) {
    const auto& n = spec.numbers;
    const Int heads = n[kSelKvHeads] * n[kSelGroup], dims = n[kSelDim] + n[kSelValueDim];
    const Int pairs = total(spec.lists[0]) * heads * n[kSelBlock] * n[kSelCount];
    return pairs * dims +
           8 * (total(spec.lists[1]) * n[kSelKvHeads] + total(spec.lists[0]) * heads) * dims;
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

/// Lengths of one sequence around what its lists need.
void sample_sequence(Random& random, Spec& spec) {
    const Int block = spec.numbers[kSelBlock], least = block * spec.numbers[kSelCount];
    Int kv = random.chance(8) ? 0 : least + block * (random.chance(35) ? 0 : random.between(1, 4));
    Int q = 0;
    switch (random.between(0, 9)) {
        case 0:
            q = 0;
            break;
        case 1:
            q = 1;
            break;
        case 2:
            q = 2;
            break;
        case 3:
            q = block - 1;
            break;
        case 4:
            q = block;
            break;
        case 5:
            q = block + 1;
            break;
        case 6:
            q = std::min<Int>(kv, 160);
            break;
        default:
            q = random.between(1, std::min<Int>(3 * block, 100));
            break;
    }
    if (random.chance(7)) q = kv = 0;
    spec.lists[0].push_back(q);
    spec.lists[1].push_back(kv);
}

void fit_budget(Random& random, Spec& spec, Int budget) {
    for (int tries = 0; tries < 200 && cost(spec) > budget; ++tries) {
        auto& q = spec.lists[0];
        auto& kv = spec.lists[1];
        const auto at = static_cast<std::size_t>(random.between(0, std::ssize(q) - 1));
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
                if (tries > 8 && q.size() > 1 && random.chance(q.size() > 2 ? 50 : 20)) {
                    q.erase(q.begin() + static_cast<std::ptrdiff_t>(at));
                    kv.erase(kv.begin() + static_cast<std::ptrdiff_t>(at));
                }
                break;
            default:
                if (tries > 34 && spec.numbers[kSelGroup] > 1)
                    spec.numbers[kSelGroup] = (spec.numbers[kSelGroup] + 1) / 2;
                break;
        }
    }
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
    spec.seed = random.next() >> 40;
    spec.recipe = random.pick<Recipe>(
        {Recipe::normal, Recipe::normal, Recipe::normal, Recipe::normal, Recipe::ints, Recipe::ints,
         Recipe::ones, Recipe::onehot, Recipe::signs, Recipe::cancelling, Recipe::spiky,
         Recipe::huge, Recipe::subnormal, Recipe::specials});
    spec.numbers[kSelScale] = random.pick<Int>({1, 1, 1, 1, 0, 2, 2, 3, 4, 5, 6});
    spec.numbers[kSelTopk] = random.between(1, 11);
    spec.numbers[kSelLogits] = random.chance(58) ? 0 : random.between(1, 7);
    if (!random.chance(35)) return;
    for (std::size_t i = 0; i < spec.schema->tensors.size(); ++i) {
        if (!random.chance(40)) continue;
        const TensorField& field = spec.schema->tensors[i];
        const Layout last = field.output    ? Layout::spread
                            : field.derived ? Layout::reversed
                                            : Layout::broadcast;
        spec.layouts[i] = static_cast<Layout>(random.between(1, static_cast<int>(last)));
    }
}

/// What the lists and the mask come to.
struct Visibility {
    bool duplicate = false, diagonal_twice = false, row_without_key = false, shared_block = false;
    bool heads_differ = false, unsorted = false;
};

Visibility visibility_of(const Spec& spec) {
    Visibility v;
    const SelectedParts parts = selected_lists(spec);
    const ref::SelectedAttentionShape& s = parts.shape;
    const auto queries = ref::selected_queries(s);
    const auto columns = parts.columns();
    std::vector<ref::KeyColumn> listed;
    std::vector<std::uint32_t> previous;
    for (Int t = 0; t < s.total_queries; ++t) {
        const auto& query = queries[static_cast<std::size_t>(t)];
        if (query.sequence < 0) continue;
        for (Int n = 0; n < s.kv_heads; ++n) {
            listed.clear();
            columns(t, n * s.query_heads / s.kv_heads, listed);
            v.row_without_key = v.row_without_key || listed.empty();
            if (query.kv_length == 0) continue;
            const auto first = parts.topk.begin() + (t * s.kv_heads + n) * s.count;
            std::vector<std::uint32_t> list(first, first + s.count);
            v.unsorted = v.unsorted || !std::is_sorted(list.begin(), list.end());
            v.heads_differ = v.heads_differ || (n > 0 && list != previous);
            previous = list;
            std::sort(list.begin(), list.end());
            v.duplicate = v.duplicate || std::adjacent_find(list.begin(), list.end()) != list.end();
            v.diagonal_twice = v.diagonal_twice ||
                               std::count(list.begin(), list.end(),
                                          static_cast<std::uint32_t>(query.position / s.block)) > 1;
        }
    }
    return v;
}

void label_lengths(const Spec& spec, const std::function<void(bool, const char*)>& label) {
    const auto &q = spec.lists[0], &kv = spec.lists[1];
    const std::size_t last = q.size() - 1;
    const auto empty = [&](std::size_t i) { return q[i] == 0 || kv[i] == 0; };
    label(last > 0 && empty(0), "leading_empty");
    label(last > 0 && empty(last), "trailing_empty");
    bool middle = false, keyless = false, queryless = false, differ = false;
    for (std::size_t i = 0; i <= last; ++i) {
        middle = middle || (i > 0 && i < last && empty(i));
        keyless = keyless || (q[i] > 0 && kv[i] == 0);
        queryless = queryless || (q[i] == 0 && kv[i] > 0);
        differ = differ || (q[i] != kv[i] && i < last);
    }
    label(middle, "middle_empty");
    label(keyless, "queries_without_keys");
    label(queryless, "keys_without_queries");
    label(differ, "lengths_differ_before_another");
    label(last > 0, "several_sequences");
    label(spec.numbers[kSelBeyondQ] > 0 || spec.numbers[kSelBeyondKv] > 0, "beyond_last");
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
    // Group 16 and more need few queries: the budget halves those first.
    fit_budget(random, spec, limit ? Int{12} << 20 : (Int{1} << 19) + (Int{12} << 10) * size);
    if (random.chance(10)) spec.numbers[kSelBeyondQ] = random.between(1, 5);
    if (random.chance(10)) spec.numbers[kSelBeyondKv] = random.between(1, 20);
    if (total(spec.lists[0]) + spec.numbers[kSelBeyondQ] == 0) spec.lists[0].back() = 1;
    if (total(spec.lists[1]) + spec.numbers[kSelBeyondKv] == 0) spec.numbers[kSelBeyondKv] = 1;
    sample_mask(random, spec);
    sample_data(random, spec);
    if (schema.number("stats") >= 0) {
        spec.set("stats", random.chance(25));
        spec.set("out", random.chance(20));
    }
    return spec;
}

std::vector<std::string> selected_labels(const Spec& spec) {
    const auto& n = spec.numbers;
    const auto name_in = [&](SelectedField field) {
        return spec.schema->numbers[field].names[static_cast<std::size_t>(n[field])];
    };
    std::vector<std::string> out{name_in(kSelDtype),
                                 fmt::format("data:{}", name_of(spec.recipe)),
                                 fmt::format("topk:{}", name_in(kSelTopk)),
                                 fmt::format("logits:{}", name_in(kSelLogits)),
                                 fmt::format("scale:{}", name_in(kSelScale)),
                                 fmt::format("group:{}", n[kSelGroup])};
    const std::function<void(bool, const char*)> label = [&](bool applies, const char* name) {
        if (applies) out.emplace_back(name);
    };
    label_lengths(spec, label);
    label(n[kSelKvHeads] > 1, "several_kv_heads");
    label(n[kSelGroup] > 16, "group_above_16");
    label((n[kSelGroup] & (n[kSelGroup] - 1)) != 0, "odd_group");
    label(n[kSelDim] == 192, "dim_192");
    label(n[kSelValueDim] < n[kSelDim], "value_dim_smaller");
    label(n[kSelBlock] * n[kSelCount] % 64 != 0, "ragged_tile");
    label(n[kSelCount] > 16, "count_above_16");
    label(n[kSelBlock] * n[kSelCount] >= 2048, "wide_lists");
    label(n[kSelBlock] > 64, "block_above_64");
    const bool mask = n[kSelMask] != 0, causal = n[kSelSparse] == 2;
    label(mask && causal, "causal");
    label(mask && !causal, "mask_contents");
    label(!mask && causal, "causal_mode_without_mask");
    label(!mask, "no_mask");
    label(n[kSelMaskShape] != 0, "mask_of_other_size");
    label(std::any_of(spec.layouts.begin(), spec.layouts.end(),
                      [](Layout l) { return l != Layout::dense; }),
          "strided");
    label(std::find(spec.layouts.begin(), spec.layouts.end(), Layout::broadcast) !=
              spec.layouts.end(),
          "broadcast");
    label(
        std::find(spec.layouts.begin(), spec.layouts.end(), Layout::reversed) != spec.layouts.end(),
        "reversed");
    if (spec.schema->number("stats") >= 0) {
        label(n[kSelStats] != 0, "statistics_shifted");
        label(n[kSelOut] != 0, "output_perturbed");
    }
    label(!spec.edits.empty(), kEditedLabel);
    if (!spec.edits.empty()) return out;
    const Visibility v = visibility_of(spec);
    label(v.duplicate, "duplicate_block");
    label(v.diagonal_twice && mask && causal, "diagonal_block_twice");
    label(v.row_without_key, "row_without_key");
    label(v.heads_differ, "lists_of_heads_differ");
    label(v.unsorted, "unsorted_list");
    return out;
}

std::vector<RequiredClass> selected_required_classes(bool gradient) {
    std::vector<RequiredClass> required = {{"fp16", 25},
                                           {"bf16", 25},
                                           {"several_sequences", 25},
                                           {"leading_empty", 3},
                                           {"middle_empty", 1},
                                           {"trailing_empty", 3},
                                           {"queries_without_keys", 3},
                                           {"keys_without_queries", 3},
                                           {"lengths_differ_before_another", 15},
                                           {"beyond_last", 8},
                                           {"several_kv_heads", 15},
                                           {"group_above_16", 3},
                                           {"odd_group", 15},
                                           {"dim_192", 30},
                                           {"value_dim_smaller", 15},
                                           {"ragged_tile", 15},
                                           {"count_above_16", 2},
                                           {"wide_lists", 0.3},
                                           {"block_above_64", 8},
                                           {"causal", 20},
                                           {"mask_contents", 10},
                                           {"causal_mode_without_mask", 3},
                                           {"mask_of_other_size", 5},
                                           {"strided", 8},
                                           {"broadcast", 1},
                                           {"reversed", 1},
                                           {"duplicate_block", 10},
                                           {"diagonal_block_twice", 1},
                                           {"row_without_key", 8},
                                           {"lists_of_heads_differ", 5},
                                           {"unsorted_list", 10}};
    for (const char* group : {"1", "2", "3", "5", "8", "16", "17", "31", "32"})
        required.push_back({fmt::format("group:{}", group), 0.3});
    for (const char* recipe : {"ints", "ones", "onehot", "signs", "normal", "cancelling", "spiky",
                               "huge", "subnormal", "specials"})
        required.push_back({fmt::format("data:{}", recipe), 0.5});
    for (const char* kind : {"canonical", "ascending", "descending", "shuffled", "scored",
                             "repeated", "same", "diagonal", "future", "shared", "last"})
        required.push_back({fmt::format("topk:{}", kind), 1});
    for (const char* kind :
         {"plain", "equal", "dominant", "minus40", "minus120", "minus300", "plus300", "minus20000"})
        required.push_back({fmt::format("logits:{}", kind), 1});
    for (const char* kind : {"one", "rsqrt", "eighth", "zero", "negative", "tenth", "large"})
        required.push_back({fmt::format("scale:{}", kind), 1});
    if (gradient) {
        required.push_back({"statistics_shifted", 5});
        required.push_back({"output_perturbed", 5});
    }
    return required;
}

}  // namespace attncheck::properties
