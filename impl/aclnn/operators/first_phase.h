#ifndef ATTNCHECK_IMPL_ACLNN_OPERATORS_FIRST_PHASE_H
#define ATTNCHECK_IMPL_ACLNN_OPERATORS_FIRST_PHASE_H

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "impl/aclnn/executor.h"
#include "impl/aclnn/operators/call_snapshot.h"
#include "impl/aclnn/operators/staging.h"
#include "impl/aclnn/status.h"
#include "impl/arguments/rejection.h"

namespace attncheck::aclnn {

/// What every variant of an operator shares: the built-in validator and entry point.
template <class Args>
struct Operator {
    /// May look at everything but the data of tensors, which queued work may not have written yet.
    impl::MaybeRejection (*validate)(const Args*);
    int (*run)(const Args*);
};

/// "query" for &attncheck_nsa_compress_args::query: the name that validators use. Read off the text
/// that gcc and clang have for this function: "[with auto Member = &attncheck_...::query; ...]".
template <auto Member>
constexpr std::string_view field_name() {
    const std::string_view text = __PRETTY_FUNCTION__;
    const std::size_t begin = text.find('&'), end = text.find_first_of(";]", begin);
    const std::string_view member = text.substr(begin, end - begin);
    return member.substr(member.rfind(':') + 1);
}

/// The arguments of one call, from a variant's parameter list to the struct of candidate.h. A
/// variant says one line per parameter, in the order of its list:
///
///   call.input<&Args::query>("query", query);
///
/// the field that receives it, the parameter's name and its value. Fields that no line mentions
/// stay absent or zero.
template <class Args>
class MappedCall {
public:
    template <attncheck_tensor Args::* Member>
    void input(const char* parameter, const aclTensor* value) {
        tensor<Member>(parameter, value, Direction::kInput);
    }
    template <attncheck_tensor Args::* Member>
    void output(const char* parameter, const aclTensor* value) {
        tensor<Member>(parameter, value, Direction::kOutput);
    }
    template <attncheck_int_array Args::* Member>
    void array(const char* parameter, const aclIntArray* value) {
        snapshot_.name(field_name<Member>(), parameter);
        args_.*Member = snapshot_.array(parameter, value);
    }
    template <const char* Args::* Member>
    void text(const char* parameter, const char* value) {
        snapshot_.name(field_name<Member>(), parameter);
        args_.*Member = snapshot_.text(value);
    }
    template <std::int64_t Args::* Member>
    void integer(const char* parameter, std::int64_t value) {
        snapshot_.name(field_name<Member>(), parameter);
        args_.*Member = value;
    }
    template <double Args::* Member>
    void real(const char* parameter, double value) {
        snapshot_.name(field_name<Member>(), parameter);
        args_.*Member = value;
    }

    /// `argument` may not be null although the field may be absent.
    void require(const char* parameter, const void* argument) {
        snapshot_.require(parameter, argument);
    }
    /// A constraint of the variant that the operator does not have; the first one counts. It comes
    /// after absent arguments and before everything else that the operator checks.
    void reject(std::string parameter, std::string message) {
        if (!of_variant_)
            of_variant_ = impl::Rejection{kInvalid, std::move(parameter), std::move(message)};
    }

    impl::MaybeRejection judge(const Operator<Args>& op) const {
        if (snapshot_.missing()) return snapshot_.missing();
        impl::MaybeRejection rejection = op.validate(&args_);
        // A parameter that the variant lacks is missing only because of the layout it was given.
        if (rejection && rejection->status == kNullPointer && snapshot_.has(rejection->parameter))
            return rejection;
        if (snapshot_.unusable()) return snapshot_.unusable();
        return of_variant_ ? of_variant_ : rejection;
    }
    std::string in_caller_terms(const std::string& message) const {
        return snapshot_.in_caller_terms(message);
    }

    /// After judge: where staged tensors go. Returns the bytes of workspace.
    std::uint64_t plan_staging() {
        std::uint64_t total = 0;
        for (Tensor& tensor : tensors_) {
            tensor.offset = total;
            tensor.staged = staged_bytes(args_.*tensor.member) != 0;
            total += staged_bytes(args_.*tensor.member);
        }
        return total;
    }

    /// Runs the operator on the arguments, staged tensors in `workspace`. Outputs are untouched
    /// unless it succeeds.
    int run(const Operator<Args>& op, void* workspace) const {
        Args args = args_;
        for (const Tensor& tensor : tensors_) {
            if (!tensor.staged) continue;
            attncheck_tensor& view = args.*tensor.member;
            view = packed_at(static_cast<std::byte*>(workspace) + tensor.offset, view);
            if (tensor.direction == Direction::kInput) copy_elements(args_.*tensor.member, view);
        }
        const int status = op.run(&args);
        if (status != kSuccess) return status;
        for (const Tensor& tensor : tensors_) {
            if (tensor.staged && tensor.direction == Direction::kOutput)
                copy_elements(args.*tensor.member, args_.*tensor.member);
        }
        return kSuccess;
    }

private:
    struct Tensor {
        attncheck_tensor Args::* member;
        Direction direction;
        bool staged;
        std::uint64_t offset;
    };

    template <attncheck_tensor Args::* Member>
    void tensor(const char* parameter, const aclTensor* value, Direction direction) {
        snapshot_.name(field_name<Member>(), parameter);
        args_.*Member = snapshot_.tensor(parameter, value, direction);
        tensors_.push_back({Member, direction, false, 0});
    }

    Args args_{};
    CallSnapshot snapshot_;
    std::vector<Tensor> tensors_;
    impl::MaybeRejection of_variant_;
};

/// Makes "<api>GetWorkspaceSize: <message>" the error text of this thread.
void set_first_phase_error(const char* api, const std::string& message);

/// The whole of a first phase. `map` fills a MappedCall; `api` is the name of the second phase.
///
/// Errors  161001 for what is absent, 161002 for what breaks a constraint, 561000 for what nobody
///         foresaw. *executor is then null and *workspace_size 0; the error text names the
///         parameter as the caller knows it.
template <class Args, class Map>
aclnnStatus first_phase(const char* api, const Operator<Args>& op, const Map& map,
                        std::uint64_t* workspace_size, aclOpExecutor** executor) noexcept {
    if (workspace_size != nullptr) *workspace_size = 0;
    if (executor != nullptr) *executor = nullptr;
    try {
        if (workspace_size == nullptr || executor == nullptr) {
            set_first_phase_error(api, workspace_size == nullptr
                                           ? "workspaceSize is NULL; allowed: not NULL"
                                           : "executor is NULL; allowed: not NULL");
            return kNullPointer;
        }
        const auto call = std::make_shared<MappedCall<Args>>();
        map(*call);
        if (const impl::MaybeRejection rejection = call->judge(op)) {
            set_first_phase_error(api, call->in_caller_terms(rejection->message));
            return rejection->status;
        }
        const std::uint64_t bytes = call->plan_staging();
        const auto run = [name = std::string(api), op, call](void* workspace) {
            const int status = call->run(op, workspace);
            if (status != kSuccess)
                set_error(name + ": " + call->in_caller_terms(impl::last_error_message()));
            return status;
        };
        return make_executor({api, bytes, run}, workspace_size, executor);
    } catch (const std::exception& failure) {
        set_error(failure.what());
    }
    return kInternal;
}

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_IMPL_ACLNN_OPERATORS_FIRST_PHASE_H
