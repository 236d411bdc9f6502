// The parts that the predicates of all operators share: one rule after the other, the first broken one
// decides, and every message reads "<parameter> <what it is>; allowed: <range>".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ref/constraints/constraints.h"
#include "ref/numbers/dtype.h"

namespace attncheck::ref {

std::string show(Dtype dtype);                             ///< "1 (fp16)"; "-9 (unknown)"
std::string show(const std::vector<std::int64_t>& shape);  ///< "[6,4,32]"
std::string show(const std::string& text);                 ///< quoted, cut after 32 characters
std::string show(double value);                            ///< 17 digits: one text per value

std::string show_range(std::int64_t smallest, std::int64_t largest);  ///< "1..128"

inline bool is_within(std::int64_t value, std::int64_t smallest, std::int64_t largest) {
    return value >= smallest && value <= largest;
}
/// Below halfway between FLT_MAX and 2^128: from there on a binary64 value rounds to an infinite fp32.
bool is_finite_as_fp32(double value);

inline constexpr std::int64_t kStatisticCopies = 8;  ///< softmax statistics are repeated 8 times

/// A required tensor: its name in candidate.h, the letters of its shape, "[T1,N1,8]", and what it stores.
enum class Stores : std::uint8_t { input_type, int32, fp32 };
struct Operand {
    const TensorArgument& tensor;
    const char* name;
    const char* extents;
    Stores stores = Stores::input_type;
};
using Operands = std::vector<Operand>;
/// What letters stand for. Numbers stand for themselves.
using Letters = std::vector<std::pair<std::string_view, std::int64_t>>;

// Sides on which a value can leave what is allowed: each is a separate rule to a validator.

/// "below", "above", or "between" for a value inside the limits that is none of those allowed.
std::string side_of(std::int64_t value, std::int64_t smallest, std::int64_t largest);
/// "extent 1 below", "extents swapped", "several extents" or "another rank".
std::string side_of(const std::vector<std::int64_t>& shape,
                    const std::vector<std::int64_t>& wanted);
/// Of the allowed shapes that differ in the fewest extents.
std::string side_of(const std::vector<std::int64_t>& shape,
                    const std::vector<std::vector<std::int64_t>>& allowed);
/// "first", "inner" or "last" sequence of several, "only" of one.
std::string place_of(std::size_t index, std::size_t count);

/// The checks of one call, in the order they are made: the first that fails is the ruling, the
/// others do nothing. Arguments may hold anything; a check that reads an extent must come after the
/// rank of its tensor and check accepted() first.
struct Examination {
    Ruling ruling;
    /// What the next rules depend on in addition to their parameter, "TND" or "sparse_mode 7", and
    /// the sequence that they are about: parts of Ruling::clause.
    std::string circumstance, place;

    bool accepted() const { return ruling.accepted(); }
    /// A rule that has nothing to say. Asked before its texts are made: nearly all rules of nearly all calls hold.
    bool passes(bool holds) const { return holds || !accepted(); }

    void rule(bool holds, int status, const char* parameter, std::string_view value,
              std::string_view allowed, std::string_view side = {});
    void present(bool holds, const char* parameter, std::string_view allowed);
    void present(std::span<const Operand> operands);
    /// Attributes: "stride is 24; allowed: ...".
    void number(bool holds, const char* parameter, std::int64_t value, std::string_view allowed,
                std::string_view side = {});
    void number_within(const char* parameter, std::int64_t value, std::int64_t smallest,
                       std::int64_t largest);
    /// An absent layout is accepted: where it is required, present() comes before.
    void layout(const std::optional<std::string>& layout, const char* parameter);

    void rank(const TensorArgument& t, const char* parameter, std::int32_t rank);
    void dtype(const TensorArgument& t, const char* parameter,
               std::initializer_list<Dtype> allowed);
    void same_dtype(const TensorArgument& t, const char* parameter, const TensorArgument& other,
                    const char* other_parameter);
    /// Ranks and then types of all operands. The leading one has a type that is allowed, which is that of all
    /// that store the input type.
    void form(std::initializer_list<std::span<const Operand>> sides, const Operand& leading,
              std::initializer_list<Dtype> allowed);
    /// One extent by its letter: "input has N = 129; allowed: ...".
    void extent(bool holds, const char* parameter, const char* name, std::int64_t value,
                std::string_view allowed, std::string_view side = {});
    void extent_within(const char* parameter, const char* name, std::int64_t value,
                       std::int64_t smallest, std::int64_t largest);
    /// The whole shape; extents are the letters of the wanted one, "[C,N,D]".
    void shape(const TensorArgument& t, const char* parameter, const char* extents,
               const std::vector<std::int64_t>& wanted);
    /// Nothing is checked once a call is rejected, for then a letter may stand for anything.
    void shapes(std::span<const Operand> operands, const Letters& letters);

    /// Throws std::logic_error when an array whose size is accepted does not hold its values.
    void require_backed(const ArrayArgument& array, const char* parameter) const;
    void array_size(bool holds, const ArrayArgument& array, const char* parameter,
                    std::string_view allowed);
    /// Entry by entry: at least its predecessor (the first: 0), then check_length(index, length).
    /// At last: no more than the extent of this letter. Requires an accepted size.
    template <class CheckLength>
    void lengths(const ArrayArgument& array, const char* parameter, const char* extent_name,
                 std::int64_t extent_value, CheckLength&& check_length);

private:
    void length_entry(const char* parameter, std::size_t index, std::int64_t value,
                      std::int64_t previous);
    void last_length(const char* parameter, std::int64_t last, const char* extent_name,
                     std::int64_t extent_value);
};

template <class CheckLength>
void Examination::lengths(const ArrayArgument& array, const char* parameter,
                          const char* extent_name, std::int64_t extent_value,
                          CheckLength&& check_length) {
    std::int64_t previous = 0;
    for (std::size_t b = 0; b < array.values.size() && accepted(); ++b) {
        const std::int64_t value = array.values[b];
        place = place_of(b, array.values.size());
        if (value < previous)  // previous >= 0: a negative value ends here, too
            length_entry(parameter, b, value, previous);
        else
            check_length(b, value - previous);
        previous = value;
    }
    place.clear();
    last_length(parameter, previous, extent_name, extent_value);
}

}  // namespace attncheck::ref
