// Gradients of what is added to a logit: a bias, whose elements may serve many pairs of query and
// key, and a sink, which serves all rows of its head.
//
//   dbias_e = sum of dS over the pairs of element e        dsink_h = -sum_i P_i,sink delta_i
//
// A sink is a column whose dP is 0, so both are sums of dS; both are taken before the factor of a
// softcap.
#pragma once

#include <vector>

#include "ref/attention/row_gradients.h"

namespace attncheck::ref {

/// The sums by element, with the error of their terms.
class LogitSums {
public:
    explicit LogitSums(std::size_t elements)
        : value_(elements), error_(elements), size_(elements), terms_(elements), unjudged_(elements) {}

    /// All columns that have a place.
    void add_bias(const SharedRows<double>& rows, const RowGradients& of);
    /// The sinks, by query head: the last column of each row.
    void add_sinks(const AttentionShape& shape, const SharedRows<double>& rows,
                   const RowGradients& of, const AttentionRoundoff& roundoff);
    void add(const LogitSums& other);

    /// |x^ - x| <= sum of errors + gamma_n (sum |dS| + errors), stored as `dtype`.
    ExpectedTensor finish(Dtype dtype, const AttentionRoundoff& roundoff) const;

private:
    void add_term(std::size_t element, const RowGradients& of, std::int64_t i, std::int64_t j);

    std::vector<double> value_, error_, size_, terms_;
    std::vector<char> unjudged_;
};

}  // namespace attncheck::ref
