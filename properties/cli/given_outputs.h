// Outputs that were computed elsewhere, as a candidate.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "properties/candidate/candidate.h"
#include "properties/case/description.h"
#include "properties/cli/judge_given.h"
#include "properties/operators/catalogue.h"

namespace attncheck::properties {

/// Answers every call with what was given: outputs by name, those of a gradient's forward by what
/// the gradient was given.
class GivenOutputs final : public Candidate {
public:
    explicit GivenOutputs(const GivenCall& given) : given_(given) {
        info_.name = "the given outputs";
        for (const auto& op : operators()) info_.operators.push_back(op->name());
    }
    const CandidateInfo& info() const override { return info_; }
    CallResult run(const Call& call, const RunOptions&) override {
        CallResult result;
        for (std::size_t i = 0; i < call.tensors.size(); ++i) {
            const TensorField& field = call.description->tensors[i];
            result.outputs.emplace_back();
            if (!field.output || !call.tensors[i].present) continue;
            const auto it = given_.bits.find(
                field.role == Role::output && !given_.bits.contains(field.name) ? "attention_in"
                                                                                : field.name);
            if (it == given_.bits.end())
                throw std::invalid_argument(field.name + " is missing");
            result.outputs.back() = it->second;
        }
        return result;
    }
    std::vector<CallResult> run_together(std::span<const Call* const> calls, int) override {
        std::vector<CallResult> results;
        for (const Call* call : calls) results.push_back(run(*call, {}));
        return results;
    }
    void restart() override {}
    void limit_time(std::chrono::duration<double>) override {}

private:
    const GivenCall& given_;
    CandidateInfo info_;
};

}  // namespace attncheck::properties
