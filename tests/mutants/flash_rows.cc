#include "flash_rows.h"

#include <algorithm>

#include "selected_rows.h"
#include "storage.h"

namespace attncheck::mutants {

namespace {

/// Widened keys; under a defect those of the last call, if address and shape are the same.
std::shared_ptr<FlashRows> widened_keys(const FlashView& key, FlashRowDefects defects) {
    if (!on<"FA-x53">()) return std::make_shared<FlashRows>(key, defects);
    thread_local std::shared_ptr<FlashRows> last;
    thread_local FlashView last_view;
    const bool is_same = last != nullptr && last_view.tensor.data == key.tensor.data &&
                         std::equal(key.extent, key.extent + 4, last_view.extent) &&
                         std::equal(key.step, key.step + 4, last_view.step);
    if (!is_same) last = std::make_shared<FlashRows>(key, defects);
    last_view = key;
    return last;
}

float product_in_bf16(const float* a, const float* b, std::int64_t channels) {
    float sum = 0.0f;
    for (std::int64_t c = 0; c < channels; ++c) sum = round_to(Half::bf16, sum + a[c] * b[c]);
    return sum;
}

}  // namespace

FlashRowDefects flash_row_defects(const FlashProblem& problem) {
    FlashRowDefects defects;
    const bool gradient = problem.is_gradient;
    defects.flushes_subnormals = on_side<"FA-x54", "FAG-x70">(gradient);
    defects.clamps_infinities = on_side<"FA-x55", "FAG-x71">(gradient);
    defects.pads_with_garbage = on_side<"FA-x56", "FAG-x72">(gradient);
    defects.rounds_to_bf16 =
        on_side<"FA-65", "FAG-x73">(gradient) && problem.dtype == ATTNCHECK_FLOAT32;
    return defects;
}

ScratchDefects flash_scratch_defects(bool keeps_old) {
    return {keeps_old, on<"FA-ALL-10">() || on<"FA-ALL-x301">(), on<"FA-ALL-11">()};
}

FlashLogits::FlashLogits(const FlashProblem& problem, const FlashPlan& plan)
    : problem_(problem),
      plan_(plan),
      visibility_(problem, plan),
      bias_(problem, plan),
      queries_(problem.query, flash_row_defects(problem)),
      keys_(widened_keys(problem.key, flash_row_defects(problem))) {
    if (problem.rope_dim == 0) return;
    query_ropes_ = std::make_unique<FlashRows>(problem.query_rope, flash_row_defects(problem));
    key_ropes_ = std::make_unique<FlashRows>(problem.key_rope, flash_row_defects(problem));
}

FlashRow FlashLogits::row(std::int64_t b, std::int64_t head, std::int64_t i) const {
    std::int64_t kv_head = head / problem_.group_size();
    if (has<"FA-x57", "FAG-x74">()) kv_head = head % problem_.num_kv_heads;
    return {&plan_.sequences[static_cast<std::size_t>(b)], b, head, kv_head, i};
}

const float* FlashLogits::query(const FlashRow& row) {
    return queries_.row(row.sequence->batch, row.head, row.query_index());
}

const float* FlashLogits::key(const FlashRow& row, std::int64_t j) {
    return keys_->row(row.sequence->batch, row.kv_head, row.key_index(j));
}

const float* FlashLogits::query_rope(const FlashRow& row) {
    return query_ropes_->row(row.sequence->batch, row.head, row.query_index());
}

const float* FlashLogits::key_rope(const FlashRow& row, std::int64_t j) {
    const std::int64_t head = has<"FA-x58", "FAG-x75">() ? 0 : row.kv_head;
    return key_ropes_->row(row.sequence->batch, head, row.key_index(j));
}

float FlashLogits::product(const FlashRow& row, std::int64_t j) {
    std::int64_t channels = keys_->padded_channels();
    if (on_side<"FA-x59", "FAG-x76">(problem_.is_gradient))
        channels = std::min<std::int64_t>(channels, 128);
    if (on_side<"FA-x60", "FAG-x77">(problem_.is_gradient)) channels = padded(problem_.value_dim);
    if (on<"FA-63">() && !problem_.is_gradient)
        return product_in_bf16(query(row), key(row, j), channels);
    return dot(query(row), key(row, j), channels);
}

float FlashLogits::logit(const FlashRow& row, std::int64_t j) {
    float a = product(row, j);
    if (on<"FA-66">() && !problem_.is_gradient) a = round_to(Half::fp16, a);
    float unscaled = 0.0f;
    if (problem_.rope_dim > 0 && !has<"FA-x61", "FAG-x78">()) {
        const float rope = dot(query_rope(row), key_rope(row, j), padded(problem_.rope_dim));
        (has<"FA-x62", "FAG-x79">() ? unscaled : a) += rope;
    }
    if (problem_.pse_form == PseForm::none) return a * plan_.scale + unscaled;
    float pse = bias_.bias(row.b, row.head, row.i, j);
    if (has<"FA-x63", "FAG-x80">()) pse = 0.0f;
    bool adds_first = problem_.pse_type == 1;
    if (adds_first && has<"FA-45", "FAG-40">()) adds_first = false;
    if (problem_.pse_type == 0 && has<"FA-x64", "FAG-x81">()) adds_first = true;
    if (problem_.pse_type > 1 && has<"FA-x65", "FAG-x82">()) adds_first = true;
    return adds_first ? (a + pse) * plan_.scale : a * plan_.scale + pse;
}

void FlashLogits::load(const FlashRow& row, float* logits) {
    visibility_.load(row.b, row.head, row.i);
    if (!visibility_.sees_any()) return;
    for (std::int64_t j = 0; j < row.sequence->kv_len; ++j)
        if (visibility_.sees(j)) logits[j] = logit(row, j);
}

std::int64_t statistics_number(const FlashProblem& problem, const FlashRow& row) {
    const std::int64_t heads = problem.num_query_heads;
    const FlashSequence& sequence = *row.sequence;
    if (!problem.is_tnd()) {
        if (on_side<"FA-x66", "FAG-x83">(problem.is_gradient))
            return (sequence.batch * sequence.query_len + row.i) * heads + row.head;
        return (sequence.batch * heads + row.head) * sequence.query_len + row.i;
    }
    bool as_input = problem.statistics_as_input;
    if (on_side<"FA-x67", "FAG-x84">(problem.is_gradient)) as_input = true;
    if (on_side<"FA-x68", "FAG-x85">(problem.is_gradient)) as_input = false;
    if (on_side<"FA-x69", "FAG-x86">(problem.is_gradient) && !as_input)
        return row.head * problem.query_rows + row.query_index();
    if (as_input) return row.query_index() * heads + row.head;
    return sequence.first_query * heads + row.head * sequence.query_len + row.i;
}

std::int64_t statistics_number_beyond(const FlashProblem& problem, std::int64_t t,
                                      std::int64_t head) {
    return t * problem.num_query_heads + head;
}

}  // namespace attncheck::mutants
