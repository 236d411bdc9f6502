// Terms next to a much larger one: correct sums lose them, correct casts round them to nothing, all of
// them alike. No tier may take that for a defect, and none may become blind where it does not happen. Likewise gradients that are
// nothing but rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/laws/attention_operator.h"
#include "properties/operators/catalogue.h"
#include "rounding_emulator.h"

namespace attncheck::tiers {
namespace {

using namespace properties;
using testing::HasSubstr;

Verdict judged(const std::string& line, const Emulation& emulation, const Planted& planted = {}) {
    const Spec spec = parse(line, schemas());
    const AttentionProblem problem = find_operator(spec.schema->op)->attention()->problem(spec);
    const Outputs got = emulate(problem, emulation, planted);
    return judge_attention(problem, emulation.rounding(),
                           [&](const std::string& name) { return got.at(name); });
}

/// Row sum and LSE: 4211 terms of 1e-9 behind a sink of 1.
TEST(LargeSinks, TermsThatASerialSumLosesAreNotAccused) {
    Emulation serial;
    serial.prob_cast = false;
    for (const Sums sums : {Sums::fp32, Sums::truncating}) {
        serial.sums = sums;
        for (const char* line :
             {"attention{dtype=fp16 q=[34] kv=[4211] layout=bhsd kv_heads=2 group=2 dim=8 "
              "value_dim=5 scale=eighth softcap=30 bias=one_head bias_type=input sink=large "
              "data=normal seed=9471658}",
              // A logit of a single channel is as large as a sink.
              "attention{dtype=bf16 q=[136] kv=[13873] layout=bhsd kv_heads=1 group=1 dim=1 "
              "value_dim=1 scale=negative kv_length=some data=normal seed=2642187}"}) {
            const Verdict verdict = judged(line, serial);
            EXPECT_FALSE(verdict.failed()) << verdict.message;
        }
    }
}

/// Output and gradients: P and dS below half the least number of fp16.
TEST(LargeSinks, CastsToNothingAreNotAccused) {
    for (const bool first : {false, true})
        for (const char* line :
             {"attention{dtype=fp16 q=[200] kv=[120] layout=bshd kv_heads=1 group=2 dim=16 "
              "value_dim=16 scale=tenth sink=large data=normal seed=5}",
              "attention{dtype=fp16 q=[200] kv=[120] layout=bshd kv_heads=1 group=2 dim=16 "
              "value_dim=16 scale=rsqrt sink=large data=normal seed=9}",
              "attention_decode{dtype=fp16 q=[4,4,4,4,4,4,4,4,4,4] "
              "kv=[90,91,92,93,94,95,90,91,92,93] kv_heads=2 group=4 dim=16 value_dim=16 page=16 "
              "scale=tenth sink=large data=normal seed=2}",
              "attention_grad{dtype=fp16 q=[150] kv=[120] layout=bshd kv_heads=1 group=2 dim=16 "
              "value_dim=16 scale=tenth sink=large data=normal seed=4}",
              "attention_grad{dtype=fp16 q=[150] kv=[120] layout=bshd kv_heads=2 group=1 dim=16 "
              "value_dim=16 scale=rsqrt softcap=5 sink=large data=normal seed=6}"}) {
            Emulation emulation;
            emulation.normalised_first = first;
            const Verdict verdict = judged(line, emulation);
            EXPECT_FALSE(verdict.failed()) << verdict.message;
        }
}

/// And so of P in all rows at once: the error of a channel is one number, however many rows it is seen in.
TEST(LargeSinks, CastsThatAreNothingInAllRowsAreNotAccused) {
    for (const bool first : {false, true}) {
        Emulation emulation;
        emulation.normalised_first = first;
        const Verdict verdict = judged(
            "attention{dtype=fp16 q=[56] kv=[56] layout=packed kv_heads=1 group=1 dim=1 value_dim=8 scale=tenth "
            "window_left=444 window_right=12800 align=bottom_right sink=large data=normal seed=9031318}", emulation);
        EXPECT_FALSE(verdict.failed()) << verdict.message;
    }
}

/// A sink of 20.7 in bf16 is off by up to 0.06, and P of all keys by six hundredths with it.
TEST(LargeSinks, ThatACompositionStoresAreNotAccused) {
    Emulation stored;
    stored.steps_cast = stored.sink_cast = true;
    for (const char* line :
         {"attention{dtype=bf16 q=[3] kv=[5] layout=bshd kv_heads=1 group=1 dim=4 value_dim=4 sink=large data=normal seed=0}",
          "attention_grad{dtype=bf16 q=[1] kv=[1] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 sink=large lse=absent "
          "data=normal seed=0}",
          "attention_grad{dtype=bf16 q=[150] kv=[120] layout=bshd kv_heads=2 group=2 dim=16 value_dim=16 sink=large "
          "lse=absent data=normal seed=1}",
          "attention_grad{dtype=fp16 q=[150] kv=[40] layout=bshd kv_heads=1 group=1 dim=16 value_dim=16 sink=normal "
          "lse=absent data=normal seed=2}",
          "attention_grad{dtype=bf16 q=[2930] kv=[6] layout=bshd kv_heads=1 group=2 dim=8 value_dim=8 scale=eighth softcap=5 "
          "bias=one_head sink=large lse=absent data=normal seed=13674456}",
          "attention_grad{dtype=bf16 q=[60] kv=[40] layout=bshd kv_heads=1 group=2 dim=16 value_dim=16 sink=large "
          "data=normal seed=3}"}) {
        stored.own_forward = std::string_view(line).find("lse=absent") != std::string_view::npos;
        const Verdict verdict = judged(line, stored);
        EXPECT_FALSE(verdict.failed()) << verdict.message;
    }
}

/// In rows of one key dP and delta cancel: dS is the rounding of the given output. A kernel with its own output has another dS.
TEST(OneKeyPerRow, OwnForwardsAreNotAccused) {
    for (const bool steps : {false, true})
        for (const Sums sums : {Sums::fp32, Sums::truncating}) {
            Emulation emulation;
            emulation.own_forward = true;
            emulation.steps_cast = emulation.group_cast = steps;
            emulation.sums = sums;
            const Verdict verdict = judged(
                "flash_attention_score_grad{dtype=fp16 q=[43,43,43] kv=[160,160,160] layout=TND kv_heads=2 group=2 dim=17 "
                "value_dim=8 mask=uint8 sparse=4 pre=2 next=2 tokens=pre_negative drop=keep_all keep=nine_tenths scale=eighth "
                "data=normal seed=12868910}",
                emulation);
            EXPECT_FALSE(verdict.failed()) << verdict.message;
        }
}

/// In rows of few keys the largest P is nearly one. Its product with 1 / 0.9 is cast to the same number in all rows, which
/// makes every output smaller, and delta with it.
TEST(KeptWeights, OwnForwardsAreNotAccused) {
    for (const bool first : {false, true}) {
        Emulation emulation;
        emulation.own_forward = true;
        emulation.normalised_first = first;
        const Verdict verdict = judged(
            "flash_attention_score_grad{dtype=bf16 q=[1632] kv=[6] layout=TND kv_heads=1 group=1 dim=8 value_dim=8 "
            "drop=random keep=nine_tenths scale=rsqrt data=normal seed=9972735}", emulation);
        EXPECT_FALSE(verdict.failed()) << verdict.message;
    }
}

/// Truncating sums make every logit smaller, by up to D u: a scale inside the softmax, and a gain of
/// gradients whose LSE is given.
TEST(LargeLogits, ThatTruncationMakesSmallerAreNotAccused) {
    Emulation truncating;
    truncating.sums = Sums::truncating, truncating.tile = 128, truncating.base_two = true;
    truncating.sum_of_cast = true;
    for (const char* line :
         {"attention_grad{dtype=fp32 q=[19] kv=[300] layout=bhsd kv_heads=2 group=3 dim=512 "
          "value_dim=1 scale=negative window_right=0 align=bottom_right data=normal seed=9713128}",
          "attention_grad{dtype=fp32 q=[19] kv=[1264] layout=bhsd kv_heads=2 group=3 dim=512 "
          "value_dim=1 scale=negative window_right=0 align=bottom_right kv_length=some sink=low "
          "data=normal seed=9713128}"}) {
        const Verdict verdict = judged(line, truncating);
        EXPECT_FALSE(verdict.failed()) << verdict.message;
    }
}

/// bf16 has no such numbers, and fp16 none where the sink is not large.
TEST(LargeSinks, GainsAreNamedAsEverywhere) {
    for (const char* line :
         {"attention{dtype=bf16 q=[200] kv=[120] layout=bshd kv_heads=1 group=2 dim=16 "
          "value_dim=16 scale=rsqrt sink=large data=normal seed=5}",
          "attention{dtype=fp16 q=[200] kv=[120] layout=bshd kv_heads=1 group=2 dim=16 "
          "value_dim=16 scale=rsqrt sink=normal data=normal seed=5}"}) {
        const Verdict verdict = judged(line, {}, {.output = 1.003});
        EXPECT_TRUE(verdict.failed());
        EXPECT_THAT(verdict.message, HasSubstr("out: gain +0."));
    }
    const Verdict verdict =
        judged("attention_grad{dtype=bf16 q=[150] kv=[120] layout=bshd kv_heads=1 group=2 dim=16 "
               "value_dim=16 scale=rsqrt sink=large data=normal seed=4}",
               {}, {.key_grad = 0.97});
    EXPECT_THAT(verdict.message, HasSubstr("dk: gain -"));
}

}  // namespace
}  // namespace attncheck::tiers
