#include <gtest/gtest.h>

#include <map>

#include "impl/operators/flash_attention/flash_attention.h"
#include "impl/operators/flash_attention/validate.h"
#include "impl/runtime/thread_pool.h"
#include "tests/impl/flash_attention_problem.h"
#include "tests/impl/flash_attention_reference.h"

namespace attncheck::impl {
namespace {

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();
using S = FlashShape;

std::string describe(const FlashShape& s, std::uint64_t seed) {
    std::string text =
        s.layout + " dtype " + std::to_string(s.dtype) + " D " + std::to_string(s.head_dim) +
        " Dv " + std::to_string(s.value_dim) + " Dr " + std::to_string(s.rope_dim) + " N2 " +
        std::to_string(s.kv_heads) + " G " + std::to_string(s.group_size) + " mode " +
        (s.has_mask ? std::to_string(s.mode) : "none") + " mask " + std::to_string(s.mask_shape) +
        " pre " + std::to_string(s.pre) + " next " + std::to_string(s.next) + " bias " +
        std::to_string(s.bias_type) + "/" + std::to_string(s.bias_shape) +
        (s.has_dropout ? " dropout" : "") + (s.same_as_input ? " same_as_input" : "") + " seed " +
        std::to_string(seed) + " lengths";
    for (const auto& [q, k] : s.lengths) {
        text += " ";
        text += std::to_string(q) + "x" + std::to_string(k);
    }
    return text;
}

void run_forward(FlashProblem& p) {
    for (AnyTensor* tensor : {&p.output, &p.row_max, &p.row_sum}) tensor->poison();
    const auto args = p.forward_args();
    const auto rejection = validate_flash_attention_score(&args);
    ASSERT_FALSE(rejection) << rejection->message;
    flash_attention_score(args, default_attention_kernels());
}

void run_gradient(FlashProblem& p) {
    for (AnyTensor* tensor : {&p.dq, &p.dq_rope, &p.dk, &p.dk_rope, &p.dv}) tensor->poison();
    const auto args = p.gradient_args();
    const auto rejection = validate_flash_attention_score_grad(&args);
    ASSERT_FALSE(rejection) << rejection->message;
    flash_attention_score_grad(args, default_attention_kernels());
}

// Statistics and O as a forward would leave them.
void store_forward(FlashProblem& p, Reference& reference) {
    for (AnyTensor* tensor : {&p.output, &p.row_max, &p.row_sum}) {
        tensor->poison();
        tensor->fill([] { return 0.0; });
    }
    for_each_element(p, false, p.shape.heads(), p.shape.value_dim,
                     [&](auto b, auto head, auto i, auto c) {
                         p.output.set(p.element(false, b, head, i, p.shape.value_dim, c),
                                      reference.output.row(b, head, i)[c].value);
                     });
    for_each_element(p, false, p.shape.heads(), 8, [&](auto b, auto head, auto i, auto copy) {
        p.row_max.set(p.statistic(b, head, i, copy), reference.row_max.row(b, head, i)->value);
        p.row_sum.set(p.statistic(b, head, i, copy), reference.row_sum.row(b, head, i)->value);
    });
}

// Relative error of a sum whose terms hold one probability: rounding of a logit of D products, of
// its difference to the maximum, of exp, and of a sum over all keys (all queries of a group), each
// to first order and doubled.
double relative_error(const Reference& reference) {
    const FlashProblem& p = reference.p;
    const double dims = static_cast<double>(reference.d + reference.r + p.shape.value_dim),
                 terms = static_cast<double>(p.max_keys + p.shape.group_size * p.max_queries);
    return 2 * 0x1p-24 * ((dims + 8) * (reference.largest_logit + 1) + terms + 16);
}

// Of a weight: products of bf16 pairs take P and dS rounded to bf16 (the class of rounding that the
// implementation declares, p=half ds=half).
double weight_roundoff(const FlashProblem& p, const AttentionKernels& kernels) {
    return kernels.bf16_dot != nullptr && p.shape.dtype == ATTNCHECK_BFLOAT16 ? 0x1p-8 : 0.0;
}

// Worst error in units of what is allowed; > 1 or NaN is a failure.
class Comparison {
public:
    explicit Comparison(const Reference& reference,
                        const AttentionKernels& kernels = default_attention_kernels())
        : error_(relative_error(reference) + weight_roundoff(reference.p, kernels)) {}

    void compare(const AnyTensor& tensor, const Index& index, const Expected& expected,
                 const char* name) {
        const double got = tensor.get(index),
                     bound = tensor.roundoff() * std::fabs(expected.value) +
                             error_ * expected.magnitude + 0x1p-25;
        const double ratio = std::fabs(got - expected.value) / bound;
        if (ratio <= 1.0) return;
        if (++failures_ > 3) return;
        ADD_FAILURE() << name << " is " << got << ", expected " << expected.value << " +- "
                      << bound;
    }

private:
    double error_;
    int failures_ = 0;
};

void compare_rows(Comparison& c, FlashProblem& p, const AnyTensor& tensor, Grid<Expected>& grid,
                  bool of_keys, std::int64_t from, std::int64_t dim, const char* name) {
    for_each_element(p, of_keys, grid.heads(), dim, [&](auto b, auto head, auto i, auto ch) {
        c.compare(tensor, p.element(of_keys, b, head, i, dim, ch), grid.row(b, head, i)[from + ch],
                  name);
    });
}

// Rows of TND beyond the last sequence are 0 in every output.
void expect_zeros_beyond(const FlashProblem& p, const AnyTensor& tensor, bool of_keys) {
    if (!p.shape.packed() || !tensor.present) return;
    const std::int64_t begin = of_keys ? p.sum_keys : p.sum_queries;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        const Index index = tensor.unravel(i);
        if (index[0] < begin) continue;
        EXPECT_EQ(tensor.get(index), 0.0);
    }
}

void check_forward(FlashProblem& p) {
    Reference reference(p, false);
    run_forward(p);
    if (testing::Test::HasFatalFailure()) return;
    Comparison comparison(reference);
    const std::int64_t dv = p.shape.value_dim;
    compare_rows(comparison, p, p.output, reference.output, false, 0, dv, "attention_out");
    const double error = relative_error(reference);
    for_each_element(p, false, p.shape.heads(), 8, [&](auto b, auto head, auto i, auto copy) {
        const Index at = p.statistic(b, head, i, copy);
        const double row_max = reference.row_max.row(b, head, i)->value,
                     row_sum = reference.row_sum.row(b, head, i)->value;
        EXPECT_NEAR(p.row_max.get(at), row_max, row_max == -FLT_MAX ? 0.0 : error);
        EXPECT_NEAR(p.row_sum.get(at), row_sum, row_sum == FLT_MAX ? 0.0 : error * row_sum);
    });
    for (const AnyTensor* tensor : {&p.output, &p.row_max, &p.row_sum}) {
        expect_zeros_beyond(p, *tensor, false);
        EXPECT_EQ(tensor->touched_gaps(), 0);
    }
}

void check_gradient(FlashProblem& p) {
    Reference forward(p, false);
    store_forward(p, forward);
    Reference reference(p, true);
    run_gradient(p);
    if (testing::Test::HasFatalFailure()) return;
    Comparison comparison(reference);
    const std::int64_t d = p.shape.head_dim, r = p.shape.rope_dim;
    compare_rows(comparison, p, p.dq, reference.dq, false, 0, d, "dq");
    compare_rows(comparison, p, p.dq_rope, reference.dq, false, d, r, "dq_rope");
    compare_rows(comparison, p, p.dk, reference.dk, true, 0, d, "dk");
    compare_rows(comparison, p, p.dk_rope, reference.dk, true, d, r, "dk_rope");
    compare_rows(comparison, p, p.dv, reference.dv, true, 0, p.shape.value_dim, "dv");
    for (const AnyTensor* tensor : {&p.dq, &p.dq_rope, &p.dk, &p.dk_rope, &p.dv}) {
        const bool of_keys = tensor != &p.dq && tensor != &p.dq_rope;
        expect_zeros_beyond(p, *tensor, of_keys);
        EXPECT_EQ(tensor->touched_gaps(), 0);
    }
}

// Random problems.

class Draw {
public:
    explicit Draw(std::uint64_t seed) : random_(seed) {}
    std::int64_t below(std::int64_t count) {
        return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(count));
    }
    bool one_in(std::int64_t count) { return below(count) == 0; }
    std::int64_t of(std::initializer_list<std::int64_t> values) {
        return values.begin()[below(static_cast<std::int64_t>(values.size()))];
    }

private:
    std::mt19937_64 random_;
};

std::int64_t draw_length(Draw& draw) {
    return draw.one_in(3) ? draw.of({0, 1, 15, 16, 63, 64, 65, 127, 128, 129, 130, 200})
                          : 1 + draw.below(40);
}

void draw_lengths(Draw& draw, FlashShape& s) {
    const std::int64_t batch = s.packed() ? 1 + draw.below(4) : draw.below(4);
    const bool alike = !s.packed() || draw.one_in(3), square = draw.one_in(2);
    const bool causal = draw.one_in(2);
    for (std::int64_t b = 0; b < batch; ++b) {
        if (b > 0 && alike) {
            s.lengths.push_back(s.lengths[0]);
            continue;
        }
        std::int64_t q = draw_length(draw), k = square ? q : draw_length(draw);
        if (causal && q > k) std::swap(q, k);
        s.lengths.emplace_back(q, k);
    }
    if (s.packed()) s.spare_queries = draw.below(3), s.spare_keys = draw.below(3);
}

void draw_tokens(Draw& draw, FlashShape& s) {
    const auto tokens = [&](std::int64_t around) {
        return draw.one_in(6) ? kInt64Max : around + draw.below(41) - 20;
    };
    s.pre = tokens(0), s.next = tokens(0);
    if (s.mode >= 7) s.pre = draw.one_in(2) ? kInt64Max : 200 + draw.below(5);
    if (draw.one_in(12)) s.next = kInt64Min;  // ignored by most modes
    if (s.mode != 7) return;
    // Sequences and tokens for mode 7 are rarely legal by chance.
    for (auto& [q, k] : s.lengths) {
        if (q > k) std::swap(q, k);
        if (q > 0) s.next = -draw.below(k - q + 1);
    }
}

void draw_mask(Draw& draw, FlashShape& s) {
    s.mode = s.packed() ? draw.of({0, 1, 2, 3, 4, 6, 7, 8}) : draw.below(7);
    s.has_mask = !draw.one_in(4);
    draw_tokens(draw, s);
    s.mask_shape = static_cast<S::MaskShape>(draw.below(s.packed() ? 5 : 4));
    if (s.mode != 5 && s.mode != 6) return;
    for (const auto& [q, k] : s.lengths) {
        const std::int64_t low = std::max<std::int64_t>(0, k - q);
        s.prefix.push_back(low + draw.below(k - low + 1));
    }
}

void draw_bias(Draw& draw, FlashShape& s) {
    if (draw.one_in(2) || (s.has_mask && s.mode == 7)) return;
    s.bias_type = draw.below(4);
    s.bias_per_batch = draw.one_in(2);
    if (s.bias_type >= 2) {
        s.bias_shape = draw.one_in(2) ? S::kVector : S::kMatrix;
        if (draw.one_in(2)) s.query_start = {draw.below(20)};
        if (draw.one_in(2)) s.key_start = {draw.below(20), 77};
    } else {
        s.bias_shape = s.packed()
                           ? static_cast<S::BiasShape>(draw.of(
                                 {S::kFull, S::kRow, S::kRows1024, S::kFlatKeys, S::kFlatPairs}))
                           : static_cast<S::BiasShape>(draw.of({S::kFull, S::kRow}));
    }
    if (s.bias_shape != S::kRows1024) return;
    s.has_mask = true;
    s.mode = draw.of({2, 3});
    for (auto& [q, k] : s.lengths) q = k;
}

FlashShape draw_shape(std::uint64_t seed) {
    Draw draw(seed);
    FlashShape s;
    constexpr const char* kLayouts[] = {"BSH", "SBH", "BSND", "BNSD", "TND"};
    s.layout = kLayouts[draw.below(5) < 4 ? draw.below(5) : 4];
    draw_lengths(draw, s);
    s.kv_heads = draw.of({1, 1, 2, 3});
    s.group_size = draw.of({1, 1, 2, 3});
    s.head_dim = draw.of({1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 72});
    s.value_dim = draw.one_in(2) ? s.head_dim : 1 + draw.below(s.head_dim);
    s.dtype = static_cast<std::int32_t>(
        draw.of({ATTNCHECK_FLOAT32, ATTNCHECK_FLOAT16, ATTNCHECK_BFLOAT16}));
    s.scale = draw.one_in(12) ? 0.0 : draw.one_in(8) ? -0.2 : 1.0 / std::sqrt(s.head_dim);
    draw_mask(draw, s);
    s.same_as_input = s.packed() && draw.one_in(2);
    if (s.packed() && s.has_mask && s.mode != 6 && draw.one_in(4)) {
        s.dtype = ATTNCHECK_BFLOAT16;
        s.head_dim = draw.of({8, 17, 40});
        s.value_dim = 1 + draw.below(s.head_dim);
        s.rope_dim = 8 * (1 + draw.below(s.head_dim / 8));
        return s;
    }
    draw_bias(draw, s);
    s.has_dropout = draw.one_in(3);
    if (s.has_dropout) s.keep_prob = draw.one_in(4) ? 1.0 : 0.7;
    return s;
}

bool is_legal(FlashProblem& p) {
    const auto args = p.forward_args();
    const auto gradient_args = p.gradient_args();
    const bool legal = !validate_flash_attention_score(&args);
    EXPECT_EQ(legal, !validate_flash_attention_score_grad(&gradient_args));
    return legal;
}

constexpr int kNumDraws = 900;

// The loops agree on a broad mix, and the mix reaches every layout, mode, bias and mask form.
TEST(FlashAttentionKernel, AgreesWithLoops) {
    std::map<std::string, int> reached;
    for (int seed = 0; seed < kNumDraws; ++seed) {
        FlashProblem p(draw_shape(static_cast<std::uint64_t>(seed)),
                       static_cast<std::uint64_t>(seed));
        const FlashShape& s = p.shape;
        SCOPED_TRACE(describe(s, static_cast<std::uint64_t>(seed)));
        if (!is_legal(p)) continue;
        check_forward(p);
        check_gradient(p);
        if (HasFailure()) return;
        if (p.pairs == 0) continue;
        ++reached["layout " + s.layout];
        ++reached["dtype " + std::to_string(s.dtype)];
        if (s.has_mask) ++reached["mode " + std::to_string(s.mode)];
        if (s.has_mask && (s.mode == 0 || s.mode == 1 || s.mode == 5))
            ++reached["mask " + std::to_string(s.mask_shape)];
        ++reached["bias type " + std::to_string(s.bias_type)];
        ++reached["bias shape " + std::to_string(s.bias_shape)];
        if (s.has_dropout) ++reached["dropout"];
        if (s.rope_dim > 0) ++reached["rope"];
        if (s.same_as_input) ++reached["same_as_input"];
    }
    constexpr int kLabels = 5 + 3 + 9 + 5 + 4 + 8 + 3;
    EXPECT_EQ(reached.size(), kLabels);
    for (const auto& [label, count] : reached) {
        EXPECT_GE(count, 3) << label;
        std::printf("  %-16s %d\n", label.c_str(), count);
    }
}

// Sizes around the tiles, with a band that leaves whole tiles out on both sides.
TEST(FlashAttentionKernel, AgreesWithLoopsAroundTileSizes) {
    for (const std::int64_t q : {1, 64, 127, 128, 129, 300}) {
        for (const std::int64_t k : {1, 63, 64, 65, 130, 257, 320}) {
            FlashShape s;
            s.lengths = {{q, k}};
            s.group_size = 2;
            s.has_mask = true;
            s.mode = 4;
            s.pre = 20, s.next = 3;
            FlashProblem p(s, static_cast<std::uint64_t>(q * 1000 + k));
            SCOPED_TRACE(describe(s, 0));
            check_forward(p);
            check_gradient(p);
        }
    }
}

// The largest head dim, alone and with a rope of the same size.
TEST(FlashAttentionKernel, AgreesWithLoopsAtTheLargestDims) {
    for (const std::int64_t rope : {0, 512}) {
        FlashShape s;
        s.layout = "TND";
        s.lengths = {{70, 70}};
        s.dtype = ATTNCHECK_BFLOAT16;
        s.head_dim = 512, s.value_dim = 511, s.rope_dim = rope;
        s.has_mask = true;
        s.mode = 3;
        s.scale = 0.04;
        FlashProblem p(s, 5);
        check_forward(p);
        check_gradient(p);
    }
}

// The 1024 stored rows stand for a longer bias, whose rows above them are shifted copies.
TEST(FlashAttentionKernel, ReadsACompressedBias) {
    for (const std::int64_t mode : {0, 2, 3}) {
        FlashShape s;
        s.layout = "BNSD";
        s.lengths = {{2100, 2100}};
        s.head_dim = s.value_dim = 2;
        s.has_mask = true;
        s.mode = mode;
        s.pre = 2100;
        s.bias_type = mode == 2 ? 1 : 0;
        s.bias_shape = S::kRows1024;
        FlashProblem p(s, 5);
        check_forward(p);
        if (mode == 2) check_gradient(p);
    }
}

// Queries, keys, bias and mask that repeat themselves in memory.
TEST(FlashAttentionKernel, ReadsBroadcastOperands) {
    FlashShape s;
    s.layout = "BSH";
    s.lengths = {{40, 70}, {40, 70}};
    s.group_size = 2;
    s.has_mask = true;
    s.mode = 1;
    s.mask_shape = S::kPerHead;
    s.bias_shape = S::kFull;
    s.bias_per_batch = true;
    FlashProblem p(s, 6);
    p.query.strides[1] = 0;
    p.key.strides[0] = 0;
    p.value.strides[2] = 0;
    p.bias.strides[2] = 0;
    p.mask.strides[1] = 0;
    check_forward(p);
    check_gradient(p);
}

// fp8: every pattern below 2 in magnitude, gradients in another type.
TEST(FlashAttentionKernel, WidensFp8InTheGradient) {
    ASSERT_EQ(setenv("ATTNCHECK_PROFILE", "ascend950", 1), 0);
    for (const std::int32_t in : {ATTNCHECK_FLOAT8_E5M2, ATTNCHECK_FLOAT8_E4M3FN}) {
        for (const std::int32_t out : {ATTNCHECK_FLOAT32, ATTNCHECK_FLOAT16, ATTNCHECK_BFLOAT16}) {
            FlashShape s;
            s.dtype = in;
            s.output_dtype = out;
            s.lengths = {{30, 70}};
            s.bias_shape = S::kFull;
            FlashProblem p(s, 7);
            check_gradient(p);
        }
    }
    unsetenv("ATTNCHECK_PROFILE");
}

// NaN and infinities: exactly the elements that the loops find not finite are, and every other one
// has the bits it has without them. Hidden keys, dropped values, other heads and rows beyond the
// last sequence must not leak, whatever tile they share.

bool same_where_finite(const AnyTensor& clean, const AnyTensor& spoiled, const Index& at,
                       double expected) {
    const double before = clean.get(at), after = spoiled.get(at);
    if (!std::isfinite(expected)) return !std::isfinite(after);
    return before == after && std::signbit(before) == std::signbit(after);
}

void spoil(AnyTensor& tensor, Draw& draw) {
    if (tensor.elements() == 0) return;
    for (std::int64_t i = 0; i < 1 + draw.below(3); ++i) {
        Index at = tensor.unravel(draw.below(tensor.elements()));
        const double bad = draw.below(2) ? kNan : draw.below(2) ? kInf : -kInf;
        tensor.set(at, bad);
        if (!draw.one_in(3)) continue;  // one element, or what shares its channels
        for (at.back() = 0; at.back() < tensor.shape.back(); ++at.back()) tensor.set(at, bad);
    }
}

void compare_spoiled(FlashProblem& clean, FlashProblem& spoiled, const AnyTensor& before,
                     const AnyTensor& after, Grid<Expected>& grid, bool of_keys, std::int64_t from,
                     std::int64_t dim, const char* name, std::int64_t& finite, std::int64_t& bad) {
    int failures = 0;
    for_each_element(clean, of_keys, grid.heads(), dim, [&](auto b, auto head, auto i, auto c) {
        const Index at = spoiled.element(of_keys, b, head, i, dim, c);
        const double expected = grid.row(b, head, i)[from + c].value;
        ++(std::isfinite(expected) ? finite : bad);
        if (same_where_finite(before, after, at, expected) || ++failures > 3) return;
        ADD_FAILURE() << name << " [" << b << ", " << head << ", " << i << ", " << c << "] is "
                      << after.get(at) << ", without NaN " << before.get(at) << ", loops say "
                      << expected;
    });
}

void check_spoiled_forward(FlashProblem& clean, FlashProblem& spoiled, std::int64_t& finite,
                           std::int64_t& bad) {
    Reference reference(spoiled, false);
    run_forward(clean);
    run_forward(spoiled);
    if (testing::Test::HasFatalFailure()) return;
    int failures = 0;
    for_each_element(clean, false, clean.shape.heads(), 1, [&](auto b, auto head, auto i, auto) {
        const double row_max = reference.row_max.row(b, head, i)->value,
                     row_sum = reference.row_sum.row(b, head, i)->value;
        if (row_max == -kInf) return;  // all visible logits: not compared
        const Index at = spoiled.statistic(b, head, i, 7);
        bool same = same_where_finite(clean.row_max, spoiled.row_max, at, row_max) &&
                    same_where_finite(clean.row_sum, spoiled.row_sum, at, row_sum);
        for (std::int64_t c = 0; c < clean.shape.value_dim; ++c) {
            const double expected = reference.output.row(b, head, i)[c].value;
            ++(std::isfinite(expected) ? finite : bad);
            same = same &&
                   same_where_finite(clean.output, spoiled.output,
                                     spoiled.element(false, b, head, i, clean.shape.value_dim, c),
                                     expected);
        }
        if (!same && ++failures <= 3) ADD_FAILURE() << b << " " << head << " " << i;
    });
}

TEST(FlashAttentionKernel, NonFiniteInputsReachWhatDependsOnThemOnly) {
    std::int64_t finite = 0, bad = 0;
    for (std::uint64_t seed = 5000; seed < 5500; ++seed) {
        const FlashShape shape = draw_shape(seed);
        FlashProblem clean(shape, seed), spoiled(shape, seed);
        SCOPED_TRACE(describe(shape, seed));
        if (!is_legal(clean) || clean.pairs == 0) continue;
        Reference forward(clean, false);
        Draw draw(seed);
        // Only NaN in what logits are made of: an infinite logit changes finite probabilities of
        // its row, so that rows do not keep their bits.
        for (AnyTensor* tensor :
             {&spoiled.query, &spoiled.key, &spoiled.bias, &spoiled.value, &spoiled.output_grad}) {
            if (!tensor->present || draw.one_in(3)) continue;
            spoil(*tensor, draw);
            if (tensor == &spoiled.value || tensor == &spoiled.output_grad) continue;
            for (std::int64_t i = 0; i < tensor->elements(); ++i) {
                const Index at = tensor->unravel(i);
                if (!std::isfinite(tensor->get(at))) tensor->set(at, kNan);
            }
        }
        check_spoiled_forward(clean, spoiled, finite, bad);
        store_forward(clean, forward);
        store_forward(spoiled, forward);
        Reference gradient(spoiled, true);
        run_gradient(clean);
        run_gradient(spoiled);
        const std::int64_t d = shape.head_dim, r = shape.rope_dim;
        const auto compare = [&](const AnyTensor& before, const AnyTensor& after,
                                 Grid<Expected>& grid, bool of_keys, std::int64_t from,
                                 std::int64_t dim, const char* name) {
            compare_spoiled(clean, spoiled, before, after, grid, of_keys, from, dim, name, finite,
                            bad);
        };
        compare(clean.dq, spoiled.dq, gradient.dq, false, 0, d, "dq");
        compare(clean.dq_rope, spoiled.dq_rope, gradient.dq, false, d, r, "dq_rope");
        compare(clean.dk, spoiled.dk, gradient.dk, true, 0, d, "dk");
        compare(clean.dk_rope, spoiled.dk_rope, gradient.dk, true, d, r, "dk_rope");
        compare(clean.dv, spoiled.dv, gradient.dv, true, 0, shape.value_dim, "dv");
        if (HasFailure()) return;
    }
    // Both kinds must be common, or the comparison says nothing.
    EXPECT_GT(finite, 100000);
    EXPECT_GT(bad, 100000);
    std::printf("  %lld finite, %lld not\n", static_cast<long long>(finite),
                static_cast<long long>(bad));
}

// Statistics and O of rows that see no key, and of rows beyond the last sequence, are not read.
TEST(FlashAttentionKernel, IgnoresStatisticsOfEmptyRows) {
    FlashShape s;
    s.layout = "TND";
    s.lengths = {{5, 0}, {70, 70}};
    s.spare_queries = 2;
    s.same_as_input = true;
    s.has_mask = true;
    s.mode = 2;
    FlashProblem clean(s, 8), spoiled(s, 8);
    Reference forward(clean, false);
    store_forward(clean, forward);
    store_forward(spoiled, forward);
    for (AnyTensor* tensor : {&spoiled.row_max, &spoiled.row_sum, &spoiled.output}) {
        for (std::int64_t i = 0; i < tensor->elements(); ++i) {
            const Index at = tensor->unravel(i);
            if (at[0] < 5 || at[0] >= 75) tensor->set(at, kNan);
        }
    }
    run_gradient(clean);
    run_gradient(spoiled);
    EXPECT_EQ(clean.dq.bytes, spoiled.dq.bytes);
    EXPECT_EQ(clean.dk.bytes, spoiled.dk.bytes);
    EXPECT_EQ(clean.dv.bytes, spoiled.dv.bytes);
}

// Any scale is legal. Rows without keys and keys without rows have no gradient, not NaN times 0.
TEST(FlashAttentionKernel, NoGradientWhereNothingIsVisibleWhateverTheScale) {
    for (const double scale : {kNan, kInf}) {
        FlashShape s;
        s.lengths = {{10, 100}};
        s.has_mask = true;
        s.mode = 4;
        s.pre = -3, s.next = 4;  // keys i + 93 and i + 94
        FlashProblem p(s, 13);
        Reference forward(p, false);
        store_forward(p, forward);
        p.shape.scale = scale;
        run_gradient(p);
        std::int64_t empty_rows = 0, empty_keys = 0;
        const auto is_zero = [](const AnyTensor& tensor, std::int64_t row) {
            for (std::int64_t c = 0; c < 8; ++c) {
                if (!(tensor.get({0, row, 0, c}) == 0.0)) return false;
            }
            return true;
        };
        for (std::int64_t i = 0; i < 10; ++i) {
            bool any = false;
            for (std::int64_t j = 0; j < 100; ++j) any = any || p.visible(0, 0, i, j);
            empty_rows += !any;
            EXPECT_EQ(is_zero(p.dq, i), !any) << i;
        }
        for (std::int64_t j = 0; j < 100; ++j) {
            bool any = false;
            for (std::int64_t i = 0; i < 10; ++i) any = any || p.visible(0, 0, i, j);
            empty_keys += !any;
            EXPECT_EQ(is_zero(p.dk, j), !any) << j;
        }
        EXPECT_EQ(empty_rows, 3);
        EXPECT_EQ(empty_keys, 93);
    }
}

// P depends on exp(S - m) / l only; neither exp(S) nor exp(-m) may be formed.
TEST(FlashAttentionKernel, UsesTheGivenStatisticsAsTheyAre) {
    FlashShape s;
    s.lengths = {{20, 30}};
    s.head_dim = s.value_dim = 4;
    s.scale = 60.0;
    s.bias_type = 0;
    s.bias_shape = S::kRow;
    FlashProblem p(s, 9);
    p.bias.fill([] { return 500.0; });
    Reference forward(p, false);
    store_forward(p, forward);
    for (std::int64_t i = 0; i < p.row_max.elements(); ++i) {
        const Index at = p.row_max.unravel(i);
        p.row_max.set(at, p.row_max.get(at) + 2.0);
        p.row_sum.set(at, p.row_sum.get(at) * 0.5);
    }
    Reference reference(p, true);
    run_gradient(p);
    Comparison comparison(reference);
    compare_rows(comparison, p, p.dv, reference.dv, true, 0, 4, "dv");
    compare_rows(comparison, p, p.dq, reference.dq, false, 0, 4, "dq");
}

// Sums of values beyond fp32 whose mean is not.
TEST(FlashAttentionKernel, MeansOfHugeValuesAreFinite) {
    FlashShape s;
    s.lengths = {{3, 200}};
    s.scale = 0.0;
    FlashProblem p(s, 10);
    p.value.fill([] { return 3e38; });
    run_forward(p);
    for (std::int64_t i = 0; i < p.output.elements(); ++i)
        EXPECT_NEAR(p.output.get(p.output.unravel(i)), 3e38, 1e33);
}

// The same bits for any number of threads, on any instruction set within rounding.
TEST(FlashAttentionKernel, BitsDoNotDependOnThreads) {
    for (const bool packed : {false, true}) {
        FlashShape s;
        s.layout = packed ? "TND" : "SBH";
        s.lengths = {{300, 310}, {300, 310}};
        s.kv_heads = 2, s.group_size = 3;
        s.dtype = ATTNCHECK_BFLOAT16;
        s.head_dim = 24, s.value_dim = 17;
        s.has_mask = true;
        s.mode = 3;
        s.has_dropout = true;
        s.keep_prob = 0.8;
        FlashProblem p(s, 11);
        std::vector<std::vector<std::uint8_t>> first;
        for (const int threads : {1, 2, 3, 7}) {
            set_num_threads(threads);
            run_forward(p);
            run_gradient(p);
            std::vector<std::vector<std::uint8_t>> bytes;
            for (AnyTensor* tensor : {&p.output, &p.row_max, &p.row_sum, &p.dq, &p.dk, &p.dv})
                bytes.push_back(tensor->bytes);
            if (first.empty()) first = bytes;
            EXPECT_TRUE(bytes == first) << threads;
        }
        set_num_threads(0);
    }
}

TEST(FlashAttentionKernel, EveryInstructionSetAgreesWithLoops) {
    for (const char* isa : {"scalar", "ssse3", "sse4", "avx2", "avx512", "avx512_bf16", "amx",
                            "amx_emulated", "neon"}) {
        const auto kernels = find_attention_kernels(isa);
        if (!kernels) continue;
        for (const std::int32_t dtype : {ATTNCHECK_FLOAT16, ATTNCHECK_BFLOAT16}) {
            FlashShape s;
            s.lengths = {{70, 90}};
            s.dtype = dtype;
            s.head_dim = 33, s.value_dim = 19;
            s.has_mask = true;
            s.mode = 3;
            FlashProblem p(s, 12);
            SCOPED_TRACE(testing::Message() << isa << " dtype " << dtype);
            Reference forward(p, false);
            const auto args = p.forward_args();
            flash_attention_score(args, *kernels);
            Comparison comparison(forward, *kernels);
            compare_rows(comparison, p, p.output, forward.output, false, 0, 19, "attention_out");
            store_forward(p, forward);
            Reference gradient(p, true);
            flash_attention_score_grad(p.gradient_args(), *kernels);
            Comparison gradient_comparison(gradient, *kernels);
            compare_rows(gradient_comparison, p, p.dq, gradient.dq, false, 0, 33, "dq");
            compare_rows(gradient_comparison, p, p.dk, gradient.dk, true, 0, 33, "dk");
            compare_rows(gradient_comparison, p, p.dv, gradient.dv, true, 0, 19, "dv");
        }
    }
}

// A forced set is the one that runs: its table was compiled for it, and products of pairs leave
// their mark, P rounded to bf16, in bf16 and nowhere else.
TEST(FlashAttentionKernel, ForcedInstructionSetRuns) {
    const std::map<std::string, std::string> targets{
        {"ssse3", "SSSE3"}, {"sse4", "SSE4"},        {"avx2", "AVX2"}, {"avx512", "AVX3"},
        {"neon", "NEON"},   {"avx512_bf16", "AVX3"}, {"amx", "AVX3"},  {"amx_emulated", "AVX3"}};
    for (const auto& [name, target] : targets) {
        const auto kernels = find_attention_kernels(name.c_str());
        if (!kernels) continue;
        EXPECT_EQ(kernels->isa, name);
        EXPECT_EQ(kernels->target, target);
        EXPECT_EQ(kernels->bf16_dot != nullptr, name == "avx512_bf16" || name.starts_with("amx"));
    }
    const auto plain = find_attention_kernels("avx512"),
               pairs = find_attention_kernels("avx512_bf16");
    if (!pairs) GTEST_SKIP() << "no products of pairs on this machine";
    for (const std::int32_t dtype : {ATTNCHECK_BFLOAT16, ATTNCHECK_FLOAT16, ATTNCHECK_FLOAT32}) {
        FlashShape s;
        s.lengths = {{40, 70}};
        s.dtype = dtype;
        s.head_dim = s.value_dim = 32;
        FlashProblem p(s, 13);
        flash_attention_score(p.forward_args(), *plain);
        const auto expected = p.output.bytes;
        flash_attention_score(p.forward_args(), *pairs);
        EXPECT_EQ(p.output.bytes == expected, dtype != ATTNCHECK_BFLOAT16) << dtype;
    }
}

}  // namespace
}  // namespace attncheck::impl
