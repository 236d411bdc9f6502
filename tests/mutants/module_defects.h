// Defects that need more than one call to show (mutants_module.h): arguments as a defect has them,
// and what it does to the outputs when the call is over. Without a defect both are left alone.
#pragma once

#include <vector>

#include "attncheck/candidate.h"

namespace attncheck::mutants {

/// Wraps one call: hands out its arguments, and finishes when it goes out of scope. Not for
/// concurrent calls while a defect of this kind is switched on.
template <class Args>
class Composed {
public:
    explicit Composed(const Args* args);
    ~Composed();
    Composed(const Composed&) = delete;
    Composed& operator=(const Composed&) = delete;
    const Args* args() const { return args_; }

private:
    const Args* args_;
    Args changed_{};
    std::vector<std::vector<char>> memory_;  ///< of tensors that were replaced
};

}  // namespace attncheck::mutants
