#include "properties/operators/flash_attention/problem.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "properties/case/values.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// The number of a name among those of a field.
Int value_named(const Description& d, std::string_view key, std::string_view name) {
    const auto& names = d.numbers[static_cast<std::size_t>(d.number(key))].names;
    return std::find(names.begin(), names.end(), name) - names.begin();
}

/// The field of the case for a part that the problem has; the simplest where the case
/// lacks it.
Int if_present(bool present, Int value) { return present ? std::max<Int>(value, 1) : 0; }

/// Another shape than the case's, as relations give masks and biases.
void reshape(Tensor& tensor, const std::vector<Int>& shape) {
    if (!tensor.present || tensor.shape == shape) return;
    tensor = make_tensor(tensor.name, false, tensor.type(), shape, {});
}

void give_array(Call& call, std::string_view name, const std::optional<std::vector<Int>>& values) {
    HostArray& array = call.array(name);
    array.present = values.has_value();
    array.values = values.value_or(std::vector<Int>{});
    array.size = std::ssize(array.values);
}

std::optional<std::vector<Int>> given(const HostArray& array) {
    return array.present ? std::optional(array.values) : std::nullopt;
}

/// Says where the rows of every output lie, and which tensors the ropes are.
void place_outputs(const FlashParts& parts, AttentionProblem& problem) {
    const ref::FlashAttentionShape& s = parts.shape;
    place_rows(problem.forward_outputs, flash_extents(parts, false));
    place_rows(problem.gradient_outputs, flash_extents(parts, true));
    if (s.rope_dim == 0) return;
    for (AttentionOutput& output : problem.gradient_outputs)
        if (const std::string rope = output.name + "_rope"; flash_description(true).tensor(rope) >= 0)
            output.parts = {{output.name, 0, s.head_dim}, {rope, s.head_dim, s.rope_dim}};
}

/// Elements of mask, drop mask and bias that `set` names, or that are one in memory.
void override_pairs(const Spec& spec, FlashParts& parts) {
    if (spec.overrides.empty() && std::ranges::none_of(spec.layouts, repeats)) return;
    BytesAsBits mask(parts.shape.mask.values), drop(parts.shape.dropout.bytes);
    apply_overrides(
        spec, {{Role::mask, &mask.bits}, {Role::drop, &drop.bits}, {Role::bias, &parts.pse}});
    parts.take_bias();
}

void own_values(const FlashParts& parts, const Extents&, Role role, Tensor& tensor) {
    const ref::FlashAttentionShape& s = parts.shape;
    if (role == Role::mask && !flash_reads_mask(s.mask.sparse_mode))
        tensor.shared_bytes = compressed_mask(s.mask.sparse_mode == 6);
    else if (role == Role::mask)
        tensor.bits.assign(s.mask.values.begin(), s.mask.values.end());
    else if (role == Role::drop)
        tensor.bits.assign(s.dropout.bytes.begin(), s.dropout.bytes.end());
    else if (role == Role::bias)
        tensor.bits = parts.pse;
}

class FlashAttention : public PartsOperator<FlashParts> {
public:
    FlashAttention() : PartsOperator(flash_inputs, flash_problem, make_flash_call) {}

    /// Alone in TND, or as one batch of BSND, with its mode or the mask written element by element, and so the bias.
    std::optional<AttentionProblem> single_sequence(const AttentionProblem& problem, std::size_t b,
                                                    Random& random) const override {
        FlashParts alone = properties::single_sequence(problem, b, random.chance(50));
        ref::FlashAttentionShape& s = alone.shape;
        if (s.packed && s.rope_dim == 0 && random.chance(50)) {
            alone.layout = FlashLayout::bsnd;
            s.packed = alone.same_as_input = false;
            if (s.bias.present && s.bias.type < 2)
                s.bias.shape = {1, s.query_heads, s.query_lengths[0], s.kv_lengths[0]};
        }
        if (!is_legal(alone)) return std::nullopt;
        return flash_problem(std::move(alone));
    }
    void with_less_data(Spec& spec, Random& random) const override {
        with_moderate_data(spec, random);
        with_smaller_lengths(spec);
    }
    /// Mask, bias and drop mask, each with a chance of a half.
    void with_combination(Spec& spec, Random& random) const override {
        spec.set("stats", 0);
        if (spec.numbers[kFaRope] != 0) return;
        if (random.chance(50))
            without_mask(spec);
        else
            with_some_mask(spec, random);
        if (random.chance(50)) without_bias(spec);
        if (random.chance(50)) {
            without_dropout(spec);
        } else if (spec.numbers[kFaDrop] == 0) {
            spec.numbers[kFaDrop] = 1;
            spec.numbers[kFaKeep] = random.between(1, 3);
        }
    }

private:
    void move_extras(const FlashParts& from, const HeadSources& sources,
                     FlashParts& to) const override {
        move_pairs(from, sources.query, to);
    }
};

}  // namespace

bool flash_reads_mask(std::int64_t mode) { return mode == 0 || mode == 1 || mode == 5; }

double flash_keep_prob(std::int64_t kind) {
    constexpr double kProbabilities[] = {1, 0.5, 0.9, 0.1, 0.01, 0.001};
    return kProbabilities[kind];
}

FlashParts flash_shape_parts(const Spec& spec) {
    const Extents e = extents_of(spec);
    const Call call = outline_of(e);
    const auto& n = spec.numbers;
    FlashParts parts;
    parts.fields = n;
    parts.profile = spec.profile;
    parts.gradient = &flash_description(true) == spec.schema;
    parts.dtype = call.tensors.front().type();
    parts.result = call.tensors.back().type();  // of an output
    parts.layout = static_cast<FlashLayout>(n[kFaLayout]);
    ref::FlashAttentionShape& s = parts.shape;
    take_extents(e, s);
    s.rope_dim = e["rope"];
    s.packed = parts.layout == FlashLayout::tnd;
    parts.scale = call.real("scale_value");
    s.scale = static_cast<float>(parts.scale);
    parts.keep_prob = call.real("keep_prob");
    parts.same_as_input = n[kFaOrder] == 1;
    parts.prefix = given(call.array("prefix"));
    parts.query_start = given(call.array("q_start_idx"));
    parts.key_start = given(call.array("kv_start_idx"));
    s.mask.sparse_mode = e["sparse"];
    s.mask.pre_tokens = e["pre_tokens"];
    s.mask.next_tokens = e["next_tokens"];
    s.mask.prefix = parts.prefix.value_or(std::vector<Int>{});
    s.bias.type = e["pse_type"];
    s.dropout.keep_prob = static_cast<float>(parts.keep_prob);
    if (parts.query_start && parts.key_start) {
        s.bias.query_start = parts.query_start->front();
        s.bias.key_start = parts.key_start->front();
    }
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const Tensor& tensor = call.tensors[i];
        const Role role = spec.schema->tensors[i].role;
        if (role == Role::mask) {
            s.mask.present = tensor.present;
            if (tensor.present) s.mask.shape = tensor.shape;
            parts.mask_dtype = tensor.type();
        } else if (role == Role::bias) {
            s.bias.present = tensor.present;
            s.bias.shape = tensor.shape;
        } else if (role == Role::drop) {
            s.dropout.present = tensor.present;
        }
    }
    return parts;
}

AttentionProblem flash_inputs(const Spec& spec) {
    FlashParts parts = flash_shape_parts(spec);
    fill_flash_mask(spec, parts);
    fill_flash_bias(spec, parts);
    fill_flash_dropout(spec, parts);
    override_pairs(spec, parts);
    fill_values(spec, flash_recipe(spec, parts), parts);
    return flash_problem(std::move(parts));
}

FlashParts flash_parts(const Spec& spec) {
    return parts_of<FlashParts>(flash_attention_operator().problem(spec));
}

AttentionProblem flash_problem(FlashParts parts) {
    const ref::FlashAttentionShape& s = parts.shape;
    AttentionProblem problem = problem_of_shape(s);
    problem.columns = shared_columns(ref::flash_columns(s));
    problem.sequence_word = s.packed ? "sequence" : "batch";
    problem.scale = s.scale;
    problem.keep_prob = s.dropout.keep_prob;
    const auto held = hold(problem, std::move(parts));
    add_attention_outputs(problem);
    place_outputs(*held, problem);
    return problem;
}

std::shared_ptr<const std::vector<std::uint8_t>> compressed_mask(bool with_prefix) {
    constexpr Int kSide = 2048, kPrefixRows = 1024;
    const auto make = [](Int rows) {
        auto bytes =
            std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>(rows * kSide));
        for (Int r = 0; r < rows; ++r)
            for (Int c = 0; c < kSide; ++c)
                (*bytes)[static_cast<std::size_t>(r * kSide + c)] =
                    r < kSide ? c > r : c >= kPrefixRows;
        return std::shared_ptr<const std::vector<std::uint8_t>>(bytes);
    };
    static const auto causal = make(kSide), prefix = make(kSide + kPrefixRows);
    return with_prefix ? prefix : causal;
}

Extents flash_extents(const FlashParts& parts, bool gradient) {
    const Description& d = flash_description(gradient);
    const ref::FlashAttentionShape& s = parts.shape;
    Spec spec = case_of(parts, d);
    auto& n = spec.numbers;
    n[kFaDtype] = value_named(d, "dtype", ref::dtype_name(parts.dtype));
    if (gradient) n[kFaResult] = value_named(d, "result", ref::dtype_name(parts.result));
    n[kFaLayout] = static_cast<Int>(parts.layout);
    n[kFaRope] = s.rope_dim;
    n[kFaMask] = !s.mask.present ? 0 : parts.mask_dtype == ref::Dtype::uint8 ? 2 : 1;
    n[kFaSparse] = s.mask.sparse_mode;
    n[kFaPse] = if_present(s.bias.present, n[kFaPse]);
    n[kFaPseType] = s.bias.type;
    n[kFaDrop] = if_present(s.dropout.present, n[kFaDrop]);
    n[kFaOrder] = parts.same_as_input;
    Extents extents(d, n, spec.lists, 0, parts.profile);
    extents.claim("pre_tokens", s.mask.pre_tokens);
    extents.claim("next_tokens", s.mask.next_tokens);
    return extents;
}

Call make_flash_call(const FlashParts& parts) {
    const Extents extents = flash_extents(parts, parts.gradient);
    Call call = outline_of(extents);
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const Role role = call.description->tensors[i].role;
        if (role == Role::mask) reshape(call.tensors[i], parts.shape.mask.shape);
        if (role == Role::bias) reshape(call.tensors[i], parts.shape.bias.shape);
    }
    give_array(call, "prefix", parts.prefix);
    give_array(call, "q_start_idx", parts.query_start);
    give_array(call, "kv_start_idx", parts.key_start);
    call.real("scale_value") = parts.scale;
    call.real("keep_prob") = parts.keep_prob;
    give_parts(parts, extents, call, own_values);
    return call;
}

Call build_flash_call(const Spec& spec) {
    return build_of(spec, [](const Spec& of, Call& call) {
        give_parts(flash_parts(of), extents_of(of), call, own_values);
    });
}

const AttentionOperator& flash_attention_operator() {
    static const FlashAttention kOperator;
    return kOperator;
}

}  // namespace attncheck::properties
