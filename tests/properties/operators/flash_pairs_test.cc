// Every legal pair of features of flash attention is reached by the generator.
#include "tests/properties/operators/flash_draws.h"

namespace attncheck::properties {
namespace {

class FlashPairs : public Flash {};

INSTANTIATE_TEST_SUITE_P(Operators, FlashPairs, testing::ValuesIn(flash_operators()),
                         named_after_it);

using testing::IsEmpty;

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
    // The two rarest probabilities count as the smallest of the others: their pairs are too many.
    add("keep", {"one", "half", "nine_tenths", "tenth"},
        [](const Spec& spec) { return std::min<Int>(spec.number("keep"), 3); });
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
         {"dtype", "layout", "mask", "pse_type", "drop", "scale", "logits", "stats_order"})
        add_field(key);
    const auto pse_names =
        op.schema().numbers[static_cast<std::size_t>(op.schema().number("pse"))].names;
    features.push_back({"pse", pse_names, [](const Spec& spec) {
                            const auto pse = static_cast<std::size_t>(spec.number("pse"));
                            // The long problems that batches need are mostly one batch: both forms.
                            constexpr auto kBoth = static_cast<std::size_t>(FlashPse::compressed);
                            // Of 1024 queries these are the plain forms (flash_attention.md 3.2).
                            if ((pse == kBoth || pse == kBoth + 1) && std::ranges::max(spec.lists[0]) == 1024)
                                return std::vector{static_cast<std::size_t>(pse == kBoth ? FlashPse::plain : FlashPse::one_batch)};
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
TEST_P(FlashPairs, EveryLegalPairOfFeaturesIsReached) {
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
TEST_P(FlashPairs, EveryLegalPairWithFp8IsReachedUnderItsProfile) {
    const auto specs = draw(op(), nullptr, 4 * default_draws(op()), 1, Profile::ascend950);
    const PairCoverage got = pair_coverage(features_of(op()), specs, true);
    EXPECT_EQ(got.legal > 0, gradient());
    EXPECT_THAT(got.missing, IsEmpty()) << got.legal << " pairs";
    EXPECT_THAT(got.wrongly_excluded, IsEmpty());
}

}  // namespace
}  // namespace attncheck::properties
