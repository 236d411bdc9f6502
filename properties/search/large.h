// verify --large: the property `sampled` on a few cases of full size, one after the other, with
// the rows that were compared and the chance of a miss.
#pragma once

#include <iosfwd>

#include "properties/search/run.h"

namespace attncheck::properties {

/// Tokens of the longest causal case unless asked otherwise; docs/full_size.md says how long its cases take.
inline constexpr std::int64_t kLargeLength = 16'384;
inline constexpr std::int64_t kLongestLarge = 65'536;

/// Fills report.properties, one entry for each operator that has such cases. A failure is looked
/// for in smaller cases of the same kind, and shrunk from there as any other. Cases run in a process
/// of their own, as in verify_side_by_side.
void verify_large(const CandidateInfo& info,
                  const std::function<std::unique_ptr<Candidate>()>& open,
                  const VerifyOptions& options, std::int64_t length, const Clock& clock,
                  RunReport& report, std::ostream& out);

/// Smaller versions of a case, smallest first: all lengths cut, some with what is left of a tile
/// kept.
std::vector<Spec> smaller_versions(const Spec& spec);

/// The operator whose outputs this one is given, when it is a gradient with a property `sampled`;
/// else empty.
std::string forward_of(const Operator& op);

}  // namespace attncheck::properties
