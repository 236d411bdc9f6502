// Writes the file excluded_pairs.cc of an operator and its gradient:
//
//   build/release/bin/attncheck_pair_search nsa_compress nsa_compress nsa_compress_grad \
//       > properties/operators/nsa_compress/excluded_pairs.cc
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

/// The folder of the operators, and their names.
int main(int argc, char** argv) {
    if (argc < 3) {
        fmt::print(stderr, "usage: {} FOLDER OPERATOR...\n", argv[0]);
        return 2;
    }
    for (int i = 2; i < argc; ++i)
        if (find_operator(argv[i]) == nullptr) {
            fmt::print(stderr, "there is no operator {}; `attncheck list` has them\n", argv[i]);
            return 2;
        }
    fmt::print(
        "// Pairs of classes that no legal case has, as the search of "
        "tests/properties/search/pair_search.cc\n"
        "// found them: {} draws of every property's generator and {} crossings for each pair that "
        "they\n"
        "// left. Written by attncheck_pair_search (pair_search_main.cc).\n"
        "#include \"properties/operators/operator.h\"\n\n"
        "namespace attncheck::properties {{\n\n"
        "const std::vector<ExcludedPairs>& {}_excluded_pairs() {{\n"
        "    // clang-format off\n"
        "    static const std::vector<ExcludedPairs> all = {{\n",
        kEffort.draws, kEffort.crossings, argv[1]);
    for (int i = 2; i < argc; ++i) print_excluded(*find_operator(argv[i]));
    fmt::print(
        "    }};\n"
        "    // clang-format on\n"
        "    return all;\n"
        "}}\n\n"
        "}}  // namespace attncheck::properties\n");
    return 0;
}
