#include "properties/cli/emitted_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "properties/case/derived.h"
#include "properties/case/row_order.h"
#include "properties/cli/command.h"
#include "properties/laws/attention_operator.h"
#include "properties/operators/nsa_compress/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

constexpr Int kMostPairs = 200'000;  ///< of a row and a key: a few MiB of program
constexpr std::size_t kMostElements = 1 << 20;

void check_size(const Call& call) {
    std::size_t elements = 0;
    for (const Tensor& tensor : call.tensors) {
        if (!tensor.shared_bytes) elements += tensor.elements();
        if (elements > kMostElements)
            throw UsageError(fmt::format("the case has more than {} elements, too many for a program; "
                                         "take a smaller one", kMostElements));
    }
}

void add_bounds(const ExpectedOutputs& expected, EmittedCase& out) {
    for (const auto& [name, tensor] : expected) {
        std::vector<double> bound = tensor.bound;
        for (std::size_t k = 0; k < bound.size(); ++k)
            if (tensor.overflow[k] != ref::Overflow::none)
                bound[k] = std::numeric_limits<double>::infinity();
        out.bounds.emplace_back(name, std::move(bound));
    }
}

/// The letter of the formulas; none: it is in none of them.
const char* letter_of(Role role) {
    switch (role) {
        case Role::query:
            return "Q";
        case Role::key:
            return "K";
        case Role::value:
            return "V";
        case Role::output:
            return "O";
        case Role::output_grad:
            return "dO";
        case Role::query_grad:
            return "dQ";
        case Role::key_grad:
            return "dK";
        case Role::value_grad:
            return "dV";
        case Role::row_max:
            return "top";
        case Role::row_sum:
            return "total";
        case Role::lse:
            return "lse";
        default:
            return nullptr;
    }
}

/// Rows of the inputs that have a letter.
void add_inputs(const Spec& spec, const Call& call, EmittedAttention& out) {
    const Extents extents = extents_of(spec);
    const auto shapes = shapes_of(extents);
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const TensorField& field = spec.schema->tensors[i];
        const char* letter = letter_of(field.role);
        if (field.output || !call.tensors[i].present || letter == nullptr) continue;
        const auto& shape = shapes[i];
        const Int width = shape.size() > 2 ? shape[2] : 1;
        const RowOrder order(field, extents);
        // Of a statistic in several lanes the first counts.
        EmittedRows rows{field.name, is_statistic(field.role) ? 1 : width, {}};
        for (Int number = 0; number < shape[0] * shape[1]; ++number)
            rows.first.push_back((order.moves() ? order(number) : number) * width);
        out.inputs[letter].push_back(std::move(rows));
    }
}

void add_outputs(const AttentionProblem& problem, EmittedAttention& out) {
    for (const AttentionOutput& output : problem.outputs()) {
        if (output.is_list()) continue;
        if (output.is_sum) {
            out.sums.push_back(output.name);
            continue;
        }
        const Int count =
            (output.of_keys ? problem.shape.kv_rows : problem.shape.query_rows) * output.heads;
        for (const OutputPart& part : output.parts) {
            EmittedRows rows{part.tensor, part.width, {}};
            for (Int number = 0; number < count; ++number)
                rows.first.push_back(static_cast<Int>(output.first_element(part, number)));
            out.outputs[letter_of(output.role)].push_back(std::move(rows));
        }
    }
}

void add_columns(const AttentionProblem& problem, EmittedAttention& out) {
    Int pairs = 0;
    for (Int t = 0; t < problem.shape.query_rows; ++t)
        for (Int n = 0; n < problem.shape.query_heads; ++n) {
            EmittedAttention::Row row{t * problem.shape.query_heads + n, {}};
            if (!problem.columns(t, n, row.columns)) continue;  // belongs to no sequence: zeros
            pairs += std::ssize(row.columns);
            if (pairs > kMostPairs)
                throw UsageError(fmt::format("the case has more than {} pairs of a query and a key, too "
                                             "many for a program; take a smaller one", kMostPairs));
            for (const ref::KeyColumn& column : row.columns) out.has_bias |= column.bias != 0;
            out.rows.push_back(std::move(row));
        }
}

EmittedAttention emitted_attention(const Spec& spec, const Call& call,
                                   const AttentionProblem& problem) {
    EmittedAttention out;
    out.gradient = problem.gradient;
    out.statistics = problem.statistics;
    out.shape = problem.shape;
    // A rope stands behind the head dim in every row.
    out.scale = problem.scale;
    out.softcap = problem.softcap;
    out.keep_prob = problem.keep_prob;
    out.bias_elements = static_cast<Int>(problem.bias_elements);
    add_inputs(spec, call, out);
    add_outputs(problem, out);
    add_columns(problem, out);
    return out;
}

}  // namespace

bool EmittedRows::is_plain() const {
    for (std::size_t row = 0; row < first.size(); ++row)
        if (first[row] != static_cast<Int>(row) * width) return false;
    return true;
}

bool is_laid_out(const Tensor& tensor) {
    if (!tensor.present || tensor.output || tensor.elements() == 0) return false;
    Int stride = 1;
    for (std::size_t i = tensor.shape.size(); i-- > 0; stride *= tensor.shape[i])
        if (tensor.shape[i] > 1 && tensor.strides[i] != stride) return true;
    return false;
}

bool is_far(const Tensor& tensor) {
    constexpr Int kMost = 1 << 24;
    Int extent = 1;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) extent += std::abs(tensor.strides[i]) * (tensor.shape[i] - 1);
    return extent > kMost;
}

std::string left_out_text(const EmittedCase& made, bool has_strides) {
    std::vector<std::string> names;
    for (const Tensor& tensor : made.call.tensors)
        if (is_laid_out(tensor) && (!has_strides || is_far(tensor))) names.push_back(tensor.name);
    if (names.empty()) return {};
    return fmt::format(". Contiguous here and not in the case, which may be why a kernel fails there: {}", fmt::join(names, ", "));
}

const std::vector<double>* EmittedCase::bound_of(const std::string& tensor) const {
    const auto it = std::ranges::find(bounds, tensor, &decltype(bounds)::value_type::first);
    return it == bounds.end() ? nullptr : &it->second;
}

std::vector<const Tensor*> EmittedCase::inputs() const {
    std::vector<const Tensor*> out;
    for (const Tensor& tensor : call.tensors)
        if (!tensor.output && tensor.present) out.push_back(&tensor);
    return out;
}

std::vector<const Tensor*> EmittedCase::outputs() const {
    std::vector<const Tensor*> out;
    for (const Tensor& tensor : call.tensors)
        if (tensor.output && tensor.present && !tensor.withheld) out.push_back(&tensor);
    return out;
}

EmittedCase emitted_case(const Operator& op, const Spec& spec, const ref::RoundingClass& rounding) {
    if (!op.schema().entry.pack)
        throw UsageError(op.name() + " has no call of its own: it chains other operators");
    if (!spec.edits.empty()) throw UsageError("the case has edited arguments: there is nothing to compute");
    EmittedCase out{.line = print(spec), .rounding = ref::print_rounding_class(rounding), .call = op.build(spec),
                    .bounds = {}, .attention = {}, .compression = {}};
    check_size(out.call);
    if (const AttentionOperator* const attention = op.attention()) {
        const AttentionProblem problem = attention->problem(spec);
        out.attention = emitted_attention(spec, out.call, problem);
    } else if (op.name() == "nsa_compress" || op.name() == "nsa_compress_grad") {
        const CompressProblem problem(spec);
        out.compression = {problem.gradient, problem.shape.block, {}};
        ref::for_each_block(problem.shape, [&](Int, Int first_token) {
            out.compression->first_token.push_back(first_token);
        });
    }
    const std::optional<ExpectedOutputs> expected = op.expected(spec, rounding);
    if (!expected) throw UsageError(op.name() + " has no program: its expectation is not known here");
    out.is_merge = op.name() == "attention_merge";
    if (!out.attention && !out.compression && !out.is_merge)
        for (const auto& [name, tensor] : *expected) out.values.emplace_back(name, tensor.value);
    add_bounds(*expected, out);
    return out;
}

}  // namespace attncheck::properties
