// The rooms of the repository keep their doors: no source includes what its room may not.
#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <ostream>

#include "include_rules.h"

namespace attncheck::layering {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The repository itself.
TEST(Layering, NoSourceIncludesWhatItsRoomMayNot) {
    std::size_t files_read = 0;
    EXPECT_THAT(violations_below(SOURCE_ROOT, files_read), IsEmpty());
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
    EXPECT_THAT(violations_in(path, text),
                ElementsAre(path + ":4: " + path.substr(0, path.find('/')) + "/ may not include " +
                            name.substr(0, name.size() - 1)));
}

// Tests and benchmarks may include everything.
TEST(Layering, OtherFoldersAreFree) {
    EXPECT_THAT(violations_in("tests/x.cc", "#include \"impl/a.h\"\n#include \"ref/a.h\"\n"),
                IsEmpty());
    EXPECT_THAT(violations_in("bench/x.cc", "#include \"impl/a.h\"\n"), IsEmpty());
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
    EXPECT_THAT(violations_below(root, files_read),
                ElementsAre("ref/deep/planted.h:2: ref/ may not include impl/tiles.h"));
    EXPECT_EQ(files_read, 2u);
    fs::remove_all(root);
}

}  // namespace
}  // namespace attncheck::layering
