// A compress problem taken from a case, changed parts made into a call again, and what either is
// expected to give.
#include <algorithm>
#include <numeric>

#include "properties/judge/verdict.h"
#include "properties/operators/nsa_compress/case.h"

namespace attncheck::properties {

CompressProblem::CompressProblem(const Spec& spec)
    : gradient(spec.schema->op == "nsa_compress_grad"),
      shape(compress_shape(spec)),
      dtype(compress_dtype(spec)) {
    Spec plain = spec;
    plain.edits.clear();
    call = build_compress_call(plain);
}

ExpectedOutputs CompressProblem::expected(const ref::RoundingClass& rounding) const {
    return expected_of(parts_of(*this), rounding);
}

CompressParts parts_of(const CompressProblem& problem) {
    CompressParts parts;
    parts.gradient = problem.gradient;
    parts.dtype = problem.dtype;
    parts.shape = problem.shape;
    parts.input = problem.call.tensor("input").bits;
    parts.weight = problem.call.tensor("weight").bits;
    if (problem.gradient) parts.output_grad = problem.call.tensor("output_grad").bits;
    return parts;
}

ExpectedOutputs expected_of(const CompressParts& parts, const ref::RoundingClass& rounding) {
    const auto input = decode_all(parts.dtype, parts.input),
               weight = decode_all(parts.dtype, parts.weight);
    ExpectedOutputs out;
    if (!parts.gradient) {
        out.emplace_back("output", ref::expected_nsa_compress(parts.shape, parts.dtype, input,
                                                              weight, rounding));
        return out;
    }
    auto both = ref::expected_nsa_compress_grad(parts.shape, parts.dtype,
                                                decode_all(parts.dtype, parts.output_grad), input,
                                                weight, rounding);
    out.emplace_back("input_grad", std::move(both.input_grad));
    out.emplace_back("weight_grad", std::move(both.weight_grad));
    return out;
}

Call make_compress_call(const CompressParts& parts) {
    const ref::CompressShape& s = parts.shape;
    Spec spec(compress_description(parts.gradient));
    spec.set("dtype", parts.dtype == ref::Dtype::fp16 ? 0 : 1);
    spec.set("heads", s.heads);
    spec.set("dim", s.head_dim);
    spec.set("block", s.block);
    spec.set("stride", s.stride);
    spec.lists = {s.seq_lengths};
    spec.set("beyond", s.total_tokens - std::reduce(s.seq_lengths.begin(), s.seq_lengths.end()));
    Call call = outline_of(extents_of(spec));
    call.tensor("input").bits = parts.input;
    call.tensor("weight").bits = parts.weight;
    if (parts.gradient) call.tensor("output_grad").bits = parts.output_grad;
    return call;
}

CompressBlocks::CompressBlocks(const ref::CompressShape& shape)
    : covered(static_cast<std::size_t>(shape.total_tokens)) {
    ref::for_each_block(shape, [&](std::int64_t, std::int64_t first) {
        first_token.push_back(first);
        std::fill_n(covered.begin() + first, shape.block, true);
    });
}

}  // namespace attncheck::properties
