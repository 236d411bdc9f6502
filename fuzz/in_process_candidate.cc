#include "fuzz/in_process_candidate.h"

#include <sys/mman.h>

#include <iterator>

#include "properties/candidate/protocol.h"

namespace attncheck::fuzz {
namespace {

using namespace properties;

template <class Arguments, int (*entry)(const Arguments*)>
int call_entry(const void* arguments) {
    return entry(static_cast<const Arguments*>(arguments));
}

/// In the order of kEntryPoints.
using EntryPoint = int (*)(const void*);
constexpr EntryPoint kEntries[] = {
    call_entry<attncheck_nsa_compress_args, attncheck_nsa_compress>,
    call_entry<attncheck_nsa_compress_grad_args, attncheck_nsa_compress_grad>,
    call_entry<attncheck_nsa_selected_attention_args, attncheck_nsa_selected_attention>,
    call_entry<attncheck_nsa_selected_attention_grad_args, attncheck_nsa_selected_attention_grad>,
    call_entry<attncheck_nsa_compress_attention_args, attncheck_nsa_compress_attention>,
    call_entry<attncheck_flash_attention_score_args, attncheck_flash_attention_score>,
    call_entry<attncheck_flash_attention_score_grad_args, attncheck_flash_attention_score_grad>};
static_assert(std::size(kEntries) == std::size(kEntryPoints));

void protect(const Request& request, int protection) {
    const auto* table = reinterpret_cast<const std::uint64_t*>(request.guards);
    for (std::uint32_t i = 0; i < request.guard_count; ++i)
        mprotect(reinterpret_cast<void*>(table[2 * i]), table[2 * i + 1], protection);
}

}  // namespace

InProcessCandidate::InProcessCandidate() {
    info_.name = attncheck_candidate_name();
    info_.precision = attncheck_precision();
    info_.operators.assign(std::begin(kEntryPoints), std::end(kEntryPoints));
}

CallResult InProcessCandidate::run(const Call& call, const RunOptions& options) {
    const PlacedCalls placed({&call}, options, 1);
    const Request& request = placed.request();
    CallResult result;
    protect(request, PROT_NONE);
    result.status = kEntries[request.op[0]](reinterpret_cast<const void*>(request.arguments[0]));
    protect(request, PROT_READ | PROT_WRITE);
    placed.collect(0, result);
    arena_.give_back(placed.bytes_used());
    return result;
}

std::vector<CallResult> InProcessCandidate::run_together(std::span<const Call* const> calls, int) {
    std::vector<CallResult> results;
    for (const Call* call : calls) results.push_back(run(*call, {}));
    return results;
}

}  // namespace attncheck::fuzz
