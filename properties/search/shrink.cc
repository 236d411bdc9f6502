#include "properties/search/shrink.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "properties/search/element_shrinks.h"
#include "properties/search/neighbour_list.h"

namespace attncheck::properties {
namespace {

/// Elements a case may be written out to. Beyond it, extents have to shrink first.
constexpr std::size_t kMaxWrittenOut = 20'000;

class Lister {
public:
    Lister(const Spec& spec, const Operator& op, const std::function<bool(const Spec&)>& domain)
        : spec_(spec),
          base_(std::make_shared<const Spec>(spec)),
          frame_(spec),
          op_(op),
          out_(spec, op, domain) {
        frame_.overrides.clear();
    }

    std::vector<Neighbour> list() {
        if (!spec_.overrides.empty()) {
            add_element_neighbours(base_, op_, out_);
            simplify_attributes();
        } else {
            simplify_attributes();
            add_written_out();
        }
        return out_.take();
    }

private:
    /// Adds `to`, a changed frame_, with the overrides as they are.
    void add_frame(Spec to) {
        out_.add([base = base_, to = std::move(to)] {
            Spec whole = to;
            whole.overrides = base->overrides;
            return whole;
        });
    }

    /// Adds `to`, a changed frame_, with overrides that no longer fit dropped, and, where that
    /// loses some, also with them moved to the last element that is left: a defect at the end of a
    /// dimension stays at its end.
    void add_resized(Spec to, std::vector<int> kept = {}) {
        if (kept.empty() && !spec_.lists.empty()) {
            kept.resize(to.lists[0].size());
            std::iota(kept.begin(), kept.end(), 0);
        }
        to.overrides.clear();
        out_.add([base = base_, to, kept, op = &op_]() -> std::optional<Spec> {
            Spec fitted = to;
            if (op->illegal(fitted)) return std::nullopt;
            op->carry_overrides(*base, fitted, kept);
            return fitted;
        });
        if (spec_.overrides.empty()) return;
        out_.add([base = base_, to, op = &op_]() -> std::optional<Spec> {
            Spec clamped = to;
            if (op->illegal(clamped)) return std::nullopt;
            const auto shapes = op->shapes(clamped);
            std::map<ElementRef, double> moved;
            for (const auto& [from_ref, value] : base->overrides) {
                ElementRef ref = from_ref;
                const auto& shape = shapes[static_cast<std::size_t>(ref.tensor)];
                bool fits = true;
                for (std::size_t dim = 0; dim < shape.size(); ++dim) {
                    if (shape[dim] == 0) fits = false;
                    ref.index[dim] = std::min(ref.index[dim], shape[dim] - 1);
                }
                if (fits) moved[ref] = value;
            }
            clamped.overrides = std::move(moved);
            return clamped;
        });
    }

    void simplify_attributes() {
        for (std::size_t i = 0; i < spec_.edits.size() && spec_.edits.size() > 1; ++i) {
            Spec to = frame_;
            to.edits.erase(to.edits.begin() + static_cast<std::ptrdiff_t>(i));
            add_frame(to);
        }
        smallest();
        drop_sequences();
        for (Spec& to : op_.joint_shrinks(frame_)) add_resized(std::move(to));
        lower_numbers();
        shorten_sequences();
        plainer_layouts();
        for (int recipe = 0; recipe < static_cast<int>(spec_.recipe); ++recipe) {
            Spec to = frame_;
            to.recipe = static_cast<Recipe>(recipe);
            add_frame(to);
        }
        if (spec_.numbers[0] > 0) {
            Spec to = frame_;
            to.numbers[0] = 0;
            add_frame(to);
        }
        for (std::uint64_t seed = 0; seed < std::min<std::uint64_t>(spec_.seed, 4); ++seed) {
            Spec to = frame_;
            to.seed = seed;
            add_frame(to);
        }
    }

    /// All numbers at their minimum at once: often the answer, and cheap to try.
    void smallest() {
        Spec to = frame_;
        for (std::size_t i = 1; i < to.numbers.size(); ++i)
            to.numbers[i] = op_.schema().numbers[i].min;
        add_resized(to);
        for (std::size_t i = 0; i < to.layouts.size(); ++i) to.layouts[i] = Layout::dense;
        add_resized(to);
    }

    /// Lists that have one entry per sequence change together.
    void drop_sequences() {
        if (op_.schema().parallel_lists) {
            drop_from(all_lists());
            return;
        }
        for (std::size_t list = 0; list < spec_.lists.size(); ++list) drop_from({list});
    }

    std::vector<std::size_t> all_lists() const {
        std::vector<std::size_t> all(spec_.lists.size());
        std::iota(all.begin(), all.end(), std::size_t{0});
        return all;
    }

    void drop_from(const std::vector<std::size_t>& lists) {
        const std::size_t size = spec_.lists[lists.front()].size();
        if (size < 2) return;
        for (std::size_t chunk = size - 1; chunk >= 1; chunk = chunk == 1 ? 0 : chunk / 2)
            for (std::size_t start = 0; start + chunk <= size; ++start) {
                Spec to = frame_;
                std::vector<int> kept;
                for (std::size_t i = 0; i < size; ++i)
                    if (i < start || i >= start + chunk) kept.push_back(static_cast<int>(i));
                for (const std::size_t list : lists) {
                    auto& entries = to.lists[list];
                    entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(start),
                                  entries.begin() + static_cast<std::ptrdiff_t>(start + chunk));
                }
                add_resized(to, kept);
            }
        for (std::size_t i = 0; i + 1 < size; ++i) {  // merge neighbours: the total stays
            Spec to = frame_;
            for (const std::size_t list : lists) {
                auto& entries = to.lists[list];
                entries[i] += entries[i + 1];
                entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i) + 1);
            }
            add_frame(to);
        }
    }

    void lower_numbers() {
        for (std::size_t i = 1; i < spec_.numbers.size(); ++i) {
            const NumberField& field = op_.schema().numbers[i];
            const std::int64_t value = spec_.numbers[i], steps = (value - field.min) / field.step;
            if (steps <= 0) continue;
            std::vector<std::int64_t> lower{0};
            for (std::int64_t k = steps / 2; k > 0; k /= 2) lower.push_back(k);
            for (std::int64_t k = 1; k <= std::min<std::int64_t>(8, steps); ++k) lower.push_back(k);
            for (std::int64_t k = 1; k <= std::min<std::int64_t>(8, steps); ++k)
                lower.push_back(steps - k);
            std::vector<std::int64_t> seen;
            for (const auto k : lower) {
                if (k < 0 || k >= steps || std::find(seen.begin(), seen.end(), k) != seen.end())
                    continue;
                seen.push_back(k);
                Spec to = frame_;
                to.numbers[i] = field.min + k * field.step;
                add_resized(to);
                for (const std::size_t partner : equal_to(i)) {
                    Spec both = to;
                    both.numbers[partner] = to.numbers[i];
                    add_resized(both);
                }
            }
        }
    }

    /// Later fields of the same kind and value, such as the width of the values: a kernel may take only equal ones.
    std::vector<std::size_t> equal_to(std::size_t i) const {
        const auto& fields = op_.schema().numbers;
        std::vector<std::size_t> partners;
        for (std::size_t j = i + 1; j < fields.size(); ++j)
            if (fields[i].names.empty() && fields[j].names.empty() &&
                fields[i].min == fields[j].min && fields[i].max == fields[j].max &&
                fields[i].step == fields[j].step && fields[i].word == fields[j].word &&
                spec_.numbers[i] == spec_.numbers[j])
                partners.push_back(j);
        return partners;
    }

    void shorten_sequences() {
        for (std::size_t list = 0; list < spec_.lists.size(); ++list) {
            const auto& entries = spec_.lists[list];
            const std::int64_t least = op_.schema().lists[list].min;
            Spec all = frame_;
            for (auto& entry : all.lists[list]) entry = std::max(least, entry / 2);
            add_resized(all);
            for (std::size_t i = 0; i < entries.size(); ++i) {
                std::vector<std::int64_t> lower{least};
                // A half and a quarter less, to the same place in a tile: step by step a long row takes hundreds.
                constexpr std::int64_t kWidestTile = 256;
                for (const std::int64_t share : {2, 4})
                    if (const std::int64_t tiles = entries[i] / (share * kWidestTile); tiles > 0)
                        lower.push_back(entries[i] - tiles * kWidestTile);
                for (const std::int64_t unit : {128, 64, 48, 32, 16})
                    if (entries[i] > unit) {
                        lower.push_back((entries[i] - 1) % unit + 1);
                        lower.push_back(entries[i] - unit);
                    }
                for (std::int64_t cut = (entries[i] - least + 1) / 2; cut > 0;
                     cut = cut == 1 ? 0 : (cut + 1) / 2)
                    lower.push_back(entries[i] - cut);
                for (const auto value : lower) {
                    if (value < least || value >= entries[i]) continue;
                    Spec to = frame_;
                    to.lists[list][i] = value;
                    add_resized(to);
                }
                if (i + 1 < entries.size() &&
                    entries[i] > least) {  // the same total, later: lexicographically smaller
                    for (const std::int64_t part : {entries[i] - least, std::int64_t{1}}) {
                        Spec to = frame_;
                        to.lists[list][i] -= part;
                        to.lists[list][i + 1] += part;
                        add_frame(to);
                    }
                }
            }
        }
    }

    void plainer_layouts() {
        Spec all = frame_;
        std::fill(all.layouts.begin(), all.layouts.end(), Layout::dense);
        add_frame(all);
        for (std::size_t i = 0; i < spec_.layouts.size(); ++i)
            for (int layout = 0; layout < static_cast<int>(spec_.layouts[i]); ++layout) {
                Spec to = frame_;
                to.layouts[i] = static_cast<Layout>(layout);
                add_frame(to);
            }
    }

    void add_written_out() {
        if (spec_.recipe == Recipe::zeros) return;
        out_.add([base = base_, op = &op_] { return written_out(*base, *op, kMaxWrittenOut); });
    }

    const Spec& spec_;
    std::shared_ptr<const Spec>
        base_;    // shared by the neighbours: a copy for each would be quadratic in the overrides
    Spec frame_;  // spec_ without its overrides
    const Operator& op_;
    NeighbourList out_;
};

}  // namespace

std::vector<Neighbour> neighbours(const Spec& spec, const Operator& op,
                                  const std::function<bool(const Spec&)>& domain) {
    return Lister(spec, op, domain).list();
}

}  // namespace attncheck::properties
