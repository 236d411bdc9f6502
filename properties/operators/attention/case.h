// The neutral operators Attention and AttentionGrad as cases.
//
//   attention{dtype=bf16 q=[65,65] kv=[129,129] layout=bhsd kv_heads=2 group=4 dim=64 value_dim=64
//   scale=rsqrt window_right=0 align=bottom_right bias=one_head softcap=20 kv_length=some sink=normal
//   data=normal seed=7}
//
// q and kv hold one length per batch (all equal) or, where layout is packed, per sequence; the other
// layouts are the order of one shape [B,S,H,D] in memory. Elements are named by their packed index
// [row, head, channel], bias and mask by their row-major number. Bias, mask, sinks and kv_length
// follow from the fields and the seed.
#pragma once

#include "properties/case/attention_data.h"
#include "properties/laws/attention_parts.h"
#include "properties/laws/attention_run.h"
#include "properties/operators/operator.h"
#include "ref/operators/attention.h"

namespace attncheck::properties {

enum class NeutralLayout { bshd, bhsd, sbhd, packed };
/// Extents of 1 of a bias or a mask [B,Hq,Sq,Skv].
enum class PairForm {
    none,
    full,
    one_batch,
    one_head,
    shared,     ///< [1,1,Sq,Skv]
    per_key,    ///< [B,1,1,Skv]
    head_key,   ///< [1,Hq,1,Skv]
    per_query,  ///< [B,Hq,Sq,1]
    head        ///< [1,Hq,1,1]
};
/// hides: some are -infinity; far: all are 60000 lower, as finite stand-ins for it are; masks: those
/// of `hides` are 1e30 lower, or what the type has, so that a row of them sees all its keys alike.
enum class BiasValues { normal, hides, far, masks };
enum class KvLength { none, all, some, empty };       ///< empty: the first batch has no key
enum class HiddenKeys { numbers, nan };               ///< what lies at and behind kv_length

/// A problem as packed parts: what relations change and build again.
struct NeutralParts : AttentionParts {
    ref::NeutralAttentionShape shape;
    double scale = 1, softcap = 0;     ///< as passed, binary64
    ref::Dtype bias_dtype = ref::Dtype::fp32;
    Bits bias, sink;  ///< as given

    void take_pairs() {
        if (shape.bias.present) shape.bias.values = ref::decode_all(bias_dtype, bias);
        if (!sink.empty()) shape.sink = ref::decode_all(ref::Dtype::fp32, sink);
    }
    /// Fields by name; the gradient's begin as the forward's.
    bool is(const char* field, std::int64_t number) const;
    void set(const char* field, std::int64_t number);
};

const Description& neutral_description(bool gradient);
inline bool is_packed(const Spec& spec) {
    return spec.number("layout") == static_cast<std::int64_t>(NeutralLayout::packed);
}
/// Keys in use of every batch.
std::vector<std::int64_t> used_keys(const Extents& extents);

AttentionProblem neutral_problem(NeutralParts parts);
/// What a kernel may take the arguments of such a problem for.
std::vector<Misreading> neutral_misreadings(const AttentionProblem& problem);
/// Attention that sees all keys, in packed form, with the values, sequences, scale and softcap of
/// another problem.
NeutralParts packed_parts(const AttentionProblem& of);
NeutralParts neutral_parts(const Spec& spec);
NeutralParts neutral_shape_parts(const Spec& spec);  ///< no element values; cheap
AttentionProblem neutral_inputs(const Spec& spec);   ///< a gradient without what it is given
Call build_neutral_call(const Spec& spec);
const AttentionOperator& neutral_operator();
bool is_legal(const NeutralParts& parts);
/// A problem of Attention, and the same one of an operator of the documents, whose statistics are a
/// pair. Within the bounds of both.
Verdict verdict_on_other_operator(const AttentionRun& neutral, const AttentionRun& other,
                                  const PropertyContext& context, const std::string& relation);

Spec sample_neutral(const Schema& schema, Random& random, int size, Profile profile);
Spec plain_neutral(const Schema& schema, Random& random);
std::vector<Spec> neutral_large_cases(const Schema& schema, std::int64_t length,
                                      std::uint64_t seed);
std::vector<std::string> neutral_labels(const Spec& spec);
std::vector<RequiredClass> neutral_required_classes(bool gradient);
std::vector<Spec> neutral_joint_shrinks(const Spec& spec);

/// Adds a relation on moderate data, and on the cases of its own domain among these.
struct AddOnModerateData {
    std::vector<Property>& list;
    void operator()(const char* name, const char* summary,
                    Verdict (*check)(const Spec&, PropertyContext&),
                    void (*adapt)(Spec&, Random&),
                    bool (*domain)(const Spec&) = [](const Spec&) { return true; }) const;
};

std::vector<Property> neutral_properties(bool gradient);
std::vector<Edit> effectless_neutral_edits(const Spec& spec);
void add_neutral_relations(std::vector<Property>& list, bool gradient);
void add_neutral_forms(std::vector<Property>& list);

std::unique_ptr<Operator> make_attention(bool gradient);

}  // namespace attncheck::properties
