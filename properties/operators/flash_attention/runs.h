// What relations between runs of flash attention share: a run with its outputs in packed order,
// other ways to write a problem, changes of a problem, and verdicts on two runs. Both directions
// use them; nothing here knows a relation.
//
// Packed order: [rows, heads, width], sequence after sequence, whatever the layout; statistics
// [T1,N1,8]. Legend as in ref/operators/flash_attention.h.
#pragma once

#include <initializer_list>

#include "properties/laws/relation_checks.h"
#include "properties/operators/flash_attention/problem.h"

namespace attncheck::properties {

/// One call of the candidate; trouble is set when it did not return 0.
struct FlashRun {
    struct Output {
        std::string name;
        ref::Dtype dtype;
        std::vector<std::uint32_t> bits;  ///< packed
    };
    std::vector<Output> outputs;
    std::optional<Verdict> trouble;

    /// `change` may alter the call before it is made.
    FlashRun(const FlashParts& parts, PropertyContext& context,
             const std::function<void(Call&)>& change = {});
    const Output& output(std::string_view name) const;
    const std::vector<std::uint32_t>& bits(std::string_view name) const {
        return output(name).bits;
    }
    std::vector<double> values(std::string_view name) const;
    bool has(std::string_view name) const;
};

/// Expected outputs in packed order.
ExpectedOutputs packed_expected_of(const FlashParts& parts, const ref::RoundingClass& rounding);

/// "[sequence 1, query 3, head 0, channel 2]" for packed element k of an output.
std::string packed_place(const FlashParts& parts, const std::string& name, std::size_t k);
bool is_of_keys(std::string_view output);

// ---- verdicts ----

Verdict verdict_on_flash(const FlashParts& parts, const std::string& name, std::vector<double> left,
                         std::vector<double> right, const std::vector<double>& allowed,
                         const std::string& relation);

/// Every output that both have, within twice the bound of `left`: two ways to write the same
/// numbers.
Verdict verdict_on_equal_problems(const FlashParts& left, const FlashParts& right,
                                  PropertyContext& context, const std::string& relation);

/// Every output that both have, within the bounds of both, where the second problem's numbers were
/// rounded on the way: the reference says how far that moves the exact results.
Verdict verdict_on_rounded_problems(const FlashParts& left, const FlashParts& right,
                                    PropertyContext& context, const std::string& relation);

/// Every output of both, to the bit; elements for which looked_at is false are skipped.
Verdict verdict_on_equal_bits(const FlashParts& parts, const FlashRun& left, const FlashRun& right,
                              const std::string& relation, const OutputFilter& looked_at = {});
Verdict verdict_on_identical_problems(const FlashParts& left, const FlashParts& right,
                                      PropertyContext& context, const std::string& relation);

// ---- the same problem written in another way ----

/// The documented rules accept it.
bool is_legal(const FlashParts& parts);

/// Mode 1 with the [B,N1,max Sq,max Skv] mask that hides what is hidden. `noise` fills what lies
/// outside the sequences.
FlashParts with_written_mask(const FlashParts& parts, std::uint64_t noise);

/// The bias element by element: [B,N1,S1,S2], or N1 sum(Sq Skv) numbers in TND; ALiBi as pse_type
/// 0, rounded to the input type. Without a bias the problem itself. nullopt when the numbers would
/// be taken for another form.
std::optional<FlashParts> with_plain_bias(const FlashParts& parts);

/// Written mask (when there is one) and plain bias: every pair of query and key can be changed on
/// its own.
std::optional<FlashParts> with_explicit_pairs(const FlashParts& parts);

/// One sequence or batch as a problem of its own, mask and bias element by element.
FlashParts single_sequence(const FlashParts& parts, std::size_t sequence);

// ---- changes of a problem ----

/// Place of pair (i, j) of head n among the drop bits and the numbers of a flat bias.
std::int64_t first_pair(const ref::FlashAttentionShape& shape, std::size_t sequence);
bool drop_bit(const ref::FlashAttentionShape& shape, std::int64_t bit);

/// The drop mask anew: kept(b, n, i, j).
void rewrite_dropout(
    ref::FlashAttentionShape& shape,
    const std::function<bool(std::size_t b, std::int64_t n, std::int64_t i, std::int64_t j)>& kept);

/// The problem with query head n from query_source[n] and key/value head n from kv_source[n].
FlashParts with_heads(const FlashParts& parts, const std::vector<std::int64_t>& query_source,
                      const std::vector<std::int64_t>& kv_source);

/// Row `row` of [rows, width] from row source[row].
template <class T>
std::vector<T> gather_rows(const std::vector<T>& values, const std::vector<std::int64_t>& source,
                           std::int64_t width) {
    std::vector<T> out;
    if (values.empty()) return out;
    out.reserve(values.size());
    for (const std::int64_t row : source) {
        const auto first = values.begin() + row * width;
        out.insert(out.end(), first, first + width);
    }
    return out;
}

/// Rows of `left` [rows, left_width] with those of `right` behind them.
template <class T>
std::vector<T> beside(const std::vector<T>& left, std::int64_t left_width,
                      const std::vector<T>& right, std::int64_t right_width) {
    std::vector<T> out;
    out.reserve(left.size() + right.size());
    for (auto l = left.begin(), r = right.begin(); l != left.end();
         l += left_width, r += right_width) {
        out.insert(out.end(), l, l + left_width);
        out.insert(out.end(), r, r + right_width);
    }
    return out;
}

/// An output; dq and dk with the gradient of the rope behind every row.
std::vector<double> wide_values(const FlashParts& parts, const FlashRun& run,
                                const std::string& name);

/// Sequence and position of every query row; sequence -1 beyond the last.
struct FlashRow {
    std::int64_t sequence = -1, position = 0;
};
std::vector<FlashRow> row_places(const std::vector<std::int64_t>& lengths, std::int64_t total);

// ---- domains ----

/// Moderate data and, where a relation takes several evaluations, half the lengths.
void with_smaller_lengths(Spec& spec);
void without_mask(Spec& spec);
void without_bias(Spec& spec);
void without_dropout(Spec& spec);
void with_some_mask(Spec& spec, Random& random);
void with_mask_and_bias(Spec& spec, Random& random);
bool drops_some(const Spec& spec);
void with_drops(Spec& spec, Random& random);

/// Relations that hold in both directions: all, and in them the same problem in other words, and
/// what is hidden.
void add_flash_shared_relations(std::vector<Property>& list, bool gradient);
void add_flash_form_relations(std::vector<Property>& list);
void add_flash_mask_forms(std::vector<Property>& list);
void add_flash_mode_forms(std::vector<Property>& list);
void add_flash_hidden_relations(std::vector<Property>& list);

}  // namespace attncheck::properties
