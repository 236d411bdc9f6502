#include "properties/candidate/placed_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "properties/candidate/content_hash.h"
#include "properties/case/derived.h"

namespace attncheck::properties {
namespace {

/// Inputs' unused bytes: all ones, which is NaN in every float type, so that reading a gap shows.
constexpr std::byte kInputFill{0xFF};

/// Heap memory that nobody initialised: this byte and its complement, repeated, are numbers between
/// 1 and 4 in size in every float type of more than a byte, so that sums that begin with them show.
constexpr std::uint32_t kHeapFill = 0x40;

/// Of the dimensions that are laid out, whatever an edit says of those that are passed.
std::vector<std::int64_t> strides_of_buffer(const Tensor& tensor) {
    std::vector<std::int64_t> strides = tensor.strides;
    strides.resize(tensor.buffer_shape.size(), 0);
    return strides;
}

/// What the allocation of a tensor spans: all of its views, or the tensor alone.
Extent whole_extent(const Call& call, const Tensor& tensor) {
    if (tensor.allocation == 0) return extent_of(tensor.buffer_shape, strides_of_buffer(tensor));
    Extent whole;
    for (const Tensor& other : call.tensors) {
        if (!other.present || other.allocation != tensor.allocation) continue;
        const Extent own = extent_of(other.buffer_shape, strides_of_buffer(other));
        if (own.count() == 0) continue;
        const bool first = whole.count() == 0;
        whole.lowest = first ? other.offset + own.lowest
                             : std::min(whole.lowest, other.offset + own.lowest);
        whole.highest = first ? other.offset + own.highest
                              : std::max(whole.highest, other.offset + own.highest);
    }
    return whole;
}

}  // namespace

PlacedCalls::PlacedCalls(const std::vector<const Call*>& calls, const RunOptions& options,
                         int repetitions, std::uint64_t arena_bytes)
    : options_(options), arena_bytes_(arena_bytes), next_(kControlBytes) {
    request_.calls = static_cast<std::uint32_t>(calls.size());
    request_.repetitions = static_cast<std::uint32_t>(repetitions);
    request_.enough_s = HUGE_VAL;
    for (std::size_t k = 0; k < calls.size(); ++k) {
        const Call& call = *calls[k];
        tensor_counts_.push_back(call.tensors.size());
        std::vector<attncheck_tensor> tensors(call.tensors.size());
        for (std::size_t i = 0; i < tensors.size(); ++i)
            place_tensor(k, call, i, tensors[i]);
        std::vector<attncheck_int_array> arrays(call.arrays.size());
        for (std::size_t i = 0; i < arrays.size(); ++i) {
            const HostArray& array = call.arrays[i];
            arrays[i] = {nullptr, array.size};
            if (!array.present) continue;
            const std::size_t bytes = array.values.size() * sizeof(std::int64_t);
            PlacedBuffer& buffer = add_buffer(k, array.name, bytes, sizeof(std::int64_t), kInputFill);
            if (bytes > 0) std::memcpy(bytes_at(buffer.begin), array.values.data(), bytes);
            arrays[i].values = reinterpret_cast<const std::int64_t*>(buffer.begin);
        }
        std::vector<const char*> texts(call.texts.size());
        for (std::size_t i = 0; i < texts.size(); ++i)
            if (call.texts[i].value)
                texts[i] = reinterpret_cast<const char*>(
                    control(call.texts[i].value->c_str(), call.texts[i].value->size() + 1));
        const std::vector<std::byte> arguments = pack(call, tensors, arrays, texts);
        request_.arguments[k] = control(arguments.data(), arguments.size());
        if (call.op.size() >= kNameBytes)
            throw std::runtime_error("the entry point's name is too long: " + call.op);
        call.op.copy(request_.op[k], kNameBytes);
    }
    for (PlacedBuffer& buffer : buffers_) buffer.keep_image();
    guards_.push_back(kArenaAddress + next_);
    guards_.push_back(kPage);
    next_ += kPage;
    request_.guard_count = static_cast<std::uint32_t>(guards_.size() / 2);
    request_.guards = control(guards_.data(), guards_.size() * sizeof guards_[0]);
    if (options_.locks_inputs)
        for (const PlacedBuffer& buffer : buffers_) {
            if (buffer.is_output()) continue;
            for (const PlacedBuffer::Pages& pages : buffer.pages) {
                inputs_.push_back(pages.begin);
                inputs_.push_back(pages.end - pages.begin);
            }
        }
    request_.input_count = static_cast<std::uint32_t>(inputs_.size() / 2);
    if (!inputs_.empty())
        request_.inputs = control(inputs_.data(), inputs_.size() * sizeof inputs_[0]);
    note_outputs();
    request_.heap = options_.poison == Poison::ones ? kHeapFill : kHeapFill ^ 0xFFu;
}

/// Of an output that is mostly empty only the pages that elements lie in are there, too many for a
/// table.
void PlacedCalls::note_outputs() {
    for (const PlacedBuffer& buffer : buffers_) {
        if (!buffer.is_output() || buffer.pages.size() != 1) continue;
        outputs_.push_back(buffer.first_page);
        outputs_.push_back(buffer.pages_end - buffer.first_page);
    }
    request_.output_count = static_cast<std::uint32_t>(outputs_.size() / 2);
    if (!outputs_.empty())
        request_.outputs = control(outputs_.data(), outputs_.size() * sizeof outputs_[0]);
}

std::uint64_t PlacedCalls::output_hash() const {
    std::uint64_t hash = 0;
    for (std::size_t k = 0; k < outputs_.size(); k += 2)
        hash = hash_of(bytes_at(outputs_[k]), outputs_[k + 1], hash);
    return hash;
}

std::vector<std::uint64_t> PlacedCalls::beginnings_of_outputs() const {
    constexpr std::uint64_t kMost = 1 << 20;
    std::vector<std::uint64_t> ranges = outputs_;
    for (std::size_t k = 1; k < ranges.size(); k += 2) ranges[k] = std::min(ranges[k], kMost);
    return ranges;
}

std::uint64_t PlacedCalls::control(const void* data, std::size_t bytes) {
    next_control_ = (next_control_ + 63) / 64 * 64;
    if (next_control_ + bytes > kControlBytes)
        throw std::runtime_error("case: arguments do not fit");
    const std::uint64_t address = kArenaAddress + next_control_;
    std::memcpy(bytes_at(address), data, bytes);
    next_control_ += bytes;
    return address;
}

PlacedBuffer& PlacedCalls::add_buffer(std::size_t call, std::string name, std::size_t bytes,
                                      std::size_t element_size, std::byte fill,
                                      std::vector<std::int64_t> offsets, bool is_covered) {
    const std::uint64_t gap = options_.placement == Placement::off_alignment ? element_size : 0;
    const std::uint64_t pages = std::max(round_up_to_page(bytes + gap), kPage);
    if (pages > arena_bytes_ || next_ + pages + 2 * kPage > arena_bytes_)
        throw NoRoom(fmt::format("the buffers need more than the {} GiB of address space that the "
                                 "system grants",
                                 arena_bytes_ >> 30));
    guards_.push_back(kArenaAddress + next_);
    guards_.push_back(kPage);
    PlacedBuffer buffer;
    buffer.call = call;
    buffer.name = std::move(name);
    buffer.element_size = element_size;
    buffer.first_page = kArenaAddress + next_ + kPage;
    buffer.pages_end = buffer.first_page + pages;
    buffer.begin = options_.placement == Placement::ends_at_guard ? buffer.pages_end - bytes
                                                                  : buffer.first_page + gap;
    buffer.end = buffer.begin + bytes;
    buffer.offsets = std::move(offsets);
    next_ += kPage + pages;
    std::ranges::copy(buffer.add_pages(), std::back_inserter(guards_));
    for (const std::uint64_t guard : {buffer.first_page - kPage, buffer.pages_end})
        std::memset(bytes_at(guard), static_cast<int>(kGuardFill), kPage);
    const auto fill_pages = [fill](std::uint64_t begin, std::uint64_t end) {
        std::memset(bytes_at(begin), static_cast<int>(fill), end - begin);
    };
    if (is_covered) {
        fill_pages(buffer.first_page, buffer.begin);
        fill_pages(buffer.end, buffer.pages_end);
    } else {
        for (const PlacedBuffer::Pages& touched : buffer.pages) fill_pages(touched.begin, touched.end);
    }
    buffers_.push_back(std::move(buffer));
    return buffers_.back();
}

PlacedBuffer& PlacedCalls::buffer_for(std::size_t number, const Call& call,
                                             std::size_t index) {
    const Tensor& tensor = call.tensors[index];
    const std::size_t size = tensor.element_size();
    const auto same = [&](const Tensor& other) {
        return other.present && other.allocation == tensor.allocation;
    };
    if (tensor.allocation != 0) {
        for (PlacedBuffer& buffer : buffers_)
            if (buffer.call == number && buffer.tensor && same(*buffer.tensor)) return buffer;
        std::string names;
        for (const Tensor& other : call.tensors)
            if (same(other)) names += (names.empty() ? "" : "+") + other.name;
        const auto count = static_cast<std::size_t>(whole_extent(call, tensor).count());
        PlacedBuffer& buffer = add_buffer(number, std::move(names), count * size, size, kInputFill);
        buffer.tensor = &tensor;
        return buffer;
    }
    const auto strides = strides_of_buffer(tensor);
    std::vector<std::int64_t> offsets;
    if (strides_for(Layout::dense, tensor.buffer_shape) != strides) {
        offsets = offsets_of(tensor.buffer_shape, strides);
        const std::int64_t lowest = extent_of(tensor.buffer_shape, strides).lowest;
        for (auto& offset : offsets) offset -= lowest;
    }
    const auto count = static_cast<std::size_t>(whole_extent(call, tensor).count());
    const std::size_t given = tensor.shared_bytes ? tensor.shared_bytes->size() : tensor.bits.size();
    const bool is_covered = !tensor.output && offsets.empty() && given == count && size <= sizeof tensor.bits[0];
    PlacedBuffer& buffer = add_buffer(number, tensor.name, count * size, size,
                                      tensor.output ? static_cast<std::byte>(options_.poison) : kInputFill,
                                      std::move(offsets), is_covered);
    buffer.tensor = &tensor;
    buffer.index = index;
    return buffer;
}

std::uint64_t PlacedCalls::first_element(const PlacedBuffer& buffer, const Call& call,
                                         const Tensor& tensor) const {
    const std::int64_t behind = tensor.offset - whole_extent(call, tensor).lowest;
    return buffer.begin + static_cast<std::uint64_t>(behind) * buffer.element_size;
}

void PlacedCalls::place_tensor(std::size_t number, const Call& call, std::size_t index,
                               attncheck_tensor& out) {
    const Tensor& tensor = call.tensors[index];
    out = {};
    if (!tensor.present) return;
    out.dtype = tensor.dtype;
    out.rank = tensor.rank;
    for (std::size_t dim = 0; dim < std::min<std::size_t>(tensor.shape.size(), ATTNCHECK_MAX_RANK);
         ++dim) {
        out.shape[dim] = tensor.shape[dim];
        out.strides[dim] = tensor.strides[dim];
    }
    const PlacedBuffer& buffer = buffer_for(number, call, index);
    std::byte* const first = bytes_at(first_element(buffer, call, tensor));
    out.data = first;
    if (tensor.output) return;
    if (tensor.shared_bytes)
        std::memcpy(bytes_at(buffer.begin), tensor.shared_bytes->data(), tensor.shared_bytes->size());
    // Offsets of a buffer count from its begin, those of a view from its first element.
    const bool is_view = tensor.allocation != 0;
    const auto offsets =
        is_view ? offsets_of(tensor.buffer_shape, strides_of_buffer(tensor)) : buffer.offsets;
    std::byte* const from = is_view ? first : bytes_at(buffer.begin);
    const auto store = [&]<std::size_t kSize>(std::integral_constant<std::size_t, kSize>) {
        constexpr std::size_t kCopied = std::min(kSize, sizeof tensor.bits[0]);
        const std::size_t count = tensor.bits.size();
        if (offsets.empty())
            for (std::size_t i = 0; i < count; ++i)
                std::memcpy(from + i * kSize, &tensor.bits[i], kCopied);
        else
            for (std::size_t i = 0; i < count; ++i)
                std::memcpy(from + offsets[i] * static_cast<std::int64_t>(kSize), &tensor.bits[i],
                            kCopied);
    };
    with_size(tensor.element_size(), store);
}

void PlacedCalls::collect(std::size_t k, CallResult& result) const {
    result.outputs.assign(tensor_counts_[k], {});
    for (const PlacedBuffer& buffer : buffers_) {
        if (buffer.call != k) continue;
        // What was written into an output's elements is taken out, so that the rest can be compared
        // with what stood there before.
        if (buffer.is_output()) result.outputs[buffer.index] = buffer.take_elements(options_.poison);
        if (buffer.is_guard_changed())
            result.damage.push_back(
                {buffer.name, "memory outside the tensor was written, in a guard page"});
        if (std::string damage = buffer.damage(); !damage.empty())
            result.damage.push_back({buffer.name, std::move(damage)});
    }
}

std::string PlacedCalls::locate(std::uint64_t address, std::string& tensor) const {
    // A guard page lies between two buffers: the one that ends or begins at it comes first; far from it the other one
    // may be meant as well.
    struct Neighbour {
        const PlacedBuffer* buffer = nullptr;
        std::uint64_t elements = UINT64_MAX;
    } before, behind;
    for (const PlacedBuffer& buffer : buffers_) {
        if (std::string hole = buffer.hole_at(address); !hole.empty()) {
            tensor = buffer.name;
            return hole;
        }
        const std::uint64_t size = buffer.element_size;
        if (address >= buffer.pages_end && address < buffer.pages_end + kPage)
            before = {&buffer, (address - buffer.end) / size + 1};
        if (address < buffer.first_page && address >= buffer.first_page - kPage)
            behind = {&buffer, (buffer.begin - address + size - 1) / size};
    }
    // Only one end of a buffer is flush with a guard page; at the other one a call passed over what fills the page.
    const bool flush_at_end = options_.placement == Placement::ends_at_guard;
    const Neighbour& flush = flush_at_end ? before : behind;
    const Neighbour& other = flush_at_end ? behind : before;
    if (!flush.buffer) return {};
    tensor = flush.buffer->name;
    constexpr std::uint64_t kNear = 256;  // elements
    const auto words = [&](const Neighbour& from, bool is_end) {
        return fmt::format("{} element(s) {} of {}", from.elements,
                           is_end ? "past the end" : "before the start", from.buffer->name);
    };
    std::string text = words(flush, flush_at_end);
    if (flush.elements > kNear && other.buffer) text += " or " + words(other, !flush_at_end);
    return text;
}

std::string PlacedCalls::locate_in_input(std::uint64_t address, std::string& tensor) const {
    for (const PlacedBuffer& buffer : buffers_) {
        if (address < buffer.first_page || address >= buffer.pages_end) continue;
        if (buffer.is_output()) continue;
        tensor = buffer.name;
        if (address < buffer.begin || address >= buffer.end)
            return fmt::format("memory beside {}", buffer.name);
        return fmt::format("element offset {} of {}",
                           (address - buffer.begin) / buffer.element_size, buffer.name);
    }
    return {};
}

}  // namespace attncheck::properties
