// The generator of flash attention: which shapes and features are drawn how often, what a case is
// called, and which classes a run must reach. Features are drawn one after the other, each under
// the documented conditions on the earlier ones.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "properties/flash_attention_case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

Int total(const std::vector<Int>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), Int{0});
}

bool is_tnd(const Spec& spec) {
    return spec.numbers[kFaLayout] == static_cast<Int>(FlashLayout::tnd);
}

Int cost(const Spec& spec) {
    const auto& n = spec.numbers;
    const Int heads = n[kFaKvHeads] * n[kFaGroup],
              dims = n[kFaDim] + n[kFaValueDim] + n[kFaRope] + 8;
    Int pairs = 0;
    for (std::size_t b = 0; b < spec.lists[0].size(); ++b)
        pairs += spec.lists[0][b] * spec.lists[1][b] * heads;
    return pairs * dims +
           8 * (total(spec.lists[1]) * n[kFaKvHeads] + total(spec.lists[0]) * heads) * dims;
}

FlashPse pse_of(const Spec& spec) { return static_cast<FlashPse>(spec.numbers[kFaPse]); }
bool is_compressed(const Spec& spec) {
    return pse_of(spec) == FlashPse::compressed || pse_of(spec) == FlashPse::compressed_batch;
}
bool has_slopes(const Spec& spec) { return pse_of(spec) >= FlashPse::slopes; }
void set_tokens(Spec& spec, FlashTokens kind, Int pre, Int next) {
    spec.numbers[kFaTokens] = static_cast<Int>(kind);
    spec.numbers[kFaPre] = pre;
    spec.numbers[kFaNext] = next;
}

Int sample_length(Random& random) {
    switch (random.between(0, 11)) {
        case 0:
            return 1;
        case 1:
            return random.between(2, 8);
        case 2:
            return random.pick<Int>({15, 16, 17});
        case 3:
            return random.pick<Int>({31, 32, 33});
        case 4:
            return random.pick<Int>({63, 64, 65});
        case 5:
            return random.pick<Int>({127, 128, 129});
        case 6:
            return random.chance(60) ? 0 : random.between(1, 3);
        default:
            return random.between(1, 70);
    }
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
    spec.numbers[kFaDim] = dim;
    spec.numbers[kFaValueDim] = random.chance(60)   ? dim
                                : random.chance(30) ? 1
                                                    : random.between(1, dim);
}

/// Keys beside which the diagonal starts one or two short of a tile's edge, on it, or past it: what
/// decides whether a tile needs its mask.
Int length_across_tile_edge(Random& random, Int q) {
    const Int tile = random.pick<Int>({16, 32, 64, 64, 128});
    return q + tile * random.between(0, 2) + random.pick<Int>({tile - 2, tile - 1, 0, 1});
}

/// Lengths per batch or sequence; in TND also empty sequences and rows beyond the last one.
void sample_lengths(Random& random, Spec& spec) {
    const Int count = random.pick<Int>({1, 1, 2, 2, 3, 4, 5});
    const bool same = random.chance(40);
    if (!is_tnd(spec)) {
        const Int q = sample_length(random);
        spec.lists[0].assign(static_cast<std::size_t>(count), q);
        const Int kv = same                ? q
                       : random.chance(20) ? length_across_tile_edge(random, q)
                                           : sample_length(random);
        spec.lists[1].assign(static_cast<std::size_t>(count), kv);
        return;
    }
    for (Int b = 0; b < count; ++b) {
        const Int q = random.chance(12) ? 0 : sample_length(random);
        spec.lists[0].push_back(q);
        spec.lists[1].push_back(random.chance(12)   ? 0
                                : same              ? q
                                : random.chance(20) ? length_across_tile_edge(random, q)
                                                    : sample_length(random));
    }
    if (random.chance(15)) spec.numbers[kFaBeyondQ] = random.between(1, 5);
    if (random.chance(15)) spec.numbers[kFaBeyondKv] = random.between(1, 5);
    if (random.chance(3)) {  // nothing but rows beyond
        std::fill(spec.lists[0].begin(), spec.lists[0].end(), 0);
        spec.numbers[kFaBeyondQ] = random.between(1, 5);
        if (random.chance(70)) std::fill(spec.lists[1].begin(), spec.lists[1].end(), 0);
    }
}

/// Long and thin: tiles and 1024-column blocks at their edges, one side short. A case costs what a
/// short one does.
void make_long(Random& random, Spec& spec) {
    const Int length = random.pick<Int>({1023, 1024, 1025, 1100, 2047, 2048, 2049});
    const Int few = random.chance(30) ? 1 : random.between(1, 40);
    spec.numbers[kFaKvHeads] = spec.numbers[kFaGroup] = 1;
    spec.numbers[kFaDim] = random.pick<Int>({1, 2, 8});
    spec.numbers[kFaValueDim] = random.between(1, spec.numbers[kFaDim]);
    spec.numbers[kFaBeyondQ] = spec.numbers[kFaBeyondKv] = 0;
    spec.lists = {{random.chance(50) ? length : few}, {length}};
    if (spec.lists[0][0] == length) spec.lists[1][0] = few;
}

/// A bias for a long case, or another sequence before or behind it, of which a side may be empty.
void extend_long(Random& random, Spec& spec) {
    const bool tnd = is_tnd(spec);
    if (random.chance(35)) {
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
/// few.
void make_long_square(Random& random, Spec& spec) {
    make_long(random, spec);
    spec.numbers[kFaLayout] = random.pick<Int>({0, 1, 3, 4});
    spec.numbers[kFaDim] = random.between(1, 2);
    spec.numbers[kFaValueDim] = 1;
    const bool compressed = random.chance(85);
    const Int length = !compressed        ? 1024
                       : random.chance(6) ? 2049
                                          : random.pick<Int>({1025, 1025, 1026, 1040, 1100});
    const std::size_t batches = length == 1025 && random.chance(15) ? 2 : 1;
    for (auto& list : spec.lists) list.assign(batches, length);
    spec.numbers[kFaPse] = static_cast<Int>(
        !compressed ? FlashPse::plain
                    : random.pick({FlashPse::compressed, FlashPse::compressed_batch}));
    spec.numbers[kFaPseType] = random.between(0, 1);
}

void fit_budget(Random& random, Spec& spec, Int budget) {
    for (int tries = 0; tries < 200 && cost(spec) > budget; ++tries) {
        auto& q = spec.lists[0];
        auto& kv = spec.lists[1];
        const auto at = static_cast<std::size_t>(random.between(0, std::ssize(q) - 1));
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
                halve(q);
                break;
            case 2:
                halve(kv);
                break;
            case 3:
                if (q.size() > 1) {
                    q.erase(q.begin() + static_cast<std::ptrdiff_t>(at));
                    kv.erase(kv.begin() + static_cast<std::ptrdiff_t>(at));
                }
                break;
            default:
                if (spec.numbers[kFaDim] > 128 && tries > 20) {
                    spec.numbers[kFaDim] = 128;
                    spec.numbers[kFaValueDim] = std::min<Int>(spec.numbers[kFaValueDim], 128);
                }
                break;
        }
    }
}

/// A rope, and what it excludes: other types, bias, dropout, no mask, mode 6.
void sample_rope(Random& random, Spec& spec) {
    if (!is_tnd(spec) || !random.chance(20)) return;
    if (spec.numbers[kFaDim] < 8) spec.numbers[kFaDim] = random.pick<Int>({8, 9, 16, 17, 72});
    spec.numbers[kFaRope] = 8 * random.between(1, std::min<Int>(8, spec.numbers[kFaDim] / 8));
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

/// Modes that the documented rules allow beside layout, rope and bias.
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
    if (mode == 7)  // the last sequence with queries is the band, and needs keys
        for (std::size_t b = q.size(); b-- > 0;) {
            if (q[b] > kv[b]) std::swap(q[b], kv[b]);
            if (q[b] > 0) break;
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
    if (kind == FlashTokens::pre_negative) {
        pre = random.chance(35) ? negative_limit : random.between(1, negative_limit);
        next = pre + (random.chance(35) ? 0 : random.between(0, reach));
    } else if (kind == FlashTokens::next_negative) {
        next = random.chance(35) ? negative_limit : random.between(1, negative_limit);
        pre = next + (random.chance(35) ? 0 : random.between(0, reach));
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

/// What is rare in itself meets every kind of data; the rest mostly has plain ones.
void sample_data(Random& random, Spec& spec) {
    const Int mode = spec.numbers[kFaMask] != 0 ? spec.numbers[kFaSparse] : 0;
    const bool flat = pse_of(spec) == FlashPse::flat_keys || pse_of(spec) == FlashPse::flat_pairs;
    const bool rare = is_compressed(spec) || flat || mode == 5 || mode >= 7 ||
                      spec.numbers[kFaMaskForm] == static_cast<Int>(FlashMaskForm::packed);
    spec.seed = random.next() >> 40;
    spec.recipe = static_cast<Recipe>(
        random.between(static_cast<int>(Recipe::ones), static_cast<int>(Recipe::specials)));
    if (!rare && random.chance(30)) spec.recipe = random.chance(70) ? Recipe::normal : Recipe::ints;
    spec.numbers[kFaScale] =
        rare ? random.between(0, 6) : random.pick<Int>({1, 1, 1, 1, 0, 2, 2, 3, 4, 5, 6});
    spec.numbers[kFaLogits] = random.chance(rare ? 0 : 45) ? 0 : random.between(0, 7);
    if (spec.recipe == Recipe::signs && random.chance(30))
        spec.numbers[kFaLogits] = 1;  // outputs half way between two numbers
    spec.numbers[kFaPrecise] = random.between(0, 2);
    if (is_tnd(spec)) spec.numbers[kFaOrder] = random.between(0, 1);
    if (!random.chance(35)) return;
    for (std::size_t i = 0; i < spec.schema->tensors.size(); ++i) {
        if (!random.chance(40)) continue;
        const TensorField& field = spec.schema->tensors[i];
        spec.layouts[i] = static_cast<Layout>(
            random.between(1, static_cast<int>(field.output ? Layout::spread : Layout::reversed)));
        if (field.name == "atten_mask" && spec.numbers[kFaSparse] > 1 &&
            spec.numbers[kFaSparse] != 5)
            spec.layouts[i] = Layout::dense;
    }
}

Spec sample_once(const Schema& schema, Random& random, int size) {
    Spec spec(schema);
    sample_heads(random, spec);
    sample_lengths(random, spec);
    const Int length = random.between(0, 999);
    if (length < 7) {
        make_long_square(random, spec);
    } else if (length < 57) {
        make_long(random, spec);
        extend_long(random, spec);
    } else {
        sample_rope(random, spec);
        sample_bias(random, spec);
        fit_budget(random, spec, (Int{1} << 18) + (Int{8} << 10) * size);
        if (has_slopes(spec) || is_compressed(spec)) spec.lists[1] = spec.lists[0];
        if (pse_of(spec) != FlashPse::absent && pse_of(spec) <= FlashPse::one_batch_row)
            for (auto& list : spec.lists) list.assign(list.size(), list[0]);
    }
    sample_mask(random, spec);
    sample_dropout(random, spec);
    sample_data(random, spec);
    if (schema.number("stats") >= 0) {
        spec.set("stats", random.chance(20));
        spec.set("out", random.chance(15));
    }
    return spec;
}

/// Names the corner cases of flash_attention.md 9 that a legal case is, as "corner:N" or, where one
/// number has several sides, "corner:N.side". What contract.md overrides is left out; illegal
/// arguments are the edits' (flash_attention_validation.cc).
class Corners {
public:
    Corners(const Spec& spec, std::vector<std::string>& out)
        : spec_(spec), parts_(flash_shape_parts(spec)), out_(out) {}

    void name() {
        if (masked_) name_masks();
        corner(!masked_ && mode_ != 0, "9");
        corner(n_[kFaPrecise] == 2, "8");
        if (tnd_) name_sequences();
        name_extents();
        name_dropout();
        name_biases();
        name_data();
    }

private:
    void corner(bool applies, const char* which) {
        if (applies) out_.push_back(fmt::format("corner:{}", which));
    }
    /// True for some batch or sequence.
    template <class Test>
    bool some(Test&& test) const {
        for (std::size_t b = 0; b < q_.size(); ++b)
            if (test(q_[b], kv_[b])) return true;
        return false;
    }
    void name_masks();
    void name_prefixes();
    void name_split_bands();
    void name_read_masks();
    void name_sequences();
    void name_extents();
    void name_dropout();
    void name_biases();
    void name_data();
    bool hides_a_row() const;

    const Spec& spec_;
    const FlashParts parts_;
    std::vector<std::string>& out_;
    const std::vector<Int>&n_ = spec_.numbers, &q_ = spec_.lists[0], &kv_ = spec_.lists[1];
    const ref::FlashAttentionShape& shape_ = parts_.shape;
    const Int mode_ = n_[kFaSparse];
    const bool masked_ = n_[kFaMask] != 0, tnd_ = is_tnd(spec_);
};

void Corners::name_masks() {
    const Int pre = shape_.mask.pre_tokens, next = shape_.mask.next_tokens;
    corner(mode_ == 3 && some([](Int q, Int kv) { return q > kv && kv > 0; }), "1");
    corner(mode_ == 3 && some([](Int q, Int kv) { return 0 < q && q < kv; }), "2");
    const bool different = some([](Int q, Int kv) { return q != kv && q > 0 && kv > 0; });
    corner(mode_ == 4 && different && n_[kFaTokens] == 0, "3");
    corner(mode_ == 4 && pre < 0, "4.pre");
    corner(mode_ == 4 && next < 0, "4.next");
    corner(mode_ == 4 && pre != 0 && pre == -next, "4.limit");
    corner(mode_ == 0 && pre < 0 && -pre == longest(q_) - 1, "5.pre");
    corner(mode_ == 0 && next < 0 && -next == longest(kv_) - 1, "5.next");
    corner(mode_ == 0 && pre == 0 && next == 0, tnd_ ? "6.sequences" : "6.batches");
    const bool unlimited = pre == INT64_MAX || next == INT64_MAX;
    corner(mode_ == 0 && unlimited, "10.top_left");
    corner(mode_ == 4 && unlimited, "10.bottom_right");
    corner(mode_ >= 7 && unlimited, "10.split");
    if (mode_ == 5 || mode_ == 6) name_prefixes();
    if (mode_ >= 7) name_split_bands();
    if (mode_ < 2 || mode_ == 5) name_read_masks();
}

void Corners::name_prefixes() {
    const auto& prefix = shape_.mask.prefix;
    corner(mode_ == 5 && prefix.empty(), "12");
    if (mode_ != 6) return;
    bool full = false, zero = false, differ = false;
    for (std::size_t b = 0; b < prefix.size(); ++b) {
        full = full || (prefix[b] == kv_[b] && kv_[b] > 0);
        zero = zero || (prefix[b] == 0 && q_[b] > kv_[b] && kv_[b] > 0);
        differ = differ || prefix[b] != prefix[0];
    }
    corner(full, "11.full");
    corner(zero, "11.zero");
    corner(differ, "11.differ");
}

void Corners::name_split_bands() {
    const auto has_queries = [](Int q) { return q != 0; };
    const auto first = std::find_if(q_.begin(), q_.end(), has_queries);
    if (first == q_.end()) return;
    const auto last = std::find_if(q_.rbegin(), q_.rend(), has_queries);
    const auto band =
        static_cast<std::size_t>(mode_ == 7 ? q_.rend() - last - 1 : first - q_.begin());
    corner(mode_ == 7 && q_.back() == 0, "13.last_empty");
    corner(mode_ == 8 && q_.front() == 0, "13.first_empty");
    corner(q_.size() == 1, "13.single");
    const bool limit = shape_.mask.next_tokens == q_[band] - kv_[band];
    corner(limit, mode_ == 7 ? "13.last_limit" : "13.first_limit");
}

/// A row whose keys are all hidden by the contents of the mask.
bool Corners::hides_a_row() const {
    FlashParts with = parts_;
    fill_flash_mask(spec_, with);
    const auto& values = with.shape.mask.values;
    const auto columns = static_cast<std::ptrdiff_t>(shape_.mask.shape.back());
    if (columns == 0) return false;
    for (auto row = values.begin(); row != values.end(); row += columns)
        if (std::find(row, row + columns, 0) == row + columns) return true;
    return false;
}

void Corners::name_read_masks() {
    if (longest(q_) == 0 || longest(kv_) == 0 || spec_.recipe == Recipe::zeros) return;
    const bool several = q_.size() > 1;
    corner(mode_ == 1 && hides_a_row(), "7");
    corner(n_[kFaMask] == 1, "32.bool");
    corner(n_[kFaMask] == 2, "32.any_byte");
    switch (static_cast<FlashMaskForm>(n_[kFaMaskForm])) {
        case FlashMaskForm::single:
            return corner(true, "33.single");
        case FlashMaskForm::one:
            return corner(true, "33.one");
        case FlashMaskForm::batch:
            return corner(several, "33.batch");
        case FlashMaskForm::head:
            return corner(several && shape_.query_heads > 1, "33.head");
        case FlashMaskForm::packed:
            return corner(several, "33.packed");
    }
}

void Corners::name_sequences() {
    const std::size_t count = q_.size();
    bool inner = false, differ = false;
    Int before = 0;
    for (std::size_t b = 0; b < count; ++b) {
        inner = inner || (b > 0 && b + 1 < count && q_[b] == 0 && kv_[b] == 0);
        differ = differ || (before != 0 && q_[b] != 0 && q_[b] != before);
        if (q_[b] != 0) before = q_[b];
    }
    const bool leading = count > 1 && q_.front() == 0, trailing = count > 1 && q_.back() == 0;
    const bool all_empty = total(q_) == 0 && n_[kFaBeyondQ] > 0;
    corner(inner, "14.inner_empty");
    corner(leading, "14.leading_empty");
    corner(trailing, "14.trailing_empty");
    corner(trailing && masked_ && mode_ == 6, "14.trailing_empty_prefix");
    corner(trailing && pse_of(spec_) == FlashPse::batch_slopes, "14.trailing_empty_slopes");
    corner(some([](Int q, Int kv) { return q > 0 && kv == 0; }), "14.no_keys");
    corner(all_empty, "14.all_empty");
    corner(n_[kFaBeyondQ] > 0 && !all_empty, "15.queries");
    corner(n_[kFaBeyondKv] > 0, "15.keys");
    const bool orders_differ = differ && shape_.query_heads > 1;
    corner(orders_differ && !parts_.same_as_input, "16");
    corner(orders_differ && parts_.same_as_input, "17");
}

void Corners::name_extents() {
    const Int group = n_[kFaGroup], dim = n_[kFaDim], value_dim = n_[kFaValueDim];
    corner(group == 2, "18.two");
    corner(group == 3, "18.three");
    corner(group > 1 && n_[kFaKvHeads] == 1, "18.one_kv_head");
    corner(value_dim < dim && value_dim > 1, "19.value_smaller");
    corner(value_dim == 1 && dim > 1, "19.value_one");
    corner(dim == 1, "19.dim_one");
    corner(dim > 1 && dim % 16 != 0, "19.dim_odd");
    corner(dim == 512, "19.dim_largest");
    corner(!tnd_ && q_[0] == 0, "34.no_queries");
    corner(!tnd_ && q_[0] > 0 && kv_[0] == 0, "34.no_keys");
    corner(some([](Int q, Int kv) { return q > 0 && kv == 1; }), "36.one_key");
    corner(some([](Int q, Int kv) { return q == 1 && kv > 0; }), "36.one_query");
    corner(some([](Int q, Int kv) { return q > 0 && kv > 16 && kv % 8 != 0; }), "36.odd_keys");
    corner(some([](Int q, Int kv) { return q > 0 && kv == 1024; }), "36.keys_1024");
    corner(some([](Int q, Int kv) { return q > 0 && kv == 1025; }), "36.keys_1025");
    corner(some([](Int q, Int kv) { return q > 0 && kv == 2049; }), "36.keys_2049");
}

void Corners::name_dropout() {
    const auto drop = static_cast<FlashDrop>(n_[kFaDrop]);
    corner(drop == FlashDrop::random && n_[kFaKeep] == 0, "24");
    corner(drop == FlashDrop::drop_all, "26");
    if (drop != FlashDrop::random) return;
    Int bits = 0;
    bool crosses = false;
    for (std::size_t b = 0; b < q_.size(); ++b) {
        crosses = crosses || (bits % 8 != 0 && q_[b] * kv_[b] > 0);
        bits += shape_.query_heads * q_[b] * kv_[b];
    }
    const bool odd = some([](Int q, Int kv) { return q > 1 && kv % 2 != 0; });
    corner(bits % 8 != 0 && odd, "25.rows");
    corner(crosses, tnd_ ? "25.sequences" : "25.batches");
}

void Corners::name_biases() {
    const FlashPse pse = pse_of(spec_);
    if (pse == FlashPse::absent) return;
    const bool behind = n_[kFaPseType] == 0, before = n_[kFaPseType] == 1, several = q_.size() > 1;
    const double scale = parts_.scale;
    corner(behind && scale != 1, "27.behind_scale");
    corner(before && scale != 1 && scale != 0, "27.before_scale");
    corner(before && scale == 1, "27.scale_one");
    corner(before && scale == 0, "27.scale_zero");
    corner(behind && pse == FlashPse::plain, "37");
    corner(pse == FlashPse::one_batch && several, "28.one_batch");
    corner(pse == FlashPse::one_row && several && longest(q_) > 1, "28.one_row");
    corner(pse == FlashPse::one_batch_row && several && longest(q_) > 1, "28.one_batch_row");
    corner(pse == FlashPse::plain && q_[0] == 1024 && kv_[0] == 1024, "29.plain_1024");
    corner(is_compressed(spec_) && longest(q_) > 1024, "29.compressed");
    corner(is_compressed(spec_) && tnd_ && several, "29.sequences");
    if (!has_slopes(spec_)) return;
    corner(pse == FlashPse::slopes, "30.slopes");
    corner(pse == FlashPse::batch_slopes && several, "30.batch_slopes");
    const auto start = static_cast<FlashStart>(n_[kFaStart]);
    corner(start == FlashStart::both, "30.start");
    corner(start == FlashStart::query || start == FlashStart::key, "30.one_start");
    corner(q_[0] != kv_[0] && kv_[0] > 0, "30.shifted");
    FlashParts with = parts_;
    fill_flash_bias(spec_, with);
    const auto& slopes = with.shape.bias.values;
    corner(std::any_of(slopes.begin(), slopes.end(), [](double v) { return v < 0; }),
           "30.negative");
}

void Corners::name_data() {
    corner(n_[kFaLogits] == 7 && parts_.scale != 0, "35.far");
    corner(n_[kFaLogits] == 1 && longest(kv_) > 1, "35.equal");
    corner(parts_.scale < 0, "35.negative_scale");
    corner(n_[kFaRope] > 0, "39");
    for (const char* name : {"query", "key", "value", parts_.gradient ? "dq" : "attention_out"})
        corner(spec_.layouts[static_cast<std::size_t>(spec_.schema->tensor(name))] != Layout::dense,
               fmt::format("40.{}", name).c_str());
    const bool halves =
        some([](Int q, Int kv) { return q > 0 && kv > 1 && kv <= 64 && (kv & (kv - 1)) == 0; });
    corner(!parts_.gradient && halves && n_[kFaLogits] == 1 && spec_.recipe == Recipe::signs &&
               parts_.dtype != ref::Dtype::fp32,
           "43");
    if (!parts_.gradient) return;
    corner(n_[kFaStats] != 0, "38");
    corner(n_[kFaOut] != 0 && parts_.scale != 1 && parts_.scale != 0, "44");
}

bool some_row_without_key(const FlashParts& parts) {
    const ref::FlashAttentionShape& s = parts.shape;
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
        for (Int i = 0; i < s.query_lengths[b]; ++i) {
            const ref::KeyRange range = ref::visible_range(s, b, i);
            if (range.begin >= range.end) return true;
        }
    return false;
}

}  // namespace

/// Draws until the documented rules accept. Features are drawn under the rules on the earlier ones,
/// so that few draws are in vain and none of them is what a rare pair of features is lost by.
Spec sample_flash(const Schema& schema, Random& random, int size) {
    const Operator& op = *find_operator(schema.op);
    for (int tries = 0; tries < 200; ++tries) {
        Spec spec = sample_once(schema, random, size);
        if (op.illegal(spec)) continue;
        if (schema.number("result") >= 0 && profile_has_fp8() && random.chance(40)) {
            Spec small = spec;
            small.numbers[kFaDtype] = random.between(3, 4);
            small.numbers[kFaResult] = random.between(0, 2);
            if (!op.illegal(small)) return small;  // ropes are bf16
        }
        return spec;
    }
    Spec spec(schema);
    spec.lists = {{3}, {5}};
    spec.numbers[kFaLayout] = static_cast<Int>(FlashLayout::bsnd);
    spec.recipe = Recipe::normal;
    return spec;
}

std::vector<std::string> flash_labels(const Spec& spec) {
    const auto& n = spec.numbers;
    const auto name_in = [&](FlashField field) {
        return spec.schema->numbers[field].names[static_cast<std::size_t>(n[field])];
    };
    std::vector<std::string> out{name_in(kFaDtype),
                                 fmt::format("data:{}", name_of(spec.recipe)),
                                 fmt::format("layout:{}", name_in(kFaLayout)),
                                 fmt::format("logits:{}", name_in(kFaLogits)),
                                 fmt::format("scale:{}", name_in(kFaScale)),
                                 fmt::format("pse:{}", name_in(kFaPse)),
                                 fmt::format("drop:{}", name_in(kFaDrop))};
    const auto label = [&](bool applies, const char* name) {
        if (applies) out.emplace_back(name);
    };
    const bool mask = n[kFaMask] != 0, tnd = is_tnd(spec);
    out.push_back(mask ? fmt::format("sparse:{}", n[kFaSparse]) : "no_mask");
    if (mask && (n[kFaSparse] < 2 || n[kFaSparse] == 5))
        out.push_back(fmt::format("mask_form:{}", name_in(kFaMaskForm)));
    if (mask && (n[kFaSparse] == 0 || n[kFaSparse] == 4))
        out.push_back(fmt::format("tokens:{}", name_in(kFaTokens)));
    if (n[kFaPse] != 0) out.push_back(fmt::format("pse_type:{}", n[kFaPseType]));
    const auto &q = spec.lists[0], &kv = spec.lists[1];
    bool less = false, equal = false, more = false, keyless = false, queryless = false;
    for (std::size_t b = 0; b < q.size(); ++b) {
        less = less || (q[b] < kv[b] && q[b] > 0);
        equal = equal || (q[b] == kv[b] && q[b] > 0);
        more = more || (q[b] > kv[b] && kv[b] > 0);
        keyless = keyless || (q[b] > 0 && kv[b] == 0);
        queryless = queryless || (q[b] == 0 && kv[b] > 0);
    }
    if (flash_is_fp8(spec)) out.push_back(fmt::format("result:{}", name_in(kFaResult)));
    label(less, "fewer_queries");
    label(equal, "square");
    label(more, "more_queries");
    label(keyless, "queries_without_keys");
    label(queryless, "keys_without_queries");
    label(tnd && q.size() > 1 && (q[0] == 0 || kv[0] == 0), "leading_empty");
    label(tnd && q.size() > 1 && (q.back() == 0 || kv.back() == 0), "trailing_empty");
    label(tnd && q.size() > 1, "several_sequences");
    label(!tnd && q.size() > 1, "several_batches");
    label(n[kFaGroup] > 1, "grouped_heads");
    label(n[kFaKvHeads] > 1, "several_kv_heads");
    label(n[kFaValueDim] < n[kFaDim], "value_dim_smaller");
    label(n[kFaDim] % 16 != 0, "odd_dim");
    label(n[kFaDim] > 128, "wide_dim");
    label(n[kFaRope] > 0, "rope");
    label(*std::max_element(kv.begin(), kv.end()) > 1024, "keys_above_1024");
    label(*std::max_element(q.begin(), q.end()) > 1024, "queries_above_1024");
    label(n[kFaBeyondQ] > 0 || n[kFaBeyondKv] > 0, "beyond_last");
    label(tnd && n[kFaOrder] != 0, "same_as_input");
    label(n[kFaStart] != 0, "start_indices");
    label(std::any_of(spec.layouts.begin(), spec.layouts.end(),
                      [](Layout l) { return l != Layout::dense; }),
          "strided");
    if (spec.schema->number("stats") >= 0) {
        label(n[kFaStats] != 0, "statistics_shifted");
        label(n[kFaOut] != 0, "output_perturbed");
    }
    label(!spec.edits.empty(), kEditedLabel);
    if (spec.edits.empty()) {
        label(some_row_without_key(flash_shape_parts(spec)), "row_without_key");
        Corners(spec, out).name();
    }
    return out;
}

std::vector<RequiredClass> flash_required_classes(bool gradient) {
    std::vector<RequiredClass> required = {{"fp16", 15},
                                           {"bf16", 15},
                                           {"fp32", 8},
                                           {"no_mask", 10},
                                           {"fewer_queries", 10},
                                           {"square", 8},
                                           {"more_queries", 8},
                                           {"queries_without_keys", 2},
                                           {"keys_without_queries", 1},
                                           {"leading_empty", 1},
                                           {"trailing_empty", 1},
                                           {"several_sequences", 10},
                                           {"several_batches", 15},
                                           {"grouped_heads", 20},
                                           {"several_kv_heads", 20},
                                           {"value_dim_smaller", 15},
                                           {"odd_dim", 15},
                                           {"wide_dim", 2},
                                           {"rope", 1},
                                           {"keys_above_1024", 0.5},
                                           {"queries_above_1024", 0.5},
                                           {"beyond_last", 2},
                                           {"same_as_input", 8},
                                           {"start_indices", 1},
                                           {"strided", 8},
                                           {"row_without_key", 3}};
    const auto all = [&](const char* kind, std::initializer_list<const char*> names,
                         double percent) {
        for (const char* name : names)
            required.push_back({fmt::format("{}:{}", kind, name), percent});
    };
    all("layout", {"BSH", "BSND", "TND", "SBH", "BNSD"}, 5);
    all("sparse", {"0", "1", "2", "3", "4", "5", "6", "7", "8"}, 0.5);
    all("mask_form", {"single", "one", "batch", "head", "packed"}, 0.2);
    all("tokens",
        {"given", "pre_negative", "next_negative", "pre_unlimited", "next_unlimited", "unlimited"},
        0.1);
    all("pse",
        {"plain", "one_batch", "one_row", "one_batch_row", "flat_keys", "flat_pairs", "slopes",
         "batch_slopes"},
        0.3);
    all("pse_type", {"0", "1", "2", "3"}, 0.5);
    all("drop", {"absent", "random", "keep_all", "drop_all"}, 0.5);
    all("data",
        {"ints", "ones", "onehot", "signs", "normal", "cancelling", "spiky", "huge", "subnormal",
         "specials"},
        0.5);
    all("logits",
        {"plain", "equal", "dominant", "minus40", "minus120", "minus300", "plus300", "minus20000"},
        1);
    all("scale", {"one", "rsqrt", "eighth", "zero", "negative", "tenth", "large"}, 1);
    // Of the corner cases those that a run of 1000 cases cannot well miss; the others, and every
    // pair of features, are flash_coverage_test.cc's.
    all("corner",
        {"7",
         "8",
         "9",
         "10.top_left",
         "14.leading_empty",
         "14.trailing_empty",
         "14.no_keys",
         "15.queries",
         "15.keys",
         "16",
         "17",
         "18.two",
         "18.three",
         "18.one_kv_head",
         "19.value_smaller",
         "19.value_one",
         "19.dim_one",
         "19.dim_odd",
         "24",
         "25.rows",
         "26",
         "27.behind_scale",
         "27.before_scale",
         "30.slopes",
         "30.negative",
         "32.bool",
         "32.any_byte",
         "33.single",
         "33.one",
         "35.far",
         "35.equal",
         "35.negative_scale",
         "36.one_key",
         "36.one_query",
         "36.odd_keys",
         "39",
         "40.query",
         "40.key",
         "40.value"},
        0.05);
    if (gradient) {
        required.push_back({"statistics_shifted", 3});
        required.push_back({"output_perturbed", 3});
    }
    return required;
}

}  // namespace attncheck::properties
