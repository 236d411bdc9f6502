#include "properties/search/law_order.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string>

#include "properties/case/embedded_tables.h"

namespace attncheck::properties {
namespace {

std::string_view law_order_text() {
    for (const EmbeddedTable& table : embedded_tables())
        if (table.file == "law_order.txt") return table.text;
    throw std::logic_error("the table law_order.txt was not embedded");
}

std::vector<MeasuredLaw> read_law_order(std::string_view text) {
    std::vector<MeasuredLaw> laws;
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        if (line.empty() || line.front() == '#') continue;
        MeasuredLaw& one = laws.emplace_back();
        one.law = line.substr(0, line.find(' '));
        std::istringstream numbers{std::string(line.substr(one.law.size()))};
        double seconds = 0;
        if (!(numbers >> one.kills >> seconds >> one.cases))
            throw std::logic_error("law_order.txt: " + std::string(line));
    }
    return laws;
}

}  // namespace

const std::vector<MeasuredLaw>& law_order() {
    static const std::vector<MeasuredLaw> laws = read_law_order(law_order_text());
    return laws;
}

std::size_t rank_of(std::string_view law) {
    const auto& laws = law_order();
    return static_cast<std::size_t>(std::ranges::find(laws, law, &MeasuredLaw::law) - laws.begin());
}

}  // namespace attncheck::properties
