// A Call is what an entry point is passed, before it lies in memory: tensors with their logical
// values and strides, host arrays, strings and numbers. Operators build it from a Spec; properties
// transform it; a Candidate runs it.
#pragma once

#include <attncheck/candidate.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/spec.h"
#include "ref/numbers/dtype.h"

namespace attncheck::properties {

/// The dimensions of a tensor as they lie in memory, before a layout changes them.
struct DimOrder {
    /// Slowest first; one that is left out has stride 0. Nothing: row-major.
    std::optional<std::vector<std::size_t>> slowest_first = {};
    std::size_t repeated = 1;  ///< gets stride 0 by Layout::broadcast
};

struct Tensor {
    std::string name;
    bool output = false, present = true;
    bool withheld = false;  ///< an output that is not passed, though the rules take it as given
    std::int32_t dtype = ATTNCHECK_FLOAT16;
    std::int32_t rank = 0;  ///< as passed; equals shape.size() unless edited
    std::vector<std::int64_t> shape, strides;
    std::vector<std::uint32_t>
        bits;  ///< row-major over the shape the buffer was built for; inputs only
    /// Instead of bits: a dense tensor of single bytes that many calls share.
    std::shared_ptr<const std::vector<std::uint8_t>> shared_bytes;
    std::vector<std::int64_t>
        buffer_shape;  ///< the shape the memory is laid out for (edits leave it alone)
    DimOrder order;    ///< of its dimensions in memory
    /// Tensors of a call with the same number, unless it is 0, are views of one allocation.
    int allocation = 0;
    std::int64_t offset = 0;  ///< of its first element in the allocation

    std::size_t elements() const;  ///< of buffer_shape
    std::size_t element_size() const;
    ref::Dtype type() const { return static_cast<ref::Dtype>(dtype_of_buffer); }
    std::vector<double> values() const;  ///< bits widened, exact
    /// Other strides, in a separate allocation.
    void lie_alone(std::vector<std::int64_t> in_strides);
    std::int32_t dtype_of_buffer = ATTNCHECK_FLOAT16;
};

struct HostArray {
    std::string name;
    bool present = true;
    std::int64_t size = 0;  ///< as passed; equals values.size() unless edited
    std::vector<std::int64_t> values;
};

struct Text {
    std::string name;
    std::optional<std::string> value;  ///< nullopt = NULL
};

struct Number {
    std::string name;
    std::int64_t value = 0;
};

struct Real {
    std::string name;
    double value = 0;
};

struct Call {
    std::string op;
    const Description* description = nullptr;  ///< of `op`
    std::vector<Tensor> tensors;  ///< in the order of the C struct
    std::vector<HostArray> arrays;
    std::vector<Text> texts;
    std::vector<Number> numbers;
    std::vector<Real> reals;
    Profile profile = Profile::ascend910b;  ///< whose rules apply, where an operator's depend on it
    /// Of the case that it was laid out for; no field: of none.
    std::vector<std::int64_t> fields = {};
    std::vector<std::vector<std::int64_t>> lists = {};

    Tensor& tensor(std::string_view name);
    const Tensor& tensor(std::string_view name) const;
    std::int64_t number(std::string_view name) const;
    double real(std::string_view name) const;
    double& real(std::string_view name);
    const HostArray& array(std::string_view name) const;
    HostArray& array(std::string_view name);
};

/// A tensor that lies in memory as `shape` says; `bits` are given for inputs only.
Tensor make_tensor(std::string name, bool output, ref::Dtype dtype, std::vector<std::int64_t> shape,
                   std::vector<std::uint32_t> bits, Layout layout = Layout::dense,
                   DimOrder order = {});

/// Ends of consecutive sequences of these lengths, as host arrays give them.
std::vector<std::int64_t> cumulative(const std::vector<std::int64_t>& lengths);

/// The largest length; 0 when there is none.
std::int64_t longest(const std::vector<std::int64_t>& lengths);

/// First row of each sequence; the last entry is where the rows beyond the last sequence begin.
std::vector<std::int64_t> row_starts(const std::vector<std::int64_t>& lengths);

/// Offsets that Layout::far reaches, at least: neither signed nor unsigned 32 bits hold them.
inline constexpr std::int64_t kFarReach = (std::int64_t{1} << 32) + 1;

/// The dimension whose slices Layout::far spreads: the slowest one with few slices; -1 if there is
/// none, and then the tensor lies dense.
int far_dimension(std::span<const std::int64_t> shape, const DimOrder& in = {});

/// Strides (elements) of a tensor of this shape in a layout; strides of extent-1 dimensions are
/// arbitrary in `unit`.
std::vector<std::int64_t> strides_for(Layout layout, std::span<const std::int64_t> shape,
                                      const DimOrder& in = {});

/// Lowest and highest element offset a strided tensor touches; {0, -1} when it has no element.
struct Extent {
    std::int64_t lowest = 0, highest = -1;
    std::int64_t count() const { return highest - lowest + 1; }
};
Extent extent_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);

/// Element offset of each logical element in row-major order.
std::vector<std::int64_t> offsets_of(std::span<const std::int64_t> shape,
                                     std::span<const std::int64_t> strides);

/// Row-major index to coordinates.
std::vector<std::int64_t> coordinates(std::int64_t index, std::span<const std::int64_t> shape);

/// For edits that widen what is really laid out: tensors of these shapes have at most 2^27 elements
/// together. Throws std::invalid_argument otherwise.
void require_edits_fit(const std::vector<std::vector<std::int64_t>>& shapes);

/// Applies one illegal change. Throws std::invalid_argument when it names nothing of the call.
void apply_edit(Call& call, const Edit& edit);

/// True if every tensor's passed shape and dtype still lie inside the memory that was laid out for
/// it, so that a candidate that accepts the call can run it.
bool runnable_after_edits(const Call& call);

}  // namespace attncheck::properties
