// Attention and AttentionGrad for plain loops: one struct for both, addresses by strides, and which
// pairs of query and key are visible.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "active_mutant.h"
#include "element.h"

namespace attncheck::mutants {

inline constexpr float kNeutralInfinity = std::numeric_limits<float>::infinity();
inline constexpr std::int64_t kNeutralTile = 64;

/// The arguments of both directions; what a direction lacks is absent.
struct NeutralArguments {
    bool gradient = false;
    attncheck_tensor dout{}, query{}, key{}, value{}, out{}, lse{};
    attncheck_int_array cu_seqlens_q{}, cu_seqlens_kv{}, kv_length{};
    attncheck_tensor bias{}, mask{}, sink{};
    double scale = 1, softcap = 0;
    std::int64_t window_left = -1, window_right = -1, align = 0;
    attncheck_tensor dq{}, dk{}, dv{}, dbias{}, dsink{};
};
NeutralArguments arguments_of(const attncheck_attention_args& args);
NeutralArguments arguments_of(const attncheck_attention_grad_args& args);

/// 0; a rejection; or 1 where a defect accepts what is undefined.
int accept(const NeutralArguments& args);

struct NeutralProblem : NeutralArguments {
    std::int64_t batches = 0, heads = 0, kv_heads = 0, dim = 0, value_dim = 0;
    bool packed = false;
    std::vector<std::int64_t> first_query, first_key, query_len, key_len, used;
    float scale_fp32 = 1, softcap_fp32 = 0;

    explicit NeutralProblem(const NeutralArguments& args);

    /// One of its attributes becomes that of the first call whose other ones were these.
    void take_first_plan();

    /// Offset of [b, row, head] of a tensor [B,S,H,width], or packed.
    std::int64_t row_of(const attncheck_tensor& t, std::int64_t b, std::int64_t row,
                        std::int64_t head, bool of_keys) const;
    std::int64_t lse_of(std::int64_t b, std::int64_t h, std::int64_t i) const;
    std::int64_t kv_head(std::int64_t h) const {
        return on<"WILD-17">() ? h % kv_heads : h / (heads / kv_heads);
    }
    /// Offset of an element of a bias or mask, whose extents of 1 serve all.
    static std::int64_t pair_of(const attncheck_tensor& t, std::int64_t b, std::int64_t h,
                                std::int64_t i, std::int64_t j);

    /// By window and kv_length, before mask and bias.
    bool in_window(std::int64_t b, std::int64_t i, std::int64_t j) const;
    bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
    float bias_at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
    float sink_of(std::int64_t h) const;  ///< -infinity: none
    /// softcap tanh(scale <q, k> / softcap) + bias; `slope` is 1 - tanh^2.
    float score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j,
                float* slope = nullptr) const;
};

/// Output and LSE of one row; acc has value_dim channels.
float neutral_row(const NeutralProblem& p, std::int64_t b, std::int64_t h, std::int64_t i,
                  std::vector<float>& acc);
void neutral_forward(const NeutralProblem& p);
void neutral_gradient(const NeutralProblem& p);

}  // namespace attncheck::mutants
