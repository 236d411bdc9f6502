// Query rows that see the same keys, with these keys gathered: the matrices in which the documents
// write attention. For the .cc files of ref/ alone: no other room pays for compiling Eigen.
//
// Usually the G query heads of a key/value head share their keys, and without a mask all rows of a
// sequence do. A key that a row does not see is not in its matrices at all, so nothing of it is
// ever multiplied by zero.
#pragma once

#include <Eigen/Core>
#include <type_traits>
#include <utility>

#include "ref/attention/dense_attention.h"

namespace attncheck::ref {

template <class Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Array = Eigen::Array<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Mask = Eigen::Array<bool, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// A tensor as [rows * heads, width].
template <class Scalar>
auto view(std::span<const Scalar> tensor, std::int64_t width) {
    return Eigen::Map<const Matrix<Scalar>>(
        tensor.data(), width == 0 ? 0 : static_cast<std::int64_t>(tensor.size()) / width, width);
}
inline auto view(std::vector<double>& tensor, std::int64_t width) {
    return Eigen::Map<Matrix<double>>(
        tensor.data(), width == 0 ? 0 : static_cast<std::int64_t>(tensor.size()) / width, width);
}

/// A row that is asked for: t * N1 + n, and its place in the results.
struct WantedRow {
    std::int64_t row = 0, place = 0;
};

/// KeyColumn::key of a sink: a column whose key and value are 0 and whose bias is the sink. It is
/// the last one of its row; operators list none.
inline constexpr std::int64_t kSinkKey = -1;

/// Appends the sink of the row, if there is one.
template <class Scalar>
void add_sink(const AttentionShape& shape, const AttentionInputs<Scalar>& in, WantedRow wanted,
              std::vector<KeyColumn>& columns);

/// All rows of the query rows [first, last), each in its own place: rows of a key/value head one
/// after the other.
std::vector<WantedRow> all_rows(const AttentionShape& shape, std::int64_t first, std::int64_t last);
inline std::vector<WantedRow> all_rows(const AttentionShape& shape) {
    return all_rows(shape, 0, shape.query_rows);
}

/// Chosen rows, each in its place of the list; rows of a key/value head one after the other. Throws std::invalid_argument for one that is not
/// there.
std::vector<WantedRow> chosen_rows(const AttentionShape& shape, std::span<const std::int64_t> rows);

/// Some rows of a tensor, copied only if they do not lie one after the other.
template <class Scalar>
struct GatheredRows {
    const Scalar* first = nullptr;
    std::int64_t count = 0, width = 0, stride = 0;
    Matrix<Scalar> copy;

    auto view() const {
        return Eigen::Map<const Matrix<Scalar>, 0, Eigen::OuterStride<>>(
            first, count, width, Eigen::OuterStride<>(stride));
    }
};

/// g rows of one key/value head that see the same c keys, in the same order.
template <class Scalar>
struct SharedRows {
    std::vector<WantedRow> rows;       ///< [g]
    std::vector<KeyColumn> columns;    ///< [g,c], as listed
    std::vector<std::int64_t> keys;    ///< [c]: row of K and V times N2, plus head; sink: negative
    Matrix<Scalar> query;              ///< [g,D]
    Array bias, gain;                  ///< [g,c]; gain 1 / keep_prob, 0 where dropout drops
    Matrix<Scalar> given_bias;         ///< [g,c]: bias with its derivative; empty: it has none

    std::int64_t count() const { return std::ssize(keys); }
    std::span<const KeyColumn> columns_of(std::int64_t i) const {
        return std::span(columns).subspan(static_cast<std::size_t>(i * count()), keys.size());
    }
    std::int64_t key_row(std::int64_t j) const {
        return columns[static_cast<std::size_t>(j)].key;
    }
    std::int64_t row(std::int64_t i) const { return rows[static_cast<std::size_t>(i)].row; }
    std::int64_t place(std::int64_t i) const { return rows[static_cast<std::size_t>(i)].place; }
    Mask kept() const { return gain != 0; }
    bool has_sink() const { return columns.back().key == kSinkKey; }
    auto key() const { return key_.view(); }      ///< [c,D]
    auto value() const { return value_.view(); }  ///< [c,Dv]

    /// Adds a row if its keys are those of the others and the matrices stay small.
    bool take(const AttentionShape& shape, WantedRow wanted, std::span<const KeyColumn> more);
    void gather(const AttentionShape& shape, const AttentionInputs<Scalar>& in);
    /// The rows `keys` of a tensor like K and V.
    void gather(std::span<const Scalar> tensor, std::int64_t width, GatheredRows<Scalar>& to) const;
    void clear() { rows.clear(), columns.clear(), keys.clear(); }

private:
    std::int64_t kv_heads_ = 1;
    bool in_order_ = false;
    GatheredRows<Scalar> key_, value_;
};

/// For rows that see no key and add nothing.
inline void skip_row(const WantedRow&, bool) {}

/// Calls use(SharedRows) for the wanted rows, group by group, and skip(wanted, in_sequence) for
/// rows that see no key.
template <class Scalar, class Use, class Skip = decltype(skip_row)>
void for_shared_rows(const AttentionForward<Scalar>& forward, std::span<const WantedRow> wanted,
                     const Use& use, const Skip& skip = skip_row) {
    const AttentionShape& shape = forward.shape;
    SharedRows<Scalar> group;
    const auto finish_group = [&] {
        if (group.rows.empty()) return;
        group.gather(shape, forward.in);
        use(std::as_const(group));
        group.clear();
    };
    std::vector<KeyColumn> columns;
    for (const WantedRow one : wanted) {
        columns.clear();
        const bool in_sequence =
            forward.list_columns(one.row / shape.query_heads, one.row % shape.query_heads, columns);
        if (in_sequence) add_sink(shape, forward.in, one, columns);
        if (!in_sequence || columns.empty()) {
            skip(one, in_sequence);
        } else if (!group.take(shape, one, columns)) {
            finish_group();
            group.take(shape, one, columns);
        }
    }
    finish_group();
}

/// Rows that may lie apart.
using Rows = Eigen::Ref<const Matrix<double>, 0, Eigen::OuterStride<>>;

/// a b, and a b^T. Sums begin at +0, as sums of a loop do: none is -0. The blocked product is long
/// to compile, so shared_rows.cc alone has it.
Matrix<double> product(const Rows& a, const Rows& b);
Matrix<double> product_transposed(const Rows& a, const Rows& b);

/// a b and a b^T for any scalar: those of differentiation do without the blocked product.
template <class Scalar, class B>
Matrix<Scalar> times(const Matrix<Scalar>& a, const Eigen::MatrixBase<B>& b) {
    if constexpr (std::is_same_v<Scalar, double>)
        return product(a, b);
    else
        return a.lazyProduct(b);
}
template <class Scalar, class B>
Matrix<Scalar> times_transposed(const Matrix<Scalar>& a, const Eigen::MatrixBase<B>& b) {
    if constexpr (std::is_same_v<Scalar, double>)
        return product_transposed(a, b);
    else
        return a.lazyProduct(b.transpose());
}

/// 0 times infinity or NaN is NaN.
template <class X>
bool all_finite(const Eigen::MatrixBase<X>& x) {
    return (x.array() * 0.0).sum() == 0;
}

/// Q K^T; the key of a sink counts as 0 whatever Q holds.
template <class Scalar>
Matrix<Scalar> products_with_keys(const SharedRows<Scalar>& rows) {
    Matrix<Scalar> products = times_transposed(rows.query, rows.key());
    if (rows.has_sink()) products.col(rows.count() - 1).setZero();
    return products;
}

/// |Q| |K|^T likewise.
Matrix<double> magnitudes_with_keys(const SharedRows<double>& rows);
/// The same where |K| is known.
Matrix<double> magnitudes_with_keys(const SharedRows<double>& rows, const Matrix<double>& key_size);

/// c tanh(x / c).
template <class Scalar>
Matrix<Scalar> softcapped(const Matrix<Scalar>& x, double softcap) {
    using std::tanh;
    return x.unaryExpr([softcap](const Scalar& s) -> Scalar {
        return Scalar(softcap) * tanh(s / Scalar(softcap));
    });
}

/// weight x where the sums leave out dropped pairs, whose weight is 0: 0 times NaN is NaN.
template <class Scalar, class X>
Matrix<Scalar> kept_product(const Matrix<Scalar>& weight, const Mask& kept,
                            const Eigen::MatrixBase<X>& x) {
    if (kept.all()) return times(weight, x);
    if constexpr (std::is_same_v<Scalar, double>)
        if (all_finite(x)) return times(weight, x);
    Matrix<Scalar> sum = Matrix<Scalar>::Zero(weight.rows(), x.cols());
    for (std::int64_t i = 0; i < weight.rows(); ++i)
        for (std::int64_t j = 0; j < weight.cols(); ++j)
            if (kept(i, j)) sum.row(i) += weight(i, j) * x.row(j);
    return sum;
}

/// Adds sum_i share_ij x_i to a row: the share of key j in a gradient of K or V.
void add_product(Eigen::Ref<Eigen::RowVectorXd> to, const Array& share, std::int64_t j,
                 const Matrix<double>& x);

/// x, 0 where it is not finite: for what is only read where a result is finite.
template <class X>
Array finite_part(const Eigen::MatrixBase<X>& x) {
    if (all_finite(x)) return x.array();
    return x.array().isFinite().select(x.array(), 0.0);
}

/// exp of every element, as the C library rounds it.
template <class Derived>
auto exponential(const Eigen::ArrayBase<Derived>& x) {
    using std::exp;
    return x.unaryExpr([](const typename Derived::Scalar& s) { return exp(s); });
}

/// The forward of such rows.
template <class Scalar>
struct AttendedRows {
    Matrix<Scalar> logits, probs;                        ///< [g,c]
    Matrix<Scalar> scores;  ///< [g,c]: scale Q K^T, kept where a softcap changes it
    Matrix<Scalar> output;                               ///< [g,Dv]
    Eigen::Matrix<Scalar, Eigen::Dynamic, 1> row_max, row_sum;  ///< [g]
};
template <class Scalar>
AttendedRows<Scalar> attend(const SharedRows<Scalar>& rows, const AttentionInputs<Scalar>& in);

}  // namespace attncheck::ref
