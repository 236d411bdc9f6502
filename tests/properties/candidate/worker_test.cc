// Candidates that misbehave in every way that is known, each in a process of its own: what the
// suite says about it, and that the next call works.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "properties/candidate/arena.h"
#include "properties/candidate/placed_calls.h"
#include "properties/operators/nsa_compress/case.h"
#include "tests/properties/candidate/running_candidate.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;
using Kind = CallResult::Kind;

CallResult run_once(const std::string& library, const RunOptions& options = {}) {
    return opened(library)->run(call_of_ones(), options);
}

// A correct library: every element is 16, nothing is damaged, printing disturbs nobody.
TEST(Worker, CorrectLibraryReturnsItsOutputs) {
    for (const char* library : {"slow_but_correct", "prints"})
        for (const Placement placement : {Placement::ends_at_guard, Placement::begins_at_guard, Placement::off_alignment})
            for (const Poison poison : {Poison::ones, Poison::mixed}) {
                testing::internal::CaptureStdout();
                const CallResult result = run_once(library, {placement, poison});
                EXPECT_EQ(testing::internal::GetCapturedStdout(), "") << library;
                ASSERT_TRUE(result.ok()) << library;
                EXPECT_THAT(output_of(call_of_ones(), result), AllOf(SizeIs(64), Each(16)));
                EXPECT_THAT(result.damage, IsEmpty());
            }
}

// Signals that interrupt system calls of the candidate's process are its own affair.
TEST(Worker, InterruptedSystemCallsAreNoDeath) {
    const auto candidate = opened("interrupted_by_a_timer");
    for (int k = 0; k < 200; ++k) {
        const CallResult result = candidate->run(call_of_ones(), {});
        ASSERT_TRUE(result.ok()) << k << ": " << result.detail;
        usleep(200);
    }
}

// The shared buffers keep their size, whatever the candidate does to its descriptors.
TEST(Worker, BuffersCannotBeTruncated) {
    const CallResult result = run_once("truncates_descriptors");
    ASSERT_TRUE(result.ok());
    EXPECT_THAT(output_of(call_of_ones(), result), AllOf(SizeIs(64), Each(16)));
}

// The time inside the call is measured.
TEST(Worker, SlowCallIsTimed) { EXPECT_GE(run_once("slow_but_correct").seconds, 0.2); }

// A thread that crashes when its call has returned: the next call says so, and no other thing of it.
TEST(Worker, CrashOfALateThreadIsNamed) {
    const auto candidate = opened("crashes_in_a_thread");
    ASSERT_TRUE(candidate->run(call_of_ones(), {}).ok());
    usleep(100'000);
    const CallResult next = candidate->run(call_of_ones(), {});
    EXPECT_EQ(next.kind, Kind::crashed);
    EXPECT_EQ(next.detail, "crashed: SIGSEGV in a thread that outlived its call (write of address 0x8)");
    EXPECT_TRUE(candidate->run(call_of_ones(), {}).ok());
}

// Deaths are told apart, and described as the documentation shows.
TEST(Worker, DeathsAreNamed) {
    const CallResult crash = run_once("crashes");
    EXPECT_EQ(crash.kind, Kind::crashed);
    EXPECT_THAT(crash.detail,
                AllOf(StartsWith("crashed: SIGSEGV"), HasSubstr("write of address 0x0")));
    const CallResult abortion = run_once("aborts");
    EXPECT_EQ(abortion.kind, Kind::crashed);
    EXPECT_EQ(abortion.detail, "crashed: SIGABRT");
    const CallResult exit = run_once("exits");
    EXPECT_EQ(exit.kind, Kind::crashed);
    EXPECT_EQ(exit.detail, "ended the process with exit code 3");
    for (const CallResult* result : {&crash, &abortion, &exit}) {
        EXPECT_TRUE(result->died());
        EXPECT_FALSE(result->ok());
    }
}

// An endless loop costs the time limit and no more.
TEST(Worker, EndlessLoopIsStoppedAtTheTimeLimit) {
    const auto candidate = opened("loops_for_ever", 0.3);
    const auto start = std::chrono::steady_clock::now();
    const CallResult result = candidate->run(call_of_ones(), {});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(result.kind, Kind::timed_out);
    EXPECT_EQ(result.detail, "timed out after 0.3 s");
    EXPECT_GE(took.count(), 0.3);
    EXPECT_LT(took.count(), 5);
}

// The limit can be shortened for a while, never lengthened beyond what was asked for.
TEST(Worker, TimeLimitCanBeShortened) {
    const auto candidate = opened("loops_for_ever", 0.3);
    const auto detail = [&](double limit) {
        candidate->limit_time(std::chrono::duration<double>(limit));
        return candidate->run(call_of_ones(), {}).detail;
    };
    EXPECT_EQ(detail(0.1), "timed out after 0.1 s");
    EXPECT_EQ(detail(100), "timed out after 0.3 s");
    EXPECT_EQ(detail(0), "timed out after 0.3 s");
}

// A call that has more to do gets a multiple of the time, of what it is shortened to as well, and
// more memory.
TEST(Worker, LargeCallsGetMoreTimeAndMemory) {
    const auto candidate = opened("loops_for_ever", 0.2);
    RunOptions large;
    large.patience = 3;
    large.more_memory_mib = 20;
    EXPECT_EQ(candidate->run(call_of_ones(), large).detail, "timed out after 0.6 s");
    candidate->limit_time(std::chrono::duration<double>(0.1));
    EXPECT_EQ(candidate->run(call_of_ones(), large).detail, "timed out after 0.3 s");
    WorkerOptions options = options_for("allocates_without_end");
    options.memory_mib = 100;
    EXPECT_THAT(open_worker_candidate(options)->run(call_of_ones(), large).detail,
                HasSubstr("120 MiB"));
}

// Memory without end is cut off at the limit, long before the machine suffers.
TEST(Worker, MemoryIsLimited) {
    WorkerOptions options = options_for("allocates_without_end");
    options.memory_mib = 100;
    const CallResult result = open_worker_candidate(options)->run(call_of_ones(), {});
    EXPECT_EQ(result.kind, Kind::out_of_memory);
    EXPECT_THAT(result.detail, HasSubstr("100 MiB"));
}

// Calls that leak are found although each of them is short; memory that is shared counts too.
TEST(Worker, MemoryIsLimitedOverAllCalls) {
    for (const char* library : {"leaks", "leaks_shared_memory"}) {
        WorkerOptions options = options_for(library);
        options.memory_mib = 64;
        const auto candidate = open_worker_candidate(options);
        int calls = 0;
        CallResult result;
        do
            result = candidate->run(call_of_ones(), {});
        while (result.ok() && ++calls < 400);
        EXPECT_EQ(result.kind, Kind::out_of_memory) << library;
        EXPECT_GT(calls, 4) << library;
    }
}

TEST(Worker, ForkedProcessesEndWithTheWorker) {
    const auto candidate = opened("forks");
    const CallResult result = candidate->run(call_of_ones(), {});
    EXPECT_EQ(result.kind, Kind::left_processes);
    const pid_t child = result.status;
    ASSERT_GT(child, 1);
    const auto is_running = [&] {
        std::ifstream status("/proc/" + std::to_string(child) + "/stat");
        std::string number, name, state;
        return (status >> number >> name >> state) && state != "Z" && state != "X";
    };
    for (int tries = 0; is_running() && tries < 100; ++tries) usleep(10'000);
    EXPECT_FALSE(is_running());
}

// One element too many is caught at the page behind the buffer, one too few at the page before.
TEST(Worker, OneElementOutsideIsLocated) {
    const CallResult past = run_once("one_element_past_output");
    EXPECT_EQ(past.kind, Kind::out_of_bounds);
    EXPECT_EQ(past.where, "output");
    EXPECT_EQ(past.detail, "out-of-bounds write 1 element(s) past the end of output");
    const CallResult before =
        run_once("one_element_before_input", {Placement::begins_at_guard, Poison::ones});
    EXPECT_EQ(before.kind, Kind::out_of_bounds);
    EXPECT_EQ(before.where, "input");
    EXPECT_EQ(before.detail, "out-of-bounds read 1 element(s) before the start of input");
}

// Rows of 16 channels end and begin at multiples of 32 bytes: only one element further is any other address.
TEST(Worker, AddressesThatAreRoundedAreSeenOffTheirAlignment) {
    for (const Placement placement : {Placement::ends_at_guard, Placement::begins_at_guard})
        EXPECT_THAT(output_of(call_of_ones(), run_once("rounds_addresses", {placement})), Each(16));
    const CallResult result = run_once("rounds_addresses", {Placement::off_alignment});
    ASSERT_TRUE(result.ok());
    EXPECT_THAT(output_of(call_of_ones(), result), Not(Each(16)));
}

Call call_with_far_heads() {
    return forward().build(
        spec_of("nsa_compress{dtype=fp16 seq=[32] heads=2 dim=16 block=16 stride=16 data=ones "
                "seed=0 input.layout=far output.layout=far}"));
}

// Tensors whose slices lie 2^32 elements apart take the pages of their elements alone.
TEST(Worker, FarSlicesTakeFewPages) {
    const auto arena = Arena::shared();
    const std::int64_t before = arena->resident_mib();
    const CallResult result = opened("prints")->run(call_with_far_heads(), {});
    ASSERT_TRUE(result.ok()) << result.detail;
    EXPECT_THAT(output_of(call_of_ones(), result), AllOf(SizeIs(64), Each(16)));
    EXPECT_THAT(result.damage, IsEmpty());
    EXPECT_LE(arena->resident_mib(), before + 2);
}

// Between the slices nothing may be touched.
TEST(Worker, AccessBetweenFarSlicesIsLocated) {
    EXPECT_TRUE(run_once("misses_far_slices").ok());
    const CallResult result = opened("misses_far_slices")->run(call_with_far_heads(), {});
    EXPECT_EQ(result.kind, Kind::out_of_bounds);
    EXPECT_EQ(result.where, "output");
    EXPECT_THAT(result.detail, HasSubstr("out-of-bounds write between the slices of output"));
}

// Buffers beyond the address space of the arena are not laid out.
TEST(Worker, BuffersThatDoNotFitAreRefused) {
    const Call far = call_with_far_heads();
    const std::uint64_t small = std::uint64_t{1} << 30;
    EXPECT_THROW(PlacedCalls({&far}, {}, 1, small), NoRoom);
}

// Where no page is in the way, a stray write still shows in the bytes around the buffer.
TEST(Worker, StrayWriteWithoutAGuardIsDamage) {
    const CallResult result =
        run_once("one_element_past_output", {Placement::begins_at_guard, Poison::mixed});
    ASSERT_TRUE(result.ok());
    ASSERT_THAT(result.damage, SizeIs(1));
    EXPECT_EQ(result.damage[0].tensor, "output");
    EXPECT_THAT(result.damage[0].what, HasSubstr("outside the tensor"));
}

TEST(Worker, WrittenInputIsDamage) {
    const CallResult result = run_once("writes_an_input");
    ASSERT_TRUE(result.ok());
    ASSERT_THAT(result.damage, SizeIs(1));
    EXPECT_EQ(result.damage[0].tensor, "weight");
    EXPECT_THAT(result.damage[0].what, HasSubstr("an input was written"));
}

// Outputs that were never written still hold the pattern.
TEST(Worker, UnwrittenOutputHoldsThePattern) {
    EXPECT_THAT(run_once("never_writes").outputs.at(2), Each(0xFFFFu));
    EXPECT_THAT(run_once("never_writes", {Placement::ends_at_guard, Poison::mixed}).outputs.at(2),
                Each(0x5A5Au));
}

// The status is handed through.
TEST(Worker, DeclinedIsAStatus) {
    const CallResult result = run_once("declines");
    EXPECT_EQ(result.kind, Kind::returned);
    EXPECT_EQ(result.status, ATTNCHECK_DECLINED);
    EXPECT_FALSE(result.ok());
    EXPECT_FALSE(result.died());
}

// After every kind of death the same candidate serves the next call in a new worker.
TEST(Worker, NewOneIsStartedAfterEachDeath) {
    const auto candidate = opened("three_defects", 0.3);
    const auto run = [&](const std::string& words) {
        return candidate->run(forward().build(spec_of("nsa_compress{dtype=fp16 dim=16 stride=16 "
                                                      "data=ones seed=0 " +
                                                      words + "}")),
                              {});
    };
    for (int round = 0; round < 2; ++round) {
        EXPECT_EQ(run("seq=[0,16] heads=1 block=16").kind, Kind::crashed);
        EXPECT_TRUE(run("seq=[16] heads=1 block=16").ok());
        EXPECT_EQ(run("seq=[16] heads=1 block=48").kind, Kind::timed_out);
        EXPECT_TRUE(run("seq=[16] heads=2 block=16").ok());
        EXPECT_EQ(run("seq=[16] heads=3 block=16").kind, Kind::out_of_bounds);
        EXPECT_TRUE(run("seq=[16] heads=4 block=16").ok());
    }
}

// Calls run together each give their own result; a death is everybody's.
TEST(Worker, CallsRunTogether) {
    const Call one = call_of_ones();
    const Call other = forward().build(
        spec_of("nsa_compress{dtype=bf16 seq=[64] heads=1 dim=16 block=32 stride=32 data=ones "
                "seed=0}"));
    const Call* calls[] = {&one, &other};
    const auto results = opened("prints")->run_together(calls, 5);
    ASSERT_THAT(results, SizeIs(2));
    ASSERT_TRUE(results[0].ok());
    ASSERT_TRUE(results[1].ok());
    EXPECT_THAT(output_of(one, results[0]), AllOf(SizeIs(64), Each(16)));
    EXPECT_THAT(output_of(other, results[1]), AllOf(SizeIs(32), Each(32)));
    for (const CallResult& result : opened("aborts")->run_together(calls, 1))
        EXPECT_EQ(result.detail, "crashed: SIGABRT");
}

// Repetitions end in a part of the time limit, which is that of one call.
TEST(Worker, RepetitionsOfSlowCallsEnd) {
    const Call one = call_of_ones();
    const Call* calls[] = {&one, &one};
    for (const CallResult& result : opened("slow_but_correct", 0.5)->run_together(calls, 16)) {
        EXPECT_TRUE(result.ok()) << result.detail;
        EXPECT_LT(result.seconds, 0.7);
    }
}

/// As of a system that has no memory for further threads.
class NoRoomForThreads {
public:
    NoRoomForThreads() {
        getrlimit(RLIMIT_AS, &before_);
        const rlimit none{1, before_.rlim_max};
        setrlimit(RLIMIT_AS, &none);
    }
    ~NoRoomForThreads() { setrlimit(RLIMIT_AS, &before_); }
    NoRoomForThreads(const NoRoomForThreads&) = delete;
    NoRoomForThreads& operator=(const NoRoomForThreads&) = delete;

private:
    rlimit before_{};
};

// Threads that the system does not have are no death of the candidate.
TEST(Worker, MissingThreadsAreNoVerdict) {
    const Call one = call_of_ones();
    const Call* calls[] = {&one, &one};
    const auto candidate = opened("leaves_no_room_for_threads");
    ASSERT_TRUE(candidate->run(one, {}).ok());
    try {
        const NoRoomForThreads system;
        candidate->run_together(calls, 2);
        ADD_FAILURE() << "threads were there";
    } catch (const std::runtime_error& e) {
        EXPECT_THAT(e.what(), HasSubstr("no threads left"));
    }
    // Where the suite gets threads, it is the library that has none.
    const std::vector<CallResult> alone = candidate->run_together(calls, 2);
    EXPECT_EQ(alone[0].kind, CallResult::Kind::broke_rules);
    EXPECT_EQ(alone[0].detail, "takes the threads that calls at once need");
}

// A library that is replaced while the run goes on is not the one that was judged before.
TEST(Worker, ReplacedLibraryIsNoticed) {
    namespace fs = std::filesystem;
    const fs::path copy =
        fs::path(testing::TempDir()) / ("attncheck_replaced." + std::to_string(getpid()) + ".so");
    WorkerOptions options = options_for("prints");
    fs::copy_file(options.library, copy, fs::copy_options::overwrite_existing);
    options.library = copy;
    const auto candidate = open_worker_candidate(options);
    ASSERT_TRUE(candidate->run(call_of_ones(), {}).ok());
    candidate->restart();
    ASSERT_TRUE(candidate->run(call_of_ones(), {}).ok());
    fs::remove(copy);
    fs::copy_file(options_for("writes_an_input").library, copy);
    candidate->restart();
    EXPECT_THROW(candidate->run(call_of_ones(), {}), LoadError);
    fs::remove(copy);
}

// A run that ends does not wait for a call, and says nothing about it.
TEST(Worker, StoppedCallsAreGivenUp) {
    const auto start = std::chrono::steady_clock::now();
    const auto elapsed = [&] { return std::chrono::steady_clock::now() - start; };
    WorkerOptions options = options_for("loops_for_ever", 60);
    options.stopped = [&] { return elapsed() > std::chrono::milliseconds(300); };
    const auto candidate = open_worker_candidate(options);
    EXPECT_THROW(candidate->run(call_of_ones(), {}), Stopped);
    EXPECT_THROW(candidate->run(call_of_ones(), {}), Stopped);
    EXPECT_LT(elapsed(), std::chrono::seconds(2));
}

// A process sees one call after the other; a restart begins a new one that knows of none.
TEST(Worker, RestartBeginsANewProcess) {
    const auto candidate = opened("counts_calls");
    const auto calls_seen = [&] { return candidate->run(call_of_ones(), {}).status; };
    EXPECT_EQ(calls_seen(), 1);
    EXPECT_EQ(calls_seen(), 2);
    candidate->restart();
    candidate->restart();
    EXPECT_EQ(calls_seen(), 1);
    EXPECT_EQ(candidate->info().name, "counts calls");
}

}  // namespace
}  // namespace attncheck::properties
