// Writes the file excluded_pairs.txt of an operator and its gradient:
//
//   build/release/bin/attncheck_pair_search nsa_compress nsa_compress_grad
//
// prints properties/operators/nsa_compress/excluded_pairs.txt.
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
            fmt::print("{} | {} | {}\n", op.name(), classes[a], others);
    }
    fmt::print(stderr, "{}: {} of {} pairs are possible\n", op.name(), possible, all);
}

}  // namespace

/// The names of operators that share a table.
int main(int argc, char** argv) {
    if (argc < 2) {
        fmt::print(stderr, "usage: {} OPERATOR...\n", argv[0]);
        return 2;
    }
    for (int i = 1; i < argc; ++i)
        if (find_operator(argv[i]) == nullptr) {
            fmt::print(stderr, "there is no operator {}; `attncheck list` has them\n", argv[i]);
            return 2;
        }
    fmt::print(
        "# Pairs of classes that no legal case has: {} draws of every property's generator and {} "
        "crossings for each\n"
        "# pair that they left met none. Written by attncheck_pair_search; "
        "properties/operators/excluded_pairs.h has the form.\n",
        kEffort.draws, kEffort.crossings);
    for (int i = 1; i < argc; ++i) print_excluded(*find_operator(argv[i]));
    return 0;
}
