#include "impl/aclnn/object_tables.h"

using namespace attncheck::aclnn;

extern "C" {

aclScalar* aclCreateScalar(void* value, aclDataType dataType) {
    const std::size_t bytes = element_bytes(dataType);
    if (!value || bytes == 0) {
        set_error("aclCreateScalar: value is null or dataType " + std::to_string(dataType) +
                  " has no size in bytes; allowed: a value of a type of whole bytes");
        return nullptr;
    }
    return created("aclCreateScalar", [&] {
        const auto* first = static_cast<const unsigned char*>(value);
        return table<aclScalar>().add({dataType, copied(first, bytes)});
    });
}

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
    return created("aclCreateIntArray",
                   [&] { return table<aclIntArray>().add({copied(value, size)}); });
}

aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size) {
    return created("aclCreateFloatArray",
                   [&] { return table<aclFloatArray>().add({copied(value, size)}); });
}

aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) {
    return created("aclCreateBoolArray",
                   [&] { return table<aclBoolArray>().add({copied(value, size)}); });
}

aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
    return created("aclCreateTensorList",
                   [&] { return table<aclTensorList>().add({copied(value, size)}); });
}

aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size) {
    return created("aclCreateScalarList",
                   [&] { return table<aclScalarList>().add({copied(value, size)}); });
}

aclnnStatus aclDestroyScalar(const aclScalar* scalar) {
    return destroy("aclDestroyScalar", "scalar", scalar);
}

aclnnStatus aclDestroyIntArray(const aclIntArray* array) {
    return destroy("aclDestroyIntArray", "array", array);
}

aclnnStatus aclDestroyFloatArray(const aclFloatArray* array) {
    return destroy("aclDestroyFloatArray", "array", array);
}

aclnnStatus aclDestroyBoolArray(const aclBoolArray* array) {
    return destroy("aclDestroyBoolArray", "array", array);
}

aclnnStatus aclDestroyTensorList(const aclTensorList* array) {
    if (!array) return kSuccess;
    const auto list = table<aclTensorList>().take(array);
    if (!list) return not_alive("aclDestroyTensorList", "array", array);
    for (const aclTensor* member : list->members) table<aclTensor>().take(member);
    return kSuccess;
}

aclnnStatus aclDestroyScalarList(const aclScalarList* array) {
    if (!array) return kSuccess;
    const auto list = table<aclScalarList>().take(array);
    if (!list) return not_alive("aclDestroyScalarList", "array", array);
    for (const aclScalar* member : list->members) table<aclScalar>().take(member);
    return kSuccess;
}

aclnnStatus aclGetIntArraySize(const aclIntArray* array, uint64_t* size) {
    return get("aclGetIntArraySize", "array", array, size,
               [](const aclIntArray& object) { return object.values.size(); });
}

aclnnStatus aclGetFloatArraySize(const aclFloatArray* array, uint64_t* size) {
    return get("aclGetFloatArraySize", "array", array, size,
               [](const aclFloatArray& object) { return object.values.size(); });
}

aclnnStatus aclGetBoolArraySize(const aclBoolArray* array, uint64_t* size) {
    return get("aclGetBoolArraySize", "array", array, size,
               [](const aclBoolArray& object) { return object.values.size(); });
}

aclnnStatus aclGetTensorListSize(const aclTensorList* tensorList, uint64_t* size) {
    return get("aclGetTensorListSize", "tensorList", tensorList, size,
               [](const aclTensorList& object) { return object.members.size(); });
}

aclnnStatus aclGetScalarListSize(const aclScalarList* scalarList, uint64_t* size) {
    return get("aclGetScalarListSize", "scalarList", scalarList, size,
               [](const aclScalarList& object) { return object.members.size(); });
}

}  // extern "C"
