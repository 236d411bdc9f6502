#include "impl/aclnn/settings.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace attncheck::aclnn {
namespace {

std::string_view variable(const char* name) {
    const char* text = std::getenv(name);
    return text ? std::string_view(text) : std::string_view();
}

bool is_on(const char* name) {
    const std::string_view text = variable(name);
    return !text.empty() && text != "0";
}

}  // namespace

bool synchronous_streams() { return is_on("ATTNCHECK_ACL_SYNC"); }

bool guarded_memory() { return is_on("ATTNCHECK_ACL_DEBUG"); }

std::uint64_t least_workspace_bytes() {
    const std::string_view text = variable("ATTNCHECK_ACL_WORKSPACE");
    std::uint64_t bytes = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, bytes);
    return error == std::errc() && stop == end ? bytes : 0;
}

}  // namespace attncheck::aclnn
