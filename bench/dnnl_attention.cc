// S = scale Q K^T, P = softmax(S), O = P V; dV = P^T dO, dP = dO V^T, dS = P (dP - delta),
// dQ = scale dS K, dK = scale dS^T Q. One head after the other.
#include "bench/dnnl_attention.h"

#if defined(ATTNCHECK_HAVE_DNNL)
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>

#include "impl/kernels/half_formats.h"

// Of the OpenMP runtime that oneDNN brings along, if that is what it was built with.
extern "C" __attribute__((weak)) void omp_set_num_threads(int threads);
#endif

namespace attncheck::bench {

#if defined(ATTNCHECK_HAVE_DNNL)
namespace {

using dnnl::memory;
using Half = std::vector<std::uint16_t>;

constexpr auto kBf16 = memory::data_type::bf16, kFp32 = memory::data_type::f32;

// C [rows, cols] = factor * A [rows, depth] B [depth, cols]; either input may be stored transposed.
class Product {
public:
    struct Shape {
        std::int64_t rows, cols, depth;
        bool left_transposed, right_transposed;
    };
    Product(const dnnl::engine& engine, const Shape& shape, memory::data_type result,
            float factor) {
        const auto tag = [](bool transposed) {
            return transposed ? memory::format_tag::ba : memory::format_tag::ab;
        };
        const memory::desc left({shape.rows, shape.depth}, kBf16, tag(shape.left_transposed)),
            right({shape.depth, shape.cols}, kBf16, tag(shape.right_transposed)),
            product({shape.rows, shape.cols}, result, tag(false));
        dnnl::primitive_attr attributes;
        attributes.set_output_scales(0, {factor});
        const dnnl::matmul::primitive_desc description({left, right, product}, attributes, engine);
        product_ = dnnl::matmul(description);
        left_ = memory(left, engine, nullptr);
        right_ = memory(right, engine, nullptr);
        result_ = memory(product, engine, nullptr);
    }
    void run(dnnl::stream& stream, const void* left, const void* right, void* result) {
        left_.set_data_handle(const_cast<void*>(left));
        right_.set_data_handle(const_cast<void*>(right));
        result_.set_data_handle(result);
        product_.execute(
            stream, {{DNNL_ARG_SRC, left_}, {DNNL_ARG_WEIGHTS, right_}, {DNNL_ARG_DST, result_}});
    }

private:
    dnnl::matmul product_;
    memory left_, right_, result_;
};

class DnnlAttention {
public:
    explicit DnnlAttention(const DenseShape& shape)
        : shape_(shape),
          engine_(dnnl::engine::kind::cpu, 0),
          stream_(engine_),
          head_(static_cast<std::size_t>(shape.length * shape.dim)),
          square_(static_cast<std::size_t>(shape.length * shape.length)),
          logits_(square_),
          probs_(square_),
          score_grads_(square_),
          square_desc_({shape.length, shape.length}, kFp32, memory::format_tag::ab),
          probs_desc_({shape.length, shape.length}, kBf16, memory::format_tag::ab),
          scores_(engine_, {shape.length, shape.length, shape.dim, false, true}, kFp32, scale()),
          mix_(engine_, {shape.length, shape.dim, shape.length, false, false}, kBf16, 1),
          mix_transposed_(engine_, {shape.length, shape.dim, shape.length, true, false}, kBf16, 1),
          prob_grads_(engine_, {shape.length, shape.length, shape.dim, false, true}, kFp32, 1),
          query_grads_(engine_, {shape.length, shape.dim, shape.length, false, false}, kBf16,
                       scale()),
          key_grads_(engine_, {shape.length, shape.dim, shape.length, true, false}, kBf16, scale()),
          softmax_(dnnl::softmax_v2_forward::primitive_desc(
              {dnnl::prop_kind::forward_inference, dnnl::algorithm::softmax_accurate, square_desc_,
               probs_desc_, 1},
              engine_)) {
        std::mt19937 random(1);
        std::normal_distribution<float> values;
        for (Half* matrix : {&query_, &key_, &value_, &output_grad_}) {
            matrix->resize(head_ * static_cast<std::size_t>(shape.heads));
            for (std::uint16_t& element : *matrix) element = impl::narrow_bf16(values(random));
        }
        for (Half* matrix : {&output_, &dq_, &dk_, &dv_}) matrix->resize(query_.size());
    }

    int forward() {
        for (std::size_t at = 0; at < query_.size(); at += head_) {
            softmax(at);
            mix_.run(stream_, probs_.data(), &value_[at], &output_[at]);
        }
        stream_.wait();
        return 0;
    }

    // Recomputes P, as the operator's gradient does.
    int gradient() {
        for (std::size_t at = 0; at < query_.size(); at += head_) {
            softmax(at);
            mix_transposed_.run(stream_, probs_.data(), &output_grad_[at], &dv_[at]);
            prob_grads_.run(stream_, &output_grad_[at], &value_[at], logits_.data());
            stream_.wait();
            centre(at);
            query_grads_.run(stream_, score_grads_.data(), &key_[at], &dq_[at]);
            key_grads_.run(stream_, score_grads_.data(), &query_[at], &dk_[at]);
        }
        stream_.wait();
        return 0;
    }

private:
    float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.dim)); }

    void softmax(std::size_t at) {
        scores_.run(stream_, &query_[at], &key_[at], logits_.data());
        stream_.wait();
        const auto length = static_cast<std::size_t>(shape_.length);
        for (std::size_t i = 0; shape_.causal && i < length; ++i) {
            for (std::size_t j = i + 1; j < length; ++j)
                logits_[i * length + j] = -std::numeric_limits<float>::infinity();
        }
        memory from(square_desc_, engine_, logits_.data()), to(probs_desc_, engine_, probs_.data());
        softmax_.execute(stream_, {{DNNL_ARG_SRC, from}, {DNNL_ARG_DST, to}});
    }

    // delta_i = O_i . dO_i
    void centre(std::size_t at) {
        const auto length = static_cast<std::size_t>(shape_.length),
                   dim = static_cast<std::size_t>(shape_.dim);
        for (std::size_t i = 0; i < length; ++i) {
            float delta = 0;
            for (std::size_t c = at + i * dim; c < at + (i + 1) * dim; ++c)
                delta += impl::widen_bf16(output_[c]) * impl::widen_bf16(output_grad_[c]);
            for (std::size_t j = i * length; j < (i + 1) * length; ++j) {
                score_grads_[j] =
                    impl::narrow_bf16(impl::widen_bf16(probs_[j]) * (logits_[j] - delta));
            }
        }
    }

    DenseShape shape_;
    dnnl::engine engine_;
    dnnl::stream stream_;
    std::size_t head_, square_;
    std::vector<float> logits_;  // and dP
    Half probs_, score_grads_;
    memory::desc square_desc_, probs_desc_;
    Product scores_, mix_, mix_transposed_, prob_grads_, query_grads_, key_grads_;
    dnnl::softmax_v2_forward softmax_;
    Half query_, key_, value_, output_grad_, output_, dq_, dk_, dv_;
};

bool has_bf16_products() {
    try {
        const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
        Product(engine, {16, 16, 16, false, true}, kFp32, 1);
        return true;
    } catch (const dnnl::error&) {
        return false;
    }
}

}  // namespace

std::vector<Problem> dnnl_problems(const DenseShape& shape) {
    static const bool available = has_bf16_products();
    if (!available) return {};
    const auto data = std::make_shared<std::unique_ptr<DnnlAttention>>();
    const auto made = [data, shape]() -> DnnlAttention& {
        if (!*data) {
            *data = std::make_unique<DnnlAttention>(shape);
            (*data)->forward();
        }
        return **data;
    };
    const double products = static_cast<double>(shape.heads * shape.length * shape.length) *
                            static_cast<double>(shape.dim) * (shape.causal ? 0.5 : 1.0);
    const Problem forward{"oneDNN, composed", "bf16", describe(shape), ATTNCHECK_BFLOAT16, 0,
                          4 * products,       nullptr};
    Problem first = forward, second = forward;
    first.call = [made] { return made().forward(); };
    second.op = "oneDNN, composed, gradient";
    second.work = 10 * products;
    second.call = [made] { return made().gradient(); };
    return {first, second};
}

void set_dnnl_threads(int threads) {
    if (omp_set_num_threads != nullptr) omp_set_num_threads(threads);
}

#else

std::vector<Problem> dnnl_problems(const DenseShape&) { return {}; }
void set_dnnl_threads(int) {}

#endif

}  // namespace attncheck::bench
