// A call that was decoded from bytes, as the questions see it: what the contract rules, what the
// validator says, and the entry point.
//
// No tensor but one whose values a validator must read has memory: the others point into a page
// that can be neither read nor written, so that touching them ends the program. Texts end at such a
// page.
#pragma once

#include <attncheck/candidate.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/call_bytes.h"
#include "impl/arguments/rejection.h"
#include "ref/constraints/constraints.h"

namespace attncheck::fuzz {

/// What a call has of each kind of argument, whatever their names.
struct ArgumentList {
    std::vector<attncheck_tensor> tensors;
    std::vector<attncheck_int_array> arrays;
    std::vector<std::int64_t> integers;
    std::vector<double> reals;
    std::vector<const char*> texts;
};

class FuzzedCall {
public:
    virtual ~FuzzedCall() = default;

    /// Drawn legal, and nothing was changed afterwards.
    bool unchanged() const { return unchanged_; }
    /// True for the operator, false for its gradient.
    bool forward() const { return forward_; }
    /// Nothing when the predicate would look at too many elements.
    virtual std::optional<ref::Ruling> ruling() const = 0;
    virtual impl::MaybeRejection rejection() const = 0;
    /// Status of the entry point. Only for calls that are to be rejected: there is no memory.
    virtual int enter() const = 0;
    virtual ArgumentList arguments() const = 0;

protected:
    bool unchanged_ = true, forward_ = true;
};

/// The middle of a page that ends the program when it is touched.
void* no_memory();

/// A copy that ends, with its NUL, right before a page that ends the program when it is read.
/// Valid until the same slot (0, 1) is filled again; at most 4095 characters.
const char* text_before_guard(int slot, std::string_view text);

/// One of the usual layout names and their misspellings, one of up to 4095 characters, or null.
const char* draw_layout(int slot, std::uint8_t which);

/// The array that a validator gets, with values of its own: sizes it must refuse before it reads
/// stay as they are, others are cut to what has memory (most_backed), or filled up to it with the
/// last value. An absent array keeps its size.
ref::ArrayArgument back_array(attncheck_int_array& array, std::vector<std::int64_t>& values,
                              std::int64_t most_accepted, std::int64_t most_backed);

/// Every dtype of the interface and some that are none.
inline constexpr std::int64_t kDtypes[] = {0, 1, 3, 4, 9, 12, 27, 35, 36, 2, 10, -1, 28};

/// Ranks that no tensor here has, and the ends of what a struct holds.
inline constexpr std::int64_t kRanks[] = {0, 9, 8, 1, 2, 3, 4, 5, 7, 10, -1, INT32_MAX, INT32_MIN};

/// Sets an integer of any type to the change's value.
template <class Number>
void apply(const Change& change, Number& number, std::span<const std::int64_t> limits) {
    number = static_cast<Number>(change.value(number, limits));
}

}  // namespace attncheck::fuzz
