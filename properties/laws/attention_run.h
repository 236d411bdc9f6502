// Code that attention laws share: a run of a problem with its outputs in packed order, verdicts on two
// runs, and the way from a law to a property.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "properties/laws/attention_operator.h"
#include "properties/laws/call_properties.h"
#include "properties/laws/law_run.h"

namespace attncheck::properties {

/// One call of the candidate; early_verdict is set when it did not return 0. Refers to the problem.
/// `change` may alter the call before it is made.
struct AttentionRun : LawRun {
    const AttentionOperator& of;
    const AttentionProblem& problem;

    AttentionRun(const AttentionOperator& of, const AttentionProblem& problem,
                 PropertyContext& context, const std::function<void(Call&)>& change = {});
    std::vector<std::string> outputs() const override;
    const Bits& bits(std::string_view name) const override;
    ref::Dtype type(std::string_view name) const override {
        return problem.output_named(name).dtype;
    }
    ExpectedOutputs expected(const ref::RoundingClass& rounding, ref::Grant grant) const override {
        return expected_of(problem, rounding, grant);
    }
    PlaceOf place(const std::string& name) const override {
        return [this, name](std::size_t k) { return problem.place(name, k); };
    }
    bool is_list(const std::string& name) const override {
        return problem.output_named(name).is_list();
    }
    /// Each right for the left problem: what a list depends on is the same in both.
    Verdict verdict_on_open_lists(const LawRun& other, const PropertyContext& context,
                                  const std::string& name, const std::string& relation,
                                  const OutputFilter& compared) const override;
    /// The first lane of a statistic; other outputs as they are.
    std::vector<double> first_lanes(std::string_view name) const;

private:
    std::vector<Bits> bits_;  ///< packed, as problem.outputs()
};

// ---- verdicts; all elements are in packed order ----

/// |left - right| <= allowed; elements with an infinite allowance are not compared.
Verdict verdict_within(const AttentionProblem& problem, const std::string& name,
                       std::vector<double> left, std::vector<double> right,
                       const std::vector<double>& allowed, const std::string& relation);

/// The statistics of every row as a pair, in lanes: row_max + log(row_sum) is the exact LSE, and the
/// sum is at least 1 unless the class says that it may be any (stats=lse). Rows that the reference
/// does not judge, or that see no key, are skipped.
Verdict verdict_on_pair(const AttentionProblem& problem, const std::vector<double>& row_max,
                        const std::vector<double>& row_sum, const ref::RoundingClass& rounding,
                        ref::Grant grant);

/// A row that sees no key and has no sink has LSE = -infinity, neither NaN nor a large number.
Verdict verdict_on_empty_rows(const AttentionProblem& problem, const std::vector<double>& lse);

/// "lse is log2", if the LSE is wrong and times ln 2 it is right in every row.
std::optional<Verdict> lse_of_base_2(const AttentionProblem& problem, const Bits& lse,
                                     const ref::ExpectedTensor& expected);

/// verdict_on_equal_runs for problems that the candidate has still to run.
Verdict verdict_on_equal_problems(const AttentionOperator& of, const AttentionProblem& left,
                                  const AttentionProblem& right, PropertyContext& context,
                                  const std::string& relation);

/// The same within the bounds of both, where the right problem's numbers were rounded on the way:
/// the reference says how far that moves the exact results.
Verdict verdict_on_rounded_problems(const AttentionOperator& of, const AttentionProblem& left,
                                    const AttentionProblem& right, PropertyContext& context,
                                    const std::string& relation);

/// A tensor of the problem in multiples of 1/8, split into whole numbers and the rest: outputs that
/// are linear in the tensor add up, the others keep their bits.
Verdict verdict_on_split(const AttentionOperator& of, AttentionProblem whole,
                         Bits AttentionProblem::*tensor, std::uint64_t seed,
                         PropertyContext& context, const std::string& relation,
                         const std::function<bool(const std::string& output)>& is_linear);

/// Every output of two problems to the bit.
Verdict verdict_on_identical_problems(const AttentionOperator& of, const AttentionProblem& left,
                                      const AttentionProblem& right, PropertyContext& context,
                                      const std::string& relation);

/// Every output of two runs whose arguments differ by powers of two: times 2^exponent, where both are
/// normal numbers; to the bit where it has no exponent. Where products with P or dS may be
/// subnormal, as sums in an open order leave it: such a product decides a tie. Where a declared class has parts of them in
/// fp16, within the bounds of both.
using ExponentOf = std::function<std::optional<int>(const AttentionOutput& output)>;
Verdict verdict_on_powers(const AttentionRun& left, const AttentionRun& right,
                          const PropertyContext& context, const std::string& relation,
                          const ExponentOf& exponent_of);
/// The same within the bounds of both runs, and each list right for its run.
Verdict verdict_within_powers(const AttentionRun& left, const AttentionRun& right, const PropertyContext& context,
                              const std::string& relation, const ExponentOf& exponent_of);

/// Lists of blocks in packed order, and the problem that they belong to.
struct BlockLists {
    const AttentionProblem& problem;
    const Bits& bits;
};

/// Two sets of lists that mean the same: equal, or each right for its problem, since rounding
/// leaves the order of close scores open.
Verdict verdict_on_lists(const AttentionOperator& of, BlockLists left, BlockLists right,
                         const PropertyContext& context, const std::string& relation);

/// True if some P, or some P (g dP - delta) of a gradient, lies between 2^-160 and 2^-100: its products
/// with other numbers may be subnormal, and then they round otherwise when one of these is scaled.
bool has_tiny_terms(const AttentionProblem& problem);

/// The context, with sums in an open order where there are such terms.
PropertyContext open_where_tiny(const AttentionProblem& problem, const PropertyContext& context);

/// True if rounding does not depend on exponents away from subnormal results. Sums kept in fp16 do:
/// small ones are subnormal.
bool rounds_alike_at_every_scale(const AttentionProblem& problem, const PropertyContext& context);

/// True if dS may be cast to fp16, or delta or dK of a head by a declared class. Subnormal numbers of fp16 are within reach:
/// then rounding looks at the size of a number.
bool casts_score_grad_to_fp16(const AttentionProblem& problem, const PropertyContext& context);

// ---- properties ----

using AttentionLaw = Verdict (*)(const AttentionOperator&, const Spec&, PropertyContext&);

Property attention_property(const AttentionOperator& of, std::string name, std::string summary,
                            AttentionLaw law);

/// The case as the laws of a call want it; its data and reference forward are made once.
CaseProblem attention_case(const AttentionOperator& of, const Spec& spec, ref::Grant grant);

/// The properties of a call for an operator's cases; what is left is how its cases are adapted, and
/// the case before.
CallProperties call_properties_of(const AttentionOperator& of);

}  // namespace attncheck::properties
