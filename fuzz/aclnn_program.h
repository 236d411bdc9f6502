// A program over the vendor's C interface and a model of what each of its calls must return.
//
// Documented in include/acl, include/aclnn and include/aclnnop: handles that are null, stale (their
// object is destroyed), foreign (of another kind, or no handle at all) or of another context,
// copies past an allocation, executors of another operator or used up, workspaces that are absent,
// small or on the host.
#pragma once

#include <acl/acl.h>
#include <aclnn/acl_meta.h>

#include <array>
#include <vector>

#include "fuzz/call_bytes.h"

namespace attncheck::fuzz {

class AclnnProgram {
public:
    /// aclInit, device 0, and the blocks that tensors point into. The head's first byte chooses
    /// synchronous streams, guarded memory and a workspace that every operator asks for.
    explicit AclnnProgram(const CallBytes& bytes);
    /// Destroys what is alive and calls aclFinalize; of streams, contexts, blocks and executors the
    /// head may leave some to it.
    ~AclnnProgram();
    AclnnProgram(const AclnnProgram&) = delete;
    AclnnProgram& operator=(const AclnnProgram&) = delete;

    /// True when device memory is guarded: then the addresses of freed blocks are kept for a while.
    static bool is_guarded(const CallBytes& bytes);

    /// One call; a trap when its status is not that of the model.
    void run(const Change& step);

private:
    template <class Pointer>
    struct Slot {
        Pointer handle = nullptr;  ///< keeps its value when the object is destroyed
        bool alive = false;
    };
    enum Role { kInput, kWeight, kOutput, kNoData, kRoles };
    struct TensorSlot : Slot<aclTensor*> {
        Role role = kInput;
    };
    struct ArraySlot : Slot<aclIntArray*> {
        bool legal = true;  ///< one sequence of all tokens
    };
    struct StreamSlot : Slot<aclrtStream> {
        aclrtContext owner = nullptr;
    };
    struct BlockSlot : Slot<char*> {
        std::vector<unsigned char> bytes;  ///< what was copied there
    };
    struct ExecutorSlot : Slot<aclOpExecutor*> {
        bool gradient = false, repeatable = false;
    };

    void make_tensor(const Change& step);
    void destroy_tensor(const Change& step);
    void make_array(const Change& step);
    void destroy_array(const Change& step);
    void make_stream(const Change& step);
    void destroy_stream(const Change& step);
    void synchronize(const Change& step);
    void use_context(const Change& step);
    void allocate(const Change& step);
    void release(const Change& step);
    void copy(const Change& step);
    void first_phase(const Change& step);
    void second_phase(const Change& step);
    void keep_executor(const Change& step);

    TensorSlot* tensor_of(const aclTensor* handle);
    ArraySlot* array_of(const aclIntArray* handle);
    ExecutorSlot* executor_of(const aclOpExecutor* handle);
    BlockSlot* block_around(const char* address);
    aclError status_of_stream(aclrtStream handle);
    void forget_streams_of(aclrtContext owner);

    /// The handle of a slot, null, the address of a variable, or a handle of another kind.
    template <class Handle, class Slots>
    Handle pick(const Slots& slots, std::uint8_t choice);

    std::uint8_t settings_ = 0;
    std::uint64_t workspace_bytes_ = 0;
    std::array<char*, kRoles> data_{};  ///< device blocks by role
    char* workspace_ = nullptr;
    aclrtContext default_context_ = nullptr, current_ = nullptr;
    std::array<Slot<aclrtContext>, 2> contexts_;
    std::array<StreamSlot, 3> streams_;
    std::array<TensorSlot, 5> tensors_;
    std::array<ArraySlot, 2> arrays_;
    std::array<BlockSlot, 3> blocks_;
    std::array<ExecutorSlot, 3> executors_;
};

}  // namespace attncheck::fuzz
