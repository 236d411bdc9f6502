// P and dS of rows that share their keys, and what each number may be wrong by: the part of the
// bound of a gradient that belongs to one (row, column).
#pragma once

#include "ref/attention/attention_roundoff.h"
#include "ref/attention/shared_rows.h"

namespace attncheck::ref {

/// Of g rows with c keys.
struct RowGradients {
    Matrix<double> output_grad, key_size;  ///< [g,Dv], [c,D]: dO, |K|
    Array prob, score_grad, weight;        ///< [g,c]: P, dS', P g
    Array score_grad_error;                ///< [g,c]: error of dS' that is the column's own
    Array slope;        ///< [g,c]: 1 - tanh^2 of the softcap; empty: there is none, dS' = dS
    Array slope_prob;   ///< [g,c]: P (1 - tanh^2)
    Array logit_grad, logit_grad_error;    ///< [g,c]: dS where it is not dS'
    Array prob_error;                      ///< [g,c]: error of P g as it enters dV
    Eigen::ArrayXd delta_error;            ///< [g]: of delta, the same number for the whole row
    std::vector<char> unjudged;            ///< [g]

    bool has_slope() const { return slope.size() > 0; }
    /// What the error of delta is multiplied with in dS': P, or P (1 - tanh^2).
    const Array& delta_weight() const { return has_slope() ? slope_prob : prob; }
    const Array& bias_grad() const { return has_slope() ? logit_grad : score_grad; }
    const Array& bias_grad_error() const { return has_slope() ? logit_grad_error : score_grad_error; }
};

class RowGradientBound {
public:
    RowGradientBound(const AttentionBackward& backward, const Precision& precision, Grant grant);

    /// The rows, or some of their columns.
    ///
    ///   S = scale Q K^T + bias   P = exp(S - m) / l   dP = g (dO V^T)   delta = sum dO O
    ///   dS = P (dP - delta)      dS' = dS, or with a softcap dS (1 - tanh^2)
    const RowGradients& measure(const SharedRows<double>& rows);

private:
    /// A finite number out of range in the middle of a row: nothing can be said about the row.
    /// 2^-8 pays for the errors that `magnitude` leaves out.
    void check_range(double magnitude, double largest) {
        if (std::isfinite(magnitude) && magnitude >= largest * (1 - 0x1p-8)) leave_row();
    }
    void check_range(double magnitude) { check_range(magnitude, roundoff_.largest); }
    void leave_row() { out_.unjudged[static_cast<std::size_t>(row_)] = true; }

    void measure_row();

    /// |S^ - S|.
    double score_error_of(std::int64_t j) const;

    /// delta = <dO, O> with the output as given.
    void measure_delta();

    /// forward=own: autograd may form delta as sum_j P_j dP_j, which errs by what dP does besides
    /// what the output it stands for may be wrong by.
    double delta_error_of_products() const;
    double prob_grad_weight() const;   ///< sum_j P_j sum |dO V|
    double prob_grad_of_errors(double m, double l, double log_sum) const;  ///< sum_j |P^_j - P_j| sum |dO V|, at most
    double finite_prob_grads() const;  ///< sum_j sum |dO V|

    /// The largest logits of a lattice row have the same bias, which makes all their P err alike.
    bool has_equal_tops(double largest) const;
    double bias_error(double largest) const;  ///< of P, relative

    /// A lattice row needs dP and delta that fp32 leaves alone, in any order.
    bool are_products_exact() const;

    /// And P, dS and scale dS that their cast leaves alone.
    bool exact_in_storage() const;

    /// |dS^ - dS| without the part p delta-error that is common to the row, and |P^ - P|.
    double raised_prob(std::int64_t j, double m, double l, double log_sum) const;  ///< the largest P^_j
    void measure_errors(std::int64_t j, double m, double l, double log_sum);

    /// The same for dS' from `before`, the error of dS but for its cast; x = |dP - delta|.
    void measure_slope_error(std::int64_t j, double before, double x);

    /// What a dS of at least this size loses near zero as it is cast, before or after the scale.
    double score_grad_loss(double least) const;

    /// |dP^ - dP| where size = g sum |dO v|.
    double prob_grad_error_of(std::int64_t j, double size) const;

    const AttentionShape& shape_;
    const AttentionGradInputs& in_;
    Dtype dtype_;
    AttentionRoundoff roundoff_;
    ScoreError score_error_;
    TensorRange value_, output_grad_, output_;
    Grant grant_;
    double scale_, keep_, softcap_;

    RowGradients out_;
    const SharedRows<double>* rows_ = nullptr;
    std::int64_t row_ = 0;  ///< of the group
    double delta_ = 0, delta_size_ = 0, given_error_ = 0;
    double prob_error_ = 0;                      ///< of the row's statistics
    Array logits_, prob_grad_, prob_grad_size_;  ///< [g,c]: S, dP, and its sum of |dO v|
    Array scores_;                               ///< [g,c]: S before a softcap; empty: none
    Matrix<double> magnitude_;                   ///< [g,c]: sum |q k|
};

}  // namespace attncheck::ref
