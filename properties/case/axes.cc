#include "properties/case/axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "properties/case/description.h"

namespace attncheck::properties {
namespace {

bool is_number(const std::string& word) {
    return !word.empty() &&
           std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Factors of "a*b" or, in brackets, of "a b".
std::vector<Factor> factors_of(const std::string& word, char separator) {
    std::vector<Factor> out;
    std::size_t start = 0;
    while (start <= word.size()) {
        const auto end = std::min(word.find(separator, start), word.size());
        Factor factor;
        factor.name = word.substr(start, end - start);
        if (factor.name.ends_with('+')) {
            factor.of = Factor::Of::rows;
            factor.name.pop_back();
        }
        out.push_back(std::move(factor));
        start = end + 1;
    }
    return out;
}

/// Extent of a factor, in one sequence where it differs between them.
std::int64_t value_of(const Factor& factor, const Extents& extents, std::int64_t sequence) {
    switch (factor.of) {
        case Factor::Of::number:
            return factor.number;
        case Factor::Of::scalar:
            return extents.scalar(factor.symbol);
        case Factor::Of::sequences:
            return extents.sequences();
        case Factor::Of::longest:
            return extents.longest(factor.symbol);
        case Factor::Of::rows:
            return extents.rows(factor.symbol);
        case Factor::Of::each:
            return extents.lengths(factor.symbol)[static_cast<std::size_t>(sequence)];
    }
    return 0;
}

std::int64_t product_of(const Axis& axis, const Extents& extents, std::int64_t sequence) {
    std::int64_t product = 1;
    for (const Factor& factor : axis.factors) product *= value_of(factor, extents, sequence);
    return product;
}

std::int64_t extent_of(const Axis& axis, const Extents& extents) {
    if (!axis.per_sequence) return product_of(axis, extents, 0);
    std::int64_t sum = 0;
    for (std::int64_t b = 0; b < extents.sequences(); ++b) sum += product_of(axis, extents, b);
    return sum;
}

/// A row of "q+": its sequence and its position there.
void place_row(const Factor& factor, const Extents& extents, std::int64_t row, Place& place) {
    std::int64_t start = 0;
    place.sequence = 0;
    for (const std::int64_t length : extents.lengths(factor.symbol)) {
        if (row < start + length) {
            place.at.emplace_back(factor.name, row - start);
            return;
        }
        start += length;
        ++place.sequence;
    }
    place.beyond = true;
    place.at.emplace_back(factor.name, row);
}

/// An index into "a*b" or into one sequence of "+(a b)", taken apart.
void place_product(const Axis& axis, const Extents& extents, std::int64_t index, Place& place) {
    for (std::size_t k = axis.factors.size(); k-- > 0;) {
        const Factor& factor = axis.factors[k];
        const std::int64_t extent =
            std::max<std::int64_t>(value_of(factor, extents, place.sequence), 1);
        place.at.emplace_back(factor.name, index % extent);
        index /= extent;
    }
}

std::int64_t index_of_product(const Axis& axis, const Extents& extents, const Place& place) {
    std::int64_t index = 0;
    for (const Factor& factor : axis.factors)
        index = index * std::max<std::int64_t>(value_of(factor, extents, place.sequence), 1) +
                place.of(factor.name);
    return index;
}

/// An index into "+(heads q)". Rows beyond the last sequence have no length that could separate
/// heads: they lie row by row.
void place_in_sequences(const Axis& axis, const Extents& extents, std::int64_t index,
                        Place& place) {
    for (place.sequence = 0; place.sequence < extents.sequences(); ++place.sequence) {
        const std::int64_t size = product_of(axis, extents, place.sequence);
        if (index < size) return place_product(axis, extents, index, place);
        index -= size;
    }
    place.beyond = true;
    const Factor* ragged = nullptr;
    for (const Factor& factor : axis.factors) {
        if (factor.of == Factor::Of::each) {
            ragged = &factor;
            continue;
        }
        const std::int64_t extent = std::max<std::int64_t>(value_of(factor, extents, 0), 1);
        place.at.emplace_back(factor.name, index % extent);
        index /= extent;
    }
    if (!ragged) return;
    for (const std::int64_t length : extents.lengths(ragged->symbol)) index += length;
    place.at.emplace_back(ragged->name, index);
}

std::int64_t index_in_sequences(const Axis& axis, const Extents& extents, const Place& place) {
    const std::int64_t before = place.beyond ? extents.sequences() : place.sequence;
    std::int64_t index = 0;
    for (std::int64_t b = 0; b < before; ++b) index += product_of(axis, extents, b);
    if (!place.beyond) return index + index_of_product(axis, extents, place);
    std::int64_t row = 0, inside = 0, size = 1;
    for (const Factor& factor : axis.factors) {
        if (factor.of == Factor::Of::each) {
            const auto& lengths = extents.lengths(factor.symbol);
            row = std::accumulate(lengths.begin(), lengths.end(), place.of(factor.name),
                                  std::minus<>());
            continue;
        }
        inside += place.of(factor.name) * size;
        size *= std::max<std::int64_t>(value_of(factor, extents, 0), 1);
    }
    return index + row * size + inside;
}

std::int64_t index_of_row(const Factor& factor, const Extents& extents, const Place& place) {
    if (place.beyond) return place.of(factor.name);
    const auto& lengths = extents.lengths(factor.symbol);
    return std::accumulate(lengths.begin(),
                           lengths.begin() + static_cast<std::ptrdiff_t>(place.sequence),
                           place.of(factor.name));
}

bool is_only(const Axis& axis, Factor::Of what) {
    return axis.factors.size() == 1 && axis.factors[0].of == what;
}

}  // namespace

std::int64_t Place::of(const std::string& symbol) const {
    const auto it =
        std::find_if(at.begin(), at.end(), [&](const auto& item) { return item.first == symbol; });
    return it == at.end() ? 0 : it->second;
}

Axes::Axes(const std::string& text) : text_(text) {
    std::string word;
    int depth = 0;
    const auto end_word = [&] {
        if (word.empty()) return;
        const bool inside = word.starts_with("+(");
        if (inside != word.ends_with(')') || word.find("()") != std::string::npos)
            throw std::logic_error(fmt::format("axes '{}': '{}' is no axis", text, word));
        axes_.push_back(inside ? Axis{factors_of(word.substr(2, word.size() - 3), ' '), true}
                               : Axis{factors_of(word, '*'), false});
        word.clear();
    };
    for (const char c : text) {
        depth += c == '(' ? 1 : c == ')' ? -1 : 0;
        if (c == ' ' && depth == 0)
            end_word();
        else
            word += c;
    }
    if (depth != 0) throw std::logic_error(fmt::format("axes '{}': brackets do not match", text));
    end_word();
}

void Axes::resolve(const Description& description) {
    for (Axis& axis : axes_)
        for (Factor& factor : axis.factors) {
            const bool rows = factor.of == Factor::Of::rows;
            if (is_number(factor.name)) {
                factor.number = std::stoll(factor.name);
            } else if (factor.name == "B") {
                factor.of = Factor::Of::sequences;
            } else if (factor.symbol = description.ragged(factor.name); factor.symbol >= 0) {
                if (!rows)
                    factor.of = axis.per_sequence ? Factor::Of::each : Factor::Of::longest;
                continue;
            } else if (factor.symbol = description.scalar(factor.name); factor.symbol >= 0) {
                factor.of = Factor::Of::scalar;
            } else {
                throw std::logic_error(fmt::format("{}: axes '{}' name '{}', which is no extent",
                                                   description.op, text_, factor.name));
            }
            if (rows)
                throw std::logic_error(fmt::format("{}: axes '{}': '{}' has no sequences",
                                                   description.op, text_, factor.name));
        }
}

std::vector<std::int64_t> Axes::shape(const Extents& extents) const {
    std::vector<std::int64_t> out;
    for (const Axis& axis : axes_) out.push_back(extent_of(axis, extents));
    return out;
}

Place Axes::place(const Extents& extents, std::int64_t number) const {
    Place place;
    std::vector<std::int64_t> index(axes_.size());
    for (std::size_t k = axes_.size(); k-- > 0;) {
        // The first axis may be longer than its sequences: rows beyond the last.
        const std::int64_t extent =
            k == 0 ? INT64_MAX : std::max<std::int64_t>(extent_of(axes_[k], extents), 1);
        index[k] = number % extent;
        number /= extent;
    }
    for (std::size_t k = 0; k < axes_.size(); ++k) {
        const Axis& axis = axes_[k];
        if (axis.per_sequence) {
            place_in_sequences(axis, extents, index[k], place);
        } else if (is_only(axis, Factor::Of::rows)) {
            place_row(axis.factors[0], extents, index[k], place);
        } else if (is_only(axis, Factor::Of::sequences)) {
            place.sequence = index[k];
            place.padded = true;
        } else {
            place_product(axis, extents, index[k], place);
        }
    }
    return place;
}

std::int64_t Axes::number(const Extents& extents, const Place& place) const {
    std::int64_t number = 0;
    for (const Axis& axis : axes_) {
        const std::int64_t index =
            axis.per_sequence                      ? index_in_sequences(axis, extents, place)
            : is_only(axis, Factor::Of::rows)      ? index_of_row(axis.factors[0], extents, place)
            : is_only(axis, Factor::Of::sequences) ? place.sequence
                                                   : index_of_product(axis, extents, place);
        number = number * std::max<std::int64_t>(extent_of(axis, extents), 1) + index;
    }
    return number;
}

}  // namespace attncheck::properties
