#include "properties/judge/half_composition.h"

#include <algorithm>
#include <cmath>

namespace attncheck::properties {
namespace {

using Size = std::size_t;
using Int = std::int64_t;
using Outputs = std::map<std::string, std::vector<double>>;

/// Rounds to the storage type, or to nothing: the composition with exact intermediates.
struct Store {
    ref::Dtype dtype;
    bool exact;
    double operator()(double x) const {
        return exact ? x : ref::decode(dtype, ref::encode(dtype, x));
    }
    void operator()(std::vector<double>& values) const {
        for (double& x : values) x = (*this)(x);
    }
};

double dot(const double* a, const double* b, Int width) {
    double sum = 0;
    for (Int d = 0; d < width; ++d) sum += a[d] * b[d];
    return sum;
}

/// One pass over the rows of a problem.
class AttentionComposition {
public:
    AttentionComposition(const AttentionProblem& problem, Store store)
        : p_(problem), n_(problem), s_(problem.shape), store_(store), scaled_query_(n_.query) {
        for (double& x : scaled_query_) x = store_(x * p_.scale);
    }

    Outputs run() {
        const Size rows = static_cast<Size>(s_.query_rows * s_.query_heads),
                   keys = static_cast<Size>(s_.kv_rows * s_.query_heads);  // heads repeated
        output_.assign(rows * static_cast<Size>(s_.value_dim), 0);
        if (p_.gradient) {
            dq_.assign(rows * static_cast<Size>(s_.head_dim), 0);
            dk_.assign(keys * static_cast<Size>(s_.head_dim), 0);
            dv_.assign(keys * static_cast<Size>(s_.value_dim), 0);
        }
        for (Int t = 0; t < s_.query_rows; ++t)
            for (Int n = 0; n < s_.query_heads; ++n) {
                columns_.clear();
                if (!p_.columns(t, n, columns_) || columns_.empty()) continue;
                forward_row(t, n);
                if (p_.gradient) gradient_row(t, n);
            }
        if (!p_.gradient) {
            store_(output_);
            return {{p_.output_name, output_}};
        }
        for (double& x : dq_) x = store_(store_(x) * p_.scale);
        return {{"dq", dq_},
                {"dk", over_groups(dk_, s_.head_dim)},
                {"dv", over_groups(dv_, s_.value_dim)}};
    }

private:
    Size row(Int t, Int n) const { return static_cast<Size>(t * s_.query_heads + n); }
    const double* at(const std::vector<double>& values, Size row, Int width) const {
        return values.data() + row * static_cast<Size>(width);
    }
    double* at(std::vector<double>& values, Size row, Int width) const {
        return values.data() + row * static_cast<Size>(width);
    }
    Size key_row(Int n, const ref::KeyColumn& column) const {
        return static_cast<Size>(column.key * s_.kv_heads + n / s_.group());
    }

    void forward_row(Int t, Int n) {
        const double* q = at(scaled_query_, row(t, n), s_.head_dim);
        prob_.resize(columns_.size());
        slope_.assign(columns_.size(), 1);
        for (Size j = 0; j < columns_.size(); ++j) {
            double score =
                store_(dot(q, at(n_.key, key_row(n, columns_[j]), s_.head_dim), s_.head_dim));
            if (p_.softcap > 0) {
                const double part = std::tanh(score / p_.softcap);
                score = store_(p_.softcap * part);
                slope_[j] = 1 - part * part;
            }
            prob_[j] = store_(score + columns_[j].bias);
        }
        double highest = *std::max_element(prob_.begin(), prob_.end()), sum = 0;
        if (!p_.sink.empty()) {
            const double sink = p_.sink[static_cast<Size>(n)];
            highest = std::max(highest, sink);
            sum = std::exp(sink - highest);
        }
        for (double& x : prob_) sum += x = std::exp(x - highest);
        double* out = at(output_, row(t, n), s_.value_dim);
        for (Size j = 0; j < columns_.size(); ++j) {
            prob_[j] = store_(prob_[j] / sum);
            if (!columns_[j].kept) continue;
            const double weight = store_(prob_[j] / p_.keep_prob);
            const double* v = at(n_.value, key_row(n, columns_[j]), s_.value_dim);
            for (Int d = 0; d < s_.value_dim; ++d) out[d] += weight * v[d];
        }
    }

    void gradient_row(Int t, Int n) {
        const double* dout = at(n_.output_grad, row(t, n), s_.value_dim);
        grad_.assign(columns_.size(), 0);
        double delta = 0;
        for (Size j = 0; j < columns_.size(); ++j) {
            if (columns_[j].kept)
                grad_[j] =
                    store_(store_(dot(dout, at(n_.value, key_row(n, columns_[j]), s_.value_dim),
                                      s_.value_dim)) /
                           p_.keep_prob);
            delta += prob_[j] * grad_[j];
        }
        const double* q = at(scaled_query_, row(t, n), s_.head_dim);
        double* dq = at(dq_, row(t, n), s_.head_dim);
        for (Size j = 0; j < columns_.size(); ++j) {
            const double ds = store_(prob_[j] * (grad_[j] - delta) * slope_[j]);
            const Size repeated = static_cast<Size>(columns_[j].key * s_.query_heads + n);
            const double* k = at(n_.key, key_row(n, columns_[j]), s_.head_dim);
            double* dk = at(dk_, repeated, s_.head_dim);
            for (Int d = 0; d < s_.head_dim; ++d) dq[d] += ds * k[d], dk[d] += ds * q[d];
            if (!columns_[j].kept) continue;
            const double weight = store_(prob_[j] / p_.keep_prob);
            double* dv = at(dv_, repeated, s_.value_dim);
            for (Int d = 0; d < s_.value_dim; ++d) dv[d] += weight * dout[d];
        }
    }

    /// Gradients of repeated heads: stored each, added up, and stored.
    std::vector<double> over_groups(const std::vector<double>& repeated, Int width) const {
        std::vector<double> sums(static_cast<Size>(s_.kv_rows * s_.kv_heads * width));
        for (Int k = 0; k < s_.kv_rows; ++k)
            for (Int n = 0; n < s_.query_heads; ++n) {
                const double* from = at(repeated, row(k, n), width);
                double* to = at(sums, static_cast<Size>(k * s_.kv_heads + n / s_.group()), width);
                for (Int d = 0; d < width; ++d) to[d] += store_(from[d]);
            }
        store_(sums);
        return sums;
    }

    const AttentionProblem& p_;
    const AttentionNumbers n_;
    const ref::AttentionShape& s_;
    Store store_;
    std::vector<double> scaled_query_;
    std::vector<ref::KeyColumn> columns_;
    std::vector<double> prob_, slope_, grad_, output_, dq_, dk_, dv_;
};

Outputs composition(const ref::CompressShape& s, std::span<const double> x,
                    std::span<const double> w, std::optional<std::span<const double>> dy,
                    const Store& store) {
    const Int row = s.heads * s.head_dim;
    std::vector<double> y(static_cast<Size>(s.total_blocks() * row)), dx(x.size()), dw(w.size());
    ref::for_each_block(s, [&](Int output_row, Int first_token) {
        for (Int r = 0; r < s.block; ++r)
            for (Int n = 0; n < s.heads; ++n) {
                const Size from = static_cast<Size>((first_token + r) * row + n * s.head_dim),
                           to = static_cast<Size>(output_row * row + n * s.head_dim),
                           weight = static_cast<Size>(r * s.heads + n);
                for (Size c = 0; c < static_cast<Size>(s.head_dim); ++c)
                    if (dy) {
                        dx[from + c] += store(w[weight] * (*dy)[to + c]);
                        dw[weight] += store(x[from + c] * (*dy)[to + c]);
                    } else {
                        y[to + c] += store(w[weight] * x[from + c]);
                    }
            }
    });
    for (auto* out : {&y, &dx, &dw}) store(*out);
    if (dy) return {{"input_grad", dx}, {"weight_grad", dw}};
    return {{"output", y}};
}

CompositionErrors differences(const Outputs& stored, const Outputs& exact) {
    CompositionErrors errors;
    for (const auto& [name, values] : stored) {
        double& largest = errors[name];
        for (Size k = 0; k < values.size(); ++k)
            largest = std::max(largest, std::fabs(values[k] - exact.at(name)[k]));
    }
    return errors;
}

}  // namespace

CompositionErrors half_composition_errors(const AttentionProblem& problem) {
    return differences(AttentionComposition(problem, {problem.result, false}).run(),
                       AttentionComposition(problem, {problem.result, true}).run());
}

CompositionErrors half_composition_errors(const ref::CompressShape& shape, ref::Dtype dtype,
                                          std::span<const double> input,
                                          std::span<const double> weight,
                                          std::optional<std::span<const double>> output_grad) {
    return differences(composition(shape, input, weight, output_grad, {dtype, false}),
                       composition(shape, input, weight, output_grad, {dtype, true}));
}

}  // namespace attncheck::properties
