// The part of an attention operator that a law needs, and nothing else. A law takes the problem of a case,
// changes numbers in it, and calls the operator again: masks, lists, biases and drop bits follow.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "properties/case/random.h"
#include "properties/case/spec.h"
#include "properties/judge/attention_problem.h"

namespace attncheck::properties {

class AttentionOperator {
public:
    virtual ~AttentionOperator() = default;

    /// The problem of a case, edits left out; a gradient has the statistics and output that the
    /// case gives it.
    virtual AttentionProblem problem(const Spec& spec) const = 0;
    /// The same without what its gradient is given, which takes a whole reference.
    virtual AttentionProblem inputs(const Spec& spec) const { return problem(spec); }
    /// The call of a problem, forward or gradient, all layouts dense.
    virtual Call call(const AttentionProblem& problem) const = 0;

    /// The problem with query head n from query_source[n] and key/value head n from kv_source[n].
    virtual AttentionProblem with_heads(const AttentionProblem& problem,
                                        const std::vector<std::int64_t>& query_source,
                                        const std::vector<std::int64_t>& kv_source) const = 0;
    /// One sequence or batch as a separate problem, in one of the ways to write it; nullopt where
    /// the rules do not accept it alone.
    virtual std::optional<AttentionProblem> single_sequence(const AttentionProblem& problem,
                                                            std::size_t sequence,
                                                            Random& random) const = 0;

    /// The problem with the keys of each sequence one behind the other, by position, as tiers and
    /// hypotheses name them; the outputs are the same.
    virtual AttentionProblem in_order(const AttentionProblem& problem) const { return problem; }

    /// Keys [T2,N2] that the mask hides from query row t of a sequence: by default the keys of its
    /// sequence that none of its heads sees.
    virtual std::vector<char> masked_keys(const AttentionProblem& problem, std::int64_t t) const;

    /// The verdict on outputs without an expectation (lists of blocks), in packed order; `relation`
    /// begins the message of a failure.
    virtual Verdict judge_lists(const AttentionProblem& problem, const Bits& lists,
                                const ref::RoundingClass& rounding,
                                ref::Grant grant = ref::Grant::rounding,
                                const std::string& relation = {}) const {
        (void)problem, (void)lists, (void)rounding, (void)grant, (void)relation;
        return {};
    }

    /// Makes a case cheaper, for laws that take two evaluations and more: by default
    /// moderate data and half the queries.
    virtual void with_less_data(Spec& spec, Random& random) const;
    /// Draws the features of a gradient case (mask, bias, dropout) apart from each other, for laws
    /// that hold for every combination; an operator without such features has nothing to draw.
    virtual void with_combination(Spec& spec, Random& random) const { (void)spec, (void)random; }
};

}  // namespace attncheck::properties
