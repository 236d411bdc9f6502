// Pairs of classes that no legal case has, as text in operators/FOLDER/excluded_pairs.txt, which
// attncheck_pair_search writes and the build embeds. A line:
//
//   nsa_compress | fp16 | bf16 data:zeros        operator, a class, and those that it never meets
#pragma once

#include <string_view>
#include <vector>

namespace attncheck::properties {

/// Classes that no legal case of `op` has together: `one` with each of `others`, which blanks
/// separate.
struct ExcludedPairs {
    std::string_view op, one, others;
};

/// The rows of an operator, whatever folder they are in; none before a search wrote them.
std::vector<ExcludedPairs> excluded_pairs_of(std::string_view op);

}  // namespace attncheck::properties
