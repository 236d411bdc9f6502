// The operators of an NSA module as a Candidate runs them: C arguments become Calls, results go
// back into the caller's memory, and every call is kept.
#pragma once

#include <attncheck/nsa_module.h>

#include <optional>
#include <string_view>
#include <vector>

#include "properties/judge/verdict.h"

namespace attncheck::properties {

/// The entry points a module is made of.
const std::vector<std::string>& module_operators();

struct OperatorRecord {
    Call call;
    CallResult result;
    const std::vector<std::uint32_t>& output(std::string_view tensor) const {
        return result.outputs[tensor_index(call, tensor)];
    }
};

/// Hands out entry points that run `candidate` for as long as this lives, on this thread only; one
/// at a time.
class ModuleOperators {
public:
    explicit ModuleOperators(Candidate& candidate);
    ~ModuleOperators();
    ModuleOperators(const ModuleOperators&) = delete;
    ModuleOperators& operator=(const ModuleOperators&) = delete;

    attncheck_nsa_operators table() const;
    const std::vector<OperatorRecord>& records() const { return records_; }
    /// The first call that did not return 0.
    const std::optional<Verdict>& trouble() const { return trouble_; }

    /// Number `occurrence` of the calls of an operator; null when there is none.
    const OperatorRecord* find(std::string_view op, int occurrence = 0) const;

private:
    template <class Args, std::size_t Operator>
    static int entry(const Args* args);

    Candidate& candidate_;
    std::vector<OperatorRecord> records_;
    std::optional<Verdict> trouble_;
};

}  // namespace attncheck::properties
