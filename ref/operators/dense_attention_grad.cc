// The backward of dense attention with its bounds: dQ, dK and dV from given statistics and output,
// summed over rows; what a row adds is gradient_bound.h's concern.
#include <algorithm>
#include <thread>

#include "ref/operators/chosen_attention.h"
#include "ref/bounds/gradient_bound.h"

namespace attncheck::ref {
namespace {

/// How many columns of all rows refer to each wanted key: the length of the sums dK and dV.
std::vector<std::int64_t> count_contributions(const AttentionShape& shape,
                                              const ColumnLister& list_columns,
                                              const KeySlots& slots, std::int64_t& total) {
    std::vector<std::int64_t> count(static_cast<std::size_t>(slots.count()));
    std::vector<KeyColumn> columns;
    total = 0;
    for (std::int64_t t = 0; t < shape.query_rows; ++t)
        for (std::int64_t n = 0; n < shape.query_heads; ++n) {
            columns.clear();
            if (!list_columns(t, n, columns)) continue;
            slots.filter(shape, n, columns);
            total += std::ssize(columns);
            for (const KeyColumn& c : columns)
                ++count[slots.of(c.key * shape.kv_heads + n / shape.group())];
        }
    return count;
}

void require_gradient_inputs(const AttentionShape& s, const AttentionGradInputs& in) {
    require_attention_shape(s, in.forward);
    const std::int64_t rows = s.query_rows * s.query_heads;
    require_elements("output_grad", in.output_grad.size(), rows * s.value_dim);
    require_elements("output", in.output.size(), rows * s.value_dim);
    require_elements("row_max", in.row_max.size(), rows);
    require_elements("row_sum", in.row_sum.size(), rows);
    if (!in.output_error.empty())
        require_elements("output_error", in.output_error.size(), rows * s.value_dim);
}

/// dK and dV of the wanted keys; dQ of all rows where query_grad is given.
ExpectedKeyGrad sum_over_rows(const AttentionShape& shape, const ColumnLister& list_columns,
                              const GradientBound& prototype, const KeySlots& slots,
                              ExpectedTensor* query_grad) {
    std::int64_t total = 0;
    const auto contributions = count_contributions(shape, list_columns, slots, total);
    // Parts by the size of the problem alone, summed in order: the result is the same everywhere.
    constexpr std::int64_t kLarge = std::int64_t{1} << 20;
    const std::int64_t parts = total < kLarge ? 1 : 4;
    std::vector<KeySums> sums(static_cast<std::size_t>(parts), KeySums(slots.count(), shape));
    const auto run_part = [&](std::int64_t part) {
        GradientBound bound = prototype;
        std::vector<KeyColumn> columns;
        for (std::int64_t t = shape.query_rows * part / parts;
             t < shape.query_rows * (part + 1) / parts; ++t)
            for (std::int64_t n = 0; n < shape.query_heads; ++n) {
                columns.clear();
                if (!list_columns(t, n, columns)) continue;
                slots.filter(shape, n, columns);
                if (columns.empty()) continue;
                bound.measure(t, n, columns);
                if (query_grad)
                    bound.write_query_grad(static_cast<std::size_t>(t * shape.query_heads + n),
                                           *query_grad);
                bound.add_to_keys(slots, contributions, sums[static_cast<std::size_t>(part)]);
            }
    };
    if (parts == 1) {
        run_part(0);
    } else {
        std::vector<std::thread> threads;
        for (std::int64_t part = 0; part < parts; ++part) threads.emplace_back(run_part, part);
        for (auto& thread : threads) thread.join();
        for (std::size_t part = 1; part < sums.size(); ++part) sums[0].add(sums[part]);
    }
    ExpectedKeyGrad out{ExpectedTensor(static_cast<std::size_t>(slots.count() * shape.head_dim)),
                        ExpectedTensor(static_cast<std::size_t>(slots.count() * shape.value_dim))};
    prototype.finish_keys(sums[0], contributions, out.key_grad, out.value_grad);
    return out;
}

}  // namespace

ExpectedAttentionGrad expected_attention_grad(const AttentionShape& shape,
                                              const ColumnLister& list_columns,
                                              const AttentionGradInputs& in, Dtype dtype,
                                              const RoundingClass& rounding, Grant grant) {
    require_gradient_inputs(shape, in);
    ExpectedAttentionGrad out;
    out.query_grad = ExpectedTensor(
        static_cast<std::size_t>(shape.query_rows * shape.query_heads * shape.head_dim));
    ExpectedKeyGrad of_keys =
        sum_over_rows(shape, list_columns, GradientBound(shape, in, dtype, rounding, grant),
                      KeySlots(shape.kv_rows * shape.kv_heads), &out.query_grad);
    out.key_grad = std::move(of_keys.key_grad);
    out.value_grad = std::move(of_keys.value_grad);
    return out;
}

ExpectedKeyGrad expected_key_grad_of(const AttentionShape& shape, const ColumnLister& list_columns,
                                     const AttentionGradInputs& in, Dtype dtype,
                                     std::span<const std::int64_t> keys,
                                     const RoundingClass& rounding) {
    require_gradient_inputs(shape, in);
    const std::int64_t all = shape.kv_rows * shape.kv_heads;
    require_numbers("key", keys, all);
    return sum_over_rows(shape, list_columns,
                         GradientBound(shape, in, dtype, rounding, Grant::rounding),
                         KeySlots(all, keys), nullptr);
}

ExpectedTensor expected_query_grad_rows(const AttentionShape& shape,
                                        const ColumnLister& list_columns,
                                        const AttentionGradInputs& in, Dtype dtype,
                                        std::span<const std::int64_t> rows,
                                        const RoundingClass& rounding) {
    require_gradient_inputs(shape, in);
    require_numbers("row", rows, shape.query_rows * shape.query_heads);
    ExpectedTensor out(rows.size() * static_cast<std::size_t>(shape.head_dim));
    const GradientBound prototype(shape, in, dtype, rounding, Grant::rounding);
    constexpr std::size_t kThreads = 4;
    std::vector<std::thread> threads;
    for (std::size_t part = 0; part < std::min(kThreads, rows.size()); ++part)
        threads.emplace_back([&, part] {
            GradientBound bound = prototype;
            std::vector<KeyColumn> columns;
            for (std::size_t k = part; k < rows.size(); k += kThreads) {
                const std::int64_t t = rows[k] / shape.query_heads, n = rows[k] % shape.query_heads;
                columns.clear();
                if (!list_columns(t, n, columns) || columns.empty()) continue;
                bound.measure(t, n, columns);
                bound.write_query_grad(k, out);
            }
        });
    for (auto& thread : threads) thread.join();
    return out;
}

}  // namespace attncheck::ref
