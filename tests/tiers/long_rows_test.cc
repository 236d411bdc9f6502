// The tiers on long sums: chosen rows and keys have the noise of the whole problem, what a run says
// that it sees it sees, and the generators of `deviation` draw long rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "properties/case/attention_data.h"
#include "properties/judge/attention_tiers.h"
#include "properties/laws/attention_operator.h"
#include "properties/operators/attention/case.h"
#include "properties/operators/catalogue.h"
#include "properties/operators/flash_attention/problem.h"
#include "properties/operators/nsa_compress/case.h"
#include "rounding_emulator.h"
#include "validity.h"

namespace attncheck::tiers {
namespace {

using namespace properties;
using testing::HasSubstr;
using Int = std::int64_t;

AttentionProblem problem_of(const std::string& op) {
    AttentionProblem problem = flash_attention_operator().problem(
        parse(op + "{dtype=bf16 layout=TND q=[75,3] kv=[90,40] kv_heads=2 group=2 dim=24 "
                   "value_dim=16 mask=bool sparse=3 scale=rsqrt data=normal seed=3}",
              schemas()));
    return problem;
}

/// Row `from` of `whole` is row `to` of `part`.
void expect_same_row(const ref::RoundingNoise& whole, const ref::RoundingNoise& part, Int from,
                     Int to, Int width) {
    const auto same = [&](const std::vector<double>& all, const std::vector<double>& some) {
        for (Int c = 0; c < width; ++c) {
            const double want = all[static_cast<std::size_t>(from * width + c)],
                         got = some[static_cast<std::size_t>(to * width + c)];
            EXPECT_NEAR(got, want, 1e-11 * std::fabs(want) + 1e-30) << from << " " << c;
        }
    };
    same(whole.value, part.value);
    same(whole.variance, part.variance);
    same(whole.cast, part.cast);
    ASSERT_EQ(whole.probes.size(), part.probes.size());
    for (std::size_t k = 0; k < whole.probes.size(); ++k)
        for (Int c = 0; c < width; ++c)
            EXPECT_NEAR(part.probes[k].direction[static_cast<std::size_t>(to * width + c)],
                        whole.probes[k].direction[static_cast<std::size_t>(from * width + c)],
                        1e-12);
}

TEST(LongRows, ChosenRowsAndKeysHaveTheNoiseOfAll) {
    for (const char* op : {"flash_attention_score", "flash_attention_score_grad"}) {
        const AttentionProblem problem = problem_of(op);
        const ref::RoundingClass rounding;
        const ChosenRows chosen{{0, 3, 17, 18, 150, 299, 311}, {1, 2, 44, 178, 179, 200, 259}, {}};
        const auto whole = tier_tensors(problem, rounding),
                   some = tier_tensors_of(problem, chosen, rounding);
        ASSERT_EQ(whole.size(), some.size());
        for (std::size_t k = 0; k < whole.size(); ++k) {
            const TierTensor &all = whole[k], &part = some[k];
            EXPECT_EQ(all.name, part.name);
            const auto& numbers =
                all.name == "dk" || all.name == "dv" ? chosen.keys : chosen.rows;
            for (std::size_t i = 0; i < numbers.size(); ++i) {
                const Int to = static_cast<Int>(i);
                EXPECT_EQ(all.head_of(numbers[i]), part.head_of(to));
                EXPECT_EQ(all.place_of(numbers[i]).position, part.place_of(to).position);
                EXPECT_EQ(all.place_of(numbers[i]).sequence, part.place_of(to).sequence);
                expect_same_row(all.noise, part.noise, numbers[i], to, all.width);
            }
        }
    }
}

/// Outputs with the errors that the model predicts, and a gain.
std::vector<TierTensor> with_gain(std::vector<TierTensor> tensors, double gain,
                                  std::uint64_t seed) {
    Random random(seed);
    for (TierTensor& tensor : tensors) {
        tensor.got = tensor.noise.value;
        for (std::size_t i = 0; i < tensor.got.size(); ++i) {
            double unit = 0;  // variance 1
            for (int part = 0; part < 12; ++part)
                unit += static_cast<double>(random.between(0, 1 << 20)) * 0x1p-20;
            tensor.got[i] = tensor.got[i] * (1 + gain) +
                            (unit - 6) * std::sqrt(tensor.noise.variance[i]) * 0.99;
        }
    }
    return tensors;
}

TEST(LongRows, AGainThatIsSaidToBeSeenIsSeen) {
    const AttentionProblem problem = problem_of("flash_attention_score");
    auto tensors = tier_tensors(problem, {});
    tensors.resize(1);
    const std::string words =
        describe_reach(with_gain(tensors, 0, 1), [](const TierTensor&) { return Int{90}; });
    ASSERT_THAT(words, HasSubstr("attention_out: a gain of "));
    EXPECT_THAT(words, HasSubstr("on sums of up to 90 terms is seen with probability 0.998"));
    const double gain = std::stod(words.substr(words.find("gain of ") + 8)) / 100;
    EXPECT_GT(gain, 0);
    EXPECT_LT(gain, 0.002);
    int seen = 0;
    for (std::uint64_t seed = 0; seed < 100; ++seed)
        seen += judge_tiers(with_gain(tensors, 1.02 * gain, seed), {}, {}).failure ==
                "attention_out: gain";
    EXPECT_GE(seen, 98);
    EXPECT_FALSE(judge_tiers(with_gain(tensors, 0, 7), {}, {}).failed());
}

// dX of a token in one window is w dy: errors that repeat with the significands of dy, and a mean
// of them that 448 rows showed as a gain of -0.02 %.
TEST(LongRows, SingleProductsAreNotAccused) {
    const CompressProblem problem(
        parse("nsa_compress_grad{dtype=bf16 seq=[3598] heads=2 dim=144 block=80 stride=48 "
              "data=normal seed=6006506}",
              schemas()));
    const Outputs got = emulate(problem, Emulation{});
    const Verdict verdict = judge_compress(
        problem, {}, [&](const std::string& name) { return got.at(name); });
    EXPECT_FALSE(verdict.failed()) << verdict.message;
}

// delta=half: the rounding of delta is one for all keys of its row, of which there are few here and many keys.
TEST(LongRows, StoredDeltasAreNotAccused) {
    const Spec spec = parse(
        "nsa_selected_attention_grad{dtype=fp16 q=[45] kv=[1024] kv_heads=1 group=3 dim=192 value_dim=192 block=32 "
        "count=32 mask=bool scale=rsqrt topk=shared beyond_q=1 data=normal seed=10518408}",
        schemas());
    const AttentionProblem problem =
        find_operator("nsa_selected_attention_grad")->attention()->problem(spec);
    Emulation emulation;
    emulation.sums = Sums::pairwise;
    emulation.tile = 32;
    emulation.prob_cast = emulation.score_grad_cast = false;
    emulation.delta_cast = true;
    const Outputs got = emulate(problem, emulation);
    const auto verdict_under = [&](const ref::RoundingClass& rounding) {
        return judge_attention(problem, rounding,
                               [&](const std::string& name) { return got.at(name); });
    };
    const Verdict declared = verdict_under(emulation.rounding());
    EXPECT_FALSE(declared.failed()) << declared.message;
    ref::RoundingClass undeclared = emulation.rounding();
    undeclared.delta_rounded = false;
    EXPECT_TRUE(verdict_under(undeclared).failed());
}

// forward=own: all P of a row share the error of its row sum, and all dS that of its delta; there are few rows here and
// many keys.
TEST(LongRows, OwnForwardsOfFewRowsAreNotAccused) {
    const auto judged = [](const char* line, const Emulation& emulation, const ref::RoundingClass& declared) {
        const Spec spec = parse(line, schemas());
        const AttentionProblem problem = find_operator(spec.schema->op)->attention()->problem(spec);
        const Outputs got = emulate(problem, emulation);
        return judge_attention(problem, declared, [&](const std::string& name) { return got.at(name); });
    };
    Emulation emulation;
    emulation.own_forward = true;
    emulation.score_grad_cast = false;
    emulation.sums = Sums::pairwise;
    emulation.tile = 16;
    const Verdict delta = judged(
        "flash_attention_score_grad{dtype=fp16 q=[6] kv=[382] layout=BNSD kv_heads=1 group=2 dim=8 value_dim=8 sparse=4 "
        "scale=eighth data=normal seed=3297270}",
        emulation, emulation.rounding());
    EXPECT_FALSE(delta.failed()) << delta.message;
    emulation.sums = Sums::truncating;
    emulation.tile = 64;
    emulation.prob_cast = false;
    const Verdict row_sum = judged(
        "attention_grad{dtype=fp32 q=[1] kv=[1365] layout=sbhd kv_heads=2 group=1 dim=8 value_dim=8 scale=tenth "
        "data=normal seed=11515117}",
        emulation, emulation.rounding());
    EXPECT_FALSE(row_sum.failed()) << row_sum.message;
}

/// Emulations with the roundings of a word, declared, on one case.
void expect_no_alarm(const std::string& word, const char* line, std::uint64_t emulations = 12) {
    Validity validity(word.empty() ? WordOfClass{} : WordOfClass{word});
    for (std::uint64_t k = 0; k < emulations; ++k) validity.run_line(parse(line, schemas()), 1, k);
    std::ostringstream alarms;
    validity.print_alarms(alarms);
    EXPECT_EQ(validity.alarms(), 0) << alarms.str();
}

// scale=half: Q as it is scaled errs once for all keys of its row, of which there are few here and many keys.
TEST(LongRows, FiltersDoNotAccuseRoundedScales) {
    expect_no_alarm("scale=half",
                    "attention_grad{dtype=fp16 q=[2] kv=[1275] layout=packed kv_heads=2 group=2 dim=1 value_dim=5 "
                    "scale=eighth window_right=0 align=bottom_right data=normal seed=5145962}");
    expect_no_alarm("scale=half",
                    "flash_attention_score_grad{dtype=fp16 q=[9] kv=[1365] layout=BSND kv_heads=1 group=3 dim=1 "
                    "value_dim=1 mask=bool sparse=6 prefix=random drop=keep_all keep=tenth scale=tenth data=normal "
                    "seed=6565327}");
    // And K as it is scaled once for all queries.
    expect_no_alarm("scale=half",
                    "attention_grad{dtype=bf16 q=[301] kv=[9] layout=bhsd kv_heads=2 group=2 dim=1 value_dim=1 scale=tenth "
                    "bias=per_query sink=mixed data=normal seed=166289}");
    expect_no_alarm("scale=half",
                    "attention_grad{dtype=fp16 q=[1365] kv=[7] layout=sbhd kv_heads=2 group=2 dim=1 value_dim=1 "
                    "scale=eighth bias=per_key sink=normal data=normal seed=3976821}");
}

// Without a word: 1 / keep_prob is rounded once, and where dP and delta of one key cancel it is what is left of dP; the
// LSE of all rows is a sink of 20, and so is its product with log2 e.
TEST(LongRows, RoundingsThatAllRowsShareAreNotAccused) {
    expect_no_alarm("",
                    "flash_attention_score_grad{dtype=fp16 q=[1*1025] kv=[1*1025] layout=SBH kv_heads=1 group=16 dim=16 "
                    "value_dim=16 pse=one_batch drop=keep_all keep=tenth scale=rsqrt data=normal seed=15645580}",
                    3);
    expect_no_alarm("",
                    "attention_grad{dtype=fp32 q=[2930] kv=[6] layout=bhsd kv_heads=1 group=1 dim=8 value_dim=8 "
                    "scale=rsqrt bias=full bias_values=hides mask=one_head kv_length=all sink=large data=normal "
                    "seed=14087756}",
                    24);
    // One query: dV are products of one number, stored.
    expect_no_alarm("", "attention_grad{dtype=bf16 q=[1] kv=[1257] layout=bshd kv_heads=1 group=1 dim=16 value_dim=1 scale=rsqrt "
                        "sink=normal data=normal seed=10793647}");
    // Two windows whose weights have one significand, 255/256: a sum of few numbers loses the same to it in a whole lane.
    expect_no_alarm("", "nsa_compress_grad{dtype=bf16 seq=[32758] heads=2 dim=16 block=32 stride=16 data=normal seed=11752737}", 2);
}

// One query sees a block that no other one sees, and one of its channels is subnormal as it is scaled: it errs once for a
// channel of dK by more than u.
TEST(LongRows, ScaledQueriesNearZeroAreNotAccused) {
    expect_no_alarm("scale=half",
                    "nsa_selected_attention_grad{dtype=fp16 q=[16] kv=[48] kv_heads=1 group=1 dim=128 value_dim=128 block=16 "
                    "count=1 mask=bool scale=rsqrt topk=shuffled data=normal seed=1673366}",
                    300);
}

// A query of one small channel: all P lie within a few steps of bf16 next to 1, and the row sum of the rounded ones errs
// by their mean error.
TEST(LongRows, RowSumsOfCloseProbabilitiesAreNotAccused) {
    const Spec spec = parse("attention{dtype=bf16 q=[9] kv=[1067] layout=bshd kv_heads=1 group=4 dim=1 value_dim=1 "
                            "scale=tenth align=bottom_right kv_length=some data=normal seed=15626514}",
                            schemas());
    const AttentionProblem problem = find_operator("attention")->attention()->problem(spec);
    Emulation emulation;
    emulation.sum_of_cast = true;
    const Outputs got = emulate(problem, emulation);
    const Verdict verdict = judge_attention(problem, emulation.rounding(), [&](const std::string& name) { return got.at(name); });
    EXPECT_FALSE(verdict.failed()) << verdict.message;
}

// An alarm of an hour's run is known when it is found, not at the end.
TEST(Validity, AlarmsAreWrittenWhenTheyAreFound) {
    Validity validity({"scores=half", false});
    std::ostringstream log;
    validity.log_alarms(log);
    const Spec spec = parse("attention{dtype=bf16 q=[96] kv=[80] layout=bhsd kv_heads=2 group=2 dim=16 value_dim=16 "
                            "scale=rsqrt data=normal seed=3}",
                            schemas());
    validity.run_line(spec, 1, 0);
    ASSERT_EQ(validity.alarms(), 1);
    EXPECT_NE(log.str().find("ALARM attention: "), std::string::npos);
    EXPECT_NE(log.str().find(print(spec)), std::string::npos) << log.str();
}

// The sums over few queries next to a large sink are nearly the same for all keys, and so are their rounding errors. The
// first two cases show it in the result, the others in the sums of single heads that group=half stores.
TEST(LongRows, SumsThatLieCloseTogetherAreNotAccused) {
    expect_no_alarm("", "attention_grad{dtype=bf16 q=[12] kv=[2000] layout=bhsd kv_heads=2 group=2 dim=1 value_dim=8 "
                        "scale=tenth sink=large data=normal seed=3380388}");
    expect_no_alarm("", "attention_grad{dtype=fp16 q=[3] kv=[2000] layout=bhsd kv_heads=1 group=4 dim=1 value_dim=8 "
                        "scale=negative sink=large data=normal seed=441892}");
    expect_no_alarm("group=half",
                    "attention_grad{dtype=bf16 q=[7] kv=[1365] layout=bhsd kv_heads=1 group=4 dim=1 value_dim=1 "
                    "scale=eighth align=bottom_right kv_length=some sink=large data=normal seed=952638}");
    expect_no_alarm("group=half",
                    "attention_grad{dtype=bf16 q=[30] kv=[2000] layout=bhsd kv_heads=2 group=3 dim=1 value_dim=2 "
                    "scale=eighth sink=large data=normal seed=2069035}");
    expect_no_alarm("group=half",
                    "attention_grad{dtype=bf16 q=[2] kv=[1365] layout=bhsd kv_heads=2 group=3 dim=4 value_dim=1 "
                    "scale=tenth sink=large data=normal seed=197776}");
}

// dbias of one number for each query sums dS over all keys, which is 0 but for the rounding of the given output. A kernel with
// an output of its own has another rounding there.
/// LSE log2 e of 138 rows is rounded once for all of 3925 keys, and the sum of dO nearly vanishes.
TEST(LongRows, StatisticsThatKeysShareAreNotAccused) {
    expect_no_alarm("", "attention_grad{dtype=fp32 q=[46] kv=[3925] layout=bshd kv_heads=1 group=3 dim=1 value_dim=1 "
                        "scale=tenth align=bottom_right data=normal seed=3226252}");
}

/// Casts of P whose logits spread over few steps are a sawtooth over those: next to a large sink, with K as V, they go with the
/// values. In fp16 P is next to half its least number, in bf16 next to the middle of two numbers.
TEST(LongRows, CastsThatGoWithTheValuesAreNotAccused) {
    expect_no_alarm("", "attention_decode{dtype=fp16 q=[1*15] kv=[95,90,93,95,95,91,93,90,95,92,90,95,94,91,91] kv_heads=2 "
                        "group=8 dim=1 value_dim=1 page=1 values=in_keys pages=shuffled shared=prefix spare=3 tail=foreign "
                        "sink=large scale=negative data=normal seed=4260267}");
    expect_no_alarm("", "attention_decode{dtype=bf16 q=[1*58] kv=[202,199,202,201,200,199,203,199,198,203,200,198,200,200,200,"
                        "202,198,198,202,200,198,202,201,203,199,198,203,199,201,202,202,201,200,198,198,199,200,198,200,203,"
                        "198,198,202,201,200,198,200,201,199,201,201,199,201,202,198,199,203,203] kv_heads=3 group=1 dim=1 "
                        "value_dim=1 page=16 cache=heads values=in_keys shared=prefix spare=3 tail=mixed sink=large "
                        "scale=tenth data=normal seed=6929817}");
}

TEST(LongRows, BiasesOfQueriesAreNotAccusedUnderOwnForwards) {
    expect_no_alarm("scale=half forward=own",
                    "attention_grad{dtype=fp16 q=[1500] kv=[4] layout=bhsd kv_heads=2 group=4 dim=1 value_dim=1 "
                    "bias=per_query scale=rsqrt data=normal seed=7344009}");
}

// The row sum of an own forward has the errors of all logits of its row, also for a key whose own logit is 0.
TEST(LongRows, OwnRowSumsOfRoundedLogitsAreNotAccused) {
    const Spec spec = parse("attention_grad{dtype=fp16 q=[9] kv=[42] layout=sbhd kv_heads=2 group=2 dim=1 value_dim=16 "
                            "scale=rsqrt window_right=0 align=bottom_right data=normal seed=4666899}",
                            schemas());
    const AttentionProblem problem = find_operator("attention_grad")->attention()->problem(spec);
    Emulation emulation;
    emulation.own_forward = emulation.base_two = emulation.scale_has_log = true;
    emulation.prob_cast = emulation.score_grad_cast = false;
    emulation.scaling = ref::Scaling::half;
    for (const bool key : {false, true}) {
        emulation.scale_key = key;
        const Outputs got = emulate(problem, emulation);
        const Verdict verdict =
            judge_attention(problem, emulation.rounding(), [&](const std::string& name) { return got.at(name); });
        EXPECT_FALSE(verdict.failed()) << verdict.message;
    }
}

// tanh x of a small x is stored as x is: all logits have that error in common.
TEST(LongRows, StoredStepsOfASoftcapAreNotAccused) {
    expect_no_alarm("steps=half forward=own",
                    "attention_grad{dtype=fp16 q=[12] kv=[4096] layout=bhsd kv_heads=2 group=1 dim=8 value_dim=8 scale=rsqrt "
                    "softcap=100 data=normal seed=14892038}", 3);
    expect_no_alarm("steps=half", "attention{dtype=fp16 q=[40] kv=[2048] layout=bhsd kv_heads=1 group=1 dim=8 value_dim=8 "
                                  "scale=rsqrt softcap=100 data=normal seed=1}", 3);
}

// One channel of V is one number for all rows: the products with it that are stored err alike.
TEST(LongRows, StoredProductsOfOneChannelAreNotAccused) {
    expect_no_alarm("steps=half",
                    "attention_grad{dtype=bf16 q=[847,847,847,0,0] kv=[0,6,6,6,6] layout=packed kv_heads=1 group=2 dim=4 "
                    "value_dim=1 scale=tenth window_right=0 data=normal seed=12070093}", 4);
}

// The same errors in the sums of the filters, which add up over the keys of a row: those of delta, and of a row sum that
// loses alike from every key next to a large sink. The last one is a channel of dV, whose keys share row sums.
TEST(LongRows, FiltersDoNotAccuseOwnForwards) {
    const auto judged = [](const char* line, const Emulation& emulation) {
        const Spec spec = parse(line, schemas());
        const AttentionProblem problem = find_operator(spec.schema->op)->attention()->problem(spec);
        const Outputs got = emulate(problem, emulation);
        return judge_attention(problem, emulation.rounding(), [&](const std::string& name) { return got.at(name); });
    };
    Emulation emulation;
    emulation.own_forward = true;
    emulation.sums = Sums::pairwise;
    emulation.tile = 64;
    emulation.base_two = true;
    const Verdict delta = judged(
        "attention_grad{dtype=fp16 q=[1] kv=[1365] layout=bshd kv_heads=2 group=3 dim=8 value_dim=8 scale=rsqrt "
        "window_right=0 align=bottom_right data=normal seed=11781094}",
        emulation);
    EXPECT_FALSE(delta.failed()) << delta.message;
    emulation.tile = 32;
    emulation.score_grad_cast = false;
    emulation.normalised_first = true;
    const Verdict other_row = judged(
        "nsa_selected_attention_grad{dtype=fp16 q=[15] kv=[2432] kv_heads=1 group=4 dim=192 value_dim=192 block=128 "
        "count=19 scale=negative topk=shared data=normal seed=7752872}",
        emulation);
    EXPECT_FALSE(other_row.failed()) << other_row.message;
    emulation = {};
    emulation.own_forward = true;
    emulation.sums = Sums::fused;
    emulation.tile = 128;
    emulation.normalised_first = true;
    emulation.prob_cast = false;
    const Verdict row_sum = judged(
        "attention_grad{dtype=fp32 q=[6] kv=[170] layout=bshd kv_heads=2 group=3 dim=8 value_dim=8 scale=rsqrt softcap=1 "
        "bias=per_key bias_type=input sink=large data=normal seed=13416154}",
        emulation);
    EXPECT_FALSE(row_sum.failed()) << row_sum.message;
    emulation = {};
    emulation.own_forward = true;
    emulation.sums = Sums::truncating;
    emulation.tile = 16;
    emulation.normalised_first = emulation.scale_before_cast = true;
    const Verdict values = judged(
        "attention_grad{dtype=fp32 q=[9] kv=[517] layout=bshd kv_heads=1 group=4 dim=16 value_dim=16 scale=tenth "
        "softcap=50 window_right=0 align=bottom_right data=normal seed=2008067}",
        emulation);
    EXPECT_FALSE(values.failed()) << values.message;
}

// Under exp=N even exp(0) is wrong, and an online softmax multiplies by it at every tile. The error of the row sum grows with
// the 210 tiles, and every P that the gradient recomputes has it.
TEST(LongRows, OwnForwardsWithCoarseExponentialsAreNotAccused) {
    expect_no_alarm("exp=1600 forward=own",
                    "flash_attention_score_grad{dtype=fp32 q=[3] kv=[3367] layout=SBH kv_heads=2 group=1 dim=8 value_dim=8 "
                    "mask=bool mask_form=head sparse=5 prefix=absent pse=one_row pse_type=0 scale=rsqrt data=normal "
                    "seed=15914415}");
}

/// Keys of the longest row, queries of the longest sum, or tokens.
Int longest_sum(const Spec& spec) {
    if (spec.schema->number("count") >= 0 && spec.schema->number("topk") >= 0) {
        const Int row = spec.number("block") * spec.number("count");
        return spec.schema->number("stats") >= 0
                   ? std::max(row, *std::ranges::max_element(spec.lists[0]))
                   : row;
    }
    Int longest = 0;
    for (const auto& list : spec.lists)
        for (const Int length : list) longest = std::max(longest, length);
    return longest;
}

TEST(LongRows, AreOneCaseOfDeviationInTen) {
    for (const auto& [name, least] : {std::pair{"flash_attention_score", 512},
                                      {"flash_attention_score_grad", 512},
                                      {"nsa_selected_attention", 512},
                                      {"nsa_selected_attention_grad", 512},
                                      {"nsa_compress_attention", 512},
                                      {"nsa_compress", 1500},
                                      {"nsa_compress_grad", 1500}}) {
        const Operator& op = *find_operator(name);
        const Property& property = *op.property("deviation");
        Random random(1);
        int cases = 0, longer = 0;
        while (cases < 600) {
            Spec spec = op.sample(random, 50);
            property.adapt(spec, random);
            if (op.illegal(spec) || !property.domain(spec)) continue;
            ++cases;
            longer += longest_sum(spec) >= least;
        }
        EXPECT_GE(longer, 48) << name;  // 60 are expected, three deviations below
    }
}

// dQ over many keys; dK, dV, and with one row of biases dbias and dsink, over many queries: each in some of the thirty
// cases that a short run has.
TEST(LongRows, GradientsHaveLongSumsInEveryOutput) {
    constexpr Int kLong = 1024;
    const Operator& op = *find_operator("attention_grad");
    const Property& property = *op.property("deviation");
    Random random(1);
    int cases = 0, of_keys = 0, of_queries = 0, of_biases = 0;
    while (cases < 6000) {
        Spec spec = op.sample(random, 50);
        property.adapt(spec, random);
        if (op.illegal(spec) || !property.domain(spec)) continue;
        ++cases;
        const bool half = spec.number("dtype") != dtype_field(ref::Dtype::fp32),
                   one_row = spec.number("bias") >= static_cast<Int>(PairForm::per_key) && spec.number("dbias") == 0;
        of_keys += half && spec.lists[1][0] > kLong;
        of_queries += half && spec.lists[0][0] > kLong;
        of_biases += half && spec.lists[0][0] > kLong && one_row && spec.number("dsink") == 0;
    }
    EXPECT_GE(of_keys, 600);
    EXPECT_GE(of_queries, 600);
    EXPECT_GE(of_biases, 360);
}

// A window whose diagonal leaves the corner behind needs many queries and many keys at once.
TEST(LongRows, AttentionHasLongBands) {
    const Operator& op = *find_operator("attention");
    Random random(1);
    int bands = 0;
    for (int k = 0; k < 2000; ++k) {
        const Spec spec = op.sample(random, 50);
        bands += spec.number("window_left") >= 0 && spec.lists[0][0] > 512 && spec.lists[1][0] > 512;
    }
    EXPECT_GE(bands, 15);
}

}  // namespace
}  // namespace attncheck::tiers
