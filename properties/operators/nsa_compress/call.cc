// A compress problem taken from a case, changed parts made into a call again, and what either is
// expected to give.
#include <algorithm>
#include <numeric>

#include "properties/judge/verdict.h"
#include "properties/operators/nsa_compress/case.h"
#include "properties/operators/catalogue.h"

namespace attncheck::properties {

CompressProblem::CompressProblem(const Spec& spec)
    : gradient(spec.schema->op == "nsa_compress_grad"),
      shape(compress_shape(spec)),
      dtype(compress_dtype(spec)) {
    Spec plain = spec;
    plain.edits.clear();
    call = find_operator(spec.schema->op)->build(plain);
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
    const std::vector<std::int64_t> tokens{s.total_tokens, s.heads, s.head_dim},
        weights{s.block, s.heads}, blocks{s.total_blocks(), s.heads, s.head_dim};
    Call call;
    call.op = parts.gradient ? "nsa_compress_grad" : "nsa_compress";
    const auto add = [&](const char* name, bool output, const auto& shape,
                         std::vector<std::uint32_t> bits) {
        call.tensors.push_back(make_tensor(name, output, parts.dtype, shape, std::move(bits)));
    };
    if (parts.gradient) add("output_grad", false, blocks, parts.output_grad);
    add("input", false, tokens, parts.input);
    add("weight", false, weights, parts.weight);
    if (parts.gradient) {
        add("input_grad", true, tokens, {});
        add("weight_grad", true, weights, {});
    } else {
        add("output", true, blocks, {});
    }
    call.arrays.push_back(
        {"act_seq_len", true, std::ssize(s.seq_lengths), cumulative(s.seq_lengths)});
    call.texts.push_back({"layout", "TND"});
    call.numbers = {
        {"compress_block_size", s.block}, {"compress_stride", s.stride}, {"act_seq_len_type", 0}};
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
