// Required classes of an operator: what a run generated against the quotas, and the pairs it reached.
#pragma once

#include "properties/operators/operator.h"
#include "properties/report/class_coverage.h"

namespace attncheck::properties {

/// Of an operator whose cases are all taken by a candidate of this class.
ClassQuotas quotas_of(const Operator& op, const ref::RoundingClass& rounding = {});

/// Of a candidate that takes only some cases: of the classes that these have, each must be met.
ClassQuotas quotas_of(const TakenCases& taken);

/// Adds the entry "required_classes" of an operator, judged over what was generated for it.
void judge_classes(const Operator& op, RunReport& report);

/// Adds the entry "required_clauses" of an operator whose validation ran with planned cases: each
/// clause of the documented constraints must have decided one. The clauses are those of the default
/// profile. Those of a shard are judged when it is merged with the others.
void judge_clauses(const Operator& op, RunReport& report);

/// Adds which pairs of the operator's classes the run reached, unless it had no cases of it.
void count_pairs(const Operator& op, RunReport& report);

}  // namespace attncheck::properties
