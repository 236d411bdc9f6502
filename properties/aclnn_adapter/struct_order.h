// Calls of vendor functions whose parameters come in the order of the C struct of candidate.h: the
// struct is the list of arguments.
#pragma once

#include <attncheck/candidate.h>

#include <cstddef>
#include <utility>

#include "properties/aclnn_adapter/device_call.h"

namespace attncheck::aclnn_adapter {

/// Converts to any member, so that members of an aggregate can be counted.
struct AnyMember {
    template <class T>
    operator T() const;
};

template <class Args, std::size_t... I>
consteval bool takes(std::index_sequence<I...>) {
    return requires { Args{(static_cast<void>(I), AnyMember{})...}; };
}

/// How many members the struct has.
template <class Args, std::size_t count = 0>
consteval std::size_t member_count() {
    if constexpr (takes<Args>(std::make_index_sequence<count + 1>{}))
        return member_count<Args, count + 1>();
    else
        return count;
}

/// The tensor of either type that first phases take.
struct TensorParameter {
    Tensor tensor;
    operator const aclTensor*() const { return tensor; }
    operator aclTensor*() const { return const_cast<aclTensor*>(tensor); }
};

inline TensorParameter parameter(DeviceCall& call, const attncheck_tensor& member) {
    return {call.tensor(member)};
}
inline Array parameter(DeviceCall& call, const attncheck_int_array& member) {
    return call.array(member);
}
inline Text parameter(DeviceCall& call, const char* member) { return call.text(member); }
inline Integer parameter(DeviceCall&, Integer member) { return member; }
inline Real parameter(DeviceCall&, Real member) { return member; }

/// Both phases with all members in their order. Declined when the libraries lack the function.
template <class First, class Args>
int run_in_order(const TwoPhases<First>& api, const Args& args) {
    if (!api) return ATTNCHECK_DECLINED;
    DeviceCall call;
    // Braces: parameters are made from the first to the last, as tensors lie on the device.
    const auto run = [&](const auto&... members) {
        return call.run_list(api, std::tuple{parameter(call, members)...});
    };
    constexpr std::size_t count = member_count<Args>();
    if constexpr (count == 8) {
        const auto& [a, b, c, d, e, f, g, h] = args;
        return run(a, b, c, d, e, f, g, h);
    } else if constexpr (count == 10) {
        const auto& [a, b, c, d, e, f, g, h, i, j] = args;
        return run(a, b, c, d, e, f, g, h, i, j);
    } else if constexpr (count == 16) {
        const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = args;
        return run(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
    } else {
        const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = args;
        return run(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t);
    }
}

}  // namespace attncheck::aclnn_adapter
