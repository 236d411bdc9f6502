// Bounds and variances of the neutral Attention and its gradient against kernels in fp32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "attention_problem.h"
#include "ref/attention/rounding_noise.h"

namespace attncheck::ref {
namespace {

float rounded(Dtype dtype, double value) {
    return static_cast<float>(decode(dtype, encode(dtype, value)));
}

/// A straightforward kernel in fp32: P and dS are cast to `dtype` before their products, and so are
/// the results.
struct Kernel {
    const NeutralProblem& p;
    Dtype dtype;
    bool base_two;
    std::vector<float> output, lse, dq, dk, dv, dbias, dsink;

    float exponential(float x) const {
        return base_two ? std::exp2(x * 1.44269504f) : std::exp(x);
    }
    float logit(std::int64_t row, const KeyColumn& c, float* slope) const {
        const NeutralAttentionShape& s = p.shape;
        float dot = 0;
        for (std::int64_t d = 0; d < s.head_dim; ++d)
            dot += static_cast<float>(p.query[static_cast<std::size_t>(row * s.head_dim + d)]) *
                   static_cast<float>(p.key[key_at(row, c) * static_cast<std::size_t>(s.head_dim) +
                                            static_cast<std::size_t>(d)]);
        float x = dot * static_cast<float>(s.scale);
        *slope = 1;
        if (s.softcap > 0) {
            const auto cap = static_cast<float>(s.softcap);
            const float t = std::tanh(x / cap);
            x = cap * t, *slope = 1 - t * t;
        }
        return x + static_cast<float>(c.bias);
    }
    std::size_t key_at(std::int64_t row, const KeyColumn& c) const {
        return static_cast<std::size_t>(c.key * 2 + row % 4 / 2);
    }

    Kernel(const NeutralProblem& problem, Dtype storage, bool base2)
        : p(problem), dtype(storage), base_two(base2), output(p.output_grad.size()),
          lse(static_cast<std::size_t>(p.shape.total_queries * 4)) {
        for_rows([&](std::int64_t row, const std::vector<KeyColumn>& columns) { attend(row, columns); });
    }

    template <class Use>
    void for_rows(const Use& use) {
        const ColumnLister list = p.columns();
        for (std::int64_t row = 0; row < std::ssize(lse); ++row) {
            std::vector<KeyColumn> columns;
            list(row / 4, row % 4, columns);
            use(row, columns);
        }
    }
    float sink(std::int64_t row) const {
        return p.shape.sink.empty() ? -HUGE_VALF
                                    : static_cast<float>(p.shape.sink[static_cast<std::size_t>(row % 4)]);
    }
    void attend(std::int64_t row, const std::vector<KeyColumn>& columns) {
        float m = sink(row), slope = 0;
        for (const KeyColumn& c : columns) m = std::max(m, logit(row, c, &slope));
        float l = p.shape.sink.empty() ? 0 : exponential(sink(row) - m);
        const auto dv_dim = p.shape.value_dim;
        std::vector<float> o(static_cast<std::size_t>(dv_dim));
        for (const KeyColumn& c : columns) {
            const float e = exponential(logit(row, c, &slope) - m);
            l += e;
            for (std::int64_t d = 0; d < dv_dim; ++d)
                o[static_cast<std::size_t>(d)] +=
                    rounded(dtype, e) *
                    static_cast<float>(p.value[key_at(row, c) * static_cast<std::size_t>(dv_dim) +
                                               static_cast<std::size_t>(d)]);
        }
        const bool any = !columns.empty();
        lse[static_cast<std::size_t>(row)] =
            base_two ? (m * 1.44269504f + std::log2(l)) * 0.693147181f : m + std::log(l);
        for (std::int64_t d = 0; d < dv_dim; ++d)
            output[static_cast<std::size_t>(row * dv_dim + d)] =
                any ? rounded(dtype, o[static_cast<std::size_t>(d)] / l) : 0;
    }

    /// From the output and the LSE that are given.
    void differentiate(const Values& out, const Values& given_lse) {
        const NeutralAttentionShape& s = p.shape;
        const std::int64_t dim = s.head_dim, dv_dim = s.value_dim;
        dq.assign(p.query.size(), 0), dk.assign(p.key.size(), 0), dv.assign(p.value.size(), 0);
        dbias.assign(s.bias.values.size(), 0), dsink.assign(s.sink.size(), 0);
        for_rows([&](std::int64_t row, const std::vector<KeyColumn>& columns) {
            const auto r = static_cast<std::size_t>(row);
            float delta = 0;
            const auto dout = [&](std::int64_t d) {
                return static_cast<float>(p.output_grad[static_cast<std::size_t>(row * dv_dim + d)]);
            };
            for (std::int64_t d = 0; d < dv_dim; ++d)
                delta += dout(d) * static_cast<float>(out[static_cast<std::size_t>(row * dv_dim + d)]);
            const auto given = static_cast<float>(given_lse[r]);
            if (!s.sink.empty()) dsink[r % 4] -= exponential(sink(row) - given) * delta;
            for (const KeyColumn& c : columns) {
                float slope = 0, dp = 0;
                const float prob = exponential(logit(row, c, &slope) - given);
                const std::size_t key = key_at(row, c);
                const auto at = [](std::size_t first, std::int64_t width, std::int64_t d) {
                    return first * static_cast<std::size_t>(width) + static_cast<std::size_t>(d);
                };
                for (std::int64_t d = 0; d < dv_dim; ++d) {
                    dp += dout(d) * static_cast<float>(p.value[at(key, dv_dim, d)]);
                    dv[at(key, dv_dim, d)] += rounded(dtype, prob) * dout(d);
                }
                const float ds = prob * (dp - delta);
                dbias[static_cast<std::size_t>(c.place)] += ds;
                const float cast = rounded(dtype, ds * slope);
                for (std::int64_t d = 0; d < dim; ++d) {
                    dq[at(r, dim, d)] += cast * static_cast<float>(p.key[at(key, dim, d)]);
                    dk[at(key, dim, d)] += cast * static_cast<float>(p.query[at(r, dim, d)]);
                }
            }
        });
        const auto scale = static_cast<float>(s.scale);
        for (float& x : dq) x = rounded(dtype, x * scale);
        for (float& x : dk) x = rounded(dtype, x * scale);
        for (float& x : dv) x = rounded(dtype, x);
    }
};

/// The largest |error| / bound.
double worst(const char* what, const std::vector<float>& got, const ExpectedTensor& expected) {
    EXPECT_EQ(got.size(), expected.size()) << what;
    double most = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double error = std::fabs(static_cast<double>(got[i]) - expected.value[i]);
        if (std::isinf(expected.value[i])) continue;
        EXPECT_LE(error, expected.bound[i]) << what << i;
        if (error > 0) most = std::max(most, error / expected.bound[i]);
    }
    return most;
}

Values widened(const std::vector<float>& values) { return {values.begin(), values.end()}; }

class AttentionBounds
    : public testing::TestWithParam<std::tuple<Dtype, double, bool, bool>> {};

// No kernel leaves its bound, and no bound is much too wide: one element at least comes within a
// factor of 20, in fp32 of 50.
TEST_P(AttentionBounds, HoldForKernelsInFp32) {
    const auto [dtype, softcap, has_sink, base_two] = GetParam();
    double worst_output = 0, worst_lse = 0, worst_dq = 0, worst_dk = 0, worst_bias = 0, worst_sink = 0;
    for (unsigned seed = 0; seed < 20; ++seed) {
        const NeutralProblem p(seed, softcap, has_sink, 5, 40, 4, dtype);
        Kernel kernel(p, dtype, base_two);
        const auto f = expected_attention({p.shape.dense(), p.columns(), p.inputs()}, dtype);
        worst_output = std::max(worst_output, worst("o", kernel.output, f.output));
        worst_lse = std::max(worst_lse, worst("lse", kernel.lse, f.stored_lse));
        Values output = f.output.value, lse = f.stored_lse.value;
        for (double& x : output) x = rounded(dtype, x);
        for (double& x : lse) x = static_cast<float>(x);
        kernel.differentiate(output, lse);
        const GradStatistics given = given_statistics(lse);
        AttentionGradInputs in{p.inputs(), p.output_grad, output, given.row_max, given.row_sum};
        in.bias_elements = p.shape.bias.values.size();
        const auto g = expected_attention_grad({p.shape.dense(), p.columns(), in}, dtype);
        worst_dq = std::max(worst_dq, worst("dq", kernel.dq, g.query_grad));
        worst_dk = std::max(worst_dk, worst("dk", kernel.dk, g.key_grad));
        worst("dv", kernel.dv, g.value_grad);
        worst_bias = std::max(worst_bias, worst("dbias", kernel.dbias, g.bias_grad));
        worst_sink = std::max(worst_sink, worst("dsink", kernel.dsink, g.sink_grad));

        // A kernel that forms its own statistics.
        const GradStatistics own =
            own_statistics(expected_attention({p.shape.dense(), p.columns(), p.inputs()}, dtype));
        kernel.differentiate(output, widened(kernel.lse));
        in.row_max = own.row_max, in.row_sum = own.row_sum, in.statistics_error = own.error;
        const auto h = expected_attention_grad({p.shape.dense(), p.columns(), in}, dtype);
        worst("dq", kernel.dq, h.query_grad), worst("dk", kernel.dk, h.key_grad);
        worst("dbias", kernel.dbias, h.bias_grad), worst("dsink", kernel.dsink, h.sink_grad);
    }
    const double near = dtype == Dtype::fp32 ? 0.02 : 0.05;
    EXPECT_GT(worst_output, near);
    EXPECT_GT(worst_lse, 0.02);
    EXPECT_GT(worst_dq, near);
    EXPECT_GT(worst_dk, near);
    if (dtype == Dtype::fp32) {
        EXPECT_GT(worst_bias, 0.005);
        if (has_sink) {
            EXPECT_GT(worst_sink, 0.005);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, AttentionBounds,
                         testing::Combine(testing::Values(Dtype::bf16, Dtype::fp16, Dtype::fp32),
                                          testing::Values(0.0, 1.0, 30.0), testing::Bool(),
                                          testing::Bool()));

// Scores beyond a large cap: their own errors vanish behind the slope, those of tanh and of the LSE
// decide.
TEST(Attention, BoundsGrantTheErrorsOfTanhAndOfTheLse) {
    double worst_output = 0, worst_lse = 0, worst_dq = 0;
    for (unsigned seed = 0; seed < 10; ++seed)
        for (const bool base_two : {false, true}) {
            NeutralProblem p(seed, 1000, true, 5, 40, 1);
            p.shape.scale = 1;
            std::mt19937 random(seed);
            std::normal_distribution<double> normal;
            for (double& q : p.query) q = 1;
            for (double& k : p.key) k = static_cast<float>(2000 + 200 * normal(random));
            for (double& sink : p.shape.sink) sink += 965;
            for (double& bias : p.shape.bias.values) bias = 0;  // a bias is granted its own
            Kernel kernel(p, Dtype::fp32, base_two);
            const auto f =
                expected_attention({p.shape.dense(), p.columns(), p.inputs()}, Dtype::fp32);
            worst_output = std::max(worst_output, worst("o", kernel.output, f.output));
            worst_lse = std::max(worst_lse, worst("lse", kernel.lse, f.stored_lse));

            // A kernel that forms its own statistics may be wrong by as much as its forward.
            const GradStatistics own = own_statistics(
                expected_attention({p.shape.dense(), p.columns(), p.inputs()}, Dtype::fp32));
            Values lse = f.stored_lse.value;
            for (std::size_t i = 0; i < lse.size(); ++i)
                lse[i] = static_cast<float>(lse[i] + 0.9 * f.stored_lse.bound[i]);
            kernel.differentiate(f.output.value, lse);
            AttentionGradInputs in{p.inputs(), p.output_grad, f.output.value, own.row_max, own.row_sum};
            in.statistics_error = own.error, in.bias_elements = p.shape.bias.values.size();
            const auto g = expected_attention_grad({p.shape.dense(), p.columns(), in}, Dtype::fp32);
            worst_dq = std::max(worst_dq, worst("dq", kernel.dq, g.query_grad));
            worst("dv", kernel.dv, g.value_grad), worst("dbias", kernel.dbias, g.bias_grad);
            worst("dsink", kernel.dsink, g.sink_grad);
        }
    EXPECT_GT(worst_output, 0.05);
    EXPECT_GT(worst_lse, 0.05);
    EXPECT_GT(worst_dq, 0.001);
}

// A pair of statistics that is off by all that is granted, and a log and a sum that err as they may:
// 4 u |log l| and 3 u |LSE|.
TEST(Attention, BoundOfTheLseGrantsItsLogAndItsSum) {
    constexpr double u = 0x1p-24;
    for (unsigned seed = 0; seed < 10; ++seed)
        for (const double sign : {-1.0, 1.0}) {
            const NeutralProblem p(seed, 0, true, 5, 40, 4, Dtype::fp32);
            const auto f =
                expected_attention({p.shape.dense(), p.columns(), p.inputs()}, Dtype::fp32);
            std::vector<float> lse;
            for (std::size_t i = 0; i < f.lse.size(); ++i) {
                const double log_sum = std::log(f.row_sum.value[i]), pair = f.lse.bound[i];
                const double sum = f.row_max.value[i] + log_sum +
                                   sign * (pair + 4 * u * std::fabs(log_sum));
                lse.push_back(static_cast<float>(sum + sign * 3 * u * std::fabs(f.lse.value[i])));
            }
            worst("lse", lse, f.stored_lse);
        }
}

// A part of logits of -infinity counts for nothing, whatever its values are; in one sum they are
// multiplied by 0.
TEST(Attention, SplitsMayLoseInfiniteValuesOfLogitsOfMinusInfinity) {
    NeutralAttentionShape s = padded(1, 1, 3);
    s.value_dim = 3;
    const double infinity = std::numeric_limits<double>::infinity();
    const Values query{1}, value{2, 2, infinity, infinity, 7, infinity, 2, 2, infinity};
    Values key{1, -infinity, 1};
    const auto expected = [&](const char* declared) {
        return expected_attention({s.dense(), attention_columns(s), s.inputs(query, key, value)},
                                  {Dtype::fp16, parse_rounding_class(declared)})
            .output;
    };
    const ExpectedTensor one = expected("default"), split = expected("split=lse");
    EXPECT_TRUE(std::isnan(one.value[0]));
    EXPECT_EQ(one.overflow[0], Overflow::none);
    EXPECT_EQ(split.overflow[0], Overflow::any);
    EXPECT_EQ(split.value[1], 2);
    EXPECT_EQ(split.overflow[1], Overflow::none);
    EXPECT_EQ(split.overflow[2], Overflow::none);  // the other keys have an infinity too
    // An online softmax skips a tile in front of the first logit above -infinity.
    key[0] = -infinity;
    EXPECT_EQ(expected("default").overflow[0], Overflow::any);
}

// Sums of an online softmax that rescales late may leave fp32 before they are rescaled; those of halves have room.
TEST(Attention, SumsOfALateRescaleMayOverflow) {
    NeutralAttentionShape s = padded(1, 1, 2);
    s.head_dim = s.value_dim = 1;
    const Values query{1}, key{0, 5};
    const auto is_open = [&](double value, Dtype dtype) {
        const Values values{0, value};
        return expected_attention({s.dense(), attention_columns(s), s.inputs(query, key, values)}, {dtype, {}}).output.overflow[0] ==
               Overflow::any;
    };
    EXPECT_TRUE(is_open(2e36, Dtype::bf16));
    EXPECT_FALSE(is_open(5e35, Dtype::bf16));
    EXPECT_FALSE(is_open(30000, Dtype::fp16));
}

// The output of a part is a value over keep_prob, which the type it is stored in may not hold (split=half).
TEST(Attention, StoredPartsOfADropoutMayOverflow) {
    NeutralAttentionShape s = padded(1, 1, 2);
    s.head_dim = s.value_dim = 1;
    const Values query{1}, key{0, 0};
    const auto is_open = [&](double value, double keep, const char* words) {
        const Values values{0, value};
        AttentionInputs<double> in = s.inputs(query, key, values);
        in.keep_prob = keep;
        return expected_attention({s.dense(), attention_columns(s), in}, {Dtype::fp16, parse_rounding_class(words)}).output.overflow[0] ==
               Overflow::any;
    };
    EXPECT_TRUE(is_open(32768, 0.5, "split=half"));  // half of it is the output
    EXPECT_FALSE(is_open(32768, 0.5, "split=lse"));
    EXPECT_FALSE(is_open(32704, 0.5, "split=half"));
    EXPECT_FALSE(is_open(65504, 1, "split=half"));
}

/// One query and one key.
struct SmallProblem {
    NeutralAttentionShape shape = padded(1, 1, 1);
    Values query, key, value;

    SmallProblem(Values q, Values k, Values v, double scale) : query(std::move(q)), key(std::move(k)), value(std::move(v)) {
        shape.head_dim = std::ssize(query), shape.value_dim = std::ssize(value), shape.scale = scale;
    }
    ExpectedAttention forward(Dtype dtype, const char* declared, Grant grant = Grant::rounding) const {
        return expected_attention({shape.dense(), attention_columns(shape), shape.inputs(query, key, value)},
                                  {dtype, parse_rounding_class(declared)}, grant);
    }
};

// A query that is scaled in fp32 has digits that it had not: as a factor it is rounded (in=), whatever the stored one is.
TEST(Attention, BoundsGrantTheRoundingOfScaledFactors) {
    const SmallProblem p({1, 0}, {1, 0}, {1}, std::sqrt(0.5));
    EXPECT_LT(p.forward(Dtype::fp32, "in=tf32").lse.bound[0], 1e-5);
    EXPECT_LT(p.forward(Dtype::fp32, "scale=fp32").lse.bound[0], 1e-5);
    EXPECT_GE(p.forward(Dtype::fp32, "in=tf32 scale=fp32").lse.bound[0], 0x1p-11 * std::sqrt(0.5));
}

// 254 and two more partial sums of 8 bits have no bound at all: then nothing is judged.
TEST(Attention, SumsWithoutABoundAreNotJudged) {
    for (const std::size_t dim : {253, 254}) {
        Values q(dim), k(dim);
        q[0] = q[1] = 1, k[0] = 3, k[1] = 1.203125;
        const SmallProblem p(q, k, {1}, 1);
        const Values dout{1}, output{1}, row_max{4.203125}, row_sum{1};
        const auto gradient = expected_attention_grad(
            {p.shape.dense(), attention_columns(p.shape),
             {p.shape.inputs(p.query, p.key, p.value), dout, output, row_max, row_sum}},
            {Dtype::bf16, parse_rounding_class("acc=half")});
        // P of a sum that was rounded to 4.1875, stored: 0.984375.
        EXPECT_TRUE(gradient.value_grad.overflow[0] == Overflow::any || gradient.value_grad.bound[0] > 0.0157) << dim;
    }
}

// P of equal logits is cast without an error, P / 0.9 is not.
TEST(Attention, DropoutOfALatticeIsCast) {
    const SmallProblem p({1}, {1}, {1}, 1);
    for (const double keep : {0.9, 0.5, 0.1}) {
        AttentionInputs<double> in = p.shape.inputs(p.query, p.key, p.value);
        in.keep_prob = static_cast<float>(keep);
        const double cast = decode(Dtype::fp16, encode(Dtype::fp16, 1 / in.keep_prob)) - 1 / in.keep_prob,
                     bound = expected_attention({p.shape.dense(), attention_columns(p.shape), in}, {Dtype::fp16, {}}, Grant::lattice)
                                 .output.bound[0];
        EXPECT_GE(bound, std::fabs(cast)) << keep;
        EXPECT_EQ(bound > 1e-4, keep == 0.9) << keep;
    }
}

// With forward=own P may come from the LSE that is given, and delta from P dP: P is then off by the error of the score,
// which another sum over the channels may have, and dS = P (dP - P dP) with it.
TEST(Attention, OwnForwardGrantsDeltaOfAGivenLse) {
    const double all_bits = 1.0668593645095825;
    const SmallProblem p({8, 1, 8, 8}, {-6, -all_bits, -2, 8}, {1}, 1);
    const Values dout{1}, output{1}, row_max{-all_bits}, row_sum{1};
    const auto bound = [&](const char* words) {
        return expected_attention_grad({p.shape.dense(), attention_columns(p.shape),
                                        {p.shape.inputs(p.query, p.key, p.value), dout, output, row_max, row_sum}},
                                       {Dtype::fp32, parse_rounding_class(words)})
            .query_grad.bound[0];
    };
    const double score_error = 3 * 0x1p-24 * (48 + all_bits + 16 + 64);
    EXPECT_GE(bound("forward=own"), 6 * score_error);
    EXPECT_LT(bound("default"), 6 * score_error) << "the word is not needed";
}

// Parts that are merged one by one store as many LSEs, each from the last.
TEST(Attention, SplitsGrantTheRoundingOfEveryLse) {
    constexpr std::int64_t kPart = 32, kParts = 2048, kLogit = -20'000;
    NeutralAttentionShape s = padded(1, 1, kPart * kParts);
    s.head_dim = s.value_dim = 1;
    const Values query{1}, key(kPart * kParts, kLogit), value(kPart * kParts, 1);
    const auto bound = [&](const char* words) {
        return expected_attention({s.dense(), attention_columns(s), s.inputs(query, key, value)},
                                  {Dtype::fp16, parse_rounding_class(words)})
            .stored_lse.bound[0];
    };
    const float part = kLogit + std::log(static_cast<float>(kPart));
    float lse = part;
    for (std::int64_t k = 1; k < kParts; ++k)  // as a ring does
        lse = lse + std::log1p(std::exp(part - lse));
    const double error = std::fabs(lse - (kLogit + std::log(static_cast<double>(kPart * kParts))));
    EXPECT_LE(error, bound("split=lse"));
    EXPECT_GT(error, bound("default")) << "the word is not needed";
}

// A dropped key has no dP. With an infinite dO, delta = sum P dP is then 0, and <dO, O> is NaN: both are right.
TEST(Attention, DeltaOfAnOwnForwardMayLeaveOutWhatIsDropped) {
    const SmallProblem p({1}, {1}, {1}, 1);
    const ColumnLister dropped = [](std::int64_t, std::int64_t, std::vector<KeyColumn>& to) {
        to.push_back({.key = 0, .kept = false});
        return true;
    };
    const Values dout{std::numeric_limits<double>::infinity()}, output{0}, row_max{1}, row_sum{1};
    AttentionInputs<double> in = p.shape.inputs(p.query, p.key, p.value);
    in.keep_prob = 0.5;
    for (const bool is_own : {true, false}) {
        const auto gradient = expected_attention_grad({p.shape.dense(), dropped, {in, dout, output, row_max, row_sum}},
                                                      {Dtype::fp16, parse_rounding_class(is_own ? "forward=own" : "default")});
        EXPECT_EQ(gradient.query_grad.overflow[0] == Overflow::any, is_own);
    }
}

// What a score loses as it is stored in base 2 is in the pair of statistics, on the lattice too: 1.4427 in fp16 is 1.4424.
TEST(Attention, PairGrantsScoresThatAreStoredInBaseTwo) {
    const SmallProblem p({1}, {1}, {1}, 1);
    const double lost = 1 - decode(Dtype::fp16, encode(Dtype::fp16, 1.4426950408889634)) / 1.4426950408889634;
    EXPECT_GE(p.forward(Dtype::fp16, "scores=half stats=lse", Grant::lattice).lse.bound[0], lost);
    EXPECT_LT(p.forward(Dtype::fp16, "stats=lse", Grant::lattice).lse.bound[0], lost / 10);
    EXPECT_LT(p.forward(Dtype::fp16, "steps=half stats=lse", Grant::lattice).lse.bound[0], lost / 10);
}

// Equal sums of scores and biases: fma(<q,k>, log2 e, bias log2 e) makes them differ by what 4097 log2 e loses in fp32. Equal
// biases are computed in the same way.
TEST(Attention, LatticeGrantsDifferentBiases) {
    const SmallProblem p({64, -1}, {64, -1, 64, 1}, {0, 1}, 1);
    const float log2_e = 1.44269504F, lost = 4097 * log2_e - (4095 * log2_e + 2 * log2_e);
    ASSERT_GT(std::fabs(lost), 1e-4F);
    const Values dout{1}, output{0.5}, row_sum{2};
    for (const bool is_equal : {true, false}) {
        const Values keys = is_equal ? Values{64, -1, 64, -1} : p.key, top{is_equal ? 4099.0 : 4097.0};
        const ColumnLister both = [&](std::int64_t, std::int64_t, std::vector<KeyColumn>& to) {
            to.push_back({.key = 0, .bias = is_equal ? 2.0 : 0.0}), to.push_back({.key = 1, .bias = 2});
            return true;
        };
        NeutralAttentionShape shape = padded(1, 1, 2);
        shape.head_dim = 2, shape.value_dim = 1, shape.scale = 1;
        const AttentionInputs<double> in = shape.inputs(p.query, keys, p.value);
        const Precision precision{Dtype::fp16, {}};
        const double of_output = expected_attention({shape.dense(), both, in}, precision, Grant::lattice).output.bound[0];
        EXPECT_EQ(of_output >= 0.25 * std::fabs(lost), !is_equal) << of_output;
        const auto gradient = expected_attention_grad({shape.dense(), both, {in, dout, output, top, row_sum}}, precision, Grant::lattice);
        EXPECT_GE(gradient.value_grad.bound[0], 0.5 * 2 * 0x1p-24 * 4097) << "P is exp(s - LSE), and s is rounded";
    }
}

// P = exp2(s log2 e - LSE log2 e) of a score that is stored in base 2 is no longer 1, and its cast rounds it once more, as
// that of dS does. Where P is 1 but for roundings of fp32 the casts leave it alone.
TEST(Attention, LatticeGrantsTheCastOfWhatIsNotExact) {
    const SmallProblem p({1.5}, {-1}, {1}, 1);
    const Values dout{1}, output{0.5}, row_max{-1.5}, row_sum{1};
    const auto bound = [&](const char* words) {
        const auto gradient =
            expected_attention_grad({p.shape.dense(), attention_columns(p.shape), {p.shape.inputs(p.query, p.key, p.value), dout, output, row_max, row_sum}},
                                    {Dtype::bf16, parse_rounding_class(words)}, Grant::lattice);
        return std::pair(gradient.value_grad.bound[0], gradient.key_grad.bound[0]);
    };
    constexpr double kCast = 0x1p-8;
    const auto [dv, dk] = bound("scores=half p=half ds=half");
    const auto [dv_fine, dk_fine] = bound("scores=half p=fp32 ds=fp32");
    EXPECT_GE(dv - dv_fine, kCast);
    EXPECT_GE(dk - dk_fine, kCast * 0.5 * 1.5);  // dS = 1 - 0.5, of a query of 1.5
    EXPECT_EQ(bound("p=half ds=half"), bound("p=fp32 ds=fp32"));
}

// dS = P (dP - delta) of a P that was stored has one rounding more (p=kept), as with steps=half.
TEST(Attention, GradientsGrantTheCastOfAKeptProbability) {
    const SmallProblem p({1}, {1}, {1}, 1);
    const Values dout{1}, output{0.5}, row_max{1}, row_sum{1};
    const auto bound = [&](const char* words) {
        return expected_attention_grad({p.shape.dense(), attention_columns(p.shape), {p.shape.inputs(p.query, p.key, p.value), dout, output, row_max, row_sum}},
                                       {Dtype::fp16, parse_rounding_class(words)}, Grant::rounding)
            .query_grad.bound[0];
    };
    constexpr double kCast = 0x1p-11 * 0.5;  // of dS = 1 - 0.5
    EXPECT_GE(bound("p=kept ds=half") - bound("p=half ds=half"), 0.99 * kCast);
    EXPECT_GE(bound("p=kept ds=fp32") - bound("p=half ds=fp32"), 0.99 * kCast);
    EXPECT_EQ(bound("p=kept steps=half"), bound("p=half steps=half"));
}

// The LSE of one key is its logit: tanh=N and what is stored of a tanh or a sum with a bias are granted.
TEST(Attention, LatticeGrantsWhatIsNoPlainScore) {
    SmallProblem p({1}, {1}, {1}, 1);
    const auto bound = [&](const char* words) { return p.forward(Dtype::fp16, words, Grant::lattice).lse.bound[0]; };
    EXPECT_LT(bound("tanh=8192"), 1e-5);
    p.shape.softcap = 1;
    const double t = std::tanh(1.0);
    EXPECT_GE(bound("tanh=8192"), 0x1p-11);
    EXPECT_GE(bound("steps=half"), std::fabs(t - decode(Dtype::fp16, encode(Dtype::fp16, t))));
    EXPECT_LT(bound("default"), 1e-5);
}

// P (dP - keep_prob delta) of a dP that is not scaled may be cast, and divided by keep_prob behind the product with K: what
// a cast to fp16 loses near zero is then 1 / keep_prob times as much.
TEST(Attention, DropoutGradientsGrantACastBeforeTheyAreScaled) {
    const SmallProblem p({1}, {1}, {0x1p-24}, 1);
    AttentionInputs<double> in = p.shape.inputs(p.query, p.key, p.value);
    const Values dout{1}, output{50 * 0x1p-24}, row_max{1}, row_sum{1};
    for (const double keep : {1.0, 0.01}) {
        in.keep_prob = keep;
        const double bound = expected_attention_grad({p.shape.dense(), attention_columns(p.shape), {in, dout, output, row_max, row_sum}},
                                                     {Dtype::fp16, parse_rounding_class("default")})
                                 .query_grad.bound[0];
        EXPECT_GE(bound, 0x1p-25 / keep);
        EXPECT_LT(bound, 3 * 0x1p-25 / keep);
    }
}

// The dS of a sink is one column more of a matrix that is cast: all of a small one may be lost.
TEST(Attention, VarianceOfSinksHasTheCastNearZero) {
    SmallProblem p({1}, {1}, {1}, 1);
    p.shape.sink = {-17};
    const Values dout{1}, output{1}, row_max{1}, row_sum{1};
    const SequencePlaces places{sequence_places(p.shape.query_lengths, p.shape.total_queries),
                                sequence_places(p.shape.kv_lengths, p.shape.total_keys)};
    const auto deviation_of = [&](const char* words) {
        const auto noise = attention_grad_noise({p.shape.dense(), attention_columns(p.shape),
                                                 {p.shape.inputs(p.query, p.key, p.value), dout, output, row_max, row_sum}},
                                                places, {Dtype::fp16, parse_rounding_class(words)});
        return std::sqrt(noise.sink_grad.variance[0]) / std::fabs(noise.sink_grad.value[0]);
    };
    EXPECT_GE(deviation_of("default"), 1) << "exp(-18) is zero in fp16";
    EXPECT_LT(deviation_of("p=fp32 ds=fp32"), 1e-4);
}

// The largest fp32 numbers are infinite as bf16.
TEST(Attention, FactorsThatOverflowAreNotJudged) {
    for (const double large : {3e38, 3.3985688e38}) {
        const SmallProblem p({1e-38}, {large}, {1}, 1);
        EXPECT_EQ(p.forward(Dtype::fp32, "in=bf16").output.overflow[0] == Overflow::any, large > 3.39e38);
        EXPECT_EQ(p.forward(Dtype::fp32, "default").output.overflow[0], Overflow::none);
    }
}

// delta of cancelling products: its error outweighs all other errors of dS.
TEST(Attention, BoundOfTheBiasGradientGrantsTheErrorOfDelta) {
    double most = 0;
    for (unsigned seed = 0; seed < 5; ++seed) {
        const NeutralProblem p(seed, 0, false, 5, 40, 63, Dtype::fp32);
        const auto forward = p.forward();
        const auto width = static_cast<std::size_t>(p.shape.value_dim);
        std::mt19937 random(seed);
        std::normal_distribution<double> normal;
        Values given = forward.output, lse;
        for (std::size_t row = 0; row < forward.row_max.size(); ++row) {
            double* const o = given.data() + row * width;
            const double* const dout = p.output_grad.data() + row * width;
            double sum = 0;
            for (std::size_t d = 0; d < width; ++d) {
                o[d] = static_cast<float>(d + 1 < width ? 1e4 * normal(random)
                                                        : -sum / dout[width - 1]);
                sum += o[d] * dout[d];
            }
            lse.push_back(static_cast<float>(forward.row_max[row] + std::log(forward.row_sum[row])));
        }
        Kernel kernel(p, Dtype::fp32, false);
        kernel.differentiate(given, lse);
        const GradStatistics of = given_statistics(lse);
        AttentionGradInputs in{p.inputs(), p.output_grad, given, of.row_max, of.row_sum};
        in.bias_elements = p.shape.bias.values.size();
        const auto g = expected_attention_grad({p.shape.dense(), p.columns(), in}, Dtype::fp32);
        most = std::max(most, worst("dbias", kernel.dbias, g.bias_grad));
    }
    EXPECT_GT(most, 0.01);
}

/// rms(error / sigma).
double rms(const std::vector<float>& got, const RoundingNoise& noise) {
    double sum = 0, count = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        if (!(noise.variance[i] > 0)) continue;
        const double z = (static_cast<double>(got[i]) - noise.value[i]) / std::sqrt(noise.variance[i]);
        EXPECT_LT(std::fabs(z), 8) << i;
        sum += z * z, ++count;
    }
    return std::sqrt(sum / count);
}

class AttentionVariance : public testing::TestWithParam<std::tuple<double, bool>> {};

// The variance predicts the errors of the declared class; those of LSE, dbias and dsink are upper
// estimates.
TEST_P(AttentionVariance, PredictsTheErrors) {
    const NeutralProblem p(11, std::get<0>(GetParam()), std::get<1>(GetParam()), 40, 60, 16, Dtype::bf16);
    Kernel kernel(p, Dtype::bf16, true);
    const SequencePlaces places{sequence_places(p.shape.query_lengths, p.shape.total_queries),
                                sequence_places(p.shape.kv_lengths, p.shape.total_keys)};
    const auto noise =
        attention_noise({p.shape.dense(), p.columns(), p.inputs()}, places, Dtype::bf16);
    const double of_output = rms(kernel.output, noise.output);
    EXPECT_GT(of_output, 0.6);
    EXPECT_LT(of_output, 1.2);
    EXPECT_LT(rms(kernel.lse, noise.lse), 1.2);
    const auto f = expected_attention({p.shape.dense(), p.columns(), p.inputs()}, Dtype::bf16);
    Values output = f.output.value, lse = f.stored_lse.value;
    for (double& x : output) x = rounded(Dtype::bf16, x);
    for (double& x : lse) x = static_cast<float>(x);
    kernel.differentiate(output, lse);
    const GradStatistics given = given_statistics(lse);
    AttentionGradInputs in{p.inputs(), p.output_grad, output, given.row_max, given.row_sum};
    in.bias_elements = p.shape.bias.values.size();
    const auto grad = attention_grad_noise({p.shape.dense(), p.columns(), in}, places, Dtype::bf16);
    for (const double z : {rms(kernel.dq, grad.query_grad), rms(kernel.dk, grad.key_grad),
                           rms(kernel.dv, grad.value_grad)}) {
        EXPECT_GT(z, 0.6);
        EXPECT_LT(z, 1.2);
    }
    EXPECT_LT(rms(kernel.dbias, grad.bias_grad), 1.2);
    if (!p.shape.sink.empty()) {
        EXPECT_EQ(grad.sink_grad.size(), 4U);
        EXPECT_LT(rms(kernel.dsink, grad.sink_grad), 1.2);
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, AttentionVariance,
                         testing::Combine(testing::Values(0.0, 2.0, 30.0), testing::Bool()));

}  // namespace
}  // namespace attncheck::ref
