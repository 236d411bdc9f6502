// Kernels that cheat are falsified with the smallest of budgets.
#include "tests/hostile/hostile_run.h"

namespace attncheck::properties {
namespace {

using testing::HasSubstr;

struct Cheat {
    const char* name;
    const char* said;
    const char* options = "";
    const char* cases = "--cases 6";
};

constexpr Cheat kCheats[] = {
    {"constant_answer", "output is wrong"},
    {"mean_of_the_block", "output is wrong"},
    {"half_of_the_block", "output is wrong"},
    {"last_row_left_out", "output is wrong"},
    {"one_head_for_all", "output is wrong"},
    {"right_at_one_size", "output is wrong"},
    {"every_second_row_stale", "output"},
    {"answer_of_the_last_call", "output is wrong", "--property history",
     "--cases 60"},
    {"rounded_answer", "output is wrong"},
    {"one_sequence_of_all", "output is wrong"},
    {"right_three_times", "output is wrong"},
    {"nothing", "output"}};

TEST_F(HostileTest, CheatsAreFalsified) {
    std::vector<Trick> tricks;
    for (const Cheat& cheat : kCheats)
        tricks.push_back({"cheats", cheat.name, "", cheat.options, cheat.cases});
    const std::vector<Ran> all = run_all(tricks, "strict");
    for (std::size_t k = 0; k < all.size(); ++k) {
        EXPECT_EQ(all[k].status, 1) << kCheats[k].name << "\n" << all[k].printed;
        EXPECT_THAT(all[k].printed, HasSubstr(kCheats[k].said)) << kCheats[k].name;
    }
}

}  // namespace
}  // namespace attncheck::properties
