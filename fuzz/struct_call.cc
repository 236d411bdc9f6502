#include "fuzz/struct_call.h"

#include <algorithm>
#include <stdexcept>

#include "properties/operators/catalogue.h"

namespace attncheck::fuzz {
namespace {

const properties::Description& description_of(const char* op) {
    return properties::find_operator(op)->schema();
}

const impl::EntryPoint* entry_of(const properties::Description& description) {
    return &*std::ranges::find(impl::entry_points(), std::string_view(description.op),
                               &impl::EntryPoint::name);
}

/// For each of the forward's arguments the place of the gradient's.
template <class Field>
std::vector<std::size_t> places(const std::vector<Field>& forward, const std::vector<Field>& held,
                                const std::map<std::string, std::string>& renamed) {
    std::vector<std::size_t> out;
    for (const Field& field : forward) {
        const auto other = renamed.find(field.name);
        const auto at = std::ranges::find(
            held, other == renamed.end() ? field.name : other->second, &Field::name);
        if (at == held.end()) throw std::logic_error("the gradient has no " + field.name);
        out.push_back(static_cast<std::size_t>(at - held.begin()));
    }
    return out;
}

template <class Field>
void copy(const std::vector<Field>& forward, const std::vector<Field>& held,
          const std::vector<std::size_t>& places, const void* from, void* to) {
    for (std::size_t i = 0; i < forward.size(); ++i)
        forward[i].argument.put(to, held[places[i]].argument.get(from));
}

template <class Field, class Value>
void list(const std::vector<Field>& fields, const void* held, std::vector<Value>& out) {
    for (const Field& field : fields) out.push_back(field.argument.get(held));
}

}  // namespace

Family::Family(const char* forward, const char* gradient,
               const std::map<std::string, std::string>& renamed)
    : forward_(description_of(forward)),
      held_(gradient ? description_of(gradient) : forward_),
      entries_{entry_of(held_), entry_of(forward_)},
      tensors_(places(forward_.tensors, held_.tensors, renamed)),
      arrays_(places(forward_.arrays, held_.arrays, renamed)),
      texts_(places(forward_.texts, held_.texts, renamed)),
      integers_(places(forward_.integers, held_.integers, renamed)),
      reals_(places(forward_.reals, held_.reals, renamed)) {}

std::vector<std::byte> Family::forward_of(const void* held) const {
    return forward_.entry.pack([&](void* to) {
        copy(forward_.tensors, held_.tensors, tensors_, held, to);
        copy(forward_.arrays, held_.arrays, arrays_, held, to);
        copy(forward_.texts, held_.texts, texts_, held, to);
        copy(forward_.integers, held_.integers, integers_, held, to);
        copy(forward_.reals, held_.reals, reals_, held, to);
    });
}

const properties::IntegerField& Family::inert() const {
    return *std::ranges::find(held_.integers, true, &properties::IntegerField::inert);
}

impl::MaybeRejection StructCall::rejection() const {
    const impl::EntryPoint& entry = family_.entry(forward_);
    return forward_ ? entry.validate(family_.forward_of(held_).data()) : entry.validate(held_);
}

int StructCall::enter() const {
    const impl::EntryPoint& entry = family_.entry(forward_);
    return forward_ ? entry.enter(family_.forward_of(held_).data()) : entry.enter(held_);
}

ArgumentList StructCall::arguments() const {
    const properties::Description& d = family_.description(false);
    ArgumentList all;
    list(d.tensors, held_, all.tensors);
    list(d.arrays, held_, all.arrays);
    list(d.integers, held_, all.integers);
    list(d.reals, held_, all.reals);
    list(d.texts, held_, all.texts);
    return all;
}

void StructCall::fill(void* ruled) const {
    const std::vector<std::byte> forward =
        forward_ ? family_.forward_of(held_) : std::vector<std::byte>();
    const void* const args = forward_ ? forward.data() : held_;
    const properties::Description& d = family_.description(forward_);
    for (const auto& field : d.tensors)
        field.argument.put_ruled(ruled, tensor_argument(field.argument.get(args)));
    for (const auto& field : d.arrays)
        field.argument.put_ruled(ruled, backed_.find(field.name)->second);
    for (const auto& field : d.texts)
        field.argument.put_ruled(ruled, text_argument(field.argument.get(args)));
    for (const auto& field : d.integers)
        if (field.argument.put_ruled)
            field.argument.put_ruled(ruled, field.argument.get(args));
    for (const auto& field : d.reals) field.argument.put_ruled(ruled, field.argument.get(args));
}

}  // namespace attncheck::fuzz
