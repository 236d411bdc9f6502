#include "rounding_emulator.h"

#include <bit>
#include <cfloat>
#include <cmath>

namespace attncheck::tiers {
namespace {

using Size = std::size_t;
using Int = std::int64_t;

/// The 24 leading bits of a number.
double cut(double x) {
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & ~((std::uint64_t{1} << 29) - 1));
}

float as_float(double x) { return static_cast<float>(x); }

/// sum + a * b as the class adds.
double add(Sums sums, double sum, double a, double b) {
    switch (sums) {
        case Sums::fp64:
            return sum + a * b;
        case Sums::truncating:
            return cut(sum + a * b);
        case Sums::fused:
            return as_float(sum + a * b);
        default:
            return as_float(as_float(sum) + as_float(as_float(a) * as_float(b)));
    }
}

double dot(Sums sums, const double* a, const double* b, Int count) {
    constexpr Int kParts = 16;
    if (sums != Sums::pairwise || count < kParts) {
        double sum = 0;
        for (Int d = 0; d < count; ++d) sum = add(sums, sum, a[d], b[d]);
        return sum;
    }
    double part[kParts] = {};
    for (Int d = 0; d < count; ++d) part[d % kParts] = add(sums, part[d % kParts], a[d], b[d]);
    for (Int step = kParts / 2; step > 0; step /= 2)
        for (Int k = 0; k < step; ++k) part[k] = as_float(part[k] + part[k + step]);
    return part[0];
}

/// Nearest number of the type: Veltkamp's splitting for normal numbers, the oracle's conversion
/// near zero and beyond.
double store(ref::Dtype dtype, double x) {
    if (dtype == ref::Dtype::fp32) return as_float(x);
    const bool half = dtype == ref::Dtype::fp16;
    const double size = std::fabs(x);
    if (!(size >= (half ? 0x1p-14 : 0x1p-126) && size < (half ? 65504 : 0x1p127)))
        return ref::decode(dtype, ref::encode(dtype, x));
    const double spread = x * (half ? 0x1p42 + 1 : 0x1p45 + 1);
    return spread - (spread - x);
}

/// An fp32 number on its way into a product.
double as_factor(ref::Factor factor, double x) {
    const auto bf16 = [](double y) { return store(ref::Dtype::bf16, y); };
    switch (factor) {
        case ref::Factor::fp32:
            return x;
        case ref::Factor::bf16:
            return bf16(x);
        case ref::Factor::tf32: {  // to 11 bits: Veltkamp's splitting
            const double spread = x * (0x1p42 + 1);
            return spread - (spread - x);
        }
        case ref::Factor::bf16x2:
            return bf16(x) + bf16(x - bf16(x));
        case ref::Factor::bf16x3: {
            const double high = bf16(x), middle = bf16(x - high);
            return high + middle + bf16(x - high - middle);
        }
    }
    return x;
}

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
    }

    Outputs forward() {
        const Size rows = static_cast<Size>(p_.shape.query_rows * p_.shape.query_heads);
        output_.assign(rows * static_cast<Size>(p_.shape.value_dim), 0);
        max_.assign(rows, 0);
        sum_.assign(rows, 0);
        for_each_row([&](Int t, Int n, bool in_sequence) {
            const auto at = static_cast<Size>(t * p_.shape.query_heads + n);
            if (in_sequence) max_[at] = -static_cast<double>(FLT_MAX), sum_[at] = FLT_MAX;
            if (!columns_.empty()) forward_row(at, n);
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
        for_each_row([&](Int t, Int n, bool) {
            if (!columns_.empty()) gradient_row(static_cast<Size>(t * s.query_heads + n), n);
        });
        double factor = e_.scale_before_cast ? 1 : p_.scale;
        if (e_.group_cast) add_heads(factor);
        for (double& x : dq_) x = result(as_float(x * factor) * planted_.query_grad);
        for (double& x : dk_) x = result(as_float(x * factor) * planted_.key_grad);
        for (double& x : dv_) x = result(x * planted_.value_grad);
        return {{"dq", dq_}, {"dk", dk_}, {"dv", dv_}};
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

    /// Logits, in units of ln 2 for base_two.
    void measure_logits(Size at, Int n) {
        logits_.resize(columns_.size());
        const double factor = as_float(
            (e_.base_two ? as_float(p_.scale) * 1.4426950408889634f : p_.scale) * planted_.scale);
        for (Size j = 0; j < columns_.size(); ++j) {
            const double product =
                dot(e_.sums, row(n_.query, at, p_.shape.head_dim),
                    row(n_.key, key_at(n, columns_[j]), p_.shape.head_dim), p_.shape.head_dim);
            const double bias =
                as_float(columns_[j].bias) * (e_.base_two ? 1.4426950408889634f : 1.0f);
            logits_[j] =
                as_float(as_float(cast(e_.scores_cast, as_float(product)) * as_float(factor)) +
                         as_float(bias));
        }
    }
    float power(double x) const {
        return e_.base_two ? std::exp2(as_float(x)) : std::exp(as_float(x));
    }

    void forward_row(Size at, Int n) {
        measure_logits(at, n);
        if (e_.parts > 1) return merged_row(at, n);
        attend(n, 0, std::ssize(columns_));
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
        const Int count = std::ssize(columns_), length = (count + e_.parts - 1) / e_.parts;
        std::vector<std::vector<double>> outputs;
        std::vector<double> lses;
        for (Int begin = 0; begin < count; begin += length) {
            attend(n, begin, std::min(begin + length, count));
            for (double& x : acc_) x = as_float(x / l_);
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
        double m = -HUGE_VAL;
        for (const double s : logits_) m = std::max(m, s);
        m = as_float(e_.base_two ? as_float(m) * 0.6931471805599453f : m);
        store_statistics(at, m, std::exp(as_float(lse_of_all - m)));
    }

    /// Online softmax over columns [first, last): m_, l_ and the sums acc_.
    void attend(Int n, Int first, Int last) {
        acc_.assign(static_cast<Size>(p_.shape.value_dim), 0);
        double& m = m_;
        double& l = l_;
        m = -HUGE_VAL, l = 0;
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
            for (Int j = begin; j < end; ++j) {
                const double e = power(logits_[static_cast<Size>(j)] - m);
                l = add(e_.sums, l, cast(e_.sum_of_cast, e), 1);
                if (!e_.normalised_first) add_value(n, columns_[static_cast<Size>(j)], e);
            }
        }
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
        const double keep = as_float(1 / p_.keep_prob);
        double* const dq = dq_.data() + at * static_cast<Size>(s.head_dim);
        for (Size j = 0; j < columns_.size(); ++j) {
            const Size key = key_at(n, columns_[j]);
            const double p = prob(at, logits_[j]);
            double dp = 0;
            if (columns_[j].kept)
                dp = as_float(keep * as_float(dot(e_.sums, dout, row(n_.value, key, s.value_dim),
                                                  s.value_dim)));
            double ds = as_float(as_float(p) * as_float(dp - delta));
            if (e_.scale_before_cast) ds = as_float(ds * p_.scale);
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
            const double weight = product_factor(cast(e_.prob_cast, as_float(p * keep)));
            double* const dv =
                (e_.group_cast ? head_dv_ : dv_).data() + slot * static_cast<Size>(s.value_dim);
            for (Int d = 0; d < s.value_dim; ++d) dv[d] = add(e_.sums, dv[d], weight, dout[d]);
        }
    }

    /// dK and dV of every query head, scaled and rounded, summed over the group.
    void add_heads(double& factor) {
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
        sum(head_dk_, s.head_dim, factor, dk_);
        sum(head_dv_, s.value_dim, 1, dv_);
        for (double& x : dq_) x = as_float(x * factor);
        factor = 1;
    }

    /// From the given statistics; with base_two they are converted first.
    double prob(Size at, double logit) const {
        const float m = as_float(n_.row_max[at]), l = as_float(n_.row_sum[at]);
        if (e_.base_two)
            return std::exp2(as_float(logit) - (m * 1.4426950408889634f + std::log2(l)));
        return e_.normalised_first ? std::exp(as_float(logit) - (m + std::log(l)))
                                   : std::exp(as_float(logit) - m) / l;
    }

    const properties::AttentionProblem& p_;
    const properties::AttentionNumbers exact_{p_};
    properties::AttentionNumbers n_;  ///< as they enter products
    const Emulation& e_;
    const Planted& planted_;
    std::vector<ref::SequencePlace> key_places_;
    std::vector<ref::KeyColumn> columns_;
    std::vector<double> logits_, acc_, output_, max_, sum_, dq_, dk_, dv_, head_dk_, head_dv_;
    double m_ = 0, l_ = 0;
};

}  // namespace

ref::RoundingClass Emulation::rounding() const {
    ref::RoundingClass rounding;
    rounding.prob_rounded = prob_cast;
    rounding.score_grad_rounded = score_grad_cast;
    rounding.row_sum_rounded = sum_of_cast;
    if (sums == Sums::truncating) rounding.accumulator_roundoff = 0x1p-23;
    rounding.lse_statistics = lse_statistics || stale > 0;
    rounding.lse_split = parts > 1;
    rounding.scores_rounded = scores_cast;
    rounding.delta_rounded = delta_cast;
    rounding.group_rounded = group_cast;
    rounding.factor = factor;
    rounding.flush_subnormals = rounding.flush_bf16_subnormals = flush;
    return rounding;
}

std::string Emulation::name() const {
    constexpr const char* kSums[] = {"fp32", "fma", "fp64", "truncating", "pairwise"};
    return std::string(kSums[static_cast<int>(sums)]) + (prob_cast ? " p=half" : " p=fp32") +
           (score_grad_cast ? " ds=half" : " ds=fp32") + (sum_of_cast ? " sum=rounded" : "");
}

Outputs emulate(const properties::AttentionProblem& problem, const Emulation& emulation,
                const Planted& planted) {
    AttentionEmulator emulator(problem, emulation, planted);
    return problem.gradient ? emulator.gradient() : emulator.forward();
}

Outputs emulate(const properties::CompressProblem& problem, const Emulation& emulation) {
    const ref::CompressShape& s = problem.shape;
    const auto x = problem.values(properties::kCmpInput), w = problem.values(properties::kCmpWeight);
    const Int row = s.heads * s.head_dim;
    const Sums sums = emulation.sums;
    std::vector<double> y(static_cast<Size>(s.total_blocks() * row)), dx(x.size()), dw(w.size());
    const auto dy = problem.gradient ? problem.values(properties::kCmpOutputGrad) : std::vector<double>{};
    ref::for_each_block(s, [&](Int output_row, Int first_token) {
        for (Int r = 0; r < s.block; ++r)
            for (Int n = 0; n < s.heads; ++n) {
                const auto at = static_cast<Size>((first_token + r) * row + n * s.head_dim),
                           to = static_cast<Size>(output_row * row + n * s.head_dim),
                           weight = static_cast<Size>(r * s.heads + n);
                for (Size c = 0; c < static_cast<Size>(s.head_dim); ++c)
                    if (problem.gradient)
                        dx[at + c] = add(sums, dx[at + c], w[weight], dy[to + c]);
                    else
                        y[to + c] = add(sums, y[to + c], w[weight], x[at + c]);
                if (problem.gradient)
                    dw[weight] =
                        add(sums, dw[weight],
                            as_float(dot(sums, dy.data() + to, x.data() + at, s.head_dim)), 1);
            }
    });
    for (auto* out : {&y, &dx, &dw})
        for (double& value : *out) value = store(problem.dtype, value);
    if (problem.gradient) return {{"input_grad", dx}, {"weight_grad", dw}};
    return {{"output", y}};
}

}  // namespace attncheck::tiers
