// What a library may not reach, and reaches where there is no sandbox: a level that stops nothing is told from one that does.
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/hostile/hostile_run.h"

namespace attncheck::properties {
namespace {

using testing::HasSubstr;

enum class Off { open, closed };  ///< without a sandbox; closed: nothing of the suite's makes it so

struct Reach {
    const char* name;
    Off off = Off::open;
};

// Some are closed here for reasons of the machine (no terminal, another kernel): they are tried in the sandbox alone.
constexpr Reach kReaches[] = {{"reads_environment_of_parent"},
                              {"writes_memory_of_parent"},
                              {"opens_output_of_parent"},
                              {"spares_itself", Off::closed},
                              {"signals_parent"},
                              {"signals_by_descriptor"},
                              {"signals_by_a_file"},
                              {"traces_parent", Off::closed},
                              {"traces_itself", Off::closed},
                              {"writes_to_parent"},
                              {"limits_parent"},
                              {"slows_parent"},
                              {"takes_descriptors"},
                              {"makes_a_device", Off::closed},
                              {"reads_a_secret"},
                              {"types_at_the_terminal", Off::closed},
                              {"shares_memory", Off::closed},
                              {"opens_tcp"},
                              {"opens_udp"},
                              {"opens_local_socket"},
                              {"sends_to_an_address"},
                              {"opens_netlink", Off::closed},
                              {"leaves_for_a_namespace", Off::closed},
                              {"clones_a_namespace", Off::closed},
                              {"becomes_a_sibling"},
                              {"queues_operations", Off::closed},
                              {"adds_a_key", Off::closed},
                              {"leaves_shared_memory", Off::closed},
                              {"hides_its_process"},
                              {"outlives_its_parent"},
                              {"takes_off_its_mark"},
                              {"has_rights_of_root", Off::closed},
                              {"raises_its_file_limit", Off::closed},
                              {"writes_its_own_memory"},
                              {"has_descriptors_of_a_thread"},
                              {"separates_its_descriptors"},
                              {"filters_the_worker", Off::closed},
                              {"may_gain_rights"}};

std::string joined(const std::vector<const char*>& names) {
    std::string text;
    for (const char* const name : names) (text += name) += ',';
    return text;
}

TEST_F(HostileTest, TheSandboxIsAWall) {
    std::vector<const char*> names;
    for (const Reach& reach : kReaches) names.push_back(reach.name);
    const Ran inside = run({"reaches", joined(names)}, "strict");
    EXPECT_EQ(inside.status, 0) << inside.printed;
    EXPECT_THAT(inside.printed, HasSubstr("sandbox: landlock "));
    EXPECT_THAT(inside.printed, HasSubstr("checking reached " + std::string(names.size(), 'n') + ","))
        << joined(names);
}

TEST_F(HostileTest, WithoutItTheLibraryReaches) {
    std::vector<const char*> names;
    for (const Reach& reach : kReaches)
        if (reach.off == Off::open) names.push_back(reach.name);
    const Ran outside = run({"reaches", joined(names)}, "off");
    EXPECT_EQ(outside.status, 1) << outside.printed;
    EXPECT_THAT(outside.printed, HasSubstr("sandbox: off"));
    EXPECT_THAT(outside.printed, HasSubstr("checking reached " + std::string(names.size(), 'y') + ","))
        << joined(names);
}

TEST_F(HostileTest, FilesAreOutOfReach) {
    const char* const kNames[] = {"makes_a_file",          "removes_a_file",      "truncates_a_file",
                                  "writes_through_a_link", "opens_a_file_to_all", "marks_a_file",
                                  "leases_a_file"};
    for (const bool is_sandboxed : {true, false}) {
        std::vector<Trick> tricks;
        for (const std::string name : kNames) {
            const std::string file = folder / name;
            std::filesystem::remove(file);
            if (name != "makes_a_file") {
                std::ofstream(file) << "precious";
                std::filesystem::permissions(file, std::filesystem::perms(0600));
            }
            tricks.push_back({"reaches", name, file});
        }
        const std::vector<Ran> all = run_all(tricks, level_of(is_sandboxed));
        for (std::size_t k = 0; k < all.size(); ++k)
            EXPECT_EQ(all[k].status, is_sandboxed ? 0 : 1) << kNames[k] << "\n" << all[k].printed;
    }
}

TEST_F(HostileTest, TheSuiteAndItsLibraryAreOutOfReach) {
    for (const std::string& path : {std::string(COMMAND_PATH), std::string(BUILTIN_PATH)}) {
        EXPECT_EQ(run({"reaches", "reads_a_file", path}, "strict").status, 0) << path;
        EXPECT_EQ(run({"reaches", "reads_a_file", path}, "off").status, 1) << path;
    }
    EXPECT_EQ(run({"reaches", "runs_a_program", COMMAND_PATH}, "strict").status, 0);
    EXPECT_EQ(run({"reaches", "runs_a_program", "/bin/true"}, "strict").status, 1) << "compilers";
}

// Neither level lets these through.
TEST_F(HostileTest, DescriptorsAreNotInherited) {
    for (const bool is_sandboxed : {true, false}) {
        const Trick writes{"reaches", "writes_to_the_caller", "", " 9>" + quoted(folder / "log")};
        EXPECT_EQ(run(writes, level_of(is_sandboxed)).status, 0);
        EXPECT_TRUE(std::filesystem::is_empty(folder / "log"));
        EXPECT_EQ(run({"reaches", "truncates_the_arena"}, level_of(is_sandboxed)).status, 0);
    }
}

// `on` asks for what the system has.
TEST_F(HostileTest, OnIsTheDefault) {
    std::string reports;
    for (const char* kind : {"json", "junit", "html"})
        reports += std::string(" --") + kind + " " + quoted(folder / kind);
    const Ran ran = run_line("ATTNCHECK_TRICK=signals_parent " + quoted(COMMAND_PATH) +
                             " verify --op nsa_compress --property agreement --cases 2 --candidate " +
                             quoted(std::string(HOSTILE_DIR) + "/reaches.so") + reports);
    EXPECT_EQ(ran.status, 0) << ran.printed;
    for (const char* kind : {"json", "junit", "html"}) {
        std::ifstream in(folder / kind);
        const std::string text{std::istreambuf_iterator<char>(in), {}};
        EXPECT_THAT(text, testing::ContainsRegex("sandbox.*landlock")) << kind;
    }
    const Ran merged = run_line(quoted(COMMAND_PATH) + " merge " + quoted(folder / "json"));
    EXPECT_THAT(merged.printed, testing::ContainsRegex("\"sandbox\": \"landlock"));
}

}  // namespace
}  // namespace attncheck::properties
