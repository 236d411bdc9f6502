// Do the two validators agree? The predicate in ref/ and the validator in impl/ are written apart
// from the same contract: same verdict, same status, same parameter to blame, and what is drawn
// legal is accepted. A trap means one of these fails.
//
// Bytes become a call as in described_call.h.
#include <cstdio>

#include "fuzz/described_call.h"
#include "fuzz/target.h"

using namespace attncheck;

namespace {

/// "<parameter> <what it is>; allowed: <range>"
bool is_well_formed(const impl::Rejection& rejection) {
    return rejection.message.starts_with(rejection.parameter + ' ') &&
           rejection.message.find("; allowed: ") != std::string::npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto call = fuzz::described_call(fuzz::target.family, fuzz::CallBytes::parse(data, size));
    const std::optional<ref::Ruling> ruling = call->ruling();
    if (!ruling) return 0;
    const impl::MaybeRejection found = call->rejection();
    const impl::Rejection other = found.value_or(impl::Rejection{0, "", "accepted"});
    // Without an order of the rules two validators may name different parameters.
    const bool agree = ruling->any_status
                           ? (other.status == 0) == ruling->accepted()
                           : other.status == ruling->status && other.parameter == ruling->parameter;
    const bool explained = !found || is_well_formed(*found);
    const bool legal_accepted = ruling->accepted() ? !ruling->either_status : !call->unchanged();
    if (agree && explained && legal_accepted) return 0;
    std::fprintf(stderr, "ref:  %d %s\nimpl: %d %s\n%s", ruling->status, ruling->message.c_str(),
                 other.status, other.message.c_str(), call->unchanged() ? "drawn legal\n" : "");
    __builtin_trap();
}
