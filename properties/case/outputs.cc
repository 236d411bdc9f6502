#include "properties/case/outputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>
#include <stdexcept>

#include "properties/case/call.h"

namespace attncheck::properties {

std::uint64_t withheld_bit(const Description& description, std::string_view output) {
    return std::uint64_t{1} << description.tensor(output);
}

std::uint64_t withheld_by(const Description& description, std::string_view given) {
    std::uint64_t withheld = 0;
    std::vector<std::string_view> known;
    for (const TensorField& tensor : description.tensors) {
        if (tensor.output) known.emplace_back(tensor.name);
        if (tensor.optional) withheld |= withheld_bit(description, tensor.name);
    }
    std::vector<std::string_view> names;
    for (const auto part : std::views::split(given, ',')) names.emplace_back(part.begin(), part.end());
    if (names.empty()) names.emplace_back();
    for (const std::string_view name : names) {
        if (std::ranges::find(known, name) == known.end())
            throw std::invalid_argument(fmt::format("unknown output '{}' of {}, known: {}", name,
                                                    description.op, fmt::join(known, " ")));
        withheld &= ~withheld_bit(description, name);
    }
    return withheld;
}

std::string given_outputs(const Description& description, std::uint64_t withheld) {
    std::vector<std::string_view> given;
    for (std::size_t i = 0; i < description.tensors.size(); ++i)
        if (description.tensors[i].output && (withheld >> i & 1) == 0)
            given.emplace_back(description.tensors[i].name);
    return fmt::format("{}", fmt::join(given, ","));
}

std::vector<std::string> withheld_names(const Description& description, std::uint64_t withheld) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < description.tensors.size(); ++i)
        if ((withheld >> i & 1) != 0) names.push_back(description.tensors[i].name);
    return names;
}

void withhold(const std::vector<std::string>& outputs, Call& call) {
    for (Tensor& tensor : call.tensors) {
        if (std::ranges::find(outputs, tensor.name) == outputs.end()) continue;
        tensor.withheld = tensor.present;
        tensor.present = false;
    }
}

}  // namespace attncheck::properties
