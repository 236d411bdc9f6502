// Both gradients of compression on one slab of tokens. Included by nsa_compress_kernels.cc where the
// vectors and stores of a target are known, once per target.

// GCC would rather load a vector again for every use of it, and loads are what the gradient has
// most of: a fifth of its time.
HWY_INLINE FloatVec load_once(const float* from) {
    FloatVec loaded = hn::Load(FloatTag(), from);
#if HWY_COMPILER_GCC_ACTUAL && HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3
    __asm__("" : "+v"(loaded.raw));
#endif
    return loaded;
}

// One pass over a token row gives both gradients:  dX = sum_k w_k * dY_k,   dW_k += dY_k . X.
template <class Format, int kWindows, bool kBypassCache>
HWY_INLINE void gradient_row(const GradientSlab& slab, std::int64_t token, std::int64_t head) {
    const FloatTag d;
    const std::uint16_t* HWY_RESTRICT input =
        slab.input + token * slab.input_token_stride + head * slab.input_head_stride;
    std::uint16_t* HWY_RESTRICT input_grad =
        slab.input_grad + token * slab.grad_token_stride + head * slab.grad_head_stride;
    const float* HWY_RESTRICT output_grad[kWindows];
    FloatVec weight[kWindows], product[kWindows];
    for (int k = 0; k < kWindows; ++k) {
        output_grad[k] = slab.output_grad[k] + head * slab.head_dim;
        weight[k] = hn::Set(d, slab.weight[head * slab.block + slab.first_row[k] + token]);
        product[k] = hn::Zero(d);
    }
    const std::int64_t head_dim = slab.head_dim;
    const std::uintptr_t far = byte_address(input, slab.ahead.far * slab.input_token_stride),
                         near = byte_address(input, slab.ahead.near * slab.input_token_stride);
    const auto vector_at = [&](std::int64_t c) HWY_ATTR {
        const FloatVec x = load_half<Format>(input + c);
        FloatVec g = load_once(output_grad[0] + c);
        FloatVec sum = hn::Mul(g, weight[0]);
        product[0] = hn::MulAdd(g, x, product[0]);
        for (int k = 1; k < kWindows; ++k) {
            g = load_once(output_grad[k] + c);
            sum = hn::MulAdd(g, weight[k], sum);
            product[k] = hn::MulAdd(g, x, product[k]);
        }
        return sum;
    };
    std::int64_t c = 0;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    if constexpr (kBypassCache) {  // whole lines
        for (; c + 2 * kLanes <= head_dim; c += 2 * kLanes) {
            request_into_second(far + static_cast<std::uintptr_t>(c) * 2);
            request_into_second(near + static_cast<std::uintptr_t>(c) * 2);
            const FloatVec low = vector_at(c), high = vector_at(c + kLanes);
            hn::Stream(Format::narrow_sums(low, high), LineTag(), input_grad + c);
        }
    }
#endif
    for (; c < head_dim; c += kLanes) {
        if (kBypassCache && c % kLineElements == 0) {
            request_into_second(far + static_cast<std::uintptr_t>(c) * 2);
            request_into_second(near + static_cast<std::uintptr_t>(c) * 2);
        }
        store_half<kBypassCache>(Format::narrow_sum(vector_at(c)), input_grad + c);
    }
    for (int k = 0; k < kWindows; ++k) {
        const std::int64_t row = head * slab.block + slab.first_row[k] + token;
        float* lanes = slab.weight_grad_lanes + row * kLanesPerSum;
        hn::Store(hn::Add(hn::Load(d, lanes), product[k]), d, lanes);
    }
}

// Rows that are done at once where registers allow: what is loaded of dY serves them all.
constexpr int kRows = 4;
constexpr int kMostInRows = kLanes >= 16 ? 2 : 0;

// The same for kRows token rows of a head.
template <class Format, int kWindows, bool kBypassCache, LineRequests kRequests>
HWY_INLINE void gradient_head(const GradientSlab& slab, std::int64_t token, std::int64_t head,
                              LinesAhead& ahead) {
    const FloatTag d;
    const std::int64_t input_stride = slab.input_token_stride, grad_stride = slab.grad_token_stride;
    const std::uint16_t* HWY_RESTRICT input =
        slab.input + token * input_stride + head * slab.input_head_stride;
    std::uint16_t* HWY_RESTRICT input_grad =
        slab.input_grad + token * grad_stride + head * slab.grad_head_stride;
    const float* HWY_RESTRICT output_grad[kWindows];
    FloatVec weight[kWindows][kRows], product[kWindows][kRows];
    for (int k = 0; k < kWindows; ++k) {
        output_grad[k] = slab.output_grad[k] + head * slab.head_dim;
        for (int t = 0; t < kRows; ++t) {
            weight[k][t] =
                hn::Set(d, slab.weight[head * slab.block + slab.first_row[k] + token + t]);
            product[k][t] = hn::Zero(d);
        }
    }
    const std::int64_t head_dim = slab.head_dim;
    const auto sums_at = [&](std::int64_t c, FloatVec(&sum)[kRows]) HWY_ATTR {
        FloatVec g[kWindows];
        for (int k = 0; k < kWindows; ++k) g[k] = load_once(output_grad[k] + c);
        for (int t = 0; t < kRows; ++t) {
            const FloatVec x = load_half<Format>(input + t * input_stride + c);
            sum[t] = hn::Mul(g[0], weight[0][t]);
            product[0][t] = hn::MulAdd(g[0], x, product[0][t]);
            for (int k = 1; k < kWindows; ++k) {
                sum[t] = hn::MulAdd(g[k], weight[k][t], sum[t]);
                product[k][t] = hn::MulAdd(g[k], x, product[k][t]);
            }
        }
    };
    LinesAhead lines = ahead;
    FloatVec low[kRows];
    std::int64_t c = 0;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    if constexpr (kBypassCache) {  // whole lines
        FloatVec high[kRows];
        for (; c + 2 * kLanes <= head_dim; c += 2 * kLanes) {
            lines.request_next<kRows, kRequests>();
            sums_at(c, low);
            sums_at(c + kLanes, high);
            for (int t = 0; t < kRows; ++t) {
                hn::Stream(Format::narrow_sums(low[t], high[t]), LineTag(),
                           input_grad + t * grad_stride + c);
            }
        }
    }
#endif
    for (; c < head_dim; c += kLanes) {
        if (kBypassCache && c % kLineElements == 0) lines.request_next<kRows, kRequests>();
        sums_at(c, low);
        for (int t = 0; t < kRows; ++t) {
            store_half<kBypassCache>(Format::narrow_sum(low[t]), input_grad + t * grad_stride + c);
        }
    }
    ahead = lines;
    for (int k = 0; k < kWindows; ++k) {
        const std::int64_t row = head * slab.block + slab.first_row[k] + token;
        for (int t = 0; t < kRows; ++t) {
            float* lanes = slab.weight_grad_lanes + (row + t) * kLanesPerSum;
            hn::Store(hn::Add(hn::Load(d, lanes), product[k][t]), d, lanes);
        }
    }
}

template <class Format, int kWindows, bool kBypassCache, LineRequests kRequests>
HWY_INLINE void gradient_rows(const GradientSlab& slab) {
    if constexpr (kWindows > kMostInRows) {
        for (std::int64_t token = 0; token < kSlabTokens; ++token) {
            for (std::int64_t head = 0; head < slab.num_heads; ++head)
                gradient_row<Format, kWindows, kBypassCache>(slab, token, head);
        }
    } else {
        const bool one_run = slab.input_head_stride == slab.head_dim;  // all heads of a token
        const auto lines_of = [&](std::int64_t token, std::int64_t head) {
            return LinesAhead(
                slab.input + token * slab.input_token_stride + head * slab.input_head_stride,
                slab.ahead, one_run ? slab.num_heads * slab.head_dim : slab.head_dim,
                slab.input_token_stride);
        };
        for (std::int64_t token = 0; token < kSlabTokens; token += kRows) {
            LinesAhead ahead = lines_of(token, 0);
            for (std::int64_t head = 0; head < slab.num_heads; ++head) {
                if (head > 0 && !one_run) ahead = lines_of(token, head);
                gradient_head<Format, kWindows, kBypassCache, kRequests>(slab, token, head, ahead);
            }
        }
    }
}

template <class Format, int kWindows>
void gradient_windows(const GradientSlab& slab) {
    if (!slab.bypass_cache) {
        gradient_rows<Format, kWindows, false, LineRequests::kTwice>(slab);
    } else if (kWindows <= kMostInRows && slab.requests == LineRequests::kOnce) {
        gradient_rows<Format, kWindows, true, LineRequests::kOnce>(slab);
    } else {
        gradient_rows<Format, kWindows, true, LineRequests::kTwice>(slab);
    }
}
