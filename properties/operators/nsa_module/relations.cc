// Relations between runs of the NSA module.
//
// "Kills" names mutants that the property was seen to kill within 40 cases, and broken compositions
// of tests/properties/operators/nsa_module_test.cc.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "properties/operators/nsa_module/runs.h"

namespace attncheck::properties::nsa_module {
namespace {

constexpr double kClosed = -std::numeric_limits<double>::infinity();


/// The first element of a tensor that is not zero although keeps(k) says so.
template <class Keeps>
Verdict verdict_on_zeros(const Run& run, const std::string& name,
                         const std::string& relation, const Keeps& must_be_zero) {
    const auto values = run.values(name);
    for (std::size_t k = 0; k < values.size(); ++k)
        if (must_be_zero(k) && values[k] != 0)
            return Verdict::fail(name + " is not zero",
                                 fmt::format("{}: {}  {} is {:.9g}, expected 0", relation,
                                             run.place(name)(k), name, values[k]));
    return {};
}

/// Equal numbers; the sign of zero is not compared.
Verdict verdict_on_equality(const Run& run, const std::string& name,
                            const std::string& of, const std::string& relation) {
    return verdict_within(name, run.values(of), run.values(name),
                          std::vector<double>(run.bits(name).size(), 0), relation,
                          run.place(name));
}

void set_gates(Parts& parts, Gates gates) {
    for (std::size_t k = 0; k < parts.bits[kGateLogits].size(); ++k)
        parts.set(kGateLogits, k,
                  gates != Gates::closed &&
                          k % 3 == at(static_cast<int>(gates) - static_cast<int>(Gates::compress))
                      ? -kClosed
                      : kClosed);
}

/// With one gate open and two closed the module is that branch and nothing else.
/// Why     1 is exact in every type: output and gradients are the branch's own numbers; those
/// of the other branches are those of dO = 0, exactly 0; sigmoid is flat at infinity.
/// Demand  equality.
/// Kills   the composition with gates in another order.
/// Shrinks to one token.
Verdict gates_isolate(const Spec& spec, PropertyContext& context) {
    Parts parts = parts_of(spec);
    const auto chosen = Random(mix(spec.seed)).between(0, 2);
    set_gates(parts, static_cast<Gates>(static_cast<int>(Gates::compress) + chosen));
    const std::string branch = kBranchNames[at(chosen)],
                      relation = "only the gate of the " + branch + " branch is open";
    const Run run(parts, context);
    if (run.early_verdict) return *run.early_verdict;
    Verdict all = verdict_on_equality(run, "attention_out", branch + "_out", relation);
    join(all, verdict_on_equality(run, "query_grad", branch + "_query_grad", relation));
    const auto everywhere = [](std::size_t) { return true; };
    join(all, verdict_on_zeros(run, "gate_logits_grad", relation, everywhere));
    for (std::size_t b = 0; b < ref::kModuleBranches; ++b)
        for (const std::string kind : {"key", "value"}) {
            const std::string own = std::string(kBranchNames[b]) + "_" + kind + "_grad";
            if (static_cast<std::int64_t>(b) != chosen)
                join(all, verdict_on_zeros(run, own, relation, everywhere));
            else
                join(all, verdict_on_equality(
                              run,
                              parts.tied ? kind + "_compress_grad" : kind + "_" + branch + "_grad",
                              own, relation));
            if (b == 0 && chosen != 0)
                join(all, verdict_on_zeros(run, kind + "_weight_grad", relation, everywhere));
        }
    return all;
}

/// With all gates closed there is no output and no gradient.
/// Demand  exact zeros.
/// Kills   the composition with clamped gate logits.
Verdict gates_closed(const Spec& spec, PropertyContext& context) {
    Parts parts = parts_of(spec);
    set_gates(parts, Gates::closed);
    const Run run(parts, context);
    if (run.early_verdict) return *run.early_verdict;
    std::vector<std::string> names = gradient_names(parts);
    names.insert(names.begin(), "attention_out");
    Verdict all;
    for (const std::string& name : names)
        join(all, verdict_on_zeros(run, name, "all gates are closed",
                                   [](std::size_t) { return true; }));
    return all;
}

/// Tied tensors: the select branch over all blocks is the window branch over all tokens.
/// Why     both are dense causal attention (nsa.md 11, 50), forward and backward.
/// Domain  lists that have room for every block, a window that reaches back to the first token.
/// Bound   the bounds of both runs added.
/// Kills   MOD-07.
/// Shrinks to one token, one block.
Verdict select_all_is_dense(const Spec& spec, PropertyContext& context) {
    Parts select = parts_of(spec), window = select;
    set_gates(select, Gates::select);
    set_gates(window, Gates::window);
    const Run left(select, context), right(window, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    const Exact left_exact(select, left), right_exact(window, right);
    const auto left_bounds = of_module(select, left, left_exact, context.rounding);
    const auto right_bounds =
        of_module(window, right, right_exact, context.rounding);
    Verdict all;
    for (const std::string name :
         {"attention_out", "query_grad", "key_compress_grad", "value_compress_grad"})
        join(all, verdict_within(name, left.values(name), right.values(name),
                                 sum_of(allowance(tensor_of(left_bounds, name)),
                                        allowance(tensor_of(right_bounds, name))),
                                 "all blocks selected against a window over all tokens",
                                 left.place(name)));
    return all;
}

void with_room_for_all(Spec& spec, Random& random) {
    spec.numbers[kTied] = 1;
    if (spec.numbers[kLogits] == 0 && random.chance(50)) spec.recipe = Recipe::normal;
    const std::int64_t select = spec.numbers[kSelect];
    std::int64_t most = 1;
    for (auto& length : spec.lists[0]) {
        length = std::min(length, 4 * select);
        most = std::max(most, (length + select - 1) / select);
    }
    spec.numbers[kCount] = most;
    spec.numbers[kWindow] = std::max<std::int64_t>(1, longest(spec.lists[0]));
}

bool has_room_for_all(const Spec& spec) {
    const std::int64_t length = longest(spec.lists[0]);
    return spec.numbers[kTied] == 1 && spec.numbers[kCount] * spec.numbers[kSelect] >= length &&
           spec.numbers[kWindow] >= length;
}

/// A token of a sequence, drawn from the case's own numbers; none when there are none.
struct Chosen {
    std::size_t sequence = 0;
    std::int64_t first = 0, position = 0;
    std::int64_t row() const { return first + position; }
};
std::optional<Chosen> choose_token(const Spec& spec, const Parts& parts, bool not_the_last) {
    Random random(mix(spec.seed ^ 0x70));
    const auto starts = row_starts(parts.shape.lengths);
    std::vector<std::size_t> sequences;
    for (std::size_t b = 0; b < parts.shape.lengths.size(); ++b)
        if (parts.shape.lengths[b] > not_the_last) sequences.push_back(b);
    if (sequences.empty()) return std::nullopt;
    const std::size_t b = random.pick(sequences);
    return Chosen{b, starts[b],
                  random.between(0, parts.shape.lengths[b] - 1 - (not_the_last ? 1 : 0))};
}

/// Lists and output of two runs that mean the same, to the bit. Where sums may take any order
/// (order=any) lists that differ are each to be right for their run, and the output of rows with
/// the same lists lies within two bounds of the left one.
Verdict verdict_on_equal_forwards(const Run& left, const Run& right, const PropertyContext& context,
                                  const std::string& relation, const OutputFilter& compared) {
    const auto tokens = left.parts.shape.tokens;
    const auto has_same_list = [&](std::int64_t token) {
        const auto &a = left.bits(kLists), &b = right.bits(kLists);
        const std::int64_t row = std::ssize(a) / tokens;
        return std::equal(a.begin() + token * row, a.begin() + (token + 1) * row,
                          b.begin() + token * row);
    };
    return verdict_on_equal_bits(
        left, right, context, relation, [&](const std::string& name, std::size_t k) {
            if (!compared(name, k)) return false;
            return !context.rounding.any_order || left.is_list(name) ||
                   has_same_list(static_cast<std::int64_t>(k) / (std::ssize(left.bits(name)) / tokens));
        });
}

/// Later tokens reach neither the output of a token nor the list of its blocks.
/// Why     all three branches and the selection are causal.
/// Domain  query, keys, values and gates of the tokens behind one of a sequence are replaced.
/// Demand  the same bits up to that token, and in all other sequences.
/// Kills   NCA-x11: windows and masks that end too late, scores of blocks that are not over.
/// Shrinks to two tokens.
Verdict causality(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    const auto token = choose_token(spec, parts, true);
    if (!token) return inapplicable();
    Parts later = parts;
    const std::int64_t end = token->first + parts.shape.lengths[token->sequence];
    for (int input = 0; input < kOutputGrad; ++input) {
        auto& bits = later.bits[at(input)];
        if (input == kKeyWeight || input == kValueWeight || bits.empty()) continue;
        const std::int64_t row = std::ssize(bits) / parts.shape.tokens;
        for (std::int64_t k = (token->row() + 1) * row; k < end * row; ++k)
            later.set(input, at(k),
                      static_cast<double>(mix(spec.seed + at(k) * 16 + at(input)) % 9) / 2 - 2);
    }
    const Run plain(parts, context, Direction::forward),
        changed(later, context, Direction::forward);
    if (auto early = first_early_verdict({&plain, &changed})) return *early;
    const auto looked_at = [&](const std::string& name, std::size_t k) {
        const std::int64_t t =
            static_cast<std::int64_t>(k) / (std::ssize(plain.bits(name)) / parts.shape.tokens);
        return t <= token->row() || t >= end;
    };
    return verdict_on_equal_forwards(
        plain, changed, context,
        fmt::format("other values behind token {} of sequence {}", token->position,
                    token->sequence),
        looked_at);
}

/// The tokens that the gradient of one query reaches, by branch.
std::array<std::vector<char>, 3> reach_of(const Parts& parts, const Run& run, const Chosen& token,
                                          std::int64_t head) {
    const ref::NsaModuleShape& s = parts.shape;
    std::array<std::vector<char>, 3> reach;
    std::vector<ref::KeyColumn> columns;
    for (std::size_t b = 0; b < reach.size(); ++b) {
        reach[b].assign(at(s.tokens), 0);
        columns.clear();
        ref::module_columns(s, static_cast<int>(b), run.topk)(token.row(), head, columns);
        if (b > 0) {
            for (const auto& column : columns) reach[b][at(column.key)] = 1;
        } else if (!columns.empty()) {
            const std::int64_t end = (std::ssize(columns) - 1) * s.stride + s.block;
            for (std::int64_t u = 0; u < end; ++u) reach[b][at(token.first + u)] = 1;
        }
    }
    return reach;
}

/// The gradient of one query's output reaches what that query sees, and nothing else.
/// Why     dO is zero but for one token and head: no later token, none behind the window, none of a
/// block that is not listed, none that no visible compressed block covers, no other head or
/// sequence has a path to it.
/// Demand  exact zeros.
/// Kills   MOD-06 MOD-13: gradients of hidden keys, windows that begin too early, heads that mix.
/// Shrinks to two tokens or two heads.
Verdict reach(const Spec& spec, PropertyContext& context) {
    Parts parts = parts_of(spec);
    const auto token = choose_token(spec, parts, false);
    if (!token) return inapplicable();
    const ref::NsaModuleShape& s = parts.shape;
    const std::int64_t head = Random(mix(spec.seed ^ 0x71)).between(0, s.query_heads - 1),
                       kv_head = head / (s.query_heads / s.kv_heads);
    auto& output_grad = parts.bits[kOutputGrad];
    const std::int64_t query = token->row() * s.query_heads + head;
    for (std::int64_t k = 0; k < std::ssize(output_grad); ++k)
        if (k / s.value_dim != query)
            output_grad[at(k)] = 0;
        else if (output_grad[at(k)] == 0)
            parts.set(kOutputGrad, at(k), 1);
    const Run run(parts, context);
    if (run.early_verdict) return *run.early_verdict;
    const auto reached = reach_of(parts, run, *token, head);
    const std::string relation = fmt::format("dO of token {} of sequence {}, head {} alone",
                                             token->position, token->sequence, head);
    Verdict all = verdict_on_zeros(run, "query_grad", relation, [&](std::size_t k) {
        return static_cast<std::int64_t>(k) / s.head_dim != query;
    });
    join(all, verdict_on_zeros(run, "gate_logits_grad", relation, [&](std::size_t k) {
             return static_cast<std::int64_t>(k) / 3 != query;
         }));
    for (std::size_t b = 0; b < (parts.tied ? 1u : 3u); ++b)
        for (const auto& [kind, width] : {std::pair{"key", s.head_dim}, {"value", s.value_dim}}) {
            const auto out_of_reach = [&, w = width](std::size_t k) {
                const auto row = static_cast<std::int64_t>(k) / w;
                const std::size_t u = at(row / s.kv_heads);
                const bool touched = parts.tied ? reached[0][u] || reached[1][u] || reached[2][u]
                                                : reached[b][u] != 0;
                return !touched || row % s.kv_heads != kv_head;
            };
            join(all, verdict_on_zeros(run, fmt::format("{}_{}_grad", kind, kBranchNames[b]),
                                       relation, out_of_reach));
        }
    return all;
}

/// The gradient of tied keys and values is the sum of what the same problem gives untied.
/// Why     the chain rule; the forward is the same.
/// Bound   the bounds of both runs; the same bits forward.
/// Kills   the composition that hands on one branch's gradient alone.
Verdict tied_is_the_sum(const Spec& spec, PropertyContext& context) {
    const Parts tied = parts_of(spec);
    Parts apart = tied;
    apart.tied = false;
    for (int branch = 1; branch < ref::kModuleBranches; ++branch) {
        apart.bits[at(key_input(branch))] = tied.bits[kKeyCompress];
        apart.bits[at(value_input(branch))] = tied.bits[kValueCompress];
    }
    const Run left(tied, context), right(apart, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    const std::string relation = "tied against the sum of the same problem untied";
    Verdict all = verdict_on_equal_forwards(
        left, right, context, relation,
        [](const std::string& name, std::size_t) { return name == "attention_out"; });
    if (context.rounding.any_order && left.bits(kLists) != right.bits(kLists)) return all;
    const Exact right_exact(apart, right);
    const auto stages = expected_stages(apart, right, right_exact, context.rounding);
    const auto right_bounds = of_module(apart, right, right_exact, stages);
    // Operators that pass the same numbers on have the same exact values and bounds.
    const auto left_bounds = left.topk == right.topk && left.observed == right.observed
                                 ? of_module(tied, right, right_exact, stages)
                                 : of_module(tied, left, Exact(tied, left), context.rounding);
    for (const std::string kind : {"key", "value"}) {
        const std::string name = kind + "_compress_grad";
        std::vector<double> sum(left.bits(name).size()),
            allowed = allowance(tensor_of(left_bounds, name));
        for (const char* branch : kBranchNames) {
            const std::string part = kind + "_" + branch + "_grad";
            sum = sum_of(std::move(sum), right.values(part));
            allowed = sum_of(std::move(allowed), allowance(tensor_of(right_bounds, part)));
        }
        join(all, verdict_within(name, left.values(name), sum, allowed, relation,
                                 left.place(name)));
    }
    return all;
}

}  // namespace

void add_relations(std::vector<Property>& list) {
    const auto field = [](Field key, std::int64_t value) {
        return [=](const Spec& spec) { return spec.numbers[key] == value; };
    };
    const auto set = [](Field key, std::int64_t value) {
        return [=](Spec& spec, Random&) { spec.numbers[key] = value; };
    };
    list.push_back({"gates_isolate", "one open gate: the module is that branch, exactly",
                    gates_isolate});
    /// Without an open gate nothing passes.
    /// Why     the output is the sum of the branches times their gates; all gates are 0.
    /// Domain  every legal case with gates of 0 and finite data.
    /// Bound   exactly 0: output and the gradients of queries, keys and values.
    /// Kills   MOD mutants that add a branch without its gate.
    list.push_back({"gates_closed", "no open gate: output and gradients are exactly zero",
                    gates_closed});
    list.push_back({"select_all", "all blocks selected is dense causal attention, both directions",
                    select_all_is_dense, with_room_for_all, has_room_for_all});
    list.push_back(
        {"causality", "later tokens change no bit of output and lists", causality, {}, {}});
    list.push_back(
        {"reach", "the gradient of one output is exactly zero beyond its reach", reach, {}, {}});
    list.push_back({"tied_is_the_sum", "tied gradients are the sum of untied ones", tied_is_the_sum,
                    set(kTied, 1), field(kTied, 1)});
}

}  // namespace attncheck::properties::nsa_module
