// The backward of plain dense attention, in the matrices of the documents (dense_attention.h).
#include <stdexcept>

#include "ref/attention/attention_roundoff.h"
#include "ref/attention/shared_rows.h"

namespace attncheck::ref {

AttentionGrad dense_attention_grad(const AttentionBackward& backward) {
    const AttentionShape& shape = backward.shape;
    const AttentionGradInputs& in = backward.in;
    const AttentionInputs<double>& forward = in.forward;
    if (forward.softcap > 0)
        throw std::invalid_argument("dense attention: a gradient without bounds has no softcap");
    require_attention_shape(shape, forward);
    AttentionGrad out{std::vector<double>(forward.query.size()), std::vector<double>(forward.key.size()),
                      std::vector<double>(forward.value.size())};
    auto dq = view(out.query, shape.head_dim), dk = view(out.key, shape.head_dim),
         dv = view(out.value, shape.value_dim);
    const auto all_dout = view(in.output_grad, shape.value_dim), all_out = view(in.output, shape.value_dim);
    const auto add_rows = [&](const SharedRows<double>& rows) {
        const std::int64_t g = rows.query.rows();
        Matrix<double> dout(g, shape.value_dim);
        for (std::int64_t i = 0; i < g; ++i) dout.row(i) = all_dout.row(rows.row(i));
        const Array logits = forward.scale * products_with_keys(rows).array() + rows.bias,
                    prob_grad = product_transposed(dout, rows.value()).array() * rows.gain;
        Array prob(g, rows.count()), score_grad(g, rows.count());
        for (std::int64_t i = 0; i < g; ++i) {
            const auto at = static_cast<std::size_t>(rows.row(i));
            const double delta = inner_product(dout.row(i).data(), all_out.row(rows.row(i)).data(), shape.value_dim);
            prob.row(i) = exponential(logits.row(i) - in.row_max[at]) / in.row_sum[at];
            score_grad.row(i) = prob.row(i) * (prob_grad.row(i) - delta);
        }
        prob *= rows.gain;
        const Matrix<double> query = product(score_grad.matrix(), rows.key());
        for (std::int64_t i = 0; i < g; ++i) dq.row(rows.place(i)) = forward.scale * query.row(i);
        for (std::int64_t j = 0; j < rows.count(); ++j) {
            const std::int64_t key = rows.keys[static_cast<std::size_t>(j)];
            add_product(dk.row(key), score_grad, j, rows.query);
            add_product(dv.row(key), prob, j, dout);
        }
    };
    for_shared_rows(backward.without_sink().forward(), all_rows(shape), add_rows);
    dk *= forward.scale;
    return out;
}

}  // namespace attncheck::ref
