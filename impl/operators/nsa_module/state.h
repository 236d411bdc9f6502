#ifndef ATTNCHECK_IMPL_NSA_MODULE_STATE_H
#define ATTNCHECK_IMPL_NSA_MODULE_STATE_H

#include <array>
#include <cmath>
#include <string>

#include "impl/operators/nsa_module/arrays.h"
#include "impl/operators/nsa_module/plan.h"

/// One forward of the NSA module, and what its backward needs of it: forward.cc runs the one,
/// grad.cc the other.
namespace attncheck::impl::module {

enum Branch { kCompress, kSelect, kWindow };
inline constexpr int kBranches = 3;
inline constexpr std::int64_t kStatisticLanes = 8;
inline constexpr const char* kLayout = "TND";

/// Calls one of the operators; whatever it returns but 0 ends the module's call.
template <class Args>
void call(const attncheck_nsa_operators& operators, const char* name, int (*entry)(const Args*),
          const Args& args) {
    if (!entry && !operators.call)
        throw Failure(ATTNCHECK_ERR_NULLPTR,
                      "the operator " + std::string(name) + " is NULL, it is required");
    const int status = entry ? entry(&args) : operators.call(operators.caller, name, &args);
    if (status != ATTNCHECK_OK)
        throw Failure(status, std::string(name) + " returned " + std::to_string(status));
}

/// Output and softmax statistics of a branch, the latter in the order in which its operator writes.
struct BranchResult {
    Array out, row_max, row_sum;

    explicit BranchResult(const Plan& p)
        : out(p.dtype, {p.tokens, p.query_heads, p.value_dim}),
          row_max(ATTNCHECK_FLOAT32, {p.tokens, p.query_heads, kStatisticLanes}),
          row_sum(row_max) {}
    BranchResult() = default;
};

/// Rows of the sequences of `from` (token rows of the module) into a padded array.
Array padded_rows(const Plan& plan, const Lengths& to, const attncheck_tensor& from);

/// mask[r][c] = c > r, which band mode asks for and need not read.
const Array& band_mask();

inline double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

/// What one forward knows, and the calls of both directions.
class State {
public:
    State(const attncheck_nsa_operators& operators, const attncheck_nsa_module_args& args)
        : plan_(make_plan(args)) {
        Elements(args.attention_out).clear();
        if (plan_.sequence.total() == 0) return;
        for (int branch = 0; branch < kBranches; ++branch) result_[branch] = BranchResult(plan_);
        run_compress(operators, args);
        run_compress_attention(operators, args);
        run_selected_attention(operators, args);
        run_window(operators, args);
        combine(args);
    }

    void backward(const attncheck_nsa_operators& operators, const attncheck_nsa_module_args& args,
                  const attncheck_nsa_module_grad_args& grads) const;

    attncheck_tensor blocks() const { return blocks_.tensor(); }

private:
    const attncheck_tensor& key_of(const attncheck_nsa_module_args& args, Branch branch) const {
        if (branch == kSelect && !plan_.select_tied) return args.key_select;
        if (branch == kWindow && !plan_.window_tied) return args.key_window;
        return args.key_compress;
    }
    const attncheck_tensor& value_of(const attncheck_nsa_module_args& args, Branch branch) const {
        if (branch == kSelect && !plan_.select_tied) return args.value_select;
        if (branch == kWindow && !plan_.window_tied) return args.value_window;
        return args.value_compress;
    }

    /// The gate of (token row, head); 0 in the compress branch where no block is visible.
    double gate(const attncheck_nsa_module_args& args, int branch, std::size_t sequence,
                std::int64_t s, std::int64_t head) const {
        if (branch == kCompress && s < plan_.block - 1) return 0;
        return sigmoid(
            Elements(args.gate_logits).get(plan_.sequence.first(sequence) + s, head, branch));
    }

    /// visit(sequence, position, row, head) for every query of a sequence.
    template <class Visit>
    void for_each_query(Visit&& visit) const {
        for (std::size_t b = 0; b < plan_.sequence.of.size(); ++b)
            for (std::int64_t s = 0; s < plan_.sequence.of[b]; ++s)
                for (std::int64_t h = 0; h < plan_.query_heads; ++h)
                    visit(b, s, plan_.sequence.first(b) + s, h);
    }

    void run_compress(const attncheck_nsa_operators&, const attncheck_nsa_module_args&);
    void run_compress_attention(const attncheck_nsa_operators&, const attncheck_nsa_module_args&);
    void run_selected_attention(const attncheck_nsa_operators&, const attncheck_nsa_module_args&);
    void run_window(const attncheck_nsa_operators&, const attncheck_nsa_module_args&);
    void combine(const attncheck_nsa_module_args&) const;

    struct AttentionGrads {
        Array query, key, value;
        AttentionGrads(const Plan& p, std::int64_t key_rows)
            : query(p.dtype, {p.tokens, p.query_heads, p.head_dim}),
              key(p.dtype, {key_rows, p.kv_heads, p.head_dim}),
              value(p.dtype, {key_rows, p.kv_heads, p.value_dim}) {}
    };
    /// Gradient of the compressed rows, with the statistics as NsaCompressAttention wrote them.
    AttentionGrads compress_attention_grad(const attncheck_nsa_operators&,
                                           const attncheck_nsa_module_args&, const Array& dy) const;
    AttentionGrads selected_attention_grad(const attncheck_nsa_operators&,
                                           const attncheck_nsa_module_args&, const Array& dy) const;
    AttentionGrads window_grad(const attncheck_nsa_operators&, const attncheck_nsa_module_args&,
                               const Array& dy) const;
    /// Writes the gradient of the weights and returns that of the tokens, padded by grad_padded.
    Array compress_grad(const attncheck_nsa_operators&, const attncheck_tensor& tokens,
                        const attncheck_tensor& weight, const Array& output_grad,
                        const attncheck_tensor& weight_grad) const;
    attncheck_flash_attention_score_grad_args flash_grad_args(const attncheck_nsa_module_args&,
                                                              Branch branch, const Array& dy,
                                                              const AttentionGrads& out) const;
    std::array<Array, kBranches> gate_gradients(const attncheck_nsa_module_args&,
                                                const attncheck_nsa_module_grad_args&) const;

    Plan plan_;
    Array key_blocks_, value_blocks_;    ///< compressed rows [C,N2,D], [C,N2,Dv]
    Array select_key_, select_value_;    ///< padded rows of the select branch
    Array compress_mask_, causal_mask_;  ///< what hides
    Array blocks_;                       ///< int32 [T,N2,K]
    BranchResult result_[kBranches];
};

}  // namespace attncheck::impl::module

#endif  // ATTNCHECK_IMPL_NSA_MODULE_STATE_H
