#include "properties/operators/labels.h"

#include <fmt/format.h>

#include <algorithm>

#include "properties/case/one_buffer.h"

namespace attncheck::properties {
namespace {

/// Fields of what a gradient is given, and the class of a case where they are not 0.
constexpr std::pair<const char*, const char*> kGiven[] = {{"stats", "statistics_shifted"},
                                                          {"out", "output_perturbed"}};

}  // namespace

void Labels::value_of(const char* key) {
    const auto field = static_cast<std::size_t>(spec_.schema->number(key));
    add(fmt::format("{}:{}", key,
                    value_name(spec_.schema->numbers[field], spec_.numbers[field])));
}

Labels::Labels(const Spec& spec, std::initializer_list<const char*> keys) : spec_(spec) {
    add(value_name(spec_.schema->numbers[0], spec_.numbers[0]));
    add(fmt::format("data:{}", name_of(spec_.recipe)));
    for (const char* key : keys) value_of(key);
}

void Labels::lengths() {
    using Int = std::int64_t;
    some([](Int q, Int kv) { return 0 < q && q < kv; }, "fewer_queries");
    some([](Int q, Int kv) { return q == kv && q > 0; }, "square");
    some([](Int q, Int kv) { return q > kv && kv > 0; }, "more_queries");
    some([](Int q, Int kv) { return q > 0 && kv == 0; }, "queries_without_keys");
    some([](Int q, Int kv) { return q == 0 && kv > 0; }, "keys_without_queries");
}

void Labels::heads_and_widths() {
    const std::int64_t dim = spec_.number("dim"), value_dim = spec_.number("value_dim");
    add(spec_.number("group") > 1, "grouped_heads");
    add(spec_.number("kv_heads") > 1, "several_kv_heads");
    add(value_dim < dim, "value_dim_smaller");
    add(value_dim > dim, "value_dim_larger");
    add(dim % 16 != 0, "odd_dim");
    add(dim > 128, "wide_dim");
}

void Labels::layouts(bool each) {
    const auto any = [&](auto&& is) {
        return std::any_of(spec_.layouts.begin(), spec_.layouts.end(), is);
    };
    add(any([](Layout l) { return l != Layout::dense; }), "strided");
    add(any([](Layout l) { return l == Layout::far; }), "far_strides");
    add(any([](Layout l) { return l >= Layout::one_row && l <= Layout::one_element; }),
        "repeated_rows");
    add(any([](Layout l) { return l == Layout::reversed_last || l == Layout::reversed_all; }),
        "reversed_columns");
    add(has_one_buffer(spec_), "one_buffer");
    if (!each) return;
    add(any([](Layout l) { return l == Layout::broadcast; }), "broadcast");
    add(any([](Layout l) { return l == Layout::reversed; }), "reversed");
}

void Labels::given() {
    for (const auto& [field, name] : kGiven)
        add(spec_.schema->number(field) >= 0 && spec_.number(field) != 0, name);
}

bool Labels::edited() {
    add(!spec_.edits.empty(), kEditedLabel);
    return !spec_.edits.empty();
}

Required& Required::share(double percent, std::initializer_list<const char*> labels) {
    for (const char* label : labels) out_.push_back({label, percent});
    return *this;
}

Required& Required::share(double percent, const std::string& kind,
                          std::initializer_list<const char*> names) {
    for (const char* name : names) out_.push_back({kind + ":" + name, percent});
    return *this;
}

Required& Required::values(double percent, const char* key, std::int64_t first) {
    const NumberField& field =
        description_.numbers[static_cast<std::size_t>(description_.number(key))];
    for (std::int64_t value = std::max(field.min, first); value <= field.max; value += field.step)
        out_.push_back({fmt::format("{}:{}", key, value_name(field, value)), percent});
    return *this;
}

Required& Required::recipes(double percent, Recipe first) {
    for (int recipe = static_cast<int>(first); recipe <= static_cast<int>(Recipe::specials); ++recipe)
        out_.push_back({fmt::format("data:{}", name_of(static_cast<Recipe>(recipe))), percent});
    return *this;
}

Required& Required::corners(double percent, std::initializer_list<const char*> names) {
    for (const char* name : names)
        out_.push_back({fmt::format("corner:{}", name), percent, true});
    return *this;
}

Required& Required::rare(double percent, std::initializer_list<const char*> labels) {
    for (const char* label : labels) out_.push_back({label, percent, true});
    return *this;
}

Required& Required::given(double percent) {
    for (const auto& [field, name] : kGiven)
        if (description_.number(field) >= 0) share(percent, {name});
    return *this;
}

}  // namespace attncheck::properties
