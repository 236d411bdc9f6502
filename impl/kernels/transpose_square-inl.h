// Transposition of 16 x 16 words in registers. Included where immintrin.h is known and AVX-512 is
// the target, once per such place.
inline __attribute__((always_inline)) void transpose_square(__m512i (&r)[16]) {
    // Neighbours within 128-bit blocks, then blocks.
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    // r[4 g + c] now has, in block b, column 4 b + c of rows 4 g .. 4 g + 3.
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
        const __m512i low_even = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88),
                      low_odd = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd),
                      high_even = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88),
                      high_odd = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
        t[c] = _mm512_shuffle_i32x4(low_even, high_even, 0x88);
        t[8 + c] = _mm512_shuffle_i32x4(low_even, high_even, 0xdd);
        t[4 + c] = _mm512_shuffle_i32x4(low_odd, high_odd, 0x88);
        t[12 + c] = _mm512_shuffle_i32x4(low_odd, high_odd, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = t[i];
}
