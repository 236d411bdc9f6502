// Which property is searched when, how far and for how long.
#include "properties/search/rounds.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "properties/operators/catalogue.h"
#include "properties/search/law_order.h"
#include "properties/search/progress.h"

namespace attncheck::properties {
namespace {

std::vector<const Property*> laws_of(const std::string& op) {
    std::vector<const Property*> all;
    for (const Property& property : find_operator(op)->properties())
        if (!property.large) all.push_back(&property);
    return all;
}

/// A library of which a case takes `seconds`, checked by `processes` that take turns.
struct PlayedRun {
    std::vector<const Property*> laws = laws_of("attention");
    double seconds = 0.01, now = 0;
    std::vector<std::int64_t> met = std::vector<std::int64_t>(laws.size());
    std::vector<double> spent = std::vector<double>(laws.size());
    std::vector<std::size_t> order;

    /// One slice; false: there is none.
    bool step(Rounds& rounds, int process, std::int64_t wanted = 0) {
        const auto i = rounds.next(process);
        if (!i) return false;
        order.push_back(*i);
        const Slice slice = rounds.slice(*i, process, now);
        double used = 0;
        while ((slice.cases == 0 || met[*i] < slice.cases) && (slice.seconds <= 0 || used < slice.seconds) &&
               (wanted == 0 || met[*i] < wanted)) {
            ++met[*i];
            used += seconds;
        }
        now += used;
        spent[*i] += used;
        rounds.came_back(*i, met[*i], spent[*i], wanted > 0 && met[*i] >= wanted);
        return true;
    }
};

std::size_t law_named(const PlayedRun& run, std::string_view name) {
    return static_cast<std::size_t>(
        std::ranges::find_if(run.laws, [&](const Property* law) { return law->name == name; }) -
        run.laws.begin());
}

// What killed most defects per second comes first; a law that killed none comes behind all others.
TEST(LawOrder, IsThatOfTheMutationScores) {
    ASSERT_GT(law_order().size(), 10u);
    EXPECT_LT(rank_of("validation"), 2u);
    EXPECT_LT(rank_of("agreement"), 2u);
    EXPECT_EQ(rank_of("no such law"), law_order().size());
}

// The laws that find most have a glance each. Then every law has its first slice before one has its second, and all of
// them in the time of the first round.
TEST(Rounds, FirstOneMeetsEveryLawInItsTime) {
    for (const double seconds : {0.0001, 0.01, 0.2}) {
        PlayedRun run;
        run.seconds = seconds;
        Rounds rounds(run.laws, {0, 60, 10, 1});
        while (!rounds.is_first_over()) ASSERT_TRUE(run.step(rounds, 0));
        EXPECT_LE(run.now, 10 + seconds * static_cast<double>(run.laws.size()));
        ASSERT_GT(run.order.size(), run.laws.size());
        const auto glances = static_cast<std::ptrdiff_t>(run.order.size() - run.laws.size());
        EXPECT_LE(glances, 4);
        const std::set first(run.order.begin(), run.order.begin() + glances);
        EXPECT_EQ(first.size(), static_cast<std::size_t>(glances));
        EXPECT_EQ(first.count(law_named(run, "agreement")), 1u);
        EXPECT_EQ(std::set(run.order.begin() + glances, run.order.end()).size(), run.laws.size());
        EXPECT_EQ(run.laws[run.order[0]]->name, "agreement");  // what most defects fell by
        const std::size_t begin = static_cast<std::size_t>(glances);
        EXPECT_EQ(rank_of(run.laws[run.order[begin]]->name), 0u);
        EXPECT_LE(rank_of(run.laws[run.order[begin]]->name), rank_of(run.laws[run.order[begin + 1]]->name));
    }
}

// When the time suffices for it, every law meets the cases that make it conclusive.
TEST(Rounds, SecondOneMakesEveryLawConclusive) {
    PlayedRun run;
    run.seconds = 50.0 / static_cast<double>(run.laws.size() * (kConclusiveCases + 10));
    Rounds rounds(run.laws, {0, 60, 10, 1});
    while (run.now < 60 && run.step(rounds, 0)) {}
    for (std::size_t i = 0; i < run.laws.size(); ++i)
        EXPECT_GE(run.met[i], kConclusiveCases) << run.laws[i]->name;
}

// A kernel under an interpreter takes seconds for a case: the law that finds most meets the cases of a verdict, instead of
// every law one.
TEST(Rounds, SlowCandidatesHaveOneLawAfterTheOther) {
    PlayedRun run;
    run.seconds = 1.5;
    Rounds rounds(run.laws, {0, 60, 10, 1});
    while (run.now < 60 && run.step(rounds, 0)) {}
    EXPECT_EQ(run.met[law_named(run, "agreement")], kConclusiveCases);
    EXPECT_LE(std::ranges::count_if(run.met, [](std::int64_t met) { return met > 0; }), 4);
}

// Later rounds are four times as large each: none of them leaves a law far behind the others.
TEST(Rounds, GrowUntilTheTimeIsUp) {
    PlayedRun run;
    run.seconds = 0.0005;
    Rounds rounds(run.laws, {0, 60, 10, 1});
    while (run.now < 60 && run.step(rounds, 0)) {}
    const auto [least, most] = std::ranges::minmax(run.met);
    EXPECT_GE(least, 640);
    EXPECT_LE(most, 8 * least);
}

// Without a time limit a law has a first slice, and then its whole search.
TEST(Rounds, EndWithTheCasesAskedFor) {
    PlayedRun run;
    Rounds rounds(run.laws, {0, 0, 10, 1});
    while (run.step(rounds, 0, 400)) {}
    EXPECT_THAT(run.met, testing::Each(400));
    EXPECT_GE(run.order.size(), 2 * run.laws.size());
    EXPECT_LE(run.order.size(), 2 * run.laws.size() + 4);
}

// A search stays with its process; one of a process that is busy is begun anew when nothing else is left to do.
TEST(Rounds, SearchesStayWithTheirProcess) {
    PlayedRun run;
    std::erase_if(run.laws, [](const Property* law) {  // that have a glance
        return law->name == "agreement" || law->name == "validation" || law->name == "deviation";
    });
    run.laws.resize(3);
    Rounds rounds(run.laws, {0, 0, 0, 2});
    ASSERT_TRUE(run.step(rounds, 0));
    ASSERT_TRUE(run.step(rounds, 1));
    const std::size_t of_first = run.order[0], of_second = run.order[1];
    ASSERT_TRUE(run.step(rounds, 0));
    EXPECT_EQ(rounds.next(0), of_first);
    EXPECT_EQ(rounds.next(1), of_second);
    EXPECT_EQ(rounds.next(1), run.order[2]) << "of process 0, which is busy";
    EXPECT_EQ(rounds.next(0), std::nullopt);
}

// The progress line is no wider than the terminal.
TEST(ProgressLine, IsCut) {
    EXPECT_EQ(cut_to("[1/2] nsa", 0), "[1/2] nsa");
    EXPECT_EQ(cut_to("[1/2] nsa", 9), "[1/2] nsa");
    EXPECT_EQ(cut_to("[1/2] nsa", 6), "[1/2]>");
}

}  // namespace
}  // namespace attncheck::properties
