#include "properties/aclnn_adapter/vendor_libraries.h"

#include <dlfcn.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

namespace attncheck::aclnn_adapter {
namespace {

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// The file that a function is of: dlsym looks into what a library was linked with, too.
std::string file_of(const void* function) {
    Dl_info info{};
    return function && dladdr(function, &info) && info.dli_fname ? info.dli_fname : "";
}

struct Library {
    void* handle;
    std::string name;                ///< of its file
    std::set<std::string> of_cxx{};  ///< functions aclnn... that it has with a C++ name
};

/// Never closed or destroyed: the vendor's threads may outlive main.
struct Opened {
    std::vector<Library> libraries;
    std::string names;
    Runtime runtime{};
    std::string problem_of_phases;
};

Opened& opened() {
    static Opened& only = *new Opened;
    return only;
}

/// "aclnnX" of every "_Z6aclnnX..." in its table of names (Itanium C++ ABI 5.1). Only of small files: the vendor's own have
/// hundreds of megabytes and no such names.
std::set<std::string> names_of_cxx(const std::string& path) {
    constexpr std::streamoff kMostBytes = std::streamoff{64} << 20;
    constexpr std::string_view kBegin("\0_Z", 3), kOwn = "aclnn";
    std::ifstream in(path, std::ios::binary | std::ios::ate);
    if (!in || in.tellg() < 0 || in.tellg() > kMostBytes) return {};
    std::string file(static_cast<std::size_t>(in.tellg()), '\0');
    in.seekg(0);
    if (!in.read(file.data(), static_cast<std::streamsize>(file.size()))) return {};
    std::set<std::string> names;
    for (std::size_t at = file.find(kBegin); at != std::string::npos; at = file.find(kBegin, at + 1)) {
        std::size_t length = 0, begin = at + kBegin.size();
        for (; begin < file.size() && file[begin] >= '0' && file[begin] <= '9' && length < 1000; ++begin)
            length = 10 * length + static_cast<std::size_t>(file[begin] - '0');
        if (file.compare(begin, kOwn.size(), kOwn) == 0) names.insert(file.substr(begin, length));
    }
    return names;
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
        const std::string name = base_name(path);
        opened().libraries.push_back({library, name, names_of_cxx(path)});
        opened().names += (opened().names.empty() ? "" : ", ") + name;
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
    for (const Library& library : opened().libraries)
        if (void* found = dlsym(library.handle, name.c_str())) return found;
    return nullptr;
}

std::pair<void*, void*> find_phases(const std::string& name) {
    const std::string names[] = {name + "GetWorkspaceSize", name};
    std::string& problem = opened().problem_of_phases;
    for (const Library& library : opened().libraries) {
        void* const found[] = {dlsym(library.handle, names[0].c_str()), dlsym(library.handle, names[1].c_str())};
        const std::string files[] = {file_of(found[0]), file_of(found[1])};
        for (const int k : {0, 1})
            if (problem.empty() && library.of_cxx.contains(names[k]) && base_name(files[k]) != library.name)
                problem = library.name + " has " + names[k] + " with a C++ name: declare it extern \"C\"";
        for (const int k : {0, 1})
            if (problem.empty() && found[k] && !found[1 - k])
                problem = base_name(files[k]) + " has " + names[k] + ", but not " + names[1 - k];
        if (problem.empty() && files[0] != files[1])
            problem = names[0] + " is of " + base_name(files[0]) + ", " + names[1] + " of " + base_name(files[1]) +
                      ": both have to be of one library";
        if (found[0] || found[1]) return {found[0], found[1]};
    }
    return {};
}

const std::string& problem_of_phases() { return opened().problem_of_phases; }

}  // namespace attncheck::aclnn_adapter
