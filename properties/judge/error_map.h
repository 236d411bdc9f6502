// A small picture of where the errors of a tensor are:
//
//   where: worst error / bound by tile of 32 query rows
//     sequence 0   head 0     0.5    0.4   16.2
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace attncheck::properties {

/// One line for each (sequence, head), one cell for each tile of its rows.
template <class Cell>
struct ErrorMap {
    static constexpr std::int64_t kTile = 32;  ///< rows

    std::map<std::pair<std::int64_t, std::int64_t>, std::map<std::int64_t, Cell>> lines;

    Cell& at(std::int64_t sequence, std::int64_t head, std::int64_t row) {
        return lines[{sequence, head}][row / kTile];
    }
    bool has_one_cell() const { return lines.size() == 1 && lines.begin()->second.size() == 1; }

    /// The first lines and tiles, behind a line end. `what` says what a cell is, `text_of` prints one in 8 columns.
    template <class Text>
    std::string text(const std::string& what, const std::string& row_word, Text&& text_of) const {
        constexpr std::size_t kMaxLines = 8, kMaxTiles = 8;
        std::string out = fmt::format("\n  where: {} by tile of {} {} rows", what, kTile, row_word);
        std::size_t shown = 0;
        for (const auto& [place, cells] : lines) {
            if (shown++ == kMaxLines) {
                out += fmt::format("\n    ... {} more", lines.size() - kMaxLines);
                break;
            }
            out += fmt::format("\n    sequence {:<3} head {:<3}", place.first, place.second);
            std::size_t tile = 0;
            for (const auto& [number, cell] : cells) {
                if (tile++ == kMaxTiles) break;
                out += text_of(cell);
            }
            if (cells.size() > kMaxTiles) out += " ...";
        }
        return out;
    }
};

}  // namespace attncheck::properties
