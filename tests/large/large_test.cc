// verify --large and the property `sampled` as people call them: what they print, what they refuse,
// and the defects of full size that they find.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/properties/cli/command_fixture.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

/// Positions beyond 16 bits and pair numbers beyond 32, in a narrow band.
constexpr const char* kLongBand =
    "'flash_attention_score{dtype=bf16 layout=TND q=[46500] kv=[46500] kv_heads=1 group=1 dim=16 "
    "value_dim=16 mask=bool sparse=4 pre=100 next=3 scale=rsqrt data=normal seed=5}'";

std::string with_tail(const char* op) {
    return std::string("'") + op +
           "{dtype=bf16 layout=TND q=[2200] kv=[2200] kv_heads=2 group=2 dim=32 value_dim=32 "
           "mask=bool sparse=2 scale=rsqrt data=normal seed=5}'";
}

Ran sampled(const std::string& defect, const std::string& line,
            const char* library = DEFECTS_PATH) {
    return run_line("ATTNCHECK_SCALE_DEFECT=" + defect + " " + quoted(COMMAND_PATH) +
                    " reproduce " + line + " --property sampled --sandbox off --candidate " +
                    quoted(library) + " 2>&1");  // it calls the built-in library
}

using LargeTest = CommandTest;

// All operators that have cases of full size, at a moderate one.
TEST_F(LargeTest, BuiltInImplementationHolds) {
    const Ran ran = attncheck("verify --large 2048 --seed 1 --json " + file("out.json"));
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed,
                AllOf(HasSubstr("every property held"), HasSubstr("a defect in 1 % of them"),
                      HasSubstr("flash_attention_score_grad of attncheck built-in")));
    const Json json = Json::parse(text_of("out.json"));
    for (const Json& property : json.at("properties")) {
        EXPECT_EQ(property.at("property"), "sampled");
        EXPECT_GE(property.at("cases"), 1);
        EXPECT_EQ(property.at("coverage").size(), property.at("cases"));
    }
}

TEST_F(LargeTest, SaysWhatItTakes) {
    const Ran small = attncheck("verify --large 100"), none = attncheck("verify --samples 0");
    EXPECT_EQ(small.status, 2);
    EXPECT_THAT(small.printed, AllOf(HasSubstr("--large"), HasSubstr("256 to 65536")));
    EXPECT_EQ(none.status, 2);
    EXPECT_THAT(none.printed, HasSubstr("--samples"));
    const Ran both = attncheck("verify --large --property agreement");
    EXPECT_EQ(both.status, 2);
    EXPECT_THAT(both.printed, AllOf(HasSubstr("--large"), HasSubstr("--property")));
    EXPECT_THAT(attncheck("verify --help").printed,
                AllOf(HasSubstr("--large"), HasSubstr("16384")));
}

// Ordinary runs do not pay for it.
TEST_F(LargeTest, RunsOnlyWhenAskedFor) {
    const Ran plain = attncheck("verify --cases 1 --seed 1 --op flash_attention_score");
    EXPECT_THAT(plain.printed, Not(HasSubstr("sampled")));
    const Ran asked =
        attncheck("verify --cases 5 --seed 1 --op flash_attention_score --property sampled");
    EXPECT_EQ(asked.status, 0);
    EXPECT_THAT(asked.printed, HasSubstr("sampled"));
}

TEST_F(LargeTest, WithoutADefectEverythingHolds) {
    for (const std::string& line : {std::string(kLongBand), with_tail("flash_attention_score"),
                                    with_tail("flash_attention_score_grad")}) {
        const Ran ran = sampled("none", line);
        EXPECT_EQ(ran.status, 0) << ran.printed;
        EXPECT_THAT(ran.printed, HasSubstr("sampled              held"));
    }
}

TEST_F(LargeTest, FindsKeysMissingBehindTheLastWholeTile) {
    const Ran ran = sampled("short_tail", with_tail("flash_attention_score"));
    EXPECT_EQ(ran.status, 1);
    EXPECT_THAT(ran.printed, HasSubstr("FALSIFIED: softmax_"));
}

TEST_F(LargeTest, FindsPairNumbersBeyond32Bits) {
    const Ran ran = sampled("pair_32", kLongBand);
    EXPECT_EQ(ran.status, 1);
    EXPECT_THAT(ran.printed, AllOf(HasSubstr("FALSIFIED: attention_out is wrong"),
                                   HasSubstr("rows compared"), HasSubstr("sequence 0, query 46")));
}

TEST_F(LargeTest, FindsWritesBehindTheLastElement) {
    const Ran ran = sampled("past_end", kLongBand);
    EXPECT_EQ(ran.status, 1);
    EXPECT_THAT(ran.printed, HasSubstr("out-of-bounds write 1 element(s) past the end of "
                                       "attention_out"));
}

TEST_F(LargeTest, FindsPositionsBeyond16Bits) {
    const Ran ran = sampled("row_16", kLongBand);
    EXPECT_EQ(ran.status, 1);
    // The first row that is wrong is a boundary.
    EXPECT_THAT(ran.printed, HasSubstr("[sequence 0, query 32768, head 0, channel"));
}

TEST_F(LargeTest, FindsKeysWithTheGradientOfOthers) {
    const Ran ran = sampled("key_tail", with_tail("flash_attention_score_grad"));
    EXPECT_EQ(ran.status, 1);
    EXPECT_THAT(ran.printed, AllOf(HasSubstr("FALSIFIED: dk is wrong"), HasSubstr("key 2176")));
}

TEST_F(LargeTest, FindsQueriesThatDoNotCountForTheValues) {
    const Ran ran = sampled("first_queries", with_tail("flash_attention_score_grad"));
    EXPECT_EQ(ran.status, 1);
    EXPECT_THAT(ran.printed, HasSubstr("FALSIFIED: dv is wrong"));
}

// A library without the forward gets statistics from the built-in one, and the report says so.
TEST_F(LargeTest, TakesTheBuiltInForwardWhereThereIsNone) {
    const Ran ran = sampled("none", with_tail("flash_attention_score_grad"), GRADIENT_PATH);
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed, AllOf(HasSubstr("flash_attention_score of attncheck built-in"),
                                   HasSubstr("flash_attention_score_grad of defects at scale")));
    EXPECT_EQ(sampled("key_tail", with_tail("flash_attention_score_grad"), GRADIENT_PATH).status,
              1);
}

// The weight gradient of more tokens than 16 bits count: by default, in the first case.
TEST_F(LargeTest, ReachesSixtyFourThousandTokensByDefault) {
    const Ran ran = run_line("ATTNCHECK_MUTANT=NCG-x202 " + quoted(COMMAND_PATH) +
                             " verify --large --op nsa_compress_grad --seed 1 --stop-at-first --shrink 0.1 --env ATTNCHECK_MUTANT --candidate " +
                             quoted(MUTANTS_PATH) + " 2>&1");
    EXPECT_EQ(ran.status, 1);
    EXPECT_THAT(ran.printed, HasSubstr("weight_grad deviates"));
}

// Defects of the catalogue, most of which need more keys than a tile, or more than 1024; and the
// same library without one.
TEST_F(LargeTest, FindsDefectsOfTheCatalogue) {
    const std::string flash = with_tail("flash_attention_score"),
                      flash_grad = with_tail("flash_attention_score_grad");
    const std::string selected =
        "{dtype=bf16 q=[1500] kv=[2048] kv_heads=1 group=2 dim=128 value_dim=128 block=16 count=3 "
        "mask=bool mask_shape=single sparse=2 scale=rsqrt topk=scored data=normal seed=1}'";
    const std::string compress =
        "'nsa_compress{dtype=bf16 seq=[3000] heads=2 dim=64 block=32 stride=16 data=normal "
        "seed=1}'";
    const std::string attention =
        "'nsa_compress_attention{dtype=bf16 q=[1000] cmp=[125] kv_heads=1 group=4 dim=32 "
        "value_dim=32 block=32 stride=16 select=64 count=4 scale=rsqrt data=normal seed=1}'";
    const std::string sums =
        "'attention_grad{dtype=bf16 q=[700] kv=[300] layout=bshd kv_heads=1 group=2 dim=32 value_dim=32 "
        "bias=per_key sink=normal scale=rsqrt data=normal seed=1}'";
    const struct {
        std::string id, line, failure;
    } mutants[] = {{"FA-x83", flash, "softmax_sum is wrong"},
                   {"FA-x84", flash, "softmax_sum is wrong"},
                   {"FAG-x122", flash_grad, "dq is wrong"},
                   {"FAG-x123", flash_grad, "dq is wrong"},
                   {"FAG-13", flash_grad, "dq is wrong"},
                   {"NSF-x20", "'nsa_selected_attention" + selected, "softmax_max is wrong"},
                   {"NSG-x27", "'nsa_selected_attention_grad" + selected, "dq is wrong"},
                   {"NC-03", compress, "output is wrong"},
                   {"NCA-x26", attention, "softmax_max is wrong"},
                   {"NCA-x04", attention, "topk_indices is wrong"},
                   {"ATG-02", sums, "dsink is wrong"},
                   {"ATG-04", sums, "dbias is wrong"}};
    std::set<std::string> held;  // lines that the library without a defect has passed
    for (const auto& mutant : mutants) {
        const auto run = [&](const std::string& id) {
            return run_line("ATTNCHECK_MUTANT=" + id + " " + quoted(COMMAND_PATH) + " reproduce " +
                            mutant.line + " --property sampled --samples 100 --candidate " +
                            quoted(MUTANTS_PATH) + " 2>&1");
        };
        const Ran ran = run(mutant.id);
        EXPECT_EQ(ran.status, 1) << mutant.id;
        EXPECT_THAT(ran.printed, HasSubstr("FALSIFIED: " + mutant.failure)) << mutant.id;
        if (held.insert(mutant.line).second) {
            EXPECT_EQ(run("").status, 0) << mutant.line;
        }
    }
}

// Where sums are exact there is no tolerance: one key of 4096 that is lost, and one partial sum that is rounded to half,
// which the bound and both other tiers have room for.
TEST_F(LargeTest, ExactSumsAreJudgedBitForBit) {
    const auto run = [](const std::string& id) {
        return run_line("ATTNCHECK_MUTANT=" + id + " " + quoted(COMMAND_PATH) +
                        " reproduce 'flash_attention_score{dtype=bf16 q=[64] kv=[4096] layout=BSND kv_heads=1 group=2 "
                        "dim=64 value_dim=64 scale=eighth logits=equal data=ints seed=5}' --property sampled "
                        "--samples 16 --candidate " +
                        quoted(MUTANTS_PATH) + " 2>&1");
    };
    const Ran clean = run("");
    EXPECT_EQ(clean.status, 0) << clean.printed;
    EXPECT_THAT(clean.printed,
                HasSubstr("attention_out: exact sums over 4096 keys, judged bit for bit"));
    for (const char* id : {"FA-x206", "FA-x207"})
        EXPECT_THAT(run(id).printed, AllOf(HasSubstr("FALSIFIED: attention_out is wrong"),
                                           HasSubstr("is another number in")))
            << id;
}

// A class whose sums or parts are half leaves no bits to judge: the same partial sum is one it may have.
TEST_F(LargeTest, ClassesOfHalfSumsHaveNoExactSums) {
    for (const char* words : {"acc=half", "split=half"}) {
        const Ran ran = run_line("ATTNCHECK_MUTANT=FA-x207 " + quoted(COMMAND_PATH) +
                                 " reproduce 'flash_attention_score{dtype=bf16 q=[8] kv=[4096] layout=BSND kv_heads=1 group=2 "
                                 "dim=64 value_dim=64 scale=eighth logits=equal data=ints seed=5}' --property sampled "
                                 "--samples 16 --precision " +
                                 words + " --candidate " + quoted(MUTANTS_PATH) + " 2>&1");
        EXPECT_EQ(ran.status, 0) << ran.printed;
        EXPECT_THAT(ran.printed, Not(HasSubstr("bit for bit"))) << words;
    }
}

// With stats=lse the pair of statistics is judged by its LSE, by every tier.
TEST_F(LargeTest, PairsOfStatisticsAreJudgedByTheirLse) {
    for (const char* op : {"flash_attention_score{dtype=bf16 q=[8] kv=[600] layout=BSND kv_heads=1 group=2 dim=64 value_dim=64 ",
                           "nsa_selected_attention{dtype=bf16 q=[40] kv=[256] kv_heads=1 group=2 dim=128 value_dim=128 block=16 count=8 "}) {
        const Ran ran = run_line("ATTNCHECK_STYLE=lse_pair " + quoted(COMMAND_PATH) + " reproduce '" + op +
                                 "scale=rsqrt data=normal seed=5}' --property sampled --samples 16 --env ATTNCHECK_STYLE "
                                 "--precision stats=lse --candidate " + quoted(DOCUMENTED_PATH) + " 2>&1");
        EXPECT_EQ(ran.status, 0) << ran.printed;
        EXPECT_THAT(ran.printed, HasSubstr("held")) << op;
    }
}

// Cases of full size keep to what is declared. A gradient without an LSE goes by the forward of the reference.
TEST_F(LargeTest, DeclaredFeaturesAreKeptTo) {
    const std::string declared = " --features 'attention: outputs=out; attention_grad: lse=absent window_right=-1 window_left=-1 group=1 bias=none "
                                 "sink=none kv_length=none'";
    const auto run = [&](const std::string& id, const std::string& more) {
        return run_line("ATTNCHECK_MUTANT=" + id + " " + quoted(COMMAND_PATH) + " verify --large 600 --samples 16 --seed 1 --shrink 2 --op attention_grad" +
                        more + " --candidate " + quoted(MUTANTS_PATH) + " --env ATTNCHECK_MUTANT 2>&1");
    };
    const Ran clean = run("", declared);
    EXPECT_EQ(clean.status, 0) << clean.printed;
    EXPECT_THAT(clean.printed, AllOf(HasSubstr("the forward that it is given is the reference's"), HasSubstr("lse=absent"), Not(HasSubstr("group=2")),
                                     Not(HasSubstr("window_right=0")), HasSubstr("every property held")));
    EXPECT_EQ(run("ATG-x254", declared).status, 0) << "of biases, which it does not take";
    const Ran wrong = run("ATG-12", declared);
    EXPECT_EQ(wrong.status, 1) << wrong.printed;
    const Ran none = run("", " --features 'attention_grad: kv=1..9 q=1..9 layout=packed lse=absent dtype=fp16 dim=1..2 bias=full'");
    EXPECT_EQ(none.status, 3) << none.printed;
    EXPECT_THAT(none.printed, HasSubstr("not checked"));
}

// What lies in hidden keys goes with kv_length, and sequences of one length with a padded layout.
TEST_F(LargeTest, DeclaredFeaturesLeaveLegalCases) {
    const Ran ran = run_line(quoted(COMMAND_PATH) + " verify --large 256 --samples 4 --seed 1 --op attention --features 'attention: kv_length=none "
                             "bias=none mask=none layout=bshd' --candidate " + quoted(MUTANTS_PATH) + " 2>&1");
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed, AllOf(HasSubstr("every property held"), Not(HasSubstr("not checked")), Not(HasSubstr("hidden_keys=nan"))));
}

// A gradient that goes by its own, unrounded output is as far from the given one as both may be from the exact one.
TEST_F(LargeTest, AnOwnForwardHasItsOwnErrors) {
    const Ran ran = run_line(
        "ATTNCHECK_STYLE=own " + quoted(COMMAND_PATH) +
        " reproduce 'attention_grad{dtype=fp16 q=[1] kv=[2] layout=bshd kv_heads=1 group=1 dim=1 value_dim=2 data=zeros seed=0 "
        "set=[dout[0,0,0]=1,query[0,0,0]=2,key[0,0,0]=2,value[0,0,0]=1]}' --property sampled --env ATTNCHECK_STYLE --precision forward=own --candidate " +
        quoted(KERNELS_PATH) + " 2>&1");
    EXPECT_EQ(ran.status, 0) << ran.printed;
}

// dQ and dK likewise: dS is a whole number over 2^k.
TEST_F(LargeTest, ExactScoresAreJudgedBitForBit) {
    const auto run = [](const std::string& id) {
        return run_line("ATTNCHECK_MUTANT=" + id + " " + quoted(COMMAND_PATH) +
                        " reproduce 'flash_attention_score_grad{dtype=bf16 q=[64] kv=[4096] layout=BSND kv_heads=1 "
                        "group=2 dim=64 value_dim=64 scale=eighth logits=equal data=signs seed=5}' --property sampled "
                        "--samples 16 --candidate " +
                        quoted(MUTANTS_PATH) + " 2>&1");
    };
    const Ran clean = run("");
    EXPECT_EQ(clean.status, 0) << clean.printed;
    for (const char* name : {"dq", "dk", "dv"})
        EXPECT_THAT(clean.printed, HasSubstr(std::string(name) + ": exact sums over 4096 keys, judged bit for bit"));
    for (const char* id : {"FAG-x207", "FAG-x208"})
        EXPECT_THAT(run(id).printed, AllOf(HasSubstr("FALSIFIED: dq is wrong"), HasSubstr("is another number in")))
            << id;
    EXPECT_THAT(run("FAG-x209").printed, HasSubstr("FALSIFIED: dk is wrong"));
}

// A defect that small cases show as well is shrunk to one of them.
TEST_F(LargeTest, ShrinksWhatASmallerCaseShows) {
    const Ran ran = run_line(
        "ATTNCHECK_MUTANT=FA-x84 " + quoted(COMMAND_PATH) +
        " verify --large 512 --seed 1 --shrink 10 --op flash_attention_score --candidate " +
        quoted(MUTANTS_PATH) + " --json " + file("out.json") + " 2>&1");
    EXPECT_EQ(ran.status, 1) << ran.printed;
    const Json found = Json::parse(text_of("out.json"))["properties"][0]["counterexample"];
    EXPECT_LT(std::string(found.at("case")).size(), std::string(found.at("original_case")).size());
    EXPECT_THAT(std::string(found.at("reproduce")), HasSubstr("--property sampled"));
}

}  // namespace
}  // namespace attncheck::properties
