// Oracle of NsaSelectedAttention and NsaSelectedAttentionGrad: which key columns a query sees; the
// mathematics is dense_attention.h.
//
//   query token s of sequence b, kv head n2, list position i, offset r < block:
//   key position  idx[t, n2, i] * block + r,   key row  first key of b + key position
//
// Every listed column counts as often as it is listed (a multiset), whatever the order of the list.
// Visible:
//   no mask           everything
//   causal            sparse mode 2 with a mask: key position <= s, both from the start of their
//   sequences contents          sparse mode 0 with a mask: mask[s, key position] == 0
// Sources: aclnnNsaSelectedAttention, contract.md decisions 2, 4 and 6; nsa.md 4.3 and 4.4.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ref/attention/dense_attention.h"
#include "ref/operators/packed_queries.h"

namespace attncheck::ref {

enum class SelectedMask { none, causal, contents };

struct SelectedAttentionShape {
    std::vector<std::int64_t> query_lengths, kv_lengths;  ///< per sequence, each >= 0
    std::int64_t total_queries = 0, total_keys = 0;       ///< T1, T2: rows beyond belong to nothing
    std::int64_t query_heads = 1, kv_heads = 1;           ///< N1, N2
    std::int64_t head_dim = 128, value_dim = 128;         ///< D, Dv
    std::int64_t block = 16, count = 1;  ///< selectedBlockSize, selectedBlockCount (K)
    SelectedMask mask = SelectedMask::none;
    std::int64_t mask_columns = 0;  ///< row length of the mask contents

    AttentionShape dense() const {
        return {total_queries, total_keys, query_heads, kv_heads, head_dim, value_dim};
    }
};

using SelectedQuery = PackedQuery;
std::vector<SelectedQuery> selected_queries(const SelectedAttentionShape& shape);

/// The columns of every row. topk [T1,N2,K] row-major; mask [rows, mask_columns], read with
/// SelectedMask::contents only. Both must outlive the lister. Sequences without keys list nothing.
ColumnLister selected_columns(const SelectedAttentionShape& shape,
                              std::span<const std::int64_t> topk,
                              std::span<const std::uint8_t> mask = {});

}  // namespace attncheck::ref
