#ifndef ATTNCHECK_IMPL_FLASH_ATTENTION_SHAPES_H
#define ATTNCHECK_IMPL_FLASH_ATTENTION_SHAPES_H

#include <cstdint>
#include <optional>

#include "attncheck/candidate.h"

/// What the arguments of FlashAttentionScore and of its gradient say about extents: one view of
/// both argument structs, and the few questions that the validator and the kernels both ask.
///
/// Legend   B batch, N1 and N2 query and kv heads, S1 and S2 lengths (T1 and T2 packed), D and Dv
///          head dims. In TND "batch" means a sequence (flash_attention.md 2.1, 2.5).
namespace attncheck::impl {

inline constexpr std::int64_t kMaxFlashDim = 512;
inline constexpr std::int64_t kMaxFlashHeads = 256;
inline constexpr std::int64_t kMaxFlashLen = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxFlashBatch = std::int64_t{1} << 21;
inline constexpr std::int64_t kMaxFlashPrefixBatch = 2048;
/// Stored rows of a compressed position bias.
inline constexpr std::int64_t kCompressedBiasRows = 1024;

inline bool is_fp8(std::int32_t dtype) {
    return dtype == ATTNCHECK_FLOAT8_E5M2 || dtype == ATTNCHECK_FLOAT8_E4M3FN;
}

/// Both directions' arguments under one set of names. Pointers into the caller's struct; those of
/// tensors that a direction does not have are null.
struct FlashCall {
    const attncheck_tensor *query, *query_rope, *key, *key_rope, *value, *output_grad;
    const attncheck_tensor *bias, *drop_mask, *padding_mask, *atten_mask;
    const attncheck_tensor *softmax_max, *softmax_sum, *output;
    const attncheck_tensor *query_grad, *query_rope_grad, *key_grad, *key_rope_grad, *value_grad;
    const attncheck_int_array *prefix, *query_ends, *key_ends, *query_start, *key_start;
    double scale_value, keep_prob;
    std::int64_t pre_tokens, next_tokens, head_num, sparse_mode, bias_type;
    const char *input_layout, *statistics_layout;
    const char *bias_name, *output_name, *statistics_layout_name;  ///< fields of the struct

    bool is_gradient() const { return query_grad != nullptr; }
    bool has_bias() const { return bias->data != nullptr; }
    bool has_mask() const { return atten_mask->data != nullptr; }
    bool has_dropout() const { return drop_mask->data != nullptr; }
    bool has_rope() const { return query_rope->data != nullptr; }
    /// kvStart - qStart of ALiBi, 0 unless both arrays have an element; any two int64 fit.
    __int128 start_distance() const;
};

FlashCall flash_call(const attncheck_flash_attention_score_args& args);
FlashCall flash_call(const attncheck_flash_attention_score_grad_args& args);

enum class FlashLayout { kBsh, kSbh, kBsnd, kBnsd, kTnd };

/// Exactly one of the five upper-case names.
std::optional<FlashLayout> parse_flash_layout(const char* name);

/// Which dimension of a tensor holds what, -1 where none does: BSH and SBH have heads and channels
/// in one dimension, TND has no batch.
struct FlashAxes {
    int rank, batch, position, head, channel;
};
FlashAxes flash_axes(FlashLayout layout);

/// Extents of a call whose query, key and value shapes were checked. In TND `batch` is the number
/// of sequences and the lengths are those of the packed tensors.
struct FlashExtents {
    FlashLayout layout;
    std::int64_t batch, query_len, key_len, query_heads, kv_heads, head_dim, value_dim;

    bool is_packed() const { return layout == FlashLayout::kTnd; }
};
FlashExtents flash_extents(const FlashCall& call);

/// One batch entry: `query_begin` and `key_begin` are rows of the packed tensors, 0 if not TND.
struct FlashSequence {
    std::int64_t query_begin, query_len, key_begin, key_len;
};
FlashSequence flash_sequence(const FlashCall& call, const FlashExtents& extents, std::int64_t b);

/// Summary over all batch entries.
struct FlashLengths {
    std::int64_t max_query_len, max_key_len;
    std::int64_t query_sum, key_sum;            ///< over the sequences of TND
    std::optional<std::int64_t> num_pairs;      ///< N1 * sum of S1 * S2, none beyond int64
    bool same_query_len, same_key_len, square;  ///< square: S1 == S2 in every entry
};
FlashLengths flash_lengths(const FlashCall& call, const FlashExtents& extents);

/// How the bias tensor is addressed (flash_attention.md 3.2); j is the key, i the query position.
enum class BiasForm {
    kNone,
    kSlopes,      ///< [N1] or [B, N1]: ALiBi
    kFull,        ///< [1 | B, N1, 1 | S1, S2]
    kCompressed,  ///< [1 | B, N1, 1024, S2]: the last 1024 rows of a bias that depends on i - j
    kFlatKeys,    ///< [N1 * sum S2]: one value per head and key
    kFlatPairs,   ///< [N1 * sum S1 * S2]
};
/// None if the shape is not a legal one for the bias type.
std::optional<BiasForm> bias_form(const FlashCall& call, const FlashExtents& extents,
                                  const FlashLengths& lengths);

/// How the mask tensor is addressed.
enum class MaskForm {
    kNone,
    kCompressed,  ///< never read
    kPerEntry,    ///< [.., S1, S2], in TND from the top left of the maxima
    kPacked,      ///< [sum S1, sum S2]
};
std::optional<MaskForm> mask_form(const FlashCall& call, const FlashExtents& extents,
                                  const FlashLengths& lengths);

/// Modes 7 and 8: the last or the first sequence with queries, -1 if there is none or if the mode
/// is another one.
std::int64_t band_entry(const FlashCall& call, const FlashExtents& extents);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_FLASH_ATTENTION_SHAPES_H
