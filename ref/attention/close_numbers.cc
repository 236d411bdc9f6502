#include "ref/attention/close_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "ref/attention/rounding_variance.h"
#include "ref/numbers/dtype.h"

namespace attncheck::ref {
namespace {

constexpr double kChance = 9;
constexpr std::size_t kFewest = 10;  ///< n equal numbers: n^2, which has to exceed 9 n
constexpr int kHarmonics = 4;

/// exp(2 pi i k / 256), which is exact enough for statistics: places are functions of all elements of a case.
class Circle {
public:
    static constexpr int kParts = 256, kNone = -1;

    Circle() {
        for (int k = 0; k < kParts; ++k) points_[static_cast<std::size_t>(k)] = std::polar(1.0, 2 * std::numbers::pi * k / kParts);
    }
    std::complex<double> operator()(int part, int harmonic) const {
        return points_[static_cast<std::size_t>(part * harmonic % kParts)];
    }
    /// Where x lies between two points of the grid, none for a number without a rounding error.
    static int part_of(double x, double half_step) {
        if (x == 0 || !std::isfinite(x)) return kNone;
        const double steps = x / (2 * half_step), beside = steps - stored_on_grid(steps, 0.5);
        return static_cast<int>((beside + 1) * kParts + 0.5) % kParts;
    }

private:
    std::array<std::complex<double>, kParts> points_;
};

}  // namespace

double stored_on_grid(double x, double half_step) {
    const double shift = half_step * 0x3p52;
    return x + shift - shift;
}

void add_close(RoundingNoise& noise, std::span<const std::int64_t> places,
               std::span<const double> numbers, Dtype dtype, std::span<const double> factor) {
    if (dtype == Dtype::fp32 || numbers.size() < kFewest) return;
    const std::size_t size = numbers.size();
    static const Circle circle;
    std::vector<int> parts(size);
    std::vector<double> half_steps(size);
    std::array<std::complex<double>, kHarmonics> sums{};
    double count = 0, largest = 0;
    for (std::size_t c = 0; c < size; ++c) {
        half_steps[c] = half_ulp(dtype, std::fabs(numbers[c]));
        parts[c] = Circle::part_of(numbers[c], half_steps[c]);
        if (parts[c] == Circle::kNone) continue;
        ++count, largest = std::max(largest, half_steps[c]);
        for (int n = 1; n <= kHarmonics; ++n) sums[static_cast<std::size_t>(n - 1)] += circle(parts[c], n);
    }
    for (int n = 1; n <= kHarmonics; ++n) {
        const double alike = std::norm(sums[static_cast<std::size_t>(n - 1)]);
        if (!(alike > kChance * count)) continue;
        const double deviation = std::numbers::sqrt2 / (std::numbers::pi * n);  // of a half step
        SharedErrors errors;
        errors.close = true;
        errors.places.assign(places.begin(), places.end());
        errors.share.resize(2 * size);
        if (noise.truncated.empty()) noise.truncated.resize(noise.size());
        for (std::size_t c = 0; c < size; ++c) {
            if (parts[c] == Circle::kNone) continue;
            const std::complex<double> place = circle(parts[c], n);
            errors.share[c] = static_cast<float>(half_steps[c] / largest * place.real());
            errors.share[size + c] = static_cast<float>(half_steps[c] / largest * place.imag());
            const std::size_t first = static_cast<std::size_t>(places[c]) * factor.size();
            for (std::size_t d = 0; d < factor.size(); ++d)
                noise.truncated[first + d] += alike / square(count) * square(deviation * half_steps[c] * factor[d]);
        }
        for (int part = 0; part < 2; ++part)
            for (const double f : factor) errors.factor.push_back(f * deviation * largest);
        noise.shared.push_back(std::move(errors));
    }
}

}  // namespace attncheck::ref
