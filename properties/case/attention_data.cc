#include "properties/case/attention_data.h"

#include <algorithm>
#include <cmath>

#include "properties/case/attention_inputs.h"
#include "properties/case/call.h"
#include "properties/case/random.h"

namespace attncheck::properties {

std::vector<std::uint32_t> sinks_of(const Spec& spec, std::int64_t query_heads) {
    const auto kind = static_cast<Sinks>(spec.number("sink"));
    std::vector<std::uint32_t> bits;
    if (kind == Sinks::none) return bits;
    for (std::int64_t head = 0; head < query_heads; ++head) {
        double value = spec.recipe == Recipe::zeros
                           ? 0
                           : 2 * normal_of(pair_hash(spec.seed, static_cast<std::uint64_t>(head), 85));
        if (kind == Sinks::large) value += 20;
        if (kind == Sinks::low) value -= 30;
        if (kind == Sinks::mixed && head % 2 == 1) value = -HUGE_VAL;
        bits.push_back(ref::encode(ref::Dtype::fp32, value));
    }
    return bits;
}

std::int64_t dtype_field(ref::Dtype dtype) {
    return dtype == ref::Dtype::fp16 ? 0 : dtype == ref::Dtype::bf16 ? 1 : 2;
}

bool is_zero_or_missing(const Spec& spec, const char* field) {
    return spec.schema->number(field) < 0 || spec.number(field) == 0;
}

void set_if_present(Spec& spec, const char* field, std::int64_t value) {
    if (spec.schema->number(field) >= 0) spec.set(field, value);
}

void with_hidden_numbers(Spec& spec) {
    for (const char* field : {"hidden_keys", "rest"}) set_if_present(spec, field, 0);
}

double scale_of(ScaleKind kind, std::int64_t head_dim) {
    switch (kind) {
        case ScaleKind::one:
            return 1;
        case ScaleKind::rsqrt:
            return 1 / std::sqrt(static_cast<double>(head_dim));
        case ScaleKind::eighth:
            return 0.125;
        case ScaleKind::zero:
            return 0;
        case ScaleKind::negative:
            return -0.2;
        case ScaleKind::tenth:
            return 0.1;  // no fp32 number
        case ScaleKind::large:
            return 3;
    }
    return 1;
}

void shift_statistics(std::vector<float>& row_max, std::vector<float>& row_sum) {
    for (std::size_t i = 0; i < row_max.size(); ++i) {
        if (std::fabs(row_max[i]) > 1e30f) continue;  // a row without keys
        const double shift = 0.75 * static_cast<double>(mix(i) % 9) - 3;
        const float moved = static_cast<float>(row_max[i] + shift);
        const double really = static_cast<double>(moved) - static_cast<double>(row_max[i]);
        row_sum[i] = static_cast<float>(row_sum[i] * std::exp(-really));
        row_max[i] = moved;
    }
}

void perturb_output(ref::Dtype dtype, std::vector<std::uint32_t>& output) {
    for (std::size_t i = 0; i < output.size(); ++i) {
        const double noise = static_cast<double>(mix(i) % 17) / 16 - 0.5;
        output[i] = ref::encode(dtype, ref::decode(dtype, output[i]) + noise);
    }
}

bool follow_sequence(ElementRef& element, const std::vector<std::int64_t>& from,
                     const std::vector<std::int64_t>& to, const std::vector<int>& kept) {
    const auto old_starts = row_starts(from), new_starts = row_starts(to);
    const auto after = std::upper_bound(old_starts.begin(), old_starts.end(), element.index[0]);
    const auto sequence = static_cast<std::size_t>(after - old_starts.begin()) - 1;
    const std::int64_t position = element.index[0] - old_starts[sequence];
    std::size_t target = new_starts.size() - 1;  // beyond the last sequence
    if (sequence + 1 < old_starts.size()) {
        const auto it = std::find(kept.begin(), kept.end(), static_cast<int>(sequence));
        if (it == kept.end()) return false;
        target = static_cast<std::size_t>(it - kept.begin());
        if (position >= new_starts[target + 1] - new_starts[target]) return false;
    }
    element.index[0] = new_starts[target] + position;
    return true;
}

bool is_inside(const ElementRef& element, const std::vector<std::int64_t>& shape) {
    for (std::size_t dim = 0; dim < shape.size(); ++dim)
        if (element.index[dim] >= shape[dim]) return false;
    return true;
}

}  // namespace attncheck::properties
