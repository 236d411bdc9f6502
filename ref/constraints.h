// The documented constraints as plain predicates: what a call looks like to a validator, and the
// ruling on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attncheck::ref {

inline constexpr int kAccepted = 0;
inline constexpr int kAbsent = 161001;   ///< a required argument is absent
inline constexpr int kInvalid = 161002;  ///< the arguments break a documented constraint

struct TensorArgument {
    bool present = false;
    std::int32_t dtype = 0, rank = 0;
    std::vector<std::int64_t> shape;  ///< min(rank, 8) entries, none when rank < 0
};

/// A host array: absent when !present and size == 0; !present with size > 0 is a null pointer with
/// a length.
struct ArrayArgument {
    bool present = false;
    std::int64_t size = 0;
    std::vector<std::int64_t> values;  ///< size entries when present and size > 0
};

/// Accepted, or the first rule that is broken in the order of the contract.
struct Ruling {
    int status = kAccepted;
    std::string parameter;  ///< as in candidate.h, e.g. "compress_stride"
    std::string message;    ///< names the parameter, its value and what is allowed
    bool accepted() const { return status == kAccepted; }
};

/// Order of the checks: null pointers, layout, ranks, dtypes, attribute ranges, shape relations,
/// length array, and last the shapes that depend on the number of blocks. An absent layout is
/// rejected in the forward (161001) and means "TND" in the gradient, as an absent length array
/// there means one sequence of length T.
struct CompressArguments {
    TensorArgument input, weight, output;
    ArrayArgument act_seq_len;
    std::optional<std::string> layout;
    std::int64_t compress_block_size = 0, compress_stride = 0, act_seq_len_type = 0;
};
Ruling rule_nsa_compress(const CompressArguments& arguments);

struct CompressGradArguments {
    TensorArgument output_grad, input, weight, input_grad, weight_grad;
    ArrayArgument act_seq_len;
    std::optional<std::string> layout;
    std::int64_t compress_block_size = 0, compress_stride = 0, act_seq_len_type = 0;
};
Ruling rule_nsa_compress_grad(const CompressGradArguments& arguments);

}  // namespace attncheck::ref
