// How far the values of a row's keys lie from its output, weighted: the innermost loop of the forward's bound.
#pragma once

#include <Eigen/Core>
#include <cstdint>

#include "ref/attention/shared_rows.h"

namespace attncheck::ref {

/// sum_j weight_j |y_j - o|, channel by channel: weight [1,c], y [c,Dv], o [1,Dv].
Eigen::RowVectorXd weighted_distances(const Eigen::Ref<const Eigen::Array<double, 1, Eigen::Dynamic>>& weight,
                                      const Array& y, const Eigen::RowVectorXd& o);

}  // namespace attncheck::ref
