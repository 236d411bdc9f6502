#include "properties/search/aspects.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "properties/case/one_buffer.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

std::string yes_or_no(Int value) { return value != 0 ? "yes" : "no"; }

std::vector<Int> numbers_of(std::size_t count) {
    std::vector<Int> out(count);
    std::iota(out.begin(), out.end(), Int{0});
    return out;
}

Aspect field_aspect(const Schema& schema, std::size_t i) {
    const NumberField& field = schema.numbers[i];
    return {.name = field.key,
            .value = [i](const Spec& spec) { return spec.numbers[i]; },
            .set = [i](Spec& spec, Int value) { spec.numbers[i] = value; },
            .text =
                [names = field.names](Int value) {
                    return names.empty() ? std::to_string(value)
                                         : names[static_cast<std::size_t>(value)];
                },
            .named = numbers_of(field.names.size()),
            .is_extent = field.names.empty() && field.max - field.min > 16};
}

/// Two sizes of one kind, such as the widths of keys and values: many kernels want them equal.
Aspect equal_fields(const Schema& schema, std::size_t left, std::size_t right) {
    return {
        .name = schema.numbers[right].key + "=" + schema.numbers[left].key,
        .value = [=](const Spec& spec) -> Int { return spec.numbers[left] == spec.numbers[right]; },
        .set =
            [=](Spec& spec, Int equal) {
                if (equal) spec.numbers[right] = spec.numbers[left];
            },
        .text = yes_or_no,
        .named = {0, 1}};
}

void add_fields(const Schema& schema, std::vector<Aspect>& out) {
    const auto& numbers = schema.numbers;
    for (std::size_t i = 0; i < numbers.size(); ++i) out.push_back(field_aspect(schema, i));
    for (std::size_t i = 0; i < numbers.size(); ++i)
        for (std::size_t j = i + 1; j < numbers.size(); ++j)
            if (!numbers[i].word.empty() && numbers[i].word == numbers[j].word &&
                numbers[i].min == numbers[j].min && numbers[i].max == numbers[j].max)
                out.push_back(equal_fields(schema, i, j));
}

/// Largest power of two up to 128 that divides every length.
Int divisor_of(const std::vector<Int>& lengths) {
    Int divisor = 128;
    for (const Int length : lengths)
        while (length % divisor != 0) divisor /= 2;
    return divisor;
}

constexpr Int kSmallestTile = 16, kLargestTile = 256;

/// Largest size of a tile that no length falls below; 0: some fall below the smallest.
Int floor_of(const std::vector<Int>& lengths) {
    const Int least = lengths.empty() ? 0 : std::ranges::min(lengths);
    Int tile = kLargestTile;
    while (tile >= kSmallestTile && tile > least) tile /= 2;
    return tile >= kSmallestTile ? tile : 0;
}

void take_several(Spec& spec) {
    for (auto& list : spec.lists)
        if (list.size() == 1) list.push_back(list.front());
}

void add_list(const Schema& schema, std::size_t i, std::vector<Aspect>& out) {
    const std::string& key = schema.lists[i].key;
    out.push_back(
        {.name = key + ":empty",
         .value = [i](const Spec& spec) -> Int { return std::ranges::count(spec.lists[i], 0) > 0; },
         .set =
             [i](Spec& spec, Int empty) {
                 if (!empty) std::ranges::replace(spec.lists[i], 0, 1);
             },
         .text = yes_or_no,
         .named = {0, 1}});
    out.push_back({.name = key + ":equal",
                   .value = [i](const Spec& spec) -> Int {
                       return std::ranges::adjacent_find(spec.lists[i], std::not_equal_to<>()) ==
                              spec.lists[i].end();
                   },
                   .set =
                       [i](Spec& spec, Int equal) {
                           if (spec.lists[i].empty()) return;
                           if (equal) {
                               std::ranges::fill(spec.lists[i], spec.lists[i].front());
                               return;
                           }
                           take_several(spec);
                           if (std::ranges::adjacent_find(spec.lists[i], std::not_equal_to<>()) == spec.lists[i].end())
                               spec.lists[i].front() = std::max<Int>(spec.lists[i].front() * 2, 1);  // a whole tile stays one
                       },
                   .text = yes_or_no,
                   .named = {0, 1}});
    // Of a kernel for one new token each.
    out.push_back({.name = key + ":all_one",
                   .value = [i](const Spec& spec) -> Int {
                       return std::ranges::all_of(spec.lists[i], [](Int length) { return length == 1; });
                   },
                   .set =
                       [i](Spec& spec, Int all_one) {
                           if (all_one)
                               std::ranges::fill(spec.lists[i], 1);
                           else if (std::ranges::all_of(spec.lists[i], [](Int length) { return length == 1; }))
                               std::ranges::fill(spec.lists[i], 2);
                       },
                   .text = yes_or_no,
                   .named = {0, 1}});
    // Of a kernel that has no tile that is less than full.
    out.push_back({.name = key + ":least",
                   .value = [i](const Spec& spec) { return floor_of(spec.lists[i]); },
                   .set =
                       [i](Spec& spec, Int least) {
                           for (Int& length : spec.lists[i])
                               if (length < least) length += least;
                           if (floor_of(spec.lists[i]) > least && !spec.lists[i].empty()) spec.lists[i].front() = std::max<Int>(least, 1);
                       },
                   .text = [](Int value) {
                       if (value == 0) return std::string("0..15");
                       return value == kLargestTile ? fmt::format("{}..", value) : fmt::format("{}..{}", value, 2 * value - 1);
                   }});
    out.push_back({.name = key + ":multiple_of",
                   .value = [i](const Spec& spec) { return divisor_of(spec.lists[i]); },
                   .set =
                       [i](Spec& spec, Int divisor) {
                           for (Int& length : spec.lists[i])
                               length = (length + divisor - 1) / divisor * divisor;
                           if (divisor_of(spec.lists[i]) > divisor)  // larger tiles and one of this size
                               for (Int& length : spec.lists[i]) length += length > 0 ? divisor : 0;
                       },
                   .text = [](Int value) { return std::to_string(value); }});
}

void add_lists(const Schema& schema, std::vector<Aspect>& out) {
    if (schema.lists.empty()) return;
    const bool several_lists = schema.lists.size() > 1 && schema.parallel_lists;
    out.push_back(
        {.name = "sequences",
         .value = [](const Spec& spec) { return std::min<Int>(std::ssize(spec.lists[0]), 2); },
         .set =
             [](Spec& spec, Int count) {
                 if (count >= 2) return take_several(spec);
                 for (auto& list : spec.lists)
                     if (!list.empty()) list.resize(1);
             },
         .text = [](Int value) { return value < 2 ? "1" : "several"; },
         .named = {1, 2}});
    for (std::size_t i = 0; i < schema.lists.size(); ++i) add_list(schema, i, out);
    if (!several_lists) return;
    out.push_back({.name = schema.lists[0].key + "=" + schema.lists[1].key,
                   .value = [](const Spec& spec) -> Int { return spec.lists[0] == spec.lists[1]; },
                   .set =
                       [](Spec& spec, Int equal) {
                           if (equal)
                               spec.lists[1] = spec.lists[0];
                           else if (spec.lists[0] == spec.lists[1])
                               for (Int& length : spec.lists[1]) ++length;
                       },
                   .text = yes_or_no,
                   .named = {0, 1}});
    out.push_back({.name = schema.lists[0].key + "<=" + schema.lists[1].key,
                   .value = [](const Spec& spec) -> Int {
                       return std::ranges::equal(spec.lists[0], spec.lists[1], std::less_equal<>());
                   },
                   .set =
                       [](Spec& spec, Int ordered) {
                           for (std::size_t b = 0; ordered && b < spec.lists[0].size(); ++b)
                               spec.lists[1][b] = std::max(spec.lists[0][b], spec.lists[1][b]);
                           if (ordered) return;
                           if (spec.lists[0] == spec.lists[1])
                               for (Int& length : spec.lists[0]) ++length;
                           else if (std::ranges::equal(spec.lists[0], spec.lists[1],
                                                       std::less_equal<>()))
                               std::swap(spec.lists[0], spec.lists[1]);
                       },
                   .text = yes_or_no,
                   .named = {0, 1}});
}

/// Whether a tensor of this side is in memory in this order and that is not row-major order without gaps.
bool is_in(const Operator& op, const Spec& spec, bool outputs, Layout layout) {
    const auto& fields = op.schema().tensors;
    bool named = false;
    for (std::size_t t = 0; t < fields.size(); ++t)
        named = named || (fields[t].output == outputs && spec.layouts[t] == layout);
    if (!named) return false;
    const Call call = op.outline(spec);
    for (std::size_t t = 0; t < fields.size(); ++t) {
        if (fields[t].output != outputs || spec.layouts[t] != layout) continue;
        Int stride = 1;
        const Tensor& tensor = call.tensors[t];
        if (!tensor.present || tensor.elements() == 0) continue;
        for (std::size_t d = tensor.shape.size(); d-- > 0; stride *= tensor.shape[d])
            if (tensor.shape[d] > 1 && tensor.strides[d] != stride) return true;
    }
    return false;
}

/// One for each order, of all inputs or all outputs: a kernel that wants rows without gaps wants them of every tensor.
void add_memory(const Operator& op, std::vector<Aspect>& out) {
    const auto& fields = op.schema().tensors;
    for (const bool outputs : {false, true})
        for (int n = 2; n < kLayouts; ++n) {
            const bool of_inputs = n > static_cast<int>(Layout::spread) && n != static_cast<int>(Layout::far);
            if (outputs && of_inputs) continue;
            const auto layout = static_cast<Layout>(n);
            out.push_back(
                {.name = fmt::format("{}:{}", outputs ? "outputs" : "inputs", name_of(layout)),
                 .value = [=, &op](const Spec& spec) -> Int {
                     return is_in(op, spec, outputs, layout);
                 },
                 .set =
                     [=, &fields](Spec& spec, Int present) {
                         for (std::size_t t = 0; t < fields.size(); ++t)
                             if (fields[t].output == outputs &&
                                 (!shares_buffer(layout) || may_share_buffer(fields[t])) &&
                                 (present != 0 || spec.layouts[t] == layout))
                                 spec.layouts[t] = present != 0 ? layout : Layout::dense;
                     },
                 .text = yes_or_no,
                 .named = {0, 1}});
        }
}

}  // namespace

std::vector<Aspect> aspects_of(const Operator& op) {
    std::vector<Aspect> out;
    add_fields(op.schema(), out);
    add_lists(op.schema(), out);
    add_memory(op, out);
    return out;
}

std::string text_of(const Aspect& aspect, std::int64_t value) {
    return fmt::format("{}={}", aspect.name, aspect.text(value));
}

}  // namespace attncheck::properties
