// Parts of the sandbox that the machine at hand would not take: its filter where Landlock sees to no signals, the
// environment, and folders that are left.
#include "properties/candidate/sandbox.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>

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
int filtered(bool limits_signals, const std::function<int()>& work) {
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (!enter_syscall_filter(limits_signals)) _exit(99);
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
    EXPECT_EQ(filtered(true, [] { return kill(getppid(), 0) == 0 ? 1 : errno == EPERM ? 2 : 3; }), 2);
    EXPECT_EQ(filtered(true, [] { return kill(-1, 0) == 0 ? 1 : errno == EPERM ? 2 : 3; }), 2);
    EXPECT_EQ(filtered(true, [] { return kill(getpid(), 0) == 0 ? 1 : 2; }), 1);
    EXPECT_EQ(filtered(true, [] { return raise(SIGTERM); }), -SIGTERM);
    EXPECT_EQ(filtered(true, []() -> int { abort(); }), -SIGABRT);
}

// Where Landlock draws the line, a compiler's driver may end what it started.
TEST_F(Filter, LeavesSignalsToLandlock) {
    EXPECT_EQ(filtered(false, [] { return kill(getppid(), 0) == 0 ? 1 : 2; }), 1);
}

TEST_F(Filter, LetsAProcessLimitItselfOnly) {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    EXPECT_EQ(filtered(false, [&] { return setrlimit(RLIMIT_NOFILE, &files) == 0 ? 1 : 2; }), 1);
    EXPECT_EQ(filtered(false, [&] { return getrlimit(RLIMIT_RTTIME, &files) == 0 ? 1 : 2; }), 1);
    EXPECT_EQ(filtered(false, [&] { return setrlimit(RLIMIT_RTTIME, &files) == 0 ? 1 : 2; }), 2);
}

TEST_F(Filter, LetsThreadsAndProcessesBegin) {
    EXPECT_EQ(filtered(true, [] {
                  const pid_t child = fork();
                  if (child == 0) _exit(7);
                  int status = 0;
                  return waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 1;
              }),
              7);
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
