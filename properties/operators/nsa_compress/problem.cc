// A compress problem taken from a case and made into a call again, its expected outputs, and what
// rounding predicts of them.
#include <algorithm>
#include <numeric>

#include "properties/case/values.h"
#include "properties/operators/nsa_compress/case.h"
#include "ref/operators/nsa_compress_noise.h"

namespace attncheck::properties {
namespace {

constexpr const char* kTensorNames[kCmpArguments] = {"input", "weight", "output_grad"};

TierTensor make_tensor(const char* name, Role role, const char* row_word,
                       const CompressProblem& problem, std::int64_t width, std::vector<ref::SequencePlace> places,
                       ref::RoundingNoise noise) {
    TierTensor tensor;
    tensor.name = name;
    tensor.role = role;
    tensor.row_word = row_word;
    tensor.heads = problem.shape.heads;
    tensor.width = width;
    tensor.places = std::move(places);
    tensor.noise = std::move(noise);
    tensor.dtype = problem.dtype;
    return tensor;
}

std::vector<std::vector<std::int64_t>> shapes_in(const Call& call) {
    std::vector<std::vector<std::int64_t>> shapes;
    for (const Tensor& tensor : call.tensors) shapes.push_back(tensor.buffer_shape);
    return shapes;
}

/// Without the elements that a claim has left no place for.
Spec inside(Spec spec, const Call& call) {
    std::erase_if(spec.overrides, [&](const auto& set) {
        const auto& shape = call.tensors[static_cast<std::size_t>(set.first.tensor)].buffer_shape;
        for (std::size_t d = 0; d < shape.size(); ++d)
            if (set.first.index[d] >= shape[d]) return true;
        return false;
    });
    return spec;
}

}  // namespace

Call build_compress_call(const Spec& spec) {
    return build_of(spec, [](const Spec& of, Call& call) {
        for (std::size_t i = 0; i < call.tensors.size(); ++i)
            if (!call.tensors[i].output) fill_by_recipe(of, i, call.tensors[i]);
        apply_overrides(
            inside(of, call), [&](std::size_t i) { return &call.tensors[i].bits; },
            shapes_in(call));
    });
}

ref::CompressShape compress_shape(const Spec& spec) {
    ref::CompressShape shape;
    shape.seq_lengths = spec.lists[0];
    shape.total_tokens =
        std::accumulate(spec.lists[0].begin(), spec.lists[0].end(), spec.numbers[kCmpBeyond]);
    shape.heads = spec.numbers[kCmpHeads];
    shape.head_dim = spec.numbers[kCmpDim];
    shape.block = spec.numbers[kCmpBlock];
    shape.stride = spec.numbers[kCmpStride];
    return shape;
}

CompressProblem::CompressProblem(const Spec& spec)
    : CompressProblem(spec, build_compress_call(without_edits(spec))) {}

CompressProblem::CompressProblem(const Spec& spec, const Call& call)
    : gradient(spec.schema == &compress_description(true)),
      shape(compress_shape(spec)),
      dtype(spec.numbers[kCmpDtype] == 0 ? ref::Dtype::fp16 : ref::Dtype::bf16) {
    for (std::size_t a = 0; a < static_cast<std::size_t>(arguments()); ++a)
        bits[a] = call.tensor(kTensorNames[a]).bits;
}

Call CompressProblem::call() const {
    Spec spec(compress_description(gradient));
    spec.numbers[kCmpDtype] = dtype != ref::Dtype::fp16;
    spec.numbers[kCmpHeads] = shape.heads;
    spec.numbers[kCmpDim] = shape.head_dim;
    spec.numbers[kCmpBlock] = shape.block;
    spec.numbers[kCmpStride] = shape.stride;
    spec.numbers[kCmpBeyond] =
        shape.total_tokens - std::reduce(shape.seq_lengths.begin(), shape.seq_lengths.end());
    spec.lists = {shape.seq_lengths};
    Call call = outline_of(extents_of(spec));
    for (std::size_t a = 0; a < static_cast<std::size_t>(arguments()); ++a)
        call.tensor(kTensorNames[a]).bits = bits[a];
    return call;
}

ExpectedOutputs CompressProblem::expected(const ref::RoundingClass& rounding) const {
    const auto input = values(kCmpInput), weight = values(kCmpWeight);
    ExpectedOutputs out;
    if (!gradient) {
        out.emplace_back("output",
                         ref::expected_nsa_compress(shape, {dtype, rounding}, input, weight));
        return out;
    }
    auto both = ref::expected_nsa_compress_grad(shape, {dtype, rounding}, values(kCmpOutputGrad),
                                                input, weight);
    out.emplace_back("input_grad", std::move(both.input_grad));
    out.emplace_back("weight_grad", std::move(both.weight_grad));
    return out;
}

CompressBlocks::CompressBlocks(const ref::CompressShape& shape)
    : covered(static_cast<std::size_t>(shape.total_tokens)) {
    ref::for_each_block(shape, [&](std::int64_t, std::int64_t first) {
        first_token.push_back(first);
        std::fill_n(covered.begin() + first, shape.block, true);
    });
}

std::vector<TierTensor> compress_tensors(const CompressProblem& problem,
                                         const ref::RoundingClass& rounding) {
    const ref::CompressShape& s = problem.shape;
    const auto input = problem.values(kCmpInput), weight = problem.values(kCmpWeight);
    std::vector<TierTensor> out;
    if (!problem.gradient) {
        std::vector<std::int64_t> blocks;
        for (const auto length : s.seq_lengths) blocks.push_back(s.blocks_of(length));
        out.push_back(
            make_tensor("output", Role::other, "block", problem, s.head_dim,
                        ref::sequence_places(blocks, s.total_blocks()),
                        ref::nsa_compress_noise(s, {problem.dtype, rounding}, input, weight)));
        return out;
    }
    auto noise = ref::nsa_compress_grad_noise(s, {problem.dtype, rounding},
                                              problem.values(kCmpOutputGrad), input, weight);
    out.push_back(make_tensor("input_grad", Role::other, "token", problem, s.head_dim,
                              ref::sequence_places(s.seq_lengths, s.total_tokens),
                              std::move(noise.input_grad)));
    const std::int64_t rows[] = {s.block};
    out.push_back(make_tensor("weight_grad", Role::weight_grad, "weight", problem, 1,
                              ref::sequence_places(rows, s.block), std::move(noise.weight_grad)));
    return out;
}

Verdict judge_compress(const CompressProblem& problem, const ref::RoundingClass& declared,
                       const std::function<std::vector<double>(const std::string&)>& outputs,
                       TierScores* scores) {
    auto tensors = compress_tensors(problem, declared);
    for (TierTensor& tensor : tensors) tensor.got = outputs(tensor.name);
    return judge_tiers(
        tensors, declared,
        [&problem](const ref::RoundingClass& other, const WantedRows&) { return compress_tensors(problem, other); },
        scores);
}

}  // namespace attncheck::properties
