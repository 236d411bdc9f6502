// Calls before they lie in memory: strides of every layout, and illegal changes of an argument.
#include "properties/case/call.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <ostream>
#include <set>
#include <stdexcept>

#include "tests/properties/case/case_line.h"

namespace attncheck::properties {

static void PrintTo(Layout layout, std::ostream* to) { *to << name_of(layout); }

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Shape = std::vector<std::int64_t>;

const std::vector<Shape>& shapes() {
    static const std::vector<Shape> list{{5, 3, 16}, {5, 3},  {1, 1, 16}, {7, 1, 16}, {1, 4, 16},
                                         {0, 3, 16}, {16, 2}, {2, 3, 4},  {1, 1, 1},  {9}};
    return list;
}

class EveryLayout : public testing::TestWithParam<Layout> {
protected:
    bool for_inputs_only() const {
        return !suits_outputs(GetParam());
    }
};

INSTANTIATE_TEST_SUITE_P(Layouts, EveryLayout,
                         testing::Values(Layout::dense, Layout::unit, Layout::gap, Layout::swapped,
                                         Layout::columns, Layout::spread, Layout::reversed,
                                         Layout::broadcast, Layout::reversed_last,
                                         Layout::reversed_all, Layout::one_row, Layout::one_column,
                                         Layout::one_element, Layout::far),
                         [](const auto& instance) { return std::string(name_of(instance.param)); });

// The extent is exactly what the offsets reach.
TEST_P(EveryLayout, ExtentIsTheRangeOfTheOffsets) {
    for (const Shape& shape : shapes()) {
        const auto strides = strides_for(GetParam(), shape);
        ASSERT_EQ(strides.size(), shape.size());
        const auto offsets = offsets_of(shape, strides);
        const Extent extent = extent_of(shape, strides);
        if (offsets.empty()) {
            EXPECT_EQ(extent.count(), 0);
            continue;
        }
        const auto [lowest, highest] = std::minmax_element(offsets.begin(), offsets.end());
        EXPECT_EQ(extent.lowest, *lowest);
        EXPECT_EQ(extent.highest, *highest);
    }
}

/// How many elements share each place in memory.
std::int64_t copies_in(Layout layout, const Shape& shape) {
    switch (layout) {
        case Layout::broadcast:
            return shape.size() > 1 ? shape[1] : 1;
        case Layout::one_row:
            return shape.front();
        case Layout::one_column:
            return shape.back();
        case Layout::one_element:
            return std::accumulate(shape.begin(), shape.end(), std::int64_t{1},
                                   std::multiplies<>());
        default:
            return 1;
    }
}

// No two elements of an output share memory; a layout that repeats shares exactly its dimension.
TEST_P(EveryLayout, ElementsAreDistinctUnlessRepeated) {
    for (const Shape& shape : shapes()) {
        const auto offsets = offsets_of(shape, strides_for(GetParam(), shape));
        const std::set<std::int64_t> distinct(offsets.begin(), offsets.end());
        const auto copies = static_cast<std::size_t>(copies_in(GetParam(), shape));
        EXPECT_EQ(distinct.size() * copies, offsets.size()) << testing::PrintToString(shape);
    }
}

// Outputs are laid out upwards from their first element.
TEST_P(EveryLayout, OnlyInputLayoutsReachBelowTheFirstElement) {
    for (const Shape& shape : shapes()) {
        const Extent extent = extent_of(shape, strides_for(GetParam(), shape));
        if (!for_inputs_only()) {
            EXPECT_EQ(extent.lowest, 0);
        }
    }
    const Shape shape{5, 3, 16};
    EXPECT_EQ(extent_of(shape, strides_for(GetParam(), shape)).lowest,
              GetParam() == Layout::reversed        ? -4 * 48
              : GetParam() == Layout::reversed_last ? -15
              : GetParam() == Layout::reversed_all  ? -(4 * 48 + 2 * 16 + 15)
                                                    : 0);
}

// Offsets are the scalar products of coordinates and strides, in row-major order.
TEST_P(EveryLayout, OffsetsFollowTheStrides) {
    for (const Shape& shape : shapes()) {
        const auto strides = strides_for(GetParam(), shape);
        const auto offsets = offsets_of(shape, strides);
        for (std::size_t k = 0; k < offsets.size(); ++k) {
            const auto index = coordinates(static_cast<std::int64_t>(k), shape);
            std::int64_t offset = 0;
            for (std::size_t dim = 0; dim < shape.size(); ++dim)
                offset += index[dim] * strides[dim];
            ASSERT_EQ(offsets[k], offset);
        }
    }
}

// The layouts differ from row-major in the way their names say.
TEST(Strides, AreWhatTheNamesSay) {
    const Shape shape{5, 3, 16};
    EXPECT_THAT(strides_for(Layout::dense, shape), ElementsAre(48, 16, 1));
    EXPECT_THAT(strides_for(Layout::unit, shape), ElementsAre(48, 16, 1));
    EXPECT_THAT(strides_for(Layout::gap, shape), ElementsAre(60, 19, 1));
    EXPECT_THAT(strides_for(Layout::swapped, shape), ElementsAre(16, 80, 1));
    EXPECT_THAT(strides_for(Layout::columns, shape), ElementsAre(3, 1, 15));
    EXPECT_THAT(strides_for(Layout::spread, shape), ElementsAre(96, 32, 2));
    EXPECT_THAT(strides_for(Layout::reversed, shape), ElementsAre(-48, 16, 1));
    EXPECT_THAT(strides_for(Layout::broadcast, shape), ElementsAre(16, 0, 1));
    EXPECT_THAT(strides_for(Layout::reversed_last, shape), ElementsAre(48, 16, -1));
    EXPECT_THAT(strides_for(Layout::reversed_all, shape), ElementsAre(-48, -16, -1));
    EXPECT_THAT(strides_for(Layout::one_row, shape), ElementsAre(0, 16, 1));
    EXPECT_THAT(strides_for(Layout::one_column, shape), ElementsAre(3, 1, 0));
    EXPECT_THAT(strides_for(Layout::one_element, shape), ElementsAre(0, 0, 0));
}

// Some slices lie beyond what signed and unsigned 32 bits hold, and none shares memory; a tensor
// without a dimension of few slices stays dense.
TEST(Strides, ReachBeyond32BitsWhereTheyAreFar) {
    for (const Shape& shape : {Shape{2, 3, 16}, Shape{7, 1, 16}, Shape{500, 4, 8}, Shape{16}}) {
        const auto offsets = offsets_of(shape, strides_for(Layout::far, shape));
        EXPECT_GE(*std::ranges::max_element(offsets), kFarReach) << testing::PrintToString(shape);
    }
    EXPECT_EQ(far_dimension(Shape{500, 4, 8}), 1);
    EXPECT_EQ(far_dimension(Shape{500, 1, 200}), -1);
    EXPECT_THAT(strides_for(Layout::far, Shape{500, 1, 200}), ElementsAre(200, 200, 1));
}

// Layouts apply to the dimensions as they lie in memory; one that does not lie there is not stepped
// over.
TEST(Strides, FollowAnOrderOfTheirOwn) {
    const Shape shape{2, 5, 3, 4};
    const DimOrder heads_first{.slowest_first = {{0, 2, 1, 3}}, .repeated = 2};
    EXPECT_THAT(strides_for(Layout::dense, shape, heads_first), ElementsAre(60, 4, 20, 1));
    EXPECT_THAT(strides_for(Layout::swapped, shape, heads_first), ElementsAre(20, 4, 40, 1));
    EXPECT_THAT(strides_for(Layout::broadcast, shape, heads_first), ElementsAre(20, 4, 0, 1));
    const Shape shared{1, 3, 1, 4};
    const DimOrder of_heads{.slowest_first = {{1, 3}}};
    EXPECT_THAT(strides_for(Layout::dense, shared, of_heads), ElementsAre(0, 4, 0, 1));
    EXPECT_THAT(strides_for(Layout::unit, shared, of_heads), ElementsAre(0, 4, 0, 1));
}

// A dimension of extent 1 is never stepped over, so that its stride may be anything.
TEST(Strides, OfExtentOneAreArbitraryInUnit) {
    const Shape shape{1, 1, 16};
    const auto strides = strides_for(Layout::unit, shape);
    EXPECT_NE(strides[0], 16);
    EXPECT_NE(strides[1], 16);
    EXPECT_EQ(strides[2], 1);
    EXPECT_EQ(extent_of(shape, strides).count(), 16);
}

Call plain_call() { return forward().build(spec_of(kPlainLine)); }

Call edited(const std::string& edit) {
    Call call = plain_call();
    apply_edit(call, edit);
    return call;
}

// Two extents, not the elements.
TEST(Edit, SwapsExtents) {
    const Call call = edited("input.swap[0,2]");
    const Call before = plain_call();
    EXPECT_EQ(call.tensor("input").shape[0], before.tensor("input").shape[2]);
    EXPECT_EQ(call.tensor("input").shape[2], before.tensor("input").shape[0]);
    EXPECT_EQ(call.tensor("input").buffer_shape, before.tensor("input").buffer_shape);
}

// A tensor with more extents of 1 in front, or more elements behind, than the operator needs.
TEST(Edit, LeadAndSpareKeepTheElements) {
    const auto mask = [](const std::string& edits) {
        return find_operator("flash_attention_score")
            ->build(spec_of("flash_attention_score{dtype=fp16 q=[3] kv=[3] layout=TND kv_heads=1 "
                            "group=1 dim=1 value_dim=1 drop=keep_all data=ones seed=0 break=[" +
                            edits + "]}"))
            .tensor("drop_mask");
    };
    EXPECT_THAT(mask("drop_mask.lead=2").shape, ElementsAre(1, 1, 2));
    EXPECT_EQ(mask("drop_mask.lead=2").rank, 3);
    EXPECT_THAT(mask("drop_mask.lead=2").bits, ElementsAre(255, 255));
    EXPECT_THAT(mask("drop_mask.spare=1").shape, ElementsAre(3));
    EXPECT_THAT(mask("drop_mask.spare=1").bits, ElementsAre(255, 255, 255));
    EXPECT_THAT(mask("drop_mask.lead=60").shape, testing::SizeIs(ATTNCHECK_MAX_RANK));
    EXPECT_THROW(mask("drop_mask.spare=65"), std::invalid_argument);
    EXPECT_THROW(mask("attention_out.spare=1"), std::invalid_argument);
}

// Elements of a broadcast dimension lie at one place: bits of spare ones overwrote those of the case.
TEST(Edit, SpareElementsAtOnePlaceAreAsTheCaseHasThem) {
    for (const std::string layout : {"unit", "one_row", "one_element"}) {
        const Call call = find_operator("flash_attention_score")
                              ->build(spec_of("flash_attention_score{dtype=fp16 q=[1] kv=[1] layout=TND "
                                              "kv_heads=1 group=1 dim=1 value_dim=1 drop=drop_all "
                                              "data=zeros seed=0 drop_mask.layout=" +
                                              layout + " break=[drop_mask.spare=2]}"));
        EXPECT_THAT(call.tensor("drop_mask").strides, ElementsAre(0)) << layout;
        EXPECT_THAT(call.tensor("drop_mask").bits, ElementsAre(0, 0, 0)) << layout;
    }
}

// Found by fuzzing: mode 8 looked for the first sequence of a batch that a claim had emptied.
TEST(Edit, MayClaimABatchOfNothing) {
    const Spec spec = spec_of(
        "flash_attention_score{dtype=fp16 q=[1] kv=[1] layout=TND kv_heads=1 group=1 dim=1 "
        "value_dim=1 mask=uint8 sparse=8 pre=1 pse=slopes pse_type=2 start=both data=zeros seed=0 "
        "break=[all.batches=0]}");
    const Call call = find_operator("flash_attention_score")->build(spec);
    EXPECT_EQ(call.tensor("query").shape[0], 0);
}

// Found by the search for clauses: the second claim copied the length of a sequence that the first had removed.
TEST(Edit, MayClaimBatchesBehindABatchOfNothing) {
    for (const char* op : {"flash_attention_score{dtype=fp16 q=[1] kv=[1] layout=BSND ",
                           "attention{dtype=fp16 q=[1] kv=[1] layout=bshd "}) {
        const Spec spec =
            spec_of(std::string(op) + "kv_heads=1 group=1 dim=1 value_dim=1 data=zeros seed=0 "
                                      "break=[all.batches=0,all.batches=7]}");
        const Call call = find_operator(spec.schema->op)->build(spec);
        EXPECT_EQ(call.tensor("query").shape[0], 7);
    }
}

// An element that `set` names and an edit of all.KEY removes is left out, not written behind the
// tensor.
TEST(Edit, MayRemoveAnElementThatIsSet) {
    const Call call = forward().build(
        spec_of("nsa_compress{dtype=fp16 seq=[16] heads=1 dim=16 block=16 stride=16 data=zeros "
                "seed=0 set=[weight[15,0]=1,weight[1,0]=2] break=[all.block=8]}"));
    ASSERT_EQ(call.tensor("weight").bits.size(), 8u);
    EXPECT_EQ(call.tensor("weight").values()[1], 2);
}

// One edit of all.KEY lays out what it names, several together not gigabytes.
TEST(Edit, TogetherLayOutNoMoreThanALimit) {
    const auto laid_out = [](const std::string& line, const std::string& edits) {
        const Spec spec = spec_of(line + " data=zeros seed=0 break=[" + edits + "]}");
        try {
            static_cast<void>(find_operator(spec.schema->op)->build(spec));
        } catch (const std::invalid_argument& error) {
            EXPECT_THAT(error.what(), AllOf(HasSubstr("break"), HasSubstr("at most 1.34e+08")));
            return false;
        }
        return true;
    };
    const std::string tokens = "nsa_compress{dtype=fp16 seq=[16] heads=1 dim=16 block=16 stride=16",
                      selected =
                          "nsa_selected_attention{dtype=fp16 q=[1] kv=[16] kv_heads=1 group=1 "
                          "dim=128 value_dim=128 block=16 count=1",
                      compressed =
                          "nsa_compress_attention{dtype=fp16 q=[1] cmp=[2] kv_heads=1 group=1 "
                          "dim=1 value_dim=1 block=32 stride=16 select=32 count=1";
    EXPECT_TRUE(laid_out(tokens, "all.heads=4096"));
    EXPECT_TRUE(laid_out(tokens, "all.dim=4096"));
    EXPECT_FALSE(laid_out(tokens, "all.heads=4096,all.dim=4096"));
    EXPECT_TRUE(laid_out(selected, "all.dims=512"));
    EXPECT_FALSE(laid_out(selected, "all.dims=512,all.kv_heads=512,all.group=512"));
    EXPECT_TRUE(laid_out(compressed, "all.kv_heads=1024"));
    EXPECT_FALSE(laid_out(compressed, "all.kv_heads=1024,all.group=512,all.dims=128"));
}

// Every form of an edit changes its own argument.
TEST(Edit, ChangesTheArgumentItNames) {
    EXPECT_TRUE(edited("weight.present").tensor("weight").present);
    EXPECT_FALSE(edited("weight.absent").tensor("weight").present);
    EXPECT_EQ(edited("input.dtype=0").tensor("input").dtype, 0);
    EXPECT_EQ(edited("input.dtype=-1").tensor("input").dtype, -1);
    EXPECT_THAT(edited("input.shape[1]=7").tensor("input").shape, ElementsAre(16, 7, 16));
    EXPECT_THAT(edited("output.shape[0]=-9223372036854775808").tensor("output").shape,
                ElementsAre(INT64_MIN, 1, 16));
    EXPECT_EQ(edited("compress_stride=0").number("compress_stride"), 0);
    EXPECT_EQ(edited("layout=\"BSH\"").texts[0].value, "BSH");
    EXPECT_EQ(edited("layout=\"\"").texts[0].value, "");
    EXPECT_EQ(edited("layout.absent").texts[0].value, std::nullopt);
    EXPECT_THAT(edited("act_seq_len[0]=-5").arrays[0].values, ElementsAre(-5));
    EXPECT_EQ(edited("act_seq_len.size=0").arrays[0].size, 0);
    EXPECT_EQ(edited("act_seq_len.size=-1").arrays[0].size, -1);
}

// A length array can be absent, or a null pointer that claims entries.
TEST(Edit, TellsAnAbsentArrayFromANullPointerWithASize) {
    const HostArray absent = edited("act_seq_len.absent").arrays[0];
    EXPECT_FALSE(absent.present);
    EXPECT_EQ(absent.size, 0);
    const HostArray null = edited("act_seq_len.null").arrays[0];
    EXPECT_FALSE(null.present);
    EXPECT_EQ(null.size, 1);
}

// The rank decides how many extents are passed, however absurd it is.
TEST(Edit, RankKeepsTheExtentsThatAreLeft) {
    EXPECT_THAT(edited("input.rank=2").tensor("input").shape, ElementsAre(16, 1));
    EXPECT_THAT(edited("input.rank=5").tensor("input").shape, ElementsAre(16, 1, 16, 1, 1));
    EXPECT_THAT(edited("input.rank=-3").tensor("input").shape, IsEmpty());
    EXPECT_THAT(edited("input.rank=1000").tensor("input").shape, testing::SizeIs(8));
    EXPECT_EQ(edited("input.rank=1000").tensor("input").rank, 1000);
}

// Edits leave the memory as it was laid out.
TEST(Edit, NeverMovesTheBuffer) {
    for (const char* edit : {"input.shape[0]=100", "input.rank=2", "input.dtype=0"}) {
        const Call call = edited(edit);
        EXPECT_THAT(call.tensor("input").buffer_shape, ElementsAre(16, 1, 16)) << edit;
        EXPECT_EQ(call.tensor("input").dtype_of_buffer, ATTNCHECK_FLOAT16) << edit;
        EXPECT_EQ(call.tensor("input").bits.size(), 256u) << edit;
    }
}

// What a candidate may accept and still stay inside the buffers.
TEST(Edit, SaysWhatCanStillBeRun) {
    EXPECT_TRUE(runnable_after_edits(plain_call()));
    EXPECT_TRUE(runnable_after_edits(edited("input.shape[0]=15")));
    EXPECT_TRUE(runnable_after_edits(edited("weight.absent")));
    EXPECT_TRUE(runnable_after_edits(edited("compress_stride=0")));
    EXPECT_FALSE(runnable_after_edits(edited("input.shape[0]=17")));
    EXPECT_FALSE(runnable_after_edits(edited("input.shape[0]=-1")));
    EXPECT_FALSE(runnable_after_edits(edited("input.rank=2")));
    EXPECT_FALSE(runnable_after_edits(edited("input.dtype=0")));
}

// An edit that cannot be applied says which one and why.
TEST(Edit, ThatNamesNothingIsRefusedByName) {
    const std::pair<const char*, const char*> refused[] = {
        {"bias.absent", "names no argument of nsa_compress"},
        {"input", "absent, present, dtype=, rank=, shape[k]=, swap[k,l], lead= and spare="},
        {"input.strides[0]=1", "shape[k]=, swap[k,l], lead= and spare="},
        {"input.swap[0,3]", "outside the tensor's rank"},
        {"input.swap[0]", "has an index"},
        {"input.shape[3]=1", "rank"},
        {"input.shape[-1]=1", "no whole number >= 0"},
        {"input.shape[0=1", "bracket"},
        {"input.shape[0]=x", "needs a number"},
        {"input.shape[0]", "whole number"},
        {"input.dtype=", "needs a number"},
        {"act_seq_len[1]=3", "outside"},
        {"act_seq_len[0]=three", "needs a number"},
        {"act_seq_len.size=2", "past"},
        {"act_seq_len.first=2", "absent, null, size= and [k]="},
        {"layout=TND", "double quotes"},
        {"layout=\"", "double quotes"},
        {"compress_stride", "whole number"},
        {"", "is not of the form"}};
    for (const auto& [edit, why] : refused) try {
            edited(edit);
            ADD_FAILURE() << edit << " was accepted";
        } catch (const std::invalid_argument& e) {
            EXPECT_THAT(e.what(), AllOf(HasSubstr("'" + std::string(edit) + "'"), HasSubstr(why)));
        }
}

}  // namespace
}  // namespace attncheck::properties
