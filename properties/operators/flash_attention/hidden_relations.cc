// Relations between problems of flash attention that differ in what may not matter: keys and biases
// that are hidden, masks that are not read, values that are dropped. In both directions.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "properties/operators/flash_attention/runs.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// What no row sees matters to nothing, and gets gradient 0.
/// Why     contract decision 12: a hidden key is skipped, never multiplied by zero; decision 4
/// for rows beyond the last sequence.
/// Domain  keys that no row sees, any data; they, their ropes and values become NaN.
/// Demand  the same bits; dk, dk_rope and dv of these keys 0, of either sign.
/// Kills   mutants FA-19, FA-35, FA-39, FAG-42.
Verdict hidden(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    std::vector<char> unseen = seen_keys(parts);
    for (char& key : unseen) key = !key;
    if (std::count(unseen.begin(), unseen.end(), 1) == 0) return inapplicable();
    FlashParts poisoned = parts;
    poison_keys(poisoned, unseen);
    const FlashRun plain(parts, context), changed(poisoned, context);
    if (auto trouble = first_trouble({&plain, &changed})) return *trouble;
    Verdict verdict = verdict_on_equal_bits(parts, plain, changed,
                                            "with NaN in keys and values that no row sees");
    if (verdict.failed()) return verdict;
    for (const auto& [name, dtype, bits] : changed.outputs) {
        if (!is_of_keys(name)) continue;
        const std::size_t width = bits.size() / unseen.size();
        for (std::size_t k = 0; k < bits.size(); ++k)
            if (unseen[k / width] && ref::decode(dtype, bits[k]) != 0)
                return Verdict::fail(fmt::format("{} of an unseen key is not 0", name),
                                     fmt::format("{}  expected 0  got {:.9g} ({:#06x})",
                                                 packed_place(parts, name, k),
                                                 ref::decode(dtype, bits[k]), bits[k]));
    }
    return {};
}

/// Likely to have keys that nobody sees: behind the last sequence, above a diagonal, without
/// queries.
void with_unseen_keys(Spec& spec, Random& random) {
    if (spec.numbers[kFaLayout] == static_cast<Int>(FlashLayout::tnd)) {
        spec.numbers[kFaBeyondKv] = random.between(1, 3);
        return;
    }
    if (spec.numbers[kFaMask] != 0 || spec.numbers[kFaPse] != 0) return;
    spec.numbers[kFaMask] = random.between(1, 2);
    spec.numbers[kFaSparse] = 2;
    for (auto& length : spec.lists[1]) length = spec.lists[0][0] + 3;
}

/// The bias of a hidden pair matters to nothing.
/// Why     as hidden: a hidden key is skipped, its bias with it.
/// Domain  cases with a mask and an external bias, written element by element; any data.
/// Demand  the same bits with NaN in its place.
/// Kills   mutants FA-15, FAG-03.
Verdict hidden_bias(const Spec& spec, PropertyContext& context) {
    const std::optional<FlashParts> parts = with_plain_bias(flash_parts(spec));
    if (!parts || !is_legal(*parts)) return inapplicable();
    FlashParts poisoned = *parts;
    const std::uint32_t nan = ref::encode(parts->dtype, std::numeric_limits<double>::quiet_NaN());
    const ref::FlashAttentionShape& s = parts->shape;
    std::size_t at = 0;
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
        for (Int n = 0; n < s.query_heads; ++n)
            for (Int i = 0; i < s.query_lengths[b]; ++i)
                for (Int j = 0; j < s.kv_lengths[b]; ++j, ++at)
                    if (!ref::is_visible(s, b, n, i, j)) poisoned.pse[at] = nan;
    return verdict_on_identical_problems(*parts, poisoned, context,
                                         "with NaN in the bias of hidden pairs");
}

/// The contents of a compressed mask say nothing.
/// Why     contract decision 8: in modes 2, 3, 4, 6, 7 and 8 the predicate decides.
/// Domain  these modes, any data.
/// Demand  the same bits with all elements 0, or all 1.
Verdict mask_contents(const Spec& spec, PropertyContext& context) {
    const auto filled = [](std::size_t size, std::uint8_t byte) {
        return std::make_shared<const std::vector<std::uint8_t>>(size, byte);
    };
    const FlashParts parts = flash_parts(spec);
    const bool one = Random(mix(spec.seed)).chance(50);
    const FlashRun plain(parts, context), changed(parts, context, [&](Call& call) {
        auto& bytes = call.tensor("atten_mask").shared_bytes;
        bytes = filled(bytes->size(), one ? 1 : 0);
    });
    if (auto trouble = first_trouble({&plain, &changed})) return *trouble;
    return verdict_on_equal_bits(
        parts, plain, changed, fmt::format("with a compressed mask of {}", one ? "ones" : "zeros"));
}

bool has_compressed_mask(const Spec& spec) {
    const Int mode = spec.numbers[kFaSparse];
    return spec.numbers[kFaMask] != 0 && mode >= 2 && mode != 5;
}

void with_compressed_mask(Spec& spec, Random& random) {
    if (has_compressed_mask(spec)) return;
    with_some_mask(spec, random);
    spec.numbers[kFaSparse] = random.between(2, 4);
    spec.numbers[kFaMaskForm] = spec.numbers[kFaPrefix] = 0;
}

/// Runs the problem with NaN in the keys [T2,N2] and demands the bits of everything that does not
/// meet them: output and dq of rows that see none of them, dk and dv of all other keys.
Verdict verdict_on_poison(const FlashParts& parts, PropertyContext& context,
                          const std::vector<char>& keys, const std::string& relation) {
    FlashParts poisoned = parts;
    poison_keys(poisoned, keys);
    const std::vector<char> touched = rows_that_see(parts, keys);
    const FlashRun plain(parts, context), changed(poisoned, context);
    if (auto trouble = first_trouble({&plain, &changed})) return *trouble;
    return verdict_on_equal_bits(
        parts, plain, changed, relation, [&](const std::string& name, std::size_t k) {
            const std::vector<char>& skipped = is_of_keys(name) ? keys : touched;
            return !skipped[k / (plain.bits(name).size() / skipped.size())];
        });
}

/// What the mask hides from a row does not reach it: no row of a causal mode depends on the
/// future.
/// Why     contract decisions 8 and 12. In the gradient every pair of row and key has a term of
/// its own, because the statistics are given: NaN in a key reaches dq of the rows that see it and
/// its own dk and dv, nothing else.
/// Domain  cases with a mask, any data; the keys of its sequence that all heads of one row do not
/// see become NaN.
/// Demand  the same bits in all rows that see none of them.
/// Kills   mutants FA-15, FA-19, FA-35, FAG-03, FAG-42.
Verdict causality(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const ref::FlashAttentionShape& s = parts.shape;
    const std::vector<Int> rows = rows_with_keys(parts);
    if (rows.empty()) return inapplicable();
    const auto places = row_places(s.query_lengths, s.total_queries);
    const auto first_key = ref::first_rows(s.kv_lengths);
    Random random(mix(spec.seed));
    for (int tries = 0; tries < 8; ++tries) {
        const Int t = random.pick(rows);
        const FlashRow place = places[static_cast<std::size_t>(t)];
        const auto b = static_cast<std::size_t>(place.sequence);
        std::vector<char> keys = keys_seen_by(parts, t);
        for (std::size_t k = 0; k < keys.size(); ++k) {
            const Int j = static_cast<Int>(k) / s.kv_heads - first_key[b];
            keys[k] = !keys[k] && j >= 0 && j < s.kv_lengths[b];
        }
        if (std::count(keys.begin(), keys.end(), 1) == 0) continue;
        return verdict_on_poison(parts, context, keys,
                                 fmt::format("with NaN in what the mask hides from query {} of "
                                             "sequence {}",
                                             place.position, place.sequence));
    }
    return inapplicable();
}

/// A row depends on what it sees and on nothing else.
/// Why     as above; the keys that one token's rows do not see are hidden, of other heads, or of
/// other sequences.
/// Domain  any data; all keys but those that the rows of one token see become NaN.
/// Demand  the same bits in that token's rows and in all others that see none of the NaN.
/// Kills   mutants FA-13, FA-15, FA-19, FAG-42.
Verdict row_view(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const std::vector<Int> rows = rows_with_keys(parts);
    if (rows.empty()) return inapplicable();
    const Int t = Random(mix(spec.seed)).pick(rows);
    std::vector<char> others = keys_seen_by(parts, t);
    for (char& key : others) key = !key;
    return verdict_on_poison(
        parts, context, others,
        fmt::format("with NaN in all keys but those that query row {} sees", t));
}

/// The value of a dropped key matters only where it is kept.
/// Why     contract decision 8, NaN: a dropped key's V and dP are hidden, its Q and K are not;
/// statistics and dv do not look at V.
/// Domain  drop masks, any data; the values of a few keys become NaN.
/// Demand  the same bits: statistics and dv everywhere, output and dq of rows that keep none of
/// these keys, dk of all other keys.
/// Kills   mutants FA-19, FA-58, FA-59, FAG-42.
Verdict dropped_values(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const ref::FlashAttentionShape& s = parts.shape;
    std::vector<char> keys(static_cast<std::size_t>(s.total_keys * s.kv_heads));
    Random random(mix(spec.seed));
    const int percent = spec.numbers[kFaDrop] == static_cast<Int>(FlashDrop::drop_all)
                            ? 50
                            : static_cast<int>(200 / (longest(s.kv_lengths) + 3)) + 1;
    for (char& key : keys) key = random.chance(percent);
    if (std::count(keys.begin(), keys.end(), 1) == 0) return inapplicable();
    FlashParts poisoned = parts;
    poison_keys(poisoned, keys, true);
    const std::vector<char> touched = rows_that_see(parts, keys, true);
    const FlashRun plain(parts, context), changed(poisoned, context);
    if (auto trouble = first_trouble({&plain, &changed})) return *trouble;
    return verdict_on_equal_bits(
        parts, plain, changed, "with NaN in values that are dropped",
        [&](const std::string& name, std::size_t k) {
            if (name.starts_with("softmax") || name == "dv") return true;
            const std::vector<char>& skipped = is_of_keys(name) ? keys : touched;
            return !skipped[k / (plain.bits(name).size() / skipped.size())];
        });
}

}  // namespace

void add_flash_hidden_relations(std::vector<Property>& list) {
    list.push_back(
        {"hidden", "NaN in keys that no row sees changes no bit", hidden, with_unseen_keys, {}});
    list.push_back({"hidden_bias", "NaN in the bias of hidden pairs changes no bit", hidden_bias,
                    with_mask_and_bias, [](const Spec& spec) {
                        return spec.numbers[kFaMask] != 0 && has_external_bias(spec);
                    }});
    list.push_back({"mask_contents", "the contents of a compressed mask say nothing", mask_contents,
                    with_compressed_mask, has_compressed_mask});
    list.push_back({"causality", "NaN behind the mask changes no bit of the rows it is hidden from",
                    causality, with_some_mask,
                    [](const Spec& spec) { return spec.numbers[kFaMask] != 0; }});
    list.push_back(
        {"row_view", "NaN in all that a row does not see changes no bit of it", row_view, {}, {}});
    list.push_back({"dropped_values", "NaN in a value changes no bit of the rows that drop it",
                    dropped_values, with_drops, drops_some});
}

}  // namespace attncheck::properties
