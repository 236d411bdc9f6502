// The documented constraints of NsaSelectedAttention and NsaSelectedAttentionGrad. Source:
// contract.md, return values and decisions 4 and 6. Arguments may hold anything: every comparison
// comes before the arithmetic that relies on it.
//
// T1, T2 query and key tokens of all sequences   N1, N2 query and key heads   D, Dv head_dim and
// value_dim   S_q, S_kv lengths of one sequence   K selected_block_count
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "ref/constraints/constraints.h"
#include "ref/constraints/examination.h"
#include "ref/constraints/nsa_limits.h"

namespace attncheck::ref {
namespace {

constexpr std::int64_t kMaxTokens = 2 << 20, kMaxLength = 128 << 10;
constexpr std::int64_t kMaxGroup = 32;
constexpr std::int64_t kForwardSequences = 1024, kGradSequences = 2 << 20;

std::string show_sequence(std::size_t index, std::int64_t length) {
    return "has a sequence of " + std::to_string(length) + " tokens at index " +
           std::to_string(index);
}

bool is_head_dim(std::int64_t dim) { return dim == 128 || dim == 192; }

template <class Arguments>
void examine_attributes(Examination& e, const Arguments& a) {
    e.rule(is_finite_as_fp32(a.scale_value), kInvalid, "scale_value", "is " + show(a.scale_value),
           "finite as fp32");
    e.number(is_within(a.head_num, 1, kMaxHeads), "head_num", a.head_num, show_range(1, kMaxHeads));
    e.number(a.sparse_mode == 0 || a.sparse_mode == 2, "sparse_mode", a.sparse_mode, "0, 2");
    e.number(
        is_within(a.selected_block_size, kGranule, kMaxBlock) && a.selected_block_size % kGranule == 0,
        "selected_block_size", a.selected_block_size,
        "a multiple of 16, " + show_range(kGranule, kMaxBlock));
    e.number(is_within(a.selected_block_count, 1, kMaxBlockCount), "selected_block_count",
             a.selected_block_count, show_range(1, kMaxBlockCount));
}

/// Everything that needs no extent. In struct order the inputs come first (query leads them), then
/// the length arrays and the layout, then the outputs; a rule goes through all of them before the
/// next one.
template <class Arguments>
Examination examine_form(const Arguments& a, const Operands& inputs, const Operands& outputs) {
    Examination e;
    e.present(inputs);
    e.present(a.actual_seq_q_len.present, "actual_seq_q_len", "cumulative query lengths");
    e.present(a.actual_seq_kv_len.present, "actual_seq_kv_len", "cumulative key lengths");
    e.present(a.input_layout.has_value(), "input_layout", "\"TND\"");
    e.present(outputs);
    e.layout(a.input_layout, "input_layout");
    e.form({inputs, outputs}, inputs.front(), {Dtype::fp16, Dtype::bf16});
    examine_attributes(e, a);
    return e;
}

template <class Arguments>
Letters examine_query_key_value(Examination& e, const Arguments& a) {
    if (!e.accepted()) return {};
    const auto &q = a.query.shape, &k = a.key.shape, &v = a.value.shape;
    const std::string tokens = show_range(1, kMaxTokens), heads = show_range(1, kMaxHeads);
    e.extent(is_within(q[0], 1, kMaxTokens), "query", "T1", q[0], "T1 in " + tokens);
    e.extent(is_within(q[1], 1, kMaxHeads), "query", "N1", q[1], "N1 in " + heads);
    e.extent(is_head_dim(q[2]), "query", "D", q[2], "D 128 or 192");
    e.number(a.head_num == q[1], "head_num", a.head_num, "N1 of query = " + std::to_string(q[1]));
    e.extent(is_within(k[0], 1, kMaxTokens), "key", "T2", k[0], "T2 in " + tokens);
    e.extent(is_within(k[1], 1, kMaxHeads), "key", "N2", k[1], "N2 in " + heads);
    e.extent(k[2] == q[2], "key", "D", k[2], "D of query = " + std::to_string(q[2]));
    if (!e.accepted()) return {};
    e.extent(q[1] % k[1] == 0 && q[1] / k[1] <= kMaxGroup, "key", "N2", k[1],
             "N2 a divisor of N1 = " + std::to_string(q[1]) +
                 " with N1 / N2 <= " + std::to_string(kMaxGroup),
             q[1] % k[1] != 0 ? "no divisor" : "above");
    e.extent(v[0] == k[0], "value", "T2", v[0], "T2 of key = " + std::to_string(k[0]));
    e.extent(v[1] == k[1], "value", "N2", v[1], "N2 of key = " + std::to_string(k[1]));
    e.extent(is_head_dim(v[2]) && v[2] <= q[2], "value", "Dv", v[2],
             "Dv 128 or 192 and at most D = " + std::to_string(q[2]),
             is_head_dim(v[2]) ? "above" : "another number");
    return {{"T1", q[0]}, {"N1", q[1]}, {"D", q[2]}, {"T2", k[0]}, {"N2", k[1]}, {"Dv", v[2]},
            {"selected_block_count", a.selected_block_count}};
}

/// The entries of an accepted size: cumulative lengths of at most 128 Ki tokens each.
template <class CheckLength>
void examine_lengths(Examination& e, const ArrayArgument& array, const char* name,
                     const char* extent_name, std::int64_t tokens, CheckLength&& check_length) {
    if (!e.accepted()) return;
    e.require_backed(array, name);
    e.lengths(array, name, extent_name, tokens, [&](std::size_t index, std::int64_t length) {
        if (length > kMaxLength)
            e.rule(false, kInvalid, name, show_sequence(index, length),
                   "at most " + std::to_string(kMaxLength));
        check_length(index, length);
    });
}

template <class Arguments>
void examine_query_lengths(Examination& e, const Arguments& a, std::int64_t max_sequences) {
    const char* const name = "actual_seq_q_len";
    const ArrayArgument& array = a.actual_seq_q_len;
    e.array_size(is_within(array.size, 1, max_sequences), array, name,
                 "size " + show_range(1, max_sequences));
    if (e.accepted())
        examine_lengths(e, array, name, "T1", a.query.shape[0], [](std::size_t, std::int64_t) {});
}

template <class Arguments>
void examine_key_lengths(Examination& e, const Arguments& a, std::int64_t max_sequences) {
    const char* const name = "actual_seq_kv_len";
    const ArrayArgument& array = a.actual_seq_kv_len;
    e.array_size(is_within(array.size, 1, max_sequences), array, name,
                 "size " + show_range(1, max_sequences));
    e.array_size(array.size == a.actual_seq_q_len.size, array, name,
                 "the size of actual_seq_q_len = " + std::to_string(a.actual_seq_q_len.size));
    if (!e.accepted()) return;
    const std::int64_t block = a.selected_block_size, least = block * a.selected_block_count;
    const auto whole_blocks = [&](std::size_t index, std::int64_t length) {
        if (length == 0 || (length % block == 0 && length >= least)) return;
        e.rule(
            false, kInvalid, name, show_sequence(index, length),
            "0, or a multiple of selected_block_size = " + std::to_string(block) +
                ", at least selected_block_size * selected_block_count = " + std::to_string(least),
            length % block == 0 ? "too few blocks"
            : length >= least   ? "a part of a block"
                                : "a part of a block, too few");
    };
    examine_lengths(e, array, name, "T2", a.key.shape[0], whole_blocks);
}

std::int64_t longest(const std::vector<std::int64_t>& cumulative) {
    std::int64_t longest = 0, begin = 0;
    for (const std::int64_t end : cumulative) {
        longest = std::max(longest, end - begin);
        begin = end;
    }
    return longest;
}

template <class Arguments>
void examine_mask(Examination& e, const Arguments& a) {
    const TensorArgument& mask = a.atten_mask;
    if (!e.accepted() || !mask.present) return;
    e.rank(mask, "atten_mask", 2);
    e.dtype(mask, "atten_mask", {Dtype::boolean, Dtype::uint8});
    if (!e.accepted()) return;
    e.rule(mask.shape[0] >= 0 && mask.shape[1] >= 0, kInvalid, "atten_mask",
           "has shape " + show(mask.shape), "extents >= 0");
    if (a.sparse_mode == 0)
        e.shape(mask, "atten_mask", "[max S_q,max S_kv]",
                {longest(a.actual_seq_q_len.values), longest(a.actual_seq_kv_len.values)});
}

/// Every block that a query row lists exists in its sequence. Rows of a sequence without keys and
/// rows beyond the last length are not checked.
template <class Arguments>
void examine_block_numbers(Examination& e, const Arguments& a) {
    if (!e.accepted()) return;
    const std::int64_t count = a.selected_block_count, row = a.key.shape[1] * count;
    if (a.topk_values.size() != static_cast<std::size_t>(a.query.shape[0] * row))
        throw std::logic_error("topk_values holds " + std::to_string(a.topk_values.size()) +
                               " values for the shape " + show(a.topk_indices.shape));
    std::int64_t token = 0, kv_begin = 0;
    for (std::size_t b = 0; b < a.actual_seq_q_len.values.size(); ++b) {
        const std::int64_t kv_end = a.actual_seq_kv_len.values[b];
        const std::int64_t blocks = (kv_end - kv_begin) / a.selected_block_size;
        kv_begin = kv_end;
        const std::int64_t query_end = a.actual_seq_q_len.values[b];
        for (std::int64_t i = token * row; blocks > 0 && i < query_end * row; ++i) {
            const std::int64_t listed = a.topk_values[static_cast<std::size_t>(i)];
            if (is_within(listed, 0, blocks - 1)) continue;
            const std::vector<std::int64_t> place{i / row, i % row / count, i % count};
            e.rule(false, kInvalid, "topk_indices",
                   "has value " + std::to_string(listed) + " at " + show(place),
                   show_range(0, blocks - 1) + ", the blocks of sequence " + std::to_string(b));
            return;
        }
        token = query_end;
    }
}

/// Both directions. Query, key and value lead the inputs.
template <class Arguments>
Ruling examine(const Arguments& a, const Operands& inputs, const Operands& outputs,
               std::int64_t max_sequences) {
    Examination e = examine_form(a, inputs, outputs);
    const Letters letters = examine_query_key_value(e, a);
    e.shapes(std::span(inputs).subspan(3), letters);
    examine_query_lengths(e, a, max_sequences);
    examine_key_lengths(e, a, max_sequences);
    examine_mask(e, a);
    e.shapes(outputs, letters);
    examine_block_numbers(e, a);
    return e.ruling;
}

constexpr const char* kLists = "[T1,N2,selected_block_count]";

}  // namespace

Ruling rule_nsa_selected_attention(const SelectedAttentionArguments& a) {
    return examine(a,
                   {{a.query, "query", "[T1,N1,D]"},
                    {a.key, "key", "[T2,N2,D]"},
                    {a.value, "value", "[T2,N2,Dv]"},
                    {a.topk_indices, "topk_indices", kLists, Stores::int32}},
                   {{a.softmax_max, "softmax_max", "[T1,N1,8]", Stores::fp32},
                    {a.softmax_sum, "softmax_sum", "[T1,N1,8]", Stores::fp32},
                    {a.attention_out, "attention_out", "[T1,N1,Dv]"}},
                   kForwardSequences);
}

Ruling rule_nsa_selected_attention_grad(const SelectedAttentionGradArguments& a) {
    return examine(a,
                   {{a.query, "query", "[T1,N1,D]"},
                    {a.key, "key", "[T2,N2,D]"},
                    {a.value, "value", "[T2,N2,Dv]"},
                    {a.attention_out, "attention_out", "[T1,N1,Dv]"},
                    {a.attention_out_grad, "attention_out_grad", "[T1,N1,Dv]"},
                    {a.softmax_max, "softmax_max", "[T1,N1,8]", Stores::fp32},
                    {a.softmax_sum, "softmax_sum", "[T1,N1,8]", Stores::fp32},
                    {a.topk_indices, "topk_indices", kLists, Stores::int32}},
                   {{a.dq, "dq", "[T1,N1,D]"},
                    {a.dk, "dk", "[T2,N2,D]"},
                    {a.dv, "dv", "[T2,N2,Dv]"}},
                   kGradSequences);
}

}  // namespace attncheck::ref
