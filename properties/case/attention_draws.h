// What the generators of attention operators draw and count alike.
#pragma once

#include <vector>

#include "properties/case/random.h"
#include "properties/case/spec.h"

namespace attncheck::properties {

std::int64_t total(const std::vector<std::int64_t>& lengths);

/// Multiply-adds of the forward's two products, plus the elements that have to be made: `pairs` of
/// query and key for each query head, `dims` channels for each of them.
std::int64_t attention_cost(const Spec& spec, std::int64_t pairs, std::int64_t dims);

/// Removes sequence b from all lists.
void remove_sequence(Spec& spec, std::size_t b);

/// Layouts for this share of the tensors of this share of the cases, in percent; `most` is the last
/// one that an input may have.
void draw_layouts(Spec& spec, Random& random, Layout most = Layout::broadcast, int cases = 35,
                  int tensors = 40);

/// Fields `stats` and `out` of a gradient, with these chances in percent.
void draw_given(Spec& spec, Random& random, int stats, int out);

/// At least two key/value heads, with smaller groups where they are new; at least two query heads
/// for each.
void with_more_heads(Spec& spec, Random& random);
void with_larger_group(Spec& spec, Random& random);

/// Copies of a case with a change, for shrinking.
class ChangedCases {
public:
    explicit ChangedCases(const Spec& spec) : spec_(spec) {}

    template <class Change>
    void with(Change&& change) {
        Spec to = spec_;
        change(to);
        out_.push_back(std::move(to));
    }
    /// The key/value heads become members of one group.
    void with_one_group();

    std::vector<Spec> take() { return std::move(out_); }

private:
    const Spec& spec_;
    std::vector<Spec> out_;
};

}  // namespace attncheck::properties
