// The exponential, and sum and maximum of the lanes of a row, in registers of 512 bits. Included
// where immintrin.h is known and AVX-512 (F and DQ) is the target, once per such place.

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2. The Taylor polynomial of degree 7 leaves
// out less than r^8 / 8! < 2^-27; ln 2 is in two parts, the first of 9 bits, so that its product
// with n is exact. vscalefps reaches subnormal results and infinity in one step, vmaxps and vminps
// return their second operand if it is NaN.
template <bool kAtMostZero = false>
inline __attribute__((always_inline)) __m512 exp_512(__m512 x) {
    // e^-104 rounds to 0 and e^89 to infinity.
    const __m512 bounded_below = _mm512_max_ps(_mm512_set1_ps(-104.0f), x),
                 bounded = kAtMostZero ? bounded_below
                                       : _mm512_min_ps(_mm512_set1_ps(89.0f), bounded_below);
    constexpr int kToNearest = 0x08;  // and no exception
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(bounded, _mm512_set1_ps(1.44269504f)),
                                          kToNearest),
                 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-0x1.bd0105c610ca8p-13f),
                                      _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.63p-1f), bounded));
    __m512 sum = _mm512_set1_ps(1.0f / 5040);
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0f / 720));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0f / 120));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0f / 24));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0f / 6));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(0.5f));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0f));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(sum, n);
}

// Halves, quarters, ... of the vector.
inline __attribute__((always_inline)) float sum_of_lanes_512(__m512 vector) {
    const __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256(vector), _mm512_extractf32x8_ps(vector, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// NaN if any element is. vmaxps drops a NaN in its first operand; a comparison finds it in one of
// two vectors. `cols` is a multiple of 16.
inline __attribute__((always_inline)) float max_of_row_512(const float* row, std::int64_t cols) {
    __m512 most = _mm512_set1_ps(-__builtin_inff());
    unsigned nan = 0;
    std::int64_t c = 0;
    for (; c + 32 <= cols; c += 32) {
        const __m512 x = _mm512_loadu_ps(row + c), y = _mm512_loadu_ps(row + c + 16);
        nan |= _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q);
        most = _mm512_max_ps(x, _mm512_max_ps(y, most));
    }
    if (c < cols) {
        const __m512 x = _mm512_loadu_ps(row + c);
        nan |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        most = _mm512_max_ps(x, most);
    }
    if (nan != 0) return __builtin_nanf("");
    const __m256 eight =
        _mm256_max_ps(_mm512_castps512_ps256(most), _mm512_extractf32x8_ps(most, 1));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
