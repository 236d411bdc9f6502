// FlashAttention, both directions and every layout: one broken rule at a time with its status,
// parameter and message; which of two broken rules decides; both ends of every limit; every reading
// of masks and position biases; integers at the ends of their type.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <stdexcept>

#include "constraint_arguments.h"

namespace attncheck::ref {
namespace {

using Int = std::int64_t;
using Shape = std::vector<Int>;

constexpr Int kMebi = 1 << 20;

/// A call of one direction.
struct Call : FlashAttentionArguments {
    bool gradient = false;

    std::string pse_name() const { return gradient ? "pse_shift" : "real_shift"; }
    std::string attention_name() const { return gradient ? "attention_in" : "attention_out"; }
    std::string softmax_layout_name() const {
        return gradient ? "softmax_in_layout" : "softmax_out_layout";
    }
};

Ruling rule(const Call& call) {
    return call.gradient ? rule_flash_attention_score_grad(call) : rule_flash_attention_score(call);
}

/// "" when accepted, the parameter otherwise, "?" before it where both statuses are right, "!"
/// where the parameter is absent.
std::string verdict(const Call& call) {
    const Ruling ruling = rule(call);
    return (ruling.either_status ? "?" : "") + std::string(ruling.status == kAbsent ? "!" : "") +
           ruling.parameter;
}

/// What a call is made from; build() makes the shapes follow from it.
struct Problem {
    bool gradient = false;
    std::string layout = "BNSD";
    Int batch = 3, query_rows = 5, kv_rows = 7;  ///< S1, S2; in TND T1, T2
    Int num_query_heads = 6, num_kv_heads = 2, head_dim = 16, value_dim = 8;
    std::vector<Int> query_ends{}, kv_ends{};  ///< TND
    std::int32_t dtype = kFp16;
};

Problem packed_problem(bool gradient) {
    Problem p{gradient, "TND", 0, 9, 11};
    p.query_ends = {2, 2, 7};  // lengths 2, 0, 5
    p.kv_ends = {3, 4, 9};     // lengths 3, 1, 5
    return p;
}

Problem problem_of(bool gradient, const std::string& layout) {
    if (layout == "TND") return packed_problem(gradient);
    Problem p;
    p.gradient = gradient, p.layout = layout;
    return p;
}

Shape in_layout(const Problem& p, Int rows, Int heads, Int channels) {
    if (p.layout == "BSH") return {p.batch, rows, heads * channels};
    if (p.layout == "SBH") return {rows, p.batch, heads * channels};
    if (p.layout == "BSND") return {p.batch, rows, heads, channels};
    if (p.layout == "BNSD") return {p.batch, heads, rows, channels};
    return {rows, heads, channels};
}

/// Nothing optional: no mask, no bias, no dropout.
Call build(const Problem& p) {
    Call c;
    c.gradient = p.gradient;
    c.query = tensor(in_layout(p, p.query_rows, p.num_query_heads, p.head_dim), p.dtype);
    c.key = tensor(in_layout(p, p.kv_rows, p.num_kv_heads, p.head_dim), p.dtype);
    c.value = tensor(in_layout(p, p.kv_rows, p.num_kv_heads, p.value_dim), p.dtype);
    c.attention = tensor(in_layout(p, p.query_rows, p.num_query_heads, p.value_dim), p.dtype);
    const bool packed = p.layout == "TND";
    c.softmax_max = c.softmax_sum =
        tensor(packed ? Shape{p.query_rows, p.num_query_heads, 8}
                      : Shape{p.batch, p.num_query_heads, p.query_rows, 8},
               kFp32);
    if (p.gradient) c.dy = c.attention, c.dq = c.query, c.dk = c.key, c.dv = c.value;
    if (packed) c.actual_seq_q_len = int_array(p.query_ends), c.actual_seq_kv_len = int_array(p.kv_ends);
    c.scale_value = 0.25;
    c.head_num = p.num_query_heads;
    c.input_layout = p.layout;
    c.softmax_layout = "";
    return c;
}

/// Everything optional that goes together: position bias, dropout, a mask with tokens (BSH, SBH,
/// BSND) or a prefix (TND mode 6, BNSD mode 5).
Call rich(const Problem& p) {
    Call c = build(p);
    const bool packed = p.layout == "TND";
    c.pse_type = 0;
    c.pse = packed ? tensor({6 * 31}, kFp16) : tensor({3, 6, 5, 7}, kFp16);
    c.keep_prob = 0.5;
    c.drop_mask = packed ? tensor({24}, kUint8) : tensor({2, 40}, kUint8);
    c.atten_mask = packed ? tensor({3072, 2048}, kBool) : tensor({3, 1, 5, 7}, kUint8);
    c.pre_tokens = 2, c.next_tokens = 1;
    if (packed) c.sparse_mode = 6, c.prefix = int_array({2, 1, 0});
    if (p.layout == "BNSD") c.sparse_mode = 5, c.prefix = int_array({2, 7, 4});
    return c;
}

/// A broken rule: the ruling, words of the message, and what breaks it.
struct Broken {
    int status;
    std::string parameter;
    std::vector<std::string> words;
    std::function<void(Call&)> spoil;
};
using Rules = std::vector<Broken>;

using Member = TensorArgument FlashAttentionArguments::*;
struct Named {
    Member tensor;
    std::string name;
};

std::vector<Named> inputs(bool gradient) {
    using A = FlashAttentionArguments;
    std::vector<Named> all{{&A::query, "query"}, {&A::key, "key"}, {&A::value, "value"}};
    if (gradient)
        all.insert(all.end(), {{&A::dy, "dy"},
                               {&A::softmax_max, "softmax_max"},
                               {&A::softmax_sum, "softmax_sum"},
                               {&A::attention, "attention_in"}});
    return all;
}

std::vector<Named> outputs(bool gradient) {
    using A = FlashAttentionArguments;
    if (gradient) return {{&A::dq, "dq"}, {&A::dk, "dk"}, {&A::dv, "dv"}};
    return {{&A::softmax_max, "softmax_max"},
            {&A::softmax_sum, "softmax_sum"},
            {&A::attention, "attention_out"}};
}

std::vector<Named> tensors(bool gradient) {
    std::vector<Named> all = inputs(gradient);
    for (const Named& each : outputs(gradient)) all.push_back(each);
    return all;
}

void add_absences(Rules& rules, const Call& base) {
    const auto absent = [&](const Named& t) {
        rules.push_back(
            {kAbsent, t.name, {"is absent"}, [m = t.tensor](Call& c) { (c.*m).present = false; }});
    };
    for (const Named& t : inputs(base.gradient)) absent(t);
    rules.push_back(
        {kAbsent, "input_layout", {"is absent"}, [](Call& c) { c.input_layout.reset(); }});
    rules.push_back({kAbsent, base.softmax_layout_name(), {"is absent"}, [](Call& c) {
                         c.softmax_layout.reset();
                     }});
    for (const Named& t : outputs(base.gradient)) absent(t);
}

void add_layouts(Rules& rules, const Call& base) {
    for (const char* layout : {"", "bsh", "tnd", "BSN", "BSNDX", "NBSD", "TND ", "BNS", "NTD"})
        rules.push_back({kInvalid,
                         "input_layout",
                         {std::string("is \"") + layout + "\"; allowed", "\"BNSD\""},
                         [layout](Call& c) { c.input_layout = layout; }});
    std::vector<const char*> wrong{"same_as_inpu", "same_as_input ", "SAME_AS_INPUT", " ", "TND"};
    if (base.input_layout != "TND") wrong.push_back("same_as_input");
    for (const char* layout : wrong)
        rules.push_back({kInvalid, base.softmax_layout_name(), {layout, "\"\""}, [layout](Call& c) {
                             c.softmax_layout = layout;
                         }});
}

void add_ranks(Rules& rules, const Call& base) {
    const std::int32_t legal = base.query.rank;
    for (const Named& t : tensors(base.gradient)) {
        const bool statistics = t.name.rfind("softmax", 0) == 0;
        const std::int32_t right = statistics ? base.softmax_max.rank : legal;
        for (const std::int32_t rank : {right - 1, right + 1, 0, 1, -3, 9})
            rules.push_back(
                {kInvalid,
                 t.name,
                 {"rank " + std::to_string(rank) + ";", "rank " + std::to_string(right)},
                 [m = t.tensor, rank](Call& c) {
                     const auto entries = std::clamp(rank, 0, 8);
                     (c.*m).rank = rank;
                     (c.*m).shape.resize(static_cast<std::size_t>(entries), 1);
                 }});
    }
}

void add_dtypes(Rules& rules, const Call& base) {
    for (const Named& t : tensors(base.gradient)) {
        const bool statistics = t.name.rfind("softmax", 0) == 0, is_query = t.name == "query";
        std::vector<std::int32_t> wrong{kInt32, kUint8, kInt64, kE5m2, kE4m3, -9};
        wrong.push_back(statistics ? kFp16 : is_query ? kBool : kBf16);
        if (!statistics && !is_query) wrong.push_back(kFp32);
        const char* const right = statistics ? "0 (fp32)"
                                  : is_query ? "1 (fp16), 27 (bf16), 0 (fp32)"
                                             : "the dtype of query";
        for (const std::int32_t dtype : wrong)
            rules.push_back({kInvalid,
                             t.name,
                             {"dtype " + std::to_string(dtype) + " (", right},
                             [m = t.tensor, dtype](Call& c) { (c.*m).dtype = dtype; }});
    }
}

void add_number(Rules& rules, Int FlashAttentionArguments::* attribute, const char* name,
                const char* allowed, std::vector<Int> values) {
    for (const Int value : values)
        rules.push_back({kInvalid,
                         name,
                         {"is " + std::to_string(value) + ";", allowed},
                         [attribute, value](Call& c) { c.*attribute = value; }});
}

void add_attributes(Rules& rules, const Call& base) {
    using A = FlashAttentionArguments;
    const double infinity = std::numeric_limits<double>::infinity();
    for (const double keep : {0.0, -0.0, -0.5, -1e300, 1e-50, 0x1p-151, 1.5, 1 + 0x1.1p-24, 1e300,
                              infinity, -infinity, std::nan("")})
        rules.push_back(
            {kInvalid, "keep_prob", {"(0, 1] as fp32"}, [keep](Call& c) { c.keep_prob = keep; }});
    add_number(rules, &A::head_num, "head_num", "1..256", {0, 257, -1, kMin, kMax});
    add_number(rules, &A::sparse_mode, "sparse_mode", "0..8", {-1, 9, kMin, kMax});
    if (base.input_layout == "TND")
        add_number(rules, &A::sparse_mode, "sparse_mode", "TND", {5});
    else
        add_number(rules, &A::sparse_mode, "sparse_mode", "0..6", {7, 8});
    add_number(rules, &A::pse_type, "pse_type", "0..3", {-1, 4, kMin, kMax});
}

/// Positions of B, S or T, N and D or H in a layout; -1 where there is none.
struct Axes {
    int batch, length, heads, channels;
};
Axes axes_of(const std::string& layout) {
    if (layout == "BSH") return {0, 1, -1, 2};
    if (layout == "SBH") return {1, 0, -1, 2};
    if (layout == "BSND") return {0, 1, 2, 3};
    if (layout == "BNSD") return {0, 2, 1, 3};
    return {-1, 0, 1, 2};
}

void add_extent(Rules& rules, Member t, int axis, const char* name, const std::string& word,
                std::vector<Int> values) {
    if (axis < 0) return;
    for (const Int value : values)
        rules.push_back(
            {kInvalid, name, {"= " + std::to_string(value) + ";", word}, [t, axis, value](Call& c) {
                 (c.*t).shape[static_cast<std::size_t>(axis)] = value;
             }});
}

/// Heads times channels whose quotient is wrong.
void add_hidden(Rules& rules, Member t, int axis, const char* name, Int value, const char* word) {
    rules.push_back({kInvalid, name, {word}, [t, axis, value](Call& c) {
                         (c.*t).shape[static_cast<std::size_t>(axis)] = value;
                     }});
}

/// Every extent of a shape in turn.
void add_shape(Rules& rules, Member t, const std::string& name, const Call& base) {
    std::string wanted;
    for (const Int extent : (base.*t).shape)
        wanted += (wanted.empty() ? "= [" : ",") + std::to_string(extent);
    for (std::size_t axis = 0; axis < (base.*t).shape.size(); ++axis)
        for (const Int step : {Int{-1}, Int{1}, kMin, kMax})
            rules.push_back({kInvalid, name, {"has shape", wanted + "]"}, [t, axis, step](Call& c) {
                                 Int& extent = (c.*t).shape[axis];
                                 extent = step == 1 || step == -1 ? extent + step : step;
                             }});
}

void add_shape_relations(Rules& rules, const Call& base) {
    using A = FlashAttentionArguments;
    const Axes x = axes_of(*base.input_layout);
    const bool merged = x.heads < 0;
    const std::vector<Int> no_length{-1, kMebi + 1, kMin, kMax};
    add_extent(rules, &A::query, x.batch, "query", "B in 0..2097152",
               {-1, 2 * kMebi + 1, kMin, kMax});
    add_extent(rules, &A::query, x.length, "query", "in 0..1048576", no_length);
    if (merged) {
        add_extent(rules, &A::query, x.channels, "query", "a positive multiple of head_num = 6",
                   {0, -6, 95, 97, kMin, kMax});
        add_hidden(rules, &A::query, x.channels, "query", 6 * 513, "D = 513; allowed: D in 1..512");
    } else {
        add_number(rules, &A::head_num, "head_num", "N1 of query = 6", {5, 7, 12, 3});
        add_extent(rules, &A::query, x.channels, "query", "D in 1..512", {0, -16, 513, kMin, kMax});
    }
    add_extent(rules, &A::key, x.batch, "key", "B of query = 3", {2, 4, 1, -1, kMin, kMax});
    add_extent(rules, &A::key, x.length, "key", "in 0..1048576", no_length);
    if (merged) {
        add_extent(rules, &A::key, x.channels, "key", "D of query = 16", {0, -32, 31, 33, kMin});
        for (const Int heads : {4, 5, 7, 12})
            add_hidden(rules, &A::key, x.channels, "key", heads * 16, "N2 a divisor of N1 = 6");
    } else {
        add_extent(rules, &A::key, x.channels, "key", "D of query = 16", {15, 17, 0, kMin, kMax});
        add_extent(rules, &A::key, x.heads, "key", "a divisor of N1 = 6",
                   {4, 5, 12, 0, -1, -2, kMin, kMax});
    }
    add_extent(rules, &A::value, x.batch, "value", "B of key = 3", {2, 4, 1, -1, kMin, kMax});
    add_extent(rules, &A::value, x.length, "value", "of key = ", {6, 8, 0, -1, kMin, kMax});
    if (merged) {
        add_extent(rules, &A::value, x.channels, "value", "N2 of key = 2",
                   {0, -16, 15, kMin, kMax});
        add_hidden(rules, &A::value, x.channels, "value", 2 * 17, "Dv = 17; allowed: Dv in 1..16");
    } else {
        add_extent(rules, &A::value, x.heads, "value", "N2 of key = 2", {1, 3, 0, kMin, kMax});
        add_extent(rules, &A::value, x.channels, "value", "Dv in 1..16", {0, -8, 17, kMin, kMax});
    }
    if (!base.gradient) return;
    add_shape(rules, &A::dy, "dy", base);
    add_shape(rules, &A::softmax_max, "softmax_max", base);
    add_shape(rules, &A::softmax_sum, "softmax_sum", base);
    add_shape(rules, &A::attention, "attention_in", base);
}

using ArrayMember = ArrayArgument FlashAttentionArguments::*;

void add_values(Rules& rules, ArrayMember m, const char* name, std::vector<Int> values,
                std::vector<std::string> words) {
    rules.push_back(
        {kInvalid, name, std::move(words), [m, values](Call& c) { c.*m = int_array(values); }});
}

void add_length_arrays(Rules& rules, const Call& base) {
    using A = FlashAttentionArguments;
    if (base.input_layout != "TND") return;
    const ArrayMember members[] = {&A::actual_seq_q_len, &A::actual_seq_kv_len};
    const char* const names[] = {"actual_seq_q_len", "actual_seq_kv_len"};
    const Int tokens[] = {9, 11};
    for (int which = 0; which < 2; ++which) {
        const ArrayMember m = members[which];
        const char* const name = names[which];
        for (const Int size : {Int{0}, Int{3}, Int{-1}, kMin, kMax})
            rules.push_back(
                {kAbsent, name, {"is absent"}, [m, size](Call& c) { c.*m = {false, size, {}}; }});
        for (const Int size : {Int{0}, Int{-1}, 2 * kMebi + 1, kMin, kMax})
            rules.push_back({kInvalid, name, {"size", "1..2097152"}, [m, size](Call& c) {
                                 (c.*m).size = size;
                             }});
        if (which == 1)
            for (const Int size : {Int{1}, Int{2}, Int{4}, 2 * kMebi})
                rules.push_back(
                    {kInvalid, name, {"the size of actual_seq_q_len = 3"}, [m, size](Call& c) {
                         (c.*m).size = size;
                     }});
        add_values(rules, m, name, {-1, 2, 7}, {"-1", "index 0"});
        add_values(rules, m, name, {2, 1, 7}, {"1 at index 1", "at least 2"});
        add_values(rules, m, name, {2, kMin, 7}, {"index 1"});
        add_values(rules, m, name, {2, kMax, kMin}, {"index 2"});
        add_values(rules, m, name, {2, 2, kMax}, {"ends with"});
        add_values(rules, m, name, {2, 2, tokens[which] + 1},
                   {"ends with", "at most T", "= " + std::to_string(tokens[which])});
    }
}

void add_tensor(Rules& rules, Member m, const std::string& name, const TensorArgument& wrong,
                std::vector<std::string> words) {
    rules.push_back({kInvalid, name, std::move(words), [m, wrong](Call& c) { c.*m = wrong; }});
}

/// Of a rich call.
void add_pse_and_drop_mask(Rules& rules, const Call& base) {
    using A = FlashAttentionArguments;
    const std::string pse = base.pse_name();
    const Shape& shape = base.pse.shape;
    rules.push_back(
        {kAbsent, pse, {"is absent", "pse_type is 0"}, [](Call& c) { c.pse.present = false; }});
    for (const std::int32_t dtype : {kFp32, kBf16, kUint8, kE5m2, -9})
        add_tensor(rules, &A::pse, pse, tensor(shape, dtype), {"has dtype", "the dtype of query"});
    for (const Shape& wrong : std::vector<Shape>{{}, {5, 7}, {1, 3, 6, 5, 7}, {3, 6}, {6}})
        add_tensor(rules, &A::pse, pse, tensor(wrong, kFp16), {"has shape", "N1 = 6"});
    add_tensor(rules, &A::pse, pse, {true, kFp16, -1, {}}, {"has shape"});
    add_tensor(rules, &A::pse, pse, {true, kFp16, 9, {3, 6, 5, 7, 1, 1, 1, 1}}, {"has shape"});
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
        for (const Int wrong : {shape[axis] - 1, shape[axis] + 1, Int{-1}, kMin, kMax}) {
            TensorArgument t = base.pse;
            t.shape[axis] = wrong;
            add_tensor(rules, &A::pse, pse, t, {"has shape"});
        }
    rules.push_back({kAbsent, "drop_mask", {"is absent", "keep_prob is 0.5"}, [](Call& c) {
                         c.drop_mask.present = false;
                     }});
    for (const std::int32_t dtype : {kBool, kInt32, kFp16, -9})
        add_tensor(rules, &A::drop_mask, "drop_mask", tensor({128}, dtype),
                   {"has dtype", "4 (uint8)"});
    const Int bytes = base.input_layout == "TND" ? 24 : 79;  // bits: 6*31 = 186, 3*6*5*7 = 630
    for (const Shape& wrong : std::vector<Shape>{
             {bytes - 1}, {0}, {0, 100}, {1, 1, bytes - 1}, {kMax, 0}, {kMax, 2}, {kMax, kMax}})
        add_tensor(rules, &A::drop_mask, "drop_mask", tensor(wrong, kUint8),
                   {"at least " + std::to_string(bytes) + " elements"});
    for (const Shape& wrong : std::vector<Shape>{{-1}, {-100, -1}, {kMin}, {1000, -1, 0}})
        add_tensor(rules, &A::drop_mask, "drop_mask", tensor(wrong, kUint8), {"extents >= 0"});
    add_tensor(rules, &A::drop_mask, "drop_mask", tensor({}, kUint8), {"rank 0", "rank 1..8"});
    add_tensor(rules, &A::drop_mask, "drop_mask", {true, kUint8, -1, {}}, {"rank -1"});
    add_tensor(rules, &A::drop_mask, "drop_mask", {true, kUint8, 9, Shape(8, 9)}, {"rank 9"});
}

/// Of a rich call.
void add_masks(Rules& rules, const Call& base) {
    using A = FlashAttentionArguments;
    for (const std::int32_t dtype : {kUint8, kFp16, -9})
        add_tensor(rules, &A::padding_mask, "padding_mask", tensor({3, 5}, dtype), {"is given"});
    add_tensor(rules, &A::padding_mask, "padding_mask", {true, -9, -9, {}}, {"is given"});
    const Shape& shape = base.atten_mask.shape;
    for (const std::int32_t dtype : {kInt32, kFp16, kFp32, kE5m2, -9})
        add_tensor(rules, &A::atten_mask, "atten_mask", tensor(shape, dtype),
                   {"has dtype", "12 (bool), 4 (uint8)"});
    for (const Shape& wrong : std::vector<Shape>{
             {}, {7}, {1, 5, 7}, {1, 3, 1, 5, 7}, {2048, 2048}, {2048, 3072}, {1, 1, 3072, 2048}})
        add_tensor(rules, &A::atten_mask, "atten_mask", tensor(wrong, kBool), {"has shape"});
    add_tensor(rules, &A::atten_mask, "atten_mask", {true, kBool, -2, {}}, {"has shape"});
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
        for (const Int wrong : {shape[axis] - 1, shape[axis] + 1, kMin, kMax}) {
            TensorArgument t = base.atten_mask;
            t.shape[axis] = wrong;
            add_tensor(rules, &A::atten_mask, "atten_mask", t, {"has shape"});
        }
}

/// Tokens or prefix of a rich call, then its outputs.
void add_mode_and_outputs(Rules& rules, const Call& base) {
    if (base.sparse_mode == 0) {
        for (const Int pre : {Int{-5}, Int{-2}, Int{-6}, kMin})
            rules.push_back({kInvalid, "pre_tokens", {"pre_tokens >= 0", "S1 = 5"}, [pre](Call& c) {
                                 c.pre_tokens = pre;
                             }});
        for (const Int next : {Int{-3}, Int{-7}, Int{-8}, kMin})
            rules.push_back({kInvalid, "pre_tokens", {"next_tokens", "S2 = 7"}, [next](Call& c) {
                                 c.next_tokens = next;
                             }});
    } else {
        if (base.sparse_mode == 6)
            rules.push_back(
                {kAbsent, "prefix", {"is absent"}, [](Call& c) { c.prefix = {false, 3, {}}; }});
        for (const Int size : {Int{0}, Int{-3}, Int{2}, Int{4}, kMin, kMax})
            rules.push_back(
                {kInvalid, "prefix", {"size B = 3"}, [size](Call& c) { c.prefix.size = size; }});
        const bool packed = base.input_layout == "TND";
        const auto wrong = [&](std::size_t b, Int value, const char* allowed) {
            rules.push_back({kInvalid,
                             "prefix",
                             {std::to_string(value) + " at index " + std::to_string(b), allowed},
                             [b, value](Call& c) { c.prefix.values[b] = value; }});
        };
        for (const Int value : {Int{0}, Int{4}, kMin, kMax})
            if (packed) wrong(0, value, "1..3");
        for (const Int value : {Int{0}, Int{2}, kMin, kMax})
            if (packed) wrong(1, value, "1..1");
        for (const Int value : {Int{-1}, Int{6}, kMin, kMax})
            if (packed) wrong(2, value, "0..5");
        for (const Int value : {Int{1}, Int{8}, kMin, kMax})
            if (!packed) wrong(0, value, "2..7"), wrong(2, value, "2..7");
    }
    for (const Named& t : outputs(base.gradient)) add_shape(rules, t.tensor, t.name, base);
}

/// In the order of the contract.
Rules rules_of(const Call& base) {
    Rules rules;
    add_absences(rules, base);
    add_layouts(rules, base);
    add_ranks(rules, base);
    add_dtypes(rules, base);
    add_attributes(rules, base);
    add_shape_relations(rules, base);
    add_length_arrays(rules, base);
    add_pse_and_drop_mask(rules, base);
    add_masks(rules, base);
    add_mode_and_outputs(rules, base);
    return rules;
}

void expect_each_decides(const Call& base, const Rules& rules) {
    EXPECT_EQ(rule(base).message, "");
    int index = 0;
    for (const Broken& broken : rules) {
        Call c = base;
        broken.spoil(c);
        const Ruling ruling = rule(c);
        EXPECT_EQ(ruling.status, broken.status) << index << ": " << ruling.message;
        EXPECT_EQ(ruling.parameter, broken.parameter) << index << ": " << ruling.message;
        EXPECT_EQ(ruling.message.find(broken.parameter + ' '), 0u) << index << ruling.message;
        EXPECT_NE(ruling.message.find("; allowed: "), std::string::npos) << ruling.message;
        for (const std::string& word : broken.words)
            EXPECT_NE(ruling.message.find(word), std::string::npos)
                << index << ": " << word << " not in " << ruling.message;
        ++index;
    }
}

/// Of every two broken rules the earlier one decides. Rules of the same parameter are left out:
/// their spoilers may replace each other.
int expect_first_of_two_decides(const Call& base, const Rules& rules) {
    int compared = 0;
    for (std::size_t i = 0; i < rules.size(); ++i) {
        Call first = base;
        rules[i].spoil(first);
        for (std::size_t j = i + 1; j < rules.size(); ++j) {
            if (rules[i].parameter == rules[j].parameter) continue;
            Call both = first;
            rules[j].spoil(both);
            const Ruling ruling = rule(both);
            if (ruling.status == rules[i].status && ruling.parameter == rules[i].parameter) {
                ++compared;
                continue;
            }
            ADD_FAILURE() << i << " (" << rules[i].parameter << ") " << j << " ("
                          << rules[j].parameter << "): " << ruling.message;
        }
    }
    return compared;
}

struct Setting {
    bool gradient;
    const char* layout;
};
std::string name_of(const testing::TestParamInfo<Setting>& info) {
    return std::string(info.param.gradient ? "Gradient" : "Forward") + info.param.layout;
}
void PrintTo(const Setting& setting, std::ostream* out) {
    *out << (setting.gradient ? "gradient " : "forward ") << setting.layout;
}
std::vector<Setting> settings(std::vector<const char*> layouts) {
    std::vector<Setting> all;
    for (const bool gradient : {false, true})
        for (const char* layout : layouts) all.push_back({gradient, layout});
    return all;
}

struct FlashAttentionRules : testing::TestWithParam<Setting> {
    Problem problem() const { return problem_of(GetParam().gradient, GetParam().layout); }
    bool packed() const { return problem().layout == "TND"; }
};
INSTANTIATE_TEST_SUITE_P(Call, FlashAttentionRules,
                         testing::ValuesIn(settings({"BSH", "SBH", "BSND", "BNSD", "TND"})),
                         name_of);

struct FlashAttentionBatchRules : FlashAttentionRules {};  ///< every layout but TND
INSTANTIATE_TEST_SUITE_P(Call, FlashAttentionBatchRules,
                         testing::ValuesIn(settings({"BSH", "SBH", "BSND", "BNSD"})), name_of);

TEST_P(FlashAttentionRules, EachRejectsWithItsParameter) {
    EXPECT_EQ(verdict(build(problem())), "");
    const Call base = rich(problem());
    const Rules rules = rules_of(base);
    EXPECT_GT(rules.size(), 200u);
    expect_each_decides(base, rules);
}

TEST_P(FlashAttentionRules, TheFirstOfTwoDecides) {
    const Call base = rich(problem());
    EXPECT_GT(expect_first_of_two_decides(base, rules_of(base)), 20000);
}

TEST_P(FlashAttentionRules, AcceptTheLimitsOfTheShapes) {
    Problem p = problem();
    p.query_ends.assign(3, 0), p.kv_ends.assign(3, 0);
    for (const Int rows : {Int{0}, Int{1}, kMebi}) {
        p.query_ends.back() = p.kv_ends.back() = 0;
        p.query_rows = rows, p.kv_rows = 0;
        EXPECT_EQ(verdict(build(p)), "") << rows;
        p.query_rows = 0, p.kv_rows = rows;
        EXPECT_EQ(verdict(build(p)), "") << rows;
        p.query_rows = p.kv_rows = rows;
        p.query_ends.back() = p.kv_ends.back() = rows;
        EXPECT_EQ(verdict(build(p)), "") << rows;
    }
    p.query_rows = kMebi + 1;
    EXPECT_EQ(verdict(build(p)), "query");
    p.query_rows = 1, p.kv_rows = kMebi + 1, p.query_ends.assign(3, 1);
    EXPECT_EQ(verdict(build(p)), "key");
    p = problem();
    for (const Int batch : {Int{0}, Int{1}, 2 * kMebi}) {
        p.batch = batch;
        EXPECT_EQ(verdict(build(p)), "") << batch;
    }
    p.batch = 2 * kMebi + 1;
    EXPECT_EQ(verdict(build(p)), packed() ? "" : "query");
}

TEST_P(FlashAttentionRules, AcceptTheLimitsOfHeadsAndChannels) {
    Problem p = problem();
    for (const Int heads : {1, 2, 3, 6}) {
        p.num_kv_heads = heads;
        EXPECT_EQ(verdict(build(p)), "") << heads;
    }
    p.num_kv_heads = 4;
    EXPECT_EQ(verdict(build(p)), "key");
    for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {256, 256}, {256, 1}, {255, 5}}) {
        p.num_query_heads = heads, p.num_kv_heads = kv_heads;
        EXPECT_EQ(verdict(build(p)), "") << heads;
    }
    p.num_query_heads = 257, p.num_kv_heads = 1;
    EXPECT_EQ(verdict(build(p)), "head_num");
    p = problem();
    for (const auto& [dim, value_dim] :
         {std::pair{1, 1}, {2, 1}, {512, 1}, {512, 512}, {192, 128}, {7, 3}}) {
        p.head_dim = dim, p.value_dim = value_dim;
        EXPECT_EQ(verdict(build(p)), "") << dim << ' ' << value_dim;
    }
    p.head_dim = 513;
    EXPECT_EQ(verdict(build(p)), "query");
    p.head_dim = 16, p.value_dim = 17;
    EXPECT_EQ(verdict(build(p)), "value");
}

TEST_P(FlashAttentionRules, AcceptDtypesAttributesAndStrings) {
    Problem p = problem();
    for (const std::int32_t dtype : {kFp16, kBf16, kFp32}) {
        p.dtype = dtype;
        EXPECT_EQ(verdict(build(p)), "") << dtype;
    }
    Call c = build(p);
    for (const double scale : {0.0, -1.0, 1e300, std::nan(""), -HUGE_VAL}) {
        c.scale_value = scale;
        EXPECT_EQ(verdict(c), "") << scale;
    }
    c.drop_mask = tensor({1000}, kUint8);
    for (const double keep : {1.0, 0x1p-149, 0x1.1p-150, 1 + 1e-12, 1 + 0x1p-24, 1 - 1e-12}) {
        c.keep_prob = keep;
        EXPECT_EQ(verdict(c), "") << keep;
    }
    c.drop_mask = {};
    EXPECT_EQ(verdict(c), "");  // 1 - 1e-12 is 1 as fp32
    c.keep_prob = 1 - 0x1p-24;
    EXPECT_EQ(verdict(c), "?!drop_mask");
    c.keep_prob = 1, c.softmax_layout = "same_as_input";
    EXPECT_EQ(verdict(c), packed() ? "" : c.softmax_layout_name());
}

/// Without a mask sparse_mode is checked, but nothing that goes with it.
TEST_P(FlashAttentionRules, LookAtNothingElseWithoutMask) {
    Call c = build(problem());
    const ArrayArgument ignored[] = {
        {}, int_array({-1}), {true, -7, {}}, {true, kMax, {}}, {false, 5, {}}};
    for (const ArrayArgument& array_of_any_size : ignored)
        for (const Int token : {Int{0}, Int{-1}, kMin, kMax})
            for (Int mode = 0; mode <= 8; ++mode) {
                c.prefix = c.q_start_idx = c.kv_start_idx = array_of_any_size;
                c.pre_tokens = c.next_tokens = token, c.sparse_mode = mode;
                const bool legal = mode == 5 ? !packed() : mode < 7 || packed();
                EXPECT_EQ(verdict(c), legal ? "" : "sparse_mode") << mode << ' ' << token;
            }
    c.sparse_mode = 0;
    c.atten_mask = c.pse = c.drop_mask = c.padding_mask = {false, -9, -9, {}};
    EXPECT_EQ(verdict(c), "");
}

/// In every mode that takes the tokens of a plain call: which masks fit it.
TEST_P(FlashAttentionRules, ReadMasks) {
    const Int rows = 5, columns = packed() ? 5 : 7;  // TND: the largest
    const auto fits = [&](Int mode, Int batch, const Shape& shape) {
        Problem p = problem();
        p.batch = batch;
        if (packed() && batch == 1) p.query_ends = {5}, p.kv_ends = {5};
        Call c = build(p);
        c.sparse_mode = mode, c.atten_mask = tensor(shape, kUint8);
        c.prefix = int_array(packed() ? std::vector<Int>{1, 1, 0} : std::vector<Int>(3, 7));
        if (batch == 1) c.prefix = int_array({3});
        const std::string found = verdict(c);
        EXPECT_TRUE(found.empty() || found == "atten_mask") << found;
        return found.empty();
    };
    const std::vector<Shape> plain{
        {rows, columns}, {1, 1, rows, columns}, {3, 1, rows, columns}, {3, 6, rows, columns}};
    for (const Shape& shape : plain) {
        EXPECT_TRUE(fits(0, 3, shape) && fits(1, 3, shape));
        for (const Int mode : {2, 3, 4, 6}) EXPECT_FALSE(fits(mode, 3, shape)) << mode;
        if (packed()) continue;
        EXPECT_EQ(fits(5, 3, shape), shape.size() == 4 && shape[0] == 3);
    }
    for (const Int mode : {2, 3, 4}) EXPECT_TRUE(fits(mode, 3, {2048, 2048})) << mode;
    EXPECT_TRUE(fits(6, 3, {3072, 2048}));
    for (const Int mode : {0, 1}) {
        EXPECT_EQ(fits(mode, 3, {7, 9}), packed());  // all rows, all columns
        for (const Shape& shape : std::vector<Shape>{{1, 6, rows, columns},
                                                     {3, 2, rows, columns},
                                                     {9, 11},
                                                     {2048, 2048},
                                                     {3072, 2048},
                                                     {columns + 1, rows},
                                                     {1, 1, 7, 9}})
            EXPECT_FALSE(fits(mode, 3, shape)) << mode;
        EXPECT_TRUE(fits(mode, 1, {1, 6, rows, columns}));
    }
    for (const Int mode : {2, 3, 4, 6}) {
        EXPECT_FALSE(fits(mode, 3, {1, 1, 2048, 2048}));
        EXPECT_FALSE(fits(mode, 3, mode == 6 ? Shape{2048, 2048} : Shape{3072, 2048}));
    }
    if (packed()) return;
    EXPECT_TRUE(fits(5, 1, {rows, columns}) && fits(5, 1, {1, 1, rows, columns}));
    EXPECT_TRUE(fits(5, 1, {1, 6, rows, columns}));
    EXPECT_FALSE(fits(5, 3, {2048, 2048}));
}

/// The shortest call with a mask in a mode, tokens to be set.
Call masked(const Problem& p, Int mode, Int pre = 0, Int next = 0) {
    Call c = build(p);
    c.sparse_mode = mode, c.pre_tokens = pre, c.next_tokens = next;
    Int rows = p.query_rows, columns = p.kv_rows;
    if (p.layout == "TND") {
        const auto longest = [](const std::vector<Int>& ends) {
            Int most = 0, begin = 0;
            for (const Int end : ends) most = std::max(most, end - begin), begin = end;
            return most;
        };
        rows = longest(p.query_ends), columns = longest(p.kv_ends);
    }
    c.atten_mask = tensor(mode == 6                ? Shape{3072, 2048}
                          : mode >= 2 && mode != 5 ? Shape{2048, 2048}
                          : mode == 5              ? Shape{p.batch, 1, rows, columns}
                                                   : Shape{rows, columns},
                          kBool);
    return c;
}

TEST_P(FlashAttentionRules, CompareTokensOfModeZero) {
    const Problem p = problem();
    const Int s1 = 5, s2 = packed() ? 5 : 7;
    const auto accepts = [&](Int pre, Int next) {
        const std::string found = verdict(masked(p, 0, pre, next));
        EXPECT_TRUE(found.empty() || found == "pre_tokens") << found;
        return found.empty();
    };
    for (const Int pre : {Int{0}, Int{1}, s1, kMax})
        for (const Int next : {Int{0}, Int{1}, s2, kMax}) EXPECT_TRUE(accepts(pre, next));
    for (const Int back : {Int{1}, s2 - 1}) {
        EXPECT_TRUE(accepts(back, -back) && accepts(kMax, -back) && accepts(back + 1, -back));
        EXPECT_FALSE(accepts(back - 1, -back));
    }
    EXPECT_FALSE(accepts(s2, -s2) || accepts(kMax, -s2) || accepts(kMax, kMin));
    for (const Int back : {Int{1}, s1 - 1}) {
        EXPECT_TRUE(accepts(-back, back) && accepts(-back, kMax) && accepts(-back, back + 1));
        EXPECT_FALSE(accepts(-back, back - 1));
    }
    EXPECT_FALSE(accepts(-s1, s1) || accepts(-s1, kMax) || accepts(kMin, kMax));
    for (const Int pre : {Int{-1}, kMin, -kMax})
        for (const Int next : {Int{-1}, kMin, -kMax}) EXPECT_FALSE(accepts(pre, next));
    for (const Int mode : {1, 2, 3})  // these have no tokens
        EXPECT_EQ(verdict(masked(p, mode, kMin, kMin)), "");
}

TEST_P(FlashAttentionRules, CompareTokensOfModeFour) {
    const auto accepts = [&](Int pre, Int next) {
        const std::string found = verdict(masked(problem(), 4, pre, next));
        EXPECT_TRUE(found.empty() || found == "pre_tokens") << found;
        return found.empty();
    };
    for (const Int pre : {Int{0}, Int{1}, Int{-100}, kMebi, -kMax, kMax}) {
        EXPECT_TRUE(accepts(pre, -pre) && accepts(-pre, pre));
        EXPECT_TRUE(accepts(pre, kMax));
        EXPECT_FALSE(accepts(pre, -pre - 1) || accepts(-pre - 1, pre)) << pre;
        EXPECT_FALSE(accepts(pre, kMin));
    }
    EXPECT_TRUE(accepts(kMax, kMax));
    EXPECT_FALSE(accepts(kMin, kMax) || accepts(kMin, kMin) || accepts(kMin, 0));
}

/// Right-down causal with more queries than keys: legal outside TND, in TND with no key only.
TEST_P(FlashAttentionRules, CompareLengthsInModeThree) {
    Problem p = problem();
    p.query_rows = 9, p.kv_rows = 2;
    if (!packed()) {
        EXPECT_EQ(verdict(masked(p, 3)), "");
        return;
    }
    const auto with = [&](std::vector<Int> queries, std::vector<Int> keys) {
        p.query_ends = std::move(queries), p.kv_ends = std::move(keys);
        return verdict(masked(p, 3));
    };
    EXPECT_EQ(with({3, 4, 6}, {0, 1, 2}), "sparse_mode");  // 2 queries, 1 key
    EXPECT_EQ(with({3, 4, 5}, {0, 1, 2}), "");             // 3 queries, no key
    EXPECT_EQ(with({2, 2, 2}, {1, 1, 1}), "sparse_mode");
    EXPECT_EQ(with({2, 2, 2}, {2, 2, 2}), "");
    EXPECT_EQ(verdict(masked(p, 2)), "");
}

TEST_P(FlashAttentionRules, TakePrefixes) {
    Problem p = problem();
    Call c = masked(p, 6);
    EXPECT_EQ(verdict(c), "?!prefix");
    if (!packed()) {
        EXPECT_EQ(verdict(masked(p, 5)), "");  // without
        p.query_rows = 9;                      // more queries than keys: from 0
        c = masked(p, 5), c.prefix = int_array({0, 7, 3});
        EXPECT_EQ(verdict(c), "");
        c.prefix.values[1] = 8;
        EXPECT_EQ(verdict(c), "prefix");
        p.batch = 0;
        c = masked(p, 6), c.prefix = int_array({});
        EXPECT_EQ(verdict(c), "");
    }
    p = problem();
    p.query_rows = 9, p.kv_ends = {1, 2, 4};  // more queries than keys in batch 0, TND: 2 and 1
    c = masked(p, 6);
    for (const Int value : {0, 1, -1}) {
        c.prefix = int_array({value, 1, 1});
        EXPECT_EQ(verdict(c), value < 0 ? "prefix" : "") << value;
    }
    for (const Int batch : {2048, 2049}) {
        p = problem();
        p.batch = batch;
        if (packed())
            p.query_ends.assign(static_cast<std::size_t>(batch), 0), p.kv_ends = p.query_ends;
        c = masked(p, 6);
        c.prefix = int_array(std::vector<Int>(static_cast<std::size_t>(batch), packed() ? 0 : 2));
        EXPECT_EQ(verdict(c), batch == 2048 ? "" : "prefix");
        c.sparse_mode = 2, c.atten_mask.shape = {2048, 2048};
        EXPECT_EQ(verdict(c), "");
    }
}

struct FlashAttentionSequenceRules : testing::TestWithParam<bool> {
    Problem problem() const { return packed_problem(GetParam()); }
};
std::string direction_of(const testing::TestParamInfo<bool>& info) {
    return info.param ? "Gradient" : "Forward";
}
INSTANTIATE_TEST_SUITE_P(Call, FlashAttentionSequenceRules, testing::Bool(), direction_of);

TEST_P(FlashAttentionSequenceRules, AcceptTheLimitsOfLengthArrays) {
    Problem p = problem();
    p.query_ends.assign(2 * kMebi, 0), p.kv_ends.assign(2 * kMebi, 11);
    EXPECT_EQ(verdict(build(p)), "");
    p.kv_ends.push_back(11);
    EXPECT_EQ(verdict(build(p)), "actual_seq_kv_len");
    p.query_ends.push_back(9);
    EXPECT_EQ(verdict(build(p)), "actual_seq_q_len");
    p = problem();
    p.query_ends = {0, 9, 9}, p.kv_ends = {11, 11, 11};
    EXPECT_EQ(verdict(build(p)), "");
    p.query_rows = p.kv_rows = 0, p.query_ends = p.kv_ends = {0};
    EXPECT_EQ(verdict(build(p)), "");
}

/// The band is the last sequence with queries, here number 1: 5 queries, 8 keys.
TEST_P(FlashAttentionSequenceRules, CompareTokensOfModeSeven) {
    Problem p = problem();
    p.query_ends = {3, 8, 8}, p.kv_ends = {3, 11, 11};
    const auto with = [&](Int pre, Int next) { return verdict(masked(p, 7, pre, next)); };
    for (const Int pre : {Int{8}, kMax})
        for (const Int next : {-3, -1, 0}) EXPECT_EQ(with(pre, next), "") << next;
    for (const Int next : {Int{-4}, Int{1}, kMin, kMax}) EXPECT_EQ(with(8, next), "pre_tokens");
    for (const Int pre : {Int{7}, Int{0}, Int{-1}, kMin}) EXPECT_EQ(with(pre, 0), "pre_tokens");
    p.query_ends = {4, 8, 8};
    EXPECT_EQ(with(8, 0), "sparse_mode");  // sequence 0: 4 queries, 3 keys
    EXPECT_EQ(with(0, 0), "sparse_mode");
    p.kv_ends = {0, 8, 8};
    EXPECT_EQ(with(8, 0), "");  // 4 queries, no key
    p.query_ends = {0, 9, 9}, p.kv_ends = {0, 8, 11};
    EXPECT_EQ(with(8, 0), "pre_tokens");  // 9 queries, 8 keys: no token is right
    EXPECT_EQ(with(8, 1), "pre_tokens");
    p.query_ends = {8, 9, 9}, p.kv_ends = {11, 11, 11};
    EXPECT_EQ(with(8, 0), "pre_tokens");  // nor without a key
    p.query_ends = {0, 0, 0};
    EXPECT_EQ(with(-1, 5), "");  // no band
}

/// The band is the first sequence with queries, here number 1: 5 queries, 8 keys.
TEST_P(FlashAttentionSequenceRules, CompareTokensOfModeEight) {
    Problem p = problem();
    p.query_ends = {0, 5, 9}, p.kv_ends = {1, 9, 11};
    const auto with = [&](Int pre, Int next) { return verdict(masked(p, 8, pre, next)); };
    for (const Int pre : {Int{8}, kMax})
        for (const Int next : {Int{-3}, Int{0}, Int{1}, kMax}) EXPECT_EQ(with(pre, next), "");
    for (const Int next : {Int{-4}, kMin}) EXPECT_EQ(with(8, next), "pre_tokens");
    for (const Int pre : {Int{7}, Int{-1}, kMin}) EXPECT_EQ(with(pre, 0), "pre_tokens");
    p.query_ends = {9, 9, 9};  // 9 queries, 1 key
    EXPECT_EQ(with(1, 8), "");
    EXPECT_EQ(with(1, 7), "pre_tokens");
    p.query_ends = {0, 0, 0};
    EXPECT_EQ(with(-1, -1), "");  // no band
}

// ---- position bias ----

/// A square problem of one length, or of these lengths.
Problem square(const Problem& from, Int length) {
    Problem p = from;
    p.query_rows = p.kv_rows = length;
    if (p.layout == "TND") {
        p.query_rows = p.kv_rows = 3 * length + 1;
        p.query_ends = p.kv_ends = {length, 2 * length, 3 * length};
    }
    return p;
}

TEST_P(FlashAttentionRules, ReadSlopes) {
    const Problem p = square(problem(), 4);
    for (const Int type : {2, 3}) {
        Call c = build(p);
        c.pse_type = type;
        EXPECT_EQ(verdict(c), "?!" + c.pse_name());
        for (const Shape& shape : std::vector<Shape>{{6}, {3, 6}}) {
            c.pse = tensor(shape, kFp32);
            EXPECT_EQ(verdict(c), "") << shape.size();
            c.pse.dtype = kFp16;
            EXPECT_EQ(verdict(c), c.pse_name());
        }
        for (const Shape& shape : std::vector<Shape>{{},
                                                     {5},
                                                     {1, 6},
                                                     {6, 3},
                                                     {2, 6},
                                                     {3, 6, 4, 4},
                                                     {3, 6, 1},
                                                     {6, 1},
                                                     {kMin},
                                                     {-1, 6}}) {
            c.pse = tensor(shape, kFp32);
            EXPECT_EQ(verdict(c), c.pse_name()) << shape.size();
        }
        c = build(p);
        c.pse_type = type, c.pse = tensor({6}, kFp32);
        for (const Int size : {Int{-1}, kMin}) {  // start indices are looked at when both are given
            c.q_start_idx = {false, size, {}}, c.kv_start_idx = {true, size, {}};
            EXPECT_EQ(verdict(c), "");
            c.q_start_idx = {true, kMax, {kMin}};
            EXPECT_EQ(verdict(c), "kv_start_idx");
            c.q_start_idx.size = size;
            EXPECT_EQ(verdict(c), "q_start_idx");
            c.kv_start_idx.present = false;
            EXPECT_EQ(verdict(c), "");
        }
        c = build(problem());  // lengths differ
        c.pse_type = type, c.pse = tensor({6}, kFp32);
        EXPECT_EQ(verdict(c), c.pse_name());
        for (const Int mode : {0, 1, 2, 4}) {
            Call with_mask = masked(problem(), mode, kMax, kMax);
            with_mask.pse_type = type, with_mask.pse = c.pse;
            EXPECT_EQ(verdict(with_mask), c.pse_name());
        }
        c.sparse_mode = packed() ? 8 : 0;  // without a mask no exception
        EXPECT_EQ(verdict(c), c.pse_name());
    }
    Call c = build(p);
    c.pse_type = 1;  // the same tensor is no bias of type 1
    c.pse = tensor({6}, kFp16);
    EXPECT_EQ(verdict(c), c.pse_name());
}

/// Outside TND; S1 = 5, S2 = 7.
TEST_P(FlashAttentionBatchRules, ReadPlainPositionBiases) {
    for (const std::int32_t dtype : {kFp16, kBf16, kFp32})
        for (const Int type : {0, 1}) {
            Problem p = problem();
            p.dtype = dtype;
            Call c = build(p);
            c.pse_type = type;
            for (const Shape& shape :
                 std::vector<Shape>{{3, 6, 5, 7}, {1, 6, 5, 7}, {3, 6, 1, 7}, {1, 6, 1, 7}}) {
                c.pse = tensor(shape, dtype);
                EXPECT_EQ(verdict(c), "");
                c.pse.dtype = dtype == kFp32 ? kFp16 : kFp32;
                EXPECT_EQ(verdict(c), c.pse_name());
            }
            for (const Shape& shape : std::vector<Shape>{{2, 6, 5, 7},
                                                         {1, 2, 5, 7},
                                                         {3, 6, 7, 5},
                                                         {3, 1, 5, 7},
                                                         {3, 6, 5, 1},
                                                         {5, 7},
                                                         {3, 6, 1024, 7},
                                                         {6 * 21},
                                                         {630}}) {
                c.pse = tensor(shape, dtype);
                EXPECT_EQ(verdict(c), c.pse_name());
            }
        }
}

/// The last 1024 rows of a bias of more than 1024; causal visibility is required.
TEST_P(FlashAttentionRules, ReadCompressedPositionBiases) {
    const auto with = [&](Int length, Int mode, Int pre, Int next, Int slices = 3) {
        Call c = masked(square(problem(), length), mode, pre, next);
        c.pse_type = 0;
        c.pse = tensor({slices, 6, 1024, length}, kFp16);
        const std::string found = verdict(c);
        EXPECT_TRUE(found.empty() || found == c.pse_name()) << found;
        return found.empty();
    };
    for (const Int length : {1023, 1025, 3000}) {
        const bool shape_fits = packed() || length > 1024;
        for (const Int slices : {1, 3}) {
            EXPECT_EQ(with(length, 2, 0, 0, slices), shape_fits) << length;
            EXPECT_EQ(with(length, 3, 0, 0, slices), shape_fits) << length;
            EXPECT_EQ(with(length, 0, length, 0, slices), shape_fits) << length;
            EXPECT_EQ(with(length, 0, kMax, 0, slices), shape_fits) << length;
        }
        EXPECT_FALSE(with(length, 2, 0, 0, 2));
        EXPECT_FALSE(with(length, 0, length - 1, 0) || with(length, 0, length, 1) ||
                     with(length, 0, length, -1) || with(length, 0, kMax, kMax));
        EXPECT_FALSE(with(length, 1, kMax, 0) || with(length, 4, kMax, 0));
        for (const Int mode : {7, 8}) EXPECT_FALSE(packed() && with(length, mode, kMax, 0));
    }
    for (const Int mode : {0, 1, 2, 3, 4}) EXPECT_TRUE(with(1024, mode, kMax, 7)) << "plain";
    Call c = build(square(problem(), 1025));
    c.pse_type = 0, c.pse = tensor({1, 6, 1024, 1025}, kFp16);
    for (const Int mode : {0, 2, 3}) {
        c.sparse_mode = mode, c.pre_tokens = kMax, c.next_tokens = 0;
        EXPECT_EQ(verdict(c), c.pse_name()) << "without a mask";
    }
    Problem p = square(problem(), 1025);
    p.kv_rows = packed() ? 3076 : 1026;
    if (packed()) p.kv_ends = {1025, 2050, 3076};  // the last has one key more
    c = masked(p, 2);
    c.pse_type = 0, c.pse = tensor({1, 6, 1024, 1026}, kFp16);
    EXPECT_EQ(verdict(c), c.pse_name()) << "not square";
}

TEST_P(FlashAttentionSequenceRules, ReadFlatPositionBiases) {
    Call c = build(problem());  // lengths 2, 0, 5 and 3, 1, 5
    for (const Int type : {0, 1}) {
        c.pse_type = type;
        for (const Int elements : {6 * 9, 6 * 31}) {
            c.pse = tensor({elements}, kFp16);
            EXPECT_EQ(verdict(c), "");
            c.pse.shape = {elements, 1};
            EXPECT_EQ(verdict(c), c.pse_name());
        }
        // one key head, all tokens, all pairs, not only the largest ones; plain forms
        for (const Shape& shape : std::vector<Shape>{
                 {9}, {31}, {6 * 11}, {6 * 7 * 9}, {6 * 25}, {0}, {3, 6, 5, 5}, {1, 6, 1, 5}}) {
            c.pse = tensor(shape, kFp16);
            EXPECT_EQ(verdict(c), c.pse_name());
        }
    }
    Problem p = problem();
    p.kv_ends = {0, 0, 0};
    c = build(p), c.pse_type = 0, c.pse = tensor({0}, kFp16);
    EXPECT_EQ(verdict(c), "");
    p.query_rows = p.kv_rows = kMebi, p.num_query_heads = 256;
    p.query_ends = p.kv_ends = {kMebi};
    c = build(p), c.pse_type = 0, c.pse = tensor({Int{1} << 48}, kFp16);
    EXPECT_EQ(verdict(c), "");
}

/// Three sequences of 3 queries and 2 keys each.
TEST_P(FlashAttentionSequenceRules, ReadPlainPositionBiasesOfEqualLengths) {
    Problem p = problem();
    p.query_ends = {3, 6, 9}, p.kv_ends = {2, 4, 6};
    Call c = build(p);
    c.pse_type = 0;
    for (const Shape& shape :
         std::vector<Shape>{{3, 6, 3, 2}, {1, 6, 3, 2}, {3, 6, 1, 2}, {1, 6, 1, 2}}) {
        c.pse = tensor(shape, kFp16);
        EXPECT_EQ(verdict(c), "");
    }
    for (const Shape& shape : std::vector<Shape>{
             {2, 6, 3, 2}, {1, 6, 9, 6}, {3, 6, 2, 3}, {3, 1, 3, 2}, {1, 6, 1024, 2}, {3, 2}}) {
        c.pse = tensor(shape, kFp16);
        EXPECT_EQ(verdict(c), c.pse_name());
    }
    c.pse = tensor({1, 6, 3, 2}, kFp16);
    c.actual_seq_q_len = int_array({3, 6, 8});
    EXPECT_EQ(verdict(c), c.pse_name());
    c.actual_seq_q_len = int_array({3, 6, 9}), c.actual_seq_kv_len = int_array({2, 4, 5});
    EXPECT_EQ(verdict(c), c.pse_name());
}

/// In mode 7 no bias is legal, in mode 8 those of aligned sequences; both only with a mask.
TEST_P(FlashAttentionSequenceRules, RequireAlignmentInModeEight) {
    Problem p = square(problem(), 3);
    const auto with_slopes = [&](Int mode) {
        Call c = masked(p, mode, kMax, mode == 8 ? kMax : 0);
        c.pse_type = 2, c.pse = tensor({6}, kFp32);
        return c;
    };
    Call c = with_slopes(7);
    EXPECT_EQ(verdict(c), c.pse_name());
    c.pse_type = 0, c.pse = tensor({6 * 9}, kFp16);
    EXPECT_EQ(verdict(c), c.pse_name());
    c.atten_mask.present = false;
    EXPECT_EQ(verdict(c), "");
    EXPECT_EQ(verdict(with_slopes(8)), "");
    p.query_ends = {5, 8, 10}, p.kv_ends = {3, 6, 8};  // 2 queries more in sequence 0
    c = with_slopes(8);
    EXPECT_EQ(verdict(c), c.pse_name());
    c.kv_start_idx = int_array({2, -9}), c.q_start_idx = int_array({0});
    EXPECT_EQ(verdict(c), "");
    for (const auto& [q, kv] : {std::pair{kMax - 2, kMax}, {kMin, kMin + 2}, {Int{-2}, Int{0}}}) {
        c.q_start_idx = int_array({q}), c.kv_start_idx = int_array({kv});
        EXPECT_EQ(verdict(c), "");
    }
    for (const auto& [q, kv] : {std::pair{Int{0}, Int{1}},
                                {Int{2}, Int{0}},
                                {kMax, kMin + 1},
                                {kMax, kMin},
                                {kMin, kMax},
                                {Int{0}, Int{3}}}) {
        c.q_start_idx = int_array({q}), c.kv_start_idx = int_array({kv});
        EXPECT_EQ(verdict(c), c.pse_name()) << q << ' ' << kv;
    }
    c.kv_start_idx = int_array({2});
    const ArrayArgument no_start[] = {{}, int_array({}), {false, 1, {}}, {false, kMin, {}}};
    for (const ArrayArgument& q : no_start) {  // then neither counts
        c.q_start_idx = q;
        EXPECT_EQ(verdict(c), c.pse_name());
    }
    for (const Int size : {Int{-1}, kMin}) {
        c.q_start_idx = int_array({0}), c.kv_start_idx = {true, size, {}};
        EXPECT_EQ(verdict(c), "kv_start_idx");
        c.q_start_idx = {true, size, {}};
        EXPECT_EQ(verdict(c), "q_start_idx");
        c.pse_type = 0, c.pse = tensor({6 * 8}, kFp16);
        EXPECT_EQ(verdict(c), c.pse_name());  // not aligned; start indices are those of slopes
        c.pse_type = 2, c.pse = tensor({6}, kFp32);
    }
    c.kv_start_idx = int_array({2});
    c.q_start_idx = int_array({0}), c.pse_type = 0;  // start indices are those of slopes
    c.pse = tensor({6 * 8}, kFp16);
    EXPECT_EQ(verdict(c), c.pse_name());
    p = square(problem(), 3);
    c = with_slopes(8), c.q_start_idx = int_array({1}), c.kv_start_idx = int_array({0});
    EXPECT_EQ(verdict(c), c.pse_name());
    c.atten_mask.present = false;
    EXPECT_EQ(verdict(c), "");                         // nothing to align without a mask
    p.query_ends = {3, 6, 10}, p.kv_ends = {3, 6, 9};  // a later sequence is not square
    c = with_slopes(8);
    EXPECT_EQ(verdict(c), c.pse_name());
    p.query_ends = {3, 6, 9};
    EXPECT_EQ(verdict(with_slopes(8)), "");
}

// ---- dropout, ropes, fp8 ----

TEST_P(FlashAttentionRules, CountTheBitsOfDropMasks) {
    Problem p = problem();
    Call c = build(p);
    const Int bytes = packed() ? 24 : 79;  // bits: 6*31 = 186, 3*6*5*7 = 630
    for (const double keep : {1.0, 0.25}) {
        c.keep_prob = keep;
        for (const Shape& shape : std::vector<Shape>{
                 {bytes}, {bytes, 1}, {1, 1, 1, 1, 1, 1, 1, bytes}, {kMax}, {kMebi, 1, kMebi}}) {
            c.drop_mask = tensor(shape, kUint8);
            EXPECT_EQ(verdict(c), "");
        }
        for (const Shape& shape :
             std::vector<Shape>{{bytes - 1}, {kMax, 2}, {kMebi, kMebi, kMebi * 8}}) {
            c.drop_mask = tensor(shape, kUint8);
            EXPECT_EQ(verdict(c), "drop_mask");
        }
    }
    p.num_query_heads = 1, p.num_kv_heads = 1, p.batch = 1;  // exactly 8 bits, then 9
    for (const Int keys : {8, 9})
        for (const Int elements : {1, 2}) {
            p.query_rows = 1, p.kv_rows = keys, p.query_ends = {1}, p.kv_ends = {keys};
            c = build(p), c.drop_mask = tensor({elements}, kUint8);
            EXPECT_EQ(verdict(c), keys == 8 || elements == 2 ? "" : "drop_mask");
        }
    p.kv_rows = 0, p.kv_ends = {0};
    c = build(p), c.drop_mask = tensor({0, kMax, kMax}, kUint8);
    EXPECT_EQ(verdict(c), "");  // no bit
}

TEST_P(FlashAttentionBatchRules, RejectBitsBeyondTheirNumbers) {
    Problem p = problem();
    p.query_rows = p.kv_rows = kMebi;
    p.num_query_heads = p.num_kv_heads = 2, p.batch = kMebi * 2;  // 2^62 bits
    Call c = build(p);
    c.drop_mask = tensor({Int{1} << 59}, kUint8);
    EXPECT_EQ(verdict(c), "");
    c.drop_mask = tensor({(Int{1} << 59) - 1}, kUint8);
    EXPECT_EQ(verdict(c), "drop_mask");
    p.num_query_heads = p.num_kv_heads = 4;  // 2^63
    c = build(p), c.drop_mask = tensor({kMax}, kUint8);
    EXPECT_EQ(verdict(c), "drop_mask");
    p.kv_rows = 0;
    c = build(p), c.drop_mask = tensor({0}, kUint8);
    EXPECT_EQ(verdict(c), "");
}

/// A legal call with ropes.
Call roped(bool gradient, Int rope_dim = 8) {
    Problem p = packed_problem(gradient);
    p.dtype = kBf16;
    Call c = masked(p, 3);
    c.query_rope = tensor({9, 6, rope_dim}, kBf16), c.key_rope = tensor({11, 2, rope_dim}, kBf16);
    if (gradient) c.dq_rope = c.query_rope, c.dk_rope = c.key_rope;
    return c;
}

Rules rope_rules(const Call& base) {
    using A = FlashAttentionArguments;
    Rules rules;
    rules.push_back({kAbsent, "key_rope", {"is absent"}, [](Call& c) { c.key_rope = {}; }});
    const auto wrong = [&](const char* word, std::function<void(Call&)> spoil) {
        rules.push_back({kInvalid, "query_rope", {word}, std::move(spoil)});
    };
    for (const std::int32_t dtype : {kFp16, kFp32})
        wrong("query of", [dtype](Call& c) {
            for (const Named& t : tensors(c.gradient))
                if (t.name.rfind("softmax", 0) != 0) (c.*t.tensor).dtype = dtype;
        });
    const std::pair<Member, const char*> ropes[] = {{&A::query_rope, "query_rope"},
                                                    {&A::key_rope, "key_rope"}};
    for (const auto& [rope, name] : ropes)
        for (const std::int32_t dtype : {kFp16, kFp32, -9})
            add_tensor(rules, rope, name, tensor((base.*rope).shape, dtype), {"has dtype"});
    for (const auto& [rope, name] : ropes)
        for (const Shape& shape : std::vector<Shape>{{}, {9, 48}, {1, 9, 6, 8}})
            add_tensor(rules, rope, name, tensor(shape, kBf16), {"rank"});
    for (const Int dim : {Int{0}, Int{7}, Int{9}, Int{12}, Int{24}, Int{-8}, kMin, kMax})
        wrong("multiple of 8, 8..16", [dim](Call& c) { c.query_rope.shape[2] = dim; });
    add_shape(rules, &A::query_rope, "query_rope", base);
    std::erase_if(rules, [&](const Broken& b) {  // the extent Dr was above
        Call c = base;
        b.spoil(c);
        return b.words[0] == "has shape" && c.query_rope.shape[2] != 8;
    });
    add_shape(rules, &A::key_rope, "key_rope", base);
    for (const std::int32_t dtype : {kBf16, -9})
        wrong(base.gradient ? "no pse_shift" : "no real_shift",
              [dtype](Call& c) { c.pse = tensor({6 * 31}, dtype); });
    wrong("no drop_mask", [](Call& c) { c.drop_mask = tensor({24}, kUint8); });
    wrong("keep_prob 1", [](Call& c) { c.keep_prob = 0.5; });
    for (const Int type : {0, 2, 3}) wrong("pse_type 1", [type](Call& c) { c.pse_type = type; });
    wrong("sparse_mode", [](Call& c) { c.sparse_mode = 6; });
    rules.push_back({kAbsent, "atten_mask", {"is absent"}, [](Call& c) { c.atten_mask = {}; }});
    if (base.gradient) {
        rules.push_back({kAbsent, "dq_rope", {"is absent"}, [](Call& c) { c.dq_rope = {}; }});
        rules.push_back({kAbsent, "dk_rope", {"is absent"}, [](Call& c) { c.dk_rope = {}; }});
    }
    add_tensor(rules, &A::padding_mask, "padding_mask", tensor({1}, kBool), {"is given"});
    if (base.gradient) {
        add_shape(rules, &A::dq, "dq", base);
        add_shape(rules, &A::dq_rope, "dq_rope", base);
        add_tensor(rules, &A::dq_rope, "dq_rope", tensor({9, 6, 8}, kFp16), {"has dtype"});
        add_tensor(rules, &A::dq_rope, "dq_rope", tensor({9, 48}, kBf16), {"rank"});
        add_shape(rules, &A::dk, "dk", base);
        add_shape(rules, &A::dk_rope, "dk_rope", base);
        add_tensor(rules, &A::dk_rope, "dk_rope", tensor({11, 2, 8}, kFp32), {"has dtype"});
    }
    return rules;
}

TEST_P(FlashAttentionSequenceRules, TakeRopes) {
    const Call base = roped(GetParam());
    Call lacking = base;
    lacking.query_rope = {};
    EXPECT_EQ(verdict(lacking), "?!query_rope");
    const Rules rules = rope_rules(base);
    expect_each_decides(base, rules);
    EXPECT_GT(expect_first_of_two_decides(base, rules), 500);
    EXPECT_EQ(verdict(roped(GetParam(), 16)), "");
    for (const Int mode : {0, 1, 2, 4, 7, 8}) {
        Call c = roped(GetParam());
        c.sparse_mode = mode, c.pre_tokens = 5;
        if (mode < 2) c.atten_mask.shape = {5, 5};
        EXPECT_EQ(verdict(c), "") << mode;
    }
}

TEST_P(FlashAttentionRules, TakeRopesInTndOnly) {
    Problem p = problem();
    p.dtype = kBf16;
    Call c = masked(p, 0);
    c.query_rope = c.query, c.key_rope = c.key;
    c.dq_rope = c.query_rope, c.dk_rope = c.key_rope;
    EXPECT_EQ(verdict(c), packed() ? "" : "query_rope");
    if (!p.gradient) return;
    c.query_rope = c.key_rope = {};
    EXPECT_EQ(verdict(c), "dq_rope");
    c.dq_rope = {};
    EXPECT_EQ(verdict(c), "dk_rope");
    c.dk_rope = {};
    EXPECT_EQ(verdict(c), "");
}

/// fp8: only the gradient of the profile ascend950; its other tensors have attention_in's type.
TEST_P(FlashAttentionRules, TakeFp8OnlyInGradientsOfTheProfile) {
    const bool gradient = GetParam().gradient;
    for (const std::int32_t fp8 : {kE5m2, kE4m3})
        for (const std::int32_t wide : {kFp16, kBf16, kFp32}) {
            Problem p = problem();
            p.dtype = fp8;
            Call c = build(p);
            c.attention.dtype = c.dq.dtype = c.dk.dtype = c.dv.dtype = wide;
            EXPECT_EQ(verdict(c), "query");
            c.ascend950 = true;
            EXPECT_EQ(verdict(c), gradient ? "" : "query");
            if (!gradient) continue;
            c.pse_type = 0, c.pse = tensor(packed() ? Shape{6 * 31} : Shape{3, 6, 5, 7}, wide);
            EXPECT_EQ(verdict(c), "");
            c.pse.dtype = fp8;
            EXPECT_EQ(verdict(c), c.pse_name());
            c.pse_type = 1, c.pse = {};
            for (const Named& t : tensors(gradient)) {
                Call wrong = c;
                (wrong.*t.tensor).dtype =
                    t.name == "query" || t.name == "softmax_max" || t.name == "softmax_sum" ? kUint8
                    : t.name == "attention_in" || t.name == "key" || t.name == "value" ||
                            t.name == "dy"
                        ? fp8 ^ kE5m2 ^ kE4m3  // the other fp8
                        : fp8;
                EXPECT_EQ(verdict(wrong), t.name);
            }
            c.attention.dtype = wide == kFp16 ? kBf16 : kFp16;
            EXPECT_EQ(verdict(c), "dq");
        }
    Call c = rich(problem());
    c.ascend950 = true;
    EXPECT_EQ(verdict(c), "");
}

// ---- both statuses ----

/// Whatever else is wrong before or after.
TEST_P(FlashAttentionRules, MarkCallsThatLackAConditionalArgument) {
    const Call base = rich(problem());
    std::vector<std::function<void(Call&)>> lacking{
        [](Call& c) { c.pse = {}; }, [](Call& c) { c.drop_mask = {}; },
        [](Call& c) { c.key_rope = tensor({1}, kBf16); },
        [](Call& c) { c.query_rope = tensor({1}, kBf16); },
        [](Call& c) {
            c.query_rope = c.key_rope = c.dq_rope = c.dk_rope = tensor({1}, kBf16);
            c.atten_mask = {};
        }};
    if (packed()) {
        lacking.push_back([](Call& c) { c.actual_seq_q_len = {}; });
        lacking.push_back([](Call& c) { c.actual_seq_kv_len.present = false; });
        lacking.push_back([](Call& c) { c.prefix = {}; });
    }
    if (base.gradient)
        lacking.push_back(
            [](Call& c) { c.query_rope = c.key_rope = c.dq_rope = tensor({1}, kBf16); });
    const auto unmarked = [](const Call& c) { return !rule(c).either_status; };
    EXPECT_TRUE(unmarked(base));
    for (const auto& lack : lacking) {
        Call c = base;
        lack(c);
        EXPECT_TRUE(rule(c).either_status && !rule(c).accepted());
        c.pse_type = 3;  // stays other than 1
        c.query.dtype = kUint8;
        EXPECT_EQ(rule(c).parameter, "query");
        EXPECT_TRUE(rule(c).either_status);
        c.value.present = false;
        EXPECT_EQ(rule(c).parameter, "value");
        EXPECT_TRUE(rule(c).either_status);
    }
    for (const Broken& broken : rules_of(base)) {  // only pse, drop mask, lengths and prefix
        Call c = base;
        broken.spoil(c);
        const bool conditional =
            broken.status == kAbsent && !rule(c).accepted() &&
            (broken.parameter == base.pse_name() || broken.parameter == "drop_mask" ||
             broken.parameter == "prefix" || broken.parameter.rfind("actual_seq", 0) == 0);
        EXPECT_EQ(rule(c).either_status, conditional) << rule(c).message;
    }
    Call c = build(problem());
    for (const double keep : {1 - 1e-12, 2.0, std::nan("")}) {
        c.keep_prob = keep;
        EXPECT_TRUE(unmarked(c)) << keep;
    }
    c.keep_prob = -1;
    EXPECT_FALSE(unmarked(c));
}

// ---- misuse and garbage ----

/// The caller must hand over what the sizes say, but only once they are accepted.
TEST_P(FlashAttentionSequenceRules, ThrowWhenValuesAreMissing) {
    const Call base = rich(problem());
    Call c = base;
    c.prefix.values.pop_back();
    EXPECT_THROW(rule(c), std::logic_error);
    c.atten_mask.dtype = kFp16;
    EXPECT_EQ(verdict(c), "atten_mask");
    c = base, c.actual_seq_q_len.size = 2;
    EXPECT_THROW(rule(c), std::logic_error);
    c = base, c.actual_seq_kv_len.values.push_back(9);
    EXPECT_THROW(rule(c), std::logic_error);
    c = masked(square(problem(), 2), 8, kMax, kMax);
    c.pse_type = 2, c.pse = tensor({6}, kFp32);
    c.q_start_idx = c.kv_start_idx = {true, 1, {}};
    EXPECT_THROW(rule(c), std::logic_error);
}

/// Every number at the ends of its type: a ruling, never an overflow.
TEST_P(FlashAttentionRules, SurviveGarbage) {
    const Int garbage[] = {kMin, kMin + 1, -1, 0, 1, 2, 6, 8, 1024, 2048, kMebi, kMax / 16, kMax};
    const auto all = tensors(GetParam().gradient);
    const Call bases[] = {build(problem()), rich(problem())};
    for (const Call& base : bases)
        for (const Int first : garbage)
            for (const Int second : garbage)
                for (std::size_t field = 0; field < all.size() + 8; ++field) {
                    Call c = base;
                    const auto fill = [&](TensorArgument& t) {
                        for (std::size_t i = 0; i < t.shape.size(); ++i)
                            t.shape[i] = i % 2 ? first : second;
                    };
                    if (field < all.size()) fill(c.*all[field].tensor);
                    const std::size_t other = field - all.size();
                    if (other == 0) fill(c.pse), fill(c.atten_mask);
                    if (other == 1) fill(c.drop_mask);
                    if (other == 2) c.actual_seq_q_len = int_array({0, first, second});
                    if (other == 3) c.actual_seq_kv_len = int_array({0, first, second});
                    if (other == 4) c.prefix = int_array({0, first, second});
                    if (other == 5) c.head_num = first, fill(c.query);
                    if (other == 6) fill(c.query), fill(c.key), fill(c.value);
                    if (other >= 7) c.pre_tokens = first, c.next_tokens = second;
                    for (Int mode = 0; mode <= (other == 7 ? 8 : 0); ++mode) {
                        if (other == 7) c.sparse_mode = mode;
                        if (other == 7 && mode >= 2 && c.atten_mask.present)
                            c.atten_mask = tensor({mode == 6 ? 3072 : 2048, 2048}, kBool);
                        const Ruling ruling = rule(c);
                        EXPECT_TRUE(ruling.status == kInvalid || ruling.status == kAccepted ||
                                    (ruling.status == kAbsent && mode == 6));  // no prefix
                        EXPECT_EQ(ruling.accepted(), ruling.message.empty());
                    }
                }
}

}  // namespace
}  // namespace attncheck::ref
