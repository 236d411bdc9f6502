// The law of exact data, for every operator that is compared with a reference.
#pragma once

#include <functional>

#include "properties/laws/property.h"
#include "ref/attention/dense_attention.h"

namespace attncheck::properties {

/// Compares the outputs of a case with what the reference allows under a grant.
using Agreement = std::function<Verdict(const Spec&, PropertyContext&, ref::Grant)>;

/// The law `exact_lattice`; its cases, which have such data, are left to the operator.
Property exact_lattice_property(Agreement agreement);

}  // namespace attncheck::properties
