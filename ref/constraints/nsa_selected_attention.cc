// The documented constraints of NsaSelectedAttention and NsaSelectedAttentionGrad. Source:
// contract.md, return values and decisions 4 and 6. Arguments may hold anything: every comparison
// comes before the arithmetic that relies on it.
//
// T1, T2 query and key tokens of all sequences   N1, N2 query and key heads   D, Dv head_dim and
// value_dim   S_q, S_kv lengths of one sequence   K selected_block_count
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "ref/constraints/constraints.h"
#include "ref/constraints/examination.h"

namespace attncheck::ref {
namespace {

constexpr std::int64_t kMaxTokens = 2 << 20, kMaxLength = 128 << 10;
constexpr std::int64_t kMaxHeads = 128, kMaxGroup = 32;
constexpr std::int64_t kGranule = 16, kMaxBlock = 128, kMaxBlockCount = 32;
constexpr std::int64_t kForwardSequences = 1024, kGradSequences = 2 << 20;
constexpr std::int64_t kStatisticCopies = 8;  ///< softmax statistics are repeated 8 times
/// Halfway between FLT_MAX and 2^128: from here on a binary64 value rounds to an infinite fp32.
constexpr double kFloatOverflow = 0x1.ffffffp127;

/// A required tensor: its name in candidate.h, what it stores and the letters of its shape.
enum class Stores { input_type, block_numbers, statistics };
struct Operand {
    const TensorArgument& tensor;
    const char* name;
    Stores stores;
    const char* extents;
};
using Operands = std::vector<Operand>;

/// Legal while the examination accepts, otherwise anything.
struct Extents {
    std::int64_t query_tokens = 0, kv_tokens = 0, num_query_heads = 0, num_kv_heads = 0;
    std::int64_t head_dim = 0, value_dim = 0;
};

bool within(std::int64_t value, std::int64_t smallest, std::int64_t largest) {
    return value >= smallest && value <= largest;
}

std::string range(std::int64_t smallest, std::int64_t largest) {
    return std::to_string(smallest) + ".." + std::to_string(largest);
}

std::string show_sequence(std::size_t index, std::int64_t length) {
    return "has a sequence of " + std::to_string(length) + " tokens at index " +
           std::to_string(index);
}

std::string show_exactly(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", value);
    return text;
}

bool is_head_dim(std::int64_t dim) { return dim == 128 || dim == 192; }

void examine_dtype(Examination& e, const Operand& operand, const Operand& query) {
    if (operand.stores == Stores::block_numbers)
        e.dtype(operand.tensor, operand.name, {Dtype::int32});
    else if (operand.stores == Stores::statistics)
        e.dtype(operand.tensor, operand.name, {Dtype::fp32});
    else if (&operand.tensor == &query.tensor)
        e.dtype(operand.tensor, operand.name, {Dtype::fp16, Dtype::bf16});
    else
        e.same_dtype(operand.tensor, operand.name, query.tensor, query.name);
}

template <class Arguments>
void examine_attributes(Examination& e, const Arguments& a) {
    e.rule(std::abs(a.scale_value) < kFloatOverflow, kInvalid, "scale_value",
           "is " + show_exactly(a.scale_value), "finite as fp32");
    e.number(within(a.head_num, 1, kMaxHeads), "head_num", a.head_num, range(1, kMaxHeads));
    e.number(a.sparse_mode == 0 || a.sparse_mode == 2, "sparse_mode", a.sparse_mode, "0, 2");
    e.number(
        within(a.selected_block_size, kGranule, kMaxBlock) && a.selected_block_size % kGranule == 0,
        "selected_block_size", a.selected_block_size,
        "a multiple of 16, " + range(kGranule, kMaxBlock));
    e.number(within(a.selected_block_count, 1, kMaxBlockCount), "selected_block_count",
             a.selected_block_count, range(1, kMaxBlockCount));
}

/// Everything that needs no extent. In struct order the inputs come first (query leads them), then
/// the length arrays and the layout, then the outputs; a rule goes through all of them before the
/// next one.
template <class Arguments>
Examination examine_form(const Arguments& a, const Operands& inputs, const Operands& outputs) {
    Examination e;
    const auto present = [&](const Operand& operand) {
        e.present(operand.tensor.present, operand.name, std::string("a tensor ") + operand.extents);
    };
    std::for_each(inputs.begin(), inputs.end(), present);
    e.present(a.actual_seq_q_len.present, "actual_seq_q_len", "cumulative query lengths");
    e.present(a.actual_seq_kv_len.present, "actual_seq_kv_len", "cumulative key lengths");
    e.present(a.input_layout.has_value(), "input_layout", "\"TND\"");
    std::for_each(outputs.begin(), outputs.end(), present);
    e.layout(a.input_layout, "input_layout");
    for (const Operands* side : {&inputs, &outputs})
        for (const Operand& operand : *side) e.rank(operand.tensor, operand.name, 3);
    for (const Operands* side : {&inputs, &outputs})
        for (const Operand& operand : *side) examine_dtype(e, operand, inputs.front());
    examine_attributes(e, a);
    return e;
}

template <class Arguments>
Extents examine_query_key_value(Examination& e, const Arguments& a) {
    if (!e.accepted()) return {};
    const auto &q = a.query.shape, &k = a.key.shape, &v = a.value.shape;
    const Extents x{q[0], k[0], q[1], k[1], q[2], v[2]};
    const std::string tokens = range(1, kMaxTokens), heads = range(1, kMaxHeads);
    e.extent(within(q[0], 1, kMaxTokens), "query", "T1", q[0], "T1 in " + tokens);
    e.extent(within(q[1], 1, kMaxHeads), "query", "N1", q[1], "N1 in " + heads);
    e.extent(is_head_dim(q[2]), "query", "D", q[2], "D 128 or 192");
    e.number(a.head_num == q[1], "head_num", a.head_num, "N1 of query = " + std::to_string(q[1]));
    e.extent(within(k[0], 1, kMaxTokens), "key", "T2", k[0], "T2 in " + tokens);
    e.extent(within(k[1], 1, kMaxHeads), "key", "N2", k[1], "N2 in " + heads);
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
    return x;
}

/// The entries of an accepted size: cumulative lengths of at most 128 Ki tokens each.
template <class CheckLength>
void examine_lengths(Examination& e, const ArrayArgument& array, const char* name,
                     const char* extent_name, std::int64_t tokens, CheckLength&& check_length) {
    if (!e.accepted()) return;
    if (static_cast<std::size_t>(array.size) != array.values.size())
        throw std::logic_error(std::string(name) + " holds " + std::to_string(array.values.size()) +
                               " values for its size " + std::to_string(array.size));
    e.lengths(array, name, extent_name, tokens, [&](std::size_t index, std::int64_t length) {
        if (length > kMaxLength)
            e.rule(false, kInvalid, name, show_sequence(index, length),
                   "at most " + std::to_string(kMaxLength));
        check_length(index, length);
    });
}

void examine_query_lengths(Examination& e, const ArrayArgument& array, const Extents& x,
                           std::int64_t max_sequences) {
    const char* const name = "actual_seq_q_len";
    e.array_size(within(array.size, 1, max_sequences), array, name,
                 "size " + range(1, max_sequences));
    examine_lengths(e, array, name, "T1", x.query_tokens, [](std::size_t, std::int64_t) {});
}

template <class Arguments>
void examine_key_lengths(Examination& e, const Arguments& a, const Extents& x,
                         std::int64_t max_sequences) {
    const char* const name = "actual_seq_kv_len";
    const ArrayArgument& array = a.actual_seq_kv_len;
    e.array_size(within(array.size, 1, max_sequences), array, name,
                 "size " + range(1, max_sequences));
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
    examine_lengths(e, array, name, "T2", x.kv_tokens, whole_blocks);
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
void examine_block_numbers(Examination& e, const Arguments& a, const Extents& x) {
    if (!e.accepted()) return;
    const std::int64_t count = a.selected_block_count, row = x.num_kv_heads * count;
    if (a.topk_values.size() != static_cast<std::size_t>(x.query_tokens * row))
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
            if (within(listed, 0, blocks - 1)) continue;
            const std::vector<std::int64_t> place{i / row, i % row / count, i % count};
            e.rule(false, kInvalid, "topk_indices",
                   "has value " + std::to_string(listed) + " at " + show(place),
                   range(0, blocks - 1) + ", the blocks of sequence " + std::to_string(b));
            return;
        }
        token = query_end;
    }
}

}  // namespace

Ruling rule_nsa_selected_attention(const SelectedAttentionArguments& a) {
    const Operands inputs{{a.query, "query", Stores::input_type, "[T1,N1,D]"},
                          {a.key, "key", Stores::input_type, "[T2,N2,D]"},
                          {a.value, "value", Stores::input_type, "[T2,N2,Dv]"},
                          {a.topk_indices, "topk_indices", Stores::block_numbers, "[T1,N2,K]"}};
    const Operands outputs{{a.softmax_max, "softmax_max", Stores::statistics, "[T1,N1,8]"},
                           {a.softmax_sum, "softmax_sum", Stores::statistics, "[T1,N1,8]"},
                           {a.attention_out, "attention_out", Stores::input_type, "[T1,N1,Dv]"}};
    Examination e = examine_form(a, inputs, outputs);
    const Extents x = examine_query_key_value(e, a);
    e.shape(a.topk_indices, "topk_indices", "[T1,N2,selected_block_count]",
            {x.query_tokens, x.num_kv_heads, a.selected_block_count});
    examine_query_lengths(e, a.actual_seq_q_len, x, kForwardSequences);
    examine_key_lengths(e, a, x, kForwardSequences);
    examine_mask(e, a);
    const std::vector<std::int64_t> statistics{x.query_tokens, x.num_query_heads, kStatisticCopies};
    e.shape(a.softmax_max, "softmax_max", "[T1,N1,8]", statistics);
    e.shape(a.softmax_sum, "softmax_sum", "[T1,N1,8]", statistics);
    e.shape(a.attention_out, "attention_out", "[T1,N1,Dv]",
            {x.query_tokens, x.num_query_heads, x.value_dim});
    examine_block_numbers(e, a, x);
    return e.ruling;
}

Ruling rule_nsa_selected_attention_grad(const SelectedAttentionGradArguments& a) {
    const Operands inputs{
        {a.query, "query", Stores::input_type, "[T1,N1,D]"},
        {a.key, "key", Stores::input_type, "[T2,N2,D]"},
        {a.value, "value", Stores::input_type, "[T2,N2,Dv]"},
        {a.attention_out, "attention_out", Stores::input_type, "[T1,N1,Dv]"},
        {a.attention_out_grad, "attention_out_grad", Stores::input_type, "[T1,N1,Dv]"},
        {a.softmax_max, "softmax_max", Stores::statistics, "[T1,N1,8]"},
        {a.softmax_sum, "softmax_sum", Stores::statistics, "[T1,N1,8]"},
        {a.topk_indices, "topk_indices", Stores::block_numbers, "[T1,N2,K]"}};
    const Operands outputs{{a.dq, "dq", Stores::input_type, "[T1,N1,D]"},
                           {a.dk, "dk", Stores::input_type, "[T2,N2,D]"},
                           {a.dv, "dv", Stores::input_type, "[T2,N2,Dv]"}};
    Examination e = examine_form(a, inputs, outputs);
    const Extents x = examine_query_key_value(e, a);
    const std::vector<std::int64_t> rows{x.query_tokens, x.num_query_heads, x.value_dim};
    const std::vector<std::int64_t> statistics{x.query_tokens, x.num_query_heads, kStatisticCopies};
    e.shape(a.attention_out, "attention_out", "[T1,N1,Dv]", rows);
    e.shape(a.attention_out_grad, "attention_out_grad", "[T1,N1,Dv]", rows);
    e.shape(a.softmax_max, "softmax_max", "[T1,N1,8]", statistics);
    e.shape(a.softmax_sum, "softmax_sum", "[T1,N1,8]", statistics);
    e.shape(a.topk_indices, "topk_indices", "[T1,N2,selected_block_count]",
            {x.query_tokens, x.num_kv_heads, a.selected_block_count});
    examine_query_lengths(e, a.actual_seq_q_len, x, kGradSequences);
    examine_key_lengths(e, a, x, kGradSequences);
    examine_mask(e, a);
    e.shape(a.dq, "dq", "[T1,N1,D]", {x.query_tokens, x.num_query_heads, x.head_dim});
    e.shape(a.dk, "dk", "[T2,N2,D]", {x.kv_tokens, x.num_kv_heads, x.head_dim});
    e.shape(a.dv, "dv", "[T2,N2,Dv]", {x.kv_tokens, x.num_kv_heads, x.value_dim});
    examine_block_numbers(e, a, x);
    return e.ruling;
}

}  // namespace attncheck::ref
