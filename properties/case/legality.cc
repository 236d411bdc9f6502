// Why a case is no legal problem: lengths, rules between fields, sizes, layouts and elements.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "properties/case/attention_data.h"
#include "properties/case/derived.h"
#include "properties/case/one_buffer.h"
#include "properties/case/row_order.h"

namespace attncheck::properties {
namespace {

/// "{key}" of a message replaced by the value of the field.
std::string with_values(const std::string& message, const Extents& extents,
                        std::int64_t length = 0) {
    std::string out;
    std::size_t start = 0;
    for (auto open = message.find('{'); open != std::string::npos;
         open = message.find('{', start)) {
        const auto close = message.find('}', open);
        out += message.substr(start, open - start);
        const std::string name = message.substr(open + 1, close - open - 1);
        out += fmt::format("{}", name == "length" ? length : extents[name]);
        start = close + 1;
    }
    return out + message.substr(start);
}

/// What the rule says of extents that break it.
std::optional<std::string> broken(const Rule& rule, const Extents& extents) {
    if (!rule.when.holds(extents)) return std::nullopt;
    if (rule.each) {
        const auto& lengths = extents.lengths(rule.list);
        for (std::size_t b = 0; b < lengths.size(); ++b)
            if (!rule.each(extents, b)) return with_values(rule.message, extents, lengths[b]);
        return std::nullopt;
    }
    if (rule.holds ? rule.holds(extents) : rule.needs.holds(extents)) return std::nullopt;
    return with_values(rule.message, extents);
}

std::optional<std::string> illegal_lists(const Spec& spec) {
    const Description& d = *spec.schema;
    for (std::size_t i = 0; i < d.lists.size(); ++i) {
        const ListField& field = d.lists[i];
        if (spec.lists[i].empty())
            return fmt::format("{} is empty, at least one sequence is needed", field.key);
        if (d.parallel_lists && spec.lists[i].size() != spec.lists[0].size())
            return fmt::format("{} and {} need the same number of sequences", d.lists[0].key,
                               field.key);
        for (const std::int64_t length : spec.lists[i])
            if (length < field.min || length > field.max)
                return fmt::format("{} holds {}, allowed: {}..{}", field.key, length, field.min,
                                   field.max);
    }
    return std::nullopt;
}

/// Elements that one tensor of a case may have. Inputs, outputs and expectations are really laid
/// out, several times; 2^26 is the query of a case of full size with 65536 tokens.
constexpr std::int64_t kMostElements = 1 << 26;

std::optional<std::string> too_large(const Description& d,
                                     const std::vector<std::vector<std::int64_t>>& shapes) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        double elements = 1;  // a product of extents may be beyond 2^63
        for (const std::int64_t extent : shapes[i]) elements *= static_cast<double>(extent);
        if (elements > static_cast<double>(kMostElements))
            return fmt::format("{} has {:.0f} elements, shape [{}], allowed in a case: {}",
                               d.tensors[i].name, elements, fmt::join(shapes[i], ","),
                               kMostElements);
    }
    return std::nullopt;
}

/// Tensors in Layout::far in one case, each of 4 to 16 GiB of address space.
constexpr std::ptrdiff_t kMostFar = 3;

std::optional<std::string> illegal_layouts(const Spec& spec, const Extents& extents) {
    for (std::size_t i = 0; i < spec.layouts.size(); ++i) {
        const TensorField& tensor = spec.schema->tensors[i];
        const Layout layout = spec.layouts[i];
        if (layout != Layout::dense && tensor.is_view(extents))
            return fmt::format("{}.layout={}: it lies where {} lies", tensor.name, name_of(layout), tensor.view_of);
        if (const int whole = spec.schema->tensor(tensor.view_of);
            whole >= 0 && tensor.is_view(extents) && spec.layouts[static_cast<std::size_t>(whole)] == Layout::far)
            return fmt::format("{}.layout=far: {} lies in it", tensor.view_of, tensor.name);
        const Form* form = layout == Layout::dense ? nullptr : form_of(tensor, extents);
        if (form && form->fixed)
            return fmt::format("{}.layout={}: documented contents lie dense", tensor.name,
                               name_of(layout));
        if ((tensor.output && !suits_outputs(layout)) ||
            ((tensor.output || tensor.derived) && repeats(layout)))
            return fmt::format("{}.layout={} is for {}inputs only", tensor.name, name_of(layout),
                               tensor.derived ? "independent " : "");
        if (shares_buffer(layout) && !may_share_buffer(tensor))
            return fmt::format("{}.layout={} is for query, key and value", tensor.name,
                               name_of(layout));
        // What a list may hold depends on its row.
        if (repeats(layout) && layout != Layout::broadcast &&
            (!spec.schema->repeats_anywhere || tensor.role == Role::list))
            return fmt::format("{}.layout={} is not for this input: allowed to repeat elements: {}", tensor.name, name_of(layout),
                               name_of(Layout::broadcast));
    }
    if (std::ranges::count(spec.layouts, Layout::far) > kMostFar)
        return fmt::format("at most {} tensors of a case lie far apart", kMostFar);
    return std::nullopt;
}

/// The largest element of a mask or of drop bits; nullopt: of another type.
std::optional<double> largest_byte(ref::Dtype type) {
    if (type == ref::Dtype::boolean) return 1;
    return type == ref::Dtype::uint8 ? std::optional<double>(255) : std::nullopt;
}

}  // namespace

std::optional<std::string> illegal(const Spec& spec) {
    if (auto reason = number_outside(*spec.schema, spec.numbers)) return reason;
    if (auto reason = illegal_lists(spec)) return reason;
    const Extents extents = extents_of(spec);
    for (const Rule& rule : spec.schema->rules)
        if (auto reason = broken(rule, extents)) return reason;
    if (auto reason = illegal_layouts(spec, extents)) return reason;
    const auto shapes = shapes_of(extents);
    if (auto reason = too_large(*spec.schema, shapes)) return reason;
    for (const auto& [element, value] : spec.overrides) {
        const TensorField& tensor = spec.schema->tensors[static_cast<std::size_t>(element.tensor)];
        if (tensor.is_view(extents))
            return fmt::format("set names {}, whose elements are those of {}", tensor.name, tensor.view_of);
        if (!is_inside(element, shapes[static_cast<std::size_t>(element.tensor)]))
            return fmt::format("set names an element outside {}", tensor.name);
        if (const auto most = largest_byte(extents.type_of(tensor));
            most && !(value >= 0 && value <= *most))
            return fmt::format("set gives {} a value it cannot hold", tensor.name);
    }
    return spec.schema->element_rules ? spec.schema->element_rules(spec) : std::nullopt;
}

}  // namespace attncheck::properties
