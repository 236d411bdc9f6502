#include "digest.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "properties/case/derived.h"

namespace attncheck::golden {

using namespace properties;

Digest& Digest::add(std::uint64_t word) {
    std::uint64_t z = (state_ ^ word) + 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    state_ = z ^ (z >> 31);
    return *this;
}

Digest& Digest::add(std::string_view text) {
    return add(std::as_bytes(std::span(text.data(), text.size())));
}

Digest& Digest::add_real(double value) { return add(std::bit_cast<std::uint64_t>(value)); }

Digest& Digest::add(std::span<const std::int64_t> values) { return add(std::as_bytes(values)); }

Digest& Digest::add(std::span<const std::uint32_t> values) { return add(std::as_bytes(values)); }

Digest& Digest::add(std::span<const std::byte> bytes) {
    add(bytes.size());
    std::uint64_t word = 0;
    std::size_t at = 0;
    for (; at + sizeof word <= bytes.size(); at += sizeof word) {
        std::memcpy(&word, &bytes[at], sizeof word);
        add(word);
    }
    if (at == bytes.size()) return *this;
    word = 0;
    std::memcpy(&word, &bytes[at], bytes.size() - at);
    return add(word);
}

namespace {

std::uint64_t word(std::int64_t value) { return static_cast<std::uint64_t>(value); }

/// The largest magnitude that is no NaN, as bits of the type; all ones for integers.
std::uint32_t largest_number(ref::Dtype dtype) {
    switch (dtype) {
        case ref::Dtype::fp32:
            return 0x7F800000;
        case ref::Dtype::fp16:
            return 0x7C00;
        case ref::Dtype::bf16:
            return 0x7F80;
        case ref::Dtype::fp8_e5m2:
            return 0x7C;
        case ref::Dtype::fp8_e4m3fn:
            return 0x7E;
        default:
            return 0xFFFFFFFF;
    }
}

/// The bits, with the same ones for every NaN. Which sign and payload a sum of NaNs has depends on
/// the order of operands that the compiler chose.
std::vector<std::uint32_t> with_one_nan(const Tensor& tensor) {
    const std::uint32_t largest = largest_number(tensor.type());
    std::vector<std::uint32_t> out = tensor.bits;
    if (largest == 0xFFFFFFFF) return out;
    const std::uint32_t magnitude = std::bit_ceil(largest) - 1;
    for (std::uint32_t& bits : out)
        if ((bits & magnitude) > largest) bits = magnitude;
    return out;
}

/// An address that depends on nothing but the kind of argument and its place in the list.
template <class T>
T* token(std::uint64_t kind, std::size_t index) {
    return reinterpret_cast<T*>((kind << 32) + 8 * (index + 1));
}

}  // namespace

void add_arguments(Digest& digest, const Call& call) {
    digest.add(call.op).add(call.tensors.size());
    for (const Tensor& tensor : call.tensors) {
        digest.add(tensor.name).add(2u * tensor.output + tensor.present);
        digest.add(word(tensor.dtype)).add(word(tensor.dtype_of_buffer)).add(word(tensor.rank));
        digest.add(std::span(tensor.shape)).add(std::span(tensor.strides));
        digest.add(std::span(tensor.buffer_shape));
        if (tensor.allocation != 0) digest.add(word(tensor.allocation)).add(word(tensor.offset));
    }
    digest.add(call.arrays.size());
    for (const HostArray& array : call.arrays)
        digest.add(array.name).add(array.present).add(word(array.size)).add(
            std::span(array.values));
    digest.add(call.texts.size());
    for (const Text& text : call.texts)
        digest.add(text.name).add(text.value.has_value()).add(text.value.value_or(""));
    digest.add(call.numbers.size());
    for (const Number& number : call.numbers) digest.add(number.name).add(word(number.value));
    digest.add(call.reals.size());
    for (const Real& real : call.reals) digest.add(real.name).add_real(real.value);
}

void add_elements(Digest& digest, const Call& call) {
    for (const Tensor& tensor : call.tensors) {
        digest.add(tensor.name).add(std::span<const std::uint32_t>(with_one_nan(tensor)));
        digest.add(tensor.shared_bytes != nullptr);
        if (tensor.shared_bytes) digest.add(std::as_bytes(std::span(*tensor.shared_bytes)));
    }
}

void add_packed(Digest& digest, const Call& call) {
    std::vector<attncheck_tensor> tensors(call.tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const Tensor& from = call.tensors[i];
        if (!from.present) continue;
        tensors[i].data = token<void>(1, i);
        tensors[i].dtype = from.dtype;
        tensors[i].rank = from.rank;
        const std::size_t rank = std::min<std::size_t>(from.shape.size(), ATTNCHECK_MAX_RANK);
        std::copy_n(from.shape.begin(), rank, tensors[i].shape);
        std::copy_n(from.strides.begin(), std::min(rank, from.strides.size()), tensors[i].strides);
    }
    std::vector<attncheck_int_array> arrays(call.arrays.size());
    for (std::size_t i = 0; i < arrays.size(); ++i)
        arrays[i] = {call.arrays[i].present ? token<const std::int64_t>(2, i) : nullptr,
                     call.arrays[i].size};
    std::vector<const char*> texts(call.texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i)
        if (call.texts[i].value) texts[i] = token<const char>(3, i);
    digest.add(std::span<const std::byte>(pack(call, tensors, arrays, texts)));
}

void add_ruling(Digest& digest, const ref::Ruling& ruling) {
    digest.add(word(ruling.status)).add(ruling.parameter).add(ruling.message);
    digest.add(ruling.either_status);
}

}  // namespace attncheck::golden
