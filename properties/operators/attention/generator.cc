// The generator of Attention and AttentionGrad: which shapes, features and data are drawn how often,
// cases as people run them and of full size, the classes of a case and those that a run must reach,
// and steps to smaller cases that change several fields.
#include <algorithm>
#include <numeric>
#include <utility>

#include "properties/case/attention_data.h"
#include "properties/case/attention_draws.h"
#include "properties/laws/attention_full_size.h"
#include "properties/operators/attention/case.h"
#include "properties/operators/labels.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

template <class Enum>
Int number(Enum value) {
    return static_cast<Int>(value);
}

void sample_shape(Random& random, Spec& spec) {
    spec.set("dtype", random.pick<Int>({0, 0, 1, 1, 2}));
    spec.set("layout", random.pick<Int>({0, 0, 1, 1, 2, 3, 3}));
    spec.set("kv_heads", random.pick<Int>({1, 1, 1, 2, 2, 3, 4}));
    spec.set("group", random.pick<Int>({1, 1, 1, 2, 2, 3, 4, 5, 8}));
    if (random.chance(2)) spec.set("kv_heads", random.pick<Int>({24, 33, 65}));
    if (random.chance(3)) spec.set("group", random.pick<Int>({9, 16, 17, 32, 33, 65}));
    const Int dim = random.chance(3)
                        ? random.pick<Int>({129, 144, 160, 200, 257, 264, 320, 576, random.between(257, 575), random.between(577, 1024)})
                        : random.pick<Int>({1,  1,  2,  7,  8,  16,  16, 17,  32,  33,  40,  64,
                                            64, 72, 80, 88, 96, 100, 104, 128, 128, 192, 256, 512});
    spec.set("dim", dim);
    const Int other = random.chance(30) ? 1 : random.pick<Int>({random.between(1, dim), 8, 64, 96, 2 * dim});
    spec.set("value_dim", random.chance(60) ? dim : std::min<Int>(other, 512));
    draw_lengths(spec, random, is_packed(spec));
}

/// Long and thin: a case costs what a short one does.
void make_long(Random& random, Spec& spec) {
    const Int length = random.pick<Int>({1023, 1024, 1025, 2047, 2049, 4097, kBeyond16Bits, kBeyond16Bits, kBeyond16Bits});
    const Int few = length > 2049 ? random.between(1, 3) : random.between(1, 40);
    spec.set("kv_heads", 1), spec.set("group", 1);
    spec.set("dim", random.pick<Int>({1, 2, 8}));
    spec.set("value_dim", random.between(1, 8));
    spec.lists = {{few}, {length}};
    if (random.chance(40)) std::swap(spec.lists[0], spec.lists[1]);
}

/// As many queries as keys or nearly so, thin, in a window: a diagonal that leaves the corner far behind.
void make_band(Random& random, Spec& spec) {
    const Int length = random.pick<Int>({257, 513, 1023, 1025, 1100, 2049});
    spec.set("kv_heads", 1), spec.set("group", 1);
    spec.set("dim", random.pick<Int>({1, 2, 8}));
    spec.set("value_dim", random.between(1, 8));
    spec.lists = {{length}, {length + random.between(-3, 40)}};
}

/// More pairs of batch and head than the second and third number of a grid of threads may be, one query and a key or two each.
void make_grid(Random& random, Spec& spec) {
    constexpr std::size_t kMost = 65'535;
    const Int heads = random.pick<Int>({64, 80, 128});
    const std::size_t batches = kMost / static_cast<std::size_t>(heads) + 2;
    spec.set("kv_heads", random.chance(70) ? heads : 2);
    spec.set("group", heads / spec.number("kv_heads"));
    spec.set("dim", random.between(1, 2)), spec.set("value_dim", random.between(1, 2));
    spec.lists = {std::vector<Int>(batches, 1), std::vector<Int>(batches, random.between(1, 2))};
}

/// More batches or heads than one block of threads has: the gradients of biases and sinks are sums over them.
void make_many(Random& random, Spec& spec) {
    const bool heads = random.chance(50);
    spec.set("kv_heads", heads ? random.pick<Int>({65, 66, 130}) : random.between(1, 3));
    spec.set("group", random.between(1, 2));
    spec.set("dim", random.pick<Int>({1, 2, 8}));
    spec.set("value_dim", random.between(1, 8));
    const auto batches = static_cast<std::size_t>(heads ? random.between(1, 2) : random.pick<Int>({9, 33, 40, 65}));
    Int queries = random.between(1, 3);
    if (heads && random.chance(35)) {  // a grid of heads and tiles of queries, the last one ragged
        spec.set("kv_heads", random.pick<Int>({33, 40, 65}));
        queries = random.pick<Int>({33, 65, 65, 66, 129});
    }
    spec.lists = {std::vector<Int>(batches, queries), std::vector<Int>(batches, random.between(1, 9))};
    if (heads && random.chance(20)) spec.set("kv_heads", random.between(2, 3)), spec.set("group", random.pick<Int>({65, 66, 128}));
    if (random.chance(4)) make_grid(random, spec);
}

/// Large groups and queries beyond the first tile, thin: what all heads of a group make of one key.
void make_large_group(Random& random, Spec& spec) {
    spec.set("kv_heads", random.between(1, 2));
    spec.set("group", random.pick<Int>({5, 6, 7, 8, 12, 16}));
    spec.set("dim", random.pick<Int>({1, 2, 8, 16}));
    spec.set("value_dim", random.between(1, 8));
    spec.lists = {{random.between(65, 140)}, {random.between(1, 40)}};
}

/// Those gradients are asked for.
void draw_many(Random& random, Spec& spec) {
    if (random.chance(60)) spec.set("sink", random.between(1, 2));
    if (!is_packed(spec) && random.chance(70)) spec.set("bias", random.between(1, 8));
    if (spec.lists[0].size() > 32 && random.chance(70)) {  // one sum over all batches
        spec.set("layout", random.between(0, 2));
        spec.set("bias", number(random.pick({PairForm::one_batch, PairForm::shared, PairForm::head_key, PairForm::head})));
    }
    if (spec.number("bias") == 0) spec.set("bias_type", 0), spec.set("bias_values", 0);
}

void draw_band(Random& random, Spec& spec) {
    for (const char* pairs : {"bias", "mask"}) spec.set(pairs, 0);
    spec.set("window_left", random.between(0, 200));
    spec.set("window_right", random.chance(60) ? 0 : random.between(0, 60));
}

void fit_budget(Random& random, Spec& spec, Int budget) {
    const auto cost = [](const Spec& of) { return attention_cost_of(of, 8); };
    fit_budget(spec, {.most = budget, .cost = cost}, [&](int tries) {
        const Int choice = random.between(0, 5);
        if (choice < 2) {
            auto& list = spec.lists[static_cast<std::size_t>(choice)];
            const Int longest_one = longest(list);
            for (Int& length : list)
                if (length == longest_one) length = (length + 1) / 2;
        } else if (choice == 2 && spec.lists[0].size() > 1) {
            remove_sequence(spec, any_sequence(spec, random));
        } else if (choice == 3) {
            spec.set("group", (spec.number("group") + 1) / 2);
        } else if (choice == 4 && tries > 10) {
            spec.set("kv_heads", (spec.number("kv_heads") + 1) / 2);
        } else if (tries > 20) {
            for (const char* width : {"dim", "value_dim"})
                spec.set(width, std::min<Int>(spec.number(width), 128));
        }
    });
}

/// Causal from either corner, a window, one side of a window, or everything.
void sample_window(Random& random, Spec& spec) {
    const Int reach = std::max(longest(spec.lists[0]), longest(spec.lists[1])) + 2;
    spec.set("align", random.between(0, 1));
    const Int kind = random.between(0, 9);
    if (kind < 3) return;
    if (kind < 6 || random.chance(50)) spec.set("window_right", 0);
    if (kind < 6) return;
    const std::size_t b = any_sequence(spec, random);
    const Int offset = spec.number("align") == 1 ? spec.lists[1][b] - spec.lists[0][b] : 0;
    const auto draw_reach = [&](Int edge, Int most) {
        return random.chance(40) ? reach_to_tile_edge(random, edge, most) : random.between(0, most);
    };
    if (kind != 6) spec.set("window_left", random.chance(15) ? 0 : draw_reach(offset, reach));
    if (kind > 7) spec.set("window_right", draw_reach(-offset, std::max<Int>(reach / 2, 1)));
}

void sample_features(Random& random, Spec& spec) {
    sample_window(random, spec);
    if (random.chance(25)) draw_softcap(spec, random);
    if (random.chance(30)) spec.set("sink", random.pick<Int>({1, 1, 2, 3, 4}));
    if (random.chance(15)) spec.set("lse", 1);
    if (is_packed(spec)) return;
    if (random.chance(40)) {
        spec.set("bias", random.between(1, 8));
        spec.set("bias_type", random.between(0, 1));
        spec.set("bias_values", random.pick<Int>({0, 0, 0, 0, 1, 1, 2, 3}));
    }
    if (random.chance(35)) spec.set("mask", random.between(1, 8));
    if (random.chance(35)) spec.set("kv_length", random.pick<Int>({1, 2, 2, 2, 3}));
    if (spec.number("kv_length") > number(KvLength::all)) spec.set("hidden_keys", random.chance(70));
}

void sample_data(Random& random, Spec& spec) {
    draw_any_data(spec, random);
    draw_scale(spec, random);
    spec.set("logits", random.chance(45) ? 0 : random.between(0, 8));
    draw_layouts(spec, random);
    for (std::size_t i = 0; i < spec.layouts.size(); ++i)
        if (spec.schema->tensors[i].logical.empty() && spec.layouts[i] == Layout::broadcast)
            spec.layouts[i] = Layout::gap;
}

/// Positions that leave 16 bits, masked or in a window at the end, in a type that shows few keys of many in the LSE.
void sample_far_positions(Random& random, Spec& spec) {
    if (longest(spec.lists[1]) < kBeyond16Bits) return;
    spec.recipe = random.pick({Recipe::normal, Recipe::normal, Recipe::spiky, Recipe::onehot});
    spec.set("dtype", random.pick<Int>({2, 2, 0, 1}));
    spec.set("logits", 0);
    if (is_packed(spec) || random.chance(40)) {
        if (random.chance(85)) spec.set("window_left", random.chance(30) ? random.pick<Int>({4095, 4096, 8192, 20'000}) : random.between(0, 3000)), spec.set("align", 1);
        return;
    }
    spec.set("window_left", -1), spec.set("window_right", -1);
    spec.set("mask", number(random.pick({PairForm::full, PairForm::shared, PairForm::per_key})));
}

void sample_gradient(Random& random, Spec& spec) {
    if (spec.schema->number("out") < 0) return;
    spec.set("out", random.chance(15));
    if (spec.number("bias") != 0) spec.set("dbias", random.chance(20));
    if (spec.number("sink") != 0) spec.set("dsink", random.chance(20));
}

bool some_row_without_key(const Spec& spec) {
    const ref::NeutralAttentionShape s = neutral_shape_parts(spec).shape;
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
        for (Int i = 0; i < s.query_lengths[b]; ++i)
            if (const ref::SeenKeys keys = ref::seen_keys(s, b, i); keys.begin >= keys.end)
                return true;
    return false;
}

}  // namespace

Spec sample_neutral(const Schema& schema, Random& random, int size, Profile profile) {
    for (int tries = 0; tries < 200; ++tries) {
        Spec spec(schema);
        spec.profile = profile;
        sample_shape(random, spec);
        const bool is_band = random.chance(2), has_many = !is_band && random.chance(3);
        const bool has_large_group = !is_band && !has_many && random.chance(2);
        if (is_band)
            make_band(random, spec);
        else if (has_many)
            make_many(random, spec);
        else if (has_large_group)
            make_large_group(random, spec);
        else if (random.chance(6))
            make_long(random, spec);
        else if (random.chance(10))
            draw_wide_shape(spec, random, is_packed(spec));
        else
            fit_budget(random, spec, (Int{1} << 17) + (Int{6} << 10) * size);
        sample_features(random, spec);
        if (is_band) draw_band(random, spec);
        if (has_many) draw_many(random, spec);
        sample_data(random, spec);
        draw_leading_keys(spec, random);
        sample_far_positions(random, spec);
        sample_gradient(random, spec);
        if (!illegal(spec)) return spec;
    }
    return plain_neutral(schema, random);
}

Spec plain_neutral(const Schema& schema, Random& random) {
    Spec spec(schema);
    spec.set("dtype", random.pick<Int>({0, 1, 1, 0, 2}));
    spec.set("layout", random.pick<Int>({0, 0, 1, 3}));
    draw_plain_shape(spec, random, is_packed(spec));
    const Int mode = random.between(0, 3);
    if (mode > 0) spec.set("window_right", 0);
    if (mode > 0) spec.set("align", random.between(0, 1));
    if (mode == 3) {
        const Int offset = spec.number("align") == 1 ? spec.lists[1][0] - spec.lists[0][0] : 0;
        spec.set("window_left", random.chance(30) ? reach_to_tile_edge(random, offset, 80) : random.between(1, 80));
        if (random.chance(30)) spec.set("window_right", reach_to_tile_edge(random, -offset, 80));  // both ways
    }
    if (!is_packed(spec) && random.chance(14)) {
        const bool is_bias = random.chance(50);
        spec.set(is_bias ? "bias" : "mask", number(random.pick({PairForm::full, PairForm::shared, PairForm::per_key})));
        if (is_bias && random.chance(60)) spec.set("bias_values", number(BiasValues::hides));
    }
    if (random.chance(8)) spec.set("sink", number(Sinks::normal));
    spec.seed = random.next() >> 40;
    return spec;
}

/// The size that is asked for, causal; several sequences off every tile edge with shared key heads,
/// a softcap and sinks; padded batches with kv_length and a bias of the keys; for a
/// gradient, one row of biases over all queries; and a band over positions that leave 16 bits.
/// First exact sums over a power of two of keys.
std::vector<Spec> neutral_large_cases(const Schema& schema, Int length, std::uint64_t seed) {
    constexpr Int kFp16 = 0;
    Random random(seed);
    const Int odd = random.between(1, 15), half = std::max<Int>(length / 2, 64),
              quarter = std::max<Int>(length / 4 - odd, 64),
              longest_one = long_where_linear(length) + odd;
    std::vector<Spec> out;
    const auto add = [&](std::vector<Int> q, std::vector<Int> kv, NeutralLayout layout, Int heads,
                         std::initializer_list<std::pair<const char*, Int>> fields) {
        Spec spec = large_case(schema, std::move(q), std::move(kv), seed + out.size());
        spec.set("layout", number(layout));
        spec.set("kv_heads", heads);
        for (const auto& [field, value] : fields) spec.set(field, value);
        out.push_back(std::move(spec));
    };
    add({length}, {length}, NeutralLayout::bshd, 8, {{"window_right", 0}});
    add({half / 2 + odd, 1, 0, half / 4 - odd}, {half - odd, 33, 5, half / 4},
        NeutralLayout::packed, 2,
        {{"dtype", kFp16}, {"group", 4}, {"dim", 96}, {"value_dim", 64}, {"window_right", 0},
         {"align", 1}, {"softcap", 20}, {"sink", number(Sinks::normal)}});
    add({quarter, quarter}, {quarter + 40, quarter + 40}, NeutralLayout::bhsd, 2,
        {{"kv_length", number(KvLength::some)}, {"hidden_keys", number(HiddenKeys::nan)},
         {"bias", number(PairForm::per_key)}});
    if (schema.number("dbias") >= 0)
        add({quarter}, {quarter / 2}, NeutralLayout::bshd, 1,
            {{"dim", 64}, {"value_dim", 64}, {"bias", number(PairForm::per_key)}});
    add({longest_one}, {longest_one}, NeutralLayout::packed, 2,
        {{"dim", 64}, {"value_dim", 64}, {"window_left", 500}, {"window_right", 3}});
    add({std::min<Int>(length, 512) - odd}, {exact_keys_of(length)}, NeutralLayout::bshd, 2,
        {{"group", 2}});
    with_exact_sums(out.back());
    std::ranges::rotate(out, out.end() - 1);
    add_exact_scores(out);
    return out;
}

std::vector<std::string> neutral_labels(const Spec& spec) {
    Labels labels(spec, {"layout", "logits", "scale", "bias", "mask", "kv_length", "sink"});
    const Int left = spec.number("window_left"), right = spec.number("window_right");
    labels.add(left < 0 && right < 0, "no_window");
    labels.add(left < 0 && right == 0, "causal");
    labels.add(left >= 0, "window");
    if (left >= 0 || right >= 0) labels.value_of("align");
    labels.add(spec.number("softcap") > 0, "softcap");
    if (spec.number("softcap") > 0) labels.value_of("softcap_unit");
    labels.add(spec.number("lse") != 0, "lse_absent");
    if (spec.number("bias") != 0) labels.value_of("bias_values");
    if (spec.number("bias") != 0) labels.value_of("bias_type");
    labels.add(spec.number("hidden_keys") != 0, "hidden_nan");
    labels.lengths();
    labels.add(spec.lists[0].size() > 1, "several_sequences");
    labels.heads_and_widths();
    labels.add(longest(spec.lists[1]) > 1022, "many_keys");
    labels.add(left >= 0 && longest(spec.lists[1]) >= kBeyond16Bits, "window_beyond_16_bits");
    labels.add(longest(spec.lists[0]) > 1022, "many_queries");
    labels.layouts();
    labels.given();
    if (labels.edited()) return labels.take();
    labels.add(some_row_without_key(spec), "row_without_key");
    return labels.take();
}

std::vector<RequiredClass> neutral_required_classes(bool gradient) {
    return Required(neutral_description(gradient))
        .share(15, {"fp16", "bf16", "grouped_heads", "several_kv_heads", "several_sequences"})
        .share(10, {"no_window", "causal", "fewer_queries", "softcap", "value_dim_smaller"})
        .share(8, {"fp32", "square", "more_queries", "window", "strided", "odd_dim"})
        .share(4, {"lse_absent", "row_without_key", "value_dim_larger", "hidden_nan"})
        .share(2, {"wide_dim", "broadcast", "reversed"})
        .share(1, {"queries_without_keys", "keys_without_queries"})
        .share(0.5, {"many_keys", "many_queries"})
        .rare(0.2, {"one_buffer", "window_beyond_16_bits"})
        .values(5, "layout")
        .values(5, "align")
        .values(2, "bias_type")
        .values(1, "bias_values")
        .values(1, "bias")
        .values(1, "mask")
        .values(2, "kv_length")
        .values(2, "sink")
        .values(1, "softcap_unit")
        .recipes(0.5)
        .values(1, "logits")
        .values(1, "scale")
        .given(3)
        .take();
}

std::vector<Spec> neutral_joint_shrinks(const Spec& spec) {
    ChangedCases cases(spec);
    const auto with = [&](auto&& change) { cases.with(change); };
    const auto clear = [](Spec& to, std::initializer_list<const char*> fields) {
        for (const char* field : fields) set_if_present(to, field, 0);
    };
    const auto no_bias = [=](Spec& to) {
        clear(to, {"bias", "bias_type", "bias_values", "dbias"});
    };
    const auto no_sink = [=](Spec& to) { clear(to, {"sink", "dsink"}); };
    const auto no_length = [=](Spec& to) { clear(to, {"kv_length", "hidden_keys"}); };
    const auto no_window = [](Spec& to) {
        to.set("window_left", -1), to.set("window_right", -1), to.set("align", 0);
    };
    with([&](Spec& to) {
        no_bias(to), no_sink(to), no_length(to), no_window(to);
        clear(to, {"mask"}), without_softcap(to);
    });
    with(no_bias), with(no_sink), with(no_length), with(no_window);
    for (const Int dim : {1, 2, 8, 16, 32, 64})
        if (dim < spec.number("dim"))
            with([&](Spec& to) {
                to.set("dim", dim);
                to.set("value_dim", std::min(to.number("value_dim"), dim));
            });
    cases.with_shorter_sequences();
    cases.with_one_group();
    cases.with_one_channel();
    return cases.take();
}

std::unique_ptr<Operator> make_attention(bool gradient) {
    return make_operator({.schema = neutral_description(gradient),
                          .properties = neutral_properties(gradient),
                          .required = neutral_required_classes(gradient),
                          .labels = neutral_labels,
                          .draw = sample_neutral,
                          .joint_shrinks = neutral_joint_shrinks,
                          .large_cases = neutral_large_cases,
                          .plain = plain_neutral,
                          .attention = neutral_operator});
}

}  // namespace attncheck::properties
