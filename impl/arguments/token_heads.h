#ifndef ATTNCHECK_IMPL_TOKEN_HEADS_H
#define ATTNCHECK_IMPL_TOKEN_HEADS_H

#include <cstdint>

#include "attncheck/candidate.h"
#include "impl/kernels/attention_kernels.h"
#include "impl/arguments/strided_rows.h"

/// Rows, each of a token and a head, between a tensor of any strides and fp32.
namespace attncheck::impl {

/// Reads single rows, widened exactly. Not for use by two threads at once.
class TokenHeadsReader {
public:
    TokenHeadsReader(const attncheck_tensor& tensor, const AttentionKernels& kernels)
        : rows_(input_rows(tensor)),
          dim_(tensor.shape[2]),
          widen_row_(kernels.widen_row[static_cast<int>(half_format(tensor))]),
          packed_(rows_.contiguous_dim() ? 0 : dim_) {}

    void read(std::int64_t token, std::int64_t head, float* to) {
        const std::uint16_t* row = rows_.at(token, head);
        if (!rows_.contiguous_dim()) {
            gather(rows_, {token, 1, head, 1, dim_}, packed_.data());
            row = packed_.data();
        }
        widen_row_(row, to, dim_);
    }

private:
    StridedRows<const std::uint16_t> rows_;
    std::int64_t dim_;
    void (*widen_row_)(const std::uint16_t*, float*, std::int64_t);
    AlignedBuffer<std::uint16_t> packed_;
};

/// Writes single rows, rounded once. Not for use by two threads at once.
class TokenHeadsWriter {
public:
    TokenHeadsWriter(const attncheck_tensor& tensor, const AttentionKernels& kernels)
        : rows_(output_rows(tensor)),
          dim_(tensor.shape[2]),
          format_(static_cast<int>(half_format(tensor))),
          kernels_(kernels),
          packed_(rows_.contiguous_dim() ? 0 : dim_) {}

    void write_product(const float* from, float factor, std::int64_t token, std::int64_t head) {
        kernels_.store_product[format_](from, factor, target(token, head), dim_);
        finish(token, head);
    }
    void write_quotient(const float* from, float divisor, std::int64_t token, std::int64_t head) {
        kernels_.store_quotient[format_](from, divisor, target(token, head), dim_);
        finish(token, head);
    }
    void write_zeros(std::int64_t token, std::int64_t head) {
        fill_zero({token, 1, head, 1, dim_}, rows_);
    }

private:
    std::uint16_t* target(std::int64_t token, std::int64_t head) const {
        return rows_.contiguous_dim() ? rows_.at(token, head) : packed_.data();
    }
    void finish(std::int64_t token, std::int64_t head) {
        if (!rows_.contiguous_dim()) scatter(packed_.data(), {token, 1, head, 1, dim_}, rows_);
    }

    StridedRows<std::uint16_t> rows_;
    std::int64_t dim_;
    int format_;
    const AttentionKernels& kernels_;
    AlignedBuffer<std::uint16_t> packed_;
};

/// A softmax statistic [tokens, heads, 8]: all copies are written, the first is read.
inline void fill_copies(const attncheck_tensor& statistic, std::int64_t token, std::int64_t head,
                        float value) {
    float* row = static_cast<float*>(statistic.data) + token * statistic.strides[0] +
                 head * statistic.strides[1];
    for (std::int64_t i = 0; i < statistic.shape[2]; ++i) row[i * statistic.strides[2]] = value;
}
inline float first_copy(const attncheck_tensor& statistic, std::int64_t token, std::int64_t head) {
    return static_cast<const float*>(
        statistic.data)[token * statistic.strides[0] + head * statistic.strides[1]];
}

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_TOKEN_HEADS_H
