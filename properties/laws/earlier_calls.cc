#include "properties/laws/earlier_calls.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "properties/case/attention_data.h"
#include "properties/case/derived.h"
#include "properties/case/random.h"
#include "properties/laws/relation_checks.h"

namespace attncheck::properties {
namespace {

/// Tensors that both calls pass have the same extents.
bool has_shapes_of(const Spec& spec, const Spec& other) {
    const Extents these = extents_of(spec), those = extents_of(other);
    return std::ranges::all_of(spec.schema->tensors, [&](const TensorField& tensor) {
        return !tensor.present.holds(these) || !tensor.present.holds(those) ||
               laid_out(tensor, these).shape == laid_out(tensor, those).shape;
    });
}

std::optional<Spec> changed(const Spec& spec, const EarlierChange& change,
                            const PropertyContext& context) {
    for (Spec& way : change.ways(spec))
        if (!(way == spec) && !illegal(way) && (change.is_of_shape || has_shapes_of(spec, way)) && context.takes(way))
            return std::move(way);
    return std::nullopt;
}

/// "other data, another scale and another window".
std::string listed(const std::vector<std::string>& words) {
    std::string text = words.front();
    for (std::size_t i = 1; i < words.size(); ++i)
        text += (i + 1 == words.size() ? " and " : ", ") + words[i];
    return text;
}

const EarlierChange kOtherData{"other data", [](const Spec& spec) {
                                   return std::vector<Spec>{with_other_values(spec, Recipe::normal)};
                               }};

/// Twice the width or the next that a kernel may be made for, the larger ones first: they leave something behind.
const EarlierChange kOtherWidth{
    "another dim",
    [](const Spec& spec) {
        std::vector<Spec> ways;
        const auto has = [&](const char* field) { return spec.schema->number(field) >= 0; };
        if (!has("dim")) return ways;
        const std::int64_t dim = spec.number("dim");
        for (const std::int64_t other : {2 * dim, std::int64_t{128}, std::int64_t{192}, std::int64_t{64}, dim / 2}) {
            Spec way = spec;
            way.set("dim", other);
            if (has("value_dim") && spec.number("value_dim") == dim) way.set("value_dim", other);
            ways.push_back(std::move(way));
        }
        return ways;
    },
    true};

/// Twice the lengths, where these are not long, or half of them: a length that a library keeps is too large or too small then.
EarlierChange other_lengths(bool longer) {
    return {longer ? "longer sequences" : "shorter sequences",
            [longer](const Spec& spec) {
                constexpr std::int64_t kLong = 1024;
                Spec way = spec;
                for (auto& list : way.lists)
                    for (std::int64_t& length : list) length = longer ? std::min(2 * length, std::max(length, kLong)) : (length + 1) / 2;
                return std::vector<Spec>{std::move(way)};
            },
            true};
}

}  // namespace

EarlierChange other_value(const char* field, std::vector<std::int64_t> values,
                          std::function<bool(const Spec&)> domain) {
    return {std::string("another ") + field, [=](const Spec& spec) {
                std::vector<Spec> ways;
                if (spec.schema->number(field) < 0 || (domain && !domain(spec))) return ways;
                for (const std::int64_t value : values) {
                    ways.push_back(spec);
                    ways.back().set(field, value);
                }
                return ways;
            }};
}

EarlierChange reversed_sequences() {
    return {"the sequences in the opposite order", [](const Spec& spec) {
                Spec way = spec;
                for (auto& list : way.lists) std::ranges::reverse(list);
                return std::vector<Spec>{std::move(way)};
            }};
}

std::vector<EarlierChange> earlier_attention(const std::vector<EarlierChange>& more) {
    const auto eighth = static_cast<std::int64_t>(ScaleKind::eighth);
    std::vector<EarlierChange> changes{other_value("scale", {eighth, 0}), reversed_sequences(),
                                       other_value("dtype", {0, 1})};
    changes.insert(changes.end(), more.begin(), more.end());
    return changes;
}

std::vector<EarlierCalls> earlier_calls(const Spec& spec, const std::vector<EarlierChange>& more,
                                        const PropertyContext& context) {
    constexpr std::size_t kAlone = 3;
    std::vector<EarlierChange> changes{kOtherData};
    changes.insert(changes.end(), more.begin(), more.end());
    // From one of them on, by the seed, so that a smaller case begins with the same change.
    Random random(spec.seed ^ 0xea57);
    const bool is_alone = random.chance(75);
    Random of_shapes(mix(spec.seed ^ 0x5a9e));
    const bool is_of_shape = of_shapes.chance(25);
    std::ranges::rotate(changes, changes.begin() + random.between(0, std::ssize(changes) - 1));
    Spec all = spec;
    std::vector<std::string> words;
    std::vector<EarlierCase> cases;
    for (const EarlierChange& change : changes) {
        if (auto one = changed(spec, change, context))
            cases.push_back({std::move(*one), change.word});
        if (auto with_more = changed(all, change, context))
            all = std::move(*with_more), words.push_back(change.word);
    }
    std::vector<EarlierCase> shapes;
    for (const EarlierChange& change : {kOtherWidth, other_lengths(true), other_lengths(false)})
        if (auto one = changed(spec, change, context)) shapes.push_back({std::move(*one), change.word});
    // By the seed, too, which of them comes alone: the width or the lengths of the last call.
    if (spec.seed != 0 && is_of_shape && !shapes.empty())
        return {{{shapes[static_cast<std::size_t>(of_shapes.between(0, std::ssize(shapes) - 1))]}, 1}};
    if (words.empty() && shapes.empty()) return {{{{spec, "the same arguments"}}}};
    if (!words.empty()) cases.insert(is_alone ? cases.end() : cases.begin(), {std::move(all), listed(words)});
    if (spec.seed != 0 && cases.empty()) return {{std::move(shapes), 1}};
    if (spec.seed != 0) return {{std::move(cases), is_alone ? kAlone : 1}};
    std::vector<EarlierCalls> each;
    std::ranges::move(shapes, std::back_inserter(cases));
    for (EarlierCase& one : cases) each.push_back({{std::move(one)}});
    return each;
}

}  // namespace attncheck::properties
