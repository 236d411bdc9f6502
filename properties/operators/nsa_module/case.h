// The NSA module as a case: fields, legality, data, and one run of it over a candidate's operators.
//
//   nsa_module{dtype=bf16 seq=[40,0,7] kv_heads=2 group=2 dim=128 value_dim=128 block=32 stride=16
//   select=32 count=2 window=20 tied=yes gates=random weights=random logits=plain scale=rsqrt
//   data=normal seed=7}
//
// seq holds the lengths of the single sequences; beyond adds rows behind the last one. gates,
// weights and logits say what gate logits, pooling weights, query and key are like
// (data.cc); with data=zeros everything is zero but for the elements that `set` names.
#pragma once

#include "properties/case/attention_data.h"
#include "properties/judge/verdict.h"
#include "properties/operators/operator.h"
#include "ref/operators/nsa_module_bound.h"

namespace attncheck::properties::nsa_module {

/// Numbers of the Spec, in schema order.
enum Field {
    kDtype,
    kKvHeads,
    kGroup,
    kDim,
    kValueDim,
    kBlock,
    kStride,
    kSelect,
    kCount,
    kWindow,
    kTied,
    kForced,
    kGates,
    kWeights,
    kLogits,
    kScale,
    kBeyond
};
enum class Gates { half, random, compress, select, window, closed };
enum class Weights {
    recipe,
    onehot,  ///< one row is 1, all others 0: a strided pick
    mean     ///< 1 / l
};
enum class Logits {
    plain,
    lattice  ///< every row is led by one or two keys, by 256 and more
};

/// Tensors of a problem, in the order of the schema's inputs.
enum Input {
    kQuery,
    kKeyCompress,
    kValueCompress,
    kKeySelect,
    kValueSelect,
    kKeyWindow,
    kValueWindow,
    kKeyWeight,
    kValueWeight,
    kGateLogits,
    kOutputGrad,
    kInputs
};
inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
inline int key_input(int branch) { return kKeyCompress + 2 * branch; }
inline int value_input(int branch) { return kValueCompress + 2 * branch; }

inline constexpr std::array<const char*, ref::kModuleBranches> kBranchNames{"compress", "select",
                                                                            "window"};

/// A problem as dense parts. Tied: key and value of the other branches are those of compress.
struct Parts {
    ref::Dtype dtype = ref::Dtype::fp16;
    ref::NsaModuleShape shape;
    double scale = 1;  ///< as passed, binary64
    bool tied = false, forced = false;
    std::array<std::vector<std::uint32_t>, kInputs> bits;

    ref::Dtype type_of(int input) const { return input == kGateLogits ? ref::Dtype::fp32 : dtype; }
    std::vector<double> values(int input) const {
        return decode_all(type_of(input), bits[static_cast<std::size_t>(input)]);
    }
    void set(int input, std::size_t element, double value) {
        bits[static_cast<std::size_t>(input)][element] = ref::encode(type_of(input), value);
    }
};
Parts parts_of(const Spec& spec);
Parts parts_without_values(const Spec& spec);
void fill_data(const Spec& spec, Parts& parts);

const Description& description();
/// The same, and behind its tensors one output for each tensor that operators hand each other.
const Description& run_description();

Call build_call(const Spec& spec);

/// The fields of the parts, as a case of this description.
Spec spec_of(const Parts& parts, const Description& description);
/// The tensors as the description lists them.
Call make_call(const Parts& parts, const Description& description);
/// "query_grad"
std::string gradient_name(int input);

Spec sample(const Schema& schema, Random& random, int size, Profile profile);
std::vector<std::string> labels_of(const Spec& spec);
std::vector<RequiredClass> required_classes();

void add_agreement(std::vector<Property>& list);
void add_relations(std::vector<Property>& list);
void add_handover(std::vector<Property>& list);

}  // namespace attncheck::properties::nsa_module

namespace attncheck::properties {
std::unique_ptr<Operator> make_nsa_module();
}  // namespace attncheck::properties
