#include "properties/cli/judge_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "properties/operators/attention/case.h"
#include "properties/operators/attention_decode/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

const GivenArguments::Tensor* tensor_of_rank(const GivenCall& given, const char* name, std::size_t rank) {
    const auto it = given.arguments.tensors.find(name);
    return it == given.arguments.tensors.end() || it->second.shape.size() != rank ? nullptr : &it->second;
}

const std::vector<Int>* array_of(const GivenCall& given, const char* name) {
    const auto it = given.arguments.arrays.find(name);
    return it == given.arguments.arrays.end() ? nullptr : &it->second;
}

bool has_integer(const Description& description, const char* name) {
    return std::ranges::any_of(description.integers, [&](const auto& one) { return one.name == name; });
}

GivenCall with_all_keys(const GivenCall& given) {
    const auto* const key = tensor_of_rank(given, "key", 4);
    const auto* const lengths = array_of(given, "kv_length");
    if (!key || !lengths || std::ssize(*lengths) != key->shape[0]) return given;
    const Int keys = key->shape[1];
    if (std::ranges::any_of(*lengths, [&](Int length) { return length < 0 || length > keys; }))
        throw std::invalid_argument(
            fmt::format("kv_length is [{}], allowed: 0 to {}", fmt::join(*lengths, ","), keys));
    GivenCall out = given;
    out.arguments.arrays["kv_length"].assign(lengths->size(), keys);
    return out;
}

/// Pages of a sequence in the cache, by its block table. Throws std::invalid_argument.
std::vector<Int> pages_of(const Bits& table, Int columns, std::size_t b, Int length, Int page_size, Int pages) {
    const Int used = (length + page_size - 1) / page_size;
    if (length < 0 || used > columns)
        throw std::invalid_argument(fmt::format("kv_length of sequence {} is {}, allowed: 0 to {}, {} pages of {}", b,
                                                length, columns * page_size, columns, page_size));
    std::vector<Int> out;
    for (Int p = 0; p < used; ++p) {
        const auto page = static_cast<std::int32_t>(table[b * static_cast<std::size_t>(columns) + static_cast<std::size_t>(p)]);
        if (page < 0 || page >= pages)
            throw std::invalid_argument(
                fmt::format("block_table[{},{}] is {}, allowed: 0 to {}", b, p, page, pages - 1));
        out.push_back(page);
    }
    return out;
}

GivenCall on_own_pages(const GivenCall& given) {
    const auto *const keys = tensor_of_rank(given, "key_cache", 4), *const values = tensor_of_rank(given, "value_cache", 4),
               *const table = tensor_of_rank(given, "block_table", 2);
    const auto* const lengths = array_of(given, "kv_length");
    if (!keys || !values || !table || !lengths || table->dtype != ref::Dtype::int32 ||
        table->shape[0] != std::ssize(*lengths) || keys->shape[0] != values->shape[0] || keys->shape[1] != values->shape[1] ||
        keys->shape[1] < 1)
        return given;
    std::vector<Int> pages;
    Int most = 0;
    std::vector<std::vector<Int>> rows;
    for (std::size_t b = 0; b < lengths->size(); ++b) {
        rows.push_back(pages_of(given.bits.at("block_table"), table->shape[1], b, (*lengths)[b], keys->shape[1], keys->shape[0]));
        pages.insert(pages.end(), rows.back().begin(), rows.back().end());
        most = std::max(most, std::ssize(rows.back()));
    }
    GivenCall out = given;
    for (const char* name : {"key_cache", "value_cache"}) {
        GivenArguments::Tensor& cache = out.arguments.tensors[name];
        const auto page = static_cast<std::ptrdiff_t>(cache.shape[1] * cache.shape[2] * cache.shape[3]);
        const Bits& from = given.bits.at(name);
        Bits to;
        to.reserve(pages.size() * static_cast<std::size_t>(page));
        for (const Int number : pages)
            to.insert(to.end(), from.begin() + number * page, from.begin() + (number + 1) * page);
        cache.shape[0] = std::ssize(pages);
        out.bits[name] = std::move(to);
    }
    Bits own;
    Int next = 0;
    for (const auto& row : rows)
        for (Int p = 0; p < most; ++p) own.push_back(p < std::ssize(row) ? static_cast<std::uint32_t>(next++) : ~0u);
    out.arguments.tensors["block_table"].shape[1] = most;
    out.bits["block_table"] = std::move(own);
    return out;
}

}  // namespace

bool is_neutral(const Description& description) {
    return &description == &neutral_description(false) || &description == &neutral_description(true);
}

GivenCall with_usual_numbers(const Description& description, const GivenCall& given) {
    if (!is_neutral(description) && &description != &decode_description()) return given;
    GivenCall out = given;
    const auto query = given.arguments.tensors.find("query");
    const auto& shape = query == given.arguments.tensors.end() ? std::vector<Int>() : query->second.shape;
    if (!shape.empty() && shape.back() > 0)
        out.arguments.reals.try_emplace("scale", 1 / std::sqrt(static_cast<double>(shape.back())));
    for (const RealField& real : description.reals)
        if (real.name == "softcap") out.arguments.reals.try_emplace(real.name, 0.0);
    for (const auto& [name, usual] : {std::pair("window_left", Int{-1}), {"window_right", Int{-1}}, {"align", Int{1}}})
        if (has_integer(description, name)) out.arguments.integers.try_emplace(name, usual);
    return out;
}

GivenCall as_a_case(const Description& description, const GivenCall& given) {
    if (is_neutral(description)) return with_all_keys(given);
    return &description == &decode_description() ? on_own_pages(given) : given;
}

AttentionProblem neutral_given(const Spec& spec, const GivenCall& given) {
    NeutralParts parts = neutral_shape_parts(spec);
    ref::NeutralAttentionShape& s = parts.shape;
    const auto bits_of = [&](const char* name) {
        const auto it = given.bits.find(name);
        return it == given.bits.end() ? Bits{} : it->second;
    };
    parts.bias = bits_of("bias");
    parts.sink = bits_of("sink");
    const Bits mask = bits_of("mask");
    s.mask.values.resize(mask.size());
    std::ranges::transform(mask, s.mask.values.begin(), [](std::uint32_t bit) { return bit != 0; });
    if (const auto* const lengths = array_of(given, "kv_length")) s.kv_length = *lengths;
    parts.take_pairs();
    return neutral_problem(std::move(parts));
}

}  // namespace attncheck::properties
