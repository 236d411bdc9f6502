// Values of query, key, value and the output's gradient of an attention operator, with the
// structure that query and key get so that logits are equal, led by some keys, or far below zero.
// Every value is a function of the seed and the logical index.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "properties/case/data.h"
#include "properties/case/description.h"
#include "properties/case/spec.h"

namespace attncheck::properties {

/// Place of an element: tensor by its number, the others by the index of `set`.
struct InputElement {
    int tensor = 0;
    Role role = Role::other;
    std::int64_t row = 0, head = 0, channel = 0;
};

/// Keys that lead a row where no lists depend on it: one of each 2^k, the first or the last, 2^k up to 16384 and no
/// longer than the sequence. One key lost, doubled or hidden at the edge of a tile or of a part of a long row then takes
/// a share of the row that no bound has room for.
bool leads_in_steps(std::uint64_t seed, std::int64_t position, std::int64_t length);

/// What every operator draws in another way.
struct InputRecipe {
    double scale = 1;  ///< narrowed to fp32
    std::function<std::uint64_t(const InputElement&)> hash;  ///< for whole numbers
    /// Whether a key leads by 200 and more, where the field `logits` wants that; `first` and
    /// `length` are the rows of its sequence.
    std::function<bool(std::int64_t position, std::int64_t first, std::int64_t length,
                       std::int64_t head)>
        leads;
    bool shapes_rows_beyond = true;  ///< key rows behind the last sequence are shaped like one
    /// The rows of the keys of each sequence, by position; nothing: sequence after sequence.
    std::optional<std::vector<std::vector<std::int64_t>>> key_rows = {};
    /// Instead of the recipe; nullopt: the recipe's.
    std::function<std::optional<double>(const InputElement&)> own = {};
};

/// The bits of the inputs with an index [row, head, channel], by the number of the tensor;
/// overrides are not applied.
std::vector<std::vector<std::uint32_t>> attention_inputs(const Spec& spec,
                                                         const InputRecipe& how);

/// A hash of two places of a tensor that is not filled by row, head and channel.
std::uint64_t pair_hash(std::uint64_t seed, std::uint64_t a, std::uint64_t b = 0);
/// Which pairs of a query and a key a written mask hides: some rows see nothing; of the others a share of the case's own,
/// the keys of a padding at either end, or whole blocks.
class HiddenPairs {
public:
    HiddenPairs(std::uint64_t seed, std::uint64_t salt, std::size_t columns);
    /// Of the pair at this place, row-major.
    bool operator()(std::size_t place) const;

private:
    enum class Form { any, front, back, blocks } form_ = Form::any;
    std::uint64_t seed_, salt_, percent_;
    std::size_t columns_, tile_ = 1, edge_ = 0;  ///< the first key of the padding behind, or the first one seen
};

/// The hash of an element by its tensor, row, head and channel.
std::function<std::uint64_t(const InputElement&)> indexed_hash(std::uint64_t seed);

/// -reach .. reach from a hash.
double whole_number(std::uint64_t hash, std::int64_t reach);

}  // namespace attncheck::properties
