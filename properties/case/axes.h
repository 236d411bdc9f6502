// Shapes and memory orders in one notation. A word is one axis, slowest first; it is a product of
// numbers and symbols (fields of the operator and extents that follow from them).
//
//   "B q heads dim"        padded: B sequences, each with the length of the longest
//   "q B heads*dim"        two logical axes merged into one
//   "q+ heads dim"         rows of all sequences one behind the other, and those beyond the last
//   "+(heads q kv)"        one axis: the sequences one behind the other, [heads, q, kv] in each
//   "+(heads q) lanes"     the same, and one more axis inside
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace attncheck::properties {

struct Description;
class Extents;

struct Factor {
    enum class Of {
        number,     ///< a literal
        scalar,     ///< one value for the whole call
        sequences,  ///< B
        longest,    ///< q: the longest sequence
        rows,       ///< q+: all sequences, and the rows beyond the last
        each        ///< q inside +(): the sequence in question
    };
    Of of = Of::number;
    std::string name;
    std::int64_t number = 1;
    int symbol = -1;
    bool operator==(const Factor&) const = default;
};

struct Axis {
    std::vector<Factor> factors;
    bool per_sequence = false;
    bool operator==(const Axis&) const = default;
};

/// Where an element belongs: its sequence and its position along every symbol.
struct Place {
    std::int64_t sequence = -1;  ///< -1: the axes know no sequence
    bool padded = false;         ///< the sequence is an axis of its own
    bool beyond = false;         ///< a row behind the last sequence; its position is the row
    std::vector<std::pair<std::string, std::int64_t>> at;
    std::int64_t of(const std::string& symbol) const;
};

class Axes {
public:
    Axes() = default;
    Axes(const char* text) : Axes(std::string(text)) {}
    Axes(const std::string& text);  ///< throws std::logic_error on a word that is no axis

    /// Looks the symbols up; throws std::logic_error on one that the description does not have.
    void resolve(const Description& description);

    bool empty() const { return axes_.empty(); }
    const std::vector<Axis>& axes() const { return axes_; }
    std::vector<std::int64_t> shape(const Extents& extents) const;
    /// Of the element with this row-major number.
    Place place(const Extents& extents, std::int64_t number) const;
    /// The other way: the row-major number of the element that belongs there.
    std::int64_t number(const Extents& extents, const Place& place) const;

private:
    std::string text_;
    std::vector<Axis> axes_;
};

}  // namespace attncheck::properties
