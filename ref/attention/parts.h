// Work in parts, whose number is that of the problem and not of the machine.
#pragma once

#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace attncheck::ref {

/// Calls work(part, parts), on separate threads when there is much to do. An exception of one
/// of them is thrown here.
template <class Work>
void for_each_part(bool is_large, const Work& work) {
    constexpr std::int64_t kParts = 4;
    if (!is_large) return work(0, 1);
    std::vector<std::thread> threads;
    std::exception_ptr failures[kParts];
    for (std::int64_t part = 0; part < kParts; ++part) {
        const auto run = [&, part] {
            try {
                work(part, kParts);
            } catch (...) {
                failures[part] = std::current_exception();
            }
        };
        try {
            threads.emplace_back(run);
        } catch (const std::system_error&) {  // no thread is left: here, then
            run();
        }
    }
    for (auto& thread : threads) thread.join();
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

}  // namespace attncheck::ref
