#include "properties/search/survey_cases.h"

#include <algorithm>
#include <map>

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

constexpr std::size_t kExtents = 9;  ///< sizes that are tried
constexpr Int kNarrowest = 16;       ///< half of the cases have at least this of a width
constexpr int kCommon = 10;          ///< one draw of so many has a common size
constexpr Int kElements = 1 << 20;   ///< of all tensors of a case

}  // namespace

const std::vector<SurveyCases::Known>& SurveyCases::known() const {
    for (std::size_t k = known_.size(); k < pool_.size(); ++k) {
        Known one{is_legal(pool_[k]), {}};
        for (const Aspect& aspect : scope_.aspects()) one.values.push_back(aspect.value(pool_[k]));
        known_.push_back(std::move(one));
    }
    return known_;
}

std::vector<Int> SurveyCases::values_of(const Aspect& aspect) const {
    std::map<Int, int> counts;
    for (const Spec& spec : pool_) ++counts[aspect.value(spec)];
    std::vector<std::pair<int, Int>> drawn;
    for (const auto& [value, count] : counts) drawn.emplace_back(-count, value);
    std::ranges::sort(drawn);
    std::vector<Int> values;
    const auto add = [&](Int value) {
        if (std::ranges::find(values, value) == values.end()) values.push_back(value);
    };
    if (aspect.is_extent) {  // the values of a kind of their own first: no window, a causal one
        for (const auto& [count, value] : drawn)
            if (-count * kCommon >= std::ssize(pool_)) add(value);
        // Of a width also the popular ones that were not drawn; groups of 96 say little of those of 3 to 8.
        const bool is_width = std::ranges::count_if(pool_, [&](const Spec& spec) { return aspect.value(spec) >= kNarrowest; }) * 2 >=
                              std::ssize(pool_);
        for (const Int value : kPopular)
            if (counts.contains(value) || is_width) add(value);
    }
    for (const auto& [count, value] : drawn) add(value);
    std::erase(values, aspect.value(anchor()));
    if (aspect.is_extent) values.resize(std::min(values.size(), kExtents));
    return values;
}

std::optional<SurveyCases::Probe> SurveyCases::with(std::size_t at, Int value,
                                                    const Spec& base) const {
    const Aspect& aspect = scope_.aspects()[at];
    Spec spec = base;
    aspect.set(spec, value);
    if (aspect.value(spec) == value) {
        keep_relations(spec, at);
        if (aspect.value(spec) != value)
            return std::nullopt;  // equal to another one, which is tried itself
        if (is_legal(spec)) return Probe{spec, true};
    }
    const Spec* drawn = likeliest(at, value);
    if (!drawn) return std::nullopt;
    return Probe{
        reduced(*drawn, base, [&](const Spec& next) { return aspect.value(next) == value; }),
        false};
}

/// Of the generated cases with this value, one with the fewest others that are known to be refused.
const Spec* SurveyCases::likeliest(std::size_t at, Int value) const {
    const Spec* best = nullptr;
    std::size_t least = scope_.aspects().size() + 1;
    const std::vector<Known>& all = known();
    for (std::size_t k = 0; k < all.size(); ++k) {
        if (all[k].values[at] != value || !all[k].is_legal) continue;
        std::size_t refused = 0;
        for (std::size_t a = 0; a < scope_.aspects().size(); ++a)
            refused += a != at && !scope_.takes(a, all[k].values[a]);
        if (refused < least) least = refused, best = &pool_[k];
    }
    return best;
}

void SurveyCases::keep_relations(Spec& spec, std::size_t changed) const {
    for (std::size_t a = 0; a < scope_.aspects().size(); ++a) {
        const Aspect& relation = scope_.aspects()[a];
        if (a != changed && relation.name.find('=') != std::string::npos &&
            relation.value(anchor()) != 0)
            relation.set(spec, 1);
    }
}

std::int64_t SurveyCases::elements(const Spec& spec) const {
    Int elements = 0;
    for (const auto& shape : op_.shapes(spec)) {
        Int product = 1;
        for (const Int extent : shape) product *= extent;
        elements += product;
    }
    return elements;
}

bool SurveyCases::is_legal(const Spec& spec) const { return elements(spec) <= kElements && !op_.illegal(spec); }

Spec SurveyCases::reduced(const Spec& from, const Spec& base,
             const std::function<bool(const Spec&)>& keeps) const {
    Spec spec = from;
    for (int pass = 0; pass < 2; ++pass)
        for (std::size_t part = 0; part < parts_of(spec); ++part) {
            Spec next = spec;
            copy_part(base, part, next);
            if (next != spec && is_legal(next) && keeps(next)) spec = std::move(next);
        }
    for (const auto& [left, right] : coupled_parts()) {
        Spec next = spec;
        copy_part(base, left, next);
        copy_part(base, right, next);
        if (next != spec && is_legal(next) && keeps(next)) spec = std::move(next);
    }
    return spec;
}

/// The numbers of the two fields of a relation such as value_dim=dim.
std::optional<std::pair<std::size_t, std::size_t>> SurveyCases::related_fields(const Aspect& aspect) const {
    const std::size_t equals = aspect.name.find('=');
    if (equals == std::string::npos) return std::nullopt;
    const auto& numbers = op_.schema().numbers;
    const auto number_of = [&](std::string_view key) {
        return static_cast<std::size_t>(std::ranges::find(numbers, key, &NumberField::key) -
                                        numbers.begin());
    };
    const std::size_t left = number_of(aspect.name.substr(0, equals)), right = number_of(aspect.name.substr(equals + 1));
    if (left >= numbers.size() || right >= numbers.size()) return std::nullopt;
    return std::pair(left, right);
}

/// Fields that the candidate wants equal: one alone cannot change.
std::vector<std::pair<std::size_t, std::size_t>> SurveyCases::coupled_parts() const {
    std::vector<std::pair<std::size_t, std::size_t>> out;
    for (const Aspect& relation : scope_.aspects())
        if (const auto fields = related_fields(relation))
            out.emplace_back(fields->first + 1, fields->second + 1);  // part 0 is the lengths
    return out;
}

/// Such as q=kv and q<=kv.
bool SurveyCases::relates_lengths(const Aspect& aspect) const {
    const auto& lists = op_.schema().lists;
    return lists.size() > 1 && (aspect.name == lists[0].key + "=" + lists[1].key ||
                                aspect.name == lists[0].key + "<=" + lists[1].key);
}

std::vector<SurveyCases::Probe> SurveyCases::all_with(std::size_t at, Int value, const Spec& base) const {
    const Aspect& aspect = scope_.aspects()[at];
    std::vector<Probe> out;
    if (const auto fields = related_fields(aspect); fields && value == 0) {
        const Int other = base.numbers[fields->second];
        std::vector<Int> sizes{other / 2};
        sizes.insert(sizes.end(), std::begin(kPopular), std::end(kPopular));
        for (const Int size : sizes) {
            Spec spec = base;
            spec.numbers[fields->first] = size;
            if (size > 0 && size != other && aspect.value(spec) == 0 && is_legal(spec) &&
                std::ranges::none_of(out, [&](const Probe& probe) { return probe.spec == spec; }))
                out.push_back({std::move(spec), false});
        }
        if (!out.empty()) return out;
    }
    // Lengths that differ may have to be whole tiles all the same: twice as many, one more.
    if (value == 0 && relates_lengths(aspect)) {
        for (const std::size_t list : {1, 0})
            for (const bool twice : {true, false}) {
                Spec spec = base;
                for (Int& length : spec.lists[list]) length = twice ? 2 * length : length + 1;
                if (aspect.value(spec) == 0 && is_legal(spec)) out.push_back({std::move(spec), false});
            }
        if (!out.empty()) return out;
    }
    if (auto probe = with(at, value, base)) out.push_back(std::move(*probe));
    return out;
}

SurveyCases::Values SurveyCases::differences(const Spec& spec, const Spec& base) const {
    Values out;
    for (std::size_t a = 0; a < scope_.aspects().size(); ++a) {
        const Int value = scope_.aspects()[a].value(spec);
        if (value != scope_.aspects()[a].value(base)) out.emplace_back(a, value);
    }
    return out;
}

bool SurveyCases::has(const Spec& spec, const Values& values) const {
    return std::ranges::all_of(values, [&](const auto& one) {
        return scope_.aspects()[one.first].value(spec) == one.second;
    });
}

}  // namespace attncheck::properties
