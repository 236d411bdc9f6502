// The same problem of flash attention with its mask written in another way: contents for a mode,
// other shapes and bytes, modes that say the same, and what says nothing without a mask.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "properties/operators/flash_attention/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

bool has_mask(const Spec& spec) { return spec.numbers[kFaMask] != 0; }
bool reads_mask(const Spec& spec) {
    const Int mode = spec.numbers[kFaSparse];
    return has_mask(spec) && (mode == 0 || mode == 1 || mode == 5);
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

/// Modes 7 and 8 with a sequence without queries, which is not the band's.
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

/// A mode with its attributes; kNone is no mask at all.
struct MaskSetting {
    Int mode = 0, pre = 0, next = 0;
    bool zeros = false;
    FlashPrefix prefix = FlashPrefix::absent;
};
constexpr Int kNone = -1, kUnlimited = INT64_MAX;
constexpr Int kBeyond32Bits = (Int{1} << 32) + 1;

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

/// The part of a mask that all modes share, for the lengths of a problem.
std::vector<MaskEquality> mask_equalities(const FlashParts& parts) {
    const ref::FlashAttentionShape& s = parts.shape;
    const Int longest_q = longest(s.query_lengths), longest_kv = longest(s.kv_lengths);
    const MaskSetting none{kNone}, causal{2}, right_down{3}, all{1};
    std::vector<MaskEquality> list = {
        {"mode 0 with unlimited tokens is mode 1", {0, kUnlimited, kUnlimited}, all},
        {"mode 0 with tokens beyond 32 bits is mode 1", {0, kBeyond32Bits, kBeyond32Bits}, all},
        {"mode 4 with tokens beyond 32 bits hides nothing", {4, kBeyond32Bits, kBeyond32Bits}, none},
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
/// Domain  one equality that is legal for the problem and that the candidate takes, drawn by the seed; the mask of the
/// case is replaced.
/// Bound   twice that of the problem.
/// Kills   mutants FA-08, FA-18, FA-42, FA-44, FA-52, FAG-03.
Verdict unlimited_tokens(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const std::vector<MaskEquality> list = mask_equalities(parts);
    Random random(mix(spec.seed));
    Verdict verdict = inapplicable();
    for (const Int k : permutation(std::ssize(list), random)) {
        const MaskEquality& equality = list[static_cast<std::size_t>(k)];
        const bool moves_start = parts.shape.bias.present && equality.left.mode == 8;
        const FlashParts left = with_setting(parts, equality.left, spec.seed),
                         right = with_setting(parts, equality.right, spec.seed);
        if (moves_start || !is_legal(left) || !is_legal(right)) continue;
        AttentionProblem one = flash_problem(left), other = flash_problem(right);
        if (one.gradient) {
            give_reference_forward(one);
            give_the_same(one, other);
        }
        verdict = verdict_on_equal_problems(flash_attention_operator(), one, other, context, equality.words);
        if (verdict.kind != Verdict::Kind::declined) break;
    }
    return verdict;
}

/// Without a mask sparse_mode, tokens, prefix and precision say nothing; precision never does.
/// Why     contract decision 8; flash_attention.md 4: fp16 always takes the precise path.
/// Domain  problems without a mask, any data; with one, or where another mode is declined, precision alone changes.
/// Demand  the same bits.
/// Kills   mutants FA-x26, FA-x87.
Verdict attributes(const Spec& spec, PropertyContext& context) {
    FlashParts parts = flash_parts(spec), other = parts;
    Random random(mix(spec.seed));
    other.fields[kFaInert] = (parts.fields[kFaInert] + random.between(1, 2)) % 3;
    if (parts.shape.mask.present)
        return verdict_on_identical_problems(parts, other, context, "another precision");
    const auto tokens = [&] {
        return random.pick<Int>({0, 1, -1, 5, -7, kUnlimited, std::numeric_limits<Int>::min()});
    };
    other.shape.mask.sparse_mode = parts.layout == FlashLayout::tnd
                                       ? random.pick<Int>({0, 1, 2, 3, 4, 6, 7, 8})
                                       : random.between(0, 6);
    other.shape.mask.pre_tokens = tokens();
    other.shape.mask.next_tokens = tokens();
    if (random.chance(50)) other.prefix = {{1, -3, 7}};
    const Verdict verdict = verdict_on_identical_problems(
        parts, other, context,
        fmt::format("without a mask: sparse mode {} against {}, other tokens and prefix",
                    parts.shape.mask.sparse_mode, other.shape.mask.sparse_mode));
    if (verdict.kind != Verdict::Kind::declined) return verdict;
    FlashParts precise = parts;
    precise.fields[kFaInert] = other.fields[kFaInert];
    return verdict_on_identical_problems(parts, precise, context, "another precision");
}

void mostly_without_mask(Spec& spec, Random& random) {
    if (random.chance(75)) without_mask(spec);
    if (spec.numbers[kFaMask] == 0 && spec.numbers[kFaSparse] >= 5) spec.numbers[kFaSparse] = 0;
}

}  // namespace

void add_flash_mask_forms(std::vector<Property>& list) {
    list.push_back({"written_mask", "a sparse mode is its mask", written_mask, with_mode,
                    [](const Spec& spec) { return moderate(spec) && has_mask(spec); }});
    list.push_back({"full_mask", "a mask for all heads or batches is that mask for each", full_mask,
                    with_read_mask,
                    [](const Spec& spec) { return moderate(spec) && reads_mask(spec); }});
    list.push_back({"mask_values", "any non-zero byte of a mask hides", mask_values, with_read_mask,
                    reads_mask});
}

void add_flash_mode_forms(std::vector<Property>& list) {
    list.push_back({"unlimited_tokens",
                    "modes that say the same at the limits of tokens and prefix", unlimited_tokens,
                    with_moderate_data, moderate});
    list.push_back({"attributes", "without a mask sparse_mode, tokens and prefix say nothing",
                    attributes, mostly_without_mask});
}

}  // namespace attncheck::properties
