// S = Q K^T, P = softmax(scale S), O = P V; dV = P^T dO, dP = dO V^T, dS = P (dP - delta),
// dQ = scale dS K, dK = scale dS^T Q. One head after the other.
#include "bench/blas_attention.h"

#if defined(ATTNCHECK_HAVE_OPENBLAS)
#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#endif

namespace attncheck::bench {

#if defined(ATTNCHECK_HAVE_OPENBLAS)
namespace {

using Matrix = std::vector<float>;

class BlasAttention {
public:
    explicit BlasAttention(const DenseShape& shape)
        : shape_(shape),
          rows_(static_cast<int>(shape.length)),
          dim_(static_cast<int>(shape.dim)),
          scale_(1.0f / std::sqrt(static_cast<float>(shape.dim))),
          size_(static_cast<std::size_t>(shape.length * shape.dim)),
          probs_(static_cast<std::size_t>(shape.length * shape.length)),
          score_grads_(probs_.size()) {
        std::mt19937 random(1);
        std::normal_distribution<float> values;
        for (Matrix* matrix : {&query_, &key_, &value_, &output_grad_}) {
            matrix->resize(size_ * static_cast<std::size_t>(shape.heads));
            for (float& element : *matrix) element = values(random);
        }
        for (Matrix* matrix : {&output_, &dq_, &dk_, &dv_}) matrix->resize(query_.size());
    }

    int forward() {
        for (std::int64_t head = 0; head < shape_.heads; ++head) {
            const std::size_t at = size_ * static_cast<std::size_t>(head);
            softmax(at);
            product(CblasNoTrans, CblasNoTrans, dim_, rows_, 1, probs_, rows_, value_, at, output_);
        }
        return 0;
    }

    // Recomputes P, as the operator's gradient does.
    int gradient() {
        for (std::int64_t head = 0; head < shape_.heads; ++head) {
            const std::size_t at = size_ * static_cast<std::size_t>(head);
            softmax(at);
            product(CblasTrans, CblasNoTrans, dim_, rows_, 1, probs_, rows_, output_grad_, at, dv_);
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows_, rows_, dim_, 1,
                        &output_grad_[at], dim_, &value_[at], dim_, 0, score_grads_.data(), rows_);
            centre(at);
            product(CblasNoTrans, CblasNoTrans, dim_, rows_, scale_, score_grads_, rows_, key_, at,
                    dq_);
            product(CblasTrans, CblasNoTrans, dim_, rows_, scale_, score_grads_, rows_, query_, at,
                    dk_);
        }
        return 0;
    }

private:
    void softmax(std::size_t at) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows_, rows_, dim_, scale_,
                    &query_[at], dim_, &key_[at], dim_, 0, probs_.data(), rows_);
        for (int i = 0; i < rows_; ++i) {
            float* row = &probs_[static_cast<std::size_t>(i) * static_cast<std::size_t>(rows_)];
            const int end = shape_.causal ? i + 1 : rows_;
            const float most = *std::max_element(row, row + end);
            float sum = 0;
            for (int j = 0; j < end; ++j) sum += row[j] = std::exp(row[j] - most);
            for (int j = 0; j < end; ++j) row[j] /= sum;
            std::fill(row + end, row + rows_, 0.0f);
        }
    }
    void centre(std::size_t at) {
        for (int i = 0; i < rows_; ++i) {
            const std::size_t row =
                at + static_cast<std::size_t>(i) * static_cast<std::size_t>(dim_);
            const float delta = cblas_sdot(dim_, &output_[row], 1, &output_grad_[row], 1);
            const std::size_t from = static_cast<std::size_t>(i) * static_cast<std::size_t>(rows_);
            for (std::size_t j = from; j < from + static_cast<std::size_t>(rows_); ++j)
                score_grads_[j] = probs_[j] * (score_grads_[j] - delta);
        }
    }
    void product(CBLAS_TRANSPOSE left_order, CBLAS_TRANSPOSE right_order, int cols, int depth,
                 float factor, const Matrix& left, int left_stride, const Matrix& right,
                 std::size_t at, Matrix& out) const {
        cblas_sgemm(CblasRowMajor, left_order, right_order, rows_, cols, depth, factor, left.data(),
                    left_stride, &right[at], cols, 0, &out[at], cols);
    }

    DenseShape shape_;
    int rows_, dim_;
    float scale_;
    std::size_t size_;
    Matrix query_, key_, value_, output_grad_, output_, dq_, dk_, dv_, probs_, score_grads_;
};

}  // namespace

std::vector<Problem> blas_problems(const DenseShape& shape) {
    const auto data = std::make_shared<std::unique_ptr<BlasAttention>>();
    const auto made = [data, shape]() -> BlasAttention& {
        if (!*data) {
            *data = std::make_unique<BlasAttention>(shape);
            (*data)->forward();
        }
        return **data;
    };
    const double products = static_cast<double>(shape.heads * shape.length * shape.length) *
                            static_cast<double>(shape.dim) * (shape.causal ? 0.5 : 1.0);
    const Problem forward{"OpenBLAS, composed", "fp32", describe(shape), ATTNCHECK_FLOAT32, 0,
                          4 * products,         nullptr};
    Problem first = forward, second = forward;
    first.call = [made] { return made().forward(); };
    second.op = "OpenBLAS, composed, gradient";
    second.work = 10 * products;
    second.call = [made] { return made().gradient(); };
    return {first, second};
}

void set_blas_threads(int threads) { openblas_set_num_threads(threads); }

#else

std::vector<Problem> blas_problems(const DenseShape&) { return {}; }
void set_blas_threads(int) {}

#endif

}  // namespace attncheck::bench
