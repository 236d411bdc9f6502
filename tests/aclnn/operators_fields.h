// The fields of every argument struct, by type: what the tests of all variants walk over.
#ifndef ATTNCHECK_TESTS_ACLNN_OPERATORS_FIELDS_H
#define ATTNCHECK_TESTS_ACLNN_OPERATORS_FIELDS_H

#include <cstdint>
#include <vector>

#include "attncheck/candidate.h"

namespace attncheck::aclnn {

template <class Args>
struct Fields {
    std::vector<attncheck_tensor Args::*> inputs, outputs;
    std::vector<attncheck_int_array Args::*> arrays;
    std::vector<const char * Args::*> texts;
    std::vector<std::int64_t Args::*> integers;
    std::vector<double Args::*> reals;

    std::vector<attncheck_tensor Args::*> tensors() const {
        std::vector<attncheck_tensor Args::*> all = inputs;
        all.insert(all.end(), outputs.begin(), outputs.end());
        return all;
    }
};

template <class Args>
const Fields<Args>& fields();

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_TESTS_ACLNN_OPERATORS_FIELDS_H
