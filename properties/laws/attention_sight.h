// The keys that each row of an attention problem sees, by its column lister.
//
// Keys are numbered [T2,N2], rows [T1,N1], both row * heads + head.
#pragma once

#include <functional>
#include <vector>

#include "properties/judge/attention_problem.h"
#include "properties/judge/context.h"

namespace attncheck::properties {

/// Whether a dropped key counts as seen: its logit does, its value does not.
enum class Drops { counted, left_out };

/// Number of the key of a column among [T2,N2].
inline std::size_t key_number(const AttentionProblem& problem, const ref::KeyColumn& column,
                              std::int64_t query_head) {
    return static_cast<std::size_t>(column.key * problem.shape.kv_heads +
                                    query_head / problem.shape.group());
}

/// Calls visit(row of T1, head, columns) for every row of a sequence.
void for_each_row(const AttentionProblem& problem,
                  const std::function<void(std::int64_t t, std::int64_t n,
                                           const std::vector<ref::KeyColumn>& columns)>& visit);

/// Keys that some row sees, that one row of one head sees, and that any head of a row sees.
std::vector<char> seen_keys(const AttentionProblem& problem);
std::vector<char> keys_seen_by(const AttentionProblem& problem, std::int64_t t, std::int64_t head,
                               Drops drops = Drops::counted);
std::vector<char> keys_seen_by(const AttentionProblem& problem, std::int64_t t);

/// Rows that see one of these keys, and those that see any.
std::vector<char> rows_that_see(const AttentionProblem& problem, const std::vector<char>& keys,
                                Drops drops = Drops::counted);
std::vector<char> rows_that_see_keys(const AttentionProblem& problem);

/// Value, and unless `value_only` key with its rope, of these keys become NaN.
void poison_keys(AttentionProblem& problem, const std::vector<char>& keys,
                 const PropertyContext& context, bool value_only = false);

/// What takes the place of a number that must not matter: NaN. A kernel that multiplies hidden keys
/// by 0 (hidden=times_zero) gets a huge number instead, whose products stay finite.
std::uint32_t poison_of(ref::Dtype dtype, const PropertyContext& context);
/// "NaN", or that number.
std::string poison_name(ref::Dtype dtype, const PropertyContext& context);

/// False where such a kernel may spread a NaN that the case has of its own.
bool is_poison_judged(const AttentionProblem& problem, const PropertyContext& context);

/// Query rows [T1] of sequences that have keys.
std::vector<std::int64_t> rows_with_keys(const AttentionProblem& problem);

}  // namespace attncheck::properties
