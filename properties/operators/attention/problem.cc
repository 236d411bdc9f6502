// The values of a case, the problem taken from it, and a changed problem made into a call again.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "properties/case/attention_data.h"
#include "properties/case/row_order.h"
#include "properties/case/values.h"
#include "properties/operators/attention/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t count_of(const std::vector<Int>& shape) {
    return static_cast<std::size_t>(
        std::accumulate(shape.begin(), shape.end(), Int{1}, std::multiplies<>()));
}

void fill_bias(const Spec& spec, NeutralParts& parts) {
    const auto& shape = parts.shape.bias.shape;
    if (!parts.shape.bias.present) return;
    const auto kind = static_cast<BiasValues>(spec.number("bias_values"));
    const HiddenPairs hides(spec.seed, 83, static_cast<std::size_t>(shape.back()));
    parts.bias.resize(count_of(shape));
    for (std::size_t k = 0; k < parts.bias.size(); ++k) {
        const std::uint64_t hash = pair_hash(spec.seed, k, 81);
        double value = spec.recipe == Recipe::zeros  ? 0
                       : spec.recipe == Recipe::ints ? whole_number(hash, 2)
                                                     : normal_of(hash);
        if (kind == BiasValues::far) value -= 60'000;
        const bool is_chosen = (kind == BiasValues::hides || kind == BiasValues::masks) &&
                               spec.recipe != Recipe::zeros && hides(k);
        if (is_chosen)
            value = kind == BiasValues::hides ? -kInfinity
                                              : std::max(-1e30, -ref::max_finite(parts.bias_dtype));
        parts.bias[k] = ref::encode(parts.bias_dtype, value);
    }
}

void fill_mask(const Spec& spec, NeutralParts& parts) {
    auto& mask = parts.shape.mask;
    if (!mask.present) return;
    const HiddenPairs hides(spec.seed, 79, static_cast<std::size_t>(mask.shape.back()));
    mask.values.assign(count_of(mask.shape), 1);
    for (std::size_t k = 0; k < mask.values.size() && spec.recipe != Recipe::zeros; ++k)
        mask.values[k] = !hides(k);
}

/// Elements of bias, mask and sink that `set` names.
void override_pairs(const Spec& spec, NeutralParts& parts) {
    if (spec.overrides.empty()) return;
    BytesAsBits mask(parts.shape.mask.values);
    apply_overrides(
        spec, {{Role::mask, &mask.bits}, {Role::sink, &parts.sink}, {Role::bias, &parts.bias}});
}

/// NaN in the keys that kv_length hides.
void poison_unused(NeutralParts& parts) {
    const ref::NeutralAttentionShape& s = parts.shape;
    const std::uint32_t nan =
        ref::encode(parts.dtype, std::numeric_limits<double>::quiet_NaN());
    const auto poison = [&](Bits& bits, Int row, Int last, Int width) {
        std::fill(bits.begin() + row * s.kv_heads * width, bits.begin() + last * s.kv_heads * width,
                  nan);
    };
    Int first = 0;
    for (std::size_t b = 0; b < s.kv_lengths.size(); first += s.kv_lengths[b++]) {
        poison(parts.key, first + s.kv_length[b], first + s.kv_lengths[b], s.head_dim);
        poison(parts.value, first + s.kv_length[b], first + s.kv_lengths[b], s.value_dim);
    }
}

InputRecipe recipe_of(const NeutralParts& parts, std::uint64_t seed) {
    return {.scale = parts.shape.scale,
            .hash = indexed_hash(seed),
            .leads = [seed](Int position, Int, Int length, Int) { return leads_in_steps(seed, position, length); },
            .shapes_rows_beyond = false};
}

Extents extents_of_parts(const NeutralParts& parts, bool gradient) {
    Spec spec = case_of(parts, neutral_description(gradient));
    spec.set("window_left", parts.shape.window_left);
    spec.set("window_right", parts.shape.window_right);
    return extents_of(spec);
}

Bits lse_bits(const NeutralParts& parts) {
    Bits bits;
    for (std::size_t row = 0; row < parts.row_max.size(); ++row)
        bits.push_back(ref::encode(ref::Dtype::fp32,
                                   parts.row_max[row] == static_cast<float>(ref::kEmptyRowMax)
                                       ? -kInfinity
                                       : parts.row_max[row]));
    return bits;
}

void own_values(const NeutralParts& parts, const Extents& extents, Role role, Tensor& tensor) {
    if (role == Role::mask)
        tensor.bits.assign(parts.shape.mask.values.begin(), parts.shape.mask.values.end());
    else if (role == Role::bias)
        tensor.bits = parts.bias;
    else if (role == Role::sink)
        tensor.bits = parts.sink;
    else
        tensor.bits = RowOrder(extents.description().tensors[static_cast<std::size_t>(
                                   extents.description().tensor("lse"))],
                               extents)
                          .to_memory(lse_bits(parts));
}

Call make_call(const NeutralParts& parts) {
    const Extents extents = extents_of_parts(parts, parts.gradient);
    Call call = outline_of(extents);
    if (parts.shape.has_kv_length) call.array("kv_length").values = parts.shape.kv_length;
    call.real("scale") = parts.scale;
    call.real("softcap") = parts.softcap;
    give_parts(parts, extents, call, own_values);
    return call;
}

/// Sums over rows, and where the rows of the other outputs lie.
void place_outputs(const NeutralParts& parts, AttentionProblem& problem) {
    place_rows(problem.forward_outputs, extents_of_parts(parts, false));
    place_rows(problem.gradient_outputs, extents_of_parts(parts, true));
    const auto add_sum = [&](const char* name, Role role, Int heads, Int width, ref::Dtype dtype) {
        problem.gradient_outputs.push_back({.name = name,
                                            .role = role,
                                            .dtype = dtype,
                                            .heads = heads,
                                            .width = std::max<Int>(width, 1),
                                            .parts = {{name, 0, std::max<Int>(width, 1)}},
                                            .is_sum = true});
    };
    const auto& bias = parts.shape.bias;
    const bool wanted = problem.gradient;
    if (wanted && bias.present && parts.is("dbias", 0) && !withholds(problem, "dbias")) {
        problem.bias_elements = count_of(bias.shape);
        problem.bias_row = std::max<Int>(bias.shape[3], 1);
        problem.bias_dtype = parts.bias_dtype;
        add_sum("dbias", Role::bias_grad, bias.shape[1], bias.shape[2] * bias.shape[3], parts.bias_dtype);
    }
    if (wanted && !parts.shape.sink.empty() && parts.is("dsink", 0) && !withholds(problem, "dsink"))
        add_sum("dsink", Role::sink_grad, parts.shape.query_heads, 1, ref::Dtype::fp32);
}

class NeutralAttention : public PartsOperator<NeutralParts> {
public:
    NeutralAttention() : PartsOperator(neutral_inputs, neutral_problem, make_call) {}

    /// Alone in the same form, or packed as one batch.
    std::optional<AttentionProblem> single_sequence(const AttentionProblem& problem, std::size_t b,
                                                    Random& random) const override {
        NeutralParts one = parts_of_sequence<NeutralParts>(problem, b);
        ref::NeutralAttentionShape& s = one.shape;
        const auto keep = [b](auto& values, std::vector<Int>& shape) {
            if (shape[0] == 1) return;
            values = slice(values, static_cast<Int>(b), 1, shape[1] * shape[2] * shape[3]);
            shape[0] = 1;
        };
        if (s.bias.present) {
            std::vector<Int> shape = s.bias.shape;
            keep(one.bias, shape);
            s.bias.shape = shape;
        }
        if (s.mask.present) keep(s.mask.values, s.mask.shape);
        if (s.has_kv_length) s.kv_length = {s.kv_length[b]};
        if (s.packed && random.chance(50)) {
            s.packed = false;
            one.set("layout", random.between(0, 2));
        }
        one.take_pairs();
        return neutral_problem(std::move(one));
    }
    void with_less_data(Spec& spec, Random& random) const override {
        with_moderate_data(spec, random);
        for (auto& list : spec.lists)
            for (auto& length : list) length = (length + 1) / 2;
    }
    void with_combination(Spec& spec, Random& random) const override {
        if (is_packed(spec)) return;
        for (const char* field : {"bias", "mask"})
            spec.set(field, random.chance(50) ? random.between(1, 4) : 0);
        if (spec.number("bias") == 0)
            for (const char* field : {"bias_type", "bias_values", "dbias"})
                set_if_present(spec, field, 0);
    }

private:
    void move_extras(const NeutralParts& from, const HeadSources& sources,
                     NeutralParts& to) const override {
        const ref::NeutralAttentionShape& s = from.shape;
        const auto moved = [&](const auto& values, const std::vector<Int>& shape) {
            return shape[1] == 1 && s.query_heads != 1
                       ? values
                       : gather_heads(values, s.query_heads, sources.query, shape[2] * shape[3]);
        };
        if (s.bias.present) {
            to.bias = moved(from.bias, s.bias.shape);
            if (s.bias.shape[1] != 1) to.shape.bias.shape[1] = to.shape.query_heads;
        }
        if (s.mask.present) {
            to.shape.mask.values = moved(s.mask.values, s.mask.shape);
            if (s.mask.shape[1] != 1) to.shape.mask.shape[1] = to.shape.query_heads;
        }
        if (!from.sink.empty()) to.sink = gather_heads(from.sink, s.query_heads, sources.query, 1);
        to.take_pairs();
    }
};

}  // namespace

bool NeutralParts::is(const char* field, Int number) const {
    return fields[static_cast<std::size_t>(neutral_description(true).number(field))] == number;
}

void NeutralParts::set(const char* field, Int number) {
    fields[static_cast<std::size_t>(neutral_description(true).number(field))] = number;
}

NeutralParts neutral_shape_parts(const Spec& spec) {
    const Extents e = extents_of(spec);
    const Call call = outline_of(e);
    NeutralParts parts;
    parts.fields = spec.numbers;
    parts.gradient = &neutral_description(true) == spec.schema;
    parts.dtype = parts.result = call.tensor("query").type();
    parts.bias_dtype = call.tensor("bias").type();
    ref::NeutralAttentionShape& s = parts.shape;
    take_extents(e, s);
    s.packed = is_packed(spec);
    parts.scale = call.real("scale");
    parts.softcap = call.real("softcap");
    s.scale = static_cast<float>(parts.scale);
    s.softcap = static_cast<float>(parts.softcap);
    s.window_left = e["window_left"];
    s.window_right = e["window_right"];
    s.bottom_right = e["align"] == 1;
    s.has_kv_length = call.array("kv_length").present;
    s.kv_length = call.array("kv_length").values;
    const auto take = [&](const char* name, auto& pairs) {
        const Tensor& tensor = call.tensor(name);
        pairs.present = tensor.present;
        if (tensor.present) pairs.shape = tensor.shape;
    };
    take("bias", s.bias);
    take("mask", s.mask);
    return parts;
}

AttentionProblem neutral_inputs(const Spec& spec) {
    NeutralParts parts = neutral_shape_parts(spec);
    fill_bias(spec, parts);
    fill_mask(spec, parts);
    parts.sink = sinks_of(spec, parts.shape.query_heads);
    override_pairs(spec, parts);
    parts.take_pairs();
    fill_values(spec, recipe_of(parts, spec.seed), parts);
    if (spec.number("hidden_keys") == static_cast<Int>(HiddenKeys::nan)) poison_unused(parts);
    return neutral_problem(std::move(parts));
}

NeutralParts neutral_parts(const Spec& spec) {
    return parts_of<NeutralParts>(neutral_operator().problem(spec));
}

NeutralParts packed_parts(const AttentionProblem& of) {
    NeutralParts parts;
    static_cast<AttentionValues&>(parts) = of;
    parts.fields = Spec(neutral_description(of.gradient)).numbers;
    parts.set("dtype", dtype_field(of.dtype));
    parts.set("layout", static_cast<Int>(NeutralLayout::packed));
    parts.scale = of.scale, parts.softcap = of.softcap;
    ref::NeutralAttentionShape& s = parts.shape;
    s.query_lengths = of.query_lengths, s.kv_lengths = of.kv_lengths;
    s.total_queries = total(s.query_lengths), s.total_keys = total(s.kv_lengths);
    s.query_heads = of.shape.query_heads, s.kv_heads = of.shape.kv_heads;
    s.head_dim = of.shape.head_dim, s.value_dim = of.shape.value_dim;
    s.packed = true;
    s.scale = of.scale, s.softcap = of.softcap;
    return parts;
}

AttentionProblem neutral_problem(NeutralParts parts) {
    const ref::NeutralAttentionShape& s = parts.shape;
    AttentionProblem problem = problem_of_shape(s);
    problem.columns = shared_columns(ref::attention_columns(s));
    problem.sequence_word = s.packed ? "sequence" : "batch";
    problem.scale = s.scale;
    problem.softcap = s.softcap;
    problem.sink = s.sink;
    problem.output_name = "out";
    problem.misreadings = neutral_misreadings;
    const auto held = hold(problem, std::move(parts));
    problem.statistics = held->is("lse", 0) && !withholds(problem, "lse") ? Statistics::lse
                                                                          : Statistics::none;
    add_attention_outputs(problem);
    place_outputs(*held, problem);
    return problem;
}

Call build_neutral_call(const Spec& spec) {
    return build_from_parts(spec, neutral_parts, own_values);
}

bool is_legal(const NeutralParts& parts) { return rule(make_call(parts)).accepted(); }

const AttentionOperator& neutral_operator() {
    static const NeutralAttention kOperator;
    return kOperator;
}

}  // namespace attncheck::properties
