#ifndef ATTNCHECK_IMPL_KEY_SELECTION_H
#define ATTNCHECK_IMPL_KEY_SELECTION_H

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attncheck/candidate.h"

/// Which keys a query sees in NsaSelectedAttention: the list of blocks, the sequences, the mask.
///
/// Positions count tokens from the start of their sequence, tokens from the start of the pack. Key
/// i * block + r of a listed block i is seen by the query at position s when
///   kCausal    i * block + r <= s            (sparse mode 2 with a mask, which is not read)
///   kMask      mask[s, i * block + r] == 0   (sparse mode 0 with a mask)
///   kAll       always                        (no mask)
/// (contract.md, decision 6). A block listed twice is two blocks.
namespace attncheck::impl {

// Documented limits (contract.md, decision 6).
inline constexpr std::int64_t kMaxTokens = std::int64_t{2} << 20;
inline constexpr std::int64_t kMaxAttentionHeads = 128;
inline constexpr std::int64_t kMaxHeadsPerGroup = 32;
inline constexpr std::int64_t kMaxSequenceLen = std::int64_t{128} << 10;
inline constexpr std::int64_t kMaxSelectedBlock = 128;
inline constexpr std::int64_t kMaxSelectedCount = 32;
inline constexpr std::int64_t kMaxAttentionDim = 192;
inline constexpr std::int64_t kMaxForwardSequences = 1024;

/// Tokens of one sequence, half-open.
struct Sequence {
    std::int64_t query_begin = 0, query_end = 0, key_begin = 0, key_end = 0;
    bool has_keys() const { return key_end > key_begin; }
};

struct KeyRange {
    std::int32_t begin, end;
};

/// The seen keys of at most one block, in order; neighbouring ranges do not touch.
struct VisibleRanges {
    int count = 0;
    KeyRange range[kMaxSelectedBlock / 2];

    void add(std::int64_t begin, std::int64_t end) {
        range[count++] = {static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end)};
    }
};

/// The selection of a validated call. Copies nothing: arrays and tensors stay the caller's.
class KeySelection {
public:
    template <class Args>
    explicit KeySelection(const Args& args)
        : KeySelection(args.topk_indices, args.atten_mask, args.actual_seq_q_len,
                       args.actual_seq_kv_len, args.sparse_mode, args.selected_block_size) {}

    /// Tokens in sequences; the pack may be longer.
    std::int64_t num_queries() const { return query_ends_.values[query_ends_.size - 1]; }
    std::int64_t num_keys() const { return key_ends_.values[key_ends_.size - 1]; }
    std::int64_t num_kv_heads() const { return num_kv_heads_; }
    std::int64_t block() const { return block_; }
    std::int64_t count() const { return count_; }
    /// Blocks of the pack. Block i of a sequence is block key_begin / block() + i of the pack.
    std::int64_t num_blocks() const { return num_keys() / block_; }
    /// Blocks of the longest sequence.
    std::int64_t most_blocks() const;

    Sequence sequence_of_query(std::int64_t token) const;  // token < num_queries()

    /// Entry `i` of the list of a query of a sequence with keys: a block of that sequence.
    std::int64_t listed_block(std::int64_t query, std::int64_t kv_head, std::int64_t i) const {
        return topk_[query * topk_strides_[0] + kv_head * topk_strides_[1] + i * topk_strides_[2]];
    }

    /// Seen keys among positions [key_pos, key_pos + size), as offsets from key_pos; size is at
    /// most kMaxSelectedBlock.
    void visible_ranges(std::int64_t query_pos, std::int64_t key_pos, std::int64_t size,
                        VisibleRanges& seen) const;

    /// Blocks of a list that a query can see any of, if it lists every one once.
    std::int64_t most_seen_blocks(std::int64_t query_pos) const {
        return visibility_ == Visibility::kCausal ? std::min(count_, query_pos / block_ + 1)
                                                  : count_;
    }

    /// No key at or after `key_pos` is seen, whatever the mask holds.
    bool is_future(std::int64_t query_pos, std::int64_t key_pos) const {
        return visibility_ == Visibility::kCausal && key_pos > query_pos;
    }

private:
    enum class Visibility { kAll, kCausal, kMask };

    KeySelection(const attncheck_tensor& topk_indices, const attncheck_tensor& atten_mask,
                 const attncheck_int_array& query_ends, const attncheck_int_array& key_ends,
                 std::int64_t sparse_mode, std::int64_t block);
    Sequence sequence(std::int64_t index) const;

    const std::int32_t* topk_;
    std::int64_t topk_strides_[3];
    attncheck_int_array query_ends_, key_ends_;
    std::int64_t num_kv_heads_, block_, count_;
    Visibility visibility_;
    const std::uint8_t* mask_;
    std::int64_t mask_query_stride_, mask_key_stride_;
};

/// Whether any query lists a block; [num_kv_heads, num_blocks], 1 or 0.
std::vector<std::uint8_t> listed_blocks(const KeySelection& selection);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_KEY_SELECTION_H
