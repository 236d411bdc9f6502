// A candidate made of the vendor's libraries: who it is and what it has.
#include <attncheck/candidate.h>

#include <iterator>
#include <string>

#include "properties/aclnn_adapter/operators.h"
#include "properties/aclnn_adapter/vendor_libraries.h"
#include "properties/candidate/protocol.h"

using namespace attncheck::aclnn_adapter;

extern "C" {

/// See candidate/protocol.h.
ATTNCHECK_EXPORT const char* attncheck_adapter_open(const char* libraries) {
    static std::string problem;
    problem = open_vendor_libraries(libraries);
    return problem.empty() ? nullptr : problem.c_str();
}

ATTNCHECK_EXPORT int attncheck_adapter_implements(unsigned entry_point) {
    static constexpr bool (*kHas[])() = {has_nsa_compress,
                                         has_nsa_compress_grad,
                                         has_nsa_selected_attention,
                                         has_nsa_selected_attention_grad,
                                         has_nsa_compress_attention,
                                         has_flash_attention_score,
                                         has_flash_attention_score_grad};
    static_assert(std::size(kHas) == std::size(attncheck::properties::kEntryPoints));
    return entry_point < std::size(kHas) && kHas[entry_point]();
}

uint32_t attncheck_abi_version(void) { return ATTNCHECK_ABI_VERSION; }

const char* attncheck_candidate_name(void) {
    static const std::string name = "aclnn: " + vendor_library_names();
    return name.c_str();
}

}  // extern "C"
