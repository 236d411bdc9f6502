// Clause tables: text to rows and back, and what is refused.
#include "properties/laws/clause_tables.h"

#include <gmock/gmock.h>

#include "properties/case/embedded_tables.h"
#include "properties/operators/catalogue.h"

namespace attncheck::properties {
namespace {

using testing::HasSubstr;
using testing::Throws;

constexpr std::string_view kText =
    "scale: # | above 1\n"
    "  op{heads=1}\n"
    "    scale=2 -> scale=1\n"
    "    scale=3\n"
    "  op_grad{heads=2}\n"
    "    scale=2,lse.absent\n"
    "(a legal case)\n"
    "  op{heads=8}\n"
    "    heads=8\n";

auto refuses(const std::string& words) {
    return Throws<std::invalid_argument>(testing::Property(&std::invalid_argument::what, HasSubstr(words)));
}

// Each part of a row comes from its line; the operator is the word before the brace.
TEST(ClauseTable, IsReadIntoRows) {
    const auto rows = read_clauses(kText);
    ASSERT_EQ(rows.size(), 4u);
    EXPECT_EQ(rows[0].op, "op");
    EXPECT_EQ(rows[0].clause, "scale: # | above 1");
    EXPECT_EQ(rows[0].base, "op{heads=1}");
    EXPECT_EQ(rows[0].broken, "scale=2");
    EXPECT_EQ(rows[0].legal, "scale=1");
    EXPECT_EQ(rows[1].base, rows[0].base);
    EXPECT_EQ(rows[1].legal, "");
    EXPECT_EQ(rows[2].op, "op_grad");
    EXPECT_EQ(rows[2].clause, rows[0].clause);
    EXPECT_EQ(rows[2].broken, "scale=2,lse.absent");
    EXPECT_EQ(rows[3].clause, "");
}

TEST(ClauseTable, IsPrintedAsItIsRead) { EXPECT_EQ(print_clauses(read_clauses(kText)), kText); }

TEST(ClauseTable, OfAnotherFormIsRefusedByLine) {
    EXPECT_THAT([] { read_clauses("    scale=2\n"); }, refuses("line 1: \"    scale=2\", expected a case"));
    EXPECT_THAT([] { read_clauses("# x\n  op{}\n"); }, refuses("line 2: \"  op{}\", expected a clause"));
    EXPECT_THAT([] { read_clauses("a\n  op\n"); }, refuses("OPERATOR{...}"));
    EXPECT_THAT([] { read_clauses("a\n   op{}\n    b"); }, refuses("an indent of two or four spaces"));
    EXPECT_THAT([] { read_clauses("a\n  op{}\nb\n    c"); }, refuses("line 4"));
}

// What the build embeds is what the search would write: no line of a table is lost or joined.
TEST(ClauseTable, OfEveryOperatorIsInItsForm) {
    int tables = 0;
    for (const EmbeddedTable& table : embedded_tables()) {
        if (!table.file.starts_with("clauses")) continue;
        ++tables;
        std::string without_comments;
        for (std::string_view rest = table.text; !rest.empty();) {
            const std::string_view line = rest.substr(0, rest.find('\n') + 1);
            if (!line.starts_with('#')) without_comments += line;
            rest.remove_prefix(line.size());
        }
        EXPECT_TRUE(print_clauses(read_clauses(table.text)) == without_comments) << table.folder;
    }
    EXPECT_GE(tables, 6);
}

// A new operator starts without one; one that stays has one.
TEST(ClauseTable, EveryOperatorWithValidationHasOne) {
    EXPECT_TRUE(Clauses(all_clauses(), "no_such_operator").rows().empty());
    for (const auto& op : operators()) {
        const auto* validation = op->property("validation");
        if (!validation) continue;
        ASSERT_TRUE(validation->clauses) << op->name();
        EXPECT_FALSE(Clauses(*validation->clauses, op->name()).rows().empty()) << op->name();
    }
}

}  // namespace
}  // namespace attncheck::properties
