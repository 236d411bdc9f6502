// FlashAttentionScore and FlashAttentionScoreGrad as cases: fields, legality, and how a Spec
// becomes a call.
//
//   flash_attention_score{dtype=bf16 q=[7,7] kv=[5,5] layout=SBH kv_heads=2 group=3 dim=72
//   value_dim=8 mask=bool sparse=4 pre=3 next=1 pse=plain pse_type=0 drop=random keep=half
//   scale=rsqrt data=normal seed=7}
//
// q and kv hold one length per batch (all equal) or, in TND, per sequence. Elements are named by
// their packed index [row, head, channel], row = rows of earlier batches + position, whatever the
// layout; pse, masks and drop mask by their row-major number. Biases, masks and drop bits follow
// from the fields and the seed (flash_attention_data.cc).
#pragma once

#include "properties/case/attention_data.h"
#include "properties/judge/verdict.h"
#include "properties/operators/operator.h"
#include "ref/operators/flash_attention.h"

namespace attncheck::properties {

/// Numbers of the Spec, in schema order.
enum FlashField {
    kFaDtype,
    kFaLayout,
    kFaKvHeads,
    kFaGroup,
    kFaDim,
    kFaValueDim,
    kFaRope,
    kFaMask,
    kFaMaskForm,
    kFaSparse,
    kFaPre,
    kFaNext,
    kFaTokens,
    kFaPrefix,
    kFaPse,
    kFaPseType,
    kFaStart,
    kFaDrop,
    kFaKeep,
    kFaScale,
    kFaLogits,
    kFaOrder,
    kFaPrecise,
    kFaBeyondQ,
    kFaBeyondKv,
    kFaStats,
    kFaOut,
    kFaResult
};
enum class FlashLayout { bsh, bsnd, tnd, sbh, bnsd };
/// single [S1,S2]; one [1,1,S1,S2]; batch [B,1,S1,S2]; head [B,N1,S1,S2]; packed [sum Sq, sum Skv].
/// The compressed modes 2 3 4 6 7 8 have a shape of their own.
enum class FlashMaskForm { single, one, batch, head, packed };
enum class FlashTokens {
    given,
    pre_negative,
    next_negative,
    pre_unlimited,
    next_unlimited,
    unlimited
};
enum class FlashPrefix { lowest, full, random, absent };
enum class FlashPse {
    absent,
    plain,             ///< [B,N1,S1,S2]
    one_batch,         ///< [1,N1,S1,S2]
    one_row,           ///< [B,N1,1,S2]
    one_batch_row,     ///< [1,N1,1,S2]
    compressed,        ///< [B,N1,1024,S2]
    compressed_batch,  ///< [1,N1,1024,S2]
    flat_keys,         ///< TND, N1 sum Skv
    flat_pairs,        ///< TND, N1 sum Sq Skv
    slopes,            ///< [N1], types 2 and 3
    batch_slopes       ///< [B,N1]
};
enum class FlashStart { absent, both, query, key };
enum class FlashDrop { absent, random, keep_all, drop_all };
enum class FlashKeep { one, half, nine_tenths, tenth };

/// A problem as packed parts: what relations change and build again.
struct FlashParts {
    bool gradient = false;
    ref::Dtype dtype = ref::Dtype::fp16;
    ref::Dtype result = ref::Dtype::fp16;  ///< of bias, attention_in and outputs; not fp8
    FlashLayout layout = FlashLayout::bsnd;
    /// Shape, mask, bias, dropout and scale as the reference sees them. mask.values is empty in
    /// compressed modes.
    ref::FlashAttentionShape shape;
    double scale = 1, keep_prob = 1;  ///< as passed, binary64
    ref::Dtype mask_dtype = ref::Dtype::boolean;
    bool same_as_input = false;  ///< order of the statistics in TND
    std::int64_t inner_precise = 0;
    Profile profile = Profile::ascend910b;
    std::optional<std::vector<std::int64_t>> prefix, query_start, key_start;
    std::vector<std::uint32_t> query, query_rope, key, key_rope, value;  ///< packed bits
    std::vector<std::uint32_t> pse;                                      ///< bits as given
    // The gradient's own:
    std::vector<std::uint32_t> output_grad, output;
    std::vector<float> row_max, row_sum;  ///< [T1,N1], packed

    std::vector<double> values(const std::vector<std::uint32_t>& bits) const {
        return decode_all(dtype, bits);
    }
    /// Query and key with the rope parts behind the head dim, as the reference wants them.
    std::vector<double> query_values() const;
    std::vector<double> key_values() const;
};

/// Statistics and attention output of the reference forward, rounded to their types.
void give_reference_statistics(FlashParts& parts);

/// Both directions as data; agrees with flash_shape_parts and make_flash_call.
const Description& flash_description(bool gradient);

FlashParts flash_parts(const Spec& spec);
/// flash_parts without the gradient's statistics and attention output, which cost as much as the
/// reference forward.
FlashParts flash_input_parts(const Spec& spec);
FlashParts flash_shape_parts(const Spec& spec);  ///< no element values; cheap

/// Shapes of mask and bias as the other extents of `s` ask for.
void shape_flash_options(const Spec& spec, ref::FlashAttentionShape& s);

/// "all.KEY=VALUE" (dim, value_dim, rope, kv_heads, group, query_heads, batches, q, kv): an extent
/// in every shape and argument that follows from it, without the memory, so that only its own rule
/// can object. "all.sparse=MODE": another mode with unlimited pre_tokens. "short_drop.rows=VALUE":
/// q and kv, but the drop mask keeps its size. "drop_mask.spare=N": legal, N bytes more than
/// needed. "drop_mask.lead=N", "atten_mask.lead=N": N leading extents of 1.
bool is_flash_claim(const std::string& edit);
/// Throws std::invalid_argument when the claim cannot be read.
void apply_flash_claim(const std::string& edit, const Spec& spec, Call& call);

bool flash_is_fp8(const Spec& spec);
/// fp8 is the gradient's, under one platform profile only (contract decision 10).
inline bool has_fp8(Profile profile) { return profile == Profile::ascend950; }

std::int64_t flash_elements(const std::vector<std::int64_t>& shape);

/// Whether a sparse mode reads the contents of its mask; the others have a documented content.
bool flash_reads_mask(std::int64_t mode);
bool flash_is_compressed(FlashPse pse);

/// Packed shape of a tensor that is indexed [row, head, channel], or {elements}.
std::vector<std::int64_t> flash_logical_shape(const std::string& name, const FlashParts& parts);

/// Fills what flash_parts hands out; overrides are not applied yet.
void fill_flash_mask(const Spec& spec, FlashParts& parts);
void fill_flash_bias(const Spec& spec, FlashParts& parts);
void fill_flash_dropout(const Spec& spec, FlashParts& parts);
void fill_flash_data(const Spec& spec, FlashParts& parts);

Call make_flash_call(const FlashParts& parts);

/// The arguments of a call: as Operator::pack and Operator::rule want them.
std::vector<std::byte> pack_flash(const Call& call, const std::vector<attncheck_tensor>& tensors,
                                  const std::vector<attncheck_int_array>& arrays,
                                  const std::vector<const char*>& texts, bool gradient);
ref::Ruling rule_flash(const Call& call, bool gradient);

/// From packed order to that of the layout and back, for a tensor [rows, heads, dim] of `lengths`.
template <class T>
std::vector<T> to_layout(FlashLayout layout, const std::vector<std::int64_t>& lengths,
                         std::int64_t heads, std::int64_t dim, const std::vector<T>& packed);
template <class T>
std::vector<T> from_layout(FlashLayout layout, const std::vector<std::int64_t>& lengths,
                           std::int64_t heads, std::int64_t dim, const std::vector<T>& given);

double flash_keep_prob(std::int64_t kind);

Spec sample_flash(const Schema& schema, Random& random, int size, Profile profile);
std::vector<std::string> flash_labels(const Spec& spec);
/// The corner cases of flash_attention.md 9 that a legal case is: "corner:N".
void name_flash_corners(const Spec& spec, std::vector<std::string>& out);
std::vector<RequiredClass> flash_required_classes(bool gradient);

std::unique_ptr<Operator> make_flash_attention_score();
std::unique_ptr<Operator> make_flash_attention_score_grad();

std::vector<Property> flash_properties(bool gradient);
/// Second and third tier: the generator and the property.
void make_flash_tier_case(Spec& spec, Random& random);
/// Behind the first property: agreement.
void add_flash_tiers(std::vector<Property>& list);
void add_flash_agreement(std::vector<Property>& list, bool gradient);
/// Full size (flash_attention_sampled.cc): the property and its cases.
void add_flash_sampled(std::vector<Property>& list);
std::vector<Spec> flash_large_cases(const Schema& schema, std::int64_t length, std::uint64_t seed);
void add_flash_forward_relations(std::vector<Property>& list);
void add_flash_gradient_relations(std::vector<Property>& list);
void add_flash_validation(std::vector<Property>& list, bool gradient);

template <class T>
std::vector<T> to_layout(FlashLayout layout, const std::vector<std::int64_t>& lengths,
                         std::int64_t heads, std::int64_t dim, const std::vector<T>& packed) {
    if (layout != FlashLayout::sbh && layout != FlashLayout::bnsd) return packed;
    std::vector<T> out(packed.size());
    const auto batches = static_cast<std::int64_t>(lengths.size());
    const std::int64_t length = lengths.empty() ? 0 : lengths[0];
    std::size_t at = 0;
    for (std::int64_t b = 0; b < batches; ++b)
        for (std::int64_t s = 0; s < length; ++s)
            for (std::int64_t n = 0; n < heads; ++n) {
                const std::int64_t row = layout == FlashLayout::sbh ? (s * batches + b) * heads + n
                                                                    : (b * heads + n) * length + s;
                for (std::int64_t c = 0; c < dim; ++c)
                    out[static_cast<std::size_t>(row * dim + c)] = packed[at++];
            }
    return out;
}

template <class T>
std::vector<T> from_layout(FlashLayout layout, const std::vector<std::int64_t>& lengths,
                           std::int64_t heads, std::int64_t dim, const std::vector<T>& given) {
    if (layout != FlashLayout::sbh && layout != FlashLayout::bnsd) return given;
    std::vector<T> out(given.size());
    std::vector<std::size_t> place(given.size());
    for (std::size_t i = 0; i < place.size(); ++i) place[i] = i;
    const auto there = to_layout(layout, lengths, heads, dim, place);
    for (std::size_t i = 0; i < there.size(); ++i) out[there[i]] = given[i];
    return out;
}

}  // namespace attncheck::properties
