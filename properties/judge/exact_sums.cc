#include "properties/judge/exact_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "properties/case/random.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

constexpr Int kLargest = 127;
constexpr double kExactLimit = 0x1p24;  ///< whole numbers below are fp32 numbers
constexpr double kSlack = 0x1p-14;
constexpr double kLargestExpError = 64;  ///< units of exp=N that the slack has room for

/// Gradients with data=signs.
bool wants_exact_scores(const Spec& spec) {
    return spec.recipe == Recipe::signs && spec.schema->tensor("dq") >= 0;
}

bool has_equal_logits(const Spec& spec) {
    const int field = spec.schema->number("logits");
    if (field < 0 || (spec.recipe != Recipe::ints && !wants_exact_scores(spec))) return false;
    const auto at = static_cast<std::size_t>(field);
    return spec.schema->numbers[at].names[static_cast<std::size_t>(spec.numbers[at])] == "equal";
}

bool is_power_of_two(double x) {
    int exponent = 0;
    return std::fabs(std::frexp(x, &exponent)) == 0.5;
}

/// Of a sum in parts that are stored in half no bits are left to judge.
bool leaves_sums_exact(const AttentionProblem& problem, const ref::RoundingClass& rounding) {
    return ref::accumulator_roundoff({problem.dtype, rounding}) <= 0x1p-24 && !rounding.parts_rounded &&
           rounding.exp_error <= kLargestExpError;
}

/// Keys that a row sees, without bias and dropout; 0 for other rows.
Int plain_keys(const AttentionProblem& problem, Int row) {
    std::vector<ref::KeyColumn> columns;
    const Int heads = problem.shape.query_heads;
    problem.columns(row / heads, row % heads, columns);
    const bool plain = std::ranges::all_of(columns, [](const ref::KeyColumn& column) {
        return column.bias == 0 && column.kept;
    });
    return plain ? std::ssize(columns) : 0;
}

std::vector<std::uint32_t> whole_numbers(ref::Dtype dtype, std::vector<std::uint32_t> bits,
                                         std::uint64_t seed) {
    for (std::size_t k = 0; k < bits.size(); ++k) {
        if (!std::isfinite(ref::decode(dtype, bits[k]))) continue;  // what nobody reads
        const auto number = static_cast<Int>(mix(seed + k) % (2 * kLargest + 1)) - kLargest;
        bits[k] = ref::encode(dtype, static_cast<double>(number));
    }
    return bits;
}

/// Elements of packed rows [row, heads, width] become number(row, head, channel).
template <class Number>
void fill_rows(ref::Dtype dtype, Bits& bits, Int heads, Int width, Number&& number) {
    for (std::size_t k = 0; k < bits.size(); ++k) {
        if (!std::isfinite(ref::decode(dtype, bits[k]))) continue;  // what nobody reads
        const Int at = static_cast<Int>(k), row = at / (heads * width);
        bits[k] = ref::encode(
            dtype, static_cast<double>(number(row, at / width % heads, at % width)));
    }
}

/// Query and key share no channel, neighbouring values cancel, dO has one channel in each row.
void give_exact_scores(AttentionProblem& problem, std::uint64_t seed) {
    const ref::AttentionShape& s = problem.shape;
    const auto small = [seed](std::uint64_t of, Int row, Int head, Int channel) {
        constexpr Int kSmall = 7;
        const std::uint64_t hash =
            mix(mix(mix(seed + of) ^ static_cast<std::uint64_t>(row)) ^
                static_cast<std::uint64_t>(head * 4096 + channel));
        return static_cast<Int>(hash % (2 * kSmall + 1)) - kSmall;
    };
    const Int half = s.head_dim / 2;
    fill_rows(problem.dtype, problem.query, s.query_heads, s.head_dim,
              [&](Int row, Int head, Int d) { return d < half ? small(2, row, head, d) : 0; });
    fill_rows(problem.dtype, problem.key, s.kv_heads, s.head_dim,
              [&](Int row, Int head, Int d) { return d < half ? 0 : small(3, row, head, d); });
    fill_rows(problem.dtype, problem.value, s.kv_heads, s.value_dim,
              [&](Int row, Int head, Int d) {
                  return (row % 2 == 0 ? 1 : -1) * small(4, row / 2, head, d);
              });
    fill_rows(problem.result, problem.output_grad, s.query_heads, s.value_dim,
              [&](Int row, Int head, Int d) -> Int {
                  const std::uint64_t hash = mix(mix(seed + 5) ^ static_cast<std::uint64_t>(
                                                                     row * s.query_heads + head));
                  const bool chosen = static_cast<Int>(hash >> 8) % s.value_dim == d;
                  return chosen ? (hash % 2 == 0 ? 1 : -1) : 0;
              });
}

}  // namespace

bool give_exact_numbers(const Spec& spec, AttentionProblem& problem) {
    if (wants_exact_scores(spec)) {
        give_exact_scores(problem, mix(spec.seed));
        return true;
    }
    problem.value = whole_numbers(problem.dtype, std::move(problem.value), mix(spec.seed));
    problem.output_grad =
        whole_numbers(problem.result, std::move(problem.output_grad), mix(spec.seed + 1));
    return false;
}

Int exact_row_length(const Spec& spec, const AttentionProblem& problem,
                     const ref::RoundingClass& rounding) {
    if (!has_equal_logits(spec) || !leaves_sums_exact(problem, rounding) ||
        problem.dtype != ref::Dtype::bf16 || problem.result != ref::Dtype::bf16 ||
        problem.keep_prob != 1 || problem.softcap != 0 || !problem.sink.empty())
        return 0;
    Int keys = 0, first = 0;
    for (const Int length : problem.query_lengths) {
        if (length == 0) continue;
        for (const Int query : {first, first + length / 2, first + length - 1}) {
            const Int seen = plain_keys(problem, query * problem.shape.query_heads);
            if (keys == 0) keys = seen;
            if (seen != keys || !std::has_single_bit(static_cast<std::uint64_t>(seen))) return 0;
        }
        first += length;
    }
    const double terms = static_cast<double>(
        std::max(keys, problem.shape.query_rows * problem.shape.group()));
    const bool balanced = !wants_exact_scores(spec) || is_power_of_two(problem.scale);
    return balanced && terms * kLargest < kExactLimit ? keys : 0;
}

Verdict verdict_on_exact_sums(const AttentionProblem& problem, const std::string& name,
                              const std::vector<Int>& numbers, const std::vector<double>& expected,
                              const std::vector<double>& got, Int keys) {
    const bool scaled = name == "dq" || name == "dk";
    const double parts = static_cast<double>(keys) / (scaled ? std::fabs(problem.scale) : 1);
    const ref::Dtype dtype = problem.result;
    double squares = 0;
    for (const double value : expected) squares += value * value;
    const double slack =
        kSlack * std::sqrt(squares / std::max<double>(1, static_cast<double>(expected.size())));
    std::size_t wrong = 0, first = 0;
    const std::size_t width = expected.size() / std::max<std::size_t>(1, numbers.size());
    const auto exact = [&](std::size_t k) {
        return std::nearbyint(expected[k] * parts) / parts;
    };
    const auto stored = [&](double value) { return ref::decode(dtype, ref::encode(dtype, value)); };
    for (std::size_t k = 0; k < expected.size(); ++k) {
        const double x = exact(k), room = std::max(slack, kSlack * std::fabs(x));
        if (got[k] >= stored(x - room) && got[k] <= stored(x + room)) continue;
        if (wrong++ == 0) first = k;
    }
    if (wrong == 0) return {};
    const double x = exact(first);
    return Verdict::fail(
        name + " is wrong",
        fmt::format("{} of exact sums over {} keys is another number in {} of {} elements; first:\n  {}  expected "
                    "{:.9g}, which is {:.0f} / {:g}, stored {:.9g}  got {:.9g}",
                    name, keys, wrong, expected.size(),
                    problem.place(name, static_cast<std::size_t>(numbers[first / width]) * width + first % width),
                    x, x * parts, parts, stored(x), got[first]),
        Tier::bound);
}

}  // namespace attncheck::properties
