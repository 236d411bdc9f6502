// Legend: P parts, R rows, H heads, Dv value dim. One row at a time: weights first, then a sum over
// the parts for each block of channels. A part weighs 0 only when its lse is -infinity, and is then
// not read: its values may be anything.
#include "impl/operators/attention_merge/attention_merge.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "impl/kernels/half_formats.h"

namespace attncheck::impl {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Element types: how one is read and written.
struct Fp16 {
    using Storage = std::uint16_t;
    static float read(Storage bits) { return widen_fp16(bits); }
    static Storage write(float value) { return narrow_fp16(value); }
};
struct Bf16 {
    using Storage = std::uint16_t;
    static float read(Storage bits) { return widen_bf16(bits); }
    static Storage write(float value) { return narrow_bf16(value); }
};
struct Fp32 {
    using Storage = float;
    static float read(Storage value) { return value; }
    static Storage write(float value) { return value; }
};

/// Address of element (first, second) of a tensor's leading dimensions; an extent of 1 may carry
/// any stride, so only indices that exist are multiplied.
template <class Element>
Element* address(const attncheck_tensor& t, std::int64_t i, std::int64_t j, std::int64_t k = 0) {
    Element* at = static_cast<Element*>(t.data) + i * t.strides[0] + j * t.strides[1];
    return k == 0 ? at : at + k * t.strides[2];
}

/// A part that counts.
struct Weighted {
    std::int64_t part;
    float weight;
};

/// Fills `live` with the weights exp(lse_p - m) of one row, divided by their sum l. Returns
/// m + ln l, -infinity when no part counts.
float weigh(const attncheck_attention_merge_args& a, std::int64_t row, std::int64_t head,
            std::vector<Weighted>& live) {
    live.clear();
    float max = -kInfinity;
    for (std::int64_t p = 0; p < a.lses.shape[0]; ++p) {
        const float lse = *address<const float>(a.lses, p, row, head);
        if (lse == -kInfinity) continue;
        live.push_back({p, lse});
        max = std::max(max, lse);
    }
    if (live.empty()) return -kInfinity;
    float sum = 0;
    for (Weighted& one : live) sum += one.weight = std::exp(one.weight - max);
    for (Weighted& one : live) one.weight /= sum;
    return max + std::log(sum);
}

template <class Type>
void merge(const attncheck_attention_merge_args& a) {
    using Storage = typename Type::Storage;
    const std::int64_t rows = a.out.shape[0], heads = a.out.shape[1], dim = a.out.shape[2];
    const std::int64_t from_stride = a.parts.strides[3], to_stride = a.out.strides[2];
    std::vector<Weighted> live;
    std::vector<float> sums(static_cast<std::size_t>(dim));
    for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t head = 0; head < heads; ++head) {
            const float lse = weigh(a, row, head, live);
            std::fill(sums.begin(), sums.end(), 0.0f);
            for (const Weighted& one : live) {
                const Storage* from = address<const Storage>(a.parts, one.part, row, head);
                for (std::int64_t d = 0; d < dim; ++d)
                    sums[static_cast<std::size_t>(d)] +=
                        one.weight * Type::read(from[d * from_stride]);
            }
            Storage* to = address<Storage>(a.out, row, head);
            for (std::int64_t d = 0; d < dim; ++d)
                to[d * to_stride] = Type::write(sums[static_cast<std::size_t>(d)]);
            if (a.lse.data != nullptr) *address<float>(a.lse, row, head) = lse;
        }
    }
}

}  // namespace

void attention_merge(const attncheck_attention_merge_args& args) {
    if (args.parts.dtype == ATTNCHECK_FLOAT16)
        merge<Fp16>(args);
    else if (args.parts.dtype == ATTNCHECK_BFLOAT16)
        merge<Bf16>(args);
    else
        merge<Fp32>(args);
}

}  // namespace attncheck::impl
