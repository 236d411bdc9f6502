// A case as an emitted program has it: the call, which keys each row sees, and the bounds. What the
// program is written in is emitted_python.cc's and emitted_c.cc's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "properties/judge/attention_problem.h"
#include "properties/operators/operator.h"

namespace attncheck::properties {

/// Where the rows of a tensor begin: [row, head] in the order of the reference.
struct EmittedRows {
    std::string tensor;
    std::int64_t width = 1;  ///< channels
    std::vector<std::int64_t> first;

    /// One row behind the other.
    bool is_plain() const;
};

/// An attention operator: what its tensors are in the equations of ref/attention/dense_attention.h,
/// and the columns of every row.
struct EmittedAttention {
    struct Row {
        std::int64_t number = 0;  ///< row * query heads + head
        std::vector<ref::KeyColumn> columns;
    };
    bool gradient = false;
    Statistics statistics = Statistics::pair;
    ref::AttentionShape shape;
    double scale = 1, softcap = 0, keep_prob = 1;
    bool has_bias = false;
    std::int64_t bias_elements = 0;  ///< of dbias; 0: it is no output
    std::vector<Row> rows;           ///< those that belong to a sequence
    /// By letter: Q K V dO O top total lse; a tensor of each width where a rope is one of its own.
    std::map<std::string, std::vector<EmittedRows>> inputs;
    /// O top total lse dQ dK dV; sums over rows (dbias, dsink) have none.
    std::map<std::string, std::vector<EmittedRows>> outputs;
    std::vector<std::string> sums;  ///< dbias, dsink, where they are outputs

    double gain(const ref::KeyColumn& column) const { return column.kept ? 1 / keep_prob : 0; }
};

/// Blocks of a compression: each reads `block` tokens from its first one on.
struct EmittedCompression {
    bool gradient = false;
    std::int64_t block = 0;
    std::vector<std::int64_t> first_token;
};

struct EmittedCase {
    std::string line;
    std::string rounding;  ///< the class of the bounds, in words of --precision
    Call call;
    /// Of what is compared, in the order of the call; infinite where overflow excuses an element.
    std::vector<std::pair<std::string, std::vector<double>>> bounds;
    std::optional<EmittedAttention> attention;
    std::optional<EmittedCompression> compression;
    bool is_merge = false;
    /// Expected values of the outputs, for an operator whose equations no program has.
    std::vector<std::pair<std::string, std::vector<double>>> values = {};

    const std::vector<double>* bound_of(const std::string& tensor) const;
    std::vector<const Tensor*> inputs() const;   ///< those that are present
    std::vector<const Tensor*> outputs() const;  ///< likewise
};

/// An input whose elements are not contiguous, row-major; one with so much between them that no program should hold it.
bool is_laid_out(const Tensor& tensor);
bool is_far(const Tensor& tensor);
/// A sentence with the names of the inputs that the program makes contiguous although the case does not; or nothing.
std::string left_out_text(const EmittedCase& made, bool has_strides);

/// With the bounds of that class. Throws UsageError for cases that are too large, have no call of their own, or are
/// edited.
EmittedCase emitted_case(const Operator& op, const Spec& spec, const ref::RoundingClass& rounding);

}  // namespace attncheck::properties
