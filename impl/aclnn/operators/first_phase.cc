#include "impl/aclnn/operators/first_phase.h"

namespace attncheck::aclnn {

void set_first_phase_error(const char* api, const std::string& message) {
    set_error(std::string(api) + "GetWorkspaceSize: " + message);
}

}  // namespace attncheck::aclnn
