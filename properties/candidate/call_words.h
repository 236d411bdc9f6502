// How what a call did, or left behind, is told.
#pragma once

#include <cstdint>
#include <string>

#include "properties/candidate/candidate.h"
#include "properties/candidate/protocol.h"

namespace attncheck::properties {

class PlacedCalls;

/// What Reply::changes says of the state of the process; empty: nothing.
std::string text_of_changes(std::uint32_t changes);

/// Lines of a library's own stand below those of the suite, whose words they may repeat.
std::string message_text(const char* message);

/// Gives a crash the place of the access that brought it about, where that is one of a buffer.
void describe_fault(const Reply& reply, const PlacedCalls& placed, CallResult& result);

/// "left 2 processes behind"
std::string left_text(int count);

}  // namespace attncheck::properties
