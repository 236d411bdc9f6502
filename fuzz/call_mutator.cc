#include "fuzz/call_mutator.h"

#include <algorithm>

namespace attncheck::fuzz {
namespace {

using properties::Random;

/// The longest head that any target reads to its end.
constexpr std::int64_t kUsefulHead = 2;

std::uint8_t any_byte(Random& random) { return static_cast<std::uint8_t>(random.next()); }

std::uint64_t any_number(Random& random) {
    if (random.chance(30)) return random.next();
    const std::uint64_t power = std::uint64_t{1} << random.between(0, 63);
    return power + static_cast<std::uint64_t>(random.between(-3, 3));
}

Change any_change(Random& random) {
    return {any_byte(random), any_byte(random), any_byte(random), any_byte(random),
            any_number(random)};
}

/// An index into a container that is not empty.
template <class Container>
std::ptrdiff_t place_in(const Container& container, Random& random) {
    return random.between(0, std::ssize(container) - 1);
}

void change_head(CallBytes& call, Random& random) {
    auto& head = call.head;
    const auto kind = random.between(0, 5);
    if (head.empty() || (kind == 0 && std::ssize(head) < kUsefulHead)) {
        head.insert(head.begin() + random.between(0, std::ssize(head)), any_byte(random));
        return;
    }
    std::uint8_t& byte = head[static_cast<std::size_t>(place_in(head, random))];
    if (kind == 1)
        head.erase(head.begin() + place_in(head, random));
    else if (kind == 2)
        byte = static_cast<std::uint8_t>(byte + random.pick<int>({1, -1}));
    else
        byte = any_byte(random);
}

void change_field(Change& change, Random& random) {
    switch (random.between(0, 4)) {
        case 0:
            change.what = any_byte(random);
            return;
        case 1:
            change.which = any_byte(random);
            return;
        case 2:
            change.kind = any_byte(random);
            return;
        case 3:
            change.argument = random.chance(50) ? any_byte(random)
                                                : static_cast<std::uint8_t>(change.argument + 1);
            return;
        default:
            change.number = any_number(random);
    }
}

void change_changes(CallBytes& call, std::size_t max_changes, Random& random) {
    auto& changes = call.changes;
    const auto kind = random.between(0, 6);
    const bool room = changes.size() < max_changes;
    if (changes.empty() || (kind == 0 && room)) {
        changes.insert(changes.begin() + random.between(0, std::ssize(changes)),
                       any_change(random));
        return;
    }
    const auto at = changes.begin() + place_in(changes, random);
    if (kind == 1)
        changes.erase(at);
    else if (kind == 2 && room)
        changes.insert(at, Change(*at))->which = any_byte(random);
    else if (kind == 3)
        std::iter_swap(at, changes.begin() + place_in(changes, random));
    else
        change_field(*at, random);
}

}  // namespace

CallBytes mutated_call(CallBytes call, std::size_t max_changes, Random& random) {
    for (auto left = random.between(1, 3); left > 0; --left) {
        if (random.chance(35))
            change_head(call, random);
        else
            change_changes(call, max_changes, random);
    }
    return call;
}

CallBytes crossed_calls(const CallBytes& first, const CallBytes& second, std::size_t max_changes,
                        Random& random) {
    CallBytes child = first;
    if (random.chance(30))
        for (std::size_t i = 0; i < std::min(child.head.size(), second.head.size()); ++i)
            if (random.chance(50)) child.head[i] = second.head[i];
    child.changes.clear();
    const std::size_t longest = std::max(first.changes.size(), second.changes.size());
    for (std::size_t i = 0; i < longest; ++i)
        for (const CallBytes* parent : {&first, &second})
            if (i < parent->changes.size() && child.changes.size() < max_changes &&
                random.chance(60))
                child.changes.push_back(parent->changes[i]);
    return child;
}

CallBytes sampled_call(std::size_t max_changes, int size, Random& random) {
    CallBytes call;
    for (auto left = random.between(1, kUsefulHead); left > 0; --left)
        call.head.push_back(any_byte(random));
    const auto most = static_cast<std::int64_t>(max_changes) * size / 100;
    for (auto left = random.between(0, most); left > 0; --left)
        call.changes.push_back(any_change(random));
    return call;
}

}  // namespace attncheck::fuzz
