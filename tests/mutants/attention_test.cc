// The library of mutants attends as plain loops do, and its defects show on small cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "active_mutant.h"

namespace attncheck::mutants {
namespace {

/// fp32 attention of two batches, Sq 3, Skv 70, two query heads on one key head, D 4, Dv 3, with all
/// features; both directions against loops in double.
struct Case {
    std::int64_t batches = 2, queries = 3, keys = 70, heads = 2, dim = 4, value_dim = 3;
    std::vector<float> query, key, value, bias, sink{0.3f, -0.4f}, out, lse, dout, dq, dk, dv, dbias, dsink;
    std::vector<std::uint8_t> mask;
    std::int64_t used[2] = {70, 66};
    double softcap = 2;

    static void fill(std::vector<float>& values, std::int64_t count, int seed) {
        values.resize(static_cast<std::size_t>(count));
        for (std::size_t k = 0; k < values.size(); ++k)
            values[k] = static_cast<float>((k * 37 + static_cast<std::size_t>(seed) * 11) % 29) / 14 - 1;
    }
    Case() {
        fill(query, batches * queries * heads * dim, 1);
        fill(key, batches * keys * dim, 2);
        fill(value, batches * keys * value_dim, 3);
        fill(bias, heads * queries * keys, 4);  // shared by the batches
        fill(dout, batches * queries * heads * value_dim, 5);
        mask.assign(static_cast<std::size_t>(keys), 1);
        mask[5] = mask[69] = 0;
        out.assign(dout.size(), NAN), lse.assign(static_cast<std::size_t>(batches * heads * queries), NAN);
        dq.assign(query.size(), NAN), dk.assign(key.size(), NAN), dv.assign(value.size(), NAN);
        dbias.assign(bias.size(), 7), dsink.assign(2, NAN);
    }

    static attncheck_tensor view(void* data, std::int32_t type, std::initializer_list<std::int64_t> shape) {
        attncheck_tensor t{data, type, static_cast<std::int32_t>(shape.size()), {}, {}};
        std::copy(shape.begin(), shape.end(), t.shape);
        std::int64_t pitch = 1;
        for (int d = t.rank; d-- > 0; pitch *= t.shape[d]) t.strides[d] = pitch;
        return t;
    }
    attncheck_tensor view(std::vector<float>& values, std::initializer_list<std::int64_t> shape) {
        return view(values.data(), ATTNCHECK_FLOAT32, shape);
    }

    template <class Args>
    Args common() {
        Args a{};
        a.query = view(query, {batches, queries, heads, dim});
        a.key = view(key, {batches, keys, 1, dim});
        a.value = view(value, {batches, keys, 1, value_dim});
        a.kv_length = {used, 2};
        a.bias = view(bias, {1, heads, queries, keys});
        a.mask = view(mask.data(), ATTNCHECK_BOOL, {1, 1, 1, keys});
        a.sink = view(sink, {heads});
        a.scale = 0.5, a.softcap = softcap;
        a.window_left = -1, a.window_right = 0, a.align = 1;
        a.out = view(out, {batches, queries, heads, value_dim});
        a.lse = view(lse, {batches, heads, queries});
        return a;
    }

    /// f = <dout, O> in double.
    double loops(std::vector<double>* rows = nullptr, std::vector<double>* lses = nullptr) const {
        double sum_all = 0;
        for (std::int64_t b = 0; b < batches; ++b)
            for (std::int64_t h = 0; h < heads; ++h)
                for (std::int64_t i = 0; i < queries; ++i) {
                    double total = std::exp(static_cast<double>(sink[static_cast<std::size_t>(h)]));
                    std::vector<double> acc(static_cast<std::size_t>(value_dim));
                    for (std::int64_t j = 0; j < used[b] && j <= i + keys - queries; ++j) {
                        if (!mask[static_cast<std::size_t>(j)]) continue;
                        double s = 0;
                        for (std::int64_t d = 0; d < dim; ++d)
                            s += double{query[static_cast<std::size_t>(((b * queries + i) * heads + h) * dim + d)]} *
                                 double{key[static_cast<std::size_t>((b * keys + j) * dim + d)]};
                        s = softcap * std::tanh(0.5 * s / softcap) +
                            double{bias[static_cast<std::size_t>((h * queries + i) * keys + j)]};
                        total += std::exp(s);
                        for (std::int64_t d = 0; d < value_dim; ++d)
                            acc[static_cast<std::size_t>(d)] +=
                                std::exp(s) * double{value[static_cast<std::size_t>((b * keys + j) * value_dim + d)]};
                    }
                    for (std::int64_t d = 0; d < value_dim; ++d) {
                        const double o = acc[static_cast<std::size_t>(d)] / total;
                        sum_all += o * double{dout[static_cast<std::size_t>(((b * queries + i) * heads + h) * value_dim + d)]};
                        if (rows) rows->push_back(o);
                    }
                    if (lses) lses->push_back(std::log(total));
                }
        return sum_all;
    }
};

int forward_errors() {
    Case c;
    auto args = c.common<attncheck_attention_args>();
    if (attncheck_attention(&args) != ATTNCHECK_OK) return 1000;
    std::vector<double> rows, lses;
    c.loops(&rows, &lses);
    int errors = 0;
    std::size_t k = 0;
    for (std::int64_t b = 0; b < c.batches; ++b)
        for (std::int64_t h = 0; h < c.heads; ++h)
            for (std::int64_t i = 0; i < c.queries; ++i)
                for (std::int64_t d = 0; d < c.value_dim; ++d, ++k)
                    errors += !(std::fabs(double{c.out[static_cast<std::size_t>(((b * c.queries + i) * c.heads + h) * c.value_dim + d)]} - rows[k]) < 1e-5);
    for (k = 0; k < lses.size(); ++k) errors += !(std::fabs(double{c.lse[k]} - lses[k]) < 1e-5);
    return errors;
}

/// Central differences of the loops at some elements of every input.
int gradient_errors(const char* id) {
    Case c;
    auto forward = c.common<attncheck_attention_args>();
    attncheck_mutants_select(nullptr);
    if (attncheck_attention(&forward) != ATTNCHECK_OK) return 1000;
    attncheck_mutants_select(id);
    auto args = c.common<attncheck_attention_grad_args>();
    args.dout = args.out, args.dout.data = c.dout.data();
    args.dq = args.query, args.dq.data = c.dq.data();
    args.dk = args.key, args.dk.data = c.dk.data();
    args.dv = args.value, args.dv.data = c.dv.data();
    args.dbias = args.bias, args.dbias.data = c.dbias.data();
    args.dsink = args.sink, args.dsink.data = c.dsink.data();
    if (attncheck_attention_grad(&args) != ATTNCHECK_OK) return 1000;
    int errors = 0;
    const std::pair<std::vector<float>*, std::vector<float>*> all[] = {
        {&c.query, &c.dq}, {&c.key, &c.dk}, {&c.value, &c.dv}, {&c.bias, &c.dbias}, {&c.sink, &c.dsink}};
    for (const auto& [input, gradient] : all)
        for (std::size_t k = 0; k < input->size(); k += input->size() > 60 ? 5 : 1) {
            const float before = (*input)[k];
            (*input)[k] = before + 0x1p-7f;
            const double more = c.loops();
            (*input)[k] = before - 0x1p-7f;
            const double less = c.loops();
            (*input)[k] = before;
            errors += !(std::fabs((more - less) / 0x1p-6 - double{(*gradient)[k]}) < 2e-4);
        }
    return errors;
}

class AttentionMutants : public testing::Test {
protected:
    void TearDown() override { attncheck_mutants_select(nullptr); }
};

TEST_F(AttentionMutants, CorrectAttentionAgreesWithPlainLoops) { EXPECT_EQ(forward_errors(), 0); }

TEST_F(AttentionMutants, CorrectGradientAgreesWithDifferences) { EXPECT_EQ(gradient_errors(nullptr), 0); }

TEST_F(AttentionMutants, DefectsOfTheForwardShow) {
    for (const char* id : {"AT-01", "AT-03", "AT-05", "AT-06", "AT-07", "AT-10", "AT-11", "AT-12", "AT-13", "AT-14",
                           "AT-15", "AT-x304", "WILD-26", "WILD-36", "WILD-38", "WILD-45", "WILD-52"}) {
        attncheck_mutants_select(id);
        EXPECT_GT(forward_errors(), 0) << id;
    }
}

TEST_F(AttentionMutants, DefectsOfTheGradientShow) {
    for (const char* id : {"ATG-01", "ATG-02", "ATG-03", "ATG-04", "ATG-06", "ATG-09", "ATG-10", "ATG-12", "ATG-14",
                           "WILD-16"})
        EXPECT_GT(gradient_errors(id), 0) << id;
}

}  // namespace
}  // namespace attncheck::mutants
