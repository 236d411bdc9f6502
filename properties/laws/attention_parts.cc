#include "properties/laws/attention_parts.h"

#include <algorithm>

#include "properties/case/attention_data.h"
#include "properties/case/derived.h"
#include "properties/case/one_buffer.h"
#include "properties/case/row_order.h"
#include "properties/case/values.h"
#include "properties/laws/relation_checks.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// The numbers that a tensor holds; nullptr: none of the problem's, or statistics.
Bits AttentionValues::*bits_of(Role role) {
    switch (role) {
        case Role::query:
            return &AttentionValues::query;
        case Role::key:
            return &AttentionValues::key;
        case Role::value:
            return &AttentionValues::value;
        case Role::output_grad:
            return &AttentionValues::output_grad;
        case Role::output:
            return &AttentionValues::output;
        default:
            return nullptr;
    }
}

/// Every tensor of rows with its width: rows of queries, and rows of keys.
template <class OfQueries, class OfKeys>
void change_rows(AttentionValues& values, const ref::AttentionShape& shape,
                 const OfQueries& of_queries, const OfKeys& of_keys) {
    of_queries(values.query, shape.head_dim);
    of_keys(values.key, shape.head_dim);
    of_keys(values.value, shape.value_dim);
    of_queries(values.output_grad, shape.value_dim);
    of_queries(values.output, shape.value_dim);
    of_queries(values.row_max, 1);
    of_queries(values.row_sum, 1);
}

/// Every statistic, in all its lanes.
Bits in_lanes(const std::vector<float>& rows, Int lanes) {
    Bits bits;
    bits.reserve(rows.size() * static_cast<std::size_t>(lanes));
    for (const float value : rows)
        bits.insert(bits.end(), static_cast<std::size_t>(lanes),
                    ref::encode(ref::Dtype::fp32, value));
    return bits;
}

}  // namespace

MaskTensor MaskTensor::of_kind(std::int64_t kind) {
    MaskTensor mask;
    mask.present = static_cast<MaskKind>(kind) != MaskKind::absent;
    if (static_cast<MaskKind>(kind) == MaskKind::uint8) mask.dtype = ref::Dtype::uint8;
    return mask;
}

std::int64_t MaskTensor::kind() const {
    if (!present) return static_cast<std::int64_t>(MaskKind::absent);
    return static_cast<std::int64_t>(dtype == ref::Dtype::uint8 ? MaskKind::uint8
                                                                : MaskKind::boolean);
}

std::vector<std::uint8_t> MaskTensor::contents() const {
    if (!present) return {};
    std::vector<std::uint8_t> out(bits.size());
    std::ranges::transform(bits, out.begin(),
                           [](std::uint32_t b) { return static_cast<std::uint8_t>(b != 0); });
    return out;
}

void MaskTensor::crop(std::int64_t rows, std::int64_t columns) {
    if (!present) return;
    Bits kept;
    for (std::int64_t row = 0; row < rows; ++row) {
        const auto first = bits.begin() + row * shape[1];
        kept.insert(kept.end(), first, first + columns);
    }
    bits = std::move(kept);
    shape = {rows, columns};
}

void take_extents(const Extents& extents, ref::PackedShape& shape) {
    const auto& lists = extents.description().lists;
    shape.query_lengths = extents.lengths(lists[0].key);
    shape.kv_lengths = extents.lengths(lists[1].key);
    shape.total_queries = extents.rows(lists[0].key);
    shape.total_keys = extents.rows(lists[1].key);
    shape.kv_heads = extents["kv_heads"];
    shape.query_heads = extents["query_heads"];
    shape.head_dim = extents["dim"];
    shape.value_dim = extents["value_dim"];
}

void give_heads(const ref::AttentionShape& shape, Spec& spec) {
    spec.set("kv_heads", shape.kv_heads);
    spec.set("group", shape.query_heads / std::max<Int>(shape.kv_heads, 1));
    spec.set("dim", shape.head_dim);
    spec.set("value_dim", shape.value_dim);
}

void give_extents(const ref::PackedShape& shape, Spec& spec) {
    spec.lists = {shape.query_lengths, shape.kv_lengths};
    const Int rows[] = {shape.total_queries, shape.total_keys};
    for (std::size_t list = 0; list < 2; ++list)
        if (const auto& beyond = spec.schema->lists[list].beyond; !beyond.empty())
            spec.set(beyond, rows[list] - total(spec.lists[list]));
    give_heads(shape.dense(), spec);
}

Bits columns_of(const Bits& rows, Int all, Int begin, Int width) {
    Bits out;
    for (auto row = rows.begin(); row != rows.end(); row += all)
        out.insert(out.end(), row + begin, row + begin + width);
    return out;
}

Spec spec_with(const std::vector<std::int64_t>& fields, const Description& description) {
    Spec spec(description);
    std::copy_n(fields.begin(), std::min(fields.size(), spec.numbers.size()), spec.numbers.begin());
    return spec;
}

bool withholds(const AttentionProblem& problem, std::string_view output) {
    return std::ranges::find(problem.withheld, output) != problem.withheld.end();
}

void place_rows(std::vector<AttentionOutput>& outputs, const Extents& extents) {
    const Description& d = extents.description();
    for (AttentionOutput& output : outputs) {
        const auto tensor = static_cast<std::size_t>(d.tensor(output.name));
        if (const RowOrder order(d.tensors[tensor], extents); order.moves())
            output.row_in_call = order;
    }
}

void move_heads(AttentionValues& values, const ref::AttentionShape& shape,
                const HeadSources& sources) {
    const auto of_queries = [&](auto& rows, Int width) {
        rows = gather_heads(rows, shape.query_heads, sources.query, width);
    };
    const auto of_keys = [&](Bits& rows, Int width) {
        rows = gather_heads(rows, shape.kv_heads, sources.kv, width);
    };
    change_rows(values, shape, of_queries, of_keys);
}

void keep_sequence(AttentionValues& values, const AttentionProblem& problem, std::size_t b) {
    const ref::AttentionShape& shape = problem.shape;
    const Int query = row_starts(problem.query_lengths)[b],
              key = row_starts(problem.kv_lengths)[b];
    const auto of_queries = [&](auto& rows, Int width) {
        rows = slice(rows, query, problem.query_lengths[b], shape.query_heads * width);
    };
    const auto of_keys = [&](Bits& rows, Int width) {
        rows = slice(rows, key, problem.kv_lengths[b], shape.kv_heads * width);
    };
    change_rows(values, shape, of_queries, of_keys);
}

void fill_values(const Spec& spec, const InputRecipe& how, AttentionValues& values) {
    values.withheld = withheld_names(*spec.schema, spec.withheld);
    std::vector<Bits> inputs = attention_inputs(spec, how);
    apply_overrides(spec, [&](std::size_t i) { return inputs[i].empty() ? nullptr : &inputs[i]; });
    const auto shapes = shapes_of(extents_of(spec));
    Int width = 0;  // of the tensor before
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i].empty()) continue;
        Bits& bits = values.*bits_of(spec.schema->tensors[i].role);
        bits = bits.empty() ? std::move(inputs[i])
                            : beside(bits, width, inputs[i], shapes[i].back());
        width = shapes[i].back();
    }
}

void alter_given(const Spec& spec, AttentionValues& values) {
    if (!is_zero_or_missing(spec, "stats")) shift_statistics(values.row_max, values.row_sum);
    if (!is_zero_or_missing(spec, "out")) perturb_output(values.result, values.output);
}

void complete_gradient(const Spec& spec, AttentionProblem& problem) {
    if (!problem.gradient) return;
    give_reference_forward(problem);
    alter_given(spec, problem);
}

void give_the_same(const AttentionValues& from, AttentionValues& to) {
    to.output = from.output;
    to.row_max = from.row_max;
    to.row_sum = from.row_sum;
}

void give_values(const AttentionValues& values, const Extents& extents, Call& call,
                 const std::function<void(Role, Tensor&)>& own) {
    const auto& fields = call.description->tensors;
    const auto shapes = shapes_of(extents);
    // A rope stands behind the head dim, as its tensor stands behind the one that it belongs to.
    const auto width_of = [&](std::size_t i) {
        return call.tensors[i].present ? shapes[i].back() : 0;
    };
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        Tensor& tensor = call.tensors[i];
        const Role role = fields[i].role;
        if (tensor.output) continue;
        if (role == Role::row_max || role == Role::row_sum) {
            const auto& statistic = role == Role::row_max ? values.row_max : values.row_sum;
            tensor.bits =
                RowOrder(fields[i], extents).to_memory(in_lanes(statistic, extents["lanes"]));
        } else if (const auto bits = bits_of(role)) {
            if (!tensor.present) continue;
            Int begin = 0, all = 0;
            for (std::size_t k = 0; k < fields.size(); ++k) {
                if (fields[k].role != role || fields[k].output) continue;
                if (k < i) begin += width_of(k);
                all += width_of(k);
            }
            const RowOrder order(fields[i], extents);
            const Int width = width_of(i);
            tensor.bits = order.to_memory(
                width == all ? values.*bits : columns_of(values.*bits, all, begin, width));
        } else if (tensor.present) {
            own(role, tensor);
        }
    }
    lay_views(call, extents);  // laws change values and leave the keys alone
}

}  // namespace attncheck::properties
