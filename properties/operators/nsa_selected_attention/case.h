// NsaSelectedAttention and NsaSelectedAttentionGrad as cases: fields, legality, and how a Spec
// becomes a call.
//
//   nsa_selected_attention{dtype=bf16 q=[5,0,33] kv=[64,0,48] kv_heads=2 group=3 dim=192
//   value_dim=128 block=16 count=3 mask=bool sparse=2 scale=rsqrt topk=shuffled data=normal seed=7}
//
// q and kv hold the lengths of the single sequences (the call gets their cumulative sums); beyond_q
// and beyond_kv add rows behind the last sequence. topk, logits and data say how the inputs are
// filled (data.cc); with data=zeros all of them are zero but for the
// elements that `set` names. The gradient's statistics and attention output are those of the
// reference forward on the same inputs, unless stats or out say otherwise.
#pragma once

#include "properties/case/attention_data.h"
#include "properties/laws/attention_parts.h"
#include "properties/operators/operator.h"
#include "ref/operators/nsa_selected_attention.h"

namespace attncheck::properties {

/// Numbers of the Spec, in schema order.
enum SelectedField {
    kSelDtype,
    kSelKvHeads,
    kSelGroup,
    kSelDim,
    kSelValueDim,
    kSelBlock,
    kSelCount,
    kSelMask,
    kSelMaskShape,
    kSelSparse,
    kSelScale,
    kSelTopk,
    kSelLogits,
    kSelBeyondQ,
    kSelBeyondKv,
    kSelStats,
    kSelOut
};
enum class MaskExtent { exact, single, large };  ///< large: 300 x 300, legal in sparse mode 2 only
enum class TopkKind {
    first,      ///< block 0 throughout
    canonical,  ///< 0, 1, 2, ...
    ascending,
    descending,
    shuffled,  ///< distinct random blocks
    scored,    ///< the diagonal block and block 0 somewhere, the others mostly past
    repeated,  ///< random, one block twice
    same,      ///< one block K times
    diagonal,  ///< the diagonal block at least twice, if there is room
    future,    ///< blocks behind the diagonal one, where there are any
    shared,    ///< random, the same for all queries of a sequence
    last       ///< the last block of the sequence first
};

/// A problem as dense parts: what relations change and build again. Bits are row-major over the
/// logical shapes.
struct SelectedParts : AttentionParts {
    ref::SelectedAttentionShape shape;  ///< mask and mask_columns follow from the fields below
    double scale = 1;                   ///< as passed, binary64
    std::int64_t sparse_mode = 0;
    MaskTensor mask;
    Bits topk;

    double narrowed_scale() const { return static_cast<float>(scale); }
    ref::ColumnLister columns() const;
    /// Whether the mask, which is there, hides a key from a query of its sequence.
    bool hides(std::int64_t query_pos, std::int64_t key_pos) const {
        if (sparse_mode == 2) return key_pos > query_pos;
        return mask.at(query_pos, key_pos);
    }
};

SelectedParts selected_parts(const Spec& spec);  ///< layouts play no role
SelectedParts selected_lists(const Spec& spec);  ///< shape, mask and topk only; cheap
/// Overrides are not applied yet.
void fill_selected_lists(const Spec& spec, SelectedParts& parts);
InputRecipe selected_recipe(const Spec& spec, const SelectedParts& parts);

const Description& selected_description(bool gradient);
std::optional<std::string> selected_element_rules(const Spec& spec);
Call build_selected_call(const Spec& spec);

Spec sample_selected(const Schema& schema, Random& random, int size, Profile profile);
std::vector<std::string> selected_labels(const Spec& spec);
std::vector<RequiredClass> selected_required_classes(bool gradient);

std::unique_ptr<Operator> make_nsa_selected_attention(bool gradient);

std::vector<Property> selected_properties(bool gradient);
std::vector<Spec> selected_large_cases(const Schema& schema, std::int64_t length,
                                       std::uint64_t seed);
void add_selected_validation(std::vector<Property>& list);

}  // namespace attncheck::properties
