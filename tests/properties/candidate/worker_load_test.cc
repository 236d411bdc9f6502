// Libraries that cannot be used: one line that says which library and what is wrong with it.
#include <gmock/gmock.h>

#include <cstdlib>
#include <string>

#include "properties/candidate/installation.h"
#include "tests/properties/candidate/running_candidate.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A good library says who it is, what it implements and how it rounds.
TEST(Loading, TellsWhatTheLibraryIs) {
    const CandidateInfo talkative = opened("slow_but_correct")->info();
    EXPECT_EQ(talkative.name, "slow but correct");
    EXPECT_EQ(talkative.precision, "acc=fp32");
    EXPECT_THAT(talkative.operators, ElementsAre("nsa_compress"));
    EXPECT_TRUE(talkative.implements("nsa_compress"));
    EXPECT_FALSE(talkative.implements("nsa_compress_grad"));
    EXPECT_FALSE(talkative.implements(""));
    EXPECT_EQ(opened("declines")->info().precision, "");
}

// The wrong ABI version: both numbers are named.
TEST(Loading, RefusesAnotherAbiVersion) {
    EXPECT_THAT(
        load_error(options_for("wrong_version")),
        AllOf(HasSubstr("wrong_version.so"), HasSubstr("ABI version 77"), HasSubstr("expected 1")));
}

// A name is one line of at most 120 printable characters, and says nothing about anything else.
TEST(Loading, MakesTheNamePrintable) {
    const CandidateInfo odd = opened("odd_name")->info();
    EXPECT_EQ(odd.name, "odd ?]0;title??[2J?[8m ??? name");
    EXPECT_EQ(odd.precision, "");
    EXPECT_THAT(odd.operators, ElementsAre("nsa_compress"));
    EXPECT_EQ(opened("endless_name")->info().name, std::string(117, 'x') + "...");
}

// More text than a name, a class and a list of operators need is refused before it is read.
TEST(Loading, RefusesGigabytesOfText) {
    EXPECT_THAT(load_error(options_for("announces_gigabytes")),
                AllOf(HasSubstr("announces_gigabytes.so"), HasSubstr("4294967280 bytes")));
}

// A library that crashes while it is loaded is said to, as one that ends with a signal that no handler takes.
TEST(Loading, SaysThatLoadingCrashed) {
    const std::string text = load_error(options_for("crashes_when_loaded"));
    EXPECT_THAT(text, AllOf(HasSubstr("crashes_when_loaded.so"), HasSubstr("crashed: SIGSEGV while it was loaded")));
}

// The path is said once.
TEST(Loading, NamesTheLibraryOnce) {
    for (const char* name : {"wrong_version", "no_version_symbol"}) {
        const std::string text = load_error(options_for(name));
        EXPECT_EQ(text.find(".so"), text.rfind(".so")) << text;
    }
}

TEST(Loading, NamesTheMissingSymbol) {
    EXPECT_THAT(load_error(options_for("no_version_symbol")),
                AllOf(HasSubstr("no_version_symbol.so"), HasSubstr("attncheck_abi_version")));
    EXPECT_THAT(load_error(options_for("no_name_symbol")),
                AllOf(HasSubstr("no_name_symbol.so"), HasSubstr("attncheck_candidate_name")));
}

// A text file is no library, and a file that is not there is none either.
TEST(Loading, RefusesWhatIsNoLibrary) {
    WorkerOptions options = options_for("");
    options.library = SOURCE_FILE_THAT_IS_NO_LIBRARY;
    EXPECT_THAT(load_error(options), AllOf(HasSubstr("CMakeLists.txt"), HasSubstr("cannot load")));
    options.library = "/nowhere/libmissing.so";
    EXPECT_THAT(load_error(options), AllOf(HasSubstr("/nowhere/libmissing.so"),
                                           HasSubstr("cannot load"), Not(HasSubstr("\n"))));
}

// Without a worker program nothing can be loaded.
TEST(Loading, NamesTheMissingWorker) {
    WorkerOptions options = options_for("declines");
    options.worker = "/nowhere/attncheck-worker";
    EXPECT_THAT(load_error(options), HasSubstr("/nowhere/attncheck-worker"));
}

// The programs that belong together are found beside each other, or where a variable says.
TEST(Loading, FindsTheWorkerBesideTheProgramOrByVariable) {
    EXPECT_EQ(find_worker(), WORKER_PATH);
    EXPECT_THAT(find_builtin_library(), testing::EndsWith("libattncheck_builtin.so"));
    const WithVariable worker("ATTNCHECK_WORKER", "/elsewhere/worker");
    const WithVariable builtin("ATTNCHECK_BUILTIN", "/elsewhere/library");
    EXPECT_EQ(find_worker(), "/elsewhere/worker");
    EXPECT_EQ(find_builtin_library(), "/elsewhere/library");
}

}  // namespace
}  // namespace attncheck::properties
