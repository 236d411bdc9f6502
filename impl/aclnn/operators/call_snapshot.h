#ifndef ATTNCHECK_IMPL_ACLNN_OPERATORS_CALL_SNAPSHOT_H
#define ATTNCHECK_IMPL_ACLNN_OPERATORS_CALL_SNAPSHOT_H

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aclnn/acl_meta.h"
#include "attncheck/candidate.h"
#include "impl/arguments/rejection.h"

namespace attncheck::aclnn {

enum class Direction { kInput, kOutput };

/// Copies of a caller's descriptors, arrays and strings in the terms of candidate.h, and what is
/// wrong with them before any operator checks them.
///
/// Strides and dtypes carry over as they are; the address is that of the view's first element. The
/// values returned point into the snapshot and live as long as it.
class CallSnapshot {
public:
    CallSnapshot() = default;
    CallSnapshot(const CallSnapshot&) = delete;
    CallSnapshot& operator=(const CallSnapshot&) = delete;

    /// An absent tensor (data null) for a null handle. Noted as problems: an unknown or destroyed
    /// handle, elements without an address (161001), a blocked format, an address that is not a
    /// multiple of the element's size, a view that leaves its block of device memory, and an
    /// output two of whose elements share an address through a stride of 0.
    attncheck_tensor tensor(const char* parameter, const aclTensor* handle, Direction direction);
    attncheck_int_array array(const char* parameter, const aclIntArray* handle);
    const char* text(const char* value);

    /// Notes a null `argument` of a parameter that candidate.h calls optional.
    void require(const char* parameter, const void* argument);

    /// From now on messages about `field` of the argument struct are about `parameter`.
    void name(std::string_view field, const char* parameter) {
        names_[std::string(field)] = parameter;
    }
    bool has(const std::string& field) const { return names_.contains(field); }
    std::string in_caller_terms(const std::string& message) const;

    /// The first of each kind, in the order of the calls above.
    const impl::MaybeRejection& missing() const { return missing_; }
    const impl::MaybeRejection& unusable() const { return unusable_; }

private:
    void note_invalid(const char* parameter, const std::string& value, const std::string& allowed);
    void note_missing(const char* parameter, const std::string& value);
    void place(const char* parameter, const struct ::aclTensor& source, Direction direction,
               attncheck_tensor& view);

    std::deque<std::vector<std::int64_t>> arrays_;
    std::deque<std::string> texts_;
    std::map<std::string, std::string> names_;
    impl::MaybeRejection missing_, unusable_;
};

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_IMPL_ACLNN_OPERATORS_CALL_SNAPSHOT_H
