// The oracle of attention against exact differentiation, against its identities, and on non-finite
// and empty data.
#include "ref/attention/dense_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <random>
#include <stdexcept>

#include "ref/numbers/dual.h"

namespace attncheck::ref {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using Random = std::mt19937_64;
using Values = std::vector<double>;

/// A whole problem: tensors, one list of columns per (query row, head), and rows outside of any
/// sequence.
struct Problem {
    AttentionShape shape;
    Values query, key, value, output_grad;
    double scale = 1, keep_prob = 1;
    std::vector<std::vector<KeyColumn>> columns;
    std::vector<bool> outside;

    explicit Problem(const AttentionShape& s) : shape(s) {
        query.resize(static_cast<std::size_t>(s.query_rows * s.query_heads * s.head_dim));
        key.resize(static_cast<std::size_t>(s.kv_rows * s.kv_heads * s.head_dim));
        value.resize(static_cast<std::size_t>(s.kv_rows * s.kv_heads * s.value_dim));
        output_grad.resize(static_cast<std::size_t>(s.query_rows * s.query_heads * s.value_dim));
        columns.resize(static_cast<std::size_t>(s.query_rows * s.query_heads));
        outside.resize(columns.size());
    }
    ColumnLister lister() const {
        return [this](std::int64_t t, std::int64_t n, std::vector<KeyColumn>& to) {
            const auto row = static_cast<std::size_t>(t * shape.query_heads + n);
            if (outside[row]) return false;
            to.insert(to.end(), columns[row].begin(), columns[row].end());
            return true;
        };
    }
    AttentionInputs<double> inputs() const { return {query, key, value, scale, keep_prob}; }
};

/// The forward of a problem in any scalar.
template <class Scalar>
struct Forward {
    std::vector<Scalar> output, row_max, row_sum;
};

template <class Scalar>
Forward<Scalar> run_forward(const Problem& p, const std::vector<Scalar>& q,
                            const std::vector<Scalar>& k, const std::vector<Scalar>& v) {
    Forward<Scalar> f{std::vector<Scalar>(p.output_grad.size()),
                      std::vector<Scalar>(p.columns.size()), std::vector<Scalar>(p.columns.size())};
    dense_attention<Scalar>({p.shape, p.lister(), {q, k, v, p.scale, p.keep_prob}}, f.output,
                            f.row_max, f.row_sum);
    return f;
}

Forward<double> run_forward(const Problem& p) {
    return run_forward<double>(p, p.query, p.key, p.value);
}

/// The gradient with the exact statistics and output of the forward.
ExpectedAttentionGrad gradient(const Problem& p, const Forward<double>& f,
                               Dtype type = Dtype::bf16) {
    return expected_attention_grad(
        {p.shape, p.lister(), {p.inputs(), p.output_grad, f.output, f.row_max, f.row_sum}}, type);
}

void fill(Random& random, Values& values, double size = 1) {
    std::normal_distribution<double> normal(0, size);
    for (double& v : values) v = normal(random);
}

/// Small problems: G up to 3, D != Dv, keys listed several times, rows without columns and rows of
/// no sequence.
Problem draw(Random& random, bool dropout) {
    const auto up_to = [&](std::int64_t n) { return 1 + static_cast<std::int64_t>(random() % n); };
    const std::int64_t kv_heads = up_to(2), group = up_to(3);
    Problem p({up_to(4), up_to(6), kv_heads * group, kv_heads, up_to(5), up_to(4)});
    fill(random, p.query), fill(random, p.key), fill(random, p.value), fill(random, p.output_grad);
    const double scales[] = {1, 0.5, -0.75, 0, 3};
    p.scale = scales[random() % 5];
    p.keep_prob = dropout ? 0.5 : 1;
    for (std::size_t row = 0; row < p.columns.size(); ++row) {
        if (random() % 8 == 0) continue;
        p.outside[row] = random() % 8 == 0;
        const std::int64_t count = up_to(10);  // more than there are keys: duplicates
        for (std::int64_t j = 0; j < count; ++j)
            p.columns[row].push_back({up_to(p.shape.kv_rows) - 1,
                                      random() % 2 ? std::normal_distribution<double>()(random) : 0,
                                      !dropout || random() % 2 == 0});
    }
    return p;
}

double largest(const Values& values) {
    double size = 0;
    for (const double v : values) size = std::max(size, std::fabs(v));
    return size;
}

double dot(const Values& a, const Values& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

/// d <dO, O> / d tensor[i] by a complex step of 1e-100: no cancellation, no truncation.
Values complex_step(const Problem& p, int which) {
    using Complex = std::complex<double>;
    const Values* sources[] = {&p.query, &p.key, &p.value};
    std::vector<Complex> tensors[3];
    for (int i = 0; i < 3; ++i) tensors[i].assign(sources[i]->begin(), sources[i]->end());
    Values grad;
    for (Complex& element : tensors[which]) {
        element += Complex(0, 1e-100);
        const auto f = run_forward<Complex>(p, tensors[0], tensors[1], tensors[2]);
        double slope = 0;
        for (std::size_t i = 0; i < f.output.size(); ++i)
            slope += p.output_grad[i] * f.output[i].imag();
        grad.push_back(slope / 1e-100);
        element = element.real();
    }
    return grad;
}

// The hand-written backward is the derivative of the forward, element by element.
TEST(AttentionGradient, AgreesWithComplexSteps) {
    Random random(31);
    double worst = 0;
    int empty_rows = 0, outside_rows = 0, groups = 0, ragged = 0, duplicates = 0;
    for (int i = 0; i < 300; ++i) {
        const Problem p = draw(random, i % 2);
        const ExpectedAttentionGrad grad = gradient(p, run_forward(p));
        const Values* tensors[] = {&grad.query_grad.value, &grad.key_grad.value,
                                   &grad.value_grad.value};
        for (int which = 0; which < 3; ++which) {
            const Values exact = complex_step(p, which);
            ASSERT_EQ(exact.size(), tensors[which]->size());
            const double size = largest(exact) + 0.01;
            for (std::size_t e = 0; e < exact.size(); ++e) {
                const double error = std::fabs((*tensors[which])[e] - exact[e]) / size;
                worst = std::max(worst, error);
                ASSERT_LE(error, 1e-12) << "case " << i << " tensor " << which << " element " << e
                                        << " " << (*tensors[which])[e] << " " << exact[e];
            }
        }
        groups += p.shape.group() > 1;
        ragged += p.shape.head_dim != p.shape.value_dim;
        for (std::size_t row = 0; row < p.columns.size(); ++row) {
            empty_rows += p.columns[row].empty();
            outside_rows += p.outside[row];
            duplicates += std::ssize(p.columns[row]) > p.shape.kv_rows;
        }
    }
    RecordProperty("worst_relative", std::to_string(worst));
    for (const int reached : {empty_rows, outside_rows, groups, ragged, duplicates})
        EXPECT_GT(reached, 30);
}

// Along a random direction in all three tensors at once, the forward over dual numbers has the
// slope <gradient, direction>.
TEST(AttentionGradient, AgreesWithDualNumbers) {
    Random random(37);
    for (int i = 0; i < 400; ++i) {
        const Problem p = draw(random, i % 2);
        const ExpectedAttentionGrad grad = gradient(p, run_forward(p));
        const Values* values[] = {&p.query, &p.key, &p.value};
        const Values* grads[] = {&grad.query_grad.value, &grad.key_grad.value,
                                 &grad.value_grad.value};
        std::vector<Dual> duals[3];
        double expected = 0, size = 1;
        for (int which = 0; which < 3; ++which) {
            Values direction(values[which]->size());
            fill(random, direction);
            for (std::size_t e = 0; e < direction.size(); ++e)
                duals[which].emplace_back((*values[which])[e], direction[e]);
            expected += dot(*grads[which], direction);
            size += largest(*grads[which]);
        }
        const auto f = run_forward<Dual>(p, duals[0], duals[1], duals[2]);
        double slope = 0;
        for (std::size_t e = 0; e < f.output.size(); ++e)
            slope += p.output_grad[e] * f.output[e].tangent;
        ASSERT_NEAR(slope, expected, 3e-12 * size) << "case " << i;
    }
}

/// Sum over the keys of one kv head and channel.
double over_keys(const Values& tensor, const Problem& p, std::int64_t head, std::int64_t dim,
                 std::int64_t channel) {
    double sum = 0;
    for (std::int64_t t = 0; t < p.shape.kv_rows; ++t)
        sum += tensor[static_cast<std::size_t>((t * p.shape.kv_heads + head) * dim + channel)];
    return sum;
}

// Every row of dS sums to zero, so shifting all keys changes nothing and the rows of dK sum to
// zero: with dropout too.
TEST(AttentionGradient, KeyGradientsSumToZero) {
    Random random(41);
    for (int i = 0; i < 300; ++i) {
        const Problem p = draw(random, i % 2);
        const ExpectedAttentionGrad grad = gradient(p, run_forward(p));
        for (std::int64_t head = 0; head < p.shape.kv_heads; ++head)
            for (std::int64_t d = 0; d < p.shape.head_dim; ++d)
                ASSERT_NEAR(over_keys(grad.key_grad.value, p, head, p.shape.head_dim, d), 0,
                            1e-12 * (1 + largest(grad.key_grad.value)))
                    << "case " << i;
    }
}

// P sums to one: each row hands its whole dO to V.
TEST(AttentionGradient, ValueGradientsSumToTheOutputGradient) {
    Random random(43);
    for (int i = 0; i < 300; ++i) {
        const Problem p = draw(random, false);
        const ExpectedAttentionGrad grad = gradient(p, run_forward(p));
        const std::int64_t dim = p.shape.value_dim;
        for (std::int64_t head = 0; head < p.shape.kv_heads; ++head)
            for (std::int64_t d = 0; d < dim; ++d) {
                double given = 0;
                for (std::int64_t row = 0; row < std::ssize(p.columns); ++row) {
                    const auto at = static_cast<std::size_t>(row);
                    if (p.columns[at].empty() || p.outside[at]) continue;
                    if (row % p.shape.query_heads / p.shape.group() == head)
                        given += p.output_grad[at * static_cast<std::size_t>(dim) +
                                               static_cast<std::size_t>(d)];
                }
                ASSERT_NEAR(over_keys(grad.value_grad.value, p, head, dim, d), given, 1e-12 * 20)
                    << "case " << i;
            }
    }
}

// <dQ,Q> and <dK,K> are both the derivative by the logarithm of scale; O is linear in V.
TEST(AttentionGradient, ObeysEulersIdentities) {
    Random random(47);
    for (int i = 0; i < 300; ++i) {
        const Problem p = draw(random, i % 2);
        const Forward<double> f = run_forward(p);
        const ExpectedAttentionGrad grad = gradient(p, f);
        const double of_query = dot(grad.query_grad.value, p.query);
        ASSERT_NEAR(of_query, dot(grad.key_grad.value, p.key), 1e-11 * (1 + std::fabs(of_query)));
        const double of_output = dot(p.output_grad, f.output);
        ASSERT_NEAR(of_output, dot(grad.value_grad.value, p.value),
                    1e-11 * (1 + std::fabs(of_output)));
    }
}

// ---- Meaning ------------------------------------------------------------------------------------

/// Two query rows, two heads on one kv head, four keys; row 0 sees 0 1 2, row 1 sees 2 and 0 twice;
/// nobody sees key 3.
Problem small_problem() {
    Random random(53);
    Problem p({2, 4, 2, 1, 3, 2});
    fill(random, p.query), fill(random, p.key), fill(random, p.value), fill(random, p.output_grad);
    p.scale = 0.5;
    p.columns[0] = p.columns[1] = {{0}, {1}, {2}};
    p.columns[2] = p.columns[3] = {{2}, {0}, {0}};
    return p;
}

ExpectedAttention forward_of(const Problem& p, Dtype type = Dtype::bf16) {
    return expected_attention({p.shape, p.lister(), p.inputs()}, type);
}

bool all_of(const ExpectedTensor& tensor, std::size_t begin, std::size_t end, double value) {
    for (std::size_t i = begin; i < end; ++i)
        if (!(tensor.value[i] == value && tensor.bound[i] == 0 &&
              tensor.overflow[i] == Overflow::none))
            return false;
    return true;
}

bool all_judged(const ExpectedTensor& tensor) {
    return std::all_of(tensor.bound.begin(), tensor.bound.end(),
                       [](double b) { return b < kInfinity; });
}

// The values of the bounded forward are those of the template.
TEST(ExpectedAttention, HasTheValuesOfTheForward) {
    Random random(59);
    for (int i = 0; i < 100; ++i) {
        const Problem p = draw(random, i % 2);
        const Forward<double> f = run_forward(p);
        const ExpectedAttention expected = forward_of(p);
        ASSERT_EQ(expected.output.value, f.output);
        ASSERT_EQ(expected.row_max.value, f.row_max);
        ASSERT_EQ(expected.row_sum.value, f.row_sum);
    }
}

// A row that sees nothing: 0, -FLT_MAX, +FLT_MAX, to the bit; a row of no sequence: 0 everywhere.
TEST(ExpectedAttention, GivesEmptyRowsTheirConstants) {
    Problem p = small_problem();
    p.columns[0].clear();
    p.outside[3] = true;
    const ExpectedAttention expected = forward_of(p);
    EXPECT_TRUE(all_of(expected.output, 0, 2, 0));
    EXPECT_TRUE(all_of(expected.row_max, 0, 1, -FLT_MAX));
    EXPECT_TRUE(all_of(expected.row_sum, 0, 1, FLT_MAX));
    EXPECT_TRUE(all_of(expected.output, 6, 8, 0));
    EXPECT_TRUE(all_of(expected.row_max, 3, 4, 0));
    EXPECT_TRUE(all_of(expected.row_sum, 3, 4, 0));
    EXPECT_GT(expected.output.bound[2], 0);
    const ExpectedAttentionGrad grad = gradient(p, run_forward(p));
    EXPECT_TRUE(all_of(grad.query_grad, 0, 3, 0));
    EXPECT_TRUE(all_of(grad.query_grad, 9, 12, 0));
    EXPECT_FALSE(all_of(grad.query_grad, 3, 6, 0));
}

// With no columns at all nothing reaches any gradient, whatever dO holds there.
TEST(ExpectedAttentionGrad, IgnoresTheOutputGradientOfEmptyRows) {
    Problem p = small_problem();
    for (auto& columns : p.columns) columns.clear();
    p.output_grad.assign(p.output_grad.size(), kNan);
    const ExpectedAttentionGrad grad = gradient(p, run_forward(p));
    EXPECT_TRUE(all_of(grad.query_grad, 0, grad.query_grad.size(), 0));
    EXPECT_TRUE(all_of(grad.key_grad, 0, grad.key_grad.size(), 0));
    EXPECT_TRUE(all_of(grad.value_grad, 0, grad.value_grad.size(), 0));
}

// Nobody sees key 3: its gradients are exactly 0.
TEST(ExpectedAttentionGrad, DemandsZeroForUnseenKeys) {
    const Problem p = small_problem();
    const ExpectedAttentionGrad grad = gradient(p, run_forward(p));
    EXPECT_TRUE(all_of(grad.key_grad, 9, 12, 0));
    EXPECT_TRUE(all_of(grad.value_grad, 6, 8, 0));
    for (std::size_t i = 0; i < 9; ++i) EXPECT_GT(grad.key_grad.bound[i], 0) << i;
}

/// The elements that are not finite, as a string of 0 and 1, with a blank between rows.
std::string poisoned(const ExpectedTensor& tensor, std::size_t width) {
    std::string marks;
    for (std::size_t i = 0; i < tensor.size(); ++i) {
        if (i > 0 && i % width == 0) marks += ' ';
        marks += std::isfinite(tensor.value[i]) ? '0' : '1';
        EXPECT_TRUE(tensor.bound[i] < kInfinity) << "unjudged " << i;
    }
    return marks;
}

struct Poisoned {
    std::string output, row_max, query_grad, key_grad, value_grad;
    bool operator==(const Poisoned&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Poisoned& p) {
    return out << "O " << p.output << " max " << p.row_max << " dQ " << p.query_grad << " dK "
               << p.key_grad << " dV " << p.value_grad;
}

Poisoned spread(const Problem& p) {
    const ExpectedAttention f = forward_of(p);
    const ExpectedAttentionGrad g = gradient(p, run_forward(p));
    return {poisoned(f.output, 2), poisoned(f.row_max, 2), poisoned(g.query_grad, 3),
            poisoned(g.key_grad, 3), poisoned(g.value_grad, 2)};
}

const Poisoned kClean = {"00 00 00 00", "00 00", "000 000 000 000", "000 000 000 000",
                         "00 00 00 00"};

// A NaN in q of row 0, head 1 reaches that row and the keys it sees.
TEST(NonFinite, QueryReachesItsRowAndItsKeys) {
    for (const double poison : {kNan, kInfinity, -kInfinity}) {
        Problem p = small_problem();
        p.query[4] = poison;
        if (std::isinf(poison)) p.key[1] = 0;  // 0 inf: the row is NaN
        EXPECT_EQ(spread(p), (Poisoned{"00 11 00 00", "01 00", "000 111 000 000", "111 111 111 000",
                                       "11 11 11 00"}));
    }
}

// Key 1 is seen by both heads of row 0; with their statistics every weight of these rows becomes
// NaN, not those of row 1.
TEST(NonFinite, VisibleKeyReachesTheRowsThatSeeIt) {
    Problem p = small_problem();
    p.key[4] = kNan;
    EXPECT_EQ(spread(p), (Poisoned{"11 11 00 00", "11 00", "111 111 000 000", "111 111 111 000",
                                   "11 11 11 00"}));
}

// A NaN in one channel of a value stays in that channel of O, takes all of dS through delta, and
// leaves dV alone.
TEST(NonFinite, VisibleValueReachesItsChannelAndTheScores) {
    Problem p = small_problem();
    p.value[3] = kNan;
    EXPECT_EQ(spread(p), (Poisoned{"01 01 00 00", "00 00", "111 111 000 000", "111 111 111 000",
                                   "00 00 00 00"}));
    p.value[3] = kInfinity;
    EXPECT_EQ(spread(p), (Poisoned{"01 01 00 00", "00 00", "111 111 000 000", "111 111 111 000",
                                   "00 00 00 00"}));
}

// The same for dO: all of dS of the row, its own channel of dV.
TEST(NonFinite, OutputGradientReachesItsChannelOfValueGrad) {
    Problem p = small_problem();
    p.output_grad[4] = kNan;  // row 1, head 0, channel 0
    EXPECT_EQ(spread(p), (Poisoned{"00 00 00 00", "00 00", "000 000 111 000", "111 000 111 000",
                                   "10 00 10 00"}));
}

// What nobody sees reaches nothing, neither values nor bounds.
TEST(NonFinite, HiddenKeysReachNothing) {
    const Problem p = small_problem();
    for (const double poison : {kNan, kInfinity}) {
        Problem q = p;
        q.key[10] = q.value[7] = poison;
        EXPECT_EQ(spread(q), kClean);
        EXPECT_EQ(forward_of(q).output.bound, forward_of(p).output.bound);
        EXPECT_EQ(gradient(q, run_forward(q)).key_grad.bound,
                  gradient(p, run_forward(p)).key_grad.bound);
    }
}

// A dropped key's V and dP are hidden, its K is not.
TEST(NonFinite, DroppedKeysHideTheirValueOnly) {
    Problem p = small_problem();
    p.keep_prob = 0.5;
    for (auto& columns : p.columns) columns[0].kept = false;  // key 0 in row 0, key 2 in row 1
    p.columns[0][2].kept = p.columns[1][2].kept = false;      // key 2 in row 0
    p.value[4] = kNan;
    EXPECT_EQ(spread(p), kClean);
    p.value[4] = 1;
    p.key[6] = kNan;
    EXPECT_EQ(spread(p).output, "11 11 11 11");
    EXPECT_EQ(spread(p).row_max, "11 11");
}

// Zero times infinity is NaN even where a probability underflows: a zero factor is not hidden.
TEST(NonFinite, VanishingWeightsDoNotHideInfinity) {
    Problem p({1, 2, 1, 1, 1, 1});
    p.query = {1}, p.key = {0, -2000}, p.value = {1, kInfinity}, p.output_grad = {1};
    p.columns[0] = {{0}, {1}};
    EXPECT_TRUE(std::isnan(forward_of(p).output.value[0]));
}

// All visible logits -infinity: any result is accepted, in both directions; one finite logit and
// the row is judged.
TEST(NonFinite, RowsOfMinusInfinityAreNotJudged) {
    Problem p({1, 2, 1, 1, 1, 1});
    p.query = {1}, p.key = {-kInfinity, -kInfinity}, p.value = {1, 2}, p.output_grad = {1};
    p.columns[0] = {{0}, {1}};
    const ExpectedAttention all = forward_of(p);
    for (const ExpectedTensor* t : {&all.output, &all.row_max, &all.row_sum, &all.lse}) {
        EXPECT_EQ(t->bound[0], kInfinity);
        EXPECT_EQ(t->overflow[0], Overflow::any);
        EXPECT_TRUE(std::isfinite(t->value[0]));
    }
    const ExpectedAttentionGrad grad = gradient(p, run_forward(p));
    for (const ExpectedTensor* t : {&grad.query_grad, &grad.key_grad, &grad.value_grad})
        for (std::size_t i = 0; i < t->size(); ++i) EXPECT_EQ(t->bound[i], kInfinity);
    p.key[0] = 0;
    const ExpectedAttention one = forward_of(p);
    EXPECT_EQ(one.output.value[0], 1);
    EXPECT_EQ(one.row_max.value[0], 0);
    EXPECT_TRUE(all_judged(one.output) && all_judged(one.row_max) && all_judged(one.row_sum));
}

// Every key dropped and a NaN among the scores: 0 or NaN, both are accepted (contract.md, decision
// 12).
TEST(NonFinite, DroppedRowsWithNanScoresAreNotJudged) {
    Problem p({1, 2, 1, 1, 1, 1});
    p.query = {1}, p.key = {kNan, 0}, p.value = {1, 2}, p.output_grad = {1};
    p.keep_prob = 0.5;
    p.columns[0] = {{0, 0, false}, {1, 0, false}};
    EXPECT_EQ(forward_of(p).output.bound[0], kInfinity);
    p.key[0] = 1;
    EXPECT_EQ(forward_of(p).output.value[0], 0);
    EXPECT_EQ(forward_of(p).output.bound[0], 0);
}

// <q,k> beyond fp32 although the exact logit is finite: the row and its keys are not judged, all
// others are.
TEST(ExpectedAttention, DoesNotJudgeRowsBeyondTheRangeOfFp32) {
    Problem p = small_problem();
    p.query[0] = 0x1p100, p.key[0] = 0x1p28;
    const ExpectedAttention expected = forward_of(p);
    EXPECT_EQ(expected.output.bound[0], kInfinity);
    EXPECT_EQ(expected.row_sum.bound[0], kInfinity);
    EXPECT_LT(expected.output.bound[2], kInfinity);
    const ExpectedAttentionGrad grad = gradient(p, run_forward(p));
    EXPECT_EQ(grad.query_grad.bound[0], kInfinity);
    EXPECT_EQ(grad.key_grad.bound[0], kInfinity);
    EXPECT_LT(grad.query_grad.bound[6], kInfinity);
    // A large scale does the same to a small product.
    p = small_problem();
    p.scale = 3e38;
    EXPECT_EQ(forward_of(p).output.bound[0], kInfinity);
}

/// One row that sees two keys with these biases.
Problem biased_row(double first, double second, double scale = 1, double product = 1) {
    Problem p({1, 2, 1, 1, 1, 1});
    p.query = {1}, p.key = {product, product}, p.value = {1, 2}, p.output_grad = {1};
    p.scale = scale;
    p.columns[0] = {{0, first}, {1, second}};
    return p;
}

bool judges_maximum(const Problem& p, Dtype type = Dtype::bf16,
                    const RoundingClass& rounding = {}) {
    return all_judged(
        expected_attention({p.shape, p.lister(), p.inputs()}, {type, rounding}).row_max);
}

/// The gradient of such a row with a maximum that is stored as fp32.
bool judges_gradient(const Problem& p) {
    Forward<double> f = run_forward(p);
    for (double& m : f.row_max) m = static_cast<float>(m);
    const ExpectedAttentionGrad grad = gradient(p, f);
    return all_judged(grad.query_grad) && all_judged(grad.key_grad) && all_judged(grad.value_grad);
}

// A bias takes a logit out of fp32 as a product does; to base 2 earlier.
TEST(ExpectedAttention, DoesNotJudgeRowsWhoseBiasLeavesFp32) {
    EXPECT_TRUE(judges_maximum(biased_row(2e38, 0)));
    EXPECT_FALSE(judges_maximum(biased_row(3e38, 0)));
    EXPECT_FALSE(judges_maximum(biased_row(4e38, 0)));
    EXPECT_FALSE(judges_maximum(biased_row(0, 4e38)));
    EXPECT_FALSE(judges_maximum(biased_row(2e38, 0, 1, 1e38)));
    // Sums of a half-precision accumulator.
    const RoundingClass half = parse_rounding_class("acc=half");
    EXPECT_FALSE(judges_maximum(biased_row(60000, 0), Dtype::fp16, half));
    EXPECT_TRUE(judges_maximum(biased_row(60000, 0), Dtype::fp16));
    // An infinite one is what it is.
    EXPECT_TRUE(judges_maximum(biased_row(-kInfinity, 0)));
    EXPECT_TRUE(judges_maximum(biased_row(kInfinity, 0)));
    // The maximum is infinite when it is stored, and infinity minus infinity NaN.
    EXPECT_FALSE(judges_gradient(biased_row(4e38, 0)));
    EXPECT_TRUE(judges_gradient(biased_row(1e4, 0)));
}

/// One row of two keys; the second one's products are -infinity and `finite`.
Problem infinite_product(double finite) {
    Problem p({1, 2, 1, 1, 2, 1});
    p.query = {1, 0x1p100}, p.key = {0, 0, -kInfinity, finite}, p.value = {1, 2};
    p.output_grad = {1};
    p.columns[0] = {{0}, {1}};
    return p;
}

// -infinity plus a product that leaves fp32 the other way is NaN in a kernel.
TEST(ExpectedAttention, DoesNotJudgeInfiniteLogitsBesideAnOverflow) {
    EXPECT_TRUE(judges_maximum(infinite_product(0x1p20)));
    EXPECT_FALSE(judges_maximum(infinite_product(0x1p30)));
    EXPECT_TRUE(judges_gradient(infinite_product(0x1p20)));
    EXPECT_FALSE(judges_gradient(infinite_product(0x1p30)));
}

// The same in <dO, O>, in <dO, V> and in the sums of dS K and P V.
TEST(ExpectedAttention, DoesNotJudgeOtherInfiniteSumsBesideAnOverflow) {
    Problem p({1, 2, 1, 1, 1, 2});
    p.query = {1}, p.key = {0, 0};
    p.columns[0] = {{0}, {1}};
    for (const double finite : {0x1p20, 0x1p30}) {
        const bool judged = finite < 0x1p25;
        p.output_grad = {1, 0x1p100};
        p.value = {1, 2, 3, 4};
        Forward<double> f = run_forward(p);
        f.output = {kInfinity, -finite};
        EXPECT_EQ(all_judged(gradient(p, f).query_grad), judged);
        f = run_forward(p);
        p.value = {1, 2, kInfinity, -finite};
        EXPECT_EQ(all_judged(gradient(p, f).query_grad), judged);
    }
    // An infinite dS times one key, a finite one times another.
    Problem dq({1, 2, 1, 1, 1, 1});
    dq.query = {0}, dq.value = {kInfinity, 1}, dq.output_grad = {0x1p30};
    dq.columns[0] = {{0}, {1}};
    for (const double key : {0x1p20, 0x1p110}) {
        dq.key = {1, -key};
        Forward<double> f = run_forward(dq);
        f.output = {0};
        EXPECT_EQ(all_judged(gradient(dq, f).query_grad), key < 0x1p30);
    }
    p.value = {kInfinity, 1, -0x1p127, 1};
    EXPECT_FALSE(all_judged(forward_of(p).output));
    p.value = {kInfinity, 1, -0x1p118, 1};
    EXPECT_TRUE(all_judged(forward_of(p).output));
}

// -infinity where the exact logit is very low weighs nothing either, unless nothing else weighs.
TEST(ExpectedAttention, JudgesRowsWithVeryLowBiases) {
    EXPECT_TRUE(judges_maximum(biased_row(-4e38, 0)));
    EXPECT_TRUE(judges_maximum(biased_row(0, -3e38)));
    EXPECT_TRUE(judges_maximum(biased_row(-2e38, -2e38)));
    EXPECT_FALSE(judges_maximum(biased_row(-4e38, -4e38)));
    EXPECT_FALSE(judges_maximum(biased_row(-4e38, -3e38)));
    EXPECT_FALSE(judges_maximum(biased_row(-4e38, -3.9999e38)));
    EXPECT_TRUE(judges_gradient(biased_row(-4e38, 0)));
    EXPECT_FALSE(judges_gradient(biased_row(-4e38, -4e38)));
}

// (<q,k> + bias) scale with a small scale: the sum leaves fp32 if both parts are large.
TEST(ExpectedAttention, DoesNotJudgeSumsBeyondFp32BeforeTheScale) {
    EXPECT_FALSE(judges_maximum(biased_row(0x1p127 * 0x1p-20, 0, 0x1p-20, 0x1p127)));
    EXPECT_TRUE(judges_maximum(biased_row(0x1p127 * 0x1p-20, 0, 0x1p-20, 0x1p90)));
    EXPECT_TRUE(judges_maximum(biased_row(-0x1p127 * 0x1p-20, 0, 0x1p-20, 1)));
}

// exp(s - m) / l does not change when m grows by c and l shrinks by e^-c; it does when only one of
// them moves.
TEST(ExpectedAttentionGrad, UsesTheStatisticsItIsGiven) {
    const Problem p = small_problem();
    const Forward<double> f = run_forward(p);
    const ExpectedAttentionGrad plain = gradient(p, f);
    Forward<double> shifted = f;
    for (double& m : shifted.row_max) m += 1.25;
    Forward<double> corrupted = shifted;
    for (double& l : shifted.row_sum) l *= std::exp(-1.25);
    const ExpectedAttentionGrad same = gradient(p, shifted), other = gradient(p, corrupted);
    for (std::size_t i = 0; i < 12; ++i) {
        EXPECT_NEAR(same.query_grad.value[i], plain.query_grad.value[i], 1e-14);
        EXPECT_NEAR(same.key_grad.value[i], plain.key_grad.value[i], 1e-14);
        EXPECT_NEAR(other.query_grad.value[i], plain.query_grad.value[i] * std::exp(-1.25), 1e-14);
        EXPECT_GT(std::fabs(other.query_grad.value[i] - plain.query_grad.value[i]),
                  other.query_grad.bound[i]);
    }
    Forward<double> output = f;
    for (double& o : output.output) o += 0.5;
    const ExpectedAttentionGrad moved = gradient(p, output);
    EXPECT_GT(std::fabs(moved.query_grad.value[0] - plain.query_grad.value[0]),
              plain.query_grad.bound[0]);
    EXPECT_EQ(moved.value_grad.value, plain.value_grad.value);
}

// Sizes that do not fit are named with both numbers.
TEST(ExpectedAttention, RefusesSizesThatDoNotFit) {
    const auto message = [](auto&& call) -> std::string {
        try {
            call();
        } catch (const std::invalid_argument& error) {
            return error.what();
        }
        return "";
    };
    const Problem p = small_problem();
    const Values Problem::* const tensors[] = {&Problem::query, &Problem::key, &Problem::value};
    Values Problem::* const writable[] = {&Problem::query, &Problem::key, &Problem::value};
    const char* const names[] = {"query has 11 elements, its shape 12",
                                 "key has 11 elements, its shape 12",
                                 "value has 7 elements, its shape 8"};
    for (int i = 0; i < 3; ++i) {
        Problem q = p;
        (q.*writable[i]).pop_back();
        ASSERT_EQ((q.*tensors[i]).size() + 1, (p.*tensors[i]).size());
        EXPECT_NE(message([&] { forward_of(q); }).find(names[i]), std::string::npos);
    }
    Problem heads = p;
    heads.shape.kv_heads = 3;
    EXPECT_NE(message([&] { forward_of(heads); }).find("kv_heads 3"), std::string::npos);
    const Forward<double> f = run_forward(p);
    AttentionGradInputs in{p.inputs(), p.output_grad, f.output, f.row_max, f.row_sum};
    std::span<const double> AttentionGradInputs::* const inputs[] = {
        &AttentionGradInputs::output_grad, &AttentionGradInputs::output,
        &AttentionGradInputs::row_max, &AttentionGradInputs::row_sum,
        &AttentionGradInputs::output_error};
    const char* const grad_names[] = {"output_grad", "output", "row_max", "row_sum",
                                      "output_error"};
    const Values three(3);
    for (int i = 0; i < 5; ++i) {
        AttentionGradInputs wrong = in;
        wrong.*inputs[i] = three;
        EXPECT_NE(message([&] {
                      expected_attention_grad({p.shape, p.lister(), wrong}, Dtype::bf16);
                  }).find(std::string(grad_names[i]) + " has 3 elements"),
                  std::string::npos);
    }
}

// Large problems run on several threads: the same numbers, and an exception of the lister arrives
// at the caller.
TEST(ExpectedAttention, DoesNotDependOnThreads) {
    Random random(61);
    Problem p({8192, 64, 1, 1, 2, 2});
    fill(random, p.query), fill(random, p.key), fill(random, p.value), fill(random, p.output_grad);
    for (auto& columns : p.columns)
        for (int j = 0; j < 130; ++j) columns.push_back({static_cast<std::int64_t>(random() % 64)});
    const Forward<double> f = run_forward(p);
    EXPECT_EQ(forward_of(p).output.value, f.output);
    const ExpectedAttentionGrad grad = gradient(p, f);
    Values exact(p.value.size());
    AttentionRow<double> row;
    for (std::int64_t t = 0; t < p.shape.query_rows; ++t) {
        const auto& columns = p.columns[static_cast<std::size_t>(t)];
        attend_row<double>(p.shape, p.inputs(), t, 0, columns, row);
        for (std::size_t j = 0; j < columns.size(); ++j)
            for (std::size_t d = 0; d < 2; ++d)
                exact[static_cast<std::size_t>(columns[j].key) * 2 + d] +=
                    row.probs[j] * p.output_grad[static_cast<std::size_t>(t) * 2 + d];
    }
    for (std::size_t i = 0; i < exact.size(); ++i)
        EXPECT_NEAR(grad.value_grad.value[i], exact[i], 1e-10 * (1 + std::fabs(exact[i])));
    const ColumnLister refusing = [](std::int64_t t, std::int64_t,
                                     std::vector<KeyColumn>&) -> bool {
        if (t == 5000) throw std::invalid_argument("row 5000");
        return true;
    };
    EXPECT_THROW(expected_attention({p.shape, refusing, p.inputs()}, Dtype::bf16),
                 std::invalid_argument);
}

}  // namespace
}  // namespace attncheck::ref
