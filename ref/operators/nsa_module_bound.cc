#include "ref/operators/nsa_module_bound.h"

#include <algorithm>

#include "ref/attention/attention_roundoff.h"
#include "ref/numbers/dtype.h"

namespace attncheck::ref {
namespace {

/// A sum in binary64 that is stored as fp32 on its way.
constexpr double kNarrow = 0x1p-24 * (1 + 0x1p-20);
constexpr double kNarrowFloor = 0x1p-149;

using Doubles = std::vector<double>;

/// Bounds, infinite where nothing is judged.
Doubles errors_of(const ExpectedTensor& tensor) {
    Doubles out = tensor.bound;
    for (std::size_t i = 0; i < out.size(); ++i)
        if (tensor.overflow[i] != Overflow::none) out[i] = kInfinity;
    return out;
}

void add(Doubles& to, const Doubles& from) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

Doubles magnitudes(std::span<const double> values) {
    Doubles out(values.size());
    std::transform(values.begin(), values.end(), out.begin(),
                   [](double v) { return std::fabs(v); });
    return out;
}

/// An infinite factor times nothing is nothing. Without a branch, which loops over channels would wait for.
double product(double a, double b) {
    const double plain = a * b;
    return (a == 0) | (b == 0) ? 0 : plain;
}

/// to[c] += scale * product(factor, |x[c]|). Most factors are finite, where product() is a multiplication.
void add_products(double* to, double scale, double factor, const double* x, std::size_t count) {
    if (factor == 0 && std::isfinite(scale)) return;
    if (std::isfinite(factor))
        for (std::size_t c = 0; c < count; ++c) to[c] += scale * (factor * std::fabs(x[c]));
    else
        for (std::size_t c = 0; c < count; ++c) to[c] += scale * product(factor, std::fabs(x[c]));
}

/// One branch at its exact inputs, with the errors of those.
struct Propagation {
    AttentionShape shape;
    AttentionInputs<double> in;
    std::span<const double> key_error, value_error;  ///< empty: keys and values are exact
    Doubles output;                                  ///< [T,N1,Dv], error of O
    std::span<const double> output_grad;             ///< exact dO_b
    Doubles output_grad_error, lse_error;            ///< [T,N1,Dv], [T,N1]
    Doubles query_grad, key_grad, value_grad;        ///< errors

    /// One row: exact quantities and changes of its columns.
    struct Row {
        AttentionRow<double> exact;
        Doubles gained;  ///< |P^ - P| per column
        const double* query = nullptr;
        std::size_t at = 0;
        std::int64_t kv_head = 0;
    } row;

    const double* of(std::span<const double> tensor, std::size_t index, std::int64_t width) const {
        return tensor.data() + index * static_cast<std::size_t>(width);
    }
    std::size_t key_row(const KeyColumn& column) const {
        return static_cast<std::size_t>(column.key * shape.kv_heads + row.kv_head);
    }

    void open_row(std::int64_t t, std::int64_t h, const std::vector<KeyColumn>& columns,
                  double lse) {
        attend_row(shape, in, t, h, std::span<const KeyColumn>(columns), row.exact);
        row.at = static_cast<std::size_t>(t * shape.query_heads + h);
        row.kv_head = h / shape.group();
        row.query = of(in.query, row.at, shape.head_dim);
        row.gained.assign(columns.size(), 0);
        Doubles change(columns.size());
        double largest = 0;
        for (std::size_t j = 0; j < columns.size() && !key_error.empty(); ++j) {
            const double* e = of(key_error, key_row(columns[j]), shape.head_dim);
            for (std::int64_t c = 0; c < shape.head_dim; ++c)
                change[j] += product(std::fabs(row.query[c]), e[c]);
            change[j] *= std::fabs(in.scale);
            largest = std::max(largest, change[j]);
        }
        for (std::size_t j = 0; j < columns.size(); ++j) {
            const double eps = change[j] + largest + lse, most = std::exp(std::min(lse, 700.0));
            // No weight exceeds e^lse. An underflowed P only comes back if its logit moves a lot.
            row.gained[j] =
                row.exact.probs[j] > 0
                    ? std::min(row.exact.probs[j] * std::expm1(std::min(eps, 700.0)), most)
                : eps > 100 ? most
                            : 0;
        }
    }

    void forward_row(const std::vector<KeyColumn>& columns) {
        for (std::size_t j = 0; j < columns.size(); ++j) {
            const double* v = of(in.value, key_row(columns[j]), shape.value_dim);
            const double* e = value_error.empty()
                                  ? nullptr
                                  : of(value_error, key_row(columns[j]), shape.value_dim);
            double* out = output.data() + row.at * static_cast<std::size_t>(shape.value_dim);
            const double raised = row.exact.probs[j] + row.gained[j];
            for (std::int64_t c = 0; c < shape.value_dim; ++c)
                out[c] += row.gained[j] *
                              std::fabs(v[c] - row.exact.output[static_cast<std::size_t>(c)]) +
                          (e ? product(raised, e[c]) : 0);
        }
    }

    void backward_row(const std::vector<KeyColumn>& columns) {
        const auto width = static_cast<std::size_t>(shape.value_dim);
        const double* dout = output_grad.data() + row.at * width;
        const double* dout_error = output_grad_error.data() + row.at * width;
        const double* out_error = output.data() + row.at * width;
        double delta = 0, delta_error = 0;
        for (std::size_t c = 0; c < width; ++c) {
            const double o = row.exact.output[c];
            delta += dout[c] * o;
            delta_error += product(std::fabs(dout[c]) + dout_error[c], out_error[c]) +
                           product(dout_error[c], std::fabs(o));
        }
        const bool is_exact = std::all_of(dout_error, dout_error + width, [](double e) { return e == 0; });
        Doubles mean(static_cast<std::size_t>(shape.head_dim)),
            spread = mean;  // sum P k, sum P E_k
        double* const dq = query_grad.data() + row.at * mean.size();
        const double scale = std::fabs(in.scale);
        for (std::size_t j = 0; j < columns.size(); ++j) {
            const double* v = of(in.value, key_row(columns[j]), shape.value_dim);
            const double* k = of(in.key, key_row(columns[j]), shape.head_dim);
            const double* ek =
                key_error.empty() ? nullptr : of(key_error, key_row(columns[j]), shape.head_dim);
            const double* ev = value_error.empty()
                                   ? nullptr
                                   : of(value_error, key_row(columns[j]), shape.value_dim);
            double prob_grad = 0, prob_grad_error = 0;
            for (std::size_t c = 0; c < width; ++c) prob_grad += dout[c] * v[c];
            for (std::size_t c = 0; (ev || !is_exact) && c < width; ++c) {
                prob_grad_error += product(dout_error[c], std::fabs(v[c]));
                if (ev) prob_grad_error += product(std::fabs(dout[c]) + dout_error[c], ev[c]);
            }
            const double p = row.exact.probs[j], gained = row.gained[j], raised = p + gained;
            const double centred = prob_grad - delta, score_grad = std::fabs(p * centred);
            const double own = gained * std::fabs(centred) + product(raised, prob_grad_error);
            const double apart = own + product(gained, delta_error),
                         all = own + product(raised, delta_error);
            double* const dk = key_grad.data() + key_row(columns[j]) * mean.size();
            for (std::size_t c = 0; ek && c < mean.size(); ++c) {
                dq[c] += scale *
                         (product(apart, std::fabs(k[c]) + ek[c]) + product(score_grad, ek[c]));
                spread[c] += product(p, ek[c]);
            }
            if (!ek) add_products(dq, scale, apart, k, mean.size());
            add_products(dk, scale, all, row.query, mean.size());
            for (std::size_t c = 0; c < mean.size(); ++c) mean[c] += p * k[c];
            double* const dv = value_grad.data() + key_row(columns[j]) * width;
            if (is_exact) add_products(dv, 1, gained, dout, width);
            for (std::size_t c = 0; !is_exact && c < width; ++c)
                dv[c] += product(gained, std::fabs(dout[c])) + product(raised, dout_error[c]);
        }
        for (std::size_t c = 0; c < mean.size(); ++c)
            dq[c] += scale * product(delta_error, std::fabs(mean[c]) + spread[c]);
    }

    template <class Work>
    void for_each_row(const ColumnLister& list, const Work& work) {
        std::vector<KeyColumn> columns;
        for (std::int64_t t = 0; t < shape.query_rows; ++t)
            for (std::int64_t h = 0; h < shape.query_heads; ++h) {
                columns.clear();
                if (!list(t, h, columns) || columns.empty()) continue;
                const auto at = static_cast<std::size_t>(t * shape.query_heads + h);
                open_row(t, h, columns, lse_error.empty() ? 0 : lse_error[at]);
                work(columns);
            }
    }
};

/// The exact values with these errors, after a sum of the module's own is stored.
ExpectedTensor stored(const Doubles& exact, const Doubles& errors, Dtype dtype) {
    ExpectedTensor out(exact.size());
    for (std::size_t i = 0; i < exact.size(); ++i) {
        const double error =
            errors[i] + (exact[i] == 0 && errors[i] == 0
                             ? 0
                             : kNarrow * (std::fabs(exact[i]) + errors[i]) + kNarrowFloor);
        finish(exact[i], error, std::fabs(exact[i]) + error, max_finite(Dtype::fp32), dtype, out,
               i);
    }
    return out;
}

/// The exact values with these errors, which have the storing in them.
ExpectedTensor as_it_is(const Doubles& exact, const Doubles& errors) {
    ExpectedTensor out(exact.size());
    out.value = exact;
    out.bound = errors;
    for (std::size_t i = 0; i < out.size(); ++i)
        if (!std::isfinite(errors[i])) leave_unjudged(out, i);
    return out;
}

/// |dX| and |dW| of |dY| <= error.
struct CompressErrors {
    Doubles input, weight;
};
CompressErrors compress_errors(const CompressShape& shape, const Doubles& error,
                               std::span<const double> input, std::span<const double> weight,
                               const ExpectedCompressGrad& stage) {
    auto moved = expected_nsa_compress_grad(shape, Dtype::fp32, error, magnitudes(input),
                                            magnitudes(weight));
    CompressErrors out{std::move(moved.input_grad.value), std::move(moved.weight_grad.value)};
    for (Doubles* tensor : {&out.input, &out.weight})
        for (double& e : *tensor)
            if (std::isnan(e)) e = kInfinity;
    add(out.input, errors_of(stage.input_grad));
    add(out.weight, errors_of(stage.weight_grad));
    return out;
}

}  // namespace

ExpectedModuleStages expected_module_stages(const NsaModuleShape& shape,
                                            const NsaModuleInputs<double>& in,
                                            std::span<const std::int64_t> topk,
                                            const NsaModuleObserved& observed,
                                            const Precision& precision, Grant grant,
                                            ModuleStages wanted) {
    const CompressShape keys = shape.compress(shape.head_dim),
                        values = shape.compress(shape.value_dim);
    const bool compresses = wanted != ModuleStages::compress_branch;
    const std::size_t branches = wanted == ModuleStages::all           ? kModuleBranches
                                 : wanted == ModuleStages::compression ? 0
                                                                       : 1;
    ExpectedModuleStages out;
    out.wanted = wanted;
    out.has_grad = compresses && !observed.branch[0].output_grad.empty();
    if (compresses) {
        out.key_blocks = expected_nsa_compress(keys, precision, in.key[0], in.key_weight);
        out.value_blocks = expected_nsa_compress(values, precision, in.value[0], in.value_weight);
    }
    for (std::size_t b = 0; b < branches; ++b) {
        const auto columns = module_columns(shape, static_cast<int>(b), topk);
        const auto dense = shape.dense(static_cast<int>(b));
        const auto& branch = observed.branch[b];
        const AttentionGradInputs attention{
            inputs_of_branch<double>(shape, in, b, observed.key_blocks, observed.value_blocks),
            branch.output_grad, branch.output, branch.row_max, branch.row_sum};
        out.branch[b] = expected_attention({dense, columns, attention.forward}, precision, grant);
        if (!out.has_grad) continue;
        out.grad[b] = expected_attention_grad({dense, columns, attention}, precision, grant);
    }
    if (!out.has_grad) return out;
    out.key = expected_nsa_compress_grad(keys, precision, observed.key_blocks_grad, in.key[0],
                                         in.key_weight);
    out.value = expected_nsa_compress_grad(values, precision, observed.value_blocks_grad,
                                           in.value[0], in.value_weight);
    return out;
}

ExpectedNsaModule expected_nsa_module(const NsaModuleShape& shape,
                                      const NsaModuleInputs<double>& in,
                                      std::span<const std::int64_t> topk,
                                      std::span<const double> output_grad, bool tied,
                                      const NsaModuleForward<double>& forward,
                                      const NsaModuleGrad& grad, const ExpectedModuleStages& stages,
                                      Dtype dtype) {
    const auto rows = static_cast<std::size_t>(shape.tokens * shape.query_heads),
               width = static_cast<std::size_t>(shape.value_dim);
    const bool with_grad = !output_grad.empty();
    const Doubles key_error = errors_of(stages.key_blocks),
                  value_error = errors_of(stages.value_blocks);
    Doubles output(rows * width), query(with_grad ? in.query.size() : 0),
        gates(with_grad ? rows * 3 : 0);
    std::array<Doubles, 3> key, value;
    for (std::size_t b = 0; b < kModuleBranches; ++b) {
        const auto columns = module_columns(shape, static_cast<int>(b), topk);
        Propagation p;
        p.shape = shape.dense(static_cast<int>(b));
        p.in = inputs_of_branch<double>(shape, in, b, forward.key_blocks, forward.value_blocks);
        if (b == 0) p.key_error = key_error, p.value_error = value_error;
        p.output.assign(rows * width, 0);
        if (b == 0) p.for_each_row(columns, [&](const auto& c) { p.forward_row(c); });
        add(p.output, errors_of(stages.branch[b].output));
        Doubles branch_grad(with_grad ? rows * width : 0), grad_error(branch_grad);
        for (std::size_t row = 0; row < rows; ++row) {
            const double gate = sigmoid(in.gate_logits[row * 3 + b]);
            for (std::size_t c = row * width; c < (row + 1) * width; ++c) {
                output[c] += product(gate, p.output[c]);
                if (!with_grad) continue;
                branch_grad[c] = gate * output_grad[c];
                const double fp32 = kNarrow * std::fabs(branch_grad[c]);
                const double nearest = decode(dtype, encode(dtype, branch_grad[c]));
                // Stored twice, as fp32 and as half: exact numbers stay exact.
                grad_error[c] = nearest == branch_grad[c]
                                    ? 0
                                    : fp32 + half_ulp(dtype, std::fabs(branch_grad[c]) + fp32);
                gates[row * 3 + b] +=
                    product(gate * (1 - gate) * std::fabs(output_grad[c]), p.output[c]);
            }
            if (with_grad)  // <dO, O> in binary64
                gates[row * 3 + b] +=
                    0x1p-44 * gate * (1 - gate) *
                    magnitude_product(output_grad.data() + row * width,
                                      forward.branch[b].output.data() + row * width,
                                      shape.value_dim);
        }
        if (!with_grad) continue;
        p.output_grad = branch_grad;
        p.output_grad_error = std::move(grad_error);
        p.lse_error = errors_of(stages.branch[b].lse);
        p.query_grad.assign(in.query.size(), 0);
        p.key_grad.assign(p.in.key.size(), 0);
        p.value_grad.assign(p.in.value.size(), 0);
        p.for_each_row(columns, [&](const auto& c) { p.backward_row(c); });
        add(p.query_grad, errors_of(stages.grad[b].query_grad));
        add(p.key_grad, errors_of(stages.grad[b].key_grad));
        add(p.value_grad, errors_of(stages.grad[b].value_grad));
        add(query, p.query_grad);
        key[b] = std::move(p.key_grad);
        value[b] = std::move(p.value_grad);
    }
    ExpectedNsaModule out;
    out.output = stored(forward.output, output, dtype);
    if (!with_grad) return out;
    out.query_grad = stored(grad.query, query, dtype);
    out.gate_logits_grad = stored(grad.gate_logits, gates, Dtype::fp32);
    CompressErrors of_key = compress_errors(shape.compress(shape.head_dim), key[0], in.key[0],
                                            in.key_weight, stages.key),
                   of_value = compress_errors(shape.compress(shape.value_dim), value[0],
                                              in.value[0], in.value_weight, stages.value);
    out.key_weight_grad = as_it_is(grad.key_weight, of_key.weight);
    out.value_weight_grad = as_it_is(grad.value_weight, of_value.weight);
    key[0] = std::move(of_key.input);
    value[0] = std::move(of_value.input);
    const auto hand_out = [&](const std::array<Doubles, 3>& exact, std::array<Doubles, 3>& errors,
                              std::array<ExpectedTensor, 3>& to) {
        if (!tied) {
            for (std::size_t b = 0; b < 3; ++b) to[b] = as_it_is(exact[b], errors[b]);
            return;
        }
        Doubles sum = exact[0];
        for (std::size_t b = 1; b < 3; ++b) add(sum, exact[b]), add(errors[0], errors[b]);
        to[0] = stored(sum, errors[0], dtype);
    };
    hand_out(grad.key, key, out.key_grad);
    hand_out(grad.value, value, out.value_grad);
    return out;
}

}  // namespace attncheck::ref
