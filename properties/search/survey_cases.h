// The cases that a survey makes up: an accepted case with another value, and as little of a declined
// case as keeps what is asked of it. Makes no call.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "properties/operators/operator.h"
#include "properties/search/scope.h"

namespace attncheck::properties {

/// Sizes that people have, the most common first.
inline constexpr std::int64_t kPopular[] = {64, 128, 96, 80, 32, 256, 16, 192, 8, 2, 1, 3};

class SurveyCases {
public:
    /// Some aspects by number, with a value each.
    using Values = std::vector<std::pair<std::size_t, std::int64_t>>;

    /// A case with a value that is to be tried.
    struct Probe {
        Spec spec;
        bool alone;  ///< nothing else but what must stay equal to the value differs
    };

    /// Refers to all three; `pool` are generated cases, to which others may be added behind.
    SurveyCases(const Operator& op, const Scope& scope, const std::vector<Spec>& pool)
        : op_(op), scope_(scope), pool_(pool) {}

    const Spec& anchor() const { return scope_.accepted().front(); }
    /// Of all tensors.
    std::int64_t elements(const Spec& spec) const;
    /// And small enough to be made in a millisecond or two.
    bool is_legal(const Spec& spec) const;
    bool has(const Spec& spec, const Values& values) const;
    /// Aspects in which a case is unlike an accepted one.
    Values differences(const Spec& spec, const Spec& base) const;

    /// Values to try, those of the generator by frequency, popular sizes before them.
    std::vector<std::int64_t> values_of(const Aspect& aspect) const;
    /// An accepted case with another value of one aspect; what was equal in it stays equal. Where that
    /// is no legal case, a generated one with this value and as little else as can be.
    std::optional<Probe> with(std::size_t aspect, std::int64_t value, const Spec& base) const;
    /// Where the aspect is that two sizes or lengths are equal and the value that they are not: the accepted case with
    /// several other ones, such as half or twice as much; one that is declined may be refused for itself. Else `with`.
    std::vector<Probe> all_with(std::size_t aspect, std::int64_t value, const Spec& base) const;
    /// The case with every part of an accepted one that it can have while `keeps` holds.
    Spec reduced(const Spec& from, const Spec& base,
                 const std::function<bool(const Spec&)>& keeps) const;

private:
    /// Of a generated case: asked for once for every value that is tried.
    struct Known {
        bool is_legal;
        std::vector<std::int64_t> values;  ///< of each aspect
    };
    const std::vector<Known>& known() const;
    const Spec* likeliest(std::size_t aspect, std::int64_t value) const;
    void keep_relations(Spec& spec, std::size_t changed) const;
    std::optional<std::pair<std::size_t, std::size_t>> related_fields(const Aspect& aspect) const;
    bool relates_lengths(const Aspect& aspect) const;
    std::vector<std::pair<std::size_t, std::size_t>> coupled_parts() const;

    const Operator& op_;
    const Scope& scope_;
    const std::vector<Spec>& pool_;
    mutable std::vector<Known> known_;  ///< of the first ones of the pool
};

}  // namespace attncheck::properties
