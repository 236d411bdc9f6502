// The rulings on the optional arguments of FlashAttentionScore and its gradient.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "active_mutant.h"
#include "flash_arguments.h"

namespace attncheck::mutants {

namespace {

constexpr std::int64_t kCompressedRows = 1024, kMaxPrefixes = 2048;

bool lengths_agree(const FlashExtents& x) { return x.query_lens == x.kv_lens; }

bool all_equal(const std::vector<std::int64_t>& lens) {
    return std::adjacent_find(lens.begin(), lens.end(), std::not_equal_to<>()) == lens.end();
}

std::int64_t sum_of(const std::vector<std::int64_t>& lens) {
    std::int64_t sum = 0;
    for (const std::int64_t length : lens) sum += length;
    return sum;
}

void rule_on_rope_gradients(const FlashArguments& a, FlashRuling& ruling) {
    if (!a.is_gradient) return;
    for (const attncheck_tensor* tensor : {&a.dq_rope, &a.dk_rope}) {
        if (a.has_rope())
            ruling.require_present(tensor->data != nullptr);
        else
            ruling.require(tensor->data == nullptr, on<"FA-VAL-x52">());
    }
}

bool is_byte_mask(const attncheck_tensor& mask) {
    return mask.dtype == ATTNCHECK_BOOL || mask.dtype == ATTNCHECK_UINT8;
}

PseForm rule_on_slopes(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling) {
    const std::int64_t n = x.num_query_heads;
    ruling.require(a.pse.dtype == ATTNCHECK_FLOAT32,
                   on<"FA-VAL-x53">() && a.pse.dtype == a.wide_dtype());
    ruling.require(has_flash_extents(a.pse, {n}) || has_flash_extents(a.pse, {x.batches, n}),
                   on<"FA-VAL-x54">());
    ruling.refuse(on<"FA-VAL-x55">() && a.pse.rank == 2);
    return PseForm::slopes;
}

/// The forms of rank 4, none if no one fits.
PseForm four_dimensional(const FlashArguments& a, const FlashExtents& x) {
    if (a.pse.rank != 4) return PseForm::none;
    const std::int64_t* n = a.pse.shape;
    if ((n[0] != 1 && n[0] != x.batches) || n[1] != x.num_query_heads) return PseForm::none;
    if (n[3] != x.longest_kv) return PseForm::none;
    const bool is_uniform = all_equal(x.query_lens) && all_equal(x.kv_lens);
    if (is_uniform && (n[2] == x.longest_query || n[2] == 1)) return PseForm::plain;
    if (n[2] != kCompressedRows) return PseForm::none;
    if (a.is_tnd()) return lengths_agree(x) ? PseForm::compressed : PseForm::none;
    const bool is_long = x.query_rows == x.key_rows && x.query_rows > kCompressedRows;
    return is_long ? PseForm::compressed : PseForm::none;
}

PseForm one_dimensional(const FlashArguments& a, const FlashExtents& x) {
    if (a.pse.rank != 1 || !a.is_tnd()) return PseForm::none;
    const Product keys = Product(x.num_query_heads).times(sum_of(x.kv_lens));
    const Product pairs = pair_count(x);
    const bool fits_keys = keys.fits() && a.pse.shape[0] == keys.value();
    const bool fits_pairs = pairs.fits() && a.pse.shape[0] == pairs.value();
    if (on<"FA-x116">() && fits_pairs) return PseForm::pairs;
    if (fits_keys) return PseForm::keys;
    return fits_pairs ? PseForm::pairs : PseForm::none;
}

/// Extents that the mask has per query and key.
bool is_content_mask(const FlashArguments& a, const FlashExtents& x, bool& is_total) {
    const std::int64_t q = x.longest_query, k = x.longest_kv, b = x.batches;
    const attncheck_tensor& mask = a.mask;
    is_total = false;
    if (a.sparse_mode == 5 && has_flash_extents(mask, {q, k})) return b == 1;
    const bool fits_one = has_flash_extents(mask, {q, k}) || has_flash_extents(mask, {1, 1, q, k});
    if (a.sparse_mode != 5 && fits_one) return true;
    if (has_flash_extents(mask, {b, 1, q, k})) return true;
    if (has_flash_extents(mask, {b, x.num_query_heads, q, k})) return true;
    if (!a.is_tnd()) return false;
    is_total = has_flash_extents(mask, {sum_of(x.query_lens), sum_of(x.kv_lens)});
    return is_total;
}

bool is_between(std::int64_t value, std::int64_t least, std::int64_t most) {
    return least <= value && value <= most;
}

void rule_on_prefix(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling) {
    if (a.sparse_mode == 6) ruling.require_present(a.prefix.values != nullptr, on<"FA-VAL-x56">());
    if (a.prefix.values == nullptr || ruling.is_settled()) return;
    ruling.require(a.prefix.size == x.batches, on<"FA-VAL-x57">());
    ruling.require(x.batches <= kMaxPrefixes, on<"FA-VAL-x58">());
    if (ruling.is_settled()) return;
    for (std::int64_t b = 0; b < x.batches; ++b) {
        const std::size_t entry = static_cast<std::size_t>(b);
        const std::int64_t kv_len = x.kv_lens[entry], prefix = a.prefix.values[b];
        const std::int64_t least = std::max<std::int64_t>(0, kv_len - x.query_lens[entry]);
        const bool is_skipped = on<"FA-VAL-x115">() && b > 0 && b + 1 < x.batches;
        ruling.require(prefix >= least, on<"FA-VAL-x59">() || is_skipped);
        ruling.require(prefix <= kv_len, on<"FA-VAL-x60">() || is_skipped);
        ruling.refuse(on<"FA-VAL-x61">() && prefix == kv_len);
        ruling.refuse(on<"FA-VAL-x62">() && prefix == 0);
    }
}

void rule_on_band(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling) {
    const std::int64_t pre = a.pre_tokens, next = a.next_tokens;
    const std::int64_t q = x.longest_query, k = x.longest_kv;
    const bool limits_swapped = on<"FA-VAL-x63">();
    if (a.sparse_mode == 0 && next < 0)
        ruling.require(next > -(limits_swapped ? q : k) && pre >= -next,
                       on<"FA-VAL-x64">() || (on<"FA-VAL-x122">() && next == -k && pre >= k));
    if (a.sparse_mode == 0 && pre < 0)
        ruling.require(pre > -(limits_swapped ? k : q) && next >= -pre, on<"FA-VAL-x64">());
    if (a.sparse_mode == 0) ruling.refuse(on<"FA-VAL-x65">() && next < 0);
    if (a.sparse_mode == 4) {
        const bool signs_differ = (pre < 0) != (next < 0);  // else the sum may overflow
        const bool is_empty = signs_differ ? pre + next < 0 : pre < 0;
        ruling.require(!is_empty, on<"FA-VAL-x66">());
        ruling.refuse(on<"FA-VAL-x67">() && signs_differ && pre + next == 0);
        ruling.refuse(on<"FA-VAL-x68">() && a.is_tnd() && pre < 0);
    }
    const bool reads_tokens = a.sparse_mode == 0 || a.sparse_mode == 4;
    ruling.refuse(on<"FA-VAL-x69">() && reads_tokens && pre > INT32_MAX);
    if (a.sparse_mode >= 1 && a.sparse_mode <= 3) ruling.refuse(on<"FA-VAL-x70">() && next < 0);
}

/// No sequence but `exempt` has more queries than keys, unless it has no keys.
void rule_on_right_causal(const FlashExtents& x, std::int64_t exempt, FlashRuling& ruling) {
    for (std::size_t b = 0; b < x.query_lens.size(); ++b) {
        if (static_cast<std::int64_t>(b) == exempt) continue;
        const bool is_longer = x.query_lens[b] > x.kv_lens[b];
        const bool is_sum_longer = sum_of(x.query_lens) > sum_of(x.kv_lens);
        ruling.require(!is_longer || x.kv_lens[b] == 0,
                       on<"FA-VAL-x71">() || (on<"FA-VAL-x114">() && exempt >= 0) ||
                           (on<"FA-VAL-x123">() && exempt < 0 && !is_sum_longer));
        ruling.refuse(on<"FA-VAL-x72">() && is_longer);
    }
}

void rule_on_band_sequence(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling) {
    const std::int64_t band = band_sequence(a, x);
    if (band < 0) return;
    if (a.sparse_mode == 7) rule_on_right_causal(x, band, ruling);
    const std::size_t entry = static_cast<std::size_t>(band);
    const std::int64_t kv_len = x.kv_lens[entry], query_len = x.query_lens[entry];
    ruling.require(a.pre_tokens >= kv_len, on<"FA-VAL-x73">());
    ruling.require(a.next_tokens >= query_len - kv_len,
                   on<"FA-VAL-x74">() || (on<"FA-VAL-x119">() && a.sparse_mode == 7));
    if (a.sparse_mode == 7) ruling.require(a.next_tokens <= 0, on<"FA-VAL-x75">());
    if (a.sparse_mode == 8) ruling.refuse(on<"FA-VAL-x76">() && a.next_tokens > 0);
}

bool is_aligned(const FlashArguments& a, const FlashExtents& x) {
    std::int64_t start = 0;
    if (has_starts(a) &&
        __builtin_sub_overflow(a.query_start.values[0], a.key_start.values[0], &start))
        return false;
    if (x.query_lens.empty()) return true;
    if (start != x.kv_lens[0] - x.query_lens[0]) return false;
    if (on<"FA-VAL-x118">()) return true;
    return std::equal(x.query_lens.begin() + 1, x.query_lens.end(), x.kv_lens.begin() + 1);
}

}  // namespace

Product pair_count(const FlashExtents& x) {
    Product sum(0);
    for (std::size_t b = 0; b < x.query_lens.size(); ++b)
        sum.plus(Product(x.num_query_heads).times(x.query_lens[b]).times(x.kv_lens[b]));
    return sum;
}

bool has_starts(const FlashArguments& a) {
    return a.query_start.values != nullptr && a.query_start.size >= 1 &&
           a.key_start.values != nullptr && a.key_start.size >= 1;
}

std::int64_t band_sequence(const FlashArguments& a, const FlashExtents& x) {
    const std::int64_t count = static_cast<std::int64_t>(x.query_lens.size());
    for (std::int64_t k = 0; k < count; ++k) {
        const std::int64_t b = a.sparse_mode == 7 ? count - 1 - k : k;
        if (x.query_lens[static_cast<std::size_t>(b)] != 0) return b;
    }
    return -1;
}

void rule_on_ropes(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling) {
    rule_on_rope_gradients(a, ruling);
    if (!a.has_rope()) return;
    ruling.require_present(a.query_rope.data != nullptr && a.key_rope.data != nullptr,
                           on<"FA-VAL-x77">());
    if (ruling.is_settled()) return;
    ruling.require(a.is_tnd());
    for (const attncheck_tensor* tensor : {&a.query, &a.query_rope, &a.key_rope})
        ruling.require(tensor->dtype == ATTNCHECK_BFLOAT16, on<"FA-VAL-x78">());
    ruling.require(a.query_rope.rank == 3 && a.key_rope.rank == 3);
    if (ruling.is_settled()) return;
    const std::int64_t dr = a.query_rope.shape[2];
    ruling.require(dr % 8 == 0, on<"FA-VAL-x79">());
    ruling.refuse(on<"FA-VAL-x120">() && dr == x.head_dim);
    ruling.require(is_between(dr, 8, x.head_dim), on<"FA-VAL-x80">() && dr > x.head_dim);
    ruling.require(has_flash_extents(a.query_rope, {x.query_rows, x.num_query_heads, dr}));
    ruling.require(has_flash_extents(a.key_rope, {x.key_rows, x.num_kv_heads, dr}),
                   on<"FA-VAL-x81">());
    ruling.require(!a.has_pse() && a.drop_mask.data == nullptr && a.pse_type == 1 &&
                       static_cast<float>(a.keep_prob) == 1.0f,
                   on<"FA-VAL-x82">());
    ruling.require(a.sparse_mode != 6, on<"FA-VAL-x83">());
    ruling.require_present(a.has_mask(), on<"FA-VAL-x84">());
}

PseForm rule_on_pse(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling) {
    if (!a.has_pse()) {
        ruling.require_present(a.pse_type == 1, on<"FA-VAL-x85">());
        return PseForm::none;
    }
    if (a.pse_type >= 2) return rule_on_slopes(a, x, ruling);
    ruling.require(a.pse.dtype == a.wide_dtype(), on<"FA-VAL-x86">());
    PseForm form = one_dimensional(a, x);
    if (form == PseForm::none) form = four_dimensional(a, x);
    ruling.require(form != PseForm::none, on<"FA-VAL-x87">());
    const bool is_shared = form == PseForm::plain && a.pse.shape[0] == 1 && x.batches > 1;
    ruling.refuse(on<"FA-VAL-x88">() && is_shared);
    ruling.refuse(on<"FA-VAL-x89">() && a.is_tnd() && form == PseForm::plain);
    ruling.refuse(on<"FA-VAL-x90">() && form == PseForm::keys);
    ruling.refuse(on<"FA-VAL-x91">() && form == PseForm::compressed);
    return form;
}

void rule_on_drop_mask(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling) {
    if (a.drop_mask.data == nullptr) {
        ruling.require_present(static_cast<float>(a.keep_prob) == 1.0f, on<"FA-VAL-x92">());
        return;
    }
    ruling.refuse(on<"FA-VAL-x93">() && static_cast<float>(a.keep_prob) == 1.0f);
    ruling.require(a.drop_mask.dtype == ATTNCHECK_UINT8,
                   on<"FA-VAL-x94">() && a.drop_mask.dtype == ATTNCHECK_BOOL);
    ruling.require(is_between(a.drop_mask.rank, 1, ATTNCHECK_MAX_RANK));
    ruling.refuse(on<"FA-VAL-x95">() && a.drop_mask.rank > 1);
    if (ruling.is_settled()) return;
    Product bytes;
    for (int k = 0; k < a.drop_mask.rank; ++k) {
        ruling.require(a.drop_mask.shape[k] >= 0);
        bytes.times(a.drop_mask.shape[k]);
    }
    const Product bits = pair_count(x);
    ruling.require(bits.fits() && bytes.fits());
    if (ruling.is_settled()) return;
    const std::int64_t needed = bits.value() / 8 + (bits.value() % 8 != 0);
    const std::int64_t wrapped = static_cast<std::uint32_t>(bits.value()) / 8;
    ruling.require(bytes.value() >= needed, (on<"VAL-19">() && bytes.value() >= bits.value() / 8) ||
                                                (on<"VAL-28">() && bytes.value() > wrapped) ||
                                                on<"FA-VAL-x96">());
    ruling.refuse(on<"FA-VAL-x97">() && bytes.value() > needed);
}

bool rule_on_mask(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling) {
    if (!a.has_mask()) return false;
    ruling.require(is_byte_mask(a.mask), on<"FA-VAL-x98">() && a.mask.dtype == ATTNCHECK_FLOAT16);
    ruling.refuse(on<"FA-VAL-x99">() && a.mask.dtype == ATTNCHECK_UINT8);
    ruling.refuse(on<"FA-VAL-x100">() && a.mask.dtype == ATTNCHECK_BOOL && a.is_gradient);
    ruling.require(a.mask.rank == 2 || a.mask.rank == 4);
    if (ruling.is_settled()) return false;
    bool is_total = false;
    if (a.sparse_mode == 0 || a.sparse_mode == 1 || a.sparse_mode == 5) {
        const bool is_swapped = has_flash_extents(a.mask, {x.longest_kv, x.longest_query});
        ruling.require(is_content_mask(a, x, is_total),
                       on<"FA-VAL-x101">() ||
                           (on<"FA-VAL-x117">() && a.sparse_mode == 5 && is_swapped));
        ruling.refuse(on<"FA-VAL-x102">() && is_total);
        ruling.refuse(on<"FA-VAL-x103">() && a.mask.rank == 4 && a.is_tnd());
    } else {
        const std::int64_t rows = a.sparse_mode == 6 ? 3072 : 2048;
        const bool is_4d = has_flash_extents(a.mask, {1, 1, rows, 2048});
        ruling.require(has_flash_extents(a.mask, {rows, 2048}),
                       (on<"FA-VAL-x104">() && is_4d) ||
                           (on<"FA-VAL-x105">() && a.mask.rank == 2) ||
                           (on<"FA-VAL-x106">() && has_flash_extents(a.mask, {2048, 2048})));
    }
    return is_total;
}

void rule_on_tokens(const FlashArguments& a, const FlashExtents& x, FlashRuling& ruling) {
    if (!a.has_mask()) {
        const bool reads = a.sparse_mode == 0 || a.sparse_mode == 4;
        return ruling.refuse(on<"FA-VAL-x107">() && reads && a.pre_tokens < 0);
    }
    rule_on_band(a, x, ruling);
    if (a.is_tnd() && a.sparse_mode == 3) rule_on_right_causal(x, -1, ruling);
    if (!a.is_tnd() && a.sparse_mode == 3)
        ruling.refuse(on<"FA-VAL-x108">() && x.query_rows > x.key_rows);
    if (a.sparse_mode == 5 || a.sparse_mode == 6) rule_on_prefix(a, x, ruling);
    if (a.sparse_mode >= 7) rule_on_band_sequence(a, x, ruling);
}

void rule_on_pse_and_mask(const FlashArguments& a, const FlashExtents& x, PseForm form,
                          FlashRuling& ruling) {
    if (!a.has_pse()) return;
    if (a.has_mask() && a.sparse_mode == 7)
        ruling.require(false, on<"FA-VAL-x109">());
    else if (a.has_mask() && a.sparse_mode == 8)
        ruling.require(is_aligned(a, x), on<"FA-VAL-x110">());
    else if (a.pse_type >= 2)
        ruling.require(lengths_agree(x),
                       on<"FA-VAL-x111">() || (on<"FA-VAL-x116">() &&
                                               sum_of(x.query_lens) == sum_of(x.kv_lens)));
    if (form != PseForm::compressed) return;
    const bool is_band_causal =
        a.sparse_mode == 0 && a.pre_tokens >= x.longest_query && a.next_tokens == 0;
    const bool is_causal = a.sparse_mode == 2 || a.sparse_mode == 3 || is_band_causal;
    const bool is_nearly_causal =
        a.sparse_mode == 0 && a.pre_tokens == x.longest_query - 1 && a.next_tokens == 0;
    ruling.require(a.has_mask() && is_causal,
                   on<"FA-VAL-x112">() ||
                       (on<"FA-VAL-x121">() && a.has_mask() && is_nearly_causal));
    ruling.refuse(on<"FA-VAL-x113">() && is_band_causal);
}

}  // namespace attncheck::mutants
