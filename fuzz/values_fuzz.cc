// Are the values right? A legal case of an operator or its gradient runs on the built-in
// implementation in this process and is compared, element by element, with the binary64 reference
// under the rigorous bound. A trap means that an element is outside.
//
// The bytes are a case line; what is none, is illegal, is large or has edits is passed over.
#include "fuzz/fuzzed_case.h"
#include "fuzz/in_process_candidate.h"
#include "fuzz/target.h"

using namespace attncheck;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static fuzz::InProcessCandidate candidate;
    const std::optional<properties::Spec> spec = fuzz::read_case(fuzz::target.family, data, size);
    if (!spec || !spec->edits.empty()) return -1;  // not for the corpus
    properties::PropertyContext context{candidate, ref::parse_rounding_class("default")};
    const auto* op = properties::find_operator(spec->schema->op);
    fuzz::require_held(*spec, op->property("agreement")->check(*spec, context));
    return 0;
}
