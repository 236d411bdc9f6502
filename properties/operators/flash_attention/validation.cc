// Validation of flash attention: a legal call with edits; the ruling on them is the reference's
// predicate.
#include <fmt/format.h>

#include <algorithm>

#include "properties/case/attention_draws.h"
#include "properties/laws/call_properties.h"
#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {
namespace {

constexpr std::int64_t kMax = INT64_MAX, kMin = INT64_MIN;

/// value + offset modulo 2^64: tokens may be INT64_MAX, whose neighbour is then INT64_MIN.
std::int64_t beside(std::int64_t value, std::int64_t offset) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(value) +
                                     static_cast<std::uint64_t>(offset));
}

std::int64_t opposite(std::int64_t value) { return beside(~value, 1); }

/// Limits of the band, each next to the negative of the other.
void add_token_edits(EditGroups& groups, const Call& call) {
    const std::int64_t pre = call.number("pre_tokens"), next = call.number("next_tokens");
    const auto add = [&](const char* name, std::int64_t now, std::int64_t other) {
        groups.push_back(
            values_of(name, {0, -1, -2, -5, beside(now, 1), beside(now, -1), opposite(other),
                             ~other, kMax, kMin, kMin + 1, INT32_MAX, std::int64_t{1} << 31}));
    };
    add("pre_tokens", pre, next);
    add("next_tokens", next, pre);
}

std::string set_to(std::string_view name, std::int64_t value) {
    return fmt::format("{}={}", name, value);
}

/// Rules on the tokens and the prefix of the case's mode, at their limits.
void aim_at_mode(std::vector<Edit>& edits, const Spec& spec, const FlashParts& parts,
                 const Call& call) {
    const auto &q = spec.lists[0], &kv = spec.lists[1];
    const std::int64_t mode = call.number("sparse_mode"), pre = call.number("pre_tokens"),
                       next = call.number("next_tokens");
    const auto add = [&](std::string_view name, std::int64_t value) {
        edits.insert(edits.end(), 2, set_to(name, value));
    };
    if (mode == 0) {
        add("pre_tokens", -longest(q));
        add("next_tokens", -longest(kv));
    } else if (mode == 4) {  // pre + next == -1
        if (next >= 0) add("pre_tokens", -next - 1);
        if (pre >= 0) add("next_tokens", -pre - 1);
        add("pre_tokens", kMin);
    } else if (mode >= 7) {
        const auto has_queries = [](std::int64_t length) { return length != 0; };
        const auto first = std::find_if(q.begin(), q.end(), has_queries);
        if (first == q.end()) return;
        const auto last = std::find_if(q.rbegin(), q.rend(), has_queries);
        const auto band =
            static_cast<std::size_t>(mode == 7 ? q.rend() - last - 1 : first - q.begin());
        add("pre_tokens", kv[band] - 1);
        add("next_tokens", q[band] - kv[band] - 1);
        if (mode == 7) add("next_tokens", 1);
    }
    if (!parts.prefix) return;
    const auto last = parts.prefix->size() - 1;
    const auto shortest = static_cast<std::size_t>(std::ranges::min_element(kv) - kv.begin());  // its own limits, not the longest's
    for (const std::size_t b : {last, shortest}) {
        const std::string entry = fmt::format("prefix[{}]", b);
        add(entry, kv[b] + 1);
        add(entry, std::max<std::int64_t>(0, kv[b] - q[b]) - 1);
    }
    edits.insert(edits.end(), 2, "prefix.absent");
    add("prefix.size", static_cast<std::int64_t>(last));
}

/// Edits of rules that only some cases come under: one list that the search draws often, because
/// few cases have what it is about.
std::vector<Edit> aimed_edits(const Spec& spec, const FlashParts& parts, const Call& call) {
    const ref::FlashAttentionShape& s = parts.shape;
    const bool tnd = parts.layout == FlashLayout::tnd;
    const std::string pse = parts.gradient ? "pse_shift" : "real_shift";
    std::vector<Edit> edits;
    const auto add = [&](std::initializer_list<Edit> more) {
        edits.insert(edits.end(), more);
    };
    if (s.mask.present)
        aim_at_mode(edits, spec, parts, call);
    else
        add({"sparse_mode=9", "sparse_mode=-1", set_to("pre_tokens", kMin),
             tnd ? "sparse_mode=5" : "sparse_mode=7"});
    if (s.rope_dim > 0) {
        for (int k = 0; k < 2; ++k)
            add({"atten_mask.absent", "key_rope.absent",
                 set_to("query_rope.dtype", ATTNCHECK_FLOAT16)});
        add({"query_rope.absent", "sparse_mode=6"});
        if (parts.gradient) add({"dq_rope.absent", "dk_rope.absent"});
    }
    if (s.mask.present && !flash_reads_mask(s.mask.sparse_mode)) {
        add({"atten_mask.lead=2", "atten_mask.lead=1"});
        if (s.mask.sparse_mode == 6) edits.insert(edits.end(), 3, "atten_mask.shape[0]=2048");
    }
    const std::int64_t group = s.query_heads / s.kv_heads, hidden = s.kv_heads * s.head_dim;
    const bool merged = parts.layout == FlashLayout::bsh || parts.layout == FlashLayout::sbh;
    if (merged && group > 2 && s.head_dim > 1 && s.value_dim == s.head_dim &&
        (group - 1) * hidden <= 256)  // more than half of H1: D would be 1 and a remainder is left
        edits.insert(edits.end(), 6, set_to("head_num", (group - 1) * hidden));
    if (tnd && s.mask.present && s.mask.sparse_mode == 3) {
        edits.insert(edits.end(), 2, set_to("all.q", longest(spec.lists[1]) + 1));
    }
    if (tnd && s.bias.present && s.mask.present && !flash_reads_mask(s.mask.sparse_mode))
        edits.insert(edits.end(), 6, "all.sparse=7");
    if (s.dropout.present)  // bits beyond 2^32, which a 32-bit count takes for few
        add({"short_drop.rows=65536", "drop_mask.spare=1", "drop_mask.spare=9", "drop_mask.lead=1",
             "drop_mask.lead=3", "drop_mask.absent",
             set_to("drop_mask.shape[0]", call.tensor("drop_mask").buffer_shape[0] - 1)});
    else if (s.rope_dim == 0)
        add({"keep_prob=0.5", "keep_prob=0.999999999999", "keep_prob=1.00000001"});
    if (!s.bias.present) {
        add({"pse_type=0", "pse_type=2"});
    } else if (s.bias.type >= 2) {
        add({set_to(pse + ".dtype", ATTNCHECK_FLOAT16),
             set_to(pse + ".dtype", ATTNCHECK_BFLOAT16)});
        if (tnd && spec.lists[1].back() > 0)  // S1 != S2
            edits.insert(edits.end(), 5,
                         fmt::format("actual_seq_kv_len[{}]={}", spec.lists[1].size() - 1,
                                     s.total_keys - spec.number("beyond_kv") - 1));
    } else if (s.bias.shape.size() == 4 && s.bias.shape[2] == 1024) {
        add({"atten_mask.absent", "next_tokens=1", "sparse_mode=4"});
    }
    return edits;
}

/// Edits that any case can have and that would be lost among the values of their group.
std::vector<Edit> common_edits(const Spec& spec, const FlashParts& parts, const Call& call) {
    const ref::FlashAttentionShape& s = parts.shape;
    const bool merged = parts.layout == FlashLayout::bsh || parts.layout == FlashLayout::sbh;
    const auto last = [&](const char* tensor, std::int64_t heads, std::int64_t dim) {
        return fmt::format("{}.shape[{}]={}", tensor, call.tensor(tensor).shape.size() - 1,
                           merged ? heads * dim : dim);
    };
    const bool tnd = parts.layout == FlashLayout::tnd;
    const auto& integers = spec.schema->integers;
    const std::string& inert =
        std::find_if(integers.begin(), integers.end(), [](const auto& f) { return f.inert; })->name;
    std::vector<Edit> edits{
        set_to("head_num", 0),
        set_to("head_num", -1),
        set_to("head_num", (std::int64_t{1} << 32) + s.query_heads),
        set_to(inert, 258),
        "keep_prob=0",
        "keep_prob=-0.5",
        "keep_prob=1.5",
        "keep_prob=1e-50",
        "keep_prob=nan",
        "scale_value=nan",
        "input_layout=\"bsh\"",
        tnd ? "input_layout=\"BNSD\"" : "input_layout=\"TND\"",
        last("query", s.query_heads, 513),
        last("value", s.kv_heads, s.head_dim + 1),
        set_to("key.dtype", spec.number("dtype") == 0 ? ATTNCHECK_BFLOAT16 : ATTNCHECK_FLOAT16),
        "softmax_max.absent",
        set_to(parts.gradient ? "dq.dtype" : "attention_out.dtype", ATTNCHECK_UINT8)};
    const std::string layout = merged || tnd ? "input_layout=\"BSND\"" : "input_layout=\"BSH\"";
    edits.insert(edits.end(), tnd ? 2 : 3, layout);
    if (!tnd)
        edits.insert(edits.end(), 4,
                     fmt::format("key.shape[{}]=0", parts.layout == FlashLayout::sbh ? 1 : 0));
    if (!merged) {
        const auto heads = parts.layout == FlashLayout::bsnd ? 2 : 1;
        edits.push_back(fmt::format("key.shape[{}]={}", heads, s.query_heads + 1));  // N2
        return edits;
    }
    edits.insert(edits.end(), 3, "input_layout=\"TND\"");
    edits.insert(edits.end(), 3, last("key", 1, s.head_dim - 1));  // 0 < H of key < D
    edits.insert(edits.end(), 2, last("key", 1, s.kv_heads * s.head_dim + 1));
    edits.insert(edits.end(), 5, set_to("head_num", s.query_heads + 1));
    return edits;
}

/// Every single change that is tried: those of the description, those that aim at a rule of few
/// cases, three tenths of the draws, and single values that would be lost, a quarter of them.
EditGroups possible_edits(const Spec& spec) {
    constexpr std::int64_t kMostBatches = 2 << 20;
    const FlashParts parts = flash_shape_parts(spec);
    const Extents extents = extents_of(spec);
    const Call call = outline_of(extents);
    EditGroups groups = derived_edits(extents);
    add_token_edits(groups, call);
    if (parts.prefix) {
        groups.push_back({"prefix.absent"});
        groups.push_back(values_of("prefix.size", {0, -1, std::ssize(*parts.prefix) - 1}));
        for (std::size_t b = 0; b < parts.prefix->size(); ++b) {
            const std::int64_t q = extents.lengths("q")[b], kv = extents.lengths("kv")[b];
            groups.push_back(values_of(
                fmt::format("prefix[{}]", b),
                {-1, 0, kv + 1, kv, std::max<std::int64_t>(0, kv - q) - 1, kMax, kMin}));
        }
    }
    groups.push_back({set_to("all.batches", kMostBatches + 1)});  // costs a list of 2 Mi
    const std::size_t plain = groups.size();
    if (const auto aimed = aimed_edits(spec, parts, call); !aimed.empty())
        groups.insert(groups.end(), plain * 2 / 3, aimed);
    groups.insert(groups.end(), plain / 2, common_edits(spec, parts, call));
    return groups;
}

/// Validation reads arguments, not elements: few of them make room for many cases.
void plain_data(Spec& spec) {
    with_zeros_in_dense_tensors(spec);
    change_if_legal(spec, [](Spec& to) { limit_fields(to, {"group"}, 3); });
    change_if_legal(spec, [](Spec& to) { limit_lengths(to, 12); });
}

}  // namespace

void add_flash_validation(std::vector<Property>& list) {
    add_validation_properties(list, plain_data, 20, possible_edits);  // some 500 different edits
}

}  // namespace attncheck::properties
