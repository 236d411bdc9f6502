// One broken rule of NsaCompressAttention at a time: status, parameter and message; then which of
// two broken rules decides, the limits that are still accepted, and integers at the ends of their
// type.
#include "ref/constraints/nsa_compress_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>

#include "constraint_arguments.h"

namespace attncheck::ref {
namespace {


using Arguments = CompressAttentionArguments;
using Shape = std::vector<std::int64_t>;

/// What a call is made from; build() makes the shapes follow from it.
struct Problem {
    std::int64_t query_tokens = 14, keys = 20, num_query_heads = 8, num_kv_heads = 2;
    std::int64_t head_dim = 192, value_dim = 128;
    std::int64_t block = 32, stride = 16, select_block = 64, count = 2;
    std::vector<std::int64_t> query_lengths{5, 5, 12}, cmp_lengths{8, 8, 19},
        select_lengths{2, 2, 5};
    std::int32_t dtype = kFp16;
};

/// Sums of ceil(Cmp / (l' / d)) for what the problem holds.
std::vector<std::int64_t> select_lengths(const Problem& p) {
    std::vector<std::int64_t> sums;
    std::int64_t begin = 0, sum = 0;
    for (const std::int64_t end : p.cmp_lengths) {
        for (std::int64_t first = begin; first < end; first += p.select_block / p.stride) ++sum;
        begin = end;
        sums.push_back(sum);
    }
    return sums;
}

Arguments build(const Problem& p) {
    Arguments a;
    a.query = tensor({p.query_tokens, p.num_query_heads, p.head_dim}, p.dtype);
    a.key = tensor({p.keys, p.num_kv_heads, p.head_dim}, p.dtype);
    a.value = tensor({p.keys, p.num_kv_heads, p.value_dim}, p.dtype);
    a.actual_seq_q_len = int_array(p.query_lengths);
    a.actual_cmp_seq_kv_len = int_array(p.cmp_lengths);
    a.actual_sel_seq_kv_len = int_array(p.select_lengths);
    a.scale_value = 0.1;
    a.head_num = p.num_query_heads;
    a.input_layout = "TND";
    a.sparse_mode = 1;
    a.compress_block_size = p.block, a.compress_stride = p.stride;
    a.select_block_size = p.select_block, a.select_block_count = p.count;
    a.softmax_max = a.softmax_sum = tensor({p.query_tokens, p.num_query_heads, 8}, kFp32);
    a.attention_out = tensor({p.query_tokens, p.num_query_heads, p.value_dim}, p.dtype);
    a.topk_indices = tensor({p.query_tokens, p.num_kv_heads, p.count}, kInt32);
    return a;
}

/// 5 queries on 8 keys in 2 blocks, an empty sequence, 7 queries on 11 keys in 3 blocks, two query
/// rows and a key behind.
Arguments legal() { return build({}); }

Ruling rule(const Arguments& a) { return rule_nsa_compress_attention(a); }

struct Broken {
    int status;
    std::string parameter;
    std::vector<std::string> words;
    std::function<void(Arguments&)> spoil;
};
using Rules = std::vector<Broken>;

struct Named {
    TensorArgument Arguments::* tensor;
    const char* name;
};
const Named kInputs[] = {
    {&Arguments::query, "query"}, {&Arguments::key, "key"}, {&Arguments::value, "value"}};
const Named kOutputs[] = {{&Arguments::softmax_max, "softmax_max"},
                          {&Arguments::softmax_sum, "softmax_sum"},
                          {&Arguments::attention_out, "attention_out"},
                          {&Arguments::topk_indices, "topk_indices"}};
std::vector<Named> tensors() {
    std::vector<Named> all(std::begin(kInputs), std::end(kInputs));
    all.insert(all.end(), std::begin(kOutputs), std::end(kOutputs));
    return all;
}

struct NamedArray {
    ArrayArgument Arguments::* array;
    const char* name;
};
const NamedArray kArrays[] = {{&Arguments::actual_seq_q_len, "actual_seq_q_len"},
                              {&Arguments::actual_cmp_seq_kv_len, "actual_cmp_seq_kv_len"},
                              {&Arguments::actual_sel_seq_kv_len, "actual_sel_seq_kv_len"}};

void add_absences(Rules& rules) {
    const auto absent = [&](const Named& t) {
        rules.push_back(
            {kAbsent, t.name, {"absent"}, [t](Arguments& a) { (a.*t.tensor).present = false; }});
    };
    for (const Named& t : kInputs) absent(t);
    for (const NamedArray& each : kArrays)
        for (const std::int64_t size : {std::int64_t{0}, std::int64_t{3}, std::int64_t{-1}, kMax})
            rules.push_back({kAbsent, each.name, {"absent"}, [=](Arguments& a) {
                                 a.*each.array = {false, size, {}};
                             }});
    rules.push_back({kAbsent, "input_layout", {"absent", "\"TND\""}, [](Arguments& a) {
                         a.input_layout.reset();
                     }});
    for (const Named& t : kOutputs) absent(t);
}

void add_layouts_ranks_dtypes(Rules& rules) {
    for (const char* layout : {"", "tnd", "TN", "TNDX", "BSND"})
        rules.push_back({kInvalid,
                         "input_layout",
                         {std::string("\"") + layout + "\"; allowed"},
                         [layout](Arguments& a) { a.input_layout = layout; }});
    for (const Named& t : tensors()) {
        for (const int rank : {0, 2, 4})
            rules.push_back(
                {kInvalid, t.name, {"rank " + std::to_string(rank), "rank 3"}, [=](Arguments& a) {
                     (a.*t.tensor).rank = rank;
                     (a.*t.tensor).shape.resize(static_cast<std::size_t>(rank), 1);
                 }});
        rules.push_back({kInvalid, t.name, {"rank -5"}, [t](Arguments& a) {
                             (a.*t.tensor).rank = -5, (a.*t.tensor).shape.clear();
                         }});
    }
    for (const Named& t : tensors()) {
        const std::string name = t.name;
        std::vector<std::int32_t> wrong{kBf16, kFp32, kInt32, 36, -9};
        std::string right = "the dtype of query";
        if (name == "query")
            wrong = {kFp32, kInt32, 35, 36, -9}, right = "1 (fp16), 27 (bf16)";
        else if (name == "topk_indices")
            wrong = {kInt64, kUint8, kFp16, -9}, right = "3 (int32)";
        else if (name.rfind("softmax", 0) == 0)
            wrong = {kFp16, kBf16, kInt32, -9}, right = "0 (fp32)";
        for (const std::int32_t dtype : wrong)
            rules.push_back({kInvalid,
                             name,
                             {"dtype " + std::to_string(dtype) + " (", right},
                             [=](Arguments& a) { (a.*t.tensor).dtype = dtype; }});
    }
}

void add_attribute(Rules& rules, std::int64_t Arguments::* attribute, const char* name,
                   const char* allowed, std::vector<std::int64_t> values) {
    for (const std::int64_t value : values)
        rules.push_back(
            {kInvalid, name, {"is " + std::to_string(value) + ";", allowed}, [=](Arguments& a) {
                 a.*attribute = value;
             }});
}

void add_attributes(Rules& rules) {
    using A = Arguments;
    const double infinity = std::numeric_limits<double>::infinity();
    for (const double scale : {infinity, -infinity, std::nan(""), 1e300, 0x1.ffffffp127})
        rules.push_back({kInvalid, "scale_value", {"finite as fp32"}, [scale](A& a) {
                             a.scale_value = scale;
                         }});
    add_attribute(rules, &A::head_num, "head_num", "at least 1", {0, -1, kMin});
    add_attribute(rules, &A::sparse_mode, "sparse_mode", "0, 1", {2, -1, 7, 256, kMin, kMax});
    // 144, 272 and 288 have a legal number in their low byte or lie behind 128.
    add_attribute(rules, &A::compress_block_size, "compress_block_size", "16..128",
                  {0, 8, 24, 33, 144, 288, -32, kMin, kMax});
    add_attribute(rules, &A::compress_stride, "compress_stride", "16..64",
                  {0, 8, 24, 80, 128, 272, -16, kMin, kMax});
    add_attribute(rules, &A::select_block_size, "select_block_size", "16..128",
                  {0, 8, 40, 144, 320, -64, kMin, kMax});
    add_attribute(rules, &A::select_block_count, "select_block_count", "1..32",
                  {0, 33, -1, 257, kMin, kMax});
    add_attribute(rules, &A::compress_stride, "compress_stride", "at most compress_block_size = 32",
                  {48, 64});
    add_attribute(rules, &A::select_block_size, "select_block_size",
                  "at least compress_block_size = 32", {16});
    rules.push_back(
        {kInvalid, "select_block_size", {"is 48;", "a multiple of compress_stride = 32"}, [](A& a) {
             a.compress_stride = 32, a.select_block_size = 48;
         }});
}

void add_extent(Rules& rules, TensorArgument Arguments::* t, std::size_t axis, const char* name,
                const char* letter, const char* allowed, std::vector<std::int64_t> values) {
    for (const std::int64_t value : values)
        rules.push_back({kInvalid,
                         name,
                         {letter + (" = " + std::to_string(value)) + ";", allowed},
                         [=](Arguments& a) { (a.*t).shape[axis] = value; }});
}

void add_shape_relations(Rules& rules) {
    using A = Arguments;
    add_extent(rules, &A::query, 0, "query", "T1", "T1 >= 1", {0, -1, kMin});
    add_extent(rules, &A::query, 1, "query", "N1", "N1 >= 1", {0, -1, kMin});
    add_extent(rules, &A::query, 2, "query", "D", "1..768", {0, 769, -1, kMin, kMax});
    add_attribute(rules, &A::head_num, "head_num", "N1 of query = 8", {1, 7, 9, 128, kMax});
    add_extent(rules, &A::key, 0, "key", "C", "C >= 1", {0, -1, kMin});
    add_extent(rules, &A::key, 1, "key", "N2", "N2 >= 1", {0, -1, kMin});
    add_extent(rules, &A::key, 2, "key", "D", "D of query = 192", {191, 193, 0, kMin, kMax});
    add_extent(rules, &A::key, 1, "key", "N2", "a divisor of N1 = 8", {3, 16, kMax});
    for (const std::int64_t group : {3, 5, 6, 7, 12, 48, 96, 127, 128, 256})
        rules.push_back({kInvalid, "key", {"N1 / N2 one of 1, 2, 4, 8, 16, 32, 64"}, [group](A& a) {
                             a.query = tensor({14, 2 * group, 192});
                             a.head_num = 2 * group;
                         }});
    add_extent(rules, &A::value, 0, "value", "C", "C of key = 20", {19, 21, 0, kMin, kMax});
    add_extent(rules, &A::value, 1, "value", "N2", "N2 of key = 2", {1, 3, 8, 0, kMin, kMax});
    add_extent(rules, &A::value, 2, "value", "Dv", "1..192", {0, 193, -1, kMin, kMax});
    rules.push_back({kInvalid, "query", {"T1 * N1 * max(D, 8) within int64"}, [](A& a) {
                         a.query.shape[0] = kMax / (8 * 192) + 1;
                     }});
    rules.push_back({kInvalid, "key", {"C * N2 * D within int64"}, [](A& a) {
                         a.key = a.value = tensor({kMax / (2 * 192) + 1, 2, 192});
                     }});
}

struct WrongLengths {
    std::vector<std::int64_t> values;
    std::vector<std::string> words;
};

void add_length_arrays(Rules& rules) {
    const std::vector<WrongLengths> wrong[] = {
        {{{-1, 5, 12}, {"-1", "index 0", "at least 0"}},
         {{5, 4, 12}, {"4", "index 1", "at least 5"}},
         {{5, 5, kMin}, {"index 2", "at least 5"}},
         {{5, 5, 15}, {"ends with 15", "T1 = 14"}},
         {{5, 5, kMax}, {"ends with", "T1 = 14"}}},
        {{{-8, 8, 19}, {"-8", "index 0", "at least 0"}},
         {{8, 7, 19}, {"7", "index 1", "at least 8"}},
         {{8, kMin, 19}, {"index 1"}},
         {{8, kMax, kMin}, {"index 1", "at most 14000"}},
         {{8, 8, 14009}, {"14001", "index 2", "at most 14000"}},
         {{8, 8, 21}, {"ends with 21", "C = 20"}},
         // One block where two are asked for: with queries; without queries, but with keys; none.
         {{4, 4, 19}, {"selection blocks: 1", "index 0", "select_block_count = 2"}},
         {{8, 12, 20}, {"selection blocks: 1", "index 1", "neither queries nor"}},
         {{8, 8, 8}, {"selection blocks: 0", "index 2", "neither queries nor"}}},
        {{{-1, 2, 5}, {"-1", "index 0", "at least 0"}},
         {{2, 1, 5}, {"1", "index 1", "at least 2"}},
         {{1, 2, 5}, {"has value 1", "index 0", "2, the sum of ceil"}},
         {{2, 3, 5}, {"has value 3", "index 1", "2, the sum of ceil"}},
         {{2, 2, 4}, {"has value 4", "index 2", "5, the sum of ceil"}},
         {{2, 2, 6}, {"has value 6", "index 2", "5, the sum of ceil"}},
         {{2, 2, kMax}, {"index 2", "5, the sum of ceil"}},
         {{8, 8, 19}, {"has value 8", "index 0", "2, the sum of ceil"}}}};
    for (std::size_t which = 0; which < 3; ++which) {
        const NamedArray& each = kArrays[which];
        const auto size = [&](std::int64_t value, const char* allowed) {
            rules.push_back({kInvalid,
                             each.name,
                             {"size " + std::to_string(value), allowed},
                             [=](Arguments& a) { (a.*each.array).size = value; }});
        };
        for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-1}, kMin})
            size(value, "size >= 1");
        if (which > 0)
            for (const std::int64_t value :
                 {std::int64_t{1}, std::int64_t{2}, std::int64_t{4}, kMax})
                size(value, "the size of actual_seq_q_len = 3");
        for (const WrongLengths& entry : wrong[which])
            rules.push_back({kInvalid, each.name, entry.words,
                             [=](Arguments& a) { a.*each.array = int_array(entry.values); }});
    }
}

void add_masks(Rules& rules) {
    const struct {
        Named tensor;
        Shape right;
        std::string wanted;
        std::vector<Shape> wrong;
    } masks[] = {{{&Arguments::atten_mask, "atten_mask"},
                  {7, 11},
                  "[max S_q,max Cmp] = [7,11]",
                  {{6, 11}, {8, 11}, {7, 10}, {7, 12}, {11, 7}, {12, 19}, {14, 20}, {0, 0}}},
                 {{&Arguments::topk_mask, "topk_mask"},
                  {7, 3},
                  "[max S_q,max Sel] = [7,3]",
                  {{6, 3}, {8, 3}, {7, 2}, {7, 4}, {3, 7}, {7, 5}, {7, 11}, {kMin, kMax}}}};
    for (const auto& mask : masks) {
        const auto add = [&](TensorArgument t, std::vector<std::string> words) {
            rules.push_back({kInvalid, mask.tensor.name, std::move(words),
                             [t, to = mask.tensor.tensor](Arguments& a) { a.*to = t; }});
        };
        add(tensor({77}, kBool), {"rank 1", "rank 2"});
        add(tensor({1, 7, 11}, kBool), {"rank 3", "rank 2"});
        add({true, kBool, -1, {}}, {"rank -1"});
        for (const std::int32_t dtype : {kFp16, kInt32, kFp32, -9})
            add(tensor(mask.right, dtype), {"has dtype", "12 (bool), 4 (uint8)"});
        for (const Shape& shape : mask.wrong) add(tensor(shape, kUint8), {mask.wanted});
    }
}

void add_output_shapes(Rules& rules) {
    const std::string wanted[] = {"[T1,N1,8] = [14,8,8]", "[T1,N1,8] = [14,8,8]",
                                  "[T1,N1,Dv] = [14,8,128]",
                                  "[T1,N2,select_block_count] = [14,2,2]"};
    for (std::size_t which = 0; which < 4; ++which)
        for (std::size_t axis = 0; axis < 3; ++axis)
            for (const std::int64_t step : {std::int64_t{-1}, std::int64_t{1}, kMin})
                rules.push_back({kInvalid,
                                 kOutputs[which].name,
                                 {"has shape", wanted[which]},
                                 [t = kOutputs[which].tensor, axis, step](Arguments& a) {
                                     std::int64_t& extent = (a.*t).shape[axis];
                                     extent = step == kMin ? kMin : extent + step;
                                 }});
}

/// In the order of the contract.
Rules all_rules() {
    Rules rules;
    add_absences(rules);
    add_layouts_ranks_dtypes(rules);
    add_attributes(rules);
    add_shape_relations(rules);
    add_length_arrays(rules);
    add_masks(rules);
    add_output_shapes(rules);
    return rules;
}

TEST(CompressAttentionRules, EachRejectsWithItsParameter) {
    EXPECT_EQ(rule(legal()).message, "");
    int index = 0;
    for (const Broken& broken : all_rules()) {
        Arguments a = legal();
        broken.spoil(a);
        const Ruling ruling = rule(a);
        EXPECT_EQ(ruling.status, broken.status) << index << ": " << ruling.message;
        EXPECT_EQ(ruling.parameter, broken.parameter) << index << ": " << ruling.message;
        EXPECT_EQ(ruling.message.find(broken.parameter + ' '), 0u) << index << ruling.message;
        EXPECT_NE(ruling.message.find("; allowed: "), std::string::npos) << ruling.message;
        for (const std::string& word : broken.words)
            EXPECT_NE(ruling.message.find(word), std::string::npos)
                << index << ": " << word << " not in " << ruling.message;
        ++index;
    }
    EXPECT_GT(index, 250);
}

// Of every two broken rules the earlier one decides. Rules of the same parameter are left out:
// their spoilers may replace each other. Where a later spoiler takes back what the earlier one did,
// the earlier one goes last.
TEST(CompressAttentionRules, TheFirstOfTwoDecides) {
    const Rules rules = all_rules();
    int compared = 0;
    for (std::size_t i = 0; i < rules.size(); ++i) {
        Arguments first = legal();
        rules[i].spoil(first);
        for (std::size_t j = i + 1; j < rules.size(); ++j) {
            if (rules[i].parameter == rules[j].parameter) continue;
            Arguments both = first;
            rules[j].spoil(both);
            if (rule(both).status == rules[i].status &&
                rule(both).parameter == rules[i].parameter) {
                ++compared;
                continue;
            }
            Arguments other_order = legal();
            rules[j].spoil(other_order);
            rules[i].spoil(other_order);
            EXPECT_EQ(rule(other_order).parameter, rules[i].parameter)
                << i << ' ' << j << rule(other_order).message;
        }
    }
    EXPECT_GT(compared, 25000);
}

void expect_accepted(Problem p, const char* which) {
    p.select_lengths = select_lengths(p);
    EXPECT_EQ(rule(build(p)).message, "") << which;
}

std::string rejected_parameter(Problem p) {
    p.select_lengths = select_lengths(p);
    return rule(build(p)).parameter;
}

TEST(CompressAttentionRules, AcceptTheLimitsOfTheShapes) {
    Problem p{1, 1, 1, 1, 1, 1, 16, 16, 16, 1, {1}, {1}, {}, kBf16};
    expect_accepted(p, "everything 1");
    p.query_lengths = {0}, p.cmp_lengths = {0};
    expect_accepted(p, "one empty sequence");
    p.query_lengths = {0, 1, 1}, p.cmp_lengths = {0, 1, 1};
    expect_accepted(p, "empty sequences before and behind");
    p.query_lengths = {0}, p.cmp_lengths = {1};
    expect_accepted(p, "keys without a query");
    p.query_lengths = {1}, p.cmp_lengths = {0};
    EXPECT_EQ(rejected_parameter(p), "actual_cmp_seq_kv_len");  // queries without a key
    p = Problem{};
    p.head_dim = p.value_dim = 768;
    expect_accepted(p, "D = Dv = 768");
    p.value_dim = 1;
    expect_accepted(p, "Dv = 1");
    for (const std::int64_t group : {1, 2, 4, 8, 16, 32, 64}) {
        p.num_kv_heads = 3, p.num_query_heads = 3 * group;
        expect_accepted(p, "a divisor of 128 below it");
    }
    p.num_kv_heads = 1000, p.num_query_heads = 2000;
    expect_accepted(p, "no limit on the heads");
}

TEST(CompressAttentionRules, AcceptTheLimitsOfTheBlocks) {
    Problem p;
    const std::int64_t legal[][3] = {
        {16, 16, 16}, {128, 64, 128}, {128, 16, 128},      {48, 32, 64},  // floor(l / d) is 1
        {48, 48, 96}, {64, 64, 128},  {128, 128 / 2, 128}, {112, 16, 112}, {32, 16, 48}};
    for (const auto& [block, stride, select] : legal) {
        p.block = block, p.stride = stride, p.select_block = select, p.count = 1;
        expect_accepted(p, "legal blocks");
    }
    const std::int64_t illegal[][3] = {{32, 32, 48}, {48, 32, 48}, {64, 48, 64}};
    for (const auto& [block, stride, select] : illegal) {
        p.block = block, p.stride = stride, p.select_block = select;
        EXPECT_EQ(rejected_parameter(p), "select_block_size") << block << stride << select;
    }
    p = Problem{};
    p.count = 32, p.keys = 200, p.cmp_lengths = {125, 125, 125};
    p.query_lengths = {12, 12, 12};
    expect_accepted(p, "32 of 32 blocks, the last of them short");
    p.cmp_lengths = {124, 124, 124};
    EXPECT_EQ(rejected_parameter(p), "actual_cmp_seq_kv_len");  // 31 blocks
    p = Problem{};
    p.keys = 28000, p.cmp_lengths = {14000, 14000, 28000};
    expect_accepted(p, "14000 compressed keys");
    p.keys = 28001, p.cmp_lengths = {14000, 14000, 28001};
    EXPECT_EQ(rejected_parameter(p), "actual_cmp_seq_kv_len");
    p = Problem{};
    p.query_lengths.assign(5000, 0), p.cmp_lengths.assign(5000, 0);
    expect_accepted(p, "no limit on the sequences");
}

TEST(CompressAttentionRules, AcceptMasksScalesAndModes) {
    for (const std::int64_t mode : {0, 1})
        for (const std::int32_t dtype : {kBool, kUint8}) {
            Arguments a = legal();
            a.sparse_mode = mode;
            EXPECT_EQ(rule(a).message, "") << "no mask";
            a.atten_mask = tensor({7, 11}, dtype);
            EXPECT_EQ(rule(a).message, "") << mode;
            a.topk_mask = tensor({7, 3}, dtype);
            EXPECT_EQ(rule(a).message, "") << mode;
            a.atten_mask = {false, -9, -9, {}};  // absent: nothing of it counts
            EXPECT_EQ(rule(a).message, "") << mode;
        }
    Problem empty{1, 1, 1, 1, 1, 1, 16, 16, 16, 1, {0}, {0}, {0}, kBf16};
    Arguments a = build(empty);
    a.atten_mask = a.topk_mask = tensor({0, 0}, kBool);
    EXPECT_EQ(rule(a).message, "") << "masks of no position";
    a = legal();
    for (const double scale : {0.0, -0.0, -1.0, 5e-324, 3.4028234663852886e38,
                               0x1.fffffefffffffp127, -0x1.fffffefffffffp127}) {
        a.scale_value = scale;
        EXPECT_EQ(rule(a).message, "") << scale;
    }
}

// The caller must hand over what the sizes say, but only once they are accepted.
TEST(CompressAttentionRules, ThrowWhenValuesAreMissing) {
    for (const NamedArray& each : kArrays) {
        Arguments a = legal();
        (a.*each.array).values.pop_back();
        EXPECT_THROW(rule(a), std::logic_error);
        a.head_num = 5;
        EXPECT_EQ(rule(a).parameter, "head_num");
    }
}

// A tensor, an attribute or a length array with integers at the ends of their type: a ruling,
// never an overflow.
TEST(CompressAttentionRules, SurviveGarbage) {
    const std::int64_t garbage[] = {kMin, kMin + 1, -1,  0,     1,         2,
                                    16,   128,      768, 14000, kMax / 16, kMax};
    const auto all = tensors();
    for (const std::int64_t first : garbage)
        for (const std::int64_t second : garbage)
            for (std::size_t field = 0; field < all.size() + 7; ++field) {
                Arguments a = legal();
                if (field < all.size()) (a.*all[field].tensor).shape = {first, second, first};
                const std::size_t other = field - all.size();
                if (other < 3) a.*kArrays[other].array = int_array({0, first, second});
                if (other == 3) a.compress_stride = first, a.compress_block_size = second;
                if (other == 4) a.select_block_size = first, a.select_block_count = second;
                if (other == 5) a.head_num = a.query.shape[1] = first, a.key.shape[1] = second;
                if (other == 6) a.atten_mask = tensor({first, second}, kBool);
                const Ruling ruling = rule(a);
                EXPECT_TRUE(ruling.status == kAccepted || ruling.status == kInvalid);
                EXPECT_EQ(ruling.accepted(), ruling.message.empty());
            }
}

}  // namespace
}  // namespace attncheck::ref
