// Clauses of the documented constraints: the tables are those of ref/constraints, their cases lie at
// the edges, a run tries each of them, and one that decided no call is named.
#include "properties/search/clause_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "properties/operators/catalogue.h"
#include "properties/report/json.h"
#include "properties/report/merge.h"
#include "properties/search/classes.h"
#include "tests/properties/search/pair_search.h"
#include "tests/properties/search/planted.h"

namespace attncheck::properties {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<const Operator*> operators_with_clauses() {
    std::vector<const Operator*> out;
    for (const auto& op : operators())
        if (const Property* property = op->property("validation"); property && property->clauses)
            out.push_back(op.get());
    return out;
}

/// The documented ruling in place of a candidate.
Property without_candidate(const Operator& op) {
    Property property = *op.property("validation");
    property.check = [](const Spec& spec, PropertyContext&) {
        Verdict verdict;
        verdict.clause = ruling_of(spec).value_or(ref::Ruling{}).clause;
        return verdict;
    };
    return property;
}

// Names change with ref/constraints, fields with the description: then attncheck_clause_search
// writes the table anew.
TEST(ClauseTables, HoldCasesThatTheirClauseDecides) {
    for (const Operator* op : operators_with_clauses())
        for (const ClauseEdge& edge : *op->property("validation")->clauses) {
            if (edge.op != op->name()) continue;
            const Spec broken = broken_case(edge, op->schema());
            Spec base = broken;
            base.edits.clear();
            EXPECT_EQ(op->illegal(base), std::nullopt) << print(base);
            const auto ruling = ruling_of(broken);
            ASSERT_TRUE(ruling) << print(broken);
            EXPECT_EQ(ruling->clause, edge.clause) << print(broken);
            const auto legal = legal_case(edge, op->schema());
            if (!legal) continue;
            const auto accepted = ruling_of(*legal);
            EXPECT_TRUE(accepted && accepted->accepted()) << print(*legal);
        }
}

TEST(ClauseTables, HaveEveryClauseThatDrawnCasesMeet) {
    constexpr std::uint64_t kCases = 300, kFirst = 1'000'000;
    for (const Operator* op : operators_with_clauses()) {
        const Property& property = *op->property("validation");
        const Clauses clauses(*property.clauses, op->name());
        ASSERT_GT(clauses.size(), 20u) << op->name();
        for (std::uint64_t k = 0; k < kCases; ++k) {
            const auto spec = drawn_case(*op, property, kFirst + k);
            const auto ruling = spec ? ruling_of(*spec) : std::nullopt;
            if (!ruling || ruling->accepted()) continue;
            EXPECT_TRUE(clauses.number(ruling->clause))
                << op->name() << ": " << ruling->clause << "\n" << print(*spec);
        }
    }
}

TEST(NearestEdge, IsTheLastAcceptedValueAndTheFirstRejectedOne) {
    const Operator& op = forward();
    const auto edge_at = [&](const char* value, std::int64_t step) {
        const std::string line =
            "nsa_compress{dtype=fp16 seq=[144] heads=1 dim=16 block=64 stride=16 data=zeros seed=1"
            " break=[compress_block_size=";
        Edge far{parse(line + value + "]}", {&op.schema()}),
                 parse(line + "64]}", {&op.schema()})};
        const std::string clause = ruling_of(far.broken)->clause;
        const Edge near = nearest_edge(far, clause, step);
        EXPECT_EQ(ruling_of(near.broken)->clause, clause);
        return std::pair(near.legal.edits.back().integer(), near.broken.edits.back().integer());
    };
    // 64 is the only size that fits the weight; above it other clauses decide up to 128.
    EXPECT_EQ(edge_at("9223372036854775807", 1), std::pair(std::int64_t{64}, std::int64_t{129}));
    EXPECT_EQ(edge_at("-9223372036854775808", 1), std::pair(std::int64_t{64}, std::int64_t{15}));
    EXPECT_EQ(edge_at("208", 16), std::pair(std::int64_t{64}, std::int64_t{144}));
}

class ClausesOfARun : public EngineTest {};

TEST_F(ClausesOfARun, AreAllTried) {
    for (const Operator* op : operators_with_clauses()) {
        const PropertyReport report = run(without_candidate(*op), *op);
        EXPECT_TRUE(report.clauses.is_through) << op->name();
        EXPECT_THAT(report.clauses.missing, IsEmpty()) << op->name();
        EXPECT_EQ(static_cast<std::size_t>(report.clauses.possible),
                  Clauses(*op->property("validation")->clauses, op->name()).size());
    }
}

TEST_F(ClausesOfARun, ThatDecideNoCallAreNamed) {
    const std::string hidden = "input: T >= #";
    Property property = without_candidate(forward());
    property.check = [check = property.check, hidden](const Spec& spec, PropertyContext& context) {
        Verdict verdict = check(spec, context);
        if (verdict.clause == hidden) verdict.clause = "another";
        return verdict;
    };
    RunReport report;
    report.properties.push_back(run(property, forward()));
    EXPECT_THAT(report.properties[0].clauses.missing, ElementsAre(hidden));
    const PropertyReport told =
        property_from_text(property_to_text(report.properties[0]), {&forward().schema()});
    EXPECT_EQ(told.clauses.missing, report.properties[0].clauses.missing);
    judge_clauses(forward(), report);
    ASSERT_EQ(report.properties.size(), 2u);
    EXPECT_EQ(report.properties[1].property, "required_clauses");
    EXPECT_EQ(report.properties[1].status, PropertyReport::Status::error);
    EXPECT_THAT(report.properties[1].note, HasSubstr("decided no call: " + hidden));
}

TEST_F(ClausesOfARun, AreTriedByAllShardsTogether) {
    std::vector<std::pair<std::string, std::string>> reports;
    options.shards = 3;
    options.cases = 150;
    for (options.shard = 0; options.shard < options.shards; ++options.shard) {
        RunReport report;
        report.shard = options.shard;
        report.shards = options.shards;
        report.properties.push_back(run(without_candidate(forward()), forward()));
        judge_clauses(forward(), report);
        EXPECT_EQ(report.properties.at(1).status, PropertyReport::Status::declined);
        EXPECT_THAT(report.properties[1].note, HasSubstr("attncheck merge"));
        reports.emplace_back("shard", to_json(report));
    }
    const nlohmann::json merged = nlohmann::json::parse(merge_json(reports).json);
    EXPECT_EQ(merged["properties"][1]["status"], "held");
    EXPECT_EQ(merged["properties"][0]["clauses"]["possible"],
              Clauses(*forward().property("validation")->clauses, forward().name()).size());
    EXPECT_THAT(merged["properties"][0]["clauses"]["missing"], IsEmpty());
}

TEST_F(ClausesOfARun, AreTheSameAfterAnInterruption) {
    options.cases = 100;
    const Property property = without_candidate(forward());
    const PropertyReport whole = run(property, forward());
    const PropertyReport begun =
        PropertySearch(forward(), property, candidate, options, clock, known).go_on({20, 0}, observer);
    EXPECT_LT(begun.cases, whole.cases / 10);
    options.begun = &begun;
    const PropertyReport rest = run(property, forward());
    EXPECT_EQ(rest.clauses.missing, whole.clauses.missing);
    EXPECT_EQ(rest.clauses.possible, whole.clauses.possible);
    EXPECT_EQ(rest.drawn.digest, whole.drawn.digest);
}

TEST_F(ClausesOfARun, AreNotJudgedWhenItEndsEarly) {
    options.cases = 1;
    RunReport report;
    report.properties.push_back(run(without_candidate(forward()), forward()));
    judge_clauses(forward(), report);
    EXPECT_EQ(report.properties.at(1).status, PropertyReport::Status::declined);
}

// The same clause in other cases: what a validator overlooks in one layout only.
TEST_F(ClausesOfARun, AreMetInSeveralCases) {
    std::map<std::string, std::set<std::string>> bases;
    Property property = without_candidate(forward());
    property.check = [&, check = property.check](const Spec& spec, PropertyContext& context) {
        Verdict verdict = check(spec, context);
        Spec base = spec;
        base.edits.clear();
        base.seed = 0;
        bases[verdict.clause].insert(print(base));
        return verdict;
    };
    options.cases = 400;
    run(property, forward());
    const Clauses clauses(*property.clauses, forward().name());
    for (std::size_t k = 0; k < clauses.size(); ++k)
        EXPECT_GE(bases[clauses.name(k)].size(), 5u) << clauses.name(k);
}

}  // namespace
}  // namespace attncheck::properties
