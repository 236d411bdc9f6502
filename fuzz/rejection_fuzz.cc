// Does a rejected call leave everything alone? The entry point gets calls that the contract
// rejects. Their tensors lie in a page that can be neither read nor written, so that a single byte
// written to an output (or read from an input before all checks are done) ends the program. A trap
// means that the status is not the documented one.
//
// Bytes become a call as in described_call.h.
#include <cstdio>

#include "fuzz/described_call.h"
#include "fuzz/target.h"

using namespace attncheck;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto call = fuzz::described_call(fuzz::target.family, fuzz::CallBytes::parse(data, size));
    const std::optional<ref::Ruling> ruling = call->ruling();
    if (!ruling || ruling->accepted()) return -1;  // not for the corpus
    const int status = call->enter();
    if (ruling->any_status && status != 0) return 0;
    if (status == ruling->status && impl::last_error_message().starts_with(ruling->parameter))
        return 0;
    std::fprintf(stderr, "contract: %d %s\nreturned: %d %s\n", ruling->status,
                 ruling->message.c_str(), status, impl::last_error_message().c_str());
    __builtin_trap();
}
