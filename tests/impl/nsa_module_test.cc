// The module's own part: what it rejects, what it does without tokens, strided tensors, and what it
// says about an operator that fails. Its numbers are the concern of
// tests/properties/operators/nsa_module_test.cc.
#include <attncheck/nsa_module.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

constexpr std::int64_t kTokens = 40, kHeads = 4, kKvHeads = 2, kDim = 128, kBlock = 16;

/// Dense memory, all elements alike.
struct Tensor {
    std::vector<std::uint16_t> halves;
    std::vector<float> floats;
    attncheck_tensor view{};

    Tensor(std::vector<std::int64_t> shape, std::uint16_t bits, bool is_float = false) {
        std::int64_t pitch = 1;
        view.rank = static_cast<std::int32_t>(shape.size());
        view.dtype = is_float ? ATTNCHECK_FLOAT32 : ATTNCHECK_BFLOAT16;
        for (std::size_t dim = shape.size(); dim-- > 0; pitch *= shape[dim]) {
            view.shape[dim] = shape[dim];
            view.strides[dim] = pitch;
        }
        if (is_float)
            floats.assign(static_cast<std::size_t>(pitch), 0);
        else
            halves.assign(static_cast<std::size_t>(pitch), bits);
        view.data = is_float ? static_cast<void*>(floats.data()) : halves.data();
    }
};

constexpr std::uint16_t kOne = 0x3f80, kGarbage = 0x4242;

struct Problem {
    Tensor query{{kTokens, kHeads, kDim}, kOne}, key{{kTokens, kKvHeads, kDim}, kOne},
        value{{kTokens, kKvHeads, kDim}, kOne}, weight{{kBlock, kKvHeads}, kOne},
        gates{{kTokens, kHeads, 3}, 0, true}, out{{kTokens, kHeads, kDim}, kGarbage};
    Tensor out_grad = query, query_grad = out, key_grad{{kTokens, kKvHeads, kDim}, kGarbage},
           value_grad = key_grad, key_weight_grad{{kBlock, kKvHeads}, kGarbage},
           value_weight_grad = key_weight_grad, gates_grad = gates;
    std::vector<std::int64_t> ends{30, 35};
    attncheck_nsa_module_args args{};
    attncheck_nsa_module_grad_args grads{};

    Problem() {
        for (Tensor* tensor : {&out_grad, &query_grad, &value_grad, &value_weight_grad})
            tensor->view.data = tensor->halves.data();  // copies have memory of their own
        gates_grad.view.data = gates_grad.floats.data();
        args.query = query.view;
        args.key_compress = key.view, args.value_compress = value.view;
        args.key_weight = args.value_weight = weight.view;
        args.gate_logits = gates.view;
        args.actual_seq_len = {ends.data(), 2};
        args.scale_value = 0.1;
        args.compress_block_size = args.compress_stride = args.select_block_size = kBlock;
        args.select_block_count = 1, args.window_size = 8;
        args.attention_out = out.view;
        grads.attention_out_grad = out_grad.view, grads.query_grad = query_grad.view;
        grads.key_compress_grad = key_grad.view, grads.value_compress_grad = value_grad.view;
        grads.key_weight_grad = key_weight_grad.view;
        grads.value_weight_grad = value_weight_grad.view;
        grads.gate_logits_grad = gates_grad.view;
    }
};

constexpr attncheck_nsa_operators kBuiltin{attncheck_nsa_compress,
                                           attncheck_nsa_compress_attention,
                                           attncheck_nsa_selected_attention,
                                           attncheck_flash_attention_score,
                                           attncheck_nsa_compress_grad,
                                           attncheck_nsa_selected_attention_grad,
                                           attncheck_flash_attention_score_grad,
                                           nullptr,
                                           nullptr};

/// The status of a changed call, and a message that names what was changed.
template <class Change>
void expect_rejected(int status, const std::string& name, const Change& change) {
    Problem problem;
    change(problem);
    EXPECT_EQ(attncheck_nsa_module(&kBuiltin, &problem.args, nullptr), status) << name;
    EXPECT_NE(std::string(attncheck_nsa_module_message()).find(name), std::string::npos)
        << attncheck_nsa_module_message();
    EXPECT_EQ(problem.out.halves[0], kGarbage) << name << ": the output was touched";
}

TEST(NsaModule, RejectsWithTheNameOfTheArgument) {
    constexpr int kNull = ATTNCHECK_ERR_NULLPTR, kInvalid = ATTNCHECK_ERR_INVALID;
    expect_rejected(kNull, "query", [](Problem& p) { p.args.query.data = nullptr; });
    expect_rejected(kNull, "key_compress", [](Problem& p) { p.args.key_compress.data = nullptr; });
    expect_rejected(kNull, "gate_logits", [](Problem& p) { p.args.gate_logits.data = nullptr; });
    expect_rejected(kNull, "actual_seq_len",
                    [](Problem& p) { p.args.actual_seq_len.values = nullptr; });
    expect_rejected(kInvalid, "actual_seq_len[1]", [](Problem& p) { p.ends[1] = 41; });
    expect_rejected(kInvalid, "actual_seq_len[1]", [](Problem& p) { p.ends[1] = 29; });
    expect_rejected(kInvalid, "key_select", [](Problem& p) { p.args.key_select = p.key.view; });
    expect_rejected(kInvalid, "key_weight", [](Problem& p) { --p.args.key_weight.shape[0]; });
    expect_rejected(kInvalid, "gate_logits", [](Problem& p) { p.args.gate_logits.dtype = 27; });
    expect_rejected(kInvalid, "query", [](Problem& p) { p.args.query.dtype = ATTNCHECK_FLOAT32; });
    expect_rejected(kInvalid, "query has 3 heads", [](Problem& p) { p.args.query.shape[1] = 3; });
    expect_rejected(kInvalid, "window_size", [](Problem& p) { p.args.window_size = 0; });
    expect_rejected(kInvalid, "select_block_size",
                    [](Problem& p) { p.args.select_block_size = 24; });
    expect_rejected(kInvalid, "compress_block_size",
                    [](Problem& p) { p.args.compress_block_size = 0; });
    expect_rejected(kInvalid, "compress_stride", [](Problem& p) { p.args.compress_stride = 0; });
}

TEST(NsaModule, TellsWhichOperatorFailed) {
    Problem problem;
    attncheck_nsa_operators operators = kBuiltin;
    operators.nsa_selected_attention = [](const attncheck_nsa_selected_attention_args*) {
        return int{ATTNCHECK_DECLINED};
    };
    EXPECT_EQ(attncheck_nsa_module(&operators, &problem.args, nullptr), ATTNCHECK_DECLINED);
    EXPECT_STREQ(attncheck_nsa_module_message(), "nsa_module: nsa_selected_attention returned -1");
    operators.nsa_selected_attention = nullptr;
    EXPECT_EQ(attncheck_nsa_module(&operators, &problem.args, nullptr), ATTNCHECK_ERR_NULLPTR);
}

/// What a table has no entry for is called by its name, with the caller's own state.
TEST(NsaModule, CallsWhatIsMissingByItsName) {
    Problem problem;
    struct Caller {
        std::vector<std::string> called;
    } caller;
    attncheck_nsa_operators operators = kBuiltin;
    operators.nsa_selected_attention = nullptr;
    operators.caller = &caller;
    operators.call = [](void* state, const char* op, const void* args) {
        static_cast<Caller*>(state)->called.emplace_back(op);
        return attncheck_nsa_selected_attention(
            static_cast<const attncheck_nsa_selected_attention_args*>(args));
    };
    EXPECT_EQ(attncheck_nsa_module(&operators, &problem.args, nullptr), ATTNCHECK_OK);
    EXPECT_EQ(caller.called, std::vector<std::string>{"nsa_selected_attention"});
}

/// Equal tokens, equal weights: everything that is an average of values is 1, the pooled value is
/// l; rows beyond the last sequence are 0.
TEST(NsaModule, AveragesOfEqualValuesAreThatValue) {
    Problem problem;
    attncheck_nsa_module_state* state = nullptr;
    ASSERT_EQ(attncheck_nsa_module(&kBuiltin, &problem.args, &state), ATTNCHECK_OK)
        << attncheck_nsa_module_message();
    const std::size_t row = kHeads * kDim;
    EXPECT_EQ(problem.out.halves[0], kOne);           // half of 1 and 1: no block is visible
    EXPECT_EQ(problem.out.halves[15 * row], 0x4110);  // (16 + 1 + 1) / 2 = 9
    EXPECT_EQ(problem.out.halves[30 * row], kOne);    // a new sequence
    EXPECT_EQ(problem.out.halves[35 * row], 0);       // beyond
    const attncheck_tensor blocks = attncheck_nsa_module_blocks(state);
    EXPECT_EQ(blocks.shape[0], kTokens);
    EXPECT_EQ(blocks.shape[2], 1);
    ASSERT_EQ(attncheck_nsa_module_grad(&kBuiltin, &problem.args, state, &problem.grads),
              ATTNCHECK_OK)
        << attncheck_nsa_module_message();
    EXPECT_EQ(problem.query_grad.halves[35 * row], 0);
    EXPECT_EQ(problem.key_grad.halves[35 * kKvHeads * kDim], 0);
    EXPECT_EQ(problem.gates_grad.floats[0], 0);  // the compress gate of a row that sees no block
    EXPECT_EQ(problem.gates_grad.floats[2], kDim / 4.f);
    attncheck_nsa_module_free(state);
}

TEST(NsaModule, GradientsAreCheckedAgainstTheForward) {
    Problem problem;
    attncheck_nsa_module_state* state = nullptr;
    ASSERT_EQ(attncheck_nsa_module(&kBuiltin, &problem.args, &state), ATTNCHECK_OK);
    problem.grads.key_select_grad = problem.key_grad.view;
    EXPECT_EQ(attncheck_nsa_module_grad(&kBuiltin, &problem.args, state, &problem.grads),
              ATTNCHECK_ERR_INVALID);
    problem.grads.key_select_grad.data = nullptr;
    problem.grads.query_grad.data = nullptr;
    EXPECT_EQ(attncheck_nsa_module_grad(&kBuiltin, &problem.args, state, &problem.grads),
              ATTNCHECK_ERR_NULLPTR);
    EXPECT_EQ(attncheck_nsa_module_grad(&kBuiltin, &problem.args, nullptr, &problem.grads),
              ATTNCHECK_ERR_NULLPTR);
    attncheck_nsa_module_free(state);
}

/// The same numbers from tensors with strides, and into them.
TEST(NsaModule, StridesAreHonoured) {
    Problem dense, spread;
    for (std::size_t k = 0; k < dense.query.halves.size(); ++k)
        dense.query.halves[k] = static_cast<std::uint16_t>(0x3f80 + k % 61);
    Tensor wide({kTokens, kHeads, 2 * kDim}, 0), wide_grad = wide;
    wide_grad.view.data = wide_grad.halves.data();
    for (std::size_t k = 0; k < dense.query.halves.size(); ++k)
        wide.halves[2 * k] = dense.query.halves[k];
    for (attncheck_tensor* view : {&wide.view, &wide_grad.view}) {
        view->shape[2] = kDim;
        view->strides[2] = 2;
    }
    spread.args.query = wide.view;
    spread.grads.query_grad = wide_grad.view;
    for (Problem* problem : {&dense, &spread}) {
        attncheck_nsa_module_state* state = nullptr;
        ASSERT_EQ(attncheck_nsa_module(&kBuiltin, &problem->args, &state), ATTNCHECK_OK);
        ASSERT_EQ(attncheck_nsa_module_grad(&kBuiltin, &problem->args, state, &problem->grads),
                  ATTNCHECK_OK);
        attncheck_nsa_module_free(state);
    }
    EXPECT_EQ(dense.out.halves, spread.out.halves);
    EXPECT_EQ(dense.key_grad.halves, spread.key_grad.halves);
    for (std::size_t k = 0; k < dense.query_grad.halves.size(); ++k)
        ASSERT_EQ(dense.query_grad.halves[k], wide_grad.halves[2 * k]) << k;
}

/// Only rows beyond the last sequence: zeros, and no operator is called.
TEST(NsaModule, WithoutTokensEverythingIsZero) {
    Problem problem;
    problem.ends = {0, 0};
    problem.args.actual_seq_len.values = problem.ends.data();
    const attncheck_nsa_operators none{};
    attncheck_nsa_module_state* state = nullptr;
    ASSERT_EQ(attncheck_nsa_module(&none, &problem.args, &state), ATTNCHECK_OK);
    ASSERT_EQ(attncheck_nsa_module_grad(&none, &problem.args, state, &problem.grads), ATTNCHECK_OK);
    attncheck_nsa_module_free(state);
    for (const Tensor* tensor : {&problem.out, &problem.query_grad, &problem.key_weight_grad})
        EXPECT_EQ(tensor->halves, std::vector<std::uint16_t>(tensor->halves.size()));
}

}  // namespace
