// Runs generated cases on emulated correct implementations and prints how far the statistics of the
// tiers went: tier_validity [CASES] [SEED] [op=NAME] [WORD [undeclared]]. op= takes the operators whose
// names begin so. With a word of the rounding class, such as scores=half, every emulation has its
// roundings, and declares them or not. Progress goes to the error stream. Exit status 1 when a tier
// accused one of them, 2 when an argument is no number.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstring>
#include <iostream>
#include <thread>
#include <vector>

#include "validity.h"

namespace {

bool read_number(const char* text, std::uint64_t& number) {
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, number);
    if (error == std::errc() && stop == end && stop != text) return true;
    std::cerr << "tier_validity: \"" << text << "\" is not a number\n"
              << "usage: tier_validity [CASES (default 100000)] [SEED (default 1)] [op=NAME] [WORD [undeclared]]\n";
    return false;
}

}  // namespace

int main(int argc, char** argv) {
    using Clock = std::chrono::steady_clock;
    std::uint64_t cases = 100'000, seed = 1;
    if (argc > 1 && !read_number(argv[1], cases)) return 2;
    if (argc > 2 && !read_number(argv[2], seed)) return 2;
    attncheck::tiers::WordOfClass word;
    std::string op;
    int next_argument = 3;
    if (argc > 3 && std::strncmp(argv[3], "op=", 3) == 0) op = argv[next_argument++] + 3;
    if (argc > next_argument) word.word = argv[next_argument++];
    if (argc > next_argument) word.declared = std::strcmp(argv[next_argument], "undeclared") != 0;
    attncheck::tiers::Validity validity(word, op);
    std::atomic<std::uint64_t> next{0};
    {
        std::vector<std::jthread> threads;
        for (unsigned k = 0; k < std::max(2u, std::thread::hardware_concurrency()); ++k) {
            threads.emplace_back([&, reports = k == 0] {
                auto reported = Clock::now();
                for (std::uint64_t i = next++; i < cases; i = next++) {
                    validity.run_case(seed, i);
                    if (!reports || Clock::now() - reported < std::chrono::seconds(5)) continue;
                    reported = Clock::now();
                    std::cerr << validity.cases() << " of " << cases << " cases, "
                              << validity.alarms() << " alarms\n";
                }
            });
        }
    }
    validity.print(std::cout);
    return validity.alarms() == 0 ? 0 : 1;
}
