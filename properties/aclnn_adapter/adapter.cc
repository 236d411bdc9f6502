// A candidate made of the vendor's libraries: who it is and what it has.
#include <attncheck/candidate.h>

#include <string>

#include "properties/aclnn_adapter/operators.h"
#include "properties/aclnn_adapter/vendor_libraries.h"

namespace attncheck::aclnn_adapter {

std::map<std::string_view, bool (*)()>& vendor_operators() {
    static std::map<std::string_view, bool (*)()> all;
    return all;
}

}  // namespace attncheck::aclnn_adapter

using namespace attncheck::aclnn_adapter;

extern "C" {

/// See properties/candidate/protocol.h.
ATTNCHECK_EXPORT const char* attncheck_adapter_open(const char* libraries) {
    static std::string problem;
    problem = open_vendor_libraries(libraries);
    if (problem.empty()) {
        for (const auto& [entry_point, is_there] : vendor_operators()) (void)is_there();
        problem = problem_of_phases();
    }
    return problem.empty() ? nullptr : problem.c_str();
}

ATTNCHECK_EXPORT int attncheck_adapter_implements(const char* entry_point) {
    const auto found = vendor_operators().find(entry_point);
    return found != vendor_operators().end() && found->second();
}

uint32_t attncheck_abi_version(void) { return ATTNCHECK_ABI_VERSION; }

const char* attncheck_candidate_name(void) {
    static const std::string name = "aclnn: " + vendor_library_names();
    return name.c_str();
}

}  // extern "C"
