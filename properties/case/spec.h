// A Spec is one fully determined problem as a few numbers: shapes, attributes, data recipe, seed
// and sparse overrides. Buffers are a pure function of it (call.h), and its one-line text form is
// what people read, edit and replay:
//
//   nsa_compress_grad{dtype=bf16 seq=[0,128,144] heads=4 dim=128 block=32 stride=16 data=normal
//   seed=7}
//
// An operator has one Description (description.h); printing, parsing and shrinking are the same for
// all operators.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/description.h"
#include "properties/case/edit.h"
#include "properties/case/profile.h"

namespace attncheck::properties {

/// How a tensor lies in memory, simplest first. All but those that repeat keep elements distinct.
enum class Layout {
    dense,      ///< row-major
    unit,       ///< row-major, but dimensions of extent 1 carry an arbitrary stride
    gap,        ///< row-major with unused elements behind every row
    swapped,    ///< first two dimensions exchanged in memory
    columns,    ///< last dimension slowest in memory
    spread,     ///< every second element
    reversed,   ///< negative stride in the first dimension (inputs only)
    broadcast,  ///< stride 0 in the second dimension (inputs only): all its slices are one
    reversed_last,  ///< negative stride in the last dimension (inputs only)
    reversed_all,   ///< negative strides in all dimensions (inputs only)
    one_row,        ///< stride 0 in the first dimension (inputs only)
    one_column,     ///< stride 0 in the last dimension (inputs only)
    one_element,    ///< stride 0 in all dimensions (inputs only)
    far,            ///< slices of one dimension up to 2^32 elements and more apart
    joined,  ///< query, key and value in one allocation, one behind the other (one_buffer.h)
    fused,   ///< the same, with their rows in turn
    woven,   ///< the same, with their rows of every head in turn
};
inline constexpr int kLayouts = static_cast<int>(Layout::woven) + 1;

/// Whether several elements of a tensor are one in memory.
constexpr bool repeats(Layout layout) {
    return layout == Layout::broadcast || layout == Layout::one_row ||
           layout == Layout::one_column || layout == Layout::one_element;
}
/// Whether tensors in this layout are views of one allocation.
constexpr bool shares_buffer(Layout layout) { return layout >= Layout::joined; }
/// Whether an output may lie so: nothing is read from it in another order.
constexpr bool suits_outputs(Layout layout) {
    return layout <= Layout::spread || layout == Layout::far;
}

/// Where element values come from, simplest first. Operators may give a recipe a structure of their
/// own.
enum class Recipe {
    zeros,
    ones,
    ints,
    onehot,
    signs,
    normal,
    cancelling,
    spiky,
    huge,
    subnormal,
    specials
};

std::string_view name_of(Layout layout);
std::string_view name_of(Recipe recipe);

inline constexpr int kMaxRank = 4;

/// One element of one input tensor, by logical index.
struct ElementRef {
    int tensor = 0;
    std::array<std::int64_t, kMaxRank> index{};
    auto operator<=>(const ElementRef&) const = default;
};

struct Spec {
    const Schema* schema = nullptr;
    std::vector<std::int64_t> numbers;
    std::vector<std::vector<std::int64_t>> lists;
    std::vector<Layout> layouts;  ///< one per tensor
    std::uint64_t withheld = 0;   ///< optional outputs that are not passed, one bit per tensor
    Recipe recipe = Recipe::zeros;
    std::uint64_t seed = 0;
    std::map<ElementRef, double> overrides;  ///< elements that differ from the recipe
    std::vector<Edit> edits;  ///< illegal arguments
    Profile profile = Profile::ascend910b;   ///< of the run, not of the case line

    Spec() = default;
    explicit Spec(const Schema& of);  ///< every field at its simplest value
    std::int64_t number(std::string_view key) const;
    void set(std::string_view key, std::int64_t value);
    bool operator==(const Spec& other) const;
};

/// The one-line form; parse(print(s)) == s for every Spec whose overrides are representable in 17
/// digits.
std::string print(const Spec& spec);
std::string print_value(
    double value);  ///< shortest text that reads back as the same number; nan, inf, -inf, -0

/// Reads a case line for one of the schemas. Throws std::invalid_argument with the offending word,
/// what is allowed there, and for an unknown operator the known ones. Ranges of single fields are
/// checked here; relations between fields are the operator's (Operator::illegal).
Spec parse(std::string_view text, const std::vector<const Schema*>& schemas);

/// A key that every shrinking step lowers (lexicographic), so that shrinking ends.
std::vector<std::int64_t> complexity(const Spec& spec);
std::int64_t value_complexity(double value);

}  // namespace attncheck::properties
