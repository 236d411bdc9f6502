// Tables that a search found, as text files in the folders of operators/. The build embeds them
// (cmake/embed_tables.cmake), so an installed program needs none.
#pragma once

#include <span>
#include <string_view>

namespace attncheck::properties {

struct EmbeddedTable {
    std::string_view folder, file, text;
};
/// Sorted by folder and file.
std::span<const EmbeddedTable> embedded_tables();

}  // namespace attncheck::properties
