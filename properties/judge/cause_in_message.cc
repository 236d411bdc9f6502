#include "properties/judge/cause_in_message.h"

#include <string_view>

namespace attncheck::properties {
namespace {

constexpr std::string_view kExplains = "which explains", kOfTheError = "of the error";

}  // namespace

std::string cause_in(const std::string& message) {
    const std::string line = message.substr(0, message.find('\n'));
    const std::size_t at = line.find(kExplains);
    if (at == std::string::npos) return {};
    const std::size_t end = line.find(kOfTheError, at);
    return end == std::string::npos ? line : line.substr(0, end + kOfTheError.size());
}

std::string with_cause(const std::string& message, const std::string& cause) {
    const std::string own = cause_in(message);
    if (own.empty()) return cause + "\n" + message;
    return cause + message.substr(own.size());
}

std::string without_cause(const std::string& message) {
    constexpr std::string_view kBetween = "; ";
    const std::string own = cause_in(message);
    const std::size_t output = own.find(": ");
    std::string rest = message.substr(own.size());
    if (own.empty() || output == std::string::npos) return message;
    if (rest.starts_with(kBetween)) rest.erase(0, kBetween.size());
    return own.substr(0, output + 2) + rest;
}

}  // namespace attncheck::properties
