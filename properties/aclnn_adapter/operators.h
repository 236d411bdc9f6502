// Which operators the opened libraries have. Operators register themselves: those that the vendor
// does not have need no line here.
#pragma once

#include <map>
#include <string_view>

namespace attncheck::aclnn_adapter {

/// By entry point without its prefix: whether the opened libraries have a function for it.
std::map<std::string_view, bool (*)()>& vendor_operators();

struct VendorOperator {
    VendorOperator(std::string_view entry_point, bool (*is_there)()) {
        vendor_operators().emplace(entry_point, is_there);
    }
};

}  // namespace attncheck::aclnn_adapter
