// The built-in Attention and its gradient within the bounds of the oracle, in odd strides and
// poisoned storage, on every instruction set; equal bits to FlashAttention where both say the same.
#include <gtest/gtest.h>

#include <functional>

#include "attention_problem.h"
#include "impl/operators/attention/attention.h"
#include "impl/operators/attention/validate.h"
#include "impl/operators/flash_attention/flash_attention.h"
#include "impl/runtime/thread_pool.h"

namespace attncheck::impl {
namespace {

/// Every element within its bound, nothing else touched.
void expect_within(const char* what, const AnyTensor& got, const ref::ExpectedTensor& expected,
                   const std::vector<double>& values) {
    ASSERT_EQ(values.size(), expected.size()) << what;
    int wrong = 0;
    for (std::size_t i = 0; i < values.size() && wrong < 3; ++i) {
        if (expected.value[i] == -kInf && values[i] == -kInf) continue;
        if (std::fabs(values[i] - expected.value[i]) <= expected.bound[i]) continue;
        ADD_FAILURE() << what << '[' << i << "] is " << values[i] << ", not " << expected.value[i]
                      << " +- " << expected.bound[i];
        ++wrong;
    }
    EXPECT_EQ(got.touched_gaps(), 0) << what;
}
void expect_within(const char* what, const AnyTensor& got, const ref::ExpectedTensor& expected) {
    expect_within(what, got, expected, NeutralProblem::values(got));
}

void expect_right(NeutralProblem& p, const AttentionKernels& kernels) {
    const auto forward = p.forward();
    const MaybeRejection refused = validate_attention(&forward);
    ASSERT_FALSE(refused) << refused->message;
    attention(forward, kernels);
    const auto expected = p.expected();
    expect_within("out", p.output, expected.output);
    if (p.form.has_lse) expect_within("lse", p.lse, expected.stored_lse, p.lse_by_row());
    const auto gradient = p.gradient();
    const MaybeRejection refused_too = validate_attention_grad(&gradient);
    ASSERT_FALSE(refused_too) << refused_too->message;
    attention_grad(gradient, kernels);
    const auto grad = p.expected_gradient();
    expect_within("dq", p.dq, grad.query_grad);
    expect_within("dk", p.dk, grad.key_grad);
    expect_within("dv", p.dv, grad.value_grad);
    if (p.dbias.present) expect_within("dbias", p.dbias, grad.bias_grad);
    if (p.dsink.present) expect_within("dsink", p.dsink, grad.sink_grad);
}

std::vector<NeutralForm> forms(std::int32_t dtype) {
    std::vector<NeutralForm> list;
    const auto add = [&](const std::function<void(NeutralForm&)>& change) {
        NeutralForm form;
        form.dtype = dtype;
        change(form);
        list.push_back(form);
    };
    add([](NeutralForm&) {});
    add([](NeutralForm& f) { f.softcap = 0.5; });
    add([](NeutralForm& f) { f.has_sink = true, f.group_size = 2; });
    add([](NeutralForm& f) { f.lengths = {{6, 3}}, f.window_right = 0, f.align = 1; });
    add([](NeutralForm& f) {
        f.lengths = {{6, 3}}, f.window_right = 0, f.align = 1, f.has_sink = true, f.kv_heads = 3;
    });
    add([](NeutralForm& f) { f.lengths = {{9, 9}, {9, 9}}, f.window_left = 2, f.window_right = 1; });
    add([](NeutralForm& f) {
        f.lengths = {{4, 11}, {4, 11}, {4, 11}}, f.has_kv_length = true, f.kv_heads = 2;
    });
    add([](NeutralForm& f) {  // kv_length does not move the diagonal
        f.lengths = {{6, 12}, {6, 12}}, f.has_kv_length = true, f.align = 1;
        f.window_left = 4, f.window_right = 1, f.has_sink = true;
    });
    for (const char* pairs : {"BHQK", "1HQ1", "B11K", "1111", "11QK", "1H1K"})
        add([&](NeutralForm& f) {
            f.lengths = {{5, 8}, {5, 8}}, f.kv_heads = 2, f.group_size = 2;
            f.bias = pairs, f.mask = pairs, f.has_sink = pairs[0] == 'B';
        });
    add([&](NeutralForm& f) { f.bias = "BHQK", f.bias_dtype = dtype, f.softcap = 2; });
    add([](NeutralForm& f) { f.bias = "1H1K", f.mask = "B1QK", f.softcap = 2, f.has_lse = false; });
    add([](NeutralForm& f) {
        f.packed = true, f.lengths = {{3, 5}, {0, 2}, {4, 0}, {7, 6}}, f.window_right = 0;
        f.align = 1, f.has_sink = true, f.softcap = 30, f.kv_heads = 2;
    });
    add([](NeutralForm& f) {
        f.packed = true, f.lengths = {{1, 300}, {140, 131}}, f.window_left = 70;
        f.head_dim = 40, f.value_dim = 24, f.has_lse = false, f.align = 1;
    });
    add([](NeutralForm& f) {
        f.lengths = {{130, 260}, {130, 260}}, f.head_dim = 33, f.value_dim = 65, f.group_size = 3;
        f.softcap = 1, f.has_sink = true, f.bias = "1H1K", f.mask = "11QK", f.window_right = 7;
        f.has_kv_length = true;
    });
    add([](NeutralForm& f) { f.lengths = {{3, 4}}, f.head_dim = 800, f.value_dim = 1000; });
    add([](NeutralForm& f) { f.lengths = {{3, 0}}, f.bias = "1111", f.has_sink = true; });
    add([](NeutralForm& f) { f.lengths = {{0, 3}}, f.bias = "1H1K", f.has_sink = true; });
    add([](NeutralForm& f) { f.scale = 0, f.softcap = 1; });
    add([](NeutralForm& f) { f.scale = -2, f.softcap = 3, f.bias = "1H1K"; });
    add([](NeutralForm& f) { f.scale = 1e-20, f.softcap = 1e20; });
    add([](NeutralForm& f) { f.scale = 0.5, f.softcap = 1e-20, f.has_sink = true; });
    return list;
}

class AttentionKernel : public testing::TestWithParam<std::int32_t> {};

TEST_P(AttentionKernel, IsWithinTheBoundsOfTheOracle) {
    std::uint64_t number = 0;
    for (const NeutralForm& form : forms(GetParam())) {
        SCOPED_TRACE(number);
        NeutralProblem problem(form, 17 + number++);
        expect_right(problem, default_attention_kernels());
    }
}

TEST_P(AttentionKernel, AgreesOnEveryInstructionSet) {
    int tested = 0;
    for (const char* isa : {"scalar", "sse4", "avx2", "avx512", "avx512_bf16", "neon"}) {
        const auto kernels = find_attention_kernels(isa);
        if (!kernels) continue;
        ++tested;
        std::uint64_t number = 0;
        for (const NeutralForm& form : forms(GetParam())) {
            SCOPED_TRACE(isa + (" " + std::to_string(number)));
            NeutralProblem problem(form, 170 + number++);
            expect_right(problem, *kernels);
        }
    }
    EXPECT_GT(tested, 0);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, AttentionKernel,
                         testing::Values(ATTNCHECK_FLOAT16, ATTNCHECK_BFLOAT16, ATTNCHECK_FLOAT32));

// dbias and dsink that are absent cost nothing but themselves; bits do not depend on threads.
TEST(Attention, BitsDependOnNeitherThreadsNorOptionalOutputs) {
    NeutralForm form;
    form.dtype = ATTNCHECK_BFLOAT16, form.lengths = {{140, 600}, {140, 600}};
    form.kv_heads = 2, form.group_size = 2, form.bias = "1HQ1", form.softcap = 2;
    form.has_sink = true;
    NeutralProblem p(form, 3);
    const auto run = [&](int threads, bool all) {
        set_num_threads(threads);
        for (AnyTensor* output : {&p.output, &p.lse, &p.dq, &p.dk, &p.dv, &p.dbias, &p.dsink})
            output->poison();
        attention(p.forward(), default_attention_kernels());
        auto gradient = p.gradient();
        if (!all) gradient.dbias = {}, gradient.dsink = {};
        attention_grad(gradient, default_attention_kernels());
        set_num_threads(0);
        std::vector<std::vector<std::uint8_t>> bytes;
        for (const AnyTensor* output : {&p.output, &p.lse, &p.dq, &p.dk, &p.dv})
            bytes.push_back(output->bytes);
        if (all)
            for (const AnyTensor* output : {&p.dbias, &p.dsink}) bytes.push_back(output->bytes);
        return bytes;
    };
    const auto once = run(1, true), again = run(4, true), without = run(2, false);
    EXPECT_EQ(once, again);
    EXPECT_TRUE(std::equal(without.begin(), without.end(), once.begin()));
}

// An infinite score has a finite logit behind a softcap, a hidden one has none.
TEST(Attention, SoftcapOfSpecialScores) {
    NeutralForm form;
    form.lengths = {{1, 2}}, form.head_dim = form.value_dim = 1, form.softcap = 4;
    NeutralProblem p(form, 1);
    p.query.set({0, 0, 0, 0}, kInf), p.key.set({0, 0, 0, 0}, 1), p.key.set({0, 1, 0, 0}, -1);
    p.value.set({0, 0, 0, 0}, 1), p.value.set({0, 1, 0, 0}, 0);
    attention(p.forward(), default_attention_kernels());
    EXPECT_NEAR(p.output.get({0, 0, 0, 0}), 1 / (1 + std::exp(-8.0)), 1e-6);
    p.key.set({0, 1, 0, 0}, kNan);
    attention(p.forward(), default_attention_kernels());
    EXPECT_TRUE(std::isnan(p.output.get({0, 0, 0, 0})));
}

// tanh within 1.5 ulp, from the smallest to the largest scores.
TEST(Attention, SoftcapIsATanh) {
    for (const char* isa : {"scalar", "sse4", "avx2", "avx512", "neon"}) {
        const auto kernels = find_attention_kernels(isa);
        if (!kernels) continue;
        double worst = 0;
        for (float x = 0x1p-30f; x < 100; x *= 1.0003f) {
            float row[16], slopes[16];
            std::fill_n(row, 16, -x);
            kernels->softcap_tile({row, 16, 1, 16, 1.0f, 1.0f, slopes});
            const double t = std::tanh(static_cast<double>(x));
            worst = std::max(worst, std::fabs(row[3] + t) / t);
            EXPECT_NEAR(slopes[3], 1 - t * t, 0x1p-22) << x;
        }
        EXPECT_LT(worst, 1.5 * 0x1p-23) << isa;
    }
}

/// The same problem as a call of FlashAttentionScore, in BSND or TND.
struct FlashTwin {
    attncheck_flash_attention_score_args forward{};
    attncheck_flash_attention_score_grad_args gradient{};
    AnyTensor output, row_max, row_sum, dq, dk, dv, mask;
    std::vector<std::int64_t> ends_q, ends_kv;

    FlashTwin(NeutralProblem& p, std::int64_t mode) {
        const auto args = p.forward();
        const bool packed = p.form.packed;
        const auto like = [](const AnyTensor& t) {
            return AnyTensor(t.dtype, t.shape, Storage::kPacked);
        };
        output = like(p.output), dq = like(p.dq), dk = like(p.dk), dv = like(p.dv);
        const Index statistics = packed ? Index{p.shape.total_queries, p.shape.query_heads, 8}
                                        : Index{std::ssize(p.shape.query_lengths),
                                                p.shape.query_heads, p.shape.query_lengths[0], 8};
        row_max = AnyTensor(ATTNCHECK_FLOAT32, statistics, Storage::kPacked);
        row_sum = row_max;
        if (mode >= 0) mask = AnyTensor(ATTNCHECK_BOOL, {2048, 2048}, Storage::kPacked);
        ends_q.assign(p.starts_q.begin() + 1, p.starts_q.end());
        ends_kv.assign(p.starts_kv.begin() + 1, p.starts_kv.end());
        const auto fill = [&](auto& a) {
            a.query = args.query, a.key = args.key, a.value = args.value;
            a.atten_mask = mask.view();
            a.scale_value = p.form.scale, a.keep_prob = 1;
            a.pre_tokens = a.next_tokens = 2147483647;
            a.head_num = p.shape.query_heads;
            a.input_layout = packed ? "TND" : "BSND";
            a.sparse_mode = std::max<std::int64_t>(mode, 0), a.pse_type = 0;
            a.softmax_max = row_max.view(), a.softmax_sum = row_sum.view();
            if (!packed) return;
            a.actual_seq_q_len = {ends_q.data(), std::ssize(ends_q)};
            a.actual_seq_kv_len = {ends_kv.data(), std::ssize(ends_kv)};
        };
        fill(forward), fill(gradient);
        forward.real_shift = gradient.pse_shift = args.bias;
        forward.softmax_out_layout = gradient.softmax_in_layout = "same_as_input";
        forward.attention_out = gradient.attention_in = output.view();
        gradient.dy = p.output_grad.view();
        gradient.dq = dq.view(), gradient.dk = dk.view(), gradient.dv = dv.view();
    }
};

TEST_P(AttentionKernel, HasTheBitsOfFlashAttention) {
    for (const bool packed : {false, true})
        for (const std::int64_t mode : {-1, 2, 3}) {
            NeutralForm form;
            form.dtype = GetParam(), form.packed = packed;
            form.lengths = packed ? std::vector<std::pair<std::int64_t, std::int64_t>>{{130, 70}, {9, 200}}
                                  : std::vector<std::pair<std::int64_t, std::int64_t>>{{150, 170}, {150, 170}};
            form.kv_heads = 2, form.group_size = 2, form.head_dim = 64, form.value_dim = 48;
            form.window_right = mode >= 0 ? 0 : -1, form.align = mode == 3;
            if (!packed) form.bias = "BHQK", form.bias_dtype = form.dtype;
            form.bias_hides = false;  // there a bias of -infinity is one like any other
            NeutralProblem p(form, 5);
            FlashTwin twin(p, mode);
            const AttentionKernels& kernels = default_attention_kernels();
            flash_attention_score(twin.forward, kernels);
            attention(p.forward(), kernels);
            EXPECT_EQ(NeutralProblem::values(p.output), NeutralProblem::values(twin.output))
                << packed << mode;
            // Without an LSE the gradient goes by maximum and sum, as FlashAttention's does.
            auto gradient = p.gradient();
            gradient.lse = {};
            attention_grad(gradient, kernels);
            flash_attention_score_grad(twin.gradient, kernels);
            EXPECT_EQ(NeutralProblem::values(p.dq), NeutralProblem::values(twin.dq));
            EXPECT_EQ(NeutralProblem::values(p.dk), NeutralProblem::values(twin.dk));
            EXPECT_EQ(NeutralProblem::values(p.dv), NeutralProblem::values(twin.dv));
        }
}

// Extents of tensors without elements may be any number.
TEST(Attention, TakesHugeExtentsOfNothing) {
    constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
    float nothing = 0, sum = 7;
    attncheck_attention_grad_args a{};
    const attncheck_tensor empty{&nothing, ATTNCHECK_FLOAT32, 4, {0, 3, 2, kHuge}, {}};
    a.query = a.key = a.value = a.out = a.dout = a.dq = a.dk = a.dv = empty;
    a.scale = 1, a.window_left = a.window_right = -1;
    a.bias = {&nothing, ATTNCHECK_FLOAT32, 4, {1, 1, 1, 1}, {}};
    a.dbias = {&sum, ATTNCHECK_FLOAT32, 4, {1, 1, 1, 1}, {}};
    EXPECT_EQ(attncheck_attention_grad(&a), ATTNCHECK_OK);
    EXPECT_EQ(sum, 0);
    attncheck_attention_args f{};
    f.query = f.key = f.value = f.out = empty;
    f.scale = 1, f.window_left = f.window_right = -1;
    EXPECT_EQ(attncheck_attention(&f), ATTNCHECK_OK);
}

}  // namespace
}  // namespace attncheck::impl
