// The operators of an NSA module as a Candidate runs them: C arguments become Calls, results go
// back into the caller's memory, and every call is kept.
#pragma once

#include <attncheck/nsa_module.h>

#include <exception>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/judge/verdict.h"

namespace attncheck::properties {

/// The entry points a module is made of, in the order of attncheck_nsa_operators.
enum class ModuleOp {
    compress,
    compress_attention,
    selected_attention,
    flash_attention,
    compress_grad,
    selected_attention_grad,
    flash_attention_grad
};
const std::vector<std::string>& module_operators();

struct OperatorRecord {
    ModuleOp op;
    Call call;
    CallResult result;
    const std::vector<std::uint32_t>& output(std::string_view tensor) const {
        return result.outputs[tensor_index(call, tensor)];
    }
};

/// Gives a module the operators of `candidate` for as long as this lives.
class ModuleOperators {
public:
    explicit ModuleOperators(Candidate& candidate) : candidate_(candidate) {}
    ModuleOperators(const ModuleOperators&) = delete;
    ModuleOperators& operator=(const ModuleOperators&) = delete;

    /// Refers to this.
    attncheck_nsa_operators table();
    /// The calls so far, which this forgets: they hold all of their tensors.
    std::vector<OperatorRecord> take_records() { return std::move(records_); }
    /// The first call that did not return 0. Throws what a call threw: the composition has C's
    /// interface, where no exception passes.
    const std::optional<Verdict>& early_verdict() const {
        if (thrown_) std::rethrow_exception(thrown_);
        return early_verdict_;
    }

private:
    int run(const char* op, const void* args);

    Candidate& candidate_;
    std::vector<OperatorRecord> records_;
    std::optional<Verdict> early_verdict_;
    std::exception_ptr thrown_;  ///< the run was stopped, or the system failed
};

}  // namespace attncheck::properties
