// The properties of Attention and its gradient, and the cases that they want.
#include <algorithm>
#include <memory>
#include <utility>

#include "properties/case/attention_data.h"
#include "properties/case/attention_draws.h"
#include "properties/judge/attention_tiers.h"
#include "properties/laws/attention_full_size.h"
#include "properties/laws/attention_laws.h"
#include "properties/operators/attention/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

void without_bias(Spec& spec) {
    for (const char* field : {"bias", "bias_type", "bias_values", "dbias"})
        set_if_present(spec, field, 0);
}

void without_sink(Spec& spec) {
    spec.set("sink", 0);
    set_if_present(spec, "dsink", 0);
}

void make_lattice(Spec& spec, Random& random) {
    spec.set("logits", random.between(1, 2));
    spec.set("scale", random.between(0, 2));
    without_softcap(spec);
    set_if_present(spec, "out", 0);
    without_bias(spec), without_sink(spec);
    with_power_of_two_keys(spec, random);
}

std::vector<EarlierChange> earlier_changes() {
    const auto shared = static_cast<Int>(PairForm::shared);
    const auto all = static_cast<Int>(KvLength::all), some = static_cast<Int>(KvLength::some);
    return {other_value("layout", {0, 1, 2}),
            other_value("window_left", {-1, 0}),
            other_value("window_right", {0, -1}),
            other_value("align", {0, 1}),
            other_value("softcap", {0, 1}),
            other_value("kv_length", {some, all, 0}),
            other_value("sink", {0, 1}),
            other_value("mask", {0, shared}),
            {"another bias", [=](const Spec& spec) {
                 Spec none = spec, one = spec;
                 without_bias(none);
                 one.set("bias", shared);
                 return std::vector<Spec>{std::move(none), std::move(one)};
             }},
            other_value("lse", {0, 1})};
}

/// Three in four cases with long sums over queries: dbias and dsink are such sums, where one row of a bias serves all
/// queries. Few of them have such a bias otherwise.
void with_sums_over_queries(Spec& spec, Random& random) {
    constexpr Int kLong = 512;
    if (longest(spec.lists[0]) < kLong || !random.chance(75)) return;
    Spec sums = spec;
    sums.set("layout", random.between(0, 2));
    sums.set("bias", static_cast<Int>(random.pick({PairForm::per_key, PairForm::head_key})));
    sums.set("sink", static_cast<Int>(Sinks::normal));
    for (const char* field : {"bias_values", "dbias", "dsink", "mask", "kv_length"}) sums.set(field, 0);
    if (random.chance(70)) sums.set("window_left", -1), sums.set("window_right", -1);
    if (!illegal(sums)) spec = std::move(sums);
}

/// Biases that keep another scale than the logits have; -1e30 is none that a kernel could store in fp16.
bool has_far_biases(const Spec& spec) {
    const auto values = static_cast<BiasValues>(spec.number("bias_values"));
    return values == BiasValues::far || (values == BiasValues::masks && spec.number("dtype") == dtype_field(ref::Dtype::fp16));
}

void make_neutral_tier_case(Spec& spec, Random& random) {
    spec.set("hidden_keys", 0);
    if (has_far_biases(spec)) spec.set("bias_values", 0);
    const bool gradient = spec.schema == &neutral_description(true);
    make_dense_tier_case(spec, random, gradient);
    if (gradient) with_sums_over_queries(spec, random);
}

/// One case in fifty has key positions that leave 16 bits and a mask, in fp32, whose LSE shows a few
/// keys of many.
void with_far_positions_or_wide_rows(Spec& spec, Random& random) {
    if (!random.chance(2)) return now_and_then_wide(spec, random, is_packed(spec));
    Spec far = spec;
    far.lists = {{random.between(1, 3)}, {kBeyond16Bits}};
    for (const auto& [field, value] : std::initializer_list<std::pair<const char*, Int>>{
             {"dtype", 2}, {"layout", 0}, {"kv_heads", 1}, {"group", 1}, {"dim", 2},
             {"value_dim", 2}, {"window_left", -1}, {"window_right", -1}, {"logits", 0},
             {"kv_length", 0}, {"hidden_keys", 0}, {"bias_values", 0},
             {"mask", static_cast<Int>(PairForm::per_key)}})
        far.set(field, value);
    far.recipe = Recipe::normal;
    if (!illegal(far)) spec = std::move(far);
}

bool is_neutral_tier_data(const Spec& spec) {
    return is_tier_data(spec) && spec.number("hidden_keys") == 0 && !has_far_biases(spec);
}

Verdict check_full_size(const Spec& given, PropertyContext& context) {
    Spec spec = given;
    if (context.rounding.hidden_times_zero) spec.set("hidden_keys", 0);
    AttentionProblem problem = neutral_inputs(spec);
    const auto shape = std::make_shared<const ref::NeutralAttentionShape>(
        extras_of<NeutralParts>(problem).shape);
    const double pairs = visible_pairs(problem, [&](std::size_t b, Int i) {
        const ref::SeenKeys keys = ref::seen_keys(*shape, b, i);
        return keys.end - keys.begin;
    });
    FullSizeAttention of = full_size(neutral_operator(), spec, std::move(problem), pairs);
    of.columns_of = [shape](const std::vector<Int>& keys) {
        return ref::attention_columns_of(*shape, keys);
    };
    of.bias_columns_of = [shape](const std::vector<Int>& elements) {
        return ref::attention_columns_of_bias(*shape, elements);
    };
    return judge_full_size(std::move(of), spec, is_neutral_tier_data(spec), context);
}

// ---- cases of laws ----

void with_unseen_keys(Spec& spec, Random& random) {
    if (!is_packed(spec) && random.chance(60)) {
        spec.set("kv_length", random.between(2, 3));
        return;
    }
    spec.set("window_right", 0);
    spec.set("align", 0);
    constexpr Int kMost = 1025;  // tens of thousands of queries have few keys, and would get as many
    for (std::size_t b = 0; b < spec.lists[0].size(); ++b) {
        spec.lists[0][b] = std::min(spec.lists[0][b], kMost);
        spec.lists[1][b] = spec.lists[0][b] + 3;
    }
}

void with_mask(Spec& spec, Random& random) {
    if (is_packed(spec) || random.chance(50))
        spec.set("window_right", spec.number("window_right") < 0 ? 0 : spec.number("window_right"));
    else if (spec.number("mask") == 0)
        spec.set("mask", random.between(1, 8));
}

bool has_mask(const Spec& spec) {
    return spec.number("mask") != 0 || spec.number("window_left") >= 0 ||
           spec.number("window_right") >= 0;
}

void with_several_sequences(Spec& spec, Random& random) {
    with_another_sequence(spec, random, is_packed(spec));
}

void with_no_sink(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    without_sink(spec);
    if (random.chance(70)) without_softcap(spec);
}

const AttentionCases kCases = {.unseen_keys = with_unseen_keys,
                               .masked = with_mask,
                               .is_masked = has_mask,
                               .several_sequences = with_several_sequences,
                               .several_runs = with_no_sink,
                               .undropped = with_no_sink,
                               .has_pair = false};

// ---- validation ----

void plain_data(Spec& spec) {
    with_zeros_in_dense_tensors(spec);
    change_if_legal(spec, [](Spec& to) {
        limit_fields(to, {"kv_heads", "group"}, 3);
        limit_fields(to, {"dim", "value_dim"}, 17);
        limit_lengths(to, 12);
    });
}

EditGroups possible_edits(const Spec& spec) {
    EditGroups groups = derived_edits(extents_of(spec));
    for (const char* window : {"window_left", "window_right"})
        groups.push_back(values_of(window, {-1, -2, 0, 1, -1000, INT64_MAX, INT64_MIN}));
    const auto last = std::ssize(spec.lists[0]);
    for (const char* list : {"cu_seqlens_q", "cu_seqlens_kv"}) {
        if (!is_packed(spec)) continue;
        const std::string name(list), end = name + "[" + std::to_string(last) + "]";
        const auto& lengths = spec.lists[name == "cu_seqlens_q" ? 0 : 1];
        const Int rows = total(lengths);
        groups.push_back(values_of(end, {rows + 1, rows - 1, -1, 0, INT64_MAX}));
        groups.push_back(values_of(name + "[0]", {1, -1, 0}));
        groups.push_back(values_of(name + ".size", {0, 1, last, -1}));
        const std::vector<Int> starts = row_starts(lengths);
        groups.emplace_back();  // past a neighbour: decreasing
        for (std::size_t b = 1; b + 1 < starts.size(); ++b)
            for (const Int start : {starts[b + 1] + 1, starts[b - 1] - 1, rows})
                groups.back().push_back(
                    values_of(name + "[" + std::to_string(b) + "]", {start}).front());
        if (groups.back().empty())
            groups.pop_back();
        else  // few cases have a list that can decrease within its rows
            groups.insert(groups.end(), 5, std::vector<Edit>(groups.back()));
        groups.push_back({name + ".absent", name + ".null"});
    }
    if (spec.number("kv_length") != 0) {
        const Int keys = spec.lists[1][0];
        const std::vector<Edit> of_first =
            values_of("kv_length[0]", {-1, 0, keys, keys + 1, INT64_MAX, INT64_MIN});
        groups.insert(groups.end(), 6, of_first);  // few cases have such a list
        groups.push_back(values_of("kv_length.size", {0, last - 1}));
        groups.push_back({"kv_length.absent", "kv_length.null"});
    }
    groups.push_back({"bias.present", "mask.present", "sink.present", "kv_length.present"});
    return groups;
}

}  // namespace

std::vector<Property> neutral_properties(bool gradient) {
    const AttentionOperator& of = neutral_operator();
    // Agreement: any order of accumulation and any tiling stays within the bound of verification.md
    // 4.3 (forward) and 4.5 (gradient), with their terms for softcap, bias and sinks.
    // Domain  every legal case, every feature, data recipe and layout.
    // Shrinks to one batch, one query, one key, one channel, and the few elements that matter.
    std::vector<Property> list = attention_checks(of,
                         {.adapt_agreement = with_far_positions_or_wide_rows,
                          .earlier = earlier_changes(),
                          .lattice = make_lattice,
                          .tier_case = make_neutral_tier_case,
                          .is_tier_case = is_neutral_tier_data,
                          .effectless = effectless_neutral_edits});
    list[0].case_factor = 4;  // many features
    add_validation_properties(list, plain_data, 12, possible_edits);
    add_attention_laws(list, of, gradient, kCases);
    add_neutral_relations(list, gradient);
    add_neutral_forms(list);
    Property sampled = full_size_property("rows and keys", check_full_size);
    sampled.adapt = [](Spec& spec, Random&) {
        without_extremes(spec);
        spec.set("lse", 0);  // a gradient is given the statistics of the library's own forward
    };
    list.push_back(std::move(sampled));
    return list;
}

}  // namespace attncheck::properties
