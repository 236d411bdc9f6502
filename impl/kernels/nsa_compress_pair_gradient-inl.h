// Both gradients of compression from products of pairs. Included by nsa_compress_pair_kernels.cc
// where its vectors are known and the instructions are allowed.

// [windows, head_dim] to pairs of neighbouring windows in the order of channels; the partner of a
// last one is zero. All heads at once.
void pair_windows(const PairGradientSlab& slab) {
    const std::int64_t row_size = slab.num_heads * slab.head_dim;
    std::uint32_t* to = slab.grad_pairs;
    for (int k = 0; k < slab.num_windows; k += 2, to += row_size) {
        const bool has_odd = k + 1 < slab.num_windows;
        for (std::int64_t c = 0; c < row_size; c += kLanes) {
            const __m512i even = widen(slab.output_grad[k] + c),
                          odd =
                              has_odd ? widen(slab.output_grad[k + 1] + c) : _mm512_setzero_si512();
            _mm512_storeu_si512(to + c, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
        }
    }
}

// Tokens of which a column of lines is done at once, as many as registers allow: what is loaded of
// dY serves them all.
template <int kWindows>
constexpr int kRows = kWindows <= 4 ? 4 : 2;

// One pass over kRows<kWindows> rows of a head gives both gradients:
//   dX = sum_k w_k * dY_k,   dW_k += dY_k . X
template <bool kExact, int kWindows, bool kBypassCache>
ATTNCHECK_IMPL_INLINE void gradient_head(const PairGradientSlab& slab, std::int64_t token,
                                         std::int64_t head, LinesAhead& ahead) {
    constexpr int kCount = kRows<kWindows>, kWindowPairs = (kWindows + 1) / 2;
    const std::int64_t head_dim = slab.head_dim, row_size = slab.num_heads * head_dim,
                       input_stride = slab.input_token_stride, grad_stride = slab.grad_token_stride;
    const std::uint16_t* input = slab.input + token * input_stride + head * slab.input_head_stride;
    std::uint16_t* input_grad =
        slab.input_grad + token * grad_stride + head * slab.grad_head_stride;
    const std::uint16_t* output_grad[kWindows];
    float* lanes[kWindows];
    __m512 product[kWindows][kCount];
    const auto weight_row = [&](int k) { return head * slab.block + slab.first_row[k] + token; };
#pragma GCC unroll 8
    for (int k = 0; k < kWindows; ++k) {
        output_grad[k] = slab.output_grad[k] + head * head_dim;
        lanes[k] = slab.weight_grad_lanes + weight_row(k) * kLanesPerSum;
#pragma GCC unroll 4
        for (int t = 0; t < kCount; ++t)
            product[k][t] = _mm512_load_ps(lanes[k] + t * kLanesPerSum);
    }
    const std::uint32_t* pairs[kWindowPairs];
    __m512i weight[kWindowPairs][kCount];
#pragma GCC unroll 4
    for (int q = 0; q < kWindowPairs; ++q) {
        pairs[q] = slab.grad_pairs + q * row_size + head * head_dim;
#pragma GCC unroll 4
        for (int t = 0; t < kCount; ++t) {
            const std::uint32_t even = slab.weight[weight_row(2 * q) + t],
                                odd = 2 * q + 1 < kWindows ? slab.weight[weight_row(2 * q + 1) + t]
                                                           : 0;
            weight[q][t] = _mm512_set1_epi32(static_cast<int>(even | odd << 16));
        }
    }
    const auto request_lines = [&] {
        if constexpr (!kBypassCache) return;
        if (slab.requests == LineRequests::kOnce) {
            ahead.request_next<kCount, LineRequests::kOnce>();
        } else {
            ahead.request_next<kCount, LineRequests::kTwice>();
        }
    };
    std::int64_t c = 0;
    for (; c + 2 * kLanes <= head_dim; c += 2 * kLanes) {
        request_lines();
        __m512i x[kCount];
#pragma GCC unroll 4
        for (int t = 0; t < kCount; ++t) {
            x[t] = load_line(input + t * input_stride + c);
            __asm__("" : "+v"(x[t]));  // GCC would load it again for every window
        }
#pragma GCC unroll 8
        for (int k = 0; k < kWindows; ++k) {
            const __m512i grad = load_line(output_grad[k] + c);
#pragma GCC unroll 4
            for (int t = 0; t < kCount; ++t) product[k][t] = dot<kExact>(product[k][t], grad, x[t]);
        }
        __m512 low[kCount], high[kCount];
#pragma GCC unroll 4
        for (int t = 0; t < kCount; ++t) low[t] = high[t] = _mm512_setzero_ps();
#pragma GCC unroll 4
        for (int q = 0; q < kWindowPairs; ++q) {
            const __m512i first = _mm512_loadu_si512(pairs[q] + c),
                          second = _mm512_loadu_si512(pairs[q] + c + kLanes);
#pragma GCC unroll 4
            for (int t = 0; t < kCount; ++t) {
                low[t] = dot<kExact>(low[t], first, weight[q][t]);
                high[t] = dot<kExact>(high[t], second, weight[q][t]);
            }
        }
#pragma GCC unroll 4
        for (int t = 0; t < kCount; ++t) {
            const __m512i line = narrow_line<kExact>(low[t], high[t]);
            std::uint16_t* to = input_grad + t * grad_stride + c;
            if constexpr (kBypassCache) {
                _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
            } else {
                _mm512_storeu_si512(to, line);
            }
        }
    }
    if (c < head_dim) {
        request_lines();
#pragma GCC unroll 4
        for (int t = 0; t < kCount; ++t) {
            const __m512i x = load_half_line(input + t * input_stride + c);
            __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 8
            for (int k = 0; k < kWindows; ++k)
                product[k][t] = dot<kExact>(product[k][t], load_half_line(output_grad[k] + c), x);
#pragma GCC unroll 4
            for (int q = 0; q < kWindowPairs; ++q)
                sum = dot<kExact>(sum, _mm512_loadu_si512(pairs[q] + c), weight[q][t]);
            auto* to = reinterpret_cast<__m256i*>(input_grad + t * grad_stride + c);
            const __m256i line = narrow_half_line<kExact>(sum);
            if constexpr (kBypassCache) {
                _mm256_stream_si256(to, line);
            } else {
                _mm256_storeu_si256(to, line);
            }
        }
    }
#pragma GCC unroll 8
    for (int k = 0; k < kWindows; ++k) {
#pragma GCC unroll 4
        for (int t = 0; t < kCount; ++t)
            _mm512_store_ps(lanes[k] + t * kLanesPerSum, product[k][t]);
    }
}

template <bool kExact, int kWindows, bool kBypassCache>
void gradient_rows(const PairGradientSlab& slab) {
    const bool one_run = slab.input_head_stride == slab.head_dim;  // all heads of a token
    const auto lines_from = [&](std::int64_t token, std::int64_t head) {
        return LinesAhead(
            slab.input + token * slab.input_token_stride + head * slab.input_head_stride,
            slab.ahead, one_run ? slab.num_heads * slab.head_dim : slab.head_dim,
            slab.input_token_stride);
    };
    for (std::int64_t token = 0; token < kSlabTokens; token += kRows<kWindows>) {
        LinesAhead ahead = lines_from(token, 0);
        for (std::int64_t head = 0; head < slab.num_heads; ++head) {
            if (head > 0 && !one_run) ahead = lines_from(token, head);
            gradient_head<kExact, kWindows, kBypassCache>(slab, token, head, ahead);
        }
    }
}
