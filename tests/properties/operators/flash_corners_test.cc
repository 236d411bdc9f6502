// The corner cases of flash_attention.md 9: the generators reach every one.
#include "tests/properties/operators/flash_draws.h"

namespace attncheck::properties {
namespace {

class FlashCorners : public Flash {};

INSTANTIATE_TEST_SUITE_P(Operators, FlashCorners, testing::ValuesIn(flash_operators()),
                         named_after_it);

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
    {"7", "mode 1 with a row that is hidden altogether; the inert attribute has no effect on it"},
    {"8", "the inert attribute is 2; it has no effect"},
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
    {"29.rows_again", "compressed bias, S > 2048: stored rows are read more than once"},
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
    {"24.rarely_kept", "keep_prob 0.01 and 0.001"},
    {"27.hidden", "a bias of -inf"},
    {"30.late_start", "start indices beyond 16 bits"},
    {"36.keys_above_4096", "S2 > 4096"},
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
    /// The attribute without effect.
    std::string inert() const {
        return std::ranges::find_if(spec.schema->integers, &IntegerField::inert)->name;
    }
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
    {8, "the inert attribute is 258: legal",
     [](const Edited& e) { return e.edit(e.inert() + "=258") && e.accepted(); }},
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

TEST_P(FlashCorners, EveryCornerCaseIsReached) {
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

TEST_P(FlashCorners, EveryIllegalCornerCaseIsAnEditOfValidation) {
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

TEST(FlashCornersTables, TheTablesHaveEveryNumber) {
    std::set<int> numbers;
    for (const Corner& corner : kCorners) numbers.insert(std::stoi(corner.label));
    for (const EditedCorner& corner : kEditedCorners) numbers.insert(corner.number);
    for (int number = 1; number <= 44; ++number) EXPECT_TRUE(numbers.contains(number)) << number;
}

}  // namespace
}  // namespace attncheck::properties
