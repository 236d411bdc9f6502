// The operators: fields, legality, shrinking, buffers, the C structs and the documented ruling.
#include "properties/operators/nsa_compress/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "properties/case/data.h"

namespace attncheck::properties {
namespace {

constexpr std::int64_t kLongest = 1 << 20;

Schema make_schema(bool gradient) {
    Schema schema;
    schema.op = gradient ? "nsa_compress_grad" : "nsa_compress";
    schema.numbers = {{"dtype", 0, 1, 1, -1, {"fp16", "bf16"}},
                      {"heads", 1, 128, 1, -1, {}},
                      {"dim", 16, 256, 16, -1, {}},
                      {"block", gradient ? 32 : 16, 128, 16, -1, {}},
                      {"stride", 16, 128, 16, -1, {}},
                      {"beyond", 0, kLongest, 1, 0, {}}};
    if (gradient) {
        schema.numbers.push_back({"lengths", 0, 1, 1, 0, {"given", "absent"}});
        schema.numbers.push_back({"layout", 0, 1, 1, 0, {"TND", "absent"}});
    }
    schema.lists = {{"seq", 0, kLongest, 4096}};
    schema.tensors = gradient ? std::vector<TensorField>{{"output_grad", 3, false},
                                                         {"input", 3, false},
                                                         {"weight", 2, false},
                                                         {"input_grad", 3, true},
                                                         {"weight_grad", 2, true}}
                              : std::vector<TensorField>{
                                    {"input", 3, false}, {"weight", 2, false}, {"output", 3, true}};
    return schema;
}

/// First row of each sequence in dimension 0 of a tensor: in tokens, or in blocks for the
/// compressed tensors.
std::vector<std::int64_t> row_starts(const ref::CompressShape& shape, bool compressed) {
    std::vector<std::int64_t> lengths = shape.seq_lengths;
    if (compressed)
        for (auto& length : lengths) length = shape.blocks_of(length);
    return properties::row_starts(lengths);
}

class CompressOperator final : public Operator {
public:
    explicit CompressOperator(bool gradient)
        : gradient_(gradient),
          schema_(make_schema(gradient)),
          properties_(compress_properties(gradient)),
          required_(compress_required_classes(gradient)) {}

    const Schema& schema() const override { return schema_; }
    const std::vector<Property>& properties() const override { return properties_; }
    const std::vector<RequiredClass>& required_classes() const override { return required_; }
    std::vector<std::string> labels(const Spec& spec) const override {
        return compress_labels(spec);
    }
    Spec draw(Random& random, int size, Profile) const override {
        return sample_compress(schema_, random, size);
    }

    std::vector<Spec> large_cases(std::int64_t length, std::uint64_t seed) const override {
        return compress_large_cases(schema_, length, seed);
    }

    std::optional<std::string> illegal(const Spec& spec) const override {
        const ref::CompressShape shape = compress_shape(spec);
        if (auto reason = number_outside(schema_, spec.numbers)) return reason;
        if (shape.seq_lengths.empty()) return "seq is empty, at least one sequence is needed";
        if (std::any_of(shape.seq_lengths.begin(), shape.seq_lengths.end(),
                        [](auto length) { return length < 0; }))
            return "seq holds a negative length";
        if (shape.total_tokens < 1) return "seq and beyond give no token, at least one is needed";
        if (shape.total_tokens > 4 * kLongest) return "more than 4 Mi tokens";
        if (gradient_ ? shape.block <= shape.stride : shape.block < shape.stride)
            return fmt::format("stride={} must be {} block={}", shape.stride,
                               gradient_ ? "less than" : "at most", shape.block);
        if (gradient_ && spec.numbers[kCmpLengths] == 1 &&
            (shape.seq_lengths.size() != 1 || spec.numbers[kCmpBeyond] != 0))
            return "lengths=absent means one sequence of all tokens: seq needs one entry and "
                   "beyond=0";
        for (std::size_t i = 0; i < schema_.tensors.size(); ++i)
            if (schema_.tensors[i].output &&
                (spec.layouts[i] == Layout::broadcast || spec.layouts[i] == Layout::reversed))
                return fmt::format("{}.layout={} is for inputs only", schema_.tensors[i].name,
                                   name_of(spec.layouts[i]));
        const auto extents = shapes(spec);
        for (const auto& [ref, value] : spec.overrides)
            for (std::size_t dim = 0; dim < extents[ref.tensor].size(); ++dim)
                if (ref.index[dim] >= extents[ref.tensor][dim])
                    return fmt::format("set names an element outside {}",
                                       schema_.tensors[ref.tensor].name);
        return std::nullopt;
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
        for (std::int64_t b = schema_.numbers[kCmpBlock].min; b < block; b += 16)
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

    void carry_overrides(const Spec& from, Spec& to, const std::vector<int>& kept) const override {
        to.overrides.clear();
        const ref::CompressShape old_shape = compress_shape(from), new_shape = compress_shape(to);
        const auto extents = shapes(to);
        for (const auto& [from_ref, value] : from.overrides) {
            ElementRef ref = from_ref;
            const std::string& name = schema_.tensors[ref.tensor].name;
            if (name != "weight") {
                const bool compressed = name == "output_grad";
                const auto old_starts = row_starts(old_shape, compressed),
                           new_starts = row_starts(new_shape, compressed);
                const auto after =
                    std::upper_bound(old_starts.begin(), old_starts.end(), ref.index[0]);
                const int sequence = static_cast<int>(after - old_starts.begin()) - 1;
                const std::int64_t position = ref.index[0] - old_starts[sequence];
                int target = -1;
                if (sequence == static_cast<int>(old_shape.seq_lengths.size())) {
                    target =
                        static_cast<int>(new_shape.seq_lengths.size());  // beyond the last sequence
                } else if (const auto it = std::find(kept.begin(), kept.end(), sequence);
                           it != kept.end()) {
                    target = static_cast<int>(it - kept.begin());
                    if (position >= new_starts[target + 1] - new_starts[target]) continue;
                } else {
                    continue;
                }
                ref.index[0] = new_starts[target] + position;
            }
            const auto& shape = extents[ref.tensor];
            bool inside = true;
            for (std::size_t dim = 0; dim < shape.size(); ++dim)
                inside = inside && ref.index[dim] < shape[dim];
            if (inside) to.overrides[ref] = value;
        }
    }

    std::vector<std::vector<std::int64_t>> shapes(const Spec& spec) const override {
        return shapes(compress_shape(spec));
    }

    std::vector<std::vector<std::int64_t>> shapes(const ref::CompressShape& s) const {
        const std::vector<std::int64_t> tokens{s.total_tokens, s.heads, s.head_dim},
            weights{s.block, s.heads},
            blocks{s.block > 0 && s.stride > 0 ? s.total_blocks() : 0, s.heads, s.head_dim};
        return gradient_ ? std::vector<std::vector<std::int64_t>>{blocks, tokens, weights, tokens,
                                                                  weights}
                         : std::vector<std::vector<std::int64_t>>{tokens, weights, blocks};
    }

    Call build(const Spec& spec) const override {
        Spec everywhere = spec;
        ref::Dtype dtype = compress_dtype(spec);
        for (const auto& edit : spec.edits) apply_everywhere(edit, everywhere, dtype);
        const ref::CompressShape shape = compress_shape(everywhere);
        Call call;
        call.op = schema_.op;
        const auto extents = shapes(shape);
        if (everywhere.numbers != spec.numbers) require_edits_fit(extents);
        for (std::size_t i = 0; i < schema_.tensors.size(); ++i) {
            Tensor tensor = make_tensor(schema_.tensors[i].name, schema_.tensors[i].output, dtype,
                                        extents[i], {}, spec.layouts[i]);
            if (!tensor.output) fill(spec, static_cast<int>(i), tensor);
            call.tensors.push_back(std::move(tensor));
        }
        HostArray lengths{"act_seq_len", true, 0, cumulative(shape.seq_lengths)};
        lengths.size = std::ssize(lengths.values);
        if (gradient_ && spec.numbers[kCmpLengths] == 1) {
            lengths.present = false;
            lengths.size = 0;
        }
        call.arrays.push_back(std::move(lengths));
        call.texts.push_back({"layout", gradient_ && spec.numbers[kCmpLayoutText] == 1
                                            ? std::optional<std::string>{}
                                            : "TND"});
        call.numbers = {{"compress_block_size", shape.block},
                        {"compress_stride", shape.stride},
                        {"act_seq_len_type", 0}};
        for (const auto& edit : spec.edits)
            if (!edit.starts_with("all.")) apply_edit(call, edit);
        return call;
    }

    std::vector<std::byte> pack(const Call& call, const std::vector<attncheck_tensor>& tensors,
                                const std::vector<attncheck_int_array>& arrays,
                                const std::vector<const char*>& texts) const override {
        const auto bytes_of = [&](auto arguments) {
            arguments.act_seq_len = arrays[0];
            arguments.layout = texts[0];
            arguments.compress_block_size = call.number("compress_block_size");
            arguments.compress_stride = call.number("compress_stride");
            arguments.act_seq_len_type = call.number("act_seq_len_type");
            std::vector<std::byte> bytes(sizeof arguments);
            std::memcpy(bytes.data(), &arguments, sizeof arguments);
            return bytes;
        };
        if (gradient_) {
            attncheck_nsa_compress_grad_args arguments{};
            arguments.output_grad = tensors[0];
            arguments.input = tensors[1];
            arguments.weight = tensors[2];
            arguments.input_grad = tensors[3];
            arguments.weight_grad = tensors[4];
            return bytes_of(arguments);
        }
        attncheck_nsa_compress_args arguments{};
        arguments.input = tensors[0];
        arguments.weight = tensors[1];
        arguments.output = tensors[2];
        return bytes_of(arguments);
    }

    ref::Ruling rule(const Call& call) const override {
        const auto tensor = [&](std::string_view name) {
            const Tensor& t = call.tensor(name);
            return ref::TensorArgument{t.present, t.dtype, t.rank, t.shape};
        };
        const auto fill_common = [&](auto& arguments) {
            arguments.input = tensor("input");
            arguments.weight = tensor("weight");
            const HostArray& lengths = call.arrays[0];
            arguments.act_seq_len = {lengths.present, lengths.size, lengths.values};
            if (lengths.present && lengths.size >= 0)
                arguments.act_seq_len.values.resize(static_cast<std::size_t>(lengths.size));
            arguments.layout = call.texts[0].value;
            arguments.compress_block_size = call.number("compress_block_size");
            arguments.compress_stride = call.number("compress_stride");
            arguments.act_seq_len_type = call.number("act_seq_len_type");
        };
        if (gradient_) {
            ref::CompressGradArguments arguments;
            fill_common(arguments);
            arguments.output_grad = tensor("output_grad");
            arguments.input_grad = tensor("input_grad");
            arguments.weight_grad = tensor("weight_grad");
            return ref::rule_nsa_compress_grad(arguments);
        }
        ref::CompressArguments arguments;
        fill_common(arguments);
        arguments.output = tensor("output");
        return ref::rule_nsa_compress(arguments);
    }

    std::string describe(const Spec& spec, const std::string& tensor,
                         const std::vector<std::int64_t>& index) const override {
        if (tensor.starts_with("weight"))
            return fmt::format("window position {}, head {}", index[0], index[1]);
        const bool compressed = tensor.starts_with("output");
        const auto starts = row_starts(compress_shape(spec), compressed);
        const auto after = std::upper_bound(starts.begin(), starts.end(), index[0]);
        const std::size_t sequence = static_cast<std::size_t>(after - starts.begin()) - 1;
        if (sequence + 1 == starts.size())
            return fmt::format("row {} beyond the last sequence, head {}, channel {}", index[0],
                               index[1], index[2]);
        return fmt::format("sequence {}, {} {}, head {}, channel {}", sequence,
                           compressed ? "block" : "token", index[0] - starts[sequence], index[1],
                           index[2]);
    }

private:
    /// "all.KEY=VALUE": a field at a value that may be illegal, in every shape and argument that
    /// follows from it.
    void apply_everywhere(const std::string& edit, Spec& spec, ref::Dtype& dtype) const {
        if (!edit.starts_with("all.")) return;
        const auto equals = edit.find('=');
        const std::string key = edit.substr(4, equals == std::string::npos ? equals : equals - 4);
        const int field = schema_.number(key);
        std::int64_t value = -1;
        if (equals != std::string::npos)
            std::from_chars(edit.data() + equals + 1, edit.data() + edit.size(), value);
        constexpr std::int64_t kLargest = 4096;  // buffers are really laid out
        if (field < 0 || field > kCmpStride || value < 0 || value > kLargest)
            throw std::invalid_argument(fmt::format(
                "case: break entry '{}', expected all.dtype, all.heads, all.dim, all.block or "
                "all.stride and a value in 0..{}",
                edit, kLargest));
        if (field == kCmpDtype) {
            if (value != ATTNCHECK_FLOAT32 && value != ATTNCHECK_FLOAT16 &&
                value != ATTNCHECK_BFLOAT16)
                throw std::invalid_argument(
                    fmt::format("case: break entry '{}' knows the dtypes 0, 1 and 27", edit));
            dtype = static_cast<ref::Dtype>(value);
        } else {
            spec.numbers[static_cast<std::size_t>(field)] = value;
        }
    }

    void fill(const Spec& spec, int index, Tensor& tensor) const {
        const DataRole role{index, schema_.tensors[index].name == "weight", tensor.buffer_shape[0]};
        const std::int64_t total = static_cast<std::int64_t>(tensor.elements());
        tensor.bits.resize(static_cast<std::size_t>(total));
        const auto& shape = tensor.buffer_shape;
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
            if (ref.tensor != index) continue;
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

    bool gradient_;
    Schema schema_;
    std::vector<Property> properties_;
    std::vector<RequiredClass> required_;
};

}  // namespace

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
