// Runs generated cases on emulated correct implementations and prints how far the statistics of the
// tiers went: tier_validity [CASES] [SEED]. Exit status 1 when a tier accused one of them.
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <vector>

#include "validity.h"

int main(int argc, char** argv) {
    const std::uint64_t cases = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100'000;
    const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    attncheck::tiers::Validity validity;
    std::atomic<std::uint64_t> next{0};
    {
        std::vector<std::jthread> threads;
        for (int k = 0; k < 2; ++k)
            threads.emplace_back([&] {
                for (std::uint64_t i = next++; i < cases; i = next++) validity.run_case(seed, i);
            });
    }
    validity.print(std::cout);
    return validity.alarms() == 0 ? 0 : 1;
}
