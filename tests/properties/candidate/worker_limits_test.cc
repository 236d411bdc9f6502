// What a candidate takes of the system: memory of any kind, processes, files and output, in calls
// and while it is loaded.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "properties/candidate/private_folder.h"
#include "properties/candidate/process_family.h"
#include "properties/candidate/sandbox.h"
#include "properties/candidate/written_files.h"
#include "tests/properties/candidate/running_candidate.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using Kind = CallResult::Kind;

std::vector<pid_t> own_children() { return descendants_of(getpid()); }

double seconds_of(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Memory counts wherever it is: nothing that a process can take is free.
TEST(Limits, MemoryOfAnyKindCounts) {
    WorkerOptions options = options_for("hoards_memory");
    options.memory_mib = 100;
    for (const char* how : {"private", "shared", "file", "arena", "child"}) {
        const WithVariable variable("HOARD", how);
        const auto candidate = open_worker_candidate(options);
        CallResult result;
        for (int calls = 0; calls < 200 && !result.died(); ++calls)
            result = candidate->run(call_of_ones(), {});
        EXPECT_EQ(result.kind, Kind::out_of_memory) << how << ": " << result.detail;
        EXPECT_EQ(result.detail, "used more than 100 MiB of memory") << how;
    }
}

// The same limit holds while a library is loaded.
TEST(Limits, MemoryOfLoadingCounts) {
    WorkerOptions options = options_for("hoards_memory");
    options.memory_mib = 100;
    for (const char* how : {"private", "shared", "file", "arena"}) {
        const WithVariable variable("HOARD", std::string("+") + how);
        EXPECT_THAT(load_error(options),
                    HasSubstr("used more than 100 MiB of memory while it was loaded"))
            << how;
    }
}

// What lies within the limit is nobody's business.
TEST(Limits, MemoryWithinTheLimitIsLeftAlone) {
    for (const char* how : {"private", "shared", "file"}) {
        const WithVariable variable("HOARD", how);
        const auto candidate = opened("hoards_memory");
        for (int calls = 0; calls < 5; ++calls)
            EXPECT_TRUE(candidate->run(call_of_ones(), {}).ok()) << how;
    }
}

// Processes that outlive the worker are a failure of the call that left them, and are ended.
TEST(Limits, ProcessesLeftBehindAreAFailure) {
    for (const auto& [how, count] : {std::pair("children", "50 processes"), {"daemon", "1 process"}}) {
        const WithVariable variable("FORK", how);
        const CallResult result = opened("leaves_processes")->run(call_of_ones(), {});
        EXPECT_EQ(result.kind, Kind::left_processes) << how << ": " << result.detail;
        EXPECT_EQ(result.detail, std::string("left ") + count + " behind");
        EXPECT_THAT(own_children(), IsEmpty()) << how;
    }
}

// A call that forks without end is not waited for.
TEST(Limits, ProcessesAreBounded) {
    const WithVariable variable("FORK", "many");
    EXPECT_EQ(opened("leaves_processes", 60)->run(call_of_ones(), {}).detail,
              "started more than 256 processes");
    EXPECT_THAT(own_children(), IsEmpty());
}

// So is the size of a file.
TEST(Limits, FilesAreBounded) {
    const WithVariable variable("HOARD", "large file");
    const CallResult result = opened("hoards_memory")->run(call_of_ones(), {});
    EXPECT_EQ(result.detail, "crashed: SIGXFSZ (wrote a file of more than 16384 MiB)");
}

// So is what a run writes to its folder, in files of any size, removed or not.
TEST(Limits, FilesOfTheFolderAreBounded) {
    WorkerOptions options = options_for("hoards_memory");
    options.memory_mib = 100;
    options.sandbox = Sandbox::shared(SandboxMode::on, {});
    for (const auto& [how, said] : {std::pair("files", "wrote more than 100 MiB of files"),
                                    {"removed files", "wrote more than 100 MiB of files"},
                                    {"deep folders", "made folders more than 64 deep"}}) {
        const WithVariable variable("HOARD", how);
        options.variables = {"HOARD"};
        auto candidate = open_worker_candidate(options);
        const auto run_until_it_ends = [&] {
            CallResult result;
            for (int calls = 0; calls < 8 && !result.died(); ++calls) {
                std::this_thread::sleep_for(std::chrono::milliseconds(25));  // between two looks
                result = candidate->run(call_of_ones(), {});
            }
            return result.detail;
        };
        EXPECT_EQ(run_until_it_ends(), said) << how;
        candidate->restart();  // what is written stays
        EXPECT_EQ(run_until_it_ends(), said) << how;
        candidate.reset();
        for (const auto& entry : std::filesystem::directory_iterator(options.sandbox->folder()))
            remove_folder(entry.path()), std::filesystem::remove(entry.path());
    }
}

// Each file counts once; counting many of them ends.
TEST(Limits, WrittenFilesAreCounted) {
    const std::string folder = private_folder() + "/counted";
    std::filesystem::create_directories(folder + "/below");
    std::ofstream(folder + "/below/file") << std::string(3 << 20, 'x');
    std::filesystem::create_hard_link(folder + "/below/file", folder + "/again");
    std::filesystem::create_symlink("/", folder + "/everything");
    for (int k = 0; k < 10; ++k) std::ofstream(folder + "/" + std::to_string(k)).put('x');
    const WrittenFiles all = written_files(folder, {}, 100);
    EXPECT_EQ(all.mib, 3);
    EXPECT_EQ(all.count, 13) << "a folder, a link, a large file and ten small ones";
    EXPECT_EQ(written_files(folder, {}, 5).count, 6);
    EXPECT_FALSE(all.is_too_deep);
    remove_folder(folder);
    EXPECT_EQ(written_files(folder, {}, 100).count, 0);
}

// So are those of a library that starts them when it is loaded.
TEST(Limits, ProcessesLeftByLoadingAreAFailure) {
    const WithVariable variable("FORK", "+daemon");
    const auto candidate = opened("leaves_processes");
    EXPECT_EQ(candidate->run(call_of_ones(), {}).detail,
              "left 1 process behind when it was loaded");
    EXPECT_THAT(own_children(), IsEmpty());
}

// A helper that ends with its parent is not left behind.
TEST(Limits, HelpersMayRun) {
    for (const char* how : {"helper", "+helper"}) {
        const WithVariable variable("FORK", how);
        const auto candidate = opened("leaves_processes");
        for (int calls = 0; calls < 3; ++calls) {
            const CallResult result = candidate->run(call_of_ones(), {});
            EXPECT_TRUE(result.ok()) << result.detail;
            EXPECT_THAT(output_of(call_of_ones(), result), AllOf(SizeIs(64), Each(16)));
        }
    }
}

// The end of the worker is seen although a child still holds its socket.
TEST(Limits, ChildThatHoldsTheSocketDoesNotCostTheLimit) {
    const WithVariable variable("FORK", "holder");
    const auto candidate = opened("leaves_processes", 60);
    CallResult result;
    EXPECT_LT(seconds_of([&] { result = candidate->run(call_of_ones(), {}); }), 5);
    EXPECT_EQ(result.detail, "ended the process with exit code 5");
    EXPECT_THAT(own_children(), IsEmpty());
}

// Messages of a candidate are shown, but neither obeyed nor shown without end.
TEST(Limits, MessagesArePrintableAndBounded) {
    WorkerOptions options = options_for("talks_without_end");
    std::ostringstream to;
    options.messages = &to;
    EXPECT_TRUE(open_worker_candidate(options)->run(call_of_ones(), {}).ok());
    const std::string shown = to.str();
    EXPECT_THAT(shown, AllOf(HasSubstr("?[2J?[8m every property held"), Not(HasSubstr("\x1b")),
                             HasSubstr("the library says more than is shown")));
    EXPECT_LT(shown.size(), 100'000u);
}

// Of the calls that somebody listens to, and of no others.
TEST(Limits, WhatALibraryWritesCanBeKept) {
    const auto candidate = opened("talks_without_end", 10);
    const auto call = [&] { EXPECT_TRUE(candidate->run(call_of_ones(), {}).ok()); };
    testing::internal::CaptureStderr();
    call();
    EXPECT_THAT(candidate->written_during(call), HasSubstr("every property held"));
    call();
    EXPECT_THROW(candidate->written_during([] { throw Stopped(); }), Stopped);
    call();
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace attncheck::properties
