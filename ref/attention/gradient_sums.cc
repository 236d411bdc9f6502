#include "ref/attention/gradient_sums.h"

#include <cmath>
#include <map>
#include <utility>

#include "ref/attention/close_numbers.h"
#include "ref/attention/row_noise.h"

namespace attncheck::ref {

void PairShares::take_alike(double half_step, const Eigen::ArrayXd& spreads) {
    for (std::int64_t i = 0; i < value.rows(); ++i) {
        const double spread = spreads.size() > 0 ? spreads[i] : 1;
        if (!RoundingVariance::any_alike(value.row(i), half_step, spread)) continue;
        for (std::int64_t j = 0; j < value.cols(); ++j) {
            const double error = RoundingVariance::alike(value(i, j), half_step, spread);
            if (error == 0) continue;
            if (alike.size() == 0) alike = Array::Zero(value.rows(), value.cols());
            alike(i, j) = square(error);
        }
    }
    if (alike.size() > 0) own += alike;
}

void PairShares::take_alike(const Array& errors) {
    if (errors.size() == 0) return;
    const Array squares = errors.square();
    if (alike.size() == 0) alike = Array::Zero(value.rows(), value.cols());
    alike += squares;
    own += squares;
}

void PairShares::share_alike(const Eigen::ArrayXd& errors) {
    if (errors.size() == 0 || (errors == 0).all()) return;
    if (alike.size() == 0) alike = Array::Zero(value.rows(), value.cols());
    alike += (value.colwise() * errors).square();
}

GradientSums::GradientSums(const AttentionBackward& backward, const SequencePlaces& places,
                           Dtype dtype, const RoundingVariance& of, const KeySlots& slots,
                           AttentionGradNoise& out)
    : shape_(backward.shape),
      places_(places),
      dtype_(dtype),
      of_(of),
      key2_(finite_squares(backward.in.forward.key)),
      slots_(slots),
      terms_(Eigen::ArrayXd::Zero(slots.count())),
      query_(out.query_grad, shape_.head_dim),
      key_(out.key_grad, shape_.head_dim),
      value_(out.value_grad, shape_.value_dim) {
    for (TensorSums* sums : {&query_, &key_, &value_})
        if (of_.truncating || of_.stores_scaled || (sums == &key_ && shares_delta()) ||
            (sums == &value_ && of_.own_forward))
            sums->noise.truncated.resize(sums->noise.size());
    for (TensorSums* sums : {&query_, &key_})
        if (of_.own_forward) sums->given.resize(sums->noise.size());
    for (TensorSums* sums : {&key_, &value_})
        if (of_.group > 0 && shape_.group() > 1)
            sums->heads = Matrix<double>::Zero(terms_.size() * shape_.group(), sums->width);
}

/// group=half: the sums of every query head are rounded.
void GradientSums::add_heads(TensorSums& sums, std::int64_t key) {
    for (std::int64_t h = 0; sums.heads.size() > 0 && h < shape_.group(); ++h) {
        const auto of_head = sums.heads.row(key * shape_.group() + h);
        const Eigen::RowVectorXd alike =
            of_head.unaryExpr([&](double x) { return of_.stored_alike(dtype_, x); });
        sums.rest(key) +=
            (of_.group * of_head.cwiseAbs2().array() + of_.underflow).matrix() + alike;
        sums.alike(key) += alike;
    }
}

void GradientSums::add_to_heads(TensorSums& sums, const SharedRows<double>& rows,
                                const Array& share, const Matrix<double>& x, std::int64_t j) {
    const std::int64_t group = shape_.group(), first = slot(rows, j) * group;
    for (std::int64_t i = 0; sums.heads.size() > 0 && i < x.rows(); ++i)
        sums.heads.row(first + rows.row(i) % shape_.query_heads % group) += share(i, j) * x.row(i);
}

void GradientSums::finish_keys() {
    for (std::int64_t key = 0; key < terms_.size(); ++key) {
        add_heads(key_, key);
        add_heads(value_, key);
        finish(key_, key, terms_[key], of_.rounds_score_grad);
        finish(value_, key, terms_[key], of_.rounds_prob);
    }
    if (!has_keys()) return;
    const auto slots = slots_by_sequence();
    add_close_sums(key_, slots);
    add_close_sums(value_, slots);
}

std::vector<std::vector<std::int64_t>> GradientSums::slots_by_sequence() const {
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::int64_t>> slots;
    for (std::int64_t key = 0; key < shape_.kv_rows * shape_.kv_heads; ++key) {
        const std::int64_t sequence = places_.keys[static_cast<std::size_t>(key / shape_.kv_heads)]
                                          .sequence,
                           slot = slots_.of(key);
        if (sequence >= 0 && slot >= 0) slots[{sequence, key % shape_.kv_heads}].push_back(slot);
    }
    std::vector<std::vector<std::int64_t>> out;
    for (auto& [name, all] : slots) out.push_back(std::move(all));
    return out;
}

void GradientSums::add_close_sums(TensorSums& sums,
                                  const std::vector<std::vector<std::int64_t>>& by_sequence) {
    std::vector<double> numbers, channel(static_cast<std::size_t>(sums.width));
    for (const auto& slots : by_sequence)
        for (std::int64_t d = 0; d < sums.width; ++d) {
            channel.assign(channel.size(), 0);
            channel[static_cast<std::size_t>(d)] = 1;
            const auto add = [&](auto&& number) {
                numbers.clear();
                for (const std::int64_t slot : slots) numbers.push_back(number(slot));
                add_close(sums.noise, slots, numbers, dtype_, channel);
            };
            if (sums.heads.size() == 0) {
                add([&](std::int64_t slot) { return sums.value(slot)[d]; });
                continue;
            }
            const auto of_head = [&](std::int64_t slot, std::int64_t h) {
                return sums.heads(slot * shape_.group() + h, d);
            };
            // The stored sums of the largest heads are representable: the other heads decide how the whole is rounded.
            add([&](std::int64_t slot) {
                double sum = 0;
                for (std::int64_t h = 0; h < shape_.group(); ++h) {
                    const double x = of_head(slot, h);
                    sum += stored_on_grid(x, half_ulp(dtype_, std::fabs(x)));
                }
                return sum;
            });
            for (std::int64_t h = 0; h < shape_.group(); ++h)
                add([&](std::int64_t slot) { return of_head(slot, h); });
        }
}

void GradientSums::add_lost(TensorSums& sums, std::int64_t at, double squares, double near_zero) const {
    sums.rest(at).array() += (square(of_.flush) + near_zero) * squares;
    if (near_zero > 0) sums.row(sums.noise.truncated, at).array() += near_zero * squares;
}

/// delta's error is one number for the whole row.
void GradientSums::add_to_queries(const SharedRows<double>& rows, const PairShares& shares,
                                  const RowTerms& terms) {
    if (query_.noise.size() == 0) return;
    const auto& [delta, other_delta, delta_variance, given] = terms;
    const auto k = rows.key();
    rows.gather(key2_, shape_.head_dim, gathered_key2_);
    const auto k2 = gathered_key2_.view();
    const Matrix<double> value = product(shares.value.matrix(), k),
                         squares = product(shares.value.square().matrix(), k2),
                         own = product(shares.own.matrix(), k2), scale = product(shares.scale.matrix(), k),
                         prob_key = product(shares.prob.matrix(), k);
    Matrix<double> alike;
    if (shares.alike.size() > 0) alike = product(shares.alike.matrix(), k2);
    Matrix<double> scaled;
    if (shares.scaled.size() > 0) scaled = product(shares.scaled.matrix(), k2);
    for (std::int64_t i = 0; i < value.rows(); ++i) {
        const std::int64_t at = rows.place(i);
        query_.value(at) = value.row(i);
        query_.squared(at) = squares.row(i);
        query_.rest(at) = own.row(i) + delta_variance[i] * prob_key.row(i).cwiseAbs2();
        add_lost(query_, at, shares.value.row(i).square().sum(), shares.near_zero);
        if (shares.alike.size() > 0) query_.alike(at) = alike.row(i);
        if (given.size() > 0) query_.row(query_.given, at) = given[i] * prob_key.row(i).cwiseAbs2();
        if (shares.scaled.size() > 0) query_.row(query_.noise.truncated, at) += scaled.row(i);
        query_.probe(at, Defect::scale) = scale.row(i);
        query_.probe(at, Defect::row_term) = -delta[i] * prob_key.row(i);
        query_.probe(at, Defect::other_row) = (delta[i] - other_delta[i]) * prob_key.row(i);
        finish(query_, at, static_cast<double>(rows.count()), of_.rounds_score_grad);
    }
    for (const std::int64_t tile : kProbedTiles) {
        if (!find_probe(query_.noise, Defect::last_tile, tile)) continue;
        const auto last = columns_in_last_tile(rows, places_.keys, tile);
        if (last.empty()) continue;
        const Matrix<double> part =
            product(shares.value(Eigen::all, last).matrix(), k(last, Eigen::all));
        for (std::int64_t i = 0; i < part.rows(); ++i)
            query_.row(find_probe(query_.noise, Defect::last_tile, tile)->direction,
                       rows.place(i)) = part.row(i);
    }
}

void GradientSums::add_to_keys(const SharedRows<double>& rows, const PairShares& shares,
                               const RowTerms& terms) {
    const auto& [delta, other_delta, delta_variance, given] = terms;
    const Matrix<double>&q = rows.query, q2 = q.cwiseAbs2();
    const Array squares = shares.value.square(),
                of_delta = shares.prob.square().colwise() * delta_variance, own = shares.own + of_delta,
                row_term = shares.prob.colwise() * -delta,
                other_row = shares.prob.colwise() * (delta - other_delta);
    Array of_given;
    if (given.size() > 0) of_given = shares.prob.square().colwise() * given;
    for (std::int64_t j = 0; j < rows.count(); ++j) {
        const std::int64_t to = slot(rows, j);
        add_to_heads(key_, rows, shares.value, q, j);
        if (given.size() > 0) add_product(key_.row(key_.given, to), of_given, j, q2);
        add_product(key_.value(to), shares.value, j, q);
        add_product(key_.squared(to), squares, j, q2);
        add_product(key_.rest(to), own, j, q2);
        if (of_.delta > 0 && !of_.own_forward) add_product(key_.row(key_.noise.truncated, to), of_delta, j, q2);
        add_lost(key_, to, squares.col(j).sum(), shares.near_zero);
        if (shares.alike.size() > 0) add_product(key_.alike(to), shares.alike, j, q2);
        if (shares.scaled.size() > 0) add_product(key_.row(key_.noise.truncated, to), shares.scaled, j, q2);
        add_product(key_.probe(to, Defect::scale), shares.scale, j, q);
        add_product(key_.probe(to, Defect::row_term), row_term, j, q);
        add_product(key_.probe(to, Defect::other_row), other_row, j, q);
        terms_[to] += static_cast<double>(q.rows());
    }
    if (of_.own_forward) add_shared(key_, rows, shares.prob.colwise() * delta_variance.sqrt(), q);
    if (shares.of_row.size() > 0) add_shared(key_, rows, shares.value.colwise() * shares.of_row.sqrt(), q);
    add_tiles(key_, rows, shares.value, q);
}

void GradientSums::add_shared(TensorSums& sums, const SharedRows<double>& rows, const Array& deviations,
                              const Matrix<double>& x) const {
    SharedErrors errors;
    for (std::int64_t j = 0; j < rows.count(); ++j) errors.places.push_back(slot(rows, j));
    errors.share.reserve(static_cast<std::size_t>(deviations.size()));
    for (std::int64_t i = 0; i < deviations.rows(); ++i)
        for (std::int64_t j = 0; j < deviations.cols(); ++j)
            errors.share.push_back(static_cast<float>(deviations(i, j)));
    errors.factor.assign(x.data(), x.data() + x.size());
    const Array squares = deviations.square();
    const Matrix<double> x2 = x.cwiseAbs2();
    for (std::int64_t j = 0; j < rows.count(); ++j)
        add_product(sums.row(sums.noise.truncated, slot(rows, j)), squares, j, x2);
    sums.noise.shared.push_back(std::move(errors));
}

void GradientSums::add_to_values(const SharedRows<double>& rows, const PairShares& weights,
                                 const Matrix<double>& dout, const Mask& kept) {
    const Matrix<double> tame = kept.all() ? dout : Matrix<double>(finite_part(dout)),
                         tame2 = tame.cwiseAbs2();
    const Array squares = weights.value.square();
    for (std::int64_t j = 0; j < rows.count(); ++j) {
        const std::int64_t to = slot(rows, j);
        add_to_heads(value_, rows, weights.value, tame, j);
        add_product(value_.value(to), weights.value, j, tame);
        add_product(value_.squared(to), squares, j, tame2);
        add_product(value_.rest(to), weights.own, j, tame2);
        value_.rest(to).array() += square(of_.flush) * squares.col(j).sum();
        if (weights.alike.size() > 0) add_product(value_.alike(to), weights.alike, j, tame2);
        if (weights.scaled.size() > 0) add_product(value_.row(value_.noise.truncated, to), weights.scaled, j, tame2);
        add_product(value_.probe(to, Defect::scale), weights.scale, j, tame);
    }
    if (weights.of_row.size() > 0) add_shared(value_, rows, weights.value.colwise() * weights.of_row.sqrt(), tame);
    add_tiles(value_, rows, weights.value, tame);
}

/// The part of the rows in the last tile of their sequence.
void GradientSums::add_tiles(TensorSums& sums, const SharedRows<double>& rows, const Array& share,
                             const Matrix<double>& x) {
    for (const std::int64_t tile : kProbedTiles) {
        Probe* const probe = find_probe(sums.noise, Defect::last_tile, tile);
        std::vector<std::int64_t> last;
        for (std::int64_t i = 0; probe && i < x.rows(); ++i)
            if (in_last_tile(place_of(rows.row(i)), tile)) last.push_back(i);
        if (last.empty()) continue;
        const Array part = share(last, Eigen::all);
        const Matrix<double> of = x(last, Eigen::all);
        for (std::int64_t j = 0; j < rows.count(); ++j)
            add_product(sums.row(probe->direction, slot(rows, j)), part, j, of);
    }
}

/// rest holds the variance of the coefficients; squares the sum of squared products.
void GradientSums::finish(TensorSums& sums, std::int64_t at, double terms, bool casts) {
    if (terms == 0) return;
    RoundingNoise& noise = sums.noise;
    const auto first = static_cast<std::size_t>(at * sums.width);
    for (std::size_t i = first; i < first + static_cast<std::size_t>(sums.width); ++i) {
        const double x = noise.value[i], squares = sums.squares[i];
        noise.cast[i] = of_.cast * squares;
        noise.rest[i] += (&sums == &value_ ? of_.of_products(terms)
                                           : of_.of_scaled_products(terms)) *
                             squares +
                         (4 * square(of_.unit) + of_.exponential) * square(x) +
                         of_.stored(dtype_, x);
        noise.variance[i] = noise.rest[i] + (casts ? noise.cast[i] : 0);
        noise.alike[i] += of_.stored_alike(dtype_, x) + of_.exponential * squares;
        // A kernel's own output has other roundings: that part of the value, g^2 of it, is not in its result. Where rows see
        // one key, and dP and delta cancel, it is all of the value.
        if (const double g = sums.given.empty() ? 0 : sums.given[i]; g > 0)
            noise.alike[i] += x == 0 ? g : std::min(g, square(g / x));
        if (of_.truncating) noise.truncated[i] += of_.of_truncation(terms) * squares;
        if (of_.stores_scaled && &sums != &value_) noise.truncated[i] += of_.scaling * squares;
    }
}

}  // namespace attncheck::ref
