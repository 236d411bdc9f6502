// The products of matrices, compiled here alone.
#include "ref/attention/shared_rows.h"

namespace attncheck::ref {
namespace {

/// How the blocked products cut their sums follows the caches of the machine, unless it is told:
/// the numbers of the oracle are the same everywhere.
const bool kSameEverywhere = (Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 4 << 20), true);

}  // namespace

Matrix<double> product(const Rows& a, const Rows& b) {
    Matrix<double> out = a * b;
    out.array() += 0.0;
    return out;
}

Matrix<double> product_transposed(const Rows& a, const Rows& b) {
    Matrix<double> out = a * b.transpose();
    out.array() += 0.0;
    return out;
}

Matrix<double> magnitudes_with_keys(const SharedRows<double>& rows) {
    return magnitudes_with_keys(rows, rows.key().cwiseAbs());
}

Matrix<double> magnitudes_with_keys(const SharedRows<double>& rows, const Matrix<double>& key_size) {
    Matrix<double> size = product_transposed(rows.query.cwiseAbs(), key_size);
    if (rows.has_sink()) size.col(rows.count() - 1).setZero();
    return size;
}

void add_product(Eigen::Ref<Eigen::RowVectorXd> to, const Array& share, std::int64_t j,
                 const Matrix<double>& x) {
    if (x.rows() == 1)
        to += share(0, j) * x.row(0);
    else
        to.noalias() += share.col(j).matrix().transpose() * x;
}

}  // namespace attncheck::ref
