// The vendor's libraries: opened in the order given, asked for functions by name.
#pragma once

#include <string>
#include <utility>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "properties/aclnn_adapter/signatures.h"

namespace attncheck::aclnn_adapter {

/// What the adapter needs of runtime and descriptors; all of it is required.
struct Runtime {
    decltype(&::aclInit) init;
    decltype(&::aclGetRecentErrMsg) recent_error;
    decltype(&::aclrtSetDevice) set_device;
    decltype(&::aclrtCreateStream) create_stream;
    decltype(&::aclrtDestroyStream) destroy_stream;
    decltype(&::aclrtSynchronizeStream) synchronize_stream;
    decltype(&::aclrtMalloc) malloc;
    decltype(&::aclrtFree) free;
    decltype(&::aclrtMemcpy) memcpy;
    decltype(&::aclCreateTensor) create_tensor;
    decltype(&::aclDestroyTensor) destroy_tensor;
    decltype(&::aclSetRawTensorAddr) set_tensor_address;
    decltype(&::aclCreateIntArray) create_int_array;
    decltype(&::aclDestroyIntArray) destroy_int_array;
};

/// Opens the libraries of a comma-separated list, initialises the runtime and device 0. Returns ""
/// or one line on what is missing or failed. Once per process, before anything else.
std::string open_vendor_libraries(const std::string& list);

const Runtime& runtime();

/// File names of the opened libraries, for people.
const std::string& vendor_library_names();

/// The first library that exports the name gives the function; null when none does.
void* find_function(const std::string& name);

/// The two functions of an operator from the first library that exports either, both null where none does. A library that
/// has but one of them, or has one with a C++ name, is a mistake that problem_of_phases() tells from then on: its operator
/// would not be judged, or that of a library behind it in its place.
std::pair<void*, void*> find_phases(const std::string& name);

/// "" or one line.
const std::string& problem_of_phases();

/// An operator's pair of functions, both null unless both exist.
template <class First>
struct TwoPhases {
    explicit TwoPhases(const char* api_name) : name(api_name) {
        const auto [found_first, found_second] = find_phases(name);
        first = reinterpret_cast<First*>(found_first);
        second = reinterpret_cast<SecondPhase*>(found_second);
    }
    explicit operator bool() const { return first != nullptr && second != nullptr; }

    std::string name;
    First* first = nullptr;
    SecondPhase* second = nullptr;
};

}  // namespace attncheck::aclnn_adapter
