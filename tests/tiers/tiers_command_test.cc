// The tiers as a user meets them: verdicts, shrunk cases, reports and the declared precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/properties/cli/shell.h"

namespace attncheck::properties {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

std::string candidate() { return " --candidate " + quoted(MUTANTS_PATH); }

Ran mutant(const std::string& id, const std::string& arguments) {
    return run_line("ATTNCHECK_MUTANT=" + id + " " + quoted(COMMAND_PATH) + " " + arguments +
                    candidate() + " 2>&1");
}

Json report_at(const std::string& path) {
    std::ifstream in(path);
    return Json::parse(in);
}

/// A smaller case has the same limits and less power: the walk ends where the gain stops to stand
/// out, with the class it began with, and the case replays.
TEST(TiersCommand, ShrunkStatisticalFailureKeepsItsClassAndReplays) {
    const std::string path = testing::TempDir() + "tiers_shrunk.json";
    const Ran run = mutant("NCA-x201",
                           "verify --op nsa_compress_attention --property deviation --seed 1 "
                           "--thorough --stop-at-first --shrink 20 --json " +
                               quoted(path));
    EXPECT_EQ(run.status, 1) << run.printed;
    EXPECT_THAT(run.printed, HasSubstr("a statistical verdict"));
    const Json found = report_at(path).at("properties").at(0).at("counterexample");
    EXPECT_EQ(found.at("tier"), "filter");
    EXPECT_EQ(found.at("failure"), "attention_out: gain");
    EXPECT_GT(found.at("shrinks"), 0);
    EXPECT_THAT(found.at("certificate").get<std::string>(), HasSubstr("neighbours hold"));
    EXPECT_THAT(found.at("message_as_found").get<std::string>(),
                HasSubstr("attention_out: gain +0.1"));
    const Ran again =
        mutant("NCA-x201", "reproduce " + quoted(found.at("case").get<std::string>()) +
                               " --property deviation");
    EXPECT_EQ(again.status, 1) << again.printed;
    EXPECT_THAT(again.printed, HasSubstr("FALSIFIED: attention_out: gain"));
}

TEST(TiersCommand, TierOfEveryKindOfFailureIsReported) {
    const auto tier = [](const std::string& id, const std::string& op,
                         const std::string& property) {
        const std::string path = testing::TempDir() + "tiers_" + id + ".json";
        mutant(id, "verify --op " + op + " --property " + property +
                       " --thorough --seed 1 --stop-at-first --shrink 0 --json " + quoted(path));
        const Json report = report_at(path).at("properties").at(0);
        return report.contains("counterexample")
                   ? report.at("counterexample").at("tier").get<std::string>()
                   : "none";
    };
    EXPECT_EQ(tier("NC-01", "nsa_compress", "agreement"), "bound");
    EXPECT_EQ(tier("NC-x05", "nsa_compress", "deviation"), "deviation");
    EXPECT_EQ(tier("NCG-04", "nsa_compress_grad", "memory"), "memory");
    EXPECT_EQ(tier("VAL-35", "nsa_compress", "validation"), "validation");
    EXPECT_EQ(tier("NC-x20", "nsa_compress", "repeatable"), "relation");
}

/// The correct library does not cast P: nothing to accuse under any class, and the report says so.
TEST(TiersCommand, ReportComparesDeclaredAndObservedPrecision) {
    const std::string path = testing::TempDir() + "tiers_precision";
    const std::string arguments =
        "verify --thorough --op nsa_compress_attention --property deviation --seed 3 --precision fp32";
    const Ran clean = mutant("''", arguments + " --json " + quoted(path + ".json"));
    EXPECT_EQ(clean.status, 0) << clean.printed;
    EXPECT_THAT(clean.printed, HasSubstr("precision: declared acc=fp32 p=fp32 ds=fp32; errors look "
                                         "like p=fp32 sum=fp32"));
    const Json precision = report_at(path + ".json").at("precision");
    EXPECT_EQ(precision.at("declared"), "acc=fp32 p=fp32 ds=fp32");
    EXPECT_EQ(precision.at("looks_like"), "p=fp32 sum=fp32");
    // P is cut: inside the default class but for its gain, outside of fp32.
    const Ran cut = mutant("NCA-x202", arguments + " --shrink 0");
    EXPECT_EQ(cut.status, 1) << cut.printed;
    EXPECT_THAT(cut.printed, HasSubstr("--precision 'fp32'"));  // the replay needs it
}

/// FAG-24 adds its rows in another order in every second call: right unless it promised an order.
TEST(TiersCommand, AnotherOrderOfSumsIsAFactUnlessAnOrderIsPromised) {
    const std::string arguments =
        "verify --op flash_attention_score_grad --property hidden --property row_view --property "
        "value_scale --cases 60 --seed 3 --shrink 0 --precision order=";
    const Ran fixed = mutant("FAG-24", arguments + "fixed");
    EXPECT_EQ(fixed.status, 1) << fixed.printed;
    const Ran any = mutant("FAG-24", arguments + "any");
    EXPECT_EQ(any.status, 0) << any.printed;
    EXPECT_THAT(any.printed, HasSubstr("order: bits differed in "));
    // What is wrong beyond the order stays wrong: hidden keys that reach a row.
    const Ran defect = mutant("FAG-42", arguments + "any");
    EXPECT_EQ(defect.status, 1) << defect.printed;
}

/// FAG-x126 adds 0 * q and 0 * dO for hidden keys: NaN spreads, and nothing else does.
TEST(TiersCommand, HiddenKeysMayBeMultipliedByZeroWhereThatIsDeclared) {
    const std::string arguments =
        "verify --op flash_attention_score_grad --property non_finite --property hidden --property "
        "row_view --cases 60 --seed 3 --shrink 0 --precision hidden=";
    const Ran skipped = mutant("FAG-x126", arguments + "skipped");
    EXPECT_EQ(skipped.status, 1) << skipped.printed;
    const Ran times_zero = mutant("FAG-x126", arguments + "times_zero");
    EXPECT_EQ(times_zero.status, 0) << times_zero.printed;
}

/// Sums that are kept in half beyond 1024 terms, one in each output of a gradient. The case is one of those that
/// LongRows.GradientsHaveLongSumsInEveryOutput counts.
TEST(TiersCommand, LongSumsInHalfFallInEveryOutputOfAGradient) {
    const auto verdict = [](const char* id, const char* lengths) {
        return mutant(id, "reproduce " +
                              quoted(std::string("attention_grad{dtype=bf16 ") + lengths +
                                     " layout=bshd kv_heads=2 group=1 dim=8 value_dim=8 scale=rsqrt bias=head_key "
                                     "sink=normal data=normal seed=5919077}") +
                              " --property deviation");
    };
    for (const auto& [id, output] : {std::pair{"ATG-x203", "dbias"}, {"ATG-x204", "dsink"}, {"ATG-x206", "dk"},
                                     {"ATG-x207", "dv"}}) {
        const Ran run = verdict(id, "q=[8192] kv=[16]");
        EXPECT_EQ(run.status, 1) << run.printed;
        EXPECT_THAT(run.printed, HasSubstr(std::string("FALSIFIED: ") + output + " "));
    }
    EXPECT_THAT(verdict("ATG-x205", "q=[12] kv=[8192]").printed, HasSubstr("FALSIFIED: dq "));
    EXPECT_EQ(verdict("''", "q=[8192] kv=[16]").status, 0);
    EXPECT_EQ(verdict("''", "q=[12] kv=[8192]").status, 0);
}

TEST(TiersCommand, MergedShardsKeepTheObservedPrecision) {
    const std::string path = testing::TempDir() + "tiers_shard";
    const std::string arguments = "verify --thorough --op nsa_compress_attention --property deviation ";
    for (const std::string shard : {"1", "2"})
        EXPECT_EQ(mutant("''", arguments + "--shard " + shard + "/2 --json " +
                                   quoted(path + shard + ".json"))
                      .status,
                  0);
    const Ran merged = attncheck("merge " + quoted(path + "1.json") + " " +
                                 quoted(path + "2.json") + " --json " + quoted(path + ".json"));
    EXPECT_EQ(merged.status, 0) << merged.printed;
    EXPECT_EQ(report_at(path + ".json").at("precision").at("looks_like"), "p=fp32 sum=fp32");
}

}  // namespace
}  // namespace attncheck::properties
