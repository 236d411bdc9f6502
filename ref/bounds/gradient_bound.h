// The bound of one row's part in the backward of dense attention: what its columns add to dQ, dK
// and dV, and what each of them may be wrong by.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "ref/bounds/attention_roundoff.h"

namespace attncheck::ref {

/// Which keys dK and dV are wanted of: all, or some, which are then numbered in the order given.
/// A key is its row of K and V times N2, plus head.
class KeySlots {
public:
    explicit KeySlots(std::int64_t all) : count_(all) {}
    KeySlots(std::int64_t all, std::span<const std::int64_t> chosen)
        : count_(std::ssize(chosen)), slots_(static_cast<std::size_t>(all), kNone) {
        for (std::size_t k = 0; k < chosen.size(); ++k) {
            std::int64_t& slot = slots_[static_cast<std::size_t>(chosen[k])];
            if (slot != kNone)
                throw std::invalid_argument("dense attention: key " + std::to_string(chosen[k]) +
                                            " is chosen twice");
            slot = static_cast<std::int64_t>(k);
        }
    }
    std::int64_t count() const { return count_; }
    std::size_t of(std::int64_t key) const {
        return static_cast<std::size_t>(slots_.empty() ? key
                                                       : slots_[static_cast<std::size_t>(key)]);
    }
    /// Leaves the columns of query head n whose key is wanted.
    void filter(const AttentionShape& shape, std::int64_t n,
                std::vector<KeyColumn>& columns) const {
        if (slots_.empty()) return;
        std::erase_if(columns, [&](const KeyColumn& c) {
            const std::int64_t key = c.key * shape.kv_heads + n / shape.group();
            return slots_[static_cast<std::size_t>(key)] == kNone;
        });
    }

private:
    static constexpr std::int64_t kNone = -1;
    std::int64_t count_;
    std::vector<std::int64_t> slots_;  ///< by key; empty: all, in their own order
};

/// What is summed up for dK and dV of every wanted key, and how often; indexed by slot.
struct KeySums {
    std::vector<double> key_value, key_error;      ///< [keys,D]
    std::vector<double> value_value, value_error;  ///< [keys,Dv]
    std::vector<double> peak, weight;              ///< [keys]: sums of |dS| and of P g as computed
    std::vector<char> unjudged;                    ///< [keys]

    KeySums(std::int64_t keys, const AttentionShape& shape)
        : key_value(static_cast<std::size_t>(keys * shape.head_dim)),
          key_error(key_value.size()),
          value_value(static_cast<std::size_t>(keys * shape.value_dim)),
          value_error(value_value.size()),
          peak(static_cast<std::size_t>(keys)),
          weight(peak.size()),
          unjudged(peak.size()) {}

    void add(const KeySums& other) {
        const auto add_to = [](std::vector<double>& to, const std::vector<double>& from) {
            for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
        };
        add_to(key_value, other.key_value);
        add_to(key_error, other.key_error);
        add_to(value_value, other.value_value);
        add_to(value_error, other.value_error);
        add_to(peak, other.peak);
        add_to(weight, other.weight);
        for (std::size_t i = 0; i < unjudged.size(); ++i) unjudged[i] |= other.unjudged[i];
    }
};

/// One column of a row: exact numbers, and what each coefficient may be wrong by.
struct GradColumn {
    double prob = 0, score_grad = 0, weight = 0;  ///< P, dS, P g
    double score_grad_error = 0;                  ///< error of dS that is the column's own
    double prob_error = 0;                        ///< error of P g as it enters dV
    std::int64_t key = 0;                         ///< row of K and V times N2, plus head
    bool kept = true;
};

class GradientBound {
public:
    GradientBound(const AttentionShape& shape, const AttentionGradInputs& in, Dtype dtype,
                  const RoundingClass& rounding, Grant grant)
        : shape_(shape),
          in_(in),
          dtype_(dtype),
          roundoff_(dtype, rounding),
          score_error_(shape, in.forward, roundoff_),
          query_(in.forward.query),
          key_(in.forward.key),
          value_(in.forward.value),
          output_grad_(in.output_grad),
          output_(in.output),
          grant_(grant),
          scale_(std::fabs(in.forward.scale)) {}

    /// Looks at a row, or at some of its columns; what follows is about it.
    void measure(std::int64_t t, std::int64_t n, std::span<const KeyColumn> columns);

    /// Row `at` of dQ. All columns of the row must have been looked at.
    void write_query_grad(std::size_t at, ExpectedTensor& query_grad);

    /// Adds the columns to dK and dV.
    void add_to_keys(const KeySlots& slots, const std::vector<std::int64_t>& contributions,
                     KeySums& sums) const;

    /// dK and dV from the sums.
    void finish_keys(const KeySums& sums, const std::vector<std::int64_t>& contributions,
                     ExpectedTensor& key_grad, ExpectedTensor& value_grad) const;

private:
    /// What a sum of `count` products c_j x_j loses near zero: every product and partial sum; where
    /// subnormals are flushed also c_j and x_j. coefficients = sum |c_j|.
    double floor_of(double count, const TensorRange& x, double coefficients) const;

    /// Bound on the partial sums of scale sum dS_j x_j, the scale applied at any point.
    double peak_of(double coefficients, const TensorRange& x) const {
        return coefficients * std::max(1.0, x.largest) * std::max(1.0, scale_);
    }

    /// Zero stays zero: no error, no floor.
    double with_floor(double error, double floor) const {
        return error == 0 ? 0 : (error + floor) * roundoff_.oracle;
    }

    /// delta = <dO, O> with the output as given.
    void measure_delta(std::size_t at);

    /// A finite number out of range in the middle of a row: nothing can be said about the row.
    void check_range(double magnitude, double largest) {
        if (std::isfinite(magnitude) && magnitude >= largest * (1 - 0x1p-8)) unjudged_ = true;
    }
    void check_range(double magnitude) { check_range(magnitude, roundoff_.largest); }

    void measure_columns(std::int64_t n, std::size_t at, std::span<const KeyColumn> columns);

    /// P, dP - delta and dS of a column.
    void measure_products(std::size_t j, double m, double l);

    /// A lattice row needs dP and delta that fp32 leaves alone, in any order.
    bool are_products_exact() const;

    /// And P and dS that their cast leaves alone.
    bool exact_in_storage() const;

    /// |dS^ - dS| and |P^ - P| of a column.
    void measure_errors(std::size_t j, double m, double l);

    /// |dP^ - dP| where size = g sum |dO v|.
    double prob_grad_error_of(const GradColumn& c, double size) const;

    /// The share of a column in the error of a sum of `count` terms.
    double sum_error(const GradColumn& c, double count) const;

    const AttentionShape& shape_;
    const AttentionGradInputs& in_;
    Dtype dtype_;
    AttentionRoundoff roundoff_;
    ScoreError score_error_;
    TensorRange query_, key_, value_, output_grad_, output_;
    Grant grant_;
    double scale_;

    const double *q_ = nullptr, *dout_ = nullptr;
    double delta_ = 0, delta_size_ = 0, delta_error_ = 0, given_error_ = 0;
    bool unjudged_ = false, lattice_ = false;
    std::vector<GradColumn> columns_;
    std::vector<double> logits_, score_errors_, prob_grad_size_, centred_;
    std::vector<double> value_sum_, error_sum_, prob_key_;
};

}  // namespace attncheck::ref
