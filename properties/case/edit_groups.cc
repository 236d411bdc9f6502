#include "properties/case/edit_groups.h"

#include <fmt/format.h>

#include "properties/case/description.h"

namespace attncheck::properties {

std::vector<Edit> values_of(const std::string& name, const std::vector<std::int64_t>& values) {
    std::vector<Edit> edits;
    for (const auto value : values) {
        edits.emplace_back(name);
        edits.back().value = value;
    }
    return edits;
}

void add_tensor_edits(EditGroups& groups, const std::string& tensor,
                      const std::vector<std::int64_t>& shape) {
    const auto rank = std::ssize(shape);
    groups.push_back({tensor + ".absent"});
    groups.push_back(values_of(tensor + ".rank",
                               {-1, 0, 1, rank - 1, rank + 1, 8, 9, 1000, INT32_MAX, INT32_MIN}));
    groups.push_back(values_of(
        tensor + ".dtype",
        {ATTNCHECK_FLOAT16, ATTNCHECK_BFLOAT16, ATTNCHECK_FLOAT32, ATTNCHECK_INT32, ATTNCHECK_INT64,
         ATTNCHECK_UINT8, ATTNCHECK_BOOL, ATTNCHECK_FLOAT8_E5M2, 2, -1}));
    for (std::int64_t dim = 0; dim < rank; ++dim) {
        const std::int64_t now = shape[static_cast<std::size_t>(dim)];
        groups.push_back(values_of(fmt::format("{}.shape[{}]", tensor, dim),
                                   {now + 1, now - 1, 0, -1, 2 * now + 16, std::int64_t{1} << 32,
                                    std::int64_t{1} << 62, INT64_MAX, INT64_MIN}));
    }
}

void add_tensor_edits(EditGroups& groups, const Call& call) {
    std::vector<Edit> added;
    for (const Tensor& tensor : call.tensors)
        if (tensor.present)
            add_tensor_edits(groups, tensor.name, tensor.shape);
        else
            added.emplace_back(tensor.name + ".present");
    if (!added.empty()) groups.push_back(added);
}

void add_number_edits(EditGroups& groups, const Call& call) {
    const Description& d = *call.description;
    constexpr std::int64_t kMax = INT64_MAX, kMin = INT64_MIN, kBeyond32 = std::int64_t{1} << 32;
    for (const RealField& field : d.reals) {
        groups.emplace_back();
        for (const std::string& value : field.tried)
            groups.back().emplace_back(field.name + '=' + value);
    }
    for (const IntegerField& field : d.integers) {
        if (field.largest == 0) continue;
        const std::int64_t now = call.number(field.name);
        groups.push_back(values_of(field.name, {0, -1, now + 1, now - 1, 2 * now, field.largest + 1,
                                                kBeyond32 + now, kMax, kMin}));
    }
    for (const IntegerField& field : d.integers) {
        const int index = d.number(field.value);
        if (field.inert || field.largest > 0 || index < 0) continue;
        const NumberField& number = d.numbers[static_cast<std::size_t>(index)];
        std::vector<std::int64_t> values;
        for (std::int64_t value = number.min - 1; value <= number.max + 1; ++value)
            values.push_back(value);
        values.insert(values.end(), {kMax, kMin});
        groups.push_back(values_of(field.name, values));
    }
    for (const IntegerField& field : d.integers)  // 258 is 2 where eight bits are read
        if (field.inert) groups.push_back(values_of(field.name, {-1, 1, 2, 258, kMax, kMin}));
}

void add_text_edits(EditGroups& groups, const Call& call) {
    for (const TextField& field : call.description->texts) {
        groups.emplace_back();
        for (const std::string& value : field.tried) {
            groups.back().emplace_back(field.name);
            groups.back().back().value = value;
        }
        groups.push_back({field.name + ".absent"});
    }
}

void add_length_edits(EditGroups& groups, const std::string& array,
                      const std::vector<std::int64_t>& lengths, std::int64_t rows) {
    groups.push_back({array + ".absent"});
    groups.push_back({array + ".null", array + ".size=-1"});
    groups.push_back({array + ".size=0"});
    // The first end beyond the second, which stays legal otherwise: only the order is broken.
    if (lengths.size() > 1 && lengths[1] > 0)
        groups.push_back({fmt::format("{}[0]={}", array, lengths[0] + 2 * lengths[1])});
    std::int64_t end = 0;
    for (std::size_t k = 0; k < lengths.size(); ++k) {
        end += lengths[k];
        if (k > 0 && k + 1 < lengths.size()) continue;  // the first and the last say it all
        groups.push_back(
            values_of(fmt::format("{}[{}]", array, k),
                      {-1, -2, end - 1, end + 1, rows + 1, rows + 16, INT64_MAX, INT64_MIN}));
    }
}

void add_length_edits(EditGroups& groups, const Extents& extents) {
    for (const ArrayField& array : extents.description().arrays)
        if (!array.ends_of.empty() && array.present.holds(extents))
            add_length_edits(groups, array.name, extents.lengths(array.ends_of),
                             extents.rows(array.ends_of));
}

}  // namespace attncheck::properties
