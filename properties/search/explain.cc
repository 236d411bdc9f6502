#include "properties/search/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "properties/case/derived.h"

namespace attncheck::properties {
namespace {

/// What came of the other values of one field.
struct Field {
    std::string key;
    bool is_named = false;  ///< its values are words
    bool is_least = false;  ///< has the lowest value that leaves anything to compute
    std::string value;
    std::vector<std::string> fail, hold;  ///< of the other values, as they print
    bool is_open = false;                 ///< of some legal value it is not known
    bool was_cut = false;                 ///< because no time was left
    bool is_length = false;
};

/// The same tensors in the same memory, and the same other arguments.
bool is_same(const Call& a, const Call& b) {
    const auto same_tensor = [](const Tensor& x, const Tensor& y) {
        const bool same_bytes = x.shared_bytes == y.shared_bytes ||
                                (x.shared_bytes && y.shared_bytes && *x.shared_bytes == *y.shared_bytes);
        return x.present == y.present && x.withheld == y.withheld && x.dtype == y.dtype && x.shape == y.shape &&
               x.strides == y.strides && x.allocation == y.allocation && x.offset == y.offset && x.bits == y.bits && same_bytes;
    };
    const auto same = [](const auto& x, const auto& y, auto&& equal) { return std::ranges::equal(x, y, equal); };
    return same(a.tensors, b.tensors, same_tensor) &&
           same(a.arrays, b.arrays, [](const HostArray& x, const HostArray& y) {
               return x.present == y.present && x.size == y.size && x.values == y.values;
           }) &&
           same(a.texts, b.texts, [](const Text& x, const Text& y) { return x.value == y.value; }) &&
           same(a.numbers, b.numbers, [](const Number& x, const Number& y) { return x.value == y.value; }) &&
           same(a.reals, b.reals, [](const Real& x, const Real& y) { return x.value == y.value; });
}

class Explanation {
public:
    Explanation(const Spec& smallest, const Spec& found, const Operator& op, const std::string& accused,
                const std::function<bool(const Spec&)>& is_taken,
                const std::function<Varied(const Spec&)>& outcome,
                const std::function<bool()>& is_over)
        : smallest_(smallest), found_(found), op_(op), accused_(accused), is_taken_(is_taken), outcome_(outcome), is_over_(is_over) {}

    std::string text() {
        Call call = op_.outline(smallest_);
        std::size_t elements = 0;
        for (const Tensor& tensor : call.tensors) elements += tensor.elements();
        if (elements <= kMostCompared) call_ = op_.build(smallest_);
        vary_memory();  // first: a crash takes time, and few tensors of a smallest case are not dense
        for (std::size_t i = 0; i < smallest_.lists.size(); ++i) vary_list(i);
        vary_sequences();
        for (std::size_t i = 0; i < smallest_.numbers.size(); ++i) vary_number(i);
        vary_data();
        return words();
    }

private:
    /// Notes what the case with one other value does.
    void attempt(Field& field, std::string value, const Spec& other) {
        if (!is_taken_(other)) return;
        if (call_ && !is_over_() && is_same(*call_, op_.build(other))) return;  // another word for the same call
        const Varied now = is_over_() ? Varied::not_tried : outcome_(other);
        field.is_open |= now == Varied::not_tried;
        field.was_cut |= is_over_();
        if (now == Varied::fails ||
            (now == Varied::holds && (fails_with_normal_data(other) || (!field.is_length && fails_with_more(other)))))
            field.fail.push_back(std::move(value));
        else if (now == Varied::holds)
            field.hold.push_back(std::move(value));
    }

    /// Elements that are set are few, and may be none of those that show the failure in the other case.
    bool fails_with_normal_data(const Spec& other) const {
        if (other.recipe == Recipe::normal && other.overrides.empty()) return false;
        Spec spec = other;
        spec.overrides.clear();
        spec.recipe = Recipe::normal;
        return !is_over_() && is_taken_(spec) && outcome_(spec) == Varied::fails;
    }

    /// A window that hides nothing of two keys does of nine: the value is tried with longer sequences too, and normal data.
    bool fails_with_more(const Spec& other) const {
        if (std::ranges::any_of(other.lists, [](const auto& list) { return list.size() != 1; })) return false;
        std::int64_t longest = 0;
        for (const auto& list : other.lists) longest = std::max(longest, list[0]);
        for (const bool alike : {true, false}) {
            Spec spec = other;
            for (auto& list : spec.lists) list[0] = alike ? longest + 3 : 2 * list[0] + 7;
            spec.overrides.clear();
            spec.recipe = Recipe::normal;
            if (!is_over_() && is_taken_(spec) && outcome_(spec) == Varied::fails) return true;
        }
        return false;
    }

    /// The elements that are set keep their places; those whose places are gone are left out.
    bool carries_elements(Spec& spec) const {
        if (spec.overrides.empty()) return true;
        spec.overrides.clear();
        if (op_.illegal(spec)) return false;
        std::vector<int> all(spec.lists.empty() ? 0 : spec.lists[0].size());
        std::iota(all.begin(), all.end(), 0);
        op_.carry_overrides(smallest_, spec, all);
        return true;
    }

    /// Larger lengths of the only sequence.
    void vary_list(std::size_t i) {
        const ListField& list = op_.schema().lists[i];
        if (smallest_.lists[i].size() != 1) return;
        const std::int64_t now = smallest_.lists[i][0];
        Field field{list.key, false, now <= std::max<std::int64_t>(list.min, 1), std::to_string(now), {}, {}};
        field.is_length = true;
        // A whole number of tiles further what is left of one is the same.
        for (const std::int64_t other : std::set{now + 1, 2 * now, 2 * now + 7, now + kTiles}) {
            if (other <= now || other > list.max) continue;
            Spec spec = smallest_;
            spec.lists[i][0] = other;
            if (carries_elements(spec)) attempt(field, std::to_string(other), spec);
        }
        fields_.push_back(std::move(field));
    }

    /// One more sequence, as long as the last one.
    void vary_sequences() {
        if (smallest_.lists.empty() || std::ranges::any_of(op_.schema().lists, [](const ListField& list) { return list.max_size < 2; }))
            return;
        const std::size_t now = smallest_.lists[0].size();
        Field field{"sequences", false, now == 1, std::to_string(now), {}, {}};
        field.is_length = true;
        Spec spec = smallest_;
        for (auto& list : spec.lists) list.push_back(list.back());
        attempt(field, std::to_string(now + 1), spec);
        fields_.push_back(std::move(field));
    }

    void vary_number(std::size_t i) {
        const NumberField& number = op_.schema().numbers[i];
        const std::int64_t now = smallest_.numbers[i];
        if (number.key == accused_) return;
        Field field{number.key, !number.names.empty(), now <= number.min, value_name(number, now), {}, {}};
        std::set<std::int64_t> others;
        if (field.is_named)
            for (std::int64_t value = number.min; value <= number.max; value += number.step)
                others.insert(value);
        else
            others = {now + number.step, 2 * now, 2 * now + 3 * number.step};
        // Many a kernel takes multiples of 8, 16 or 64 channels alone.
        if (number.key.ends_with("dim")) others.insert(kChannels);
        for (const std::int64_t other : others) {
            if (other == now || other > number.max || (!field.is_named && other < now)) continue;
            if ((other - number.min) % number.step != 0) continue;
            Spec spec = smallest_;
            spec.numbers[i] = other;
            if (!carries_elements(spec)) continue;
            if (field.is_named && other == found_.numbers[i]) {
                const bool is_taken = is_taken_(spec);
                if (!is_taken || !call_ || !is_same(*call_, op_.build(spec))) field.fail.push_back(value_name(number, other));
                continue;
            }
            attempt(field, value_name(number, other), spec);
        }
        fields_.push_back(std::move(field));
    }

    /// A dense tensor in place of another one.
    void vary_memory() {
        for (std::size_t i = 0; i < smallest_.layouts.size(); ++i) {
            if (smallest_.layouts[i] == Layout::dense) continue;
            Field field{op_.schema().tensors[i].name + ".layout", true, false,
                        std::string(name_of(smallest_.layouts[i])), {}, {}};
            Spec spec = smallest_;
            spec.layouts[i] = Layout::dense;
            attempt(field, std::string(name_of(Layout::dense)), spec);
            fields_.push_back(std::move(field));
        }
    }

    /// Ordinary data in place of the few elements that a case is written out with.
    void vary_data() {
        Field field{"data", true, false, std::string(name_of(smallest_.recipe)), {}, {}};
        for (const Recipe recipe : {Recipe::ones, Recipe::ints, Recipe::normal}) {
            if (recipe == smallest_.recipe && smallest_.overrides.empty()) continue;
            if (recipe == found_.recipe && found_.overrides.empty()) {
                field.fail.emplace_back(name_of(recipe));
                continue;
            }
            Spec spec = smallest_;
            spec.overrides.clear();
            spec.recipe = recipe;
            attempt(field, std::string(name_of(recipe)), spec);
        }
        if (smallest_.overrides.empty() || field.hold.empty())  // which elements matter is what shrinking found
            fields_.push_back(std::move(field));
    }

    std::string words() const {
        std::vector<std::string> needs, any, some;
        std::vector<std::size_t> far;
        for (const Field& field : fields_) {
            const std::string own = field.key + "=" + field.value;
            if (field.fail.empty() && field.hold.empty()) continue;
            if (field.hold.empty() && (field.is_named || field.is_least) && field.is_open)
                some.push_back(fmt::format("{}={}", field.key, fmt::join(field.fail, ",")));
            else if (field.hold.empty() && (field.is_named || field.is_least))
                any.push_back(field.key);
            else if (field.hold.empty())
                needs.push_back(fmt::format("{} >= {}", field.key, field.value));
            else if (field.fail.empty()) {
                if (field.value == name_of(Layout::far)) far.push_back(needs.size());
                needs.push_back(own);
            } else {
                some.push_back(fmt::format("{}={}, not {}", field.key, fmt::join(field.fail, ","),
                                           fmt::join(field.hold, ",")));
            }
        }
        // What lies at an offset that was cut may be any other tensor, and is what the failure names.
        if (far.size() == 1)
            needs[far[0]] += fmt::format(" (offsets of {} in 32 bits?)", needs[far[0]].substr(0, needs[far[0]].find('.')));
        std::string out;
        const auto add = [&](const char* head, const std::vector<std::string>& list, const char* between) {
            if (!list.empty())
                out += fmt::format("{}{} {}", out.empty() ? "" : "; ", head, fmt::join(list, between));
        };
        add("needs", needs, ", ");
        add("fails with any", any, ", ");
        add("also with", some, "; with ");
        add("with", drawn_arrays(), ", ");
        std::vector<std::string> open;
        for (const Field& field : fields_)
            if (field.was_cut) open.push_back(field.key);
        add("no time for all values of", open, ", ");
        return out;
    }

    /// What a seed chose where the case line has a word alone, such as kv_length=some.
    std::vector<std::string> drawn_arrays() const {
        std::vector<std::string> out;
        for (const HostArray& array : outline_of(extents_of(smallest_)).arrays)
            if (const int field = op_.schema().number(array.name);
                array.present && field >= 0 && !op_.schema().numbers[static_cast<std::size_t>(field)].names.empty())
                out.push_back(fmt::format("{} [{}]", array.name, fmt::join(array.values, ",")));
        return out;
    }

    static constexpr std::int64_t kTiles = 128, kChannels = 64;
    static constexpr std::size_t kMostCompared = 1 << 14;  ///< elements of a call: building two takes time

    const Spec& smallest_;
    const Spec& found_;  ///< as it was before it was shrunk
    const Operator& op_;
    const std::string& accused_;
    std::optional<Call> call_;  ///< of the smallest case, where it is small
    const std::function<bool(const Spec&)>& is_taken_;
    const std::function<Varied(const Spec&)>& outcome_;
    const std::function<bool()>& is_over_;
    std::vector<Field> fields_;
};

}  // namespace

std::string explanation_of(const Spec& smallest, const Spec& found, const Operator& op, const std::string& accused,
                           const std::function<bool(const Spec&)>& is_taken,
                           const std::function<Varied(const Spec&)>& outcome,
                           const std::function<bool()>& is_over) {
    return Explanation(smallest, found, op, accused, is_taken, outcome, is_over).text();
}

}  // namespace attncheck::properties
