// The keys that a list names for one query and one kv head, and which of them the query sees.
#pragma once

#include <cstdint>
#include <vector>

#include "selected_problem.h"

namespace attncheck::mutants {

/// Column slot*B + r is key r of the block in that slot of the list; a block listed twice has two
/// sets of columns.
///
///   key      first_key + list[slot]*B + r
///   visible  no mask: always; mode 2: list[slot]*B + r <= s; mode 0: mask[s, list[slot]*B + r] ==
///   0
class Columns {
public:
    Columns(const SelectedProblem& problem, const SelectedPlan& plan);

    /// Query s of the sequence. A sequence without keys has no list and no visible column.
    void load(const SelectedSequence& sequence, std::int64_t s, std::int64_t kv_head);

    std::int64_t count() const { return count_; }
    std::int64_t key(std::int64_t column) const { return keys_[index(column)]; }
    /// Differs from key() only under a defect.
    std::int64_t gathered_key(std::int64_t column) const { return gathered_[index(column)]; }
    bool is_visible(std::int64_t column) const { return visible_[index(column)] != 0; }
    bool any_is_visible() const { return any_is_visible_; }
    bool is_causal() const;

    /// As is_visible; `group_head` differs only under a defect.
    bool is_visible_to(std::int64_t group_head, std::int64_t column) const;

    std::int64_t entry(std::int64_t slot) const { return list_[index(slot)]; }
    bool lists(std::int64_t block) const;
    std::int64_t last_slot_with(std::int64_t block) const;  ///< -1 if it is not listed

private:
    static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

    void read_list(const SelectedSequence& sequence, std::int64_t s, std::int64_t kv_head);
    void place_keys(const SelectedSequence& sequence, std::int64_t s);
    std::int64_t key_position(std::int64_t slot, std::int64_t r) const;
    void reuse_gathered_keys(const SelectedSequence& sequence, std::int64_t kv_head);
    bool sees(const SelectedSequence& sequence, std::int64_t s, std::int64_t slot,
              std::int64_t r) const;
    bool sees_causally(const SelectedSequence& sequence, std::int64_t s, std::int64_t slot,
                       std::int64_t r) const;
    bool sees_forward(std::int64_t s, std::int64_t slot, std::int64_t r, bool usual) const;
    bool sees_backward(std::int64_t s, std::int64_t slot, std::int64_t r, bool usual) const;
    bool mask_hides(const SelectedSequence& sequence, std::int64_t s, std::int64_t position) const;
    bool is_dropped(std::int64_t slot, std::int64_t column) const;
    bool repeats_earlier(std::int64_t slot) const;

    const SelectedProblem& problem_;
    const SelectedPlan& plan_;
    std::int64_t count_;
    std::vector<std::int64_t> list_, keys_, gathered_;
    std::vector<unsigned char> visible_;
    bool any_is_visible_ = false;

    std::int64_t gathered_entry_ = -1, gathered_first_key_ = -1, gathered_head_ = -1;
};

}  // namespace attncheck::mutants
