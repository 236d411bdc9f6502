// The same problem of flash attention written in another way: layouts, forms of mask, bias and
// rope, attributes that say the same or nothing, sequences packed or alone. Problems that differ
// are flash_attention_relations.cc's concern.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "properties/flash_attention_fields.h"
#include "properties/flash_attention_runs.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

bool has_mask(const Spec& spec) { return spec.numbers[kFaMask] != 0; }
bool reads_mask(const Spec& spec) {
    const Int mode = spec.numbers[kFaSparse];
    return has_mask(spec) && (mode == 0 || mode == 1 || mode == 5);
}
bool has_rope(const Spec& spec) { return spec.numbers[kFaRope] != 0; }

/// BSH, SBH, BSND or BNSD, with what only TND has left out.
void with_batches(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    if (!is_tnd(spec)) return;
    spec.numbers[kFaLayout] = random.pick<Int>({0, 1, 3, 4});
    for (auto& list : spec.lists) std::fill(list.begin(), list.end(), list[0]);
    spec.numbers[kFaBeyondQ] = spec.numbers[kFaBeyondKv] = 0;
    spec.numbers[kFaOrder] = spec.numbers[kFaRope] = 0;
    if (spec.numbers[kFaSparse] >= 7) spec.numbers[kFaSparse] = 2;
    if (spec.numbers[kFaMaskForm] == static_cast<Int>(FlashMaskForm::packed))
        spec.numbers[kFaMaskForm] = 0;
    const auto pse = static_cast<FlashPse>(spec.numbers[kFaPse]);
    if (pse == FlashPse::flat_keys || pse == FlashPse::flat_pairs)
        spec.numbers[kFaPse] = static_cast<Int>(FlashPse::plain);
}

void with_sequences(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    spec.numbers[kFaLayout] = static_cast<Int>(FlashLayout::tnd);
    if (spec.numbers[kFaSparse] == 5) {
        spec.numbers[kFaSparse] = 1;
        spec.numbers[kFaPrefix] = 0;
    }
}

/// The same numbers in another order of memory.
/// Why     a layout says where an element lies, nothing else (flash_attention.md 2.1); statistics
/// are [B,N1,S1,8] in all four.
/// Domain  BSH, SBH, BSND and BNSD; any two of them.
/// Demand  the same bits.
/// Kills   mutants FA-33, FA-35, FAG-24.
Verdict layouts(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    FlashParts other = parts;
    Random random(mix(spec.seed));
    while (other.layout == parts.layout || other.layout == FlashLayout::tnd)
        other.layout = static_cast<FlashLayout>(random.between(0, 4));
    constexpr const char* kNames[] = {"BSH", "BSND", "TND", "SBH", "BNSD"};
    return verdict_on_identical_problems(
        parts, other, context,
        fmt::format("{} against {}", kNames[static_cast<int>(parts.layout)],
                    kNames[static_cast<int>(other.layout)]));
}

/// Batches are sequences of equal lengths.
/// Why     TND packs what the other layouts pad; mask, bias and drop mask of equal sequences have
/// the same element order.
/// Domain  every problem of the other layouts; modes that TND does not take become a written
/// mask.
/// Bound   twice that of the problem.
/// Kills   mutants FA-15, FA-18, FA-35, FA-39, FA-42, FA-58.
Verdict packed_layout(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    FlashParts packed = parts;
    packed.layout = FlashLayout::tnd;
    packed.shape.packed = true;
    packed.same_as_input = Random(mix(spec.seed)).chance(50);
    if (!is_legal(packed)) packed = with_written_mask(packed, spec.seed);
    if (!is_legal(packed)) return inapplicable();
    return verdict_on_equal_problems(parts, packed, context, "batches against TND");
}

/// Sequences packed together, and batches, give what each gives alone.
/// Why     no row sees another sequence; offsets are the cumulative lengths (contract decision
/// 4).
/// Domain  up to three of the sequences, alone in TND or as one batch of BSND, with mask and bias
/// written element by element.
/// Bound   twice that of the packed run: a sequence alone has the same rows and keys.
/// Kills   mutants FA-05, FA-13, FA-35, FA-39, FA-46, FA-47.
Verdict packing(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const ref::FlashAttentionShape& s = parts.shape;
    const FlashRun packed(parts, context);
    if (packed.trouble) return *packed.trouble;
    const ExpectedOutputs expected = packed_expected_of(parts, context.rounding);
    const auto first_query = ref::first_rows(s.query_lengths),
               first_key = ref::first_rows(s.kv_lengths);
    Random random(mix(spec.seed));
    const auto count = static_cast<Int>(s.query_lengths.size());
    const std::vector<Int> order = permutation(count, random);
    Verdict all;
    bool any = false;
    for (Int k = 0; k < std::min<Int>(count, 3); ++k) {
        const auto b = static_cast<std::size_t>(order[static_cast<std::size_t>(k)]);
        FlashParts alone = single_sequence(parts, b);
        if (s.packed && s.rope_dim == 0 && random.chance(50)) {
            alone.layout = FlashLayout::bsnd;
            alone.shape.packed = alone.same_as_input = false;
            if (alone.shape.bias.present && alone.shape.bias.type < 2)
                alone.shape.bias.shape = {1, s.query_heads, s.query_lengths[b], s.kv_lengths[b]};
        }
        if (!is_legal(alone)) continue;
        any = true;
        const FlashRun run(alone, context);
        if (run.trouble) return *run.trouble;
        for (const auto& [name, dtype, bits] : packed.outputs) {
            const bool of_keys = is_of_keys(name);
            const Int rows = of_keys ? s.total_keys : s.total_queries;
            if (rows == 0) continue;
            const std::size_t width = bits.size() / static_cast<std::size_t>(rows),
                              first =
                                  static_cast<std::size_t>(of_keys ? first_key[b] : first_query[b]);
            const std::vector<double> together = packed.values(name), apart = run.values(name),
                                      bound = allowance(tensor_of(expected, name));
            const auto part = [&](const std::vector<double>& values) {
                const auto begin = values.begin() + static_cast<Int>(first * width);
                return std::vector<double>(begin, begin + std::ssize(apart));
            };
            join(all, verdict_on_flash(alone, name, part(together), apart, times(part(bound), 2),
                                       fmt::format("{} {} packed against alone",
                                                   s.packed ? "sequence" : "batch", b)));
        }
    }
    return any ? all : inapplicable();
}

void with_several(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    if (spec.lists[0].size() > 1) return;
    spec.lists[0].push_back(is_tnd(spec) ? random.between(0, 20) : spec.lists[0][0]);
    spec.lists[1].push_back(is_tnd(spec) ? random.between(0, 20) : spec.lists[1][0]);
}

/// A sparse mode is its mask.
/// Why     every mode says which pairs are visible (flash_attention.md 3.4); mode 1 takes the
/// same said element by element.
/// Domain  modes 0 and 2 to 8, tokens of every kind; a compressed bias is written out with the
/// mask.
/// Bound   twice that of the problem; rows without a key and their statistics exact.
/// Kills   mutants FA-05, FA-11, FA-17, FA-49, FA-50, FA-63.
Verdict written_mask(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    FlashParts written = with_written_mask(parts, spec.seed);
    const ref::FlashBias& bias = parts.shape.bias;
    const bool depends_on_mode =  // start indices and the compressed form
        bias.present && (bias.type >= 2 ? parts.shape.mask.sparse_mode == 8 : !is_legal(written));
    if (!depends_on_mode)
        return is_legal(written)
                   ? verdict_on_equal_problems(parts, written, context,
                                               fmt::format("sparse mode {} against a written mask",
                                                           parts.shape.mask.sparse_mode))
                   : inapplicable();
    const std::optional<FlashParts> explicit_pairs = with_explicit_pairs(parts);
    if (!explicit_pairs) return inapplicable();
    return verdict_on_rounded_problems(parts, *explicit_pairs, context,
                                       "mode and bias written out");
}

/// Modes 7 and 8 beside a sequence without queries, which is not the band's.
void with_split_mode(Spec& spec, Random& random) {
    const bool last = random.chance(50);
    without_bias(spec);
    spec.numbers[kFaLayout] = static_cast<Int>(FlashLayout::tnd);
    spec.numbers[kFaMaskForm] = spec.numbers[kFaPrefix] = 0;
    spec.numbers[kFaSparse] = last ? 7 : 8;
    const Int queries = random.between(1, 20), more = random.between(1, 12);
    spec.lists = {{queries, 0}, {queries + more, random.between(1, 9)}};
    if (!last)
        for (auto& list : spec.lists) std::swap(list[0], list[1]);
    spec.numbers[kFaPre] = queries + more;
    spec.numbers[kFaNext] = random.between(1, more);
    spec.numbers[kFaTokens] = static_cast<Int>(FlashTokens::next_negative);
}

/// Few queries at the end of more keys than a compressed mask has columns.
void with_long_keys(Spec& spec, Random& random) {
    without_bias(spec);
    spec.numbers[kFaSparse] = random.between(3, 4);
    spec.numbers[kFaMaskForm] = spec.numbers[kFaPrefix] = spec.numbers[kFaRope] = 0;
    spec.numbers[kFaKvHeads] = spec.numbers[kFaGroup] = 1;
    spec.numbers[kFaDim] = spec.numbers[kFaValueDim] = random.between(1, 8);
    spec.lists = {{random.between(1, 40)}, {2048 + random.between(-3, 200)}};
    spec.numbers[kFaTokens] = 0;
    spec.numbers[kFaPre] = random.between(0, 2100);
    spec.numbers[kFaNext] = random.between(0, 20);
}

void with_mode(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    with_some_mask(spec, random);
    if (random.chance(12)) return with_split_mode(spec, random);
    if (random.chance(8)) return with_long_keys(spec, random);
    if (spec.numbers[kFaSparse] == 1) {
        spec.numbers[kFaSparse] = random.between(2, 3);
        spec.numbers[kFaMaskForm] = 0;
    }
}

/// A mask for all heads or batches is that mask for each.
/// Why     extents of 1 and missing dimensions repeat; [sum Sq, sum Skv] holds the blocks of the
/// sequences (flash_attention.md 3.4).
/// Domain  modes 0, 1 and 5; the larger form is [B,N1,max Sq,max Skv].
/// Bound   twice that of the problem.
/// Kills   mutants FA-13, FA-15, FA-42, FA-66, FAG-18, FAG-19.
Verdict full_mask(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    FlashParts read = parts;  // as mode 1: the contents without the band
    read.shape.mask.sparse_mode = 1;
    FlashParts full = parts;
    const FlashParts written = with_written_mask(read, spec.seed);
    full.shape.mask.shape = written.shape.mask.shape;
    full.shape.mask.values = written.shape.mask.values;
    if (!is_legal(full)) return inapplicable();
    return verdict_on_equal_problems(parts, full, context, "mask repeated for every head");
}

/// A mask element is zero or not.
/// Why     bool and uint8 masks hide where they are not 0 (contract decision 8).
/// Domain  modes 0, 1 and 5.
/// Demand  the same bits with 2, 128, 255 or any other byte in place of 1, and with a bool mask
/// of the same zeros.
/// Kills   mutants FA-x24.
Verdict mask_values(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    FlashParts plain = parts, bytes = parts;
    plain.mask_dtype = ref::Dtype::boolean;
    bytes.mask_dtype = ref::Dtype::uint8;
    Random random(mix(spec.seed));
    for (std::size_t k = 0; k < parts.shape.mask.values.size(); ++k) {
        const bool hides = parts.shape.mask.values[k] != 0;
        plain.shape.mask.values[k] = hides;
        const auto byte = random.pick<std::uint8_t>({1, 2, 4, 64, 128, 254, 255});
        bytes.shape.mask.values[k] = hides ? byte : 0;
    }
    return verdict_on_identical_problems(plain, bytes, context,
                                         "bool mask against uint8 of any non-zero byte");
}

void with_read_mask(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    with_some_mask(spec, random);
    if (reads_mask(spec)) return;
    spec.numbers[kFaSparse] = 1;
    spec.numbers[kFaMaskForm] = random.between(0, is_tnd(spec) ? 4 : 3);
    spec.numbers[kFaTokens] = spec.numbers[kFaPre] = spec.numbers[kFaNext] =
        spec.numbers[kFaPrefix] = 0;
}

/// A bias is its numbers, however they are given.
/// Why     broadcast, compressed and flat forms repeat elements; ALiBi is -slope |j - i| or
/// -slope sqrt|j - i| with the start indices (flash_attention.md 3.2), the same as an external
/// bias behind the scale.
/// Domain  every form; ALiBi is rounded to the input type.
/// Bound   the bounds of both; for ALiBi what the rounding moves is the reference's to say.
/// Kills   mutants FA-15, FA-26, FA-42, FA-46, FAG-18, FAG-19.
Verdict expanded_bias(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const std::optional<FlashParts> plain = with_plain_bias(parts);
    if (!plain || !is_legal(*plain)) return inapplicable();
    const char* relation = "bias written element by element";
    return parts.shape.bias.type >= 2
               ? verdict_on_rounded_problems(parts, *plain, context, relation)
               : verdict_on_equal_problems(parts, *plain, context, relation);
}

void with_some_bias(Spec& spec, Random& random) {
    with_moderate_data(spec, random);
    if (random.chance(20)) {  // 1024 rows of a bias that depends on i - j alone
        spec.numbers[kFaLayout] = static_cast<Int>(FlashLayout::tnd);
        spec.numbers[kFaRope] = spec.numbers[kFaMaskForm] = spec.numbers[kFaStart] = 0;
        spec.numbers[kFaTokens] = spec.numbers[kFaPre] = spec.numbers[kFaNext] =
            spec.numbers[kFaPrefix] = 0;
        spec.numbers[kFaPse] = random.between(5, 6);
        spec.numbers[kFaPseType] = random.between(0, 1);
        spec.numbers[kFaMask] = 1;
        spec.numbers[kFaSparse] = random.between(2, 3);
        spec.lists[1] = spec.lists[0];
        return;
    }
    if (spec.numbers[kFaPse] != 0 || has_rope(spec)) return;
    spec.numbers[kFaPse] = is_tnd(spec) ? random.between(7, 8) : random.between(1, 4);
    spec.numbers[kFaPseType] = random.between(0, 1);
}

/// A bias before the scale is scale times the bias behind it.
/// Why     (q k + b) scale = q k scale + b scale (flash_attention.md 3.1).
/// Domain  products scale b that the input type holds; scales 1 and 1/8.
/// Bound   twice that of the problem.
/// Kills   mutants FA-32, FA-42, FA-44, FA-45, FAG-19, FAG-40.
Verdict bias_type(const Spec& spec, PropertyContext& context) {
    FlashParts parts = flash_parts(spec);
    parts.shape.bias.type = 1;
    FlashParts behind = parts;
    behind.shape.bias.type = 0;
    if (!change_exactly(parts.dtype, behind.pse,
                        [&](double b, std::size_t) { return parts.shape.scale * b; }))
        return inapplicable();
    behind.shape.bias.values = decode_all(parts.dtype, behind.pse);
    return verdict_on_equal_problems(parts, behind, context, "pse_type 1 against pse_type 0");
}

void with_external_bias(Spec& spec, Random& random) {
    if (spec.numbers[kFaPseType] >= 2) without_bias(spec);
    with_some_bias(spec, random);
    spec.numbers[kFaScale] = random.pick<Int>({0, 2});
}

/// The rope parts are more channels.
/// Why     the logit is a product over the concatenation (flash_attention.md 2.6).
/// Domain  D + Dr <= 512.
/// Bound   the bounds of both: the longer product has the same terms.
/// Kills   mutants FA-32, FA-63, FA-66, FAG-04, FAG-28, FAG-36.
Verdict rope_concatenation(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const ref::FlashAttentionShape& s = parts.shape;
    FlashParts wide = parts;
    wide.shape.head_dim = s.head_dim + s.rope_dim;
    wide.shape.rope_dim = 0;
    wide.query = beside(parts.query, s.head_dim, parts.query_rope, s.rope_dim);
    wide.key = beside(parts.key, s.head_dim, parts.key_rope, s.rope_dim);
    wide.query_rope.clear();
    wide.key_rope.clear();
    const FlashRun left(parts, context), right(wide, context);
    if (auto trouble = first_trouble({&left, &right})) return *trouble;
    const ExpectedOutputs expected = packed_expected_of(wide, context.rounding);
    Verdict all;
    for (const auto& [name, dtype, bits] : right.outputs)
        join(all, verdict_on_flash(wide, name, wide_values(parts, left, name), right.values(name),
                                   times(allowance(tensor_of(expected, name)), 2),
                                   "ropes against one wider head"));
    return all;
}

/// Ropes of zeros are no ropes.
/// Why     they add zeros to every logit; dq_rope and dk_rope are sums of products with zeros.
/// Bound   twice that of the problem; the gradients of the ropes are 0.
/// Kills   mutants FA-18, FA-33, FA-42, FA-44, FAG-18.
Verdict zero_rope(const Spec& spec, PropertyContext& context) {
    FlashParts with = flash_parts(spec), without = with;
    std::fill(with.query_rope.begin(), with.query_rope.end(), 0u);
    std::fill(with.key_rope.begin(), with.key_rope.end(), 0u);
    without.query_rope.clear();
    without.key_rope.clear();
    without.shape.rope_dim = 0;
    if (with.gradient) {
        give_reference_statistics(with);
        without.output = with.output;
        without.row_max = with.row_max;
        without.row_sum = with.row_sum;
    }
    Verdict all = verdict_on_equal_problems(without, with, context, "ropes of zeros");
    if (!with.gradient || all.failed()) return all;
    const FlashRun run(with, context);
    if (run.trouble) return *run.trouble;
    for (const char* name : {"dq_rope", "dk_rope"}) {
        const std::vector<double> values = run.values(name);
        const std::vector<double> zeros(values.size(), 0);
        join(all,
             verdict_on_flash(with, name, values, zeros, zeros, "gradient of a rope of zeros"));
    }
    return all;
}

void with_rope(Spec& spec, Random& random) {
    with_sequences(spec, random);
    if (has_rope(spec)) return;
    without_bias(spec);
    without_dropout(spec);
    spec.numbers[kFaDtype] = 1;
    spec.numbers[kFaDim] = std::max<Int>(spec.numbers[kFaDim], 8);
    spec.numbers[kFaRope] = 8 * random.between(1, std::min<Int>(8, spec.numbers[kFaDim] / 8));
    with_some_mask(spec, random);
    if (spec.numbers[kFaSparse] == 6) spec.numbers[kFaSparse] = 2;
    spec.numbers[kFaPrefix] = 0;
}

/// A drop mask that keeps everything is no drop mask.
/// Why     the factor is 1 / keep_prob = 1 (contract decision 9).
/// Domain  bits all one, keep_prob 1.
/// Demand  the same bits.
Verdict dropout_none(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    FlashParts without = parts;
    without.shape.dropout.present = false;
    without.shape.dropout.bytes.clear();
    return verdict_on_identical_problems(parts, without, context,
                                         "drop mask that keeps everything");
}

bool keeps_all(const Spec& spec) {
    return spec.numbers[kFaDrop] == static_cast<Int>(FlashDrop::keep_all) &&
           spec.numbers[kFaKeep] == 0 && spec.recipe != Recipe::zeros && spec.overrides.empty();
}

void with_all_kept(Spec& spec, Random& random) {
    if (spec.recipe == Recipe::zeros) spec.recipe = Recipe::normal;
    if (has_rope(spec)) without_mask(spec);
    spec.numbers[kFaDrop] = static_cast<Int>(FlashDrop::keep_all);
    spec.numbers[kFaKeep] = 0;
    (void)random;
}

/// A mode with its attributes; kNone is no mask at all.
struct MaskSetting {
    Int mode = 0, pre = 0, next = 0;
    bool zeros = false;
    FlashPrefix prefix = FlashPrefix::absent;
};
constexpr Int kNone = -1, kUnlimited = INT64_MAX;

/// The problem with another mask; contents are a function of the seed, the same for modes 0 and 1.
FlashParts with_setting(const FlashParts& parts, const MaskSetting& setting, std::uint64_t seed) {
    FlashParts to = parts;
    ref::FlashAttentionShape& s = to.shape;
    to.prefix.reset();
    s.mask = {};
    s.mask.present = setting.mode != kNone;
    if (!s.mask.present) return to;
    s.mask.sparse_mode = setting.mode;
    s.mask.pre_tokens = setting.pre;
    s.mask.next_tokens = setting.next;
    s.mask.shape = {setting.mode == 6 ? 3072 : 2048, 2048};
    if (setting.mode <= 1) {
        s.mask.shape = {longest(s.query_lengths), longest(s.kv_lengths)};
        s.mask.values.assign(static_cast<std::size_t>(s.mask.shape[0] * s.mask.shape[1]), 0);
        Random random(seed);
        if (!setting.zeros)
            for (auto& byte : s.mask.values) byte = static_cast<std::uint8_t>(random.next() & 1);
    }
    if (setting.mode != 6) return to;
    for (std::size_t b = 0; b < s.kv_lengths.size(); ++b)
        s.mask.prefix.push_back(setting.prefix == FlashPrefix::full
                                    ? s.kv_lengths[b]
                                    : std::max<Int>(0, s.kv_lengths[b] - s.query_lengths[b]));
    to.prefix = s.mask.prefix;
    return to;
}

struct MaskEquality {
    const char* words;
    MaskSetting left, right;
};

/// What the modes have in common, for the lengths of a problem.
std::vector<MaskEquality> mask_equalities(const FlashParts& parts) {
    const ref::FlashAttentionShape& s = parts.shape;
    const Int longest_q = longest(s.query_lengths), longest_kv = longest(s.kv_lengths);
    const MaskSetting none{kNone}, causal{2}, right_down{3}, all{1};
    std::vector<MaskEquality> list = {
        {"mode 0 with unlimited tokens is mode 1", {0, kUnlimited, kUnlimited}, all},
        {"mode 0 with a band of everything is mode 1", {0, longest_q, longest_kv}, all},
        {"mode 2 is mode 0 with next 0", {0, kUnlimited, 0, true}, causal},
        {"mode 4 with next 0 is mode 3", {4, kUnlimited, 0}, right_down},
        {"mode 4 with unlimited tokens hides nothing", {4, kUnlimited, kUnlimited}, none},
        {"mode 4 with a band of everything hides nothing",
         {4, longest_q + longest_kv, longest_q + longest_kv},
         none},
        {"mode 6 with the lowest prefix is mode 3",
         {6, 0, 0, false, FlashPrefix::lowest},
         right_down},
        {"mode 6 with the full prefix hides nothing", {6, 0, 0, false, FlashPrefix::full}, none},
        {"mode 1 with zeros hides nothing", {1, 0, 0, true}, none},
        {"mode 7 with next 0 is mode 3", {7, kUnlimited, 0}, right_down}};
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
        if (s.query_lengths[b] != 0) {
            list.push_back({"mode 8 with the lowest next is mode 2",
                            {8, kUnlimited, s.query_lengths[b] - s.kv_lengths[b]},
                            causal});
            break;
        }
    if (s.query_lengths == s.kv_lengths) {
        list.push_back({"mode 3 of squares is mode 2", right_down, causal});
        list.push_back({"mode 4 of squares is mode 0", {4, 3, 2}, {0, 3, 2, true}});
    }
    return list;
}

/// Modes that say the same.
/// Why     the predicates of flash_attention.md 3.4 meet at the limits of their tokens and
/// prefixes.
/// Domain  one equality that is legal for the problem, drawn by the seed; the mask of the case is
/// replaced.
/// Bound   twice that of the problem.
/// Kills   mutants FA-08, FA-18, FA-42, FA-44, FA-52, FAG-03.
Verdict unlimited_tokens(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const std::vector<MaskEquality> list = mask_equalities(parts);
    Random random(mix(spec.seed));
    for (const Int k : permutation(std::ssize(list), random)) {
        const MaskEquality& equality = list[static_cast<std::size_t>(k)];
        const bool moves_start = parts.shape.bias.present && equality.left.mode == 8;
        FlashParts left = with_setting(parts, equality.left, spec.seed),
                   right = with_setting(parts, equality.right, spec.seed);
        if (moves_start || !is_legal(left) || !is_legal(right)) continue;
        if (parts.gradient) {
            give_reference_statistics(left);
            right.output = left.output;
            right.row_max = left.row_max;
            right.row_sum = left.row_sum;
        }
        return verdict_on_equal_problems(left, right, context, equality.words);
    }
    return inapplicable();
}

/// Without a mask sparse_mode, tokens, prefix and inner_precise say nothing; inner_precise never
/// does.
/// Why     contract decision 8; flash_attention.md 4: fp16 always takes the precise path.
/// Domain  problems without a mask, any data; with one inner_precise alone changes.
/// Demand  the same bits.
/// Kills   mutants FA-x26, FA-x87.
Verdict attributes(const Spec& spec, PropertyContext& context) {
    FlashParts parts = flash_parts(spec), other = parts;
    Random random(mix(spec.seed));
    other.inner_precise = (parts.inner_precise + random.between(1, 2)) % 3;
    if (parts.shape.mask.present)
        return verdict_on_identical_problems(parts, other, context, "another inner_precise");
    const auto tokens = [&] {
        return random.pick<Int>({0, 1, -1, 5, -7, kUnlimited, std::numeric_limits<Int>::min()});
    };
    other.shape.mask.sparse_mode = parts.layout == FlashLayout::tnd
                                       ? random.pick<Int>({0, 1, 2, 3, 4, 6, 7, 8})
                                       : random.between(0, 6);
    other.shape.mask.pre_tokens = tokens();
    other.shape.mask.next_tokens = tokens();
    if (random.chance(50)) other.prefix = {{1, -3, 7}};
    return verdict_on_identical_problems(
        parts, other, context,
        fmt::format("without a mask: sparse mode {} against {}, other tokens and prefix",
                    parts.shape.mask.sparse_mode, other.shape.mask.sparse_mode));
}

void mostly_without_mask(Spec& spec, Random& random) {
    if (random.chance(75)) without_mask(spec);
    if (spec.numbers[kFaMask] == 0 && spec.numbers[kFaSparse] >= 5) spec.numbers[kFaSparse] = 0;
}

/// The two orders of the statistics hold the same numbers.
/// Why     "same_as_input" is [T1,N1], otherwise every sequence is a block [N1,Sq]
/// (flash_attention.md 2.4).
/// Domain  TND. In the gradient the given statistics change their order and the gradients keep
/// their bits.
/// Demand  the same bits.
/// Kills   mutants FA-x67.
Verdict statistics_order(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    FlashParts other = parts;
    other.same_as_input = !parts.same_as_input;
    return verdict_on_identical_problems(parts, other, context,
                                         "the other order of the statistics");
}

}  // namespace

void add_flash_form_relations(std::vector<Property>& list) {
    const auto add = [&](const char* name, const char* summary, auto check, auto adapt,
                         std::function<bool(const Spec&)> domain) {
        list.push_back({name, summary, check, adapt, std::move(domain)});
    };
    const auto plain = [](bool (*domain)(const Spec&)) {
        return [domain](const Spec& spec) { return moderate(spec) && domain(spec); };
    };
    const auto batches = [](const Spec& spec) { return !is_tnd(spec); };
    add("layouts", "BSH, SBH, BSND and BNSD give the same bits", layouts, with_batches, batches);
    add("packed_layout", "batches are sequences of equal lengths", packed_layout, with_batches,
        plain([](const Spec& spec) { return !is_tnd(spec); }));
    add("packing", "sequences and batches give what each gives alone", packing, with_several,
        moderate);
    add("written_mask", "a sparse mode is its mask", written_mask, with_mode, plain(has_mask));
    add("full_mask", "a mask for all heads or batches is that mask for each", full_mask,
        with_read_mask, plain(reads_mask));
    add("mask_values", "any non-zero byte of a mask hides", mask_values, with_read_mask,
        reads_mask);
    add("expanded_bias", "every form of bias is its numbers", expanded_bias, with_some_bias,
        moderate);
    add("bias_type", "a bias before the scale is scale times the bias behind it", bias_type,
        with_external_bias, plain(has_external_bias));
    add("rope_concatenation", "rope parts are more channels", rope_concatenation, with_rope,
        plain([](const Spec& spec) {
            return has_rope(spec) && spec.numbers[kFaDim] + spec.numbers[kFaRope] <= 512;
        }));
    add("zero_rope", "ropes of zeros are no ropes", zero_rope, with_rope, plain(has_rope));
    add("dropout_none", "a drop mask that keeps everything is no drop mask", dropout_none,
        with_all_kept, keeps_all);
    add("unlimited_tokens", "modes that say the same at the limits of tokens and prefix",
        unlimited_tokens, with_moderate_data, moderate);
    add("attributes", "without a mask sparse_mode, tokens and prefix say nothing", attributes,
        mostly_without_mask, {});
    add("statistics_order", "both orders of the statistics in TND hold the same numbers",
        statistics_order, with_sequences, is_tnd);
}

}  // namespace attncheck::properties
