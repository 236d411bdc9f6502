// Writes properties/search/excluded_pairs.cc:
//
//   build/release/bin/attncheck_pair_search > properties/search/excluded_pairs.cc
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "tests/properties/search/pair_search.h"
#include "properties/operators/catalogue.h"

using namespace attncheck::properties;

namespace {

constexpr SearchEffort kEffort{400, 2000};

/// Rows of the table: every class with those behind it in the list that it never met.
void print_excluded(const Operator& op) {
    const ClassPairs pairs(op);
    const PairSet found = search_pairs(op, kEffort);
    const auto& classes = pairs.classes();
    std::size_t possible = 0, all = 0;
    for (std::size_t a = 0; a < classes.size(); ++a) {
        std::string others;
        for (std::size_t b = a + 1; b < classes.size(); ++b) {
            if (!pairs.counted(a, b)) continue;
            ++all;
            if (found.has(pairs.pair(a, b)))
                ++possible;
            else
                others += (others.empty() ? "" : " ") + classes[b];
        }
        if (!others.empty())
            fmt::print("        {{\"{}\", \"{}\", \"{}\"}},\n", op.name(), classes[a], others);
    }
    fmt::print(stderr, "{}: {} of {} pairs are possible\n", op.name(), possible, all);
}

}  // namespace

/// Without arguments the file as a whole, otherwise rows of the operators named.
int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        const Operator* op = find_operator(argv[i]);
        if (op == nullptr) {
            fmt::print(stderr, "there is no operator {}; `attncheck list` has them\n", argv[i]);
            return 2;
        }
        print_excluded(*op);
    }
    if (argc > 1) return 0;
    fmt::print(
        "// Pairs of classes that no legal case has, as the search of "
        "tests/properties/search/pair_search.cc\n"
        "// found them: {} draws of every property's generator and {} crossings for each pair that "
        "they\n"
        "// left. Written by attncheck_pair_search (pair_search_main.cc).\n"
        "#include \"properties/search/class_pairs.h\"\n\n"
        "namespace attncheck::properties {{\n\n"
        "const std::vector<ExcludedPairs>& excluded_pairs() {{\n"
        "    // clang-format off\n"
        "    static const std::vector<ExcludedPairs> all = {{\n",
        kEffort.draws, kEffort.crossings);
    for (const auto& op : operators()) print_excluded(*op);
    fmt::print(
        "    }};\n"
        "    // clang-format on\n"
        "    return all;\n"
        "}}\n\n"
        "}}  // namespace attncheck::properties\n");
    return 0;
}
