#include "impl/arguments/rejection.h"

#include <utility>

namespace attncheck::impl {
namespace {
thread_local std::string last_message;
}

const std::string& last_error_message() { return last_message; }

void set_last_error_message(std::string message) { last_message = std::move(message); }

}  // namespace attncheck::impl
