// P and dS of rows that share their keys, from the statistics and the output that are given; see dense_attention.h.
#pragma once

#include "ref/attention/shared_rows.h"

namespace attncheck::ref {

/// Of g rows with c keys; numbers without their errors.
struct ScoreGradients {
    Matrix<double> output_grad;             ///< [g,Dv]: dO
    Eigen::ArrayXd row_max, log_sum, delta;  ///< [g]: m, log l, <dO, O>
    Array plain;                            ///< [g,c]: scale Q K^T
    Array capped, slope;                    ///< [g,c]: c tanh(plain / c), 1 - tanh^2; empty without a softcap
    Array logits, prob, prob_grad, centred;  ///< [g,c]: S, P, dP, dP - delta
    Array score_grad;                       ///< [g,c]: dS
};

/// `delta` [T1,N1] as row_deltas gives it.
ScoreGradients score_gradients(const AttentionBackward& backward, const SharedRows<double>& rows,
                               const Eigen::ArrayXd& delta);

/// [T1,N1]: <dO, O>.
Eigen::ArrayXd row_deltas(const AttentionBackward& backward);

}  // namespace attncheck::ref
