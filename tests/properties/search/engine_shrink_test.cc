// What the engine makes of a failing case: its exact minimum, with a certificate.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <ostream>
#include <regex>

#include "tests/properties/search/planted.h"
#include "properties/search/shrink.h"

namespace attncheck::properties {
namespace {

using testing::_;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

using EngineShrinkTest = EngineTest;

bool some_length(const Spec& spec, auto&& test) {
    return std::any_of(spec.lists[0].begin(), spec.lists[0].end(), test);
}

bool input_holds(const Spec& spec, double wanted) {
    // Building large cases, thousands of them until one fails, would take minutes.
    const std::int64_t rows =
        std::accumulate(spec.lists[0].begin(), spec.lists[0].end(), std::int64_t{0});
    if (rows * spec.number("heads") * spec.number("dim") > 4000) return false;
    const auto values = find_operator(spec.schema->op)->build(spec).tensor("input").values();
    return std::find(values.begin(), values.end(), wanted) != values.end();
}

struct Minimum {
    const char* topic;
    std::function<bool(const Spec&)> predicate;
    const char* forward_line;
    const char* gradient_words;  ///< behind "nsa_compress_grad{"
};

void PrintTo(const Minimum& minimum, std::ostream* to) { *to << minimum.topic; }

const std::vector<Minimum>& minima() {
    static const std::vector<Minimum> list = {
        {"ThreeHeads", [](const Spec& s) { return s.number("heads") >= 3; },
         "dtype=fp16 seq=[1] heads=3 dim=16 block=16 stride=16 data=zeros seed=0",
         "dtype=fp16 seq=[1] heads=3 dim=16 block=32 stride=16 data=zeros seed=0"},
        {"LengthAboveBlock",
         [](const Spec& s) {
             return some_length(s, [&](auto length) { return length > s.number("block"); });
         },
         "dtype=fp16 seq=[17] heads=1 dim=16 block=16 stride=16 data=zeros seed=0",
         "dtype=fp16 seq=[33] heads=1 dim=16 block=32 stride=16 data=zeros seed=0"},
        {"Dimension48", [](const Spec& s) { return s.number("dim") == 48; },
         "dtype=fp16 seq=[1] heads=1 dim=48 block=16 stride=16 data=zeros seed=0",
         "dtype=fp16 seq=[1] heads=1 dim=48 block=32 stride=16 data=zeros seed=0"},
        {"TwoEqualNonEmptySequences",
         [](const Spec& s) {
             for (std::size_t i = 0; i < s.lists[0].size(); ++i)
                 for (std::size_t k = 0; k < i; ++k)
                     if (s.lists[0][i] == s.lists[0][k] && s.lists[0][i] > 0) return true;
             return false;
         },
         "dtype=fp16 seq=[1,1] heads=1 dim=16 block=16 stride=16 data=zeros seed=0",
         "dtype=fp16 seq=[1,1] heads=1 dim=16 block=32 stride=16 data=zeros seed=0"},
        {"InputElementTwo", [](const Spec& s) { return input_holds(s, 2); },
         "dtype=fp16 seq=[1] heads=1 dim=16 block=16 stride=16 data=zeros seed=0 "
         "set=[input[0,0,0]=2]",
         "dtype=fp16 seq=[1] heads=1 dim=16 block=32 stride=16 data=zeros seed=0 "
         "set=[input[0,0,0]=2]"},
        {"BrainFloats", [](const Spec& s) { return s.number("dtype") == 1; },
         "dtype=bf16 seq=[1] heads=1 dim=16 block=16 stride=16 data=zeros seed=0",
         "dtype=bf16 seq=[1] heads=1 dim=16 block=32 stride=16 data=zeros seed=0"},
        {"SecondLayoutStrided",
         [](const Spec& s) { return s.layouts[1] != Layout::dense && s.number("heads") > 1; },
         "dtype=fp16 seq=[1] heads=2 dim=16 block=16 stride=16 data=zeros seed=0 "
         "weight.layout=unit",
         "dtype=fp16 seq=[1] heads=2 dim=16 block=32 stride=16 data=zeros seed=0 "
         "input.layout=unit"},
    };
    return list;
}

class KnownMinimum : public EngineTest, public testing::WithParamInterface<Minimum> {};

INSTANTIATE_TEST_SUITE_P(Predicates, KnownMinimum, testing::ValuesIn(minima()),
                         [](const auto& instance) { return instance.param.topic; });

// Whatever case fails first, the end is the one simplest case, and every neighbour of it holds.
TEST_P(KnownMinimum, IsReachedFromAnySeed) {
    options.cases = 2000;
    for (const Operator* op : {&forward(), &gradient()})
        for (std::uint64_t seed = 1; seed <= 12; ++seed) {
            options.seed = seed;
            known.clear();
            const PropertyReport report = run(planted_where(GetParam().predicate), *op);
            ASSERT_EQ(report.status, PropertyReport::Status::falsified);
            ASSERT_THAT(report.counterexamples, SizeIs(1));
            const Counterexample& found = report.counterexamples[0];
            const std::string words =
                op == &forward() ? GetParam().forward_line : GetParam().gradient_words;
            EXPECT_EQ(print(found.spec), op->name() + "{" + words + "}") << print(found.original);
            EXPECT_EQ(found.message, "planted in " + print(found.spec));
            std::smatch counts;
            ASSERT_TRUE(std::regex_search(found.certificate, counts,
                                          std::regex("([0-9]+) of ([0-9]+) neighbours hold")))
                << found.certificate;
            EXPECT_EQ(counts[1], counts[2]);
            EXPECT_THAT(found.certificate, HasSubstr("no dimension can be decreased"));
        }
}

// The class stays the same on the way down although smaller cases fail in another way.
TEST_F(EngineShrinkTest, FailureClassIsKept) {
    options.cases = 1000;
    const PropertyReport report = run(planted([](const Spec& spec) -> std::string {
        if (spec.number("heads") < 3) return "";
        return spec.number("dim") >= 48 ? "wide" : "narrow";
    }));
    ASSERT_THAT(report.counterexamples, SizeIs(2));
    for (const Counterexample& found : report.counterexamples) {
        EXPECT_EQ(found.spec.number("heads"), 3);
        EXPECT_EQ(found.spec.number("dim"), found.failure == "wide" ? 48 : 16) << found.failure;
    }
    EXPECT_NE(report.counterexamples[0].failure, report.counterexamples[1].failure);
}

// A class that is known does not stop the search for others, up to the number asked for.
TEST_F(EngineShrinkTest, EveryClassGivesOneCounterexample) {
    options.cases = 1000;
    const Property property = planted([](const Spec& spec) {
        return fmt::format("heads {}", std::min<std::int64_t>(spec.number("heads"), 4));
    });
    EXPECT_THAT(run(property).counterexamples, SizeIs(4));
    options.max_counterexamples = 2;
    EXPECT_THAT(run(property).counterexamples, SizeIs(2));
}

// A failure that a fresh process does not show is reported as found, and as what it is.
TEST_F(EngineShrinkTest, FailureThatDoesNotRepeatIsSaidToDependOnEarlierCalls) {
    int evaluations = 0, since_restart = 0;
    ON_CALL(candidate, restart).WillByDefault([&] { since_restart = 0; });
    const PropertyReport report = run(planted([&](const Spec&) -> std::string {
        ++evaluations;
        return ++since_restart > 20 ? "late" : "";
    }));
    ASSERT_THAT(report.counterexamples, testing::Not(testing::IsEmpty()));
    const Counterexample& found = report.counterexamples[0];
    EXPECT_EQ(found.spec, found.original);
    EXPECT_THAT(found.certificate, HasSubstr("not alone in a fresh process"));
    EXPECT_EQ(found.steps_taken, 0);
}

// A failure that shows now and then is tried several times, and the share is said.
TEST_F(EngineShrinkTest, FailureThatComesAndGoesIsRetried) {
    int evaluations = 0;
    const PropertyReport report = run(planted([&](const Spec& spec) -> std::string {
        if (spec.number("heads") < 3) return "";
        return ++evaluations % 2 == 1 ? "sometimes" : "";
    }));
    ASSERT_THAT(report.counterexamples, SizeIs(1));
    EXPECT_EQ(report.counterexamples[0].spec.number("heads"), 3);
    EXPECT_THAT(report.counterexamples[0].certificate, ContainsRegex("[12] of 3 runs only"));
}

// The end of the walk must fail alone too: otherwise the case is shown as found.
TEST_F(EngineShrinkTest, ShrunkCaseIsConfirmedInAFreshProcess) {
    int since_restart = 0;
    ON_CALL(candidate, restart).WillByDefault([&] { since_restart = 0; });
    const PropertyReport report = run(planted([&](const Spec& spec) -> std::string {
        const bool warm = since_restart++ > 0;
        return spec.number("heads") >= (warm ? 2 : 3) && spec.number("dim") > 16 ? "warm" : "";
    }));
    ASSERT_THAT(report.counterexamples, testing::Not(testing::IsEmpty()));
    for (const Counterexample& found : report.counterexamples)
        EXPECT_EQ(found.spec, found.original);
}

// Hangs are walked down with a short limit, and the limit is given back afterwards.
TEST_F(EngineShrinkTest, HangsAreShrunkWithAShorterTimeLimit) {
    using Seconds = std::chrono::duration<double>;
    options.timeout_s = 10;
    EXPECT_CALL(candidate, limit_time(_)).Times(testing::AnyNumber());
    EXPECT_CALL(candidate, limit_time(Seconds(0.5))).Times(testing::AtLeast(1));
    EXPECT_CALL(candidate, limit_time(Seconds(0))).Times(testing::AtLeast(1));
    const PropertyReport report = run(planted([](const Spec& spec) {
        return std::string(spec.number("heads") >= 3 ? "timed out" : "");
    }));
    ASSERT_THAT(report.counterexamples, SizeIs(1));
    EXPECT_EQ(report.counterexamples[0].spec.number("heads"), 3);
}

// When the time for shrinking is spent, the best case so far is reported as such.
TEST_F(EngineShrinkTest, SpentBudgetIsSaid) {
    clock.step = 0.25;
    options.shrink_seconds = 2;
    const PropertyReport report =
        run(planted_where([](const Spec& spec) { return spec.number("heads") >= 3; }));
    ASSERT_THAT(report.counterexamples, SizeIs(1));
    EXPECT_GE(report.counterexamples[0].spec.number("heads"), 3);
    EXPECT_THAT(report.counterexamples[0].certificate, HasSubstr("smaller cases may exist"));
}

// A minimum known from another property is the first thing tried.
TEST_F(EngineShrinkTest, KnownMinimaShortenTheWalk) {
    const Property property =
        planted_where([](const Spec& spec) { return spec.number("heads") >= 3; });
    const int first = run(property).counterexamples.at(0).steps_taken;
    ASSERT_EQ(known.size(), 1u);
    const PropertyReport again = run(property);
    EXPECT_LT(again.counterexamples.at(0).steps_taken, first);
}

// Which fields of the smallest case matter, and which are only there because they are small.
TEST_F(EngineShrinkTest, SaysWhichFieldsMatter) {
    options.explains = true;
    const auto report = run(planted_where([](const Spec& s) {
        return s.number("heads") >= 3 && s.number("dtype") == 1;
    }));
    ASSERT_THAT(report.counterexamples, SizeIs(1));
    const std::string& matters = report.counterexamples[0].matters;
    EXPECT_THAT(matters, HasSubstr("needs dtype=bf16, heads >= 3"));
    EXPECT_THAT(matters, ContainsRegex("fails with any seq, sequences, dim, block"));
}

// A library that refuses a legal call may write why, and so may one that dies, wherever the case is shrunk. One that
// writes while its numbers are wrong says nothing about them.
TEST_F(EngineShrinkTest, TellsWhatARefusingLibraryWrites) {
    options.explains = true;
    const auto writes = [&](std::string text) {
        ON_CALL(candidate, written_during).WillByDefault([text](const std::function<void()>& calls) {
            calls();
            return text;
        });
    };
    const auto message_of_failure = [&](const std::string& failure, Tier tier) {
        Property property = planted([](const Spec&) { return ""; });
        property.check = [=](const Spec&, PropertyContext&) { return Verdict::fail(failure, "returned 7\nmore", tier); };
        known.clear();
        const Counterexample found = run(property).counterexamples.at(0);
        EXPECT_EQ(PropertySearch(forward(), property, candidate, options, clock, known).shrunk(found).message, found.message);
        return found.message;
    };
    writes("\nseq is odd\nseq is odd\nheads, too\nthird\nfourth\n");
    const char* const told = "returned 7; it writes: seq is odd / heads, too / third\nmore";
    EXPECT_EQ(message_of_failure(kRejectedLegal, Tier::relation), told);
    EXPECT_EQ(message_of_failure("crashed: SIGABRT", Tier::crash), told);
    EXPECT_EQ(message_of_failure("out is wrong", Tier::relation), "returned 7\nmore");
    EXPECT_EQ(message_of_failure(kTimedOut, Tier::crash), "returned 7\nmore");
    writes("printed\nTraceback (most recent call last):\n");
    EXPECT_EQ(message_of_failure("raised ValueError", Tier::crash), "returned 7\nmore");
}

// A kernel that takes multiples of 8 channels alone fails with most widths, not with any.
TEST_F(EngineShrinkTest, TriesTheWidthThatMostKernelsTake) {
    options.explains = true;
    const auto report = run(planted_where([](const Spec& s) { return s.lists[0].size() == 1 && s.number("dim") % 8 != 0; }),
                            *find_operator("attention"));
    ASSERT_THAT(report.counterexamples, SizeIs(1));
    EXPECT_THAT(report.counterexamples[0].matters, HasSubstr("also with dim=2,5, not 64"));
}

// Another value that holds with the few tokens of the smallest case, and fails with more, is none that holds.
TEST_F(EngineShrinkTest, TriesOtherValuesWithLongerSequences) {
    options.explains = true;
    const auto report = run(planted_where([](const Spec& s) {
        const bool has_four = s.lists[0] == std::vector<std::int64_t>{4} && s.recipe == Recipe::normal;
        return s.number("block") == 32 ? s.lists[0].size() == 1 && s.lists[0][0] >= 1 : has_four;
    }));
    ASSERT_THAT(report.counterexamples, SizeIs(1));
    EXPECT_THAT(print(report.counterexamples[0].spec), HasSubstr("seq=[1] heads=1 dim=16 block=32"));
    EXPECT_THAT(report.counterexamples[0].matters, ContainsRegex("needs .*block >= 32;"));  // not block=32
}

// A value with which the law fails in another way is none with which it holds.
TEST_F(EngineShrinkTest, AnotherFailureDoesNotCountAsHolding) {
    options.explains = true;
    const auto report = run(planted([](const Spec& s) {
        return std::string(s.number("dtype") == 1 ? "planted" : "another");
    }));
    for (const Counterexample& found : report.counterexamples)
        EXPECT_THAT(found.matters, Not(HasSubstr("dtype"))) << found.failure;
}

// The memory layout of a tensor matters as a field does.
TEST_F(EngineShrinkTest, SaysWhichLayoutMatters) {
    options.explains = true;
    const auto report = run(planted_where([](const Spec& s) { return s.layouts[1] == Layout::gap; }));
    ASSERT_THAT(report.counterexamples, SizeIs(1));
    EXPECT_THAT(report.counterexamples[0].matters, HasSubstr("needs weight.layout=gap"));
}

// A value is tried once, and said once.
TEST_F(EngineShrinkTest, NamesAValueOnce) {
    options.explains = true;
    const auto report = run(planted_where([](const Spec& s) {
        return s.lists[0].size() == 1 && s.lists[0][0] >= 1 && s.lists[0][0] != 2;
    }));
    ASSERT_THAT(report.counterexamples, SizeIs(1));
    EXPECT_THAT(report.counterexamples[0].matters, HasSubstr("also with seq=9,129, not 2"));
}

// A defect of one width says so; nothing is said unless it was asked for.
TEST_F(EngineShrinkTest, SaysThatOneValueMatters) {
    const Property property = planted_where([](const Spec& s) { return s.number("dim") == 48; });
    EXPECT_EQ(run(property).counterexamples.at(0).matters, "");
    options.explains = true;
    EXPECT_EQ(run(property).counterexamples.at(0).matters, "");  // the same end as another law: said there
    known.clear();
    EXPECT_THAT(run(property).counterexamples.at(0).matters, HasSubstr("needs dim=48"));
}

// Of a smallest case with few elements another value may show nothing; with normal data it does.
TEST_F(EngineShrinkTest, TriesNormalDataWhereAnotherValueHolds) {
    options.explains = true;
    // Where there are several heads, ones everywhere do not show it.
    const auto report = run(planted_where([](const Spec& s) {
        return s.number("heads") == 1 || s.recipe == Recipe::normal;
    }));
    ASSERT_THAT(report.counterexamples, SizeIs(1));
    EXPECT_THAT(report.counterexamples[0].matters, ContainsRegex("fails with any .*heads"));
}

// How many sequences there have to be, and that more of them do not matter.
TEST_F(EngineShrinkTest, SaysHowManySequencesItTakes) {
    options.explains = true;
    for (const std::size_t least : {std::size_t{1}, std::size_t{3}}) {
        known.clear();
        const auto report = run(planted_where([&](const Spec& s) { return s.lists[0].size() >= least; }));
        ASSERT_THAT(report.counterexamples, SizeIs(1));
        EXPECT_THAT(report.counterexamples[0].matters,
                    least == 1 ? ContainsRegex("fails with any .*sequences") : ContainsRegex("needs .*sequences >= 3"));
    }
}

// A cause that explains the smallest case, and not the one that was found, is none.
TEST_F(EngineShrinkTest, NamesNoCauseOfTheSmallestCaseAlone) {
    options.explains = true;
    for (const bool explains_all : {false, true}) {
        known.clear();
        Property property = planted_where([](const Spec& s) { return s.number("heads") >= 2; });
        property.name = "deviation";
        const auto check = property.check;
        property.check = [=](const Spec& spec, PropertyContext& context) {
            Verdict verdict = check(spec, context);
            if (verdict.failed()) {
                verdict.tier = Tier::deviation;
                const bool is_small = spec.number("heads") == 2 && spec.lists[0].size() == 1 && spec.number("dim") <= 16;
                verdict.message = explains_all || is_small ? "dk: mask not applied, which explains 99 % of the error; rms error 9"
                                                           : "dk: rms error 9";
            }
            return verdict;
        };
        const auto report = run(property);
        ASSERT_THAT(report.counterexamples, SizeIs(1));
        EXPECT_EQ(report.counterexamples[0].message.starts_with("dk: rms error 9"), !explains_all)
            << report.counterexamples[0].message;
    }
}

// With the value that the case had as it was found it fails, whatever that value does alone: here a bias without its type.
TEST_F(EngineShrinkTest, NeedsNoOtherValueThanTheCaseHad) {
    options.explains = true;
    const auto report = run(planted_where([](const Spec& s) {
                                return s.number("bias") == 0 ? s.lists[1] == std::vector<std::int64_t>{1} && s.number("dim") == 1
                                                             : s.number("bias_type") == 1;
                            }),
                            *find_operator("attention"));
    ASSERT_THAT(report.counterexamples, SizeIs(1));
    const Counterexample& found = report.counterexamples[0];
    ASSERT_EQ(found.spec.number("bias"), 0);
    ASSERT_NE(found.original.number("bias"), 0) << "another seed is needed";
    EXPECT_THAT(found.matters, HasSubstr("also with bias="));
    EXPECT_THAT(found.matters, Not(HasSubstr("bias=none")));
}

// A repetition that the end of the run cuts did not hold.
TEST_F(EngineShrinkTest, CutRepetitionsAreNone) {
    int runs = 0;
    const auto report = run(planted([&](const Spec&) {
        clock.stopped = clock.stopped || ++runs == 3;  // found, and repeated once
        return clock.stopped ? "" : "wrong";
    }));
    ASSERT_THAT(report.counterexamples, SizeIs(1));
    EXPECT_TRUE(report.counterexamples[0].repeatable);
    EXPECT_THAT(report.counterexamples[0].certificate, Not(HasSubstr("runs only")));
}

// A word that makes the same call says nothing: lists of one block are the same however they are drawn.
TEST_F(EngineShrinkTest, OtherWordsForTheSameCallSayNothing) {
    options.explains = true;
    const auto report = run(planted_where([](const Spec&) { return true; }), *find_operator("nsa_selected_attention"));
    ASSERT_THAT(report.counterexamples, SizeIs(1));
    const std::string& matters = report.counterexamples[0].matters;
    EXPECT_THAT(matters, ContainsRegex("fails with any .*group"));
    EXPECT_THAT(matters, Not(HasSubstr("topk")));
}

// What lies at an offset that was cut is any other tensor: the one whose offsets are large is named.
TEST_F(EngineShrinkTest, NamesTheTensorWithLargeOffsets) {
    options.explains = true;
    options.cases = 2000;
    const Operator& op = *find_operator("nsa_selected_attention");
    const auto key = static_cast<std::size_t>(op.schema().tensor("key"));
    const auto report = run(planted_where([key](const Spec& spec) { return spec.layouts[key] == Layout::far; }), op);
    ASSERT_THAT(report.counterexamples, SizeIs(1));
    EXPECT_THAT(report.counterexamples[0].matters, HasSubstr("needs key.layout=far (offsets of key in 32 bits?)"));
}

// What a kernel would have to declare is said where a word fits, both to the case that was found and to the smallest one.
TEST_F(EngineShrinkTest, SaysWhichWordFits) {
    options.explains = true;
    const auto fails_without = [&](bool ref::RoundingClass::*word) {
        Property property = planted_where([](const Spec&) { return true; });
        property.check = [check = property.check, word](const Spec& spec, PropertyContext& context) {
            return context.rounding.*word ? Verdict{} : check(spec, context);
        };
        known.clear();
        return run(property, *find_operator("nsa_selected_attention_grad")).counterexamples.at(0).matters;
    };
    EXPECT_THAT(fails_without(&ref::RoundingClass::scores_rounded), EndsWith("holds with --precision scores=half, if it rounds so"));
    EXPECT_THAT(fails_without(&ref::RoundingClass::own_forward),
                EndsWith("holds with --precision forward=own or 'steps=half forward=own' or 'steps=half group=half forward=own', if it rounds so"));
    EXPECT_THAT(fails_without(&ref::RoundingClass::prob_kept), EndsWith("holds with --precision p=kept, if it rounds so"));
    known.clear();
    EXPECT_THAT(run(planted_where([](const Spec&) { return true; })).counterexamples.at(0).matters, Not(HasSubstr("--precision")));
}

}  // namespace
}  // namespace attncheck::properties
