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
        all.push_back(make_attention_decode());
        all.push_back(make_attention_merge());
        all.push_back(make_attention());
        all.push_back(make_attention_grad());
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

}  // namespace attncheck::properties
