// NsaCompress and NsaCompressGrad as cases: fields, generator, legality, and how a Spec becomes a
// call.
//
//   nsa_compress{dtype=bf16 seq=[0,128,144] heads=4 dim=128 block=32 stride=16 data=normal seed=7}
//
// seq holds the lengths of the single sequences (the call gets their cumulative sums); beyond adds
// rows behind the last sequence. The gradient also knows lengths=absent (a NULL length array: one
// sequence) and layout=absent.
#pragma once

#include <array>

#include "properties/judge/tiers.h"
#include "properties/judge/verdict.h"
#include "properties/operators/operator.h"
#include "ref/operators/nsa_compress.h"

namespace attncheck::properties {

/// Numbers of the Spec, in schema order; the gradient alone has the last two.
enum CompressField {
    kCmpDtype,
    kCmpHeads,
    kCmpDim,
    kCmpBlock,
    kCmpStride,
    kCmpBeyond,
    kCmpLengths,
    kCmpLayoutText
};

/// The arguments in which a compression is linear; the forward has the first two.
enum CompressArgument { kCmpInput, kCmpWeight, kCmpOutputGrad, kCmpArguments };

/// A compress problem: what relations change and run again, and what the reference needs. Bits are
/// row-major.
struct CompressProblem {
    bool gradient = false;
    ref::CompressShape shape;
    ref::Dtype dtype = ref::Dtype::fp16;
    std::array<std::vector<std::uint32_t>, kCmpArguments> bits;

    /// The problem of a case, edits left out, and of its call.
    explicit CompressProblem(const Spec& spec);
    CompressProblem(const Spec& spec, const Call& call);

    int arguments() const { return gradient ? kCmpArguments : kCmpOutputGrad; }
    std::vector<double> values(int argument) const {
        return decode_all(dtype, bits[static_cast<std::size_t>(argument)]);
    }
    /// The call, all layouts dense.
    Call call() const;
    /// Expected outputs by tensor name, in the order of the call.
    ExpectedOutputs expected(const ref::RoundingClass& rounding) const;
};

const Description& compress_description(bool gradient);
Call build_compress_call(const Spec& spec);  ///< with its edits
ref::CompressShape compress_shape(const Spec& spec);

/// Blocks (output row, first token) in output order, and for each token whether a block covers it.
struct CompressBlocks {
    std::vector<std::int64_t> first_token;
    std::vector<bool> covered;
    explicit CompressBlocks(const ref::CompressShape& shape);
};

/// Second and third tier: what rounding predicts, and the verdict on outputs by name.
std::vector<TierTensor> compress_tensors(const CompressProblem& problem,
                                         const ref::RoundingClass& rounding);
Verdict judge_compress(const CompressProblem& problem, const ref::RoundingClass& declared,
                       const std::function<std::vector<double>(const std::string&)>& outputs,
                       TierScores* scores = nullptr);

std::vector<Spec> compress_large_cases(const Schema& schema, std::int64_t length,
                                       std::uint64_t seed);

std::unique_ptr<Operator> make_nsa_compress(bool gradient);

/// The properties of both operators: single runs (properties.cc), relations between runs, and those
/// that follow from linearity.
std::vector<Property> compress_properties(bool gradient);
void add_compress_relations(std::vector<Property>& list);
void add_compress_linear_relations(std::vector<Property>& list, bool gradient);

}  // namespace attncheck::properties
