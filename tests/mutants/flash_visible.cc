#include "flash_visible.h"

#include <algorithm>
#include <limits>

namespace attncheck::mutants {

namespace {

constexpr std::int64_t kTile = 64, kCompressedMask = 2048;

/// a + b, or the nearest number that there is.
std::int64_t saturated_sum(std::int64_t a, std::int64_t b) {
    std::int64_t sum = 0;
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return b > 0 ? std::numeric_limits<std::int64_t>::max()
                 : std::numeric_limits<std::int64_t>::min();
}

std::int64_t negated(std::int64_t a) {
    return a == std::numeric_limits<std::int64_t>::min() ? std::numeric_limits<std::int64_t>::max()
                                                         : -a;
}

/// A defect: the sum as hardware has it.
std::int64_t wrapped_sum(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

}  // namespace

FlashVisibility::FlashVisibility(const FlashProblem& problem, const FlashPlan& plan)
    : problem_(problem),
      plan_(plan),
      visible_(static_cast<std::size_t>(std::max<std::int64_t>(plan.longest_kv, 0))) {}

std::int64_t FlashVisibility::prefix(std::int64_t b) const {
    if (problem_.prefix.empty()) return 0;
    const std::size_t entry = has<"FA-x01", "FAG-x01">() ? 0 : static_cast<std::size_t>(b);
    return problem_.prefix[entry] + (has<"FA-x02", "FAG-x02">() ? 1 : 0);
}

/// [i + shift - pre, i + shift + next]
FlashVisibility::Band FlashVisibility::token_band(std::int64_t b, std::int64_t i,
                                                  std::int64_t shift) const {
    const FlashSequence& sequence = plan_.sequences[static_cast<std::size_t>(b)];
    const std::int64_t delta = sequence.kv_len - sequence.query_len;
    std::int64_t pre = plan_.pre_tokens, next = plan_.next_tokens;
    if (has<"FA-x03", "FAG-x03">()) pre = std::max<std::int64_t>(pre, 0);
    if (has<"FA-x04", "FAG-x04">()) next = std::max<std::int64_t>(next, 0);
    if (has<"FA-x05", "FAG-x05">()) std::swap(pre, next);
    if (has<"FA-08", "FAG-x06">() && shift != 0) {
        pre = wrapped_sum(pre, -delta);
        next = wrapped_sum(next, delta);
        shift = 0;
    }
    if (has<"FA-x06", "FAG-x07">()) {
        pre = static_cast<std::int32_t>(pre);
        next = static_cast<std::int32_t>(next);
    }
    Band band{saturated_sum(i + shift, negated(pre)), saturated_sum(i + shift, next)};
    if (has<"FA-05", "FAG-x08">()) band.first = saturated_sum(band.first, 1);
    if (has<"FA-x07", "FAG-x09">()) band.last = saturated_sum(band.last, -1);
    return band;
}

FlashVisibility::Band FlashVisibility::band(std::int64_t b, std::int64_t i) const {
    constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    const FlashSequence& sequence = plan_.sequences[static_cast<std::size_t>(b)];
    const std::int64_t delta = sequence.kv_len - sequence.query_len;
    const std::int64_t from_right = has<"FA-x08", "FAG-03">() ? 0 : delta;
    const std::int64_t from_left = has<"FA-x09", "FAG-x10">() ? delta : 0;
    const Band left_causal{kLeast, i + from_left}, right_causal{kLeast, i + from_right};
    const bool is_band_sequence = b == plan_.band_sequence;
    switch (plan_.sparse_mode) {
        case 0:
            return has<"FA-x10", "FAG-x11">() ? Band{kLeast, kMost} : token_band(b, i, 0);
        case 1:
            return has<"FA-x11", "FAG-x12">() ? token_band(b, i, 0) : Band{kLeast, kMost};
        case 2:
            return left_causal;
        case 3:
        case 6:
            return right_causal;
        case 4:
            return token_band(b, i, from_right);
        case 7:
            if (!is_band_sequence || has<"FA-x12", "FAG-x13">()) return right_causal;
            return {kLeast, token_band(b, i, from_right).last};
        case 8:
            if (!is_band_sequence) return has<"FA-x13", "FAG-x14">() ? right_causal : left_causal;
            return {kLeast, token_band(b, i, has<"FA-x14", "FAG-x15">() ? 0 : delta).last};
        default:
            return {kLeast, kMost};
    }
}

/// Defects at the last visible key of modes that are decided by position.
void FlashVisibility::distort(Band& band, const FlashSequence& sequence, std::int64_t i) const {
    if (!problem_.has_mask || reads_contents()) return;
    const bool is_tile_corner =
        i % kTile == 0 && band.last >= 0 && band.last < sequence.kv_len && band.last % kTile == 62;
    if (on_side<"FA-04", "FAG-x16">(problem_.is_gradient) && is_tile_corner) ++band.last;
    if (has<"FA-x308", "FAG-x305">() && i >= 1024) ++band.last;
    if (has<"FA-x15", "FAG-x17">()) band.last = saturated_sum(band.last, -1);
    if (has<"FA-x16", "FAG-x18">() && band.last >= 0) band.last |= kTile - 1;
}

bool FlashVisibility::reads_contents() const {
    const std::int64_t mode = plan_.sparse_mode;
    if (has<"FA-x17", "FAG-x19">()) return mode == 1 || mode == 5;
    return mode == 0 || mode == 1 || mode == 5;
}

std::int64_t FlashVisibility::mask_offset(std::int64_t b, std::int64_t head, std::int64_t i,
                                          std::int64_t j) const {
    const FlashSequence& sequence = plan_.sequences[static_cast<std::size_t>(b)];
    const Grid& mask = problem_.mask;
    const std::int64_t columns = mask.shape[3];
    if (problem_.mask_is_total && !has<"FA-x18", "FAG-x20">())
        return mask.offset(0, 0, sequence.first_query + i, sequence.first_key + j);
    if (has<"FA-13", "FAG-x21">()) b = 0;
    if (has<"FA-x19", "FAG-x22">()) head = 0;
    const std::int64_t first = (mask.shape[0] == 1 ? 0 : b) * mask.shape[1];
    const std::int64_t row = (first + (mask.shape[1] == 1 ? 0 : head)) * mask.shape[2] + i;
    if (has<"FA-15", "FAG-x23">())
        return offset_of(mask.tensor, row * ((columns + 31) / 32 * 32) + j);
    if (has<"FA-x20", "FAG-x24">()) return offset_of(mask.tensor, row * sequence.kv_len + j);
    if (has<"FA-x21", "FAG-x25">()) {  // [B,1,..] taken for [B,N,..]
        const std::int64_t entry = b * problem_.num_query_heads + head;
        return offset_of(mask.tensor, (entry * mask.shape[2] + i) * columns + j);
    }
    if (has<"FA-x22", "FAG-x26">())
        return mask.offset(b, head, std::min(j, mask.shape[2] - 1), std::min(i, columns - 1));
    if (has<"FA-x23", "FAG-x27">()) return row * columns + j;
    return mask.offset(b, head, i, j);
}

bool FlashVisibility::is_hidden_by_contents(std::int64_t b, std::int64_t head, std::int64_t i,
                                            std::int64_t j) const {
    const std::uint8_t byte = problem_.mask.byte(mask_offset(b, head, i, j));
    if (has<"FA-x24", "FAG-x28">()) return byte == 1;
    if (has<"FA-x25", "FAG-x29">()) return byte == 0;
    return byte != 0;
}

void FlashVisibility::load(std::int64_t b, std::int64_t head, std::int64_t i) {
    const FlashSequence& sequence = plan_.sequences[static_cast<std::size_t>(b)];
    constexpr std::int64_t kTable = 8192;
    const std::int64_t mode = plan_.sparse_mode;
    const std::int64_t kv_len =
        has<"FA-x305", "FAG-x303">() ? std::min(sequence.kv_len, kTable) : sequence.kv_len;
    std::fill_n(visible_.begin(), sequence.kv_len, '\0');
    std::fill_n(visible_.begin(), kv_len, '\1');
    sees_any_ = kv_len > 0;
    const bool applies =
        problem_.has_mask || (has<"FA-x26", "FAG-x30">() && mode != 1 && mode != 5) ||
        (has<"FA-x304", "FAG-x302">() && mode == 0 && plan_.next_tokens < 0);
    if (!applies) return;
    Band limits = band(b, i);
    distort(limits, sequence, i);
    const bool by_prefix = mode == 6 || (mode == 5 && has<"FA-x27", "FAG-x31">());
    const std::int64_t prefix_len = by_prefix ? prefix(b) : 0;
    const bool prefix_only = has<"FA-x28", "FAG-x32">() && mode == 6 && prefix_len > 0;
    const bool by_contents = problem_.has_mask && reads_contents();
    const bool wraps = has<"FA-17", "FAG-x33">() && (mode == 2 || mode == 3 || mode == 6);
    const bool by_compressed =
        has<"FA-x29", "FAG-x34">() && problem_.has_mask && !by_contents && mode != 6;
    const bool by_own_row = has<"FA-x30", "FAG-x35">() && mode == 5 && !problem_.prefix.empty();
    sees_any_ = false;
    for (std::int64_t j = 0; j < kv_len; ++j) {
        bool sees = limits.first <= j && j <= limits.last;
        if (wraps && limits.last >= 0) sees = j % kCompressedMask <= limits.last % kCompressedMask;
        if (prefix_only) sees = false;
        if (by_contents) sees = sees && !is_hidden_by_contents(b, head, i, j);
        if (by_own_row) sees = sees && j < problem_.prefix[static_cast<std::size_t>(b)];
        if (j < prefix_len) sees = true;
        if (by_compressed)
            sees = sees && problem_.mask.byte(problem_.mask.offset(0, 0, i % kCompressedMask,
                                                                   j % kCompressedMask)) == 0;
        visible_[static_cast<std::size_t>(j)] = sees ? 1 : 0;
        sees_any_ = sees_any_ || sees;
    }
}

}  // namespace attncheck::mutants
