#include "fuzz/in_process_candidate.h"

#include <sys/mman.h>

#include <algorithm>
#include <string_view>

#include <attncheck/candidate.h>

#include "impl/validated_entry_points.h"
#include "properties/candidate/placed_calls.h"
#include "properties/candidate/protocol.h"

namespace attncheck::fuzz {
namespace {

using namespace properties;

int enter(const char* op, const void* arguments) {
    const auto all = impl::entry_points();
    return std::ranges::find(all, std::string_view(op), &impl::EntryPoint::name)->enter(arguments);
}

void protect(const Request& request, int protection) {
    const auto* table = reinterpret_cast<const std::uint64_t*>(request.guards);
    for (std::uint32_t i = 0; i < request.guard_count; ++i)
        mprotect(reinterpret_cast<void*>(table[2 * i]), table[2 * i + 1], protection);
}

}  // namespace

InProcessCandidate::InProcessCandidate() {
    info_.name = attncheck_candidate_name();
    info_.precision = attncheck_precision();
    for (const impl::EntryPoint& entry : impl::entry_points())
        info_.operators.emplace_back(entry.name);
}

CallResult InProcessCandidate::run(const Call& call, const RunOptions& options) {
    const std::int64_t before_mib = arena_.resident_mib();
    const PlacedCalls placed({&call}, options, 1, arena_.bytes());
    const Request& request = placed.request();
    CallResult result;
    protect(request, PROT_NONE);
    result.status = enter(request.op[0], reinterpret_cast<const void*>(request.arguments[0]));
    protect(request, PROT_READ | PROT_WRITE);
    placed.collect(0, result);
    arena_.give_back(placed.bytes_used(), before_mib);
    return result;
}

std::vector<CallResult> InProcessCandidate::run_together(std::span<const Call* const> calls, int) {
    std::vector<CallResult> results;
    for (const Call* call : calls) results.push_back(run(*call, {}));
    return results;
}

}  // namespace attncheck::fuzz
