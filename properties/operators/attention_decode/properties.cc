// The properties of decoding, and the cases that they want.
#include <algorithm>
#include <utility>

#include "properties/case/attention_data.h"
#include "properties/case/attention_draws.h"
#include "properties/judge/attention_tiers.h"
#include "properties/laws/attention_full_size.h"
#include "properties/laws/attention_laws.h"
#include "properties/laws/attention_run.h"
#include "properties/operators/attention_decode/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

void make_lattice(Spec& spec, Random& random) {
    spec.set("logits", random.between(1, 2));  // equal, dominant
    spec.set("scale", static_cast<Int>(
                          random.pick({ScaleKind::one, ScaleKind::eighth, ScaleKind::rsqrt})));
    without_softcap(spec), spec.set("sink", 0);
    if (spec.number("rest") == static_cast<Int>(RestValues::huge)) spec.set("rest", 1);
    if (!random.chance(70)) return;
    // A power of two of visible keys: one query, all keys or a window.
    set_queries(spec, 1);
    const Int keys = random.pick<Int>({1, 2, 4, 8, 16, 32, 64, 128, 256, 512});
    const bool window = random.chance(40);
    spec.set("window_left", window ? keys - 1 : -1);
    for (auto& length : spec.lists[1])
        if (length > 0) length = window ? keys + random.between(0, 40) : keys;
}

/// A key less, or more, in every sequence: the block table has room for both but at a page's edge.
EarlierChange other_lengths() {
    return {"other lengths", [](const Spec& spec) {
                Spec less = spec, more = spec;
                for (auto& length : less.lists[1]) length = std::max<Int>(length - 1, 0);
                for (auto& length : more.lists[1]) ++length;
                return std::vector<Spec>{std::move(less), std::move(more)};
            }};
}

/// A window that reaches beyond every position.
std::vector<Edit> effectless_decode_edits(const Spec& spec) {
    std::vector<Edit> out;
    const Int reach = spec.lists[1].empty() ? 1 : longest(spec.lists[1]) + longest(spec.lists[0]),
              window = spec.number("window_left");
    if (window < 0 || window >= reach) add_unlimited_windows("window_left", reach, out);
    return out;
}

/// One case in twelve has thousands or tens of thousands of keys: positions that leave 16 bits.
void now_and_then_far(Spec& spec, Random& random) {
    if (!random.chance(8)) return;
    spec.set("kv_heads", 1), spec.set("group", random.between(1, 2));
    spec.set("dim", random.between(1, 8)), spec.set("value_dim", random.between(1, 8));
    spec.set("page", random.pick<Int>({1, 1, 16, 128}));
    spec.set("window_left", random.chance(50) ? -1 : random.between(0, 100));
    spec.set("shared", 0);
    spec.lists = {{random.pick<Int>({1, 2, 3, 8})},
                  {random.pick<Int>({1030, 4097, 32'769, 32'769, 65'537, 65'537})}};
    if (spec.recipe == Recipe::specials) spec.recipe = Recipe::normal;
}

/// Some hundred rows: many sequences, as each has few queries.
void make_decode_tier_case(Spec& spec, Random& random) {
    spec.recipe = Recipe::normal;
    spec.overrides.clear();
    std::ranges::fill(spec.layouts, Layout::dense);
    spec.set("logits", 0), spec.set("rest", 0);
    spec.set("scale", static_cast<Int>(
                          random.pick({ScaleKind::rsqrt, ScaleKind::rsqrt, ScaleKind::rsqrt,
                                       ScaleKind::eighth, ScaleKind::negative, ScaleKind::tenth})));
    spec.set("kv_heads", random.between(1, 3));
    spec.set("group", random.pick<Int>({1, 2, 4, 8}));
    const Int heads = spec.number("kv_heads") * spec.number("group"), dims = [&] {
        return spec.number("dim") + spec.number("value_dim") + 16;
    }();
    const Int queries = random.pick<Int>({1, 1, 2, 4, 7, 16});
    const Int sequences =
        std::clamp<Int>(random.between(160, 420) / (heads * queries), 1, 200);
    const Int room = 2'000'000 / (dims * heads * queries * sequences);
    const bool is_long = random.chance(kLongTierCases);
    const Int keys = is_long ? random.between(512, 4096)
                             : std::clamp<Int>(random.between(24, 200), 8, std::max<Int>(room, 8));
    spec.lists = {std::vector<Int>(static_cast<std::size_t>(is_long ? 2 : sequences), queries), {}};
    for (std::size_t b = 0; b < spec.lists[0].size(); ++b)
        spec.lists[1].push_back(keys + random.between(0, 5));
    if (is_long) spec.set("dim", 16), spec.set("value_dim", 16);
}

/// NaN in unread slots reaches rows of kernels that multiply what is hidden by 0.
bool is_decode_tier_case(const Spec& spec) { return is_tier_data(spec) && spec.number("rest") == 0; }

void with_unread(Spec& spec, Random& random) {
    if (random.chance(50))
        spec.set("window_left", random.between(0, longest(spec.lists[1]) / 2));
    else
        spec.set("spare", random.between(1, 3));
}

bool hides_keys(const Spec& spec) {
    return spec.number("window_left") >= 0 || longest(spec.lists[0]) > 1;
}

void with_hidden_keys(Spec& spec, Random& random) {
    if (random.chance(50)) spec.set("window_left", random.between(0, longest(spec.lists[1]) / 2));
    if (spec.number("window_left") < 0) set_queries(spec, random.between(2, 5));
}

void with_sequences(Spec& spec, Random& random) {
    spec.lists[0].push_back(spec.lists[0][0]);
    spec.lists[1].push_back(random.between(0, 3 * spec.number("page")));
}

/// A sink keeps its weight when values or logits are shifted, and a softcap bends logits.
void without_sink_and_softcap(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    spec.set("sink", 0), without_softcap(spec);
}

const AttentionCases kCases = {.unseen_keys = with_unread,
                               .masked = with_hidden_keys,
                               .is_masked = hides_keys,
                               .less_data = with_fewer_queries,
                               .several_sequences = with_sequences,
                               .several_runs = without_sink_and_softcap,
                               .has_pair = false,
                               .hidden = "unread"};

Verdict check_full_size(const Spec& given, PropertyContext& context) {
    Spec spec = given;
    if (context.rounding.hidden_times_zero) spec.set("rest", 0);
    AttentionProblem problem = decode_inputs(spec);
    const ref::DecodeShape& shape = extras_of<DecodeParts>(problem).shape;
    const double pairs = visible_pairs(problem, [&](std::size_t b, Int i) {
        const ref::SeenPositions seen = ref::seen_positions(shape, b, i);
        return seen.end - seen.begin;
    });
    return judge_full_size(full_size(decode_operator(), spec, std::move(problem), pairs), spec,
                           is_tier_data(spec), context);
}

}  // namespace

/// A batch of long sequences on shuffled pages of 16 with a common prefix; short queries with a
/// window; and few heads over positions and page
/// numbers that leave 16 bits. First exact sums over a power of two of keys.
std::vector<Spec> decode_large_cases(const Schema& schema, Int length, std::uint64_t seed) {
    const Int odd = Random(seed).between(1, 15), half = std::max<Int>(length / 2, 32);
    const auto make = [&](std::vector<Int> kv, Int queries, std::uint64_t more) {
        const std::vector<Int> q(kv.size(), queries);
        Spec spec = large_case(schema, q, std::move(kv), seed + more);
        spec.set("page", 16);
        spec.set("pages", static_cast<Int>(PageOrder::shuffled));
        spec.set("rest", static_cast<Int>(RestValues::nan));
        spec.set("spare", 2);
        return spec;
    };
    Spec batch = make({half + odd, half, half - odd, 0, half / 4, 17, half, 1}, 1, 0);
    batch.set("kv_heads", 4), batch.set("group", 8);
    batch.set("shared", static_cast<Int>(PageSharing::prefix));
    Spec window = make({half + odd, half}, 8, 1);
    window.numbers[0] = 0;
    window.set("kv_heads", 2), window.set("group", 3);
    window.set("dim", 96), window.set("value_dim", 64);
    window.set("window_left", 1024);
    Spec far = make({long_where_linear(length) + odd}, 2, 2);
    far.set("group", 4), far.set("dim", 64), far.set("value_dim", 64);
    far.set("page", 1);  // as many pages
    Spec exact = make({exact_keys_of(length), exact_keys_of(length)}, 1, 3);
    with_exact_sums(exact);
    exact.set("kv_heads", 2), exact.set("group", 4);
    return {exact, batch, window, far};
}

/// A sink is what a plan may have been made without.
void with_a_sink_often(Spec& spec, Random& random) {
    if (spec.number("sink") == 0 && random.chance(60)) spec.set("sink", 1);
}

std::vector<Property> decode_properties() {
    const AttentionOperator& of = decode_operator();
    // Agreement: any order of accumulation, any tiling, any number of splits of the keys stays
    // within the bound of verification.md 4.3.
    // Domain  every legal case, every data recipe, every layout of the cache.
    // Kills   the mutants AD-* and WILD-*.
    // Shrinks to one sequence, one query, one page of one slot, one channel.
    std::vector<Property> list = attention_checks(
        of,
        {.adapt_agreement = now_and_then_far,
         .adapt_history = with_a_sink_often,
         .earlier = {other_value("window_left", {-1, 0}), other_value("softcap", {0, 1}),
                     other_value("cache", {0, 1, 2}),
                     other_value("pages", {static_cast<Int>(PageOrder::shuffled), 1}),
                     other_value("sink", {0, 1}), other_value("lse", {0, 1}), other_lengths()},
         .lattice = make_lattice,
         .tier_case = make_decode_tier_case,
         .is_tier_case = is_decode_tier_case,
         .effectless = effectless_decode_edits});
    list[0].case_factor = 2;  // many features
    add_decode_validation(list);
    add_attention_laws(list, of, false, kCases);
    add_decode_laws(list);
    list.push_back(full_size_property("rows", check_full_size));
    return list;
}

}  // namespace attncheck::properties
