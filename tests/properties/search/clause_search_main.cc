// Writes the file clauses.cc of an operator and its gradient:
//
//   build/release/bin/attncheck_clause_search 120 nsa_compress nsa_compress nsa_compress_grad
//
// prints properties/operators/nsa_compress/clauses.cc.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>

#include "properties/operators/catalogue.h"
#include "tests/properties/search/clause_search.h"

using namespace attncheck::properties;

namespace {

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + '"';
}

std::string edits_text(const std::vector<Edit>& edits) {
    std::vector<std::string> items;
    for (const Edit& edit : edits) items.push_back(print(edit));
    return fmt::format("{}", fmt::join(items, ","));
}

void print_row(const Operator& op, const std::string& clause, const Spec& broken,
               const std::vector<Edit>& legal) {
    Spec base = broken;
    base.edits.clear();
    fmt::print("        {{\"{}\", {},\n         {},\n         {}, {}}},\n", op.name(),
               quoted(clause), quoted(print(base)), quoted(edits_text(broken.edits)),
               quoted(edits_text(legal)));
}

void print_limits(const Operator& op) {
    constexpr int kDraws = 80;
    const auto limits = search_limits(op, kDraws);
    for (const Spec& spec : limits) print_row(op, "", spec, {});
    fmt::print(stderr, "{}: {} limits of fields\n", op.name(), limits.size());
}

void print_clauses(const Operator& op, double seconds) {
    const auto clauses = search_clauses(op, seconds);
    std::size_t edges = 0, sides = 0;
    for (const FoundClause& clause : clauses)
        for (const FoundEdge& edge : clause.edges) {
            print_row(op, clause.name, edge.broken,
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

/// Seconds for each operator, the folder of the operators, and their names.
int main(int argc, char** argv) {
    if (argc < 4) {
        fmt::print(stderr, "usage: {} SECONDS FOLDER OPERATOR...\n", argv[0]);
        return 2;
    }
    for (int i = 3; i < argc; ++i)
        if (find_operator(argv[i]) == nullptr) {
            fmt::print(stderr, "there is no operator {}; `attncheck list` has them\n", argv[i]);
            return 2;
        }
    fmt::print(
        "// The clauses of the documented constraints and calls at their edges, as the search of\n"
        "// tests/properties/search/clause_search.cc found them in {1} s. Written by "
        "attncheck_clause_search.\n"
        "#include \"properties/operators/{0}/clauses.h\"\n\n"
        "namespace attncheck::properties {{\n\n"
        "const std::vector<ClauseEdge>& {0}_clauses() {{\n"
        "    // clang-format off\n"
        "    static const std::vector<ClauseEdge> all = {{\n",
        argv[2], argv[1]);
    for (int i = 3; i < argc; ++i) {
        const Operator& op = *find_operator(argv[i]);
        if (std::atof(argv[1]) > 0) print_clauses(op, std::atof(argv[1]));
        print_limits(op);
    }
    fmt::print(
        "    }};\n"
        "    // clang-format on\n"
        "    return all;\n"
        "}}\n\n"
        "}}  // namespace attncheck::properties\n");
    return 0;
}
