// Parts of the sandbox that the machine at hand would not take: its filter where Landlock sees to no signals, the
// environment, and folders that are left.
#include "properties/candidate/sandbox.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>

#include "properties/candidate/landlock.h"
#include "properties/candidate/private_folder.h"
#include "properties/candidate/syscall_filter.h"

namespace attncheck::properties {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// The exit status of a copy of this process that entered the filter; -number if a signal ended it.
int filtered(FilterChoice choice, const std::function<int()>& work) {
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (!enter_syscall_filter(choice)) _exit(99);
        _exit(work());
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class Filter : public testing::Test {
protected:
    void SetUp() override {
        if (!has_syscall_filter()) GTEST_SKIP() << "this build has no libseccomp";
    }
};

TEST_F(Filter, LetsAProcessSignalItselfOnly) {
    EXPECT_EQ(filtered({.limits_signals = true}, [] { return kill(getppid(), 0) == 0 ? 1 : errno == EPERM ? 2 : 3; }), 2);
    EXPECT_EQ(filtered({.limits_signals = true}, [] { return kill(-1, 0) == 0 ? 1 : errno == EPERM ? 2 : 3; }), 2);
    EXPECT_EQ(filtered({.limits_signals = true}, [] { return kill(getpid(), 0) == 0 ? 1 : 2; }), 1);
    EXPECT_EQ(filtered({.limits_signals = true}, [] { return raise(SIGTERM); }), -SIGTERM);
    EXPECT_EQ(filtered({.limits_signals = true}, []() -> int { abort(); }), -SIGABRT);
}

// Where Landlock draws the line, a compiler's driver may end what it started.
TEST_F(Filter, LeavesSignalsToLandlock) {
    EXPECT_EQ(filtered({}, [] { return kill(getppid(), 0) == 0 ? 1 : 2; }), 1);
}

TEST_F(Filter, LetsAProcessLimitItselfOnly) {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    EXPECT_EQ(filtered({}, [&] { return setrlimit(RLIMIT_NOFILE, &files) == 0 ? 1 : 2; }), 1);
    EXPECT_EQ(filtered({}, [&] { return getrlimit(RLIMIT_RTTIME, &files) == 0 ? 1 : 2; }), 1);
    EXPECT_EQ(filtered({}, [&] { return setrlimit(RLIMIT_RTTIME, &files) == 0 ? 1 : 2; }), 2);
}

TEST_F(Filter, LetsThreadsAndProcessesBegin) {
    EXPECT_EQ(filtered({.limits_signals = true}, [] {
                  const pid_t child = fork();
                  if (child == 0) _exit(7);
                  int status = 0;
                  return waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 1;
              }),
              7);
}

bool makes(int family, int type) {
    const int made = socket(family, type, 0);
    if (made < 0 && errno != EACCES) _exit(98);
    if (made >= 0) close(made);
    return made >= 0;
}

bool makes_pair(int type) {
    int ends[2];
    return socketpair(AF_UNIX, type, 0, ends) == 0;
}

bool listens(const std::string& name) {
    const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un place{.sun_family = AF_UNIX, .sun_path = {}};
    name.copy(place.sun_path + 1, sizeof place.sun_path - 1);  // abstract: no file
    const auto* address = reinterpret_cast<const sockaddr*>(&place);
    return made >= 0 && bind(made, address, sizeof place) == 0 && listen(made, 1) == 0;
}

TEST_F(Filter, LeavesPairsThatReachNobodyElse) {
    EXPECT_EQ(filtered({}, [] { return makes(AF_UNIX, SOCK_SEQPACKET) ? 1 : 2; }), 2);
    EXPECT_EQ(filtered({}, [] { return makes_pair(SOCK_STREAM | SOCK_CLOEXEC) ? 1 : 2; }), 1);
    EXPECT_EQ(filtered({}, [] { return makes_pair(SOCK_SEQPACKET) ? 1 : 2; }), 1);
    for (const int type : {SOCK_DGRAM + 0, SOCK_DGRAM | SOCK_CLOEXEC, SOCK_RAW + 0})  // they take addresses
        EXPECT_EQ(filtered({}, [type] { return makes_pair(type) ? 1 : 2; }), 2);
}

// What CUDA's library does before it begins: seen on a machine with an H200, where it gave up.
TEST_F(Filter, LetsADriverListenAndNobodyConnect) {
    const std::string name = "attncheck_test_" + std::to_string(getpid());
    EXPECT_EQ(filtered({.has_devices = true}, [&] { return listens(name) ? 1 : 2; }), 1);
    for (const int family : {AF_INET, AF_NETLINK, AF_INET6})
        EXPECT_EQ(filtered({.has_devices = true}, [family] { return makes(family, SOCK_RAW) ? 1 : 2; }), 2);
    for (const int type : {SOCK_STREAM + 0, SOCK_DGRAM + 0, SOCK_RAW + 0, SOCK_DGRAM | SOCK_NONBLOCK})
        EXPECT_EQ(filtered({.has_devices = true}, [type] { return makes(AF_UNIX, type) ? 1 : 2; }), 2);
    EXPECT_EQ(filtered({.has_devices = true}, [] {
                  const int made = socket(AF_UNIX, SOCK_SEQPACKET, 0);
                  const sockaddr_un nobody{.sun_family = AF_UNIX, .sun_path = "/nowhere"};
                  const auto* address = reinterpret_cast<const sockaddr*>(&nobody);
                  return connect(made, address, sizeof nobody) == 0 ? 1 : errno == EACCES ? 2 : 3;
              }),
              2);
}

/// How a sandbox stands whose devices need this.
std::string level_for(const std::function<bool()>& begin) {
    return Sandbox(SandboxMode::on, {}, {{"/dev/null"}, begin}).level();
}

class DriverBehindWalls : public testing::Test {
protected:
    void SetUp() override {
        if (!has_syscall_filter() || landlock_version() < kLandlockScopesSignals)
            GTEST_SKIP() << "this system or build lacks a wall";
        all_ = "landlock " + std::to_string(landlock_version());
    }
    std::string all_;
    const std::string file_ = testing::TempDir() + "attncheck_driver_" + std::to_string(getpid());
};

TEST_F(DriverBehindWalls, BeginsOrIsAbsent) {
    EXPECT_EQ(level_for([] { return true; }), all_ + ", seccomp, devices open");
    EXPECT_EQ(level_for([] { return false; }), all_ + ", seccomp, devices open");
    EXPECT_EQ(level_for([&] { return listens("attncheck_test_driver"); }), all_ + ", seccomp, devices open");
}

// What begins outside alone, for a reason that is no wall, takes no wall away.
TEST_F(DriverBehindWalls, BeginsOutsideAlone) {
    EXPECT_EQ(level_for([] { return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0; }), all_ + ", seccomp, devices open");
}

// The name of a thread, say, is a file of the process that began it.
TEST_F(DriverBehindWalls, WritesAFile) {
    const auto writes = [] { return open("/proc/self/comm", O_WRONLY) >= 0; };
    EXPECT_EQ(level_for(writes), all_ + " without writing of files, seccomp, devices open");
}

TEST_F(DriverBehindWalls, MakesAFile) {
    const auto makes_file = [&] { return open(file_.c_str(), O_WRONLY | O_CREAT, 0600) >= 0 && unlink(file_.c_str()) == 0; };
    EXPECT_EQ(level_for(makes_file), all_ + " without files, seccomp, devices open");
    EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(DriverBehindWalls, NeedsWhatTheFilterRefuses) {
    const auto asks = [] { return makes(AF_INET, SOCK_STREAM); };
    EXPECT_EQ(level_for(asks), "none that the devices begin behind, devices open");
}

TEST(SandboxedEnvironment, IsAnAllowList) {
    const char* const own[] = {"PATH=/bin",        "OMP_NUM_THREADS=2", "LC_ALL=C",
                               "CI_JOB_TOKEN=x",   "PYTHONPATH=here",   "PYTHON_KEYRING_SECRET=x",
                               "TMPDIR=/elsewhere", "OTHER=1",          "PATHOLOGICAL=1",
                               "TORCH_API_KEY=x",   nullptr};
    const auto inside = sandboxed_environment(own, {"OTHER"}, "/private");
    for (const char* one : {"PATH=/bin", "OMP_NUM_THREADS=2", "LC_ALL=C", "PYTHONPATH=here",
                            "OTHER=1", "TMPDIR=/private", "TRITON_CACHE_DIR=/private/triton"})
        EXPECT_THAT(inside, Contains(one));
    for (const char* one : {"CI_JOB_TOKEN", "PYTHON_KEYRING_SECRET", "TMPDIR=/elsewhere",
                            "PATHOLOGICAL", "TORCH_API_KEY"})
        EXPECT_THAT(inside, Not(Contains(StartsWith(one))));
}

// A kernel that asks for a variable would find it absent, and nobody would say why.
TEST(SandboxedEnvironment, NamesInTheLibraryThatStayOutsideAreFound) {
    const char* const own[] = {"PATH=/bin", "BUG=2", "KERNEL_MODE=fast", "SHELLS=x", "OTHER=1", nullptr};
    EXPECT_THAT(withheld_variables_named_in("os.environ[\"BUG\"], PATH, \"PATH\", x['OTHER'], SHELLS, \"KERNEL_MODE'", own, {"OTHER"}),
                ElementsAre("BUG"));
    EXPECT_THAT(withheld_variables_named_in(std::string_view("\0KERNEL_MODE\0DEBUG\0", 19), own, {}), ElementsAre("KERNEL_MODE"));
    const char* const of_a_shell[] = {"_=/usr/bin/env", nullptr};
    EXPECT_TRUE(withheld_variables_named_in(std::string_view("\0_\0", 3), of_a_shell, {}).empty());
}

// Deeper than a path may be long, and than a process may have descriptors.
TEST(PrivateFolder, IsRemovedHoweverDeep) {
    namespace fs = std::filesystem;
    const fs::path folder = fs::path(testing::TempDir()) / ("attncheck_deep_" + std::to_string(getpid()));
    fs::create_directory(folder);
    const pid_t pid = fork();
    if (pid == 0) {
        constexpr int kDepth = 1100;
        if (chdir(folder.c_str()) != 0) _exit(1);
        for (int depth = 0; depth < kDepth; ++depth) {
            close(open("file", O_WRONLY | O_CREAT, 0600));
            if (mkdir("below", 0700) != 0 || chdir("below") != 0) _exit(1);
        }
        _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    ASSERT_EQ(status, 0);
    remove_folder(folder);
    EXPECT_FALSE(fs::exists(folder));
}

TEST(PrivateFolder, IsRemovedWhateverItsModes) {
    namespace fs = std::filesystem;
    const fs::path folder = fs::path(testing::TempDir()) / ("attncheck_left_" + std::to_string(getpid()));
    fs::create_directories(folder / "a" / "b");
    std::ofstream(folder / "a" / "b" / "file") << "left";
    fs::create_symlink(testing::TempDir(), folder / "link");
    chmod((folder / "a").c_str(), 0);
    remove_folder(folder);
    EXPECT_FALSE(fs::exists(folder));
    EXPECT_TRUE(fs::exists(testing::TempDir()));
}

}  // namespace
}  // namespace attncheck::properties
