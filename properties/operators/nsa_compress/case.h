// NsaCompress and NsaCompressGrad as cases: fields, generator, legality, and how a Spec becomes a
// call.
//
//   nsa_compress{dtype=bf16 seq=[0,128,144] heads=4 dim=128 block=32 stride=16 data=normal seed=7}
//
// seq holds the lengths of the single sequences (the call gets their cumulative sums); beyond adds
// rows behind the last sequence. The gradient also knows lengths=absent (a NULL length array: one
// sequence) and layout=absent.
#pragma once

#include "properties/judge/verdict.h"
#include "properties/operators/operator.h"
#include "properties/judge/tiers.h"
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

/// A compress call taken apart again: what the properties transform and the reference needs.
struct CompressProblem {
    bool gradient = false;
    ref::CompressShape shape;
    ref::Dtype dtype = ref::Dtype::fp16;
    Call call;  ///< edits not applied

    explicit CompressProblem(const Spec& spec);

    std::vector<double> values(std::string_view tensor) const {
        return call.tensor(tensor).values();
    }

    /// Expected outputs by tensor name, in the order of the call.
    ExpectedOutputs expected(const ref::RoundingClass& rounding) const;
};

const Description& compress_description(bool gradient);
Call build_compress_call(const Spec& spec);  ///< with its edits
ref::CompressShape compress_shape(const Spec& spec);
ref::Dtype compress_dtype(const Spec& spec);

/// The call for explicit parts: row-major bits of the inputs that the operator has, dense layouts.
struct CompressParts {
    bool gradient = false;
    ref::Dtype dtype = ref::Dtype::fp16;
    ref::CompressShape shape;
    std::vector<std::uint32_t> input, weight, output_grad;
};
Call make_compress_call(const CompressParts& parts);
/// The problem as dense parts, to be changed and built again.
CompressParts parts_of(const CompressProblem& problem);
ExpectedOutputs expected_of(const CompressParts& parts, const ref::RoundingClass& rounding);

/// Blocks (output row, first token) in output order, and for each token whether a block covers it.
struct CompressBlocks {
    std::vector<std::int64_t> first_token;
    std::vector<bool> covered;
    explicit CompressBlocks(const ref::CompressShape& shape);
};

/// Second and third tier (nsa_compress_tiers.cc): what rounding predicts, and the verdict on
/// outputs by name.
std::vector<TierTensor> compress_tensors(const CompressProblem& problem,
                                         const ref::RoundingClass& rounding);
Verdict judge_compress(const CompressProblem& problem, const ref::RoundingClass& declared,
                       const std::function<std::vector<double>(const std::string&)>& outputs,
                       TierScores* scores = nullptr);

Spec sample_compress(const Schema& schema, Random& random, int size);
std::vector<std::string> compress_labels(const Spec& spec);
std::vector<RequiredClass> compress_required_classes(bool gradient);

const std::vector<ExcludedPairs>& nsa_compress_excluded_pairs();
std::unique_ptr<Operator> make_nsa_compress();
std::unique_ptr<Operator> make_nsa_compress_grad();

/// The properties of both operators (nsa_compress_properties.cc, nsa_compress_relations.cc,
/// nsa_compress_validation.cc).
std::vector<Property> compress_properties(bool gradient);
/// Behind the first property: agreement.
void add_compress_tiers(std::vector<Property>& list);
void add_compress_agreement(std::vector<Property>& list, bool gradient);
/// Full size (nsa_compress_sampled.cc): the property and its cases.
void add_compress_sampled(std::vector<Property>& list);
std::vector<Spec> compress_large_cases(const Schema& schema, std::int64_t length,
                                       std::uint64_t seed);
void add_compress_relations(std::vector<Property>& list, bool gradient);
void add_compress_validation(std::vector<Property>& list, bool gradient);

}  // namespace attncheck::properties
