#include "constraints.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include "active_mutant.h"
#include "problem.h"

namespace attncheck::mutants {

namespace {

/// T*N*D in int64; false when it leaves the range. Extents are not negative.
bool product_fits(const attncheck_tensor& tensor, std::int64_t& product) {
    product = 1;
    for (int i = 0; i < tensor.rank; ++i) {
        const std::int64_t extent = tensor.shape[i];
        if (extent != 0 && product > std::numeric_limits<std::int64_t>::max() / extent)
            return false;
        product *= extent;
    }
    return true;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

bool is_half(std::int32_t dtype) {
    if (on<"VAL-x23">() && dtype == ATTNCHECK_FLOAT32) return true;
    return dtype == ATTNCHECK_FLOAT16 || dtype == ATTNCHECK_BFLOAT16;
}

bool is_tnd(const char* layout) {
    const std::string_view text = layout;
    if (on<"VAL-x08">()) return is_tnd_in_any_case(layout);
    if (on<"VAL-x12">()) return text.substr(0, 3) == "TND";
    return text == "TND";
}

bool is_tnd_in_any_case(const char* layout) {
    const std::string_view text = layout;
    const auto same_letter = [](char a, char b) { return lower(a) == b; };
    return text.size() == 3 && std::equal(text.begin(), text.end(), "tnd", same_letter);
}

bool dtypes_agree(const attncheck_tensor& input, const attncheck_tensor& weight) {
    if (!is_half(input.dtype)) return false;
    if (on<"VAL-x16">()) return is_half(weight.dtype);
    return weight.dtype == input.dtype;
}

bool in_range(std::int64_t block, std::int64_t stride, bool is_gradient) {
    const std::int64_t least = on<"VAL-03">() && is_gradient ? 0 : 1;
    if (block < least || stride < least || block % 16 != 0 || stride % 16 != 0) return false;
    if (block > 128 && !on<"VAL-x14">()) return false;
    if (stride > block) return false;
    if (stride == block && is_gradient) return on<"VAL-x03">() || (on<"VAL-03">() && block == 0);
    return true;
}

bool shapes_are_legal(const attncheck_tensor& input, const attncheck_tensor& weight,
                      std::int64_t block) {
    const std::int64_t tokens = input.shape[0], heads = input.shape[1], head_dim = input.shape[2];
    if (tokens < 1 || heads < 1 || head_dim < 16) return false;
    if (heads > 128 && !on<"VAL-x05">()) return false;
    if (head_dim > 256 || head_dim % (on<"VAL-x04">() ? 8 : 16) != 0) return false;
    if (on<"VAL-x17">() && head_dim == 256) return false;
    std::int64_t elements = 0;
    if (!product_fits(input, elements)) return false;
    return weight.shape[0] == block && weight.shape[1] == heads;
}

bool same_extents(const attncheck_tensor& a, const attncheck_tensor& b) {
    return a.rank == b.rank && std::equal(a.shape, a.shape + a.rank, b.shape);
}

LengthRuling rule_on_lengths(const attncheck_int_array& lengths, std::int64_t tokens,
                             bool is_gradient) {
    if (lengths.size <= 0) return {};
    LengthRuling ruling{true, false};
    std::int64_t previous = 0;
    for (std::int64_t b = 0; b < lengths.size; ++b) {
        const std::int64_t end = lengths.values[b];
        if (end < previous) {
            const bool overlooked = b == 0 ? on<"VAL-35">() : end >= 0 && on<"VAL-07">();
            if (!overlooked) return {};
            ruling.by_defect = true;
        }
        if (on<"VAL-x01">() && end == previous) return {};
        previous = end;
    }
    if (previous > tokens) {
        if (!on<"VAL-06">() || is_gradient) return {};
        ruling.by_defect = true;
    }
    if (on<"VAL-x02">() && previous < tokens) return {};
    return ruling;
}

bool rows_match(const attncheck_tensor& rows, const attncheck_tensor& input,
                const attncheck_int_array& lengths, std::int64_t block, std::int64_t stride,
                const LengthRuling& ruling) {
    if (rows.shape[0] < 0 || rows.shape[1] != input.shape[1] || rows.shape[2] != input.shape[2])
        return false;
    if (ruling.by_defect) return true;
    std::int64_t blocks = 0, begin = 0;
    for (std::int64_t b = 0; b < lengths.size; ++b) {
        blocks += blocks_of(lengths.values[b] - begin, block, stride);
        begin = lengths.values[b];
    }
    if (on<"VAL-x19">() && blocks == 0) return false;
    if (on<"VAL-x21">()) return rows.shape[0] >= blocks;
    return rows.shape[0] == blocks;
}

void allocate_early(const attncheck_tensor& input) noexcept {
    if (input.data == nullptr || input.rank != 3) return;
    for (int i = 0; i < 3; ++i)
        if (input.shape[i] < 0) return;
    std::int64_t elements = 0;
    std::vector<float> scratch;
    scratch.reserve(product_fits(input, elements) ? static_cast<std::size_t>(elements)
                                                  : std::numeric_limits<std::size_t>::max());
}

void touch_early(const attncheck_tensor& output) {
    if (output.data == nullptr || output.rank < 1 || output.rank > ATTNCHECK_MAX_RANK) return;
    for (int i = 0; i < output.rank; ++i)
        if (output.shape[i] <= 0) return;
    *static_cast<std::uint16_t*>(output.data) = 0;
}

}  // namespace attncheck::mutants
