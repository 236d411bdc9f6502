// Attention and its gradient, row by row, with every rounding of an emulation spelled out.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <numbers>

#include "rounded_sums.h"
#include "rounding_emulator.h"

namespace attncheck::tiers {
namespace {

using Size = std::size_t;
using Int = std::int64_t;

class AttentionEmulator {
public:
    AttentionEmulator(const properties::AttentionProblem& problem, const Emulation& emulation,
                      const Planted& planted)
        : p_(problem),
          n_(problem),
          e_(emulation),
          planted_(planted),
          key_places_(ref::sequence_places(problem.kv_lengths, problem.shape.kv_rows)) {
        for (auto* x : {&n_.query, &n_.key, &n_.value, &n_.output_grad}) read(*x);
        scale_inputs();
    }

    Outputs forward() {
        const Size rows = static_cast<Size>(p_.shape.query_rows * p_.shape.query_heads);
        output_.assign(rows * static_cast<Size>(p_.shape.value_dim), 0);
        max_.assign(rows, 0);
        sum_.assign(rows, 0);
        for_each_row([&](Int t, Int n, bool in_sequence) {
            const auto at = static_cast<Size>(t * p_.shape.query_heads + n);
            if (in_sequence) max_[at] = -static_cast<double>(FLT_MAX), sum_[at] = FLT_MAX;
            if (in_sequence && (!columns_.empty() || sink_of(n) != -HUGE_VAL)) forward_row(at, n);
        });
        Outputs out{{p_.output_name, output_}, {"softmax_max", max_}, {"softmax_sum", sum_}};
        if (!p_.gives("lse")) return out;
        std::vector<double> lse(rows);  // as stored; a row that sees nothing keeps the statistics above
        for (Size at = 0; at < rows; ++at)
            lse[at] = sum_[at] > 0 && sum_[at] < FLT_MAX ? as_float(max_[at] + std::log(sum_[at]))
                                                         : -HUGE_VAL;
        return {{p_.output_name, output_}, {"lse", lse}};
    }

    Outputs gradient() {
        const auto& s = p_.shape;
        const Size keys = static_cast<Size>(s.kv_rows * s.kv_heads),
                   rows = static_cast<Size>(s.query_rows * s.query_heads);
        dq_.assign(rows * static_cast<Size>(s.head_dim), 0);
        dk_.assign(keys * static_cast<Size>(s.head_dim), 0);
        dv_.assign(keys * static_cast<Size>(s.value_dim), 0);
        if (e_.group_cast) {
            head_dk_.assign(dk_.size() * static_cast<Size>(s.group()), 0);
            head_dv_.assign(dv_.size() * static_cast<Size>(s.group()), 0);
        }
        dbias_.assign(p_.bias_elements, 0);
        dsink_.assign(p_.sink.size(), 0);
        for_each_row([&](Int t, Int n, bool in_sequence) {
            if (in_sequence) gradient_row(static_cast<Size>(t * s.query_heads + n), n);
        });
        if (e_.group_cast) add_heads();
        for (double& x : dq_) x = result(as_float(x * query_grad_scale_) * planted_.query_grad);
        for (double& x : dk_) x = result(as_float(x * key_grad_scale_) * planted_.key_grad);
        for (double& x : dv_) x = result(x * planted_.value_grad);
        for (double& x : dbias_) x = store(p_.bias_dtype, x);
        return {{"dq", dq_}, {"dk", dk_}, {"dv", dv_}, {"dbias", dbias_}, {"dsink", dsink_}};
    }

private:
    template <class Visit>
    void for_each_row(Visit&& visit) {
        for (Int t = 0; t < p_.shape.query_rows; ++t)
            for (Int n = 0; n < p_.shape.query_heads; ++n) {
                columns_.clear();
                const bool in_sequence = p_.columns(t, n, columns_);
                visit(t, n, in_sequence);
            }
    }

    /// As factors of products; delta, a sum of plain products, reads them too: within the class.
    void read(std::vector<double>& values) const {
        for (double& x : values) {
            if (p_.dtype == ref::Dtype::fp32) x = as_factor(e_.factor, x);
            if (e_.flush && std::fabs(x) < ref::min_normal(p_.dtype)) x = 0;
        }
    }
    /// scale=: q and k take the scale, and dK and dQ are sums with what they are then.
    void scale_inputs() {
        if (e_.scale_before_cast) {
            query_grad_scale_ = key_grad_scale_ = 1;
            return;
        }
        if (e_.scaling == ref::Scaling::scores) return;
        const double root = as_float(std::sqrt(std::fabs(p_.scale))),
                     sign = p_.scale < 0 ? -1 : 1;
        // A softcap comes between the scale and log2 e.
        logits_have_log_ = e_.scale_has_log && e_.base_two && p_.softcap == 0;
        const double log = logits_have_log_ ? std::numbers::log2e : 1;
        std::vector<double> &first = e_.scale_key ? n_.key : n_.query, &other = e_.scale_key ? n_.query : n_.key;
        double &of_first = e_.scale_key ? query_grad_scale_ : key_grad_scale_,
               &of_other = e_.scale_key ? key_grad_scale_ : query_grad_scale_;
        multiply(first, (e_.root_scale ? root : p_.scale) * log);
        score_scale_ = 1;
        of_first = 1 / log;
        if (!e_.root_scale) return;
        multiply(other, root);
        score_scale_ = sign;
        of_first = sign * root / log, of_other = sign * root;
    }
    void multiply(std::vector<double>& values, double by) const {
        for (double& x : values) {
            x = as_float(x * as_float(by));
            if (e_.scaling == ref::Scaling::half) x = store(p_.dtype, x);
            if (e_.flush && std::fabs(x) < ref::min_normal(p_.dtype)) x = 0;
        }
    }
    double product_factor(double x) const {
        return p_.dtype == ref::Dtype::fp32 ? as_factor(e_.factor, x) : x;
    }
    double result(double x) const {
        const double stored = store(p_.result, x);
        return e_.flush && std::fabs(stored) < ref::min_normal(p_.result) ? 0 : stored;
    }

    Size key_at(Int n, const ref::KeyColumn& c) const {
        return static_cast<Size>(c.key * p_.shape.kv_heads + n / p_.shape.group());
    }
    const double* row(const std::vector<double>& values, Size at, Int width) const {
        return values.data() + at * static_cast<Size>(width);
    }
    double cast(bool wanted, double x) const { return wanted ? store(p_.result, x) : x; }
    /// What an operation of a composition leaves.
    float stored(float x) const { return as_float(cast(e_.steps_cast, x)); }

    double sink_of(Int n) const {
        return p_.sink.empty() ? -HUGE_VAL : cast(e_.sink_cast, p_.sink[static_cast<Size>(n)]);
    }

    /// softcap tanh(score / softcap), and its derivative in slopes_.
    float capped(Size j, float score) {
        const float cap = as_float(p_.softcap), x = stored(score / cap);
        const double share = x == 0 ? 0 : share_of(x);
        const float part = stored(as_float(std::tanh(x) + share * e_.tanh_units * 0x1p-24));
        slopes_[j] = 1 - part * part;
        return stored(cap * part);
    }

    /// Logits, in units of ln 2 for base_two.
    void measure_logits(Size at, Int n) {
        logits_.resize(columns_.size());
        slopes_.assign(columns_.size(), 1);
        const bool caps = p_.softcap > 0;
        const float unit = e_.base_two ? 1.4426950408889634f : 1.0f;
        const double factor = as_float(
            (caps || logits_have_log_ ? score_scale_ : as_float(score_scale_) * unit) * planted_.scale);
        for (Size j = 0; j < columns_.size(); ++j) {
            const double product =
                dot(e_.sums, row(n_.query, at, p_.shape.head_dim),
                    row(n_.key, key_at(n, columns_[j]), p_.shape.head_dim), p_.shape.head_dim);
            float score = stored(as_float(cast(e_.scores_cast || e_.steps_cast, as_float(product)) * as_float(factor)));
            if (caps) score = capped(j, score) * unit;
            logits_[j] = stored(as_float(score + as_float(columns_[j].bias) * unit));
        }
    }
    float power(double x) const {
        return coarse(e_.base_two ? std::exp2(as_float(x)) : std::exp(as_float(x)), as_float(x));
    }
    /// exp=N: an error that is a function of the argument.
    float coarse(float power, float x) const {
        if (e_.exp_units == 0) return power;
        return as_float(static_cast<double>(power) * (1 + share_of(x) * e_.exp_units * 0x1p-24));
    }
    /// -1 to 1, -1 at 0.
    static double share_of(float x) {
        return static_cast<double>((std::bit_cast<std::uint32_t>(x) * 2654435761u) >> 8) * 0x1p-23 - 1;
    }

    void forward_row(Size at, Int n) {
        measure_logits(at, n);
        if (e_.parts > 1) return merged_row(at, n);
        attend(n, 0, std::ssize(columns_), sink_of(n));
        const double m = m_, l = l_;
        if (e_.normalised_first)
            for (Size j = 0; j < columns_.size(); ++j)
                add_value(n, columns_[j], as_float(power(logits_[j] - m) / l));
        for (Size d = 0; d < acc_.size(); ++d)
            output_[at * acc_.size() + d] =
                result((e_.normalised_first ? acc_[d] : as_float(acc_[d] / l)) * planted_.output);
        store_statistics(at, as_float(e_.base_two ? as_float(m) * 0.6931471805599453f : m), l);
    }

    void store_statistics(Size at, double m, double l) {
        max_[at] = m, sum_[at] = as_float(l);
        if (e_.lse_statistics) max_[at] = as_float(m + std::log(as_float(l))), sum_[at] = 1;
    }

    /// Every part attends on its own and is normalised; its LSE is stored, and weighs it.
    void merged_row(Size at, Int n) {
        const Int count = std::max<Int>(std::ssize(columns_), 1),
                  length = (count + e_.parts - 1) / e_.parts;
        std::vector<std::vector<double>> outputs;
        std::vector<double> lses;
        for (Int begin = 0; begin < count; begin += length) {
            attend(n, begin, std::min(begin + length, std::ssize(columns_)),
                   begin == 0 ? sink_of(n) : -HUGE_VAL);
            if (l_ == 0) continue;  // nothing but logits of -infinity
            for (double& x : acc_) x = e_.parts_cast ? result(as_float(x / l_)) : as_float(x / l_);
            outputs.push_back(acc_);
            const double m = e_.base_two ? as_float(as_float(m_) * 0.6931471805599453f) : m_;
            lses.push_back(as_float(as_float(m) + std::log(as_float(l_))));
        }
        double top = -HUGE_VAL, sum = 0;
        for (const double lse : lses) top = std::max(top, lse);
        for (const double lse : lses) sum = as_float(sum + std::exp(as_float(lse - top)));
        const double lse_of_all = as_float(as_float(top) + std::log(as_float(sum)));
        std::vector<double> merged(acc_.size(), 0);
        for (Size part = 0; part < lses.size(); ++part) {
            const double weight = std::exp(as_float(lses[part] - lse_of_all));
            for (Size d = 0; d < merged.size(); ++d)
                merged[d] = as_float(merged[d] + as_float(weight * outputs[part][d]));
        }
        for (Size d = 0; d < merged.size(); ++d)
            output_[at * merged.size() + d] = result(merged[d] * planted_.output);
        double m = sink_of(n) * (e_.base_two ? 1.4426950408889634 : 1);
        for (const double s : logits_) m = std::max(m, s);
        m = as_float(e_.base_two ? as_float(m) * 0.6931471805599453f : m);
        store_statistics(at, m, std::exp(as_float(lse_of_all - m)));
    }

    /// Online softmax over a sink and columns [first, last): m_, l_ and the sums acc_.
    void attend(Int n, Int first, Int last, double sink) {
        acc_.assign(static_cast<Size>(p_.shape.value_dim), 0);
        double& m = m_;
        double& l = l_;
        m = as_float(as_float(sink) * (e_.base_two ? 1.4426950408889634f : 1.0f));
        const bool has_sink = sink != -HUGE_VAL;
        sink = m;
        l = has_sink && e_.sink_first ? 1 : 0;
        for (Int begin = first; begin < last; begin += e_.tile) {
            const Int end = std::min(begin + e_.tile, last);
            double higher = m;
            for (Int j = begin; j < end; ++j)
                higher = std::max(higher, logits_[static_cast<Size>(j)]);
            if (higher - m <= static_cast<double>(e_.stale)) higher = m;
            const double correction = m == -HUGE_VAL ? 0 : power(m - higher);
            if (correction != 1) {
                l = as_float(l * correction);
                for (double& x : acc_) x = as_float(x * correction);
            }
            m = higher;
            if (m == -HUGE_VAL) continue;
            for (Int j = begin; j < end; ++j) {
                const double e = power(logits_[static_cast<Size>(j)] - m);
                l = add(e_.sums, l, cast(e_.sum_of_cast, e), 1);
                if (!e_.normalised_first) add_value(n, columns_[static_cast<Size>(j)], e);
            }
        }
        if (has_sink && !e_.sink_first) l = add(e_.sums, l, power(sink - m), 1);
    }

    void add_value(Int n, const ref::KeyColumn& column, double weight) {
        if (!column.kept) return;
        if (p_.keep_prob != 1) weight = as_float(weight * as_float(1 / p_.keep_prob));
        weight = product_factor(cast(e_.prob_cast, weight));
        const auto& place = key_places_[static_cast<Size>(column.key)];
        if (place.position >= (place.length - 1) / 32 * 32) weight *= planted_.last_tile;
        const double* v = row(n_.value, key_at(n, column), p_.shape.value_dim);
        for (Size d = 0; d < acc_.size(); ++d) acc_[d] = add(e_.sums, acc_[d], weight, v[d]);
    }

    void gradient_row(Size at, Int n) {
        measure_logits(at, n);
        const auto& s = p_.shape;
        const double *dout = row(n_.output_grad, at, s.value_dim),
                     *q = row(n_.query, at, s.head_dim);
        const double delta =
            cast(e_.delta_cast,
                 as_float(dot(e_.sums, exact_.output_grad.data() + at * static_cast<Size>(s.value_dim),
                              row(n_.output, at, s.value_dim), s.value_dim)) *
                     planted_.delta);
        if (sink_of(n) != -HUGE_VAL) {
            const double sink = as_float(sink_of(n)) * (e_.base_two ? 1.4426950408889634f : 1.0f);
            double& sum = dsink_[static_cast<Size>(n)];
            sum = add(e_.sums, sum, -as_float(prob(at, sink)), as_float(delta));
        }
        const double keep = as_float(1 / p_.keep_prob);
        double* const dq = dq_.data() + at * static_cast<Size>(s.head_dim);
        for (Size j = 0; j < columns_.size(); ++j) {
            const Size key = key_at(n, columns_[j]);
            const double p = cast(e_.keeps_prob, stored(as_float(prob(at, logits_[j]))));
            double dp = 0;
            if (columns_[j].kept)
                dp = stored(as_float(keep * stored(as_float(dot(e_.sums, dout, row(n_.value, key, s.value_dim),
                                                                s.value_dim)))));
            double ds = stored(as_float(as_float(p) * as_float(dp - delta)));
            if (columns_[j].place >= 0 && !dbias_.empty()) {
                double& sum = dbias_[static_cast<Size>(columns_[j].place)];
                sum = add(e_.sums, sum, cast(e_.score_grad_cast, ds), 1);
            }
            if (p_.softcap > 0 && e_.steps_cast) {
                const float cap = as_float(p_.softcap);
                ds = stored(stored(stored(as_float(ds) * cap) * slopes_[j]) / cap);
            } else if (p_.softcap > 0) {
                ds = as_float(ds * slopes_[j]);
            }
            if (e_.scale_before_cast) ds = stored(as_float(ds * p_.scale));
            ds = product_factor(cast(e_.score_grad_cast, ds));
            const double* k = row(n_.key, key, s.head_dim);
            const Size slot = e_.group_cast ? key * static_cast<Size>(s.group()) +
                                                  static_cast<Size>(n % s.group())
                                            : key;
            double* const dk =
                (e_.group_cast ? head_dk_ : dk_).data() + slot * static_cast<Size>(s.head_dim);
            for (Int d = 0; d < s.head_dim; ++d) {
                dq[d] = add(e_.sums, dq[d], ds, k[d]);
                dk[d] = add(e_.sums, dk[d], ds, q[d]);
            }
            if (!columns_[j].kept) continue;
            const double weight = product_factor(cast(e_.prob_cast, stored(as_float(p * keep))));
            double* const dv =
                (e_.group_cast ? head_dv_ : dv_).data() + slot * static_cast<Size>(s.value_dim);
            for (Int d = 0; d < s.value_dim; ++d) dv[d] = add(e_.sums, dv[d], weight, dout[d]);
        }
    }

    /// dK and dV of every query head, scaled and rounded, summed over the group.
    void add_heads() {
        const auto& s = p_.shape;
        const auto sum = [&](const std::vector<double>& heads, Int width, double by,
                             std::vector<double>& to) {
            for (Size k = 0; k < to.size(); ++k) {
                const Size key = k / static_cast<Size>(width), d = k % static_cast<Size>(width);
                for (Int h = 0; h < s.group(); ++h)
                    to[k] += as_float(store(
                        p_.result,
                        as_float(by * heads[(key * static_cast<Size>(s.group()) +
                                             static_cast<Size>(h)) *
                                                static_cast<Size>(width) +
                                            d])));
            }
        };
        sum(head_dk_, s.head_dim, key_grad_scale_, dk_);
        sum(head_dv_, s.value_dim, 1, dv_);
        key_grad_scale_ = 1;
    }

    /// From the given statistics; with base_two they are converted first.
    double prob(Size at, double logit) const {
        const float m = as_float(n_.row_max[at]), l = as_float(n_.row_sum[at]);
        if (e_.base_two) {
            const float x = as_float(logit) - (m * 1.4426950408889634f + std::log2(l));
            return coarse(std::exp2(x), x);
        }
        if (e_.normalised_first) {
            const float x = as_float(logit) - (m + std::log(l));
            return coarse(std::exp(x), x);
        }
        const float x = as_float(logit) - m;
        return coarse(std::exp(x), x) / l;
    }

    const properties::AttentionProblem& p_;
    const properties::AttentionNumbers exact_{p_};
    properties::AttentionNumbers n_;  ///< as they enter products
    const Emulation& e_;
    const Planted& planted_;
    std::vector<ref::SequencePlace> key_places_;
    std::vector<ref::KeyColumn> columns_;
    std::vector<float> slopes_;  ///< derivative of the softcap by column
    std::vector<double> logits_, acc_, output_, max_, sum_, dq_, dk_, dv_, dbias_, dsink_, head_dk_,
        head_dv_;
    double m_ = 0, l_ = 0;
    bool logits_have_log_ = false;  ///< as Q or K are scaled
    double score_scale_ = p_.scale, query_grad_scale_ = p_.scale, key_grad_scale_ = p_.scale;
};

/// The problem with the output and the statistics that the kernel forms itself.
properties::AttentionProblem with_own_forward(const properties::AttentionProblem& problem, const Emulation& emulation) {
    properties::AttentionProblem own = problem;
    own.gradient = false;
    const Outputs out = AttentionEmulator(own, emulation, {}).forward();
    own.gradient = true;
    const auto encoded = [&](double x) { return ref::encode(own.result, x); };
    std::ranges::transform(out.at(own.output_name), own.output.begin(), encoded);
    const auto as_floats = [&](const char* name) {
        const std::vector<double>& x = out.at(name);
        return std::vector<float>(x.begin(), x.end());
    };
    if (out.contains("lse"))
        take_lse(as_floats("lse"), own);
    else
        own.row_max = as_floats("softmax_max"), own.row_sum = as_floats("softmax_sum");
    return own;
}

}  // namespace

Outputs emulate(const properties::AttentionProblem& problem, const Emulation& emulation,
                const Planted& planted) {
    if (problem.gradient && emulation.own_forward) {
        Emulation given = emulation;
        given.own_forward = false;
        return emulate(with_own_forward(problem, given), given, planted);
    }
    AttentionEmulator emulator(problem, emulation, planted);
    return problem.gradient ? emulator.gradient() : emulator.forward();
}

}  // namespace attncheck::tiers
