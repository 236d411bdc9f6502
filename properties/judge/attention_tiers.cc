#include "properties/judge/attention_tiers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "properties/judge/attention_hypotheses.h"
#include "ref/attention/common_errors.h"

namespace attncheck::properties {
AttentionProblem of_rows(const AttentionProblem& problem, const WantedRows& wanted) {
    AttentionProblem some = problem;
    some.columns = [columns = problem.columns, wanted, heads = problem.shape.query_heads](
                       std::int64_t t, std::int64_t n, std::vector<ref::KeyColumn>& to) {
        return wanted[static_cast<std::size_t>(t * heads + n)] && columns(t, n, to);
    };
    return some;
}

void leave_out_empty_rows(TierTensor& tensor) {
    for (std::size_t k = 0; k < tensor.got.size() && tensor.role == Role::lse; ++k)
        if (!(tensor.noise.variance[k] > 0)) tensor.got[k] = tensor.noise.value[k];
}

namespace {

TierTensor values_alone(const std::string& name, Role role, std::vector<double> values) {
    TierTensor tensor;
    tensor.name = name;
    tensor.role = role;
    tensor.row_word = role == Role::key_grad || role == Role::value_grad ? "key" : "query";
    tensor.noise.value = std::move(values);
    return tensor;
}

std::vector<TierTensor> forward_values(const AttentionProblem& problem) {
    const AttentionNumbers numbers(problem);
    const auto rows = static_cast<std::size_t>(problem.query_rows());
    std::vector<double> output(rows * static_cast<std::size_t>(problem.shape.value_dim)), row_max(rows), row_sum(rows);
    ref::dense_attention<double>(problem.forward(numbers), output, row_max, row_sum);
    for (std::size_t i = 0; i < rows; ++i)  // of a row without keys nothing is predicted
        if (row_max[i] == ref::kEmptyRowMax && row_sum[i] == ref::kEmptyRowSum) row_max[i] = row_sum[i] = 0;
    std::vector<TierTensor> out{values_alone(problem.output_name, Role::output, std::move(output))};
    if (problem.statistics == Statistics::lse) {
        for (std::size_t i = 0; i < rows; ++i) row_max[i] += std::log(row_sum[i]);
        out.push_back(values_alone("lse", Role::lse, std::move(row_max)));
    } else if (problem.statistics == Statistics::pair) {
        out.push_back(values_alone("softmax_max", Role::row_max, std::move(row_max)));
        out.push_back(values_alone("softmax_sum", Role::row_sum, std::move(row_sum)));
    }
    std::erase_if(out, [&](const TierTensor& tensor) {
        return tensor.name.starts_with("softmax") && !problem.gives(tensor.name);
    });
    return out;
}

/// row_max + log(row_sum), where a class says that only this is defined (stats=lse).
constexpr const char* kLseTensor = "softmax_max + log(softmax_sum)";

/// Whether keys of a row share an error: of delta in dK, of an own row sum in both, of Q as it is scaled; or queries one of
/// the keys as they are scaled.
bool shares_errors(const ref::RoundingClass& rounding, Role role) {
    return rounding.scaling == ref::Scaling::half || (role == Role::key_grad && rounding.delta_rounded) ||
           ((role == Role::key_grad || role == Role::value_grad) && rounding.own_forward);
}

/// Fewest rows of the other side that a sequence has: of queries, with the heads of a group, or of keys.
double fewest_rows(const AttentionProblem& problem, bool of_queries) {
    double rows = static_cast<double>(of_queries ? problem.query_rows() : problem.shape.kv_rows);
    for (const std::int64_t length : of_queries ? problem.query_lengths : problem.kv_lengths)
        if (length > 0) rows = std::min(rows, static_cast<double>(of_queries ? length * problem.shape.group() : length));
    return rows;
}

/// How much of the variance of long sums of fp32 goes with the size of partial sums that rows share: increments P_i v_i
/// of two rows have the correlation c = E[P]^2 / E[P^2] = exp(-variance of the logits), sizes of the sums c^2, and the
/// sum of squares that a limit is for varies by the square of that. Normal data.
double share_of_like_sums(const AttentionProblem& problem, Role role) {
    constexpr double kLong = 256;
    if ((role != Role::output && role != Role::value_grad) || problem.result != ref::Dtype::fp32) return 0;
    const std::vector<std::int64_t>& summed =
        role == Role::output ? problem.kv_lengths : problem.query_lengths;
    if (std::ranges::max(summed) < kLong) return 0;
    double variance = problem.scale * problem.scale * static_cast<double>(problem.shape.head_dim);
    if (problem.softcap > 0) variance = std::min(variance, problem.softcap * problem.softcap);
    return std::exp(-4 * variance);
}

/// Multiplications of one query row, of the rows of all sequences on average.
double work_of_row(const AttentionProblem& problem) {
    double pairs = 0, rows = 1;
    for (std::size_t b = 0; b < problem.query_lengths.size(); ++b) {
        pairs += static_cast<double>(problem.query_lengths[b] * problem.kv_lengths[b]);
        rows += static_cast<double>(problem.query_lengths[b]);
    }
    return pairs / rows * static_cast<double>(problem.shape.head_dim + problem.shape.value_dim);
}

/// A tensor of queries or of keys. P is positive, so that sums over V or dO go the same way in all rows; dS has
/// the sign of <dO, v - o>: as many ways as values have channels. Sums that lie close together err in one. The keys of a row share the errors of its delta
/// and its row sum, if those have one.
TierTensor make_tensor(const AttentionProblem& problem, const char* name, Role role,
                       std::int64_t width, std::vector<ref::SequencePlace> places,
                       ref::RoundingNoise noise, const char* cast, bool shares = false) {
    const bool of_keys = role == Role::key_grad || role == Role::value_grad;
    TierTensor tensor;
    tensor.name = name;
    tensor.role = role;
    tensor.row_word = of_keys ? "key" : "query";
    tensor.heads = of_keys ? problem.shape.kv_heads : problem.shape.query_heads;
    tensor.width = width;
    tensor.places = std::move(places);
    tensor.noise = std::move(noise);
    tensor.dtype = problem.result;
    tensor.cast = cast;
    if (!of_keys) tensor.heads_with_same_factors = problem.shape.group();
    const bool close = std::ranges::any_of(tensor.noise.shared, &ref::SharedErrors::close);
    if (role == Role::query_grad || (role == Role::key_grad && !close))
        tensor.independent_sums = static_cast<double>(problem.shape.value_dim);
    if (problem.gradient) tensor.scale = problem.scale;
    if (!of_keys) tensor.row_work = work_of_row(problem);
    tensor.sums_alike = share_of_like_sums(problem, role);
    if (shares) tensor.most_independent = fewest_rows(problem, of_keys);
    return tensor;
}

/// dbias or dsink, with the rows of a head. A row of the bias, which shares the errors of its delta, is a row
/// of the tensor.
TierTensor make_sum_tensor(const AttentionProblem& problem, const char* name, std::int64_t width,
                           ref::RoundingNoise noise, std::int64_t heads, std::int64_t rows) {
    TierTensor tensor;
    tensor.name = name;
    tensor.row_word = "query";
    tensor.heads = heads;
    tensor.width = width;
    tensor.noise = std::move(noise);
    tensor.dtype = problem.result;
    // Sums over queries and keys end in no tile: a length that no row is at the end of.
    const std::int64_t length = 2 * rows + 64;
    for (std::int64_t unit = 0; unit < std::ssize(tensor.noise.value) / width; ++unit) {
        tensor.places.push_back({unit / rows / heads, unit % rows, length});
        tensor.chosen_heads.push_back(unit / rows % heads);
    }
    return tensor;
}

TierTensor make_sum_tensor(const AttentionProblem& problem, const char* name, std::int64_t width,
                           ref::RoundingNoise noise) {
    const AttentionOutput& output = problem.output_named(name);
    return make_sum_tensor(problem, name, width, std::move(noise), output.heads, output.width / width);
}

/// The gradients of biases and sinks. Where a kernel goes by an output of its own, the error of
/// delta in dsink is left to the first tier.
void add_sums(const AttentionProblem& problem, ref::AttentionGradNoise noise,
              const ref::RoundingClass& rounding, std::vector<TierTensor>& out) {
    if (problem.gives("dbias") && noise.bias_grad.size() > 0)
        out.push_back(make_sum_tensor(problem, "dbias", problem.bias_row, std::move(noise.bias_grad)));
    if (problem.gives("dsink") && noise.sink_grad.size() > 0 && !rounding.own_forward)
        out.push_back(make_sum_tensor(problem, "dsink", 1, std::move(noise.sink_grad)));
}

/// What came out: of a pair of statistics the LSE alone where the class leaves the pair open.
void take_outputs(const TierOutputs& outputs, std::vector<TierTensor>& tensors) {
    for (TierTensor& tensor : tensors) {
        if (tensor.name != kLseTensor) {
            tensor.got = outputs(tensor.name);
            leave_out_empty_rows(tensor);
            continue;
        }
        const std::vector<double> row_sum = outputs("softmax_sum");
        tensor.got = outputs("softmax_max");
        for (std::size_t k = 0; k < tensor.got.size(); ++k)  // 0 beyond the last sequence
            if (row_sum[k] != 0) tensor.got[k] += std::log(row_sum[k]);
    }
}

/// Keys that one of these rows sees at most.
std::int64_t longest_row(const AttentionProblem& problem, const std::vector<std::int64_t>& rows) {
    std::int64_t longest = 0;
    std::vector<ref::KeyColumn> columns;
    for (const std::int64_t row : rows) {
        columns.clear();
        problem.columns(row / problem.shape.query_heads, row % problem.shape.query_heads, columns);
        longest = std::max(longest, std::ssize(columns));
    }
    return longest;
}

ref::SequencePlaces sequence_places_of(const AttentionProblem& problem) {
    return {ref::sequence_places(problem.query_lengths, problem.shape.query_rows),
            ref::sequence_places(problem.kv_lengths, problem.shape.kv_rows)};
}

/// A gradient that is given no LSE forms its row sums, and may form its output.
ref::RoundingClass class_of(const AttentionProblem& problem, ref::RoundingClass declared) {
    if (problem.gradient && problem.statistics == Statistics::none) declared.own_forward = true;
    return declared;
}

std::vector<TierTensor> all_tensors(const AttentionProblem& problem, const ref::RoundingClass& declared) {
    const ref::RoundingClass rounding = class_of(problem, declared);
    const ref::AttentionShape& s = problem.shape;
    const ref::SequencePlaces places = sequence_places_of(problem);
    const auto& [queries, keys] = places;
    const AttentionNumbers numbers(problem);
    const ref::Precision precision(problem.result, rounding);
    std::vector<TierTensor> out;
    if (problem.gradient) {
        ref::AttentionBackward backward = problem.backward(numbers);
        backward.in.bias_elements = problem.bias_elements;
        backward.in.bias_dtype = problem.bias_dtype;
        auto noise = ref::attention_grad_noise(backward, places, precision);
        out.push_back(make_tensor(problem, "dq", Role::query_grad, s.head_dim, queries,
                                  std::move(noise.query_grad), "ds", shares_errors(rounding, Role::query_grad)));
        out.push_back(make_tensor(problem, "dk", Role::key_grad, s.head_dim, keys,
                                  std::move(noise.key_grad), "ds", shares_errors(rounding, Role::key_grad)));
        out.push_back(make_tensor(problem, "dv", Role::value_grad, s.value_dim, keys,
                                  std::move(noise.value_grad), "p", shares_errors(rounding, Role::value_grad)));
        add_sums(problem, std::move(noise), rounding, out);
        return out;
    }
    auto noise = ref::attention_noise(problem.forward(numbers), places, precision);
    out.push_back(make_tensor(problem, problem.output_name.c_str(), Role::output, s.value_dim, queries,
                              std::move(noise.output), "p", shares_errors(rounding, Role::output)));
    if (problem.statistics == Statistics::none) return out;
    if (problem.statistics == Statistics::lse) {
        out.push_back(make_tensor(problem, "lse", Role::lse, 1, queries, std::move(noise.lse), "sum"));
        return out;
    }
    if (rounding.lse_statistics && !gives_statistics(problem)) return out;
    if (rounding.lse_statistics) {
        out.push_back(make_tensor(problem, kLseTensor, Role::other, 1, queries, std::move(noise.lse), "sum"));
        return out;
    }
    out.push_back(make_tensor(problem, "softmax_max", Role::row_max, 1, queries,
                              std::move(noise.row_max), ""));
    out.push_back(make_tensor(problem, "softmax_sum", Role::row_sum, 1, queries,
                              std::move(noise.row_sum), "sum"));
    std::erase_if(out, [&](const TierTensor& tensor) { return !problem.gives(tensor.name); });
    return out;
}

std::vector<TierTensor> chosen_tensors(const AttentionProblem& problem, const ChosenRows& chosen,
                                       const ref::RoundingClass& declared) {
    const ref::RoundingClass rounding = class_of(problem, declared);
    const ref::AttentionShape& s = problem.shape;
    const ref::SequencePlaces all_places = sequence_places_of(problem);
    const AttentionNumbers numbers(problem);
    const ref::Precision precision(problem.result, rounding);
    std::vector<TierTensor> out;
    const auto add = [&](const char* name, Role role, std::int64_t width,
                         ref::RoundingNoise noise, const char* cast) {
        const bool of_keys = role == Role::key_grad || role == Role::value_grad;
        const std::int64_t heads = of_keys ? s.kv_heads : s.query_heads;
        out.push_back(make_tensor(problem, name, role, width, {}, std::move(noise), cast, shares_errors(rounding, role)));
        for (const std::int64_t number : of_keys ? chosen.keys : chosen.rows) {
            const auto& places = of_keys ? all_places.keys : all_places.queries;
            out.back().places.push_back(places[static_cast<std::size_t>(number / heads)]);
            out.back().chosen_heads.push_back(number % heads);
        }
    };
    if (!problem.gradient) {
        auto noise = ref::attention_noise_of_rows(problem.forward(numbers), all_places, precision,
                                                  chosen.rows);
        add(problem.output_name.c_str(), Role::output, s.value_dim, std::move(noise.output), "p");
        if (problem.statistics == Statistics::lse)
            add("lse", Role::lse, 1, std::move(noise.lse), "sum");
        if (problem.statistics != Statistics::pair) return out;
        if (rounding.lse_statistics) {
            if (gives_statistics(problem)) add(kLseTensor, Role::other, 1, std::move(noise.lse), "sum");
            return out;
        }
        add("softmax_max", Role::row_max, 1, std::move(noise.row_max), "");
        add("softmax_sum", Role::row_sum, 1, std::move(noise.row_sum), "sum");
        std::erase_if(out, [&](const TierTensor& tensor) { return !problem.gives(tensor.name); });
        return out;
    }
    if (!chosen.rows.empty())
        add("dq", Role::query_grad, s.head_dim,
            ref::query_grad_noise_of_rows(problem.backward(numbers), all_places, precision,
                                          chosen.rows),
            "ds");
    if (chosen.keys.empty()) return out;
    const ref::AttentionBackward of_keys{
        s, chosen.key_columns ? chosen.key_columns : problem.columns, numbers.gradient_inputs()};
    auto noise = ref::key_grad_noise_of(of_keys, all_places, precision, chosen.keys);
    add("dk", Role::key_grad, s.head_dim, std::move(noise.key_grad), "ds");
    add("dv", Role::value_grad, s.value_dim, std::move(noise.value_grad), "p");
    if (problem.gives("dsink") && chosen.key_columns) {
        ref::AttentionGradNoise sums;
        sums.sink_grad = ref::sink_grad_noise(of_keys, precision);
        add_sums(problem, std::move(sums), rounding, out);
    }
    if (!chosen.bias.empty()) {
        ref::AttentionGradInputs few = numbers.gradient_inputs();
        few.bias_elements = chosen.bias.size();
        few.bias_dtype = problem.bias_dtype;
        const auto width = static_cast<std::int64_t>(few.bias_elements);
        out.push_back(make_sum_tensor(
            problem, "dbias", width,
            ref::bias_grad_noise({s, chosen.bias_columns, few}, all_places, precision), 1, 1));
    }
    return out;
}

std::optional<ref::Result> result_of(const TierTensor& tensor) {
    switch (tensor.role) {
        case Role::output: return ref::Result::output;
        case Role::row_max: return ref::Result::row_max;
        case Role::row_sum: return ref::Result::row_sum;
        case Role::lse: return ref::Result::lse;
        case Role::query_grad: return ref::Result::query_grad;
        case Role::key_grad: return ref::Result::key_grad;
        case Role::value_grad: return ref::Result::value_grad;
        default: break;
    }
    if (tensor.name == kLseTensor) return ref::Result::lse;
    if (tensor.name == "dbias") return ref::Result::bias_grad;
    return std::nullopt;
}

/// What errors that elements have in common do to sums of them: of Q and K as they are scaled to half (scale=half), and in dK
/// and dV, whose keys may be far more than the rows that they all read, of Q, LSE and delta in any class. The tensors
/// then refer to the problem and to the chosen rows, nothing for all of them.
void count_common_errors(const AttentionProblem& problem, const ChosenRows* chosen, const ref::RoundingClass& rounding,
                         std::vector<TierTensor>& tensors) {
    const bool scales_half = rounding.scaling == ref::Scaling::half && problem.result != ref::Dtype::fp32;
    for (TierTensor& tensor : tensors) {
        const auto result = result_of(tensor);
        if (!result) continue;
        if (!scales_half && tensor.role != Role::key_grad && tensor.role != Role::value_grad) continue;
        tensor.shared_variance = [&problem, chosen, rounding, result = *result](std::span<const double> weights) {
            const AttentionNumbers numbers(problem);
            const ref::AttentionGradInputs in = numbers.gradient_inputs();
            ref::WeightedResult sum{result, weights};
            ref::ColumnLister columns = problem.columns;
            if (chosen && result == ref::Result::bias_grad) {
                columns = chosen->bias_columns;
            } else if (chosen && (result == ref::Result::key_grad || result == ref::Result::value_grad)) {
                sum.chosen = chosen->keys;
                if (chosen->key_columns) columns = chosen->key_columns;
            } else if (chosen) {
                sum.chosen = chosen->rows;
            }
            return ref::common_error_variance({problem.shape, columns, in},
                                               {problem.result, rounding}, sum);
        };
    }
}

}  // namespace

std::vector<TierTensor> tier_tensors(const AttentionProblem& problem, const ref::RoundingClass& declared) {
    const ref::RoundingClass rounding = with_casts(problem, declared);
    auto out = all_tensors(problem, rounding);
    count_common_errors(problem, nullptr, rounding, out);
    return out;
}

std::vector<TierTensor> value_tensors(const AttentionProblem& problem) {
    if (!problem.gradient) return forward_values(problem);
    if (problem.softcap > 0 || problem.gives("dbias") || problem.gives("dsink")) return tier_tensors(problem, {});
    const AttentionNumbers numbers(problem);
    auto [query, key, value] = ref::dense_attention_grad(problem.backward(numbers));
    std::vector<TierTensor> out{values_alone("dq", Role::query_grad, std::move(query))};
    out.push_back(values_alone("dk", Role::key_grad, std::move(key)));
    out.push_back(values_alone("dv", Role::value_grad, std::move(value)));
    return out;
}

std::vector<TierTensor> tier_tensors_of(const AttentionProblem& problem, const ChosenRows& chosen,
                                        const ref::RoundingClass& declared) {
    const ref::RoundingClass rounding = with_casts(problem, declared);
    auto out = chosen_tensors(problem, chosen, rounding);
    count_common_errors(problem, &chosen, rounding, out);
    return out;
}

Verdict judge_chosen_attention(const AttentionProblem& problem, const ChosenRows& chosen,
                               const ref::RoundingClass& declared, const TierOutputs& outputs) {
    auto tensors = tier_tensors_of(problem, chosen, declared);
    take_outputs(outputs, tensors);
    Verdict verdict = judge_tiers(tensors, declared, [&](const ref::RoundingClass& other, const WantedRows&) {
        return tier_tensors_of(problem, chosen, other);
    });
    if (verdict.failed()) return verdict;
    const std::int64_t keys = longest_row(problem, chosen.rows);
    const std::int64_t queries =
        problem.query_lengths.empty() ? 0 : *std::ranges::max_element(problem.query_lengths);
    verdict.message = describe_reach(tensors, [&](const TierTensor& tensor) {
        if (tensor.role == Role::key_grad || tensor.role == Role::value_grad) return queries;
        return tensor.width > 1 ? keys : 0;
    });
    return verdict;
}

Verdict judge_attention(const AttentionProblem& problem, const ref::RoundingClass& declared,
                        const TierOutputs& outputs, TierScores* scores) {
    auto tensors = tier_tensors(problem, declared);
    take_outputs(outputs, tensors);
    std::optional<AttentionProblem> some;  // tensors refer to it
    const auto problem_of = [&](const WantedRows& wanted) -> const AttentionProblem& {
        return wanted.empty() ? problem : some.emplace(of_rows(problem, wanted));
    };
    return judge_tiers(
        tensors, declared,
        [&](const ref::RoundingClass& other, const WantedRows& wanted) {
            return tier_tensors(problem_of(wanted), other);
        },
        scores, [&](const WantedRows& wanted) { return attention_hypotheses(problem_of(wanted)); });
}

}  // namespace attncheck::properties
