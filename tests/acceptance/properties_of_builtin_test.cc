// Every property of every operator against the built-in implementation, registered as a gtest test
// of its own, so that ctest lists and runs them one by one. ATTNCHECK_CASES and ATTNCHECK_SEED in
// the environment change the run.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <sstream>

#include "properties/operators/catalogue.h"
#include "properties/report/results.h"
#include "properties/search/run.h"
#include "properties/candidate/installation.h"
#include "properties/candidate/worker_candidate.h"
#include "properties/cli/heap.h"

namespace attncheck::properties {
namespace {

std::int64_t environment_number(const char* name, std::int64_t otherwise) {
    const char* text = std::getenv(name);
    return text && *text ? std::atoll(text) : otherwise;
}

/// "head_permutation" -> "HeadPermutation".
std::string sentence_case(const std::string& name) {
    std::string out;
    bool upper = true;
    for (const char ch : name) {
        if (ch == '_')
            upper = true;
        else
            out += std::exchange(upper, false) ? static_cast<char>(std::toupper(ch)) : ch;
    }
    return out;
}

class PropertyHolds : public testing::Test {
public:
    PropertyHolds(const Operator& op, const Property& property) : op_(op), property_(property) {}

    void TestBody() override {
        WorkerOptions worker;
        worker.library = find_builtin_library();
        const auto candidate = open_worker_candidate(worker);
        VerifyOptions options;
        options.operators = {op_.name()};
        options.properties = {property_.name};
        // A case of a composition is ten calls and their references.
        const std::int64_t usual = op_.is_composition() ? 8 : 60;
        options.engine.cases = environment_number("ATTNCHECK_CASES", usual);
        options.engine.seed = static_cast<std::uint64_t>(environment_number("ATTNCHECK_SEED", 1));
        RunReport report;
        std::ostringstream findings;
        verify(*candidate, options, system_clock(), report, findings, nullptr);
        ASSERT_EQ(report.properties.size(), 1u);
        const PropertyReport& result = report.properties.front();
        RecordProperty("cases", std::to_string(result.cases));
        RecordProperty("worst_error_ratio", std::to_string(result.worst_ratio));
        EXPECT_EQ(result.status, PropertyReport::Status::held) << result.note << findings.str();
        const std::int64_t wanted =
            options.engine.cases * property_.case_factor / property_.case_divisor;
        EXPECT_GE(result.cases, wanted / 2) << "most generated cases do not apply";
    }

private:
    const Operator& op_;
    const Property& property_;
};

}  // namespace
}  // namespace attncheck::properties

int main(int argc, char** argv) {
    using namespace attncheck::properties;
    keep_freed_memory();
    testing::InitGoogleTest(&argc, argv);
    for (const auto& op : operators())
        for (const Property& property : op->properties())
            testing::RegisterTest(
                sentence_case(op->name()).c_str(), sentence_case(property.name).c_str(), nullptr,
                nullptr, __FILE__, __LINE__,
                [&op, &property]() -> testing::Test* { return new PropertyHolds(*op, property); });
    return RUN_ALL_TESTS();
}
