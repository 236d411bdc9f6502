// NsaSelectedAttention and NsaSelectedAttentionGrad as cases: fields, legality, and how a Spec
// becomes a call.
//
//   nsa_selected_attention{dtype=bf16 q=[5,0,33] kv=[64,0,48] kv_heads=2 group=3 dim=192
//   value_dim=128 block=16 count=3 mask=bool sparse=2 scale=rsqrt topk=shuffled data=normal seed=7}
//
// q and kv hold the lengths of the single sequences (the call gets their cumulative sums); beyond_q
// and beyond_kv add rows behind the last sequence. topk, logits and data say how the inputs are
// filled (nsa_selected_attention_data.cc); with data=zeros all of them are zero but for the
// elements that `set` names. The gradient's statistics and attention output are those of the
// reference forward on the same inputs, unless stats or out say otherwise.
#pragma once

#include "properties/case/attention_data.h"
#include "properties/judge/verdict.h"
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
enum class MaskKind { absent, boolean, uint8 };
enum class MaskExtent { exact, single, large };  ///< large: 300 x 300, legal in sparse mode 2 only
/// What the lists of blocks look like.
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
enum class LogitKind { plain, equal, dominant, minus40, minus120, minus300, plus300, minus20000 };
enum class StatsKind { reference, shifted };  ///< shifted: (m + c, l exp(-c)), the same P
enum class OutKind { reference, perturbed };

/// A problem as dense parts: what relations change and build again. Bits are row-major over the
/// logical shapes.
struct SelectedParts {
    bool gradient = false;
    ref::Dtype dtype = ref::Dtype::fp16;
    ref::SelectedAttentionShape shape;  ///< mask and mask_columns follow from the fields below
    double scale = 1;                   ///< as passed, binary64
    std::int64_t sparse_mode = 0;
    struct Mask {
        bool present = false;
        ref::Dtype dtype = ref::Dtype::boolean;
        std::vector<std::int64_t> shape;
        std::vector<std::uint32_t> bits;
    } mask;
    std::vector<std::uint32_t> query, key, value, topk;
    // The gradient's own:
    std::vector<std::uint32_t> output_grad, output;
    std::vector<float> row_max, row_sum;  ///< [T1,N1]

    /// Of an input that is no statistic.
    std::vector<std::uint32_t>& bits_of(Role role);

    double narrowed_scale() const { return static_cast<float>(scale); }
    ref::ColumnLister columns() const;
    std::vector<double> values(const std::vector<std::uint32_t>& bits) const {
        return decode_all(dtype, bits);
    }
};

/// Statistics and attention output of the reference forward, rounded to their types.
void give_reference_statistics(SelectedParts& parts);

/// The dense parts of a case (layouts play no role) and its block lists and mask alone.
SelectedParts selected_parts(const Spec& spec);
/// selected_parts without the gradient's statistics and attention output.
SelectedParts selected_input_parts(const Spec& spec);
SelectedParts selected_lists(const Spec& spec);        ///< shape, mask and topk only; cheap
SelectedParts selected_shape_parts(const Spec& spec);  ///< no element values; cheap
/// Fills what selected_parts and selected_lists hand out; overrides are not applied yet.
void fill_selected_lists(const Spec& spec, SelectedParts& parts);
void fill_selected_data(const Spec& spec, SelectedParts& parts);

const Description& selected_description(bool gradient);
std::optional<std::string> selected_element_rules(const Spec& spec);
Call build_selected_call(const Spec& spec);

/// The call for explicit parts, all layouts dense.
Call make_selected_call(const SelectedParts& parts);
/// The values of the inputs.
void set_selected_values(SelectedParts parts, Call& call);

Spec sample_selected(const Schema& schema, Random& random, int size);
std::vector<std::string> selected_labels(const Spec& spec);
std::vector<RequiredClass> selected_required_classes(bool gradient);

const std::vector<ExcludedPairs>& nsa_selected_attention_excluded_pairs();
std::unique_ptr<Operator> make_nsa_selected_attention();
std::unique_ptr<Operator> make_nsa_selected_attention_grad();

std::vector<Property> selected_properties(bool gradient);
/// Second and third tier (nsa_selected_attention_tiers.cc).
void make_selected_tier_case(Spec& spec, Random& random);
/// Behind the first property: agreement.
void add_selected_tiers(std::vector<Property>& list);
void add_selected_agreement(std::vector<Property>& list, bool gradient);
/// Full size (nsa_selected_attention_sampled.cc): the property and its cases.
void add_selected_sampled(std::vector<Property>& list);
std::vector<Spec> selected_large_cases(const Schema& schema, std::int64_t length,
                                       std::uint64_t seed);
void add_selected_forward_relations(std::vector<Property>& list);
void add_selected_gradient_relations(std::vector<Property>& list);
void add_selected_validation(std::vector<Property>& list, bool gradient);

}  // namespace attncheck::properties
