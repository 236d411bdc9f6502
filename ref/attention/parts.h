// Work in parts, whose number is that of the problem and not of the machine.
#pragma once

#include <cstdint>
#include <exception>
#include <iterator>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

namespace attncheck::ref {

/// Of what is large.
inline constexpr std::int64_t kMostParts = 4;

/// Calls work(part) for every part, on separate threads if there are several. An exception of one
/// of them is thrown here.
template <class Work>
void for_each_part(std::int64_t parts, const Work& work) {
    if (parts == 1) return work(std::int64_t{0});
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> failures(static_cast<std::size_t>(parts));
    for (std::int64_t part = 0; part < parts; ++part) {
        const auto run = [&, part] {
            try {
                work(part);
            } catch (...) {
                failures[static_cast<std::size_t>(part)] = std::current_exception();
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

/// Element numbers of one of the parts of a list.
template <class Element>
std::span<const Element> part_of(std::span<const Element> all, std::int64_t part,
                                 std::int64_t parts) {
    const std::int64_t count = std::ssize(all), begin = count * part / parts,
                       end = count * (part + 1) / parts;
    return all.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

}  // namespace attncheck::ref
