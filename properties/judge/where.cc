#include "properties/judge/where.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "properties/case/derived.h"
#include "properties/judge/error_map.h"

namespace attncheck::properties {
namespace {

constexpr std::size_t kMaxRows = 4096;  ///< of memory; a picture must not cost more than the call

/// The place of an element: the numbers behind "sequence" or "batch", "head", and the word of a row.
struct ElementPlace {
    std::int64_t sequence = 0, head = 0, row = 0;
    std::string row_word;
};

/// Reads what describe() says: "batch 0, query 8, head 0, channel 0".
ElementPlace place_in(const std::string& described) {
    ElementPlace place;
    std::size_t at = 0;
    while (at < described.size()) {
        const std::size_t end = std::min(described.find(", ", at), described.size());
        const std::string_view part(described.data() + at, end - at);
        const std::size_t blank = part.rfind(' ');
        at = end + 2;
        std::int64_t number = 0;
        if (blank == part.npos ||
            std::from_chars(part.data() + blank + 1, part.data() + part.size(), number).ec != std::errc{})
            continue;
        const std::string_view word = part.substr(0, blank);
        if (word == "sequence" || word == "batch")
            place.sequence = number;
        else if (word == "head")
            place.head = number;
        else if (place.row_word.empty() && word != "channel")
            place.row = number, place.row_word = word;
    }
    return place;
}

/// The worst error of the elements [first, first + count) in units of their bounds.
double worst_of(const ref::ExpectedTensor& expected, const Tensor& tensor,
                const std::vector<std::uint32_t>& got, std::size_t first, std::size_t count) {
    double worst = 0;
    ref::ExpectedTensor one(1);
    for (std::size_t k = first; k < first + count; ++k) {
        one.value[0] = expected.value[k];
        one.bound[0] = expected.bound[k];
        one.overflow[0] = expected.overflow[k];
        const Comparison c = compare(one, {&got[k], 1}, tensor.type());
        const bool is_number = c.kind == Comparison::Kind::wrong_value || c.ok();
        worst = std::max(worst, is_number && !std::isnan(c.worst_ratio) ? c.worst_ratio : HUGE_VAL);
    }
    return worst;
}

std::string cell_text(double worst) {
    return worst == 0 ? "       0" : fmt::format(" {:>7.3g}", worst);
}

}  // namespace

std::string map_of_errors(const Spec& spec, const Tensor& tensor, const ref::ExpectedTensor& expected,
                          const std::vector<std::uint32_t>& got) {
    const std::vector<std::int64_t>& shape = tensor.buffer_shape;
    if (shape.empty() || shape.back() <= 0) return {};
    auto width = static_cast<std::size_t>(shape.back());
    if (got.size() < width || got.size() / width > kMaxRows) return {};
    const auto place_of = [&](std::size_t element) {
        return place_in(describe(spec, tensor.name, coordinates(static_cast<std::int64_t>(element), shape)));
    };
    const ElementPlace first = place_of(0), last = place_of(width - 1);
    if (first.row_word.empty() || first.head != last.head) return {};
    if (first.row != last.row || first.sequence != last.sequence) width = 1;  // an LSE has its rows there
    const std::size_t rows = got.size() / width;
    if (rows < 2 || rows > kMaxRows) return {};
    ErrorMap<double> map;
    std::string row_word;
    for (std::size_t row = 0; row < rows; ++row) {
        const ElementPlace place = place_of(row * width);
        if (place.row_word.empty()) continue;  // behind the last sequence
        row_word = place.row_word;
        double& worst = map.at(place.sequence, place.head, place.row);
        worst = std::max(worst, worst_of(expected, tensor, got, row * width, width));
    }
    if (map.has_one_cell()) return {};
    return map.text("worst error / bound", row_word, cell_text, [](double worst) {
        return std::isnan(worst) ? std::numeric_limits<double>::infinity() : worst;
    });
}

}  // namespace attncheck::properties
