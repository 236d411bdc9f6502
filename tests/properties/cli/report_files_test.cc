// Baselines, waivers, badges and the files of merged shards, by the command.
#include <nlohmann/json.hpp>

#include "tests/properties/cli/command_fixture.h"
#include "tests/properties/report/xml_check.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Json = nlohmann::json;

class ReportFilesTest : public CommandTest {
protected:
    Ran verify(const std::string& options) const {
        return run_line("XDG_CACHE_HOME=" + quoted(file("cache")) + " " + quoted(COMMAND_PATH) +
                        " verify --op nsa_compress --property memory --cases 30 --seed 1 --candidate " +
                        quoted(candidate_path("one_element_past_output")) + " " + options + " 2>&1");
    }
};

// What failed before does not fail a run with the baseline, nor one with the waivers.
TEST_F(ReportFilesTest, KnownFailuresDoNotFailARun) {
    const Ran first = verify("--json " + file("first.json") + " --write-waivers " + file("known") + " --badge " +
                             file("badge.json"));
    EXPECT_EQ(first.status, 1) << first.printed;
    EXPECT_EQ(Json::parse(text_of("badge.json")),
              Json({{"schemaVersion", 1}, {"label", "attncheck"}, {"message", "falsified, 1 cause"}, {"color", "red"}}));
    const Ran same = verify("--baseline " + file("first.json") + " --badge " + file("badge.json") + " --junit " + file("same.xml") + " --json " + file("same.json"));
    EXPECT_EQ(same.status, 0) << same.printed;
    EXPECT_THAT(same.printed, AllOf(HasSubstr("  0 new\n"), HasSubstr("nothing new: exit status 0\n"), HasSubstr("  1 the same\n    nsa_compress.memory: out of bounds: output")));
    EXPECT_EQ(xml_error(text_of("same.xml")), "");
    EXPECT_THAT(text_of("same.xml"), AllOf(HasSubstr("failures=\"0\""), HasSubstr("known: the baseline has this failure")));
    EXPECT_EQ(Json::parse(text_of("same.json")).at("verdict"), "held");
    EXPECT_THAT(Json::parse(text_of("badge.json")).at("message").get<std::string>(), HasSubstr(" cases, 1 known cause"));
    const Ran waived = verify("--waive " + file("known") + " --badge " + file("badge.json"));
    EXPECT_EQ(waived.status, 0) << waived.printed;
    EXPECT_THAT(waived.printed, HasSubstr("every property held, 30 cases waived"));
    const Ran still_wrong = verify("--waive " + file("known") + " --baseline " + file("first.json"));
    EXPECT_THAT(still_wrong.printed, AllOf(HasSubstr("  0 fixed\n"), HasSubstr("  1 not judged by this run, or waived\n")));
    const std::string known = text_of("known");
    EXPECT_EQ(verify("--waive " + file("known") + " --write-waivers " + file("known")).status, 0);
    EXPECT_EQ(text_of("known"), known) << "waivers are not lost";
    expect_refusal("verify --waive " + file("known") + " --json " + file("known"), {"known, which is the file of --waive: it would be overwritten"});
    const std::string library = candidate_path("one_element_past_output");
    expect_refusal("verify --candidate " + quoted(library) + " --html " + quoted(library), {"which is a file of --candidate"});
    EXPECT_EQ(text_of("known"), known);
    expect_refusal("verify --waive " + file(""), {"it is a directory"});
    const Json badge = Json::parse(text_of("badge.json"));
    EXPECT_THAT(badge.at("message").get<std::string>(), HasSubstr(" cases, 30 waived"));
    EXPECT_EQ(badge.at("color"), "yellowgreen");
    write("other.json", R"({"schema": 1, "properties": []})");
    EXPECT_EQ(verify("--baseline " + file("other.json")).status, 1);
    write("none.json", "{}");
    expect_refusal("verify --baseline " + file("none.json"), {"--baseline", "is not an attncheck report"});
    write("bad", "nsa_compress memory sprse:3 a label that no case has\n");
    expect_refusal("verify --waive " + file("bad"), {"bad:1: no case of nsa_compress has the label sprse:3"});
}

// Merged shards have the files of a whole run.
TEST_F(ReportFilesTest, MergedShardsHaveAllFiles) {
    EXPECT_EQ(verify("--shard 1/2 --json " + file("1.json")).status, 1);
    EXPECT_EQ(verify("--shard 2/2 --json " + file("2.json")).status, 0) << "which has nothing to do";
    const Ran merged = attncheck("merge " + file("1.json") + " " + file("2.json") + " --junit " + file("all.xml") +
                                 " --html " + file("all.html") + " --json " + file("all.json"));
    EXPECT_EQ(merged.status, 1) << merged.printed;
    EXPECT_THAT(merged.printed, HasSubstr("  replay      attncheck reproduce @1 --report " + file("all.json") + "\n"));
    EXPECT_EQ(attncheck("reproduce @1 --report " + file("all.json")).status, 1);
    EXPECT_EQ(xml_error(text_of("all.xml")), "");
    EXPECT_THAT(text_of("all.xml"), HasSubstr("name=\"memory\""));
    EXPECT_TRUE(text_of("all.html").find("\"parts\":[1,2]") != std::string::npos);
    EXPECT_EQ(Json::parse(text_of("all.json")).at("verdict"), "falsified");
    EXPECT_EQ(attncheck("merge " + file("1.json") + " " + file("2.json") + " --baseline " + file("all.json")).status, 0);
}

}  // namespace
}  // namespace attncheck::properties
