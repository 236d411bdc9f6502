// The same problem of flash attention written in another way: layouts, forms of bias and rope,
// dropout that drops nothing, and the list of all. Masks and modes are
// mask_forms.cc's concern, problems that differ pair_relations.cc's.
#include <fmt/format.h>

#include <algorithm>

#include "properties/operators/flash_attention/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
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
/// Domain  BSH, SBH, BSND and BNSD; any two of them that the candidate takes.
/// Demand  the same bits.
/// Kills   mutants FA-33, FA-35, FAG-24.
Verdict layouts(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    Random random(mix(spec.seed));
    constexpr const char* kNames[] = {"BSH", "BSND", "TND", "SBH", "BNSD"};
    Verdict verdict = inapplicable();
    for (const Int layout : permutation(std::ssize(kNames), random)) {
        FlashParts other = parts;
        other.layout = static_cast<FlashLayout>(layout);
        if (other.layout == parts.layout || other.layout == FlashLayout::tnd) continue;
        verdict = verdict_on_identical_problems(
            parts, other, context,
            fmt::format("{} against {}", kNames[static_cast<int>(parts.layout)], kNames[layout]));
        if (verdict.kind != Verdict::Kind::declined) break;
    }
    return verdict;
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
        for (Int& length : spec.lists[0]) length = std::min<Int>(length, 1100);  // as many keys
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
    behind.take_bias();
    return verdict_on_equal_problems(parts, behind, context, "pse_type 1 against pse_type 0");
}

void with_scalable_bias(Spec& spec, Random& random) {
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
    FlashParts wide = parts;
    wide.shape.head_dim += parts.shape.rope_dim;
    wide.shape.rope_dim = 0;
    return verdict_on_equal_problems(wide, parts, context, "one wider head against ropes");
}

/// The first `width` of every row of rows of `all`.
Bits first_columns(const Bits& bits, Int all, Int width) {
    Bits out;
    for (auto row = bits.begin(); row != bits.end(); row += all)
        out.insert(out.end(), row, row + width);
    return out;
}

/// Rows of `width` with zeros behind them.
template <class T>
std::vector<T> with_zeros_behind(const std::vector<T>& rows, Int width, Int zeros) {
    std::vector<T> out;
    for (auto row = rows.begin(); row != rows.end(); row += width) {
        out.insert(out.end(), row, row + width);
        out.insert(out.end(), static_cast<std::size_t>(zeros), T{});
    }
    return out;
}

/// Ropes of zeros are no ropes.
/// Why     they add zeros to every logit; dq_rope and dk_rope are sums of products with zeros.
/// Bound   twice that of the problem; the gradients of the ropes are 0.
/// Kills   mutants FA-18, FA-33, FA-42, FA-44, FAG-18.
Verdict zero_rope(const Spec& spec, PropertyContext& context) {
    FlashParts with = flash_parts(spec), without = with;
    const Int dim = with.shape.head_dim, rope = with.shape.rope_dim;
    for (const auto part : {&FlashParts::query, &FlashParts::key}) {
        without.*part = first_columns(with.*part, dim + rope, dim);
        with.*part = with_zeros_behind(without.*part, dim, rope);
    }
    without.shape.rope_dim = 0;
    const AttentionOperator& of = flash_attention_operator();
    AttentionProblem ropes = flash_problem(with), plain = flash_problem(without);
    if (plain.gradient) {
        give_reference_forward(ropes);
        give_the_same(ropes, plain);
    }
    const AttentionRun left(of, plain, context), right(of, ropes, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    Verdict all;
    for (const auto& [name, expected] : expected_of(plain, context.rounding)) {
        const Int width = plain.output_named(name).width;
        const auto widened = [&, &name = name](const std::vector<double>& values) {
            return with_zeros_behind(values, width, ropes.output_named(name).width - width);
        };
        const Int rope_width = ropes.output_named(name).width - width;
        std::vector<double> allowed = widened(times(allowance(expected), 2));
        // Of a row whose numbers may overflow the products with zeros may be NaN.
        for (auto row = allowed.begin(); row != allowed.end(); row += width + rope_width)
            if (std::any_of(row, row + width, [](double x) { return std::isinf(x); })) std::fill_n(row + width, rope_width, HUGE_VAL);
        join(all, verdict_within(ropes, name, widened(left.values(name)), right.values(name), allowed, "ropes of zeros"));
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

void with_all_kept(Spec& spec, Random&) {
    if (spec.recipe == Recipe::zeros) spec.recipe = Recipe::normal;
    if (has_rope(spec)) without_mask(spec);
    spec.numbers[kFaDrop] = static_cast<Int>(FlashDrop::keep_all);
    spec.numbers[kFaKeep] = 0;
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
    if (!parts.withheld.empty()) return needs("softmax_max and softmax_sum");
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
    add_flash_mask_forms(list);
    add("expanded_bias", "every form of bias is its numbers", expanded_bias, with_some_bias,
        moderate);
    add("bias_type", "a bias before the scale is scale times the bias behind it", bias_type,
        with_scalable_bias, plain(has_external_bias));
    add("rope_concatenation", "rope parts are more channels", rope_concatenation, with_rope,
        plain([](const Spec& spec) {
            return has_rope(spec) && spec.numbers[kFaDim] + spec.numbers[kFaRope] <= 512;
        }));
    add("zero_rope", "ropes of zeros are no ropes", zero_rope, with_rope, plain(has_rope));
    add("dropout_none", "a drop mask that keeps everything is no drop mask", dropout_none,
        with_all_kept, keeps_all);
    add_flash_mode_forms(list);
    add("statistics_order", "both orders of the statistics in TND hold the same numbers",
        statistics_order, with_sequences, is_tnd);
}

}  // namespace attncheck::properties
