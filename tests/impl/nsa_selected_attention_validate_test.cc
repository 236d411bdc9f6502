#include "impl/operators/nsa_selected_attention/validate.h"

#include <cmath>
#include <limits>
#include <vector>

#include "rejection_checks.h"

namespace attncheck::impl {
namespace {

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();
constexpr int kNull = ATTNCHECK_ERR_NULLPTR, kInvalid = ATTNCHECK_ERR_INVALID;

using Forward = attncheck_nsa_selected_attention_args;
using Gradient = attncheck_nsa_selected_attention_grad_args;

// Never dereferenced by the validator, so any non-null address will do.
// T1 = 10, N1 = 4, N2 = 2, D = 192, Dv = 128, block 32, count 2; (queries, keys) of the sequences:
// (0, 0), (3, 64), (2, 0), (4, 96); one query and 8 keys beyond.
const std::int64_t kQueryEnds[] = {0, 3, 5, 9}, kKeyEnds[] = {0, 64, 64, 160};

// Entries of rows 3, 4 (no keys) and 9 (no sequence) are out of every range.
struct Lists {
    std::vector<std::int32_t> values;
    Lists() : values(10 * 2 * 2, 1) {
        for (const int row : {3, 4, 9}) std::fill_n(values.begin() + row * 4, 4, -7);
    }
    attncheck_tensor view() {
        attncheck_tensor made = tensor_without_data(ATTNCHECK_INT32, {10, 2, 2});
        made.data = values.data();
        made.strides[0] = 4, made.strides[1] = 2, made.strides[2] = 1;
        return made;
    }
};

template <class Args>
Args legal_call(Lists& lists) {
    constexpr std::int32_t kHalf = ATTNCHECK_FLOAT16, kFloat = ATTNCHECK_FLOAT32;
    Args a{};
    a.query = tensor_without_data(kHalf, {10, 4, 192});
    a.key = tensor_without_data(kHalf, {168, 2, 192});
    a.value = tensor_without_data(kHalf, {168, 2, 128});
    a.topk_indices = lists.view();
    a.actual_seq_q_len = {kQueryEnds, 4};
    a.actual_seq_kv_len = {kKeyEnds, 4};
    a.scale_value = 0.07;
    a.head_num = 4;
    a.input_layout = "TND";
    a.sparse_mode = 2;
    a.selected_block_size = 32;
    a.selected_block_count = 2;
    a.softmax_max = a.softmax_sum = tensor_without_data(kFloat, {10, 4, 8});
    a.attention_out = tensor_without_data(kHalf, {10, 4, 128});
    if constexpr (std::is_same_v<Args, Gradient>) {
        a.attention_out_grad = a.attention_out;
        a.dq = a.query, a.dk = a.key, a.dv = a.value;
    }
    return a;
}

std::optional<Rejection> validate(const Forward& a) { return validate_nsa_selected_attention(&a); }
std::optional<Rejection> validate(const Gradient& a) {
    return validate_nsa_selected_attention_grad(&a);
}

// change(args) spoils a legal call.
template <class Args, class Change>
void rejects(const Change& change, const std::string& parameter, const std::string& value,
             const std::string& allowed, int status = kInvalid) {
    Lists lists;
    Args args = legal_call<Args>(lists);
    change(args);
    expect_rejected(validate(args), status, parameter, value, allowed);
}

template <class Change>
void both_reject(const Change& change, const std::string& parameter, const std::string& value,
                 const std::string& allowed, int status = kInvalid) {
    rejects<Forward>(change, parameter, value, allowed, status);
    rejects<Gradient>(change, parameter, value, allowed, status);
}

template <class Change>
void both_accept(const Change& change) {
    Lists lists;
    Forward forward = legal_call<Forward>(lists);
    Gradient gradient = legal_call<Gradient>(lists);
    change(forward);
    change(gradient);
    EXPECT_FALSE(validate(forward)) << validate(forward)->message;
    EXPECT_FALSE(validate(gradient)) << validate(gradient)->message;
}

// The required tensors by name, in the order of the struct.
template <class Args>
using Field = std::pair<const char*, attncheck_tensor Args::*>;

const std::vector<Field<Forward>>& fields(const Forward*) {
    static const std::vector<Field<Forward>> all{{"query", &Forward::query},
                                                 {"key", &Forward::key},
                                                 {"value", &Forward::value},
                                                 {"topk_indices", &Forward::topk_indices},
                                                 {"softmax_max", &Forward::softmax_max},
                                                 {"softmax_sum", &Forward::softmax_sum},
                                                 {"attention_out", &Forward::attention_out}};
    return all;
}

const std::vector<Field<Gradient>>& fields(const Gradient*) {
    static const std::vector<Field<Gradient>> all{
        {"query", &Gradient::query},
        {"key", &Gradient::key},
        {"value", &Gradient::value},
        {"attention_out", &Gradient::attention_out},
        {"attention_out_grad", &Gradient::attention_out_grad},
        {"softmax_max", &Gradient::softmax_max},
        {"softmax_sum", &Gradient::softmax_sum},
        {"topk_indices", &Gradient::topk_indices},
        {"dq", &Gradient::dq},
        {"dk", &Gradient::dk},
        {"dv", &Gradient::dv}};
    return all;
}

template <class Args>
class NsaSelectedAttentionValidateTest : public testing::Test {
protected:
    const std::vector<Field<Args>>& all_fields() const {
        return fields(static_cast<const Args*>(nullptr));
    }
};
using Directions = testing::Types<Forward, Gradient>;
TYPED_TEST_SUITE(NsaSelectedAttentionValidateTest, Directions);

TYPED_TEST(NsaSelectedAttentionValidateTest, AbsentArgumentsAreNullPointers) {
    for (const auto& [name, field] : this->all_fields()) {
        rejects<TypeParam>([f = field](TypeParam& a) { (a.*f).data = nullptr; }, name, "NULL",
                           "not NULL", kNull);
    }
    for (const std::int64_t size :
         {std::int64_t{0}, std::int64_t{4}, std::int64_t{-1}, kInt64Min}) {
        rejects<TypeParam>([&](TypeParam& a) { a.actual_seq_q_len = {nullptr, size}; },
                           "actual_seq_q_len", "NULL", "not NULL", kNull);
        rejects<TypeParam>([&](TypeParam& a) { a.actual_seq_kv_len = {nullptr, size}; },
                           "actual_seq_kv_len", "NULL", "not NULL", kNull);
    }
    rejects<TypeParam>([](TypeParam& a) { a.input_layout = nullptr; }, "input_layout", "NULL",
                       "not NULL", kNull);
}

// Everything from some argument on is absent: the first one is named.
TYPED_TEST(NsaSelectedAttentionValidateTest, AbsentArgumentsAreReportedInOrder) {
    const auto& all = this->all_fields();
    for (std::size_t first = 0; first < all.size(); ++first) {
        rejects<TypeParam>(
            [&](TypeParam& a) {
                a.input_layout = "x";
                for (std::size_t i = first; i < all.size(); ++i) {
                    (a.*all[i].second).data = nullptr;
                    (a.*all[i].second).rank = 9;
                }
            },
            all[first].first, "NULL", "not NULL", kNull);
    }
}

// The arrays and the layout stand between the inputs and the outputs.
TYPED_TEST(NsaSelectedAttentionValidateTest, AbsentArraysAreReportedInOrder) {
    const auto& all = this->all_fields();
    const auto outputs_absent = [&](TypeParam& a) {
        for (std::size_t i = all.size() - 3; i < all.size(); ++i) (a.*all[i].second).data = nullptr;
        a.input_layout = nullptr;
    };
    rejects<TypeParam>(outputs_absent, "input_layout", "NULL", "not NULL", kNull);
    rejects<TypeParam>(
        [&](TypeParam& a) {
            outputs_absent(a);
            a.actual_seq_kv_len.values = nullptr;
        },
        "actual_seq_kv_len", "NULL", "not NULL", kNull);
    rejects<TypeParam>(
        [&](TypeParam& a) {
            outputs_absent(a);
            a.actual_seq_q_len.values = a.actual_seq_kv_len.values = nullptr;
        },
        "actual_seq_q_len", "NULL", "not NULL", kNull);
    rejects<TypeParam>(
        [&](TypeParam& a) {
            a.topk_indices.data = nullptr;
            a.actual_seq_q_len.values = nullptr;
        },
        "topk_indices", "NULL", "not NULL", kNull);
}

TYPED_TEST(NsaSelectedAttentionValidateTest, RanksMayBeGarbage) {
    const auto& all = this->all_fields();
    for (const std::int32_t rank : {-1, 0, 2, 4, 9, 1000000}) {
        for (std::size_t first = 0; first < all.size(); ++first) {
            rejects<TypeParam>(
                [&](TypeParam& a) {
                    a.query.dtype = ATTNCHECK_INT64;
                    a.atten_mask = a.query;  // of rank 3: looked at later
                    for (std::size_t i = first; i < all.size(); ++i) (a.*all[i].second).rank = rank;
                },
                all[first].first, "rank " + std::to_string(rank), "rank 3");
        }
    }
}

TYPED_TEST(NsaSelectedAttentionValidateTest, DtypesFollowTheQuery) {
    const auto& all = this->all_fields();
    for (std::size_t first = 0; first < all.size(); ++first) {
        const std::string name = all[first].first;
        const std::string allowed = name == "query"             ? "1 (float16) or 27"
                                    : name == "topk_indices"    ? "3 (int32)"
                                    : name.find("softmax") == 0 ? "0 (float32)"
                                                                : "1 (float16), that of query";
        rejects<TypeParam>(
            [&](TypeParam& a) {
                a.head_num = 0;
                for (std::size_t i = first; i < all.size(); ++i)
                    (a.*all[i].second).dtype = ATTNCHECK_INT64;
            },
            name, "of dtype 9", allowed);
    }
    rejects<TypeParam>([](TypeParam& a) { a.query.dtype = ATTNCHECK_BFLOAT16; }, "key",
                       "1 (float16)", "27 (bfloat16)");
    rejects<TypeParam>([](TypeParam& a) { a.query.dtype = ATTNCHECK_FLOAT32; }, "query",
                       "0 (float32)", "27 (bfloat16)");
    rejects<TypeParam>([](TypeParam& a) { a.softmax_sum.dtype = ATTNCHECK_FLOAT16; }, "softmax_sum",
                       "1 (float16)", "0 (float32)");
}

TEST(NsaSelectedAttentionCallTest, LegalCallsPass) {
    both_accept([](auto&) {});
    both_accept([](auto& a) { a.scale_value = 0; });
    both_accept([](auto& a) { a.scale_value = -3.4028235e38; });
    both_accept([](auto& a) { a.scale_value = 1e-300; });
    both_accept([](auto& a) { a.sparse_mode = 0; });
    both_accept([](auto& a) {  // a mask of any size, the smallest included
        a.atten_mask = tensor_without_data(ATTNCHECK_BOOL, {0, 0});
    });
    both_accept([](auto& a) { a.atten_mask = tensor_without_data(ATTNCHECK_UINT8, {2048, 2048}); });
    both_accept([](auto& a) {
        a.atten_mask = tensor_without_data(ATTNCHECK_UINT8, {4, 96});
        a.sparse_mode = 0;
    });
    both_accept([](auto& a) {  // absent: nothing else of it is looked at
        a.atten_mask = tensor_without_data(-1, {kInt64Min});
        a.atten_mask.data = nullptr;
    });
    expect_rejected(validate_nsa_selected_attention(nullptr), kNull, "args", "NULL", "not NULL");
    expect_rejected(validate_nsa_selected_attention_grad(nullptr), kNull, "args", "NULL", "not NULL");
}

TEST(NsaSelectedAttentionCallTest, LayoutIsExactlyTnd) {
    for (const char* layout :
         {"", "tnd", "TN", "TNDX", "BSND", "a layout string that does not end soon"}) {
        both_reject(
            [&](auto& a) {
                a.input_layout = layout;
                a.query.rank = 9;
            },
            "input_layout", std::string(layout, 0, 4), "\"TND\"");
    }
}

TEST(NsaSelectedAttentionCallTest, AttributesStayInRange) {
    for (const double scale : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e39, -3.5e38}) {
        both_reject(
            [&](auto& a) {
                a.scale_value = scale;
                a.head_num = 0;
            },
            "scale_value", "", "finite");
    }
    for (const std::int64_t bad :
         {std::int64_t{0}, std::int64_t{-1}, std::int64_t{129}, kInt64Max, kInt64Min}) {
        both_reject(
            [&](auto& a) {
                a.head_num = bad;
                a.sparse_mode = 1;
            },
            "head_num", std::to_string(bad), "[1, 128]");
    }
    for (const std::int64_t bad :
         {std::int64_t{1}, std::int64_t{-2}, std::int64_t{3}, kInt64Max, kInt64Min}) {
        both_reject(
            [&](auto& a) {
                a.sparse_mode = bad;
                a.selected_block_size = 0;
            },
            "sparse_mode", std::to_string(bad), "0 or 2");
    }
    for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-16}, std::int64_t{24},
                                   std::int64_t{8}, std::int64_t{144}, kInt64Max, kInt64Min}) {
        both_reject(
            [&](auto& a) {
                a.selected_block_size = bad;
                a.selected_block_count = 0;
            },
            "selected_block_size", std::to_string(bad), "[16, 128]");
    }
    for (const std::int64_t bad :
         {std::int64_t{0}, std::int64_t{-1}, std::int64_t{33}, kInt64Max, kInt64Min}) {
        both_reject(
            [&](auto& a) {
                a.selected_block_count = bad;
                a.query.shape[0] = 0;
            },
            "selected_block_count", std::to_string(bad), "[1, 32]");
    }
}

TEST(NsaSelectedAttentionCallTest, QueryExtents) {
    for (const std::int64_t bad :
         {std::int64_t{0}, std::int64_t{-1}, kInt64Max, kInt64Min, (std::int64_t{2} << 20) + 1}) {
        both_reject(
            [&](auto& a) {
                a.query.shape[0] = bad;
                a.query.shape[1] = 0;
            },
            "query", "T1 = " + std::to_string(bad), "[1, 2097152]");
    }
    for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{129}, kInt64Max, kInt64Min}) {
        both_reject(
            [&](auto& a) {
                a.query.shape[1] = bad;
                a.query.shape[2] = 64;
            },
            "query", "N1 = " + std::to_string(bad), "[1, 128]");
    }
    for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{64}, std::int64_t{160},
                                   std::int64_t{256}, kInt64Max, kInt64Min}) {
        both_reject(
            [&](auto& a) {
                a.query.shape[2] = bad;
                a.head_num = 3;
            },
            "query", "D = " + std::to_string(bad), "128 or 192");
    }
    both_reject(
        [](auto& a) {
            a.head_num = 3;
            a.key.shape[0] = 0;
        },
        "head_num", "3", "N1 of query, which is 4");
}

TEST(NsaSelectedAttentionCallTest, KeyAndValueExtents) {
    for (const std::int64_t bad : {std::int64_t{0}, kInt64Max, kInt64Min}) {
        both_reject(
            [&](auto& a) {
                a.key.shape[0] = bad;
                a.key.shape[1] = 0;
            },
            "key", "T2 = " + std::to_string(bad), "[1, 2097152]");
        both_reject(
            [&](auto& a) {
                a.key.shape[1] = bad;
                a.key.shape[2] = 128;
            },
            "key", "N2 = " + std::to_string(bad), "[1, 128]");
    }
    both_reject(
        [](auto& a) {
            a.key.shape[2] = 128;
            a.key.shape[1] = 3;
        },
        "key", "D = 128", "192");
    for (const std::int64_t heads : {3, 8}) {
        both_reject(
            [&](auto& a) {
                a.key.shape[1] = heads;
                a.value.shape[0] = 1;
            },
            "key", "N2 = " + std::to_string(heads), "divisors");
    }
    both_reject([](auto& a) { a.query.shape[1] = a.head_num = 66; }, "key", "N2 = 2",
                "N1 / N2 <= 32");
    for (const auto& [dim, extent] :
         {std::pair{0, std::int64_t{167}}, {1, std::int64_t{1}}, {0, kInt64Max}, {1, kInt64Min}}) {
        both_reject(
            [&, d = dim, e = extent](auto& a) {
                a.value.shape[d] = e;
                a.value.shape[2] = 64;
            },
            "value", std::to_string(extent), "[T2, N2, Dv] = [168, 2, 64]");
    }
    for (const std::int64_t bad :
         {std::int64_t{64}, std::int64_t{160}, std::int64_t{0}, kInt64Max, kInt64Min}) {
        both_reject(
            [&](auto& a) {
                a.value.shape[2] = bad;
                a.topk_indices.shape[0] = 1;
                a.attention_out.shape[2] = 1;
            },
            "value", "Dv = " + std::to_string(bad), "128 or 192");
    }
    both_reject(
        [](auto& a) {
            a.query.shape[2] = a.key.shape[2] = 128;
            a.value.shape[2] = 192;
        },
        "value", "Dv = 192", "at most D, which is 128");
}

TEST(NsaSelectedAttentionCallTest, OtherInputShapes) {
    const auto wrong = [](auto field, int dim, const char* name, auto args) {
        rejects<decltype(args)>(
            [&](auto& a) {
                ++(a.*field).shape[dim];
                a.actual_seq_q_len.size = 0;  // would be next
            },
            name, "of shape [", "] = [");
    };
    for (int dim = 0; dim < 3; ++dim) {
        wrong(&Forward::topk_indices, dim, "topk_indices", Forward{});
        wrong(&Gradient::attention_out, dim, "attention_out", Gradient{});
        wrong(&Gradient::attention_out_grad, dim, "attention_out_grad", Gradient{});
        wrong(&Gradient::softmax_max, dim, "softmax_max", Gradient{});
        wrong(&Gradient::softmax_sum, dim, "softmax_sum", Gradient{});
        wrong(&Gradient::topk_indices, dim, "topk_indices", Gradient{});
    }
    // In this order.
    rejects<Gradient>(
        [](Gradient& a) {
            a.topk_indices.shape[0] = a.softmax_sum.shape[2] = a.softmax_max.shape[2] =
                a.attention_out_grad.shape[0] = a.attention_out.shape[0] = kInt64Max;
        },
        "attention_out", "of shape", "[10, 4, 128]");
    rejects<Gradient>([](Gradient& a) { a.topk_indices.shape[0] = a.softmax_sum.shape[2] = 1; },
                      "softmax_sum", "[10, 4, 1]", "[10, 4, 8]");
}

TEST(NsaSelectedAttentionCallTest, SizesOfTheLengthArrays) {
    for (const std::int64_t bad :
         {std::int64_t{0}, std::int64_t{-1}, kInt64Max, kInt64Min, (std::int64_t{2} << 20) + 1}) {
        both_reject([&](auto& a) { a.actual_seq_q_len.size = a.actual_seq_kv_len.size = bad; },
                    "actual_seq_q_len", "of size " + std::to_string(bad), "[1, ");
        both_reject([&](auto& a) { a.actual_seq_kv_len.size = bad; }, "actual_seq_kv_len",
                    "of size " + std::to_string(bad), "");
    }
    both_reject([](auto& a) { a.actual_seq_kv_len.size = 3; }, "actual_seq_kv_len", "of size 3",
                "which is 4");
    // 1024 sequences in the forward, more in the gradient.
    const std::vector<std::int64_t> zeros(1025);
    const auto many = [&](auto& a) {
        a.actual_seq_q_len = a.actual_seq_kv_len = {zeros.data(), 1025};
    };
    rejects<Forward>(many, "actual_seq_q_len", "of size 1025", "[1, 1024]");
    Lists lists;
    Gradient gradient = legal_call<Gradient>(lists);
    many(gradient);
    EXPECT_FALSE(validate(gradient));
    gradient.actual_seq_q_len.size = gradient.actual_seq_kv_len.size = 1024;
    EXPECT_FALSE(validate(gradient));
}

TEST(NsaSelectedAttentionCallTest, LengthsAreCumulativeAndFit) {
    struct Row {
        std::vector<std::int64_t> values;
        const char *shown, *allowed;
    };
    const std::int64_t limit = std::int64_t{128} << 10;
    const Row query_rows[] = {{{-1, 3, 5, 9}, "-1 at index 0", ">= 0"},
                              {{0, 3, kInt64Min, 9}, "at index 2", ">= 0"},
                              {{0, 5, 4, 9}, "4 at index 2", "before is 5"},
                              {{0, 3, 5, 11}, "11 at index 3", "at most T1, which is 10"},
                              {{0, kInt64Max, 5, 9}, "at index 1", "131072"},
                              {{0, 1, limit + 2, limit + 1}, "131074 at index 2", "131072 more"}};
    for (const Row& row : query_rows) {
        both_reject(
            [&](auto& a) {
                a.actual_seq_q_len = {row.values.data(), 4};
                a.actual_seq_kv_len.size = 3;  // looked at later
            },
            "actual_seq_q_len", row.shown, row.allowed);
    }
    const Row key_rows[] = {
        {{-1, 64, 64, 160}, "-1 at index 0", ">= 0"},
        {{0, 64, 63, 160}, "63 at index 2", "before is 64"},
        {{0, 64, 64, 192}, "192 at index 3", "at most T2, which is 168"},
        {{0, 64, 64, 136}, "136 at index 3", "multiple of selected_block_size, which is 32"},
        {{32, 96, 96, 96}, "32 at index 0", "at least selected_block_count"},
        {{0, 64, 64, kInt64Max}, "at index 3", "131072"},
        {{0, 64, 64, 64 + limit + 32}, "at index 3", "131072 more than"}};
    for (const Row& row : key_rows) {
        both_reject(
            [&](auto& a) {
                a.actual_seq_kv_len = {row.values.data(), 4};
                a.atten_mask = tensor_without_data(0, {1});  // looked at later
            },
            "actual_seq_kv_len", row.shown, row.allowed);
    }
    // A sequence of exactly the limit is legal as far as it fits.
    const std::int64_t longest[] = {limit};
    both_reject([&](auto& a) { a.actual_seq_q_len = {longest, 1}; }, "actual_seq_q_len", "131072",
                "at most T1");
}

TEST(NsaSelectedAttentionCallTest, Mask) {
    const char* const name = "atten_mask";
    for (const std::int32_t rank : {-1, 0, 1, 3, 9}) {
        both_reject(
            [&](auto& a) {
                a.atten_mask = tensor_without_data(ATTNCHECK_FLOAT32, {4, 96});
                a.atten_mask.rank = rank;
            },
            name, "rank " + std::to_string(rank), "rank 2");
    }
    for (const std::int32_t dtype : {ATTNCHECK_FLOAT32, ATTNCHECK_FLOAT16, ATTNCHECK_INT32}) {
        both_reject([&](auto& a) { a.atten_mask = tensor_without_data(dtype, {-1, 96}); }, name, "of dtype",
                    "12 (bool) or 4 (uint8)");
    }
    both_reject([](auto& a) { a.atten_mask = tensor_without_data(ATTNCHECK_BOOL, {-1, 96}); }, name, "extent -1",
                ">= 0");
    both_reject([](auto& a) { a.atten_mask = tensor_without_data(ATTNCHECK_BOOL, {1, kInt64Min}); }, name,
                "extent -", ">= 0");
    for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{4, 95},
                                     {5, 96},
                                     {9, 160},
                                     {2048, 2048},
                                     {kInt64Max, 96},
                                     {0, 0}}) {
        both_reject(
            [&, r = rows, c = cols](auto& a) {
                a.sparse_mode = 0;
                a.atten_mask = tensor_without_data(ATTNCHECK_BOOL, {r, c});
                a.softmax_max.shape[2] = 8;
            },
            name, "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]", "[4, 96]");
    }
}

TEST(NsaSelectedAttentionCallTest, OutputShapesComeBeforeTheValuesOfTheLists) {
    const auto wrong = [](auto field, int dim, const char* name, auto args) {
        rejects<decltype(args)>(
            [&](auto& a) {
                --(a.*field).shape[dim];
                static_cast<std::int32_t*>(a.topk_indices.data)[0] = -1;
            },
            name, "of shape [", "] = [");
    };
    for (int dim = 0; dim < 3; ++dim) {
        wrong(&Forward::softmax_max, dim, "softmax_max", Forward{});
        wrong(&Forward::softmax_sum, dim, "softmax_sum", Forward{});
        wrong(&Forward::attention_out, dim, "attention_out", Forward{});
        wrong(&Gradient::dq, dim, "dq", Gradient{});
        wrong(&Gradient::dk, dim, "dk", Gradient{});
        wrong(&Gradient::dv, dim, "dv", Gradient{});
    }
    both_reject(  // the mask comes before them
        [](auto& a) {
            a.atten_mask = tensor_without_data(ATTNCHECK_BOOL, {-1, 1});
            if constexpr (requires { a.dq; }) {
                a.dq.shape[0] = a.dk.shape[0] = a.dv.shape[0] = 0;
            } else {
                a.softmax_max.shape[0] = 0;
            }
        },
        "atten_mask", "extent -1", ">= 0");
}

// Sequence 1 (rows 0 to 2) has 2 blocks, sequence 3 (rows 5 to 8) has 3.
TEST(NsaSelectedAttentionCallTest, ListEntriesAreBlocksOfTheirSequence) {
    const auto with_entry = [](int row, std::int32_t entry) {
        return
            [=](auto& a) { static_cast<std::int32_t*>(a.topk_indices.data)[row * 4 + 3] = entry; };
    };
    both_accept(with_entry(8, 2));
    both_reject(with_entry(2, 2), "topk_indices", "2 at [2, 1, 1]", "[0, 2)");
    both_reject(with_entry(8, 3), "topk_indices", "3 at [8, 1, 1]", "[0, 3)");
    both_reject(with_entry(5, -1), "topk_indices", "-1 at [5, 1, 1]", "[0, 3)");
    both_reject(with_entry(0, std::numeric_limits<std::int32_t>::min()), "topk_indices",
                "-2147483648 at [0, 1, 1]", "[0, 2)");
    both_accept([](auto& a) {  // all rows from one element
        a.topk_indices.strides[0] = a.topk_indices.strides[1] = a.topk_indices.strides[2] = 0;
    });
    both_reject(  // backwards: row 0 is at the end of the storage
        [](auto& a) {
            auto* values = static_cast<std::int32_t*>(a.topk_indices.data);
            std::fill_n(values, 40, 0);
            values[39] = 2;
            a.topk_indices.data = values + 39;
            a.topk_indices.strides[0] = -4;
            a.topk_indices.strides[1] = -2;
            a.topk_indices.strides[2] = -1;
        },
        "topk_indices", "2 at [0, 0, 0]", "[0, 2)");
}

TEST(NsaSelectedAttentionCallTest, EntryPointsKeepTheMessage) {
    Lists lists;
    Forward forward = legal_call<Forward>(lists);
    Gradient gradient = legal_call<Gradient>(lists);
    forward.selected_block_size = 24;
    gradient.dk.data = nullptr;
    EXPECT_EQ(attncheck_nsa_selected_attention(&forward), kInvalid);
    EXPECT_EQ(last_error_message(),
              "selected_block_size is 24; allowed: a multiple of 16 in [16, 128]");
    EXPECT_EQ(attncheck_nsa_selected_attention_grad(&gradient), kNull);
    EXPECT_EQ(last_error_message(), "dk is NULL; allowed: not NULL");
    EXPECT_EQ(attncheck_nsa_selected_attention(nullptr), kNull);
}

}  // namespace
}  // namespace attncheck::impl
