#include "properties/operators/nsa_module/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "properties/case/values.h"
#include "properties/operators/nsa_module/operators.h"

namespace attncheck::properties {
namespace nsa_module {
namespace {

class ModuleOperator final : public Operator {
public:
    ModuleOperator() : required_(nsa_module::required_classes()) {
        add_agreement(properties_);
        add_relations(properties_);
        add_handover(properties_);
    }

    const Schema& schema() const override { return description(); }
    std::vector<std::string> entry_points() const override { return module_operators(); }
    const std::vector<Property>& properties() const override { return properties_; }
    const std::vector<RequiredClass>& required_classes() const override { return required_; }
    std::vector<ExcludedPairs> excluded_pairs() const override {
        return nsa_module_excluded_pairs();
    }
    std::vector<std::string> labels(const Spec& spec) const override { return labels_of(spec); }
    Spec draw(Random& random, int size, Profile) const override {
        return nsa_module::sample(schema(), random, size);
    }
    std::vector<Spec> joint_shrinks(const Spec& spec) const override;

private:
    std::vector<Property> properties_;
    std::vector<RequiredClass> required_;
};

std::vector<Spec> ModuleOperator::joint_shrinks(const Spec& spec) const {
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

std::optional<std::string> element_rules(const Spec& spec) {
    if (spec.recipe >= Recipe::spiky)
        return fmt::format(
            "data={} may leave the range of a tensor that one operator hands to the next; "
            "allowed: zeros ones ints onehot signs normal cancelling",
            name_of(spec.recipe));
    for (std::size_t i = 0; i < spec.layouts.size(); ++i)
        if (spec.layouts[i] != Layout::dense)
            return fmt::format("{}.layout={}: layouts are for single operators",
                               spec.schema->tensors[i].name, name_of(spec.layouts[i]));
    return std::nullopt;
}

Call build_call(const Spec& spec) {
    if (!spec.edits.empty())
        throw std::invalid_argument("case: nsa_module has no arguments to break");
    return make_call(parts_of(spec), description());
}

Parts parts_without_values(const Spec& spec) {
    Parts parts;
    const Extents extents = extents_of(spec);
    const auto& n = spec.numbers;
    parts.dtype = n[kDtype] == 0 ? ref::Dtype::fp16 : ref::Dtype::bf16;
    parts.tied = n[kTied] != 0;
    parts.forced = n[kForced] != 0;
    parts.scale = scale_of(static_cast<ScaleKind>(n[kScale]), n[kDim]);
    ref::NsaModuleShape& s = parts.shape;
    s.lengths = spec.lists[0];
    s.tokens = extents.rows("seq");
    s.kv_heads = n[kKvHeads];
    s.query_heads = extents["query_heads"];
    s.head_dim = n[kDim];
    s.value_dim = n[kValueDim];
    s.block = n[kBlock];
    s.stride = n[kStride];
    s.select_block = n[kSelect];
    s.select_count = n[kCount];
    s.window = n[kWindow];
    s.scale = static_cast<float>(parts.scale);
    return parts;
}

Parts parts_of(const Spec& spec) {
    Parts parts = parts_without_values(spec);
    fill_data(spec, parts);
    apply_overrides(spec, [&](std::size_t input) { return &parts.bits[input]; });
    return parts;
}

Spec spec_of(const Parts& parts, const Description& description) {
    const ref::NsaModuleShape& s = parts.shape;
    Spec spec(description);
    auto& n = spec.numbers;
    n[kDtype] = parts.dtype != ref::Dtype::fp16;
    n[kKvHeads] = s.kv_heads;
    n[kGroup] = s.query_heads / s.kv_heads;
    n[kDim] = s.head_dim;
    n[kValueDim] = s.value_dim;
    n[kBlock] = s.block;
    n[kStride] = s.stride;
    n[kSelect] = s.select_block;
    n[kCount] = s.select_count;
    n[kWindow] = s.window;
    n[kTied] = parts.tied;
    n[kForced] = parts.forced;
    n[kBeyond] = s.tokens - std::reduce(s.lengths.begin(), s.lengths.end());
    spec.lists = {s.lengths};
    return spec;
}

Call make_call(const Parts& parts, const Description& description) {
    Call call = outline_of(extents_of(spec_of(parts, description)));
    call.reals[0].value = parts.scale;
    for (std::size_t input = 0; input < kInputs; ++input)
        call.tensors[input].bits = parts.bits[input];
    return call;
}

std::string gradient_name(int input) {
    return description().tensors[static_cast<std::size_t>(input)].name + "_grad";
}

}  // namespace nsa_module

std::unique_ptr<Operator> make_nsa_module() {
    return std::make_unique<nsa_module::ModuleOperator>();
}

}  // namespace attncheck::properties
