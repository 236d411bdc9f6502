// The built-in AttentionDecode against plain loops in binary64: shared pages in any order, odd
// strides, several queries, window, softcap and sinks; what must not be read holds NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attncheck/candidate.h"
#include "impl/arguments/rejection.h"

namespace attncheck::impl {
namespace {

using Int = std::int64_t;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// B = 3 sequences with 2 key/value heads, 6 query heads, D = 5, Dv = 18; the first two have their
/// first page in common.
struct DecodeCall {
    static constexpr Int kHeads = 6, kKvHeads = 2, kDim = 5, kValueDim = 18, kColumns = 40;
    Int queries, page, step;
    std::vector<Int> lengths{2 * page + 3, page + 1, 0};
    Int pages = 0;
    std::vector<float> query, keys, values, out, lse, sink = {0, 1, -2, 3, -kInfinity, 0.5f};
    std::vector<std::int32_t> table = std::vector<std::int32_t>(3 * kColumns, -1);
    attncheck_attention_decode_args args{};

    DecodeCall(Int queries_of, Int page_of, Int step_of)
        : queries(queries_of), page(page_of), step(step_of) {
        for (std::size_t b = 0; b < 3; ++b)
            for (Int p = 0; p * page < lengths[b]; ++p)
                table[b * kColumns + static_cast<std::size_t>(p)] =
                    b == 1 && p == 0 ? table[0] : static_cast<std::int32_t>(pages++);
        for (std::int32_t& entry : table)  // the other way round, one page of nobody
            if (entry >= 0) entry = static_cast<std::int32_t>(pages) - entry;
        ++pages;
        const Int rows = 3 * queries * kHeads, slots = pages * page * kKvHeads;
        query.assign(static_cast<std::size_t>(rows * kDim * step), NAN);
        keys.assign(static_cast<std::size_t>(slots * kDim * step), NAN);
        values.assign(static_cast<std::size_t>(slots * kValueDim * step), NAN);
        out.assign(static_cast<std::size_t>(rows * kValueDim * step), 7);
        lse.assign(static_cast<std::size_t>(rows * step), 7);
        args.query = tensor(query, {3, queries, kHeads, kDim});
        args.key_cache = tensor(keys, {pages, page, kKvHeads, kDim});
        args.value_cache = tensor(values, {pages, page, kKvHeads, kValueDim});
        args.block_table = {table.data(), ATTNCHECK_INT32, 2, {3, kColumns}, {kColumns, 1}};
        args.kv_length = {lengths.data(), 3};
        args.out = tensor(out, {3, queries, kHeads, kValueDim});
        args.lse = tensor(lse, {3, kHeads, queries});
        args.scale = 0.7, args.window_left = -1;
        for (Int k = 0; k < rows * kDim; ++k)
            query[static_cast<std::size_t>(k * step)] = static_cast<float>(k * 5 % 9 - 4) / 4;
        for (std::size_t b = 0; b < 3; ++b)
            for (Int j = 0; j < lengths[b]; ++j)
                for (Int n = 0; n < kKvHeads; ++n) {
                    for (Int d = 0; d < kDim; ++d)
                        key(b, j, n, d) = static_cast<float>((3 * j + d + 7 * n) % 11 - 5) / 5;
                    for (Int d = 0; d < kValueDim; ++d)
                        value(b, j, n, d) = static_cast<float>((7 * j + 2 * d + n) % 13 - 6);
                }
    }

    attncheck_tensor tensor(std::vector<float>& of, std::vector<Int> shape) const {
        attncheck_tensor t{of.data(), ATTNCHECK_FLOAT32, static_cast<std::int32_t>(shape.size()),
                           {}, {}};
        Int stride = step;
        for (std::size_t k = shape.size(); k-- > 0; stride *= shape[k])
            t.shape[k] = shape[k], t.strides[k] = stride;
        return t;
    }
    Int slot(std::size_t b, Int j, Int n) const {
        return (table[b * kColumns + static_cast<std::size_t>(j / page)] * page + j % page) *
                   kKvHeads + n;
    }
    float& key(std::size_t b, Int j, Int n, Int d) {
        return keys[static_cast<std::size_t>((slot(b, j, n) * kDim + d) * step)];
    }
    float& value(std::size_t b, Int j, Int n, Int d) {
        return values[static_cast<std::size_t>((slot(b, j, n) * kValueDim + d) * step)];
    }

    void expect_plain_loops() {
        ASSERT_EQ(attncheck_attention_decode(&args), ATTNCHECK_OK) << last_error_message();
        for (std::size_t b = 0; b < 3; ++b)
            for (Int i = 0; i < queries; ++i)
                for (Int h = 0; h < kHeads; ++h) expect_row(b, i, h);
    }

    void expect_row(std::size_t b, Int i, Int h) {
        const Int last = lengths[b] - queries + i, row = (static_cast<Int>(b) * queries + i) * kHeads + h;
        const Int first = args.window_left < 0 ? 0 : std::max<Int>(0, last - args.window_left);
        double sum = args.sink.data ? std::exp(double{sink[static_cast<std::size_t>(h)]}) : 0;
        std::vector<double> wanted(kValueDim);
        for (Int j = first; j <= last; ++j) {
            double s = 0;
            for (Int d = 0; d < kDim; ++d)
                s += static_cast<double>(query[static_cast<std::size_t>((row * kDim + d) * step)]) *
                     key(b, j, h / 3, d);
            s *= args.scale;
            if (args.softcap > 0) s = args.softcap * std::tanh(s / args.softcap);
            sum += std::exp(s);
            for (Int d = 0; d < kValueDim; ++d)
                wanted[static_cast<std::size_t>(d)] += std::exp(s) * value(b, j, h / 3, d);
        }
        const float got = lse[static_cast<std::size_t>(
            ((static_cast<Int>(b) * kHeads + h) * queries + i) * step)];
        if (sum == 0)
            EXPECT_EQ(got, -kInfinity) << b << ' ' << i << ' ' << h;
        else
            EXPECT_NEAR(got, std::log(sum), 1e-5) << b << ' ' << i << ' ' << h;
        for (Int d = 0; d < kValueDim; ++d)
            EXPECT_NEAR(out[static_cast<std::size_t>((row * kValueDim + d) * step)],
                        sum == 0 ? 0 : wanted[static_cast<std::size_t>(d)] / sum, 2e-5)
                << b << ' ' << i << ' ' << h << ' ' << d;
    }
};

TEST(AttentionDecodeKernel, AgreesWithPlainLoops) {
    for (const Int queries : {1, 3, 16})
        for (const Int page : {1, 7, 16, 64})
            for (const Int step : {1, 2}) DecodeCall(queries, page, step).expect_plain_loops();
}

TEST(AttentionDecodeKernel, WindowSoftcapAndSinks) {
    for (const Int window : {-1, 0, 5, 20})
        for (const double softcap : {0.0, 0.5}) {
            DecodeCall call(2, 16, 1);
            call.args.window_left = window;
            call.args.softcap = softcap;
            call.args.sink = {call.sink.data(), ATTNCHECK_FLOAT32, 1, {6}, {1}};
            call.expect_plain_loops();
        }
}

TEST(AttentionDecodeKernel, LseIsOptional) {
    DecodeCall with(2, 16, 1), without(2, 16, 1);
    without.args.lse = {};
    ASSERT_EQ(attncheck_attention_decode(&with.args), ATTNCHECK_OK);
    ASSERT_EQ(attncheck_attention_decode(&without.args), ATTNCHECK_OK);
    EXPECT_EQ(with.out, without.out);
}

TEST(AttentionDecodeValidator, RejectsBadArgumentsWithoutTouchingOutputs) {
    const auto rejects = [](void (*change)(attncheck_attention_decode_args&)) {
        DecodeCall call(2, 16, 1);
        change(call.args);
        const bool rejected = attncheck_attention_decode(&call.args) != ATTNCHECK_OK;
        return rejected && std::ranges::all_of(call.out, [](float v) { return v == 7; });
    };
    using A = attncheck_attention_decode_args;
    EXPECT_TRUE(rejects([](A& a) { a.block_table.data = nullptr; }));
    EXPECT_TRUE(rejects([](A& a) { a.kv_length.values = nullptr; }));
    EXPECT_TRUE(rejects([](A& a) { a.kv_length.size = 2; }));
    EXPECT_TRUE(rejects([](A& a) { a.block_table.shape[1] = 2; }));  // 35 positions take 3 pages
    EXPECT_TRUE(rejects([](A& a) { a.block_table.dtype = ATTNCHECK_INT64; }));
    EXPECT_TRUE(rejects([](A& a) { a.value_cache.shape[1] = 8; }));
    EXPECT_TRUE(rejects([](A& a) { a.query.shape[1] = 17; }));
    EXPECT_TRUE(rejects([](A& a) { a.softcap = NAN; }));
    EXPECT_TRUE(rejects([](A& a) { a.window_left = -2; }));
    EXPECT_TRUE(rejects([](A& a) { a.lse.shape[1] = 2; }));
    EXPECT_EQ(attncheck_attention_decode(nullptr), ATTNCHECK_ERR_NULLPTR);
}

}  // namespace
}  // namespace attncheck::impl
