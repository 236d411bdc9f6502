// Runs generated cases on emulated correct implementations and prints how far the statistics of the
// tiers went: tier_validity [CASES] [SEED] [WORD [undeclared]] [small|few] [CASE LINE]. A case line is the
// case of all of them, with an emulation each; small: all cases are cut down and dear ones left out; few: they
// have 1 to 12 queries or keys, and few channels, too (attention operators whose lengths may be that short). With a word of the rounding class, such
// as scores=half, or several in one argument, every emulation has its roundings, and declares them or not;
// "words" stands for each of them in turn, declared, in one table. Progress, and every alarm when it is found, go to the error stream. Exit
// status 1 when a tier accused one of them, 2 when an argument is wrong.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstring>
#include <iostream>
#include <optional>
#include <thread>
#include <vector>

#include "properties/operators/catalogue.h"
#include "validity.h"

namespace {

bool read_number(const char* text, std::uint64_t& number) {
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, number);
    if (error == std::errc() && stop == end && stop != text) return true;
    std::cerr << "tier_validity: \"" << text << "\" is not a number\n"
              << "usage: tier_validity [CASES (default 100000)] [SEED (default 1)] [WORD [undeclared] or words] [small|few] [CASE LINE]\n";
    return false;
}

/// The cases on all processors; each is the one given, if there is one.
void run(attncheck::tiers::Validity& validity, std::uint64_t cases, std::uint64_t seed,
         const attncheck::properties::Spec* given = nullptr) {
    using Clock = std::chrono::steady_clock;
    std::atomic<std::uint64_t> next{0};
    std::vector<std::jthread> threads;
    for (unsigned k = 0; k < std::max(2u, std::thread::hardware_concurrency()); ++k) {
        threads.emplace_back([&, reports = k == 0] {
            auto reported = Clock::now();
            for (std::uint64_t i = next++; i < cases; i = next++) {
                given ? validity.run_line(*given, seed, i) : validity.run_case(seed, i);
                if (!reports || Clock::now() - reported < std::chrono::seconds(5)) continue;
                reported = Clock::now();
                std::cerr << validity.cases() << " of " << cases << " cases, "
                          << validity.alarms() << " alarms\n";
            }
        });
    }
}

/// Every word, declared, one line each.
bool run_words(std::uint64_t cases, std::uint64_t seed, bool small, bool few) {
    bool any = false;
    std::cout << attncheck::tiers::validity_head("word") << std::flush;
    for (const std::string& word : attncheck::tiers::emulated_words()) {
        attncheck::tiers::Validity validity({word, true, small, few});
        validity.log_alarms(std::cerr);
        run(validity, cases, seed);
        std::cout << validity.row("`" + word + "`") << std::flush;
        any |= validity.alarms() > 0;
    }
    return any;
}

}  // namespace

int main(int argc, char** argv) try {
    std::uint64_t cases = 100'000, seed = 1;
    if (argc > 1 && !read_number(argv[1], cases)) return 2;
    if (argc > 2 && !read_number(argv[2], seed)) return 2;
    attncheck::tiers::WordOfClass word;
    std::optional<attncheck::properties::Spec> given;
    if (argc > 3 && std::strchr(argv[argc - 1], '{'))
        given = attncheck::properties::parse(argv[--argc], attncheck::properties::schemas());
    if (argc > 3) word.few = std::strcmp(argv[argc - 1], "few") == 0;
    if (argc > 3 && (word.few || std::strcmp(argv[argc - 1], "small") == 0)) word.small = true, --argc;
    if (argc > 3) word.word = argv[3];
    if (word.word == "words") return run_words(cases, seed, word.small, word.few) ? 1 : 0;
    if (argc > 4) word.declared = std::strcmp(argv[4], "undeclared") != 0;
    attncheck::tiers::Validity validity(word);
    validity.log_alarms(std::cerr);
    run(validity, cases, seed, given ? &*given : nullptr);
    validity.print(std::cout);
    return validity.alarms() == 0 ? 0 : 1;
} catch (const std::exception& error) {
    std::cerr << "tier_validity: " << error.what() << "\n";
    return 2;
}
