#include "properties/search/scope.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "properties/case/number_text.h"
#include "properties/case/outputs.h"
#include "properties/case/spelling.h"

namespace attncheck::properties {
namespace {

constexpr std::size_t kKeptCases = 32;

/// Pairs of a query and a key where the lists of lengths belong together, else all lengths: the time of the
/// reference grows with it.
double work_of(const Spec& spec) {
    double sum = 0;
    for (std::size_t b = 0; !spec.lists.empty() && b < spec.lists[0].size(); ++b) {
        double product = 1;
        for (const auto& list : spec.lists)
            if (spec.schema->parallel_lists) product *= static_cast<double>(list[b]);
        sum += spec.schema->parallel_lists ? product : static_cast<double>(spec.lists[0][b]);
    }
    return sum;
}

std::vector<std::size_t> shuffled(std::size_t count, Random& random) {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = count; i > 1; --i)
        std::swap(
            order[i - 1],
            order[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(i) - 1))]);
    return order;
}

}  // namespace

std::size_t parts_of(const Spec& spec) { return 1 + spec.numbers.size() + spec.layouts.size(); }

void copy_part(const Spec& from, std::size_t part, Spec& to) {
    if (part == 0)
        to.lists = from.lists;
    else if (part <= from.numbers.size())
        to.numbers[part - 1] = from.numbers[part - 1];
    else
        to.layouts[part - 1 - from.numbers.size()] = from.layouts[part - 1 - from.numbers.size()];
}

bool Scope::is_open() const {
    return combinations_.empty() && std::ranges::all_of(limits_, [](const Limit& limit) {
               return !limit.closed && limit.refused.empty() && limit.declared.empty();
           }) && std::ranges::all_of(lengths_, [](const auto& ranges) { return ranges.empty(); });
}

bool Scope::is_in(const std::vector<Range>& ranges, std::int64_t value) {
    return std::ranges::any_of(ranges, [&](const Range& range) { return range.has(value); });
}

std::int64_t Scope::any_of(const std::vector<Range>& ranges, Random& random) {
    const Range& range = random.pick(ranges);
    return range.low + range.step * random.between(0, (range.high - range.low) / range.step);
}

bool Scope::takes(std::size_t aspect, std::int64_t value) const {
    const Limit& limit = limits_[aspect];
    if (!limit.declared.empty()) return is_in(limit.declared, value);
    if (limit.accepted.contains(value)) return true;
    return !limit.closed && !limit.refused.contains(value);
}

bool Scope::is_refused_together(const Spec& spec) const {
    return std::ranges::any_of(combinations_, [&](const auto& values) {
        return std::ranges::all_of(values, [&](const auto& one) {
            const Aspect& aspect = aspects_[one.first];
            const std::int64_t value = aspect.value(spec);
            return value == one.second ||
                   (aspect.is_extent && !limits_[one.first].accepted.contains(value));
        });
    });
}

bool Scope::holds(const Spec& spec) const {
    if ((spec.withheld & withheld_) != withheld_ || !takes_lengths(spec)) return false;
    for (std::size_t a = 0; a < aspects_.size(); ++a)
        if (!takes(a, aspects_[a].value(spec))) return false;
    return !is_refused_together(spec);
}

bool Scope::takes_lengths(const Spec& spec) const {
    for (std::size_t i = 0; i < lengths_.size(); ++i)
        if (!lengths_[i].empty() && !std::ranges::all_of(spec.lists[i], [&](std::int64_t length) {
                return is_in(lengths_[i], length);
            }))
            return false;
    return true;
}

/// Equal lengths stay equal: sequences of one tensor may have to be.
void Scope::mend_lengths(Spec& spec, Random& random) const {
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
        if (lengths_[i].empty()) continue;
        std::map<std::int64_t, std::int64_t> mended;
        for (std::int64_t& length : spec.lists[i]) {
            if (is_in(lengths_[i], length)) continue;
            const auto [at, is_new] = mended.try_emplace(length);
            if (is_new) at->second = any_of(lengths_[i], random);
            length = at->second;
        }
    }
}

void Scope::accept(const Spec& spec) {
    bool has_new_value = false;  // what is refused together is found by the cases that have one of the two
    for (std::size_t a = 0; a < aspects_.size(); ++a)
        has_new_value |= limits_[a].accepted.insert(aspects_[a].value(spec)).second &&
                         !aspects_[a].is_extent;
    if (accepted_.size() < kKeptCases || (has_new_value && accepted_.size() < 4 * kKeptCases))
        accepted_.push_back(spec);
}

/// One size in all accepted cases, and time and again another one in declined ones: no other is taken.
bool Scope::suspect_sizes(std::size_t aspect) {
    constexpr int kTimes = 3;
    constexpr std::size_t kEnough = 8;
    if (limits_[aspect].accepted.size() != 1 || accepted_.size() < kEnough) return false;
    if (++suspected_sizes_[aspect] >= kTimes) close(aspect);
    return true;
}

bool Scope::suspect(const Spec& declined, const std::function<bool(std::size_t)>& is_to_blame) {
    const int times = is_to_blame ? 3 : 8;  // that were asked for, or by chance
    bool any = false;
    for (std::size_t a = 0; a < aspects_.size(); ++a) {
        const std::int64_t value = aspects_[a].value(declined);
        if (takes_for_sure(a, value)) continue;
        if (aspects_[a].is_extent) {  // of one size only, or of many
            any = any || suspect_sizes(a);
            continue;
        }
        if (is_to_blame && !is_to_blame(a)) continue;
        any = true;
        if (++suspicions_[{a, value}] >= times) refuse(a, value);
    }
    return any;
}

void Scope::refuse_together(std::vector<std::pair<std::size_t, std::int64_t>> values) {
    const auto is_part = [&](const auto& fewer, const auto& more) {
        return std::ranges::all_of(fewer, [&](const auto& one) {
            return std::ranges::any_of(more, [&](const auto& other) {
                const bool alike = aspects_[one.first].is_extent && !limits_[one.first].accepted.contains(other.second);
                return one.first == other.first && (one.second == other.second || alike);
            });
        });
    };
    if (std::ranges::any_of(combinations_, [&](const auto& known) { return is_part(known, values); })) return;
    std::erase_if(combinations_, [&](const auto& known) { return is_part(values, known); });
    combinations_.push_back(std::move(values));
}

/// Gives what is refused a value that is taken: one of those accepted, where there are several by chance.
void Scope::mend(Spec& spec, Random& random) const {
    spec.withheld |= withheld_;
    mend_lengths(spec, random);
    for (std::size_t a = 0; a < aspects_.size(); ++a) {
        if (takes(a, aspects_[a].value(spec))) continue;
        if (!limits_[a].declared.empty()) {
            aspects_[a].set(spec, any_of(limits_[a].declared, random));
            continue;
        }
        if (limits_[a].accepted.empty()) continue;
        const auto& accepted = limits_[a].accepted;
        aspects_[a].set(spec,
                        *std::next(accepted.begin(), random.between(0, std::ssize(accepted) - 1)));
    }
}

std::optional<Spec> Scope::brought_inside(const Spec& wanted, Random& random) const {
    // Lengths that must be equal may not make a case of long rows one of long rows and columns.
    constexpr double kGrowth = 4, kSmall = 1 << 18;
    if (accepted_.empty()) return std::nullopt;
    Spec target = wanted;
    mend_lengths(target, random);  // what is declared may be long
    const double most = std::max({kSmall, kGrowth * work_of(wanted), work_of(target)});
    const auto is_inside = [&](const Spec& spec) {
        return holds(spec) && work_of(spec) <= most && !op_->illegal(spec);
    };
    mend(target, random);
    if (is_inside(target)) return target;
    Spec spec = accepted_[static_cast<std::size_t>(random.between(0, std::ssize(accepted_) - 1))];
    spec.recipe = wanted.recipe;
    spec.seed = wanted.seed;
    spec.withheld = target.withheld;
    if (!is_inside(spec)) return std::nullopt;
    for (int pass = 0; pass < 2; ++pass)  // some parts can be taken over only after others
        for (const std::size_t part : shuffled(parts_of(spec), random)) {
            Spec next = spec;
            copy_part(target, part, next);
            if (next == spec) continue;
            mend(next, random);
            if (is_inside(next)) spec = std::move(next);
        }
    return spec;
}

std::optional<Spec> Scope::just_outside(const Spec& wanted, Random& random) const {
    std::optional<Spec> spec = brought_inside(wanted, random);
    if (!spec) return std::nullopt;
    std::vector<std::pair<int, std::size_t>> refused;
    for (const std::size_t a : shuffled(aspects_.size(), random)) {
        const std::int64_t value = aspects_[a].value(wanted);
        if (takes(a, value)) continue;
        const auto times = refusals_.find(asked(a, value));
        refused.emplace_back(times == refusals_.end() ? 0 : times->second, a);
    }
    std::ranges::stable_sort(refused, {}, &std::pair<int, std::size_t>::first);
    for (const auto& [times, a] : refused) {
        Spec next = *spec;
        const std::int64_t value = aspects_[a].value(wanted);
        aspects_[a].set(next, value);
        if (aspects_[a].value(next) != value || op_->illegal(next)) continue;
        // Percent: a third of those that were not asked for since, never none.
        return random.chance(std::max(1, 100 / (3 + times))) ? std::optional(next) : std::nullopt;
    }
    return std::nullopt;
}

void Scope::refused_again(const Spec& declined) {
    for (std::size_t a = 0; a < aspects_.size(); ++a)
        if (const std::int64_t value = aspects_[a].value(declined); !takes(a, value)) ++refusals_[asked(a, value)];
}

namespace {

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> out;
    std::istringstream in(text);
    for (std::string word; std::getline(in, word, separator);)
        if (!word.empty()) out.push_back(word);
    return out;
}

/// `word` is the value of the field in which `text` stands.
std::int64_t whole_number(const std::string& text, const std::string& field,
                          const std::string& word) {
    const auto value = number_in<std::int64_t>(text);
    if (!value)
        throw std::invalid_argument(fmt::format(
            "{}={}: '{}' is no whole number, expected numbers, a..b or a..b/step", field, word, text));
    return *value;
}

}  // namespace

/// One value or a..b or a..b/step. Values with names are found by them.
Scope::Range Scope::range_of(const Aspect& aspect, const std::string& word) const {
    for (const std::int64_t value : aspect.named)
        if (aspect.text(value) == word) return {value, value, 1};
    if (!aspect.named.empty()) {
        std::vector<std::string> known;
        for (const std::int64_t value : aspect.named) known.push_back(aspect.text(value));
        throw std::invalid_argument(fmt::format("unknown value '{}' of {}, known: {}", word,
                                                aspect.name, fmt::join(known, " ")));
    }
    return range_of_numbers(aspect.name, word);
}

Scope::Range Scope::range_of_numbers(const std::string& name, const std::string& word) {
    const std::size_t dots = word.find(".."), slash = word.find('/');
    const auto number = [&](const std::string& text) { return whole_number(text, name, word); };
    if (dots == std::string::npos) return {number(word), number(word), 1};
    const Range range{
        number(word.substr(0, dots)),
        number(word.substr(dots + 2, slash == std::string::npos ? slash : slash - dots - 2)),
        slash == std::string::npos ? 1 : number(word.substr(slash + 1))};
    if (range.low > range.high || range.step < 1)
        throw std::invalid_argument(
            fmt::format("{}={}: '{}' is no range, expected a..b or a..b/step with a <= b, step >= 1",
                        name, word, word));
    return range;
}

/// False where no list has this key.
bool Scope::declare_lengths(const std::string& key, const std::string& values) {
    const auto& lists = op_->schema().lists;
    const auto list = std::ranges::find(lists, key, &ListField::key);
    if (list == lists.end()) return false;
    for (const std::string& word : split(values, ',')) {
        const Range range = range_of_numbers(key, word);
        if (range.low < list->min || range.high > list->max)
            throw std::invalid_argument(fmt::format("{}={}: '{}' is no length, allowed: {} to {}", key,
                                                    word, word, list->min, list->max));
        lengths_[static_cast<std::size_t>(list - lists.begin())].push_back(range);
    }
    return true;
}

std::size_t Scope::aspect_named(const std::string& name) const {
    return static_cast<std::size_t>(std::ranges::find(aspects_, name, &Aspect::name) - aspects_.begin());
}

/// The aspect "q=kv", by either of its names.
std::optional<std::size_t> Scope::relation_of(const std::string& key, const std::string& values) const {
    for (const std::string& relation : {key + "=" + values, values + "=" + key})
        if (const std::size_t at = aspect_named(relation); at < aspects_.size()) return at;
    return std::nullopt;
}

void Scope::declare(const std::string& key, const std::string& values) {
    if (const auto relation = relation_of(key, values)) {
        limits_[*relation].declared = {{1, 1, 1}};
        return;
    }
    if (declare_lengths(key, values)) return;
    const std::size_t at = aspect_named(key);
    if (at == aspects_.size()) {
        std::vector<std::string> known;
        for (const Aspect& aspect : aspects_) known.push_back(aspect.name);
        for (const ListField& list : op_->schema().lists) known.push_back(list.key);
        known.emplace_back("outputs");
        if (key == "data" || key == "seed")
            throw std::invalid_argument(fmt::format("{0}={1}: {0} is no feature, a kernel takes all numbers", key, values));
        const std::string meant = resembling(key, known);
        throw std::invalid_argument(fmt::format("unknown field '{}' of {}, {}", key, op_->name(),
                                                meant.empty() ? fmt::format("known: {}", fmt::join(known, " "))
                                                              : fmt::format("did you mean '{}'?", meant)));
    }
    const int field = op_->schema().number(key);
    for (const std::string& word : split(values, ',')) {
        const Range range = range_of(aspects_[at], word);
        if (field >= 0 && aspects_[at].named.empty()) {
            const NumberField& number = op_->schema().numbers[static_cast<std::size_t>(field)];
            if (range.high < number.min || range.low > number.max)
                throw std::invalid_argument(fmt::format("{}={}: no case has it, allowed: {} to {}", key, word, number.min, number.max));
        }
        limits_[at].declared.push_back(range);
    }
}

void Scope::restrict_to(const std::string& features) {
    std::map<std::string, std::string> declared;  // values by field
    for (const std::string& word : split(features, ' ')) {
        const std::size_t equals = word.find('=');
        if (equals == std::string::npos || equals == 0 || equals + 1 == word.size())
            throw std::invalid_argument(
                fmt::format("'{}' is no feature: expected field=values", word));
        const std::string key = word.substr(0, equals), values = word.substr(equals + 1);
        if (relation_of(key, values)) {  // beside a list of values
            is_declared_ = true;
            declare(key, values);
            continue;
        }
        if (const auto [at, is_new] = declared.emplace(key, values); !is_new)
            throw std::invalid_argument(
                fmt::format("{0} is declared twice, as {0}={1} and {0}={2}: expected one list, {0}={1},{2}",
                            key, at->second, values));
        if (key == "outputs") {
            withheld_ = withheld_by(op_->schema(), values);
            continue;
        }
        is_declared_ = true;
        declare(key, values);
    }
}

std::string Scope::text_of(const std::vector<Range>& ranges, const Aspect* aspect) {
    std::vector<std::string> values;
    for (const Range& range : ranges)
        values.push_back(range.low == range.high
                             ? (aspect ? aspect->text(range.low) : std::to_string(range.low))
                         : range.step == 1 ? fmt::format("{}..{}", range.low, range.high)
                                           : fmt::format("{}..{}/{}", range.low, range.high, range.step));
    return fmt::format("{}", fmt::join(values, ","));
}

namespace {

/// "dim=64,128", "layout!=TND", and of a relation of two sizes value_dim=dim or value_dim!=dim.
std::string values_text(const Aspect& aspect, const std::set<std::int64_t>& values, bool taken) {
    const std::size_t equals = aspect.name.find('=');
    if (equals != std::string::npos && aspect.name[std::max<std::size_t>(equals, 1) - 1] != '<' && values.size() == 1)
        return (*values.begin() != 0) == taken
                   ? aspect.name
                   : fmt::format("{}!={}", aspect.name.substr(0, equals), aspect.name.substr(equals + 1));
    std::vector<std::string> words;
    for (const std::int64_t value : values) words.push_back(aspect.text(value));
    return fmt::format("{}{}{}", aspect.name, taken ? "=" : "!=", fmt::join(words, ","));
}

}  // namespace

std::string Scope::text() const {
    std::string out;
    if (withheld_ != 0)
        out = fmt::format("outputs={}", given_outputs(op_->schema(), withheld_));
    for (std::size_t a = 0; a < aspects_.size(); ++a) {
        const Limit& limit = limits_[a];
        if (!limit.closed && limit.refused.empty() && limit.declared.empty()) continue;
        if (!limit.declared.empty()) {
            const std::string values = text_of(limit.declared, &aspects_[a]);
            const bool is_relation = aspects_[a].name.find('=') != std::string::npos && values == "yes";
            out += fmt::format("{}{}{}", out.empty() ? "" : " ", aspects_[a].name,
                               is_relation ? "" : "=" + values);
            continue;
        }
        const std::set<std::int64_t>& all = limit.closed ? limit.accepted : limit.refused;
        if (limit.closed && !aspects_[a].named.empty() && all.size() == aspects_[a].named.size()) continue;  // no limit
        out += fmt::format("{}{}", out.empty() ? "" : " ", values_text(aspects_[a], all, limit.closed));
    }
    for (std::size_t i = 0; i < lengths_.size(); ++i)
        if (!lengths_[i].empty())
            out += fmt::format("{}{}={}", out.empty() ? "" : " ", op_->schema().lists[i].key,
                               text_of(lengths_[i], nullptr));
    const std::string combinations = text_of_combinations();
    return (out.empty() && !combinations.empty() ? "what is legal" : out) + combinations;
}

/// ", not sparse=band with keep=half": sizes stand for all that were not taken.
std::string Scope::text_of_combinations() const {
    constexpr std::size_t kShown = 3;
    std::string out;
    for (std::size_t k = 0; k < std::min(kShown, combinations_.size()); ++k) {
        std::vector<std::string> words;
        for (const auto& [a, value] : combinations_[k])
            words.push_back(aspects_[a].is_extent ? fmt::format("another {}", aspects_[a].name)
                                                  : values_text(aspects_[a], {value}, true));
        out += fmt::format(", not {}", fmt::join(words, " with "));
    }
    if (combinations_.size() > kShown) out += fmt::format(", and {} such combinations more", combinations_.size() - kShown);
    return out;
}

std::string Scope::refusals_text(const std::vector<Spec>& cases) const {
    std::vector<std::pair<std::size_t, std::size_t>> counts;
    for (std::size_t a = 0; a < aspects_.size(); ++a) {
        const auto count = static_cast<std::size_t>(std::ranges::count_if(
            cases, [&](const Spec& spec) { return !takes(a, aspects_[a].value(spec)); }));
        if (count > 0) counts.emplace_back(count, a);
    }
    std::ranges::stable_sort(counts, std::greater<>(), &std::pair<std::size_t, std::size_t>::first);
    std::string out;
    for (std::size_t i = 0; i < std::min<std::size_t>(5, counts.size()); ++i)
        out += fmt::format(
            "{}{} {:.0f} %", i == 0 ? "" : ", ", aspects_[counts[i].second].name,
            100.0 * static_cast<double>(counts[i].first) / static_cast<double>(cases.size()));
    return out;
}

}  // namespace attncheck::properties
