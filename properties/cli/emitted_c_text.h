// What emitted programs in C are made of, for emitted_c.cc: formats of fmt, and text as it is.
#pragma once

namespace attncheck::properties::c_text {

inline constexpr const char* kCHead = R"c(/* {0}
   One case of an attention kernel, by itself; bounds of the rounding class '{1}'. Fill in kernel() below, then: cc -std=c99 THIS_FILE -lm && ./a.out{2} */
#include <math.h>
#include <stdio.h>
)c";

inline constexpr const char* kKernel = R"c(/* Reads {0}.
   Fills {1}. All are row-major, 16-bit numbers as their bits. */
static int kernel(void) {{ return fputs("call your kernel here\n", stderr), 1; }}
)c";

/// IEEE 754 of a narrow type in binary64: {0} its name, {1} bits of its fraction, {2} bits of its
/// exponent; {7} fills the outputs.
inline constexpr const char* kHalf = R"c(static double half(unsigned bits) {{ /* {0} in binary64 */
    const int x = bits >> {1} & {3}, m = bits & {4};
    const double v = x == {3} ? (m ? NAN : INFINITY) : ldexp(x ? m + {4} + 1 : m, (x ? x : 1) - {5});
    return bits >> {6} ? -v : v;
}}
static double number(const void *a, int wide, long k) {{ return wide ? ((const float *)a)[k] : half(((const unsigned short *)a)[k]); }} static void unset(void) {{ /* NaN */{7} }}
)c";

inline constexpr const char* kJudge = R"c(static int judge(const char *name, const void *a, int wide, const double *bound, const double *want, int stride, const long long *first, long rows, int width) {
    long wrong = 0, at = 0; double expected = 0, found = 0;
    for (long r = 0; r < rows; ++r) for (int c = 0; c < width; ++c) {
        const long k = (first ? first[r] : r * width) + c;
        const double got = number(a, wide, k), w = want[r * stride + (c < stride ? c : stride - 1)];
        if (!(fabs(got - w) <= bound[k] || isinf(bound[k]) || got == w || (isnan(w) && isnan(got))) && !wrong++) at = k, expected = w, found = got;
    }
    return printf("%s: %ld of %ld elements wrong", name, wrong, rows * width), wrong ? (printf(", the first is number %ld: expected %.9g, got %.9g\n", at, expected, found), 1) : (puts(""), 0);
}
)c";

/// Rows of a tensor in the order of the reference, `stride` numbers each.
inline constexpr const char* kLoad = R"c(static void load(double *to, int stride, const void *a, int wide, const long long *first, long rows, int width) {
    for (long r = 0; r < rows; ++r) for (int c = 0; c < width; ++c) to[r * stride + c] = number(a, wide, (first ? first[r] : r * width) + c);
}
)c";

/// The logits of a row. {0} the sink, {1} scale and softcap, {2} bias, {3} the maximum, {4} statistics.
inline constexpr const char* kLogits = R"c(    for (long i = 0; i < ROWS; ++i) {{
        const long r = row[i], n = r % HEADS, g = n / GROUP;
        double m = {0}, l = 0{5};
        for (long c = begin[i]; c < begin[i + 1]; ++c) {{
            double s = 0, cap = 0;
            for (int d = 0; d < DIM; ++d) s += Q[r * DIM + d] * K[(key_[c] * KV_HEADS + g) * DIM + d];
            {1}
            logit[c] = s{2}, slope[c] = 1 - cap * cap{3};
        }}
{4})c";

/// Of a row: {0} what its sink adds, {1} FLT_MAX, for a row that sees nothing.
inline constexpr const char* kStatistics = R"c(        for (long c = begin[i]; c < begin[i + 1]; ++c) l += exp(logit[c] - m);
        top[r] = m == -INFINITY ? -{1} : m, total[r] = m == -INFINITY ? {1} : l{0}, lse_[r] = m == -INFINITY ? m : m + log(total[r]);
)c";
inline constexpr const char* kGivenLse = R"c(        top[r] = lse_[r] == -INFINITY ? -{0} : lse_[r], total[r] = lse_[r] == -INFINITY ? {0} : 1;
)c";

/// {0} dropout.
inline constexpr const char* kForward = R"c(        for (long c = begin[i]; c < begin[i + 1]; ++c) for (int d = 0; d < VALUE_DIM; ++d)
            O[r * VALUE_DIM + d] += exp(logit[c] - top[r]) / total[r] * {0}V[(key_[c] * KV_HEADS + g) * VALUE_DIM + d];
)c";

/// {0} dropout, {1} scale, {2} and {3} sums over rows.
inline constexpr const char* kBackward = R"c(        for (int d = 0; d < VALUE_DIM; ++d) delta += dO[r * VALUE_DIM + d] * O[r * VALUE_DIM + d];
        for (long c = begin[i]; c < begin[i + 1]; ++c) {{
            const long k = key_[c] * KV_HEADS + g;
            double p = exp(logit[c] - top[r]) / total[r], dp = 0;
            for (int d = 0; d < VALUE_DIM; ++d) dp += dO[r * VALUE_DIM + d] * V[k * VALUE_DIM + d];
            const double ds = p * ({0}dp - delta), dx = {1} * ds * slope[c];
            for (int d = 0; d < DIM; ++d) dQ[r * DIM + d] += dx * K[k * DIM + d], dK[k * DIM + d] += dx * Q[r * DIM + d];
            for (int d = 0; d < VALUE_DIM; ++d) dV[k * VALUE_DIM + d] += p * {0}dO[r * VALUE_DIM + d];
{2}        }}
{3})c";

inline constexpr const char* kMerge = R"c(int main(void) {{
    if (unset(), kernel()) return 1;
    for (long r = 0; r < ROWS; ++r) {{
        double m = -INFINITY, l = 0;
        for (long p = 0; p < PARTS; ++p) m = lses[p * ROWS + r] <= m ? m : lses[p * ROWS + r];
        for (long p = 0; p < PARTS; ++p) {{
            const double w = exp(lses[p * ROWS + r] - m);
            if (lses[p * ROWS + r] == -INFINITY) continue; /* saw no key: counts for nothing */
            l += w;
            for (int c = 0; c < DIM; ++c) O[r * DIM + c] += w * number(parts, {0}, (p * ROWS + r) * DIM + c);
        }}
        for (int c = 0; c < DIM && l != 0; ++c) O[r * DIM + c] /= l;
        lse_[r] = m + log(l);
    }}
)c";

/// Y_jnc = sum_r X_rnc W_rn over the tokens of block j.
inline constexpr const char* kCompress = R"c(int main(void) {{
    if (unset(), kernel()) return 1;
    for (long j = 0; j < BLOCKS; ++j) for (long r = 0; r < BLOCK; ++r) for (long n = 0; n < HEADS; ++n)
        for (long c = 0; c < DIM; ++c) {{
            const long x = ((first_token[j] + r) * HEADS + n) * DIM + c, y = (j * HEADS + n) * DIM + c, w = r * HEADS + n;
{0}        }}
)c";
inline constexpr const char* kCompressForward =
    R"c(            Y[y] += number(input, {0}, x) * number(weight, {0}, w);
)c";
inline constexpr const char* kCompressBackward =
    R"c(            dX[x] += number(weight, {0}, w) * number(output_grad, {0}, y);
            dW[w] += number(output_grad, {0}, y) * number(input, {0}, x);
)c";

}  // namespace attncheck::properties::c_text
