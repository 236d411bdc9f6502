// Dual numbers a + b eps, eps^2 = 0: the forward run over them gives its exact directional
// derivative, f(x + eps r) = f(x) + eps <grad f, r>. Source: Clifford 1873; forward-mode
// differentiation as in Griewank and Walther, Evaluating Derivatives, 2nd ed., chapter 3.
#pragma once

#include <cmath>

namespace attncheck::ref {

struct Dual {
    double value = 0, tangent = 0;

    Dual() = default;
    Dual(double v) : value(v) {}  // NOLINT: constants take part in expressions
    Dual(double v, double t) : value(v), tangent(t) {}

    Dual& operator+=(const Dual& o) {
        value += o.value;
        tangent += o.tangent;
        return *this;
    }
};

inline Dual operator+(const Dual& a, const Dual& b) {
    return {a.value + b.value, a.tangent + b.tangent};
}
inline Dual operator-(const Dual& a, const Dual& b) {
    return {a.value - b.value, a.tangent - b.tangent};
}
inline Dual operator*(const Dual& a, const Dual& b) {
    return {a.value * b.value, a.tangent * b.value + a.value * b.tangent};
}
inline Dual operator/(const Dual& a, const Dual& b) {
    const double quotient = a.value / b.value;
    return {quotient, (a.tangent - quotient * b.tangent) / b.value};
}
inline Dual exp(const Dual& a) {
    const double e = std::exp(a.value);
    return {e, e * a.tangent};
}
inline Dual tanh(const Dual& a) {
    const double t = std::tanh(a.value);
    return {t, (1 - t * t) * a.tangent};
}
inline double real_part(const Dual& a) { return a.value; }

}  // namespace attncheck::ref
