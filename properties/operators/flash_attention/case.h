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
// from the fields and the seed (data.cc).
#pragma once

#include "properties/case/attention_data.h"
#include "properties/case/attention_draws.h"
#include "properties/laws/attention_parts.h"
#include "properties/operators/operator.h"
#include "ref/operators/flash_attention.h"

namespace attncheck::properties {

constexpr std::int64_t kLongest = 1 << 20;  ///< rows of one batch or sequence

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
    kFaInert,  ///< has no effect
    kFaBeyondQ,
    kFaBeyondKv,
    kFaStats,
    kFaOut,
    kFaResult
};
enum class FlashLayout { bsh, bsnd, tnd, sbh, bnsd };
/// single [S1,S2]; one [1,1,S1,S2]; batch [B,1,S1,S2]; head [B,N1,S1,S2]; packed [sum Sq, sum Skv].
/// The compressed modes 2 3 4 6 7 8 have another shape.
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
enum class FlashKeep { one, half, nine_tenths, tenth, hundredth, thousandth };

/// A problem as packed parts: what relations change and build again. A rope stands behind the head
/// dim in the rows of query and key.
struct FlashParts : AttentionParts {
    FlashLayout layout = FlashLayout::bsnd;
    /// Shape, mask, bias, dropout and scale as the reference sees them. mask.values is empty in
    /// compressed modes.
    ref::FlashAttentionShape shape;
    double scale = 1, keep_prob = 1;  ///< as passed, binary64
    ref::Dtype mask_dtype = ref::Dtype::boolean;
    bool same_as_input = false;        ///< order of the statistics in TND
    Profile profile = Profile::ascend910b;
    std::optional<std::vector<std::int64_t>> prefix, query_start, key_start;
    Bits pse;  ///< as given

    ref::Dtype bias_type() const { return shape.bias.type >= 2 ? ref::Dtype::fp32 : result; }
    /// The reference sees the bias as it is given.
    void take_bias() { shape.bias.values = decode_all(bias_type(), pse); }
};

const Description& flash_description(bool gradient);
/// What the suite's own fields need; the documented rules are the reference's.
void add_flash_rules(Description& description, bool gradient);
/// What is passed, without the memory: only the extent's own rule can object.
void add_flash_claims(Description& description);
/// All extents of a problem, those of the forward or of the gradient.
Extents flash_extents(const FlashParts& parts, bool gradient);

FlashParts flash_parts(const Spec& spec);
FlashParts flash_shape_parts(const Spec& spec);  ///< no element values; cheap

inline bool flash_is_fp8(const Spec& spec) { return spec.numbers[kFaDtype] >= 3; }
inline bool is_tnd(const Spec& spec) {
    return spec.numbers[kFaLayout] == static_cast<std::int64_t>(FlashLayout::tnd);
}
inline FlashPse pse_of(const Spec& spec) { return static_cast<FlashPse>(spec.numbers[kFaPse]); }
inline bool is_compressed(const Spec& spec) {
    return pse_of(spec) == FlashPse::compressed || pse_of(spec) == FlashPse::compressed_batch;
}
inline bool has_slopes(const Spec& spec) { return pse_of(spec) >= FlashPse::slopes; }
inline bool has_external_bias(const Spec& spec) {
    return pse_of(spec) != FlashPse::absent && spec.numbers[kFaPseType] < 2;
}

/// fp8 is the gradient's, under one platform profile only (contract decision 10).
inline bool has_fp8(Profile profile) { return profile == Profile::ascend950; }

/// Whether a sparse mode reads the contents of its mask; the others have a documented content.
bool flash_reads_mask(std::int64_t mode);
/// The documented contents of a compressed mask: above the diagonal hides; for mode 6 a second part
/// for the prefix. Calls share them.
std::shared_ptr<const std::vector<std::uint8_t>> compressed_mask(bool with_prefix);

/// Fill what is no number of the problem; overrides are not applied yet.
void fill_flash_mask(const Spec& spec, FlashParts& parts);
void fill_flash_bias(const Spec& spec, FlashParts& parts);
/// Whether some elements of the bias are -inf.
bool hides_by_bias(const Spec& spec, const FlashParts& parts);
void fill_flash_dropout(const Spec& spec, FlashParts& parts);
InputRecipe flash_recipe(const Spec& spec, const FlashParts& parts);

Call make_flash_call(const FlashParts& parts);

double flash_keep_prob(std::int64_t kind);

/// Why a Spec with legal fields is no legal problem: its sizes, layouts or elements, or the
/// documented rules.
std::optional<std::string> flash_element_rules(const Spec& spec);
Call build_flash_call(const Spec& spec);

/// Values that few callers use, for some of the cases: probabilities of keeping down to 0.001, rows
/// of 4097 to 65537 keys. A function of the case and its seed.
void draw_rare_flash_values(Spec& spec);
Spec sample_flash(const Schema& schema, Random& random, int size, Profile profile);
Spec plain_flash(const Schema& schema, Random& random);
std::vector<std::string> flash_labels(const Spec& spec);
/// The corner cases of flash_attention.md 9 that a legal case is: "corner:N".
void name_flash_corners(const Spec& spec, std::vector<std::string>& out);
std::vector<RequiredClass> flash_required_classes(bool gradient);

std::unique_ptr<Operator> make_flash_attention_score(bool gradient);

/// Legal changes of arguments that have no effect on the results of a case.
std::vector<Edit> effectless_flash_edits(const Spec& spec);
std::vector<Property> flash_properties(bool gradient);
std::vector<Spec> flash_large_cases(const Schema& schema, std::int64_t length, std::uint64_t seed);
void add_flash_validation(std::vector<Property>& list);

}  // namespace attncheck::properties
