// The errors that the operators of an NSA module may have: each on the tensors it was passed,
// and the module's results against the exact composition, with the errors of the former propagated.
//
// Stage by stage: the expectation of an operator is a function of its own inputs, which are the
// stored outputs of earlier operators. Its bound says how far its output y^ may be from y(x^).
//
// End to end: |y^ - y(x)| <= |y^ - y(x^)| + |y(x^) - y(x)|. The first is the bound of the stage,
// the second follows from |x^ - x| <= E_x, without terms being dropped:
//
//   a_j = |scale| sum |q| E_k,j     change of a logit;  A = max_j a_j, of the LSE too
//   rho_j = exp(a_j + A + E_lse) - 1     of P_j, relative; E_lse = bound of the statistics given
//   dO_b:   E = the cast of g dO
//   O:      sum_j P_j rho_j |v_j - o| + P_j (1 + rho_j) E_v,j
//   delta:  sum_c |dO| E_O + E_dO (|O| + E_O),   dP_j: sum_c |dO| E_v,j + E_dO (|v_j| + E_v,j)
//   dS_j:   P_j rho_j |dP_j - delta| + P_j (1 + rho_j) E_dP,j, and P_j (1 + theta_j) delta-error,
//           which is one number for the row
//   dQ, dK, dV, compress gradients: linear in those
//
// Sums that the module makes itself are rounded to fp32 and to the type of the tensor.
#pragma once

#include "ref/operators/nsa_module.h"

namespace attncheck::ref {

/// The tensors that the operators passed on, unpadded.
struct NsaModuleObserved {
    std::vector<double> key_blocks, value_blocks;  ///< [C,N2,D], [C,N2,Dv]
    struct Branch {
        std::vector<double> output, output_grad;  ///< [T,N1,Dv]; output_grad as passed
        std::vector<double> row_max, row_sum;     ///< [T,N1]
        bool operator==(const Branch&) const = default;
    };
    std::array<Branch, kModuleBranches> branch;
    std::vector<double> key_blocks_grad, value_blocks_grad;  ///< as the flash gradient wrote them

    bool operator==(const NsaModuleObserved&) const = default;
};

/// Which stages are asked for; the others are left empty.
enum class ModuleStages {
    all,
    compression,      ///< both compressions and their gradients
    compress_branch,  ///< the forward of the compress branch
};

/// Each operator against the reference on the tensors it was passed. The gradients are left empty when
/// observed.branch[0].output_grad is.
struct ExpectedModuleStages {
    ModuleStages wanted = ModuleStages::all;
    bool has_grad = false;
    ExpectedTensor key_blocks, value_blocks;
    std::array<ExpectedAttention, kModuleBranches> branch;
    std::array<ExpectedAttentionGrad, kModuleBranches> grad;  ///< [0]: of the blocks
    ExpectedCompressGrad key, value;
};
ExpectedModuleStages expected_module_stages(const NsaModuleShape& shape,
                                            const NsaModuleInputs<double>& in,
                                            std::span<const std::int64_t> topk,
                                            const NsaModuleObserved& observed,
                                            const Precision& precision,
                                            Grant grant = Grant::rounding,
                                            ModuleStages wanted = ModuleStages::all);

/// The module against the exact composition.
struct ExpectedNsaModule {
    ExpectedTensor output;
    ExpectedTensor query_grad, key_weight_grad, value_weight_grad;
    ExpectedTensor gate_logits_grad;                     ///< stored as fp32
    std::array<ExpectedTensor, 3> key_grad, value_grad;  ///< tied: [0] has the sum
};

/// output_grad empty: the output alone. `forward` and `grad` are the exact composition at `in`.
ExpectedNsaModule expected_nsa_module(const NsaModuleShape& shape,
                                      const NsaModuleInputs<double>& in,
                                      std::span<const std::int64_t> topk,
                                      std::span<const double> output_grad, bool tied,
                                      const NsaModuleForward<double>& forward,
                                      const NsaModuleGrad& grad, const ExpectedModuleStages& stages,
                                      Dtype dtype);

}  // namespace attncheck::ref
