// The library of mutants decodes as plain loops do, and its defects show on a few calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "active_mutant.h"

namespace attncheck::mutants {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct DecodeCase {
    std::int64_t queries = 1, page = 4, window = -1;
    std::vector<std::int64_t> lengths = {4, 0, 9};
    bool sink = false;
    float softcap = 0, offset = 0;  ///< of all logits
};

/// fp32 queries [B,Sq,4,3] on a cache [pages,page,2,3] whose pages are in descending order. Slots of
/// no sequence and entries behind the last page hold what nobody may read; out and the table have
/// strides of their own.
struct DecodeCall {
    static constexpr std::int64_t kHeads = 4, kKvHeads = 2, kDim = 3;
    DecodeCase of;
    std::int64_t columns = 1, pages = 0;
    std::vector<float> query, keys, values, out, lse, sink = {0.5f, -1, 2, 1};
    std::vector<std::int32_t> table;
    attncheck_attention_decode_args args{};

    explicit DecodeCall(const DecodeCase& given) : of(given) {
        const auto batch = static_cast<std::int64_t>(of.lengths.size());
        for (const std::int64_t length : of.lengths) {
            const std::int64_t own = (length + of.page - 1) / of.page;
            columns = std::max(columns, own + 1);
            pages += own;
        }
        table.assign(static_cast<std::size_t>(batch * (columns + 2)), -1);
        const auto slots = static_cast<std::size_t>(pages * of.page * kKvHeads * kDim);
        keys.assign(slots + 1, NAN), values.assign(slots + 1, NAN);
        const std::int64_t rows = batch * of.queries;
        query.resize(static_cast<std::size_t>(rows * kHeads * kDim));
        for (std::size_t k = 0; k < query.size(); ++k)
            query[k] = static_cast<float>(static_cast<int>(k * 7 % 5) - 2) / 2;
        if (of.offset != 0)
            for (std::size_t k = 0; k < query.size(); k += kDim) query[k] = 1;
        out.assign(static_cast<std::size_t>(2 * rows * kHeads * kDim), 7);
        lse.assign(static_cast<std::size_t>(rows * kHeads), 7);
        std::int64_t next = pages;
        for (std::int64_t b = 0; b < batch; ++b)
            for (std::int64_t j = 0; j < of.lengths[static_cast<std::size_t>(b)]; ++j) {
                std::int32_t& entry = table[static_cast<std::size_t>(b * (columns + 2) + j / of.page)];
                if (j % of.page == 0) entry = static_cast<std::int32_t>(--next);
                for (std::int64_t n = 0; n < kKvHeads; ++n)
                    for (std::int64_t d = 0; d < kDim; ++d) {
                        const std::size_t at = place(entry, j % of.page, n, d);
                        keys[at] = static_cast<float>((3 * j + 2 * d + b + 5 * n) % 7) / 4 - 0.5f;
                        if (of.offset != 0) keys[at] = d == 0 ? of.offset + keys[at] : 0;
                        values[at] = static_cast<float>((5 * j + d + 3 * b + n) % 11) - 5;
                    }
            }
        const std::int64_t row = kKvHeads * kDim;
        args.query = {query.data(), 0, 4, {batch, of.queries, kHeads, kDim},
                      {of.queries * kHeads * kDim, kHeads * kDim, kDim, 1}};
        args.key_cache = {keys.data(), 0, 4, {pages, of.page, kKvHeads, kDim},
                          {of.page * row, row, kDim, 1}};
        args.value_cache = args.key_cache;
        args.value_cache.data = values.data();
        args.block_table = {table.data(), ATTNCHECK_INT32, 2, {batch, columns}, {columns + 2, 1}};
        args.kv_length = {of.lengths.data(), batch};
        if (of.sink) args.sink = {sink.data(), 0, 1, {kHeads}, {1}};
        args.scale = 0.5, args.softcap = of.softcap, args.window_left = of.window;
        args.out = {out.data(), 0, 4, {batch, of.queries, kHeads, kDim},
                    {2 * of.queries * kHeads * kDim, 2 * kHeads * kDim, 2 * kDim, 2}};
        args.lse = {lse.data(), 0, 3, {batch, kHeads, of.queries},
                    {kHeads * of.queries, of.queries, 1}};
    }

    std::size_t place(std::int64_t page, std::int64_t slot, std::int64_t n, std::int64_t d) const {
        return static_cast<std::size_t>(((page * of.page + slot) * kKvHeads + n) * kDim + d);
    }

    /// Elements that differ from plain loops in binary64.
    int errors() {
        if (attncheck_attention_decode(&args) != ATTNCHECK_OK) return 1000;
        int wrong = 0;
        for (std::int64_t b = 0; b < std::ssize(of.lengths); ++b)
            for (std::int64_t i = 0; i < of.queries; ++i)
                for (std::int64_t h = 0; h < kHeads; ++h) wrong += errors_of_row(b, i, h);
        return wrong;
    }

    int errors_of_row(std::int64_t b, std::int64_t i, std::int64_t h) const {
        const std::int64_t last = of.lengths[static_cast<std::size_t>(b)] - of.queries + i,
                           first = of.window < 0 ? 0 : std::max<std::int64_t>(last - of.window, 0),
                           row = (b * of.queries + i) * kHeads + h;
        double sum = of.sink ? std::exp(double{sink[static_cast<std::size_t>(h)]} - of.offset / 2) : 0;
        double wanted[kDim] = {};
        for (std::int64_t j = first; j <= last; ++j) {
            const std::int32_t page = table[static_cast<std::size_t>(b * (columns + 2) + j / of.page)];
            double s = 0;
            for (std::int64_t d = 0; d < kDim; ++d)
                s += 0.5 * double{query[static_cast<std::size_t>(row * kDim + d)]} *
                     double{keys[place(page, j % of.page, h / 2, d)]};
            if (of.softcap > 0) s = of.softcap * std::tanh(s / of.softcap);
            const double weight = std::exp(s - of.offset / 2);
            sum += weight;
            for (std::int64_t d = 0; d < kDim; ++d)
                wanted[d] += weight * double{values[place(page, j % of.page, h / 2, d)]};
        }
        const float got = lse[static_cast<std::size_t>((b * kHeads + h) * of.queries + i)];
        int wrong = sum == 0 ? got != -kInfinity
                             : !(std::fabs(got - std::log(sum) - of.offset / 2) <
                                 1e-4 + 1e-6 * std::fabs(of.offset));
        for (std::int64_t d = 0; d < kDim; ++d) {
            const double o = out[static_cast<std::size_t>(2 * (row * kDim + d))];
            wrong += sum == 0 ? o != 0 : !(std::fabs(o - wanted[d] / sum) < 1e-3);
        }
        return wrong;
    }
};

int errors_of_all() {
    int wrong = 0;
    for (const DecodeCase& one :
         {DecodeCase{}, DecodeCase{.queries = 3, .page = 4, .lengths = {11, 2, 8, 0}},
          DecodeCase{.page = 16, .window = 5, .lengths = {40, 3}, .sink = true},
          DecodeCase{.queries = 2, .page = 3, .window = 2, .lengths = {13, 1}},
          DecodeCase{.queries = 2, .page = 5, .lengths = {70, 9}, .sink = true, .softcap = 1.5f},
          DecodeCase{.page = 2, .lengths = {5}, .offset = -3e5f}})
        wrong += DecodeCall(one).errors();
    return wrong;
}

class AttentionDecodeMutants : public testing::Test {
protected:
    void TearDown() override { attncheck_mutants_select(nullptr); }
};

TEST_F(AttentionDecodeMutants, CorrectDecodeAgreesWithPlainLoops) {
    EXPECT_EQ(errors_of_all(), 0);
}

TEST_F(AttentionDecodeMutants, ComputedDefectsShow) {
    // These need sharing, NaN in front of a window, other strides or types, wide groups or rows, many or long
    // sequences or windows, a call before with one other argument, would crash here, or are rulings.
    constexpr std::string_view kElsewhere[] = {"AD-01", "AD-02", "AD-03", "AD-04", "AD-05",
                                               "AD-08", "AD-22", "AD-23", "AD-25", "AD-26",
                                               "AD-27", "AD-30", "AD-31", "AD-WILD-23",
                                               "AD-WILD-40", "AD-WILD-46", "AD-x301",
                                               "AD-x302", "AD-x303", "AD-x304", "AD-x305", "AD-x306", "AD-x307",
                                               "AD-x330", "AD-x331", "AD-x332", "AD-x370", "AD-x371", "AD-x372", "AD-x373"};
    for (const Mutant& mutant : kAttentionDecodeMutants) {
        if (std::ranges::find(kElsewhere, mutant.id) != std::end(kElsewhere) ||
            mutant.id.find("VAL") != mutant.id.npos)
            continue;
        attncheck_mutants_select(std::string(mutant.id).c_str());
        EXPECT_GT(errors_of_all(), 0) << mutant.id;
    }
}

}  // namespace
}  // namespace attncheck::mutants
