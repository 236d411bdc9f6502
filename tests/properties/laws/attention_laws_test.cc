// Attention laws against kernels written here: what is correct must not be accused.
#include "properties/laws/attention_laws.h"

#include <attncheck/candidate.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "properties/laws/attention_channels.h"
#include "properties/laws/attention_run.h"
#include "properties/operators/attention/case.h"
#include "properties/operators/catalogue.h"
#include "properties/operators/flash_attention/problem.h"
#include "properties/operators/nsa_compress_attention/problem.h"
#include "properties/operators/nsa_selected_attention/problem.h"
#include "tests/properties/case/case_line.h"
#include "tests/properties/search/planted.h"

namespace attncheck::properties {
namespace {

using Values = std::map<std::string, std::vector<double>>;  ///< outputs in packed order, by name

/// A kernel on problems instead of calls: an operator that remembers the problem of its last call,
/// and a candidate that answers that call.
class ProblemKernel : public AttentionOperator, public Candidate {
public:
    ProblemKernel(const AttentionOperator& of, std::function<Values(const AttentionProblem&)> kernel)
        : of_(of), kernel_(std::move(kernel)) {}

    AttentionProblem problem(const Spec& spec) const override { return of_.problem(spec); }
    Call call(const AttentionProblem& problem) const override {
        last_ = problem;
        return of_.call(problem);
    }
    AttentionProblem with_heads(const AttentionProblem& problem,
                                const std::vector<std::int64_t>& query,
                                const std::vector<std::int64_t>& kv) const override {
        return of_.with_heads(problem, query, kv);
    }
    std::optional<AttentionProblem> single_sequence(const AttentionProblem& problem,
                                                    std::size_t sequence,
                                                    Random& random) const override {
        return of_.single_sequence(problem, sequence, random);
    }
    void with_less_data(Spec& spec, Random& random) const override {
        of_.with_less_data(spec, random);
    }

    const CandidateInfo& info() const override { return info_; }
    CallResult run(const Call& call, const RunOptions&) override {
        CallResult result;
        result.outputs.resize(call.tensors.size());
        for (std::size_t i = 0; i < call.tensors.size(); ++i)
            if (call.tensors[i].output)
                result.outputs[i].resize(static_cast<std::size_t>(call.tensors[i].elements()));
        for (const auto& [name, values] : kernel_(last_)) {
            const AttentionOutput& output = last_.output_named(name);
            const auto width = static_cast<std::size_t>(output.width);
            for (const OutputPart& part : output.parts) {
                Bits& bits = result.outputs[tensor_index(call, part.tensor)];
                for (std::size_t row = 0; row * width < values.size(); ++row)
                    for (std::size_t c = 0; c < static_cast<std::size_t>(part.width); ++c)
                        bits[output.first_element(part, static_cast<std::int64_t>(row)) + c] =
                            ref::encode(output.dtype,
                                        values[row * width + static_cast<std::size_t>(part.begin) +
                                               c]);
            }
        }
        return result;
    }
    std::vector<CallResult> run_together(std::span<const Call* const>, int) override { return {}; }
    void restart() override {}
    void limit_time(std::chrono::duration<double>) override {}

private:
    const AttentionOperator& of_;
    std::function<Values(const AttentionProblem&)> kernel_;
    CandidateInfo info_;
    mutable AttentionProblem last_;
};

std::vector<double> in_lanes(const std::vector<double>& rows) {
    std::vector<double> lanes;
    for (const double row : rows) lanes.insert(lanes.end(), 8, row);
    return lanes;
}

/// The exact forward, every output rounded once, to nearest; the sum is that of exp(logit - row_max)
/// with the maximum as it is stored.
Values exact_forward(const AttentionProblem& problem) {
    const auto rows = static_cast<std::size_t>(problem.query_rows());
    std::vector<double> output(rows * static_cast<std::size_t>(problem.shape.value_dim)),
        row_max(rows), row_sum(rows);
    const AttentionNumbers numbers(problem);
    ref::dense_attention<double>(problem.forward(numbers), output, row_max, row_sum);
    for (std::size_t row = 0; row < rows; ++row)
        row_sum[row] *= std::exp(row_max[row] - static_cast<double>(static_cast<float>(row_max[row])));
    return {{"softmax_max", in_lanes(row_max)},
            {"softmax_sum", in_lanes(row_sum)},
            {"attention_out", output}};
}

/// The exact probabilities; P V with products and sums kept in the storage type.
Values forward_with_half_sums(const AttentionProblem& problem) {
    const auto half = [&](double x) {
        return ref::decode(problem.dtype, ref::encode(problem.dtype, x));
    };
    Values values = exact_forward(problem);
    const ref::AttentionShape& s = problem.shape;
    const AttentionNumbers numbers(problem);
    const ref::AttentionInputs<double> in = numbers.inputs();
    std::vector<ref::KeyColumn> columns;
    ref::AttentionRow<double> row;
    for (std::int64_t t = 0; t < s.query_rows; ++t)
        for (std::int64_t n = 0; n < s.query_heads; ++n) {
            columns.clear();
            problem.columns(t, n, columns);
            ref::attend_row(s, in, t, n, std::span<const ref::KeyColumn>(columns), row);
            for (std::int64_t d = 0; d < s.value_dim; ++d) {
                double sum = 0;
                for (std::size_t j = 0; j < columns.size(); ++j) {
                    const std::int64_t key = columns[j].key * s.kv_heads + n / s.group();
                    const double v = numbers.value[static_cast<std::size_t>(key * s.value_dim + d)];
                    if (columns[j].kept) sum = half(sum + half(row.probs[j] / in.keep_prob * v));
                }
                values["attention_out"][static_cast<std::size_t>(
                    (t * s.query_heads + n) * s.value_dim + d)] = sum;
            }
        }
    return values;
}

struct Family {
    const char* op;
    const AttentionOperator& of;
};
const Family kFamilies[] = {
    {"flash_attention_score", flash_attention_operator()},
    {"nsa_selected_attention", selected_attention_operator()},
    {"nsa_compress_attention", compress_attention::attention_operator()},
};

/// Legal cases of a property, small ones first.
void for_each_case(const Family& family, const char* name,
                   const std::function<void(const Spec&)>& visit) {
    const Operator& op = *find_operator(family.op);
    const Property& property = *op.property(name);
    Random random(7);
    for (int count = 0; count < 60;) {
        Spec spec = op.sample(random, count);
        if (property.adapt) property.adapt(spec, random);
        if (op.illegal(spec) || (property.domain && !property.domain(spec))) continue;
        ++count;
        visit(spec);
    }
}

/// A fused exponent returns such numbers: a sum below 1 where the maximum was rounded up.
TEST(AttentionLaws, MostExactStatisticsHold) {
    for (const Family& family : kFamilies) {
        ProblemKernel kernel(family.of, exact_forward);
        PropertyContext context{kernel, {}};
        for_each_case(family, "statistics", [&](const Spec& spec) {
            const Verdict verdict = statistics(kernel, spec, context);
            EXPECT_FALSE(verdict.failed()) << print(spec) << "\n" << verdict.message;
        });
    }
}

/// exp=N has exp(0) wrong by as much, and sum=rounded rounds that.
TEST(AttentionLaws, SumsOfCoarseExponentialsMayBeBelowOne) {
    const AttentionProblem problem = flash_attention_operator().problem(spec_of(
        "flash_attention_score{dtype=fp16 q=[1] kv=[1] layout=BSH kv_heads=1 group=1 dim=1 value_dim=1 data=zeros seed=0}"));
    const auto fails = [&](double sum, const char* declared) {
        return verdict_on_pair(problem, std::vector<double>(8, 0), std::vector<double>(8, sum),
                               ref::parse_rounding_class(declared), ref::Grant::rounding)
            .failed();
    };
    const double low = 1 - 399 * 0x1p-24;
    EXPECT_FALSE(fails(low, "exp=400"));
    EXPECT_TRUE(fails(low, "default"));
    EXPECT_TRUE(fails(1 - 420 * 0x1p-24, "exp=400"));
    EXPECT_FALSE(fails(1 - 0x1p-11, "exp=400 sum=rounded"));
}

/// Laws of shifted and split inputs, where every output is rounded once, to nearest.
TEST(AttentionLaws, ShiftsOfTheExactForwardHold) {
    for (const Family& family : kFamilies) {
        ProblemKernel kernel(family.of, exact_forward);
        PropertyContext context{kernel, {}};
        const std::pair<const char*, AttentionLaw> laws[] = {{"value_linearity", value_linearity},
                                                             {"value_shift", value_shift},
                                                             {"key_shift", key_shift}};
        for (const auto& [name, law] : laws)
            for_each_case(family, name, [&, law = law](const Spec& spec) {
                const Verdict verdict = law(kernel, spec, context);
                EXPECT_FALSE(verdict.failed()) << print(spec) << "\n" << verdict.message;
            });
    }
}

/// The exact forward with the first key of the first head as zeros.
Values forward_without_first_key(const AttentionProblem& problem) {
    AttentionProblem changed = problem;
    const auto end = changed.key.begin() + std::min<std::ptrdiff_t>(std::ssize(changed.key),
                                                                    problem.shape.head_dim);
    std::fill(changed.key.begin(), end, 0u);
    return exact_forward(changed);
}

TEST(AttentionLaws, KeyShiftSeesAKeyThatIsLeftOut) {
    for (const Family& family : kFamilies) {
        ProblemKernel kernel(family.of, forward_without_first_key);
        PropertyContext context{kernel, {}};
        int failures = 0;
        for_each_case(family, "key_shift", [&](const Spec& spec) {
            failures += key_shift(kernel, spec, context).failed();
        });
        EXPECT_GT(failures, 10) << family.op;
    }
}

/// Sums in fp16 round at an absolute size near zero. Twice V is then not twice O, and only a
/// declared class says that this is no defect.
TEST(AttentionLaws, ScalingDoesNotAccuseSumsInHalf) {
    const char* const lines[] = {
        "flash_attention_score{dtype=fp16 q=[2] kv=[1000] layout=TND kv_heads=1 group=1 dim=64 "
        "value_dim=64 scale=rsqrt data=normal seed=5}",
        "nsa_selected_attention{dtype=fp16 q=[2] kv=[1024] kv_heads=1 group=1 dim=192 "
        "value_dim=128 block=64 count=16 scale=rsqrt topk=canonical data=normal seed=5}",
        "nsa_compress_attention{dtype=fp16 q=[2] cmp=[1000] kv_heads=1 group=1 dim=64 value_dim=64 "
        "block=16 stride=16 select=16 count=1 scale=rsqrt data=normal seed=5}"};
    for (std::size_t k = 0; k < std::size(lines); ++k) {
        ProblemKernel kernel(kFamilies[k].of, forward_with_half_sums);
        PropertyContext declared{kernel, ref::parse_rounding_class("acc=half")},
            undeclared{kernel, ref::parse_rounding_class("order=fixed")};
        const Spec spec = spec_of(lines[k]);
        ASSERT_EQ(find_operator(kFamilies[k].op)->illegal(spec), std::nullopt);
        const Verdict verdict = value_scale(kernel, spec, declared);
        EXPECT_FALSE(verdict.failed()) << lines[k] << "\n" << verdict.message;
        EXPECT_TRUE(value_scale(kernel, spec, undeclared).failed()) << lines[k];
    }
}

/// The exact forward, but <q, k> beyond fp16 is infinite: its row has no number.
Values forward_that_stores_products(const AttentionProblem& problem) {
    Values values = exact_forward(problem);
    const ref::AttentionShape& s = problem.shape;
    const AttentionNumbers numbers(problem);
    std::vector<ref::KeyColumn> columns;
    const auto fill = [&](const char* name, std::int64_t row, std::int64_t width, double value) {
        std::fill_n(values[name].begin() + row * width, width, value);
    };
    for (std::int64_t t = 0; t < s.query_rows; ++t)
        for (std::int64_t n = 0; n < s.query_heads; ++n) {
            const std::int64_t row = t * s.query_heads + n;
            columns.clear();
            problem.columns(t, n, columns);
            const bool overflows = std::ranges::any_of(columns, [&](const ref::KeyColumn& column) {
                const std::int64_t key = column.key * s.kv_heads + n / s.group();
                return std::fabs(ref::inner_product(&numbers.query[static_cast<std::size_t>(row * s.head_dim)],
                                                    &numbers.key[static_cast<std::size_t>(key * s.head_dim)], s.head_dim)) > 65504;
            });
            if (!overflows) continue;
            fill("softmax_max", row, 8, HUGE_VAL);
            fill("softmax_sum", row, 8, std::nan(""));
            fill("attention_out", row, s.value_dim, std::nan(""));
        }
    return values;
}

/// Products that are stored before they are scaled overflow in one of two runs and not in the other.
TEST(AttentionLaws, ScaleFoldingLeavesScoresThatOverflow) {
    ProblemKernel kernel(selected_attention_operator(), forward_that_stores_products);
    const Spec spec = spec_of(
        "nsa_selected_attention{dtype=fp16 q=[254] kv=[96] kv_heads=1 group=1 dim=192 value_dim=128 block=16 count=1 topk=same "
        "data=spiky seed=15991159}");
    for (const char* declared : {"scores=half", "steps=half", "default"}) {
        PropertyContext context{kernel, ref::parse_rounding_class(declared)};
        EXPECT_EQ(scale_folding(kernel, spec, context).failed(), std::string(declared) == "default") << declared;
    }
}

/// The exact forward of a query that is stored after its product with the scale and log2 e: NaN where that is infinite.
Values forward_of_scaled_query(const AttentionProblem& problem) {
    Values values = exact_forward(problem);
    for (const std::uint32_t bits : problem.query)
        if (std::fabs(ref::decode(problem.dtype, bits)) * problem.scale * 1.442695 > ref::max_finite(problem.dtype))
            for (auto& [name, of] : values) std::ranges::fill(of, std::nan(""));
    return values;
}

/// A query of 8000 times 3 log2 e is a number of fp16, one of 16000 is not.
TEST(AttentionLaws, PowerOfTwoLeavesScaledInputsThatOverflow) {
    ProblemKernel kernel(selected_attention_operator(), forward_of_scaled_query);
    int failed = 0;
    for (std::uint64_t seed = 0; seed < 8; ++seed) {  // each draws its power
        const Spec spec = spec_of(
            "nsa_selected_attention{dtype=fp16 q=[1] kv=[16] kv_heads=1 group=1 dim=128 value_dim=128 block=16 count=1 "
            "scale=large data=zeros seed=" + std::to_string(seed) + " set=[query[0,0,0]=8000,key[0,0,0]=1]}");
        PropertyContext scaled{kernel, ref::parse_rounding_class("scale=half")}, usual{kernel, {}};
        EXPECT_FALSE(power_of_two(kernel, spec, scaled).failed()) << seed;
        failed += power_of_two(kernel, spec, usual).failed();
    }
    EXPECT_GT(failed, 0) << "the word is not needed";
}

/// Arguments without effect are asked for inside of what a candidate declares.
TEST(UnusualArguments, KeepToWhatIsDeclared) {
    const Operator& op = *find_operator("attention");
    const Property& law = *op.property("unusual_arguments");
    const Spec spec = spec_of(
        "attention{dtype=fp32 q=[2] kv=[2] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 window_right=0 data=normal seed=3}");
    std::int64_t widest = -1;
    testing::NiceMock<MockCandidate> kernel;
    ON_CALL(kernel, run).WillByDefault([&](const Call& call, const RunOptions&) {
        widest = std::max(widest, call.number("window_left"));
        CallResult result;
        result.status = ATTNCHECK_DECLINED;
        return result;
    });
    for (const bool is_declared : {false, true}) {
        widest = -1;
        PropertyContext context{kernel, {}};
        if (is_declared) context.declared = [](const Spec& of) { return of.number("window_left") <= 16; };
        for (std::uint64_t seed = 0; seed < 20; ++seed) {
            Spec other = spec;
            other.seed = seed;
            (void)law.check(other, context);
        }
        EXPECT_EQ(widest > 16, !is_declared) << widest;
    }
}

/// Under every class that keeps such numbers in fp16, whatever outputs an operator has: lists have no bound.
TEST(AttentionLaws, ScaledNumbersInFp16AreJudgedForEveryOperator) {
    for (const Family& family : kFamilies) {
        ProblemKernel kernel(family.of, exact_forward);
        const std::pair<const char*, AttentionLaw> laws[] = {{"scale_folding", scale_folding},
                                                             {"value_scale", value_scale},
                                                             {"power_of_two", power_of_two}};
        for (const char* declared : {"scores=half", "steps=half", "split=half"}) {
            PropertyContext context{kernel, ref::parse_rounding_class(declared)};
            for (const auto& [name, law] : laws) {
                int held = 0;
                for_each_case(family, name, [&, law = law](const Spec& spec) {
                    const Verdict verdict = law(kernel, spec, context);
                    EXPECT_FALSE(verdict.failed()) << declared << " " << print(spec) << "\n" << verdict.message;
                    held += verdict.kind == Verdict::Kind::held;
                });
                EXPECT_GT(held, 20) << declared << " " << name << " " << family.op;
            }
        }
    }
}

/// A subnormal dS decides whether a sum rounds up at a tie: scaled dO then breaks the relation, and no
/// sum is wrong. dS may be that small where P is not: row 0 has P of e^-60 and a delta of e^-48.
TEST(AttentionLaws, TinyTermsAreThoseThatMayBeSubnormal) {
    const auto has_tiny = [](const std::string& numbers) {
        const AttentionProblem problem = flash_attention_operator().problem(spec_of(
            "flash_attention_score_grad{dtype=fp32 q=[1] kv=[3] layout=BSH kv_heads=1 group=1 dim=1 "
            "value_dim=1 scale=one data=zeros seed=0 set=[query[0,0,0]=1,dy[0,0,0]=1," + numbers + "]}"));
        return has_tiny_terms(problem);
    };
    EXPECT_TRUE(has_tiny("key[0,0,0]=60,key[1,0,0]=12,value[1,0,0]=2"));   // P delta = e^-60 2 e^-48
    EXPECT_FALSE(has_tiny("key[0,0,0]=60,key[1,0,0]=12,value[0,0,0]=2"));  // P (0 - 2)
    EXPECT_TRUE(has_tiny("key[0,0,0]=90"));                                // P
    EXPECT_FALSE(has_tiny("key[0,0,0]=30,key[1,0,0]=28,value[1,0,0]=2"));
    EXPECT_FALSE(has_tiny("key[0,0,0]=200"));  // 0 in fp32
}

/// The exact output and LSE of a neutral problem, the LSE times `factor`.
Values neutral_forward(const AttentionProblem& problem, double factor) {
    const Values pair = exact_forward(problem);
    Values out{{"out", pair.at("attention_out")}};
    for (std::size_t k = 0; k < pair.at("softmax_max").size(); k += 8)
        out["lse"].push_back(factor *
                             (pair.at("softmax_max")[k] + std::log(pair.at("softmax_sum")[k])));
    return out;
}

// A logarithm of base 2 is named; another wrong LSE is not.
TEST(NeutralLaws, NameAnLseOfBase2) {
    const Spec spec = spec_of(
        "attention{dtype=fp32 q=[5,5] kv=[9,9] layout=bhsd kv_heads=1 group=2 dim=8 value_dim=4 "
        "scale=rsqrt softcap=2 sink=normal data=normal seed=3}");
    const auto failure_with = [&](double factor) {
        ProblemKernel kernel(neutral_operator(), [factor](const AttentionProblem& problem) {
            return neutral_forward(problem, factor);
        });
        PropertyContext context{kernel, {}};
        return check_agreement(spec, context,
                               attention_case(kernel, spec, ref::Grant::rounding)).failure;
    };
    EXPECT_EQ(failure_with(1), "");
    EXPECT_EQ(failure_with(1 / std::log(2.0)), "lse is log2");
    EXPECT_EQ(failure_with(1.01), "lse is wrong");
}

/// A neutral forward whose output is 0.1 too large, alone or in calls at once.
class WrongNeutralKernel : public ProblemKernel {
public:
    WrongNeutralKernel(bool alone, bool together)
        : ProblemKernel(neutral_operator(),
                        [this](const AttentionProblem& problem) {
                            Values values = neutral_forward(problem, 1);
                            for (double& x : values["out"]) x += wrong_ ? 0.1 : 0;
                            return values;
                        }),
          alone_(alone),
          together_(together) {}

    CallResult run(const Call& call, const RunOptions& options) override {
        wrong_ = alone_;
        return ProblemKernel::run(call, options);
    }
    std::vector<CallResult> run_together(std::span<const Call* const> calls, int) override {
        wrong_ = together_;
        return std::vector<CallResult>(calls.size(), ProblemKernel::run(*calls[0], {}));
    }

private:
    bool alone_, together_, wrong_ = false;
};

// A verdict blames other calls only where the call alone is right.
TEST(CallsAtOnce, AreNotBlamedForWhatIsWrongAlone) {
    const Spec spec = spec_of(
        "attention{dtype=fp32 q=[5,5] kv=[9,9] layout=bhsd kv_heads=1 group=2 dim=8 value_dim=4 "
        "scale=rsqrt data=normal seed=3}");
    const auto failure_of = [&](bool alone, bool together) {
        WrongNeutralKernel kernel(alone, together);
        PropertyContext context{kernel, {}};
        return check_concurrent(spec, context,
                                {attention_case(kernel, spec, ref::Grant::rounding)}, {}).failure;
    };
    EXPECT_EQ(failure_of(false, false), "");
    EXPECT_EQ(failure_of(true, true), "out is wrong");
    EXPECT_EQ(failure_of(false, true), "wrong when called from several threads");
}

// hidden=times_zero: a row that sees no key multiplies its keys by 0 (dP - delta), and an infinite dO makes that no
// number. A row whose numbers are finite is judged all the same.
TEST(HiddenTimesZero, LeavesQueryGradientsOfNonFiniteRows) {
    const Spec spec = parse(
        "attention_grad{dtype=fp16 q=[3] kv=[1] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 "
        "window_left=0 data=zeros seed=0 set=[dout[1,0,0]=inf]}",
        schemas());
    const AttentionProblem problem = neutral_operator().problem(spec);
    ref::RoundingClass rounding;
    rounding.hidden_times_zero = true;
    const std::vector<double> allowed = allowance(tensor_of(expected_of(problem, rounding), "dq"));
    EXPECT_FALSE(std::isinf(allowed[0]));
    EXPECT_TRUE(std::isinf(allowed[1]));
    EXPECT_FALSE(std::isinf(allowed[2]));
}

// A NaN behind kv_length, to which a mask adds -infinity, makes the softmax of the row NaN, by autograd also dS of the
// keys that the window hides.
TEST(HiddenTimesZero, LeavesKeyGradientsOfAllKeysThatALostRowIsPairedWith) {
    const Spec spec = spec_of(
        "attention_grad{dtype=fp32 q=[1] kv=[4] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 window_right=0 "
        "kv_length=some hidden_keys=nan lse=absent data=zeros seed=0}");
    const AttentionProblem problem = neutral_operator().problem(spec);
    for (const char* words : {"hidden=times_zero", "hidden=times_zero forward=own"}) {
        const ref::RoundingClass rounding = ref::parse_rounding_class(words);
        const std::vector<double> allowed = allowance(tensor_of(expected_of(problem, rounding), "dk"));
        for (const std::size_t hidden : {1, 2}) EXPECT_EQ(std::isinf(allowed[hidden]), rounding.own_forward) << words;
    }
}

// d tanh(s / c) c by autograd: dS times the softcap is stored before the slope makes it small.
TEST(StepsInHalf, GradientsOfASoftcapMayLeaveTheRangeOfFp16) {
    const auto is_judged = [](const char* words, int value) {
        const Spec spec = spec_of(fmt::format(
            "attention_grad{{dtype=fp16 q=[1] kv=[2] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 softcap=86 lse=absent "
            "data=zeros seed=0 set=[dout[0,0,0]=2,query[0,0,0]=8,key[0,0,0]=11,key[1,0,0]=11,value[0,0,0]={}]}}",
            value));
        return std::isfinite(
            allowance(tensor_of(expected_of(neutral_operator().problem(spec), ref::parse_rounding_class(words)), "dq"))[0]);
    };
    const char* const steps = "steps=half forward=own group=half";
    EXPECT_FALSE(is_judged(steps, 1536));
    EXPECT_TRUE(is_judged(steps, 512));
    EXPECT_TRUE(is_judged("forward=own", 1536));
}

/// Whether a kernel that adds -infinity to the scores of hidden keys holds, with these operators: NaN in every row that
/// `is_lost`, what it must be elsewhere.
bool holds_with_lost_rows(const AttentionOperator& of, const std::string& line, const std::vector<char>& is_lost,
                          bool times_zero) {
    const Spec spec = spec_of(line);
    ProblemKernel kernel(of, [&](const AttentionProblem& problem) {
        Values values;
        for (auto& [name, expected] : expected_of(problem, {})) {
            values[name] = expected.value;
            const auto width = static_cast<std::size_t>(problem.output_named(name).width);
            for (std::size_t k = 0; k < values[name].size(); ++k)
                if (is_lost[k / width]) values[name][k] = std::nan("");
        }
        return values;
    });
    PropertyContext context{kernel, {}};
    context.rounding.hidden_times_zero = times_zero;
    return !check_agreement(spec, context, attention_case(kernel, spec, ref::Grant::rounding)).failed();
}

// The score of a hidden key is NaN or infinite, and plus -infinity it is NaN.
TEST(HiddenTimesZero, ScoresOfHiddenKeysMayBeNoNumber) {
    const auto holds = [](const char* line, std::vector<char> is_lost) {
        EXPECT_FALSE(holds_with_lost_rows(neutral_operator(), line, is_lost, false)) << line;
        return holds_with_lost_rows(neutral_operator(), line, is_lost, true);
    };
    // No key to see: the LSE is -infinity, unless a hidden key is infinite.
    const char* const lost_key =
        "attention{dtype=fp16 q=[2] kv=[1] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 window_right=0 "
        "align=bottom_right data=zeros seed=0 set=[key[0,0,0]=inf]}";
    EXPECT_TRUE(holds(lost_key, {1, 0}));
    // The same of an infinite query, and of it alone.
    const char* const lost_query =
        "attention{dtype=bf16 q=[2] kv=[1] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 mask=full data=zeros seed=0 "
        "set=[query[0,0,0]=inf,mask[0]=0,mask[1]=0]}";
    EXPECT_TRUE(holds(lost_query, {1, 0}));
    EXPECT_FALSE(holds(lost_query, {0, 1}));
    // Times log2 e an fp32 score leaves its range; one of fp16 numbers does not.
    EXPECT_TRUE(holds(
        "attention{dtype=fp32 q=[1] kv=[2] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 window_right=0 data=zeros "
        "seed=0 set=[query[0,0,0]=1,key[1,0,0]=3.4e38]}",
        {1}));
    EXPECT_FALSE(holds(
        "attention{dtype=fp16 q=[1] kv=[2] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 window_right=0 data=zeros "
        "seed=0 set=[query[0,0,0]=1,key[1,0,0]=65504]}",
        {1}));
}

// Long and thin cases stay thin when a law adapts them: 33001 queries with as many keys take a plain kernel ten seconds.
TEST(AdaptedCases, HaveFewPairs) {
    constexpr std::int64_t kMost = std::int64_t{1} << 23;
    for (const char* name : {"attention", "attention_grad"}) {
        const Operator& op = *find_operator(name);
        for (const char* law : {"hidden", "causality", "packing", "gqa_repeat"}) {
            const Property& property = *op.property(law);
            Random random(3);
            for (int k = 0; k < 1500; ++k) {
                Spec spec = op.sample(random, k % 100);
                property.adapt(spec, random);
                for (std::size_t b = 0; b < spec.lists[0].size(); ++b)
                    ASSERT_LE(spec.lists[0][b] * spec.lists[1][b], kMost)
                        << law << ": " << print(spec);
            }
        }
    }
}

}  // namespace
}  // namespace attncheck::properties
