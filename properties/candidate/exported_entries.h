// The entry points of a loaded candidate, read from its table of symbols: no list of operators is
// needed to ask for them one by one.
#pragma once

#include <string>
#include <vector>

namespace attncheck::properties {

/// Names of the functions "attncheck_NAME" that the library and the libraries it brought along
/// export, without the prefix and without the symbols that are no operator. `library` comes from
/// dlopen.
std::vector<std::string> exported_entries(void* library);

/// Address of the entry point of this name, or null.
void* entry_named(void* library, const std::string& name);

}  // namespace attncheck::properties
