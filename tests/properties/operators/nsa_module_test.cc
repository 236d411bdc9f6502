// The properties of the NSA module against compositions that are broken on purpose, over the
// built-in operators: each must be killed, and the real one must hold. Defects of operators are
// tests/mutants' concern (MOD-*); these sit in the composition itself.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "properties/operators/nsa_module/runs.h"
#include "properties/candidate/installation.h"
#include "properties/candidate/worker_candidate.h"
#include "properties/operators/catalogue.h"

namespace attncheck::properties::nsa_module {
namespace {

/// Small and rich: several short sequences, overlapping blocks, two kv heads with groups.
const char* kCases[] = {
    "nsa_module{dtype=bf16 seq=[37,5] kv_heads=2 group=2 dim=128 value_dim=128 block=16 stride=16 "
    "select=16 count=2 window=7 gates=random scale=rsqrt data=normal seed=3}",
    "nsa_module{dtype=fp16 seq=[40] kv_heads=1 group=2 dim=128 value_dim=128 block=32 stride=16 "
    "select=32 count=1 window=9 tied=yes gates=random weights=onehot scale=rsqrt data=normal "
    "seed=4}",
    "nsa_module{dtype=bf16 seq=[70] kv_heads=1 group=1 dim=128 value_dim=128 block=16 stride=16 "
    "select=16 count=2 window=3 forced=yes gates=select scale=rsqrt data=normal seed=6}",
    "nsa_module{dtype=bf16 seq=[18] kv_heads=1 group=1 dim=128 value_dim=128 block=16 stride=16 "
    "select=16 count=1 window=9 tied=yes weights=mean scale=rsqrt data=ints seed=5}"};

Candidate& builtin() {
    static const auto candidate = [] {
        WorkerOptions options;
        options.library = find_builtin_library();
        return open_worker_candidate(options);
    }();
    return *candidate;
}

/// The built-in candidate of a run that is stopped before call number `calls`.
class StoppedCandidate final : public Candidate {
public:
    explicit StoppedCandidate(int calls) : left_(calls) {}
    const CandidateInfo& info() const override { return builtin().info(); }
    CallResult run(const Call& call, const RunOptions& options) override {
        if (left_-- == 0) throw Stopped();
        return builtin().run(call, options);
    }
    std::vector<CallResult> run_together(std::span<const Call* const> calls, int times) override {
        return builtin().run_together(calls, times);
    }
    void restart() override { builtin().restart(); }
    void limit_time(std::chrono::duration<double> limit) override { builtin().limit_time(limit); }

private:
    int left_;
};

/// True if the composition breaks this property on one of the cases.
bool is_killed_by(const std::string& name) {
    const Property& property = *find_operator("nsa_module")->property(name);
    for (const char* line : kCases) {
        const Spec spec = parse(line, schemas());
        if (property.domain && !property.domain(spec)) continue;
        PropertyContext context{builtin(), {}};
        if (property.check(spec, context).failed()) return true;
    }
    return false;
}

/// Puts a composition in the place of the real one for one test.
struct Broken {
    explicit Broken(Composition composed) { composition() = composed; }
    ~Broken() { composition() = {}; }
};

using Ops = attncheck_nsa_operators;
using Args = attncheck_nsa_module_args;
using State = attncheck_nsa_module_state;
using Grads = attncheck_nsa_module_grad_args;

/// Calls visit(element, i, j, k) for every element of a dense rank-3 tensor of floats.
template <class Visit>
void for_each_float(const attncheck_tensor& tensor, const Visit& visit) {
    auto* values = static_cast<float*>(tensor.data);
    for (std::int64_t i = 0; i < tensor.shape[0]; ++i)
        for (std::int64_t j = 0; j < tensor.shape[1]; ++j)
            for (std::int64_t k = 0; k < tensor.shape[2]; ++k) visit(*values++, i, j, k);
}

TEST(NsaModuleComposition, TheRealOneHolds) {
    for (const Property& property : find_operator("nsa_module")->properties())
        EXPECT_FALSE(is_killed_by(property.name)) << property.name;
}

// Seen on an interrupted run: "the module failed: the run was stopped" was a counterexample.
TEST(NsaModuleComposition, StoppedRunIsNoFailure) {
    const Property& property = *find_operator("nsa_module")->property("end_to_end");
    for (int calls = 0; calls < 7; ++calls) {
        StoppedCandidate stopped(calls);
        PropertyContext context{stopped, {}};
        EXPECT_THROW(property.check(parse(kCases[0], schemas()), context), Stopped) << calls;
    }
}

TEST(NsaModuleComposition, GateGradientWithoutTheDerivativeOfTheSigmoidIsKilled) {
    const Broken broken(
        {attncheck_nsa_module,
         [](const Ops* ops, const Args* args, const State* state, const Grads* grads) {
             const int status = attncheck_nsa_module_grad(ops, args, state, grads);
             const auto* z = static_cast<const float*>(args->gate_logits.data);
             for_each_float(grads->gate_logits_grad, [&](float& dz, auto, auto, auto) {
                 const double g = 1 / (1 + std::exp(-static_cast<double>(*z++)));
                 if (g > 0 && g < 1) dz = static_cast<float>(dz / (g * (1 - g)));
             });
             return status;
         }});
    EXPECT_TRUE(is_killed_by("end_to_end"));
}

TEST(NsaModuleComposition, GatesInAnotherOrderAreKilled) {
    const Broken broken({[](const Ops* ops, const Args* args, State** state) {
                             std::vector<float> swapped;
                             for_each_float(args->gate_logits, [&](float& z, auto, auto, auto k) {
                                 swapped.push_back((&z)[k == 0 ? 1 : k == 1 ? -1 : 0]);
                             });
                             Args other = *args;
                             other.gate_logits.data = swapped.data();
                             return attncheck_nsa_module(ops, &other, state);
                         },
                         attncheck_nsa_module_grad});
    EXPECT_TRUE(is_killed_by("gates_isolate"));
}

TEST(NsaModuleComposition, ClampedGateLogitsAreKilled) {
    const Broken broken({[](const Ops* ops, const Args* args, State** state) {
                             std::vector<float> clamped;
                             for_each_float(args->gate_logits, [&](float& z, auto, auto, auto) {
                                 clamped.push_back(std::max(z, -8.f));
                             });
                             Args other = *args;
                             other.gate_logits.data = clamped.data();
                             return attncheck_nsa_module(ops, &other, state);
                         },
                         attncheck_nsa_module_grad});
    EXPECT_TRUE(is_killed_by("gates_closed"));
}

TEST(NsaModuleComposition, WindowThatIsOneTokenLongerIsKilled) {
    const Broken broken({[](const Ops* ops, const Args* args, State** state) {
                             Args other = *args;
                             ++other.window_size;
                             return attncheck_nsa_module(ops, &other, state);
                         },
                         attncheck_nsa_module_grad});
    EXPECT_TRUE(is_killed_by("end_to_end"));
}

TEST(NsaModuleComposition, TiedGradientsThatAreNotSummedAreKilled) {
    const Broken broken(
        {attncheck_nsa_module,
         [](const Ops* ops, const Args* args, const State*, const Grads* grads) {
             if (args->key_select.data)
                 return int{ATTNCHECK_OK};  // untied: not what is tested; left as zeros
             // Untied with throw-away gradients for two branches: the compress branch's alone
             // remains.
             const std::size_t elements = static_cast<std::size_t>(args->key_compress.shape[0] *
                                                                   args->key_compress.shape[1] *
                                                                   args->key_compress.shape[2]);
             std::vector<std::uint16_t> lost[4];
             for (auto& memory : lost) memory.resize(elements);
             Args apart = *args;
             Grads other = *grads;
             apart.key_select = apart.key_window = args->key_compress;
             apart.value_select = apart.value_window = args->value_compress;
             other.key_select_grad = other.key_window_grad = grads->key_compress_grad;
             other.value_select_grad = other.value_window_grad = grads->value_compress_grad;
             other.key_select_grad.data = lost[0].data();
             other.key_window_grad.data = lost[1].data();
             other.value_select_grad.data = lost[2].data();
             other.value_window_grad.data = lost[3].data();
             State* again = nullptr;
             if (const int status = attncheck_nsa_module(ops, &apart, &again)) return status;
             const int status = attncheck_nsa_module_grad(ops, &apart, again, &other);
             attncheck_nsa_module_free(again);
             return status;
         }});
    EXPECT_TRUE(is_killed_by("tied_is_the_sum"));
}

/// The operators of the run with one of them replaced. Plain pointers have no state of their own.
thread_local const Ops* given = nullptr;
int of_the_run(const char* op, const void* args) { return given->call(given->caller, op, args); }

int forward_with(const Ops* ops, const Args* args, State** state, const Ops& changed) {
    given = ops;
    return attncheck_nsa_module(&changed, args, state);
}
int backward_with(const Ops* ops, const Args* args, const State* state, const Grads* grads,
                  const Ops& changed) {
    given = ops;
    return attncheck_nsa_module_grad(&changed, args, state, grads);
}

TEST(NsaModuleComposition, ListsThatAreEvaluatedAgainForTheGradientAreKilled) {
    const Broken broken({attncheck_nsa_module, [](const Ops* ops, const Args* args,
                                                  const State* state, const Grads* grads) {
                             Ops changed = *ops;
                             changed.nsa_selected_attention_grad =
                                 [](const attncheck_nsa_selected_attention_grad_args* a) {
                                     auto other = *a;
                                     std::vector<std::int32_t> lists;
                                     const auto rows =
                                         a->topk_indices.shape[0] * a->topk_indices.shape[1];
                                     for (std::int64_t row = 0; row < rows; ++row)
                                         for (std::int64_t i = 0; i < a->topk_indices.shape[2]; ++i)
                                             lists.push_back(static_cast<std::int32_t>(i));
                                     other.topk_indices.data = lists.data();
                                     return of_the_run("nsa_selected_attention_grad", &other);
                                 };
                             return backward_with(ops, args, state, grads, changed);
                         }});
    EXPECT_TRUE(is_killed_by("end_to_end"));
    EXPECT_TRUE(is_killed_by("lists_handed_on"));
}

TEST(NsaModuleComposition, StatisticsByTokenAndHeadAreKilled) {
    const Broken broken(
        {attncheck_nsa_module,
         [](const Ops* ops, const Args* args, const State* state, const Grads* grads) {
             Ops changed = *ops;
             changed.flash_attention_score_grad =
                 [](const attncheck_flash_attention_score_grad_args* a) {
                     auto other = *a;
                     std::vector<float> sums;
                     if (a->sparse_mode ==
                         1) {  // the statistics of head n at (t, n), as if it were [T,N]
                         const auto* from = static_cast<const float*>(a->softmax_sum.data);
                         const auto heads = a->softmax_sum.shape[1];
                         std::int64_t first = 0;
                         for (std::int64_t b = 0; b < a->actual_seq_q_len.size; ++b) {
                             const auto length = a->actual_seq_q_len.values[b] - first;
                             for (std::int64_t n = 0; n < heads; ++n)
                                 for (std::int64_t s = 0; s < length; ++s) {
                                     const auto* at = from + (first * heads + s * heads + n) * 8;
                                     sums.insert(sums.end(), at, at + 8);
                                 }
                             first += length;
                         }
                         other.softmax_sum.data = sums.data();
                     }
                     return of_the_run("flash_attention_score_grad", &other);
                 };
             return backward_with(ops, args, state, grads, changed);
         }});
    EXPECT_TRUE(is_killed_by("end_to_end"));
}

TEST(NsaModuleComposition, CompressGradientOfTheOtherBranchIsKilled) {
    const Broken broken(
        {attncheck_nsa_module,
         [](const Ops* ops, const Args* args, const State* state, const Grads* grads) {
             Ops changed = *ops;
             changed.nsa_compress_grad = [](const attncheck_nsa_compress_grad_args* a) {
                 // The blocks' gradients of the last call: those of the keys where the values'
                 // belong.
                 static std::vector<std::uint16_t> last;
                 const auto* from = static_cast<const std::uint16_t*>(a->output_grad.data);
                 const std::size_t count = static_cast<std::size_t>(
                     a->output_grad.shape[0] * a->output_grad.shape[1] * a->output_grad.shape[2]);
                 std::vector<std::uint16_t> own(from, from + count);
                 auto other = *a;
                 if (last.size() == count) other.output_grad.data = last.data();
                 const int status = of_the_run("nsa_compress_grad", &other);
                 last = last.size() == count ? std::vector<std::uint16_t>{} : own;
                 return status;
             };
             return backward_with(ops, args, state, grads, changed);
         }});
    EXPECT_TRUE(is_killed_by("end_to_end"));
}

/// An operator that gives blind rows the mean of the values, as the vendor's does, is no defect of
/// the module: the indicator keeps it out. Without the indicator it shows.
int attention_with_means(const attncheck_nsa_compress_attention_args* a) {
    const int status = of_the_run("nsa_compress_attention", a);
    auto* out = static_cast<std::uint16_t*>(a->attention_out.data);
    const auto row = a->attention_out.shape[1] * a->attention_out.shape[2];
    std::int64_t first = 0;
    for (std::int64_t b = 0; b < a->actual_seq_q_len.size; ++b) {
        const auto end = a->actual_seq_q_len.values[b];
        for (auto t = first; t < std::min(end, first + a->compress_block_size - 1); ++t)
            std::fill_n(out + t * row, row, std::uint16_t{0x3c00});  // some finite number
        first = end;
    }
    return status;
}

TEST(NsaModuleComposition, RowsThatSeeNoBlockAreKeptOutByTheIndicator) {
    const Broken broken({[](const Ops* ops, const Args* args, State** state) {
                             Ops changed = *ops;
                             changed.nsa_compress_attention = attention_with_means;
                             return forward_with(ops, args, state, changed);
                         },
                         attncheck_nsa_module_grad});
    const Spec spec = parse(kCases[0], schemas());
    PropertyContext context{builtin(), {}};
    const nsa_module::Parts parts = parts_of(spec);
    const nsa_module::Run run(parts, context);
    ASSERT_FALSE(run.early_verdict);
    const Broken real({});
    const nsa_module::Run plain(parts, context);
    for (const std::string name : {"attention_out", "query_grad", "gate_logits_grad"})
        EXPECT_EQ(run.bits(name), plain.bits(name)) << name;
}

TEST(NsaModuleComposition, MissingIndicatorIsKilled) {
    const Broken broken({[](const Ops* ops, const Args* args, State** state) {
                             const int status = attncheck_nsa_module(ops, args, state);
                             if (status != ATTNCHECK_OK) return status;
                             // g times the mean of something in rows that see no block: here 1 in
                             // every channel.
                             const auto* z = static_cast<const float*>(args->gate_logits.data);
                             auto* out = static_cast<std::uint16_t*>(args->attention_out.data);
                             const auto heads = args->query.shape[1],
                                        width = args->attention_out.shape[2];
                             const auto dtype = static_cast<ref::Dtype>(args->query.dtype);
                             for (std::int64_t t = 0; t < args->compress_block_size - 1; ++t)
                                 for (std::int64_t h = 0; h < heads; ++h)
                                     for (std::int64_t c = 0; c < width; ++c) {
                                         std::uint16_t& o = out[(t * heads + h) * width + c];
                                         const double gate = ref::sigmoid(
                                             static_cast<double>(z[(t * heads + h) * 3]));
                                         o = static_cast<std::uint16_t>(
                                             ref::encode(dtype, ref::decode(dtype, o) + gate));
                                     }
                             return status;
                         },
                         attncheck_nsa_module_grad});
    EXPECT_TRUE(is_killed_by("end_to_end"));
}

TEST(NsaModuleComposition, QueryGradientWithoutOneBranchIsKilled) {
    const Broken broken(
        {attncheck_nsa_module,
         [](const Ops* ops, const Args* args, const State* state, const Grads* grads) {
             Ops changed = *ops;
             changed.flash_attention_score_grad =
                 [](const attncheck_flash_attention_score_grad_args* a) {
                     const int status = of_the_run("flash_attention_score_grad", a);
                     if (a->sparse_mode == 4)
                         std::fill_n(static_cast<std::uint16_t*>(a->dq.data),
                                     a->dq.shape[0] * a->dq.shape[1] * a->dq.shape[2],
                                     std::uint16_t{0});
                     return status;
                 };
             return backward_with(ops, args, state, grads, changed);
         }});
    EXPECT_TRUE(is_killed_by("end_to_end"));
}

}  // namespace
}  // namespace attncheck::properties::nsa_module
