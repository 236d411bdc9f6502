#include "properties/case/derived.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "properties/case/attention_data.h"
#include "properties/case/one_buffer.h"
#include "properties/case/outputs.h"
#include "properties/case/row_order.h"

namespace attncheck::properties {
namespace {

std::int64_t integer_of(const IntegerField& field, const Extents& extents) {
    return field.scalar >= 0 ? extents.scalar(field.scalar) : std::stoll(field.value);
}

template <class Items>
const auto& at_name(const Items& items, const std::string& name) {
    return *std::find_if(items.begin(), items.end(),
                         [&](const auto& item) { return item.name == name; });
}

/// The list whose rows an axis counts, -1 if it counts something else.
int rows_of(const Axes& axes) {
    if (axes.empty() || axes.axes()[0].factors[0].of != Factor::Of::rows) return -1;
    return axes.axes()[0].factors[0].symbol;
}

/// Of a tensor that is absent: no rows, or nothing at all where rows are not what it has.
std::vector<std::int64_t> without_rows(const TensorField& tensor, const Axes& axes,
                                       const Extents& extents) {
    std::vector<std::int64_t> shape = axes.shape(extents);
    if (rows_of(tensor.logical) < 0)
        std::fill(shape.begin(), shape.end(), 0);
    else if (rows_of(axes) >= 0)
        shape[0] = 0;
    return shape;
}

/// As passed; a numbered tensor that is absent has one empty axis.
std::vector<std::int64_t> passed_shape(const TensorField& tensor, const Extents& extents) {
    const Form* form = form_of(tensor, extents);
    const Axes& axes = form ? form->shape : tensor.logical;
    if (tensor.present.holds(extents)) return axes.shape(extents);
    return tensor.logical.empty() ? std::vector<std::int64_t>{0}
                                  : without_rows(tensor, axes, extents);
}

/// The dimensions of the tensor as passed in the order of its form.
DimOrder order_in_memory(const TensorField& tensor, const Extents& extents) {
    const Form* form = form_of(tensor, extents);
    if (!form || !tensor.present.holds(extents)) return {};
    DimOrder out{.repeated = static_cast<std::size_t>(form->repeated)};
    if (form->strides.empty()) return out;
    const auto& dims = form->shape.axes();
    out.slowest_first.emplace();
    for (const Axis& axis : form->strides.axes())
        out.slowest_first->push_back(
            static_cast<std::size_t>(std::ranges::find(dims, axis) - dims.begin()));
    return out;
}

/// The number that an element of a numbered tensor has in another case, nothing where that case has no such element.
std::optional<std::int64_t> renumbered(const TensorField& tensor, const Extents& to, const Extents& from, std::int64_t number) {
    const Form* form = form_of(tensor, from);
    if (form != form_of(tensor, to) || (form && form->fixed)) return std::nullopt;
    const auto old_shape = passed_shape(tensor, from), shape = passed_shape(tensor, to);
    if (old_shape.size() != shape.size()) return std::nullopt;
    std::int64_t out = 0, below = 1;
    for (std::size_t k = shape.size(); k-- > 0; number /= old_shape[k]) {
        const std::int64_t index = number % old_shape[k];
        if (index >= shape[k]) return std::nullopt;
        out += index * below;
        below *= shape[k];
    }
    return out;
}

/// Sets what a claim gives another value in a call that is laid out.
void apply_claim(const Claim& claim, const Call& wanted, Call& call) {
    for (std::size_t i = 0; i < call.tensors.size() && claim.shapes; ++i) {
        Tensor& tensor = call.tensors[i];
        if (tensor.name == claim.except) continue;
        tensor.shape = wanted.tensors[i].shape;
        if (tensor.rank == wanted.tensors[i].rank) continue;
        tensor.rank = wanted.tensors[i].rank;  // an earlier edit gave it another
        tensor.lie_alone(strides_for(Layout::dense, tensor.buffer_shape, tensor.order));
    }
    if (!claim.host) return;
    call.arrays = wanted.arrays;
    call.numbers = wanted.numbers;
}

void claim_extents(const Edit& edit, const Claim& claim, Extents& extents) {
    const std::int64_t value = edit.has_value() ? edit.integer() : 0;
    if (value < 0 || value > claim.largest)
        refuse(edit, fmt::format("needs a value in 0..{}", claim.largest));
    if (claim.apply) return claim.apply(extents, value);
    const std::string key = claim.key.substr(claim.key.find('.') + 1);
    if (extents.description().number(key) != 0) return extents.claim(key, value);
    if (value != ATTNCHECK_FLOAT32 && value != ATTNCHECK_FLOAT16 && value != ATTNCHECK_BFLOAT16)
        refuse(edit, "knows the dtypes 0, 1 and 27");
    extents.claim_type(static_cast<ref::Dtype>(value));
}

}  // namespace

Extents extents_of(const Spec& spec) {
    return {*spec.schema, spec.numbers, spec.lists, spec.seed, spec.profile};
}

const Form* form_of(const TensorField& tensor, const Extents& extents) {
    const auto form = std::find_if(tensor.forms.begin(), tensor.forms.end(),
                                   [&](const Form& f) { return f.when.holds(extents); });
    return form == tensor.forms.end() ? nullptr : &*form;
}

const Axes& memory_of(const TensorField& tensor, const Extents& extents) {
    const Form* form = form_of(tensor, extents);
    if (!form) return tensor.logical;
    return form->order.empty() ? form->shape : form->order;
}

Laid laid_out(const TensorField& tensor, const Extents& extents) {
    return {passed_shape(tensor, extents), order_in_memory(tensor, extents)};
}

std::vector<std::vector<std::int64_t>> shapes_of(const Extents& extents) {
    std::vector<std::vector<std::int64_t>> out;
    for (const TensorField& tensor : extents.description().tensors) {
        const bool present = tensor.present.holds(extents);
        if (tensor.logical.empty()) {  // numbered
            const Form* form = form_of(tensor, extents);
            const bool numbered = present && !(form && form->fixed);
            std::int64_t elements = numbered;
            if (numbered)
                for (const std::int64_t extent : passed_shape(tensor, extents)) elements *= extent;
            out.push_back({elements});
        } else {
            out.push_back(present ? tensor.logical.shape(extents)
                                  : without_rows(tensor, tensor.logical, extents));
        }
    }
    return out;
}

Call outline_of(const Extents& extents, std::span<const Layout> layouts) {
    const Description& d = extents.description();
    Call call;
    call.description = &d;
    call.op = d.op;
    call.profile = extents.profile();
    for (std::size_t f = 0; f < d.numbers.size(); ++f)
        call.fields.push_back(extents.scalar(static_cast<int>(f)));
    for (std::size_t l = 0; l < d.lists.size(); ++l)
        call.lists.push_back(extents.lengths(static_cast<int>(l)));
    for (std::size_t i = 0; i < d.tensors.size(); ++i) {
        const TensorField& field = d.tensors[i];
        call.tensors.push_back(make_tensor(
            field.name, field.output, extents.type_of(field),
            passed_shape(field, extents), {}, layouts.empty() ? Layout::dense : layouts[i],
            order_in_memory(field, extents)));
        call.tensors.back().present = field.present.holds(extents);
    }
    lay_in_one_buffer(call, layouts, extents);
    for (const ArrayField& field : d.arrays) {
        const bool present = field.present.holds(extents);
        HostArray array{field.name, present, 0, {}};
        if (present) array.values = field.values(extents);
        array.size = std::ssize(array.values);
        call.arrays.push_back(std::move(array));
    }
    for (const TextField& field : d.texts) call.texts.push_back({field.name, field.value(extents)});
    for (const IntegerField& field : d.integers)
        call.numbers.push_back({field.name, integer_of(field, extents)});
    for (const RealField& field : d.reals) call.reals.push_back({field.name, field.value(extents)});
    return call;
}

Call build_of(const Spec& spec, const std::function<void(const Spec&, Call&)>& fill) {
    const Description& d = *spec.schema;
    Extents extents = extents_of(spec);
    bool claimed = false;
    for (const Edit& edit : spec.edits)
        if (const Claim* claim = d.claim_of(edit); claim && claim->laid_out) {
            claim_extents(edit, *claim, extents);
            claimed = true;
        }
    if (claimed) {
        std::vector<std::vector<std::int64_t>> shapes;
        for (const TensorField& tensor : d.tensors)
            shapes.push_back(passed_shape(tensor, extents));
        require_edits_fit(shapes);
    }
    Call call = outline_of(extents, spec.layouts);
    withhold(withheld_names(d, spec.withheld), call);
    fill(spec, call);
    for (const Edit& edit : spec.edits) {
        const Claim* claim = d.claim_of(edit);
        if (!claim) {
            apply_edit(call, edit);
        } else if (!claim->laid_out) {
            Extents passed = extents;
            claim_extents(edit, *claim, passed);
            apply_claim(*claim, outline_of(passed), call);
        }
    }
    return call;
}

std::vector<std::byte> pack(const Call& call, const std::vector<attncheck_tensor>& tensors,
                            const std::vector<attncheck_int_array>& arrays,
                            const std::vector<const char*>& texts) {
    const Description& d = *call.description;
    if (!d.entry.pack) throw std::logic_error(fmt::format("{} is no entry point", d.op));
    return d.entry.pack([&](void* args) {
        for (std::size_t i = 0; i < tensors.size(); ++i)
            d.tensors[i].argument.put(args, tensors[i]);
        for (std::size_t i = 0; i < arrays.size(); ++i) d.arrays[i].argument.put(args, arrays[i]);
        for (std::size_t i = 0; i < texts.size(); ++i) d.texts[i].argument.put(args, texts[i]);
        for (std::size_t i = 0; i < call.numbers.size(); ++i)
            d.integers[i].argument.put(args, call.numbers[i].value);
        for (std::size_t i = 0; i < call.reals.size(); ++i)
            d.reals[i].argument.put(args, call.reals[i].value);
    });
}

ref::Ruling rule(const Call& call) {
    const Description& d = *call.description;
    const auto fill = [&](void* ruled) {
        for (std::size_t i = 0; i < call.tensors.size(); ++i) {
            const Tensor& t = call.tensors[i];
            d.tensors[i].argument.put_ruled(ruled, {t.present || t.withheld, t.dtype, t.rank, t.shape});
        }
        for (std::size_t i = 0; i < call.arrays.size(); ++i) {
            const HostArray& a = call.arrays[i];
            ref::ArrayArgument argument{a.present, a.size, a.values};
            if (a.present && a.size >= 0)
                argument.values.resize(static_cast<std::size_t>(a.size));
            d.arrays[i].argument.put_ruled(ruled, std::move(argument));
        }
        for (std::size_t i = 0; i < call.texts.size(); ++i)
            d.texts[i].argument.put_ruled(ruled, call.texts[i].value);
        for (std::size_t i = 0; i < call.numbers.size(); ++i)
            if (const auto put = d.integers[i].argument.put_ruled)
                put(ruled, call.numbers[i].value);
        for (std::size_t i = 0; i < call.reals.size(); ++i)
            d.reals[i].argument.put_ruled(ruled, call.reals[i].value);
    };
    return d.entry.rule ? d.entry.rule(fill, call) : ref::Ruling{};
}

std::string describe(const Spec& spec, const std::string& name,
                     const std::vector<std::int64_t>& index) {
    const Description& d = *spec.schema;
    const TensorField& field = at_name(d.tensors, name);
    std::string out;
    const auto add = [&](const std::string& word, std::int64_t position) {
        out += fmt::format("{}{} {}", out.empty() ? "" : ", ", word, position);
    };
    if (!field.words.empty()) {
        for (std::size_t k = 0; k < field.words.size(); ++k) add(field.words[k], index[k]);
        return out;
    }
    const Extents extents = extents_of(spec);
    const Form* form = form_of(field, extents);
    const Axes& shape = form ? form->shape : field.logical;
    std::int64_t number = 0;
    const auto passed = shape.shape(extents);
    for (std::size_t k = 0; k < passed.size(); ++k) number = number * passed[k] + index[k];
    const Place place = memory_of(field, extents).place(extents, number);
    if (place.sequence >= 0 && !place.beyond)
        add(place.padded ? "batch" : "sequence", place.sequence);
    // In the order of the logical index, whatever the order in memory.
    for (const Axis& axis : (field.logical.empty() ? shape : field.logical).axes())
        for (const Factor& factor : axis.factors) {
            if (factor.of == Factor::Of::sequences || factor.of == Factor::Of::number) continue;
            if (factor.of == Factor::Of::rows && place.beyond)
                out += fmt::format("row {} beyond the last sequence", place.of(factor.name));
            else
                add(d.word_of(factor.name), place.of(factor.name));
        }
    return out;
}

std::vector<Tensor> logical_tensors(const Spec& spec, Call call) {
    const Extents extents = extents_of(spec);
    auto shapes = shapes_of(extents);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        Tensor& tensor = call.tensors[i];
        tensor.bits = RowOrder(spec.schema->tensors[i], extents).from_memory(tensor.bits);
        tensor.shape = tensor.buffer_shape = std::move(shapes[i]);
        tensor.rank = static_cast<std::int32_t>(tensor.shape.size());
        tensor.lie_alone(strides_for(Layout::dense, tensor.shape));
    }
    return std::move(call.tensors);
}

void carry_overrides(const Spec& from, Spec& to, const std::vector<int>& kept) {
    to.overrides.clear();
    if (from.overrides.empty()) return;
    const Extents before = extents_of(from), after = extents_of(to);
    const auto old_shapes = shapes_of(before), shapes = shapes_of(after);
    for (const auto& [old_element, value] : from.overrides) {
        ElementRef element = old_element;
        const auto index = static_cast<std::size_t>(element.tensor);
        const TensorField& tensor = to.schema->tensors[index];
        if (tensor.logical.empty() && element.index[0] != 0 && shapes[index] != old_shapes[index]) {
            if (!is_inside(element, old_shapes[index])) continue;
            const auto number = renumbered(tensor, after, before, element.index[0]);
            if (!number) continue;
            element.index[0] = *number;
        }
        if (const int rows = rows_of(tensor.logical);
            rows >= 0 && !follow_sequence(element, before.lengths(rows), after.lengths(rows), kept))
            continue;
        if (is_inside(element, shapes[index])) to.overrides[element] = value;
    }
}

}  // namespace attncheck::properties
