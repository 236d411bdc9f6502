#ifndef ATTNCHECK_IMPL_ACLNN_OPERATORS_FLASH_ATTENTION_FORM_H
#define ATTNCHECK_IMPL_ACLNN_OPERATORS_FLASH_ATTENTION_FORM_H

#include <cstring>
#include <string>

#include "impl/aclnn/operators/first_phase.h"

namespace attncheck::aclnn {

/// What the variants of flash attention fix beyond the operator (flash_attention.md 1.3).
enum class Form {
    kPadded,          ///< V1, V2: layouts "BSH", "SBH", "BSND", "BNSD"
    kPacked,          ///< VarLen and Unpadding: "TND" with lengths
    kPackedWithRope,  ///< their V3: ropes are required
};

template <class Args>
void require_layout_of(Form form, const char* layout, MappedCall<Args>& call) {
    if (layout == nullptr || (std::strcmp(layout, "TND") == 0) == (form != Form::kPadded)) return;
    constexpr std::size_t kShownChars = 24;
    const std::string shown(layout, strnlen(layout, kShownChars));
    call.reject("inputLayout",
                "inputLayout is \"" + shown + "\"; allowed: " +
                    (form == Form::kPadded ? "\"BSH\", \"SBH\", \"BSND\" or \"BNSD\"" : "\"TND\""));
}

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_IMPL_ACLNN_OPERATORS_FLASH_ATTENTION_FORM_H
