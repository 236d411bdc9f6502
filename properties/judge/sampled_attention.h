// Attention of full size against the reference of chosen rows and keys: the part that all attention
// operators share. Bounds are those of the whole reference (ref/operators/chosen_attention.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "properties/judge/context.h"
#include "properties/judge/verdict.h"
#include "properties/judge/sampling.h"
#include "ref/operators/chosen_attention.h"

namespace attncheck::properties {

/// A problem in packed order: rows [T1,N1], keys [T2,N2].
struct SampledProblem {
    const Spec* spec = nullptr;
    ref::AttentionShape shape;
    std::vector<std::int64_t> query_lengths, kv_lengths;
    ref::Dtype dtype = ref::Dtype::fp16, result = ref::Dtype::fp16;
    double scale = 1, keep_prob = 1;
    std::vector<double> query, key, value;
    double pairs = 0;  ///< visible pairs of a query row and a key, about
    ref::ColumnLister columns;
    /// At least the columns of these keys; empty: `columns`.
    std::function<ref::ColumnLister(const std::vector<std::int64_t>& keys)> columns_of;
    /// Place of the first element of a row in an output, row-major; the others follow it.
    std::function<std::size_t(const std::string& output, std::int64_t number)> first_element;

    ref::AttentionInputs<double> inputs() const { return {query, key, value, scale, keep_prob}; }
    std::int64_t rows() const { return shape.query_rows * shape.query_heads; }
    /// Products and additions of the forward; the gradient has 2.5 times as many.
    double flops() const {
        return 2 * pairs * static_cast<double>(shape.head_dim + shape.value_dim);
    }
};

/// What the candidate's forward gave, packed, as the gradient gets it.
struct GivenForward {
    std::vector<double> output_grad, output;  ///< [T1,N1,Dv]
    std::vector<double> row_max, row_sum;     ///< [T1,N1]
};

/// Columns [begin, begin + width) of an expectation are rows of this output.
struct OutputPart {
    std::string name;
    std::int64_t begin = 0, width = 0;
};

/// dQ and dK in one or two parts (rope), and dV.
struct GradientOutputs {
    std::vector<OutputPart> query, key, value;
};

/// How an operator runs the problem.
struct SampledCalls {
    bool gradient = false;
    GradientOutputs outputs;
    std::function<Call(bool gradient)> call;  ///< the gradient's after `give` only
    /// Takes what the forward gave, packed, and says what the gradient is given.
    std::function<GivenForward(std::vector<std::uint32_t> output, std::vector<float> row_max,
                               std::vector<float> row_sum)>
        give;
    /// What else the forward's rows have; may be empty.
    std::function<Verdict(const Call& call, const CallResult& result, const RowSample& rows)> more;
};

/// Runs the forward and judges softmax_max, softmax_sum and attention_out; for a gradient then runs
/// it on what the forward gave and judges dQ, dK and dV. A verdict that holds says in its message
/// what was looked at.
Verdict check_sampled(const SampledProblem& problem, const SampledCalls& calls,
                      PropertyContext& context);

/// The time limit and once more for every 10 GFLOP and every 10 million elements of a call, and
/// eight times its tensors of memory beyond the limit.
RunOptions limits_for(const Call& call, double flops);

/// Gives the tensors of a call the layouts of the case, by name; a tensor that the case knows as an
/// input stays dense where it is an output.
void lay_out(const Spec& spec, Call& call);

}  // namespace attncheck::properties
