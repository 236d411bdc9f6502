// Case lines that are wrong: the message names the word and what is allowed there.
#include <gmock/gmock.h>

#include <ostream>
#include <stdexcept>

#include "tests/properties/case/case_line.h"
#include "properties/case/spec.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

struct Malformed {
    const char* topic;
    std::string line;
    std::vector<std::string> mentions;
};

void PrintTo(const Malformed& malformed, std::ostream* to) { *to << malformed.topic; }

std::string with(const std::string& words) {
    return "nsa_compress{dtype=fp16 seq=[16] heads=1 dim=16 block=16 stride=16 " + words + "}";
}

std::string message_for(const std::string& line) {
    try {
        const Spec spec = spec_of(line);
        return "no error: " + print(spec);
    } catch (const std::invalid_argument& e) {
        return e.what();
    }
}

const std::vector<Malformed>& malformed_lines() {
    static const std::vector<Malformed> lines = {
        {"EmptyLine", "", {"operator{key=value"}},
        {"BlankLine", " \t ", {"operator{key=value"}},
        {"NoBraces", "nsa_compress", {"'nsa_compress'", "operator{key=value"}},
        {"OpenBrace", "nsa_compress{dtype=fp16", {"operator{key=value"}},
        {"UnknownOperator",
         "nsa_compres{dtype=fp16}",
         {"'nsa_compres'", "known:", "nsa_compress", "nsa_compress_grad"}},
        {"UnknownKey", with("wide=3"), {"'wide'", "known:", "heads", "input.layout", "break"}},
        {"KeyOfTheOtherOperator", with("lengths=absent"), {"'lengths'", "known:"}},
        {"NoValue", with("heads"), {"'heads'", "key=value"}},
        {"EmptyValue", with("beyond="), {"beyond", "whole number"}},
        {"WordForNumber", with("beyond=few"), {"beyond", "'few'", "whole number"}},
        {"FractionForNumber", with("beyond=1.5"), {"beyond", "'1.5'", "whole number"}},
        {"NumberBeyondInt64", with("beyond=9223372036854775808"), {"beyond", "whole number"}},
        {"BelowRange", with("beyond=-1"), {"beyond", "-1", "0.."}},
        {"UnknownDataRecipe", with("data=random"), {"data", "'random'", "allowed:", "cancelling"}},
        {"NegativeSeed", with("seed=-1"), {"seed", "'-1'", "2^64-1"}},
        {"SeedTooLarge", with("seed=18446744073709551616"), {"seed", "2^64-1"}},
        {"GivenTwice", with("seed=1 seed=2"), {"seed", "twice"}},
        {"UnknownLayout",
         with("input.layout=diagonal"),
         {"input.layout", "'diagonal'", "allowed:", "broadcast"}},
        {"LayoutOfNothing", with("bias.layout=gap"), {"'bias.layout'", "known:"}},
        {"ListWithoutBrackets", with("set=1"), {"set", "'1'", "brackets"}},
        {"BracketLeftOpen", with("set=[input[0,0,0]=1"), {"brackets"}},
        {"BracketTooMany", with("set=[]]"), {"brackets"}},
        {"SetWithoutValue", with("set=[input[0,0,0]]"), {"input[0,0,0]", "=value"}},
        {"SetOfOutput", with("set=[output[0,0,0]=1]"), {"'output'", "no input tensor"}},
        {"SetOfUnknownTensor", with("set=[bias[0]=1]"), {"'bias'", "no input tensor"}},
        {"SetOfWrongRank", with("set=[input[0,0]=1]"), {"input[0,0]", "3 indices"}},
        {"SetOfTooHighRank", with("set=[weight[0,0,0]=1]"), {"weight[0,0,0]", "2 indices"}},
        {"SetOfNegativeIndex", with("set=[input[0,-1,0]=1]"), {"input[0,-1,0]", "negative"}},
        {"SetIndexIsNoNumber", with("set=[input[0,x,0]=1]"), {"index", "'x'"}},
        {"SetValueIsNoNumber", with("set=[input[0,0,0]=big]"), {"'big'", "nan"}},
        {"NoTimes",
         "nsa_compress{dtype=fp16 seq=[5*0] heads=1 dim=16 block=16 stride=16}",
         {"seq", "0 times", "at least 1"}},
        {"TimesIsNoNumber",
         "nsa_compress{dtype=fp16 seq=[5*] heads=1 dim=16 block=16 stride=16}",
         {"seq times", "''", "whole number"}},
        {"MoreEntriesThanMemory",
         "nsa_compress{dtype=fp16 seq=[5*9223372036854775807] heads=1 dim=16 block=16 stride=16}",
         {"seq", "more than 1048576 entries"}},
        {"ListEntryIsNoNumber",
         "nsa_compress{dtype=fp16 seq=[1,two] heads=1 dim=16 block=16 stride=16}",
         {"seq", "'two'", "whole number"}},
        {"EmptyListEntry",
         "nsa_compress{dtype=fp16 seq=[1,,2] heads=1 dim=16 block=16 stride=16}",
         {"seq", "''", "whole number"}},
        {"NegativeLength",
         "nsa_compress{dtype=fp16 seq=[-1] heads=1 dim=16 block=16 stride=16}",
         {"seq", "-1", "0.."}},
        {"LengthTooLong",
         "nsa_compress{dtype=fp16 seq=[1048577] heads=1 dim=16 block=16 stride=16}",
         {"seq", "1048577", "1048576"}},
        {"UnknownDtype",
         "nsa_compress{dtype=fp64 seq=[16] heads=1 dim=16 block=16 stride=16}",
         {"dtype", "'fp64'", "fp16", "bf16"}},
        {"HeadsAboveRange",
         "nsa_compress{dtype=fp16 seq=[16] heads=129 dim=16 block=16 stride=16}",
         {"heads", "129", "1..128"}},
        {"DimensionBetweenSteps",
         "nsa_compress{dtype=fp16 seq=[16] heads=1 dim=24 block=16 stride=16}",
         {"dim", "24", "16..256", "steps of 16"}},
        {"BlockBelowRangeOfTheGradient",
         "nsa_compress_grad{dtype=fp16 seq=[16] heads=1 dim=16 block=16 stride=16}",
         {"block", "16", "32..128"}},
        {"DtypeMissing",
         "nsa_compress{seq=[16] heads=1 dim=16 block=16 stride=16}",
         {"dtype", "missing"}},
        {"HeadsMissing",
         "nsa_compress{dtype=fp16 seq=[16] dim=16 block=16 stride=16}",
         {"heads", "missing"}},
        {"LengthsMissing",
         "nsa_compress{dtype=fp16 heads=1 dim=16 block=16 stride=16}",
         {"seq", "missing"}},
    };
    return lines;
}

class MalformedLine : public testing::TestWithParam<Malformed> {};

INSTANTIATE_TEST_SUITE_P(Cases, MalformedLine, testing::ValuesIn(malformed_lines()),
                         [](const auto& instance) { return instance.param.topic; });

// One error per line, by name, with what would have been right.
TEST_P(MalformedLine, MessageNamesTheWordAndWhatIsAllowed) {
    const std::string message = message_for(GetParam().line);
    EXPECT_THAT(message, testing::StartsWith("case: "));
    for (const std::string& part : GetParam().mentions) EXPECT_THAT(message, HasSubstr(part));
}

// A list that ends too many brackets early must not hide one that was left open later.
TEST(Spec, BracketsThatCloseBeforeTheyOpenAreRefused) {
    EXPECT_THROW(spec_of(with("break=]a[")), std::invalid_argument);
    EXPECT_THROW(spec_of(with("set=[input]0,0,0[=1]")), std::invalid_argument);
}

// Found by fuzzing: blanks were dropped from texts, so that the printed line was another case.
TEST(Spec, TextsInQuotesKeepTheirBlanksCommasAndBrackets) {
    for (const char* edit :
         {"layout=\" TND\"", "layout=\"T,ND\"", "layout=\"]\"", "layout=\"[ \""}) {
        const Spec spec = spec_of(with(std::string("break=[compress_stride=0,") + edit + "]"));
        ASSERT_EQ(spec.edits.size(), 2u) << edit;
        EXPECT_EQ(print(spec.edits[1]), edit);
        EXPECT_EQ(spec_of(print(spec)), spec) << edit;
    }
    EXPECT_THROW(spec_of(with("break=[layout=\"TND]")), std::invalid_argument);
}

// The same element twice in a set list has no meaning.
TEST(Spec, ElementSetTwiceIsRefused) {
    EXPECT_THROW(spec_of(with("set=[input[0,0,0]=1,input[0,0,0]=2]")), std::invalid_argument);
}

}  // namespace
}  // namespace attncheck::properties
