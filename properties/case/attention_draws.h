// What the generators of attention operators draw and count alike.
#pragma once

#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

#include "properties/case/random.h"
#include "properties/case/spec.h"

namespace attncheck::properties {

std::int64_t total(const std::vector<std::int64_t>& lengths);

/// Multiply-adds of the forward's two products, plus the elements that have to be made: `pairs` of
/// query and key for each query head, `dims` channels for each of them.
std::int64_t attention_cost(const Spec& spec, std::int64_t pairs, std::int64_t dims);

/// Of a sequence: small, around multiples of tiles, or empty.
std::int64_t draw_length(Random& random);
/// A number of keys for which the diagonal starts one or two short of a tile's edge, on it, or past
/// it: what decides whether a tile needs its mask.
std::int64_t length_across_tile_edge(Random& random, std::int64_t query_len);

/// How far a window reaches: `reach` at most, or a little more. The window of the first query of a tile then ends at the edge
/// of a tile of keys, or one key beside it. Such edges decide which tiles are skipped and which need a mask. A window that
/// reaches `offset` far ends at the first key.
std::int64_t reach_to_tile_edge(Random& random, std::int64_t offset, std::int64_t reach);

/// Heads, widths, scale and lengths of what people run: widths 64, 80, 96 and 128, grouped heads,
/// lengths around those of tiles. `packed`: every sequence has its own.
void draw_plain_shape(Spec& spec, Random& random, bool packed);

/// Widths of 64 and more, and more rows on one side than a tile has; on the other side few, seldom as many.
void draw_wide_shape(Spec& spec, Random& random, bool packed);

/// For agreement, now and then, where it stays legal: widths of 64 and more behind more keys, or queries, than any tile
/// has. A dozen such rows cost what ten cases do, too much for every law.
void now_and_then_wide(Spec& spec, Random& random, bool packed);

/// Lengths of up to five sequences, often around tiles; `packed`: each has its own, and some are
/// empty. The others share one length.
void draw_lengths(Spec& spec, Random& random, bool packed);

/// Multiply-adds of a case: its pairs, `more` channels beyond the two widths.
std::int64_t attention_cost_of(const Spec& spec, std::int64_t more);
/// Queries times keys of each sequence.
std::int64_t query_key_pairs(const Spec& spec);
/// A number of keys that leaves 16 bits with a sign, and no power of two.
inline constexpr std::int64_t kBeyond16Bits = 33'001;

/// A change that stays legal; else the case is as it was.
void change_if_legal(Spec& spec, const std::function<void(Spec&)>& change);
/// Fields that a case has, cut to at most this.
void limit_fields(Spec& spec, std::initializer_list<const char*> fields, std::int64_t most);
void limit_lengths(Spec& spec, std::int64_t most);
/// For laws that look at no element.
void with_zeros_in_dense_tensors(Spec& spec);

/// Removes sequence b from all lists.
void remove_sequence(Spec& spec, std::size_t b);

/// The seed of the data, short to read (16 million data sets per shape), and its recipe, drawn by
/// these weights.
using RecipeWeights = std::vector<std::pair<Recipe, int>>;
void draw_data(Spec& spec, Random& random, const RecipeWeights& weights);
/// Every recipe but zeros alike; where `is_plain`, three in ten cases have normal data or whole numbers.
void draw_any_data(Spec& spec, Random& random, bool is_plain = true);
/// Of long rows often with few keys that lead, so that each of them shows: in others one of thousands is lost in rounding.
void draw_leading_keys(Spec& spec, Random& random);
/// Often 1/sqrt(D).
void draw_scale(Spec& spec, Random& random);

/// A softcap as models have it, or a small one, or one that is no whole number.
void draw_softcap(Spec& spec, Random& random);
void without_softcap(Spec& spec);
/// These weights of normal data and of whole numbers, 1 of each recipe else but zeros.
RecipeWeights each_recipe(int normal, int ints);

/// Layouts for this share of the tensors of this share of the cases, in percent; `most` is the last
/// one that an input may have.
void draw_layouts(Spec& spec, Random& random, Layout most = Layout::broadcast, int cases = 35,
                  int tensors = 40);

/// Fields `stats` and `out` of a gradient, with these chances in percent.
void draw_given(Spec& spec, Random& random, int stats, int out);

/// At least two key/value heads, with smaller groups where they are new; at least two query heads
/// for each.
void with_more_heads(Spec& spec, Random& random);
void with_larger_group(Spec& spec, Random& random);

/// Steps to cheaper cases until one costs at most this; a step is told how many came before it.
struct Budget {
    std::int64_t most;
    std::int64_t (*cost)(const Spec&);
    int tries = 200;
};
void fit_budget(const Spec& spec, const Budget& budget, const std::function<void(int tries)>& step);

/// Rows behind the last sequence: few, or as many as a padded tensor has, behind the end of a tile.
std::int64_t draw_rows_beyond(Random& random);

/// One of the sequences.
std::size_t any_sequence(const Spec& spec, Random& random);

/// One sequence more: of another length where they are packed.
void with_another_sequence(Spec& spec, Random& random, bool packed);
/// In most cases a power of two of keys.
void with_power_of_two_keys(Spec& spec, Random& random);

/// Copies of a case with a change, for shrinking.
class ChangedCases {
public:
    explicit ChangedCases(const Spec& spec) : spec_(spec) {}

    template <class Change>
    void with(Change&& change) {
        Spec to = spec_;
        change(to);
        out_.push_back(std::move(to));
    }
    /// The key/value heads become members of one group.
    void with_one_group();
    /// One channel, and a scale that shows: 1/sqrt(1) is none.
    void with_one_channel(std::initializer_list<const char*> cleared = {});
    /// All sequences shorter at once, queries and keys apart and together.
    void with_shorter_sequences();

    std::vector<Spec> take() { return std::move(out_); }

private:
    const Spec& spec_;
    std::vector<Spec> out_;
};

}  // namespace attncheck::properties
