#include "properties/cli/entry_table.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "properties/operators/catalogue.h"

namespace attncheck::properties {
namespace {

using Json = nlohmann::ordered_json;

/// The first byte of a struct that `put` sets, all of whose bytes it must set to other than 0.
std::size_t first_set(const EntryPoint& entry, const EntryPoint::Fill& put) {
    const std::vector<std::byte> bytes = entry.pack(put);
    const auto set = std::ranges::find_if(bytes, [](std::byte b) { return b != std::byte{0}; });
    return static_cast<std::size_t>(set - bytes.begin());
}

template <class Value>
Value all_ones() {
    Value value;
    std::memset(static_cast<void*>(&value), 0xff, sizeof value);
    return value;
}

class EntryFields {
public:
    explicit EntryFields(const EntryPoint& entry) : entry_(entry) {}

    template <class Given, class Ruled>
    Json& add(const char* kind, const std::string& name, const Argument<Given, Ruled>& argument) {
        const std::size_t offset = first_set(
            entry_, [&](void* to) { argument.put(to, all_ones<Given>()); });
        list_.push_back({{"name", name}, {"kind", kind}, {"offset", offset}});
        return list_.back();
    }

    Json in_order() {
        std::ranges::stable_sort(list_, {}, [](const Json& one) { return one["offset"].get<int>(); });
        return list_;
    }

private:
    const EntryPoint& entry_;
    std::vector<Json> list_;
};

Json describe(const Description& d) {
    EntryFields arguments(d.entry);
    for (const TensorField& tensor : d.tensors) {
        Json& one = arguments.add("tensor", tensor.name, tensor.argument);
        one["output"] = tensor.output;
        one["optional"] = !tensor.present.empty();
        one["derived"] = tensor.derived;
    }
    for (const ArrayField& array : d.arrays)
        arguments.add("array", array.name, array.argument)["optional"] = !array.present.empty();
    for (const TextField& text : d.texts) arguments.add("text", text.name, text.argument);
    for (const IntegerField& number : d.integers)
        arguments.add("integer", number.name, number.argument);
    for (const RealField& real : d.reals) arguments.add("real", real.name, real.argument);
    return {{"bytes", d.entry.pack([](void*) {}).size()}, {"arguments", arguments.in_order()}};
}

}  // namespace

std::string entry_table_json() {
    Json table = Json::object();
    for (const auto& op : operators())
        if (op->schema().entry.pack) table[op->name()] = describe(op->schema());
    return table.dump();
}

std::string catalogue_json(const std::vector<std::string>& ops) {
    Json table = Json::object();
    for (const auto& op : operators()) {
        if (!ops.empty() && std::ranges::find(ops, op->name()) == ops.end()) continue;
        Json one = op->schema().entry.pack ? describe(op->schema()) : Json::object();
        one["properties"] = Json::array();
        for (const Property& property : op->properties())
            one["properties"].push_back({{"name", property.name},
                                         {"summary", property.summary},
                                         {"validation", property.validation},
                                         {"large", property.large}});
        table[op->name()] = one;
    }
    return table.dump(1);
}

}  // namespace attncheck::properties
