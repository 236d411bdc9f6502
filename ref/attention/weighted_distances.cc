#include "ref/attention/weighted_distances.h"

#include <cmath>
#include <cstring>

namespace attncheck::ref {
namespace {

// A version with vectors of four, chosen when the program starts, and one for every machine; the sums are the same.
// Sanitizers can not have both: they are not ready that early.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define ATTNCHECK_EVERY_MACHINE __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define ATTNCHECK_EVERY_MACHINE
#endif

/// sum_j weight_j |y_j - o| of eight channels, which stay in registers; rows of y are `stride` apart.
ATTNCHECK_EVERY_MACHINE
void eight_distances(const double* weight, std::int64_t rows, const double* y, std::int64_t stride, const double* o,
                     double* sum) {
    using Four = double __attribute__((vector_size(32)));
    using Bits = std::int64_t __attribute__((vector_size(32)));
    constexpr std::int64_t kFour = 4;
    const Bits without_sign = Bits{} + INT64_MAX;
    Four first, second, first_sum = {}, second_sum = {};
    const auto load = [](const double* from, Four& to) { std::memcpy(&to, from, sizeof to); };
    load(o, first), load(o + kFour, second);
    for (std::int64_t j = 0; j < rows; ++j, y += stride) {
        Four a, b;
        load(y, a), load(y + kFour, b);
        first_sum += weight[j] * reinterpret_cast<Four>(reinterpret_cast<Bits>(a - first) & without_sign);
        second_sum += weight[j] * reinterpret_cast<Four>(reinterpret_cast<Bits>(b - second) & without_sign);
    }
    std::memcpy(sum, &first_sum, sizeof first_sum);
    std::memcpy(sum + kFour, &second_sum, sizeof second_sum);
}

#undef ATTNCHECK_EVERY_MACHINE

}  // namespace

Eigen::RowVectorXd weighted_distances(const Eigen::Ref<const Eigen::Array<double, 1, Eigen::Dynamic>>& weight,
                                      const Array& y, const Eigen::RowVectorXd& o) {
    constexpr std::int64_t kChannels = 8;
    Eigen::RowVectorXd sum(o.size());
    std::int64_t d = 0;
    for (; d + kChannels <= o.size(); d += kChannels)
        eight_distances(weight.data(), y.rows(), y.data() + d, y.outerStride(), o.data() + d, sum.data() + d);
    for (; d < o.size(); ++d) {
        double part = 0;
        for (std::int64_t j = 0; j < y.rows(); ++j) part += weight[j] * std::fabs(y(j, d) - o[d]);
        sum[d] = part;
    }
    return sum;
}

}  // namespace attncheck::ref
