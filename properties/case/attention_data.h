// What the attention operators' cases have in common: kinds of scales, and statistics and outputs a
// gradient is given that are not those of the reference.
#pragma once

#include <cstdint>
#include <vector>

#include "properties/case/spec.h"
#include "ref/numbers/dtype.h"

namespace attncheck::properties {

/// Of mask_field (attention_fields.h).
enum class MaskKind { absent, boolean, uint8 };

enum class ScaleKind { one, rsqrt, eighth, zero, negative, tenth, large };

/// mixed: -infinity for every other head.
enum class Sinks { none, normal, large, low, mixed };

/// What the field `sink` of a case says, fp32, one for each query head; none: nothing.
std::vector<std::uint32_t> sinks_of(const Spec& spec, std::int64_t query_heads);

/// The value of a field `dtype` of fp16, bf16 and fp32.
std::int64_t dtype_field(ref::Dtype dtype);

bool is_zero_or_missing(const Spec& spec, const char* field);
void set_if_present(Spec& spec, const char* field, std::int64_t value);

/// Numbers in the places of hidden keys that would hold a NaN or an infinity.
void with_hidden_numbers(Spec& spec);

/// The scale that an entry point is passed, in binary64.
double scale_of(ScaleKind kind, std::int64_t head_dim);

/// (m + c, l exp(-c)) with a c of the row's own: the same P from other numbers. Rows without keys
/// stay as they are.
void shift_statistics(std::vector<float>& row_max, std::vector<float>& row_sum);

/// Moves every element of an attention output by up to a half.
void perturb_output(ref::Dtype dtype, std::vector<std::uint32_t>& output);

/// Moves an element's row with its sequence when lengths change from `from` to `to`; `kept` are the
/// old numbers of the sequences that remain. False when the row is gone.
bool follow_sequence(ElementRef& element, const std::vector<std::int64_t>& from,
                     const std::vector<std::int64_t>& to, const std::vector<int>& kept);

bool is_inside(const ElementRef& element, const std::vector<std::int64_t>& shape);

}  // namespace attncheck::properties
