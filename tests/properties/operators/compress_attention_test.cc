// NsaCompressAttention as cases: what its generator reaches of nsa.md 11, what labels, places and
// edits mean. No candidate is run.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tests/properties/case/case_line.h"
#include "properties/operators/nsa_compress_attention/case.h"

namespace attncheck::properties::compress_attention {
namespace {

using testing::HasSubstr;
using testing::IsSupersetOf;
using Int = std::int64_t;

const Operator& op() { return *find_operator("nsa_compress_attention"); }

/// Cases of one property, drawn as the engine draws them.
std::vector<Spec> draw(const Property& property, int count, std::uint64_t seed) {
    std::vector<Spec> specs;
    for (int k = 0; k < count; ++k) {
        Random random(mix(seed) + 1000003 * static_cast<std::uint64_t>(k));
        for (int tries = 0; tries < 100; ++tries) {
            Spec spec = op().sample(random, k % 101);
            if (property.adapt) property.adapt(spec, random);
            if (op().illegal(spec) || (property.domain && !property.domain(spec))) continue;
            specs.push_back(std::move(spec));
            break;
        }
    }
    return specs;
}

/// The unedited cases of a default run.
std::vector<Spec> draw_all(std::uint64_t seed) {
    std::vector<Spec> all;
    std::uint64_t number = 0;
    for (const Property& property : op().properties()) {
        ++number;
        if (property.validation || property.large) continue;
        for (Spec& spec : draw(property, 300 * property.case_factor, 1000 * seed + number))
            all.push_back(std::move(spec));
    }
    return all;
}

bool has(const Spec& spec, const char* label) {
    const auto labels = labels_of(spec);
    return std::find(labels.begin(), labels.end(), label) != labels.end();
}

Int keys_per_select(const Spec& spec) { return spec.numbers[kSelect] / spec.numbers[kStride]; }

bool any_sequence(const Spec& spec, const std::function<bool(Int q, Int cmp)>& is) {
    for (std::size_t b = 0; b < spec.lists[0].size(); ++b)
        if (is(spec.lists[0][b], spec.lists[1][b])) return true;
    return false;
}

bool has_ratio(const Spec& spec, Int m, Int n, bool ragged) {
    return keys_per_select(spec) == m && spec.numbers[kBlock] / spec.numbers[kStride] == n &&
           any_sequence(
               spec, [&](Int q, Int cmp) { return q > 0 && cmp > 0 && (cmp % m != 0) == ragged; });
}

struct Corner {
    std::string words;
    std::function<bool(const Spec&)> is;
};

/// Of nsa.md 11, by its numbers; those of rejected calls are EditsReachEveryRule's.
std::vector<Corner> corners() {
    std::vector<Corner> all;
    for (const auto& [m, n] : std::vector<std::pair<Int, Int>>{
             {1, 1}, {2, 1}, {4, 1}, {8, 1}, {2, 2}, {4, 2}, {8, 2}, {3, 3}, {8, 8}})
        for (const bool ragged : {false, true})
            if (m > 1 || !ragged)
                all.push_back({"35: M " + std::to_string(m) + ", N " + std::to_string(n) +
                                   (ragged ? ", ragged" : ""),
                               [m = m, n = n, ragged](const Spec& spec) {
                                   return has_ratio(spec, m, n, ragged);
                               }});
    const auto add = [&](const char* words, std::function<bool(const Spec&)> is) {
        all.push_back({words, std::move(is)});
    };
    const auto labelled = [&](const char* words, const char* label) {
        add(words, [label](const Spec& spec) { return has(spec, label); });
    };
    add("37: l 48, d 32",
        [](const Spec& spec) { return spec.numbers[kBlock] == 48 && spec.numbers[kStride] == 32; });
    add("37: l' 96, d 48", [](const Spec& spec) {
        return spec.numbers[kSelect] == 96 && spec.numbers[kStride] == 48;
    });
    labelled("37: l' no multiple of l", "select_no_multiple_of_block");
    labelled("38: equal scores", "equal_scores");
    labelled("38: equal scores of hidden blocks", "equal_scores_of_hidden_blocks");
    labelled("39: more forced than listed", "forced_above_count");
    labelled("39: a hidden block forced", "forced_hidden_block");
    labelled("40: no key visible", "row_without_key");
    add("40: the first key becomes visible", [](const Spec& spec) {
        return spec.numbers[kMask] != 0 &&
               spec.numbers[kHides] == static_cast<Int>(Hides::causal) &&
               any_sequence(spec,
                            [&](Int q, Int cmp) { return cmp > 0 && q >= spec.numbers[kBlock]; });
    });
    labelled("41: as many blocks as listed", "all_blocks_selected");
    add("42: masks of sequences of different length", [](const Spec& spec) {
        return has(spec, "shorter_after_longer") && has(spec, "mask_for_several_sequences");
    });
    add("43: statistics of several heads and queries in several sequences", [](const Spec& spec) {
        return spec.numbers[kKvHeads] * spec.numbers[kGroup] > 1 && spec.lists[0].size() > 1 &&
               spec.lists[0][0] > 1 && spec.lists[0][1] > 1;
    });
    for (const Int sparse : {0, 1})
        for (const bool mask : {false, true})
            all.push_back({"44: sparse mode " + std::to_string(sparse) + (mask ? "" : ", no mask"),
                           [=](const Spec& spec) {
                               return spec.numbers[kSparse] == sparse &&
                                      (spec.numbers[kMask] != 0) == mask;
                           }});
    add("45: l 128", [](const Spec& spec) { return spec.numbers[kBlock] == 128; });
    add("45: l' 128", [](const Spec& spec) { return spec.numbers[kSelect] == 128; });
    add("46: the largest group", [](const Spec& spec) { return spec.numbers[kGroup] == 64; });
    add("47: 14000 keys", [](const Spec& spec) {
        return any_sequence(spec, [](Int q, Int cmp) { return q > 0 && cmp == 14000; });
    });
    add("47: more than 4096 blocks", [](const Spec& spec) {
        return any_sequence(
            spec, [&](Int q, Int cmp) { return q > 0 && cmp > 4096 * keys_per_select(spec); });
    });
    return all;
}

TEST(CompressAttentionCases, EveryCornerIsReached) {
    for (const std::uint64_t seed : {1, 2, 3}) {
        const std::vector<Spec> specs = draw_all(seed);
        for (const Corner& corner : corners())
            EXPECT_TRUE(std::any_of(specs.begin(), specs.end(), corner.is))
                << corner.words << " in " << specs.size() << " cases, seed " << seed;
    }
}

TEST(CompressAttentionCases, RequiredClassesAreReached) {
    for (const std::uint64_t seed : {4, 5, 6}) {
        const std::vector<Spec> specs = draw_all(seed);
        std::map<std::string, double> share;
        for (const Spec& spec : specs)
            for (const std::string& label : labels_of(spec))
                share[label] += 100.0 / static_cast<double>(specs.size());
        for (const RequiredClass& required : op().required_classes())
            EXPECT_GE(share[required.label], required.min_percent)
                << required.label << ", seed " << seed;
    }
}

/// A case line from its words.
Spec case_of(const std::string& words) {
    return spec_of("nsa_compress_attention{dtype=fp16 " + words + " data=zeros seed=0}");
}
const char* const kSmall =
    "kv_heads=1 group=1 dim=1 value_dim=1 block=16 stride=16 select=32 count=1";

// Labels that are computed from masks hold for the cases they are meant for, and for no neighbour.
TEST(CompressAttentionCases, LabelsMeanWhatTheySay) {
    const auto masked = [](const std::string& lists, const std::string& elements) {
        return case_of(lists + " " + kSmall + " mask=bool topk_mask=bool set=[" + elements + "]");
    };
    // Two blocks: keys 0 to 2 count for the first, 3 and 4 for the second.
    const Spec blind =
        masked("q=[1] cmp=[3]", "atten_mask[0,0]=1,atten_mask[0,1]=1,atten_mask[0,2]=1");
    EXPECT_TRUE(has(blind, "row_without_key"));
    EXPECT_FALSE(has(blind, "part_of_row_visible"));
    const Spec partly = masked("q=[1] cmp=[3]", "atten_mask[0,0]=1");
    EXPECT_FALSE(has(partly, "row_without_key"));
    EXPECT_TRUE(has(partly, "part_of_row_visible"));
    const Spec forced = masked("q=[1] cmp=[3]", "topk_mask[0,0]=1,topk_mask[0,1]=1");
    EXPECT_TRUE(has(forced, "forced_above_count"));
    EXPECT_FALSE(has(masked("q=[1] cmp=[3]", "topk_mask[0,1]=1"), "forced_above_count"));
    EXPECT_TRUE(has(forced, "ragged_last_window"));
    EXPECT_TRUE(has(case_of(std::string("q=[1] cmp=[2] ") + kSmall), "all_blocks_selected"));
    EXPECT_FALSE(has(case_of(std::string("q=[1] cmp=[3] ") + kSmall), "all_blocks_selected"));
    EXPECT_TRUE(has(case_of(std::string("q=[1,1] cmp=[3,2] ") + kSmall), "shorter_after_longer"));
    EXPECT_FALSE(has(case_of(std::string("q=[1,1] cmp=[2,3] ") + kSmall), "shorter_after_longer"));
}

// nsa.md 6.5: per sequence the statistics lie as [N1, S_q].
TEST(CompressAttentionCases, StatisticsAreNamedByWhereTheyLie) {
    const Spec spec = case_of(
        "q=[2,1] cmp=[1,1] kv_heads=1 group=2 dim=1 value_dim=1 block=16 stride=16 select=16 "
        "count=1");
    const auto place = [&](Int t, Int n) { return describe(spec, "softmax_max", {t, n, 0}); };
    EXPECT_THAT(place(0, 0), HasSubstr("sequence 0, query 0, head 0"));
    EXPECT_THAT(place(0, 1), HasSubstr("sequence 0, query 1, head 0"));
    EXPECT_THAT(place(1, 0), HasSubstr("sequence 0, query 0, head 1"));
    EXPECT_THAT(place(1, 1), HasSubstr("sequence 0, query 1, head 1"));
    EXPECT_THAT(place(2, 1), HasSubstr("sequence 1, query 0, head 1"));
}

TEST(CompressAttentionCases, ElementsStayWithTheirSequence) {
    Spec from = case_of(std::string("q=[2,1,3] cmp=[3,2,4] ") + kSmall +
                        " mask=bool set=[query[1,0,0]=1,query[2,0,0]=2,query[5,0,0]=3,key[2,0,0]=4,"
                        "key[5,0,0]=5,value[8,0,0]=6,atten_mask[2,3]=1,atten_mask[0,1]=1]");
    Spec to = from;
    to.overrides.clear();
    to.lists = {{2, 2}, {3, 2}};  // the first and the last, which is shorter now
    op().carry_overrides(from, to, {0, 2});
    const auto at = [](const char* tensor, Int i, Int j) {
        return ElementRef{op().schema().tensor(tensor), {i, j, 0, 0}};
    };
    const std::map<ElementRef, double> expected{{at("query", 1, 0), 1},
                                                {at("key", 2, 0), 4},
                                                {at("key", 3, 0), 5},
                                                {at("atten_mask", 0, 1), 1}};
    EXPECT_EQ(to.overrides, expected);
    EXPECT_EQ(op().illegal(to), std::nullopt);
}

TEST(CompressAttentionCases, RelationsBetweenFieldsAreChecked) {
    const auto reason = [](const std::string& words) {
        return op().illegal(case_of(words)).value_or("legal");
    };
    const std::string heads = "q=[1] cmp=[3] kv_heads=1 ", dims = " dim=2 value_dim=2 ";
    EXPECT_EQ(reason(heads + "group=4" + dims + "block=16 stride=16 select=32 count=2"), "legal");
    EXPECT_THAT(reason(heads + "group=3" + dims + "block=16 stride=16 select=32 count=2"),
                HasSubstr("group=3"));
    EXPECT_THAT(reason(heads + "group=4" + dims + "block=16 stride=16 select=32 count=3"),
                HasSubstr("cmp length 3 must give at least count=3"));
    EXPECT_THAT(reason(heads + "group=4" + dims + "block=16 stride=32 select=32 count=1"),
                HasSubstr("stride=32"));
    EXPECT_THAT(reason(heads + "group=4" + dims + "block=32 stride=16 select=16 count=1"),
                HasSubstr("select=16"));
    EXPECT_THAT(
        reason(heads + "group=4" + dims + "block=16 stride=16 select=32 count=1 hides=ramp"),
        HasSubstr("hides needs a mask"));
    EXPECT_THAT(reason(heads + "group=4 dim=2 value_dim=3 block=16 stride=16 select=32 count=1"),
                HasSubstr("value_dim"));
}

/// The parameter that the ruling on the edits of a case names, or "".
std::string ruled(const Spec& spec) {
    const ref::Ruling ruling = rule(op().build(spec));
    return ruling.accepted() ? "" : ruling.parameter;
}

// Edits change the problem as their words say, and nothing else that a rule could object to.
TEST(CompressAttentionCases, EditsMeetTheRuleTheyAimAt) {
    const auto parameter = [](const std::string& edit) {
        return ruled(case_of(std::string("q=[1,1] cmp=[6,6] kv_heads=1 group=2 dim=4 value_dim=4 "
                                         "block=32 stride=16 select=32 count=2 break=[") +
                             edit + "]"));
    };
    EXPECT_EQ(parameter("first.cmp=2"), "actual_cmp_seq_kv_len");  // one block, count is 2
    EXPECT_EQ(parameter("first.cmp=3"), "");
    EXPECT_EQ(parameter("long.cmp=14007"), "actual_cmp_seq_kv_len");
    EXPECT_EQ(parameter("long.cmp=14006"), "");
    EXPECT_EQ(parameter("all.group=3"), "key");
    EXPECT_EQ(parameter("all.group=64"), "");
    EXPECT_EQ(parameter("heads.uneven"), "key");
    EXPECT_EQ(parameter("all.dims=769"), "query");
    EXPECT_EQ(parameter("all.dims=768"), "");
    EXPECT_EQ(parameter("all.block=288"), "compress_block_size");
    EXPECT_EQ(parameter("all.select=128"), "actual_cmp_seq_kv_len");  // 6 keys are one block
    EXPECT_EQ(parameter("rows.q=9223372036854775807"), "query");
    EXPECT_EQ(parameter("rows.cmp=9223372036854775807"), "key");
    EXPECT_EQ(parameter("actual_sel_seq_kv_len[1]=7"), "actual_sel_seq_kv_len");
}

TEST(CompressAttentionCases, EditsReachEveryRule) {
    std::set<std::string> parameters;
    int accepted = 0, cases = 0;
    for (const Spec& spec : draw(*op().property("validation"), 800, 7)) {
        const std::string parameter = ruled(spec);
        ++cases;
        accepted += parameter.empty();
        parameters.insert(parameter);
    }
    EXPECT_THAT(parameters, IsSupersetOf({"query",
                                          "key",
                                          "value",
                                          "atten_mask",
                                          "topk_mask",
                                          "actual_seq_q_len",
                                          "actual_cmp_seq_kv_len",
                                          "actual_sel_seq_kv_len",
                                          "scale_value",
                                          "head_num",
                                          "input_layout",
                                          "sparse_mode",
                                          "compress_block_size",
                                          "compress_stride",
                                          "select_block_size",
                                          "select_block_count",
                                          "softmax_max",
                                          "softmax_sum",
                                          "attention_out",
                                          "topk_indices"}));
    EXPECT_GE(accepted, cases / 20);
    EXPECT_LE(accepted, cases / 2);
}

}  // namespace
}  // namespace attncheck::properties::compress_attention
