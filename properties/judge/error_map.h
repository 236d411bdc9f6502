// A small picture of where the errors of a tensor are:
//
//   where: worst error / bound by tile of 32 query rows
//     sequence 0   head 0     0.5    0.4   16.2
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
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

    /// The first lines and tiles, and the worst one where it is not among them, behind a line end. `what` says what a
    /// cell is, `text_of` prints one in 8 columns, `size_of` says how bad it is.
    template <class Text, class Size>
    std::string text(const std::string& what, const std::string& row_word, Text&& text_of, Size&& size_of) const {
        constexpr std::size_t kMaxLines = 8, kMaxTiles = 8;
        std::string out = fmt::format("\n  where: {} by tile of {} {}", what, kTile, row_word == "row" ? "rows" : row_word + " rows");
        const auto worst_of = [&](const auto& cells) {
            return *std::ranges::max_element(cells, std::less<>(), [&](const auto& one) { return size_of(one.second); });
        };
        const auto add_line = [&](const auto& line) {
            const auto& [place, cells] = line;
            out += fmt::format("\n    sequence {:<3} head {:<3}", place.first, place.second);
            const std::int64_t worst = worst_of(cells).first;
            std::size_t tile = 0;
            for (const auto& [number, cell] : cells) {
                if (tile++ == kMaxTiles) break;
                out += text_of(cell);
            }
            if (cells.size() <= kMaxTiles) return;
            out += " ...";
            if (std::ranges::distance(cells.begin(), cells.find(worst)) >= static_cast<std::ptrdiff_t>(kMaxTiles))
                out += fmt::format(" tile {}{}", worst, text_of(cells.at(worst)));
        };
        const auto size_of_line = [&](const auto& line) { return size_of(worst_of(line.second).second); };
        const auto rest = std::next(lines.begin(), static_cast<std::ptrdiff_t>(std::min(kMaxLines, lines.size())));
        for (auto line = lines.begin(); line != rest; ++line) add_line(*line);
        if (rest == lines.end()) return out;
        const auto worst = std::ranges::max_element(lines, std::less<>(), size_of_line);
        const bool is_shown = std::ranges::distance(lines.begin(), worst) < static_cast<std::ptrdiff_t>(kMaxLines);
        if (!is_shown) add_line(*worst);
        if (const std::size_t left = lines.size() - kMaxLines - (is_shown ? 0 : 1); left > 0)
            out += fmt::format("\n    ... {} more", left);
        return out;
    }
};

}  // namespace attncheck::properties
