// What a kernel takes: learned from its refusals, or declared; and the verdict on a kernel that takes one case of a
// thousand (restricted/tiled_flash.c).
#include "properties/search/survey.h"

#include <attncheck/candidate.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "properties/candidate/worker_candidate.h"
#include "properties/operators/catalogue.h"
#include "properties/search/engine.h"
#include "properties/search/filtered_candidate.h"
#include "tests/properties/search/planted.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
using testing::HasSubstr;
using Status = PropertyReport::Status;

const Operator& flash(bool gradient) {
    return *find_operator(gradient ? "flash_attention_score_grad" : "flash_attention_score");
}

std::unique_ptr<Candidate> restricted_kernel(const std::string& name) {
    WorkerOptions options;
    options.library = std::string(RESTRICTED_DIR) + "/" + name + ".so";
    options.worker = WORKER_PATH;
    return open_worker_candidate(options);
}

std::unique_ptr<Candidate> tiled_flash(int defect) {
    return restricted_kernel("tiled_flash_" + std::to_string(defect));
}

Spec case_of(const std::string& line) { return parse(line, schemas()); }

// Most cases that are drawn inside are taken, although one of some six hundred generated ones is.
TEST(Survey, LearnsWhatIsTaken) {
    for (const bool gradient : {false, true}) {
        const auto candidate = tiled_flash(0);
        const Operator& op = flash(gradient);
        const Survey known = survey(op, *candidate, 1, Profile::ascend910b);
        EXPECT_THAT(known.taken.text, HasSubstr("dim=64,128"));
        EXPECT_THAT(known.taken.text, HasSubstr("rope=0"));
        Random random(7);
        int taken = 0, drawn = 0;
        for (int k = 0; k < 200; ++k) {
            const auto spec = known.scope.brought_inside(op.sample(random, k % 100), random);
            if (!spec) continue;
            ++drawn;
            taken += candidate->run(op.build(*spec), {}).ok();
        }
        EXPECT_GE(drawn, 190);
        EXPECT_GE(taken, drawn * 9 / 10);
    }
}

// Fields that the kernel does not restrict stay as they are.
TEST(Survey, LeavesTheRestOpen) {
    const auto candidate = tiled_flash(0);
    const Survey known = survey(flash(false), *candidate, 3, Profile::ascend910b);
    EXPECT_THAT(known.taken.text, Not(HasSubstr("kv_heads")));
    EXPECT_THAT(known.taken.text, Not(HasSubstr("logits")));
}

// A property on a kernel of this kind meets as many cases as were asked for.
TEST(Survey, CasesAreAcceptedOnes) {
    const auto candidate = tiled_flash(0);
    const Operator& op = flash(false);
    const Survey known = survey(op, *candidate, 2, Profile::ascend910b);
    EngineOptions options;
    options.cases = 20;
    options.survey = &known;
    KnownMinima minima;
    const PropertyReport report = run_property(
        op, *op.property("agreement"), *candidate, options, system_clock(),
        [](const PropertyReport&) {}, minima);
    EXPECT_EQ(report.status, Status::held) << report.note;
    EXPECT_EQ(report.cases, 80);  // four times as many features as others have
    EXPECT_LE(report.declined, 16);
}

// A class of which every case is declined is none that a run has to reach.
TEST(Survey, ClassesHaveCasesThatAreTaken) {
    const auto candidate = tiled_flash(0);
    for (const bool gradient : {false, true}) {
        const Operator& op = flash(gradient);
        for (const std::uint64_t seed : {1, 2, 3, 4}) {
            const Survey known = survey(op, *candidate, seed, Profile::ascend910b);
            std::map<std::string, int> asked;  // by class, of those of which no case was taken yet
            for (const std::string& label : known.taken.classes) asked[label] = 0;
            Random random(seed + 1000);
            for (int k = 0; k < 1000 && !asked.empty(); ++k) {
                const auto spec = known.scope.brought_inside(op.sample(random, k % 100, Profile::ascend910b), random);
                if (!spec) continue;
                const auto labels = op.labels(*spec);
                const auto is_open = [&](const std::string& label) { return asked.contains(label); };
                if (std::ranges::none_of(labels, is_open)) continue;
                const bool is_taken = candidate->run(op.build(*spec), {}).status != ATTNCHECK_DECLINED;
                for (const std::string& label : labels)
                    if (is_open(label)) ++asked[label];
                if (is_taken)
                    for (const std::string& label : labels) asked.erase(label);
            }
            for (const auto& [label, times] : asked)
                EXPECT_LT(times, 10) << label << ": every case is declined, seed " << seed;
        }
    }
}

/// What a kernel without windows but causal ones answers: it takes fp32 and no extras.
CallResult full_or_causal(const Call& call) {
    const Int right = call.number("window_right");
    const bool takes = call.tensor("query").type() == ref::Dtype::fp32 &&
                       call.tensor("query").shape.size() == 4 && call.number("window_left") == -1 &&
                       (right == -1 || right == 0) && call.real("softcap") == 0 &&
                       !call.tensor("bias").present && !call.tensor("mask").present &&
                       !call.tensor("sink").present && !call.array("kv_length").present;
    CallResult result;
    result.status = takes ? ATTNCHECK_OK : ATTNCHECK_DECLINED;
    return result;
}

/// Takes the calls for which a condition holds.
auto where(bool (*takes)(const Call&)) {
    return [takes](const Call& call) {
        CallResult result;
        result.status = takes(call) ? ATTNCHECK_OK : ATTNCHECK_DECLINED;
        return result;
    };
}

bool is_latent(const Call& call) {
    return call.tensor("query").shape.back() == 192 && call.tensor("value").shape.back() == 128;
}
bool has_alibi(const Call& call) { return call.tensor("real_shift").present && call.number("pse_type") >= 2; }
bool has_prefix(const Call& call) {
    return call.tensor("atten_mask").present && (call.number("sparse_mode") == 5 || call.number("sparse_mode") == 6);
}

/// One width, eight query heads for a key head, sinks, 16 bits.
bool has_sinks_of_eight(const Call& call) {
    const auto heads = [&](const char* name) { return *(call.tensor(name).shape.end() - 2); };
    return call.tensor("sink").present && call.tensor("query").dtype != ATTNCHECK_FLOAT32 &&
           call.tensor("query").shape.back() == 64 && heads("query") == 8 * heads("key");
}

// None of the cases that people run is taken.
TEST(Survey, FindsWhatFewPeopleRun) {
    struct Few {
        const char* op;
        bool (*takes)(const Call&);
        const char* text;
    };
    for (const Few& few : {Few{"attention", is_latent, "dim=192 value_dim=128"},
                           Few{"attention", has_sinks_of_eight, "group=8 dim=64"},
                           Few{"flash_attention_score", has_alibi, "pse_type!=0,1"},
                           Few{"flash_attention_score", has_prefix, "sparse=5,6"}}) {
        testing::NiceMock<MockCandidate> kernel;
        // A thousand sequences of 80 wide heads take a second to make: each is asked for once at most.
        constexpr double kLarge = 1 << 25;
        int large = 0;
        answer_calls(kernel, [&, answer = where(few.takes)](const Call& call) {
            double elements = 0;
            for (const Tensor& tensor : call.tensors) elements += static_cast<double>(tensor.elements());
            large += elements > kLarge;
            return answer(call);
        });
        for (const std::uint64_t seed : {71, 72, 74}) {
            const Survey known = survey(*find_operator(few.op), kernel, seed, Profile::ascend910b);
            EXPECT_FALSE(known.takes_nothing) << few.text << ", seed " << seed;
            // Either what is taken or all that is refused.
            EXPECT_THAT(known.taken.text, testing::AnyOf(HasSubstr(few.text), HasSubstr("sparse!=0,1,2,3,4,7,8"))) << "seed " << seed;
        }
        EXPECT_LE(large, 3) << few.text;
    }
}

/// Packed sequences, several query heads for a key head.
bool has_groups(const Call& call) {
    const Tensor &query = call.tensor("query"), &key = call.tensor("key");
    return query.shape.size() == 3 && query.shape[1] > key.shape[1];
}

/// One new token for each sequence.
bool has_single_queries(const Call& call) {
    return call.tensor("query").shape.size() == 4 && call.tensor("query").shape[1] == 1;
}

// All groups but one are taken, not those of popular sizes; and what decodes is no kernel of certain multiples.
TEST(Survey, LearnsSmallSizes) {
    const Operator& op = *find_operator("attention");
    testing::NiceMock<MockCandidate> kernel;
    for (const bool are_groups : {true, false})
        for (const std::uint64_t seed : {2, 3}) {
            const auto takes = are_groups ? has_groups : has_single_queries;
            answer_calls(kernel, where(takes));
            const Survey known = survey(op, kernel, seed, Profile::ascend910b);
            Random random(seed);
            int drawn = 0, taken = 0, small = 0;
            for (int k = 0; k < 200; ++k) {
                const auto spec = known.scope.brought_inside(op.sample(random, k % 100), random);
                if (!spec) continue;
                ++drawn;
                taken += takes(op.build(*spec));
                small += spec->number("group") >= 3 && spec->number("group") < 8;
            }
            EXPECT_GE(drawn, 190) << known.taken.text;
            EXPECT_GE(taken, drawn * 95 / 100) << known.taken.text;
            EXPECT_GE(small, 10) << known.taken.text;
        }
}

bool has_full_tiles(const Call& call) {
    constexpr std::int64_t kTile = 128;
    const Tensor& key = call.tensor("key");
    return key.shape.size() == 4 && key.shape[1] >= kTile && call.tensor("query").shape[3] % 64 == 0;
}

// No tile of keys is less than full: any length from 128 on.
TEST(Survey, LearnsTheLeastLength) {
    const Operator& op = *find_operator("attention");
    testing::NiceMock<MockCandidate> kernel;
    for (const std::uint64_t seed : {2, 3, 4}) {
        answer_calls(kernel, where(has_full_tiles));
        const Survey known = survey(op, kernel, seed, Profile::ascend910b);
        EXPECT_THAT(known.taken.text, testing::AnyOf(HasSubstr("kv:least!=0..15,"), HasSubstr("kv:least=128..255")));
        Random random(seed);
        int drawn = 0, taken = 0, ragged = 0;
        for (int k = 0; k < 200; ++k) {
            const auto spec = known.scope.brought_inside(op.sample(random, k % 100), random);
            if (!spec) continue;
            ++drawn;
            taken += has_full_tiles(op.build(*spec));
            ragged += spec->lists[1].front() % 128 != 0;
        }
        EXPECT_GE(drawn, 180) << known.taken.text;
        EXPECT_GE(taken, drawn * 9 / 10) << known.taken.text;
        EXPECT_GE(ragged, 40) << known.taken.text;
    }
}

bool has_whole_widths(const Call& call) {
    return call.tensor("query").shape.back() % 16 == 0 && call.tensor("value").shape.back() % 16 == 0;
}

// Half of a width is another one that is taken; one more is not.
TEST(Survey, WidthsMayDifferWhereOneMoreIsDeclined) {
    const Operator& op = *find_operator("attention");
    testing::NiceMock<MockCandidate> kernel;
    answer_calls(kernel, where(has_whole_widths));
    for (const std::uint64_t seed : {71, 72, 74}) {
        const Survey known = survey(op, kernel, seed, Profile::ascend910b);
        EXPECT_THAT(known.taken.text, Not(HasSubstr("only value_dim=dim"))) << "seed " << seed;
        Random random(seed);
        int differ = 0;
        for (int k = 0; k < 300; ++k)
            if (const auto spec = known.scope.brought_inside(op.sample(random, k % 100), random))
                differ += spec->number("dim") != spec->number("value_dim");
        EXPECT_GE(differ, 30) << "seed " << seed;
    }
}

bool has_plain_mask(const Call& call) {
    const Tensor& mask = call.tensor("atten_mask");
    return !mask.present || (mask.shape.size() == 4 && call.number("sparse_mode") <= 1);
}

// A mask is declined in some modes and forms: nothing that the declined cases have besides is to blame.
TEST(Survey, BlamesNothingElseThanWhatIsDeclined) {
    const Operator& op = flash(false);
    testing::NiceMock<MockCandidate> kernel;
    answer_calls(kernel, where(has_plain_mask));
    for (const std::uint64_t seed : {71, 72, 74}) {
        const Survey known = survey(op, kernel, seed, Profile::ascend910b);
        for (const char* field : {" keep!=", "prefix!=", "tokens!=", "pse_type!=", "pse!=", "start!=", "drop!="})
            EXPECT_THAT(known.taken.text, Not(HasSubstr(field))) << "seed " << seed;
        EXPECT_THAT(known.taken.text, HasSubstr("not mask=bool with mask_form=single")) << "seed " << seed;
    }
}

// A window that has few widths is none of the usual sizes: no window and a causal one are both found.
TEST(Survey, LearnsBothOfCausalAndFull) {
    testing::NiceMock<MockCandidate> kernel;
    answer_calls(kernel, full_or_causal);
    for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
        const Survey known = survey(*find_operator("attention"), kernel, seed, Profile::ascend910b);
        EXPECT_THAT(known.taken.text, HasSubstr(" window_right=-1,0 ")) << "seed " << seed;
    }
}

// A mode that is declined with another mode only is one that is taken.
TEST(Survey, TakesABiasThatOneLayoutDeclines) {
    testing::NiceMock<MockCandidate> kernel;
    answer_calls(kernel, [](const Call& call) {
        const Tensor& bias = call.tensor("pse_shift");
        const bool is_packed = call.tensor("query").shape.size() == 3 && call.tensor("softmax_max").shape.size() == 3;
        CallResult result;
        const bool is_square = bias.shape.size() == 4 && bias.shape[2] != 1024;
        result.status = call.tensor("query_rope").present || (bias.present && call.number("pse_type") < 2 && (is_packed || !is_square))
                            ? ATTNCHECK_DECLINED
                            : ATTNCHECK_OK;
        return result;
    });
    for (const std::uint64_t seed : {1, 2, 5}) {
        const Survey known = survey(flash(true), kernel, seed, Profile::ascend910b);
        EXPECT_TRUE(known.scope.holds(case_of("flash_attention_score_grad{dtype=bf16 q=[9] kv=[7] layout=BSND kv_heads=2 "
                                              "group=1 dim=64 value_dim=64 pse=plain pse_type=1 data=normal seed=1}")))
            << "seed " << seed << ": " << known.taken.text;
    }
}

// The calls of a survey are cheap: a naive kernel needs less than a second for any of them.
TEST(Survey, AsksForNothingLarge) {
    Int most = 0;
    testing::NiceMock<MockCandidate> kernel;
    answer_calls(kernel, [&](const Call& call) {
        const Tensor &query = call.tensor("query"), &key = call.tensor("key");
        if (query.shape.size() == 4)
            most = std::max(most, static_cast<Int>(query.elements()) * key.shape[1]);
        return full_or_causal(call);
    });
    for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 492461122})
        (void)survey(*find_operator("attention_grad"), kernel, seed, Profile::ascend910b);
    EXPECT_LE(most, Int{1} << 28) << "products of a query and a key element";
}

/// Counts calls, and those that are declined, of those behind the first hundred.
class CountedCalls final : public FilteredCandidate {
public:
    using FilteredCandidate::FilteredCandidate;
    CallResult run(const Call& call, const RunOptions& options) override {
        CallResult result = candidate_.run(call, options);
        note(result);
        return result;
    }
    std::vector<CallResult> run_together(std::span<const Call* const> together, int times) override {
        auto results = candidate_.run_together(together, times);
        for (const CallResult& result : results) note(result);
        return results;
    }
    void skip() { calls = declined = 0; }
    int calls = 0, declined = 0;

private:
    void note(const CallResult& result) {
        ++calls;
        declined += result.kind == CallResult::Kind::returned && result.status == ATTNCHECK_DECLINED;
    }
};

// Nor does a law ask again and again for another call that the kernel declines: a layout that it does not know, a mode
// that means the same, other shapes at the same time.
TEST(Survey, OtherCallsOfALawAreAcceptedOnes) {
    const auto kernel = tiled_flash(0);
    CountedCalls candidate(*kernel);
    const Operator& op = flash(false);
    const Survey known = survey(op, candidate, 1, Profile::ascend910b);
    candidate.skip();
    EngineOptions options;
    options.cases = 10;
    options.survey = &known;
    KnownMinima minima;
    for (const char* law : {"agreement", "concurrent", "layouts", "attributes"}) {
        const PropertyReport report = run_property(op, *op.property(law), candidate, options,
                                                   system_clock(), [](const PropertyReport&) {},
                                                   minima);
        EXPECT_NE(report.status, Status::inconclusive) << law << ": " << report.note;
    }
    EXPECT_GE(candidate.calls, 150);
    EXPECT_LE(candidate.declined, candidate.calls / 8);
}

class RestrictedLaws : public testing::TestWithParam<std::pair<bool, std::uint64_t>> {};

// Of all calls that laws make of a kernel with the usual limits, and of all cases that judged laws draw, one of twenty at
// most is declined, and every law is judged or needs what the kernel does not take: it then ends after ten cases.
TEST_P(RestrictedLaws, AskForWhatIsTaken) {
    const auto kernel = tiled_flash(0);
    CountedCalls candidate(*kernel);
    const auto [gradient, seed] = GetParam();
    const Operator& op = flash(gradient);
    const Survey known = survey(op, candidate, seed, Profile::ascend910b);
    EngineOptions options;
    options.seed = seed;
    options.cases = 30;
    options.survey = &known;
    KnownMinima minima;
    candidate.skip();
    std::set<std::string> declined;
    std::string by_law;
    Int cases = 0, declined_cases = 0;
    for (const Property& law : op.properties()) {
        if (law.validation || law.large) continue;
        const PropertyReport report = run_property(op, law, candidate, options, system_clock(),
                                                   [](const PropertyReport&) {}, minima);
        EXPECT_THAT(report.status, testing::AnyOf(Status::held, Status::declined)) << law.name << ": " << report.note;
        cases += report.cases;
        if (report.status == Status::declined) {
            declined.insert(law.name);
            EXPECT_LE(report.declined, 10) << law.name;
            continue;
        }
        declined_cases += report.declined;
        if (report.declined > 0) by_law += fmt::format(" {} {}", law.name, report.declined);
    }
    EXPECT_GE(candidate.calls, 2000);
    EXPECT_LE(candidate.declined * 20, candidate.calls) << candidate.declined << " of " << candidate.calls;
    EXPECT_LE(declined_cases * 20, cases + declined_cases) << declined_cases << " beside " << cases << ":" << by_law;
    // No layout but BSND and TND, no written mask, bias, rope or dropout.
    std::set<std::string> unknown{"layouts",        "written_mask",       "full_mask", "mask_values",
                                  "bias_type",      "rope_concatenation", "zero_rope", "dropout_none",
                                  "dropped_values", "hidden_bias"};
    if (!gradient) unknown.insert({"bias_shift", "dropout_statistics"});
    EXPECT_EQ(declined, unknown);
}
INSTANTIATE_TEST_SUITE_P(Directions, RestrictedLaws,
                         testing::Values(std::pair(false, 1), std::pair(false, 3), std::pair(true, 1)),
                         [](const auto& of) {
                             return fmt::format("{}{}", of.param.first ? "Gradient" : "Forward", of.param.second);
                         });

// Modes that are taken together and not one at a time: no mask with the mode of no mask.
TEST(Survey, LearnsPairsOfModes) {
    const auto candidate = tiled_flash(0);
    const Survey known = survey(flash(true), *candidate, 1, Profile::ascend910b);
    const auto is_inside = [&](const std::string& mask) {
        return known.scope.holds(case_of(
            "flash_attention_score_grad{dtype=bf16 q=[9] kv=[7] layout=BSND kv_heads=2 group=1 dim=64 "
            "value_dim=64" + mask + " data=normal seed=1}"));
    };
    EXPECT_TRUE(is_inside(""));
    EXPECT_TRUE(is_inside(" mask=bool sparse=3"));
    EXPECT_FALSE(is_inside(" mask=bool"));
}

// Lengths that have to be equal do not make a case of one long row one of many.
TEST(Survey, LongRowsStayFew) {
    const Operator& op = flash(true);
    Scope scope(op);
    scope.accept(case_of("flash_attention_score_grad{dtype=bf16 q=[9] kv=[9] layout=BSND kv_heads=1 group=1 "
                         "dim=64 value_dim=64 data=normal seed=1}"));
    scope.restrict_to("q=kv");
    Random random(1);
    const auto inside = scope.brought_inside(
        case_of("flash_attention_score_grad{dtype=bf16 q=[8] kv=[16384] layout=BSND kv_heads=1 group=1 dim=64 "
                "value_dim=64 data=normal seed=1}"),
        random);
    ASSERT_TRUE(inside);
    EXPECT_LE(inside->lists[0][0] * inside->lists[1][0], 4 * 8 * 16384);
}

struct Planted {
    int defect;
    bool gradient;
};
class RestrictedKernel : public testing::TestWithParam<Planted> {};

// One agreement run of default size finds each of the usual mistakes.
TEST_P(RestrictedKernel, DefectIsFound) {
    const auto candidate = tiled_flash(GetParam().defect);
    const Operator& op = flash(GetParam().gradient);
    for (const std::uint64_t seed : {1, 2, 3}) {
        const Survey known = survey(op, *candidate, seed, Profile::ascend910b);
        EngineOptions options;
        options.seed = seed;
        options.max_counterexamples = 1;
        options.shrink_seconds = 1;
        options.survey = &known;
        KnownMinima minima;
        const PropertyReport report = run_property(
            op, *op.property("agreement"), *candidate, options, system_clock(),
            [](const PropertyReport&) {}, minima);
        EXPECT_EQ(report.status, Status::falsified) << "seed " << seed;
    }
}
INSTANTIATE_TEST_SUITE_P(Defects, RestrictedKernel,
                         testing::Values(Planted{1, false}, Planted{2, false}, Planted{3, false},
                                         Planted{4, true}, Planted{5, true}));

/// A kernel without statistics says so: "outputs=attention_out".
PropertyReport run_without_statistics(int defect, bool gradient, const std::string& property) {
    const auto candidate = restricted_kernel("output_only_" + std::to_string(defect));
    const std::string& declared = candidate->info().features;
    const Operator& op = flash(gradient);
    const Survey known = survey(op, *candidate, 1, Profile::ascend910b,
                                features_of(declared, op.name()));
    EXPECT_FALSE(known.scope.is_declared()) << "fields are learned";
    EngineOptions options;
    options.cases = 20;
    options.max_counterexamples = 1;
    options.survey = &known;
    options.withheld = withheld_outputs(declared, op);
    options.missing_outputs = missing_outputs(declared, operators());
    KnownMinima minima;
    return run_property(op, *op.property(property), *candidate, options, system_clock(),
                        [](const PropertyReport&) {}, minima);
}

// What is not given is neither handed over nor judged; the gradient still gets it.
TEST(OptionalOutputs, AreNeitherAskedForNorJudged) {
    for (const char* property : {"agreement", "memory", "repeatable", "key_shift", "deviation"}) {
        const PropertyReport report = run_without_statistics(0, false, property);
        EXPECT_EQ(report.status, Status::held) << property << ": " << report.note;
        EXPECT_GE(report.cases, 5) << property;
    }
    const PropertyReport gradient = run_without_statistics(0, true, "agreement");
    EXPECT_EQ(gradient.status, Status::held) << gradient.note;
    EXPECT_EQ(gradient.cases, 80);
}

// A law that needs them is not held.
TEST(OptionalOutputs, LawsThatNeedThemDoNotApply) {
    for (const char* property : {"statistics", "statistics_order"}) {
        const PropertyReport report = run_without_statistics(0, false, property);
        EXPECT_EQ(report.status, Status::not_applicable) << property;
        EXPECT_EQ(report.note, "needs softmax_max and softmax_sum, not given");
    }
    const PropertyReport own = run_without_statistics(0, true, "forward_backward");
    EXPECT_EQ(own.status, Status::not_applicable);
    EXPECT_THAT(own.note, HasSubstr("needs every output of flash_attention_score"));
}

// A counterexample asks for the same outputs.
TEST(OptionalOutputs, CounterexamplesStayWithoutThem) {
    const PropertyReport report = run_without_statistics(3, false, "agreement");
    ASSERT_EQ(report.status, Status::falsified);
    EXPECT_THAT(print(report.counterexamples[0].spec), HasSubstr(" outputs=attention_out "));
}

// What is refused together is said once: a size stands for all that were not taken, and fewer parts say more.
TEST(Scope, CombinationsThatSayNothingNewAreLeftOut) {
    Scope scope(flash(false));
    const auto of = [&](std::string_view name, std::int64_t value) {
        const auto& aspects = scope.aspects();
        const auto at = std::ranges::find(aspects, name, &Aspect::name);
        EXPECT_NE(at, aspects.end()) << name;
        return std::pair(static_cast<std::size_t>(at - aspects.begin()), value);
    };
    scope.refuse_together({of("mask", 1), of("drop", 1), of("layout", 0)});
    scope.refuse_together({of("mask", 1), of("drop", 1)});
    scope.refuse_together({of("dtype", 0), of("mask", 1), of("drop", 1)});
    scope.refuse_together({of("dim", 96), of("pse", 1)});
    scope.refuse_together({of("dim", 80), of("pse", 1)});
    EXPECT_EQ(scope.text(), "what is legal, not mask=bool with drop=random, not another dim with pse=plain");
}

// What is declared is taken as it is: lists, ranges with steps, fields that are equal.
TEST(Features, RestrictTheScope) {
    Scope scope(flash(false));
    scope.restrict_to("dtype=fp16,bf16 dim=32..128/32 value_dim=dim pse=absent");
    const std::string rest = " q=[2] kv=[3] layout=BSND kv_heads=1 group=1 ";
    const auto holds = [&](const std::string& fields) {
        return scope.holds(
            case_of("flash_attention_score{dtype=" + fields + rest + "data=normal seed=1}"));
    };
    EXPECT_TRUE(holds("fp16 dim=64 value_dim=64"));
    EXPECT_TRUE(holds("bf16 dim=96 value_dim=96"));
    EXPECT_FALSE(holds("fp32 dim=64 value_dim=64"));
    EXPECT_FALSE(holds("fp16 dim=64 value_dim=32"));
    EXPECT_FALSE(holds("fp16 dim=80 value_dim=80"));
    EXPECT_FALSE(holds("fp16 dim=160 value_dim=160"));
    EXPECT_EQ(scope.text(), "dtype=fp16,bf16 dim=32..128/32 pse=absent value_dim=dim");
    Scope other_way(flash(false));
    other_way.restrict_to("dim=value_dim");
    EXPECT_EQ(other_way.text(), "value_dim=dim");
}

// A case is mended to what is declared.
TEST(Features, CasesAreMended) {
    Scope scope(flash(false));
    scope.restrict_to("dim=64,128 value_dim=dim");
    Random random(1);
    for (int k = 0; k < 20; ++k) {
        Spec spec = case_of(
            "flash_attention_score{dtype=fp16 q=[2] kv=[3] layout=BSND kv_heads=1 group=1 dim=7 "
            "value_dim=3 data=normal seed=1}");
        scope.mend(spec, random);
        EXPECT_TRUE(scope.holds(spec)) << print(spec);
    }
}

// A kernel that is compiled for each shape says which lengths its sequences have.
TEST(Features, LengthsAreDeclared) {
    Scope scope(flash(false));
    scope.restrict_to("q=1,64..128/32 kv=128,256");
    EXPECT_FALSE(scope.is_open());
    EXPECT_EQ(scope.text(), "q=1,64..128/32 kv=128,256");
    const auto with = [&](const std::string& lengths) {
        return case_of("flash_attention_score{dtype=fp16 " + lengths +
                       " layout=TND kv_heads=1 group=1 dim=8 value_dim=8 data=normal seed=1}");
    };
    EXPECT_TRUE(scope.holds(with("q=[1,96] kv=[256,128]")));
    EXPECT_FALSE(scope.holds(with("q=[1,80] kv=[256,128]")));
    EXPECT_FALSE(scope.holds(with("q=[1,96] kv=[0,128]")));
    Random random(1);
    std::set<std::int64_t> met;
    for (int k = 0; k < 40; ++k) {
        Spec spec = with("q=[7,9,7] kv=[128,3,5]");
        scope.mend(spec, random);
        EXPECT_TRUE(scope.holds(spec)) << print(spec);
        EXPECT_EQ(spec.lists[0][0], spec.lists[0][2]) << "sequences of one length keep one";
        EXPECT_EQ(spec.lists[1][0], 128) << "what is taken stays";
        met.insert(spec.lists[0][0]);
    }
    EXPECT_EQ(met, (std::set<std::int64_t>{1, 64, 96, 128}));
}

// Declared lengths may be longer than the drawn ones; a kernel of one shape gets cases all the same.
TEST(Features, LongDeclaredLengthsAreMet) {
    const Operator& op = flash(false);
    Scope scope(op);
    scope.restrict_to("q=1024 kv=2048");
    const std::string rest = " layout=BSND kv_heads=1 group=1 dim=8 value_dim=8 data=normal seed=1}";
    scope.accept(case_of("flash_attention_score{dtype=fp16 q=[1024] kv=[2048]" + rest));
    Random random(1);
    const auto inside =
        scope.brought_inside(case_of("flash_attention_score{dtype=fp16 q=[2,2] kv=[3,3]" + rest), random);
    ASSERT_TRUE(inside);
    EXPECT_EQ(inside->lists[0], (std::vector<std::int64_t>{1024, 1024}));
    EXPECT_EQ(inside->lists[1], (std::vector<std::int64_t>{2048, 2048}));
}

// What is not known is named, with what is.
TEST(Features, UnknownWordsAreNamed) {
    const auto message_of = [](const std::string& features) -> std::string {
        Scope scope(flash(false));
        try {
            scope.restrict_to(features);
        } catch (const std::invalid_argument& e) {
            return e.what();
        }
        return "accepted";
    };
    EXPECT_THAT(message_of("dims=64"),
                HasSubstr("unknown field 'dims' of flash_attention_score, did you mean 'dim'?"));
    EXPECT_THAT(message_of("width=64"), HasSubstr("unknown field 'width' of flash_attention_score, known: dtype"));
    EXPECT_THAT(message_of("data=uniform"), HasSubstr("data=uniform: data is no feature"));
    EXPECT_THAT(message_of("dtype=int8"),
                HasSubstr("unknown value 'int8' of dtype, known: fp16 bf16 fp32"));
    EXPECT_THAT(message_of("dim=64x"), HasSubstr("dim=64x: '64x' is no whole number, expected numbers"));
    EXPECT_THAT(message_of("dim=9..none"), HasSubstr("dim=9..none: 'none' is no whole number"));
    EXPECT_THAT(message_of("dim=9..2"), HasSubstr("dim=9..2: '9..2' is no range"));
    EXPECT_THAT(message_of("dim=1..9/0"), HasSubstr("is no range"));
    EXPECT_THAT(message_of("q=5x"), HasSubstr("q=5x: '5x' is no whole number, expected numbers"));
    EXPECT_THAT(message_of("kv=8..4"), HasSubstr("kv=8..4: '8..4' is no range"));
    EXPECT_THAT(message_of("q=-1"), HasSubstr("q=-1: '-1' is no length, allowed: 0 to"));
    EXPECT_THAT(message_of("length=4"), HasSubstr(" q kv outputs"));
    EXPECT_THAT(message_of("dim"), HasSubstr("'dim' is no feature: expected field=values"));
    EXPECT_THAT(message_of("dim="), HasSubstr("is no feature"));
    EXPECT_THAT(message_of("dim=64 dtype=bf16 dim=128"),
                HasSubstr("dim is declared twice, as dim=64 and dim=128: expected one list, dim=64,128"));
    EXPECT_EQ(message_of("dim=64,128 dim=value_dim q=128 kv=128 q=kv"), "accepted");  // a relation beside values
    EXPECT_THAT(message_of("dim=0"), HasSubstr("dim=0: no case has it, allowed: 1 to"));
    EXPECT_EQ(message_of("dim=64..100000"), "accepted");
}

// One declaration for several operators.
TEST(Features, AreByOperator) {
    const std::string both =
        "flash_attention_score: dim=64\nflash_attention_score_grad: dim=128; nsa_compress: heads=1";
    EXPECT_EQ(features_of(both, "flash_attention_score"), " dim=64");
    EXPECT_EQ(features_of(both, "flash_attention_score_grad"), " dim=128");
    EXPECT_EQ(features_of(both, "nsa_compress"), " heads=1");
    EXPECT_EQ(features_of(both, "nsa_module"), "");
    EXPECT_THROW((void)features_of("dim=64", "nsa_compress"), std::invalid_argument);
}

/// Ends in every call.
class DyingCandidate : public testing::NiceMock<MockCandidate> {
public:
    DyingCandidate() {
        ON_CALL(*this, run).WillByDefault([](const Call&, const RunOptions&) {
            CallResult result;
            result.kind = CallResult::Kind::crashed;
            return result;
        });
    }
};

// To start a library again may take a second, and its crashes are to be told before the time is over.
TEST(Survey, AsksADyingCandidateFewTimes) {
    DyingCandidate candidate;
    const Survey known = survey(flash(false), candidate, 1, Profile::ascend910b);
    EXPECT_EQ(known.calls, 3);
    EXPECT_TRUE(known.scope.is_open());
    EXPECT_FALSE(known.takes_nothing);
}

// The last call may be declined for what no other call has.
TEST(Survey, NamesTheReasonThatIsGivenMost) {
    testing::NiceMock<MockCandidate> candidate;
    int calls = 0;
    ON_CALL(candidate, run).WillByDefault([&calls](const Call&, const RunOptions&) {
        CallResult result;
        result.kind = CallResult::Kind::returned;
        result.status = ATTNCHECK_DECLINED;
        result.detail = ++calls % 4 == 2 ? "no mask here" : fmt::format("call {}", calls);
        return result;
    });
    const Survey known = survey(flash(false), candidate, 1, Profile::ascend910b);
    EXPECT_TRUE(known.takes_nothing);
    EXPECT_NE(calls % 4, 2) << "the last call has that reason";
    EXPECT_EQ(known.reason, "no mask here");
}

}  // namespace
}  // namespace attncheck::properties
