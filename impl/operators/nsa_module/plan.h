#ifndef ATTNCHECK_IMPL_NSA_MODULE_PLAN_H
#define ATTNCHECK_IMPL_NSA_MODULE_PLAN_H

#include <attncheck/nsa_module.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

/// Extents of the NSA module, and how its sequences are padded so that every operator takes them.
///
///   P_b = l' max(ceil(S_b / l'), K), 0 for an empty sequence      key and value rows
///   C_b = floor((P_b - l) / d) + 1                                compressed rows
///
/// NsaSelectedAttention asks for whole blocks of l' keys and for K of them, NsaCompressAttention
/// for K blocks to select from; l' >= l makes that C_b >= (K - 1) l'/d + 1. What is added lies
/// behind the sequence, where causality hides it.
namespace attncheck::impl::module {

class Failure : public std::runtime_error {
public:
    Failure(int code, const std::string& message) : std::runtime_error(message), status(code) {}
    int status;
};

/// Packed sequences: lengths, and their cumulative sums as the operators take them.
struct Lengths {
    std::vector<std::int64_t> of, ends;

    void add(std::int64_t length) {
        of.push_back(length);
        ends.push_back(total() + length);
    }
    std::int64_t total() const { return ends.empty() ? 0 : ends.back(); }
    std::int64_t first(std::size_t b) const { return ends[b] - of[b]; }
    std::int64_t longest() const;
    attncheck_int_array array() const {
        return {ends.data(), static_cast<std::int64_t>(ends.size())};
    }
};

struct Plan {
    std::int64_t tokens = 0, query_heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;  ///< T ..
    std::int64_t block = 0, stride = 0, select_block = 0, select_count = 0, window = 0;
    std::int32_t dtype = 0;
    bool select_tied = false, window_tied = false;
    Lengths sequence, padded, compressed, selectable;

    /// NsaCompressGrad asks for l > d. With l = d it gets one stride more of weights that are 0,
    /// and every sequence one stride more of zeros, so that the blocks are the same.
    std::int64_t grad_block() const { return block > stride ? block : block + stride; }
    Lengths grad_padded() const;
};

/// Checks what no operator will and lays out the sequences. Throws Failure naming the argument, its
/// value and what is allowed.
Plan make_plan(const attncheck_nsa_module_args& args);

/// The gradients' shapes and presence against those of the forward.
void check_gradients(const Plan& plan, const attncheck_nsa_module_args& args,
                     const attncheck_nsa_module_grad_args& grads);

}  // namespace attncheck::impl::module

#endif  // ATTNCHECK_IMPL_NSA_MODULE_PLAN_H
