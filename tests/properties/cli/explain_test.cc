// What the command says of laws, cases, misspelt names and files that are no library.
#include <cstring>
#include <link.h>
#include <sstream>

#include "properties/operators/catalogue.h"
#include "tests/properties/cli/command_fixture.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using ExplainTest = CommandTest;

// The text of a law is the one of its source: why it holds, its bound, what it kills.
TEST_F(ExplainTest, SaysWhyALawHolds) {
    const Ran ran = attncheck("explain value_shift --op attention");
    EXPECT_EQ(ran.status, 0);
    EXPECT_THAT(ran.printed, AllOf(HasSubstr("value_shift: V + c gives O + c\n  of attention\n"),
                                   HasSubstr("\nWhy     sum_j P_ij (v_j + c) = o_i + c"), HasSubstr("\nBound "),
                                   HasSubstr("\nKills "), HasSubstr("properties/laws/attention_shift.cc")));
    EXPECT_THAT(attncheck("explain value_shift --op attention_grad").printed,
                AllOf(HasSubstr("value_shift: V + c and O + c leave dQ, dK and dV\n  of attention_grad\n"),
                      Not(HasSubstr("V + c gives O + c"))));
    // Both directions have one text, which is printed once.
    const std::string both = attncheck("explain value_shift").printed;
    EXPECT_THAT(both, AllOf(HasSubstr("V + c gives O + c"), HasSubstr("leave dQ, dK and dV")));
    EXPECT_EQ(both.find("\nWhy "), both.rfind("\nWhy "));
    expect_refusal("explain adjont", {"unknown property 'adjont', did you mean 'adjoint'?"});
    expect_refusal("explain page_size --op attention", {"attention has no property 'page_size'"});
    expect_refusal("explain memory --op atention", {"did you mean 'attention'?"});
}

// What a report lists beside the laws is explained too, and a long list of operators has short lines.
TEST_F(ExplainTest, SaysWhatRowsOfARunMean) {
    for (const char* row : {"required_classes", "required_clauses"}) {
        const Ran ran = attncheck(std::string("explain ") + row);
        EXPECT_EQ(ran.status, 0) << row;
        EXPECT_THAT(ran.printed, HasSubstr(std::string(row) + ": ")) << row;
    }
    for (const char* law : {"agreement", "deviation", "required_classes"}) {
        std::istringstream lines(attncheck(std::string("explain ") + law).printed);
        for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
    }
    EXPECT_THAT(attncheck("explain deviation").printed,
                HasSubstr("\nWhy     roundings of zero-mean data are independent errors of known size; a\n        defect that the rigorous bound"));
}

// Every law of the catalogue has a text.
TEST_F(ExplainTest, EveryLawHasAText) {
    std::vector<std::string> laws;
    for (const auto& op : operators())
        for (const Property& property : op->properties())
            if (std::ranges::find(laws, property.name) == laws.end()) laws.push_back(property.name);
    std::string line;
    for (const std::string& law : laws) line += quoted(COMMAND_PATH) + " explain " + law + " | grep -q '^Why ' || echo " + law + "; ";
    EXPECT_EQ(run_line(line).printed, "");
}

/// "dim=80" at the end of a row of the table, which may have several lines.
std::vector<std::string> examples_in(const std::string& table) {
    std::vector<std::string> out;
    std::istringstream lines(table);
    std::string line, row;
    const auto close = [&] {
        const std::size_t at = row.rfind(' ');
        if (!row.empty() && at != std::string::npos) out.push_back(row.substr(at + 1));
        row.clear();
    };
    std::getline(lines, line), std::getline(lines, line);  // the case and a blank line
    while (std::getline(lines, line)) {
        if (line.size() > 2 && line[2] != ' ') close();
        row += " " + line;
    }
    close();
    return out;
}

// The case of an operator and the example of every field are read as cases are.
TEST_F(ExplainTest, ExamplesOfCasesAreCases) {
    for (const auto& op : operators()) {
        const std::string printed = attncheck("cases " + op->name()).printed;
        const std::string line = printed.substr(0, printed.find('\n'));
        EXPECT_NO_THROW((void)parse(line, schemas())) << line;
        const std::vector<std::string> examples = examples_in(printed);
        EXPECT_GE(examples.size(), op->schema().numbers.size() + op->schema().lists.size() + 4) << op->name();
        for (const std::string& example : examples) {
            const std::string key = example.substr(0, example.find('='));
            std::istringstream words(line.substr(0, line.size() - 1));
            std::string changed, separator;
            for (std::string word; words >> word; separator = " ") {
                const std::size_t brace = word.find('{') + 1;
                if (word.compare(brace, key.size() + 1, key + "=") != 0)
                    changed += separator + word;
                else
                    changed += separator + word.substr(0, brace);
            }
            changed += " " + example + "}";
            EXPECT_NO_THROW((void)parse(changed, schemas())) << changed;
        }
    }
    EXPECT_THAT(attncheck("cases").printed, AllOf(HasSubstr("data=normal"), HasSubstr("break=[")));
    expect_refusal("cases attenton", {"did you mean 'attention'?"});
}

// Commands, options and their values that are misspelt are answered with what was meant.
TEST_F(ExplainTest, MisspeltNamesAreAnswered) {
    expect_refusal("verfy", {"no command 'verfy', did you mean 'verify'?"});
    expect_refusal("nothing", {"no command 'nothing', known: list verify"});
    expect_refusal("verify --candidat x", {"no option '--candidat', did you mean '--candidate'?"});
    expect_refusal("mutants x.so --foo", {"no option '--foo', see: attncheck mutants --help"});
    expect_refusal("--foo", {"no option '--foo', see: attncheck --help"});
    expect_refusal("merge", {"attncheck: file is required; see: attncheck merge --help\n"});
    for (const char* emit : {"", " --emit c"})
        expect_refusal(std::string("reproduce 'atention{q=[1]}'") + emit,
                       {"case: unknown operator 'atention', did you mean 'attention'?"});
    expect_refusal("verify --op atention", {"unknown operator 'atention', did you mean 'attention'?"});
    expect_refusal("verify --property xyzzy", {"unknown property 'xyzzy', known: agreement"});
    EXPECT_THAT(attncheck("verify --rule torhc").printed, HasSubstr("did you mean 'torch'?"));
}

// The list of one operator has no other one.
TEST_F(ExplainTest, ListsOneOperator) {
    const std::string one = attncheck("list --op attention_merge").printed;
    EXPECT_THAT(one, AllOf(HasSubstr("attention_merge\n"), HasSubstr("dead_part"), Not(HasSubstr("nsa_compress"))));
    expect_refusal("list --op atention_merge", {"did you mean 'attention_merge'?"});
}

// A library that says on standard error why it cannot be used is heard.
TEST_F(ExplainTest, MessagesOfALibraryThatCannotBeLoadedAreShown) {
    const Ran ran = attncheck("verify --candidate " + quoted(candidate_path("explains_why_not")), "2>&1 >/dev/null");
    EXPECT_EQ(ran.status, 2);
    EXPECT_THAT(ran.printed, AllOf(HasSubstr("no device of mine is here\n"), HasSubstr("ABI version 0")));
}

// The reason why a file cannot be loaded is said.
TEST_F(ExplainTest, FilesThatAreNoLibraryAreExplained) {
    const auto list = [&](const std::string& name) {
        return attncheck("list --candidate " + quoted(file(name))).printed;
    };
    write("kernel.c", "int x;\n");
    EXPECT_THAT(list("kernel.py:attention"), HasSubstr("no such file; a function in a Python file is given as python:"));
    EXPECT_THAT(list("kernel.c"), HasSubstr("it is a source file: compile it with -shared -fPIC"));
    std::ifstream in(candidate_path("declines"), std::ios::binary);
    const std::string library{std::istreambuf_iterator<char>(in), {}};
    const auto changed = [&](std::size_t place, ElfW(Half) value) {
        std::string copy = library;
        std::memcpy(copy.data() + place, &value, sizeof value);
        return copy;
    };
    write("object.so", changed(offsetof(ElfW(Ehdr), e_type), ET_REL));
    EXPECT_THAT(list("object.so"), HasSubstr("it is an object file: link it with -shared"));
    write("foreign.so", changed(offsetof(ElfW(Ehdr), e_machine), EM_RISCV));
    EXPECT_THAT(list("foreign.so"), HasSubstr("it is built for riscv, this machine is"));
    const std::string name = "_Z19attncheck_attentionPK24attncheck_attention_args";
    write("template.so", library + '\0' + "_ZN1aIXadL" + name);
    EXPECT_THAT(list("template.so"), Not(HasSubstr("C++ name")));
    write("mangled.so", library + '\0' + name);
    EXPECT_THAT(list("mangled.so"), HasSubstr("has attncheck_attention with a C++ name: declare it extern \"C\""));
    EXPECT_THAT(attncheck("list --candidate " + quoted(candidate_path("declines"))).printed,
                Not(HasSubstr("note:")));
}

}  // namespace
}  // namespace attncheck::properties
