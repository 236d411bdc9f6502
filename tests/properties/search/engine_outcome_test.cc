// What the engine counts, when it stops, and what it says when something goes wrong around a case.
#include <gmock/gmock.h>

#include <map>
#include <stdexcept>

#include "tests/properties/search/planted.h"
#include "properties/report/json.h"
#include "properties/report/json_parts.h"
#include "properties/search/classes.h"
#include "properties/operators/catalogue.h"

namespace attncheck::properties {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;
using Status = PropertyReport::Status;

class EngineOutcomeTest : public EngineTest {
protected:
    /// A property that holds, and notes the cases it saw.
    Property recording() {
        return planted_where([this](const Spec& spec) {
            seen.push_back(print(spec));
            return false;
        });
    }
    Property answering(Verdict::Kind kind) {
        Property property = planted({});
        property.check = [kind](const Spec&, PropertyContext&) { return Verdict{kind, {}, {}, 0}; };
        return property;
    }
    std::vector<std::string> seen;
};

// Every case asked for is run once, and its labels are counted.
TEST_F(EngineOutcomeTest, CasesAndLabelsAreCounted) {
    options.cases = 350;
    const PropertyReport report = run(recording());
    EXPECT_EQ(report.status, Status::held);
    EXPECT_EQ(report.cases, 350);
    EXPECT_THAT(seen, SizeIs(350));
    EXPECT_EQ(report.labels.at("fp16") + report.labels.at("bf16"), 350);
    EXPECT_EQ(report.op, "nsa_compress");
    EXPECT_EQ(report.property, "planted");
}

// A property may ask for more cases than the others.
TEST_F(EngineOutcomeTest, CaseFactorMultipliesTheCases) {
    options.cases = 30;
    Property property = recording();
    property.case_factor = 4;
    EXPECT_EQ(run(property).cases, 120);
}

// Declined is its own count, and a property that was only declined has not held.
TEST_F(EngineOutcomeTest, DeclinedIsNeverPassed) {
    const PropertyReport report = run(answering(Verdict::Kind::declined));
    EXPECT_EQ(report.status, Status::inconclusive);
    EXPECT_EQ(report.cases, 0);
    EXPECT_GE(report.declined, 100);
    EXPECT_EQ(report.note.substr(0, 30), "0 of 30 cases that are needed,");
    EXPECT_THAT(report.labels, IsEmpty());
}

// The neutral operators may reject with any number, and the message asks for no particular one.
TEST_F(EngineOutcomeTest, AnyRejectionIsAskedOfNeutralOperators) {
    answer_calls(candidate, zeros_for);
    options.cases = 3;
    const Operator& op = *find_operator("attention");
    const PropertyReport report = run(*op.property("validation"), op);
    ASSERT_FALSE(report.counterexamples.empty());
    EXPECT_THAT(report.counterexamples[0].message, HasSubstr("returned 0, expected a rejection: "));
}

// Some cases declined, the others checked: both are shown.
TEST_F(EngineOutcomeTest, DeclinedAndCheckedCasesAddUp) {
    Property property = planted({});
    property.check = [](const Spec& spec, PropertyContext&) {
        const bool declines = spec.number("dtype") == 1;
        return Verdict{declines ? Verdict::Kind::declined : Verdict::Kind::held, {}, {}, 0};
    };
    const PropertyReport report = run(property);
    EXPECT_EQ(report.status, Status::held);
    EXPECT_GT(report.cases, 0);
    EXPECT_GT(report.declined, 0);
    EXPECT_EQ(report.cases, 100);  // declined ones are replaced
    EXPECT_EQ(report.labels.at("fp16"), report.cases);
    EXPECT_FALSE(report.labels.contains("bf16"));
}

// Elements that no bound can judge do not count as held: neither cases that have few others, nor a
// property that has.
TEST_F(EngineOutcomeTest, UnjudgedElementsHaveAQuota) {
    const auto with_unjudged = [this](std::int64_t percent_of_bf16) {
        Property property = planted({});
        property.check = [=](const Spec& spec, PropertyContext&) {
            Verdict verdict;
            verdict.elements = {100, spec.number("dtype") == 1 ? percent_of_bf16 : 0};
            return verdict;
        };
        return run(property);
    };
    EXPECT_EQ(with_unjudged(40).status, Status::held);
    options.cases = 100;
    const PropertyReport half = with_unjudged(70);  // the others are enough
    EXPECT_EQ(half.status, Status::held);
    Property all = planted({});
    all.check = [](const Spec&, PropertyContext&) {
        Verdict verdict;
        verdict.elements = {100, 61};
        return verdict;
    };
    const PropertyReport report = run(all);
    EXPECT_EQ(report.status, Status::inconclusive);
    EXPECT_THAT(report.note, HasSubstr("0 of 30 cases that are needed, the bounds say nothing of "
                                       "most elements of"));
}

// A word that gives rows away does not give a property away.
TEST_F(EngineOutcomeTest, UnjudgedElementsHaveAQuotaUnderEveryWord) {
    options.rounding.hidden_times_zero = true;
    options.cases = 100;
    for (const std::int64_t percent : {80, 99}) {
        Property property = planted({});
        property.check = [=](const Spec& spec, PropertyContext&) {
            Verdict verdict;  // every second case is compared, but has few elements
            verdict.elements = spec.number("dtype") == 1 ? ElementCount{1000, 10 * percent}
                                                         : ElementCount{1, 0};
            return verdict;
        };
        EXPECT_EQ(run(property).status, percent == 80 ? Status::held : Status::inconclusive);
    }
}

// Where a NaN of a hidden key gives all rows away, half of the cases have numbers there, so that rows are left to judge.
TEST_F(EngineOutcomeTest, HalfOfTheCasesHideNumbersWhereNanSpreads) {
    const auto cases_that_hide_numbers = [this](bool times_zero) {
        options.rounding.hidden_times_zero = times_zero;
        options.cases = 800;
        int numbers = 0;
        run(planted_where([&](const Spec& spec) {
                numbers += spec.number("rest") == 0;
                return false;
            }),
            *find_operator("attention_decode"));
        return numbers;
    };
    EXPECT_LT(cases_that_hide_numbers(false), 280);
    EXPECT_GT(cases_that_hide_numbers(true), 400);
}

// Cases without room for their buffers are skipped, with a word.
TEST_F(EngineOutcomeTest, CasesWithoutRoomAreSkipped) {
    int calls = 0;
    Property property = planted({});
    property.check = [&calls](const Spec&, PropertyContext&) {
        if (++calls % 10 == 0) throw NoRoom("needs more than the 64 GiB");
        return Verdict{};
    };
    const PropertyReport report = run(property);
    EXPECT_EQ(report.status, Status::held);
    EXPECT_THAT(report.note, HasSubstr("case(s) skipped: needs more than the 64 GiB"));
}

// A case to which a property does not apply was not checked.
TEST_F(EngineOutcomeTest, InapplicableCasesAreNotCounted) {
    const PropertyReport report = run(answering(Verdict::Kind::inapplicable));
    EXPECT_EQ(report.cases, 0);
    EXPECT_NE(report.status, Status::held);
}

// A handful of cases is no verdict, however many others the property does not apply to; where it
// applies rarely, more are drawn.
TEST_F(EngineOutcomeTest, RareCasesAreDrawnOrInconclusive) {
    const auto applying_once_in = [&](std::uint64_t rarity) {
        Property property = planted({});
        property.check = [rarity](const Spec& spec, PropertyContext&) {
            const bool applies = mix(spec.seed) % rarity == 0;
            return Verdict{applies ? Verdict::Kind::held : Verdict::Kind::inapplicable, {}, {}, 0};
        };
        return run(property);
    };
    options.cases = 100;
    for (const std::uint64_t rarity : {6, 40}) {
        const PropertyReport rare = applying_once_in(rarity);
        EXPECT_EQ(rare.status, Status::held) << rare.note;
        EXPECT_GE(rare.cases, 30);
    }
    const PropertyReport rarest = applying_once_in(600);
    EXPECT_EQ(rarest.status, Status::inconclusive);
    EXPECT_LT(rarest.cases, 30);
    EXPECT_THAT(rarest.note, testing::HasSubstr("of 30 cases that are needed, it does not apply to"));
}

// A law of two operators, of which the library has one, takes a share of the time that others need.
TEST_F(EngineOutcomeTest, LawThatNeverAppliesTakesNoTime) {
    clock.step = 0.001;
    options.cases = 0;
    options.seconds = 20;
    const PropertyReport report = run(answering(Verdict::Kind::inapplicable));
    EXPECT_EQ(report.status, Status::not_applicable);
    EXPECT_THAT(report.note, HasSubstr("applies to none of"));
    EXPECT_LT(report.seconds, 5);
}

// Nor does a law without a case that the candidate takes: the rest of a round is not looked for.
TEST_F(EngineOutcomeTest, LawOutsideOfTheScopeDrawsOnce) {
    Survey learned{Scope(forward()), 0, 0, false, {}, {}};
    learned.scope.restrict_to("heads=1");
    Property property = planted({});
    int asked = 0;
    property.domain = [&asked](const Spec& spec) { return ++asked, spec.number("heads") > 1; };
    options.cases = 0;
    options.seconds = 20;
    options.survey = &learned;
    const PropertyReport report = run(property);
    EXPECT_EQ(report.status, Status::declined);
    EXPECT_LE(asked, 500);
}

// The worst ratio of all cases is kept.
TEST_F(EngineOutcomeTest, WorstRatioIsTheLargest) {
    Property property = planted({});
    double largest = 0;
    property.check = [&](const Spec& spec, PropertyContext&) {
        const double ratio = static_cast<double>(spec.seed % 1000) / 1000;
        largest = std::max(largest, ratio);
        return Verdict{Verdict::Kind::held, {}, {}, ratio, {}, {}};
    };
    EXPECT_EQ(run(property).worst_ratio, largest);
    EXPECT_GT(largest, 0);
}

// A waived failure is counted and explained, not reported.
TEST_F(EngineOutcomeTest, WaiversAreCountedWithTheirReason) {
    options.waivers = {{"nsa_compress", "planted", {"multi_head"}, "heads are hard"}};
    const PropertyReport report =
        run(planted_where([](const Spec& spec) { return spec.number("heads") > 1; }));
    EXPECT_EQ(report.status, Status::held);
    EXPECT_EQ(report.waived, report.labels.at("multi_head"));
    EXPECT_GT(report.waived, 0);
    EXPECT_THAT(report.waivers, ElementsAre("heads are hard"));
    EXPECT_THAT(report.counterexamples, IsEmpty());
}

// A waiver covers what it names: the operator, the property and all of its labels.
TEST_F(EngineOutcomeTest, WaiversCoverNothingElse) {
    const Property property =
        planted_where([](const Spec& spec) { return spec.number("heads") > 1; });
    const Waiver waivers[] = {{"nsa_compress_grad", "*", {}, "other operator"},
                              {"*", "agreement", {}, "other property"},
                              {"*", "*", {"multi_head", "no such label"}, "all labels must hold"}};
    for (const Waiver& waiver : waivers) {
        options.waivers = {waiver};
        const PropertyReport report = run(property);
        EXPECT_EQ(report.status, Status::falsified) << waiver.reason;
        EXPECT_EQ(report.waived, 0) << waiver.reason;
    }
}

// Without a number of cases, time alone ends the run, and findings are kept.
TEST_F(EngineOutcomeTest, TimeLimitEndsTheRunWithItsFindings) {
    clock.step = 0.001;
    options.cases = 0;
    options.seconds = 5;
    const PropertyReport report =
        run(planted_where([](const Spec& spec) { return spec.number("heads") >= 3; }));
    EXPECT_EQ(report.status, Status::falsified);
    EXPECT_THAT(report.counterexamples, SizeIs(1));
    EXPECT_GT(report.cases, 1);
    EXPECT_GE(report.seconds, 5);
    EXPECT_LT(report.seconds, 6);
}

// An interruption stops at once and keeps what there is.
TEST_F(EngineOutcomeTest, InterruptionKeepsTheFindings) {
    options.cases = 100'000;
    observer = [&](const PropertyReport& so_far) { clock.stopped = so_far.cases >= 150; };
    const PropertyReport report =
        run(planted_where([](const Spec& spec) { return spec.number("heads") >= 3; }));
    EXPECT_TRUE(report.interrupted);
    EXPECT_EQ(report.cases, 150);
    EXPECT_EQ(report.status, Status::falsified);
    EXPECT_THAT(report.counterexamples, SizeIs(1));
}

// An interruption in the middle of shrinking reports the best case so far.
TEST_F(EngineOutcomeTest, InterruptionWhileShrinkingKeepsTheBestCase) {
    int failures = 0;
    const PropertyReport report = run(planted_where([&](const Spec& spec) {
        const bool fails = spec.number("heads") >= 3;
        if (fails && ++failures == 6) clock.stopped = true;  // one found, three again, two steps
        return fails;
    }));
    ASSERT_THAT(report.counterexamples, SizeIs(1));
    EXPECT_GE(report.counterexamples[0].steps_taken, 1);
    EXPECT_THAT(report.counterexamples[0].certificate, HasSubstr("smaller cases may exist"));
}

// A case on which the suite itself fails is an error with the case, and never a success.
TEST_F(EngineOutcomeTest, ExceptionBecomesAnErrorWithTheCase) {
    Property property = planted({});
    property.check = [](const Spec&, PropertyContext&) -> Verdict {
        throw std::runtime_error("the reference gave up");
    };
    const PropertyReport report = run(property);
    EXPECT_EQ(report.status, Status::error);
    EXPECT_THAT(report.note, StartsWith("nsa_compress{"));
    EXPECT_THAT(report.note, HasSubstr("the reference gave up"));
    EXPECT_THAT(report.counterexamples, IsEmpty());
}

// What another process can bring about is a counterexample only when it happens again.
TEST_F(EngineOutcomeTest, DeathsFromOutsideAreConfirmed) {
    for (const char* death : {"crashed: SIGKILL", "crashed: SIGTERM", "timed out"}) {
        int calls = 0;
        const PropertyReport once = run(planted(
            [&](const Spec&) { return ++calls == 40 ? std::string(death) : std::string(); }));
        EXPECT_EQ(once.status, Status::error) << death;
        EXPECT_THAT(once.counterexamples, IsEmpty());
        EXPECT_THAT(once.note, HasSubstr("nsa_compress{"));
        EXPECT_THAT(once.note, HasSubstr("did not happen again"));
        EXPECT_EQ(once.cases, 100) << "the search goes on";
        const PropertyReport always = run(planted([&](const Spec& spec) {
            return spec.number("heads") >= 3 ? std::string(death) : std::string();
        }));
        EXPECT_EQ(always.status, Status::falsified) << death;
        ASSERT_THAT(always.counterexamples, SizeIs(1));
        EXPECT_TRUE(always.counterexamples[0].repeatable);
    }
    int calls = 0;
    const PropertyReport own = run(planted([&](const Spec&) {
        return ++calls == 40 ? std::string("crashed: SIGSEGV") : std::string();
    }));
    EXPECT_EQ(own.status, Status::falsified) << "nobody else sends this one";
}

// A machine on which calls end from outside again and again cannot judge anything.
TEST_F(EngineOutcomeTest, ThirdDeathFromOutsideEndsTheSearch) {
    int calls = 0;
    const PropertyReport report = run(planted(
        [&](const Spec&) { return ++calls % 10 == 0 ? std::string("crashed: SIGKILL") : ""; }));
    EXPECT_EQ(report.status, Status::error);
    EXPECT_LT(report.cases, 40);
}

// A library that cannot be started any more is named too.
TEST_F(EngineOutcomeTest, LibraryThatIsGoneIsAnErrorWithTheReason) {
    Property property = planted({});
    property.check = [](const Spec&, PropertyContext&) -> Verdict {
        throw LoadError("cannot load libgone.so");
    };
    try {
        const PropertyReport report = run(property);
        EXPECT_EQ(report.status, Status::error);
        EXPECT_THAT(report.note, HasSubstr("cannot load libgone.so"));
    } catch (const LoadError& e) {
        EXPECT_STREQ(e.what(), "cannot load libgone.so");
    }
}

// A seed stands for its cases.
TEST_F(EngineOutcomeTest, SameSeedGivesTheSameCases) {
    run(recording());
    const auto first = std::exchange(seen, {});
    run(recording());
    EXPECT_EQ(seen, first);
    seen.clear();
    options.seed = 2;
    run(recording());
    EXPECT_NE(seen, first);
}

// The shards of a run have its cases, each of them once, also where the property fails.
TEST_F(EngineOutcomeTest, ShardsShareTheCases) {
    options.cases = 1700;
    options.max_counterexamples = 2;
    for (const std::int64_t most_heads : {9999, 3}) {
        const auto failing = [&] {
            return planted_where([&](const Spec& spec) {
                seen.push_back(print(spec));
                return spec.number("heads") > most_heads;
            });
        };
        options.shards = 1, options.shard = 0;
        seen.clear();
        const PropertyReport whole = run(failing());
        EXPECT_EQ(whole.cases, 1700);
        for (options.shards = 1; options.shards < 7; ++options.shards) {
            DrawnCases drawn;
            std::int64_t cases = 0, first = 1'000'000;
            std::map<std::string, std::int64_t> labels;
            for (options.shard = 0; options.shard < options.shards; ++options.shard) {
                const PropertyReport part = run(failing());
                drawn = sum_of(drawn, part.drawn);
                cases += part.cases;
                for (const auto& [label, count] : part.labels) labels[label] += count;
                for (const Counterexample& found : part.counterexamples)
                    first = std::min<std::int64_t>(first, found.case_number);
            }
            EXPECT_EQ(cases, 1700) << options.shards;
            EXPECT_EQ(drawn.digest, whole.drawn.digest) << options.shards;
            EXPECT_EQ(labels, whole.labels);
            if (!whole.counterexamples.empty()) {
                EXPECT_EQ(first, whole.counterexamples.front().case_number);
            }
        }
        EXPECT_EQ(whole.counterexamples.empty(), most_heads == 9999);
    }
}

// A search that was ended goes on elsewhere: it comes to the same end, and runs no case twice.
TEST_F(EngineOutcomeTest, GoesOnInAnotherProcess) {
    options.cases = 1300;
    for (const std::int64_t most_heads : {9999, 3}) {
        const Property property = planted_where([&](const Spec& spec) {
            seen.push_back(print(spec));
            return spec.number("heads") > most_heads;
        });
        options.begun = nullptr;
        seen.clear();
        const PropertyReport whole = run(property);
        const std::size_t calls = seen.size();
        for (const std::int64_t cut : {1, 70, 499, 640}) {
            options.begun = nullptr;
            seen.clear();
            const PropertyReport part = PropertySearch(forward(), property, candidate, options, clock, known)
                                            .go_on({cut, 0}, observer);
            const PropertyReport begun = property_from_text(property_to_text(part), {&forward().schema()});
            EXPECT_LT(begun.cases, whole.cases);
            options.begun = &begun;
            const PropertyReport rest = run(property);
            EXPECT_EQ(rest.cases, whole.cases) << cut;
            EXPECT_EQ(rest.labels, whole.labels);
            EXPECT_EQ(rest.drawn.digest, whole.drawn.digest);
            EXPECT_EQ(rest.status, whole.status);
            ASSERT_EQ(rest.counterexamples.size(), whole.counterexamples.size());
            if (whole.counterexamples.empty()) {
                EXPECT_EQ(seen.size(), calls) << "none is run again";
            } else {
                EXPECT_EQ(rest.counterexamples[0].original, whole.counterexamples[0].original);
                EXPECT_EQ(rest.counterexamples[0].case_number, whole.counterexamples[0].case_number);
            }
        }
    }
}

// A small property is one shard's.
TEST_F(EngineOutcomeTest, ShardsWithoutAPortionRunNothing) {
    options.cases = 2;
    options.shards = 5;
    options.shard = 4;
    EXPECT_EQ(run(recording()).cases, 0);
    options.dealt_from = 4;
    EXPECT_EQ(run(recording()).cases, 2);
}

// Quotas are shares of all cases; what falls short is named with both numbers.
TEST(RequiredClasses, MissingOnesAreNamed) {
    constexpr double kMany = 1e9;
    std::map<std::string, double> percent;
    for (const RequiredClass& required : forward().required_classes()) percent[required.label] = 50;
    EXPECT_THAT(missing_classes(quotas_of(forward()), percent, kMany), IsEmpty());
    percent["leading_empty"] = 4.9;
    percent.erase("no_overlap");
    EXPECT_THAT(
        missing_classes(quotas_of(forward()), percent, kMany),
        testing::UnorderedElementsAre("leading_empty: 4.90 % of cases, at least 5 % required",
                                      "no_overlap: 0.00 % of cases, at least 5 % required"));
    percent["leading_empty"] = 5;
    EXPECT_THAT(missing_classes(quotas_of(forward()), percent, kMany), SizeIs(1));
}

// NaN behind hidden keys is of little use where a candidate multiplies them by 0: less of it is wanted.
TEST(RequiredClasses, HiddenNanIsRarerUnderTimesZero) {
    const ref::RoundingClass times_zero = ref::parse_rounding_class("hidden=times_zero");
    for (const char* name : {"attention", "attention_grad"}) {
        const Operator& op = *find_operator(name);
        const auto usual = quotas_of(op).percent, fewer = quotas_of(op, times_zero).percent;
        EXPECT_EQ(fewer.at("hidden_nan"), 1);
        EXPECT_EQ(usual.at("hidden_nan"), 4);
        EXPECT_EQ(fewer.at("bf16"), usual.at("bf16"));
    }
}

// Of 1000 cases 50 are wanted: 30 are fewer than chance explains, 35 are not.
TEST(RequiredClasses, ChanceIsNoLack) {
    const ClassQuotas quotas{.percent = {{"causal", 5}}};
    EXPECT_THAT(missing_classes(quotas, {{"causal", 3.5}}, 1000), IsEmpty());
    EXPECT_THAT(missing_classes(quotas, {{"causal", 2.8}}, 1000), SizeIs(1));
    EXPECT_THAT(missing_classes(quotas, {{"causal", 3.5}}, 10'000), SizeIs(1));
}

// A property with many small cases does not outweigh the others; edited cases and the first few of
// a property say nothing.
TEST(RequiredClasses, PropertiesCountAlike) {
    const auto report = [](const char* op, std::int64_t cases,
                           std::map<std::string, std::int64_t> labels) {
        PropertyReport made;
        made.op = op;
        made.cases = cases;
        made.labels = std::move(labels);
        made.drawn.edited = made.labels[kEditedLabel];
        return made;
    };
    const GeneratedClasses all = generated_classes(
        "a",
        {report("a", 10000, {{"large", 100}, {"small", 9000}}), report("a", 20, {{"large", 10}}),
         report("a", 70, {{"large", 10}, {kEditedLabel, 50}}), report("a", 19, {{"large", 19}}),
         report("b", 100, {{"large", 100}})});
    EXPECT_EQ(all.cases, 10040);
    EXPECT_NEAR(all.percent.at("large"), (1 + 50 + 50) / 3.0, 1e-9);
    EXPECT_NEAR(all.percent.at("small"), 30, 1e-9);
    EXPECT_EQ(generated_classes("c", {report("a", 100, {})}).cases, 0);
}

// The generators reach every required class, by so much that a run hardly ever falls short by
// chance.
TEST(RequiredClasses, GeneratorsReachThem) {
    constexpr std::int64_t kCases = 8000;
    constexpr double kReserve = 1.25;
    for (const auto& op : operators()) {
        std::map<std::string, double> percent;
        for (std::int64_t number = 0; number < kCases; ++number)
            for (const auto& label : op->labels(sampled(*op, static_cast<std::uint64_t>(number))))
                percent[label] += 100.0 / kCases / kReserve;
        EXPECT_THAT(missing_classes(quotas_of(*op), percent, 1e9), IsEmpty()) << op->name();
    }
}

}  // namespace
}  // namespace attncheck::properties
