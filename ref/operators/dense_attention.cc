#include "ref/operators/dense_attention.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include "ref/bounds/attention_roundoff.h"
#include "ref/operators/chosen_attention.h"

namespace attncheck::ref {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Logits so large that fp32 does not resolve them to this (|m| > 4e7): exp of what a rounding
/// leaves may overflow.
constexpr double kCoarse = 10;

constexpr double kLargestGain = 1e100;

/// p e^eps - p without inf * 0: the weight a column may gain, from its logit relative to the
/// maximum. Capped: beyond, the hull of the values decides.
double gained_weight(double relative_logit, double error, double row_sum, double prob) {
    return std::clamp(std::exp(relative_logit + error) / row_sum - prob, 0.0, kLargestGain);
}

/// The bound of one forward row; scratch is kept between rows.
class ForwardBound {
public:
    ForwardBound(const AttentionShape& shape, const AttentionInputs<double>& in, Dtype dtype,
                 const RoundingClass& rounding, Grant grant)
        : shape_(shape),
          in_(in),
          dtype_(dtype),
          roundoff_(dtype, rounding),
          score_error_(shape, in, roundoff_),
          value_(in.value),
          grant_(grant) {}

    /// Row `at` of `out` is (t, n).
    void write(std::int64_t t, std::int64_t n, std::span<const KeyColumn> columns,
               const AttentionRow<double>& row, std::size_t at, ExpectedAttention& out) {
        measure_scores(t, n, columns, row);
        statistics(row, columns, at, out);
        values(n, columns, row, at, out);
    }

private:
    const double* value_row(std::int64_t n, const KeyColumn& c) const {
        return in_.value.data() + (c.key * shape_.kv_heads + n / shape_.group()) * shape_.value_dim;
    }

    void measure_scores(std::int64_t t, std::int64_t n, std::span<const KeyColumn> columns,
                        const AttentionRow<double>& row) {
        unjudged_ = row.row_max == -kInfinity || is_dropped_nan_row(columns, row.logits);
        lattice_ = grant_ == Grant::lattice && roundoff_.sum <= kLatticeRoundoff &&
                   is_lattice_row(row.logits, row.row_max) &&
                   static_cast<double>(columns.size()) * value_.largest <
                       exact_sum_limit(value_.lowest_bit);
        error_.resize(columns.size());
        const double* q = in_.query.data() + (t * shape_.query_heads + n) * shape_.head_dim;
        for (std::size_t j = 0; j < columns.size(); ++j) {
            const double* k =
                in_.key.data() +
                (columns[j].key * shape_.kv_heads + n / shape_.group()) * shape_.head_dim;
            const double magnitude = magnitude_product(q, k, shape_.head_dim);
            unjudged_ = unjudged_ || score_error_.may_overflow(
                                         finite_magnitude(q, k, shape_.head_dim, magnitude),
                                         columns[j].bias, row.row_max - row.logits[j]);
            lattice_ = lattice_ && score_error_.is_exact(magnitude);
            error_[j] = std::isfinite(row.logits[j])
                            ? score_error_(row.logits[j], columns[j].bias, magnitude)
                            : 0;
        }
    }

    /// row_max, row_sum and their pair. C = exp(m^ - m) is common to the row: it moves row_sum, not
    /// P. 2 u |m| is the conversion of m to base e.
    ///
    /// The exponent of the maximum itself need not be 0: exp2(fma(<q,k>, scale log2 e, -m)) leaves
    /// the rounding of m, and constants of two bases differ. residue bounds it; l^ lies in
    /// [e^-residue, count e^residue].
    void statistics(const AttentionRow<double>& row, std::span<const KeyColumn> columns,
                    std::size_t at, ExpectedAttention& out) {
        const double m = row.row_max, l = row.row_sum, count = static_cast<double>(columns.size());
        const double u = roundoff_.unit, tiles = count_tiles(columns);
        const double residue = 4 * u * std::fabs(m);
        coarse_ = residue > kCoarse;
        rescale_ = lattice_ ? 0 : rescale_error(tiles, u);
        // Additions, and per tile one more and a product; P v of an fp32 P is rounded as well.
        const double summands =
            roundoff_.row_sum > 0 && !lattice_
                ? roundoff_.row_sum + count * roundoff_.cast_eta / std::min(1.0, l)
                : 0;
        const double sum_growth =
            (1 + gamma(count + 2 * tiles - 3, roundoff_.sum)) * (1 + summands) - 1;
        growth_ = gamma(count + 2 * tiles - 1, roundoff_.sum) + (lattice_ ? kLatticeSlack : 0);
        sum_growth_ = (1 + growth_) * (1 + summands) - 1;
        double low = -kInfinity, high = -kInfinity;
        theta_.resize(columns.size());
        gained_ = 0, kept_ = 0;
        for (std::size_t j = 0; j < columns.size(); ++j) {
            const double s = row.logits[j];
            if (!std::isfinite(s)) {
                theta_[j] = 0;
                continue;
            }
            low = std::max(low, s - error_[j]);
            high = std::max(high, s + error_[j]);
            // 3 u for s - m and its factor log2 e, u for the rescaling, 4 u for exp itself.
            const double eps =
                lattice_ ? 0 : error_[j] + 4 * u * std::fabs(s - m) + 4 * u + rescale_;
            theta_[j] = gained_weight(s - m, eps, l, row.probs[j]);
            gained_ += theta_[j];
            kept_ += row.probs[j] * std::exp(-eps);
        }
        const double shift = std::max(high - m, m - low);
        const double max_error = shift + (lattice_ ? residue : 2 * u * std::fabs(m));
        // P and its sum, relative; where the errors of the logits are beyond exp, by the largest
        // logit that is possible.
        const double relative =
            (1 + gained_) * (1 + sum_growth) * (1 + (lattice_ ? kLatticeSlack : u));
        const double log_gain =
            gained_ < kLargestGain ? std::log1p(gained_) : shift + std::log(count) + 1;
        const double hull = std::max(count * std::exp(residue) * (1 + sum_growth + 8 * u) - l,
                                     l - std::exp(-residue) * (1 - 8 * u) / (1 + sum_growth));
        const double sum_error = std::min(l * (std::exp(max_error) * relative - 1), hull);
        const double factor = roundoff_.oracle;
        finish(m, max_error * factor, 0, kLargestFp32, Dtype::fp32, out.row_max, at);
        finish(l, sum_error * factor, 0, kLargestFp32, Dtype::fp32, out.row_sum, at);
        out.lse.value[at] = m + std::log(l);
        out.lse.bound[at] = (log_gain + std::log1p(sum_growth) + (max_error - shift) +
                             (lattice_ ? kLatticeSlack : 2 * u)) *
                            factor;
        if (coarse_) leave_unjudged(out.row_sum, at);
        if (!unjudged_) return;
        for (ExpectedTensor* statistic : {&out.row_max, &out.row_sum, &out.lse})
            leave_unjudged(*statistic, at);
    }

    /// O, element by element:
    ///
    ///   o^ - o = [ sum p theta (y - o) + sum p (1 + theta) ((pi + rho) y - lambda o) ] / sum p (1
    ///   + theta)(1 + lambda)
    ///
    /// with y = g v, |pi| <= u_P, |rho|, |lambda| <= growth, and
    /// u_P more where the row sum adds up the rounded P; and o^ lies in the hull of the y.
    void values(std::int64_t n, std::span<const KeyColumn> columns, const AttentionRow<double>& row,
                std::size_t at, ExpectedAttention& out) {
        const std::size_t width = static_cast<std::size_t>(shape_.value_dim);
        moved_.assign(width, 0);
        size_.assign(width, 0);
        farthest_.assign(width, 0);
        largest_.assign(width, 0);
        lost_.assign(width, 0);
        const double keep = 1 / in_.keep_prob, l = row.row_sum;
        for (std::size_t j = 0; j < columns.size(); ++j) {
            const double weight = row.probs[j] + theta_[j];
            const double gain = columns[j].kept ? keep : 0;
            double loss = weight * l < 0x1p-100 ? kExpFloor : 0;
            if (!lattice_ && weight > 0)
                loss += roundoff_.cast_loss(row.probs[j] * (row.probs[j] / weight) * 0.99);
            accumulate(columns[j].kept ? value_row(n, columns[j]) : nullptr, gain, theta_[j],
                       weight, loss, row.output.data());
        }
        const double prob = lattice_ ? 0 : roundoff_.prob, unit = lattice_ ? 0 : roundoff_.unit;
        const double rho = prob + growth_ + prob * growth_ + (in_.keep_prob < 1 ? 2 * unit : 0);
        const double low = kept_ / (1 + sum_growth_), count = static_cast<double>(columns.size());
        const double first = at * static_cast<double>(width);
        for (std::size_t d = 0; d < width; ++d) {
            const std::size_t index = static_cast<std::size_t>(first) + d;
            out.output.value[index] = row.output[d];
            out.output.bound[index] = 0;
            if (unjudged_ || coarse_) {
                leave_unjudged(out.output, index);
                continue;
            }
            const double o = std::fabs(row.output[d]);
            if (std::isnan(o) || largest_[d] == 0) continue;
            const double formula =
                (moved_[d] + rho * size_[d] + sum_growth_ * (1 + gained_) * o) / low + 3 * unit * o;
            const double hull =
                farthest_[d] +
                ((1 + rho) * (1 + sum_growth_) * (1 + 4 * unit) - 1) * (largest_[d] + o);
            // Products, partial sums and rescalings near zero; flushed values of V and the result.
            const double floor =
                lost_[d] +
                (lattice_ ? 0 : (2 * count + 4) * keep * (roundoff_.sum_floor + roundoff_.tiny));
            finish(row.output[d], (std::min(formula, hull) + floor) * roundoff_.oracle,
                   count * largest_[d] * (1 + rho), roundoff_.largest, dtype_, out.output, index);
        }
    }

    void accumulate(const double* v, double gain, double theta, double weight, double loss,
                    const double* o) {
        const std::int64_t width = shape_.value_dim;
        for (std::int64_t d = 0; d < width; ++d) {
            const double y = v ? gain * v[d] : 0;
            const double distance = std::fabs(y - o[d]), size = std::fabs(y);
            moved_[d] += theta * distance;
            size_[d] += weight * size;
            lost_[d] += loss * size;
            farthest_[d] = farthest_[d] > distance ? farthest_[d] : distance;
            largest_[d] = size > largest_[d] && size < kInfinity ? size : largest_[d];
        }
    }

    const AttentionShape& shape_;
    const AttentionInputs<double>& in_;
    Dtype dtype_;
    AttentionRoundoff roundoff_;
    ScoreError score_error_;
    TensorRange value_;
    Grant grant_;
    bool unjudged_ = false, lattice_ = false, coarse_ = false;
    double rescale_ = 0, growth_ = 0;  ///< relative errors of a rescaling and of the sums of P v,
    double sum_growth_ = 0;            ///< and of the row sum
    double gained_ = 0, kept_ = 0;     ///< sum p (e^eps - 1), sum p e^-eps
    std::vector<double> error_, theta_, moved_, size_, farthest_, largest_, lost_;
};

void write_empty_row(std::size_t at, ExpectedAttention& out) {
    out.row_max.value[at] = kEmptyRowMax;
    out.row_sum.value[at] = kEmptyRowSum;
    leave_unjudged(out.lse, at);
}

/// Calls work(part, parts), on threads of their own when there is much to do. An exception of one
/// of them is thrown here.
template <class Work>
void for_each_part(bool is_large, const Work& work) {
    constexpr std::int64_t kParts = 4;
    if (!is_large) return work(0, 1);
    std::vector<std::thread> threads;
    std::exception_ptr failures[kParts];
    for (std::int64_t part = 0; part < kParts; ++part)
        threads.emplace_back([&, part] {
            try {
                work(part, kParts);
            } catch (...) {
                failures[part] = std::current_exception();
            }
        });
    for (auto& thread : threads) thread.join();
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

/// Rows number(0) .. number(count - 1), where number t * N1 + n is (t, n). A row does not depend on
/// which others are asked for.
template <class Number>
ExpectedAttention expected_rows(const AttentionShape& shape, const ColumnLister& list_columns,
                                const ForwardBound& prototype, const AttentionInputs<double>& in,
                                std::int64_t count, const Number& number) {
    const auto rows = static_cast<std::size_t>(count);
    ExpectedAttention out{ExpectedTensor(rows * static_cast<std::size_t>(shape.value_dim)),
                          ExpectedTensor(rows), ExpectedTensor(rows), ExpectedTensor(rows)};
    constexpr std::int64_t kManyRows = 8192, kManyPairs = std::int64_t{1} << 22;
    const bool is_large = count >= kManyRows || (count >= 8 && shape.kv_rows > kManyPairs / count);
    for_each_part(is_large, [&](std::int64_t part, std::int64_t parts) {
        ForwardBound bound = prototype;
        std::vector<KeyColumn> columns;
        AttentionRow<double> row;
        for (std::int64_t k = part; k < count; k += parts) {
            const std::int64_t t = number(k) / shape.query_heads, n = number(k) % shape.query_heads;
            const auto at = static_cast<std::size_t>(k);
            columns.clear();
            if (!list_columns(t, n, columns)) continue;
            if (columns.empty()) {
                write_empty_row(at, out);
                continue;
            }
            attend_row(shape, in, t, n, std::span<const KeyColumn>(columns), row);
            bound.write(t, n, columns, row, at, out);
        }
    });
    return out;
}

}  // namespace

double inner_product(const double* a, const double* b, std::int64_t count) {
    double part[8] = {};
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int k = 0; k < 8; ++k) part[k] += a[i + k] * b[i + k];
    double sum =
        ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    for (; i < count; ++i) sum += a[i] * b[i];
    return sum;
}

double magnitude_product(const double* a, const double* b, std::int64_t count) {
    double part[8] = {};
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int k = 0; k < 8; ++k) part[k] += std::fabs(a[i + k] * b[i + k]);
    double sum =
        ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    for (; i < count; ++i) sum += std::fabs(a[i] * b[i]);
    return sum;
}

double finite_magnitude(const double* a, const double* b, std::int64_t count, double magnitude) {
    if (std::isfinite(magnitude)) return magnitude;
    if (std::isnan(magnitude)) return 0;
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const double product = std::fabs(a[i] * b[i]);
        if (std::isfinite(product)) sum += product;
    }
    return sum;
}

TensorRange::TensorRange(std::span<const double> values) {
    for (const double v : values) {
        if (!std::isfinite(v) || v == 0) continue;
        const double size = std::fabs(v);
        largest = std::max(largest, size);
        lowest_bit = std::min(lowest_bit, lowest_set_bit(v));
        bf16_subnormals = bf16_subnormals || size < 0x1p-126;
    }
}

AttentionRoundoff::AttentionRoundoff(Dtype dtype, const RoundingClass& rounding)
    : sum(ref::accumulator_roundoff(rounding, dtype)), unit(std::max(sum, 0x1p-24)) {
    const bool flushes = dtype == Dtype::bf16 && rounding.flush_bf16_subnormals;
    if (rounding.prob_rounded) prob = unit_roundoff(dtype);
    if (rounding.score_grad_rounded) score_grad = unit_roundoff(dtype);
    if (rounding.row_sum_rounded) row_sum = unit_roundoff(dtype);
    if (rounding.prob_rounded || rounding.score_grad_rounded || rounding.row_sum_rounded) {
        cast_min = min_normal(dtype);
        cast_eta = flushes ? cast_min : half_ulp(dtype, 0);
    }
    const bool half = rounding.accumulator_roundoff < 0;
    cast_max = max_finite(dtype);
    largest = half ? cast_max : kLargestFp32;
    sum_floor = half ? 2 * half_ulp(dtype, 0) : kSumFloor;
    if (sum < unit) narrow = unit;
    if (flushes) tiny = 0x1p-126;
    oracle = sum < 0x1p-40 ? 4 : 1 + 0x1p-20;
}

double AttentionRoundoff::flush_loss(const double* a, const double* b, std::int64_t count) const {
    if (tiny == 0) return 0;
    double loss = 2 * tiny * static_cast<double>(count);
    for (std::int64_t i = 0; i < count; ++i)
        if (std::fmin(std::fabs(a[i]), std::fabs(b[i])) < tiny) loss += std::fabs(a[i] * b[i]);
    return loss;
}

double count_tiles(std::span<const KeyColumn> columns) {
    constexpr std::int64_t kTile = 16;
    std::int64_t tiles = 0;
    for (std::size_t begin = 0, end; begin < columns.size(); begin = end) {
        for (end = begin + 1; end < columns.size() && columns[end].key == columns[end - 1].key + 1;)
            ++end;
        const bool aligned = columns[begin].key % kTile == 0;
        const auto run = static_cast<std::int64_t>(end - begin);
        tiles += (run + (aligned ? kTile - 1 : 2 * kTile - 2)) / kTile;
    }
    return static_cast<double>(tiles);
}

double exact_sum_limit(int lowest_bit) {
    return lowest_bit >= -149 && lowest_bit < 900 ? std::ldexp(1.0, lowest_bit + 24) : 0;
}

ScoreError::ScoreError(const AttentionShape& shape, const AttentionInputs<double>& in,
                       const AttentionRoundoff& roundoff)
    : scale_(std::fabs(in.scale)),
      growth_(gamma(static_cast<double>(shape.head_dim) + 2, roundoff.sum) + 3 * roundoff.narrow),
      unit_(roundoff.unit),
      largest_(roundoff.largest) {
    const TensorRange q(in.query), k(in.key);
    if (roundoff.tiny > 0)
        flush_ = scale_ * roundoff.tiny * static_cast<double>(shape.head_dim) *
                 (2 + (q.bf16_subnormals ? k.largest : 0) + (k.bf16_subnormals ? q.largest : 0));
    else if (roundoff.sum <= 0x1p-24)
        exact_below_ = exact_sum_limit(q.lowest_bit + k.lowest_bit);
    flush_ += scale_ * static_cast<double>(shape.head_dim) * roundoff.sum_floor;
}

double ScoreError::operator()(double logit, double bias, double magnitude) const {
    const double with_bias =
        bias == 0 ? 0 : 4 * unit_ * (std::fabs(logit) + std::fabs(bias)) * (1 + growth_);
    const double floor = (magnitude + 4) * kSumFloor;
    if (magnitude < exact_below_) {
        if (logit == bias) return with_bias;
        return 2 * unit_ * (std::fabs(logit) + std::fabs(bias)) + with_bias + floor;
    }
    return magnitude == 0 ? with_bias : growth_ * scale_ * magnitude + with_bias + flush_ + floor;
}

bool is_lattice_row(std::span<const double> logits, double row_max) {
    constexpr double kGap = 200;  // e^-200 vanishes in fp32, and against any number that matters
    std::size_t top = 0;
    for (const double s : logits) {
        if (s == row_max)
            ++top;
        else if (!(s <= row_max - kGap))
            return false;
    }
    return top > 0 && (top & (top - 1)) == 0;
}

bool is_dropped_nan_row(std::span<const KeyColumn> columns, std::span<const double> logits) {
    return std::none_of(columns.begin(), columns.end(), [](const auto& c) { return c.kept; }) &&
           std::any_of(logits.begin(), logits.end(), [](double s) { return std::isnan(s); });
}

void require_elements(const char* tensor, std::size_t size, std::int64_t expected) {
    if (static_cast<std::int64_t>(size) != expected)
        throw std::invalid_argument("dense attention: " + std::string(tensor) + " has " +
                                    std::to_string(size) + " elements, its shape " +
                                    std::to_string(expected));
}

void require_numbers(const char* what, std::span<const std::int64_t> numbers, std::int64_t count) {
    for (const std::int64_t number : numbers)
        if (number < 0 || number >= count)
            throw std::invalid_argument("dense attention: " + std::string(what) + " " +
                                        std::to_string(number) + " of " + std::to_string(count));
}

void require_attention_shape(const AttentionShape& s, const AttentionInputs<double>& in) {
    if (s.query_heads < 1 || s.kv_heads < 1 || s.query_heads % s.kv_heads != 0)
        throw std::invalid_argument("dense attention: query_heads " +
                                    std::to_string(s.query_heads) + ", kv_heads " +
                                    std::to_string(s.kv_heads));
    require_elements("query", in.query.size(), s.query_rows * s.query_heads * s.head_dim);
    require_elements("key", in.key.size(), s.kv_rows * s.kv_heads * s.head_dim);
    require_elements("value", in.value.size(), s.kv_rows * s.kv_heads * s.value_dim);
}

ExpectedAttention expected_attention(const AttentionShape& shape, const ColumnLister& list_columns,
                                     const AttentionInputs<double>& in, Dtype dtype,
                                     const RoundingClass& rounding, Grant grant) {
    require_attention_shape(shape, in);
    return expected_rows(shape, list_columns, ForwardBound(shape, in, dtype, rounding, grant), in,
                         shape.query_rows * shape.query_heads, [](std::int64_t k) { return k; });
}

ExpectedAttention expected_attention_rows(const AttentionShape& shape,
                                          const ColumnLister& list_columns,
                                          const AttentionInputs<double>& in, Dtype dtype,
                                          std::span<const std::int64_t> rows,
                                          const RoundingClass& rounding) {
    require_attention_shape(shape, in);
    require_numbers("row", rows, shape.query_rows * shape.query_heads);
    return expected_rows(
        shape, list_columns, ForwardBound(shape, in, dtype, rounding, Grant::rounding), in,
        std::ssize(rows), [&](std::int64_t k) { return rows[static_cast<std::size_t>(k)]; });
}

}  // namespace attncheck::ref
