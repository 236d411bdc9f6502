#include "selected_columns.h"

#include <algorithm>

#include "active_mutant.h"

namespace attncheck::mutants {

Columns::Columns(const SelectedProblem& problem, const SelectedPlan& plan)
    : problem_(problem),
      plan_(plan),
      count_(problem.columns()),
      list_(index(problem.block_count)),
      keys_(index(count_)),
      gathered_(index(count_)),
      visible_(index(count_)) {}

bool Columns::is_causal() const {
    if (!problem_.is_gradient && on<"NSF-19">()) return problem_.has_mask;
    const bool needs_no_mask = problem_.is_gradient ? on<"NSG-x07">() : on<"NSF-x63">();
    return plan_.sparse_mode == 2 && (problem_.has_mask || needs_no_mask);
}

bool Columns::lists(std::int64_t block) const {
    return std::find(list_.begin(), list_.end(), block) != list_.end();
}

bool Columns::repeats_earlier(std::int64_t slot) const {
    const auto here = list_.begin() + slot;
    return std::find(list_.begin(), here, *here) != here;
}

std::int64_t Columns::last_slot_with(std::int64_t block) const {
    for (std::int64_t slot = problem_.block_count; slot-- > 0;)
        if (entry(slot) == block) return slot;
    return -1;
}

void Columns::read_list(const SelectedSequence& sequence, std::int64_t s, std::int64_t kv_head) {
    const bool forward = !problem_.is_gradient;
    std::int64_t row = sequence.first_query + s;
    if (forward ? on<"NSF-x29">() : on<"NSG-x16">()) row = s;
    if (forward ? on<"NSF-x28">() : on<"NSG-x15">()) kv_head = 0;
    // A list that a defect reads for the wrong row may name blocks that are not there.
    for (std::int64_t slot = 0; slot < problem_.block_count; ++slot)
        list_[index(slot)] = *problem_.topk.at(row, kv_head, slot);
}

std::int64_t Columns::key_position(std::int64_t slot, std::int64_t r) const {
    const std::int64_t first = entry(slot) * problem_.block_size;
    if (problem_.is_gradient) return first + r;
    if (on<"NSF-01">()) return entry(slot) + r;
    if (on<"NSF-x47">()) return static_cast<std::int16_t>(first) + r;
    if (on<"NSF-x64">())
        return static_cast<std::uint16_t>((first + r) * problem_.head_dim) / problem_.head_dim;
    return first + r;
}

void Columns::place_keys(const SelectedSequence& sequence, std::int64_t s) {
    for (std::int64_t slot = 0; slot < problem_.block_count; ++slot)
        for (std::int64_t r = 0; r < problem_.block_size; ++r)
            keys_[index(slot * problem_.block_size + r)] = std::clamp<std::int64_t>(
                sequence.first_key + key_position(slot, r), 0, problem_.key_tokens - 1);
    gathered_ = keys_;
    if (on<"NSG-x35">() && problem_.is_gradient && is_causal() && s + 1 < count_)
        for (std::int64_t column = 0; column < count_; ++column)
            gathered_[index(column)] =
                std::min(sequence.first_key + column, problem_.key_tokens - 1);
}

/// A defect: what was gathered for the previous list stays.
void Columns::reuse_gathered_keys(const SelectedSequence& sequence, std::int64_t kv_head) {
    const bool hits = gathered_entry_ == entry(0) && gathered_first_key_ == sequence.first_key &&
                      gathered_head_ == kv_head;
    if (!hits) gathered_ = keys_;
    gathered_entry_ = entry(0);
    gathered_first_key_ = sequence.first_key;
    gathered_head_ = kv_head;
}

void Columns::load(const SelectedSequence& sequence, std::int64_t s, std::int64_t kv_head) {
    any_is_visible_ = false;
    std::fill(visible_.begin(), visible_.end(), 0);
    if (sequence.kv_len == 0) return;
    read_list(sequence, s, kv_head);
    if (on<"NSF-18">() && !problem_.is_gradient) {
        const std::vector<std::int64_t> previous = gathered_;
        place_keys(sequence, s);
        gathered_ = previous;
        reuse_gathered_keys(sequence, kv_head);
    } else {
        place_keys(sequence, s);
    }
    for (std::int64_t slot = 0; slot < problem_.block_count; ++slot)
        for (std::int64_t r = 0; r < problem_.block_size; ++r) {
            const std::int64_t column = slot * problem_.block_size + r;
            const bool visible = sees(sequence, s, slot, r) && !is_dropped(slot, column);
            visible_[index(column)] = visible;
            any_is_visible_ = any_is_visible_ || visible;
        }
}

bool Columns::sees(const SelectedSequence& sequence, std::int64_t s, std::int64_t slot,
                   std::int64_t r) const {
    const std::int64_t position = entry(slot) * problem_.block_size + r;
    if (is_causal()) {
        if (on<"NSF-x10">() && !problem_.is_gradient && mask_hides(sequence, s, position))
            return false;
        return sees_causally(sequence, s, slot, r);
    }
    if (!problem_.has_mask || plan_.sparse_mode != 0) return true;
    return !mask_hides(sequence, s, position);
}

bool Columns::sees_causally(const SelectedSequence& sequence, std::int64_t s, std::int64_t slot,
                            std::int64_t r) const {
    const bool forward = !problem_.is_gradient;
    std::int64_t last = s;
    if (forward ? on<"NSF-x02">() : on<"NSG-x02">()) last = s - 1;
    if (forward ? on<"NSF-x11">() : on<"NSG-x06">())
        last = s + sequence.kv_len - sequence.query_len;
    if (forward && on<"NSF-x50">()) last = sequence.first_query + s;
    const bool usual = entry(slot) * problem_.block_size + r <= last;
    const bool is_future = entry(slot) > s / problem_.block_size;
    if ((forward ? on<"NSF-x49">() : on<"NSG-x53">()) && is_future) return true;
    return forward ? sees_forward(s, slot, r, usual) : sees_backward(s, slot, r, usual);
}

/// Defects of the forward inside the diagonal block, and in how many slots are processed.
bool Columns::sees_forward(std::int64_t s, std::int64_t slot, std::int64_t r, bool usual) const {
    const std::int64_t size = problem_.block_size, diagonal = s / size;
    if (on<"NSF-20">() && slot >= (s + size) / size) return false;
    if (on<"NSF-x66">() && slot >= (s + size - 1) / size) return false;
    if (entry(slot) != diagonal) return usual;
    if (on<"NSF-04">()) return usual || slot != problem_.block_count - 1;
    if (on<"NSF-08">()) return r % 32 <= s % size % 32;
    if (on<"NSF-x03">()) return usual || repeats_earlier(slot);
    if (on<"NSF-x04">()) return usual || slot != last_slot_with(diagonal);
    return usual;
}

/// Defects of the gradient that judge a slot by its place in the list.
bool Columns::sees_backward(std::int64_t s, std::int64_t slot, std::int64_t r, bool usual) const {
    const std::int64_t size = problem_.block_size, diagonal = s / size;
    const std::int64_t last = last_slot_with(diagonal);
    if (on<"NSG-x35">() && s + 1 < count_) return slot * size + r <= s;
    if (on<"NSG-06">() && entry(slot) == diagonal) return usual || slot != last;
    if (on<"NSG-05">() && last >= 0) {
        if (slot == last) return usual;
        return slot < last || s + 1 >= count_;
    }
    if (on<"NSG-07">()) {
        const std::int64_t begin = slot / 8 * 8, end = std::min(begin + 8, problem_.block_count);
        const auto group_end = list_.begin() + end;
        const bool has_diagonal =
            std::find(list_.begin() + begin, group_end, diagonal) != group_end;
        if (!has_diagonal) return s >= 8 * size;
    }
    return usual;
}

bool Columns::mask_hides(const SelectedSequence& sequence, std::int64_t s,
                         std::int64_t position) const {
    const bool forward = !problem_.is_gradient;
    if (plan_.sparse_mode == 0 && (forward ? on<"NSF-x05">() : on<"NSG-x03">())) return false;
    const auto& mask = problem_.mask;
    const std::int64_t rows = mask.shape[0], columns = mask.shape[1];
    std::int64_t row = s, column = position;
    if (forward ? on<"NSF-x08">() : on<"NSG-x04">())
        row = (sequence.first_query + s) % std::max<std::int64_t>(rows, 1);
    std::int64_t element = -1;  // in row-major order, where a defect addresses it so
    if (on<"NSF-x07">() && forward) element = column * rows + row;
    if (forward ? on<"NSF-x09">() : on<"NSG-x05">()) element = s * sequence.kv_len + column;
    if (element >= 0 && columns > 0) {
        row = element / columns;
        column = element % columns;
    }
    // Outside the tensor only in mode 2, where the contents do not count, and under a defect.
    if (row >= rows || column >= columns || column < 0) return false;
    const std::uint8_t byte = *mask.at(row, column);
    if (on<"NSF-x06">() && forward) return byte == 0;
    if (on<"NSF-x51">() && forward) return byte == 1;
    return byte != 0;
}

/// Columns that a defect leaves out altogether.
bool Columns::is_dropped(std::int64_t slot, std::int64_t column) const {
    if (problem_.is_gradient) return on<"NSG-x01">() && repeats_earlier(slot);
    if (on<"NSF-x01">()) return repeats_earlier(slot);
    if (on<"NSF-x20">()) return column >= count_ / 32 * 32;
    if (on<"NSF-x21">()) return slot == problem_.block_count - 1;
    return false;
}

bool Columns::is_visible_to(std::int64_t group_head, std::int64_t column) const {
    if (!on<"NSF-09">() || problem_.is_gradient || !is_causal()) return is_visible(column);
    // The mask of every head is written into the logits [G, B*K] with a row stride that has lost
    // its upper bits.
    const std::int64_t stride = (count_ / 8) % 256 * 8, target = group_head * count_ + column;
    for (std::int64_t head = 0; head < problem_.group_size(); ++head) {
        const std::int64_t masked = target - head * stride;
        if (masked >= 0 && masked < count_ && !is_visible(masked)) return false;
    }
    return true;
}

}  // namespace attncheck::mutants
