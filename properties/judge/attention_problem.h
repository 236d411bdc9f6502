// The attention problem: any attention operator as the oracle sees it. Tiers, hypotheses, full-size
// sampling and every attention law are written against it, once for all operators.
//
// Legend: T1 query rows, T2 key rows, N1 query heads, N2 key/value heads, D head dim (a rope stands
// behind it in every row), Dv value dim. Packed order is [rows, heads, width], sequence after
// sequence, whatever the layout of the call.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "properties/judge/verdict.h"
#include "ref/attention/dense_attention.h"

namespace attncheck::properties {

using Bits = std::vector<std::uint32_t>;  ///< elements as stored, one per word

/// Columns [begin, begin + width) of an output's packed rows are the rows of this tensor.
struct OutputPart {
    std::string tensor;
    std::int64_t begin = 0, width = 0;
};

/// An output in packed order, and the place of its rows in the tensors of the call.
struct AttentionOutput {
    std::string name;
    Role role = Role::other;
    ref::Dtype dtype = ref::Dtype::fp16;
    std::int64_t heads = 1, width = 1;
    bool of_keys = false;              ///< rows are keys, heads are key/value heads
    const char* column = "channel";    ///< or "lane", "entry"
    std::vector<OutputPart> parts;     ///< one, or two where a rope is a tensor of its own
    /// Number of packed row `number` (row * heads + head) in memory; empty: the same.
    std::function<std::int64_t(std::int64_t number)> row_in_call = {};
    /// No rows of queries or keys: every element is a sum over many of them (dbias, dsink), for
    /// [leading, heads, width].
    bool is_sum = false;

    bool is_lse() const { return role == Role::lse; }
    bool is_statistic() const { return properties::is_statistic(role); }
    bool is_row_max() const { return role == Role::row_max; }
    bool is_row_sum() const { return role == Role::row_sum; }
    bool is_logit_grad() const { return role == Role::query_grad || role == Role::key_grad; }
    bool is_value_grad() const { return role == Role::value_grad; }
    bool is_list() const { return role == Role::list; }
    bool of_kv_heads() const { return of_keys || is_list(); }
    /// Row-major place of the first element of a packed row in a tensor; the others follow it.
    std::size_t first_element(const OutputPart& part, std::int64_t number) const {
        return static_cast<std::size_t>((row_in_call ? row_in_call(number) : number) * part.width);
    }
};

/// What an operator has beyond the problem: masks, lists of blocks, biases as given. Only the
/// operator reads it.
struct AttentionExtras {
    virtual ~AttentionExtras() = default;
};

/// What a forward says of its softmax, and its gradient is given.
enum class Statistics {
    pair,  ///< row_max and row_sum
    lse,   ///< one number: row_max is the LSE, row_sum 1
    none   ///< nothing: the gradient forms its own
};

/// The numbers of a problem.
struct AttentionValues {
    bool gradient = false;
    ref::Dtype dtype = ref::Dtype::fp16;   ///< of query, key, value, output_grad
    ref::Dtype result = ref::Dtype::fp16;  ///< of output and gradients
    Bits query, key, value;                ///< [T1,N1,D], [T2,N2,D], [T2,N2,Dv]
    Bits output_grad, output;              ///< [T1,N1,Dv], the gradient's own
    std::vector<float> row_max, row_sum;   ///< [T1,N1], the gradient's own
    std::vector<std::string> withheld;     ///< optional outputs that the case does not ask for
};

struct AttentionNumbers;
struct AttentionProblem;

/// What an argument may be taken for, as the columns that follow.
struct Misreading {
    std::string text;
    ref::ColumnLister columns;
};

struct AttentionProblem : AttentionValues {
    ref::AttentionShape shape;
    /// Columns with bias and dropout; depends on the extras, not on the numbers below.
    ref::ColumnLister columns;
    std::vector<std::int64_t> query_lengths, kv_lengths;
    const char* sequence_word = "sequence";  ///< or "batch"
    double scale = 1, keep_prob = 1;         ///< narrowed to fp32
    double softcap = 0;                      ///< narrowed likewise; 0: none
    std::vector<double> sink;                ///< [N1]; empty: none
    Statistics statistics = Statistics::pair;
    std::string output_name = "attention_out";  ///< of the output among forward_outputs
    std::size_t bias_elements = 0;  ///< of the gradient of a bias, where it is an output
    std::int64_t bias_row = 1;      ///< of these elements lie in a row: one query, or all
    ref::Dtype bias_dtype = ref::Dtype::fp32;
    std::vector<AttentionOutput> forward_outputs, gradient_outputs;
    std::shared_ptr<const AttentionExtras> extras;
    /// Of the operator's own arguments; nullptr: none are known. Asked after a failure only.
    std::vector<Misreading> (*misreadings)(const AttentionProblem& problem) = nullptr;

    const std::vector<AttentionOutput>& outputs() const {
        return gradient ? gradient_outputs : forward_outputs;
    }
    const AttentionOutput& output_named(std::string_view name) const;
    bool gives(std::string_view name) const {
        return std::ranges::find(outputs(), name, &AttentionOutput::name) != outputs().end();
    }
    std::int64_t query_rows() const { return shape.query_rows * shape.query_heads; }
    std::int64_t key_rows() const { return shape.kv_rows * shape.kv_heads; }
    /// What the reference takes. Refers to the problem and to its numbers.
    ref::AttentionForward<double> forward(const AttentionNumbers& numbers) const;
    ref::AttentionBackward backward(const AttentionNumbers& numbers) const;
    /// "[sequence 1, query 3, head 0, channel 2]" for packed element k of an output.
    std::string place(std::string_view output, std::size_t k) const;
};

/// Both numbers of every row: one alone has no meaning where only their LSE is defined.
inline bool gives_statistics(const AttentionProblem& problem) {
    return problem.gives("softmax_max") && problem.gives("softmax_sum");
}

/// The outputs that every attention operator has: statistics [T1,N1,8] or the LSE [T1,N1], the
/// output, dq, dk, dv; without those that the case does not ask for.
void add_attention_outputs(AttentionProblem& problem);

/// A lister that is cheap to copy.
ref::ColumnLister shared_columns(ref::ColumnLister columns);

/// The numbers of a problem in binary64, as the reference takes them.
struct AttentionNumbers {
    std::vector<double> query, key, value, output_grad, output, row_max, row_sum;
    double scale, keep_prob, softcap;
    std::span<const double> sink;  ///< the problem's

    explicit AttentionNumbers(const AttentionProblem& problem);
    ref::AttentionInputs<double> inputs() const {
        return {query, key, value, scale, keep_prob, softcap, sink};
    }
    ref::AttentionGradInputs gradient_inputs() const {
        return {inputs(), output_grad, output, row_max, row_sum};
    }
};

/// Statistics and attention output of the reference forward, rounded to their types.
void give_reference_forward(AttentionProblem& problem);

/// An LSE [T1,N1] as the statistics of a gradient; -infinity is a row that sees nothing.
void take_lse(const std::vector<float>& lse, AttentionValues& values);

/// A NaN or an infinity among the numbers of the problem.
bool has_non_finite(const AttentionProblem& problem);
/// The same of its keys and values alone.
bool has_non_finite_keys(const AttentionProblem& problem);

/// The class for this problem: with fp8 inputs P and dS may be rounded to their type (contract.md,
/// decision 10).
ref::RoundingClass with_casts(const AttentionProblem& problem, ref::RoundingClass rounding);

/// Expected outputs in packed order; topk_indices has none. Where a hidden key is multiplied by 0
/// (hidden=times_zero), what a NaN or an infinity of a hidden pair may reach is not judged.
ExpectedOutputs expected_of(const AttentionProblem& problem, const ref::RoundingClass& rounding,
                            ref::Grant grant = ref::Grant::rounding);
/// Expected gradients of other numbers than the problem's, or of numbers with errors.
ExpectedOutputs expected_of(const AttentionProblem& problem, const ref::AttentionGradInputs& in,
                            const ref::RoundingClass& rounding,
                            ref::Grant grant = ref::Grant::rounding);

/// Packed expectations as those of the tensors of the call.
ExpectedOutputs in_call_order(const AttentionProblem& problem, const ExpectedOutputs& packed);

/// An output of a call in packed order.
Bits packed_bits(const AttentionOutput& output, const Call& call, const CallResult& result);

}  // namespace attncheck::properties
