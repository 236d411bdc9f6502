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

#include "ref/operators/packed_queries.h"

namespace attncheck::ref {

enum class SelectedMask { none, causal, contents };

struct SelectedAttentionShape : PackedShape {
    std::int64_t block = 16, count = 1;  ///< selectedBlockSize, selectedBlockCount (K)
    SelectedMask mask = SelectedMask::none;
    std::int64_t mask_columns = 0;  ///< row length of the mask contents
};

std::vector<PackedQuery> selected_queries(const SelectedAttentionShape& shape);

/// The columns of every row. topk [T1,N2,K] row-major; mask [rows, mask_columns], read with
/// SelectedMask::contents only. Both must outlive the lister. Sequences without keys list nothing.
ColumnLister selected_columns(const SelectedAttentionShape& shape,
                              std::span<const std::int64_t> topk,
                              std::span<const std::uint8_t> mask = {});

}  // namespace attncheck::ref
