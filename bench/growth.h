#ifndef ATTNCHECK_BENCH_GROWTH_H
#define ATTNCHECK_BENCH_GROWTH_H

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

/// How time and memory grow with the length of a sequence, and what a second thread gains.
namespace attncheck::bench {

struct GrowthOptions {
    int threads = 1;  ///< of everything but the comparison of threads
    std::int64_t longest = 65536;
    std::string only;  ///< curves whose name contains this
};

/// Time of dense attention against S (expected to grow with its square), of selected attention and
/// compression against T (linearly), peak memory of each call, and the time with one thread over
/// the time with two. Says on the standard error what it is at.
///
/// Lengths double from 256 on; dense attention is causal with one head. With one thread the clock
/// is its CPU time, otherwise and for the comparison of threads the wall's. Memory is counted by
/// allocation_count.h.
/// Throws  std::runtime_error if an operator fails or nothing is left to measure.
nlohmann::json measure_growth(const GrowthOptions& options);

/// A measurement as a table in Markdown. Exponents are fitted anew, the stored ones not looked at.
std::string growth_table(const nlohmann::json& growth);

/// Slope of the least-squares line through (log x, log y) of the upper half of the points, the
/// middle one included. 0 for fewer than two points or where some y is not positive.
double growth_exponent(std::span<const double> x, std::span<const double> y);

}  // namespace attncheck::bench

#endif  // ATTNCHECK_BENCH_GROWTH_H
