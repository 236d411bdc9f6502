// Relations of Attention and its gradient: masks, biases and sinks written in another way, and what
// is optional left out.
#include <algorithm>

#include "properties/case/attention_data.h"
#include "properties/laws/attention_laws.h"
#include "properties/laws/attention_run.h"
#include "properties/operators/attention/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// visit(b, h, i, j) for every element of a full bias or mask, in its order.
template <class Visit>
void for_each_pair(const ref::NeutralAttentionShape& s, Visit&& visit) {
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
        for (Int h = 0; h < s.query_heads; ++h)
            for (Int i = 0; i < s.query_lengths[b]; ++i)
                for (Int j = 0; j < s.kv_lengths[b]; ++j) visit(static_cast<Int>(b), h, i, j);
}

std::vector<Int> full_shape(const ref::NeutralAttentionShape& s) {
    return {std::ssize(s.query_lengths), s.query_heads, s.query_lengths[0], s.kv_lengths[0]};
}

/// Window, kv_length and mask as one mask of every batch and head.
NeutralParts with_written_mask(const NeutralParts& parts) {
    const ref::NeutralAttentionShape& s = parts.shape;
    NeutralParts to = parts;
    to.shape.mask = {true, full_shape(s), {}};
    for_each_pair(s, [&](Int b, Int h, Int i, Int j) {
        to.shape.mask.values.push_back(ref::sees_key(s, static_cast<std::size_t>(b), h, i, j));
    });
    to.shape.window_left = to.shape.window_right = -1;
    to.shape.has_kv_length = false;
    to.shape.kv_length.clear();
    to.set("mask", static_cast<Int>(PairForm::full));
    to.set("kv_length", 0);
    return to;
}

/// The bias of every batch, head and pair; zeros where there is none.
NeutralParts with_full_bias(const NeutralParts& parts) {
    const ref::NeutralAttentionShape& s = parts.shape;
    NeutralParts to = parts;
    to.bias.clear();
    if (!s.bias.present) to.bias_dtype = ref::Dtype::fp32, to.set("bias_type", 0);
    for_each_pair(s, [&](Int b, Int h, Int i, Int j) {
        to.bias.push_back(
            s.bias.present ? parts.bias[static_cast<std::size_t>(s.bias.place(b, h, i, j))] : 0);
    });
    to.shape.bias.present = true;
    to.shape.bias.shape = full_shape(s);
    to.set("bias", static_cast<Int>(PairForm::full));
    to.take_pairs();
    return to;
}

/// Window and kv_length are masks.
/// Why     all three say which pairs are visible, and hidden keys are skipped.
/// Domain  padded layouts, any window, kv_length, mask and bias.
/// Bound   twice that of the problem.
/// Kills   AT-02 03 04 06 10 12.
/// Shrinks to one query, two keys.
Verdict written_mask(const Spec& spec, PropertyContext& context) {
    if (is_packed(spec)) return inapplicable();
    const NeutralParts parts = neutral_parts(spec);
    return verdict_on_equal_problems(neutral_operator(), neutral_problem(parts),
                                     neutral_problem(with_written_mask(parts)), context,
                                     "window and kv_length against a written mask");
}

/// A bias that batches, heads, rows or keys share is that bias for each, and its gradient the sum of
/// theirs.
/// Why     an extent of 1 repeats; dbias_s = sum over what shares s of dS.
/// Domain  cases with a bias.
/// Bound   those of both, summed likewise.
/// Kills   AT-08, ATG-08 09, WILD-16.
/// Shrinks to two batches or heads, one query, one key.
Verdict shared_bias(const Spec& spec, PropertyContext& context) {
    const NeutralParts parts = neutral_parts(spec);
    const ref::NeutralAttentionShape& s = parts.shape;
    const AttentionProblem shared = neutral_problem(parts),
                           full = neutral_problem(with_full_bias(parts));
    const AttentionRun left(neutral_operator(), shared, context),
        right(neutral_operator(), full, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    const auto folded = [&](const std::string& name, const std::vector<double>& values) {
        if (shared.output_named(name).role != Role::bias_grad) return values;
        std::vector<double> sums(left.bits(name).size());
        std::size_t k = 0;
        for_each_pair(s, [&](Int b, Int h, Int i, Int j) {
            sums[static_cast<std::size_t>(s.bias.place(b, h, i, j))] += values[k++];
        });
        return sums;
    };
    return verdict_within_both(left, right, context,
                               "bias repeated for every batch, head, query and key", {}, folded);
}

/// Rows of this width, each with tail(row) behind it.
template <class T, class Tail>
std::vector<T> widened(const std::vector<T>& values, Int rows, Int width, Tail&& tail) {
    std::vector<T> out;
    for (Int row = 0; row < rows; ++row) {
        out.insert(out.end(), values.begin() + row * width, values.begin() + (row + 1) * width);
        const std::vector<T> more = tail(row);
        out.insert(out.end(), more.begin(), more.end());
    }
    return out;
}

/// A key of zeros behind those of every batch, whose bias is the sink.
NeutralParts with_key_for_sink(const NeutralParts& parts) {
    NeutralParts to = with_full_bias(with_written_mask(parts));
    ref::NeutralAttentionShape& s = to.shape;
    const Int keys = s.kv_lengths[0], batches = std::ssize(s.kv_lengths),
              queries = s.query_lengths[0], rows = batches * s.query_heads * queries;
    to.bias = widened(to.bias, rows, keys, [&](Int row) {
        return Bits{parts.sink[static_cast<std::size_t>(row / queries % s.query_heads)]};
    });
    s.mask.values = widened(s.mask.values, rows, keys, [](Int) { return std::vector<std::uint8_t>{1}; });
    const auto with_zeros = [&](const Bits& values, Int width) {
        return widened(values, batches, keys * width,
                       [&](Int) { return Bits(static_cast<std::size_t>(width)); });
    };
    to.key = with_zeros(to.key, s.kv_heads * s.head_dim);
    to.value = with_zeros(to.value, s.kv_heads * s.value_dim);
    for (Int& length : s.kv_lengths) ++length;
    s.total_keys += batches;
    s.bias.shape[3] = s.mask.shape[3] = keys + 1;
    s.sink.clear(), to.sink.clear();
    to.set("sink", 0);
    to.take_pairs();
    return to;
}

/// A sink is a key of zeros with a bias.
/// Why     its logit is the bias alone, and it adds exp(sink) to the sum and 0 to the output.
/// Domain  padded layouts, biases of fp32 or none; mask and bias written element by element.
/// Bound   those of both.
/// Kills   AT-13 14 15, WILD-37 38 39.
/// Shrinks to one query without a key.
Verdict sink_as_key(const Spec& spec, PropertyContext& context) {
    const NeutralParts parts = neutral_parts(spec);
    const bool in_fp32 = !parts.shape.bias.present || parts.bias_dtype == ref::Dtype::fp32;
    if (parts.shape.packed || parts.sink.empty() || !in_fp32) return inapplicable();
    const AttentionOperator& of = neutral_operator();
    const AttentionProblem before = neutral_problem(parts),
                           after = neutral_problem(with_key_for_sink(parts));
    const AttentionRun left(of, before, context), right(of, after, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    return verdict_within_both(left, right, context, "sink against a key of zeros with a bias");
}

/// The output does not depend on whether the LSE is asked for.
/// Why     it is a second output of the same softmax.
/// Domain  every case.
/// Demand  the same bits.
/// Kills   AT-19.
Verdict lse_optional(const Spec& spec, PropertyContext& context) {
    if (!context.gives_all_of(spec.schema->op)) return needs("lse");
    NeutralParts with = neutral_parts(spec);
    with.set("lse", 0);
    with.withheld.clear();
    NeutralParts without = with;
    without.set("lse", 1);
    const AttentionOperator& of = neutral_operator();
    const AttentionProblem left = neutral_problem(without), right = neutral_problem(with);
    const AttentionRun a(of, left, context), b(of, right, context);
    if (auto early = first_early_verdict({&a, &b})) return *early;
    return verdict_on_equal_bits(a, b, context, "with and without lse");
}

// ---- the cases that they want ----

void padded(Spec& spec) {
    if (!is_packed(spec)) return;
    spec.set("layout", 0);
    for (auto& list : spec.lists) list.assign(list.size(), longest(list));
}

}  // namespace

void AddOnModerateData::operator()(const char* name, const char* summary,
                                   Verdict (*check)(const Spec&, PropertyContext&),
                                   void (*adapt)(Spec&, Random&),
                                   bool (*domain)(const Spec&)) const {
    list.push_back({name, summary, check, adapt,
                    [domain](const Spec& spec) { return moderate(spec) && domain(spec); }});
}

void add_neutral_relations(std::vector<Property>& list, bool gradient) {
    const AddOnModerateData add{list};
    add("written_mask", "window and kv_length are masks", written_mask,
        [](Spec& spec, Random& random) {
            with_moderate_data(spec, random);
            padded(spec);
            if (spec.number("kv_length") == 0 && random.chance(50))
                spec.set("kv_length", random.between(1, 3));
        },
        [](const Spec& spec) { return !is_packed(spec); });
    add("shared_bias", "a shared bias is that bias for each, its gradient their sum", shared_bias,
        [](Spec& spec, Random& random) {
            with_moderate_data(spec, random);
            padded(spec);
            if (spec.number("bias") < 2) spec.set("bias", random.between(2, 8));
            set_if_present(spec, "dbias", 0);
        },
        [](const Spec& spec) { return spec.number("bias") != 0; });
    if (gradient) return;
    add("sink_as_key", "a sink is a key of zeros with a bias", sink_as_key,
        [](Spec& spec, Random& random) {
            with_moderate_data(spec, random);
            padded(spec);
            spec.set("bias_type", 0);
            if (spec.number("sink") == 0) spec.set("sink", random.between(1, 4));
        },
        [](const Spec& spec) { return spec.number("sink") != 0; });
    add("lse_optional", "the output does not depend on whether lse is asked for", lse_optional,
        with_moderate_data);
}

}  // namespace attncheck::properties
