// Where an argument lies: a member of the C struct of an entry point and its counterpart among the
// arguments of the documented rules. `both<&A::input, &R::input>` of a description is all that
// packing a call, reading one back and asking for the ruling need.
#pragma once

#include <attncheck/candidate.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ref/constraints/constraints.h"

namespace attncheck::properties {

template <class Given, class Ruled>
struct Argument {
    void (*put)(void* args, const Given& value) = nullptr;
    Given (*get)(const void* args) = nullptr;
    void (*put_ruled)(void* ruled, Ruled value) = nullptr;
};

using TensorArgument = Argument<attncheck_tensor, ref::TensorArgument>;
using ArrayArgument = Argument<attncheck_int_array, ref::ArrayArgument>;
using TextArgument = Argument<const char*, std::optional<std::string>>;
using IntegerArgument = Argument<std::int64_t, std::int64_t>;
using RealArgument = Argument<double, double>;

template <auto Member>
struct MemberOf;
template <class Struct, class Type, Type Struct::*Member>
struct MemberOf<Member> {
    using Value = Type;
    static void put(void* to, const Type& value) { static_cast<Struct*>(to)->*Member = value; }
    static void move(void* to, Type value) {
        static_cast<Struct*>(to)->*Member = std::move(value);
    }
    static Type get(const void* from) { return static_cast<const Struct*>(from)->*Member; }
};

template <auto Given, auto Ruled>
inline constexpr Argument<typename MemberOf<Given>::Value, typename MemberOf<Ruled>::Value> both{
    MemberOf<Given>::put, MemberOf<Given>::get, MemberOf<Ruled>::move};

/// An argument that no documented rule asks for.
template <auto Given>
inline constexpr Argument<typename MemberOf<Given>::Value, typename MemberOf<Given>::Value> unruled{
    MemberOf<Given>::put, MemberOf<Given>::get};

struct Call;

/// An entry point: its C struct and its documented rules, without their types.
struct EntryPoint {
    using Fill = std::function<void(void*)>;
    /// The C struct, zero and then filled, as bytes.
    std::function<std::vector<std::byte>(const Fill&)> pack;
    /// The ruling on arguments that are default and then filled.
    std::function<ref::Ruling(const Fill&, const Call&)> rule;
};

/// `finish` sets arguments of the rules that no argument of the call is.
template <class Args, class Ruled>
EntryPoint entry_point(ref::Ruling (*rule)(const Ruled&),
                       void (*finish)(const Call&, Ruled&) = nullptr) {
    return {[](const EntryPoint::Fill& fill) {
                Args args{};
                fill(&args);
                std::vector<std::byte> bytes(sizeof args);
                std::memcpy(bytes.data(), &args, sizeof args);
                return bytes;
            },
            [rule, finish](const EntryPoint::Fill& fill, const Call& call) {
                Ruled ruled;
                fill(&ruled);
                if (finish) finish(call, ruled);
                return rule(ruled);
            }};
}

}  // namespace attncheck::properties
