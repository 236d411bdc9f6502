// The list of operators: one line each.
#include "properties/operators/catalogue.h"

#include <algorithm>

#include "properties/operators/attention/case.h"
#include "properties/operators/attention_decode/case.h"
#include "properties/operators/attention_merge/problem.h"
#include "properties/operators/flash_attention/case.h"
#include "properties/operators/nsa_compress_attention/case.h"
#include "properties/operators/nsa_compress/case.h"
#include "properties/operators/nsa_module/case.h"
#include "properties/operators/nsa_selected_attention/case.h"

namespace attncheck::properties {

namespace {

/// The other direction of an operator.
bool is_sibling(const std::string& one, const std::string& other) {
    return one + "_grad" == other || other + "_grad" == one;
}

}  // namespace

const std::vector<std::unique_ptr<Operator>>& operators() {
    static const auto list = [] {
        std::vector<std::unique_ptr<Operator>> all;
        const auto both = [&](auto make) {
            for (const bool gradient : {false, true}) all.push_back(make(gradient));
        };
        both(make_nsa_compress);
        both(make_nsa_selected_attention);
        all.push_back(make_nsa_compress_attention());
        both(make_flash_attention_score);
        all.push_back(make_nsa_module());
        all.push_back(make_attention_decode());
        all.push_back(make_attention_merge());
        both(make_attention);
        return all;
    }();
    return list;
}

const Operator* find_operator(std::string_view name) {
    const auto& all = operators();
    const auto it =
        std::find_if(all.begin(), all.end(), [&](const auto& op) { return op->name() == name; });
    return it == all.end() ? nullptr : it->get();
}

/// Of two operators at most: with the case and its neighbour they are as many as run at once. A forward
/// and its gradient share most of a library's state, so that the sibling comes first. A kernel of few
/// shapes declines most cases that are drawn, so that each second one is a call as people make it.
std::vector<Call> companion_calls(const Spec& spec, const CandidateInfo& info) {
    constexpr std::size_t kMost = 2;
    constexpr int kSize = 4;
    Random random(mix(spec.seed ^ 0xc0117a));
    std::vector<const Operator*> others;
    for (const auto& op : operators())
        if (op->name() != spec.schema->op && !op->is_composition() && op->implemented_by(info))
            others.push_back(op.get());
    std::vector<Call> calls;
    while (calls.size() < kMost && !others.empty()) {
        const auto sibling = std::ranges::find_if(others, [&](const Operator* other) {
            return is_sibling(spec.schema->op, other->name());
        });
        const auto at = sibling != others.end() ? sibling - others.begin()
                                                : random.between(0, std::ssize(others) - 1);
        const Operator& op = *others[static_cast<std::size_t>(at)];
        Spec other = random.chance(50) ? op.plain(random, spec.profile)
                                       : op.sample(random, kSize, spec.profile);
        std::ranges::fill(other.layouts, Layout::dense);
        if (!illegal(other)) calls.push_back(other.schema->build(other));
        others.erase(others.begin() + at);
    }
    return calls;
}

std::vector<const Schema*> schemas() {
    std::vector<const Schema*> out;
    for (const auto& op : operators()) out.push_back(&op->schema());
    return out;
}

}  // namespace attncheck::properties
