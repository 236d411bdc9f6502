// The list of operators: one line each.
#include <algorithm>

#include "properties/operators/flash_attention/case.h"
#include "properties/operators/nsa_compress_attention/case.h"
#include "properties/operators/nsa_compress/case.h"
#include "properties/operators/nsa_module/case.h"
#include "properties/operators/nsa_selected_attention/case.h"
#include "properties/operators/operator.h"

namespace attncheck::properties {

const std::vector<std::unique_ptr<Operator>>& operators() {
    static const auto list = [] {
        std::vector<std::unique_ptr<Operator>> all;
        all.push_back(make_nsa_compress());
        all.push_back(make_nsa_compress_grad());
        all.push_back(make_nsa_selected_attention());
        all.push_back(make_nsa_selected_attention_grad());
        all.push_back(make_nsa_compress_attention());
        all.push_back(make_flash_attention_score());
        all.push_back(make_flash_attention_score_grad());
        all.push_back(make_nsa_module());
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

std::vector<const Schema*> schemas() {
    std::vector<const Schema*> out;
    for (const auto& op : operators()) out.push_back(&op->schema());
    return out;
}

std::string tier_of(const Property& property, const Verdict& verdict) {
    const auto begins = [&](std::string_view text) { return verdict.failure.starts_with(text); };
    if (begins("crashed") || begins("timed out") || begins("out of memory")) return "crash";
    if (begins("out of bounds") || begins("memory:") || verdict.failure.ends_with("not written"))
        return "memory";
    if (property.validation) return "validation";
    return verdict.tier.empty() ? "relation" : verdict.tier;
}

Spec Operator::sample(Random& random, int size, Profile profile) const {
    Spec spec = draw(random, size, profile);
    spec.profile = profile;
    return spec;
}

bool Operator::implemented_by(const CandidateInfo& candidate) const {
    const auto needed = entry_points();
    return std::all_of(needed.begin(), needed.end(),
                       [&](const std::string& entry) { return candidate.implements(entry); });
}

const Property* Operator::property(std::string_view name) const {
    const auto& all = properties();
    const auto it =
        std::find_if(all.begin(), all.end(), [&](const Property& p) { return p.name == name; });
    return it == all.end() ? nullptr : &*it;
}

}  // namespace attncheck::properties
