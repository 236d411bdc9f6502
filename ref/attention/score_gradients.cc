#include "ref/attention/score_gradients.h"

#include <cmath>

namespace attncheck::ref {

Eigen::ArrayXd row_deltas(const AttentionBackward& backward) {
    const auto& [shape, list_columns, in] = backward;
    return view(in.output_grad, shape.value_dim).cwiseProduct(view(in.output, shape.value_dim)).rowwise().sum();
}

ScoreGradients score_gradients(const AttentionBackward& backward, const SharedRows<double>& rows,
                               const Eigen::ArrayXd& delta) {
    const auto& [shape, list_columns, in] = backward;
    const std::int64_t g = rows.query.rows();
    ScoreGradients out;
    out.output_grad.resize(g, shape.value_dim);
    for (Eigen::ArrayXd* each : {&out.row_max, &out.log_sum, &out.delta}) each->resize(g);
    out.prob.resize(g, rows.count());
    out.plain = in.forward.scale * product_transposed(rows.query, rows.key()).array();
    const double cap = in.forward.softcap;
    if (cap > 0) {
        out.capped = softcapped<double>(out.plain.matrix(), cap).array();
        out.slope = 1 - (out.capped / cap).square();
    }
    out.logits = (cap > 0 ? out.capped : out.plain) + rows.bias;
    for (std::int64_t i = 0; i < g; ++i) {
        const std::int64_t at = rows.row(i);
        const double l = in.row_sum[static_cast<std::size_t>(at)];
        out.output_grad.row(i) = view(in.output_grad, shape.value_dim).row(at);
        out.row_max[i] = in.row_max[static_cast<std::size_t>(at)], out.log_sum[i] = std::log(l);
        out.delta[i] = delta[at];
        out.prob.row(i) = exponential(out.logits.row(i) - out.row_max[i]) / l;
    }
    out.prob_grad = rows.kept().select(
        rows.gain * product_transposed(out.output_grad, rows.value()).array(), 0.0);
    out.centred = out.prob_grad.colwise() - out.delta;
    out.score_grad = out.prob * out.centred;
    return out;
}

}  // namespace attncheck::ref
