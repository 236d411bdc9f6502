#include "fuzz/flash_attention_parts.h"

#include <algorithm>
#include <limits>

#include "fuzz/fuzzed_call.h"

namespace attncheck::fuzz {
namespace {

using Integer = std::int64_t;
using Tensor = attncheck_tensor;
using Call = FlashParts;
using Length = FlashLengths;
using Extent = FlashExtent;
using GradArgs = attncheck_flash_attention_score_grad_args;

constexpr Integer kMost = std::numeric_limits<Integer>::max();
/// The legal names, at the places that draw_layout gives them.
constexpr const char* kLayouts[] = {"TND", "BNSD", "BSND", "SBH", "BSH"};
constexpr std::uint8_t kSameAsInput = 14, kEmptyLayout = 5;

void give_array(Call& c, FlashArray which) { arrays_of(c.g)[which]->values = &kNoValue; }

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

}  // namespace

std::array<attncheck_int_array*, kArrays> arrays_of(GradArgs& g) {
    return {&g.actual_seq_q_len, &g.actual_seq_kv_len, &g.prefix, &g.q_start_idx, &g.kv_start_idx};
}

std::array<Tensor*, 18> tensors_of(GradArgs& g) {
    return {&g.query,       &g.key,          &g.value,       &g.dy,         &g.softmax_max,
            &g.softmax_sum, &g.attention_in, &g.dq,          &g.dk,         &g.dv,
            &g.pse_shift,   &g.atten_mask,   &g.drop_mask,   &g.query_rope, &g.key_rope,
            &g.dq_rope,     &g.dk_rope,      &g.padding_mask};
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

namespace {

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
    const std::array all = tensors_of(g);
    for (std::size_t i = 0; i < all.size(); ++i) {
        all[i]->dtype = i < 4 && fp8 ? kTypes[3 + types / 8 % 2] : type;
        if (i < 10) all[i]->data = no_memory();
    }
    g.softmax_max.dtype = g.softmax_sum.dtype = ATTNCHECK_FLOAT32;
    g.input_layout = draw_layout(0, kind / 4 % 5);
    g.softmax_in_layout = draw_layout(1, c.packed && types & 16 ? kSameAsInput : kEmptyLayout);
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
    g.atten_mask.data = no_memory();
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
        g.pse_shift.data = no_memory();
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
    if (kind & 1) g.drop_mask.data = no_memory(), g.keep_prob = kind & 4 ? 1 : 0.5;
}

/// Ropes in place of position bias and drop mask.
void draw_ropes(Bytes& bytes, Call& c) {
    GradArgs& g = c.g;
    const std::uint8_t kind = bytes.byte();
    const bool possible = c.packed && g.query.dtype == ATTNCHECK_BFLOAT16 && c.x[kDr] >= 8 &&
                          g.atten_mask.data && g.sparse_mode != 6;
    if (!possible || kind % 2 == 0) return;
    for (Tensor* t : {&g.query_rope, &g.key_rope, &g.dq_rope, &g.dk_rope}) t->data = no_memory();
    g.pse_shift.data = g.drop_mask.data = nullptr, g.pse_type = 1, g.keep_prob = 1;
}

}  // namespace

FlashParts draw_flash_attention(Bytes head) {
    FlashParts parts;
    draw_plain(head, parts);
    draw_mask(head, parts);
    draw_pse(head, parts);
    draw_drop_mask(head, parts);
    draw_ropes(head, parts);
    for (std::size_t i = 0; i < kArrays; ++i)
        arrays_of(parts.g)[i]->size = std::ssize(parts.values[i]);
    return parts;
}

}  // namespace attncheck::fuzz
