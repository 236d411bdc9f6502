// The operator, and its larger steps of shrinking.
#include "properties/operators/nsa_compress_attention/case.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "properties/operators/nsa_compress_attention/problem.h"
namespace attncheck::properties {
namespace compress_attention {
namespace {

/// ceil(Cmp / M).
std::int64_t select_blocks(const Spec& spec, std::int64_t cmp) {
    const std::int64_t keys = keys_per_select(spec);
    return (cmp + keys - 1) / keys;
}

std::vector<Spec> joint_shrinks(const Spec& spec) {
    std::vector<Spec> out;
    const auto& n = spec.numbers;
    const std::int64_t count = n[kCount], keys = keys_per_select(spec);
    // Other block sizes and counts: as few keys as there may be, the same selection blocks and
    // rest, or the same keys.
    enum class Keeps { nothing, blocks, length };
    const auto with = [&](std::int64_t l, std::int64_t d, std::int64_t select, std::int64_t c,
                          Keeps keeps) {
        Spec to = spec;
        to.numbers[kBlock] = l;
        to.numbers[kStride] = d;
        to.numbers[kSelect] = select;
        to.numbers[kCount] = c;
        const std::int64_t m = select / d, least = (c - 1) * m + 1;
        for (auto& length : to.lists[1]) {
            if (length == 0) continue;
            const std::int64_t blocks = select_blocks(spec, length),
                               last = std::min(length - (blocks - 1) * keys, m);
            length = keeps == Keeps::nothing  ? least
                     : keeps == Keeps::blocks ? (blocks - 1) * m + last
                                              : std::max(length, least);
        }
        out.push_back(std::move(to));
    };
    const auto with_all = [&](std::int64_t l, std::int64_t d, std::int64_t select, std::int64_t c) {
        for (const Keeps keeps : {Keeps::nothing, Keeps::blocks, Keeps::length})
            with(l, d, select, c, keeps);
    };
    std::vector<std::int64_t> strides{16, 32, n[kStride]};  // 32: blocks that are no multiple
    strides.erase(std::unique(strides.begin(), strides.end()), strides.end());
    for (std::int64_t l = 16; l <= n[kBlock]; l += 16)
        for (const std::int64_t d : strides)
            for (std::int64_t select = (l + d - 1) / d * d; select <= n[kSelect]; select += d) {
                if (d > l || d > n[kStride]) continue;
                if (count > 1) with_all(l, d, select, 1);
                if (l != n[kBlock] || d != n[kStride] || select != n[kSelect])
                    with_all(l, d, select, count);
            }
    for (const std::int64_t c : {std::int64_t{2}, (count + 1) / 2, count - 1})
        if (c > 1 && c < count) with_all(n[kBlock], n[kStride], n[kSelect], c);
    for (std::int64_t g = 1; g < n[kGroup]; g *= 2) {
        Spec to = spec;
        to.numbers[kGroup] = g;
        out.push_back(to);
    }
    for (const std::int64_t dim : {n[kDim] / 2, n[kDim] - 1, n[kValueDim]}) {
        if (dim < 1) continue;
        Spec to = spec;
        to.numbers[kDim] = dim;
        to.numbers[kValueDim] = std::min(dim, n[kValueDim]);
        out.push_back(to);
    }
    for (const auto& [kind, contents] : {std::pair{kMask, kHides}, std::pair{kTopkMask, kForces}}) {
        Spec to = spec;
        to.numbers[kind] = to.numbers[contents] = 0;
        out.push_back(to);
    }
    for (std::size_t b = 0; b < spec.lists[0].size(); ++b) {  // an empty sequence, or the least
        Spec to = spec;
        to.lists[0][b] = to.lists[1][b] = 0;
        out.push_back(to);
        if (spec.lists[1][b] == 0) continue;
        to = spec;
        to.lists[1][b] = (count - 1) * keys + 1;
        out.push_back(to);
        to.lists[0][b] = std::min<std::int64_t>(spec.lists[0][b], 1);
        out.push_back(to);
    }
    // Rows behind the last sequence become part of it, kv heads become members of one group.
    for (const auto& [list, beyond] : {std::pair{0, kBeyondQ}, std::pair{1, kBeyondCmp}}) {
        Spec to = spec;
        to.lists[static_cast<std::size_t>(list)].back() += std::exchange(to.numbers[beyond], 0);
        out.push_back(std::move(to));
    }
    Spec to = spec;
    to.numbers[kGroup] *= std::exchange(to.numbers[kKvHeads], 1);
    out.push_back(std::move(to));
    return out;
}

}  // namespace
}  // namespace compress_attention

std::unique_ptr<Operator> make_nsa_compress_attention() {
    return make_operator({.schema = compress_attention::description(),
                          .properties = compress_attention::properties_of_attention(),
                          .required = compress_attention::required_classes(),
                          .labels = compress_attention::labels_of,
                          .draw = compress_attention::sample,
                          .joint_shrinks = compress_attention::joint_shrinks,
                          .large_cases = compress_attention::large_cases,
                          .plain = compress_attention::plain,
                          .attention = compress_attention::attention_operator});
}

}  // namespace attncheck::properties
