// Candidates that lack operators, completed with the built-in ones.
#include "properties/candidate/mixed_candidate.h"

#include "properties/candidate/installation.h"
#include "properties/candidate/worker_candidate.h"
#include "properties/report/json.h"
#include "properties/search/run.h"
#include "tests/properties/case/case_line.h"

namespace attncheck::properties {
namespace {

constexpr const char* kCase =
    "nsa_module{dtype=bf16 seq=[37,5] kv_heads=2 group=2 dim=128 value_dim=128 block=16 stride=16 "
    "select=16 count=2 window=7 gates=random scale=rsqrt data=normal seed=3}";

// A library with one operator: that one is its own, the others are the built-in ones, calls go
// where they belong, and the report names both.
TEST(MixedCandidates, RunTheirOwnOperatorsAndTheBuiltInOnesElsewhere) {
    const Operator& op = *find_operator("nsa_module");
    const auto open = [](const std::string& library) {
        WorkerOptions options;
        options.library = library;
        return open_worker_candidate(options);
    };
    auto declining = open(std::string(CANDIDATE_DIR) + "/declines.so");
    EXPECT_FALSE(op.implemented_by(declining->info()));
    MixedCandidate mixed(std::move(declining), open(find_builtin_library()));
    EXPECT_TRUE(op.implemented_by(mixed.info()));
    const auto sources = sources_of(op, mixed);
    ASSERT_EQ(sources.size(), 7u);
    EXPECT_EQ(sources[0].op, "nsa_compress");
    EXPECT_EQ(sources[0].implementation, "declines");
    EXPECT_EQ(sources[1].implementation, mixed.second().name);
    PropertyContext context{mixed, {}};
    EXPECT_EQ(op.property("end_to_end")->check(spec_of(kCase), context).kind,
              Verdict::Kind::declined);
    RunReport report;
    report.sources.push_back({"nsa_module", "nsa_compress", "declines"});
    EXPECT_NE(to_json(report).find("\"nsa_compress\": \"declines\""), std::string::npos);
}

TEST(MixedCandidates, AreJudgedByTheWeakerPromise) {
    const auto both =
        ref::weaker(ref::parse_rounding_class("fp32"), ref::parse_rounding_class("default"));
    EXPECT_EQ(both, ref::parse_rounding_class("default"));
    EXPECT_EQ(ref::weaker(both, ref::parse_rounding_class("acc=half")).accumulator_roundoff,
              ref::parse_rounding_class("acc=half").accumulator_roundoff);
    for (const char* word : {"acc=half", "acc=fp32-truncating", "p=half", "ds=half", "sum=rounded",
                             "ftz=bf16"}) {
        const auto strict = ref::parse_rounding_class("p=fp32 ds=fp32");
        auto loose = ref::parse_rounding_class(word);
        const std::string_view key = word;
        if (!key.starts_with("p=")) loose.prob_rounded = false;
        if (!key.starts_with("ds=")) loose.score_grad_rounded = false;
        EXPECT_EQ(ref::weaker(strict, loose), loose) << word;
        EXPECT_EQ(ref::weaker(loose, strict), loose) << word;
    }
}

}  // namespace
}  // namespace attncheck::properties
