// Seeded defects whose smallest case can be found by thought: the shrinker must end exactly there.
// Every line below is the least in the order of complexity() among cases with finite values; the
// reason stands beside it.
#include <gmock/gmock.h>

#include <cstdlib>
#include <ostream>

#include "properties/search/engine.h"
#include "properties/search/run.h"
#include "tests/properties/candidate/running_candidate.h"

namespace attncheck::properties {
namespace {

using testing::HasSubstr;

struct Seeded {
    const char* id;
    const char* op;
    const char* failure;
    const char* words;
    const char* reason;
    std::uint64_t seed = 1;  ///< of the search: where a walk may end at several cases, each the smallest of its kind
};

void PrintTo(const Seeded& defect, std::ostream* to) { *to << defect.id; }

const std::vector<Seeded>& seeded_defects() {
    static const std::vector<Seeded> list = {
        {"NC-03", "nsa_compress", "output is wrong",
         "seq=[48] heads=1 dim=16 block=32 stride=16 data=zeros seed=0 "
         "set=[input[16,0,0]=1,weight[0,0]=1]",
         "rows by position differ from rows of the window only in a second block that begins "
         "inside the first, so block 32 at stride 16 and 48 tokens; its first token is 16"},
        {"NC-07", "nsa_compress", "output not written",
         "seq=[16] heads=1 dim=16 block=16 stride=16 data=zeros seed=0",
         "16 channels are already less than a vector of 64, and one block shows it without data"},
        {"NC-17", "nsa_compress", "output not written",
         "seq=[16] heads=5 dim=16 block=16 stride=16 data=zeros seed=0",
         "up to four heads are split into as many parts; 5 / 4 is the first with a remainder"},
        {"NC-x04", "nsa_compress", "output not written",
         "seq=[16] heads=1 dim=16 block=16 stride=16 data=zeros seed=0",
         "a sequence of exactly one block already leaves no rest behind its last block"},
        {"NC-x05", "nsa_compress", "output is wrong",
         "seq=[16] heads=1 dim=16 block=16 stride=16 data=zeros seed=0 "
         "set=[input[15,0,0]=1,weight[15,0]=1]",
         "the one product with the window's last row is missing, so it must not be zero"},
        {"NC-x08", "nsa_compress", "output is wrong",
         "seq=[16] heads=9 dim=16 block=16 stride=16 data=zeros seed=0 "
         "set=[input[0,8,0]=1,weight[0,0]=1]",
         "head 8 is the first whose weight is taken elsewhere, from head 0, which has the lower "
         "position of the two weights that would show it"},
        {"NC-x22", "nsa_compress", "output is wrong",
         "seq=[80] heads=1 dim=16 block=80 stride=16 data=zeros seed=0 "
         "set=[input[64,0,0]=1,weight[64,0]=1]",
         "row 64 is the first that is ignored; 80 is the first window that has it"},
        {"NC-x29", "nsa_compress", "output not written",
         "seq=[16] heads=1 dim=256 block=16 stride=16 data=zeros seed=0",
         "256 is the only width that is zero in eight bits"},
        {"NCG-09", "nsa_compress_grad", "input_grad is wrong",
         "seq=[48] heads=1 dim=16 block=32 stride=16 data=zeros seed=0 "
         "set=[output_grad[0,0,0]=1,weight[16,0]=1]",
         "the second block overwrites what the first gave to the tokens they share; the first "
         "shared token is row 16 of the first block"},
        {"NCG-x07", "nsa_compress_grad", "weight_grad is wrong",
         "seq=[32] heads=1 dim=16 block=32 stride=16 data=zeros seed=0 "
         "set=[output_grad[0,0,15]=1,input[0,0,15]=1]",
         "only products in the last channel are missing, and 15 is the last of the fewest"},
        {"NCG-x14", "nsa_compress_grad", "weight_grad is wrong",
         "seq=[32] heads=1 dim=16 block=32 stride=16 data=zeros seed=0 "
         "set=[output_grad[0,0,0]=1,input[0,0,0]=1]",
         "the only block of a sequence is its last; one product of it shows"},
        {"NCG-x16", "nsa_compress_grad", "input_grad is wrong",
         "seq=[32] heads=1 dim=16 block=32 stride=16 lengths=absent data=zeros seed=0 "
         "set=[output_grad[0,0,0]=1,weight[0,0]=1]",
         "without lengths nothing is computed; one block with one product is due"},
        {"ALL-05", "nsa_compress", "output is wrong",
         "seq=[16] heads=1 dim=16 block=16 stride=16 data=zeros seed=0 input.layout=unit",
         "one head with an arbitrary stride sends the rows into unused NaN; unit is the plainest "
         "layout that has one, and NaN needs no other data", 2},
        {"NCA-03", "nsa_compress_attention", "topk_indices is wrong",
         "q=[1] cmp=[7] kv_heads=1 group=1 dim=1 value_dim=1 block=48 stride=16 select=48 count=1 "
         "data=zeros seed=0",
         "the first window has a negative index from N = 3 on; block 0 then ties with a whole "
         "window instead of losing to it, and with M = 3 key 6 makes the second one whole", 4},
        {"NCA-x24", "nsa_compress_attention", "topk_indices is wrong",
         "q=[0,1] cmp=[1,1] kv_heads=1 group=1 dim=1 value_dim=1 block=16 stride=16 select=16 "
         "count=1 data=zeros seed=0",
         "one block before the sequence moves its number"},
        {"NCA-x26", "nsa_compress_attention", "softmax_max is wrong",
         "q=[1] cmp=[17] kv_heads=1 group=1 dim=1 value_dim=1 block=16 stride=16 select=16 count=1 "
         "data=zeros seed=0 set=[query[0,0,0]=1,key[16,0,0]=1]",
         "one key more than a tile of 16, with the largest logit"},
        {"FA-x84", "flash_attention_score", "softmax_sum is wrong",
         "q=[1] kv=[65] layout=BSH kv_heads=1 group=1 dim=1 value_dim=1 data=zeros seed=0",
         "65 keys are the fewest with a partial tile behind a full one; their number is the sum, "
         "without any data"},
        {"FA-x16", "flash_attention_score", "softmax_max is wrong",
         "q=[1] kv=[2] layout=BSH kv_heads=1 group=1 dim=1 value_dim=1 mask=bool sparse=2 "
         "data=zeros seed=0 set=[query[0,0,0]=1,key[1,0,0]=1]",
         "the only tile is the last; causal from the top left hides key 1 from query 0, and only a "
         "positive logit raises the maximum"},
        {"FA-x57", "flash_attention_score", "softmax_max is wrong",
         "q=[1] kv=[1] layout=BSH kv_heads=2 group=2 dim=1 value_dim=1 data=zeros seed=0 "
         "set=[query[0,1,0]=1,key[0,0,0]=1]",
         "n1 % N2 and n1 / G are equal unless N2 and G are both 2 or more; head 1 is the first "
         "that differs, its key head is 0"},
        {"FA-18", "flash_attention_score", "attention_out is wrong",
         "q=[1] kv=[0] layout=BSH kv_heads=1 group=1 dim=1 value_dim=1 data=zeros seed=0",
         "an empty sequence of keys is an empty row that needs no mask"},
        {"FA-42", "flash_attention_score", "softmax_max not written",
         "q=[1] kv=[0] layout=BSH kv_heads=1 group=1 dim=1 value_dim=1 data=zeros seed=0",
         "one row has 8 copies of a statistic, with or without keys"},
        {"FA-58", "flash_attention_score", "attention_out is wrong",
         "q=[2] kv=[1] layout=BSH kv_heads=1 group=1 dim=1 value_dim=1 drop=random data=zeros "
         "seed=0 set=[value[0,0,0]=1,drop_mask[0]=1]",
         "the bit of query 1 is the second of byte 0, in padded rows the first of byte 1; seed 0 "
         "draws the same for both, so one byte is set"},
        {"FA-32", "flash_attention_score", "softmax_max is wrong",
         "q=[1] kv=[1] layout=BSH kv_heads=1 group=1 dim=1 value_dim=1 scale=eighth data=zeros "
         "seed=0 set=[query[0,0,0]=1,key[0,0,0]=1]",
         "1/sqrt(1) is the simplest scale, so the next one but rsqrt; a width counts for more"},
        {"FA-x60", "flash_attention_score", "softmax_max is wrong",
         "q=[1] kv=[1] layout=BSH kv_heads=1 group=1 dim=17 value_dim=1 data=zeros seed=0 "
         "set=[query[0,0,16]=1,key[0,0,16]=1]",
         "Dv = 1 is rounded up to 16 channels; channel 16 is the first that is left out"},
        {"FAG-x123", "flash_attention_score_grad", "dq is wrong",
         "q=[1] kv=[65] layout=BSH kv_heads=1 group=1 dim=1 value_dim=1 data=zeros seed=0 "
         "set=[key[64,0,0]=1,value[0,0,0]=1,dy[0,0,0]=1]",
         "key 64 is the partial tile; its dS is not zero because another key has a value"},
        {"FAG-x110", "flash_attention_score_grad", "dq is wrong",
         "q=[2] kv=[1] layout=BSH kv_heads=1 group=1 dim=1 value_dim=1 data=zeros seed=0 "
         "set=[key[0,0,0]=1,value[0,0,0]=1,dy[0,0,0]=1]",
         "query 1 gets the delta of query 0, the only one that is not zero"},
        {"FAG-x127", "flash_attention_score_grad", "dv is wrong",
         "q=[1] kv=[1] layout=BSH kv_heads=1 group=2 dim=1 value_dim=1 data=zeros seed=0 "
         "set=[dy[0,0,0]=1]",
         "the first of two heads of a group; dv of the one key is its dy"},
        {"FAG-03", "flash_attention_score_grad", "dq is wrong",
         "q=[1] kv=[2] layout=BSH kv_heads=1 group=1 dim=1 value_dim=1 mask=bool sparse=3 "
         "data=zeros seed=0 set=[key[1,0,0]=1,value[0,0,0]=1,dy[0,0,0]=1]",
         "top left and bottom right differ where the lengths do; query 0 sees key 1, which the "
         "other alignment hides"},
        {"FAG-19", "flash_attention_score_grad", "dq not written",
         "q=[1] kv=[0] layout=BSH kv_heads=1 group=1 dim=1 value_dim=1 data=zeros seed=0",
         "queries without keys"},
        {"NSF-x01", "nsa_selected_attention", "softmax_sum is wrong",
         "q=[1] kv=[32] kv_heads=1 group=1 dim=128 value_dim=128 block=16 count=2 data=zeros "
         "seed=0",
         "lists without overrides name block 0 twice; its 16 keys count 32 times without any data"},
        {"NSF-x22", "nsa_selected_attention", "softmax_max is wrong",
         "q=[1] kv=[16] kv_heads=2 group=2 dim=128 value_dim=128 block=16 count=1 data=zeros "
         "seed=0 set=[query[0,1,0]=1,key[0,0,0]=1]",
         "as FA-x57: two key heads, two query heads for each"},
        {"NSF-x36", "nsa_selected_attention", "softmax_max not written",
         "q=[1] kv=[0] kv_heads=1 group=1 dim=128 value_dim=128 block=16 count=1 beyond_kv=1 "
         "data=zeros seed=0",
         "a sequence without keys; a key tensor has at least one row, so one lies behind it"},
        {"NSF-x30", "nsa_selected_attention", "softmax_max not written",
         "q=[1] kv=[16] kv_heads=1 group=1 dim=128 value_dim=128 block=16 count=1 data=zeros "
         "seed=0",
         "one row has 8 copies of a statistic; 16 keys are fewer than none with a row behind them, "
         "because a field counts for more than a length"},
        {"NSF-x26", "nsa_selected_attention", "softmax_max is wrong",
         "q=[1] kv=[16] kv_heads=1 group=1 dim=192 value_dim=128 block=16 count=1 data=zeros "
         "seed=0 set=[query[0,0,128]=1,key[0,0,128]=1]",
         "192 is the only head dim above the least value dim; channel 128 is the first left out"},
        {"NSF-x31", "nsa_selected_attention", "softmax_max is wrong",
         "q=[2] kv=[16] kv_heads=1 group=2 dim=128 value_dim=128 block=16 count=1 data=zeros "
         "seed=0 set=[query[1,0,0]=1,key[0,0,0]=1]",
         "the two orders of [2,2] differ in the middle: (1,0) and (0,1) change places"},
        {"NSF-20", "nsa_selected_attention", "softmax_max is wrong",
         "q=[1] kv=[32] kv_heads=1 group=1 dim=128 value_dim=128 block=16 count=2 mask=bool "
         "sparse=2 data=zeros seed=0 set=[topk_indices[0,0,0]=1]",
         "query 0 takes one slot of two; the first one names a hidden block, the second a visible "
         "one"},
        {"NSG-11", "nsa_selected_attention_grad", "dq is wrong",
         "q=[1] kv=[16] kv_heads=1 group=2 dim=128 value_dim=128 block=16 count=1 data=zeros "
         "seed=0 set=[query[0,0,0]=1,key[0,0,0]=1,value[0,0,0]=1,attention_out_grad[0,1,0]=1]",
         "head 1 is the first whose statistics are taken elsewhere; head 0 must have other ones, "
         "and dS of head 1 must not be zero"},
        {"NSG-x28", "nsa_selected_attention_grad", "dv is wrong",
         "q=[1] kv=[16] kv_heads=1 group=2 dim=128 value_dim=128 block=16 count=1 data=zeros "
         "seed=0 set=[attention_out_grad[0,0,0]=1]",
         "as FAG-x127"},
        {"NSG-x20", "nsa_selected_attention_grad", "dq is wrong",
         "q=[2] kv=[16] kv_heads=1 group=1 dim=128 value_dim=128 block=16 count=1 data=zeros "
         "seed=0 set=[key[0,0,0]=1,value[0,0,0]=1,attention_out_grad[0,0,0]=1]",
         "as FAG-x110"},
        {"NSG-x31", "nsa_selected_attention_grad", "dv is wrong",
         "q=[1] kv=[16] kv_heads=1 group=1 dim=192 value_dim=128 block=16 count=1 data=zeros "
         "seed=0 set=[attention_out_grad[0,0,0]=1]",
         "the pitches of dk and dv differ where D and Dv do; key 1 already lies wrong"},
        {"NSG-x30", "nsa_selected_attention_grad", "dk not written",
         "q=[1] kv=[32] kv_heads=1 group=1 dim=128 value_dim=128 block=16 count=1 data=zeros "
         "seed=0",
         "two blocks, one in the list"},
        {"NSG-x37", "nsa_selected_attention_grad", "dq not written",
         "q=[0] kv=[16] kv_heads=1 group=1 dim=128 value_dim=128 block=16 count=1 beyond_q=1 "
         "data=zeros seed=0",
         "one row behind the last sequence; no query before it"},
    };
    return list;
}

class SeededDefect : public testing::TestWithParam<Seeded> {};

INSTANTIATE_TEST_SUITE_P(Mutants, SeededDefect, testing::ValuesIn(seeded_defects()),
                         [](const auto& instance) {
                             std::string name = instance.param.id;
                             std::erase(name, '-');
                             return name;
                         });

TEST_P(SeededDefect, ShrinksToItsSmallestCase) {
    const Seeded& defect = GetParam();
    setenv("ATTNCHECK_MUTANT", defect.id, 1);  // stays: every new worker reads it again
    WorkerOptions library = options_for("");
    library.library = MUTANTS_PATH;
    const auto candidate = open_worker_candidate(library);
    ASSERT_EQ(candidate->info().name, std::string("attncheck mutant ") + defect.id);

    const Operator& op = *find_operator(defect.op);
    const Property& agreement = *op.property("agreement");
    EngineOptions options;
    options.cases = 1000;
    options.max_counterexamples = 1;
    options.seed = defect.seed;
    KnownMinima known;
    const PropertyReport report = run_property(
        op, agreement, *candidate, options, system_clock(), [](const PropertyReport&) {}, known);
    ASSERT_EQ(report.counterexamples.size(), 1u);
    const Counterexample& found = report.counterexamples[0];
    EXPECT_EQ(found.failure, defect.failure);
    EXPECT_EQ(print(found.spec), std::string(defect.op) + "{dtype=fp16 " + defect.words + "}")
        << defect.reason;
    EXPECT_THAT(found.certificate, HasSubstr("no dimension can be decreased"));
}

}  // namespace
}  // namespace attncheck::properties
