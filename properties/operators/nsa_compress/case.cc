// The operators: generator, shrinking, and the values of a call.
#include "properties/operators/nsa_compress/case.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "properties/case/data.h"

namespace attncheck::properties {
namespace {

/// Values of the inputs: the recipe's, and the elements that the Spec sets.
void fill_tensor(const Spec& spec, std::size_t index, Tensor& tensor) {
    const auto& shape = tensor.buffer_shape;
    const DataRole role{static_cast<int>(index), spec.schema->tensors[index].role == Role::weight,
                        shape[0]};
    const std::int64_t total = static_cast<std::int64_t>(tensor.elements());
    tensor.bits.resize(static_cast<std::size_t>(total));
    const bool broadcast = spec.layouts[index] == Layout::broadcast;
    std::array<std::int64_t, kMaxRank> at{};
    if (spec.recipe != Recipe::zeros)
        for (std::int64_t i = 0; i < total; ++i) {
            std::array<std::int64_t, kMaxRank> logical = at;
            if (broadcast) logical[1] = 0;
            const double value = recipe_value(spec.recipe, spec.seed, role, tensor.type(),
                                              {logical.data(), shape.size()}, total);
            tensor.bits[i] = ref::encode(tensor.type(), value);
            for (std::size_t dim = shape.size(); dim-- > 0;) {
                if (++at[dim] < shape[dim]) break;
                at[dim] = 0;
            }
        }
    for (const auto& [ref, value] : spec.overrides) {
        if (ref.tensor != static_cast<int>(index)) continue;
        bool inside = true;  // an edit of all.KEY may have made the tensor smaller
        for (std::size_t dim = 0; dim < shape.size(); ++dim)
            inside = inside && ref.index[dim] < shape[dim];
        if (!inside) continue;
        for (std::int64_t copy = 0; copy < (broadcast ? shape[1] : 1); ++copy) {
            std::int64_t offset = 0;
            for (std::size_t dim = 0; dim < shape.size(); ++dim)
                offset = offset * shape[dim] + (broadcast && dim == 1 ? copy : ref.index[dim]);
            tensor.bits[offset] = ref::encode(tensor.type(), value);
        }
    }
}

class CompressOperator final : public Operator {
public:
    explicit CompressOperator(bool gradient)
        : gradient_(gradient),
          properties_(compress_properties(gradient)),
          required_(compress_required_classes(gradient)) {}

    const Schema& schema() const override { return compress_description(gradient_); }
    const std::vector<Property>& properties() const override { return properties_; }
    const std::vector<RequiredClass>& required_classes() const override { return required_; }
    std::vector<ExcludedPairs> excluded_pairs() const override {
        return nsa_compress_excluded_pairs();
    }
    std::vector<std::string> labels(const Spec& spec) const override {
        return compress_labels(spec);
    }
    Spec draw(Random& random, int size, Profile) const override {
        return sample_compress(schema(), random, size);
    }

    std::vector<Spec> large_cases(std::int64_t length, std::uint64_t seed) const override {
        return compress_large_cases(schema(), length, seed);
    }

    std::vector<Spec> joint_shrinks(const Spec& spec) const override {
        std::vector<Spec> out;
        const std::int64_t block = spec.numbers[kCmpBlock], stride = spec.numbers[kCmpStride];
        if (spec.numbers[kCmpBeyond] > 0) {  // rows behind the last sequence become part of it
            Spec to = spec;
            to.lists[0].back() += std::exchange(to.numbers[kCmpBeyond], 0);
            out.push_back(to);
            to.lists[0] = {compress_shape(spec).total_tokens};
            out.push_back(to);
        } else if (spec.lists[0].size() > 1) {  // only empty sequences, and one row behind them
            Spec to = spec;
            to.lists[0] = {0};
            to.numbers[kCmpBeyond] = 1;
            out.push_back(to);
        }
        for (std::int64_t b = schema().numbers[kCmpBlock].min; b < block; b += 16)
            for (std::int64_t s = 16; s <= std::min(stride, gradient_ ? b - 16 : b); s += 16) {
                Spec to = spec;
                to.numbers[kCmpBlock] = b;
                to.numbers[kCmpStride] = s;
                for (auto& length : to.lists[0])
                    length = std::max<std::int64_t>(0, length - (block - b));
                out.push_back(to);
                for (std::size_t i = 0; i < to.lists[0].size(); ++i)
                    to.lists[0][i] = spec.lists[0][i] * b / block;
                out.push_back(to);
                to.lists[0] = spec.lists[0];
                out.push_back(to);
            }
        for (std::int64_t s = 16; s < stride;
             s += 16) {  // the same number of blocks at a smaller stride
            Spec to = spec;
            to.numbers[kCmpStride] = s;
            for (auto& length : to.lists[0]) {
                const std::int64_t over = length - block;
                if (over > 0) length = block + over / stride * s + std::min(over % stride, s - 1);
            }
            out.push_back(to);
        }
        return out;
    }

    Call outline(const Spec& spec) const override {
        return outline_of(extents_of(spec), spec.layouts);
    }

private:
    bool gradient_;
    std::vector<Property> properties_;
    std::vector<RequiredClass> required_;
};

}  // namespace

Call build_compress_call(const Spec& spec) {
    return build_of(spec, [](const Spec& of, Call& call) {
        for (std::size_t i = 0; i < call.tensors.size(); ++i)
            if (!call.tensors[i].output) fill_tensor(of, i, call.tensors[i]);
    });
}

ref::Dtype compress_dtype(const Spec& spec) {
    return spec.numbers[kCmpDtype] == 0 ? ref::Dtype::fp16 : ref::Dtype::bf16;
}

ref::CompressShape compress_shape(const Spec& spec) {
    ref::CompressShape shape;
    shape.seq_lengths = spec.lists[0];
    shape.total_tokens =
        std::accumulate(spec.lists[0].begin(), spec.lists[0].end(), spec.numbers[kCmpBeyond]);
    shape.heads = spec.numbers[kCmpHeads];
    shape.head_dim = spec.numbers[kCmpDim];
    shape.block = spec.numbers[kCmpBlock];
    shape.stride = spec.numbers[kCmpStride];
    return shape;
}

std::unique_ptr<Operator> make_nsa_compress() { return std::make_unique<CompressOperator>(false); }
std::unique_ptr<Operator> make_nsa_compress_grad() {
    return std::make_unique<CompressOperator>(true);
}

std::vector<Property> compress_properties(bool gradient) {
    std::vector<Property> list;
    add_compress_agreement(list, gradient);
    add_compress_tiers(list);
    add_compress_validation(list, gradient);
    add_compress_relations(list, gradient);
    add_compress_sampled(list);
    return list;
}

}  // namespace attncheck::properties
