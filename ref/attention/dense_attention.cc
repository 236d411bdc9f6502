#include "ref/attention/dense_attention.h"

#include <algorithm>

#include "ref/attention/attention_roundoff.h"
#include "ref/numbers/dual.h"
#include "ref/attention/shared_rows.h"
#include "ref/numbers/dtype.h"

template <>
struct Eigen::NumTraits<attncheck::ref::Dual> : Eigen::NumTraits<double> {
    using Real = attncheck::ref::Dual;
    using NonInteger = Real;
    using Nested = Real;
    using Literal = Real;
};

namespace attncheck::ref {
namespace {

double real_part(double x) { return x; }
double real_part(const std::complex<double>& x) { return x.real(); }

/// The largest logit; a NaN, once met, stays.
template <class Row>
auto largest_of(const Row& logits) {
    typename Row::Scalar largest = logits[0];
    for (const auto& logit : logits)
        if (!std::isnan(real_part(largest)) && !(real_part(logit) <= real_part(largest)))
            largest = logit;
    return largest;
}

}  // namespace

std::vector<WantedRow> all_rows(const AttentionShape& shape, std::int64_t first,
                                std::int64_t last) {
    std::vector<WantedRow> rows;
    for (std::int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head)
        for (std::int64_t t = first; t < last; ++t)
            for (std::int64_t g = 0; g < shape.group(); ++g) {
                const std::int64_t row = t * shape.query_heads + kv_head * shape.group() + g;
                rows.push_back({row, row});
            }
    return rows;
}

std::vector<WantedRow> chosen_rows(const AttentionShape& shape,
                                   std::span<const std::int64_t> rows) {
    require_numbers("row", rows, shape.query_rows * shape.query_heads);
    std::vector<WantedRow> wanted;
    for (std::size_t k = 0; k < rows.size(); ++k)
        wanted.push_back({rows[k], static_cast<std::int64_t>(k)});
    std::ranges::stable_sort(wanted, {}, [&](const WantedRow& one) {
        return one.row % shape.query_heads / shape.group();
    });
    return wanted;
}

template <class Scalar>
void add_sink(const AttentionShape& shape, const AttentionInputs<Scalar>& in, WantedRow wanted,
              std::vector<KeyColumn>& columns) {
    if (in.sink.empty()) return;
    const double sink =
        real_part(in.sink[static_cast<std::size_t>(wanted.row % shape.query_heads)]);
    if (sink != -kInfinity) columns.push_back({kSinkKey, sink, true});
}

template <class Scalar>
bool SharedRows<Scalar>::take(const AttentionShape& shape, WantedRow wanted,
                              std::span<const KeyColumn> more) {
    constexpr std::int64_t kMostPairs = std::int64_t{1} << 14;  // what a cache holds
    constexpr std::int64_t kFewRows = 16;  // that read their keys once, however long these are
    const std::int64_t kv_head = wanted.row % shape.query_heads / shape.group();
    const auto key_of = [&](const KeyColumn& c) { return c.key * shape.kv_heads + kv_head; };
    if (rows.empty())
        for (const KeyColumn& c : more) keys.push_back(key_of(c));
    else if ((std::ssize(rows) >= kFewRows &&
              std::ssize(columns) + std::ssize(more) > kMostPairs) ||
             !std::ranges::equal(keys, more, {}, {}, key_of))
        return false;
    rows.push_back(wanted);
    columns.insert(columns.end(), more.begin(), more.end());
    return true;
}

template <class Scalar>
void SharedRows<Scalar>::gather(std::span<const Scalar> tensor, std::int64_t width,
                                GatheredRows<Scalar>& to) const {
    to.count = count(), to.width = width;
    to.first = tensor.data() + keys[0] * width, to.stride = kv_heads_ * width;
    if (in_order_) return;
    to.copy.resize(count(), width);
    for (std::int64_t j = 0; j < count(); ++j) {
        const std::int64_t key = keys[static_cast<std::size_t>(j)];
        Scalar* const row = to.copy.data() + j * width;
        if (key < 0)
            std::fill_n(row, width, Scalar{});
        else
            std::copy_n(tensor.data() + key * width, width, row);
    }
    to.first = to.copy.data(), to.stride = width;
}

template <class Scalar>
void SharedRows<Scalar>::gather(const AttentionShape& shape, const AttentionInputs<Scalar>& in) {
    const std::int64_t g = std::ssize(rows), c = count();
    kv_heads_ = shape.kv_heads;
    in_order_ = std::ranges::adjacent_find(keys, [&](std::int64_t a, std::int64_t b) {
                    return b != a + kv_heads_;
                }) == keys.end() &&
                !has_sink();
    query.resize(g, shape.head_dim);
    for (std::int64_t i = 0; i < g; ++i) query.row(i) = view(in.query, shape.head_dim).row(row(i));
    gather(in.key, shape.head_dim, key_);
    gather(in.value, shape.value_dim, value_);
    bias.resize(g, c), gain.resize(g, c);
    for (std::int64_t pair = 0; pair < g * c; ++pair) {
        const KeyColumn& column = columns[static_cast<std::size_t>(pair)];
        bias.data()[pair] = column.bias;
        gain.data()[pair] = column.kept ? 1 / in.keep_prob : 0;
    }
    given_bias.resize(0, 0);
    if (std::is_same_v<Scalar, double> || (in.bias.empty() && in.sink.empty())) return;
    given_bias = bias.matrix().template cast<Scalar>();
    for (std::int64_t pair = 0; pair < g * c; ++pair) {
        const KeyColumn& column = columns[static_cast<std::size_t>(pair)];
        if (column.key == kSinkKey)
            given_bias.data()[pair] =
                in.sink[static_cast<std::size_t>(row(pair / c) % shape.query_heads)];
        else if (column.place >= 0 && !in.bias.empty())
            given_bias.data()[pair] = in.bias[static_cast<std::size_t>(column.place)];
    }
}

template <class Scalar>
AttendedRows<Scalar> attend(const SharedRows<Scalar>& rows, const AttentionInputs<Scalar>& in) {
    AttendedRows<Scalar> out;
    out.logits = Scalar(in.scale) * products_with_keys(rows);
    if (in.softcap > 0) {
        out.scores = out.logits;
        out.logits = softcapped(out.scores, in.softcap);
    }
    if (rows.given_bias.size() > 0)
        out.logits += rows.given_bias;
    else
        out.logits += rows.bias.matrix().template cast<Scalar>();
    const std::int64_t g = out.logits.rows();
    out.probs.resize(g, rows.count()), out.row_max.resize(g), out.row_sum.resize(g);
    for (std::int64_t i = 0; i < g; ++i) {
        const auto s = out.logits.row(i).array();
        auto p = out.probs.row(i).array();
        const Scalar m = largest_of(out.logits.row(i));
        p = exponential(s - m);
        const Scalar l = p.sum();
        p = p / l;
        out.row_max[i] = m, out.row_sum[i] = l;
    }
    const auto weight_of = [](const Scalar& p, const Scalar& gain) {
        return real_part(gain) == 0 ? Scalar{} : p * gain;
    };
    out.output = kept_product<Scalar>(
        out.probs.binaryExpr(rows.gain.matrix().template cast<Scalar>(), weight_of), rows.kept(),
        rows.value());
    return out;
}

template <class Scalar>
void attend_row(const AttentionShape& shape, const AttentionInputs<Scalar>& in,
                std::int64_t query_row, std::int64_t query_head, std::span<const KeyColumn> columns,
                AttentionRow<Scalar>& row) {
    row.logits.clear(), row.probs.clear();
    row.output.assign(static_cast<std::size_t>(shape.value_dim), Scalar{});
    row.row_max = Scalar(kEmptyRowMax), row.row_sum = Scalar(kEmptyRowSum);
    const WantedRow wanted{query_row * shape.query_heads + query_head, 0};
    std::vector<KeyColumn> all(columns.begin(), columns.end());
    add_sink(shape, in, wanted, all);
    if (all.empty()) return;
    SharedRows<Scalar> rows;
    rows.take(shape, wanted, all);
    rows.gather(shape, in);
    const AttendedRows<Scalar> out = attend(rows, in);
    row.logits.assign(out.logits.data(), out.logits.data() + columns.size());
    row.probs.assign(out.probs.data(), out.probs.data() + columns.size());
    row.output.assign(out.output.data(), out.output.data() + out.output.size());
    row.row_max = out.row_max[0], row.row_sum = out.row_sum[0];
}

template <class Scalar>
void dense_attention(const AttentionForward<Scalar>& forward, std::span<Scalar> output,
                     std::span<Scalar> row_max, std::span<Scalar> row_sum) {
    const AttentionShape& shape = forward.shape;
    const auto write = [&](std::int64_t place, const Scalar* o, Scalar m, Scalar l) {
        Scalar* const to = output.data() + place * shape.value_dim;
        for (std::int64_t d = 0; d < shape.value_dim; ++d) to[d] = o ? o[d] : Scalar{};
        if (!row_max.empty()) row_max[static_cast<std::size_t>(place)] = m;
        if (!row_sum.empty()) row_sum[static_cast<std::size_t>(place)] = l;
    };
    for_shared_rows(
        forward, all_rows(shape),
        [&](const SharedRows<Scalar>& rows) {
            const AttendedRows<Scalar> out = attend(rows, forward.in);
            for (std::int64_t i = 0; i < out.output.rows(); ++i)
                write(rows.place(i), out.output.row(i).data(), out.row_max[i], out.row_sum[i]);
        },
        [&](const WantedRow& row, bool in_sequence) {
            write(row.place, nullptr, in_sequence ? Scalar(kEmptyRowMax) : Scalar{},
                  in_sequence ? Scalar(kEmptyRowSum) : Scalar{});
        });
}

template struct SharedRows<double>;
template struct SharedRows<std::complex<double>>;
template struct SharedRows<Dual>;
#define ATTNCHECK_FORWARD_OVER(Scalar)                                                            \
    template void add_sink(const AttentionShape&, const AttentionInputs<Scalar>&, WantedRow,      \
                           std::vector<KeyColumn>&);                                              \
    template AttendedRows<Scalar> attend(const SharedRows<Scalar>&,                               \
                                         const AttentionInputs<Scalar>&);                         \
    template void attend_row(const AttentionShape&, const AttentionInputs<Scalar>&, std::int64_t, \
                             std::int64_t, std::span<const KeyColumn>, AttentionRow<Scalar>&);    \
    template void dense_attention(const AttentionForward<Scalar>&, std::span<Scalar>,             \
                                  std::span<Scalar>, std::span<Scalar>)
ATTNCHECK_FORWARD_OVER(double);
ATTNCHECK_FORWARD_OVER(std::complex<double>);
ATTNCHECK_FORWARD_OVER(Dual);
#undef ATTNCHECK_FORWARD_OVER

}  // namespace attncheck::ref
