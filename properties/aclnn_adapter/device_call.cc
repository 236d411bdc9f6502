#include "properties/aclnn_adapter/device_call.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

namespace attncheck::aclnn_adapter {
namespace {

/// Around each extent, so that reading there shows (NaN in every float type) and writing there too.
/// A multiple of the alignment that the vendor's kernels require (32).
constexpr std::size_t kMargin = 256;
/// A block is usable to its size rounded up to so many bytes, plus as many (acl/acl_rt.h).
constexpr std::uint64_t kGranule = 32;
std::uint64_t usable(std::uint64_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule + kGranule; }
constexpr std::byte kMarginFill{0xFF};
/// A larger extent may be a claim of an illegal call that no buffer stands behind; making room for
/// it would take seconds.
constexpr std::size_t kDeferredBytes = std::size_t{64} << 20;
/// Where an extent is not known, or larger than any device.
constexpr std::size_t kPlaceholderBytes = 64, kMostBytes = std::size_t{1} << 40;
/// Of the stand-in for a rank that no struct of the candidate interface can hold: no operator takes
/// it either, and the vendor finds absent arguments first.
constexpr std::uint64_t kIllegalRank = 25;

/// What is wrong, on standard error: `attncheck reproduce` shows it.
void complain(const std::string& api, const char* what, int status) {
    const char* text = runtime().recent_error();
    std::fprintf(stderr, "%s: %s: %d%s%s\n", api.c_str(), what, status, text ? ": " : "",
                 text ? text : "");
}

/// Bytes of an element; 0 for a type that the candidate interface does not have.
std::size_t element_bytes(std::int32_t dtype) {
    switch (dtype) {
        case ATTNCHECK_UINT8:
        case ATTNCHECK_BOOL:
        case ATTNCHECK_FLOAT8_E5M2:
        case ATTNCHECK_FLOAT8_E4M3FN:
            return 1;
        case ATTNCHECK_FLOAT16:
        case ATTNCHECK_BFLOAT16:
            return 2;
        case ATTNCHECK_FLOAT32:
        case ATTNCHECK_INT32:
            return 4;
        case ATTNCHECK_INT64:
            return 8;
        default:
            return 0;
    }
}

struct Extent {
    std::int64_t before;    ///< elements in memory before element (0,..,0)
    std::int64_t elements;  ///< all, before it and after; 0 for an empty tensor
};

/// None when it does not fit a device.
std::optional<Extent> extent_of(const attncheck_tensor& host, std::size_t size) {
    __int128 first = 0, last = 0;
    for (int d = 0; d < host.rank; ++d) {
        if (host.shape[d] < 0) return std::nullopt;
        if (host.shape[d] == 0) return Extent{0, 0};
    }
    for (int d = 0; d < host.rank; ++d) {
        const __int128 reach = static_cast<__int128>(host.shape[d] - 1) * host.strides[d];
        (reach < 0 ? first : last) += reach;
    }
    const __int128 elements = last - first + 1;
    if (size == 0 || elements > static_cast<__int128>(kMostBytes / size)) return std::nullopt;
    return Extent{static_cast<std::int64_t>(-first), static_cast<std::int64_t>(elements)};
}

/// Elements so far apart that most pages between them do not exist on the host: a device would need
/// them all.
bool is_mostly_empty(const attncheck_tensor& host, const Extent& extent) {
    constexpr double kFar = 1 << 28, kShare = 1.0 / 64;
    double count = 1;
    for (int d = 0; d < host.rank; ++d) count *= static_cast<double>(host.shape[d]);
    const auto elements = static_cast<double>(extent.elements);
    return elements > kFar && count < elements * kShare;
}

/// Device 0 and a stream for the calling thread: a stream keeps the first failure of its work,
/// which must not reach another thread's call. Contexts are current per thread.
class ThreadStream {
public:
    ThreadStream() {
        status_ = runtime().set_device(0);
        if (status_ == 0) status_ = runtime().create_stream(&stream_);
    }
    ThreadStream(const ThreadStream&) = delete;
    ThreadStream& operator=(const ThreadStream&) = delete;
    ~ThreadStream() {
        if (status_ == 0) runtime().destroy_stream(stream_);
    }
    int status() const { return status_; }
    aclrtStream get() const { return stream_; }

private:
    aclrtStream stream_ = nullptr;
    int status_ = 0;
};

const ThreadStream& thread_stream() {
    thread_local const ThreadStream stream;
    return stream;
}

/// The status that a candidate returns for one of the two phases (acl_host.md 5). Kernels that are
/// not installed are declined; any other code of the operator library is a rejection, which the
/// vendor reports with many numbers and in either phase (contract.md, return values).
int candidate_status(int vendor_status) {
    constexpr int kKernelNotFound = 561003, kInstallationFirst = 561107, kInstallationLast = 561113,
                  kRuntimeFailed = 361001;
    if (vendor_status == 0) return ATTNCHECK_OK;
    if (vendor_status == kKernelNotFound ||
        (vendor_status >= kInstallationFirst && vendor_status <= kInstallationLast))
        return ATTNCHECK_DECLINED;
    if (vendor_status == kRuntimeFailed) return ATTNCHECK_ERR_INTERNAL;
    return vendor_status == ATTNCHECK_ERR_NULLPTR ? ATTNCHECK_ERR_NULLPTR : ATTNCHECK_ERR_INVALID;
}

}  // namespace

void DeviceCall::release_descriptors() {
    for (const Tensor tensor : tensors_) runtime().destroy_tensor(tensor);
    for (const Array array : arrays_) runtime().destroy_int_array(array);
    tensors_.clear();
    arrays_.clear();
}

DeviceCall::~DeviceCall() {
    release_descriptors();
    for (const Block& block : blocks_)
        if (block.device) runtime().free(block.device);  // null where memory was short
}

std::byte* DeviceCall::allocate(std::size_t bytes) {
    void* device = nullptr;
    const int status = runtime().malloc(&device, bytes, ACL_MEM_MALLOC_HUGE_FIRST);
    return status == 0 ? static_cast<std::byte*>(device) : nullptr;
}

Tensor DeviceCall::tensor(const attncheck_tensor& host) {
    if (!host.data) return nullptr;
    if (thread_stream().status() != 0) {
        complain("aclrtCreateStream", "failed", thread_stream().status());
        failed_ = ATTNCHECK_ERR_INTERNAL;
        return nullptr;
    }
    if (host.rank < 0 || host.rank > ATTNCHECK_MAX_RANK) {
        inexpressible_ = true;
        blocks_.push_back({nullptr, 0, allocate(kPlaceholderBytes), false});
        const std::vector<std::int64_t> ones(kIllegalRank, 1);
        tensors_.push_back(runtime().create_tensor(
            ones.data(), kIllegalRank, static_cast<aclDataType>(host.dtype), nullptr, 0,
            ACL_FORMAT_ND, ones.data(), kIllegalRank, blocks_.back().device));
        return tensors_.back();
    }
    const std::size_t size = element_bytes(host.dtype);
    const std::optional<Extent> extent = extent_of(host, size);
    if (extent && is_mostly_empty(host, *extent)) failed_ = ATTNCHECK_DECLINED;
    const std::int64_t before = extent ? extent->before : 0;
    const std::size_t bytes = extent ? static_cast<std::size_t>(extent->elements) * size : 0;
    const bool small = extent && bytes <= kDeferredBytes;
    Block block{static_cast<std::byte*>(host.data) - static_cast<std::size_t>(before) * size, bytes,
                small ? allocate(bytes + 2 * kMargin) : nullptr, true};
    if (!block.device) {
        block.placed = false;
        block.device = allocate(kPlaceholderBytes + kMargin);
    }
    blocks_.push_back(block);
    const auto count = static_cast<std::uint64_t>(host.rank);
    const auto elements = static_cast<std::int64_t>(size == 0 ? 0 : bytes / size);
    // Storage of a dense tensor has its shape, any other is a row of elements.
    std::int64_t dense = 1;
    bool is_dense = true;
    for (int d = host.rank - 1; d >= 0 && is_dense; --d) {
        is_dense = host.strides[d] == dense || host.shape[d] == 1;
        if (is_dense) is_dense = !__builtin_mul_overflow(dense, host.shape[d], &dense);
    }
    aclTensor* const made = runtime().create_tensor(
        host.shape, count, static_cast<aclDataType>(host.dtype), host.strides, before,
        ACL_FORMAT_ND, is_dense ? host.shape : &elements, is_dense ? count : 1,
        block.device ? block.device + kMargin : nullptr);
    if (made) tensors_.push_back(made);
    if (extent && !small) blocks_.back().deferred = made;
    return made;
}

bool DeviceCall::place_deferred() {
    bool any = false;
    for (Block& block : blocks_) {
        if (!block.deferred) continue;
        std::byte* const room = allocate(block.bytes + 2 * kMargin);
        if (!room) continue;  // stays unplaced, which copy_in tells
        if (block.device) runtime().free(block.device);
        block.device = room;
        block.placed = true;
        runtime().set_tensor_address(block.deferred, room + kMargin);
        any = true;
    }
    return any;
}

Array DeviceCall::array(const attncheck_int_array& host) {
    if (!host.values && host.size == 0) return nullptr;
    if (!host.values && host.size > 0) {
        failed_ = ATTNCHECK_ERR_NULLPTR;
        return nullptr;
    }
    inexpressible_ = inexpressible_ || host.size < 0;
    const Array made = runtime().create_int_array(
        host.values, static_cast<std::uint64_t>(std::max<std::int64_t>(host.size, 0)));
    if (made) arrays_.push_back(made);
    return made;
}

int DeviceCall::finish(const std::string& api, int status, SecondPhase* second,
                       std::uint64_t workspace_bytes, aclOpExecutor* executor) {
    if (status != 0) {
        complain(api, "the first phase returned", status);
        return candidate_status(status);
    }
    if (inexpressible_) return ATTNCHECK_ERR_INVALID;
    return execute(api, second, workspace_bytes, executor);
}

int DeviceCall::execute(const std::string& api, SecondPhase* second, std::uint64_t workspace_bytes,
                        aclOpExecutor* executor) {
    // An executor that no second phase uses up is lost with the process; there is no portable way
    // to release it.
    if (!copy_in(api)) return ATTNCHECK_ERR_INTERNAL;
    void* workspace = nullptr;
    if (workspace_bytes > 0) {
        constexpr std::uint64_t kMost = std::uint64_t{1} << 48;  // more is no size, and may not overflow below
        if (workspace_bytes <= kMost) workspace = allocate(usable(workspace_bytes) + kMargin);
        if (!workspace) {
            complain(api, "no memory for a workspace", 0);
            return ATTNCHECK_ERR_INTERNAL;
        }
        blocks_.push_back({nullptr, 0, static_cast<std::byte*>(workspace), false});
        if (!fill_workspace(api, static_cast<std::byte*>(workspace), workspace_bytes) ||
            !guard_workspace(api, static_cast<std::byte*>(workspace) + usable(workspace_bytes)))
            return ATTNCHECK_ERR_INTERNAL;
    }
    const aclrtStream stream = thread_stream().get();
    const int launched = second(workspace, workspace_bytes, executor, stream);
    // As a caller may: the work that is queued has no right to them.
    release_descriptors();
    const int finished = runtime().synchronize_stream(stream);
    if (launched != 0) {
        complain(api, "the second phase returned", launched);
        return candidate_status(launched);
    }
    if (finished != 0) {
        complain(api, "the work on the stream ended with", finished);
        const bool rejected =
            finished == ATTNCHECK_ERR_NULLPTR || finished == ATTNCHECK_ERR_INVALID;
        return rejected ? finished : ATTNCHECK_ERR_INTERNAL;
    }
    if (workspace && !workspace_is_kept_to(api, static_cast<std::byte*>(workspace) + usable(workspace_bytes)))
        return ATTNCHECK_ERR_INTERNAL;
    return copy_out(api) ? ATTNCHECK_OK : ATTNCHECK_ERR_INTERNAL;
}

/// With numbers of the size of 1, others at every call: nobody promises that a workspace is zero.
bool DeviceCall::fill_workspace(const std::string& api, std::byte* workspace, std::uint64_t bytes) {
    static std::atomic<unsigned> calls{0};
    constexpr std::size_t kChunk = 1 << 20;
    const std::vector<std::byte> fill(std::min<std::uint64_t>(bytes, kChunk),
                                      calls++ % 2 == 0 ? std::byte{0x40} : std::byte{0xBF});
    for (std::uint64_t done = 0; done < bytes; done += fill.size()) {
        const std::size_t part = std::min<std::uint64_t>(fill.size(), bytes - done);
        const int status =
            runtime().memcpy(workspace + done, part, fill.data(), part, ACL_MEMCPY_HOST_TO_DEVICE);
        if (status == 0) continue;
        complain(api, "aclrtMemcpy to the workspace", status);
        return false;
    }
    return true;
}

bool DeviceCall::guard_workspace(const std::string& api, std::byte* end) {
    const std::vector<std::byte> fill(kMargin, kMarginFill);
    const int status = runtime().memcpy(end, kMargin, fill.data(), kMargin, ACL_MEMCPY_HOST_TO_DEVICE);
    if (status != 0) complain(api, "aclrtMemcpy behind the workspace", status);
    return status == 0;
}

bool DeviceCall::workspace_is_kept_to(const std::string& api, std::byte* end) {
    std::vector<std::byte> found(kMargin);
    const int status = runtime().memcpy(found.data(), kMargin, end, kMargin, ACL_MEMCPY_DEVICE_TO_HOST);
    if (status != 0)
        complain(api, "aclrtMemcpy from behind the workspace", status);
    else if (const auto other = std::ranges::find_if(found, [](std::byte b) { return b != kMarginFill; });
             other != found.end())
        complain(api, "wrote behind the workspace it asked for, so many bytes behind what it may use:",
                 static_cast<int>(other - found.begin()));
    else
        return true;
    return false;
}

bool DeviceCall::copy_in(const std::string& api) {
    std::vector<std::byte> image;
    for (const Block& block : blocks_) {
        if (!block.placed) {
            complain(api, "a tensor of the accepted call does not fit the device, dtype or size",
                     0);
            return false;
        }
        image.assign(block.bytes + 2 * kMargin, kMarginFill);
        if (block.bytes > 0) std::memcpy(image.data() + kMargin, block.host, block.bytes);
        const int status = runtime().memcpy(block.device, image.size(), image.data(), image.size(),
                                            ACL_MEMCPY_HOST_TO_DEVICE);
        if (status != 0) {
            complain(api, "aclrtMemcpy to the device", status);
            return false;
        }
    }
    return true;
}

bool DeviceCall::copy_out(const std::string& api) {
    std::vector<std::byte> image;
    for (const Block& block : blocks_) {
        if (!block.placed) continue;  // workspace
        image.resize(block.bytes + 2 * kMargin);
        const int status = runtime().memcpy(image.data(), image.size(), block.device, image.size(),
                                            ACL_MEMCPY_DEVICE_TO_HOST);
        if (status != 0) {
            complain(api, "aclrtMemcpy from the device", status);
            return false;
        }
        if (block.bytes > 0 && std::memcmp(block.host, image.data() + kMargin, block.bytes) != 0)
            std::memcpy(block.host, image.data() + kMargin, block.bytes);
        // A byte written outside the extent is written to the same place on the host, where the
        // guards around a candidate's buffers tell of it.
        std::byte* origin = block.host - kMargin;
        for (std::size_t i = 0; i < image.size(); ++i) {
            if (i == kMargin) i += block.bytes;
            if (i < image.size() && image[i] != kMarginFill)
                *static_cast<volatile std::byte*>(origin + i) = image[i];
        }
    }
    return true;
}

}  // namespace attncheck::aclnn_adapter
