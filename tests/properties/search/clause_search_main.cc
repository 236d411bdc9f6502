// Writes the file clauses.txt of an operator and its gradient:
//
//   build/release/bin/attncheck_clause_search 120 nsa_compress nsa_compress_grad
//
// prints properties/operators/nsa_compress/clauses.txt.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>
#include <deque>

#include "properties/laws/clause_tables.h"
#include "properties/operators/catalogue.h"
#include "tests/properties/search/clause_search.h"

using namespace attncheck::properties;

namespace {

/// Rows, which are views, and the text that they point into.
class FoundTable {
public:
    void add(const std::string& clause, const Spec& broken, const std::vector<Edit>& legal) {
        Spec base = broken;
        base.edits.clear();
        const std::string_view line = kept(print(base));
        rows_.push_back({line.substr(0, line.find('{')), kept(clause), line,
                         kept(edits_text(broken.edits)), kept(edits_text(legal))});
    }
    const std::vector<ClauseEdge>& rows() const { return rows_; }

private:
    static std::string edits_text(const std::vector<Edit>& edits) {
        std::vector<std::string> items;
        for (const Edit& edit : edits) items.push_back(print(edit));
        return fmt::format("{}", fmt::join(items, ","));
    }
    std::string_view kept(std::string text) { return texts_.emplace_back(std::move(text)); }

    std::deque<std::string> texts_;
    std::vector<ClauseEdge> rows_;
};

void add_limits(FoundTable& table, const Operator& op) {
    constexpr int kDraws = 80;
    const auto limits = search_limits(op, kDraws);
    for (const Spec& spec : limits) table.add("", spec, {});
    fmt::print(stderr, "{}: {} limits of fields\n", op.name(), limits.size());
}

void add_clauses(FoundTable& table, const Operator& op, double seconds) {
    const auto clauses = search_clauses(op, seconds);
    std::size_t edges = 0, sides = 0;
    for (const FoundClause& clause : clauses)
        for (const FoundEdge& edge : clause.edges) {
            table.add(clause.name, edge.broken,
                      edge.legal ? edge.legal->edits : std::vector<Edit>());
            ++edges;
            sides += edge.legal.has_value();
            if (&edge == &clause.edges.front())
                fmt::print(stderr, "{:8} {}\n", clause.decided, clause.name);
        }
    fmt::print(stderr, "{}: {} clauses, {} edges, {} with a legal side\n", op.name(),
               clauses.size(), edges, sides);
}

}  // namespace

/// Seconds for each operator, and the names of the operators that share a table.
int main(int argc, char** argv) {
    if (argc < 3) {
        fmt::print(stderr, "usage: {} SECONDS OPERATOR...\n", argv[0]);
        return 2;
    }
    for (int i = 2; i < argc; ++i)
        if (find_operator(argv[i]) == nullptr) {
            fmt::print(stderr, "there is no operator {}; `attncheck list` has them\n", argv[i]);
            return 2;
        }
    FoundTable table;
    for (int i = 2; i < argc; ++i) {
        const Operator& op = *find_operator(argv[i]);
        if (std::atof(argv[1]) > 0) add_clauses(table, op, std::atof(argv[1]));
        add_limits(table, op);
    }
    fmt::print(
        "# Clauses of the documented constraints with calls on both sides of their edges, rarest "
        "first, as a search of {} s\n"
        "# found them. Written by attncheck_clause_search; properties/laws/clause_tables.h has the "
        "form.\n{}",
        argv[1], print_clauses(table.rows()));
    return 0;
}
