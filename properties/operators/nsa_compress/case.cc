// The operators: what the engine asks of them, and shrinking.
#include "properties/operators/nsa_compress/case.h"

#include <algorithm>
#include <utility>

namespace attncheck::properties {
namespace {

std::vector<Spec> joint_shrinks(const Spec& spec) {
    const bool gradient = spec.schema == &compress_description(true);
    std::vector<Spec> out;
    const std::int64_t block = spec.numbers[kCmpBlock], stride = spec.numbers[kCmpStride];
    if (spec.numbers[kCmpBeyond] > 0) {  // rows behind the last sequence become part of it
        Spec to = spec;
        to.lists[0].back() += std::exchange(to.numbers[kCmpBeyond], 0);
        out.push_back(to);
        to.lists[0] = {compress_shape(spec).total_tokens};
        out.push_back(to);
    } else if (spec.lists[0].size() > 1) {  // only empty sequences, and one row behind them
        Spec to = spec;
        to.lists[0] = {0};
        to.numbers[kCmpBeyond] = 1;
        out.push_back(to);
    }
    for (std::int64_t b = spec.schema->numbers[kCmpBlock].min; b < block; b += 16)
        for (std::int64_t s = 16; s <= std::min(stride, gradient ? b - 16 : b); s += 16) {
            Spec to = spec;
            to.numbers[kCmpBlock] = b;
            to.numbers[kCmpStride] = s;
            for (auto& length : to.lists[0])
                length = std::max<std::int64_t>(0, length - (block - b));
            out.push_back(to);
            for (std::size_t i = 0; i < to.lists[0].size(); ++i)
                to.lists[0][i] = spec.lists[0][i] * b / block;
            out.push_back(to);
            to.lists[0] = spec.lists[0];
            out.push_back(to);
        }
    for (std::int64_t s = 16; s < stride;
         s += 16) {  // the same number of blocks at a smaller stride
        Spec to = spec;
        to.numbers[kCmpStride] = s;
        for (auto& length : to.lists[0]) {
            const std::int64_t over = length - block;
            if (over > 0) length = block + over / stride * s + std::min(over % stride, s - 1);
        }
        out.push_back(to);
    }
    return out;
}

}  // namespace

std::unique_ptr<Operator> make_nsa_compress(bool gradient) {
    return make_operator({.schema = compress_description(gradient),
                          .properties = compress_properties(gradient),
                          .required = compress_required_classes(gradient),
                          .labels = compress_labels,
                          .draw = sample_compress,
                          .joint_shrinks = joint_shrinks,
                          .large_cases = compress_large_cases,
                          .folder = "nsa_compress",
                          .expected = [](const Spec& spec, const ref::RoundingClass& rounding) {
                              return CompressProblem(spec).expected(rounding);
                          }});
}

}  // namespace attncheck::properties
