// The generator of decoding: which shapes, pages and data are drawn how often, and steps to smaller
// cases that change several fields.
#include <algorithm>

#include "properties/case/attention_draws.h"
#include "properties/operators/attention_decode/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

Int cost(const Spec& spec) {
    const Int kv_heads = spec.number("kv_heads"), dims = spec.number("dim") + spec.number("value_dim");
    const Int slots = decode_pages(extents_of(spec)) * spec.number("page");
    return query_key_pairs(spec) * kv_heads * spec.number("group") * dims + 8 * slots * kv_heads * dims;
}

void sample_heads(Random& random, Spec& spec) {
    spec.set("kv_heads", random.chance(40) ? 1 : random.pick<Int>({2, 2, 2, 3, 4, 5}));
    spec.set("group", random.pick<Int>({1, 1, 2, 3, 4, 4, 5, 7, 8, 8, 9, 15, 16, 17}));
    spec.set("dim", random.pick<Int>({64, 64, 128, 80, 96, 16, 8, 1, 2, 7, 17, 33, 65, 100, 192,
                                      256, random.between(1, 160)}));
    if (random.chance(3)) spec.set("dim", random.pick<Int>({257, 320, 512, 576, random.between(257, 575)}));  // two registers of 256 channels
    spec.set("value_dim", random.chance(60) ? spec.number("dim")
                                            : random.pick<Int>({1, 5, 16, 31, 64, 65, 128, 160, random.chance(30) ? 512 : 256}));
}

/// Around whole pages; now and then shorter than the queries, or nothing.
Int sample_length(Random& random, Int page, Int queries) {
    if (random.chance(7)) return 0;
    if (random.chance(7)) return random.between(1, queries);
    if (random.chance(30)) return random.between(1, 3 * page + 40);
    if (random.chance(6))  // around steps of a kernel, whatever a page is
        return random.pick<Int>({64, 128, 256, 256, 512}) * random.between(1, 2) + random.pick<Int>({0, 0, -1, 1});
    const Int pages = random.pick<Int>({1, 1, 2, 2, 3, 4, 5, page < 4 ? 33 : 7});
    return std::max<Int>(pages * page + random.between(-1, 1), 1);
}

void sample_sequences(Random& random, Spec& spec) {
    const Int queries = random.chance(55) ? 1 : random.pick<Int>({2, 2, 3, 4, 5, 7, 8, 15, 16});
    const Int sequences = random.pick<Int>({1, 1, 2, 2, 3, 3, 4, 5, 9});
    spec.lists = {std::vector<Int>(static_cast<std::size_t>(sequences), queries), {}};
    for (Int b = 0; b < sequences; ++b)
        spec.lists[1].push_back(sample_length(random, spec.number("page"), queries));
    // Common prefixes need something in common.
    if (sequences > 1 && random.chance(25))
        spec.lists[1][1] = spec.lists[1][0] + random.pick<Int>({0, 0, 1, spec.number("page")});
}

/// Long and thin: a case costs what a short one does.
void make_long(Random& random, Spec& spec) {
    spec.set("kv_heads", 1), spec.set("group", random.between(1, 2));
    spec.set("dim", random.pick<Int>({1, 2, 8})), spec.set("value_dim", random.between(1, 8));
    spec.set("page", random.pick<Int>({16, 16, 32, 64, 128, 256}));
    spec.lists = {{random.between(1, 2)}, {random.pick<Int>({1025, 2047, 2049, 4096, 4097, 8193, kBeyond16Bits})}};
}

/// Large pages that are no whole number of tiles, several of them; thin.
void make_large_pages(Random& random, Spec& spec) {
    spec.set("kv_heads", random.between(1, 2)), spec.set("group", random.between(1, 4));
    spec.set("dim", random.pick<Int>({1, 2, 8, 16})), spec.set("value_dim", random.between(1, 8));
    const Int page = random.pick<Int>({48, 80, 100, 136, 144, 200, 232, 250}), queries = random.between(1, 3);
    spec.set("page", page);
    spec.lists = {{queries, queries}, {}};
    for (int b = 0; b < 2; ++b) spec.lists[1].push_back(random.between(1, 3) * page + random.between(1 - page, page / 2));
}

/// What servers run, two extents at once: many heads, batches or keys, each of which the budget of other cases keeps apart.
void make_serving(Random& random, Spec& spec) {
    constexpr Int kMost = Int{1} << 22;
    spec.set("page", random.pick<Int>({16, 16, 32, 64, 128}));
    spec.set("dim", random.pick<Int>({64, 128, 128, 192})), spec.set("value_dim", std::min<Int>(spec.number("dim"), 128));
    const auto batch = [&](Int sequences, Int least, Int most) {
        spec.lists = {std::vector<Int>(static_cast<std::size_t>(sequences), 1), {}};
        for (Int b = 0; b < sequences; ++b) spec.lists[1].push_back(random.between(least, most));
    };
    switch (random.between(0, 2)) {
        case 0:  // heads
            spec.set("kv_heads", random.pick<Int>({1, 1, 8, 32, 128})), spec.set("group", random.pick<Int>({16, 64, 128}));
            if (spec.number("kv_heads") > 1) spec.set("group", std::min<Int>(spec.number("group"), 128 / spec.number("kv_heads")));
            batch(random.between(1, 2), 1, 100);
            if (spec.number("kv_heads") == 1 && random.chance(40))  // guessed tokens of a latent head: all rows of a batch are one
                spec.lists[0].assign(spec.lists[0].size(), random.pick<Int>({2, 4, 5, 8}));
            break;
        case 1:  // keys
            spec.set("kv_heads", random.between(1, 2)), spec.set("group", random.pick<Int>({1, 4, 8, 16}));
            batch(random.between(1, 2), 513, 1100);
            break;
        default:  // batches
            spec.set("kv_heads", random.between(1, 2)), spec.set("group", random.pick<Int>({1, 1, 4}));
            spec.set("dim", random.pick<Int>({8, 16, 64})), spec.set("value_dim", spec.number("dim"));
            batch(random.between(17, 40), 1, random.chance(50) ? 700 : 100);
    }
    while (cost(spec) > kMost && spec.number("dim") > 8) {
        spec.set("dim", spec.number("dim") / 2);
        spec.set("value_dim", std::min(spec.number("value_dim"), spec.number("dim")));
    }
}

void sample_pages(Random& random, Spec& spec) {
    spec.set("cache", random.pick<Int>({0, 0, 0, 1, 1, 2}));
    spec.set("pages", random.pick<Int>({0, 1, 2, 2, 2, 2}));
    spec.set("shared", random.pick<Int>({0, 0, 1, 1, 2}));
    if (random.chance(50)) spec.set("spare", random.between(1, 3));
    if (random.chance(40)) spec.set("slack", random.between(1, 4));
    spec.set("tail", random.between(0, 3));
    spec.set("rest", random.pick<Int>({0, 0, 1, 1, 1, 1, 1, 1, 2, 3}));
}

void sample_features(Random& random, Spec& spec) {
    if (random.chance(35)) {
        const Int longest_kv = longest(spec.lists[1]), page = spec.number("page");
        spec.set("window_left", random.pick<Int>({0, 1, page - 1, page, page + 1, longest_kv / 2,
                                             longest_kv, random.between(0, longest_kv + 2)}));
    }
    if (random.chance(30)) draw_softcap(spec, random);
    if (random.chance(35)) spec.set("sink", random.between(1, 4));
    if (random.chance(12)) spec.set("lse", 1);
}

void sample_data(Random& random, Spec& spec) {
    spec.seed = random.next() >> 40;
    spec.recipe = random.pick<Recipe>(
        {Recipe::normal, Recipe::normal, Recipe::normal, Recipe::normal, Recipe::ints, Recipe::ints,
         Recipe::ones, Recipe::onehot, Recipe::signs, Recipe::cancelling, Recipe::spiky,
         Recipe::huge, Recipe::subnormal, Recipe::specials});
    draw_scale(spec, random);
    spec.set("logits", random.chance(58) ? 0 : random.between(1, 9));
    draw_layouts(spec, random);
}

/// Latent attention as servers run it: one head of 576 channels for all queries.
void make_latent(Random& random, Spec& spec) {
    spec.set("kv_heads", 1), spec.set("group", random.pick<Int>({1, 8, 16, 16, 64, 128}));
    spec.set("dim", 576), spec.set("value_dim", 512);
    constexpr Int kMost = Int{1} << 22;
    while (cost(spec) > kMost && longest(spec.lists[1]) > 16)
        for (Int& length : spec.lists[1]) length = (length + 1) / 2;
    while (cost(spec) > kMost && spec.number("group") > 1) spec.set("group", spec.number("group") / 2);
}

/// Values that lie in the keys. By the seed of the case, so that other draws stay as they are.
void draw_value_place(Spec& spec) {
    constexpr int kPercent = 6, kLatent = 25;
    Random random(mix(spec.seed ^ 0x1a7e47));
    if (!random.chance(kPercent)) return;
    Spec other = spec;
    other.set("values", static_cast<Int>(ValuePlace::in_keys));
    other.layouts[static_cast<std::size_t>(other.schema->tensor("value_cache"))] = Layout::dense;
    if (random.chance(kLatent)) make_latent(random, other);
    other.set("value_dim", std::min(other.number("dim"), other.number("value_dim")));
    if (!illegal(other)) spec = std::move(other);
}

void fit_budget(Random& random, Spec& spec, Int budget) {
    const auto step = [&](int tries) {
        const std::size_t at = any_sequence(spec, random);
        auto& kv = spec.lists[1];
        switch (random.between(0, 5)) {
            case 0:
                if (tries > 10 && spec.number("kv_heads") > 1)
                    spec.set("kv_heads", spec.number("kv_heads") - 1);
                break;
            case 1:
                set_queries(spec, (spec.lists[0][0] + 1) / 2);
                break;
            case 2:
                if (kv[at] > 1) kv[at] = (kv[at] + 1) / 2;
                break;
            case 3:
                if (tries > 8 && kv.size() > 2) remove_sequence(spec, at);
                break;
            case 4:
                if (tries > 5) spec.set("dim", (spec.number("dim") + 1) / 2);
                break;
            default:
                if (tries > 15) spec.set("group", (spec.number("group") + 1) / 2);
                break;
        }
    };
    fit_budget(spec, {.most = budget, .cost = cost}, step);
}

std::vector<Spec> joint_shrinks(const Spec& spec) {
    ChangedCases cases(spec);
    const Int queries = spec.lists[0][0];
    for (const Int fewer : {Int{1}, queries / 2, queries - 1}) {
        if (fewer < 1 || fewer >= queries) continue;
        cases.with([&](Spec& to) { set_queries(to, fewer); });
        cases.with([&](Spec& to) {  // the same first row
            set_queries(to, fewer);
            for (auto& length : to.lists[1]) length = std::max<Int>(length - queries + fewer, 0);
        });
    }
    // The same number of pages, and the same place in the last one, with smaller pages.
    const Int page = spec.number("page");
    for (const Int smaller : {Int{1}, Int{2}, page / 2, page - 1}) {
        if (smaller < 1 || smaller >= page) continue;
        cases.with([&](Spec& to) { to.set("page", smaller); });
        cases.with([&](Spec& to) {
            to.set("page", smaller);
            for (auto& length : to.lists[1])
                if (length > 0)
                    length = (length - 1) / page * smaller +
                             std::min((length - 1) % page + 1, smaller);
        });
    }
    cases.with([](Spec& to) {
        for (const char* field : {"cache", "values", "pages", "shared", "spare", "slack", "tail", "rest"})
            to.set(field, 0);
    });
    cases.with([](Spec& to) {
        to.set("window_left", -1);
        for (const char* field : {"softcap", "softcap_unit", "sink", "lse", "logits"}) to.set(field, 0);
    });
    const Int narrow = std::min(spec.number("dim"), spec.number("value_dim"));
    cases.with([&](Spec& to) { to.set("dim", narrow), to.set("value_dim", narrow); });
    cases.with_one_group();
    return cases.take();
}

}  // namespace

void set_queries(Spec& spec, Int queries) {
    std::ranges::fill(spec.lists[0], queries);
}

Spec sample_decode(const Schema& schema, Random& random, int size, Profile) {
    Spec spec(schema);
    spec.set("dtype", random.between(0, 2));
    sample_heads(random, spec);
    spec.set("page", random.pick<Int>({16, 16, 16, 32, 64, 1, 2, 3, 4, 5, 8, 8, 12, 17, 128, 256,
                                       random.between(1, 40)}));
    sample_sequences(random, spec);
    if (random.chance(3))
        make_long(random, spec);
    else if (random.chance(5))
        make_serving(random, spec);
    else if (random.chance(3))
        make_large_pages(random, spec);
    else
        fit_budget(random, spec, (Int{1} << 17) + (Int{8} << 10) * size);
    sample_pages(random, spec);
    sample_features(random, spec);
    sample_data(random, spec);
    draw_leading_keys(spec, random);
    draw_value_place(spec);
    return spec;
}

/// The shapes of inference servers: pages of 16, one query, widths 64 and 128, groups 1, 4 and 8, lengths around
/// whole pages, a slice of the cache in no order.
Spec plain_decode(const Schema& schema, Random& random) {
    Spec spec(schema);
    spec.set("dtype", random.pick<Int>({0, 1, 1, 0, 2}));
    spec.set("kv_heads", random.pick<Int>({1, 1, 2}));
    spec.set("group", random.pick<Int>({1, 4, 4, 8}));
    spec.set("dim", random.pick<Int>({64, 64, 128}));
    spec.set("value_dim", spec.number("dim"));
    spec.set("page", 16);
    spec.set("scale", static_cast<Int>(ScaleKind::rsqrt));
    const auto sequences = static_cast<std::size_t>(random.pick<Int>({1, 2, 2, 3, 4}));
    spec.lists = {std::vector<Int>(sequences, random.chance(80) ? 1 : random.between(2, 5)), {}};
    for (std::size_t b = 0; b < sequences; ++b)
        spec.lists[1].push_back(std::max<Int>(16 * random.between(0, 6) + random.between(-1, 1), 1));
    if (random.chance(8)) {
        make_latent(random, spec);
        spec.set("values", static_cast<Int>(ValuePlace::in_keys));
    }
    spec.set("pages", static_cast<Int>(PageOrder::shuffled));
    if (random.chance(30)) spec.set("shared", static_cast<Int>(PageSharing::prefix));
    spec.set("spare", random.between(0, 2));
    spec.set("rest", static_cast<Int>(RestValues::nan));
    if (random.chance(20)) spec.set("window_left", random.pick<Int>({15, 16, 31, 40}));
    spec.seed = random.next() >> 40;
    return spec;
}

std::unique_ptr<Operator> make_attention_decode() {
    return make_operator({.schema = decode_description(),
                          .properties = decode_properties(),
                          .required = decode_required_classes(),
                          .labels = decode_labels,
                          .draw = sample_decode,
                          .joint_shrinks = joint_shrinks,
                          .large_cases = decode_large_cases,
                          .plain = plain_decode,
                          .attention = decode_operator});
}

}  // namespace attncheck::properties
