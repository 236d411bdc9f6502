#include "properties/operators/operator.h"

namespace attncheck::properties {

const std::vector<ExcludedPairs>& attention_excluded_pairs() {
    static const std::vector<ExcludedPairs> all = {};
    return all;
}

}  // namespace attncheck::properties
