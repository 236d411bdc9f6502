// Tensors, arrays and lists: what they keep, what their getters return, and dead handles.
#include <limits>
#include <memory>
#include <thread>

#include "acl_fixture.h"
#include "impl/aclnn/objects.h"

namespace attncheck::aclnn {
namespace {

using Values = std::vector<std::int64_t>;

aclTensor* make_tensor(const Values& dims) {
    return aclCreateTensor(dims.data(), dims.size(), ACL_FLOAT16, nullptr, 0, ACL_FORMAT_ND,
                           dims.data(), dims.size(), nullptr);
}

template <class Getter>
Values listed(Getter getter, const aclTensor* tensor) {
    std::int64_t* values = nullptr;
    std::uint64_t count = 99;
    EXPECT_EQ(getter(tensor, &values, &count), 0);
    const std::unique_ptr<std::int64_t[]> owner(values);  // delete[], as documented
    return Values(values, values + count);
}

// The caller may overwrite its arrays at once.
TEST(Tensor, CopiesDimensionsAndStrides) {
    Values dims{2, 3, 5}, strides{100, 20, 3}, storage{400};
    int data = 0;
    aclTensor* tensor = aclCreateTensor(dims.data(), 3, ACL_BF16, strides.data(), 7,
                                        ACL_FORMAT_NCHW, storage.data(), 1, &data);
    dims = strides = {0, 0, 0};
    storage = {0};
    EXPECT_EQ(listed(aclGetViewShape, tensor), (Values{2, 3, 5}));
    EXPECT_EQ(listed(aclGetViewStrides, tensor), (Values{100, 20, 3}));
    EXPECT_EQ(listed(aclGetStorageShape, tensor), (Values{400}));
    std::int64_t offset = 0;
    aclFormat format = ACL_FORMAT_ND;
    aclDataType type = ACL_FLOAT;
    void* address = nullptr;
    EXPECT_EQ(aclGetViewOffset(tensor, &offset), 0);
    EXPECT_EQ(aclGetFormat(tensor, &format), 0);
    EXPECT_EQ(aclGetDataType(tensor, &type), 0);
    EXPECT_EQ(aclGetRawTensorAddr(tensor, &address), 0);
    EXPECT_EQ(offset, 7);
    EXPECT_EQ(format, ACL_FORMAT_NCHW);
    EXPECT_EQ(type, ACL_BF16);
    EXPECT_EQ(address, &data);
    EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

TEST(Tensor, NullStridesMeanRowMajor) {
    aclTensor* tensor = make_tensor({2, 3, 5});
    EXPECT_EQ(listed(aclGetViewStrides, tensor), (Values{15, 5, 1}));
    EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

// An extent product beyond int64 must neither trap nor wrap to something plausible.
TEST(Tensor, RowMajorStridesSaturate) {
    const std::int64_t huge = std::int64_t{1} << 62;
    aclTensor* tensor = make_tensor({3, huge, 4});
    EXPECT_EQ(listed(aclGetViewStrides, tensor),
              (Values{std::numeric_limits<std::int64_t>::max(), 4, 1}));
    EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

TEST(Tensor, ZeroDimensionsHoldOneElement) {
    aclTensor* tensor =
        aclCreateTensor(nullptr, 0, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(listed(aclGetViewShape, tensor), Values{});
    EXPECT_EQ(listed(aclGetStorageShape, tensor), Values{});
    EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

TEST(Tensor, NullDimensionsWithACountMakeNone) {
    const Values dims{4};
    EXPECT_EQ(
        aclCreateTensor(nullptr, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims.data(), 1, nullptr),
        nullptr);
    EXPECT_NE(recent_message().find("viewDims"), std::string::npos);
    EXPECT_EQ(
        aclCreateTensor(dims.data(), 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 1, nullptr),
        nullptr);
    EXPECT_NE(recent_message().find("storageDims"), std::string::npos);
}

TEST(Tensor, AddressMayBeSetLater) {
    int data = 0;
    void* address = &data;
    aclTensor* tensor = make_tensor({1});
    EXPECT_EQ(aclGetRawTensorAddr(tensor, &address), 0);
    EXPECT_EQ(address, nullptr);
    EXPECT_EQ(aclSetRawTensorAddr(tensor, &data), 0);
    EXPECT_EQ(aclGetRawTensorAddr(tensor, &address), 0);
    EXPECT_EQ(address, &data);
    EXPECT_EQ(find_tensor(tensor)->data, &data);
    EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

TEST(Tensor, DestroyingNullIsFine) { EXPECT_EQ(aclDestroyTensor(nullptr), 0); }

TEST(Tensor, SecondDestructionIsRefused) {
    aclTensor* tensor = make_tensor({1});
    EXPECT_EQ(aclDestroyTensor(tensor), 0);
    recent_message();
    EXPECT_EQ(aclDestroyTensor(tensor), 161002);
    EXPECT_NE(recent_message().find("aclDestroyTensor: tensor is 0x"), std::string::npos);
}

// Addresses of the caller's own objects are recognised without being read or freed.
TEST(Tensor, GarbageHandlesAreRefused) {
    int local = 5;
    const auto* garbage = reinterpret_cast<const aclTensor*>(&local);
    std::uint64_t count = 0;
    std::int64_t* values = nullptr;
    EXPECT_EQ(aclDestroyTensor(garbage), 161002);
    EXPECT_EQ(aclGetViewShape(garbage, &values, &count), 161002);
    EXPECT_EQ(aclSetRawTensorAddr(const_cast<aclTensor*>(garbage), nullptr), 161002);
    EXPECT_FALSE(find_tensor(garbage).has_value());
    EXPECT_FALSE(find_tensor(nullptr).has_value());
    EXPECT_FALSE(find_tensor(reinterpret_cast<const aclTensor*>(1)).has_value());
    EXPECT_EQ(values, nullptr);
    EXPECT_EQ(local, 5);
}

// A stale handle stays dead although new objects are made.
TEST(Tensor, HandlesAreNeverGivenOutAgain) {
    aclTensor* dead = make_tensor({1});
    EXPECT_EQ(aclDestroyTensor(dead), 0);
    std::vector<aclTensor*> others;
    for (int i = 0; i < 1000; ++i) others.push_back(make_tensor({i}));
    EXPECT_FALSE(find_tensor(dead).has_value());
    for (aclTensor* tensor : others) EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

TEST(Tensor, HandleOfAnotherKindIsRefused) {
    const std::int64_t value = 1;
    aclIntArray* array = aclCreateIntArray(&value, 1);
    EXPECT_EQ(aclDestroyTensor(reinterpret_cast<aclTensor*>(array)), 161002);
    EXPECT_EQ(aclDestroyIntArray(array), 0);
}

TEST(Tensor, GettersRefuseNull) {
    aclTensor* tensor = make_tensor({1});
    std::int64_t* values = nullptr;
    std::uint64_t count = 0;
    std::int64_t offset = 0;
    aclFormat format = ACL_FORMAT_ND;
    aclDataType type = ACL_FLOAT;
    void* address = nullptr;
    for (auto getter : {aclGetViewShape, aclGetViewStrides, aclGetStorageShape}) {
        EXPECT_EQ(getter(nullptr, &values, &count), 161001);
        EXPECT_EQ(getter(tensor, nullptr, &count), 161001);
        EXPECT_EQ(getter(tensor, &values, nullptr), 161001);
    }
    EXPECT_EQ(values, nullptr);
    EXPECT_EQ(aclGetViewOffset(nullptr, &offset), 161001);
    EXPECT_EQ(aclGetViewOffset(tensor, nullptr), 161001);
    EXPECT_EQ(aclGetFormat(nullptr, &format), 161001);
    EXPECT_EQ(aclGetFormat(tensor, nullptr), 161001);
    EXPECT_EQ(aclGetDataType(nullptr, &type), 161001);
    EXPECT_EQ(aclGetDataType(tensor, nullptr), 161001);
    EXPECT_EQ(aclGetRawTensorAddr(nullptr, &address), 161001);
    EXPECT_EQ(aclGetRawTensorAddr(tensor, nullptr), 161001);
    EXPECT_EQ(aclSetRawTensorAddr(nullptr, &address), 161001);
    EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

TEST(IntArray, CopiesItsValues) {
    Values values{0, 128, 272};
    aclIntArray* array = aclCreateIntArray(values.data(), values.size());
    values = {9, 9, 9};
    std::uint64_t size = 0;
    EXPECT_EQ(aclGetIntArraySize(array, &size), 0);
    EXPECT_EQ(size, 3u);
    EXPECT_EQ(find_int_array(array)->values, (Values{0, 128, 272}));
    EXPECT_EQ(aclDestroyIntArray(array), 0);
    EXPECT_FALSE(find_int_array(array).has_value());
    EXPECT_EQ(aclDestroyIntArray(array), 161002);
    EXPECT_EQ(aclDestroyIntArray(nullptr), 0);
}

TEST(IntArray, NullOrNoValuesMakeAnEmptyOne) {
    const std::int64_t value = 1;
    for (aclIntArray* array : {aclCreateIntArray(nullptr, 5), aclCreateIntArray(&value, 0)}) {
        ASSERT_NE(array, nullptr);
        EXPECT_TRUE(find_int_array(array)->values.empty());
        EXPECT_EQ(aclDestroyIntArray(array), 0);
    }
}

// A count that cannot be allocated is refused before a value is read.
TEST(IntArray, WildCountsMakeNone) {
    const std::int64_t value = 1;
    EXPECT_EQ(aclCreateIntArray(&value, std::uint64_t{1} << 63), nullptr);
    EXPECT_EQ(aclCreateIntArray(&value, ~std::uint64_t{0}), nullptr);
    EXPECT_NE(recent_message().find("aclCreateIntArray"), std::string::npos);
}

TEST(OtherArrays, KeepTheirSizes) {
    const float floats[] = {1, 2};
    const bool bools[] = {true, false, true};
    aclFloatArray* float_array = aclCreateFloatArray(floats, 2);
    aclBoolArray* bool_array = aclCreateBoolArray(bools, 3);
    std::uint64_t size = 0;
    EXPECT_EQ(aclGetFloatArraySize(float_array, &size), 0);
    EXPECT_EQ(size, 2u);
    EXPECT_EQ(aclGetBoolArraySize(bool_array, &size), 0);
    EXPECT_EQ(size, 3u);
    EXPECT_EQ(aclGetFloatArraySize(nullptr, &size), 161001);
    EXPECT_EQ(aclGetBoolArraySize(bool_array, nullptr), 161001);
    EXPECT_EQ(aclGetIntArraySize(nullptr, &size), 161001);
    EXPECT_EQ(aclDestroyFloatArray(float_array), 0);
    EXPECT_EQ(aclDestroyFloatArray(float_array), 161002);
    EXPECT_EQ(aclDestroyFloatArray(nullptr), 0);
    EXPECT_EQ(aclDestroyBoolArray(bool_array), 0);
    EXPECT_EQ(aclDestroyBoolArray(bool_array), 161002);
    EXPECT_EQ(aclDestroyBoolArray(nullptr), 0);
}

// Destroying a list destroys its members.
TEST(Lists, OwnTheirMembers) {
    aclTensor* tensor = make_tensor({1});
    const aclTensor* members[] = {tensor};
    aclTensorList* list = aclCreateTensorList(members, 1);
    std::uint64_t size = 0;
    EXPECT_EQ(aclGetTensorListSize(list, &size), 0);
    EXPECT_EQ(size, 1u);
    EXPECT_EQ(aclDestroyTensorList(list), 0);
    EXPECT_FALSE(find_tensor(tensor).has_value());
    EXPECT_EQ(aclDestroyTensorList(list), 161002);
    EXPECT_EQ(aclDestroyTensorList(nullptr), 0);

    float value = 1.5f;
    aclScalar* scalar = aclCreateScalar(&value, ACL_FLOAT);
    const aclScalar* scalars[] = {scalar};
    aclScalarList* scalar_list = aclCreateScalarList(scalars, 1);
    EXPECT_EQ(aclGetScalarListSize(scalar_list, &size), 0);
    EXPECT_EQ(size, 1u);
    EXPECT_EQ(aclDestroyScalarList(scalar_list), 0);
    EXPECT_EQ(aclDestroyScalar(scalar), 161002);
    EXPECT_EQ(aclDestroyScalarList(nullptr), 0);
}

TEST(Scalar, NeedsAValueOfAKnownSize) {
    float value = 1.5f;
    EXPECT_EQ(aclCreateScalar(nullptr, ACL_FLOAT), nullptr);
    EXPECT_EQ(aclCreateScalar(&value, ACL_DT_UNDEFINED), nullptr);
    aclScalar* scalar = aclCreateScalar(&value, ACL_FLOAT);
    EXPECT_EQ(aclDestroyScalar(scalar), 0);
    EXPECT_EQ(aclDestroyScalar(nullptr), 0);
}

// Descriptors need no aclInit and no context, and are made from many threads at once.
TEST(Descriptors, AreThreadSafe) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([t] {
            for (int i = 0; i < 300; ++i) {
                aclTensor* tensor = make_tensor({t, i});
                EXPECT_EQ(find_tensor(tensor)->view_dims, (Values{t, i}));
                EXPECT_EQ(aclDestroyTensor(tensor), 0);
                EXPECT_EQ(aclDestroyTensor(tensor), 161002);
            }
        });
    for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace attncheck::aclnn
