// Files of known deviations: what their lines may say, and which failures they cover.
#include "properties/search/waiver.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "properties/operators/catalogue.h"
#include "properties/report/waiver_text.h"
#include "properties/report/json.h"
#include "tests/properties/case/case_line.h"

namespace attncheck::properties {
namespace {

using testing::HasSubstr;

std::vector<Waiver> waivers_in(const std::string& text) {
    const std::string path = testing::TempDir() + "attncheck_waivers_" + std::to_string(getpid());
    std::ofstream(path) << text;
    const auto remove = [&] { std::remove(path.c_str()); };
    try {
        std::vector<Waiver> out = read_waivers(path, operators());
        remove();
        return out;
    } catch (const std::exception&) {
        remove();
        throw;
    }
}

std::string refusal(const std::string& text) {
    try {
        (void)waivers_in(text);
        return "accepted";
    } catch (const std::runtime_error& e) {
        return e.what();
    }
}

// Law, labels, failure class and output must all match; * stands for any text.
TEST(Waiver, MatchesFailureAndOutput) {
    const auto all = waivers_in(
        "# a comment\n\n"
        "attention_grad agreement bf16 failure=\"dq *\" sums of dq are too coarse  # known\n"
        "attention_grad * * output=dk see issue-#7 of last year\n"
        "* memory * no failure is named\n");
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0].reason, "sums of dq are too coarse");
    EXPECT_EQ(all[0].failure, "dq *");
    EXPECT_TRUE(all[0].applies("attention_grad", "agreement", {"bf16", "empty"}, "dq is wrong"));
    EXPECT_FALSE(all[0].applies("attention_grad", "agreement", {"bf16"}, "dk is wrong"));
    EXPECT_FALSE(all[0].applies("attention_grad", "agreement", {"fp16"}, "dq is wrong"));
    EXPECT_TRUE(all[1].applies("attention_grad", "deviation", {}, "dk: gain"));
    EXPECT_FALSE(all[1].applies("attention_grad", "deviation", {}, "dkv: gain"));
    EXPECT_TRUE(all[2].applies("nsa_compress", "memory", {}, "crashed: SIGSEGV"));
    EXPECT_EQ(all[1].text(), "attention_grad * * output=dk see issue-#7 of last year");
    const Waiver turned = waivers_in("attention * * output=out failure=\"out is wrong\" tile = 16 is meant\n").at(0);
    EXPECT_EQ(turned.failure, "out is wrong");
    EXPECT_EQ(turned.output, "out");
    EXPECT_EQ(turned.reason, "tile = 16 is meant");
}

// A word that no case can have would waive nothing for ever: it is refused with what is known.
TEST(Waiver, RefusesWhatNoCaseHas) {
    EXPECT_THAT(refusal("atention agreement * why\n"), HasSubstr(":1: unknown operator 'atention', did you mean 'attention'?"));
    EXPECT_THAT(refusal("attention agrement * why\n"),
                HasSubstr(":1: attention has no property agrement, did you mean 'agreement'?"));
    EXPECT_THAT(refusal("* agrement * why\n"), HasSubstr(":1: no operator has the property agrement, did you mean"));
    EXPECT_THAT(refusal("attention * bff16 why\n"),
                HasSubstr(":1: no case of attention has the label bff16, did you mean 'bf16'?"));
    EXPECT_THAT(refusal("attention * * output=outt why\n"),
                HasSubstr(":1: attention has no output outt, did you mean 'out'?"));
    EXPECT_THAT(refusal("\nattention page_size * why\n"), HasSubstr(":2: attention has no property page_size"));
    EXPECT_THAT(refusal("attention agreement sprse:3 why\n"), HasSubstr("no case of attention has the label sprse:3"));
    EXPECT_THAT(refusal("attention agreement data:nrmal why\n"),
                testing::AllOf(HasSubstr("label data:nrmal, known: "), HasSubstr("data:normal")));
    EXPECT_THAT(refusal("* * no_such_label why\n"), HasSubstr("no case of any operator has the label no_such_label"));
    EXPECT_THAT(refusal("attention agreement * output=query why\n"), HasSubstr("attention has no output query"));
    EXPECT_THAT(refusal("attention agreement * failure=\"out why\n"), HasSubstr("no second quote"));
    EXPECT_THAT(refusal("attention * * failur=\"out is wrong\" why\n"),
                HasSubstr("unknown option failur=, allowed before the reason: failure= output="));
    EXPECT_THAT(refusal("attention agreement *\n"), HasSubstr("expected OPERATOR PROPERTY LABELS"));
    EXPECT_THAT(refusal("attention agreement * output=out\n"), HasSubstr("expected OPERATOR PROPERTY LABELS"));
}

// The list that comes with the suite names labels that cases have.
TEST(Waiver, ReadsTheListOfTheVendor) { EXPECT_GT(read_waivers(VENDOR_WAIVERS, operators()).size(), 20u); }

// What a report writes is read again, and covers its failures and no others.
TEST(Waiver, IsWrittenFromAReport) {
    RunReport report;
    report.candidate = "kernel";
    report.date = "2026-11-23T08:00:00Z";
    PropertyReport one;
    one.op = "nsa_compress";
    one.property = "agreement";
    one.status = PropertyReport::Status::falsified;
    Counterexample found;
    found.spec = found.original = spec_of(kPlainLine);
    found.failure = "output is wrong";
    one.counterexamples = {found};
    report.properties = {one};
    const auto all = waivers_in(waivers_of(to_json(report)));
    ASSERT_EQ(all.size(), 1u);
    EXPECT_TRUE(all[0].applies("nsa_compress", "agreement", {"fp16"}, "output is wrong"));
    EXPECT_FALSE(all[0].applies("nsa_compress", "agreement", {"fp16"}, "output: gain"));
    EXPECT_FALSE(all[0].applies("nsa_compress", "memory", {"fp16"}, "output is wrong"));
    EXPECT_THAT(all[0].reason, HasSubstr("known since 2026-11-23: nsa_compress{"));
}

}  // namespace
}  // namespace attncheck::properties
