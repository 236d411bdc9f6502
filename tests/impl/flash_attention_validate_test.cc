#include "impl/operators/flash_attention/validate.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <type_traits>
#include <vector>

#include "properties/case/inert_attribute.h"
#include "rejection_checks.h"

namespace attncheck::impl {
namespace {

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();
constexpr int kNull = ATTNCHECK_ERR_NULLPTR, kInvalid = ATTNCHECK_ERR_INVALID;
constexpr std::int32_t kFp32 = ATTNCHECK_FLOAT32, kFp16 = ATTNCHECK_FLOAT16,
                       kBf16 = ATTNCHECK_BFLOAT16, kByte = ATTNCHECK_UINT8;

using Forward = attncheck_flash_attention_score_args;
using Gradient = attncheck_flash_attention_score_grad_args;

// Never dereferenced by the validator, so any non-null address will do.
attncheck_tensor& bias(Forward& a) { return a.real_shift; }
attncheck_tensor& bias(Gradient& a) { return a.pse_shift; }
attncheck_tensor& output(Forward& a) { return a.attention_out; }
attncheck_tensor& output(Gradient& a) { return a.attention_in; }
const char*& statistics_layout(Forward& a) { return a.softmax_out_layout; }
const char*& statistics_layout(Gradient& a) { return a.softmax_in_layout; }

// "bias", "output" and "statistics_layout" stand for the fields that have two names.
std::string field(const Forward&, const std::string& name) {
    return name == "bias"                ? "real_shift"
           : name == "output"            ? "attention_out"
           : name == "statistics_layout" ? "softmax_out_layout"
                                         : name;
}
std::string field(const Gradient&, const std::string& name) {
    return name == "bias"                ? "pse_shift"
           : name == "output"            ? "attention_in"
           : name == "statistics_layout" ? "softmax_in_layout"
                                         : name;
}

// Sequences of TND: 3 x 4, 0 x 0, 2 x 2, and rows beyond.
const std::int64_t kQueryEnds[] = {3, 3, 5}, kKeyEnds[] = {4, 4, 6};
// As many queries as keys: 3, 0, 2.
const std::int64_t kSquareEnds[] = {3, 3, 5};
const std::int64_t kEqualEnds[] = {3, 6};
// Illegal ones, and some that are legal in places.
const std::int64_t kNegative[] = {-1, 3, 5}, kFalling[] = {3, 2, 5}, kLong[] = {3, 3, 9},
                   kWild[] = {kInt64Min, 4, kInt64Max}, kNoLengths[] = {0, 0, 0};
const std::int64_t kFewer[] = {2, 2, 4}, kNone[] = {0, 0, 2}, kQueryGap[] = {3, 5, 5},
                   kKeyGap[] = {4, 6, 6}, kUneven[] = {4, 5, 8}, kOne[] = {1};

// B = 2, S1 = 3, S2 = 5, N1 = 4, N2 = 2, D = 16, Dv = 8; TND: T1 = 6, T2 = 8.
template <class Args>
Args legal_call(const std::string& layout, std::int32_t dtype = kFp16) {
    using Shape = std::vector<std::int64_t>;
    const auto shape = [&](bool of_keys, std::int64_t dim) -> Shape {
        const std::int64_t len = of_keys ? 5 : 3, heads = of_keys ? 2 : 4;
        if (layout == "BSH") return {2, len, heads * dim};
        if (layout == "SBH") return {len, 2, heads * dim};
        if (layout == "BSND") return {2, len, heads, dim};
        if (layout == "BNSD") return {2, heads, len, dim};
        return {of_keys ? 8 : 6, heads, dim};
    };
    static const char* const kNames[] = {"BSH", "SBH", "BSND", "BNSD", "TND"};
    Args a{};
    a.query = tensor_without_data(dtype, shape(false, 16));
    a.key = tensor_without_data(dtype, shape(true, 16));
    a.value = tensor_without_data(dtype, shape(true, 8));
    for (const char* name : kNames) {
        if (layout == name) a.input_layout = name;
    }
    if (layout == "TND") {
        a.actual_seq_q_len = {kQueryEnds, 3};
        a.actual_seq_kv_len = {kKeyEnds, 3};
    }
    a.scale_value = 0.25;
    a.keep_prob = 1.0;
    a.pre_tokens = a.next_tokens = kInt64Max;
    a.head_num = 4;
    a.pse_type = 1;
    statistics_layout(a) = "";
    a.softmax_max = a.softmax_sum =
        tensor_without_data(kFp32, layout == "TND" ? Shape{6, 4, 8} : Shape{2, 4, 3, 8});
    output(a) = tensor_without_data(dtype, shape(false, 8));
    if constexpr (std::is_same_v<Args, Gradient>) {
        a.dy = a.attention_in;
        a.dq = a.query, a.dk = a.key, a.dv = a.value;
    }
    return a;
}

std::optional<Rejection> validate(const Forward& a) { return validate_flash_attention_score(&a); }
std::optional<Rejection> validate(const Gradient& a) {
    return validate_flash_attention_score_grad(&a);
}

// Refers to a lambda: checks that are compiled once for all of them are compiled in a third of the time.
template <class Args>
class Edit {
public:
    template <class Change>
    Edit(const Change& change)
        : change_(&change),
          apply_([](const void* of, Args& args) { (*static_cast<const Change*>(of))(args); }) {}
    void operator()(Args& args) const { apply_(change_, args); }

private:
    const void* change_;
    void (*apply_)(const void*, Args&);
};

template <class Args>
void rejects(const std::string& layout, const Edit<Args>& change, const std::string& parameter,
             int status = kInvalid) {
    Args args = legal_call<Args>(layout);
    change(args);
    const auto rejection = validate(args);
    ASSERT_TRUE(rejection.has_value()) << layout << " " << parameter;
    const std::string name = field(args, parameter);
    EXPECT_EQ(rejection->status, status) << rejection->message;
    EXPECT_EQ(rejection->parameter, name) << rejection->message;
    EXPECT_EQ(rejection->message.find(name + " is "), 0u) << rejection->message;
    EXPECT_NE(rejection->message.find("; allowed: "), std::string::npos) << rejection->message;
}

// An edit of either call.
struct BothEdits {
    template <class Change>
    BothEdits(const Change& change) : forward(change), gradient(change) {}
    Edit<Forward> forward;
    Edit<Gradient> gradient;
};

void both_reject(const std::string& layout, const BothEdits& change, const std::string& parameter,
                 int status = kInvalid) {
    SCOPED_TRACE(layout);
    rejects<Forward>(layout, change.forward, parameter, status);
    rejects<Gradient>(layout, change.gradient, parameter, status);
}

template <class Args>
void accepts(const std::string& layout, const Edit<Args>& change) {
    Args args = legal_call<Args>(layout);
    change(args);
    const auto rejection = validate(args);
    EXPECT_FALSE(rejection) << layout << " " << rejection->message;
}

void both_accept(const std::string& layout, const BothEdits& change) {
    accepts<Forward>(layout, change.forward);
    accepts<Gradient>(layout, change.gradient);
}

const char* const kLayouts[] = {"BSH", "SBH", "BSND", "BNSD", "TND"};
const char* const kUnpacked[] = {"BSH", "SBH", "BSND", "BNSD"};

attncheck_tensor mask(std::vector<std::int64_t> shape) { return tensor_without_data(kByte, std::move(shape)); }

template <class Args>
void set_square(Args& a) {
    a.actual_seq_q_len = {kSquareEnds, 3};
    a.actual_seq_kv_len = {kSquareEnds, 3};
}

TEST(FlashAttentionValidate, AcceptsTheLegalCalls) {
    for (const char* layout : kLayouts) both_accept(layout, [](auto&) {});
    for (const std::int32_t dtype : {kFp16, kBf16, kFp32}) {
        const Forward a = legal_call<Forward>("BSND", dtype);
        EXPECT_FALSE(validate(a));
    }
}

TEST(FlashAttentionValidate, AbsentArgumentsInOrder) {
    EXPECT_EQ(validate_flash_attention_score(nullptr)->parameter, "args");
    EXPECT_EQ(validate_flash_attention_score_grad(nullptr)->parameter, "args");
    // Everything absent: restoring one after the other moves the complaint on.
    Forward empty{};
    const Forward full = legal_call<Forward>("BSND");
    const auto next = [&](const char* name) {
        const auto rejection = validate(empty);
        ASSERT_TRUE(rejection);
        EXPECT_EQ(rejection->parameter, name);
        EXPECT_EQ(rejection->status, kNull);
    };
    next("query"), empty.query = full.query;
    next("key"), empty.key = full.key;
    next("value"), empty.value = full.value;
    next("input_layout"), empty.input_layout = "bad";
    next("softmax_out_layout"), empty.softmax_out_layout = "";
    next("softmax_max"), empty.softmax_max = full.softmax_max;
    next("softmax_sum"), empty.softmax_sum = full.softmax_sum;
    next("attention_out"), empty.attention_out = full.attention_out;
    EXPECT_EQ(validate(empty)->parameter, "input_layout");
}

TEST(FlashAttentionValidate, AbsentArgumentsOfTheGradientInOrder) {
    Gradient empty{};
    const Gradient full = legal_call<Gradient>("BSND");
    const auto next = [&](const char* name) {
        const auto rejection = validate(empty);
        ASSERT_TRUE(rejection);
        EXPECT_EQ(rejection->parameter, name);
        EXPECT_EQ(rejection->status, kNull);
    };
    next("query"), empty.query = full.query;
    next("key"), empty.key = full.key;
    next("value"), empty.value = full.value;
    next("dy"), empty.dy = full.dy;
    next("softmax_max"), empty.softmax_max = full.softmax_max;
    next("softmax_sum"), empty.softmax_sum = full.softmax_sum;
    next("attention_in"), empty.attention_in = full.attention_in;
    next("input_layout"), empty.input_layout = "TND ";
    next("softmax_in_layout"), empty.softmax_in_layout = "";
    next("dq"), empty.dq = full.dq;
    next("dk"), empty.dk = full.dk;
    next("dv"), empty.dv = full.dv;
    EXPECT_EQ(validate(empty)->parameter, "input_layout");
}

TEST(FlashAttentionValidate, Layouts) {
    for (const char* bad : {"", "bsh", "BSHX", "NTD", "BSN"}) {
        both_reject("BSH", [&](auto& a) { a.input_layout = bad; }, "input_layout");
    }
    both_reject("TND", [](auto& a) { statistics_layout(a) = "other"; }, "statistics_layout");
    both_accept("TND", [](auto& a) { statistics_layout(a) = "same_as_input"; });
    for (const char* layout : kUnpacked) {
        both_reject(
            layout, [](auto& a) { statistics_layout(a) = "same_as_input"; }, "statistics_layout");
    }
}

TEST(FlashAttentionValidate, RanksBeforeDtypes) {
    for (const char* layout : kLayouts) {
        for (const int rank : {-1, 0, 2, 5, 2147483647}) {
            both_reject(layout, [&](auto& a) { a.query.rank = rank, a.key.dtype = 99; }, "query");
            both_reject(layout, [&](auto& a) { a.key.rank = rank, a.value.rank = 0; }, "key");
            both_reject(layout, [&](auto& a) { a.value.rank = rank; }, "value");
            both_reject(layout, [&](auto& a) { a.softmax_max.rank = rank; }, "softmax_max");
            both_reject(layout, [&](auto& a) { a.softmax_sum.rank = rank; }, "softmax_sum");
            both_reject(layout, [&](auto& a) { output(a).rank = rank; }, "output");
            rejects<Gradient>(
                layout, [&](auto& a) { a.dy.rank = a.softmax_max.rank = rank; }, "dy");
            rejects<Gradient>(layout, [&](auto& a) { a.dq.rank = a.dk.rank = rank; }, "dq");
            rejects<Gradient>(layout, [&](auto& a) { a.dk.rank = a.dv.rank = rank; }, "dk");
            rejects<Gradient>(layout, [&](auto& a) { a.dv.rank = rank; }, "dv");
        }
    }
}

TEST(FlashAttentionValidate, DtypesBeforeAttributes) {
    for (const std::int32_t bad : {2, 4, 35, 36, 99, -1}) {
        both_reject("BSND", [&](auto& a) { a.query.dtype = bad, a.head_num = 0; }, "query");
        both_reject("BSND", [&](auto& a) { a.key.dtype = a.value.dtype = bad; }, "key");
        both_reject("BSND", [&](auto& a) { a.value.dtype = a.softmax_max.dtype = bad; }, "value");
        both_reject("BSND", [&](auto& a) { a.softmax_max.dtype = bad; }, "softmax_max");
        both_reject(
            "BSND", [&](auto& a) { a.softmax_sum.dtype = output(a).dtype = bad; }, "softmax_sum");
        both_reject("BSND", [&](auto& a) { output(a).dtype = bad, a.keep_prob = 2; }, "output");
        rejects<Gradient>("BSND", [&](auto& a) { a.dy.dtype = bad; }, "dy");
        rejects<Gradient>("BSND", [&](auto& a) { a.dq.dtype = bad; }, "dq");
        rejects<Gradient>("BSND", [&](auto& a) { a.dk.dtype = bad; }, "dk");
        rejects<Gradient>("BSND", [&](auto& a) { a.dv.dtype = bad; }, "dv");
    }
    both_reject("BSND", [](auto& a) { a.key.dtype = kBf16; }, "key");
}

TEST(FlashAttentionValidate, Fp8UnderItsProfileInTheGradientOnly) {
    const auto make = [](auto& a) {
        a.query.dtype = a.key.dtype = a.value.dtype = ATTNCHECK_FLOAT8_E5M2;
        if constexpr (std::is_same_v<std::decay_t<decltype(a)>, Gradient>)
            a.dy.dtype = ATTNCHECK_FLOAT8_E5M2;
    };
    both_reject("BSND", make, "query");
    for (const char* other : {"", "ascend910b", "ascend9500"}) {
        ASSERT_EQ(setenv("ATTNCHECK_PROFILE", other, 1), 0);
        rejects<Gradient>("BSND", make, "query");
    }
    ASSERT_EQ(setenv("ATTNCHECK_PROFILE", "ascend950", 1), 0);
    accepts<Gradient>("BSND", make);
    rejects<Forward>("BSND", make, "query");
    rejects<Gradient>(
        "BSND", [&](auto& a) { make(a), a.key.dtype = ATTNCHECK_FLOAT8_E4M3FN; }, "key");
    rejects<Gradient>(
        "BSND", [&](auto& a) { make(a), a.attention_in.dtype = ATTNCHECK_FLOAT8_E5M2; },
        "attention_in");
    rejects<Gradient>("BSND", [&](auto& a) { make(a), a.dk.dtype = kBf16; }, "dk");
    // The bias has the type of the outputs.
    rejects<Gradient>(
        "BSND",
        [&](auto& a) {
            make(a);
            a.pse_shift = tensor_without_data(ATTNCHECK_FLOAT8_E5M2, {2, 4, 3, 5});
        },
        "pse_shift");
    accepts<Gradient>("BSND", [&](auto& a) {
        make(a);
        a.pse_shift = tensor_without_data(kFp16, {2, 4, 3, 5});
    });
    unsetenv("ATTNCHECK_PROFILE");
}

TEST(FlashAttentionValidate, AttributesBeforeShapes) {
    const double nan = std::nan("");
    for (const double bad : {0.0, -0.5, 1.5, 1e-50, nan, HUGE_VAL, 1.0 + 1e-6}) {
        both_reject("BSND", [&](auto& a) { a.keep_prob = bad, a.head_num = 0; }, "keep_prob");
    }
    both_accept("BSND", [](auto& a) { a.keep_prob = 1.0 + 1e-12; });
    for (const std::int64_t bad : {kInt64Min, std::int64_t{-1}, std::int64_t{0}, std::int64_t{257},
                                   (std::int64_t{1} << 32) + 4}) {
        both_reject("BSND", [&](auto& a) { a.head_num = bad, a.sparse_mode = 9; }, "head_num");
    }
    for (const std::int64_t bad : {kInt64Min, std::int64_t{-1}, std::int64_t{9}, kInt64Max}) {
        both_reject("TND", [&](auto& a) { a.sparse_mode = bad, a.pse_type = 9; }, "sparse_mode");
        if (bad != 9 && bad != -1) continue;
        both_reject("TND", [&](auto& a) { a.pse_type = bad, a.query.shape[0] = -1; }, "pse_type");
    }
    both_reject("BSND", [](auto& a) { a.pse_type = 4; }, "pse_type");
    for (const char* layout : kUnpacked) {
        both_reject(layout, [](auto& a) { a.sparse_mode = 7; }, "sparse_mode");
        both_reject(layout, [](auto& a) { a.sparse_mode = 8; }, "sparse_mode");
        both_accept(layout, [](auto& a) { a.sparse_mode = 5; });
    }
    both_reject("TND", [](auto& a) { a.sparse_mode = 5; }, "sparse_mode");
    both_accept("TND", [](auto& a) { a.sparse_mode = 8; });
    both_accept("TND", [](auto& a) {
        a.scale_value = std::nan("");
        a.*properties::kInertMember<std::remove_reference_t<decltype(a)>> = kInt64Min;
    });
}

TEST(FlashAttentionValidate, QueryShapes) {
    constexpr std::int64_t kMi = 1 << 20;
    for (const std::int64_t bad : {kInt64Min, std::int64_t{-1}, 2 * kMi + 1, kInt64Max}) {
        both_reject("BSND", [&](auto& a) { a.query.shape[0] = bad; }, "query");
        both_reject("SBH", [&](auto& a) { a.query.shape[1] = bad; }, "query");
    }
    for (const std::int64_t bad : {kInt64Min, std::int64_t{-1}, kMi + 1, kInt64Max}) {
        both_reject("BSND", [&](auto& a) { a.query.shape[1] = bad; }, "query");
        both_reject("SBH", [&](auto& a) { a.query.shape[0] = bad; }, "query");
        both_reject("BNSD", [&](auto& a) { a.query.shape[2] = bad; }, "query");
        both_reject("TND", [&](auto& a) { a.query.shape[0] = bad; }, "query");
    }
    for (const std::int64_t bad :
         {kInt64Min, std::int64_t{0}, std::int64_t{63}, kInt64Max, std::int64_t{4 * 513}}) {
        both_reject("BSH", [&](auto& a) { a.query.shape[2] = bad; }, "query");
    }
    for (const std::int64_t bad : {kInt64Min, std::int64_t{0}, std::int64_t{513}, kInt64Max}) {
        both_reject("BNSD", [&](auto& a) { a.query.shape[3] = bad; }, "query");
        both_reject("TND", [&](auto& a) { a.query.shape[2] = bad; }, "query");
    }
    for (const char* layout : {"BSND", "BNSD", "TND"}) {
        both_reject(layout, [](auto& a) { a.head_num = 2; }, "head_num");
    }
    both_reject("BSH", [](auto& a) { a.head_num = 3; }, "query");
}

TEST(FlashAttentionValidate, KeyShapes) {
    both_reject("BSND", [](auto& a) { a.key.shape[0] = 3; }, "key");
    both_reject("SBH", [](auto& a) { a.key.shape[1] = 3; }, "key");
    for (const std::int64_t bad : {kInt64Min, std::int64_t{-1}, std::int64_t{(1 << 20) + 1}}) {
        both_reject("BSND", [&](auto& a) { a.key.shape[1] = a.value.shape[1] = bad; }, "key");
        both_reject("TND", [&](auto& a) { a.key.shape[0] = a.value.shape[0] = bad; }, "key");
    }
    for (const std::int64_t bad :
         {kInt64Min, std::int64_t{0}, std::int64_t{15}, std::int64_t{17}, std::int64_t{48}}) {
        both_reject("BSH", [&](auto& a) { a.key.shape[2] = bad; }, "key");
    }
    both_reject("BNSD", [](auto& a) { a.key.shape[3] = 8; }, "key");
    for (const std::int64_t bad : {kInt64Min, std::int64_t{-1}, std::int64_t{0}, std::int64_t{3},
                                   std::int64_t{8}, kInt64Max}) {
        both_reject("BNSD", [&](auto& a) { a.key.shape[1] = bad; }, "key");
        both_reject("TND", [&](auto& a) { a.key.shape[1] = bad; }, "key");
    }
}

TEST(FlashAttentionValidate, ValueShapes) {
    both_reject("BSND", [](auto& a) { a.value.shape[0] = 3; }, "value");
    both_reject("BSND", [](auto& a) { a.value.shape[1] = 4; }, "value");
    both_reject("TND", [](auto& a) { a.value.shape[0] = 7; }, "value");
    both_reject("BNSD", [](auto& a) { a.value.shape[1] = 1; }, "value");
    for (const std::int64_t bad : {kInt64Min, std::int64_t{0}, std::int64_t{17}, kInt64Max}) {
        both_reject("BNSD", [&](auto& a) { a.value.shape[3] = bad; }, "value");
    }
    for (const std::int64_t bad :
         {kInt64Min, std::int64_t{0}, std::int64_t{15}, std::int64_t{34}}) {
        both_reject("SBH", [&](auto& a) { a.value.shape[2] = bad; }, "value");
    }
}

TEST(FlashAttentionValidate, GradientInputShapes) {
    for (const char* layout : kLayouts) {
        const int rank = legal_call<Forward>(layout).query.rank;
        for (int dim = 0; dim < rank; ++dim) {
            rejects<Gradient>(
                layout, [&](auto& a) { ++a.dy.shape[dim], ++a.softmax_max.shape[0]; }, "dy");
            rejects<Gradient>(
                layout, [&](auto& a) { ++a.attention_in.shape[dim]; }, "attention_in");
        }
        for (int dim = 0; dim < (rank == 3 && layout[0] == 'T' ? 3 : 4); ++dim) {
            rejects<Gradient>(
                layout, [&](auto& a) { ++a.softmax_max.shape[dim], ++a.softmax_sum.shape[dim]; },
                "softmax_max");
            rejects<Gradient>(
                layout, [&](auto& a) { ++a.softmax_sum.shape[dim], a.attention_in.shape[0] = 9; },
                "softmax_sum");
        }
    }
}

TEST(FlashAttentionValidate, LengthArrays) {
    for (const char* layout : kUnpacked) {
        both_accept(layout, [](auto& a) { a.actual_seq_q_len = {kWild, -5}; });
    }
    both_reject(
        "TND", [](auto& a) { a.actual_seq_q_len = {}, a.actual_seq_kv_len = {}; },
        "actual_seq_q_len", kNull);
    both_reject(
        "TND", [](auto& a) { a.actual_seq_kv_len.values = nullptr; }, "actual_seq_kv_len", kNull);
    for (const std::int64_t bad :
         {kInt64Min, std::int64_t{-1}, std::int64_t{0}, std::int64_t{(1 << 21) + 1}, kInt64Max}) {
        both_reject("TND", [&](auto& a) { a.actual_seq_q_len.size = bad; }, "actual_seq_q_len");
        both_reject("TND", [&](auto& a) { a.actual_seq_kv_len.size = bad; }, "actual_seq_kv_len");
    }
    both_reject("TND", [](auto& a) { a.actual_seq_kv_len.size = 2; }, "actual_seq_kv_len");
    for (const std::int64_t* bad : {kNegative, kFalling, kLong, kWild}) {
        both_reject("TND", [&](auto& a) { a.actual_seq_q_len.values = bad; }, "actual_seq_q_len");
        both_reject("TND", [&](auto& a) { a.actual_seq_kv_len.values = bad; }, "actual_seq_kv_len");
    }
    both_accept("TND", [](auto& a) {
        a.actual_seq_q_len.values = kNoLengths;
        a.actual_seq_kv_len.values = kNoLengths;
    });
}

template <class Args>
void add_rope(Args& a) {
    a = legal_call<Args>("TND", kBf16);
    a.query_rope = tensor_without_data(kBf16, {6, 4, 8});
    a.key_rope = tensor_without_data(kBf16, {8, 2, 8});
    a.atten_mask = mask({2048, 2048});
    a.sparse_mode = 3;
    if constexpr (std::is_same_v<Args, Gradient>) a.dq_rope = a.query_rope, a.dk_rope = a.key_rope;
}

template <class Change>
void rope_reject(const Change& change, const std::string& parameter, int status = kInvalid) {
    both_reject("TND", [&](auto& a) { add_rope(a), change(a); }, parameter, status);
}

TEST(FlashAttentionValidate, Ropes) {
    both_accept("TND", [](auto& a) { add_rope(a); });
    rope_reject([](auto& a) { a.key_rope.data = nullptr; }, "key_rope", kNull);
    rope_reject([](auto& a) { a.query_rope.data = nullptr; }, "query_rope", kNull);
    both_reject(
        "BSND", [](auto& a) { a.query_rope = a.key_rope = tensor_without_data(kFp16, {6, 4, 8}); },
        "query_rope");
    both_reject(
        "TND", [](auto& a) { a.query_rope = a.key_rope = tensor_without_data(kBf16, {6, 4, 8}); }, "query_rope");
    rope_reject([](auto& a) { a.query_rope.dtype = kFp16; }, "query_rope");
    rope_reject([](auto& a) { a.key_rope.dtype = kFp16; }, "key_rope");
    rope_reject([](auto& a) { a.query_rope.rank = 4; }, "query_rope");
    rope_reject([](auto& a) { a.key_rope.rank = -1; }, "key_rope");
    for (const std::int64_t bad :
         {kInt64Min, std::int64_t{0}, std::int64_t{4}, std::int64_t{12}, std::int64_t{24}}) {
        rope_reject([&](auto& a) { a.query_rope.shape[2] = a.key_rope.shape[2] = bad; },
                    "query_rope");
    }
    rope_reject([](auto& a) { a.query_rope.shape[0] = 7; }, "query_rope");
    rope_reject([](auto& a) { a.query_rope.shape[1] = 2; }, "query_rope");
    for (int dim = 0; dim < 3; ++dim) {
        rope_reject([&](auto& a) { a.key_rope.shape[dim] += 8; }, "key_rope");
    }
    rope_reject([](auto& a) { bias(a) = tensor_without_data(kBf16, {24}); }, "query_rope");
    rope_reject([](auto& a) { a.drop_mask = mask({99}); }, "query_rope");
    rope_reject([](auto& a) { a.keep_prob = 0.5; }, "query_rope");
    rope_reject([](auto& a) { a.pse_type = 0; }, "query_rope");
    rope_reject([](auto& a) { a.sparse_mode = 6; }, "query_rope");
    rope_reject([](auto& a) { a.atten_mask.data = nullptr; }, "atten_mask", kNull);
}

TEST(FlashAttentionValidate, RopeGradients) {
    const auto with_rope = [](const auto& change) {
        return [=](Gradient& a) { add_rope(a), change(a); };
    };
    rejects<Gradient>("TND", with_rope([](Gradient& a) { a.dq_rope.data = nullptr; }), "dq_rope",
                      kNull);
    rejects<Gradient>("TND", with_rope([](Gradient& a) { a.dk_rope.data = nullptr; }), "dk_rope",
                      kNull);
    rejects<Gradient>("TND", [](Gradient& a) { a.dq_rope = a.query; }, "dq_rope");
    rejects<Gradient>("TND", [](Gradient& a) { a.dk_rope = a.query; }, "dk_rope");
    for (int dim = 0; dim < 3; ++dim) {
        rejects<Gradient>("TND", with_rope([=](Gradient& a) { ++a.dq_rope.shape[dim]; }),
                          "dq_rope");
        rejects<Gradient>("TND", with_rope([=](Gradient& a) { ++a.dk_rope.shape[dim]; }),
                          "dk_rope");
    }
    rejects<Gradient>("TND", with_rope([](Gradient& a) { a.dk_rope.dtype = kFp32; }), "dk_rope");
    rejects<Gradient>("TND", with_rope([](Gradient& a) { a.dq_rope.rank = 2; }), "dq_rope");
    // Struct order: dq, dq_rope, dk.
    rejects<Gradient>("TND", with_rope([](Gradient& a) { ++a.dq.shape[0], ++a.dq_rope.shape[0]; }),
                      "dq");
    rejects<Gradient>("TND", with_rope([](Gradient& a) { ++a.dq_rope.shape[0], ++a.dk.shape[0]; }),
                      "dq_rope");
}

template <class Args>
void set_bias(Args& a, std::int64_t type, std::vector<std::int64_t> shape) {
    a.pse_type = type;
    bias(a) = tensor_without_data(type >= 2 ? kFp32 : kFp16, std::move(shape));
}

TEST(FlashAttentionValidate, BiasShapes) {
    for (const std::int64_t type : {0, 2, 3}) {
        both_reject("BSND", [&](auto& a) { a.pse_type = type; }, "bias", kNull);
    }
    both_reject(
        "BSND", [](auto& a) { set_bias(a, 1, {2, 4, 3, 5}), bias(a).dtype = kFp32; }, "bias");
    both_reject("BSND", [](auto& a) { set_bias(a, 2, {4}), bias(a).dtype = kFp16; }, "bias");
    for (const std::vector<std::int64_t>& good : std::vector<std::vector<std::int64_t>>{
             {2, 4, 3, 5}, {1, 4, 3, 5}, {2, 4, 1, 5}, {1, 4, 1, 5}}) {
        both_accept("BSND", [&](auto& a) { set_bias(a, 0, good); });
    }
    for (const std::vector<std::int64_t>& bad :
         std::vector<std::vector<std::int64_t>>{{4, 3, 5},
                                                {3, 4, 3, 5},
                                                {2, 1, 3, 5},
                                                {2, 4, 2, 5},
                                                {2, 4, 3, 1},
                                                {120},
                                                {4},
                                                {2, 4, 1024, 5},
                                                {-1, 4, 3, 5}}) {
        both_reject("BSND", [&](auto& a) { set_bias(a, 0, bad); }, "bias");
    }
    // TND: N1 * sum Skv = 24, N1 * sum Sq * Skv = 64; lengths differ, so there is no plain form.
    both_accept("TND", [](auto& a) { set_bias(a, 1, {24}); });
    both_accept("TND", [](auto& a) { set_bias(a, 1, {64}); });
    for (const std::vector<std::int64_t>& bad :
         std::vector<std::vector<std::int64_t>>{{32}, {3, 4, 3, 4}, {1, 4, 1, 4}, {64, 1}, {}}) {
        both_reject("TND", [&](auto& a) { set_bias(a, 1, bad); }, "bias");
    }
    both_accept("TND", [](auto& a) {
        a.actual_seq_q_len = a.actual_seq_kv_len = {kEqualEnds, 2};
        set_bias(a, 0, {2, 4, 3, 3});
    });
}

TEST(FlashAttentionValidate, SlopesNeedEqualLengths) {
    both_reject("BSND", [](auto& a) { set_bias(a, 2, {4}); }, "bias");
    both_accept("TND", [](auto& a) { set_square(a), set_bias(a, 3, {4}); });
    both_accept("TND", [](auto& a) { set_square(a), set_bias(a, 2, {3, 4}); });
    both_reject("TND", [](auto& a) { set_square(a), set_bias(a, 2, {2, 4}); }, "bias");
    both_reject("TND", [](auto& a) { set_bias(a, 2, {4}); }, "bias");
}

TEST(FlashAttentionValidate, CompressedBiasNeedsCausalVisibility) {
    const auto make = [](auto& a, std::int64_t mode) {
        set_square(a);
        set_bias(a, 1, {3, 4, 1024, 3});
        a.atten_mask = mode == 0 ? mask({3, 3}) : mask({2048, 2048});
        a.sparse_mode = mode;
        a.next_tokens = 0;
    };
    for (const std::int64_t mode : {0, 2, 3}) both_accept("TND", [&](auto& a) { make(a, mode); });
    both_reject("TND", [&](auto& a) { make(a, 4); }, "bias");
    both_reject("TND", [&](auto& a) { make(a, 2), a.atten_mask.data = nullptr; }, "bias");
    both_reject("TND", [&](auto& a) { make(a, 0), a.next_tokens = 1; }, "bias");
    both_reject("TND", [&](auto& a) { make(a, 0), a.pre_tokens = 2; }, "bias");
    both_reject("TND", [&](auto& a) { make(a, 2), a.actual_seq_kv_len = {kKeyEnds, 3}; }, "bias");
}

TEST(FlashAttentionValidate, DropMask) {
    both_reject("BSND", [](auto& a) { a.keep_prob = 0.5; }, "drop_mask", kNull);
    // 2 * 4 * 3 * 5 bits are 15 bytes; 64 bits of TND are 8.
    both_accept("BSND", [](auto& a) { a.drop_mask = mask({3, 5}); });
    both_accept("BSND", [](auto& a) { a.drop_mask = mask({1, 1, 1, 1, 1, 1, 1, 15}); });
    both_reject("BSND", [](auto& a) { a.drop_mask = mask({14}); }, "drop_mask");
    both_accept("TND", [](auto& a) { a.drop_mask = mask({8}); });
    both_reject("TND", [](auto& a) { a.drop_mask = mask({7}); }, "drop_mask");
    both_reject("BSND", [](auto& a) { a.drop_mask = tensor_without_data(ATTNCHECK_BOOL, {15}); }, "drop_mask");
    both_reject(
        "BSND", [](auto& a) { a.drop_mask = mask({15}), a.drop_mask.rank = 9; }, "drop_mask");
    both_reject(
        "BSND", [](auto& a) { a.drop_mask = mask({15}), a.drop_mask.rank = 0; }, "drop_mask");
    both_reject("BSND", [](auto& a) { a.drop_mask = mask({-3, -5}); }, "drop_mask");
    both_reject("BSND", [](auto& a) { a.drop_mask = mask({kInt64Max, 2}); }, "drop_mask");
    both_reject("BSND", [](auto& a) { a.drop_mask = mask({kInt64Max, 0, 9}); }, "drop_mask");
    both_reject(
        "BSND",
        [](auto& a) {  // 2^21 * 2^20 * 2^20 pairs of 4 heads
            a.query.shape[0] = a.key.shape[0] = a.value.shape[0] = 1 << 21;
            a.query.shape[1] = a.key.shape[1] = a.value.shape[1] = 1 << 20;
            a.softmax_max.shape[0] = a.softmax_sum.shape[0] = output(a).shape[0] = 1 << 21;
            a.softmax_max.shape[2] = a.softmax_sum.shape[2] = output(a).shape[1] = 1 << 20;
            if constexpr (std::is_same_v<std::decay_t<decltype(a)>, Gradient>)
                a.dy.shape[0] = 1 << 21, a.dy.shape[1] = 1 << 20;
            a.drop_mask = mask({kInt64Max});
        },
        "drop_mask");
}

TEST(FlashAttentionValidate, PaddingMaskIsReserved) {
    both_reject(
        "BSND", [](auto& a) { a.padding_mask = a.query, a.atten_mask = mask({1}); },
        "padding_mask");
}

TEST(FlashAttentionValidate, MaskShapes) {
    const auto with = [](std::int64_t mode, const std::vector<std::int64_t>& shape) {
        return [=](auto& a) { a.sparse_mode = mode, a.atten_mask = mask(shape); };
    };
    both_reject("BSND", [](auto& a) { a.atten_mask = tensor_without_data(kFp16, {3, 5}); }, "atten_mask");
    for (const std::int64_t mode : {0, 1}) {
        for (const std::vector<std::int64_t>& good : std::vector<std::vector<std::int64_t>>{
                 {3, 5}, {1, 1, 3, 5}, {2, 1, 3, 5}, {2, 4, 3, 5}}) {
            both_accept("BSND", with(mode, good));
        }
        for (const std::vector<std::int64_t>& bad : std::vector<std::vector<std::int64_t>>{
                 {5, 3}, {2048, 2048}, {1, 3, 5}, {1, 4, 3, 5}, {2, 2, 3, 5}, {15}, {3, -5}}) {
            both_reject("BSND", with(mode, bad), "atten_mask");
        }
        for (const std::vector<std::int64_t>& good : std::vector<std::vector<std::int64_t>>{
                 {3, 4}, {5, 6}, {1, 1, 3, 4}, {3, 1, 3, 4}, {3, 4, 3, 4}}) {
            both_accept("TND", with(mode, good));
        }
        both_reject("TND", with(mode, {6, 8}), "atten_mask");
        both_reject("TND", with(mode, {1, 1, 5, 6}), "atten_mask");
    }
    both_accept("BSND", with(5, {2, 1, 3, 5}));
    both_accept("BSND", with(5, {2, 4, 3, 5}));
    both_reject("BSND", with(5, {3, 5}), "atten_mask");
    both_reject("BSND", with(5, {1, 1, 3, 5}), "atten_mask");
    for (const std::int64_t mode : {2, 3, 4}) {
        both_accept("BSND", with(mode, {2048, 2048}));
        both_reject("BSND", with(mode, {3, 5}), "atten_mask");
        both_reject("BSND", with(mode, {1, 1, 2048, 2048}), "atten_mask");
        both_reject("BSND", with(mode, {3072, 2048}), "atten_mask");
    }
    both_reject("BSND", with(6, {2048, 2048}), "atten_mask");
    both_reject("BSND", with(6, {3072, 2048}), "prefix", kNull);
}

template <class Args>
void set_tokens(Args& a, std::int64_t mode, std::int64_t pre, std::int64_t next) {
    a.sparse_mode = mode;
    a.atten_mask = mode == 0 ? mask({3, 5}) : mask({2048, 2048});
    a.pre_tokens = pre, a.next_tokens = next;
}

TEST(FlashAttentionValidate, Tokens) {
    // S1 = 3, S2 = 5.
    const std::pair<std::int64_t, std::int64_t> good[] = {
        {0, 0}, {4, -4}, {kInt64Max, -4}, {-2, 2}, {-2, kInt64Max}, {kInt64Max, kInt64Max}};
    const std::pair<std::int64_t, std::int64_t> bad[] = {
        {3, -4},  {5, -5}, {kInt64Max, -5}, {kInt64Max, kInt64Min},
        {-2, 1},  {-3, 3}, {-3, kInt64Max}, {kInt64Min, kInt64Max},
        {-1, -1}, {0, -1}, {-1, 0},         {kInt64Min, kInt64Min}};
    for (const auto& [pre, next] : good)
        both_accept("BSND", [&](auto& a) { set_tokens(a, 0, pre, next); });
    for (const auto& [pre, next] : bad) {
        both_reject("BSND", [&](auto& a) { set_tokens(a, 0, pre, next); }, "pre_tokens");
        both_accept("BSND", [&](auto& a) {  // nothing to check without a mask
            set_tokens(a, 0, pre, next);
            a.atten_mask.data = nullptr;
        });
    }
    both_accept("BSND", [](auto& a) { set_tokens(a, 4, -100, 100); });
    both_accept("BSND", [](auto& a) { set_tokens(a, 4, kInt64Max, -kInt64Max); });
    both_reject("BSND", [](auto& a) { set_tokens(a, 4, kInt64Max, kInt64Min); }, "pre_tokens");
    both_reject("BSND", [](auto& a) { set_tokens(a, 4, -1, 0); }, "pre_tokens");
    both_reject("BSND", [](auto& a) { set_tokens(a, 4, kInt64Min, kInt64Min); }, "pre_tokens");
    both_accept("BSND", [](auto& a) { set_tokens(a, 2, kInt64Min, kInt64Min); });
}

TEST(FlashAttentionValidate, CausalPackedSequencesHaveAtLeastAsManyKeys) {
    both_accept("TND", [](auto& a) { set_tokens(a, 3, 0, 0); });
    both_reject(
        "TND", [](auto& a) { set_tokens(a, 3, 0, 0), a.actual_seq_kv_len.values = kFewer; },
        "sparse_mode");
    both_accept("TND", [](auto& a) { set_tokens(a, 3, 0, 0), a.actual_seq_kv_len.values = kNone; });
    both_accept("BSND", [](auto& a) {
        set_tokens(a, 3, 0, 0);
        a.key.shape[1] = a.value.shape[1] = 1;
        if constexpr (std::is_same_v<std::decay_t<decltype(a)>, Gradient>)
            a.dk.shape[1] = a.dv.shape[1] = 1;
    });
}

TEST(FlashAttentionValidate, SplitBands) {
    // Mode 7: the last sequence, 2 x 2; mode 8: the first, 3 x 4.
    both_accept("TND", [](auto& a) { set_tokens(a, 7, 2, 0); });
    both_reject("TND", [](auto& a) { set_tokens(a, 7, 1, 0); }, "pre_tokens");
    both_reject("TND", [](auto& a) { set_tokens(a, 7, 2, 1); }, "pre_tokens");
    both_reject("TND", [](auto& a) { set_tokens(a, 7, 2, -1); }, "pre_tokens");
    both_accept("TND", [](auto& a) { set_tokens(a, 8, 4, -1); });
    both_accept("TND", [](auto& a) { set_tokens(a, 8, kInt64Max, kInt64Max); });
    both_reject("TND", [](auto& a) { set_tokens(a, 8, 3, 0); }, "pre_tokens");
    both_reject("TND", [](auto& a) { set_tokens(a, 8, 4, -2); }, "pre_tokens");
    both_reject("TND", [](auto& a) { set_tokens(a, 8, kInt64Min, kInt64Min); }, "pre_tokens");
    both_reject(
        "TND", [](auto& a) { set_tokens(a, 7, 2, 0), a.actual_seq_kv_len.values = kFewer; },
        "sparse_mode");
    both_accept("TND", [](auto& a) {  // the empty last sequence is not the band's
        set_tokens(a, 7, 2, 0);
        a.actual_seq_q_len.values = kQueryGap, a.actual_seq_kv_len.values = kKeyGap;
    });
    both_accept("TND", [](auto& a) {
        set_tokens(a, 7, kInt64Min, kInt64Max);
        a.actual_seq_q_len.values = kNoLengths;
    });
}

TEST(FlashAttentionValidate, Prefix) {
    // Mode 6, S1 = 3, S2 = 5: [2, 5].
    static const std::int64_t kGood[] = {2, 5}, kLow[] = {1, 5}, kHigh[] = {2, 6};
    const auto with = [](std::int64_t mode, attncheck_int_array prefix) {
        return [=](auto& a) {
            a.sparse_mode = mode;
            a.atten_mask = mode == 6 ? mask({3072, 2048}) : mask({2, 1, 3, 5});
            a.prefix = prefix;
        };
    };
    both_reject("BSND", with(6, {nullptr, 2}), "prefix", kNull);
    both_accept("BSND", with(5, {nullptr, 2}));
    for (const std::int64_t mode : {5, 6}) {
        both_accept("BSND", with(mode, {kGood, 2}));
        for (const std::int64_t* bad : {kLow, kHigh, kWild})
            both_reject("BSND", with(mode, {bad, 2}), "prefix");
        for (const std::int64_t size : {kInt64Min, std::int64_t{1}, std::int64_t{3}, kInt64Max})
            both_reject("BSND", with(mode, {kGood, size}), "prefix");
    }
    // Per sequence in TND: [1, 4], [0, 0], [0, 2].
    static const std::int64_t kPacked[] = {1, 0, 2}, kPackedLow[] = {0, 0, 2};
    both_accept("TND", with(6, {kPacked, 3}));
    both_reject("TND", with(6, {kPackedLow, 3}), "prefix");
    static const std::vector<std::int64_t> many(2049, 3);
    both_reject(
        "BSND",
        [&](auto& a) {
            with(6, {many.data(), 2049})(a);
            a.query.shape[0] = a.key.shape[0] = a.value.shape[0] = 2049;
            a.softmax_max.shape[0] = a.softmax_sum.shape[0] = output(a).shape[0] = 2049;
            if constexpr (std::is_same_v<std::decay_t<decltype(a)>, Gradient>) a.dy.shape[0] = 2049;
        },
        "prefix");
}

TEST(FlashAttentionValidate, BiasInTheSplitModes) {
    both_reject("TND", [](auto& a) { set_tokens(a, 7, 2, 0), set_bias(a, 1, {24}); }, "bias");
    // Mode 8: 3 - 4 + qStart - kvStart == 0 and the others square.
    const auto make = [](auto& a, attncheck_int_array query_start, attncheck_int_array key_start) {
        set_tokens(a, 8, 4, -1);
        set_bias(a, 2, {4});
        a.q_start_idx = query_start;
        a.kv_start_idx = key_start.values == nullptr && key_start.size == 1
                             ? attncheck_int_array{kNoLengths, 1}
                             : key_start;
    };
    both_reject("TND", [&](auto& a) { make(a, {}, {}); }, "bias");
    both_accept("TND", [&](auto& a) { make(a, {kOne, 1}, {nullptr, 1}); });
    both_reject("TND", [&](auto& a) { make(a, {kOne, 1}, {}); }, "bias");
    both_reject("TND", [&](auto& a) { make(a, {kWild, 1}, {nullptr, 1}); }, "bias");
    both_reject("TND", [&](auto& a) { make(a, {kOne, -1}, {nullptr, 1}); }, "q_start_idx");
    both_reject("TND", [&](auto& a) { make(a, {kOne, 1}, {kOne, kInt64Min}); }, "kv_start_idx");
    both_reject(
        "TND",
        [&](auto& a) {
            make(a, {kOne, 1}, {nullptr, 1});
            a.actual_seq_kv_len.values = kUneven;
        },
        "bias");
}

TEST(FlashAttentionValidate, OutputShapesComeLast) {
    for (const char* layout : kLayouts) {
        const int rank = legal_call<Forward>(layout).query.rank;
        for (int dim = 0; dim < rank; ++dim) {
            rejects<Forward>(
                layout, [&](auto& a) { ++a.attention_out.shape[dim]; }, "attention_out");
            rejects<Gradient>(layout, [&](auto& a) { ++a.dq.shape[dim], ++a.dk.shape[dim]; }, "dq");
            rejects<Gradient>(layout, [&](auto& a) { ++a.dk.shape[dim], ++a.dv.shape[dim]; }, "dk");
            rejects<Gradient>(layout, [&](auto& a) { ++a.dv.shape[dim]; }, "dv");
        }
        rejects<Forward>(
            layout, [](auto& a) { ++a.softmax_max.shape[2], ++a.softmax_sum.shape[2]; },
            "softmax_max");
        rejects<Forward>(layout, [](auto& a) { ++a.softmax_sum.shape[1]; }, "softmax_sum");
        rejects<Forward>(
            layout, [](auto& a) { ++a.softmax_max.shape[0], a.padding_mask = a.query; },
            "padding_mask");
    }
}

TEST(FlashAttentionValidate, EmptySizesAreLegal) {
    const auto empty = [](auto& a, int dim, bool queries, bool keys) {
        if (queries) a.query.shape[dim] = output(a).shape[dim] = 0;
        if (queries)
            a.softmax_max.shape[dim == 1 ? 2 : 0] = a.softmax_sum.shape[dim == 1 ? 2 : 0] = 0;
        if (keys) a.key.shape[dim] = a.value.shape[dim] = 0;
        if constexpr (std::is_same_v<std::decay_t<decltype(a)>, Gradient>) {
            if (queries) a.dy.shape[dim] = a.dq.shape[dim] = 0;
            if (keys) a.dk.shape[dim] = a.dv.shape[dim] = 0;
        }
    };
    both_accept("BSND", [&](auto& a) { empty(a, 0, true, true); });
    both_accept("BSND", [&](auto& a) { empty(a, 1, true, false); });
    both_accept("BSND", [&](auto& a) { empty(a, 1, false, true); });
    both_accept("BSND", [&](auto& a) { empty(a, 1, true, true); });
}

}  // namespace
}  // namespace attncheck::impl
