#include "properties/aclnn_adapter/vendor_libraries.h"

#include <dlfcn.h>

#include <sstream>
#include <vector>

namespace attncheck::aclnn_adapter {
namespace {

/// Never closed or destroyed: the vendor's threads may outlive main.
struct Opened {
    std::vector<void*> libraries;
    std::string names;
    Runtime runtime{};
};

Opened& opened() {
    static Opened& only = *new Opened;
    return only;
}

std::string open_libraries(const std::string& list) {
    std::istringstream paths(list);
    for (std::string path; std::getline(paths, path, ',');) {
        if (path.empty()) continue;
        // Global: the vendor's libraries look for each other's functions.
        void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
        if (!library) {
            const char* why = dlerror();
            return why ? why : path + " cannot be loaded";
        }
        opened().libraries.push_back(library);
        opened().names += (opened().names.empty() ? "" : ", ") + path.substr(path.rfind('/') + 1);
    }
    return opened().libraries.empty() ? "no vendor library is given after 'aclnn:'" : "";
}

template <class Function>
void require(Function*& function, const char* name, std::string& missing) {
    function = reinterpret_cast<Function*>(find_function(name));
    if (!function) missing += (missing.empty() ? "" : " ") + std::string(name);
}

std::string find_runtime() {
    std::string missing;
    Runtime& r = opened().runtime;
    require(r.init, "aclInit", missing);
    require(r.recent_error, "aclGetRecentErrMsg", missing);
    require(r.set_device, "aclrtSetDevice", missing);
    require(r.create_stream, "aclrtCreateStream", missing);
    require(r.destroy_stream, "aclrtDestroyStream", missing);
    require(r.synchronize_stream, "aclrtSynchronizeStream", missing);
    require(r.malloc, "aclrtMalloc", missing);
    require(r.free, "aclrtFree", missing);
    require(r.memcpy, "aclrtMemcpy", missing);
    require(r.create_tensor, "aclCreateTensor", missing);
    require(r.destroy_tensor, "aclDestroyTensor", missing);
    require(r.set_tensor_address, "aclSetRawTensorAddr", missing);
    require(r.create_int_array, "aclCreateIntArray", missing);
    require(r.destroy_int_array, "aclDestroyIntArray", missing);
    return missing.empty() ? "" : "no function " + missing + " in " + opened().names;
}

std::string start_device() {
    const auto failed = [](const char* what, int status) {
        const char* text = runtime().recent_error();
        return std::string(what) + " failed with " + std::to_string(status) +
               (text ? std::string(": ") + std::string(text).substr(0, std::string(text).find('\n'))
                     : "");
    };
    if (const int status = runtime().init(nullptr)) return failed("aclInit", status);
    if (const int status = runtime().set_device(0)) return failed("aclrtSetDevice(0)", status);
    return "";
}

}  // namespace

std::string open_vendor_libraries(const std::string& list) {
    std::string problem = open_libraries(list);
    if (problem.empty()) problem = find_runtime();
    if (problem.empty()) problem = start_device();
    return problem;
}

const Runtime& runtime() { return opened().runtime; }
const std::string& vendor_library_names() { return opened().names; }

void* find_function(const std::string& name) {
    for (void* library : opened().libraries)
        if (void* found = dlsym(library, name.c_str())) return found;
    return nullptr;
}

}  // namespace attncheck::aclnn_adapter
