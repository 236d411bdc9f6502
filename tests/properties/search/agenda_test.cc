// One survey of an operator for all processes, and the text that passes it on.
#include "properties/search/agenda.h"

#include <gmock/gmock.h>

#include <vector>

#include "properties/operators/catalogue.h"
#include "properties/search/survey.h"

namespace attncheck::properties {
namespace {

const Operator& flash() { return *find_operator("flash_attention_score"); }
const Operator& compress() { return *find_operator("nsa_compress"); }

/// Steps 0 and 1 of one operator, 2 of another, 3 of one without a survey.
Agenda small_agenda(std::size_t& step) {
    return Agenda({4, [&step] { return std::min<std::size_t>(step++, 4); },
                   [](std::size_t of) -> const Operator* {
                       return of == 3 ? nullptr : of == 2 ? &compress() : &flash();
                   }});
}

// The survey is asked for once, other operators do not wait for it, and its text goes with every step.
TEST(Agenda, AsksForOneSurveyOfEachOperator) {
    std::size_t step = 0;
    Agenda agenda = small_agenda(step);
    const auto first = agenda.next(), second = agenda.next(), third = agenda.next();
    ASSERT_TRUE(first && second && third);
    EXPECT_TRUE(first->is_survey);
    EXPECT_EQ(first->number, 4u);
    EXPECT_TRUE(second->is_survey) << "of the other operator";
    EXPECT_EQ(second->number, 6u);
    EXPECT_EQ(third->number, 3u);
    EXPECT_FALSE(agenda.next()) << "the rest waits";
    agenda.learned(4, "what was learned");
    for (const std::size_t expected : {0u, 1u}) {
        const auto question = agenda.next();
        ASSERT_TRUE(question);
        EXPECT_EQ(question->number, expected);
        EXPECT_EQ(question->survey, "what was learned");
    }
    EXPECT_FALSE(agenda.next());
}

// What is learned is the same after it was text.
TEST(SurveyText, ReadsBack) {
    Survey known{Scope(flash()), 12, 7, false, {"dim=64 (3 %)", "dim 84 %", {"bf16", "TND"}, {}}, "no mask here"};
    Random random(3);
    for (int k = 0; k < 5; ++k) known.scope.accept(flash().sample(random, 10 * k));
    known.scope.refuse(0, 2);
    known.scope.close(3);
    known.scope.refuse_together({{1, 4}, {5, -1}});
    known.taken.pairs.add(70);
    const Survey again = survey_from(to_text(known), flash(), "", Profile::ascend910b);
    EXPECT_EQ(to_text(again), to_text(known));
    EXPECT_EQ(again.scope.text(), known.scope.text());
    EXPECT_EQ(again.calls, 12);
    EXPECT_EQ(again.reason, "no mask here");
    EXPECT_EQ(again.taken.pairs, known.taken.pairs);
    for (int k = 0; k < 300; ++k) {
        const Spec spec = flash().sample(random, k % 100);
        EXPECT_EQ(again.scope.holds(spec), known.scope.holds(spec)) << print(spec);
    }
    EXPECT_THROW((void)survey_from("nothing known", flash(), "", Profile::ascend910b),
                 std::invalid_argument);
}

// A size that is never taken is not drawn for ever.
TEST(Scope, SizesThatAreNeverTakenAreLeftOut) {
    const Operator& op = flash();
    Scope scope(op);
    const auto with_rope = [](int rope) {
        return parse("flash_attention_score{dtype=fp16 q=[2] kv=[3] layout=BSND kv_heads=1 group=1 "
                     "dim=128 rope=" + std::to_string(rope) + " value_dim=128 data=normal seed=1}",
                     schemas());
    };
    for (int k = 0; k < 10; ++k) scope.accept(with_rope(0));
    EXPECT_TRUE(scope.holds(with_rope(64)));
    for (const int rope : {64, 32, 16, 8, 24}) EXPECT_TRUE(scope.suspect(with_rope(rope)));
    EXPECT_FALSE(scope.holds(with_rope(40)));
    EXPECT_TRUE(scope.holds(with_rope(0)));
}

}  // namespace
}  // namespace attncheck::properties
