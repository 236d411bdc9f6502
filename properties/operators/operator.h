// The part of an operator that the engine needs, and nothing else: fields, generator,
// legality, how a Spec becomes a call, the documented ruling on a call, and the properties.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/call.h"
#include "properties/case/derived.h"
#include "properties/case/random.h"
#include "properties/case/spec.h"
#include "properties/laws/property.h"
#include "properties/operators/excluded_pairs.h"

namespace attncheck::properties {

class AttentionOperator;

/// The label of a call with edited arguments, the only one that is counted for it.
inline constexpr const char* kEditedLabel = "edited";

/// A class of cases that a run must reach, as a share of the operator's unedited cases.
struct RequiredClass {
    std::string label;
    double min_percent = 0;
    bool combination = false;  ///< of other classes, or a rare one: no pairs are counted
};

class Operator {
public:
    virtual ~Operator() = default;
    virtual const Schema& schema() const = 0;
    virtual const std::vector<Property>& properties() const = 0;
    virtual const std::vector<RequiredClass>& required_classes() const = 0;
    virtual std::vector<std::string> labels(const Spec& spec) const = 0;

    /// Found by a long search (attncheck_pair_search), not typed.
    std::vector<ExcludedPairs> excluded_pairs() const { return excluded_pairs_of(name()); }

    /// Why the Spec is no legal problem (relations between fields), or nullopt. Edits play no
    /// role.
    virtual std::optional<std::string> illegal(const Spec& spec) const {
        return properties::illegal(spec);
    }

    /// A random legal Spec, biased to the boundaries where kernels break; size 0..100 scales
    /// extents.
    Spec sample(Random& random, int size, Profile profile = Profile::ascend910b) const;

    /// A case of what people run: usual widths, dense tensors, normal data. Every property begins with some.
    Spec plain(Random& random, Profile profile) const;

    /// Candidates for shrinking that need knowledge of the operator (joint moves); the general ones
    /// are in shrink.h.
    virtual std::vector<Spec> joint_shrinks(const Spec& spec) const {
        (void)spec;
        return {};
    }

    /// Carries the overrides of `from` over to `to`, whose sequences are those of `from` listed in
    /// kept (index into from's list for each entry of to's), so that an element keeps its sequence
    /// and position; drops what is outside.
    virtual void carry_overrides(const Spec& from, Spec& to, const std::vector<int>& kept) const {
        properties::carry_overrides(from, to, kept);
    }

    /// Shapes of all tensors, in schema order.
    virtual std::vector<std::vector<std::int64_t>> shapes(const Spec& spec) const {
        return shapes_of(extents_of(spec));
    }

    /// The call, edits applied. Inputs hold their values, already rounded to the storage type.
    virtual Call build(const Spec& spec) const { return schema().build(spec); }

    /// The call without the values of its elements: cheap however large the case is.
    virtual Call outline(const Spec& spec) const {
        return schema().entry.pack ? outline_of(extents_of(spec), spec.layouts) : build(spec);
    }

    /// Cases of full size for the property `sampled`, about `length` tokens each; none: the
    /// operator has no such property.
    virtual std::vector<Spec> large_cases(std::int64_t length, std::uint64_t seed) const {
        (void)length, (void)seed;
        return {};
    }

    /// As the laws and tiers of attention see it; none: it is no attention operator.
    virtual const AttentionOperator* attention() const { return nullptr; }

    /// Expected values of the case's outputs and their bounds, by name; nullopt where they depend on
    /// what was computed before (lists of blocks, compositions).
    virtual std::optional<ExpectedOutputs> expected(const Spec& spec,
                                                    const ref::RoundingClass& rounding) const;

    /// Name, shape and values of the tensors by the index that overrides use.
    std::vector<Tensor> logical_tensors(const Spec& spec) const {
        return schema().entry.pack ? properties::logical_tensors(spec, build(spec))
                                   : build(spec).tensors;
    }

    const std::string& name() const { return schema().op; }

    /// What a candidate must export for this to be checked: its own entry point, unless it is a
    /// composition.
    virtual std::vector<std::string> entry_points() const { return {name()}; }
    /// Runs the entry points of other operators and has none of its own.
    bool is_composition() const { return entry_points().size() > 1; }
    bool implemented_by(const CandidateInfo& candidate) const;
    const Property* property(std::string_view name) const;

protected:
    /// Only the fields of a plain case that are not those of every drawn one.
    virtual Spec draw_plain(Random& random, Profile profile) const;

private:
    virtual Spec draw(Random& random, int size, Profile profile) const = 0;
};

/// The length of a large case that costs no more than linearly in it: from the default of `--large` on, beyond what 16 bits count.
inline std::int64_t long_where_linear(std::int64_t length) {
    constexpr std::int64_t kDefault = 16'384, kBeyondSixteenBits = 65'536;
    return length >= kDefault ? std::max(length, kBeyondSixteenBits) : length;
}

/// An operator as data, for one that needs no more than these functions.
struct OperatorParts {
    const Schema& schema;
    std::vector<Property> properties = {};
    std::vector<RequiredClass> required = {};
    std::vector<std::string> (*labels)(const Spec& spec);
    Spec (*draw)(const Schema& schema, Random& random, int size, Profile profile);
    std::vector<Spec> (*joint_shrinks)(const Spec& spec) = nullptr;  ///< see Operator::joint_shrinks
    std::vector<Spec> (*large_cases)(const Schema& schema, std::int64_t length,
                                     std::uint64_t seed) = nullptr;
    void (*carry_overrides)(const Spec& from, Spec& to,
                            const std::vector<int>& kept) = properties::carry_overrides;
    Spec (*plain)(const Schema& schema, Random& random) = nullptr;  ///< see Operator::plain
    const AttentionOperator& (*attention)() = nullptr;
    /// See Operator::expected; attention operators need none.
    ExpectedOutputs (*expected)(const Spec& spec, const ref::RoundingClass& rounding) = nullptr;
    /// See Operator::entry_points; without it the one of its own name.
    const std::vector<std::string>& (*entry_points)() = nullptr;
};
std::unique_ptr<Operator> make_operator(OperatorParts parts);

}  // namespace attncheck::properties
