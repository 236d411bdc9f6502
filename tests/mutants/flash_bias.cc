#include "flash_bias.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace attncheck::mutants {

namespace {

constexpr std::int64_t kCompressedRows = 1024;

}  // namespace

std::int64_t FlashBias::plain_offset(std::int64_t b, std::int64_t head, std::int64_t i,
                                     std::int64_t j) const {
    const Grid& pse = problem_.pse;
    const std::int64_t *n = pse.shape, entry = b * n[1] + head;
    if (has<"FA-46", "FAG-x40">() && n[2] == 1)
        return offset_of(pse.tensor, (entry + i) * n[3] + j);
    if (has<"FA-47", "FAG-x41">() && n[0] == 1)
        return offset_of(pse.tensor, (entry * n[2] + (n[2] == 1 ? 0 : i)) * n[3] + j);
    if (has<"FA-x31", "FAG-x42">()) b = 0;
    if (has<"FA-x32", "FAG-x43">()) head /= problem_.group_size();
    if (has<"FA-x33", "FAG-x44">() && n[2] > 1)
        return pse.offset(b, head, std::min(j, n[2] - 1), std::min(i, n[3] - 1));
    if (has<"FA-x34", "FAG-x45">())
        return ((n[0] == 1 ? 0 : b) * n[1] + head) * n[2] * n[3] + (n[2] == 1 ? 0 : i) * n[3] + j;
    return pse.offset(b, head, i, j);
}

/// Row m and column k with m + W - k = i - j, W = S - 1024.
std::int64_t FlashBias::compressed_offset(std::int64_t b, std::int64_t head, std::int64_t i,
                                          std::int64_t j) const {
    const Grid& pse = problem_.pse;
    std::int64_t first = pse.shape[3] - kCompressedRows;
    if (has<"FA-x35", "FAG-x46">()) first = first / kCompressedRows * kCompressedRows;
    if (has<"FA-x36", "FAG-x47">()) return pse.offset(b, head, i % kCompressedRows, j);
    if (i >= first) return pse.offset(b, head, std::min(i - first, kCompressedRows - 1), j);
    std::int64_t m = i % kCompressedRows, k = first + m - (i - j);
    if (k < 0) m -= k, k = 0;
    m = std::min(m, kCompressedRows - 1);  // keys after the query: hidden, or a defect
    return pse.offset(b, head, m, std::clamp<std::int64_t>(k, 0, pse.shape[3] - 1));
}

/// key_start - query_start, 0 in the later sequences of mode 8. Exact where it fits into int64.
double FlashBias::start_difference(std::int64_t b) const {
    std::int64_t key_start = problem_.key_start, query_start = problem_.query_start;
    if (has<"FA-x37", "FAG-x48">()) std::swap(key_start, query_start);
    if (has<"FA-x38", "FAG-x49">()) key_start = query_start = 0;
    if (has<"FA-x39", "FAG-x50">() && problem_.one_start_given) key_start = problem_.lone_start;
    const bool is_first_only = problem_.has_mask && plan_.sparse_mode == 8;
    if (is_first_only && b != 0 && !has<"FA-x40", "FAG-x51">()) return 0;
    if (has<"FA-x41", "FAG-x52">() && b != 0) return 0;
    std::int64_t difference = 0;
    if (__builtin_sub_overflow(key_start, query_start, &difference))
        return static_cast<double>(key_start) - static_cast<double>(query_start);
    return static_cast<double>(difference);
}

float FlashBias::by_distance(std::int64_t b, std::int64_t head, std::int64_t i,
                             std::int64_t j) const {
    const FlashSequence& sequence = plan_.sequences[static_cast<std::size_t>(b)];
    const attncheck_tensor& slopes = problem_.pse.tensor;
    const std::int64_t row = slopes.rank == 1 || has<"FA-x42", "FAG-x53">() ? 0 : b;
    std::int64_t entry = row * problem_.num_query_heads + head;
    if (has<"FA-x43", "FAG-x54">()) entry = row * problem_.num_query_heads;
    const float slope = load_element(slopes.dtype, slopes.data, offset_of(slopes, entry));
    if (has<"FA-x44", "FAG-x55">()) {
        i += sequence.first_query;
        j += sequence.first_key;
    }
    const float difference = static_cast<float>(static_cast<double>(j - i) + start_difference(b));
    const float distance = std::fabs(difference);
    if (has<"FA-49", "FAG-x56">()) return slope * distance;
    if (has<"FA-50", "FAG-x57">()) return slope * difference;
    if (problem_.pse_type == 2) return -slope * distance;
    if (has<"FA-52", "FAG-x58">()) return -std::sqrt(slope * distance);
    if (has<"FA-x45", "FAG-x59">()) return -slope * distance;
    return -slope * std::sqrt(distance);
}

float FlashBias::bias(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) const {
    const FlashSequence& sequence = plan_.sequences[static_cast<std::size_t>(b)];
    const attncheck_tensor& pse = problem_.pse.tensor;
    const auto flat = [&](std::int64_t position) {
        return problem_.pse.bias(offset_of(pse, position));
    };
    switch (problem_.pse_form) {
        case PseForm::none:
            return 0.0f;
        case PseForm::plain:
            return problem_.pse.bias(plain_offset(b, head, i, j));
        case PseForm::compressed:
            return problem_.pse.bias(compressed_offset(b, head, i, j));
        case PseForm::keys:
            if (has<"FA-x46", "FAG-x60">())
                return flat((sequence.first_key + j) * problem_.num_query_heads + head);
            return flat(sequence.first_key * problem_.num_query_heads + head * sequence.kv_len + j);
        case PseForm::pairs:
            if (has<"FA-x47", "FAG-x61">())
                return flat(sequence.first_pair +
                            (head * plan_.longest_query + i) * plan_.longest_kv + j);
            return flat(sequence.first_pair + (head * sequence.query_len + i) * sequence.kv_len +
                        j);
        case PseForm::slopes:
            return by_distance(b, head, i, j);
    }
    return 0.0f;
}

bool FlashBias::keeps(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) const {
    const FlashSequence& sequence = plan_.sequences[static_cast<std::size_t>(b)];
    if (has<"FA-59", "FAG-x62">()) head -= head % problem_.group_size();
    std::int64_t pitch = sequence.kv_len, rows = sequence.query_len;
    std::int64_t first = sequence.first_pair;
    if (has<"FA-58", "FAG-x63">()) {
        pitch = (pitch + 7) / 8 * 8;
        if (!problem_.is_tnd()) first = b * problem_.num_query_heads * rows * pitch;
    }
    std::int64_t bit = first + (head * rows + i) * pitch + j;
    if (has<"FA-x48", "FAG-x64">()) bit = i * pitch + j;
    if (has<"FA-x49", "FAG-x65">()) bit -= first;
    if (has<"FA-x50", "FAG-x66">()) bit = first + (i * problem_.num_query_heads + head) * pitch + j;
    if (has<"FA-x307", "FAG-x304">()) bit &= 0xffff;
    const std::int64_t last = static_cast<std::int64_t>(plan_.drop_bytes.size()) - 1;
    const std::uint8_t byte = plan_.drop_bytes[static_cast<std::size_t>(std::min(bit / 8, last))];
    const std::int64_t shift = has<"FA-x51", "FAG-x67">() ? 7 - bit % 8 : bit % 8;
    const bool is_set = (byte >> shift & 1) != 0;
    return has<"FA-x52", "FAG-x68">() ? !is_set : is_set;
}

}  // namespace attncheck::mutants
