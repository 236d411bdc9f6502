// AttentionMerge as cases: parts of attention and their log-sum-exps become one.
//
//   attention_merge{dtype=bf16 parts=3 rows=2 heads=4 dim=64 weights=wide dead=some data=normal
//   seed=7}
//
// `weights` says how the lses of a row differ, `shift` what they have in common, `dead` which of
// them are -infinity. Parts that are dead hold NaN.
#pragma once

#include <limits>
#include <memory>

#include "properties/judge/verdict.h"
#include "properties/operators/operator.h"
#include "ref/operators/attention_merge.h"

namespace attncheck::properties {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum class MergeWeights { equal, near, wide, far, dominant };
enum class MergeShift { none, high, low };
enum class MergeDead { none, some, most, rows };

/// Dense bits of one problem, to be changed and run.
struct MergeProblem {
    ref::Dtype dtype = ref::Dtype::fp16;
    ref::MergeShape shape;
    std::vector<std::uint32_t> parts;  ///< [P,R,H,Dv]
    std::vector<std::uint32_t> lses;   ///< [P,R,H]
    bool gives_lse = true;             ///< the output lse is present
    std::vector<std::int64_t> fields;  ///< of the case; none: all at their simplest

    MergeProblem() = default;
    explicit MergeProblem(const Spec& spec);
    explicit MergeProblem(const Call& call);

    std::vector<double> part_values() const { return ref::decode_all(dtype, parts); }
    std::vector<double> lse_values() const { return ref::decode_all(ref::Dtype::fp32, lses); }
    std::size_t row_count() const { return static_cast<std::size_t>(shape.rows * shape.heads); }
    ref::ExpectedMerge expected(const ref::RoundingClass& rounding) const;
    Call call() const;  ///< in dense layouts
};

/// The outputs by name, those that are present.
ExpectedOutputs outputs_of(ref::ExpectedMerge expected, bool gives_lse);

const Description& merge_description();
Call build_merge_call(const Spec& spec);  ///< with its edits
/// True where every part of the row is dead.
std::vector<bool> empty_rows(const MergeProblem& problem);

std::vector<Property> merge_properties();

std::unique_ptr<Operator> make_attention_merge();

}  // namespace attncheck::properties
