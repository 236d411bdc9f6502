// Attention problems that an operator makes from parts of its own: what it changes and builds again.
//
//   struct SelectedParts : AttentionParts { ref::SelectedAttentionShape shape; ... };
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "properties/case/attention_inputs.h"
#include "properties/laws/attention_operator.h"

namespace attncheck::properties {

/// The values, and in a struct derived from it what the operator has beyond them.
struct AttentionParts : AttentionValues, AttentionExtras {};

template <class Parts>
const Parts& extras_of(const AttentionProblem& problem) {
    return static_cast<const Parts&>(*problem.extras);
}

/// The parts that make such a problem, its numbers among them.
template <class Parts>
Parts parts_of(const AttentionProblem& problem) {
    Parts parts = extras_of<Parts>(problem);
    static_cast<AttentionValues&>(parts) = problem;
    return parts;
}

/// The values of the parts become the problem's, what is left its extras.
template <class Parts>
std::shared_ptr<const Parts> hold(AttentionProblem& problem, Parts parts) {
    static_cast<AttentionValues&>(problem) =
        std::exchange(static_cast<AttentionValues&>(parts), AttentionValues{});
    auto extras = std::make_shared<const Parts>(std::move(parts));
    problem.extras = extras;
    return extras;
}

/// Query head n from query_source[n], key/value head n from kv_source[n].
void move_heads(AttentionValues& values, const ref::AttentionShape& shape,
                const std::vector<std::int64_t>& query_source,
                const std::vector<std::int64_t>& kv_source);

/// The rows of sequence b alone.
void keep_sequence(AttentionValues& values, const ref::AttentionShape& shape,
                   const std::vector<std::int64_t>& query_lengths,
                   const std::vector<std::int64_t>& kv_lengths, std::size_t b);

/// The values of the inputs of a case, its overrides applied; a rope stands behind the head dim.
void fill_values(const Spec& spec, const InputRecipe& how, AttentionValues& values);

/// What fields `stats` and `out` of a case do to what its gradient is given.
void alter_given(const Spec& spec, AttentionValues& values);

/// Gives the gradient of a case statistics and output: those of the reference forward, altered.
void complete_gradient(const Spec& spec, AttentionProblem& problem);

/// Statistics and output that a gradient is given, as another problem has them.
void give_the_same(const AttentionValues& from, AttentionValues& to);

/// Gives the inputs of a call their values, in the order of memory. `own` knows those that are no
/// numbers of the problem: mask, bias, drop bits, lists.
void give_values(const AttentionValues& values, const Extents& extents, Call& call,
                 const std::function<void(Role role, Tensor& tensor)>& own);

}  // namespace attncheck::properties
