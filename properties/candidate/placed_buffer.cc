#include "properties/candidate/placed_buffer.h"

#include <fmt/format.h>

#include <algorithm>

#include "properties/candidate/protocol.h"

namespace attncheck::properties {

/// All pages of an ordinary buffer. Of one that is mostly empty those that elements lie in: the
/// others are never there, and nothing may touch them.
std::vector<std::uint64_t> PlacedBuffer::add_pages() {
    std::vector<std::uint64_t> holes;
    constexpr std::uint64_t kMostlyEmpty = std::uint64_t{1} << 30;  // and 2^26 elements at most
    if (end - begin < kMostlyEmpty || offsets.empty()) {
        pages = {{first_page, pages_end}};
        return holes;
    }
    std::vector<std::uint64_t> numbers;
    for (const std::int64_t offset : offsets) {
        const std::uint64_t address =
            begin + static_cast<std::uint64_t>(offset) * element_size;
        if (numbers.empty() || numbers.back() != address / kPage)
            numbers.push_back(address / kPage);
    }
    std::ranges::sort(numbers);
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    const auto add_hole = [&holes](std::uint64_t from, std::uint64_t to) {
        if (from == to) return;
        holes.push_back(from);
        holes.push_back(to - from);
    };
    for (const std::uint64_t number : numbers) {
        const std::uint64_t page = number * kPage;
        if (!pages.empty() && pages.back().end == page) {
            pages.back().end += kPage;
            continue;
        }
        add_hole(pages.empty() ? first_page : pages.back().end, page);
        pages.push_back({page, page + kPage});
    }
    add_hole(pages.back().end, pages_end);
    return holes;
}

std::vector<std::uint32_t> PlacedBuffer::take_elements(Poison poison) const {
    std::vector<std::uint32_t> bits(tensor->elements());
    const auto take = [&]<std::size_t kSize>(std::integral_constant<std::size_t, kSize>) {
        constexpr std::size_t kCopied = std::min(kSize, sizeof bits[0]);
        std::byte* const from = bytes_at(begin);
        if (offsets.empty()) {
            for (std::size_t i = 0; i < bits.size(); ++i) std::memcpy(&bits[i], from + i * kSize, kCopied);
            std::memset(from, static_cast<int>(poison), bits.size() * kSize);
            return;
        }
        for (std::size_t i = 0; i < bits.size(); ++i)
            std::memcpy(&bits[i], from + offsets[i] * static_cast<std::int64_t>(kSize), kCopied);
        for (const std::int64_t offset : offsets)
            std::memset(from + offset * static_cast<std::int64_t>(kSize), static_cast<int>(poison), kSize);
    };
    with_size(element_size, take);
    return bits;
}

bool PlacedBuffer::is_guard_changed() const {
    for (const std::uint64_t guard : {first_page - kPage, pages_end})  // every byte is like the next one
        if (*bytes_at(guard) != kGuardFill || std::memcmp(bytes_at(guard), bytes_at(guard) + 1, kPage - 1) != 0)
            return true;
    return false;
}

std::span<const std::uint8_t> PlacedBuffer::shared() const {
    if (!tensor || tensor->allocation != 0 || !tensor->shared_bytes || !tensor->bits.empty() ||
        pages.size() != 1 || tensor->shared_bytes->size() != end - begin)
        return {};
    return *tensor->shared_bytes;
}

void PlacedBuffer::keep_image() {
    const auto add = [this](std::uint64_t from, std::uint64_t to) {
        image.insert(image.end(), bytes_at(from), bytes_at(to));
    };
    if (shared().empty()) {
        for (const Pages& one : pages) add(one.begin, one.end);
    } else {
        add(first_page, begin);
        add(end, pages_end);
    }
}

const std::byte* PlacedBuffer::first_change() const {
    std::span<const std::byte> left = image;
    const auto change = [](std::uint64_t from, std::span<const std::byte> before) -> const std::byte* {
        const std::byte* const now = bytes_at(from);
        if (before.empty() || std::memcmp(now, before.data(), before.size()) == 0) return nullptr;
        return now + (std::ranges::mismatch(before, std::span(now, before.size())).in1 - before.begin());
    };
    const auto of_image = [&](std::uint64_t from, std::uint64_t to) {
        const auto before = left.first(to - from);
        left = left.subspan(to - from);
        return change(from, before);
    };
    if (const auto bytes = shared(); !bytes.empty()) {
        if (const auto* found = of_image(first_page, begin)) return found;
        if (const auto* found = change(begin, std::as_bytes(bytes))) return found;
        return of_image(end, pages_end);
    }
    for (const Pages& one : pages)
        if (const auto* found = of_image(one.begin, one.end)) return found;
    return nullptr;
}

std::string PlacedBuffer::damage() const {
    const std::byte* const differs = first_change();
    if (!differs) return {};
    const std::int64_t element = (differs - bytes_at(begin)) / static_cast<std::ptrdiff_t>(element_size);
    if (differs < bytes_at(begin) || differs >= bytes_at(end))
        return fmt::format("memory outside the tensor was written, near element offset {}", element);
    return fmt::format("{} was written, at element offset {}",
                       is_output() ? "memory between its elements" : "an input", element);
}

std::string PlacedBuffer::hole_at(std::uint64_t address) const {
    if (address < first_page || address >= pages_end) return {};
    for (const Pages& one : pages)
        if (address >= one.begin && address < one.end) return {};
    const auto bytes = static_cast<std::int64_t>(address - begin);
    return fmt::format("between the slices of {}, at element offset {}", name,
                       bytes / static_cast<std::int64_t>(element_size));
}

}  // namespace attncheck::properties
