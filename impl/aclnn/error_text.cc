#include "impl/aclnn/error_text.h"

#include <deque>
#include <sstream>
#include <utility>

#include "acl/acl.h"

namespace attncheck::aclnn {
namespace {

// A thread that never asks for its messages must not collect them without end.
constexpr std::size_t kMaxRecords = 32;

struct ThreadMessages {
    std::deque<std::string> records;  // newest first
    std::string handed_out;           // what aclGetRecentErrMsg returned last
};

ThreadMessages& messages() {
    thread_local ThreadMessages of_this_thread;
    return of_this_thread;
}

}  // namespace

void set_error(std::string message) noexcept {
    try {
        auto& records = messages().records;
        records.push_front(std::move(message));
        if (records.size() > kMaxRecords) records.pop_back();
    } catch (...) {  // out of memory for the text: the status alone has to do
    }
}

int fail(int status, std::string message) noexcept {
    set_error(std::move(message));
    return status;
}

std::string misuse(const char* api, const char* parameter, const std::string& value,
                   const char* allowed) {
    return std::string(api) + ": " + parameter + " is " + value + "; allowed: " + allowed;
}

std::string text_of(const void* handle) {
    if (!handle) return "null";
    std::ostringstream text;
    text << handle;
    return text.str();
}

std::string take_error() noexcept {
    std::string text;
    try {
        for (const std::string& record : messages().records) {
            if (!text.empty()) text += '\n';
            text += record;
        }
    } catch (...) {
    }
    messages().records.clear();
    return text;
}

}  // namespace attncheck::aclnn

extern "C" const char* aclGetRecentErrMsg(void) {
    std::string& handed_out = attncheck::aclnn::messages().handed_out;
    handed_out = attncheck::aclnn::take_error();
    return handed_out.empty() ? nullptr : handed_out.c_str();
}
