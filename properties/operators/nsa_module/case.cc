// The operator, and its larger steps of shrinking.
#include "properties/operators/nsa_module/case.h"

#include <algorithm>

#include "properties/operators/nsa_module/operators.h"

namespace attncheck::properties {
namespace nsa_module {
namespace {

std::vector<Property> properties() {
    std::vector<Property> list;
    add_agreement(list);
    add_relations(list);
    add_handover(list);
    return list;
}

std::vector<Spec> joint_shrinks(const Spec& spec) {
    std::vector<Spec> out;
    const auto& n = spec.numbers;
    const auto with_windows = [&](std::int64_t l, std::int64_t d, std::int64_t select) {
        Spec to = spec;
        to.numbers[kBlock] = l;
        to.numbers[kStride] = d;
        to.numbers[kSelect] = select;
        out.push_back(to);
        // The same number of whole blocks, with as many tokens behind them as fit.
        for (auto& length : to.lists[0])
            length = length / n[kSelect] * select + std::min(length % n[kSelect], select - 1);
        out.push_back(to);
    };
    for (std::int64_t d = 16; d <= n[kStride]; d += 16)
        for (std::int64_t l = d; l <= n[kBlock]; l += 16)
            for (std::int64_t select = (l + d - 1) / d * d; select <= n[kSelect]; select += d)
                if (l != n[kBlock] || d != n[kStride] || select != n[kSelect])
                    with_windows(l, d, select);
    for (std::int64_t group = 1; group < n[kGroup]; group *= 2) {
        Spec to = spec;
        to.numbers[kGroup] = group;
        out.push_back(to);
    }
    Spec narrow = spec;
    narrow.numbers[kDim] = narrow.numbers[kValueDim] = 128;
    out.push_back(narrow);
    return out;
}

}  // namespace
}  // namespace nsa_module

std::unique_ptr<Operator> make_nsa_module() {
    return make_operator({.schema = nsa_module::description(),
                          .properties = nsa_module::properties(),
                          .required = nsa_module::required_classes(),
                          .labels = nsa_module::labels_of,
                          .draw = nsa_module::sample,
                          .joint_shrinks = nsa_module::joint_shrinks,
                          .entry_points = module_operators});
}

}  // namespace attncheck::properties
