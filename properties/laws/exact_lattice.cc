#include "properties/laws/exact_lattice.h"

#include <utility>

namespace attncheck::properties {
namespace {

/// Data on which softmax attention is exact: probabilities are powers of two, values small
/// integers.
/// Why     the largest logit is attained by 2^k keys and leads by 200 or more, so that P = 2^-k in
///         any arithmetic; every later sum has few bits (verification.md 4.8). Importance scores
///         are then equal to the bit or differ by 2^-k at least, and a list has one right answer.
///         In the module pooling picks one row and gates are 0, 1/2 or 1.
/// Bound   the exact number, to the bit where it can be stored and is not zero; one list.
/// Domain  integer data with equal or dominated logits and no bias; rows that are not so get the
///         usual bound.
/// Kills   every defect of index, window, mask, head, dropout bit or tail, and the order of ties,
///         without any tolerance; MOD-05 MOD-09 MOD-14.
Verdict exact_lattice(const Agreement& agreement, const Spec& spec, PropertyContext& context) {
    return agreement(spec, context, ref::Grant::lattice);
}

}  // namespace

Property exact_lattice_property(Agreement agreement) {
    return {"exact_lattice", "data with exact probabilities: equal bits, no tolerance",
            [of = std::move(agreement)](const Spec& spec, PropertyContext& context) {
                return exact_lattice(of, spec, context);
            },
            {},
            {}};
}

}  // namespace attncheck::properties
