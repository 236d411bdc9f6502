// A 64-bit hash of what an operator makes of a case: any changed bit, stride, name or order gives
// another number. It depends on no code that a change to properties/ could touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "properties/case/call.h"
#include "properties/operators/catalogue.h"

namespace attncheck::golden {

/// Mixes words in order with the finaliser of splitmix64 (Steele, Lea and Flood 2014).
class Digest {
public:
    Digest& add(std::uint64_t word);
    Digest& add(std::string_view text);  ///< the length first, so that "a","bc" is not "ab","c"
    Digest& add_real(double value);  ///< its bits
    Digest& add(std::span<const std::int64_t> values);
    Digest& add(std::span<const std::uint32_t> values);
    Digest& add(std::span<const std::byte> bytes);
    std::uint64_t value() const { return state_; }

private:
    std::uint64_t state_ = 0;
};

/// The arguments without elements: names, types, shapes, strides, arrays, texts and numbers.
void add_arguments(Digest& digest, const properties::Call& call);

/// The elements of the inputs, as bit patterns; every NaN counts as the same one.
void add_elements(Digest& digest, const properties::Call& call);

/// The bytes of the C struct. Tokens stand for the addresses of tensors, arrays and texts.
void add_packed(Digest& digest, const properties::Call& call);

void add_ruling(Digest& digest, const ref::Ruling& ruling);

}  // namespace attncheck::golden
