// The manual page and the completions say what the command line has.
#include <regex>
#include <set>

#include "tests/properties/cli/command_fixture.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

using ManualTest = CommandTest;

const char* const kCommands[] = {"list", "verify", "reproduce", "judge", "merge", "explain", "cases", "mutants"};

std::set<std::string> options_of(const std::string& command) {
    const std::string help = attncheck(command + " --help").printed;
    static const std::regex option("\\n  (?:-[a-z],)?(--[a-z][a-z-]+)");  // not those that a text mentions
    std::set<std::string> out;
    for (std::sregex_iterator at(help.begin(), help.end(), option), end; at != end; ++at) out.insert(at->str(1));
    return out;
}

// Every option of every command is in the manual, and roff reads it without a warning.
TEST_F(ManualTest, HasEveryOption) {
    const std::string page = attncheck("manual").printed;
    EXPECT_THAT(options_of("verify"), AllOf(Contains("--json"), Contains("--verbose")));
    for (const char* command : kCommands) {
        EXPECT_THAT(page, HasSubstr(std::string(".SH \"") + command + "\"\n"));
        for (std::string option : options_of(command)) {
            if (option == "--help") continue;
            EXPECT_THAT(page, HasSubstr("\\fB" + std::regex_replace(option, std::regex("-"), "\\-") + "\\fR")) << command;
        }
    }
    EXPECT_THAT(page, AllOf(HasSubstr(".SH \"EXIT STATUS\""), HasSubstr("NO_COLOR")));
    EXPECT_THAT(page, HasSubstr("\nattncheck merge a.json b.json \\-\\-json all.json\n"));
    EXPECT_THAT(page, AllOf(HasSubstr(".B attncheck reproduce\n.RI \"\" case \" [\" option ]..."),
                            HasSubstr(".B attncheck cases\n.RI [ operator \"] [\" option ]..."),
                            HasSubstr(".B attncheck verify\n.RI [ option ]...")));
    if (run_line("command -v groff >/dev/null").status != 0) return;
    EXPECT_EQ(attncheck("manual", "2>&1 | groff -man -ww -z 2>&1").printed, "");
}

/// What bash offers for the last word.
std::string completed(const std::string& words) {
    return run_line("bash -c 'eval \"$(" + std::string(COMMAND_PATH) + " completion bash)\"; COMP_WORDS=(" + words +
                    "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _attncheck; echo \"${COMPREPLY[*]}\"'").printed;
}

// Bash completes commands, options, and the values that an option allows.
TEST_F(ManualTest, BashCompletes) {
    EXPECT_EQ(completed("attncheck ver"), "verify\n");
    EXPECT_EQ(completed("attncheck verify --no-val"), "--no-validation\n");
    EXPECT_EQ(completed("attncheck verify --op attention_g"), "attention_grad\n");
    EXPECT_EQ(completed("attncheck verify --property value_li"), "value_linearity\n");
    EXPECT_EQ(completed("attncheck explain page_"), "page_order page_sharing page_size\n");
    EXPECT_EQ(completed("attncheck cases nsa_m"), "nsa_module\n");
    EXPECT_EQ(completed("attncheck verify --rule tor"), "torch\n");
    for (const char* command : kCommands)
        for (const std::string& option : options_of(command))
            EXPECT_THAT(completed(std::string("attncheck ") + command + " " + option), HasSubstr(option)) << command;
}

// Zsh reads the functions of bash; fish gets a line for each option. An unknown shell is answered.
TEST_F(ManualTest, OtherShellsAreServed) {
    EXPECT_THAT(attncheck("completion zsh").printed, AllOf(HasSubstr("#compdef attncheck\n"), HasSubstr("bashcompinit")));
    EXPECT_THAT(attncheck("completion fish").printed,
                AllOf(HasSubstr("__fish_seen_subcommand_from verify' -l op -r -f -a 'nsa_compress "),
                      HasSubstr("-a explain -d 'why a law holds")));
    EXPECT_THAT(attncheck("completion bsh").printed, HasSubstr("did you mean 'bash'?"));
}

}  // namespace
}  // namespace attncheck::properties
