// A search that is cut into slices: the same cases and the same findings as in one piece.
#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/properties/search/planted.h"

namespace attncheck::properties {
namespace {

class SlicesTest : public EngineTest {
protected:
    /// Fails once; keeps the cases that it is asked about.
    Property recording() {
        return planted([this](const Spec& spec) {
            cases.push_back(print(spec));
            return std::string(cases.size() == 50 ? "planted" : "");
        });
    }
    std::vector<std::string> cases;
};

// Slices by cases and by time end between two cases, and none is left out or met twice.
TEST_F(SlicesTest, HaveTheCasesOfAWholeSearch) {
    options.cases = 300;
    options.leaves_shrinking = true;
    clock.step = 0.01;
    run(recording());
    const std::vector<std::string> whole = std::exchange(cases, {});
    ASSERT_GE(whole.size(), 300u);
    const Property property = recording();
    PropertySearch search(forward(), property, candidate, options, clock, known);
    PropertyReport last;
    for (const Slice& slice : {Slice{1, 0}, Slice{7, 0}, Slice{40, 0}, Slice{0, 0.05}, Slice{0, 0.3}, Slice{200, 0}}) {
        EXPECT_FALSE(search.is_over());
        const std::size_t before = cases.size();
        last = search.go_on(slice, observer);
        if (slice.cases > 0 && slice.cases <= 40) {
            EXPECT_EQ(last.cases, slice.cases);
        }
        EXPECT_GE(cases.size(), before);
    }
    while (!search.is_over()) last = search.go_on({}, observer);
    EXPECT_EQ(cases, whole);
    EXPECT_EQ(last.cases, 300);
}

// A slow candidate meets the small ones of the plain cases first, and no others than any candidate.
TEST_F(SlicesTest, PlainCasesMayComeInTheOrderOfTheirSize) {
    constexpr std::size_t kPlain = 12;
    options.cases = 48;
    run(recording());
    std::vector<std::string> usual = std::exchange(cases, {});
    options.small_plain_first = true;
    run(recording());
    std::vector<std::int64_t> elements;
    for (std::size_t k = 0; k < kPlain; ++k) {
        std::int64_t sum = 0;
        for (const auto& shape : forward().shapes(parse(cases[k], {&forward().schema()})))
            sum += std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
        elements.push_back(sum);
    }
    EXPECT_TRUE(std::ranges::is_sorted(elements));
    EXPECT_NE(cases, usual);
    for (std::vector<std::string>* all : {&usual, &cases}) std::ranges::sort(*all);
    EXPECT_EQ(cases, usual);
}

// A counterexample that is left ends its slice; the search goes on without it, and it is shrunk by another search.
TEST_F(SlicesTest, LeaveCounterexamplesToOthers) {
    options.cases = 100;
    options.leaves_shrinking = true;
    const Property property = planted_where([](const Spec& spec) { return !spec.lists[0].empty(); });
    PropertySearch search(forward(), property, candidate, options, clock, known);
    PropertyReport report = search.go_on({}, observer);
    ASSERT_EQ(report.counterexamples.size(), 1u);
    const Counterexample found = report.counterexamples[0];
    EXPECT_TRUE(found.being_shrunk);
    EXPECT_EQ(found.spec, found.original);
    EXPECT_LT(report.cases, 100);
    EXPECT_FALSE(search.is_over());
    EXPECT_EQ(search.go_on({}, observer).cases, 100);
    const Counterexample smallest =
        PropertySearch(forward(), property, candidate, options, clock, known).shrunk(found);
    EXPECT_FALSE(smallest.being_shrunk);
    EXPECT_TRUE(smallest.certified) << smallest.certificate;
    EXPECT_EQ(smallest.original, found.original);
    EXPECT_EQ(smallest.case_number, found.case_number);
    EXPECT_EQ(smallest.spec.lists[0].size(), 1u);
}

}  // namespace
}  // namespace attncheck::properties
