#include "properties/search/shrink.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <set>

#include "properties/case/repetition.h"

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
          domain_(domain),
          key_(complexity(spec)) {
        frame_.overrides.clear();
    }

    std::vector<Neighbour> list() {
        if (!spec_.overrides.empty()) {
            remove_elements();
            simplify_values();
            move_elements();
            drop_signs();
            simplify_attributes();
        } else {
            simplify_attributes();
            add_written_out();
        }
        return std::move(out_);
    }

private:
    void add(std::function<std::optional<Spec>()> make) {
        out_.push_back([make = std::move(make), op = &op_, domain = &domain_,
                        key = key_]() -> std::optional<Spec> {
            std::optional<Spec> spec = make();
            if (!spec || !(complexity(*spec) < key) || op->illegal(*spec)) return std::nullopt;
            if (*domain && !(*domain)(*spec)) return std::nullopt;
            return spec;
        });
    }

    /// Adds `to`, a changed frame_, with the overrides as they are.
    void add_frame(Spec to) {
        add([base = base_, to = std::move(to)] {
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
        add([base = base_, to, kept, op = &op_]() -> std::optional<Spec> {
            Spec fitted = to;
            if (op->illegal(fitted)) return std::nullopt;
            op->carry_overrides(*base, fitted, kept);
            return fitted;
        });
        if (spec_.overrides.empty()) return;
        add([base = base_, to, op = &op_]() -> std::optional<Spec> {
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
        add([base = base_, op = &op_] { return written_out(*base, *op, kMaxWrittenOut); });
    }

    std::vector<std::pair<ElementRef, double>> elements() const {
        return {spec_.overrides.begin(), spec_.overrides.end()};
    }

    void add_elements(std::vector<std::pair<ElementRef, double>> items) {
        add([frame = frame_, items = std::move(items)]() -> std::optional<Spec> {
            Spec to = frame;
            to.overrides = {items.begin(), items.end()};
            return to;
        });
    }

    void remove_elements() {
        const auto items = elements();
        for (std::size_t chunk = items.size(); chunk >= 1; chunk = chunk == 1 ? 0 : (chunk + 1) / 2)
            for (std::size_t start = 0; start < items.size(); start += chunk)
                add([base = base_, start, chunk]() -> std::optional<Spec> {
                    Spec to = *base;
                    auto first =
                        std::next(to.overrides.begin(), static_cast<std::ptrdiff_t>(start));
                    const auto left = std::distance(first, to.overrides.end());
                    to.overrides.erase(
                        first,
                        std::next(first, std::min(left, static_cast<std::ptrdiff_t>(chunk))));
                    return to;
                });
    }

    bool integer(const ElementRef& ref) const {
        return op_.schema().tensors[static_cast<std::size_t>(ref.tensor)].integer;
    }

    static std::vector<double> simpler_values(double value) {
        std::vector<double> simpler{1, -1, 2, -2, 3, 4, 8, 0.5};
        if (std::isfinite(value)) {
            simpler.push_back(std::trunc(value));
            simpler.push_back(std::round(value));
            int exponent = 0;
            const double mantissa = std::frexp(value, &exponent);
            simpler.push_back(std::ldexp(mantissa < 0 ? -0.5 : 0.5, exponent));
            for (const int bits : {2, 3, 4, 6})
                simpler.push_back(
                    std::ldexp(std::trunc(std::ldexp(mantissa, bits)), exponent - bits));
        } else {
            simpler.push_back(std::numeric_limits<double>::infinity());
            simpler.push_back(-std::numeric_limits<double>::infinity());
        }
        std::erase_if(simpler, [&](double v) {
            return v == 0 || value_complexity(v) >= value_complexity(value);
        });
        return simpler;
    }

    void simplify_values() {
        const auto items = elements();
        for (const double all : {1.0, 2.0}) {
            auto changed = items;
            for (auto& [ref, value] : changed)
                if (!integer(ref)) value = std::signbit(value) && !std::isnan(value) ? -all : all;
            add_elements(std::move(changed));
        }
        if (items.size() > 64) return;
        for (std::size_t i = 0; i < items.size(); ++i)
            for (const double simpler : simpler_values(items[i].second)) {
                if (integer(items[i].first) && simpler != std::trunc(simpler)) continue;
                auto changed = items;
                changed[i].second = simpler;
                add_elements(std::move(changed));
            }
    }

    /// All at once, where a product of two keeps its sign. Late, because rounding depends on signs.
    void drop_signs() {
        auto positive = elements();
        for (auto& [ref, value] : positive) value = std::fabs(value);
        add_elements(std::move(positive));
    }

    void move_elements() {
        const auto items = elements();
        if (items.size() > 64) return;
        const auto moved = [&](const auto& selects, std::size_t dim, auto&& to) {
            auto changed = items;
            for (auto& [ref, value] : changed)
                if (selects(ref)) ref.index[dim] = to(ref.index[dim]);
            std::map<ElementRef, double> distinct(changed.begin(), changed.end());
            if (distinct.size() == items.size()) add_elements(std::move(changed));
        };
        const auto zero = [](std::int64_t) { return std::int64_t{0}; };
        const auto half = [](std::int64_t i) { return i / 2; };
        const auto less = [](std::int64_t i) { return i > 0 ? i - 1 : i; };
        for (std::size_t dim = 0; dim < kMaxRank; ++dim) {
            const auto every = [](const ElementRef&) { return true; };
            moved(every, dim, zero);
            moved(every, dim, less);
            for (int tensor = 0; tensor < static_cast<int>(spec_.layouts.size()); ++tensor) {
                const auto of_tensor = [tensor](const ElementRef& ref) {
                    return ref.tensor == tensor;
                };
                moved(of_tensor, dim, zero);
                moved(of_tensor, dim, less);
            }
            for (const auto& [chosen, value] : items) {
                if (chosen.index[dim] == 0) continue;
                const auto only = [chosen = chosen](const ElementRef& ref) {
                    return ref == chosen;
                };
                moved(only, dim, zero);
                moved(only, dim, half);
                moved(only, dim, less);
            }
            std::set<std::int64_t> coordinates;  // a channel of query and key moves in both
            for (const auto& item : items) coordinates.insert(item.first.index[dim]);
            for (const std::int64_t from : coordinates)
                for (const std::int64_t to : {std::int64_t{0}, from - 1})
                    if (to >= 0)
                        moved([=](const ElementRef& ref) { return ref.index[dim] == from; }, dim,
                              [=](std::int64_t) { return to; });
        }
    }

    const Spec& spec_;
    std::shared_ptr<const Spec>
        base_;    // shared by the neighbours: a copy for each would be quadratic in the overrides
    Spec frame_;  // spec_ without its overrides
    const Operator& op_;
    const std::function<bool(const Spec&)>& domain_;
    std::vector<std::int64_t> key_;
    std::vector<Neighbour> out_;
};

}  // namespace

std::vector<Neighbour> neighbours(const Spec& spec, const Operator& op,
                                  const std::function<bool(const Spec&)>& domain) {
    return Lister(spec, op, domain).list();
}

std::optional<Spec> written_out(const Spec& spec, const Operator& op, std::size_t max_elements) {
    Spec plain = spec;
    plain.edits.clear();
    const auto shapes = op.shapes(plain);
    std::size_t total = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        if (op.schema().tensors[i].output || op.schema().tensors[i].derived) continue;
        std::size_t count = 1;
        for (const auto extent : shapes[i]) count *= static_cast<std::size_t>(extent);
        total += count;
    }
    if (total > max_elements) return std::nullopt;
    const std::vector<Tensor> tensors = op.logical_tensors(plain);
    Spec to = spec;
    to.recipe = Recipe::zeros;
    to.overrides.clear();
    Spec frame = plain;  // what is not written is zero, but in masks, which hide nothing then
    frame.recipe = Recipe::zeros;
    frame.overrides.clear();
    const std::vector<Tensor> blank = op.logical_tensors(frame);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const Tensor& tensor = tensors[i];
        if (tensor.output || op.schema().tensors[i].derived) continue;
        const std::vector<double> values = tensor.values();
        const Repetition repetition(spec.layouts[i], op.schema().tensors[i], extents_of(plain));
        for (std::size_t k = 0; k < values.size(); ++k) {
            if (tensor.bits[k] == 0 && blank[i].bits[k] == 0) continue;
            const auto index = coordinates(static_cast<std::int64_t>(k), tensor.buffer_shape);
            if (repetition.first_of(k) != k) continue;
            ElementRef ref;
            ref.tensor = static_cast<int>(i);
            std::copy(index.begin(), index.end(), ref.index.begin());
            to.overrides[ref] = values[k];
        }
    }
    return to;
}

}  // namespace attncheck::properties
