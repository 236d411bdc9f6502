#include "properties/operators/nsa_selected_attention/problem.h"

#include <algorithm>
#include <utility>

namespace attncheck::properties {
namespace {

/// Everything but the numbers, which are the problem's.
struct SelectedExtras : AttentionExtras {
    SelectedParts parts;
};

class SelectedAttention : public AttentionOperator {
public:
    AttentionProblem problem(const Spec& spec) const override {
        return selected_problem(selected_parts(spec));
    }
    Call call(const AttentionProblem& problem) const override {
        return make_selected_call(selected_parts_of(problem));
    }
    AttentionProblem with_heads(const AttentionProblem& problem,
                                const std::vector<std::int64_t>& query,
                                const std::vector<std::int64_t>& kv) const override {
        return selected_problem(properties::with_heads(selected_parts_of(problem), query, kv));
    }
    std::optional<AttentionProblem> single_sequence(const AttentionProblem& problem, std::size_t b,
                                                    Random&) const override {
        if (problem.query_lengths[b] == 0) return std::nullopt;
        return selected_problem(properties::single_sequence(selected_parts_of(problem), b));
    }
    /// Keys in blocks that the row does not list are not masked.
    std::vector<char> masked_keys(const AttentionProblem& problem, std::int64_t t) const override {
        const SelectedParts& parts = static_cast<const SelectedExtras&>(*problem.extras).parts;
        const ref::SelectedAttentionShape& s = parts.shape;
        std::vector<char> masked(static_cast<std::size_t>(problem.key_rows()));
        if (!parts.mask.present) return masked;
        const auto row = ref::selected_queries(s)[static_cast<std::size_t>(t)];
        for (std::int64_t j = 0; j < row.kv_length; ++j)
            if (parts.sparse_mode == 2
                    ? j > row.position
                    : parts.mask.bits[static_cast<std::size_t>(
                          row.position * parts.mask.shape[1] + j)] != 0)
                std::fill_n(masked.begin() + (row.first_key + j) * s.kv_heads, s.kv_heads, 1);
        return masked;
    }
    void with_less_data(Spec& spec, Random& random) const override {
        properties::with_less_data(spec, random);
    }
};

}  // namespace

AttentionProblem selected_problem(SelectedParts parts) {
    const ref::SelectedAttentionShape& s = parts.shape;
    AttentionProblem problem;
    problem.gradient = parts.gradient;
    problem.shape = s.dense();
    problem.columns = shared_columns(parts.columns());
    problem.query_lengths = s.query_lengths;
    problem.kv_lengths = s.kv_lengths;
    problem.dtype = problem.result = parts.dtype;
    problem.scale = parts.narrowed_scale();
    problem.query = std::exchange(parts.query, {});
    problem.key = std::exchange(parts.key, {});
    problem.value = std::exchange(parts.value, {});
    problem.output_grad = std::exchange(parts.output_grad, {});
    problem.output = std::exchange(parts.output, {});
    problem.row_max = std::exchange(parts.row_max, {});
    problem.row_sum = std::exchange(parts.row_sum, {});
    add_attention_outputs(problem);
    const auto extras = std::make_shared<SelectedExtras>();
    extras->parts = std::move(parts);
    problem.extras = extras;
    return problem;
}

SelectedParts selected_parts_of(const AttentionProblem& problem) {
    SelectedParts parts = static_cast<const SelectedExtras&>(*problem.extras).parts;
    parts.gradient = problem.gradient;
    parts.query = problem.query;
    parts.key = problem.key;
    parts.value = problem.value;
    parts.output_grad = problem.output_grad;
    parts.output = problem.output;
    parts.row_max = problem.row_max;
    parts.row_sum = problem.row_sum;
    return parts;
}

const AttentionOperator& selected_attention_operator() {
    static const SelectedAttention kOperator;
    return kOperator;
}

}  // namespace attncheck::properties
