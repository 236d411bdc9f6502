#include "properties/case/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>

#include "properties/case/number_text.h"
#include "properties/case/outputs.h"
#include "properties/case/printable.h"

namespace attncheck::properties {
namespace {

constexpr std::array<std::string_view, kLayouts> kLayoutNames = {
    "dense",    "unit",      "gap",           "swapped",      "columns",
    "spread",   "reversed",  "broadcast",     "reversed_last", "reversed_all",
    "one_row",  "one_column", "one_element",  "far",
    "joined",   "fused",     "woven"};
constexpr std::array<std::string_view, 11> kRecipeNames = {
    "zeros",      "ones",  "ints", "onehot",    "signs",   "normal",
    "cancelling", "spiky", "huge", "subnormal", "specials"};

[[noreturn]] void fail(const std::string& message) {
    constexpr std::size_t kLongest = 1000;  // a line may have megabytes
    throw std::invalid_argument("case: " + printable_line(message, kLongest));
}

template <std::size_t N>
int index_of(const std::array<std::string_view, N>& names, std::string_view name) {
    const auto it = std::find(names.begin(), names.end(), name);
    return it == names.end() ? -1 : static_cast<int>(it - names.begin());
}

std::int64_t parse_integer(std::string_view text, std::string_view key) {
    const auto value = number_in<std::int64_t>(text);
    if (!value) fail(fmt::format("{} is '{}', expected a whole number", key, text));
    return *value;
}

double parse_double(std::string_view text) {
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
    const auto value = number_in<double>(text);
    if (!value) fail(fmt::format("'{}' is not a number (nan, inf, -inf are)", text));
    return *value;
}

/// Follows brackets, which nest, and texts in double quotes, in which they mean nothing.
class Nesting {
public:
    void step(char ch) {
        if (ch == '"') quoted_ = !quoted_;
        if (!quoted_ && ch == '[') ++depth_;
        if (!quoted_ && ch == ']') --depth_;
    }
    bool outside() const { return depth_ == 0 && !quoted_; }
    bool quoted() const { return quoted_; }

private:
    int depth_ = 0;
    bool quoted_ = false;
};

/// Splits at commas that are in neither brackets nor quotes.
std::vector<std::string_view> split_list(std::string_view text, std::string_view key) {
    if (text.size() < 2 || text.front() != '[' || text.back() != ']')
        fail(fmt::format("{} is '{}', expected a list in brackets", key, text));
    text = text.substr(1, text.size() - 2);
    std::vector<std::string_view> parts;
    Nesting nesting;
    std::size_t start = 0;
    for (std::size_t i = 0; i <= text.size(); ++i) {
        if (i < text.size()) nesting.step(text[i]);
        if (i == text.size() || (text[i] == ',' && nesting.outside())) {
            if (i > start || !parts.empty() || i < text.size())
                parts.push_back(text.substr(start, i - start));
            start = i + 1;
        }
    }
    return parts;
}

/// So many equal entries in a row, or more, are printed with their count: 5*1000 is a thousand times 5.
constexpr std::size_t kShortestRun = 8;
constexpr std::size_t kLongestList = std::size_t{1} << 20;  // a line of few letters must not fill the memory

std::string print_list(const std::vector<std::int64_t>& list) {
    std::vector<std::string> items;
    for (auto it = list.begin(); it != list.end();) {
        const auto end = std::find_if(it, list.end(), [&](std::int64_t entry) { return entry != *it; });
        const auto run = static_cast<std::size_t>(end - it);
        if (run >= kShortestRun)
            items.push_back(fmt::format("{}*{}", *it, run));
        else
            items.insert(items.end(), run, std::to_string(*it));
        it = end;
    }
    return fmt::format("[{}]", fmt::join(items, ","));
}

void parse_list(const ListField& field, std::string_view text, std::vector<std::int64_t>& list) {
    for (const auto item : split_list(text, field.key)) {
        const auto times = item.find('*');
        const std::int64_t entry = parse_integer(item.substr(0, times), field.key);
        if (entry < field.min || entry > field.max)
            fail(fmt::format("{} holds {}, allowed: {}..{}", field.key, entry, field.min, field.max));
        const std::int64_t run =
            times == item.npos ? 1 : parse_integer(item.substr(times + 1), field.key + " times");
        if (run < 1) fail(fmt::format("{} repeats an entry {} times, expected at least 1", field.key, run));
        if (static_cast<std::uint64_t>(run) > kLongestList - list.size())
            fail(fmt::format("{} has more than {} entries", field.key, kLongestList));
        list.insert(list.end(), static_cast<std::size_t>(run), entry);
    }
}

void parse_override(std::string_view item, Spec& spec) {
    const auto open = item.find('['), close = item.find(']'), equals = item.find('=');
    if (open == std::string_view::npos || close == std::string_view::npos || equals != close + 1 ||
        close < open)
        fail(fmt::format("set entry '{}', expected tensor[i,j,..]=value", item));
    const std::string_view name = item.substr(0, open);
    ElementRef ref;
    ref.tensor = spec.schema->tensor(name);
    if (ref.tensor < 0 || spec.schema->tensors[ref.tensor].output)
        fail(fmt::format("set names '{}', which is no input tensor of {}", name, spec.schema->op));
    if (spec.schema->tensors[ref.tensor].derived)
        fail(fmt::format("set names '{}', which follows from the other inputs", name));
    const auto parts = split_list(item.substr(open, close - open + 1), "set");
    if (static_cast<int>(parts.size()) != spec.schema->tensors[ref.tensor].rank)
        fail(fmt::format("set entry '{}' needs {}", item,
                         spec.schema->tensors[ref.tensor].rank == 1
                             ? "1 index: one number counts through the whole tensor"
                             : fmt::format("{} indices", spec.schema->tensors[ref.tensor].rank)));
    for (std::size_t k = 0; k < parts.size(); ++k) {
        ref.index[k] = parse_integer(parts[k], "set index");
        if (ref.index[k] < 0) fail(fmt::format("set entry '{}' has a negative index", item));
    }
    if (!spec.overrides.emplace(ref, parse_double(item.substr(equals + 1))).second)
        fail(fmt::format("set names {} twice", item.substr(0, equals)));
}

std::string known_keys(const Schema& schema) {
    std::vector<std::string> keys;
    for (const auto& field : schema.numbers) keys.push_back(field.key);
    for (const auto& field : schema.lists) keys.push_back(field.key);
    for (const auto& tensor : schema.tensors) keys.push_back(tensor.name + ".layout");
    for (const char* key : {"data", "seed", "outputs", "set", "break"}) keys.push_back(key);
    return fmt::format("{}", fmt::join(keys, " "));
}

void parse_number(const NumberField& field, std::string_view text, std::int64_t& out) {
    if (!field.names.empty()) {
        const auto it = std::find(field.names.begin(), field.names.end(), text);
        if (it == field.names.end())
            fail(fmt::format("{} is '{}', allowed: {}", field.key, text,
                             fmt::join(field.names, " ")));
        out = it - field.names.begin();
        return;
    }
    out = parse_integer(text, field.key);
    if (out < field.min || out > field.max || (out - field.min) % field.step != 0)
        fail(fmt::format("{} is {}, allowed: {}..{} in steps of {}", field.key, out, field.min,
                         field.max, field.step));
}

bool is_blank(char ch) { return ch == ' ' || ch == '\t' || ch == '\n'; }

/// Throws for a blank at `i` that stands between two entries of a list: "[1 28]" is not 128.
void check_blank(std::string_view body, std::size_t i) {
    constexpr std::string_view kSeparators = "[],=";
    const auto before = body.substr(0, i).find_last_not_of(" \t\n"),
               after = body.find_first_not_of(" \t\n", i);
    if (before != body.npos && after != body.npos &&
        kSeparators.find(body[before]) == kSeparators.npos &&
        kSeparators.find(body[after]) == kSeparators.npos)
        fail(fmt::format("'{}' has a blank inside brackets, entries are separated by commas",
                         printable_line(body.substr(before), 40)));
}

/// Words separated by blanks. Blanks inside brackets do not separate and are left out, those inside
/// double quotes stay.
std::vector<std::string> words_of(std::string_view body) {
    std::vector<std::string> words;
    std::string word;
    Nesting nesting;
    for (std::size_t i = 0; i < body.size(); ++i) {
        nesting.step(body[i]);
        if (!is_blank(body[i]) || nesting.quoted())
            word += body[i];
        else if (!nesting.outside())
            check_blank(body, i);
        else if (!word.empty())
            words.push_back(std::exchange(word, {}));
    }
    if (!nesting.outside())
        fail(nesting.quoted() ? "quotes do not match" : "brackets do not match");
    if (!word.empty()) words.push_back(word);
    return words;
}

}  // namespace

std::string_view name_of(Layout layout) { return kLayoutNames[static_cast<std::size_t>(layout)]; }
std::string_view name_of(Recipe recipe) { return kRecipeNames[static_cast<std::size_t>(recipe)]; }

Spec::Spec(const Schema& of)
    : schema(&of), lists(of.lists.size()), layouts(of.tensors.size(), Layout::dense) {
    for (const auto& field : of.numbers)
        numbers.push_back(field.fallback >= field.min ? field.fallback : field.min);
}

std::int64_t Spec::number(std::string_view key) const { return numbers.at(schema->number(key)); }
void Spec::set(std::string_view key, std::int64_t value) {
    numbers.at(schema->number(key)) = value;
}

bool Spec::operator==(const Spec& other) const {
    const auto same_value = [](const auto& a, const auto& b) {
        const double x = a.second, y = b.second;  // NaN is NaN, and -0 is not 0
        return a.first == b.first &&
               ((std::isnan(x) && std::isnan(y)) || (x == y && std::signbit(x) == std::signbit(y)));
    };
    return schema == other.schema && numbers == other.numbers && lists == other.lists &&
           layouts == other.layouts && withheld == other.withheld && recipe == other.recipe && seed == other.seed &&
           edits == other.edits &&
           std::equal(overrides.begin(), overrides.end(), other.overrides.begin(),
                      other.overrides.end(), same_value);
}

std::string print_value(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    return fmt::format("{}", value);  // shortest round trip
}

std::string print(const Spec& spec) {
    const Schema& schema = *spec.schema;
    std::vector<std::string> words;
    const auto put_number = [&](std::size_t i) {
        const NumberField& field = schema.numbers[i];
        if (spec.numbers[i] == field.fallback) return;
        words.push_back(field.names.empty()
                            ? fmt::format("{}={}", field.key, spec.numbers[i])
                            : fmt::format("{}={}", field.key, field.names.at(spec.numbers[i])));
    };
    put_number(0);
    for (std::size_t i = 0; i < schema.lists.size(); ++i)
        words.push_back(schema.lists[i].key + "=" + print_list(spec.lists[i]));
    for (std::size_t i = 1; i < schema.numbers.size(); ++i) put_number(i);
    words.push_back(fmt::format("data={}", name_of(spec.recipe)));
    words.push_back(fmt::format("seed={}", spec.seed));
    for (std::size_t i = 0; i < schema.tensors.size(); ++i)
        if (spec.layouts[i] != Layout::dense)
            words.push_back(
                fmt::format("{}.layout={}", schema.tensors[i].name, name_of(spec.layouts[i])));
    if (spec.withheld != 0)
        words.push_back(fmt::format("outputs={}", given_outputs(schema, spec.withheld)));
    if (!spec.overrides.empty()) {
        std::vector<std::string> items;
        for (const auto& [ref, value] : spec.overrides) {
            const auto& tensor = schema.tensors[ref.tensor];
            items.push_back(
                fmt::format("{}[{}]={}", tensor.name,
                            fmt::join(ref.index.begin(), ref.index.begin() + tensor.rank, ","),
                            print_value(value)));
        }
        words.push_back(fmt::format("set=[{}]", fmt::join(items, ",")));
    }
    if (!spec.edits.empty()) {
        std::vector<std::string> items;
        for (const Edit& edit : spec.edits) items.push_back(print(edit));
        words.push_back(fmt::format("break=[{}]", fmt::join(items, ",")));
    }
    return fmt::format("{}{{{}}}", schema.op, fmt::join(words, " "));
}

Spec parse(std::string_view text, const std::vector<const Schema*>& schemas) {
    const auto trim = [](std::string_view s) {
        const auto first = s.find_first_not_of(" \t\r\n");
        return first == std::string_view::npos
                   ? std::string_view{}
                   : s.substr(first, s.find_last_not_of(" \t\r\n") - first + 1);
    };
    text = trim(text);
    const auto open = text.find('{');
    if (open == std::string_view::npos || text.back() != '}')
        fail(fmt::format("'{}' is not of the form operator{{key=value ...}}", text));
    const std::string_view op = trim(text.substr(0, open));
    const Schema* schema = nullptr;
    std::vector<std::string> known;
    for (const Schema* candidate : schemas) {
        known.push_back(candidate->op);
        if (candidate->op == op) schema = candidate;
    }
    if (!schema) fail(fmt::format("unknown operator '{}', known: {}", op, fmt::join(known, " ")));

    Spec spec(*schema);
    std::vector<std::string> seen;
    for (const std::string& word : words_of(text.substr(open + 1, text.size() - open - 2))) {
        const auto equals = word.find('=');
        if (equals == std::string::npos) fail(fmt::format("'{}' is not key=value", word));
        const std::string key = word.substr(0, equals);
        const std::string_view value = std::string_view(word).substr(equals + 1);
        if (std::find(seen.begin(), seen.end(), key) != seen.end())
            fail(fmt::format("{} is given twice", key));
        seen.push_back(key);
        if (const int number = schema->number(key); number >= 0) {
            parse_number(schema->numbers[number], value, spec.numbers[number]);
        } else if (key == "data") {
            const int recipe = index_of(kRecipeNames, value);
            if (recipe < 0)
                fail(fmt::format("data is '{}', allowed: {}", value, fmt::join(kRecipeNames, " ")));
            spec.recipe = static_cast<Recipe>(recipe);
        } else if (key == "seed") {
            const auto [end, error] =
                std::from_chars(value.data(), value.data() + value.size(), spec.seed);
            if (error != std::errc{} || end != value.data() + value.size())
                fail(fmt::format("seed is '{}', expected 0..2^64-1", value));
        } else if (key == "outputs") {
            spec.withheld = withheld_by(*schema, value);
        } else if (key == "set") {
            for (const auto item : split_list(value, "set")) parse_override(item, spec);
        } else if (key == "break") {
            for (const auto item : split_list(value, "break")) spec.edits.emplace_back(item);
        } else if (key.ends_with(".layout") && schema->tensor(key.substr(0, key.size() - 7)) >= 0) {
            const int layout = index_of(kLayoutNames, value);
            if (layout < 0)
                fail(fmt::format("{} is '{}', allowed: {}", key, value,
                                 fmt::join(kLayoutNames, " ")));
            spec.layouts[schema->tensor(key.substr(0, key.size() - 7))] =
                static_cast<Layout>(layout);
        } else {
            bool found = false;
            for (std::size_t i = 0; i < schema->lists.size() && !found; ++i) {
                const ListField& field = schema->lists[i];
                if (field.key != key) continue;
                found = true;
                parse_list(field, value, spec.lists[i]);
            }
            if (!found) fail(fmt::format("unknown key '{}', known: {}", key, known_keys(*schema)));
        }
    }
    for (const auto& field : schema->numbers)
        if (field.fallback < field.min &&
            std::find(seen.begin(), seen.end(), field.key) == seen.end())
            fail(fmt::format("{} is missing", field.key));
    for (const auto& field : schema->lists)
        if (std::find(seen.begin(), seen.end(), field.key) == seen.end())
            fail(fmt::format("{} is missing", field.key));
    return spec;
}

std::int64_t value_complexity(double value) {
    if (std::isnan(value)) return 2001;
    if (std::isinf(value)) return value > 0 ? 1999 : 2000;
    if (value == 0) return std::signbit(value) ? 1 : 0;
    const double magnitude = std::fabs(value);
    const std::int64_t sign = value < 0 ? 1 : 0;
    if (magnitude == std::floor(magnitude) && magnitude <= 16)
        return 2 * static_cast<std::int64_t>(magnitude) + sign;
    int exponent = 0;
    double mantissa = std::frexp(magnitude, &exponent);
    int bits = 0;  // significant bits
    while (mantissa != 0) {
        mantissa *= 2;
        mantissa -= std::floor(mantissa);
        ++bits;
    }
    return 40 + 20 * static_cast<std::int64_t>(bits) + std::min(std::abs(exponent), 200) * 2 + sign;
}

std::vector<std::int64_t> complexity(const Spec& spec) {
    std::vector<std::int64_t> key{static_cast<std::int64_t>(spec.edits.size())};
    for (const auto& list : spec.lists) key.push_back(static_cast<std::int64_t>(list.size()));
    key.insert(key.end(), spec.numbers.begin() + 1, spec.numbers.end());
    std::int64_t total = 0;
    for (const auto& list : spec.lists)
        total += std::accumulate(list.begin(), list.end(), std::int64_t{0});
    key.push_back(total);
    key.push_back(std::accumulate(
        spec.layouts.begin(), spec.layouts.end(), std::int64_t{0},
        [](std::int64_t sum, Layout layout) { return sum + static_cast<int>(layout); }));
    key.push_back(std::popcount(spec.withheld));
    key.push_back(static_cast<std::int64_t>(spec.recipe));
    key.push_back(static_cast<std::int64_t>(spec.overrides.size()));
    std::int64_t values = 0, positions = 0;
    for (const auto& [ref, value] : spec.overrides) {
        values += value_complexity(value);
        for (const auto index : ref.index) positions += index;
    }
    key.push_back(values);
    key.push_back(positions);
    key.push_back(spec.numbers[0]);
    key.push_back(
        static_cast<std::int64_t>(spec.seed >> 1));  // the lowest bit follows; keeps the key signed
    key.push_back(static_cast<std::int64_t>(spec.seed & 1));
    for (const auto& list : spec.lists) key.insert(key.end(), list.begin(), list.end());
    for (const Edit& edit : spec.edits) {  // a shorter text is simpler
        const std::string text = print(edit);
        key.push_back(static_cast<std::int64_t>(text.size()));
        for (const char ch : text) key.push_back(ch);
    }
    return key;
}

}  // namespace attncheck::properties
