// The bound of attention holds for every correct kernel that was thought of, and is not much wider
// than it must be: kernels are emulated with one rounding after every operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <sstream>

#include "ref/attention/dense_attention.h"
#include "tests/ref/print_dtype.h"

namespace attncheck::ref {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Random = std::mt19937_64;
using Values = std::vector<double>;

double to_float(double x) { return static_cast<float>(x); }

double to_storage(Dtype type, double x) { return decode(type, encode(type, x)); }

double to_storage_ties_away(Dtype type, double x) {
    const std::uint32_t even = encode(type, std::fabs(x));
    const double value = decode(type, even), next = decode(type, even + 1);
    const bool tie_went_down = value < std::fabs(x) && std::fabs(x) - value == next - std::fabs(x);
    return std::copysign(tie_went_down ? next : value, x);
}

double flush(double x) { return std::fabs(x) < 0x1p-126 ? 0 : x; }

// ---- Problems -----------------------------------------------------------------------------------

struct Problem {
    AttentionShape shape;
    Dtype type = Dtype::bf16;
    Values query, key, value, output_grad;
    double scale = 1, keep_prob = 1;
    std::vector<std::vector<KeyColumn>> columns;  // per (query row, head)

    ColumnLister lister() const {
        return [this](std::int64_t t, std::int64_t n, std::vector<KeyColumn>& to) {
            const auto& from = columns[static_cast<std::size_t>(t * shape.query_heads + n)];
            to.insert(to.end(), from.begin(), from.end());
            return true;
        };
    }
    AttentionInputs<double> inputs() const { return {query, key, value, scale, keep_prob}; }
    std::size_t rows() const { return columns.size(); }
    std::size_t key_index(std::size_t row, const KeyColumn& c) const {
        const auto head = static_cast<std::int64_t>(row) % shape.query_heads;
        return static_cast<std::size_t>(c.key * shape.kv_heads + head / shape.group());
    }
    const double* query_of(std::size_t row) const { return query.data() + row * head_dim(); }
    const double* output_grad_of(std::size_t row) const {
        return output_grad.data() + row * value_dim();
    }
    const double* key_of(std::size_t row, const KeyColumn& c) const {
        return key.data() + key_index(row, c) * head_dim();
    }
    const double* value_of(std::size_t row, const KeyColumn& c) const {
        return value.data() + key_index(row, c) * value_dim();
    }
    std::size_t head_dim() const { return static_cast<std::size_t>(shape.head_dim); }
    std::size_t value_dim() const { return static_cast<std::size_t>(shape.value_dim); }
};

enum class Kind {
    normal,
    spiky,
    cancelling,
    integers,
    huge_values,
    subnormal,
    subnormal_scores,
    offset_keys,
    dominant,
    equal_logits,
    zero_scale,
    negative_scale,
    unit_scale,
    large_logits,
    huge_logits,
    tiny_scale,
    large_gradient,
    wide,
    bias,
    dropout,
    count
};
const char* const kKindNames[] = {"normal",
                                  "spiky",
                                  "cancelling",
                                  "integers",
                                  "huge_values",
                                  "subnormal",
                                  "subnormal_scores",
                                  "offset_keys",
                                  "dominant",
                                  "equal_logits",
                                  "zero_scale",
                                  "negative_scale",
                                  "unit_scale",
                                  "large_logits",
                                  "huge_logits",
                                  "tiny_scale",
                                  "large_gradient",
                                  "wide",
                                  "bias",
                                  "dropout"};

class Generator {
public:
    explicit Generator(std::uint64_t seed) : random_(seed) {}

    std::int64_t up_to(std::int64_t n) { return 1 + static_cast<std::int64_t>(random_() % n); }
    double normal() { return normal_(random_); }
    double power(int low, int high) {
        return std::ldexp(1.0, low + static_cast<int>(random_() % (high - low + 1)));
    }
    bool one_in(int n) { return random_() % n == 0; }

    /// max_columns limits the keys of a row; every eighth problem or so is long.
    Problem draw(Dtype type, Kind kind, std::int64_t max_columns) {
        const std::int64_t heads = up_to(2), group = up_to(3);
        const std::int64_t dims[] = {1, 2, 3, 4, 8, 8, 16, 16, 32, 64};
        Problem p;
        p.type = type;
        p.shape = {up_to(3), up_to(max_columns),  heads * group,
                   heads,    dims[up_to(10) - 1], dims[up_to(10) - 1]};
        p.scale = to_float(1 / std::sqrt(static_cast<double>(p.shape.head_dim)));
        list_columns(p, max_columns, kind);
        const auto rows = p.rows(), keys = static_cast<std::size_t>(p.shape.kv_rows * heads);
        fill(p.query, rows * p.head_dim(), type, kind);
        fill(p.key, keys * p.head_dim(), type, kind);
        fill(p.value, keys * p.value_dim(), type, kind);
        fill(p.output_grad, rows * p.value_dim(), type, kind);
        shape_data(p, kind);
        for (Values* tensor : {&p.query, &p.key, &p.value, &p.output_grad})
            for (double& v : *tensor)
                v = to_storage(type, std::clamp(v, -max_finite(type), max_finite(type)));
        return p;
    }

private:
    void list_columns(Problem& p, std::int64_t max_columns, Kind kind) {
        p.columns.resize(static_cast<std::size_t>(p.shape.query_rows * p.shape.query_heads));
        if (kind == Kind::dropout) p.keep_prob = one_in(2) ? 0.5 : 0.3;
        for (auto& columns : p.columns) {
            const std::int64_t count = up_to(max_columns);
            for (std::int64_t j = 0; j < count; ++j)
                columns.push_back({up_to(p.shape.kv_rows) - 1,
                                   kind == Kind::bias ? to_float(normal() * 3) : 0,
                                   kind != Kind::dropout || one_in(2)});
        }
    }

    void fill(Values& values, std::size_t size, Dtype type, Kind kind) {
        values.resize(size);
        for (double& v : values) {
            v = normal();
            if (kind == Kind::spiky && one_in(16)) v *= 1000;
            if (kind == Kind::integers) v = std::nearbyint(v * 2);
            if (kind == Kind::subnormal_scores && one_in(2))
                v *= type == Dtype::fp16 ? power(-24, -14) : power(-133, -64);
        }
    }

    void shape_data(Problem& p, Kind kind) {
        const auto dim = p.head_dim();
        const int top = p.type == Dtype::fp16 ? 15 : 126;
        const int bottom = p.type == Dtype::fp16 ? -24 : -133;
        switch (kind) {
            case Kind::cancelling:
                // Neighbouring channels and neighbouring values take each other away.
                for (Values* t : {&p.query, &p.key, &p.value, &p.output_grad})
                    for (std::size_t i = 1; i < t->size(); i += 2)
                        (*t)[i] = t == &p.query || t == &p.output_grad
                                      ? -(*t)[i - 1]
                                      : (*t)[i - 1] * (1 + (one_in(2) ? 0x1p-7 : 0));
                break;
            case Kind::huge_values:
                for (double& v : p.value) v *= power(top / 2, top - 2);
                if (one_in(2))
                    for (double& v : p.output_grad) v *= power(-top / 2, 0);
                break;
            case Kind::subnormal:
                for (double& v : p.value) v *= power(bottom, bottom + 14);
                if (one_in(2))
                    for (double& v : p.output_grad) v *= power(bottom, bottom + 14);
                if (one_in(2))
                    for (double& v : p.key) v *= power(bottom, bottom + 14);
                break;
            case Kind::offset_keys: {
                const double offsets[] = {-40, -120, -300, 0};
                const bool each = one_in(2);
                double offset = offsets[up_to(4) - 1];
                for (std::size_t i = 0; i < p.query.size(); i += dim) p.query[i] = 8;
                for (std::size_t i = 0; i < p.key.size(); i += dim) {
                    if (each) offset = offsets[up_to(4) - 1];
                    p.key[i] += offset / (8 * p.scale);
                }
                break;
            }
            case Kind::dominant:
                for (std::size_t i = 0; i < p.query.size(); i += dim) p.query[i] = 4;
                for (std::size_t i = 0; i < p.key.size(); i += dim)
                    if (one_in(6)) p.key[i] = power(1, 6) / p.scale;
                break;
            case Kind::equal_logits:
                for (std::size_t i = 0; i < p.key.size(); ++i) p.key[i] = p.key[i % dim];
                if (one_in(2))
                    for (double& k : p.key) k *= 40;
                break;
            case Kind::large_gradient:
                for (double& g : p.output_grad) g *= power(0, p.type == Dtype::fp16 ? 14 : 40);
                break;
            case Kind::wide:
                // Ordinary logits and outputs from numbers at both ends of the range.
                for (double& q : p.query) q *= std::ldexp(1.0, bottom + 18);
                for (double& k : p.key) k *= std::ldexp(1.0, -bottom - 18);
                for (double& v : p.value) v *= power(bottom / 2, 0);
                for (double& g : p.output_grad) g *= power(bottom / 2, 0);
                break;
            default:
                shape_scale(p, kind);
        }
    }

    void shape_scale(Problem& p, Kind kind) {
        switch (kind) {
            case Kind::zero_scale:
                p.scale = 0;
                break;
            case Kind::negative_scale:
                p.scale = -p.scale * (one_in(2) ? 1 : 7);
                break;
            case Kind::unit_scale:
                p.scale = 1;
                break;
            case Kind::large_logits:
                for (double& q : p.query) q *= 30;
                for (double& k : p.key) k *= 100;
                p.scale = one_in(2) ? 1 : 0.7f;
                break;
            case Kind::huge_logits:
                for (double& q : p.query) q *= 3000;
                for (double& k : p.key) k *= power(4, 13);
                p.scale = one_in(2) ? 1 : 0.3f;
                break;
            case Kind::tiny_scale:
                p.scale = to_float(power(-148, -100) * 1.3);
                break;
            default:
                break;
        }
    }

    Random random_;
    std::normal_distribution<double> normal_;
};

// ---- Kernels ------------------------------------------------------------------------------------

enum class Order { forward, backward, pairwise, lanes };
enum class Cast { none, normalised, unnormalised };

/// How a kernel computes what the contract leaves open.
struct Method {
    int tile = 0;  ///< 0: two passes
    Cast prob = Cast::unnormalised;
    Order order = Order::forward;
    bool base2 = false, fused = false, reciprocal = false, ties_away = false;
    bool coarse_exp = false;  ///< 3.4 u of exp besides its rounding
    bool flush_exp = false;   ///< exp below -87 gives 0
    bool keep_last = false;   ///< dropout factor on O
    bool mixed = false;       ///< base 2, but the maximum is kept to base e
    bool lse_form = false;    ///< P = exp(s - (m + log l))
    bool score_grad_cast = true, scale_first = false;

    std::string text() const {
        std::ostringstream out;
        out << "tile " << tile << " prob " << static_cast<int>(prob) << " order "
            << static_cast<int>(order) << (base2 ? " base2" : "") << (fused ? " fused" : "")
            << (reciprocal ? " reciprocal" : "") << (ties_away ? " away" : "")
            << (coarse_exp ? " coarse" : "") << (flush_exp ? " flush" : "")
            << (keep_last ? " keep_last" : "") << (mixed ? " mixed" : "")
            << (lse_form ? " lse" : "") << (score_grad_cast ? " ds" : "")
            << (scale_first ? " scale_first" : "");
        return out.str();
    }
};

Method draw_method(Random& random) {
    const auto coin = [&] { return random() % 2 == 0; };
    const int tiles[] = {0, 0, 16, 32, 64};
    Method m;
    m.tile = tiles[random() % 5];
    m.prob = static_cast<Cast>(random() % 3);
    if (m.tile > 0 && m.prob == Cast::normalised) m.prob = Cast::unnormalised;
    m.order = static_cast<Order>(random() % 4);
    m.base2 = coin(), m.fused = coin(), m.reciprocal = coin(), m.ties_away = coin();
    m.coarse_exp = coin(), m.flush_exp = coin(), m.keep_last = coin(), m.lse_form = coin();
    m.mixed = m.base2 && coin();
    m.score_grad_cast = coin(), m.scale_first = coin();
    return m;
}

/// The roundings of a class: of a partial sum, of any other operation, of a number that is read or
/// written.
struct Arithmetic {
    Dtype type = Dtype::bf16;
    enum Kind { fp32, truncating, half, fp64, flushing } kind = fp32;

    double sum(double x) const {
        switch (kind) {
            case fp32:
                return to_float(x);
            case truncating:
                return truncate(x);
            case half:
                return to_storage(type, x);
            case fp64:
                return x;
            case flushing:
                return flush(to_float(x));
        }
        return x;
    }
    double op(double x) const { return kind == truncating ? truncate(x) : to_float(x); }
    double read(double x) const { return kind == flushing ? flush(x) : x; }
    double store(double x, bool ties_away) const {
        if (!std::isfinite(x)) return x;
        const double stored = ties_away ? to_storage_ties_away(type, x) : to_storage(type, x);
        return read(stored);
    }
    double fma(double a, double b, double c) const {
        if (kind == fp32)
            return std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
        return sum(std::fma(a, b, c));
    }
    double exp(double x, const Method& m) const {
        if (m.flush_exp && x < (m.base2 ? -125.5 : -87)) return 0;
        if (!m.coarse_exp || x == 0)
            return to_float(m.base2 ? std::exp2(static_cast<float>(x))
                                    : std::exp(static_cast<float>(x)));
        // Up or down as the argument happens to be.
        const double e = m.base2 ? std::exp2(x) : std::exp(x);
        return to_float(e * (1 + (static_cast<std::int64_t>(x * 1024) % 2 ? 3.4 : -3.4) * 0x1p-24));
    }

private:
    static double truncate(double x) {
        const float nearest = static_cast<float>(x);
        if (std::isinf(nearest)) return nearest;
        return std::fabs(nearest) > std::fabs(x) ? std::nextafter(nearest, 0.0f) : nearest;
    }
};

/// init + sum of a_i b_i over i < n, where term(i) gives both factors.
template <class Term>
double sum_of(const Arithmetic& a, double init, std::size_t n, const Term& term, const Method& m) {
    const auto product = [&](std::size_t i) {
        const auto [x, y] = term(i);
        return a.sum(x * y);
    };
    const auto add = [&](double sum, std::size_t i) {
        const auto [x, y] = term(i);
        return m.fused ? a.fma(x, y, sum) : a.sum(sum + a.sum(x * y));
    };
    double sum = init;
    switch (m.order) {
        case Order::forward:
            for (std::size_t i = 0; i < n; ++i) sum = add(sum, i);
            return sum;
        case Order::backward:
            for (std::size_t i = n; i-- > 0;) sum = add(sum, i);
            return sum;
        case Order::lanes: {
            double lanes[8] = {init};
            for (std::size_t i = 0; i < n; ++i) lanes[i % 8] = add(lanes[i % 8], i);
            for (std::size_t i = 4; i > 0; i /= 2)
                for (std::size_t k = 0; k < i; ++k) lanes[k] = a.sum(lanes[k] + lanes[k + i]);
            return lanes[0];
        }
        case Order::pairwise: {
            if (n == 0) return init;
            Values level(n);
            for (std::size_t i = 0; i < n; ++i) level[i] = product(i);
            for (; level.size() > 1; level.resize((level.size() + 1) / 2))
                for (std::size_t i = 0; i < level.size(); i += 2)
                    level[i / 2] = i + 1 < level.size() ? a.sum(level[i] + level[i + 1]) : level[i];
            return a.sum(init + level[0]);
        }
    }
    return sum;
}

double dot(const Arithmetic& a, const double* x, const double* y, std::size_t n, const Method& m) {
    return a.op(
        sum_of(a, 0, n, [&](std::size_t i) { return std::pair(a.read(x[i]), a.read(y[i])); }, m));
}

constexpr float kLog2e = 1.44269504f, kLn2 = 0.69314718f;

/// <q,k> and the scaled logits of a row, in the base of the method.
struct Scores {
    double factor = 1, unit = 1;  ///< scale in that base; what a natural logit is multiplied with
    Values dots, scaled, natural;

    Scores(const Arithmetic& a, const Problem& p, std::size_t row, const Method& m) {
        unit = m.base2 ? kLog2e : 1;
        factor = m.base2 ? a.op(a.op(p.scale) * unit) : a.op(p.scale);
        for (const KeyColumn& c : p.columns[row]) {
            dots.push_back(dot(a, p.query_of(row), p.key_of(row, c), p.head_dim(), m));
            natural.push_back(a.op(a.op(dots.back() * a.op(p.scale)) + c.bias));
            const double s = a.op(dots.back() * factor);
            scaled.push_back(c.bias == 0 ? s : a.op(s + a.op(c.bias * unit)));
        }
    }
    /// The exponent of column j relative to `from`.
    double relative(const Arithmetic& a, const Problem& p, std::size_t row, std::size_t j,
                    double from, const Method& m) const {
        if (m.fused && p.columns[row][j].bias == 0) return a.op(std::fma(dots[j], factor, -from));
        return a.op(scaled[j] - from);
    }
};

struct ForwardRow {
    Values output;
    double row_max = 0, row_sum = 0;
};

/// One row: two passes, or online with tiles.
ForwardRow run_forward_row(const Arithmetic& a, const Problem& p, std::size_t row,
                           const Method& m) {
    const auto& columns = p.columns[row];
    const Scores scores(a, p, row, m);
    const std::size_t tile = m.tile > 0 ? static_cast<std::size_t>(m.tile) : columns.size();
    const double gain = a.op(1 / p.keep_prob);
    ForwardRow out{Values(p.value_dim()), 0, 0};
    for (std::size_t begin = 0; begin < columns.size(); begin += tile) {
        const std::size_t count = std::min(tile, columns.size() - begin);
        const Values& logits = m.mixed ? scores.natural : scores.scaled;
        double top = *std::max_element(logits.begin() + static_cast<std::ptrdiff_t>(begin),
                                       logits.begin() + static_cast<std::ptrdiff_t>(begin + count));
        const auto exponent = [&](double max) { return m.mixed ? a.op(max * kLog2e) : max; };
        if (begin > 0) {
            top = std::max(top, out.row_max);
            const double alpha = a.exp(a.op(exponent(out.row_max) - exponent(top)), m);
            out.row_sum = a.op(out.row_sum * alpha);
            for (double& o : out.output) o = a.op(o * alpha);
        }
        out.row_max = top;
        Values e(count);
        for (std::size_t j = 0; j < count; ++j)
            e[j] = a.exp(scores.relative(a, p, row, begin + j, exponent(top), m), m);
        out.row_sum =
            sum_of(a, out.row_sum, count, [&](std::size_t j) { return std::pair(e[j], 1.0); }, m);
        const double inverse = a.op(1 / out.row_sum);
        std::vector<std::size_t> kept;
        for (std::size_t j = 0; j < count; ++j) {
            if (m.prob == Cast::normalised)
                e[j] = m.reciprocal ? a.op(e[j] * inverse) : a.op(e[j] / out.row_sum);
            if (!m.keep_last && p.keep_prob < 1) e[j] = a.op(e[j] * gain);
            if (m.prob != Cast::none) e[j] = a.store(e[j], m.ties_away);
            if (columns[begin + j].kept) kept.push_back(j);
        }
        for (std::size_t d = 0; d < out.output.size(); ++d)
            out.output[d] = sum_of(
                a, out.output[d], kept.size(),
                [&](std::size_t i) {
                    return std::pair(e[kept[i]],
                                     a.read(p.value_of(row, columns[begin + kept[i]])[d]));
                },
                m);
    }
    const double inverse = a.op(1 / out.row_sum);
    for (double& o : out.output) {
        o = a.op(o);
        if (m.prob != Cast::normalised)
            o = m.reciprocal ? a.op(o * inverse) : a.op(o / out.row_sum);
        if (m.keep_last && p.keep_prob < 1) o = a.op(o * gain);
        o = a.store(o, m.ties_away);
    }
    if (m.base2 && !m.mixed) out.row_max = a.op(out.row_max * kLn2);
    out.row_max = to_float(out.row_max), out.row_sum = to_float(out.row_sum);
    return out;
}

struct Gradients {
    Values query, key, value;
};

/// The numbers a backward is given.
struct Saved {
    Values output, row_max, row_sum;
};

/// The backward; dK and dV are summed over the rows in the order of the method.
class Backward {
public:
    Backward(const Arithmetic& a, const Problem& p, const Saved& saved, const Method& m)
        : a_(a), p_(p), saved_(saved), m_(m), seen_by_(p.key.size() / p.head_dim()) {
        grad_.query.resize(p.query.size());
        grad_.key.resize(p.key.size());
        grad_.value.resize(p.value.size());
    }
    Gradients run() {
        for (std::size_t row = 0; row < p_.rows(); ++row) run_row(row);
        for (std::size_t key = 0; key < seen_by_.size(); ++key) sum_key(key);
        return grad_;
    }

private:
    struct Share {
        std::size_t row;
        double prob, score_grad;
        bool kept;
    };

    double prob(const Scores& scores, std::size_t row, std::size_t j) const {
        const double m = saved_.row_max[row], l = saved_.row_sum[row];
        const double log_sum = a_.op(std::log(l));
        const double from = m_.lse_form ? a_.op(m + log_sum) : m;
        const double base = m_.base2 ? a_.op(from * kLog2e) : from;
        const double e = a_.exp(scores.relative(a_, p_, row, j, base, m_), m_);
        if (m_.lse_form) return e;
        return m_.reciprocal ? a_.op(e * a_.op(1 / l)) : a_.op(e / l);
    }

    void run_row(std::size_t row) {
        const auto& columns = p_.columns[row];
        const Scores scores(a_, p_, row, m_);
        const double gain = a_.op(1 / p_.keep_prob), scale = a_.op(p_.scale);
        const double* dout = p_.output_grad_of(row);
        const double delta =
            dot(a_, dout, saved_.output.data() + row * p_.value_dim(), p_.value_dim(), m_);
        Values score_grads;
        for (std::size_t j = 0; j < columns.size(); ++j) {
            const KeyColumn& c = columns[j];
            const double p = prob(scores, row, j);
            double prob_grad = 0;
            if (c.kept) prob_grad = dot(a_, dout, p_.value_of(row, c), p_.value_dim(), m_);
            if (p_.keep_prob < 1) prob_grad = a_.op(prob_grad * gain);
            double ds = a_.op(p * a_.op(prob_grad - delta));
            if (m_.scale_first) ds = a_.op(ds * scale);
            if (m_.score_grad_cast) ds = a_.store(ds, m_.ties_away);
            double weight = p_.keep_prob < 1 ? a_.op(p * gain) : p;
            if (m_.prob != Cast::none) weight = a_.store(weight, m_.ties_away);
            score_grads.push_back(ds);
            seen_by_[p_.key_index(row, c)].push_back({row, weight, ds, c.kept});
        }
        for (std::size_t d = 0; d < p_.head_dim(); ++d)
            grad_.query[row * p_.head_dim() + d] = finish(sum_of(
                a_, 0, columns.size(),
                [&](std::size_t j) {
                    return std::pair(score_grads[j], a_.read(p_.key_of(row, columns[j])[d]));
                },
                m_));
    }

    double finish(double sum) const {
        sum = a_.op(sum);
        return a_.store(m_.scale_first ? sum : a_.op(sum * a_.op(p_.scale)), m_.ties_away);
    }

    void sum_key(std::size_t key) {
        const auto& shares = seen_by_[key];
        for (std::size_t d = 0; d < p_.head_dim(); ++d)
            grad_.key[key * p_.head_dim() + d] = finish(sum_of(
                a_, 0, shares.size(),
                [&](std::size_t i) {
                    return std::pair(shares[i].score_grad, a_.read(p_.query_of(shares[i].row)[d]));
                },
                m_));
        std::vector<Share> kept;
        for (const Share& share : shares)
            if (share.kept) kept.push_back(share);
        for (std::size_t d = 0; d < p_.value_dim(); ++d)
            grad_.value[key * p_.value_dim() + d] = a_.store(
                a_.op(sum_of(
                    a_, 0, kept.size(),
                    [&](std::size_t i) {
                        return std::pair(kept[i].prob, a_.read(p_.output_grad_of(kept[i].row)[d]));
                    },
                    m_)),
                m_.ties_away);
    }

    const Arithmetic& a_;
    const Problem& p_;
    const Saved& saved_;
    const Method& m_;
    std::vector<std::vector<Share>> seen_by_;
    Gradients grad_;
};

// ---- Comparison ---------------------------------------------------------------------------------

/// |result - value| / bound of what is allowed; infinity when it is not.
double ratio(const ExpectedTensor& expected, std::size_t i, double result) {
    const double value = expected.value[i], bound = expected.bound[i];
    if (!std::isfinite(value)) return std::isfinite(result) ? kInfinity : 0;
    if (!std::isfinite(result)) {
        if (expected.overflow[i] == Overflow::any) return 0;
        const bool right = expected.overflow[i] == Overflow::signed_infinity &&
                           std::isinf(result) && std::signbit(result) == std::signbit(value);
        return right ? 0 : kInfinity;
    }
    const double error = std::fabs(result - value);
    if (error == 0 || bound == kInfinity) return 0;
    return bound > 0 ? error / bound : kInfinity;  // and for a NaN
}

/// The worst ratio of every tensor, and what was wrong.
struct Tally {
    std::map<std::string, double> worst;
    std::map<std::string, int> violations;
    std::string first;
    std::int64_t judged = 0, unjudged = 0, rows = 0;

    void add(const std::string& tensor, const std::string& where, const ExpectedTensor& expected,
             std::size_t i, double result) {
        const double r = ratio(expected, i, result);
        ++(expected.bound[i] < kInfinity ? judged : unjudged);
        if (!(worst[tensor] >= r)) worst[tensor] = r;
        if (r <= 1) return;
        if (violations[tensor]++ > 2) return;
        std::ostringstream out;
        out << "  " << tensor << "[" << i << "] " << result << " expected " << expected.value[i]
            << " +- " << expected.bound[i] << " (ratio " << r << ") " << where << "\n";
        first += out.str();
    }
    std::string text() const {
        std::ostringstream out;
        for (const auto& [tensor, r] : worst) out << tensor << " " << r << "  ";
        out << "judged " << judged << " unjudged " << unjudged << " rows " << rows;
        return out.str();
    }
};

Saved saved_from(const ExpectedAttention& expected, Dtype type) {
    Saved saved;
    for (const double o : expected.output.value)
        saved.output.push_back(std::isfinite(o) ? to_storage(type, o) : o);
    for (const double m : expected.row_max.value) saved.row_max.push_back(to_float(m));
    for (const double l : expected.row_sum.value) saved.row_sum.push_back(to_float(l));
    return saved;
}

ExpectedAttentionGrad gradient_of(const Problem& p, const Saved& saved,
                                  const RoundingClass& rounding, Grant grant = Grant::rounding) {
    return expected_attention_grad(
        {p.shape,
         p.lister(),
         {p.inputs(), p.output_grad, saved.output, saved.row_max, saved.row_sum}},
        {p.type, rounding}, grant);
}

/// Every output of both directions of one kernel against the bounds of one class.
void compare(const Problem& p, const Arithmetic& a, const std::vector<Method>& methods,
             const RoundingClass& rounding, Grant grant, const std::string& where, Tally& tally) {
    const ExpectedAttention forward =
        expected_attention({p.shape, p.lister(), p.inputs()}, {p.type, rounding}, grant);
    const Saved saved = saved_from(forward, p.type);
    const ExpectedAttentionGrad grad = gradient_of(p, saved, rounding, grant);
    tally.rows += static_cast<std::int64_t>(p.rows());
    for (const Method& m : methods) {
        const std::string full = where + " " + m.text();
        for (std::size_t row = 0; row < p.rows(); ++row) {
            const ForwardRow out = run_forward_row(a, p, row, m);
            for (std::size_t d = 0; d < p.value_dim(); ++d)
                tally.add("output", full, forward.output, row * p.value_dim() + d, out.output[d]);
            tally.add("row_max", full, forward.row_max, row, out.row_max);
            tally.add("row_sum", full, forward.row_sum, row, out.row_sum);
            tally.add("lse", full, forward.lse, row, out.row_max + std::log(out.row_sum));
        }
        const Gradients got = Backward(a, p, saved, m).run();
        for (std::size_t i = 0; i < got.query.size(); ++i)
            tally.add("dq", full, grad.query_grad, i, got.query[i]);
        for (std::size_t i = 0; i < got.key.size(); ++i)
            tally.add("dk", full, grad.key_grad, i, got.key[i]);
        for (std::size_t i = 0; i < got.value.size(); ++i)
            tally.add("dv", full, grad.value_grad, i, got.value[i]);
    }
}

std::string describe(const Problem& p, Kind kind, int i) {
    std::ostringstream out;
    out << kKindNames[static_cast<int>(kind)] << " case " << i << " " << dtype_name(p.type) << " D "
        << p.shape.head_dim << " Dv " << p.shape.value_dim << " keys " << p.shape.kv_rows
        << " rows " << p.rows() << " scale " << p.scale;
    return out.str();
}

class BoundOfAttention : public testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Storage, BoundOfAttention, testing::Values(Dtype::fp16, Dtype::bf16),
                         [](const auto& type) { return std::string(dtype_name(type.param)); });

void strip_casts(Method& m) {
    m.prob = Cast::none;
    m.score_grad_cast = false;
}

// Kinds of data that are hard in different ways, kernels of every construction, fp32 arithmetic:
// never outside.
TEST_P(BoundOfAttention, HoldsForEveryKernelInFp32) {
    Generator generator(71);
    Random random(73);
    std::map<Kind, Tally> tallies;
    std::int64_t rows = 0;
    const Arithmetic a{GetParam()};
    for (int i = 0; i < 2200; ++i) {
        const Kind kind = static_cast<Kind>(i % static_cast<int>(Kind::count));
        const Problem p = generator.draw(GetParam(), kind,
                                         i % 11 == 0  ? 512
                                         : i % 3 == 0 ? 64
                                                      : 16);
        std::vector<Method> methods;
        for (int k = 0; k < 3; ++k) methods.push_back(draw_method(random));
        const bool fp32_class = i % 4 == 0;
        if (fp32_class) std::for_each(methods.begin(), methods.end(), strip_casts);
        compare(p, a, methods, parse_rounding_class(fp32_class ? "fp32" : "default"),
                Grant::rounding, describe(p, kind, i), tallies[kind]);
    }
    for (const auto& [kind, tally] : tallies) {
        rows += tally.rows;
        RecordProperty(kKindNames[static_cast<int>(kind)], tally.text());
        EXPECT_TRUE(tally.violations.empty()) << tally.first;
    }
    EXPECT_GT(rows, 10000);  // of each type
}

// Coarser and finer accumulators, by their declared class.
TEST_P(BoundOfAttention, HoldsForOtherAccumulators) {
    struct Class {
        const char* rounding;
        Arithmetic::Kind kind;
    };
    const Class classes[] = {{"acc=fp32-truncating", Arithmetic::truncating},
                             {"acc=half", Arithmetic::half},
                             {"acc=fp64", Arithmetic::fp64}};
    Random random(79);
    for (const Class& c : classes) {
        Generator generator(83);
        std::map<Kind, Tally> tallies;
        for (int i = 0; i < 380; ++i) {
            const Kind kind = static_cast<Kind>(i % static_cast<int>(Kind::count));
            const Problem p = generator.draw(GetParam(), kind,
                                             i % 23 == 0  ? 512
                                             : i % 5 == 0 ? 64
                                                          : 16);
            compare(p, {GetParam(), c.kind}, {draw_method(random), draw_method(random)},
                    parse_rounding_class(c.rounding), Grant::rounding, describe(p, kind, i),
                    tallies[kind]);
        }
        for (const auto& [kind, tally] : tallies)
            EXPECT_TRUE(tally.violations.empty()) << c.rounding << tally.first;
    }
}

// Instructions that read and write bf16 subnormals, and their fp32 sums, as zero.
TEST(BoundOfFlushedAttention, HoldsWhereSubnormalsBecomeZero) {
    Random random(89);
    Generator generator(97);
    Tally tally, strict;
    const Kind kinds[] = {Kind::normal,     Kind::subnormal,   Kind::subnormal_scores,
                          Kind::tiny_scale, Kind::offset_keys, Kind::dropout};
    for (int i = 0; i < 900; ++i) {
        const Kind kind = kinds[i % 6];
        Problem p = generator.draw(Dtype::bf16, kind, i % 5 == 0 ? 256 : 16);
        if (i % 12 >= 6)  // subnormal keys and queries under a large dS
            for (double& g : p.output_grad) g = to_storage(p.type, g * 0x1p20);
        if (i % 24 >= 12)
            for (double& q : p.query) q = to_storage(p.type, q * 0x1p-130);
        const std::vector<Method> methods = {draw_method(random), draw_method(random)};
        const Arithmetic a{Dtype::bf16, Arithmetic::flushing};
        compare(p, a, methods, parse_rounding_class("ftz=bf16"), Grant::rounding,
                describe(p, kind, i), tally);
        compare(p, a, methods, {}, Grant::rounding, describe(p, kind, i), strict);
    }
    RecordProperty("worst", tally.text());
    EXPECT_TRUE(tally.violations.empty()) << tally.first;
    // Without the declaration the same results are wrong.
    for (const char* tensor : {"output", "dq", "dk", "dv"})
        EXPECT_GT(strict.violations[tensor], 500) << tensor;
}

// A mask may leave one visible key in each tile: as many rescalings as keys, each with the whole
// error of exp.
TEST(BoundOfAttentionTiles, HoldsForOneVisibleKeyPerTile) {
    Generator generator(101);
    Tally tally;
    for (int i = 0; i < 500; ++i) {
        Problem p;
        p.type = i % 2 ? Dtype::fp16 : Dtype::bf16;
        const std::int64_t tiles = 1 + i % 250;
        p.shape = {1, tiles * 16, 1, 1, 1, 1};
        p.query = {1}, p.output_grad = {1}, p.scale = i % 3 ? 0x1p-5 : 0x1p-10;
        p.columns.resize(1);
        p.key.resize(static_cast<std::size_t>(tiles * 16));
        p.value.resize(p.key.size());
        for (std::int64_t j = 0; j < tiles; ++j) {
            const auto key = static_cast<std::size_t>(j * 16 + generator.up_to(16) - 1);
            p.key[key] = to_storage(p.type, static_cast<double>(j));
            p.value[key] = to_storage(p.type, generator.normal());
            p.columns[0].push_back({static_cast<std::int64_t>(key)});
        }
        Method m;
        m.tile = 1, m.prob = Cast::none, m.score_grad_cast = false, m.coarse_exp = true;
        m.base2 = i % 4 < 2;
        compare(p, {p.type}, {m}, parse_rounding_class("fp32"), Grant::rounding, "tiles", tally);
    }
    RecordProperty("worst", tally.text());
    EXPECT_TRUE(tally.violations.empty()) << tally.first;
}

// On small normal problems the bound is used up to a good part in every output: it is not vacuous.
TEST_P(BoundOfAttention, IsNotVacuous) {
    Generator generator(103);
    Random random(107);
    Tally rounded, fp32;
    for (int i = 0; i < 1500; ++i) {
        Problem p = generator.draw(GetParam(), Kind::normal, 4);
        for (auto& row : p.columns) {  // neighbours: one tile
            row.resize(std::min(row.size(), static_cast<std::size_t>(p.shape.kv_rows)));
            for (std::size_t j = 0; j < row.size(); ++j) row[j].key = static_cast<std::int64_t>(j);
        }
        Method m = draw_method(random);
        compare(p, {GetParam()}, {m}, {}, Grant::rounding, "small", rounded);
        strip_casts(m);
        compare(p, {GetParam()}, {m}, parse_rounding_class("fp32"), Grant::rounding, "small", fp32);
    }
    RecordProperty("rounded", rounded.text());
    RecordProperty("fp32", fp32.text());
    for (const Tally* tally : {&rounded, &fp32}) {
        EXPECT_TRUE(tally->violations.empty()) << tally->first;
        EXPECT_EQ(tally->unjudged, 0);
        for (const auto& [tensor, worst] : tally->worst) EXPECT_GT(worst, 0.3) << tensor;
    }
}

// ---- The lattice: data on which everything is exact --------------------------------------------

/// 2^k equal scores, or 2^k keys ahead of all others by 200 or more; integer V, one channel of dO.
Problem draw_lattice(Generator& generator, Dtype type, bool dominant) {
    Problem p;
    p.type = type;
    const std::int64_t heads = generator.up_to(2), group = generator.up_to(2);
    p.shape = {generator.up_to(4), 1 << generator.up_to(4), heads * group, heads,
               generator.up_to(8), generator.up_to(8)};
    p.scale = generator.power(-3, 1);
    const auto keys = static_cast<std::size_t>(p.shape.kv_rows * heads), dim = p.head_dim();
    p.columns.resize(static_cast<std::size_t>(p.shape.query_rows * p.shape.query_heads));
    const auto integer = [&] { return static_cast<double>(generator.up_to(5) - 3); };
    p.query.resize(p.rows() * dim), p.key.resize(keys * dim);
    p.value.resize(keys * p.value_dim()), p.output_grad.resize(p.rows() * p.value_dim());
    for (double& v : p.value) v = integer();
    for (double& q : p.query) q = integer();
    for (double& k : p.key) k = integer();
    // Equal keys; or channel 0 alone decides, 0 for the top keys and strongly negative for the
    // others.
    for (std::size_t i = 0; i < p.key.size(); ++i)
        if (!dominant)
            p.key[i] = p.key[i % dim];
        else if (i % dim != 0)
            p.key[i] = 0;
        else
            p.key[i] = i / dim / static_cast<std::size_t>(heads) % 2 ? -1024 / p.scale : -8;
    if (dominant)
        for (std::size_t i = 0; i < p.query.size(); i += dim) p.query[i] = 1 << generator.up_to(2);
    for (std::size_t row = 0; row < p.rows(); ++row) {
        p.output_grad[row * p.value_dim() +
                      static_cast<std::size_t>(generator.up_to(p.shape.value_dim) - 1)] =
            generator.one_in(2) ? 1 : -1;
        const std::int64_t top = std::int64_t{1}
                                 << (generator.up_to(generator.one_in(8) ? 9 : 5) - 1);
        for (std::int64_t j = 0; j < top; ++j)
            p.columns[row].push_back(
                {(generator.up_to(p.shape.kv_rows) - 1) & (dominant ? ~std::int64_t{1} : -1)});
        for (std::int64_t j = 0; dominant && j < generator.up_to(8); ++j)
            p.columns[row].push_back({(generator.up_to(p.shape.kv_rows) - 1) | 1});
    }
    return p;
}

/// Elements whose exact value is a non-zero stored number: those whose neighbours are wrong,
/// results that differ from them, and those with a wider bound.
struct ExactMatches {
    int exact = 0, different = 0, wide = 0;

    void add(const ExpectedTensor& expected, Dtype type, std::size_t i, double result) {
        const double value = expected.value[i];
        if (value == 0 || to_storage(type, value) != value) return;
        const double next = decode(type, encode(type, value) + 1);
        if (ratio(expected, i, next) <= 1) {
            ++wide;
        } else {
            ++exact;
            different += result != value;
        }
    }
};

// Kernels that cast P and dS give the exact numbers; the bound leaves no room for a neighbour.
TEST_P(BoundOfAttention, IsExactOnTheLattice) {
    Generator generator(109);
    Random random(113);
    Tally tally;
    ExactMatches matches;
    for (int i = 0; i < 3000; ++i) {
        const Problem p = draw_lattice(generator, GetParam(), i % 2);
        Method m = draw_method(random);
        m.coarse_exp = false;
        if (m.prob == Cast::none) m.prob = Cast::unnormalised;
        m.score_grad_cast = true;
        const Arithmetic a{GetParam()};
        compare(p, a, {m}, {}, Grant::lattice, "lattice " + std::to_string(i), tally);
        const auto forward =
            expected_attention({p.shape, p.lister(), p.inputs()}, p.type, Grant::lattice);
        const Saved saved = saved_from(forward, p.type);
        const auto grad = gradient_of(p, saved, {}, Grant::lattice);
        for (std::size_t row = 0; row < p.rows(); ++row) {
            const ForwardRow out = run_forward_row(a, p, row, m);
            for (std::size_t d = 0; d < p.value_dim(); ++d)
                matches.add(forward.output, p.type, row * p.value_dim() + d, out.output[d]);
        }
        const Gradients got = Backward(a, p, saved, m).run();
        for (std::size_t e = 0; e < got.query.size(); ++e)
            matches.add(grad.query_grad, p.type, e, got.query[e]);
        for (std::size_t e = 0; e < got.key.size(); ++e)
            matches.add(grad.key_grad, p.type, e, got.key[e]);
        for (std::size_t e = 0; e < got.value.size(); ++e)
            matches.add(grad.value_grad, p.type, e, got.value[e]);
    }
    RecordProperty("worst", tally.text());
    RecordProperty("exact", matches.exact);
    EXPECT_TRUE(tally.violations.empty()) << tally.first;
    EXPECT_GT(matches.exact, 50000);
    EXPECT_EQ(matches.different, 0);
    EXPECT_LT(matches.wide, matches.exact / 50);
}

// Without casts P is off by the rounding of its exponent: the slack of the lattice pays for that.
TEST_P(BoundOfAttention, AllowsForExpOnTheLattice) {
    Generator generator(127);
    Random random(131);
    Tally tally;
    for (int i = 0; i < 1500; ++i) {
        const Problem p = draw_lattice(generator, GetParam(), i % 2);
        Method m = draw_method(random);
        strip_casts(m);
        m.coarse_exp = false;
        compare(p, {GetParam()}, {m}, parse_rounding_class(i % 4 < 2 ? "fp32" : "default"),
                Grant::lattice, "lattice " + std::to_string(i), tally);
    }
    RecordProperty("worst", tally.text());
    EXPECT_TRUE(tally.violations.empty()) << tally.first;
}

// The grant looks for itself whether a row is exact: on any other data it allows what rounding is
// allowed.
TEST_P(BoundOfAttention, GrantsTheLatticeOnlyWhereItIs) {
    Generator generator(157);
    Random random(163);
    Tally tally;
    for (int i = 0; i < 1000; ++i) {
        const Kind kind = static_cast<Kind>(i % static_cast<int>(Kind::count));
        Problem p = generator.draw(GetParam(), kind, i % 2 ? 2 : 16);
        if (i % 3 == 0)  // one key, over and over: P is dyadic, nothing else
            for (auto& row : p.columns) {
                row.assign(std::size_t{1} << generator.up_to(4), row.front());
                if (i % 2) row.push_back(row.front());
            }
        compare(p, {GetParam()}, {draw_method(random)}, {}, Grant::lattice, describe(p, kind, i),
                tally);
    }
    EXPECT_TRUE(tally.violations.empty()) << tally.first;
}

// One key too few or too many is seen wherever it changes the exact result.
TEST_P(BoundOfAttention, SeesOneWrongKeyOnTheLattice) {
    Generator generator(137);
    int changed = 0;
    for (int i = 0; i < 300; ++i) {
        const Problem p = draw_lattice(generator, GetParam(), false);
        Problem wrong = p;
        if (i % 2)
            wrong.columns[0].pop_back();
        else
            wrong.columns[0].push_back(wrong.columns[0].front());
        const auto expected =
            expected_attention({p.shape, p.lister(), p.inputs()}, p.type, Grant::lattice);
        EXPECT_EQ(expected.row_sum.value[0], static_cast<double>(p.columns[0].size()));
        if (wrong.columns[0].empty()) continue;
        const ForwardRow out = run_forward_row({GetParam()}, wrong, 0, {});
        EXPECT_GT(ratio(expected.row_sum, 0, out.row_sum), 1);
        const auto exact =
            expected_attention({p.shape, wrong.lister(), p.inputs()}, p.type, Grant::lattice);
        for (std::size_t d = 0; d < p.value_dim(); ++d) {
            const double a = to_storage(p.type, expected.output.value[d]);
            if (std::fabs(exact.output.value[d] - a) < 4 * half_ulp(p.type, a) + 1e-9) continue;
            ++changed;
            EXPECT_GT(ratio(expected.output, d, out.output[d]), 1);
        }
    }
    EXPECT_GT(changed, 500);
}

// ---- Options and power --------------------------------------------------------------------------

// With the errors of the given numbers declared, the gradient of the exact forward lies within the
// bound.
TEST_P(BoundOfAttention, CoversTheExactGradientWhenAsked) {
    Generator generator(139);
    Tally with, without;
    const Kind kinds[] = {Kind::normal,      Kind::spiky,       Kind::cancelling, Kind::integers,
                          Kind::offset_keys, Kind::huge_values, Kind::bias,       Kind::dropout};
    for (int i = 0; i < 800; ++i) {
        const Problem p = generator.draw(GetParam(), kinds[i % 8], i % 5 == 0 ? 64 : 16);
        const auto forward = expected_attention({p.shape, p.lister(), p.inputs()}, p.type);
        Saved exact{forward.output.value, forward.row_max.value, forward.row_sum.value};
        const auto target = gradient_of(p, exact, {});
        Saved given = saved_from(forward, p.type);
        bool finite = true;
        Values output_error;
        for (std::size_t e = 0; e < given.output.size(); ++e) {
            output_error.push_back(std::fabs(given.output[e] - exact.output[e]));
            finite = finite && std::isfinite(given.output[e]);
        }
        if (!finite) continue;
        double largest = 0;
        for (const double m : exact.row_max) largest = std::max(largest, std::fabs(m));
        RoundingClass sharp = parse_rounding_class("fp32");
        for (const bool declared : {true, false}) {
            AttentionGradInputs in{p.inputs(), p.output_grad, given.output, given.row_max,
                                   given.row_sum};
            if (declared) {
                in.output_error = output_error;
                in.prob_error = 0x1p-23 * (1 + largest);
            }
            const auto grad = expected_attention_grad({p.shape, p.lister(), in}, {p.type, sharp});
            Tally& tally = declared ? with : without;
            const auto add = [&](const char* name, const ExpectedTensor& bounded,
                                 const ExpectedTensor& value) {
                for (std::size_t e = 0; e < value.size(); ++e)
                    if (bounded.overflow[e] == Overflow::none)
                        tally.add(name, describe(p, kinds[i % 8], i), bounded, e, value.value[e]);
            };
            add("dq", grad.query_grad, target.query_grad);
            add("dk", grad.key_grad, target.key_grad);
            add("dv", grad.value_grad, target.value_grad);
        }
    }
    RecordProperty("worst", with.text());
    EXPECT_TRUE(with.violations.empty()) << with.first;
    EXPECT_GT(without.violations["dq"], 100);
    EXPECT_GT(without.violations["dk"], 100);
}

// Probability one half and dP = +-480000: dS leaves fp16, but not fp32 nor bf16.
TEST(BoundOfAttentionRange, DoesNotJudgeScoreGradientsBeyondTheirType) {
    Problem p;
    p.shape = {1, 2, 1, 1, 1, 1};
    p.query = {0x1p-9}, p.key = {0x1p-10, -0x1p-10}, p.value = {8, -8}, p.output_grad = {60000};
    p.columns = {{{0}, {1}}};
    const auto query_bound = [&](Dtype type, const char* rounding) {
        p.type = type;
        const auto forward = expected_attention({p.shape, p.lister(), p.inputs()}, type);
        return gradient_of(p, saved_from(forward, type), parse_rounding_class(rounding))
            .query_grad.bound[0];
    };
    EXPECT_EQ(query_bound(Dtype::fp16, "default"), kInfinity);
    EXPECT_LT(query_bound(Dtype::fp16, "fp32"), 1);
    EXPECT_LT(query_bound(Dtype::bf16, "default"), 10);
    p.output_grad = {6000};
    EXPECT_LT(query_bound(Dtype::fp16, "default"), 1);
    p.scale = 1000;  // dS times scale, if that comes before the cast
    EXPECT_EQ(query_bound(Dtype::fp16, "default"), kInfinity);
    p.scale = 0x1p-60;  // nothing of dS times scale is left, but nothing overflows
    EXPECT_LT(query_bound(Dtype::fp16, "default"), 1);
    EXPECT_EQ(ratio(gradient_of(p, {{0}, {0}, {2}}, {}).value_grad, 0, 3000), 0);
}

/// The share of small normal problems on which a wrong kernel leaves the bound of a tensor.
template <class Spoil>
std::map<std::string, double> detection(Dtype type, const Spoil& spoil, std::int64_t columns = 8) {
    Generator generator(149);
    std::map<std::string, double> share;
    constexpr int kProblems = 200;
    for (int i = 0; i < kProblems; ++i) {
        Problem p = generator.draw(type, Kind::normal, columns);
        while (p.shape.kv_rows < 2) p = generator.draw(type, Kind::normal, columns);
        for (auto& row : p.columns) row.push_back({0}), row.push_back({p.shape.kv_rows - 1});
        const auto forward = expected_attention({p.shape, p.lister(), p.inputs()}, p.type);
        Saved saved = saved_from(forward, p.type);
        const auto grad = gradient_of(p, saved, {});
        Problem wrong = p;
        spoil(wrong, saved);
        Tally tally;
        Method m;
        for (std::size_t row = 0; row < p.rows(); ++row) {
            const ForwardRow out = run_forward_row({type}, wrong, row, m);
            for (std::size_t d = 0; d < p.value_dim(); ++d)
                tally.add("output", "", forward.output, row * p.value_dim() + d, out.output[d]);
            tally.add("row_max", "", forward.row_max, row, out.row_max);
            tally.add("row_sum", "", forward.row_sum, row, out.row_sum);
            tally.add("lse", "", forward.lse, row, out.row_max + std::log(out.row_sum));
        }
        const Gradients got = Backward({type}, wrong, saved, m).run();
        for (std::size_t e = 0; e < got.query.size(); ++e)
            tally.add("dq", "", grad.query_grad, e, got.query[e]);
        for (std::size_t e = 0; e < got.key.size(); ++e)
            tally.add("dk", "", grad.key_grad, e, got.key[e]);
        for (std::size_t e = 0; e < got.value.size(); ++e)
            tally.add("dv", "", grad.value_grad, e, got.value[e]);
        for (const auto& [tensor, worst] : tally.worst)
            share[tensor] += (worst > 1) / (1.0 * kProblems);
    }
    for (const auto& [tensor, s] : share) testing::Test::RecordProperty(tensor, std::to_string(s));
    return share;
}

// A scale that is off by one percent shows in the statistics at once, and in the gradients of most
// small problems.
TEST_P(BoundOfAttention, SeesAWrongScale) {
    auto share =
        detection(GetParam(), [](Problem& p, Saved&) { p.scale = to_float(p.scale * 1.01); });
    for (const char* tensor : {"row_max", "row_sum", "lse"})
        EXPECT_GT(share[tensor], 0.99) << tensor;
    for (const char* tensor : {"output", "dq", "dk", "dv"})
        EXPECT_GT(share[tensor], GetParam() == Dtype::fp16 ? 0.95 : 0.7) << tensor;
}

// A key that is left out shows nearly everywhere.
TEST_P(BoundOfAttention, SeesADroppedKey) {
    auto share = detection(GetParam(), [](Problem& p, Saved&) {
        for (auto& row : p.columns) row.pop_back();
    });
    for (const char* tensor : {"output", "row_sum", "lse", "dq", "dk", "dv"})
        EXPECT_GT(share[tensor], 0.95) << tensor;
}

// A backward without delta.
TEST_P(BoundOfAttention, SeesAMissingDelta) {
    auto share = detection(GetParam(), [](Problem&, Saved& saved) {
        for (double& o : saved.output) o = 0;
    });
    EXPECT_GT(share["dq"], 0.95);
    EXPECT_GT(share["dk"], 0.95);
    EXPECT_EQ(share["dv"], 0);
}

// row_sum from P as rounded for the product: the error of some rows is far beyond that of an fp32
// sum.
TEST_P(BoundOfAttention, SeesARowSumOfRoundedProbabilities) {
    Generator generator(151);
    for (const std::int64_t columns : {16, 32, 64}) {
        int seen = 0;
        for (int i = 0; i < 60; ++i) {
            const Problem p = generator.draw(GetParam(), Kind::normal, columns);
            const auto forward = expected_attention({p.shape, p.lister(), p.inputs()}, p.type);
            for (std::size_t row = 0; row < p.rows(); ++row) {
                AttentionRow<double> exact;
                attend_row<double>(
                    p.shape, p.inputs(), static_cast<std::int64_t>(row) / p.shape.query_heads,
                    static_cast<std::int64_t>(row) % p.shape.query_heads, p.columns[row], exact);
                double sum = 0;
                for (const double s : exact.logits)
                    sum += to_storage(p.type, std::exp(s - exact.row_max));
                seen += ratio(forward.row_sum, row, to_float(sum)) > 1;
            }
        }
        EXPECT_GT(seen, 50) << columns;
    }
}

}  // namespace
}  // namespace attncheck::ref
