#include "fuzz/aclnn_program.h"

#include <aclnnop/aclnn_nsa_compress.h>
#include <aclnnop/aclnn_nsa_compress_grad.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace attncheck::fuzz {
namespace {

constexpr aclError kNull = 100000, kNotMine = 107000, kNoContext = 107002, kOtherContext = 107003,
                   kNoHandle = 107017;
constexpr aclnnStatus kAbsent = 161001, kInvalid = 161002, kNotQueued = 361001,
                      kInternalNull = 561103;

/// One block of 32 tokens of one head, stride 16.
constexpr std::int64_t kTokens = 32, kHeads = 1, kDim = 16, kBlock = 32, kStride = 16;
constexpr std::size_t kDataBytes = 2 * kTokens * kHeads * kDim;
constexpr std::uint64_t kAskedWorkspace = 100;

char variable[512];  ///< addresses of the program's own, which are no handles

[[noreturn]] void disagree(const char* call, int wanted, int got) {
    const char* text = aclGetRecentErrMsg();
    std::fprintf(stderr, "%s: expected %d, got %d (%s)\n", call, wanted, got, text ? text : "");
    __builtin_trap();
}

/// The status, and that the text of a failure is there, and is there once.
void require(const char* call, int wanted, int got) {
    if (got != wanted) disagree(call, wanted, got);
    const char* text = aclGetRecentErrMsg();
    const bool explained = text != nullptr && *text != '\0';
    if (explained == (got == 0)) disagree(explained ? "text of a success" : call, wanted, got);
    if (aclGetRecentErrMsg() != nullptr) disagree("aclGetRecentErrMsg", 0, 1);
}

void set_variable(const char* name, bool on, const char* value) {
    on ? setenv(name, value, 1) : unsetenv(name);
}

}  // namespace

AclnnProgram::AclnnProgram(const CallBytes& bytes)
    : settings_(bytes.head.empty() ? 0 : bytes.head[0]) {
    set_variable("ATTNCHECK_ACL_SYNC", settings_ & 1, "1");
    set_variable("ATTNCHECK_ACL_DEBUG", is_guarded(bytes), "1");
    set_variable("ATTNCHECK_ACL_WORKSPACE", settings_ & 8, std::to_string(kAskedWorkspace).c_str());
    workspace_bytes_ = settings_ & 8 ? kAskedWorkspace : 0;
    require("aclInit", 0, aclInit(nullptr));
    require("aclrtSetDevice", 0, aclrtSetDevice(0));
    require("aclrtGetCurrentContext", 0, aclrtGetCurrentContext(&default_context_));
    current_ = default_context_;
    for (char** block : {&data_[kInput], &data_[kWeight], &data_[kOutput], &workspace_}) {
        require(
            "aclrtMalloc", 0,
            aclrtMalloc(reinterpret_cast<void**>(block), kDataBytes, ACL_MEM_MALLOC_HUGE_FIRST));
        require("aclrtMemset", 0, aclrtMemset(*block, kDataBytes, 0x11, kDataBytes));
    }
}

AclnnProgram::~AclnnProgram() {
    for (TensorSlot& tensor : tensors_)
        if (tensor.alive) require("aclDestroyTensor", 0, aclDestroyTensor(tensor.handle));
    for (ArraySlot& array : arrays_)
        if (array.alive) require("aclDestroyIntArray", 0, aclDestroyIntArray(array.handle));
    if (settings_ & 16)
        for (ExecutorSlot& executor : executors_)
            if (executor.alive)
                require("aclDestroyAclOpExecutor", 0, aclDestroyAclOpExecutor(executor.handle));
    if (settings_ & 32)
        for (BlockSlot& block : blocks_)
            if (block.alive) require("aclrtFree", 0, aclrtFree(block.handle));
    if (settings_ & 64)
        for (auto& context : contexts_)
            if (context.alive)
                require("aclrtDestroyContext", 0, aclrtDestroyContext(context.handle));
    require("aclFinalize", 0, aclFinalize());
}

bool AclnnProgram::is_guarded(const CallBytes& bytes) {
    return !bytes.head.empty() && (bytes.head[0] & 6) == 6;
}

void AclnnProgram::run(const Change& step) {
    using Action = void (AclnnProgram::*)(const Change&);
    constexpr Action kActions[] = {
        &AclnnProgram::make_tensor,   &AclnnProgram::destroy_tensor, &AclnnProgram::make_array,
        &AclnnProgram::destroy_array, &AclnnProgram::make_stream,    &AclnnProgram::destroy_stream,
        &AclnnProgram::synchronize,   &AclnnProgram::use_context,    &AclnnProgram::allocate,
        &AclnnProgram::release,       &AclnnProgram::copy,           &AclnnProgram::first_phase,
        &AclnnProgram::first_phase,   &AclnnProgram::second_phase,   &AclnnProgram::second_phase,
        &AclnnProgram::keep_executor};
    (this->*kActions[step.what % std::size(kActions)])(step);
}

template <class Handle, class Slots>
Handle AclnnProgram::pick(const Slots& slots, std::uint8_t choice) {
    const std::size_t place = choice % (slots.size() + 3);
    if (place < slots.size()) return slots[place].handle;
    if (place == slots.size()) return nullptr;
    if (place == slots.size() + 1) return reinterpret_cast<Handle>(&variable);
    const void* others[] = {streams_[0].handle, arrays_[0].handle, tensors_[0].handle,
                            executors_[0].handle};
    for (const void* other : others)
        if (other && static_cast<const void*>(slots[0].handle) != other)
            return reinterpret_cast<Handle>(const_cast<void*>(other));
    return reinterpret_cast<Handle>(&variable);
}

AclnnProgram::TensorSlot* AclnnProgram::tensor_of(const aclTensor* handle) {
    for (TensorSlot& slot : tensors_)
        if (slot.alive && slot.handle == handle) return &slot;
    return nullptr;
}

AclnnProgram::ArraySlot* AclnnProgram::array_of(const aclIntArray* handle) {
    for (ArraySlot& slot : arrays_)
        if (slot.alive && slot.handle == handle) return &slot;
    return nullptr;
}

AclnnProgram::ExecutorSlot* AclnnProgram::executor_of(const aclOpExecutor* handle) {
    for (ExecutorSlot& slot : executors_)
        if (slot.alive && slot.handle == handle) return &slot;
    return nullptr;
}

AclnnProgram::BlockSlot* AclnnProgram::block_around(const char* address) {
    for (BlockSlot& slot : blocks_)
        if (slot.alive && address >= slot.handle && address < slot.handle + slot.bytes.size())
            return &slot;
    return nullptr;
}

void AclnnProgram::make_tensor(const Change& step) {
    TensorSlot& slot = tensors_[step.which % tensors_.size()];
    if (slot.alive) return;
    slot.role = static_cast<Role>(step.kind % kRoles);
    const std::int64_t dims[kRoles][3] = {
        {kTokens, kHeads, kDim}, {kBlock, kHeads, 0}, {1, kHeads, kDim}, {kTokens, kHeads, kDim}};
    const std::uint64_t rank = slot.role == kWeight ? 2 : 3;
    slot.handle = aclCreateTensor(dims[slot.role], rank, ACL_FLOAT16, nullptr, 0, ACL_FORMAT_ND,
                                  dims[slot.role], rank, data_[slot.role]);
    if (!slot.handle) disagree("aclCreateTensor", 0, 1);
    slot.alive = true;
}

void AclnnProgram::destroy_tensor(const Change& step) {
    const auto handle = pick<aclTensor*>(tensors_, step.which);
    TensorSlot* const slot = tensor_of(handle);
    require("aclDestroyTensor", !handle || slot ? 0 : kInvalid, aclDestroyTensor(handle));
    if (slot) slot->alive = false;
}

void AclnnProgram::make_array(const Change& step) {
    ArraySlot& slot = arrays_[step.which % arrays_.size()];
    if (slot.alive) return;
    const std::int64_t values[][2] = {{kTokens, 0}, {kTokens + 1, 0}, {16, kTokens}, {-1, kTokens}};
    const std::size_t choice = step.kind % 5;
    slot.handle = choice == 4 ? aclCreateIntArray(nullptr, 0)
                              : aclCreateIntArray(values[choice], choice < 2 ? 1 : 2);
    if (!slot.handle) disagree("aclCreateIntArray", 0, 1);
    slot.alive = true, slot.legal = choice == 0;
}

void AclnnProgram::destroy_array(const Change& step) {
    const auto handle = pick<aclIntArray*>(arrays_, step.which);
    ArraySlot* const slot = array_of(handle);
    require("aclDestroyIntArray", !handle || slot ? 0 : kInvalid, aclDestroyIntArray(handle));
    if (slot) slot->alive = false;
}

aclError AclnnProgram::status_of_stream(aclrtStream handle) {
    if (!handle) return 0;
    for (const StreamSlot& slot : streams_)
        if (slot.alive && slot.handle == handle) return slot.owner == current_ ? 0 : kOtherContext;
    return kNoHandle;
}

void AclnnProgram::make_stream(const Change& step) {
    StreamSlot& slot = streams_[step.which % streams_.size()];
    if (slot.alive) return;
    require("aclrtCreateStream", kNull, aclrtCreateStream(nullptr));
    require("aclrtCreateStream", 0, aclrtCreateStream(&slot.handle));
    slot.alive = true, slot.owner = current_;
}

void AclnnProgram::destroy_stream(const Change& step) {
    const auto handle = pick<aclrtStream>(streams_, step.which);
    const aclError wanted = handle ? status_of_stream(handle) : kNull;
    require("aclrtDestroyStream", wanted, aclrtDestroyStream(handle));
    for (StreamSlot& slot : streams_)
        if (wanted == 0 && slot.handle == handle) slot.alive = false;
}

void AclnnProgram::synchronize(const Change& step) {
    const auto handle = pick<aclrtStream>(streams_, step.which);
    require("aclrtSynchronizeStream", status_of_stream(handle), aclrtSynchronizeStream(handle));
}

void AclnnProgram::forget_streams_of(aclrtContext owner) {
    for (StreamSlot& slot : streams_)
        if (slot.owner == owner) slot.alive = false;
}

void AclnnProgram::use_context(const Change& step) {
    auto& slot = contexts_[step.which % contexts_.size()];
    switch (step.kind % 4) {
        case 0:
            if (slot.alive) return;
            require("aclrtCreateContext", 0, aclrtCreateContext(&slot.handle, 0));
            slot.alive = true, current_ = slot.handle;
            return;
        case 1: {
            const aclError wanted = slot.alive ? 0 : slot.handle ? kNoContext : kNull;
            require("aclrtDestroyContext", wanted, aclrtDestroyContext(slot.handle));
            if (!slot.alive) return;
            forget_streams_of(slot.handle);
            slot.alive = false;
            if (current_ == slot.handle) current_ = default_context_;
            return;
        }
        case 2: {
            const aclError wanted = slot.alive ? 0 : slot.handle ? kNotMine : kNull;
            require("aclrtSetCurrentContext", wanted, aclrtSetCurrentContext(slot.handle));
            if (slot.alive) current_ = slot.handle;
            return;
        }
        default:
            require("aclrtDestroyContext", kNoContext, aclrtDestroyContext(default_context_));
            require("aclrtSetCurrentContext", 0, aclrtSetCurrentContext(default_context_));
            current_ = default_context_;
    }
}

void AclnnProgram::allocate(const Change& step) {
    BlockSlot& slot = blocks_[step.which % blocks_.size()];
    if (slot.alive) return;
    const std::size_t size = step.number % 300;
    void* address = nullptr;
    require("aclrtMalloc", size ? 0 : kNull,
            aclrtMalloc(&address, size, ACL_MEM_MALLOC_NORMAL_ONLY));
    if (!size) return;
    slot.handle = static_cast<char*>(address), slot.alive = true;
    slot.bytes.assign((size + 31) / 32 * 32 + 32, 0x5a);
    require("aclrtMemset", 0, aclrtMemset(address, slot.bytes.size(), 0x5a, slot.bytes.size()));
}

void AclnnProgram::release(const Change& step) {
    char* address = pick<char*>(blocks_, step.which);
    if (address && step.kind % 4 == 1) address += 1 + step.argument;
    BlockSlot* const slot = block_around(address);
    const bool start = slot && slot->handle == address;
    const bool of_program = std::find(data_.begin(), data_.end(), address) != data_.end();
    if (address && of_program) return;  // a stale address may have become that of another block
    require("aclrtFree", !address ? kNull : start ? 0 : kNotMine, aclrtFree(address));
    if (start) slot->alive = false;
}

/// Up and down, or between blocks; the bytes that arrive are those of the model.
void AclnnProgram::copy(const Change& step) {
    char* device = pick<char*>(blocks_, step.which);
    if (device) device += step.argument;
    const std::size_t count = step.number % 400, capacity = (step.number >> 16) % 500;
    BlockSlot* const slot = block_around(device);
    if (device && !slot && device != variable + step.argument) return;  // may be someone's
    const bool fits = slot && device + count <= slot->handle + slot->bytes.size();
    std::vector<unsigned char> host(count + 1, step.kind);
    const bool up = step.kind % 2;
    const aclError wanted = count == 0         ? 0
                            : !device          ? kNull
                            : count > capacity ? kNotMine
                            : fits             ? 0
                                               : kNotMine;
    require("aclrtMemcpy", wanted,
            up ? aclrtMemcpy(device, capacity, host.data(), count, ACL_MEMCPY_HOST_TO_DEVICE)
               : aclrtMemcpy(host.data(), capacity, device, count, ACL_MEMCPY_DEVICE_TO_HOST));
    if (wanted != 0 || count == 0) return;
    unsigned char* const known = slot->bytes.data() + (device - slot->handle);
    if (up) std::copy_n(host.begin(), count, known);
    if (!up && !std::equal(known, known + count, host.begin())) disagree("bytes copied", 0, 1);
}

void AclnnProgram::first_phase(const Change& step) {
    const bool gradient = step.kind & 1;
    std::uint64_t bits = step.number;
    const auto next = [&bits] {
        const auto four = static_cast<std::uint8_t>(bits & 15);
        bits >>= 4;
        return four;
    };
    bool absent = false, invalid = false;
    const auto tensor = [&](Role role) {
        // Mostly a tensor that fits, so that executors come to be.
        aclTensor* handle = pick<aclTensor*>(tensors_, next());
        if (step.argument % 4 != 0)
            for (const TensorSlot& slot : tensors_)
                if (slot.alive && slot.role == role) handle = slot.handle;
        const TensorSlot* const slot = tensor_of(handle);
        absent |= !handle || (slot && slot->role == kNoData);
        invalid |= handle && (!slot || slot->role != role);
        return handle;
    };
    aclTensor* const input = tensor(kInput);
    aclTensor* const weight = tensor(kWeight);
    aclTensor* const output = tensor(kOutput);
    aclTensor* const input_grad = gradient ? tensor(kInput) : nullptr;
    aclTensor* const weight_grad = gradient ? tensor(kWeight) : nullptr;
    const auto array = pick<aclIntArray*>(arrays_, next());
    const ArraySlot* const lengths = array_of(array);
    absent |= !array && !gradient;
    invalid |= array && (!lengths || !lengths->legal);
    char layouts[][5] = {"TND", "TN", "BSND"};
    const std::size_t layout = step.argument % 16 > 2 ? 0 : step.argument % 16;
    invalid |= layout != 0;
    std::uint64_t size = 7;
    aclOpExecutor* executor = nullptr;
    aclOpExecutor** const out = step.kind & 2 && step.argument % 8 == 0 ? nullptr : &executor;
    absent |= out == nullptr;
    const aclnnStatus status =
        gradient ? aclnnNsaCompressGradGetWorkspaceSize(output, input, weight, array, kBlock,
                                                        kStride, 0, layouts[layout], input_grad,
                                                        weight_grad, &size, out)
                 : aclnnNsaCompressGetWorkspaceSize(input, weight, array, layouts[layout], kBlock,
                                                    kStride, 0, output, &size, out);
    require(gradient ? "aclnnNsaCompressGradGetWorkspaceSize" : "aclnnNsaCompressGetWorkspaceSize",
            absent    ? kAbsent
            : invalid ? kInvalid
                      : 0,
            status);
    if (size != (status == 0 ? workspace_bytes_ : 0)) disagree("workspaceSize", 0, 1);
    if ((executor != nullptr) != (status == 0)) disagree("executor", 0, 1);
    if (status != 0) return;
    ExecutorSlot& slot = executors_[step.which % executors_.size()];
    if (slot.alive) require("aclDestroyAclOpExecutor", 0, aclDestroyAclOpExecutor(slot.handle));
    slot.handle = executor, slot.alive = true, slot.gradient = gradient, slot.repeatable = false;
}

void AclnnProgram::second_phase(const Change& step) {
    const auto handle = pick<aclOpExecutor*>(executors_, step.which);
    ExecutorSlot* const slot = executor_of(handle);
    const bool gradient = slot ? slot->gradient != (step.kind % 8 == 0) : step.kind & 1;
    const aclrtStream stream = pick<aclrtStream>(streams_, step.argument);
    void* const workspaces[] = {workspace_, workspace_, nullptr, variable};
    void* const workspace = workspaces[step.number % 4];
    const std::uint64_t size = step.number >> 2 & 1 ? workspace_bytes_ : step.number >> 3 & 127;
    aclnnStatus wanted = 0;
    if (!handle)
        wanted = kAbsent;
    else if (!slot || slot->gradient != gradient)
        wanted = kInvalid;
    else if (!workspace && (workspace_bytes_ > 0 || size > 0))
        wanted = kAbsent;
    else if (size < workspace_bytes_ || (workspace_bytes_ > 0 && workspace == variable))
        wanted = kInvalid;
    else if (status_of_stream(stream) != 0)
        wanted = kNotQueued;
    require(gradient ? "aclnnNsaCompressGrad" : "aclnnNsaCompress", wanted,
            gradient ? aclnnNsaCompressGrad(workspace, size, handle, stream)
                     : aclnnNsaCompress(workspace, size, handle, stream));
    if (slot && !slot->repeatable) slot->alive = false;  // used up, whatever was returned
}

void AclnnProgram::keep_executor(const Change& step) {
    const auto handle = pick<aclOpExecutor*>(executors_, step.which);
    ExecutorSlot* const slot = executor_of(handle);
    const aclnnStatus wanted = !handle ? kInternalNull : slot ? 0 : kInvalid;
    if (step.kind % 2) {
        require("aclSetAclOpExecutorRepeatable", wanted, aclSetAclOpExecutorRepeatable(handle));
        if (slot) slot->repeatable = true;
    } else {
        require("aclDestroyAclOpExecutor", wanted, aclDestroyAclOpExecutor(handle));
        if (slot) slot->alive = false;
    }
}

}  // namespace attncheck::fuzz
