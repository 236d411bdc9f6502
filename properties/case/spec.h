// A Spec is one fully determined problem as a few numbers: shapes, attributes, data recipe, seed
// and sparse overrides. Buffers are a pure function of it (call.h), and its one-line text form is
// what people read, edit and replay:
//
//   nsa_compress_grad{dtype=bf16 seq=[0,128,144] heads=4 dim=128 block=32 stride=16 data=normal
//   seed=7}
//
// An operator describes its fields once in a Schema; printing, parsing and shrinking are the same
// for all operators.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/profile.h"

namespace attncheck::properties {

/// How a tensor lies in memory, simplest first. All but `broadcast` keep elements distinct.
enum class Layout {
    dense,      ///< row-major
    unit,       ///< row-major, but dimensions of extent 1 carry an arbitrary stride
    gap,        ///< row-major with unused elements behind every row
    swapped,    ///< first two dimensions exchanged in memory
    columns,    ///< last dimension slowest in memory
    spread,     ///< every second element
    reversed,   ///< negative stride in the first dimension (inputs only)
    broadcast,  ///< stride 0 in the second dimension (inputs only): all its slices are one
};

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

/// An integer attribute. Values with names print as names[value]. A field equal to its fallback is
/// not printed.
struct NumberField {
    std::string key;
    std::int64_t min = 0, max = 0, step = 1;
    std::int64_t fallback = -1;  ///< value when the key is left out; below min: the key is required
    std::vector<std::string> names;
};

struct ListField {
    std::string key;
    std::int64_t min = 0, max = 0;  ///< of each entry
    std::int64_t max_size = 1;
};

struct TensorField {
    std::string name;
    int rank = 0;
    bool output = false;
    bool derived = false;  ///< an input that follows from the others: has no overrides of its own
    bool integer = false;  ///< holds whole numbers only
};

struct Schema {
    std::string op;
    std::vector<NumberField> numbers;  ///< numbers[0] is the dtype
    std::vector<ListField> lists;
    std::vector<TensorField> tensors;  ///< in the order of the C struct
    bool parallel_lists = false;       ///< all lists have one entry per sequence

    int number(std::string_view key) const;  ///< index, or -1
    int tensor(std::string_view name) const;
};

/// Why one of the numbers is not a value of its field; nullopt if all are.
std::optional<std::string> number_outside(const Schema& schema,
                                          std::span<const std::int64_t> numbers);

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
    Recipe recipe = Recipe::zeros;
    std::uint64_t seed = 0;
    std::map<ElementRef, double> overrides;  ///< elements that differ from the recipe
    std::vector<std::string> edits;          ///< illegal arguments (apply_edit)
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
