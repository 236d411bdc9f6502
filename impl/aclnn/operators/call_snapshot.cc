#include "impl/aclnn/operators/call_snapshot.h"

#include <algorithm>
#include <limits>

#include "impl/aclnn/device_memory.h"
#include "impl/aclnn/objects.h"

namespace attncheck::aclnn {
namespace {

// Elements lie in blocks of a shape that the formats themselves define: not a strided view.
bool is_blocked(aclFormat format) {
    switch (format) {
        case ACL_FORMAT_NC1HWC0:
        case ACL_FORMAT_FRACTAL_Z:
        case ACL_FORMAT_NC1HWC0_C04:
        case ACL_FORMAT_FRACTAL_NZ:
        case ACL_FORMAT_NDC1HWC0:
        case ACL_FRACTAL_Z_3D:
        case ACL_FORMAT_FRACTAL_NZ_C0_16:
        case ACL_FORMAT_FRACTAL_NZ_C0_32:
        case ACL_FORMAT_FRACTAL_NZ_C0_2:
        case ACL_FORMAT_FRACTAL_NZ_C0_4:
        case ACL_FORMAT_FRACTAL_NZ_C0_8:
            return true;
        default:
            return false;
    }
}

// What the elements of a view span, in bytes from the start of its storage.
struct ByteRange {
    std::int64_t first_element, lowest, end;
};

// Nothing when an offset does not fit into int64.
std::optional<ByteRange> byte_range(const aclTensor& source, std::int64_t element) {
    std::int64_t lowest = source.offset, highest = source.offset;
    for (std::size_t dim = 0; dim < source.view_dims.size(); ++dim) {
        std::int64_t reach = 0;
        if (__builtin_mul_overflow(source.view_dims[dim] - 1, source.strides[dim], &reach))
            return {};
        std::int64_t& bound = reach < 0 ? lowest : highest;
        if (__builtin_add_overflow(bound, reach, &bound)) return {};
    }
    ByteRange range{};
    if (__builtin_mul_overflow(source.offset, element, &range.first_element) ||
        __builtin_mul_overflow(lowest, element, &range.lowest) ||
        __builtin_mul_overflow(highest, element, &range.end) ||
        __builtin_add_overflow(range.end, element, &range.end)) {
        return {};
    }
    return range;
}

bool is_identifier_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// candidate.h asks for an address and for values even where there is nothing behind them.
std::int64_t nothing = 0;

}  // namespace

void CallSnapshot::note_invalid(const char* parameter, const std::string& value,
                                const std::string& allowed) {
    if (unusable_) return;
    unusable_ = impl::Rejection{ATTNCHECK_ERR_INVALID, parameter,
                                std::string(parameter) + " is " + value + "; allowed: " + allowed};
}

void CallSnapshot::note_missing(const char* parameter, const std::string& value) {
    if (missing_) return;
    missing_ = impl::Rejection{ATTNCHECK_ERR_NULLPTR, parameter,
                               std::string(parameter) + " is " + value + "; allowed: not NULL"};
}

void CallSnapshot::require(const char* parameter, const void* argument) {
    if (argument == nullptr) note_missing(parameter, "NULL");
}

attncheck_tensor CallSnapshot::tensor(const char* parameter, const aclTensor* handle,
                                      Direction direction) {
    attncheck_tensor view{};
    if (handle == nullptr) return view;
    view.data = &nothing;
    const std::optional<aclTensor> source = find_tensor(handle);
    if (!source) {
        note_invalid(parameter, "not a live tensor", "what aclCreateTensor returned");
        return view;
    }
    const std::size_t rank = source->view_dims.size();
    view.dtype = source->data_type;
    view.rank = static_cast<std::int32_t>(
        std::min<std::size_t>(rank, std::numeric_limits<std::int32_t>::max()));
    for (std::size_t dim = 0; dim < std::min<std::size_t>(rank, ATTNCHECK_MAX_RANK); ++dim) {
        view.shape[dim] = source->view_dims[dim];
        view.strides[dim] = source->strides[dim];
    }
    if (is_blocked(source->format)) {
        note_invalid(parameter, "of format " + std::to_string(source->format),
                     "ND and the other formats that are strided views");
    }
    const bool empty = std::any_of(source->view_dims.begin(), source->view_dims.end(),
                                   [](std::int64_t extent) { return extent <= 0; });
    if (!empty) place(parameter, *source, direction, view);
    return view;
}

void CallSnapshot::place(const char* parameter, const ::aclTensor& source, Direction direction,
                         attncheck_tensor& view) {
    if (source.data == nullptr) {
        note_missing(parameter, "a tensor whose data address is NULL");
        return;
    }
    const auto element = static_cast<std::int64_t>(element_bytes(source.data_type));
    if (element == 0) return;  // no operator takes such a type: the validators say which they do
    const std::optional<ByteRange> range = byte_range(source, element);
    const auto base = reinterpret_cast<std::intptr_t>(source.data);
    std::intptr_t first = 0, lowest = 0, end = 0;
    if (!range || __builtin_add_overflow(base, range->first_element, &first) ||
        __builtin_add_overflow(base, range->lowest, &lowest) ||
        __builtin_add_overflow(base, range->end, &end)) {
        note_invalid(parameter, "a view that leaves the address space", "offsets below 2^63 bytes");
        return;
    }
    if (base % element != 0) {
        note_invalid(parameter, "at an address that is not a multiple of its element",
                     "multiples of " + std::to_string(element) + " bytes");
    }
    const auto start = reinterpret_cast<const void*>(lowest);
    if (device_placement(start, static_cast<std::size_t>(end - lowest)) == Placement::kPastTheEnd) {
        note_invalid(parameter,
                     "a view of " + std::to_string(end - lowest) +
                         " bytes that leaves its block of device memory",
                     "views inside one block");
    }
    for (std::size_t dim = 0; direction == Direction::kOutput && dim < source.strides.size();
         ++dim) {
        if (source.strides[dim] == 0 && source.view_dims[dim] > 1) {
            note_invalid(parameter, "of stride 0 in dimension " + std::to_string(dim),
                         "outputs whose elements are distinct");
        }
    }
    view.data = reinterpret_cast<void*>(first);
}

attncheck_int_array CallSnapshot::array(const char* parameter, const aclIntArray* handle) {
    if (handle == nullptr) return {nullptr, 0};
    std::optional<aclIntArray> source = find_int_array(handle);
    if (!source) {
        note_invalid(parameter, "not a live array", "what aclCreateIntArray returned");
        return {&nothing, 0};
    }
    arrays_.push_back(std::move(source->values));
    const std::vector<std::int64_t>& values = arrays_.back();
    return {values.empty() ? &nothing : values.data(), static_cast<std::int64_t>(values.size())};
}

const char* CallSnapshot::text(const char* value) {
    if (value == nullptr) return nullptr;
    return texts_.emplace_back(value).c_str();
}

std::string CallSnapshot::in_caller_terms(const std::string& message) const {
    std::string translated;
    for (std::size_t at = 0; at < message.size();) {
        std::size_t end = at;
        while (end < message.size() && is_identifier_char(message[end])) ++end;
        if (end == at) {
            translated += message[at++];
            continue;
        }
        const std::string word = message.substr(at, end - at);
        const auto found = names_.find(word);
        translated += found == names_.end() ? word : found->second;
        at = end;
    }
    return translated;
}

}  // namespace attncheck::aclnn
