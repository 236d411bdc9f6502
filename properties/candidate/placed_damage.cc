// What calls left in and around their buffers, and where an address lies.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "properties/candidate/arena.h"

namespace attncheck::properties {

bool PlacedCalls::is_guard_changed(const Buffer& buffer) {
    for (const std::uint64_t guard : {buffer.first_page - kPage, buffer.pages_end})  // every byte is like the next one
        if (*byte_at(guard) != kGuardFill || std::memcmp(byte_at(guard), byte_at(guard) + 1, kPage - 1) != 0)
            return true;
    return false;
}

std::span<const std::uint8_t> PlacedCalls::Buffer::shared() const {
    if (!tensor || tensor->allocation != 0 || !tensor->shared_bytes || !tensor->bits.empty() ||
        pages.size() != 1 || tensor->shared_bytes->size() != end - begin)
        return {};
    return *tensor->shared_bytes;
}

void PlacedCalls::keep_image(Buffer& buffer) const {
    const auto add = [&](std::uint64_t begin, std::uint64_t end) {
        buffer.image.insert(buffer.image.end(), byte_at(begin), byte_at(end));
    };
    if (buffer.shared().empty()) {
        for (const Pages& pages : buffer.pages) add(pages.begin, pages.end);
    } else {
        add(buffer.first_page, buffer.begin);
        add(buffer.end, buffer.pages_end);
    }
}

const std::byte* PlacedCalls::first_change(const Buffer& buffer) {
    std::span<const std::byte> image = buffer.image;
    const auto change = [](std::uint64_t begin, std::span<const std::byte> before) -> const std::byte* {
        if (before.empty() || std::memcmp(byte_at(begin), before.data(), before.size()) == 0) return nullptr;
        return byte_at(begin) + (std::ranges::mismatch(before, std::span(byte_at(begin), before.size())).in1 -
                            before.begin());
    };
    const auto of_image = [&](std::uint64_t begin, std::uint64_t end) {
        const auto before = image.first(end - begin);
        image = image.subspan(end - begin);
        return change(begin, before);
    };
    if (const auto shared = buffer.shared(); !shared.empty()) {
        if (const auto* found = of_image(buffer.first_page, buffer.begin)) return found;
        if (const auto* found = change(buffer.begin, std::as_bytes(shared))) return found;
        return of_image(buffer.end, buffer.pages_end);
    }
    for (const Pages& pages : buffer.pages)
        if (const auto* found = of_image(pages.begin, pages.end)) return found;
    return nullptr;
}

std::string PlacedCalls::Buffer::hole_at(std::uint64_t address) const {
    if (address < first_page || address >= pages_end) return {};
    for (const Pages& one : pages)
        if (address >= one.begin && address < one.end) return {};
    const auto bytes = static_cast<std::int64_t>(address - begin);
    return fmt::format("between the slices of {}, at element offset {}", name,
                       bytes / static_cast<std::int64_t>(element_size));
}

std::string PlacedCalls::locate(std::uint64_t address, std::string& tensor) const {
    for (const Buffer& buffer : buffers_) {
        if (std::string hole = buffer.hole_at(address); !hole.empty()) {
            tensor = buffer.name;
            return hole;
        }
        if (address >= buffer.pages_end && address < buffer.pages_end + kPage &&
            options_.placement == Placement::ends_at_guard) {
            tensor = buffer.name;
            return fmt::format("{} element(s) past the end of {}",
                               (address - buffer.end) / buffer.element_size + 1, buffer.name);
        }
        if (address < buffer.first_page && address >= buffer.first_page - kPage &&
            options_.placement == Placement::begins_at_guard) {
            tensor = buffer.name;
            return fmt::format(
                "{} element(s) before the start of {}",
                (buffer.begin - address + buffer.element_size - 1) / buffer.element_size,
                buffer.name);
        }
    }
    return {};
}

std::string PlacedCalls::locate_in_input(std::uint64_t address, std::string& tensor) const {
    for (const Buffer& buffer : buffers_) {
        if (address < buffer.first_page || address >= buffer.pages_end) continue;
        if (buffer.tensor && buffer.tensor->output) continue;
        tensor = buffer.name;
        if (address < buffer.begin || address >= buffer.end)
            return fmt::format("memory beside {}", buffer.name);
        return fmt::format("element offset {} of {}",
                           (address - buffer.begin) / buffer.element_size, buffer.name);
    }
    return {};
}

}  // namespace attncheck::properties
