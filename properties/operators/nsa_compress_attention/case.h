// NsaCompressAttention as a case: fields, legality, and how a Spec becomes a call.
//
//   nsa_compress_attention{dtype=bf16 q=[5,0,3] cmp=[9,0,4] kv_heads=2 group=4 dim=64 value_dim=32
//   block=32 stride=16 select=64 count=2 mask=bool hides=ramp scale=rsqrt data=normal seed=7}
//
// q and cmp hold the lengths of the single sequences (the call gets their cumulative sums, and
// those of the selection blocks that follow from cmp); beyond_q and beyond_cmp add rows behind the
// last sequence. hides and forces say what the two masks contain, logits and data how the tensors
// are filled (data.cc); with data=zeros everything is zero, the masks too,
// but for the elements that `set` names.
//
// Legend: l block, d stride, l' select, K count, M = l' / d, N = floor(l / d); Cmp compressed keys
// and Sel = ceil(Cmp / M) selection blocks of a sequence.
#pragma once

#include "properties/case/attention_data.h"
#include "properties/laws/attention_parts.h"
#include "properties/operators/operator.h"
#include "ref/constraints/nsa_compress_attention.h"
#include "ref/operators/nsa_compress_attention.h"
#include "ref/operators/nsa_compress_attention_selection.h"

namespace attncheck::properties::compress_attention {

/// Numbers of the Spec, in schema order.
enum Field {
    kDtype,
    kKvHeads,
    kGroup,
    kDim,
    kValueDim,
    kBlock,
    kStride,
    kSelect,
    kCount,
    kMask,
    kHides,
    kTopkMask,
    kForces,
    kSparse,
    kScale,
    kLogits,
    kBeyondQ,
    kBeyondCmp
};
/// The masks, by their number in the schema.
enum Input { kAttenMask = 3, kForcedBlocks };
enum class Hides {
    random,  ///< a share of the pairs that is the case's own, some rows blind
    causal,  ///< i d + l - 1 > s, as in the paper
    ramp,    ///< i > s: every row sees one key more than the one before
    all,
    striped  ///< all keys of every other selection block
};
enum class Forces {
    random,
    paper,  ///< block 0 and the two that end at the query (nsa.md 10.3)
    most,   ///< nine blocks in ten: more than K of them where there are
    last,   ///< the last block of the longest sequence
    all
};
enum class LogitKind {
    plain,
    equal,
    dominant,  ///< the first key of every selection block leads by 200 and more
    single,    ///< one key of each sequence and head does
    minus40,
    minus120,
    minus300,
    plus300,
    minus20000,
    minus200000
};

/// A problem as dense parts: what relations change and build again. Bits are row-major over the
/// logical shapes.
struct Parts : AttentionParts {
    ref::CompressAttentionShape shape;
    double scale = 1;  ///< as passed, binary64
    std::int64_t sparse_mode = 0;
    MaskTensor mask, topk_mask;

    double narrowed_scale() const { return static_cast<float>(scale); }
    /// Extents of both masks, from the lengths. Contents stay as they are.
    void fit_mask_shapes();
};

/// Compressed keys of a selection block.
inline std::int64_t keys_per_select(const Spec& spec) {
    return spec.numbers[kSelect] / spec.numbers[kStride];
}

/// Shape, attributes and masks of a case; cheap.
Parts masks_of(const Spec& spec);
/// With the values (layouts play no role).
Parts parts_of(const Spec& spec);
/// Overrides are not applied yet.
void fill_masks(const Spec& spec, Parts& parts);
/// Of a call as it is passed, all lengths and values among them.
Parts parts_of_call(const Call& call);
InputRecipe recipe_of(const Spec& spec, const Parts& parts);

const Description& description();

Call build_call(const Spec& spec);

/// topk_indices as numbers.
std::vector<std::int64_t> lists_of(const std::vector<std::uint32_t>& bits);

Spec plain(const Schema& schema, Random& random);
Spec sample(const Schema& schema, Random& random, int size, Profile profile);
std::vector<std::string> labels_of(const Spec& spec);
std::vector<RequiredClass> required_classes();

std::vector<Property> properties_of_attention();
std::vector<Spec> large_cases(const Schema& schema, std::int64_t length, std::uint64_t seed);
void add_list_relations(std::vector<Property>& list);
void add_validation(std::vector<Property>& list);

}  // namespace attncheck::properties::compress_attention

namespace attncheck::properties {
std::unique_ptr<Operator> make_nsa_compress_attention();
}  // namespace attncheck::properties
