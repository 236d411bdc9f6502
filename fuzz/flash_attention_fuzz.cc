// Two validators of FlashAttentionScore and FlashAttentionScoreGrad, written apart from the same
// contract, must agree: the same status, the same parameter to blame; and what is drawn legal must
// be accepted. A trap means one of these fails.
//
// How bytes become a call: direction, profile, layout, dtype, extents and lengths; then mask with
// mode, tokens and prefix; then position bias, drop mask, ropes: all of it legal, and every byte
// has a meaning. Up to 6 groups follow: what to spoil, which one of them, and a new value. Missing
// bytes are 0. The forward takes its tensors from those of the gradient.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "attncheck/candidate.h"
#include "fuzz/bytes.h"
#include "impl/flash_attention_validate.h"
#include "ref/constraints.h"

using namespace attncheck;

namespace {

using Integer = std::int64_t;
using GradArgs = attncheck_flash_attention_score_grad_args;
using Tensor = attncheck_tensor;

constexpr Integer kMost = std::numeric_limits<Integer>::max();
constexpr const char* kLayouts[] = {"TND", "BNSD", "BSND", "SBH", "BSH", "tnd", "BSN", "", nullptr};
constexpr const char* kSoftmaxLayouts[] = {"", "same_as_input", "TND", nullptr};

char somewhere;                   ///< the data of every tensor: no validator reads one
constexpr Integer kNoValue = -1;  ///< stands for a present array until its values are final

/// Every number a shape is made of; rows are T1 and T2 in TND.
enum Extent { kB, kQueryRows, kKeyRows, kN1, kN2, kD, kDv, kDr, kExtents };
using Extents = std::array<Integer, kExtents>;
enum Array { kQueryEnds, kKeyEnds, kPrefix, kQueryStart, kKeyStart, kArrays };

struct Length {
    Integer query = 0, key = 0;
};

struct Call {
    GradArgs g{};
    bool gradient = false, ascend950 = false, packed = false;
    std::string layout;  ///< of the shapes, whatever becomes of input_layout
    Extents x{};
    std::array<std::vector<Integer>, kArrays> values;
    std::vector<Length> lengths;         ///< one outside TND
    Integer query_len = 0, key_len = 0;  ///< the largest
    bool square = true, equal = true;    ///< in every sequence; in all of them
};

std::array<attncheck_int_array*, kArrays> arrays(GradArgs& g) {
    return {&g.actual_seq_q_len, &g.actual_seq_kv_len, &g.prefix, &g.q_start_idx, &g.kv_start_idx};
}

std::array<Tensor*, 18> tensors(GradArgs& g) {
    return {&g.query,       &g.key,          &g.value,       &g.dy,         &g.softmax_max,
            &g.softmax_sum, &g.attention_in, &g.dq,          &g.dk,         &g.dv,
            &g.pse_shift,   &g.atten_mask,   &g.drop_mask,   &g.query_rope, &g.key_rope,
            &g.dq_rope,     &g.dk_rope,      &g.padding_mask};
}

void give_array(Call& c, Array which) { arrays(c.g)[which]->values = &kNoValue; }

void set_shape(Tensor& t, const std::vector<Integer>& shape) {
    t.rank = static_cast<std::int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), t.shape);
}

void set_in_layout(const Call& c, Tensor& t, Extent rows, Extent heads, Extent channels) {
    const Integer b = c.x[kB], s = c.x[rows], n = c.x[heads], d = c.x[channels];
    const Integer merged =
        static_cast<Integer>(static_cast<std::uint64_t>(n) * static_cast<std::uint64_t>(d));
    if (c.packed)
        set_shape(t, {s, n, d});
    else if (c.layout == "BNSD")
        set_shape(t, {b, n, s, d});
    else if (c.layout == "BSND")
        set_shape(t, {b, s, n, d});
    else if (c.layout == "SBH")
        set_shape(t, {s, b, merged});
    else
        set_shape(t, {b, s, merged});
}

void set_shapes(Call& c) {
    GradArgs& g = c.g;
    for (Tensor* t : {&g.query, &g.dq}) set_in_layout(c, *t, kQueryRows, kN1, kD);
    for (Tensor* t : {&g.dy, &g.attention_in}) set_in_layout(c, *t, kQueryRows, kN1, kDv);
    for (Tensor* t : {&g.key, &g.dk}) set_in_layout(c, *t, kKeyRows, kN2, kD);
    for (Tensor* t : {&g.value, &g.dv}) set_in_layout(c, *t, kKeyRows, kN2, kDv);
    for (Tensor* t : {&g.query_rope, &g.dq_rope}) set_in_layout(c, *t, kQueryRows, kN1, kDr);
    for (Tensor* t : {&g.key_rope, &g.dk_rope}) set_in_layout(c, *t, kKeyRows, kN2, kDr);
    for (Tensor* t : {&g.softmax_max, &g.softmax_sum})
        if (c.packed)
            set_shape(*t, {c.x[kQueryRows], c.x[kN1], 8});
        else
            set_shape(*t, {c.x[kB], c.x[kN1], c.x[kQueryRows], 8});
}

/// 0..31, or around 1024.
Integer draw_length(Bytes& bytes) {
    const Integer value = bytes.byte();
    return value < 224 ? value % 32 : 1000 + (value - 224) * 2;
}

void draw_lengths(Bytes& bytes, Call& c) {
    const std::uint8_t kind = bytes.byte();
    const bool square = kind & 1, equal = kind & 2;
    const std::size_t count = c.packed ? 1 + kind / 4 % 4 : 1;
    c.lengths.resize(count);
    Length sum;
    for (std::size_t b = 0; b < count; ++b) {
        Length& own = c.lengths[b];
        if (b > 0 && equal)
            own = c.lengths[0];
        else
            own.query = draw_length(bytes), own.key = square ? own.query : draw_length(bytes);
        c.query_len = std::max(c.query_len, own.query), c.key_len = std::max(c.key_len, own.key);
        c.square &= own.query == own.key;
        c.equal &= own.query == c.lengths[0].query && own.key == c.lengths[0].key;
        sum = {sum.query + own.query, sum.key + own.key};
        c.values[kQueryEnds].push_back(sum.query), c.values[kKeyEnds].push_back(sum.key);
    }
    const Integer beyond = c.packed ? kind / 16 % 3 : 0;
    c.x[kB] = c.packed ? static_cast<Integer>(count) : kind / 4 % 5;
    c.x[kQueryRows] = sum.query + beyond, c.x[kKeyRows] = sum.key + beyond % 2;
}

/// Direction, layout, extents, dtypes: a legal call without optional arguments.
void draw_plain(Bytes& bytes, Call& c) {
    constexpr Integer kHeads[] = {1, 2, 3, 64}, kGroups[] = {1, 2, 3, 4};
    constexpr Integer kDims[] = {16, 1, 8, 24, 100, 512};
    constexpr std::int32_t kTypes[] = {ATTNCHECK_BFLOAT16, ATTNCHECK_FLOAT16, ATTNCHECK_FLOAT32,
                                       ATTNCHECK_FLOAT8_E5M2, ATTNCHECK_FLOAT8_E4M3FN};
    GradArgs& g = c.g;
    const std::uint8_t kind = bytes.byte(), heads = bytes.byte(), dims = bytes.byte();
    c.gradient = kind & 1, c.ascend950 = kind & 2, c.layout = kLayouts[kind / 4 % 5];
    c.packed = c.layout == "TND";
    c.x[kN2] = kHeads[heads % 4], c.x[kN1] = c.x[kN2] * kGroups[heads / 4 % 4];
    c.x[kD] = kDims[dims % 6], c.x[kDv] = 1 + dims / 6 % c.x[kD];
    c.x[kDr] = std::min<Integer>(c.x[kD] / 8 * 8, 8 + 8 * (dims / 42));
    draw_lengths(bytes, c);
    set_shapes(c);
    const std::uint8_t types = bytes.byte();
    const bool fp8 = c.gradient && c.ascend950 && types & 1;
    const std::int32_t type = kTypes[types / 2 % 3];
    const std::array all = tensors(g);
    for (std::size_t i = 0; i < all.size(); ++i) {
        all[i]->dtype = i < 4 && fp8 ? kTypes[3 + types / 8 % 2] : type;
        if (i < 10) all[i]->data = &somewhere;
    }
    g.softmax_max.dtype = g.softmax_sum.dtype = ATTNCHECK_FLOAT32;
    g.input_layout = kLayouts[kind / 4 % 5];
    g.softmax_in_layout = kSoftmaxLayouts[c.packed && types & 16 ? 1 : 0];
    g.head_num = c.x[kN1], g.scale_value = 0.25, g.keep_prob = 1, g.pse_type = 1;
    if (c.packed) give_array(c, kQueryEnds), give_array(c, kKeyEnds);
}

/// The sequence that modes 7 (last) and 8 (first) treat as a band; the number of them when none.
std::size_t band_of(const Call& c) {
    std::size_t band = c.lengths.size();
    for (std::size_t b = 0; b < c.lengths.size(); ++b)
        if (c.lengths[b].query > 0 && (c.g.sparse_mode == 7 || band == c.lengths.size())) band = b;
    return band;
}

/// True if the lengths allow this mode (3 and 7 in TND).
bool allows_mode(const Call& c) {
    const Integer mode = c.g.sparse_mode;
    if (!c.packed || (mode != 3 && mode != 7)) return true;
    const std::size_t band = mode == 7 ? band_of(c) : c.lengths.size();
    for (std::size_t b = 0; b < c.lengths.size(); ++b)
        if (c.lengths[b].query > c.lengths[b].key && (b == band || c.lengths[b].key > 0))
            return false;
    return true;
}

/// Tokens at and near the limits of the mode, which are legal; where it has none, any.
void draw_tokens(Bytes& bytes, Call& c) {
    GradArgs& g = c.g;
    const std::uint8_t kind = bytes.byte();
    const Integer more = bytes.byte();
    const auto far = [&] { return kind & 8 ? kMost : more; };
    g.pre_tokens = far(), g.next_tokens = kind & 16 ? 0 : far();
    if (g.sparse_mode == 0 && kind % 4 == 1 && c.key_len > 0)
        g.next_tokens = -(more % c.key_len), g.pre_tokens = kind & 8 ? kMost : -g.next_tokens;
    if (g.sparse_mode == 0 && kind % 4 == 2 && c.query_len > 0)
        g.pre_tokens = -(more % c.query_len), g.next_tokens = kind & 8 ? kMost : -g.pre_tokens;
    if (g.sparse_mode == 0 && kind % 4 == 3) g.pre_tokens = c.query_len, g.next_tokens = 0;
    if (g.sparse_mode == 4 && kind % 4 == 1) g.next_tokens = -g.pre_tokens;
    if (g.sparse_mode == 4 && kind % 4 == 2) g.pre_tokens = -g.next_tokens;
    const std::size_t band = band_of(c);
    if (g.sparse_mode < 7 || band == c.lengths.size()) return;
    const Length own = c.lengths[band];
    g.pre_tokens = kind & 8 ? kMost : own.key + more % 2;
    if (g.sparse_mode == 7)
        g.next_tokens = -(more % (own.key - own.query + 1));
    else
        g.next_tokens = kind & 4 ? kMost : own.query - own.key + more % 2;
}

void draw_mask(Bytes& bytes, Call& c) {
    GradArgs& g = c.g;
    const std::uint8_t kind = bytes.byte(), form = bytes.byte();
    g.sparse_mode = kind % 9;
    if (!allows_mode(c)) g.sparse_mode = 2;
    if (c.packed ? g.sparse_mode == 5 : g.sparse_mode > 6) g.sparse_mode = 0;
    draw_tokens(bytes, c);
    g.atten_mask.dtype = form & 1 ? ATTNCHECK_BOOL : ATTNCHECK_UINT8;
    if (kind / 9 % 4 == 0) return;  // no mask
    g.atten_mask.data = &somewhere;
    const Integer batch = c.x[kB], heads = c.x[kN1], rows = c.query_len, columns = c.key_len;
    const std::vector<Integer> forms[] = {{batch, 1, rows, columns},
                                          {batch, heads, rows, columns},
                                          {1, 1, rows, columns},
                                          {rows, columns},
                                          {c.values[kQueryEnds].back(), c.values[kKeyEnds].back()}};
    if (g.sparse_mode == 6)
        set_shape(g.atten_mask, {3072, 2048});
    else if (g.sparse_mode > 1 && g.sparse_mode != 5)
        set_shape(g.atten_mask, {2048, 2048});
    else
        set_shape(g.atten_mask, forms[form / 2 % (g.sparse_mode == 5 ? 2 : 5)]);
    if (g.sparse_mode != 6 && (g.sparse_mode != 5 || form & 16)) return;
    give_array(c, kPrefix);
    for (Integer b = 0; b < batch; ++b) {
        const Length own = c.lengths[c.packed ? static_cast<std::size_t>(b) : 0];
        const Integer least = std::max<Integer>(0, own.key - own.query);
        c.values[kPrefix].push_back(least + (form + b) % (own.key - least + 1));
    }
}

/// Gives start indices that align the first sequence, as mode 8 asks for.
void align(Call& c, Integer query_start) {
    give_array(c, kQueryStart), give_array(c, kKeyStart);
    c.values[kQueryStart] = {query_start};
    c.values[kKeyStart] = {query_start + c.lengths[0].query - c.lengths[0].key};
}

/// Slopes: "[N1]" or "[B,N1]". False where no slopes are legal.
bool draw_slopes(Call& c, std::uint8_t kind) {
    GradArgs& g = c.g;
    const bool aligned_mode = g.atten_mask.data && g.sparse_mode == 8;
    bool later_square = true;
    for (std::size_t b = 1; b < c.lengths.size(); ++b)
        later_square &= c.lengths[b].query == c.lengths[b].key;
    if (aligned_mode ? !later_square : !c.square) return false;
    if (aligned_mode || kind & 64) align(c, kind / 8 - 16);
    g.pse_type = 2 + kind / 4 % 2;
    g.pse_shift.dtype = ATTNCHECK_FLOAT32;
    if (kind & 128)
        set_shape(g.pse_shift, {c.x[kN1]});
    else
        set_shape(g.pse_shift, {c.x[kB], c.x[kN1]});
    return true;
}

/// An external bias in one of its forms. False where this one is not legal.
bool draw_bias(Call& c, std::uint8_t kind) {
    GradArgs& g = c.g;
    const bool masked = g.atten_mask.data;
    if (masked && g.sparse_mode == 8 && !c.square) return false;
    g.pse_type = kind / 4 % 2;
    const Integer slices = kind & 8 ? c.x[kB] : 1, form = kind / 16 % 4;
    Integer pairs = 0;
    for (const Length& own : c.lengths) pairs += own.query * own.key;
    if (c.packed && form < 2)
        return set_shape(g.pse_shift, {c.x[kN1] * (form ? pairs : c.values[kKeyEnds].back())}),
               true;
    set_shape(g.pse_shift, {slices, c.x[kN1],
                            form == 3   ? 1024
                            : form == 2 ? 1
                                        : c.query_len,
                            c.key_len});
    if (form != 3) return c.equal;
    if (c.equal && c.query_len == 1024) return true;  // plain
    const bool causal = g.sparse_mode == 2 || g.sparse_mode == 3 ||
                        (g.sparse_mode == 0 && g.pre_tokens >= c.query_len && g.next_tokens == 0);
    return c.square && masked && causal && (c.packed || c.query_len > 1024);
}

void draw_pse(Bytes& bytes, Call& c) {
    GradArgs& g = c.g;
    const std::uint8_t kind = bytes.byte();
    g.pse_shift.dtype = g.attention_in.dtype;
    if (kind % 4 == 0 || (g.atten_mask.data && g.sparse_mode == 7)) return;
    if (kind % 4 == 1 ? draw_slopes(c, kind) : draw_bias(c, kind))
        g.pse_shift.data = &somewhere;
    else
        g.pse_type = 1;
}

void draw_drop_mask(Bytes& bytes, Call& c) {
    GradArgs& g = c.g;
    const std::uint8_t kind = bytes.byte();
    g.drop_mask.dtype = ATTNCHECK_UINT8;
    Integer bits = 0;
    for (const Length& own : c.lengths) bits += c.x[kN1] * own.query * own.key;
    if (!c.packed) bits *= c.x[kB];
    set_shape(g.drop_mask, {(bits + 7) / 8 + kind / 8 % 2});
    if (kind & 2) set_shape(g.drop_mask, {1, g.drop_mask.shape[0], 1});
    if (kind & 1) g.drop_mask.data = &somewhere, g.keep_prob = kind & 4 ? 1 : 0.5;
}

/// Ropes in place of position bias and drop mask.
void draw_ropes(Bytes& bytes, Call& c) {
    GradArgs& g = c.g;
    const std::uint8_t kind = bytes.byte();
    const bool possible = c.packed && g.query.dtype == ATTNCHECK_BFLOAT16 && c.x[kDr] >= 8 &&
                          g.atten_mask.data && g.sparse_mode != 6;
    if (!possible || kind % 2 == 0) return;
    for (Tensor* t : {&g.query_rope, &g.key_rope, &g.dq_rope, &g.dk_rope}) t->data = &somewhere;
    g.pse_shift.data = g.drop_mask.data = nullptr, g.pse_type = 1, g.keep_prob = 1;
}

/// Limits of the contract and their neighbours, or as in Bytes::value.
Integer draw_value(Bytes& bytes, Integer before) {
    constexpr Integer kMebi = 1 << 20;
    constexpr Integer kLimits[] = {
        0,     1,      2,         3,     4,         5,         6,
        7,     8,      9,         16,    255,       256,       257,
        512,   513,    1023,      1024,  1025,      2047,      2048,
        2049,  -1,     3072,      kMebi, kMebi + 1, 2 * kMebi, 2 * kMebi + 1,
        kMost, -kMost, -kMost - 1};
    const std::uint8_t kind = bytes.byte();
    return kind % 2 ? kLimits[kind / 2 % std::size(kLimits)] : bytes.value(before);
}

/// A whole shape out of the numbers that shapes are made of.
void redraw_shape(Bytes& bytes, const Call& c, Tensor& t) {
    const std::uint8_t rank = bytes.byte();
    const Integer parts[] = {1,
                             c.x[kB],
                             c.x[kN1],
                             c.x[kN2],
                             c.query_len,
                             c.key_len,
                             c.x[kQueryRows],
                             c.x[kKeyRows],
                             c.x[kD],
                             c.x[kDv],
                             c.x[kDr],
                             8,
                             1024,
                             2048,
                             3072,
                             0};
    t.rank = rank % 10;
    for (std::int32_t axis = 0; axis < std::min(t.rank, ATTNCHECK_MAX_RANK); ++axis)
        t.shape[axis] = parts[bytes.byte() % std::size(parts)];
    if (rank / 10 % 2) t.data = &somewhere;
}

void spoil(Bytes& bytes, Call& c) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kTiny = 1e-12;
    constexpr double kReals[] = {1,     0.5,   0,         -0.5,      1.5,   kNan,
                                 kTiny, 1e-50, 1 - kTiny, 1 + kTiny, 1e300, -1e300};
    GradArgs& g = c.g;
    const std::uint8_t what = bytes.byte(), which = bytes.byte();
    Integer* const attributes[] = {&g.sparse_mode, &g.pre_tokens, &g.next_tokens,
                                   &g.head_num,    &g.pse_type,   &g.inner_precise};
    Tensor& t = *tensors(g)[which % 18];
    const auto number = static_cast<Array>(which % kArrays);
    attncheck_int_array& array = *arrays(g)[number];
    std::vector<Integer>& values = c.values[number];
    const auto change = [&](auto& integer) {
        integer = static_cast<std::decay_t<decltype(integer)>>(draw_value(bytes, integer));
    };
    switch (what % 14) {
        case 0:
            change(*attributes[which % 6]);
            break;
        case 1:
            change(t.shape[which / 18 % 4]);
            break;
        case 2:
            if (values.empty()) values.push_back(0);
            change(values[which / kArrays % values.size()]);
            break;
        case 3:
            change(array.size);
            break;
        case 4:
            change(t.rank);
            break;
        case 5:
            change(t.dtype);
            break;
        case 6:
            g.input_layout = kLayouts[which % 9];
            break;
        case 7:
            g.softmax_in_layout = kSoftmaxLayouts[which % 4];
            break;
        case 8:
            t.data = t.data ? nullptr : &somewhere;
            break;
        case 9:
            array.values = array.values ? nullptr : &kNoValue;
            break;
        case 10:
            (which % 4 ? g.keep_prob : g.scale_value) = kReals[which / 4 % 12];
            break;
        case 11:
            change(c.x[which % kExtents]), set_shapes(c);
            break;
        case 12:
            redraw_shape(bytes, c, t);
            break;
        case 13:
            values.push_back(values.empty() ? 0 : values.back());
            array.size = static_cast<Integer>(values.size());
            break;
    }
}

/// A size that nothing backs may only be handed over when nobody has to read the values.
ref::ArrayArgument back_array(attncheck_int_array& array, std::vector<Integer>& values,
                              bool start) {
    constexpr Integer kMostSequences = 2 << 20, kMostBacked = 2100;
    if (!array.values) return {false, array.size, {}};
    if (!start && array.size >= 1 && array.size <= kMostSequences) {
        array.size = std::min(array.size, kMostBacked);
        values.resize(static_cast<std::size_t>(array.size), values.empty() ? 0 : values.back());
    }
    if (!start && array.size == 0) values.clear();
    if (start && values.empty()) values.push_back(0);  // only the first element counts
    array.values = values.empty() ? &kNoValue : values.data();
    return {true, array.size, values};
}

ref::TensorArgument argument(const Tensor& t) {
    const int entries = std::clamp(t.rank, 0, ATTNCHECK_MAX_RANK);
    return {t.data != nullptr, t.dtype, t.rank, {t.shape, t.shape + entries}};
}

attncheck_flash_attention_score_args forward_of(const GradArgs& g) {
    attncheck_flash_attention_score_args f{};
    f.query = g.query, f.query_rope = g.query_rope, f.key = g.key, f.key_rope = g.key_rope;
    f.value = g.value, f.real_shift = g.pse_shift, f.drop_mask = g.drop_mask;
    f.padding_mask = g.padding_mask, f.atten_mask = g.atten_mask, f.prefix = g.prefix;
    f.actual_seq_q_len = g.actual_seq_q_len, f.actual_seq_kv_len = g.actual_seq_kv_len;
    f.q_start_idx = g.q_start_idx, f.kv_start_idx = g.kv_start_idx;
    f.scale_value = g.scale_value, f.keep_prob = g.keep_prob, f.head_num = g.head_num;
    f.pre_tokens = g.pre_tokens, f.next_tokens = g.next_tokens, f.input_layout = g.input_layout;
    f.inner_precise = g.inner_precise, f.sparse_mode = g.sparse_mode, f.pse_type = g.pse_type;
    f.softmax_out_layout = g.softmax_in_layout;
    f.softmax_max = g.softmax_max, f.softmax_sum = g.softmax_sum, f.attention_out = g.attention_in;
    return f;
}

ref::FlashAttentionArguments arguments(Call& c) {
    GradArgs& g = c.g;
    ref::FlashAttentionArguments a;
    ref::TensorArgument* const own[] = {
        &a.query,     &a.key,        &a.value,    &a.dy,      &a.softmax_max, &a.softmax_sum,
        &a.attention, &a.dq,         &a.dk,       &a.dv,      &a.pse,         &a.atten_mask,
        &a.drop_mask, &a.query_rope, &a.key_rope, &a.dq_rope, &a.dk_rope,     &a.padding_mask};
    for (std::size_t i = 0; i < std::size(own); ++i) *own[i] = argument(*tensors(g)[i]);
    ref::ArrayArgument* const own_arrays[] = {&a.actual_seq_q_len, &a.actual_seq_kv_len, &a.prefix,
                                              &a.q_start_idx, &a.kv_start_idx};
    for (std::size_t i = 0; i < kArrays; ++i)
        *own_arrays[i] = back_array(*arrays(g)[i], c.values[i], i >= kQueryStart);
    a.scale_value = g.scale_value, a.keep_prob = g.keep_prob;
    a.pre_tokens = g.pre_tokens, a.next_tokens = g.next_tokens, a.head_num = g.head_num;
    if (g.input_layout) a.input_layout = g.input_layout;
    if (g.softmax_in_layout) a.softmax_layout = g.softmax_in_layout;
    a.inner_precise = g.inner_precise, a.sparse_mode = g.sparse_mode, a.pse_type = g.pse_type;
    a.ascend950 = c.ascend950;
    return a;
}

/// Also the form of the message: "<parameter> <what it is>; allowed: <range>".
void compare(const ref::Ruling& ruling, const std::optional<impl::Rejection>& found, bool legal) {
    const impl::Rejection other = found.value_or(impl::Rejection{0, "", "accepted"});
    const bool well_formed = !found || (other.message.rfind(ruling.parameter + ' ', 0) == 0 &&
                                        other.message.find("; allowed: ") != std::string::npos);
    if (other.status == ruling.status && other.parameter == ruling.parameter && well_formed &&
        (ruling.accepted() ? !ruling.either_status : !legal))
        return;
    std::fprintf(stderr, "ref:  %d %s\nimpl: %d %s\n%s", ruling.status, ruling.message.c_str(),
                 other.status, other.message.c_str(), legal ? "drawn legal\n" : "");
    __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Bytes bytes{data, data + size};
    Call c;
    draw_plain(bytes, c);
    draw_mask(bytes, c);
    draw_pse(bytes, c);
    draw_drop_mask(bytes, c);
    draw_ropes(bytes, c);
    for (std::size_t i = 0; i < kArrays; ++i)
        arrays(c.g)[i]->size = static_cast<Integer>(c.values[i].size());
    int spoiled = 0;
    for (; spoiled < 6 && bytes.next != bytes.end; ++spoiled) spoil(bytes, c);
    const ref::FlashAttentionArguments a = arguments(c);
    setenv("ATTNCHECK_PROFILE", c.ascend950 ? "ascend950" : "ascend910b", 1);
    if (c.gradient) {
        compare(ref::rule_flash_attention_score_grad(a),
                impl::validate_flash_attention_score_grad(&c.g), spoiled == 0);
    } else {
        const attncheck_flash_attention_score_args f = forward_of(c.g);
        compare(ref::rule_flash_attention_score(a), impl::validate_flash_attention_score(&f),
                spoiled == 0);
    }
    return 0;
}
