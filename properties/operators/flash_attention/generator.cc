// The generator of flash attention: which shapes and features are drawn how often. Features are
// drawn one after the other, each under the documented conditions on the earlier ones.
#include <algorithm>

#include "properties/case/attention_draws.h"
#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

Int cost(const Spec& spec) {
    return attention_cost_of(spec, spec.numbers[kFaRope] + 8);
}

void set_tokens(Spec& spec, FlashTokens kind, Int pre, Int next) {
    spec.numbers[kFaTokens] = static_cast<Int>(kind);
    spec.numbers[kFaPre] = pre;
    spec.numbers[kFaNext] = next;
}

void sample_heads(Random& random, Spec& spec) {
    spec.numbers[kFaDtype] = random.pick<Int>({0, 0, 1, 1, 2});
    spec.numbers[kFaLayout] = random.pick<Int>({0, 1, 2, 2, 2, 2, 3, 4});
    spec.numbers[kFaKvHeads] = random.pick<Int>({1, 1, 1, 2, 2, 3, 4});
    spec.numbers[kFaGroup] = random.pick<Int>({1, 1, 1, 2, 2, 3, 4, 5, 8});
    if (random.chance(2)) spec.numbers[kFaGroup] = 256 / spec.numbers[kFaKvHeads];
    Int dim = random.pick<Int>({1,  1,  2,  7,  8,  16, 16,  17,  32,  33,  40,  64,
                                64, 72, 80, 88, 96, 96, 100, 128, 128, 192, 256, 512});
    if (dim == 192 && random.chance(50)) dim = random.pick<Int>({129, 136, 200, 250});
    if (dim == 512 && random.chance(60)) dim = random.between(257, 511);  // a vector that ends short of its lanes
    spec.numbers[kFaDim] = dim;
    spec.numbers[kFaValueDim] = random.chance(60)   ? dim
                                : random.chance(30) ? 1
                                                    : random.between(1, dim);
}

/// Lengths per batch or sequence; in TND also empty sequences and rows beyond the last one.
void sample_lengths(Random& random, Spec& spec) {
    draw_lengths(spec, random, is_tnd(spec));
    if (!is_tnd(spec)) return;
    if (random.chance(15)) spec.numbers[kFaBeyondQ] = draw_rows_beyond(random);
    if (random.chance(15)) spec.numbers[kFaBeyondKv] = draw_rows_beyond(random);
    if (random.chance(3)) {  // nothing but rows beyond
        std::fill(spec.lists[0].begin(), spec.lists[0].end(), 0);
        spec.numbers[kFaBeyondQ] = draw_rows_beyond(random);
        if (random.chance(70)) std::fill(spec.lists[1].begin(), spec.lists[1].end(), 0);
    }
}

constexpr Int kLongSquare = 2049;

/// Long and thin: tiles and 1024-column blocks at their edges, one side short. A case costs what a
/// short one does.
void make_long(Random& random, Spec& spec) {
    const Int length = random.pick<Int>({1023, 1024, 1025, 1025, 1100, 1100, 2047, 2048, 2049, 4097, 8193, kBeyond16Bits});
    const Int few = random.chance(30) ? 1 : random.between(1, length > kLongSquare ? 3 : 40);
    spec.numbers[kFaKvHeads] = spec.numbers[kFaGroup] = 1;
    spec.numbers[kFaDim] = random.pick<Int>({1, 2, 8});
    spec.numbers[kFaValueDim] = random.between(1, spec.numbers[kFaDim]);
    spec.numbers[kFaBeyondQ] = spec.numbers[kFaBeyondKv] = 0;
    // Modes and laws may want as many keys as queries: thousands are keys alone.
    const bool of_queries = random.chance(50) && length <= kLongSquare;
    spec.lists = {{of_queries ? length : few}, {of_queries ? few : length}};
}

/// Large groups and more queries than a tile has, thin: what all heads of a group make of one key.
void make_large_group(Random& random, Spec& spec) {
    spec.numbers[kFaKvHeads] = 1;
    spec.numbers[kFaGroup] = random.pick<Int>({9, 10, 12, 16, 17, 17, 20, 33});
    spec.numbers[kFaDim] = random.pick<Int>({1, 2, 8, 16});
    spec.numbers[kFaValueDim] = random.between(1, spec.numbers[kFaDim]);
    spec.numbers[kFaBeyondQ] = spec.numbers[kFaBeyondKv] = 0;
    spec.lists = {{random.between(33, 80)}, {random.between(17, 80)}};
}

/// More heads than most kernels have lanes, slopes or counters for, short and thin.
void make_many_heads(Random& random, Spec& spec) {
    spec.numbers[kFaKvHeads] = random.pick<Int>({33, 65, 66, 129, 130, 200});
    spec.numbers[kFaGroup] = random.pick<Int>({1, 1, 256 / spec.numbers[kFaKvHeads]});
    spec.numbers[kFaDim] = random.pick<Int>({1, 2, 8});
    spec.numbers[kFaValueDim] = random.between(1, spec.numbers[kFaDim]);
    spec.numbers[kFaBeyondQ] = spec.numbers[kFaBeyondKv] = 0;
    const Int queries = random.between(1, 9), keys = random.between(1, 9);
    spec.lists = {{queries}, {keys}};
    if (random.chance(50)) return;
    spec.numbers[kFaPse] = static_cast<Int>(random.pick({FlashPse::slopes, FlashPse::batch_slopes}));
    spec.numbers[kFaPseType] = random.between(2, 3);
    spec.lists[1] = spec.lists[0];
}

/// As many queries as keys, thin, below a diagonal that leaves the first tiles far behind.
void make_long_diagonal(Random& random, Spec& spec) {
    make_long(random, spec);
    spec.numbers[kFaDim] = random.between(1, 2);
    spec.numbers[kFaValueDim] = 1;
    const Int length = random.pick<Int>({1025, 1040, 1100, 1300});
    spec.lists = {{length}, {length}};
}

/// A bias for a long case, or another sequence before or behind it, of which a side may be empty.
void extend_long(Random& random, Spec& spec) {
    const bool tnd = is_tnd(spec);
    // A bias may ask for as many keys as queries: thousands of them are a case of seconds.
    const bool takes_bias = std::max(longest(spec.lists[0]), longest(spec.lists[1])) <= kLongSquare;
    if (takes_bias && random.chance(35)) {
        spec.numbers[kFaPse] =
            static_cast<Int>(tnd ? random.pick({FlashPse::flat_keys, FlashPse::flat_pairs,
                                                FlashPse::one_batch, FlashPse::one_row})
                                 : random.pick({FlashPse::plain, FlashPse::one_batch,
                                                FlashPse::one_row, FlashPse::one_batch_row}));
        spec.numbers[kFaPseType] = random.between(0, 1);
    }
    const bool any_lengths =
        pse_of(spec) == FlashPse::absent || pse_of(spec) > FlashPse::one_batch_row;
    if (!tnd || !any_lengths || random.chance(50)) return;
    const bool before = random.chance(50);
    const std::size_t side = random.chance(30) ? static_cast<std::size_t>(random.between(0, 1)) : 2;
    for (std::size_t list : {0, 1})
        spec.lists[list].insert(before ? spec.lists[list].begin() : spec.lists[list].end(),
                                list == side ? 0 : random.between(1, 9));
}

/// Long on both sides, which outside TND a compressed bias needs; about a second each, so they are
/// few. Above 2048 rows the stored ones are read more than once.
void make_long_square(Random& random, Spec& spec) {
    make_long(random, spec);
    spec.numbers[kFaLayout] = random.pick<Int>({0, 1, 3, 4});
    spec.numbers[kFaDim] = random.between(1, 2);
    spec.numbers[kFaValueDim] = 1;
    const bool compressed = random.chance(85);
    const Int length = !compressed        ? 1024
                       : random.chance(22) ? random.pick<Int>({2060, 2100, 2200})
                                          : random.pick<Int>({1025, 1025, 1026, 1040, 1100});
    const std::size_t batches = length == 1025 && random.chance(15) ? 2 : 1;
    for (auto& list : spec.lists) list.assign(batches, length);
    spec.numbers[kFaPse] = static_cast<Int>(
        !compressed ? FlashPse::plain
                    : random.pick({FlashPse::compressed, FlashPse::compressed_batch}));
    spec.numbers[kFaPseType] = random.between(0, 1);
}

void fit_budget(Random& random, Spec& spec, Int budget) {
    const auto step = [&](int tries) {
        const std::size_t at = any_sequence(spec, random);
        const auto halve = [&](std::vector<Int>& lengths) {
            if (is_tnd(spec))
                lengths[at] = (lengths[at] + 1) / 2;
            else
                lengths.assign(lengths.size(), (lengths[0] + 1) / 2);
        };
        switch (random.between(0, 4)) {
            case 0:
                if (spec.numbers[kFaGroup] > 1)
                    spec.numbers[kFaGroup] = (spec.numbers[kFaGroup] + 1) / 2;
                break;
            case 1:
                halve(spec.lists[0]);
                break;
            case 2:
                halve(spec.lists[1]);
                break;
            case 3:
                if (spec.lists[0].size() > 1) remove_sequence(spec, at);
                break;
            default:
                if (spec.numbers[kFaDim] > 128 && tries > 20) {
                    spec.numbers[kFaDim] = 128;
                    spec.numbers[kFaValueDim] = std::min<Int>(spec.numbers[kFaValueDim], 128);
                }
                break;
        }
    };
    fit_budget(spec, {.most = budget, .cost = cost}, step);
}

/// A rope, and what it excludes: other types, bias, dropout, no mask, mode 6.
void sample_rope(Random& random, Spec& spec) {
    if (!is_tnd(spec) || !random.chance(20)) return;
    if (spec.numbers[kFaDim] < 8) spec.numbers[kFaDim] = random.pick<Int>({8, 9, 16, 17, 72});
    const Int widest = spec.numbers[kFaDim] / 8;
    spec.numbers[kFaRope] = 8 * random.between(1, random.chance(25) ? widest : std::min<Int>(8, widest));
    spec.numbers[kFaDtype] = 1;
}

/// A bias, and the lengths it wants: ALiBi and compressed biases square ones, the rank 4 forms
/// equal ones.
void sample_bias(Random& random, Spec& spec) {
    const bool tnd = is_tnd(spec);
    if (spec.numbers[kFaRope] != 0 || random.chance(tnd ? 30 : 40)) return;
    const auto pse =
        tnd ? random.pick({FlashPse::flat_keys, FlashPse::flat_keys, FlashPse::flat_pairs,
                           FlashPse::flat_pairs, FlashPse::slopes, FlashPse::slopes,
                           FlashPse::batch_slopes, FlashPse::batch_slopes, FlashPse::compressed,
                           FlashPse::compressed, FlashPse::compressed_batch,
                           FlashPse::compressed_batch, FlashPse::plain, FlashPse::one_batch,
                           FlashPse::one_row, FlashPse::one_batch_row})
            : random.pick({FlashPse::plain, FlashPse::one_batch, FlashPse::one_row,
                           FlashPse::one_batch_row, FlashPse::slopes, FlashPse::batch_slopes});
    spec.numbers[kFaPse] = static_cast<Int>(pse);
    spec.numbers[kFaPseType] = has_slopes(spec) ? random.between(2, 3) : random.between(0, 1);
    auto &q = spec.lists[0], &kv = spec.lists[1];
    if (has_slopes(spec)) {
        if (random.chance(50)) spec.numbers[kFaStart] = random.between(1, 3);
        kv = q;
    } else if (is_compressed(spec)) {  // 1024 rows whatever the lengths: a few short columns
        spec.numbers[kFaKvHeads] = random.between(1, 2);
        spec.numbers[kFaGroup] = random.between(1, 3);
        q.resize(std::min<std::size_t>(q.size(), 3));
        for (Int& length : q) length = std::min<Int>(length, random.between(9, 20));
        kv = q;
    } else if (pse == FlashPse::flat_keys && q.size() > 1 && random.chance(15)) {
        // As many pairs as keys: the shape fits both flat forms, and the keys' wins.
        q.assign(q.size(), 1);
        q.front() = 2;
        q.back() = 0;
        kv.assign(q.size(), std::max<Int>(kv[0], 2));
    } else if (tnd && pse <= FlashPse::one_batch_row) {
        q.assign(q.size(), q[0]);
        kv.assign(q.size(), kv[0]);
    }
}

/// Modes that the documented rules allow with this layout, rope and bias.
Int sample_mode(Random& random, const Spec& spec) {
    if (is_compressed(spec)) return random.pick<Int>({0, 0, 2, 3});
    if (!is_tnd(spec)) return random.pick<Int>({0, 0, 1, 1, 2, 3, 4, 5, 6});
    if (spec.numbers[kFaRope] != 0) return random.pick<Int>({0, 0, 1, 1, 2, 3, 4, 7, 8});
    if (pse_of(spec) == FlashPse::absent)
        return random.pick<Int>({0, 0, 1, 1, 2, 3, 4, 6, 7, 7, 7, 8});
    if (has_slopes(spec)) return random.pick<Int>({0, 0, 1, 1, 2, 3, 4, 6, 8, 8, 8, 8});
    return random.pick<Int>({0, 0, 0, 1, 1, 2, 3, 4, 6, 8, 8});
}

/// Lengths that the mode and its company allow: nothing with more queries than keys in modes 3 and
/// 7 of TND; a bias of mode 8 wants squares, the first one where start indices do not make up for
/// it.
void fit_lengths(Random& random, Spec& spec, Int mode) {
    auto &q = spec.lists[0], &kv = spec.lists[1];
    if (is_tnd(spec) && (mode == 3 || mode == 7))
        for (std::size_t b = 0; b < q.size(); ++b)
            if (q[b] > kv[b] && kv[b] > 0) std::swap(q[b], kv[b]);
    // Keys for a diagonal at the edges of tiles, where a tile needs its mask for one pair. Not of long rows of queries:
    // they would get as many keys. sample_band places the diagonal of mode 4.
    constexpr Int kShort = 300;
    if (mode == 4 && longest(q) <= kShort && longest(kv) <= kShort && pse_of(spec) == FlashPse::absent && random.chance(30))
        std::ranges::fill(kv, random.between(66, 200));
    if ((mode == 3 || mode == 6) && longest(q) <= kShort && pse_of(spec) == FlashPse::absent && random.chance(20)) {
        const Int length = length_across_tile_edge(random, q[0]);
        if (is_tnd(spec))
            kv[0] = length;
        else
            std::ranges::fill(kv, length);
    }
    if (mode == 2 && longest(q) <= kShort && pse_of(spec) == FlashPse::absent && random.chance(25)) {
        // The last rows of a diagonal in a tile of their own.
        const Int length = std::max<Int>(length_across_tile_edge(random, 0), 1);
        for (auto* side : {&q, &kv})
            if (is_tnd(spec))
                side->front() = length;
            else
                std::ranges::fill(*side, length);
    }
    if (mode == 7)  // the last sequence with queries is the band, and needs keys
        for (std::size_t b = q.size(); b-- > 0;) {
            if (q[b] > kv[b]) std::swap(q[b], kv[b]);
            if (q[b] > 0) break;
        }
    // The first sequence with queries is the band, whether it has keys or not.
    if (mode == 8 && is_tnd(spec) && q.size() > 1 && pse_of(spec) == FlashPse::absent && random.chance(12)) {
        q[0] = std::max<Int>(q[0], 1), kv[0] = 0;
        kv[1] = std::max<Int>(kv[1], 2);
    }
    if (mode != 8 || pse_of(spec) == FlashPse::absent) return;
    kv = q;
    if (!has_slopes(spec) || q[0] < 2 || !random.chance(85)) return;
    spec.numbers[kFaStart] = static_cast<Int>(FlashStart::both);
    kv[0] = random.chance(50) ? q[0] + random.between(1, 30) : random.between(1, q[0] - 1);
}

/// Bands at and around their documented limits.
void sample_band(Random& random, Spec& spec) {
    const Int mode = spec.numbers[kFaSparse], sq = longest(spec.lists[0]),
              skv = longest(spec.lists[1]), reach = std::max(sq, skv) + 2;
    auto kind = static_cast<FlashTokens>(random.pick<Int>({0, 0, 0, 1, 1, 2, 2, 3, 4, 5}));
    const Int negative_limit = mode == 4                           ? reach
                               : kind == FlashTokens::pre_negative ? sq - 1
                                                                   : skv - 1;
    const bool negative = kind == FlashTokens::pre_negative || kind == FlashTokens::next_negative;
    if (negative && negative_limit < 1) kind = FlashTokens::given;
    Int pre = random.between(0, reach), next = random.between(0, reach);
    if (random.chance(15)) pre = next = 0;
    const Int offset = mode == 4 ? skv - sq : 0;
    if (kind == FlashTokens::given && random.chance(25)) pre = reach_to_tile_edge(random, offset, reach);
    if (kind == FlashTokens::given && random.chance(15)) next = reach_to_tile_edge(random, -offset, reach);
    if (kind == FlashTokens::pre_negative) {
        pre = random.chance(35) ? negative_limit : random.between(1, negative_limit);
        next = pre + (random.chance(35) ? 0 : random.between(0, reach));
    } else if (kind == FlashTokens::next_negative) {
        next = random.chance(35) ? negative_limit : random.between(1, negative_limit);
        pre = next + (random.chance(35) ? 0 : random.between(0, reach));
    }
    constexpr Int kTile = 64;
    if (mode == 4 && skv > kTile + 1 && random.chance(50)) {
        // The diagonal at the edge of a tile: the last key of the first query.
        const Int last = kTile * random.between(1, (skv - 2) / kTile) + random.between(-2, 0),
                  ahead = last - (skv - sq);
        kind = ahead < 0 ? FlashTokens::next_negative : FlashTokens::given;
        next = std::abs(ahead);
        pre = (ahead < 0 ? next : 0) + random.between(0, reach);
    }
    if (is_compressed(spec) && mode == 0) {  // causal
        kind = random.chance(70) ? FlashTokens::given : FlashTokens::pre_unlimited;
        pre = sq + random.between(0, 2);
        next = 0;
    }
    set_tokens(spec, kind, pre, next);
}

/// Modes 7 and 8: a band for one sequence; tokens at and around the documented limits.
void sample_split_tokens(Random& random, Spec& spec) {
    const auto &q = spec.lists[0], &kv = spec.lists[1];
    const bool last = spec.numbers[kFaSparse] == 7;
    std::size_t band = 0;
    for (std::size_t b = 0; b < q.size(); ++b)
        if (q[b] != 0) {
            band = b;
            if (!last) break;
        }
    const Int least = q[band] - kv[band];
    const Int pre = kv[band] + random.between(0, 2);
    const Int next = last ? std::min<Int>(0, least + random.pick<Int>({0, 0, 1, 2, 3, 40}))
                          : least + random.between(0, 4);
    if (next >= 0 && random.chance(40))
        set_tokens(spec, last ? FlashTokens::pre_unlimited : FlashTokens::unlimited, pre, next);
    else
        set_tokens(spec, next < 0 ? FlashTokens::next_negative : FlashTokens::given, pre,
                   std::abs(next));
}

void sample_mask(Random& random, Spec& spec) {
    const bool tnd = is_tnd(spec), needed = spec.numbers[kFaRope] != 0 || is_compressed(spec);
    if (!needed && random.chance(20)) {
        spec.numbers[kFaSparse] = tnd ? random.pick<Int>({0, 0, 1, 2, 3, 4, 6, 7, 8})
                                      : random.pick<Int>({0, 0, 1, 2, 3, 4, 5, 6});
        return;
    }
    const Int mode = sample_mode(random, spec);
    spec.numbers[kFaMask] = random.between(1, 2);
    spec.numbers[kFaSparse] = mode;
    fit_lengths(random, spec, mode);
    if (mode == 0 || mode == 4) sample_band(random, spec);
    if (mode == 7 || mode == 8) sample_split_tokens(random, spec);
    if (mode == 5 || mode == 6) spec.numbers[kFaPrefix] = random.between(0, mode == 5 ? 3 : 2);
    const bool flat = pse_of(spec) == FlashPse::flat_keys || pse_of(spec) == FlashPse::flat_pairs;
    if (mode == 0 || mode == 1)
        spec.numbers[kFaMaskForm] = tnd && !flat
                                        ? random.pick<Int>({0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 4})
                                        : random.between(0, tnd ? 4 : 3);
    if (mode == 5)
        spec.numbers[kFaMaskForm] =
            spec.lists[0].size() == 1 ? random.pick<Int>({0, 0, 1, 1, 2, 3}) : random.between(2, 3);
}

void sample_dropout(Random& random, Spec& spec) {
    if (spec.numbers[kFaRope] != 0 || !random.chance(40)) return;
    spec.numbers[kFaDrop] = random.pick<Int>({1, 1, 2, 3});
    spec.numbers[kFaKeep] = random.between(0, 3);
}

/// A rare case meets every kind of data; other cases mostly have plain data.
void sample_data(Random& random, Spec& spec) {
    const Int mode = spec.numbers[kFaMask] != 0 ? spec.numbers[kFaSparse] : 0;
    const bool flat = pse_of(spec) == FlashPse::flat_keys || pse_of(spec) == FlashPse::flat_pairs;
    const bool rare = is_compressed(spec) || flat || mode == 5 || mode >= 7 ||
                      spec.numbers[kFaMaskForm] == static_cast<Int>(FlashMaskForm::packed);
    draw_any_data(spec, random, !rare);
    if (rare)
        spec.numbers[kFaScale] = random.between(0, 6);
    else
        draw_scale(spec, random);
    spec.numbers[kFaLogits] = random.chance(rare ? 0 : 45) ? 0 : random.between(0, 8);
    if (spec.recipe == Recipe::signs && random.chance(30))
        spec.numbers[kFaLogits] = 1;  // outputs half way between two numbers
    spec.numbers[kFaInert] = random.between(0, 2);
    if (is_tnd(spec)) spec.numbers[kFaOrder] = random.between(0, 1);
    draw_layouts(spec, random, Layout::reversed);
    for (std::size_t i = 0; i < spec.layouts.size(); ++i)
        if (spec.schema->tensors[i].role == Role::mask &&
            !flash_reads_mask(spec.numbers[kFaSparse]))
            spec.layouts[i] = Layout::dense;
}

Spec sample_once(const Schema& schema, Random& random, int size) {
    Spec spec(schema);
    sample_heads(random, spec);
    sample_lengths(random, spec);
    const Int length = random.between(0, 999);
    if (length < 5) {
        make_long_square(random, spec);
    } else if (length < 6) {
        make_long_diagonal(random, spec);
    } else if (length < 57) {
        make_long(random, spec);
        extend_long(random, spec);
    } else if (length < 69) {
        make_large_group(random, spec);
    } else if (length < 75) {
        make_many_heads(random, spec);
    } else {
        const bool is_wide = random.chance(10);
        if (is_wide) draw_wide_shape(spec, random, is_tnd(spec));
        sample_rope(random, spec);
        sample_bias(random, spec);
        fit_budget(random, spec, is_wide ? Int{1} << 21 : (Int{1} << 17) + (Int{6} << 10) * size);
        if (has_slopes(spec) || is_compressed(spec)) spec.lists[1] = spec.lists[0];
        if (pse_of(spec) != FlashPse::absent && pse_of(spec) <= FlashPse::one_batch_row)
            for (auto& list : spec.lists) list.assign(list.size(), list[0]);
    }
    sample_mask(random, spec);
    sample_dropout(random, spec);
    sample_data(random, spec);
    draw_leading_keys(spec, random);
    draw_given(spec, random, 20, 15);
    return spec;
}

}  // namespace

/// Draws until the documented rules accept. Features are drawn under the rules on the earlier ones,
/// so that few draws are in vain and none of them is what a rare pair of features is lost by.
Spec sample_flash(const Schema& schema, Random& random, int size, Profile profile) {
    for (int tries = 0; tries < 200; ++tries) {
        Spec spec = sample_once(schema, random, size);
        spec.profile = profile;
        if (illegal(spec)) continue;
        draw_rare_flash_values(spec);
        if (schema.number("result") >= 0 && has_fp8(profile) && random.chance(40)) {
            Spec small = spec;
            small.numbers[kFaDtype] = random.between(3, 4);
            small.numbers[kFaResult] = random.between(0, 2);
            if (!illegal(small)) return small;  // ropes are bf16
        }
        return spec;
    }
    Spec spec(schema);
    spec.lists = {{3}, {5}};
    spec.numbers[kFaLayout] = static_cast<Int>(FlashLayout::bsnd);
    spec.recipe = Recipe::normal;
    return spec;
}

}  // namespace attncheck::properties
