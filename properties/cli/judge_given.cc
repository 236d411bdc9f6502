#include "properties/cli/judge_given.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <future>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "properties/case/derived.h"
#include "properties/case/row_order.h"
#include "properties/case/values.h"
#include "properties/cli/given_outputs.h"
#include "properties/cli/judge_parts.h"
#include "properties/judge/attention_hypotheses.h"
#include "properties/judge/attention_tiers.h"
#include "properties/judge/cause_in_message.h"
#include "properties/laws/attention_full_size.h"
#include "properties/laws/attention_run.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// A reference of more products of a query and a key channel takes longer than a second.
constexpr double kMostProducts = 4e8;

bool is_number_of_problem(Role role) {
    return role == Role::query || role == Role::key || role == Role::value ||
           role == Role::output_grad || role == Role::output || role == Role::row_max ||
           role == Role::row_sum;
}

/// An input that was given, in packed order.
struct GivenInput {
    int tensor;
    Role role;
    ref::Dtype dtype;
    std::vector<Int> shape;
    Bits bits;
};
template <class Which>
std::vector<GivenInput> inputs_of(const GivenCall& given, const Spec& spec, const Which& which) {
    const Extents extents = extents_of(spec);
    const auto shapes = shapes_of(extents);
    std::vector<GivenInput> inputs;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        const TensorField& field = spec.schema->tensors[i];
        const auto it = given.bits.find(field.name);
        if (!field.output && it != given.bits.end() && which(field.role))
            inputs.push_back({static_cast<int>(i), field.role, extents.type_of(field), shapes[i],
                              RowOrder(field, extents).from_memory(it->second)});
    }
    return inputs;
}

/// Elements of the inputs as overrides; `which` of them.
template <class Which>
void override_inputs(const GivenCall& given, Spec& spec, const Which& which) {
    for (const GivenInput& input : inputs_of(given, spec, which)) {
        const auto& shape = input.shape;
        ElementRef at{input.tensor, {}};
        const auto total = static_cast<std::size_t>(
            std::accumulate(shape.begin(), shape.end(), Int{1}, std::multiplies<>()));
        if (total == 0 || total != input.bits.size()) continue;  // contents are documented
        for (std::size_t k = 0; k < total; ++k) {
            spec.overrides.emplace_hint(spec.overrides.end(), at,
                                        ref::decode(input.dtype, input.bits[k]));
            for (std::size_t d = shape.size(); d-- > 0;) {
                if (++at.index[d] < shape[d]) break;
                at.index[d] = 0;
            }
        }
    }
}

std::vector<float> first_lanes(const Bits& bits, Int lanes) {
    std::vector<float> out;
    for (std::size_t k = 0; k < bits.size(); k += static_cast<std::size_t>(lanes))
        out.push_back(static_cast<float>(ref::decode(ref::Dtype::fp32, bits[k])));
    return out;
}

/// The given numbers in place of the case's.
void take_numbers(const GivenCall& given, const Spec& spec, AttentionProblem& problem) {
    const auto inputs = inputs_of(
        given, spec, [](Role role) { return is_number_of_problem(role) || role == Role::lse; });
    const auto take = [&](Role role, Bits& numbers) {
        Bits joined;
        Int width = 0;
        for (const GivenInput& input : inputs) {
            if (input.role != role) continue;
            joined = beside(joined, width, input.bits, input.shape.back());
            width = input.shape.back();
        }
        if (!joined.empty()) numbers = std::move(joined);
    };
    take(Role::query, problem.query);
    take(Role::key, problem.key);
    take(Role::value, problem.value);
    take(Role::output_grad, problem.output_grad);
    if (!problem.gradient) return;
    take(Role::output, problem.output);
    for (const GivenInput& input : inputs) {
        if (input.role == Role::row_max)
            problem.row_max = first_lanes(input.bits, input.shape.back());
        if (input.role == Role::row_sum)
            problem.row_sum = first_lanes(input.bits, input.shape.back());
        if (input.role == Role::lse) take_lse(first_lanes(input.bits, 1), problem);
    }
}

void take_reals(const GivenArguments& arguments, AttentionProblem& problem) {
    for (const auto& [name, value] : arguments.reals) {
        if (name.starts_with("scale")) problem.scale = static_cast<float>(value);
        if (name == "softcap") problem.softcap = static_cast<float>(value);
        if (name == "keep_prob") problem.keep_prob = static_cast<float>(value);
    }
}

/// Finite numbers around 0, as the tiers' model of rounding wants them.
bool is_centred(const Bits& bits, ref::Dtype dtype, double& deviation) {
    constexpr double kFar = 5;  // standard errors
    double sum = 0, squares = 0;
    for (const std::uint32_t one : bits) {
        const double value = ref::decode(dtype, one);
        if (!std::isfinite(value)) return false;
        sum += value;
        squares += value * value;
    }
    const auto n = static_cast<double>(bits.size());
    if (!(n > 1) || !(squares > 0)) return false;
    deviation = std::sqrt(squares / n);
    return std::fabs(sum) <= kFar * deviation * std::sqrt(n);
}

bool has_tier_data(const AttentionProblem& problem) {
    constexpr double kLeastSpread = 1e-3, kMostSpread = 4;
    double query = 0, key = 0, other = 0;
    if (!is_centred(problem.query, problem.dtype, query) ||
        !is_centred(problem.key, problem.dtype, key) ||
        !is_centred(problem.value, problem.dtype, other))
        return false;
    if (problem.gradient && !is_centred(problem.output_grad, problem.dtype, other)) return false;
    const double spread = std::fabs(problem.scale) * query * key *
                          std::sqrt(static_cast<double>(problem.shape.head_dim));
    return spread >= kLeastSpread && spread <= kMostSpread;
}

/// No infinities: what a kernel computed instead can be told by its outputs.
bool has_finite_data(const AttentionProblem& problem) {
    const auto is_finite = [&](const Bits& bits) {
        return std::ranges::all_of(bits, [&](std::uint32_t one) { return std::isfinite(ref::decode(problem.dtype, one)); });
    };
    return is_finite(problem.query) && is_finite(problem.key) && is_finite(problem.value) && is_finite(problem.output_grad);
}

/// Rows times keys times channels.
double products_of(const AttentionProblem& problem) {
    double pairs = 0;
    for (std::size_t b = 0; b < problem.query_lengths.size(); ++b)
        pairs += static_cast<double>(problem.query_lengths[b]) *
                 static_cast<double>(problem.kv_lengths[b]);
    return pairs * static_cast<double>(problem.shape.query_heads *
                                       (problem.shape.head_dim + problem.shape.value_dim));
}

class AttentionJudge {
public:
    AttentionJudge(const AttentionOperator& of, const Spec& spec, const GivenCall& given,
                   const ref::RoundingClass& rounding, AttentionProblem problem)
        : of_(of), spec_(spec), given_(given), rounding_(rounding), problem_(std::move(problem)),
          call_(outline_of(extents_of(spec))) {
        take_reals(given.arguments, problem_);
        take_numbers(given, spec, problem_);
    }

    Verdict run(std::int64_t samples, std::vector<std::string>& judged) {
        for (const Tensor& tensor : call_.tensors)
            if (tensor.output && has(tensor.name)) judged.push_back(tensor.name);
        if (judged.empty()) throw std::invalid_argument("no output is given");
        if (products_of(problem_) > kMostProducts) return sampled(samples, judged);
        form_statistics();
        return whole(judged);
    }

private:
    /// A gradient that is given no statistics: those of the reference, on the given output.
    void form_statistics() {
        if (!problem_.gradient || problem_.statistics != Statistics::none) return;
        Bits output = std::move(problem_.output);
        give_reference_forward(problem_);
        problem_.output = std::move(output);
    }

    bool has(const std::string& tensor) const { return given_.bits.contains(tensor); }

    /// Sums over all rows (dbias, dsink) have no rows to choose, and a gradient without an LSE needs
    /// the statistics of all rows: both would take the whole reference.
    Verdict sampled(std::int64_t samples, std::vector<std::string>& judged) {
        if (problem_.gradient && problem_.statistics == Statistics::none)
            throw std::invalid_argument(
                "lse is missing: a gradient of this size is judged with the LSE that it was given");
        std::string left_out;
        for (const AttentionOutput& output : problem_.outputs())
            if (output.is_sum && std::erase(judged, output.name) > 0)
                left_out += fmt::format("\n  {}: not judged at this size, every element is a sum over all rows",
                                        output.name);
        GivenOutputs candidate(given_);
        PropertyContext context{candidate, rounding_, nullptr, samples};
        FullSizeAttention size = full_size(of_, spec_, problem_, 0);
        size.has_tiers = has_tier_data(problem_);
        Verdict verdict = check_sampled(std::move(size), context);
        if (!verdict.failed()) verdict.message += left_out;
        return verdict;
    }

    CallResult result() const {
        CallResult made;
        for (const Tensor& tensor : call_.tensors)
            made.outputs.push_back(tensor.output && has(tensor.name) ? given_.bits.at(tensor.name)
                                                                     : Bits{});
        return made;
    }

    Verdict whole(const std::vector<std::string>& judged) const {
        const auto is_judged = [&](const std::string& name) {
            return std::ranges::find(judged, name) != judged.end();
        };
        const CallResult made = result();
        const auto by_tiers = [&] {
            return judge_tiers(
                tensors(judged, made, rounding_), rounding_,
                [&](const ref::RoundingClass& other, const WantedRows&) { return tensors(judged, made, other); },
                nullptr, [&](const WantedRows& wanted) { return hypotheses(wanted); });
        };
        // The tiers take nearly as long as the reference, and need nothing of it.
        std::future<std::optional<Verdict>> beside =
            std::async(std::launch::async, [&]() -> std::optional<Verdict> {
                if (!has_tier_data(problem_)) return std::nullopt;
                return by_tiers();
            });
        const ExpectedOutputs packed = expected_of(problem_, rounding_);
        ExpectedOutputs expected = in_call_order(problem_, packed);
        std::erase_if(expected, [&](const auto& one) { return !is_judged(one.first); });
        Verdict verdict = verdict_on_values(spec_, call_, made, expected);
        for (const AttentionOutput& output : problem_.outputs())
            if (output.is_list() && is_judged(output.name))
                join(verdict, of_.judge_lists(problem_, packed_bits(output, call_, made), rounding_));
        std::optional<Verdict> tiers = beside.get();
        // Of other data, such as large logits, they do not say what rounding does, but what was computed in place of the right.
        if (!tiers && verdict.failed() && has_finite_data(problem_)) tiers = by_tiers();
        if (!tiers) return verdict;
        if (verdict.failed()) {
            if (const std::string text = text_of_base_2(is_judged, made, packed); !text.empty())
                verdict.message += "\n  looks like  " + text;
            else if (const std::string cause = cause_in(tiers->message); !cause.empty()) verdict.message += "\n  looks like  " + cause;
            return verdict;
        }
        tiers->worst_ratio = std::max(verdict.worst_ratio, tiers->worst_ratio);
        return *std::move(tiers);
    }

    /// Where the LSE is that of base 2.
    std::string text_of_base_2(const std::function<bool(const std::string&)>& is_judged, const CallResult& made,
                               const ExpectedOutputs& packed) const {
        if (problem_.gradient || problem_.statistics != Statistics::lse || !is_judged("lse")) return {};
        const auto named = lse_of_base_2(problem_, packed_bits(problem_.output_named("lse"), call_, made),
                                         tensor_of(packed, "lse"));
        return named ? named->message.substr(0, named->message.find(';')) : "";
    }

    /// Each is a reference more.
    std::vector<Hypothesis> hypotheses(const WantedRows& wanted) const {
        if (products_of(problem_) > kMostProducts / 10) return {};
        return attention_hypotheses(wanted.empty() ? problem_ : of_rows(problem_, wanted));
    }

    /// What rounding predicts of the outputs that are there, with what they are.
    std::vector<TierTensor> tensors(const std::vector<std::string>& judged, const CallResult& made,
                                    const ref::RoundingClass& rounding) const {
        std::vector<TierTensor> all = tier_tensors(problem_, rounding);
        const auto& outputs = problem_.outputs();
        std::erase_if(all, [&](const TierTensor& tensor) {
            const auto output = std::ranges::find(outputs, tensor.name, &AttentionOutput::name);
            return output == outputs.end() ||
                   !std::ranges::all_of(output->parts, [&](const OutputPart& part) {
                       return std::ranges::find(judged, part.tensor) != judged.end();
                   });
        });
        for (TierTensor& tensor : all) {
            const AttentionOutput& output = problem_.output_named(tensor.name);
            tensor.got = ref::decode_all(output.dtype, packed_bits(output, call_, made));
            if (!output.is_statistic() || output.width == 1) continue;
            std::size_t lane = 0;
            std::erase_if(tensor.got, [&](double) {
                return lane++ % static_cast<std::size_t>(output.width) != 0;
            });
        }
        for (TierTensor& tensor : all) leave_out_empty_rows(tensor);
        return all;
    }

    const AttentionOperator& of_;
    const Spec& spec_;
    const GivenCall& given_;
    const ref::RoundingClass& rounding_;
    AttentionProblem problem_;
    Call call_;
};

/// Operators that are no attention: their agreement on a case with all elements overridden.
Verdict judge_agreement(const Operator& op, const Spec& spec, const GivenCall& given,
                        const ref::RoundingClass& rounding, std::vector<std::string>& judged) {
    for (const Tensor& tensor : op.outline(spec).tensors)
        if (tensor.output && tensor.present) judged.push_back(tensor.name);
    GivenOutputs candidate(given);
    PropertyContext context{candidate, rounding};
    return op.property("agreement")->check(spec, context);
}

/// A real that no case may have. The contract's rules see those of the case.
void check_reals(const GivenArguments& arguments) {
    for (const auto& [name, value] : arguments.reals)
        if (!std::isfinite(value) || (name == "softcap" && value < 0))
            throw std::invalid_argument(fmt::format("{} is {}, allowed: finite{}", name, value,
                                                    name == "softcap" ? " and not negative" : ""));
}

}  // namespace

GivenVerdict judge_given(const Operator& op, const GivenCall& as_passed,
                         const ref::RoundingClass& rounding, Profile profile,
                         std::int64_t samples) {
    const Description& d = op.schema();
    if (!d.entry.pack)
        throw std::invalid_argument(op.name() + " has no arguments of its own: it chains other operators");
    const GivenCall passed = with_usual_numbers(d, as_passed);
    for (const RealField& real : d.reals)
        if (!passed.arguments.reals.contains(real.name))
            throw std::invalid_argument(real.name + " is missing");
    check_reals(passed.arguments);
    const GivenCall given = as_a_case(d, passed);
    GivenVerdict out;
    out.spec = spec_from_arguments(d, given.arguments, profile);
    if (const auto why = op.illegal(out.spec)) throw std::invalid_argument(*why);
    if (const AttentionOperator* const attention = op.attention()) {
        Spec spec = out.spec;
        if (!is_neutral(d))
            override_inputs(given, spec, [](Role role) { return !is_number_of_problem(role); });
        AttentionJudge judge(*attention, spec, given, rounding,
                             is_neutral(d) ? neutral_given(spec, passed) : attention->inputs(spec));
        out.verdict = judge.run(samples, out.judged);
        return out;
    }
    Spec spec = out.spec;
    override_inputs(given, spec, [](Role) { return true; });
    out.verdict = judge_agreement(op, spec, given, rounding, out.judged);
    return out;
}

}  // namespace attncheck::properties
