#ifndef ATTNCHECK_IMPL_ACLNN_JSON_SYNTAX_H
#define ATTNCHECK_IMPL_ACLNN_JSON_SYNTAX_H

#include <string_view>

namespace attncheck::aclnn {

/// Whether the text is one JSON value (RFC 8259), nested at most 256 deep. Bytes above 0x7F are
/// taken as they are: the encoding is not checked.
bool is_json(std::string_view text);

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_IMPL_ACLNN_JSON_SYNTAX_H
