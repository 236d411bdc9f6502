// The values of a call's inputs, where they follow from a Description.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

#include "properties/case/call.h"
#include "properties/case/description.h"
#include "properties/case/spec.h"

namespace attncheck::properties {

/// Index of the first tensor with this role, or -1.
int tensor_with(Role role, const Description& description);
/// The first tensor with this role, which the call has.
const Tensor& tensor_with(Role role, const Call& call);

/// True if the claims of the Spec leave the call with its extents: the call can hold its values.
bool has_extents_of(const Spec& spec, const Call& call);
void fill_with_zeros(Call& call);
/// The recipe's values of an input of the call, by their row-major index.
void fill_by_recipe(const Spec& spec, std::size_t index, Tensor& tensor);

/// Calls visit(number, index) for every element of a shape, in row-major order.
template <class Visit>
void for_each_index(const std::vector<std::int64_t>& shape, Visit&& visit) {
    std::vector<std::int64_t> at(shape.size());
    std::size_t count = 1;
    for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
    for (std::size_t number = 0; number < count; ++number) {
        visit(number, std::as_const(at));
        for (std::size_t dim = shape.size(); dim-- > 0;) {
            if (++at[dim] < shape[dim]) break;
            at[dim] = 0;
        }
    }
}

/// The case whose call is legal.
Spec without_edits(Spec spec);

/// Rows of `left` with those of `right`, a rope, behind them.
std::vector<std::uint32_t> beside(const std::vector<std::uint32_t>& left, std::int64_t left_width,
                                  const std::vector<std::uint32_t>& right,
                                  std::int64_t right_width);

/// Puts the elements that `set` names into row-major bits over the shapes given, or else those of
/// the Spec; `bits_of` is null for tensors to leave alone. Elements that are one in memory get the
/// bits of the first.
void apply_overrides(const Spec& spec,
                     const std::function<std::vector<std::uint32_t>*(std::size_t tensor)>& bits_of,
                     std::vector<std::vector<std::int64_t>> shapes = {});
/// The same, by the roles of the tensors; others are left alone.
void apply_overrides(
    const Spec& spec,
    std::initializer_list<std::pair<Role, std::vector<std::uint32_t>*>> bits_of);

/// A tensor of bytes as bits, for apply_overrides; its end writes them back.
class BytesAsBits {
public:
    explicit BytesAsBits(std::vector<std::uint8_t>& bytes)
        : bits(bytes.begin(), bytes.end()), bytes_(bytes) {}
    ~BytesAsBits() {
        for (std::size_t k = 0; k < bytes_.size(); ++k)
            bytes_[k] = static_cast<std::uint8_t>(bits[k]);
    }
    BytesAsBits(const BytesAsBits&) = delete;
    BytesAsBits& operator=(const BytesAsBits&) = delete;

    std::vector<std::uint32_t> bits;

private:
    std::vector<std::uint8_t>& bytes_;
};

/// build_of with the values of a case, or with zeros where claims changed its extents: no reference
/// is defined on those.
Call build_with_values(const Spec& spec, const std::function<void(const Spec&, Call&)>& give);

}  // namespace attncheck::properties
