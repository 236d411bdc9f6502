// The rooms of the repository keep their doors: no source includes what its room may not.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <ostream>

#include "include_rules.h"

namespace attncheck::layering {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::IsEmpty;
using testing::StartsWith;

// The repository itself.
TEST(Layering, NoSourceIncludesWhatItsRoomMayNot) {
    std::size_t files_read = 0;
    const auto includes = includes_below(SOURCE_ROOT, files_read);
    EXPECT_THAT(violations_of(includes), IsEmpty());
    EXPECT_THAT(exceptions_without_use(includes), IsEmpty());
    EXPECT_THAT(circle_of(includes), IsEmpty());
    EXPECT_GT(files_read, 40u);
    for (const char* room : {"include", "ref", "impl", "properties"})
        EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(SOURCE_ROOT) / room)) << room;
}

struct Door {
    const char* topic;
    const char* path;
    const char* allowed;
    const char* forbidden;
};

void PrintTo(const Door& door, std::ostream* to) { *to << door.topic; }

class EveryRoom : public testing::TestWithParam<Door> {};

INSTANTIATE_TEST_SUITE_P(
    Rooms, EveryRoom,
    testing::Values(
        Door{"PublicHeadersStayInTheCLibrary", "include/attncheck/x.h", "<stdint.h>", "<cstdint>"},
        Door{"PublicHeadersKnowNoRoom", "include/acl/x.h", "\"acl/types.h\"", "\"ref/numbers/dtype.h\""},
        Door{"OracleKnowsNoImplementation", "ref/x.cc", "\"ref/numbers/dtype.h\"", "\"impl/dtype.h\""},
        Door{"OracleKnowsNoInterface", "ref/x.cc", "<Eigen/Dense>", "<attncheck/candidate.h>"},
        Door{"OracleKnowsNoHighway", "ref/x.cc", "<vector>", "<hwy/highway.h>"},
        Door{"ImplementationKnowsNoOracle", "impl/x.cc", "<hwy/highway.h>", "\"ref/numbers/dtype.h\""},
        Door{"ImplementationKnowsNoSuite", "impl/a/x.cc", "\"impl/b.h\"", "\"properties/case/spec.h\""},
        Door{"ImplementationKnowsNoEigen", "impl/x.cc", "\"local.h\"", "<Eigen/Dense>"},
        Door{"SuiteKnowsNoImplementation", "properties/x.cc", "\"ref/numbers/dtype.h\"",
             "\"impl/operators/nsa_compress/nsa_compress.h\""},
        Door{"SuiteDoesNotClimbIntoIt", "properties/x.cc", "\"properties/case/spec.h\"",
             "\"../impl/operators/nsa_compress/nsa_compress.h\""},
        Door{"SuiteUsesItsLibrariesOnly", "properties/x.cc", "<CLI/CLI.hpp>", "<gtest/gtest.h>"},
        Door{"NumbersKnowNoOperator", "ref/numbers/x.cc", "\"ref/numbers/dtype.h\"",
             "\"ref/attention/dense_attention.h\""},
        Door{"KernelsKnowNoOperator", "impl/kernels/x.cc", "\"impl/runtime/thread_pool.h\"",
             "\"impl/operators/nsa_compress/validate.h\""},
        Door{"CasesKnowNoCandidate", "properties/case/x.cc", "\"ref/numbers/dtype.h\"",
             "\"properties/candidate/candidate.h\""},
        Door{"CandidateKnowsNoJudge", "properties/candidate/x.cc", "\"properties/case/call.h\"",
             "\"properties/judge/verdict.h\""},
        Door{"JudgeKnowsTheCandidateInterfaceOnly", "properties/judge/x.cc",
             "\"properties/candidate/candidate.h\"", "\"properties/candidate/mixed_candidate.h\""},
        Door{"JudgeKnowsNoOperator", "properties/judge/x.cc", "\"properties/case/call.h\"",
             "\"properties/operators/operator.h\""},
        Door{"LawsKnowNoOperator", "properties/laws/x.cc", "\"properties/judge/compare.h\"",
             "\"properties/operators/operator.h\""},
        Door{"OperatorsKnowNoSearch", "properties/operators/a/x.cc",
             "\"properties/laws/property.h\"", "\"properties/search/engine.h\""},
        Door{"OperatorsAreGivenNotLookedUp", "properties/operators/a/x.cc",
             "\"properties/operators/operator.h\"", "\"properties/operators/catalogue.h\""},
        Door{"SearchKnowsOperatorsByTheirInterface", "properties/search/x.cc",
             "\"properties/operators/operator.h\"",
             "\"properties/operators/flash_attention/case.h\""},
        Door{"EngineLooksNothingUp", "properties/search/engine.cc",
             "\"properties/operators/operator.h\"", "\"properties/operators/catalogue.h\""},
        Door{"ReportKnowsNoSearch", "properties/report/x.cc", "\"properties/judge/verdict.h\"",
             "\"properties/search/engine.h\""},
        Door{"GradingKnowsNoOperator", "properties/grading/x.cc", "\"properties/report/results.h\"",
             "\"properties/operators/operator.h\""},
        Door{"AdapterKnowsNoOracle", "properties/aclnn_adapter/x.cc", "<acl/acl.h>",
             "\"ref/numbers/dtype.h\""},
        Door{"FuzzingAsksValidatorsOnly", "fuzz/x.cc", "\"impl/operators/nsa_compress/validate.h\"",
             "\"impl/operators/nsa_compress/nsa_compress.h\""},
        Door{"FuzzingKnowsNoRuntime", "fuzz/x.cc", "\"properties/case/spec.h\"",
             "\"impl/aclnn/executor.h\""}),
    [](const auto& instance) { return instance.param.topic; });

// Of two includes, the forbidden one is found, with its file and line.
TEST_P(EveryRoom, RefusesTheForbiddenIncludeByFileAndLine) {
    const Door& door = GetParam();
    const std::string text = std::string("// A comment.\n#include ") + door.allowed +
                             "\n\n#  include " + door.forbidden + "  // why\n";
    const std::string path = door.path, name = std::string(door.forbidden).substr(1);
    EXPECT_THAT(violations_of(includes_in(path, text)),
                ElementsAre(AllOf(StartsWith(path + ":4: " + path.substr(0, path.find('/'))),
                                  EndsWith("/ may not include " + name.substr(0, name.size() - 1)))));
}

// Tests and benchmarks may include everything.
TEST(Layering, OtherFoldersAreFree) {
    EXPECT_THAT(violations_of(includes_in("tests/x.cc", "#include \"impl/a.h\"\n#include \"ref/a.h\"\n")),
                IsEmpty());
    EXPECT_THAT(violations_of(includes_in("bench/x.cc", "#include \"impl/a.h\"\n")), IsEmpty());
}

// A forbidden include planted in a tree of files is found there.
TEST(Layering, PlantedIncludeIsFoundInATree) {
    namespace fs = std::filesystem;
    const fs::path root =
        fs::path(testing::TempDir()) / ("attncheck_layering_" + std::to_string(getpid()));
    fs::create_directories(root / "ref/deep");
    fs::create_directories(root / "tests");
    std::ofstream(root / "ref/clean.cc") << "#include <cmath>\n#include \"ref/clean.h\"\n";
    std::ofstream(root / "ref/deep/planted.h") << "#pragma once\n#include \"impl/tiles.h\"\n";
    std::ofstream(root / "ref/notes.md") << "#include \"impl/tiles.h\"\n";
    std::ofstream(root / "tests/free.cc") << "#include \"impl/tiles.h\"\n";
    std::size_t files_read = 0;
    EXPECT_THAT(violations_of(includes_below(root, files_read)),
                ElementsAre("ref/deep/planted.h:2: ref/ may not include impl/tiles.h"));
    EXPECT_EQ(files_read, 2u);
    fs::remove_all(root);
}

// A circle of three rooms is found with its include lines; rooms that lead into it are left out.
TEST(Layering, PlantedCircleIsFound) {
    std::vector<Include> includes;
    const auto plant = [&](const std::string& path, const std::string& target) {
        std::ranges::copy(includes_in(path, "\n#include \"" + target + "\"\n"),
                          std::back_inserter(includes));
    };
    plant("properties/case/a.h", "properties/judge/b.h");
    plant("properties/judge/b.h", "properties/report/c.h");
    EXPECT_THAT(circle_of(includes), IsEmpty());
    plant("properties/report/d.cc", "properties/laws/e.h");
    plant("properties/laws/f.h", "properties/judge/g.h");
    EXPECT_THAT(circle_of(includes),
                ElementsAre("properties/judge/b.h:2 includes properties/report/c.h",
                            "properties/report/d.cc:2 includes properties/laws/e.h",
                            "properties/laws/f.h:2 includes properties/judge/g.h"));
}

}  // namespace
}  // namespace attncheck::layering
