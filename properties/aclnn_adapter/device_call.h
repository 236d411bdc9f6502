// One call of a two-phase operator: arguments on the device, both phases, results back.
#pragma once

#include <attncheck/candidate.h>

#include <cstddef>
#include <tuple>
#include <vector>

#include "properties/aclnn_adapter/vendor_libraries.h"

namespace attncheck::aclnn_adapter {

/// Owns the descriptors and the device memory of one call, and releases them at its end.
///
/// A tensor's whole extent, from its first to its last element in memory, is laid out on the device
/// as it is on the host, so strides stay what they are. Data moves between the phases: a first
/// phase judges arguments without reading tensors, and a rejected shape may claim more than its
/// buffer has. After success every tensor is compared with its device copy and written back where
/// it changed, inputs and the bytes around it too: what the operator writes where it must not is
/// then found by the checks that hold for every candidate.
class DeviceCall {
public:
    DeviceCall() = default;
    DeviceCall(const DeviceCall&) = delete;
    DeviceCall& operator=(const DeviceCall&) = delete;
    ~DeviceCall();

    /// Null for an absent argument.
    Tensor tensor(const attncheck_tensor& host);
    /// Null for an absent argument. What cannot be said to the vendor's interface is judged here,
    /// as the contract has it: values absent although a size is given, and sizes below 0.
    Array array(const attncheck_int_array& host);
    static Text text(const char* host) { return const_cast<char*>(host); }

    /// Both phases; the parameters of the first without its last two. Returns a candidate's status.
    template <class First, class... Parameters>
    int run(const TwoPhases<First>& api, Parameters... parameters) {
        if (failed_ != 0) return failed_;
        std::uint64_t workspace_bytes = 0;
        aclOpExecutor* executor = nullptr;
        int status = api.first(parameters..., &workspace_bytes, &executor);
        // The large ones are laid out now, and judged again: executors keep addresses.
        if (status == 0 && !inexpressible_ && place_deferred())
            status = api.first(parameters..., &workspace_bytes, &executor);
        return finish(api.name, status, api.second, workspace_bytes, executor);
    }
    template <class First, class... Parameters>
    int run_list(const TwoPhases<First>& api, const std::tuple<Parameters...>& parameters) {
        return std::apply([&](auto... each) { return run(api, each...); }, parameters);
    }

private:
    struct Block {
        std::byte* host;    ///< first byte of the extent
        std::size_t bytes;  ///< of the extent
        std::byte* device;  ///< start of the allocation; the extent follows after a margin
        bool placed;        ///< false: only an address, for the first phase to look at
        aclTensor* deferred = nullptr;  ///< gets its memory when a first phase has accepted it
    };

    int finish(const std::string& api, int status, SecondPhase* second,
               std::uint64_t workspace_bytes, aclOpExecutor* executor);
    int execute(const std::string& api, SecondPhase* second, std::uint64_t workspace_bytes,
                aclOpExecutor* executor);
    bool place_deferred();  ///< whether there were any
    bool copy_in(const std::string& api);
    bool fill_workspace(const std::string& api, std::byte* workspace, std::uint64_t bytes);
    void release_descriptors();  ///< before the work on the stream has run, as a caller may
    bool guard_workspace(const std::string& api, std::byte* end);  ///< fills what lies behind what may be used
    bool workspace_is_kept_to(const std::string& api, std::byte* end);
    bool copy_out(const std::string& api);
    std::byte* allocate(std::size_t bytes);

    std::vector<Block> blocks_;
    std::vector<Tensor> tensors_;
    std::vector<Array> arrays_;
    int failed_ = 0;              ///< the status to return without a call; 0: call
    bool inexpressible_ = false;  ///< something illegal was replaced: success is not possible
};

}  // namespace attncheck::aclnn_adapter
