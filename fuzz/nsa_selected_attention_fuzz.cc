// Two validators of NsaSelectedAttention and NsaSelectedAttentionGrad, written apart from the same
// contract, must agree: the same status, the same parameter to blame; and what is drawn legal must
// be accepted. A trap means one of these fails.
//
// How bytes become a call: the operator, then a legal gradient call (extents, attributes, mask,
// memory order of topk_indices, and per sequence its lengths). Up to 6 groups follow: what to
// spoil, which one of them, and a new value. Missing bytes are 0. The forward takes its outputs
// from the tensors of the same name. topk_indices is stored after that, for the shape it has then:
// numbers of existing blocks where the legal call had queries with keys, elsewhere numbers of none.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "attncheck/candidate.h"
#include "fuzz/bytes.h"
#include "impl/nsa_selected_attention_validate.h"
#include "ref/constraints.h"

using namespace attncheck;

namespace {

using Integer = std::int64_t;
using GradArgs = attncheck_nsa_selected_attention_grad_args;

constexpr Integer kMaxStored = 1 << 13;  ///< beyond it topk_indices is one number, all strides 0
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kScales[] = {0.1,
                              0,
                              -1,
                              5e-324,
                              0x1.fffffefffffffp127,
                              0x1.ffffffp127,
                              -1e300,
                              kInfinity,
                              std::numeric_limits<double>::quiet_NaN()};
constexpr int kLegalScales = 5;

char somewhere;  ///< the data of every tensor whose values no validator reads

constexpr Integer kNoLength = -1;  ///< stands for a present array until its values are final

/// Every number a shape is made of.
enum Extent { kT1, kN1, kT2, kN2, kD, kDv, kK, kExtents };
using Extents = std::array<Integer, kExtents>;

struct Call {
    GradArgs g{};
    Extents extents{};
    std::vector<Integer> query_lengths, kv_lengths;
    std::vector<Integer> blocks;  ///< of every query row with keys, in the legal call; 0 without
    std::uint8_t order = 0;       ///< memory order of topk_indices
    std::vector<std::pair<Integer, std::int32_t>> replaced;  ///< topk values, by row-major number
    std::vector<std::int32_t> stored;                        ///< what topk_indices points into
};

void set_shape(attncheck_tensor& t, Integer first, Integer second, Integer third) {
    t.shape[0] = first, t.shape[1] = second, t.shape[2] = third;
}

void set_shapes(GradArgs& g, const Extents& x) {
    set_shape(g.query, x[kT1], x[kN1], x[kD]);
    set_shape(g.key, x[kT2], x[kN2], x[kD]);
    set_shape(g.value, x[kT2], x[kN2], x[kDv]);
    set_shape(g.attention_out, x[kT1], x[kN1], x[kDv]);
    set_shape(g.softmax_max, x[kT1], x[kN1], 8);
    set_shape(g.topk_indices, x[kT1], x[kN2], x[kK]);
    for (int axis = 0; axis < 3; ++axis) {
        g.attention_out_grad.shape[axis] = g.attention_out.shape[axis];
        g.softmax_sum.shape[axis] = g.softmax_max.shape[axis];
        g.dq.shape[axis] = g.query.shape[axis];
        g.dk.shape[axis] = g.key.shape[axis];
        g.dv.shape[axis] = g.value.shape[axis];
    }
    g.head_num = x[kN1], g.selected_block_count = x[kK];
}

/// Lengths of up to 5 sequences; returns the longest of each side.
std::pair<Integer, Integer> draw_lengths(Bytes& bytes, Call& call) {
    const Integer block = call.g.selected_block_size;
    const Integer least = block * call.extents[kK], most = 131072 / block * block;
    Integer query_end = 0, kv_end = 0, longest_query = 0, longest_kv = 0;
    for (int left = 1 + bytes.byte() % 5; left > 0; --left) {
        const Integer queries = bytes.byte() % 9, kind = bytes.byte();
        Integer keys = least + block * (kind / 2 % 64);
        if (kind % 2 == 0) keys = kind % 16 == 0 ? most : 0;
        call.blocks.insert(call.blocks.end(), static_cast<std::size_t>(queries), keys / block);
        call.query_lengths.push_back(query_end += queries);
        call.kv_lengths.push_back(kv_end += keys);
        longest_query = std::max(longest_query, queries), longest_kv = std::max(longest_kv, keys);
    }
    call.extents[kT1] = std::max<Integer>(1, query_end + bytes.byte() % 4);
    call.extents[kT2] = std::max<Integer>(1, kv_end + bytes.byte());
    return {longest_query, longest_kv};
}

Call draw_legal(Bytes& bytes) {
    Call call;
    GradArgs& g = call.g;
    Extents& x = call.extents;
    constexpr Integer kKvHeads[] = {1, 2, 3, 4, 128}, kGroups[] = {1, 2, 7, 32};
    constexpr Integer kDims[][2] = {{128, 128}, {192, 128}, {192, 192}};
    constexpr Integer kCounts[] = {1, 2, 5, 32};
    g.selected_block_size = 16 * (1 + bytes.byte() % 8);
    x[kK] = kCounts[bytes.byte() % 4];
    x[kN2] = kKvHeads[bytes.byte() % 5];
    x[kN1] = x[kN2] * (x[kN2] == 128 ? 1 : kGroups[bytes.byte() % 4]);
    const auto& dims = kDims[bytes.byte() % 3];
    x[kD] = dims[0], x[kDv] = dims[1];
    const std::int32_t dtype = bytes.byte() % 2 ? ATTNCHECK_BFLOAT16 : ATTNCHECK_FLOAT16;
    g.scale_value = kScales[bytes.byte() % kLegalScales];
    const std::uint8_t mask = bytes.byte();  // bit 0: mode 2, bit 2: there is one
    call.order = bytes.byte() % 6;
    const auto [longest_query, longest_kv] = draw_lengths(bytes, call);
    const attncheck_tensor half{&somewhere, dtype, 3, {}, {}};
    for (attncheck_tensor* t :
         {&g.query, &g.key, &g.value, &g.attention_out, &g.attention_out_grad, &g.dq, &g.dk, &g.dv})
        *t = half;
    g.softmax_max = g.softmax_sum = {&somewhere, ATTNCHECK_FLOAT32, 3, {}, {}};
    g.topk_indices = {&somewhere, ATTNCHECK_INT32, 3, {}, {}};
    set_shapes(g, x);
    g.sparse_mode = mask % 2 * 2;
    g.atten_mask = {nullptr, mask % 3 ? ATTNCHECK_BOOL : ATTNCHECK_UINT8, 2, {}, {}};
    if (mask & 4) g.atten_mask.data = &somewhere;
    set_shape(g.atten_mask, mask % 2 ? mask : longest_query, mask % 2 ? 2048 : longest_kv, 0);
    g.input_layout = "TND";
    g.actual_seq_q_len = {&kNoLength, static_cast<Integer>(call.query_lengths.size())};
    g.actual_seq_kv_len = {&kNoLength, static_cast<Integer>(call.kv_lengths.size())};
    return call;
}

/// Limits of the contract and their neighbours, or as in Bytes::value.
Integer draw_value(Bytes& bytes, Integer before) {
    constexpr Integer kMebi = 1 << 20;
    constexpr Integer kLimits[] = {
        0,      1,      2,      3,      8,         31,  32,           33,   127,
        128,    129,    160,    192,    193,       256, 1023,         1024, 1025,
        131071, 131072, 131073, 131088, 2 * kMebi, -1,  2 * kMebi + 1};
    const std::uint8_t kind = bytes.byte();
    return kind % 2 ? kLimits[kind / 2 % std::size(kLimits)] : bytes.value(before);
}

void spoil(Bytes& bytes, Call& call) {
    GradArgs& g = call.g;
    const std::uint8_t what = bytes.byte(), which = bytes.byte();
    attncheck_tensor* const tensors[] = {
        &g.query,       &g.key,         &g.value,        &g.attention_out, &g.attention_out_grad,
        &g.softmax_max, &g.softmax_sum, &g.topk_indices, &g.atten_mask,    &g.dq,
        &g.dk,          &g.dv};
    Integer* const attributes[] = {&g.head_num, &g.sparse_mode, &g.selected_block_size,
                                   &g.selected_block_count};
    const char* const layouts[] = {nullptr, "", "tnd", "TN", "TNDX", "BSND", "TND"};
    attncheck_tensor& t = *tensors[which % 12];
    std::vector<Integer>& lengths = which % 2 ? call.query_lengths : call.kv_lengths;
    attncheck_int_array& array = which % 2 ? g.actual_seq_q_len : g.actual_seq_kv_len;
    const auto change = [&](auto& integer) {
        integer = static_cast<std::decay_t<decltype(integer)>>(draw_value(bytes, integer));
    };
    const int kind = what % 12;
    if (kind == 0) change(*attributes[which % 4]);
    if (kind == 1) change(t.shape[which / 12 % 4]);
    if (kind == 2) change(lengths[which / 2 % lengths.size()]);
    if (kind == 3) change(array.size);
    if (kind == 4) change(t.rank);
    if (kind == 5) change(t.dtype);
    if (kind == 6) g.input_layout = layouts[which % std::size(layouts)];
    if (kind == 7) t.data = which / 12 % 4 ? nullptr : &somewhere;
    if (kind == 8) array.values = nullptr;
    if (kind == 9) g.scale_value = kScales[which % std::size(kScales)];
    if (kind == 10) change(call.extents[which % kExtents]), set_shapes(g, call.extents);
    if (kind == 11) call.replaced.emplace_back(which, 0), change(call.replaced.back().second);
}

/// A size that nothing backs may only be handed over when nobody has to read the values: sizes that
/// no direction accepts stay as they are, legal ones beyond the limit of the forward are cut.
ref::ArrayArgument back_array(attncheck_int_array& array, std::vector<Integer>& values) {
    constexpr Integer kMostSequences = 2 << 20, kMostBacked = 1100;
    if (!array.values) return {false, array.size, {}};
    if (array.size >= 1 && array.size <= kMostSequences) {
        array.size = std::min(array.size, kMostBacked);
        values.resize(static_cast<std::size_t>(array.size), values.back());
    }
    array.values = values.data();
    return {true, array.size, values};
}

/// Elements of a shape of rank 3, or nothing when it is no such shape or too large to store.
std::optional<Integer> elements(const attncheck_tensor& t, Integer most) {
    if (t.rank != 3) return std::nullopt;
    Integer product = 1;
    for (int axis = 0; axis < 3; ++axis) {
        const Integer extent = t.shape[axis];
        if (extent < 0 || extent > most / std::max<Integer>(product, 1)) return std::nullopt;
        product *= extent;
    }
    return product;
}

/// Gives topk_indices memory of exactly the size that its shape and strides span, and returns its
/// values row-major; nothing when it is no shape to store, then it is a single 0 at strides 0.
std::vector<Integer> store_topk(Call& call) {
    attncheck_tensor& t = call.g.topk_indices;
    const Integer count = elements(t, kMaxStored).value_or(0);
    if (count == 0) call.order = 0;
    const bool repeats = call.order == 0 || call.order == 4;  // one element serves many rows
    const Integer heads = t.shape[1], k = t.shape[2];
    const auto rows = static_cast<Integer>(call.blocks.size());
    Integer first = 0, last = 0;
    for (int axis = 0; count > 0 && axis < 3; ++axis) {
        const Integer dense[] = {heads * k, k, 1}, turned[] = {1, t.shape[0] * k, t.shape[0]};
        const Integer factor[][3] = {{0, 0, 0},  {1, 1, 1}, {0, 0, 0},
                                     {-1, 1, 1}, {0, 1, 1}, {2, -2, 2}};
        t.strides[axis] = call.order == 2 ? turned[axis] : dense[axis] * factor[call.order][axis];
        (t.strides[axis] < 0 ? first : last) += t.strides[axis] * (t.shape[axis] - 1);
    }
    call.stored.assign(static_cast<std::size_t>(last - first + 1), repeats ? 0 : -9);
    if (t.data) t.data = call.stored.data() - first;
    const auto element = [&](Integer number) -> std::int32_t& {
        const Integer place = number / (heads * k) * t.strides[0] +
                              number / k % heads * t.strides[1] + number % k * t.strides[2];
        return call.stored[static_cast<std::size_t>(place - first)];
    };
    for (Integer i = 0; i < count && !repeats; ++i) {
        const Integer row = i / (heads * k);
        const Integer blocks = row < rows ? call.blocks[static_cast<std::size_t>(row)] : 0;
        if (blocks > 0) element(i) = static_cast<std::int32_t>((i * 7 + row) % blocks);
    }
    for (const auto& [number, value] : call.replaced)
        if (count > 0) element(number % count) = value;
    std::vector<Integer> values;
    for (Integer i = 0; i < count; ++i) values.push_back(element(i));
    return values;
}

ref::TensorArgument argument(const attncheck_tensor& t) {
    const int entries = std::clamp(t.rank, 0, ATTNCHECK_MAX_RANK);
    return {t.data != nullptr, t.dtype, t.rank, {t.shape, t.shape + entries}};
}

attncheck_nsa_selected_attention_args forward_of(const GradArgs& g) {
    attncheck_nsa_selected_attention_args f{};
    f.query = g.query, f.key = g.key, f.value = g.value;
    f.topk_indices = g.topk_indices, f.atten_mask = g.atten_mask;
    f.actual_seq_q_len = g.actual_seq_q_len, f.actual_seq_kv_len = g.actual_seq_kv_len;
    f.scale_value = g.scale_value, f.head_num = g.head_num, f.input_layout = g.input_layout;
    f.sparse_mode = g.sparse_mode, f.selected_block_size = g.selected_block_size;
    f.selected_block_count = g.selected_block_count;
    f.softmax_max = g.softmax_max, f.softmax_sum = g.softmax_sum;
    f.attention_out = g.attention_out;
    return f;
}

/// Also the form of the message: "<parameter> <what it is>; allowed: <range>".
void compare(const ref::Ruling& ruling, const std::optional<impl::Rejection>& found, bool legal) {
    const impl::Rejection other = found.value_or(impl::Rejection{0, "", "accepted"});
    const bool well_formed = !found || (other.message.rfind(ruling.parameter + ' ', 0) == 0 &&
                                        other.message.find("; allowed: ") != std::string::npos);
    if (other.status == ruling.status && other.parameter == ruling.parameter && well_formed &&
        (ruling.accepted() || !legal))
        return;
    std::fprintf(stderr, "ref:  %d %s\nimpl: %d %s\n%s", ruling.status, ruling.message.c_str(),
                 other.status, other.message.c_str(), legal ? "drawn legal\n" : "");
    __builtin_trap();
}

/// The ruling of the predicate; nothing when every rule but the last holds for a topk_indices of so
/// many elements that looking at all of them takes too long.
template <class Arguments, class Rule>
std::optional<ref::Ruling> judge(Arguments& a, const attncheck_tensor& topk, Rule&& rule) {
    constexpr Integer kMostLookedAt = 1 << 16;
    try {
        return rule(a);
    } catch (const std::logic_error&) {
        const std::optional<Integer> count = elements(topk, kMostLookedAt);
        if (!a.topk_values.empty()) throw;
        if (!count) return std::nullopt;
        a.topk_values.assign(static_cast<std::size_t>(*count), 0);
        return rule(a);
    }
}

/// What the two directions share; values and lengths are those of the call.
template <class Arguments>
Arguments arguments(const GradArgs& g, const ref::ArrayArgument& query_lengths,
                    const ref::ArrayArgument& kv_lengths, std::vector<Integer> topk_values) {
    Arguments a;
    a.query = argument(g.query), a.key = argument(g.key), a.value = argument(g.value);
    a.topk_indices = argument(g.topk_indices), a.atten_mask = argument(g.atten_mask);
    a.softmax_max = argument(g.softmax_max), a.softmax_sum = argument(g.softmax_sum);
    a.attention_out = argument(g.attention_out);
    a.actual_seq_q_len = query_lengths, a.actual_seq_kv_len = kv_lengths;
    a.scale_value = g.scale_value, a.head_num = g.head_num, a.sparse_mode = g.sparse_mode;
    a.selected_block_size = g.selected_block_size;
    a.selected_block_count = g.selected_block_count;
    if (g.input_layout) a.input_layout = g.input_layout;
    a.topk_values = std::move(topk_values);
    return a;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Bytes bytes{data, data + size};
    const bool forward = bytes.byte() % 2;
    Call call = draw_legal(bytes);
    GradArgs& g = call.g;
    int spoiled = 0;
    for (; spoiled < 6 && bytes.next != bytes.end; ++spoiled) spoil(bytes, call);
    const ref::ArrayArgument query_lengths = back_array(g.actual_seq_q_len, call.query_lengths);
    const ref::ArrayArgument kv_lengths = back_array(g.actual_seq_kv_len, call.kv_lengths);
    std::vector<Integer> topk = store_topk(call);
    if (forward) {
        const attncheck_nsa_selected_attention_args f = forward_of(g);
        auto a = arguments<ref::SelectedAttentionArguments>(g, query_lengths, kv_lengths, topk);
        const auto ruling = judge(a, g.topk_indices, ref::rule_nsa_selected_attention);
        if (ruling) compare(*ruling, impl::validate_nsa_selected_attention(&f), spoiled == 0);
    } else {
        auto a = arguments<ref::SelectedAttentionGradArguments>(g, query_lengths, kv_lengths, topk);
        a.attention_out_grad = argument(g.attention_out_grad);
        a.dq = argument(g.dq), a.dk = argument(g.dk), a.dv = argument(g.dv);
        const auto ruling = judge(a, g.topk_indices, ref::rule_nsa_selected_attention_grad);
        if (ruling) compare(*ruling, impl::validate_nsa_selected_attention_grad(&g), spoiled == 0);
    }
    return 0;
}
