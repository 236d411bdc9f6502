// The sums of pairs of a query and a key for dQ, dK and dV: values, variances and directions of defects
// by element (rounding_noise.h).
#pragma once

#include <span>
#include <vector>

#include "ref/attention/key_slots.h"
#include "ref/attention/probes.h"
#include "ref/attention/rounding_noise.h"
#include "ref/attention/rounding_variance.h"
#include "ref/attention/shared_rows.h"

namespace attncheck::ref {

/// A tensor of gradients by what is summed up for it: rows of matrices.
struct TensorSums {
    RoundingNoise& noise;
    std::int64_t width;
    std::vector<double> squares;  ///< sums of squared products
    /// forward=own: variance of the value by the rounding of the given output; else empty.
    std::vector<double> given;
    Matrix<double> heads;  ///< group=half, of keys: [slots G,width], by query head; else empty

    TensorSums(RoundingNoise& of, std::int64_t of_width)
        : noise(of), width(of_width), squares(of.size()) {}

    auto value(std::int64_t at) { return row(noise.value, at); }
    auto rest(std::int64_t at) { return row(noise.rest, at); }
    auto alike(std::int64_t at) { return row(noise.alike, at); }
    auto squared(std::int64_t at) { return row(squares, at); }
    auto probe(std::int64_t at, Defect defect) {
        return row(find_probe(noise, defect)->direction, at);
    }
    Eigen::Map<Eigen::RowVectorXd> row(std::vector<double>& tensor, std::int64_t at) const {
        return {tensor.data() + at * width, width};
    }
};

/// The terms of the pairs: coefficients of rows of K, Q or dO.
struct PairShares {
    Array value;  ///< scale dS
    Array own;    ///< scale^2 times the variance of dS but for its cast
    Array scale;  ///< scale d dS / d ln scale
    Array prob;   ///< scale P: what delta is multiplied with
    Array alike;  ///< square of the error of a cast near zero, in own too; empty: none

    Array scaled;  ///< variance by Q, or by K, as it is scaled for the logits, in own too; empty: none
    double near_zero = 0;  ///< variance of an element of Q or K as it is scaled, near zero

    Eigen::ArrayXd of_row;  ///< relative variance of an error that all pairs of a row share, in own too; empty: none

    void take_alike(double half_step, const Eigen::ArrayXd& spreads = {});
    void take_alike(const Array& errors);  ///< of the pairs; empty: none
    /// An error of all pairs of a row, relative, that `own` has already; empty: none.
    void share_alike(const Eigen::ArrayXd& errors);
};

/// Of the rows that share their keys.
struct RowTerms {
    Eigen::ArrayXd delta;        ///< <dO, O>
    Eigen::ArrayXd other_delta;  ///< of the row before
    Eigen::ArrayXd delta_variance;
    Eigen::ArrayXd given;        ///< forward=own: variance of delta by the rounding of the given output; else empty
};

/// Of the wanted rows, and of the keys that have a slot. Refers to all that it is made from.
class GradientSums {
public:
    GradientSums(const AttentionBackward& backward, const SequencePlaces& places, Dtype dtype,
                 const RoundingVariance& of, const KeySlots& slots, AttentionGradNoise& out);

    bool has_keys() const { return slots_.count() > 0; }
    const SequencePlace& place_of(std::int64_t row) const {
        return places_.queries[static_cast<std::size_t>(row / shape_.query_heads)];
    }
    /// Nothing where no row of queries is wanted.
    void add_to_queries(const SharedRows<double>& rows, const PairShares& shares,
                        const RowTerms& terms);
    void add_to_keys(const SharedRows<double>& rows, const PairShares& shares,
                     const RowTerms& terms);
    void add_to_values(const SharedRows<double>& rows, const PairShares& weights,
                       const Matrix<double>& dout, const Mask& kept);
    void finish_keys();

private:
    bool shares_delta() const { return of_.delta > 0 || of_.own_forward; }
    std::int64_t slot(const SharedRows<double>& rows, std::int64_t j) const {
        return slots_.of(rows.keys[static_cast<std::size_t>(j)]);
    }
    void add_heads(TensorSums& sums, std::int64_t key);
    void add_to_heads(TensorSums& sums, const SharedRows<double>& rows, const Array& share,
                      const Matrix<double>& x, std::int64_t j);
    /// What an error of `deviations`, one number for each row, adds to all of its keys.
    void add_shared(TensorSums& sums, const SharedRows<double>& rows, const Array& deviations,
                    const Matrix<double>& x) const;
    /// What elements of K or Q lose near zero, where subnormals are flushed or as they are scaled, which all rows that
    /// read one share; `squares` of their shares.
    void add_lost(TensorSums& sums, std::int64_t at, double squares, double near_zero) const;
    void add_tiles(TensorSums& sums, const SharedRows<double>& rows, const Array& share,
                   const Matrix<double>& x);
    void finish(TensorSums& sums, std::int64_t at, double terms, bool casts);
    /// Sums over queries, those of the heads of a group too, that lie close together for the keys of a sequence.
    void add_close_sums(TensorSums& sums,
                        const std::vector<std::vector<std::int64_t>>& by_sequence);
    /// The slots of the keys of each sequence and head of K.
    std::vector<std::vector<std::int64_t>> slots_by_sequence() const;

    const AttentionShape& shape_;
    const SequencePlaces& places_;
    Dtype dtype_;
    const RoundingVariance& of_;
    std::vector<double> key2_;  ///< [T2,N2,D]: k^2
    GatheredRows<double> gathered_key2_;
    const KeySlots& slots_;
    Eigen::ArrayXd terms_;  ///< by slot: columns that refer to each key
    TensorSums query_, key_, value_;
};

}  // namespace attncheck::ref
