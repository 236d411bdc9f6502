// Variances of single roundings and of sums under a rounding class; see rounding_noise.h for the
// model.
#pragma once

#include <algorithm>
#include <cmath>

#include "ref/attention/attention_roundoff.h"
#include "ref/attention/rounding_noise.h"

namespace attncheck::ref {

inline double square(double x) { return x * x; }

struct RoundingVariance {
    double sum;        ///< u of a partial sum
    double unit;       ///< u of a single operation
    bool truncating;   ///< sums err towards zero
    double cast;       ///< relative variance of a cast of P or dS
    double underflow;  ///< absolute variance of a cast near zero
    bool rounds_prob, rounds_score_grad, rounds_sum;
    std::int64_t least_tile;  ///< keys that a tile takes at least
    double score, delta, group;  ///< relative variance of the casts of S, of delta, of a head's dK
    double step;                 ///< of a result that an operation of a composition stores
    double kept_prob;            ///< of the P that dS is made of
    /// tanh=N: squared error of a tanh, as that of exp=N the same for the same argument.
    double tanh;
    double factors;              ///< of a product whose factors are rounded first (in=)
    double cut;                  ///< squared relative error that factors which are cut have in common
    double scaling;              ///< of an element of q or k that is scaled (scale=)
    double scaling_underflow;    ///< absolute, near zero
    bool stores_scaled;          ///< scale=half of a half type; what these errors have in common: common_errors.h
    bool lse_split, own_forward;
    double part;  ///< relative, of an output of a part that is stored (split=half)
    /// exp=N beyond the usual: squared relative error of an exponential, N u. Not a third of it: the same
    /// argument has the same error in every row, exp(0) among them, so that it may be the largest one.
    double exponential;
    double flush;  ///< what a stored number loses near zero, 0 if nothing is flushed
    double least;  ///< error of a cast near zero
    Dtype cast_type;  ///< of P and dS

    explicit RoundingVariance(const Precision& precision) {
        const auto& [storage, rounding] = precision;
        cast_type = rounding.cast.value_or(storage);
        const double stored_cast = square(unit_roundoff(storage)) / 3, eta = half_ulp(cast_type, 0);
        const bool scales_half = rounding.scaling == Scaling::half;
        sum = accumulator_roundoff(precision);
        unit = std::max(sum, 0x1p-24);
        truncating = rounding.accumulator_roundoff > 0x1p-24;
        cast = square(unit_roundoff(cast_type)) / 3;
        rounds_prob = rounding.prob_rounded || rounding.steps_rounded;
        rounds_score_grad = rounding.score_grad_rounded || rounding.steps_rounded;
        rounds_sum = rounding.row_sum_rounded;
        least_tile = rounding.least_tile;
        score = rounding.scores_rounded || rounding.steps_rounded ? stored_cast : 0;
        step = rounding.steps_rounded ? stored_cast : 0;
        kept_prob = rounding.prob_kept ? std::max(cast, step) : step;
        tanh = square(rounding.tanh_error * unit);
        delta = rounding.delta_rounded ? stored_cast : 0;
        part = rounding.parts_rounded ? stored_cast : 0;
        group = rounding.group_rounded ? stored_cast : 0;
        // u^2, not u^2 / 3: a factor's error is the same in all rows that read it, and no mean of
        // rows makes it smaller.
        factors = 2 * square(factor_roundoff(precision));
        // Both factors lose half of a unit in the mean.
        cut = rounding.factor == Factor::tf32_truncated ? factors / 2 : 0;
        // As other casts where it is one; the errors that rows share are counted as such.
        stores_scaled = scales_half && storage != Dtype::fp32;
        scaling = square(scaling_roundoff(precision)) / (stores_scaled ? 3 : 1);
        lse_split = rounding.lse_split;
        own_forward = rounding.own_forward;
        exponential = has_coarse_exp(rounding) ? square(rounding.exp_error * unit) : 0;
        flush = rounding.flush_subnormals ? min_normal(storage) : 0;
        underflow = std::max(square(eta) / 3, square(flush));
        scaling_underflow = scales_half ? underflow : 0;
        least = std::max(eta, flush);
    }

    /// Of a sum of `terms` numbers of either sign, in units of the sum of their squares: the
    /// partial sums S_k have E S_k^2 = k t^2, every one is rounded with variance (u S_k)^2 / 3.
    /// Truncation errs by u |S_k| / 2 towards zero, together at most u n sqrt(n) t / 3.
    double of_sum(double terms) const {
        return sum * sum * (1.0 / 3 + terms / 6 + (truncating ? terms * terms / 9 : 0));
    }
    /// What truncation has of it.
    double of_truncation(double terms) const {
        return truncating ? sum * sum * terms * terms / 9 : 0;
    }
    /// The same for products of stored numbers, or of P or dS with such.
    double of_products(double terms) const { return of_sum(terms) + factors; }
    /// Of products of stored numbers one of which is q or k as they were scaled.
    double of_scaled_products(double terms) const { return of_products(terms) + scaling; }
    /// Of a logit by the LSE of the parts that are merged by it, at once or one by one.
    double of_split(double logit, double lse, double parts) const {
        const double merge = std::max(std::fabs(logit), std::fabs(lse));
        return lse_split ? unit * unit * (6 * merge * merge + 16) + of_merging(merge, parts) : 0;
    }
    /// Of LSEs that are stored once for every part but the first, each from the last.
    double of_merging(double largest, double parts) const {
        return lse_split ? std::max(parts - 1, 0.0) * unit * unit * (2 * largest * largest + 8) : 0;
    }
    /// Of a logit that is stored, before its bias or behind it; of a composition also <q, k>.
    double of_stored_score(double logit, double bias) const {
        if (score == 0) return 0;
        const double scaled_sum = bias == 0 ? 0 : step * square(logit);  // pse_type 1
        return score * square(logit) + (score + step) * square(logit - bias) + scaled_sum + 2 * underflow +
               (step > 0 ? underflow : 0);
    }
    /// Of c tanh(plain / c) by tanh=N, and where `plain`, its quotient and tanh are stored.
    double of_cap(double plain, double slope, double cap) const {
        if (tanh == 0 && step == 0) return 0;
        const double of_plain = std::isfinite(plain) ? square(slope * plain) : 0;
        return tanh * square(cap) + 3 * step * of_plain + (step > 0 ? underflow * (2 + 2 * square(cap)) : 0);
    }
    /// Error of a number on a grid of half step h, where numbers like it may err alike; else 0. The
    /// error is a function of the place between two points of the grid. It has no mean where the
    /// numbers spread over two steps or more: for a normal deviation d the mean is at most
    /// (2 h / pi) exp(-2 pi^2 (d / 2 h)^2), 1e-34 of h at d = 4 h. `spread` is d over the number.
    static double alike(double number, double half_step, double spread = 1) {
        const double size = std::fabs(number);
        return size * spread <= 4 * half_step ? std::min(size, half_step) : 0;
    }
    /// Whether any number of an array may.
    template <class Numbers>
    static bool any_alike(const Numbers& numbers, double half_step, double spread = 1) {
        return half_step > kNoNumber && (numbers.abs() * spread <= 4 * half_step).any();
    }
    static constexpr double kNoNumber = 0x1p-100;  ///< bf16 and fp32 end below every P that matters
    /// Of a sum of `terms` numbers of one sign, in units of its square: S_k = k S / n.
    double of_positive_sum(double terms) const {
        return sum * sum * (1.0 / 3 + terms / 9 + (truncating ? terms * terms / 16 : 0));
    }
    /// Of a row sum over `tiles` of an online softmax, relative. With exp=N even exp(0) is off, and a tile that leaves
    /// the maximum multiplies by it all the same.
    double of_own_sum(double terms, double tiles) const {
        return of_positive_sum(terms + 2 * tiles) + unit * unit * (4 * tiles + 16) + exponential * square(1 + tiles);
    }
    /// Relative errors that all elements may share: exp, log2 e and reciprocals; what truncation
    /// takes from `terms` additions, half a unit each.
    /// A factor that all rows read is rounded once (in=).
    double coherent(double terms) const {
        return 16 * unit + (sum > 0x1p-24 ? terms * sum : 0) + std::sqrt(2 * factors) +
               std::sqrt(exponential) + of_few_scores();
    }
    /// Scores that are stored are few numbers, at most 128 of bf16 between two powers of two, however many keys there are.
    /// What a cast makes of their P has no smaller mean than that of so many keys.
    double of_few_scores() const {
        constexpr double kFewest = 32;
        return score > 0 && rounds_prob ? std::sqrt(cast / kFewest) : 0;
    }
    /// Relative error that all results of a softcap may share: tanh x of a small x, or a product with a slope of nearly 1,
    /// that is stored as x is.
    double coherent_cap(double cap) const { return cap > 0 ? std::sqrt(3 * step) : 0; }
    /// A sink that a composition has in its type is one number for all rows of a head; of a softmax it moves all P. A large
    /// one is the maximum and nearly the LSE of all rows, whose roundings are then the same: of LSE, and of LSE log2 e.
    double coherent_sink(std::span<const double> sinks) const {
        double largest = 0, top = 0;
        for (const double x : sinks)
            if (std::isfinite(x)) largest = std::max(largest, std::fabs(x)), top = std::max(top, x);
        return std::sqrt(3 * step) * largest + 3 * unit * top;
    }
    /// And all that are the product with one and the same number, stored: of 255/256 all but one of 128 are rounded down.
    double coherent_products(double stored_variance, std::int64_t width) const {
        return width == 1 ? std::sqrt(3 * stored_variance) : 0;
    }
    /// The same of logits, relative: scale and log2 e, and what truncation takes from the `terms` of
    /// a product.
    double coherent_logits(double terms) const {
        return 4 * unit + (sum > 0x1p-24 ? terms * sum : 0) +
               std::sqrt(2 * (factors + (stores_scaled ? 0 : scaling))) + std::sqrt(tanh);
    }
    double stored(Dtype dtype, double value) const {
        const double size = std::fabs(value), half = half_ulp(dtype, size);
        const double lost = dtype != Dtype::fp32 && size < flush ? flush : 0;
        // All of a flushed number is lost, in every row.
        return std::max(half * half / 3, stored_alike(dtype, value)) + lost * lost;
    }
    /// The part of a result near zero that errs as other results do, squared.
    double stored_alike(Dtype dtype, double value) const {
        if (dtype == Dtype::fp32) return 0;
        const double error = alike(value, least);
        return error * error;
    }
};

}  // namespace attncheck::ref
