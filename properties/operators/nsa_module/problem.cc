// The NSA module as a problem: from a Spec to dense parts, and from parts to a call.
#include <numeric>
#include <stdexcept>

#include "properties/case/values.h"
#include "properties/operators/nsa_module/case.h"

namespace attncheck::properties::nsa_module {

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

}  // namespace attncheck::properties::nsa_module
