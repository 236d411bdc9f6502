#include "properties/operators/flash_attention/problem.h"

#include <utility>

#include "properties/case/row_order.h"
#include "properties/operators/flash_attention/runs.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// Everything but the numbers, which are the problem's.
struct FlashExtras : AttentionExtras {
    FlashParts parts;
};

/// Says where the rows of every output lie, and which tensors the ropes are.
void place_outputs(const FlashParts& parts, AttentionProblem& problem) {
    const ref::FlashAttentionShape& s = parts.shape;
    for (const bool gradient : {false, true}) {
        const Extents extents = flash_extents(parts, gradient);
        const Description& d = extents.description();
        for (AttentionOutput& output :
             gradient ? problem.gradient_outputs : problem.forward_outputs) {
            const auto tensor = static_cast<std::size_t>(d.tensor(output.name));
            if (const RowOrder order(d.tensors[tensor], extents); order.moves())
                output.row_in_call = order;
            const std::string rope = output.name + "_rope";
            if (s.rope_dim > 0 && d.tensor(rope) >= 0)
                output.parts = {{output.name, 0, s.head_dim}, {rope, s.head_dim, s.rope_dim}};
        }
    }
}

/// Query or key with its rope behind the head dim.
Bits joined(const ref::FlashAttentionShape& s, Bits main, Bits rope) {
    return s.rope_dim == 0 ? std::move(main) : beside(main, s.head_dim, rope, s.rope_dim);
}

void split(const ref::FlashAttentionShape& s, const Bits& wide, Bits& main, Bits& rope) {
    if (s.rope_dim == 0) {
        main = wide;
        return;
    }
    for (auto row = wide.begin(); row != wide.end(); row += s.head_dim + s.rope_dim) {
        main.insert(main.end(), row, row + s.head_dim);
        rope.insert(rope.end(), row + s.head_dim, row + s.head_dim + s.rope_dim);
    }
}

class FlashAttention : public AttentionOperator {
public:
    AttentionProblem problem(const Spec& spec) const override {
        return flash_problem(flash_parts(spec));
    }
    Call call(const AttentionProblem& problem) const override {
        return make_flash_call(flash_parts_of(problem));
    }
    AttentionProblem with_heads(const AttentionProblem& problem, const std::vector<Int>& query,
                                const std::vector<Int>& kv) const override {
        return flash_problem(properties::with_heads(flash_parts_of(problem), query, kv));
    }
    /// Alone in TND, or as one batch of BSND, with mask and bias written element by element.
    std::optional<AttentionProblem> single_sequence(const AttentionProblem& problem, std::size_t b,
                                                    Random& random) const override {
        FlashParts alone = properties::single_sequence(flash_parts_of(problem), b);
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
};

}  // namespace

AttentionProblem flash_problem(FlashParts parts) {
    const ref::FlashAttentionShape& s = parts.shape;
    AttentionProblem problem;
    problem.gradient = parts.gradient;
    problem.shape = s.dense();
    problem.columns = shared_columns(ref::flash_columns(s));
    problem.query_lengths = s.query_lengths;
    problem.kv_lengths = s.kv_lengths;
    problem.sequence_word = s.packed ? "sequence" : "batch";
    problem.dtype = parts.dtype;
    problem.result = parts.result;
    problem.scale = s.scale;
    problem.keep_prob = s.dropout.keep_prob;
    problem.query = joined(s, std::exchange(parts.query, {}), std::exchange(parts.query_rope, {}));
    problem.key = joined(s, std::exchange(parts.key, {}), std::exchange(parts.key_rope, {}));
    problem.value = std::exchange(parts.value, {});
    problem.output_grad = std::exchange(parts.output_grad, {});
    problem.output = std::exchange(parts.output, {});
    problem.row_max = std::exchange(parts.row_max, {});
    problem.row_sum = std::exchange(parts.row_sum, {});
    add_attention_outputs(problem);
    place_outputs(parts, problem);
    const auto extras = std::make_shared<FlashExtras>();
    extras->parts = std::move(parts);
    problem.extras = extras;
    return problem;
}

FlashParts flash_parts_of(const AttentionProblem& problem) {
    FlashParts parts = static_cast<const FlashExtras&>(*problem.extras).parts;
    parts.gradient = problem.gradient;
    split(parts.shape, problem.query, parts.query, parts.query_rope);
    split(parts.shape, problem.key, parts.key, parts.key_rope);
    parts.value = problem.value;
    parts.output_grad = problem.output_grad;
    parts.output = problem.output;
    parts.row_max = problem.row_max;
    parts.row_sum = problem.row_sum;
    return parts;
}

const AttentionOperator& flash_attention_operator() {
    static const FlashAttention kOperator;
    return kOperator;
}

}  // namespace attncheck::properties
