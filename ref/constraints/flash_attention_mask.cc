// The documented constraints of flash attention on what holds an element per pair of query and key:
// position bias, drop mask, attention mask, and the sparse mode with its tokens and prefixes.
// Sources and legend as in flash_attention.cc.
#include <limits>
#include <optional>

#include "ref/constraints/flash_attention_examination.h"

namespace attncheck::ref::flash {
namespace {

/// Masks of modes whose predicate decides, and the rows of a compressed position bias.
constexpr std::int64_t kCompressedMask = 2048, kPrefixMaskRows = 3072, kCompressedPse = 1024;
constexpr std::int64_t kMaxPrefixes = 2048;

/// Modes whose mask has a fixed shape and is not read: the predicate decides.
bool is_predicate_mode(std::int64_t mode) { return mode != 0 && mode != 1 && mode != 5; }

/// Nothing when it leaves int64. No factor is negative.
std::optional<std::int64_t> product(const Shape& factors) {
    if (std::find(factors.begin(), factors.end(), 0) != factors.end()) return 0;
    std::int64_t result = 1;
    for (const std::int64_t factor : factors) {
        if (factor > std::numeric_limits<std::int64_t>::max() / result) return std::nullopt;
        result *= factor;
    }
    return result;
}

bool is_one_of(const Shape& shape, const std::vector<Shape>& allowed) {
    return std::find(allowed.begin(), allowed.end(), shape) != allowed.end();
}

std::string show_each(const std::vector<Shape>& shapes) {
    std::string text;
    for (const Shape& shape : shapes) text += (text.empty() ? "" : ", ") + show(shape);
    return text;
}

}  // namespace

void FlashExamination::examine_pse() {
    if (!accepted()) return;
    if (a.pse_type != 1)
        present(a.pse.present, pse_name, "a tensor, as pse_type is " + std::to_string(a.pse_type));
    if (!a.pse.present) return;
    if (is_slopes())
        dtype(a.pse, pse_name, {Dtype::fp32});
    else if (is_fp8(a.query))
        same_dtype(a.pse, pse_name, a.attention, attention_name);
    else
        same_dtype(a.pse, pse_name, a.query, "query");
    if (!accepted()) return;
    const char* const forms =
        is_slopes() ? "[N1], [B,N1]"
        : packed()  ? "[N1*sum S2], [N1*sum S1*S2], with S1 == S2 per sequence compressed "
                      "[1|B,N1,1024,max S2], with equal lengths [1|B,N1,1|S1,S2]"
                    : "[1|B,N1,1|S1,S2], with S1 == S2 > 1024 compressed [1|B,N1,1024,S2]";
    rule(take_pse(), kInvalid, pse_name, "has shape " + show(a.pse.shape),
         std::string(forms) + " with B = " + std::to_string(x.batch) +
             ", N1 = " + std::to_string(x.num_query_heads) +
             ", S1 = " + std::to_string(x.query_len) + ", S2 = " + std::to_string(x.kv_len));
}

/// Sets compressed_pse. False for a shape that is no form of the position bias.
bool FlashExamination::take_pse() {
    const std::int64_t heads = x.num_query_heads;
    if (is_slopes()) return is_one_of(a.pse.shape, {{heads}, {x.batch, heads}});
    if (packed() && a.pse.rank == 1)
        return is_one_of(a.pse.shape, {{heads * x.sum_kv}, {heads * x.sum_pairs}});
    return take_dense_pse();
}

/// Rank 4. A shape that is plain is not compressed.
bool FlashExamination::take_dense_pse() {
    const Shape& s = a.pse.shape;
    if (a.pse.rank != 4 || (s[0] != 1 && s[0] != x.batch) || s[1] != x.num_query_heads ||
        s[3] != x.kv_len)
        return false;
    if (x.equal_lengths && (s[2] == x.query_len || s[2] == 1)) return true;
    compressed_pse =
        s[2] == kCompressedPse && x.square && (packed() || x.query_len > kCompressedPse);
    return compressed_pse;
}

void FlashExamination::examine_drop_mask() {
    if (!accepted()) return;
    const TensorArgument& mask = a.drop_mask;
    if (narrowed_keep_prob(a.keep_prob) < 1)
        present(mask.present, "drop_mask", "a tensor, as keep_prob is " + show(a.keep_prob));
    if (!mask.present) return;
    dtype(mask, "drop_mask", {Dtype::uint8});
    rule(mask.rank >= 1 && mask.rank <= 8, kInvalid, "drop_mask",
         "has rank " + std::to_string(mask.rank), "rank 1..8");
    rule(std::all_of(mask.shape.begin(), mask.shape.end(), [](auto extent) { return extent >= 0; }),
         kInvalid, "drop_mask", "has shape " + show(mask.shape), "extents >= 0");
    if (!accepted()) return;
    const auto elements = product(mask.shape);
    const auto bits = packed() ? product({x.num_query_heads, x.sum_pairs})
                               : product({x.batch, x.num_query_heads, x.query_len, x.kv_len});
    const auto bytes = bits.value_or(0) / 8 + (bits.value_or(0) % 8 != 0);
    rule(elements && bits && *elements >= bytes, kInvalid, "drop_mask",
         "has shape " + show(mask.shape),
         bits ? "at least " + std::to_string(bytes) + " elements, a number inside int64"
              : "no drop_mask for more bits than int64 can number");
}

/// Of the modes that read the mask; TND: the largest lengths, or all rows and columns.
std::vector<Shape> FlashExamination::mask_shapes() const {
    const std::int64_t batch = x.batch, heads = x.num_query_heads, rows = x.query_len,
                       columns = x.kv_len;
    if (a.sparse_mode == 6) return {{kPrefixMaskRows, kCompressedMask}};
    if (is_predicate_mode(a.sparse_mode)) return {{kCompressedMask, kCompressedMask}};
    std::vector<Shape> shapes{{batch, 1, rows, columns}, {batch, heads, rows, columns}};
    if (a.sparse_mode != 5) shapes.push_back({1, 1, rows, columns});
    if (a.sparse_mode != 5 || batch == 1) shapes.push_back({rows, columns});
    if (packed()) shapes.push_back({x.sum_query, x.sum_kv});
    return shapes;
}

void FlashExamination::examine_mask() {
    if (!accepted() || !a.atten_mask.present) return;
    dtype(a.atten_mask, "atten_mask", {Dtype::boolean, Dtype::uint8});
    const std::vector<Shape> allowed = mask_shapes();
    circumstance = packed() ? "TND, sparse_mode " : "sparse_mode ";
    circumstance += std::to_string(a.sparse_mode);
    rule(is_one_of(a.atten_mask.shape, allowed), kInvalid, "atten_mask",
         "has shape " + show(a.atten_mask.shape),
         show_each(allowed) + " in sparse_mode " + std::to_string(a.sparse_mode),
         side_of(a.atten_mask.shape, allowed));
    circumstance.clear();
}

/// Without a mask no mode has an effect, and nothing that goes with it is checked.
void FlashExamination::examine_sparse_mode() {
    if (!accepted() || !a.atten_mask.present) return;
    const std::int64_t pre = a.pre_tokens, next = a.next_tokens;
    circumstance = packed() ? "TND, sparse_mode " : "sparse_mode ";
    circumstance += std::to_string(a.sparse_mode);
    switch (a.sparse_mode) {
        case 0:
            examine_top_left_band();
            break;
        case 3:
            if (packed()) examine_long_queries(x.sequences.size());
            break;
        case 4: {
            // Of different signs, the two cannot overflow.
            const bool meets =
                (pre >= 0 && next >= 0) || ((pre >= 0 || next >= 0) && pre + next >= 0);
            tokens(meets, "pre_tokens + next_tokens >= 0");
            break;
        }
        case 5:
            if (a.prefix.present) examine_prefix();
            break;
        case 6:
            present(a.prefix.present, "prefix", "one value per batch, as sparse_mode is 6");
            examine_prefix();
            break;
        case 7:
            examine_last_band();
            break;
        case 8:
            examine_first_band();
            break;
        default:
            break;
    }
    circumstance.clear();
}

/// A rule on both tokens, of which pre_tokens is named.
void FlashExamination::tokens(bool holds, const std::string& allowed, const std::string& side) {
    rule(
        holds, kInvalid, "pre_tokens",
        "is " + std::to_string(a.pre_tokens) + " with next_tokens " + std::to_string(a.next_tokens),
        allowed + " in sparse_mode " + std::to_string(a.sparse_mode), side);
}

/// The one of the two tokens that leaves pre >= S2 and next in least..most.
std::string FlashExamination::side_of_band(std::int64_t kv_len, std::int64_t least,
                                           std::int64_t most) const {
    const bool next_holds = a.next_tokens >= least && a.next_tokens <= most;
    if (next_holds) return "pre_tokens";
    const std::string next = "next_tokens " + side_of(a.next_tokens, least, most);
    return a.pre_tokens >= kv_len ? next : "pre_tokens, " + next;
}

/// A token that is negative must leave the band inside the matrix. Once it is known to be larger
/// than minus an extent, its negation cannot overflow.
void FlashExamination::examine_top_left_band() {
    const std::int64_t pre = a.pre_tokens, next = a.next_tokens;
    if (next < 0)
        tokens(next > -x.kv_len && pre >= -next,
               "next_tokens >= 0, or pre_tokens >= -next_tokens and -next_tokens < S2 = " +
                   std::to_string(x.kv_len),
               next > -x.kv_len ? "the other token" : "beyond the matrix");
    if (pre < 0)
        tokens(pre > -x.query_len && next >= -pre,
               "pre_tokens >= 0, or next_tokens >= -pre_tokens and -pre_tokens < S1 = " +
                   std::to_string(x.query_len),
               pre > -x.query_len ? "the other token" : "beyond the matrix");
}

void FlashExamination::examine_prefix() {
    array_size(a.prefix.size == x.batch && x.batch <= kMaxPrefixes, a.prefix, "prefix",
               "size B = " + std::to_string(x.batch) + ", at most " + std::to_string(kMaxPrefixes));
    require_backed(a.prefix, "prefix");
    for (std::size_t b = 0; b < a.prefix.values.size() && accepted(); ++b) {
        const Sequence s = sequence(b);
        const std::int64_t smallest = std::max<std::int64_t>(0, s.kv_len - s.query_len);
        const std::int64_t value = a.prefix.values[b];
        place = place_of(b, a.prefix.values.size());
        rule(value >= smallest && value <= s.kv_len, kInvalid, "prefix",
             "has value " + std::to_string(value) + " at index " + std::to_string(b),
             show_range(smallest, s.kv_len), side_of(value, smallest, s.kv_len));
    }
    place.clear();
}

/// Right-down causal in TND: no sequence but the exempt one may have queries before its first key.
void FlashExamination::examine_long_queries(std::size_t exempt) {
    for (std::size_t b = 0; b < x.sequences.size() && accepted(); ++b) {
        const Sequence& s = x.sequences[b];
        if (b == exempt || s.kv_len == 0 || s.query_len <= s.kv_len) continue;
        place = place_of(b, x.sequences.size());
        number(false, "sparse_mode", a.sparse_mode,
               "one that allows S1 = " + std::to_string(s.query_len) +
                   " > S2 = " + std::to_string(s.kv_len) + " of sequence " + std::to_string(b),
               x.sum_query > x.sum_kv ? "in total too" : "not in total");
    }
    place.clear();
}

/// Mode 7: the last sequence with queries is a band; nothing to check when there is none.
void FlashExamination::examine_last_band() {
    std::size_t after = x.sequences.size();
    while (after > 0 && x.sequences[after - 1].query_len == 0) --after;
    if (after == 0) return;
    examine_long_queries(after - 1);
    const Sequence& s = x.sequences[after - 1];
    const std::int64_t least = s.query_len - s.kv_len;
    tokens(a.pre_tokens >= s.kv_len && a.next_tokens >= least && a.next_tokens <= 0,
           "pre_tokens >= S2 = " + std::to_string(s.kv_len) + " and next_tokens in " +
               show_range(least, 0) + " for sequence " + std::to_string(after - 1),
           side_of_band(s.kv_len, least, 0));
}

/// Mode 8: the first sequence with queries is a band; nothing to check when there is none.
void FlashExamination::examine_first_band() {
    std::size_t b = 0;
    while (b < x.sequences.size() && x.sequences[b].query_len == 0) ++b;
    if (b == x.sequences.size()) return;
    const Sequence& s = x.sequences[b];
    const std::int64_t least = s.query_len - s.kv_len;
    tokens(a.pre_tokens >= s.kv_len && a.next_tokens >= least,
           "pre_tokens >= S2 = " + std::to_string(s.kv_len) + " and next_tokens >= " +
               std::to_string(least) + " for sequence " + std::to_string(b),
           side_of_band(s.kv_len, least, std::numeric_limits<std::int64_t>::max()));
}

/// The start indices count for slopes only, and only when both are given and not empty; 0
/// otherwise.
Starts FlashExamination::take_starts() {
    const ArrayArgument &query = a.q_start_idx, &key = a.kv_start_idx;
    if (!is_slopes() || !query.present || !key.present) return {};
    array_size(query.size >= 0, query, "q_start_idx", "size >= 0");
    array_size(key.size >= 0, key, "kv_start_idx", "size >= 0");
    if (!accepted() || query.size == 0 || key.size == 0) return {};
    return {query.values.at(0), key.values.at(0)};
}

/// S1 - S2 + q_start_idx - kv_start_idx == 0 in sequence 0.
bool FlashExamination::is_aligned_at_first(const Starts& start) const {
    const Sequence first = x.sequences.front();
    std::int64_t expected = 0;  // beyond int64 no key start equals it
    return !__builtin_add_overflow(start.query, first.query_len - first.kv_len, &expected) &&
           expected == start.key;
}

/// That, and S1 == S2 in the others.
bool FlashExamination::is_aligned(const Starts& start) const {
    return is_aligned_at_first(start) &&
           std::all_of(x.sequences.begin() + 1, x.sequences.end(),
                       [](const Sequence& s) { return s.query_len == s.kv_len; });
}

void FlashExamination::examine_pse_against_mode() {
    if (!accepted() || !a.pse.present) return;
    const bool masked = a.atten_mask.present;
    const std::int64_t mode = a.sparse_mode;
    const Starts start = take_starts();
    const std::string given = given_with("sparse_mode " + std::to_string(mode));
    if (masked && mode == 7)
        rule(false, kInvalid, pse_name, given, "no position bias in sparse_mode 7");
    else if (masked && mode == 8)
        rule(is_aligned(start), kInvalid, pse_name, given,
             "S1 - S2 + q_start_idx - kv_start_idx == 0 in sequence 0, S1 == S2 in the others",
             is_aligned_at_first(start) ? "another sequence" : "sequence 0");
    else if (is_slopes())
        rule(x.square, kInvalid, pse_name,
             given_with("pse_type " + std::to_string(a.pse_type) + " for different lengths"),
             "S1 == S2 in every sequence",
             packed() && x.sum_query == x.sum_kv ? "not in total" : "in total too");
    const bool causal =
        mode == 2 || mode == 3 || (mode == 0 && a.pre_tokens >= x.query_len && a.next_tokens == 0);
    rule(!compressed_pse || (masked && causal), kInvalid, pse_name,
         "is compressed in sparse_mode " + std::to_string(mode) + (masked ? "" : " without a mask"),
         "a mask and sparse_mode 2, 3, or 0 with pre_tokens >= S1 and next_tokens == 0",
         !masked                         ? "no mask"
         : mode != 0                     ? "another sparse_mode"
         : a.pre_tokens >= x.query_len   ? "next_tokens"
         : a.next_tokens == 0            ? "pre_tokens"
                                         : "both tokens");
}

}  // namespace attncheck::ref::flash
