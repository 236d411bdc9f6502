// Changes of a problem of flash attention: the same problem written in another way, heads moved,
// drop masks rewritten. Declared in problem.h.
#include <algorithm>

#include "properties/operators/flash_attention/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// The bias as given, without the scale of pse_type 1, of every pair of one sequence [N1,Sq,Skv].
/// Hidden pairs get a number that would be noticed.
/// Appends the bias of every pair of sequence b, 96 where a pair is hidden. Of bias type 1 that is scale times what is given.
void add_pairs_of_bias(const ref::FlashAttentionShape& s, const ref::SequenceStarts& starts, std::size_t b, std::vector<double>& values) {
    for_each_pair(s, b, [&](std::size_t, Int n, Int i, Int j) {
        values.push_back(ref::is_visible(s, starts, b, n, i, j) ? ref::bias_at(s, starts, b, n, i, j) : 96);
    });
}

void set_bias(FlashParts& parts, std::vector<Int> shape, const std::vector<double>& values) {
    ref::FlashBias& bias = parts.shape.bias;
    if (bias.type >= 2) bias.type = 0;
    bias.shape = std::move(shape);
    bias.query_start = bias.key_start = 0;
    parts.query_start.reset();
    parts.key_start.reset();
    parts.pse.resize(values.size());
    std::transform(values.begin(), values.end(), parts.pse.begin(),
                   [&](double v) { return ref::encode(parts.dtype, v); });
    parts.take_bias();
}

Int pairs(const ref::FlashAttentionShape& s) { return first_pair(s, s.query_lengths.size()); }

/// Written mask of the sequences [first, first + count).
void write_mask(const ref::FlashAttentionShape& from, std::size_t first, std::size_t count,
                std::uint64_t noise, ref::FlashMask& mask) {
    Int rows = 0, columns = 0;
    for (std::size_t b = first; b < first + count; ++b) {
        rows = std::max(rows, from.query_lengths[b]);
        columns = std::max(columns, from.kv_lengths[b]);
    }
    mask.sparse_mode = 1;
    mask.pre_tokens = mask.next_tokens = 0;
    mask.prefix.clear();
    mask.shape = {static_cast<Int>(count), from.query_heads, rows, columns};
    mask.values.clear();
    const ref::SequenceStarts starts(from);
    Random random(noise);
    for (std::size_t b = first; b < first + count; ++b)
        for (Int n = 0; n < from.query_heads; ++n)
            for (Int i = 0; i < rows; ++i)
                for (Int j = 0; j < columns; ++j)
                    mask.values.push_back(i < from.query_lengths[b] && j < from.kv_lengths[b]
                                              ? !ref::is_visible(from, starts, b, n, i, j)
                                              : static_cast<std::uint8_t>(random.next() & 1));
}

}  // namespace

bool is_legal(const FlashParts& parts) {
    return rule(make_flash_call(parts)).accepted();
}

FlashParts with_written_mask(const FlashParts& parts, std::uint64_t noise) {
    FlashParts to = parts;
    if (!parts.shape.mask.present) return to;
    write_mask(parts.shape, 0, parts.shape.query_lengths.size(), noise, to.shape.mask);
    to.prefix.reset();
    return to;
}

std::optional<FlashParts> with_plain_bias(const FlashParts& parts) {
    if (!parts.shape.bias.present) return parts;
    FlashParts to = parts;
    const ref::FlashAttentionShape& s = parts.shape;
    if (s.bias.type == 1) to.shape.bias.type = 0;  // as given
    const ref::SequenceStarts starts(to.shape);
    std::vector<double> values;
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b) add_pairs_of_bias(to.shape, starts, b, values);
    to.shape.bias.type = s.bias.type;
    if (!s.packed) {
        set_bias(to,
                 {std::ssize(s.query_lengths), s.query_heads, s.query_lengths[0], s.kv_lengths[0]},
                 values);
        return to;
    }
    if (total(s.kv_lengths) * s.query_heads == pairs(s))
        for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
            if (s.query_lengths[b] != 1 && s.kv_lengths[b] != 0) return std::nullopt;
    set_bias(to, {pairs(s)}, values);
    return to;
}

std::optional<FlashParts> with_explicit_pairs(const FlashParts& parts) {
    std::optional<FlashParts> plain = with_plain_bias(parts);
    if (plain) plain = with_written_mask(*plain, 1);
    if (plain && !is_legal(*plain)) plain.reset();
    return plain;
}

FlashParts single_sequence(const AttentionProblem& problem, std::size_t b, bool keeps_mode) {
    const FlashParts& all = extras_of<FlashParts>(problem);
    FlashParts one = parts_of_sequence<FlashParts>(problem, b);
    const ref::FlashAttentionShape& from = all.shape;
    ref::FlashAttentionShape& s = one.shape;
    const Int queries = s.total_queries, keys = s.total_keys;
    const bool is_by_sequence = from.mask.sparse_mode >= 2 && from.mask.sparse_mode <= 4;
    if (s.mask.present && !(keeps_mode && is_by_sequence)) write_mask(from, b, 1, 1, s.mask);
    one.prefix.reset();
    if (s.dropout.present)
        rewrite_dropout(s, [&, first = first_pair(from, b)](std::size_t, Int n, Int i, Int j) {
            return drop_bit(from, first + (n * queries + i) * keys + j);
        });
    if (!s.bias.present) return one;
    if (s.bias.type < 2) {
        std::vector<double> values;
        ref::FlashAttentionShape raw = from;
        if (raw.bias.type == 1) raw.bias.type = 0;
        add_pairs_of_bias(raw, ref::SequenceStarts(raw), b, values);
        set_bias(one,
                 s.packed ? std::vector<Int>{s.query_heads * queries * keys}
                          : std::vector<Int>{1, s.query_heads, queries, keys},
                 values);
        return one;
    }
    if (s.bias.shape.size() == 2) {
        one.pse = slice(all.pse, static_cast<Int>(b), 1, s.query_heads);
        s.bias.values = slice(from.bias.values, static_cast<Int>(b), 1, s.query_heads);
        s.bias.shape = {s.query_heads};
    }
    if (from.mask.present && from.mask.sparse_mode == 8 && b != 0) {
        s.bias.query_start = s.bias.key_start = 0;
        one.query_start.reset();
        one.key_start.reset();
    }
    return one;
}

Int first_pair(const ref::FlashAttentionShape& shape, std::size_t sequence) {
    Int first = 0;
    for (std::size_t b = 0; b < sequence; ++b)
        first += shape.query_heads * shape.query_lengths[b] * shape.kv_lengths[b];
    return first;
}

bool drop_bit(const ref::FlashAttentionShape& shape, Int bit) {
    return shape.dropout.bytes[static_cast<std::size_t>(bit >> 3)] >> (bit & 7) & 1;
}

void rewrite_dropout(ref::FlashAttentionShape& shape,
                     const std::function<bool(std::size_t, Int, Int, Int)>& kept) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>((pairs(shape) + 7) / 8));
    Int bit = 0;
    for_each_pair(shape, [&](std::size_t b, Int n, Int i, Int j) {
        if (kept(b, n, i, j)) {
            std::uint8_t& byte = bytes[static_cast<std::size_t>(bit >> 3)];
            byte = static_cast<std::uint8_t>(byte | 1 << (bit & 7));
        }
        ++bit;
    });
    shape.dropout.bytes = std::move(bytes);
}

void move_pairs(const FlashParts& parts, const std::vector<Int>& source, FlashParts& to) {
    const ref::FlashAttentionShape& s = parts.shape;
    const Int heads = s.query_heads;
    const auto& mask = s.mask.shape;
    if (!s.mask.values.empty() && mask.size() == 4 && mask[1] == heads)
        to.shape.mask.values = gather_heads(s.mask.values, heads, source, mask[2] * mask[3]);
    if (s.dropout.present)
        rewrite_dropout(to.shape, [&](std::size_t b, Int n, Int i, Int j) {
            const Int row = source[static_cast<std::size_t>(n)] * s.query_lengths[b] + i;
            return drop_bit(s, first_pair(s, b) + row * s.kv_lengths[b] + j);
        });
    if (parts.pse.empty()) return;
    const auto& bias = s.bias.shape;
    if (s.bias.type >= 2) {
        to.pse = gather_heads(parts.pse, heads, source, 1);
    } else if (bias.size() == 4) {
        to.pse = gather_heads(parts.pse, heads, source, bias[2] * bias[3]);
    } else {
        const bool by_key = bias[0] == heads * total(s.kv_lengths);
        to.pse.clear();
        Int first = 0;
        for (std::size_t b = 0; b < s.query_lengths.size(); ++b) {
            const Int width = (by_key ? 1 : s.query_lengths[b]) * s.kv_lengths[b];
            if (width == 0) continue;
            const auto moved =
                gather_heads(slice(parts.pse, first, heads * width, 1), heads, source, width);
            to.pse.insert(to.pse.end(), moved.begin(), moved.end());
            first += heads * width;
        }
    }
    to.take_bias();
}

Verdict verdict_on_equal_problems(const FlashParts& left, const FlashParts& right,
                                  PropertyContext& context, const std::string& relation) {
    return verdict_on_equal_problems(flash_attention_operator(), flash_problem(left),
                                     flash_problem(right), context, relation);
}

Verdict verdict_on_rounded_problems(const FlashParts& left, const FlashParts& right,
                                    PropertyContext& context, const std::string& relation) {
    // Statistics are those of the rounded numbers: under forward=own a gradient may go by them or form its own.
    AttentionProblem rounded = flash_problem(right);
    if (rounded.gradient) give_reference_forward(rounded);
    return verdict_on_rounded_problems(flash_attention_operator(), flash_problem(left), rounded, context, relation);
}

Verdict verdict_on_identical_problems(const FlashParts& left, const FlashParts& right,
                                      PropertyContext& context, const std::string& relation) {
    return verdict_on_identical_problems(flash_attention_operator(), flash_problem(left),
                                         flash_problem(right), context, relation);
}

void with_smaller_lengths(Spec& spec) {
    for (auto& list : spec.lists)
        for (auto& length : list) length = (length + 1) / 2;
}

void without_mask(Spec& spec) {
    for (const FlashField field :
         {kFaMask, kFaMaskForm, kFaTokens, kFaPre, kFaNext, kFaPrefix, kFaRope})
        spec.numbers[field] = 0;
}

void without_bias(Spec& spec) {
    spec.numbers[kFaPse] = spec.numbers[kFaStart] = 0;
    spec.numbers[kFaPseType] = 1;
}

void without_dropout(Spec& spec) { spec.numbers[kFaDrop] = spec.numbers[kFaKeep] = 0; }

void with_some_mask(Spec& spec, Random& random) {
    if (spec.numbers[kFaMask] == 0) spec.numbers[kFaMask] = random.between(1, 2);
}

void with_mask_and_bias(Spec& spec, Random& random) {
    with_some_mask(spec, random);
    if (has_external_bias(spec)) return;
    without_bias(spec);
    spec.numbers[kFaRope] = 0;
    spec.numbers[kFaPseType] = random.between(0, 1);
    spec.numbers[kFaPse] = static_cast<Int>(is_tnd(spec) ? FlashPse::flat_pairs : FlashPse::plain);
}

bool drops_some(const Spec& spec) {
    return spec.numbers[kFaDrop] != 0 &&
           spec.numbers[kFaDrop] != static_cast<Int>(FlashDrop::keep_all);
}

void with_drops(Spec& spec, Random& random) {
    if (spec.numbers[kFaRope] != 0) without_mask(spec);
    if (drops_some(spec)) return;
    spec.numbers[kFaDrop] = random.pick<Int>({1, 1, 3});
    spec.numbers[kFaKeep] = random.between(0, 3);
}

}  // namespace attncheck::properties
