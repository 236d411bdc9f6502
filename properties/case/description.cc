#include "properties/case/description.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "properties/case/call.h"
#include "properties/case/number_text.h"

namespace attncheck::properties {
namespace {

template <class Items, class Name>
int index_in(const Items& items, std::string_view name, Name Items::value_type::*member,
             const NameIndex& index = {}) {
    if (!index.empty()) return index.find(items, name, member);
    const auto it = std::find_if(items.begin(), items.end(),
                                 [&](const auto& item) { return item.*member == name; });
    return it == items.end() ? -1 : static_cast<int>(it - items.begin());
}

std::optional<ref::Dtype> type_named(std::string_view name) {
    for (const ref::Dtype type :
         {ref::Dtype::fp16, ref::Dtype::bf16, ref::Dtype::fp32, ref::Dtype::fp8_e5m2,
          ref::Dtype::fp8_e4m3fn, ref::Dtype::int32, ref::Dtype::int64, ref::Dtype::uint8,
          ref::Dtype::boolean})
        if (ref::dtype_name(type) == name) return type;
    return std::nullopt;
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> out;
    for (std::size_t start = 0; start < text.size();) {
        const auto end = std::min(text.find(separator, start), text.size());
        if (end > start) out.emplace_back(text.substr(start, end - start));
        start = end + 1;
    }
    return out;
}

/// How many symbols of this kind stand in front of `end`.
std::int64_t count_before(const std::vector<Symbol>& symbols, std::size_t end, bool ragged) {
    return std::count_if(
        symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(end),
        [&](const Symbol& symbol) { return static_cast<bool>(symbol.lengths) == ragged; });
}

/// Of a symbol among those of its kind.
int place_of(const Description& description, int symbol) {
    const auto at = static_cast<std::size_t>(symbol);
    if (!description.symbol_places.empty()) return description.symbol_places[at];
    const auto& symbols = description.symbols;
    return static_cast<int>(count_before(symbols, at, static_cast<bool>(symbols[at].lengths)));
}

/// Resolves the name of a type, or of a field whose values are named like types.
void resolve_type(const Description& d, TypeRule& rule) {
    if (const auto type = type_named(rule.type)) {
        rule.types = {*type};
        return;
    }
    rule.field = d.number(rule.type);
    if (rule.field < 0) return;
    // The name of no type, as "absent", belongs to a tensor that is not there.
    for (const std::string& name : d.numbers[static_cast<std::size_t>(rule.field)].names)
        rule.types.push_back(type_named(name).value_or(ref::Dtype::uint8));
}

}  // namespace

int Description::number(std::string_view key) const {
    return index_in(numbers, key, &NumberField::key, number_index);
}
int Description::list(std::string_view key) const { return index_in(lists, key, &ListField::key); }
int Description::tensor(std::string_view name) const {
    return index_in(tensors, name, &TensorField::name, tensor_index);
}

int Description::scalar(std::string_view name) const {
    if (const int field = number(name); field >= 0) return field;
    const int symbol = index_in(symbols, name, &Symbol::name, symbol_index);
    if (symbol < 0 || !symbols[static_cast<std::size_t>(symbol)].value) return -1;
    return static_cast<int>(std::ssize(numbers)) + place_of(*this, symbol);
}

int Description::ragged(std::string_view name) const {
    if (const int field = list(name); field >= 0) return field;
    const int symbol = index_in(symbols, name, &Symbol::name, symbol_index);
    if (symbol < 0 || !symbols[static_cast<std::size_t>(symbol)].lengths) return -1;
    return static_cast<int>(std::ssize(lists)) + place_of(*this, symbol);
}

const Claim* Description::claim_of(const Edit& edit) const {
    const std::string key = edit.attribute.empty() ? edit.name : edit.name + '.' + edit.attribute;
    const auto it = std::find_if(claims.begin(), claims.end(),
                                 [&](const Claim& claim) { return claim.key == key; });
    return it == claims.end() ? nullptr : &*it;
}

const std::string& Description::word_of(std::string_view name) const {
    if (const int field = number(name); field >= 0)
        return numbers[static_cast<std::size_t>(field)].word;
    if (const int field = list(name); field >= 0)
        return lists[static_cast<std::size_t>(field)].word;
    return symbols.at(static_cast<std::size_t>(index_in(symbols, name, &Symbol::name, symbol_index))).word;
}

void When::resolve(const Description& description) {
    terms_.clear();
    for (const std::string& word : split(text_, ' ')) {
        const auto sign = std::min(word.find_first_of("!>="), word.size());
        const std::string key = word.substr(0, sign);
        Term term;
        term.field = description.number(key);
        const auto wrong = [&](std::string_view why) {
            throw std::logic_error(
                fmt::format("{}: condition '{}': '{}' {}", description.op, text_, word, why));
        };
        if (term.field < 0) wrong("names no field");
        const auto& names = description.numbers[static_cast<std::size_t>(term.field)].names;
        std::size_t values = sign + 1;
        if (sign == word.size()) {  // "mask": not 0
            term.is = Term::Is::none_of;
            term.values = {0};
        } else if (word[sign] != '=') {
            term.is = word[sign] == '!' ? Term::Is::none_of : Term::Is::at_least;
            if (word.compare(sign + 1, 1, "=") != 0) wrong("needs =, != or >=");
            ++values;
        }
        for (const std::string& value : split(std::string_view(word).substr(
                 std::min(values, word.size())), ',')) {
            const auto it = std::find(names.begin(), names.end(), value);
            if (it != names.end())
                term.values.push_back(it - names.begin());
            else if (const auto number = number_in<std::int64_t>(value); number && names.empty())
                term.values.push_back(*number);
            else
                wrong("names no value of its field");
        }
        if (term.values.empty()) wrong("has no value");
        terms_.push_back(std::move(term));
    }
}

bool When::holds(const Extents& extents) const {
    return std::all_of(terms_.begin(), terms_.end(), [&](const Term& term) {
        const std::int64_t value = extents.scalar(term.field);
        if (term.is == Term::Is::at_least) return value >= term.values[0];
        const bool among =
            std::find(term.values.begin(), term.values.end(), value) != term.values.end();
        return among == (term.is == Term::Is::one_of);
    });
}

Description resolved(Description d) {
    d.number_index = NameIndex(d.numbers, &NumberField::key);
    d.symbol_index = NameIndex(d.symbols, &Symbol::name);
    d.tensor_index = NameIndex(d.tensors, &TensorField::name);
    d.symbol_places.clear();
    std::vector<int> places;
    for (int symbol = 0; symbol < static_cast<int>(std::ssize(d.symbols)); ++symbol)
        places.push_back(place_of(d, symbol));
    d.symbol_places = std::move(places);
    const auto fail = [&](const std::string& what) {
        throw std::logic_error(fmt::format("{}: {}", d.op, what));
    };
    for (ListField& list : d.lists) {
        list.beyond_field = list.beyond.empty() ? -1 : d.number(list.beyond);
        if (!list.beyond.empty() && list.beyond_field < 0)
            fail(fmt::format("{} has rows beyond in '{}', which is no field", list.key,
                             list.beyond));
    }
    for (TensorField& tensor : d.tensors) {
        tensor.logical.resolve(d);
        tensor.rank =
            std::max<int>(1, static_cast<int>(std::ssize(tensor.logical.axes())));
        tensor.present.resolve(d);
        tensor.view_when.resolve(d);
        for (Form& form : tensor.forms) {
            form.when.resolve(d);
            form.shape.resolve(d);
            form.order.resolve(d);
            form.strides.resolve(d);
        }
        for (TypeRule& rule : tensor.types) {
            rule.when.resolve(d);
            resolve_type(d, rule);
            if (rule.types.empty())
                fail(fmt::format("{} has the type '{}', which is neither a type nor a field",
                                 tensor.name, rule.type));
        }
    }
    for (ArrayField& array : d.arrays) {
        array.present.resolve(d);
        if (array.values) continue;
        array.values = [list = array.ends_of](const Extents& e) { return cumulative(e.lengths(list)); };
    }
    for (Rule& rule : d.rules) {
        rule.when.resolve(d);
        rule.needs.resolve(d);
    }
    for (IntegerField& field : d.integers) {
        field.scalar = d.scalar(field.value);
        if (field.scalar < 0 && !number_in<std::int64_t>(field.value))
            fail(fmt::format("{} is '{}', which is neither a number nor a scalar", field.name,
                             field.value));
    }
    for (const Claim& claim : d.claims) {
        const std::string key = claim.key.starts_with("all.") ? claim.key.substr(4) : "";
        if (!claim.apply && d.scalar(key) < 0 && d.list(key) < 0)
            fail(fmt::format("claim '{}' names no extent", claim.key));
    }
    return d;
}

Extents::Extents(const Description& description, std::vector<std::int64_t> numbers,
                 std::vector<std::vector<std::int64_t>> lists, std::uint64_t seed,
                 Profile profile)
    : description_(&description),
      seed_(seed),
      profile_(profile),
      scalars_(std::move(numbers)),
      lengths_(std::move(lists)),
      pinned_(scalars_.size()) {
    const std::size_t ragged = static_cast<std::size_t>(
        count_before(description.symbols, description.symbols.size(), true));
    lengths_.resize(lengths_.size() + ragged);
    scalars_.resize(scalars_.size() + description.symbols.size() - ragged);
    pinned_.resize(scalars_.size());
    derive();
}

void Extents::derive() {
    std::size_t scalar = description_->numbers.size(), ragged = description_->lists.size();
    sums_.resize(lengths_.size()), longest_.resize(lengths_.size());
    const auto measure = [this](std::size_t k) {
        const auto& lengths = lengths_[k];
        sums_[k] = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
        longest_[k] = lengths.empty() ? 0 : *std::ranges::max_element(lengths);
    };
    for (std::size_t k = 0; k < ragged; ++k) measure(k);
    for (const Symbol& symbol : description_->symbols)
        if (symbol.lengths) {
            lengths_[ragged] = symbol.lengths(*this);
            measure(ragged++);
        } else {
            if (!pinned_[scalar]) scalars_[scalar] = symbol.value(*this);
            ++scalar;
        }
}

void Extents::claim(std::string_view name, std::int64_t value) {
    if (const int list = description_->list(name); list >= 0) {
        auto& lengths = lengths_[static_cast<std::size_t>(list)];
        std::fill(lengths.begin(), lengths.end(), value);
    } else if (const int scalar = description_->scalar(name); scalar >= 0) {
        scalars_[static_cast<std::size_t>(scalar)] = value;
        pinned_[static_cast<std::size_t>(scalar)] = true;
    } else {
        throw std::logic_error(fmt::format("{} has no extent {}", description_->op, name));
    }
    derive();
}

void Extents::claim_lengths(std::string_view list, std::vector<std::int64_t> lengths) {
    lengths_.at(static_cast<std::size_t>(description_->list(list))) = std::move(lengths);
    derive();
}

std::int64_t Extents::operator[](std::string_view name) const {
    const int symbol = description_->scalar(name);
    if (symbol < 0) throw std::logic_error(fmt::format("{} has no {}", description_->op, name));
    return scalar(symbol);
}

const std::vector<std::int64_t>& Extents::lengths(std::string_view name) const {
    const int symbol = description_->ragged(name);
    if (symbol < 0)
        throw std::logic_error(fmt::format("{} has no lengths {}", description_->op, name));
    return lengths(symbol);
}

std::int64_t Extents::rows(std::string_view name) const {
    return rows(description_->ragged(name));
}

std::int64_t Extents::rows(int symbol) const {
    std::int64_t beyond = 0;
    if (symbol < std::ssize(description_->lists)) {
        const int field = description_->lists[static_cast<std::size_t>(symbol)].beyond_field;
        if (field >= 0) beyond = scalar(field);
    }
    return sums_[static_cast<std::size_t>(symbol)] + beyond;
}

ref::Dtype Extents::type_of(const TensorField& tensor) const {
    const auto rule = std::find_if(tensor.types.begin(), tensor.types.end(),
                                   [&](const TypeRule& r) { return r.when.holds(*this); });
    if (rule == tensor.types.end())
        throw std::logic_error(fmt::format("{} has no type here", tensor.name));
    if (rule->field < 0) return rule->types.at(0);
    if (rule->field == 0 && type_) return *type_;
    return rule->types.at(static_cast<std::size_t>(scalar(rule->field)));
}

std::optional<std::string> number_outside(const Description& description,
                                          std::span<const std::int64_t> numbers) {
    for (std::size_t i = 0; i < description.numbers.size(); ++i) {
        const NumberField& field = description.numbers[i];
        const std::int64_t n = numbers[i];
        if (n < field.min || n > field.max || (n - field.min) % field.step)
            return fmt::format("{}={} is outside {}..{} in steps of {}", field.key, n, field.min,
                               field.max, field.step);
    }
    return std::nullopt;
}

std::function<std::optional<std::string>(const Extents&)> name_in(std::string field) {
    return [field = std::move(field)](const Extents& extents) -> std::optional<std::string> {
        const Description& d = extents.description();
        const auto index = static_cast<std::size_t>(d.number(field));
        const std::string& name =
            d.numbers.at(index).names.at(static_cast<std::size_t>(extents[field]));
        if (name == "absent") return std::nullopt;
        return name;
    };
}

}  // namespace attncheck::properties
