// Attention problems that an operator makes from its own parts: what it changes and builds
// again.
//
//   struct SelectedParts : AttentionParts { ref::SelectedAttentionShape shape; ... };
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "properties/case/attention_data.h"
#include "properties/case/attention_draws.h"
#include "properties/case/attention_inputs.h"
#include "properties/case/derived.h"
#include "properties/case/outputs.h"
#include "properties/case/values.h"
#include "properties/laws/attention_operator.h"
#include "ref/operators/packed_queries.h"

namespace attncheck::properties {

/// The values, and in a struct derived from it what the operator has beyond them.
struct AttentionParts : AttentionValues, AttentionExtras {
    std::vector<std::int64_t> fields;  ///< of the case, for what no other part says
};

/// A mask as it is passed, without its strides.
struct MaskTensor {
    bool present = false;
    ref::Dtype dtype = ref::Dtype::boolean;
    std::vector<std::int64_t> shape;
    Bits bits;

    /// Of a MaskKind, without elements; and back.
    static MaskTensor of_kind(std::int64_t kind);
    std::int64_t kind() const;

    bool at(std::int64_t row, std::int64_t column) const {
        return present && bits[static_cast<std::size_t>(row * shape[1] + column)] != 0;
    }
    /// Non-zero where something is hidden or forced; no element when absent.
    std::vector<std::uint8_t> contents() const;
    /// The upper left corner.
    void crop(std::int64_t rows, std::int64_t columns);
};

template <class Parts>
const Parts& extras_of(const AttentionProblem& problem) {
    return static_cast<const Parts&>(*problem.extras);
}

/// The parts that make such a problem, its numbers among them.
template <class Parts>
Parts parts_of(const AttentionProblem& problem) {
    Parts parts = extras_of<Parts>(problem);
    static_cast<AttentionValues&>(parts) = problem;
    return parts;
}

/// The values of the parts become the problem's, what is left its extras.
template <class Parts>
std::shared_ptr<const Parts> hold(AttentionProblem& problem, Parts parts) {
    static_cast<AttentionValues&>(problem) =
        std::exchange(static_cast<AttentionValues&>(parts), AttentionValues{});
    auto extras = std::make_shared<const Parts>(std::move(parts));
    problem.extras = extras;
    return extras;
}

/// Columns [begin, begin + width) of rows of `all` elements.
Bits columns_of(const Bits& rows, std::int64_t all, std::int64_t begin, std::int64_t width);

/// A problem whose case does not ask for an optional output.
bool withholds(const AttentionProblem& problem, std::string_view output);

/// Where the rows of outputs lie in the tensors of their call.
void place_rows(std::vector<AttentionOutput>& outputs, const Extents& extents);

/// Lengths, rows, heads and widths of a case.
void take_extents(const Extents& extents, ref::PackedShape& shape);

/// Types, extents and scale of a case, whose scale is a field of that name.
template <class Parts>
void take_case(const Spec& spec, const Extents& extents, Parts& parts) {
    parts.fields = spec.numbers;
    parts.dtype = parts.result = extents.type_of(spec.schema->tensors[0]);
    take_extents(extents, parts.shape);
    parts.scale = scale_of(static_cast<ScaleKind>(spec.number("scale")), parts.shape.head_dim);
}

/// Heads and widths in a case; all extents.
void give_heads(const ref::AttentionShape& shape, Spec& spec);
void give_extents(const ref::PackedShape& shape, Spec& spec);

/// A case with these fields; those of a gradient begin as its forward's.
Spec spec_with(const std::vector<std::int64_t>& fields, const Description& description);

/// The case of parts, with the extents of their shape.
template <class Parts>
Spec case_of(const Parts& parts, const Description& description) {
    Spec spec = spec_with(parts.fields, description);
    give_extents(parts.shape, spec);
    return spec;
}

/// A problem of this shape without values.
template <class Shape>
AttentionProblem problem_of_shape(const Shape& shape) {
    AttentionProblem problem;
    problem.shape = shape.dense();
    problem.query_lengths = shape.query_lengths;
    problem.kv_lengths = shape.kv_lengths;
    return problem;
}

/// Query head n comes from query[n], key/value head n from kv[n].
struct HeadSources {
    const std::vector<std::int64_t>&query, &kv;
};
void move_heads(AttentionValues& values, const ref::AttentionShape& shape,
                const HeadSources& sources);

/// The rows of sequence b alone.
void keep_sequence(AttentionValues& values, const AttentionProblem& problem, std::size_t b);

/// Parts with sequence b alone: values, lengths and rows.
template <class Parts>
Parts parts_of_sequence(const AttentionProblem& problem, std::size_t b) {
    Parts one = parts_of<Parts>(problem);
    keep_sequence(one, problem, b);
    one.shape.query_lengths = {problem.query_lengths[b]};
    one.shape.kv_lengths = {problem.kv_lengths[b]};
    one.shape.total_queries = problem.query_lengths[b];
    one.shape.total_keys = problem.kv_lengths[b];
    return one;
}

/// Parts with their heads moved: values and counts.
template <class Parts>
Parts parts_with_heads(const AttentionProblem& problem, const HeadSources& sources) {
    Parts to = parts_of<Parts>(problem);
    move_heads(to, problem.shape, sources);
    to.shape.query_heads = std::ssize(sources.query);
    to.shape.kv_heads = std::ssize(sources.kv);
    return to;
}

/// The values of the inputs of a case, its overrides applied; a rope stands behind the head dim.
void fill_values(const Spec& spec, const InputRecipe& how, AttentionValues& values);

/// What fields `stats` and `out` of a case do to what its gradient is given.
void alter_given(const Spec& spec, AttentionValues& values);

/// Gives the gradient of a case statistics and output: those of the reference forward, altered.
void complete_gradient(const Spec& spec, AttentionProblem& problem);

/// Statistics and output that a gradient is given, as another problem has them.
void give_the_same(const AttentionValues& from, AttentionValues& to);

/// An operator whose problems are made from parts.
template <class Parts>
class PartsOperator : public AttentionOperator {
public:
    AttentionProblem problem(const Spec& spec) const override {
        AttentionProblem made = inputs_(spec);
        complete_gradient(spec, made);
        return made;
    }
    AttentionProblem inputs(const Spec& spec) const override { return inputs_(spec); }
    Call call(const AttentionProblem& of) const override {
        Call made = call_(parts_of<Parts>(of));
        withhold(of.withheld, made);
        return made;
    }
    AttentionProblem with_heads(const AttentionProblem& of,
                                const std::vector<std::int64_t>& query,
                                const std::vector<std::int64_t>& kv) const override {
        Parts to = parts_with_heads<Parts>(of, {query, kv});
        move_extras(extras_of<Parts>(of), {query, kv}, to);
        return problem_(std::move(to));
    }

protected:
    /// From a case, a gradient without what it is given; from parts; and the call of parts.
    PartsOperator(AttentionProblem (*inputs_of)(const Spec&), AttentionProblem (*problem_of)(Parts),
                  Call (*call_of)(const Parts&))
        : inputs_(inputs_of), problem_(problem_of), call_(call_of) {}

    /// What is beyond the values, with the heads moved.
    virtual void move_extras(const Parts& from, const HeadSources& sources, Parts& to) const = 0;

private:
    AttentionProblem (*inputs_)(const Spec&);
    AttentionProblem (*problem_)(Parts);
    Call (*call_)(const Parts&);
};

/// Gives the inputs of a call their values, in the order of memory. `own` knows those that are no
/// numbers of the problem: mask, bias, drop bits, lists.
void give_values(const AttentionValues& values, const Extents& extents, Call& call,
                 const std::function<void(Role role, Tensor& tensor)>& own);

template <class Parts>
using OwnValues = void (*)(const Parts& parts, const Extents& extents, Role role, Tensor& tensor);
template <class Parts>
void give_parts(const Parts& parts, const Extents& extents, Call& call, OwnValues<Parts> own) {
    give_values(parts, extents, call,
                [&](Role role, Tensor& tensor) { own(parts, extents, role, tensor); });
}

/// The call of a case: its edits, and the values of its parts.
template <class Parts>
Call build_from_parts(const Spec& spec, Parts (*parts)(const Spec&), OwnValues<Parts> own) {
    return build_with_values(spec, [&](const Spec& of, Call& call) {
        give_parts(parts(of), extents_of(of), call, own);
    });
}

}  // namespace attncheck::properties
