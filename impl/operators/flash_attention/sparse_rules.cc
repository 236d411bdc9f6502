#include "impl/operators/flash_attention/sparse_rules.h"

#include <algorithm>
#include <string>

#include "impl/arguments/argument_checks.h"

namespace attncheck::impl {
namespace {

// left + right >= 0 for any two int64: the sum of numbers of different sign never overflows.
bool sum_is_non_negative(std::int64_t left, std::int64_t right) {
    if (left >= 0 && right >= 0) return true;
    if (left < 0 && right < 0) return false;
    return left + right >= 0;
}

std::string tokens_text(const FlashCall& call) {
    return std::to_string(call.pre_tokens) + " with next_tokens " +
           std::to_string(call.next_tokens);
}

// Top-left band. A negative bound must leave the band inside the matrix and not empty.
MaybeRejection check_default_band(const FlashCall& call, const FlashLengths& lengths) {
    const std::int64_t pre = call.pre_tokens, next = call.next_tokens;
    if (!sum_is_non_negative(pre, next))
        return invalid("pre_tokens", tokens_text(call), "pre_tokens + next_tokens >= 0");
    if (next < 0 && next <= -lengths.max_key_len) {
        return invalid("pre_tokens", tokens_text(call),
                       "-next_tokens < S2, which is " + std::to_string(lengths.max_key_len));
    }
    if (pre < 0 && pre <= -lengths.max_query_len) {
        return invalid("pre_tokens", tokens_text(call),
                       "-pre_tokens < S1, which is " + std::to_string(lengths.max_query_len));
    }
    return std::nullopt;
}

// Bottom-right causal visibility of packed sequences: more queries than keys is illegal, no keys
// at all is not.
MaybeRejection check_causal_lengths(const FlashCall& call, const FlashExtents& extents,
                                    std::int64_t excepted) {
    if (!extents.is_packed()) return std::nullopt;
    for (std::int64_t b = 0; b < extents.batch; ++b) {
        const FlashSequence s = flash_sequence(call, extents, b);
        if (b == excepted || s.query_len <= s.key_len || s.key_len == 0) continue;
        return invalid("sparse_mode", std::to_string(call.sparse_mode),
                       "this mode with S1 <= S2, sequence " + std::to_string(b) + " has " +
                           std::to_string(s.query_len) + " queries and " +
                           std::to_string(s.key_len) + " keys");
    }
    return std::nullopt;
}

MaybeRejection check_prefix(const FlashCall& call, const FlashExtents& extents) {
    const char* const name = "prefix";
    const attncheck_int_array& prefix = *call.prefix;
    if (prefix.values == nullptr) {
        if (call.sparse_mode == 6) return absent(name);
        return std::nullopt;
    }
    if (prefix.size != extents.batch || prefix.size > kMaxFlashPrefixBatch) {
        return invalid(name, "of size " + std::to_string(prefix.size),
                       "B, which is " + std::to_string(extents.batch) + ", and at most 2048");
    }
    for (std::int64_t b = 0; b < prefix.size; ++b) {
        const FlashSequence s = flash_sequence(call, extents, b);
        const std::int64_t low = std::max<std::int64_t>(0, s.key_len - s.query_len);
        if (prefix.values[b] >= low && prefix.values[b] <= s.key_len) continue;
        return invalid(name, element_text(prefix.values[b], b),
                       std::string("[") + std::to_string(low) + ", " + std::to_string(s.key_len) + "]");
    }
    return std::nullopt;
}

// Modes 7 and 8: the tokens belong to one sequence, `entry`.
MaybeRejection check_split_band(const FlashCall& call, const FlashExtents& extents,
                                std::int64_t entry) {
    if (entry < 0) return std::nullopt;
    const FlashSequence s = flash_sequence(call, extents, entry);
    const bool next_fits = call.next_tokens >= s.query_len - s.key_len &&
                           (call.sparse_mode == 8 || call.next_tokens <= 0);
    if (call.pre_tokens >= s.key_len && next_fits) return std::nullopt;
    return invalid("pre_tokens", tokens_text(call),
                   "pre_tokens >= S2 and next_tokens >= S1 - S2, in mode 7 also next_tokens <= 0, "
                   "of sequence " +
                       std::to_string(entry) + " with S1 = " + std::to_string(s.query_len) +
                       " and S2 = " + std::to_string(s.key_len));
}

MaybeRejection check_mode(const FlashCall& call, const FlashExtents& extents,
                          const FlashLengths& lengths) {
    const std::int64_t entry = band_entry(call, extents);
    switch (call.sparse_mode) {
        case 0:
            return check_default_band(call, lengths);
        case 3:
            return check_causal_lengths(call, extents, -1);
        case 4:
            if (sum_is_non_negative(call.pre_tokens, call.next_tokens)) return std::nullopt;
            return invalid("pre_tokens", tokens_text(call), "pre_tokens + next_tokens >= 0");
        case 5:
        case 6:
            return check_prefix(call, extents);
        case 7:
            if (entry < 0) return std::nullopt;
            if (auto rejection = check_causal_lengths(call, extents, entry)) return rejection;
            return check_split_band(call, extents, entry);
        case 8:
            return check_split_band(call, extents, entry);
        default:
            return std::nullopt;
    }
}

// Mode 8: the first sequence and the start positions must put the bias on the diagonal.
bool is_aligned(const FlashCall& call, const FlashExtents& extents) {
    const FlashSequence first = flash_sequence(call, extents, 0);
    if (first.query_len - first.key_len != call.start_distance()) return false;
    for (std::int64_t b = 1; b < extents.batch; ++b) {
        const FlashSequence s = flash_sequence(call, extents, b);
        if (s.query_len != s.key_len) return false;
    }
    return true;
}

bool is_plain_causal(const FlashCall& call, const FlashLengths& lengths) {
    if (!call.has_mask()) return false;
    if (call.sparse_mode == 2 || call.sparse_mode == 3) return true;
    return call.sparse_mode == 0 && call.pre_tokens >= lengths.max_query_len &&
           call.next_tokens == 0;
}

MaybeRejection check_bias_rules(const FlashCall& call, const FlashExtents& extents,
                                const FlashLengths& lengths) {
    if (!call.has_bias()) return std::nullopt;
    const bool has_slopes = call.bias_type >= 2;
    if (has_slopes && call.query_start->values != nullptr && call.key_start->values != nullptr) {
        for (const auto& [name, array] : {std::pair{"q_start_idx", call.query_start},
                                          std::pair{"kv_start_idx", call.key_start}}) {
            if (array->size < 0)
                return invalid(name, "of size " + std::to_string(array->size), "size >= 0");
        }
    }
    const std::int64_t mode = call.has_mask() ? call.sparse_mode : 1;
    if (mode == 7) return invalid(call.bias_name, "given in sparse_mode 7", "absent");
    if (mode == 8) {
        if (!is_aligned(call, extents)) {
            return invalid(call.bias_name, "given in sparse_mode 8",
                           "S1 - S2 + qStart - kvStart == 0 in the first sequence, S1 == S2 in "
                           "the others");
        }
    } else if (has_slopes && !lengths.square) {
        return invalid(call.bias_name, "given with pse_type " + std::to_string(call.bias_type),
                       "S1 == S2 in every sequence");
    }
    if (bias_form(call, extents, lengths) != BiasForm::kCompressed) return std::nullopt;
    if (is_plain_causal(call, lengths)) return std::nullopt;
    return invalid(call.bias_name, "compressed to 1024 rows",
                   "that with a mask and sparse_mode 2, 3, or 0 with pre_tokens >= S1 and "
                   "next_tokens 0");
}

}  // namespace

MaybeRejection check_sparse_rules(const FlashCall& call, const FlashExtents& extents,
                                  const FlashLengths& lengths) {
    if (call.has_mask()) {
        if (auto rejection = check_mode(call, extents, lengths)) return rejection;
    }
    return check_bias_rules(call, extents, lengths);
}

}  // namespace attncheck::impl
