// The probabilistic bound of a sum, in addition to the rigorous one (verification.md 4.0).
#pragma once

namespace attncheck::ref {

/// gamma~_n = expm1(6 sqrt(n) u + n u^2 / (1 - u)), at most gamma_n. For roundings that are
/// independent on average a sum exceeds it with probability 2 exp(-18) = 3e-8 (Higham and Mary 2019,
/// A New Approach to Probabilistic Rounding Error Analysis, theorem 2.4). No proof on chosen data,
/// so no verdict rests on it.
double probabilistic_gamma(double terms, double roundoff);

/// While it lives, gamma() of this thread is probabilistic_gamma(): every bound is made of it.
class ProbabilisticGamma {
public:
    ProbabilisticGamma();
    ~ProbabilisticGamma();
    ProbabilisticGamma(const ProbabilisticGamma&) = delete;
    ProbabilisticGamma& operator=(const ProbabilisticGamma&) = delete;
};

}  // namespace attncheck::ref
