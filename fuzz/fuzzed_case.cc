#include "fuzz/fuzzed_case.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string_view>

namespace attncheck::fuzz {
namespace {

using namespace properties;

constexpr double kMaxElements = 1 << 15, kMaxProducts = 1 << 20;
constexpr int kAttempts = 20;

double product_of(const std::vector<std::int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<double>());
}

double sum_of(const std::vector<std::int64_t>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), 0.0);
}

double elements_of(const std::vector<std::vector<std::int64_t>>& shapes) {
    double elements = 0;
    for (const auto& shape : shapes) elements += product_of(shape);
    return elements;
}

bool is_legal_and_small(const Spec& spec) {
    return !find_operator(spec.schema->op)->illegal(spec) && is_small(spec);
}

void change_number(Spec& spec, Random& random) {
    const std::size_t i = static_cast<std::size_t>(
        random.between(0, static_cast<std::int64_t>(spec.numbers.size()) - 1));
    const NumberField& field = spec.schema->numbers[i];
    const std::int64_t steps = (field.max - field.min) / field.step, now = spec.numbers[i];
    const std::int64_t next = random.pick<std::int64_t>(
        {now + field.step, now - field.step, field.min, field.max, field.fallback,
         field.min + field.step * random.between(0, std::min<std::int64_t>(steps, 3)),
         field.min + field.step * random.between(0, std::min<std::int64_t>(steps, 1 << 20))});
    spec.numbers[i] = std::clamp(next, field.min, field.max);
}

std::int64_t changed_length(std::int64_t now, const ListField& field, Random& random) {
    const std::int64_t next =
        random.pick<std::int64_t>({0, 1, now + 1, now - 1, 2 * now, now / 2, now + 16, now - 16,
                                   now / 16 * 16, random.between(0, 8), random.between(0, 80)});
    return std::clamp(next, field.min, std::max(field.min, field.max));
}

/// A length of one list, or one sequence more or less in all of them.
void change_lengths(Spec& spec, Random& random) {
    const std::size_t entries = spec.lists.empty() ? 0 : spec.lists[0].size();
    const std::size_t at = static_cast<std::size_t>(
        random.between(0, std::max<std::int64_t>(static_cast<std::int64_t>(entries) - 1, 0)));
    const bool all = random.chance(30);
    const std::int64_t kind = random.between(0, 9);
    const std::int64_t only =
        random.between(0, std::max<std::int64_t>(std::ssize(spec.lists) - 1, 0));
    for (std::size_t l = 0; l < spec.lists.size(); ++l) {
        auto& list = spec.lists[l];
        const ListField& field = spec.schema->lists[l];
        const auto offset = static_cast<std::ptrdiff_t>(std::min(at, list.size()));
        if (kind == 0 && entries < 6)
            list.insert(list.begin() + offset,
                        list.empty() ? 1 : changed_length(list.front(), field, random));
        else if (kind == 1 && at < list.size() && entries > 1)
            list.erase(list.begin() + offset);
        else if (kind > 1 && at < list.size() && (all || l == static_cast<std::size_t>(only)))
            list[at] = changed_length(list[at], field, random);
    }
}

/// One element of an input that has any, to a value that kernels trip over.
void change_element(Spec& spec, Random& random) {
    if (!is_legal_and_small(spec)) return;
    const auto shapes = find_operator(spec.schema->op)->shapes(spec);
    const auto tensor = static_cast<std::size_t>(random.between(0, std::ssize(shapes) - 1));
    const auto& shape = shapes[tensor];
    const TensorField& field = spec.schema->tensors[tensor];
    if (field.output || field.derived || field.integer || product_of(shape) < 1) return;
    if (shape.size() > kMaxRank) return;
    ElementRef element;
    element.tensor = static_cast<int>(tensor);
    for (std::size_t dim = 0; dim < shape.size(); ++dim)
        element.index[dim] = random.between(0, shape[dim] - 1);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    spec.overrides[element] =
        random.pick<double>({0, -0.0, 1, -1, 0.5, 3, 65504, -65504, 0x1p-24, 0x1p-133, 3e38,
                             kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()});
}

/// An edit of the operator's validation property, or none at all.
void change_edits(Spec& spec, Random& random) {
    const Property* validation = find_operator(spec.schema->op)->property("validation");
    Spec adapted = spec;
    if (!is_legal_and_small(spec)) return;  // edits are drawn for legal cases
    if (!validation || spec.edits.size() > 2 || random.chance(20)) {
        spec.edits.clear();
        return;
    }
    validation->adapt(adapted, random);
    spec.edits.insert(spec.edits.end(), adapted.edits.begin(), adapted.edits.end());
}

void change_one(Spec& spec, bool edits, Random& random) {
    switch (random.between(0, edits ? 11 : 9)) {
        case 0:
        case 1:
        case 2:
            return change_number(spec, random);
        case 3:
        case 4:
        case 5:
            return change_lengths(spec, random);
        case 6:
            spec.layouts[static_cast<std::size_t>(
                random.between(0, std::ssize(spec.layouts) - 1))] =
                static_cast<Layout>(random.between(0, static_cast<int>(Layout::broadcast)));
            return;
        case 7:
            spec.recipe =
                static_cast<Recipe>(random.between(0, static_cast<int>(Recipe::specials)));
            return;
        case 8:
            if (random.chance(40)) spec.overrides.clear();
            spec.seed = random.chance(50) ? random.next() : random.next() % 16;
            return;
        case 9:
            return change_element(spec, random);
        default:
            return change_edits(spec, random);
    }
}

}  // namespace

std::vector<const Operator*> family_of(std::string_view name) {
    std::vector<const Operator*> family;
    if (name.empty())
        for (const auto& op : operators()) family.push_back(op.get());
    for (const char* end : {"", "_grad", "_score", "_score_grad"})
        if (const Operator* op = find_operator(std::string(name) + end)) family.push_back(op);
    if (family.empty()) throw std::invalid_argument("no operator family '" + std::string(name) + "'");
    return family;
}

bool is_small(const Spec& spec) {
    const auto shapes = find_operator(spec.schema->op)->shapes(spec);
    const double elements = elements_of(shapes);
    // Every key meets every query of its sequence at most: rows of the first tensor times keys.
    const double keys = spec.lists.size() < 2 ? 1 : sum_of(spec.lists[1]);
    return elements <= kMaxElements && product_of(shapes[0]) * keys <= kMaxProducts;
}

std::optional<Spec> read_case(std::string_view family, const std::uint8_t* data, std::size_t size) {
    std::vector<const Schema*> known;
    for (const Operator* op : family_of(family)) known.push_back(&op->schema());
    try {
        Spec spec = parse({reinterpret_cast<const char*>(data), size}, known);
        if (is_legal_and_small(spec)) return spec;
    } catch (const std::invalid_argument&) {
    }
    return std::nullopt;
}

bool may_edits_be_large(const Spec& spec) {
    constexpr double kMost = 1 << 25;  // a small case times the largest extent of one edit
    double elements = elements_of(find_operator(spec.schema->op)->shapes(spec));
    constexpr std::string_view kExtents[] = {"dim",   "dims",  "value_dim",   "rope",
                                             "heads", "group", "query_heads", "kv_heads"};
    for (const properties::Edit& edit : spec.edits)
        if (edit.name == "all" && edit.has_value() &&
            std::ranges::find(kExtents, edit.attribute) != std::end(kExtents))
            elements *= std::max(edit.real(), 1.0);
    return elements > kMost;
}

Spec sampled_case(std::string_view family, Random& random, Profile profile) {
    const Operator* op = random.pick(family_of(family));
    for (int size = 24;; size = size * 2 / 3) {  // size 0 is the simplest case there is
        Spec spec = op->sample(random, size, profile);
        if (is_legal_and_small(spec)) return spec;
    }
}

Spec mutated_case(const Spec& spec, bool edits, Random& random) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        Spec other = spec;
        for (auto changes = random.between(1, 3); changes > 0; --changes)
            change_one(other, edits, random);
        if (!(other == spec) && is_legal_and_small(other)) return other;
    }
    return spec;
}

Spec crossed_cases(const Spec& first, const Spec& second, Random& random) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        Spec child = first;
        for (std::size_t i = 0; i < child.numbers.size(); ++i) {
            const NumberField& field = child.schema->numbers[i];
            const int other = second.schema->number(field.key);
            if (other < 0 || random.chance(50)) continue;
            const std::int64_t value = second.numbers[static_cast<std::size_t>(other)];
            if (value >= field.min && value <= field.max) child.numbers[i] = value;
        }
        if (child.lists.size() == second.lists.size() && random.chance(50))
            child.lists = second.lists;
        if (child.schema == second.schema) {
            if (random.chance(50)) child.layouts = second.layouts;
            if (random.chance(50)) child.overrides = second.overrides;
            if (random.chance(50)) child.edits = second.edits;
        }
        if (random.chance(50)) child.recipe = second.recipe, child.seed = second.seed;
        if (is_legal_and_small(child)) return child;
    }
    return first;
}

void require_held(const Spec& spec, const Verdict& verdict) {
    if (!verdict.failed()) return;
    std::fprintf(stderr, "%s\n%s\n%s\n", print(spec).c_str(), verdict.failure.c_str(),
                 verdict.message.c_str());
    __builtin_trap();
}

}  // namespace attncheck::fuzz
