#include "properties/operators/flash_attention/problem.h"

#include <algorithm>
#include <utility>

#include "properties/operators/flash_attention/runs.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// Everything but the numbers, which are the problem's.
struct FlashExtras : AttentionExtras {
    FlashParts parts;
};

/// Number of a row (row * heads + head) among the rows of its tensor in memory.
Int row_in_layout(FlashLayout layout, Int length, Int batches, Int heads, Int number) {
    if (layout != FlashLayout::sbh && layout != FlashLayout::bnsd) return number;
    const Int t = number / heads, n = number % heads, b = t / length, s = t % length;
    return layout == FlashLayout::sbh ? (s * batches + b) * heads + n
                                      : (b * heads + n) * length + s;
}

/// Number of a row among the statistics.
Int row_of_statistics(const FlashParts& parts, const std::vector<Int>& starts, Int number) {
    const ref::FlashAttentionShape& s = parts.shape;
    const Int heads = s.query_heads, t = number / heads, n = number % heads;
    const auto& lengths = s.query_lengths;
    if (parts.layout != FlashLayout::tnd)
        return row_in_layout(FlashLayout::bnsd, lengths[0], std::ssize(lengths), heads, number);
    if (parts.same_as_input || t >= starts.back()) return number;
    const auto after = std::upper_bound(starts.begin(), starts.end(), t);
    const auto b = static_cast<std::size_t>(after - starts.begin()) - 1;
    return starts[b] * heads + n * lengths[b] + (t - starts[b]);
}

/// Says where the rows of every output lie, and which tensors the ropes are.
void place_outputs(const std::shared_ptr<const FlashExtras>& extras, AttentionProblem& problem) {
    const ref::FlashAttentionShape& s = extras->parts.shape;
    for (auto* outputs : {&problem.forward_outputs, &problem.gradient_outputs})
        for (AttentionOutput& output : *outputs) {
            if (output.is_statistic())
                output.row_in_call = [extras, starts = row_starts(s.query_lengths)](Int number) {
                    return row_of_statistics(extras->parts, starts, number);
                };
            else if (!s.packed)
                output.row_in_call = [extras, heads = output.heads,
                                      of_keys = output.of_keys](Int number) {
                    const FlashParts& parts = extras->parts;
                    const auto& lengths =
                        of_keys ? parts.shape.kv_lengths : parts.shape.query_lengths;
                    return row_in_layout(parts.layout, lengths[0], std::ssize(lengths), heads,
                                         number);
                };
            if (s.rope_dim > 0 && (output.name == "dq" || output.name == "dk"))
                output.parts = {{output.name, 0, s.head_dim},
                                {output.name + "_rope", s.head_dim, s.rope_dim}};
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
    AttentionProblem single_sequence(const AttentionProblem& problem,
                                     std::size_t sequence) const override {
        return flash_problem(properties::single_sequence(flash_parts_of(problem), sequence));
    }
    void with_less_data(Spec& spec, Random& random) const override {
        with_moderate_data(spec, random);
        with_smaller_lengths(spec);
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
    const auto extras = std::make_shared<FlashExtras>();
    extras->parts = std::move(parts);
    problem.extras = extras;
    place_outputs(extras, problem);
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
