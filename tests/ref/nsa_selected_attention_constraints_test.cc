// One broken rule at a time: status, parameter and message; then which of two broken rules decides,
// the limits that are still accepted, and integers at the ends of their type.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "constraint_arguments.h"

namespace attncheck::ref {
namespace {

constexpr std::int64_t kMebi = 1 << 20;

using Forward = SelectedAttentionArguments;
using Grad = SelectedAttentionGradArguments;

/// What a call is made from; build() makes the shapes follow from it.
struct Problem {
    std::int64_t query_tokens = 14, kv_tokens = 96, num_query_heads = 4, num_kv_heads = 2;
    std::int64_t head_dim = 192, value_dim = 128, block_size = 16, block_count = 2;
    std::vector<std::int64_t> query_lengths{5, 7, 12}, kv_lengths{0, 32, 80};
    std::int32_t dtype = kFp16;
};

template <class Arguments>
void build_common(const Problem& p, Arguments& a) {
    a.query = tensor({p.query_tokens, p.num_query_heads, p.head_dim}, p.dtype);
    a.key = tensor({p.kv_tokens, p.num_kv_heads, p.head_dim}, p.dtype);
    a.value = tensor({p.kv_tokens, p.num_kv_heads, p.value_dim}, p.dtype);
    a.topk_indices = tensor({p.query_tokens, p.num_kv_heads, p.block_count}, kInt32);
    a.attention_out = tensor({p.query_tokens, p.num_query_heads, p.value_dim}, p.dtype);
    a.softmax_max = a.softmax_sum = tensor({p.query_tokens, p.num_query_heads, 8}, kFp32);
    a.actual_seq_q_len = int_array(p.query_lengths);
    a.actual_seq_kv_len = int_array(p.kv_lengths);
    a.scale_value = 0.1;
    a.head_num = p.num_query_heads;
    a.input_layout = "TND";
    a.selected_block_size = p.block_size;
    a.selected_block_count = p.block_count;
    a.topk_values.assign(static_cast<std::size_t>(p.query_tokens * p.num_kv_heads * p.block_count),
                         0);
}

template <class Arguments>
Arguments build(const Problem& p) {
    Arguments a;
    build_common(p, a);
    if constexpr (std::is_same_v<Arguments, Grad>) {
        a.attention_out_grad = a.attention_out;
        a.dq = a.query, a.dk = a.key, a.dv = a.value;
    }
    return a;
}

/// Rows 0..4 belong to a sequence without keys, 5..6 to one of 2 blocks, 7..11 to one of 3, and two
/// rows lie beyond. Where nobody may look stand numbers of no block.
template <class Arguments>
Arguments legal() {
    Arguments a = build<Arguments>({});
    for (int row = 0; row < 14; ++row)
        for (int i = 0; i < 4; ++i) {
            const std::int64_t last_block = row < 7 ? 1 : 2;
            const bool looked_at = row >= 5 && row < 12;
            a.topk_values[4 * row + i] = looked_at ? (i % 2 ? last_block : 0) : -7 + 100 * i;
        }
    return a;
}

Ruling rule(const Forward& a) { return rule_nsa_selected_attention(a); }
Ruling rule(const Grad& a) { return rule_nsa_selected_attention_grad(a); }

/// A broken rule: the ruling, words of the message, and what breaks it.
template <class Arguments>
struct Broken {
    int status;
    std::string parameter;
    std::vector<std::string> words;
    std::function<void(Arguments&)> spoil;
};

template <class Arguments>
struct Named {
    TensorArgument Arguments::* tensor;
    const char* name;
};

template <class Arguments>
std::vector<Named<Arguments>> inputs() {
    using A = Arguments;
    std::vector<Named<A>> all{{&A::query, "query"}, {&A::key, "key"}, {&A::value, "value"}};
    if constexpr (std::is_same_v<A, Grad>)
        all.insert(all.end(), {{&A::attention_out, "attention_out"},
                               {&A::attention_out_grad, "attention_out_grad"},
                               {&A::softmax_max, "softmax_max"},
                               {&A::softmax_sum, "softmax_sum"}});
    all.push_back({&A::topk_indices, "topk_indices"});
    return all;
}

template <class Arguments>
std::vector<Named<Arguments>> outputs() {
    using A = Arguments;
    if constexpr (std::is_same_v<A, Grad>)
        return {{&A::dq, "dq"}, {&A::dk, "dk"}, {&A::dv, "dv"}};
    else
        return {{&A::softmax_max, "softmax_max"},
                {&A::softmax_sum, "softmax_sum"},
                {&A::attention_out, "attention_out"}};
}

template <class Arguments>
std::vector<Named<Arguments>> tensors() {
    auto all = inputs<Arguments>();
    for (const auto& each : outputs<Arguments>()) all.push_back(each);
    return all;
}

template <class A>
using Rules = std::vector<Broken<A>>;

template <class A>
void add_absences(Rules<A>& rules) {
    const auto absent = [&](const Named<A>& t) {
        rules.push_back(
            {kAbsent, t.name, {"absent"}, [t](A& a) { (a.*t.tensor).present = false; }});
    };
    for (const auto& t : inputs<A>()) absent(t);
    for (const std::int64_t size : {std::int64_t{0}, std::int64_t{3}, std::int64_t{-1}, kMax})
        rules.push_back({kAbsent, "actual_seq_q_len", {"absent"}, [size](A& a) {
                             a.actual_seq_q_len = {false, size, {}};
                         }});
    for (const std::int64_t size : {std::int64_t{0}, std::int64_t{3}, kMin})
        rules.push_back({kAbsent, "actual_seq_kv_len", {"absent"}, [size](A& a) {
                             a.actual_seq_kv_len = {false, size, {}};
                         }});
    rules.push_back(
        {kAbsent, "input_layout", {"absent", "\"TND\""}, [](A& a) { a.input_layout.reset(); }});
    for (const auto& t : outputs<A>()) absent(t);
}

template <class A>
void add_layouts_ranks_dtypes(Rules<A>& rules) {
    for (const char* layout : {"", "tnd", "TN", "TNDX", "TND ", "BSND"})
        rules.push_back({kInvalid,
                         "input_layout",
                         {std::string("\"") + layout + "\"; allowed"},
                         [layout](A& a) { a.input_layout = layout; }});
    for (const auto& t : tensors<A>()) {
        for (const int rank : {0, 2, 4})
            rules.push_back(
                {kInvalid, t.name, {"rank " + std::to_string(rank), "rank 3"}, [t, rank](A& a) {
                     (a.*t.tensor).rank = rank;
                     (a.*t.tensor).shape.resize(static_cast<std::size_t>(rank), 1);
                 }});
        rules.push_back({kInvalid, t.name, {"rank -5"}, [t](A& a) {
                             (a.*t.tensor).rank = -5, (a.*t.tensor).shape.clear();
                         }});
    }
    for (const auto& t : tensors<A>()) {
        const std::string name = t.name;
        const bool statistics = name.rfind("softmax", 0) == 0, is_query = name == "query";
        std::vector<std::int32_t> wrong{kBf16, kFp32, kInt32, 36, -9};
        if (is_query) wrong = {kFp32, kInt32, 35, 36, -9};
        if (statistics) wrong = {kFp16, kBf16, kInt32, -9};
        if (name == "topk_indices") wrong = {kInt64, kUint8, kFp16, -9};
        const char* const right = is_query                 ? "1 (fp16), 27 (bf16)"
                                  : statistics             ? "0 (fp32)"
                                  : name == "topk_indices" ? "3 (int32)"
                                                           : "the dtype of query";
        for (const std::int32_t dtype : wrong)
            rules.push_back({kInvalid,
                             name,
                             {"dtype " + std::to_string(dtype) + " (", right},
                             [t, dtype](A& a) { (a.*t.tensor).dtype = dtype; }});
    }
}

template <class A>
void add_attribute(Rules<A>& rules, std::int64_t A::* attribute, const char* name,
                   const char* allowed, std::vector<std::int64_t> values) {
    for (const std::int64_t value : values)
        rules.push_back({kInvalid,
                         name,
                         {"is " + std::to_string(value) + ";", allowed},
                         [attribute, value](A& a) { a.*attribute = value; }});
}

template <class A>
void add_attributes(Rules<A>& rules) {
    const double infinity = std::numeric_limits<double>::infinity();
    for (const double scale : {infinity, -infinity, std::nan(""), 1e300, -0x1p128, 0x1.ffffffp127})
        rules.push_back({kInvalid, "scale_value", {"finite as fp32"}, [scale](A& a) {
                             a.scale_value = scale;
                         }});
    add_attribute<A>(rules, &A::head_num, "head_num", "1..128", {0, 129, -1, kMin, kMax});
    add_attribute<A>(rules, &A::sparse_mode, "sparse_mode", "0, 2", {1, 3, -2, 8, kMin, kMax});
    add_attribute<A>(rules, &A::selected_block_size, "selected_block_size", "a multiple of 16",
                     {0, 8, 15, 17, 24, 144, -16, kMin, kMax});
    add_attribute<A>(rules, &A::selected_block_count, "selected_block_count", "1..32",
                     {0, 33, -1, kMin, kMax});
}

template <class A>
void add_extent(Rules<A>& rules, TensorArgument A::* t, int axis, const char* name,
                const char* letter, const char* allowed, std::vector<std::int64_t> values) {
    for (const std::int64_t value : values)
        rules.push_back(
            {kInvalid,
             name,
             {letter + (" = " + std::to_string(value)) + ";", allowed},
             [t, axis, value](A& a) { (a.*t).shape[static_cast<std::size_t>(axis)] = value; }});
}

/// Every extent of a shape in turn.
template <class A>
void add_shape(Rules<A>& rules, TensorArgument A::* t, const char* name, const char* wanted) {
    for (std::size_t axis = 0; axis < 3; ++axis)
        for (const std::int64_t step : {std::int64_t{-1}, std::int64_t{1}, kMin})
            rules.push_back({kInvalid, name, {"has shape", wanted}, [t, axis, step](A& a) {
                                 std::int64_t& extent = (a.*t).shape[axis];
                                 extent = step == kMin ? kMin : extent + step;
                             }});
}

template <class A>
void add_shape_relations(Rules<A>& rules) {
    const std::vector<std::int64_t> no_tokens{0, -1, 2 * kMebi + 1, kMin, kMax};
    const std::vector<std::int64_t> no_heads{0, 129, -1, kMin, kMax};
    const std::vector<std::int64_t> no_dims{0, 64, 160, 256, -128, kMin, kMax};
    add_extent<A>(rules, &A::query, 0, "query", "T1", "1..2097152", no_tokens);
    add_extent<A>(rules, &A::query, 1, "query", "N1", "1..128", no_heads);
    add_extent<A>(rules, &A::query, 2, "query", "D", "128 or 192", no_dims);
    add_attribute<A>(rules, &A::head_num, "head_num", "N1 of query = 4", {1, 2, 3, 5, 128});
    add_extent<A>(rules, &A::key, 0, "key", "T2", "1..2097152", no_tokens);
    add_extent<A>(rules, &A::key, 1, "key", "N2", "1..128", no_heads);
    add_extent<A>(rules, &A::key, 2, "key", "D", "D of query = 192", no_dims);
    add_extent<A>(rules, &A::key, 2, "key", "D", "D of query = 192", {128});
    add_extent<A>(rules, &A::key, 1, "key", "N2", "a divisor of N1 = 4", {3, 5, 8, 128});
    add_extent<A>(rules, &A::value, 0, "value", "T2", "T2 of key = 96", {95, 97, 0, kMin, kMax});
    add_extent<A>(rules, &A::value, 1, "value", "N2", "N2 of key = 2", {1, 3, 4, 0, kMin, kMax});
    add_extent<A>(rules, &A::value, 2, "value", "Dv", "128 or 192 and at most D", no_dims);
    if constexpr (std::is_same_v<A, Grad>) {
        add_shape<A>(rules, &A::attention_out, "attention_out", "[T1,N1,Dv] = [14,4,128]");
        add_shape<A>(rules, &A::attention_out_grad, "attention_out_grad",
                     "[T1,N1,Dv] = [14,4,128]");
        add_shape<A>(rules, &A::softmax_max, "softmax_max", "[T1,N1,8] = [14,4,8]");
        add_shape<A>(rules, &A::softmax_sum, "softmax_sum", "[T1,N1,8] = [14,4,8]");
    }
    add_shape<A>(rules, &A::topk_indices, "topk_indices",
                 "[T1,N2,selected_block_count] = [14,2,2]");
}

/// Values that the entry rules reject.
struct WrongLengths {
    std::vector<std::int64_t> values;
    std::vector<std::string> words;
};

template <class A>
void add_lengths(Rules<A>& rules, ArrayArgument A::* array, const char* name,
                 const std::vector<WrongLengths>& wrong) {
    for (const auto& [values, words] : wrong)
        rules.push_back({kInvalid, name, words,
                         [array, values = values](A& a) { a.*array = int_array(values); }});
}

template <class A>
void add_length_arrays(Rules<A>& rules) {
    const std::int64_t most = std::is_same_v<A, Grad> ? 2 * kMebi : 1024;
    const char* const names[] = {"actual_seq_q_len", "actual_seq_kv_len"};
    ArrayArgument A::* const arrays[] = {&A::actual_seq_q_len, &A::actual_seq_kv_len};
    const std::vector<WrongLengths> wrong[] = {
        {{{-1, 7, 12}, {"-1", "index 0", "at least 0"}},
         {{5, 4, 12}, {"4", "index 1", "at least 5"}},
         {{5, 7, 6}, {"6", "index 2", "at least 7"}},
         {{5, kMin, 12}, {"index 1"}},
         {{5, kMax, kMin}, {"index 1", "at most 131072"}},
         {{5, 7, 15}, {"ends with 15", "T1 = 14"}}},
        {{{-16, 32, 80}, {"-16", "index 0", "at least 0"}},
         {{0, 32, 16}, {"16", "index 2", "at least 32"}},
         {{0, kMin, 80}, {"index 1"}},
         {{0, kMax, kMin}, {"index 1", "at most 131072"}},
         {{0, 40, 80}, {"40 tokens", "index 1", "selected_block_size = 16"}},
         {{1, 33, 81}, {"1 tokens", "index 0"}},
         {{0, 16, 80}, {"16 tokens", "index 1", "selected_block_count = 32"}},
         {{0, 32, 112}, {"ends with 112", "T2 = 96"}}}};
    for (int which = 0; which < 2; ++which) {
        ArrayArgument A::* const array = arrays[which];
        const auto size = [&](std::int64_t value, std::string allowed) {
            rules.push_back({kInvalid,
                             names[which],
                             {"size " + std::to_string(value), std::move(allowed)},
                             [array, value](A& a) { (a.*array).size = value; }});
        };
        for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-1}, most + 1, kMin, kMax})
            size(value, "1.." + std::to_string(most));
        if (which == 1)
            for (const std::int64_t value : {std::int64_t{1}, std::int64_t{2}, most})
                size(value, "the size of actual_seq_q_len = 3");
        add_lengths<A>(rules, array, names[which], wrong[which]);
    }
}

template <class A>
void add_mask(Rules<A>& rules) {
    const auto mask = [&](TensorArgument t, std::int64_t mode, std::vector<std::string> words) {
        rules.push_back({kInvalid, "atten_mask", std::move(words), [t, mode](A& a) {
                             a.atten_mask = t;
                             if (a.sparse_mode == 0) a.sparse_mode = mode;
                         }});
    };
    for (const std::int64_t mode : {0, 2}) {
        mask(tensor({48}, kBool), mode, {"rank 1", "rank 2"});
        mask(tensor({1, 5, 48}, kBool), mode, {"rank 3", "rank 2"});
        mask({true, kBool, -1, {}}, mode, {"rank -1"});
        for (const std::int32_t dtype : {kFp16, kInt32, kFp32, -9})
            mask(tensor({5, 48}, dtype), mode, {"has dtype", "12 (bool), 4 (uint8)"});
        mask(tensor({-1, 48}, kBool), mode, {"[-1,48]", "extents >= 0"});
        mask(tensor({5, kMin}, kBool), mode, {"extents >= 0"});
    }
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{
             {4, 48}, {6, 48}, {5, 47}, {5, 49}, {48, 5}, {14, 96}, {0, 0}, {2048, 2048}})
        mask(tensor(shape, kBool), 0, {"[max S_q,max S_kv] = [5,48]"});
}

template <class A>
void add_outputs_and_block_numbers(Rules<A>& rules) {
    if constexpr (std::is_same_v<A, Grad>) {
        add_shape<A>(rules, &A::dq, "dq", "[T1,N1,D] = [14,4,192]");
        add_shape<A>(rules, &A::dk, "dk", "[T2,N2,D] = [96,2,192]");
        add_shape<A>(rules, &A::dv, "dv", "[T2,N2,Dv] = [96,2,128]");
    } else {
        add_shape<A>(rules, &A::softmax_max, "softmax_max", "[T1,N1,8] = [14,4,8]");
        add_shape<A>(rules, &A::softmax_sum, "softmax_sum", "[T1,N1,8] = [14,4,8]");
        add_shape<A>(rules, &A::attention_out, "attention_out", "[T1,N1,Dv] = [14,4,128]");
    }
    const auto block = [&](std::size_t place, std::int64_t value, std::vector<std::string> words) {
        words.push_back("value " + std::to_string(value) + " at");
        rules.push_back({kInvalid, "topk_indices", std::move(words),
                         [place, value](A& a) { a.topk_values[place] = value; }});
    };
    for (const std::int64_t value : {std::int64_t{2}, std::int64_t{-1}, kMin, kMax}) {
        block(20, value, {"[5,0,0]", "0..1", "sequence 1"});
        block(27, value, {"[6,1,1]", "0..1", "sequence 1"});
    }
    for (const std::int64_t value : {std::int64_t{3}, std::int64_t{-1}, kMin, kMax}) {
        block(29, value, {"[7,0,1]", "0..2", "sequence 2"});
        block(46, value, {"[11,1,0]", "0..2", "sequence 2"});
    }
}

/// In the order of the contract.
template <class A>
Rules<A> all_rules() {
    Rules<A> rules;
    add_absences(rules);
    add_layouts_ranks_dtypes(rules);
    add_attributes(rules);
    add_shape_relations(rules);
    add_length_arrays(rules);
    add_mask(rules);
    add_outputs_and_block_numbers(rules);
    return rules;
}

template <class Arguments>
struct SelectedAttentionRules : testing::Test {};
struct Direction {
    template <class Arguments>
    static std::string GetName(int) {
        return std::is_same_v<Arguments, Grad> ? "Gradient" : "Forward";
    }
};
using Directions = testing::Types<Forward, Grad>;
TYPED_TEST_SUITE(SelectedAttentionRules, Directions, Direction);

TYPED_TEST(SelectedAttentionRules, EachRejectsWithItsParameter) {
    EXPECT_EQ(rule(legal<TypeParam>()).message, "");
    int index = 0;
    for (const auto& broken : all_rules<TypeParam>()) {
        TypeParam a = legal<TypeParam>();
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
// their spoilers may replace each other.
TYPED_TEST(SelectedAttentionRules, TheFirstOfTwoDecides) {
    const auto rules = all_rules<TypeParam>();
    int compared = 0;
    for (std::size_t i = 0; i < rules.size(); ++i) {
        TypeParam first = legal<TypeParam>();
        rules[i].spoil(first);
        for (std::size_t j = i + 1; j < rules.size(); ++j) {
            if (rules[i].parameter == rules[j].parameter) continue;
            TypeParam both = first;
            rules[j].spoil(both);
            const Ruling ruling = rule(both);
            EXPECT_EQ(ruling.status, rules[i].status) << i << ' ' << j << ruling.message;
            EXPECT_EQ(ruling.parameter, rules[i].parameter) << i << ' ' << j << ruling.message;
            ++compared;
        }
    }
    EXPECT_GT(compared, 25000);
}

template <class A>
void expect_accepted(const A& a, const char* which) {
    EXPECT_EQ(rule(a).message, "") << which;
}

TYPED_TEST(SelectedAttentionRules, AcceptTheLimitsOfTheShapes) {
    Problem p{1, 1, 1, 1, 128, 128, 16, 1, {1}, {0}, kBf16};
    expect_accepted(build<TypeParam>(p), "one query, no key");
    p.query_lengths = {0};
    expect_accepted(build<TypeParam>(p), "no query, no key");
    p.kv_tokens = 16, p.query_lengths = {1}, p.kv_lengths = {16};
    expect_accepted(build<TypeParam>(p), "one query, one block");
    for (const std::int64_t kv_heads : {4, 8, 64, 128}) {
        Problem heads;
        heads.num_query_heads = 128, heads.num_kv_heads = kv_heads;
        expect_accepted(build<TypeParam>(heads), "128 query heads");
    }
    Problem group;
    group.num_query_heads = 33, group.num_kv_heads = 1;
    EXPECT_EQ(rule(build<TypeParam>(group)).parameter, "key");
    group.num_query_heads = 66, group.num_kv_heads = 2;
    EXPECT_EQ(rule(build<TypeParam>(group)).parameter, "key");
    group.num_query_heads = 128, group.num_kv_heads = 2;
    EXPECT_EQ(rule(build<TypeParam>(group)).parameter, "key");
    group.num_query_heads = 32, group.num_kv_heads = 1;
    expect_accepted(build<TypeParam>(group), "a group of 32");
    for (const auto& [dim, value_dim] : {std::pair{128, 128}, {192, 192}, {192, 128}, {128, 192}}) {
        Problem dims;
        dims.head_dim = dim, dims.value_dim = value_dim;
        const Ruling ruling = rule(build<TypeParam>(dims));
        EXPECT_EQ(ruling.parameter, dim < value_dim ? "value" : "") << ruling.message;
    }
}

TYPED_TEST(SelectedAttentionRules, AcceptTheLimitsOfLengthsAndBlocks) {
    constexpr std::int64_t kLongest = 131072;
    Problem p{kLongest + 1, kLongest + 128, 1, 1, 128, 128, 128, 32, {kLongest}, {kLongest}};
    expect_accepted(build<TypeParam>(p), "128 Ki queries and keys");
    p.query_lengths = {kLongest + 1};
    EXPECT_EQ(rule(build<TypeParam>(p)).parameter, "actual_seq_q_len");
    p.query_lengths = {kLongest}, p.kv_lengths = {kLongest + 128};
    EXPECT_EQ(rule(build<TypeParam>(p)).parameter, "actual_seq_kv_len");
    p.query_tokens = 1, p.query_lengths = {1}, p.kv_lengths = {4096};
    expect_accepted(build<TypeParam>(p), "exactly 32 blocks of 128");
    p.kv_lengths = {4096 - 128};
    EXPECT_EQ(rule(build<TypeParam>(p)).parameter, "actual_seq_kv_len");
    p = Problem{};
    p.query_lengths = {0, 0, 14}, p.kv_lengths = {0, 96, 96};
    expect_accepted(build<TypeParam>(p), "empty sequences, lengths up to the last token");
    p.block_size = 48, p.block_count = 1, p.kv_lengths = {48, 96, 96};
    expect_accepted(build<TypeParam>(p), "48 is no power of two");
}

TYPED_TEST(SelectedAttentionRules, AcceptTheLimitsOfTheTotals) {
    const std::int64_t most = std::is_same_v<TypeParam, Grad> ? 2 * kMebi : 1024;
    Problem p{2 * kMebi, 2 * kMebi, 1, 1, 128, 128, 16, 1, {1}, {16}};
    expect_accepted(build<TypeParam>(p), "2 Mi tokens");
    p.query_lengths.assign(static_cast<std::size_t>(most), 1);
    p.kv_lengths.assign(static_cast<std::size_t>(most), 0);
    expect_accepted(build<TypeParam>(p), "the largest number of sequences");
    p.kv_lengths.push_back(0);
    EXPECT_EQ(rule(build<TypeParam>(p)).parameter, "actual_seq_kv_len");
    p.query_lengths.push_back(1);
    EXPECT_EQ(rule(build<TypeParam>(p)).parameter, "actual_seq_q_len");
}

TYPED_TEST(SelectedAttentionRules, AcceptAnyScaleThatIsFiniteAsFloat) {
    TypeParam a = legal<TypeParam>();
    for (const double scale : {0.0, -0.0, -1.0, 5e-324, -1e-300, 3.4028234663852886e38,
                               0x1.fffffefffffffp127, -0x1.fffffefffffffp127}) {
        a.scale_value = scale;
        EXPECT_TRUE(std::isfinite(static_cast<float>(scale)));  // what the rule stands for
        expect_accepted(a, "a finite scale");
    }
}

TYPED_TEST(SelectedAttentionRules, AcceptMasks) {
    TypeParam a = legal<TypeParam>();
    a.sparse_mode = 2;
    expect_accepted(a, "mode 2 without a mask");
    for (const std::int32_t dtype : {kBool, kUint8}) {
        a.sparse_mode = 0;
        a.atten_mask = tensor({5, 48}, dtype);
        expect_accepted(a, "mode 0, exact mask");
        a.sparse_mode = 2;
        for (const auto& shape : std::vector<std::vector<std::int64_t>>{
                 {5, 48}, {2048, 2048}, {1, 1}, {0, 0}, {0, 7}, {kMax, kMax}}) {
            a.atten_mask = tensor(shape, dtype);
            expect_accepted(a, "mode 2, any size");
        }
    }
    Problem p;
    p.query_lengths = {1, 9, 11}, p.kv_lengths = {48, 48, 80};  // the last is not the longest
    a = build<TypeParam>(p);
    a.atten_mask = tensor({8, 48}, kBool);
    expect_accepted(a, "a mask for the longest sequences");
    a.atten_mask = {false, -9, -9, {}};  // absent: nothing of it counts
    a.sparse_mode = 0;
    expect_accepted(a, "an absent mask");
}

/// The caller must hand over what the shapes say, but only once they are accepted.
TYPED_TEST(SelectedAttentionRules, ThrowWhenValuesAreMissing) {
    TypeParam a = legal<TypeParam>();
    a.topk_values.pop_back();
    EXPECT_THROW(rule(a), std::logic_error);
    a.topk_values.clear();
    EXPECT_THROW(rule(a), std::logic_error);
    a.head_num = 5;
    EXPECT_EQ(rule(a).parameter, "head_num");
    a = legal<TypeParam>();
    a.actual_seq_q_len.size = 2;
    EXPECT_THROW(rule(a), std::logic_error);
    a.actual_seq_q_len.size = -2;
    EXPECT_EQ(rule(a).parameter, "actual_seq_q_len");
    a = legal<TypeParam>();
    a.actual_seq_kv_len.values.push_back(80);
    EXPECT_THROW(rule(a), std::logic_error);
}

/// A tensor, an attribute or a length array with integers at the ends of their type: a ruling,
/// never an overflow.
TYPED_TEST(SelectedAttentionRules, SurviveGarbage) {
    const std::int64_t garbage[] = {kMin, kMin + 1, -1,  0,      1,         2,
                                    16,   128,      192, 131072, kMax / 16, kMax};
    const auto all = tensors<TypeParam>();
    for (const std::int64_t first : garbage)
        for (const std::int64_t second : garbage)
            for (std::size_t field = 0; field < all.size() + 4; ++field) {
                TypeParam a = legal<TypeParam>();
                if (field < all.size()) (a.*all[field].tensor).shape = {first, second, first};
                const std::size_t other = field - all.size();
                if (other == 0) a.actual_seq_q_len = int_array({0, first, second});
                if (other == 1) a.actual_seq_kv_len = int_array({0, first, second});
                if (other == 2) a.selected_block_size = first, a.selected_block_count = second;
                if (other == 3) a.head_num = a.query.shape[1] = first, a.key.shape[1] = second;
                const Ruling ruling = rule(a);
                EXPECT_TRUE(ruling.status == kAccepted || ruling.status == kInvalid);
                EXPECT_EQ(ruling.accepted(), ruling.message.empty());
            }
}

}  // namespace
}  // namespace attncheck::ref
