// What the generators of flash attention reach: the corner cases of flash_attention.md 9, every
// legal pair of features, lengths around tile and block boundaries, the range of the logits. No
// candidate is run.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "case_line.h"
#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {
namespace {

using testing::IsEmpty;
using Int = std::int64_t;

class Flash : public testing::TestWithParam<const char*> {
protected:
    const Operator& op() const { return *find_operator(GetParam()); }
    bool gradient() const { return op().name() == "flash_attention_score_grad"; }
};

INSTANTIATE_TEST_SUITE_P(Operators, Flash,
                         testing::Values("flash_attention_score", "flash_attention_score_grad"),
                         [](const auto& instance) { return std::string(instance.param + 16); });

/// As many cases as `attncheck verify` draws for one property that has no factor of its own.
constexpr int kCases = 100;

/// As many cases as it draws for all properties of the operator.
int default_draws(const Operator& op) {
    int draws = 0;
    for (const Property& property : op.properties())
        if (!property.large) draws += kCases * property.case_factor;
    return draws;
}

/// Cases of one property, drawn as the engine draws them; without a property what the operator's
/// own generator makes.
std::vector<Spec> draw(const Operator& op, const char* name, int count, std::uint64_t seed,
                       Profile profile = Profile::ascend910b) {
    const Property* property = name ? op.property(name) : nullptr;
    std::vector<Spec> specs;
    for (int k = 0; k < count; ++k) {
        Random random(mix(seed) + 1000003 * static_cast<std::uint64_t>(k));
        for (int tries = 0; tries < 100; ++tries) {
            Spec spec = op.sample(random, k % 101, profile);
            if (property) property->adapt(spec, random);
            if (op.illegal(spec) || (property && property->domain && !property->domain(spec)))
                continue;
            specs.push_back(std::move(spec));
            break;
        }
    }
    return specs;
}

// ---- corner cases ----

enum class In { both, forward, gradient };

/// A label that flash_labels gives a case, and what it stands for.
struct Corner {
    const char* label;
    const char* words;
    In in = In::both;
};

/// Numbers of flash_attention.md 9, in the words of what contract.md keeps of them: there is one
/// implementation without phases, both directions have the same limits.
constexpr Corner kCorners[] = {
    {"1", "mode 3 with more queries than keys: rows without keys"},
    {"2", "mode 3 with fewer queries than keys"},
    {"3", "mode 4 with different lengths: the band hangs in the other corner"},
    {"4.pre", "mode 4, band right of the diagonal"},
    {"4.next", "mode 4, band left of the diagonal"},
    {"4.limit", "mode 4, pre + next == 0: the last tokens that are legal"},
    {"5.pre", "mode 0, -pre == S1 - 1, legal in both directions"},
    {"5.next", "mode 0, -next == S2 - 1, legal in both directions"},
    {"6.batches", "mode 0, the diagonal alone"},
    {"6.sequences", "mode 0, the diagonal alone, in TND: legal in both directions"},
    {"7", "mode 1 with a row that is hidden altogether; inner_precise has no effect on it"},
    {"8", "inner_precise 2; it has no effect"},
    {"9", "no mask, but a sparse mode"},
    {"10.top_left", "mode 0 with tokens INT64_MAX, legal in both directions"},
    {"10.bottom_right", "mode 4 with tokens INT64_MAX"},
    {"10.split", "mode 7 or 8 with tokens INT64_MAX"},
    {"11.full", "mode 6, prefix = S2"},
    {"11.zero", "mode 6, more queries than keys, prefix 0"},
    {"11.differ", "mode 6, a prefix of its own per batch"},
    {"12", "mode 5 without prefix"},
    {"13.last_empty", "mode 7, empty sequences behind the band"},
    {"13.first_empty", "mode 8, empty sequences before the band"},
    {"13.single", "mode 7 or 8 with one sequence"},
    {"13.last_limit", "mode 7, next == S1 - S2"},
    {"13.first_limit", "mode 8, next == S1 - S2"},
    {"14.inner_empty", "an empty sequence between others"},
    {"14.leading_empty", "the first sequence has no queries"},
    {"14.trailing_empty", "the last sequence has no queries"},
    {"14.trailing_empty_prefix", "the last sequence has no queries, mode 6"},
    {"14.trailing_empty_slopes", "the last sequence has no queries, slopes [B,N]"},
    {"14.no_keys", "a sequence with queries and no keys"},
    {"14.all_empty", "every length 0, but T1 > 0"},
    {"15.queries", "query rows beyond the last sequence"},
    {"15.keys", "key rows beyond the last sequence"},
    {"16", "blocks [N1,Sq] of statistics that differ from [T1,N1]"},
    {"17", "\"same_as_input\" where the orders differ"},
    {"18.two", "two query heads per key head"},
    {"18.three", "three query heads per key head"},
    {"18.one_kv_head", "one key head for all"},
    {"19.value_smaller", "Dv < D"},
    {"19.value_one", "Dv = 1"},
    {"19.dim_one", "D = 1"},
    {"19.dim_odd", "D not a multiple of 16"},
    {"19.dim_largest", "D = 512, the limit"},
    {"24", "drop_mask with keep_prob 1: applied in both directions"},
    {"25.rows", "bits not a multiple of 8, S2 odd: bit offsets cross bytes inside rows"},
    {"25.batches", "drop bits of a batch that begin inside a byte"},
    {"25.sequences", "drop bits of a sequence that begin inside a byte"},
    {"26", "everything dropped"},
    {"27.behind_scale", "pse_type 0, scale not 1"},
    {"27.before_scale", "pse_type 1, scale neither 0 nor 1"},
    {"27.scale_one", "pse_type 1, scale 1"},
    {"27.scale_zero", "pse_type 1, scale 0: no bias is left"},
    {"28.one_batch", "bias [1,N,S1,S2] for several batches"},
    {"28.one_row", "bias [B,N,1,S2] for several rows"},
    {"28.one_batch_row", "bias [1,N,1,S2]"},
    {"29.plain_1024", "1024 x 1024 is a plain bias"},
    {"29.compressed", "compressed bias, S > 1024 and no multiple of 1024"},
    {"29.sequences", "compressed bias for several sequences"},
    {"30.slopes", "ALiBi slopes [N]"},
    {"30.batch_slopes", "ALiBi slopes [B,N]"},
    {"30.start", "both start indices"},
    {"30.one_start", "one start index: both count as 0"},
    {"30.shifted", "mode 8: i + q_start = j + kv_start on a diagonal of a rectangle"},
    {"30.negative", "a negative slope"},
    {"32.bool", "a bool mask that is read"},
    {"32.any_byte", "a uint8 mask with bytes above 1"},
    {"33.single", "mask [S1,S2]"},
    {"33.one", "mask [1,1,S1,S2]"},
    {"33.batch", "mask [B,1,S1,S2]"},
    {"33.head", "mask [B,N,S1,S2], another one per head"},
    {"33.packed", "mask [sum Sq, sum Skv]"},
    {"34.no_queries", "S1 = 0"},
    {"34.no_keys", "S2 = 0 with queries: out 0, max -FLT_MAX, sum +FLT_MAX"},
    {"35.far", "logits about -20000"},
    {"35.equal", "equal logits: the sum is S2"},
    {"35.negative_scale", "a negative scale"},
    {"36.one_key", "S2 = 1"},
    {"36.one_query", "S1 = 1"},
    {"36.odd_keys", "S2 not a multiple of 8, 16, 64, 128"},
    {"36.keys_1024", "S2 = 1024"},
    {"36.keys_1025", "S2 = 1025"},
    {"36.keys_2049", "S2 = 2049"},
    {"37", "a plain bias behind the scale, which the shift relations change by a constant"},
    {"38", "statistics (m + c, l exp(-c))", In::gradient},
    {"39", "ropes"},
    {"40.query", "query not dense"},
    {"40.key", "key not dense"},
    {"40.value", "value not dense"},
    {"40.attention_out", "attention_out not dense", In::forward},
    {"40.dq", "dq not dense", In::gradient},
    {"43", "outputs half way between two numbers of the type", In::forward},
    {"44", "attention_in perturbed, scale neither 0 nor 1", In::gradient},
};

/// Corner cases that are illegal or odd arguments: single edits of a legal call, and the ruling on
/// them.
struct Edited {
    const Spec& spec;
    Call call;
    ref::Ruling ruling;

    bool edit(std::string_view text) const { return print(spec.edits[0]) == text; }
    bool edits(std::string_view text) const { return print(spec.edits[0]).starts_with(text); }
    bool names(std::string_view parameter) const { return ruling.parameter == parameter; }
    bool masked() const { return call.tensor("atten_mask").present; }
    bool mode(Int mode) const { return masked() && call.number("sparse_mode") == mode; }
    bool tnd() const { return spec.number("layout") == static_cast<Int>(FlashLayout::tnd); }
    bool merged() const { return spec.number("layout") == 0 || spec.number("layout") == 3; }
    bool accepted() const { return ruling.accepted(); }
    Int longest(std::size_t list) const {
        return *std::max_element(spec.lists[list].begin(), spec.lists[list].end());
    }
};

struct EditedCorner {
    int number;
    const char* words;
    bool (*reached)(const Edited&);
};

const EditedCorner kEditedCorners[] = {
    {4, "mode 4, pre + next == -1: rejected",
     [](const Edited& e) {
         const Int pre = e.call.number("pre_tokens"), next = e.call.number("next_tokens");
         return e.mode(4) && e.names("pre_tokens") && pre > -1000 && next > -1000 && pre < 3000 &&
                next < 3000 && pre + next == -1;
     }},
    {4, "mode 4, tokens INT64_MIN: rejected",
     [](const Edited& e) {
         return e.mode(4) && e.names("pre_tokens") && e.call.number("pre_tokens") == INT64_MIN;
     }},
    {5, "mode 0, -pre == S1: rejected in both directions",
     [](const Edited& e) {
         return e.mode(0) && e.names("pre_tokens") && e.longest(0) > 0 &&
                e.call.number("pre_tokens") == -e.longest(0);
     }},
    {5, "mode 0, -next == S2: rejected in both directions",
     [](const Edited& e) {
         return e.mode(0) && e.names("pre_tokens") && e.longest(1) > 0 &&
                e.call.number("next_tokens") == -e.longest(1);
     }},
    {8, "inner_precise 258: legal",
     [](const Edited& e) { return e.edit("inner_precise=258") && e.accepted(); }},
    {9, "no mask, sparse_mode 9: rejected",
     [](const Edited& e) { return !e.masked() && e.edit("sparse_mode=9") && !e.accepted(); }},
    {9, "no mask, sparse_mode -1: rejected",
     [](const Edited& e) { return !e.masked() && e.edit("sparse_mode=-1") && !e.accepted(); }},
    {9, "no mask, absurd tokens: legal",
     [](const Edited& e) {
         return !e.masked() && e.accepted() && e.call.number("pre_tokens") == INT64_MIN;
     }},
    {11, "mode 6, a prefix outside its range",
     [](const Edited& e) { return e.mode(6) && e.edits("prefix[") && e.names("prefix"); }},
    {11, "mode 6 without prefix",
     [](const Edited& e) { return e.mode(6) && e.edit("prefix.absent") && e.names("prefix"); }},
    {13, "mode 7, tokens outside the band's limits",
     [](const Edited& e) { return e.mode(7) && e.names("pre_tokens"); }},
    {13, "mode 8, tokens outside the band's limits",
     [](const Edited& e) { return e.mode(8) && e.names("pre_tokens"); }},
    {18, "N1 not a multiple of N2",
     [](const Edited& e) {
         return !e.merged() && e.edits("key.shape[") && e.names("key") &&
                e.ruling.message.find("N2") != std::string::npos;
     }},
    {19, "D 513: rejected",
     [](const Edited& e) {
         return e.names("query") && e.ruling.message.find("513") != std::string::npos;
     }},
    {19, "Dv > D: rejected",
     [](const Edited& e) {
         return e.names("value") && e.ruling.message.find("Dv") != std::string::npos &&
                e.call.tensor("value").shape.back() == e.spec.number("dim") + 1;
     }},
    {20, "BSH, SBH: head_num does not divide H",
     [](const Edited& e) { return e.merged() && e.edits("head_num=") && e.names("query"); }},
    {20, "BSH, SBH: H of key no multiple of D",
     [](const Edited& e) { return e.merged() && e.edits("key.shape[2]") && e.names("key"); }},
    {20, "BSH, SBH: 0 < H of key < D",
     [](const Edited& e) {
         const Int hidden = e.call.tensor("key").shape.back();
         return e.merged() && e.edits("key.shape[2]") && e.names("key") && hidden > 0 &&
                hidden < e.spec.number("dim");
     }},
    {21, "input_layout \"bsh\"",
     [](const Edited& e) { return e.edit("input_layout=\"bsh\"") && e.names("input_layout"); }},
    {21, "input_layout \"BSH\" for tensors of rank 4",
     [](const Edited& e) {
         return e.edit("input_layout=\"BSH\"") && e.names("query") && !e.tnd();
     }},
    {21, "input_layout \"TND\" without lengths",
     [](const Edited& e) { return e.edit("input_layout=\"TND\"") && e.merged() && !e.accepted(); }},
    {21, "input_layout \"BSND\" for sequences",
     [](const Edited& e) {
         return e.tnd() && e.edit("input_layout=\"BSND\"") && e.names("query");
     }},
    {22, "head_num 0", [](const Edited& e) { return e.edit("head_num=0") && e.names("head_num"); }},
    {22, "head_num -1",
     [](const Edited& e) { return e.edit("head_num=-1") && e.names("head_num"); }},
    {22, "head_num 2^32 + N1",
     [](const Edited& e) {
         return e.call.number("head_num") ==
                    (Int{1} << 32) + e.spec.number("kv_heads") * e.spec.number("group") &&
                e.names("head_num");
     }},
    {23, "keep_prob 0",
     [](const Edited& e) { return e.edit("keep_prob=0") && e.names("keep_prob"); }},
    {23, "keep_prob -0.5",
     [](const Edited& e) { return e.edit("keep_prob=-0.5") && e.names("keep_prob"); }},
    {23, "keep_prob 1.5",
     [](const Edited& e) { return e.edit("keep_prob=1.5") && e.names("keep_prob"); }},
    {23, "keep_prob 1e-50, 0 in fp32",
     [](const Edited& e) { return e.edit("keep_prob=1e-50") && e.names("keep_prob"); }},
    {23, "keep_prob 1 - 1e-12, 1 in fp32: legal without drop_mask",
     [](const Edited& e) {
         return e.edit("keep_prob=0.999999999999") && !e.call.tensor("drop_mask").present &&
                e.accepted();
     }},
    {24, "keep_prob < 1 without drop_mask: rejected in both directions",
     [](const Edited& e) { return e.edit("drop_mask.absent") && e.names("drop_mask"); }},
    {25, "a drop mask one byte short",
     [](const Edited& e) {
         const Tensor& drop = e.call.tensor("drop_mask");
         return drop.present && drop.shape.size() == 1 && e.names("drop_mask") &&
                drop.shape[0] == drop.buffer_shape[0] - 1;
     }},
    {28, "pse_type 0 without a bias",
     [](const Edited& e) {
         return e.edit("pse_type=0") && e.spec.number("pse") == 0 && !e.accepted();
     }},
    {29, "a compressed bias that is not causal",
     [](const Edited& e) {
         const Int pse = e.spec.number("pse");
         return (pse == static_cast<Int>(FlashPse::compressed) ||
                 pse == static_cast<Int>(FlashPse::compressed_batch)) &&
                e.ruling.message.find("is compressed") != std::string::npos;
     }},
    {31, "slopes of the query's type",
     [](const Edited& e) {
         return e.spec.number("pse_type") >= 2 && e.ruling.parameter.ends_with("shift") &&
                (e.edits("real_shift.dtype") || e.edits("pse_shift.dtype"));
     }},
    {31, "slopes for S1 != S2",
     [](const Edited& e) {
         return e.ruling.message.find("different lengths") != std::string::npos;
     }},
    {34, "B = 0 in one tensor alone: rejected",
     [](const Edited& e) {
         return !e.tnd() && e.edits("key.shape[") && e.names("key") &&
                e.ruling.message.find("B") != std::string::npos;
     }},
    {35, "scale NaN: legal",
     [](const Edited& e) { return e.edit("scale_value=nan") && e.accepted(); }},
    {39, "a rope without a mask: rejected",
     [](const Edited& e) {
         return e.spec.number("rope") > 0 && e.edit("atten_mask.absent") && e.names("atten_mask");
     }},
    {39, "one rope without the other",
     [](const Edited& e) { return e.edit("key_rope.absent") && e.names("key_rope"); }},
    {39, "a rope of fp16: rejected",
     [](const Edited& e) { return e.edit("query_rope.dtype=1") && e.names("query_rope"); }},
    {40, "an output of another dtype",
     [](const Edited& e) {
         return (e.edits("attention_out.dtype") && e.names("attention_out")) ||
                (e.edits("dq.dtype") && e.names("dq"));
     }},
    {40, "statistics of another shape",
     [](const Edited& e) { return e.edits("softmax_max.shape[") && e.names("softmax_max"); }},
    {41, "key of another dtype than query",
     [](const Edited& e) {
         return (e.edit("key.dtype=27") || e.edit("key.dtype=1")) && e.names("key");
     }},
    {42, "no softmax_max: rejected in both directions",
     [](const Edited& e) { return e.edit("softmax_max.absent") && e.names("softmax_max"); }},
};

constexpr std::uint64_t kCornerSeed = 1;

TEST_P(Flash, EveryCornerCaseIsReached) {
    std::map<std::string, int> reached;
    const auto count = [&](const std::vector<Spec>& specs) {
        for (const Spec& spec : specs)
            for (const auto& label : op().labels(spec))
                if (label.starts_with("corner:")) ++reached[label.substr(7)];
    };
    count(draw(op(), nullptr, default_draws(op()), kCornerSeed));
    count(draw(op(), "exact_lattice", 2 * kCases, kCornerSeed));
    for (const Corner& corner : kCorners) {
        if (corner.in != In::both && (corner.in == In::gradient) != gradient()) continue;
        EXPECT_GE(reached[corner.label], 1) << corner.label << ": " << corner.words;
        reached.erase(corner.label);
    }
    for (const auto& [label, times] : reached)
        ADD_FAILURE() << "corner:" << label << " is not in the table";
}

TEST_P(Flash, EveryIllegalCornerCaseIsAnEditOfValidation) {
    std::map<const EditedCorner*, int> reached;
    const int draws = kCases * op().property("validation")->case_factor;
    for (const Spec& spec : draw(op(), "validation", draws, kCornerSeed)) {
        Call call = op().build(spec);
        ref::Ruling ruling = rule(call);
        const Edited edited{spec, std::move(call), std::move(ruling)};
        for (const EditedCorner& corner : kEditedCorners)
            if (corner.reached(edited)) ++reached[&corner];
    }
    for (const EditedCorner& corner : kEditedCorners) {
        EXPECT_GE(reached[&corner], 1) << corner.number << ": " << corner.words;
    }
}

TEST(FlashCoverage, TheTablesHaveEveryNumber) {
    std::set<int> numbers;
    for (const Corner& corner : kCorners) numbers.insert(std::stoi(corner.label));
    for (const EditedCorner& corner : kEditedCorners) numbers.insert(corner.number);
    for (int number = 1; number <= 44; ++number) EXPECT_TRUE(numbers.contains(number)) << number;
}

// ---- pairs of features ----

struct Feature {
    std::string name;
    std::vector<std::string> values;
    /// Numbers of the values that a case has; lengths may have several.
    std::function<std::vector<std::size_t>(const Spec&)> of;
};

std::size_t lengths_kind(Int q, Int kv) {
    if (q == 0 || kv == 0) return 3;
    return q < kv ? 0 : q == kv ? 1 : 2;
}

std::size_t dim_kind(Int dim) { return dim == 1 ? 0 : dim > 128 ? 3 : dim % 16 == 0 ? 2 : 1; }

std::vector<Feature> features_of(const Operator& op) {
    std::vector<Feature> features;
    const auto add = [&](const char* name, std::vector<std::string> values, auto of) {
        features.push_back({name, std::move(values), [of](const Spec& spec) {
                                return std::vector{static_cast<std::size_t>(of(spec))};
                            }});
    };
    const auto add_field = [&](const char* key) {
        const auto at = static_cast<std::size_t>(op.schema().number(key));
        std::vector<std::string> values = op.schema().numbers[at].names;
        for (Int v = 0; values.empty() || v <= op.schema().numbers[at].max; ++v)
            if (op.schema().numbers[at].names.empty())
                values.push_back(std::to_string(v));
            else
                break;
        add(key, values, [at](const Spec& spec) { return spec.numbers[at]; });
    };
    for (const char* key :
         {"dtype", "layout", "mask", "pse_type", "drop", "keep", "scale", "logits", "stats_order"})
        add_field(key);
    const auto pse_names =
        op.schema().numbers[static_cast<std::size_t>(op.schema().number("pse"))].names;
    features.push_back({"pse", pse_names, [](const Spec& spec) {
                            const auto pse = static_cast<std::size_t>(spec.number("pse"));
                            // The long problems that batches need are mostly one batch: both forms.
                            constexpr auto kBoth = static_cast<std::size_t>(FlashPse::compressed);
                            if (spec.lists[0].size() == 1 && spec.lists[0][0] > 1024 &&
                                (pse == kBoth || pse == kBoth + 1))
                                return std::vector{kBoth, kBoth + 1};
                            return std::vector{pse};
                        }});
    add("mode", {"none", "0", "1", "2", "3", "4", "5", "6", "7", "8"},
        [](const Spec& spec) { return spec.number("mask") == 0 ? 0 : 1 + spec.number("sparse"); });
    add("mask_form", {"none", "single", "one", "batch", "head", "packed"}, [](const Spec& spec) {
        const Int mode = spec.number("sparse");
        const bool read = spec.number("mask") != 0 && (mode < 2 || mode == 5);
        return read ? 1 + spec.number("mask_form") : 0;
    });
    add("rope", {"no", "yes"}, [](const Spec& spec) { return spec.number("rope") > 0; });
    add("group", {"one", "odd", "even"}, [](const Spec& spec) {
        const Int group = spec.number("group");
        return group == 1 ? 0 : group % 2 != 0 ? 1 : 2;
    });
    features.push_back({"lengths", {"fewer", "equal", "more", "zero"}, [](const Spec& spec) {
                            std::set<std::size_t> kinds;
                            for (std::size_t b = 0; b < spec.lists[0].size(); ++b)
                                kinds.insert(lengths_kind(spec.lists[0][b], spec.lists[1][b]));
                            return std::vector(kinds.begin(), kinds.end());
                        }});
    add("value_dim", {"same", "smaller"},
        [](const Spec& spec) { return spec.number("value_dim") < spec.number("dim"); });
    add("dim", {"one", "odd", "sixteens", "wide"},
        [](const Spec& spec) { return dim_kind(spec.number("dim")); });
    add("beyond", {"no", "yes"}, [](const Spec& spec) {
        return spec.number("beyond_q") > 0 || spec.number("beyond_kv") > 0;
    });
    add("memory", {"dense", "strided"}, [](const Spec& spec) {
        return std::any_of(spec.layouts.begin(), spec.layouts.end(),
                           [](Layout layout) { return layout != Layout::dense; });
    });
    std::vector<std::string> recipes;  // zeros are what shrinking makes
    for (int r = static_cast<int>(Recipe::ones); r <= static_cast<int>(Recipe::specials); ++r)
        recipes.emplace_back(name_of(static_cast<Recipe>(r)));
    add("data", recipes, [](const Spec& spec) { return static_cast<int>(spec.recipe) - 1; });
    if (op.schema().number("stats") >= 0)
        for (const char* key : {"stats", "out"}) add_field(key);
    return features;
}

/// Values of two features that no legal case has together.
struct Exclusion {
    const char* left;
    std::vector<std::string> left_values;
    const char* right;
    std::vector<std::string> right_values;
    const char* reason;
};

const std::vector<std::string> kBatched{"BSH", "BSND", "SBH", "BNSD"};
const std::vector<std::string> kCompressed{"compressed", "compressed_batch"};
const std::vector<std::string> kSlopes{"slopes", "batch_slopes"};
const std::vector<std::string> kPresentPse{
    "plain",     "one_batch",  "one_row", "one_batch_row", "compressed", "compressed_batch",
    "flat_keys", "flat_pairs", "slopes",  "batch_slopes"};
const std::vector<std::string> kExternalPse(kPresentPse.begin(), kPresentPse.end() - 2);
const std::vector<std::string> kForms{"single", "one", "batch", "head", "packed"};

const std::vector<Exclusion> kExclusions{
    {"layout", kBatched, "mode", {"7", "8"}, "modes 7 and 8 are TND's"},
    {"layout", {"TND"}, "mode", {"5"}, "mode 5 is not TND's"},
    {"layout", kBatched, "mask_form", {"packed"}, "[sum Sq, sum Skv] is TND's"},
    {"layout", kBatched, "pse", {"flat_keys", "flat_pairs"}, "rank 1 biases are TND's"},
    {"layout", kBatched, "rope", {"yes"}, "ropes are TND's"},
    {"layout", kBatched, "stats_order", {"same_as_input"}, "the orders are TND's"},
    {"layout", kBatched, "beyond", {"yes"}, "only TND has rows beyond its lengths"},
    {"mode", {"5"}, "mask_form", {"packed"}, "not TND"},
    {"mode", {"5"}, "pse", {"flat_keys", "flat_pairs"}, "not TND"},
    {"mode", {"5"}, "rope", {"yes"}, "not TND"},
    {"mode", {"5"}, "stats_order", {"same_as_input"}, "not TND"},
    {"mode", {"5"}, "beyond", {"yes"}, "not TND"},
    {"mode", {"none", "2", "3", "4", "6", "7", "8"}, "mask_form", kForms, "no mask is read"},
    {"mode", {"0", "1", "5"}, "mask_form", {"none"}, "the mask is read"},
    {"mode", {"none"}, "mask", {"bool", "uint8"}, "none is no mask"},
    {"mode", {"0", "1", "2", "3", "4", "5", "6", "7", "8"}, "mask", {"absent"}, "a mode of a mask"},
    {"mask", {"absent"}, "mask_form", kForms, "a form of a mask"},
    {"mask", {"absent"}, "rope", {"yes"}, "ropes need a mask"},
    {"mask", {"absent"}, "pse", kCompressed, "a compressed bias needs a causal mask"},
    {"mode",
     {"none", "1", "4", "5", "6", "8"},
     "pse",
     kCompressed,
     "a compressed bias needs mode 2, 3 or a causal 0"},
    {"mode", {"7"}, "pse", kPresentPse, "mode 7 takes no bias"},
    {"mode", {"7"}, "pse_type", {"0", "2", "3"}, "they need a bias"},
    {"mode",
     {"7"},
     "lengths",
     {"more"},
     "S1 <= S2 outside the band, and S1 - S2 <= next <= 0 in it"},
    {"mode", {"none", "6"}, "rope", {"yes"}, "ropes need a mask, and not mode 6"},
    {"pse", {"absent"}, "pse_type", {"0", "2", "3"}, "they need a bias"},
    {"pse", kExternalPse, "pse_type", {"2", "3"}, "they take slopes"},
    {"pse", kSlopes, "pse_type", {"0", "1"}, "they take a bias"},
    {"pse", kCompressed, "lengths", {"fewer", "more"}, "a compressed bias needs S1 == S2"},
    {"pse", kPresentPse, "rope", {"yes"}, "ropes take no bias"},
    {"pse_type", {"0", "2", "3"}, "rope", {"yes"}, "ropes want pse_type 1"},
    {"drop", {"random", "keep_all", "drop_all"}, "rope", {"yes"}, "ropes take no drop mask"},
    {"keep", {"half", "nine_tenths", "tenth"}, "rope", {"yes"}, "ropes want keep_prob 1"},
    {"dtype", {"fp16", "fp32", "fp8_e5m2", "fp8_e4m3fn"}, "rope", {"yes"}, "ropes want bf16"},
    {"dim", {"one"}, "rope", {"yes"}, "a rope has 8 channels, and not more than D"},
    {"dim", {"one"}, "value_dim", {"smaller"}, "Dv is at least 1"},
    {"drop", {"absent"}, "keep", {"half", "nine_tenths", "tenth"}, "keep_prob < 1 needs a mask"},
};

bool contains(const std::vector<std::string>& values, const std::string& value) {
    return std::find(values.begin(), values.end(), value) != values.end();
}

bool excluded(const std::string& a, const std::string& a_value, const std::string& b,
              const std::string& b_value) {
    return std::any_of(kExclusions.begin(), kExclusions.end(), [&](const Exclusion& e) {
        return (e.left == a && e.right == b && contains(e.left_values, a_value) &&
                contains(e.right_values, b_value)) ||
               (e.left == b && e.right == a && contains(e.left_values, b_value) &&
                contains(e.right_values, a_value));
    });
}

using Value = std::pair<std::size_t, std::size_t>;  ///< number of the feature, of its value

std::map<std::pair<Value, Value>, int> count_pairs(const std::vector<Feature>& features,
                                                   const std::vector<Spec>& specs) {
    std::map<std::pair<Value, Value>, int> reached;
    for (const Spec& spec : specs) {
        std::vector<Value> values;
        for (std::size_t f = 0; f < features.size(); ++f)
            for (const std::size_t value : features[f].of(spec)) values.emplace_back(f, value);
        for (std::size_t i = 0; i < values.size(); ++i)
            for (std::size_t j = i + 1; j < values.size(); ++j)
                if (values[i].first != values[j].first) ++reached[{values[i], values[j]}];
    }
    return reached;
}

/// "mode=7 with pse=plain"
std::string show(const std::vector<Feature>& features, Value a, Value b) {
    const auto one = [&](Value v) {
        return features[v.first].name + "=" + features[v.first].values[v.second];
    };
    return one(a) + " with " + one(b);
}

bool is_fp8(const std::string& value) { return value.starts_with("fp8"); }

/// Legal pairs that `specs` do not have, of those with fp8 or of those without; and the pairs that
/// they have although they are excluded.
struct PairCoverage {
    std::vector<std::string> missing, wrongly_excluded;
    int legal = 0;
};

PairCoverage pair_coverage(const std::vector<Feature>& features, const std::vector<Spec>& specs,
                           bool with_fp8) {
    const auto reached = count_pairs(features, specs);
    PairCoverage out;
    for (std::size_t f = 0; f < features.size(); ++f)
        for (std::size_t g = f + 1; g < features.size(); ++g)
            for (std::size_t v = 0; v < features[f].values.size(); ++v)
                for (std::size_t w = 0; w < features[g].values.size(); ++w) {
                    const std::string &left = features[f].values[v], &right = features[g].values[w];
                    if ((is_fp8(left) || is_fp8(right)) != with_fp8) continue;
                    const Value a{f, v}, b{g, w};
                    const bool is_reached = reached.contains({a, b});
                    if (excluded(features[f].name, left, features[g].name, right)) {
                        if (is_reached) out.wrongly_excluded.push_back(show(features, a, b));
                        continue;
                    }
                    ++out.legal;
                    if (!is_reached) out.missing.push_back(show(features, a, b));
                }
    return out;
}

// A default number of draws has every legal pair of values of two features; and the exclusions
// exclude nothing that is drawn.
TEST_P(Flash, EveryLegalPairOfFeaturesIsReached) {
    const std::vector<Feature> features = features_of(op());
    const int draws = default_draws(op());
    for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
        const PairCoverage got = pair_coverage(features, draw(op(), nullptr, draws, seed), false);
        EXPECT_THAT(got.missing, IsEmpty())
            << "seed " << seed << ": " << got.legal - std::ssize(got.missing) << " of " << got.legal
            << " pairs in " << draws << " draws";
        EXPECT_THAT(got.wrongly_excluded, IsEmpty());
    }
}

// Two fifths of the draws are fp8 where the profile has it, in the gradient alone; four default
// runs have every pair.
TEST_P(Flash, EveryLegalPairWithFp8IsReachedUnderItsProfile) {
    const auto specs =
        draw(op(), nullptr, 4 * default_draws(op()), 1, Profile::ascend950);
    const PairCoverage got = pair_coverage(features_of(op()), specs, true);
    EXPECT_EQ(got.legal > 0, gradient());
    EXPECT_THAT(got.missing, IsEmpty()) << got.legal << " pairs";
    EXPECT_THAT(got.wrongly_excluded, IsEmpty());
}

// ---- extents and logits ----

// Lengths around the boundaries of tiles, lanes and 1024-column blocks, for queries and keys.
TEST_P(Flash, LengthsAroundEveryBoundaryAreReached) {
    std::set<Int> lengths[2];
    for (const Spec& spec : draw(op(), nullptr, default_draws(op()), kCornerSeed))
        for (std::size_t b = 0; b < spec.lists[0].size(); ++b)
            for (const std::size_t list : {0, 1})
                if (spec.lists[1 - list][b] > 0) lengths[list].insert(spec.lists[list][b]);
    for (const Int boundary : {1, 16, 64, 128, 1024, 2048})
        for (const Int length : {boundary - 1, boundary, boundary + 1}) {
            EXPECT_TRUE(lengths[0].contains(length)) << length << " queries";
            EXPECT_TRUE(lengths[1].contains(length)) << length << " keys";
        }
}

// Few cases are long on both sides: they cost a second each.
TEST_P(Flash, LongSquaresAreRare) {
    const auto specs = draw(op(), nullptr, default_draws(op()), kCornerSeed);
    const auto is_long = [](const Spec& spec) {
        for (std::size_t b = 0; b < spec.lists[0].size(); ++b)
            if (spec.lists[0][b] > 512 && spec.lists[1][b] > 512) return true;
        return false;
    };
    const auto squares = std::count_if(specs.begin(), specs.end(), is_long);
    EXPECT_LE(static_cast<double>(squares), 0.01 * static_cast<double>(specs.size()));
}

// The largest logits of rows lie in every hundred from -300 to 300, and beyond.
TEST(FlashCoverage, LogitsReachFromMinusThreeHundredToThreeHundred) {
    const Operator& op = *find_operator("flash_attention_score");
    std::map<int, int> hundreds;
    int cases = 0;
    for (const Spec& spec : draw(op, nullptr, 2000, kCornerSeed)) {
        Int pairs = 0;
        for (std::size_t b = 0; b < spec.lists[0].size(); ++b)
            pairs += spec.lists[0][b] * spec.lists[1][b];
        if (pairs * spec.number("dim") * spec.number("group") * spec.number("kv_heads") > 100'000 ||
            spec.recipe == Recipe::specials)
            continue;
        if (++cases > 600) break;
        FlashParts parts = flash_parts(spec);
        give_reference_statistics(parts);
        std::set<int> seen;
        for (const float row_max : parts.row_max)
            if (std::fabs(row_max) < 1e6f) seen.insert(static_cast<int>(std::floor(row_max / 100)));
        for (const int hundred : seen) ++hundreds[std::clamp(hundred, -4, 3)];
    }
    for (int hundred = -4; hundred <= 3; ++hundred)
        EXPECT_GE(hundreds[hundred], 2) << "logits from " << 100 * hundred;
}

}  // namespace
}  // namespace attncheck::properties
