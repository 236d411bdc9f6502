// What follows from a Description: shapes, calls, the C struct, the ruling, words for elements,
// legality, and overrides that follow their sequence.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "properties/case/call.h"
#include "properties/case/description.h"
#include "properties/case/spec.h"

namespace attncheck::properties {

Extents extents_of(const Spec& spec);

/// Shapes by the index that `set` uses. A tensor that is absent has no rows.
std::vector<std::vector<std::int64_t>> shapes_of(const Extents& extents);

/// The form that the tensor has in a call, null when it has but one.
const Form* form_of(const TensorField& tensor, const Extents& extents);
const Axes& memory_of(const TensorField& tensor, const Extents& extents);

/// Shape and order of a tensor as it is passed.
struct Laid {
    std::vector<std::int64_t> shape;
    DimOrder order;
};
Laid laid_out(const TensorField& tensor, const Extents& extents);

/// The call without the values of its elements.
Call outline_of(const Extents& extents, std::span<const Layout> layouts = {});

/// The call with its edits: claims that are laid out first, then the values (`fill`), then the
/// other edits in their order.
Call build_of(const Spec& spec, const std::function<void(const Spec&, Call&)>& fill);

/// The C struct with tensors, arrays and texts at their addresses, in the order of the call.
std::vector<std::byte> pack(const Call& call, const std::vector<attncheck_tensor>& tensors,
                            const std::vector<attncheck_int_array>& arrays,
                            const std::vector<const char*>& texts);

/// The documented verdict on the arguments of a call.
ref::Ruling rule(const Call& call);

/// "sequence 1, token 17, head 0, channel 3" for an element of a tensor as passed.
std::string describe(const Spec& spec, const std::string& tensor,
                     const std::vector<std::int64_t>& index);

/// Why the Spec is no legal problem: ranges, rules, layouts and elements; nullopt if it is one.
std::optional<std::string> illegal(const Spec& spec);

/// Name, shape and values of the tensors of a call by the index that `set` uses.
std::vector<Tensor> logical_tensors(const Spec& spec, Call call);

/// Carries the overrides of `from` over to `to`, whose sequences are those of `from` listed in kept,
/// so that an element keeps its sequence and position; drops what is outside.
void carry_overrides(const Spec& from, Spec& to, const std::vector<int>& kept);

}  // namespace attncheck::properties
