#include "properties/laws/clause_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "properties/case/embedded_tables.h"

namespace attncheck::properties {
namespace {

constexpr std::string_view kLegalCase = "(a legal case)";
constexpr std::string_view kCaseIndent = "  ", kEditsIndent = "    ";
constexpr std::string_view kArrow = " -> ";

}  // namespace

std::vector<ClauseEdge> read_clauses(std::string_view text) {
    std::vector<ClauseEdge> rows;
    bool has_clause = false;
    ClauseEdge row;
    for (int number = 1; !text.empty(); ++number) {
        const auto end = text.find('\n');
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        const auto refuse = [&](const char* expected) {
            throw std::invalid_argument(
                fmt::format("clauses, line {}: \"{}\", expected {}", number, line, expected));
        };
        if (line.empty() || line.front() == '#') continue;
        if (line.starts_with(kEditsIndent)) {
            if (row.base.empty()) refuse("a case line before its edits");
            line.remove_prefix(kEditsIndent.size());
            const auto arrow = line.find(kArrow);
            row.broken = line.substr(0, arrow);
            row.legal = arrow == std::string_view::npos ? std::string_view()
                                                        : line.substr(arrow + kArrow.size());
            rows.push_back(row);
        } else if (line.starts_with(kCaseIndent)) {
            if (!has_clause) refuse("a clause before its cases");
            row.base = line.substr(kCaseIndent.size());
            if (row.base.starts_with(' ') || row.base.find('{') == std::string_view::npos || !row.base.ends_with('}'))
                refuse("OPERATOR{...} behind an indent of two or four spaces");
            row.op = row.base.substr(0, row.base.find('{'));
        } else {
            if (line.front() == ' ') refuse("a clause, or an indent of two or four spaces");
            has_clause = true;
            row = {};
            if (line != kLegalCase) row.clause = line;
        }
    }
    return rows;
}

std::string print_clauses(std::span<const ClauseEdge> rows) {
    std::string out;
    const ClauseEdge* previous = nullptr;
    for (const ClauseEdge& row : rows) {
        const bool same_clause = previous && previous->clause == row.clause;
        if (!same_clause) out += fmt::format("{}\n", row.clause.empty() ? kLegalCase : row.clause);
        if (!same_clause || previous->base != row.base)
            out += fmt::format("{}{}\n", kCaseIndent, row.base);
        out += fmt::format("{}{}{}{}\n", kEditsIndent, row.broken, row.legal.empty() ? "" : kArrow,
                           row.legal);
        previous = &row;
    }
    return out;
}

const std::vector<ClauseEdge>& all_clauses() {
    static const auto all = [] {
        std::vector<ClauseEdge> rows;
        for (const EmbeddedTable& table : embedded_tables())
            if (table.file.starts_with("clauses"))
                std::ranges::copy(read_clauses(table.text), std::back_inserter(rows));
        return rows;
    }();
    return all;
}

}  // namespace attncheck::properties
