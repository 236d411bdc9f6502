// Just enough of a reader to tell well-formed XML: tags nest, attributes are quoted and differ,
// text holds no bare markup.
#pragma once

#include <algorithm>
#include <regex>
#include <string>
#include <vector>

namespace attncheck::properties {

/// What is wrong, or an empty string.
inline std::string xml_error(const std::string& xml) {
    static const std::regex tag("<(/?)([A-Za-z-]+)((?: [A-Za-z]+=\"[^\"<]*\")*)(/?)>",
                                std::regex::optimize);
    static const std::regex bare("&(?!(amp|lt|gt|quot|apos|#[0-9]+);)");
    const std::string declaration = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    if (xml.rfind(declaration, 0) != 0) return "no declaration";
    if (std::regex_search(xml, bare)) return "a bare ampersand";
    std::vector<std::string> open;
    int roots = 0;
    std::size_t at = declaration.size();
    while (at < xml.size()) {
        if (xml[at] != '<') {
            if (open.empty() && xml[at] != '\n') return "text outside the root";
            at = std::min(xml.find('<', at), xml.size());
            continue;
        }
        std::smatch match;
        if (!std::regex_search(xml.begin() + static_cast<std::ptrdiff_t>(at), xml.end(), match, tag,
                               std::regex_constants::match_continuous))
            return "no tag at: " + xml.substr(at, 60);
        if (match[1].length() > 0) {
            if (open.empty() || open.back() != match[2].str())
                return "stray end of " + match[2].str();
            open.pop_back();
        } else {
            roots += open.empty();
            if (match[4].length() == 0) open.push_back(match[2]);
        }
        at += static_cast<std::size_t>(match.length());
    }
    if (!open.empty()) return open.back() + " is left open";
    return roots == 1 ? "" : "not one root";
}

}  // namespace attncheck::properties
