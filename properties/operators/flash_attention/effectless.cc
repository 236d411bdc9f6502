// Arguments of flash attention that have no effect, by contract decision 8.
#include <fmt/format.h>

#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

void add_values(const char* name, std::initializer_list<Int> values, std::vector<Edit>& out) {
    for (const Int value : values) out.emplace_back(fmt::format("{}={}", name, value));
}

}  // namespace

std::vector<Edit> effectless_flash_edits(const Spec& spec) {
    std::vector<Edit> out;
    for (const IntegerField& field : spec.schema->integers)
        if (field.inert) add_values(field.name.c_str(), {0, 1, 2, 3, 4, -1, 1 << 20}, out);
    if (spec.numbers[kFaMask] == 0) {  // the mode is checked, and nothing hides
        add_values("sparse_mode", {0, 1, 2, 3, 4, 6, 7, 8}, out);
        add_values("pre_tokens", {-1, 0, 1, -1000, INT64_MIN + 1, INT64_MAX}, out);
        add_values("next_tokens", {-1, 0, 1, -1000, INT64_MIN + 1, INT64_MAX}, out);
    }
    if (spec.numbers[kFaDrop] != 0) add_values("drop_mask.spare", {1, 7, 64}, out);
    const auto start = static_cast<FlashStart>(spec.numbers[kFaStart]);
    if (spec.numbers[kFaSparse] != 8 || spec.numbers[kFaMask] == 0) {  // one alone does not count
        if (start == FlashStart::query) add_values("q_start_idx[0]", {0, -7, 1 << 20}, out);
        if (start == FlashStart::key) add_values("kv_start_idx[0]", {0, -7, 1 << 20}, out);
    }
    return out;
}

}  // namespace attncheck::properties
