#include "properties/cli/emitted_case.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "properties/case/derived.h"
#include "properties/case/row_order.h"
#include "properties/cli/command.h"
#include "properties/laws/attention_operator.h"
#include "properties/operators/attention_merge/problem.h"
#include "properties/operators/nsa_compress/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
using Json = nlohmann::ordered_json;

constexpr Int kMostPairs = 200'000;     ///< of a row and a key: a few MiB of program
constexpr std::size_t kMostElements = 1 << 20;

std::string base64(const std::vector<unsigned char>& bytes) {
    constexpr const char* kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (std::size_t k = 0; k < bytes.size(); k += 3) {
        const auto byte = [&](std::size_t i) {
            return i < bytes.size() ? std::uint32_t{bytes[i]} : 0;
        };
        const std::uint32_t three = byte(k) << 16 | byte(k + 1) << 8 | byte(k + 2);
        for (int shift = 18; shift >= 0; shift -= 6) out += kDigits[three >> shift & 63];
    }
    const std::size_t pad = (3 - bytes.size() % 3) % 3;
    std::fill_n(out.end() - static_cast<std::ptrdiff_t>(pad), pad, '=');
    return out;
}

std::string packed_bytes(const Tensor& tensor) {
    const std::size_t size = tensor.element_size(), total = tensor.elements();
    std::vector<unsigned char> bytes(total * size);
    for (std::size_t k = 0; k < total; ++k) std::memcpy(&bytes[k * size], &tensor.bits[k], size);
    return base64(bytes);
}

std::string doubles(const std::vector<double>& values) {
    std::vector<unsigned char> bytes(values.size() * sizeof(double));
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return base64(bytes);
}

void add_arguments(const Call& call, Json& out) {
    Json arguments = Json::object(), outputs = Json::object();
    std::size_t elements = 0;
    for (const Tensor& tensor : call.tensors) {
        const Json type = ref::dtype_name(tensor.type());
        if (!tensor.shared_bytes) elements += tensor.elements();
        if (elements > kMostElements)
            throw UsageError(fmt::format("the case has more than {} elements, too many for a program; "
                                         "take a smaller one", kMostElements));
        if (tensor.output && tensor.present)
            outputs[tensor.name] = {type, tensor.shape};
        else if (!tensor.output)
            arguments[tensor.name] =
                !tensor.present       ? Json()
                : tensor.shared_bytes ? Json{type, tensor.shape, nullptr}
                                      : Json{type, tensor.shape, packed_bytes(tensor)};
    }
    for (const HostArray& array : call.arrays)
        arguments[array.name] = array.present ? Json(array.values) : Json();
    for (const Text& text : call.texts)
        arguments[text.name] = text.value ? Json(*text.value) : Json();
    for (const Number& number : call.numbers) arguments[number.name] = number.value;
    for (const Real& real : call.reals) arguments[real.name] = real.value;
    out["arguments"] = std::move(arguments);
    out["outputs"] = std::move(outputs);
}

/// Bounds of what is compared; infinite where overflow excuses an element.
void add_bounds(const ExpectedOutputs& expected, bool with_values, Json& out) {
    Json bounds = Json::object(), values = Json::object();
    for (const auto& [name, tensor] : expected) {
        std::vector<double> bound = tensor.bound;
        for (std::size_t k = 0; k < bound.size(); ++k)
            if (tensor.overflow[k] != ref::Overflow::none)
                bound[k] = std::numeric_limits<double>::infinity();
        bounds[name] = doubles(bound);
        values[name] = doubles(tensor.value);
    }
    out["bound"] = std::move(bounds);
    if (with_values) out["want"] = std::move(values);
}

const char* letter_of(Role role) {
    switch (role) {
        case Role::query:
            return "q";
        case Role::key:
            return "k";
        case Role::value:
            return "v";
        case Role::output_grad:
            return "do";
        case Role::output:
            return "o";
        default:
            return nullptr;
    }
}

/// Where the rows of inputs and outputs lie, and which tensors are which letter.
void add_rows(const Spec& spec, const Call& call, const AttentionProblem& problem, Json& out) {
    const Extents extents = extents_of(spec);
    const auto shapes = shapes_of(extents);
    Json rows = Json::object(), parts = Json::object();
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const TensorField& field = spec.schema->tensors[i];
        if (field.output || !call.tensors[i].present) continue;
        const char* letter = letter_of(field.role);
        if (letter == nullptr && field.name.starts_with("softmax_")) letter = field.name.c_str();
        if (letter == nullptr && field.name == "lse") letter = "lse";
        if (letter == nullptr) continue;
        const auto& shape = shapes[i];
        const Int heads = shape[1], width = shape.size() > 2 ? shape[2] : 1;
        const RowOrder order(field, extents);
        std::vector<Int> first;
        for (Int number = 0; number < shape[0] * heads; ++number)
            first.push_back((order.moves() ? order(number) : number) * width);
        rows[field.name] = {heads, width, first};
        parts[letter].push_back(field.name);
    }
    for (const AttentionOutput& output : problem.outputs()) {
        if (output.is_list()) continue;
        const Int count = (output.of_keys ? problem.shape.kv_rows : problem.shape.query_rows) * output.heads;
        for (const OutputPart& part : output.parts) {
            std::vector<Int> first;
            for (Int number = 0; number < count; ++number)
                first.push_back(static_cast<Int>(output.first_element(part, number)));
            rows[part.tensor] = {output.heads, part.width, first};
            parts[output.name].push_back(part.tensor);
        }
    }
    out["rows"] = std::move(rows);
    out["parts"] = std::move(parts);
}

void add_columns(const AttentionProblem& problem, Json& out) {
    Json columns = Json::array();
    Int pairs = 0;
    for (Int t = 0; t < problem.shape.query_rows; ++t)
        for (Int n = 0; n < problem.shape.query_heads; ++n) {
            std::vector<ref::KeyColumn> seen;
            if (!problem.columns(t, n, seen)) continue;  // belongs to no sequence: zeros
            pairs += std::ssize(seen);
            if (pairs > kMostPairs)
                throw UsageError(fmt::format("the case has more than {} pairs of a query and a key, too "
                                             "many for a program; take a smaller one", kMostPairs));
            std::vector<Int> keys;
            std::vector<double> bias, gain;
            for (const ref::KeyColumn& column : seen) {
                keys.push_back(column.key);
                bias.push_back(column.bias);
                gain.push_back(column.kept ? 1 / problem.keep_prob : 0);
            }
            columns.push_back({t, n, keys, bias, gain});
        }
    out["columns"] = std::move(columns);
    out["scale"] = problem.scale;
    out["group"] = problem.shape.group();
    out["keys"] = {problem.shape.kv_rows, problem.shape.kv_heads};
    out["queries"] = {problem.shape.query_rows, problem.shape.query_heads};
}

/// The expectation of an operator that is no attention.
ExpectedOutputs expected_elsewhere(const Operator& op, const Spec& spec,
                                   const ref::RoundingClass& rounding) {
    if (op.name() == "attention_merge") {
        const MergeProblem problem(spec);
        return outputs_of(problem.expected(rounding), problem.gives_lse);
    }
    if (op.name().starts_with("nsa_compress")) return CompressProblem(spec).expected(rounding);
    throw UsageError(op.name() + " has no program: its expectation is not known here");
}

}  // namespace

Json emitted_case(const Operator& op, const Spec& spec) {
    if (!op.schema().entry.pack)
        throw UsageError(op.name() + " has no call of its own: it chains other operators");
    if (!spec.edits.empty()) throw UsageError("the case has edited arguments: there is nothing to compute");
    const Call call = op.build(spec);
    Json out;
    out["case"] = print(spec);
    add_arguments(call, out);
    const ref::RoundingClass rounding = ref::parse_rounding_class("default");
    if (const AttentionOperator* const attention = op.attention()) {
        const AttentionProblem problem = attention->problem(spec);
        ExpectedOutputs expected = expected_of(problem, rounding);
        add_rows(spec, call, problem, out);
        add_columns(problem, out);
        add_bounds(in_call_order(problem, expected), false, out);
        out["gradient"] = problem.gradient;
    } else {
        add_bounds(expected_elsewhere(op, spec, rounding), true, out);
    }
    return out;
}

}  // namespace attncheck::properties
