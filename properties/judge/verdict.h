// From results to verdicts: what every operator's properties share.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "properties/judge/compare.h"
#include "properties/operators/operator.h"

namespace attncheck::properties {

using ExpectedOutputs = std::vector<std::pair<std::string, ref::ExpectedTensor>>;

/// The verdict on a call that did not do its work: crashed, hung, declined, or rejected although
/// legal. nullopt when it returned 0.
std::optional<Verdict> verdict_unless_ok(const CallResult& result);

/// Every output against its expectation; the message shows the worst element. `index_map`, where
/// given, says which place of the original problem element i stands for (for the text only).
Verdict verdict_on_values(const Spec& spec, const Call& call, const CallResult& result,
                          const ExpectedOutputs& expected);

/// The outputs of a call as an expectation for another run of the same thing: bound = the bound of
/// the first (0 when bitwise).
enum class Demand { same_bits, within_bounds };

/// Element k of `left` against element k of `right` for one tensor. With same_bits, bit patterns
/// must be equal; NaN payloads count as equal. `where(k)` describes element k; elements for which
/// `looked_at(k)` is false are skipped.
Verdict verdict_on_same_bits(const std::string& tensor, ref::Dtype dtype,
                             const std::vector<std::uint32_t>& left,
                             const std::vector<std::uint32_t>& right, const std::string& relation,
                             const std::function<std::string(std::size_t)>& where,
                             const std::function<bool(std::size_t)>& looked_at = {});

/// |left - right| <= bound_left + bound_right where both are finite and meant to be.
Verdict verdict_on_difference(const std::string& tensor, const std::vector<double>& left,
                              const std::vector<double>& right, const std::vector<double>& bound,
                              const std::string& relation,
                              const std::function<std::string(std::size_t)>& where);

using ref::decode_all;

/// Index of a tensor in the call.
std::size_t tensor_index(const Call& call, std::string_view name);

/// "[sequence 0, token 3, head 0, channel 1]" for row-major element k of a tensor of the call.
std::string place_of(const Spec& spec, const Call& call, const std::string& tensor, std::size_t k);

}  // namespace attncheck::properties
