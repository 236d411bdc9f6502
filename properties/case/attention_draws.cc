#include "properties/case/attention_draws.h"

#include <algorithm>
#include <numeric>

#include "properties/case/attention_data.h"
#include "properties/case/derived.h"
#include "properties/case/description.h"

namespace attncheck::properties {

std::int64_t total(const std::vector<std::int64_t>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

std::int64_t attention_cost(const Spec& spec, std::int64_t pairs, std::int64_t dims) {
    const std::int64_t kv_heads = spec.number("kv_heads"), heads = kv_heads * spec.number("group");
    return pairs * heads * dims +
           8 * (total(spec.lists[1]) * kv_heads + total(spec.lists[0]) * heads) * dims;
}

std::int64_t draw_rows_beyond(Random& random) {
    return random.chance(75) ? random.between(1, 5) : random.pick<std::int64_t>({9, 17, 20, 33, 40, 65, 70, 100, 130});
}

std::int64_t draw_length(Random& random) {
    const std::int64_t kind = random.between(0, 11);
    if (kind == 0) return 1;
    if (kind == 1) return random.between(2, 8);
    if (kind < 6) return (std::int64_t{8} << (kind - 1)) + random.pick<std::int64_t>({-1, 0, 1});  // 16 .. 128
    if (kind == 6) return random.chance(60) ? 0 : random.between(1, 3);
    return random.between(1, 70);
}

std::int64_t length_across_tile_edge(Random& random, std::int64_t query_len) {
    const std::int64_t tile = random.pick<std::int64_t>({16, 32, 64, 64, 128});
    return query_len + tile * random.between(0, 2) + random.pick<std::int64_t>({tile - 2, tile - 1, 0, 1});
}

std::int64_t reach_to_tile_edge(Random& random, std::int64_t offset, std::int64_t reach) {
    const std::int64_t tile = random.pick<std::int64_t>({16, 32, 64, 64, 128});
    const std::int64_t least = (offset % tile + tile) % tile;
    const std::int64_t most = std::max<std::int64_t>((reach - least) / tile, 0);
    return std::max<std::int64_t>(least + tile * random.between(0, most) + random.pick<std::int64_t>({-1, 0, 0, 1}), 0);
}

namespace {

/// Most cases keep to what one head of 100 rows of width 64 costs, one head and one sequence at least. Widths and lengths
/// stay: they are what is plain.
void fit_plain_budget(Spec& spec, Random& random) {
    constexpr std::int64_t kUsual = 1'500'000, kRare = 12'000'000;
    constexpr int kMostSteps = 6;  // from 3 sequences, 2 key/value heads and groups of 8
    const auto cost = [](const Spec& of) { return attention_cost_of(of, 0); };
    fit_budget(spec, {random.chance(85) ? kUsual : kRare, cost, kMostSteps}, [&](int) {
        const bool many_heads = spec.number("kv_heads") * spec.number("group") > 1;
        const bool many_sequences = spec.lists[0].size() > 1;
        if (many_sequences && (!many_heads || random.chance(50)))
            remove_sequence(spec, spec.lists[0].size() - 1);
        else if (spec.number("group") > 1 && (spec.number("kv_heads") == 1 || random.chance(50)))
            spec.set("group", spec.number("group") / 2);
        else
            spec.set("kv_heads", 1);
    });
}

/// Widths of keys and values that kernels have code of their own for: latent attention, absorbed (576, 512) or not (192, 128).
void set_latent_widths(Spec& spec, std::int64_t dim, std::int64_t value_dim) {
    spec.set("dim", dim);
    spec.set("value_dim", value_dim);
}

}  // namespace

void draw_plain_shape(Spec& spec, Random& random, bool packed) {
    using Int = std::int64_t;
    spec.set("kv_heads", random.pick<Int>({1, 1, 2}));
    spec.set("group", random.pick<Int>({1, 1, 2, 4, 8}));
    const Int dim = random.pick<Int>({64, 64, 128, 80, 96});
    spec.set("dim", dim);
    spec.set("value_dim", dim);
    if (random.chance(5)) set_latent_widths(spec, 192, 128);
    spec.set("scale", static_cast<Int>(ScaleKind::rsqrt));
    const auto length = [&] {
        return random.chance(40) ? random.between(1, 150)
                                 : random.pick<Int>({63, 64, 65, 96, 127, 128, 129});
    };
    // Fewer queries than keys: any number, or whole tiles, whose corner of a diagonal is that of a tile of keys.
    const auto fewer_than = [&](Int kv) {
        const Int any = random.between(1, kv), tile = random.pick<Int>({64, 64, 128, 32, 16});
        return tile < kv && random.chance(35) ? (kv - 1) / tile * tile : any;
    };
    const auto sequences = static_cast<std::size_t>(random.pick<Int>({1, 1, 2, 3}));
    const bool is_decoding = packed && random.chance(12);  // one new token each
    for (std::size_t b = 0; b < sequences; ++b) {
        const bool is_new = b == 0 || packed;
        const Int kv = is_decoding ? random.between(1, 700) : is_new ? length() : spec.lists[1][0];
        const Int q = is_decoding ? 1 : !is_new ? spec.lists[0][0] : random.chance(60) ? kv : fewer_than(kv);
        spec.lists[0].push_back(q);
        spec.lists[1].push_back(kv);
    }
    fit_plain_budget(spec, random);
}

void draw_wide_shape(Spec& spec, Random& random, bool packed) {
    using Int = std::int64_t;
    const Int many = random.pick<Int>({65, 66, 80, 96, 127, 128, 129, 130, 160, 193, 257, 257, 320, 320}),
              few = random.chance(15) ? random.pick<Int>({64, 65, 66, 96, 128, 129}) : random.between(1, 8);
    const bool is_small = few < 64;
    spec.set("kv_heads", is_small ? random.between(1, 2) : 1);
    spec.set("group", is_small ? random.between(1, 2) : 1);
    const Int dim = random.pick<Int>({64, 64, 80, 96, 128, 128, 128, 192, 256});
    spec.set("dim", dim);
    spec.set("value_dim", random.chance(75) ? dim : random.pick<Int>({8, 64, dim / 2}));
    const bool is_latent = is_small && random.chance(15), is_absorbed = is_latent && random.chance(30);
    if (is_latent) set_latent_widths(spec, is_absorbed ? 576 : 192, is_absorbed ? 512 : 128);
    if (is_absorbed) limit_fields(spec, {"kv_heads"}, 1);
    spec.lists = {{few}, {is_absorbed ? std::min<Int>(many, 130) : many}};
    if (random.chance(40)) std::swap(spec.lists[0], spec.lists[1]);
    if (!packed || !random.chance(40)) return;
    const Int queries = random.between(0, 5), keys = random.between(0, 70);
    spec.lists[0].insert(spec.lists[0].begin(), queries), spec.lists[1].insert(spec.lists[1].begin(), keys);
}

void now_and_then_wide(Spec& spec, Random& random, bool packed) {
    using Int = std::int64_t;
    if (!random.chance(8)) return;
    const Int many = random.pick<Int>({257, 258, 300, 384, 385, 513, 640, 1025, 1100}), few = random.between(1, 6),
              dim = random.pick<Int>({64, 96, 128, 128, 192}), heads = many > 600 ? 1 : random.between(1, 2);
    std::vector<std::vector<Int>> lists = {{few}, {many}};
    if (random.chance(40)) std::swap(lists[0], lists[1]);
    if (packed && random.chance(40))
        for (auto& list : lists) list.insert(list.begin(), random.between(0, 5));
    change_if_legal(spec, [&](Spec& to) {
        to.lists = lists;
        to.set("kv_heads", heads), to.set("group", 1);
        to.set("dim", dim), to.set("value_dim", dim);
    });
}

void draw_lengths(Spec& spec, Random& random, bool packed) {
    using Int = std::int64_t;
    const Int count = random.pick<Int>({1, 1, 2, 2, 3, 4, 5});
    const bool same = random.chance(40);
    for (Int b = 0; b < count; ++b) {
        if (!packed && b > 0) {
            for (auto& list : spec.lists) list.push_back(list[0]);
            continue;
        }
        const Int any = draw_length(random);
        const Int q = packed && random.chance(12) ? 0 : random.chance(4) ? random.pick<Int>({64, 64, 128}) : any;
        spec.lists[0].push_back(q);
        spec.lists[1].push_back(packed && random.chance(12) ? 0
                                : same                      ? q
                                : random.chance(q > 0 && q % 64 == 0 ? 60 : 20) ? length_across_tile_edge(random, q)
                                                    : draw_length(random));
    }
    // One new token for each sequence, behind keys of their own, which are many in one of them. No more than a case may cost.
    if (packed && count > 1 && random.chance(15)) {
        limit_fields(spec, {"kv_heads", "group"}, 2);
        limit_fields(spec, {"dim", "value_dim"}, 64);
        for (std::size_t b = 0; b < spec.lists[0].size(); ++b) spec.lists[0][b] = 1, spec.lists[1][b] = random.between(1, 40);
        spec.lists[1][static_cast<std::size_t>(random.between(0, count - 1))] = random.between(257, 450);
    }
    // Sequences without queries in front, with keys or none: what finds the sequence of a row has to pass over them.
    if (!packed || count < 3 || !random.chance(15)) return;
    for (Int b = random.between(0, 1); b >= 0; --b) {
        spec.lists[0][static_cast<std::size_t>(b)] = 0;
        if (random.chance(40)) spec.lists[1][static_cast<std::size_t>(b)] = 0;
    }
}

std::int64_t attention_cost_of(const Spec& spec, std::int64_t more) {
    return attention_cost(spec, query_key_pairs(spec), spec.number("dim") + spec.number("value_dim") + more);
}

std::int64_t query_key_pairs(const Spec& spec) {
    std::int64_t pairs = 0;
    for (std::size_t b = 0; b < spec.lists[0].size(); ++b)
        pairs += spec.lists[0][b] * spec.lists[1][b];
    return pairs;
}

void change_if_legal(Spec& spec, const std::function<void(Spec&)>& change) {
    Spec to = spec;
    change(to);
    if (!illegal(to)) spec = std::move(to);
}

void limit_fields(Spec& spec, std::initializer_list<const char*> fields, std::int64_t most) {
    for (const char* field : fields) spec.set(field, std::min(spec.number(field), most));
}

void limit_lengths(Spec& spec, std::int64_t most) {
    for (auto& list : spec.lists)
        for (auto& length : list) length = std::min(length, most);
}

void with_zeros_in_dense_tensors(Spec& spec) {
    spec.recipe = Recipe::zeros;
    spec.overrides.clear();
    std::ranges::fill(spec.layouts, Layout::dense);
}

void draw_softcap(Spec& spec, Random& random) {
    spec.set("softcap", random.pick<std::int64_t>({1, 1, 2, 5, 7, 20, 30, 50, 100, 400}));
    if (random.chance(25)) spec.set("softcap_unit", random.between(1, 2));
}

void without_softcap(Spec& spec) {
    for (const char* field : {"softcap", "softcap_unit"}) spec.set(field, 0);
}

void remove_sequence(Spec& spec, std::size_t b) {
    for (auto& list : spec.lists) list.erase(list.begin() + static_cast<std::ptrdiff_t>(b));
}

RecipeWeights each_recipe(int normal, int ints) {
    RecipeWeights weights{{Recipe::normal, normal}, {Recipe::ints, ints}};
    for (const Recipe recipe : {Recipe::ones, Recipe::onehot, Recipe::signs, Recipe::cancelling,
                                Recipe::spiky, Recipe::huge, Recipe::subnormal, Recipe::specials})
        weights.emplace_back(recipe, 1);
    return weights;
}

void draw_data(Spec& spec, Random& random, const RecipeWeights& weights) {
    spec.seed = random.next() >> 40;
    int all = 0;
    for (const auto& [recipe, weight] : weights) all += weight;
    auto at = static_cast<int>(random.between(0, all - 1));
    for (const auto& [recipe, weight] : weights) {
        spec.recipe = recipe;
        if ((at -= weight) < 0) return;
    }
}

void draw_any_data(Spec& spec, Random& random, bool is_plain) {
    spec.seed = random.next() >> 40;
    spec.recipe = static_cast<Recipe>(
        random.between(static_cast<int>(Recipe::ones), static_cast<int>(Recipe::specials)));
    if (is_plain && random.chance(30))
        spec.recipe = random.chance(70) ? Recipe::normal : Recipe::ints;
}

void draw_scale(Spec& spec, Random& random) {
    spec.set("scale", random.pick<std::int64_t>({1, 1, 1, 1, 0, 2, 2, 3, 4, 5, 6}));
}

void draw_layouts(Spec& spec, Random& random, Layout most, int cases, int tensors) {
    if (!random.chance(cases)) return;
    for (std::size_t i = 0; i < spec.schema->tensors.size(); ++i) {
        if (!random.chance(tensors)) continue;
        const TensorField& field = spec.schema->tensors[i];
        const Layout last = field.output ? Layout::spread : field.derived ? Layout::reversed : most;
        spec.layouts[i] = static_cast<Layout>(random.between(1, static_cast<int>(last)));
    }
}

void draw_given(Spec& spec, Random& random, int stats, int out) {
    if (spec.schema->number("stats") < 0) return;
    spec.set("stats", random.chance(stats));
    spec.set("out", random.chance(out));
}

void with_more_heads(Spec& spec, Random& random) {
    if (spec.number("kv_heads") > 1) return;
    spec.set("kv_heads", random.between(2, 3));
    spec.set("group", std::min<std::int64_t>((spec.number("group") + 1) / 2, 64));
}

void with_larger_group(Spec& spec, Random& random) {
    if (spec.number("group") == 1) spec.set("group", random.between(2, 3));
}

void fit_budget(const Spec& spec, const Budget& budget,
                const std::function<void(int tries)>& step) {
    for (int tries = 0; tries < budget.tries && budget.cost(spec) > budget.most; ++tries)
        step(tries);
}

void draw_leading_keys(Spec& spec, Random& random) {
    constexpr std::int64_t kLong = 1000, kDominant = 2;
    if (longest(spec.lists[1]) < kLong || spec.number("logits") != 0 || !random.chance(40)) return;
    spec.set("logits", kDominant);
    if (random.chance(70)) spec.recipe = Recipe::normal;
}

std::size_t any_sequence(const Spec& spec, Random& random) {
    return static_cast<std::size_t>(random.between(0, std::ssize(spec.lists[0]) - 1));
}

void with_another_sequence(Spec& spec, Random& random, bool packed) {
    for (auto& list : spec.lists) list.push_back(packed ? random.between(0, 20) : list[0]);
}

void with_power_of_two_keys(Spec& spec, Random& random) {
    if (!random.chance(60)) return;
    const std::int64_t keys = random.pick<std::int64_t>({1, 2, 4, 8, 16, 32, 64, 128, 256, 512});
    for (auto& length : spec.lists[1])
        if (length > 0) length = keys;
    if (keys > 128)  // few rows of many keys
        for (auto& length : spec.lists[0]) length = std::min<std::int64_t>(length, 32);
}

void ChangedCases::with_one_channel(std::initializer_list<const char*> cleared) {
    with([&](Spec& to) {
        to.set("dim", 1), to.set("value_dim", 1);
        for (const char* field : cleared) to.set(field, 0);
        to.set("scale", static_cast<std::int64_t>(ScaleKind::eighth));
    });
}

void ChangedCases::with_one_group() {
    with([](Spec& to) {
        to.set("group", to.number("group") * to.number("kv_heads"));
        to.set("kv_heads", 1);
    });
}

void ChangedCases::with_shorter_sequences() {
    constexpr std::int64_t kToOne = std::int64_t{1} << 30, kHalf = 0, kByOne = 1;
    for (const int which : {1, 2, 3})
        for (const std::int64_t cut : {kToOne, kHalf, kByOne})
            with([&](Spec& to) {
                for (int list = 0; list < 2; ++list)
                    if (which >> list & 1)
                        for (auto& length : to.lists[static_cast<std::size_t>(list)])
                            length = cut == kHalf    ? length / 2
                                     : cut == kByOne ? std::max<std::int64_t>(0, length - 1)
                                                     : std::min<std::int64_t>(length, 1);
            });
}

}  // namespace attncheck::properties
