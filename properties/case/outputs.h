// Optional outputs: what a candidate does not give is neither passed (data == NULL) nor judged.
// The description of an operator marks them (TensorField::optional), a case names the outputs that
// it asks for, "outputs=attention_out", and a candidate declares those that it gives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/description.h"

namespace attncheck::properties {

struct Call;

/// The bit of an output in Spec::withheld.
std::uint64_t withheld_bit(const Description& description, std::string_view output);
/// The optional outputs that a list "attention_out,softmax_max" leaves out. Outputs that are not
/// optional need not be listed. Throws std::invalid_argument on a name that is no output.
std::uint64_t withheld_by(const Description& description, std::string_view given);
/// The list of the outputs that are left.
std::string given_outputs(const Description& description, std::uint64_t withheld);
std::vector<std::string> withheld_names(const Description& description, std::uint64_t withheld);

/// The call without these outputs. The rules take them as given.
void withhold(const std::vector<std::string>& outputs, Call& call);

}  // namespace attncheck::properties
