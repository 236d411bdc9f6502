#include "properties/candidate/call_words.h"

#include <fmt/format.h>
#include <signal.h>

#include <sstream>
#include <utility>

#include "properties/candidate/placed_calls.h"
#include "properties/case/number_text.h"
#include "properties/case/printable.h"

namespace attncheck::properties {
namespace {

constexpr std::pair<Change, const char*> kTextsOfChanges[] = {
    {kChangedFlushing, "flush-to-zero changed"},
    {kChangedRounding, "rounding mode, precision or exceptions of the processor changed"},
    {kChangedHandler, "the handler of a fault replaced"},
    {kChangedMask, "signals blocked or unblocked"},
    {kChangedTimer, "a timer running"},
    {kChangedFolder, "another working directory"},
    {kChangedLocale, "another locale"},
    {kChangedVariable, "a variable of the environment changed"},
    {kChangedRegisters, "registers of the x87 in use (EMMS missing?)"},
    {kChangedLimit, "a limit of the process lowered"}};

}  // namespace

std::string text_of_changes(std::uint32_t changes) {
    std::string text;
    for (const auto& [change, what] : kTextsOfChanges)
        if ((changes & change) != 0) text += (text.empty() ? "" : ", ") + std::string(what);
    return text;
}

std::string message_text(const char* message) {
    constexpr const char* kBelow = "    ";
    std::istringstream lines(printable(message));
    std::string text;
    for (std::string line; std::getline(lines, line);) {
        if (line.find_first_not_of(" \t") == std::string::npos) continue;
        if (!text.empty()) text += line.starts_with(kBelow) ? "\n" : std::string("\n") + kBelow;
        text += line;
    }
    return text;
}

void describe_fault(const Reply& reply, const PlacedCalls& placed, CallResult& result) {
    const std::string place = placed.locate(reply.address, result.where);
    const char* access = reply.is_write ? "write" : "read";
    if (!place.empty()) {
        result.kind = CallResult::Kind::out_of_bounds;
        result.detail = fmt::format("out-of-bounds {} {}", access, place);
    } else if (const std::string input =
                   reply.is_write ? placed.locate_in_input(reply.address, result.where) : "";
               !input.empty()) {
        result.kind = CallResult::Kind::wrote_input;
        result.detail = fmt::format("wrote {}, an input, while the call ran", input);
    } else if (reply.signal == SIGSEGV || reply.signal == SIGBUS) {
        result.detail += fmt::format(" ({} of address {:#x})", access, reply.address);
    }
}

std::string left_text(int count) {
    return "left " + counted(count, "process") + " behind";
}

}  // namespace attncheck::properties
