// The second and third tier: thresholds, validity on correct implementations, and what they say of
// planted defects.
#include "properties/judge/tiers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <utility>

#include "properties/laws/attention_parts.h"
#include "properties/operators/attention/case.h"
#include "properties/operators/flash_attention/problem.h"
#include "properties/operators/nsa_compress_attention/case.h"
#include "properties/judge/tier_text.h"
#include "properties/operators/catalogue.h"
#include "validity.h"

namespace attncheck::tiers {
namespace {

using namespace properties;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

AttentionProblem problem_of(const std::string& line) {
    const Spec spec = parse(line, schemas());
    return find_operator(spec.schema->op)->attention()->problem(spec);
}

constexpr const char* kForward =
    "flash_attention_score{dtype=bf16 q=[96] kv=[80] layout=BSND kv_heads=2 group=2 dim=32 "
    "value_dim=32 scale=rsqrt data=normal seed=3}";
constexpr const char* kHalfForward =
    "flash_attention_score{dtype=fp16 q=[96] kv=[80] layout=BSND kv_heads=2 group=2 dim=32 "
    "value_dim=32 scale=rsqrt data=normal seed=3}";
constexpr const char* kSingleForward =
    "flash_attention_score{dtype=fp32 q=[96] kv=[80] layout=BSND kv_heads=2 group=2 dim=32 "
    "value_dim=32 scale=rsqrt data=normal seed=3}";
constexpr const char* kGradient =
    "flash_attention_score_grad{dtype=bf16 q=[96] kv=[80] layout=BSND kv_heads=2 group=2 dim=32 "
    "value_dim=32 scale=rsqrt data=normal seed=3}";

Verdict judged(const std::string& line, const Planted& planted, const Emulation& emulation = {},
               const std::string& declared = "default") {
    const AttentionProblem problem = problem_of(line);
    const Outputs got = emulate(problem, emulation, planted);
    return judge_attention(problem, ref::parse_rounding_class(declared),
                           [&](const std::string& name) { return got.at(name); });
}

void expect_finding(const Verdict& verdict, const std::string& tier, const std::string& failure,
                    const std::string& words) {
    EXPECT_TRUE(verdict.failed());
    EXPECT_EQ(name_of(verdict.tier), tier);
    EXPECT_EQ(verdict.failure, failure);
    EXPECT_THAT(verdict.message, HasSubstr(words));
}

TEST(Tiers, LimitsAreThoseOfTheAllowedFalseAlarms) {
    for (const double tests : {1.0, 1e3, 1e6}) {
        const double z = element_limit(tests);
        EXPECT_NEAR(tests * 2 * std::exp(-z * z / 2) / kFalseAlarm, 1, 1e-6);
        for (const double rows : {1.0, 64.0, 4096.0}) {
            const double x = std::pow(rms_limit(rows, tests), 2);
            EXPECT_NEAR(tests * std::exp(-rows * (x - 1 - std::log(x)) / 2) / kFalseAlarm, 1, 1e-3);
        }
    }
    EXPECT_GT(rms_limit(16, 100), rms_limit(1024, 100));
}

/// The property's own generator on random emulations. tier_validity runs 100,000 of them.
TEST(Tiers, CorrectImplementationsOfEveryClassAreNotAccused) {
    Validity validity;
    for (std::uint64_t i = 0; i < 96; ++i) validity.run_case(20'261, i);
    EXPECT_EQ(validity.cases(), 96);
    std::set<std::string> operators;
    for (const auto& [key, line] : validity.lines()) {
        operators.insert(key.first);
        EXPECT_EQ(line.alarms, 0) << line.alarm;
    }
    std::size_t with_tiers = 0;
    for (const auto& op : properties::operators())
        with_tiers += op->property("deviation") != nullptr;
    EXPECT_EQ(operators.size(), with_tiers);
}

/// Every word whose roundings the emulations can have, declared: tier_validity runs thousands.
TEST(Tiers, WordsThatAreDeclaredAreNotAccused) {
    for (const std::string& word : emulated_words()) {
        Validity validity({word, true});
        for (std::uint64_t i = 0; i < 24; ++i) validity.run_case(5, i);
        for (const auto& [key, line] : validity.lines())
            EXPECT_EQ(line.alarms, 0) << word << ": " << line.alarm;
    }
}

/// Several at once, each of whose terms a kernel may use up.
TEST(Tiers, WordsDeclaredTogetherAreNotAccused) {
    for (const char* words : {"scores=half split=lse", "scores=half delta=half group=half", "scale=half group=half ftz=all",
                              "in=tf32 exp=1600 forward=own", "stats=lse split=lse exp=34", "steps=half group=half forward=own",
                              "in=tf32-truncating tanh=8192"}) {
        Validity validity({words, true});
        for (std::uint64_t i = 0; i < 12; ++i) validity.run_case(6, i);
        EXPECT_EQ(validity.cases(), 12);
        for (const auto& [key, line] : validity.lines())
            EXPECT_EQ(line.alarms, 0) << words << ": " << line.alarm;
    }
    EXPECT_THROW(Validity({"split=lse delta=half", true}), std::invalid_argument);
}

/// P that is formed again once the row sum is known is another exponential than the one in the sum.
TEST(Tiers, CoarseExponentialsOfTwoPassesAreNotAccused) {
    Validity validity({"exp=1600", true});
    const properties::Spec spec = properties::parse(
        "attention_decode{dtype=fp32 q=[1,1,1,1,1,1] kv=[26,26,25,25,26,26] kv_heads=3 group=8 dim=2 "
        "value_dim=2 page=128 pages=shuffled spare=1 slack=1 tail=foreign window_left=128 softcap=50 "
        "scale=rsqrt data=normal seed=11957570}",
        properties::schemas());
    for (std::uint64_t i = 0; i < 60; ++i) validity.run_line(spec, 1, i);
    for (const auto& [key, line] : validity.lines()) EXPECT_EQ(line.alarms, 0) << line.alarm;
}

/// What the first long run accused: heads that see one key and are all the same, and truncated sums
/// whose error lies along every direction of nearly parallel rows.
TEST(Tiers, DependentRowsAreNotAccused) {
    Emulation emulation;
    emulation.sums = Sums::fp64, emulation.tile = 32, emulation.normalised_first = true;
    emulation.prob_cast = false;
    Verdict verdict = judged(
        "flash_attention_score{dtype=fp16 q=[1] kv=[1] layout=BSND kv_heads=1 group=128 dim=40 "
        "value_dim=40 drop=keep_all keep=tenth scale=eighth data=normal seed=16372753}",
        {}, emulation, "p=fp32 ds=half");
    EXPECT_FALSE(verdict.failed()) << verdict.message;
    emulation = {};
    emulation.sums = Sums::truncating, emulation.tile = 128, emulation.base_two = true;
    emulation.prob_cast = false;
    verdict = judged(
        "flash_attention_score{dtype=fp16 q=[3] kv=[3] layout=TND kv_heads=2 group=64 dim=64 "
        "value_dim=59 mask=uint8 mask_form=batch pre=1 next=1 tokens=pre_negative pse=one_row "
        "pse_type=0 drop=keep_all keep=tenth scale=rsqrt data=normal seed=3692604}",
        {}, emulation, "acc=fp32-truncating p=fp32 ds=half");
    EXPECT_FALSE(verdict.failed()) << verdict.message;
    emulation.prob_cast = emulation.sum_of_cast = emulation.scale_before_cast = true;
    emulation.score_grad_cast = false;
    verdict = judged(
        "flash_attention_score_grad{dtype=fp32 q=[343] kv=[189] layout=BSND kv_heads=1 group=1 "
        "dim=2 value_dim=1 scale=tenth precise=2 data=normal seed=2796956}",
        {}, emulation, "acc=fp32-truncating sum=rounded");
    EXPECT_FALSE(verdict.failed()) << verdict.message;
}

/// All keys of a channel of dV add the same dO in the same order: where its partial sums go far, truncation takes
/// much from each of them. A wrong factor is another thing.
TEST(Tiers, TruncatedSumsOfOneChannelAreDependent) {
    Emulation emulation;
    emulation.sums = Sums::truncating;
    for (const char* line :
         {"attention_grad{dtype=fp32 q=[136] kv=[1126] layout=packed kv_heads=1 group=1 dim=8 value_dim=8 "
          "scale=rsqrt align=bottom_right data=normal seed=4076528}",
          "attention_grad{dtype=fp32 q=[68] kv=[1087] layout=bhsd kv_heads=1 group=2 dim=64 value_dim=64 "
          "scale=negative data=normal seed=8260936}"}) {
        const Verdict verdict = judged(line, {}, emulation, "acc=fp32-truncating");
        EXPECT_FALSE(verdict.failed()) << verdict.message;
        Planted planted;
        planted.value_grad = 1 + 1e-4;
        EXPECT_TRUE(judged(line, planted, emulation, "acc=fp32-truncating").failed());
    }
}

/// Neither far above nor far below what is there: 1 for a stored number, less for casts of P, whose
/// significand is taken to be the worst one.
TEST(Tiers, PredictedDeviationIsThatOfTheErrors) {
    for (const char* line : {kForward, kHalfForward}) {
        const AttentionProblem problem = problem_of(line);
        for (const bool cast : {false, true}) {
            Emulation emulation;
            emulation.prob_cast = cast;
            const Outputs got = emulate(problem, emulation);
            const auto tensors = tier_tensors(problem, emulation.rounding());
            const ref::RoundingNoise& noise = tensors[0].noise;
            double sum = 0;
            for (std::size_t i = 0; i < noise.size(); ++i)
                sum += std::pow(got.at("attention_out")[i] - noise.value[i], 2) / noise.variance[i];
            const double rms = std::sqrt(sum / static_cast<double>(noise.size()));
            EXPECT_GT(rms, cast ? 0.7 : 0.95);
            EXPECT_LT(rms, 1.05);
        }
    }
}

/// The number behind "gain " in percent.
void expect_gain(const Verdict& verdict, const std::string& tensor, double percent) {
    expect_finding(verdict, "filter", tensor + ": gain", tensor + ": gain ");
    const std::string words = verdict.message.substr(tensor.size() + 7);
    EXPECT_NEAR(std::strtod(words.c_str(), nullptr), percent, std::fabs(percent) / 10) << words;
}

TEST(Tiers, GainsOfAFractionOfTheRoundoffAreNamedWithTheirSize) {
    expect_gain(judged(kForward, {.output = 1.001}), "attention_out", 0.1);
    expect_gain(judged(kHalfForward, {.output = 1.0002}), "attention_out", 0.02);
    expect_gain(judged(kGradient, {.query_grad = 1.002}), "dq", 0.2);
    expect_gain(judged(kGradient, {.key_grad = 0.9985}), "dk", -0.15);
    expect_gain(judged(kGradient, {.value_grad = 1.0015}), "dv", 0.15);
}

TEST(Tiers, GainsThatCoherentRoundingsMayCauseAreNotAccused) {
    const Verdict verdict = judged(kSingleForward, {.output = 1 + 4 * 0x1p-24});
    EXPECT_FALSE(verdict.failed()) << verdict.message;
    expect_finding(judged(kSingleForward, {.output = 1.00001}), "filter", "attention_out: gain",
                   "gain +0.00");
}

/// 1 / 0.9 is rounded to 1.1094 in bf16. A correct kernel has it in the largest keys of its rows, whose P is 1; one that
/// multiplies all of P with it has a gain.
TEST(Tiers, FactorsOfADropoutAreNamedWhereTheyAreRounded) {
    for (const char* line :
         {"flash_attention_score{dtype=fp16 q=[200] kv=[24] layout=SBH kv_heads=2 group=2 dim=16 value_dim=16 "
          "drop=random keep=nine_tenths scale=rsqrt data=normal seed=1527951}",
          "flash_attention_score{dtype=bf16 q=[128] kv=[200] layout=SBH kv_heads=2 group=2 dim=64 value_dim=64 "
          "drop=random keep=nine_tenths scale=rsqrt data=normal seed=2100756}"})
        for (const std::int64_t tile : {16, 64, 1 << 20}) {
            Emulation emulation;
            emulation.tile = tile;
            const Verdict verdict = judged(line, {}, emulation);
            EXPECT_FALSE(verdict.failed()) << verdict.message;
        }
    const double rounded = 1.109375 * 0.9;
    Emulation emulation;
    emulation.prob_cast = false;
    for (const char* op : {"flash_attention_score", "flash_attention_score_grad"}) {
        const std::string line = std::string(op) +
            "{dtype=bf16 q=[200] kv=[200] layout=BSND kv_heads=2 group=2 dim=64 value_dim=64 drop=random keep=nine_tenths "
            "scale=rsqrt data=normal seed=3}";
        const bool forward = line.starts_with("flash_attention_score{");
        EXPECT_FALSE(judged(line, {}).failed());
        const Planted planted = forward ? Planted{.output = rounded} : Planted{.value_grad = rounded};
        expect_gain(judged(line, planted, emulation), forward ? "attention_out" : "dv", 100 * (rounded - 1));
    }
}

/// Q and K that are rounded where they are scaled have errors of their own, each, and none that hides a gain.
TEST(Tiers, GainsAreNamedWhereScaledInputsAreRounded) {
    Emulation emulation;
    emulation.scaling = ref::Scaling::half;
    for (const bool root : {false, true}) {
        emulation.root_scale = root;
        const auto judged_so = [&](const char* line, const Planted& planted) {
            return judged(line, planted, emulation, "scale=half");
        };
        EXPECT_FALSE(judged_so(kForward, {}).failed());
        EXPECT_FALSE(judged_so(kGradient, {}).failed());
        expect_gain(judged_so(kForward, {.output = 1.002}), "attention_out", 0.2);
        expect_gain(judged_so(kHalfForward, {.output = 1.00025}), "attention_out", 0.025);
        expect_gain(judged_so(kGradient, {.query_grad = 1.006}), "dq", 0.6);
        expect_gain(judged_so(kGradient, {.key_grad = 0.994}), "dk", -0.6);
    }
}

TEST(Tiers, WrongTermsAreNamed) {
    expect_finding(judged(kGradient, {.delta = 0}), "deviation", "dq deviates",
                   "dq: row term wrong (delta left out?)");
    expect_finding(judged(kGradient, {.delta = 1.06}), "deviation", "dq deviates",
                   "dq: row term wrong (delta off by +");
    // The row sum moves as well, but attention_out is looked at first.
    expect_finding(judged(kHalfForward, {.scale = 1.001}), "filter",
                   "attention_out: scale inside the softmax",
                   "scale inside the softmax off by +0.");
    expect_finding(judged(kForward, {.last_tile = 0.98}), "filter", "attention_out: last tile",
                   "last tile of 16 keys off by -");
    EXPECT_THAT(judged(kForward, {.output = 1.001}).message,
                AllOf(HasSubstr("where: size in % by tile of 32 query rows"),
                      HasSubstr("sequence 0   head 3")));
}

/// A third of the numbers is 0: a gain of -33 % has a third of the error, and is not its name.
TEST(Tiers, FiltersThatHaveLittleOfALargeErrorAreNotItsName) {
    for (const char* dtype : {"bf16", "fp32"}) {
        const AttentionProblem problem = problem_of(
            std::string("attention{dtype=") + dtype +
            " q=[160] kv=[40] layout=bshd kv_heads=2 group=2 dim=16 value_dim=16 scale=rsqrt data=normal seed=3 outputs=out}");
        Outputs got = emulate(problem, {});
        std::vector<double>& out = got.at("out");
        for (std::size_t k = 0; k < out.size(); k += 3) out[k] = 0;
        const Verdict verdict = judge_attention(problem, {}, [&](const std::string& name) { return got.at(name); });
        expect_finding(verdict, "deviation", "out deviates", "of the predicted deviation");
        EXPECT_THAT(verdict.message, Not(HasSubstr("gain")));
    }
}

/// The gradients of biases and sinks: a gain, and one head of a gradient that has but one number a head.
TEST(Tiers, GradientsOfBiasesAndSinksAreJudged) {
    const auto line = [](const char* dtype) {
        return std::string("attention_grad{dtype=") + dtype +
               " q=[160] kv=[40] layout=bshd kv_heads=2 group=2 dim=16 value_dim=16 scale=rsqrt "
               "bias=one_batch sink=normal data=normal seed=3}";
    };
    const auto verdict_with = [&](const char* dtype, const char* name, double factor) {
        const AttentionProblem problem = problem_of(line(dtype));
        Outputs got = emulate(problem, {});
        for (double& value : got.at(name)) value *= factor;
        return judge_attention(problem, Emulation{}.rounding(),
                               [&](const std::string& output) { return got.at(output); });
    };
    for (const char* dtype : {"bf16", "fp32"}) {
        const Verdict correct = verdict_with(dtype, "dbias", 1);
        EXPECT_FALSE(correct.failed()) << correct.message;
    }
    expect_finding(verdict_with("bf16", "dbias", 1.002), "filter", "dbias: gain", "gain +0.2");
    EXPECT_THAT(verdict_with("fp32", "dbias", 1.002).message, HasSubstr("gain +0.2"));
    EXPECT_THAT(verdict_with("fp32", "dsink", 1.001).failure, StartsWith("dsink"));
}

/// A kernel that reads another head, hides a key or leaves out the scale computes another problem
/// without error.
TEST(Tiers, OtherProblemsAreRecognised) {
    const AttentionProblem problem = problem_of(kForward);
    const auto verdict_on = [&](const AttentionProblem& computed) {
        const Outputs got = emulate(computed, {});
        return judge_attention(problem, {}, [&](const std::string& name) { return got.at(name); });
    };
    AttentionProblem other = problem;
    other.columns = [&](std::int64_t t, std::int64_t n, std::vector<ref::KeyColumn>& columns) {
        const bool in_sequence = problem.columns(t, n, columns);
        columns.pop_back();
        return in_sequence;
    };
    EXPECT_THAT(verdict_on(other).message,
                StartsWith("attention_out: mask shifted by one key (last visible key hidden)"));
    other = problem;
    other.scale = 1;
    EXPECT_THAT(verdict_on(other).message, StartsWith("attention_out: scale left out"));
    other = problem;
    const std::size_t width = static_cast<std::size_t>(problem.shape.head_dim);
    for (auto* tensor : {&other.key, &other.value})  // two heads of the same width
        for (std::size_t i = 0; i < tensor->size(); i += 2 * width)
            std::rotate(tensor->begin() + static_cast<std::ptrdiff_t>(i),
                        tensor->begin() + static_cast<std::ptrdiff_t>(i + width),
                        tensor->begin() + static_cast<std::ptrdiff_t>(i + 2 * width));
    EXPECT_THAT(verdict_on(other).message,
                StartsWith("attention_out: key/value head of the neighbour read"));
}

/// A softcap has its place behind the scale and before the bias.
TEST(Tiers, OtherOrdersOfTheSoftcapAreRecognised) {
    const AttentionProblem problem = problem_of(
        "attention{dtype=fp32 q=[40] kv=[24] layout=bshd kv_heads=2 group=2 dim=16 value_dim=8 scale=rsqrt softcap=3 "
        "bias=full data=normal seed=3 outputs=out}");
    const ref::AttentionShape& s = problem.shape;
    const AttentionNumbers in(problem);
    std::string message;
    const auto verdict_with = [&](const std::function<double(double dot, double bias)>& logit) {
        Outputs got = emulate(problem, {});
        std::vector<ref::KeyColumn> columns;
        for (std::int64_t row = 0; row < problem.query_rows(); ++row) {
            columns.clear();
            ASSERT_TRUE(problem.columns(row / s.query_heads, row % s.query_heads, columns)) << row;
            const std::int64_t head = row % s.query_heads / s.group();
            double sum = 0;
            std::vector<double> output(static_cast<std::size_t>(s.value_dim));
            for (const ref::KeyColumn& column : columns) {
                const std::int64_t key = column.key * s.kv_heads + head;
                double dot = 0;
                for (std::int64_t d = 0; d < s.head_dim; ++d)
                    dot += in.query.at(row * s.head_dim + d) * in.key.at(key * s.head_dim + d);
                const double weight = std::exp(logit(dot, column.bias));
                sum += weight;
                for (std::int64_t d = 0; d < s.value_dim; ++d)
                    output[d] += weight * in.value.at(key * s.value_dim + d);
            }
            for (std::int64_t d = 0; d < s.value_dim; ++d)
                got.at("out").at(row * s.value_dim + d) = static_cast<float>(output[d] / sum);
        }
        message = judge_attention(problem, {}, [&](const std::string& name) { return got.at(name); }).message;
    };
    const double cap = problem.softcap, scale = problem.scale;
    const auto capped = [&](double x) { return cap * std::tanh(x / cap); };
    verdict_with([&](double dot, double bias) { return capped(scale * dot) + bias; });
    EXPECT_EQ(message, "");
    verdict_with([&](double dot, double bias) { return capped(scale * dot + bias); });
    EXPECT_THAT(message, StartsWith("out: bias added before the softcap, which explains 100 %"));
    verdict_with([&](double dot, double bias) { return capped(capped(scale * dot)) + bias; });
    EXPECT_THAT(message, StartsWith("out: softcap applied twice, which explains 100 %"));
    verdict_with([&](double dot, double bias) { return scale * capped(dot) + bias; });
    EXPECT_THAT(message, StartsWith("out: softcap applied before the scale, which explains 100 %"));
}

/// What reads each row in tiles and gives its output.
Outputs tiled(const AttentionProblem& problem, std::int64_t tile, bool rescales_sum) {
    Outputs got = emulate(problem, {});
    const ref::AttentionShape& s = problem.shape;
    const AttentionNumbers in(problem);
    std::vector<ref::KeyColumn> columns;
    for (std::int64_t row = 0; row < problem.query_rows(); ++row) {
        columns.clear();
        if (!problem.columns(row / s.query_heads, row % s.query_heads, columns) || columns.empty()) continue;
        std::ranges::sort(columns, {}, &ref::KeyColumn::key);
        double largest = -INFINITY, sum = 0;
        std::vector<double> output(static_cast<std::size_t>(s.value_dim));
        for (std::size_t c = 0; c < columns.size();) {
            std::vector<double> logits;
            const std::size_t begin = c;
            const std::int64_t number = columns[c].key / tile;
            double most = largest;
            for (; c < columns.size() && columns[c].key / tile == number; ++c) {
                double dot = 0;
                for (std::int64_t d = 0; d < s.head_dim; ++d)
                    dot += in.query[static_cast<std::size_t>(row * s.head_dim + d)] *
                           in.key[static_cast<std::size_t>(
                               (columns[c].key * s.kv_heads + row % s.query_heads / s.group()) * s.head_dim + d)];
                logits.push_back(in.scale * dot + columns[c].bias);
                most = std::max(most, logits.back());
            }
            if (rescales_sum) sum *= std::exp(largest - most);
            largest = most;
            for (std::size_t k = 0; k < logits.size(); ++k) {
                sum += std::exp(logits[k] - largest);
                for (std::int64_t d = 0; d < s.value_dim; ++d)
                    output[static_cast<std::size_t>(d)] +=
                        std::exp(logits[k] - largest) *
                        in.value[static_cast<std::size_t>(
                            (columns[begin + k].key * s.kv_heads + row % s.query_heads / s.group()) * s.value_dim + d)];
            }
        }
        for (std::int64_t d = 0; d < s.value_dim; ++d)
            got.at("out")[static_cast<std::size_t>(row * s.value_dim + d)] = ref::decode(
                problem.result, ref::encode(problem.result, output[static_cast<std::size_t>(d)] / sum));
    }
    return got;
}

/// Arguments of the neutral operator that are taken for others, and statistics and gradients that leave something out.
TEST(Tiers, MisreadArgumentsAreNamed) {
    const std::string shape = "q=[40,33] kv=[57,48] layout=packed kv_heads=2 group=2 dim=16 value_dim=16 scale=rsqrt ";
    const auto message_of = [](const std::string& line, const std::function<void(ref::NeutralAttentionShape&)>& misread,
                               const std::function<void(const AttentionProblem&, Outputs&)>& spoil = {}) {
        const AttentionProblem problem = problem_of(line);
        ref::NeutralAttentionShape shape_as_read = extras_of<NeutralParts>(problem).shape;
        misread(shape_as_read);
        AttentionProblem other = problem;
        other.columns = ref::attention_columns(shape_as_read);
        Outputs got = emulate(other, {});
        if (spoil) spoil(problem, got);
        return judge_attention(problem, Emulation{}.rounding(), [&](const std::string& name) { return got.at(name); }).message;
    };
    const auto nothing = [](ref::NeutralAttentionShape&) {};
    for (const char* dtype : {"bf16", "fp32"}) {
        const std::string line = std::string("attention{dtype=") + dtype + " " + shape;
        EXPECT_THAT(message_of(line + "window_right=0 align=bottom_right data=normal seed=3}",
                               [](ref::NeutralAttentionShape& s) { s.bottom_right = false; }),
                    StartsWith("out: window aligned with the top left corner, not the bottom right one"));
        EXPECT_THAT(message_of(line + "window_left=3 window_right=1 data=normal seed=3}",
                               [](ref::NeutralAttentionShape& s) { std::swap(s.window_left, s.window_right); }),
                    StartsWith("out: window_left and window_right exchanged"));
        EXPECT_THAT(message_of(line + "window_left=20 window_right=9 align=bottom_right data=normal seed=3}",
                               [](ref::NeutralAttentionShape& s) { --s.window_left; }),
                    StartsWith("out: window_left one key too short"));
        EXPECT_THAT(message_of(line + "window_left=20 window_right=9 align=bottom_right data=normal seed=3}",
                               [](ref::NeutralAttentionShape& s) { ++s.window_right; }),
                    HasSubstr("window_right one key too long, which explains"));
        const auto without_maximum = [](const AttentionProblem& problem, Outputs& got) {
            const AttentionNumbers numbers(problem);
            std::vector<double> output(got.at("out").size()), row_max(got.at("lse").size()), row_sum(row_max.size());
            ref::dense_attention<double>(problem.forward(numbers), output, row_max, row_sum);
            for (std::size_t k = 0; k < row_sum.size(); ++k) got.at("lse")[k] = std::log(row_sum[k]);
        };
        EXPECT_THAT(message_of(line + "data=normal seed=3}", nothing, without_maximum),
                    StartsWith("lse: lse is the logarithm of the row sum without the row maximum"));
    }
}

/// Of a tensor whose rows take long a few rows name the defect.
TEST(Tiers, LongRowsAreNamedByTheWorst) {
    const AttentionProblem problem = problem_of(
        "attention{dtype=fp32 q=[16] kv=[8192] layout=bshd kv_heads=1 group=4 dim=64 value_dim=64 scale=rsqrt data=normal seed=3}");
    AttentionProblem other = problem;
    other.scale = 1;
    const Outputs got = emulate(other, {});
    EXPECT_THAT(judge_attention(problem, {}, [&](const std::string& name) { return got.at(name); }).message,
                StartsWith("out: scale left out, which explains 100 % of the error"));
}

/// One head that is off is no class of rounding.
TEST(Tiers, OneHeadIsNoClass) {
    const AttentionProblem problem = problem_of(kForward);
    Outputs got = emulate(problem, {});
    std::vector<double>& out = got.at("attention_out");
    const auto width = static_cast<std::size_t>(problem.shape.value_dim), heads = static_cast<std::size_t>(problem.shape.query_heads);
    for (std::size_t k = 0; k < out.size(); ++k)
        if (k / width % heads == heads - 1) out[k] *= k % 2 == 0 ? 1.05 : 0.95;
    const Verdict verdict = judge_attention(problem, {}, [&](const std::string& name) { return got.at(name); });
    EXPECT_EQ(verdict.failure, "attention_out deviates") << verdict.message;
}

/// A tile that forgets to rescale what came before is named with its size, not as a last tile that weighs too much.
TEST(Tiers, MissingRescaleIsNamed) {
    const auto message_of = [](const char* dtype, std::int64_t tile, bool rescales_sum) {
        const AttentionProblem problem = problem_of(
            std::string("attention{dtype=") + dtype +
            " q=[160] kv=[200] layout=bshd kv_heads=2 group=2 dim=16 value_dim=16 scale=rsqrt data=normal seed=5}");
        const Outputs got = tiled(problem, tile, rescales_sum);
        return judge_attention(problem, {}, [&](const std::string& name) { return got.at(name); }).message;
    };
    for (const char* dtype : {"bf16", "fp32"}) {
        EXPECT_THAT(message_of(dtype, 32, true), StartsWith("out: output of earlier tiles of 32 keys not rescaled"));
        EXPECT_THAT(message_of(dtype, 64, false),
                    StartsWith("out: output and row sum of earlier tiles of 64 keys not rescaled"));
        EXPECT_EQ(message_of(dtype, 1024, true), "");
    }
}

/// The last key of a sequence is the last visible one of few rows of a causal mask.
TEST(Tiers, LostLastKeyIsNamed) {
    for (const char* dtype : {"bf16", "fp16", "fp32"})
        for (const char* mask : {"", " window_right=0 align=bottom_right"}) {
            const AttentionProblem problem = problem_of(
                std::string("attention{dtype=") + dtype + " q=[34] kv=[70] layout=bshd kv_heads=2 group=4 dim=16 "
                "value_dim=16 scale=rsqrt" + mask + " data=normal seed=5}");
            AttentionProblem other = problem;
            other.columns = [&](std::int64_t t, std::int64_t n, std::vector<ref::KeyColumn>& columns) {
                const bool in_sequence = problem.columns(t, n, columns);
                std::erase_if(columns, [](const ref::KeyColumn& column) { return column.key == 69; });
                return in_sequence;
            };
            const Outputs got = emulate(other, {});
            const Verdict verdict =
                judge_attention(problem, {}, [&](const std::string& name) { return got.at(name); });
            EXPECT_THAT(verdict.message,
                        testing::AnyOf(StartsWith("out: last key of each sequence left out"),
                                       StartsWith("out: mask shifted by one key (last visible key hidden)")))
                << dtype << mask;
        }
}

/// What is said of a kernel that leaves out the last key of every sequence.
std::string message_on_lost_key(const std::string& line) {
    const AttentionProblem problem = problem_of(line);
    AttentionProblem other = problem;
    other.columns = [&](std::int64_t t, std::int64_t n, std::vector<ref::KeyColumn>& columns) {
        const bool in_sequence = problem.columns(t, n, columns);
        std::erase_if(columns, [&](const ref::KeyColumn& column) { return column.key + 1 == problem.kv_lengths[0]; });
        return in_sequence;
    };
    const Outputs got = emulate(other, {});
    return judge_attention(problem, {}, [&](const std::string& name) { return got.at(name); }).message;
}

/// In one element a multiple of anything is the error: no gain is named where a hypothesis says as much.
TEST(Tiers, LostLastKeyOfOneElementIsNoGain) {
    for (const char* fields : {"q=[1] kv=[65] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 window_right=0 align=bottom_right",
                               "q=[65] kv=[65] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 window_right=0"})
        for (const char* data : {"normal seed=0", "normal seed=4"}) {
            const std::string message =
                message_on_lost_key(fmt::format("attention{{dtype=bf16 {} data={} outputs=out}}", fields, data));
            if (message.empty()) continue;  // the key had little weight
            EXPECT_THAT(message, AllOf(StartsWith("out: "), HasSubstr("last key of each sequence left out"),
                                       Not(HasSubstr("gain"))))
                << fields << " " << data;
        }
}

/// Few of all rows have the error: it is less than three times as large as rounding on average.
TEST(Tiers, LostLastKeyOfFewRowsIsNamed) {
    EXPECT_THAT(message_on_lost_key("attention{dtype=bf16 q=[104] kv=[104] layout=bshd kv_heads=1 group=2 dim=80 "
                                    "value_dim=80 scale=rsqrt window_right=0 align=bottom_right data=normal "
                                    "seed=11674819 outputs=out}"),
                StartsWith("out: last key of each sequence left out, which explains"));
}

TEST(Tiers, LessPrecisionThanDeclaredIsToldWithBothClasses) {
    Emulation emulation;
    Verdict verdict = judged(kForward, {}, emulation, "fp32");
    expect_finding(verdict, "deviation", "attention_out is less precise than declared",
                   "errors look like the class 'acc=fp32 p=half ds=half', declared is 'acc=fp32 "
                   "p=fp32 ds=fp32'");
    verdict = judged(kGradient, {}, emulation, "p=half ds=fp32");
    EXPECT_EQ(verdict.failure, "dq is less precise than declared");
    emulation.sum_of_cast = true;
    verdict = judged(kForward, {}, emulation, "default");
    expect_finding(verdict, "deviation", "softmax_sum is less precise than declared",
                   "sum=rounded");
    EXPECT_FALSE(judged(kForward, {}, emulation, "sum=rounded").failed());
    // More precise than declared is no failure.
    emulation = {};
    emulation.prob_cast = emulation.score_grad_cast = false;
    EXPECT_FALSE(judged(kGradient, {}, emulation, "default").failed());
}

TEST(Tiers, ErrorsShowWhichCastsThereAre) {
    for (const bool cast : {false, true}) {
        Emulation emulation;
        emulation.prob_cast = emulation.score_grad_cast = emulation.sum_of_cast = cast;
        std::vector<std::string> words;
        for (const char* line : {kForward, kHalfForward, kGradient})
            for (const CastEvidence& evidence :
                 judged(line, {}, emulation, "p=half ds=half sum=rounded").casts)
                words.push_back(looks_like(evidence));
        for (const std::string& word : words)
            EXPECT_THAT(word,
                        testing::AnyOf(cast ? "p=half" : "p=fp32", cast ? "ds=half" : "ds=fp32",
                                       cast ? "sum=rounded" : "sum=fp32"));
        EXPECT_EQ(words.size(), 7u);
    }
}

/// The bound of the first tier grows with the class that sums up rounded P, and has to.
/// A kernel may round scale dS instead of dS: where only dS fits its type, the row is no exact one.
TEST(Tiers, ExactRowsHoldForAScaleThatIsCastWithTheGradientOfTheScores) {
    Emulation emulation;
    emulation.scale_before_cast = true;
    ref::RoundingClass declared = emulation.rounding();
    declared.own_forward = true;  // with an LSE in fp32 that is given P is no exact number
    for (const int seed : {6845540, 1, 2}) {
        const AttentionProblem problem = neutral_operator().problem(parse(
            "attention_grad{dtype=fp16 q=[63,63,63] kv=[2,2,2] layout=bshd kv_heads=1 group=1 dim=128 value_dim=128 "
            "scale=rsqrt logits=equal data=ints seed=" + std::to_string(seed) + "}", schemas()));
        const Outputs got = emulate(problem, emulation);
        for (const auto& [name, expected] :
             expected_of(problem, declared, ref::Grant::lattice))
            for (std::size_t k = 0; k < expected.size(); ++k)
                ASSERT_LE(std::fabs(got.at(name)[k] - expected.value[k]), expected.bound[k])
                    << name << ' ' << k << ", seed " << seed;
    }
}

TEST(Tiers, BoundOfRoundedRowSumsHoldsAndIsNeeded) {
    const AttentionProblem problem = problem_of(kForward);
    Emulation emulation;
    emulation.sum_of_cast = true;
    const Outputs got = emulate(problem, emulation);
    const AttentionNumbers numbers(problem);
    const auto worst = [&](const char* declared) {
        const auto expected = ref::expected_attention(
            problem.forward(numbers), {problem.dtype, ref::parse_rounding_class(declared)});
        double ratio = 0;
        for (std::size_t i = 0; i < expected.row_sum.size(); ++i)
            ratio =
                std::max(ratio, std::fabs(got.at("softmax_sum")[i] - expected.row_sum.value[i]) /
                                    expected.row_sum.bound[i]);
        return ratio;
    };
    EXPECT_GT(worst("default"), 1);
    EXPECT_LE(worst("sum=rounded"), 1);
}

}  // namespace
}  // namespace attncheck::tiers
