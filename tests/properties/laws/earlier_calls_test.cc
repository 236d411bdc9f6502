// The calls before a judged call: legal ones of the same shapes that change what a library takes.
#include <algorithm>
#include <set>

#include "properties/case/case_of_call.h"
#include "properties/case/derived.h"
#include "properties/operators/catalogue.h"
#include "tests/properties/case/every_operator.h"
#include "tests/properties/search/planted.h"

namespace attncheck::properties {
namespace {

/// A candidate that records its calls, and the law on a case: the calls before the judged one, which is the
/// last.
class History {
public:
    explicit History(const Operator& op) : op_(op), property_(*op.property("history")) {
        ON_CALL(candidate_, info).WillByDefault(testing::ReturnRef(info_));
        answer_calls(candidate_, [this](const Call& call) {
            calls_.push_back(call);
            CallResult result = zeros_for(call);
            if (declines && declines(call)) result.status = ATTNCHECK_DECLINED;
            return result;
        });
    }

    /// The case of a seed of its own; no calls where it is not in the domain.
    std::vector<Call> calls_of(Spec spec, Random& random) {
        if (property_.adapt) property_.adapt(spec, random);
        calls_.clear();
        if (illegal(spec) || (property_.domain && !property_.domain(spec)) || (declared && !declared(spec)))
            return {};
        PropertyContext context{.candidate = candidate_, .rounding = {}, .declared = declared};
        property_.check(spec, context);
        return calls_;
    }
    Spec drawn(Random& random) const { return op_.sample(random, 10); }

    std::function<bool(const Call&)> declines;
    std::function<bool(const Spec&)> declared;

private:
    const Operator& op_;
    const Property& property_;
    testing::NiceMock<MockCandidate> candidate_;
    CandidateInfo info_;
    std::vector<Call> calls_;
};

class CallsBefore : public OperatorTest {};

/// Of the same shapes but for some that have another width or other lengths, and no other extent.
TEST_P(CallsBefore, AreLegalAndOfTheSameShapes) {
    History history(op());
    Random random(4);
    int same = 0, others = 0;
    for (int k = 0; k < 40; ++k) {
        const std::vector<Call> calls = history.calls_of(history.drawn(random), random);
        if (calls.empty()) continue;
        ASSERT_GE(calls.size(), 2u);
        const Call& judged = calls.back();
        for (const Call& call : calls) {
            EXPECT_TRUE(rule(call).accepted()) << rule(call).message;
            bool is_same = true;
            for (std::size_t i = 0; i < judged.tensors.size(); ++i)
                if (judged.tensors[i].present && call.tensors[i].present) {
                    EXPECT_EQ(call.tensors[i].shape.size(), judged.tensors[i].shape.size());
                    is_same = is_same && call.tensors[i].shape == judged.tensors[i].shape;
                }
            (is_same ? same : others) += 1;
        }
    }
    EXPECT_GE(others, 1);
    EXPECT_GT(same, 3 * others);
}

/// All but compositions, which have no call of their own.
std::vector<const Operator*> operators_with_a_history() {
    std::vector<const Operator*> all = every_operator();
    std::erase_if(all, [](const Operator* op) { return !op->property("history"); });
    return all;
}
INSTANTIATE_TEST_SUITE_P(Operators, CallsBefore, testing::ValuesIn(operators_with_a_history()), named_after_it);

/// A window that a library does not take costs no other change.
TEST(CallsBeforeOfRestrictedLibraries, KeepTheOtherChanges) {
    History history(*find_operator("attention"));
    history.declared = [](const Spec& spec) { return spec.number("window_right") == 0; };
    Random random(5);
    std::set<std::string> changed;
    for (int k = 0; k < 200; ++k) {
        Spec spec = history.drawn(random);
        spec.set("window_right", 0);
        const std::vector<Call> calls = history.calls_of(spec, random);
        if (calls.empty()) continue;
        const Spec before = case_of(calls[0])->spec, judged = case_of(calls.back())->spec;
        for (const char* field : {"scale", "softcap", "window_left", "window_right", "align", "layout"})
            if (before.number(field) != judged.number(field)) changed.insert(field);
    }
    EXPECT_THAT(changed, testing::UnorderedElementsAre("scale", "softcap", "window_left", "align", "layout"));
}

/// A plan cached by all arguments but one shows where that one alone is another.
TEST(CallsBeforeOfAttention, ChangeOneArgumentAlone) {
    History history(*find_operator("attention"));
    Random random(5);
    std::set<std::string> alone;
    for (int k = 0; k < 300; ++k) {
        const std::vector<Call> calls = history.calls_of(history.drawn(random), random);
        if (calls.empty()) continue;
        const Spec before = case_of(calls[0])->spec, judged = case_of(calls.back())->spec;
        std::vector<std::string> fields;
        for (std::size_t f = 0; f < judged.numbers.size(); ++f)
            if (before.numbers[f] != judged.numbers[f]) fields.push_back(judged.schema->numbers[f].key);
        if (fields.size() == 1) alone.insert(fields[0]);
    }
    EXPECT_THAT(alone, testing::IsSupersetOf({"scale", "softcap", "window_left", "window_right", "layout"}));
}

/// A call that a library declines leaves nothing behind to be found: another one comes before.
TEST(CallsBeforeOfRestrictedLibraries, AreMadeUntilOneIsTaken) {
    History history(*find_operator("attention"));
    double wanted = 0;
    history.declines = [&](const Call& call) { return call.real("scale") != wanted; };
    Random random(5);
    int with_another = 0;
    for (int k = 0; k < 60; ++k) {
        const Spec spec = history.drawn(random);
        wanted = outline_of(extents_of(spec)).real("scale");
        const std::vector<Call> calls = history.calls_of(spec, random);
        if (calls.size() < 2) continue;
        EXPECT_FALSE(std::ranges::all_of(calls.begin(), calls.end() - 1, history.declines));
        with_another += history.declines(calls[0]);
    }
    EXPECT_GT(with_another, 5);
}

}  // namespace
}  // namespace attncheck::properties
