#include "properties/judge/bound_evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "properties/case/number_text.h"
#include "ref/bounds/probabilistic.h"

namespace attncheck::properties {
namespace {

using ref::RoundingClass;

constexpr const char *kRigorous = "rigorous", *kProbabilistic = "probabilistic";

/// A word of a declaration, and the class without it.
struct Word {
    std::string text;
    RoundingClass without;
};

std::vector<Word> words_of(const RoundingClass& declared) {
    const RoundingClass usual;
    std::vector<Word> out;
    const auto add = [&](const char* text, auto RoundingClass::*field) {
        if (declared.*field == usual.*field) return;
        Word word{text, declared};
        word.without.*field = usual.*field;
        out.push_back(std::move(word));
    };
    add(declared.parts_rounded ? "split=half" : "split=lse", &RoundingClass::lse_split);
    add("stats=lse", &RoundingClass::lse_statistics);
    add("scores=half", &RoundingClass::scores_rounded);
    add("p=kept", &RoundingClass::prob_kept);
    add("delta=half", &RoundingClass::delta_rounded);
    add("group=half", &RoundingClass::group_rounded);
    add("in", &RoundingClass::factor);
    add("ftz=all", &RoundingClass::flush_subnormals);
    add("forward=own", &RoundingClass::own_forward);
    add("steps=half", &RoundingClass::steps_rounded);
    add("tanh", &RoundingClass::tanh_error);
    add("scale", &RoundingClass::scaling);
    return out;
}

/// visit(error, element, expectation) for every finite element that has a bound.
template <class Visit>
void for_each_error(const Call& call, const CallResult& result, const ExpectedOutputs& expected,
                    const Visit& visit) {
    for (std::size_t t = 0; t < expected.size(); ++t) {
        const auto& [name, values] = expected[t];
        const Tensor& tensor = call.tensor(name);
        if (tensor.withheld) continue;
        const auto& bits = result.outputs[tensor_index(call, name)];
        for (std::size_t k = 0; k < std::min(bits.size(), values.size()); ++k) {
            const double got = ref::decode(tensor.type(), bits[k]);
            if (std::isfinite(got) && std::isfinite(values.value[k]) &&
                values.overflow[k] == ref::Overflow::none)
                visit(std::fabs(got - values.value[k]), t, k);
        }
    }
}

double worst_ratio(const Call& call, const CallResult& result, const ExpectedOutputs& expected) {
    double worst = 0;
    for_each_error(call, result, expected, [&](double error, std::size_t t, std::size_t k) {
        worst = std::max(worst, error_ratio(error, expected[t].second.bound[k]));
    });
    return worst;
}

/// The bound grows with N all but linearly: N is where it meets the error.
double exp_that_is_needed(const Call& call, const CallResult& result, double declared,
                          const ExpectedOutputs& with, const ExpectedOutputs& exact) {
    double needed = 0;
    for_each_error(call, result, with, [&](double error, std::size_t t, std::size_t k) {
        const double least = exact[t].second.bound[k], most = with[t].second.bound[k];
        if (error <= least || !std::isfinite(most) || most <= least) return;
        needed = std::max(needed, declared * (error - least) / (most - least));
    });
    return needed;
}

const BoundEvidence* find(const std::vector<BoundEvidence>& all, const std::string& name) {
    const auto at = std::ranges::find(all, name, &BoundEvidence::name);
    return at == all.end() ? nullptr : &*at;
}

}  // namespace

std::vector<BoundEvidence> bound_evidence(
    double rigorous, const Call& call, const CallResult& result, const RoundingClass& declared,
    const std::function<ExpectedOutputs(const RoundingClass&)>& expected) {
    std::vector<BoundEvidence> out{{kRigorous, rigorous, 1}};
    {
        const ref::ProbabilisticGamma probabilistic;
        out.push_back({kProbabilistic, worst_ratio(call, result, expected(declared)), 1});
    }
    for (const Word& word : words_of(declared))
        out.push_back({word.text, worst_ratio(call, result, expected(word.without)), 1});
    if (declared.exp_error > RoundingClass{}.exp_error) {
        RoundingClass exact = declared;
        exact.exp_error = 0;
        out.push_back({"exp", exp_that_is_needed(call, result, declared.exp_error,
                                                 expected(declared), expected(exact)), 1});
    }
    return out;
}

std::string beside_rigorous(const std::vector<BoundEvidence>& evidence) {
    const BoundEvidence *rigorous = find(evidence, kRigorous),
                        *probabilistic = find(evidence, kProbabilistic);
    if (!rigorous || !probabilistic) return {};
    return fmt::format(
        "bounds: worst error {:.3g} of the rigorous bound, {:.3g} of the probabilistic one ({})\n",
        rigorous->worst, probabilistic->worst, counted(rigorous->cases, "case"));
}

std::string narrower_words(const RoundingClass& declared,
                           const std::vector<BoundEvidence>& evidence) {
    std::string text;
    const auto add = [&](const std::string& one) { text += (text.empty() ? "" : "; ") + one; };
    const BoundEvidence* const exp = find(evidence, "exp");
    if (exp && 2 * exp->worst < declared.exp_error)
        add(fmt::format("declared exp={:g}, errors look like exp <= {:.2g} ({})",
                        declared.exp_error, std::max(exp->worst, RoundingClass{}.exp_error),
                        counted(exp->cases, "case")));
    for (const Word& word : words_of(declared))
        if (const BoundEvidence* one = find(evidence, word.text); one && one->worst <= 1)
            add(fmt::format("declared {}, errors stay within the bounds without it ({})", word.text, counted(one->cases, "case")));
    return text;
}

}  // namespace attncheck::properties
