#include "ref/attention/logit_gradients.h"

#include <algorithm>
#include <cmath>

#include "ref/attention/chosen_attention.h"

namespace attncheck::ref {

void LogitSums::add_term(std::size_t element, const RowGradients& of, std::int64_t i,
                         std::int64_t j) {
    const double term = of.bias_grad()(i, j);
    value_[element] += term;
    error_[element] += of.bias_grad_error()(i, j) + of.prob(i, j) * of.delta_error[i];
    if (std::isfinite(term)) size_[element] += std::fabs(term);
    ++terms_[element];
    unjudged_[element] |= of.unjudged[static_cast<std::size_t>(i)];
}

void LogitSums::add_bias(const SharedRows<double>& rows, const RowGradients& of) {
    for (std::int64_t i = 0; i < rows.query.rows(); ++i) {
        const auto columns = rows.columns_of(i);
        for (std::size_t j = 0; j < columns.size(); ++j)
            if (columns[j].place >= 0)
                add_term(static_cast<std::size_t>(columns[j].place), of, i,
                         static_cast<std::int64_t>(j));
    }
}

void LogitSums::add_sinks(const AttentionShape& shape, const SharedRows<double>& rows,
                          const RowGradients& of, const AttentionRoundoff& roundoff) {
    if (!rows.has_sink()) {  // one of -infinity has no column; of a composition it has P = 0, times a dP beyond its type
        for (std::int64_t i = 0; roundoff.step > 0 && i < rows.query.rows(); ++i)
            unjudged_[static_cast<std::size_t>(rows.row(i) % shape.query_heads)] |=
                rows.count() > 0 && of.unjudged[static_cast<std::size_t>(i)];
        return;
    }
    const std::int64_t sink = rows.count() - 1;
    for (std::int64_t i = 0; i < rows.query.rows(); ++i) {
        const auto element = static_cast<std::size_t>(rows.row(i) % shape.query_heads);
        add_term(element, of, i, sink);
        // delta = sum P dP of no keys is 0, <dO, O> with O = 0 may be no number.
        if (roundoff.own_forward && sink == 0 && !std::isfinite(of.bias_grad()(i, sink))) unjudged_[element] = true;
    }
}

void LogitSums::add(const LogitSums& other) {
    for (std::size_t e = 0; e < value_.size(); ++e) {
        value_[e] += other.value_[e], error_[e] += other.error_[e];
        size_[e] += other.size_[e], terms_[e] += other.terms_[e];
        unjudged_[e] |= other.unjudged_[e];
    }
}

ExpectedTensor LogitSums::finish(Dtype dtype, const AttentionRoundoff& roundoff) const {
    ExpectedTensor out(value_.size());
    for (std::size_t e = 0; e < value_.size(); ++e) {
        if (terms_[e] == 0) {
            if (unjudged_[e]) leave_unjudged(out, e);
            continue;
        }
        const double growth = gamma(terms_[e], roundoff.sum) + roundoff.narrow;
        const double sum = error_[e] + growth * (size_[e] + error_[e]);
        const double floor =
            (terms_[e] + 2) * (roundoff.sum_floor + roundoff.tiny_sum) + roundoff.tiny;
        ref::finish(value_[e], sum == 0 ? 0 : (sum + floor) * roundoff.oracle, size_[e] + sum,
                    roundoff.largest, dtype, out, e);
        if (unjudged_[e]) leave_unjudged(out, e);
    }
    return out;
}

ExpectedTensor expected_bias_grad(const AttentionBackward& backward, const Precision& precision) {
    const AttentionBackward plain = backward.without_sink();
    RowGradientBound bound(plain, precision, Grant::rounding);
    LogitSums sums(plain.in.bias_elements);
    for_shared_rows(plain.forward(), all_rows(plain.shape), [&](const SharedRows<double>& rows) {
        sums.add_bias(rows, bound.measure(rows));
    });
    return sums.finish(plain.in.bias_dtype, AttentionRoundoff(precision));
}

ExpectedTensor expected_sink_grad(const AttentionBackward& backward, const Precision& precision,
                                  Grant grant) {
    const AttentionShape& shape = backward.shape;
    const AttentionGradInputs& in = backward.in;
    RowGradientBound bound(backward, precision, grant);
    LogitSums sums(in.forward.sink.size());
    const AttentionRoundoff roundoff(precision);
    // With forward=own delta may be the sum of P dP: the errors of all keys count.
    const ColumnLister list = [&](std::int64_t t, std::int64_t n, std::vector<KeyColumn>& columns) {
        const bool in_sequence = backward.list_columns(t, n, columns);
        if (!roundoff.own_forward) columns.clear();
        return in_sequence;
    };
    for_shared_rows<double>({shape, list, in.forward}, all_rows(shape), [&](const SharedRows<double>& rows) {
        sums.add_sinks(shape, rows, bound.measure(rows), roundoff);
    });
    ExpectedTensor out = sums.finish(Dtype::fp32, roundoff);
    // A sink of -infinity takes no part and its gradient is 0, which is P delta where delta is finite.
    if (in.forward.sink.empty()) return out;
    const auto width = static_cast<std::size_t>(shape.value_dim),
               heads = static_cast<std::size_t>(shape.query_heads);
    const double limit = roundoff.largest / (1 + gamma(static_cast<double>(width), roundoff.sum));
    for (std::size_t row = 0; row < in.output_grad.size() / std::max<std::size_t>(width, 1); ++row)
        if (in.forward.sink[row % heads] == -HUGE_VAL &&
            !(magnitude_product(in.output_grad.data() + row * width, in.output.data() + row * width,
                                shape.value_dim) < limit))
            leave_unjudged(out, row % heads);
    return out;
}

}  // namespace attncheck::ref
