#include "properties/search/element_shrinks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace attncheck::properties {
namespace {

class ElementLister {
public:
    ElementLister(const std::shared_ptr<const Spec>& of, const Operator& op, NeighbourList& out)
        : base_(of), frame_(*of), items_(of->overrides.begin(), of->overrides.end()), op_(op),
          out_(out) {
        frame_.overrides.clear();
    }

    void list() {
        remove_elements();
        simplify_values();
        move_elements();
        drop_signs();
    }

private:
    void add_elements(std::vector<std::pair<ElementRef, double>> items) {
        out_.add([frame = frame_, items = std::move(items)]() -> std::optional<Spec> {
            Spec to = frame;
            to.overrides = {items.begin(), items.end()};
            return to;
        });
    }

    void remove_elements() {
        for (std::size_t chunk = items_.size(); chunk >= 1; chunk = chunk == 1 ? 0 : (chunk + 1) / 2)
            for (std::size_t start = 0; start < items_.size(); start += chunk)
                out_.add([base = base_, start, chunk]() -> std::optional<Spec> {
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
        for (const double all : {1.0, 2.0}) {
            auto changed = items_;
            for (auto& [ref, value] : changed)
                if (!integer(ref)) value = std::signbit(value) && !std::isnan(value) ? -all : all;
            add_elements(std::move(changed));
        }
        if (items_.size() > 64) return;
        for (std::size_t i = 0; i < items_.size(); ++i)
            for (const double simpler : simpler_values(items_[i].second)) {
                if (integer(items_[i].first) && simpler != std::trunc(simpler)) continue;
                auto changed = items_;
                changed[i].second = simpler;
                add_elements(std::move(changed));
            }
    }

    /// All at once, where a product of two keeps its sign. Late, because rounding depends on signs.
    void drop_signs() {
        auto positive = items_;
        for (auto& [ref, value] : positive) value = std::fabs(value);
        add_elements(std::move(positive));
    }

    void move_elements() {
        if (items_.size() > 64) return;
        const auto moved = [&](const auto& selects, std::size_t dim, auto&& to) {
            auto changed = items_;
            for (auto& [ref, value] : changed)
                if (selects(ref)) ref.index[dim] = to(ref.index[dim]);
            std::map<ElementRef, double> distinct(changed.begin(), changed.end());
            if (distinct.size() == items_.size()) add_elements(std::move(changed));
        };
        const auto zero = [](std::int64_t) { return std::int64_t{0}; };
        const auto half = [](std::int64_t i) { return i / 2; };
        const auto less = [](std::int64_t i) { return i > 0 ? i - 1 : i; };
        for (std::size_t dim = 0; dim < kMaxRank; ++dim) {
            const auto every = [](const ElementRef&) { return true; };
            moved(every, dim, zero);
            moved(every, dim, less);
            for (int tensor = 0; tensor < static_cast<int>(base_->layouts.size()); ++tensor) {
                const auto of_tensor = [tensor](const ElementRef& ref) {
                    return ref.tensor == tensor;
                };
                moved(of_tensor, dim, zero);
                moved(of_tensor, dim, less);
            }
            for (const auto& [chosen, value] : items_) {
                if (chosen.index[dim] == 0) continue;
                const auto only = [chosen = chosen](const ElementRef& ref) {
                    return ref == chosen;
                };
                moved(only, dim, zero);
                moved(only, dim, half);
                moved(only, dim, less);
            }
            std::set<std::int64_t> coordinates;  // a channel of query and key moves in both
            for (const auto& item : items_) coordinates.insert(item.first.index[dim]);
            for (const std::int64_t from : coordinates)
                for (const std::int64_t to : {std::int64_t{0}, from - 1})
                    if (to >= 0)
                        moved([=](const ElementRef& ref) { return ref.index[dim] == from; }, dim,
                              [=](std::int64_t) { return to; });
        }
    }

    std::shared_ptr<const Spec>
        base_;    // shared by the neighbours: a copy for each would be quadratic in the overrides
    Spec frame_;  // the case without its overrides
    std::vector<std::pair<ElementRef, double>> items_;
    const Operator& op_;
    NeighbourList& out_;
};

}  // namespace

void add_element_neighbours(const std::shared_ptr<const Spec>& of, const Operator& op,
                            NeighbourList& out) {
    ElementLister(of, op, out).list();
}

}  // namespace attncheck::properties
