// Features that a candidate declares: nothing outside of them is drawn, walked to or reported.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "properties/operators/catalogue.h"
#include "properties/search/survey.h"
#include "tests/properties/search/planted.h"

namespace attncheck::properties {
namespace {

const Operator& flash_operator() { return *find_operator("flash_attention_score"); }

/// Takes every call, and time for each.
class SlowCandidate : public testing::NiceMock<MockCandidate> {
public:
    explicit SlowCandidate(double seconds) {
        ON_CALL(*this, run).WillByDefault([seconds](const Call&, const RunOptions&) {
            CallResult result;
            result.seconds = seconds;
            return result;
        });
    }
};

// Importing a framework and compiling for each shape takes longer than the survey has.
TEST(DeclaredFeatures, HoldForSlowCandidates) {
    for (const double seconds : {0.0, 11.0}) {
        SlowCandidate candidate(seconds);
        const Survey known = survey(flash_operator(), candidate, 1, Profile::ascend910b, "dtype=fp32");
        EXPECT_TRUE(known.scope.is_declared()) << seconds;
        Random random(5);
        const auto inside = known.scope.brought_inside(flash_operator().sample(random, 20), random);
        ASSERT_TRUE(inside.has_value()) << seconds;
        EXPECT_EQ(inside->number("dtype"), 2) << seconds;  // fp32
    }
}

// A case outside of what is declared accuses nobody, however small it is.
TEST(DeclaredFeatures, HoldForSmallestCases) {
    SlowCandidate candidate(0);
    const Operator& op = flash_operator();
    const Survey known =
        survey(op, candidate, 1, Profile::ascend910b, "dtype=fp32 group=2 layout=BSND");
    EngineOptions options;
    options.cases = 20;
    options.max_counterexamples = 1;
    options.survey = &known;
    KnownMinima minima;
    const PropertyReport report =
        run_property(op, planted_where([](const Spec&) { return true; }), candidate, options,
                     system_clock(), [](const PropertyReport&) {}, minima);
    ASSERT_EQ(report.counterexamples.size(), 1u);
    const Counterexample& found = report.counterexamples.front();
    EXPECT_TRUE(known.scope.holds(found.spec)) << print(found.spec);
    EXPECT_TRUE(found.certified) << found.certificate;
}

// A law that is about what a library declares not to take asks it for nothing.
TEST(DeclaredFeatures, HoldForWhatALawAdds) {
    SlowCandidate candidate(0);
    EXPECT_CALL(candidate, run).Times(testing::AnyNumber());
    const Operator& op = *find_operator("attention_merge");
    const Survey known = survey(op, candidate, 1, Profile::ascend910b, "dead=none");
    EngineOptions options;
    options.cases = 30;
    options.survey = &known;
    KnownMinima minima;
    EXPECT_CALL(candidate, run).Times(0);
    const PropertyReport report = run_property(op, *op.property("dead_part"), candidate, options, system_clock(),
                                               [](const PropertyReport&) {}, minima);
    EXPECT_THAT(report.counterexamples, testing::IsEmpty());
    EXPECT_EQ(report.status, PropertyReport::Status::declined);
}

// Laws change the number of parts, rows and heads: never beyond what a library declares.
TEST(DeclaredFeatures, HoldForCallsOfLaws) {
    const Operator& op = *find_operator("attention_merge");
    const std::string features = "parts=4..8 rows=2..6 heads=3 statistics=given";
    int calls = 0;
    for (const Property& property : op.properties()) {
        if (property.validation) continue;
        std::vector<std::string> outside;
        testing::NiceMock<MockCandidate> candidate;
        const auto take = [&](const Call& call) {
            ++calls;
            const auto& shape = call.tensor("parts").shape;
            if (shape[0] < 4 || shape[0] > 8 || shape[1] < 2 || shape[1] > 6 || shape[2] != 3 ||
                !call.tensor("lse").present)
                outside.push_back(fmt::format("{}x{}x{}", shape[0], shape[1], shape[2]));
            return zeros_for(call);
        };
        answer_calls(candidate, take);
        const Survey known = survey(op, candidate, 1, Profile::ascend910b, features);
        outside.clear();
        EngineOptions options;
        options.cases = 40;
        options.declared = declared_cases("attention_merge: " + features, operators());
        options.survey = &known;
        options.max_counterexamples = 100;
        options.shrink_seconds = 0.1;
        KnownMinima minima;
        static_cast<void>(run_property(op, property, candidate, options, system_clock(),
                                       [](const PropertyReport&) {}, minima));
        EXPECT_THAT(outside, testing::IsEmpty()) << property.name;
    }
    EXPECT_GT(calls, 1000) << "of the survey and the laws";
}

}  // namespace
}  // namespace attncheck::properties
