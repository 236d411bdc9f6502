// A run as relations see it, whatever the operator, and what follows for one run, two or three: sums,
// powers of two, rearranged outputs, products with what a gradient belongs to.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/laws/relation_checks.h"
#include "ref/attention/dense_attention.h"

namespace attncheck::properties {

/// One call of the candidate; early_verdict is set when it did not return 0.
class LawRun {
public:
    std::optional<Verdict> early_verdict;

    virtual ~LawRun() = default;
    /// The outputs that relations compare.
    virtual std::vector<std::string> outputs() const = 0;
    virtual const std::vector<std::uint32_t>& bits(std::string_view output) const = 0;
    virtual ref::Dtype type(std::string_view output) const = 0;
    /// Of its outputs; lists have no expectation.
    virtual ExpectedOutputs expected(const ref::RoundingClass& rounding, ref::Grant grant) const = 0;
    /// The words of the case for an element.
    virtual PlaceOf place(const std::string& output) const = 0;
    virtual bool is_list(const std::string& output) const;
    /// A list of this run and that of another one, both of which sums in any order (order=any) may move:
    /// right or not.
    virtual Verdict verdict_on_open_lists(const LawRun& other, const PropertyContext& context,
                                          const std::string& output, const std::string& relation,
                                          const OutputFilter& compared) const;

    std::vector<double> values(std::string_view output) const {
        return decode_all(type(output), bits(output));
    }
};

/// The candidate does not take the call: where there are several ways to write it, another may be tried.
inline bool is_declined(const LawRun& run) {
    return run.early_verdict && run.early_verdict->kind == Verdict::Kind::declined;
}

/// A run of one call, with outputs as the call has them.
struct CallRun : LawRun {
    using Expectation = std::function<ExpectedOutputs(const ref::RoundingClass&)>;
    Spec spec;  ///< for the words of the case
    Call call;
    CallResult result;
    Expectation expectation;

    explicit CallRun(Spec of) : spec(std::move(of)) {}
    CallRun(Spec of, Call made, PropertyContext& context, Expectation values)
        : spec(std::move(of)),
          call(std::move(made)),
          result(context.candidate.run(call, {})),
          expectation(std::move(values)) {
        early_verdict = verdict_unless_ok(result);
    }
    /// All that the call asks for.
    std::vector<std::string> outputs() const override;
    ExpectedOutputs expected(const ref::RoundingClass& rounding, ref::Grant) const override {
        return expectation(rounding);
    }
    const std::vector<std::uint32_t>& bits(std::string_view output) const override {
        return result.outputs[tensor_index(call, output)];
    }
    ref::Dtype type(std::string_view output) const override { return call.tensor(output).type(); }
    PlaceOf place(const std::string& output) const override {
        return [this, output](std::size_t k) { return place_of(spec, call, output, k); };
    }
};

/// An output of a run, and what its elements may be off by.
struct BoundedOutput {
    std::vector<double> values, allowed;

    BoundedOutput(std::vector<double> of, std::vector<double> off_by)
        : values(std::move(of)), allowed(std::move(off_by)) {}
    BoundedOutput(const LawRun& run, const ExpectedOutputs& expected, const std::string& output)
        : values(run.values(output)), allowed(allowance(tensor_of(expected, output))) {}
    /// Adds <elements from `first` on, weights> to a side of a sum.
    void add_product(std::size_t first, std::span<const double> weights, std::vector<double>& side,
                     Identity& identity, std::size_t slot) const;
};

/// One output of two runs to the bit, or as sums in an open order leave it (order=any): within two
/// bounds of the left run. Elements for which `compared` is false are skipped.
Verdict verdict_on_equal_bits(const LawRun& left, const LawRun& right,
                              const PropertyContext& context, const std::string& output,
                              const std::string& relation, const OutputFilter& compared = {});

/// Every output of two runs to the bit, or as sums in an open order leave it: likewise, and each list
/// right for its run.
Verdict verdict_on_equal_bits(const LawRun& left, const LawRun& right,
                              const PropertyContext& context, const std::string& relation,
                              const OutputFilter& compared = {});

/// left * 2^exponent == right for one output, where both stay away from subnormal and infinite
/// numbers; likewise.
Verdict verdict_on_scaled(const LawRun& left, const LawRun& right, const PropertyContext& context,
                          const std::string& output, int exponent, const std::string& relation);

/// Every output but lists, within twice the bound of the left run.
Verdict verdict_on_equal_runs(const LawRun& left, const LawRun& right,
                              const PropertyContext& context, const std::string& relation);

/// An output of one run in the order of the other, or summed to it.
using MovedOutput =
    std::function<std::vector<double>(const std::string& output, const std::vector<double>& values)>;

/// Every output but lists that both have, within the bounds of both added. What is moved has the
/// words of the other run for its elements.
Verdict verdict_within_both(const LawRun& left, const LawRun& right,
                            const PropertyContext& context, const std::string& relation,
                            const MovedOutput& moved_left = {},
                            const MovedOutput& moved_right = {});

/// As verdict_on_equal_runs, where the right run has the outputs of the left one in another order.
Verdict verdict_on_moved_runs(const LawRun& left, const LawRun& right,
                              const PropertyContext& context, const std::string& relation,
                              const MovedOutput& moved);

/// Elements [first, first + count) of an output of the whole run against the first ones of a run of
/// that part alone, which has the same rows: within twice the bound of the whole.
Verdict verdict_on_part(const LawRun& whole, const LawRun& part, const ExpectedOutputs& expected,
                        const std::string& output, std::size_t first, std::size_t count,
                        const std::string& relation);

/// Outputs that are linear in what was split between two runs: their sum is that of the whole, within
/// the bounds of the three. An output for which `is_linear` is false is the same in all of them.
Verdict verdict_on_sum(const LawRun& first, const LawRun& second, const LawRun& whole,
                       const PropertyContext& context, const std::string& relation,
                       const std::function<bool(const std::string& output)>& is_linear = {});

/// Numbers as whole ones of size at most 3 and the rest; false where the rest cannot be stored
/// exactly.
bool split_exactly(ref::Dtype dtype, const std::vector<std::uint32_t>& whole, Random& random,
                   std::vector<std::uint32_t>& first, std::vector<std::uint32_t>& second);

/// Whole numbers of size at most `most`.
std::vector<double> whole_numbers(std::size_t count, std::int64_t most, Random& random);

}  // namespace attncheck::properties
