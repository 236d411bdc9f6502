#include "impl/operators/nsa_compress_attention/validate.h"

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "rejection_checks.h"

namespace attncheck::impl {
namespace {

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();
constexpr int kNull = ATTNCHECK_ERR_NULLPTR, kInvalid = ATTNCHECK_ERR_INVALID;

using Args = attncheck_nsa_compress_attention_args;
using Change = std::function<void(Args&)>;

// Never dereferenced by the validator, so any non-null address will do.
// T1 = 10, N1 = 8, N2 = 2, D = 48, Dv = 40, C = 30; l = 32, d = 16, l' = 64 (isM = 4), K = 3;
// (queries, compressed keys) of the sequences: (0, 0), (3, 9), (0, 0), (6, 17), (0, 0).
const std::int64_t kQueryEnds[] = {0, 3, 3, 9, 9}, kKeyEnds[] = {0, 9, 9, 26, 26},
                   kSelectedEnds[] = {0, 3, 3, 8, 8};

Args legal_call() {
    constexpr std::int32_t kHalf = ATTNCHECK_BFLOAT16, kFloat = ATTNCHECK_FLOAT32;
    Args a{};
    a.query = tensor_without_data(kHalf, {10, 8, 48});
    a.key = tensor_without_data(kHalf, {30, 2, 48});
    a.value = tensor_without_data(kHalf, {30, 2, 40});
    a.atten_mask = tensor_without_data(ATTNCHECK_BOOL, {6, 17});
    a.topk_mask = tensor_without_data(ATTNCHECK_UINT8, {6, 5});
    a.actual_seq_q_len = {kQueryEnds, 5};
    a.actual_cmp_seq_kv_len = {kKeyEnds, 5};
    a.actual_sel_seq_kv_len = {kSelectedEnds, 5};
    a.scale_value = 0.07;
    a.head_num = 8;
    a.input_layout = "TND";
    a.sparse_mode = 1;
    a.compress_block_size = 32;
    a.compress_stride = 16;
    a.select_block_size = 64;
    a.select_block_count = 3;
    a.softmax_max = a.softmax_sum = tensor_without_data(kFloat, {10, 8, 8});
    a.attention_out = tensor_without_data(kHalf, {10, 8, 40});
    a.topk_indices = tensor_without_data(ATTNCHECK_INT32, {10, 2, 3});
    return a;
}

// `change` spoils a legal call.
void rejects(const Change& change, const std::string& parameter, const std::string& value,
             const std::string& allowed, int status = kInvalid) {
    Args args = legal_call();
    change(args);
    expect_rejected(validate_nsa_compress_attention(&args), status, parameter, value, allowed);
}

void accepts(const Change& change) {
    Args args = legal_call();
    change(args);
    const auto rejection = validate_nsa_compress_attention(&args);
    EXPECT_FALSE(rejection) << rejection->message;
}

// The three length arrays from lengths per sequence, and masks to match.
struct Lengths {
    std::vector<std::int64_t> query_ends, key_ends, selected_ends;
    std::int64_t most_queries = 0, most_keys = 0, is_m;

    explicit Lengths(const std::vector<std::pair<std::int64_t, std::int64_t>>& lengths,
                     std::int64_t blocks_per_selected = 4)
        : is_m(blocks_per_selected) {
        std::int64_t queries = 0, keys = 0, selected = 0;
        for (const auto& [own_queries, own_keys] : lengths) {
            query_ends.push_back(queries += own_queries);
            key_ends.push_back(keys += own_keys);
            selected_ends.push_back(selected += (own_keys + is_m - 1) / is_m);
            most_queries = std::max(most_queries, own_queries);
            most_keys = std::max(most_keys, own_keys);
        }
    }
    void apply(Args& a) const {
        a.actual_seq_q_len = {query_ends.data(), std::ssize(query_ends)};
        a.actual_cmp_seq_kv_len = {key_ends.data(), std::ssize(key_ends)};
        a.actual_sel_seq_kv_len = {selected_ends.data(), std::ssize(selected_ends)};
        a.key.shape[0] = a.value.shape[0] = std::max<std::int64_t>(1, key_ends.back());
        a.atten_mask.shape[0] = a.topk_mask.shape[0] = most_queries;
        a.atten_mask.shape[1] = most_keys;
        a.topk_mask.shape[1] = (most_keys + is_m - 1) / is_m;
    }
};

struct Field {
    const char* name;
    attncheck_tensor Args::* tensor;
};
// The required tensors, in the order of the struct.
const Field kFields[] = {{"query", &Args::query},
                         {"key", &Args::key},
                         {"value", &Args::value},
                         {"softmax_max", &Args::softmax_max},
                         {"softmax_sum", &Args::softmax_sum},
                         {"attention_out", &Args::attention_out},
                         {"topk_indices", &Args::topk_indices}};

struct Array {
    const char* name;
    attncheck_int_array Args::* array;
};
const Array kArrays[] = {{"actual_seq_q_len", &Args::actual_seq_q_len},
                         {"actual_cmp_seq_kv_len", &Args::actual_cmp_seq_kv_len},
                         {"actual_sel_seq_kv_len", &Args::actual_sel_seq_kv_len}};

TEST(NsaCompressAttentionValidateTest, AbsentArgumentsAreNullPointers) {
    expect_rejected(validate_nsa_compress_attention(nullptr), kNull, "args", "NULL", "not NULL");
    for (const auto& [name, field] : kFields)
        rejects([f = field](Args& a) { (a.*f).data = nullptr; }, name, "NULL", "not NULL", kNull);
    for (const auto& [name, field] : kArrays) {
        for (const std::int64_t size :
             {std::int64_t{0}, std::int64_t{5}, std::int64_t{-1}, kInt64Min}) {
            rejects([&, f = field](Args& a) { a.*f = {nullptr, size}; }, name, "NULL", "not NULL",
                    kNull);
        }
    }
    rejects([](Args& a) { a.input_layout = nullptr; }, "input_layout", "NULL", "not NULL", kNull);
}

// Everything from some argument on is absent: the first one is named. Inputs, arrays, layout,
// outputs.
TEST(NsaCompressAttentionValidateTest, AbsentArgumentsAreReportedInOrder) {
    std::vector<std::pair<std::string, Change>> removals;
    const auto remove_tensor = [&](const Field& field) {
        removals.emplace_back(field.name, [f = field.tensor](Args& a) {
            (a.*f).data = nullptr;
            (a.*f).rank = 9;
        });
    };
    for (std::size_t i = 0; i < 3; ++i) remove_tensor(kFields[i]);
    for (const Array& array : kArrays)
        removals.emplace_back(array.name, [f = array.array](Args& a) { (a.*f).values = nullptr; });
    removals.emplace_back("input_layout", [](Args& a) { a.input_layout = nullptr; });
    for (std::size_t i = 3; i < 7; ++i) remove_tensor(kFields[i]);
    for (std::size_t first = 0; first < removals.size(); ++first) {
        rejects(
            [&](Args& a) {
                if (removals[first].first != "input_layout") a.input_layout = "x";
                for (std::size_t i = first; i < removals.size(); ++i) removals[i].second(a);
            },
            removals[first].first, "NULL", "not NULL", kNull);
    }
}

TEST(NsaCompressAttentionValidateTest, LayoutIsExactlyTnd) {
    for (const char* layout :
         {"", "tnd", "TN", "TNDX", "BSND", "a layout string that does not end soon"}) {
        rejects(
            [&](Args& a) {
                a.input_layout = layout;
                a.query.rank = 9;
            },
            "input_layout", std::string(layout, 0, 4), "\"TND\"");
    }
}

TEST(NsaCompressAttentionValidateTest, RanksMayBeGarbage) {
    for (const std::int32_t rank : {-1, 0, 2, 4, 9, 1000000}) {
        for (std::size_t first = 0; first < std::size(kFields); ++first) {
            rejects(
                [&](Args& a) {
                    a.query.dtype = ATTNCHECK_INT64;
                    a.atten_mask.rank = 9;  // looked at later
                    for (std::size_t i = first; i < std::size(kFields); ++i)
                        (a.*kFields[i].tensor).rank = rank;
                },
                kFields[first].name, "rank " + std::to_string(rank), "rank 3");
        }
    }
}

TEST(NsaCompressAttentionValidateTest, DtypesFollowTheQuery) {
    for (std::size_t first = 0; first < std::size(kFields); ++first) {
        const std::string name = kFields[first].name;
        const std::string allowed = name == "query"             ? "1 (float16) or 27"
                                    : name == "topk_indices"    ? "3 (int32)"
                                    : name.find("softmax") == 0 ? "0 (float32)"
                                                                : "27 (bfloat16), that of query";
        rejects(
            [&](Args& a) {
                a.head_num = 0;
                for (std::size_t i = first; i < std::size(kFields); ++i)
                    (a.*kFields[i].tensor).dtype = ATTNCHECK_INT64;
            },
            name, "of dtype 9", allowed);
    }
    rejects([](Args& a) { a.query.dtype = ATTNCHECK_FLOAT32; }, "query", "0 (float32)", "27");
    rejects([](Args& a) { a.value.dtype = ATTNCHECK_FLOAT16; }, "value", "1 (float16)", "27");
    accepts([](Args& a) {
        for (const auto field : {&Args::query, &Args::key, &Args::value, &Args::attention_out})
            (a.*field).dtype = ATTNCHECK_FLOAT16;
    });
}

TEST(NsaCompressAttentionValidateTest, ScaleHeadNumAndModeStayInRange) {
    for (const double scale : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e39, -3.5e38}) {
        rejects(
            [&](Args& a) {
                a.scale_value = scale;
                a.head_num = 0;
            },
            "scale_value", "", "finite");
    }
    for (const double scale : {0.0, -3.4028235e38, 1e-300})
        accepts([&](Args& a) { a.scale_value = scale; });
    for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-1}, kInt64Min}) {
        rejects(
            [&](Args& a) {
                a.head_num = bad;
                a.sparse_mode = 2;
            },
            "head_num", std::to_string(bad), "[1, ");
    }
    for (const std::int64_t bad :
         {std::int64_t{2}, std::int64_t{-1}, std::int64_t{7}, std::int64_t{256}, kInt64Max}) {
        rejects(
            [&](Args& a) {
                a.sparse_mode = bad;
                a.compress_block_size = 0;
            },
            "sparse_mode", std::to_string(bad), "[0, 1]");
    }
    for (const std::int64_t mode : {0, 1}) {
        accepts([&](Args& a) { a.sparse_mode = mode; });
        accepts([&](Args& a) {
            a.sparse_mode = mode;
            a.atten_mask.data = a.topk_mask.data = nullptr;
        });
    }
}

// 288 and 256 + 16 are what a kernel that reads single bytes takes for 32 and 16.
TEST(NsaCompressAttentionValidateTest, BlockSizesStayInRange) {
    for (const std::int64_t bad :
         {std::int64_t{0}, std::int64_t{-16}, std::int64_t{8}, std::int64_t{24}, std::int64_t{144},
          std::int64_t{288}, kInt64Max, kInt64Min}) {
        const std::string text = std::to_string(bad);
        rejects(
            [&](Args& a) {
                a.compress_block_size = bad;
                a.compress_stride = 0;
            },
            "compress_block_size", text, "a multiple of 16 in [16, 128]");
        rejects(
            [&](Args& a) {
                a.compress_stride = bad;
                a.select_block_size = 0;
            },
            "compress_stride", text, "a multiple of 16 in [16, 64]");
        rejects(
            [&](Args& a) {
                a.select_block_size = bad;
                a.compress_stride = 48;
            },
            "select_block_size", text, "a multiple of 16 in [16, 128]");
    }
    rejects([](Args& a) { a.compress_stride = 80; }, "compress_stride", "80", "[16, 64]");
    for (const std::int64_t bad :
         {std::int64_t{0}, std::int64_t{-1}, std::int64_t{33}, std::int64_t{272}, kInt64Max}) {
        rejects(
            [&](Args& a) {
                a.select_block_count = bad;
                a.query.shape[0] = 0;
            },
            "select_block_count", std::to_string(bad), "[1, 32]");
    }
}

TEST(NsaCompressAttentionValidateTest, BlockSizesFitTogether) {
    rejects(
        [](Args& a) {
            a.compress_block_size = 16;
            a.compress_stride = 32;
            a.query.shape[0] = 0;
        },
        "compress_stride", "32", "at most compress_block_size, which is 16");
    rejects(
        [](Args& a) {
            a.compress_block_size = 80;
            a.query.shape[0] = 0;
        },
        "select_block_size", "64", "at least compress_block_size, which is 80");
    rejects(
        [](Args& a) {
            a.compress_stride = 32;
            a.select_block_size = 48;
            a.query.shape[0] = 0;
        },
        "select_block_size", "48", "multiples of compress_stride, which is 32");
    struct Legal {
        std::int64_t block, stride, selected;
    };
    for (const auto& [block, stride, selected] : std::vector<Legal>{{16, 16, 16},
                                                                    {48, 32, 64},
                                                                    {32, 32, 64},
                                                                    {96, 48, 96},
                                                                    {64, 64, 128},
                                                                    {128, 16, 128},
                                                                    {112, 64, 128}}) {
        accepts([&, l = block, d = stride, s = selected](Args& a) {
            a.compress_block_size = l;
            a.compress_stride = d;
            a.select_block_size = s;
            static std::vector<Lengths> kept;  // as long as the call
            kept.assign(1, Lengths({{3, 25}, {2, 30}}, s / d));
            kept[0].apply(a);
        });
    }
}

TEST(NsaCompressAttentionValidateTest, QueryExtents) {
    for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-1}, kInt64Min}) {
        const std::string text = std::to_string(bad);
        rejects(
            [&](Args& a) {
                a.query.shape[0] = bad;
                a.query.shape[1] = 0;
            },
            "query", "T1 = " + text, "[1, ");
        rejects(
            [&](Args& a) {
                a.query.shape[1] = bad;
                a.query.shape[2] = 0;
            },
            "query", "N1 = " + text, "[1, ");
    }
    for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{769}, kInt64Max, kInt64Min}) {
        rejects(
            [&](Args& a) {
                a.query.shape[2] = bad;
                a.head_num = 4;
            },
            "query", "D = " + std::to_string(bad), "[1, 768]");
    }
    rejects(
        [](Args& a) {
            a.head_num = 4;
            a.key.shape[0] = 0;
        },
        "head_num", "4", "N1 of query, which is 8");
    rejects([](Args& a) { a.head_num = (std::int64_t{1} << 32) + 8; }, "head_num", "4294967304",
            "N1 of query, which is 8");
    accepts([](Args& a) { a.query.shape[2] = a.key.shape[2] = 768; });
    accepts([](Args& a) {
        a.query.shape[2] = a.key.shape[2] = a.value.shape[2] = a.attention_out.shape[2] = 1;
    });
}

TEST(NsaCompressAttentionValidateTest, KeyAndValueExtents) {
    for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-3}, kInt64Min}) {
        const std::string text = std::to_string(bad);
        rejects(
            [&](Args& a) {
                a.key.shape[0] = bad;
                a.key.shape[1] = 0;
            },
            "key", "C = " + text, "[1, ");
        rejects(
            [&](Args& a) {
                a.key.shape[1] = bad;
                a.key.shape[2] = 1;
            },
            "key", "N2 = " + text, "[1, ");
    }
    rejects(
        [](Args& a) {
            a.key.shape[2] = 47;
            a.key.shape[1] = 3;
        },
        "key", "D = 47", "D of query, which is 48");
    for (const auto& [dim, extent] :
         {std::pair{0, std::int64_t{29}}, {1, std::int64_t{1}}, {0, kInt64Max}, {1, kInt64Min}}) {
        rejects(
            [d = dim, e = extent](Args& a) {
                a.value.shape[d] = e;
                a.value.shape[2] = 49;
            },
            "value", std::to_string(extent), "[C, N2, Dv] = [30, 2, 49]");
    }
    for (const std::int64_t bad :
         {std::int64_t{0}, std::int64_t{49}, std::int64_t{-1}, kInt64Max, kInt64Min}) {
        rejects(
            [&](Args& a) {
                a.value.shape[2] = bad;
                a.actual_seq_q_len.size = 0;
            },
            "value", "Dv = " + std::to_string(bad), "at most D, which is 48");
    }
    accepts([](Args& a) { a.value.shape[2] = a.attention_out.shape[2] = 48; });
}

// G below 128 that divides 128, whatever N1 and N2.
TEST(NsaCompressAttentionValidateTest, GroupSizes) {
    const auto heads = [](std::int64_t query_heads, std::int64_t kv_heads) {
        return [=](Args& a) {
            a.head_num = query_heads;
            for (const auto field :
                 {&Args::query, &Args::softmax_max, &Args::softmax_sum, &Args::attention_out})
                (a.*field).shape[1] = query_heads;
            for (const auto field : {&Args::key, &Args::value, &Args::topk_indices})
                (a.*field).shape[1] = kv_heads;
        };
    };
    for (const std::int64_t group : {1, 2, 4, 8, 16, 32, 64}) {
        accepts(heads(group, 1));
        accepts(heads(3 * group, 3));
        accepts(heads(200 * group, 200));
    }
    for (const std::int64_t group : {3, 5, 6, 7, 12, 24, 33, 48, 65, 96, 127, 128, 256}) {
        rejects(heads(group, 1), "key", "N2 = 1", "N1 is " + std::to_string(group));
        rejects(heads(2 * group, 2), "key", "N2 = 2", "1, 2, 4, ..., 64");
    }
    rejects(heads(8, 3), "key", "N2 = 3", "divisors N2 of N1");
    rejects(heads(4, 8), "key", "N2 = 8", "divisors N2 of N1");
}

/// Extents whose relations hold: T1, C, N1 = N2, D = Dv.
void resize(Args& a, std::int64_t queries, std::int64_t keys, std::int64_t heads,
            std::int64_t dim) {
    a.query.shape[0] = queries;
    a.key.shape[0] = a.value.shape[0] = keys;
    a.query.shape[1] = a.key.shape[1] = a.value.shape[1] = a.head_num = heads;
    a.query.shape[2] = a.key.shape[2] = a.value.shape[2] = dim;
}

TEST(NsaCompressAttentionValidateTest, ProductsOfExtentsStayInInt64) {
    constexpr std::int64_t kHuge = std::int64_t{1} << 60;
    const struct {
        std::int64_t queries, keys, heads, dim, count;
        const char *name, *elements;
    } kTooLarge[] = {{kInt64Max, 4, 1, 16, 1, "query", "elements [T1, N1, D]"},
                     {4, 4, kHuge, 16, 1, "query", "elements [T1, N1, D]"},
                     {kHuge, 4, 1, 1, 1, "query", "elements [T1, N1, 8]"},
                     {4, kInt64Max, 1, 16, 1, "key", "elements [C, N2, D]"},
                     {1, 16, kHuge / 2, 1, 1, "key", "elements [C, N2, D]"},
                     {kHuge / 4, 4, 1, 1, 32, "query", "elements [T1, N2, K]"}};
    for (const auto& c : kTooLarge)
        rejects(
            [&](Args& a) {
                resize(a, c.queries, c.keys, c.heads, c.dim);
                a.select_block_count = c.count;
            },
            c.name, c.elements, "fits in int64");
}

// Found by fuzzing, as the next one: the two validators disagreed on which mistake comes first, for
// each of the relations and counts on either side of their range.
TEST(NsaCompressAttentionValidateTest, RangesOfAttributesComeBeforeTheirRelations) {
    constexpr std::int64_t kBlocks[][3] = {// block, stride, selected
                                           {32, 48, 32}, {80, 16, 48}, {48, 32, 80}};
    for (const auto& [block, stride, selected] : kBlocks)
        for (const std::int64_t count : {std::int64_t{48}, std::int64_t{2147483646},
                                         std::int64_t{-9223372036854775728}})
            rejects(
                [&](Args& a) {
                    a.compress_block_size = block, a.compress_stride = stride;
                    a.select_block_size = selected, a.select_block_count = count;
                },
                "select_block_count", std::to_string(count), "[1, 32]");
}

TEST(NsaCompressAttentionValidateTest, RelationsComeBeforeProducts) {
    constexpr std::int64_t kHuge = std::int64_t{1} << 62;
    rejects([](Args& a) { a.query.shape[1] = kHuge; }, "head_num", "", "N1 of query");
    rejects(
        [](Args& a) {
            resize(a, kHuge, 4, 1, 16);
            a.value.shape[0] = 5;
        },
        "value", "[5, 1, 16]", "[C, N2, Dv]");
}

TEST(NsaCompressAttentionValidateTest, LengthArraysAreCumulative) {
    for (const auto& [name, field] : kArrays) {
        for (const std::int64_t size : {std::int64_t{0}, std::int64_t{-1}, kInt64Min}) {
            rejects([&, f = field](Args& a) { (a.*f).size = size; }, name,
                    "of size " + std::to_string(size), "size");
        }
    }
    rejects([](Args& a) { a.actual_cmp_seq_kv_len.size = 4; }, "actual_cmp_seq_kv_len", "of size 4",
            "actual_seq_q_len, which is 5");
    rejects([](Args& a) { a.actual_sel_seq_kv_len.size = 6; }, "actual_sel_seq_kv_len", "of size 6",
            "actual_seq_q_len, which is 5");
    struct Bad {
        std::int64_t values[5];
        const char *value, *allowed;
    };
    for (const Bad& bad : {Bad{{-2, 3, 3, 9, 9}, "-2 at index 0", ">= 0"},
                           Bad{{kInt64Min, 3, 3, 9, 9}, "at index 0", ">= 0"},
                           Bad{{0, 3, 2, 9, 9}, "2 at index 2", "non-decreasing"},
                           Bad{{0, 3, kInt64Min, 9, 9}, "at index 2", ">= 0"},
                           Bad{{0, 3, 3, 9, 11}, "11 at index 4", "at most T1, which is 10"},
                           Bad{{0, 3, 3, 9, kInt64Max}, "at index 4", "T1"}}) {
        rejects([&](Args& a) { a.actual_seq_q_len.values = bad.values; }, "actual_seq_q_len",
                bad.value, bad.allowed);
    }
    for (const Bad& bad : {Bad{{-1, 9, 9, 26, 26}, "-1 at index 0", ">= 0"},
                           Bad{{0, 9, 8, 26, 26}, "8 at index 2", "non-decreasing"},
                           Bad{{0, 9, 9, 26, 40}, "40 at index 4", "at most C, which is 30"},
                           Bad{{0, 9, 9, 26, 14027}, "14027 at index 4", "at most 14000 more"},
                           Bad{{0, 9, 9, 26, kInt64Max}, "at index 4", "at most 14000 more"}}) {
        rejects([&](Args& a) { a.actual_cmp_seq_kv_len.values = bad.values; },
                "actual_cmp_seq_kv_len", bad.value, bad.allowed);
    }
    for (const Bad& bad : {Bad{{1, 3, 3, 8, 8}, "1 at index 0", "which is 0"},
                           Bad{{0, 2, 3, 8, 8}, "2 at index 1", "which is 3"},
                           Bad{{0, 3, 3, 7, 7}, "7 at index 3", "which is 8"},
                           Bad{{0, 3, 3, 8, 9}, "9 at index 4", "which is 8"},
                           Bad{{0, 3, 3, kInt64Min, 8}, "at index 3", "which is 8"}}) {
        rejects([&](Args& a) { a.actual_sel_seq_kv_len.values = bad.values; },
                "actual_sel_seq_kv_len", bad.value, bad.allowed);
    }
}

// The queries come first, then the compressed keys.
TEST(NsaCompressAttentionValidateTest, LengthArraysAreReportedInOrder) {
    static constexpr std::int64_t kBad[] = {5, 4, 3, 2, 1};
    rejects(
        [](Args& a) {
            for (const Array& array : kArrays) (a.*array.array).values = kBad;
        },
        "actual_seq_q_len", "4 at index 1", "non-decreasing");
    rejects(
        [](Args& a) {
            a.actual_cmp_seq_kv_len.values = a.actual_sel_seq_kv_len.values = kBad;
            a.atten_mask.rank = 3;
        },
        "actual_cmp_seq_kv_len", "5 at index 0", "this one has 2");
    rejects(
        [](Args& a) {
            a.actual_sel_seq_kv_len.values = kBad;
            a.atten_mask.rank = 3;
        },
        "actual_sel_seq_kv_len", "5 at index 0", "which is 0");
}

// K candidates or more, unless a sequence has neither queries nor compressed keys.
TEST(NsaCompressAttentionValidateTest, EverySequenceHasEnoughCandidates) {
    const auto with = [](const Lengths& lengths) {
        return [&lengths](Args& a) { lengths.apply(a); };
    };
    const Lengths least({{3, 9}, {6, 12}}), unused({{0, 9}, {6, 9}}), only_empty({{0, 0}}),
        longest({{3, 14000}});
    accepts(with(least));
    accepts(with(unused));
    accepts(with(longest));
    accepts([&](Args& a) {
        only_empty.apply(a);
        EXPECT_EQ(a.atten_mask.shape[0] + a.atten_mask.shape[1], 0);
    });
    const Lengths few({{3, 9}, {6, 8}}), few_unused({{0, 1}, {6, 9}}), none({{3, 9}, {2, 0}}),
        too_long({{3, 14001}});
    rejects(with(few), "actual_cmp_seq_kv_len", "17 at index 1", "this one has 2");
    rejects(with(few_unused), "actual_cmp_seq_kv_len", "1 at index 0", "select_block_count = 3");
    rejects(with(none), "actual_cmp_seq_kv_len", "9 at index 1", "this one has 0");
    rejects(with(too_long), "actual_cmp_seq_kv_len", "14001 at index 0", "14000");
    const Lengths many(std::vector<std::pair<std::int64_t, std::int64_t>>(5000, {0, 0}));
    accepts(with(many));
}

TEST(NsaCompressAttentionValidateTest, MasksHaveTheLargestExtents) {
    struct MaskField {
        const char* name;
        attncheck_tensor Args::* mask;
        std::int64_t cols;
        const char* meaning;
    };
    for (const auto& [name, field, cols, meaning] :
         {MaskField{"atten_mask", &Args::atten_mask, 17, "[max S_q, max Cmp] = [6, 17]"},
          MaskField{"topk_mask", &Args::topk_mask, 5, "[max S_q, max Sel] = [6, 5]"}}) {
        const auto spoil = [&, f = field](const std::function<void(attncheck_tensor&)>& change) {
            return [change, f](Args& a) {
                change(a.*f);
                a.softmax_max.shape[0] = 0;  // looked at later
            };
        };
        for (const std::int32_t rank : {1, 3, 0, -1, 100})
            rejects(spoil([&](auto& mask) { mask.rank = rank; }), name,
                    "rank " + std::to_string(rank), "rank 2");
        for (const std::int32_t dtype : {ATTNCHECK_FLOAT16, ATTNCHECK_INT32, ATTNCHECK_FLOAT32})
            rejects(spoil([&](auto& mask) { mask.dtype = dtype; }), name, "of dtype",
                    "12 (bool) or 4 (uint8)");
        for (const std::int64_t extent : {std::int64_t{7}, std::int64_t{5}, kInt64Max})
            rejects(spoil([&](auto& mask) { mask.shape[0] = extent; }), name,
                    std::to_string(extent), meaning);
        for (const std::int64_t extent : {cols - 1, cols + 1, std::int64_t{2048}})
            rejects(spoil([&](auto& mask) { mask.shape[1] = extent; }), name,
                    std::to_string(extent), meaning);
        rejects(spoil([](auto& mask) { mask.shape[1] = kInt64Min; }), name, "extent", ">= 0");
        for (const std::int32_t dtype : {ATTNCHECK_BOOL, ATTNCHECK_UINT8})
            accepts([f = field, dtype](Args& a) { (a.*f).dtype = dtype; });
        accepts([f = field](Args& a) {  // absent: nothing else of it is looked at
            a.*f = tensor_without_data(-1, {kInt64Min});
            (a.*f).data = nullptr;
        });
    }
    rejects(
        [](Args& a) {
            a.atten_mask.rank = 1;
            a.topk_mask.rank = 1;
        },
        "atten_mask", "rank 1", "rank 2");
}

TEST(NsaCompressAttentionValidateTest, OutputShapes) {
    for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{9}, kInt64Max, kInt64Min}) {
        const std::string text = std::to_string(bad);
        for (const int dim : {0, 1, 2}) {
            const auto output = [&](attncheck_tensor Args::* field) {
                return [=](Args& a) { (a.*field).shape[dim] = bad; };
            };
            rejects(output(&Args::softmax_max), "softmax_max", text, "[T1, N1, 8] = [10, 8, 8]");
            rejects(output(&Args::softmax_sum), "softmax_sum", text, "[T1, N1, 8] = [10, 8, 8]");
            rejects(output(&Args::attention_out), "attention_out", text,
                    "[T1, N1, Dv] = [10, 8, 40]");
            rejects(output(&Args::topk_indices), "topk_indices", text,
                    "[T1, N2, select_block_count] = [10, 2, 3]");
        }
    }
    rejects(
        [](Args& a) {
            for (std::size_t i = 3; i < 7; ++i) (a.*kFields[i].tensor).shape[0] = 1;
        },
        "softmax_max", "[1, 8, 8]", "[10, 8, 8]");
}

TEST(NsaCompressAttentionValidateTest, LegalCallsPass) {
    accepts([](Args&) {});
    accepts([](Args& a) {  // strides are not looked at
        for (const Field& field : kFields)
            for (std::int64_t& stride : (a.*field.tensor).strides) stride = kInt64Min;
    });
}

}  // namespace
}  // namespace attncheck::impl
