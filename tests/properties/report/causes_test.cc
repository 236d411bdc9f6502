// Failures of one cause, their order, and how they are printed.
#include "properties/report/causes.h"

#include <gmock/gmock.h>

#include <sstream>

#include "properties/report/cause_text.h"
#include "properties/report/table.h"
#include "properties/report/terminal.h"
#include "tests/properties/case/case_line.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Failure failure(const char* property, const char* what, Tier tier, const char* line = "a{q=[1]}",
                const char* op = "attention") {
    return {op, property, what, std::string(what) + ": more", line, tier, {}, {}};
}

// Laws that see the same output wrong are one cause, and the smallest wrong value is its face.
TEST(Causes, JoinFailuresOfOneOutput) {
    const std::vector<Failure> all = {
        failure("value_shift", "out breaks the relation", Tier::relation),
        failure("deviation", "out: gain", Tier::filter, "a{q=[37,37] kv=[48,48]}"),
        failure("agreement", "out is wrong", Tier::bound, "a{q=[9]}"),
        failure("exact_lattice", "out is wrong", Tier::bound, "a{q=[10,10]}")};
    const std::vector<Cause> causes = causes_of(all, false);
    ASSERT_EQ(causes.size(), 1u);
    EXPECT_THAT(causes[0].failures, ElementsAre(3, 2, 1, 0));
    EXPECT_TRUE(causes[0].has_name);
    EXPECT_EQ(causes[0].named, 1u);
    EXPECT_THAT(numbers_of(causes, all.size()), ElementsAre(4, 3, 2, 1));
}

// Whatever a law says of the output.
TEST(Causes, NameTheOutputOfEveryClass) {
    for (const char* words : {"is wrong", "of an unseen key is not 0", "of an unreached row is not 0", "is not zero",
                              "is not finite", "is not the same 8 times", "of a row without keys", "is log2", "breaks the relation"})
        EXPECT_EQ(output_of(std::string("dk ") + words), "dk") << words;
    EXPECT_EQ(output_of("out of memory"), "out of memory");
}

// A case that the run had no time to shrink is no face of a cause that has a smallest one.
TEST(Causes, ShowASmallestCaseFirst) {
    std::vector<Failure> all = {failure("exact_lattice", "out is wrong", Tier::bound, "a{q=[10,10]}"),
                                failure("agreement", "out is wrong", Tier::bound, "a{q=[9]}")};
    all[0].certificate = "not shrunk to its end";
    EXPECT_THAT(causes_of(all, false).at(0).failures, ElementsAre(1, 0));
}

// What is wrong alone, too, is not headed by a law about other calls, whose case may be smaller.
TEST(Causes, AreHeadedByALawOfOneCall) {
    const std::vector<Failure> all = {failure("history", "out is wrong", Tier::bound, "a{q=[1]}"),
                                      failure("concurrent", "out is wrong", Tier::bound, "a{q=[1]}"),
                                      failure("agreement", "out is wrong", Tier::bound, "a{q=[10,10]}")};
    EXPECT_THAT(causes_of(all, false).at(0).failures, ElementsAre(2, 0, 1));
    EXPECT_THAT(causes_of({all[0]}, false).at(0).failures, ElementsAre(0));
}

// A hypothesis that two failures share joins them, and of several the one that most have in common is told.
TEST(Causes, JoinFailuresOfOneHypothesis) {
    std::vector<Failure> all = {failure("exact_lattice", "lse is wrong", Tier::bound, "a{q=[9]}"),
                                failure("agreement", "out is wrong", Tier::bound, "a{q=[10,10]}"),
                                failure("deviation", "dq: gain", Tier::filter, "a{q=[37,37]}")};
    all[0].message = "out: mask not applied, or window aligned, which explains 100 % of the error\nmore";
    all[1].message = "out: window aligned, or mask shifted, which explains 98 % of the error";
    all[2].message = "dq: gain +3 %, which explains 99 % of the error";
    EXPECT_THAT(hypotheses_in(all[0].message), ElementsAre("mask not applied", "window aligned"));
    EXPECT_THAT(hypotheses_in(all[2].message), ElementsAre());
    const std::vector<Cause> causes = causes_of(all, false);
    ASSERT_EQ(causes.size(), 2u);
    const Cause& joined = causes[causes[0].failures.size() == 2 ? 0 : 1];
    EXPECT_THAT(joined.failures, ElementsAre(0, 1));
    EXPECT_THAT(joined.likely, ElementsAre("window aligned"));
}

// What fails in the run and not alone has one cause with the laws about earlier calls, and they are its face.
TEST(Causes, JoinWhatDependsOnEarlierCalls) {
    std::vector<Failure> all = {failure("agreement", "out is wrong", Tier::bound, "a{q=[1]}"),
                                failure("history", "lse is wrong", Tier::bound, "a{q=[10,10]}")};
    all[0].certificate = "fails here but not alone in a fresh process (3 tries)";
    all[1].message = "after a call with another scale: lse differs";
    EXPECT_THAT(causes_of(all, false).at(0).failures, ElementsAre(1, 0));
    std::ostringstream out;
    print_causes(out, all, false, false);
    EXPECT_THAT(out.str(), HasSubstr("@1 attention.history: lse is wrong after a call with another scale\n"));
}

// Other outputs, other operators and deaths are other causes; deaths come first.
TEST(Causes, KeepApartWhatDiffers) {
    const std::vector<Failure> all = {
        failure("agreement", "dq is wrong", Tier::bound, "a{q=[1]}"),
        failure("agreement", "dk is wrong", Tier::bound, "a{q=[2]}"),
        failure("agreement", "dq is wrong", Tier::bound, "a{q=[1]}", "other"),
        failure("memory", "out of bounds: key", Tier::memory, "a{q=[3]}"),
        failure("history", "crashed: SIGSEGV", Tier::crash, "a{q=[4]}")};
    const std::vector<Cause> causes = causes_of(all, false);
    ASSERT_EQ(causes.size(), 5u);
    EXPECT_THAT(causes[0].failures, ElementsAre(4));
    EXPECT_THAT(causes[1].failures, ElementsAre(3));
}

// The same smallest case but for its data joins what names different outputs.
TEST(Causes, JoinFailuresOfOneSmallestCase) {
    const std::vector<Failure> all = {
        failure("concurrent", "wrong when called from several threads", Tier::relation,
                "a{q=[9] data=zeros seed=0 set=[value[0,0,0]=1]}"),
        failure("agreement", "out is wrong", Tier::bound, "a{q=[9] data=normal seed=7}")};
    EXPECT_EQ(causes_of(all, false).size(), 1u);
}

// A class that names no output is of the output that its message names.
TEST(Causes, JoinByTheOutputOfAMessage) {
    std::vector<Failure> all = {failure("agreement", "out is wrong", Tier::bound, "a{q=[9]}"),
                                failure("concurrent", "wrong when called from several threads", Tier::relation, "a{q=[3]}")};
    EXPECT_EQ(causes_of(all, false).size(), 2u);
    all[1].message = "3 calls at once: out differs from the reference in 1 of 9 elements";
    EXPECT_EQ(causes_of(all, false).size(), 1u);
}

// A library that rejects nothing has one defect; one that rejects something has one for each class.
TEST(Causes, OfALibraryThatChecksNoArguments) {
    const std::vector<Failure> all = {
        failure("validation", "accepted bad scale", Tier::validation, "a{q=[0] break=[all.dim=0]}"),
        failure("validation", "crashed: SIGSEGV", Tier::crash, "a{q=[0] break=[key.rank=5]}"),
        failure("validation_combined", "accepted bad key", Tier::validation, "b{q=[0] break=[x=0]}", "b")};
    ASSERT_EQ(causes_of(all, true).size(), 1u);
    EXPECT_TRUE(causes_of(all, true)[0].checks_nothing);
    EXPECT_EQ(causes_of(all, false).size(), 3u);
}

RunReport falsified_report() {
    RunReport report;
    report.candidate = "kernel";
    for (const char* property : {"agreement", "exact_integers"}) {
        PropertyReport one;
        one.op = "nsa_compress";
        one.property = property;
        one.status = PropertyReport::Status::falsified;
        one.cases = 40;
        Counterexample found;
        found.spec = found.original = spec_of(kPlainLine);
        found.failure = "output is wrong";
        found.message = "output differs in a message that has so many words that one line of a "
                        "terminal cannot hold them all";
        found.matters = "needs seq >= 17; fails with any heads";
        found.tier = Tier::bound;
        one.counterexamples = {found};
        report.properties.push_back(one);
    }
    return report;
}

// A case of hundreds of set elements fills no screen; -v and the report have all of it.
TEST(Causes, LongListsAreCutWhereTheyAreLookedAt) {
    RunReport report = falsified_report();
    for (PropertyReport& one : report.properties)
        for (int i = 0; i < 400; ++i) {
            ElementRef ref;
            ref.tensor = 0;
            ref.index[0] = i;
            one.counterexamples[0].spec.overrides[ref] = 1;
        }
    std::ostringstream out, all;
    print_table(out, report, false);
    EXPECT_THAT(out.str(), ContainsRegex("set=.input.0,0,0.=1.*, and 3[0-9][0-9] more]}\n"));
    EXPECT_LT(out.str().size(), 2500u);
    print_table(all, report, true);
    EXPECT_THAT(all.str(), HasSubstr("input[399,0,0]=1"));
}

// The end of a run names the cause once, with the other law and the short way to replay it.
TEST(Causes, ArePrintedOnce) {
    std::ostringstream out;
    print_table(out, falsified_report(), false);
    EXPECT_THAT(out.str(), HasSubstr("@1 nsa_compress.exact_integers: output is wrong\n"));
    EXPECT_THAT(out.str(), HasSubstr("  wrong       output differs in a message that has"));
    EXPECT_THAT(out.str(), HasSubstr("  also fails  agreement\n"));
    EXPECT_THAT(out.str(), HasSubstr("  matters     one by one: needs seq >= 17; fails with any heads\n"));
    EXPECT_THAT(out.str(), HasSubstr("attncheck reproduce @1\n"));
    EXPECT_THAT(out.str(), HasSubstr("falsified: 1 cause in 2 laws\n"));
    EXPECT_THAT(out.str(), Not(HasSubstr("@2")));
    std::ostringstream all;
    print_table(all, falsified_report(), true);
    EXPECT_THAT(all.str(), HasSubstr("@2"));
}

// A kernel that raises for what it does not take has another way to say so; one that divides by zero has not.
TEST(Causes, ExceptionsThatRefuseACallAreToldHowToDecline) {
    RunReport report = falsified_report();
    for (const std::string failure : {"raised AssertionError", "raised ZeroDivisionError"}) {
        for (PropertyReport& one : report.properties) one.counterexamples[0].failure = failure;
        std::ostringstream out;
        print_table(out, report, false);
        EXPECT_EQ(out.str().find("raise attncheck.Declined(") != std::string::npos, failure == "raised AssertionError");
    }
}

// A case that was not shrunk is printed once, a shrunk one with the case that it was found on.
TEST(Causes, PrintCasesOnce) {
    RunReport report = falsified_report();
    Counterexample& found = report.properties[0].counterexamples[0];
    std::ostringstream as_found, shrunk;
    print_counterexample(as_found, report, report.properties[0], found);
    EXPECT_THAT(as_found.str(), AllOf(HasSubstr("\n  found    "), Not(HasSubstr("\n  smallest "))));
    found.original.seed += 1;
    print_counterexample(shrunk, report, report.properties[0], found);
    EXPECT_THAT(shrunk.str(), AllOf(HasSubstr("\n  found    "), HasSubstr("\n  smallest ")));
}

// The end of a run has the numbers of the worst element.
TEST(Causes, AreShownWithTheirWorstElement) {
    RunReport report = falsified_report();
    for (PropertyReport& property : report.properties)
        property.counterexamples[0].message = "output differs from the reference in 2 of 4 elements; worst:\n"
                                              "  [batch 0, query 1]  expected 1  got 2\n  where: ...";
    std::ostringstream out;
    print_table(out, report, false);
    EXPECT_THAT(out.str(), HasSubstr("  wrong       [batch 0, query 1]  expected 1  got 2\n"));
}

// A case that the run had no time to shrink is not called the smallest.
TEST(Causes, SayWhatWasNotShrunk) {
    RunReport report = falsified_report();
    for (PropertyReport& property : report.properties) property.counterexamples[0].certificate = kNotShrunk;
    std::ostringstream out;
    print_table(out, report, false);
    EXPECT_THAT(out.str(), AllOf(HasSubstr("  not shrunk  nsa_compress{"), Not(HasSubstr("  smallest  "))));
}

// Nor is one whose shrunk case held when it was run once more, which has the message that it was found with.
TEST(Causes, ShowACaseAsFoundWithItsMessage) {
    RunReport report = falsified_report();
    for (PropertyReport& property : report.properties) {
        Counterexample& found = property.counterexamples[0];
        found.certificate = "the shrunk case holds in a fresh process or with the full time limit; shown as found";
        found.message.clear();
        found.found_message = "output differs as it was found";
    }
    std::ostringstream out, one;
    print_table(out, report, false);
    EXPECT_THAT(out.str(), AllOf(HasSubstr("  not shrunk  nsa_compress{"), Not(HasSubstr("  smallest  ")),
                                 HasSubstr("  wrong       output differs as it was found\n"),
                                 HasSubstr("  note        the shrunk case holds in a fresh process")));
    print_counterexample(one, report, report.properties[0], report.properties[0].counterexamples[0]);
    EXPECT_THAT(one.str(), HasSubstr("\n  output differs as it was found\n"));
    std::vector<Failure> all = {failure("exact_lattice", "out is wrong", Tier::bound, "a{q=[1]}"),
                                failure("agreement", "out is wrong", Tier::bound, "a{q=[9]}")};
    all[0].certificate = report.properties[0].counterexamples[0].certificate;
    EXPECT_THAT(causes_of(all, false).at(0).failures, ElementsAre(1, 0));
}

/// Columns of what people see: letters, without codes of colours.
std::size_t widest(const std::string& text) {
    std::istringstream lines(text);
    std::size_t most = 0;
    for (std::string line; std::getline(lines, line);)
        if (line.find('{') == std::string::npos)  // a case line is there to be copied
            most = std::max(most, line.size());
    return most;
}

// On a terminal of 80 columns nothing is wider but case lines; a file keeps its lines whole.
TEST(Terminal, BreaksLinesOnATerminalOnly) {
    const RunReport report = falsified_report();
    std::ostringstream narrow, file;
    set_terminal(narrow, 80, false);
    for (std::ostringstream* out : {&narrow, &file}) {
        print_counterexample(*out, report, report.properties[0], report.properties[0].counterexamples[0]);
        print_table(*out, report, false);
    }
    RunReport with_notes = report;
    for (PropertyReport& one : with_notes.properties) one.note = "compares with calls that the candidate does not take, and says so at length";
    print_table(narrow, with_notes, true);
    EXPECT_LE(widest(narrow.str()), 80u);
    EXPECT_GT(widest(file.str()), 80u);
    EXPECT_THAT(narrow.str(), Not(HasSubstr("\x1b")));
}

// Columns stay aligned, and a long word stays whole.
TEST(Terminal, KeepsColumnsAndLongWords) {
    std::ostringstream out;
    set_terminal(out, 40, false);
    EXPECT_EQ(fitted(out, "  matters     needs seq >= 17 and some more words\n", 14),
              "  matters     needs seq >= 17 and some\n              more words\n");
    const std::string word(50, 'x');
    EXPECT_EQ(fitted(out, "  replay " + word + " behind\nshort", 4), "  replay\n    " + word + "\n    behind\nshort");
    EXPECT_EQ(fitted(out, word, 4), word);
}

// Colours only where they were asked for.
TEST(Terminal, ColoursWhereItMay) {
    std::ostringstream colour;
    set_terminal(colour, 80, true);
    EXPECT_EQ(shaded(colour, Shade::bad, "x"), "\x1b[1;31mx\x1b[0m");
    std::ostringstream plain;
    EXPECT_EQ(shaded(plain, Shade::bad, "x"), "x");
    prepare_terminal(plain, -1);  // no terminal
    EXPECT_EQ(shaded(plain, Shade::bad, "x"), "x");
}

// The picture of a message and what it says the defect is.
TEST(CauseText, ReadsPictureAndDiagnosis) {
    const std::string message =
        "out: mask shifted by one key, which explains 100 % of the error; rms error 38\n"
        "  where: rms of error / deviation by tile of 32 query rows\n    sequence 0   head 0   1\n  last";
    EXPECT_EQ(picture_of(message),
              "where: rms of error / deviation by tile of 32 query rows\n    sequence 0   head 0   1");
    EXPECT_EQ(diagnosis_of(message),
              "out: mask shifted by one key, which explains 100 % of the error");
    EXPECT_EQ(picture_of("nothing"), "");
}

}  // namespace
}  // namespace attncheck::properties
