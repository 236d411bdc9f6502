// Writes the texts of the laws as a C++ source: what stands above a law in the sources of
// properties/ is what `attncheck explain` prints, so that there is one text.
//
//   law_text OUT.cc FILE...
//
// A text is a block of /// lines with a line "/// Why". Its law is the word in quotes on the line
// below, as in push_back({"agreement", or on the next one where that one ends with a bracket; else the
// function that is declared there.
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace {

struct LawText {
    std::string path, name, text;
};

std::string trimmed(const std::string& line) {
    const auto first = line.find_first_not_of(' ');
    return first == std::string::npos ? "" : line.substr(first);
}

bool is_letter(char c) { return c == '_' || (c >= 'a' && c <= 'z'); }
bool is_of_name(char c) { return is_letter(c) || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

/// The first "word" in quotes; empty: none. By hand, for <regex> takes seconds to compile and the program waits for this one.
std::string quoted_word(const std::string& line) {
    for (auto quote = line.find('"'); quote != std::string::npos; quote = line.find('"', quote + 1)) {
        auto end = quote + 1;
        while (end < line.size() && is_letter(line[end])) ++end;
        if (end > quote + 1 && end < line.size() && line[end] == '"') return line.substr(quote + 1, end - quote - 1);
    }
    return {};
}

/// The first name before a parenthesis; empty: none.
std::string function_name(const std::string& line) {
    for (auto open = line.find('('); open != std::string::npos; open = line.find('(', open + 1)) {
        auto end = open;
        while (end > 0 && (line[end - 1] == ' ' || line[end - 1] == '\t')) --end;
        auto begin = end;
        while (begin > 0 && is_of_name(line[begin - 1])) --begin;
        if (begin < end) return line.substr(begin, end - begin);
    }
    return {};
}

/// The name that the lines from `at` on declare; empty: none.
std::string name_at(const std::vector<std::string>& lines, std::size_t at) {
    if (at >= lines.size()) return {};
    if (const std::string word = quoted_word(lines[at]); !word.empty()) return word;
    const bool goes_on = !lines[at].empty() && std::string("({").find(lines[at].back()) != std::string::npos;
    if (goes_on && at + 1 < lines.size() && lines[at].find("push_back") != std::string::npos)
        if (const std::string word = quoted_word(lines[at + 1]); !word.empty()) return word;
    for (std::size_t k = at; k < lines.size() && k < at + 3; ++k)
        if (const std::string name = function_name(lines[k]); !name.empty())
            return name.rfind("check_", 0) == 0 ? name.substr(6) : name;
    return {};
}

std::vector<LawText> texts_of(const std::string& path) {
    std::ifstream in(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    std::vector<LawText> out;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        std::string text;
        bool has_reason = false;
        for (; i < lines.size() && trimmed(lines[i]).rfind("///", 0) == 0; ++i) {
            const std::string words = trimmed(lines[i]).substr(3);
            text += (words.rfind(' ', 0) == 0 ? words.substr(1) : words) + "\n";
            has_reason = has_reason || words.rfind(" Why ", 0) == 0;
        }
        if (!has_reason) continue;
        if (const std::string name = name_at(lines, i); !name.empty()) out.push_back({path, name, text});
    }
    return out;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::cerr << "usage: law_text OUT.cc FILE...\n";
        return 2;
    }
    std::ofstream out(argv[1]);
    out << "#include \"properties/cli/law_text.h\"\n\nnamespace attncheck::properties {\n\n"
           "const std::vector<LawText>& law_texts() {\n    static const std::vector<LawText> texts = {\n";
    for (int k = 2; k < argc; ++k)
        for (const LawText& one : texts_of(argv[k]))
            out << "        {\"" << one.path << "\", \"" << one.name << "\", R\"law(" << one.text << ")law\"},\n";
    out << "    };\n    return texts;\n}\n\n}  // namespace attncheck::properties\n";
    return out.good() ? 0 : 1;
}
