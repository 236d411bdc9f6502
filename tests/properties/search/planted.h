// Properties that look at the Spec alone, a candidate that is never really called, and a clock that
// the test moves: the engine without processes and without waiting.
#pragma once

#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/properties/case/case_line.h"
#include "properties/search/engine.h"

namespace attncheck::properties {

class MockCandidate : public Candidate {
public:
    MOCK_METHOD(const CandidateInfo&, info, (), (const, override));
    MOCK_METHOD(CallResult, run, (const Call&, const RunOptions&), (override));
    MOCK_METHOD(std::vector<CallResult>, run_together, (std::span<const Call* const>, int),
                (override));
    MOCK_METHOD(void, restart, (), (override));
    MOCK_METHOD(std::string, written_during, (const std::function<void()>&), (override));
    MOCK_METHOD(void, limit_time, (std::chrono::duration<double>), (override));
};

/// Every call of the candidate, alone or together with others, is answered by `answer`.
inline void answer_calls(MockCandidate& candidate, std::function<CallResult(const Call&)> answer) {
    ON_CALL(candidate, run).WillByDefault([answer](const Call& call, const RunOptions&) { return answer(call); });
    ON_CALL(candidate, run_together).WillByDefault([answer](std::span<const Call* const> calls, int) {
        std::vector<CallResult> results;
        for (const Call* call : calls) results.push_back(answer(*call));
        return results;
    });
}

/// Zeros, which most relations hold for, so that laws run to their end.
inline CallResult zeros_for(const Call& call) {
    CallResult result;
    for (const Tensor& tensor : call.tensors) result.outputs.emplace_back(tensor.output ? tensor.elements() : 0);
    return result;
}

/// Advances by `step` seconds whenever it is read.
class FakeClock : public Clock {
public:
    double now() const override { return time += step; }
    bool interrupted() const override { return stopped; }
    mutable double time = 100;
    double step = 0;
    bool stopped = false;
};

/// Failure class of a Spec; empty where the property holds.
using Planted = std::function<std::string(const Spec&)>;

inline Property planted(Planted defect) {
    Property property;
    property.name = "planted";
    property.check = [defect = std::move(defect)](const Spec& spec, PropertyContext&) {
        const std::string failure = defect(spec);
        return failure.empty() ? Verdict{} : Verdict::fail(failure, "planted in " + print(spec));
    };
    return property;
}

inline Property planted_where(std::function<bool(const Spec&)> predicate) {
    return planted([predicate = std::move(predicate)](const Spec& spec) {
        return std::string(predicate(spec) ? "planted" : "");
    });
}

class EngineTest : public testing::Test {
protected:
    PropertyReport run(const Property& property, const Operator& op = forward()) {
        return run_property(op, property, candidate, options, clock, observer, known);
    }

    testing::NiceMock<MockCandidate> candidate;
    FakeClock clock;
    EngineOptions options;
    CaseObserver observer = [](const PropertyReport&) {};
    KnownMinima known;
};

}  // namespace attncheck::properties
