// The reward of judge mode: 1 for what holds, more for what fails later, and nothing of what is expected.
#include "properties/report/reward.h"

#include <gmock/gmock.h>

#include "tests/properties/case/case_line.h"

namespace attncheck::properties {
namespace {

using testing::DoubleEq;
using testing::HasSubstr;
using testing::Not;
using Status = PropertyReport::Status;

PropertyReport law(const std::string& name, Status status, int found_in_case = 0) {
    PropertyReport report;
    report.op = "nsa_compress";
    report.property = name;
    report.status = status;
    report.cases = 40;
    if (found_in_case == 0) return report;
    Counterexample found;
    found.spec = found.original = spec_of("nsa_compress{dtype=fp16 seq=[32] heads=2 dim=16 block=16 stride=16 data=ones seed=0}");
    found.failure = "output is wrong";
    found.message = found.found_message = "expected 0.25 got 0.5";
    found.case_number = found_in_case;
    report.counterexamples.push_back(found);
    return report;
}

Grade grade(std::vector<PropertyReport> laws, bool is_partial = false) {
    static RunReport report;  // the grade points into it
    report = {};
    report.properties = std::move(laws);
    if (is_partial) report.taken["nsa_compress"] = {"dim=64", {}, {}, {}};
    return grade_of(report, 40);
}

TEST(Reward, IsOneForWhatHolds) {
    const Grade all = grade({law("agreement", Status::held), law("memory", Status::held),
                             law("history", Status::held)});
    EXPECT_EQ(all.verdict, "held");
    EXPECT_THAT(all.reward, DoubleEq(1));
    EXPECT_THAT(grade({law("agreement", Status::held)}).reward, DoubleEq(1));
}

TEST(Reward, GrowsWithTheCasesBeforeTheFailure) {
    EXPECT_EQ(grade({law("agreement", Status::falsified, 1), law("memory", Status::held)}).reward, 0);
    EXPECT_THAT(grade({law("agreement", Status::falsified, 21), law("memory", Status::held)}).reward,
                DoubleEq(0.25));
    EXPECT_THAT(grade({law("agreement", Status::held), law("memory", Status::falsified, 21)}).reward,
                DoubleEq(0.75));
    EXPECT_LT(grade({law("agreement", Status::held), law("memory", Status::falsified, 900)}).reward, 1);
}

TEST(Reward, OfWhatWasNotJudgedIsLess) {
    PropertyReport few = law("memory", Status::inconclusive);
    few.cases = 15;
    const Grade hurried = grade({law("agreement", Status::held), few});
    EXPECT_EQ(hurried.verdict, "inconclusive");
    EXPECT_THAT(hurried.reward, DoubleEq(0.75));
    EXPECT_EQ(grade({law("agreement", Status::error)}).verdict, "not_judged");
    EXPECT_EQ(grade({law("agreement", Status::error)}).reward, 0);
    EXPECT_EQ(grade({law("agreement", Status::not_implemented)}).reward, 0);
    PropertyReport none = law("agreement", Status::declined);
    none.cases = 0;
    const Grade declined = grade({none});
    EXPECT_EQ(declined.reward, 0);
    EXPECT_THAT(declined.feedback, HasSubstr("--features"));
}

// Enough cases are no verdict: their bounds may say nothing of most elements.
TEST(Reward, IsOneOnlyForWhatHolds) {
    const Grade undecided = grade({law("agreement", Status::held), law("memory", Status::inconclusive)});
    EXPECT_EQ(undecided.verdict, "inconclusive");
    EXPECT_THAT(undecided.reward, DoubleEq(0.95));
}

TEST(Reward, OfALibraryThatDeclinesIsHalf) {
    const Grade partial = grade({law("agreement", Status::held)}, true);
    EXPECT_EQ(partial.verdict, "partial");
    EXPECT_THAT(partial.reward, DoubleEq(0.5));
    EXPECT_THAT(partial.feedback, HasSubstr("takes only dim=64"));
}

TEST(Reward, TellsNoExpectedValue) {
    const Grade wrong = grade({law("agreement", Status::falsified, 3)});
    EXPECT_EQ(wrong.verdict, "falsified");
    EXPECT_THAT(wrong.feedback, HasSubstr("agreement: output is wrong, first in case 3; wrong for nsa_compress{"));
    EXPECT_THAT(wrong.feedback, Not(HasSubstr("0.25")));
}

// What a call returned in place of outputs is no expected value.
TEST(Reward, TellsWhyACallGaveNoOutputs) {
    const auto feedback = [](const std::string& failure, const std::string& message) {
        PropertyReport one = law("agreement", Status::falsified, 1);
        one.counterexamples[0].failure = failure;
        one.counterexamples[0].message = message;
        one.counterexamples[0].tier = Tier::crash;
        return grade({one}).feedback;
    };
    EXPECT_THAT(feedback("wrong output out", "wrong output out: k.py, function f: out has type float64, expected float32"),
                HasSubstr("agreement: wrong output out: k.py, function f: out has type float64, expected float32, first in case 1; wrong for "));
    EXPECT_THAT(feedback("raised KeyError", "raised KeyError: 'scale' (k.py:6)\n    k.py:6, in f: x"),
                HasSubstr("agreement: raised KeyError: 'scale' (k.py:6), first in case 1; "));
    EXPECT_THAT(feedback("timed out", "no answer after 4 s"), HasSubstr("agreement: timed out (no answer after 4 s), first in case 1; "));
    EXPECT_THAT(feedback("timed out", "timed out"), HasSubstr("agreement: timed out, first in case 1; "));
}

}  // namespace
}  // namespace attncheck::properties
