#include "properties/operators/nsa_compress_attention/problem.h"

#include <fmt/format.h>

#include <utility>

namespace attncheck::properties::compress_attention {
namespace {

/// The message without the place, which is told in the suite's words.
std::string reason_of(const std::string& message) {
    const auto equals = message.find("] = ");
    return equals == std::string::npos ? message : message.substr(equals + 4);
}

class CompressAttention : public AttentionOperator {
public:
    AttentionProblem problem(const Spec& spec) const override { return problem_of(parts_of(spec)); }
    Call call(const AttentionProblem& problem) const override {
        return make_call(parts_of(problem));
    }
    AttentionProblem with_heads(const AttentionProblem& problem,
                                const std::vector<std::int64_t>& query,
                                const std::vector<std::int64_t>& kv) const override {
        return problem_of(compress_attention::with_heads(parts_of(problem), query, kv));
    }
    std::optional<AttentionProblem> single_sequence(const AttentionProblem& problem, std::size_t b,
                                                    Random&) const override {
        if (problem.query_lengths[b] == 0) return std::nullopt;
        return problem_of(compress_attention::single_sequence(parts_of(problem), b));
    }
    Verdict judge_lists(const AttentionProblem& problem, const Bits& lists,
                        const ref::RoundingClass& rounding, ref::Grant grant,
                        const std::string& relation) const override {
        return verdict_on_lists(problem, lists_of(lists), rounding, grant, relation);
    }
    void with_less_data(Spec& spec, Random& random) const override {
        compress_attention::with_less_data(spec, random);
    }
};

}  // namespace

const Extras& extras_of(const AttentionProblem& problem) {
    return static_cast<const Extras&>(*problem.extras);
}

AttentionProblem problem_of(Parts parts) {
    const ref::CompressAttentionShape& s = parts.shape;
    AttentionProblem problem;
    problem.shape = s.dense();
    problem.query_lengths = s.query_lengths;
    problem.kv_lengths = s.cmp_lengths;
    problem.dtype = problem.result = parts.dtype;
    problem.scale = parts.narrowed_scale();
    problem.query = std::exchange(parts.query, {});
    problem.key = std::exchange(parts.key, {});
    problem.value = std::exchange(parts.value, {});
    add_attention_outputs(problem);
    std::vector<std::int64_t> place(static_cast<std::size_t>(problem.query_rows()));
    const auto order = ref::compress_statistics_order(s);
    for (std::size_t p = 0; p < order.size(); ++p)
        place[static_cast<std::size_t>(order[p])] = static_cast<std::int64_t>(p);
    for (AttentionOutput& output : problem.forward_outputs)
        if (output.is_statistic())
            output.row_in_call = [shared = std::make_shared<const decltype(place)>(place)](
                                     std::int64_t number) {
                return (*shared)[static_cast<std::size_t>(number)];
            };
    problem.forward_outputs.push_back({.name = "topk_indices",
                                       .dtype = ref::Dtype::int32,
                                       .heads = s.kv_heads,
                                       .width = s.select_count,
                                       .column = "entry",
                                       .parts = {{"topk_indices", 0, s.select_count}}});
    const auto extras = std::make_shared<Extras>();
    extras->hidden = parts.mask.contents();
    extras->forced = parts.topk_mask.contents();
    extras->parts = std::move(parts);
    problem.extras = extras;
    // The lister refers to the mask, which lives as long as the extras.
    problem.columns = [extras, columns = shared_columns(ref::compress_columns(
                                   extras->parts.shape, {extras->hidden, {}}))](
                          std::int64_t t, std::int64_t n, std::vector<ref::KeyColumn>& to) {
        return columns(t, n, to);
    };
    return problem;
}

Parts parts_of(const AttentionProblem& problem) {
    Parts parts = extras_of(problem).parts;
    parts.query = problem.query;
    parts.key = problem.key;
    parts.value = problem.value;
    return parts;
}

Verdict verdict_on_lists(const AttentionProblem& problem, const std::vector<std::int64_t>& lists,
                         const ref::RoundingClass& rounding, ref::Grant grant,
                         const std::string& relation) {
    const AttentionNumbers numbers(problem);
    const ref::AttentionInputs<double> in = numbers.inputs();
    ref::ImportanceScores scores(extras_of(problem).parts.shape, in, extras_of(problem).masks(),
                                 problem.dtype, rounding, grant);
    const ref::SelectionJudgement judgement = ref::judge_selection(scores, lists);
    Verdict verdict;
    verdict.worst_ratio = judgement.worst_ratio;
    if (judgement.right) return verdict;
    verdict.kind = Verdict::Kind::failed;
    verdict.failure =
        relation.empty() ? "topk_indices is wrong" : "topk_indices breaks the relation";
    verdict.message = fmt::format(
        "{}{}topk_indices is wrong in {} of {} lists; first:\n  {}  {}", relation,
        relation.empty() ? "" : ": ", judgement.wrong, judgement.judged,
        problem.place("topk_indices", static_cast<std::size_t>(judgement.index)),
        reason_of(judgement.message));
    return verdict;
}

const AttentionOperator& attention_operator() {
    static const CompressAttention kOperator;
    return kOperator;
}

}  // namespace attncheck::properties::compress_attention
