// Does the implementation run clean on whatever is accepted? A case with edited arguments that the
// contract still accepts runs twice on the built-in implementation in this process, with buffers
// that end at and begin at an inaccessible page, under whatever sanitizers the program has. It must
// succeed, write every output element, nothing between them, and no input. A trap means it did not.
//
// An edit may leave less of an output than the case has memory for: then only success and memory
// outside of outputs are checked.
//
// The bytes are a case line; what is none, is illegal or is large is passed over, and so is a call
// that the contract rejects or that asks for more memory than its case.
#include <algorithm>
#include <stdexcept>

#include "fuzz/fuzzed_case.h"
#include "fuzz/in_process_candidate.h"
#include "fuzz/target.h"
#include "properties/laws/call_properties.h"

using namespace attncheck;

namespace {

/// The call with its edits; nothing when one of them names nothing of it.
std::optional<properties::Call> edited_call(const properties::Operator& op,
                                            const properties::Spec& spec) {
    try {
        return op.build(spec);
    } catch (const std::invalid_argument&) {
        return std::nullopt;
    }
}

bool has_all_its_memory(const properties::Tensor& tensor) {
    return !tensor.output || !tensor.present || tensor.shape == tensor.buffer_shape;
}

/// Success and memory, for one placement of the buffers.
properties::Verdict check_call(const properties::Call& call, properties::Placement placement,
                               properties::Candidate& candidate) {
    const properties::CallResult result = candidate.run(call, {placement});
    if (auto verdict = properties::verdict_unless_ok(result)) return *verdict;
    if (result.damage.empty()) return {};
    return properties::Verdict::fail("memory", result.damage[0].tensor + result.damage[0].what);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static fuzz::InProcessCandidate candidate;
    const std::optional<properties::Spec> spec = fuzz::read_case(fuzz::target.family, data, size);
    if (!spec || fuzz::may_edits_be_large(*spec)) return -1;  // not for the corpus
    const auto* op = properties::find_operator(spec->schema->op);
    const std::optional<properties::Call> call = edited_call(*op, *spec);
    if (!call || !properties::rule(*call).accepted() || !properties::runnable_after_edits(*call)) return -1;
    properties::PropertyContext context{candidate, {}};
    if (std::all_of(call->tensors.begin(), call->tensors.end(), has_all_its_memory)) {
        fuzz::require_held(*spec, properties::check_memory(*spec, context, {*call, {}}));
        return 0;
    }
    for (const auto placement :
         {properties::Placement::ends_at_guard, properties::Placement::begins_at_guard})
        fuzz::require_held(*spec, check_call(*call, placement, candidate));
    return 0;
}
