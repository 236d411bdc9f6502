#include "properties/laws/attention_sight.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ref/attention/rounding_noise.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
using Columns = std::vector<ref::KeyColumn>;

bool counts(const ref::KeyColumn& column, Drops drops) {
    return column.kept || drops == Drops::counted;
}

void mark(const AttentionProblem& problem, Int t, Int head, Drops drops, std::vector<char>& seen) {
    Columns columns;
    problem.columns(t, head, columns);
    for (const ref::KeyColumn& column : columns)
        if (counts(column, drops)) seen[key_number(problem, column, head)] = 1;
}

}  // namespace

void for_each_row(const AttentionProblem& problem,
                  const std::function<void(Int, Int, const Columns&)>& visit) {
    Columns columns;
    for (Int t = 0; t < problem.shape.query_rows; ++t)
        for (Int n = 0; n < problem.shape.query_heads; ++n) {
            columns.clear();
            if (problem.columns(t, n, columns)) visit(t, n, columns);
        }
}

std::vector<char> seen_keys(const AttentionProblem& problem) {
    std::vector<char> seen(static_cast<std::size_t>(problem.key_rows()));
    for (Int t = 0; t < problem.shape.query_rows; ++t)
        for (Int n = 0; n < problem.shape.query_heads; ++n)
            mark(problem, t, n, Drops::counted, seen);
    return seen;
}

std::vector<char> keys_seen_by(const AttentionProblem& problem, Int t, Int head, Drops drops) {
    std::vector<char> seen(static_cast<std::size_t>(problem.key_rows()));
    mark(problem, t, head, drops, seen);
    return seen;
}

std::vector<char> keys_seen_by(const AttentionProblem& problem, Int t) {
    std::vector<char> seen(static_cast<std::size_t>(problem.key_rows()));
    for (Int n = 0; n < problem.shape.query_heads; ++n) mark(problem, t, n, Drops::counted, seen);
    return seen;
}

std::vector<char> rows_that_see(const AttentionProblem& problem, const std::vector<char>& keys,
                                Drops drops) {
    std::vector<char> rows(static_cast<std::size_t>(problem.query_rows()));
    for_each_row(problem, [&](Int t, Int n, const Columns& columns) {
        rows[static_cast<std::size_t>(t * problem.shape.query_heads + n)] =
            std::any_of(columns.begin(), columns.end(), [&](const ref::KeyColumn& column) {
                return keys[key_number(problem, column, n)] != 0 && counts(column, drops);
            });
    });
    return rows;
}

std::vector<char> rows_that_see_keys(const AttentionProblem& problem) {
    return rows_that_see(problem,
                         std::vector<char>(static_cast<std::size_t>(problem.key_rows()), 1));
}

std::uint32_t poison_of(ref::Dtype dtype, const PropertyContext& context) {
    if (!context.rounding.hidden_times_zero)
        return ref::encode(dtype, std::numeric_limits<double>::quiet_NaN());
    // What is stored of a product with it must not leave fp16.
    const bool stores = context.rounding.steps_rounded || context.rounding.scores_rounded;
    return ref::encode(dtype, dtype != ref::Dtype::fp16 ? 0x1p60 : stores ? 8 : 0x1p15);
}

std::string poison_name(ref::Dtype dtype, const PropertyContext& context) {
    const double poison = ref::decode(dtype, poison_of(dtype, context));
    return std::isnan(poison) ? "NaN" : fmt::format("{:g}", poison);
}

bool is_poison_judged(const AttentionProblem& problem, const PropertyContext& context) {
    if (!context.rounding.hidden_times_zero) return true;
    if (has_non_finite(problem)) return false;
    const AttentionNumbers numbers(problem);
    const double alone = ref::decode(problem.dtype, poison_of(problem.dtype, context));
    const auto stays_below = [](const std::vector<double>& values, double factor, double limit) {
        return std::ranges::all_of(values, [&](double x) { return std::fabs(x) * factor < limit; });
    };
    const bool steps = context.rounding.steps_rounded;
    if ((steps || context.rounding.scores_rounded) &&
        !stays_below(numbers.query, alone * static_cast<double>(problem.shape.head_dim) * std::max(1.0, std::fabs(problem.scale)),
                     ref::max_finite(problem.dtype) / 2))
        return false;
    if (!problem.gradient) return true;
    // dP of a hidden pair must not leave its type either, nor half of it the difference to delta.
    return stays_below(numbers.output_grad, alone * static_cast<double>(problem.shape.value_dim),
                       steps ? std::min(0x1p126, ref::max_finite(problem.dtype) / 2) : 0x1p126);
}

void poison_keys(AttentionProblem& problem, const std::vector<char>& keys,
                 const PropertyContext& context, bool value_only) {
    const std::uint32_t poisoned = poison_of(problem.dtype, context);
    const auto poison = [&](Bits& bits, Int width) {
        for (std::size_t k = 0; k < keys.size(); ++k)
            if (keys[k]) std::fill_n(bits.begin() + static_cast<Int>(k) * width, width, poisoned);
    };
    poison(problem.value, problem.shape.value_dim);
    if (!value_only) poison(problem.key, problem.shape.head_dim);
}

std::vector<Int> rows_with_keys(const AttentionProblem& problem) {
    const auto places = ref::sequence_places(problem.query_lengths, problem.shape.query_rows);
    std::vector<Int> rows;
    for (std::size_t t = 0; t < places.size(); ++t)
        if (places[t].sequence >= 0 &&
            problem.kv_lengths[static_cast<std::size_t>(places[t].sequence)] > 0)
            rows.push_back(static_cast<Int>(t));
    return rows;
}

}  // namespace attncheck::properties
